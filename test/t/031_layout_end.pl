# A layout ends: its last ID is minted, and then none, whatever the clock says
# and however often the server is restarted.  Nothing wraps around.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  error_of let_pass new_clock new_coordinator new_member new_node start_time start_with_clock
  status stop_time wait_for_mint wait_for_status wait_until
);
use Test::More;

# 2^33 ms of time, so that the end is ten minutes from now; minting may run ahead
# of the clock that far.  16 IDs in a tick.
my $epoch = (time() + 600) * 1000 - 2**33;
my $node = new_node(
	'main',
	node_id => 5,
	conf => "snowflake.layout = 'time:33 node:3 sequence:4 epoch:$epoch'\n"
	  . 'snowflake.max_lead = 1h');

# Mint until it fails: how many IDs there were, the last of them, the error.
my $exhaust = <<'EOS';
DO $$
DECLARE
	id snowflake;
	n integer := 0;
BEGIN
	LOOP
		id := snowflake_next();
		n := n + 1;
	END LOOP;
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE '% % %', n, id, SQLSTATE;
END
$$
EOS

sub ended
{
	my ($name) = @_;
	my $error = error_of($node, 'SELECT snowflake_next()');

	is($error->{sqlstate}, '2200H', "$name: an error");
	like(
		$error->{detail},
		qr/^Its last tick started at "\d{4}-\d\d-\d\d /,
		'that says when the layout ended');
	like($error->{hint}, qr/snowflake\.layout/, 'and what to do');
	return;
}

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);
is(status($node, 'reserved_until <= layout_ends'), 't', 'no more is reserved than the layout has');

# The tick of the given ID counts as used, so there are two more.
$node->psql('postgres',
	'SELECT snowflake_advance(snowflake_lower_bound(last_instant - 2 * tick), true) FROM snowflake_layout()'
);
my (undef, undef, $stderr) = $node->psql('postgres', $exhaust);
my ($count, $last, $sqlstate) = $stderr =~ /NOTICE:  (\d+) (\d+) (\w+)/;
is($count, 32, 'every ID of the last two ticks is minted');
is( $node->safe_psql(
		'postgres', "SELECT '$last' = make_snowflake(last_instant, 5, 15) FROM snowflake_layout()"),
	't',
	'the last one is the last that this node can have');
is($sqlstate, '2200H', 'then there are none');
ended('after the last ID');
like(
	status($node, 'advice'),
	qr/^The layout has ended: configure another snowflake\.layout/,
	'so says the advice, though the clock is before the end');

my $error = error_of($node, 'SELECT snowflake_next_batch(10)');
is($error->{sqlstate}, '2200H', 'nor a batch of them');
is(status($node, 'last_id'), $last, 'snowflake_status shows the last ID');

$node->restart;
$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
  or die "gate does not open";
ended('after a restart');
$node->stop('immediate');
$node->start;
$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
  or die "gate does not open";
ended('after a crash');
$node->stop;

# A layout that had ended before the server was created
$node = new_node('late', conf => q{snowflake.layout = 'baidu'});
ok($node->start(fail_ok => 1), 'ticks of a second, the longest that there may be');
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_until(
	'the gate is open',
	sub {
		return error_of($node, 'SELECT snowflake_next()')->{sqlstate} ne '55000';
	});
ended('the clock is past the end');
is( $node->safe_psql('postgres', q{SELECT snowflake_timestamp('33969564322693120')}),
	$node->safe_psql('postgres', q{SELECT snowflake_timestamp('33969564322693120', 'baidu')}),
	'existing IDs are decoded all the same');
$node->stop;

# One whose ticks are so short that those of the clock soon do not fit into a position: it
# lasts for 72 minutes, of which half an hour has passed.  After an idle time of 2 h 50 min
# what overflows would be in the middle of it, above what was minted.
my $clock = new_clock('short');
$epoch = int((time() - 1800) * 1000);
$node = new_node(
	'short',
	node_id => 0,
	conf => "snowflake.layout = 'time:32 sequence:31 tick:1us epoch:$epoch'");
start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);
stop_time($clock);
let_pass($clock, 10_200_000);
start_time($clock);
ended('the clock is far past the end');
$error = error_of($node, 'SELECT snowflake_next_batch(10)');
is($error->{sqlstate}, '2200H', 'nor is a batch minted there');
$node->stop;

# A layout that ends in an hour, before a lease that is renewed by then would
my $coordinator = new_coordinator();
$clock = new_clock('leased');
$epoch = (time() + 3600) * 1000 - 2**33;
$node = new_member(
	'leased', $coordinator,
	lease => '50min',
	conf => "snowflake.layout = 'time:33 node:3 sequence:4 epoch:$epoch'\n");
start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
wait_for_mint($node);
stop_time($clock);
let_pass($clock, 1_900_000);
start_time($clock);
$node->reload;
wait_for_status($node, 'lease_until = layout_ends');
is(status($node, 'leases'), 1, 'a lease is renewed up to the end of the layout, and not beyond it');
$_->stop foreach $node, $coordinator;

done_testing();
