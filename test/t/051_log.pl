# The server log tells an administrator what happens to minting, once per event and
# not once per ID: gate opened and closed, the clock went back, waiting began
# and ended, the reservation could not be extended.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  error_of finish_minter new_clock new_node start_minter start_time start_with_clock
  status step_clock stop_time
);
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'main', conf => q{
	snowflake.reservation = '1s'
	snowflake.max_wait = '10s'
	snowflake.max_jump = '1s'
	snowflake.jump_patience = 0
	snowflake.max_ahead = '10s'
});
my $clock = new_clock('main');
my $offset = 0;

my $opened = qr/LOG:  snowflake gate opened for node ID/;
my $closed = qr/LOG:  snowflake gate closed/;
my $went_back = qr/WARNING:  the clock went back by/;
my $went_ahead = qr/WARNING:  the clock went ahead by/;
my $waits = qr/WARNING:  minting snowflakes waits for the clock/;
my $waits_no_longer = qr/LOG:  minting snowflakes no longer waits for the clock, after/;

# What was logged since the last look
sub logged
{
	return substr(slurp_file($node->logfile), $offset);
}

# Each of these is logged so many times since the last look, and nothing else
# about snowflakes is; then look from here on.
sub logged_are
{
	my ($expected, $what) = @_;
	my %expected = (
		$opened => 0,
		$closed => 0,
		$went_back => 0,
		$went_ahead => 0,
		$waits => 0,
		$waits_no_longer => 0,
		%$expected);

	# the directory of the tests may have the name, too
	my @lines = grep {
		/(?:LOG|WARNING): .*(?:snowflake|clock went)/
		  && !/exited with exit code|listening on/
	} split /\n/, logged();

	foreach my $regexp (sort keys %expected)
	{
		my ($name) = $regexp =~ /LOG:  (.*?)\)?$/;

		is(scalar(grep { /$regexp/ } @lines), $expected{$regexp}, "$what: \"$name\"");
	}
	my $known = join '|', keys %expected;
	is(scalar(grep { !/$known/ } @lines), 0, "$what: nothing else");
	$offset = -s $node->logfile;
	return;
}

sub start
{
	start_with_clock($node, $clock);
	$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
	  or die "gate does not open";
	return;
}

sub mint
{
	my ($count) = @_;

	return split /\n/,
	  $node->safe_psql('postgres', "SELECT snowflake_next() FROM generate_series(1, $count)");
}

# The first start ever.  The keeper's extension is not there yet, and the first
# mint makes the keeper create it.
start_with_clock($node, $clock);
$node->safe_psql('template1', 'CREATE EXTENSION snowflake');
$node->safe_psql('template1', 'SELECT snowflake_next()') foreach 1 .. 3;
like(
	logged(),
	qr/LOG:  snowflake gate opened for node ID 1\n.*DETAIL:  The layout is "[^"]*epoch:[^"]*"\. Nothing was minted/,
	'the log tells the layout, and that nothing was minted before');
logged_are(
	{
		$opened => 1,
		qr/LOG:  creating extension "snowflake_keeper" in database "postgres"/ => 1
	},
	'first mint');
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');

# Normal operation has nothing to tell, nor has one reservation after another.
my $reservations = status($node, 'reservations');
$node->poll_query_until('postgres',
	"SELECT count(snowflake_next()) = 1000 AND max(reservations) > $reservations + 1 FROM generate_series(1, 1000), snowflake_stats"
) or die "reservation is not extended";
logged_are({}, 'minting');

# Restart
my @ids = mint(100);
$node->stop('fast');
logged_are({ $closed => 1 }, 'clean stop');
start();
my $resumes = logged();
mint(100);
like(
	$resumes,
	qr/LOG:  snowflake gate opened for node ID 1\n.*DETAIL:  The layout is "[^"]*"\. Minting resumes after "[^"]*"\./,
	'the log tells where minting resumes');
my ($after) = $resumes =~ /Minting resumes after "([^"]*)"/;
is( $node->safe_psql(
		'postgres',
		"SELECT date_trunc('milliseconds', timestamptz '$after') = snowflake_timestamp('$ids[-1]')"
	),
	't',
	'which is the last ID');
logged_are({ $opened => 1 }, 'start');

# The clock steps back by a little: four sessions mint on, and nobody waits.
my @minters =
  map { start_minter($node, 5_000) } 1 .. 4;
step_clock($clock, -900);
is(scalar(@{ finish_minter($_) }), 5_000, 'a session mints while the clock steps back')
  foreach @minters;
mint(100);
$node->wait_for_log($went_back, $offset);
my ($back_ms) = logged() =~ /the clock went back by ([0-9.]+) ms/;
cmp_ok($back_ms || 0, '>', 898, 'the log tells by how much');
cmp_ok($back_ms || 0, '<', 902, 'rightly');
logged_are({ $went_back => 1 }, 'clock back by 900 ms');

# Far back: every mint fails, and still it is told once.
step_clock($clock, -3_600_000);
foreach my $n (1 .. 20)
{
	is(error_of($node, 'SELECT snowflake_next()')->{sqlstate},
		'55000', 'clock back by an hour: a mint is refused');
}
my ($back_s) = logged() =~ /the clock went back by ([0-9.]+) s/;
cmp_ok($back_s || 0, '>', 3599.9, 'the log tells by how much');
cmp_ok($back_s || 0, '<', 3600.1, 'rightly');
logged_are({ $went_back => 1, $waits => 1 }, 'clock back by an hour');

# Waiting ends when the clock is set right, also if nobody mints then.
step_clock($clock, 3_600_000);
$node->wait_for_log($waits_no_longer, $offset);
logged_are({ $went_ahead => 1, $waits_no_longer => 1 }, 'clock set right');
is(status($node, 'clock_steps_back'), 2, 'snowflake_status counts the steps');

# Another node ID
mint(100);
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = 2');
$node->reload;
$node->poll_query_until('postgres', 'SELECT snowflake_node(snowflake_next()) = 2')
  or die "node ID is not taken over";
logged_are(
	{
		$opened => 1,
		$closed => 1,
		qr/LOG:  snowflake gate closed for node ID 1/ => 1,
		qr/LOG:  snowflake gate opened for node ID 2/ => 1,
		qr/LOG:  parameter "snowflake.node_id" changed/ => 1
	},
	'node ID changed');

# Crash.  Time stands, so that the first mint has to wait however long the start takes.
mint(100);
stop_time($clock);
$node->append_conf('postgresql.conf', 'snowflake.max_ahead = 0');
$node->stop('immediate');
logged_are({}, 'crash');
start();
my $minter = start_minter($node, 100);
$node->wait_for_log($waits, $offset);
start_time($clock);
is(scalar(@{ finish_minter($minter) }), 100, 'a session waits after a crash');
$node->poll_query_until('postgres', q{SELECT lead < interval '0' FROM snowflake_status})
  or die "generator stays ahead";
$node->wait_for_log($waits_no_longer, $offset);
logged_are({ $opened => 1, $waits => 1, $waits_no_longer => 1 }, 'start after a crash');

# The node ID is unset: one event, however many mints are refused
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = -1');
$node->reload;
$node->poll_query_until('postgres', q{SELECT gate ~ 'not set' FROM snowflake_status})
  or die "node ID is not taken over";
foreach my $n (1 .. 5)
{
	is(error_of($node, q{SET snowflake.max_wait = '10ms'; SELECT snowflake_next()})->{sqlstate},
		'55000', 'node ID unset: a mint is refused');
}
logged_are(
	{
		$closed => 1,
		qr/LOG:  parameter "snowflake.node_id" changed/ => 1
	},
	'node ID unset');

$node->stop;
done_testing();
