# A server that waits for the floor of its fleet asks the coordinator now and then, also
# throughout a tick: the floor ends where the next tick begins.  A mint waits as well.  The
# node ID is granted a moment before that, for what comes after it.  And a lease is revoked if
# its record is gone, but not if that is damaged.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  children error_of let_pass log_count member_conf new_clock new_coordinator new_member new_node patience
  start_time start_with_clock status step_clock stop_time wait_for_mint wait_for_status wait_until
);
use Test::More;

my $coordinator = new_coordinator();
my $member = new_member('member', $coordinator,
	conf => "snowflake.layout = 'time:31 node:10 sequence:22 tick:1s epoch:0'\n");

$coordinator->safe_psql('postgres', 'ALTER SYSTEM SET log_connections = on');
$coordinator->reload;
$member->start;
$member->safe_psql('postgres', 'CREATE EXTENSION snowflake');

# the next tick, or one soon after it
my $offset = -s $coordinator->logfile;
my $soon = patience(5);
$member->safe_psql('postgres', "SELECT snowflake_fleet_create(now() + interval '$soon s')");
wait_for_status($member, q{advice ~ '^This server waits for the floor of the fleet'});
is(error_of($member, q{SET snowflake.max_wait = '10min'; SELECT snowflake_next()})->{message},
	'', 'a mint waits for a floor that is nearer than snowflake.max_wait');
is(status($member, 'leases'), 1, 'a server that has waited for the floor has a lease');

my $requests = log_count($coordinator, qr/connection authorized/, $offset);
cmp_ok($requests, '>', 0, 'it has asked for it');
cmp_ok($requests, '<', 60, "seldom: $requests times");

$member->stop;

# Time stands still soon after the tick of the floor has begun, however long this takes.
my $clock = new_clock('member');
$coordinator->safe_psql('postgres', 'DROP SCHEMA snowflake_fleet CASCADE');
start_with_clock($member, $clock);
stop_time($clock);
let_pass(
	$clock,
	1_200 - $member->safe_psql(
		'postgres', 'SELECT (1000 * extract(epoch FROM clock_timestamp()))::bigint % 1000'));
$member->safe_psql('postgres', q{SELECT snowflake_fleet_create(now() + interval '1min')});
wait_for_status($member, q{advice ~ '^This server waits for the floor of the fleet'});
let_pass($clock, 60_000);
$offset = -s $coordinator->logfile;
status($member, 'gate') foreach 1 .. 20;
$requests = log_count($coordinator, qr/connection authorized/, $offset);
cmp_ok($requests, '<', 5, "within one moment it is not asked again and again: $requests times");
is(status($member, 'leases'), 0, 'and grants nothing yet');
like(
	status($member, 'advice'),
	qr/^This server waits for the floor of the fleet/,
	'which the advice says until the tick of the floor is over');
start_time($clock);

# A lease is late when a quarter of it is left, to the end of its last tick.
$member->append_conf('postgresql.conf', q{snowflake.lease = '4s'});
$member->reload;
wait_for_mint($member);
wait_for_status($member, q{lease_until < clock_timestamp() + interval '6s'});
my ($lessee) = children($member, qr/snowflake lessee/);
kill 'STOP', $lessee;
stop_time($clock);
let_pass($clock,
	status($member, 'extract(epoch FROM lease_until - clock_timestamp()) * 1000') - 500);
is(status($member, 'advice'), '', 'half a second before its last tick a lease of four is not late');
let_pass($clock, 1_000);
like(
	status($member, 'advice'),
	qr/The lessee, process $lessee, has not renewed the lease/,
	'in the middle of that it is');
kill 'CONT', $lessee;
start_time($clock);

# One that is no longer than a tick has two of them.
$member->append_conf('postgresql.conf', q{snowflake.lease = '1s'});
$member->reload;
my $renewals = status($member, 'lease_renewals');
wait_for_status($member,
	"lease_renewals > $renewals + 1 AND lease_until < clock_timestamp() + interval '2s'");
wait_for_status($member, q{lease_until > lease_renewed + interval '1s'});
pass('a lease is two ticks long at least');

# IDs that are ahead of the clock have a lease renewed when just half of it is left to them.
$member->append_conf('postgresql.conf', q{snowflake.lease = '10s'});
$member->reload;
wait_for_mint($member);
wait_for_status($member, q{lease_until > clock_timestamp() + interval '7s'});
stop_time($clock);
let_pass($clock, 1_500);    # so long after an attempt there may be another one
my $until = status($member, 'lease_until');
$member->safe_psql('postgres',
	"SELECT snowflake_advance(snowflake_upper_bound('$until'::timestamptz - interval '5s'))");
wait_for_status($member, "lease_until > '$until'");
pass('IDs that reach half of the lease ahead of the clock have it renewed');
start_time($clock);
$member->stop;

# Where the floor of a new fleet is the present tick, who founds it waits for the next one.
$clock = new_clock('prompt');
my $prompt = new_member('prompt', $coordinator,
	conf => "snowflake.layout = 'time:31 node:10 sequence:22 tick:1s epoch:0'\n");
$coordinator->safe_psql('postgres', 'DROP SCHEMA snowflake_fleet CASCADE');
start_with_clock($prompt, $clock);
$prompt->safe_psql('postgres', 'CREATE EXTENSION snowflake');
stop_time($clock);
let_pass(
	$clock,
	1_200 - $prompt->safe_psql(
		'postgres', 'SELECT (1000 * extract(epoch FROM clock_timestamp()))::bigint % 1000'));
my $founding = $prompt->background_psql('postgres');
$founding->query_until(qr/go/,
	"\\echo go\nSELECT snowflake_fleet_create(clock_timestamp()); SELECT leases FROM snowflake_stats;\n"
);
wait_for_status($prompt, q{advice ~ '^This server waits for the floor of the fleet'});
status($prompt, 'gate') foreach 1 .. 20;
let_pass($clock, 1_000);
is($founding->query_safe('SELECT leases FROM snowflake_stats'),
	"\n1\n1", 'snowflake_fleet_create() returns when its server has a lease');
$founding->quit;
start_time($clock);
wait_for_mint($prompt);

# A clock that goes ahead past the end of the lease, and is believed: the lessee, which sleeps by
# the old one, is told.
$prompt->append_conf('postgresql.conf', 'snowflake.jump_patience = 0');
$prompt->reload;
wait_until('the patience is read',
	sub { $prompt->safe_psql('postgres', 'SHOW snowflake.jump_patience') eq '0' });
my $leased = status($prompt, 'leases');
stop_time($clock);
step_clock($clock, 20 * 60_000);
error_of($prompt, q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
let_pass($clock, 1_300);    # a thousandth of it
error_of($prompt, q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
wait_for_status($prompt, "leases > $leased");
pass('a clock that goes past the lease has the lessee ask for another one');
start_time($clock);
$prompt->stop;

# Its time stands still shortly before the floor, where it is granted a node ID already.
$clock = new_clock('early');
my $early = new_member('early', $coordinator, lease => '10min');

$coordinator->safe_psql('postgres', 'DROP SCHEMA snowflake_fleet CASCADE');
start_with_clock($early, $clock);
$early->safe_psql('postgres', 'CREATE EXTENSION snowflake');
stop_time($clock);
$early->safe_psql('postgres', q{SELECT snowflake_fleet_create(now() + interval '1min')});
wait_for_status($early, q{advice ~ '^This server waits for the floor of the fleet'});
let_pass($clock, 60_000 - 300);
wait_for_status($early, 'leases > 0');
is( $early->safe_psql(
		'postgres', q{
		SELECT fleet.leased_from > now(), own.leased_from > fleet.leased_from
		FROM snowflake_fleet() fleet, snowflake_fleet() own
		WHERE fleet.node IS NULL AND own.node IS NOT NULL}),
	't|t',
	'a node ID that is granted before the floor begins above it');
wait_for_mint($early);
is( $early->safe_psql(
		'postgres',
		'SELECT snowflake_timestamp(snowflake_next()) > leased_from FROM snowflake_fleet() WHERE node IS NULL'
	),
	't',
	'and so do its IDs, which are ahead of the clock');
start_time($clock);
wait_for_mint($early);

# No server takes over a record that is damaged, so that the lease is not given up, but there
# is another one.
my $leases = status($early, 'leases');
stop_time($clock);
$coordinator->safe_psql('postgres',
		q{UPDATE snowflake_fleet.records SET value = 'damaged' WHERE key = 'node/}
	  . status($early, 'node')
	  . q{'});
let_pass($clock, 400_000);
$early->reload;
wait_for_status($early, "gate ~ 'went back' OR leases > $leases");
unlike(status($early, 'gate'), qr/went back/, 'a lease whose record is damaged is not given up');
wait_for_status($early, "gate ~ 'went back' OR gate = 'open' AND node <> 0");

# A lease that is revoked cannot be used up, so that this server waits for a floor that is
# ahead, while the lease would last.
$coordinator->safe_psql('postgres',
	q{DELETE FROM snowflake_fleet.records WHERE key = 'node/} . status($early, 'node') . q{'});
let_pass($clock, 400_000);
$early->reload;
wait_for_status($early,
	q{gate = 'closed: the coordinator went back in time' AND coordinator = 'grants nothing'});
$early->safe_psql('postgres', q{SELECT snowflake_fleet_recover(now() + interval '1h')});
wait_for_status($early, q{advice ~ '^This server waits' OR coordinator = 'reachable'});
like(
	status($early, 'advice'),
	qr/^This server waits for the floor of the fleet, until "/,
	'a server whose lease was revoked waits for the floor');
is(status($early, 'lease_until > now()'), 't', 'before the end of what it had');
start_time($clock);

$early->stop;

# A server that founds a fleet was ahead of the clock, and has given up the order with another
# node ID: the floor is above all that it may have minted, for the first node ID can be leased.
my $founder = new_node('founder', conf => "snowflake.lease = '10min'\n");

$coordinator->safe_psql('postgres', 'DROP SCHEMA snowflake_fleet CASCADE');
$founder->start;
$founder->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($founder);
my $ahead = status($founder, q{date_trunc('second', now()) + interval '15min'});
$founder->safe_psql('postgres',
	"SELECT snowflake_advance(snowflake_upper_bound('$ahead'), force => true)");
$founder->append_conf('postgresql.conf', 'snowflake.node_id = 2');
$founder->reload;
wait_for_status($founder, 'node = 2');
$founder->safe_psql('postgres', 'SELECT snowflake_restart_at_clock(2)');
wait_for_mint($founder);
$founder->append_conf('postgresql.conf', member_conf($coordinator, '10min'));
$founder->reload;
wait_for_status($founder, q{current_setting('snowflake.node_source') <> 'setting'});

foreach my $function ('snowflake_fleet_create()', 'snowflake_fleet_recover(holder_is_gone => true)')
{
	is( $founder->safe_psql(
			'postgres',
			"SET client_min_messages = error; SELECT $function; SELECT leased_from >= '$ahead' FROM snowflake_fleet() WHERE node IS NULL"
		),
		"\nt",
		"no floor is below what was minted before the order was given up: $function");
}

$founder->stop;

# A server that is ahead of the clock, and leases a node ID shortly before the floor, goes back
# to the floor, and not below it.
$clock = new_clock('below');
my $below =
  new_node('below', conf => "snowflake.lease = '10min'\nsnowflake.lease_nodes = '10-20'\n");

$coordinator->safe_psql('postgres', 'DROP SCHEMA snowflake_fleet CASCADE');
start_with_clock($below, $clock);
$below->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($below);
$below->safe_psql('postgres',
	q{SELECT snowflake_advance(snowflake_upper_bound(now() + interval '5min'), force => true)});
$below->append_conf('postgresql.conf', member_conf($coordinator, '10min'));
$below->reload;
wait_for_status($below, q{coordinator = 'unreachable'});
stop_time($clock);
$below->safe_psql('postgres', q{SELECT snowflake_fleet_create(now() + interval '1min')});
wait_for_status($below, q{advice ~ '^This server waits for the floor of the fleet'});
let_pass($clock, 60_000 - 300);
wait_for_status($below, q{leases > 0 AND gate = 'open'});
$below->safe_psql('postgres', "SELECT snowflake_restart_at_clock(${\ status($below, 'node')})");
start_time($clock);
is( $below->safe_psql(
		'postgres', q{
		SELECT snowflake_timestamp(snowflake_next()) BETWEEN leased_from AND leased_from + interval '1min'
		FROM snowflake_fleet() WHERE node IS NULL}),
	't',
	'what was ahead goes back to the floor, and not below it');

$below->stop;

# One that leases a node ID shortly before the epoch of its layout writes a record that it can read.
$clock = new_clock('first');
my $epoch = 1000 * (int(time) + 600);
my $first = new_member(
	'first', $coordinator,
	lease => '10min',
	conf => "snowflake.layout = 'time:41 node:10 sequence:12 epoch:$epoch'\n");

$coordinator->safe_psql('postgres', 'DROP SCHEMA snowflake_fleet CASCADE');
start_with_clock($first, $clock);
$first->safe_psql('postgres', 'CREATE EXTENSION snowflake');
stop_time($clock);
$first->safe_psql('postgres', "SELECT snowflake_fleet_create(to_timestamp($epoch / 1000))");
wait_for_status($first, q{advice ~ '^This server waits for the floor of the fleet'});
let_pass(
	$clock,
	$epoch - 300 - $first->safe_psql(
		'postgres', 'SELECT (1000 * extract(epoch FROM clock_timestamp()))::bigint'));
wait_for_status($first, 'leases > 0');
is( $first->safe_psql(
		'postgres', 'SELECT state, leased_from > now() FROM snowflake_fleet() WHERE node = 0'),
	'leased|t',
	'a lease that is granted before the epoch can be read');
start_time($clock);
$first->stop;
$coordinator->stop;
done_testing();
