# What an administrator can do for a fleet, and which messages there are: create it,
# re-create it above a given or a default floor, reclaim a node ID.  How soon all servers
# mint again if one of them has a clock that is ahead.
# long

use SnowflakeFleet;
use SnowflakeTest;

my $coordinator = new_coordinator();
my $clock = new_clock('ahead');
my $went_back = q{gate = 'closed: the coordinator went back in time'};
my @conf = (conf => "snowflake.max_wait = '20s'\n");
my @lists;

# Wait until they mint at their clocks.
sub mint_at_clock
{
	foreach my $node (@_)
	{
		wait_for_mint($node);
		wait_for_status($node, q{gate = 'open' AND lead < '1s' AND coordinator = 'reachable'});
	}
	return;
}

# Founded by a server that is ahead: the others need not wait for its clock.  And it
# has a lease when the function returns.  It has node IDs of its own, for by its clock the leases
# of the others end too early.
set_clock($clock, 600_000);
my ($one, $two) = map { start_member($_, $coordinator, @conf) } qw(one two);
my $ahead = start_member(
	'ahead', $coordinator,
	conf => "$conf[1]snowflake.lease_nodes = '60-69'\n",
	clock => $clock);
query($ahead,
	q{SELECT snowflake_fleet_create(); SET snowflake.max_wait = '1s'; SELECT snowflake_next()});
is(status($ahead, 'coordinator'), 'reachable', 'the founder of a fleet has a lease at once');
mint_at_clock($one, $two);
pass('a fleet is founded by a server that is ahead: the others mint at their clocks');
push @lists, mint_together(1, $one, $two, $ahead);

# It has had a lease: it creates no fleet that grants what others may have.
query($coordinator, 'CREATE DATABASE second');
set_conf($ahead, 'snowflake.node_source' => coordinator_url($coordinator) =~ s/postgres$/second/r);
refuses(
	$ahead, 'SELECT snowflake_fleet_create()',
	'55000',
	'a server that has had a lease does not create a fleet',
	message => qr/^this server has had a lease, so there has been a snowflake fleet$/,
	hint => qr/^Use snowflake_fleet_recover\(\)/);

# Nor one that has snowflakes ahead of the clock, without a word about that.
$ahead->stop;
start_with_clock($ahead, $clock);
wait_for_status($ahead, q{advice ~ 'recover\(\); .*create\(\)'});
refuses(
	$ahead, 'SELECT snowflake_fleet_create()',
	'55000',
	'nor does a founder with snowflakes from a clock that is ahead',
	message => qr/^the floor of the fleet would be .* ahead of the clock$/,
	hint => qr/snowflake_fleet_create\(\) with a floor/);
set_conf($ahead, 'snowflake.node_source' => coordinator_url($coordinator));
wait_for_status($ahead, q{gate = 'open' AND coordinator = 'reachable'});

# Records go back in time.  The first server marks the fleet with its own lease, the one that
# is ahead with a later one; and that is stopped for good.
query($coordinator, forget_record(status($one, 'node')));
wait_for_status($one, $went_back);
query($coordinator, forget_record(status($ahead, 'node')));
wait_for_status($ahead, $went_back);

# the gate is closed before the fleet's record is written
wait_for_query(
	$ahead,
	sprintf q{SELECT leased_until >= '%s' FROM snowflake_fleet() WHERE node IS NULL},
	status($ahead, 'lease_until'));
$ahead->stop('immediate');
my $who = qr/^Server ".*:@{[ $ahead->port ]} .*" gave up a lease that was valid/;
is( error_of($one, q{SELECT snowflake_fleet_recover(now() + interval '11s')})->{message},
	'the floor of the fleet is too low',
	'no floor may lie below its lease');
refuses(
	$one, 'SELECT snowflake_fleet_recover()',
	'55000',
	'and without one it would be far ahead',
	message => qr/^the floor of the fleet would be [\d.]+ \w+ ahead of the clock$/,
	detail => qr/$who up to that floor\./,
	hint => qr/permanently stopped.*holder_is_gone => true/);

# A recovery above it forgets neither that, nor its own floor.
query($one, q{SELECT snowflake_fleet_recover(now() + interval '15 min')});
like(
	error_of($one, q{SELECT snowflake_fleet_recover(now() + interval '11s')})->{detail},
	qr/$who until "/,
	'after a recovery above it that is known as well');
like(
	error_of($one, 'SELECT snowflake_fleet_recover()')->{detail},
	qr/^That was the previous floor of the fleet\./,
	'and the next recovery is not below this one by default');
query($one, 'SELECT snowflake_fleet_recover(holder_is_gone => true)');
mint_at_clock($one, $two);
push @lists, mint_together(1, $one, $two);
is(duplicates(@lists), 0, 'then all others mint at their clocks, no ID twice');

# A floor far ahead that was a mistake is waited for with a closed gate, and can be
# lowered: no generator got ahead.
my $waits = q{^This server waits for the floor of the fleet, until "};
query($one, q{SELECT snowflake_fleet_recover(now() + interval '1 year')});
wait_for_status($_, "advice ~ '$waits'") foreach $one, $two;
is( status($one, q{coordinator, gate ~ '^closed'}),
	'grants nothing|t',
	'a floor far ahead is waited for, with a closed gate');
query($one, q{SELECT snowflake_fleet_recover(now() + interval '1s')});
mint_at_clock($one, $two);
pass('and can be lowered');

# A floor is at the very end that was reported by default, if that is near, and not a tick below it.
# The clock of the coordinator is known to a second.
my $near = query(
	$one,
	q{SELECT sum(setting::int * CASE name WHEN 'snowflake.lease' THEN 2 ELSE 1 END) FROM pg_settings
	   WHERE name IN ('snowflake.lease', 'snowflake.max_jump')});
query(
	$coordinator,
	change_record(
		'fleet',
		suspect => 'true',
		floor => 0,
		reported =>
		  "floor(1000 * extract(epoch FROM clock_timestamp()))::bigint - 1288834974657 + $near - 1000"
	));
query($one, 'SELECT snowflake_fleet_recover()');
my $to_floor =
  q{SELECT snowflake_fleet_recover(leased_from - interval '%d ms') FROM snowflake_fleet() WHERE node IS NULL};
query($one, sprintf $to_floor, 0);
is( record($coordinator, 'fleet', 'floor'),
	record($coordinator, 'fleet', 'reported'),
	'by default a floor is at the end that was reported, and there it can be named');
is( error_of($one, sprintf $to_floor, 1)->{message},
	'the floor of the fleet is too low',
	'one that is a tick lower cannot');
query($one, 'SELECT snowflake_fleet_recover(holder_is_gone => true)');
mint_at_clock($one, $two);

# Node IDs are reclaimed: one that a server had whose clock was ahead, for its IDs do not count.
$ahead->append_conf('postgresql.conf', "snowflake.lease_nodes = '50-59'\n");
start_with_clock($ahead, $clock);
wait_for_mint($ahead);
$ahead->stop;
is(listed($one, 'state', 50), 'leased', 'what was used ahead of the clock is not free');
foreach my $refused (
	table(
		qq{recover(NULL, NULL)|22004|no floor
recover('2001-01-01')|22008|before the layout
recover((SELECT layout_ends FROM snowflake_status))|22008|after its end
reclaim((SELECT node FROM snowflake_status))|55006|what this server holds
reclaim(77)|42704|what nobody had
reclaim(-1)|42704|what is no node ID
reclaim(50, now() + interval '1 day')|22023|above a lease
reclaim(50, '2009-12-31')|22008|before the layout
reclaim(50, '2100-01-01')|22008|after its end}))
{
	my ($call, $sqlstate, $what) = @$refused;

	refuses($one, "SELECT snowflake_fleet_$call", $sqlstate, "$call: $what");
}
query($one, 'SELECT snowflake_fleet_reclaim(50)');
is(listed($one, 'state, holder, since', 50),
	'free||', 'a node ID is reclaimed, and has no holder any more');
my $node = status($two, 'node');
wait_until('one that is held is reclaimed, between two renewals',
	sub { return !error_of($one, "SELECT snowflake_fleet_reclaim($node)")->{message} });
wait_for_status($two, $went_back);
pass('a holder that there is all the same notices');
recover($one);
mint_at_clock($one, $two);

# A lease counts for a recovery, though the next one is to be short.
set_conf($one, 'snowflake.lease' => '1h');
wait_for_status($one, q{lease_until > now() + interval '50 min'});
set_conf($one, 'snowflake.lease' => '10s');
like(
	error_of($one, 'SELECT snowflake_fleet_recover()')->{message},
	qr/^the floor of the fleet would be 3\d{3}\.\d+ s ahead of the clock$/,
	'a recovery takes into account the lease of its server');

# It is told if the fleet at another coordinator begins below that.
my $second = coordinator_url($coordinator) =~ s/postgres$/second/r;
$two->append_conf('postgresql.conf', "snowflake.node_source = '$second'");
$two->restart;
query($two, 'SELECT snowflake_fleet_create()');
set_conf($one, 'snowflake.node_source' => $second);
$one->wait_for_log(qr/WARNING:  the floor of the snowflake fleet is below a lease of this server/);
pass('a server is told of a fleet that grants what it has leased from another');

done_testing();
