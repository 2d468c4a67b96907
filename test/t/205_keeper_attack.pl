# No role becomes superuser through the keeper, or writes its table: not by owning the database,
# not by objects that were there first.  At worst minting stops, with an error that says why, and
# goes on when a superuser has cleaned up.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use Test::More;

my $node = new_node('main', conf => "snowflake.reservation = '1s'\nsnowflake.database = kept\n");

# In the keeper's database, and in one of applications
sub kept { return query($node, $_[0], dbname => 'kept'); }
sub app { return query($node, $_[0], dbname => 'app'); }

sub as { return "SET SESSION AUTHORIZATION $_[0]; $_[1]"; }

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

# What an attacker puts in the place of the keeper's table
my $trap = qq{
	SET search_path = snowflake_keeper;
	CREATE TABLE reservation (node integer PRIMARY KEY, layout text NOT NULL, reserved_until timestamptz NOT NULL);
	INSERT INTO reservation VALUES (1, '$layout', now() - interval '1 day');
	CREATE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN ALTER ROLE creator SUPERUSER; RETURN NEW; END';
	CREATE TRIGGER trap BEFORE INSERT OR UPDATE ON reservation FOR EACH ROW EXECUTE FUNCTION trap();
	CREATE TRIGGER late AFTER INSERT OR UPDATE ON reservation EXECUTE FUNCTION trap()};

# Where the reservation is, is noted down.
sub is_noted
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return like(
		query(
			$node,
			q{SELECT setconfig FROM pg_db_role_setting WHERE setdatabase = 0 AND setrole = 0}),
		qr/^\{snowflake\.kept_in=\d+\}$/,
		$_[0]);
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
	as('creator', "CREATE SCHEMA snowflake_keeper; $trap"),
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
	nobody_is_superuser('nor is anything of it run');
}
kept('DROP SCHEMA snowflake_keeper CASCADE');
wait_for_mint($node, dbname => 'app');
is_noted('a superuser drops it: minting goes on, and where the reservation is, is noted down');

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
nobody_is_superuser('nobody has become superuser');
$node->stop;
done_testing();
