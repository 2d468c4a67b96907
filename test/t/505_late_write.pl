# A write that arrives when the coordinator has lost its data meanwhile, or when the
# fleet was founded again: no record of a node ID could tell it that it comes too late,
# the record of the fleet does.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  children error_of new_coordinator new_member status wait_for_mint wait_until
);
use PostgreSQL::Test::Utils;
use Test::More;

my $coordinator = new_coordinator();
my $one = new_member('one', $coordinator, lease => '20s');

# Its write waits for whoever has locked something.
sub start_until_it_waits
{
	$one->start;
	$coordinator->poll_query_until('postgres',
		q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'snowflake' AND wait_event_type = 'Lock'}
	) or die 'the write does not wait';
	return;
}

$one->start;
$one->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
wait_for_mint($one);
$one->stop;
$coordinator->safe_psql('postgres', q{DELETE FROM snowflake_fleet.records WHERE key ~ '^node/'});

# The server reads the fleet's record, and its own new one waits for a lock that
# lets others read.
my $session = $coordinator->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE snowflake_fleet.records IN SHARE ROW EXCLUSIVE MODE');
start_until_it_waits();
$session->query_safe('DELETE FROM snowflake_fleet.records; COMMIT');
$session->quit;
$one->poll_query_until('postgres',
	q{SELECT coordinator = 'grants nothing' OR leases > 0 FROM snowflake_status, snowflake_stats})
  or die 'the coordinator is not asked';
is(status($one, 'leases'),
	'0', 'a late write to a coordinator that has lost its data grants nothing');
is($coordinator->safe_psql('postgres', 'SELECT count(*) FROM snowflake_fleet.records'),
	'0', 'and writes nothing');

# Founded again
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover(now())');
wait_for_mint($one);
is(status($one, 'leases'), '1', 'it does when the fleet was founded again');

# What is said of times
my $error = error_of($one, q{SELECT snowflake_fleet_recover('2001-01-01')});
my ($first, $last) = $error->{detail} =~ /^The layout has times from "(\d+)-.*" to "(\d+)-.*"\.$/;
cmp_ok($last, '>', $first + 60, 'a floor outside the layout is refused with the times that it has');
is( error_of($one, 'SELECT snowflake_fleet_recover(layout_ends) FROM snowflake_status')->{message},
	'the floor of a fleet must be within its layout',
	'as is one at its last tick, after which nothing could be granted');
($first, $last) = slurp_file($one->logfile) =~
  /The lease covers times from "(.*)" up to "(.*)", and will be renewed/;
cmp_ok($last, 'gt', $first, 'the log says for which times a node ID is leased');

# A write that arrives when the fleet was founded again meanwhile: nothing is in its
# way, but what it says may lie below the new fleet's floor.  It waits for who founds,
# and does nothing then.
my $floor =
  $one->safe_psql('postgres', q{SELECT snowflake_lower_bound(now() + interval '8s')::bigint >> 22});
$one->stop;
$coordinator->safe_psql('postgres', q{DELETE FROM snowflake_fleet.records WHERE key ~ '^node/'});
$session = $coordinator->background_psql('postgres');
$session->query_safe(
	sprintf(
		q{BEGIN; UPDATE snowflake_fleet.records SET value = regexp_replace(
		regexp_replace(value, '"floor": \d+', '"floor": %s'), '("incarnation": ")....', '\1none')
	  WHERE key = 'fleet'}, $floor));
start_until_it_waits();
$session->query_safe('COMMIT');
$session->quit;
wait_for_mint($one);
cmp_ok(
	$coordinator->safe_psql(
		'postgres',
		sprintf(q{SELECT value::json ->> 'from' FROM snowflake_fleet.records WHERE key = 'node/%d'},
			status($one, 'node'))),
	'>', $floor,
	'nor does one to a fleet that was founded again: what is used is above the new floor');

# An answer that is there, but is heard when the fleet was founded again: the lessee
# stood still.
$one->stop;
$coordinator->safe_psql('postgres', q{DELETE FROM snowflake_fleet.records WHERE key ~ '^node/'});
$session = $coordinator->background_psql('postgres');
my $lessee;
for my $try (1 .. 10)
{
	$session->query_safe(
		q{BEGIN; SELECT FROM snowflake_fleet.records WHERE key = 'fleet' FOR UPDATE});
	start_until_it_waits();
	($lessee) = children($one, qr/snowflake lessee/);
	kill 'STOP', $lessee;
	$session->query_safe('COMMIT');

	# unless the machine was so slow that the write has been given up
	my $granted = q{SELECT count(*) FROM snowflake_fleet.records WHERE key ~ '^node/'};
	$coordinator->poll_query_until('postgres',
		"SELECT ($granted) = 1 OR NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'snowflake' AND state = 'active')"
	);
	last if $coordinator->safe_psql('postgres', $granted) eq '1';
	die 'it is not granted' if $try == 10;
	kill 'CONT', $lessee;
	$one->stop;
}
$floor =
  $one->safe_psql('postgres', q{SELECT snowflake_lower_bound(now() + interval '8s')::bigint >> 22});
$session->query_safe(
	sprintf(
		q{UPDATE snowflake_fleet.records SET value = regexp_replace(
		regexp_replace(value, '"floor": \d+', '"floor": %s'), '("incarnation": ")....', '\1gone') WHERE key = 'fleet'},
		$floor));
$session->quit;
sleep 6;    # longer than an answer counts
kill 'CONT', $lessee;
wait_for_mint($one);
like(
	slurp_file($one->logfile),
	qr/the answer of the coordinator arrived too late/,
	'an answer that is heard late does not count');
is(status($one, 'leases'), '1', 'what it said was granted is not used');
cmp_ok(
	$coordinator->safe_psql(
		'postgres',
		sprintf(q{SELECT value::json ->> 'from' FROM snowflake_fleet.records WHERE key = 'node/%d'},
			status($one, 'node'))),
	'>', $floor,
	'but what the fleet grants that was founded since');

# A write that is in doubt, and whose record somebody empties meanwhile: that is nobody's.
$one->stop;
$coordinator->safe_psql('postgres', q{DELETE FROM snowflake_fleet.records WHERE key ~ '^node/'});
$session = $coordinator->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE snowflake_fleet.records IN SHARE ROW EXCLUSIVE MODE');
start_until_it_waits();
my $waiting = $coordinator->safe_psql('postgres',
	q{SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'snowflake'});

sub is_left
{
	return $coordinator->safe_psql('postgres',
		"SELECT count(*) FROM pg_stat_activity WHERE pid = $waiting");
}
wait_until('the write is given up', sub { status($one, 'lease_errors') > 0 });
wait_until(
	'its session is gone, or two more are given up',
	sub { !is_left() || status($one, 'lease_errors') > 2 });
is(is_left(), '0', 'a session that nobody waits for goes on waiting for no lock');
$session->query_safe(q{INSERT INTO snowflake_fleet.records VALUES ('node/0', ''); COMMIT});
$session->quit;
wait_for_mint($one);
isnt(status($one, 'node'), '0', 'an emptied record is not taken for what was in doubt');

# Who founds the fleet again does not wait for a moment in which nobody renews, as lessees do:
# in one statement.
$coordinator->safe_psql(
	'postgres',
	q{CREATE PROCEDURE renew(n int) LANGUAGE plpgsql AS $$BEGIN
		FOR i IN 1 .. 10000 LOOP
			WITH guard AS (SELECT FROM snowflake_fleet.records WHERE key = 'fleet' FOR SHARE)
			UPDATE snowflake_fleet.records SET value = value
			 WHERE key = 'node/100' || n AND EXISTS (SELECT FROM guard);
			PERFORM pg_sleep(0.2);
			COMMIT;
		END LOOP; END$$});
my @handles;
foreach my $n (1 .. 3)
{
	push @handles,
	  IPC::Run::start(
		[
			'psql', '-XqAt', '-d', $coordinator->connstr('postgres'),
			'-c', "SELECT pg_sleep(0.07 * $n)", '-c', "CALL renew($n)"
		],
		'<',
		\undef,
		'>',
		\my $out,
		'2>',
		\my $err);
}
$coordinator->poll_query_until('postgres',
	q{SELECT count(*) = 3 FROM pg_stat_activity WHERE query ~ '^CALL renew'})
  or die 'nobody renews';
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
is( $coordinator->safe_psql(
		'postgres',
		q{SELECT count(*) FROM pg_stat_activity WHERE query ~ '^CALL renew' AND state = 'active'}),
	'3',
	'while others renew all the time, a fleet is founded again');
$_->kill_kill foreach @handles;
$coordinator->safe_psql('postgres',
	q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ '^CALL renew'});
$coordinator->poll_query_until('postgres',
	q{SELECT count(*) = 0 FROM pg_stat_activity WHERE query ~ '^CALL renew'})
  or die 'they renew for ever';

# Two sessions write the fleet's record at the same moment: they do so one after the other.
foreach my $case (
	[
		'snowflake_fleet_recover()',
		qr/ERROR:  55006: the record of the snowflake fleet was changed concurrently/
	],
	[
		'snowflake_fleet_create()',
		qr/ERROR:  42710: the coordinator already has a snowflake fleet/
	])
{
	my ($function, $refusal) = @$case;
	my @founders;

	if ($function =~ /create/)
	{
		# by a server that has had no lease
		$coordinator->safe_psql('postgres', 'TRUNCATE snowflake_fleet.records');
		$one->restart;
	}
	$session = $coordinator->background_psql('postgres');
	$session->query_safe('BEGIN; LOCK TABLE snowflake_fleet.records IN ROW EXCLUSIVE MODE');
	foreach my $i (0, 1)
	{
		my %founder;

		$founder{run} = IPC::Run::start(
			[
				'psql', '-XqAt', '-v', 'VERBOSITY=verbose',
				'-d', $one->connstr('postgres'), '-c', "SELECT $function"
			],
			'<',
			\undef,
			'>',
			\$founder{out},
			'2>',
			\$founder{err});
		push @founders, \%founder;
	}
	$coordinator->poll_query_until('postgres',
		q{SELECT count(*) = 2 FROM pg_stat_activity WHERE query ~ 'LOCK TABLE' AND wait_event_type = 'Lock'}
	) or die 'two do not wait';
	$session->query_safe('COMMIT');
	$session->quit;
	$_->{run}->finish foreach @founders;
	my @errors = grep { /ERROR/ } map { $_->{err} } @founders;
	is(scalar(@errors), 1, "$function at the same moment: one does it");
	like("@errors", $refusal, 'and the other is told of it');
}

$_->stop foreach $one, $coordinator;
done_testing();
