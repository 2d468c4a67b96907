# A lessee and a keeper that are terminated by hand, forced to overlap by an injection
# point: what a keeper mints that comes and goes while the lessee gives the lease back.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(children new_coordinator new_member status wait_for_mint wait_until);
use PostgreSQL::Test::Utils;
use Test::More;

my $coordinator = new_coordinator();
my $one = new_member('one', $coordinator, lease => '5min');
my @stopped;

END
{
	kill 'CONT', @stopped;
}

sub until_of
{
	my ($node) = @_;

	return $coordinator->safe_psql('postgres',
		"SELECT (value::jsonb->>'until')::bigint FROM snowflake_fleet.records WHERE key = 'node/$node'"
	);
}

$one->start;
$one->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
if (!-e '/proc/self/stat' || $one->psql('postgres', 'CREATE EXTENSION injection_points') != 0)
{
	$_->stop foreach $one, $coordinator;
	plan skip_all =>
	  'the server has no injection points, or the extension of that name is not installed';
}
wait_for_mint($one);
my $node = status($one, 'node');
my $session = $one->background_psql('postgres');
my @keepers = children($one, qr/snowflake keeper/);

$session->query_safe(q{SELECT injection_points_attach('snowflake-give-back', 'wait')});

# The postmaster would start others at once.
@stopped = ($one->{_pid});
kill 'STOP', @stopped;
kill 'TERM', @keepers, children($one, qr/snowflake lessee/);
wait_until('the keeper has ended', sub { !children($one, qr/snowflake keeper/) });

# It is in no view, for it has no database.  So it is there when it only sleeps, for there is no
# keeper to wait for any more, and the coordinator answers.
my ($lessee) = children($one, qr/snowflake lessee/);
my $slept = 0;
wait_until(
	'the lessee is about to give the lease back',
	sub {
		$slept = slurp_file("/proc/$lessee/stat") =~ /\) S/ ? $slept + 1 : 0;
		return $slept > 20;
	});
kill 'CONT', @stopped;
wait_until('there is another keeper', sub { children($one, qr/snowflake keeper/) });
wait_until('it mints', sub { $session->query_safe('SELECT gate FROM snowflake_status') eq 'open' });
$session->query_safe('SELECT snowflake_next()');
my $tick = $session->query_safe(
	'SELECT floor(extract(epoch FROM snowflake_timestamp(snowflake_next())) * 1000) - 1288834974657'
);
my $until = until_of($node);

kill 'STOP', @stopped;
kill 'TERM', children($one, qr/snowflake keeper/);
wait_until('that keeper has ended', sub { !children($one, qr/snowflake keeper/) });
$session->query_safe(q{SELECT injection_points_detach('snowflake-give-back')});
$session->query_safe(q{SELECT injection_points_wakeup('snowflake-give-back')});
wait_until('the lessee has ended', sub { !children($one, qr/snowflake lessee/) });
cmp_ok(until_of($node), '>=', $tick, 'a lease is not given back that was minted with meanwhile');
is(until_of($node), $until, 'but ends by itself');
kill 'CONT', @stopped;
@stopped = ();
$session->quit;
wait_for_mint($one);

$_->stop foreach $one, $coordinator;
done_testing();
