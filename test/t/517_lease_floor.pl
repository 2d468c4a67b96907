# Leases and floors to the exact tick, while the server's time is stopped: nothing is taken
# before the floor of the fleet, which ends where the next tick begins, and each lease begins
# above it.  A lease is renewed when half of it has passed by any measure.
# long

use SnowflakeFleet;
use SnowflakeTest;

my $coordinator = new_coordinator();
my $clock = new_clock('member');
my $waits = q{advice ~ '^This server waits for the floor of the fleet, until "'};

query($coordinator, 'ALTER SYSTEM SET log_connections = on');
$coordinator->reload;

# A node waits for the floor, and its attempt is over, which would end without an answer when time
# passes at once.
sub wait_for_floor
{
	wait_for_status($_[0], $waits);
	wait_for_query($coordinator,
		q{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'snowflake')});
	return;
}

# The next tick, or one soon after it
my $member = start_member(
	'member', $coordinator,
	lease => '10s',
	clock => $clock,
	conf => "snowflake.layout = 'time:31 node:10 sequence:22 tick:1s epoch:0'\n");
my $soon = patience(5);
query($member, "SELECT snowflake_fleet_create(now() + interval '$soon s')");
wait_for_status($member, $waits);
is(refused($member, '10min')->{message},
	'', 'a mint waits for a floor that is nearer than snowflake.max_wait');

# Time stands still soon after the tick of the floor has begun, however long this takes.
query($coordinator, 'DROP SCHEMA snowflake_fleet CASCADE');
$member->stop;
start_with_clock($member, $clock);
stop_time($clock);
let_pass($clock,
	1_200 - query($member, 'SELECT (1000 * extract(epoch FROM clock_timestamp()))::bigint % 1000'));
query($member, q{SELECT snowflake_fleet_create(now() + interval '1min')});
wait_for_floor($member);
let_pass($clock, 60_000);
my $offset = -s $coordinator->logfile;
status($member, 'gate') foreach 1 .. 20;
my $requests = log_count($coordinator, qr/connection authorized/, $offset);
cmp_ok($requests, '<', 5, "within one moment it is not asked again and again: $requests times");
is(status($member, "leases, $waits"),
	'0|t', 'and grants nothing yet, as the advice says until the tick of the floor is over');
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

$member->stop;

# A node ID is granted a moment before the floor, for what comes after it.
$clock = new_clock('early');
query($coordinator, 'DROP SCHEMA snowflake_fleet CASCADE');
my $early = start_member('early', $coordinator, lease => '10min', clock => $clock);
stop_time($clock);
query($early, q{SELECT snowflake_fleet_create(now() + interval '1min')});
wait_for_floor($early);
let_pass($clock, 60_000 - 300);

# The lessee may have asked when time was moved: then it does not ask again before it is told.
wait_until('a node ID is leased', sub { $early->reload; return status($early, 'leases') > 0; });
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
query($coordinator, 'DROP SCHEMA snowflake_fleet CASCADE');
start_with_clock($founder, $clock);
query($founder, 'CREATE EXTENSION snowflake');
wait_for_mint($founder);
my $ahead = status($founder, q{date_trunc('second', now()) + interval '15min'});
advance($founder, '16min');
set_conf($founder, 'snowflake.node_id' => 2);
wait_for_status($founder, 'node = 2');
query($founder, 'SELECT snowflake_restart_at_clock(2)');
wait_for_mint($founder);
advance($founder, '5min');
$founder->append_conf('postgresql.conf', member_conf($coordinator, '10min'));
set_conf($founder);

foreach my $function ('snowflake_fleet_create()', 'snowflake_fleet_recover(holder_is_gone => true)')
{
	query($founder, "SET client_min_messages = error; SELECT $function");
	is(listed($founder, "leased_from >= '$ahead'"),
		't', "no floor is below what was minted before the order was given up: $function");
}

done_testing();
