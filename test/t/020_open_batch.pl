# A batch that is still open takes several IDs in one step.  It stops using them
# when others may expect larger ones: when snowflake_advance() has returned, and
# when the node ID has changed.

use SnowflakeTest;

# Four IDs in a tick, so that a batch has several.  Minting may run ahead.
my $node = minting_node(
	'main', conf => q{
	snowflake.layout = 'time:33 node:3 sequence:2 tick:1s epoch:0'
	snowflake.max_lead = 1h
});

# A session with a batch from which one ID was fetched
my $batch = $node->background_psql('postgres');

sub open_batch
{
	return $batch->query_safe(
		'BEGIN; DECLARE batch CURSOR FOR SELECT snowflake_next_batch(400); FETCH 1 FROM batch');
}

sub fetch { return $batch->query_safe('FETCH 1 FROM batch'); }

# What nothing disturbs goes on where it was: no larger IDs have been promised.
my $first = open_batch();
my $other = mint($node);
my $next = fetch();
cmp_ok($next, '>', $first, 'an open batch ascends');
cmp_ok($next, '<', $other, 'and uses what it took');

# To an ID that the generator has passed already, to one that it has not, and to the last but one
# of a tick, of which the batch has the last
query($node, "SELECT snowflake_advance($other, force => true)");
cmp_ok(fetch(), '>', $other, 'after snowflake_advance() to the past: above it');
my $id =
  query($node, q{SELECT snowflake_upper_bound(last_time + interval '20 s') FROM snowflake_status});
query($node, "SELECT snowflake_advance($id, force => true)");
$next = fetch();
cmp_ok($next, '>', $id, 'after snowflake_advance() to the future: above it');
cmp_ok(fetch(), '>', $next, 'and the batch goes on from there');
$next = fetch() until $next % 4 == 2;
query($node, "SELECT snowflake_advance($next, force => true)");
is(query($node, "SELECT snowflake_timestamp(@{[ fetch() ]}) > snowflake_timestamp($next)"),
	't', 'after snowflake_advance() within a tick: above the tick');
$batch->query_safe('COMMIT');

# Another node ID
open_batch();
change_node_id($node, 2);
$other = mint($node);
$next = fetch();
cmp_ok($next, '>', $other, 'after a change of the node ID: above others');
is(query($node, "SELECT snowflake_node($next)"), '2', 'and of the new node');
is($batch->query_safe(q{MOVE ALL FROM batch; COMMIT; SELECT 1}), '1', 'the batch comes to its end');
$batch->quit;

# The last step of a batch takes no more than what is left of it.
is( query(
		$node,
		'SELECT snowflake_timestamp(snowflake_next()) - snowflake_timestamp(max(id)) < interval \'5 s\' FROM snowflake_next_batch(4098) id'
	),
	't',
	'the next ID comes after the last one of a batch');

done_testing();
