# Node IDs are leased from etcd: one server, three of which one dies, users, TLS.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeCoordinator;
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'etcd is not installed' if !grep { -x "$_/etcd" } split /:/, $ENV{PATH};

my $etcd = SnowflakeCoordinator::new_etcd('e', 3);
my $hosts = SnowflakeCoordinator::hosts($etcd);

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

SnowflakeCoordinator::wait_for_etcd($etcd);
my $one = member('one', "etcd://$hosts/fleet/a");
my $two = member('two', "etcd://$hosts/fleet/a");
$one->poll_query_until('postgres', q{SELECT coordinator = 'grants nothing' FROM snowflake_status()}) or die 'etcd is not asked';
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
is(SnowflakeTest::error_of($two, 'postgres', 'SELECT snowflake_fleet_create()')->{sqlstate},
	'42710', 'a fleet is founded once');
SnowflakeTest::wait_for_mint($one, 'postgres');
SnowflakeTest::wait_for_mint($two, 'postgres');
is_deeply([ sort map { status($_, 'node') } $one, $two ], [ 0, 1 ], 'two servers get two node IDs');
is( $one->safe_psql('postgres', q{SELECT node, state FROM snowflake_fleet() ORDER BY node NULLS FIRST}),
	"|fleet\n0|leased\n1|leased", 'the fleet is listed');

# One member of three dies, which no server notices.
my $errors = status($one, 'lease_errors');
SnowflakeCoordinator::kill_members($etcd, 0);
foreach my $node ($one, $two)
{
	my $until = status($node, 'lease_until');
	$node->poll_query_until('postgres', "SELECT lease_until > timestamptz '$until' + interval '4s' FROM snowflake_status()")
	  or die 'not renewed';
}
is(status($one, 'coordinator, leases'), 'reachable|1', 'without one of three leases are renewed');

# All die, and come back.
SnowflakeCoordinator::kill_members($etcd);
$one->poll_query_until('postgres', q{SELECT gate = 'closed: the lease of the node ID has ended' FROM snowflake_status()})
  or die 'does not end';
is(status($one, 'coordinator'), 'unreachable', 'without all of them they end');
SnowflakeCoordinator::start_members($etcd);
SnowflakeTest::wait_for_mint($one, 'postgres');
SnowflakeTest::wait_for_mint($two, 'postgres');
my @nodes = map { status($_, 'node') } $one, $two;
isnt($nodes[0], $nodes[1], 'and are granted again when etcd is back');

# A clean restart keeps the node ID.
$one->restart;
SnowflakeTest::wait_for_mint($one, 'postgres');
is(status($one, 'node'), $nodes[0], 'a clean restart keeps the node ID');
$_->stop foreach $one, $two;
SnowflakeCoordinator::kill_members($etcd);

# Users, who may use what they were granted
my $passfile = PostgreSQL::Test::Utils::tempdir() . '/pass';
append_to_file($passfile, "secret7\n");
chmod 0600, $passfile;
$etcd = SnowflakeCoordinator::new_etcd('u', 1);
$hosts = SnowflakeCoordinator::hosts($etcd);
SnowflakeCoordinator::wait_for_etcd($etcd);
SnowflakeCoordinator::etcdctl($etcd, @$_)
  foreach [ 'user', 'add', 'root:rootpw' ], [ 'user', 'grant-role', 'root', 'root' ],
  [ 'user', 'add', 'fleet:secret7' ], [ 'role', 'add', 'fleet' ],
  [ 'role', 'grant-permission', 'fleet', 'readwrite', 'fleet/', '--prefix=true' ],
  [ 'user', 'grant-role', 'fleet', 'fleet' ], [ 'auth', 'enable' ];
$one = member('with_user', "etcd://fleet\@$hosts/fleet?passfile=$passfile");
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
SnowflakeTest::wait_for_mint($one, 'postgres');
is(status($one, 'node'), '0', 'a user with a password gets a node ID');
append_to_file($passfile, '');
open my $fh, '>', $passfile or die;
print $fh "wrong8\n";
close $fh;
my $error = SnowflakeTest::error_of($one, 'postgres', 'SELECT * FROM snowflake_fleet()');
is($error->{sqlstate}, '28000', 'a wrong password is an error');
like($error->{message}, qr/authentication failed/, 'which says so');
chmod 0644, $passfile;
is(SnowflakeTest::error_of($one, 'postgres', 'SELECT * FROM snowflake_fleet()')->{sqlstate}, 'F0000',
	'a file that others can read is refused');
my $log = slurp_file($one->logfile);
unlike($log, qr/secret7|wrong8/, 'no password is in the log');
$one->stop;
SnowflakeCoordinator::kill_members($etcd);

# TLS, with a certificate of each side
my $dir = PostgreSQL::Test::Utils::tempdir();
system_or_bail('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=127.0.0.1',
	'-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', "$dir/key.pem", '-out', "$dir/cert.pem");
$etcd = SnowflakeCoordinator::new_etcd('t', 1, "--cert-file=$dir/cert.pem", "--key-file=$dir/key.pem");
$hosts = SnowflakeCoordinator::hosts($etcd);
SnowflakeCoordinator::wait_for_etcd($etcd, "--cacert=$dir/cert.pem");
$one = member('tls', "etcds://$hosts/fleet?cacert=$dir/cert.pem");
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
SnowflakeTest::wait_for_mint($one, 'postgres');
is(status($one, 'node'), '0', 'with TLS a node ID is leased');
$one->append_conf('postgresql.conf', "snowflake.node_source = 'etcds://$hosts/fleet'");
$one->reload;
$one->poll_query_until('postgres', q{SELECT coordinator = 'unreachable' FROM snowflake_status()})
  or die 'a certificate of nobody known is accepted';
pass('a certificate that cannot be verified is refused');
$one->stop;
SnowflakeCoordinator::kill_members($etcd);

done_testing();
