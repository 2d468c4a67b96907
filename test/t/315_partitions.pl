# The extension snowflake_partitions: partitions of hours to years in a time zone are made
# ahead by the clock and detached or dropped by age, by an ordinary owner, whatever the
# search_path and the session's time zone; beside readers and writers; what was killed is
# completed by the next run; and the default partition's rows are reported or moved.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "max_worker_processes = 10\ndeadlock_timeout = '50ms'\n");

$node->start;

# What a hostile schema in front of everything has, and that of the extension: they all say so when they are called
$node->safe_psql(
	'postgres', q{
	CREATE ROLE owner LOGIN;
	CREATE EXTENSION snowflake;
	CREATE FUNCTION public.trap(integer, interval) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
	CREATE OPERATOR public.* (LEFTARG = integer, RIGHTARG = interval, FUNCTION = public.trap);
	CREATE SCHEMA app AUTHORIZATION owner;
	GRANT CREATE ON DATABASE postgres TO owner;
	CREATE SCHEMA evil;
	CREATE FUNCTION evil.trap() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
	CREATE FUNCTION evil.format(text, VARIADIC "any") RETURNS text AS 'text_format' LANGUAGE internal;
	CREATE FUNCTION evil.quote_ident(text) RETURNS text LANGUAGE sql AS $$ SELECT evil.trap()::text $$;
	CREATE FUNCTION evil.format(text, text, text) RETURNS text LANGUAGE sql AS $$ SELECT evil.trap()::text $$;
	CREATE FUNCTION evil.format(text, text, text, text) RETURNS text LANGUAGE sql AS $$ SELECT evil.trap()::text $$;
	CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT evil.trap()::text $$;
	CREATE FUNCTION evil.array_position(text[], text) RETURNS integer LANGUAGE sql AS $$ SELECT evil.trap()::text::integer $$;
	CREATE FUNCTION evil.snowflake_lower_bound(timestamptz) RETURNS public.snowflake LANGUAGE sql AS $$ SELECT evil.trap()::text::public.snowflake $$;
	CREATE FUNCTION evil.differ(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.trap()::text = '' $$;
	CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.differ);
	CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.differ);
	CREATE OPERATOR evil.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.differ);
	CREATE FUNCTION evil.append(text[], text) RETURNS text[] LANGUAGE sql AS $$ SELECT evil.trap()::text::text[] $$;
	CREATE OPERATOR evil.|| (LEFTARG = text[], RIGHTARG = text, FUNCTION = evil.append);
	CREATE TABLE evil.pg_class (oid oid);
	CREATE TABLE evil.tables (parent regclass);
	CREATE TYPE evil.regclass AS (a integer);
	GRANT USAGE ON SCHEMA evil TO PUBLIC;
});
wait_for_mint($node);

# as the owner, with a search_path of application
sub sql
{
	my ($sql, %params) = @_;

	return $node->safe_psql(
		'postgres', "SET search_path = app, public;\n$sql",
		connstr => $node->connstr('postgres') . ' user=owner',
		%params);
}

sub fails
{
	my ($sql) = @_;

	return error_of($node, "SET ROLE owner; SET search_path = app, public; $sql");
}

# Statements that cannot be in a transaction, or in one with SET
sub psql_script
{
	my ($sql) = @_;
	my ($stdout, $stderr) = ('', '');
	my $status = $node->psql(
		'postgres', "SET search_path = app, public;\n$sql",
		stdout => \$stdout,
		stderr => \$stderr,
		connstr => $node->connstr('postgres') . ' user=owner',
		on_error_stop => 0);

	return ($stdout, $stderr);
}

my $maintain = 'CALL snowflake_partitions.maintain(tries => 600, pause => interval \'100 ms\'';

# Where the partitions of a table begin and end, in a time zone
sub bounds
{
	my ($table, $zone) = @_;

	return sql(
		qq{SET timezone = '$zone';
		SELECT partition, snowflake_timestamp(lower(ids)), snowflake_timestamp(upper(ids))
		  FROM snowflake_partitions.existing('$table') ORDER BY ids});
}

sub names
{
	my ($table) = @_;

	return sql(
		"SELECT string_agg(partition::text, ' ' ORDER BY ids) FROM snowflake_partitions.existing('$table') WHERE NOT is_default"
	);
}

# README.md's partitions take a row of any time
my ($readme) =
  slurp_file("$FindBin::RealBin/../../README.md") =~ /^(CREATE TABLE log \(.*?)^```$/ms;
sql("$readme INSERT INTO log VALUES (snowflake_lower_bound('2026-11-30 23:59Z'), 'in November');
	INSERT INTO log (line) VALUES ('now'); INSERT INTO log VALUES ('5', 'long ago')");
is(sql(q{SELECT line FROM log_2026_11 LIMIT 1}),
	'in November', 'partitions as README.md makes them');
is(sql(q{SELECT count(*) FROM log}), '3', 'take a row of any time');

# Months of another time zone begin beside those: the name of the hour that is missing is taken.
sql(q{
	CREATE EXTENSION snowflake_partitions;
	CREATE TYPE log_2027_02 AS ENUM ('a');
	CREATE TABLE log_2027_03 ();
	CREATE TABLE log_2027_03_2 ();
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone) VALUES ('log', 'month', 'Europe/Berlin')}
);
(undef, my $errors) = psql_script(q{CALL snowflake_partitions.maintain(at => '2026-11-15Z')});
unlike($errors, qr/ERROR/, 'maintain() of a table with partitions of other bounds');
is( bounds('log', 'UTC'),
	join("\n",
		'log_rest||',
		'log_2026_11_2|2026-10-31 23:00:00+00|2026-11-01 00:00:00+00',
		'log_2026_11|2026-11-01 00:00:00+00|2026-12-01 00:00:00+00',
		'log_2026_12_01_0100|2026-12-01 00:00:00+00|2026-12-31 23:00:00+00',
		'log_2027_01|2026-12-31 23:00:00+00|2027-01-31 23:00:00+00',
		'log_2027_02_2|2027-01-31 23:00:00+00|2027-02-28 23:00:00+00',
		'log_2027_03_3|2027-02-28 23:00:00+00|2027-03-31 22:00:00+00'),
	'names that tables or types have are not taken again');
sql(q{DROP TABLE log, log_2027_03, log_2027_03_2; DROP TYPE log_2027_02; DROP EXTENSION snowflake_partitions}
);

# What doc/partitions.md shows, in its order
my $page = slurp_file("$FindBin::RealBin/../../doc/partitions.md");
my @blocks = map { $_ =~ /^```sql\n(.*?)^```$/ms }
  grep { !/<!-- not run here: / } $page =~ /^((?:<!-- [^\n]*-->\n)*```sql\n.*?^```)$/msg;
(undef, $errors) = psql_script(join "\n", @blocks);
is($errors, '', 'the statements of the page');
is( sql(q{SELECT string_agg(DISTINCT tableoid::regclass::text, ',') FROM log}),
	sql(q{SELECT 'log_' || to_char(now() AT TIME ZONE 'Europe/Berlin', 'YYYY_MM')}),
	'which puts a row into the partition of this month');
is(sql(q{SELECT count(*) FROM snowflake_partitions.existing('log') WHERE NOT is_default}),
	'5', 'that and four more');
sql(q{UPDATE snowflake_partitions.tables SET since = '-1000 years'::interval + now(), keep = '3 months', default_rows = 'move'}
);
sql("$maintain)");
is(sql(q{SELECT count(*) FROM snowflake_partitions.existing('log') WHERE NOT is_default}),
	'8', 'those since then that are kept');
sql(q{DELETE FROM snowflake_partitions.tables; DROP TABLE log});

sql(q{
	CREATE TABLE log (id snowflake PRIMARY KEY DEFAULT snowflake_next(), line text) PARTITION BY RANGE (id);
	CREATE INDEX ON log (line);
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, ahead) VALUES ('log', 'month', 'Europe/Berlin', 2);
});

# a look changes nothing, in a transaction that could not
like(
	sql(q{SET default_transaction_read_only = on; SELECT what FROM snowflake_partitions.due('2026-10-15Z')}
	),
	qr/^make log_2026_10, from .*\nmake log_2026_11.*\nmake log_2026_12.*$/,
	'what is due');
is(sql('SELECT count(*) FROM snowflake_partitions.existing(\'log\')'), '0', 'which is only said');

# Months of New York and of UTC would overlap; these do not follow the session
sql(qq{SET timezone = 'America/New_York'; $maintain, at => '2026-10-15Z')});
sql(qq{SET timezone = 'Asia/Tokyo'; SET search_path = evil, pg_catalog, app, public; $maintain, at => '2026-12-31 23:30Z')}
);
is( bounds('log', 'Europe/Berlin'),
	join("\n",
		'log_2026_10|2026-10-01 00:00:00+02|2026-11-01 00:00:00+01',
		'log_2026_11|2026-11-01 00:00:00+01|2026-12-01 00:00:00+01',
		'log_2026_12|2026-12-01 00:00:00+01|2027-01-01 00:00:00+01',
		'log_2027_01|2027-01-01 00:00:00+01|2027-02-01 00:00:00+01',
		'log_2027_02|2027-02-01 00:00:00+01|2027-03-01 00:00:00+01',
		'log_2027_03|2027-03-01 00:00:00+01|2027-04-01 00:00:00+02'),
	'months begin at midnight in their time zone, and go by the clock: nobody has written a row');
is(sql(q{SELECT count(*) FROM snowflake_partitions.due('2026-12-31 23:30Z')}),
	'0', 'nothing is due twice');
is( sql(q{SELECT relname, count(i.indexrelid), bool_and(i.indisvalid) FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid
		 WHERE c.relname LIKE 'log\_2026\_1_' GROUP BY 1 ORDER BY 1}),
	"log_2026_10|2|t\nlog_2026_11|2|t\nlog_2026_12|2|t",
	'with the indexes of the table');

# The other periods, where local time has its oddities
sql(q{
	CREATE TABLE hours (LIKE log INCLUDING DEFAULTS) PARTITION BY RANGE (id);
	CREATE TABLE days (LIKE log) PARTITION BY RANGE (id);
	CREATE TABLE weeks (LIKE log) PARTITION BY RANGE (id);
	CREATE TABLE years (id bigint) PARTITION BY RANGE (id);
	CREATE DOMAIN key AS snowflake;
	CREATE TABLE island (id key) PARTITION BY RANGE (id);
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, ahead) VALUES ('hours', 'hour', 'Europe/Berlin', 3),
		('days', 'day', 'Europe/Berlin', 2), ('weeks', 'week', 'Europe/Berlin', 1), ('years', 'year', 'Europe/Berlin', 1);
});
sql("SET timezone = 'Asia/Kolkata'; $maintain, at => '2026-10-24 23:30Z')");
is( bounds('hours', 'UTC') =~ s/:00:00\+00//gr,
	join("\n",
		'hours_2026_10_24_23|2026-10-24 23|2026-10-25 00',
		'hours_2026_10_25_00|2026-10-25 00|2026-10-25 01',
		'hours_2026_10_25_01|2026-10-25 01|2026-10-25 02',
		'hours_2026_10_25_02|2026-10-25 02|2026-10-25 03'),
	'hours: those of UTC, of which none comes twice');
is( bounds('days', 'UTC'),
	join("\n",
		'days_2026_10_25|2026-10-24 22:00:00+00|2026-10-25 23:00:00+00',
		'days_2026_10_26|2026-10-25 23:00:00+00|2026-10-26 23:00:00+00',
		'days_2026_10_27|2026-10-26 23:00:00+00|2026-10-27 23:00:00+00'),
	'days: one has 25 hours');
is( bounds('weeks', 'Europe/Berlin'),
	join("\n",
		'weeks_2026_w43|2026-10-19 00:00:00+02|2026-10-26 00:00:00+01',
		'weeks_2026_w44|2026-10-26 00:00:00+01|2026-11-02 00:00:00+01'),
	'weeks: from Monday on');
is( sql(q{SELECT snowflake_partitions.name_of('weeks', '2024-12-30 00:00+01', 'week', 'Europe/Berlin', false)}
	),
	'weeks_2025_w01',
	'which belong to the year that has most of their days');

# What is kept is counted in the time zone of the table: there, it is April already.
is( sql(q{
		SET timezone = 'UTC';
		CREATE TABLE kept (id snowflake) PARTITION BY RANGE (id);
		CREATE TABLE kept_old PARTITION OF kept
			FOR VALUES FROM (snowflake_lower_bound('2026-02-27 23:00Z')) TO (snowflake_lower_bound('2026-02-28 23:00Z'));
		INSERT INTO snowflake_partitions.tables (parent, period, time_zone, keep) VALUES ('kept', 'day', 'Europe/Berlin', '1 month');
		SELECT what FROM snowflake_partitions.due('2026-03-31 22:30Z', false, 'kept') WHERE what ~ 'kept_old';
		DELETE FROM snowflake_partitions.tables WHERE parent = 'kept'::regclass;
		DROP TABLE kept}),
	'detach app.kept_old',
	'a month before the first of April, in Berlin; it is detached if nothing else is said');
is( bounds('years', 'Europe/Berlin'),
	join("\n",
		'years_2026|2026-01-01 00:00:00+01|2027-01-01 00:00:00+01',
		'years_2027|2027-01-01 00:00:00+01|2028-01-01 00:00:00+01'),
	'years, of a bigint key');
sql(q{INSERT INTO snowflake_partitions.tables (parent, period, time_zone, ahead) VALUES ('island', 'day', 'Pacific/Apia', 3)}
);
sql("$maintain, at => '2011-12-29 12:00Z')");
is( bounds('island', 'UTC'),
	join("\n",
		'island_2011_12_29|2011-12-29 10:00:00+00|2011-12-30 10:00:00+00',
		'island_2011_12_31|2011-12-30 10:00:00+00|2011-12-31 10:00:00+00',
		'island_2012_01_01|2011-12-31 10:00:00+00|2012-01-01 10:00:00+00'),
	'a day that an island has skipped has no partition; a key of a domain');
sql(q{DELETE FROM snowflake_partitions.tables WHERE parent <> 'log'::regclass});

# Partitions that were made otherwise are worked around.
sql(q{
	CREATE TABLE mixed (LIKE log) PARTITION BY RANGE (id);
	CREATE TABLE mixed_past PARTITION OF mixed FOR VALUES FROM (MINVALUE) TO (snowflake_lower_bound('2026-11-01 05:00Z'));
	CREATE TABLE mixed_other PARTITION OF mixed
		FOR VALUES FROM (snowflake_lower_bound('2026-11-30 18:00Z')) TO (snowflake_lower_bound('2026-12-02Z'));
	CREATE TABLE mixed_end PARTITION OF mixed FOR VALUES FROM (snowflake_lower_bound('2026-12-20Z')) TO (MAXVALUE);
	CREATE TABLE layouts (id bigint) PARTITION BY RANGE (id);
	CREATE TABLE layouts_other PARTITION OF layouts
		FOR VALUES FROM (snowflake_lower_bound('2026-11-30 18:00Z', 'discord')) TO (snowflake_lower_bound('2026-12-02Z', 'discord'));
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, ahead, layout) VALUES
		('mixed', 'month', 'UTC', 1, NULL), ('layouts', 'month', 'UTC', 1, 'discord');
});
sql("$maintain, at => '2026-11-20Z')");
is( sql(q{SET timezone = 'UTC'; SELECT partition, snowflake_timestamp(lower(ids)), snowflake_timestamp(upper(ids))
		FROM snowflake_partitions.existing('mixed') WHERE partition::text ~ '\d' ORDER BY ids}),
	join("\n",
		'mixed_2026_11_01_0500|2026-11-01 05:00:00+00|2026-11-30 18:00:00+00',
		'mixed_2026_12_02_0000|2026-12-02 00:00:00+00|2026-12-20 00:00:00+00'),
	'the parts of periods that are not taken');
is( sql(q{SELECT min(lower(ids)) = snowflake_lower_bound('2026-11-01Z', 'discord')::bigint FROM snowflake_partitions.existing('layouts')}
	),
	't',
	'IDs of another layout');
is( names('layouts'),
	'layouts_2026_11 layouts_other layouts_2026_12_02_0000',
	'and names by their time');

# One of numbers below zero is not taken for the default partition.
is( sql(q{
		CREATE TABLE below (id bigint) PARTITION BY RANGE (id);
		CREATE TABLE below_zero PARTITION OF below FOR VALUES FROM (-100) TO (0);
		SELECT ids, is_default FROM snowflake_partitions.existing('below');
		DROP TABLE below}),
	'[-100,0)|f',
	'a partition of numbers below zero');
sql(q{DROP TABLE mixed, layouts});
like(
	sql('SELECT string_agg(what, \',\') FROM snowflake_partitions.due()'),
	qr/does not exist.*does not exist/,
	'a table that is gone is reported');
is(fails('CALL snowflake_partitions.maintain()')->{sqlstate}, '55000', 'which is an error');
sql(q{DELETE FROM snowflake_partitions.tables WHERE parent <> 'log'::regclass});

# What is old: detached, or dropped; not what is partly old
sql(q{UPDATE snowflake_partitions.tables SET keep = '1 month 15 days', old = 'detach'});
sql(q{INSERT INTO log VALUES (snowflake_lower_bound('2026-10-20Z'), 'old'), (snowflake_lower_bound('2026-11-20Z'), 'kept')}
);
sql("$maintain, at => '2026-12-16Z')");
is( names('log'),
	'log_2026_11 log_2026_12 log_2027_01 log_2027_02 log_2027_03',
	'an old partition is detached');
is(sql('SELECT line FROM log_2026_10'), 'old', 'and stays');
is(sql('SELECT line FROM log'), 'kept', 'a partition of which a part is old is kept');
sql(q{UPDATE snowflake_partitions.tables SET old = 'drop'});
sql("$maintain, at => '2027-01-16Z')");
is(names('log'), 'log_2026_12 log_2027_01 log_2027_02 log_2027_03', 'or dropped');
is(sql(q{SELECT to_regclass('log_2026_11'), count(*) FROM snowflake_partitions.dropping}),
	'|0', 'which leaves nothing behind');

# By psql's \gexec, concurrently: what is detached by one run is dropped by the next
my $gexec = q{SELECT statement FROM snowflake_partitions.due('2027-02-16Z') \gexec};
my ($stdout, $stderr) = psql_script("$gexec\n");
is($stderr, '', 'the statements of due(), run by psql');
is(names('log'), 'log_2027_01 log_2027_02 log_2027_03 log_2027_04', 'detach concurrently');
is( sql(q{SELECT what FROM snowflake_partitions.due('2027-02-16Z')}),
	'drop app.log_2026_12',
	'to be dropped next');
is( sql(q{
		UPDATE snowflake_partitions.tables SET old = 'detach';
		SELECT what FROM snowflake_partitions.due('2027-02-16Z');
		UPDATE snowflake_partitions.tables SET old = 'drop'}),
	'forget that app.log_2026_12 was to be dropped',
	'but not if old ones are to be kept by then');
($stdout, $stderr) = psql_script("$gexec\n");
is( $stderr
	  . sql(q{SELECT count(*) FROM snowflake_partitions.due('2027-02-16Z')})
	  . sql(q{SELECT to_regclass('log_2026_12')}),
	'0',
	'is dropped by the next run');

# A reader that does not end: what does not disturb it is done
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN; SELECT count(*) FROM app.log');
(undef, $stderr) = psql_script(
	q{CALL snowflake_partitions.maintain(lock_timeout => '10ms', tries => 2, pause => '10 ms', at => '2027-03-16Z')}
);
like($stderr, qr/ERROR:  1 of the steps/, 'detaching needs a lock that a reader holds');
like(
	$stderr,
	qr/DETAIL:  app\.log: detach app\.log_2027_01: canceling statement due to lock timeout/,
	'the error has the reason');
is( names('log'),
	'log_2027_01 log_2027_02 log_2027_03 log_2027_04 log_2027_05',
	'what needs none is done');

# detaching concurrently waits for it, and is killed
my $victim = $node->background_psql('postgres', on_error_stop => 0);
my $pid = $victim->query_safe('SET ROLE owner; SELECT pg_backend_pid()');
$victim->query_until(qr//, "ALTER TABLE app.log DETACH PARTITION app.log_2027_01 CONCURRENTLY;\n");
$node->poll_query_until('postgres',
	"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid")
  or die 'detaching does not wait';
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
$node->poll_query_until('postgres',
	"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)");
eval { $victim->quit };
is( sql(q{SELECT what FROM snowflake_partitions.due('2027-03-16Z') WHERE what ~ 'log_2027_01'}),
	'complete the detachment of app.log_2027_01',
	'half of a detachment is seen, and not begun again');
$reader->query_safe('COMMIT');
sql("$maintain, at => '2027-03-16Z')");
is( names('log') . sql(q{SELECT to_regclass('log_2027_01')}),
	'log_2027_02 log_2027_03 log_2027_04 log_2027_05',
	'and completed, and the table dropped, which was noted before');

# A run that is killed in the middle: between two statements, and in one
$reader->query_safe('BEGIN; LOCK TABLE app.log_2027_02 IN ACCESS SHARE MODE');
$victim = $node->background_psql('postgres', on_error_stop => 0);
$pid = $victim->query_safe('SET ROLE owner; SELECT pg_backend_pid()');
$victim->query_until(qr//,
	"CALL snowflake_partitions.maintain(lock_timeout => '0', at => '2027-04-16Z');\n");
$node->poll_query_until('postgres',
	"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid")
  or die 'maintain() does not wait';
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
$node->poll_query_until('postgres',
	"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)");
eval { $victim->quit };
$reader->query_safe('COMMIT');
is( names('log') . sql('SELECT partition FROM snowflake_partitions.dropping'),
	'log_2027_02 log_2027_03 log_2027_04 log_2027_05 log_2027_06log_2027_02',
	'a run is killed half way');
sql("$maintain, at => '2027-04-16Z')");
is( names('log')
	  . sql(q{SELECT count(*), to_regclass('log_2027_02') FROM snowflake_partitions.dropping}),
	'log_2027_03 log_2027_04 log_2027_05 log_2027_060|',
	'the next one goes on');

# What was to be dropped is kept if somebody wants it after all; one that was dropped by hand is no more
sql(q{
	CREATE TABLE gone ();
	INSERT INTO snowflake_partitions.dropping VALUES ('log_2027_03', 'log'), ('gone', 'log');
	DROP TABLE gone});
sql("$maintain, at => '2027-04-16Z')");
is(sql('SELECT count(*) FROM snowflake_partitions.dropping'),
	'0', 'a note that is out of date is forgotten');

# Start a run in a session of its own, and wait until this is true of it, or it has ended
sub start_run
{
	my ($arguments, $condition) = @_;
	my $run = $node->background_psql('postgres', on_error_stop => 0);
	my $run_pid = $run->query_safe('SET ROLE owner; SELECT pg_backend_pid()');

	$run->query_until(qr//, "CALL snowflake_partitions.maintain($arguments);\n");
	$node->poll_query_until('postgres',
		"SELECT $condition OR (state = 'idle' AND query LIKE 'CALL%') FROM pg_stat_activity WHERE pid = $run_pid"
	) or die 'maintain() does not wait';
	return $run;
}

# A lock that a reader holds for longer than lock_timeout is tried for again.
$reader->query_safe('BEGIN; LOCK TABLE app.log_2027_03 IN ACCESS SHARE MODE');
my $run =
  start_run(q{lock_timeout => '10ms', tries => 100000, pause => '200 ms', at => '2027-05-16Z'},
	"wait_event = 'PgSleep'");
$reader->query_safe('COMMIT');
$run->query('SELECT');
$run->quit;
is( names('log'),
	'log_2027_04 log_2027_05 log_2027_06 log_2027_07',
	'what needs a lock is done when that is free');

# A default partition: its rows are reported, and in the way
sql(q{
	DROP TABLE log;
	DELETE FROM snowflake_partitions.tables;
	CREATE TABLE full_of (id snowflake PRIMARY KEY DEFAULT snowflake_next(), n integer GENERATED ALWAYS AS IDENTITY,
		line text NOT NULL, length integer GENERATED ALWAYS AS (length(line)) STORED, gone text) PARTITION BY RANGE (id);
	ALTER TABLE full_of DROP gone;
	CREATE TABLE "rest of it" PARTITION OF full_of DEFAULT;
	INSERT INTO full_of (id, line) SELECT make_snowflake(timestamptz '2026-10-20Z' + make_interval(days => i), 1, 0), 'day ' || i
	  FROM generate_series(1, 30) i;
	INSERT INTO full_of (id, line) VALUES ('0', 'zero');
	CREATE TABLE changes (n serial, op text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.changes (op) VALUES (TG_OP); RETURN coalesce(NEW, OLD); END $$;
	CREATE TRIGGER note BEFORE INSERT OR DELETE ON full_of FOR EACH ROW EXECUTE FUNCTION note();
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, ahead) VALUES ('full_of', 'month', 'UTC', 1);
});
my $rows = sql('SELECT md5(string_agg(f::text, \',\' ORDER BY id)) FROM full_of f');
(undef, $stderr) = psql_script(q{CALL snowflake_partitions.maintain(at => '2026-11-10Z')});
is( join("\n", map { s/ID \d+/ID N/r } $stderr =~ /((?:WARNING|DETAIL):  .*)/g),
	join("\n",
		'WARNING:  app.full_of: app."rest of it" has 1 rows from ID N on, of the month that begins at 2010-11-01 00:00:00+00',
		'WARNING:  app.full_of: app."rest of it" has 11 rows from ID N on, of the month that begins at 2026-10-01 00:00:00+00',
		'DETAIL:  app.full_of: cannot make full_of_2026_11, from 2026-11-01 00:00:00+00: app."rest of it" has 19 rows of that time'
	),
	'rows of the default partition are reported');
(undef, $stderr) = psql_script(q{CALL snowflake_partitions.maintain(at => '2026-11-10Z')});
is( join("\n", $stderr =~ /((?:WARNING|DETAIL):  .*)/g),
	'DETAIL:  app.full_of: cannot make full_of_2026_11, from 2026-11-01 00:00:00+00: app."rest of it" has 19 rows of that time',
	'once, if they are not in the way of a partition that is due');
is(names('full_of'), 'full_of_2026_12', 'what they are not in the way of is made');

# they are moved, with what the server made of them; triggers see it.  Here psql does it, in a
# session in whose search_path a hostile schema comes first.
sql(q{UPDATE snowflake_partitions.tables SET default_rows = 'move'});
like(
	sql(q{SELECT string_agg(statement, ' ') FROM snowflake_partitions.due('2026-11-10Z')}),
	qr/^SELECT snowflake_partitions\.move\('app\.full_of', 'full_of_2010_11', '\[0,\d+\)'\) SELECT snowflake_partitions\.move/,
	'statements for them');
(undef, $stderr) = psql_script(
	q{SET search_path = evil, pg_catalog, app, public;
	SELECT statement FROM snowflake_partitions.due('2026-11-10Z') \gexec} . "\n");
is($stderr, '', 'nothing of what is in the search_path is run');
is( sql(q{SELECT tableoid::regclass, count(*) FROM full_of GROUP BY tableoid ORDER BY min(id)}),
	"full_of_2010_11|1\nfull_of_2026_10|11\nfull_of_2026_11|19",
	'rows of the default partition are moved');
is(sql('SELECT md5(string_agg(f::text, \',\' ORDER BY id)) FROM full_of f'), $rows, 'as they are');
is(sql('SELECT op, count(*) FROM changes GROUP BY op ORDER BY op'),
	"DELETE|31\nINSERT|31", 'which triggers see');

# so are those that are committed while the move waits for their writer
sql(q{INSERT INTO full_of (id, line) VALUES (make_snowflake('2027-05-03Z', 1, 0), 'before')});
$reader->query_safe(
	q{BEGIN; INSERT INTO app.full_of (id, line) VALUES (make_snowflake('2027-05-04Z', 1, 0), 'meanwhile')}
);
$run = start_run(q{lock_timeout => '0', at => '2026-11-10Z'}, "wait_event_type = 'Lock'");
$reader->query_safe('COMMIT');
$run->query('SELECT');
$run->quit;
is(sql('SELECT count(*) FROM full_of_2027_05'), '2', 'a row that came meanwhile is moved as well');
sql('DROP TABLE full_of_2027_05');

# a trigger that leaves rows out, and references that DELETE would act on, keep them where they are
sql(q{
	INSERT INTO full_of (id, line) VALUES (make_snowflake('2027-02-03Z', 1, 0), 'leave out'), (make_snowflake('2027-02-03Z', 1, 1), 'in');
	CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RETURN CASE WHEN NEW.line <> 'leave out' THEN NEW END; END $$;
	CREATE TRIGGER z BEFORE INSERT ON full_of FOR EACH ROW EXECUTE FUNCTION leave_out()});
(undef, $stderr) = psql_script(q{CALL snowflake_partitions.maintain(at => '2026-11-10Z')});
like($stderr, qr/of 2 rows of app."rest of it" only 1 were moved/, 'no row is left out');
is(sql(q{SELECT count(*) FROM "rest of it"}), '2', 'they stay');
sql(q{
	DROP TRIGGER z ON full_of;
	CREATE TABLE referencing (id snowflake REFERENCES full_of ON DELETE CASCADE);
	INSERT INTO referencing SELECT id FROM full_of WHERE line = 'in'});
(undef, $stderr) = psql_script(q{CALL snowflake_partitions.maintain(at => '2026-11-10Z')});
like(
	$stderr,
	qr/WARNING:  app.full_of: app."rest of it" has 2 rows from ID \d+ on, of the month that begins at 2027-02-01/,
	'rows that foreign keys reference are reported');
unlike($stderr, qr/ERROR/, 'which is no error');
like(
	sql(q{SELECT what FROM snowflake_partitions.due('2027-01-10Z') WHERE statement IS NULL}),
	qr/^cannot make full_of_2027_02, from .* has 2 rows of that time, which foreign keys reference$/,
	'unless their period is due');
is( fails(
		q{SELECT snowflake_partitions.move('full_of', 'full_of_2027_02', int8range(snowflake_lower_bound('2027-02-01Z'), snowflake_lower_bound('2027-03-01Z')))}
	)->{sqlstate},
	'0A000',
	'and not moved');
is(sql(q{SELECT count(*) FROM referencing}), '1', 'what references them stays');

# Detaching what is referenced fails, and does not keep the rest from being done
sql(q{
	UPDATE snowflake_partitions.tables SET keep = '1 month', old = 'drop', default_rows = 'report';
	INSERT INTO referencing SELECT id FROM full_of WHERE line = 'day 3'});
like(
	sql(q{SELECT statement FROM snowflake_partitions.due('2026-12-10Z') WHERE what = 'detach app.full_of_2010_11'}
	),
	qr/ DETACH PARTITION app\.full_of_2010_11$/,
	'beside a default partition nothing is detached concurrently');
(undef, $stderr) = psql_script(q{CALL snowflake_partitions.maintain(at => '2026-12-10Z')});
like(
	$stderr,
	qr/DETAIL:  app.full_of: detach app.full_of_2026_10: removing partition "full_of_2026_10" violates foreign key/,
	'what is referenced cannot be detached');
is( names('full_of'),
	'full_of_2026_10 full_of_2026_11 full_of_2026_12 full_of_2027_01',
	'what is not referenced is');
is(sql(q{SELECT partition::text FROM snowflake_partitions.dropping}),
	'full_of_2026_10', 'the note stays');

# but not where all are to be kept from now on, nor when nobody looks after the table any more
is( sql(q{
		BEGIN;
		UPDATE snowflake_partitions.tables SET keep = NULL;
		SELECT what FROM snowflake_partitions.due('2026-12-10Z') WHERE what ~ '^forget';
		DELETE FROM snowflake_partitions.tables;
		SELECT count(*) FROM snowflake_partitions.dropping;
		ROLLBACK}),
	"forget that app.full_of_2026_10 was to be dropped\n0",
	'until nothing is old, or the table is taken out');

sql(q{DELETE FROM referencing; DROP TABLE referencing; DELETE FROM "rest of it"});
sql("$maintain, at => '2026-12-10Z')");
is( names('full_of') . sql(q{SELECT to_regclass('full_of_2026_10')}),
	'full_of_2026_11 full_of_2026_12 full_of_2027_01',
	'until it is not');

# A table that references others
sql(q{
	CREATE TABLE customers (id integer PRIMARY KEY);
	INSERT INTO customers VALUES (1);
	CREATE TABLE orders (id snowflake PRIMARY KEY, customer integer REFERENCES customers) PARTITION BY RANGE (id);
	UPDATE snowflake_partitions.tables SET parent = 'orders', keep = NULL});
sql("$maintain, at => '2026-12-10Z')");
is(fails(q{INSERT INTO orders VALUES (snowflake_lower_bound('2026-12-20Z'), 2)})->{sqlstate},
	'23503', 'a partition has the foreign keys');

# Whose and what tables
is(sql(q{SELECT count(*) FROM snowflake_partitions.due('2026-12-10Z')}), '0', 'nothing to say');
sql(q{
	CREATE TABLE listed (id snowflake) PARTITION BY LIST (id);
	CREATE TABLE two (id snowflake, k integer) PARTITION BY RANGE (k, id);
	CREATE TABLE number (id integer) PARTITION BY RANGE (id);
	CREATE TABLE plain (id snowflake);
	DELETE FROM snowflake_partitions.tables;
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone) SELECT t, 'day', 'UTC' FROM unnest('{listed,two,number,plain}'::regclass[]) t}
);
is( sql(q{SELECT DISTINCT what, statement IS NULL FROM snowflake_partitions.due()}),
	'is not partitioned by ranges of a first column of type snowflake or bigint|t',
	'tables that are not meant');
is( fails(q{INSERT INTO snowflake_partitions.tables VALUES ('orders', 'month', 'Europe/Atlantis')})
	  ->{sqlstate},
	'22023', 'an unknown time zone');
is( fails(q{INSERT INTO snowflake_partitions.tables VALUES ('orders', 'decade', 'UTC')})
	  ->{sqlstate},
	'23514', 'an unknown period');
foreach my $wrong (
	"keep = '-1 month'",
	"since = '-infinity'",
	'ahead = 0',
	"old = 'delete'",
	"default_rows = 'reported'")
{
	is(fails("UPDATE snowflake_partitions.tables SET $wrong")->{sqlstate},
		'23514', "not taken: $wrong");
}
sql(q{
	DELETE FROM snowflake_partitions.tables;
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone) VALUES ('orders', 'month', 'UTC')}
);
is($node->safe_psql('postgres', 'SELECT what FROM snowflake_partitions.due()'),
	'', 'a superuser runs nothing for others');
like(
	error_of($node, 'CALL snowflake_partitions.maintain()')->{message},
	qr/^role postgres has no table in snowflake_partitions.tables$/,
	'which maintain() says');
$node->safe_psql('postgres', 'CREATE ROLE other LOGIN');
is(error_of($node, 'SET ROLE other; SELECT * FROM snowflake_partitions.due()')->{sqlstate},
	'42501', 'others may nothing');

# Those who may use it enter tables of their own, and see to no others.
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA other AUTHORIZATION other;
	GRANT USAGE ON SCHEMA snowflake_partitions, app TO other});
foreach my $sql (
	q{INSERT INTO snowflake_partitions.tables (parent, period, time_zone) VALUES ('app.listed', 'day', 'UTC')},
	q{UPDATE snowflake_partitions.tables SET keep = '1 second', old = 'drop'},
	q{UPDATE snowflake_partitions.tables SET parent = 'other.mine'},
	q{INSERT INTO snowflake_partitions.tables (parent, period, time_zone) VALUES ('other.mine', 'day', 'UTC');
		UPDATE snowflake_partitions.tables SET parent = 'app.listed' WHERE parent = 'other.mine'::regclass},
	q{DELETE FROM snowflake_partitions.tables},
	q{INSERT INTO snowflake_partitions.dropping SELECT 'app.listed', parent FROM snowflake_partitions.tables},
	q{TRUNCATE snowflake_partitions.tables CASCADE},
	q{ALTER TABLE snowflake_partitions.tables DISABLE TRIGGER check_owner},
	q{CREATE FUNCTION snowflake_partitions.due(timestamptz, boolean) RETURNS text RETURN 'mine'})
{
	is( error_of($node,
			"BEGIN; SET ROLE other; CREATE TABLE other.mine (id snowflake) PARTITION BY RANGE (id); $sql"
		)->{sqlstate},
		'42501',
		"not with tables of others: $sql");
}
$node->safe_psql(
	'postgres', q{
	SET ROLE other;
	CREATE TABLE other.mine (id snowflake) PARTITION BY RANGE (id);
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, owner) VALUES ('other.mine', 'year', 'UTC', 'owner');
	CALL snowflake_partitions.maintain()});
is( $node->safe_psql(
		'postgres',
		q{SELECT parent, owner, (SELECT count(*) FROM snowflake_partitions.existing(parent)) FROM snowflake_partitions.tables ORDER BY owner}
	),
	"other.mine|other|5\napp.orders|owner|2",
	'but with their own, and nothing is said of others');
is( fails(
		q{INSERT INTO snowflake_partitions.tables (parent, period, time_zone) VALUES ('1', 'day', 'UTC')}
	)->{sqlstate},
	'42P01',
	'a table that there is not');
$node->safe_psql('postgres',
	q{SET ROLE other; DELETE FROM snowflake_partitions.tables WHERE owner = 'other'; DROP TABLE other.mine}
);

# A name that is too long keeps its end
my $long = 'x' . 'é' x 29;
sql(qq{
	CREATE TABLE "$long" (id snowflake PRIMARY KEY) PARTITION BY RANGE (id);
	UPDATE snowflake_partitions.tables SET parent = '"$long"', period = 'day', ahead = 2});
sql("$maintain, at => '2026-12-10Z')");
is( sql(qq{SELECT count(*) FROM snowflake_partitions.existing('"$long"') WHERE partition::text LIKE '%_2026_12_1_"'}
	),
	'3',
	'a long name keeps its end');

# Names that need quotes.  The first ID of a period is in no other one.
sql(q{
	DELETE FROM snowflake_partitions.tables;
	DROP TABLE orders;
	CREATE SCHEMA "My app";
	CREATE TABLE "My app"."Log" ("Id" snowflake) PARTITION BY RANGE ("Id");
	CREATE TABLE "My app"."Rest" PARTITION OF "My app"."Log" DEFAULT;
	INSERT INTO "My app"."Log" VALUES (snowflake_lower_bound('2026-11-01Z'));
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, ahead) VALUES ('"My app"."Log"', 'month', 'UTC', 1)}
);
like(
	sql(q{SELECT what FROM snowflake_partitions.due('2026-10-15Z')}),
	qr/^make Log_2026_10, from [^,]*\ncannot make Log_2026_11, from .*"My app"\."Rest" has 1 rows of that time$/,
	'the first ID of a period is reported once');
sql(q{UPDATE snowflake_partitions.tables SET default_rows = 'move'});
sql("$maintain, at => '2026-10-15Z')");
is( names('"My app"."Log"'),
	'"My app"."Log_2026_10" "My app"."Log_2026_11"',
	'names that need quotes');
is( sql(q{SELECT tableoid::regclass FROM "My app"."Log"}),
	'"My app"."Log_2026_11"',
	'of a table whose rows are moved, too');

# Rows of the default partition that are older than what is kept stay there: old keys look as if
# they were from the layout's first second.
sql(q{
	DELETE FROM snowflake_partitions.tables;
	CREATE TABLE aged (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
	ALTER TABLE aged REPLICA IDENTITY FULL;
	CREATE TABLE aged_rest PARTITION OF aged DEFAULT;
	INSERT INTO aged SELECT generate_series(1, 1000);
	INSERT INTO snowflake_partitions.tables VALUES ('aged', 'month', 'UTC', 1, NULL, '13 months', 'drop', 'move', NULL)}
);
is(sql(q{SELECT what FROM snowflake_partitions.due('2012-01-01Z') WHERE what ~ 'aged_rest'}),
	'', 'nor are those of the period that has just become old');
sql("$maintain)");
is(sql('SELECT count(*) FROM aged_rest'),
	'1000', 'what is older than is kept is not moved and dropped');
is( sql(q{SELECT string_agg(DISTINCT relreplident::text, '') FROM pg_class WHERE relkind = 'r' AND relname ~ '^aged_2'}
	),
	'f',
	'new partitions have the replica identity FULL');

# An ID that is of no period does not keep other tables from being looked after; nor does one that is
# larger than those of the layout, a layout that has ended, or rows that are kept for longer than there
# have been times.
$node->safe_psql(
	'postgres', q{
	SET allow_in_place_tablespaces = on;
	CREATE TABLESPACE elsewhere LOCATION '';
	GRANT CREATE ON TABLESPACE elsewhere TO owner});
sql(q{
	INSERT INTO aged VALUES (9223372036854775807);
	CREATE TABLE narrow (id bigint) PARTITION BY RANGE (id);
	CREATE TABLE narrow_rest PARTITION OF narrow DEFAULT;
	INSERT INTO narrow VALUES (9223372036854775807);
	CREATE TABLE over (id bigint) PARTITION BY RANGE (id);
	CREATE TABLE typo (id bigint) PARTITION BY RANGE (id);
	CREATE TABLE later (id bigint PRIMARY KEY, line text DEFAULT 'none') PARTITION BY RANGE (id) TABLESPACE elsewhere;
	ALTER TABLE later ALTER line SET STORAGE EXTERNAL;
	CREATE STATISTICS later_lines ON id, line FROM later;
	ALTER TABLE later REPLICA IDENTITY NOTHING;
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, keep, layout) VALUES ('typo', 'month', 'UTC', '1 year', 'twiter');
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, layout)
		VALUES ('later', 'month', 'UTC', NULL), ('narrow', 'month', 'UTC', 'javascript'), ('over', 'month', 'UTC', 'baidu');
	UPDATE snowflake_partitions.tables SET keep = '10000 years' WHERE parent = 'later'::regclass}
);
$node->psql(
	'postgres', "SET search_path = app, public; $maintain)",
	connstr => $node->connstr('postgres') . ' user=owner',
	stderr => \my $strange);
like(
	$strange,
	qr/app\.aged: app\.aged_rest has 1 rows from ID 9223372036854775807 on, which are of no whole period of the layout/,
	'an ID of no period is reported');
like(
	$strange,
	qr/app\.narrow: app\.narrow_rest has 1 rows from ID 9223372036854775807 on, which are of no whole period of the layout/,
	'so is one that is larger than those of the layout');
like(
	$strange,
	qr/app\.over: cannot make a partition from .*: /,
	'and a period after the end of the layout');
like($strange, qr/app\.typo: cannot tell what is due: .*twiter/, 'and a layout that there is not');
is(sql(q{SELECT count(*) > 0 FROM snowflake_partitions.existing('later')}),
	't', 'and the next table has partitions');
like(
	sql(q{SELECT statement FROM snowflake_partitions.due('2080-07-01Z', false, 'later') WHERE what ~ '^make later_2080_07'}
	),
	qr/ TO \(MAXVALUE\)/,
	'a layout that ends within a period: there is a partition for it');
is( sql(q{UPDATE snowflake_partitions.tables SET keep = '1 month' WHERE parent = 'later'::regclass;
		SELECT count(*) > 0 FROM snowflake_partitions.due('2090-01-01Z', false, 'later') WHERE what ~ '^detach ';
		UPDATE snowflake_partitions.tables SET keep = NULL WHERE parent = 'later'::regclass}),
	't',
	'and when it ended long ago all partitions are old');
is( sql(q{SET timezone = 'UTC'; SELECT snowflake_partitions.period_start('2026-11-01 04:30Z', 'month', 'America/Havana')}
	),
	'2026-11-01 04:00:00+00',
	'a month begins at the first of two midnights');
is( sql(q{SELECT DISTINCT spcname, relreplident, attstorage,
			(SELECT count(*) FROM pg_attrdef WHERE adrelid = c.oid), (SELECT count(*) FROM pg_statistic_ext WHERE stxrelid = c.oid)
		  FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid LEFT JOIN pg_tablespace t ON t.oid = reltablespace
		 WHERE relkind = 'r' AND relname ~ '^later_2' AND attname = 'line'}),
	'elsewhere|n|e|1|1',
	'in the tablespace of the table, with its replica identity NOTHING, storage, defaults and statistics objects'
);

# A table that has another owner is no more looked after by the one before, who says so, until
# the new one, whose name needs quotes, has written its row.
sql(q{
	DELETE FROM aged WHERE id > 1000;
	DELETE FROM snowflake_partitions.tables WHERE parent IN ('narrow'::regclass, 'over'::regclass, 'typo'::regclass);
	DROP TABLE narrow, over, typo});
$node->safe_psql(
	'postgres', q{
	CREATE ROLE "Anna" LOGIN;
	GRANT USAGE, CREATE ON SCHEMA app TO "Anna";
	GRANT USAGE ON SCHEMA snowflake_partitions TO "Anna";
	ALTER TABLE app.aged OWNER TO "Anna"; ALTER TABLE app.aged_rest OWNER TO "Anna"});
is( sql(q{SELECT what, statement IS NULL FROM snowflake_partitions.due() WHERE parent = 'aged'::regclass}
	),
	'belongs to "Anna", who has to update its row of snowflake_partitions.tables|t',
	'a table that has another owner');
is( $node->safe_psql(
		'postgres',
		q{SELECT parent, what FROM snowflake_partitions.due();
		UPDATE snowflake_partitions.tables SET period = 'year' WHERE parent = 'app.aged'::regclass;
		SELECT DISTINCT parent, left(what, 4) FROM snowflake_partitions.due()},
		connstr => $node->connstr('postgres') . ' user=Anna'),
	'app.aged|make',
	'is looked after by that one when it has said so');
$node->safe_psql('postgres',
	'ALTER TABLE app.aged OWNER TO owner; UPDATE snowflake_partitions.tables SET period = period');

# What fails for one table, or cannot even be looked at, is said in the end, and the others are
# looked after; so it is when the permission to make tables is lost.
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA lost AUTHORIZATION owner;
	CREATE FUNCTION app.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity ~ 'refused_') THEN
				RAISE 'refused';
			END IF;
		END $$;
	CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION app.refuse()});
sql(q{
	DELETE FROM snowflake_partitions.tables;
	CREATE TABLE lost.first (id snowflake) PARTITION BY RANGE (id);
	CREATE TABLE refused (id snowflake) PARTITION BY RANGE (id);
	CREATE TABLE looked_at (id snowflake) PARTITION BY RANGE (id);
	CREATE TABLE looked_at_rest PARTITION OF looked_at DEFAULT;
	REVOKE SELECT ON looked_at_rest FROM owner;
	CREATE TABLE good (id snowflake) PARTITION BY RANGE (id);
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, ahead)
		SELECT t, 'year', 'UTC', 1 FROM unnest('{lost.first,refused,looked_at,good}'::regclass[]) t});
$node->safe_psql('postgres',
	'ALTER SCHEMA lost OWNER TO postgres; GRANT USAGE ON SCHEMA lost TO owner');
(undef, $stderr) = psql_script(q{CALL snowflake_partitions.maintain(at => '2026-12-10Z')});
is( $stderr =~ s/.*?(?=ERROR)//sr =~ s/^CONTEXT.*//msr =~ s/(\d{4}-01-01) 00:00:00\+00/$1/gr,
	join("\n",
		'ERROR:  5 of the steps that are due could not be done',
		'DETAIL:  lost.first: make first_2026, from 2026-01-01: permission denied for schema lost',
		'lost.first: make first_2027, from 2027-01-01: permission denied for schema lost',
		'app.refused: make refused_2026, from 2026-01-01: refused',
		'app.refused: make refused_2027, from 2027-01-01: refused',
		"app.looked_at: cannot tell what is due: permission denied for table looked_at_rest\n"),
	'what fails is said in the end');
is(names('good'), 'good_2026 good_2027', 'and the next table is looked after');
sql(q{DELETE FROM snowflake_partitions.tables; DROP TABLE lost.first, refused, looked_at, good});
$node->safe_psql('postgres', 'DROP EVENT TRIGGER refuse; DROP SCHEMA lost');

# Two runs at a time: whoever comes second finds it done.
sql(q{
	CREATE TABLE raced (id snowflake PRIMARY KEY) PARTITION BY RANGE (id);
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, ahead) VALUES ('raced', 'year', 'UTC', 1)}
);
$reader->query_safe('BEGIN; SET LOCAL ROLE owner; '
	  . sql(q{SELECT string_agg(statement, ';') FROM snowflake_partitions.due('2026-12-10Z')}));
$run = start_run(q{at => '2026-12-10Z', lock_timeout => '0'}, "wait_event_type = 'Lock'");
$reader->query_safe('COMMIT');
$run->query('SELECT');
is($run->{stderr}, '', 'a run that meets another one sees no error');
$run->quit;
is(names('raced'), 'raced_2026 raced_2027', 'nor are there two partitions of one period');

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
	ALTER TABLE elsewhere SET SCHEMA "My app";
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, ahead)
		VALUES ('tenants', 'year', 'UTC', 1), ('parts', 'year', 'UTC', 1)});
sql(sprintf q{ALTER TABLE parts ATTACH PARTITION "My app".elsewhere FOR VALUES FROM (%s) TO (%s)},
	map { sql("SELECT snowflake_lower_bound('$_-01-01Z')") } 2026, 2027);
sql("$maintain, at => '2026-12-10Z')");
is( sql(q{SELECT partition, ids FROM snowflake_partitions.existing('tenants') WHERE upper(ids) < 100 ORDER BY ids}
	),
	"tenants_cut|[5,10)\ntenants_above|[21,30)\ntenants_below|[40,49)",
	'bounds of several columns');
is( sql(q{
		SELECT pg_get_expr(relpartbound, oid) = format($$FOR VALUES FROM ('%s', MINVALUE) TO ('%s', MINVALUE)$$,
			snowflake_lower_bound('2027-01-01Z'), snowflake_lower_bound('2028-01-01Z'))
		  FROM pg_class WHERE relname = 'tenants_2027'}),
	't',
	'of which the first counts');
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
sql("$maintain, at => '2028-12-10Z')");
is( names('parts')
	  . sql(q{SELECT to_regclass('parts_2027_eu_1') IS NULL, to_regclass('"My app".h0')}),
	'parts_2027 parts_2028 parts_2029f|',
	'and go with it');

# A part that is elsewhere is not made here.
$node->safe_psql(
	'postgres', q{
	CREATE FOREIGN DATA WRAPPER nothing;
	CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
	CREATE TABLE app.mirrored (id snowflake, tenant text) PARTITION BY RANGE (id);
	CREATE TABLE app.mirrored_first PARTITION OF app.mirrored FOR VALUES FROM (1) TO (2) PARTITION BY LIST (tenant);
	CREATE FOREIGN TABLE app.mirrored_first_eu PARTITION OF app.mirrored_first FOR VALUES IN ('de') SERVER nowhere;
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone) VALUES ('app.mirrored', 'year', 'UTC')}
);
is( $node->safe_psql('postgres', q{SELECT what FROM snowflake_partitions.due()}),
	'cannot tell what is due: cannot make a partition like app.mirrored_first, since app.mirrored_first_eu is a foreign table',
	'a foreign table is no model');
$node->safe_psql('postgres',
	'DELETE FROM snowflake_partitions.tables WHERE owner = current_user; DROP SERVER nowhere CASCADE; DROP TABLE app.mirrored; DROP FOREIGN DATA WRAPPER nothing'
);

# A layout of less than 63 bits, beside a partition of what is above its largest ID
sql(q{
	DELETE FROM snowflake_partitions.tables;
	CREATE TABLE short (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
	CREATE TABLE short_above PARTITION OF short FOR VALUES FROM (9007199254740992) TO (9007199254741992);
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, layout)
		VALUES ('short', 'year', 'UTC', 'javascript')});
my $end = sql(q{SELECT snowflake_timestamp(9007199254740991, 'javascript')});
(undef, $stderr) = psql_script(qq{CALL snowflake_partitions.maintain(at => '$end')});
like(
	$stderr,
	qr/ERROR:  1 of.*cannot make a partition from /s,
	'years that the layout has not are said');
is( sql(q{SELECT upper(ids) FROM snowflake_partitions.existing('short') WHERE partition::text ~ '\d' ORDER BY 1}
	),
	'9007199254740992',
	'the last year ends where a partition begins that was made by hand');
sql(q{INSERT INTO short VALUES (9007199254740991)});

# A dump has the rows of the tables that there are, and the roles that may use it.
sql(q{
	DELETE FROM snowflake_partitions.tables;
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, keep, old, reported)
		VALUES ('raced', 'year', 'Asia/Tokyo', '2 years', 'drop', '{[1,5)}');
	CREATE TABLE dropped (id snowflake) PARTITION BY RANGE (id);
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone) VALUES ('dropped', 'year', 'UTC');
	INSERT INTO snowflake_partitions.dropping VALUES ('raced_2026', 'raced');
	DROP TABLE dropped});
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $node->connstr('postgres') ], 'a dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '-e', '-d', $node->connstr('restored'), $dump ], 'is restored');
is( $node->safe_psql(
		'restored',
		q{SELECT t.*, d.partition FROM snowflake_partitions.tables t FULL JOIN snowflake_partitions.dropping d USING (parent)}
	),
	'app.raced|year|Asia/Tokyo|4||2 years|drop|report||owner|{[1,5)}|app.raced_2026',
	'with what was entered');
is( $node->safe_psql(
		'restored', q{SELECT has_schema_privilege('other', 'snowflake_partitions', 'USAGE')}),
	't',
	'and those who may use it');
sql(q{
	DELETE FROM snowflake_partitions.tables;
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone) VALUES ('raced', 'hour', 'UTC')}
);

# Beside readers and writers
sql(q{
	CREATE TABLE busy (id snowflake PRIMARY KEY DEFAULT snowflake_next(), n integer) PARTITION BY RANGE (id);
	UPDATE snowflake_partitions.tables SET parent = 'busy', ahead = 1, keep = '9 hours', old = 'drop', since = now() - interval '9 hours'}
);
sql("$maintain)");
$node->append_conf('postgresql.conf', 'snowflake.max_wait = \'1min\'');
$node->reload;
my $scripts = PostgreSQL::Test::Utils::tempdir();
append_to_file("$scripts/write", "INSERT INTO app.busy (n) VALUES (1);\n");
append_to_file("$scripts/read",
	"SELECT count(*) FROM app.busy WHERE @@ id >= now() - interval '1 minute';\n");
my $out = '';
my $pgbench = IPC::Run::start(
	[
		'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', 4, '-T', 600, '-f',
		"$scripts/write", '-f', "$scripts/read", '-U', 'owner', 'postgres'
	],
	'<',
	\undef,
	'>&',
	\$out);
$node->poll_query_until('postgres', 'SELECT count(*) > 100 FROM app.busy') or die 'nobody writes';

foreach my $hours (1 .. 5)
{
	sql("$maintain, at => date_trunc('hour', now()) + interval '$hours hours')");
}
my $before = sql('SELECT count(*) FROM busy');
$node->poll_query_until('postgres', "SELECT count(*) > $before + 100 FROM app.busy")
  or die 'nobody writes any more';
$pgbench->signal('INT');
$pgbench->finish;
unlike($out, qr/ERROR|FATAL|aborted/, 'readers and writers see no error') or diag($out);
is( sql(q{SELECT count(*), max(upper(ids)) > snowflake_lower_bound(now() + interval '5 hours') FROM snowflake_partitions.existing('busy')}
	),
	'11|t',
	'while partitions come and go');

done_testing();
