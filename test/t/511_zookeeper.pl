# Node IDs are leased from ZooKeeper: three servers, one of which dies or lags behind; a user of
# its own.
# long

use SnowflakeCoordinator;
use SnowflakeFleet;
use SnowflakeTest;

plan skip_all => 'ZooKeeper is not installed' if !-e '/usr/share/java/zookeeper.jar';

my $zookeeper = new_zookeeper('z', 3);
my $hosts = hosts($zookeeper);
my $passfile = write_passfile("secret7\n");

check_fleet($zookeeper, "zookeeper://$hosts/fleet/a");

# What a user makes is for that user alone.
my $one =
  start_member('with_user', "zookeeper://fleet\@$hosts/fleet/b?passfile=$passfile", founds => '');
my $founded = time;
is(status($one, 'node'), '0', 'a user with a password gets a node ID');
use_coordinator($one, "zookeeper://$hosts/fleet/b");
is(listing_error($one)->{sqlstate}, '28000', 'nobody else may read it');
refuses(
	$one, 'SELECT snowflake_fleet_create()',
	'28000', 'nor found a fleet where there is one already');

# The same is asked of ZooKeeper itself, which answers with "no authentication".
my %request_of = (
	create => sub { (1, pack 'N/a*N/a*N2N/a*N/a*N', $_[0], 'x', 1, 31, 'world', 'anyone', 0) },
	delete => sub { (2, pack 'N/a*N', $_[0], -1) },
	get => sub { (4, pack 'N/a*C', $_[0], 0) },
	set => sub { (5, pack 'N/a*N/a*N', $_[0], 'x', -1) });
foreach my $request (
	'get fleet',
	'get node/0',
	'set fleet',
	'set node/0',
	'set node',
	'create other',
	'create node/other',
	'delete node/0',
	'delete fleet')
{
	my ($what, $path) = split / /, $request;

	is(zookeeper_error($zookeeper, $request_of{$what}->("/fleet/b/$path")),
		-102, "nobody may $request");
}

# Who may read the records, but not write them, founds no fleet; and one that has no value at
# all is a damaged record.
use_coordinator($one, "zookeeper://$hosts/fleet/d");
query($one, 'SELECT snowflake_fleet_recover()');
is( zookeeper_error(
		$zookeeper, 1, pack 'N/a*N3N/a*N/a*N',
		'/fleet/d/node/7', 0xffffffff, 1, 31, 'world', 'anyone', 0),
	0,
	'a record without a value is made');
is(listed($one, 'state', 7), 'damaged', 'and listed as damaged');
is( zookeeper_error(
		$zookeeper, 7, pack 'N/a*N2N/a*N/a*N',
		'/fleet/d/fleet', 1, 1, 'world', 'anyone', -1),
	0,
	'the fleet is for reading alone');
refuses($one, 'SELECT snowflake_fleet_recover()', '28000', 'a write that is refused is an error');
unlike(slurp_file($one->logfile), qr/secret7/, 'no password is in the log');
$one->stop;

# a request of several operations
check_late_writes($zookeeper, 'zookeeper://HOSTS/fleet/c', qr/\0\0\0\x0e\0\0\0[\x01\x05\x0d]/);

# A member may lag behind the others: it is told to catch up before it is asked.
my $hold = PostgreSQL::Test::Utils::tempdir() . '/hold';
my $relay = new_relay($zookeeper, qr{\0\0\0\x09\0\0\0\x08/fleet/b}, $hold);
append_to_file($hold, '');
$one->append_conf('postgresql.conf',
	"snowflake.node_source = 'zookeeper://fleet\@$relay/fleet/b?passfile=$passfile'");
$one->start;
wait_until('the coordinator is asked', sub { -e "$hold.held" || status($one, 'leases') > 0 });
is(status($one, 'leases'), '0', 'without catching up a member tells nothing');
release($hold);
wait_for_mint($one);

# ZooKeeper tells its time by what was changed last, not by when the fleet was founded.
my $lease =
  query($one, q{SELECT setting::int / 1000 FROM pg_settings WHERE name = 'snowflake.lease'});
wait_until('the fleet is old', sub { time - $founded > 2 * $lease + 11 });
is(error_of($one, 'SELECT snowflake_fleet_recover()')->{message},
	'', 'a fleet that was founded long ago is recovered by the present time');
$one->stop;

done_testing();
