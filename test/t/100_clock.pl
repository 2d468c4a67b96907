# The clock of a running server steps back and forth.  By less than max_lead
# nobody notices; by more, minting waits, if that takes no longer than
# max_wait; otherwise it is an error at once.  Never is an ID smaller than, or
# equal to, one minted before.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  error_of finish_minter get_clock let_pass new_clock new_node set_clock start_minter start_time
  start_with_clock status step_clock stop_clock stop_time takes_less wait_for_mint wait_until
);
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $hour = 3_600_000;    # all times are in ms
my $max_lead = 500;
my $max_wait = 3_000;

my $node = new_node(
	'main', conf => qq{
	snowflake.max_lead = '${max_lead}ms'
	snowflake.max_wait = '${max_wait}ms'
	snowflake.max_jump = '1s'
	snowflake.jump_patience = 0
	snowflake.max_ahead = 0
});
my $clock = new_clock('main');

start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);

my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('\set VERBOSITY verbose');

# Every ID that this test ever gets, in the order in which it gets them.
my @ids;

sub now_ms
{
	return clock_gettime(CLOCK_MONOTONIC) * 1000;
}

# Run a query; returns its output and what it printed as an error.
sub query
{
	my ($sql) = @_;

	$session->{stderr} = '';
	my $output = $session->query($sql);
	return ($output, $session->{stderr});
}

sub mint
{
	my ($output, $error) = query('SELECT snowflake_next()');

	push @ids, $output if $error eq '';
	return $error;
}

# Begin to mint, and wait until that is waited for.
sub begin_to_mint
{
	my ($pid) = query('SELECT pg_backend_pid()');

	$session->{stderr} = '';
	$session->{stdin} .= "SELECT snowflake_next();\n";
	$session->{run}->pump_nb;
	$node->poll_query_until('postgres',
		"SELECT state = 'active' AND wait_event IS NOT NULL AND query LIKE '%snowflake_next()%' FROM pg_stat_activity WHERE pid = $pid"
	) or die "session does not wait";
	return $pid;
}

# How far the newest ID is ahead of the server's clock.
sub lead
{
	my ($output) =
	  query("SELECT extract(epoch FROM (\@\@ '$ids[-1]'::snowflake) - clock_timestamp()) * 1000");
	return $output;
}

# The shim works: the server sees a step, and sees it in a running session.
mint();
step_clock($clock, 2 * $hour);
cmp_ok(lead(), '<', -1.9 * $hour, 'a running session sees the clock step');
step_clock($clock, -2 * $hour);

# From here on time stands, so nothing depends on how long the machine takes for it.  And
# who returns has not waited.
stop_time($clock);

# Less than max_lead: it goes on.  It would have to wait 400 ms otherwise.
mint();
step_clock($clock, -400);
is(mint(), '', 'clock back by less than max_lead: minting goes on, without waiting');
cmp_ok(lead(), '>', 0, 'ahead of the clock');

# More than max_lead: it waits until the lead is down to max_lead, and no longer.
step_clock($clock, -1500);
my $expected = lead() - $max_lead;
cmp_ok($expected, '>', 300, 'clock back by more than max_lead');
begin_to_mint();
let_pass($clock, $expected + 1);
my ($output) = $session->query('SELECT 1');
(my $id, $output) = split /\n/, $output;
is("$output $session->{stderr}", '1 ', 'minting goes on when the lead is down to max_lead');
push @ids, $id;
cmp_ok(lead(), '>', $max_lead - 5, 'not before');

# The same, but the session has less patience than that.
step_clock($clock, -1500);
query("SET snowflake.max_wait = '100ms'");
like(mint(), qr/ERROR/, 'a wait longer than max_wait is an error, and not waited for');
query('RESET snowflake.max_wait');
step_clock($clock, 1500);

# An hour back.
is(mint(), '', 'clock put right: minting goes on');
step_clock($clock, -$hour);
foreach my $try ('first', 'second')
{
	my $error = mint();

	like($error, qr/ERROR:  [0-9A-Z]{5}:/, "clock back by an hour: an error at once, $try try");
	like(
		$error,
		qr/\b(?:3600|3599|1:00:00|0?0:59:59)|\b(?:3600|3599)\d{3}\b/,
		'which says how far the IDs are ahead of the clock');
	unlike($error, qr/ERROR:  XX000/, 'and is not an internal error');
}
step_clock($clock, $hour);
is(mint(), '', 'clock put right: minting goes on');

# An hour forward, and back again.
step_clock($clock, $hour);
is(mint(), '', 'clock forward by an hour: minting goes on');
my $from_the_future = lead();
cmp_ok(abs($from_the_future), '<', 1000, 'with the new time in its IDs');
step_clock($clock, -$hour);
like(mint(), qr/ERROR/, 'and back: an error at once');
step_clock($clock, $hour);
is(mint(), '', 'and forward again: minting goes on');
start_time($clock);

# Waiting can be interrupted.  psql's own timing is finer than ours.
takes_less(
	300,
	'a wait ends at most 100 ms after statement_timeout',
	sub {
		mint();
		step_clock($clock, -8_000);
		my ($output, $error) = query(
			q{
			SET snowflake.max_wait = '20s';
			SET statement_timeout = '200ms';
			\timing on
			SELECT snowflake_next();
			\timing off
			RESET statement_timeout});
		step_clock($clock, 8_000);
		my ($waited) = $output =~ /^Time: ([0-9.]+) ms/m;
		like($error, qr/ERROR:  57014/, 'a wait ends at statement_timeout');
		cmp_ok($waited, '>=', 200, 'not before');
		return $waited;
	});

# For pg_cancel_backend() start the clock when the server runs it.
my $canceller = $node->background_psql('postgres');
takes_less(
	100,
	'within 100 ms',
	sub {
		mint();
		step_clock($clock, -8_000);
		my $pid = begin_to_mint();
		my $start = now_ms();
		$canceller->query_safe("SELECT pg_cancel_backend($pid)");
		$session->{run}->pump until $session->{stderr} =~ /ERROR:.*\n/;
		my $elapsed = now_ms() - $start;
		like($session->{stderr}, qr/ERROR:  57014/, 'a wait ends at pg_cancel_backend');
		step_clock($clock, 8_000);
		return $elapsed;
	});
$canceller->quit;

query('RESET snowflake.max_wait');
my $waits = status($node, 'clock_waits');
is(mint(), '', 'clock put right: the interrupted session mints');
is(status($node, 'clock_waits'), $waits, 'without waiting');
$session->quit;

is_deeply([ grep { $ids[$_] <= $ids[ $_ - 1 ] } 1 .. $#ids ],
	[], scalar(@ids) . ' IDs, each larger than the one before');

# Four sessions mint while the clock jumps between its true time and up to a
# second before it.  No wall clock can order their calls, but a sequence can:
# it is drawn from before and after each.
$node->safe_psql(
	'postgres', q{
	CREATE SEQUENCE moment;
	CREATE TABLE stop ();
	CREATE TABLE minted (session int, before bigint, id snowflake, after bigint);
	CREATE PROCEDURE mint_until_stopped(session int) LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			INSERT INTO minted VALUES
				(session, nextval('moment'), snowflake_next(), nextval('moment'));
			COMMIT;
			EXIT WHEN to_regclass('stop') IS NULL;
		END LOOP;
	END $$;
});
my @minters = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 4;
foreach my $n (1 .. @minters)
{
	$minters[ $n - 1 ]->{stdin} .= "CALL mint_until_stopped($n);\n";
	$minters[ $n - 1 ]->{run}->pump_nb;
}

my $true = get_clock($clock);
foreach my $back (0, 450, 0, 900, 300, 1000, 100, 0, 700, 1, 999, 500)
{
	set_clock($clock, $true - $back);

	# go on when each session has minted under this clock
	my $moment = $node->safe_psql('postgres', q{SELECT nextval('moment')});
	$node->poll_query_until('postgres',
		"SELECT count(DISTINCT session) = 4 FROM minted WHERE before > $moment")
	  or die "sessions do not mint";
}
set_clock($clock, $true);
$node->safe_psql('postgres', 'DROP TABLE stop');
foreach my $minter (@minters)
{
	is($minter->query('SELECT 1'), '1', 'session finished');
	is($minter->{stderr}, '', 'without an error');
	$minter->quit;
}

my ($count, $equal, $disorder) = split /\|/, $node->safe_psql(
	'postgres', q{
	SELECT count(*),
		   count(*) FILTER (WHERE id = previous),
		   count(*) FILTER (WHERE after < latest_start)
	  FROM (SELECT id, after, lag(id) OVER in_order AS previous,
				   max(before) OVER in_order AS latest_start
			  FROM minted
			WINDOW in_order AS (ORDER BY id ROWS UNBOUNDED PRECEDING)) AS ordered});
cmp_ok($count, '>=', 12 * 4, "$count IDs while the clock was jumping");
is($equal, 0, 'all distinct');
is($disorder, 0, 'a call that starts after another has returned has a larger ID');
is($node->safe_psql('postgres', "SELECT min(id) > '$ids[-1]' FROM minted"),
	't', 'and larger than all before');

$node->stop;

# Ticks of a second with four IDs each, and no lead: whoever finds a tick used up
# gets an ID of the next one, but not before it is due; and none if that is longer
# than it may wait.
my $slow = new_node(
	'slow', conf => q{
	snowflake.layout = 'time:33 node:3 sequence:2 tick:1s epoch:0'
	snowflake.max_lead = 0
});
my $slow_clock = new_clock('slow');
start_with_clock($slow, $slow_clock);
$slow->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($slow);
is( $slow->safe_psql(
		'postgres', q{
	SELECT count(*) FROM (SELECT snowflake_next() AS id FROM generate_series(1, 9) OFFSET 0) m
		WHERE @@ id > clock_timestamp()}),
	'0',
	'nobody gets an ID before its time');
is( error_of(
		$slow, q{
	SET snowflake.max_wait = 0;
	SELECT count(snowflake_next()) FROM generate_series(1, 9)})->{sqlstate},
	'55000',
	'nor has to wait longer than max_wait for it');

# The clock stands still, and the keeper, which would correct that, as well.
my $slow_keeper = status($slow, 'keeper_pid');
kill 'STOP', $slow_keeper;
stop_clock($slow_clock, 1);
is( error_of(
		$slow, q{
	SET snowflake.max_wait = '1s';
	SELECT count(snowflake_next()) FROM generate_series(1, 9)})->{sqlstate},
	'55000',
	'a clock that stands still is not waited for');
stop_clock($slow_clock, 0);
kill 'CONT', $slow_keeper;

# The clock goes far back while a mint waits for the next tick, whose ID it has already.  The keeper
# corrects that as soon as it can, and the wait is not one for the clock that went back.
wait_for_mint($slow);
stop_time($slow_clock);
my ($slow_waits, $minted) = split /\|/, status($slow, 'clock_waits, minted');
my $waiting;
{
	local $ENV{PGOPTIONS} = '-c snowflake.max_wait=1h';

	$waiting = start_minter($slow, 5);
}
wait_until('a mint waits', sub { status($slow, 'clock_waits') > $slow_waits });
$slow_keeper = status($slow, 'keeper_pid');
kill 'STOP', $slow_keeper;
step_clock($slow_clock, -10 * $hour);
my $waited = status($slow, 'clock_wait_total');
let_pass($slow_clock, 1_010);
wait_until('it looks at the clock', sub { status($slow, "clock_wait_total > '$waited'") eq 't' });
kill 'CONT', $slow_keeper;
wait_until(
	'all five are minted',
	sub {
		let_pass($slow_clock, 500);
		return status($slow, 'minted') >= $minted + 5;
	});
is(scalar(@{ finish_minter($waiting) }),
	5, 'a clock that goes back by hours while a mint waits for the next tick')
  or diag($waiting->{errors});
start_time($slow_clock);
$slow->stop;

# The longest tick, and the shortest time that mints may use of the reservation: the wait for
# its end is one for the clock.
my $long = new_node(
	'long', conf => q{
	snowflake.layout = 'time:31 node:3 sequence:2 tick:1s epoch:0'
	snowflake.max_lead = 0
	snowflake.reservation = '20s'
	snowflake.max_jump = '1s'
});
$long->start;
$long->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($long);
is( $long->safe_psql(
		'postgres', q{
	SELECT snowflake_stats_reset();
	SET snowflake.max_wait = '1min';
	SELECT count(snowflake_next()) FROM generate_series(1, 9);
	SELECT clock_wait_total > '0.8s', keeper_wait_total < clock_wait_total / 2 FROM snowflake_stats}),
	"\n9\nt|t",
	'a mint waits for the end of a long tick by the clock');
$long->stop;
done_testing();
