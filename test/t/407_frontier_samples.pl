# Which earlier frontiers count for a snapshot that is older than the frontier
# computed just now; and one snapshot gets one answer.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use Test::More;

my $node = minting_node('main',
	conf => "snowflake.max_wait = '1min'\nautovacuum = off\nmax_prepared_transactions = 2\n");

sub sql { return query($node, @_); }
sub other { return query($node, $_[0], dbname => 'other'); }

sql('CREATE DATABASE other');
sql('CREATE TABLE events (id snowflake PRIMARY KEY DEFAULT snowflake_next(), what text)');
other('CREATE EXTENSION snowflake');

# The planner does not ask for this.
my $reading = q{SELECT 'read: ' || coalesce(string_agg(what, ' ' ORDER BY id), '')
	FROM (SELECT snowflake_frontier() AS up_to OFFSET 0) f, events WHERE id <= up_to};

sub insert
{
	my ($what) = @_;

	sql("INSERT INTO events (what) VALUES ('$what')");
	return;
}

# A session that has taken a snapshot and asks later
sub snapshot
{
	my ($level) = @_;

	return session($node, "BEGIN ISOLATION LEVEL $level; DECLARE c CURSOR FOR $reading");
}

# One with a row that is not committed yet
sub open_row
{
	my ($what) = @_;

	return session($node, "BEGIN; INSERT INTO events (what) VALUES ('$what')");
}

# Who asks first has what the keeper has published when it opened the gate.
insert('a');
$node->restart;
wait_for_mint($node);
insert('b');
foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	my $first = snapshot($level);

	insert('c');
	like(
		$first->query_safe('FETCH c'),
		qr/^read: a/,
		"$level: who asks first, by a snapshot that is not the newest, knows what was there when the gate opened"
	);
	$first->quit;
}

# A sample whose xmax is that of the snapshot may be later: the transaction that has
# ended in between had a smaller ID.
sql('TRUNCATE events');
foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	my $open = open_row('open');

	insert('visible');
	my $old = snapshot($level);
	$open->query_safe('COMMIT');
	is(sql($reading), 'read: open visible', "$level: others are told a later frontier");
	is($old->query_safe('FETCH c'),
		'read: ', "$level: which is not for a snapshot with the same xmax");
	$old->query_safe('COMMIT');
	is($old->query_safe($reading), 'read: open visible', "$level: the session's next one has it");
	$_->quit foreach $old, $open;
	sql('TRUNCATE events');
}

# Nor is a later one for a snapshot whose xmax is smaller, though all transactions in progress
# that it knows of are still in progress: one that had minted got its transaction ID after it.
foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	my $minted = $node->background_psql('postgres');
	my $early = $minted->query_safe('BEGIN; SELECT snowflake_next()');

	insert('visible');
	my $old = snapshot($level);
	$minted->query_safe("INSERT INTO events VALUES ($early, 'early'); COMMIT");
	is($old->query_safe('FETCH c'),
		'read: ', "$level: a snapshot with a smaller xmax does not get what was computed just now");
	$old->query_safe('COMMIT');
	is( $old->query_safe($reading),
		'read: early visible',
		"$level: the session's next one has both rows");
	$_->quit foreach $old, $minted;
	sql('TRUNCATE events');
}

# One of another database says nothing here, though it is earlier.
insert('first');
sql('SELECT snowflake_frontier()');
my $open = open_row('open');
insert('visible');
other('SELECT snowflake_frontier()');
sql('SELECT pg_current_xact_id()');
my $old = snapshot('REPEATABLE READ');
sql('SELECT pg_current_xact_id()');
like(
	$old->query_safe('FETCH c'),
	qr/^read: (?:first)?$/,
	'a sample of another database does not count');
$open->query_safe('COMMIT');
$_->quit foreach $old, $open;

# What the keeper publishes when it opens the gate anew passes nobody who is in between.
my $node_id = 1;
foreach my $kind ('runs', 'is prepared')
{
	sql('TRUNCATE events');
	$open = open_row('open');
	insert('visible');
	$open->query_safe(q{PREPARE TRANSACTION 'open'}) if $kind eq 'is prepared';
	$node_id++;
	change_node_id($node, $node_id);
	sql('SELECT pg_current_xact_id()') foreach 1 .. 2;
	is(sql($reading), 'read: ', "another node ID while a transaction $kind: that is not passed");
	$open->query_safe($kind eq 'runs' ? 'COMMIT' : q{COMMIT PREPARED 'open'});
	$open->quit;
	is(sql($reading), 'read: open visible', 'until it has ended');
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
is($reader_session->query_safe($reading), 'read: first', 'whatever else would be right');
$reader_session->query_safe('COMMIT; BEGIN');
cmp_ok($reader_session->query_safe('SELECT snowflake_frontier()'),
	'>', $answer, 'and the next transaction has another');
is($reader_session->query_safe($reading), 'read: first second', 'with all rows');
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
is($poller->query_safe('FETCH c'),
	'read: first', 'a session remembers the frontier that it has computed before');
$_->quit foreach $idle, $poller;

# A snapshot of the process array itself is later than a sample if its xmax is larger, though
# it may be no larger than the next transaction ID was.  The keeper would need one in between.
sql('TRUNCATE events');
insert('first');
my $keeper_pid = hold_keeper($node);
my ($lower, $upper) = map { $node->background_psql('postgres') } 1, 2;
$_->query_safe('BEGIN; SELECT pg_current_xact_id()') foreach $lower, $upper;
sql('SELECT snowflake_frontier()');
$upper->query_safe('COMMIT');
my $later = snapshot('READ COMMITTED');
$lower->query_safe('COMMIT');
is($later->query_safe('FETCH c'),
	'read: first', 'a sample counts as soon as a transaction has ended that is newer');
kill 'CONT', $keeper_pid;
$_->quit foreach $lower, $upper, $later;

# However many have asked since, here and elsewhere, an old snapshot finds a sample of its time.
$node->restart;
wait_for_mint($node);
sql('TRUNCATE events');
insert('before');
sql('SELECT snowflake_frontier()');
sql('SELECT pg_current_xact_id()') foreach 1 .. 2;
$old = snapshot('REPEATABLE READ');
other('SELECT snowflake_frontier()');
my $asking = $node->background_psql('postgres');

# samples are kept by their times, so these must not all have the same
$asking->query_safe(
	q{INSERT INTO events (what) VALUES ('later'); SELECT snowflake_frontier(), pg_sleep(0.002)})
  foreach 1 .. 40;
is($old->query_safe('FETCH c'), 'read: before', 'there is a sample for an old snapshot');
$_->quit foreach $old, $asking;

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
