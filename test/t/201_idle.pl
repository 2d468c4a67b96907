# A server on which nothing is minted writes nothing for it.  One that mints
# as fast as it can commits at most two reservations a second, and nobody ever
# waits for them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of keeper_sleeps new_node status takes_less wait_for_mint);
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

# The first mint after that waits for the keeper, even if it may not wait: here for one that
# is stopped, since another may be quicker than the wait.
my ($served, $waited, $keeper_pid) = split /\|/,
  $node->safe_psql('postgres',
	'SELECT reservations, keeper_wait_total, keeper_pid FROM snowflake_stats, snowflake_status');
kill 'STOP', $keeper_pid;
is(error_of($node, 'SET snowflake.max_wait = 0; SELECT snowflake_next()')->{sqlstate},
	'55000', 'the keeper is stopped, and snowflake.max_wait is 0: an error');
is(status($node, "keeper_wait_total - '$waited' > '500 ms'"),
	't', 'the mint has waited for the keeper');
kill 'CONT', $keeper_pid;
ok($node->poll_query_until('postgres', "SELECT reservations > $served FROM snowflake_stats"),
	'which reserves for it when it goes on');

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

# Two sessions mint for four seconds.  Returns how many IDs and reservations a second that
# were, how often the keeper slept in a second, and how many mints waited for it.
my $counters =
  'SELECT reservations, keeper_waits, extract(epoch FROM clock_timestamp()) FROM snowflake_stats';

sub mint_together
{
	my @minters = map { $node->background_psql('postgres') } 1 .. 2;
	my $slept = keeper_sleeps($node) // 0;
	my ($reservations, $waits, $time) = split /\|/, $node->safe_psql('postgres', $counters);
	my $minted = 0;

	foreach my $minter (@minters)
	{
		$minter->{stdin} .= "CALL mint_for('4 s', NULL);\n";
		$minter->{run}->pump_nb;
	}
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
	my %rates = (
		minted => $minted / $seconds,
		reserved => ($reservations_then - $reservations) / $seconds,
		slept => ((keeper_sleeps($node) // 0) - $slept) / $seconds,
		waits => $waits_then - $waits);

	note(sprintf "%.0f IDs and %.2f reservations per second", @rates{qw(minted reserved)});
	return \%rates;
}

my $rates;
takes_less(
	1,
	'two sessions mint, and no mint waits for the keeper',
	sub { $rates = mint_together(); return $rates->{waits} });
cmp_ok($rates->{minted}, '>', 50_000, 'they mint at full rate');
cmp_ok($rates->{reserved}, '>', 0.1, 'the reservation is extended meanwhile');
cmp_ok($rates->{reserved}, '<=', 2, 'at most twice a second');
cmp_ok($rates->{slept}, '<', 50, 'the keeper is not woken all the time');

# Nor does one that mints now and then: it never is ahead of the clock, so nothing
# but what is left of the reservation has the keeper asked for more.
my $reserved;
takes_less(
	1,
	'minting now and then: no mint waits for the keeper',
	sub {
		my ($reservations, $waits) =
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
		$reserved = status($node, "reservations - $reservations");
		return status($node, "keeper_waits - $waits");
	});
cmp_ok($reserved, '>=', 2, 'the reservation is extended');

# What is reserved for longer than mints may use at a time is handed out piece by piece, and
# that needs no commit.
$node->safe_psql('postgres', q{ALTER SYSTEM SET snowflake.reservation = '1h'});
$node->safe_psql('postgres', q{ALTER SYSTEM SET snowflake.max_jump = '1s'});
$node->reload;
$node->poll_query_until('postgres',
	q{SELECT snowflake_next() IS NOT NULL AND max(reserved_until) > now() + interval '50 min' FROM snowflake_keeper.reservation}
) or die "no large reservation";
my $reservations = status($node, 'reservations');
$node->safe_psql('postgres', q{CALL mint_for('3 s', NULL)});
is(status($node, "reservations - $reservations"),
	0, 'a large reservation is not extended all the time');

# Who waits for a gate that stays closed has the keeper look now and then.
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = -1');
$node->reload;
$node->poll_query_until('postgres', q{SELECT gate ~ 'not set' FROM snowflake_status})
  or die "gate does not close";
my $slept = keeper_sleeps($node);
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
