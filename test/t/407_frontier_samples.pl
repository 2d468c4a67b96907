# Which earlier frontiers count for a snapshot that is older than the frontier
# computed just now; and one snapshot gets one answer.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeEvents;
use SnowflakeTest;
use Test::More;

my $node = minting_node('main',
	conf => "snowflake.max_wait = '1min'\nautovacuum = off\nmax_prepared_transactions = 2\n");

sub sql { return query($node, @_); }
sub other { return query($node, $_[0], dbname => 'other'); }

create_events($node);
sql('CREATE DATABASE other');
other('CREATE EXTENSION snowflake');

# The planner does not ask for this.
my $reading = q{SELECT 'read: ' || coalesce(string_agg(what, ' ' ORDER BY id), '')
	FROM (SELECT snowflake_frontier() AS up_to OFFSET 0) f, events WHERE id <= up_to};

# A session that has taken a snapshot and asks later
sub snapshot
{
	my ($level) = @_;

	return session($node, "BEGIN ISOLATION LEVEL $level; DECLARE c CURSOR FOR $reading");
}

# Who asks first has what the keeper has published when it opened the gate.
insert($node, 'a');
$node->restart;
wait_for_mint($node);
insert($node, 'b');
foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	my $first = snapshot($level);

	insert($node, 'c');
	like(
		$first->query_safe('FETCH c'),
		qr/^read: a/,
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
		insert($node, 'visible');
		my $old = snapshot($level);
		$open->query_safe($insert) if $xmax ne 'the same';
		$open->query_safe('COMMIT');
		is(tail($node), 'early visible', "$level: others are told a later frontier")
		  if $xmax eq 'the same';
		is($old->query_safe('FETCH c'),
			'read: ', "$level: which is not for a snapshot with $xmax xmax");
		$old->query_safe('COMMIT');
		is( $old->query_safe($reading),
			'read: early visible',
			"$level: the session's next one has both rows");
		$_->quit foreach $old, $open;
	}
}

# One of another database says nothing here, though it is earlier.
sql('TRUNCATE events');
insert($node, 'first');
sql('SELECT snowflake_frontier()');
my $open = open_row($node, 'open');
insert($node, 'visible');
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
	$open = open_row($node, 'open');
	insert($node, 'visible');
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
insert($node, 'first');
my $minter = session($node, 'BEGIN; SELECT snowflake_next()');
insert($node, 'second');
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
insert($node, 'first');
my $poller = session($node, 'SELECT snowflake_frontier()');
$poller->query_safe("BEGIN; DECLARE c CURSOR FOR $reading");
$idle->query_safe('COMMIT');
is($poller->query_safe('FETCH c'),
	'read: first', 'a session remembers the frontier that it has computed before');
$_->quit foreach $idle, $poller;

# A database that takes the place of another one does not take its samples.
my @databases = map { "many$_" } 1 .. 15;
sql("CREATE DATABASE $_ TEMPLATE other") foreach @databases;
my $holding = $node->background_psql('many15');
my $held = $holding->query_safe('BEGIN; SELECT snowflake_next()');
insert($node, 'elsewhere');
cmp_ok(sql('SELECT snowflake_frontier()'), '>', $held, 'no other database is held back');
sql('SELECT pg_current_xact_id()') foreach 1 .. 2;
query($node, 'SELECT snowflake_frontier()', dbname => $_) foreach @databases[ 0 .. 13 ];
is(query($node, "SELECT snowflake_frontier() >= $held", dbname => 'many15'),
	'f', 'samples of a database do not count for the one that takes their place');
$holding->quit;

done_testing();
