# A server that does not preload the library has the type, its indexes and
# casts, and decodes IDs.  Only minting needs shared memory, and says so.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node status wait_for_mint wait_until);
use Test::More;

my $node = new_node('unpreloaded', preload => 0, node_id => undef);
$node->start;
my ($ret, $stdout, $stderr) = $node->psql('postgres', 'CREATE EXTENSION snowflake');
like(
	$stderr,
	qr/WARNING:  nothing can be minted yet: .*preloaded.*\nHINT:  Add snowflake to the libraries in shared_preload_libraries, and restart the server\./,
	'CREATE EXTENSION says that nothing can be minted, and what to do');

# Twitter's own example: 2022-06-28 16:07:40.105 UTC, node 378, sequence 0.
my $id = '1541815603606036480';
my $time = '2022-06-28 16:07:40.105+00';

$node->safe_psql(
	'postgres', qq{
	CREATE TABLE kept (id snowflake PRIMARY KEY);
	INSERT INTO kept SELECT ($id + n)::bigint FROM generate_series(0, 999) n;
	ANALYZE kept;
});
is($node->safe_psql('postgres', "SELECT id FROM kept WHERE id = '$id'"),
	$id, 'a snowflake key is found again');
like(
	$node->safe_psql('postgres', "EXPLAIN (COSTS OFF) SELECT id FROM kept WHERE id = '$id'"),
	qr/Index.* Scan using kept_pkey/,
	'the key has an index that works');
is( $node->safe_psql(
		'postgres',
		"SELECT '$id'::snowflake::bigint = $id, ${id}::bigint::snowflake = '$id'::snowflake"),
	't|t',
	'casts to and from bigint');
is( $node->safe_psql(
		'postgres', "SELECT '$id'::snowflake::timestamptz = '$time', @@ '$id'::snowflake = '$time'"
	),
	't|t',
	'an ID is decoded to its time');
is( $node->safe_psql(
		'postgres', qq{SELECT "timestamp" = '$time', node, sequence FROM snowflake_decode('$id')}),
	't|378|0',
	'an ID is decoded to its fields');
is($node->safe_psql('postgres', "SELECT make_snowflake('$time', 378, 0)"),
	$id, 'an ID is made from its fields');
is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake_layout()'),
	'1', 'the layout is known');
($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT s IS NULL FROM snowflake_stats s');
is("$ret$stdout$stderr", '0t', 'snowflake_stats has a row that knows nothing');
is(status($node, 'gate'), 'closed: the library is not preloaded', 'snowflake_status says so');
is($node->safe_psql('postgres', q{LOAD 'snowflake'; SHOW snowflake.max_wait}),
	'5s', 'a session that loads the library knows its settings');

# Both in a session that has loaded the library by then, as those above have,
# and in one that loads it for this call.
foreach my $sql ("SELECT '$id'::snowflake; SELECT snowflake_next()", 'SELECT snowflake_next()')
{
	my $error = error_of($node, $sql);

	is($error->{sqlstate}, '55000', "not minted: $sql");
	like(
		"$error->{message} $error->{detail} $error->{hint}",
		qr/shared_preload_libraries/,
		'the error names the setting');
}

is(error_of($node, 'SELECT snowflake_stats_reset()')->{sqlstate},
	'55000', 'nor are there counters to be reset');

# Nor is there a frontier, nor anything for an administrator to do.
foreach my $function (
	'snowflake_frontier()', 'snowflake_frontier_holders()',
	q{snowflake_advance('1')}, 'snowflake_accept_layout()',
	'snowflake_accept_database(1)', 'snowflake_accept_clock()',
	'snowflake_restart_at_clock(1)')
{
	is(error_of($node, "SELECT $function")->{sqlstate}, '55000', "nor can one call $function");
}

# Without the library preloaded, a reload brings another layout.  A plan from
# before follows it: nothing of the layout is folded into it.
my $session = $node->background_psql('postgres');
my %queries = (
	an_operator => "SELECT count(*) FROM kept WHERE @@ id >= timestamptz '$time'",
	a_range => "SELECT count(*) FROM kept WHERE @@ id <@ tstzrange('$time', NULL)",
	a_bound =>
	  "SELECT count(*) FROM kept WHERE id > snowflake_upper_bound('$time') OR id >= snowflake_lower_bound('$time')"
);
foreach my $name (sort keys %queries)
{
	$session->query_safe("PREPARE $name AS $queries{$name}");
	is($session->query_safe("EXECUTE $name"), '1000', "$name finds the rows");
}
$node->safe_psql('postgres',
	q{LOAD 'snowflake'; ALTER SYSTEM SET snowflake.layout = 'twitter epoch:1970-01-01T00:00:00Z'});
$node->reload;
wait_until('the layout is another',
	sub { $session->query_safe('SHOW snowflake.layout') ne 'twitter' });
foreach my $name (sort keys %queries)
{
	is($session->query_safe("EXECUTE $name"),
		'0', "by a layout of an earlier epoch, $name finds none");
}

# which may have a tick that is too long to mint with
my $long_ticks = 'time:31 node:10 sequence:12 tick:10s epoch:2020-01-01T00:00:00Z';
$node->safe_psql('postgres', "LOAD 'snowflake'; ALTER SYSTEM SET snowflake.layout = '$long_ticks'");
$node->reload;
wait_until('long ticks are read',
	sub { $session->query_safe('SHOW snowflake.layout') eq $long_ticks });
is( $session->query_safe(
		q{SELECT extract(epoch FROM snowflake_timestamp(4194304) - '2020-01-01Z')}),
	'10.000000',
	'IDs with long ticks are decoded');
$session->quit;
$node->safe_psql('postgres', q{LOAD 'snowflake'; ALTER SYSTEM RESET snowflake.layout});
$node->reload;

# The hint has nothing that, pasted, would replace the libraries that are there.
like(
	error_of($node, 'SELECT snowflake_next()')->{hint},
	qr/^Add "snowflake" to the setting shared_preload_libraries, [^;=]*$/,
	'the hint is a sentence');
$node->append_conf('postgresql.conf',
	"shared_preload_libraries = 'snowflake'\nsnowflake.node_id = 378");
$node->restart;
wait_for_mint($node);
is( $node->safe_psql(
		'postgres',
		'SELECT snowflake_node(id), abs(extract(epoch FROM (@@ id) - now())) < 60 FROM snowflake_next() id'
	),
	'378|t',
	'who follows it has a server that mints');

$node->stop;

# The steps of the installation, each in a session of its own and the other way
# round: the settings first.  Up to 16, a setting of a library that is not there
# is unknown to ALTER SYSTEM, until the session loads it.
my $other = new_node('other', preload => 0, node_id => undef);
$other->start;
my $set = 'ALTER SYSTEM SET snowflake.node_id = 5';
my $unknown = error_of($other, $set);
if ($other->safe_psql('postgres', 'SHOW server_version_num') < 170000)
{
	is( $unknown->{message},
		'unrecognized configuration parameter "snowflake.node_id"',
		'ALTER SYSTEM without the library');
}
else
{
	is($unknown->{message}, '', 'ALTER SYSTEM without the library');
}
$other->safe_psql('postgres', "LOAD 'snowflake'; $set");
$other->safe_psql('postgres', q{ALTER SYSTEM SET shared_preload_libraries = 'snowflake'});
$other->restart;
$other->safe_psql('postgres', 'CREATE EXTENSION snowflake');
is($other->safe_psql('postgres', 'SELECT snowflake_node(snowflake_next())'),
	'5', 'the settings, a restart, then the extension: the server mints');
$other->stop;

my $third = new_node('third', preload => 0, node_id => undef);
$third->append_conf('postgresql.conf', 'snowflake.node_id = 6');
$third->start;
$third->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$third->append_conf('postgresql.conf', q{shared_preload_libraries = 'snowflake'});
$third->restart;
is($third->safe_psql('postgres', 'SELECT snowflake_node(snowflake_next())'),
	'6', 'a node ID, the extension, then the library: the server mints');
$third->stop;
done_testing();
