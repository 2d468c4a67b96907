# The clock goes back while the server is down: after a clean stop as well as
# after a crash, the first ID is larger than all before.  If that is not far,
# minting waits for the clock; if it is, it says so at once.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
	disorder error_of finish_minter let_pass new_clock new_node start_minter
	start_time start_with_clock step_clock stop_time
);
use PostgreSQL::Test::Utils;
use Test::More;

my $back = 2_000;               # both in ms
my $far_back = 10 * 60_000;

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
	  $node->safe_psql('postgres',
		'SELECT snowflake_next() FROM generate_series(1, 100)');
	return;
}

# Stop, step the clock, start.  To the server it is as if that took no time: its clock
# stands until start_time().
sub restart
{
	my ($mode, $step_ms) = @_;

	mint();
	stop_time($clock);
	$node->stop($mode);
	step_clock($clock, $step_ms);
	start_with_clock($node, $clock);
	$node->poll_query_until('postgres',
		q{SELECT gate = 'open' FROM snowflake_status})
	  or die "gate does not open";
	return;
}

foreach my $mode ('fast', 'immediate')
{
	my $name = $mode eq 'fast' ? 'a clean stop' : 'a crash';

	# A crash puts up to the reservation on top, which is 1 s.
	my $reserved = $mode eq 'fast' ? 0 : 1_000;

	# Not far
	restart($mode, -$back);
	my $minter = start_minter($node, 'postgres', 1);
	$node->poll_query_until('postgres',
		'SELECT clock_waits = 1 FROM snowflake_stats')
	  or die "mint does not wait";
	my $lead_ms = $node->safe_psql('postgres',
		'SELECT extract(epoch FROM lead) * 1000 FROM snowflake_status');
	cmp_ok($lead_ms, '>', $back - 1_500,
		"clock back by $back ms during $name: a mint waits for about the step");
	cmp_ok($lead_ms, '<=', $back + $reserved, 'and no longer');
	let_pass($clock, $back + $reserved);
	my ($id) = @{ finish_minter($minter) };
	cmp_ok($id // 0, '>', $ids[-1], 'the first ID is larger than all before')
	  or diag($minter->{errors});
	push @ids, $id;
	start_time($clock);

	# Far
	restart($mode, -$far_back);
	foreach my $try ('first', 'second')
	{
		# time stands, so a wait would not end
		my $error = error_of($node, 'postgres', 'SELECT snowflake_next()',
			timeout => $PostgreSQL::Test::Utils::timeout_default);

		is($error->{sqlstate}, '55000',
			"clock back by ten minutes during $name: an error at once, $try try");
		my ($lead_s) = $error->{message} =~ /is ([0-9.]+) s ahead of the clock/;
		cmp_ok($lead_s || 0, '>', $far_back / 1000 - 5, 'with the lead');
		cmp_ok($lead_s || 0, '<=', ($far_back + $reserved) / 1000,
			'which is right');
		like($error->{detail}, qr/^It starts above what had been reserved/,
			'and the reason');
	}

	# Another restart does not make it forget.
	$node->stop($mode);
	start_with_clock($node, $clock);
	$node->poll_query_until('postgres',
		q{SELECT gate = 'open' FROM snowflake_status})
	  or die "gate does not open";
	like(
		error_of($node, 'postgres', 'SELECT snowflake_next()')
		  ->{message},
		qr/ahead of the clock/,
		'another restart changes nothing');

	# Set right, while the server runs; crashes have reserved some more
	step_clock($clock, $far_back);
	start_time($clock);
	mint();
	pass('the clock is set right: minting goes on');
}

# The clock that stands before the layout's epoch
restart('fast', -40 * 365 * 24 * 3600 * 1000);
my $error =
  error_of($node, 'postgres', 'SELECT snowflake_next()');
is($error->{sqlstate}, '55000',
	'clock before the epoch of the layout: an error');
like($error->{message}, qr/ahead of the clock/, 'that says so');
step_clock($clock, 40 * 365 * 24 * 3600 * 1000);
start_time($clock);
mint();

is(disorder(\@ids),
	0, scalar(@ids) . ' IDs, each larger than the one before');

$node->stop;
done_testing();
