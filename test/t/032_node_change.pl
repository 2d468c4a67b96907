# snowflake.node_id can be set and changed by a reload.  The IDs of the server
# ascend across the change, and the exact end of the old node ID's reservation
# is stored.

use lib 'test/perl';
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
is(disorder(\@ids), 0, scalar(@ids) . ' other IDs, all ascend');

$node->stop;
done_testing();
