# What the judge of the clock remembers counts for as long as it is true, and no longer:
# a jump, a step back, and what IDs may be ahead.
# Time stands, so nothing depends on how long the machine takes.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder error_of finish_minter keeper_sleeps let_pass log_count new_clock new_node sleeps_of start_minter start_with_clock status step_clock
  stop_time wait_for_mint wait_for_status wait_until
);
use Test::More;

my $minute = 60_000;    # all times are in ms
my $hour = 60 * $minute;
my $node = new_node('main', conf => q{snowflake.max_wait = '10s'});
my $clock = new_clock('main');
my @ids;

# Mint; returns how far the ID is ahead of the clock, in ms.
sub mint
{
	push @ids, $node->safe_psql('postgres', 'SELECT snowflake_next()');
	return $node->safe_psql('postgres',
		"SELECT 1000 * extract(epoch FROM (\@\@ '$ids[-1]'::snowflake) - clock_timestamp())");
}

sub start
{
	start_with_clock($node, $clock);
	$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
	  or die 'gate does not open';
	return;
}

# The keeper looks at the clock.  Where the gate is open, this does nothing else.
sub look
{
	$node->safe_psql('postgres', 'SELECT snowflake_accept_database(none_exists => true)');
	return;
}

sub set
{
	my ($setting) = @_;

	$node->append_conf('postgresql.conf', $setting);
	$node->reload;
	return;
}

# Mint until the keeper has read the new setting, and that is refused; returns the error.
sub refused
{
	my $error;

	foreach my $try (1 .. 300)
	{
		$error = error_of($node, 'SELECT snowflake_next()');
		last if $error->{message} ne '';
	}
	return $error;
}

# How often, and by how much at most, the clock went ahead or back, rounded to minutes
sub steps
{
	my ($where) = @_;

	return status($node,
		"clock_steps_$where || ' ' || round(extract(epoch FROM clock_step_${where}_largest) / 60)");
}

start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);
stop_time($clock);
let_pass($clock, $hour);
mint();


# A step of the clock, more than a day after the newest ID: there is the boot clock to compare it
# with, so nobody is told of a clock that has nothing to be compared with.
my $offset = -s $node->logfile;
let_pass($clock, 25 * $hour);
step_clock($clock, 1_000);
look();
mint();
is(log_count($node, qr/past the newest snowflake/, $offset),
	0, 'a step after a day without an ID is not taken for the start of a machine');


# A jump is believed at the look that finds it.  It counts all the same, and for the log the
# clock went ahead, and is not one that had to wait until it was believed.
$offset = -s $node->logfile;
$node->safe_psql('postgres', 'SELECT snowflake_stats_reset()');
step_clock($clock, $hour);
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
is(steps('ahead'), '1 60', 'a jump that is accepted before the keeper has seen it counts');
mint();
step_clock($clock, -2 * $hour);
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
is(steps('back'), '1 120', 'and so does one back');
is( log_count($node, qr/WARNING:  the clock went (?:ahead by 3600|back by 7200)\.000 s$/, $offset),
	2,
	'the log has both');
is(log_count($node, qr/ is believed, after/, $offset), 0, 'as what they are');


# IDs stand ahead of the clock by two hours.  A smaller snowflake.max_ahead counts for them.
cmp_ok(mint(), '>', 1.9 * $hour, 'IDs are two hours ahead');
set("snowflake.max_ahead = '1h'");
my $error = refused();
is($error->{sqlstate}, '55000', 'snowflake.max_ahead is lowered: minting ends');
like(
	"$error->{hint} $error->{detail}",
	qr/^The clock went back by 7200\.000 s, .* It may be ahead by 3600\.\d+ s/,
	'with what it may be ahead now');

# Where IDs are refused, that does not wear off: they go on when they are ahead by no more.
foreach my $ms ((5 * $minute) x 12, $minute, $minute)
{
	let_pass($clock, $ms);
	look();
}
is(error_of($node, 'SELECT snowflake_next()')->{message},
	'', 'as soon as they are ahead by no more than that, minting goes on');
set("snowflake.max_ahead = '1d'");


# The clock has caught up.  What IDs are ahead by after that has another reason.
let_pass($clock, 3 * $hour);
cmp_ok(mint(), '<', $minute, 'the clock has caught up: IDs are of now');
look();
set('snowflake.max_ahead = 0');
$node->safe_psql('postgres',
	q{SELECT snowflake_advance(snowflake_lower_bound(clock_timestamp() + interval '90 min'), force => true)}
);
$error = refused();
like(
	$error->{hint},
	qr/^The generator was advanced by snowflake_advance\(\)\./,
	'a step back that is over is not to blame');

# One that is larger than the advance is.
step_clock($clock, -5 * $hour);
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
like(
	refused()->{hint},
	qr/^The clock went back by 18000\.000 s, /,
	'but one that is the larger part of the lead');
step_clock($clock, 5 * $hour);
look();
let_pass($clock, 2 * $hour);
set("snowflake.max_ahead = '1d'");
mint();


# The machine has started again, and the clock is set several times before there is an ID:
# the last setting counts.
$node->stop('immediate');
start();
foreach my $step ($hour, -30 * $minute, 20 * $minute)
{
	step_clock($clock, $step);
	look();
	isnt(status($node, 'clock_state'),
		'coasting', "the clock is set by $step ms before the first ID: it is followed");
}
step_clock($clock, 48 * $hour);
look();
is(status($node, 'clock_state'),
	'coasting', 'one that is more than a day past all there is: it is coasted through');
step_clock($clock, -48 * $hour);
look();
cmp_ok(abs(mint()), '<', $minute, 'the first ID has the time of the last setting');
step_clock($clock, $hour);
look();
is(status($node, 'clock_state'), 'coasting', 'after it a jump is a jump');
like(
	error_of($node, 'SELECT snowflake_restart_at_clock(' . status($node, 'node') . ')')->{message},
	qr/^the clock went ahead by .*, which is not believed$/,
	'by which the order is not given up');

# The machine has started with a clock that is two days behind all there is.
$node->stop('immediate');
step_clock($clock, -48 * $hour);
start_with_clock($node, $clock);
wait_for_status($node, q{gate = 'closed: the clock is not believed'});
foreach my $case (
	[ 'a clock that is two days behind is not believed when it has lasted', 0 ],
	[ 'nor is one that is two days past all there is, since that one was not', 96 * $hour ])
{
	my ($name, $step) = @$case;
	my $slept = keeper_sleeps($node);

	step_clock($clock, $step);
	let_pass($clock, 2 * $minute);
	wait_until('the keeper has looked again',
		sub { keeper_sleeps($node) > $slept + 3 || status($node, 'gate') eq 'open' });
	is(status($node, 'gate'), 'closed: the clock is not believed', $name);
}

# No look for an hour, and then a jump: it needs patience, however long nobody has looked.
$node->stop('immediate');
step_clock($clock, -48 * $hour);
start();
mint();
look();
let_pass($clock, $hour);
mint();
let_pass($clock, 5 * $hour);
step_clock($clock, 15_000);
look();
is(status($node, 'clock_state'), 'coasting', 'after hours without a look a jump is one')
  if $^O eq 'linux';
step_clock($clock, -15_000);
look();

# The clock jumps back while a mint waits for it, and so has had the keeper look already.
set('snowflake.max_ahead = 0');
$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.max_ahead') = '0'})
  or die 'setting is not read';
$node->safe_psql('postgres',
	q{SELECT snowflake_advance(snowflake_lower_bound(clock_timestamp() + interval '5 s'))});
my $waits = status($node, 'clock_waits');
my $refused = status($node, 'refused_clock');
my $waiting = start_minter($node, 1);
my $began = keeper_sleeps($node);
wait_until('a mint waits for the clock',
	sub { status($node, 'clock_waits') > $waits && keeper_sleeps($node) > $began + 3 });
my $keeper = status($node, 'keeper_pid');
my $pid = $node->safe_psql('postgres',
	q{SELECT pid FROM pg_stat_activity WHERE query ~ '^SELECT snowflake_next'});
kill 'STOP', $keeper;
step_clock($clock, -$hour);
my $slept_so_far = sleeps_of($pid);
wait_until('the mint has seen that, and asks the keeper again',
	sub { status($node, 'refused_clock') > $refused || sleeps_of($pid) > $slept_so_far + 5 });
kill 'CONT', $keeper;
wait_for_status($node, q{clock_state = 'coasting'});
let_pass($clock, 6_000);
is(scalar(@{ finish_minter($waiting) }), 1, 'a jump back during its wait does not end it')
  or diag($waiting->{errors});
step_clock($clock, $hour);
look();
let_pass($clock, $minute);

# A keeper that is stopped does not look: a mint gives up when its time is over.
mint();
$keeper = status($node, 'keeper_pid');
$refused = status($node, 'refused_clock + refused_keeper');
$waits = status($node, 'clock_waits');
kill 'STOP', $keeper;
step_clock($clock, -$hour);
$waiting = start_minter($node, 1);
wait_until('a mint waits for the keeper', sub { status($node, 'clock_waits') > $waits });
let_pass($clock, $minute);
wait_until('it is refused', sub { status($node, 'refused_clock + refused_keeper') > $refused });
is(scalar(@{ finish_minter($waiting) }), 0, 'a keeper that is stopped is not waited for endlessly');
kill 'CONT', $keeper;
step_clock($clock, $hour);
look();

# A clock that goes back faster than time passes: a mint that waits for it counts what it has
# waited already, though at each look the rest of its time would do.
$node->stop('immediate');
$node->append_conf(
	'postgresql.conf', q{
	snowflake.max_ahead = 0
	snowflake.max_jump = '1s'
	snowflake.jump_patience = 0
	snowflake.max_wait = '10s'});
start();
mint();
step_clock($clock, -6_000);
my $minter = start_minter($node, 1);
my $log_size = -s $node->logfile;
foreach my $round (1 .. 6)
{
	wait_for_status($node, "clock_steps_back >= $round");
	let_pass($clock, 1_000);
	step_clock($clock, -1_100);
}
ok( $node->wait_for_log(
		qr/ahead of the clock\n.* This call has waited [4-9]\.\d+ s, may wait 10000 ms/, $log_size),
	'a mint that has waited for a clock that goes back again and again is refused');
finish_minter($minter);

is(disorder(\@ids), 0, 'IDs ascend');
$node->stop('immediate');
done_testing();
