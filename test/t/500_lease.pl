# Node IDs are leased: from a PostgreSQL server that does not have the library,
# by servers of which none has a node ID in its configuration.
# versions: all
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  children coordinator_url error_at_once error_of keeper_sleeps log_count new_coordinator
  new_member patience status wait_for_mint wait_until
);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sys::Hostname;
use Test::More;
use Time::HiRes qw(time);

my $coordinator = new_coordinator();
my $url = coordinator_url($coordinator);
my $lease = patience(10);

# A server of the fleet
sub member
{
	my ($name, $conf) = @_;

	return new_member($name, $coordinator, lease => "${lease}s", conf => $conf);
}

my $one = member('one');
$one->start;
$one->safe_psql('postgres', 'CREATE EXTENSION snowflake');

# Nothing is granted before the fleet is founded.
$one->poll_query_until('postgres',
	q{SELECT gate ~ 'no node ID is leased' AND coordinator = 'unreachable' FROM snowflake_status})
  or die 'no refusal';
my $error = error_of($one, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()});
is( $error->{message},
	'this server has not leased a node ID',
	'without a table of the fleet nothing is minted');
is($error->{sqlstate}, '55000', 'with its SQLSTATE');
$coordinator->safe_psql('postgres',
	'CREATE SCHEMA snowflake_fleet; CREATE TABLE snowflake_fleet.records (key text PRIMARY KEY, value text NOT NULL)'
);
$one->poll_query_until('postgres', q{SELECT coordinator = 'grants nothing' FROM snowflake_status})
  or die 'no refusal';
$error = error_at_once($one);
like(
	$error->{hint},
	qr/snowflake_fleet_create\(\)/,
	'nor without a fleet, which is refused at once, with a hint');
$coordinator->safe_psql('postgres', 'DROP SCHEMA snowflake_fleet CASCADE');

# Founded, by a server of the fleet, whose lessee is stopped meanwhile
my ($lessee) = children($one, qr/snowflake lessee/);
kill 'STOP', $lessee;
my (undef, undef, $notice) = $one->psql('postgres', 'SELECT snowflake_fleet_create()');
kill 'CONT', $lessee;
like(
	$notice,
	qr/NOTICE:  the fleet exists, but this server has not leased a node ID yet/,
	'who founds a fleet waits for a lease, and is told when none comes');
wait_for_mint($one);
is(status($one, 'node'), '0', 'the first server gets the first node ID');
is(status($one, 'node_source'), 'postgresql', 'and says where from');
is( status(
		$one,
		"coordinator = 'reachable' AND lease_until BETWEEN now() + 0.4 * interval '$lease s' AND now() + interval '$lease s'"
	),
	't',
	'for a lease');
is( error_of($one, 'SELECT snowflake_fleet_create()')->{message},
	'the coordinator already has a snowflake fleet',
	'a fleet is founded once');
is( $one->safe_psql(
		'postgres',
		q{SELECT leased_from BETWEEN now() - interval '1h' AND now() FROM snowflake_fleet() WHERE node IS NULL}
	),
	't',
	'and grants nothing from before');

# A second server, which would reserve, and let mints use, more than it has leased
my $two = member('two', "snowflake.reservation = '1min'\nsnowflake.max_jump = '1min'\n");
$two->start;
$two->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($two);
is(status($two, 'node'), '1', 'the second server gets another');
is( $one->safe_psql(
		'postgres', "SELECT holder FROM snowflake_fleet() WHERE node = " . status($one, 'node')),
	hostname() . ':' . $one->port . ' ' . $one->data_dir,
	'the holder is told by its host, its port and its data directory');
is( $one->safe_psql(
		'postgres', q{SELECT node, state FROM snowflake_fleet() ORDER BY node NULLS FIRST}),
	"|fleet\n0|leased\n1|leased",
	'the fleet is listed');
SKIP:
{
	my $slept = keeper_sleeps($two);

	skip 'no /proc here', 1 if !defined $slept;

	# slowly, so that each could find the keeper asleep
	$two->safe_psql('postgres',
		'DO $$ BEGIN FOR i IN 1 .. 1000 LOOP PERFORM pg_sleep(0.001), snowflake_next(); END LOOP; END $$'
	);
	cmp_ok(keeper_sleeps($two) - $slept,
		'<', 100, 'the keeper is not asked for more than is leased all the time');
}

# Renewed
my $until = status($one, 'lease_until');
$one->poll_query_until('postgres',
	"SELECT lease_until > timestamptz '$until' + interval '4s' FROM snowflake_status")
  or die 'not renewed';
is(status($one, 'node, leases, lease_renewals > 0, lease_errors > 0'),
	'0|1|t|t', 'the lease is renewed');

# A clean restart
my $last = $one->safe_psql('postgres', 'SELECT snowflake_next()');
$one->stop;
is($two->safe_psql('postgres', q{SELECT state FROM snowflake_fleet() WHERE node = 0}),
	'free', 'a clean stop gives it back');
$one->start;
wait_for_mint($one);
is(status($one, 'node'), '0', 'a clean restart gets it again');
cmp_ok($one->safe_psql('postgres', 'SELECT snowflake_next()'), '>', $last, 'and larger IDs');

# A crash
$one->stop('immediate');
$one->start;
wait_for_mint($one);
is(status($one, 'node'), '2', 'after a crash it gets another');

# The coordinator is gone, and comes back.  A generator that is ahead of the clock
# gets to the end of its lease before the clock does.
$two->append_conf('postgresql.conf', "snowflake.max_lead = '1h'");
$two->reload;
$two->poll_query_until('postgres', q{SELECT current_setting('snowflake.max_lead') = '1h'})
  or die 'no reload';
my $offset = -s $one->logfile;
my $errors = status($one, 'lease_errors');
$coordinator->stop('immediate');
$two->safe_psql('postgres',
	'SELECT snowflake_advance(snowflake_lower_bound(lease_until), true) FROM snowflake_status');
my $refused = status($two, 'refused_node - refused_keeper');
$error = error_of($two, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()});
is( $error->{message},
	q{the lease of this server's node ID has ended},
	'nothing is minted beyond a lease, ahead of the clock');
is( status($two, 'refused_node - refused_keeper'),
	$refused + 1,
	'and it is not counted as refused for the keeper');
is( error_of($two,
		q{SET snowflake.max_wait = '1s'; SELECT snowflake_advance(snowflake_lower_bound(lease_until + interval '5s'), true) FROM snowflake_status}
	)->{message},
	'snowflake_advance() did not finish within 1000 ms',
	'nor is a floor beyond it reached');
$one->poll_query_until('postgres', "SELECT coordinator = 'unreachable' FROM snowflake_status")
  or die 'not noticed';
isnt($one->safe_psql('postgres', 'SELECT snowflake_next()'),
	'', 'minting goes on without the coordinator');
like(
	status($one, 'advice'),
	qr/^Minting ends with the lease\. The coordinator has been unusable since/,
	'with advice');
my ($since) = status($one, 'advice') =~ /unusable since "(.*?)"/;
$one->poll_query_until('postgres',
	q{SELECT gate = 'closed: the lease of the node ID has ended' FROM snowflake_status})
  or die 'does not end';
cmp_ok(status($one, 'lease_errors'), '>', $errors + 2, 'the coordinator is asked again and again');
is(log_count($one, qr/WARNING:  could not use the coordinator/, $offset), 1,
	'which is logged once');
my $began = time;
$error = error_of($one, q{SET snowflake.max_wait = '1s'; SELECT snowflake_next()});
is($error->{message}, q{the lease of this server's node ID has ended},
	'up to the end of the lease');
cmp_ok(time - $began, '>=', 1, 'from when on a mint waits for the coordinator');
$coordinator->start;
wait_for_mint($one);
wait_for_mint($two);
pass('it goes on when it is back');

# Renewed after the setting has become smaller: it does not become shorter
sub set_lease
{
	my ($lease, $condition) = @_;

	$one->append_conf('postgresql.conf', "snowflake.lease = '$lease'");
	$one->reload;
	$one->poll_query_until('postgres', "SELECT $condition FROM snowflake_status, snowflake_stats")
	  or die "not $condition";
	return;
}
set_lease('1min', q{lease_until > now() + interval '50s'});
$offset = -s $one->logfile;
$coordinator->stop('immediate');
set_lease('10min', q{coordinator = 'unreachable'});
cmp_ok(log_count($one, qr/WARNING:  could not use the coordinator/, $offset),
	'>=', 1, 'that it is gone again is logged again');
unlike(status($one, 'advice'), qr/since "\Q$since\E"/, 'and is since another time');
$errors = status($one, 'lease_errors');
set_lease('10s', "lease_errors > $errors + 1");
$until = status($one, 'lease_until');
my $renewals = status($one, 'lease_renewals');
$coordinator->start;
$one->poll_query_until('postgres', "SELECT lease_renewals > $renewals FROM snowflake_stats")
  or die 'not renewed';
is(status($one, "lease_until >= '$until'"), 't', 'no renewal makes a lease shorter');

# Of another coordinator: what the one before has granted is not renewed there
$coordinator->safe_psql('postgres', 'CREATE DATABASE another');
$until = status($one, 'lease_until');
$one->append_conf('postgresql.conf',
	q{snowflake.node_source = '} . ($url =~ s/postgres$/another/r) . q{'});
$one->reload;
$one->poll_query_until('postgres', q{SELECT current_setting('snowflake.node_source') ~ 'another'})
  or die 'no reload';
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover(now())');
$coordinator->safe_psql('another',
	q{UPDATE snowflake_fleet.records SET value = jsonb_set(value::jsonb, '{floor}', '1')::text});
$one->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM snowflake_fleet() WHERE node IS NOT NULL})
  or die 'not leased';
is( $one->safe_psql(
		'postgres', "SELECT leased_from < '$until' FROM snowflake_fleet() WHERE node IS NOT NULL"),
	't',
	'from another coordinator a node ID is leased at once');

# A generator that is ahead for good gets back to the clock with another node ID.
$error = error_of($two,
	q{SELECT snowflake_advance(snowflake_lower_bound(now() + interval '2 days'), true)});
$error = error_of($two, 'SELECT snowflake_next()');
my ($way_back) =
  $error->{hint} =~ /call (snowflake_restart_at_clock\(\d+\)), which leases another node ID\.$/;
ok($way_back, 'far ahead: what to do with a lease') or diag($error->{hint});
my $held = status($two, 'node');
$two->safe_psql('postgres', "SELECT $way_back");
is( $two->safe_psql(
		'postgres',
		"SELECT node <> $held, snowflake_timestamp(snowflake_next()) < now() + interval '1min' FROM snowflake_status"
	),
	't|t',
	'word for word: another node ID, and IDs of the true time');
$two->append_conf('postgresql.conf', "snowflake.node_source = 'setting'\nsnowflake.node_id = 900");
$two->reload;
$two->poll_query_until('postgres', q{SELECT node = 900 AND gate = 'open' FROM snowflake_status})
  or die 'node ID is not taken';

# A lease from before is of no use to a generator that has gone beyond its end.
$two->safe_psql('postgres',
	q{SELECT snowflake_advance(snowflake_lower_bound(now() + interval '3 days'), true)});
$coordinator->stop('immediate');
$two->append_conf('postgresql.conf', "snowflake.node_source = '$url'");
$two->reload;
$two->poll_query_until('postgres',
	q{SELECT gate ~ 'lease of the node ID has ended' OR gate = 'open' AND node <> 900 FROM snowflake_status}
) or die 'no reload';
is( status($two, 'gate'),
	'closed: the lease of the node ID has ended',
	'the gate does not open beyond the end of a lease');
$coordinator->start;
$two->append_conf('postgresql.conf', "snowflake.node_source = 'setting'\nsnowflake.node_id = 901");
$two->reload;
$two->poll_query_until('postgres', q{SELECT node = 901 AND gate = 'open' FROM snowflake_status})
  or die 'node ID is not taken';
$two->safe_psql('postgres', 'SELECT snowflake_restart_at_clock(901)');
is( $two->safe_psql(
		'postgres', q{SELECT snowflake_timestamp(snowflake_next()) < now() + interval '1min'}),
	't',
	'it is done, and IDs are of the true time');

wait_until('there is no lessee', sub { !children($two, qr/snowflake lessee/) });
pass('and there is no lessee any more');
$two->append_conf('postgresql.conf', "snowflake.node_source = '$url'");
$two->reload;
wait_until('there is a lessee', sub { children($two, qr/snowflake lessee/) });
pass('until a reload has node IDs leased again');

$_->stop foreach $one, $two, $coordinator;
done_testing();
