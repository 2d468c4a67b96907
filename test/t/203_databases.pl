# The reservation is kept in the database snowflake.database, and the keeper copes with what people do
# there: take its place, create and drop its extension, set defaults that would be wrong for it; and
# nobody becomes a superuser by that.  Where it is lost, 207_accept_database has what follows.
# versions: all

use SnowflakeTest qw(!extend !mint);

# in an encoding that not every other can be converted to
my $node = new_node(
	'main',
	init => { extra => [ '--encoding=UTF8', '--locale=C' ] },
	conf => q{
	snowflake.reservation = '1s'
	wal_writer_delay = 10s
});
my @ids;

# In the keeper's database, and in one of applications
sub sql { return query($node, @_); }
sub app { return query($node, $_[0], dbname => 'one'); }

sub mint
{
	push @ids, app('SELECT snowflake_next()');
	return;
}

# Mint until the keeper has reserved anew.
sub extend
{
	SnowflakeTest::extend($node, dbname => 'one');
	mint();
	return;
}

# A mint is refused.
sub refuses_mint
{
	my ($what, %params) = @_;
	my $max_wait = delete $params{max_wait} // '5s';

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return refuses(
		$node, "SET snowflake.max_wait = '$max_wait'; SELECT snowflake_next()",
		'55000', $what,
		dbname => 'one',
		%params);
}

# What is stored covers the newest ID.
sub is_stored
{
	my ($what) = @_;
	my $newest = app("SELECT snowflake_timestamp('$ids[-1]')");

	return is(
		sql("SELECT node, reserved_until >= '$newest' FROM snowflake_keeper.reservation WHERE node >= 0"
		),
		'1|t', $what);
}

sub has_extension
{
	return sql(q{SELECT count(*) FROM pg_extension WHERE extname = 'snowflake_keeper'});
}

sub nobody_is_superuser
{
	my $superusers = q{FROM pg_roles WHERE rolsuper AND rolname IN ('creator', 'owner')};

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(sql("SELECT string_agg(rolname, ' ') $superusers"), '',
		'nobody has become a superuser');
}

# The extension is missing in the keeper's database.
$node->start;
sql('CREATE DATABASE one');
app('CREATE EXTENSION snowflake');
wait_for_gate($node, 'missing', dbname => 'one');
pass('the status says that its extension is missing in the database postgres');
is(has_extension(), 0, 'the keeper does not create it for nothing');

# Its place is taken, by one who may create schemas or owns the database: nothing of that is used.
sql(q{
	CREATE ROLE creator;
	CREATE ROLE owner;
	ALTER DATABASE postgres OWNER TO owner;
	GRANT CREATE ON DATABASE postgres TO creator});
my $layout = app('SELECT layout FROM snowflake_layout()');
my $trap = qq{
	SET search_path = snowflake_keeper;
	CREATE TABLE reservation (node integer PRIMARY KEY, layout text NOT NULL, reserved_until timestamptz NOT NULL);
	INSERT INTO reservation VALUES (1, '$layout', now() - interval '1 day');
	CREATE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN ALTER ROLE creator SUPERUSER; RETURN NEW; END';
	CREATE TRIGGER trap BEFORE INSERT OR UPDATE ON reservation FOR EACH ROW EXECUTE FUNCTION trap();
	CREATE TRIGGER late AFTER INSERT OR UPDATE ON reservation EXECUTE FUNCTION trap()};
foreach my $case ([ 'creator', $trap ], [ 'owner', '' ])
{
	my ($role, $objects) = @$case;
	my $offset = -s $node->logfile;

	# at once, or the keeper may come between
	sql("BEGIN; DROP SCHEMA IF EXISTS snowflake_keeper CASCADE; SET SESSION AUTHORIZATION $role;
		CREATE SCHEMA snowflake_keeper; $objects; COMMIT");
	refuses_mint("a role, $role, has a schema of the keeper's name: nothing is minted",
		max_wait => '500ms');
	$node->wait_for_log(qr/ERROR:  schema "snowflake_keeper" does not belong to a superuser/,
		$offset);
	nobody_is_superuser();
}

# It cannot be created: its script is in PL/pgSQL, which somebody may have dropped.
sql('BEGIN; DROP SCHEMA snowflake_keeper CASCADE; DROP EXTENSION plpgsql; COMMIT');
refuses_mint(
	'without plpgsql in the keeper\'s database nothing is minted, and the error says what is missing, and where',
	max_wait => '3s',
	hint =>
	  qr/^The keeper's extension needs the extension plpgsql: create that in the database "postgres"\.$/
);
refuses(
	$node, 'CREATE EXTENSION snowflake',
	'42704',
	'so does CREATE EXTENSION',
	message => qr/^required extension "plpgsql" is not installed$/);

# Defaults of the database, which are not for the keeper; nor are a superuser's own event triggers.
change_node_id($node, -1, dbname => 'one');
sql(q{
	CREATE EXTENSION plpgsql;
	CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler;
	SET allow_in_place_tablespaces = on;
	CREATE TABLESPACE elsewhere LOCATION '';
	CREATE FUNCTION hook() RETURNS event_trigger LANGUAGE plpgsql AS
		'BEGIN RAISE ''an event trigger is run''; END';
	CREATE EVENT TRIGGER hook ON ddl_command_start EXECUTE FUNCTION hook()});
app(join ';',
	q{CREATE DATABASE koi8 TEMPLATE template0 ENCODING 'KOI8R' LOCALE 'C'},
	map { "ALTER DATABASE postgres SET $_" } (
		'role = owner',
		'session_authorization = owner',
		'search_path = public, pg_catalog',
		'default_table_access_method = other',
		'default_tablespace = elsewhere',
		'check_function_bodies = off',
		'quote_all_identifiers = on',
		'backslash_quote = off',
		'transform_null_equals = on',
		'parallel_setup_cost = 0',
		'parallel_tuple_cost = 0',
		'min_parallel_table_scan_size = 0',
		'jit_above_cost = 0',
		'exit_on_error = on',
		'lock_timeout = 1',
		'idle_in_transaction_session_timeout = 1',
		'default_transaction_read_only = on',
		'synchronous_commit = off',
		q{default_transaction_isolation = 'serializable'},
		'default_transaction_deferrable = on',
		'row_security = off',
		'statement_timeout = 1',
		q{session_replication_role = 'replica'}));

# one with which nobody can connect to a database in UTF8; 19 has none any more
$node->psql('koi8', q{ALTER DATABASE postgres SET client_encoding = 'MULE_INTERNAL'});
app('ALTER DATABASE postgres ALLOW_CONNECTIONS false');
$node->append_conf('postgresql.conf', 'snowflake.node_id = 1');
$node->restart;
wait_for_gate($node, 'missing', dbname => 'one');
my $offset = -s $node->logfile;
wait_for_mint($node, dbname => 'one');
pass('defaults of the database, and no connections to it: the extension is created all the same');
extend();
is(log_count($node, qr/snowflake keeper.*exited|terminating background worker/, $offset),
	0, 'and the reservation is extended, by a keeper that goes on');

# Nothing else writes WAL after the keeper's commit, and the WAL writer sleeps.
app('ALTER DATABASE postgres ALLOW_CONNECTIONS true');
extend();
my $promised = status($node, 'reserved_until', dbname => 'one');
$node->stop('immediate');
is(stored($node, 1, "reserved_until >= '$promised'"),
	'true', 'what the keeper promised survives a crash all the same');
$node->start;
app('ALTER DATABASE postgres RESET ALL');
sql('DROP EVENT TRIGGER hook');
nobody_is_superuser();
is( sql(q{SELECT count(*) FROM pg_class
		WHERE relnamespace = 'snowflake_keeper'::regnamespace AND reltablespace <> 0}),
	'0',
	'the table is in the tablespace of its database');
like(
	sql(q{SELECT setconfig FROM pg_db_role_setting WHERE setdatabase = 0 AND setrole = 0}),
	qr/^\{snowflake\.kept_in=\d+\}$/,
	'where the reservation is, is noted down');
wait_for_mint($node, dbname => 'one');
mint();
is(has_extension(), 1, 'there is its extension');
is_stored('and the reservation is stored there');

# Dropped while the keeper runs
sql('DROP EXTENSION snowflake_keeper');
mint();
extend();
is(has_extension(), 1, 'DROP EXTENSION: the keeper creates it again with the next reservation');
is_stored('and stores that');

# Dropped, and the server stopped before the next reservation
sql('DROP EXTENSION snowflake_keeper');
mint();
my $minted = app("SELECT snowflake_timestamp('$ids[-1]')");
$node->stop('fast');
is(stored($node, 1, "reserved_until >= '$minted'"),
	'true', 'DROP EXTENSION and a clean stop: what was minted is stored all the same');
$node->start;
mint();

# Being created by hand while the first mint comes.  What was there has to go while nothing is
# minted, or the keeper would create it for what it stores at the end.  Nothing tells the server of its
# newest ID any more, which may be ahead of the clock after a crash, so the clock has to pass that first.
wait_for_query($node, "SELECT snowflake_timestamp('$ids[-1]') < clock_timestamp()",
	dbname => 'one');
change_node_id($node, -1, dbname => 'one');
sql($_) foreach 'DROP EXTENSION snowflake_keeper', 'ALTER ROLE ALL RESET snowflake.kept_in';
$node->append_conf('postgresql.conf', 'snowflake.node_id = 1');
$offset = -s $node->logfile;
$node->restart;
wait_for_gate($node, 'missing', dbname => 'one');
my $session = session($node, 'BEGIN; CREATE EXTENSION snowflake_keeper;');
refuses_mint(
	"somebody is creating the extension: a mint is refused, which says so",
	max_wait => '1s',
	message => qr/was not ready within 1000 ms/);
$node->wait_for_log(qr/ERROR:  canceling statement due to lock timeout/, $offset);
$session->query_safe('COMMIT');
$session->quit;
wait_for_mint($node, dbname => 'one');
mint();
is_stored('then the keeper uses it');
is(disorder(\@ids), 0, scalar(@ids) . ' IDs, all ascend');

done_testing();
