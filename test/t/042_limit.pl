# No ID is beyond the stored reservation, to the exact tick, and none is further ahead of the clock
# than max_lead: minted one by one, in batches, and after the postmaster has died.  A reservation that
# is longer than snowflake.max_jump is used bit by bit, without a commit, to its end and no further.

use IPC::Run;
use SnowflakeTest;
use Time::HiRes qw(time);

# Four IDs in a tick of a millisecond, so that whoever mints meets every tick.
my $clock = new_clock('main');
my $node = minting_node(
	'main',
	clock => $clock,
	conf => q{
	snowflake.layout = 'time:43 node:18 sequence:2 epoch:2020-01-01T00:00:00Z'
	snowflake.max_lead = '5s'
	snowflake.reservation = '2s'
	wal_level = replica
	max_wal_senders = 1
});

# A batch of seven seconds gets more than max_lead ahead of where it began, and has to wait.
is( query(
		$node, q{
	SELECT max(snowflake_timestamp(id) - clock_timestamp()) BETWEEN '4 s' AND '5001 ms', count(DISTINCT id)
	FROM (SELECT snowflake_next_batch(28000) AS id) b}),
	't|28000',
	'a batch is ahead of the clock by no more than max_lead, and has no ID twice');

# The keeper cannot get at its table: what is reserved is minted to its last ID.
foreach my $sql ('PERFORM snowflake_next()', 'PERFORM snowflake_next_batch(4000)')
{
	wait_for_mint($node);
	my $locker = lock_reservation($node);
	my $stored =
	  $locker->query_safe('SELECT reserved_until FROM snowflake_keeper.reservation WHERE node = 1');

	wait_for_status($node, "reserved_until = '$stored'");

	# a batch is held back by the limit, not by max_lead, if there is less left
	wait_for_query($node, "SELECT clock_timestamp() + interval '4500 ms' > '$stored'");
	refuses(
		$node,
		"SET snowflake.max_wait = '100ms'; SET statement_timeout = '1min';
			DO \$\$ BEGIN LOOP $sql; END LOOP; END \$\$",
		'55000',
		"$sql: minting ends",
		message => qr/reservation was not extended/);
	is( status($node, "concat_ws(' ', snowflake_timestamp(last_id), snowflake_sequence(last_id))"),
		"$stored 3",
		'the last ID is the last of what is stored');
	$locker->quit;
}

# The postmaster dies while the keeper's commit waits for a standby, which ends the wait.
# A busy backend mints on for a while, to the end of what was stored before and no further:
# there it waits for the keeper, and finds that the postmaster is gone.  So it tells each
# ID at once, and it is slower than the clock, or it would wait for that.  Half of the
# reservation is left for that while; more, if this machine was too slow.
my ($killed, $last, $stored);
foreach my $reservation ('6s', '20s', '1min')
{
	set_conf(
		$node,
		'snowflake.max_lead' => '5ms',
		'snowflake.reservation' => $reservation,
		synchronous_standby_names => '');
	wait_for_mint($node);
	set_conf($node, synchronous_standby_names => 'nobody');
	my $output = PostgreSQL::Test::Utils::tempdir() . '/ids';
	my $mint = q{
		DO $$
		DECLARE
			ends timestamptz := clock_timestamp() + interval '120 s';
		BEGIN
			WHILE clock_timestamp() < ends LOOP
				BEGIN
					PERFORM count(*) FROM generate_series(1, 5000);
					RAISE NOTICE 'at %', extract(epoch FROM snowflake_timestamp(snowflake_next()));
				EXCEPTION WHEN OTHERS THEN
				END;
			END LOOP;
		END $$};
	my $busy =
	  start_client($node,
		[ qw(psql -XAtq -c), 'SET snowflake.max_wait = 0', '-c', $mint, 'postgres' ],
		'2>', $output);
	wait_until('the keeper waits for a standby',
		sub { waits($node, 'snowflake keeper', 'SyncRep') });
	$stored = status($node, 'extract(epoch FROM reserved_until)');
	$node->kill9;
	$killed = time;
	$busy->finish;
	($last) = slurp_file($output) =~ /.*at ([\d.]+)/s;
	last if $last > $killed || $last > $stored;
	note "all that was stored was minted before the postmaster was dead";
	start_after_kill($node, $clock);
}
cmp_ok($last, '>', $killed, 'a dead postmaster: a busy backend mints on');
cmp_ok($last, '<=', $stored, 'a dead postmaster: no ID is past what is stored');

# Mint; returns the ID's time in seconds.
sub time_of_mint { return query($node, 'SELECT extract(epoch FROM @@ snowflake_next())'); }

# All clocks go on by so many seconds.
sub pass_seconds { return pass_days($clock, $_[0] / 86_400); }

# How far the reservation of a node ID is stored, which somebody else has locked
sub stored_for
{
	my ($locker, $node_id) = @_;

	return $locker->query_safe(
		"SELECT extract(epoch FROM reserved_until) FROM snowflake_keeper.reservation WHERE node = $node_id"
	);
}

$node->append_conf(
	'postgresql.conf', q{
	synchronous_standby_names = ''
	snowflake.reservation = '10min'
	snowflake.max_jump = '2s'
	snowflake.max_wait = '30s'
});
start_after_kill($node, $clock);
wait_for_mint($node);
my $reservations = status($node, 'reservations');
foreach (1 .. 4)
{
	pass_seconds(50);
	mint($node);
}
is(status($node, 'reservations'),
	$reservations, 'less than half of ten minutes: mints go on without a commit');

# The clock jumps, within what is stored: the keeper looks at it before any mint follows.
my $before = time_of_mint();
step_clock($clock, 60_000);
cmp_ok(time_of_mint(), '<', $before + 40,
	'a mint does not follow a jump, though as much is stored');
step_clock($clock, -60_000);
ok(mint($node), 'and mints go on when it is over');

# To its end, while the keeper cannot commit
my $locker = lock_reservation($node);
$stored = stored_for($locker, 1);
my $time = time_of_mint();
while ($time + 60 < $stored)
{
	pass_seconds(50);
	$time = time_of_mint();
}
pass('the keeper cannot commit: mints go on near the end of what is stored');
pass_seconds(200);
like(refused($node)->{message}, qr/reservation was not extended/, 'and not past it');
$locker->quit;
ok(mint($node), 'the keeper can commit again');

# What was stored before an exact end does not count any more, where far less is reserved.
change_node_id($node, 2);
mint($node);
my $offset = -s $node->logfile;
set_conf($node, 'snowflake.reservation' => '5s');
$node->wait_for_log(qr/More is reserved than is needed/, $offset);
wait_for_mint($node);
$locker = lock_reservation($node);
$stored = stored_for($locker, 2);
pass_seconds(20);
refused($node) foreach 1 .. 3;
cmp_ok(status($node, 'extract(epoch FROM last_time)'),
	'<=', $stored, 'a shorter reservation: no ID is past what is stored');
$locker->quit;
wait_for_mint($node);
$last = mint($node);
$node->kill9;
start_after_kill($node, $clock);
wait_for_mint($node);
cmp_ok(mint($node), '>', $last, 'and after a crash they are above');

done_testing();
