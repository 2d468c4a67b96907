# Restarts of servers that lease their node IDs: a clean one keeps it, a crash
# costs it, many crashes in a row do not use them up.  And where nothing is leased,
# there is nothing of it.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  children disorder error_of new_coordinator new_member new_node patience status
  wait_for_mint
);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

# as short as a lease can be, for the crashes; and what else may take, by the machine
my $lease = patience(1);
my $slack = patience(2.5);
my $coordinator = new_coordinator();
my $server = new_member(
	'server', $coordinator,
	lease => "${lease}s",
	conf => "snowflake.lease_nodes = '0-15'\nfsync = off\n");
my @ids;

# Mint; returns how long that took.
sub first_mint
{
	my $began = time;

	push @ids,
	  $server->safe_psql('postgres', q{SET snowflake.max_wait = '1min'; SELECT snowflake_next()});
	return time - $began;
}

$server->start;
$server->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
wait_for_mint($server);

# Long enough for all that is compared here
$server->append_conf('postgresql.conf', "snowflake.lease = '1min'");
$server->reload;
$server->poll_query_until('postgres',
	q{SELECT lease_until > now() + interval '50s' FROM snowflake_status})
  or die 'not renewed';
my $node = status($server, 'node');
first_mint();
my $tick = $server->safe_psql('postgres', "SELECT snowflake '$ids[-1]' -> 'time'");
$server->stop;
is( $coordinator->safe_psql(
		'postgres',
		"SELECT value::jsonb ->> 'until' FROM snowflake_fleet.records WHERE key = 'node/$node'"),
	$tick,
	'a clean stop gives back all above the last tick with an ID');
$server->start;
cmp_ok(my $took = first_mint(), '<', 0.5 + $slack, 'after a clean restart it mints at once');
note("after $took s");
is(status($server, 'node'), $node, 'with the node ID that it had');
$server->stop('immediate');
$server->start;
cmp_ok(
	$took = first_mint(),
	'<',
	4.5 + $slack,
	'after a crash it mints as soon as reservation and lease permit');
note("after $took s");
isnt(status($server, 'node'), $node, 'with another node ID');

# A hundred crashes
$server->append_conf('postgresql.conf', "snowflake.lease = '${lease}s'");
my $longest = 0;
my $without = 0;
foreach my $crash (1 .. 100)
{
	$server->stop('immediate');
	$server->start;
	my $began = time;
	until (
		$server->safe_psql('postgres', q{SELECT lease_until IS NOT NULL FROM snowflake_status}) eq
		  't')
	{
		$without = 1;
		last if time - $began > 60;
		sleep 0.02;
	}
	$longest = time - $began if time - $began > $longest;
	next if $crash % 20;
	first_mint();
}
note("without a node ID for up to $longest s");
cmp_ok(
	$longest, '<',
	$lease + $slack,
	'a hundred crashes: never without a node ID for longer than the lease');
is(disorder(\@ids), 0, 'IDs ascend');

# All node IDs are taken, by crashes within a lease.  Where these take longer than the
# lease, they say nothing: again, with a longer one and other node IDs.
my $refused;
my ($from, $to) = (20, 22);
for ($lease = 2 * patience(2.5);; $lease *= 2, $from += 3, $to += 3)
{
	$server->append_conf('postgresql.conf',
		"snowflake.lease = '${lease}s'\nsnowflake.lease_nodes = '$from-$to'");
	$refused = 0;
	my $began = time;
	foreach my $crash (1 .. 4)
	{
		$server->stop('immediate');
		$server->start;
		$server->poll_query_until('postgres',
			q{SELECT lease_until IS NOT NULL OR advice ~ 'No node ID is free' FROM snowflake_status}
		) or die 'not asked';
		$refused++ if status($server, 'advice') =~ /No node ID is free/;
	}
	last if time - $began < $lease;
	note("four crashes took longer than a lease of $lease s");
}
is($refused, 1, 'with three node IDs the fourth crash within a lease finds none');

# so many crashes have taken the generator ahead, and with it what is leased
my $ahead = $server->safe_psql('postgres',
	"SELECT extract(epoch FROM min(leased_until) - clock_timestamp()) FROM snowflake_fleet() WHERE node BETWEEN $from AND $to"
);
my $began = time;
wait_for_mint($server);
cmp_ok(time - $began, '<', $ahead + 2.5 + $slack, 'until the first lease has ended');

# Another server takes the one whose lease ended first.
my $left = $server->safe_psql('postgres',
	"SELECT extract(epoch FROM max(leased_until) - clock_timestamp()) FROM snowflake_fleet() WHERE node BETWEEN $from AND $to"
);
$server->stop;
sleep($left + 0.5) if $left > -0.5;
my $first = $coordinator->safe_psql(
	'postgres',
	"SELECT substr(key, 6) FROM snowflake_fleet.records
		WHERE key ~ '^node/' AND substr(key, 6)::int BETWEEN $from AND $to
		ORDER BY (value::jsonb ->> 'until')::bigint LIMIT 1");
my $other = new_member(
	'other', $coordinator,
	lease => "${lease}s",
	conf => "snowflake.lease_nodes = '$from-$to'\n");
$other->start;
$other->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($other);
is(status($other, 'node'), $first, 'another server takes the node ID whose lease ended first');
$other->stop;
$coordinator->stop;

# With a setting for a node ID there is no lessee, and nothing is loaded for it.
my $pkglibdir = `$ENV{PG_CONFIG} --pkglibdir`;
chomp $pkglibdir;
unlike(`ldd $pkglibdir/snowflake.so`, qr/libpq/, 'the library is not linked with libpq');
my $ordinary = new_node('ordinary');
$ordinary->start;
$ordinary->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($ordinary);
is(scalar(children($ordinary, qr/snowflake keeper/)), 1, 'a server with a setting has a keeper');
is(scalar(children($ordinary, qr/snowflake lessee/)), 0, 'and no lessee');
unlike(
	$ordinary->safe_psql(
		'postgres',
		q{SELECT snowflake_next(); SELECT gate FROM snowflake_status; SELECT pg_read_file('/proc/' || pg_backend_pid() || '/maps', 0, 1000000, true)}
	),
	qr/libpq/,
	'no backend loads libpq');
unlike(
	$ordinary->safe_psql(
		'postgres',
		q{SELECT pg_read_file('/proc/' || keeper_pid || '/maps', 0, 1000000, true) FROM snowflake_status}
	),
	qr/libpq/,
	'nor does the keeper') if -d '/proc/self';
is( error_of($ordinary, 'SELECT * FROM snowflake_fleet()')->{message},
	'snowflake_fleet() needs a coordinator',
	'there is no fleet to list');
$ordinary->stop;

done_testing();
