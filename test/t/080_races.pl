# Races, forced by injection points: a mint that holds what it has read while the gate closes, the
# node ID changes, the reservation is extended, the floor is raised or another mint overtakes it;
# a reservation that is committed but not published when the keeper or the server dies.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder duplicates error_of finish_minter finish_statement has_injection_points hold_keeper
  id_at kill_postmaster mint minting_node new_clock pass_days query refused set_conf
  start_after_kill start_minter start_statement status step_clock wait_for_gate wait_for_mint
  wait_for_query wait_for_status wait_until
);
use Test::More;

# A wake-up that gets lost must show: nobody gives up waiting before the test.
my $clock = new_clock('main');
my $node = minting_node(
	'main',
	clock => $clock,
	init => { allows_streaming => 1 },
	conf => q{
	snowflake.reservation = '10s'
	snowflake.max_lead = '1min'
	snowflake.max_jump = '15min'
	snowflake.jump_patience = 0
	snowflake.max_wait = '5min'
	restart_after_crash = on
	autovacuum = off
});
if (!has_injection_points($node))
{
	$node->stop;
	plan skip_all =>
	  'the server has no injection points, or the extension of that name is not installed';
}

# All IDs, in the order in which they were issued, and the newest
my @ids;

sub newest { return $ids[-1]; }

sub attach
{
	my ($point) = @_;

	query($node, "SELECT injection_points_attach('$point', 'wait')");
	return;
}

sub detach
{
	my ($point) = @_;

	query($node, "SELECT injection_points_detach('$point')");
	return;
}

# How many processes wait at a point, or for something else of that name.
my $keeper = q{backend_type = 'snowflake keeper'};
my $minter = q{backend_type = 'client backend'};

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
			$node->psql('postgres', "SELECT injection_points_wakeup('$point')");
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

# Let the one go on who waits at a point, to where it comes there again.
sub pass_once
{
	my ($point) = @_;

	query($node, "SELECT injection_points_wakeup('$point')");
	return;
}

# Start a mint, which stops at a point; others do not.
sub stop_mint_at
{
	my ($point, @params) = @_;

	attach($point);
	my $mint = start_minter($node, 1, @params);
	wait_for($minter, $point);
	detach($point);
	return $mint;
}

# The ID that it has got
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

# Start a process that mints until the server is gone.
sub start_minting
{
	my $minting = start_minter($node, 1_000_000);

	wait_until('it has an ID', sub { -s $minting->{ids} });
	return $minting;
}

sub node_of
{
	my ($id) = @_;

	return query($node, "SELECT snowflake_node('$id')");
}

# The last ID of the tick of an ID
sub end_of_tick
{
	my ($id) = @_;

	return query($node, "SELECT snowflake_upper_bound(snowflake_timestamp('$id'))");
}

# The last ID of the time that mints may use, and of that which is stored for a node ID
sub published
{
	return status($node, 'snowflake_upper_bound(reserved_until)');
}

sub stored
{
	my ($node_id) = @_;

	return query($node,
		"SELECT snowflake_upper_bound(reserved_until) FROM snowflake_keeper.reservation WHERE node = $node_id"
	);
}

sub set_node
{
	my ($node_id) = @_;

	set_conf($node, 'snowflake.node_id' => $node_id);
	return;
}

sub wait_for_node
{
	my ($node_id) = @_;

	wait_for_status($node, "gate = 'open' AND node = $node_id");
	return;
}

# Close the gate, and have it opened for a node ID when a mint has asked for that, which
# has given up meanwhile: so the opening reserves time.  The keeper is on its way when
# this returns, to the point if there is one.
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

# What is asked of the keeper while it extends the reservation
sub extend_until
{
	my ($point) = @_;

	attach($point);
	step_clock($clock, 75_000);
	refused($node, 0);
	wait_for($keeper, $point);
	return;
}

sub terminate_keeper
{
	query($node, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE $keeper");
	return;
}

# Kill the server, and start it by a clock that has moved.
sub crash
{
	my ($ms) = @_;

	kill_postmaster($node);
	step_clock($clock, $ms);
	start_after_kill($node, $clock);
	wait_for_mint($node);
	return;
}

my $mint;

# A mint that has read the clock and is stalled, while others go on by far more than
# max_lead: that is no clock that went back, and nothing to wait for.
next_id();
$mint = stop_mint_at('snowflake-mint', max_wait => 0);
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
$mint = stop_mint_at('snowflake-mint-locked');
next_id();
is(newest(), $ids[-2] + 1, 'a mint overtakes another one');
wake_all('snowflake-mint-locked');
id_of($mint);
is(newest(), $ids[-2] + 1, 'which takes the position after that');

# The floor is raised while a mint is in flight.
$mint = stop_mint_at('snowflake-mint-locked');
my $floor =
  query($node, "SELECT snowflake_upper_bound(snowflake_timestamp('$ids[-1]') + interval '5 ms')");
query($node, "SELECT snowflake_advance('$floor', force => true)");
pass('snowflake_advance() does not wait for a mint in flight');
wake_all('snowflake-mint-locked');
cmp_ok(id_of($mint), '>', $floor, 'which does not get an ID below the floor');

# A mint gets past the floor while the keeper is about to raise to it.
attach('snowflake-raise');
$floor =
  query($node, "SELECT snowflake_upper_bound(snowflake_timestamp('$ids[-1]') + interval '5 ms')");
error_of($node, "SET snowflake.max_wait = 0; SELECT snowflake_advance('$floor', force => true)");
wait_for($keeper, 'snowflake-raise');
step_clock($clock, 21_000);
cmp_ok(next_id(), '>', $floor, 'a mint passes the floor');
step_clock($clock, -21_000);
release('snowflake-raise');
next_id();
cmp_ok(newest(), '>', $ids[-2], 'and the keeper does not take that back');

# The reservation is extended while a mint is in flight.
$mint = stop_mint_at('snowflake-mint-locked');
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
$mint = stop_mint_at('snowflake-wait-for-keeper');
release('snowflake-after-commit');
wait_for_status($node, "snowflake_upper_bound(reserved_until) > $limit");
wake_all('snowflake-wait-for-keeper');
cmp_ok(id_of($mint), '>', $limit, 'an extension that comes before the wait for it is not missed');

# A backend that has asked for time is stopped before it wakes the keeper.  Others ask
# for the same, which is asked for already: each of them wakes it.
step_clock($clock, 75_000);
$mint = stop_mint_at('snowflake-request');
is(status($node, 'reserved_until < clock_timestamp()'),
	't', 'a backend is stopped when it has asked: the keeper does not hear of that');
isnt(status($node, 'advice'), '', 'but the advice does');
is(refused($node, '1min')->{sqlstate}, '', 'a mint that waits wakes the keeper itself');
next_id();
wake_all('snowflake-request');
cmp_ok(id_of($mint), '>', $ids[-2], 'and the other one mints when it goes on');

# What is asked of the keeper during its round is for the next one, also if nobody
# is left who would ask again, or if somebody asks for less.
foreach my $meanwhile ('nothing', 'a lower floor')
{
	my $lower;

	extend_until('snowflake-after-commit');
	if ($meanwhile eq 'a lower floor')
	{
		attach('snowflake-raise-floor');
		$lower = start_statement($node,
			q{SELECT snowflake_advance(snowflake_upper_bound(clock_timestamp() + interval '5 s'))});
		wait_for($minter, 'snowflake-raise-floor');
		detach('snowflake-raise-floor');
	}
	$floor = id_at($node, '10min');
	is( error_of($node,
			"SET snowflake.max_wait = '100ms'; SELECT snowflake_advance('$floor', force => true)")
		  ->{sqlstate},
		'55000',
		'the keeper is at work: snowflake_advance() gives up');
	if (defined $lower)
	{
		wake_all('snowflake-raise-floor');
		wait_for($minter, 'SnowflakeKeeper');
	}
	release('snowflake-after-commit');
	wait_for_status($node, q{lead > '1min'});
	pass("but is heard afterwards; meanwhile: $meanwhile");
	cmp_ok(next_id(), '>', $floor, 'and IDs go on above it');
	step_clock($clock, 660_000);
	$lower->quit if defined $lower;
}

# A floor that is raised when the gate is about to open, by somebody who found it
# open before, is not forgotten.
attach('snowflake-raise-floor');
my $advance = start_statement($node,
	q{SELECT snowflake_advance(snowflake_upper_bound(clock_timestamp() + interval '10min'), force => true)}
);
wait_for($minter, 'snowflake-raise-floor');
detach('snowflake-raise-floor');
open_reserved(6, 'snowflake-after-commit');
cmp_ok(stored(6), '>', newest(), 'the next node ID has a reservation');
wake_all('snowflake-raise-floor');
wait_for($minter, 'SnowflakeKeeper');
release('snowflake-after-commit');
wait_for_status($node, q{lead > '1min'});
pass('a floor that is raised while the gate opens is heeded');
$advance->quit;
next_id();
step_clock($clock, 660_000);

# A gate that opens after a mint has found it closed, and before that waits for it, is not
# missed; nor is it if it opens just when the wait is over, and there is time to mint with.
foreach my $case ([ undef, 'a gate that opens is not missed' ],
	[ '1s', 'nor one that opens when the time to wait is over' ])
{
	my ($max_wait, $name) = @$case;

	set_node(-1);
	wait_for_gate($node, 'not set');
	$mint =
	  stop_mint_at('snowflake-wait-for-keeper', defined $max_wait ? (max_wait => $max_wait) : ());
	open_reserved(1);
	wait_for_node(1);
	pass_days($clock, 2 / 86_400) if defined $max_wait;
	wake_all('snowflake-wait-for-keeper');
	is(node_of(id_of($mint)), 1, $name);
}

# The node ID changes while a mint is in flight, in a tick that has no ID yet.
# The keeper waits for it before it stores where the old node ID ends, and
# nobody else gets in.
step_clock($clock, 1_000);
$mint = stop_mint_at('snowflake-mint-locked');
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
is(stored(1), end_of_tick(newest()), 'and its tick is the last that is stored for that');
is(-s $newcomer->{ids}, 0, 'the gate is still closed');
release('snowflake-after-commit');
is(node_of(id_of($newcomer)), 2, 'the other mint has the new node ID');

# A mint that has read the clock, and an open gate, but not locked it yet.
$mint = stop_mint_at('snowflake-mint');
attach('snowflake-after-commit');
set_node(3);
wait_for($keeper, 'snowflake-after-commit');
wake_all('snowflake-mint');
waits_for_keeper($mint, 'a mint that looked at the gate before it closed looks again');
is(stored(2), end_of_tick(newest()), 'the last tick of the old node ID is stored');
release('snowflake-after-commit');
is(node_of(id_of($mint)), 3, 'and the mint has the new one');

# The gate opens: nobody gets in before what it allows is committed, nor before it
# says how far.
open_reserved(4, 'snowflake-before-commit');
attach('snowflake-gate-opening');
$mint = start_minter($node, 1);
waits_for_keeper($mint, 'the reservation is not committed: a mint waits');
is(stored(4), '', 'as nothing is stored');
release('snowflake-before-commit');
wait_for($keeper, 'snowflake-gate-opening');
cmp_ok(stored(4), '>', newest(), 'it is committed');
is(-s $mint->{ids}, 0, 'the gate is opening: the mint still waits');
my $reader = start_statement($node, 'SELECT count(*) FROM snowflake_frontier_holders()');
wait_for($minter, 'snowflake');
pass('and a reader of the newest position and its node ID does so, too');
release('snowflake-gate-opening');
finish_statement($reader);
$reader->quit;
is(node_of(id_of($mint)), 4, 'and has the new node ID');

# A mint has read an open gate, and the gate has closed and opened in between.
$mint = stop_mint_at('snowflake-mint');
set_node(1);
wait_for_node(1);
next_id();
wake_all('snowflake-mint');
is(node_of(id_of($mint)), 1, 'a mint that slept through a change of the node ID has the new one');
is(disorder(\@ids), 0, scalar(@ids) . ' IDs, all ascend');

# One that has its position keeps the node ID that it had then.
$mint = stop_mint_at('snowflake-mint-unlocked');
set_node(2);
wait_for_node(2);
wake_all('snowflake-mint-unlocked');
is(node_of(id_of($mint)), 1, 'a mint has the node ID that it had its position with');
set_node(1);
wait_for_node(1);

# The order is to be given up while a mint is in flight, which makes that impossible.
set_conf($node, 'snowflake.max_lead' => '11min');
next_id();
step_clock($clock, -600_000);
open_reserved(5);
wait_for_node(5);
$mint = stop_mint_at('snowflake-mint-locked');
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
set_node(1);
wait_for_node(1);

# A clean stop, as far as the keeper is concerned, while a mint is in flight:
# it waits for that before it stores the exact end, and even if the server dies
# right then nothing comes twice.
next_id();
step_clock($clock, 1_000);
$mint = stop_mint_at('snowflake-mint-locked');
attach('snowflake-after-commit');
terminate_keeper();
wait_for($keeper, 'snowflake');
wake_all('snowflake-mint-locked');
id_of($mint);
wait_for($keeper, 'snowflake-after-commit');
is(stored(1), end_of_tick(newest()), 'the keeper stops: the tick of the mint in flight is stored');
crash(-30_000);
cmp_ok(next_id(), '>', $ids[-2], 'after a crash just then, IDs resume above it');

# The keeper is terminated before the end of a node ID is committed: it stores that
# all the same.
attach('snowflake-before-commit');
set_node(2);
wait_for($keeper, 'snowflake-before-commit');
detach('snowflake-before-commit');
terminate_keeper();
wait_for_node(2);
is(stored(1), end_of_tick(newest()), 'terminated before an end is committed: it is stored');
next_id();

# It is told to stop while it waits for a mint in flight: what it begins then waits
# for no standby.
$mint = stop_mint_at('snowflake-mint-locked');
query($node, q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
set_node(1);
wait_for($keeper, 'snowflake');
my $pid = status($node, 'keeper_pid');
terminate_keeper();
wake_all('snowflake-mint-locked');
id_of($mint);
wait_for_query($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
pass('told to stop, the keeper waits for no standby');
query($node, 'ALTER SYSTEM RESET synchronous_standby_names');
$node->reload;
wait_for_node(1);
next_id();

# The keeper dies with a reservation that is not committed, or is but has not
# been published: no ID has made use of it.  Others mint all the time.  The
# next clock is behind what was stored, so nothing but that keeps the new IDs
# above the old ones; and not by more than max_lead, so nobody has to wait.
foreach my $point ('snowflake-before-commit', 'snowflake-after-commit')
{
	my $is_stored = $point =~ /after/;
	my $ms = $is_stored ? 30_000 : -30_000;

	foreach my $how ('keeper terminated', 'keeper killed', 'server killed')
	{
		my $minting = start_minting();
		extend_until($point);
		wait_until('the others are at the limit', sub { waiting($minter, 'SnowflakeKeeper') });
		my ($published, $stored) = (published(), stored(1));

		cmp_ok($stored, $is_stored ? '>' : '==',
			$published, "$point, $how: " . ($is_stored ? 'stored, not published' : 'not stored'));
		if ($how eq 'keeper terminated')
		{
			detach($point);
			terminate_keeper();
			wait_until('the others mint', sub { (published() || 0) > $published });
			query($node,
				q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT snowflake_next();'}
			);
		}
		elsif ($how eq 'keeper killed')
		{
			my $offset = -s $node->logfile;

			kill 'KILL', status($node, 'keeper_pid');
			step_clock($clock, $ms);
			$node->wait_for_log(qr/database system is ready to accept connections/, $offset);
			wait_for_mint($node);
		}
		else
		{
			crash($ms);
		}
		my $minted = finish_minter($minting);
		cmp_ok(scalar(@$minted), '>', 0, 'IDs have been minted');
		cmp_ok($minted->[0], '>', newest(), 'after the others');
		is(disorder($minted), 0, 'and ascend');
		push @ids, $minted->[-1];
		next_id();
		next if $how eq 'keeper terminated';
		cmp_ok($minted->[-1], '<=', $published, 'up to the limit');
		cmp_ok(newest(), '>', $stored, 'IDs go on above what was stored');
	}
}
is(disorder(\@ids), 0, scalar(@ids) . ' IDs, all ascend');

# Again and again, with several mints in flight at each change of the node ID
my @minting = map { start_minting() } 1 .. 4;
foreach my $node_id (11 .. 18)
{
	attach('snowflake-mint-locked');
	wait_for($minter, 'snowflake-mint-locked');
	detach('snowflake-mint-locked');
	set_node($node_id);
	wait_for($keeper, 'snowflake');
	wake_all('snowflake-mint-locked');
	wait_for_status($node, "gate = 'open' AND snowflake_node(last_id) = $node_id");
}
$node->stop('immediate');
my @minted = map { finish_minter($_) } @minting;
is(disorder($_), 0, scalar(@$_) . ' IDs of a session ascend') foreach @minted;
is(duplicates(@minted), 0, 'no ID is there twice');

done_testing();
