# A server that does not preload the library has the type, its indexes and
# casts, and decodes IDs.  Only minting needs shared memory, and says so, and
# what to do: whoever follows that has a server that mints.
# versions: all

use SnowflakeTest;

my $node = new_node('unpreloaded', preload => 0, node_id => undef);
$node->start;
like(
	said($node, 'CREATE EXTENSION snowflake'),
	qr/WARNING:  nothing can be minted yet: .*preloaded.*\nHINT:  Add snowflake to the libraries in shared_preload_libraries, and restart the server\./,
	'CREATE EXTENSION says that nothing can be minted, and what to do');

# Twitter's own example: 2022-06-28 16:07:40.105 UTC, node 378, sequence 0.
my $id = '1541815603606036480';
my $time = '2022-06-28 16:07:40.105+00';

query(
	$node, qq{
	CREATE TABLE kept (id snowflake PRIMARY KEY);
	INSERT INTO kept SELECT ($id + n)::bigint FROM generate_series(0, 999) n;
	ANALYZE kept});
like(
	query($node, "EXPLAIN (COSTS OFF) SELECT id FROM kept WHERE id = '$id'"),
	qr/Index.* Scan using kept_pkey/,
	'the key has an index that works');
foreach my $case (
	[ "SELECT id FROM kept WHERE id = '$id'", $id ],
	[ "SELECT '$id'::snowflake::bigint = $id, ${id}::bigint::snowflake = '$id'::snowflake", 't|t' ],
	[ qq{SELECT "timestamp" = '$time', node, sequence FROM snowflake_decode('$id')}, 't|378|0' ],
	[ "SELECT make_snowflake('$time', 378, 0), \@\@ '$id'::snowflake = '$time'", "$id|t" ],
	[ 'SELECT s IS NULL FROM snowflake_stats s', 't' ],
	[ 'SELECT gate FROM snowflake_status', 'closed: the library is not preloaded' ],
	[ q{LOAD 'snowflake'; SHOW snowflake.max_wait}, '5s' ])
{
	is(query($node, $case->[0]), $case->[1], $case->[0]);
}
like(query($node, "\\i monitoring/status.sql"), qr/^snowflake: .*preload/m, 'the report says so');

# The hint has nothing that, pasted, would replace the libraries that are there.  A session may have
# loaded the library by then, or does so for this call.
foreach my $sql (
	"SELECT '$id'::snowflake; SELECT snowflake_next()",
	'SELECT snowflake_next()',
	'SELECT snowflake_stats_reset()',
	'SELECT snowflake_frontier()',
	'SELECT snowflake_frontier_holders()',
	q{SELECT snowflake_advance('1')},
	'SELECT snowflake_accept_layout()',
	'SELECT snowflake_accept_database(1)',
	'SELECT snowflake_accept_clock()',
	'SELECT snowflake_restart_at_clock(1)')
{
	refuses(
		$node, $sql, '55000',
		"refused: $sql",
		hint => qr/^Add "snowflake" to the libraries in shared_preload_libraries, [^;=]*$/);
}

# A reload brings another layout, and a plan from before follows it.
my $session = session($node, "PREPARE decoded AS SELECT \@\@ '$id'::snowflake = '$time'");
is($session->query_safe('EXECUTE decoded'), 't', 'a plan decodes by the layout');
reload_with($node, q{snowflake.layout = 'twitter epoch:1970-01-01T00:00:00Z'});
wait_until('the layout is another',
	sub { $session->query_safe('SHOW snowflake.layout') ne 'twitter' });
is($session->query_safe('EXECUTE decoded'), 'f', 'and by another one after a reload');
$session->quit;
reload_with($node, q{snowflake.layout = 'twitter'});

# Up to PostgreSQL 16, ALTER SYSTEM knows the setting in a session that has loaded the library alone.
query($node, $_)
  foreach q{LOAD 'snowflake'; ALTER SYSTEM SET snowflake.node_id = 378},
  q{ALTER SYSTEM SET shared_preload_libraries = 'snowflake'};
$node->restart;
wait_for_mint($node);
is(query($node, 'SELECT snowflake_node(snowflake_next())'),
	378, 'the library is preloaded: the server mints');

done_testing();
