# Faults that gave one node ID to two servers, or took a node ID from all of them: a table
# without its key, a lease that reaches far ahead, clean restarts of a server that is ahead,
# the way back to the clock, and a failover of the coordinator that lost a grant.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  children duplicates error_of let_pass mint_together new_clock new_coordinator
  new_member set_clock start_time start_with_clock status stop_time wait_for_mint
  wait_for_status wait_until
);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $coordinator = new_coordinator();
my $clock = new_clock('servers');

sub records
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

# The processes of these servers that lease
sub lessees
{
	return map { children($_, qr/snowflake lessee/) } @_;
}

# A server that is started and has the extension
sub start_member
{
	my ($name, %params) = @_;
	my $node = new_member($name, $coordinator, lease => '20s', %params);

	start_with_clock($node, $params{clock} // $clock);
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	return $node;
}

sub set_lease
{
	my ($node, $lease) = @_;

	$node->append_conf('postgresql.conf', "snowflake.lease = '$lease'");
	$node->reload;
	$node->poll_query_until('postgres', "SELECT current_setting('snowflake.lease') = '$lease'")
	  or die 'reload has no effect';
	return;
}

my ($one, $two) = map { start_member($_) } qw(one two);
my $no_key = qr/^table snowflake_fleet\.records of the coordinator has no unique index on key$/;

# A table without its key: two servers could insert the record of one node ID.
records(
	'CREATE SCHEMA snowflake_fleet; CREATE TABLE snowflake_fleet.records (key text, value text NOT NULL)'
);
foreach my $function (qw(create recover))
{
	my $error = error_of($one, "SELECT snowflake_fleet_$function()");

	like($error->{message}, $no_key, "without a key no fleet is made with $function()");
	is($error->{sqlstate}, '55000', 'with its SQLSTATE');
}
records('DROP TABLE snowflake_fleet.records');
foreach my $index (
	'CREATE UNIQUE INDEX ON snowflake_fleet.records (key, value)',
	q{CREATE UNIQUE INDEX ON snowflake_fleet.records (key) WHERE key <> 'node/0'},
	'CREATE UNIQUE INDEX ON snowflake_fleet.records (lower(key))',
	'CREATE INDEX ON snowflake_fleet.records (key)',
	'ALTER TABLE snowflake_fleet.records ADD UNIQUE (key) DEFERRABLE')
{
	records("CREATE TABLE snowflake_fleet.records (key text, value text NOT NULL); $index");
	like(error_of($one, 'SELECT snowflake_fleet_create()')->{message}, $no_key, "nor with: $index");
	records('DROP TABLE snowflake_fleet.records');
}
$one->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
wait_for_mint($_) foreach $one, $two;

# It is restored without the key.  Two servers that want the same node ID at the same time
# have to wait for a lock, so that both have looked.
$_->stop foreach $one, $two;
records(
	q{CREATE TABLE copied AS SELECT * FROM snowflake_fleet.records WHERE key = 'fleet';
	DROP TABLE snowflake_fleet.records; ALTER TABLE copied SET SCHEMA snowflake_fleet;
	ALTER TABLE snowflake_fleet.copied RENAME TO records});
my $locker = $coordinator->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE snowflake_fleet.records IN SHARE ROW EXCLUSIVE MODE');
start_with_clock($_, $clock) foreach $one, $two;
wait_until(
	'both servers write, or do not',
	sub {
		return records('SELECT count(*) = 2 FROM pg_locks WHERE NOT granted') eq 't'
		  || 2 == grep { status($_, q{advice ~ 'no unique index'}) eq 't' } $one, $two;
	});
$locker->quit;
wait_for_status($_, q{lease_until IS NOT NULL OR advice ~ 'no unique index'}) foreach $one, $two;
is(records(q{SELECT count(*) FROM snowflake_fleet.records WHERE key ~ '^node/'}),
	0, 'without its key the table has no node ID granted');
records('ALTER TABLE snowflake_fleet.records ADD PRIMARY KEY (key)');
wait_for_mint($_) foreach $one, $two;
is(duplicates(mint_together(1, $one, $two)), 0, 'with it there are two, no ID twice');

# A holder asks within half a lease, by the present setting, however far its lease reaches.
stop_time($clock);
my $early = status($one, 'lease_renewals');
set_lease($one, '1h');
let_pass($clock, 11_000);
$one->reload;
wait_for_status($one, "lease_renewals > $early AND lease_until > now() + interval '50 min'");
set_lease($_, '8s') foreach $one, $two;
my $renewals = status($one, 'lease_renewals');
let_pass($clock, 4_100);
$one->reload;
wait_for_status($one, "lease_renewals > $renewals");
is(status($one, q{lease_until > now() + interval '50 min'}),
	't', 'a lease that reaches far ahead is renewed all the same after half of a short one');
records('TRUNCATE snowflake_fleet.records; ALTER ROLE CURRENT_USER SET extra_float_digits = -15');
$two->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
let_pass($clock, 4_100);
$one->reload;
wait_for_status($one, q{gate = 'closed: the coordinator went back in time'});
is( $two->safe_psql(
		'postgres', 'SELECT now() < leased_from FROM snowflake_fleet() WHERE node IS NULL'),
	't',
	'a fleet that was recovered below it is marked before it grants anything');
$two->safe_psql('postgres', 'SELECT snowflake_fleet_recover(now(), holder_is_gone => true)');
start_time($clock);
$one->stop('immediate');
wait_for_mint($two);

# Clean restarts of a server that is ahead take no node ID more.
my $ahead = new_clock('ahead');
set_clock($ahead, 600_000);
my $far = start_member(
	'far',
	clock => $ahead,
	conf => "snowflake.lease_nodes = '100-102'\nsnowflake.max_wait = '5s'\n");
wait_for_mint($far);
$far->stop;
set_clock($ahead, 0);
start_with_clock($far, $ahead);
wait_for_mint($far);
$far->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
$far->stop;
my @far;

foreach my $start (1 .. 5)
{
	start_with_clock($far, $ahead);
	wait_for_status($far, q{gate = 'open' OR advice ~ 'No node ID is free'});
	push @far, status($far, 'node') . ' ' . error_of($far, 'SELECT snowflake_next()')->{message};
	$far->stop;
}
is_deeply(\@far, [ ('100 ') x 5 ], 'a server that is ahead keeps its node ID when it is restarted');
is(records(q{SELECT string_agg(key, ' ') FROM snowflake_fleet.records WHERE key ~ '^node/10'}),
	'node/100', 'and takes no other');

# The way back to the clock, under a lease.
start_with_clock($far, $ahead);
wait_for_mint($far);
my $until =
  q{SELECT (value::jsonb ->> 'until')::bigint FROM snowflake_fleet.records WHERE key = 'node/100'};
my $newest = $far->safe_psql('postgres', 'SELECT snowflake_next()');
like(
	error_of($far, 'SELECT snowflake_restart_at_clock(101)')->{message},
	qr/^snowflakes are not minted with node ID 101$/,
	'the node ID that is leased has to be named');
is(error_of($far, 'SELECT snowflake_restart_at_clock(100)')->{message},
	'', 'snowflake_restart_at_clock() with a lease');
my $of_now =
  q{SELECT snowflake_timestamp(snowflake_next()) BETWEEN now() - interval '1 min' AND now() + interval '5 s'};
is($far->safe_psql('postgres', $of_now), 't', 'takes another node ID, at the clock');
is(status($far, 'node, lease_until < now() + interval \'1 min\''),
	'101|t', 'with a lease that ends soon');
cmp_ok(records($until), '>=', $newest >> 22, 'the old one is not free before its end');

foreach my $how ('fast', 'immediate')
{
	$far->stop($how);
	start_with_clock($far, $ahead);
	wait_for_mint($far);
	is($far->safe_psql('postgres', $of_now), 't', "after a restart (stop -m $how), too");
}

# The same by a node ID of its own for a while: the old lease is not taken up again.
my $url = $far->safe_psql('postgres', 'SHOW snowflake.node_source');
$far->safe_psql('postgres',
	q{SELECT snowflake_advance(snowflake_lower_bound(now() + interval '10 min'), true)});
wait_for_mint($far);
my $node = status($far, 'node');
$newest = $far->safe_psql('postgres', 'SELECT snowflake_next()');
$far->append_conf('postgresql.conf', "snowflake.node_source = 'setting'\nsnowflake.node_id = 77");
$far->reload;
wait_for_status($far, q{gate = 'open' AND node = 77});
$far->safe_psql('postgres', 'SELECT snowflake_restart_at_clock(77)');
$far->append_conf('postgresql.conf', "snowflake.node_source = '$url'");
$far->reload;
wait_for_status($far, q{gate = 'open' AND node <> 77});
is($far->safe_psql('postgres', $of_now),
	't', 'after a node ID of a setting, which went back to the clock');
isnt(status($far, 'node'), $node, 'another node ID is leased');
$_->stop foreach $far, $two;

# A failover of the coordinator that loses a grant: it is granted to nobody else before its
# holder has asked.
$coordinator->append_conf('postgresql.conf', "wal_level = replica\nmax_wal_senders = 3");
$coordinator->restart;
$coordinator->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($coordinator, 'base', has_streaming => 1);
$standby->start;
my $hosts = join ',', map { $_->host } $coordinator, $standby;
my $ports = join ',', map { $_->port } $coordinator, $standby;
my @conf = (
	lease => '40s',
	conf => "snowflake.node_source = 'postgresql:///postgres?host=$hosts&port=$ports'\n"
	  . "snowflake.lease_nodes = '7'\n");
my ($holder, $other) = map { new_member($_, $coordinator, @conf) } qw(holder other);
$coordinator->wait_for_catchup($standby);
$standby->stop;
my $others = new_clock('others');
$holder->start;
$holder->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($holder);
kill 'STOP', lessees($holder);
$coordinator->stop('immediate');
$standby->start;
$standby->promote;
start_with_clock($other, $others);
$other->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_status($other, q{lease_until IS NOT NULL OR advice ~ 'timeline'});
is(status($other, 'lease_until'), '', 'after a failover nothing is granted anew');
kill 'CONT', lessees($holder);
$holder->reload;
wait_for_status($holder,
	q{gate = 'closed: the coordinator went back in time' OR lease_until < now()});
wait_for_status($other, q{advice ~ 'went back in time' OR lease_until IS NOT NULL});
is(status($other, 'lease_until'),
	'', 'before the holder of a grant that was lost has marked the fleet');
$holder->stop('immediate');
$other->safe_psql('postgres', 'SELECT snowflake_fleet_recover(now(), holder_is_gone => true)');
wait_for_mint($other);

# Where nothing was lost the others wait for half a lease, and those who have one for nothing.
my $third = PostgreSQL::Test::Cluster->new('third');
$standby->backup('base');
$third->init_from_backup($standby, 'base', has_streaming => 1);
$third->start;
$ports = join ',', map { $_->port } $standby, $third;
$hosts = join ',', map { $_->host } $standby, $third;
my $late = new_member(
	'late', $coordinator,
	lease => '1h',
	conf => "snowflake.lease_nodes = '8'\n"
	  . "snowflake.node_source = 'postgresql:///postgres?host=$hosts&port=$ports'\n");
$other->append_conf('postgresql.conf',
	"snowflake.node_source = 'postgresql:///postgres?host=$hosts&port=$ports'");
$other->reload;
$renewals = status($other, 'lease_renewals');
wait_for_status($other, "lease_renewals > $renewals");
$standby->wait_for_catchup($third);
$standby->stop;
$third->promote;
start_with_clock($late, $clock);
$late->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_status($late, q{lease_until IS NOT NULL OR advice ~ 'timeline'});
is(status($late, 'lease_until'), '', 'a server without a lease waits after a failover');
$renewals = status($other, 'lease_renewals');
wait_for_status($other, "lease_renewals > $renewals");
is( status($other, 'leases, gate'),
	status($other, 'leases') . '|open',
	'one that has a lease renews it');
stop_time($clock);
let_pass($clock, 1_800_000);
$late->reload;
let_pass($clock, 30_000);
start_time($clock);
$late->reload;
wait_for_mint($late);
pass('until half a lease has passed');

$_->stop foreach $late, $other, $third;
done_testing();
