# A coordinator that has lost its data, or went back in time: it grants nothing, a server uses
# up its lease, or gives it up if another server could have the same one, and
# snowflake_fleet_recover() restores service.
# long

use SnowflakeFleet;
use SnowflakeTest;

# as short as the machine permits that something is done within half of it
my $lease = patience(10);
my $coordinator = new_coordinator();
my $went_back = q{gate = 'closed: the coordinator went back in time'};
my @lists;
my ($one, $two) =
  map { start_member($_, $coordinator, lease => "${lease}s", founds => $_ eq 'one' ? '' : undef) }
  qw(one two);

# All IDs up to now are distinct.
sub are_distinct
{
	my ($what) = @_;

	push @lists, mint_together(1, $one, $two);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(duplicates(@lists), 0, "$what: no ID twice");
}
are_distinct('two servers');

# The coordinator loses its data.
query($coordinator, 'TRUNCATE snowflake_fleet.records');
wait_for_status($one, q{coordinator = 'grants nothing'});
like(
	status($one, 'advice'),
	qr/^Minting ends with the lease\. The coordinator has no fleet/,
	'a server that has a lease says so');
isnt(mint($one), '', 'and goes on');
restart_node($two, 'immediate', undef, '.');
wait_for_status($two, q{advice ~ '^The coordinator has no fleet: .*snowflake_fleet_recover'});
is( error_at_once($two)->{message},
	'this server has not leased a node ID',
	'a server without a node ID gets none, and is refused at once');
wait_for_status($one, q{gate = 'closed: the lease of the node ID has ended'});
is( error_of($one, 'SELECT snowflake_next()')->{hint},
	status($one, 'advice'),
	'the other one mints up to the end of its lease');
query($one, 'SELECT snowflake_fleet_recover()');
are_distinct('snowflake_fleet_recover() brings all back');

# The coordinator goes back in time: it has forgotten a lease.
query($coordinator, forget_record(status($one, 'node')));
wait_for_status($one, $went_back);
my $error = error_at_once($one);
is( $error->{message},
	q{this server's node ID may be leased again by another server},
	'the holder closes at once, and refuses mints at once');
like($error->{hint}, qr/snowflake_fleet_recover\(\)/, 'with a hint');
wait_for_query($two,
	q{SELECT state = 'fleet, grants nothing until snowflake_fleet_recover()' FROM snowflake_fleet() WHERE node IS NULL}
);
is( listed(
		$two,
		sprintf q{leased_until >= '%s' AND holder ~ ':%s %s$'},
		status($one, 'lease_until'),
		$one->port, $one->data_dir),
	't',
	'and marks the fleet, with its name, and the end of its own lease');
recover($two);
are_distinct('after snowflake_fleet_recover() all mint');

# What the coordinator has is changed to the tick, beside a lease of which own.first and own.last
# are the ends: the record of the fleet gets these changes, and that of the node ID is changed
# by a statement.  What does the holder do, and does it mark the fleet?
set_conf($one, 'snowflake.lease' => patience(3) . 's');

sub found
{
	my ($fleet, $record) = @_;
	my $offset = -s $one->logfile;
	my $holder = ':' . $one->port . ' ';

	query(
		$coordinator, qq{
		DO \$\$
		DECLARE
			own record;
		BEGIN
			PERFORM FROM snowflake_fleet.records WHERE key = 'fleet' FOR UPDATE;
			SELECT key, (value::jsonb ->> 'from')::bigint AS first, (value::jsonb ->> 'until')::bigint AS last
				FROM snowflake_fleet.records WHERE value::jsonb ->> 'holder' ~ '$holder' AND key <> 'fleet'
				ORDER BY last DESC LIMIT 1 INTO own;
			UPDATE snowflake_fleet.records SET value = (value::jsonb || $fleet)::text WHERE key = 'fleet';
			$record WHERE key = own.key;
		END \$\$});
	my $used_up = qr/LOG:  lost the lease of snowflake node ID/;
	my $given_up = qr/WARNING:  the coordinator of the snowflake fleet went back in time/;
	wait_until('it is noticed', sub { log_count($one, qr/$used_up|$given_up/, $offset) > 0 });
	return log_count($one, $given_up, $offset) ? 'given up' : 'used up';
}

sub founded_at { return "jsonb_build_object('incarnation', md5(random()::text), 'floor', $_[0])"; }

sub changed
{
	return
	  "UPDATE snowflake_fleet.records SET value = (value::jsonb || jsonb_build_object($_[0]))::text";
}
sub of_another { return changed("'token', 'another', 'from', $_[0], 'until', $_[1]"); }

my $same = q{'{}'::jsonb};
my $gone = 'DELETE FROM snowflake_fleet.records';
my $older = changed(q{'until', own.last - 1});
my $damaged = q{UPDATE snowflake_fleet.records SET value = 'damaged'};
my $lower = founded_at('own.last - 1');
my $at_end = founded_at('own.last');
foreach my $case (
	[ 'it is older', $same, $older, 'given up', 'marked' ],
	[ 'it is damaged', $same, $damaged, 'used up', '' ],
	[
		'another has the last tick',
		$same, of_another('own.last', 'own.last + 3600000'),
		'given up', 'marked'
	],
	[ 'another had the next tick', $same, of_another(('own.last + 1') x 2), 'used up', '' ],
	[ 'founded a tick lower, and gone', $lower, $gone, 'given up', 'marked' ],
	[ 'founded at its end, and gone', $at_end, $gone, 'used up', '' ],
	[ 'founded at its end, and older', $at_end, $older, 'used up', '' ],
	[ 'and another had the last tick', $at_end, of_another(('own.last') x 2), 'given up', '' ],
	[ 'and another had the first tick', $at_end, of_another(('own.first') x 2), 'given up', '' ],
	[ 'and another had one before', $at_end, of_another(('own.first - 1') x 2), 'used up', '' ])
{
	my ($name, $fleet, $record, $expected, $is_marked) = @$case;
	my ($node, $leases) = split /\|/, status($one, 'node, leases');

	is(found($fleet, $record), $expected, "the record of a lease, $name: the lease is $expected");
	if ($is_marked)
	{
		wait_for_query($one,
			q{SELECT state ~ 'grants nothing' FROM snowflake_fleet() WHERE node IS NULL});
		is(error_of($one, "SELECT snowflake_fleet_reclaim($node)")->{message},
			'', 'this server may reclaim its node ID')
		  if $name eq 'another has the last tick';
		recover($one);
	}
	else
	{
		is(listed($one, 'state'), 'fleet', 'the fleet is not marked');
	}
	query($coordinator, q{DELETE FROM snowflake_fleet.records WHERE value = 'damaged'});
	wait_for_status($one, "leases > $leases AND gate = 'open'");
}
are_distinct('after all this');

# A fleet that is suspect renews nothing, for a server that has lost a grant may find the
# record of it again.
$two->stop;
wait_for_mint($one);
query($coordinator, change_record('fleet', suspect => 'true'));
wait_for_status($one, q{coordinator = 'grants nothing'});
my $until = status($one, 'lease_until');
wait_for_status($one,
	"gate = 'closed: the lease of the node ID has ended' OR lease_until <> '$until'");
is( status($one, "coordinator, lease_until = '$until'"),
	'grants nothing|t',
	'a fleet that is suspect renews nothing');
recover($one);
wait_for_mint($one);

# The same node ID leased again is another lease.  The keeper, which did not see that
# the one before had ended, does not go on there: it may have been somebody else's.
my $node = status($one, 'node');
my ($keeper, $lessee) = (status($one, 'keeper_pid'), lessee($one));
set_conf($one, 'snowflake.lease_nodes' => $node);
freeze($keeper, $lessee);
$until = status($one, 'lease_until');
wait_for_query($coordinator, "SELECT clock_timestamp() > '$until'");
query($coordinator, 'TRUNCATE snowflake_fleet.records');
query($one, q{SELECT snowflake_fleet_recover(now() + interval '8s')});
my $floor = listed($one, 'leased_from');
my $leases = status($one, 'leases');
thaw($lessee);
wait_for_status($one, "leases > $leases");
thaw();
is( query(
		$one,
		"SET snowflake.max_wait = '1min'; SELECT snowflake_timestamp(snowflake_next()) > '$floor'"),
	't',
	'the same node ID, leased again, begins where the new lease does');
my $newest = mint($one);
$one->stop;
cmp_ok(
	record($coordinator, $node, 'until'),
	'>=',
	$newest >> 22,
	'and is not given back as one that was not used');
$one->append_conf('postgresql.conf', "snowflake.lease_nodes = ''\nsnowflake.lease = '${lease}s'");
$_->start foreach $one, $two;
wait_for_mint($_) foreach $one, $two;

# The coordinator goes back in time, and then forward to what it had.  What was revoked is not
# renewed, though it is the same record: a new lease starts above it, or has another node ID.
$node = status($one, 'node');
query(
	$coordinator, qq{
	BEGIN;
	SELECT FROM snowflake_fleet.records WHERE key = 'fleet' FOR UPDATE;
	CREATE TABLE before AS SELECT * FROM snowflake_fleet.records WHERE key IN ('fleet', 'node/$node');
	DELETE FROM snowflake_fleet.records WHERE key = 'node/$node';
	COMMIT});
wait_for_status($one, $went_back);
query(
	$coordinator,
	q{DELETE FROM snowflake_fleet.records WHERE key IN (SELECT key FROM before);
	INSERT INTO snowflake_fleet.records SELECT * FROM before});
wait_for_mint($_) foreach $one, $two;
wait_for_status($one, q{coordinator = 'reachable'});
is( query(
		$coordinator,
		sprintf q{
		SELECT bool_and(r.key <> b.key OR (r.value::jsonb ->> 'from')::int8 > (b.value::jsonb ->> 'until')::int8)
		FROM snowflake_fleet.records r, before b WHERE r.key = 'node/%d' AND b.key <> 'fleet'},
		status($one, 'node')),
	't',
	'what was revoked is not renewed');
are_distinct('back and forward');

# A fleet is re-created above the leases, which are used up, and then again with a lower floor:
# that is noticed by a holder whose lease is lost as well.
query($coordinator, 'DROP SCHEMA snowflake_fleet CASCADE');
my $log_size = -s $two->logfile;
query($one, q{SELECT snowflake_fleet_recover(now() + interval '1 day')});
$two->wait_for_log(qr/lost the lease of snowflake node ID/, $log_size);
is(status($two, 'gate'), 'open', 'a lease below the floor of a new fleet is used up');
query($one, 'SELECT snowflake_fleet_recover(now())');
wait_for_status($two, $went_back);
pass('and given up if the floor is lowered below it');

done_testing();
