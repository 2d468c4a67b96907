# Node IDs are leased from Consul: three servers, one of which dies; an access token; TLS.
# long

use strict;
use warnings;

use File::Basename;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeCoordinator;
use SnowflakeFleet;
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'Consul is not installed' if !consul_program();

my $consul = new_consul('c', 3);
my $hosts = hosts($consul);

check_fleet($consul, "consul://$hosts/fleet/a");

# A founder whose clock is an hour ahead: the fleet begins at the clock of Consul.
start_members($consul);
my $clock = new_clock('ahead');
my $url = "consul://$hosts/fleet/ahead";
set_clock($clock, 3_600_000);
my $ahead = start_member('ahead', $url, lease => '1min', clock => $clock);
query($ahead, 'SELECT snowflake_fleet_create()');
my $right = start_member('right', $url, lease => '1min');
wait_for_status($right, q{coordinator IN ('reachable', 'grants nothing')});
is(status($right, 'coordinator'),
	'reachable', 'a fleet whose founder is ahead begins at the clock of Consul');
$_->stop foreach $ahead, $right;
kill_members($consul);

# With access control, only who has a token for the prefix may read and write it.
my $master = '11111111-2222-3333-4444-555555555555';
my $passfile = PostgreSQL::Test::Utils::tempdir() . '/token';
$consul = new_consul(
	'a',
	1,
	qq{acl { enabled = true default_policy = "deny" down_policy = "deny" tokens { master = "$master" agent = "$master" } }},
	$master);
$hosts = hosts($consul);
consul_request($consul, 'PUT', 'v1/acl/policy',
	'{"Name": "reader", "Rules": "key_prefix \"snowflake/\" { policy = \"read\" }"}');
my ($read_token) =
  consul_request($consul, 'PUT', 'v1/acl/token', '{"Policies": [{"Name": "reader"}]}') =~
  /"SecretID":\s*"([^"]+)"/
  or die 'no token';

# doc/fleet.md has the commands for one that may do what it must.
my ($commands) =
  slurp_file("$FindBin::RealBin/../../doc/fleet.md") =~ /^```sh\n(consul acl policy .*?)^```$/ms
  or die 'no commands';
my $printed;
{
	local $ENV{CONSUL_HTTP_ADDR} = (split /,/, $hosts)[0];
	local $ENV{CONSUL_HTTP_TOKEN} = $master;
	local $ENV{PATH} = dirname(consul_program()) . ":$ENV{PATH}";
	foreach my $command (split /\n/, $commands)
	{
		$printed = `$command 2>&1`;
		is($?, 0, "runs: $command") or diag($printed);
	}
}
my ($token) = $printed =~ /^SecretID:\s*(\S+)/m;
ok($token, 'and they print a token');

sub use_token
{
	my ($text) = @_;

	unlink $passfile;
	append_to_file($passfile, "$text\n");
	chmod 0600, $passfile;
	return;
}
use_token($token);
my $one =
  start_member('with_token', "consul://$hosts/snowflake/b?passfile=$passfile", founds => '');
is(status($one, 'node'), '0', 'with a token a node ID is leased');
is(listing_error($one)->{stdout}, '2', 'and the fleet is listed');
use_token('99999999-2222-3333-4444-555555555555');
my $error = listing_error($one);
is($error->{sqlstate}, '28000', 'a wrong token is an error');
like($error->{message}, qr/HTTP status 403/, 'which says so');
use_token($read_token);
cmp_ok(listing_error($one)->{stdout}, '>', 1, 'a token that may read lists the fleet');
refuses($one, 'SELECT snowflake_fleet_create()',
	'28000', 'a refused write is not taken for a fleet that is there already');

# Without one nobody may, which Consul does not say where it is asked for a list.
use_coordinator($one, "consul://$hosts/snowflake/b");
refuses($one, 'SELECT snowflake_fleet_create()', '28000', 'without a token nothing is written');
unlike(slurp_file($one->logfile), qr/$token|$read_token|99999999-/, 'no token is in the log');
$one->stop;

use_token($token);
check_late_writes($consul, "consul://HOSTS/snowflake/c?passfile=$passfile", qr/"cas"/);
kill_members($consul);

# TLS, with a certificate of each side
my ($certificate, $key) = new_certificate();
my $port = PostgreSQL::Test::Cluster::get_free_port();
$consul = new_consul('t', 1, <<"EOF");
ports { https = $port }
ca_file = "$certificate"
cert_file = "$certificate"
key_file = "$key"
verify_incoming_https = true
EOF
my $files = "cacert=$certificate&cert=$certificate&key=$key";
$one = start_member('tls', "consuls://127.0.0.1:$port/fleet?$files", founds => '');
is(status($one, 'node'), '0', 'with TLS a node ID is leased');

foreach my $bad (
	[ "cert=$certificate&key=$key", 'a server whose certificate cannot be verified' ],
	[ "cacert=$certificate", 'a connection without the certificate that is asked for' ])
{
	my ($parameters, $what) = @$bad;

	use_coordinator($one, "consuls://127.0.0.1:$port/fleet?$parameters");
	is(listing_error($one)->{sqlstate}, '08006', "not used: $what");
}

done_testing();
