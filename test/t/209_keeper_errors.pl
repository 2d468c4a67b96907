# An error ends a round of the keeper, and not the keeper: in any phase, with a lock held, or
# after the commit.  What it prevents is not published, and IDs go on ascending.

use SnowflakeRaces;
use SnowflakeTest qw(!mint);

my ($node, $clock) = races_node(
	conf => q{
	snowflake.reservation = '10s'
	snowflake.max_lead = '1min'
	snowflake.max_jump = '29s'
	snowflake.jump_patience = 0
});
my (@ids, $keeper_pid);

sub sql { return query($node, @_); }

sub mint
{
	push @ids, sql(q{SET snowflake.max_wait = '1min'; SELECT snowflake_next()});
	return $ids[-1];
}

# Time in which nobody mints: the next mint needs more to be reserved.
sub pass_time { return step_clock($clock, 75_000); }

sub set_node { return set_conf($node, 'snowflake.node_id' => $_[0]); }

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

		change_node_id($node, 1);
		mint();
		$keeper_pid = status($node, 'keeper_pid');
		$prepare->();
		my $limit = published();
		attach($point, 'error');
		$begin->();
		wait_until(
			"$state: the keeper fails, twice",
			sub {
				error_of($node, "SET snowflake.max_wait = '100ms'; $try");
				return log_count($node, qr/ERROR:  error triggered for injection point $point/,
					$offset) > 1;
			});
		my $now = status($node, 'gate') eq 'open' ? published() : $limit;
		is($now, $limit, "$state: nothing is published");
		like(
			status($node, 'advice'),
			qr/^The keeper's last attempt failed with SQLSTATE XX000\./,
			"$state: the advice says so");
		detach($point);
		my $id = mint();
		is(sql("SELECT snowflake_node($id)"), $node_id, "$state: minting goes on");
		is(status($node, 'keeper_pid'), $keeper_pid, "$state: by the same keeper");
	}
}

# Nothing of what failed holds a lock.
is(sql("SELECT count(*) FROM pg_locks WHERE pid = $keeper_pid AND locktype <> 'virtualxid'"),
	'0', 'the keeper holds no lock');

# Told to end while an error keeps it from storing the end, it ends all the same: another one
# starts above what was reserved.
my $offset = -s $node->logfile;
attach('snowflake-before-commit', 'error');
sql("SELECT pg_terminate_backend($keeper_pid, 60000)");
is(log_count($node, qr/\[$keeper_pid\] ERROR:  error triggered/, $offset),
	1, 'an error while the end is stored is reported once, and ends the keeper');
detach('snowflake-before-commit');
mint();
isnt(status($node, 'keeper_pid'), $keeper_pid, 'there is another one');
is(disorder(\@ids), 0, scalar(@ids) . ' IDs, all ascend');

done_testing();
