# Hosts that lose the addresses that their node IDs come from, each in a network namespace of
# its own: they go on with these node IDs, and no ID is issued twice.  Without their own
# addresses, they have only that of a bridge, which is the same on both.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run;
use SnowflakeTest qw(
  duplicates extend mint_together new_node query status wait_for_mint wait_for_status
);
use PostgreSQL::Test::Utils;
use Test::More;

my @unshare = qw(unshare --user --map-current-user --keep-caps --net);
my $problem = '';
eval {
	IPC::Run::run([ @unshare, 'sh', '-c', 'ip link add type veth' ], '>', \my $out, '2>',
		\$problem);
}
  or plan skip_all => "no network namespace of one's own may be had here: " . ($problem || $@);

# A shell in a namespace, which runs what it is told.
sub new_host
{
	my %host = (in => '', out => '');

	$host{shell} = IPC::Run::start([ @unshare, 'sh', '-e' ],
		'<', \$host{in}, '>', \$host{out},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return \%host;
}

sub run_on
{
	my ($host, @commands) = @_;

	$host->{out} = '';
	$host->{in} = join '', map { "$_\n" } @commands, 'echo done';
	$host->{shell}->pump until $host->{out} =~ /^done$/m;
	return;
}

sub start_on
{
	my ($host, $node) = @_;

	run_on($host,
			'pg_ctl -w -D '
		  . $node->data_dir . ' -l '
		  . $node->logfile
		  . ' start -o --cluster-name='
		  . $node->name);
	$node->_update_pid(1);
	return;
}

my (@hosts, @servers);
foreach my $i (0, 1)
{
	my $host = new_host();

	run_on(
		$host,
		'ip link set lo up',
		'ip link add eth0 type veth peer name peer0',
		'ip link set peer0 up',
		'ip link set eth0 up',
		'ip addr add 10.0.1.' . (7 + $i) . '/24 dev eth0',
		'ip link add docker0 type bridge',
		'ip addr add 172.17.0.1/16 dev docker0',
		'ip link set docker0 up');
	my $server =
	  new_node("server$i", node_id => undef, conf => "snowflake.node_source = 'address'");
	start_on($host, $server);
	query($server, 'CREATE EXTENSION snowflake');
	wait_for_mint($server);
	push @hosts, $host;
	push @servers, $server;
}

# The node IDs with which the two mint, and how many IDs they have in common.
sub minted
{
	extend($_) foreach @servers;
	my @ids = mint_together(2, @servers);
	return join ', ',
	  (map { query($servers[$_], "SELECT snowflake_node($ids[$_][-1])") } 0, 1),
	  duplicates(@ids) . ' in common';
}

is(minted(), '263, 264, 0 in common', 'each has a node ID of its own');

run_on($_, 'ip link set eth0 down') foreach @hosts;
is(minted(), '263, 264, 0 in common', 'also when its interface is down');

run_on($_, 'ip link set eth0 up', 'ip addr flush dev eth0') foreach @hosts;
is(minted(), '263, 264, 0 in common', 'and when its address is gone');
is( status($servers[1], 'node_origin'),
	'address 10.0.1.8 of interface "eth0"',
	'the status has what it was');

# A start without it finds nothing that would be its own.
$servers[0]->stop;
start_on($hosts[0], $servers[0]);
wait_for_status($servers[0], q{gate ~ 'node ID'});
like(
	status($servers[0], 'node_origin'),
	qr/^None of them can be used: .*"docker0" has 172\.17\.0\.1 \(common to many hosts\)/,
	'the address of the bridge is refused');

# until there is one
run_on($hosts[0], 'ip addr add 10.0.1.9/24 dev eth0');
wait_for_mint($servers[0]);
is(status($servers[0], 'node'), 265, 'an address that is added later is found');

SKIP:
{
	skip 'there is no IPv6 here', 1 unless -e '/proc/net/if_inet6';

	$servers[0]->stop;
	run_on(
		$hosts[0],
		'ip -4 addr flush dev eth0',
		'echo 2 >/proc/sys/net/ipv6/conf/eth0/use_tempaddr',
		'ip addr add 2001:db8::9/64 dev eth0 mngtmpaddr nodad');
	start_on($hosts[0], $servers[0]);
	wait_for_mint($servers[0]);
	is( status($servers[0], q{concat_ws(', ', node, node_origin)}),
		'9, address 2001:db8::9 of interface "eth0"',
		'a temporary address does not count');
}

$_->stop foreach @servers;
$_->{shell}->kill_kill foreach @hosts;
done_testing();
