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
  'CREATE TABLE thousand AS SELECT n FROM generate_series(1, 1000) n',
  'ALTER TABLE thousand SET (parallel_workers = 2)', 'CREATE DATABASE other';
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
		qq{BEGIN; DO 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); END';
		INSERT INTO events (what) VALUES ('$name') RETURNING id; PREPARE TRANSACTION '$name'});
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
is(tail() . prepared(), 'a b c0', 'until it is committed');
prepare('d');
sql(q{INSERT INTO events (what) VALUES ('e'); ROLLBACK PREPARED 'd'});
is(tail(), 'a b c e', 'or rolled back');

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
sql(q{CREATE TABLE copied (id bigint); CREATE TABLE deferred (id bigint);
	CREATE FUNCTION mint() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO copied VALUES (snowflake_next()); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER mint AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION mint()});
my $in_workers =
  q{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	SET parallel_leader_participation = off};
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
	sql("$in_workers; SET lock_timeout = '30s'; BEGIN; $what; PREPARE TRANSACTION 'x'");
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
query($node, q{BEGIN; SELECT snowflake_next(); PREPARE TRANSACTION 'other'}, dbname => 'other');
sql(q{INSERT INTO events (what) VALUES ('g')});
my $g = prepare('h');
sql(q{INSERT INTO events (what) VALUES ('i')});
my $held = sql('SELECT snowflake_frontier()');
$primary->backup('base');

foreach my $how ('immediate', 'fast', 'immediate, after a checkpoint')
{
	sql('CHECKPOINT') if $how =~ /checkpoint/;
	$node->stop($how =~ /^(\w+)/);
	$node->start;
	wait_for_mint($node);
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
