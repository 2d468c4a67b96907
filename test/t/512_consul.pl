# Node IDs are leased from Consul: three servers, one of which dies; access tokens.  TLS is that of
# etcd.
# long

use File::Basename;
use SnowflakeCoordinator;
use SnowflakeFleet;
use SnowflakeTest;

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
my ($commands) = slurp_file('doc/fleet.md') =~ /^```sh\n(consul acl policy .*?)^```$/ms
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

my $passfile = write_passfile("$token\n");
my $one =
  start_member('with_token', "consul://$hosts/snowflake/b?passfile=$passfile", founds => '');
is(status($one, 'node'), '0', 'with a token a node ID is leased');
is(listing_error($one)->{stdout}, '2', 'and the fleet is listed');
write_passfile("99999999-2222-3333-4444-555555555555\n");
my $error = listing_error($one);
like(
	"$error->{sqlstate} $error->{message}",
	qr/^28000 .*HTTP status 403/,
	'a wrong token is an error');
write_passfile("$read_token\n");
cmp_ok(listing_error($one)->{stdout}, '>', 1, 'a token that may read lists the fleet');
refuses($one, 'SELECT snowflake_fleet_create()',
	'28000', 'a refused write is not taken for a fleet that is there already');

# Without one nobody may, which Consul does not say where it is asked for a list.
use_coordinator($one, "consul://$hosts/snowflake/b");
refuses($one, 'SELECT snowflake_fleet_create()', '28000', 'without a token nothing is written');
unlike(slurp_file($one->logfile), qr/$token|$read_token|99999999-/, 'no token is in the log');
$one->stop;

write_passfile("$token\n");
check_late_writes($consul, "consul://HOSTS/snowflake/c?passfile=$passfile", qr/"cas"/);

done_testing();
