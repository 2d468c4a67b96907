# What can be wrong between a server and its coordinator: each has its own message,
# no password gets into a log, an error or a setting, and an answer that is lost
# neither loses a lease nor doubles it.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeCoordinator;
use SnowflakeTest qw(
  coordinator_url error_at_once error_of log_count new_member new_node patience status
  wait_for_mint wait_for_status wait_until
);
use IO::Select;
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $secret = 'xK9-hush-3q';
my $coordinator = new_node(
	'coordinator',
	node_id => undef,
	preload => 0,
	init => { allows_streaming => 1 },
	conf => "listen_addresses = '127.0.0.1'\npassword_encryption = 'scram-sha-256'");
$coordinator->start;
my $url = coordinator_url($coordinator);
my $port = $coordinator->port;
my $passfile = PostgreSQL::Test::Utils::tempdir() . '/passfile';
my $server = new_member('server', $coordinator);

$server->start;
$server->safe_psql('postgres', 'CREATE EXTENSION snowflake');

sub records
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

# Take another value for a setting, and wait for what the status says.
sub set_to
{
	my ($name, $value) = @_;

	$server->safe_psql('postgres', "ALTER SYSTEM SET snowflake.$name = '$value'");
	$server->reload;
	return;
}

# The log gets a line.
sub logs
{
	my ($regexp, $what, $action) = @_;
	my $offset = -s $server->logfile;

	$action->();
	ok( eval {
			wait_until($what, sub { log_count($server, $regexp, $offset) > 0 });
			1;
		},
		$what);
	return;
}

# URLs
foreach my $bad ('postgresql', 'mysql://host/db', 'host=127.0.0.1', '://')
{
	my $error = error_of($server, "ALTER SYSTEM SET snowflake.node_source = '$bad'");
	is( "$error->{sqlstate} $error->{message}",
		'22023 invalid value for parameter "snowflake.node_source"',
		"\"$bad\" is no source");
}
foreach my $bad (
	"fleet:$secret\@127.0.0.1/postgres", "fleet:$secret?\@127.0.0.1/postgres",
	"fleet%3A$secret\@127.0.0.1/postgres", "127.0.0.1/postgres?password=$secret",
	"127.0.0.1/postgres?p%61ssword=$secret", "127.0.0.1/postgres?sslpassword=$secret",
	"127.0.0.1/postgres?scram_client_key=$secret", "127.0.0.1/postgres?scram_server_key=$secret")
{
	my $error = error_of($server, "ALTER SYSTEM SET snowflake.node_source = 'postgresql://$bad'");
	like(
		$error->{detail},
		qr/^The URL has a password, which others could read here\. .* passfile\.$/,
		'a URL with a password is refused');
	unlike(join(' ', %$error), qr/\Q$secret/, 'and not repeated');
}

# Node IDs that may be leased: ranges the wrong way round, numbers that are too large, and
# one too many.
foreach my $bad ('9-5', '4294967296', '0-4294967296', join(',', map { 2 * $_ } 0 .. 32))
{
	is( error_of($server, "ALTER SYSTEM SET snowflake.lease_nodes = '$bad'")->{detail},
		'It must be a list of up to 32 node IDs or ranges of node IDs.',
		"\"$bad\" is no list of node IDs");
}

# In the configuration file, which somebody else wrote
my $offset = -s $server->logfile;
$server->append_conf('postgresql.conf',
	"snowflake.node_source = 'postgresql://fleet:$secret\@127.0.0.1/postgres'");
$server->reload;
wait_until('reload',
	sub { log_count($server, qr/invalid value for parameter "snowflake.node_source"/, $offset) });
is(log_count($server, qr/\Q$secret/, $offset), 0, 'nor in the log, if it was in the file');
$server->append_conf('postgresql.conf', "snowflake.node_source = '$url'");
$server->reload;

# Connections
logs(
	qr/could not use the coordinator: .*Connection refused/,
	'a refused connection',
	sub { set_to('node_source', 'postgresql://127.0.0.1:1/postgres') });
wait_for_status($server, q{coordinator = 'unreachable'});
my ($since) = status($server, 'advice') =~ /unusable since "(.*?)"/;
logs(
	qr/could not use the coordinator: .*invalid connection option|could not use the coordinator: .*invalid URI query parameter/,
	'a parameter that there is not',
	sub { set_to('node_source', 'postgresql://127.0.0.1/postgres?flavour=vanilla') });
logs(
	qr/could not use the coordinator: .*database "n.*where" does not exist/,
	'a database that there is not',
	sub { set_to('node_source', $url =~ s/postgres$/n%C3%B4where/r) });

# when it has failed once more, the advice is that of the last failure, in any encoding
my $errors = status($server, 'lease_errors');
wait_for_status($server, "lease_errors > $errors");
like(
	status($server, 'advice'),
	qr/unusable since "\Q$since\E": .*database "n\?\?where" does not exist/,
	'the advice has the error of now, and since when there has been one');
like(
	error_of($server, 'SELECT * FROM snowflake_fleet()')->{message},
	qr/database "n\?\?where" does not exist/,
	'and so has an administrator, without bytes of another encoding');

# Passwords are in a file.
records("CREATE ROLE fleet LOGIN PASSWORD '$secret'");
open my $hba, '>', $coordinator->data_dir . '/pg_hba.conf' or die "could not write: $!";
print $hba
  "local all,replication all trust\nhost all fleet 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
close $hba;
$coordinator->reload;
my $with_role = "postgresql://fleet\@127.0.0.1:$port/postgres?passfile=$passfile";
logs(qr/could not use the coordinator: .*no password supplied/,
	'no password', sub { set_to('node_source', $with_role) });

sub write_passfile
{
	my ($password) = @_;

	open my $fh, '>', $passfile or die "could not write: $!";
	print $fh "*:*:*:fleet:$password\n";
	close $fh;
	chmod 0600, $passfile or die "could not change the mode: $!";
	return;
}
logs(
	qr/could not use the coordinator: .*password authentication failed/,
	'a wrong password',
	sub { write_passfile("$secret-not") });

# Rights
logs(qr/relation "snowflake_fleet.records" does not exist/,
	'no table', sub { write_passfile($secret) });
is(error_of($server, 'SELECT snowflake_fleet_create()')->{sqlstate},
	'42501', 'a role that may not create tables cannot found a fleet without the script');
logs(
	qr/permission denied for schema snowflake_fleet/,
	'a schema that may not be used',
	sub {
		$coordinator->safe_psql('postgres',
			slurp_file("$FindBin::RealBin/../../sql/snowflake_fleet.sql"));
	});
logs(
	qr/permission denied for table records/,
	'nor the table',
	sub { records('GRANT USAGE ON SCHEMA snowflake_fleet TO fleet') });
records('GRANT SELECT, INSERT, UPDATE ON snowflake_fleet.records TO fleet');
$server->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
wait_for_mint($server);
is(status($server, 'node'), '0', 'with the script and what it says a fleet is founded, and grants');

# Records that somebody has tampered with.  The server needs another node ID, and
# passes by those.
my @damaged = (
	'no JSON', '[1]', '{}', '{"holder": 1}', 'null', '"x"',
	'[' x 1000, 'x' x 100_000, "\xff\xfe", '');
my $good = records(q{SELECT value FROM snowflake_fleet.records WHERE key = 'node/0'});
foreach my $change (
	[ until => '-5' ],
	[ until => '1' ],
	[ until => '-1e30' ],
	[ until => '9223372036854775807' ],
	[ until => '1e9999' ],
	[ until => '1.5' ],
	[ until => '"7"' ],
	[ until => 'null' ],
	[ from => '1.5' ],
	[ from => '99999999999999999999' ],
	[ holder => '"\\u0000"' ],
	[ holder => '"\\uffff"' ],
	[ token => '"' . 'a' x 33 . '"' ])
{
	my ($name, $value) = @$change;

	push @damaged, $good =~ s/"$name": (?:"[^"]*"|-?\d+)/"$name": $value/r;
}

# What JSON may have, and a record not: otherwise it would be that of a lease for months.
my $lasting = $good =~ s/"until": (\d+)/'"until": ' . ($1 + 10_000_000_000)/er;
push @damaged, "\n$lasting", $lasting . ' ' x 10_000,
  map { $lasting =~ s/"holder": "/"holder": "$_/r } "\xc3\xa4", "\xff", "\x7f", '\\n';

records('CREATE DATABASE raw ENCODING SQL_ASCII LC_COLLATE "C" LC_CTYPE "C" TEMPLATE template0');

# the script may be run again
$coordinator->safe_psql('raw', slurp_file("$FindBin::RealBin/../../sql/snowflake_fleet.sql"))
  foreach 1 .. 2;
set_to('node_source', $url =~ s/postgres$/raw/r);
wait_for_status($server, q{coordinator = 'grants nothing'});
$server->safe_psql('postgres', 'SELECT snowflake_fleet_recover(now())');
wait_for_status($server, q{coordinator = 'reachable'});

# written, and so found, from the highest node ID on
foreach my $i (reverse 0 .. $#damaged)
{
	my $hex = unpack 'H*', $damaged[$i];

	$coordinator->safe_psql('raw',
		"INSERT INTO snowflake_fleet.records VALUES ('node/$i', convert_from('\\x$hex', 'SQL_ASCII')) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
	);
}
$coordinator->safe_psql('raw',
	q{INSERT INTO snowflake_fleet.records VALUES ('node/x', 'x'), ('node/99999999999', 'x'), ('node/-1', 'x'), ('other', 'x'), ('node/5000', 'x'), ('node/5x', 'x'), ('node/05', 'x')}
);
wait_for_status($server, 'node = ' . scalar(@damaged));
pass('the next node ID after all damaged records is leased');
is( $server->safe_psql(
		'postgres',
		q{SELECT count(*) FROM snowflake_fleet() WHERE state = 'damaged' AND node < 1024}),
	scalar(@damaged),
	'which are listed as such');

# They are mended, also where what is found first under the name "=" is something else.
$coordinator->safe_psql(
	'raw', q{
	CREATE FUNCTION public.never(text, text) RETURNS boolean LANGUAGE sql RETURN false;
	CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.never);
	ALTER DATABASE raw SET search_path = public, pg_catalog});
is($coordinator->safe_psql('raw', q{SELECT 'x'::text = 'x'}),
	'f', 'a database with an operator of its own');
my $leases = status($server, 'leases');
$server->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
is( $server->safe_psql(
		'postgres', q{SELECT count(*) FROM snowflake_fleet() WHERE state = 'damaged'}),
	'0',
	'and mended by snowflake_fleet_recover()');
$coordinator->safe_psql('raw', 'ALTER DATABASE raw RESET search_path');

# The one that the log has told of is damaged again, when the server has seen that none was.
my $damaged = qr/the record of snowflake node ID (\d+) at its coordinator is damaged/;
my ($again) = reverse slurp_file($server->logfile) =~ /$damaged/g;
wait_for_status($server, "leases > $leases");
$coordinator->safe_psql('raw',
	"UPDATE snowflake_fleet.records SET value = 'x' WHERE key = 'node/$again'");
$offset = -s $server->logfile;
$leases = status($server, 'leases');
set_to('lease_nodes', "$again, 100-200");
wait_for_status($server, "leases > $leases");
is(log_count($server, $damaged, $offset), 1, 'a record that is damaged again is told of again');
is(error_of($server, "SELECT snowflake_fleet_reclaim($again)")->{message},
	'', 'one that is damaged can be reclaimed alone');
is($server->safe_psql('postgres', "SELECT state FROM snowflake_fleet() WHERE node = $again"),
	'free', 'and is free then');

# The setting may go beyond what the layout has; what is leased does not.
set_to('lease_nodes', '1023-2000');
wait_for_status($server, q{node = 1023 OR advice ~ 'No node ID is free'});
is(status($server, 'node'), 1023, 'the largest node ID of the layout is leased');
$leases = status($server, 'leases');
set_to('lease_nodes', '1024-2000');
wait_for_status($server, "leases > $leases OR advice ~ 'No node ID is free'");
is(status($server, 'leases'), $leases, 'but none that the layout does not have');
set_to('lease_nodes', '');

# The fleet's own record
wait_for_status($server, q{coordinator = 'reachable'});
my $fleet =
  $coordinator->safe_psql('raw', q{SELECT value FROM snowflake_fleet.records WHERE key = 'fleet'});

sub set_fleet
{
	my ($value) = @_;

	$coordinator->safe_psql('raw',
		"UPDATE snowflake_fleet.records SET value = \$\$$value\$\$ WHERE key = 'fleet'; DELETE FROM snowflake_fleet.records WHERE key ~ 'node'"
	);
	$server->stop('immediate');
	$server->start;
	return;
}

# What an administrator has to mend is not waited for.
sub refuses_at_once
{
	my ($what) = @_;

	is( error_at_once($server)->{message},
		'this server has not leased a node ID',
		"$what: a mint is refused at once");
	return;
}
set_fleet('{"layout": 7}');
wait_for_status($server, q{advice ~ '^The record of the fleet is damaged'});
refuses_at_once('a damaged record of the fleet');
is(error_of($server, 'SELECT snowflake_fleet_recover()')->{message},
	'', 'and snowflake_fleet_recover() replaces it');
set_fleet($fleet =~ s/"layout": "[^"]*"/"layout": "time:52 node:5 sequence:6 tick:1us"/r =~
	  s/"floor": \d+/"floor": 4000000000000000/r);
wait_for_status($server, q{advice ~ '^The fleet has another layout'});
pass('a time that only the layout of the fleet has is no damage');
set_fleet($fleet =~ s/"layout": "[^"]*"/"layout": "time:41 node:4 sequence:18"/r);
wait_for_status($server, q{advice ~ '^The fleet has another layout'});
refuses_at_once('a fleet of another layout');
is( error_of($server, 'SELECT snowflake_fleet_recover()')->{message},
	'the layout of the snowflake fleet differs from that of this server',
	'which this server does not re-create');
is( error_of($server, "SELECT snowflake_fleet_reclaim($again)")->{detail},
	'The ticks of its leases are not those of this server.',
	'and of which it reclaims no node ID');
set_fleet($fleet);
wait_for_status($server, q{coordinator = 'reachable'});

# A coordinator that warns at a commit, in whatever language: its standby may not have it.  That
# is waited for, and the warning seen, whatever the database has for a default.
set_to('lease', '20s');
$coordinator->safe_psql('raw',
	'ALTER DATABASE raw SET synchronous_commit = off; ALTER DATABASE raw SET client_min_messages = error'
);
my $raw = $url =~ s/postgres$/raw/r;
my $translated = 'postgresql://' . SnowflakeCoordinator::new_translator($port) . '/raw';
foreach my $source ($raw, $translated)
{
	set_to('node_source', $source);
	wait_for_mint($server);
	$coordinator->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'");
	$coordinator->reload;
	$server->stop('immediate');
	logs(
		qr/the coordinator warned that a commit/,
		'a commit that was not replicated is in doubt',
		sub {
			$server->start;
			$coordinator->poll_query_until('postgres',
				q{SELECT count(pg_cancel_backend(pid)) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'snowflake'}
			) or die 'no wait';
		});
	is(status($server, q{coordinator, lease_until}), 'unreachable|', 'and not used');
	$coordinator->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$coordinator->reload;
	wait_for_mint($server);
}
set_to('node_source', $raw);
set_to('lease', patience(4) . 's');

# An answer is lost: what is between the server and the coordinator hangs up when
# it has passed on a write, or before it passes on a second one, and is not there for as long
# as there is another file.
my $listener = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1')
  or die "could not listen: $@";
my $lost = PostgreSQL::Test::Utils::tempdir() . '/lost';
my $proxy = fork();
die "could not fork: $!" unless defined $proxy;
if ($proxy == 0)
{
	while (my $client = $listener->accept)
	{
		my $upstream = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or next;
		my $select = IO::Select->new($client, $upstream);
		my $writes = 0;

	  RELAY: while (my @ready = $select->can_read)
		{
			foreach my $from (@ready)
			{
				last RELAY unless sysread $from, my $bytes, 65536;
				$writes++
				  if $from == $client && $bytes =~ /(?:INSERT INTO|UPDATE) snowflake_fleet/;
				last RELAY if $writes == 2 && unlink "$lost.second";
				if ($writes && $from == $upstream && -e "$lost.wanted")
				{
					unlink "$lost.wanted";
					last RELAY;
				}
				syswrite $from == $client ? $upstream : $client, $bytes;
			}
		}
		close $client;
		close $upstream;
		sleep 0.05 while -e "$lost.closed";
	}
	require POSIX;
	POSIX::_exit(0);
}

END
{
	kill 'KILL', $proxy if $proxy;
}

sub lose_an_answer
{
	append_to_file("$lost.wanted", '');
	wait_until('an answer is lost', sub { !-e "$lost.wanted" });
	return;
}
my $user = $coordinator->safe_psql('postgres', 'SELECT current_user');
append_to_file("$lost.wanted", '');
set_to('node_source', "postgresql://$user\@127.0.0.1:" . $listener->sockport . '/raw');
lose_an_answer();
wait_for_status($server, q{coordinator = 'reachable' AND gate = 'open'});
$leases = status($server, 'node, leases');
is( $server->safe_psql(
		'postgres',
		'SELECT count(*), count(DISTINCT node) FROM snowflake_fleet() WHERE node = (SELECT node FROM snowflake_status) AND state = \'leased\''
	),
	'1|1',
	'after the lost answer to a new lease it is used');
lose_an_answer();
my $renewals = status($server, 'lease_renewals');
wait_for_status($server, "coordinator = 'reachable' AND lease_renewals > $renewals + 1");
is(status($server, 'node, leases'), $leases, 'the lost answer to a renewal costs nothing');

# What was written is found then, and written once more.  That does not get there, and so is
# found to be what it was at the next look.
append_to_file("$lost.second", '');
lose_an_answer();
wait_until('the second write is lost', sub { !-e "$lost.second" });
$renewals = status($server, 'lease_renewals');
wait_for_status($server, "coordinator = 'reachable' AND lease_renewals > $renewals");
is(status($server, 'node, leases'),
	$leases, 'nor does it if what was found could not be written once more');

# Before it is asked for again the fleet's record is that of an older term, as after a
# failover of the coordinator: a newer one is noted down there, and no more than that.
append_to_file("$lost.closed", '');
lose_an_answer();
$renewals = status($server, 'lease_renewals');
$coordinator->safe_psql('raw',
	q{UPDATE snowflake_fleet.records SET value = jsonb_set(value::jsonb, '{term}', '0')::text WHERE key = 'fleet'}
);
unlink "$lost.closed";
wait_for_status(
	$server,
	sprintf
	  q{coordinator = 'reachable' AND gate = 'open' AND lease_renewals > %d OR lease_until < now() - interval '%d s'},
	$renewals,
	patience(15));
is(status($server, "node, leases, lease_renewals > $renewals"),
	"$leases|t", 'nor does one before a failover of the coordinator');

# A write that has to wait for another one looks at what that has written, whatever the
# database has for a default.
$coordinator->safe_psql('raw',
	q{ALTER DATABASE raw SET default_transaction_isolation = 'repeatable read'});
my $session = $coordinator->background_psql('raw');
$session->query_safe(
	q{BEGIN; UPDATE snowflake_fleet.records SET value = value WHERE key = 'fleet'});
$renewals = status($server, 'lease_renewals');
$coordinator->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'snowflake' AND wait_event_type = 'Lock'}
) or die 'the write does not wait';
$session->query_safe('COMMIT');
$session->quit;
wait_for_status($server, "coordinator = 'reachable' AND lease_renewals > $renewals");
is(log_count($server, qr/could not serialize access/), 0, 'a write that had to wait is done');

# One that waits for longer than an answer may take is given up at the coordinator as well.
$session = $coordinator->background_psql('raw');
$session->query_safe('BEGIN; LOCK TABLE snowflake_fleet.records');
my $failures = status($server, 'lease_errors');
wait_for_status($server, "lease_errors > $failures + 3");
$coordinator->poll_query_until('postgres',
	q{SELECT count(*) <= 1 FROM pg_stat_activity WHERE application_name = 'snowflake' AND wait_event_type = 'Lock'}
) or die 'attempts that were given up still wait';
pass('attempts to renew that were given up do not wait for a lock there');
$session->query_safe('COMMIT');
$session->quit;
wait_for_status($server, "coordinator = 'reachable'");

# Of several coordinators the first one does not answer.
my $silent = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1')
  or die "could not listen: $@";
$renewals = status($server, 'leases + lease_renewals');
set_to('node_source',
	"postgresql://$user\@127.0.0.1:" . $silent->sockport . ",127.0.0.1:$port/raw");
wait_for_status($server, "coordinator = 'reachable' AND leases + lease_renewals > $renewals + 1");
pass('a coordinator that does not answer keeps nobody from the next one');

# Nor does a standby, which can be asked, but not written to.
$coordinator->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($coordinator, 'base', has_streaming => 1);
$standby->start;
set_to('node_source', "postgresql://$user\@127.0.0.1:" . $standby->port . ",127.0.0.1:$port/raw");
wait_until(
	'the setting is in force',
	sub {
		$server->safe_psql('postgres', 'SHOW snowflake.node_source') =~ /:${\ $standby->port},/;
	});
is(error_of($server, 'SELECT snowflake_fleet_create()')->{sqlstate}, '42710', 'nor does a standby');
$standby->stop;

# Nor one that is down, where all hosts have the one port that the URL names.
set_to('node_source', "postgresql:///raw?host=/nowhere,${\ $coordinator->host}&port=$port");
wait_until('the setting is in force',
	sub { $server->safe_psql('postgres', 'SHOW snowflake.node_source') =~ m{/nowhere,} });
is(error_of($server, 'SELECT snowflake_fleet_create()')->{sqlstate},
	'42710', 'nor one that is down, of several with one port');

# Nor does one that cannot even be connected to, because its queue is full and so
# the packets are dropped, while the lessee is woken again and again.
my $full = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1')
  or die "could not listen: $@";
my @queue =
  map { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $full->sockport, Blocking => 0) }
  1 .. 4;
my $started = time;
$renewals = status($server, 'leases + lease_renewals');
set_to('node_source', "postgresql://$user\@127.0.0.1:" . $full->sockport . ",127.0.0.1:$port/raw");
wait_until(
	'renewals',
	sub {
		$server->reload;
		return status($server,
			"coordinator = 'reachable' AND leases + lease_renewals > $renewals + 1") eq 't';
	});
cmp_ok(time - $started,
	'<', patience(60), 'nor does one that loses packets, whatever wakes the lessee');

# If there is no other, an attempt ends before a lease would.
$started = time;
set_to('node_source', "postgresql://$user\@127.0.0.1:" . $silent->sockport . '/raw');
wait_for_status($server, q{coordinator = 'unreachable'});
cmp_ok(time - $started,
	'<', patience(4), 'a coordinator that does not answer is given up within a lease');

# A fleet's record with the longest texts: those of a layout with sixteen fields, and of who
# marked the fleet.
$coordinator->safe_psql('postgres', 'CREATE DATABASE long');
my $fields = join ' ', map { sprintf 'field_%02d_%s:1', $_, 'x' x 22 } 1 .. 14;
my $long = new_member(
	'long',
	$url =~ s{/postgres$}{/long}r,
	conf => "snowflake.layout = 'time:41 $fields sequence:8 epoch:2010-11-04T01:42:54.657Z'\n");
$long->start;
$long->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
$coordinator->safe_psql('long',
	q{UPDATE snowflake_fleet.records SET value = replace(value, '"reporter": ""', format('"reporter": "%s"', repeat('r', 299))) WHERE key = 'fleet'}
);
is( $coordinator->safe_psql(
		'long',
		q{SELECT length(value) > 1024, value ~ 'rrr' FROM snowflake_fleet.records WHERE key = 'fleet'}
	),
	't|t',
	'a record of a fleet is long');
$renewals = status($long, 'lease_renewals');
wait_for_status($long, "lease_renewals > $renewals + 1");
is(error_of($long, 'SELECT * FROM snowflake_fleet()')->{message}, '', 'and it is not damaged');
$long->stop;

# Nowhere is a password.
$server->stop;
is(scalar(grep { /\Q$secret/ && !/STATEMENT:/ } split /\n/, slurp_file($server->logfile)),
	0, 'no password is in the log');
$coordinator->stop;
done_testing();
