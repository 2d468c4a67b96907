# What once brought IDs twice: numbers that were set by hand before, a coordinator of
# which two servers can be written, and a lease outside of snowflake.lease_nodes.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  coordinator_url duplicates error_at_once error_of member_conf mint_together new_clock
  new_member new_node patience set_clock start_with_clock status wait_for_mint
  wait_for_status
);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $coordinator =
  new_node('coordinator', node_id => undef, preload => 0, init => { allows_streaming => 1 });
$coordinator->start;

# A server with a number of its own has a clock that is ahead.  It comes into a fleet that
# leases that number to another: nothing of it is granted below its newest ID.
my $clock = new_clock('ahead');
my $by_hand = new_node('by_hand', node_id => 0, conf => "snowflake.max_wait = '1min'\n");
set_clock($clock, 25_000);
start_with_clock($by_hand, $clock);
$by_hand->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my @lists = [
	split /\n/,
	$by_hand->safe_psql('postgres', 'SELECT snowflake_next() FROM generate_series(1, 30000)')
];
my $newest = status($by_hand, 'last_time');
my $one = new_member('one', $coordinator, conf => "snowflake.max_wait = '1min'\n");
$one->start;
$one->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$one->safe_psql('postgres', "SELECT snowflake_fleet_create('$newest')");
wait_for_status($one, q{gate = 'closed: no node ID is leased yet'});
like(
	status($one, 'advice'),
	qr/^This server waits for the floor of the fleet, until "/,
	'a server waits for the floor of its fleet, and says so');
is( status($one, 'coordinator, gate'),
	'grants nothing|closed: no node ID is leased yet',
	'with a closed gate');
$by_hand->append_conf('postgresql.conf',
	member_conf($coordinator) . "snowflake.lease_nodes = '5-9'\n");
$by_hand->reload;
push @lists,
  [
	split /\n/,
	$one->safe_psql('postgres', 'SELECT snowflake_next() FROM generate_series(1, 30000)')
  ];
is(status($one, 'node'), 0, 'another server gets the number that was set by hand');
is( $one->safe_psql(
		'postgres', "SELECT min(leased_from) > '$newest' FROM snowflake_fleet() WHERE node = 0"),
	't',
	'above the floor');
is(duplicates(@lists), 0, 'no ID twice');
$by_hand->stop;

# A held node ID that snowflake.lease_nodes has no more
my $leases = status($one, 'leases');
$one->append_conf('postgresql.conf', "snowflake.lease_nodes = '100-200'");
$one->reload;
wait_for_status($one, "leases > $leases AND node <> 0");
is(status($one, 'node'),
	100, 'a node ID that is not to be leased any more is given back for another');
my $until = 'SELECT leased_until FROM snowflake_fleet() WHERE node = 0';
my $given_back = $one->safe_psql('postgres', $until);
my $held = status($one, 'lease_until');
wait_for_status($one, "lease_until > '$held'");
is($one->safe_psql('postgres', $until), $given_back, 'and not renewed');

# Of several node IDs with its name, a server takes the one that it had last, in whatever
# order it finds them.
$one->poll_query_until('postgres',
	'SELECT leased_until < now() FROM snowflake_fleet() WHERE node = 0')
  or die 'the lease does not end';
$one->append_conf('postgresql.conf', "snowflake.lease_nodes = '0-200'");
foreach my $order ('first', 'last')
{
	$one->stop;
	$coordinator->safe_psql(
		'postgres',
		sprintf q{
		CREATE TEMPORARY TABLE found AS TABLE snowflake_fleet.records;
		TRUNCATE snowflake_fleet.records;
		INSERT INTO snowflake_fleet.records SELECT * FROM found
			ORDER BY (value::jsonb ->> 'granted')::bigint %s},
		$order eq 'first' ? 'DESC' : 'ASC');
	$one->start;
	wait_for_mint($one);
	is(status($one, 'node'), 100, "a restart keeps the last of two node IDs, found $order");
}

# One that is not to be leased any more is given up at once, however long its lease is.
$one->append_conf('postgresql.conf', "snowflake.lease = '1h'");
$one->reload;
wait_for_status($one, "lease_until > now() + interval '50 min'");
$one->append_conf('postgresql.conf', "snowflake.lease_nodes = '150-200'");
$one->reload;
wait_for_status($one, 'node = 150');
pass('a node ID with a long lease is given back for another');

# The lease counts for a recovery, though the next one is to be short.
$one->append_conf('postgresql.conf', "snowflake.lease = '10s'");
$one->reload;
$one->poll_query_until('postgres', q{SELECT current_setting('snowflake.lease') = '10s'})
  or die 'reload has no effect';
like(
	error_of($one, 'SELECT snowflake_fleet_recover()')->{message},
	qr/^the floor of the fleet would be 3\d{3}\.\d+ s ahead of the clock$/,
	'a recovery takes into account the lease of its server');
$one->stop;

# A split coordinator: a standby was promoted, and the old primary goes on.
$coordinator->backup('base');
my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($coordinator, 'base', has_streaming => 1);
$second->start;
my $lease = patience(4);
my %hosts = (a => [ $coordinator, $second ], b => [ $second, $coordinator ]);
my %member = map {
	my $name = $_;
	my $list = join ',', map { coordinator_url($_) =~ m{//(.*):} } @{ $hosts{$name} };
	my $ports = join ',', map { $_->port } @{ $hosts{$name} };

	my $node = new_node(
		$name,
		node_id => undef,
		conf =>
		  "snowflake.node_source = 'postgresql:///postgres?host=$list&port=$ports'\nsnowflake.lease = '${lease}s'\nsnowflake.max_wait = '20s'\n"
	);
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	wait_for_mint($node);
	($name => $node);
} qw(a b);
my $members = [ map { $member{$_} } qw(a b) ];
isnt(
	status($members->[0], 'node'),
	status($members->[1], 'node'),
	'two servers with a coordinator of two hosts');
$_->stop foreach @$members;
$second->promote;
$_->start foreach @$members;
foreach my $node (@$members)
{
	wait_for_status($node,
		q{coordinator = 'unreachable' AND advice ~ 'two servers of the coordinator accept writes'});
	pass('two primaries: nothing is leased, and it says why');

	# a server that starts too slowly to be seen is not there at first
	wait_for_status($node, 'lease_until IS NULL OR lease_until < now()');
	pass('from neither');
}
my $error = error_of($members->[0], 'SELECT * FROM snowflake_fleet()');
is( $error->{message},
	'two servers of the coordinator accept writes',
	'which an administrator sees as well');
is($error->{sqlstate}, '55000', 'with its SQLSTATE');
like($error->{detail}, qr/ on timeline 1, .* on timeline 2\.$/, 'and the timelines');

# The old one stops: the new one goes on, in the same fleet.
$coordinator->stop;
wait_for_mint($_) foreach @$members;
my @node = map { status($_, 'node, leases') } @$members;
isnt($node[0], $node[1], 'one primary is left, and leases');
is( $second->safe_psql(
		'postgres',
		q{SELECT value::jsonb ->> 'term' FROM snowflake_fleet.records WHERE key = 'fleet'}),
	'2',
	'whose timeline is noted down');
is(duplicates(mint_together(1, @$members)), 0, 'no ID twice');

# The one before is back, alone.
$second->stop('immediate');
$coordinator->start;
foreach my $node (@$members)
{
	wait_for_status($node, q{advice ~ 'was replaced by another'});
	pass('a coordinator that was replaced grants nothing');
	wait_for_status($node, q{advice ~ 'was replaced by another' AND lease_until < now()});
	is( error_at_once($node)->{message},
		"the lease of this server's node ID has ended",
		'which a mint does not wait for');
}
$coordinator->stop;
$second->start;
wait_for_mint($_) foreach @$members;

# Renewed across the change of the primary, without another lease.  It is long enough for
# a coordinator that is busy with its backup.
foreach my $node (@$members)
{
	$node->append_conf('postgresql.conf', "snowflake.lease = '20s'");
	$node->reload;
	wait_for_status($node, q{lease_until > now() + interval '15s'});
}
my @leased = map { status($_, 'node, leases') } @$members;
my $third = PostgreSQL::Test::Cluster->new('third');
$second->backup('base');
$third->init_from_backup($second, 'base', has_streaming => 1);
$third->start;
my $list = join ',', map { coordinator_url($_) =~ m{//(.*):} } $second, $third;
my $ports = join ',', map { $_->port } $second, $third;

foreach my $node (@$members)
{
	$node->append_conf('postgresql.conf',
		"snowflake.lease = '1min'\nsnowflake.node_source = 'postgresql:///postgres?host=$list&port=$ports'"
	);
	$node->reload;
	wait_for_status($node, q{lease_until > now() + interval '40s'});
}
is_deeply([ map { status($_, 'node, leases') } @$members ],
	\@leased, 'other words for the same fleet cost no lease');

# A renewal of each is in doubt by then, and is repeated for the new timeline.
my $locker = $second->background_psql('postgres');
$locker->query_safe(q{BEGIN; SELECT FROM snowflake_fleet.records WHERE key ~ '^node/' FOR UPDATE});
foreach my $node (@$members)
{
	my $errors = status($node, 'lease_errors');

	$node->append_conf('postgresql.conf', "snowflake.lease = '2min'");
	$node->reload;
	wait_for_status($node, "lease_errors > $errors");
}
$second->wait_for_catchup($third);
$second->stop;
$locker->quit;
$third->promote;
my @renewed = map { status($_, 'lease_renewals') } @$members;
foreach my $i (0, 1)
{
	wait_for_status($members->[$i], "lease_renewals > $renewed[$i]");
}
is_deeply(
	[ map { status($_, 'node, leases, gate') } @$members ],
	[ map { "$_|open" } @leased ],
	'nor does a failover of the coordinator');
is( $third->safe_psql(
		'postgres',
		q{SELECT value::jsonb ->> 'term' FROM snowflake_fleet.records WHERE key = 'fleet'}),
	'3',
	'of which those that renew take note');

# The records are copied to another cluster.
# not from a template, which has a system identifier
my $copy = new_node('copy', node_id => undef, preload => 0, init => { extra => ['--locale=C'] });
$copy->start;
$copy->safe_psql('postgres',
	'CREATE SCHEMA snowflake_fleet; CREATE TABLE snowflake_fleet.records (key text PRIMARY KEY, value text NOT NULL)'
);
$copy->safe_psql(
	'postgres',
	sprintf 'INSERT INTO snowflake_fleet.records VALUES %s',
	$third->safe_psql(
		'postgres',
		q{SELECT string_agg(format('(%L, %L)', key, value), ', ') FROM snowflake_fleet.records}));
my $last = $members->[0];
$last->append_conf('postgresql.conf', sprintf q{snowflake.node_source = '%s'},
	coordinator_url($copy));
$last->reload;
wait_for_status($last, q{advice ~ 'copied from another coordinator'});
pass('a copy of the records at another coordinator grants nothing');
$last->stop('immediate');
$last->start;
wait_for_status($last, q{advice ~ 'copied from another coordinator'});
is( error_at_once($last)->{message},
	'this server has not leased a node ID',
	'which a mint does not wait for, either');
$third->stop;
my $leases = status($last, 'leases');
$last->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
wait_for_status($last, "coordinator = 'reachable' AND gate = 'open' AND leases > $leases");
is( $copy->safe_psql(
		'postgres', q{
		SELECT value::jsonb ->> 'cluster' = system_identifier::text
		FROM snowflake_fleet.records, pg_control_system() WHERE key = 'fleet'}),
	't',
	'until it is made the coordinator, as its record says');

# One that was replaced is made the coordinator: what was known of the newer one is forgotten.
$second->start;
$last = $members->[1];
wait_for_status($last, q{advice ~ 'was replaced by another'});
$leases = status($last, 'leases');
$last->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
wait_for_status($last, "advice ~ 'waits for the floor of the fleet' OR leases > $leases");
pass('and so can one that was replaced');

$_->stop foreach @$members, $copy, $second;
done_testing();
