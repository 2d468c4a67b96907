# The moments at which the frontier could pass a row, forced by injection points:
# between a mint and the end of its statement, between the snapshot of a statement, the
# frontier and the later snapshot, while a transaction is being prepared, and when parallel
# workers mint first.

use SnowflakeEvents;
use SnowflakeRaces;
use SnowflakeTest;

my ($node) =
  races_node(
	conf => "snowflake.max_wait = '5min'\nmax_prepared_transactions = 5\nautovacuum = off\n");

sub sql { return query($node, @_); }

create_events($node);

sub finish
{
	my ($session) = @_;
	my $output = finish_statement($session);

	$session->quit;
	return $output;
}

# Around the compare-and-swap: if what stands still has its ID, nothing later is delivered yet.
foreach my $point ('snowflake-mint', 'snowflake-mint-locked', 'snowflake-minted')
{
	sql('TRUNCATE events');
	my $mint = stop_at($point, "INSERT INTO events (what) VALUES ('$point')");
	is( sql('SELECT frontier_holder IS NOT NULL FROM snowflake_status'),
		$point eq 'snowflake-minted' ? 't' : 'f',
		"$point: who has no ID yet holds nothing back");
	insert($node, 'overtakes');
	is(sql(q{SELECT count(*) FROM snowflake_frontier_holders()}), 1, "$point: the slot is filled");
	my $delivered = tail($node);
	wake_all($point);
	finish($mint);
	like(sql(q{SELECT string_agg(what, ' ' ORDER BY id) FROM events}),
		qr/^$delivered/, 'what was delivered before comes first');
}

# A statement that has its snapshot, and is stopped while it asks.  The planner does not
# ask for this one.
my $reading = q{SELECT 'read: [' || coalesce(string_agg(what, ' ' ORDER BY id), '') || ']'
	FROM (SELECT snowflake_frontier() AS up_to OFFSET 0) f, events WHERE id <= up_to};

foreach my $point ('snowflake-snapshot', 'snowflake-frontier', 'snowflake-frontier-computed')
{
	sql('TRUNCATE events');
	insert($node, 'first');
	is(tail($node), 'first', "$point: a first row, with a sample for the reader");
	my $open = open_row($node, 'open');
	insert($node, 'visible');
	my $reader = stop_at($point, $reading);
	my $early = open_row($node, 'early');
	insert($node, 'late');
	$open->query_safe('COMMIT');
	wake_all($point);
	like(
		finish($reader),
		qr/^read: \[first\]$/m,
		"$point: what the snapshot does not see is not passed");
	$early->query_safe('COMMIT');
	is(tail($node), 'first open visible early late', "$point: to the end");
	$_->quit foreach $open, $early;
}

# Nobody holds the frontier back when a reader looks at the slots.  Who mints meanwhile is not
# passed by what that reader has found, whoever uses it later.
sql('TRUNCATE events');
insert($node, 'first');
my $asking = stop_at('snowflake-frontier', $reading);
my $meanwhile = open_row($node, 'meanwhile');
insert($node, 'late');
wake_all('snowflake-frontier');
finish_statement($asking);
like(
	$asking->query_safe($reading),
	qr/^read: \[first\]$/m,
	'who mints while the slots are read is not passed by the reader');
$asking->quit;
sql('SELECT pg_current_xact_id()') foreach 1 .. 2;
is(tail($node), 'first', 'nor by another one');
$meanwhile->query_safe('COMMIT');
$meanwhile->quit;
is(tail($node), 'first meanwhile late', 'and its row comes in order');

# A transaction that is prepared while a reader looks at the slots
sql('TRUNCATE events');
my $moving = open_row($node, 'moving');
insert($node, 'late');
my $reader = stop_at('snowflake-frontier', $reading);
$moving->query_safe(q{PREPARE TRANSACTION 'moving'});
$moving->quit;
wake_all('snowflake-frontier');
like(
	finish($reader),
	qr/^read: \[\]$/m,
	'a transaction that leaves its slot to be prepared is not overlooked');
sql(q{COMMIT PREPARED 'moving'});
is(tail($node), 'moving late', 'and its row comes first');

# A sample must be told by numbers that were read after it was computed: one who asks
# stands still before it computes, and publishes what it has for others.
sql('TRUNCATE events');
foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	my $asking = stop_at('snowflake-snapshot', 'SELECT snowflake_frontier()');
	my $open = open_row($node, 'open');
	insert($node, 'visible');
	my $old = session($node, "BEGIN ISOLATION LEVEL $level; DECLARE c CURSOR FOR $reading");
	$open->query_safe('COMMIT');
	wake_all('snowflake-snapshot');
	finish($asking);
	is($old->query_safe('FETCH c'),
		'read: []', "$level: a sample that others took later does not count");
	$old->query_safe('COMMIT');
	is(tail($node), 'open visible', "$level: then both rows come");
	$_->quit foreach $open, $old;
	sql('TRUNCATE events');
}

# Two parallel workers are about to fill the slot of their leader: the first one's
# stays.
sql(q{CREATE TABLE thousand AS SELECT n FROM generate_series(1, 1000) n;
	ALTER TABLE thousand SET (parallel_workers = 2)});
attach('snowflake-hold');
my $leader = session(
	$node,
	q{
	SET min_parallel_table_scan_size = 0;
	SET parallel_setup_cost = 0;
	SET parallel_tuple_cost = 0;
	SET parallel_leader_participation = off;
	BEGIN});
start_statement($leader, 'CREATE TABLE copied AS SELECT snowflake_next() AS id FROM thousand');
my $worker = q{backend_type = 'parallel worker'};
wait_until('two workers are there', sub { waiting($worker, 'snowflake-hold') == 2 });
my $minted = sql('SELECT minted FROM snowflake_stats');
sql(q{SELECT injection_points_wakeup('snowflake-hold')});
wait_for_query($node, "SELECT minted > $minted FROM snowflake_stats");
wait_until('one is left', sub { waiting($worker, 'snowflake-hold') == 1 });
my $before = sql('SELECT snowflake_next()');
release('snowflake-hold');
finish_statement($leader);
cmp_ok(sql('SELECT snowflake_frontier()'),
	'<', $before, 'who comes second to the slot of its leader leaves what the first has filled');
$leader->query_safe('COMMIT');
cmp_ok(sql("SELECT count(*) FROM copied WHERE id < $before"),
	'>', 0, 'the first one has minted by then');
$leader->quit;

done_testing();
