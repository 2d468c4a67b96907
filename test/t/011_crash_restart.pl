# After a crash, minting resumes above what had been reserved: with max_ahead = 0 it
# waits for the clock, for no longer than snowflake.reservation, or fails because it
# would have to.  The limit that minters had before the crash is always stored.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder duplicates finish_minter kill_postmaster let_pass minting_node new_clock query refused
  restart_node start_after_kill start_minter start_time status step_clock stop_time wait_for_gate
  wait_for_status
);
use Test::More;

# The keeper reserves anew when half of this is left, so at any moment
# minting is at least half of it away from the end of the reservation.
my $reservation = 2_000;    # all in ms
my $tick = 1;
my $clock = new_clock('main');
my $node = minting_node(
	'main',
	clock => $clock,
	conf => qq{
	snowflake.reservation = '${reservation}ms'
	snowflake.max_ahead = 0
	wal_writer_delay = 10s
	synchronous_commit = off
});

# A mint that may not wait is refused; returns for how long, in ms, it would have to.
sub must_wait
{
	my ($what) = @_;
	my $error = refused($node, 0);
	my ($number, $unit) = $error->{message} =~
	  /^minting snowflakes resumes in ([0-9.]+) (ms|s), when the earlier reservation ends$/;
	my $ms = ($number // 0) * (($unit // '') eq 's' ? 1000 : 1);

	is($error->{sqlstate}, '55000', "$what: a mint that cannot wait is refused");
	unlike("@{[ %$error ]}", qr/clock/, 'the clock is not blamed');
	cmp_ok($ms, '>', 0, 'the error states for how long');
	cmp_ok($ms, '<=', $reservation + $tick, 'which is at most the reservation');
	return $ms;
}

my @seen;    # every ID that anybody got, of ended sessions
foreach my $crash (
	[ 'an immediate stop', sub { $node->stop('immediate') } ],
	[ 'SIGKILL of the postmaster', sub { kill_postmaster($node) } ])
{
	my ($name, $do_it) = @$crash;

	# Minting goes on until after the keeper has extended the reservation.
	my @minters = map { start_minter($node, 1_000_000) } 1 .. 2;
	my $reservations = status($node, 'reservations');
	wait_for_status($node, "reservations > $reservations");

	# The newest promise must be stored although nothing else is flushed: the
	# crash follows at once.  However long the machine takes from here on, to the
	# server it is the instant of the crash.
	my $promised = status($node, 'reserved_until');
	stop_time($clock);
	$do_it->();
	foreach my $ids (map { finish_minter($_) } @minters)
	{
		cmp_ok(scalar(@$ids), '>', 100, "a session mints until $name");
		is(disorder($ids), 0, 'in order');
		push @seen, @$ids;
	}

	start_after_kill($node, $clock);
	wait_for_gate($node, 'open');
	must_wait($name);
	is(status($node, 'last_id IS NULL'), 't', 'there is no last ID where none was minted');

	# Patience: the first ID comes when the clock gets there, which is when the reservation has
	# passed, and no moment later.
	my $waits = status($node, 'clock_waits');
	my $minter = start_minter($node, 1);
	wait_for_status($node, "clock_waits > $waits");
	let_pass($clock, $reservation + $tick);
	my ($id) = @{ finish_minter($minter) };
	ok(defined $id, 'a mint that can wait does so for no longer than the reservation')
	  or diag($minter->{errors});
	is(query($node, "SELECT snowflake_timestamp('$id') > '$promised'"),
		't', 'the first ID is above what was reserved before the crash');
	is(scalar(grep { $_ >= $id } @seen), 0, 'and above all IDs from before');
	push @seen, $id;
	start_time($clock);
}
is(duplicates(\@seen), 0, scalar(@seen) . ' IDs, all distinct');

# A server that crashes again before it has come to mint: it does not forget what had been reserved,
# and does not get further ahead of the clock; nor if it is stopped cleanly without an ID in between.
stop_time($clock);
my $until = '-infinity';
foreach my $mode ('immediate', 'immediate', 'fast')
{
	restart_node($node, $mode, $clock);
	my $next = status($node, 'reserved_until');

	is(query($node, "SELECT timestamptz '$next' >= '$until'"),
		't', "stop -m $mode, and no ID: it goes back behind nothing that was reserved");
	must_wait("stop -m $mode");
	$until = $next;
}

# A clock that is right about the time when that is over
start_time($clock);
step_clock($clock, 9_000);
is(query($node, "SELECT snowflake_timestamp(snowflake_next()) > '$until'"),
	't', 'and minting goes on when the clock has passed it');

$node->stop;
done_testing();
