# The node ID comes from the host's name or address: which number, what the log and the
# status say of it, and what if there is none or it is too large.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of log_count new_node status wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my $shim = PostgreSQL::Test::Utils::tempdir() . '/host_shim.so';
PostgreSQL::Test::Utils::system_or_bail($ENV{CC} || 'cc',
	'-shared', '-fPIC', '-O2', '-Wall', '-o', $shim, "$FindBin::RealBin/../shim/host_shim.c");

my $server = new_node('server', node_id => undef, conf => 'wal_level = replica');
$server->start;
$server->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$server->stop;

# Start on a host of that name and with those addresses.
sub on
{
	my ($source, $name, $addresses, @conf) = @_;

	$server->stop('fast', fail_ok => 1);
	$server->append_conf(
		'postgresql.conf', join "\n",
		"snowflake.node_source = $source",
		'snowflake.node_id = -1',
		'snowflake.layout = twitter', @conf);
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{SNOWFLAKE_HOST_NAME} = $name;
	local $ENV{SNOWFLAKE_HOST_ADDRESSES} = $addresses;
	$server->start;
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
		"$node, $host[0], $origin, $node",
		"$origin: node ID $node");
	is(log_count($server, qr/The node ID comes from \Q$origin\E\.$/, $offset), 1,
		'the log says so');
	return;
}

# No node ID, for that reason
sub finds_none
{
	my ($message, $advice, @host) = @_;

	on(@host);
	$server->poll_query_until('postgres', q{SELECT gate ~ 'node ID' FROM snowflake_status})
	  or die 'gate is not closed';
	my $error = error_of($server, 'SELECT snowflake_next()');
	is("$error->{sqlstate} $error->{message}", "55000 $message", $message);
	like($error->{hint}, $advice, 'with a hint');
	like(status($server, 'advice'), $advice, 'which the status has, too');
	is(status($server, 'node IS NULL'), 't', 'and no node ID');
	return;
}

finds(3, 'host name "db-3.example.org"', 'hostname', 'db-3.example.org', '');
finds(17, 'host name "db17"', 'hostname', 'db17', '');
finds(7, 'host name "rack2-007"', 'hostname', 'rack2-007', '');
finds(103, 'host name "db-3", plus snowflake.node_id 100',
	'hostname', 'db-3', '', 'snowflake.node_id = 100');
finds(100, 'host name "db-0", plus snowflake.node_id 100',
	'hostname', 'db-0', '', 'snowflake.node_id = 100');
finds(263, 'address 10.0.1.7', 'address', 'x', '127.0.0.1,10.0.1.7,10.0.1.8');
finds(264, 'address 10.0.1.8', 'address', 'x', '2001:db8::9,10.0.1.8');
finds(9, 'address 2001:db8::9', 'address', 'x', '::1,fe80::5,2001:db8::9');

# nor that of an interface that is down, which may be another host's by now
finds(264, 'address 10.0.1.8', 'address', 'x', '-10.0.1.7,-,10.0.1.8');
finds(9, 'address 2001:db8::9', 'address', 'x', '-10.0.1.7,-2001:db8::7,2001:db8::9');

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

my $source = qr/^Set snowflake\.node_source to another source/;
finds_none(
	q{the host's name does not end with a number: host name "db.example.org1"},
	qr/^Give the host a name such as db-3, or set snowflake\.node_source/,
	'hostname', 'db.example.org1', '');
finds_none(
	q{the host's name does not end with a number: host name ""},
	qr/^Give the host a name/,
	'hostname', '', '');
finds_none('node ID 4711 is too large for the layout', $source, 'hostname', 'db-4711', '');
finds_none('node ID 2147483647 is too large for the layout',
	$source, 'hostname', 'db-18446744073709551619', '');
finds_none('node ID 1033 is too large for the layout',
	$source, 'hostname', 'db-33', '', 'snowflake.node_id = 1000');
finds_none('node ID 2147483647 is too large for the layout',
	$source, 'hostname', 'db-2147483000', '', 'snowflake.node_id = 1000');
finds_none('the host has no address that is not loopback',
	$source, 'address', 'x', '127.0.0.1,::1,fe80::1');
finds_none('the host has no address that is not loopback', $source, 'address', 'x', '');

$server->stop;
done_testing();
