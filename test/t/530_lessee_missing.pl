# The lessee and worker processes: if no worker is free, the advice says that the lessee is
# missing, and the log says why, but not every second.  There is one lessee, whatever fails,
# also on a standby, so that parallel queries get their workers.
# versions: all

use SnowflakeFleet;
use SnowflakeTest;
use PostgreSQL::Test::Cluster;

my $coordinator = new_coordinator();

# one worker process, which is the keeper
my $server = new_node(
	'server',
	init => { allows_streaming => 1 },
	conf => "max_worker_processes = 1\nmax_logical_replication_workers = 0\n");
my $clock = new_clock('server');
start_with_clock($server, $clock);
query($server, 'CREATE EXTENSION snowflake; CREATE TABLE rows AS SELECT 1 AS n');
wait_for_mint($server);
is(lessee($server), undef, 'a server with a node ID of its own has no lessee');
refuses($server, 'SELECT * FROM snowflake_fleet()',
	'55000', 'nor a fleet', message => qr/^snowflake_fleet\(\) needs a coordinator$/);
$server->backup('base');

stop_time($clock);
$server->append_conf('postgresql.conf', member_conf($coordinator));
set_conf($server);
wait_for_status($server, q{gate = 'closed: no node ID is leased yet'});
my $advice = 'The lessee is not running: see the server log.';
is( status($server, 'coordinator, advice'),
	"not asked|$advice",
	'without a lessee the coordinator is not asked, which the advice says');

my $warning = qr/WARNING:  could not start the snowflake lessee$/;
wait_until('it is said twice',
	sub { let_pass($clock, 200); return log_count($server, $warning) > 1; });
my ($first, $second) = map { /^(\S+ \S+ \S+) / } grep { /$warning/ } split /\n/,
  slurp_file($server->logfile);
is(query($server, "SELECT timestamptz '$second' - '$first' >= interval '10 s'"),
	't', "the log says why, and again after a while: at $first and $second");
start_time($clock);
my $error = refused($server);
is( "$error->{sqlstate} $error->{message} $error->{hint}",
	"55000 this server has not leased a node ID $advice",
	'a mint fails with the same advice');

# With another worker process there is one, and it finds no fleet.
$server->append_conf('postgresql.conf', 'max_worker_processes = 2');
$server->stop;
start_with_clock($server, $clock);
wait_for_status($server, q{coordinator = 'unreachable'});
query($server, 'SELECT snowflake_fleet_create()');
wait_for_mint($server);
pass('with another worker process it leases');

# Under pg_upgrade there is none: nothing is to be minted.
$server->stop;
{
	local %ENV = $server->_get_env();
	system_or_bail('pg_ctl', '-w', '-D', $server->data_dir, '-l', $server->logfile, '-o', '-b',
		'start');
	$server->_update_pid(1);
}
is(lessee($server), undef, 'under pg_upgrade no lessee runs');
$server->stop;

# A standby, which can lease nothing, takes no worker process for each attempt.  The keeper, the
# lessee and the launcher of logical replication leave two.
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($server, 'base');
$standby->append_conf(
	'postgresql.conf', q{
	max_worker_processes = 5
	max_logical_replication_workers = 4
	snowflake.node_source = 'postgresql://127.0.0.1:1/postgres'
	snowflake.lease = '1s'
	parallel_setup_cost = 0
	parallel_tuple_cost = 0
	min_parallel_table_scan_size = 0
});
$standby->set_standby_mode;
$standby->start;
wait_for_status($standby, 'lease_errors > 4');
my $plan = query($standby, 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT count(*) FROM rows');
my ($planned) = $plan =~ /Workers Planned: (\d)/;
like($plan, qr/Workers Launched: $planned/, 'after five attempts a parallel query has its workers');

done_testing();
