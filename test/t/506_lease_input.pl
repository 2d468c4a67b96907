# Faults between a server and its coordinator: each has its own message, no password gets into
# a log, an error or a setting, and damaged records are skipped.
# long

use SnowflakeCoordinator;
use SnowflakeFleet;
use SnowflakeTest;

my $secret = 'xK9-hush-3q';
my $coordinator = new_coordinator(
	init => { allows_streaming => 1 },
	conf => "listen_addresses = '127.0.0.1'\npassword_encryption = 'scram-sha-256'");
my $url = coordinator_url($coordinator);
my $port = $coordinator->port;
my $user = query($coordinator, 'SELECT current_user');
my $server = start_member('server', $coordinator);

# The log gets a line.
sub logs
{
	my ($regexp, $what, $action) = @_;
	my $offset = -s $server->logfile;

	$action->();
	wait_until($what, sub { log_count($server, $regexp, $offset) > 0 });
	return pass($what);
}

# A statement in the database "raw", which has no encoding
sub raw
{
	return query($coordinator, $_[0], dbname => 'raw');
}

# Settings that are refused, and do not repeat a password
my %detail_of = (
	(map { $_ => qr// } 'postgresql', 'mysql://host/db', 'host=127.0.0.1', '://'),
	(   map { $_ => qr/^The URL has a password/ } "zookeeper://u%3a$secret\@h/d",
		"zookeeper://u:$secret\@h/d",
		map { "postgresql://$_" } "fleet:$secret\@h/d",
		"fleet:$secret?\@h/d",
		"fleet%3A$secret\@h/d",
		"h/d?password=$secret",
		"h/d?p%61ssword=$secret",
		"h/d?sslpassword=$secret",
		"h/d?scram_client_key=$secret",
		"h/d?scram_server_key=$secret"));
foreach my $bad (sort keys %detail_of)
{
	my $error = error_of($server, "ALTER SYSTEM SET snowflake.node_source = '$bad'");

	is($error->{sqlstate}, '22023', "refused: $bad");
	like($error->{detail}, $detail_of{$bad}, 'and why');
	unlike(join(' ', %$error), qr/\Q$secret/, 'and no password repeated');
}
foreach my $bad ('9-5', '4294967296', '0-4294967296', join(',', map { 2 * $_ } 0 .. 32))
{
	refuses(
		$server,
		"ALTER SYSTEM SET snowflake.lease_nodes = '$bad'",
		'22023',
		"\"$bad\" is no list of node IDs",
		detail => qr/^It must be a list of up to 32 node IDs or ranges of node IDs\.$/);
}

# In the configuration file, which somebody else wrote
my $offset = -s $server->logfile;
use_coordinator($server, "postgresql://fleet:$secret\@127.0.0.1/postgres");
cmp_ok(log_count($server, qr/invalid value for parameter "snowflake.node_source"/, $offset),
	'>', 0, 'a password in the file is refused as well');
is(log_count($server, qr/\Q$secret/, $offset), 0, 'and is not in the log');

# Connections
my $unused = qr/could not use the coordinator: .*/;
my %error_of = (
	'postgresql://127.0.0.1:1/postgres' => qr/Connection refused/,
	'postgresql://127.0.0.1/postgres?flavour=vanilla' =>
	  qr/invalid (?:connection option|URI query parameter)/,
	$url =~ s/postgres$/n%C3%B4where/r => qr/database "n.*where" does not exist/);
foreach my $bad (sort keys %error_of)
{
	logs(qr/$unused$error_of{$bad}/, $bad, sub { use_coordinator($server, $bad) });
}
use_coordinator($server, $url =~ s/postgres$/n%C3%B4where/r);
like(
	listing_error($server)->{message},
	qr/database "n\?\?where" does not exist/,
	'no bytes of another encoding come to an administrator');

# Passwords are in a file.
query($coordinator, "CREATE ROLE fleet LOGIN PASSWORD '$secret'");
unlink $coordinator->data_dir . '/pg_hba.conf';
append_to_file(
	$coordinator->data_dir . '/pg_hba.conf',
	"local all,replication all trust\nhost all fleet 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
);
$coordinator->reload;
logs(
	qr/${unused}no password supplied/,
	'no password',
	sub {
		my $passfile = write_passfile("none\n");
		use_coordinator($server, "postgresql://fleet\@127.0.0.1:$port/postgres?passfile=$passfile");
	});

logs(
	qr/${unused}password authentication failed/,
	'a wrong password',
	sub { write_passfile("*:*:*:fleet:$secret-not\n") });

# Rights
my $script = slurp_file('sql/snowflake_fleet.sql');
logs(qr/relation "snowflake_fleet.records" does not exist/,
	'no table', sub { write_passfile("*:*:*:fleet:$secret\n") });
refuses($server, 'SELECT snowflake_fleet_create()',
	'42501', 'a role that may not create tables cannot found a fleet without the script');
logs(
	qr/permission denied for schema snowflake_fleet/,
	'a schema that may not be used',
	sub { query($coordinator, $script) });
logs(
	qr/permission denied for table records/,
	'nor the table',
	sub { query($coordinator, 'GRANT USAGE ON SCHEMA snowflake_fleet TO fleet') });
query($coordinator, 'GRANT SELECT, INSERT, UPDATE ON snowflake_fleet.records TO fleet');
query($server, 'SELECT snowflake_fleet_create()');
wait_for_mint($server);
is(status($server, 'node'), '0', 'with the script and what it says a fleet is founded, and grants');

# Records that somebody has tampered with.  The server needs another node ID, and
# passes by those.
my $good = query($coordinator, q{SELECT value FROM snowflake_fleet.records WHERE key = 'node/0'});
my @damaged = (
	'no JSON', '[1]', '{}', '{"holder": 1}', 'null', '"x"',
	'[' x 1000, 'x' x 100_000, "\xff\xfe", '');
foreach my $change (
	(map { [ until => $_ ] } qw(-5 1 -1e30 9223372036854775807 1e9999 1.5 "7" null)),
	(map { [ from => $_ ] } '1.5', '99999999999999999999'),
	(map { [ holder => $_ ] } '"\\u0000"', '"\\uffff"'),
	[ token => '"' . 'a' x 33 . '"' ])
{
	my ($name, $value) = @$change;

	push @damaged, $good =~ s/"$name": (?:"[^"]*"|-?\d+)/"$name": $value/r;
}

# What JSON may have, and a record not: otherwise it would be that of a lease for months.
my $lasting = $good =~ s/"until": (\d+)/'"until": ' . ($1 + 10_000_000_000)/er;
push @damaged, "\n$lasting", $lasting . ' ' x 10_000,
  map { $lasting =~ s/"holder": "/"holder": "$_/r } "\xc3\xa4", "\xff", "\x7f", '\\n';

# The script may be run again.  The role has a setting that changes how numbers are written.
query($coordinator,
	'CREATE DATABASE raw ENCODING SQL_ASCII LC_COLLATE "C" LC_CTYPE "C" TEMPLATE template0');
raw($script) foreach 1 .. 2;
query($coordinator, "ALTER ROLE \"$user\" SET extra_float_digits = -15");
use_coordinator($server, $url =~ s/postgres$/raw/r);
wait_for_status($server, q{coordinator = 'grants nothing'});
query($server, 'SELECT snowflake_fleet_recover(now())');
wait_for_status($server, q{coordinator = 'reachable'});

# written, and so found, from the highest node ID on
foreach my $i (reverse 0 .. $#damaged)
{
	my $value = "convert_from('\\x" . unpack('H*', $damaged[$i]) . "', 'SQL_ASCII')";

	raw("INSERT INTO snowflake_fleet.records VALUES ('node/$i', $value) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
	);
}
raw(q{INSERT INTO snowflake_fleet.records VALUES ('node/x', 'x'), ('node/99999999999', 'x'), ('node/-1', 'x'), ('other', 'x'), ('node/5000', 'x'), ('node/5x', 'x'), ('node/05', 'x')}
);
wait_for_status($server, 'node = ' . scalar(@damaged));
my $count_damaged =
  q{SELECT count(*) FROM snowflake_fleet() WHERE state = 'damaged' AND node < 1024};
is(query($server, $count_damaged),
	scalar(@damaged), 'the next node ID after all damaged records is leased, and these are listed');

raw(q{
	CREATE FUNCTION public.never(text, text) RETURNS boolean LANGUAGE sql RETURN false;
	CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.never);
	ALTER DATABASE raw SET search_path = public, pg_catalog});
query($server, 'SELECT snowflake_fleet_recover()');
is(query($server, $count_damaged), '0', 'and mended, also where "=" is something else');
raw('ALTER DATABASE raw RESET search_path');

# One that is damaged can be reclaimed alone.
my $again = 7;
raw("UPDATE snowflake_fleet.records SET value = 'x' WHERE key = 'node/$again'");
query($server, "SELECT snowflake_fleet_reclaim($again)");
is(listed($server, 'state', $again), 'free', 'a node ID whose record is damaged is reclaimed');

# The setting may go beyond what the layout has; what is leased does not.
set_conf($server, 'snowflake.lease_nodes' => '1023-2000');
wait_for_status($server, q{node = 1023 OR advice ~ 'No node ID is free'});
is(status($server, 'node'), 1023, 'the largest node ID of the layout is leased');
my $leases = status($server, 'leases');
set_conf($server, 'snowflake.lease_nodes' => '1024-2000');
wait_for_status($server, "leases > $leases OR advice ~ 'No node ID is free'");
is(status($server, 'leases'), $leases, 'but none that the layout does not have');
set_conf($server, 'snowflake.lease_nodes' => '');

# The fleet's own record.  What an administrator has to mend is not waited for.
wait_for_status($server, q{coordinator = 'reachable'});
my $fleet = raw(q{SELECT value FROM snowflake_fleet.records WHERE key = 'fleet'});

sub set_fleet
{
	my ($value, $advice) = @_;

	raw("UPDATE snowflake_fleet.records SET value = \$\$$value\$\$ WHERE key = 'fleet'; DELETE FROM snowflake_fleet.records WHERE key ~ 'node'"
	);
	restart_node($server, 'immediate', undef, '.');
	return if !$advice;
	wait_for_status($server, "advice ~ '$advice'");
	is( error_at_once($server)->{message},
		'this server has not leased a node ID',
		"$advice: a mint is refused at once");
	return;
}
set_fleet('{"layout": 7}', '^The record of the fleet is damaged');
query($server, 'SELECT snowflake_fleet_recover()');

# a time that only the layout of the fleet has is no damage
set_fleet(
	$fleet =~ s/"layout": "[^"]*"/"layout": "time:52 node:5 sequence:6 tick:1us"/r =~
	  s/"floor": \d+/"floor": 4000000000000000/r,
	'^The fleet has another layout');
set_fleet($fleet =~ s/"layout": "[^"]*"/"layout": "time:41 node:4 sequence:18"/r,
	'^The fleet has another layout');
is( error_of($server, 'SELECT snowflake_fleet_recover()')->{message},
	'the layout of the snowflake fleet differs from that of this server',
	'which this server does not re-create');
is( error_of($server, "SELECT snowflake_fleet_reclaim($again)")->{detail},
	'The ticks of its leases are not those of this server.',
	'and of which it reclaims no node ID');
set_fleet($fleet);
wait_for_status($server, q{coordinator = 'reachable'});

$server->stop;
is(scalar(grep { /\Q$secret/ && !/STATEMENT:/ } split /\n/, slurp_file($server->logfile)),
	0, 'no password is in the log');

done_testing();
