# A lease outlives what a server does besides: another node ID for a while, a lessee and a
# keeper that were terminated.  What was minted with it is remembered all the time.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  children coordinator_url log_count new_coordinator new_member status wait_for_mint
  wait_for_status wait_until
);
use PostgreSQL::Test::Utils;
use Test::More;

my $coordinator = new_coordinator();
$coordinator->append_conf('postgresql.conf', "wal_level = replica\nmax_wal_senders = 1");
$coordinator->restart;
my $one =
  new_member('one', $coordinator, lease => '1min', conf => "snowflake.lease_nodes = '6, 5'");

sub records
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

# The lease of a node ID as its record has it, a number of ticks
sub until_of
{
	my ($node) = @_;

	return records(
		"SELECT (value::jsonb->>'until')::bigint FROM snowflake_fleet.records WHERE key = 'node/$node'"
	);
}

# Take the node ID from this source, and wait for a condition.
sub take_from
{
	my ($settings, $condition) = @_;

	$one->append_conf('postgresql.conf', $settings);
	$one->reload;
	wait_for_status($one, $condition);
	return;
}

$one->start;
$one->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');

# A lease with which nothing was minted yet is given back whole, and taken again.
wait_for_status($one, 'leases = 1');
$one->stop;
is( records(
		q{SELECT (value::jsonb->>'until')::bigint - (value::jsonb->>'from')::bigint FROM snowflake_fleet.records WHERE key = 'node/5'}
	),
	-1,
	'nothing of a lease is kept that nothing was minted with');
$one->start;
wait_for_status($one, 'leases = 1');
is( $one->safe_psql('postgres', 'SELECT node, state FROM snowflake_fleet() WHERE node IS NOT NULL'),
	'5|leased',
	'its node ID is leased again'
) or diag($one->safe_psql('postgres', 'SELECT * FROM snowflake_fleet()'));
wait_for_mint($one);
my $leased = $one->safe_psql('postgres', 'SHOW snowflake.node_source');

# IDs stand ahead of the clock, and another node ID is used for a while.  Nothing is minted
# after it, before the server stops.
$one->safe_psql('postgres',
	q{SELECT snowflake_advance(snowflake_lower_bound(now() + interval '10min'), force => true)});
wait_for_mint($one);
my $newest = $one->safe_psql('postgres', 'SELECT snowflake_next()');
my $tick = $one->safe_psql('postgres',
	"SELECT floor(extract(epoch FROM snowflake_timestamp($newest)) * 1000) - 1288834974657");
my $node = status($one, 'node');
take_from("snowflake.node_source = 'setting'\nsnowflake.node_id = 77",
	q{node = 77 AND gate = 'open'});
take_from("snowflake.node_source = '$leased'", qq{node = $node AND gate = 'open'});
is(status($one, 'leases'), 1, 'after a node ID of a setting the lease is the same');

# the lessee, which has ended meanwhile, is started by the keeper, and gives back
wait_until('there is a lessee', sub { children($one, qr/snowflake lessee/) });
$one->stop;
is(until_of($node), $tick, 'a stop gives back all that was not minted, and nothing that was');

# After the way out of a generator that is ahead it is not used again.
$one->start;
wait_for_mint($one);
$newest = $one->safe_psql('postgres', 'SELECT snowflake_next()');
$node = status($one, 'node');
take_from("snowflake.node_source = 'setting'\nsnowflake.node_id = 78",
	q{node = 78 AND gate = 'open'});
$one->safe_psql('postgres', 'SELECT snowflake_restart_at_clock(78)');
my $kept = until_of($node);
take_from("snowflake.node_source = '$leased'", qq{node NOT IN (78, $node) AND gate = 'open'});
cmp_ok($one->safe_psql('postgres', 'SELECT snowflake_next()'),
	'<', $newest, 'after a generator went back another node ID is leased');
is(until_of($node), $kept, 'and the one before is not free before its end');

# The gate is not opened for it again before the server stops.
$node = status($one, 'node');
my $granted = until_of($node);
take_from("snowflake.node_source = 'setting'", q{node = 78 AND gate = 'open'});
take_from('snowflake.node_id = -1', q{gate <> 'open'});
$one->safe_psql('postgres',
	q{UPDATE snowflake_keeper.reservation SET layout = 'time:41@22 node:10@12 seq:12@0 epoch:2015-01-01Z'}
);
take_from("snowflake.node_source = '$leased'", q{gate ~ 'layout' AND coordinator = 'reachable'});
$one->stop;
cmp_ok(until_of($node), '>=', $granted, 'nor does one while the gate is closed');

# A lease that was given back, but the answer was lost, and another server has the node ID:
# no server has minted above its lease, so there is nothing to be told to the fleet.
my ($two, $three) =
  map { new_member($_, $coordinator, lease => '1min', conf => "snowflake.lease_nodes = '7'") }
  qw(two three);

# The processes of the second server that have to do with the lease
sub workers
{
	return children($two, qr/snowflake (?:lessee|keeper)/);
}

# Does a commit at the coordinator wait, for a standby that does not exist?
sub set_standbys
{
	my ($names) = @_;

	$coordinator->append_conf('postgresql.conf', "synchronous_standby_names = '$names'");
	$coordinator->reload;
	$coordinator->poll_query_until('postgres',
		"SELECT current_setting('synchronous_standby_names') = '$names'")
	  or die 'no reload';

	# commits wait when the checkpointer has read it, too
	$coordinator->safe_psql('postgres', 'CHECKPOINT');
	return;
}

$two->start;
$two->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($two);
my $stopped = $two->{_pid};    # which would start others at once

END
{
	kill 'CONT', $stopped if $stopped;
}

sub end_workers
{
	kill 'STOP', $stopped;
	kill 'TERM', workers();
	wait_until('keeper and lessee have ended', sub { !workers() });
	return;
}

# With an answer first: then the next lessee knows that there is no lease to look after.
end_workers();
kill 'CONT', $stopped;
wait_for_mint($two);
is(log_count($two, qr/gave back snowflake node ID 7$/),
	1, 'a lessee that is terminated with the keeper gives back the lease');
is(log_count($two, qr/lost the lease/), 0, 'which its successor has not lost');
$granted = until_of(7);
set_standbys('none');
end_workers();
set_standbys('');
wait_until('the lease was given back', sub { until_of(7) < $granted });
$three->start;
$three->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($three);
is(status($three, 'node'), 7, 'another server has the node ID');
kill 'CONT', $stopped;
undef $stopped;
wait_for_status($two, q{advice ~ 'No node ID is free' OR coordinator = 'grants nothing'});
is($three->safe_psql('postgres', 'SELECT state FROM snowflake_fleet() WHERE node IS NULL'),
	'fleet', 'the server that gave it back does not mark the fleet');

# A server whose lease goes on takes another fleet for what it is: one that does not know it.
records('CREATE DATABASE elsewhere');
my $leases = status($three, 'leases');
my $source = coordinator_url($coordinator) =~ s/postgres$/elsewhere/r;
my $founder = new_member('founder', $source, lease => '1min');
$founder->start;
$founder->safe_psql('postgres',
	q{CREATE EXTENSION snowflake; SELECT snowflake_fleet_create(now() - interval '1 h')});
$three->append_conf('postgresql.conf', "snowflake.node_source = '$source'");
$three->reload;
wait_until('the setting is in force',
	sub { $three->safe_psql('postgres', 'SHOW snowflake.node_source') eq $source });
wait_for_status($three, "leases > $leases AND coordinator = 'reachable'");
is($three->safe_psql('postgres', 'SELECT state FROM snowflake_fleet() WHERE node IS NULL'),
	'fleet', 'a server that moves to another fleet does not mark it');
is( log_count(
		$three, qr/WARNING:  the floor of the snowflake fleet is below a lease of this server/),
	1,
	'but warns that it begins below its lease');

$_->stop foreach $two, $three, $founder, $coordinator;
done_testing();
