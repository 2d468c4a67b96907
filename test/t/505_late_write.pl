# A write that arrives, or whose answer arrives, after the coordinator has lost its data or
# the fleet was re-created: the record of the node ID cannot show that it is too late, but the
# record of the fleet does.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeFleet;
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $coordinator = new_coordinator();
my $clock = new_clock('one');
my $one = start_member('one', $coordinator, lease => '20s', clock => $clock, founds => '');
my $no_grants = q{DELETE FROM snowflake_fleet.records WHERE key ~ '^node/'};
my $granted = q{SELECT count(*) FROM snowflake_fleet.records WHERE key ~ '^node/'};
my $let_read = 'LOCK TABLE snowflake_fleet.records IN SHARE ROW EXCLUSIVE MODE';

# The server starts anew, without a lease, and its first write waits for what this statement
# of a session of the coordinator has locked.  Returns the session.
sub hold_first_write
{
	my ($locks) = @_;
	my $session = $coordinator->background_psql('postgres');

	$one->stop;
	query($coordinator, $no_grants);
	$session->query_safe("BEGIN; $locks");
	start_with_clock($one, $clock);
	wait_for_query($coordinator,
		q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'snowflake' AND wait_event_type = 'Lock'}
	);
	return $session;
}

# The fleet is founded again, with this incarnation: a statement.  The floor is what a late
# write says nothing of.
my $floor = query($one, q{SELECT snowflake_lower_bound(now() + interval '15s')::bigint >> 22});

sub found_again
{
	my ($incarnation) = @_;

	return qq{UPDATE snowflake_fleet.records SET value = regexp_replace(
		regexp_replace(value, '"floor": \\d+', '"floor": $floor'), '("incarnation": ")....', '\\1$incarnation')
	  WHERE key = 'fleet'};
}

# The server reads the fleet's record, and its own new one waits for a lock that
# lets others read.
my $session = hold_first_write($let_read);
$session->query_safe('DELETE FROM snowflake_fleet.records; COMMIT');
$session->quit;
wait_for_status($one, q{coordinator = 'grants nothing' OR leases > 0});
is(status($one, 'leases'),
	'0', 'a late write to a coordinator that has lost its data grants nothing');
is(query($coordinator, 'SELECT count(*) FROM snowflake_fleet.records'), '0', 'and writes nothing');
query($one, 'SELECT snowflake_fleet_recover(now())');
wait_for_mint($one);
is(status($one, 'leases'), '1', 'it does when the fleet was founded again');

# Nothing is in the way of the write, but what it says may lie below the new fleet's floor.
# It waits for the founder, and does nothing then.
$session = hold_first_write(found_again('none'));
$session->query_safe('COMMIT');
$session->quit;
wait_for_mint($one);
cmp_ok(record($coordinator, status($one, 'node'), 'from'),
	'>', $floor,
	'nor does one to a fleet that was founded again: what is used is above the new floor');

# An answer that is there, but is heard when the fleet was founded again: the lessee
# stood still.
my $lessee;
for my $try (1 .. 10)
{
	$session =
	  hold_first_write(q{SELECT FROM snowflake_fleet.records WHERE key = 'fleet' FOR UPDATE});
	$lessee = lessee($one);
	freeze($lessee);
	$session->query_safe('COMMIT');

	# unless the machine was so slow that the write has been given up
	wait_for_query($coordinator,
		"SELECT ($granted) = 1 OR NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'snowflake' AND state = 'active')"
	);
	last if query($coordinator, $granted) eq '1';
	die 'it is not granted' if $try == 10;
	thaw();
}
$floor = query($one, q{SELECT snowflake_lower_bound(now() + interval '15s')::bigint >> 22});
$session->query_safe(found_again('gone'));
$session->quit;
stop_time($clock);
let_pass($clock, 6_000);    # longer than an answer counts
start_time($clock);
thaw();
wait_for_mint($one);
like(
	slurp_file($one->logfile),
	qr/the answer of the coordinator arrived too late/,
	'an answer that is heard late does not count');
is(status($one, 'leases'), '1', 'what it said was granted is not used');
cmp_ok(record($coordinator, status($one, 'node'), 'from'),
	'>', $floor, 'but what the fleet grants that was founded since');

# Two sessions write the fleet's record at the same moment: they do so one after the other.
$session = session($coordinator, 'BEGIN; LOCK TABLE snowflake_fleet.records IN ROW EXCLUSIVE MODE');
my @founders =
  map { start_statement($one, "\\set VERBOSITY verbose\nSELECT snowflake_fleet_recover()") } 1, 2;
wait_for_query($coordinator,
	q{SELECT count(*) = 2 FROM pg_stat_activity WHERE query ~ 'LOCK TABLE' AND wait_event_type = 'Lock'}
);
$session->query_safe('COMMIT');
$session->quit;
finish_statement($_) foreach @founders;
my @errors = grep { /ERROR/ } map { $_->{stderr} } @founders;
is(scalar(@errors), 1, 'snowflake_fleet_recover() at the same moment: one does it');
like(
	"@errors",
	qr/ERROR:  55006: the record of the snowflake fleet was changed concurrently/,
	'and the other is told of it');
$_->quit foreach @founders;

done_testing();
