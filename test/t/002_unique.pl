# Eight connections to two databases mint 240,000 IDs at once, three of them in the workers of
# parallel queries.  No ID occurs twice, IDs follow the order of the calls, and the time in them is
# that of the call, or ahead by no more than max_lead.

use SnowflakeTest;
use IPC::Run;

my $per_session = 30_000;
my $max_lead = '5 milliseconds';
my $dir = PostgreSQL::Test::Utils::tempdir();

# So few sequence numbers that any machine runs out of them: the lead holds minters back.
my $node = minting_node(
	'main', conf => q{
	snowflake.max_lead = '5ms'
	snowflake.layout = 'time:41 worker:15 sequence:7 epoch:2020-01-01T00:00:00Z'
	max_worker_processes = 20
	max_parallel_workers = 12
	work_mem = '64MB'
	autovacuum = off
	max_wal_size = '4GB'
});
query($node, 'CREATE DATABASE other');
query($node, 'CREATE EXTENSION snowflake', dbname => 'other');
foreach my $database ('postgres', 'other')
{
	query(
		$node,
		"CREATE TABLE source AS SELECT generate_series(1, $per_session) AS n; ANALYZE source",
		dbname => $database);
}

# Three of the sessions mint in parallel workers.  The leader takes no part.
my %parallel = (2 => 1, 5 => 1, 8 => 1);

# Every row has the clock before and after its own call, so the time and the order are checked call
# by call.  The columns are evaluated from left to right.  The two readings of the
# clock must differ as expressions, because a Gather node takes what it
# finds twice in its workers' output from the first of them.
sub session_sql
{
	my ($session) = @_;
	my $columns =
	  "$session AS session, n, clock_timestamp() AS before, snowflake_next() AS id, clock_timestamp() + interval '0' AS after";
	my $minted = "UNLOGGED TABLE minted_$session";

	return "SELECT pg_advisory_lock_shared(1);\n" . (
		$parallel{$session}
		? qq{
		SET max_parallel_workers_per_gather = 4;
		SET parallel_setup_cost = 0;
		SET parallel_tuple_cost = 0;
		SET min_parallel_table_scan_size = 0;
		SET parallel_leader_participation = off;
		EXPLAIN (ANALYZE, COSTS OFF, VERBOSE) CREATE $minted AS SELECT $columns FROM source;
		}
		: "CREATE $minted AS SELECT $columns FROM generate_series(1, $per_session) n;\n"
	) . "COPY minted_$session TO '$dir/minted.$session';\n";
}

# All of them wait for a lock (one in each database), so that they start together.
my @gates = map { $node->background_psql($_) } ('postgres', 'other');
$_->query_safe('SELECT pg_advisory_lock(1)') foreach @gates;
my @sessions;
foreach my $session (1 .. 8)
{
	append_to_file("$dir/in.$session", session_sql($session));
	push @sessions,
	  IPC::Run::start(
		[
			'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/in.$session",
			'-d', $node->connstr($session % 2 ? 'postgres' : 'other')
		],
		'>',
		"$dir/out.$session");
}
wait_for_query($node,
	q{SELECT count(*) = 8 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
$_->quit foreach @gates;
query($node,
	'CREATE UNLOGGED TABLE minted (session int, n int, before timestamptz, id snowflake, after timestamptz)'
);
foreach my $session (1 .. 8)
{
	ok($sessions[ $session - 1 ]->finish, "session $session mints without an error");
	query($node, "COPY minted FROM '$dir/minted.$session'");
}

# If one call returned before another started, its ID is the smaller one.
# Seen in the order of IDs: no call returned before a call with a smaller ID
# had started.
is( query(
		$node, qq{
		SELECT count(*), max(at - after) > interval '$max_lead' - interval '2 ms',
			   count(*) FILTER (WHERE id = previous),
			   count(*) FILTER (WHERE after < latest_start),
			   count(*) FILTER (WHERE at < before - interval '1 ms'),
			   count(*) FILTER (WHERE at > after + interval '$max_lead' + interval '1 ms')
		  FROM (SELECT id, before, after, snowflake_timestamp(id) AS at,
					   lag(id) OVER in_order AS previous,
					   max(before) OVER in_order AS latest_start
				  FROM minted
				WINDOW in_order AS (ORDER BY id::bigint ROWS UNBOUNDED PRECEDING)) AS ordered}),
	8 * $per_session . '|t|0|0|0|0',
	'all are distinct, in the order of the calls, none older than its call, none ahead by more than max_lead, which is reached'
);
like(
	slurp_file("$dir/out.$_"),
	qr/Workers Launched: [1-9].*Parallel Seq Scan.*\n +Output: .*snowflake_next\(\)/s,
	"session $_: parallel workers minted") foreach sort keys %parallel;

done_testing();
