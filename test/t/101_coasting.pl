# The clock lies, in both directions, while IDs are minted.  Nobody waits for
# long, no mint fails, and IDs stay near the true time, until a jump has lasted
# or an administrator believes it.
#
# A short run by default.  With SNOWFLAKE_CLOCK_FULL=1, which takes three minutes and a
# machine that has nothing else to do, lies last for longer, under a load of half of
# what the layout has, and no mint may wait for 100 ms.

use strict;
use warnings;

# which is also how long a session may live
BEGIN { $ENV{PG_TEST_TIMEOUT_DEFAULT} = 600 if $ENV{SNOWFLAKE_CLOCK_FULL} }

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(
  disorder finish_minter get_clock log_count new_clock new_node pass_days
  start_minter start_with_clock status step_clock wait_for_mint
);
use Test::More;
use Time::HiRes qw(clock_gettime sleep time CLOCK_MONOTONIC);

my $second = 1_000;    # all times are in ms
my $hour = 3_600 * $second;
my $day = 24 * $hour;
my $full = $ENV{SNOWFLAKE_CLOCK_FULL};

my $node = new_node(
	'main',
	conf => q{
	snowflake.reservation = '2s'
});
my $clock = new_clock('main');
my $session;
my @ids;

sub start
{
	start_with_clock($node, $clock);
	$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
	  or die "gate does not open";
	$session = $node->background_psql('postgres', on_error_stop => 0);
	return;
}

# Mint; returns how far the ID is ahead of the true time.  The layout's epoch is
# that of Unix, so that needs no conversion.
sub mint
{
	$session->{stderr} = '';
	my $id = $session->query('SELECT snowflake_next()');
	my $error = $session->{stderr};

	BAIL_OUT("a session cannot mint: $error") if $id !~ /^[0-9]+$/ && $error eq '';
	return undef if $error ne '';
	push @ids, $id;
	return ($id >> 22) - time * 1000;
}

# Half of the IDs that the layout has, for so many seconds.  pgbench keeps its pace by
# the true clock.
sub half_load
{
	my ($seconds) = @_;
	my $script = PostgreSQL::Test::Utils::tempdir() . '/half.sql';
	my $load = { output => '' };

	PostgreSQL::Test::Utils::append_to_file($script,
		'SELECT count(snowflake_next()) FROM generate_series(1, 5120);');
	local %ENV = $node->_get_env();
	$load->{run} = IPC::Run::start(
		[
			$node->installed_command('pgbench'),
			'-n', '-c', 2, '-j', 2, '-R', 400, '-T', int($seconds + 0.999),
			'-M', 'prepared', '-f', $script, 'postgres'
		],
		'>',
		\$load->{output},
		'2>',
		\$load->{output});
	return $load;
}

# Mint for so long, and step the clock by each of these in turn meanwhile.  No mint
# fails, and IDs ascend.  Returns whether they were near the true time and nobody
# waited for long.
sub mint_while
{
	my ($name, $ms, $pause_ms, @steps) = @_;
	my $start = clock_gettime(CLOCK_MONOTONIC);
	my $next = 0;
	my ($failed, $least, $most) = (0, 0, 0);
	my $load = start_minter($node, 3_000);
	my $half = $full && half_load($ms / 1000);

	$node->safe_psql('postgres', 'SELECT snowflake_stats_reset()');
	for (;;)
	{
		my $elapsed = (clock_gettime(CLOCK_MONOTONIC) - $start) * 1000;

		last if $elapsed > $ms && !@steps;
		if (@steps && $elapsed > $next)
		{
			step_clock($clock, shift @steps);
			$next += $pause_ms;
		}
		my $ahead = mint();
		if (defined $ahead)
		{
			$least = $ahead if $ahead < $least;
			$most = $ahead if $ahead > $most;
		}
		else
		{
			$failed++;
			diag($session->{stderr});
		}
	}
	is($failed, 0, "$name: no mint fails");
	is(disorder(finish_minter($load)), 0, "$name: another session's IDs ascend");

	if ($half)
	{
		$half->{run}->finish;
		my ($transactions) = $half->{output} =~ /actually processed: (\d+)/;
		my ($failures) = $half->{output} =~ /failed transactions: (\d+)/;

		ok($half->{run}->result(0) == 0 && !$failures, "$name: nor does one of the load's")
		  or diag($half->{output});
		note(sprintf '%s: %.2f million IDs a second',
			$name, 5_120 * $transactions / ($ms / 1000) / 1e6);
	}

	# The server's own count of the waits: they are of 1 to 30 ms.  What the step
	# alone would have been waited for is more.
	my $most_ms = $full ? 100 : $name eq 'a leap second' ? 900 : 1_900;
	my $longest = status($node,
		q{1000 * extract(epoch FROM greatest(clock_wait_longest, keeper_wait_longest))});

	diag("$name: the longest wait was $longest ms") if $full;
	note("$name: IDs were ahead by $least to $most ms, the longest wait was $longest ms");
	return $least > -3 * $second && $most < 3 * $second && $longest < $most_ms;
}

# Let so many seconds pass.
sub pass_seconds
{
	pass_days($clock, $_[0] / 86_400);
	return;
}

$node->append_conf('postgresql.conf',
	q{snowflake.layout = 'time:41 node:10 sequence:12 epoch:1970-01-01T00:00:00Z'});
start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);
$session = $node->background_psql('postgres', on_error_stop => 0);
mint();

my @full = (
	[ 'an hour ahead', 22_000, 20_000, $hour, -$hour ],
	[ 'a day ahead, shortly', 3_000, 200, $day, -$day ],
	[ 'an hour back', 22_000, 20_000, -$hour, $hour ],
	[ 'a leap second', 21_000, 0, -$second ],
	[ 'to and fro', 60_000, $second, (2 * $second, -2 * $second) x 30 ]);

foreach my $case (
	$full ? @full : (),
	[ 'an hour ahead', 2_500, 1_500, $hour, -$hour ],
	[ 'a day ahead, shortly', 1_200, 200, $day, -$day ],
	[ 'an hour back', 2_500, 1_500, -$hour, $hour ],
	[ 'a leap second', 1_200, 0, -$second ],
	[ 'to and fro', 3_000, 400, (2 * $second, -2 * $second) x 3 ],
	[ 'fro and to', 3_000, 400, (-2 * $second, 2 * $second) x 3 ],
	[ 'beyond the end of the layout, shortly', 1_200, 200, 60 * 365 * $day, -60 * 365 * $day ])
{
	my ($name, @params) = @$case;

	# A machine that has other things to do as well may stall whoever measures, but
	# not each time.
	my $good = 0;

	for (my $attempt = 0; !$good && $attempt < 3; $attempt++)
	{
		$good = mint_while($name, @params);
	}
	ok($good, "$name: no ID is far from the true time, and no mint waits for long");
}

cmp_ok(
	log_count(
		$node,
		qr/the clock is no longer (?:\d{4,}\.\d+ s|[\d.]+ days) (?:ahead|behind), after [\d.]+ m?s$/
	),
	'>=', 4,
	'the log tells that jumps are over');
is(log_count($node, qr/the clock is no longer \d{1,3}\.\d+ m?s/),
	0, 'and nothing of the kind of steps');

# IDs stand ahead of a clock that stepped back, and snowflake_accept_clock(), which has
# nothing to accept, does not take that away.
step_clock($clock, -8 * $second);
my $ahead = mint() - get_clock($clock);
cmp_ok($ahead, '>', 500, 'IDs are ahead of a clock that stepped back');
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
isnt(mint(), undef, 'and go on after snowflake_accept_clock()');
step_clock($clock, 8 * $second);

# What the status and the log tell of a jump that is not believed
step_clock($clock, $hour);
mint();
is(status($node, 'clock_state'), 'coasting', 'a jump: the clock is coasted through');
is(status($node, q{clock_jump BETWEEN interval '59 min 45 s' AND interval '1 h 15 s'}),
	't', 'by how much it went ahead is shown');
like(
	status($node, 'advice'),
	qr/^The clock went ahead by 3\d{3}\.\d+ s, .* ago, and is not believed: correct it, or believe it with snowflake_accept_clock\(\)\. If it stays there, it is believed in 5\d\.\d+ s\.$/,
	'with advice');
cmp_ok(log_count($node, qr/WARNING:  the clock went ahead by 3[56]\d{2}\.\d+ s$/m),
	'>=', 1, 'and the log has a warning');
cmp_ok(
	log_count($node, qr/DETAIL:  Minting snowflakes goes on as if it had not, for up to 60\.000 s/),
	'>=', 2, 'which says what becomes of it');

# A crash in the middle of it: what is reserved is near the true time, where the clock is by then.
$session->quit;
$node->stop('immediate');
step_clock($clock, -$hour);
start();
cmp_ok(abs(mint()), '<', 4 * $second, 'a crash while coasting: IDs of the true time');

# A clean stop in the middle of it, by a clock that stays wrong: it is believed,
# and nothing comes twice.
step_clock($clock, $hour);
mint();
$session->quit;
$node->stop('fast');
start();
cmp_ok(
	mint(), '>',
	$hour - 3 * $second,
	'a clean stop while coasting: the next start believes the clock');
step_clock($clock, -$hour);
cmp_ok(
	mint(), '>',
	$hour - 3 * $second,
	'a clock that goes back to the truth is not believed at once, either');

# Believed by an administrator: IDs stand, or where they may not, mints wait for the clock, which
# says since when.
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
is(status($node, q{clock_state <> 'coasting' AND clock_jump IS NULL}),
	't', 'snowflake_accept_clock() believes it');
isnt(mint(), undef, 'and IDs stand');
$node->append_conf('postgresql.conf', 'snowflake.max_ahead = 0');
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.max_ahead') = '0'})
  or die 'setting is not read';
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
$session->query(q{SET snowflake.max_wait = '100ms'});
is(mint(), undef, 'or mints would have to wait');
like(
	$session->{stderr},
	qr/the snowflake generator is 3\d{3}\.\d+ s ahead of the clock/,
	'for as long as it takes');
like(
	$session->{stderr},
	qr/HINT:  The clock went back by 3[56]\d{2}\.\d+ s, \d+\.\d+ m?s ago\. /,
	'and since when and how far the clock is back');
like(
	status($node, 'advice'),
	qr/^The clock went back by 3[56]\d{2}\.\d+ s, \d+\.\d+ m?s ago\. Check the server's clock\. .*inting goes on .*3[56]\d{2}\.\d+ s/,
	'as does the advice');

# A jump that lasts is believed, ahead after a thousandth of it: IDs follow it ahead, mints
# wait for it back.
$node->append_conf('postgresql.conf', q{snowflake.jump_patience = '3s'});
$node->reload;
step_clock($clock, $hour);
isnt(mint(), undef, 'a clock that catches up, where no ID was minted since, is believed at once');
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');    # the keeper has seen it
$session->query(q{SET snowflake.max_wait = '10s'});
mint();
step_clock($clock, $hour + 600 * $second);
cmp_ok(mint(), '<', $hour + 600 * $second, 'an hour and ten minutes ahead: coasting at first');
$node->poll_query_until('postgres',
	q{SELECT clock_state <> 'coasting' AND snowflake_next() IS NOT NULL FROM snowflake_status})
  or die "jump is not believed";
cmp_ok(mint() - get_clock($clock), '>', -3 * $second, 'IDs follow when it has lasted');
cmp_ok(
	log_count(
		$node,
		qr/WARNING:  the clock that went ahead by 4200\.\d+ s is believed, after (?:4\.[2-9]|[5-9]\.)\d+ s/
	),
	'>=', 1,
	'which is when it has lasted for a thousandth of it');
step_clock($clock, -2 * $second);
isnt(mint(), undef, 'from there on a small step back is followed');
isnt(status($node, 'clock_state'), 'coasting', 'and is no jump');
step_clock($clock, 2 * $second);
mint();
step_clock($clock, -$hour);
cmp_ok(mint(), '>', $hour / 2, 'an hour back: coasting at first');
$node->poll_query_until('postgres', q{SELECT clock_state <> 'coasting' FROM snowflake_status})
  or die "jump is not believed";
$session->query(q{SET snowflake.max_wait = '100ms'});
is(mint(), undef, 'mints wait when it has lasted');
like(
	$session->{stderr},
	qr/HINT:  The clock went back by \d+\.\d+ s, [3-9]\d*\.\d+ s ago[.;] /,
	'and say for how long it has been back');
is( log_count(
		$node, qr/WARNING:  the clock that went back by 3600\.\d+ s is believed, after \d+\.\d+ s/),
	1,
	'the log tells that it is believed');
$node->append_conf('postgresql.conf', q{snowflake.max_ahead = '1d'});

# A jump within what is reserved: mints may use no more of that than max_jump before the
# keeper has looked.
$session->quit;
$node->append_conf('postgresql.conf',
	"snowflake.reservation = '1min'\nsnowflake.jump_patience = '1min'");
$node->stop('fast');
step_clock($clock, $day);
start();
mint();
step_clock($clock, 40 * $second);
cmp_ok(
	mint() - get_clock($clock),
	'<',
	-20 * $second,
	'IDs do not follow a jump, though as much is reserved');
ok($node->poll_query_until('postgres', q{SELECT clock_state = 'coasting' FROM snowflake_status}),
	'but the keeper does not believe it for that');

# Another jump meanwhile has to last as well.
pass_seconds(40);
step_clock($clock, $hour);
$node->poll_query_until('postgres', q{SELECT clock_jump > '30 min' FROM snowflake_status})
  or die "jump is not seen";
pass_seconds(40);
mint();
is(status($node, 'clock_state'), 'coasting', 'the patience begins anew with another jump');
pass_seconds(40);
ok( $node->poll_query_until('postgres', q{SELECT clock_state <> 'coasting' FROM snowflake_status}),
	'and ends as well');

# A jump that is over, and much later another one to the same place
mint();
foreach my $jump ($hour, -$hour)
{
	my $state = $jump > 0 ? '=' : '<>';

	step_clock($clock, $jump);
	$node->poll_query_until('postgres',
		"SELECT snowflake_next() IS NOT NULL AND clock_state $state 'coasting' FROM snowflake_status"
	) or die "jump is not seen";
}
pass_seconds(70);
step_clock($clock, $hour);
mint();
is(status($node, 'clock_state'), 'coasting', 'a second jump to the same place has to last as well');
step_clock($clock, -$hour);
$node->poll_query_until('postgres',
	q{SELECT snowflake_next() IS NOT NULL AND clock_state <> 'coasting' FROM snowflake_status})
  or die "clock does not return";

# A step back and ahead again, under load: IDs stand, and nobody waits.
mint();
my $load = start_minter($node, 10_000);
$node->safe_psql('postgres', 'SELECT snowflake_stats_reset()');
step_clock($clock, -3 * $second);
mint();
cmp_ok(status($node, '1000 * extract(epoch FROM lead)'),
	'>', $second, 'IDs stand, and the lead shows by how much');
step_clock($clock, 3 * $second);
is(disorder(finish_minter($load)), 0, 'and taken back, under load: IDs ascend');
cmp_ok(status($node, '1000 * extract(epoch FROM clock_wait_longest)'),
	'<', $second, 'and nobody has waited');

is_deeply([ grep { $ids[$_] <= $ids[ $_ - 1 ] } 1 .. $#ids ],
	[], scalar(@ids) . ' IDs, each larger than the one before');

$session->quit;
$node->stop;
done_testing();
