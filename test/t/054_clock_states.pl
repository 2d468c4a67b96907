# Every state of the clock in which minting fails, waits, or goes on with advice, except for those
# of a start, which 102_clock_at_start.pl has: how it is reached, and what the error, the advice
# and the log say.  The wait that an error names is the true one.

use SnowflakeClock;
use SnowflakeTest qw(!refused);

my $server = SnowflakeClock->new('main', conf => q{snowflake.jump_patience = '10min'});
my $node = $server->node;
my $time = qr/\d+\.\d+ m?s/;
my $about_an_hour = qr/3(?:59\d|60\d)\.\d+ s/;

# IDs go on, and advice says this.
sub told
{
	my ($what, $ahead, $advice) = @_;

	$server->mints("$what: minting goes on", $ahead);
	look($node);
	like(status($node, 'advice'), qr/^$advice$/, "$what: advice");
	return;
}

# A mint is refused with this error, whose hint is the advice.
sub refused
{
	my ($what, $message, $detail, $hint) = @_;

	look($node);
	$server->refuses(
		$what,
		qr/ERROR:  55000: $message\n/,
		qr/DETAIL:  $detail\n/,
		qr/HINT:  $hint\n/);
	like(status($node, 'advice'), qr/^$hint$/, "$what: advice");
	return;
}

# IDs ahead because of snowflake_advance()
advance($node, '1 hour');
told('advanced', $hour,
	qr/Snowflakes are $about_an_hour ahead of the clock after snowflake_advance\(\)\. The clock will catch up in about that time\. Minting goes on\./
);
$server->set(max_ahead => 0);
refused(
	'advanced, and max_ahead = 0',
	qr/the snowflake generator is $about_an_hour ahead of the clock/,
	qr/It may be ahead by $time \(snowflake\.max_lead\)\. This call has waited $time of 0 ms \(snowflake\.max_wait\), and needs another $about_an_hour\./,
	qr/The generator was advanced by snowflake_advance\(\)\. (?:Minting goes on in $about_an_hour\.|Check the server's clock\. If it is correct, minting goes on in .*)/
);
is(log_count($node, qr/WARNING:  minting snowflakes waits for the clock/),
	1, 'advanced, and max_ahead = 0: the log');

# A clock that jumps back: to believe it does not help.  One that jumps beyond the IDs, by more than
# a day: patience, and no longer
my $ahead = qr/the snowflake generator is .* ahead of the clock/;
$server->step(-$hour);
refused('and it jumps back', $ahead, qr/.*/,
	qr/The clock went back by 3600\.000 s, $time ago, and is not believed: correct it\. If it stays there, it is believed in 600\.000 s\. Minting goes on in $about_an_hour\./
);
$server->step(2 * $day + 3 * $hour);
my $jumped =
  qr/The clock went ahead by 2\.1 days, $time ago, and is not believed: correct it, or believe it with snowflake_accept_clock\(\)\./;
refused(
	'and it jumps ahead of that',
	$ahead,
	qr/.* needs another 600\.000 s\./,
	qr/$jumped If it stays there, it is believed in 600\.000 s\. Minting goes on in 600\.000 s\./);
is(log_count($node, qr/WARNING:  the clock went ahead by 2\.1 days/), 1, 'which the log has');
$server->believe;
told('and is believed', 0, '');
$server->set(max_ahead => '1d');

# One that jumps to where no ID can be
$server->step(150 * $year);
told(
	'beyond the end of the layout',
	-150 * $year,
	qr/The clock went ahead by 54750\.0 days, $time ago, to a time that the layout does not have: correct it\./
);
$server->step(-150 * $year);

# The clock goes back: coasting, and then standing.
$server->step(-$hour);
told(
	'back by an hour',
	$hour,
	qr/The clock went back by 3600\.000 s, $time ago, and is not believed: correct it, or believe it with snowflake_accept_clock\(\)\. If it stays there, it is believed in 600\.000 s\./
);
my $stand =
  qr/Snowflakes are $about_an_hour ahead of the clock, which will catch up in about that time\. Minting goes on\./;
$server->believe;
told('accepted', $hour, $stand);

# further back than max_ahead: accepted, with a warning that says how long it is
$server->step(-3 * $day);
look($node);
like(
	said($node, 'SELECT snowflake_accept_clock()'),
	qr/WARNING:  the snowflake generator is now 3\.0 days ahead of the clock\n.*Nothing can be minted for another 2\.0 days, until it is ahead by 86400\.000 s \(snowflake\.max_ahead\)/,
	'back beyond max_ahead: accepted with a warning');
refused(
	'back beyond max_ahead',
	qr/the snowflake generator is 3\.0 days ahead of the clock/,
	qr/It may be ahead by 864\d\d\.\d+ s \(snowflake\.max_ahead\)\..* another 2\.0 days\./,
	qr/The clock went back by 3\.0 days, $time ago; another 3[56]\d\d\.\d+ s remain from a step back by 3600\.\d+ s, $time ago\. Check the server's clock\. If it is correct, minting goes on in 2\.0 days\. To go on at once, in order and with the same node ID, set snowflake\.max_ahead to at least 26\d{4} s .* To give up the order instead, set snowflake\.node_id .*/
);
$server->set(max_ahead => '4d');
$server->mints('max_ahead is raised: IDs go on, in order', 3 * $day + $hour);
$server->step(3 * $day + $hour);
$server->believe;
$server->wait_ms(60 * $second);

# A crash, where no ID may be ahead
$server->set(max_ahead => 0, reservation => '1h', max_jump => '1h');
$server->mints('an hour is reserved', 0);
my $offset = -s $node->logfile;
$server->restart('immediate');
refused(
	'crash, and max_ahead = 0',
	qr/minting snowflakes resumes in $about_an_hour, when the earlier reservation ends/,
	qr/Snowflakes up to "[^"]+" may have been issued before\. .*/,
	qr/Wait: minting resumes in $about_an_hour, when the earlier reservation ends\. If .*/);
$server->wait_ms(2 * $hour);
$server->mints('the clock has passed it', 0);
look($node);
is(log_count($node, qr/LOG:  minting snowflakes no longer waits for the clock, after/, $offset),
	1, 'the log says once that the wait is over');
$server->stop;

done_testing();
