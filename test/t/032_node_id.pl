# snowflake.node_id: unset, set and changed by a reload, over which the IDs of the server ascend, and
# too large.  What is wrong in it or in another setting is reported as early as possible, and a
# session cannot change what must be the same for all.

use SnowflakeTest;

# The tick is long enough for a change to happen within one.
my $clock = new_clock('main');
my $node = new_node(
	'main',
	node_id => undef,
	conf => q{
	snowflake.layout = 'time:41 node:10 sequence:12 tick:250ms epoch:2020-01-01T00:00:00Z'
	snowflake.reservation = '1h'
	snowflake.max_wait = '10s'
	wal_level = replica
	max_wal_senders = 1
});
my @ids;

# Mint some, all of that node ID.
sub minted_with
{
	my ($node_id, $what) = @_;

	push @ids, mint_many($node, 100);
	return is(query($node, "SELECT snowflake_node('$ids[-1]')"), $node_id, $what);
}

# Does the row of a node ID hold the tick of the newest ID?
sub is_settled
{
	my ($node_id) = @_;

	return query($node,
		"SELECT reserved_until = snowflake_timestamp('$ids[-1]') FROM snowflake_keeper.reservation WHERE node = $node_id"
	);
}

sub configure_and_start
{
	my ($conf) = @_;

	$node->stop('fast');
	$node->append_conf('postgresql.conf', $conf);
	start_with_clock($node, $clock);
	return;
}

start_with_clock($node, $clock);
query($node, 'CREATE EXTENSION snowflake; CREATE ROLE ordinary LOGIN');

# What is refused, and what the error says
foreach my $case (
	[ q{SET ROLE ordinary; SET snowflake.kept_in = '1'}, '42501' ],
	[ q{ALTER SYSTEM SET snowflake.kept_in = '1'}, '55P02' ],
	[
		q{ALTER SYSTEM SET snowflake.layout = 'twiter'},
		'22023',
		detail => qr/"twiter" is not a preset/,
		hint => qr/^A layout is /
	],
	(   map { [ "ALTER SYSTEM SET snowflake.node_source = '$_'", '22023' ] } 'address:',
		'address:a/b', 'address:' . 'x' x 16, 'addresses'))
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
is(query($node, q{SELECT to_regclass('snowflake_keeper.reservation') IS NULL}),
	't', 'nothing is reserved');

# But where the keeper has not taken up yet what the session sees, a mint waits.
my $keeper = hold_keeper($node);
set_conf($node, 'snowflake.node_id' => 1);
my $mint = start_minter($node, 1, max_wait => '1h');
wait_until('a mint waits', sub { waits($node, 'client backend', 'SnowflakeKeeper') });
kill 'CONT', $keeper;
is(query($node, "SELECT snowflake_node(@{ finish_minter($mint) })"),
	1, 'a mint waits for the keeper to take up a node ID that was set');

# Changed, and back: the row is settled, though an hour had been reserved.
minted_with(1, 'set by reload: it is minted with');
change_node_id($node, 2);
is(is_settled(1), 't', q{changed: the old node ID's row holds the tick of its last ID});
minted_with(2, 'the new one is used');

# What any node ID has reserved counts for all of them, also across a restart with another one: node 2
# is an hour ahead of the clock, where IDs wait for it.
set_conf($node, 'snowflake.max_ahead' => 0);
my $ahead = advance($node, '1 hour');
foreach my $node_id (1, 4)
{
	change_node_id($node, $node_id);
	is(refused($node)->{sqlstate}, '55000', "an hour ahead of the clock: node ID $node_id");
}
configure_and_start('snowflake.node_id = 5');
foreach my $node_id (5, 1)
{
	change_node_id($node, $node_id);
	like(
		refused($node)->{message},
		qr/when the earlier reservation ends$/,
		"and after a restart: node ID $node_id");
}
step_clock($clock, 3_700_000);
query($node, 'SELECT snowflake_accept_clock()');
minted_with(1, 'the clock has passed it');
cmp_ok($ids[-100], '>', $ahead, 'IDs resume above');
set_conf($node, 'snowflake.max_ahead' => '1d');

# A reload that comes while the keeper's commit waits for a standby, and ends the wait: though
# nobody mints, the keeper knows what else has changed
configure_and_start("snowflake.node_id = 6\nsynchronous_standby_names = 'nobody'");
my $asking = start_minter($node, 1);    # or nothing would be reserved
wait_until('the keeper waits for a standby', sub { waits($node, 'snowflake keeper', 'SyncRep') });
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''");
change_node_id($node, 7);
finish_minter($asking);
minted_with(7, 'a reload while the keeper waits for a standby: another node ID is taken');

# Deleted rows are of no account while the server runs: another node ID goes on in the
# next tick, also one that would be smaller within a tick.
change_node_id($node, 17);
advance($node, '30 min');
minted_with(17, 'half an hour ahead');
change_node_id($node, -1);
query($node, 'DELETE FROM snowflake_keeper.reservation');
change_node_id($node, 2);
minted_with(2, 'without any row');

# The largest that the layout has, by reload; one more is too large: a reload keeps the old one
change_node_id($node, 1023);
minted_with(1023, 'the largest node ID is used');
my $offset = -s $node->logfile;
reload_with($node, 'snowflake.node_id = 1024');
$node->wait_for_log(qr/invalid value for parameter "snowflake\.node_id": 1024/, $offset);
minted_with(1023, 'a reload does not take one that is too large');

# At start, there is nothing to keep: the server comes up, but does not mint.
restart_node($node, 'fast', $clock, 'too large');
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
minted_with(7, 'and goes on with one that fits');
is(disorder(\@ids), 0, scalar(@ids) . ' IDs, all ascend');
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
