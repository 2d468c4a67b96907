# Three ordinary roles do to the keeper's database whatever comes to mind, at random, while others
# mint.  No role gains a privilege, no ID is issued twice, and minting goes on soon after a superuser
# has cleaned up.  SNOWFLAKE_HOSTILE_SECONDS=600 is a long run, SNOWFLAKE_HOSTILE_SEED repeats one.

use SnowflakeTest;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $seconds = $ENV{SNOWFLAKE_HOSTILE_SECONDS} || 5;
my $seed = $ENV{SNOWFLAKE_HOSTILE_SEED} || int(rand(1_000_000));
my $wave_seconds = 2.5;
my @roles = qw(owner creator watcher);

srand($seed);
note("seed $seed");

my $node = new_node(
	'main', conf => q{
	snowflake.reservation = '1s'
	snowflake.database = kept
	max_connections = 50
	log_min_messages = error
	log_error_verbosity = terse
});

$node->start;
query(
	$node, q{
	CREATE ROLE owner LOGIN CREATEDB;
	CREATE ROLE creator LOGIN;
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor, pg_signal_backend, pg_read_all_data, pg_write_all_data;
	CREATE DATABASE app});
$node->safe_psql('app', 'CREATE EXTENSION snowflake');
my $maintain = query($node, q{SELECT count(*) FROM pg_roles WHERE rolname = 'pg_maintain'});
query($node, 'GRANT pg_maintain TO watcher') if $maintain;

# What users may set, and to what
my @settings = map { [ split /\|/, $_, -1 ] } split /\n/, query(
	$node, q{
	SELECT name, vartype, coalesce(min_val, ''), coalesce(max_val, ''), array_to_string(enumvals, ',')
	FROM pg_settings WHERE context = 'user'});

sub one_of
{
	return $_[ int(rand(scalar @_)) ];
}

# What nobody but a superuser may be given, and what the keeper has
sub privileges
{
	return query(
		$node, q{
		SELECT rolname, rolsuper, rolcreaterole, rolreplication, rolbypassrls,
			(SELECT string_agg(roleid::regrole::text, ' ' ORDER BY roleid::regrole::text)
				FROM pg_auth_members WHERE member = r.oid)
		FROM pg_roles r WHERE rolname IN ('owner', 'creator', 'watcher') ORDER BY rolname});
}

# A setting, at some value
sub setting
{
	my ($name, $type, $min, $max, $values) = @{ one_of(@settings) };
	my $value =
		$type eq 'bool' ? one_of('on', 'off')
	  : $type eq 'enum' ? one_of(split /,/, $values)
	  : $type eq 'string'
	  ? one_of('', 'owner', 'C', 'public', 'nonsense', 'SQL_ASCII', 'pg_catalog')
	  : one_of($min, $max, 1);

	return "$name = '$value'";
}

sub schema
{
	return one_of(qw(snowflake_keeper snowflake_keeper mine public snowflake));
}

# What somebody might try.  :role is who does, :schema and :table are those of the keeper or others,
# and :trap is a function that makes its role a superuser, if one runs it who may.
my @attempts = split /\n/, <<'END';
CREATE SCHEMA :schema
DROP SCHEMA :schema CASCADE
ALTER SCHEMA :schema RENAME TO :schema
ALTER SCHEMA :schema OWNER TO :role
GRANT ALL ON SCHEMA :schema TO PUBLIC
CREATE EXTENSION snowflake SCHEMA :schema
DROP EXTENSION snowflake CASCADE
CREATE EXTENSION snowflake_keeper
DROP EXTENSION snowflake_keeper CASCADE
CREATE TABLE :table (node integer PRIMARY KEY, layout text NOT NULL, reserved_until timestamptz NOT NULL)
CREATE VIEW :table AS SELECT 1 AS node, 'twitter'::text AS layout, now() AS reserved_until
DROP TABLE :table CASCADE
ALTER TABLE :table RENAME TO r
ALTER TABLE :table SET SCHEMA :schema
ALTER TABLE :table ADD COLUMN c integer DEFAULT :trap()
CREATE FUNCTION :trap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN ALTER ROLE :role SUPERUSER; RETURN NEW; END'
CREATE FUNCTION :trap() RETURNS integer LANGUAGE plpgsql AS 'BEGIN ALTER ROLE :role SUPERUSER; RETURN 1; END'
CREATE FUNCTION :trap_equal(oid, oid) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN ALTER ROLE :role SUPERUSER; RETURN true; END'
CREATE OPERATOR :schema.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = :trap_equal)
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON :table FOR EACH ROW EXECUTE FUNCTION :trap()
CREATE RULE r AS ON INSERT TO :table DO INSTEAD NOTHING
CREATE INDEX ON :table (:trap())
ALTER TABLE :table ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY
CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION :trap()
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC
UPDATE :table SET reserved_until = now() - interval '1 year'
DELETE FROM :table
LOCK TABLE :table IN ACCESS SHARE MODE
LOCK TABLE :table IN ACCESS EXCLUSIVE MODE
SELECT * FROM :table FOR UPDATE
VACUUM FULL :table
REINDEX DATABASE CONCURRENTLY kept
SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type ~ $$keeper$$
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ~ $$keeper$$
SELECT snowflake_accept_database(1), snowflake_accept_layout()
ALTER ROLE ALL SET snowflake.kept_in = '1'
ALTER DATABASE kept RENAME TO lost
ALTER DATABASE kept CONNECTION LIMIT 0
ALTER DATABASE kept ALLOW_CONNECTIONS false
ALTER DATABASE kept SET role = owner
ALTER DATABASE kept SET session_authorization = owner
ALTER DATABASE kept SET :setting
ALTER ROLE :role IN DATABASE kept SET :setting
END

sub attempt
{
	my ($role) = @_;
	my %is = (
		role => sub { $role },
		schema => \&schema,
		table => sub { schema() . '.' . one_of(qw(reservation snowflake_reservation)) },
		trap => sub { one_of('mine', 'public') . '.trap' },
		setting => \&setting);

	# a setting is a quarter of them, for there are many
	my $attempt = rand() < 0.25 ? one_of(@attempts[ -2, -1 ]) : one_of(@attempts);
	return $attempt =~ s/(?<!:):(role|schema|table|trap|setting)/$is{$1}->()/ger;
}

# A minute's work for a role: statements, alone or in transactions that take their time.  That is an
# attack of its own, since the keeper waits for a lock for 300 ms and then gives up.
sub script
{
	my ($role) = @_;
	my $sql = '';

	foreach my $n (1 .. 2000)
	{
		my ($first, @others) = map { attempt($role) } 1 .. 1 + int(rand(4));

		$sql .=
		  @others && rand() < 0.7
		  ? join('; ',
			'BEGIN', 'SAVEPOINT s', $first, 'ROLLBACK TO s',
			@others,
			sprintf('SELECT pg_sleep(%.2f)', rand(0.5)),
			one_of('COMMIT', 'COMMIT', 'ROLLBACK') . ";\n")
		  : join(";\n", $first, @others) . ";\n";
	}
	return $sql;
}

# Start a role on its way, in the keeper's database or beside it.
sub let_loose
{
	my ($role, $dbname, $sql, $wave) = @_;
	my $script = PostgreSQL::Test::Utils::tempdir() . "/$role.$wave.sql";

	PostgreSQL::Test::Utils::append_to_file($script, $sql);

	# a wave must end, whatever the database has for defaults
	local $ENV{PGOPTIONS} = '-c statement_timeout=1s -c lock_timeout=500ms -c client_encoding=UTF8';
	return start_client($node,
		[ qw(psql -XAtq -f), $script, $node->connstr($dbname) . " user=$role" ],
		'&>', '/dev/null');
}

# What a superuser does when it is over.  (The keeper may look like one of them: the
# owner can set session_authorization for the database.)
sub clear_up
{
	query(
		$node, q{
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE usename IN ('owner', 'creator', 'watcher') AND backend_type = 'client backend'});
	wait_for_query($node,
		q{SELECT count(*) = 0 FROM pg_stat_activity WHERE usename IN ('owner', 'creator', 'watcher') AND backend_type = 'client backend'}
	);

	my $have = query($node,
		q{SELECT string_agg(datname, ' ') FROM pg_database WHERE datname IN ('kept', 'lost')});
	query($node, 'ALTER DATABASE lost RENAME TO kept') if $have eq 'lost';
	query($node, 'CREATE DATABASE kept') if $have eq '';
	query(
		$node, q{
		ALTER DATABASE kept OWNER TO owner;
		ALTER DATABASE kept RESET ALL;
		ALTER DATABASE kept CONNECTION LIMIT -1;
		ALTER DATABASE kept ALLOW_CONNECTIONS true;
		GRANT CREATE, TEMPORARY ON DATABASE kept TO creator});
	my $schema = $node->safe_psql(
		'kept', q{
		SELECT rolsuper FROM pg_namespace n JOIN pg_roles r ON r.oid = nspowner
		WHERE nspname = 'snowflake_keeper'});
	$node->safe_psql('kept', 'DROP SCHEMA snowflake_keeper CASCADE')
	  if $schema eq 'f';
	return;
}

clear_up() if query($node, 'CREATE DATABASE kept') eq '';
my $privileges = privileges();
my @minted;
my $slowest = 0;
my $stopped = 0;
my $end = clock_gettime(CLOCK_MONOTONIC) + $seconds;
my $waves = 0;
my $gained = '';

while (clock_gettime(CLOCK_MONOTONIC) < $end)
{
	my $wave_end = clock_gettime(CLOCK_MONOTONIC) + $wave_seconds;

	$waves++;

	# in some waves the place is theirs from the start
	if ($waves % 2 == 0)
	{
		query($node, 'DROP DATABASE kept WITH (FORCE)');
		query($node, 'CREATE DATABASE kept OWNER owner; GRANT CREATE ON DATABASE kept TO creator');
	}
	my @minters = map { start_minter($node, 30_000, dbname => 'app') } 1 .. 2;
	my @hostile = map { let_loose($_, 'kept', script($_), $waves) } @roles;

	# and the database comes and goes: at once, or when minting goes on
	push @hostile, let_loose(
		'owner', 'app',
		join(
			'',
			map { one_of('', "SELECT snowflake_next();\n") . "$_;\n" }
			  map {
				one_of(
					'DROP DATABASE kept WITH (FORCE)',
					'CREATE DATABASE kept',
					'ALTER DATABASE kept RENAME TO lost',
					'ALTER DATABASE lost RENAME TO kept')
			  } 1 .. 400),
		"$waves.beside");
	wait_until('the wave is over', sub { clock_gettime(CLOCK_MONOTONIC) > $wave_end });
	$_->kill_kill foreach @hostile;
	clear_up();

	my $start = clock_gettime(CLOCK_MONOTONIC);
	wait_for_mint($node, dbname => 'app');
	my $took = clock_gettime(CLOCK_MONOTONIC) - $start;
	$slowest = $took if $took > $slowest;

	# they go on for as long as they like, but not for longer than needed
	query(
		$node, q{
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE query = 'SELECT snowflake_next();' AND pid <> pg_backend_pid()});
	foreach my $minter (@minters)
	{
		eval { $minter->{run}->finish };
		my $ids = slurp_file($minter->{ids});
		my @ids = $ids =~ /^(\d+)\n/mg;

		push @minted, \@ids;
		$stopped++ if $minter->{errors} =~ /ERROR/;
	}
	my $id = $node->safe_psql('app', 'SELECT snowflake_next()');
	push @minted, [$id];
	$gained = privileges() if privileges() ne $privileges;
	last if $gained;
}

is($gained, '', "$waves waves: nobody has gained a privilege");
my $count = map { @$_ } @minted;
cmp_ok($count, '>', 1000,
	"IDs were minted meanwhile, with errors for $stopped of " . 2 * $waves . ' sessions');
is(duplicates(@minted), 0, "$count IDs, none came twice");
is(scalar(grep { disorder($_) } @minted), 0, 'and they ascend');
cmp_ok($slowest, '<', 20,
	sprintf 'minting goes on soon after a superuser has cleared up: within %.1f s', $slowest);
is( query(
		$node, q{
		SELECT setconfig[1] ~ '^snowflake\.kept_in=\d+$' FROM pg_db_role_setting
		WHERE setdatabase = 0 AND setrole = 0}),
	't',
	'where the reservation is stays noted down');
is(log_count($node, qr/PANIC|terminated by signal|TRAP:/),
	0, 'no process has crashed, so the server was up all the time');

done_testing();
