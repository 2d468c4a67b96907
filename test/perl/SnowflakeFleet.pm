
=pod

=head1 NAME

SnowflakeFleet - servers that lease their node IDs, for the TAP tests

=cut

package SnowflakeFleet;

use strict;
use warnings;

use Exporter qw(import);
use SnowflakeCoordinator;
use SnowflakeTest qw(error_of new_node wait_for_mint);
use Test::More;

our @EXPORT = qw(check_fleet new_member status);

# A server, started, that leases its node ID from a coordinator.
sub new_member
{
	my ($name, $url) = @_;
	my $node = new_node($name,
		node_id => undef,
		conf => "snowflake.node_source = '$url'\nsnowflake.lease = '10s'\n");

	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	return $node;
}

sub status
{
	return SnowflakeTest::status($_[0], 'postgres', $_[1]);
}

# What each coordinator of three members has to be good for.
sub check_fleet
{
	my ($cluster, $url) = @_;
	my ($one, $two) = my @nodes = map { new_member($_, $url) } 'one', 'two';

	$one->poll_query_until('postgres', q{SELECT coordinator = 'grants nothing' FROM snowflake_status()})
	  or die 'the coordinator is not asked';
	$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
	is(error_of($two, 'postgres', 'SELECT snowflake_fleet_create()')->{sqlstate},
		'42710', 'a fleet is founded once');
	wait_for_mint($_, 'postgres') foreach @nodes;
	is_deeply([ sort map { status($_, 'node') } @nodes ], [ 0, 1 ], 'two servers get two node IDs');
	is( $two->safe_psql('postgres', q{SELECT node, state FROM snowflake_fleet() ORDER BY node NULLS FIRST}),
		"|fleet\n0|leased\n1|leased", 'the fleet is listed');

	# One member of three dies, which no server notices.
	SnowflakeCoordinator::kill_members($cluster, 0);
	foreach my $node (@nodes)
	{
		my $until = status($node, 'lease_until');

		$node->poll_query_until('postgres', "SELECT lease_until > timestamptz '$until' + interval '4s' FROM snowflake_status()")
		  or die 'not renewed';
		is(status($node, 'gate, leases'), 'open|1', 'without one of three leases are renewed');
	}
	SnowflakeCoordinator::start_members($cluster);

	# Founded again: nobody renews what is from before.
	$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover(now())');
	foreach my $node (@nodes)
	{
		$node->poll_query_until('postgres', 'SELECT leases = 2 FROM snowflake_status()')
		  or die 'the old lease is renewed';
		is(status($node, 'coordinator, gate'), 'reachable|open', 'a fleet that is founded again grants anew');
	}
	isnt(status($one, 'node'), status($two, 'node'), 'and two node IDs');

	# Two of three die: what the third one has may not be what counts.
	SnowflakeCoordinator::kill_members($cluster, 1, 2);
	like(error_of($one, 'postgres', 'SELECT * FROM snowflake_fleet()')->{sqlstate} || 'no error',
		qr/^08/, 'one of three tells nothing');

	# All members die, and come back.
	SnowflakeCoordinator::kill_members($cluster);
	$one->poll_query_until('postgres', q{SELECT gate = 'closed: the lease of the node ID has ended' FROM snowflake_status()})
	  or die 'does not end';
	is(status($one, 'coordinator'), 'unreachable', 'without all of them they end');
	SnowflakeCoordinator::start_members($cluster);
	wait_for_mint($_, 'postgres') foreach @nodes;
	my $held = status($one, 'node');
	isnt($held, status($two, 'node'), 'and are granted again when they are back');

	# A clean restart keeps the node ID.
	$one->restart;
	wait_for_mint($one, 'postgres');
	is(status($one, 'node'), $held, 'a clean restart keeps the node ID');
	$_->stop foreach @nodes;
	return;
}

1;
