# There is no worker process to spare for a lessee: the advice says that it is missing, and
# the log says why, but not each second.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  children error_of let_pass log_count member_conf new_clock new_coordinator new_node start_time
  start_with_clock status stop_time wait_for_mint wait_for_status wait_until
);
use PostgreSQL::Test::Utils;
use Test::More;

my $coordinator = new_coordinator();

# one worker process, which is the keeper
my $server =
  new_node('server', conf => "max_worker_processes = 1\nmax_logical_replication_workers = 0\n");
my $clock = new_clock('server');
start_with_clock($server, $clock);
$server->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($server);

stop_time($clock);
$server->append_conf('postgresql.conf', member_conf($coordinator));
$server->reload;
wait_for_status($server, q{gate = 'closed: no node ID is leased yet'});
is(status($server, 'coordinator'), 'not asked', 'without a lessee the coordinator is not asked');
my $advice = 'The lessee is not running: see the server log.';
is(status($server, 'advice'), $advice, 'which the advice says');

# The clock of the server is the one of its log, too.
my $warning = qr/WARNING:  could not start the snowflake lessee$/;
wait_until('it is said twice',
	sub { let_pass($clock, 200); return log_count($server, $warning) > 1; });
my ($first, $second) = map { /^(\S+ \S+ \S+) / } grep { /$warning/ } split /\n/,
  slurp_file($server->logfile);
is($server->safe_psql('postgres', "SELECT timestamptz '$second' - '$first' >= interval '10 s'"),
	't', "the log says why, and again after a while: at $first and $second");
is( log_count($server, qr/HINT:  You may need to increase max_worker_processes\.$/),
	log_count($server, $warning),
	'and what to do');

start_time($clock);
my $error = error_of($server, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()});
is( "$error->{sqlstate} $error->{message} $error->{hint}",
	"55000 this server has not leased a node ID $advice",
	'a mint fails with the same advice');

# With another worker process there is one, and it finds no fleet.
$server->append_conf('postgresql.conf', 'max_worker_processes = 2');
$server->stop;
start_with_clock($server, $clock);
wait_for_status($server, q{coordinator = 'unreachable'});
$server->safe_psql('postgres', 'SELECT snowflake_fleet_create()');
wait_for_mint($server);
pass('with another worker process it leases');

# With exit_on_error, too, the lessee goes on after an error: the postmaster would start it
# again at once, and so would be the next attempt.
$server->append_conf('postgresql.conf', 'exit_on_error = on');
$server->restart;
my ($lessee) = children($server, qr/snowflake lessee/);
$coordinator->stop;
wait_for_status($server, q{lease_errors >= 3});
is(join(' ', children($server, qr/snowflake lessee/)), $lessee, 'an error does not end the lessee');
$coordinator->start;

# Under pg_upgrade there is none: nothing is to be minted.
$server->stop;
{
	local %ENV = $server->_get_env();
	PostgreSQL::Test::Utils::system_or_bail('pg_ctl', '-w', '-D', $server->data_dir, '-l',
		$server->logfile, '-o', '-b', 'start');
	$server->_update_pid(1);
}
is(join(' ', children($server, qr/snowflake lessee/)), '', 'under pg_upgrade no lessee runs');

$_->stop foreach $server, $coordinator;
done_testing();
