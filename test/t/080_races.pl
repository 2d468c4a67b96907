# Races, forced by injection points: a mint that holds what it has read while the gate closes, the
# node ID changes, the reservation is extended, the floor is raised or another mint overtakes it.
# No ID comes twice, all ascend, and nobody who waits is forgotten.

use SnowflakeRaces;
use SnowflakeTest;

# A wake-up that gets lost must show: nobody gives up waiting before the test.
my ($node, $clock) = races_node(
	init => { allows_streaming => 1 },
	conf => q{
	snowflake.reservation = '10s'
	snowflake.max_lead = '1min'
	snowflake.max_jump = '15min'
	snowflake.jump_patience = 0
	snowflake.max_wait = '5min'
	autovacuum = off
});

# All IDs, in the order in which they were issued, and the newest
my @ids;
sub newest { return $ids[-1]; }

# The ID that a mint has got
sub id_of
{
	my ($mint) = @_;

	wait_until('it has an ID, or an error',
		sub { $mint->{run}->pump_nb; -s $mint->{ids} || $mint->{errors} ne '' });
	push @ids, @{ finish_minter($mint) };
	is($mint->{errors}, '', 'it has an ID');
	return newest();
}

sub next_id
{
	push @ids, mint($node);
	return newest();
}

# Wait until a mint waits for the keeper; it may have an ID instead, which is wrong.
sub waits_for_keeper
{
	my ($mint, $name) = @_;

	wait_until('the mint waits or has an ID',
		sub { -s $mint->{ids} || waiting($minter, 'SnowflakeKeeper') });
	is(-s $mint->{ids}, 0, $name);
	return;
}

sub node_of { return query($node, "SELECT snowflake_node('$_[0]')"); }

# The last ID of the tick of an ID, or of one some ms later
sub end_of_tick
{
	my ($id, $ms) = @_;

	return query($node,
		sprintf q{SELECT snowflake_upper_bound(snowflake_timestamp('%s') + interval '%d ms')},
		$id, $ms // 0);
}

sub set_node { return set_conf($node, 'snowflake.node_id' => $_[0]); }

# Close the gate, and have it opened for a node ID when a mint has asked for that, which has given up
# meanwhile: so the opening reserves time.  The keeper is on its way, to the point if there is one.
sub open_reserved
{
	my ($node_id, $point) = @_;

	set_node(-1);
	wait_for_gate($node, 'not set');
	my $pid = hold_keeper($node);
	set_node($node_id);
	is(refused($node, '1s')->{sqlstate}, '55000', 'a mint asks for the gate');
	attach($point) if defined $point;
	kill 'CONT', $pid;
	wait_for($keeper, $point) if defined $point;
	return;
}

my $mint;

# A mint that has read the clock and is stalled, while others go on by far more than
# max_lead: that is no clock that went back, and nothing to wait for.
next_id();
$mint = stop_at('snowflake-mint', undef, max_wait => 0);
foreach (1 .. 4)
{
	step_clock($clock, 20_000);
	next_id();
}
wake_all('snowflake-mint');
my $before = newest();
cmp_ok(id_of($mint), '>', $before, 'a mint that was stalled looks at the clock again');

# Two mints that have read the same newest position.  The clock is behind, so
# each takes the next one.
next_id();
step_clock($clock, -20_000);
$mint = stop_at('snowflake-mint-locked');
next_id();
is(newest(), $ids[-2] + 1, 'a mint overtakes another one');
wake_all('snowflake-mint-locked');
id_of($mint);
is(newest(), $ids[-2] + 1, 'which takes the position after that');

# The floor is raised while a mint is in flight.
$mint = stop_at('snowflake-mint-locked');
my $floor = end_of_tick(newest(), 5);
query($node, "SELECT snowflake_advance('$floor', force => true)");
pass('snowflake_advance() does not wait for a mint in flight');
wake_all('snowflake-mint-locked');
cmp_ok(id_of($mint), '>', $floor, 'which does not get an ID below the floor');

# A mint gets past the floor while the keeper is about to raise to it.
attach('snowflake-raise');
$floor = end_of_tick(newest(), 5);
error_of($node, "SET snowflake.max_wait = 0; SELECT snowflake_advance('$floor', force => true)");
wait_for($keeper, 'snowflake-raise');
step_clock($clock, 21_000);
cmp_ok(next_id(), '>', $floor, 'a mint passes the floor');
step_clock($clock, -21_000);
release('snowflake-raise');
next_id();
cmp_ok(newest(), '>', $ids[-2], 'and the keeper does not take that back');

# The reservation is extended while a mint is in flight.
$mint = stop_at('snowflake-mint-locked');
$floor = published() + 1;
query($node, "SELECT snowflake_advance('$floor', force => true)");
cmp_ok(published(), '>', $floor, 'the reservation is extended while a mint is in flight');
step_clock($clock, 60_000);
wake_all('snowflake-mint-locked');
cmp_ok(id_of($mint), '>', $floor, 'which sees it');

# It is extended after a mint has found it too short, and before that mint waits for it.
my $limit = published();
step_clock($clock, 45_000);
extend_until('snowflake-after-commit');
$mint = stop_at('snowflake-wait-for-keeper');
release('snowflake-after-commit');
wait_for_status($node, "snowflake_upper_bound(reserved_until) > $limit");
wake_all('snowflake-wait-for-keeper');
cmp_ok(id_of($mint), '>', $limit, 'an extension that comes before the wait for it is not missed');

# A backend that has asked for time is stopped before it wakes the keeper.  Others ask
# for the same, which is asked for already: each of them wakes it.
step_clock($clock, 75_000);
$mint = stop_at('snowflake-request');
is(status($node, 'reserved_until < clock_timestamp()'),
	't', 'a backend is stopped when it has asked: the keeper does not hear of that');
isnt(status($node, 'advice'), '', 'but the advice does');
is(refused($node, '1min')->{sqlstate}, '', 'a mint that waits wakes the keeper itself');
next_id();
wake_all('snowflake-request');
cmp_ok(id_of($mint), '>', $ids[-2], 'and the other one mints when it goes on');

# What is asked of the keeper during its round is for the next one, also if nobody
# is left who would ask again, and somebody asks for less.
extend_until('snowflake-after-commit');
my $advance_by =
  'SELECT snowflake_advance(snowflake_upper_bound(clock_timestamp() + interval %s), force => true)';
my $lower = stop_at('snowflake-raise-floor', sprintf $advance_by, q{'5 s'});
$floor = id_at($node, '10min');
is( error_of($node,
		"SET snowflake.max_wait = '100ms'; SELECT snowflake_advance('$floor', force => true)")
	  ->{sqlstate},
	'55000',
	'the keeper is at work: snowflake_advance() gives up');
wake_all('snowflake-raise-floor');
wait_for($minter, 'SnowflakeKeeper');
release('snowflake-after-commit');
wait_for_status($node, q{lead > '1min'});
cmp_ok(next_id(), '>', $floor, 'but is heard afterwards, and IDs go on above it');
step_clock($clock, 660_000);
$lower->quit;

# A floor that is raised when the gate is about to open, by somebody who found it
# open before, is not forgotten.
my $advance = stop_at('snowflake-raise-floor', sprintf $advance_by, q{'10min'});
open_reserved(6, 'snowflake-after-commit');
cmp_ok(reserved_for(6), '>', newest(), 'the next node ID has a reservation');
wake_all('snowflake-raise-floor');
wait_for($minter, 'SnowflakeKeeper');
release('snowflake-after-commit');
wait_for_status($node, q{lead > '1min'});
pass('a floor that is raised while the gate opens is heeded');
$advance->quit;
next_id();
step_clock($clock, 660_000);

# The node ID changes while a mint is in flight, in a tick that has no ID yet.
# The keeper waits for it before it stores where the old node ID ends, and
# nobody else gets in.
change_node_id($node, 1);
next_id();
step_clock($clock, 1_000);
$mint = stop_at('snowflake-mint-locked');
attach('snowflake-gate-closing');
attach('snowflake-after-commit');
set_node(2);
wait_for($keeper, 'snowflake-gate-closing');
my $newcomer = start_minter($node, 1);
waits_for_keeper($newcomer, 'the gate is closing: a new mint waits');
release('snowflake-gate-closing');
wait_for($keeper, 'snowflake');
wake_all('snowflake-mint-locked');
is(node_of(id_of($mint)), 1, 'the keeper waits for the one in flight, which has the old node ID');
wait_for($keeper, 'snowflake-after-commit');
is(reserved_for(1), end_of_tick(newest()), 'and its tick is the last that is stored for that');
is(-s $newcomer->{ids}, 0, 'the gate is still closed');
release('snowflake-after-commit');
is(node_of(id_of($newcomer)), 2, 'the other mint has the new node ID');

# A mint that has read the clock, and an open gate, but not locked it yet.
$mint = stop_at('snowflake-mint');
attach('snowflake-after-commit');
set_node(3);
wait_for($keeper, 'snowflake-after-commit');
wake_all('snowflake-mint');
waits_for_keeper($mint, 'a mint that looked at the gate before it closed looks again');
is(reserved_for(2), end_of_tick(newest()), 'the last tick of the old node ID is stored');
release('snowflake-after-commit');
is(node_of(id_of($mint)), 3, 'and the mint has the new one');

# The gate opens: nobody gets in before what it allows is committed, nor before it
# says how far.
open_reserved(4, 'snowflake-before-commit');
attach('snowflake-gate-opening');
$mint = start_minter($node, 1);
waits_for_keeper($mint, 'the reservation is not committed: a mint waits');
is(reserved_for(4), '', 'as nothing is stored');
release('snowflake-before-commit');
wait_for($keeper, 'snowflake-gate-opening');
cmp_ok(reserved_for(4), '>', newest(), 'it is committed');
is(-s $mint->{ids}, 0, 'the gate is opening: the mint still waits');
release('snowflake-gate-opening');
is(node_of(id_of($mint)), 4, 'and has the new node ID');

change_node_id($node, 1);
next_id();

# One that has its position keeps the node ID that it had then.
$mint = stop_at('snowflake-mint-unlocked');
change_node_id($node, 2);
wake_all('snowflake-mint-unlocked');
is(node_of(id_of($mint)), 1, 'a mint has the node ID that it had its position with');
change_node_id($node, 1);

# The order is to be given up while a mint is in flight, which makes that impossible.
set_conf($node, 'snowflake.max_lead' => '11min');
next_id();
step_clock($clock, -600_000);
open_reserved(5);
wait_for_status($node, "gate = 'open' AND node = 5");
$mint = stop_at('snowflake-mint-locked');
my $reset = start_statement($node, 'SELECT snowflake_restart_at_clock(5)');
wait_for($keeper, 'snowflake');
wake_all('snowflake-mint-locked');
id_of($mint);
finish_statement($reset);
like(
	$reset->{stderr},
	qr/ERROR:  snowflakes ahead of the clock may have been minted with node ID 5/,
	'a mint in flight is noticed by who gives up the order');
$reset->quit;
next_id();
set_conf($node, 'snowflake.max_lead' => '1min');
step_clock($clock, 600_000);
change_node_id($node, 1);

# A clean stop, as far as the keeper is concerned, while a mint is in flight: it waits for that before
# it stores the exact end, and even if the server dies right then nothing comes twice.
next_id();
step_clock($clock, 1_000);
$mint = stop_at('snowflake-mint-locked');
attach('snowflake-after-commit');
query($node, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE $keeper");
wait_for($keeper, 'snowflake');
wake_all('snowflake-mint-locked');
id_of($mint);
wait_for($keeper, 'snowflake-after-commit');
is( reserved_for(1),
	end_of_tick(newest()),
	'the keeper stops: the tick of the mint in flight is stored');
kill_postmaster($node);
step_clock($clock, -30_000);
start_after_kill($node, $clock);
wait_for_mint($node);
cmp_ok(next_id(), '>', $ids[-2], 'after a crash just then, IDs resume above it');
is(disorder(\@ids), 0, scalar(@ids) . ' IDs, all ascend');

done_testing();
