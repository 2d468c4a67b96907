# The keeper writes to its own table only, and only if it is as it made it: what a
# superuser attaches to the table is not run, and what a superuser changes about
# it stops minting at the end of the reservation, with the reason in the log and
# without a write, until it is repaired.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  error_of extend finish_minter log_count new_node start_minter status
  wait_for_mint wait_until
);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $node = new_node(
	'main',
	init => { allows_streaming => 1 },
	conf => q{snowflake.reservation = '1s'});
my $newest = 0;

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE ROLE app');
wait_for_mint($node);
my $table = $node->safe_psql('postgres', q{SELECT 'snowflake_keeper.reservation'::regclass::oid});

# What the table has, whatever it is called by now.
sub stored
{
	my $name = $node->safe_psql('postgres', "SELECT $table\::regclass");

	return $node->safe_psql('postgres',
		"SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM $name t");
}

# Mint until that fails; returns the error.
sub exhaust
{
	my $end = clock_gettime(CLOCK_MONOTONIC) + $PostgreSQL::Test::Utils::timeout_default;
	my $error;

	do
	{
		$error = error_of($node, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()});
		$newest = $1 if $error->{stdout} =~ /(\d+)/;
	} while ($error->{sqlstate} eq '' && clock_gettime(CLOCK_MONOTONIC) < $end);
	return $error;
}


# What is attached to the table has no part in the keeper's writes.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE noticed (what text);
	CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql
		AS 'BEGIN INSERT INTO noticed VALUES (TG_OP); RETURN NULL; END';
	CREATE TRIGGER swallow BEFORE INSERT OR UPDATE ON snowflake_keeper.reservation
		FOR EACH ROW EXECUTE FUNCTION swallow();
	ALTER TABLE snowflake_keeper.reservation ENABLE ALWAYS TRIGGER swallow;
	CREATE TRIGGER statement AFTER INSERT OR UPDATE ON snowflake_keeper.reservation
		EXECUTE FUNCTION swallow();
	ALTER TABLE snowflake_keeper.reservation ENABLE ALWAYS TRIGGER statement;
	CREATE RULE nothing AS ON UPDATE TO snowflake_keeper.reservation
		DO INSTEAD INSERT INTO noticed VALUES ('rule');
	CREATE POLICY hidden ON snowflake_keeper.reservation USING (false);
	ALTER TABLE snowflake_keeper.reservation ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
});
extend($node);
my $seen = $node->safe_psql('postgres',
	q{SELECT r.reserved_until >= last_time FROM snowflake_keeper.reservation r, snowflake_status});
is($seen, 't', 'triggers, rules and policies: the row is written all the same');
$node->restart;
wait_for_mint($node);
is($node->safe_psql('postgres', 'SELECT count(*) FROM noticed'), '0', 'and none of them is run');
$node->safe_psql(
	'postgres', q{
	DROP TRIGGER swallow ON snowflake_keeper.reservation;
	DROP TRIGGER statement ON snowflake_keeper.reservation;
	DROP RULE nothing ON snowflake_keeper.reservation;
	DROP POLICY hidden ON snowflake_keeper.reservation;
	ALTER TABLE snowflake_keeper.reservation DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY});


# What the keeper has written it holds against all who would change the table, until it has
# committed: here its commit waits for a standby.
$node->safe_psql('postgres',
	q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()});
my $waiting = start_minter($node, 1_000_000);
$node->poll_query_until('postgres',
	q{SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'})
  or die "keeper does not wait for a standby";
is( error_of($node,
		'BEGIN; LOCK TABLE snowflake_keeper.reservation IN SHARE ROW EXCLUSIVE MODE NOWAIT')
	  ->{sqlstate},
	'55P03',
	'no trigger can be created while the keeper writes');
$node->safe_psql('postgres',
	q{ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()});
$node->safe_psql('postgres',
	q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT snowflake_next();'}
);
finish_minter($waiting);
wait_for_mint($node);


# A copy of its index is fine, for as long as it takes to make it.
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()');
{
	my ($out, $err) = ('', '');
	local %ENV = $node->_get_env();
	my $reindex = IPC::Run::start(
		[
			$node->installed_command('psql'),
			'-XAtq', '-d', $node->connstr('postgres'),
			'-c', 'REINDEX TABLE CONCURRENTLY snowflake_keeper.reservation'
		],
		'>',
		\$out,
		'2>',
		\$err);

	wait_until(
		'the index is being copied',
		sub {
			return $node->safe_psql('postgres',
				"SELECT count(*) FROM pg_index WHERE indrelid = $table") eq '2';
		});
	extend($node);
	pass('REINDEX CONCURRENTLY, which is waiting: the reservation is extended');
	$old->query_safe('COMMIT');
	$old->quit;
	$reindex->finish;
	is($err, '', 'and it ends well');
}
extend($node);


# A copy, or another index, whose making was canceled stays behind, is not valid, and has no
# rows: it does not find the row, and is not written to.
foreach my $sql ('REINDEX TABLE CONCURRENTLY snowflake_keeper.reservation',
	'CREATE UNIQUE INDEX CONCURRENTLY ON snowflake_keeper.reservation (node)')
{
	my ($out, $err) = ('', '');
	my $offset = -s $node->logfile;
	my $keeper = status($node, 'keeper_pid');
	my $reservations = status($node, 'reservations');
	my $writer = $node->background_psql('postgres');
	local %ENV = $node->_get_env();

	# it waits for whoever may write to the table, before it begins with the index
	$writer->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation IN ROW EXCLUSIVE MODE');
	my $run = IPC::Run::start(
		[ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'), '-c', $sql ],
		'>', \$out, '2>', \$err);
	$node->poll_query_until('postgres',
		"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE query = '$sql'")
	  or die "no wait: $sql";
	$node->safe_psql('postgres',
		"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = '$sql'");
	$run->finish;
	$writer->query_safe('COMMIT');
	$writer->quit;
	is( $node->safe_psql(
			'postgres', "SELECT count(*) FROM pg_index WHERE indrelid = $table AND NOT indisvalid"),
		'1',
		"$sql, canceled: an index is left that is not valid");
	wait_until(
		'the keeper has written, or complains',
		sub {
			$node->psql('postgres', 'SELECT snowflake_next()');
			return status($node, 'reservations') > $reservations
			  || log_count($node, qr/\[$keeper\] ERROR/, $offset);
		});
	is(log_count($node, qr/\[$keeper\] ERROR/, $offset), 0, 'and the reservation is extended');
	my $left = $node->safe_psql('postgres',
		"SELECT indexrelid::regclass FROM pg_index WHERE indrelid = $table AND NOT indisvalid");
	$node->safe_psql('postgres', "DROP INDEX $left");
}
extend($node);


# It is moved while the keeper waits for it, which then has the right table in the
# wrong place.  The keeper gives up soon, so it may have to be tried again.
my $moved = 0;
my $minter = start_minter($node, 1_000_000);
foreach my $try (1 .. 5)
{
	my $offset = -s $node->logfile;

	$node->safe_psql(
		'postgres', qq{
		BEGIN;
		ALTER TABLE snowflake_keeper.reservation SET SCHEMA public;
		SET LOCAL statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s';
		DO \$\$ BEGIN
			WHILE NOT EXISTS (SELECT FROM pg_locks JOIN snowflake_status ON keeper_pid = pid WHERE NOT granted) LOOP
				PERFORM pg_sleep(0.01);
			END LOOP;
		END \$\$;
		COMMIT;
	});
	$node->wait_for_log(qr/ERROR:  (?:table "snowflake_keeper|canceling statement)/, $offset);
	$node->safe_psql('postgres', 'ALTER TABLE public.reservation SET SCHEMA snowflake_keeper');
	$moved = log_count($node, qr/DETAIL:  It was moved to another schema\.$/, $offset);
	last if $moved;
	extend($node);
}
cmp_ok($moved, '>', 0, 'moved while the keeper waits for it: it is not used there');
$node->safe_psql('postgres',
	q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT snowflake_next();'}
);
finish_minter($minter);
wait_for_mint($node);


# Changes that matter: each with what undoes it, and the reason.
my $keeper = 'snowflake_keeper';
foreach my $change (
	[
		"ALTER TABLE $keeper.reservation SET UNLOGGED",
		"ALTER TABLE $keeper.reservation SET LOGGED",
		'It does not survive a crash.'
	],
	[
		"CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler; ALTER TABLE $keeper.reservation SET ACCESS METHOD other",
		"ALTER TABLE $keeper.reservation SET ACCESS METHOD heap; DROP ACCESS METHOD other",
		'It is not a table of the access method "heap".'
	],
	[
		"ALTER TABLE $keeper.reservation OWNER TO app",
		"ALTER TABLE $keeper.reservation OWNER TO CURRENT_USER",
		'Its owner is not a superuser.'
	],
	[
		"ALTER SCHEMA $keeper OWNER TO app",
		"ALTER SCHEMA $keeper OWNER TO CURRENT_USER",
		'The owner of its schema is not a superuser.'
	],
	[
		"ALTER SCHEMA $keeper RENAME TO elsewhere",
		"ALTER SCHEMA elsewhere RENAME TO $keeper",
		'It does not exist.'
	],
	[
		"ALTER EXTENSION $keeper DROP TABLE $keeper.reservation",
		"ALTER EXTENSION $keeper ADD TABLE $keeper.reservation",
		'It is not a member of the extension "snowflake_keeper".'
	],
	[
		"ALTER TABLE $keeper.reservation RENAME TO kept; CREATE TABLE $keeper.reservation (LIKE $keeper.kept INCLUDING ALL); ALTER EXTENSION snowflake ADD TABLE $keeper.reservation",
		"ALTER EXTENSION snowflake DROP TABLE $keeper.reservation; DROP TABLE $keeper.reservation; ALTER TABLE $keeper.kept RENAME TO reservation",
		'It is not a member of the extension "snowflake_keeper".'
	],
	[
		"ALTER TABLE $keeper.reservation DROP CONSTRAINT reservation_pkey",
		"ALTER TABLE $keeper.reservation ADD PRIMARY KEY (node)",
		'Its primary key on "node" is missing.'
	],
	[
		"CREATE INDEX extra ON $keeper.reservation (abs(node))",
		"DROP INDEX $keeper.extra",
		'It has an index that is not the primary key on "node".'
	],
	[
		"ALTER TABLE $keeper.reservation RENAME reserved_until TO until",
		"ALTER TABLE $keeper.reservation RENAME until TO reserved_until",
		'A column was changed.'
	],
	[
		"ALTER TABLE $keeper.reservation ALTER layout TYPE varchar",
		"ALTER TABLE $keeper.reservation ALTER layout TYPE text",
		'A column was changed.'
	],
	[
		"ALTER TABLE $keeper.reservation ADD COLUMN extra text",
		"DROP EXTENSION $keeper CASCADE",
		'Columns were added or dropped.'
	])
{
	my ($sql, $undo, $reason) = @$change;
	my $offset = -s $node->logfile;

	$node->safe_psql('postgres', $sql);
	my $before = stored();
	my $error = exhaust();

	is($error->{sqlstate}, '55000', "$sql: minting stops");
	$node->wait_for_log(
		qr/ERROR:  table "snowflake_keeper\.reservation" is not fit for the snowflake reservation\n.*DETAIL:  \Q$reason\E/,
		$offset);
	is(stored(), $before, 'nothing is written');
	my $start = clock_gettime(CLOCK_MONOTONIC);
	$node->safe_psql('postgres', $undo);
	wait_for_mint($node);
	cmp_ok(clock_gettime(CLOCK_MONOTONIC) - $start, '<', 45, 'it goes on when that is repaired');
	my $id = $node->safe_psql('postgres', 'SELECT snowflake_next()');
	cmp_ok($id, '>', $newest, 'above all before');
}

# What else the keeper takes for granted is noticed when it is to write.
$node->safe_psql(
	'postgres',
	q{CREATE OPERATOR CLASS other_ops FOR TYPE int4 USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,
		OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int4, int4)});
my $alter = "ALTER TABLE $keeper.reservation";
my $index = "CREATE UNIQUE INDEX extra ON $keeper.reservation";
my $reason = 'It has an index that is not the primary key on "node".';
foreach my $change (
	[ "$index (node) WHERE node >= 0", "DROP INDEX $keeper.extra", $reason ],
	[ "$index (node other_ops)", "DROP INDEX $keeper.extra", $reason ],
	[ "$index (reserved_until)", "DROP INDEX $keeper.extra", $reason ],
	[
		"$alter DROP CONSTRAINT reservation_pkey, ADD PRIMARY KEY (node) DEFERRABLE",
		"$alter DROP CONSTRAINT reservation_pkey, ADD PRIMARY KEY (node)",
		$reason
	],
	[
		"$alter ALTER in_order DROP NOT NULL",
		"$alter ALTER in_order SET NOT NULL",
		'A column was changed.'
	])
{
	my ($sql, $undo, $detail) = @$change;
	my $offset = -s $node->logfile;

	# one that was written before may be counted afterwards
	$node->safe_psql('postgres', $sql);
	my $reservations = status($node, 'reservations');
	wait_until(
		'the keeper is to write',
		sub {
			$node->psql('postgres', 'SELECT snowflake_next()');
			return log_count($node, qr/DETAIL:  \Q$detail\E/, $offset)
			  || status($node, 'reservations') > $reservations + 1;
		});
	cmp_ok(log_count($node, qr/DETAIL:  \Q$detail\E/, $offset), '>', 0, "$sql: is noticed");
	$node->safe_psql('postgres', $undo);
	extend($node);
}

$node->stop;
done_testing();
