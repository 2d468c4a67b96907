# A keeper that ends while clients connect comes back at once: a mint that waits sees to it
# where the postmaster may sleep through that, up to PostgreSQL 15.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(disorder new_node status wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $node = new_node('main', conf => 'log_connections = off');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);

my @ids;

# No mint has to wait until the postmaster happens to wake up, for which nothing but the number
# of tries is a measure.
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
