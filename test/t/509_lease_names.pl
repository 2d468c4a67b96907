# Names that are not resolved, hosts that are silent, and very many records: they hold up
# neither a lease nor the server.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeCoordinator qw(build_resolver_shim hosts kill_members new_etcd wait_for_etcd);
use SnowflakeFleet qw(has_module lessee listing_error use_coordinator);
use SnowflakeTest qw(
  build_shim children error_of finish_statement let_pass mint new_clock new_coordinator
  new_member patience query start_statement start_time status stop_time wait_for_status
  wait_until
);
use HTTP::Tiny;
use IO::Socket::INET;
use MIME::Base64 qw(encode_base64);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# A resolver that takes its time for names that end with ".held"
my $shim = build_resolver_shim() . ' ' . build_shim();
$ENV{RESOLVER_HOLDS} = PostgreSQL::Test::Utils::tempdir() . '/resolver_holds';
my $clock = new_clock('server');
my $missing = 'postgresql://name.missing/postgres';
my $coordinator = new_coordinator(conf => "listen_addresses = '127.0.0.1'\n");
my $user = query($coordinator, 'SELECT current_user');
my $port = $coordinator->port;
my $server = new_member('server', $missing, conf => "snowflake.max_wait = '20s'\n");
my @schemes = ('postgresql', 'etcd', 'zookeeper', 'consul');

sub start
{
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{SNOWFLAKE_CLOCK_FILE} = $clock;
	return $server->start;
}

# From now on names are looked up without an end, until there is one.
sub hold_names
{
	append_to_file($ENV{RESOLVER_HOLDS}, '');
	return;
}

sub release_names
{
	unlink $ENV{RESOLVER_HOLDS} or die "could not remove \"$ENV{RESOLVER_HOLDS}\": $!";
	return;
}

# By how many the name is looked up
sub lookups
{
	my ($name) = @_;

	return scalar(grep { $_ eq $name } split /\n/, slurp_file($ENV{RESOLVER_HOLDS}));
}

sub threads_of
{
	my ($pid) = @_;

	return scalar(() = glob "/proc/$pid/task/*");
}

start();
query($server, 'CREATE EXTENSION snowflake');
wait_for_status($server, q{coordinator = 'unreachable'});
like(status($server, 'advice'),
	qr/name\.missing/, 'a name that is not found is an error, and named');

# While a name is looked up there is no thread but the first one, and a stop waits until the
# resolver has an answer, and no longer.
foreach my $scheme (@schemes)
{
  SKIP:
	{
		skip "there is no module for $scheme", 2 if !has_module($scheme);
		hold_names();
		use_coordinator($server, "$scheme://$scheme.held:1/postgres");
		wait_until('the name is looked up', sub { lookups("$scheme.held") });
		is(threads_of(lessee($server)), 1, "$scheme: a name is looked up without a thread");
		$server->command_ok([ 'pg_ctl', '-D', $server->data_dir, '-m', 'fast', '-W', 'stop' ],
			"$scheme: the server is to stop");
		wait_until('the keeper has ended', sub { !children($server, qr/snowflake keeper/) });
		release_names();
		wait_until('the server has stopped', sub { !-e $server->data_dir . '/postmaster.pid' });
		$server->stop('fast', fail_ok => 1);
		$server->append_conf('postgresql.conf', "snowflake.node_source = '$missing'");
		start();
	}
}
hold_names();
use_coordinator($server, "postgresql://name.held:$port/postgres");
wait_until('the name is looked up', sub { lookups('name.held') });
ok($server->stop('immediate', fail_ok => 1), 'an immediate stop waits for no name');
release_names();

# The time that it takes to look up a name does not count.  Time stands, but for the hour that
# the resolver takes.
start();
hold_names();
use_coordinator($server, "postgresql://$user\@name.held:$port/postgres");
stop_time($clock);
my $session = start_statement($server, 'SELECT snowflake_fleet_create()');
wait_until('the lessee and the session look up the name', sub { lookups('name.held') == 2 });
let_pass($clock, 3_600_000);
release_names();
start_time($clock);
finish_statement($session);
wait_for_status($server, 'lease_until IS NOT NULL');
pass('a resolver that takes an hour is of use');

# A healthy second host
use_coordinator($server, "postgresql://$user\@name.missing:5432,good.here:$port/postgres");
isnt(mint($server), '', 'a name that is not found keeps nobody from the next host');
use_coordinator($server, "postgresql://$user\@good.here:$port,name.missing:5432/postgres");
is(listing_error($server)->{message},
	'', 'nor does the last one that is not found keep anybody from those before');
my $renewals = status($server, 'lease_renewals');
wait_for_status($server, "lease_renewals > $renewals + 1 AND gate = 'open'");
pass('nor from renewals');
hold_names();
use_coordinator($server, "postgresql://$user\@name.held:$port/postgres?hostaddr=127.0.0.1");
is(listing_error($server)->{message}, '', 'a name whose address is in the URL is not looked up');
is(lookups('name.held'), 0, 'by nobody');

# A statement that is canceled ends when the resolver has an answer.
use_coordinator($server, "postgresql://$user\@name.held:$port/postgres");
my $backend = $session->query_safe('SELECT pg_backend_pid()');
start_statement($session, 'SELECT snowflake_fleet()');
wait_until('the name is looked up', sub { lookups('name.held') == 2 });
query($server, "SELECT pg_cancel_backend($backend)");
release_names();
finish_statement($session);
like(
	$session->{stderr},
	qr/canceling statement due to user request/,
	'a statement that is canceled meanwhile ends then');
$session->{stderr} = '';

# In one session, since each has files of its own
my $open_files = sub { scalar(() = glob "/proc/$backend/fd/*") };
my $files = $open_files->();
$session->query_safe('SELECT count(*) FROM snowflake_fleet()') foreach 1 .. 10;
cmp_ok($open_files->(), '<', $files + 10, 'a name that was looked up leaves no file open');
is(threads_of($backend), 1, 'and no thread');
$session->quit;

# The server stops though a coordinator is silent.  Time stands for it, so no deadline ends the
# wait.
my $silent =
  IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1', Proto => 'tcp', Timeout => 180)
  or die "could not listen: $!";
$server->stop('immediate');
foreach my $scheme (@schemes)
{
  SKIP:
	{
		skip "there is no module for $scheme", 1 if !has_module($scheme);
		$server->append_conf('postgresql.conf', "snowflake.node_source = '$missing'");
		start();
		wait_for_status($server, q{coordinator = 'unreachable'});
		stop_time($clock);
		use_coordinator($server, "$scheme://127.0.0.1:" . $silent->sockport . '/fleet');
		my $client = $silent->accept or die "nobody connects: $!";
		local $ENV{PGCTLTIMEOUT} = patience(20);
		my $stopped = $server->stop('fast', fail_ok => 1);
		ok($stopped, "$scheme: the server stops though the coordinator is silent");
		start_time($clock);
		$server->stop('immediate') if !$stopped;
	}
}

# Very many records: those of a fleet with 60,000 servers
SKIP:
{
	skip 'etcd is not installed', 4
	  if !has_module('etcd') || !grep { -x "$_/etcd" } split /:/, $ENV{PATH};
	my $etcd = new_etcd('many', 1);

	wait_for_etcd($etcd);
	my $hosts = hosts($etcd);

	# that one is an hour ahead, to which a floor would go
	$server = new_member('of_many', "etcd://name.missing:2379,$hosts/many",
		conf => "snowflake.layout = 'time:41 node:16 sequence:6 epoch:2010-11-04T01:42:54.657Z'\n"
		  . "snowflake.max_wait = '20s'\n");
	start();
	query($server, 'CREATE EXTENSION snowflake');
	is(error_of($server, 'SELECT snowflake_fleet_create()')->{message},
		'', 'a name that is not found keeps nobody from the next host of an etcd');
	wait_for_status($server, 'lease_until IS NOT NULL');
	use_coordinator($server, "etcd://$hosts/many");
	my $value = encode_base64(
		sprintf(
			'{"holder": "h:1", "granted": 1, "from": 1, "until": 1999999999999, "token": "%s", "nonce": "%s"}',
			'a' x 32, 'b' x 32),
		'');
	my $http = HTTP::Tiny->new(timeout => 60);

	for (my $first = 1; $first < 60_000; $first += 100)
	{
		my $puts = join ',',
		  map { sprintf '{"request_put": {"key": "%s", "value": "%s"}}', $_, $value }
		  map { encode_base64("many/node/$_", '') } $first .. $first + 99;
		my $answer =
		  $http->post("http://$hosts/v3/kv/txn", { content => "{\"success\": [$puts]}" });
		die $answer->{content} if !$answer->{success};
	}
	$server->stop('immediate');
	my $offset = -s $server->logfile;
	my $began = time;
	start();
	wait_for_status($server, q{lease_until IS NOT NULL});
	my $took = time - $began;
	cmp_ok($took, '<', patience(120),
		sprintf 'with 60,000 records a node ID is leased, in %.1f s, with a lease of 10 s', $took);

	# 60001 or 0, unless all this took longer than leases of its own
	like(
		slurp_file($server->logfile, $offset),
		qr/leased snowflake node ID (?:0|6\d{4}) from/,
		'one that is free');
	is( query(
			$server,
			'SELECT count(node) - count(DISTINCT node), count(node) >= 60000 FROM snowflake_fleet()'
		),
		'0|t',
		'each record is listed, and once, though it takes many answers');
	$server->stop('immediate');
	kill_members($etcd);
}

$coordinator->stop;
done_testing();
