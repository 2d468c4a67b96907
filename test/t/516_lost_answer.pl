# A write of a lease whose commit or whose answer is in doubt, or that has to wait, and hosts of
# the coordinator that do not answer: no lease is lost or doubled, and the next host is asked.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeCoordinator;
use SnowflakeFleet;
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $coordinator = new_coordinator(
	init => { allows_streaming => 1 },
	conf => "listen_addresses = '127.0.0.1'");
my $port = $coordinator->port;
my $user = query($coordinator, 'SELECT current_user');
my $server = start_member('server', coordinator_url($coordinator), lease => '20s', founds => '');

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
restart_node($server, 'immediate', undef, '.');
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
append_to_file("$lost.wanted", '');
use_coordinator($server, "postgresql://$user\@$proxy/postgres", lease => patience(4) . 's');
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
my $session = $coordinator->background_psql('postgres');
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
cmp_ok(time - $started,
	'<', patience(4), 'a coordinator that does not answer is given up within a lease');

done_testing();
