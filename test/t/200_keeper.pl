# Whatever happens to the keeper, it comes back by itself, and the IDs ascend:
# terminated, canceled, killed, kept from its table.  It shows by its name.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder error_of finish_minter log_count new_node start_minter status
  takes_less wait_for_mint wait_until
);
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $node = new_node(
	'main', conf => q{
	snowflake.reservation = '1s'
	restart_after_crash = on
});
my @ids;

sub mint
{
	push @ids, $node->safe_psql('postgres', 'SELECT snowflake_next()');
	return;
}

sub extend
{
	SnowflakeTest::extend($node);
	mint();
	return;
}

sub keeper_pid
{
	return $node->safe_psql('postgres',
		q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'});
}

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
mint();
extend();

# What it writes is counted at once, so that autovacuum knows of the old rows.
is( $node->safe_psql(
		'postgres',
		q{SELECT n_tup_upd > 0 FROM pg_stat_user_tables WHERE relid = 'snowflake_keeper.reservation'::regclass}
	),
	't',
	'what the keeper writes shows in the statistics of its table');

# Seen
is( $node->safe_psql(
		'postgres', q{
		SELECT count(*), bool_and(datname = 'postgres'), bool_and(state IS NOT NULL)
		  FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'}),
	'1|t|t',
	'the keeper shows in pg_stat_activity, in its database');
is(status($node, 'keeper_pid'), keeper_pid(), 'snowflake_status has the same process');

# Canceled: nothing happens.
my $pid = keeper_pid();
my $offset = -s $node->logfile;
is($node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)"), 't', 'pg_cancel_backend');
extend();
is(keeper_pid(), $pid, 'does nothing to the keeper');
is(log_count($node, qr/\[$pid\] (?:ERROR|FATAL)/, $offset), 0, 'which does not complain');

# Terminated, twice
foreach my $n (1 .. 2)
{
	takes_less(
		3,
		'pg_terminate_backend: a gap of no more than 3 s',
		sub {
			$pid = keeper_pid();
			mint();
			my $start = clock_gettime(CLOCK_MONOTONIC);
			$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 60000)");
			push @ids,
			  $node->safe_psql('postgres',
				q{SET snowflake.max_wait = '1min'; SELECT snowflake_next()});
			my $gap = clock_gettime(CLOCK_MONOTONIC) - $start;

			isnt(keeper_pid(), $pid, 'then there is another keeper');
			return $gap;
		});
}
extend();
is(disorder(\@ids), 0, 'the IDs ascend');

# Wait, in a transaction that the keeper waits for, until it has closed the gate.
# It gives up after a moment, so a client would come too late.
my $until_closed = qq{
	SET LOCAL statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s';
	DO \$\$ BEGIN
		WHILE (SELECT gate FROM snowflake_status) = 'open' LOOP
			PERFORM pg_sleep(0.01);
		END LOOP;
	END \$\$};

# Told again while it stores the end, which it does not get to at once.  (A stop
# of the server sends each signal twice.)
$pid = keeper_pid();
$offset = -s $node->logfile;
$node->safe_psql(
	'postgres', qq{
	BEGIN;
	LOCK TABLE snowflake_keeper.reservation IN EXCLUSIVE MODE;
	SELECT pg_terminate_backend($pid);
	$until_closed;
	SELECT pg_terminate_backend($pid);
	COMMIT;
});
wait_for_mint($node);
is( log_count($node, qr/\[$pid\] ERROR:  cancel(?:ing statement due to user|ed a commit)/, $offset),
	0,
	'terminated again while it stores the end: the end is stored');
mint();

# Told while it stores the end of a node ID that is being changed.
$pid = keeper_pid();
$offset = -s $node->logfile;
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = 2');
$node->safe_psql(
	'postgres', qq{
	BEGIN;
	LOCK TABLE snowflake_keeper.reservation IN EXCLUSIVE MODE;
	SELECT pg_reload_conf();
	$until_closed;
	SELECT pg_terminate_backend($pid);
	COMMIT;
});
$node->poll_query_until('postgres', 'SELECT snowflake_node(snowflake_next()) = 2')
  or die "node ID does not change";
is(log_count($node, qr/\[$pid\] LOG:  snowflake gate closed$/, $offset),
	1, 'terminated while the node ID is changed: the end is stored');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET snowflake.node_id');
$node->reload;
$node->poll_query_until('postgres', 'SELECT snowflake_node(snowflake_next()) = 1')
  or die "node ID does not change back";
mint();

# A stop while it pauses after a failure: the end is stored all the same, unless the keeper is
# just about to start afresh when the server is told to stop.  One of several stops has to
# find it.
my $closed = 0;
for (my $stops = 0; $closed == 0 && $stops < 5; $stops++)
{
	$node->safe_psql('postgres', 'SELECT snowflake_next()');
	my $locker = $node->background_psql('postgres');
	$locker->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation IN EXCLUSIVE MODE');
	wait_until(
		'the keeper fails and pauses',
		sub {
			$node->psql('postgres', 'SET snowflake.max_wait = 0; SELECT snowflake_next()');
			return $node->safe_psql('postgres',
				q{SELECT keeper_pid IS NOT NULL AND coalesce(advice ~ '55P03', false) FROM snowflake_status}
			) eq 't';
		});
	$locker->quit;
	$offset = -s $node->logfile;
	$node->stop;
	$closed = log_count($node, qr/LOG:  snowflake gate closed$/, $offset);
	$node->start;
	wait_for_mint($node);
	mint();
}
is($closed, 1, 'stopped while it pauses after a failure: the end is stored');

# Fail, and pause for longer than for a lock, with the table as it should be again
sub fail_and_pause
{
	$node->safe_psql('postgres',
		'ALTER TABLE snowflake_keeper.reservation RENAME COLUMN layout TO arrangement');
	wait_until(
		'the keeper fails and pauses',
		sub {
			$node->psql('postgres', 'SET snowflake.max_wait = 0; SELECT snowflake_next()');
			return status($node, 'advice') =~ /failed with SQLSTATE 55000/;
		});
	$node->safe_psql('postgres',
		'ALTER TABLE snowflake_keeper.reservation RENAME COLUMN arrangement TO layout');
	return;
}
fail_and_pause();
$offset = -s $node->logfile;
$node->stop;
is(log_count($node, qr/LOG:  snowflake gate closed$/, $offset),
	1, 'the same for a pause that is not over yet');
$node->start;
wait_for_mint($node);
mint();

# An error does not end the keeper, and one that is over does not hold up the next one.
$pid = keeper_pid();
fail_and_pause();
extend();
is(keeper_pid(), $pid, 'the keeper goes on after an error');
takes_less(
	7,
	'a keeper that is terminated long after an error is there at once',
	sub {
		$pid = keeper_pid();
		my $start = clock_gettime(CLOCK_MONOTONIC);
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 60000)");
		wait_until('there is another keeper', sub { keeper_pid() !~ /^(?:$pid)?$/ });
		return clock_gettime(CLOCK_MONOTONIC) - $start;
	});
wait_for_mint($node);
mint();

# Killed: PostgreSQL restarts all processes, as for any backend.
{
	$pid = keeper_pid();
	$offset = -s $node->logfile;
	mint();
	my $reserved_until = status($node, 'reserved_until');
	kill 'KILL', $pid;
	$node->wait_for_log(qr/database system is ready to accept connections/, $offset);
	$node->poll_query_until('postgres', 'SELECT snowflake_next() IS NOT NULL')
	  or die "server does not mint";
	mint();
	is( $node->safe_psql('postgres', "SELECT snowflake_timestamp('$ids[-1]') > '$reserved_until'"),
		't',
		'SIGKILL of the keeper: IDs resume above what was reserved');
}
is(disorder(\@ids), 0, 'the IDs ascend');

# A backend that is killed while it mints takes no lock along.
my $minter = start_minter($node, 1_000_000);
$node->poll_query_until('postgres',
	q{SELECT count(*) > 0 FROM pg_stat_activity WHERE query = 'SELECT snowflake_next();' AND pid <> pg_backend_pid()}
) or die "session does not mint";
$pid = $node->safe_psql('postgres',
	q{SELECT pid FROM pg_stat_activity WHERE query = 'SELECT snowflake_next();' AND pid <> pg_backend_pid()}
);
$offset = -s $node->logfile;
kill 'KILL', $pid;
my $minted = finish_minter($minter);
$node->wait_for_log(qr/database system is ready to accept connections/, $offset);
$node->poll_query_until('postgres', 'SELECT snowflake_next() IS NOT NULL')
  or die "server does not mint";
mint();
is(scalar(grep { $_ >= $ids[-1] } @$minted),
	0, 'SIGKILL of a minting backend: IDs resume above its own');

# Kept from its table: minting goes on to the end of what is reserved, and the
# keeper tries again and again.
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
$offset = -s $node->logfile;
my $error = error_of($node,
	q{SET statement_timeout = '20s'; DO $$ BEGIN LOOP PERFORM snowflake_next(); END LOOP; END $$});
is($error->{sqlstate}, '55000', 'the table is locked: minting ends');
like($error->{message}, qr/reservation was not extended within 5000 ms/, 'with the reservation');
like($error->{hint}, qr/SQLSTATE 55P03/, 'the error has the keeper\'s');
my $stored =
  $session->query_safe('SELECT reserved_until FROM snowflake_keeper.reservation WHERE node = 1');
is( status(
		$node,
		"concat_ws(' ', snowflake_timestamp(last_id) <= '$stored', reserved_until = '$stored')"),
	't t',
	'and no ID is past what is stored');
like(
	error_of($node, 'SET snowflake.max_wait = 0; SELECT snowflake_next()')->{message},
	qr/reservation was not extended within 1000 ms/,
	'with max_wait 0 a mint has waited a second, and says so');
$node->wait_for_log(qr/ERROR:  canceling statement due to lock timeout/, $offset);
pass('the log says why');
$session->query_safe('COMMIT');
$session->quit;
$node->poll_query_until('postgres', 'SELECT snowflake_next() IS NOT NULL')
  or die "server does not mint";
extend();
pass('it is unlocked: minting goes on');

# The row is gone, or the table is empty: what is in memory counts.
$node->safe_psql('postgres', 'DELETE FROM snowflake_keeper.reservation');
extend();
is( $node->safe_psql(
		'postgres',
		'SELECT r.reserved_until >= last_time FROM snowflake_keeper.reservation r, snowflake_status WHERE r.node = 1'
	),
	't',
	'the row was deleted: the next reservation writes it anew');

is(disorder(\@ids), 0, scalar(@ids) . ' IDs, all ascend');

# No keeper, no IDs: single-user mode
$node->stop('fast');
my ($stdout, $stderr);
{
	local %ENV = $node->_get_env();
	IPC::Run::run(
		[ $node->installed_command('postgres'), '--single', '-D', $node->data_dir, 'postgres' ],
		'<',
		\"SELECT snowflake_next()\nSELECT keeper_waits FROM snowflake_stats\n",
		'>',
		\$stdout,
		'2>',
		\$stderr);
}
like(
	$stderr,
	qr/ERROR:  the snowflake generator has no keeper/,
	'single-user mode has no keeper, and says so');
like($stdout, qr/keeper_waits = "0"/, 'at once');

# Nor under pg_upgrade, which must find the server as it was left
$node->append_conf('postgresql.conf', 'autovacuum = off');
{
	local %ENV = $node->_get_env();
	PostgreSQL::Test::Utils::system_or_bail('pg_ctl', '-w', '-D', $node->data_dir, '-l',
		$node->logfile, '-o', '-b', 'start');
	$node->_update_pid(1);
}
is(status($node, 'gate'), 'closed: the keeper is not running', 'under pg_upgrade no keeper runs');
is(status($node, 'advice'), 'Start the server as usual.',
	'and the advice is to start it otherwise');
is(keeper_pid(), '', 'none is waiting either');
$node->stop;

$node->start;
mint();
is(disorder(\@ids), 0, 'after that the IDs ascend');

$node->stop;
done_testing();
