# An exclusion constraint that compares IDs beside something else, which needs
# btree_gist: a snowflake uses its operator class of bigint.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(new_node query refuses);
use Test::More;

my $node = new_node('main');

$node->start;
if (query($node, q{SELECT count(*) FROM pg_available_extensions WHERE name = 'btree_gist'}) eq '0')
{
	$node->stop;
	plan skip_all => 'btree_gist is not installed';
}

query(
	$node, q{
	CREATE EXTENSION snowflake;
	CREATE EXTENSION btree_gist;
	CREATE TABLE bookings (id snowflake, period int4range, EXCLUDE USING gist (id WITH =, period WITH &&));
	INSERT INTO bookings VALUES (7, '[1,10)'), (7, '[10,20)'), (8, '[1,20)');
});
refuses(
	$node, q{INSERT INTO bookings VALUES (7, '[5,6)')},
	'23P01', 'the same ID in a period that overlaps');
is( query(
		$node, q{
		SET enable_seqscan = off;
		EXPLAIN (COSTS OFF) SELECT FROM bookings WHERE id = 7::bigint AND period && '[5,6)'}
	),
	q{Index Only Scan using bookings_id_period_excl on bookings
  Index Cond: ((id = '7'::bigint) AND (period && '[5,6)'::int4range))},
	'which its index finds');

$node->stop;
done_testing();
