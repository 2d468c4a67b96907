# A server on which nothing is minted writes nothing for it.  One that mints
# as fast as it can commits at most two reservations a second, and nobody ever
# waits for them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of keeper_sleeps new_node wait_for_mint);
use Test::More;

# Nothing else shall write WAL.
my $node = new_node(
	'main', conf => q{
	autovacuum = off
	checkpoint_timeout = 1h
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);

# Half of the reservation after the last mint the keeper would have something
# to do, if it was not for the idleness.  It has not when it is asleep.
sub asleep
{
	$node->poll_query_until('postgres',
		q{SELECT state = 'idle' AND wait_event_type = 'Extension' FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'}
	) or die "keeper does not sleep";
	return;
}

# What the keeper has done so far.  Its statistics are on time in this
# respect: "state_change" is in shared memory.
my $traces = q{
	SELECT pg_current_wal_insert_lsn(), reservations, a.state_change
	  FROM snowflake_stats AS s, pg_stat_activity AS a
	 WHERE a.backend_type = 'snowflake keeper'};

# Idle for longer than is ever reserved
asleep();
my $session = $node->background_psql('postgres');
$session->query_safe($traces);    # fills caches, which may tidy up pages
my $before = $session->query_safe($traces);
$node->poll_query_until('postgres',
	"SELECT clock_timestamp() > state_change + interval '4 s' FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'"
) or die "keeper does something all the time";
is($session->query_safe($traces),
	$before, 'idle for four seconds: no WAL, no reservation, no activity of the keeper');

# The first mint after that waits for the keeper, even if it may not wait.
my $waited = $node->safe_psql('postgres', 'SELECT keeper_wait_total FROM snowflake_stats');
$node->psql('postgres', 'SET snowflake.max_wait = 0; SELECT snowflake_next()');
is($node->safe_psql('postgres', "SELECT keeper_wait_total > '$waited' FROM snowflake_stats"),
	't', 'a mint with snowflake.max_wait 0 waits for the keeper');

# Also after a start, when nothing has been minted yet
$session->quit;
$node->restart;
$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
  or die "gate does not open";
asleep();
$session = $node->background_psql('postgres');
$session->query_safe($traces);
$before = $session->query_safe($traces);
$node->poll_query_until('postgres',
	"SELECT clock_timestamp() > state_change + interval '3500 ms' FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'"
) or die "keeper does something all the time";
is($session->query_safe($traces),
	$before, 'idle since the start: no WAL, no reservation, no activity of the keeper');
$session->quit;

# Two sessions mint as fast as they can.  The first ID after an idle time may
# have to wait for a reservation; from then on, none does.
$node->safe_psql(
	'postgres', q{
	CREATE PROCEDURE mint_for(duration interval, INOUT minted bigint) LANGUAGE plpgsql AS $$
	DECLARE
		ends timestamptz := clock_timestamp() + duration;
	BEGIN
		minted := 0;
		WHILE clock_timestamp() < ends LOOP
			PERFORM snowflake_next() FROM generate_series(1, 1000);
			minted := minted + 1000;
		END LOOP;
	END $$;
});
wait_for_mint($node);
my @minters = map { $node->background_psql('postgres') } 1 .. 2;

my $slept = keeper_sleeps($node);
my $counters =
  'SELECT reservations, keeper_waits, extract(epoch FROM clock_timestamp()) FROM snowflake_stats';
my ($reservations, $waits, $time) = split /\|/, $node->safe_psql('postgres', $counters);

foreach my $minter (@minters)
{
	$minter->{stdin} .= "CALL mint_for('4 s', NULL);\n";
	$minter->{run}->pump_nb;
}
my $minted = 0;
foreach my $minter (@minters)
{
	$minter->{run}->pump until $minter->{stdout} =~ /^(\d+)\n/m;
	$minted += $1 if $minter->{stdout} =~ /^(\d+)\n/m;
	$minter->{stdout} = '';
	$minter->quit;
}

my ($reservations_then, $waits_then, $time_then) = split /\|/,
  $node->safe_psql('postgres', $counters);
my $seconds = $time_then - $time;
my $rate = ($reservations_then - $reservations) / $seconds;
note(sprintf "%.0f IDs per second, %.2f reservations per second", $minted / $seconds, $rate);
cmp_ok($minted / $seconds, '>', 50_000, 'two sessions mint at full rate');
cmp_ok($rate, '>', 0.1, 'the reservation is extended meanwhile');
cmp_ok($rate, '<=', 2, 'at most twice a second');
is($waits_then - $waits, 0, 'and no mint waits for it');
SKIP:
{
	skip 'no /proc here', 1 if !defined $slept;
	cmp_ok((keeper_sleeps($node) - $slept) / $seconds,
		'<', 50, 'the keeper is not woken all the time');
}

# Nor does one that mints now and then: it never is ahead of the clock, so nothing
# but what is left of the reservation has the keeper asked for more.
($reservations, $waits) =
  split /\|/, $node->safe_psql('postgres', $counters);
$node->safe_psql(
	'postgres', q{
	DO $$
	DECLARE
		ends timestamptz := clock_timestamp() + interval '7 s';
	BEGIN
		PERFORM snowflake_next();
		WHILE clock_timestamp() < ends LOOP
			PERFORM pg_sleep(0.02), snowflake_next();
		END LOOP;
	END $$});
($reservations_then, $waits_then) =
  split /\|/, $node->safe_psql('postgres', $counters);
cmp_ok($reservations_then - $reservations,
	'>=', 2, 'minting now and then: the reservation is extended');
is($waits_then - $waits, 0, 'before anybody waits for it');

# Who waits for a gate that stays closed has the keeper look now and then.
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = -1');
$node->reload;
$node->poll_query_until('postgres', q{SELECT gate ~ 'not set' FROM snowflake_status})
  or die "gate does not close";
$slept = keeper_sleeps($node);
is(error_of($node, q{SET snowflake.max_wait = '2s'; SELECT snowflake_advance('0')})->{sqlstate},
	'55000', 'the gate stays closed: an error');
SKIP:
{
	skip 'no /proc here', 1 if !defined $slept;
	cmp_ok(keeper_sleeps($node) - $slept, '<', 50,
		'for which the keeper is not woken all the time');
}

$node->stop;
done_testing();
