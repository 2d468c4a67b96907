# A standby decodes and compares IDs as its primary does, and refuses to mint as it refuses
# nextval().  Its status says what would prevent minting after a promotion, and with which
# node ID it would mint.  After the promotion, its IDs are above all that it has received, and
# the log says where its node ID comes from and whether it was in use before: it may have come
# with the data.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
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
	my $node = SnowflakeNode->new($name);

	$node->init_from_backup($primary, $backup, %params);
	$node->append_conf('postgresql.conf', $conf);
	return $node;
}

# Nothing was minted yet, and somebody has put a table in the place of the keeper's
# which a standby cannot read.  It is not looked into.  The standby's own node ID is overruled by that
# which came with the data.
query(
	$primary, q{
	ALTER SYSTEM SET snowflake.node_id = 1;
	CREATE EXTENSION snowflake;
	CREATE ROLE creator;
	GRANT CREATE ON DATABASE postgres TO creator;
	SET SESSION AUTHORIZATION creator;
	CREATE SCHEMA snowflake_keeper;
	CREATE UNLOGGED TABLE snowflake_keeper.reservation
		(node integer NOT NULL, layout text NOT NULL, reserved_until timestamptz NOT NULL, in_order boolean NOT NULL)}
);
$primary->backup('bare');
my $standby = standby_of_backup('standby', 'bare', 'snowflake.node_id = 2', has_streaming => 1);
$standby->start;
is(status($standby, q{concat_ws(' ', node, advice)}),
	'1', 'a standby whose keeper has no table, but somebody else');
query($primary, 'DROP SCHEMA snowflake_keeper CASCADE');
$primary->reload;
wait_for_mint($primary);
$primary->backup('base');

query(
	$primary, q{
	CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), n int);
	INSERT INTO orders (n) SELECT generate_series(1, 1000);
	CREATE SEQUENCE counter;
	CREATE DATABASE elsewhere});
$primary->wait_for_catchup($standby);
my $sql =
  q{SELECT md5(string_agg(concat_ws(' ', id, @@ id, snowflake_decode(id), n), ',' ORDER BY id)) FROM orders};
is(query($standby, $sql), query($primary, $sql), 'a standby decodes as its primary does');

# nextval() sets the example
my $nextval = error_of($standby, q{SELECT nextval('counter')});
refuses(
	$standby,
	'SELECT snowflake_next()',
	$nextval->{sqlstate},
	'minting is refused on the standby as nextval() is, with the reason',
	message => qr/^cannot execute snowflake_next\(\) during recovery$/);
is(status($standby, 'refused_standby'), 1, 'which is counted');

my $nothing = 'A promotion would leave this server unable to mint: ';

# What would stand in the way, by settings that come after those that came with the data: the node ID,
# and the advice
foreach my $case (table(<<'END'))
 | snowflake.node_id is not set. Set snowflake.node_id to a number that no other server mints with | snowflake.node_id = -1
2000 | snowflake.node_id 2000 is too large for the layout. Set snowflake.node_id to at most 1023, and reload | snowflake.node_id = 2000
1 | snowflake.layout differs from the layout that this server has minted with. Restore snowflake.layout | snowflake.node_id = 1; snowflake.layout = 'discord'
1 | the database of the snowflake reservation does not exist. Create the database "nowhere" | snowflake.layout = 'twitter'; snowflake.database = 'nowhere'
1 | the snowflake reservation of this server is not in the database "elsewhere". | snowflake.database = 'elsewhere'
1 | | snowflake.database = 'postgres'
END
{
	my ($node_id, $advice, $settings) = @$case;

	$standby->append_conf('postgresql.auto.conf', $_) foreach split /; /, $settings;
	$standby->restart;
	is(status($standby, 'node'), $node_id, "$settings: the node ID that it would mint with");
	my $says = status($standby, 'advice');
	ok($advice eq '' ? $says eq '' : index($says, "$nothing$advice") == 0, "$settings: the advice")
	  or diag($says);
}


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

$offset = -s $standby->logfile;
$standby->restart;
wait_for_mint($standby);
is_deeply([ inherited($standby, $offset) ], [], 'the log does not say it again');
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

$copy->stop;
done_testing();
