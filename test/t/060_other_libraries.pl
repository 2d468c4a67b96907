# The library gets along with others, before it and after it in the list: with those that ask for
# shared memory, look at queries or plan them, and with one that guards a table by a hook of its own.
# versions: all

use SnowflakeTest;

my ($include) = run_command([ 'pg_config', '--includedir-server' ]);
my $hooks = build_shim('hooks_module', "-I$include");
my $node = new_node('main');
my $filter = 'SELECT FROM orders WHERE (@@ id)::date = current_date';
foreach my $libraries (
	"$hooks, auto_explain, pg_stat_statements, snowflake",
	"snowflake, pg_stat_statements, auto_explain, $hooks")
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'");
	if (!$node->start(fail_ok => 1))
	{
		plan skip_all => 'pg_stat_statements is not installed'
		  if log_count($node, qr/could not access file "pg_stat_statements"/);
		die "server does not start";
	}
	my $offset = -s $node->logfile;
	query($node, $_)
	  foreach map({ "CREATE EXTENSION IF NOT EXISTS $_" } 'snowflake', 'pg_stat_statements'),
	  map({ "CREATE TABLE IF NOT EXISTS $_" } 'guarded ()', 'orders (id snowflake PRIMARY KEY)'),
	  'SELECT pg_stat_statements_reset()';
	wait_for_mint($node);
	is(query($node, 'SELECT count(DISTINCT id) FROM snowflake_next_batch(10000) id'),
		'10000', "$libraries: IDs are minted");
	is( query($node, q{SELECT calls FROM pg_stat_statements WHERE query ~ 'snowflake_next_batch'}),
		'1',
		'which others see');
	like(error_of($node, 'TABLE guarded')->{message}, qr/is guarded/, 'another library refuses');

	# and filters on the time of an ID are planned on the key, whoever else looks at the query
	query($node, "SET auto_explain.log_min_duration = 0; $filter");
	like(
		query($node, "SET enable_seqscan = off; EXPLAIN $filter"),
		qr/Index Cond: .*snowflake_period_start/,
		"$libraries: a filter on a time");
	like(
		slurp_file($node->logfile, $offset),
		qr/Query Text: .*current_date.*snowflake_period_is_exact/s,
		'which auto_explain shows');
	is(query($node, q{SELECT count(*) FROM pg_stat_statements WHERE query ~ 'snowflake_period'}),
		'0', 'and pg_stat_statements has as it was written');
	$node->stop;
}

done_testing();
