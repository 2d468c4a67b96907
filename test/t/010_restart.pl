# Minting resumes above all IDs from before.  A clean stop stores the exact tick of the last ID, so
# the next start mints at once.  After a crash, IDs resume above what had been reserved: with
# max_ahead = 0 a mint waits for the clock, for no longer than snowflake.reservation, or says so.
# versions: all

use SnowflakeTest;

my $clock = new_clock('main');
my $node = minting_node('main', clock => $clock, conf => q{snowflake.reservation = '1h'});
my @ids;

# The clean stop of a server stores the tick of the last ID.
sub is_stored
{
	my ($what) = @_;

	return is(stored($node, 1, "reserved_until = snowflake_timestamp('$ids[-1]')"),
		'true', "$what: what is stored is the tick of the last ID");
}

# Who waited for an hour would be noticed.
push @ids, mint_many($node, 10);
is( query(
		$node,
		q{SELECT reserved_until - clock_timestamp() > interval '59 min' FROM snowflake_keeper.reservation}
	),
	't',
	'an hour is reserved');
$node->stop('fast');
is_stored('a fast stop');
my $offset = -s $node->logfile;
start_with_clock($node, $clock);
push @ids, mint($node);
$node->wait_for_log(qr/LOG:  snowflake gate opened/, $offset);
my ($after) = slurp_file($node->logfile, $offset) =~
  /LOG:  snowflake gate opened for node ID 1\n.*DETAIL:  The layout is "[^"]*"\. Minting resumes after "([^"]*)"\./;
is( query(
		$node,
		"SELECT date_trunc('milliseconds', timestamptz '$after') = snowflake_timestamp('$ids[-2]')"
	),
	't',
	'the log tells that minting resumes after the last ID');
is(status($node, 'clock_waits'), 0, 'the first ID does not wait for the clock');

# A smart stop waits for sessions, and they mint until their end: further than what was reserved
# when the server was told to stop.
$node->append_conf('postgresql.conf', q{snowflake.reservation = '1s'});
restart_node($node, 'fast', $clock);
my $session = $node->background_psql('postgres');
kill 'TERM', $node->{_pid};
$node->wait_for_log(qr/received smart shutdown request/);
push @ids, $session->query_safe(
	q{
	DO $$
	DECLARE
		enough bigint := (SELECT reservations + 2 FROM snowflake_stats);
	BEGIN
		WHILE (SELECT reservations FROM snowflake_stats) < enough LOOP
			PERFORM snowflake_next();
		END LOOP;
	END $$;
	SELECT snowflake_next()});
$session->quit;

# it may have ended by itself already
$node->stop('smart', fail_ok => 1);
is_stored('a smart stop with a session that mints past what was reserved');
is(disorder(\@ids), 0, 'all IDs ascend');

# Fast stops under a session that mints 100,000 IDs without looking for interrupts, and then
# hands out the last: at that time the keeper has been told to stop as well.  The clock does
# not help, since the generator is ahead of it, and the keeper has to wait for the table.
$node->append_conf('postgresql.conf', q{snowflake.max_lead = '1h'});
start_with_clock($node, $clock);
my ($rounds, $minted) = map { $node->basedir . "/$_" } qw(rounds minted);
append_to_file($rounds,
	"BEGIN; LOCK TABLE snowflake_keeper.reservation IN EXCLUSIVE MODE; COPY (SELECT mint()) TO STDOUT; COMMIT;\n"
	  x 10_000);
advance($node, '30 min');
query($node,
		"CREATE FUNCTION mint() RETURNS snowflake LANGUAGE plpgsql AS 'BEGIN RETURN (ARRAY["
	  . join(',', ('snowflake_next()') x 100_000)
	  . "])[100000]; END'");
foreach my $stop (1 .. 2)
{
	my $storming =
	  IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-f', $rounds ],
		'>', $minted, '2>', '/dev/null');

	wait_until('it mints', sub { -s $minted });
	$node->stop('fast');
	$storming->finish;
	my ($newest) = reverse slurp_file($minted) =~ /(\d+)\n/g;
	start_with_clock($node, $clock);
	cmp_ok(mint($node), '>', $newest, "what was minted while the keeper stopped is stored ($stop)");
}

# Crashes.  The keeper reserves anew when half of this is left, so at any moment minting is at least
# half of it away from the end of the reservation.
my $most = 2_001;    # ms, a tick included
$node->append_conf(
	'postgresql.conf', q{
	snowflake.reservation = '2s'
	snowflake.max_lead = '5ms'
	snowflake.max_ahead = 0
	wal_writer_delay = 10s
	synchronous_commit = off
});
step_clock($clock, 3_600_000);
restart_node($node, 'fast', $clock);
wait_for_mint($node);

# A mint that may not wait is refused, with how long it would have to: no longer than the reservation.
sub must_wait
{
	my ($what) = @_;
	my $error = refused($node, 0);
	my ($number, $unit) = $error->{message} =~
	  /^minting snowflakes resumes in ([0-9.]+) (ms|s), when the earlier reservation ends$/;
	my $ms = ($number // 0) * (($unit // '') eq 's' ? 1000 : 1);

	ok($error->{sqlstate} eq '55000' && $ms > 0 && $ms <= $most,
		"$what: a mint that cannot wait is refused, with how long it would have to")
	  or diag(explain($error));
	return;
}

my @minters = map { start_minter($node, 1_000_000) } 1 .. 2;
wait_until(
	'both have minted more than a hundred',
	sub {
		2 == grep { -s $_->{ids} > 101 * 20 } @minters;
	});
my $reservations = status($node, 'reservations');
wait_for_status($node, "reservations > $reservations");

# The newest promise must be stored although nothing else is flushed: the crash follows at once.
# However long the machine takes from here on, to the server it is the instant of the crash.
my $promised = status($node, 'reserved_until');
stop_time($clock);
kill_postmaster($node);
my @seen = map { finish_minter($_) } @minters;
foreach my $ids (@seen)
{
	cmp_ok(scalar(@$ids), '>', 100, 'a session mints until the postmaster is killed');
	is(disorder($ids), 0, 'in order');
}
start_after_kill($node, $clock);
wait_for_gate($node, 'open');
must_wait('SIGKILL of the postmaster');
is(status($node, 'last_id IS NULL'), 't', 'there is no last ID where none was minted');

# Patience: the first ID comes when the clock gets there, which is when the reservation has
# passed, and no moment later.
my $waits = status($node, 'clock_waits');
my $minter = start_minter($node, 1);
wait_for_status($node, "clock_waits > $waits");
let_pass($clock, $most);
my ($id) = @{ finish_minter($minter) };
ok(defined $id, 'a mint that can wait does so for no longer than the reservation')
  or diag($minter->{errors});
is(query($node, "SELECT snowflake_timestamp('$id') > '$promised'"),
	't', 'the first ID is above what was reserved before the crash');
is(scalar(grep { $_ >= $id } map { @$_ } @seen), 0, 'and above all IDs from before');
is(duplicates(@seen), 0, 'all are distinct');

# A server that crashes again before it has come to mint: it does not forget what had been reserved,
# and does not get further ahead of the clock; nor if it is stopped cleanly without an ID in between.
my $until = '-infinity';
foreach my $mode ('immediate', 'fast')
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

done_testing();
