# Test that filters on the time of an ID and its order work beside pg_hint_plan, from the source
# tree HINT_PLAN_SOURCE, which is of the server's version; without one the test is skipped.  Where it
# is preloaded before snowflake, hints do not hold for the index scans that snowflake adds after it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(new_node);
use SnowflakeTrial qw(trial_of);
use Test::More;

my $installation =
  trial_of('HINT_PLAN_SOURCE', 'make -s install with_llvm=no "PG_CONFIG=$PG_CONFIG"');

foreach my $libraries ('pg_hint_plan, snowflake', 'snowflake, pg_hint_plan')
{
	my $node = new_node(
		'main' . ($libraries =~ /^s/ ? 1 : 2),
		new => { install_path => $installation },
		conf => "shared_preload_libraries = '$libraries'\ntimezone = 'UTC'\n");

	$node->start;
	$node->safe_psql(
		'postgres', q{
		CREATE EXTENSION snowflake;
		CREATE TABLE orders (id snowflake PRIMARY KEY, customer int);
		INSERT INTO orders SELECT make_snowflake(timestamptz '2026-01-01' + n * interval '1 min', 1, 1), n % 10 FROM generate_series(0, 9999) n;
		CREATE INDEX orders_customer ON orders (customer, id);
		CREATE VIEW recent AS SELECT id, @@ id AS created_at, customer FROM orders;
		VACUUM ANALYZE orders});

	# a query by its hint, what its plan has, and how many rows it has
	foreach my $case (
		[ '', q{created_at < '2026-01-02'}, qr/Index Cond: .*<=/, 1440 ],
		[ 'SeqScan(orders)', q{created_at < '2026-01-02'}, qr/Seq Scan.*Filter: .*<=/s, 1440 ],
		[
			'IndexScan(orders orders_pkey)',
			q{created_at::date = '2026-01-02'},
			qr/Index Cond: .*AND/,
			1440
		],
		[
			'BitmapScan(orders)',
			q{created_at < '2026-01-02' AND customer = 3},
			qr/Bitmap Index Scan.*Index Cond: .*<=/s,
			144
		],
		[
			'',
			q{customer = 3 ORDER BY created_at DESC LIMIT 5},
			qr/Scan Backward using orders_customer/, 5
		],
		[
			'SeqScan(orders)',
			q{customer = 3 ORDER BY created_at DESC LIMIT 5},
			$libraries =~ /^s/ ? qr/Sort Key/ : qr/Limit/,
			5
		],
		[
			'SeqScan(orders)', q{customer = NULL ORDER BY created_at}, qr/One-Time Filter: false/,
			0
		])
	{
		my ($hint, $condition, $plan, $rows) = @$case;
		my $query = "/*+ $hint */ SELECT * FROM recent WHERE $condition";

		# a hint is at the head of what is sent
		like(
			$node->safe_psql(
				'postgres',
				"/*+ $hint */ EXPLAIN (COSTS OFF) SELECT * FROM recent WHERE $condition"),
			$plan,
			"$libraries: $hint: $condition");
		is(scalar(() = $node->safe_psql('postgres', $query) =~ /^.+$/mg), $rows, 'and its rows');
	}
	$node->stop;
}

done_testing();
