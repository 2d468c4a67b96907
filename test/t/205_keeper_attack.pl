# No role becomes superuser through the keeper, or writes its table: not by
# replacing objects that it uses while it waits for a lock, not by owning the
# database, not by objects that were there first.  At worst minting stops, with an
# error that says why, and goes on when a superuser has cleaned up.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  change_node_id log_count new_node query refuses reload_with status wait_for_mint wait_for_query
  wait_until
);
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $node = new_node('main', conf => "snowflake.reservation = '1s'\nsnowflake.database = kept\n");

# In the keeper's database, and in one of applications
sub kept { return query($node, $_[0], dbname => 'kept'); }
sub app { return query($node, $_[0], dbname => 'app'); }

sub as
{
	my ($role, $sql) = @_;

	return "SET SESSION AUTHORIZATION $role; $sql";
}

$node->start;
query(
	$node, q{
	CREATE ROLE creator;
	CREATE ROLE owner;
	CREATE DATABASE kept OWNER owner;
	GRANT CREATE ON DATABASE kept TO creator;
	CREATE DATABASE app});
app('CREATE EXTENSION snowflake');
my $layout = app('SELECT layout FROM snowflake_layout()');

# What an attacker puts in the place of the keeper's table, in the first schema of search_path.
sub trap
{
	my ($role, $schema, $table) = @_;

	return qq{
	SET search_path = $schema;
	CREATE TABLE $table (node integer PRIMARY KEY, layout text NOT NULL, reserved_until timestamptz NOT NULL);
	INSERT INTO $table VALUES (1, '$layout', now() - interval '1 day');
	CREATE FUNCTION $table\_trap() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN ALTER ROLE $role SUPERUSER; RETURN NEW; END';
	CREATE TRIGGER trap BEFORE INSERT OR UPDATE ON $table
		FOR EACH ROW EXECUTE FUNCTION $table\_trap();
	CREATE TRIGGER late AFTER INSERT OR UPDATE ON $table
		EXECUTE FUNCTION $table\_trap();
	};
}

# Let the keeper reserve more, with these statements in a transaction that is
# open while it does so.
sub spring
{
	my ($role, $sql, $what) = @_;
	my $session = $node->background_psql('kept', on_error_stop => 0);
	my $reservations = status($node, 'reservations', dbname => 'app');

	$session->query(as($role, "BEGIN; $sql"));
	wait_until(
		'the keeper has reserved anew, or waits for the lock',
		sub {
			$node->psql('app', q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()});
			return app(
				qq{SELECT reservations > $reservations
					OR EXISTS (SELECT FROM pg_locks WHERE pid = keeper_pid AND NOT granted)
				FROM snowflake_status, snowflake_stats}) eq 't';
		});
	$session->query('COMMIT');
	$session->quit;
	$reservations = status($node, 'reservations', dbname => 'app');
	wait_for_query(
		$node,
		"SELECT snowflake_next() IS NOT NULL AND reservations > $reservations + 1 FROM snowflake_stats",
		dbname => 'app');
	nobody_is_superuser($what);
	return;
}

# Where the reservation is, is noted down.
sub is_noted
{
	my ($what) = @_;
	my $noted =
	  query($node,
		q{SELECT setconfig FROM pg_db_role_setting WHERE setdatabase = 0 AND setrole = 0});

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return like($noted, qr/^\{snowflake\.kept_in=\d+\}$/, $what);
}

sub nobody_is_superuser
{
	my ($what) = @_;
	my $superusers = q{FROM pg_roles WHERE rolsuper AND rolname IN ('creator', 'owner')};

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(query($node, "SELECT string_agg(rolname, ' ') $superusers"), '', $what);
}

# The place is taken before the keeper comes: nothing of it is used.
foreach my $taken (
	as( 'creator',
		'CREATE SCHEMA snowflake_keeper;' . trap('creator', 'snowflake_keeper', 'reservation')),
	as('creator', 'CREATE SCHEMA snowflake_keeper'),
	as('owner', 'CREATE SCHEMA snowflake_keeper'))
{
	my $offset = -s $node->logfile;

	# at once, or the keeper may come between
	kept("BEGIN; DROP SCHEMA IF EXISTS snowflake_keeper CASCADE; $taken; COMMIT");
	refuses(
		$node, 'SELECT snowflake_next()',
		'55000',
		"somebody has a schema of the keeper's name: nothing is minted",
		dbname => 'app');
	$node->wait_for_log(qr/ERROR:  schema "snowflake_keeper" does not belong to a superuser/,
		$offset);
	is(kept(q{SELECT count(*) FROM pg_extension WHERE extname LIKE 'snowflake%'}),
		'0', 'and nothing is put into it');
	nobody_is_superuser('nor is anything of it run');
}
kept('DROP SCHEMA snowflake_keeper CASCADE');
my $start = clock_gettime(CLOCK_MONOTONIC);
wait_for_mint($node, dbname => 'app');
cmp_ok(clock_gettime(CLOCK_MONOTONIC) - $start, '<', 45, 'a superuser drops it: minting goes on');

# The extension of applications, in the keeper's database: who created it replaces
# it while the keeper waits.
foreach my $schema ('mine', 'public')
{
	kept($_)
	  foreach as('creator', 'CREATE SCHEMA IF NOT EXISTS mine'),
	  'GRANT CREATE ON SCHEMA public TO creator',
	  as('creator', "CREATE EXTENSION snowflake SCHEMA $schema");
	wait_for_mint($node, dbname => 'app');
	spring(
		'creator',
		'DROP EXTENSION snowflake;' . trap('creator', $schema, 'snowflake_reservation'),
		"the extension in $schema is replaced by its creator: nothing is run");
	kept(
		"DROP TABLE $schema.snowflake_reservation; DROP FUNCTION $schema.snowflake_reservation_trap()"
	);
}

# The database's owner replaces the schema, or renames it
kept('CREATE EXTENSION snowflake');
spring(
	'owner',
	'DROP SCHEMA public CASCADE; CREATE SCHEMA public;'
	  . trap('owner', 'public', 'snowflake_reservation'),
	"the schema is replaced by the database's owner");
kept(
	'DROP SCHEMA public CASCADE; CREATE SCHEMA public; ALTER SCHEMA public OWNER TO owner; CREATE EXTENSION IF NOT EXISTS snowflake'
);
spring(
	'owner',
	'ALTER SCHEMA public RENAME TO old; CREATE SCHEMA public;'
	  . trap('owner', 'public', 'snowflake_reservation'),
	'or renamed');

is_noted('where the reservation is stays noted down');

# What the keeper does once, by SQL or as a superuser, is nobody's to hook into: the
# database's settings, and a superuser's own event triggers.  (Default privileges: 801_security.)
change_node_id($node, -1, dbname => 'app');
kept(
	q{
	DROP EXTENSION snowflake_keeper;
	DROP SCHEMA snowflake_keeper;
	ALTER ROLE ALL RESET snowflake.kept_in;
	CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler;
	SET allow_in_place_tablespaces = on;
	CREATE TABLESPACE elsewhere LOCATION '';
	CREATE FUNCTION hook() RETURNS event_trigger LANGUAGE plpgsql AS
		'BEGIN RAISE ''an event trigger is run''; END';
	CREATE EVENT TRIGGER hook ON ddl_command_start EXECUTE FUNCTION hook()});
kept(
	as( 'owner',
		join ';',
		map { "ALTER DATABASE kept SET $_" } 'role = owner',
		'search_path = public, pg_catalog',
		'default_table_access_method = other',
		'default_tablespace = elsewhere',
		'check_function_bodies = off',
		'quote_all_identifiers = on',
		'backslash_quote = off',
		'transform_null_equals = on',
		'default_transaction_read_only = on'));
app('SELECT pg_terminate_backend(keeper_pid) FROM snowflake_status');
reload_with($node, 'snowflake.node_id = 1');
wait_for_mint($node, dbname => 'app');
query($node, 'ALTER DATABASE kept RESET ALL');
kept('DROP EVENT TRIGGER hook');
is(kept('SELECT node FROM snowflake_keeper.reservation WHERE node >= 0'),
	'1', 'settings and event triggers: the extension is created all the same');
is( kept(
		q{SELECT count(*) FROM pg_class
		WHERE relnamespace = 'snowflake_keeper'::regnamespace AND reltablespace <> 0}),
	'0',
	'in the tablespace of its database');
is_noted('and where it is noted down');

# In the steady state the keeper runs no statement at all.
nobody_is_superuser('nobody has become superuser');
foreach my $library ('pg_stat_statements', 'pgaudit')
{
  SKIP:
	{
		$node->stop;
		$node->append_conf(
			'postgresql.conf', qq{
			shared_preload_libraries = 'snowflake, $library'
			pg_stat_statements.track = all
			pgaudit.log = all
			pgaudit.log_catalog = on
			pgaudit.log_relation = on
			log_line_prefix = '[%p] '});
		if (!$node->start(fail_ok => 1))
		{
			$node->append_conf('postgresql.conf', "shared_preload_libraries = 'snowflake'");
			$node->start;
			skip "$library is not installed", 1;
		}
		query($node, "CREATE EXTENSION $library");
		wait_for_mint($node, dbname => 'app');
		my ($keeper, $reservations) = split /\|/,
		  status($node, 'keeper_pid, reservations', dbname => 'app');

		wait_for_query(
			$node,
			"SELECT snowflake_next() IS NOT NULL AND reservations > $reservations + 3 FROM snowflake_stats",
			dbname => 'app');
		is( $library eq 'pgaudit'
			? log_count($node, qr/^\[$keeper\] .*AUDIT/)
			: query(
				$node,
				q{SELECT count(*) FROM pg_stat_statements JOIN pg_database d ON d.oid = dbid WHERE datname = 'kept'}
			),
			0,
			"the keeper runs no statement, says $library");
	}
}

$node->stop;
done_testing();
