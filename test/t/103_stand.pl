# If the clock that is believed is behind the IDs, IDs run ahead: they go on, ahead by at most
# their present lead, which only falls as time passes, and by at most snowflake.max_ahead.  Beyond
# that, they are refused, with the reason.

use SnowflakeClock;
use SnowflakeTest;

# 800 IDs a second, so that a test can use up the time that there is
my $server = SnowflakeClock->new(
	'main',
	conf => q{
	snowflake.layout = 'time:41 node:5 sequence:3 tick:10ms epoch:2020-01-01T00:00:00Z'
	snowflake.max_lead = '20ms'
});
my $node = $server->node;

# As many as would take 5 s from where IDs are
sub mint_as_many_as_possible
{
	return error_of($node,
		'SET snowflake.max_wait = 0; SELECT count(snowflake_next()) FROM generate_series(1, 4000)');
}

# How far the newest ID is ahead of the clock, in milliseconds
sub lead_ms { return status($node, '1000 * extract(epoch FROM lead)'); }

$server->mints('IDs are of now', 0, 100);
$server->step(-5 * $second);
$server->mints('a step back by 5 s: IDs stand', 5 * $second, 100);
$server->wait_ms(4 * $second);
look($node);
like(
	mint_as_many_as_possible()->{detail},
	qr/It may be ahead by (?:9\d\d\.\d+ ms|1\.0\d+ s) \(snowflake\.max_ahead\)/,
	'4 s later they do not go on without limit, but as far ahead as they were left');
cmp_ok(lead_ms(), '<', 1_100, 'and no further');
my $mint = $server->start_mint('100ms');
$server->wait_ms(20);
is(scalar(@{ finish_minter($mint) }), 1, 'who waits for the next tick gets its ID')
  or diag($mint->{errors});
cmp_ok(lead_ms(), '>', 800, 'as far ahead');
$server->wait_ms(4 * $second);
look($node);
like(
	mint_as_many_as_possible()->{detail},
	qr/It may be ahead by [\d.]+ ms \(snowflake\.max_lead\)/,
	'when the clock has caught up nothing is left');
cmp_ok(lead_ms(), '<', 100, 'and IDs are of now');

# A clock that was ahead for long, and is set right
$server->wait_ms($second);
$server->step($hour);
$server->believe;
$server->mints('an hour ahead', 0);
$server->step(-$hour);
$server->believe;
$server->mints('and back: IDs stand', $hour);
$server->wait_ms(10 * $minute);
$server->mints('ten minutes later they are ahead by as much less', 50 * $minute);

# snowflake.max_ahead is lowered, and raised.
$server->set(max_ahead => '10min');
$server->refuses(
	'further ahead than max_ahead: refused',
	qr/ahead by 600\.\d+ s \(snowflake\.max_ahead\)/,
	qr/HINT:  The clock went back by 3600\.000 s, /);
$server->wait_watched(39 * $minute, 3);
$server->refuses('for as long as they are', qr/is 6[56]\d\.\d+ s ahead of the clock/);
$server->wait_watched(2 * $minute, 2);
$server->mints('and no longer', 9 * $minute, $minute);
$server->set(max_ahead => 0);
$server->refuses('max_ahead = 0: no ID is ahead of the clock', qr/is 5\d\d\.\d+ s ahead/);
$server->set(max_ahead => '1d');
$server->mints('max_ahead is raised: they stand at once, by what they are ahead',
	9 * $minute, $minute);

# What is to blame: a step back that is over is not.
$server->wait_ms($hour);
$server->mints('the clock has caught up', 0, 100);
advance($node, '90 min');
$server->mints('snowflake_advance(): IDs go on there', 90 * $minute);
$server->set(max_ahead => 0);
$server->refuses('and nowhere else',
	qr/HINT:  The generator was advanced by snowflake_advance\(\)\./);
$server->stop;

done_testing();
