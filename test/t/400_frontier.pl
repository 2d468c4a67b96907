# The frontier: a transaction that may still commit IDs holds it back, however it
# minted them and however it ends; nothing else does.  A prepared one does until it is
# committed or rolled back: across crashes, restarts, promotions, and changes of the layout.
# versions: all

use SnowflakeEvents;
use SnowflakeTest;
use PostgreSQL::Test::Cluster;

my $node = minting_node(
	'main',
	init => { allows_streaming => 1 },
	conf => q{
	max_prepared_transactions = 4
	snowflake.max_wait = '1min'
	snowflake.max_lead = '1s'
	restart_after_crash = on
	min_parallel_table_scan_size = 0
	parallel_setup_cost = 0
	parallel_tuple_cost = 0
	max_parallel_workers_per_gather = 2
	autovacuum = off
});

sub sql { return query($node, @_); }
sub other { return query($node, $_[0], dbname => 'other'); }

create_events($node);
sql(q{
	CREATE TABLE thousand WITH (parallel_workers = 2) AS SELECT n FROM generate_series(1, 1000) n;
	CREATE DATABASE other;
	CREATE ROLE stranger LOGIN;
	CREATE ROLE watcher LOGIN IN ROLE pg_read_all_stats;
	CREATE ROLE apart LOGIN NOINHERIT IN ROLE pg_read_all_stats;
});
other('CREATE EXTENSION snowflake');

my $first = session($node);
my $mine = $node->background_psql('postgres', on_error_stop => 0);

# How many transactions hold the frontier back.
sub holders
{
	return sql('SELECT count(*) FROM snowflake_frontier_holders()');
}

# Does the frontier reach the newest ID?
sub is_free
{
	my ($what) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(
		sql(q{SELECT (SELECT count(*) FROM snowflake_frontier_holders()), frontier = last_id, frontier_lag
			FROM snowflake_status}),
		'0|t|00:00:00',
		$what);
}

# Who holds it back can be seen.  Since when, and what that one may have minted, is for whoever may
# read its statistics.
insert($node, 'before');
is_free('nobody holds the frontier back');
my $early = $first->query_safe(q{BEGIN; INSERT INTO events (what) VALUES ('early') RETURNING id});
insert($node, 'late');
cmp_ok(sql('SELECT snowflake_frontier()'),
	'<', $early, 'the frontier lies below what is not committed yet');
is( sql(q{SELECT pid = frontier_holder AND oldest > frontier, since = xact_start,
			frontier_lag > interval '0' AND frontier_lag = last_time - snowflake_timestamp(frontier)
		FROM snowflake_status, snowflake_frontier_holders() JOIN pg_stat_activity USING (pid)}),
	't|t|t',
	'it can be seen who holds it back, since its beginning, and how far it is behind the newest ID'
);
my $holders =
  'SELECT pid IS NOT NULL, since IS NOT NULL, oldest IS NOT NULL FROM snowflake_frontier_holders()';
my %may_see = (stranger => 't|f|f', watcher => 't|t|t', apart => 't|f|f');
is(query($node, $holders, user => $_), $may_see{$_}, "what $_ learns of it")
  foreach sort keys %may_see;
is( query(
		$node,
		'BEGIN; SELECT snowflake_next() IS NOT NULL; SELECT count(*) FROM snowflake_frontier_holders() WHERE since <= now() AND oldest IS NOT NULL; COMMIT',
		user => 'stranger'),
	"t\n1",
	'what concerns oneself is for everybody');
$first->query_safe('COMMIT');
is(tail($node), 'before early late', 'then the rows come in the order of their IDs');
is_free('a commit frees it');

# What a transaction does, how many hold the frontier then, and how it ends.  Rollbacks and
# savepoints are in test/specs/frontier.spec.
my $caught =
  'BEGIN PERFORM snowflake_next(); PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN NULL; END';
my $batch = 'CURSOR %s FOR SELECT snowflake_next_batch(10000); FETCH 1 FROM c';
foreach my $case (
	[ 'SELECT snowflake_next()', 1, 'COMMIT' ],
	[ 'SELECT snowflake_next(); SELECT 1/0', 0, 'ROLLBACK' ],
	[ 'SELECT snowflake_next(); SAVEPOINT a; SELECT 1/0', 1, 'ROLLBACK TO a; COMMIT' ],
	[ "DO '$caught'", 1, 'COMMIT' ],
	[ 'DECLARE c ' . sprintf($batch, ''), 1, 'COMMIT' ],
	[ 'DECLARE c ' . sprintf($batch, 'WITH HOLD'), 1, 'COMMIT' ],
	[ 'SELECT pg_current_xact_id()', 0, 'COMMIT' ])
{
	my ($sql, $expected, $end) = @$case;

	$mine->query("BEGIN; $sql");
	is(holders(), $expected, "$sql: $expected");
	$mine->query($end);
	$mine->query('CLOSE ALL');
	is_free("$end: and then nobody");
}

# a new one, for the errors stick to the session
$mine->quit;
$mine = session($node);

# A procedure that commits: a transaction of its own each time
is( sql(q{DO $$ BEGIN PERFORM snowflake_next(); COMMIT;
			PERFORM set_config('test.holders', (SELECT count(*)::text FROM snowflake_frontier_holders()), false); END $$;
		SHOW test.holders}),
	'0',
	'a procedure frees it when it commits');

# Parallel workers mint for their leader, which does not.
foreach my $participates ('on', 'off')
{
	sql('DROP TABLE IF EXISTS copied');
	$mine->query_safe($_)
	  foreach "SET parallel_leader_participation = $participates", 'BEGIN',
	  'CREATE TABLE copied AS SELECT snowflake_next() AS id FROM thousand';
	is( $mine->query_safe(
			q{SELECT h.pid = pg_backend_pid() AND h.oldest <= (SELECT min(id) FROM copied)
				AND snowflake_frontier() < (SELECT min(id) FROM copied)
				FROM snowflake_frontier_holders() h}),
		't',
		"parallel workers hold it back by their leader, which takes part: $participates");
	sql('SELECT snowflake_next()');
	$mine->query_safe('COMMIT');
	is_free('until that commits');
	is(sql(q{SELECT count(*) FROM copied WHERE id <= snowflake_frontier()}),
		1000, 'then all they have minted is there');
}

# Other databases, and transactions of any kind that mint nothing
my $elsewhere = $node->background_psql('other');
$elsewhere->query_safe('BEGIN; SELECT snowflake_next()');
$first->query_safe('BEGIN; SELECT pg_current_xact_id()');
insert($node, 'alone');
is_free('who mints in another database holds nothing here, nor does who idles');
is(other('SELECT count(*) FROM snowflake_frontier_holders()'), 1, 'but there');
$elsewhere->query_safe('COMMIT');
$first->query_safe('COMMIT');

# Backends that are told to end, or are killed
$mine->query_safe('BEGIN; SELECT snowflake_next()');
is(holders(), 1, 'a transaction is open');
sql('SELECT pg_terminate_backend(pid) FROM snowflake_frontier_holders()');
wait_for_query($node, 'SELECT count(*) = 0 FROM snowflake_frontier_holders()');
is_free('a backend that is terminated frees it');
eval { $mine->quit };
$mine = $node->background_psql('postgres', on_error_stop => 0);
$mine->query_safe(q{BEGIN; INSERT INTO events (what) VALUES ('lost')});
my $offset = -s $node->logfile;
kill 'KILL', sql('SELECT pid FROM snowflake_frontier_holders()');
$node->wait_for_log(qr/database system is ready to accept connections/, $offset);
wait_for_mint($node);
eval { $_->quit } foreach $mine, $first, $elsewhere;
is_free('after a backend was killed, nothing is left of it');
cmp_ok(
	sql('SELECT snowflake_frontier()'),
	'>',
	sql('SELECT max(id) FROM events'),
	'and the frontier goes on above');

# A change of the node ID while a transaction is open: in this layout the node
# stands above the sequence, so the order within a tick depends on it.
foreach my $node_id (9, 3)
{
	my $theirs = $node->background_psql('other');
	my $their_id = $theirs->query_safe('BEGIN; SELECT snowflake_next()');
	$mine = session($node, 'BEGIN');

	# ahead of the clock, so that the ID is the one that the slot says
	sql(q{SELECT snowflake_advance(snowflake_upper_bound(clock_timestamp() + interval '200 ms'))});
	my $id = $mine->query_safe(q{INSERT INTO events (what) VALUES ('node changes') RETURNING id});
	change_node_id($node, $node_id);
	cmp_ok(sql('SELECT snowflake_frontier()'),
		'<', $id, "node $node_id: what is open from before holds the frontier");
	cmp_ok(other('SELECT snowflake_frontier()'),
		'<', $their_id, "node $node_id: and so it is in another database");
	insert($node, 'of the new node');
	cmp_ok(sql('SELECT snowflake_frontier()'), '<', $id, 'also when the new node ID has minted');
	$_->query_safe('COMMIT') foreach $theirs, $mine;
	$_->quit foreach $theirs, $mine;
	is_free('until it is committed');
}

# While the gate was never opened nothing is known.
$node->append_conf('postgresql.conf', 'snowflake.node_id = -1');
$node->restart;
wait_for_gate($node, 'node ID is not set');
is_deeply(
	error_of($node, q{SET statement_timeout = '10s'; SELECT snowflake_frontier()}),
	error_of($node, 'SELECT snowflake_next()'),
	'a gate that stays closed is an error at once, the same as for a mint');
is(sql('SELECT frontier IS NULL FROM snowflake_status'), 't', 'and unknown to the status');

# A transaction begins to mint before it is open.
$mine = $node->background_psql('postgres', on_error_stop => 0);
$mine->query('BEGIN; SAVEPOINT a; SELECT snowflake_next()');
$mine->query('ROLLBACK TO a');
change_node_id($node, 3);
is(sql(q{SELECT count(*) = (SELECT count(*) FROM settled) FROM events}),
	't', 'an open one lets everything from before pass, before anything is minted');
my $waited = $mine->query(q{INSERT INTO events (what) VALUES ('waited') RETURNING id});
insert($node, 'after');
cmp_ok(sql('SELECT snowflake_frontier()'),
	'<', $waited, 'a transaction that began to mint before the opening holds the frontier back');
is(sql(q{SELECT count(*) = 1 + (SELECT count(*) FROM settled) FROM events}),
	't', 'and only from there on');
$mine->query('COMMIT');
$mine->quit;

# Prepared transactions: how many hold the frontier back
sub prepared
{
	return sql('SELECT count(*) FROM snowflake_frontier_holders() WHERE pid IS NULL');
}

# Insert a row in a transaction that is prepared; returns its ID.  It has an advisory
# lock of its own, which says nothing about IDs.
sub prepare
{
	my ($name) = @_;

	return sql(
		qq{BEGIN; DO 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); END';
		INSERT INTO events (what) VALUES ('$name') RETURNING id; PREPARE TRANSACTION '$name'});
}

sql('TRUNCATE events');
insert($node, 'a');
prepare('b');
insert($node, 'c');
is(tail($node), 'a', 'a prepared transaction holds the frontier back');
is( sql(q{SELECT h.since <= p.prepared FROM snowflake_frontier_holders() h
		JOIN pg_prepared_xacts p ON p.transaction = h.prepared WHERE p.gid = 'b'}),
	't',
	'it is named by its xid');
is(sql(q{SELECT frontier < last_id AND frontier_holder IS NULL FROM snowflake_status}),
	't', 'and is nobody\'s process');
sql(q{COMMIT PREPARED 'b'});
is(tail($node) . prepared(), 'a b c0', 'until it is committed');
prepare('d');
sql(q{INSERT INTO events (what) VALUES ('e'); ROLLBACK PREPARED 'd'});
is(tail($node), 'a b c e', 'or rolled back');

# The process that is named is that of the transaction furthest back, which may have none.
my $session = session($node);
my $pid = $session->query_safe('SELECT pg_backend_pid()');
prepare('d');
$session->query_safe('BEGIN; SELECT snowflake_next()');
foreach my $case ([ 'none', 'a session that mints later is not what holds it back' ],
	[ $pid, 'one that has minted before is' ])
{
	is( sql(q{SELECT count(*), coalesce(max(frontier_holder)::text, 'none') FROM snowflake_status, snowflake_frontier_holders()}
		),
		"2|$case->[0]",
		$case->[1]);
	sql(q{ROLLBACK PREPARED 'd'});
	prepare('d');
}
$session->query_safe('COMMIT');
$session->quit;
sql(q{ROLLBACK PREPARED 'd'});

# What is prepared, and whether it is held.  The first mint may come after the command, by a
# deferred trigger; parallel workers mint for their leader; and where the gate is closed, a mint
# that was refused may have got an ID.
sql(q{CREATE TABLE minted (id bigint); CREATE TABLE deferred (id bigint);
	CREATE FUNCTION mint() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO minted VALUES (snowflake_next()); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER mint AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION mint()});
my $refused =
  q{DO 'BEGIN PERFORM snowflake_next(); EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL; END'};
foreach my $case (
	[ 'without a mint', 'SELECT pg_current_xact_id()', 0 ],
	[
		'by parallel workers', 'CREATE TABLE by_workers AS SELECT snowflake_next() FROM thousand',
		1
	],
	[ 'by a deferred trigger', 'INSERT INTO deferred VALUES (1)', 1 ],
	[ 'where nothing could be minted', $refused, 1 ])
{
	my ($name, $what, $holds) = @$case;

	change_node_id($node, -1) if $what eq $refused;
	sql("SET parallel_leader_participation = off; SET lock_timeout = '30s'; BEGIN; $what; PREPARE TRANSACTION 'x'"
	);
	is(prepared(), $holds, "PREPARE $name: held by $holds");

	# the second one does not wait for the end of the first
	sql("SET lock_timeout = '30s'; BEGIN; $what; PREPARE TRANSACTION 'y'; ROLLBACK PREPARED 'y'")
	  if $what eq $refused;
	sql(q{ROLLBACK PREPARED 'x'});
	is(prepared(), 0, 'and then by nobody');
}
change_node_id($node, 1);
refuses($node, q{BEGIN; CREATE TEMP TABLE x (); SELECT snowflake_next(); PREPARE TRANSACTION 'x'},
	'0A000', 'what cannot be prepared');
is(prepared(), 0, 'holds nothing');

# A standby takes over, or the server crashes or restarts; another database has
# one too, which does not count here.
my $f = prepare('f');
other(q{BEGIN; SELECT snowflake_next(); PREPARE TRANSACTION 'other'});
insert($node, 'g');
my $g = prepare('h');
insert($node, 'i');
my $held = sql('SELECT snowflake_frontier()');
$node->backup('base');

foreach my $how ('immediate', 'fast')
{
	restart_node($node, $how);
	is(sql('SELECT snowflake_frontier()'), $held, "after stop $how the frontier is where it was");
	is( sql(q{SELECT string_agg(p.gid, ' ' ORDER BY h.oldest), count(h.since) FROM snowflake_frontier_holders() h
			JOIN pg_prepared_xacts p ON p.transaction = h.prepared}),
		'f h|0',
		'both are known, by their xids, but not when they began');
}

# The first who asks after a start may be another PREPARE.
$node->restart;
prepare('j');
is(sql('SELECT count(*), count(since) FROM snowflake_frontier_holders() WHERE pid IS NULL'),
	'3|1', 'a PREPARE that comes first does not hide the others');
sql(q{ROLLBACK PREPARED 'j'});

# Another layout: what is held is an ID.
$node->append_conf('postgresql.conf',
	q{snowflake.layout = 'time:42 node:10 sequence:11 epoch:2010-11-04T01:42:54.657Z'});
$node->restart;
is(sql('SELECT snowflake_accept_layout()'), '', 'the layout is another one');
is(prepared(), 2, 'they still hold');
cmp_ok(sql('SELECT snowflake_frontier()'), '<', $f, 'below their IDs');
sql(q{COMMIT PREPARED 'f'});
cmp_ok(sql('SELECT snowflake_frontier()'), '<', $g, 'one is left');
sql(q{COMMIT PREPARED 'h'});
is(prepared(), 0, 'none is left');
$node->stop;

# A standby that is promoted
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base');
$standby->set_standby_mode;
$standby->start;
foreach my $call ('snowflake_frontier()', 'snowflake_frontier_holders()')
{
	refuses(
		$standby, "SET snowflake.max_wait = 0; SELECT $call",
		'25006',
		"a standby refuses $call, as nextval() is refused",
		message => qr/^cannot execute \Q$call\E during recovery$/);
}
$standby->promote;
wait_for_mint($standby);
$node = $standby;
is(tail($node), 'a b c e', 'a promoted standby knows the prepared transactions');
is(sql('SELECT snowflake_frontier()'), $held, 'and how far the frontier is');
sql(q{COMMIT PREPARED 'f'; COMMIT PREPARED 'h'});
is(tail($node), 'a b c e f g h i', 'both are committed');

# More than there is room for, one after the other, while nobody asks for the frontier
sql(join '',
	map { "BEGIN; SELECT snowflake_next(); PREPARE TRANSACTION 'n$_'; COMMIT PREPARED 'n$_';\n" }
	  1 .. 400);
pass('what has ended makes room for others');

done_testing();
