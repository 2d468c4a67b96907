# What an ordinary user may do, and what a user who created the extension
# without being a superuser may do.
# versions: all

use SnowflakeTest;

# Every other function is for everybody.
my @restricted = (
	'public.snowflake_accept_clock()',
	'public.snowflake_accept_database(bigint,boolean)',
	'public.snowflake_accept_layout()',
	'public.snowflake_advance(bigint,boolean)',
	'public.snowflake_fleet()',
	'public.snowflake_fleet_create(timestamp with time zone)',
	'public.snowflake_fleet_reclaim(integer,timestamp with time zone)',
	'public.snowflake_fleet_recover(timestamp with time zone,boolean)',
	'public.snowflake_restart_at_clock(integer)',
	'public.snowflake_stats_reset()');

my $node = new_node('main');
$node->start;

sub rows
{
	my ($dbname, $sql) = @_;

	return split /\n/, query($node, "SET search_path = pg_catalog; $sql", dbname => $dbname);
}

sub finds_nothing
{
	my ($dbname, $sql, $what) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(join(', ', rows($dbname, $sql)), '', $what);
}

# The SQLSTATE of each of these statements as a role, empty if there is no error.  They run in one
# session, for there are hundreds.
sub sqlstates
{
	my ($role, $dbname, @statements) = @_;
	my $script = join '', map {
		"SET SESSION AUTHORIZATION $role;\n$_;\n\\echo sqlstate :SQLSTATE\nROLLBACK;\nRESET SESSION AUTHORIZATION;\n"
	} @statements;
	my (undef, $output) = $node->psql($dbname, $script, on_error_stop => 0);

	return map { $_ eq '00000' ? '' : $_ } $output =~ /^sqlstate (\w+)$/mg;
}

query($node, 'CREATE ROLE nobody; CREATE ROLE "Some body"');
query($node, "CREATE DATABASE $_") foreach qw(plain trusted);

# Default privileges that would open everything to others, also to one whose name needs quotes.
query(
	$node, q{
	ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO nobody, PUBLIC;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO nobody, "Some body" WITH GRANT OPTION;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO nobody, PUBLIC}, dbname => $_
) foreach 'plain', 'postgres';
query($node, 'CREATE EXTENSION snowflake', dbname => 'plain');
wait_for_mint($node, dbname => 'plain');

# Ordinary users: functions.  A new one is for everybody, or it is in the list.
is_deeply(
	[
		rows(
			'plain',
			'SELECT m.oid::regprocedure FROM '
			  . members('pg_proc')
			  . q{ WHERE NOT has_function_privilege('nobody', m.oid, 'EXECUTE') ORDER BY proname})
	],
	\@restricted,
	'only what is listed is restricted');

# The reservation, of ordinary users, those who monitor, and those who own its database or may
# create objects in it: what they may not do.  (800_hostile_roles tries more of it, at random.)
my $table = 'snowflake_keeper.reservation';
my @statements = (
	"SELECT node FROM $table",
	'DROP EXTENSION snowflake_keeper',
	'DROP SCHEMA snowflake_keeper CASCADE',
	'CREATE FUNCTION snowflake_keeper.f() RETURNS integer LANGUAGE sql RETURN 1',
	q{ALTER ROLE ALL SET snowflake.kept_in = '1'},
	q{ALTER DATABASE postgres SET snowflake.kept_in = '1'});
my @changes = (
	"INSERT INTO $table DEFAULT VALUES",
	"UPDATE $table SET node = 1",
	"DELETE FROM $table",
	"MERGE INTO $table USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE",
	"TRUNCATE $table",
	"ALTER TABLE $table DISABLE TRIGGER ALL",
	"CREATE TRIGGER t BEFORE INSERT ON $table EXECUTE FUNCTION suppress_redundant_updates_trigger()",
	"CREATE TABLE child () INHERITS ($table)",
	"DROP TABLE $table");

# A privilege, or an object that one may see, is missing for each, or it belongs to the extension.
sub cannot
{
	my ($role, $what, @statements) = @_;
	my @states = sqlstates($role, 'postgres', @statements);
	my @done =
	  map { $statements[$_] } grep { $states[$_] !~ /^(?:42501|42704|2BP01)$/ } 0 .. $#statements;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(join("\n", @done), '', $what);
}

# may create whatever the commands above need beside the relation
query($node, $_)
  foreach 'GRANT CREATE ON SCHEMA public TO nobody',
  'CREATE ROLE monitor IN ROLE pg_monitor',
  'CREATE ROLE creator',
  'GRANT CREATE ON DATABASE postgres TO creator',
  'CREATE ROLE of_database',
  'ALTER DATABASE postgres OWNER TO of_database';
cannot($_, "$_ cannot touch the reservation", @statements, @changes)
  foreach qw(nobody monitor creator of_database);
finds_nothing(
	'postgres', q{
			SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END, privilege_type
			FROM pg_class, aclexplode(relacl)
			WHERE oid = 'snowflake_keeper.reservation'::regclass AND grantee <> relowner},
	'whatever the default privileges are');
finds_nothing(
	'postgres', q{
			SELECT DISTINCT what
			FROM (SELECT 'schema', nspowner, nspacl FROM pg_namespace WHERE nspname = 'snowflake_keeper'
				UNION ALL
				SELECT proname, proowner, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc
				WHERE pronamespace = 'snowflake_keeper'::regnamespace) AS o(what, owner, acl),
				aclexplode(acl)
			WHERE grantee <> owner}, 'nor has anybody rights on its schema, or on a function there');

# Every right that there is, short of a superuser's, and of those by which one reads
# and writes files or runs programs as the server does.
query(
	$node, q{
	CREATE ROLE all_rights CREATEDB CREATEROLE REPLICATION BYPASSRLS;
	DO $$
	DECLARE
		predefined name;
	BEGIN
		FOR predefined IN
			SELECT rolname FROM pg_roles
			WHERE rolname ~ '^pg_' AND rolname !~ '_server_|^pg_database_owner$'
		LOOP
			EXECUTE format('GRANT %I TO all_rights', predefined);
		END LOOP;
	END $$});
is( query(
		$node, q{
		SELECT pg_has_role('all_rights', 'pg_write_all_data', 'USAGE'),
			has_table_privilege('all_rights', 'snowflake_keeper.reservation', 'UPDATE')}),
	't|t',
	'who may write any table');
cannot('all_rights', 'can neither write nor change it', @changes);
refuses(
	$node, 'TRUNCATE snowflake_keeper.reservation',
	'42501',
	'nor does a superuser truncate it, which subscribers would do as well',
	detail => qr/^Only the snowflake keeper may write it/);

# Core's own functions are what they are under our name, too; so wants opr_sanity,
# which looks at what C function they are.
finds_nothing(
	'plain',
	'SELECT m.oid::regprocedure FROM '
	  . members('pg_proc')
	  . q{ JOIN pg_proc core ON core.prosrc = m.prosrc AND core.pronamespace = 'pg_catalog'::regnamespace
				AND core.prolang = m.prolang
			WHERE m.prolang = (SELECT oid FROM pg_language WHERE lanname = 'internal')
			AND (m.proleakproof, m.provolatile, m.proisstrict, m.proparallel)
				<> (core.proleakproof, core.provolatile, core.proisstrict, core.proparallel)},
	'core functions are as leakproof, strict, volatile and parallel as core says');

# Of the others these must not tell anything about their arguments: no error, whatever they are.
# test/sql/timefilter.sql has times of other types.
is( join(
		' ',
		rows(
			'plain',
			'SELECT m.oid::regproc FROM '
			  . members('pg_proc')
			  . q{ WHERE m.proleakproof
				AND prolang <> (SELECT oid FROM pg_language WHERE lanname = 'internal') ORDER BY m.oid::regproc::text}
		)),
	'public.snowflake_before public.snowflake_filter public.snowflake_until',
	'these functions of ours are leakproof');
rows(
	'plain',
	q{SELECT public.snowflake_before(t), public.snowflake_until(t), public.snowflake_filter(t > now())
		FROM unnest('{-infinity,4714-11-24 00:00:00 BC +0,294276-12-31 23:59:59.999999+0,infinity}'::timestamptz[]) t}
);
pass('and do not fail');

# Settings: each is open to whom the reference says, and all but one are for everybody to see.
my $reference = slurp_file('doc/reference.md');
my %documented =
  map { /^\| `(snowflake(?:_public)?\.\w+)` \|[^|]*\| (\w+) \|/ ? ($1 => $2) : () }
  split /\n/, $reference;
my $settings = q{SELECT name,
	CASE context WHEN 'postmaster' THEN 'restart' WHEN 'sighup' THEN 'reload'
	WHEN 'user' THEN 'session' ELSE context END
	FROM pg_settings WHERE name ~ '^snowflake[.]' ORDER BY name};
my @shown = rows('plain', $settings);
delete $documented{'snowflake_public.key_file'};    # 703_key_file has that
is_deeply({ map { split /\|/ } @shown }, \%documented, 'settings change as the reference says');
is_deeply(
	[ rows('plain', "SET ROLE nobody; $settings") ],
	[ grep { !/^snowflake\.node_source\|/ } @shown ],
	'all see all of them, but for that which may have a password');

# A user who may create objects in a database creates the extension there.
query($node, 'CREATE ROLE owner; GRANT CREATE ON DATABASE trusted TO owner');
query($node, 'GRANT CREATE ON SCHEMA public TO owner', dbname => 'trusted');
is( query(
		$node, q{
		SET SESSION AUTHORIZATION owner;
		CREATE SCHEMA mine;
		CREATE EXTENSION snowflake SCHEMA mine;
		SET search_path = mine;
		CREATE TABLE t (id snowflake PRIMARY KEY DEFAULT snowflake_next());
		INSERT INTO t SELECT FROM generate_series(1, 10);
		SELECT count(*) FROM t WHERE @@ id > now() - interval '1 hour' AND snowflake_node(id) = 1},
		dbname => 'trusted'),
	'10',
	'who may create objects creates the extension and mints');
finds_nothing(
	'trusted',
	'SELECT relname FROM ' . members('pg_class') . q{ AND relkind <> 'v'},
	'the extension has no table, for dumps and replication to trip over');
my @not_owned = (
	"SELECT mine.snowflake_advance('1')",
	'SELECT mine.snowflake_accept_layout()',
	'CREATE EXTENSION snowflake_keeper');
is_deeply(
	[ sqlstates('owner', 'trusted', @not_owned) ],
	[ ('42501') x @not_owned ],
	'but may not do what is for others');

# What is there already is not taken over: scripts create what must not be there yet.
my ($sharedir) = run_command([ 'pg_config', '--sharedir' ]);
foreach my $script (glob "$sharedir/extension/snowflake*--*.sql")
{
	# neither comments, nor the script's own path, nor what functions do when they are called
	my $sql = slurp_file($script) =~ s/--.*//gr =~ s{/\*.*?\*/}{}gsr;

	$sql =~ s/set_config\('search_path',.*?;|\bAS \$\$.*?\$\$//gs;
	$sql =~ s/\bSET search_path = pg_catalog, pg_temp\b//g;
	unlike(
		$sql,
		qr/\b(?:OR\s+REPLACE|IF\s+(?:NOT\s+)?EXISTS|SECURITY\s+DEFINER|search_path)\b/i,
		(split m{/}, $script)[-1] . ' has nothing that could take over an object');
}

done_testing();
