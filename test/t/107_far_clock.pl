# A clock that is days or years off costs nothing that was not minted by it, and no node ID:
# it is coasted through for a thousandth of what it jumped ahead, and a clock under which
# nothing was minted is worth nothing.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder error_of let_pass log_count new_clock new_node start_with_clock status step_clock
  stop_time wait_for_mint wait_for_status wait_until
);
use Test::More;

my $second = 1_000;    # all times are in ms
my $day = 24 * 3_600 * $second;
my $year = 365 * $day;
my $clock = new_clock('main');
my $node = new_node('main');
my @ids;

# The keeper looks at the clock.
sub look
{
	$node->safe_psql('postgres', 'SELECT snowflake_accept_database(none_exists => true)');
	return;
}

# Mint without waiting; returns how far the ID is ahead of the true time, in ms, or the error.
# The true time is the server's, less what the clock is off.
my $off = 0;
my $session;

sub mint
{
	$session->{stderr} = '';
	my $output = $session->query(
		qq{SELECT round(1000 * extract(epoch FROM (\@\@ m.id) - clock_timestamp()) + $off) || ' ' || m.id
			FROM (SELECT snowflake_next() AS id OFFSET 0) m});

	return $session->{stderr} if $output !~ /^(-?\d+) (\d+)$/;
	push @ids, $2;
	return $1;
}

sub set_off
{
	my ($ms) = @_;

	step_clock($clock, $ms - $off);
	$off = $ms;
	return;
}

# For so many seconds, one at a time, mint; returns the errors and how far ahead IDs were at
# most.
sub mint_for
{
	my ($seconds) = @_;
	my ($errors, $most) = (0, 0);

	foreach (1 .. $seconds)
	{
		let_pass($clock, $second);
		my $ahead = mint();
		if ($ahead =~ /^-?\d+$/)
		{
			$most = $ahead if abs($ahead) > abs($most);
		}
		else
		{
			diag($ahead) if !$errors++;
		}
	}
	return "$errors errors, " . (abs($most) < 5 * $second ? 'of now' : "$most ms off");
}

sub start
{
	start_with_clock($node, $clock);
	$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
	  or die 'gate does not open';
	$session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_safe('SET snowflake.max_wait = 0');
	return;
}

sub stop
{
	$session->quit;
	$node->stop($_[0]);
	return;
}

start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);
$node->stop;
start();
stop_time($clock);
mint();

# Minting goes on while the clock is far ahead, and after it.
foreach
  my $case ([ 'nine years', 9 * $year, '3\.3 days' ], [ 'two days', 2 * $day, '172\.8\d\d s' ])
{
	my ($name, $ms, $patience) = @$case;

	set_off($ms);
	is(mint_for(90), '0 errors, of now', "the clock is $name ahead for 90 s: coasted through");
	is(status($node, 'clock_state'), 'coasting', 'all the time');
	cmp_ok(log_count($node, qr/Minting snowflakes goes on as if it had not, for up to $patience/),
		'>=', 1, 'the log has how long it would have to last');
	set_off(0);
	is(mint_for(90), '0 errors, of now', 'and when it is right nothing has happened');
}
set_off(2 * $day);
mint_for(10);
like(
	status($node, 'advice'),
	qr/^The clock went ahead by 2\.0 days, .* If it stays there, it is believed in 16\d\.\d+ s\.$/,
	'the advice has how long it has to last');
like(mint_for(170), qr/^0 errors, 17(?:2799|2800)\d{3} ms off$/, 'when it has, it is believed');
ok(abs(mint() - 2 * $day) < 5 * $second, 'and followed');
set_off(0);
look();
my $error = error_of($node, q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
mint_for(61);
$error = error_of($node, q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
like(
	$error->{hint},
	qr/in order and with the same node ID, .*snowflake\.max_ahead/,
	'it was wrong: the hint has that IDs may go on ahead of it');
like($error->{hint}, qr/snowflake_restart_at_clock\(\)/, 'and that they need not');
like(
	status($node, 'advice'),
	qr/snowflake\.max_ahead.*snowflake_restart_at_clock\(\)/,
	'so has the advice');
my $newest = $ids[-1];
$node->append_conf('postgresql.conf', q{snowflake.max_ahead = '3d'});
$node->reload;
wait_until('minting goes on', sub { mint() =~ /^\d+$/ });
cmp_ok($ids[-1], '>', $newest, 'they do, with a larger snowflake.max_ahead, and in order');

# IDs stand, by what is left of that, and of another step.
$node->append_conf('postgresql.conf', q{snowflake.max_ahead = '3d'});
set_off(-8 * $second);
mint();
$node->append_conf('postgresql.conf', q{snowflake.max_ahead = '1h'});
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.max_ahead') = '1h'})
  or die 'setting is not read';
look();
like(
	error_of($node, q{SET snowflake.max_wait = 0; SELECT snowflake_next()})->{hint},
	qr/^The clock went back by 8\.000 s, .* ago; another (?:172\d{3}\.\d+ s|2\.0 days) are left of the 2\.0 days by which it went back .* ago\./,
	'the error has what is left of which step back');
set_off(0);
$node->append_conf('postgresql.conf', q{snowflake.max_ahead = '1d'});
let_pass($clock, 3 * $day);
look();
mint();

# One mint just after the clock went ahead, and none until it is right again
set_off(2 * $day);
mint();
foreach (1 .. 90) { let_pass($clock, $second); look() if $_ % 10 == 0 }
set_off(0);
like(my $ahead = mint(), qr/^-?\d{1,3}$/, 'the clock was ahead for 90 s, with one ID: it goes on');
foreach (1 .. 20) { let_pass($clock, 10 * $second); look() }
like(mint(), qr/^-?\d{1,3}$/, 'and still does');

# The same for so long that it is believed, with no ID since: a clock under which nothing was
# minted is worth nothing.
set_off(2 * $day);
mint();
foreach (1 .. 20) { let_pass($clock, 10 * $second); look() }
is(status($node, 'clock_state'), 'followed', 'it was believed');
set_off(0);
look();
is(status($node, 'clock_state'), 'followed', 'and so is the one that is right, at once');
like(mint(), qr/^-?\d{1,3}$/, 'the first ID is of now');

# The server starts with a clock that is years ahead, and nobody mints.  Nothing is reserved by it.
foreach my $how ('fast', 'immediate')
{
	stop('fast');
	my $rows = 'SELECT max(reserved_until) FROM snowflake_keeper.reservation';
	set_off(9 * $year);
	start();
	is(status($node, 'clock_state'), 'unproven', "a start nine years ahead, then stop -m $how");
	is($node->safe_psql('postgres', "SELECT ($rows) < clock_timestamp() - interval '8 years'"),
		't', 'nothing is reserved by that');
	stop($how);
	set_off(0);
	start();
	like(mint(), qr/^-?\d{1,4}$/, 'the clock is right: so is the first ID');
}

# The same, without another start
stop('fast');
set_off(9 * $year);
start();
set_off(0);
like(mint(), qr/^-?\d{1,4}$/, 'it is set right before the first ID: that is of now');

# The clock is set far ahead before the first ID since a start: it is coasted through as ever.
stop('fast');
start();
set_off(9 * $year);
is(mint_for(90), '0 errors, of now', 'a clock that jumps before the first ID is coasted through');
set_off(0);
mint();

# A start more than a day after the newest ID: that may be right, and people are told, until an ID of another
# day shows it, or somebody accepts it.
stop('fast');
let_pass($clock, 7 * $day);
start();
mint();
is(status($node, 'clock_state'), 'unproven', 'a start a week after the newest ID');
my $told =
  qr/^The clock was \d+\.\d days past the newest snowflake when the server started, and is believed: correct it, or accept it with snowflake_accept_clock\(\)\.$/;
like(status($node, 'advice'), $told, 'the advice tells');
foreach (1 .. 2) { let_pass($clock, 11 * 3_600 * $second); mint() }
like(status($node, 'advice'), $told, 'for a day');
let_pass($clock, 3 * 3_600 * $second);
mint();
look();
is(status($node, q{clock_state || coalesce(advice, '')}), 'followed', 'and no longer');
stop('fast');
let_pass($clock, 7 * $day);
start();
like(status($node, 'advice'), $told, 'again');
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
is(status($node, q{clock_state || coalesce(advice, '')}), 'followed', 'until it is accepted');
mint();

is(disorder(\@ids), 0, scalar(@ids) . ' IDs, each larger than the one before');
stop('fast');

# A virgin server boots in 1986, with a layout that has that year: no ID is of it.
my $old_clock = new_clock('virgin');
my $virgin = new_node(
	'virgin',
	conf => q{
	snowflake.layout = 'time:41 node:10 sequence:12 epoch:1970-01-01T00:00:00Z'});
step_clock($old_clock, -40 * $year);
start_with_clock($virgin, $old_clock);
$virgin->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$virgin->psql('postgres', q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
wait_for_status($virgin, q{gate = 'closed: the clock is not believed'});
$error = error_of($virgin, q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
is( $error->{message},
	'the clock is before the release of this version of snowflake',
	'a virgin server in 1986: the first mint is refused');
like(
	error_of($virgin, 'SELECT snowflake_accept_clock()')->{message},
	qr/before the release/,
	'and that clock cannot be accepted');
my $offset = -s $virgin->logfile;
step_clock($old_clock, 40 * $year);
wait_until(
	'the clock is right, and an ID is minted',
	sub {
		my ($rc, $output) = $virgin->psql('postgres',
			q{SET snowflake.max_wait = 0; SELECT snowflake_timestamp(snowflake_next()) > '2026-11-01'}
		);

		return $rc == 0 && $output eq 't';
	});
is(log_count($virgin, qr/the clock/, $offset),
	0,
	'it is set right: the first ID is of now, and the log has nothing of a clock that went back');
$virgin->stop;
done_testing();
