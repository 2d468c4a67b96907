# What IDs may be ahead of the clock, after it went back, is what they are ahead: that
# falls as time passes, and does not come back.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  error_of finish_minter let_pass new_clock new_node start_minter start_time start_with_clock
  status step_clock stop_time wait_for_mint wait_until
);
use Test::More;

# 400 IDs a second, so that a test can use up the time that there is
my $node = new_node(
	'main', conf => q{
	snowflake.layout = 'time:41 node:5 sequence:2 tick:10ms epoch:2020-01-01T00:00:00Z'
	snowflake.max_lead = '5ms'
});
my $clock = new_clock('main');

start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);

# How far IDs are ahead of the clock, in ms
sub lead
{
	return status($node, '1000 * extract(epoch FROM lead)');
}

# Have the keeper look at the clock, which it does for one who has nothing to accept as well.
sub look
{
	$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
	return;
}

stop_time($clock);
look();
$node->safe_psql('postgres', 'SELECT snowflake_next()');
step_clock($clock, -5_000);
$node->safe_psql('postgres', 'SELECT snowflake_next()');
cmp_ok(lead(), '>', 4_900, 'a step back by 5 s: IDs stand');

# As many as would take 5 s from there
my $many =
  'SET snowflake.max_wait = 0; SELECT count(snowflake_next()) FROM generate_series(1, 2000)';

let_pass($clock, 4_000);
look();
my $error = error_of($node, $many);
is($error->{sqlstate}, '55000', '4 s later they do not go on without limit');
like(
	$error->{detail},
	qr/It may be ahead by (?:9\d\d\.\d+ ms|1\.0\d+ s) \(snowflake\.max_ahead\)/,
	'but as far ahead as they were left');
cmp_ok(lead(), '<', 1_100, 'and no further');

# One that may wait gets the next position, and waits until that is so far ahead.
my $waits = status($node, 'clock_waits');
my $minter;
{
	local $ENV{PGOPTIONS} = '-c snowflake.max_wait=100ms';

	$minter = start_minter($node, 1);
}
wait_until('the mint waits, or is refused',
	sub { status($node, "clock_waits > $waits OR refused_clock > 1") eq 't' });
let_pass($clock, 20);
is(scalar(@{ finish_minter($minter) }), 1, 'who waits for the next tick gets its ID')
  or diag($minter->{errors});
cmp_ok(lead(), '>', 800, 'as far ahead');

let_pass($clock, 4_000);
look();
$error = error_of($node, $many);
like(
	$error->{detail},
	qr/It may be ahead by [\d.]+ ms \(snowflake\.max_lead\)/,
	'when the clock has caught up nothing is left');
cmp_ok(lead(), '<', 100, 'and IDs are of now');

# With max_ahead = 0 mints wait for the clock, as far back as it went.
$node->append_conf('postgresql.conf', 'snowflake.max_ahead = 0');
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.max_ahead') = '0'})
  or die "setting is not read";
let_pass($clock, 1_000);
look();
$node->safe_psql('postgres', 'SELECT snowflake_next()');
step_clock($clock, -5_000);
look();
$error = error_of($node, 'SET snowflake.max_wait = 0; SELECT snowflake_next()');
is($error->{sqlstate}, '55000', 'max_ahead = 0: no ID is ahead of the clock');
like(
	$error->{message},
	qr/ is (?:4\.9\d+|5\.0\d+) s ahead of the clock$/,
	'by as much as it went back');

# Nor after a jump, until max_ahead is raised.
step_clock($clock, -60_000);
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
$error = error_of($node, 'SET snowflake.max_wait = 0; SELECT snowflake_next()');
is($error->{sqlstate}, '55000', 'nor after a jump back');
$node->append_conf('postgresql.conf', q{snowflake.max_ahead = '1d'});
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.max_ahead') = '1d'})
  or die "setting is not read";
look();
$error = error_of($node, 'SET snowflake.max_wait = 0; SELECT snowflake_next()');
is($error->{message}, '', 'max_ahead is raised: IDs stand at once');
cmp_ok(lead(), '>', 60_000, 'by what they are ahead');

start_time($clock);
wait_for_mint($node);
$node->stop;
done_testing();
