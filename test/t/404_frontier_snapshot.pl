# The frontier belongs to the snapshot of the statement that asks for it: whatever the form of
# the statement, and whichever earlier frontiers are known, it does not pass a row that is
# committed after its snapshot was taken; and one snapshot gets one answer.
# versions: all

use SnowflakeEvents qw(create_events open_row);
use SnowflakeTest;

my $node = minting_node(
	'main',
	init => { allows_streaming => 1 },
	conf => q{
	snowflake.max_wait = '1min'
	snowflake.reservation = '10min'
	autovacuum = off
	max_prepared_transactions = 2
});

# In one session, for a new one costs more than all that it does here.
my $session = session($node);
sub sql { return $session->query_safe(@_); }

create_events($node);
query($node, 'CREATE DATABASE other');
sub other { return query($node, $_[0], dbname => 'other'); }
other('CREATE EXTENSION snowflake');
sql(q{
	CREATE FUNCTION in_a_loop(after bigint) RETURNS text STABLE LANGUAGE plpgsql AS $$
		DECLARE e events; found text;
		BEGIN
			FOR e IN SELECT * FROM settled WHERE id > after ORDER BY id LOOP
				found := concat_ws(' ', found, e.what);
			END LOOP;
			RETURN found;
		END $$;
	CREATE PROCEDURE with_commits(after bigint, INOUT result text) LANGUAGE plpgsql AS $$
		DECLARE more text;
		BEGIN
			FOR i IN 1 .. 2 LOOP
				SELECT string_agg(what, ' ' ORDER BY id) INTO more
					FROM (SELECT pg_advisory_lock_shared(1) OFFSET 0) l, settled WHERE id > after;
				result := result || i || ': ' || coalesce(more, '') || ' ';
				COMMIT;
			END LOOP;
		END $$;
	CREATE TABLE many AS SELECT snowflake_next() AS id FROM generate_series(1, 10000);
	ALTER TABLE many SET (parallel_workers = 2);
});

# The position from which to read on, beyond all rows of before; the next ones are numbered anew.
my $round = 0;

sub new_round
{
	$round++;
	return sql('SELECT snowflake_next()');
}

sub insert
{
	my ($what) = @_;

	sql("INSERT INTO events (what) VALUES ('$what')");
	return;
}

# A row is minted first and still uncommitted, another one is minted later and
# visible: nobody may deliver the later one before the snapshot has the first.
sub open_rows
{
	my $writer = session($node,
		"BEGIN; INSERT INTO events (what) VALUES ('early$round'); DO 'BEGIN PERFORM pg_advisory_lock(1); END'"
	);

	insert("later$round");
	return $writer;
}

# The first row is committed, and whoever waits for the lock goes on.
sub commit_row
{
	my ($writer) = @_;

	$writer->query_safe('COMMIT');

	# another sample for all, and a newer row
	sql("INSERT INTO events (what) VALUES ('last$round') RETURNING snowflake_frontier()");
	$writer->query_safe('SELECT pg_advisory_unlock(1)');
	$writer->quit;
	return;
}

sub wait_for_lock
{
	wait_for_query($node,
		q{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'});
	return;
}

my $wait = '(SELECT pg_advisory_lock_shared(1) OFFSET 0) l';
my $found = q{'found: [' || coalesce(string_agg(what, ' ' ORDER BY id), '') || ']'};

# Statements that wait after they have their snapshot, then ask.  $1 stands for
# the position.
my $above = 'events WHERE id > $1 AND';
my %statement = (
	'a view' => "SELECT $found FROM $wait, settled WHERE id > \$1",
	'a subquery' => "SELECT $found FROM $wait, $above id <= (SELECT snowflake_frontier())",
	'the same snapshot twice' =>
	  "SELECT $found FROM (SELECT snowflake_frontier() AS before, pg_advisory_lock_shared(1) OFFSET 0) l,
		$above (id <= snowflake_frontier() OR before IS DISTINCT FROM snowflake_frontier())",
	'a function' => "SELECT 'found: [' || coalesce(in_a_loop(\$1), '') || ']' FROM $wait");

# A view stands for all in other forms.  Transactions that keep one snapshot are in
# test/specs/frontier.spec.
foreach my $name (sort keys %statement)
{
	foreach my $form ('', $name eq 'a view' ? ('prepared', 'in a cursor') : ())
	{
		my $after = new_round();
		my $writer = open_rows();
		my $statement = $statement{$name} =~ s/\$1/$after/gr;
		my ($prepare, $first) =
		  $form eq 'prepared'
		  ? (
			"SET plan_cache_mode = force_generic_plan; PREPARE p(bigint) AS $statement{$name}",
			"EXECUTE p($after)")
		  : $form eq 'in a cursor' ? ("BEGIN; DECLARE c CURSOR FOR $statement", 'FETCH c')
		  : ('SELECT', $statement);
		my $reader = start_statement(session($node, $prepare), $first);

		wait_for_lock();
		commit_row($writer);
		is(finish_statement($reader),
			"found: []\n", "$name, $form: nothing passes what the snapshot does not see");
		$reader->query_safe('SELECT pg_advisory_unlock_all()');
		$reader->quit;
		is( sql($statement),
			"found: [early$round later$round last$round]",
			"$name, $form: the next one has it all");
		sql('SELECT pg_advisory_unlock_all()');
	}
}

# A snapshot of another session, and one as a logical slot exports it: that has the next
# transaction ID for its xmax, above those that are in progress, and so may be older than a sample
# with a smaller one.
foreach my $from ('another session', 'a slot')
{
	my $after = new_round();
	my $writer = open_rows();
	my $idle = session($node, 'BEGIN');
	my $xid = $idle->query_safe('SELECT pg_current_xact_id()');
	my $exporter = session($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
	my $snapshot = $exporter->query_safe('SELECT pg_export_snapshot()');
	my $file = $node->data_dir . "/pg_snapshots/$snapshot";

	if ($from eq 'a slot')
	{
		my $content = slurp_file($file);

		$content =~ s/^xmax:\d+$/'xmax:' . ($xid + 1)/me;
		$content =~ s/^xcnt:(\d+)$/'xcnt:' . ($1 + 1) . "\nxip:$xid"/me;
		unlink $file;
		append_to_file($file, $content);
	}
	$writer->query_safe('COMMIT');
	my $reader =
	  session($node, "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'");
	is( $reader->query_safe("SELECT $found FROM events WHERE id > $after"),
		"found: [later$round]",
		"a snapshot of $from has the later row alone");
	is($reader->query_safe("SELECT $found FROM settled WHERE id > $after"),
		'found: []', 'nothing passes what it does not see');
	$reader->query_safe('COMMIT');
	is( $reader->query_safe("SELECT $found FROM settled WHERE id > $after"),
		"found: [early$round later$round]",
		"one of the session's own has it all");
	$_->quit foreach $reader, $exporter, $idle, $writer;
}

# A procedure that commits has a snapshot for each statement.
my $after = new_round();
my $writer = open_rows();
my $caller = start_statement($node, "CALL with_commits($after, '')");
wait_for_lock();
commit_row($writer);
like(
	finish_statement($caller),
	qr/^1:  2: early$round later$round last$round/m,
	'a procedure that commits: nothing first, then all');
$caller->quit;

# The statements of one transaction have a frontier each, however alike their snapshots are:
# all begin with an old transaction that mints nothing, and some have the same end, or as many
# transactions in between.
$after = new_round();
my @others = (
	session($node, 'BEGIN; SELECT pg_current_xact_id()'),
	session($node, "BEGIN; INSERT INTO events (what) VALUES ('early')"));
insert('later');
my $reader = session($node, 'BEGIN');
my $read = "SELECT $found FROM settled WHERE id > $after";
is($reader->query_safe($read), 'found: []', 'statements of a transaction: the first has nothing');
$others[1]->query_safe('COMMIT');
is( $reader->query_safe($read),
	'found: [early later]',
	'one that was in between has ended: the next one has its row');
push @others, session($node, 'BEGIN; SELECT pg_current_xact_id()');
insert('last');
is( $reader->query_safe($read),
	'found: [early later last]',
	'another one has begun, so that as many are in progress: there is more');
$others[2]->query_safe('COMMIT; BEGIN; SELECT pg_current_xact_id()');
insert('more');
is( $reader->query_safe($read),
	'found: [early later last more]',
	'one has ended, and one has begun: there is more');
$_->quit foreach @others, $reader;

# Parallel plans: the leader asks, and a worker must not.
my $parallel =
  q{SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;};
like(
	sql("$parallel EXPLAIN (COSTS OFF) SELECT count(*) FROM many WHERE id <= (SELECT snowflake_frontier())"
	),
	qr/InitPlan.*Parallel Seq Scan/s,
	'a subquery keeps a scan parallel');
sql(q{CREATE FUNCTION mislabelled() RETURNS bigint STABLE PARALLEL SAFE LANGUAGE plpgsql AS 'BEGIN RETURN snowflake_frontier(); END'}
);
refuses(
	$node,
	"$parallel SET parallel_leader_participation = off; SELECT count(*) FROM many WHERE id <= mislabelled()",
	'25000',
	'and refuse if they are',
	message => qr/^cannot execute snowflake_frontier\(\) in a parallel worker$/);

# Which earlier frontiers count for a snapshot that is older than the frontier computed just now.
# The planner does not ask for this.
my $reading =
  "SELECT $found FROM (SELECT snowflake_frontier() AS up_to OFFSET 0) f, events WHERE id <= up_to";

# A session that has taken a snapshot and asks later
sub snapshot
{
	my ($level) = @_;

	return session($node, "BEGIN ISOLATION LEVEL $level; DECLARE c CURSOR FOR $reading");
}

# Who asks first has what the keeper has published when it opened the gate.
sql('TRUNCATE events');
insert('a');
$session->quit;
$node->restart;
wait_for_mint($node);
$session = session($node);
insert('b');

foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	my $first = snapshot($level);

	insert('c');
	like(
		$first->query_safe('FETCH c'),
		qr/^found: \[a/,
		"$level: who asks first, by a snapshot that is not the newest, knows what was there when the gate opened"
	);
	$first->quit;
}

# A sample whose xmax is that of the snapshot may be later: the transaction that has
# ended in between had a smaller ID.  Nor is a later one for a snapshot whose xmax is smaller, though
# all transactions in progress that it knows of are still in progress: one that had minted got its
# transaction ID after it.
foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	foreach my $xmax ('the same', 'a smaller')
	{
		sql('TRUNCATE events');
		my $open = session($node, 'BEGIN');
		my $early = $open->query_safe('SELECT snowflake_next()');
		my $insert = "INSERT INTO events VALUES ($early, 'early')";

		$open->query_safe($insert) if $xmax eq 'the same';
		insert('visible');
		my $old = snapshot($level);
		$open->query_safe($insert) if $xmax ne 'the same';
		$open->query_safe('COMMIT');
		is( sql("SELECT $found FROM settled"),
			'found: [early visible]',
			"$level: others are told a later frontier") if $xmax eq 'the same';
		is($old->query_safe('FETCH c'),
			'found: []', "$level: which is not for a snapshot with $xmax xmax");
		$old->query_safe('COMMIT');
		is( $old->query_safe($reading),
			'found: [early visible]',
			"$level: the session's next one has both rows");
		$_->quit foreach $old, $open;
	}
}

# One of another database says nothing here, though it is earlier.
sql('TRUNCATE events');
insert('first');
sql('SELECT snowflake_frontier()');
my $open = open_row($node, 'open');
insert('visible');
other('SELECT snowflake_frontier()');
sql('SELECT pg_current_xact_id()');
my $old = snapshot('REPEATABLE READ');
sql('SELECT pg_current_xact_id()');
like(
	$old->query_safe('FETCH c'),
	qr/^found: \[(?:first)?\]$/,
	'a sample of another database does not count');
$open->query_safe('COMMIT');
$_->quit foreach $old, $open;

# What the keeper publishes when it opens the gate anew passes nobody who is in between.
my $node_id = 1;
foreach my $kind ('runs', 'is prepared')
{
	sql('TRUNCATE events');
	$open = open_row($node, 'open');
	insert('visible');
	$open->query_safe(q{PREPARE TRANSACTION 'open'}) if $kind eq 'is prepared';
	$node_id++;
	change_node_id($node, $node_id);
	sql('SELECT pg_current_xact_id()') foreach 1 .. 2;
	is(sql($reading), 'found: []', "another node ID while a transaction $kind: that is not passed");
	$open->query_safe($kind eq 'runs' ? 'COMMIT' : q{COMMIT PREPARED 'open'});
	$open->quit;
	is(sql($reading), 'found: [open visible]', 'until it has ended');
}

# One answer for a snapshot, though a larger one would be right as well: one who has
# minted and has no transaction ID ends, which no snapshot shows.
sql('TRUNCATE events');
insert('first');
my $minter = session($node, 'BEGIN; SELECT snowflake_next()');
insert('second');
my $reader_session = session($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
my $answer = $reader_session->query_safe('SELECT snowflake_frontier()');
$minter->query_safe('COMMIT');
is($reader_session->query_safe('SELECT snowflake_frontier()'),
	$answer, 'a snapshot has one frontier');
is($reader_session->query_safe($reading), 'found: [first]', 'whatever else would be right');
$reader_session->query_safe('COMMIT; BEGIN');
cmp_ok($reader_session->query_safe('SELECT snowflake_frontier()'),
	'>', $answer, 'and the next transaction has another');
is($reader_session->query_safe($reading), 'found: [first second]', 'with all rows');
$reader_session->query_safe('COMMIT');
$_->quit foreach $minter, $reader_session;

# What a session has computed itself counts for its later snapshots, where what it has
# published does not: they have the same xmax.
sql('TRUNCATE events');
my $idle = session($node, 'BEGIN; SELECT pg_current_xact_id()');
insert('first');
my $poller = session($node, 'SELECT snowflake_frontier()');
$poller->query_safe("BEGIN; DECLARE c CURSOR FOR $reading");
$idle->query_safe('COMMIT');
is( $poller->query_safe('FETCH c'),
	'found: [first]',
	'a session remembers the frontier that it has computed before');
$_->quit foreach $idle, $poller;

# A commit that waits for its standby is not visible, and may be for long.  Enough is reserved
# meanwhile, for the keeper's own commits would wait as well.
sql('TRUNCATE events');
insert('before');
set_conf($node, synchronous_standby_names => 'nobody');
query($node, 'CHECKPOINT');    # commits wait when the checkpointer has read it, too
my @waiting;
foreach my $commits (q{INSERT INTO events (what) VALUES ('waits')},
	q{BEGIN; INSERT INTO events (what) VALUES ('prepared'); PREPARE TRANSACTION 'waits'})
{
	push @waiting, start_statement($node, $commits);
	wait_for_query($node,
		"SELECT count(*) = ${\ scalar @waiting} FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'"
	);
}
query($node, q{SET synchronous_commit = local; INSERT INTO events (what) VALUES ('after')});
is( sql("SELECT $found FROM events"),
	'found: [before after]',
	'a commit that waits for its standby is not visible, a later one is');
is(sql($reading), 'found: [before]', 'the frontier does not pass it');
is(sql(q{SELECT count(*) FROM snowflake_frontier_holders()}),
	'3', 'while it is being prepared, a transaction holds twice');
set_conf($node, synchronous_standby_names => '');
finish_statement($_) foreach @waiting;
$_->quit foreach @waiting;
is(sql($reading), 'found: [before waits]', 'when it is over, the row is there');
sql(q{COMMIT PREPARED 'waits'});
is(sql($reading), 'found: [before waits prepared after]', 'and so is what was prepared');

# A database that takes the place of another one does not take its samples.
my @databases = map { "many$_" } 1 .. 15;
sql("CREATE DATABASE $_ TEMPLATE other") foreach @databases;
my $holding = $node->background_psql('many15');
my $held = $holding->query_safe('BEGIN; SELECT snowflake_next()');
insert('elsewhere');
cmp_ok(sql('SELECT snowflake_frontier()'), '>', $held, 'no other database is held back');
sql('SELECT pg_current_xact_id()') foreach 1 .. 2;
query($node, 'SELECT snowflake_frontier()', dbname => $_) foreach @databases[ 0 .. 13 ];
is(query($node, "SELECT snowflake_frontier() >= $held", dbname => 'many15'),
	'f', 'samples of a database do not count for the one that takes their place');
$holding->quit;

done_testing();
