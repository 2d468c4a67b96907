# pg_repack: a table with a key of the type, referenced by a bigint.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest;
use Test::More;

my $node = new_node('main');
my $content = q{SELECT count(*), md5(string_agg(o::text, ',' ORDER BY id)) FROM orders o};

$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION snowflake;
	CREATE EXTENSION pg_repack;
	CREATE TABLE orders (
		id snowflake PRIMARY KEY DEFAULT snowflake_next(),
		item text);
	CREATE TABLE lines (
		id bigint PRIMARY KEY DEFAULT snowflake_next(),
		order_id bigint REFERENCES orders);
	CREATE INDEX ON orders (item, id);
});
wait_for_mint($node);
$node->safe_psql(
	'postgres', q{
	INSERT INTO orders (item) SELECT n FROM generate_series(1, 10000) n;
	DELETE FROM orders WHERE item::integer % 3 = 0;
	INSERT INTO lines (order_id) SELECT id FROM orders LIMIT 100;
});
my $before = $node->safe_psql('postgres', $content);
my $size = $node->safe_psql('postgres', q{SELECT pg_relation_size('orders')});

foreach my $options ([ '--order-by', 'id DESC' ], ['--only-indexes'], [])
{
	$node->command_ok([ 'pg_repack', '--dbname', 'postgres', '--table', 'orders', @$options ],
		"pg_repack @$options");
	is($node->safe_psql('postgres', $content), $before, 'the rows are the same');
}
cmp_ok($node->safe_psql('postgres', q{SELECT pg_relation_size('orders')}),
	'<', $size, 'the table is smaller');
is( $node->safe_psql(
		'postgres', q{
		INSERT INTO orders (item) VALUES ('after')
		RETURNING id > (SELECT max(order_id) FROM lines)}),
	't',
	'it mints as before');
is(error_of($node, 'INSERT INTO lines (order_id) VALUES (5)')->{sqlstate},
	'23503', 'the foreign key holds as before');

done_testing();
