# Node IDs are leased from Consul: three servers, of which one dies; an access token.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeCoordinator;
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'Consul is not installed' if !SnowflakeCoordinator::consul_program();

my $consul = SnowflakeCoordinator::new_consul('c', 3);
my $hosts = SnowflakeCoordinator::hosts($consul);

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

SnowflakeCoordinator::wait_for_consul($consul);
my $one = member('one', "consul://$hosts/fleet/a");
my $two = member('two', "consul://$hosts/fleet/a");
$one->poll_query_until('postgres', q{SELECT coordinator = 'grants nothing' FROM snowflake_status()})
  or die 'Consul is not asked';
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
is(SnowflakeTest::error_of($two, 'postgres', 'SELECT snowflake_fleet_create()')->{sqlstate},
	'42710', 'a fleet is founded once');
SnowflakeTest::wait_for_mint($one, 'postgres');
SnowflakeTest::wait_for_mint($two, 'postgres');
is_deeply([ sort map { status($_, 'node') } $one, $two ], [ 0, 1 ], 'two servers get two node IDs');
is( $two->safe_psql('postgres', q{SELECT node, state FROM snowflake_fleet() ORDER BY node NULLS FIRST}),
	"|fleet\n0|leased\n1|leased", 'the fleet is listed');

# One of three dies: a lease is renewed all the same.
SnowflakeCoordinator::kill_members($consul, 0);
foreach my $node ($one, $two)
{
	my $until = status($node, 'lease_until');
	$node->poll_query_until('postgres', "SELECT lease_until > timestamptz '$until' + interval '4s' FROM snowflake_status()")
	  or die 'not renewed';
	is(status($node, 'gate, leases'), 'open|1', 'without one of three leases are renewed');
}

# All die, and come back.
SnowflakeCoordinator::kill_members($consul);
$one->poll_query_until('postgres', q{SELECT gate = 'closed: the lease of the node ID has ended' FROM snowflake_status()})
  or die 'does not end';
is(status($one, 'coordinator'), 'unreachable', 'without all of them they end');
SnowflakeCoordinator::start_members($consul);
SnowflakeTest::wait_for_mint($one, 'postgres');
SnowflakeTest::wait_for_mint($two, 'postgres');
my @nodes = map { status($_, 'node') } $one, $two;
isnt($nodes[0], $nodes[1], 'and are granted again when they are back');

# A clean restart keeps the node ID.
$one->restart;
SnowflakeTest::wait_for_mint($one, 'postgres');
is(status($one, 'node'), $nodes[0], 'a clean restart keeps the node ID');
$_->stop foreach $one, $two;
SnowflakeCoordinator::kill_members($consul);

# With access control, only who has a token for the prefix may read and write it.
my $master = '11111111-2222-3333-4444-555555555555';
my $passfile = PostgreSQL::Test::Utils::tempdir() . '/token';
$consul = SnowflakeCoordinator::new_consul('a', 1,
	'acl { enabled = true default_policy = "deny" down_policy = "deny" tokens { master = "' . $master . '" agent = "' . $master . '" } }');
$hosts = SnowflakeCoordinator::hosts($consul);
SnowflakeCoordinator::wait_for_consul($consul, $master);
SnowflakeCoordinator::consul_put($consul, $master, 'v1/acl/policy',
	'{"Name": "fleet", "Rules": "key_prefix \"fleet/\" { policy = \"write\" }"}');
my $answer = SnowflakeCoordinator::consul_put($consul, $master, 'v1/acl/token', '{"Policies": [{"Name": "fleet"}]}');
my ($token) = $answer =~ /"SecretID":\s*"([^"]+)"/ or die "no token: $answer";
append_to_file($passfile, "$token\n");
chmod 0600, $passfile;
$one = member('with_token', "consul://$hosts/fleet/b?passfile=$passfile");
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
SnowflakeTest::wait_for_mint($one, 'postgres');
is(status($one, 'node'), '0', 'with a token a node ID is leased');
is( $one->safe_psql('postgres', q{SELECT count(*) FROM snowflake_fleet()}), '2', 'and the fleet is listed');

# A token that is none
open my $fh, '>', $passfile or die;
print $fh "99999999-2222-3333-4444-555555555555\n";
close $fh;
my $error = SnowflakeTest::error_of($one, 'postgres', 'SELECT * FROM snowflake_fleet()');
is($error->{sqlstate}, '28000', 'a wrong token is an error');
like($error->{message}, qr/HTTP status 403/, 'which says so');

# Without one nobody may, which Consul does not say where it is asked for a list.
$one->append_conf('postgresql.conf', "snowflake.node_source = 'consul://$hosts/fleet/b'");
$one->reload;
SnowflakeTest::wait_until('the setting is in force', sub {
	return $one->safe_psql('postgres', 'SHOW snowflake.node_source') !~ /passfile/;
});
is( SnowflakeTest::error_of($one, 'postgres', 'SELECT snowflake_fleet_create()')->{sqlstate},
	'28000', 'without a token nothing is written');
unlike(slurp_file($one->logfile), qr/$token|99999999-/, 'no token is in the log');
$one->stop;
SnowflakeCoordinator::kill_members($consul);

done_testing();
