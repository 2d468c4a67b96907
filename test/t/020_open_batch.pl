# A batch that is still open takes several IDs in one step.  It stops using them
# when others may expect larger ones: when snowflake_advance() has returned, and
# when the node ID has changed.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(new_node wait_for_mint);
use Test::More;

my $node = new_node('main', node_id => 1);

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);

# A session with a batch from which one ID was fetched
my $batch = $node->background_psql('postgres');

sub open_batch
{
	return $batch->query_safe(
		q{BEGIN; DECLARE batch CURSOR FOR SELECT snowflake_next_batch(4000);
		  FETCH 1 FROM batch});
}

sub fetch
{
	return $batch->query_safe('FETCH 1 FROM batch');
}

sub mint
{
	return $node->safe_psql('postgres', 'SELECT snowflake_next()');
}

# What nothing disturbs goes on where it was: no larger IDs have been promised.
my $first = open_batch();
my $other = mint();
my $next = fetch();
cmp_ok($next, '>', $first, 'an open batch ascends');
cmp_ok($next, '<', $other, 'and uses what it took');

# To an ID that the generator has passed already
$node->safe_psql('postgres', "SELECT snowflake_advance($other)");
cmp_ok(fetch(), '>', $other, 'after snowflake_advance() to the past: above it');

# To one that it has not
my $id = $node->safe_psql('postgres',
	q{SELECT snowflake_upper_bound(clock_timestamp() + interval '200 ms')});
$node->safe_psql('postgres', "SELECT snowflake_advance($id)");
$next = fetch();
cmp_ok($next, '>', $id, 'after snowflake_advance() to the future: above it');
cmp_ok(fetch(), '>', $next, 'and the batch goes on from there');
$batch->query_safe('COMMIT');

# Another node ID
open_batch();
$node->append_conf('postgresql.conf', 'snowflake.node_id = 2');
$node->reload;
$node->poll_query_until('postgres', q{SELECT node = 2 FROM snowflake_status})
  or die "node ID does not change";
$other = mint();
$next = fetch();
cmp_ok($next, '>', $other, 'after a change of the node ID: above others');
is($node->safe_psql('postgres', "SELECT snowflake_node($next)"), '2', 'and of the new node');
is($batch->query_safe(q{MOVE ALL FROM batch; COMMIT; SELECT 1}), '1', 'the batch comes to its end');

$batch->quit;
$node->stop;

# To the last ID but one of a tick, of which the batch has the last.  Minting may
# run ahead, so the batch has several ticks of four IDs each.
my $slow = new_node(
	'slow', conf => q{
	snowflake.layout = 'time:33 node:3 sequence:2 tick:1s epoch:0'
	snowflake.max_lead = 1h
});
$slow->start;
$slow->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($slow);
$batch = $slow->background_psql('postgres');
$first = $batch->query_safe(
	q{BEGIN; DECLARE batch CURSOR FOR SELECT snowflake_next_batch(40); FETCH 1 FROM batch});
$first = fetch() while $slow->safe_psql('postgres', "SELECT snowflake_sequence($first)") != 2;
$slow->safe_psql('postgres', "SELECT snowflake_advance($first)");
$next = fetch();
is( $slow->safe_psql('postgres', "SELECT snowflake_timestamp($next) > snowflake_timestamp($first)"),
	't',
	'after snowflake_advance() within a tick: above the tick');
$batch->quit;

# The last step of a batch takes no more than what is left of it.
$first = $slow->safe_psql('postgres', 'SELECT max(id) FROM snowflake_next_batch(4098) AS id');
is( $slow->safe_psql(
		'postgres',
		"SELECT snowflake_timestamp(snowflake_next()) - snowflake_timestamp('$first') < interval '5 s'"
	),
	't',
	'the next ID comes after the last one of a batch');
$slow->stop;
done_testing();
