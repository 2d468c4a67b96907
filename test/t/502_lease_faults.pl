# A server that is stopped while its node ID is taken over, a lessee or a keeper that is
# frozen, a coordinator that falls silent: no server mints what another one may mint, and
# the gate closes when the lease has ended, even if nothing is minted.
# long

use IO::Socket::UNIX;
use SnowflakeFleet;
use SnowflakeTest;

my $coordinator = new_coordinator();
my @lists;

# Two servers have the two node IDs.
my @two_ids = (lease => patience(4) . 's', conf => "snowflake.lease_nodes = '5, 6'\n");
my $one = start_member('one', $coordinator, @two_ids, founds => '');
my $two = start_member('two', $coordinator, @two_ids);
push @lists, mint_together(1, $one, $two);
is(join(' ', sort map { status($_, 'node') } $one, $two),
	'5 6', 'two servers have the two node IDs');

# A third one finds none, and says so.
my $three = start_member('three', $coordinator, @two_ids);
wait_for_status($three, q{advice ~ '^No node ID is free'});
is(error_at_once($three)->{message}, 'this server has not leased a node ID', 'no node ID is free');

# It gets that of a server that stands still.
my $held = status($one, 'node');
my $minter = start_minter($one, 200_000);
wait_until('it mints', sub { -s $minter->{ids} });
freeze($one->{_pid}, children($one, qr/./));
push @lists, mint_together(1, $two, $three);
is(status($three, 'node'), $held, 'a server that stood still for longer than its lease lost it');
my $other = start_minter($three, 30_000);
thaw();
push @lists, finish_minter($other);
wait_for_status($one, q{gate <> 'open' AND advice ~ '^No node ID is free'});
pass('it goes on, finds its node ID taken, and closes');
$three->stop;
wait_for_mint($one);
$minter->{run}->kill_kill;
push @lists, finish_minter($minter);
push @lists, mint_together(1, $one, $two);
is(duplicates(@lists), 0, 'no ID twice');
$_->stop foreach $one, $two;

# A keeper is frozen.  An attempt may be under way, so two of them; and a busy machine may be
# too slow for some.
my $clock = new_clock('member');
my $member = start_member('member', $coordinator, clock => $clock, lease => '3900ms');
wait_for_mint($member);
freeze(children($member, qr/snowflake keeper/));
my ($granted, $errors) = split /\|/, status($member, 'leases + lease_renewals, lease_errors');
wait_for_status($member, "leases + lease_renewals > $granted + 1 OR lease_errors > $errors + 20");
cmp_ok(
	status($member, 'leases + lease_renewals'),
	'>',
	$granted + 1,
	'a short lease is renewed while the keeper is frozen');
thaw();

# A lessee is frozen, and says nothing, so others do: before the lease ends, and then.
set_conf($member, 'snowflake.lease' => '10min');
wait_for_status($member, q{lease_until > now() + interval '5 min' AND gate = 'open'});
my $frozen = lessee($member);
my $hint = qr/The lessee, process $frozen, has not renewed the lease since "/;
freeze($frozen);
stop_time($clock);
is(status($member, 'advice'), '', 'a lease that is far from its end needs no advice');
let_pass($clock, status($member, '1000 * extract(epoch FROM lease_until - now()) - 1000'));
is(status($member, 'gate'), 'open', 'a lessee is frozen: minting goes on to the end of the lease');
like(status($member, 'advice'), qr/^Minting ends with the lease\. $hint/, 'with advice');
let_pass($clock, 2_000);
start_time($clock);
my $error = refused($member);
is($error->{message}, q{the lease of this server's node ID has ended}, 'then the lease has ended');
like($error->{hint}, qr/^$hint/, 'and the hint says why');
like(status($member, 'advice'), qr/^$hint/, 'as the advice does');
thaw();
wait_for_mint($member);

# The coordinator does not answer any more, and nobody mints.
wait_for_status($member, q{lease_until > now() + interval '9 min'});
$coordinator->stop('immediate');
my $silent = IO::Socket::UNIX->new(
	Local => $coordinator->host . '/.s.PGSQL.' . $coordinator->port,
	Listen => 5,
	Timeout => $PostgreSQL::Test::Utils::timeout_default) or die "could not listen: $@";

stop_time($clock);
my $left = status($member, 'floor(1000 * extract(epoch FROM lease_until - now()))');
$errors = status($member, 'lease_errors');
cmp_ok($left, '>', 375_000, 'the lease is not to be renewed yet');

# An attempt to renew fails, and nothing else happens.  The lessee is asleep for minutes,
# by the clock that stands: a reload wakes it.
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

is( refused($member)->{message},
	q{the lease of this server's node ID has ended},
	'nothing is minted after the end');

done_testing();
