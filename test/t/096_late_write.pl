# A write that arrives when the coordinator has lost its data meanwhile: there is no
# record that could tell it that it comes too late, and it grants nothing.  Nor does it
# if there is a fleet again.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $coordinator = SnowflakeTest::new_coordinator();
my $one = SnowflakeTest::new_node('one',
	node_id => undef,
	conf => "snowflake.node_source = '" . SnowflakeTest::coordinator_url($coordinator) . "'\nsnowflake.lease = '20s'\n");

sub status
{
	return SnowflakeTest::status($one, 'postgres', $_[0]);
}

$one->start;
$one->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
SnowflakeTest::wait_for_mint($one, 'postgres');
$one->stop;
$coordinator->safe_psql('postgres', q{DELETE FROM snowflake_fleet.records WHERE key ~ '^node/'});

# The server reads the fleet's record, and its own new one waits for a lock that
# lets others read.
my $session = $coordinator->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE snowflake_fleet.records IN SHARE ROW EXCLUSIVE MODE');
$one->start;
$coordinator->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'snowflake' AND wait_event_type = 'Lock'})
  or die 'nothing is written';
$session->query_safe('DELETE FROM snowflake_fleet.records; COMMIT');
$session->quit;
$coordinator->poll_query_until('postgres', q{SELECT count(*) = 1 FROM snowflake_fleet.records})
  or die 'the late write is not done';
$one->poll_query_until('postgres', q{SELECT coordinator = 'grants nothing' OR leases > 0 FROM snowflake_status()})
  or die 'the coordinator is not asked';
is(status('leases'), '0', 'a late write to a coordinator that has lost its data grants nothing');

# Founded again
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover(now())');
SnowflakeTest::wait_for_mint($one, 'postgres');
is(status('leases'), '1', 'it does when the fleet was founded again');

# What is said of times
my $error = SnowflakeTest::error_of($one, 'postgres', q{SELECT snowflake_fleet_recover('2001-01-01')});
my ($first, $last) = $error->{detail} =~ /^The layout has times from "(\d+)-.*" to "(\d+)-.*"\.$/;
cmp_ok($last, '>', $first + 60, 'a floor outside the layout is refused with the times that it has');
($first, $last) = slurp_file($one->logfile) =~ /It is for times from "(.*)" up to "(.*)", and will be renewed/;
cmp_ok($last, 'gt', $first, 'the log says for which times a node ID is leased');
# A write that arrives when the fleet was founded again meanwhile: nothing is in its
# way, but what it says may lie below the new fleet's floor.
$one->stop;
$coordinator->safe_psql('postgres', q{DELETE FROM snowflake_fleet.records WHERE key ~ '^node/'});
$session = $coordinator->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE snowflake_fleet.records IN SHARE ROW EXCLUSIVE MODE');
$one->start;
$coordinator->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'snowflake' AND wait_event_type = 'Lock'})
  or die 'nothing is written';
$session->query_safe(
	q{UPDATE snowflake_fleet.records SET value = regexp_replace(value, '("incarnation": ")....', '\1none'); COMMIT});
$session->quit;
SnowflakeTest::wait_for_mint($one, 'postgres');
is( $coordinator->safe_psql('postgres', sprintf(q{
		SELECT node.value::json ->> 'incarnation' = fleet.value::json ->> 'incarnation'
		FROM snowflake_fleet.records node, snowflake_fleet.records fleet
		WHERE node.key = 'node/%d' AND fleet.key = 'fleet'}, status('node'))),
	't',
	'nor does one to a fleet that was founded again: what is used is of the new one');

$_->stop foreach $one, $coordinator;
done_testing();
