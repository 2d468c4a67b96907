# Names that are not resolved, answers that are none, and very many records: they
# hold up neither a lease nor the server.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeCoordinator;
use SnowflakeTest qw(
  build_shim children error_of let_pass new_clock new_node patience start_time status stop_time
  wait_for_status wait_until
);
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# A resolver that takes its time for names that end with ".held"
my $shim = PostgreSQL::Test::Utils::tempdir() . '/resolver_shim.so';
system_or_bail($ENV{CC} || 'cc',
	'-shared', '-fPIC', '-O2', '-Wall', '-o', $shim,
	"$FindBin::RealBin/../shim/resolver_shim.c", '-ldl');

$ENV{RESOLVER_HOLDS} = PostgreSQL::Test::Utils::tempdir() . '/resolver_holds';
my $clock = new_clock('server');

my $coordinator = new_node(
	'coordinator',
	node_id => undef,
	preload => 0,
	conf => "listen_addresses = '127.0.0.1'\n");
my $server = new_node(
	'server',
	node_id => undef,
	conf =>
	  "snowflake.lease = '10s'\nsnowflake.max_wait = '20s'\nsnowflake.node_source = 'postgresql://name.missing/postgres'\n"
);
my $user;

sub start
{
	local $ENV{LD_PRELOAD} = $shim . ' ' . build_shim();
	local $ENV{SNOWFLAKE_CLOCK_FILE} = $clock;
	return $server->start;
}

sub set_source
{
	my ($source, @further) = @_;

	$server->append_conf('postgresql.conf',
		join("\n", "snowflake.node_source = '$source'", @further));
	$server->reload;
	wait_until('the setting is in force',
		sub { $server->safe_psql('postgres', 'SHOW snowflake.node_source') eq $source });
	return;
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

my $pkglibdir = `$ENV{PG_CONFIG} --pkglibdir`;
chomp $pkglibdir;

$coordinator->start;
$user = $coordinator->safe_psql('postgres', 'SELECT current_user');
my $port = $coordinator->port;
start();
$server->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_status($server, q{coordinator = 'unreachable'});
like(status($server, 'advice'),
	qr/name\.missing/, 'a name that is not found is an error, and named');

# While a name is looked up there is no thread but the first one, and a stop waits until the
# resolver has an answer, and no longer.
foreach my $scheme ('postgresql', 'etcd', 'zookeeper', 'consul')
{
  SKIP:
	{
		skip "there is no module for $scheme", 2 if !-e "$pkglibdir/snowflake_$scheme.so";
		hold_names();
		set_source("$scheme://$scheme.held:1/postgres");
		wait_until('the name is looked up', sub { lookups("$scheme.held") });
		my ($lessee) = children($server, qr/snowflake lessee/);
		is(threads_of($lessee), 1, "$scheme: a name is looked up without a thread");
		$server->command_ok([ 'pg_ctl', '-D', $server->data_dir, '-m', 'fast', '-W', 'stop' ],
			"$scheme: the server is to stop");
		wait_until('the keeper has ended', sub { !children($server, qr/snowflake keeper/) });
		release_names();
		wait_until('the server has stopped', sub { !-e $server->data_dir . '/postmaster.pid' });
		$server->stop('fast', fail_ok => 1);
		$server->append_conf('postgresql.conf',
			"snowflake.node_source = 'postgresql://name.missing/postgres'");
		start();
	}
}
hold_names();
set_source("postgresql://name.held:$port/postgres");
wait_until('the name is looked up', sub { lookups('name.held') });
ok($server->stop('immediate', fail_ok => 1), 'an immediate stop waits for no name');
release_names();

# The time that it takes to look up a name does not count.  Time stands, but for the hour that
# the resolver takes.
start();
$server->safe_psql('postgres', 'SELECT 1');
hold_names();
set_source("postgresql://$user\@name.held:$port/postgres");
my $session = $server->background_psql('postgres', on_error_stop => 0);
stop_time($clock);
$session->query_until(qr/go/, "\\echo go\nSELECT snowflake_fleet_create();\n");
wait_until('the lessee and the session look up the name', sub { lookups('name.held') == 2 });
let_pass($clock, 3_600_000);
release_names();
start_time($clock);
$session->quit;
wait_for_status($server, 'lease_until IS NOT NULL');
pass('a resolver that takes an hour is of use');

# A healthy second host
set_source("postgresql://$user\@name.missing:5432,good.here:$port/postgres");
isnt($server->safe_psql('postgres', 'SELECT snowflake_next()'),
	'', 'a name that is not found keeps nobody from the next host');
set_source("postgresql://$user\@good.here:$port,name.missing:5432/postgres");
is(error_of($server, 'SELECT count(*) FROM snowflake_fleet()')->{message},
	'', 'nor does the last one that is not found keep anybody from those before');
my $renewals = status($server, 'lease_renewals');
wait_for_status($server, "lease_renewals > $renewals + 1 AND gate = 'open'");
pass('nor from renewals');
hold_names();
set_source("postgresql://$user\@name.held:$port/postgres?hostaddr=127.0.0.1");
is(error_of($server, 'SELECT count(*) FROM snowflake_fleet()')->{message},
	'', 'a name whose address is in the URL is not looked up');
is(lookups('name.held'), 0, 'by nobody');

# A statement that is canceled ends when the resolver has an answer.
set_source("postgresql://$user\@name.held:$port/postgres");
$session = $server->background_psql('postgres');
my $backend = $session->query_safe('SELECT pg_backend_pid()');
$session->query_until(qr/go/,
	"\\echo go\nDO 'BEGIN PERFORM snowflake_fleet(); EXCEPTION WHEN query_canceled THEN PERFORM set_config(''test.ended'', ''yes'', false); END';\n"
);
wait_until('the name is looked up', sub { lookups('name.held') == 2 });
$server->safe_psql('postgres', "SELECT pg_cancel_backend($backend)");
release_names();
is($session->query_safe(q{SELECT current_setting('test.ended')}),
	'yes', 'a statement that is canceled meanwhile ends then');

# In one session, since each has files of its own
sub open_files
{
	return scalar(() = glob "/proc/$backend/fd/*");
}

my $files = open_files();
$session->query_safe('SELECT count(*) FROM snowflake_fleet()') foreach 1 .. 10;
cmp_ok(open_files(), '<', $files + 10, 'a name that was looked up leaves no file open');
is(threads_of($backend), 1, 'and no thread');
$session->quit;
set_source("postgresql://$user\@good.here:$port/postgres");

# A file with a password that others can read is said to be that, not to be missing.  Its name
# may have any bytes, which the status shows in databases of any encoding.
my $passfile = PostgreSQL::Test::Utils::tempdir() . '/passfile_%C3%B4';
my $passfile_path = $passfile =~ s/%(..)/chr hex $1/ger;
append_to_file($passfile_path, "*:*:*:*:secret\n");
chmod 0644, $passfile_path;
my $error = error_of($server, 'SELECT * FROM snowflake_fleet()');
is($error->{sqlstate}, '', 'without a file for passwords it works');
set_source("postgresql://$user\@good.here:$port/postgres?passfile=$passfile");
$error = error_of($server, 'SELECT * FROM snowflake_fleet()');
is($error->{sqlstate}, 'F0000', 'a file for passwords that others can read is refused');
wait_for_status($server, q{advice ~ 'has group or world access'});
like(
	status($server, 'advice'),
	qr{/passfile_\?\?" has group or world access},
	'and the advice says so');
my $unprivileged = $server->safe_psql('postgres',
	q{CREATE ROLE visitor; SET ROLE visitor; SELECT advice FROM snowflake_status});
unlike($unprivileged, qr/passfile/, 'but not to everybody');

# No colon before an "@" gets in, however it is written.
foreach my $bad ('postgresql://u%3Ap@h/d', 'zookeeper://u%3ap@h/d', 'zookeeper://u:p@h/d')
{
	$error = error_of($server, "ALTER SYSTEM SET snowflake.node_source = '$bad'");
	like(
		$error->{detail},
		qr/^The URL has a password/,
		'a password in a URL is refused: ' . ($bad =~ s/p@/...@/r));
}

# What answers is no etcd: it says so, and does not take the memory of the machine.
my $listener = IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1', Proto => 'tcp')
  or die "could not listen: $!";
my $content = PostgreSQL::Test::Utils::tempdir() . '/content';
append_to_file($content, '');
my $false = fork() // die "could not fork: $!";
if ($false == 0)
{
	local $SIG{PIPE} = 'IGNORE';
	while (my $client = $listener->accept)
	{
		my $request = '';

		$request .= <$client> // last while $request !~ /\r\n\r\n\z/;
		my $body = slurp_file($content);
		$body = '[' . ('{},' x 20_000_000) . '{}]' if $body eq 'many';
		$body = ' ' x (65 * 1024 * 1024) if $body eq 'long';
		print $client "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
		  . length($body)
		  . "\r\nConnection: close\r\n\r\n", $body;
		close $client;
	}
	POSIX::_exit(0);
}

END
{
	my $status = $?;

	if ($false)
	{
		kill 'KILL', $false;
		waitpid $false, 0;
	}
	$? = $status;
}
my $false_hosts = '127.0.0.1:' . $listener->sockport;
my $has_etcd = -e "$pkglibdir/snowflake_etcd.so";
SKIP:
{
	skip 'there is no module for etcd', 14 if !$has_etcd;
	set_source("etcd://$false_hosts/fleet", "snowflake.lease = '60s'");
	foreach my $answer (
		[ '[]', qr/its answer is not that of an etcd server/ ],
		[ '{}', qr/its answer is not that of an etcd server/ ],
		[ '{"header": "\u0000"}', qr/its answer cannot be parsed/ ],
		[ 'hello', qr/its answer is not that of an etcd server/ ])
	{
		my ($text, $regexp) = @$answer;

		unlink $content;
		append_to_file($content, $text);
		$error = error_of($server, 'SELECT * FROM snowflake_fleet()');
		like($error->{message}, $regexp, "an answer that is none: $text");
	}
	set_source('etcd://[::1]/fleet');
	like(error_of($server, 'SELECT * FROM snowflake_fleet()')->{message},
		qr/\b2379\b/, 'an address of IPv6 has the port that others have');
	set_source("consul://$false_hosts/fleet");
	foreach my $text ('[]', 'null', '"ok"', '[1]', '[{}]', '{}', 'hello', '[{"Key": "fle')
	{
		append_to_file("$content.new", $text);
		rename "$content.new", $content or die "could not rename: $!";
		like(
			error_of($server, 'SELECT snowflake_fleet_create()')->{message},
			qr/its answer is not that of a Consul server/,
			"nor is this a store without a fleet: $text");
	}
	set_source("etcd://$false_hosts/fleet");
	unlink $content;
	append_to_file($content, 'long');
	like(
		error_of($server, 'SELECT * FROM snowflake_fleet()')->{message},
		qr/^could not use the coordinator: (?!its answer)/,
		'an answer of more than 64 MB is not taken to its end');
	unlink $content;
	append_to_file($content, 'many');
	my $began = time;
	my $sql =
	  q{DO $$ BEGIN PERFORM snowflake_fleet(); EXCEPTION WHEN connection_failure THEN RAISE NOTICE '%', sqlerrm; END $$;
		SELECT pg_read_file('/proc/self/status') ~ 'VmHWM'; SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\s+(\d+)')::int};
	my ($stdout, $stderr);
	$server->psql('postgres', $sql, stdout => \$stdout, stderr => \$stderr);
	like(
		$stderr,
		qr/its answer has more elements than a fleet can have/,
		'an answer of very many elements is refused');
	cmp_ok((split /\n/, $stdout)[-1],
		'<', 1_000_000,
		'before it has taken the memory (in kB: ' . (split /\n/, $stdout)[-1] . ')');
	note(sprintf 'after %.1f s', time - $began);
}

# The server stops though a coordinator is silent.  Time stands for it, so no deadline ends the
# wait.
my $silent =
  IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1', Proto => 'tcp', Timeout => 180)
  or die "could not listen: $!";
my $nobody = 'postgresql://127.0.0.1:1/nobody';

$server->stop('immediate');
foreach my $scheme ('postgresql', 'etcd', 'zookeeper', 'consul')
{

  SKIP:
	{
		skip "there is no module for $scheme", 1 if !-e "$pkglibdir/snowflake_$scheme.so";
		$server->append_conf('postgresql.conf', "snowflake.node_source = '$nobody'");
		start();
		wait_for_status($server, q{coordinator = 'unreachable'});
		stop_time($clock);
		set_source("$scheme://127.0.0.1:" . $silent->sockport . '/fleet');
		my $client = $silent->accept or die "nobody connects: $!";
		my $stopped;
		{
			local $ENV{PGCTLTIMEOUT} = patience(20);
			$stopped = $server->stop('fast', fail_ok => 1);
		}
		ok($stopped, "$scheme: the server stops though the coordinator is silent");
		start_time($clock);
		$server->stop('immediate') if !$stopped;
	}
}

# Very many records: those of a fleet with 60,000 servers
SKIP:
{
	skip 'etcd is not installed', 4 if !$has_etcd || !grep { -x "$_/etcd" } split /:/, $ENV{PATH};
	my $etcd = SnowflakeCoordinator::new_etcd('many', 1);

	SnowflakeCoordinator::wait_for_etcd($etcd);
	my $hosts = SnowflakeCoordinator::hosts($etcd);

	# that one is an hour ahead, to which a floor would go
	$server = new_node(
		'of_many',
		node_id => undef,
		conf => "snowflake.layout = 'time:41 node:16 sequence:6 epoch:2010-11-04T01:42:54.657Z'\n"
		  . "snowflake.node_source = 'etcd://name.missing:2379,$hosts/many'\n"
		  . "snowflake.lease = '10s'\nsnowflake.max_wait = '20s'\n");
	start();
	$server->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	is(error_of($server, 'SELECT snowflake_fleet_create()')->{message},
		'', 'a name that is not found keeps nobody from the next host of an etcd');
	wait_for_status($server, 'lease_until IS NOT NULL');
	set_source("etcd://$hosts/many");
	my $template = $server->safe_psql(
		'postgres',
		q{SELECT format('{"holder": "h:1", "granted": 1, "from": 1, "until": %s, "token": "%s", "nonce": "%s"}',
		1999999999999, repeat('a', 32), repeat('b', 32))});
	my $http = HTTP::Tiny->new(timeout => 60);
	my $b64 = sub { require MIME::Base64; return MIME::Base64::encode_base64($_[0], '') };
	my $value = $b64->($template);
	for (my $first = 1; $first < 60_000; $first += 100)
	{
		my $puts = join ',', map {
			sprintf '{"request_put": {"key": "%s", "value": "%s"}}', $b64->("many/node/$_"), $value
		} $first .. $first + 99;
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
	is( $server->safe_psql(
			'postgres',
			'SELECT count(node) - count(DISTINCT node), count(node) >= 60000 FROM snowflake_fleet()'
		),
		'0|t',
		'each record is listed, and once, though it takes many answers');
	SnowflakeCoordinator::kill_members($etcd);
}

$server->stop('immediate');
$coordinator->stop;
done_testing();
