# Node IDs are leased: from a PostgreSQL server that does not have the library, by servers
# without a node ID in their configuration.  A fleet is created as doc/fleet.md says, its leases
# are renewed, given back and used up, and it survives a coordinator that is away for a while.
# versions: all

use SnowflakeFleet;
use SnowflakeTest;
use Sys::Hostname;

my $page = slurp_file('doc/fleet.md');
my $coordinator = new_coordinator();
my $url = coordinator_url($coordinator) =~ s{//}{//fleet@}r;
my $lease = patience(10);
my $one = start_member('one', $url, lease => "${lease}s");

# The page's statements that follow such a line run.
sub runs
{
	my ($node, $line, $where) = @_;

	foreach my $sql (grep { !/fleet_create/ } $page =~ /^$line```sql\n(.*?)^```$/msg)
	{
		my ($status, undef, $error) = $node->psql('postgres', $sql);

		is("$status $error", '0 ', "runs at the $where: " . ($sql =~ /^(.*)$/m)[0]);
	}
	return;
}

# Nothing is granted before the fleet is founded.
wait_for_status($one, q{gate ~ 'no node ID is leased' AND coordinator = 'unreachable'});
my $error = refused($one);
is( "$error->{sqlstate} $error->{message}",
	'55000 this server has not leased a node ID',
	'without a table of the fleet nothing is minted');

# Founded, by a server of the fleet, whose lessee is frozen meanwhile, with a role and the rights
# that the page gives it.  The script that is installed has the same statements.
my $script = slurp_file('sql/snowflake_fleet.sql');
runs($coordinator, "<!-- at the coordinator -->\n", 'coordinator');
like($page, qr/^\Q$_\E$/m, "the page has: $_") foreach $script =~ /^(CREATE .*)$/mg;
like($script, qr/\Q$_\E/, "the script has: $_") foreach $page =~ /^(GRANT .*)$/mg;
freeze(lessee($one));
my (undef, undef, $notice) = $one->psql('postgres', 'SELECT snowflake_fleet_create()');
thaw();
like(
	$notice,
	qr/NOTICE:  the fleet exists, but this server has not leased a node ID yet/,
	'the founder of a fleet waits for a lease, and is told when none comes');
wait_for_mint($one);
wait_for_status($one, "lease_until > now() + 0.8 * interval '$lease s'");
is( status($one, "node, node_source, coordinator, lease_until <= now() + interval '$lease s'"),
	'0|postgresql|reachable|t',
	'the first server gets the first node ID, says where from, and for how long');
is(listed($one, q{leased_from BETWEEN now() - interval '1h' AND now()}),
	't', 'and grants nothing from before');

# A second server, which would reserve, and let mints use, more than it has leased
my $two = start_member('two', $url,
	conf => "snowflake.reservation = '1min'\nsnowflake.max_jump = '1min'\n");
wait_for_mint($two);
is(status($two, 'node'), '1', 'the second server gets another');
is( listed($one, 'holder', 0),
	hostname() . ':' . $one->port . ' ' . $one->data_dir,
	'the holder is told by its host, its port and its data directory');
is(query($one, 'SELECT node, state FROM snowflake_fleet() ORDER BY node NULLS FIRST'),
	"|fleet\n0|leased\n1|leased", 'the fleet is listed');

# Renewed, given back by a clean stop, and lost by a crash
my $until = status($one, 'lease_until');
wait_for_status($one, "lease_until > timestamptz '$until' + interval '4s'");
is(status($one, 'node, leases, lease_renewals > 0, lease_errors > 0'),
	'0|1|t|t', 'the lease is renewed');
my $last = mint($one);
$one->stop;
is(listed($two, 'state', 0), 'free', 'a clean stop gives it back');
$one->start;
wait_for_mint($one);
is(status($one, 'node'), '0', 'a clean restart gets it again');
cmp_ok(mint($one), '>', $last, 'and larger IDs');
$one->stop('immediate');
$one->start;
wait_for_mint($one);
is(status($one, 'node'), '2', 'after a crash it gets another');

# The coordinator is gone.  A generator that is ahead of the clock gets to the end of its
# lease before the clock does.
set_conf($two, 'snowflake.max_lead' => '1h');
my $offset = -s $one->logfile;
my $errors = status($one, 'lease_errors');
$coordinator->stop('immediate');
query($two,
	'SELECT snowflake_advance(snowflake_lower_bound(lease_until), true) FROM snowflake_status');
my $refused = status($two, 'refused_node - refused_keeper');
is( refused($two)->{message},
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
wait_for_status($one, q{coordinator = 'unreachable'});
isnt(mint($one), '', 'minting goes on without the coordinator');
like(
	status($one, 'advice'),
	qr/^Minting ends with the lease\. The coordinator has been unusable since "/,
	'with advice');
wait_for_status($one, q{gate = 'closed: the lease of the node ID has ended'});
cmp_ok(status($one, 'lease_errors'), '>', $errors + 2, 'the coordinator is asked again and again');
is(log_count($one, qr/WARNING:  could not use the coordinator/, $offset), 1,
	'which is logged once');
is( refused($one, '1s')->{message},
	q{the lease of this server's node ID has ended},
	'up to the end of the lease');
$coordinator->start;
wait_for_mint($_) foreach $one, $two;
pass('it goes on when the coordinator is back');

# A lease from before is of no use to a generator that has gone beyond its end.
set_conf($two, 'snowflake.node_source' => 'setting', 'snowflake.node_id' => 900);
wait_for_status($two, q{node = 900 AND gate = 'open'});
query($two, q{SELECT snowflake_advance(snowflake_lower_bound(now() + interval '3 days'), true)});
$coordinator->stop('immediate');
set_conf($two, 'snowflake.node_source' => $url);
wait_for_status($two, q{gate ~ 'lease of the node ID has ended' OR gate = 'open' AND node <> 900});
is( status($two, 'gate'),
	'closed: the lease of the node ID has ended',
	'the gate does not open beyond the end of a lease');
set_conf($two, 'snowflake.node_source' => 'setting', 'snowflake.node_id' => 901);
wait_for_status($two, q{node = 901 AND gate = 'open'});
wait_until('there is no lessee any more', sub { !lessee($two) });
set_conf($two, 'snowflake.node_source' => $url);
wait_until('there is one when node IDs are leased again', sub { lessee($two) });

# What else the page has for a server, which has a fleet
$coordinator->start;
$one->restart;
wait_for_mint($one);
runs($one, "\n", 'server');

done_testing();
