# Whatever happens to the keeper, it comes back by itself, and the IDs ascend: if it is terminated,
# canceled, killed, or fails.  Its name shows in pg_stat_activity.
# versions: all

use SnowflakeTest qw(!extend !mint);
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $node = minting_node(
	'main', conf => q{
	snowflake.reservation = '1s'
	restart_after_crash = on
	log_connections = off
});
my @ids;

sub sql { return query($node, @_); }

sub mint
{
	push @ids, sql(q{SET snowflake.max_wait = '90s'; SELECT snowflake_next()});
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
	return sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'});
}

mint();
extend();

# It shows.  What it writes is counted at once, so that autovacuum knows of the old rows.
is( sql(q{SELECT n_tup_upd > 0 FROM pg_stat_user_tables WHERE relid = 'snowflake_keeper.reservation'::regclass}
	),
	't',
	'what the keeper writes shows in the statistics of its table');
is( sql(q{SELECT count(*), bool_and(datname = 'postgres'), bool_and(state IS NOT NULL)
		FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'}),
	'1|t|t',
	'the keeper shows in pg_stat_activity, in its database');
is(status($node, 'keeper_pid'), keeper_pid(), 'snowflake_status has the same process');

# Canceled: nothing happens.
my ($pid, $offset) = keeper_pid();
is(sql("SELECT pg_cancel_backend($pid)"), 't', 'pg_cancel_backend');
extend();
is(keeper_pid(), $pid, 'does nothing to the keeper');

# Terminated
takes_less(
	3,
	'pg_terminate_backend: a gap of no more than 3 s',
	sub {
		$pid = keeper_pid();
		mint();
		my $start = clock_gettime(CLOCK_MONOTONIC);
		sql("SELECT pg_terminate_backend($pid, 60000)");
		mint();
		my $gap = clock_gettime(CLOCK_MONOTONIC) - $start;
		isnt(keeper_pid(), $pid, 'then there is another keeper');
		return $gap;
	});
extend();

# Terminated while it stores the end, which it does not get to at once: once more (a stop of the
# server sends each signal twice), or for the first time, while it does so for a node ID that is
# being changed.  The transaction that has the table waits for the closed gate; a client would come
# too late, for the keeper gives up after a moment.
foreach my $case ([ 'the end is stored, and it is terminated again', 'pg_terminate_backend(%d)' ],
	[ 'the node ID is changed', 'pg_reload_conf()' ])
{
	my ($what, $closing) = @$case;
	my $changes = $what =~ /node ID/;

	$pid = keeper_pid();
	$offset = -s $node->logfile;
	sql('ALTER SYSTEM SET snowflake.node_id = 2') if $changes;
	sql(sprintf q{
		BEGIN;
		LOCK TABLE snowflake_keeper.reservation IN EXCLUSIVE MODE;
		SELECT %s;
		SET LOCAL statement_timeout = '%ds';
		DO 'BEGIN WHILE (SELECT gate FROM snowflake_status) = $$open$$ LOOP END LOOP; END';
		SELECT pg_terminate_backend(%d);
		COMMIT}, sprintf($closing, $pid), $PostgreSQL::Test::Utils::timeout_default, $pid);
	wait_for_query($node, 'SELECT snowflake_node(snowflake_next()) = ' . ($changes ? 2 : 1));
	is( log_count(
			$node, qr/\[$pid\] ERROR:  cancel(?:ing statement due to user|ed a commit)/, $offset),
		0,
		"terminated while $what: no error");
	is(log_count($node, qr/\[$pid\] LOG:  snowflake gate closed$/, $offset),
		1, "terminated while $what: the end is stored");
}
sql('ALTER SYSTEM RESET snowflake.node_id');
change_node_id($node, 1);
mint();

# Fail, and pause, with the table as it should be again
sub fail_and_pause
{
	sql('ALTER TABLE snowflake_keeper.reservation RENAME layout TO arrangement');
	wait_until(
		'the keeper fails and pauses',
		sub {
			refused($node, 0);
			return status($node,
				q{keeper_pid IS NOT NULL AND coalesce(advice ~ 'failed with SQLSTATE 55000', false)}
			) eq 't';
		});
	sql('ALTER TABLE snowflake_keeper.reservation RENAME arrangement TO layout');
	return;
}

# An error does not end the keeper.
$pid = keeper_pid();
fail_and_pause();
extend();
is(keeper_pid(), $pid, 'the keeper goes on after an error');

# A stop while it pauses after a failure: the end is stored all the same, unless the keeper is
# just about to try again when the server is told to stop.  One of several stops has to find it.
my $ends = 0;
for (my $stops = 0; $ends == 0 && $stops < 5; $stops++)
{
	mint();
	fail_and_pause();
	$offset = -s $node->logfile;
	$node->stop;
	$ends = log_count($node, qr/LOG:  snowflake gate closed$/, $offset);
	$node->start;
	wait_for_mint($node);
}
is($ends, 1, 'stopped while it pauses after a failure: the end is stored');
mint();

# A process that is killed: PostgreSQL restarts all, also the keeper.  One that is killed while it mints
# takes no lock along.
my $minter = start_minter($node, 1_000_000);
my $minting = q{FROM pg_stat_activity WHERE query = 'SELECT snowflake_next();'};
mint();
wait_for_query($node, "SELECT count(*) > 0 $minting");
my $reserved_until = status($node, 'reserved_until');
$offset = -s $node->logfile;
kill 'KILL', sql("SELECT pid $minting");
my $minted = finish_minter($minter);
$node->wait_for_log(qr/database system is ready to accept connections/, $offset);
wait_for_mint($node);
mint();
is(sql("SELECT snowflake_timestamp('$ids[-1]') > '$reserved_until'"),
	't', 'SIGKILL of a backend that mints: IDs resume above what was reserved');
is(scalar(grep { $_ >= $ids[-1] } @$minted), 0, 'and above all that were minted');

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

done_testing();
