# Node IDs are leased from Consul: three servers, of which one dies; an access token; TLS.
# long

use strict;
use warnings;

use File::Basename;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeCoordinator;
use SnowflakeFleet qw(check_fleet check_late_writes start_member);
use SnowflakeTest qw(
  error_of log_count new_clock new_member set_clock start_with_clock status wait_for_mint
  wait_for_status wait_until
);
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'Consul is not installed' if !SnowflakeCoordinator::consul_program();

my $consul = SnowflakeCoordinator::new_consul('c', 3);
my $hosts = SnowflakeCoordinator::hosts($consul);

SnowflakeCoordinator::wait_for_consul($consul);
check_fleet($consul, "consul://$hosts/fleet/a");

# A founder whose clock is an hour ahead: the fleet begins at the clock of Consul.
SnowflakeCoordinator::start_members($consul);
SnowflakeCoordinator::wait_for_consul($consul);
my $clock = new_clock('ahead');
set_clock($clock, 3_600_000);
my ($ahead, $right) =
  map { new_member($_, "consul://$hosts/fleet/ahead", lease => '1min') } 'ahead', 'right';
start_with_clock($ahead, $clock);
$ahead->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
$right->start;
$right->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_status($right, q{coordinator IN ('reachable', 'grants nothing')});
is(status($right, 'coordinator'),
	'reachable', 'a fleet whose founder is ahead begins at the clock of Consul');
$_->stop foreach $ahead, $right;
SnowflakeCoordinator::kill_members($consul);

# With access control, only who has a token for the prefix may read and write it.
my $master = '11111111-2222-3333-4444-555555555555';
my $passfile = PostgreSQL::Test::Utils::tempdir() . '/token';
$consul = SnowflakeCoordinator::new_consul('a', 1,
		'acl { enabled = true default_policy = "deny" down_policy = "deny" tokens { master = "'
	  . $master
	  . '" agent = "'
	  . $master
	  . '" } }');
$hosts = SnowflakeCoordinator::hosts($consul);
SnowflakeCoordinator::wait_for_consul($consul, $master);
SnowflakeCoordinator::consul_put($consul, $master, 'v1/acl/policy',
	'{"Name": "reader", "Rules": "key_prefix \"snowflake/\" { policy = \"read\" }"}');
my $answer = SnowflakeCoordinator::consul_put($consul, $master, 'v1/acl/token',
	'{"Policies": [{"Name": "reader"}]}');
my ($read_token) = $answer =~ /"SecretID":\s*"([^"]+)"/ or die "no token: $answer";

# doc/fleet.md has the commands for one that may do what it must.
my $page = slurp_file("$FindBin::RealBin/../../doc/fleet.md");
my ($commands) = $page =~ /^```sh\n(consul acl policy .*?)^```$/ms or die 'no commands';
my ($token, $printed);
{
	local $ENV{CONSUL_HTTP_ADDR} = (split /,/, $hosts)[0];
	local $ENV{CONSUL_HTTP_TOKEN} = $master;
	local $ENV{PATH} = dirname(SnowflakeCoordinator::consul_program()) . ":$ENV{PATH}";
	foreach my $command (split /\n/, $commands)
	{
		$printed = `$command 2>&1`;
		is($?, 0, "runs: $command") or diag($printed);
	}
}
($token) = $printed =~ /^SecretID:\s*(\S+)/m;
ok($token, 'and they print a token');
append_to_file($passfile, "$token\n");
chmod 0600, $passfile;
my $one = start_member('with_token', "consul://$hosts/snowflake/b?passfile=$passfile");
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
wait_for_mint($one);
is(status($one, 'node'), '0', 'with a token a node ID is leased');
is($one->safe_psql('postgres', q{SELECT count(*) FROM snowflake_fleet()}),
	'2', 'and the fleet is listed');

# A token that is none
open my $fh, '>', $passfile or die;
print $fh "99999999-2222-3333-4444-555555555555\n";
close $fh;
my $error = error_of($one, 'SELECT * FROM snowflake_fleet()');
is($error->{sqlstate}, '28000', 'a wrong token is an error');
like($error->{message}, qr/HTTP status 403/, 'which says so');

# One that may only read
open $fh, '>', $passfile or die;
print $fh "$read_token\n";
close $fh;
is($one->safe_psql('postgres', q{SELECT count(*) > 1 FROM snowflake_fleet()}),
	't', 'a token that may read lists the fleet');
is(error_of($one, 'SELECT snowflake_fleet_create()')->{sqlstate},
	'28000', 'a refused write is not taken for a fleet that is there already');

# Without one nobody may, which Consul does not say where it is asked for a list.
$one->append_conf('postgresql.conf', "snowflake.node_source = 'consul://$hosts/snowflake/b'");
$one->reload;
wait_until(
	'the setting is in force',
	sub {
		return $one->safe_psql('postgres', 'SHOW snowflake.node_source') !~ /passfile/;
	});
is(error_of($one, 'SELECT snowflake_fleet_create()')->{sqlstate},
	'28000', 'without a token nothing is written');
unlike(slurp_file($one->logfile), qr/$token|$read_token|99999999-/, 'no token is in the log');
$one->stop;

# with the token again
open $fh, '>', $passfile or die;
print $fh "$token\n";
close $fh;
check_late_writes($consul, "consul://HOSTS/snowflake/c?passfile=$passfile", qr/"cas"/);
SnowflakeCoordinator::kill_members($consul);

# TLS, with a certificate of each side
my ($certificate, $key) = SnowflakeCoordinator::new_certificate();
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $files = "cacert=$certificate&cert=$certificate&key=$key";
$consul = SnowflakeCoordinator::new_consul('t', 1, <<"EOF");
ports { https = $port }
ca_file = "$certificate"
cert_file = "$certificate"
key_file = "$key"
verify_incoming_https = true
EOF
SnowflakeCoordinator::wait_for_consul($consul);
$one = start_member('tls', "consuls://127.0.0.1:$port/fleet?$files");
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
wait_for_mint($one);
is(status($one, 'node'), '0', 'with TLS a node ID is leased');

# A record without a value is one that is damaged, and not none.
SnowflakeCoordinator::consul_put($consul, '', 'v1/kv/fleet/node/7', '');
my $damaged = q{SELECT count(*) FROM snowflake_fleet() WHERE node = 7 AND state = 'damaged'};
is($one->safe_psql('postgres', $damaged), '1', 'a record that was emptied is listed as damaged');
is($one->safe_psql('postgres', "SELECT snowflake_fleet_recover(); $damaged"),
	"\n0", 'and mended by snowflake_fleet_recover()');

# A fleet that is deleted is missing; that is no failure of the coordinator.
my $deleted = -s $one->logfile;
SnowflakeCoordinator::consul_request($consul, '', 'DELETE', 'v1/kv/fleet/fleet');
wait_for_status($one, q{advice ~ 'The coordinator has no fleet'});
is(log_count($one, qr/WARNING:  could not use the coordinator: .*exist/, $deleted),
	0, 'a fleet that is deleted is told to be missing');

foreach my $bad (
	[ "cert=$certificate&key=$key", 'a server whose certificate cannot be verified' ],
	[ "cacert=$certificate", 'a connection without the certificate that is asked for' ])
{
	my ($parameters, $what) = @$bad;
	my $url = "consuls://127.0.0.1:$port/fleet?$parameters";

	$one->append_conf('postgresql.conf', "snowflake.node_source = '$url'");
	$one->reload;
	wait_until('the setting is in force',
		sub { $one->safe_psql('postgres', 'SHOW snowflake.node_source') eq $url });
	is(error_of($one, 'SELECT * FROM snowflake_fleet()')->{sqlstate}, '08006', "not used: $what");
}
$one->stop;
SnowflakeCoordinator::kill_members($consul);

done_testing();
