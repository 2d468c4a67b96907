# A coordinator of several servers fails over: two of them accept writes, the old one comes
# back, a grant or the key of the table is lost, the records are copied.  The wrong one
# grants nothing, and the new one renews what was granted.
# long

use SnowflakeFleet;
use SnowflakeTest;

my $coordinator = new_coordinator(init => { allows_streaming => 1 });
my $lease = patience(4) . 's';

# What snowflake.node_source is for several coordinators
sub url_of
{
	return sprintf 'postgresql:///postgres?host=%s&port=%s',
	  join(',', map { $_->host } @_), join(',', map { $_->port } @_);
}

# Two servers, with a coordinator of two hosts each
my $second = standby_of($coordinator, 'second');
my %source = (a => url_of($coordinator, $second), b => url_of($second, $coordinator));
my @members =
  map { start_member($_, $source{$_}, lease => $lease, conf => "snowflake.max_wait = '20s'\n") }
  qw(a b);

# A table without its key: two servers could insert the record of one node ID.
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
	refuses(
		$members[0],
		"SELECT snowflake_fleet_$_()",
		'55000',
		"no fleet is made by $_() without a key: $index",
		message =>
		  qr/^table snowflake_fleet\.records of the coordinator has no unique index on key$/
	) foreach $index ? 'create' : qw(create recover);
	query($coordinator, 'DROP TABLE snowflake_fleet.records');
}
query($members[0], 'SELECT snowflake_fleet_create()');
wait_for_mint($_) foreach @members;
$_->stop foreach @members;
query($coordinator,
	q{ALTER TABLE snowflake_fleet.records DROP CONSTRAINT records_pkey; DELETE FROM snowflake_fleet.records WHERE key <> 'fleet'}
);
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

# A failover that loses nothing: those who have a lease renew it, and a server without one waits for
# half of a lease.  Theirs is long enough for a coordinator that is busy with its backup.
set_conf($_, 'snowflake.lease' => '1min') foreach @members;
wait_for_status($_, q{lease_until > now() + interval '40s'}) foreach @members;
my @leased = map { status($_, 'node, leases, gate') } @members;
my $third = standby_of($second, 'third');
my $source = url_of($second, $third);
set_conf($_, 'snowflake.lease' => '2min', 'snowflake.node_source' => $source) foreach @members;
wait_for_status($_, q{lease_until > now() + interval '90s'}) foreach @members;
$second->wait_for_catchup($third);
$second->stop;
$third->promote;
my $clock = new_clock('late');
my $late = start_member('late', $source, lease => '1h', clock => $clock);
wait_for_status($late, q{lease_until IS NOT NULL OR advice ~ 'timeline'});
is(status($late, 'lease_until'), '', 'a server without a lease waits after a failover');
set_conf($_, 'snowflake.lease' => '4min') foreach @members;
wait_for_status($_, q{lease_until > now() + interval '3min'}) foreach @members;
is_deeply([ map { status($_, 'node, leases, gate') } @members ],
	\@leased, 'neither another URL of the fleet nor its failover costs a lease');
is(record($third, 'fleet', 'term'), '3', 'and those that renew take note of the new timeline');
stop_time($clock);
let_pass($clock, 1_800_000);
$late->reload;
let_pass($clock, 30_000);
start_time($clock);
$late->reload;
wait_for_mint($late);
pass('the one without a lease gets one when half of it has passed');
$_->stop foreach $late, @members;

# A failover that loses a grant: it is granted to nobody else before its holder has asked.
my $fourth = standby_of($third, 'fourth');
$source = url_of($third, $fourth);
$third->wait_for_catchup($fourth);
$fourth->stop;
my ($holder, $other) = @members;
$_->append_conf('postgresql.conf',
	"snowflake.lease = '40s'\nsnowflake.lease_nodes = '7'\nsnowflake.node_source = '$source'")
  foreach @members;
$holder->start;
wait_for_mint($holder);
freeze(lessee($holder));
$third->stop('immediate');
$fourth->start;
$fourth->promote;
$other->start;
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
		$fourth,
		q{SELECT string_agg(format('(%L, %L)', key, value), ', ') FROM snowflake_fleet.records}));
$holder->append_conf('postgresql.conf',
	sprintf "snowflake.lease_nodes = ''\nsnowflake.node_source = '%s'",
	url_of($copy));
$holder->start;
wait_for_status($holder, q{advice ~ 'copied from another coordinator'});
is( error_at_once($holder)->{message},
	'this server has not leased a node ID',
	'a copy of the records at another coordinator grants nothing, and no mint waits for it');
query($holder, 'SELECT snowflake_fleet_recover()');
wait_for_status($holder, q{coordinator = 'reachable' AND gate = 'open'});
is( record($copy, 'fleet', 'cluster'),
	query($copy, 'SELECT system_identifier FROM pg_control_system()'),
	'until it is made the coordinator, as its record says');

done_testing();
