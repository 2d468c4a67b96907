# A coordinator of several servers fails over: two of them accept writes, the old one comes
# back, a grant or the key of the table is lost, the records are copied.  The wrong one
# grants nothing, and the new one renews what was granted.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeFleet;
use SnowflakeTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $coordinator = new_coordinator(init => { allows_streaming => 1 });
my $lease = patience(4) . 's';

# What snowflake.node_source is for several coordinators
sub url_of
{
	return sprintf 'postgresql:///postgres?host=%s&port=%s',
	  join(',', map { $_->host } @_), join(',', map { $_->port } @_);
}

# A standby of a coordinator, started
sub standby_of
{
	my ($primary, $name) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->start;
	return $standby;
}

sub stop_primary
{
	my ($primary, $standby) = @_;

	$primary->wait_for_catchup($standby);
	$primary->stop;
	return;
}

# A table without its key: two servers could insert the record of one node ID.
my $one = start_member('one', $coordinator);
my $no_key =
  qr/^55000 table snowflake_fleet\.records of the coordinator has no unique index on key$/;
query($coordinator, 'CREATE SCHEMA snowflake_fleet');
foreach my $index (
	'',
	'CREATE UNIQUE INDEX ON snowflake_fleet.records (key, value)',
	q{CREATE UNIQUE INDEX ON snowflake_fleet.records (key) WHERE key <> 'node/0'},
	'CREATE UNIQUE INDEX ON snowflake_fleet.records (lower(key))',
	'CREATE INDEX ON snowflake_fleet.records (key)',
	'ALTER TABLE snowflake_fleet.records ADD UNIQUE (key) DEFERRABLE')
{
	query($coordinator,
		"CREATE TABLE snowflake_fleet.records (key text, value text NOT NULL); $index");
	foreach my $function ($index ? 'create' : qw(create recover))
	{
		my $error = error_of($one, "SELECT snowflake_fleet_$function()");

		like("$error->{sqlstate} $error->{message}",
			$no_key, "no fleet is made by $function() without a key: $index");
	}
	query($coordinator, 'DROP TABLE snowflake_fleet.records');
}
$one->stop;

# Two servers, with a coordinator of two hosts each, and a table that is restored without the key
my $second = standby_of($coordinator, 'second');
my %source = (a => url_of($coordinator, $second), b => url_of($second, $coordinator));
my @members = map {
	start_member(
		$_, $source{$_},
		lease => $lease,
		conf => "snowflake.max_wait = '20s'\n",
		founds => $_ eq 'a' ? '' : undef)
} qw(a b);
wait_for_mint($_) foreach @members;
$_->stop foreach @members;
query(
	$coordinator,
	q{CREATE TABLE copied AS SELECT * FROM snowflake_fleet.records WHERE key = 'fleet';
	DROP TABLE snowflake_fleet.records; ALTER TABLE copied SET SCHEMA snowflake_fleet;
	ALTER TABLE snowflake_fleet.copied RENAME TO records});
$_->start foreach @members;
wait_for_status($_, q{lease_until IS NOT NULL OR advice ~ 'no unique index'}) foreach @members;
is(query($coordinator, q{SELECT count(*) FROM snowflake_fleet.records WHERE key ~ '^node/'}),
	0, 'without its key the table has no node ID granted');
query($coordinator, 'ALTER TABLE snowflake_fleet.records ADD PRIMARY KEY (key)');
is(duplicates(mint_together(1, @members)), 0, 'with it there are two, no ID twice');

# A split coordinator: a standby was promoted, and the old primary goes on.
$_->stop foreach @members;
$coordinator->wait_for_catchup($second);
$second->promote;
$_->start foreach @members;
foreach my $node (@members)
{
	wait_for_status($node,
		q{coordinator = 'unreachable' AND advice ~ 'two servers of the coordinator accept writes'});
	pass('two primaries: nothing is leased, and it says why');

	# a server that starts too slowly to be seen is not there at first
	wait_for_status($node, 'lease_until IS NULL OR lease_until < now()');
	pass('from neither');
}
my $error = error_of($members[0], 'SELECT * FROM snowflake_fleet()');
is( "$error->{sqlstate} $error->{message}",
	'55000 two servers of the coordinator accept writes',
	'which an administrator sees as well');
like($error->{detail}, qr/ on timeline 1, .* on timeline 2\.$/, 'and the timelines');

# The old one stops: the new one goes on, in the same fleet.
$coordinator->stop;
wait_for_mint($_) foreach @members;
isnt(
	status($members[0], 'node, leases'),
	status($members[1], 'node, leases'),
	'one primary is left, and leases');
is(record($second, 'fleet', 'term'), '2', 'whose timeline is noted down');
is(duplicates(mint_together(1, @members)), 0, 'no ID twice');

# The one before is back, alone.
$second->stop('immediate');
$coordinator->start;
foreach my $node (@members)
{
	wait_for_status($node, q{advice ~ 'was replaced by another' AND lease_until < now()});
	is( error_at_once($node)->{message},
		"the lease of this server's node ID has ended",
		'a coordinator that was replaced grants nothing, and no mint waits for it');
}
$coordinator->stop;
$second->start;
wait_for_mint($_) foreach @members;

# Renewed across the change of the primary, without another lease.  It is long enough for
# a coordinator that is busy with its backup.
set_conf($_, 'snowflake.lease' => '1min') foreach @members;
wait_for_status($_, q{lease_until > now() + interval '40s'}) foreach @members;
my @leased = map { status($_, 'node, leases') } @members;
my $third = standby_of($second, 'third');
set_conf($_, 'snowflake.lease' => '2min', 'snowflake.node_source' => url_of($second, $third))
  foreach @members;
wait_for_status($_, q{lease_until > now() + interval '90s'}) foreach @members;
is_deeply([ map { status($_, 'node, leases') } @members ],
	\@leased, 'other words for the same fleet cost no lease');

stop_primary($second, $third);
$third->promote;
set_conf($_, 'snowflake.lease' => '4min') foreach @members;
wait_for_status($_, q{lease_until > now() + interval '3min'}) foreach @members;
is_deeply(
	[ map { status($_, 'node, leases, gate') } @members ],
	[ map { "$_|open" } @leased ],
	'nor does a failover of the coordinator');
is(record($third, 'fleet', 'term'), '3', 'of which those that renew take note');

# A failover that loses a grant: it is granted to nobody else before its holder has asked.
my $fourth = standby_of($third, 'fourth');
my @seven = (
	lease => '40s',
	conf => "snowflake.lease_nodes = '7'\n");
$_->stop foreach @members;
$third->wait_for_catchup($fourth);
$fourth->stop;
my $holder = start_member('holder', url_of($third, $fourth), @seven);
wait_for_mint($holder);
freeze(lessee($holder));
$third->stop('immediate');
$fourth->start;
$fourth->promote;
my $other = start_member('other', url_of($third, $fourth), @seven);
wait_for_status($other, q{lease_until IS NOT NULL OR advice ~ 'timeline'});
is(status($other, 'lease_until'), '', 'after a failover nothing is granted anew');
thaw();
$holder->reload;
wait_for_status($holder,
	q{gate = 'closed: the coordinator went back in time' OR lease_until < now()});
wait_for_status($other, q{advice ~ 'went back in time' OR lease_until IS NOT NULL});
is(status($other, 'lease_until'),
	'', 'before the holder of a grant that was lost has marked the fleet');
$holder->stop('immediate');
query($other, 'SELECT snowflake_fleet_recover(now(), holder_is_gone => true)');
wait_for_mint($other);

# Where nothing was lost the others wait for half a lease, and those who have one for nothing.
my $fifth = standby_of($fourth, 'fifth');
my $clock = new_clock('late');
my $source = url_of($fourth, $fifth);
set_conf($other, 'snowflake.node_source' => $source);
my $renewals = status($other, 'lease_renewals');
wait_for_status($other, "lease_renewals > $renewals");
stop_primary($fourth, $fifth);
$fifth->promote;
my $late = start_member(
	'late', $source,
	lease => '1h',
	clock => $clock,
	conf => "snowflake.lease_nodes = '8'\n");
wait_for_status($late, q{lease_until IS NOT NULL OR advice ~ 'timeline'});
is(status($late, 'lease_until'), '', 'a server without a lease waits after a failover');
$renewals = status($other, 'lease_renewals');
my $leases = status($other, 'leases');
wait_for_status($other, "lease_renewals > $renewals");
is(status($other, 'leases, gate'), "$leases|open", 'one that has a lease renews it');
stop_time($clock);
let_pass($clock, 1_800_000);
$late->reload;
let_pass($clock, 30_000);
start_time($clock);
$late->reload;
wait_for_mint($late);
pass('until half a lease has passed');
$_->stop foreach $late, $other;

# The records are copied to another cluster, not from a template, which has a system identifier.
my $copy = new_node('copy', node_id => undef, preload => 0, init => { extra => ['--locale=C'] });
$copy->start;
query($copy,
	'CREATE SCHEMA snowflake_fleet; CREATE TABLE snowflake_fleet.records (key text PRIMARY KEY, value text NOT NULL)'
);
query(
	$copy,
	'INSERT INTO snowflake_fleet.records VALUES '
	  . query(
		$fifth,
		q{SELECT string_agg(format('(%L, %L)', key, value), ', ') FROM snowflake_fleet.records}));
my $last = $members[0];
$last->append_conf('postgresql.conf',
	sprintf "snowflake.lease = '10s'\nsnowflake.node_source = '%s'",
	url_of($copy));
$last->start;
wait_for_status($last, q{advice ~ 'copied from another coordinator'});
is( error_at_once($last)->{message},
	'this server has not leased a node ID',
	'a copy of the records at another coordinator grants nothing, and no mint waits for it');
query($last, 'SELECT snowflake_fleet_recover()');
wait_for_status($last, q{coordinator = 'reachable' AND gate = 'open'});
is( record($copy, 'fleet', 'cluster'),
	query($copy, 'SELECT system_identifier FROM pg_control_system()'),
	'until it is made the coordinator, as its record says');

# One that was replaced is made the coordinator: what was known of the newer one is forgotten.
$last->append_conf('postgresql.conf', "snowflake.node_source = '$source'");
$last->restart;
wait_for_status($last, q{coordinator <> 'not asked'});
$fifth->stop;
$fourth->start;
wait_for_status($last, q{advice ~ 'was replaced by another'});
$leases = status($last, 'leases');
query($last, 'SELECT snowflake_fleet_recover()');
wait_for_status($last, "advice ~ 'waits for the floor of the fleet' OR leases > $leases");
pass('and so can one that was replaced');

done_testing();
