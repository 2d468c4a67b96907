# The frontier belongs to the snapshot of the statement that asks for it: whatever
# the form of the statement, it does not pass a row that is committed after its
# snapshot was taken.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  finish_statement minting_node query refuses reload_with session set_conf start_statement
  wait_for_query wait_until
);
use Test::More;

my $node = minting_node(
	'main',
	init => { allows_streaming => 'logical' },
	conf => q{
	snowflake.max_wait = '1min'
	max_prepared_transactions = 5
	autovacuum = off
});

sub sql { return query($node, @_); }

sql(q{
	CREATE TABLE events (id snowflake PRIMARY KEY DEFAULT snowflake_next(), what text);
	CREATE VIEW settled AS SELECT * FROM events WHERE id <= snowflake_frontier();
	CREATE FUNCTION in_sql(bigint) RETURNS text STABLE LANGUAGE sql AS
		$$ SELECT string_agg(what, ' ' ORDER BY id) FROM events WHERE id > $1 AND id <= snowflake_frontier() $$;
	CREATE FUNCTION in_plpgsql(after bigint) RETURNS text STABLE LANGUAGE plpgsql AS $$
		DECLARE up_to bigint; found text;
		BEGIN
			up_to := snowflake_frontier();
			SELECT string_agg(what, ' ' ORDER BY id) INTO found FROM events WHERE id > after AND id <= up_to;
			RETURN found;
		END $$;
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

sub all_rows
{
	return "found: [early$round later$round last$round]";
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
	'one statement' => "SELECT $found FROM $wait, $above id <= snowflake_frontier()",
	'a view' => "SELECT $found FROM $wait, settled WHERE id > \$1",
	'a subquery' => "SELECT $found FROM $wait, $above id <= (SELECT snowflake_frontier())",
	'a CTE' =>
	  "WITH f AS MATERIALIZED (SELECT snowflake_frontier() AS up_to FROM $wait) SELECT $found FROM f, $above id <= up_to",
	'a sequential scan' =>
	  "SELECT $found FROM $wait, $above id::text::bigint <= snowflake_frontier()",
	'the same snapshot twice' =>
	  "SELECT $found FROM (SELECT snowflake_frontier() AS before, pg_advisory_lock_shared(1) OFFSET 0) l,
		$above (id <= snowflake_frontier() OR before IS DISTINCT FROM snowflake_frontier())",
	map { ("a function: $_" => "SELECT 'found: [' || coalesce($_(\$1), '') || ']' FROM $wait") }
	  'in_sql', 'in_plpgsql', 'in_a_loop');

foreach my $name (sort keys %statement)
{
	foreach my $form ('', 'prepared', 'in a cursor')
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
		is(sql($statement), all_rows(), "$name, $form: the next one has it all");
	}
}

# Transactions that keep one snapshot
foreach my $level ('REPEATABLE READ', 'SERIALIZABLE', 'REPEATABLE READ READ ONLY')
{
	my $after = new_round();
	my $writer = open_rows();
	my $read = "SELECT $found FROM settled WHERE id > $after";
	my $reader = session($node, "BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM many");

	commit_row($writer);
	is($reader->query_safe($read),
		'found: []', "$level: a frontier of the snapshot that the transaction has");
	insert("more$round");
	is($reader->query_safe($read), 'found: []', "$level: and it stays");
	is($reader->query_safe("SELECT count(DISTINCT snowflake_frontier()) <= 1 FROM many"),
		't', "$level: one value");
	$reader->query_safe('COMMIT');
	is( $reader->query_safe("BEGIN ISOLATION LEVEL $level; $read; COMMIT"),
		all_rows() =~ s/\]/ more$round]/r,
		"$level: the next transaction has it all");
	$reader->quit;
}

# A snapshot from elsewhere: of another session, or of a logical slot, whose xmax is not
# that of the process array
my $connect = sprintf q{\connect "%s dbname=postgres replication=database"}, $node->connstr;
foreach my $from ('another session', 'a logical slot')
{
	my $after = new_round();
	my ($exporter, $snapshot, $writer);

	if ($from eq 'another session')
	{
		$writer = open_rows();
		$exporter = session($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
		$snapshot = $exporter->query_safe('SELECT pg_export_snapshot()');
	}
	else
	{
		# a slot waits for those that write, so the row is written later, by one
		# that has its number already
		$exporter = session($node, $connect);
		$snapshot = (
			split /\|/,
			$exporter->query_safe(
				q{CREATE_REPLICATION_SLOT s TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')}))[2];
		$writer = open_rows();
	}
	commit_row($writer);
	my $reader =
	  session($node, "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'");
	is($reader->query_safe("SELECT $found FROM settled WHERE id > $after"),
		'found: []', "a snapshot from $from: nothing passes what it does not see");
	is( $reader->query_safe(
			"SELECT count(*) FROM events WHERE id > $after AND id <= snowflake_frontier()"),
		'0',
		"a snapshot from $from: again");
	$reader->query_safe('COMMIT');
	is($reader->query_safe("SELECT $found FROM settled WHERE id > $after"),
		all_rows(), "a snapshot from $from: one of the session's own has it all");
	$_->quit foreach $reader, $exporter;
}

# The snapshot of a slot sees a commit that waits for a standby, and its xmax is above that.
# What has ended since is before that number, and yet later than the snapshot.
SKIP:
{
	my $after = new_round();
	my @blocks = map { session($node, 'BEGIN') } 1, 2;
	my ($before, $waiting, $exporter) =
	  (session($node, 'BEGIN'), session($node, 'BEGIN'), session($node, $connect));
	my $slot_waits_for = sub {
		my ($session) = @_;
		my $xid = $session->query_safe('SELECT pg_current_xact_id()');

		return sub {
			sql("SELECT count(*) FROM pg_locks WHERE NOT granted AND transactionid = '$xid'");
		};
	};
	my $end = sub {
		reload_with($node, "synchronous_standby_names = ''");
		finish_statement($waiting);
		$_->quit foreach $exporter, @blocks, $before, $waiting;
	};

	sql('CREATE TABLE scratch ()');
	my $waits = $slot_waits_for->($blocks[0]);
	start_statement($exporter,
		q{CREATE_REPLICATION_SLOT t TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')});
	wait_until('the slot waits for a transaction', $waits);
	$waits = $slot_waits_for->($blocks[1]);
	$blocks[0]->query_safe('ROLLBACK');
	wait_until('the slot waits for another one', $waits);
	$before->query_safe(
		"SET LOCAL synchronous_commit = local; INSERT INTO events (what) VALUES ('early$round')");
	$waits = $slot_waits_for->($waiting);
	$waiting->query_safe('INSERT INTO scratch DEFAULT VALUES');
	set_conf($node, synchronous_standby_names => 'nobody');
	start_statement($waiting, 'COMMIT');
	wait_for_query($node,
		q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'});
	$blocks[1]->query_safe('ROLLBACK');

	# PostgreSQL 19 waits for the end of that commit
	wait_until(
		'there is a slot, or it waits for the commit',
		sub {
			$waits->()
			  || sql(
				q{SELECT count(*) FROM pg_stat_activity WHERE query ~ '^CREATE_REPLICATION_SLOT t' AND state ~ '^idle'}
			  );
		});
	if ($waits->())
	{
		$end->();
		skip 'a slot has no snapshot before a commit has ended that it sees', 3;
	}
	my ($snapshot) = finish_statement($exporter) =~ /^t\|[^|]*\|([^|]+)\|/m;
	$before->query_safe('COMMIT');
	cmp_ok(sql('SELECT snowflake_frontier()'),
		'>', $after, 'the frontier passes a row that is committed');
	my $reader =
	  session($node, "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'");
	is($reader->query_safe("SELECT $found FROM events WHERE id > $after"),
		'found: []', 'a snapshot of a slot that does not see it');
	is($reader->query_safe("SELECT snowflake_frontier() <= $after"),
		't', 'nor does its frontier pass it');
	$reader->quit;
	$end->();
}

# A procedure that commits has a snapshot for each statement.
{
	my $after = new_round();
	my $writer = open_rows();
	my $reader = start_statement($node, "CALL with_commits($after, '')");

	wait_for_lock();
	commit_row($writer);
	like(
		finish_statement($reader),
		qr/^1:  2: early$round later$round last$round/m,
		'a procedure that commits: nothing first, then all');
	$reader->quit;
}

# Cursors that are read on by turns, and across other statements, whose rows are
# compared one by one: each has one value.
{
	my $after = new_round();

	sql("INSERT INTO events (what) SELECT 'row' FROM generate_series(1, 20)");
	my $writer = open_rows();
	my $reader = session($node, 'BEGIN',
		"DECLARE a CURSOR FOR SELECT snowflake_frontier() FROM events WHERE id > $after");
	my @values = ([ $reader->query_safe('FETCH a') ], []);
	$writer->query_safe('COMMIT; SELECT pg_advisory_unlock(1)');
	$writer->quit;
	$reader->query_safe(
		"DECLARE b CURSOR FOR SELECT snowflake_frontier() FROM events WHERE id > $after");

	foreach (1 .. 10)
	{
		push @{ $values[0] }, $reader->query_safe('FETCH a');
		push @{ $values[1] }, $reader->query_safe('FETCH b');
		insert('meanwhile');
		$reader->query_safe("SELECT count(*) FROM settled WHERE id > $after");
	}
	foreach my $i (0, 1)
	{
		my %distinct = map { $_ => 1 } @{ $values[$i] };
		is(scalar(keys %distinct), 1, 'a cursor that is read on by turns has one value: ' . $i);
	}
	cmp_ok($values[0][0], '<', $values[1][0], 'each has its own');
	$reader->query_safe('COMMIT');
	$reader->quit;
}

# The statements of one transaction have a frontier each, however alike their snapshots are:
# all begin with an old transaction that mints nothing, and some have the same end, or as many
# transactions in between.
{
	my $after = new_round();
	my @others = (
		session($node, 'BEGIN; SELECT pg_current_xact_id()'),
		session($node, "BEGIN; INSERT INTO events (what) VALUES ('early')"));
	insert('later');
	my $reader = session($node, 'BEGIN');
	my $read = "SELECT $found FROM settled WHERE id > $after";
	is($reader->query_safe($read),
		'found: []', 'statements of a transaction: the first has nothing');
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
	$reader->query_safe('COMMIT');
	$_->quit foreach @others, $reader;
}

# Parallel plans: the leader asks, and a worker must not.
my $parallel =
  q{SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;};
like(
	sql("$parallel EXPLAIN (COSTS OFF) SELECT count(*) FROM many WHERE id <= (SELECT snowflake_frontier())"
	),
	qr/InitPlan.*Parallel Seq Scan/s,
	'a subquery keeps a scan parallel');
is(sql("$parallel SELECT count(*) FROM many WHERE id <= (SELECT snowflake_frontier())"),
	10000, 'and has all rows');
unlike(
	sql("$parallel EXPLAIN (COSTS OFF) SELECT count(*) FROM many WHERE id <= snowflake_frontier()"),
	qr/Parallel/, 'workers are not asked');
sql(q{CREATE FUNCTION mislabelled() RETURNS bigint STABLE PARALLEL SAFE LANGUAGE plpgsql AS 'BEGIN RETURN snowflake_frontier(); END'}
);
refuses(
	$node,
	"$parallel SET parallel_leader_participation = off; SELECT count(*) FROM many WHERE id <= mislabelled()",
	'25000',
	'and refuse if they are',
	message => qr/^cannot execute snowflake_frontier\(\) in a parallel worker$/);

# One snapshot has one frontier, and in a transaction those that see the same are one: a
# poller that stays in it does not learn that a transaction has ended that wrote nothing.
my $after = new_round();
my $poll =
  "SELECT coalesce(string_agg(what, ' ' ORDER BY id), 'nothing') FROM settled WHERE id > $after";
my $minter = session($node, 'BEGIN; SELECT snowflake_next()');
insert('polled');
my $poller = session($node, 'BEGIN');
is($poller->query_safe($poll), 'nothing', 'a transaction that has minted holds it back');
$minter->query_safe('ROLLBACK');
is($poller->query_safe($poll), 'nothing', 'to the end of the transaction of a poller');
is($poller->query_safe("COMMIT; BEGIN; $poll"), 'polled', 'and not in the next one');
$_->quit foreach $minter, $poller;

# The plan of a poller, which is all that it takes
like(
	sql(q{INSERT INTO events (what) SELECT 'many' FROM generate_series(1, 2000); ANALYZE events;
		EXPLAIN (COSTS OFF) SELECT * FROM settled WHERE id > 4711 ORDER BY id LIMIT 10}),
	qr/^Limit\n  ->  Index Scan using events_pkey on events\n        Index Cond: \(.*<= \(?snowflake_frontier\(\).* AND .*> 4711\)/,
	'a poller of the view reads by one index scan with both bounds');

$node->stop;
done_testing();
