# The clock goes back while the server is down: after a clean stop as well as
# after a crash, the first ID is larger than all before, and comes at once.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder error_of let_pass new_clock new_node start_time start_with_clock status step_clock stop_time
);
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $back = 2_000;    # both in ms
my $far_back = 10 * 60_000;
my $slack = 500;

my $node = new_node(
	'main', conf => q{
	snowflake.reservation = '1s'
	snowflake.max_wait = '10s'
});
my $clock = new_clock('main');

start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');

my @ids;

sub mint
{
	push @ids, split /\n/,
	  $node->safe_psql('postgres', 'SELECT snowflake_next() FROM generate_series(1, 100)');
	return;
}

# Stop, step the clock, start.  To the server it is as if that took no time.
sub restart
{
	my ($mode, $step_ms) = @_;

	mint();
	my $stopped = clock_gettime(CLOCK_MONOTONIC);
	$node->stop($mode);
	step_clock($clock, $step_ms - (clock_gettime(CLOCK_MONOTONIC) - $stopped) * 1000);
	start_with_clock($node, $clock);
	$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
	  or die "gate does not open";
	return;
}

foreach my $mode ('fast', 'immediate')
{
	my $name = $mode eq 'fast' ? 'a clean stop' : 'a crash';

	# Not far
	restart($mode, -$back);
	my ($id, $waits, $waited_ms) = split /\n/, $node->safe_psql(
		'postgres', q{
		SELECT clock_timestamp() AS start \gset
		SELECT snowflake_next();
		SELECT clock_waits FROM snowflake_stats;
		SELECT extract(epoch FROM clock_timestamp() - :'start') * 1000});

	cmp_ok($id, '>', $ids[-1],
		"clock back by $back ms during $name: the first ID is larger than all before");
	is($waits, 0, 'it did not wait for the clock');
	cmp_ok($waited_ms, '<', $slack, 'nor for anything else');
	push @ids, $id;

	# Far: the clock is believed all the same, and IDs stand.
	restart($mode, -$far_back);
	mint();
	is(status($node, 'clock_state'),
		'followed', "clock back by ten minutes during $name: it is believed");
	is(status($node, q{lead BETWEEN interval '9 min' AND interval '11 min'}),
		't', 'and IDs are ahead by that');

	# Another restart does not change that.
	$node->stop($mode);
	start_with_clock($node, $clock);
	$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
	  or die "gate does not open";
	mint();
	is(status($node, q{lead BETWEEN interval '9 min' AND interval '11 min'}),
		't', 'another restart changes nothing');

	# Set right, while the server runs: a jump that is coasted through, by IDs that stand anyway
	step_clock($clock, $far_back);
	mint();
	$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
	mint();
	is(status($node, q{lead < interval '10 s'}), 't', 'the clock is set right: IDs are of now');
}

# The clock that stands before the layout's epoch is not believed, and one that is right at once.
mint();
$node->stop('fast');
step_clock($clock, -40 * 365 * 24 * 3600 * 1000);
start_with_clock($node, $clock);
$node->poll_query_until('postgres',
	q{SELECT gate = 'closed: the clock is not believed' FROM snowflake_status})
  or die 'the clock is believed';
stop_time($clock);
let_pass($clock, 61_000);
start_time($clock);
like(
	error_of($node, q{SET snowflake.max_wait = '1s'; SELECT snowflake_next()})->{message},
	qr/^the clock is before the epoch of the snowflake layout$/,
	'clock before the epoch of the layout: refused, however long it stands');
step_clock($clock, 40 * 365 * 24 * 3600 * 1000);
mint();
pass('the clock is set right: minting goes on');

is(disorder(\@ids), 0, scalar(@ids) . ' IDs, each larger than the one before');

$node->stop;
done_testing();
