# A standby tells what would stand in the way of minting after its promotion, and
# what it would mint with.  When it has been promoted, the log says where its node
# ID comes from and whether it was in use before: it may have come with the data.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(log_count new_node status wait_for_mint);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node(
	'primary',
	node_id => undef,
	init => { allows_streaming => 1 });
$primary->start;

# Nothing was minted yet, and somebody has put a table in the place of the keeper's
# which a standby cannot read.  It is not looked into.
$primary->safe_psql(
	'postgres', q{
	CREATE EXTENSION snowflake;
	CREATE ROLE creator;
	GRANT CREATE ON DATABASE postgres TO creator;
	SET SESSION AUTHORIZATION creator;
	CREATE SCHEMA snowflake_keeper;
	CREATE UNLOGGED TABLE snowflake_keeper.reservation
		(node integer NOT NULL, layout text NOT NULL, reserved_until timestamptz NOT NULL, in_order boolean NOT NULL);
});
$primary->backup('bare');
my $bare = PostgreSQL::Test::Cluster->new('bare');
$bare->init_from_backup($primary, 'bare', has_streaming => 1);
$bare->append_conf('postgresql.conf', 'snowflake.node_id = 2');
$bare->start;
is(status($bare, q{concat_ws(' ', node, advice)}),
	'2', 'a standby whose keeper has no table, but somebody else');
$bare->stop;
$primary->safe_psql(
	'postgres', q{
	DROP SCHEMA snowflake_keeper CASCADE;
	ALTER SYSTEM SET snowflake.node_id = 1;
	SELECT pg_reload_conf();
});
wait_for_mint($primary);
$primary->backup('base');

# The node ID of its own is overruled by that which came with the data.
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'snowflake.node_id = 2');
$standby->start;
$primary->wait_for_catchup($standby);

# Give the standby a setting in place of the one before, and start it again.
sub set_on_standby
{
	my ($line) = @_;

	$standby->append_conf('postgresql.auto.conf', $line);
	$standby->restart;
	return;
}

# What a standby says
is(status($standby, 'gate'), 'closed: the server is in recovery', 'a standby mints nothing');
is(status($standby, q{concat_ws(' ', node, advice)}),
	'1', 'all is well for a promotion: its node ID, and no advice');
is(status($standby, 'layout'), status($primary, 'layout'), 'and its layout');

my $nothing = 'A promotion would leave this server unable to mint: ';
set_on_standby('snowflake.node_id = -1');
like(
	status($standby, q{concat_ws(' ', node, advice)}),
	qr/^\Q$nothing\Esnowflake\.node_id is not set\. Set snowflake\.node_id in this server/,
	'a standby without a node ID');
set_on_standby('snowflake.node_id = 2000');
is( status($standby, q{concat_ws(' ', node, advice)}),
	"2000 ${nothing}snowflake.node_id 2000 is too large for the layout. "
	  . 'Set snowflake.node_id to at most 1023, and reload the configuration.',
	'with one that is too large');
set_on_standby("snowflake.node_id = 1\nsnowflake.layout = 'discord'");
like(
	status($standby, 'advice'),
	qr/^\Q$nothing\Esnowflake\.layout differs from the layout that this server has minted with\. Restore snowflake\.layout/,
	'with another layout than the stored one');
set_on_standby("snowflake.layout = 'twitter'\nsnowflake.database = 'nowhere'");
is( status($standby, 'advice'),
	"${nothing}the database of the snowflake reservation does not exist. "
	  . 'Create the database "nowhere", or change snowflake.database and restart the server.',
	'without a database for the keeper');
$primary->safe_psql('postgres', 'CREATE DATABASE elsewhere');
$primary->wait_for_catchup($standby);
set_on_standby("snowflake.database = 'elsewhere'");
like(
	status($standby, 'advice'),
	qr/^\Q$nothing\Ethe snowflake reservation of this server is not in the database "elsewhere"\. /,
	'with another one');
set_on_standby("snowflake.database = 'postgres'");
is(status($standby, 'advice'), '', 'and all is well again');
is( $standby->safe_psql(
		'postgres', q{
		BEGIN;
		SELECT relation::regclass FROM pg_locks WHERE relation = 'snowflake_keeper.reservation'::regclass;
		SELECT advice FROM snowflake_status;
		SELECT count(*) FROM pg_locks WHERE relation = 'snowflake_keeper.reservation'::regclass;
		COMMIT}),
	"\n0",
	'no lock is left behind');

# A transaction of the primary has the table locked, and so has the standby that replays it.
my $locker = $primary->background_psql('postgres');
$locker->query_safe(
	'BEGIN; SELECT pg_current_xact_id(); LOCK TABLE snowflake_keeper.reservation IN ACCESS EXCLUSIVE MODE; SELECT pg_switch_wal()'
);
$standby->poll_query_until('postgres',
	q{SELECT count(*) > 0 FROM pg_locks WHERE relation = 'snowflake_keeper.reservation'::regclass AND mode = 'AccessExclusiveLock'}
) or die 'the lock is not replayed';
my ($rc, $advice, $error) =
  $standby->psql('postgres', q{SET lock_timeout = '1s'; SELECT advice FROM snowflake_status});
is("$rc$advice$error", '0', 'the status does not wait for it');
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

is(log_count($primary, $inherited), 0, 'nothing in the log of the primary');
$primary->stop;
my $offset = -s $standby->logfile;
$standby->promote;
wait_for_mint($standby);
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
$offset = -s $standby->logfile;
my $keeper = $standby->safe_psql('postgres',
	q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'});
kill 'TERM', $keeper;
$standby->poll_query_until('postgres',
	"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'snowflake keeper' AND pid <> $keeper)"
) or die 'no other keeper';
wait_for_mint($standby);
like(
	slurp_file($standby->logfile, $offset),
	qr/snowflake gate opened/,
	'the gate is opened once more');
is_deeply([ inherited($standby, $offset) ], [], 'and the log does not say it again');
$offset = -s $standby->logfile;
$standby->restart;
wait_for_mint($standby);
is_deeply([ inherited($standby, $offset) ], [], 'but not at the next start');
$standby->stop;

# A copy, with a node ID of its own on the command line
my $copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init_from_backup($primary, 'base');
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
