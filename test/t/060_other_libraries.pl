# The library works with others that request shared memory, in any order.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(error_of log_count new_node query wait_for_mint);
use Test::More;

foreach my $libraries ('snowflake, pg_stat_statements, auto_explain',
	'auto_explain, pg_stat_statements, snowflake')
{
	my $node = new_node('main' . ($libraries =~ /^s/ ? 1 : 2),
		conf => "shared_preload_libraries = '$libraries'");

	if (!$node->start(fail_ok => 1))
	{
		plan skip_all => 'pg_stat_statements is not installed'
		  if log_count($node, qr/could not access file "pg_stat_statements"/);
		die "server does not start";
	}
	query($node, 'CREATE EXTENSION snowflake; CREATE EXTENSION pg_stat_statements');
	wait_for_mint($node);
	is(query($node, 'SELECT count(DISTINCT id) FROM snowflake_next_batch(10000) id'),
		'10000', "$libraries: IDs are minted");
	is( query(
			$node, q{SELECT calls > 0 FROM pg_stat_statements WHERE query ~ 'snowflake_next_batch'}
		),
		't',
		'and the other one works');
	is( query(
			$node,
			q{SELECT calls FROM pg_stat_statements WHERE query = 'CREATE EXTENSION snowflake'}),
		'1',
		'for utility commands as well');

	# and filters on the time of an ID are planned on the key, whoever else looks at the query
	query($node,
		'CREATE TABLE orders (id snowflake PRIMARY KEY); SET auto_explain.log_min_duration = 0; SELECT FROM orders WHERE (@@ id)::date = current_date'
	);
	like(
		query(
			$node,
			'SET enable_seqscan = off; EXPLAIN SELECT FROM orders WHERE (@@ id)::date = current_date'
		),
		qr/Index Cond: .*snowflake_period_start/,
		"$libraries: a filter on a time");
	like(
		slurp_file($node->logfile),
		qr/Query Text: .*current_date.*snowflake_period_is_exact/s,
		'which auto_explain shows');
	is(query($node, q{SELECT count(*) FROM pg_stat_statements WHERE query ~ 'snowflake_period'}),
		'0', 'and pg_stat_statements has as it was written');
	$node->stop;
}

# One that guards a table by hooks of its own goes on doing so.
my $root = "$FindBin::RealBin/../..";
my $hooks = PostgreSQL::Test::Utils::tempdir() . '/hooks.so';
my ($include) = run_command([ 'pg_config', '--includedir-server' ]);
system_or_bail($ENV{CC} || 'cc',
	'-shared', '-fPIC', '-O2', '-Wall', "-I$include", "-I$root/src", '-o', $hooks,
	"$root/test/shim/hooks_module.c");
my $node = new_node('hooks', conf => "shared_preload_libraries = '$hooks, snowflake'");
$node->start;
query($node, 'CREATE EXTENSION snowflake; CREATE TABLE guarded (); CREATE TABLE unplanned ()');
wait_for_mint($node);

foreach my $sql ('TABLE guarded', 'EXPLAIN TABLE unplanned')
{
	like(error_of($node, $sql)->{message}, qr/is guarded/, "refused by another library: $sql");
}
$node->stop;

done_testing();
