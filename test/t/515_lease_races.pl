# A lessee and a keeper that are terminated by hand, forced to overlap by an injection
# point: what is minted with a keeper that comes and goes while the lessee gives the
# lease back.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeFleet;
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $coordinator = new_coordinator();
my $one = start_member('one', $coordinator, lease => '5min', founds => '');

if (!-e q{/proc/self/stat} || !has_injection_points($one))
{
	$_->stop foreach $one, $coordinator;
	plan skip_all =>
	  'the server has no injection points, or the extension of that name is not installed';
}
my $node = status($one, 'node');
my $session = $one->background_psql('postgres');
$session->query_safe(q{SELECT injection_points_attach('snowflake-give-back', 'wait')});

# The lessee is in no view, for it has no database.  So it is at the injection point when it
# only sleeps, for there is no keeper to wait for any more, and the coordinator answers.
my $lessee = lessee($one);
my $slept = 0;
freeze($one->{_pid});
kill 'TERM', $lessee;
end_children($one, qr/snowflake keeper/);
wait_until(
	'the lessee is about to give the lease back',
	sub {
		$slept = slurp_file("/proc/$lessee/stat") =~ /\) S/ ? $slept + 1 : 0;
		return $slept > 20;
	});
thaw();
wait_until('there is another keeper', sub { children($one, qr/snowflake keeper/) });
wait_until('it mints', sub { $session->query_safe('SELECT gate FROM snowflake_status') eq 'open' });
my $tick = $session->query_safe('SELECT snowflake_next()') >> 22;
my $until = record($coordinator, $node, 'until');

end_children($one, qr/snowflake keeper/);
$session->query_safe(q{SELECT injection_points_detach('snowflake-give-back')});
$session->query_safe(q{SELECT injection_points_wakeup('snowflake-give-back')});
wait_until('the lessee has ended', sub { !lessee($one) });
cmp_ok($until, '>=', $tick, 'a lease is minted with while it is given back');
is(record($coordinator, $node, 'until'), $until, 'so it is not, but ends by itself');
thaw();
$session->quit;
wait_for_mint($one);

done_testing();
