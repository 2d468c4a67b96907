# doc/partitions/partitions.sql, as it stands: partitions of hours to years in a time zone
# are made ahead by the clock and detached or dropped by age, by an ordinary owner,
# whatever the search_path and the session's time zone; beside readers and writers;
# what was killed is completed by the next run; and the default partition's rows
# are reported or moved.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my $file = "$FindBin::RealBin/../../doc/partitions/partitions.sql";
my $node = new_node('main', conf => "max_worker_processes = 10\ndeadlock_timeout = '50ms'\n");

$node->start;

# What a hostile schema in front of everything has: they all say so when they are called
$node->safe_psql(
	'postgres', q{
	CREATE ROLE owner LOGIN;
	CREATE EXTENSION snowflake;
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

my $maintain = 'CALL by_time.maintain(tries => 600, pause => interval \'100 ms\'';

# Where the partitions of a table begin and end, in a time zone
sub bounds
{
	my ($table, $zone) = @_;

	return sql(
		qq{SET timezone = '$zone';
		SELECT partition, snowflake_timestamp(lower(ids)), snowflake_timestamp(upper(ids))
		  FROM by_time.existing('$table') ORDER BY ids});
}

sub names
{
	my ($table) = @_;

	return sql(
		"SELECT string_agg(partition::text, ' ' ORDER BY ids) FROM by_time.existing('$table') WHERE NOT is_default"
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
sql(q{DROP TABLE log});

# What doc/partitions.md shows, in its order
my $page = slurp_file("$FindBin::RealBin/../../doc/partitions.md");
my @blocks = map { $_ =~ /^```sql\n(.*?)^```$/ms }
  grep { !/<!-- not run here: / } $page =~ /^((?:<!-- [^\n]*-->\n)*```sql\n.*?^```)$/msg;
(undef, my $errors) = psql_script(join "\n", shift @blocks, slurp_file($file), @blocks);
is($errors, '', 'the statements of the page');
is( sql(q{SELECT string_agg(DISTINCT tableoid::regclass::text, ',') FROM log}),
	sql(q{SELECT 'log_' || to_char(now() AT TIME ZONE 'Europe/Berlin', 'YYYY_MM')}),
	'which puts a row into the partition of this month');
is(sql(q{SELECT count(*) FROM by_time.existing('log') WHERE NOT is_default}),
	'5', 'that and four more');
sql(q{UPDATE by_time.tables SET since = '-1000 years'::interval + now(), keep = '3 months', default_rows = 'move'; ALTER TABLE log_rest DROP CONSTRAINT before}
);
sql("$maintain)");
is(sql(q{SELECT count(*) FROM by_time.existing('log') WHERE NOT is_default}),
	'8', 'those since then that are kept');
sql(q{DROP SCHEMA by_time CASCADE; DROP TABLE log});

sql(slurp_file($file));
sql(q{
	CREATE TABLE log (id snowflake PRIMARY KEY DEFAULT snowflake_next(), line text) PARTITION BY RANGE (id);
	CREATE INDEX ON log (line);
	INSERT INTO by_time.tables (parent, period, time_zone, ahead) VALUES ('log', 'month', 'Europe/Berlin', 2);
});

# a look changes nothing, in a transaction that could not
like(
	sql(q{SET default_transaction_read_only = on; SELECT what FROM by_time.due('2026-10-15Z')}),
	qr/^make log_2026_10, from .*\nmake log_2026_11.*\nmake log_2026_12.*$/,
	'what is due');
is(sql('SELECT count(*) FROM by_time.existing(\'log\')'), '0', 'which is only said');

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
is(sql(q{SELECT count(*) FROM by_time.due('2026-12-31 23:30Z')}), '0', 'nothing is due twice');
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
	INSERT INTO by_time.tables (parent, period, time_zone, ahead) VALUES ('hours', 'hour', 'Europe/Berlin', 3),
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
is( sql(q{SELECT by_time.name_of('weeks', '2024-12-30 00:00+01', 'week', 'Europe/Berlin', false)}),
	'weeks_2025_w01', 'which belong to the year that has most of their days');

# What is kept is counted in the time zone of the table: there, it is April already.
is( sql(q{
		SET timezone = 'UTC';
		CREATE TABLE kept (id snowflake) PARTITION BY RANGE (id);
		CREATE TABLE kept_old PARTITION OF kept
			FOR VALUES FROM (snowflake_lower_bound('2026-02-27 23:00Z')) TO (snowflake_lower_bound('2026-02-28 23:00Z'));
		INSERT INTO by_time.tables (parent, period, time_zone, keep) VALUES ('kept', 'day', 'Europe/Berlin', '1 month');
		SELECT what FROM by_time.due('2026-03-31 22:30Z', false, 'kept') WHERE what ~ 'kept_old';
		DELETE FROM by_time.tables WHERE parent = 'kept'::regclass;
		DROP TABLE kept}),
	'detach app.kept_old',
	'a month before the first of April, in Berlin; it is detached if nothing else is said');
is( bounds('years', 'Europe/Berlin'),
	join("\n",
		'years_2026|2026-01-01 00:00:00+01|2027-01-01 00:00:00+01',
		'years_2027|2027-01-01 00:00:00+01|2028-01-01 00:00:00+01'),
	'years, of a bigint key');
sql(q{INSERT INTO by_time.tables (parent, period, time_zone, ahead) VALUES ('island', 'day', 'Pacific/Apia', 3)}
);
sql("$maintain, at => '2011-12-29 12:00Z')");
is( bounds('island', 'UTC'),
	join("\n",
		'island_2011_12_29|2011-12-29 10:00:00+00|2011-12-30 10:00:00+00',
		'island_2011_12_31|2011-12-30 10:00:00+00|2011-12-31 10:00:00+00',
		'island_2012_01_01|2011-12-31 10:00:00+00|2012-01-01 10:00:00+00'),
	'a day that an island has skipped has no partition; a key of a domain');
sql(q{DELETE FROM by_time.tables WHERE parent <> 'log'::regclass});

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
	INSERT INTO by_time.tables (parent, period, time_zone, ahead, layout) VALUES
		('mixed', 'month', 'UTC', 1, NULL), ('layouts', 'month', 'UTC', 1, 'discord');
});
sql("$maintain, at => '2026-11-20Z')");
is( sql(q{SET timezone = 'UTC'; SELECT partition, snowflake_timestamp(lower(ids)), snowflake_timestamp(upper(ids))
		FROM by_time.existing('mixed') WHERE partition::text ~ '\d' ORDER BY ids}),
	join("\n",
		'mixed_2026_11_01_0500|2026-11-01 05:00:00+00|2026-11-30 18:00:00+00',
		'mixed_2026_12_02_0000|2026-12-02 00:00:00+00|2026-12-20 00:00:00+00'),
	'the parts of periods that are not taken');
is( sql(q{SELECT min(lower(ids)) = snowflake_lower_bound('2026-11-01Z', 'discord')::bigint FROM by_time.existing('layouts')}
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
		SELECT ids, is_default FROM by_time.existing('below');
		DROP TABLE below}),
	'[-100,0)|f',
	'a partition of numbers below zero');
sql(q{DROP TABLE mixed, layouts});
like(
	sql('SELECT string_agg(what, \',\') FROM by_time.due()'),
	qr/does not exist.*does not exist/,
	'a table that is gone is reported');
is(fails('CALL by_time.maintain()')->{sqlstate}, '55000', 'which is an error');
sql(q{DELETE FROM by_time.tables WHERE parent <> 'log'::regclass});

# What is old: detached, or dropped; not what is partly old
sql(q{UPDATE by_time.tables SET keep = '1 month 15 days', old = 'detach'});
sql(q{INSERT INTO log VALUES (snowflake_lower_bound('2026-10-20Z'), 'old'), (snowflake_lower_bound('2026-11-20Z'), 'kept')}
);
sql("$maintain, at => '2026-12-16Z')");
is( names('log'),
	'log_2026_11 log_2026_12 log_2027_01 log_2027_02 log_2027_03',
	'an old partition is detached');
is(sql('SELECT line FROM log_2026_10'), 'old', 'and stays');
is(sql('SELECT line FROM log'), 'kept', 'a partition of which a part is old is kept');
sql(q{UPDATE by_time.tables SET old = 'drop'});
sql("$maintain, at => '2027-01-16Z')");
is(names('log'), 'log_2026_12 log_2027_01 log_2027_02 log_2027_03', 'or dropped');
is(sql(q{SELECT to_regclass('log_2026_11'), count(*) FROM by_time.dropping}),
	'|0', 'which leaves nothing behind');

# By psql's \gexec, concurrently: what is detached by one run is dropped by the next
my $gexec = q{SELECT statement FROM by_time.due('2027-02-16Z') \gexec};
my ($stdout, $stderr) = psql_script("$gexec\n");
is($stderr, '', 'the statements of due(), run by psql');
is(names('log'), 'log_2027_01 log_2027_02 log_2027_03 log_2027_04', 'detach concurrently');
is( sql(q{SELECT what FROM by_time.due('2027-02-16Z')}),
	'drop app.log_2026_12',
	'to be dropped next');
is( sql(q{
		UPDATE by_time.tables SET old = 'detach';
		SELECT what FROM by_time.due('2027-02-16Z');
		UPDATE by_time.tables SET old = 'drop'}),
	'forget that app.log_2026_12 was to be dropped',
	'but not if old ones are to be kept by then');
($stdout, $stderr) = psql_script("$gexec\n");
is( $stderr
	  . sql(q{SELECT count(*) FROM by_time.due('2027-02-16Z')})
	  . sql(q{SELECT to_regclass('log_2026_12')}),
	'0',
	'is dropped by the next run');

# A reader that does not end: what does not disturb it is done
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN; SELECT count(*) FROM app.log');
(undef, $stderr) = psql_script(
	q{CALL by_time.maintain(lock_timeout => '10ms', tries => 2, pause => '10 ms', at => '2027-03-16Z')}
);
like($stderr, qr/ERROR:  1 of the steps/, 'detaching needs a lock that a reader holds');
like(
	$stderr,
	qr/WARNING:\s+app\.log: detach app\.log_2027_01: canceling statement due to lock timeout/,
	'the warning has the reason');
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
is( sql(q{SELECT what FROM by_time.due('2027-03-16Z') WHERE what ~ 'log_2027_01'}),
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
$victim->query_until(qr//, "CALL by_time.maintain(lock_timeout => '0', at => '2027-04-16Z');\n");
$node->poll_query_until('postgres',
	"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid")
  or die 'maintain() does not wait';
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
$node->poll_query_until('postgres',
	"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)");
eval { $victim->quit };
$reader->query_safe('COMMIT');
is( names('log') . sql('SELECT partition FROM by_time.dropping'),
	'log_2027_02 log_2027_03 log_2027_04 log_2027_05 log_2027_06log_2027_02',
	'a run is killed half way');
sql("$maintain, at => '2027-04-16Z')");
is( names('log') . sql(q{SELECT count(*), to_regclass('log_2027_02') FROM by_time.dropping}),
	'log_2027_03 log_2027_04 log_2027_05 log_2027_060|',
	'the next one goes on');

# What was to be dropped is kept if somebody wants it after all; one that was dropped by hand is no more
sql(q{
	CREATE TABLE gone ();
	INSERT INTO by_time.dropping VALUES ('log_2027_03', 'log'), ('gone', 'log');
	DROP TABLE gone});
sql("$maintain, at => '2027-04-16Z')");
is(sql('SELECT count(*) FROM by_time.dropping'), '0', 'a note that is out of date is forgotten');

# Start a run in a session of its own, and wait until this is true of it, or it has ended
sub start_run
{
	my ($arguments, $condition) = @_;
	my $run = $node->background_psql('postgres', on_error_stop => 0);
	my $run_pid = $run->query_safe('SET ROLE owner; SELECT pg_backend_pid()');

	$run->query_until(qr//, "CALL by_time.maintain($arguments);\n");
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
	DELETE FROM by_time.tables;
	CREATE TABLE full_of (id snowflake PRIMARY KEY DEFAULT snowflake_next(), n integer GENERATED ALWAYS AS IDENTITY,
		line text NOT NULL, length integer GENERATED ALWAYS AS (length(line)) STORED, gone text) PARTITION BY RANGE (id);
	ALTER TABLE full_of DROP gone;
	CREATE TABLE "rest of it" PARTITION OF full_of DEFAULT;
	INSERT INTO full_of (id, line) SELECT make_snowflake(timestamptz '2026-10-20Z' + i * interval '1 day', 1, 0), 'day ' || i
	  FROM generate_series(1, 30) i;
	INSERT INTO full_of (id, line) VALUES ('0', 'zero');
	CREATE TABLE changes (n serial, op text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.changes (op) VALUES (TG_OP); RETURN coalesce(NEW, OLD); END $$;
	CREATE TRIGGER note BEFORE INSERT OR DELETE ON full_of FOR EACH ROW EXECUTE FUNCTION note();
	INSERT INTO by_time.tables (parent, period, time_zone, ahead) VALUES ('full_of', 'month', 'UTC', 1);
});
my $rows = sql('SELECT md5(string_agg(f::text, \',\' ORDER BY id)) FROM full_of f');
(undef, $stderr) = psql_script(q{CALL by_time.maintain(at => '2026-11-10Z')});
is( join("\n", $stderr =~ /WARNING:  (.*)/g),
	join(
		"\n",
		map {
			"app.full_of: cannot make full_of_$_->[0], from $_->[1] 00:00:00+00: app.\"rest of it\" has $_->[2] rows of that time"
		}[ '2010_11', '2010-11-01', 1 ],
		[ '2026_10', '2026-10-01', 11 ],
		[ '2026_11', '2026-11-01', 19 ]),
	'rows of the default partition are reported');
is(names('full_of'), 'full_of_2026_12', 'what they are not in the way of is made');

# they are moved, with what the server made of them; triggers see it.  Here psql does it, in a
# session in whose search_path a hostile schema comes first.
sql(q{UPDATE by_time.tables SET default_rows = 'move'});
like(
	sql(q{SELECT string_agg(statement, ' ') FROM by_time.due('2026-11-10Z')}),
	qr/^SELECT by_time\.move\('app\.full_of', 'full_of_2010_11', 0, \d+\) SELECT by_time\.move/,
	'statements for them');
(undef, $stderr) = psql_script(
	q{SET search_path = evil, pg_catalog, app, public;
	SELECT statement FROM by_time.due('2026-11-10Z') \gexec} . "\n");
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
(undef, $stderr) = psql_script(q{CALL by_time.maintain(at => '2026-11-10Z')});
like($stderr, qr/of 2 rows of app."rest of it" only 1 were moved/, 'no row is left out');
is(sql(q{SELECT count(*) FROM "rest of it"}), '2', 'they stay');
sql(q{
	DROP TRIGGER z ON full_of;
	CREATE TABLE referencing (id snowflake REFERENCES full_of ON DELETE CASCADE);
	INSERT INTO referencing SELECT id FROM full_of WHERE line = 'in'});
(undef, $stderr) = psql_script(q{CALL by_time.maintain(at => '2026-11-10Z')});
like(
	$stderr,
	qr/has 2 rows of that time, which foreign keys reference/,
	'rows that foreign keys reference are reported');
is( fails(
		q{SELECT by_time.move('full_of', 'full_of_2027_02', snowflake_lower_bound('2027-02-01Z'), snowflake_lower_bound('2027-03-01Z'))}
	)->{sqlstate},
	'0A000',
	'and not moved');
is(sql(q{SELECT count(*) FROM referencing}), '1', 'what references them stays');

# Detaching what is referenced fails, and does not keep the rest from being done
sql(q{
	UPDATE by_time.tables SET keep = '1 month', old = 'drop', default_rows = 'report';
	INSERT INTO referencing SELECT id FROM full_of WHERE line = 'day 3'});
like(
	sql(q{SELECT statement FROM by_time.due('2026-12-10Z') WHERE what = 'detach app.full_of_2010_11'}
	),
	qr/ DETACH PARTITION app\.full_of_2010_11$/,
	'beside a default partition nothing is detached concurrently');
(undef, $stderr) = psql_script(q{CALL by_time.maintain(at => '2026-12-10Z')});
like(
	$stderr,
	qr/WARNING:  app.full_of: detach app.full_of_2026_10: removing partition "full_of_2026_10" violates foreign key/,
	'what is referenced cannot be detached');
is( names('full_of'),
	'full_of_2026_10 full_of_2026_11 full_of_2026_12 full_of_2027_01',
	'what is not referenced is');
is(sql(q{SELECT partition::text FROM by_time.dropping}), 'full_of_2026_10', 'the note stays');

# but not where all are to be kept from now on, nor when nobody looks after the table any more
is( sql(q{
		BEGIN;
		UPDATE by_time.tables SET keep = NULL;
		SELECT what FROM by_time.due('2026-12-10Z') WHERE what ~ '^forget';
		DELETE FROM by_time.tables;
		SELECT count(*) FROM by_time.dropping;
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
	UPDATE by_time.tables SET parent = 'orders', keep = NULL});
sql("$maintain, at => '2026-12-10Z')");
is(fails(q{INSERT INTO orders VALUES (snowflake_lower_bound('2026-12-20Z'), 2)})->{sqlstate},
	'23503', 'a partition has the foreign keys');

# Whose and what tables
is(sql(q{SELECT count(*) FROM by_time.due('2026-12-10Z')}), '0', 'nothing to say');
sql(q{
	CREATE TABLE listed (id snowflake) PARTITION BY LIST (id);
	CREATE TABLE two (id snowflake, k integer) PARTITION BY RANGE (id, k);
	CREATE TABLE number (id integer) PARTITION BY RANGE (id);
	CREATE TABLE plain (id snowflake);
	DELETE FROM by_time.tables;
	INSERT INTO by_time.tables (parent, period, time_zone) SELECT t, 'day', 'UTC' FROM unnest('{listed,two,number,plain}'::regclass[]) t}
);
is( sql(q{SELECT DISTINCT what, statement IS NULL FROM by_time.due()}),
	'is not partitioned by ranges of one column of type snowflake or bigint|t',
	'tables that are not meant');
is( fails(q{INSERT INTO by_time.tables VALUES ('orders', 'month', 'Europe/Atlantis')})->{sqlstate},
	'22023', 'an unknown time zone');
is(fails(q{INSERT INTO by_time.tables VALUES ('orders', 'decade', 'UTC')})->{sqlstate},
	'23514', 'an unknown period');
foreach my $wrong (
	"keep = '-1 month'",
	"since = '-infinity'",
	'ahead = 0',
	"old = 'delete'",
	"default_rows = 'reported'")
{
	is(fails("UPDATE by_time.tables SET $wrong")->{sqlstate}, '23514', "not taken: $wrong");
}
sql(q{
	DELETE FROM by_time.tables;
	INSERT INTO by_time.tables (parent, period, time_zone) VALUES ('orders', 'month', 'UTC')});
is( $node->safe_psql('postgres', 'SELECT what, statement IS NULL FROM by_time.due()'),
	'belongs to owner: only that role can look after it|t',
	'a superuser runs nothing for others');
is(error_of($node, 'CALL by_time.maintain()')->{sqlstate}, '55000', 'nor does maintain()');
$node->safe_psql('postgres', 'CREATE ROLE other LOGIN');
is(error_of($node, 'SET ROLE other; SELECT * FROM by_time.due()')->{sqlstate},
	'42501', 'others may nothing');

# A name that is too long keeps its end
my $long = 'x' . 'é' x 29;
sql(qq{
	CREATE TABLE "$long" (id snowflake PRIMARY KEY) PARTITION BY RANGE (id);
	UPDATE by_time.tables SET parent = '"$long"', period = 'day', ahead = 2});
sql("$maintain, at => '2026-12-10Z')");
is( sql(qq{SELECT count(*) FROM by_time.existing('"$long"') WHERE partition::text LIKE '%_2026_12_1_"'}
	),
	'3',
	'a long name keeps its end');

# Another schema
sql(q{DROP TABLE orders; CREATE TABLE orders (id snowflake) PARTITION BY RANGE (id)});
my $other = slurp_file($file) =~ s/\bby_time\b/parts/gr;
sql("$other; UPDATE by_time.tables SET parent = 'orders', period = 'month';
	INSERT INTO parts.tables SELECT * FROM by_time.tables; DROP SCHEMA by_time CASCADE; CREATE SCHEMA by_time; DROP SCHEMA by_time"
);
sql(q{CALL parts.maintain(at => '2027-01-10Z')});
is(sql(q{SELECT count(*) FROM parts.existing('orders')}), '3', 'in a schema of another name');
sql(q{DROP SCHEMA parts CASCADE});
sql(slurp_file($file));
sql(q{INSERT INTO by_time.tables (parent, period, time_zone) VALUES ('orders', 'hour', 'UTC')});

# Names that need quotes.  The first ID of a period is in no other one.
sql(q{
	DELETE FROM by_time.tables;
	CREATE SCHEMA "My app";
	CREATE TABLE "My app"."Log" ("Id" snowflake) PARTITION BY RANGE ("Id");
	CREATE TABLE "My app"."Rest" PARTITION OF "My app"."Log" DEFAULT;
	INSERT INTO "My app"."Log" VALUES (snowflake_lower_bound('2026-11-01Z'));
	INSERT INTO by_time.tables (parent, period, time_zone, ahead) VALUES ('"My app"."Log"', 'month', 'UTC', 1)}
);
like(
	sql(q{SELECT what FROM by_time.due('2026-10-15Z')}),
	qr/^make Log_2026_10, from [^,]*\ncannot make Log_2026_11, from .*"My app"\."Rest" has 1 rows of that time$/,
	'the first ID of a period is reported once');
sql(q{UPDATE by_time.tables SET default_rows = 'move'});
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
	DELETE FROM by_time.tables;
	CREATE TABLE aged (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
	ALTER TABLE aged REPLICA IDENTITY FULL;
	CREATE TABLE aged_rest PARTITION OF aged DEFAULT;
	INSERT INTO aged SELECT generate_series(1, 1000);
	INSERT INTO by_time.tables VALUES ('aged', 'month', 'UTC', 1, NULL, '13 months', 'drop', 'move', NULL)}
);
is(sql(q{SELECT what FROM by_time.due('2012-01-01Z') WHERE what ~ 'aged_rest'}),
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
	INSERT INTO by_time.tables (parent, period, time_zone, keep, layout) VALUES ('typo', 'month', 'UTC', '1 year', 'twiter');
	INSERT INTO by_time.tables (parent, period, time_zone, layout)
		VALUES ('later', 'month', 'UTC', NULL), ('narrow', 'month', 'UTC', 'javascript'), ('over', 'month', 'UTC', 'baidu');
	UPDATE by_time.tables SET keep = '10000 years' WHERE parent = 'later'::regclass}
);
$node->psql(
	'postgres', "SET search_path = app, public; $maintain)",
	connstr => $node->connstr('postgres') . ' user=owner',
	stderr => \my $strange);
like(
	$strange,
	qr/app\.aged: app\.aged_rest has rows from ID 9223372036854775807 on, which are of no period of the layout/,
	'an ID of no period is reported');
like(
	$strange,
	qr/app\.narrow: app\.narrow_rest has rows from ID 9223372036854775807 on, which are of no period of the layout/,
	'so is one that is larger than those of the layout');
like(
	$strange,
	qr/app\.over: cannot make a partition from .*: /,
	'and a period after the end of the layout');
like($strange, qr/app\.typo: cannot tell what is old: /, 'and a layout that there is not');
is(sql(q{SELECT count(*) > 0 FROM by_time.existing('later')}),
	't', 'and the next table has partitions');
like(
	sql(q{SELECT statement FROM by_time.due('2080-07-01Z', false, 'later') WHERE what ~ '^make later_2080_07'}
	),
	qr/ TO \('9223372036854775807'\)/,
	'a layout that ends within a period: there is a partition for it');
is( sql(q{UPDATE by_time.tables SET keep = '1 month' WHERE parent = 'later'::regclass;
		SELECT count(*) > 0 FROM by_time.due('2090-01-01Z', false, 'later') WHERE what ~ '^detach ';
		UPDATE by_time.tables SET keep = NULL WHERE parent = 'later'::regclass}),
	't',
	'and when it ended long ago all partitions are old');
is( sql(q{SET timezone = 'UTC'; SELECT by_time.period_start('2026-11-01 04:30Z', 'month', 'America/Havana')}
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

# A role whose name needs quotes looks after its own tables.
sql(q{DELETE FROM aged WHERE id > 1000; DELETE FROM by_time.tables WHERE parent IN ('narrow'::regclass, 'over'::regclass, 'typo'::regclass); DROP TABLE narrow, over, typo}
);
$node->safe_psql(
	'postgres', q{
	CREATE ROLE "Anna" LOGIN;
	GRANT USAGE ON SCHEMA app, by_time TO "Anna";
	GRANT SELECT ON ALL TABLES IN SCHEMA by_time TO "Anna";
	ALTER TABLE app.aged OWNER TO "Anna"; ALTER TABLE app.aged_rest OWNER TO "Anna"});
is( $node->safe_psql(
		'postgres',
		'SELECT parent, what FROM by_time.due()',
		connstr => $node->connstr('postgres') . ' user=Anna'),
	'app.later|belongs to owner: only that role can look after it',
	'a role whose name needs quotes is the owner of its tables');
$node->safe_psql('postgres', 'ALTER TABLE app.aged OWNER TO owner');
sql(q{DELETE FROM by_time.tables WHERE parent <> 'later'::regclass; UPDATE by_time.tables SET period = 'hour'}
);

# Beside readers and writers
sql(q{
	CREATE TABLE busy (id snowflake PRIMARY KEY DEFAULT snowflake_next(), n integer) PARTITION BY RANGE (id);
	UPDATE by_time.tables SET parent = 'busy', ahead = 1, keep = '9 hours', old = 'drop', since = now() - interval '9 hours'}
);
sql("$maintain)");
$node->append_conf('postgresql.conf', 'snowflake.max_wait = \'1min\'');
$node->reload;
my $scripts = PostgreSQL::Test::Utils::tempdir();
append_to_file("$scripts/write", "INSERT INTO app.busy (n) VALUES (1);\n");
append_to_file("$scripts/read",
	"SELECT count(*) FROM app.busy WHERE id >= now() - interval '1 minute';\n");
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
is( sql(q{SELECT count(*), max(upper(ids)) > snowflake_lower_bound(now() + interval '5 hours') FROM by_time.existing('busy')}
	),
	'11|t',
	'while partitions come and go');

done_testing();
