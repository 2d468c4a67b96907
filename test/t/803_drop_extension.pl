# Nobody loses columns by dropping the extension: what fails says what to do, and
# CASCADE drops no data that was not meant.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node);
use Test::More;

my $node = new_node('main', conf => 'client_min_messages = warning');

$node->start;

# A database with tables, and what is in it afterwards
sub create_database
{
	my ($name, $sql) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name, $sql);
	return;
}

create_database(
	'shop', q{
	CREATE SCHEMA ids; CREATE EXTENSION snowflake SCHEMA ids;
	CREATE SCHEMA "My shop";
	CREATE TABLE "My shop"."Orders" ("Id" ids.snowflake PRIMARY KEY DEFAULT ids.snowflake_next(), note text);
	INSERT INTO "My shop"."Orders" (note) VALUES ('one'), ('two')});

# What an error says would be lost, a line for each
sub losses
{
	my ($dbname, $sql) = @_;
	my ($ret, $stdout, $stderr) = $node->psql($dbname, $sql);

	return $stderr =~ /^(?:DETAIL:  )?((?:Attribute|Column|Table|\(and) .*)$/mg;
}

foreach my $behavior ('', ' RESTRICT')
{
	my $error = error_of($node, "DROP EXTENSION snowflake$behavior", dbname => 'shop');

	is($error->{sqlstate}, '2BP01', "DROP EXTENSION$behavior fails");
	like(
		$error->{detail},
		qr/^column Id of table "My shop"\."Orders" depends on type ids\.snowflake$/m,
		'and lists the columns');
	is( $error->{hint},
		'Convert columns of type snowflake to bigint first, which rewrites nothing: '
		  . 'ALTER TABLE ... ALTER COLUMN ... DROP DEFAULT, ALTER COLUMN ... TYPE bigint; CASCADE would drop them.',
		'and does not say CASCADE');
}
like(
	error_of($node, 'DROP SCHEMA ids', dbname => 'shop')->{hint},
	qr/^Use DROP \.\.\. CASCADE/,
	'hints of others stay');
is($node->psql('shop', 'DROP EXTENSION IF EXISTS snowflake_keeper'), 0, 'so do other extensions');

# What would drop the column
$node->safe_psql(
	'shop', q{
	CREATE ROLE seller; CREATE ROLE buyer;
	GRANT CREATE ON DATABASE shop TO seller});
my $remedy =
  'ALTER TABLE "My shop"."Orders" ALTER COLUMN "Id" DROP DEFAULT, ALTER COLUMN "Id" TYPE bigint;';
foreach my $drop (
	'DROP EXTENSION snowflake CASCADE',
	'DROP EXTENSION plpgsql, snowflake CASCADE',
	'DROP SCHEMA ids CASCADE',
	q{DO 'BEGIN DROP EXTENSION snowflake CASCADE; END'})
{
	my $error = error_of($node, $drop, dbname => 'shop');

	is($error->{sqlstate}, '2BP01', "$drop fails");
	is( $error->{detail},
		'Column "Id" of table "My shop"."Orders" would be dropped.',
		'with the reason');
	is( $error->{hint},
		"Convert the columns to core's types first, which rewrites nothing but arrays: $remedy",
		'and with what to do');
}
is($node->safe_psql('shop', 'SELECT count("Id") FROM "My shop"."Orders"'), '2', 'nothing is lost');
is($node->psql('shop', "SET search_path = public; $remedy DROP EXTENSION snowflake"),
	0, 'and that works');
is($node->safe_psql('shop', 'SELECT count("Id") FROM "My shop"."Orders"'), '2', 'the IDs are kept');

# Whoever owns the extension
create_database('owned',
	'GRANT CREATE ON DATABASE owned TO seller; GRANT ALL ON SCHEMA public TO seller, buyer');
$node->safe_psql(
	'owned', q{
	SET ROLE seller; CREATE EXTENSION snowflake;
	CREATE TABLE sales (id snowflake);
	CREATE TABLE sold (id snowflake) PARTITION BY RANGE (id);
	SET ROLE buyer; CREATE TABLE bought (id snowflake)});
is( error_of($node, 'DROP OWNED BY seller CASCADE', dbname => 'owned')->{detail},
	'Column id of table public.bought would be dropped.',
	'DROP OWNED, where others have such columns');
is($node->psql('owned', 'DROP TABLE bought; DROP OWNED BY buyer, seller CASCADE'),
	0, 'and where they have none');
is( $node->safe_psql('owned', q{SELECT count(*) FROM pg_class WHERE relname IN ('sales', 'sold')}),
	'0',
	'then his own tables are dropped');

# What becomes of a column is a type of core's.
create_database('plain',
	'CREATE EXTENSION snowflake; CREATE TABLE t (id snowflake, a snowflake[], at snowflake_time)');
my @types;
foreach my $column (1 .. 3)
{
	my ($alter, $type) =
	  error_of($node, 'DROP EXTENSION snowflake CASCADE', dbname => 'plain')->{hint} =~
	  /(ALTER TABLE public\.t .* TYPE (.*);)$/;

	push @types, $type;
	is($node->psql('plain', $alter), 0, "a column becomes $type");
}
is( join(', ', sort @types),
	'bigint, bigint[], timestamp with time zone',
	'each column becomes what it can be');
is($node->psql('plain', 'DROP EXTENSION snowflake'), 0, 'then nothing is lost');

# All kinds of columns, and those that are no loss
create_database(
	'kinds', q{
	CREATE EXTENSION snowflake;
	CREATE DOMAIN d AS snowflake;
	CREATE DOMAIN dda AS d[];
	CREATE TYPE c AS (n int, id snowflake);
	CREATE TYPE r AS RANGE (subtype = snowflake);
	CREATE TABLE a (id bigint DEFAULT snowflake_next(), d d, dd d[], dda dda, m r, mm r_multirange, t snowflake_time);
	CREATE TABLE b (c c);
	CREATE TABLE p (id snowflake) PARTITION BY RANGE (id);
	CREATE TABLE p1 PARTITION OF p DEFAULT PARTITION BY RANGE (id);
	CREATE TABLE p2 PARTITION OF p1 DEFAULT;
	CREATE TABLE q (day date, id snowflake) PARTITION BY RANGE (day);
	CREATE TABLE e (id bigint) PARTITION BY HASH (snowflake_node(id, 'twitter'));
	CREATE VIEW v AS SELECT id, snowflake_timestamp(id) AS created_at FROM a;
	CREATE MATERIALIZED VIEW w AS SELECT id FROM p;
	CREATE INDEX ON a (snowflake_node(id, 'twitter'))});
is( join("\n", sort(losses('kinds', 'DROP EXTENSION snowflake CASCADE'))),
	join("\n",
		'Attribute id of type public.c would be dropped.',
		'Column d of table public.a would be dropped.',
		'Column dd of table public.a would be dropped.',
		'Column dda of table public.a would be dropped.',
		'Column id of table public.q would be dropped.',
		'Column m of table public.a would be dropped.',
		'Column mm of table public.a would be dropped.',
		'Column t of table public.a would be dropped.',
		'Table public.e would be dropped with all partitions, because its partition key depends on the extension.',
		'Table public.p would be dropped with all partitions, because its partition key depends on the extension.'
	),
	'domains, also of arrays, arrays, ranges, times, row types, partition keys and columns beside them are seen, derived things are not'
);

# A partition that is partitioned itself, by something of the extension, though its table is not
create_database(
	'nested', q{
	CREATE EXTENSION snowflake;
	CREATE TABLE l (region text, id bigint) PARTITION BY LIST (region);
	CREATE TABLE l_eu PARTITION OF l FOR VALUES IN ('eu') PARTITION BY HASH (snowflake_node(id, 'twitter'));
	CREATE TABLE l_eu_0 PARTITION OF l_eu FOR VALUES WITH (MODULUS 1, REMAINDER 0) PARTITION BY HASH (snowflake_node(id, 'twitter'));
	CREATE TABLE l_eu_0_0 PARTITION OF l_eu_0 FOR VALUES WITH (MODULUS 1, REMAINDER 0)});
is( join("\n", losses('nested', 'DROP EXTENSION snowflake CASCADE')),
	'Table public.l_eu would be dropped with all partitions, because its partition key depends on the extension.',
	'a partition whose own key depends on the extension is a loss, its partitions are no more');
is( $node->psql(
		'kinds', 'CREATE SCHEMA other; CREATE TABLE other.p (id snowflake) PARTITION BY RANGE (id)'
	),
	0,
	'another schema');
is( error_of($node, 'DROP SCHEMA public CASCADE', dbname => 'kinds')->{detail},
	'Table public.p would be dropped with all partitions, because its partition key depends on the extension.'
	  =~ s/public/other/r,
	'a schema is dropped with all that is in it, but not with what is elsewhere');
is($node->psql('kinds', 'DROP TABLE other.p; DROP SCHEMA public CASCADE'),
	0, 'a schema is dropped with its extension');
foreach my $schemas ('app, ids', 'ids, app')
{
	$node->safe_psql(
		'kinds', q{
		CREATE SCHEMA ids; CREATE EXTENSION snowflake SCHEMA ids;
		CREATE SCHEMA app; CREATE TABLE app.p (id ids.snowflake) PARTITION BY RANGE (id)});
	is(error_of($node, "DROP SCHEMA $schemas CASCADE", dbname => 'kinds')->{message},
		'', "so are all that are named: $schemas");
}

# An event trigger that drops something itself, or fails to, before the extension is dropped
create_database('tidied',
	'CREATE EXTENSION snowflake; CREATE TABLE t (id snowflake); CREATE SCHEMA scratch');
foreach my $drop ('DROP SCHEMA scratch', 'DROP SCHEMA public', 'DROP EXTENSION plpgsql')
{
	$node->safe_psql(
		'tidied', qq{
		CREATE OR REPLACE FUNCTION tidy() RETURNS event_trigger LANGUAGE plpgsql AS \$\$
			BEGIN
				IF tg_tag = 'DROP EXTENSION' AND current_setting('tidied.by', true) IS NULL THEN
					PERFORM set_config('tidied.by', 'tidy', false);
					$drop;
				END IF;
			EXCEPTION WHEN dependent_objects_still_exist THEN
				RAISE WARNING 'not tidied';
			END \$\$});
	$node->safe_psql('tidied',
		'CREATE EVENT TRIGGER tidy ON ddl_command_start EXECUTE FUNCTION tidy()')
	  if $drop =~ /scratch/;
	my ($ret, $stdout, $stderr) = $node->psql('tidied', 'DROP EXTENSION snowflake CASCADE');
	like(
		$stderr,
		qr/^DETAIL:  Column id of table public\.t would be dropped\.$/m,
		"an event trigger runs $drop: the column is seen all the same");
	is( $stderr =~ /not tidied/ ? 'failed' : 'done',
		$drop =~ /scratch/ ? 'done' : 'failed',
		'the trigger has run');
}

# What was dropped before by its name is not held against anybody
create_database('before',
	'CREATE EXTENSION snowflake; CREATE TABLE t (id snowflake, n int); CREATE TABLE u (id snowflake)'
);
is( $node->psql(
		'before',
		'BEGIN; ALTER TABLE t DROP COLUMN id; DROP TABLE u; DROP EXTENSION snowflake CASCADE; COMMIT'
	),
	0,
	'columns and tables that are dropped first');
is($node->safe_psql('before', q{SELECT count(*) FROM pg_extension WHERE extname = 'snowflake'}),
	'0', 'are no obstacle');

# More than anybody reads
create_database('many',
		'CREATE EXTENSION snowflake; CREATE TABLE t ('
	  . join(', ', map { "c$_ snowflake" } 1 .. 13)
	  . ')');
is( join(' ',
		map { s/^Column c.* would be dropped\.$/column/r }
		  losses('many', 'DROP EXTENSION snowflake CASCADE')),
	'column ' x 10 . '(and 3 more)',
	'not all of many are shown');

# Restore with --clean, into a database that has everything
$node->run_log(
	[ 'pg_dump', '-Fc', '--clean', '-f', $node->basedir . '/many.dump', $node->connstr('many') ]);
$node->command_ok(
	[
		'pg_restore', '--clean',
		'--exit-on-error', '-d',
		$node->connstr('many'), $node->basedir . '/many.dump'
	],
	'pg_restore --clean drops tables before the extension');
is($node->psql('postgres', 'DROP DATABASE many'), 0, 'a database is dropped as ever');

$node->stop;
done_testing();
