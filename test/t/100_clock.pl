# The clock of a running server steps by no more than snowflake.max_jump, and is followed: a
# step of less than max_lead goes unnoticed; after a larger one, if IDs may not run ahead, a
# mint waits for as long as it may, or fails at once.  No ID is ever smaller than one minted
# before.

use SnowflakeClock;
use SnowflakeTest;

my $server = SnowflakeClock->new(
	'main', conf => q{
	snowflake.max_lead = '500ms'
	snowflake.max_jump = '2h'
	snowflake.max_ahead = 0
});
my ($node, $clock) = ($server->node, $server->clock);
my $is_ahead = qr/: the snowflake generator is .* ahead of the clock/;

# A table of steps, and what a mint that may not wait gets after each
foreach my $case (
	[ 0, 'right', 0 ],
	[ -400, 'back by less than max_lead: minting goes on, without waiting', 400 ],
	[ -1_100, 'back by more than max_lead: an error at once', $is_ahead ],
	[ 1_500, 'put right: minting goes on', 0 ],
	[ -$hour, 'back by an hour: an error', qr/: the snowflake generator is (?:3600|3599)\.\d+ s/ ],
	[ $hour, 'put right: minting goes on', 0 ],
	[ $hour, 'forward by an hour: minting goes on with the new time', 0 ])
{
	my ($ms, $what, $expected) = @$case;

	$server->step($ms);
	ref $expected
	  ? $server->refuses("the clock is $what", $expected)
	  : $server->mints("the clock is $what", $expected, 50);
}

# A mint that may wait does so until the lead is down to max_lead, and no longer.
$server->step(-1_500);
my $mint = $server->start_mint('1min');
$server->wait_ms(990);
is(-s $mint->{ids}, 0, 'back by more than max_lead: a mint waits');
$server->wait_ms(20);
is(scalar(@{ finish_minter($mint) }), 1, 'until the lead is down to max_lead');
$server->mints('as are those after it', 490, 11);

# The clock jumps back while a mint waits for it, and so has had the keeper look already: that
# jump is coasted through.
$server->wait_ms(1_000);
query($node,
	q{SELECT snowflake_advance(snowflake_lower_bound(clock_timestamp() + interval '5 s'))});
$mint = $server->start_mint('10s');
my $pid = query($node, q{SELECT pid FROM pg_stat_activity WHERE query ~ '^SELECT snowflake_next'});
my $keeper = hold_keeper($node);
$server->step(-3 * $hour);
my $slept = sleeps_of($pid);
wait_until('the mint has seen that, and asks the keeper again',
	sub { -s $mint->{ids} || $mint->{errors} ne '' || sleeps_of($pid) > $slept + 5 });
kill 'CONT', $keeper;
wait_for_status($node, q{clock_state = 'coasting'});
$server->wait_ms(6_000);
is(scalar(@{ finish_minter($mint) }), 1, 'a jump back during its wait does not end it')
  or diag($mint->{errors});
$server->step(3 * $hour);
is($server->clock_state, 'followed', 'the jump is over');

# A keeper that is stopped does not look: a mint gives up when its time is over, and names it.
$keeper = hold_keeper($node);
$server->step(-$hour);
$mint = $server->start_mint('10s');
$server->wait_ms(11_000);
finish_minter($mint);
like(
	$mint->{errors},
	qr/ERROR:  the snowflake keeper did not check the clock within 10000 ms\n.*HINT:  The keeper, process $keeper, has not answered for /s,
	'a keeper that is stopped is not waited for endlessly');
kill 'CONT', $keeper;
$server->step($hour);

# A clock that goes back faster than time passes: a mint that waits for it counts what it has
# waited already, though at each look the rest of its time would do.
$server->wait_ms(10_000);
$server->mints('the clock is right', 0);
query($node, 'SELECT snowflake_stats_reset()');
$server->step(-6_000);
$mint = $server->start_mint('10s');
foreach my $round (1 .. 6)
{
	wait_for_status($node, "clock_steps_back >= $round");
	$server->wait_ms(1_000);
	$server->step(-1_100);
}
is(scalar(@{ finish_minter($mint) }), 0, 'a clock that goes back again and again is given up');
like(
	$mint->{errors},
	qr/This call has waited [4-9]\.\d+ s of 10000 ms/,
	'by a mint that has waited for it');
$server->step(12_600);
start_time($clock);

# From here on time passes.  A wait can be interrupted.
takes_less(
	300,
	'a wait ends at most 100 ms after statement_timeout',
	sub {
		query($node, 'SELECT snowflake_next()');
		step_clock($clock, -8_000);
		my $error = error_of($node,
			"SET snowflake.max_wait = '20s'; SET statement_timeout = '200ms';\n\\timing on\nSELECT snowflake_next();"
		);
		step_clock($clock, 8_000);
		my ($waited) = $error->{stdout} =~ /^Time: ([0-9.]+) ms/m;
		is($error->{sqlstate}, '57014', 'statement_timeout ends a wait');
		cmp_ok($waited, '>=', 200, 'not before');
		return $waited;
	});

$server->stop;

# Ticks of a second with four IDs each, and no lead: whoever finds a tick used up gets an ID of the
# next one, but not before it is due; and none if that is longer than it may wait.  Mints may use
# as little of the reservation as possible, but the wait for the end of a tick is one for the clock.
my $slow_clock = new_clock('slow');
my $slow = minting_node(
	'slow',
	clock => $slow_clock,
	conf => q{
	snowflake.layout = 'time:31 node:3 sequence:2 tick:1s epoch:0'
	snowflake.max_lead = 0
	snowflake.reservation = '20s'
	snowflake.max_jump = '1s'
});
is( query(
		$slow, q{
	SELECT snowflake_stats_reset();
	SET snowflake.max_wait = '1min';
	SELECT count(*) FROM (SELECT snowflake_next() AS id FROM generate_series(1, 9) OFFSET 0) m
		WHERE @@ id > clock_timestamp();
	SELECT clock_wait_total > '0.8s', keeper_wait_total < clock_wait_total / 2 FROM snowflake_stats}),
	"\n0\nt|t",
	'nobody gets an ID before its time, and the wait for that is one for the clock');
is( error_of($slow,
		'SET snowflake.max_wait = 0; SELECT count(snowflake_next()) FROM generate_series(1, 9)')
	  ->{sqlstate},
	'55000',
	'nor has to wait longer than max_wait for it');

done_testing();
