# In a container the postmaster has the same process ID after each start.  What it wrote
# before is not taken for its own for that: the line of the clock that it kept does not count
# when the clock is ahead of it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(build_shim new_clock new_node step_clock);
use Test::More;

# Process IDs of its own, which begin with 1
my @namespace = qw(unshare --user --map-current-user --pid --fork --kill-child);

plan skip_all => 'unshare gives no namespace here'
  if system("@namespace true >/dev/null 2>&1") != 0;

my $node = new_node('main');
my $clock = new_clock('main');
my ($data, $log) = ($node->data_dir, $node->logfile);

# Start the server, run SQL, and stop it.  Returns what psql printed.
sub session
{
	my ($sql) = @_;
	my ($shim, $stdout) = (build_shim());

	local %ENV = $node->_get_env();
	IPC::Run::run(
		[
			@namespace, 'bash', '-ec',
			"LD_PRELOAD='$shim' SNOWFLAKE_CLOCK_FILE='$clock' pg_ctl -w -D '$data' -l '$log' start >/dev/null
			status=0
			psql -XAtq -v ON_ERROR_STOP=1 -f - postgres || status=\$?
			pg_ctl -w -D '$data' -m fast stop >/dev/null
			exit \$status"
		],
		'<',
		\$sql,
		'>',
		\$stdout) or die 'no session in a namespace';
	return [ split /\n/, $stdout ];
}

my $pid = q{SELECT substring(pg_read_file('postmaster.pid') FROM '^\d+')};
my $mint =
  q{SET snowflake.max_wait = '1min'; SELECT (@ snowflake_next()) > clock_timestamp() - interval '1 min'};
my ($first, $then) = map {
	my $printed = session($_);

	step_clock($clock, 3_600_000);
	$printed;
} "$pid; CREATE EXTENSION snowflake; $mint", "$pid; $mint";

is($then->[0], $first->[0], 'the postmaster has the process ID of before');
is($first->[1], 't', 'it mints at its clock');
is($then->[1], 't', 'and so it does after a restart with a clock that is an hour ahead');
done_testing();
