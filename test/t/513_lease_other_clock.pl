# A restart with another clock: the line that is kept judges it before the coordinator is
# asked, so that a server that leases its node ID mints at once, and wastes no node IDs.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder new_clock new_coordinator new_member patience set_clock start_with_clock status
  wait_for_mint wait_for_status
);
use Test::More;
use Time::HiRes qw(time);

my $coordinator = new_coordinator();
my $clock = new_clock('member');
my $member = new_member('member', $coordinator);
my @ids;
my %nodes;

start_with_clock($member, $clock);
$member->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
wait_for_mint($member);

# a grant starts above the floor, which a clock that is behind would wait for
$member->safe_psql('postgres', q{SELECT snowflake_fleet_recover(now() - interval '3 hours')});
foreach my $seconds (-20, -10, -5, 0, 5, 12)
{
	$member->stop;
	set_clock($clock, $seconds * 1000);
	start_with_clock($member, $clock);

	my $began = time;
	push @ids,
	  $member->safe_psql('postgres', q{SET snowflake.max_wait = '1min'; SELECT snowflake_next()});
	my $took = time - $began;
	cmp_ok($took, '<', patience(2), sprintf 'clock off by %d s: an ID after %.3f s',
		$seconds, $took);
	$nodes{ status($member, 'node') } = 1;
}
is(disorder(\@ids), 0, 'the IDs ascend');
cmp_ok(scalar(keys %nodes), '<', 5, 'few node IDs are used');

# A crash with a lot to recover, and a clock that is an hour behind afterwards: the lessee, which
# is there before the keeper, waits for that to judge it.
$member->safe_psql('postgres',
	q{CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 60000)});
$member->stop('immediate');
set_clock($clock, -3_600_000);
start_with_clock($member, $clock);
wait_for_mint($member);
is(status($member, 'leases'), 1, 'nothing is leased by a clock of before the recovery');
$member->stop;

# A server that mints nothing, and whose clock is an hour ahead: that is judged before anything
# is asked for by it.
$clock = new_clock('idle');
my $idle = new_member('idle', $coordinator);
start_with_clock($idle, $clock);
$idle->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($idle);
wait_for_status($idle, q{lead < '0'});
my $attempts = status($idle, 'leases + lease_renewals');
set_clock($clock, 3_600_000);
wait_for_status($idle, "leases + lease_renewals > $attempts + 1");
is( $idle->safe_psql(
		'postgres', q{SELECT max(leased_until) < now() - interval '30 min' FROM snowflake_fleet()}),
	't',
	'an idle server leases nothing by a clock that is not believed');
$idle->stop;

# A server that creates a fleet, and whose clock is an hour behind its coordinator's: it would
# wait for a floor by that one.
$coordinator->safe_psql('postgres', 'DROP SCHEMA snowflake_fleet CASCADE');
$clock = new_clock('behind');
set_clock($clock, -3_600_000);
my $behind = new_member('behind', $coordinator);
start_with_clock($behind, $clock);
$behind->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
is( $behind->safe_psql(
		'postgres',
		q{SELECT leased_from < now() + interval '1 min' FROM snowflake_fleet() WHERE node IS NULL}),
	't',
	'the floor of a new fleet is by the earlier of two clocks');
wait_for_mint($behind);
$behind->stop;
done_testing();
