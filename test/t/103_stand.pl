# A clock that is right mints at once, whatever it was before, and whatever became of
# the server meanwhile: IDs that are ahead of it stand, and go on.  By how much they
# are ahead, people are told.  With snowflake.max_ahead = 0 they wait.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder error_of new_clock new_node start_time start_with_clock status step_clock
  stop_time wait_for_mint
);
use PostgreSQL::Test::Utils;
use Test::More;

my $second = 1_000;
my $hour = 3_600 * $second;
my $year = 365 * 24 * $hour;
my $node = new_node(
	'main', conf => q{
	snowflake.jump_patience = '1s'
	snowflake.max_wait = '10s'
	restart_after_crash = on
});
my $clock = new_clock('main');
my @ids;

start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);

# For how many ms mints have waited, as the server counts it: the time that it takes to
# connect is not in it
sub waited_ms
{
	return $node->safe_psql('postgres',
		'SELECT 1000 * extract(epoch FROM clock_wait_total + keeper_wait_total) FROM snowflake_stats'
	);
}

# Mint by hand; returns how far the ID is ahead of the server's clock, in ms.
sub mint
{
	my ($name, $most_ms) = @_;
	my $before = waited_ms();
	my ($rc, $output, $error) = $node->psql('postgres', 'SELECT snowflake_next()');
	my $waited = waited_ms() - $before;

	is($error, '', "$name: an ID");
	return 0 if $rc;
	cmp_ok($waited, '<', $most_ms // 900, sprintf '%s: soon, after %.0f ms', $name, $waited);
	push @ids, $output;
	return $node->safe_psql('postgres',
		"SELECT 1000 * extract(epoch FROM (\@\@ '$output'::snowflake) - clock_timestamp())");
}

sub until_open
{
	$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
	  or die 'gate does not open';
	return;
}

sub until_believed
{
	$node->poll_query_until('postgres',
		q{SELECT snowflake_next() IS NOT NULL AND clock_state <> 'coasting' FROM snowflake_status})
	  or die 'clock is not believed';
	return;
}

# A crash: as far ahead as was reserved, however long the machine takes for it.
stop_time($clock);
wait_for_mint($node);
$node->stop('immediate');
start_with_clock($node, $clock);
until_open();
my $lead = mint('crash');
cmp_ok($lead, '>', 0, 'crash: above what had been reserved');
cmp_ok($lead, '<', 3 * $second + 100, 'crash: and no further');
like(
	status($node, 'advice'),
	qr/^Snowflakes are .* ahead of the clock, which will catch up in about that time\. Minting goes on\.$|^$/,
	'crash: the advice says so');

# Several in a row, while no time passes, hardly add up.
foreach my $n (1 .. 3)
{
	$node->stop('immediate');
	start_with_clock($node, $clock);
	until_open();
	$lead = mint("crash $n of 3 in a row");
}
start_time($clock);
cmp_ok($lead, '<', 5 * $second, 'three crashes in a row: not far ahead');

# A step that is worn off survives a restart.
step_clock($clock, -9 * $second);
mint('back by 9 s');
$node->stop('fast');
start_with_clock($node, $clock);
until_open();
$lead = mint('back by 9 s, and a restart');
cmp_ok($lead, '<', 15 * $second, 'back by 9 s and a restart: no further ahead than that');

# Two steps
step_clock($clock, 9 * $second);
mint('ahead by 9 s');
step_clock($clock, -9 * $second);
mint('back by 9 s again');
step_clock($clock, -9 * $second);
mint('and again');
step_clock($clock, 18 * $second);
mint('ahead by 18 s');
until_believed();

# An hour ahead is believed, and was a lie: IDs stand.
step_clock($clock, $hour);
mint('an hour ahead');
until_believed();
mint('an hour ahead, believed');
step_clock($clock, -$hour);
mint('and back');
until_believed();
$lead = mint('which is believed');
cmp_ok($lead, '>', $hour - 60 * $second, 'IDs are ahead by an hour');
cmp_ok($lead, '<', $hour + 60 * $second, 'and no more');
like(
	status($node, 'advice'),
	qr/^Snowflakes are 1 hour|^Snowflakes are (?:59|60|3[56])/,
	'the advice has that');
my @many = split /\n/,
  $node->safe_psql('postgres', 'SELECT snowflake_next() FROM generate_series(1, 300000)');
is(disorder([ @ids, @many ]), 0, 'more than a tick has: they ascend');
push @ids, $many[-1];
$lead = mint('after that');
cmp_ok($lead, '<', $hour + 60 * $second, 'they have not run away');

# An hour ahead, where IDs are
step_clock($clock, $hour);
until_believed();
$lead = mint('an hour ahead, where IDs are');
cmp_ok($lead, '<', 2 * $second, 'is believed');

# Nobody stands further ahead than may be.
$node->append_conf('postgresql.conf', q{snowflake.max_ahead = '10min'});
$node->reload;
step_clock($clock, -$hour);
my $error;
foreach my $try (1 .. 300)
{
	$error = error_of($node, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()});
	last if $error->{message};
}
is($error->{sqlstate}, '55000', 'further ahead than max_ahead: an error');
like($error->{detail}, qr/It may be ahead by .*\(snowflake\.max_ahead\)/, 'which says so');
step_clock($clock, $hour);
mint('the clock is right again');

# 0: as strict as can be
$node->append_conf('postgresql.conf', 'snowflake.max_ahead = 0');
$node->reload;
mint('max_ahead = 0');
$node->stop('immediate');
start_with_clock($node, $clock);
until_open();
$lead = mint('max_ahead = 0: after a crash', 10_000);
cmp_ok($lead, '<', 100, 'an ID has no time ahead of the clock');
step_clock($clock, -2 * $second);
mint('max_ahead = 0: a step back by 2 s', 10_000);
step_clock($clock, 2 * $second);
$node->append_conf('postgresql.conf', q{snowflake.max_ahead = '1d'});

# A clock that cannot be is not believed.
$node->stop('fast');
start_with_clock($node, $clock);
until_open();
mint('before the boot');
$node->stop('immediate');
step_clock($clock, -6 * $year);
start_with_clock($node, $clock);
$node->poll_query_until('postgres',
	q{SELECT gate = 'closed: the clock is not believed' FROM snowflake_status})
  or die 'the clock is believed';
$error = error_of($node, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()});
like(
	$error->{message},
	qr/^the snowflake generator is .* ahead of the clock$/,
	'boot six years back: an error');
like(
	$error->{detail},
	qr/It may be ahead by .* Minting starts when the clock has advanced by another .*\./,
	'which says so');
like(
	status($node, 'advice'),
	qr/^Correct the server's clock\. If it is correct now, .* snowflake_accept_clock\(\)\. To go on at once, .*snowflake\.max_ahead to at least 189\d+ s .*snowflake_restart_at_clock\(\)/,
	'and the advice has the ways out');

# It is correct: it is believed, and then there is a way out.
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
like(
	error_of($node, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()})->{hint},
	qr/snowflake_restart_at_clock\(\)/,
	'a clock that is accepted: the hint has the way out');
step_clock($clock, 6 * $year);
$lead = mint('set right');
cmp_ok(abs($lead), '<', 10 * $second, 'at the right time');

# and after the end of the layout
$node->stop('immediate');
step_clock($clock, 150 * $year);
start_with_clock($node, $clock);
$node->poll_query_until('postgres',
	q{SELECT gate = 'closed: the clock is not believed' FROM snowflake_status})
  or die 'the clock is believed';
$node->stop('immediate');
start_with_clock($node, $clock);
step_clock($clock, -150 * $year);
$lead = mint('boot after the layout, a crash, set right', 5_000);
cmp_ok(abs($lead), '<', 10 * $second, 'at the right time');

# Three days ahead after the machine has started: believed, since nothing speaks against it
$node->stop('immediate');
step_clock($clock, 3 * 24 * $hour);
my $offset = -s $node->logfile;
start_with_clock($node, $clock);
until_open();
like(
	slurp_file($node->logfile, $offset),
	qr/WARNING:  the clock is (?:2\.9|3\.0) days past the newest snowflake, and is believed/,
	'a clock that is far past all IDs is believed with a warning');
mint('three days ahead');

# The clock was set ahead while the server was down: believed at once, since IDs that a
# copy of the files does not know of may have been minted by it.
$node->stop('immediate');
step_clock($clock, $hour);
start_with_clock($node, $clock);
until_open();
$lead = mint('an hour ahead, after a crash');
cmp_ok($lead, '>', -10 * $second, 'IDs follow at once');
is(status($node, 'clock_jump'), '', 'and nothing is coasted through');

# After snowflake_advance() there is no wait, which would be counted.
my (undef, undef, $told) = $node->psql('postgres',
	q{SELECT snowflake_advance(snowflake_upper_bound(last_time + interval '10 min'), force => true) FROM snowflake_status}
);
like(
	$told,
	qr/WARNING: .* ahead of the clock\nDETAIL:  Minting goes on,/,
	'snowflake_advance() tells that minting goes on');
my $waits = status($node, 'clock_waits');
mint('after snowflake_advance()');
is(status($node, 'clock_waits'), $waits, 'the first mint after snowflake_advance() does not wait');

is(disorder(\@ids), 0, scalar(@ids) . ' IDs, each larger than the one before');
$node->stop;

# Ticks of a second: what is reserved for IDs that stand reaches into the next one.
my $slow_clock = new_clock('slow');
my $slow = new_node(
	'slow', conf => q{
	snowflake.layout = 'time:31 node:10 sequence:22 tick:1s epoch:2020-01-01T00:00:00Z'
	snowflake.jump_patience = 0
	snowflake.max_wait = '5s'});
start_with_clock($slow, $slow_clock);
$slow->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($slow);
my $before = $slow->safe_psql('postgres', 'SELECT snowflake_next()');
foreach my $accident ('set back by an hour while the server is down', 'and a crash')
{
	$slow->stop('immediate');
	step_clock($slow_clock, -$hour) if $accident =~ /hour/;
	start_with_clock($slow, $slow_clock);
	my ($rc, $output, $told_of) =
	  $slow->psql('postgres', 'SELECT snowflake_next() FROM generate_series(1, 100)');
	is($told_of, '', "ticks of a second: $accident: minting goes on");
	my @after = split /\n/, $output;
	is(disorder([ $before, @after ]), 0, "ticks of a second: $accident: above");
	$before = $after[-1] // $before;
}
$slow->stop;
done_testing();
