# Whoever waits and finds no keeper gets one: when the postmaster cannot start it,
# and the clock has gone back since, and when it ends while clients connect.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder log_count new_clock new_node set_clock start_with_clock status
  wait_for_mint wait_until
);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $node = new_node('main', conf => 'log_connections = off');
my $clock = new_clock('main');
start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);

my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
my @ids;

# The postmaster has no process to spare for a keeper
sub let_fork
{
	my ($processes) = @_;

	system_or_bail('prlimit', '--pid', $postmaster, "--nproc=$processes:");
	return;
}

my ($limit) = `prlimit --pid $postmaster --nproc --output=SOFT --noheadings` =~ /(\w+)/
  or plan skip_all => 'there is no prlimit';

# Without a keeper, and with the clock an hour behind its end, the postmaster starts none
# before the clock has returned.
my $session = $node->background_psql('postgres');
push @ids, $session->query_safe('SELECT snowflake_next()');

# Six times: half of the time it stops while it tries, and has not read the clock again.
foreach my $n (1 .. 6)
{
	my $keeper = status($node, 'keeper_pid');
	my $offset = -s $node->logfile;

	let_fork(1);
	is(kill('TERM', $keeper), 1, 'the keeper is told to end');
	wait_until(
		'the postmaster cannot start another one',
		sub {
			log_count($node, qr/could not fork (?:background )?worker process/, $offset) > 0;
		});

	# it tries again and again, so it must not see the one without the other
	kill 'STOP', $postmaster;
	set_clock($clock, -3_600_000 * $n);
	let_fork($limit);
	kill 'CONT', $postmaster;
	push @ids, $session->query_safe('SELECT snowflake_next()');
	pass('a mint that waits gets a keeper all the same');
	isnt(status($node, 'keeper_pid'), $keeper, 'which is another one');
}
set_clock($clock, 0);
push @ids, $session->query_safe('SELECT snowflake_next()');
$session->quit;

# The clock has returned, so the postmaster starts the one that it owes as well
wait_until(
	'there is one keeper, and it mints',
	sub {
		$node->safe_psql(
			'postgres',
			q{SELECT count(*) = 1 AND bool_and(pid = (SELECT keeper_pid FROM snowflake_status)) AND snowflake_next() IS NOT NULL
		    FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'}) eq 't';
	});
is( $node->safe_psql(
		'postgres',
		q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'}),
	1,
	'one too many has ended');

# For good: the postmaster does not start it again and again, which the log would tell.
my $log_size = -s $node->logfile;
status($node, 'gate') foreach 1 .. 20;
is( log_count(
		$node, qr/background worker "snowflake keeper" \(PID \d+\) exited with exit code/,
		$log_size),
	0,
	'and is not started again');

# It ends again and again while clients connect: no mint has to wait until the postmaster
# happens to wake up, for which nothing but the number of tries is a measure.
my $longest = 0;
foreach my $try (1 .. 25)
{
	my $pid = status($node, 'keeper_pid') || next;
	my @clients = map {
		IPC::Run::start([ 'psql', '-XAtc', 'SELECT 1', $node->connstr('postgres') ],
			'>', \my $out, '2>', \my $err)
	} 1 .. 2;

	kill 'TERM', $pid;
	my $started = clock_gettime(CLOCK_MONOTONIC);
	push @ids,
	  $node->safe_psql('postgres',
		q{SET snowflake.max_wait = '90s'; SELECT max(snowflake_next()) FROM generate_series(1, 20000)}
	  );
	my $took = clock_gettime(CLOCK_MONOTONIC) - $started;
	$longest = $took if $took > $longest;
	$_->finish foreach @clients;
}
note(sprintf 'the longest took %.3f s', $longest);
cmp_ok($longest, '<', 20, 'none waits for the postmaster to wake up by itself');
is(disorder(\@ids), 0, 'the IDs ascend');

$node->stop;
done_testing();
