# A lessee and a keeper of which one is held: a short lease is renewed all the same, a second
# signal to stop does not keep the lessee from giving its lease back, and what the keeper could
# not store is not given back.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  children error_of log_count new_clock new_member new_node start_time start_with_clock
  status stop_time wait_for_mint wait_for_status wait_until
);
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'there is no /proc' if !-e '/proc/self/stat';

# The answer to a lease so short has to come before a keeper is waited for in vain.
my $clock = new_clock('both');
my $coordinator = new_node('coordinator', node_id => undef, preload => 0);
start_with_clock($coordinator, $clock);
my $member = new_member('member', $coordinator, lease => '3900ms');
my @stopped;

END
{
	kill 'CONT', @stopped;
}

# The process of the server whose title matches, undef if there is none
sub child
{
	my ($regexp) = @_;

	return (children($member, $regexp))[0];
}

sub stop_process
{
	my ($pid) = @_;

	push @stopped, $pid;
	kill 'STOP', $pid;
	return;
}

sub continue_processes
{
	kill 'CONT', @stopped;
	@stopped = ();
	return;
}

# Tell the lessee to stop, and wait until it has noticed: it sleeps, or has ended.
sub terminate_lessee
{
	my $pid = child(qr/snowflake lessee/) // return;
	my $slept = 0;

	kill 'TERM', $pid;
	wait_until(
		'the lessee has heard the signal',
		sub {
			$slept = slurp_file("/proc/$pid/stat") =~ /\) [SZ]/ ? $slept + 1 : 0;
			return $slept > 5;
		});
	return;
}

# Until when a node ID is leased, as the coordinator knows it
sub until_of
{
	my ($node) = @_;

	return $coordinator->safe_psql('postgres',
		"SELECT (value::jsonb ->> 'until')::bigint FROM snowflake_fleet.records WHERE key = 'node/$node'"
	);
}

start_with_clock($member, $clock);
$member->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_until('there is a lessee', sub { child(qr/snowflake lessee/) });

# Who founds a fleet waits ten seconds for a lease of his own server, and can be canceled.
stop_process(child(qr/snowflake lessee/));
my (undef, undef, $notes) =
  $member->psql('postgres', q{SET statement_timeout = '5s'; SELECT snowflake_fleet_create()});
like(
	$notes,
	qr/\A[^\n]*ERROR:  canceling statement due to statement timeout\Z/,
	'the wait for a lease of the own server can be canceled');
continue_processes();
$member->psql('postgres', 'SELECT snowflake_fleet_create()');
wait_for_mint($member);

# An attempt may be under way, so two of them; and a busy machine may be too slow for some.
stop_process(child(qr/snowflake keeper/));
my ($granted, $errors) = split /\|/, status($member, 'leases + lease_renewals, lease_errors');
wait_for_status($member, "leases + lease_renewals > $granted + 1 OR lease_errors > $errors + 20");
cmp_ok(
	status($member, 'leases + lease_renewals'),
	'>',
	$granted + 1,
	'a short lease is renewed while the keeper is held');
continue_processes();
$member->append_conf('postgresql.conf', "snowflake.lease = '10min'");
$member->reload;
wait_for_status($member, q{lease_until > now() + interval '5 min' AND gate = 'open'});
wait_for_mint($member);

# The keeper is held, and so is the coordinator's answer; time stands still meanwhile.  The
# postmaster would start others at once.
my $node = status($member, 'node');
my $until = until_of($node);
my $session = $coordinator->background_psql('postgres');
$session->query_safe(
	"BEGIN; SELECT FROM snowflake_fleet.records WHERE key = 'node/$node' FOR UPDATE");
stop_time($clock);
stop_process($member->{_pid});
my $keeper = child(qr/snowflake keeper/);
stop_process($keeper);
kill 'TERM', $keeper;
terminate_lessee() foreach 1, 2;
ok(child(qr/snowflake lessee/), 'a second signal to stop does not end the wait for the keeper');
kill 'CONT', $keeper;
wait_until(
	'the lease is about to be given back',
	sub {
		return !child(qr/snowflake lessee/) || $coordinator->safe_psql('postgres',
			q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'snowflake' AND wait_event_type = 'Lock'}
		) eq '1';
	});
terminate_lessee() foreach 1, 2;
ok(child(qr/snowflake lessee/), 'nor that for the coordinator');
$session->query_safe('COMMIT');
$session->quit;
wait_until('the lessee has ended', sub { !child(qr/snowflake lessee/) });
cmp_ok(until_of($node), '<', $until, 'and the lease is given back');
continue_processes();
start_time($clock);

# The lessee is held, and IDs that are ahead of the clock use up the lease.
wait_for_mint($member);
$member->append_conf('postgresql.conf', "snowflake.max_lead = '1h'");
$member->reload;
wait_until('the setting is in force',
	sub { $member->safe_psql('postgres', 'SHOW snowflake.max_lead') eq '1h' });
my $lessee = child(qr/snowflake lessee/);
stop_process($lessee);
is(status($member, 'advice'), '', 'a lease that is far from its end needs no advice');
$member->safe_psql('postgres',
	'SELECT snowflake_advance(snowflake_lower_bound(lease_until), true) FROM snowflake_status');
is( error_of($member, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()})->{message},
	q{the lease of this server's node ID has ended},
	'IDs use it up, ahead of the clock');
like(
	status($member, 'advice'),
	qr/^Minting ends with the lease\. The lessee, process $lessee, has not renewed the lease since "/,
	'and then the advice says who has not renewed it');
continue_processes();

# A keeper that closes the gate, and cannot store its end
wait_for_mint($member);
$node = status($member, 'node');
$until = until_of($node);
$member->safe_psql('postgres', 'ALTER TABLE snowflake_keeper.reservation ADD COLUMN extra text');
my $offset = -s $member->logfile;
$member->stop;
is(log_count($member, qr/snowflake gate closed/, $offset), 0, 'the end is not stored');
cmp_ok(until_of($node), '>=', $until, 'a lease whose end is not stored is not given back');

$coordinator->stop;
done_testing();
