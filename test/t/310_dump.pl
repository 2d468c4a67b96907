# IDs, and the defaults that make them, survive every way out of a database
# and back in: pg_dump, COPY in each of its formats, prepared statements.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', node_id => 5);
my $dir = PostgreSQL::Test::Utils::tempdir();

$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql(
	'shop', q{
	CREATE EXTENSION snowflake;
	CREATE TABLE customers (
		id snowflake PRIMARY KEY DEFAULT snowflake_next(),
		name text);
	CREATE TABLE orders (
		id bigint PRIMARY KEY DEFAULT snowflake_next(),
		customer bigint NOT NULL REFERENCES customers,
		previous snowflake REFERENCES customers,
		made timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'twitter')) STORED);
	CREATE INDEX ON orders USING hash (previous);
	CREATE INDEX ON orders USING brin (previous);
});
wait_for_mint($node, dbname => 'shop');
$node->safe_psql(
	'shop', q{
	INSERT INTO customers (name) SELECT 'customer ' || n FROM generate_series(1, 500) n;
	INSERT INTO customers (id, name) VALUES ('0', 'smallest'), ('9223372036854775807', 'largest');
	INSERT INTO orders (customer, previous) SELECT id, id FROM customers WHERE name LIKE 'customer %';
	INSERT INTO orders (customer) SELECT min(id) FROM customers;
});

my $contents = q{
	SELECT (SELECT md5(string_agg(c::text, ',' ORDER BY id)) FROM customers c),
		   (SELECT md5(string_agg(o::text, ',' ORDER BY id)) FROM orders o),
		   (SELECT count(*) FROM customers), (SELECT count(*) FROM orders)};
my $definitions = q{
	SELECT string_agg(concat_ws(' ', attrelid::regclass, attname, atttypid::regtype,
								pg_get_expr(adbin, adrelid)), E'\n' ORDER BY attrelid::regclass::text, attnum)
	  FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
	 WHERE attrelid IN ('customers'::regclass, 'orders'::regclass) AND attnum > 0
	UNION ALL
	SELECT string_agg(pg_get_indexdef(indexrelid), E'\n' ORDER BY indexrelid::regclass::text)
	  FROM pg_index WHERE indrelid IN ('customers'::regclass, 'orders'::regclass)
	UNION ALL
	SELECT string_agg(pg_get_constraintdef(oid), E'\n' ORDER BY conname)
	  FROM pg_constraint WHERE conrelid IN ('customers'::regclass, 'orders'::regclass)};
my $contents_before = $node->safe_psql('shop', $contents);
my $definitions_before = $node->safe_psql('shop', $definitions);

like($contents_before, qr/\|502\|501$/, 'there is something to dump');

# pg_dump, as a script and as an archive
$node->command_ok([ 'pg_dump', '-d', $node->connstr('shop'), '-f', "$dir/plain.sql" ],
	'pg_dump to a script');
$node->command_ok([ 'pg_dump', '-Fc', '-d', $node->connstr('shop'), '-f', "$dir/archive.dump" ],
	'pg_dump to an archive');
$node->safe_psql('postgres', 'CREATE DATABASE plain');
$node->safe_psql('postgres', 'CREATE DATABASE archive');
$node->command_ok(
	[
		'psql', '-X', '-q', '-v',
		'ON_ERROR_STOP=1', '-d', $node->connstr('plain'), '-f',
		"$dir/plain.sql"
	],
	'restore from the script');
$node->command_ok(
	[
		'pg_restore', '--exit-on-error', '-j', '2', '-d', $node->connstr('archive'),
		"$dir/archive.dump"
	],
	'restore from the archive');

foreach my $copy ('plain', 'archive')
{
	is($node->safe_psql($copy, $contents), $contents_before, "$copy: same contents");
	is($node->safe_psql($copy, $definitions),
		$definitions_before, "$copy: same columns, defaults, indexes and constraints");

	# all databases of a server draw from one generator
	my $newest = $node->safe_psql('shop', 'SELECT snowflake_next()');
	$node->safe_psql($copy, q{INSERT INTO customers (name) VALUES ('new')});
	is($node->safe_psql($copy, "SELECT id > '$newest' FROM customers WHERE name = 'new'"),
		't', "$copy: the default goes on with larger IDs");
}

# COPY
foreach my $format ('text', 'csv', 'binary')
{
	my $file = "$dir/customers.$format";

	is( $node->safe_psql(
			'shop', qq{
			CREATE TEMP TABLE back (LIKE customers);
			COPY customers TO '$file' (FORMAT $format);
			COPY back FROM '$file' (FORMAT $format);
			SELECT count(*), (SELECT count(*) FROM (TABLE customers EXCEPT TABLE back) lost)
			  FROM back}),
		'502|0',
		"COPY and back, format $format");
}

# The binary form of an ID is that of a bigint, so either reads the other's.
is( $node->safe_psql(
		'shop', qq{
		CREATE TEMP TABLE numbers (id bigint);
		CREATE TEMP TABLE ids (id snowflake);
		COPY (SELECT id FROM customers) TO '$dir/ids.binary' (FORMAT binary);
		COPY numbers FROM '$dir/ids.binary' (FORMAT binary);
		COPY numbers TO '$dir/numbers.binary' (FORMAT binary);
		COPY ids FROM '$dir/numbers.binary' (FORMAT binary);
		SELECT count(*), (SELECT count(*) FROM (SELECT id FROM customers EXCEPT TABLE ids) lost)
		  FROM ids}),
	'502|0',
	'binary COPY through bigint and back');
my $error = error_of(
	$node, qq{
	CREATE TEMP TABLE ids (id snowflake);
	COPY (SELECT (-1)::bigint) TO '$dir/negative.binary' (FORMAT binary);
	COPY ids FROM '$dir/negative.binary' (FORMAT binary)}, dbname => 'shop');
is($error->{sqlstate}, '22003', 'binary COPY does not let a negative ID in');

# Prepared statements, planned for the value and planned once for all
my $id = $node->safe_psql('shop', q{SELECT id FROM customers WHERE name = 'customer 250'});
foreach my $mode ('force_custom_plan', 'force_generic_plan')
{
	is( $node->safe_psql(
			'shop', qq{
			SET plan_cache_mode = $mode;
			PREPARE by_id (snowflake) AS SELECT name FROM customers WHERE id = \$1;
			PREPARE from_id (snowflake) AS SELECT count(*) FROM customers WHERE id >= \$1;
			EXECUTE by_id ('$id');
			EXECUTE by_id ($id);
			EXECUTE from_id ('$id')}),
		"customer 250\ncustomer 250\n252",
		"a snowflake as a parameter, $mode");
	like(
		$node->safe_psql(
			'shop', qq{
			SET plan_cache_mode = $mode;
			SET enable_seqscan = off;
			PREPARE by_id (snowflake) AS SELECT name FROM customers WHERE id = \$1;
			EXPLAIN (COSTS OFF) EXECUTE by_id ('$id')}),
		qr/Index Scan using customers_pkey.*Index Cond: \(\(id\)::bigint = /s,
		"which the index takes, $mode");
}

# Over the wire, where the client leaves the parameter's type to the server.
# The script fails unless it finds the row.
foreach my $mode ('simple', 'extended', 'prepared')
{
	$node->pgbench(
		"-n -c 4 -t 50 -M $mode -D id=$id",
		0,
		[qr{processed: 200/200}],
		[qr{^$}],
		"parameters over the wire, pgbench -M $mode",
		{
			"005_$mode" => q{
				SELECT 1 / count(*) AS found FROM customers WHERE id = :id;
				INSERT INTO customers (name) VALUES ('pgbench') RETURNING id AS minted \gset
				SELECT 1 / count(*) AS found FROM customers WHERE id = :minted AND id > :id;
			}
		},
		'shop');
}
is($node->safe_psql('shop', q{SELECT count(DISTINCT id) FROM customers WHERE name = 'pgbench'}),
	'600', 'each of these transactions had an ID of its own');

$node->stop;
done_testing();
