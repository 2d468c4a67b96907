# The clock of a running server jumps by more than snowflake.max_jump.  The jump is coasted
# through: no mint fails or waits for long, and IDs have the true time, until the jump is over, has
# lasted for snowflake.jump_patience or, if it is ahead, for a thousandth of its length, or an
# administrator accepts it.

use SnowflakeClock;
use SnowflakeTest;

my $server = SnowflakeClock->new('main');
my $node = $server->node;

sub logged
{
	my ($regexp, $what) = @_;

	return cmp_ok(log_count($node, $regexp), '>=', 1, $what);
}

# What is nothing but a lie for a while: by how much, for how long, and how long that would have
# to last
foreach my $case (
	[ 'an hour ahead', $hour, 50 * $second, '60\.000 s' ],
	[ 'an hour back', -$hour, 50 * $second, '60\.000 s' ],
	[ 'nine years ahead', 9 * $year, 90 * $second, '3\.3 days' ],
	[ 'beyond the end of the layout', 150 * $year, 90 * $second, '54\.8 days' ])
{
	my ($name, $ms, $lasts, $patience) = @$case;

	$server->mints("before it is $name", 0);
	$server->step($ms);
	$server->mints("the clock is $name: coasted through", -$ms);
	$server->wait_watched($lasts, 3);
	$server->mints('also when that lasts', -$ms);
	is(status($node, 'clock_state'), 'coasting', 'all the time');
	$server->step(-$ms);
	$server->mints('and when it is right nothing has happened', 0);
	is($server->clock_state, 'followed', 'as the status says');
	logged(qr/Minting snowflakes goes on as if it had not, for up to $patience/,
		'with how long it would have to last');
}
logged(qr/the clock is no longer 3600\.000 s (?:ahead|behind), after [\d.]+ m?s$/,
	'and that it is over');

# A jump that lasts is believed, ahead after a thousandth of it.
$server->mints('the clock is right', 0);
$server->step(2 * $day);
$server->mints('two days ahead', -2 * $day);
$server->wait_watched(170 * $second, 5);
is(status($node, 'clock_state'), 'coasting', 'not yet believed');
$server->wait_watched(4 * $second, 2);
is(status($node, 'clock_state'), 'followed', 'but when it has lasted for a thousandth');
$server->mints('IDs follow it', 0);
logged(qr/WARNING:  the clock that went ahead by 2\.0 days is believed, after 17[34]\.\d+ s/,
	'and the log tells');
$server->wait_ms($minute);
$server->step(-$hour);
$server->mints('an hour back', $hour);
$server->wait_ms($minute + $second);
wait_for_status($node, q{clock_state = 'followed'});
pass('which is believed when it has lasted for a minute, though nobody asks the keeper to look');
$server->mints('and IDs stand', $hour - $minute);
logged(qr/WARNING:  the clock that went back by 3600\.000 s is believed, after 6\d\.\d+ s/,
	'as the log tells');
$server->wait_ms(2 * $hour);
$server->mints('until the clock has caught up', 0);

# Another jump meanwhile has to last as well.
$server->step(20 * $minute);
$server->mints('a jump', -20 * $minute);
$server->wait_watched(40 * $second, 2);
$server->step($hour);
$server->wait_watched(40 * $second, 2);
is(status($node, 'clock_state'), 'coasting', 'the patience begins anew with another jump');
$server->wait_watched(40 * $second, 2);
is(status($node, 'clock_state'), 'followed', 'and ends as well');
$server->mints('IDs follow', 0);

# Believed by an administrator, also before the keeper has seen it.  It counts all the same, and
# for the log the clock went ahead, and is not one that had to wait.
my $offset = -s $node->logfile;
query($node, 'SELECT snowflake_stats_reset()');
$server->step($hour);
$server->believe;
is(status($node, q{concat_ws(' ', clock_state, clock_jump)}), 'followed',
	'a jump that is accepted');
$server->mints('is followed at once', 0);
$server->step(-2 * $hour);
$server->believe;
$server->mints('and so is one back: IDs stand', 2 * $hour);
is( status(
		$node,
		q{concat_ws(' ', clock_steps_ahead, clock_step_ahead_largest, clock_steps_back, clock_step_back_largest)}
	),
	'1 01:00:00 1 02:00:00',
	'both are counted');
is( log_count($node, qr/WARNING:  the clock went (?:ahead by 3600|back by 7200)\.000 s$/, $offset),
	2,
	'the log has both');
is(log_count($node, qr/ is believed, after/, $offset), 0, 'as what they are');
$server->wait_ms(3 * $hour);

# One mint just after the clock went ahead, and none until it is right again: that one had the true
# time, and a clock under which nothing was minted is worth nothing, however long it stood.
$server->step(2 * $day);
$server->mints('two days ahead', -2 * $day);
$server->wait_watched(200 * $second, 4);
is(status($node, 'clock_state'), 'followed', 'for 200 s');
$server->step(-2 * $day);
is($server->clock_state, 'followed', 'it is set right, and believed at once');
$server->mints('the next ID is of now', 0);

# A day without an ID: there is the boot clock to compare a step with, so nobody is told of a clock
# that has nothing to be compared with; and after hours without a look a jump is one.
$offset = -s $node->logfile;
$server->wait_ms(25 * $hour);
$server->step($second);
look($node);
$server->mints('a step after a day without an ID', 0);
is(log_count($node, qr/past the newest snowflake/, $offset),
	0, 'is not taken for the start of a machine');
$server->wait_ms(5 * $hour);
$server->step(15 * $second);
is($server->clock_state, 'coasting', 'after hours without a look a jump is one') if $^O eq 'linux';
like(
	error_of($node, 'SELECT snowflake_restart_at_clock(1)')->{message},
	qr/^the clock went ahead by .*, which is not believed$/,
	'by which the order is not given up');
$server->step(-15 * $second);
$server->mints('it is over', 0);

$server->stop;

done_testing();
