# A standby decodes and compares IDs as its primary does, and refuses to mint as it refuses
# nextval().  Its status says what would prevent minting after a promotion, and with which
# node ID it would mint.  After the promotion, its IDs are above all that it has received, and
# the log says where its node ID comes from and whether it was in use before: it may have come
# with the data.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  error_of log_count mint new_node query refuses session status wait_for_mint wait_for_query
);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node(
	'primary',
	node_id => undef,
	init => { allows_streaming => 1 });
$primary->start;

sub standby_of_backup
{
	my ($name, $backup, $conf, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($primary, $backup, %params);
	$node->append_conf('postgresql.conf', $conf);
	return $node;
}

# Nothing was minted yet, and somebody has put a table in the place of the keeper's
# which a standby cannot read.  It is not looked into.
query(
	$primary, q{
	CREATE EXTENSION snowflake;
	CREATE ROLE creator;
	GRANT CREATE ON DATABASE postgres TO creator;
	SET SESSION AUTHORIZATION creator;
	CREATE SCHEMA snowflake_keeper;
	CREATE UNLOGGED TABLE snowflake_keeper.reservation
		(node integer NOT NULL, layout text NOT NULL, reserved_until timestamptz NOT NULL, in_order boolean NOT NULL)}
);
$primary->backup('bare');
my $bare = standby_of_backup('bare', 'bare', 'snowflake.node_id = 2', has_streaming => 1);
$bare->start;
is(status($bare, q{concat_ws(' ', node, advice)}),
	'2', 'a standby whose keeper has no table, but somebody else');
$bare->stop;
query(
	$primary, q{
	DROP SCHEMA snowflake_keeper CASCADE;
	ALTER SYSTEM SET snowflake.node_id = 1;
	SELECT pg_reload_conf()});
wait_for_mint($primary);
$primary->backup('base');

# The node ID of its own is overruled by that which came with the data.
my $standby = standby_of_backup('standby', 'base', 'snowflake.node_id = 2', has_streaming => 1);
$standby->start;

# What is read
query(
	$primary, q{
	CREATE TABLE orders (
		id snowflake PRIMARY KEY DEFAULT snowflake_next(),
		reference bigint UNIQUE DEFAULT snowflake_next(),
		n int);
	INSERT INTO orders (n) SELECT generate_series(1, 1000);
	CREATE SEQUENCE counter;
	CREATE DATABASE elsewhere});
$primary->wait_for_catchup($standby);
foreach my $query (
	q{count(*), min(id), max(id), md5(string_agg(id::text || ' ' || reference || ' ' || n, ',' ORDER BY id))},
	q{md5(string_agg(concat_ws(' ', @@ id, snowflake_node(id), snowflake_sequence(id),
		snowflake_decode(id), id -> 'time'), ',' ORDER BY id))})
{
	my $sql = "SELECT $query FROM orders";

	is(query($standby, $sql), query($primary, $sql), "the same on the standby: $query");
}

# nextval() sets the example
my $nextval = error_of($standby, q{SELECT nextval('counter')});
refuses(
	$standby,
	'SELECT snowflake_next()',
	$nextval->{sqlstate},
	'minting is refused on the standby as nextval() is, with the reason',
	message => qr/^cannot execute snowflake_next\(\) during recovery$/);
is($nextval->{sqlstate}, '25006', 'by the same SQLSTATE');
is(status($standby, 'refused_standby'), 1, 'which is counted');
my $reset_at = status($standby, 'stats_reset');
query($standby, 'SELECT snowflake_stats_reset()');
is(status($standby, "concat_ws(' ', refused_standby, stats_reset > '$reset_at')"),
	'0 t', 'until the counters are reset');

# What a standby says; a parallel query cannot look at the reservation.
is(status($standby, 'gate'), 'closed: the server is in recovery', 'a standby mints nothing');
is( query(
		$standby, q{
		SET parallel_setup_cost = 0;
		SET parallel_tuple_cost = 0;
		SET min_parallel_table_scan_size = 0;
		SELECT count(*) > 0, gate FROM orders, snowflake_status GROUP BY gate}),
	't|closed: the server is in recovery',
	'in a parallel query, too');
is(status($standby, 'layout'), status($primary, 'layout'), 'it has the layout of its primary');
my $nothing = 'A promotion would leave this server unable to mint: ';

# A session that is older than the primary's note of where the reservation is sees the new one.
my $old = $standby->background_psql('postgres');
is($old->query_safe('SELECT advice FROM snowflake_status'), '', 'all is well for a promotion');
my $home = query($primary, q{SELECT oid FROM pg_database WHERE datname = 'postgres'});
query($primary, q{ALTER ROLE ALL SET snowflake.kept_in = '1'});
$primary->wait_for_catchup($standby);
like(
	$old->query_safe('SELECT advice FROM snowflake_status'),
	qr/the snowflake reservation of this server is not in the database/,
	'an old session sees what the primary has noted since');
$old->quit;
query($primary, "ALTER ROLE ALL SET snowflake.kept_in = '$home'");
$primary->wait_for_catchup($standby);

# What would stand in the way, by settings that come after those that came with the data.  All but
# the node ID need a restart.
foreach my $case (
	[ 'a node ID of 0', 'snowflake.node_id = 0', '0', '' ],
	[
		'no node ID',
		'snowflake.node_id = -1',
		'',
		qr/^snowflake\.node_id is not set\. Set snowflake\.node_id to a number that no other server mints with/
	],
	[
		'one that is too large',
		'snowflake.node_id = 2000',
		'2000',
		qr/^snowflake\.node_id 2000 is too large for the layout\. Set snowflake\.node_id to at most 1023, and reload the configuration\.$/
	],
	[
		'another layout than the stored one',
		"snowflake.node_id = 1\nsnowflake.layout = 'discord'",
		'1',
		qr/^snowflake\.layout differs from the layout that this server has minted with\. Restore snowflake\.layout/
	],
	[
		'no database for the keeper',
		"snowflake.layout = 'twitter'\nsnowflake.database = 'nowhere'",
		'1',
		qr/^the database of the snowflake reservation does not exist\. Create the database "nowhere", or change snowflake\.database and restart the server\.$/
	],
	[
		'another database',
		"snowflake.database = 'elsewhere'",
		'1', qr/^the snowflake reservation of this server is not in the database "elsewhere"\. /
	],
	[ 'and all is well again', "snowflake.database = 'postgres'", '1', '' ])
{
	my ($what, $lines, $node_id, $advice) = @$case;

	$standby->append_conf('postgresql.auto.conf', $lines);
	if ($node_id eq '0')
	{
		$standby->reload;
		wait_for_query($standby, 'SELECT node = 0 FROM snowflake_status');
	}
	else
	{
		$standby->restart;
	}
	is(status($standby, 'node'), $node_id, "$what: the node ID that it would mint with");
	my $says = status($standby, 'advice');
	ok( ref $advice
		? $says =~ s/^\Q$nothing\E//r =~ $advice && $says =~ /^\Q$nothing\E/
		: $says eq $advice,
		"$what: the advice") or diag($says);
}

# No lock is left behind, and none is waited for: a transaction of the primary has the table
# locked, and so has the standby that replays it.
is( query(
		$standby, q{
		BEGIN;
		SELECT relation::regclass FROM pg_locks WHERE relation = 'snowflake_keeper.reservation'::regclass;
		SELECT advice FROM snowflake_status;
		SELECT count(*) FROM pg_locks WHERE relation = 'snowflake_keeper.reservation'::regclass;
		COMMIT}),
	"\n0",
	'no lock is left behind');
my $locker = session($primary,
	'BEGIN; SELECT pg_current_xact_id(); LOCK TABLE snowflake_keeper.reservation IN ACCESS EXCLUSIVE MODE; SELECT pg_switch_wal()'
);
wait_for_query($standby,
	q{SELECT count(*) > 0 FROM pg_locks WHERE relation = 'snowflake_keeper.reservation'::regclass AND mode = 'AccessExclusiveLock'}
);
is(query($standby, q{SET lock_timeout = '1s'; SELECT advice FROM snowflake_status}),
	'', 'the status does not wait for it');
$locker->query_safe('ROLLBACK');
$locker->quit;

# What the log says at the first opening of the gate, and only then
my $inherited =
  qr/LOG:  this server was started as a standby or from a backup, and now mints with node ID (\d+)\n.*?DETAIL:  (.*)\n(?:.*?HINT:  (.*)\n)?/;

sub inherited
{
	my ($node, $offset) = @_;

	return slurp_file($node->logfile, $offset) =~ $inherited;
}

# The primary is down, so that there is only ever one server with this node ID.
is(log_count($primary, $inherited), 0, 'nothing in the log of the primary');
my $newest = mint($primary);
$primary->wait_for_catchup($standby);
$primary->stop;
my $offset = -s $standby->logfile;
$standby->promote;
wait_for_mint($standby);
cmp_ok(mint($standby), '>', $newest, 'the promoted standby mints larger IDs');
query($standby, 'INSERT INTO orders (n) VALUES (1001)');
is( query(
		$standby,
		'SELECT (SELECT n FROM orders ORDER BY id DESC LIMIT 1), count(DISTINCT id) FROM orders'),
	'1001|1001',
	'and the next row sorts last');
my ($node_id, $detail, $hint) = inherited($standby, $offset);
is($node_id, 1, 'the log has the node ID of a promoted standby');
like(
	$detail,
	qr/^The node ID comes from snowflake\.node_id, which is set in ".*\/postgresql\.auto\.conf", line \d+\. According to the reservation, node ID 1 was in use before, until "[^"]+" at the latest\.$/,
	'and where it comes from, and that it was in use');
my ($line) = $detail =~ /line (\d+)/;
my @lines = split /\n/, slurp_file($standby->data_dir . '/postgresql.auto.conf');
like($lines[ $line - 1 ], qr/^snowflake\.node_id = 1$/, 'which is right');
like($hint, qr/^If another server used it/, 'and what to do if another server still has it');

foreach my $again ('when the gate is opened once more', 'at the next start')
{
	$offset = -s $standby->logfile;
	if ($again =~ /start/)
	{
		$standby->restart;
	}
	else
	{
		my $keeper = status($standby, 'keeper_pid');

		kill 'TERM', $keeper;
		wait_for_query($standby, "SELECT keeper_pid <> $keeper FROM snowflake_status");
	}
	wait_for_mint($standby);
	like(slurp_file($standby->logfile, $offset), qr/snowflake gate opened/, $again);
	is_deeply([ inherited($standby, $offset) ], [], 'the log does not say it again');
}
$standby->stop;

# A copy, with a node ID of its own on the command line
my $copy = standby_of_backup('copy', 'base', '');
{
	local %ENV = $copy->_get_env();
	PostgreSQL::Test::Utils::system_or_bail(
		'pg_ctl', '-w', '-D', $copy->data_dir,
		'-l', $copy->logfile, '-o', '-c snowflake.node_id=3',
		'start');
	$copy->_update_pid(1);
}
wait_for_mint($copy);
($node_id, $detail, $hint) = inherited($copy, 0);
is($node_id, 3, 'the log has the node ID of a copy');
is( $detail,
	'The node ID comes from snowflake.node_id, which is set by the command line. According to the reservation, node ID 3 was not in use before.',
	'which is its own, whatever came with the data');
is($hint, undef, 'so there is nothing to do');

# A server that cannot start a keeper
$copy->stop;
$copy->append_conf('postgresql.conf', 'max_worker_processes = 0');
$copy->start;
is( status($copy, q{concat_ws(' ', gate, advice)}),
	'closed: the keeper is not running Increase max_worker_processes, and restart the server.',
	'no keeper: the advice says why, at once');

$copy->stop;
done_testing();
