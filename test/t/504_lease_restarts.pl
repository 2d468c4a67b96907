# Restarts of servers that lease their node IDs, and clocks that change meanwhile: a clean
# restart keeps the node ID, a crash costs it for the length of a lease, and a generator that
# is ahead of the clock keeps it until it is made to go back.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeFleet;
use SnowflakeTest;
use Test::More;
use Time::HiRes qw(time);

# what a start and a mint may take, by the machine
my $slack = patience(2.5);
my $coordinator = new_coordinator();
my $clock = new_clock('server');
my $server = start_member(
	'server', $coordinator,
	lease => '1min',
	clock => $clock,
	conf => "snowflake.lease_nodes = '0-15'\nfsync = off\n",
	founds => '');
my @ids;

# Stop, and start by a clock that is so far from the true time; returns how long it takes to
# mint.
sub mint_after
{
	my ($mode, $ms) = @_;

	$server->stop($mode);
	set_clock($clock, $ms) if defined $ms;
	start_with_clock($server, $clock);
	my $began = time;
	push @ids, query($server, q{SET snowflake.max_wait = '1min'; SELECT snowflake_next()});
	note(sprintf 'after %.3f s', time - $began);
	return time - $began;
}

my $node = status($server, 'node');
cmp_ok(mint_after('fast'), '<', 0.5 + $slack, 'after a clean restart it mints at once');
is(status($server, 'node'), $node, 'with the node ID that it had');
cmp_ok(
	mint_after('immediate'), '<',
	4.5 + $slack,
	'after a crash it mints as soon as reservation and lease permit');
isnt(status($server, 'node'), $node, 'with another node ID');

# By other clocks.  A grant starts above the floor, which a clock that is behind would wait for.
query($server, q{SELECT snowflake_fleet_recover(now() - interval '3 hours')});
foreach my $seconds (-20, 12)
{
	cmp_ok(mint_after('fast', $seconds * 1000),
		'<', patience(2), "clock off by $seconds s: an ID at once");
}
is(disorder(\@ids), 0, 'IDs ascend');
$server->stop;

# Crashes within a lease, for time stands.
set_clock($clock, 0);
stop_time($clock);
$server->append_conf('postgresql.conf', "snowflake.lease_nodes = '20-22'");
my @found;
foreach my $crash (1 .. 4)
{
	start_with_clock($server, $clock);
	wait_for_status($server, q{lease_until IS NOT NULL OR advice ~ 'No node ID is free'});
	push @found, status($server, q{coalesce(node::text, 'none')});
	$server->stop('immediate') if $crash < 4;
}
is("@found", '20 21 22 none', 'with three node IDs the fourth crash within a lease finds none');
my $ends =
  query($server, 'SELECT min(leased_until) FROM snowflake_fleet() WHERE node BETWEEN 20 AND 22');
let_pass($clock, status($server, "extract(epoch FROM '$ends' - clock_timestamp()) * 1000 - 1000"));
$server->reload;
wait_for_status($server, q{advice ~ 'No node ID is free'});
let_pass($clock, 2_000);
$server->reload;
wait_for_status($server, 'lease_until IS NOT NULL');
is(status($server, 'node'), 20, 'until the first lease has ended');
start_time($clock);
$server->stop;

# A clock that is set ahead while a server runs, beyond a lease that would be renewed in a minute by
# it, and is put right: the lease that was taken by it begins far ahead, where its IDs stand.
my $other = new_clock('other');
my $member = start_member('member', $coordinator, lease => '2min', clock => $other);
wait_for_mint($member);
step_clock($other, 300_000);
query($member, 'SELECT snowflake_accept_clock()');
my $began = time;
wait_for_status($member, q{gate = 'open' AND leases = 2});
cmp_ok(time - $began,
	'<', patience(30), 'a server whose clock went beyond its lease leases at once');
step_clock($other, -300_000);
query($member, 'SELECT snowflake_accept_clock()');
$member->reload;
wait_for_mint($member);
is(status($member, q{leases, gate, lead > interval '4min'}),
	'2|open|t', 'a server whose IDs stand ahead keeps its lease when that is put right');
$member->stop;

# A server that mints nothing, and whose clock is an hour ahead: that is judged before anything
# is asked for by it.
my $idle = start_member('idle', $coordinator, clock => $other);
wait_for_mint($idle);
wait_for_status($idle, q{lead < '0'});
my $attempts = status($idle, 'leases + lease_renewals');
step_clock($other, 3_600_000);
wait_for_status($idle, "leases + lease_renewals > $attempts + 1");
is(query($idle, q{SELECT max(leased_until) < now() - interval '30 min' FROM snowflake_fleet()}),
	't', 'an idle server leases nothing by a clock that is not believed');
$idle->stop;

# A server that creates a fleet, and whose clock is an hour behind its coordinator's: it would
# wait for a floor by that one.
query($coordinator, 'DROP SCHEMA snowflake_fleet CASCADE');
my $behind = new_clock('behind');
set_clock($behind, -3_600_000);
my $founder = start_member('founder', $coordinator, clock => $behind, founds => '');
is(listed($founder, q{leased_from < now() + interval '1 min'}),
	't', 'the floor of a new fleet is by the earlier of two clocks');
$founder->stop;

# Clean restarts of a server that is ahead take no node ID more.
my $far = start_member(
	'far', $coordinator,
	lease => '20s',
	conf => "snowflake.lease_nodes = '100-103'\nsnowflake.max_wait = '5s'\n");
wait_for_mint($far);
advance($far, '10min');
foreach (1, 2)
{
	restart_node($far, 'fast');
	wait_for_mint($far);
}
is( query(
		$coordinator,
		q{SELECT string_agg(key, ' ') FROM snowflake_fleet.records WHERE key ~ '^node/10'}),
	'node/100',
	'a server that is ahead keeps its node ID when it is restarted');

# It goes back to the clock with another node ID.
my $newest = mint($far);
query($far, 'SELECT snowflake_restart_at_clock(100)');
my $of_now =
  q{SELECT snowflake_timestamp(snowflake_next()) BETWEEN now() - interval '1 min' AND now() + interval '5 s'};
is(query($far, $of_now), 't', 'snowflake_restart_at_clock() takes another node ID, at the clock');
is(status($far, q{node, lease_until < now() + interval '1 min'}),
	'101|t', 'with a lease that ends soon');
cmp_ok(
	record($coordinator, 100, 'until'),
	'>=',
	$newest >> 22,
	'the old one is not free before its end');
restart_node($far, 'immediate');
wait_for_mint($far);
is(query($far, $of_now), 't', 'after a crash, too');

# So the hint says where IDs are too far ahead to be minted.
advance($far, '2 days');
my ($way_back) = error_of($far, 'SELECT snowflake_next()')->{hint} =~
  /call (snowflake_restart_at_clock\(\d+\)), which leases another node ID\.$/;
query($far, "SELECT $way_back");
is(query($far, $of_now), 't', 'the hint that says so, word for word: IDs of the true time');

done_testing();
