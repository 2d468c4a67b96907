# Leases and floors to the exact tick, while the server's time is stopped: nothing is taken
# before the floor of the fleet, which ends where the next tick begins, and each lease begins
# above it.  A lease is renewed when half of it has passed by any measure, and is late when a
# quarter is left.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeFleet;
use SnowflakeTest;
use Test::More;

my $coordinator = new_coordinator();
my $clock = new_clock('member');
my $waits = q{advice ~ '^This server waits for the floor of the fleet, until "'};

query($coordinator, 'ALTER SYSTEM SET log_connections = on');
$coordinator->reload;

# A node waits for the floor, and its attempt is over, which would end without an answer when time
# passes at once.
sub wait_for_floor
{
	my ($node) = @_;

	wait_for_status($node, $waits);
	wait_for_query($coordinator,
		q{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'snowflake')});
	return;
}

# How often the coordinator has been asked since its log had this size
sub requests_since
{
	return log_count($coordinator, qr/connection authorized/, $_[0]);
}

# Stop the time of a server so many milliseconds after the beginning of a second.
sub stop_time_at
{
	my ($node, $ms) = @_;

	stop_time($clock);
	let_pass($clock,
		1_000 + $ms -
		  query($node, 'SELECT (1000 * extract(epoch FROM clock_timestamp()))::bigint % 1000'));
	return;
}

# While time stands: the lessee may have asked when it was moved, and then it has no answer in time,
# and does not ask again before it is told.
sub wait_for_lease
{
	my ($node) = @_;

	wait_until('a node ID is leased', sub { $node->reload; return status($node, 'leases') > 0; });
	return;
}

# The next tick, or one soon after it
my $member = start_member(
	'member', $coordinator,
	lease => '10s',
	clock => $clock,
	conf => "snowflake.layout = 'time:31 node:10 sequence:22 tick:1s epoch:0'\n");
my $offset = -s $coordinator->logfile;
my $soon = patience(5);
query($member, "SELECT snowflake_fleet_create(now() + interval '$soon s')");
wait_for_status($member, $waits);
is(refused($member, '10min')->{message},
	'', 'a mint waits for a floor that is nearer than snowflake.max_wait');
is(status($member, 'leases'), 1, 'a server that has waited for the floor has a lease');
my $requests = requests_since($offset);
cmp_ok($requests, '>', 0, 'it has asked for it');
cmp_ok($requests, '<', 60, "seldom: $requests times");

# Time stands still soon after the tick of the floor has begun, however long this takes.
sub found_anew
{
	query($coordinator, 'DROP SCHEMA IF EXISTS snowflake_fleet CASCADE');
	$member->stop;
	start_with_clock($member, $clock);
	return;
}
found_anew();
stop_time_at($member, 200);
query($member, q{SELECT snowflake_fleet_create(now() + interval '1min')});
wait_for_floor($member);
let_pass($clock, 60_000);
$offset = -s $coordinator->logfile;
status($member, 'gate') foreach 1 .. 20;
$requests = requests_since($offset);
cmp_ok($requests, '<', 5, "within one moment it is not asked again and again: $requests times");
is(status($member, "leases, $waits"),
	'0|t', 'and grants nothing yet, as the advice says until the tick of the floor is over');
start_time($clock);

# A lease is late when a quarter of it is left, to the end of its last tick.
set_conf($member, 'snowflake.lease' => '4s');
wait_for_mint($member);
wait_for_status($member, q{lease_until < clock_timestamp() + interval '6s'});
my $lessee = lessee($member);
freeze($lessee);
stop_time($clock);
let_pass($clock,
	status($member, 'extract(epoch FROM lease_until - clock_timestamp()) * 1000') - 500);
is(status($member, 'advice'), '', 'half a second before its last tick a lease of four is not late');
let_pass($clock, 1_000);
like(
	status($member, 'advice'),
	qr/The lessee, process $lessee, has not renewed the lease/,
	'in the middle of that it is');
thaw();
start_time($clock);

# IDs that are ahead of the clock have a lease renewed when just half of it is left to them.
set_conf($member, 'snowflake.lease' => '10s');
wait_for_mint($member);
wait_for_status($member, q{lease_until > clock_timestamp() + interval '7s'});
stop_time($clock);
let_pass($clock, 1_500);    # so long after an attempt there may be another one
my $until = status($member, 'lease_until');
query($member,
	"SELECT snowflake_advance(snowflake_upper_bound('$until'::timestamptz - interval '5s'))");
wait_for_status($member, "lease_until > '$until'");
pass('IDs that reach half of the lease ahead of the clock have it renewed');
start_time($clock);

# Where the floor of a new fleet is the present tick, its founder waits for the next one.
found_anew();
stop_time_at($member, 200);
my $founding = $member->background_psql('postgres');
$founding->query_until(qr/go/,
	"\\echo go\nSELECT snowflake_fleet_create(clock_timestamp()); SELECT leases FROM snowflake_stats;\n"
);
wait_for_floor($member);
status($member, 'gate') foreach 1 .. 20;
let_pass($clock, 1_000);
is($founding->query_safe('SELECT leases FROM snowflake_stats'),
	"\n1\n1", 'snowflake_fleet_create() returns when its server has a lease');
$founding->quit;
start_time($clock);
wait_for_mint($member);

# A clock that goes ahead past the end of the lease, and is believed: the lessee, which sleeps by
# the old one, is told.
set_conf($member, 'snowflake.jump_patience' => 0);
my $leases = status($member, 'leases');
stop_time($clock);
step_clock($clock, 20 * 60_000);
error_of($member, q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
let_pass($clock, 1_300);    # a thousandth of it
error_of($member, q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
wait_for_status($member, "leases > $leases");
pass('a clock that goes past the lease has the lessee ask for another one');
start_time($clock);
$member->stop;

# A node ID is granted a moment before the floor, for what comes after it.
$clock = new_clock('early');
query($coordinator, 'DROP SCHEMA snowflake_fleet CASCADE');
my $early = start_member('early', $coordinator, lease => '10min', clock => $clock);
stop_time($clock);
query($early, q{SELECT snowflake_fleet_create(now() + interval '1min')});
wait_for_floor($early);
let_pass($clock, 60_000 - 300);
wait_for_lease($early);
my $floor = listed($early, 'leased_from');
is( query(
		$early,
		"SELECT '$floor' > now(), leased_from > '$floor' FROM snowflake_fleet() WHERE node = 0"),
	't|t',
	'a node ID that is granted before the floor begins above it');
wait_for_mint($early);
is(query($early, "SELECT snowflake_timestamp(snowflake_next()) > '$floor'"),
	't', 'and so do its IDs, which are ahead of the clock');

# A holder asks within half a lease, by the present setting and the monotonic clock, however far
# its lease reaches: before a fleet that was recovered grants anything.
let_pass($clock, 1_500);
my $renewals = status($early, 'lease_renewals');
set_conf($early, 'snowflake.lease' => '8s');
let_pass($clock, 4_100);
$early->reload;
wait_for_status($early, "lease_renewals > $renewals");
is(status($early, q{lease_until > now() + interval '9 min'}),
	't', 'a lease that reaches far ahead is renewed after half of a short one');
query($coordinator, forget_record(0));
let_pass($clock, 4_100);
$early->reload;
wait_for_status($early,
	q{gate = 'closed: the coordinator went back in time' AND coordinator = 'grants nothing'});
pass('so that a loss is noticed');

# A lease that is revoked cannot be used up, so that this server waits for a floor that is
# ahead, while the lease would last.
query($early, q{SELECT snowflake_fleet_recover(now() + interval '1h')});
wait_for_status($early, "$waits OR coordinator = 'reachable'");
is(status($early, "$waits, lease_until > now()"),
	't|t', 'a server whose lease was revoked waits for the floor, before the end of what it had');
start_time($clock);
$early->stop;

# A server that founds a fleet was ahead of the clock, and has given up the order with another
# node ID: the floor is above all that it may have minted, for the first node ID can be leased.
$clock = new_clock('founder');
my $founder =
  new_node('founder', conf => "snowflake.lease = '10min'\nsnowflake.lease_nodes = '10-20'\n");
my $ahead_by = sub {
	query($founder,
		"SELECT snowflake_advance(snowflake_upper_bound(now() + interval '$_[0] min'), force => true)"
	);
	return;
};
query($coordinator, 'DROP SCHEMA snowflake_fleet CASCADE');
start_with_clock($founder, $clock);
query($founder, 'CREATE EXTENSION snowflake');
wait_for_mint($founder);
my $ahead = status($founder, q{date_trunc('second', now()) + interval '15min'});
$ahead_by->(16);
set_conf($founder, 'snowflake.node_id' => 2);
wait_for_status($founder, 'node = 2');
query($founder, 'SELECT snowflake_restart_at_clock(2)');
wait_for_mint($founder);
$ahead_by->(5);
$founder->append_conf('postgresql.conf', member_conf($coordinator, '10min'));
set_conf($founder);

foreach my $function ('snowflake_fleet_create()', 'snowflake_fleet_recover(holder_is_gone => true)')
{
	query($founder, "SET client_min_messages = error; SELECT $function");
	is(listed($founder, "leased_from >= '$ahead'"),
		't', "no floor is below what was minted before the order was given up: $function");
}

# It is still ahead, leases a node ID shortly before a lower floor, and goes back to the floor, and
# not below it.
stop_time($clock);
query($founder, q{SELECT snowflake_fleet_recover(now() + interval '1min')});
wait_for_floor($founder);
let_pass($clock, 60_000 - 300);
wait_for_lease($founder);
wait_for_status($founder, q{gate = 'open'});
$floor = listed($founder, 'leased_from');
query($founder, 'SELECT snowflake_restart_at_clock(node) FROM snowflake_status');
start_time($clock);
is( query(
		$founder,
		"SELECT snowflake_timestamp(snowflake_next()) BETWEEN '$floor' AND '$floor'::timestamptz + interval '1min'"
	),
	't',
	'what was ahead goes back to the floor, and not below it');
$founder->stop;

done_testing();
