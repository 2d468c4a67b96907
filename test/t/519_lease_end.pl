# A server that mints nothing closes its gate when its lease has ended, also while it asks
# a coordinator that does not answer.

use strict;
use warnings;

use FindBin;
use IO::Socket::UNIX;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  error_of let_pass new_clock new_coordinator new_member start_time start_with_clock status
  stop_time wait_for_mint wait_for_status
);
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'servers are not reached through sockets of files here'
  if !$PostgreSQL::Test::Utils::use_unix_sockets;

my $coordinator = new_coordinator();
my $clock = new_clock('member');
my $member = new_member('member', $coordinator, lease => '10min');

start_with_clock($member, $clock);
$member->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
wait_for_mint($member);

# From here on there is only somebody who listens.
$coordinator->stop('immediate');
my $silent = IO::Socket::UNIX->new(
	Local => $coordinator->host . '/.s.PGSQL.' . $coordinator->port,
	Listen => 5,
	Timeout => $PostgreSQL::Test::Utils::timeout_default) or die "could not listen: $@";

stop_time($clock);
my $left = status($member, 'floor(1000 * extract(epoch FROM lease_until - now()))');
my $errors = status($member, 'lease_errors');
cmp_ok($left, '>', 375_000, 'the lease is not to be renewed yet');

# An attempt to renew fails, and nothing else happens.  The lessee is asleep for minutes, by
# the clock that stands: a reload wakes it.
let_pass($clock, $left - 200_000);
$member->reload;
my $first = $silent->accept() or die 'the coordinator is not asked';
let_pass($clock, 6_000);
wait_for_status($member, "coordinator = 'unreachable' AND lease_errors = $errors + 1");
is(status($member, 'gate'), 'open', 'the lease can be used up');

# Another one begins shortly before its end, and fails shortly after it.
let_pass($clock, 200_000 - 6_000 - 2_000);
my $second = $silent->accept() or die 'the coordinator is not asked again';
is(status($member, "gate, lease_until > now(), lease_errors - $errors"),
	'open|t|1', 'shortly before the end the coordinator is asked');
let_pass($clock, 6_000);
wait_for_status($member, "lease_errors = $errors + 2");
wait_for_status($member, q{gate = 'closed: the lease of the node ID has ended'});
pass('when it has not answered the gate closes, without anybody who mints');

start_time($clock);

# A mint waits for the coordinator, in vain, and is counted as refused for its node ID.
my $refused = status($member, 'refused_node');
is( error_of($member, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()})->{message},
	q{the lease of this server's node ID has ended},
	'nothing is minted after the end');
is(status($member, 'refused_node') - $refused, 1, 'which is counted');
$member->stop;
done_testing();
