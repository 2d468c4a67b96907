# Servers that lease their node IDs, and what their coordinator has recorded

package SnowflakeFleet;

use strict;
use warnings;

use Exporter qw(import);
use SnowflakeCoordinator;
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  change_record check_fleet check_late_writes end_children forget_record has_module lessee
  listed listing_error record recover start_member start_server use_coordinator
);

# Start a server, by a clock of its own if there is one.  A proxy that its environment names
# is not to be used: it would read the passwords.
sub start_server
{
	my ($node, $clock) = @_;

	local @ENV{qw(http_proxy https_proxy all_proxy)} = ('http://127.0.0.1:1') x 3;
	return defined $clock ? start_with_clock($node, $clock) : $node->start;
}

# A new server, started, that leases its node ID from a coordinator: a node, or a URL.  clock
# is its clock, founds has it found the fleet, with these arguments of
# snowflake_fleet_create(), and mint; other parameters are those of new_member().
sub start_member
{
	my ($name, $coordinator, %params) = @_;
	my ($clock, $founds) = delete @params{qw(clock founds)};
	my $node = new_member($name, $coordinator, lease => patience(10) . 's', %params);

	start_server($node, $clock);
	query($node, 'CREATE EXTENSION snowflake');
	return $node if !defined $founds;
	query($node, "SELECT snowflake_fleet_create($founds)");
	wait_for_mint($node);
	return $node;
}

# The process that leases a server's node ID
sub lessee
{
	my ($node) = @_;

	return (children($node, qr/snowflake lessee/))[0];
}

# Terminate processes of a server, whose postmaster stays frozen: it would start others.
sub end_children
{
	my ($node, $regexp) = @_;

	freeze($node->{_pid});
	kill 'TERM', children($node, $regexp);
	wait_until('the processes have ended', sub { !children($node, $regexp) });
	return;
}

# Is a kind of coordinator installed?
sub has_module
{
	my ($name) = @_;
	my ($pkglibdir) = run_command([ $ENV{PG_CONFIG} || 'pg_config', '--pkglibdir' ]);

	return -e "$pkglibdir/snowflake_$name.so";
}

# The key of a node ID's record; "fleet" is that of the fleet.
sub key_of
{
	my ($node_id) = @_;

	return $node_id eq 'fleet' ? $node_id : "node/$node_id";
}

# What a coordinator that is a server has recorded of a node ID, or of the fleet
sub record
{
	my ($coordinator, $node_id, $name) = @_;

	return query($coordinator,
		"SELECT value::jsonb ->> '$name' FROM snowflake_fleet.records WHERE key = '${\ key_of($node_id)}'"
	);
}

# A statement that changes that: names, and expressions
sub change_record
{
	my ($node_id, %changes) = @_;
	my $changed = join ', ', map { "'$_', $changes{$_}" } sort keys %changes;

	return
	  "UPDATE snowflake_fleet.records SET value = (value::jsonb || jsonb_build_object($changed))::text WHERE key = '${\ key_of($node_id)}';";
}

# One that has the coordinator forget it
sub forget_record
{
	my ($node_id) = @_;

	return "DELETE FROM snowflake_fleet.records WHERE key = '${\ key_of($node_id)}';";
}

# Have a server lease its node ID from another coordinator: a URL.  Further settings are ours.
sub use_coordinator
{
	my ($node, $url, %settings) = @_;

	set_conf(
		$node,
		'snowflake.node_source' => $url,
		map { ("snowflake.$_" => $settings{$_}) } keys %settings);
	return;
}

# The error of a session that asks the coordinator for all records, all empty if there is none;
# stdout is how many it gets.
sub listing_error
{
	my ($node) = @_;

	return error_of($node, 'SELECT count(*) FROM snowflake_fleet()');
}

# Columns of snowflake_fleet(), for a node ID, or for the fleet
sub listed
{
	my ($node, $columns, $node_id) = @_;

	return query($node,
		"SELECT $columns FROM snowflake_fleet() WHERE node "
		  . (defined $node_id ? "= $node_id" : 'IS NULL'));
}

# Make the fleet sound again.  Each server whose lease was forgotten records that when it
# looks, maybe just now: then the error says to try again.
sub recover
{
	my ($node, $arguments) = @_;

	wait_until(
		'the fleet is recovered',
		sub {
			my $error =
			  error_of($node, 'SELECT snowflake_fleet_recover(' . ($arguments // '') . ')');

			die $error->{message} if $error->{sqlstate} !~ /^(?:55006)?$/;
			return $error->{sqlstate} eq '';
		});
	return;
}

# What each coordinator of three members has to be good for.
sub check_fleet
{
	my ($cluster, $url) = @_;
	my ($one, $two) = my @nodes =
	  map { start_member($_, $url, lease => patience(6) . 's') } 'one', 'two';

	wait_for_status($one, q{coordinator = 'grants nothing'});
	query($one, 'SELECT snowflake_fleet_create()');
	is(error_of($two, 'SELECT snowflake_fleet_create()')->{sqlstate},
		'42710', 'a fleet is founded once');
	wait_for_mint($_) foreach @nodes;
	is_deeply([ sort map { status($_, 'node') } @nodes ], [ 0, 1 ], 'two servers get two node IDs');
	is(query($two, 'SELECT node, state FROM snowflake_fleet() ORDER BY node NULLS FIRST'),
		"|fleet\n0|leased\n1|leased", 'the fleet is listed');

	# One member of three dies, which no server notices.
	kill_members($cluster, 0);
	foreach my $node (@nodes)
	{
		my $until = status($node, 'lease_until');

		wait_for_status($node, "lease_until > timestamptz '$until' + interval '2s'");
		is(status($node, 'gate, leases'), 'open|1', 'without one of three leases are renewed');
	}

	# Founded again: nobody renews what is from before.
	recover($one, 'now()');
	my @until = map { status($_, 'lease_until') } @nodes;
	foreach my $i (0, 1)
	{
		wait_for_status($nodes[$i], q{leases = 2 AND gate = 'open'});
		is(status($nodes[$i], 'coordinator, gate'),
			'reachable|open', 'a fleet that is founded again grants anew');
		is(listed($nodes[$i], "since < timestamptz '$until[$i]'", status($nodes[$i], 'node')),
			't', 'before the old lease has ended');
	}
	isnt(status($one, 'node'), status($two, 'node'), 'and two node IDs');

	# Another one dies: what the third one has may not be what counts.
	kill_members($cluster, 1);
	like(listing_error($one)->{sqlstate} || 'no error', qr/^08/, 'one of three tells nothing');

	# All members die, and come back.
	kill_members($cluster);
	wait_for_status($one, q{gate = 'closed: the lease of the node ID has ended'});
	is(status($one, 'coordinator'), 'unreachable', 'without all of them they end');
	start_members($cluster);
	wait_for_mint($_) foreach @nodes;
	my $held = status($one, 'node');
	isnt($held, status($two, 'node'), 'and are granted again when they are back');

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
	my $relay = new_relay($cluster, $regexp, $hold);
	my $direct = hosts($cluster);
	my $one = start_member(
		'in_time', $url =~ s/HOSTS/$direct/r,
		conf => "snowflake.lease_nodes = '7'\n",
		founds => '');

	$one->stop;
	append_to_file($hold, '');
	my $late =
	  start_member('late', $url =~ s/HOSTS/$relay/r, conf => "snowflake.lease_nodes = '7'\n");
	wait_until('a write is held up', sub { -e "$hold.held" });
	$one->start;
	wait_for_mint($one);
	release($hold);
	wait_for_status($late, q{coordinator = 'grants nothing' OR leases > 0});
	is(listed($one, sprintf(q{holder ~ ':%d ', state}, $one->port), 7),
		't|leased', 'a write that comes after another one does nothing');

	# The fleet is founded again meanwhile.
	append_to_file($hold, '');
	$one->append_conf('postgresql.conf', "snowflake.lease_nodes = '8'");
	$one->restart;
	wait_until('a write is held up', sub { -e "$hold.held" });
	query($one, q{SELECT snowflake_fleet_recover(now() + interval '5s')});
	release($hold);
	wait_for_query($late, q{SELECT state = 'leased' FROM snowflake_fleet() WHERE node = 7});
	is( listed(
			$late, q{leased_from > (SELECT leased_from FROM snowflake_fleet() WHERE node IS NULL)},
			7),
		't',
		'nor does one that comes after the fleet was founded again');
	$_->stop foreach $one, $late;
	return;
}

1;
