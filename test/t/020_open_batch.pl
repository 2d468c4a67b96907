# A batch that is still open takes several IDs in one step.  It stops using them
# when others may expect larger ones: when snowflake_advance() has returned, and
# when the node ID has changed.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(advance change_node_id mint minting_node query);
use Test::More;

my $node = minting_node('main');

# A session with a batch from which one ID was fetched
my $batch = $node->background_psql('postgres');

sub open_batch
{
	my ($count) = @_;

	return $batch->query_safe(
		"BEGIN; DECLARE batch CURSOR FOR SELECT snowflake_next_batch($count); FETCH 1 FROM batch");
}

sub fetch
{
	return $batch->query_safe('FETCH 1 FROM batch');
}

# What nothing disturbs goes on where it was: no larger IDs have been promised.
my $first = open_batch(4000);
my $other = mint($node);
my $next = fetch();
cmp_ok($next, '>', $first, 'an open batch ascends');
cmp_ok($next, '<', $other, 'and uses what it took');

# To an ID that the generator has passed already, and to one that it has not
query($node, "SELECT snowflake_advance($other)");
cmp_ok(fetch(), '>', $other, 'after snowflake_advance() to the past: above it');
my $id = advance($node, '200 ms');
$next = fetch();
cmp_ok($next, '>', $id, 'after snowflake_advance() to the future: above it');
cmp_ok(fetch(), '>', $next, 'and the batch goes on from there');
$batch->query_safe('COMMIT');

# Another node ID
open_batch(4000);
change_node_id($node, 2);
$other = mint($node);
$next = fetch();
cmp_ok($next, '>', $other, 'after a change of the node ID: above others');
is(query($node, "SELECT snowflake_node($next)"), '2', 'and of the new node');
is($batch->query_safe(q{MOVE ALL FROM batch; COMMIT; SELECT 1}), '1', 'the batch comes to its end');
$batch->quit;
$node->stop;

# To the last ID but one of a tick, of which the batch has the last.  Minting may
# run ahead, so the batch has several ticks of four IDs each.
$node = minting_node(
	'slow', conf => q{
	snowflake.layout = 'time:33 node:3 sequence:2 tick:1s epoch:0'
	snowflake.max_lead = 1h
});
$batch = $node->background_psql('postgres');
$first = open_batch(40);
$first = fetch() while query($node, "SELECT snowflake_sequence($first)") != 2;
query($node, "SELECT snowflake_advance($first)");
$next = fetch();
is(query($node, "SELECT snowflake_timestamp($next) > snowflake_timestamp($first)"),
	't', 'after snowflake_advance() within a tick: above the tick');
$batch->quit;

# The last step of a batch takes no more than what is left of it.
$first = query($node, 'SELECT max(id) FROM snowflake_next_batch(4098) AS id');
is( query(
		$node,
		"SELECT snowflake_timestamp(snowflake_next()) - snowflake_timestamp('$first') < interval '5 s'"
	),
	't',
	'the next ID comes after the last one of a batch');
$node->stop;
done_testing();
