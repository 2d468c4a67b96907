# A coordinator that has lost its data, or went back in time: nothing is granted, who
# has a lease uses it up or closes, and snowflake_fleet_recover() brings all back.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  children duplicates error_at_once error_of log_count mint_together new_clock new_coordinator
  new_member patience set_clock start_with_clock status wait_for_mint wait_for_status
  wait_until
);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

# as short as the machine permits that something is done within it
my $lease = patience(6);
my $coordinator = new_coordinator();
my @lists;

sub records
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

# Make the fleet sound again.  Each server whose lease was forgotten notes that down when it
# looks, maybe just now: then the error says to try again.
sub recover
{
	my ($node) = @_;

	wait_until(
		'the fleet is recovered',
		sub {
			my $refused = error_of($node, 'SELECT snowflake_fleet_recover()');

			die $refused->{message} if $refused->{sqlstate} !~ /^(?:55006)?$/;
			return $refused->{sqlstate} eq '';
		});
	return;
}

my ($one, $two, $three) =
  map { new_member($_, $coordinator, lease => "${lease}s") } qw(one two three);
$one->start;
$one->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
$two->start;
$two->safe_psql('postgres', 'CREATE EXTENSION snowflake');
push @lists, mint_together(1, $one, $two);

# The coordinator loses its data.
records('TRUNCATE snowflake_fleet.records');
$two->stop('immediate');
$two->start;
wait_for_status($two, q{advice ~ '^The coordinator has no fleet: .*snowflake_fleet_recover'});
pass('nobody gets a node ID');
wait_for_status($one, q{coordinator = 'grants nothing'});
like(
	status($one, 'advice'),
	qr/^Minting ends with the lease\. The coordinator has no fleet/,
	'who has one says so');
isnt($one->safe_psql('postgres', 'SELECT snowflake_next()'), '', 'and goes on');
wait_for_status($one, q{gate = 'closed: the lease of the node ID has ended'});
is( error_of($one, 'SELECT snowflake_next()')->{hint},
	status($one, 'advice'),
	'up to the end of the lease');
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
push @lists, mint_together(1, $one, $two);
is(duplicates(@lists), 0, 'snowflake_fleet_recover() brings all back, no ID twice');

# Recovered at once, where only the schema is left: who has a lease uses it up, while the new
# ones begin later.
records('DROP TABLE snowflake_fleet.records');
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
my $used_up = status($one, sprintf(q{lease_until - interval '%d s'}, $lease / 4));
do
{
	die 'does not mint' unless $one->safe_psql('postgres', q{SELECT snowflake_next()});
	sleep 0.1;
} until status($one, "now() > '$used_up'") eq 't';
pass('who has a lease mints on after snowflake_fleet_recover()');
push @lists, mint_together(1, $one, $two);
is(duplicates(@lists), 0, 'and then with another, no ID twice');

# The coordinator goes back in time: the own record is older than is known.
# The lease of before may not have been used up yet: then there is none.
my $old;
wait_until(
	'the holder has a record',
	sub {
		$old =
		  records(q{SELECT quote_literal(value) FROM snowflake_fleet.records WHERE key = 'node/}
			  . status($one, 'node')
			  . q{'});
		return $old ne '';
	});
my $renewed = status($one, 'lease_renewals');
wait_for_status($one, "lease_renewals > $renewed");
my $log_size = -s $one->logfile;
records("UPDATE snowflake_fleet.records SET value = $old WHERE key = 'node/"
	  . status($one, 'node')
	  . q{'});
wait_for_status($one, q{gate = 'closed: the coordinator went back in time'});
my $refused = status($one, 'refused_node');
my $error = error_at_once($one);
is( $error->{message},
	q{this server's node ID may be leased again by another server},
	'the holder closes at once, and refuses mints at once');
is(status($one, 'refused_node') - $refused, 1, 'which is counted');
like($error->{hint}, qr/snowflake_fleet_recover\(\)/, 'with a hint');
$one->reload;    # it looks again, at once
$two->poll_query_until('postgres',
	q{SELECT state = 'fleet, grants nothing until snowflake_fleet_recover()' FROM snowflake_fleet() WHERE node IS NULL}
) or die 'the fleet is not marked';
pass('and marks the fleet');
is( $two->safe_psql(
		'postgres',
		q{SELECT leased_until >= '}
		  . status($one, 'lease_until')
		  . q{' AND holder ~ ':}
		  . join(' ', $one->port, $one->data_dir)
		  . q{$' FROM snowflake_fleet() WHERE node IS NULL}),
	't',
	'with its name, and the end of its own lease');
$three->start;
$three->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_status($three, q{advice ~ '^The coordinator went back in time'});
$refused = status($three, 'refused_node');
is( error_at_once($three)->{message},
	'this server has not leased a node ID',
	'a server that has none is refused at once');
is(status($three, 'refused_node') - $refused, 1, 'which is counted as well');
is( log_count(
		$one, qr/WARNING:  the coordinator of the snowflake fleet went back in time: it does not/,
		$log_size),
	1,
	'the holder, which has looked several times, logs it once');
$two->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
push @lists, mint_together(1, $one, $two, $three);
is(duplicates(@lists), 0, 'after snowflake_fleet_recover() all mint, no ID twice');

# The record is gone.
records(q{DELETE FROM snowflake_fleet.records WHERE key = 'node/} . status($two, 'node') . q{'});
wait_for_status($two, q{gate = 'closed: the coordinator went back in time'});
pass('the holder of a node ID whose record is gone closes as well');

# Founded again with a floor that is too low
records('TRUNCATE snowflake_fleet.records');
$two->safe_psql('postgres', q{SELECT snowflake_fleet_recover(now() - interval '1h')});
$two->poll_query_until('postgres',
	q{SELECT state ~ 'grants nothing' FROM snowflake_fleet() WHERE node IS NULL})
  or die 'not noticed';
pass('a floor below a lease is noticed');
recover($two);
wait_for_mint($_) foreach $one, $two, $three;

# A fleet that is suspect renews nothing either, for who has lost a grant may find the
# record of it again.  A server that has closed has reported up to where it had a lease.
my $mark =
  q{UPDATE snowflake_fleet.records SET value = jsonb_set(jsonb_set(value::jsonb, '{suspect}', '%s'), '{%s}',
	to_jsonb((value::jsonb ->> 'floor')::bigint + %d))::text WHERE key = 'fleet'};
$_->stop foreach $two, $three;
records(sprintf $mark, 'true', 'reported', 3_600_000);
wait_for_status($one, q{coordinator = 'grants nothing'});
my $until = status($one, 'lease_until');
wait_for_status($one,
	"gate = 'closed: the lease of the node ID has ended' OR lease_until <> '$until'");
is(status($one, 'lease_until'), $until, 'a fleet that is suspect renews nothing');
is(status($one, 'coordinator'), 'grants nothing', 'and that is what the status says to the end');

foreach my $floor (q{now()}, q{now() + interval '2 hours'}, q{now()})
{
	$error = error_of($one, "SELECT snowflake_fleet_recover($floor)");
	is( $error->{message},
		$floor eq 'now()' ? 'the floor of the fleet is too low' : '',
		"a floor is not below what was reported, nor later: $floor");
}
$error = error_of($one, 'SELECT snowflake_fleet_recover()');
like(
	$error->{message},
	qr/^the floor of the fleet would be [\d.]+ \w+ ahead of the clock$/,
	'a floor far ahead is refused by default');
is($error->{sqlstate}, '55000', 'with its SQLSTATE');
wait_for_status($one, q{advice ~ '^This server waits for the floor of the fleet, until "'});
pass('and if it was named, a server waits for it');
$error = error_of($one, q{SELECT snowflake_fleet_recover(now() + interval '3 hours')});
is($error->{message}, '', 'another one may be named');
wait_for_status($one,
	q{substring(advice FROM 'until "(.*?)"')::timestamptz > now() + interval '150 min'});
pass('which is waited for then');
is(error_at_once($one)->{hint}, status($one, 'advice'), 'with a closed gate');

# Its own default is not too low, and neither is the very end that was reported.
my $near = $one->safe_psql(
	'postgres',
	q{SELECT sum(setting::int * CASE name WHEN 'snowflake.lease' THEN 2 ELSE 1 END) FROM pg_settings
	   WHERE name IN ('snowflake.lease', 'snowflake.max_jump')});
records(
	qq{UPDATE snowflake_fleet.records SET value = jsonb_set(jsonb_set(value::jsonb, '{floor}', '0'), '{reported}',
	to_jsonb(floor(1000 * extract(epoch FROM clock_timestamp()))::bigint - 1288834974657 + $near))::text WHERE key = 'fleet'}
);
my $at_end = q{SELECT (value::jsonb -> 'floor') = (value::jsonb -> 'reported')
	FROM snowflake_fleet.records WHERE key = 'fleet'};
is(error_of($one, 'SELECT snowflake_fleet_recover()')->{message},
	'', 'by default a floor is at the end that was reported, if that is near');
is(records($at_end), 't', 'and not above it');
my $to_floor =
  q{SELECT snowflake_fleet_recover(leased_from - interval '%d ms') FROM snowflake_fleet() WHERE node IS NULL};
is(error_of($one, sprintf $to_floor, 0)->{message}, '', 'a floor at that end can be named');
is(records($at_end), 't', 'and is what was named');
is( error_of($one, sprintf $to_floor, 1)->{message},
	'the floor of the fleet is too low',
	'one that is a tick lower cannot');
$error = error_of($one, 'SELECT snowflake_fleet_recover(NULL, NULL)');
is($error->{sqlstate}, '22004', 'whether a holder is gone is known');
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover(holder_is_gone => true)');
wait_for_status($one, q{gate = 'open' AND lead < '10s'});
pass('until somebody knows that the holder is gone: all mint, without a restart');
my ($lessee) = children($one, qr/snowflake lessee/);

# A lessee that is stopped says nothing, so others do: before the lease ends, and then.
kill 'STOP', $lessee;
my $stopped = "The lessee, process $lessee, has not renewed the lease since";
wait_for_status($one, "advice ~ '$stopped'");
wait_until('the lease ends',
	sub { ($error = error_of($one, 'SELECT snowflake_next()'))->{sqlstate} ne '' });
is( $error->{message},
	q{the lease of this server's node ID has ended},
	'a lessee is stopped: the lease ends');
like($error->{hint}, qr/^$stopped "/, 'and the hint says why');
like(status($one, 'advice'), qr/^$stopped "/, 'as the advice does');
kill 'CONT', $lessee;
wait_for_status($one, q{gate = 'open'});

# So they do if it was stopped while it waited for a floor, at the end of its own lease, and
# the floor has come.
wait_until(
	'the lessee waits for the floor',
	sub {
		recover($one);
		kill 'STOP', $lessee;
		return 1 if status($one, 'advice') =~ /^This server waits for the floor of the fleet/;
		kill 'CONT', $lessee;
		return 0;
	});
wait_for_status($one, "advice ~ '$stopped'");
pass('a floor that has come is not waited for');
kill 'CONT', $lessee;
wait_for_status($one, q{gate = 'open'});

# Somebody has changed the fleet's record: who has a lease uses it up, and then takes
# another.
records(sprintf $mark, 'false', 'floor', 1);
$until = status($one, 'lease_until');
my $leases = status($one, 'leases');
wait_for_status($one, "leases > $leases AND gate = 'open'");
is($one->safe_psql('postgres', "SELECT max(leased_from) > '$until' FROM snowflake_fleet()"),
	't', 'no other lease is taken before the end of one');

# The same node ID leased again is another lease.  The keeper, which did not see that
# the one before had ended, does not go on there: it may have been somebody else's.
my $node = status($one, 'node');
my $keeper = status($one, 'keeper_pid');
$one->append_conf('postgresql.conf', "snowflake.lease_nodes = '$node'");
$one->reload;
kill 'STOP', $keeper, $lessee;
$until = status($one, 'lease_until');
$coordinator->poll_query_until('postgres', "SELECT clock_timestamp() > '$until'")
  or die 'clock stands still';
records('TRUNCATE snowflake_fleet.records');
$one->safe_psql('postgres', q{SELECT snowflake_fleet_recover(now() + interval '8s')});
my $floor =
  $one->safe_psql('postgres', 'SELECT leased_from FROM snowflake_fleet() WHERE node IS NULL');
$leases = status($one, 'leases');
kill 'CONT', $lessee;
wait_for_status($one, "leases > $leases");
kill 'CONT', $keeper;
is( $one->safe_psql(
		'postgres',
		"SET snowflake.max_wait = '1min'; SELECT snowflake_timestamp(snowflake_next()) > '$floor'"),
	't',
	'the same node ID, leased again, begins where the new lease does');

# What was minted with it is known when it is given back.
my $newest = $one->safe_psql('postgres', 'SELECT snowflake_next()');
$one->stop;
is( records(
		"SELECT (value::jsonb ->> 'until')::bigint >= $newest >> 22 FROM snowflake_fleet.records WHERE key = 'node/$node'"
	),
	't',
	'and is not given back as one that was not used');
$one->start;
wait_for_mint($one);

# Founded again, and by the time that the holder looks somebody else has had the same
# node ID, and the floor is above both leases.  The record of the fleet comes first, as it
# does for lessees, so that neither waits for the other.
$leases = status($one, 'leases');
records(
	qq{
	BEGIN;
	UPDATE snowflake_fleet.records SET value = jsonb_set(jsonb_set(value::jsonb, '{incarnation}', '"another"'), '{floor}',
		to_jsonb((value::jsonb ->> 'floor')::bigint + 60000))::text WHERE key = 'fleet';
	UPDATE snowflake_fleet.records SET value = jsonb_set(value::jsonb, '{token}', '"somebody else"')::text WHERE key = 'node/$node';
	COMMIT});
wait_for_status($one, "gate ~ 'went back' OR leases > $leases");
is( status($one, 'gate'),
	'closed: the coordinator went back in time',
	'a lease that somebody else had as well is noticed');
wait_for_status($one, q{advice ~ '^This server waits for the floor of the fleet'});
pass('it is given up for another one');
is($one->safe_psql('postgres', 'SELECT state FROM snowflake_fleet() WHERE node IS NULL'),
	'fleet', 'and the fleet is not marked once more');

# Founded again, with a floor below the lease of the only server
records('TRUNCATE snowflake_fleet.records');
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
wait_for_mint($one);
$leases = status($one, 'leases');
records('TRUNCATE snowflake_fleet.records');
$one->safe_psql('postgres', q{SELECT snowflake_fleet_recover(now() - interval '1h')});
wait_for_status($one, "gate ~ 'went back' OR leases > $leases");
is( status($one, 'gate'),
	'closed: the coordinator went back in time',
	'a floor below its lease is noticed by the only server, too');
recover($one);

# A server whose clock is before the layout's epoch waits for the fleet's floor.
my $clock = new_clock('early');
set_clock($clock, -20 * 365 * 86_400_000);
start_with_clock($three, $clock);
wait_for_status($three, q{advice ~ '^This server waits for the floor of the fleet'});
$three->stop;
set_clock($clock, 0);
start_with_clock($three, $clock);
wait_for_mint($three);
pass('a clock before the epoch is no end of leasing');

$_->stop foreach $one, $three, $coordinator;
done_testing();
