# The node ID comes from the host's name or address: which number, what the log and the
# status say of it, what is refused and why, and that it stays what it was at the start.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of log_count new_node status wait_for_mint wait_for_status);
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $shim = "$dir/host_shim.so";
my $file = "$dir/host";
PostgreSQL::Test::Utils::system_or_bail($ENV{CC} || 'cc',
	'-shared', '-fPIC', '-O2', '-Wall', '-o', $shim, "$FindBin::RealBin/../shim/host_shim.c");

my $server = new_node(
	'server',
	node_id => undef,
	conf => "wal_level = replica\nrestart_after_crash = on\nmax_wal_senders = 2");
$server->start;
$server->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE ROLE app');
$server->stop;

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

sub configure
{
	my ($source, @conf) = @_;

	$server->append_conf(
		'postgresql.conf', join "\n",
		"snowflake.node_source = '$source'",
		'snowflake.node_id = -1', @conf);
	return;
}

# Start with that source on a host of that name and with those addresses.
sub on
{
	my ($source, $name, $addresses, @conf) = @_;

	$server->stop('fast', fail_ok => 1);
	configure($source, 'snowflake.layout = twitter', @conf);
	be_host($name, $addresses);
	on_host { $server->start };
	return;
}

sub mints_with
{
	my ($node, $name) = @_;

	wait_for_mint($server);
	is($server->safe_psql('postgres', 'SELECT snowflake_node(snowflake_next())'), $node, $name);
	return;
}

# That node ID, found in that
sub finds
{
	my ($node, $origin, @host) = @_;
	my $offset = -s $server->logfile;

	on(@host);
	wait_for_mint($server);
	is( status(
			$server,
			q{concat_ws(', ', node, node_source, node_origin, snowflake_node(snowflake_next()), advice)}
		),
		"$node, " . $host[0] =~ s/:.*//r . ", $origin, $node",
		"$origin: node ID $node");
	is(log_count($server, qr/The node ID comes from \Q$origin\E\.$/, $offset), 1,
		'the log says so');
	return;
}

# No node ID, for that reason; what was read is for those who may read the statistics
sub finds_none
{
	my ($message, $detail, $advice, @host) = @_;
	my $offset = -s $server->logfile;

	on(@host);
	wait_for_status($server, q{gate ~ 'node ID'});
	my $error = error_of($server, 'SELECT snowflake_next()');
	is("$error->{sqlstate} $error->{message}", "55000 $message", $message);
	like($error->{detail}, $detail, 'with what was read');
	like($error->{hint}, $advice, 'and a hint');
	like(status($server, 'advice'), $advice, 'which the status has, too');
	is(status($server, 'node IS NULL'), 't', 'and no node ID');
	return if $message =~ /too large/;
	is(status($server, 'node_origin'), $error->{detail}, 'the status has what was read');
	is(log_count($server, qr/LOG:  \Q$message\E$/, $offset), 1, 'the log has it once');
	is( error_of($server, 'SET ROLE app; SELECT snowflake_next()')->{detail},
		'The server log has what was read.',
		'others do not see it');
	return;
}

# Names
finds(3, 'host name "db-3.example.org"', 'hostname', 'db-3.example.org', '');
finds(7, 'host name "rack2-007"', 'hostname', 'rack2-007', '');
finds(7, 'host name "orders.7"', 'hostname', 'orders.7', '');
finds(8, 'host name "orders_8"', 'hostname', 'orders_8', '');
finds(9, 'host name "rack2.9.example.org"', 'hostname', 'rack2.9.example.org', '');
finds(4, 'host name "db-4.12.example.org"', 'hostname', 'db-4.12.example.org', '');
finds(103, 'host name "db-3", plus snowflake.node_id 100',
	'hostname', 'db-3', '', 'snowflake.node_id = 100');
finds(100, 'host name "db-0", plus snowflake.node_id 100',
	'hostname', 'db-0', '', 'snowflake.node_id = 100');

# Addresses
finds(263, 'address 10.0.1.7 of interface "eth0"',
	'address', 'x', 'lo=127.0.0.1,eth0=10.0.1.7,docker0=172.17.0.1,eth0=2001:db8::9');
finds(263, 'address 10.0.5.7 of interface "eth1"',
	'address', 'x', 'eth0=10.0.1.7,wlan0=,eth1=10.0.5.7');
finds(9, 'address 2001:db8::9 of interface "eth0"',
	'address', 'x', 'lo=::1,eth0=fe80::5,eth0=2001:db8::9');

# not an interface that is down, whose address may be another host's by now
finds(264, 'address 10.0.1.8 of interface "eth1"', 'address', 'x', '-eth0=10.0.1.7,eth1=10.0.1.8');
finds(9, 'address 2001:db8::9 of interface "eth0"',
	'address', 'x', '-eth0=10.0.1.7,-eth0=2001:db8::7,eth0=2001:db8::9');

# nor one that each task of AWS Fargate has
finds(264, 'address 10.0.1.8 of interface "eth1"',
	'address', 'x', 'eth0=169.254.172.2,eth1=10.0.1.8');

# what is named counts, even if it is not the host's own elsewhere
finds(521, 'address 10.0.2.9 of interface "eth1"',
	'address:eth1', 'x', 'eth0=10.0.1.7,eth1=10.0.2.9,eth1:1=10.0.2.100');
finds(1, 'address 172.17.0.1 of interface "docker0"',
	'address:docker0', 'x', 'eth0=10.0.1.7,docker0=172.17.0.1');

# After a recovery from a backup it may be another server's: what is to be set for another one
$server->stop;
append_to_file($server->data_dir . '/recovery.signal', '');
my $offset = -s $server->logfile;
on('hostname', 'db-7', '', q{restore_command = 'false'});
wait_for_mint($server);
like(
	slurp_file($server->logfile, $offset),
	qr/HINT:  If another server used it and may still mint, set snowflake\.node_source to setting and snowflake\.node_id to a number/,
	'a hint names the settings for another node ID');

# After a start that gives another one, the log has both.
$offset = -s $server->logfile;
on('hostname', 'db-8', '');
wait_for_mint($server);
like(
	slurp_file($server->logfile, $offset),
	qr/LOG:  this server minted with node ID 7 before, and now mints with node ID 8\n.*DETAIL:  The node ID comes from host name "db-8"\. Node ID 7 was in use until "20.*HINT:  If another server may mint with node ID 8, set snowflake\.node_source to setting/s,
	'the log has the node ID of the last start, and that of this one');
$offset = -s $server->logfile;
on('hostname', 'db-8', '');
wait_for_mint($server);
is(log_count($server, qr/this server minted with/, $offset), 0, 'and nothing if it is the same');

# Names that give none
my $rename = qr/^Give the host a name such as db-3, or set snowflake\.node_source/;
foreach my $name ('debian12', 'db.example.org1', '7', '', 'db-x2x4', 'ip-0a00011b', 'db-3a.example')
{
	finds_none(
		q{the host's name does not give a node ID},
		qr/^The name is "\Q$name\E"\. It does not end with a number after a hyphen/,
		$rename, 'hostname', $name, '');
}
foreach my $name ('c3f9b1e7a4d7', '123456789012')
{
	finds_none(
		q{the host's name does not give a node ID},
		qr/^The name is "$name"\. Twelve hexadecimal digits/,
		$rename, 'hostname', $name, '');
}
foreach my $name ('ip-10-0-1-17', 'ip-10-0-1-17.ec2.internal', '10.0.1.17')
{
	finds_none(
		q{the host's name does not give a node ID},
		qr/^The name is "\Q$name\E"\. It is made of an address/,
		$rename, 'hostname', $name, '');
}
finds_none(
	q{the host's name does not give a node ID},
	qr/^The name is "orders-5d4f8b7c9-45678"\. Five digits/,
	$rename, 'hostname', 'orders-5d4f8b7c9-45678', '');

my $source = qr/^Set snowflake\.node_source to another source/;
finds_none(
	'node ID 4711 is too large for the layout',
	qr/The node ID comes from the host's name/,
	$source, 'hostname', 'db-4711', '');
finds_none('node ID 2147483647 is too large for the layout',
	qr/name/, $source, 'hostname', 'db-18446744073709551619', '');
finds_none('node ID 1033 is too large for the layout',
	qr/name/, $source, 'hostname', 'db-33', '', 'snowflake.node_id = 1000');
finds_none('node ID 2147483647 is too large for the layout',
	qr/name/, $source, 'hostname', 'db-2147483000', '', 'snowflake.node_id = 1000');

# Addresses that give none
my $name = qr/^Name the interface .* 'address:eth0', or set it to another source/;
finds_none(
	q{the host's addresses do not give a node ID},
	qr/^There is none that is not loopback\.$/,
	$name, 'address', 'x', 'lo=127.0.0.1,lo=::1,eth0=');
finds_none(
	q{the host's addresses do not give a node ID},
	qr/^None of them counts: "eth0" has 169\.254\.172\.2 \(link-local\), "eth0" has fe80::1 \(link-local\)\.$/,
	$name,
	'address',
	'x',
	'eth0=169.254.172.2,eth0=fe80::1');
finds_none(
	q{the host's addresses do not give a node ID},
	qr/^They give different ones: "eth0" has 10\.0\.1\.7, "docker0" has 172\.17\.0\.1 \(common to many hosts\), "eth1" has 10\.0\.1\.8\.$/,
	$name,
	'address',
	'x',
	'eth0=10.0.1.7,docker0=172.17.0.1,eth1=10.0.1.8');
foreach my $common (
	'docker0=172.17.0.1', 'br-1f2e3d4c5b6a=172.18.0.1',
	'eth0=172.17.0.2', 'enp0s3=10.0.2.15',
	'virbr0=192.168.150.1', 'eth0=192.168.122.7',
	'eth0=10.88.0.4')
{
	my ($interface, $address) = split /=/, $common;
	finds_none(
		q{the host's addresses do not give a node ID},
		qr/^None of them counts: "eth9" has 10\.0\.1\.7 \(down\), "\Q$interface\E" has \Q$address\E \(common to many hosts\)\.$/,
		$name,
		'address',
		'x',
		"-eth9=10.0.1.7,$common");
}
finds_none(
	q{the host's addresses do not give a node ID},
	qr/^There is none of an interface "eth7"\.$/,
	$name, 'address:eth7', 'x', 'eth0=10.0.1.7');

# An address that comes after the start is found, and from then on it stays: whatever
# becomes of the host, after the crash of a process as well.
be_host('x', 'docker0=172.17.0.1,eth7=10.0.1.9');
wait_for_status($server, 'node = 265');
mints_with(265, 'an address that arrives after the start is found');
be_host('x', 'docker0=172.17.0.1');
$server->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
mints_with(265, 'it is the node ID without it, too');
my $keeper = status($server, 'keeper_pid');
kill 'TERM', $keeper;
wait_for_status($server, "keeper_pid <> $keeper");
mints_with(265, 'with another keeper');
kill 'KILL', status($server, 'keeper_pid');
$server->poll_query_until('postgres', 'SELECT true');
mints_with(265, 'and after the crash of a process');
is(status($server, 'node_origin'), 'address 10.0.1.9 of interface "eth7"',
	'the origin is the same');
$server->reload;
mints_with(265, 'a reload that changes nothing is no reason to look again');

# A reload that changes the setting is.
be_host('db-3', 'eth7=10.0.1.10');
configure('hostname');
$server->reload;
wait_for_status($server, 'node = 3');
mints_with(3, 'a reload that changes the setting looks at the host');
be_host('db-4', 'eth7=10.0.1.10');
configure('hostname', 'snowflake.node_id = 100');
$server->reload;
wait_for_status($server, 'node = 103');
pass('the number to be added is a setting of its own');
configure('address:eth7');
$server->reload;
wait_for_status($server, 'node = 266');
pass('what was determined for a setting is forgotten with it');
configure('setting', 'snowflake.node_id = 5');
$server->reload;
wait_for_status($server, 'node = 5');
be_host('x', 'eth7=10.0.1.11');
configure('address:eth7');
$server->reload;
wait_for_status($server, 'node = 267');
pass('also with a node ID in between that does not come from the host');

configure('hostname');
$server->reload;
wait_for_status($server, q{gate ~ 'node ID'});
be_host('x', 'eth7=10.0.1.14');
configure('address:eth7');
$server->reload;
wait_for_status($server, 'node = 270');
pass('and with a source in between that gives none');

# A start looks again.
be_host('x', 'eth7=10.0.1.12');
$server->stop;
on_host { $server->start };
mints_with(268, 'a start looks at the host');

foreach my $bad ('address:', 'address:a/b', 'address:' . 'x' x 16, 'addresses')
{
	is(error_of($server, "ALTER SYSTEM SET snowflake.node_source = '$bad'")->{sqlstate},
		'22023', "\"$bad\" is no source");
}

# A standby would mint with what its own host had when it started.
$server->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($server, 'backup', has_streaming => 1);
be_host('x', 'eth7=10.0.1.13');
on_host { $standby->start };
be_host('x', '');
is( status($standby, q{concat_ws(', ', node, node_origin)}),
	'269, address 10.0.1.13 of interface "eth7"',
	'a standby has the address of its start');
$standby->promote;
wait_for_mint($standby);
is($standby->safe_psql('postgres', 'SELECT snowflake_node(snowflake_next())'),
	269, 'and mints with it when it is promoted');
$standby->stop;

$server->stop;
done_testing();
