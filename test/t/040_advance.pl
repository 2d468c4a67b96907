# snowflake_advance(id): no ID at or below that one will be minted, which is
# durable when the function returns.

use SnowflakeTest;

my $clock = new_clock('main');
my $node = new_node(
	'main',
	conf => q{
	snowflake.reservation = '1s'
	snowflake.max_jump = '1h'
	snowflake.max_ahead = 0
});
start_with_clock($node, $clock);
query($node, 'CREATE EXTENSION snowflake');

sub advance_to { return said($node, "SELECT snowflake_advance($_[0])"); }

# Before anything has been minted, and within what is reserved: the first ID
# waits for the clock.  A little further than what is reserved, with a warning.
my $id = id_at($node, '300 ms');
advance_to("'$id'");
cmp_ok(mint($node), '>', $id, 'before the first mint: the first ID is above');
$id = id_at($node, '2 s');
like(
	advance_to("'$id'"),
	qr/WARNING:  the snowflake generator is now .* ahead of the clock/,
	'further than what is reserved: a warning says how far ahead of the clock that is');
step_clock($clock, 3_000);
cmp_ok(mint($node), '>', $id, 'when the clock has passed it, the next ID is above');

# Below: nothing happens.
my $newest = mint($node);
is(advance_to("'$_'"), '', "to the past, $_: no error, no warning") foreach $id, 0;
$id = mint($node);
cmp_ok($id, '>', $newest, 'IDs ascend');
is(query($node, "SELECT snowflake_timestamp('$id') < clock_timestamp() + interval '1 s'"),
	't', 'by no more than the clock does');

# Far: by how much, and what minting waits for
like(
	advance_to(id_at($node, '10 min') . ', force => true'),
	qr/WARNING:  the snowflake generator is now (?:600|599)\.\d+ s ahead of the clock/,
	'ten minutes ahead: a warning');
is(refused($node)->{sqlstate}, '55000', 'minting is refused, where IDs may not be ahead');
is(status($node, 'last_id IS NULL'), 't', 'snowflake_status does not show what was never minted');

# Durable: nothing but the function's return comes before the crash.
$id = advance($node, '20 min');
my $reserved = 'SELECT max(reserved_until) FROM snowflake_keeper.reservation';
my $until = query($node, $reserved);
restart_node($node, 'immediate', $clock, 'closed: the clock is not believed');
is(refused($node)->{sqlstate}, '55000', 'a crash right after: minting is refused still');
is(query($node, $reserved), $until, 'and what is refused is not taken further ahead by it');
step_clock($clock, 21 * 60_000);
cmp_ok(mint($node), '>', $id, 'when the clock has passed it, the next ID is above');

# Where nothing can be minted it fails, and nothing is left of it.  (041_restart_at_clock has one that
# cannot be stored for a while.)
change_node_id($node, -1);
$id = id_at($node, '10 min');
refuses($node, "SELECT snowflake_advance('$id', force => true)",
	'55000', 'without a node ID: an error');
change_node_id($node, 1);
cmp_ok(mint($node), '<', $id, 'and with one again, minting goes on below');

# What is refused: more than a minute ahead, as by one row that is dated tomorrow; the end of the
# layout.
query($node,
	q{CREATE TABLE dated AS SELECT unnest(ARRAY[snowflake_next(), snowflake_lower_bound(clock_timestamp() + interval '1 day')]) AS id}
);
refuses(
	$node, 'SELECT snowflake_advance(max(id)) FROM dated',
	'22023',
	'a day ahead is refused',
	hint => qr/rows with wrong dates.*force => true/);
refuses(
	$node, 'SELECT snowflake_advance(snowflake_lower_bound(last_instant)) FROM snowflake_layout()',
	'22003',
	'so is the end of the layout',
	detail => qr/\b9223372036854775807\b/);

done_testing();
