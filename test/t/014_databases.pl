# All databases of a server share one generator, whose reservation is kept in
# the database snowflake.database.  The keeper copes with what people do there:
# create, move and drop the extension, drop the schema public, set defaults
# that would be wrong for it, or create that database only later.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $node = SnowflakeTest::new_node(
	'main', conf => q{
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
	my $reservations =
	  SnowflakeTest::status($node, 'one', 'reservations');

	$node->poll_query_until('one',
		"SELECT snowflake_next() IS NOT NULL AND reservations > $reservations FROM snowflake_status()"
	) or die "reservation is not extended";
	mint('one');
	return;
}

sub has_extension
{
	my ($database) = @_;

	return $node->safe_psql($database,
		q{SELECT count(*) FROM pg_extension WHERE extname = 'snowflake'});
}

# Restart, and wait until the keeper has done what it does before a mint.
sub restart
{
	my ($gate) = @_;

	$node->restart;
	$node->poll_query_until('one',
		"SELECT gate ~ '$gate' FROM snowflake_status()")
	  or die "gate is not $gate";
	return;
}

# Restart with the extension missing in the keeper's database.  It has to go
# while nothing is minted, or the keeper would create it for what it stores at
# the end.
sub restart_without_extension
{
	$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = -1');
	$node->reload;
	$node->poll_query_until('one',
		q{SELECT gate ~ 'not set' FROM snowflake_status()})
	  or die "gate does not close";
	$node->safe_psql('postgres', 'DROP EXTENSION snowflake');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET snowflake.node_id');
	restart('missing');
	return;
}

# The extension is missing in the keeper's database.
$node->poll_query_until('one',
	q{SELECT gate ~ 'missing' FROM snowflake_status()})
  or die "keeper does not see that the extension is missing";
pass('the status says that the extension is missing in the database postgres');
is(has_extension('postgres'), 0, 'the keeper does not create it for nothing');
mint('one');
is(has_extension('postgres'), 1, 'but for the first mint');
is( $node->safe_psql('postgres',
		'SELECT node, reserved_until > clock_timestamp() FROM public.snowflake_reservation'
	),
	'1|t',
	'in the schema public, and stores the reservation there');
is($node->safe_psql($_, 'SELECT count(*) FROM snowflake_reservation'),
	0, "there is none in database $_")
  foreach 'one', 'two';
foreach my $round (1 .. 3)
{
	mint($_) foreach 'one', 'two', 'postgres';
}
is(SnowflakeTest::disorder(\@ids), 0, 'the IDs of three databases ascend');

# The reservation belongs to this server, not to what is in the database.
my ($dump, $stderr) = run_command(
	[ 'pg_dump', '-d', $node->connstr('postgres') ]);
like($dump, qr/CREATE EXTENSION IF NOT EXISTS snowflake/,
	'pg_dump dumps the extension');
unlike($dump, qr/snowflake_reservation|reserved_until/,
	'but not the reservation');

# Moved while the keeper runs
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA "Else Where";
	ALTER EXTENSION snowflake SET SCHEMA "Else Where"});
extend();
is( $node->safe_psql('postgres',
		q{SELECT reserved_until > clock_timestamp() FROM "Else Where".snowflake_reservation}
	),
	't',
	'ALTER EXTENSION SET SCHEMA: the keeper follows');
restart('open');
mint('one');
pass('also across a restart');

# Dropped while the keeper runs
my $offset = -s $node->logfile;
$node->safe_psql('postgres', 'DROP EXTENSION snowflake');
mint('one');
extend();
is(has_extension('postgres'), 1,
	'DROP EXTENSION: the keeper creates it again with the next reservation');
is( $node->safe_psql('postgres',
		'SELECT reserved_until > clock_timestamp() FROM snowflake_reservation'),
	't',
	'and stores that');
is( SnowflakeTest::log_count($node, qr/LOG:  creat(?:ed|ing) extension "snowflake"/,
		$offset),
	1, 'the log says so');

# Dropped, and the server stopped before the next reservation
$node->safe_psql('postgres', 'DROP EXTENSION snowflake');
mint('one');
$node->stop('fast');
is( SnowflakeTest::stored(
		$node, 'postgres',
		1, "reserved_until >= snowflake_timestamp('$ids[-1]')"
	),
	'true',
	'DROP EXTENSION and a clean stop: what was minted is stored all the same');
$node->start;
mint('one');

# Defaults of the database, which are not for the keeper
$node->safe_psql(
	'postgres', q{
	ALTER DATABASE postgres SET default_transaction_read_only = on;
	ALTER DATABASE postgres SET synchronous_commit = off;
	ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
	ALTER DATABASE postgres SET default_transaction_deferrable = on;
	ALTER DATABASE postgres SET search_path = '';
	ALTER DATABASE postgres SET row_security = off;
	ALTER DATABASE postgres SET statement_timeout = 1;
	ALTER DATABASE postgres SET session_replication_role = 'replica'});
restart('open');
$offset = -s $node->logfile;
extend();
pass('defaults of the database: the reservation is extended');
is( SnowflakeTest::log_count(
		$node, qr/snowflake keeper.*exited|terminating background worker/,
		$offset),
	0,
	'by a keeper that goes on');

# Nothing else writes WAL after the keeper's commit, and the WAL writer sleeps.
my $promised = SnowflakeTest::status($node, 'one', 'reserved_until');
$node->stop('immediate');
is( SnowflakeTest::stored(
		$node, 'postgres', 1, "reserved_until >= '$promised'"),
	'true',
	'what the keeper promised survives a crash all the same');
$node->start;
$node->poll_query_until('one', 'SELECT snowflake_next() IS NOT NULL')
  or die "server does not mint";
mint('one');
$node->safe_psql('one', 'ALTER DATABASE postgres RESET ALL');

# Created by hand before the first mint, in another schema
restart_without_extension();
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA ours;
	CREATE EXTENSION snowflake SCHEMA ours});
mint('one');
is( $node->safe_psql('postgres',
		'SELECT reserved_until > clock_timestamp() FROM ours.snowflake_reservation'
	),
	't',
	'CREATE EXTENSION by hand, before the first mint: the keeper uses it');

# Being created by hand while the first mint comes
$offset = -s $node->logfile;
restart_without_extension();
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; CREATE EXTENSION snowflake;');
my $start = clock_gettime(CLOCK_MONOTONIC);
my $error =
  SnowflakeTest::error_of($node, 'one', 'SELECT snowflake_next()');
my $elapsed = clock_gettime(CLOCK_MONOTONIC) - $start;
is($error->{sqlstate}, '55000',
	'somebody is creating the extension: a mint is refused');
like($error->{message}, qr/was not ready within 1000 ms/, 'which says so');
cmp_ok($elapsed, '<', 2, 'within max_wait');
$node->wait_for_log(qr/ERROR:  canceling statement due to lock timeout/,
	$offset);
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
$session->query_safe('BEGIN; CREATE EXTENSION snowflake;');
is( SnowflakeTest::error_of($node, 'one', 'SELECT snowflake_next()')->{sqlstate},
	'55000',
	'somebody is creating the extension: a mint is refused');
$session->query_safe('ROLLBACK');
$session->quit;
$node->poll_query_until('one', 'SELECT snowflake_next() IS NOT NULL')
  or die "server does not mint";
mint('one');
is(has_extension('postgres'), 1,
	'and has rolled back: the keeper creates it');

# Another database, without a schema public.  What was reserved stays behind
# in the old one, so the IDs ascend only because the clock does.
$node->safe_psql('postgres', 'CREATE DATABASE "Bare one"');
$node->safe_psql('Bare one', 'DROP SCHEMA public');
$node->append_conf('postgresql.conf', q{snowflake.database = 'Bare one'});
restart('missing');
mint('one');
is( $node->safe_psql('Bare one',
		'SELECT reserved_until > clock_timestamp() FROM snowflake.snowflake_reservation'
	),
	't',
	'no schema public: the keeper makes one for the extension');
extend();

# A database that does not exist
$node->append_conf('postgresql.conf', q{snowflake.database = 'Later'});
$node->restart;
$error = SnowflakeTest::error_of($node, 'one', 'SELECT snowflake_next()');
is($error->{sqlstate}, '55000', 'the database does not exist: an error');
like("$error->{message} $error->{detail}", qr/"Later"/, 'which names it');
like($error->{hint}, qr/^CREATE DATABASE "Later";/, 'and says what to do');
my ($command) = $error->{hint} =~ /^(CREATE DATABASE "Later");/;
$node->safe_psql('postgres', $command);
$node->poll_query_until('one', 'SELECT snowflake_next() IS NOT NULL')
  or die "server does not mint";
mint('one');
pass('after that, without a restart, it mints');
is( $node->safe_psql('Later',
		'SELECT reserved_until > clock_timestamp() FROM snowflake_reservation'),
	't',
	'with the reservation there');

is(SnowflakeTest::disorder(\@ids), 0, scalar(@ids) . ' IDs, all ascend');

$node->stop;
done_testing();
