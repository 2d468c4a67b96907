# Prepared transactions hold the frontier back until they are committed or rolled
# back: across crashes, restarts, promotions, and changes of the layout.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use PostgreSQL::Test::Cluster;
use Test::More;

my $primary = minting_node(
	'primary',
	init => { allows_streaming => 1 },
	conf => q{
	snowflake.max_wait = '1min'
	max_prepared_transactions = 4
	autovacuum = off
});
my $node = $primary;

sub sql { return query($node, @_); }

sql($_)
  foreach 'CREATE TABLE events (id snowflake PRIMARY KEY DEFAULT snowflake_next(), what text)',
  'CREATE DATABASE other';
query($node, 'CREATE EXTENSION snowflake', dbname => 'other');

# What is delivered to whoever starts from nothing.
sub tail
{
	return sql(
		q{SELECT string_agg(what, ' ' ORDER BY id) FROM events WHERE id <= snowflake_frontier()});
}

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
		qq{
		BEGIN;
		DO 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); END';
		INSERT INTO events (what) VALUES ('$name') RETURNING id;
		PREPARE TRANSACTION '$name'});
}

sql(q{INSERT INTO events (what) VALUES ('a')});
prepare('b');
sql(q{INSERT INTO events (what) VALUES ('c')});
is(tail(), 'a', 'a prepared transaction holds the frontier back');
is( sql(q{SELECT h.since <= p.prepared FROM snowflake_frontier_holders() h
		JOIN pg_prepared_xacts p ON p.transaction = h.prepared WHERE p.gid = 'b'}),
	't',
	'it is named by its xid');
is(sql(q{SELECT frontier < last_id AND frontier_holder IS NULL FROM snowflake_status}),
	't', 'and is nobody\'s process');
sql(q{COMMIT PREPARED 'b'});
is(tail(), 'a b c', 'until it is committed');
is(prepared(), 0, 'then it is forgotten');
prepare('d');
sql(q{INSERT INTO events (what) VALUES ('e')});
sql(q{ROLLBACK PREPARED 'd'});
is(tail(), 'a b c e', 'or rolled back');

# The process that is named is that of the transaction furthest back, which may have none.
my $session = $node->background_psql('postgres');
my $pid = $session->query_safe('SELECT pg_backend_pid()');
my $holder =
  q{SELECT count(*), coalesce(max(frontier_holder)::text, 'none') FROM snowflake_status, snowflake_frontier_holders()};
prepare('d');
$session->query_safe('BEGIN; SELECT snowflake_next()');
is(sql($holder), '2|none', 'a session that mints later is not what holds it back');
sql(q{ROLLBACK PREPARED 'd'});
prepare('d');
is(sql($holder), "2|$pid", 'one that has minted before is');
$session->query_safe('COMMIT');
$session->quit;
sql(q{ROLLBACK PREPARED 'd'});

# A transaction that cannot be prepared, and one that has not minted
foreach
  my $case ([ 'on temporary objects', 'CREATE TEMP TABLE x (); SELECT snowflake_next()', '0A000' ],
	[ 'without a mint', 'SELECT pg_current_xact_id()', '' ])
{
	my ($name, $what, $sqlstate) = @$case;

	refuses($node, "BEGIN; $what; PREPARE TRANSACTION 'x'", $sqlstate, "PREPARE $name");
	is(prepared(), 0, 'nothing is held');
}
sql(q{ROLLBACK PREPARED 'x'});

# Two that may have minted from the same ID on, since neither has: the gate was closed.  The
# second does not wait for the end of the first.
change_node_id($node, -1);
foreach my $gid ('x', 'y')
{
	sql(qq{
		SET lock_timeout = '30s';
		BEGIN;
		DO 'BEGIN PERFORM snowflake_next(); EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL; END';
		PREPARE TRANSACTION '$gid'});
}
is(prepared(), 2, 'PREPARE where nothing could be minted: both hold');
sql("ROLLBACK PREPARED '$_'") foreach 'x', 'y';
change_node_id($node, 1);

# By parallel workers only: PREPARE is the leader's
sql(q{CREATE TABLE thousand AS SELECT n FROM generate_series(1, 1000) n;
	ALTER TABLE thousand SET (parallel_workers = 2)});
sql(q{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	SET parallel_leader_participation = off;
	BEGIN; CREATE TABLE copied AS SELECT snowflake_next() AS id FROM thousand;
	PREPARE TRANSACTION 'parallel'});
is(prepared(), 1, 'IDs of parallel workers are held as well');
sql(q{COMMIT PREPARED 'parallel'});
is(prepared(), 0, 'until they are committed');

# The first mint may come after the command, by a deferred trigger.
sql(q{CREATE TABLE deferred (id bigint);
	CREATE FUNCTION mint() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO copied VALUES (snowflake_next()); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER mint AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION mint()});
is( sql(q{BEGIN; INSERT INTO deferred VALUES (1); SELECT count(*) FROM snowflake_frontier_holders();
		PREPARE TRANSACTION 'deferred'}),
	'0',
	'before PREPARE nothing is minted');
is(prepared(), 1, 'what a deferred trigger mints at PREPARE is held');
sql(q{ROLLBACK PREPARED 'deferred'});

# A standby takes over, or the server crashes or restarts; another database has
# one too, which does not count here.
my $f = prepare('f');
query($node, q{BEGIN; SELECT snowflake_next(); PREPARE TRANSACTION 'other'}, dbname => 'other');
sql(q{INSERT INTO events (what) VALUES ('g')});
my $g = prepare('h');
sql(q{INSERT INTO events (what) VALUES ('i')});
my $held = sql('SELECT snowflake_frontier()');
my $known_since = q{SELECT count(since) FROM snowflake_frontier_holders()};
is(sql($known_since), '2', 'two hold it back, and it is known since when');

$primary->backup('base');
foreach my $how ('immediate', 'fast', 'immediate, after a checkpoint')
{
	sql('CHECKPOINT') if $how =~ /checkpoint/;
	$node->stop($how =~ /^(\w+)/);
	$node->start;
	wait_for_mint($node);
	is(tail(), 'a b c e', "after stop $how the frontier is where it was");
	is(sql('SELECT snowflake_frontier()'), $held, 'exactly');
	is(prepared(), 2, 'both are known');
	is( sql(q{SELECT string_agg(p.gid, ' ' ORDER BY h.oldest) FROM snowflake_frontier_holders() h
			JOIN pg_prepared_xacts p ON p.transaction = h.prepared}),
		'f h',
		'by their xids');
	is(sql($known_since), '0', 'but not when they began');
}

# The first who asks after a start may be another PREPARE.
$node->restart;
prepare('j');
is(prepared(), 3, 'a PREPARE that comes first does not hide the others');
is(sql($known_since), '1', 'and of that one it is known when it began');
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
$primary->stop;

# A standby that is promoted
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base');
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
is(query($standby, 'SELECT frontier IS NULL FROM snowflake_status'), 't', 'its status knows none');
$standby->promote;
wait_for_mint($standby);
$node = $standby;
is(tail(), 'a b c e', 'a promoted standby knows the prepared transactions');
is(sql('SELECT snowflake_frontier()'), $held, 'and how far the frontier is');
sql(q{COMMIT PREPARED 'f'; COMMIT PREPARED 'h'});
is(tail(), 'a b c e f g h i', 'both are committed');

# More than there is room for, one after the other, while nobody asks for the frontier
sql(join '',
	map { "BEGIN; SELECT snowflake_next(); PREPARE TRANSACTION 'n$_'; COMMIT PREPARED 'n$_';\n" }
	  1 .. 400);
pass('what has ended makes room for others');

done_testing();
