# A layout ends: its last ID is minted, and then none, whatever the clock says
# and however often the server is restarted.  Nothing wraps around.

use lib 'test/perl';
use SnowflakeTest;

# A mint, and a batch, is refused for good.
sub ended
{
	my ($node, $what) = @_;

	foreach my $sql ('SELECT snowflake_next()', 'SELECT snowflake_next_batch(10)')
	{
		refuses(
			$node, $sql, '2200H', "$what: $sql",
			detail => qr/^Its last tick started at "\d{4}-\d\d-\d\d /,
			hint => qr/snowflake\.layout/);
	}
	return;
}

# 2^33 ms of time, so that the end is ten minutes from now; minting may run ahead
# of the clock that far.  16 IDs in a tick.
my $epoch = (time() + 600) * 1000 - 2**33;
my $node = minting_node(
	'main',
	node_id => 5,
	conf => "snowflake.layout = 'time:33 node:3 sequence:4 epoch:$epoch'\nsnowflake.max_lead = 1h");
is(status($node, 'reserved_until <= layout_ends'), 't', 'no more is reserved than the layout has');

# The tick of the given ID counts as used, so there are two more.
$node->psql('postgres',
	'SELECT snowflake_advance(snowflake_lower_bound(last_instant - 2 * tick), true) FROM snowflake_layout()'
);
my $said = said(
	$node, q{
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
	END $$});
my $last = query($node, 'SELECT make_snowflake(last_instant, 5, 15) FROM snowflake_layout()');
like($said, qr/NOTICE:  32 $last 2200H/, 'every ID of the last two ticks is minted, then none');
is(status($node, 'last_id'), $last, 'snowflake_status shows the last ID');
like(
	status($node, 'advice'),
	qr/^The layout has ended: configure another snowflake\.layout/,
	'the advice says so, though the clock is before the end');
ended($node, 'after the last ID');
foreach my $mode ('fast', 'immediate')
{
	restart_node($node, $mode);
	ended($node, "after stop -m $mode");
}
$node->stop;

# One whose ticks are so short that those of the clock soon do not fit into a position: it
# lasts for 72 minutes, of which half an hour has passed.  After an idle time of 2 h 50 min
# what overflows would be in the middle of it, above what was minted.
my $clock = new_clock('short');
$epoch = int((time() - 1800) * 1000);
$node = minting_node(
	'short',
	clock => $clock,
	node_id => 0,
	conf => "snowflake.layout = 'time:32 sequence:31 tick:1us epoch:$epoch'");
pass_days($clock, 10_200 / 86_400);
ended($node, 'the clock is far past the end');
$node->stop;

done_testing();
