# What a stop, or a terminated lessee, gives back of a lease: everything that was not minted
# with it, and nothing that was.  It is not given back while a session may mint with it, or if
# nobody knows what was minted.  One section needs injection points.
# long

use SnowflakeFleet;
use SnowflakeTest;

my $coordinator = new_coordinator(init => { allows_streaming => 1 });
my $one = start_member(
	'one', $coordinator,
	lease => '1min',
	conf => "snowflake.lease_nodes = '6, 5'\n");

# The last tick for which a node ID is leased
sub until_of
{
	return record($coordinator, $_[0], 'until');
}

query($one, 'SELECT snowflake_fleet_create()');

# A lease with which nothing was minted yet is given back whole, and taken again.
wait_for_status($one, 'leases = 1');
$one->stop;
is(until_of(5) - record($coordinator, 5, 'from'),
	-1, 'nothing of a lease is kept that nothing was minted with');
$one->start;
wait_for_status($one, 'leases = 1');
is(listed($one, 'state', 5), 'leased', 'its node ID is leased again');
wait_for_mint($one);
my $leased = query($one, 'SHOW snowflake.node_source');

# IDs stand ahead of the clock, and another node ID is used for a while.  Nothing is minted
# after it, before the server stops.
advance($one, '10min');
wait_for_mint($one);
my $newest = mint($one);
my $node = status($one, 'node');
set_conf($one, 'snowflake.node_source' => 'setting', 'snowflake.node_id' => 77);
wait_for_status($one, q{node = 77 AND gate = 'open'});
set_conf($one, 'snowflake.node_source' => $leased);
wait_for_status($one, "node = $node AND gate = 'open'");
is(status($one, 'leases'), 1, 'after a node ID of a setting the lease is the same');
wait_until('the lessee, which has ended meanwhile, is back', sub { lessee($one) });
$one->stop;
is( until_of($node),
	$newest >> 22,
	'a stop gives back all that was not minted, and nothing that was');

# A lessee is terminated with the keeper: the next one knows that there is no lease to look
# after.  An answer that is lost is another thing: then another server has the node ID, but no
# server has minted above its lease, so there is nothing to be told to the fleet.
my @seven = (
	lease => '1min',
	conf => "snowflake.lease_nodes = '7'\n",
	init => { allows_streaming => 1 });
my $two = start_member('two', $coordinator, @seven);
my $workers = qr/snowflake (?:lessee|keeper)/;

wait_for_mint($two);
end_children($two, $workers);
thaw();
wait_for_mint($two);
is(log_count($two, qr/gave back snowflake node ID 7$/),
	1, 'a lessee that is terminated with the keeper gives back the lease');
is(log_count($two, qr/lost the lease/), 0, 'which its successor has not lost');
my $granted = until_of(7);
set_conf($coordinator, synchronous_standby_names => 'none');
query($coordinator, 'CHECKPOINT');    # commits wait when the checkpointer has read it, too
end_children($two, $workers);
set_conf($coordinator, synchronous_standby_names => '');
wait_until('the lease was given back', sub { until_of(7) < $granted });
my $three = start_member('three', $coordinator, @seven);
wait_for_mint($three);
is(status($three, 'node'), 7, 'another server has the node ID');
thaw();
wait_for_status($two, q{advice ~ 'No node ID is free' OR coordinator = 'grants nothing'});
is(listed($three, 'state'), 'fleet', 'the server that gave it back does not mark the fleet');
$two->stop;

# On a standby, which has no keeper, a lessee that is terminated gives back as well.
$three->append_conf('postgresql.conf', "snowflake.lease_nodes = ''");
$three->restart;
wait_for_mint($three);
my $standby = standby_of($three, 'standby');
wait_for_status($standby, 'node IS NOT NULL');
$node = status($standby, 'node');
$granted = until_of($node);
end_children($standby, qr/snowflake lessee/);
cmp_ok(until_of($node), '<', $granted, 'a lessee that is terminated gives the node ID back');
$coordinator->stop('immediate');
thaw();
like(
	status($standby, 'advice'),
	qr/^A promotion would leave this server unable to mint: the lease of this server's node ID has ended\./,
	'the standby says that it could not mint');
$standby->promote;
wait_for_status($standby, q{gate = 'open' OR gate ~ 'lease'});
like(
	refused($standby, '1s')->{message},
	qr/^the lease of this server's node ID has ended|^this server has not leased/,
	'and does not mint with it when it is promoted');
$coordinator->start;
wait_for_mint($standby);
is(duplicates(mint_together(1, $three, $standby)), 0, 'no ID twice');
$standby->stop;

# A lease is not given back while sessions may mint with it: the keeper has failed, and
# left the gate open.
$node = status($three, 'node');
my $session = $three->background_psql('postgres', on_error_stop => 0);
$session->query_safe(
	q{ALTER TABLE snowflake_keeper.reservation ADD COLUMN extra text; SET snowflake.max_wait = '100ms'}
);
freeze($three->{_pid});
$session->query('DO $$ BEGIN LOOP PERFORM snowflake_next(); END LOOP; END $$');
wait_until('the keeper has failed',
	sub { $session->query('SELECT advice FROM snowflake_status') =~ /failed with SQLSTATE/ });
$granted = until_of($node);
end_children($three, qr/snowflake lessee/);
cmp_ok(until_of($node), '>=', $granted, 'a lease is not given back while the gate is open');
is($session->query('SELECT coordinator FROM snowflake_status'),
	'not asked', 'what a lessee knew that has ended is not told');
thaw();
$session->quit;
$three->stop('immediate');

$one->append_conf('postgresql.conf', q{snowflake.lease = '5min'});
$one->start;
wait_for_mint($one);

# A lessee and a keeper are terminated, and overlap: another keeper opens the gate, and closes it,
# while the lessee is about to give the lease back.
SKIP:
{
	skip 'the server has no injection points, or not their extension', 2
	  if !-e '/proc/self/stat' || !has_injection_points($one);
	$node = status($one, 'node');
	$session = session($one, q{SELECT injection_points_attach('snowflake-give-back', 'wait')});

	# The lessee is in no view, for it has no database.  So it is at the injection point when it
	# only sleeps, for there is no keeper to wait for any more, and the coordinator answers.
	my $lessee = lessee($one);
	my $slept = 0;
	freeze($one->{_pid});
	kill 'TERM', $lessee;
	end_children($one, qr/snowflake keeper/);
	wait_until(
		'the lessee is about to give the lease back',
		sub {
			$slept = slurp_file("/proc/$lessee/stat") =~ /\) S/ ? $slept + 1 : 0;
			return $slept > 20;
		});
	thaw();
	wait_until('there is another keeper', sub { children($one, qr/snowflake keeper/) });
	wait_until('it mints',
		sub { $session->query_safe('SELECT gate FROM snowflake_status') eq 'open' });
	my $tick = $session->query_safe('SELECT snowflake_next()') >> 22;
	$granted = until_of($node);
	end_children($one, qr/snowflake keeper/);
	$session->query_safe(
		q{SELECT injection_points_detach('snowflake-give-back'), injection_points_wakeup('snowflake-give-back')}
	);
	wait_until('the lessee has ended', sub { !lessee($one) });
	cmp_ok($granted, '>=', $tick, 'a lease is minted with while it is given back');
	is(until_of($node), $granted, 'so it is not, but ends by itself');
	thaw();
	$session->quit;
	wait_for_mint($one);
}

# A keeper that closes the gate, and cannot store its end
$node = status($one, 'node');
$granted = until_of($node);
query($one, 'ALTER TABLE snowflake_keeper.reservation ADD COLUMN extra text');
my $offset = -s $one->logfile;
$one->stop;
is(log_count($one, qr/snowflake gate closed/, $offset), 0, 'the end is not stored');
cmp_ok(until_of($node), '>=', $granted, 'a lease whose end is not stored is not given back');

done_testing();
