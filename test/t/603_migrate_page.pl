# The statements of doc/migrating.md, run as they are written there, on the
# application of test/migrate.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeDepot qw(load_depot);
use SnowflakeTest qw(new_node);
use PostgreSQL::Test::Utils;
use Test::More;

my $document = slurp_file("$FindBin::RealBin/../../doc/migrating.md");
my $node = new_node('main',
	conf => "wal_level = logical\nmax_locks_per_transaction = 256\ntimezone = 'UTC'");

cmp_ok(scalar(split ' ', $document), '<=', 1500, 'the page is short');
$node->start;
load_depot($node);
$node->safe_psql('depot', 'DROP EXTENSION snowflake_migrate; DROP EXTENSION snowflake');

# 610_backfill.pl has the rows with a created_at.
$document =~ s/^## Rows with a .*?(?=^## )//ms or die 'no such section';
while ($document =~ /^```sql\n(.*?)^```$/msg)
{
	my $sql = $1;

	next if $sql =~ /^DROP EXTENSION/m;    # 604_generators.pl does
	$node->safe_psql('depot',
		'CREATE TABLE public.orders (id bigserial PRIMARY KEY); INSERT INTO orders VALUES (snowflake_next())'
	) if $sql =~ /snowflake_advance/;
	my ($status, undef, $error) = $node->psql('depot', $sql, timeout => 600);

	is($status, 0, 'runs: ' . ($sql =~ s/\n.*//sr)) or diag($error);
}
is( $node->safe_psql(
		'depot',
		q{INSERT INTO orders DEFAULT VALUES RETURNING pg_typeof(id), id = (SELECT max(id) + 1 FROM orders)}
	),
	'bigint|t',
	'the way back');
is( $node->safe_psql(
		'depot', q{INSERT INTO app.tags (name) VALUES ('new') RETURNING id > 1::bigint << 50}),
	't',
	'new rows have snowflakes');
$node->stop;
done_testing();
