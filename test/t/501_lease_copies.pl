# Copies of a server that leases its node ID mint beside it, with the same
# configuration: each leases a node ID of its own, whatever is copied and how, and
# whatever the clocks say.  No ID comes twice.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  duplicates error_of mint_together new_clock new_coordinator new_member
  set_clock start_with_clock status wait_for_mint
);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $coordinator = new_coordinator();
my $clock = new_clock('copy');

# A copy on another machine has only its own clock to go by: here it is the same machine,
# whose clock the copy would remember, so that a jump must not need patience.
my $original = new_member(
	'original', $coordinator,
	lease => '1min',
	init => { allows_streaming => 1, has_archiving => 1 },
	conf => "snowflake.jump_patience = 0\n");
my @lists;

# The original and the copy mint side by side.
sub differ
{
	my ($copy, $what) = @_;
	my @both = mint_together(1, $original, $copy);

	push @lists, @both;
	is(duplicates(@both), 0, "$what: no ID twice");
	isnt(status($original, 'node'), status($copy, 'node'), "$what: two node IDs");
	return;
}

$original->start;
$original->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
wait_for_mint($original);

# Low enough for a clock that is behind: a grant starts above the floor.
$original->safe_psql('postgres', q{SELECT snowflake_fleet_recover(now() - interval '3 hours')});
$original->backup('base');

# Wait until it is open, by the reservation that it was copied with.
sub wait_until_ahead
{
	my ($node) = @_;

	$node->poll_query_until('postgres',
		q{SELECT gate = 'open' AND lead > '50min' FROM snowflake_status})
	  or die 'it is not ahead';
	return;
}

# A server whose clock is behind has the reservation of one whose clock is not, and
# waits for that, unless somebody gives up the order.
sub reset_behind
{
	my ($node) = @_;

	wait_until_ahead($node);
	$node->safe_psql('postgres', 'SELECT snowflake_restart_at_clock(node) FROM snowflake_status');
	return;
}

# A copy whose clock is behind even the floor waits for that.
my $copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init_from_backup($original, 'base');
set_clock($clock, -4 * 3_600_000);
start_with_clock($copy, $clock);
$copy->poll_query_until('postgres',
	q{SELECT advice ~ '^This server waits for the floor of the fleet' FROM snowflake_status})
  or die 'it does not wait';
is( status($copy, 'gate, lease_until'),
	'closed: no node ID is leased yet|',
	'a clock before the floor: no lease is taken that starts far ahead');
$copy->stop('immediate');

# A copy that runs beside it, its clock behind and ahead by an hour
set_clock($clock, -3_600_000);
start_with_clock($copy, $clock);
reset_behind($copy);
differ($copy, 'a copy, an hour behind');
$copy->stop;
set_clock($clock, 3_600_000);
start_with_clock($copy, $clock);
differ($copy, 'a copy, an hour ahead');
$copy->stop('immediate');

# The directory, copied after a crash
$original->stop('immediate');
my $clone = PostgreSQL::Test::Cluster->new('clone');
PostgreSQL::Test::RecursiveCopy::copypath($original->data_dir, $clone->data_dir,
	filterfn => sub { return $_[0] ne 'postmaster.pid' });
chmod 0700, $clone->data_dir or die "could not change the mode: $!";
$clone->append_conf('postgresql.conf', 'port = ' . $clone->port);
$original->start;
$clone->start;
differ($clone, 'a directory copied after a crash');
$clone->stop;

# An asynchronous standby, promoted while the old primary goes on
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($original, 'base', has_streaming => 1);
set_clock($clock, -3_600_000);
start_with_clock($standby, $clock);
$standby->poll_query_until('postgres', 'SELECT node IS NOT NULL FROM snowflake_status')
  or die 'the standby has no lease';
my $node = status($standby, 'node');
isnt($node, status($original, 'node'), 'a standby has a node ID of its own');
is(status($standby, 'coordinator, advice, lease_until IS NOT NULL'),
	'reachable||t', 'leased already');
set_clock($clock, 0);
$standby->stop;
$standby->start;
$standby->poll_query_until('postgres', 'SELECT node IS NOT NULL FROM snowflake_status')
  or die 'the standby has no lease';
$node = status($standby, 'node');

# with nobody to ask, so that it is what it leased before
$coordinator->stop('immediate');
$standby->promote;
my $error = error_of($standby, q{SET snowflake.max_wait = '30s'; SELECT snowflake_next()});
is($error->{message}, '', 'it mints as soon as it is promoted');
is(status($standby, 'node'), $node, 'with that node ID');
$coordinator->start;
differ($standby, 'a promoted standby, its primary alive');
$standby->stop;

# A restore to an earlier point
my $until = $original->safe_psql('postgres', 'SELECT now()');
$original->safe_psql('postgres', 'SELECT snowflake_next() FROM generate_series(1, 1000)');

# recovery stops before a commit that is later
$original->safe_psql('postgres', 'CREATE TABLE later ()');
my $segment = $original->safe_psql('postgres', 'SELECT pg_walfile_name(pg_switch_wal())');
$original->poll_query_until('postgres',
	"SELECT last_archived_wal >= '$segment' FROM pg_stat_archiver")
  or die 'WAL is not archived';
my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($original, 'base', has_restoring => 1, standby => 0);
$restored->append_conf('postgresql.conf',
	"recovery_target_time = '$until'\nrecovery_target_action = promote\nrecovery_target_timeline = current"
);
set_clock($clock, -3_600_000);
start_with_clock($restored, $clock);
$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
  or die 'recovery does not end';
reset_behind($restored);
differ($restored, 'a restore to an earlier point');
is(duplicates(@lists), 0, 'no ID twice in all of them');

# This test is able to fail.
foreach my $server ($original, $restored)
{
	$server->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = 7');
	$server->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_source = setting');
}
set_clock($clock, 0);
$restored->restart;
$original->reload;
$_->poll_query_until('postgres', 'SELECT node = 7 FROM snowflake_status')
  or die 'no node ID'
  foreach $original, $restored;
my $twice = 0;
for (my $attempt = 0; $attempt < 10 && $twice == 0; $attempt++)
{
	$twice = duplicates(mint_together(1, $original, $restored));
}
cmp_ok($twice, '>', 0, 'with one node ID that was set on both IDs come twice');

$_->stop foreach $original, $restored, $coordinator;
done_testing();
