# Programs that others wrote read the views of doc/tailing.md by a position or by a
# range up to max(id), and miss no row that commits late, of which a table has some.
# Their statements are those of Kafka Connect's JDBC source and of the like of Airbyte.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my $page = slurp_file("$FindBin::RealBin/../../doc/tailing.md");
my $node = new_node('main');

$node->start;

sub sql
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', $sql);
}

sql(q{
	CREATE EXTENSION snowflake;
	CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), customer text)});
wait_for_mint($node);
foreach my $view ('orders_settled', 'orders_numbered')
{
	my ($create) = $page =~ /^(CREATE VIEW $view AS .*;)$/m or die "no $view";

	sql($create);
}
my ($listed) = $page =~ /^table\.whitelist=(\w+)$/m;
is( sql(qq{SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = '$listed'::regclass AND attname = 'id'}
	),
	'bigint',
	'the view that the page names for Kafka Connect has a bigint');

# One index scan with both bounds, of both, for what Kafka Connect sends
sql(q{INSERT INTO orders SELECT snowflake_next(), n::text FROM generate_series(1, 1000) n; ANALYZE orders}
);
my %plan = map {
	$_ => sql(
		qq{SET plan_cache_mode = force_generic_plan;
		PREPARE poll(bigint) AS SELECT * FROM "$_" WHERE "$_"."id" > \$1 ORDER BY "$_"."id" ASC;
		EXPLAIN (COSTS OFF) EXECUTE poll(5)})
} 'orders_settled', 'orders_numbered';
like(
	$plan{orders_settled},
	qr/\AIndex Scan using orders_pkey on orders\n +Index Cond: (?=.*\(id\)::bigint > \$1\))(?=.*\(id\)::bigint <= \(?snowflake_frontier\(\)).*\z/,
	'a poll is one index scan with both bounds');
is($plan{orders_numbered}, $plan{orders_settled}, 'so it is of the view with a bigint');

# Whoever binds text
foreach my $view ('orders_settled', 'orders_numbered')
{
	is(error_of($node, "PREPARE poll(text) AS SELECT * FROM $view WHERE id > \$1")->{sqlstate},
		'42883', "$view: a position of type text is refused");
	is( sql("PREPARE poll(text) AS SELECT count(*) FROM $view WHERE id > CAST(\$1 AS bigint); EXECUTE poll('0')"
		),
		'1000',
		'unless it is cast');
}

# A position, or a range up to the largest ID.  The table loses the row that commits late.
my %position = map { $_ => 0 } 'orders', 'orders_settled', 'orders_numbered';
my %seen = map { $_ => '' } keys %position;

sub poll
{
	my ($relation) = @_;
	my $largest = sql("SELECT coalesce(max(id), 0) FROM $relation");

	return sub {
		$seen{$relation} .= sql(
			"SELECT coalesce(string_agg(customer, ' ' ORDER BY id) || ' ', '') FROM $relation WHERE id > $position{$relation} AND id <= $largest"
		);
		$position{$relation} = $largest;
	};
}

sql('TRUNCATE orders');
my $early = $node->background_psql('postgres');
$early->query_safe(q{BEGIN; INSERT INTO orders (customer) VALUES ('early')});
sql(q{INSERT INTO orders (customer) VALUES ('late')});
poll($_)->() foreach sort keys %position;
my @readers = map { poll($_) } sort keys %position;

# between the two statements of a poll
$early->query_safe('COMMIT');
$early->quit;
$_->() foreach @readers;
sql(q{INSERT INTO orders (customer) VALUES ('last')});
poll($_)->() foreach sort keys %position;
is($seen{orders}, 'late last ', 'of the table, the row that commits late is missed');
is($seen{$_}, 'early late last ', "of $_, none") foreach 'orders_settled', 'orders_numbered';
$node->stop;
done_testing();
