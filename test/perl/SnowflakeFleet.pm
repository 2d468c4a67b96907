
=pod

=head1 NAME

SnowflakeFleet - servers that lease their node IDs, for the TAP tests

=cut

package SnowflakeFleet;

use strict;
use warnings;

use Exporter qw(import);
use SnowflakeCoordinator;
use SnowflakeTest qw(error_of new_member patience status wait_for_mint wait_until);
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT_OK = qw(check_fleet check_late_writes start_member);

# A server, started, that leases its node ID from a coordinator.  A proxy that its
# environment names is not to be used: it would read the passwords.
sub start_member
{
	my ($name, $url, $conf) = @_;
	my $node = new_member($name, $url, lease => patience(10) . 's', conf => $conf);

	local @ENV{qw(http_proxy https_proxy all_proxy)} = ('http://127.0.0.1:1') x 3;
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	return $node;
}

# What each coordinator of three members has to be good for.
sub check_fleet
{
	my ($cluster, $url) = @_;
	my ($one, $two) = my @nodes = map { start_member($_, $url) } 'one', 'two';

	$one->poll_query_until('postgres',
		q{SELECT coordinator = 'grants nothing' FROM snowflake_status})
	  or die 'the coordinator is not asked';
	$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
	is(error_of($two, 'SELECT snowflake_fleet_create()')->{sqlstate},
		'42710', 'a fleet is founded once');
	wait_for_mint($_) foreach @nodes;
	is_deeply([ sort map { status($_, 'node') } @nodes ], [ 0, 1 ], 'two servers get two node IDs');
	is( $two->safe_psql(
			'postgres', q{SELECT node, state FROM snowflake_fleet() ORDER BY node NULLS FIRST}),
		"|fleet\n0|leased\n1|leased",
		'the fleet is listed');

	# One member of three dies, which no server notices.
	SnowflakeCoordinator::kill_members($cluster, 0);
	foreach my $node (@nodes)
	{
		my $until = status($node, 'lease_until');

		$node->poll_query_until('postgres',
			"SELECT lease_until > timestamptz '$until' + interval '4s' FROM snowflake_status")
		  or die 'not renewed';
		is(status($node, 'gate, leases'), 'open|1', 'without one of three leases are renewed');
	}
	SnowflakeCoordinator::start_members($cluster);
	SnowflakeCoordinator::wait_for_members($cluster);

	# Founded again: nobody renews what is from before.
	$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover(now())');
	my %until = map { $_->name => status($_, 'lease_until') } @nodes;
	foreach my $node (@nodes)
	{
		$node->poll_query_until('postgres', 'SELECT leases = 2 FROM snowflake_stats')
		  or die 'the old lease is renewed';
		is(status($node, 'coordinator, gate'),
			'reachable|open', 'a fleet that is founded again grants anew');
		is( $node->safe_psql(
				'postgres',
				"SELECT since < timestamptz '$until{$node->name}' FROM snowflake_fleet() JOIN snowflake_status USING (node)"
			),
			't',
			'before the old lease has ended');
	}
	isnt(status($one, 'node'), status($two, 'node'), 'and two node IDs');

	# Two of three die: what the third one has may not be what counts.
	SnowflakeCoordinator::kill_members($cluster, 1, 2);
	like(error_of($one, 'SELECT * FROM snowflake_fleet()')->{sqlstate} || 'no error',
		qr/^08/, 'one of three tells nothing');

	# All members die, and come back.
	SnowflakeCoordinator::kill_members($cluster);
	$one->poll_query_until('postgres',
		q{SELECT gate = 'closed: the lease of the node ID has ended' FROM snowflake_status})
	  or die 'does not end';
	is(status($one, 'coordinator'), 'unreachable', 'without all of them they end');
	SnowflakeCoordinator::start_members($cluster);
	wait_for_mint($_) foreach @nodes;
	my $held = status($one, 'node');
	isnt($held, status($two, 'node'), 'and are granted again when they are back');

	# A clean restart keeps the node ID.
	$one->restart;
	wait_for_mint($one);
	is(status($one, 'node'), $held, 'a clean restart keeps the node ID');
	$_->stop foreach @nodes;
	return;
}

# What a coordinator has to be good for that is asked for records first, and written to
# then: a write that was held up on its way, by a relay, and is late.  The expression is
# for it, the URL has "HOSTS" for the hosts.
sub check_late_writes
{
	my ($cluster, $url, $regexp) = @_;
	my $hold = PostgreSQL::Test::Utils::tempdir() . '/hold';
	my $relay = SnowflakeCoordinator::new_relay($cluster, $regexp, $hold);
	my $direct = SnowflakeCoordinator::hosts($cluster);
	my $one = start_member('in_time', $url =~ s/HOSTS/$direct/r, "snowflake.lease_nodes = '7'");

	$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
	wait_for_mint($one);
	$one->stop;
	append_to_file($hold, '');
	my $late = start_member('late', $url =~ s/HOSTS/$relay/r, "snowflake.lease_nodes = '7'");
	wait_until('a write is held up', sub { -e "$hold.held" });
	$one->start;
	wait_for_mint($one);
	SnowflakeCoordinator::release($hold);
	$late->poll_query_until('postgres',
		q{SELECT coordinator = 'grants nothing' OR leases > 0 FROM snowflake_status, snowflake_stats}
	) or die 'the coordinator is not asked';
	is( $one->safe_psql(
			'postgres',
			sprintf q{SELECT holder ~ ':%d ', state FROM snowflake_fleet() WHERE node = 7},
			$one->port),
		't|leased',
		'a write that comes after another one does nothing');

	# The fleet is founded again meanwhile.
	append_to_file($hold, '');
	$one->append_conf('postgresql.conf', "snowflake.lease_nodes = '8'");
	$one->restart;
	wait_until('a write is held up', sub { -e "$hold.held" });
	$one->safe_psql('postgres', q{SELECT snowflake_fleet_recover(now() + interval '5s')});
	SnowflakeCoordinator::release($hold);
	$late->poll_query_until('postgres',
		q{SELECT state = 'leased' FROM snowflake_fleet() WHERE node = 7})
	  or die 'nothing is leased';
	is( $late->safe_psql(
			'postgres', q{SELECT own.leased_from > fleet.leased_from
		FROM snowflake_fleet() AS own, snowflake_fleet() AS fleet WHERE own.node = 7 AND fleet.node IS NULL}
		),
		't',
		'nor does one that comes after the fleet was founded again');
	$_->stop foreach $one, $late;
	return;
}

1;
