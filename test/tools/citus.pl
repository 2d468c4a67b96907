# Citus, from the source tree CITUS_SOURCE; without one the test is skipped.  A coordinator
# and two workers, whose node IDs are leased.  The statements of doc/tools.md are run as they
# are written there, and what its table says is checked.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(!refused);
use SnowflakeTrial qw(trial_of);
use Test::More;

# Its scripts are older than what they make, as far as a checkout knows.  A function that later
# headers of 15 declare is not to be defined in its own.
my $installation = trial_of(
	'CITUS_SOURCE', q{
	touch aclocal.m4 && sleep 1 && touch configure src/include/*.in &&
	if grep -q have_createdb_privilege $($PG_CONFIG --includedir-server)/commands/dbcommands.h; then
		perl -0pi -e 's/static inline bool\nhave_createdb_privilege\(void\)\n[{].*?\n[}]\n/#include "commands\/dbcommands.h"\n/s' src/include/pg_version_compat.h
	fi && ./configure -q --without-libcurl && make -s with_llvm=no && make -s install with_llvm=no});
my ($section) = slurp_file("$FindBin::RealBin/../../doc/tools.md") =~ /^## Citus\n(.*)/ms;
my @blocks = $section =~ /^```sql\n(.*?)^```$/msg;
my $fleet = new_coordinator();
my @nodes = map {
	new_member(
		$_, $fleet,
		new => { install_path => $installation },
		conf =>
		  "listen_addresses = '127.0.0.1'\nshared_preload_libraries = 'citus, snowflake'\nmax_prepared_transactions = 100\ntimezone = 'UTC'\n"
		  . "citus.enable_statistics_collection = off\nsnowflake.max_wait = '1min'\n")
} ('head', 'worker1', 'worker2');
my ($node) = @nodes;

foreach my $server (@nodes)
{
	$server->start;
	$server->safe_psql('postgres', 'CREATE EXTENSION citus');
}
diag 'Citus ' . sql(q{SELECT extversion FROM pg_extension WHERE extname = 'citus'});
sql(sprintf q{SELECT citus_set_coordinator_host('127.0.0.1', %d)}, $node->port);
sql(sprintf q{SELECT citus_add_node('127.0.0.1', %d)}, $nodes[1]->port);

sub sql
{
	my ($sql, $server) = @_;

	return ($server // $node)->safe_psql('postgres', $sql);
}

sub refused
{
	my ($sql, $message, $what) = @_;

	return like(error_of($node, $sql)->{message}, $message, $what);
}

sub tasks
{
	my ($query) = @_;
	my ($tasks) = sql("EXPLAIN (COSTS OFF) $query") =~ /Task Count: (\d+)/;

	return $tasks;
}

# The page's statements, and a worker that comes later
sql('CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
wait_for_mint($_) foreach $node, $nodes[1];
is($node->psql('postgres', s/^CREATE EXTENSION snowflake;.*$//mr), 0, 'what the page has')
  foreach @blocks;
sql(sprintf q{SELECT citus_add_node('127.0.0.1', %d)}, $nodes[2]->port);
wait_for_mint($nodes[2]);
sql(q{SELECT rebalance_table_shards(shard_transfer_mode => 'block_writes')});

# All nodes mint, and no ID comes twice.
sql(q{INSERT INTO orders (customer) SELECT 'c' FROM generate_series(1, 833)}, $_) foreach @nodes;
is( sql(q{SELECT count(*), count(DISTINCT id), count(DISTINCT snowflake_node(id, 'twitter')) FROM orders}
	),
	'2500|2500|3',
	'IDs of three servers');

# What is written otherwise
foreach my $condition (
	q{@@ id < timestamptz '2026-01-01Z'},
	q{@@ id <@ tstzrange('2020-01-01Z', '2026-01-01Z')},
	q{@@ id < '2026-01-01Z'})
{
	refused(
		"DELETE FROM orders WHERE $condition",
		qr/STABLE functions used in UPDATE queries/,
		"DELETE WHERE $condition");
	is(sql("SELECT count(*) FROM orders WHERE $condition"), 0, "SELECT WHERE $condition");
}
is( $node->psql(
		'postgres', "UPDATE orders SET customer = 'd' WHERE id < snowflake_lower_bound($_)"),
	0,
	"UPDATE by $_") foreach q{'2026-01-01Z'}, q{now() - interval '1 day'};
refused(
	"INSERT INTO orders (customer) VALUES ('e') RETURNING $_",
	qr/non-IMMUTABLE functions are not allowed in the RETURNING/,
	"RETURNING $_") foreach '@@ id', 'snowflake_timestamp(id)';
sql(q{
	CREATE TABLE messages (id snowflake, shard integer, PRIMARY KEY (id, shard));
	SELECT create_distributed_table('messages', 'shard')});
is( tasks(
		q{SELECT * FROM messages WHERE id = 5 AND shard = snowflake_field(5, 'worker', 'twitter')}),
	1,
	'a field by a layout');
is(tasks(q{SELECT * FROM messages WHERE id = 5 AND shard = snowflake_field(5, 'worker')}),
	32, 'without one');
is(tasks(q{SELECT * FROM orders WHERE id = 5}), 1, 'one ID');

# One type for all
sql(q{
	CREATE TABLE items (order_id bigint);
	CREATE TABLE typed_items (order_id snowflake REFERENCES orders);
	SELECT create_distributed_table('typed_items', 'order_id', colocate_with => 'orders')});
refused(
	q{SELECT create_distributed_table('items', 'order_id', colocate_with => 'orders')},
	qr/cannot colocate/,
	'no colocation of the two types');
sql(q{SELECT create_distributed_table('items', 'order_id')});
refused(
	'ALTER TABLE items ADD FOREIGN KEY (order_id) REFERENCES orders',
	qr/cannot create foreign key/,
	'no foreign key');
refused('SELECT count(*) FROM items JOIN orders ON id = order_id', qr/complex joins/, 'no join');
is(sql('SELECT count(*) FROM typed_items JOIN orders ON id = order_id'), 0, 'but of the same type');

# Columnar tables
sql('CREATE EXTENSION IF NOT EXISTS citus_columnar');
foreach my $type ('bigint', 'snowflake')
{
	sql(qq{CREATE TABLE columnar_$type (id $type) USING columnar;
		INSERT INTO columnar_$type SELECT snowflake_lower_bound('2026-01-01Z'::timestamptz + n * interval '1 min') FROM generate_series(1, 50000) n}
	);
	my $plan = sql(
		"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM columnar_$type WHERE id < 100"
	);

	is( $plan =~ /Chunk Groups Removed by Filter: [1-9]/ ? 1 : 0,
		$type eq 'bigint' ? 1 : 0,
		"columnar: chunks of $type");
}

# Conversion
sql(q{
	CREATE EXTENSION snowflake_migrate;
	CREATE TABLE old (id serial PRIMARY KEY, n serial, m bigserial);
	INSERT INTO old DEFAULT VALUES;
	SELECT create_distributed_table('old', 'id')});
foreach my $column ('id', 'n')
{
	my $error = error_of($node, "SELECT snowflake_migrate.convert('{public.old.$column}')");

	is($error->{sqlstate}, '55000', "column $column as it is: refused");
	like(
		$error->{detail},
		$column eq 'id'
		? qr/^Citus distributes the table by it\.$/
		: qr/^It owns a sequence, and Citus has distributed the table\.$/,
		'and why');
	like($error->{hint}, qr/undistribute_table/, 'and what to do');
}
is($node->psql('postgres', q{SELECT snowflake_migrate.convert('{public.old.m}')}), 0, 'column m');
sql(q{SELECT undistribute_table('old')});
sql(q{SELECT snowflake_migrate.convert('{public.old.id,public.old.n}')});
sql(q{SELECT create_distributed_table('old', 'id')});
is(sql(q{INSERT INTO old DEFAULT VALUES RETURNING id > 5 AND n > 5 AND m > 5}),
	't', 'undistributed, converted, distributed');

$_->stop foreach reverse @nodes;
$fleet->stop;
done_testing();
