# The extension snowflake_partitions: partitions of hours to years in a time zone are created
# ahead of the clock and detached or dropped by age, by an ordinary owner, whatever the
# search_path and the session's time zone, beside readers and writers; and the next run
# completes a killed one.
# versions: all

use SnowflakePartitions qw(
  bounds complaints due fails kill_session look_after maintain maintain_at names owner_session
  partitions_node run_script sql start_run
);
use SnowflakeTest;

my $node = partitions_node();

# What doc/partitions.md shows, in its order
my $page = slurp_file('doc/partitions.md');
my @blocks = map { $_ =~ /^```sql\n(.*?)^```$/ms }
  grep { !/<!-- not run here: / } $page =~ /^((?:<!-- [^\n]*-->\n)*```sql\n.*?^```)$/msg;
is((run_script(join "\n", @blocks))[1], '', 'the statements of the page');
my $count = q{SELECT count(*) FROM snowflake_partitions.existing('log') WHERE NOT is_default};
is(sql($count), '5', 'that and four more');
sql(q{UPDATE snowflake_partitions.tables SET since = '-1000 years'::interval + now(), keep = '3 months', default_rows = 'move'}
);
maintain();
is(sql($count), '8', 'those since then that are kept');
sql(q{
	DELETE FROM snowflake_partitions.tables;
	DROP TABLE log;
	CREATE TABLE log (id snowflake PRIMARY KEY DEFAULT snowflake_next(), line text) PARTITION BY RANGE (id);
	CREATE INDEX ON log (line)});
look_after('log', 'month', time_zone => 'Europe/Berlin', ahead => 2);

# a look changes nothing, in a transaction that could not
like(
	sql(q{SET default_transaction_read_only = on; SELECT what FROM snowflake_partitions.due('2026-10-15Z')}
	),
	qr/^create log_2026_10, from .*\ncreate log_2026_11.*\ncreate log_2026_12.*$/,
	'what is due');
is(sql($count), '0', 'which is only said');

# Months of New York and of UTC would overlap; these do not follow the session
maintain(q{at => '2026-10-15Z'}, q{SET timezone = 'America/New_York';});
maintain(q{at => '2026-12-31 23:30Z'},
	q{SET timezone = 'Asia/Tokyo'; SET search_path = evil, pg_catalog, app, public;});
is( bounds('log', 'Europe/Berlin'),
	join("\n",
		'log_2026_10|2026-10-01 00:00:00+02|2026-11-01 00:00:00+01',
		'log_2026_11|2026-11-01 00:00:00+01|2026-12-01 00:00:00+01',
		'log_2026_12|2026-12-01 00:00:00+01|2027-01-01 00:00:00+01',
		'log_2027_01|2027-01-01 00:00:00+01|2027-02-01 00:00:00+01',
		'log_2027_02|2027-02-01 00:00:00+01|2027-03-01 00:00:00+01',
		'log_2027_03|2027-03-01 00:00:00+01|2027-04-01 00:00:00+02'),
	'months begin at midnight in their time zone, and go by the clock: nobody has written a row');
is(due('2026-12-31 23:30Z'), '', 'nothing is due twice');

# The other periods, where local time has its oddities, of keys of each type
sql(q{
	CREATE DOMAIN key AS snowflake;
	CREATE TABLE hours (LIKE log INCLUDING DEFAULTS) PARTITION BY RANGE (id);
	CREATE TABLE days (LIKE log) PARTITION BY RANGE (id);
	CREATE TABLE weeks (LIKE log) PARTITION BY RANGE (id);
	CREATE TABLE years (id bigint) PARTITION BY RANGE (id);
	CREATE TABLE island (id key) PARTITION BY RANGE (id)});
foreach my $case (
	[
		'hours: those of UTC, of which none comes twice',
		'hours hour Europe/Berlin 2026-10-24T23:30Z UTC',
		'hours_2026_10_24_23|2026-10-24 23:00:00+00|2026-10-25 00:00:00+00',
		'hours_2026_10_25_00|2026-10-25 00:00:00+00|2026-10-25 01:00:00+00',
		'hours_2026_10_25_01|2026-10-25 01:00:00+00|2026-10-25 02:00:00+00'
	],
	[
		'days: one has 25 hours',
		'days day Europe/Berlin 2026-10-24T23:30Z UTC',
		'days_2026_10_25|2026-10-24 22:00:00+00|2026-10-25 23:00:00+00',
		'days_2026_10_26|2026-10-25 23:00:00+00|2026-10-26 23:00:00+00',
		'days_2026_10_27|2026-10-26 23:00:00+00|2026-10-27 23:00:00+00'
	],
	[
		'weeks: from Monday on',
		'weeks week Europe/Berlin 2026-10-24T23:30Z Europe/Berlin',
		'weeks_2026_w43|2026-10-19 00:00:00+02|2026-10-26 00:00:00+01',
		'weeks_2026_w44|2026-10-26 00:00:00+01|2026-11-02 00:00:00+01'
	],
	[
		'years, of a bigint key',
		'years year Europe/Berlin 2026-10-24T23:30Z Europe/Berlin',
		'years_2026|2026-01-01 00:00:00+01|2027-01-01 00:00:00+01',
		'years_2027|2027-01-01 00:00:00+01|2028-01-01 00:00:00+01'
	],
	[
		'a day that an island has skipped has no partition; a key of a domain',
		'island day Pacific/Apia 2011-12-29T12:00Z UTC 2',
		'island_2011_12_29|2011-12-29 10:00:00+00|2011-12-30 10:00:00+00',
		'island_2011_12_31|2011-12-30 10:00:00+00|2011-12-31 10:00:00+00',
	])
{
	my ($what, $words, @expected) = @$case;
	my ($table, $period, $zone, $time, $shown_in, $ahead) = split / /, $words;

	look_after($table, $period, time_zone => $zone, ahead => $ahead // $#expected);
	maintain("at => '$time'", q{SET timezone = 'Asia/Kolkata';});
	is(bounds($table, $shown_in), join("\n", @expected), $what);
	sql("DELETE FROM snowflake_partitions.tables WHERE parent = '$table'::regclass");
}
is( sql(q{SELECT snowflake_partitions.name_of('weeks', '2024-12-30 00:00+01', 'week', 'Europe/Berlin', false)}
	),
	'weeks_2025_w01',
	'weeks belong to the year that has most of their days');

# Partitions that were made otherwise are worked around, and names that tables or types have are not
# taken again.
sql(q{
	CREATE TYPE mixed_2026_11_01_0500 AS ENUM ('a');
	CREATE TABLE mixed_2026_12_02_0000 ();
	CREATE TABLE mixed_2026_12_02_0000_2 ();
	CREATE TABLE mixed (LIKE log) PARTITION BY RANGE (id);
	CREATE TABLE mixed_past PARTITION OF mixed FOR VALUES FROM (MINVALUE) TO (snowflake_lower_bound('2026-11-01 05:00Z'));
	CREATE TABLE mixed_other PARTITION OF mixed
		FOR VALUES FROM (snowflake_lower_bound('2026-11-30 18:00Z')) TO (snowflake_lower_bound('2026-12-02Z'));
	CREATE TABLE mixed_end PARTITION OF mixed FOR VALUES FROM (snowflake_lower_bound('2026-12-20Z')) TO (MAXVALUE);
	});
look_after('mixed', 'month', ahead => 1);
maintain_at('2026-11-20Z');
is( bounds('mixed', 'UTC', q{partition::text ~ '\d'}),
	join("\n",
		'mixed_2026_11_01_0500_2|2026-11-01 05:00:00+00|2026-11-30 18:00:00+00',
		'mixed_2026_12_02_0000_3|2026-12-02 00:00:00+00|2026-12-20 00:00:00+00'),
	'the parts of periods that are not taken');
sql(q{DROP TABLE mixed});
like(
	sql(q{SELECT string_agg(what, ',') FROM snowflake_partitions.due()}),
	qr/does not exist/,
	'a table that is gone is reported');
is(fails('CALL snowflake_partitions.maintain()')->{sqlstate}, '55000', 'which is an error');
sql(q{DELETE FROM snowflake_partitions.tables WHERE parent <> 'log'::regclass});

# What is old: detached, or dropped; not what is partly old
sql(q{
	UPDATE snowflake_partitions.tables SET keep = '1 month 15 days', old = 'detach';
	INSERT INTO log VALUES (snowflake_lower_bound('2026-10-20Z'), 'old'), (snowflake_lower_bound('2026-11-20Z'), 'kept')}
);
maintain_at('2026-12-16Z');
is( names('log'),
	'log_2026_11 log_2026_12 log_2027_01 log_2027_02 log_2027_03',
	'an old partition is detached');
is(sql('SELECT line FROM log_2026_10'), 'old', 'and stays');
is(sql('SELECT line FROM log'), 'kept', 'a partition of which a part is old is kept');
sql(q{UPDATE snowflake_partitions.tables SET old = 'drop'});
maintain_at('2027-01-16Z');
is(names('log'), 'log_2026_12 log_2027_01 log_2027_02 log_2027_03', 'or dropped');
is(sql(q{SELECT to_regclass('log_2026_11'), count(*) FROM snowflake_partitions.dropping}),
	'|0', 'which leaves nothing behind');

# By psql's \gexec, concurrently: what is detached by one run is dropped by the next
my $gexec = q{SELECT statement FROM snowflake_partitions.due('2027-02-16Z') \gexec};
is((run_script($gexec))[1], '', 'the statements of due(), run by psql');
is(names('log'), 'log_2027_01 log_2027_02 log_2027_03 log_2027_04', 'detach concurrently');
is(due('2027-02-16Z'), 'drop app.log_2026_12', 'to be dropped next');
is((run_script($gexec))[1], '', 'run once more');
is(due('2027-02-16Z') . sql(q{SELECT to_regclass('log_2026_12')}),
	'', 'it is dropped by the next run');

# A reader that does not end: what does not disturb it is done
my $reader = session($node, 'BEGIN; SELECT count(*) FROM app.log');
my $stderr = complaints('2027-03-16Z', q{, lock_timeout => '10ms', tries => 2, pause => '10 ms'});
like($stderr, qr/ERROR:  1 of the steps/, 'detaching needs a lock that a reader holds');
like(
	$stderr,
	qr/DETAIL:  app\.log: detach app\.log_2027_01: canceling statement due to lock timeout/,
	'the error has the reason');
is( names('log'),
	'log_2027_01 log_2027_02 log_2027_03 log_2027_04 log_2027_05',
	'what needs none is done');

# detaching concurrently waits for it, and is killed
my ($victim, $pid) = owner_session();
$victim->query_until(qr//, "ALTER TABLE app.log DETACH PARTITION app.log_2027_01 CONCURRENTLY;\n");
kill_session($victim, $pid);
is( due('2027-03-16Z', q{what ~ 'log_2027_01'}),
	'complete the detachment of app.log_2027_01',
	'half of a detachment is seen, and not begun again');
$reader->query_safe('COMMIT');
maintain_at('2027-03-16Z');
is( names('log') . sql(q{SELECT to_regclass('log_2027_01')}),
	'log_2027_02 log_2027_03 log_2027_04 log_2027_05',
	'and completed, and the table dropped, which was noted before');

# A run that is killed in the middle: between two statements, and in one
$reader->query_safe('BEGIN; LOCK TABLE app.log_2027_02 IN ACCESS SHARE MODE');
($victim, $pid) = owner_session();
$victim->query_until(qr//,
	"CALL snowflake_partitions.maintain(lock_timeout => '0', at => '2027-04-16Z');\n");
kill_session($victim, $pid);
$reader->query_safe('COMMIT');
is( names('log') . sql(q{SELECT ': ', partition FROM snowflake_partitions.dropping}),
	'log_2027_02 log_2027_03 log_2027_04 log_2027_05 log_2027_06: |log_2027_02',
	'a run is killed half way');
maintain_at('2027-04-16Z');
is( names('log')
	  . sql(
		q{SELECT ': ', count(*), to_regclass('log_2027_02') FROM snowflake_partitions.dropping}),
	'log_2027_03 log_2027_04 log_2027_05 log_2027_06: |0|',
	'the next one goes on');

# A lock that a reader holds for longer than lock_timeout is tried for again.
$reader->query_safe('BEGIN; LOCK TABLE app.log_2027_03 IN ACCESS SHARE MODE');
my $run =
  start_run(q{lock_timeout => '10ms', tries => 100000, pause => '200 ms', at => '2027-05-16Z'},
	"wait_event = 'PgSleep'");
$reader->query_safe('COMMIT');
finish_statement($run);
$run->quit;
is( names('log'),
	'log_2027_04 log_2027_05 log_2027_06 log_2027_07',
	'what needs a lock is done when that is free');

# A name that is too long keeps its end.
my $long = 'x' . 'é' x 29;
sql(qq{
	DROP TABLE log;
	DELETE FROM snowflake_partitions.tables;
	CREATE TABLE "$long" (id snowflake PRIMARY KEY) PARTITION BY RANGE (id)});
look_after("\"$long\"", 'day', ahead => 2);
maintain_at('2026-12-10Z');
is( sql(qq{SELECT count(*) FROM snowflake_partitions.existing('"$long"') WHERE partition::text LIKE '%_2026_12_1_"'}
	),
	'3',
	'a long name keeps its end');

# Two runs at a time: whoever comes second finds it done.
sql(q{
	DELETE FROM snowflake_partitions.tables;
	CREATE TABLE raced (id snowflake PRIMARY KEY) PARTITION BY RANGE (id)});
look_after('raced', 'year', ahead => 1);
$reader->query_safe('BEGIN; SET LOCAL ROLE owner; '
	  . sql(q{SELECT string_agg(statement, ';') FROM snowflake_partitions.due('2026-12-10Z')}));
$run = start_run(q{at => '2026-12-10Z', lock_timeout => '0'}, "wait_event_type = 'Lock'");
$reader->query_safe('COMMIT');
finish_statement($run);
is($run->{stderr}, '', 'a run that meets another one sees no error');
$_->quit foreach $run, $reader;
is(names('raced'), 'raced_2026 raced_2027', 'nor are there two partitions of one period');

# Beside readers and writers
sql(q{
	DELETE FROM snowflake_partitions.tables;
	CREATE TABLE busy (id snowflake PRIMARY KEY DEFAULT snowflake_next(), n integer) PARTITION BY RANGE (id)}
);
look_after('busy', 'hour', ahead => 1, keep => '9 hours', old => 'drop');
sql(q{UPDATE snowflake_partitions.tables SET since = now() - interval '9 hours'});
maintain();
my $scripts = PostgreSQL::Test::Utils::tempdir();
append_to_file("$scripts/write", "INSERT INTO app.busy (n) VALUES (1);\n");
append_to_file("$scripts/read",
	"SELECT count(*) FROM app.busy WHERE @@ id >= now() - interval '1 minute';\n");
my $out = '';
my $pgbench = IPC::Run::start(
	[
		'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', 4, '-R', 400, '-T', 600, '-f',
		"$scripts/write", '-f', "$scripts/read", '-U', 'owner', 'postgres'
	],
	'<',
	\undef,
	'>&',
	\$out);
wait_for_query($node, 'SELECT count(*) > 100 FROM app.busy');
maintain("at => date_trunc('hour', now()) + interval '$_ hours'") foreach 1 .. 5;
my $before = sql('SELECT count(*) FROM busy');
wait_for_query($node, "SELECT count(*) > $before + 100 FROM app.busy");
$pgbench->signal('INT');
$pgbench->finish;
unlike($out, qr/ERROR|FATAL|aborted/, 'readers and writers see no error') or diag($out);
is( sql(q{SELECT count(*), max(upper(ids)) > snowflake_lower_bound(now() + interval '5 hours') FROM snowflake_partitions.existing('busy')}
	),
	'11|t',
	'while partitions come and go');

done_testing();
