# A standby that leases its node ID, and cannot, takes no worker process for each attempt:
# parallel queries get theirs.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(new_node wait_for_mint wait_for_status);
use PostgreSQL::Test::Cluster;
use Test::More;

# The keeper, the lessee and the launcher of logical replication leave two.
my $primary = new_node(
	'primary',
	init => { allows_streaming => 1 },
	conf => 'max_worker_processes = 5');
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE TABLE rows AS SELECT 1 AS n');
wait_for_mint($primary);
$primary->backup('base');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf(
	'postgresql.conf', q{
	snowflake.node_source = 'postgresql://127.0.0.1:1/postgres'
	snowflake.lease = '1s'
	parallel_setup_cost = 0
	parallel_tuple_cost = 0
	min_parallel_table_scan_size = 0
});
$standby->start;
wait_for_status($standby, 'lease_errors > 4');

my $plan =
  $standby->safe_psql('postgres',
	'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT count(*) FROM rows');
my ($planned) = $plan =~ /Workers Planned: (\d)/;
like($plan, qr/Workers Launched: $planned/, 'after five attempts a parallel query has its workers');

$_->stop foreach $standby, $primary;
done_testing();
