# Node IDs are leased from ZooKeeper: three servers, of which one dies; a user of
# its own.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeCoordinator;
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'ZooKeeper is not installed' if !-e '/usr/share/java/zookeeper.jar';

my $zookeeper = SnowflakeCoordinator::new_zookeeper('z', 3);
my $hosts = SnowflakeCoordinator::hosts($zookeeper);
my $passfile = PostgreSQL::Test::Utils::tempdir() . '/pass';

append_to_file($passfile, "secret7\n");
chmod 0600, $passfile;

sub member
{
	my ($name, $url) = @_;
	my $node = SnowflakeTest::new_node($name,
		node_id => undef,
		conf => "snowflake.node_source = '$url'\nsnowflake.lease = '10s'\n");

	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	return $node;
}

sub status
{
	return SnowflakeTest::status($_[0], 'postgres', $_[1]);
}

my $one = member('one', "zookeeper://$hosts/fleet/a");
my $two = member('two', "zookeeper://$hosts/fleet/a");
$one->poll_query_until('postgres', q{SELECT coordinator = 'grants nothing' FROM snowflake_status()})
  or die 'ZooKeeper is not asked';
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
is(SnowflakeTest::error_of($two, 'postgres', 'SELECT snowflake_fleet_create()')->{sqlstate},
	'42710', 'a fleet is founded once');
SnowflakeTest::wait_for_mint($one, 'postgres');
SnowflakeTest::wait_for_mint($two, 'postgres');
is_deeply([ sort map { status($_, 'node') } $one, $two ], [ 0, 1 ], 'two servers get two node IDs');
is( $two->safe_psql('postgres', q{SELECT node, state FROM snowflake_fleet() ORDER BY node NULLS FIRST}),
	"|fleet\n0|leased\n1|leased", 'the fleet is listed');

# One of three dies: a lease is renewed all the same.
SnowflakeCoordinator::kill_members($zookeeper, 0);
foreach my $node ($one, $two)
{
	my $until = status($node, 'lease_until');
	$node->poll_query_until('postgres', "SELECT lease_until > timestamptz '$until' + interval '4s' FROM snowflake_status()")
	  or die 'not renewed';
	is(status($node, 'gate, leases'), 'open|1', 'without one of three leases are renewed');
}

# All die, and come back.
SnowflakeCoordinator::kill_members($zookeeper);
$one->poll_query_until('postgres', q{SELECT gate = 'closed: the lease of the node ID has ended' FROM snowflake_status()})
  or die 'does not end';
is(status($one, 'coordinator'), 'unreachable', 'without all of them they end');
SnowflakeCoordinator::start_members($zookeeper);
SnowflakeTest::wait_for_mint($one, 'postgres');
SnowflakeTest::wait_for_mint($two, 'postgres');
my @nodes = map { status($_, 'node') } $one, $two;
isnt($nodes[0], $nodes[1], 'and are granted again when they are back');

# A clean restart keeps the node ID.
$one->restart;
SnowflakeTest::wait_for_mint($one, 'postgres');
is(status($one, 'node'), $nodes[0], 'a clean restart keeps the node ID');
$_->stop foreach $one, $two;

# What a user makes is for that user alone.
$one = member('with_user', "zookeeper://fleet\@$hosts/fleet/b?passfile=$passfile");
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
SnowflakeTest::wait_for_mint($one, 'postgres');
is(status($one, 'node'), '0', 'a user with a password gets a node ID');
$one->append_conf('postgresql.conf', "snowflake.node_source = 'zookeeper://$hosts/fleet/b'");
$one->reload;
my $error;
SnowflakeTest::wait_until('the setting is in force', sub {
	$error = SnowflakeTest::error_of($one, 'postgres', 'SELECT * FROM snowflake_fleet()');
	return $error->{sqlstate} ne '';
});
is($error->{sqlstate}, '28000', 'nobody else may read it');
unlike(slurp_file($one->logfile), qr/secret7/, 'no password is in the log');
$one->stop;
SnowflakeCoordinator::kill_members($zookeeper);

done_testing();
