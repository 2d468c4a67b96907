# After a crash, minting resumes above what had been reserved: with max_ahead = 0 it
# waits for the clock, for no longer than snowflake.reservation, or says that it would
# have to.  What was promised to minters before the crash is always stored.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder error_of finish_minter kill_postmaster let_pass new_clock new_node
  start_after_kill start_minter start_time start_with_clock status step_clock
  stop_time wait_for_mint
);
use Test::More;

# The keeper reserves anew when half of this is left, so at any moment
# minting is at least half of it away from the end of the reservation.
my $reservation = 2_000;    # all in ms
my $tick = 1;

my $node = new_node(
	'main', conf => qq{
	snowflake.reservation = '${reservation}ms'
	snowflake.max_ahead = 0
	wal_writer_delay = 10s
	synchronous_commit = off
});
my $clock = new_clock('main');

sub start
{
	start_with_clock($node, $clock);
	return;
}

start();
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);

my @seen;    # every ID that anybody got, of ended sessions
my @crashes = (
	[ 'an immediate stop', sub { $node->stop('immediate') } ],
	[ 'SIGKILL of the postmaster', sub { kill_postmaster($node) } ]);

foreach my $crash (@crashes)
{
	my ($name, $do_it) = @$crash;

	# Minting goes on until after the keeper has extended the reservation.
	my @minters =
	  map { start_minter($node, 1_000_000) } 1 .. 2;
	my $reservations = status($node, 'reservations');
	$node->poll_query_until('postgres', "SELECT reservations > $reservations FROM snowflake_stats")
	  or die "reservation is not extended";

	# The newest promise must be stored although nothing else is flushed: the
	# crash follows at once.  However long the machine takes from here on, to the
	# server it is the instant of the crash.
	my $promised = status($node, 'reserved_until');
	stop_time($clock);
	$do_it->();

	foreach my $minter (@minters)
	{
		my $ids = finish_minter($minter);

		cmp_ok(scalar(@$ids), '>', 100, "a session mints until $name");
		is(disorder($ids), 0, 'in order');
		push @seen, @$ids;
	}

	start_after_kill($node, $clock);

	# No patience: an error that says why.
	my $error = error_of($node, q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
	is($error->{sqlstate}, '55000', 'a mint that cannot wait is refused');

	# the first time perhaps only because the keeper was not ready
	$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
	  or die "gate does not open";
	$error = error_of($node, q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
	is($error->{sqlstate}, '55000', 'also when the gate is open');
	my $lead_ms = milliseconds($error->{message});
	cmp_ok($lead_ms, '>', 0, 'the error states for how long');
	cmp_ok($lead_ms, '<=', $reservation + $tick, 'which is at most the reservation');
	is( $error->{message} =~ s/[0-9.]+ m?s/%/r,
		'minting snowflakes starts in %, after the end of what was reserved before',
		'and the reason');
	like(
		$error->{detail},
		qr/^Snowflakes up to "[^"]+" may have been issued before\./,
		'and when that is');
	unlike("@{[ %$error ]}", qr/clock/, 'the clock is not blamed');
	like(
		status($node, 'advice'),
		qr/^Wait: minting starts in [0-9.]+ m?s, after the end of what was reserved before\. If snowflake\.max_wait is more than snowflake\.reservation, mints wait instead of failing\.$/,
		'nor is it by the advice');
	is(status($node, 'last_id IS NULL'),
		't', 'snowflake_status shows no last ID where none was minted');

	# Patience, as much as there is by default: the first ID comes when the clock
	# gets there, which is when the reservation has passed, and no moment later.
	my $waits = status($node, 'clock_waits');
	my $minter = start_minter($node, 1);
	$node->poll_query_until('postgres', "SELECT clock_waits > $waits FROM snowflake_stats")
	  or die "mint does not wait";
	let_pass($clock, $reservation + $tick);
	my ($id) = @{ finish_minter($minter) };
	ok(defined $id, 'a mint that can wait does so for no longer than the reservation')
	  or diag($minter->{errors});
	is($node->safe_psql('postgres', "SELECT snowflake_timestamp('$id') > '$promised'"),
		't', 'the first ID is above what was reserved before the crash');
	is(scalar(grep { $_ >= $id } @seen), 0, 'and above all IDs from before');
	cmp_ok(status($node, 'clock_waits'), '>=', 1, 'it waited for the clock');
	push @seen, $id;
	start_time($clock);
}

my %seen;
$seen{$_}++ foreach @seen;
is(scalar(keys %seen), scalar(@seen), scalar(@seen) . ' IDs, all distinct');

# A server that crashes again before it has come to mint, twice: it does not
# forget what had been reserved, and does not get further ahead of the clock.
my $until;
stop_time($clock);
foreach my $n (1 .. 2)
{
	$node->stop('immediate');
	start();
	$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
	  or die "gate does not open";
	my $next = status($node, 'reserved_until');
	is($node->safe_psql('postgres', "SELECT timestamptz '$next' >= '$until'"),
		't', 'crash after crash: it goes back behind nothing that was reserved')
	  if defined $until;
	$until = $next;
}

# A clean stop after a crash, without an ID in between, keeps that as well.
my $lead_ms =
  milliseconds(error_of($node, q{SET snowflake.max_wait = 0; SELECT snowflake_next()})->{message});
cmp_ok($lead_ms, '>', 0, 'the generator is ahead of the clock');
cmp_ok($lead_ms, '<=', $reservation + $tick, 'by no more than after one crash');
$node->stop('fast');
start();
$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
  or die "gate does not open";
my $error = error_of($node, q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
like(
	$error->{message},
	qr/end of what was reserved before/,
	'a clean stop between does not forget what was reserved');

# A clock that is right about the time when that is over
start_time($clock);
step_clock($clock, 9_000);
is($node->safe_psql('postgres', "SELECT snowflake_timestamp(snowflake_next()) > '$until'"),
	't', 'and minting goes on when the clock has passed it');

$node->stop;
done_testing();

# The time in a message, in milliseconds.
sub milliseconds
{
	my ($message) = @_;
	my ($number, $unit) = $message =~ /starts in ([0-9.]+) (ms|s),/;

	return 0 unless defined $number;
	return $unit eq 's' ? $number * 1000 : $number;
}
