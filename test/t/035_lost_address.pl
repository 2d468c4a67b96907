# A host, a network namespace of its own, loses the address that its node ID comes from: it goes on
# with this node ID.  A temporary address is not taken at a start.

use lib 'test/perl';
use IPC::Run;
use SnowflakeTest;

my @unshare = qw(unshare --user --map-current-user --keep-caps --net);
my $problem = '';
eval {
	IPC::Run::run([ @unshare, 'sh', '-c', 'ip link add type veth' ], '>', \my $out, '2>',
		\$problem);
}
  or plan skip_all => "no network namespace of one's own may be had here: " . ($problem || $@);

# A shell in the namespace, which runs what it is told
my ($in, $out) = ('', '');
my $shell = IPC::Run::start([ @unshare, 'sh', '-e' ],
	'<', \$in, '>', \$out, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));

sub run_on_host
{
	my (@commands) = @_;

	$out = '';
	$in = join '', map { "$_\n" } @commands, 'echo done';
	$shell->pump until $out =~ /^done$/m;
	return;
}

my $server = new_node('server', node_id => undef, conf => "snowflake.node_source = 'address'");

sub start_on_host
{
	run_on_host('pg_ctl -w -D ' . $server->data_dir . ' -l ' . $server->logfile . ' start');
	$server->_update_pid(1);
	return;
}

run_on_host(
	'ip link set lo up',
	'ip link add eth0 type veth peer name peer0',
	'ip link set peer0 up',
	'ip link set eth0 up',
	'ip addr add 10.0.1.7/24 dev eth0',
	'ip link add docker0 type bridge',
	'ip addr add 172.17.0.1/16 dev docker0',
	'ip link set docker0 up');
start_on_host();
query($server, 'CREATE EXTENSION snowflake');
wait_for_mint($server);
run_on_host('ip addr flush dev eth0');
extend($server);
is(query($server, 'SELECT snowflake_node(snowflake_next())'),
	263, 'the node ID stays when its address is gone');

SKIP:
{
	skip 'there is no IPv6 here', 1 unless -e '/proc/net/if_inet6';

	$server->stop;
	run_on_host(
		'ip -4 addr flush dev eth0',
		'echo 2 >/proc/sys/net/ipv6/conf/eth0/use_tempaddr',
		'ip addr add 2001:db8::9/64 dev eth0 mngtmpaddr nodad');
	start_on_host();
	wait_for_mint($server);
	is( status($server, q{concat_ws(', ', node, node_origin)}),
		'9, address 2001:db8::9 of interface "eth0"',
		'a temporary address does not count');
}

$server->stop;
$shell->kill_kill;
done_testing();
