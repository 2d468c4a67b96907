# A standby decodes and compares IDs as its primary does, and refuses to mint
# as it refuses nextval().  Once promoted it mints, above
# everything it has received.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node status wait_for_mint);
use PostgreSQL::Test::Cluster;
use Test::More;

my $primary = new_node('primary', init => { allows_streaming => 1 });
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($primary);
$primary->backup('base');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

$primary->safe_psql(
	'postgres', q{
	CREATE TABLE orders (
		id snowflake PRIMARY KEY DEFAULT snowflake_next(),
		reference bigint UNIQUE DEFAULT snowflake_next(),
		n int);
	INSERT INTO orders (n) SELECT generate_series(1, 1000);
	CREATE SEQUENCE counter;
});
$primary->wait_for_catchup($standby);

my $everything = q{
	SELECT count(*), min(id), max(id),
		   md5(string_agg(id::text || ' ' || reference || ' ' || n, ',' ORDER BY id))
	  FROM orders};
is( $standby->safe_psql('postgres', $everything),
	$primary->safe_psql('postgres', $everything),
	'IDs read the same on the standby');

my $decoded = q{
	SELECT md5(string_agg(concat_ws(' ', @@ id, snowflake_node(id), snowflake_sequence(id),
									snowflake_decode(id), id -> 'time'), ',' ORDER BY id))
	  FROM orders};
is( $standby->safe_psql('postgres', $decoded),
	$primary->safe_psql('postgres', $decoded),
	'IDs decode the same on the standby');

# a parallel query cannot look at the reservation
is( $standby->safe_psql(
		'postgres', q{
	SET parallel_setup_cost = 0;
	SET parallel_tuple_cost = 0;
	SET min_parallel_table_scan_size = 0;
	SELECT count(*) > 0, gate FROM orders, snowflake_status GROUP BY gate}
	),
	$standby->safe_psql('postgres', 'SELECT true, gate FROM snowflake_status'),
	'the status reads the same in a parallel query on the standby');

# The status has the node ID that it would mint with, which may be 0.
my $node_id = $standby->safe_psql('postgres', 'SHOW snowflake.node_id');
foreach my $to (0, $node_id)
{
	$standby->append_conf('postgresql.conf', "snowflake.node_id = $to");
	$standby->reload;
	ok($standby->poll_query_until('postgres', "SELECT node = $to FROM snowflake_status"),
		"the status on the standby has its node ID $to");
}

# A session that is older than the primary's note of where the reservation is sees the new one.
my $old = $standby->background_psql('postgres');
unlike($old->query_safe('SELECT advice FROM snowflake_status'), qr/reservation/, 'all is well');
my $home =
  $primary->safe_psql('postgres', q{SELECT oid FROM pg_database WHERE datname = 'postgres'});
$primary->safe_psql('postgres', q{ALTER ROLE ALL SET snowflake.kept_in = '1'});
$primary->wait_for_catchup($standby);
like(
	$old->query_safe('SELECT advice FROM snowflake_status'),
	qr/the snowflake reservation of this server is not in the database/,
	'an old session sees what the primary has noted since');
$old->quit;
$primary->safe_psql('postgres', "ALTER ROLE ALL SET snowflake.kept_in = '$home'");

# nextval() sets the example
my $nextval = error_of($standby, q{SELECT nextval('counter')});
my $refused = error_of($standby, 'SELECT snowflake_next()');

is($refused->{sqlstate}, '25006', 'minting is refused on the standby');
is($refused->{sqlstate}, $nextval->{sqlstate}, 'as nextval() is');
is($refused->{message}, 'cannot execute snowflake_next() during recovery', 'with the reason');
is(status($standby, 'refused_standby'), 1, 'which is counted');
my $reset_at = status($standby, 'stats_reset');
$standby->safe_psql('postgres', 'SELECT snowflake_stats_reset()');
is(status($standby, "concat_ws(' ', refused_standby, stats_reset > '$reset_at')"),
	'0 t', 'until the counters are reset');

# Promote it while the primary is down, so that there is only ever one server
# with this node ID.
my $newest = $primary->safe_psql('postgres', 'SELECT snowflake_next()');
$primary->stop;
$standby->promote;
wait_for_mint($standby);
is($standby->safe_psql('postgres', "SELECT snowflake_next() > '$newest'"),
	't', 'the promoted standby mints larger IDs');
$standby->safe_psql('postgres', 'INSERT INTO orders (n) VALUES (1001)');
is( $standby->safe_psql(
		'postgres',
		'SELECT (SELECT n FROM orders ORDER BY id DESC LIMIT 1), count(DISTINCT id) FROM orders'),
	'1001|1001',
	'and the next row sorts last');

$standby->stop;
done_testing();
