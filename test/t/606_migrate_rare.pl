# What hangs on keys in few applications is neither lost by a migration under one lock, nor by one
# in use, nor by its undo(), by an owner who is no superuser; what cannot be kept is in the plan,
# and then nothing is changed.
#
# versions: all
# long

use SnowflakeDepot qw(build catalog conf difference run_file unexplained);
use SnowflakeTest qw(error_of new_node query refuses wait_for_mint);

my $node = new_node('main', conf => conf());
$node->start;
query($node, 'CREATE EXTENSION snowflake');
wait_for_mint($node);
my @of = ('-v', q{n=IN ('rare')});
my $arguments = q{'{rare}', 'bigint', '{rare.pairs.b,rare.pairs.c,rare.pairs.tags}'};

# A database with the application
sub new_database
{
	my ($dbname, @options) = @_;

	query($node, "CREATE DATABASE $dbname");
	query(
		$node,
		'CREATE EXTENSION snowflake; CREATE EXTENSION snowflake_migrate',
		dbname => $dbname);
	my (undef, $stderr) = run_file($node, $dbname, 'rare.sql', @options);
	die $stderr if $stderr ne '';
	return catalog($node, $dbname, @of);
}

sub as_owner
{
	my ($dbname, $sql) = @_;

	return query($node, "SET ROLE rare_owner; $sql", dbname => $dbname);
}

# Under one lock

my $before = new_database('offline', '-v', 'offline=1');
is( as_owner(
		'offline',
		"SELECT string_agg(object || ': ' || detail, E'\n') FROM snowflake_migrate.plan($arguments) WHERE finding = 'blocks'"
	),
	'',
	'nothing is in the way');
my $statements = as_owner('offline', "SELECT count(*) FROM snowflake_migrate.convert($arguments)");
cmp_ok($statements, '>', 100, 'an owner converts');

# (that of the table is the partitions' as well)
is( unexplained(
		map {
			[ grep { !/^column \| rare\.logs_\d \| id / } @$_ ]
		} $before,
		catalog($node, 'offline', @of)),
	'',
	'nothing of the catalogs is lost');
is( as_owner(
		'offline', q{INSERT INTO rare.keys (note) VALUES ('c') RETURNING id > 1::bigint << 50}),
	't',
	'a new key');

# In use

$before = new_database('online');
query(
	$node, q{
	GRANT INSERT, UPDATE, DELETE ON snowflake_migrate.migration, snowflake_migrate.shadow, snowflake_migrate.filling, snowflake_migrate.step TO rare_owner;
	GRANT SET ON PARAMETER session_replication_role TO rare_owner;
	-- it would apply to rows that are filled
	ALTER TABLE rare.keys ENABLE TRIGGER of_note}, dbname => 'online');
$before = catalog($node, 'online', @of);
my $rows =
  q{SELECT md5(string_agg(k::text, ' ' ORDER BY id)) FROM rare.keys k UNION ALL SELECT md5(string_agg(p::text, ' ' ORDER BY a)) FROM rare.pairs p
	UNION ALL SELECT string_agg(k::text, ' ' ORDER BY id) FROM rare.kinds k};
my $had = query($node, $rows, dbname => 'online');

sub swap
{
	as_owner('online', "CALL snowflake_migrate.fill($arguments)");
	is(build($node, 'online', 'SET ROLE rare_owner;'), '', 'indexes and constraints are made');
	as_owner('online', 'CALL snowflake_migrate.swap()');
	return;
}

is( as_owner(
		'online',
		"SELECT string_agg(object || ': ' || detail, E'\n') FROM snowflake_migrate.plan($arguments) WHERE finding IN ('blocks', 'online') AND object !~ '^statements '"
	),
	'',
	'nothing is in the way');
swap();
as_owner('online', 'CALL snowflake_migrate.undo()');
is(difference($before, catalog($node, 'online', @of)), '', 'undone: the schema is as it was');
is(query($node, $rows, dbname => 'online'), $had, 'and so are the rows');
swap();
as_owner('online', 'CALL snowflake_migrate.finish()');
is(unexplained($before, catalog($node, 'online', @of)),
	'', 'finished: nothing of the catalogs is lost');
is( as_owner('online', q{INSERT INTO rare.keys (note) VALUES ('c') RETURNING id > 1::bigint << 50}),
	't',
	'a new key');

# A security label, of a provider that is not here
query(
	$node, q{
	CREATE TABLE labeled (id serial PRIMARY KEY);
	CREATE VIEW of_labeled AS SELECT id FROM labeled;
	INSERT INTO pg_seclabel VALUES ('of_labeled'::regclass, 'pg_class'::regclass, 0, 'some "one', 'it''s secret'),
		('of_labeled'::regclass, 'pg_class'::regclass, 1, 'some "one', 'a column')}, dbname => 'online');
is( query(
		$node,
		q{SELECT string_agg(s, ' ' ORDER BY s) FROM snowflake_migrate.statements('{public.labeled}') AS s WHERE s LIKE 'SECURITY%'},
		dbname => 'online'),
	q{SECURITY LABEL FOR "some ""one" ON COLUMN public.of_labeled.id IS 'a column' }
	  . q{SECURITY LABEL FOR "some ""one" ON VIEW public.of_labeled IS 'it''s secret'},
	'security labels are kept');

# What cannot be kept

query(
	$node, q{
	CREATE SCHEMA odd AUTHORIZATION rare_owner;
	CREATE EXTENSION file_fdw;
	CREATE SERVER odd_server FOREIGN DATA WRAPPER file_fdw}, dbname => 'online');

# What is in the way, which object that is, for keys of which type, and how it comes about; "this"
# is the table whose key is to be converted.
my @cases = split /^(\S.*)\n/m, q{
two parents | table odd.this_child | bigint
	CREATE TABLE odd.this (id serial PRIMARY KEY);
	CREATE TABLE odd.this_too (id integer NOT NULL);
	CREATE TABLE odd.this_child () INHERITS (odd.this, odd.this_too);
a domain of a view | type odd.this_row | bigint
	CREATE TABLE odd.this (id serial PRIMARY KEY);
	CREATE VIEW odd.this_view AS SELECT id FROM odd.this;
	CREATE DOMAIN odd.this_row AS odd.this_view CHECK ((VALUE).id > 0);
a view of an extension | view odd.this_view | bigint
	CREATE TABLE odd.this (id serial PRIMARY KEY);
	CREATE VIEW odd.this_view AS SELECT id FROM odd.this;
	RESET ROLE;
	ALTER EXTENSION file_fdw ADD VIEW odd.this_view;
a table of a type | table odd.this | bigint
	CREATE TYPE odd.this_type AS (id integer);
	CREATE TABLE odd.this OF odd.this_type (PRIMARY KEY (id));
	CREATE SEQUENCE odd.this_seq;
	ALTER TABLE odd.this ALTER COLUMN id SET DEFAULT nextval('odd.this_seq');
a column of the row type | column odd.this_rows.rows | bigint
	CREATE TABLE odd.this (id serial PRIMARY KEY);
	CREATE TABLE odd.this_rows (rows odd.this[]);
a partition key | table odd.this | bigint
	CREATE TABLE odd.this (id serial PRIMARY KEY) PARTITION BY RANGE (id);
an index that needs an integer | table odd.this | bigint
	CREATE TABLE odd.this (id serial PRIMARY KEY);
	CREATE FUNCTION odd.this_of(integer) RETURNS integer LANGUAGE sql IMMUTABLE RETURN $1;
	CREATE INDEX ON odd.this (odd.this_of(id));
a function that only a superuser makes | function odd.this_leakproof() | bigint
	CREATE TABLE odd.this (id serial PRIMARY KEY);
	CREATE FUNCTION odd.this_leakproof() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT max(id) FROM odd.this; END;
	RESET ROLE;
	ALTER FUNCTION odd.this_leakproof() LEAKPROOF;
a schema in which nothing may be created | view odd_this.view | bigint
	CREATE SCHEMA odd_this;
	CREATE TABLE odd.this (id serial PRIMARY KEY);
	CREATE VIEW odd_this.view AS SELECT id FROM odd.this;
	REVOKE CREATE ON SCHEMA odd_this FROM rare_owner;
a filter of a publication | publication this | snowflake
	CREATE TABLE odd.this (id serial PRIMARY KEY);
	CREATE PUBLICATION this FOR TABLE odd.this WHERE (id > 5);
};
my $odd_objects = sub { return catalog($node, 'online', '-v', q{n=IN ('odd')}); };
shift @cases;
foreach my $i (1 .. @cases / 2)
{
	my ($case, $sql) = map { s/this/odd_$i/gr } splice @cases, 0, 2;
	my ($name, $object, $type) = split / \| /, $case;

	query($node, "SET ROLE rare_owner; $sql", dbname => 'online');
	like(
		as_owner(
			'online',
			"SELECT string_agg(object, ' ') FROM snowflake_migrate.plan('{odd.odd_$i}', '$type') WHERE finding = 'blocks'"
		),
		qr/^\Q$object\E/,
		"$name: the plan says what is in the way");
	my $before = $odd_objects->();
	refuses(
		$node,
		"SET ROLE rare_owner; SELECT * FROM snowflake_migrate.convert('{odd.odd_$i}', '$type')",
		'55000',
		"$name: it is refused",
		dbname => 'online');
	is(difference($before, $odd_objects->()), '', "$name: nothing is changed");
}

# Of the session's own
refuses(
	$node, q{
	CREATE TEMPORARY VIEW passing AS SELECT id FROM labeled;
	SELECT * FROM snowflake_migrate.convert('{public.labeled}')},
	'55000', 'a temporary view',
	dbname => 'online',
	message => qr/^view passing prevents the conversion/);

# What only speaks against doing it in use
query(
	$node, q{
	CREATE TABLE rare.near (id serial PRIMARY KEY);
	CREATE FOREIGN TABLE rare.far () INHERITS (rare.near) SERVER odd_server OPTIONS (filename '/dev/null', format 'csv');
	REVOKE TEMPORARY ON DATABASE online FROM PUBLIC, rare_owner;
	ALTER TABLE rare.near OWNER TO rare_owner;
	ALTER FOREIGN TABLE rare.far OWNER TO rare_owner;
	REVOKE CREATE ON SCHEMA rare FROM rare_owner}, dbname => 'online');
is( as_owner(
		'online',
		q{SELECT string_agg(object, ', ' ORDER BY object) FROM snowflake_migrate.plan('{rare.near}') WHERE finding = 'online'}
	),
	'database online, foreign table rare.far, schema rare, statements that insert without a list of columns',
	'foreign tables, and what the role may not');
as_owner('online', q{SELECT * FROM snowflake_migrate.convert('{rare.near}')});

# Keys that reference each other are both keys
query(
	$node, q{
	CREATE TABLE public.one (id serial PRIMARY KEY);
	CREATE TABLE public.two (id serial PRIMARY KEY REFERENCES one);
	ALTER TABLE one ADD FOREIGN KEY (id) REFERENCES two DEFERRABLE INITIALLY DEFERRED},
	dbname => 'online');
is( query(
		$node,
		q{SELECT string_agg(object, ' ' ORDER BY object) FROM snowflake_migrate.plan('{public.one,public.two}') WHERE finding = 'key'},
		dbname => 'online'),
	'column public.one.id column public.two.id',
	'keys that reference each other');

$node->stop;
done_testing();
