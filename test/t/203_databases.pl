# All databases of a server share one generator, whose reservation is kept in
# the database snowflake.database.  The keeper copes with what people do there:
# create and drop its extension, set defaults that would be wrong for it, name
# another database, or create that database only later.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder error_of log_count new_node status stored takes_less wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

# in an encoding that not every other can be converted to
my $node = new_node(
	'main',
	init => { extra => [ '--encoding=UTF8', '--locale=C' ] },
	conf => q{
	snowflake.reservation = '1s'
	wal_writer_delay = 10s
});
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE one');
$node->safe_psql('postgres', 'CREATE DATABASE two');
$node->safe_psql($_, 'CREATE EXTENSION snowflake') foreach 'one', 'two';

my @ids;

sub mint
{
	my ($database) = @_;

	push @ids, $node->safe_psql($database, 'SELECT snowflake_next()');
	return;
}

# Mint until the keeper has reserved anew.
sub extend
{
	SnowflakeTest::extend($node, dbname => 'one');
	mint('one');
	return;
}

# What is stored in a database covers the newest ID.
sub reservation_is_in
{
	my ($database, $what) = @_;
	my $newest = $node->safe_psql('one', "SELECT snowflake_timestamp('$ids[-1]')");

	is( $node->safe_psql(
			$database,
			"SELECT node, reserved_until >= '$newest' FROM snowflake_keeper.reservation WHERE node >= 0"
		),
		'1|t', $what);
	return;
}

# The largest ID that a reservation allows
sub reserved_in
{
	my ($database) = @_;
	my $until =
	  $node->safe_psql($database, 'SELECT max(reserved_until) FROM snowflake_keeper.reservation');

	return $node->safe_psql('one', "SELECT snowflake_upper_bound('$until')");
}

sub has_extension
{
	my ($database) = @_;

	return $node->safe_psql($database,
		q{SELECT count(*) FROM pg_extension WHERE extname = 'snowflake_keeper'});
}

# The transaction that last noted down which database has the reservation
sub noted_by
{
	return $node->safe_psql('one',
		q{SELECT xmin FROM pg_db_role_setting WHERE setdatabase = 0 AND setrole = 0});
}

# Restart, and wait until the keeper has done what it does before a mint.
sub restart
{
	my ($gate) = @_;

	$node->restart;
	$node->poll_query_until('one', "SELECT gate ~ '$gate' FROM snowflake_status")
	  or die "gate is not $gate";
	return;
}

# Restart as if nothing had been minted before.  The keeper's extension has to go
# while nothing is minted, or the keeper would create it for what it stores at
# the end.  Nothing tells the server of its newest ID any more, which may be ahead
# of the clock after a crash, so the clock has to pass that first.
sub restart_without_extension
{
	$node->poll_query_until('one', "SELECT snowflake_timestamp('$ids[-1]') < clock_timestamp()")
	  or die "clock does not pass the newest ID";
	$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = -1');
	$node->reload;
	$node->poll_query_until('one', q{SELECT gate ~ 'not set' FROM snowflake_status})
	  or die "gate does not close";
	$node->safe_psql('postgres', 'DROP EXTENSION snowflake_keeper');
	$node->safe_psql('postgres', 'ALTER ROLE ALL RESET snowflake.kept_in');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET snowflake.node_id');
	restart('missing');
	return;
}

# The extension is missing in the keeper's database.
$node->poll_query_until('one', q{SELECT gate ~ 'missing' FROM snowflake_status})
  or die "keeper does not see that the extension is missing";
pass('the status says that its extension is missing in the database postgres');
is(has_extension('postgres'), 0, 'the keeper does not create it for nothing');
mint('one');
is(has_extension('postgres'), 1, 'but for the first mint');
reservation_is_in('postgres', 'and stores the reservation there');
is($node->safe_psql($_, q{SELECT to_regclass('snowflake_keeper.reservation') IS NULL}),
	't', "there is none in database $_")
  foreach 'one', 'two';

foreach my $round (1 .. 3)
{
	mint($_) foreach 'one', 'two';
}
is(disorder(\@ids), 0, 'the IDs of two databases ascend');
my $noted_by = noted_by();
extend();
is(noted_by(), $noted_by, 'which database has it is noted down once');

# The reservation belongs to this server, not to what is in the database.
my ($dump, $stderr) = run_command([ 'pg_dump', '-d', $node->connstr('postgres') ]);
like($dump, qr/CREATE EXTENSION IF NOT EXISTS snowflake_keeper/, 'pg_dump dumps the extension');
unlike($dump, qr/snowflake_keeper\.reservation|reserved_until|kept_in/, 'but not the reservation');

# Dropped while the keeper runs
my $offset = -s $node->logfile;
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_keeper');
mint('one');
extend();
is(has_extension('postgres'),
	1, 'DROP EXTENSION: the keeper creates it again with the next reservation');
reservation_is_in('postgres', 'and stores that');
is(log_count($node, qr/LOG:  creating extension "snowflake_keeper"/, $offset), 1,
	'the log says so');

# Dropped, and the server stopped before the next reservation
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_keeper');
mint('one');
my $minted = $node->safe_psql('one', "SELECT snowflake_timestamp('$ids[-1]')");
$node->stop('fast');
is(stored($node, 1, "reserved_until >= '$minted'"),
	'true', 'DROP EXTENSION and a clean stop: what was minted is stored all the same');
$node->start;
mint('one');

# Dropped, and the server crashes before the next reservation: it is ahead of the
# clock, which only the dropped row could have told.
my $advanced_to =
  $node->safe_psql('one', q{SELECT snowflake_lower_bound(now() + interval '5 seconds')});
$node->safe_psql('one', "SELECT snowflake_advance($advanced_to, force => true)");
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_keeper');
$node->stop('immediate');
$node->start;
my $error = error_of($node, 'SELECT snowflake_next()', dbname => 'one');
is($error->{sqlstate}, '55000', 'DROP EXTENSION and a crash: nothing is minted');
like(
	$error->{message},
	qr/reservation of this server is not in the database "postgres"/,
	'since the reservation is lost');
is($error->{detail}, 'It was last seen in the database "postgres".', 'which the error says');
like($error->{hint}, qr/snowflake_accept_database\(\)/, 'and what to do');
is(has_extension('postgres'), 0, 'the keeper does not start a new one');
like(
	status($node, 'advice', dbname => 'one'),
	qr/snowflake_accept_database\(\)/,
	'the status has the same advice');

# However often the keeper is asked for the gate, the log has the reason once.
error_of($node, q{SET snowflake.max_wait = '500ms'; SELECT snowflake_advance('1')}, dbname => 'one')
  foreach 1 .. 3;
is(log_count($node, qr/LOG:  snowflake gate stays closed: the reservation/, $offset),
	1, 'the log says so once');
$node->safe_psql('one', "SELECT snowflake_accept_database($advanced_to)");
push @ids, $node->safe_psql('one', 'SELECT snowflake_next()');
cmp_ok($ids[-1], '>', $advanced_to, 'until an administrator says above which ID');

# Defaults of the database, which are not for the keeper
$node->safe_psql(
	'postgres', q{
	CREATE ROLE app;
	ALTER DATABASE postgres SET role = app;
	ALTER DATABASE postgres SET session_authorization = app;
	ALTER DATABASE postgres SET parallel_setup_cost = 0;
	ALTER DATABASE postgres SET parallel_tuple_cost = 0;
	ALTER DATABASE postgres SET min_parallel_table_scan_size = 0;
	ALTER DATABASE postgres SET jit_above_cost = 0;
	ALTER DATABASE postgres SET exit_on_error = on;
	ALTER DATABASE postgres SET lock_timeout = 1;
	ALTER DATABASE postgres SET idle_in_transaction_session_timeout = 1;
	ALTER DATABASE postgres SET default_transaction_read_only = on;
	ALTER DATABASE postgres SET synchronous_commit = off;
	ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
	ALTER DATABASE postgres SET default_transaction_deferrable = on;
	ALTER DATABASE postgres SET search_path = '';
	ALTER DATABASE postgres SET row_security = off;
	ALTER DATABASE postgres SET statement_timeout = 1;
	ALTER DATABASE postgres SET session_replication_role = 'replica';
	CREATE DATABASE koi8 TEMPLATE template0 ENCODING 'KOI8R' LOCALE 'C'});

# one with which nobody can connect to a database in UTF8; 19 has none any more
$node->psql('koi8', q{ALTER DATABASE postgres SET client_encoding = 'MULE_INTERNAL'});
$node->safe_psql('one', 'ALTER DATABASE postgres ALLOW_CONNECTIONS false');
restart('open');
$offset = -s $node->logfile;
extend();
pass('defaults of the database, and no connections to it: the reservation is extended');
is(log_count($node, qr/snowflake keeper.*exited|terminating background worker/, $offset),
	0, 'by a keeper that goes on');
$node->safe_psql('one', 'ALTER DATABASE postgres ALLOW_CONNECTIONS true');

# Nothing else writes WAL after the keeper's commit, and the WAL writer sleeps.
extend();
my $promised = status($node, 'reserved_until', dbname => 'one');
$node->stop('immediate');
is(stored($node, 1, "reserved_until >= '$promised'"),
	'true', 'what the keeper promised survives a crash all the same');
$node->start;
$node->poll_query_until('one', 'SELECT snowflake_next() IS NOT NULL')
  or die "server does not mint";
mint('one');
$node->safe_psql('one', 'ALTER DATABASE postgres RESET ALL');

# Created by hand before the first mint
restart_without_extension();
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_keeper');
mint('one');
reservation_is_in('postgres',
	'CREATE EXTENSION by hand, before the first mint: the keeper uses it');

# Being created by hand while the first mint comes
$offset = -s $node->logfile;
restart_without_extension();
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; CREATE EXTENSION snowflake_keeper;');
takes_less(
	2,
	'within max_wait',
	sub {
		my $start = clock_gettime(CLOCK_MONOTONIC);

		$error = error_of(
			$node,
			q{SET snowflake.max_wait = '1s'; SELECT snowflake_next()},
			dbname => 'one');
		my $elapsed = clock_gettime(CLOCK_MONOTONIC) - $start;
		is($error->{sqlstate}, '55000', 'somebody is creating the extension: a mint is refused');
		like($error->{message}, qr/was not ready within 1000 ms/, 'which says so');
		return $elapsed;
	});
like(
	error_of($node, 'SET snowflake.max_wait = 0; SELECT snowflake_next()', dbname => 'one')
	  ->{message},
	qr/was not ready within 1000 ms/,
	'with max_wait 0 a mint has waited a second, and says so');
$node->wait_for_log(qr/ERROR:  canceling statement due to lock timeout/, $offset);
pass('nor does the keeper wait for ever');
$session->query_safe('COMMIT');
$session->quit;
$node->poll_query_until('one', 'SELECT snowflake_next() IS NOT NULL')
  or die "server does not mint";
mint('one');
pass('and has committed: minting goes on');

# The same, but they roll back.
restart_without_extension();
$session = $node->background_psql('postgres');
$session->query_safe('BEGIN; CREATE EXTENSION snowflake_keeper;');
is( error_of($node, q{SET snowflake.max_wait = '1s'; SELECT snowflake_next()}, dbname => 'one')
	  ->{sqlstate},
	'55000',
	'somebody is creating the extension: a mint is refused');
$session->query_safe('ROLLBACK');
$session->quit;
$node->poll_query_until('one', 'SELECT snowflake_next() IS NOT NULL')
  or die "server does not mint";
mint('one');
is(has_extension('postgres'), 1, 'and has rolled back: the keeper creates it');

# Another database.  What was reserved stays behind in the old one, so nothing is
# minted until that is accepted, and then the IDs go on above those of the old one.
$node->safe_psql('postgres', 'CREATE DATABASE "Bare one"');
$node->safe_psql('Bare one', 'DROP SCHEMA public');
$node->append_conf('postgresql.conf', q{snowflake.database = 'Bare one'});
restart('not in snowflake.database');
$error = error_of($node, 'SELECT snowflake_next()', dbname => 'one');
is($error->{sqlstate}, '55000', 'another database: nothing is minted');
is( $error->{detail},
	'It was last seen in the database "postgres".',
	'since the reservation is elsewhere');
$node->safe_psql('one', 'SELECT snowflake_accept_database(' . reserved_in('postgres') . ')');
mint('one');
reservation_is_in('Bare one', 'until it is accepted; a schema public is not needed');
extend();
restart('open');
extend();
pass('also after a restart');

# A database that does not exist
$node->append_conf('postgresql.conf', q{snowflake.database = 'Later'});
$node->restart;
$error = error_of($node, 'SELECT snowflake_next()', dbname => 'one');
is($error->{sqlstate}, '55000', 'the database does not exist: an error');
like("$error->{message} $error->{detail}", qr/"Later"/, 'which names it');
like($error->{hint}, qr/^Create the database "Later", or /, 'and says what to do');
$node->poll_query_until('one', q{SELECT gate ~ 'connecting' FROM snowflake_status})
  or die "keeper does not try to connect";
my $waits = status($node, 'keeper_waits', dbname => 'one');
error_of($node, 'SELECT snowflake_next()', dbname => 'one');
is(status($node, 'keeper_waits', dbname => 'one'),
	$waits, 'no mint waits for the keeper, which cannot connect');
$node->safe_psql('postgres', 'CREATE DATABASE "Later"');
$node->poll_query_until('one', q{SELECT gate ~ 'not in snowflake.database' FROM snowflake_status})
  or die "keeper does not connect";
$node->safe_psql('one', 'SELECT snowflake_accept_database(' . reserved_in('Bare one') . ')');
$node->poll_query_until('one', 'SELECT snowflake_next() IS NOT NULL')
  or die "server does not mint";
mint('one');
pass('after that, and with the loss accepted, it mints without a restart');
reservation_is_in('Later', 'with the reservation there');

is(disorder(\@ids), 0, scalar(@ids) . ' IDs, all ascend');

$node->stop;

# The scripts of the extensions are in PL/pgSQL, which somebody may have dropped.
my $bare = new_node('bare');
$bare->start;
$bare->safe_psql('postgres', 'CREATE DATABASE one');
$bare->safe_psql('one', 'CREATE EXTENSION snowflake');
$bare->safe_psql('postgres', 'DROP EXTENSION plpgsql');
my $unready =
  error_of($bare, q{SET snowflake.max_wait = '500ms'; SELECT snowflake_next()}, dbname => 'one');
is($unready->{sqlstate}, '55000', 'without plpgsql in the keeper\'s database nothing is minted');
is( $unready->{hint},
	'The keeper\'s extension needs the extension plpgsql: create that in the database "postgres".',
	'and it says what is missing, and where');
is(status($bare, 'advice', dbname => 'one'), $unready->{hint}, 'so does the advice');
is( error_of($bare, 'CREATE EXTENSION snowflake')->{message},
	'required extension "plpgsql" is not installed',
	'so does CREATE EXTENSION');
$bare->safe_psql('postgres', 'CREATE EXTENSION plpgsql');
wait_for_mint($bare, dbname => 'one');
pass('with it, minting goes on');
$bare->stop;

done_testing();
