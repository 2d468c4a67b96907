# The server log tells an administrator what happens to minting, once per event and
# not once per ID: gate opened and closed, the clock went back, waiting began
# and ended.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest;
use Test::More;

my $clock = new_clock('main');
my $node = new_node(
	'main', conf => q{
	snowflake.reservation = '1s'
	snowflake.max_wait = '10s'
	snowflake.max_jump = '2h'
	snowflake.max_ahead = '10s'
});
my $offset = 0;

# The lines that the log may have about snowflakes
my %line = (
	creating => qr/LOG:  creating extension "snowflake_keeper" in database "postgres"/,
	opened => qr/LOG:  snowflake gate opened for node ID/,
	closed => qr/LOG:  snowflake gate closed/,
	'node ID' => qr/LOG:  parameter "snowflake.node_id" changed/,
	back => qr/WARNING:  the clock went back by/,
	ahead => qr/WARNING:  the clock went ahead by/,
	waits => qr/WARNING:  minting snowflakes waits for the clock/,
	'no longer' => qr/LOG:  minting snowflakes no longer waits for the clock, after/);

# What was logged since the last look
sub logged
{
	return substr(slurp_file($node->logfile), $offset);
}

# These, and nothing else about snowflakes, are logged since the last look; then look from here on.
sub logged_are
{
	my ($what, @expected) = @_;
	my @seen;

	# the directory of the tests may have the name, too
	foreach my $line (
		grep {
			/(?:LOG|WARNING): .*(?:snowflake|clock went)/
			  && !/exited with exit code|listening on/
		} split /\n/,
		logged())
	{
		push @seen, (grep { $line =~ $line{$_} } keys %line)[0] // $line;
	}
	is(join(', ', sort @seen), join(', ', sort @expected), "$what: the log");
	$offset = -s $node->logfile;
	return;
}

# The first start ever.  The keeper's extension is not there yet, and the first
# mint makes the keeper create it.
start_with_clock($node, $clock);
query($node, 'CREATE EXTENSION snowflake', dbname => 'template1');
query($node, 'SELECT snowflake_next()', dbname => 'template1') foreach 1 .. 3;
like(
	logged(),
	qr/LOG:  snowflake gate opened for node ID 1\n.*DETAIL:  The layout is "[^"]*epoch:[^"]*"\. Nothing was minted/,
	'the log tells the layout, and that nothing was minted before');
logged_are('first mint', qw(creating opened));
query($node, 'CREATE EXTENSION snowflake');

# Normal operation has nothing to tell, nor has one reservation after another.
my $reservations = status($node, 'reservations');
wait_for_query($node,
	"SELECT count(snowflake_next()) = 1000 AND max(reservations) > $reservations + 1 FROM generate_series(1, 1000), snowflake_stats"
);
logged_are('minting');

# Restart
my $newest = mint($node);
$node->stop('fast');
logged_are('clean stop', 'closed');
start_with_clock($node, $clock);
mint($node);
my ($after) = logged() =~
  /LOG:  snowflake gate opened for node ID 1\n.*DETAIL:  The layout is "[^"]*"\. Minting resumes after "([^"]*)"\./;
is( query(
		$node,
		"SELECT date_trunc('milliseconds', timestamptz '$after') = snowflake_timestamp('$newest')"),
	't',
	'the log tells that minting resumes after the last ID');
logged_are('start', 'opened');

# The clock steps back by a little: nobody waits.
step_clock($clock, -900);
mint($node);
$node->reload;    # has the keeper look
$node->wait_for_log($line{back}, $offset);
logged_are('clock back by 900 ms', 'back');

# Far back: every mint fails, and still it is told once.
step_clock($clock, -3_600_000);
is(refused($node)->{sqlstate}, '55000', 'clock back by an hour: a mint is refused') foreach 1 .. 10;
logged_are('clock back by an hour', qw(back waits));

# Waiting ends when the clock is set right, also if nobody mints then.
step_clock($clock, 3_600_000);
$node->wait_for_log($line{'no longer'}, $offset);
logged_are('clock set right', 'ahead', 'no longer');

# Another node ID, and none: one event, however many mints are refused
mint($node);
change_node_id($node, 2);
mint($node);
logged_are('node ID changed', 'closed', 'opened', 'node ID');
change_node_id($node, -1);
is(refused($node)->{sqlstate}, '55000', 'node ID unset: a mint is refused') foreach 1 .. 5;
logged_are('node ID unset', 'closed', 'node ID');
change_node_id($node, 1);
logged_are('node ID set', 'opened', 'node ID');

# Crash.  Time stands, so that the first mint has to wait however long the start takes.
mint($node);
stop_time($clock);
$node->append_conf('postgresql.conf', 'snowflake.max_ahead = 0');
$node->stop('immediate');
logged_are('crash');
start_with_clock($node, $clock);
my $minter = start_minter($node, 100);
$node->wait_for_log($line{waits}, $offset);
start_time($clock);
is(scalar(@{ finish_minter($minter) }), 100, 'a session waits after a crash');
wait_for_status($node, q{lead < '0'});
$node->wait_for_log($line{'no longer'}, $offset);
logged_are('start after a crash', 'opened', 'waits', 'no longer');

$node->stop('immediate');
done_testing();
