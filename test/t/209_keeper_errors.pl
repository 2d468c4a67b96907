# An error ends a round of the keeper, and not the keeper: in any phase, with a lock held, or
# after the commit.  What it prevents is not published, and IDs go on ascending.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(!mint);
use Test::More;

my $clock = new_clock('main');
my $node = minting_node(
	'main',
	clock => $clock,
	conf => q{
	snowflake.reservation = '10s'
	snowflake.max_lead = '1min'
	snowflake.max_jump = '29s'
	snowflake.jump_patience = 0
});
if (!has_injection_points($node))
{
	$node->stop;
	plan skip_all =>
	  'the server has no injection points, or the extension of that name is not installed';
}

my (@ids, $keeper);

sub sql { return query($node, @_); }

sub mint
{
	push @ids, sql(q{SET snowflake.max_wait = '1min'; SELECT snowflake_next()});
	return $ids[-1];
}

# Time in which nobody mints: the next mint needs more to be reserved.
sub pass_time { return step_clock($clock, 75_000); }

sub set_node
{
	my ($node_id) = @_;

	sql("ALTER SYSTEM SET snowflake.node_id = $node_id");
	$node->reload;
	return;
}

sub published
{
	return status($node, q{CASE gate WHEN 'open' THEN snowflake_upper_bound(reserved_until) END});
}

mint();

# What the keeper does in each phase: what comes before, what makes it do that, and the node ID that
# mints have afterwards
my $mint = 'SELECT snowflake_next()';
my $floor = q{SELECT snowflake_advance(snowflake_upper_bound(clock_timestamp() + interval '30 s'))};
my $nothing = sub { };
my $close = sub { set_node(-1); wait_for_gate($node, 'not set') };
my $drop = sub { sql('DROP EXTENSION snowflake_keeper') };
my @phases = (
	[ 'extending', $nothing, \&pass_time, $mint, 1 ],
	[ 'passing a floor', $nothing, $nothing, $floor, 1 ],
	[ 'closing', $nothing, sub { set_node(2) }, $mint, 2 ],
	[ 'opening', $close, sub { set_node(1) }, $mint, 1 ],
	[ 'creating the table', \&pass_time, $drop, $mint, 1 ]);

foreach my $point ('snowflake-before-commit', 'snowflake-after-commit', 'snowflake-gate-opening')
{
	foreach my $phase (@phases)
	{
		my ($name, $prepare, $begin, $try, $node_id) = @$phase;
		next if $point eq 'snowflake-gate-opening' && $name !~ /^(?:closing|opening)$/;

		my $state = "$point, $name";
		my $offset = -s $node->logfile;

		set_node(1);
		wait_for_status($node, 'node = 1');
		mint();
		$keeper = status($node, 'keeper_pid');
		$prepare->();
		my $limit = published();
		sql("SELECT injection_points_attach('$point', 'error')");
		$begin->();
		wait_until(
			"$state: the keeper fails, twice",
			sub {
				error_of($node, "SET snowflake.max_wait = '100ms'; $try");
				return log_count($node, qr/ERROR:  error triggered for injection point $point/,
					$offset) > 1;
			});
		my $now = published();
		ok($now eq '' || $now eq $limit, "$state: nothing is published")
		  or diag("$now, before: $limit");
		like(
			status($node, 'advice'),
			qr/^The keeper's last attempt failed with SQLSTATE XX000\./,
			"$state: the advice says so");
		sql("SELECT injection_points_detach('$point')");
		my $id = mint();
		is(sql("SELECT snowflake_node($id)"), $node_id, "$state: minting goes on");
		is(status($node, 'keeper_pid'), $keeper, "$state: by the same keeper");
	}
}
is(disorder(\@ids), 0, scalar(@ids) . ' IDs, all ascend');

# Nothing of what failed holds a lock.
is(sql("SELECT count(*) FROM pg_locks WHERE pid = $keeper AND locktype <> 'virtualxid'"),
	'0', 'the keeper holds no lock');

# Told to end while an error keeps it from storing the end, it ends all the same: another one
# starts above what was reserved.
my $offset = -s $node->logfile;
sql(q{SELECT injection_points_attach('snowflake-before-commit', 'error')});
sql("SELECT pg_terminate_backend($keeper, 60000)");
is(log_count($node, qr/\[$keeper\] ERROR:  error triggered/, $offset),
	1, 'an error while the end is stored is reported once, and ends the keeper');
sql(q{SELECT injection_points_detach('snowflake-before-commit')});
mint();
isnt(status($node, 'keeper_pid'), $keeper, 'there is another one');
is(disorder(\@ids), 0, 'IDs ascend');

$node->stop;
done_testing();
