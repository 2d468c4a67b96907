# The node ID comes from the host's name or address: which number it is, what the log
# and the status say about it, what is refused and why, and that it does not change
# after the start.  A shim tells of the hosts; but for one in the end, a network namespace of
# its own.

use IPC::Run;
use SnowflakeTest;

my $shim = build_shim('host_shim');
my $file = PostgreSQL::Test::Utils::tempdir() . '/host';
my $server = new_node(
	'server',
	node_id => undef,
	conf => "wal_level = replica\nrestart_after_crash = on\nmax_wal_senders = 2");

# From now on the host has that name and those addresses.
sub be_host
{
	my ($name, $addresses) = @_;

	open my $fh, '>', "$file.new" or die "could not create \"$file.new\": $!";
	print $fh "$name\n$addresses\n";
	close $fh or die "could not write \"$file.new\": $!";
	rename "$file.new", $file or die "could not rename \"$file.new\": $!";
	return;
}

# Whatever starts within that block is on that host.
sub on_host(&)
{
	my ($do) = @_;

	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{SNOWFLAKE_HOST_FILE} = $file;
	return $do->();
}

# The server has that source and node ID from now on: 'setting' and none if nothing else is said.
sub configure
{
	my ($source, $node_id) = @_;

	$node_id = -1 if ($node_id // '') eq '';
	reload_with($server,
		"snowflake.node_source = '@{[ $source // 'setting' ]}'\nsnowflake.node_id = $node_id");
	return;
}

# The host has that name and those addresses from now on, and the source is that, so that the
# server looks: a reload that changes the setting has it forget what there was.
sub on
{
	my ($source, $name, $addresses, $base) = @_;

	configure();
	wait_for_gate($server, 'not set');
	be_host($name // '', $addresses // '');
	configure($source, $base);
	return;
}

# Stop the server, and start it on a host of that name.
sub restart_on
{
	my ($name) = @_;

	$server->stop('fast');
	be_host($name, '');
	on_host { $server->start };
	wait_for_mint($server);
	return;
}

sub mints_with
{
	my ($node, $name) = @_;

	wait_for_mint($server);
	return is(query($server, 'SELECT snowflake_node(snowflake_next())'), $node, $name);
}

be_host('x', '');
on_host { $server->start };
query($server, 'CREATE EXTENSION snowflake; CREATE ROLE app');

# Which node ID, found in what: the source, the host's name, its addresses, and snowflake.node_id.
# An interface that is down does not count, since its address may be another host's by now; nor does
# an address that many hosts have.  But what is named counts.
foreach my $case (table(<<'END'))
3 | host name "db-3.example.org" | hostname | db-3.example.org
7 | host name "rack2-007" | hostname | rack2-007
8 | host name "orders_8" | hostname | orders_8
9 | host name "rack2.9.example.org" | hostname | rack2.9.example.org
4 | host name "db-4.12.example.org" | hostname | db-4.12.example.org
103 | host name "db-3", plus snowflake.node_id 100 | hostname | db-3 | | 100
263 | address 10.0.1.7 of interface "eth0" | address | x | lo=127.0.0.1,eth0=10.0.1.7,docker0=172.17.0.1,eth0=2001:db8::9
263 | address 10.0.5.7 of interface "eth1" | address | x | eth0=10.0.1.7,wlan0=,eth1=10.0.5.7
9 | address 2001:db8::9 of interface "eth0" | address | x | lo=::1,eth0=fe80::5,eth0=2001:db8::9
264 | address 10.0.1.8 of interface "eth1" | address | x | -eth0=10.0.1.7,eth1=10.0.1.8
9 | address 2001:db8::9 of interface "eth0" | address | x | -eth0=10.0.1.7,-eth0=2001:db8::7,eth0=2001:db8::9
264 | address 10.0.1.8 of interface "eth1" | address | x | eth0=169.254.172.2,eth1=10.0.1.8
521 | address 10.0.2.9 of interface "eth1" | address:eth1 | x | eth0=10.0.1.7,eth1=10.0.2.9,eth1:1=10.0.2.100
1 | address 172.17.0.1 of interface "docker0" | address:docker0 | x | eth0=10.0.1.7,docker0=172.17.0.1
END
{
	my ($node_id, $origin, @host) = @$case;

	on(@host);
	wait_for_mint($server);
	is( status(
			$server,
			q{concat_ws(', ', node, node_source, node_origin, snowflake_node(snowflake_next()), advice)}
		),
		"$node_id, " . $host[0] =~ s/:.*//r . ", $origin, $node_id",
		"$origin: node ID $node_id");
}

# After a start that gives another one, the log has both.
configure('hostname');
restart_on('db-7');
my $offset = -s $server->logfile;
restart_on('db-8');
ok( $server->wait_for_log(
		qr/LOG:  this server minted with node ID 7 before, and now mints with node ID 8\n.*DETAIL:  The node ID comes from host name "db-8"\. Node ID 7 was in use until "20.*HINT:  If another server may mint with node ID 8, set snowflake\.node_source to setting/s,
		$offset),
	'the log has the node ID of the last start, and that of this one');
$offset = -s $server->logfile;
restart_on('db-8');
is(log_count($server, qr/this server minted with/, $offset), 0, 'and nothing if it is the same');

# Hosts that give none: of what, what was read, and the host
my %message = (
	name => q{the host's name does not give a node ID},
	addresses => q{the host's addresses do not give a node ID},
	large => 'node ID \d+ is too large for the layout');
my %hint = (
	name => 'Give the host a name such as db-3, or set snowflake.node_source',
	addresses =>
	  q{Name the interface whose address no other server has, as in snowflake.node_source = 'address:eth0', or set it to another source},
	large => 'Set snowflake.node_source to another source');
foreach my $case (table(<<'END'))
name | The name is "debian12". It does not end with a number after a hyphen | hostname | debian12
name | The name is "db.example.org1". It does not end with a number after a hyphen | hostname | db.example.org1
name | The name is "". It does not end with a number after a hyphen | hostname |
name | The name is "c3f9b1e7a4d7". Twelve hexadecimal digits | hostname | c3f9b1e7a4d7
name | The name is "ip-10-0-1-17". It contains an address | hostname | ip-10-0-1-17
name | The name is "orders-5d4f8b7c9-45678". Five digits | hostname | orders-5d4f8b7c9-45678
large | The layout has node IDs from 0 to 1023. The node ID comes from the host's name | hostname | db-4711
large | The layout has node IDs from 0 to 1023. | hostname | db-18446744073709551619
large | The layout has node IDs from 0 to 1023. | hostname | db-2147483000 | | 1000
addresses | There are only loopback addresses. | address | x | lo=127.0.0.1,lo=::1,eth0=
addresses | None of them can be used: "eth0" has 169.254.172.2 (link-local), "eth0" has fe80::1 (link-local). | address | x | eth0=169.254.172.2,eth0=fe80::1
addresses | They give different node IDs: "eth0" has 10.0.1.7, "docker0" has 172.17.0.1 (common to many hosts), "eth1" has 10.0.1.8. | address | x | eth0=10.0.1.7,docker0=172.17.0.1,eth1=10.0.1.8
addresses | None of them can be used: "eth9" has 10.0.1.7 (down), "docker0" has 172.17.0.1 (common to many hosts). | address | x | -eth9=10.0.1.7,docker0=172.17.0.1
addresses | None of them can be used: "eth0" has 172.17.0.2 (common to many hosts). | address | x | eth0=172.17.0.2
addresses | None of them can be used: "enp0s3" has 10.0.2.15 (common to many hosts). | address | x | enp0s3=10.0.2.15
addresses | None of them can be used: "virbr0" has 192.168.150.1 (common to many hosts). | address | x | virbr0=192.168.150.1
addresses | None of them can be used: "eth0" has 192.168.122.7 (common to many hosts). | address | x | eth0=192.168.122.7
addresses | None of them can be used: "eth0" has 10.88.0.4 (common to many hosts). | address | x | eth0=10.88.0.4
addresses | No interface "eth7" has an address. | address:eth7 | x | eth0=10.0.1.7
END
{
	my ($what, $detail, @host) = @$case;

	$offset = -s $server->logfile;
	on(@host);
	wait_for_gate($server, 'node ID');
	my $error = error_of($server, 'SELECT snowflake_next()');
	like("$error->{sqlstate} $error->{message}", qr/^55000 $message{$what}$/, "@host: refused");
	like(
		"$error->{detail} $error->{hint}",
		qr/^\Q$detail\E.* \Q$hint{$what}\E/,
		'with what was read, and a hint');
	is( status($server, q{concat_ws('|', node, advice, node_origin)}),
		"$error->{hint}|$error->{detail}",
		'the advice is the hint, and the status has what was read') if $what ne 'large';
}
is( error_of($server, 'SET ROLE app; SELECT snowflake_next()')->{detail},
	'The server log has what was read.',
	'others do not see what was read');
$server->wait_for_log(qr/LOG:  $message{addresses}$/m, $offset);
is(log_count($server, qr/LOG:  $message{addresses}$/, $offset), 1, 'the log has it once');

# An address that comes after the start is found, and from then on it stays: whatever
# becomes of the host, after the crash of a process as well.
be_host('x', 'docker0=172.17.0.1,eth7=10.0.1.9');
wait_for_status($server, 'node = 265');
mints_with(265, 'an address that arrives after the start is found');
be_host('x', 'docker0=172.17.0.1');
query($server, 'SELECT snowflake_accept_clock()');
mints_with(265, 'it is the node ID without it, too');
my $keeper = status($server, 'keeper_pid');
kill 'KILL', $keeper;
wait_for_status($server, "keeper_pid <> $keeper");
mints_with(265, 'and after the crash of a process');
$server->reload;
mints_with(265, 'a reload that changes nothing is no reason to look again');

# A reload that changes the setting is.
be_host('db-3', 'eth7=10.0.1.10');
configure('hostname');
wait_for_status($server, 'node = 3');
configure('address:eth7');

# A standby would mint with what its own host had when it started.
$server->backup('backup');
my $standby = SnowflakeNode->new('standby');
$standby->init_from_backup($server, 'backup', has_streaming => 1);
be_host('x', 'eth7=10.0.1.13');
on_host { $standby->start };
be_host('x', '');
is( status($standby, q{concat_ws(', ', node, node_origin)}),
	'269, address 10.0.1.13 of interface "eth7"',
	'a standby has the address of its start');
$standby->promote;
wait_for_mint($standby);
is(status($standby, 'node'), 269, 'and mints with it when it is promoted');
$standby->stop;
$server->stop;

# A host that there is loses the address that its node ID comes from: it goes on with this node ID.  A
# temporary address is not taken at a start.
SKIP:
{
	my @unshare = qw(unshare --user --map-current-user --keep-caps --net);
	my ($in, $out, $problem) = ('', '', '');
	eval {
		IPC::Run::run([ @unshare, 'sh', '-c', 'ip link add type veth' ],
			'>', \$out, '2>', \$problem);
	}
	  or skip "no network namespace of one's own may be had here: " . ($problem || $@), 2;

	# A shell in the namespace, which runs what it is told
	my $shell = IPC::Run::start([ @unshare, 'sh', '-e' ],
		'<', \$in, '>', \$out, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	my $run_on_host = sub {
		$out = '';
		$in = join '', map { "$_\n" } @_, 'echo done';
		$shell->pump until $out =~ /^done$/m;
	};
	my $start_on_host = sub {
		$run_on_host->('pg_ctl -w -D ' . $server->data_dir . ' -l ' . $server->logfile . ' start');
		$server->_update_pid(1);
		wait_for_mint($server);
	};

	$run_on_host->(
		'ip link set lo up',
		'ip link add eth0 type veth peer name peer0',
		'ip link set peer0 up',
		'ip link set eth0 up',
		'ip addr add 10.0.1.7/24 dev eth0',
		'ip link add docker0 type bridge',
		'ip addr add 172.17.0.1/16 dev docker0',
		'ip link set docker0 up');
	$server->append_conf('postgresql.conf', "snowflake.node_source = 'address'");
	$start_on_host->();
	$run_on_host->('ip addr flush dev eth0');
	extend($server);
	is(query($server, 'SELECT snowflake_node(snowflake_next())'),
		263, 'the node ID stays when its address is gone');

	skip 'there is no IPv6 here', 1 unless -e '/proc/net/if_inet6';
	$server->stop;
	$run_on_host->(
		'echo 2 >/proc/sys/net/ipv6/conf/eth0/use_tempaddr',
		'ip addr add 2001:db8::9/64 dev eth0 mngtmpaddr nodad');
	$start_on_host->();
	is( status($server, q{concat_ws(', ', node, node_origin)}),
		'9, address 2001:db8::9 of interface "eth0"',
		'a temporary address does not count');
	$server->stop;
	$shell->kill_kill;
}

done_testing();
