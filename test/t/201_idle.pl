# A server on which nothing is minted writes nothing.  One that mints as fast
# as it can commits at most two reservations a second, and no mint ever waits
# for them.

use SnowflakeTest;

# Nothing else shall write WAL.
my $node = minting_node(
	'main', conf => q{
	autovacuum = off
	checkpoint_timeout = 1h
});

sub sql { return query($node, @_); }

# Look what the keeper does for so long after it has gone to sleep: half of the reservation after
# the last mint it would have something to do, if it was not for the idleness.  The time of
# "state_change" is in shared memory.
sub stays_idle
{
	my ($time, $what) = @_;
	my $keeper = q{FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'};
	my $traces = qq{SELECT pg_current_wal_insert_lsn(), (SELECT reservations FROM snowflake_stats),
		state_change $keeper};
	my $session = $node->background_psql('postgres');

	wait_for_query($node, "SELECT state = 'idle' AND wait_event_type = 'Extension' $keeper");
	$session->query_safe($traces);    # fills caches, which may tidy up pages
	my $before = $session->query_safe($traces);
	wait_for_query($node, "SELECT clock_timestamp() > state_change + interval '$time' $keeper");
	is($session->query_safe($traces),
		$before, "$what: no WAL, no reservation, no activity of the keeper");
	$session->quit;
	return;
}

stays_idle('4 s', 'idle for longer than is ever reserved');

# The first mint after that waits for the keeper, even if it may not wait: here for one that
# is stopped, since another may be quicker than the wait.
my ($served, $waited, $keeper_pid) = split /\|/,
  status($node, 'reservations, keeper_wait_total, keeper_pid');
kill 'STOP', $keeper_pid;
refuses(
	$node, 'SET snowflake.max_wait = 0; SELECT snowflake_next()',
	'55000', 'the keeper is stopped, and snowflake.max_wait is 0: an error');
is(status($node, "keeper_wait_total - '$waited' > '500 ms'"),
	't', 'the mint has waited for the keeper');
kill 'CONT', $keeper_pid;
wait_for_query($node, "SELECT reservations > $served FROM snowflake_stats");
pass('which reserves for it when it goes on');

# Also after a start, when nothing has been minted yet
$node->restart;
wait_for_query($node, q{SELECT gate = 'open' FROM snowflake_status});
stays_idle('3500 ms', 'idle since the start');

# A session mints as fast as it can.  The first ID after an idle time may
# have to wait for a reservation; from then on, none does.
sql(q{
	CREATE PROCEDURE mint_for(duration interval, INOUT minted bigint) LANGUAGE plpgsql AS $$
	DECLARE
		ends timestamptz := clock_timestamp() + duration;
	BEGIN
		minted := 0;
		WHILE clock_timestamp() < ends LOOP
			PERFORM snowflake_next() FROM generate_series(1, 1000);
			minted := minted + 1000;
		END LOOP;
	END $$});

# What is counted, and how much there was of it while a function ran
sub counters
{
	my $counters =
	  'reservations, keeper_waits, minted, extract(epoch FROM clock_timestamp())::float8';

	return (split(/\|/, status($node, $counters)), sleeps_of(status($node, 'keeper_pid')) // 0);
}

sub counted
{
	my ($function) = @_;
	my @before = counters();

	$function->();
	my @after = counters();
	return map { $after[$_] - $before[$_] } 0 .. 4;
}

my ($reserved, $waits, $minted, $seconds, $slept);
takes_less(
	1,
	'minting for three seconds: no mint waits for the keeper',
	sub {
		sql('SELECT snowflake_next()');
		($reserved, $waits, $minted, $seconds, $slept) =
		  counted(sub { sql(q{CALL mint_for('3 s', NULL)}) });
		return $waits;
	});
cmp_ok($minted, '>', 100_000, 'at full rate');
cmp_ok($reserved, '>', 0, 'the reservation is extended meanwhile');
cmp_ok($reserved, '<=', 1 + 2 * $seconds, 'at most twice a second');
cmp_ok($slept, '<', 50 * $seconds, 'the keeper is not woken all the time');

done_testing();
