# A write of a lease that is in doubt: it arrives, or its answer is heard, when the coordinator has
# lost its data or the fleet was re-created; its commit was not replicated, its answer is lost, or
# it has to wait; hosts do not answer.  No lease is lost or doubled, and the next host is asked.
# long

use List::Util qw(max);
use SnowflakeCoordinator;
use SnowflakeFleet;
use SnowflakeTest;
use Time::HiRes qw(time);

my $coordinator = new_coordinator(
	init => { allows_streaming => 1 },
	conf => "listen_addresses = '127.0.0.1'");
my $port = $coordinator->port;
my $user = query($coordinator, 'SELECT current_user');
my $clock = new_clock('server');
my $server = start_member('server', $coordinator, lease => '20s', clock => $clock, founds => '');
my $no_grants = q{DELETE FROM snowflake_fleet.records WHERE key ~ '^node/'};
my $granted = q{SELECT count(*) FROM snowflake_fleet.records WHERE key ~ '^node/'};
my $let_read = 'LOCK TABLE snowflake_fleet.records IN SHARE ROW EXCLUSIVE MODE';

# The server starts anew, without a lease, and its first write waits for what this statement
# of a session of the coordinator has locked.  Returns the session.
sub hold_first_write
{
	my ($locks) = @_;
	my $session = $coordinator->background_psql('postgres');

	$server->stop;
	query($coordinator, $no_grants);
	$session->query_safe("BEGIN; $locks");
	start_with_clock($server, $clock);
	wait_for_query($coordinator,
		q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'snowflake' AND wait_event_type = 'Lock'}
	);
	return $session;
}

# The fleet is founded again, with this incarnation: a statement.  The floor is what a late
# write says nothing of.
my $floor = query($server, q{SELECT snowflake_lower_bound(now() + interval '15s')::bigint >> 22});

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
wait_for_status($server, q{coordinator = 'grants nothing' OR leases > 0});
is(status($server, 'leases'),
	'0', 'a late write to a coordinator that has lost its data grants nothing');
is(query($coordinator, 'SELECT count(*) FROM snowflake_fleet.records'), '0', 'and writes nothing');
query($server, 'SELECT snowflake_fleet_recover(now())');
wait_for_mint($server);
is(status($server, 'leases'), '1', 'it does when the fleet was founded again');

# Nothing is in the way of the write, but what it says may lie below the new fleet's floor.
# It waits for the founder, and does nothing then.
$session = hold_first_write(found_again('none'));
$session->query_safe('COMMIT');
$session->quit;
wait_for_mint($server);
cmp_ok(record($coordinator, status($server, 'node'), 'from'),
	'>', $floor,
	'nor does one to a fleet that was founded again: what is used is above the new floor');

# An answer that is there, but is heard when the fleet was founded again: the lessee
# stood still.
my $lessee;
for my $try (1 .. 10)
{
	$session =
	  hold_first_write(q{SELECT FROM snowflake_fleet.records WHERE key = 'fleet' FOR UPDATE});
	$lessee = lessee($server);
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
$floor = query($server, q{SELECT snowflake_lower_bound(now() + interval '15s')::bigint >> 22});
$session->query_safe(found_again('gone'));
$session->quit;
stop_time($clock);
let_pass($clock, 6_000);    # longer than an answer counts
start_time($clock);
thaw();
wait_for_mint($server);
like(
	slurp_file($server->logfile),
	qr/the answer of the coordinator arrived too late/,
	'an answer that is heard late does not count');
is(status($server, 'leases'), '1', 'what it said was granted is not used');
cmp_ok(record($coordinator, status($server, 'node'), 'from'),
	'>', $floor, 'but what the fleet grants that was founded since');

# Two sessions write the fleet's record at the same moment: they do so one after the other.
$session = session($coordinator, 'BEGIN; LOCK TABLE snowflake_fleet.records IN ROW EXCLUSIVE MODE');
my @founders =
  map { start_statement($server, "\\set VERBOSITY verbose\nSELECT snowflake_fleet_recover()") } 1,
  2;
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
recover($server, 'now()');

# Wait until a lease is renewed so often, or taken anew.
sub wait_for_renewals
{
	my ($count, $and) = @_;
	my $before = status($server, 'leases + lease_renewals');

	$and->() if $and;
	wait_for_status($server,
		"coordinator = 'reachable' AND leases + lease_renewals >= $before + $count");
	return;
}

# A coordinator that warns at a commit, in whatever language: its standby may not have it.  That
# is waited for, and the warning seen, whatever the database has for a default.
query($coordinator,
	'ALTER DATABASE postgres SET synchronous_commit = off; ALTER DATABASE postgres SET client_min_messages = error'
);
my $translator = new_proxy($port, sub { return $_[0] =~ s/SWARNING\0V/SWARNUNG\0V/gr });
use_coordinator($server, "postgresql://$translator/postgres");
wait_for_mint($server);
set_conf($coordinator, synchronous_standby_names => 'nobody');
my $offset = -s $server->logfile;
restart_node($server, 'immediate', $clock, '.');
wait_until(
	'a commit that was not replicated is in doubt',
	sub {
		# the first one may be of the server before
		query($coordinator,
			q{SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'snowflake'}
		);
		return log_count($server, qr/the coordinator warned that a commit/, $offset);
	});
is(status($server, q{coordinator, lease_until}),
	'unreachable|', 'a commit that was not replicated is not used');
set_conf($coordinator, synchronous_standby_names => '');
wait_for_mint($server);

# An answer is lost: what is between the server and the coordinator hangs up when
# it has passed on a write, or before it passes on a second one, and may be down then.
my $lost = PostgreSQL::Test::Utils::tempdir() . '/lost';
my $writes = 0;
my $proxy = new_proxy(
	$port,
	sub {
		my ($bytes, $is_of_client) = @_;

		return if -e "$lost.down";
		$writes++ if $is_of_client && $bytes =~ /(?:INSERT INTO|UPDATE) snowflake_fleet/;
		return if $writes == 2 && unlink "$lost.second";
		return $bytes if !$writes || $is_of_client || !-e "$lost.wanted";
		rename "$lost.then_down", "$lost.down";
		unlink "$lost.wanted";
		return;
	});

sub lose_an_answer
{
	append_to_file("$lost.wanted", '') if !-e "$lost.wanted";
	wait_until('an answer is lost', sub { !-e "$lost.wanted" });
	return;
}
my $lease = patience(4);
append_to_file("$lost.wanted", '');
use_coordinator($server, "postgresql://$user\@$proxy/postgres", lease => "${lease}s");
lose_an_answer();
wait_for_status($server, q{coordinator = 'reachable' AND gate = 'open'});
my $held = status($server, 'node, leases');
is( query(
		$server,
		q{SELECT count(*) FROM snowflake_fleet() JOIN snowflake_status USING (node) WHERE state = 'leased'}
	),
	'1',
	'after the lost answer to a new lease it is used');
lose_an_answer();
wait_for_renewals(2);
is(status($server, 'node, leases'), $held, 'the lost answer to a renewal costs nothing');

# What was written is found then, and written once more.  That does not get there, and so is
# found to be what it was at the next look.
append_to_file("$lost.second", '');
lose_an_answer();
wait_until('the second write is lost', sub { !-e "$lost.second" });
wait_for_renewals(1);
is(status($server, 'node, leases'),
	$held, 'nor does it if what was found could not be written once more');

# Before it is asked for again the fleet's record is that of an older term, as after a
# failover of the coordinator: a newer one is noted down there, and no more than that.
append_to_file("$lost.then_down", '');
lose_an_answer();
my $renewals = status($server, 'lease_renewals');
query($coordinator, change_record('fleet', term => 0));
unlink "$lost.down";
wait_for_status(
	$server,
	sprintf
	  q{coordinator = 'reachable' AND gate = 'open' AND lease_renewals > %d OR lease_until < now() - interval '%d s'},
	$renewals,
	patience(15));
is(status($server, "node, leases, lease_renewals > $renewals"),
	"$held|t", 'nor does one before a failover of the coordinator');

# A write that has to wait for another one looks at what that has written, whatever the
# database has for a default.
query($coordinator,
	q{ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'});
$session = $coordinator->background_psql('postgres');
$session->query_safe(
	q{BEGIN; UPDATE snowflake_fleet.records SET value = value WHERE key = 'fleet'});
wait_for_renewals(
	1,
	sub {
		wait_for_query($coordinator,
			q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'snowflake' AND wait_event_type = 'Lock'}
		);
		$session->query_safe('COMMIT');
	});
is(log_count($server, qr/could not serialize access/), 0, 'a write that had to wait is done');
$session->quit;

# Of several coordinators the first one does not answer.
my $silent = new_silent();
wait_for_renewals(2,
	sub { use_coordinator($server, "postgresql://$user\@$silent,127.0.0.1:$port/postgres") });
pass('a coordinator that does not answer keeps nobody from the next one');

# Nor does one that is down, where all hosts have the one port that the URL names.
use_coordinator($server, "postgresql:///postgres?host=/nowhere,${\ $coordinator->host}&port=$port");
refuses($server, 'SELECT snowflake_fleet_create()', '42710', 'nor does one that is down');

# If there is no other, an attempt ends before a lease would.
my $started = time;
use_coordinator($server, "postgresql://$user\@$silent/postgres");
wait_for_status($server, q{coordinator = 'unreachable'});
my $took = time - $started;
cmp_ok(
	$took, '<',
	max($lease, patience(4)),
	'a coordinator that does not answer is given up within a lease');

done_testing();
