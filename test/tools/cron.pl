# pg_cron runs snowflake_partitions.maintain(), by the statement of doc/partitions.md.

use SnowflakeTest;

my $doc = 'doc';
my ($schedule) = slurp_file("$doc/partitions.md") =~ /^(SELECT cron\.schedule\(.*?;)$/ms;
my $node = new_node('main',
	conf =>
	  "shared_preload_libraries = 'pg_cron, snowflake'\ncron.use_background_workers = on\nmax_worker_processes = 20\n"
);

$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE ROLE owner LOGIN;
	CREATE EXTENSION snowflake;
	CREATE EXTENSION pg_cron;
	GRANT USAGE ON SCHEMA cron TO owner;
	GRANT CREATE ON DATABASE postgres TO owner;
	CREATE SCHEMA app AUTHORIZATION owner;
});
wait_for_mint($node);

# as the owner of the table
sub sql
{
	my ($sql) = @_;

	return $node->safe_psql(
		'postgres',
		"SET search_path = app, public; $sql",
		connstr => $node->connstr('postgres') . ' user=owner');
}

sql(q{
	CREATE EXTENSION snowflake_partitions;
	CREATE TABLE log (id snowflake PRIMARY KEY DEFAULT snowflake_next()) PARTITION BY RANGE (id);
	CREATE TABLE past PARTITION OF log FOR VALUES FROM (MINVALUE) TO (snowflake_lower_bound('2020-01-01Z'));
	INSERT INTO snowflake_partitions.tables (parent, period, time_zone, ahead, keep, old) VALUES ('log', 'month', 'UTC', 2, '1 year', 'drop')}
);

# that is once an hour: once a minute is enough for a test
$schedule =~ s/'17 \* \* \* \*'/'* * * * *'/ or die 'the page has another schedule';
sql($schedule);
$node->poll_query_until('postgres',
	q{SELECT count(*) > 0 FROM cron.job_run_details WHERE status IN ('succeeded', 'failed')})
  for 1 .. 2;
is( $node->safe_psql(
		'postgres',
		'SELECT DISTINCT status, return_message FROM cron.job_run_details WHERE end_time IS NOT NULL'
	),
	'succeeded|CALL',
	'the job runs');
is(sql(q{SELECT count(*), to_regclass('past') FROM snowflake_partitions.existing('log')}),
	'3|', 'it makes partitions, and detaches and drops others');

# What cannot be done is an error that pg_cron records: a row of the default partition,
# which is not to be moved, is in the way of the partition of a period that is due.
sql(q{
	CREATE TABLE log_rest PARTITION OF log DEFAULT;
	INSERT INTO log SELECT snowflake_lower_bound(now() + interval '1 year');
	UPDATE snowflake_partitions.tables SET ahead = 13});
$node->poll_query_until('postgres',
	q{SELECT count(*) > 0 FROM cron.job_run_details WHERE status = 'failed'})
  for 1 .. 2;
like(
	$node->safe_psql(
		'postgres',
		q{SELECT DISTINCT return_message FROM cron.job_run_details WHERE status = 'failed'}),
	qr/1 of the steps that are due failed/,
	'a failed step is recorded');

$node->stop;
done_testing();
