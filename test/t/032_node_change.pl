# snowflake.node_id can be set and changed by a reload.  The IDs of the server
# ascend across the change, and the old node ID's reservation is settled.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder error_of finish_minter new_clock new_node start_minter start_with_clock step_clock wait_for_mint
);
use PostgreSQL::Test::Utils;
use Test::More;

# The tick is long enough for a change to happen within one.
my $node = new_node(
	'main',
	node_id => undef,
	conf => q{
	snowflake.layout = 'time:41 node:10 sequence:12 tick:250ms epoch:2020-01-01T00:00:00Z'
	snowflake.reservation = '1h'
	snowflake.max_wait = '10s'
	snowflake.jump_patience = 0
	wal_level = replica
	max_wal_senders = 1
});

my $clock = new_clock('main');

sub start
{
	start_with_clock($node, $clock);
	return;
}

start();
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');

my @ids;

sub mint
{
	push @ids, split /\n/,
	  $node->safe_psql('postgres', 'SELECT snowflake_next() FROM generate_series(1, 100)');
	return;
}

sub refused
{
	return error_of($node, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()});
}

# Change the node ID by a reload, and wait until the keeper knows.
sub change_node
{
	my ($node_id) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET snowflake.node_id = $node_id");
	$node->reload;
	$node->poll_query_until('postgres',
		$node_id < 0
		? q{SELECT gate ~ 'not set' FROM snowflake_status}
		: "SELECT gate = 'open' AND node = $node_id FROM snowflake_status")
	  or die "node ID $node_id is not taken over";
	return;
}

sub node_of_newest
{
	return $node->safe_psql('postgres', "SELECT snowflake_node('$ids[-1]')");
}

# Unset
my $error = refused();
is($error->{sqlstate}, '55000', 'node ID unset: minting is refused');
like($error->{message}, qr/snowflake\.node_id/, 'the error names the setting');
like(
	$error->{hint},
	qr/^Set snowflake\.node_id in .* to a number that no other server mints with/,
	'the hint says how to set it');
is($node->safe_psql('postgres', q{SELECT to_regclass('snowflake_keeper.reservation') IS NULL}),
	't', 'nothing is reserved');

# Set by reload; the first mint has the keeper create its table
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = 1');
$node->reload;
wait_for_mint($node);
mint();
is(node_of_newest(), 1, 'set by reload: it is minted with');

# Changed.  Node 1's row is settled: an hour had been reserved.
change_node(2);
is( $node->safe_psql(
		'postgres',
		"SELECT reserved_until = snowflake_timestamp('$ids[-1]') FROM snowflake_keeper.reservation WHERE node = 1"
	),
	't',
	q{changed: the old node ID's row holds the tick of its last ID});
mint();
is(node_of_newest(), 2, 'the new one is used');
is(disorder(\@ids), 0, 'the IDs ascend across the change');

# And back
change_node(1);
mint();
is(node_of_newest(), 1, 'changed back');
is(disorder(\@ids), 0, 'the IDs ascend');

# Many times, with as little time in between as can be
foreach my $n (1 .. 6)
{
	change_node(2 + $n % 2);
	mint();
}
is(disorder(\@ids), 0, 'six more changes: the IDs ascend');

# Unset while it runs
change_node(-1);
is(refused()->{sqlstate}, '55000', 'unset by reload: minting is refused');
is($node->safe_psql('postgres', 'SELECT node FROM snowflake_status'),
	'', 'and the status has no node ID that is not in use');
change_node(1);
mint();
pass('and set again: minting goes on, without a restart');

# What any node ID has reserved counts for all of them, also across a restart
# with another one: let node 1 be an hour ahead of the clock, where IDs wait for it.
$node->append_conf('postgresql.conf', 'snowflake.max_ahead = 0');
$node->reload;
my $ahead = $node->safe_psql('postgres',
	q{SELECT snowflake_upper_bound(clock_timestamp() + interval '1 hour')});
$node->safe_psql('postgres', "SELECT snowflake_advance('$ahead', force => true)");
is(refused()->{sqlstate}, '55000', 'node 1 is an hour ahead of the clock');
change_node(4);
is(refused()->{sqlstate}, '55000', 'and so is another node ID by reload');
$node->stop('fast');
$node->append_conf('postgresql.auto.conf', 'snowflake.node_id = 5');
start();
$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
  or die "gate does not open";
$error = refused();
is($error->{sqlstate}, '55000', 'and another one by a restart');
like($error->{message}, qr/after the end of what was reserved before$/, 'which says why');
change_node(1);
$error = refused();
is($error->{sqlstate}, '55000', 'and node 1 itself after that restart');
step_clock($clock, 3_700_000);
mint();
cmp_ok($ids[-100], '>', $ahead, 'when the clock has passed it, IDs resume above');
$node->append_conf('postgresql.conf', q{snowflake.max_ahead = '1d'});
$node->reload;

# Too large
$error = error_of($node, 'ALTER SYSTEM SET snowflake.node_id = 1024');
is($error->{sqlstate}, '22023', 'ALTER SYSTEM refuses a node ID that is too large');
$node->stop('fast');
$node->append_conf('postgresql.auto.conf', 'snowflake.node_id = 1024');
start();
$error = refused();
is($error->{sqlstate}, '55000', 'started with it: the server runs, but does not mint');
like(
	"$error->{message} $error->{detail}",
	qr/\b1024\b.*\b1023\b/,
	'the error states it and the largest possible one');
change_node(1023);
mint();
is(node_of_newest(), 1023, 'the largest is taken by reload');

# A reload that comes while the keeper's commit waits for a standby, and ends the wait: though
# nobody mints, the keeper knows what else has changed
$node->stop('fast');
$node->append_conf('postgresql.auto.conf',
	"snowflake.node_id = 6\nsynchronous_standby_names = 'nobody'");
start();
my $asking = start_minter($node, 1);    # or nothing would be reserved
$node->poll_query_until('postgres',
	q{SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'})
  or die 'the keeper does not wait for a standby';
$node->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
change_node(7);
finish_minter($asking);
pass('a reload while the keeper waits for a standby: another node ID is taken');
mint();

# A stop does not wait for a standby that is away, since IDs above its end are not minted
$node->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
$node->reload;
$node->poll_query_until('postgres',
	q{SELECT current_setting('synchronous_standby_names') = 'nobody'})
  or die 'reload has no effect';
ok($node->stop('fast', fail_ok => 1), 'a stop without a synchronous standby');
$node->append_conf('postgresql.auto.conf', q{synchronous_standby_names = ''});
start();
mint();
is(node_of_newest(), 7, 'and minted with');

# A stop that comes while a change waits for the lock of the reservation: the gate is closed
# already, and the end of the old node ID is stored all the same.  The keeper starts afresh
# after each 300 ms for which it waited, and one that is about to start when the server is
# told to stop is not started: so one of several stops has to find it.
my ($new_id, $is_stored) = (7, 'f');
while ($is_stored eq 'f' && $new_id < 12)
{
	my $old_id = $new_id++;
	my $locker = $node->background_psql('postgres');

	$locker->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
	$node->safe_psql('postgres', "ALTER SYSTEM SET snowflake.node_id = $new_id");
	$node->reload;
	$node->poll_query_until('postgres', q{SELECT gate <> 'open' FROM snowflake_status})
	  or die 'the gate is not closed';
	$node->stop('fast');
	eval { $locker->quit };
	start();
	$is_stored = $node->safe_psql('postgres',
		"SELECT reserved_until = snowflake_timestamp('$ids[-1]') FROM snowflake_keeper.reservation WHERE node = $old_id"
	);
	mint();
}
is($is_stored, 't',
	'a change that is cut short by a stop: the row of the old node ID holds the tick of its last ID'
);
is(node_of_newest(), $new_id, 'and the start goes on with the new one');

# Under load, with node IDs that have not been used before
$node->safe_psql(
	'postgres', q{
	CREATE SEQUENCE moment;
	CREATE TABLE minted (before bigint, id snowflake, after bigint)});
$node->safe_psql('postgres', q{ALTER SYSTEM SET snowflake.reservation = '1s'});
my $script = PostgreSQL::Test::Utils::tempdir() . '/mint.sql';
append_to_file($script,
	"INSERT INTO minted VALUES (nextval('moment'), snowflake_next(), nextval('moment'));\n");
my ($output, $errors);
{
	local %ENV = $node->_get_env();
	my $pgbench = IPC::Run::start(
		[
			$node->installed_command('pgbench'),
			'-n', '-c', 4, '-T', 60, '-f', $script, $node->connstr('postgres')
		],
		'>',
		\$output,
		'2>',
		\$errors);

	foreach my $node_id (11 .. 16)
	{
		change_node($node_id);
		$node->poll_query_until('postgres',
			"SELECT count(*) >= 20 FROM minted WHERE snowflake_node(id) = $node_id")
		  or die "nothing is minted on node $node_id";
	}

	# its sessions end with an error that no mint raises
	$node->safe_psql('postgres', 'ALTER TABLE minted RENAME TO done');
	$pgbench->finish;
}
unlike(
	$errors,
	qr/ERROR:  (?!relation "minted" does not exist)/,
	'six changes under load: no mint fails');
is( $node->safe_psql(
		'postgres', q{
		SELECT count(*) >= 120, count(*) - count(DISTINCT id),
			   count(*) FILTER (WHERE after < latest_start)
		  FROM (SELECT id, after,
					   max(before) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS latest_start
				  FROM done) AS ordered}),
	't|0|0',
	'no duplicate, and who starts after another has returned gets a larger ID');
is( $node->safe_psql(
		'postgres', q{
		SELECT count(*)
		  FROM (SELECT snowflake_node(id), max(id) AS newest FROM done GROUP BY 1) AS nodes(node, newest)
		  JOIN snowflake_keeper.reservation r USING (node)
		 WHERE node < 16 AND reserved_until <> snowflake_timestamp(newest)}),
	0,
	'each old node ID is settled at the tick of its last ID');

# Deleted rows are of no account while the server runs: another node ID goes on in the
# next tick, also one that would be smaller within a tick.
$node->safe_psql('postgres', q{ALTER SYSTEM SET snowflake.max_lead = '1h'});
change_node(17);
$node->safe_psql('postgres',
	q{SELECT snowflake_advance(snowflake_upper_bound(clock_timestamp() + interval '30 min'), force => true)}
);
mint();
change_node(-1);
$node->safe_psql('postgres', 'DELETE FROM snowflake_keeper.reservation');
change_node(2);
mint();

is(disorder(\@ids), 0, scalar(@ids) . ' other IDs, all ascend');

$node->stop;
done_testing();
