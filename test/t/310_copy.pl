# IDs survive COPY in each of its formats, and are parameters of prepared statements, with custom
# and generic plans, also in the binary protocol.  An exclusion constraint compares them with the
# operator class of bigint.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = minting_node('main', node_id => 5);
my $dir = PostgreSQL::Test::Utils::tempdir();

sub sql { return query($node, @_); }

sql(q{
	CREATE TABLE customers (id snowflake PRIMARY KEY DEFAULT snowflake_next(), name text);
	INSERT INTO customers (name) SELECT 'customer ' || n FROM generate_series(1, 500) n;
	INSERT INTO customers (id, name) VALUES ('0', 'smallest'), ('9223372036854775807', 'largest')});

foreach my $format ('text', 'csv', 'binary')
{
	my $file = "$dir/customers.$format";

	is( sql(qq{
			CREATE TEMP TABLE back (LIKE customers);
			COPY customers TO '$file' (FORMAT $format);
			COPY back FROM '$file' (FORMAT $format);
			SELECT count(*), (SELECT count(*) FROM (TABLE customers EXCEPT TABLE back) lost) FROM back}
		),
		'502|0',
		"COPY and back, format $format");
}

# The binary form of an ID is that of a bigint, so either reads the other's.
is( sql(qq{
		CREATE TEMP TABLE numbers (id bigint);
		CREATE TEMP TABLE ids (id snowflake);
		COPY (SELECT id FROM customers) TO '$dir/ids.binary' (FORMAT binary);
		COPY numbers FROM '$dir/ids.binary' (FORMAT binary);
		COPY numbers TO '$dir/numbers.binary' (FORMAT binary);
		COPY ids FROM '$dir/numbers.binary' (FORMAT binary);
		SELECT count(*), (SELECT count(*) FROM (SELECT id FROM customers EXCEPT TABLE ids) lost) FROM ids}
	),
	'502|0',
	'binary COPY through bigint and back');
refuses(
	$node, qq{
	CREATE TEMP TABLE ids (id snowflake);
	COPY (SELECT (-1)::bigint) TO '$dir/negative.binary' (FORMAT binary);
	COPY ids FROM '$dir/negative.binary' (FORMAT binary)},
	'22003', 'binary COPY does not let a negative ID in');

my $id = sql(q{SELECT id FROM customers WHERE name = 'customer 250'});
foreach my $mode ('force_custom_plan', 'force_generic_plan')
{
	is( sql(qq{
			SET plan_cache_mode = $mode;
			PREPARE by_id (snowflake) AS SELECT name FROM customers WHERE id = \$1;
			PREPARE from_id (snowflake) AS SELECT count(*) FROM customers WHERE id >= \$1;
			EXECUTE by_id ('$id');
			EXECUTE by_id ($id);
			EXECUTE from_id ('$id')}),
		"customer 250\ncustomer 250\n252",
		"a snowflake as a parameter, $mode");
}

# Over the wire, where the client leaves the parameter's type to the server.
# The script fails unless it finds the row.
$node->pgbench(
	"-n -c 4 -t 50 -M prepared -D id=$id",
	0,
	[qr{processed: 200/200}],
	[qr{^$}],
	'parameters over the wire',
	{
		'310_prepared' => q{
			SELECT 1 / count(*) AS found FROM customers WHERE id = :id;
			INSERT INTO customers (name) VALUES ('pgbench') RETURNING id AS minted \gset
			SELECT 1 / count(*) AS found FROM customers WHERE id = :minted AND id > :id;
		}
	});
is(sql(q{SELECT count(DISTINCT id) FROM customers WHERE name = 'pgbench'}),
	'200', 'each of these transactions had an ID of its own');

SKIP:
{
	skip 'btree_gist is not installed', 2
	  if sql(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'btree_gist'}) eq '0';
	sql(q{
		CREATE EXTENSION btree_gist;
		CREATE TABLE bookings (id snowflake, period int4range, EXCLUDE USING gist (id WITH =, period WITH &&));
		INSERT INTO bookings VALUES (7, '[1,10)'), (7, '[10,20)'), (8, '[1,20)')});
	refuses(
		$node, q{INSERT INTO bookings VALUES (7, '[5,6)')},
		'23P01', 'the same ID in a period that overlaps');
	like(
		sql(q{
			SET enable_seqscan = off;
			EXPLAIN (COSTS OFF) SELECT FROM bookings WHERE id = 7::bigint AND period && '[5,6)'}),
		qr/Index Cond: \(\(id = '7'::bigint\) AND \(period && /,
		'which its index finds');
}

$node->stop;
done_testing();
