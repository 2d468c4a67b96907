# Extensions that inspect indexes or add kinds of them: HypoPG, amcheck,
# btree_gist and btree_gin, which all treat the type as a bigint.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use Test::More;

my $node = new_node('main', conf => "enable_seqscan = off\nenable_indexonlyscan = off\n");

$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION snowflake;
	CREATE EXTENSION hypopg;
	CREATE EXTENSION amcheck;
	CREATE EXTENSION btree_gist;
	CREATE EXTENSION btree_gin;
	CREATE TABLE orders (id snowflake DEFAULT snowflake_next(), number integer);
});
wait_for_mint($node);
$node->safe_psql('postgres',
	'INSERT INTO orders (number) SELECT generate_series(1, 10000); ANALYZE orders');

# The index condition of the plan of a query, after a statement in the same
# session, or nothing.
sub index_condition
{
	my ($statement, $condition) = @_;
	my $plan = $node->safe_psql('postgres',
		"$statement; EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE $condition");

	return $plan =~ /Index Cond: \((.*)\)$/m ? $1 : '';
}

# HypoPG
my $hypo = q{SELECT FROM hypopg_create_index('CREATE INDEX ON orders (id)')};
is(index_condition($hypo, 'id = 5'), '(id)::bigint = 5', 'HypoPG: equality');
like(
	index_condition($hypo, "@@ id >= now() - interval '1 hour'"),
	qr/\(id\)::bigint > snowflake_before\(/,
	'HypoPG: a comparison with a time');
like(
	index_condition($hypo, q{@@ id <@ '[2026-01-01,2026-01-02)'}),
	qr/\(id\)::bigint >= .* AND .*\(id\)::bigint <= /,
	'HypoPG: a range of time');

# amcheck
$node->safe_psql('postgres', 'CREATE INDEX orders_id ON orders (id)');
is(error_of($node, q{SELECT bt_index_parent_check('orders_id', true, true)})->{message},
	'', 'amcheck finds nothing');
$node->command_ok([ 'pg_amcheck', '--heapallindexed', '--install-missing', 'postgres' ],
	'nor does pg_amcheck');
$node->safe_psql('postgres', 'DROP INDEX orders_id');

# btree_gist and btree_gin: an integer beside a bigint is not of their families
foreach my $method ('gist', 'gin')
{
	$node->safe_psql('postgres', "CREATE INDEX orders_id ON orders USING $method (id)");
	is( index_condition('', q{id = '5'}),
		q{(id)::bigint = '5'::bigint},
		"btree_$method: equality with a literal");
	is(index_condition('', 'id = 5'),
		'', "btree_$method: not with an integer, as for a bigint column");
	like(
		index_condition('', "@@ id >= now() - interval '1 hour'"),
		qr/\(id\)::bigint > snowflake_before\(/,
		"btree_$method: a comparison with a time");
	is( $node->safe_psql(
			'postgres', q{SELECT count(*) FROM orders WHERE @@ id >= now() - interval '1 hour'}),
		10000,
		"btree_$method: its rows");
	$node->safe_psql('postgres', 'DROP INDEX orders_id');
}
$node->safe_psql(
	'postgres', q{
	CREATE TABLE bookings (room snowflake, period tstzrange,
		EXCLUDE USING gist (room WITH =, period WITH &&));
	INSERT INTO bookings VALUES (1, '[2026-01-01,2026-02-01)'), (2, '[2026-01-15,2026-02-15)')});
is(error_of($node, q{INSERT INTO bookings VALUES (1, '[2026-01-15,2026-02-15)')})->{sqlstate},
	'23P01', 'btree_gist: an exclusion constraint on an ID and a period');

done_testing();
