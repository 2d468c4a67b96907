# A synchronous standby with the primary's node ID takes over when the primary
# is gone.  Although its clock is behind, its first ID is larger than every ID
# that the primary issued, because the reservation came with the WAL.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $behind = 2_000;    # ms

my $clock = new_clock('primary');
my $primary = minting_node(
	'primary',
	clock => $clock,
	init => { allows_streaming => 1 },
	conf => q{
	snowflake.reservation = '1s'
	snowflake.max_wait = '30s'
});
$primary->backup('base');

sub sql { return query($primary, @_); }

my $waiting =
  qr/^The commit of the reservation has been waiting for a synchronous standby for [0-9.]+ s\. Start a synchronous standby, or change synchronous_standby_names\.$/;
my $keeper_waits =
  q{FROM pg_stat_activity WHERE backend_type = 'snowflake keeper' AND wait_event = 'SyncRep'};

my $standby = SnowflakeNode->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
my $standby_clock = new_clock('standby');
set_clock($standby_clock, -$behind);
start_with_clock($standby, $standby_clock);

# not before the backup, or the standby would want one as well
sql(q{ALTER SYSTEM SET synchronous_standby_names = 'standby'});
$primary->reload;
wait_for_query($primary, q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'});

# What a standby shows and refuses
$primary->wait_for_catchup($standby);
my $reserved = 'SELECT reserved_until FROM snowflake_keeper.reservation WHERE node = 1';
is(query($standby, $reserved), sql($reserved), 'the reservation shows on the standby');
refuses(
	$standby, "SELECT $_()", '25006',
	"a standby refuses $_(), and says why",
	message => qr/^cannot execute $_\(\) during recovery$/)
  foreach 'snowflake_accept_layout',
  'snowflake_accept_database', 'snowflake_accept_clock';
is(status($standby, 'gate'), 'closed: the server is in recovery', 'so does its status');

# nor one that pauses after a failure, which pg_stat_activity would not show
is(status($standby, 'keeper_pid'), '', 'and it has no keeper');

# The end of another node ID is stored without the standby.  What is reserved after that is not.
foreach my $node_id (2, 1)
{
	change_node_id($primary, $node_id);
	wait_for_mint($primary);
}

# The primary's reservation cannot be extended while the standby does not
# confirm it: minting ends with the reservation, and the error says why.
my $offset = -s $primary->logfile;
$standby->stop;
wait_for_query($primary, q{SELECT count(*) = 0 FROM pg_stat_replication});

refuses(
	$primary, q{
	SET snowflake.max_wait = '3s';
	SET statement_timeout = '1min';
	DO $$ BEGIN LOOP PERFORM snowflake_next(); END LOOP; END $$},
	'55000',
	'no standby confirms: minting ends with the reservation, with the reason',
	message => qr/reservation was not extended/,
	hint => $waiting);
is( log_count(
		$primary,
		qr/LOG:  the commit of the snowflake reservation waits for a synchronous standby$/, $offset
	),
	1,
	'the log says once that it waits');
is(status($primary, q{concat_ws(' ', gate, standby_wait > '1 s')}),
	'open t', 'the gate is open, and the status says for how long the keeper waits');
like(status($primary, 'advice'), $waiting, 'and so does the advice');

# No ID is past the row that others see, which is the last that the standby has
# confirmed.
my $confirmed = sql($reserved);

sub is_within
{
	my ($name) = @_;

	is( status(
			$primary,
			"concat_ws(' ', snowflake_timestamp(last_id) <= '$confirmed', reserved_until = '$confirmed')"
		),
		't t', $name);
	return;
}
is_within('no ID is past what is confirmed');

# Who cancels the wait has the commit stand, but not confirmed.  (So the row that
# others see is that of a later time from now on.)
my $pid = sql("SELECT pid $keeper_waits");
my $refused = q{SET snowflake.max_wait = '3s'; SELECT snowflake_next()};
sql("SELECT pg_cancel_backend($pid)");
refuses(
	$primary, $refused, '55000',
	'the wait is canceled: there is no more to mint',
	message => qr/reservation was not extended/);
is_within('because a canceled wait confirms nothing');
wait_for_query($primary, "SELECT count(*) = 1 $keeper_waits AND pid = $pid");
wait_for_status($primary, 'standby_wait IS NOT NULL');
like(status($primary, 'advice'),
	$waiting, 'the advice is about the wait, and not about the failure before');
refuses($primary, $refused, '55000', 'and so is the error', hint => $waiting);

# Neither the server's stop nor that of the keeper waits for a standby.
{
	local $ENV{PGCTLTIMEOUT} = 20;
	ok($primary->stop('fast', fail_ok => 1), 'a fast stop does not wait for the standby');
}
start_with_clock($primary, $clock);
my $unconfirmed = error_of($primary, $refused);
is($unconfirmed->{sqlstate}, '55000', 'after a start without the standby nothing is minted');
like(
	"$unconfirmed->{detail} $unconfirmed->{hint}",
	qr/^(?:The gate is closed: the keeper is writing the reservation|It ends at ".*")\. The commit of the reservation has been waiting for a synchronous standby for [0-9.]+ s\. Start /,
	'and the error says why');

# Who has used up the reservation asks the keeper for more while it waits for the standby.  That is not
# forgotten when the standby is there again, and nobody wakes the keeper by anything else, such as a
# reload.
my $waiter = start_minter($primary, 1_000_000);
my $minting = q{FROM pg_stat_activity WHERE query = 'SELECT snowflake_next();'};
wait_for_query($primary,
	"SELECT count(*) = 1 $minting AND wait_event IN ('SnowflakeKeeper', 'Extension')");
my $extended = status($primary, 'reservations');
start_with_clock($standby, $standby_clock);
wait_for_status($primary, "reservations >= $extended + 4");
sql("SELECT pg_terminate_backend(pid) $minting");
finish_minter($waiter);
unlike($waiter->{errors}, qr/ERROR/,
	'who waited for the standby mints on, reservation after reservation, without an error');
is(status($primary, 'concat(advice, standby_wait)'), '', 'there is no advice any more');

# The failover.  The IDs of its sessions outlive the primary.
my @minters = map { start_minter($primary, 1_000_000) } 1 .. 2;
wait_until(
	'both mint',
	sub {
		2 == grep { -s $_->{ids} } @minters;
	});
my $reservations = status($primary, 'reservations');
wait_for_status($primary, "reservations > $reservations");
my $promised = status($primary, 'reserved_until');
$primary->stop('immediate');
my $stopped = clock_gettime(CLOCK_MONOTONIC);

my @seen = sort { $a <=> $b } map { @{ finish_minter($_) } } @minters;

$standby->promote;
set_clock($standby_clock, -$behind - (clock_gettime(CLOCK_MONOTONIC) - $stopped) * 1000);
my ($id, $waits) = split /\n/,
  query($standby, 'SELECT snowflake_next(); SELECT clock_waits FROM snowflake_stats');
cmp_ok($id, '>', $seen[-1],
	'the first ID of the promoted standby is larger than all of the primary');
is(query($standby, "SELECT snowflake_timestamp('$id') > '$promised'"),
	't', 'and above what the primary had promised');
cmp_ok($waits, '<=', 1,
	'it waits for no more than a look at the clock, though that is behind: IDs stand');
is(query($standby, "SELECT snowflake_node('$id')"), 1, 'it has the same node ID');

$standby->stop;
done_testing();
