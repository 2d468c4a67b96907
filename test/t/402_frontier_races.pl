# The moments at which the frontier could pass a row, forced by injection points:
# between a mint and the end of its statement, between the snapshot of a statement, the
# frontier and the later snapshot, while a commit waits for a synchronous standby,
# while a transaction is being prepared, and when parallel workers mint first.

use lib 'test/perl';
use SnowflakeEvents;
use SnowflakeTest;

my $node = minting_node(
	'main',
	init => { allows_streaming => 1 },
	conf => q{
	snowflake.max_wait = '5min'
	snowflake.reservation = '10min'
	max_prepared_transactions = 5
	autovacuum = off
});

sub sql { return query($node, @_); }

create_events($node);

sub finish
{
	my ($session) = @_;
	my $output = finish_statement($session);

	$session->quit;
	return $output;
}

# Until so many processes of a kind wait for it; one client if that is not said
sub wait_for_event
{
	my ($event, $number, $kind) = @_;

	$number //= 1;
	$kind //= 'client backend';
	wait_for_query($node,
		"SELECT count(*) = $number FROM pg_stat_activity WHERE wait_event = '$event' AND backend_type = '$kind'"
	);
	return;
}

# A commit that waits for its standby is not visible, and may be for long.  Enough is
# reserved meanwhile, for the keeper's own commits would wait as well.
insert($node, 'before');
sql(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
$node->reload;
wait_until(
	'commits wait for a standby',
	sub {
		my ($rc, $out, $err) = $node->psql('postgres',
			q{SET statement_timeout = '100ms'; DO $$ BEGIN PERFORM pg_logical_emit_message(true, 'a', 'commit'); COMMIT; END $$}
		);
		return $err =~ /canceling wait for synchronous replication/;
	});
my $writer = start_statement($node, q{INSERT INTO events (what) VALUES ('waits')});
wait_for_event('SyncRep');
sql(q{SET synchronous_commit = local; INSERT INTO events (what) VALUES ('after')});
is(sql(q{SELECT string_agg(what, ' ' ORDER BY id) FROM events}),
	'before after', 'a commit that waits for its standby is not visible, a later one is');
is(tail($node), 'before', 'the frontier does not pass it');
my $preparer =
  start_statement($node,
	q{BEGIN; INSERT INTO events (what) VALUES ('prepared'); PREPARE TRANSACTION 'p'});
wait_for_event('SyncRep', 2);
is(sql(q{SELECT count(*) FROM snowflake_frontier_holders()}),
	'3', 'while it is being prepared, a transaction holds twice');
sql(q{ALTER SYSTEM RESET synchronous_standby_names});
$node->reload;
finish($writer);
finish($preparer);
is(tail($node), 'before waits after', 'when it is over, the row is there');
sql(q{COMMIT PREPARED 'p'});
is(tail($node), 'before waits after prepared', 'and so is what was prepared');

if (!has_injection_points($node))
{
	note 'the server has no injection points, or the extension of that name is not installed';
	done_testing();
	exit;
}

sub attach
{
	my ($point) = @_;

	sql("SELECT injection_points_attach('$point', 'wait')");
	return;
}

sub release
{
	my ($point) = @_;

	sql("SELECT injection_points_detach('$point'), injection_points_wakeup('$point')");
	return;
}

# Around the compare-and-swap: if what stands still has its ID, nothing later is delivered yet.
foreach my $point ('snowflake-mint', 'snowflake-mint-locked', 'snowflake-minted')
{
	sql('TRUNCATE events');
	attach($point);
	my $mint = start_statement($node, "INSERT INTO events (what) VALUES ('$point')");
	wait_for_event($point);
	sql("SELECT injection_points_detach('$point')");
	is( sql('SELECT frontier_holder IS NOT NULL FROM snowflake_status'),
		$point eq 'snowflake-minted' ? 't' : 'f',
		"$point: who has no ID yet holds nothing back");
	insert($node, 'overtakes');
	is(sql(q{SELECT count(*) FROM snowflake_frontier_holders()}), 1, "$point: the slot is filled");
	my $delivered = tail($node);
	sql("SELECT injection_points_wakeup('$point')");
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
	attach($point);
	my $reader = start_statement($node, $reading);
	wait_for_event($point);
	my $early = open_row($node, 'early');
	insert($node, 'late');
	$open->query_safe('COMMIT');
	release($point);
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
attach('snowflake-frontier');
my $asking = start_statement($node, $reading);
wait_for_event('snowflake-frontier');
my $meanwhile = open_row($node, 'meanwhile');
insert($node, 'late');
release('snowflake-frontier');
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
attach('snowflake-frontier');
my $reader = start_statement($node, $reading);
wait_for_event('snowflake-frontier');
$moving->query_safe(q{PREPARE TRANSACTION 'moving'});
$moving->quit;
release('snowflake-frontier');
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
	attach('snowflake-snapshot');
	my $asking = start_statement($node, 'SELECT snowflake_frontier()');
	wait_for_event('snowflake-snapshot');
	sql(q{SELECT injection_points_detach('snowflake-snapshot')});
	my $open = open_row($node, 'open');
	insert($node, 'visible');
	my $old = session($node, "BEGIN ISOLATION LEVEL $level; DECLARE c CURSOR FOR $reading");
	$open->query_safe('COMMIT');
	sql(q{SELECT injection_points_wakeup('snowflake-snapshot')});
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
wait_for_event('snowflake-hold', 2, 'parallel worker');
my $minted = sql('SELECT minted FROM snowflake_stats');
sql(q{SELECT injection_points_wakeup('snowflake-hold')});
wait_for_query($node, "SELECT minted > $minted FROM snowflake_stats");
wait_for_event('snowflake-hold', 1, 'parallel worker');
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
