# snowflake.node_id can be set and changed by a reload.  The IDs of the server
# ascend across the change, and the exact end of the old node ID's reservation
# is stored.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  advance change_node_id disorder finish_minter lock_reservation mint_many new_clock new_node
  query refused reload_with set_conf start_minter start_with_clock status step_clock wait_for_mint
  wait_for_query wait_for_status wait_until waits
);
use PostgreSQL::Test::Utils;
use Test::More;

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
query($node, 'CREATE EXTENSION snowflake');
is(refused($node)->{message}, 'snowflake.node_id is not set', 'node ID unset: minting is refused');
is(query($node, q{SELECT to_regclass('snowflake_keeper.reservation') IS NULL}),
	't', 'nothing is reserved');

# Set by reload; the first mint has the keeper create its table.  Then changed, and back: the row is
# settled, though an hour had been reserved.
set_conf($node, 'snowflake.node_id' => 1);
wait_for_mint($node);
minted_with(1, 'set by reload: it is minted with');
change_node_id($node, 2);
is(is_settled(1), 't', q{changed: the old node ID's row holds the tick of its last ID});
minted_with(2, 'the new one is used');
foreach my $node_id (1, 3, 2, 3, 2, 3)
{
	change_node_id($node, $node_id);
	minted_with($node_id, 'changed again');
}

# Unset while it runs
change_node_id($node, -1);
is(refused($node)->{sqlstate}, '55000', 'unset by reload: minting is refused');
is(status($node, 'node'), '', 'and the status has no node ID that is not in use');
change_node_id($node, 1);
minted_with(1, 'and set again: minting goes on, without a restart');

# What any node ID has reserved counts for all of them, also across a restart
# with another one: let node 1 be an hour ahead of the clock, where IDs wait for it.
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

# A stop does not wait for a standby that is away, since IDs above its end are not minted
set_conf($node, synchronous_standby_names => 'nobody');
ok($node->stop('fast', fail_ok => 1), 'a stop without a synchronous standby');
$node->append_conf('postgresql.conf', q{synchronous_standby_names = ''});
start_with_clock($node, $clock);
minted_with(7, 'the server mints');

# A stop that comes while a change waits for the lock of the reservation: the gate is closed
# already, and the end of the old node ID is stored all the same.  The keeper starts afresh
# after each 300 ms for which it waited, and one that is about to start when the server is
# told to stop is not started: so one of several stops has to find it.
my ($node_id, $is_stored) = (7, 'f');
while ($is_stored eq 'f' && $node_id < 12)
{
	my $locker = lock_reservation($node);

	reload_with($node, 'snowflake.node_id = ' . ++$node_id);
	wait_for_status($node, q{gate <> 'open'});
	$node->stop('fast');
	eval { $locker->quit };
	start_with_clock($node, $clock);
	$is_stored = is_settled($node_id - 1);
	minted_with($node_id, 'the start goes on with the new one');
}
is($is_stored, 't',
	'a change that is cut short by a stop: the row of the old node ID holds the tick of its last ID'
);

# Under load, with node IDs that have not been used before
query(
	$node, q{
	CREATE SEQUENCE moment;
	CREATE TABLE minted (before bigint, id snowflake, after bigint)});
set_conf($node, 'snowflake.reservation' => '1s');
my $script = PostgreSQL::Test::Utils::tempdir() . '/mint.sql';
append_to_file($script,
	"INSERT INTO minted VALUES (nextval('moment'), snowflake_next(), nextval('moment'));\n");
{
	local %ENV = $node->_get_env();
	my $pgbench = IPC::Run::start(
		[
			$node->installed_command('pgbench'),
			'-n', '-c', 4, '-T', 60, '-f', $script, $node->connstr('postgres')
		],
		'>',
		\my $output,
		'2>',
		\my $errors);

	foreach my $id (11 .. 16)
	{
		change_node_id($node, $id);
		wait_for_query($node, "SELECT count(*) >= 20 FROM minted WHERE snowflake_node(id) = $id");
	}

	# its sessions end with an error that no mint raises
	query($node, 'ALTER TABLE minted RENAME TO done');
	$pgbench->finish;
	unlike(
		$errors,
		qr/ERROR:  (?!relation "minted" does not exist)/,
		'six changes under load: no mint fails');
}
is( query(
		$node, q{
		SELECT count(*) >= 120, count(*) - count(DISTINCT id),
			   count(*) FILTER (WHERE after < latest_start)
		  FROM (SELECT id, after,
					   max(before) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS latest_start
				  FROM done) AS ordered}),
	't|0|0',
	'no duplicate, and who starts after another has returned gets a larger ID');
is( query(
		$node, q{
		SELECT count(*)
		  FROM (SELECT snowflake_node(id), max(id) AS newest FROM done GROUP BY 1) AS nodes(node, newest)
		  JOIN snowflake_keeper.reservation r USING (node)
		 WHERE node < 16 AND reserved_until <> snowflake_timestamp(newest)}),
	0,
	'each old node ID is settled at the tick of its last ID');

# Deleted rows are of no account while the server runs: another node ID goes on in the
# next tick, also one that would be smaller within a tick.
change_node_id($node, 17);
advance($node, '30 min');
minted_with(17, 'half an hour ahead');
change_node_id($node, -1);
query($node, 'DELETE FROM snowflake_keeper.reservation');
change_node_id($node, 2);
minted_with(2, 'without any row');
is(disorder(\@ids), 0, scalar(@ids) . ' other IDs, all ascend');

$node->stop;
done_testing();
