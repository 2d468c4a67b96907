# The extension snowflake_partitions with obstacles: the default partition's rows are reported
# or moved, foreign keys keep them where they are, other roles may do nothing, and a failure for
# one table is reported at the end, when the others have been maintained.
# versions: all

use SnowflakePartitions qw(
  complaints due fails look_after maintain maintain_at names partitions_node run_script sql start_run
);
use SnowflakeTest;

my $node = partitions_node();

# The superuser
sub super { return query($node, @_); }

# A default partition: its rows are reported, and in the way
sql(q{
	CREATE EXTENSION snowflake_partitions;
	CREATE TABLE full_of (id snowflake PRIMARY KEY DEFAULT snowflake_next(), n integer GENERATED ALWAYS AS IDENTITY,
		line text NOT NULL, length integer GENERATED ALWAYS AS (length(line)) STORED, gone text) PARTITION BY RANGE (id);
	ALTER TABLE full_of DROP gone;
	CREATE TABLE "rest of it" PARTITION OF full_of DEFAULT;
	INSERT INTO full_of (id, line) SELECT make_snowflake(timestamptz '2026-10-20Z' + make_interval(days => i), 1, 0), 'day ' || i
	  FROM generate_series(1, 30) i;
	INSERT INTO full_of (id, line) VALUES ('0', 'zero');
	CREATE TABLE changes (n serial, op text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.changes (op) VALUES (TG_OP); RETURN coalesce(NEW, OLD); END $$;
	CREATE TRIGGER note BEFORE INSERT OR DELETE ON full_of FOR EACH ROW EXECUTE FUNCTION note()});
look_after('full_of', 'month', ahead => 1);
my $checksum = q{SELECT md5(string_agg(f::text, ',' ORDER BY id)) FROM full_of f};
my $rows = sql($checksum);
my $in_the_way =
  'DETAIL:  app.full_of: cannot create full_of_2026_11, from 2026-11-01 00:00:00+00: app."rest of it" has 19 rows of that time';
is( join("\n", map { s/ID \d+/ID N/r } complaints('2026-11-10Z') =~ /((?:WARNING|DETAIL):  .*)/g),
	join("\n",
		'WARNING:  app.full_of: app."rest of it" has 1 rows from ID N on, of the month that begins at 2010-11-01 00:00:00+00',
		'WARNING:  app.full_of: app."rest of it" has 11 rows from ID N on, of the month that begins at 2026-10-01 00:00:00+00',
		$in_the_way),
	'rows of the default partition are reported');
is(names('full_of'), 'full_of_2026_12', 'what they are not in the way of is made');

# they are moved, with what the server made of them; triggers see it.  Here psql does it, in a
# session in whose search_path a hostile schema comes first.
sql(q{UPDATE snowflake_partitions.tables SET default_rows = 'move'});
is( (   run_script(
			q{SET search_path = evil, pg_catalog, app, public;
			SELECT statement FROM snowflake_partitions.due('2026-11-10Z') \gexec}))[1],
	'',
	'nothing of what is in the search_path is run');
is( sql(q{SELECT tableoid::regclass, count(*) FROM full_of GROUP BY tableoid ORDER BY min(id)}),
	"full_of_2010_11|1\nfull_of_2026_10|11\nfull_of_2026_11|19",
	'rows of the default partition are moved');
is(sql($checksum), $rows, 'as they are');
is(sql('SELECT op, count(*) FROM changes GROUP BY op ORDER BY op'),
	"DELETE|31\nINSERT|31", 'which triggers see');

# so are those that are committed while the move waits for their writer
sql(q{INSERT INTO full_of (id, line) VALUES (make_snowflake('2027-05-03Z', 1, 0), 'before')});
my $writer = session($node,
	q{BEGIN; INSERT INTO app.full_of (id, line) VALUES (make_snowflake('2027-05-04Z', 1, 0), 'meanwhile')}
);
my $run = start_run(q{lock_timeout => '0', at => '2026-11-10Z'}, "wait_event_type = 'Lock'");
$writer->query_safe('COMMIT');
finish_statement($run);
$_->quit foreach $run, $writer;
is(sql('SELECT count(*) FROM full_of_2027_05'), '2', 'a row that came meanwhile is moved as well');

# a trigger that leaves rows out, and references that DELETE would act on, keep them where they are
sql(q{
	DROP TABLE full_of_2027_05;
	INSERT INTO full_of (id, line) VALUES (make_snowflake('2027-02-03Z', 1, 0), 'leave out'), (make_snowflake('2027-02-03Z', 1, 1), 'in');
	CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RETURN CASE WHEN NEW.line <> 'leave out' THEN NEW END; END $$;
	CREATE TRIGGER z BEFORE INSERT ON full_of FOR EACH ROW EXECUTE FUNCTION leave_out()});
like(
	complaints('2026-11-10Z'),
	qr/only 1 of 2 rows of app."rest of it" were moved/,
	'no row is left out');
sql(q{
	DROP TRIGGER z ON full_of;
	CREATE TABLE referencing (id snowflake REFERENCES full_of ON DELETE CASCADE);
	INSERT INTO referencing SELECT id FROM full_of WHERE line = 'in'});
my $said = complaints('2026-11-10Z');
like(
	$said,
	qr/WARNING:  app.full_of: app."rest of it" has 2 rows from ID \d+ on, of the month that begins at 2027-02-01/,
	'rows that foreign keys reference are reported');
unlike($said, qr/ERROR/, 'which is no error');
is(sql(q{SELECT count(*) FROM referencing}), '1', 'what references them stays');

# Detaching what is referenced fails, and does not keep the rest from being done
sql(q{
	UPDATE snowflake_partitions.tables SET keep = '1 month', old = 'drop', default_rows = 'report';
	INSERT INTO referencing SELECT id FROM full_of WHERE line = 'day 3'});
like(
	complaints('2026-12-10Z'),
	qr/DETAIL:  app.full_of: detach app.full_of_2026_10: removing partition "full_of_2026_10" violates foreign key/,
	'what is referenced cannot be detached');
is( names('full_of'),
	'full_of_2026_10 full_of_2026_11 full_of_2026_12 full_of_2027_01',
	'what is not referenced is');

sql(q{DELETE FROM referencing; DROP TABLE referencing; DELETE FROM "rest of it"});
maintain_at('2026-12-10Z');
is( names('full_of') . sql(q{SELECT to_regclass('full_of_2026_10')}),
	'full_of_2026_11 full_of_2026_12 full_of_2027_01',
	'until it is not');

# Rows of the default partition that are older than what is kept stay there: old keys look as if
# they were from the layout's first second.
sql(q{
	DELETE FROM snowflake_partitions.tables;
	CREATE TABLE aged (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
	CREATE TABLE aged_rest PARTITION OF aged DEFAULT;
	INSERT INTO aged SELECT generate_series(1, 1000)});
look_after(
	'aged', 'month',
	ahead => 1,
	keep => '13 months',
	old => 'drop',
	default_rows => 'move');
is(due('2012-01-01Z', q{what ~ 'aged_rest'}),
	'', 'nor are those of the period that has just become old');
maintain();
is(sql('SELECT count(*) FROM aged_rest'),
	'1000', 'what is older than is kept is not moved and dropped');

# An ID that is of no period does not keep other tables from being looked after; nor does one that is
# larger than those of the layout, a layout that has ended, or rows that are kept for longer than there
# have been times.
super(
	q{
	SET allow_in_place_tablespaces = on;
	CREATE TABLESPACE elsewhere LOCATION '';
	GRANT CREATE ON TABLESPACE elsewhere TO owner});
sql(q{
	INSERT INTO aged VALUES (9223372036854775807);
	CREATE TABLE narrow (id bigint) PARTITION BY RANGE (id);
	CREATE TABLE narrow_rest PARTITION OF narrow DEFAULT;
	INSERT INTO narrow VALUES (9223372036854775807);
	CREATE TABLE typo (id bigint) PARTITION BY RANGE (id);
	CREATE TABLE later (id bigint PRIMARY KEY, line text DEFAULT 'none') PARTITION BY RANGE (id) TABLESPACE elsewhere;
	ALTER TABLE later ALTER line SET STORAGE EXTERNAL;
	CREATE STATISTICS later_lines ON id, line FROM later;
	ALTER TABLE later REPLICA IDENTITY NOTHING});
look_after('typo', 'month', keep => '1 year', layout => 'twiter');
look_after('later', 'month', keep => '10000 years');
look_after('narrow', 'month', layout => 'javascript');
$node->psql(
	'postgres', 'SET search_path = app, public; CALL snowflake_partitions.maintain()',
	connstr => $node->connstr('postgres') . ' user=owner',
	stderr => \$said);
my $no_period =
  'has 1 rows from ID 9223372036854775807 on, which belong to no whole period of the layout';
foreach my $expected (
	"app.aged: app.aged_rest $no_period",
	"app.narrow: app.narrow_rest $no_period",
	'app.typo: cannot determine what is due: ')
{
	like($said, qr/\Q$expected\E/, "it is reported: $expected");
}
like($said, qr/twiter/, 'which layout there is not');
like(
	sql(q{SELECT statement FROM snowflake_partitions.due('2080-07-01Z', false, 'later') WHERE what ~ '^create later_2080_07'}
	),
	qr/ TO \(MAXVALUE\)/,
	'a layout that ends within a period: there is a partition for it');
is( sql(q{SELECT DISTINCT spcname, relreplident, attstorage,
			(SELECT count(*) FROM pg_attrdef WHERE adrelid = c.oid), (SELECT count(*) FROM pg_statistic_ext WHERE stxrelid = c.oid)
		  FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid LEFT JOIN pg_tablespace t ON t.oid = reltablespace
		 WHERE relkind = 'r' AND relname ~ '^later_2' AND attname = 'line'}),
	'elsewhere|n|e|1|1',
	'in the tablespace of the table, with its replica identity NOTHING, storage, defaults and statistics objects'
);

sql(q{
	DELETE FROM snowflake_partitions.tables;
	DROP TABLE narrow, typo, later;
	DELETE FROM aged WHERE id > 1000});
look_after('aged', 'month', keep => '13 months');

# A table that has another owner is no more looked after by the one before, who says so, until
# the new one, whose name needs quotes, has written its row.
super(
	q{
	CREATE ROLE "Anna" LOGIN;
	GRANT USAGE, CREATE ON SCHEMA app TO "Anna";
	GRANT USAGE ON SCHEMA snowflake_partitions TO "Anna";
	ALTER TABLE app.aged OWNER TO "Anna"; ALTER TABLE app.aged_rest OWNER TO "Anna"});
is( sql(q{SELECT what, statement IS NULL FROM snowflake_partitions.due()}),
	'belongs to "Anna", who has to update its row of snowflake_partitions.tables|t',
	'a table that has another owner');
is( super(
		q{SELECT parent, what FROM snowflake_partitions.due();
		UPDATE snowflake_partitions.tables SET period = 'year' WHERE parent = 'app.aged'::regclass;
		SELECT DISTINCT parent, left(what, 6) FROM snowflake_partitions.due()},
		user => 'Anna'),
	'app.aged|create',
	'is looked after by that one when it has said so');
super('DELETE FROM snowflake_partitions.tables');

# Whose and what tables
sql(q{
	CREATE TABLE orders (id snowflake PRIMARY KEY) PARTITION BY RANGE (id);
	CREATE TABLE listed (id snowflake) PARTITION BY LIST (id);
	CREATE TABLE two (id snowflake, k integer) PARTITION BY RANGE (k, id);
	CREATE TABLE plain (id snowflake)});
look_after($_, 'day') foreach qw(listed two plain);
is( sql(q{SELECT DISTINCT what, statement IS NULL FROM snowflake_partitions.due()}),
	'is not partitioned by ranges of a first column of type snowflake or bigint|t',
	'tables that are not meant');
sql('DELETE FROM snowflake_partitions.tables');
look_after('orders', 'month');
foreach my $case (
	[
		"INSERT INTO snowflake_partitions.tables VALUES ('plain', 'month', 'Europe/Atlantis')",
		'22023'
	],
	map { [ "UPDATE snowflake_partitions.tables SET $_", '23514' ] } "period = 'decade'",
	"keep = '-1 month'",
	'ahead = 0',
	"default_rows = 'reported'")
{
	my ($sql, $sqlstate) = @$case;

	is(fails($sql)->{sqlstate}, $sqlstate, "not taken: $sql");
}
refuses(
	$node, 'CALL snowflake_partitions.maintain()',
	'55000',
	'a superuser runs nothing for others',
	message => qr/^role postgres owns no table in snowflake_partitions.tables$/);
super('CREATE ROLE other LOGIN; CREATE SCHEMA other AUTHORIZATION other');

# Those who may use it enter tables of their own, and see to no others.
super('GRANT USAGE ON SCHEMA snowflake_partitions, app TO other');
my $mine = q{SET ROLE other; CREATE TABLE other.mine (id snowflake) PARTITION BY RANGE (id);};
foreach my $sql (
	q{INSERT INTO snowflake_partitions.tables (parent, period, time_zone) VALUES ('app.listed', 'day', 'UTC')},
	q{UPDATE snowflake_partitions.tables SET keep = '1 second', old = 'drop'},
	q{UPDATE snowflake_partitions.tables SET parent = 'other.mine'},
	q{INSERT INTO snowflake_partitions.tables (parent, period, time_zone) VALUES ('other.mine', 'day', 'UTC');
		UPDATE snowflake_partitions.tables SET parent = 'app.listed' WHERE parent = 'other.mine'::regclass},
	q{DELETE FROM snowflake_partitions.tables},
	q{INSERT INTO snowflake_partitions.dropping SELECT 'app.listed', parent FROM snowflake_partitions.tables},
	q{TRUNCATE snowflake_partitions.tables CASCADE})
{
	refuses($node, "BEGIN; $mine $sql", '42501', "not with tables of others: $sql");
}
super(
	qq{$mine
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, owner) VALUES ('other.mine', 'year', 'UTC', 'owner');
	CALL snowflake_partitions.maintain()});
is( super(
		q{SELECT parent, owner, (SELECT count(*) FROM snowflake_partitions.existing(parent)) FROM snowflake_partitions.tables ORDER BY owner}
	),
	"other.mine|other|5\napp.orders|owner|0",
	'but with their own, and nothing is said of others');
super('DELETE FROM snowflake_partitions.tables; DROP TABLE other.mine');

# Names that need quotes.  The first ID of a period is in no other one.
sql(q{
	CREATE SCHEMA "My app";
	CREATE TABLE "My app"."Log" ("Id" snowflake) PARTITION BY RANGE ("Id");
	CREATE TABLE "My app"."Rest" PARTITION OF "My app"."Log" DEFAULT;
	INSERT INTO "My app"."Log" VALUES (snowflake_lower_bound('2026-11-01Z'))});
look_after('"My app"."Log"', 'month', ahead => 1);
like(
	due('2026-10-15Z'),
	qr/^create Log_2026_10, from [^,]*\ncannot create Log_2026_11, from .*"My app"\."Rest" has 1 rows of that time$/,
	'the first ID of a period is reported once');
sql(q{UPDATE snowflake_partitions.tables SET default_rows = 'move'});
maintain_at('2026-10-15Z');
is( names('"My app"."Log"'),
	'"My app"."Log_2026_10" "My app"."Log_2026_11"',
	'names that need quotes');

# What fails for one table, or cannot even be looked at, is said in the end, and the others are
# looked after; so it is when the permission to make tables is lost.
super('CREATE SCHEMA lost AUTHORIZATION owner');
sql(q{
	DELETE FROM snowflake_partitions.tables;
	CREATE TABLE lost.first (id snowflake) PARTITION BY RANGE (id);
	CREATE TABLE looked_at (id snowflake) PARTITION BY RANGE (id);
	CREATE TABLE looked_at_rest PARTITION OF looked_at DEFAULT;
	REVOKE SELECT ON looked_at_rest FROM owner;
	CREATE TABLE good (id snowflake) PARTITION BY RANGE (id)});
look_after($_, 'year', ahead => 1) foreach qw(lost.first looked_at good);
super('ALTER SCHEMA lost OWNER TO postgres; GRANT USAGE ON SCHEMA lost TO owner');
is( complaints('2026-12-10Z') =~ s/.*?(?=ERROR)//sr =~ s/^CONTEXT.*//msr =~
	  s/(\d{4}-01-01) 00:00:00\+00/$1/gr,
	join("\n",
		'ERROR:  3 of the steps that are due failed',
		'DETAIL:  lost.first: create first_2026, from 2026-01-01: permission denied for schema lost',
		'lost.first: create first_2027, from 2027-01-01: permission denied for schema lost',
		"app.looked_at: cannot determine what is due: permission denied for table looked_at_rest\n"
	),
	'what fails is said in the end');
is(names('good'), 'good_2026 good_2027', 'and the next table is looked after');
sql(q{DELETE FROM snowflake_partitions.tables; DROP TABLE lost.first, looked_at, good});
super('DROP SCHEMA lost');

# Keys of several columns, and partitions of partitions, which are as those before
sql(q{
	CREATE TABLE tenants (id snowflake DEFAULT snowflake_next(), tenant text, PRIMARY KEY (id, tenant)) PARTITION BY RANGE (id, tenant);
	CREATE TABLE tenants_cut PARTITION OF tenants FOR VALUES FROM (5, ''') TO (') TO (9, E'a\\\\b''');
	CREATE TABLE tenants_above PARTITION OF tenants FOR VALUES FROM (20, MAXVALUE) TO (29, MAXVALUE);
	CREATE TABLE tenants_below PARTITION OF tenants FOR VALUES FROM (40, MINVALUE) TO (49, MINVALUE);
	CREATE TABLE parts (id snowflake DEFAULT snowflake_next(), tenant text, PRIMARY KEY (id, tenant)) PARTITION BY RANGE (id);
	ALTER TABLE parts REPLICA IDENTITY FULL;
	CREATE TABLE parts_past PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (5);
	CREATE TABLE elsewhere (LIKE parts) PARTITION BY LIST (tenant);
	CREATE TABLE elsewhere_eu PARTITION OF elsewhere FOR VALUES IN ('de', 'it''s') PARTITION BY HASH (id);
	CREATE TABLE h0 PARTITION OF elsewhere_eu FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE h1 PARTITION OF elsewhere_eu FOR VALUES WITH (MODULUS 2, REMAINDER 1);
	CREATE TABLE elsewhere_rest PARTITION OF elsewhere DEFAULT;
	ALTER TABLE elsewhere_rest REPLICA IDENTITY FULL;
	ALTER TABLE elsewhere SET SCHEMA "My app"});
look_after($_, 'year', ahead => 1) foreach 'tenants', 'parts';
sql(sprintf q{ALTER TABLE parts ATTACH PARTITION "My app".elsewhere FOR VALUES FROM (%s) TO (%s)},
	map { sql("SELECT snowflake_lower_bound('$_-01-01Z')") } 2026, 2027);
maintain_at('2026-12-10Z');
is( sql(q{SELECT partition, ids FROM snowflake_partitions.existing('tenants') WHERE upper(ids) < 100 ORDER BY ids}
	),
	"tenants_cut|[5,10)\ntenants_above|[21,30)\ntenants_below|[40,49)",
	'bounds of several columns');
is( sql(q{
		INSERT INTO parts SELECT snowflake_lower_bound('2027-05-01Z'), unnest('{de,"it''s",us}'::text[]);
		SELECT tenant, replace(tableoid::regclass::text, '_1', '_2') FROM parts ORDER BY tenant}),
	"de|parts_2027_eu_2\nit's|parts_2027_eu_2\nus|parts_2027_rest",
	'a partition has the partitions of the one before');
is( sql(q{SELECT relname, relkind, relreplident FROM pg_class WHERE relname ~ '^parts_2027' AND relkind IN ('p', 'r') ORDER BY 1}
	),
	"parts_2027|p|f\nparts_2027_eu|p|d\nparts_2027_eu_1|r|d\nparts_2027_eu_2|r|d\nparts_2027_rest|r|f",
	'which are as those are');
sql(q{UPDATE snowflake_partitions.tables SET keep = '1 year', old = 'drop' WHERE parent = 'parts'::regclass}
);
maintain_at('2028-12-10Z');
is( names('parts')
	  . sql(q{SELECT to_regclass('parts_2027_eu_1') IS NULL, to_regclass('"My app".h0')}),
	'parts_2027 parts_2028 parts_2029f|',
	'and go with it');

# A dump has the rows of the tables that there are, and the roles that may use it.
super('DELETE FROM snowflake_partitions.tables');
sql('CREATE TABLE dropped (id snowflake) PARTITION BY RANGE (id)');
look_after(
	'parts', 'year',
	time_zone => 'Asia/Tokyo',
	keep => '2 years',
	old => 'drop',
	reported => '{[1,5)}');
look_after('dropped', 'year');
sql(q{INSERT INTO snowflake_partitions.dropping VALUES ('parts_2027', 'parts'); DROP TABLE dropped}
);
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $node->connstr('postgres') ], 'a dump');
super('CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '-e', '-d', $node->connstr('restored'), $dump ], 'is restored');
is( super(
		q{SELECT t.*, d.partition, has_schema_privilege('other', 'snowflake_partitions', 'USAGE')
		FROM snowflake_partitions.tables t FULL JOIN snowflake_partitions.dropping d USING (parent)},
		dbname => 'restored'),
	'app.parts|year|Asia/Tokyo|4||2 years|drop|report||owner|{[1,5)}|app.parts_2027|t',
	'with what was entered, and those who may use it');

done_testing();
