# No ID is past what is stored, to the last tick, and none is further ahead of the
# clock than max_lead: one by one, and in batches.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node start_after_kill status wait_for_mint);
use Test::More;
use Time::HiRes qw(time);

# Four IDs in a tick of a millisecond, so that whoever mints meets every tick.
my $node = new_node(
	'main', conf => q{
	snowflake.layout = 'time:43 node:18 sequence:2 epoch:2020-01-01T00:00:00Z'
	snowflake.max_lead = '5s'
	snowflake.reservation = '2s'
	wal_level = replica
	max_wal_senders = 1
});

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);

# A batch of seven seconds gets more than max_lead ahead of where it began, and
# has to wait.
my ($lead, $distinct) = split /\|/, $node->safe_psql(
	'postgres', q{
	SELECT max(snowflake_timestamp(id) - clock_timestamp()), count(DISTINCT id)
	FROM (SELECT snowflake_next_batch(28000) AS id) b});
is( $node->safe_psql(
		'postgres', "SELECT interval '$lead' BETWEEN interval '4 s' AND interval '5001 ms'"),
	't',
	'a batch is ahead of the clock by no more than max_lead') or diag($lead);
is($distinct, 28000, 'and has no ID twice, though what it gets last is early');

# The keeper cannot get at its table: what is reserved is minted to its last ID.
foreach my $how (
	[ 'one by one' => 'PERFORM snowflake_next()' ],
	[ 'in batches' => 'PERFORM snowflake_next_batch(4000)' ])
{
	my ($name, $sql) = @$how;
	my $session = $node->background_psql('postgres');

	wait_for_mint($node);
	$session->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
	my $stored = $session->query_safe(
		'SELECT reserved_until FROM snowflake_keeper.reservation WHERE node = 1');

	# a batch is held back by the limit, not by max_lead, if there is less left
	$node->poll_query_until('postgres', "SELECT clock_timestamp() + interval '4500 ms' > '$stored'")
	  or die "clock stands still";
	my $error = error_of(
		$node, qq{
		SET snowflake.max_wait = '100ms';
		SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s';
		DO \$\$ BEGIN LOOP $sql; END LOOP; END \$\$});
	is($error->{sqlstate}, '55000', "$name: minting ends");
	like($error->{message}, qr/reservation was not extended/, 'with the reservation');
	is( status($node, "concat_ws(' ', snowflake_timestamp(last_id), snowflake_sequence(last_id))"),
		"$stored 3",
		'the last ID is the last of what is stored');
	$session->query_safe('COMMIT');
	$session->quit;
}

# The postmaster dies while the keeper's commit waits for a standby, which ends the wait.
# A busy backend mints on for a while, to the end of what was stored before and no further:
# there it waits for the keeper, and finds that the postmaster is gone.  So it tells each
# ID at once, and it is slower than the clock, or it would wait for that.  Half of the
# reservation is left for that while; more, if this machine was too slow.
$node->safe_psql('postgres', q{ALTER SYSTEM SET snowflake.max_lead = '5ms'});
my ($killed, $last, $stored);
foreach my $reservation (6, 20, 60)
{
	$node->safe_psql('postgres', "ALTER SYSTEM SET snowflake.reservation = '${reservation}s'");
	foreach my $standby ('', 'nobody')
	{
		$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = '$standby'");
		$node->reload;
		wait_for_mint($node);
	}
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
	$node->poll_query_until('postgres',
		q{SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'}
	) or die "keeper does not wait for a standby";
	$stored = status($node, 'extract(epoch FROM reserved_until)');
	$node->kill9;
	$killed = time;
	$busy->finish;
	($last) = PostgreSQL::Test::Utils::slurp_file($output) =~ /.*at ([\d.]+)/s;
	last if $last > $killed || $last > $stored;
	note "all that was stored was minted before the postmaster was dead";
	start_after_kill($node);
}
cmp_ok($last, '>', $killed, 'a dead postmaster: a busy backend mints on');
cmp_ok($last, '<=', $stored, 'a dead postmaster: no ID is past what is stored');

done_testing();
