# Processes of one server that are stopped at injection points.  test/README.md says where those are.

package SnowflakeRaces;

use strict;
use warnings;

use Exporter 'import';
use SnowflakeTest qw(
  error_of has_injection_points minting_node new_clock query refused start_minter start_statement
  status step_clock wait_until
);
use Test::More ();

our @EXPORT = qw(
  attach detach extend_until published races_node release reserved_for stop_at $keeper $minter wait_for
  waiting wake_all
);

# Kinds of processes
our $keeper = q{backend_type = 'snowflake keeper'};
our $minter = q{backend_type = 'client backend'};

my ($node, $clock);

# A server that mints, and its clock.  The test is skipped if it has no injection points.  Parameters
# are those of minting_node().
sub races_node
{
	my (%params) = @_;

	$clock = new_clock('main');
	$node = minting_node('main', clock => $clock, %params);
	return ($node, $clock) if has_injection_points($node);
	$node->stop;
	Test::More::plan(skip_all =>
		  'the server has no injection points, or the extension of that name is not installed');
	return;
}

# Whoever comes to a point from now on stops there, or does something else.
sub attach
{
	my ($point, $action) = @_;

	return query($node, sprintf q{SELECT injection_points_attach('%s', '%s')},
		$point, $action // 'wait');
}

sub detach { return query($node, "SELECT injection_points_detach('$_[0]')"); }

# How many processes wait at a point, or for something else of that name
sub waiting
{
	my ($where, $event) = @_;

	return query($node,
		"SELECT count(*) FROM pg_stat_activity WHERE $where AND wait_event = '$event'");
}

sub wait_for
{
	my ($where, $event) = @_;

	wait_until("somebody is at $event", sub { waiting($where, $event) > 0 });
	return;
}

# Let everybody go on who waits at a point.
sub wake_all
{
	my ($point) = @_;

	wait_until(
		"nobody is at $point",
		sub {
			return 1 if waiting('true', $point) == 0;

			# may fail, because who was woken may not have left yet
			error_of($node, "SELECT injection_points_wakeup('$point')");
			return 0;
		});
	return;
}

# So, and those who come after them.
sub release
{
	my ($point) = @_;

	detach($point);
	wake_all($point);
	return;
}

# Start what stops at a point, a statement, or a mint of start_minter(); others do not stop there.
sub stop_at
{
	my ($point, $sql, %params) = @_;

	attach($point);
	my $started = defined $sql ? start_statement($node, $sql) : start_minter($node, 1, %params);
	wait_for($minter, $point);
	detach($point);
	return $started;
}

# Have the keeper extend the reservation, until it stops at a point.
sub extend_until
{
	my ($point) = @_;

	attach($point);
	step_clock($clock, 75_000);
	refused($node, 0);
	wait_for($keeper, $point);
	return;
}

# The last ID of the time that mints may use, and of that which is stored for a node ID
sub published { return status($node, 'snowflake_upper_bound(reserved_until)'); }

sub reserved_for
{
	my ($node_id) = @_;

	return query($node,
		"SELECT snowflake_upper_bound(reserved_until) FROM snowflake_keeper.reservation WHERE node = $node_id"
	);
}

1;
