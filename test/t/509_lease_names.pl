# Names that are not resolved, and hosts that are silent: they hold up neither a lease nor the
# server.
# long

use SnowflakeCoordinator;
use SnowflakeFleet;
use SnowflakeTest;
use IO::Socket::INET;

# A resolver: names that end with ".held" take their time, ".missing" is not found, ".here" is this machine.
my $shim = join ' ', map { build_shim($_, '-ldl') } 'resolver_shim', 'clock_shim';
$ENV{RESOLVER_HOLDS} = PostgreSQL::Test::Utils::tempdir() . '/resolver_holds';
my $clock = new_clock('server');
my $missing = 'postgresql://name.missing/postgres';
my $coordinator = new_coordinator(conf => "listen_addresses = '127.0.0.1'\n");
my $user = query($coordinator, 'SELECT current_user');
my $port = $coordinator->port;
my $server = new_member('server', $missing, conf => "snowflake.max_wait = '20s'\n");

# Consul is asked as etcd is.
my @schemes = grep { has_module($_) } 'postgresql', 'etcd', 'zookeeper';

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

start();
query($server, 'CREATE EXTENSION snowflake');
wait_for_status($server, q{coordinator = 'unreachable'});
like(status($server, 'advice'),
	qr/name\.missing/, 'a name that is not found is an error, and named');

# A stop waits until the resolver has an answer, and no longer.
foreach my $scheme (@schemes)
{
	hold_names();
	use_coordinator($server, "$scheme://$scheme.held:1/postgres");
	wait_until('the name is looked up', sub { lookups("$scheme.held") });
	$server->command_ok([ 'pg_ctl', '-D', $server->data_dir, '-m', 'fast', '-W', 'stop' ],
		"$scheme: the server is to stop");
	wait_until('the keeper has ended', sub { !children($server, qr/snowflake keeper/) });
	release_names();
	wait_until('the server has stopped', sub { !-e $server->data_dir . '/postmaster.pid' });
	$server->stop('fast', fail_ok => 1);
	$server->append_conf('postgresql.conf', "snowflake.node_source = '$missing'");
	start();
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
$session->quit;

# The server stops though a coordinator is silent.  Time stands for it, so no deadline ends the
# wait.
my $silent =
  IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1', Proto => 'tcp', Timeout => 180)
  or die "could not listen: $!";
$server->stop('immediate');
foreach my $scheme (@schemes)
{
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

done_testing();
