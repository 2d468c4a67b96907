# Each call of a migration is killed at random points, by the end of its session and by a crash
# of the server, and is called again until it succeeds: the result is that of an undisturbed
# call.
#
# With SNOWFLAKE_TEST_LONG=1 everything is repeated until each call was killed 20 times.
#
# long

use SnowflakeDepot;
use SnowflakeTest;
use Time::HiRes qw(time);

my $seed = $ENV{SNOWFLAKE_TEST_SEED} // 58;
srand $seed;
note "SNOWFLAKE_TEST_SEED=$seed";
my $node = new_node('main', conf => conf());
$node->start;
load_depot($node, 1);
(run_file($node, 'depot', 'mend.sql'))[1] eq '' or die;
query(
	$node, q{
	ALTER TABLE app.orders ALTER COLUMN number DROP EXPRESSION;
	ALTER TABLE app.orders ENABLE RULE orders_closing;
	-- what backfill() fills: a key and a reference to another one, with rows that share a tick
	ALTER TABLE app.sessions ADD COLUMN at timestamptz, ADD COLUMN seen integer DEFAULT 0, ADD COLUMN id snowflake;
	CREATE TABLE app.visits (token uuid REFERENCES app.sessions, session snowflake);
	INSERT INTO app.sessions (user_id, at) SELECT 1, timestamptz '2024-01-01Z' + n / 4 * interval '1 ms' FROM generate_series(1, 4000) n;
	UPDATE app.sessions SET at = '2024-01-02Z' WHERE at IS NULL;
	INSERT INTO app.visits SELECT token FROM app.sessions UNION ALL SELECT token FROM app.sessions;
	CREATE FUNCTION app.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.seen := NEW.seen + 1; RETURN NEW; END $$;
	CREATE TRIGGER see BEFORE UPDATE ON app.sessions FOR EACH ROW EXECUTE FUNCTION app.see();
	ANALYZE}, dbname => 'depot');
my $before = catalog($node, 'depot');
my $had = contents($node, 'depot');
my ($dbname, %kills, %seconds);
my $calls = 0;

# Wait until the victim is active, or waits for a lock, and for some time more; then end its session, and
# return whether it was still active.
query(
	$node, q{
	CREATE FUNCTION kill_victim(pause float8, is_waiting boolean, is_told boolean) RETURNS integer LANGUAGE plpgsql AS $$
	DECLARE
		victim integer;
	BEGIN
		FOR i IN 1 .. 10000 LOOP
			PERFORM pg_stat_clear_snapshot();
			SELECT pid INTO victim FROM pg_stat_activity
				WHERE application_name = 'victim' AND state = 'active' AND (NOT is_waiting OR wait_event_type = 'Lock');
			EXIT WHEN FOUND;
			PERFORM pg_sleep(0.001);
		END LOOP;
		PERFORM pg_sleep(pause), pg_stat_clear_snapshot();
		IF NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = victim AND application_name = 'victim' AND state = 'active') THEN
			RETURN 0;
		END IF;
		RETURN CASE WHEN NOT is_told OR pg_terminate_backend(victim, 10000) THEN 1 ELSE 0 END;
	END $$});

# Call it until it gets through.  The first attempt ends when it waits for a lock on a table that it
# needs.  Each further one is given more time than the ones before, a random part of which it has;
# the third one ends with the server.
sub killed
{
	my ($what, $sql, $table) = (@_, 'app.orders');
	my $script = PostgreSQL::Test::Utils::tempdir() . '/' . ++$calls;
	my $given = 0.6 * ($seconds{$what} // 0.03);

	append_to_file($script, $sql);
	for (my $attempt = 1;; $attempt++)
	{
		my ($out, $err) = ('', '');
		my $holder;

		if ($attempt == 1)
		{
			$holder = $node->background_psql($dbname);
			$holder->query_safe("BEGIN; LOCK TABLE $table");
		}
		my $run =
		  start_client($node,
			[ qw(psql -XAtq -f), $script, $node->connstr($dbname) . ' application_name=victim' ],
			'>', \$out, '2>', \$err);
		my $start = time;
		my $is_there = query(
			$node,
			sprintf 'SELECT kill_victim(%f, %s, %s)',
			$holder ? (0, 'true', 'true') : (rand $given, 'false', $attempt == 3 ? 'false' : 'true')
		);

		if ($attempt == 3 && $is_there)
		{
			kill_postmaster($node);
			start_after_kill($node);
			wait_for_mint($node, dbname => $dbname);
		}
		$kills{$what} += $is_there;
		$given *= 1.25;
		$holder->quit if $holder;
		eval { $run->finish };
		next if $err =~ /terminating connection|server closed|connection to server was lost/;

		# a call that was killed when it had done its work has nothing left to do
		die "$what: $err"
		  if $err =~ /ERROR/
		  && $err !~ /the migration is|no migration has begun|none of these columns is filled/;
		$seconds{$what} = time - $start;
		last;
	}
	return cmp_ok($kills{$what}, '>', 0, "$what: killed $kills{$what} times");
}

# How many objects of a migration there are.
sub leavings
{
	return query(
		$node,
		q{SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'snowflake\_%\_%') + (SELECT count(*) FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid WHERE attname LIKE 'snowflake\_%\_%' AND relkind IN ('r', 'p'))
			+ (SELECT count(*) FROM pg_proc WHERE proname LIKE '~snowflake%') + (SELECT count(*) FROM snowflake_migrate.step)},
		dbname => $dbname);
}

my $fill =
  q{CALL snowflake_migrate.fill('{app.orders,app.customers,app.tags}', batch => 200, load => 0.9)};
my $build = q{SELECT snowflake_migrate.build() \gexec};
my $round = 0;
do
{
	query($node, "DROP DATABASE $dbname") if $round;
	$dbname = new_depot($node, 'killed_' . ++$round);
	killed('fill', $fill);
	killed('build', $build);
	is( build($node, $dbname)
		  . query($node, 'SELECT count(*) FROM snowflake_migrate.build()', dbname => $dbname),
		0,
		'all is built');
	killed('swap', 'CALL snowflake_migrate.swap()');
	killed('undo', 'CALL snowflake_migrate.undo()');
	is(difference($before, catalog($node, $dbname)),
		'', 'swapped and undone: the schema is as it was');
	is(contents($node, $dbname), $had, 'and so are the rows');
	query($node, $fill, dbname => $dbname);
	build($node, $dbname);
	killed('undo before the swap', 'CALL snowflake_migrate.undo()');
	is(difference($before, catalog($node, $dbname)), '', 'undone before the swap');
	is(leavings(), 0, 'nothing is left over');
	query($node, $fill, dbname => $dbname);
	build($node, $dbname);
	query($node, 'CALL snowflake_migrate.swap()', dbname => $dbname);
	killed('finish', 'CALL snowflake_migrate.finish()');
	is(unexplained($before, catalog($node, $dbname)),
		'', 'finished: nothing of the catalogs is lost');
	is(contents($node, $dbname), $had, 'nor of the rows, and no trigger has fired');
	is(leavings(), 0, 'nothing is left over');

	killed('leave', q{SELECT snowflake_migrate.leave('{app.orders,app.customers,app.tags}')});
	killed('convert', q{SELECT snowflake_migrate.convert('{app.orders,app.customers,app.tags}')});
	is(unexplained($before, catalog($node, $dbname)),
		'', 'to a sequence and back: nothing of the catalogs is lost');
	is(contents($node, $dbname), $had, 'nor of the rows');

	killed(
		'backfill',
		q{CALL snowflake_migrate.backfill('app.sessions.id', 'at', 1000, batch => 100, load => 0.9)},
		'app.sessions');
	is( query(
			$node, q{
			SELECT count(*) - count(id), count(id) - count(DISTINCT id), sum(seen),
				(SELECT count(*) FROM (SELECT at, lag(at) OVER (ORDER BY id) AS before FROM app.sessions) AS s WHERE at < before),
				max(snowflake_timestamp(id) - at) < interval '1 ms', bool_and(snowflake_node(id) = 1000) FROM app.sessions},
			dbname => $dbname),
		'0|0|0|0|t|t',
		'each row has one ID of its time, and no trigger has fired');
	killed(
		'move_references',
		q{CALL snowflake_migrate.move_references('app.visits.session', 'token', 'app.sessions.id', 'token', batch => 100)},
		'app.visits');
	is( query(
			$node,
			q{SELECT count(*), count(*) FILTER (WHERE s.id = v.session) FROM app.visits v LEFT JOIN app.sessions s USING (token)},
			dbname => $dbname),
		join('|', (query($node, 'SELECT count(*) FROM app.visits', dbname => $dbname)) x 2),
		'each reference has moved');
} while $ENV{SNOWFLAKE_TEST_LONG} && $round < 20 && grep { $_ < 20 } values %kills;
note join ', ', map { "$_: $kills{$_}" } sort keys %kills;

done_testing();
