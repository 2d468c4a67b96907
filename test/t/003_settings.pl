# Settings: a missing or wrong value is reported with a helpful message, as
# early as possible, and a session cannot change what must be the same for all.

use lib 'test/perl';
use SnowflakeTest;

my $node = new_node('main', node_id => undef);
$node->start;
query($node, 'CREATE EXTENSION snowflake; CREATE ROLE ordinary LOGIN');

# What is refused, and what the error says
foreach my $case (
	[ q{SET ROLE ordinary; SET snowflake.kept_in = '1'}, '42501' ],
	[ q{ALTER SYSTEM SET snowflake.kept_in = '1'}, '55P02' ],
	[ 'ALTER SYSTEM SET snowflake.reservation = 0', '22023' ],
	[
		q{ALTER SYSTEM SET snowflake.layout = 'twiter'},
		'22023',
		detail => qr/"twiter" is not a preset/,
		hint => qr/^A layout is /
	],
	[ 'ALTER SYSTEM SET snowflake.node_id = 1024', '22023', detail => qr/\b1023\b/ ],
	(   map { [ "ALTER SYSTEM SET snowflake.node_source = '$_'", '22023' ] } 'address:',
		'address:a/b', 'address:' . 'x' x 16, 'addresses'),
	[ q{SET snowflake.max_wait = '-1ms'}, '22023' ],
	[ q{SET snowflake.max_lead = '1s'}, '55P02' ])
{
	my ($sql, $sqlstate, %words) = @$case;

	refuses($node, $sql, $sqlstate, "refused: $sql", %words);
}

# No node ID: nothing is minted, and nobody who waits for the gate waits longer than allowed.
foreach my $function (q{snowflake_advance('1')}, 'snowflake_accept_layout()')
{
	refuses(
		$node, "SET snowflake.max_wait = '500ms'; SELECT $function",
		'55000', "node ID unset: $function is refused",
		message => qr/did not finish within 500 ms/,
		detail => qr/the node ID is not set/);
}
is(error_at_once($node)->{message}, 'snowflake.node_id is not set', 'a mint is refused at once');

# But where the keeper has not taken up yet what the session sees, a mint waits.
my $keeper = hold_keeper($node);
set_conf($node, 'snowflake.node_id' => 1);
my $mint = start_minter($node, 1, max_wait => '1h');
wait_until('a mint waits', sub { waits($node, 'client backend', 'SnowflakeKeeper') });
kill 'CONT', $keeper;
is(query($node, "SELECT snowflake_node(@{ finish_minter($mint) })"),
	1, 'a mint waits for the keeper to take up a node ID that was set');

# The largest that the layout has, by reload; one more is too large: a reload keeps the old one
change_node_id($node, 1023);
is(query($node, 'SELECT snowflake_node(snowflake_next())'), 1023, 'the largest node ID is used');
my $offset = -s $node->logfile;
reload_with($node, 'snowflake.node_id = 1024');
$node->wait_for_log(qr/invalid value for parameter "snowflake\.node_id": 1024/, $offset);
is(query($node, 'SELECT snowflake_node(snowflake_next())'),
	1023, 'a reload does not take one that is too large');

# At start, there is nothing to keep: the server comes up, but does not mint.
restart_node($node, 'fast', undef, 'too large');
my $large = error_at_once($node);
is( "$large->{sqlstate} $large->{message}",
	'55000 snowflake.node_id 1024 is too large for the layout',
	'started with it: minting is refused at once');
is( status($node, 'advice'),
	'Set snowflake.node_id to at most 1023, and reload the configuration.',
	'with the largest possible one');
my $parallel = query($node,
	q{SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
like(
	query(
		$node,
		"SET $parallel = on; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT count(*) FROM pg_class"
	),
	qr/^.*Workers Launched: 1$/m,
	'parallel workers start with it');
change_node_id($node, 7);
is(query($node, 'SELECT snowflake_node(snowflake_next())'), 7, 'and goes on with one that fits');
$node->stop;

# A layout or a source of node IDs that cannot be: the server does not start, and the log says why.
foreach my $bad (
	[ 'layout', 'twiter', qr/"?twiter"?/ ],
	[
		'layout',
		'time:31 node:10 sequence:12 tick:1001ms epoch:0',
		qr/The tick is 1\.001 s\. A server mints with ticks of up to 1\.000 s/
	],
	[ 'node_source', 'zoo://keeper', qr/URL of a coordinator/ ])
{
	my ($setting, $value, $reason) = @$bad;

	$node->append_conf('postgresql.conf',
		"snowflake.layout = 'twitter'\nsnowflake.$setting = '$value'");
	$offset = -s $node->logfile;
	is($node->start(fail_ok => 1), 0, "the server does not start with \"$value\"");
	like(
		slurp_file($node->logfile, $offset),
		qr/(?:FATAL|ERROR|LOG): [^\n]*snowflake\.$setting.*$reason/s,
		'the log names the setting and the reason');
	$node->stop;
}

done_testing();
