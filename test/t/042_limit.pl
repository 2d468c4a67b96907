# No ID is beyond the stored reservation, to the exact tick, and none is further
# ahead of the clock than max_lead: minted one by one, in batches, and after the
# postmaster has died.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest;
use Test::More;
use Time::HiRes qw(time);

# Four IDs in a tick of a millisecond, so that whoever mints meets every tick.
my $node = minting_node(
	'main', conf => q{
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
		$node, "SET snowflake.max_wait = '100ms'; DO \$\$ BEGIN LOOP $sql; END LOOP; END \$\$",
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
	my $busy;
	{
		local %ENV = $node->_get_env();
		$busy = IPC::Run::start(
			[
				$node->installed_command('psql'), '-XAtq', '-c', 'SET snowflake.max_wait = 0', '-c',
				q{
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
				END $$}, 'postgres'
			],
			'2>',
			$output);
	}
	wait_until('the keeper waits for a standby',
		sub { waits($node, 'snowflake keeper', 'SyncRep') });
	$stored = status($node, 'extract(epoch FROM reserved_until)');
	$node->kill9;
	$killed = time;
	$busy->finish;
	($last) = slurp_file($output) =~ /.*at ([\d.]+)/s;
	last if $last > $killed || $last > $stored;
	note "all that was stored was minted before the postmaster was dead";
	start_after_kill($node);
}
cmp_ok($last, '>', $killed, 'a dead postmaster: a busy backend mints on');
cmp_ok($last, '<=', $stored, 'a dead postmaster: no ID is past what is stored');

done_testing();
