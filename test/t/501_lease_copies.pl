# Copies of a server that leases its node ID mint beside it, with the same configuration: each
# leases a node ID of its own, whatever is copied and how, and whatever the clocks say.  No ID
# comes twice.
# long

use SnowflakeFleet;
use SnowflakeTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;

my $coordinator = new_coordinator();
my $clock = new_clock('copy');
my $hour = 3_600_000;
my @lists;

# The copy remembers the clock of this machine: a jump must not need patience.
my $original = start_member(
	'original', $coordinator,
	lease => '1min',
	init => { allows_streaming => 1, has_archiving => 1 },
	conf => "snowflake.jump_patience = 0\n",
	founds => '');

# Low enough for a clock that is behind: a grant starts above the floor.
query($original, q{SELECT snowflake_fleet_recover(now() - interval '3 hours')});
$original->backup('base');

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

sub copy_of_backup
{
	my ($name, %params) = @_;
	my $copy = PostgreSQL::Test::Cluster->new($name);

	$copy->init_from_backup($original, 'base', %params);
	return $copy;
}

sub start_at
{
	my ($node, $ms) = @_;

	set_clock($clock, $ms);
	return start_with_clock($node, $clock);
}

# A server whose clock is behind has the reservation of one whose clock is not, and
# waits for that, unless somebody gives up the order.
sub reset_behind
{
	my ($node) = @_;

	wait_for_status($node, q{gate = 'open' AND lead > '50min'});
	query($node, 'SELECT snowflake_restart_at_clock(node) FROM snowflake_status');
	return;
}

# Beside it, by a clock that is behind, and by one that is ahead
my $copy = copy_of_backup('copy');
start_at($copy, -$hour);
reset_behind($copy);
differ($copy, 'a copy, an hour behind');
$copy->stop;
start_at($copy, $hour);
differ($copy, 'a copy, an hour ahead');
$copy->stop('immediate');

# The directory, copied after a crash
$original->stop('immediate');
my $clone = PostgreSQL::Test::Cluster->new('clone');
PostgreSQL::Test::RecursiveCopy::copypath($original->data_dir, $clone->data_dir,
	filterfn => sub { return $_[0] ne 'postmaster.pid' });
chmod 0700, $clone->data_dir or die "could not change the mode: $!";
$clone->append_conf('postgresql.conf', 'port = ' . $clone->port);
$_->start foreach $original, $clone;
differ($clone, 'a directory copied after a crash');
$clone->stop;

# An asynchronous standby, promoted while the old primary goes on
my $standby = copy_of_backup('standby', has_streaming => 1);
start_at($standby, -$hour);
wait_for_status($standby, 'node IS NOT NULL');
isnt(status($standby, 'node'), status($original, 'node'), 'a standby has a node ID of its own');
is(status($standby, 'coordinator, advice, lease_until IS NOT NULL'),
	'reachable||t', 'leased already');
$standby->stop;
$standby->start;
wait_for_status($standby, 'node IS NOT NULL');
my $node = status($standby, 'node');

# with nobody to ask, so that it is what it leased before
$coordinator->stop('immediate');
$standby->promote;
is(refused($standby, '30s')->{message}, '', 'it mints as soon as it is promoted');
is(status($standby, 'node'), $node, 'with that node ID');
$coordinator->start;
differ($standby, 'a promoted standby, its primary alive');
$standby->stop;

# A restore to an earlier point: recovery stops before a commit that is later.
my $until = query($original, 'SELECT now()');
mint_many($original, 1000);
query($original, 'CREATE TABLE later ()');
my $segment = query($original, 'SELECT pg_walfile_name(pg_switch_wal())');
wait_for_query($original, "SELECT last_archived_wal >= '$segment' FROM pg_stat_archiver");
my $restored = copy_of_backup('restored', has_restoring => 1, standby => 0);
$restored->append_conf('postgresql.conf',
	"recovery_target_time = '$until'\nrecovery_target_action = promote\nrecovery_target_timeline = current"
);
start_at($restored, -$hour);
wait_for_query($restored, 'SELECT NOT pg_is_in_recovery()');
reset_behind($restored);
differ($restored, 'a restore to an earlier point');
is(duplicates(@lists), 0, 'no ID twice in all of them');

done_testing();
