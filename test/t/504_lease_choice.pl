# Which node ID a server leases.  A clean restart keeps it, a crash costs it for the length of a
# lease, whatever the clock does meanwhile; a generator that is ahead of the clock keeps it until
# it is made to go back.  A new one is the smallest that nobody had, or else the one whose lease
# ended first.  Many servers choose at the same time, and those that are late spread.
# long

use SnowflakeFleet;
use SnowflakeTest;
use Time::HiRes qw(time);

my $coordinator = new_coordinator();
my $clock = new_clock('server');
my $server = start_member(
	'server', $coordinator,
	lease => '1min',
	clock => $clock,
	conf => "snowflake.lease_nodes = '0-15'\nfsync = off\n",
	founds => '');
my @ids;

# Stop, and start by a clock that is so far from the true time; returns how long it takes to
# mint.
sub mint_after
{
	my ($mode, $ms) = @_;

	$server->stop($mode);
	set_clock($clock, $ms) if defined $ms;
	start_with_clock($server, $clock);
	my $began = time;
	push @ids, query($server, q{SET snowflake.max_wait = '1min'; SELECT snowflake_next()});
	note(sprintf 'after %.3f s', time - $began);
	return time - $began;
}

my $node = status($server, 'node');
cmp_ok(mint_after('fast'), '<', patience(3), 'after a clean restart it mints at once');
is(status($server, 'node'), $node, 'with the node ID that it had');
cmp_ok(
	mint_after('immediate'), '<',
	4.5 + patience(2.5),
	'after a crash it mints as soon as reservation and lease permit');
isnt(status($server, 'node'), $node, 'with another node ID');

# By other clocks.  A grant starts above the floor, which a clock that is behind would wait for.
query($server, q{SELECT snowflake_fleet_recover(now() - interval '3 hours')});
foreach my $seconds (-20, 12)
{
	cmp_ok(mint_after('fast', $seconds * 1000),
		'<', patience(2), "clock off by $seconds s: an ID at once");
}
is(disorder(\@ids), 0, 'IDs ascend');
$server->stop;

# Crashes within a lease, for time stands.
set_clock($clock, 0);
stop_time($clock);
$server->append_conf('postgresql.conf', "snowflake.lease_nodes = '20-22'");
my @found;
foreach my $crash (1 .. 4)
{
	start_with_clock($server, $clock);
	wait_for_status($server, q{lease_until IS NOT NULL OR advice ~ 'No node ID is free'});
	push @found, status($server, q{coalesce(node::text, 'none')});
	$server->stop('immediate') if $crash < 4;
}
is("@found", '20 21 22 none', 'with three node IDs the fourth crash within a lease finds none');
my $ends =
  query($server, 'SELECT min(leased_until) FROM snowflake_fleet() WHERE node BETWEEN 20 AND 22');
let_pass($clock, status($server, "extract(epoch FROM '$ends' - clock_timestamp()) * 1000 - 1000"));
$server->reload;
wait_for_status($server, q{advice ~ 'No node ID is free'});
let_pass($clock, 2_000);
$server->reload;
wait_for_status($server, 'lease_until IS NOT NULL');
is(status($server, 'node'), 20, 'until the first lease has ended');
start_time($clock);
$server->stop;

# A clock that is set ahead while a server runs, beyond a lease that would be renewed in a minute by
# it, and is put right: the lease that was taken by it begins far ahead, where its IDs stand.
my $other = new_clock('other');
my $member = start_member('member', $coordinator, lease => '2min', clock => $other);
wait_for_mint($member);
step_clock($other, 300_000);
query($member, 'SELECT snowflake_accept_clock()');
my $began = time;
wait_for_status($member, q{gate = 'open' AND leases = 2});
cmp_ok(time - $began,
	'<', patience(30), 'a server whose clock went beyond its lease leases at once');
step_clock($other, -300_000);
query($member, 'SELECT snowflake_accept_clock()');
$member->reload;
wait_for_mint($member);
is(status($member, q{leases, gate, lead > interval '4min'}),
	'2|open|t', 'a server whose IDs stand ahead keeps its lease when that is put right');
$member->stop;

# A server that mints nothing, and whose clock is an hour ahead: that is judged before anything
# is asked for by it.
my $idle = start_member('idle', $coordinator, clock => $other);
wait_for_mint($idle);
wait_for_status($idle, q{lead < '0'});
my $attempts = status($idle, 'leases + lease_renewals');
step_clock($other, 3_600_000);
wait_for_status($idle, "leases + lease_renewals > $attempts + 1");
is(query($idle, q{SELECT max(leased_until) < now() - interval '30 min' FROM snowflake_fleet()}),
	't', 'an idle server leases nothing by a clock that is not believed');
$idle->stop;

# A server that creates a fleet, and whose clock is an hour behind its coordinator's: it would
# wait for a floor by that one.
query($coordinator, 'DROP SCHEMA snowflake_fleet CASCADE');
my $behind = new_clock('behind');
set_clock($behind, -3_600_000);
my $founder = start_member('founder', $coordinator, clock => $behind, founds => '');
is(listed($founder, q{leased_from < now() + interval '1 min'}),
	't', 'the floor of a new fleet is by the earlier of two clocks');
$founder->stop;

# Clean restarts of a server that is ahead take no node ID more.
my $far = start_member(
	'far', $coordinator,
	lease => '20s',
	conf => "snowflake.lease_nodes = '100-103'\nsnowflake.max_wait = '5s'\n");
wait_for_mint($far);
advance($far, '10min');
foreach (1, 2)
{
	restart_node($far, 'fast');
	wait_for_mint($far);
}
is( query(
		$coordinator,
		q{SELECT string_agg(key, ' ') FROM snowflake_fleet.records WHERE key ~ '^node/10'}),
	'node/100',
	'a server that is ahead keeps its node ID when it is restarted');

# It goes back to the clock with another node ID.
my $newest = mint($far);
query($far, 'SELECT snowflake_restart_at_clock(100)');
my $of_now =
  q{SELECT snowflake_timestamp(snowflake_next()) BETWEEN now() - interval '1 min' AND now() + interval '5 s'};
is(query($far, $of_now), 't', 'snowflake_restart_at_clock() takes another node ID, at the clock');
is(status($far, q{node, lease_until < now() + interval '1 min'}),
	'101|t', 'with a lease that ends soon');
cmp_ok(
	record($coordinator, 100, 'until'),
	'>=',
	$newest >> 22,
	'the old one is not free before its end');
restart_node($far, 'immediate');
wait_for_mint($far);
is(query($far, $of_now), 't', 'after a crash, too');

# So the hint says where IDs are too far ahead to be minted.
advance($far, '2 days');
my ($way_back) = error_of($far, 'SELECT snowflake_next()')->{hint} =~
  /call (snowflake_restart_at_clock\(\d+\)), which leases another node ID\.$/;
query($far, "SELECT $way_back");
is(query($far, $of_now), 't', 'the hint that says so, word for word: IDs of the true time');
$far->stop;

# Leases of a second, of ten node IDs
my @conf = (lease => '1s', conf => "snowflake.lease_nodes = '0-9'\n");
query($coordinator, 'DROP SCHEMA snowflake_fleet CASCADE');
my $one = start_member('one', $coordinator, @conf, founds => '');
is(status($one, 'node'), 0, 'the first server has the smallest node ID');

# A held node ID that snowflake.lease_nodes has no more
my $leases = status($one, 'leases');
set_conf($one, 'snowflake.lease' => '10s', 'snowflake.lease_nodes' => '100-200');
wait_for_status($one, "leases > $leases AND node <> 0");
is(status($one, 'node'),
	100, 'a node ID that is not to be leased any more is given back for another');

# Of several node IDs with its name, a server takes the one that it had last, in whatever
# order it finds them.
wait_for_query($one, 'SELECT leased_until < now() FROM snowflake_fleet() WHERE node = 0');
$one->append_conf('postgresql.conf', "snowflake.lease_nodes = '0-200'");
foreach my $order ('DESC', 'ASC')
{
	$one->stop;
	query(
		$coordinator, qq{
		CREATE TEMPORARY TABLE found AS TABLE snowflake_fleet.records;
		TRUNCATE snowflake_fleet.records;
		INSERT INTO snowflake_fleet.records SELECT * FROM found
			ORDER BY (value::jsonb ->> 'granted')::bigint $order});
	$one->start;
	wait_for_mint($one);
	is(status($one, 'node'), 100, "a restart keeps the last of two node IDs, in order $order");
}
$one->stop;

# From now on somebody is faster at these node IDs, a regular expression.
sub take
{
	return query($coordinator,
		"TRUNCATE late; CREATE OR REPLACE FUNCTION taken() RETURNS text RETURN '$_[0]'");
}

# A server is started, and leases this one.  Returns those for which it was late.
sub is_late_until
{
	my ($name, $node, $what) = @_;
	my $server = start_member($name, $coordinator, @conf);

	wait_for_mint($server);
	is(status($server, 'node'), $node, $what);
	$server->stop('immediate');
	return split /\n/, query($coordinator, 'SELECT node FROM late');
}

# Without a record: of those that are left, all but the largest are taken.
query(
	$coordinator, q{
	DELETE FROM snowflake_fleet.records WHERE key ~ 'node/.{2}';
	CREATE TABLE late (node text);
	CREATE FUNCTION be_late() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF NEW.key !~ ('^node/' || public.taken() || '$') THEN
			RETURN NEW;
		END IF;
		INSERT INTO public.late VALUES (substr(NEW.key, 6));
		RETURN NULL;
	END $$});
take('[1-8]');
query(
	$coordinator,
	q{CREATE TRIGGER be_late BEFORE INSERT OR UPDATE ON snowflake_fleet.records
		FOR EACH ROW EXECUTE FUNCTION be_late()});
$one->append_conf('postgresql.conf', "snowflake.lease_nodes = '0'\nsnowflake.lease = '1h'");
$one->start;
wait_for_mint($one);
is((is_late_until('two', 9, 'who is late again and again has the only one that is left'))[0],
	1, 'it has tried the smallest first');

# Leases that have ended: the one that ended first is the best choice, and the last one is left.
take('none');
query(
	$coordinator,
	q{INSERT INTO snowflake_fleet.records
		SELECT 'node/' || n, jsonb_set(value::jsonb, '{until}', to_jsonb((value::jsonb ->> 'from')::bigint + n))
		FROM snowflake_fleet.records, generate_series(1, 8) n WHERE key = 'node/9'});
take('[0-79]');
is((is_late_until('three', 8, 'the same with node IDs whose leases have ended'))[0],
	1, 'it has tried the one that ended first');

done_testing();
