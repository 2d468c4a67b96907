# A reservation that is longer than snowflake.max_jump: mints use it bit by bit, without a
# commit, to its end and no further, whatever was stored before.  They do not follow a
# clock that jumps within it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use Test::More;

my $clock = new_clock('main');
my $node = minting_node(
	'main',
	clock => $clock,
	conf => q{
	snowflake.reservation = '10min'
	snowflake.max_jump = '2s'
	snowflake.max_wait = '30s'
	wal_level = replica
	max_wal_senders = 1
});

# Mint; returns the ID's time in seconds.
sub time_of_mint
{
	return query($node, 'SELECT extract(epoch FROM @@ snowflake_next())');
}

# All clocks go on by so many seconds.
sub pass_seconds
{
	my ($seconds) = @_;

	pass_days($clock, $seconds / 86_400);
	return;
}

my $reservations = status($node, 'reservations');
foreach (1 .. 4)
{
	pass_seconds(50);
	mint($node);
}
is(status($node, 'reservations'),
	$reservations, 'less than half of it: mints go on without a commit');

# The clock jumps, within what is stored: the keeper looks at it before any mint follows.
my $before = time_of_mint();
step_clock($clock, 60_000);
cmp_ok(time_of_mint(), '<', $before + 40,
	'a mint does not follow a jump, though as much is stored');
step_clock($clock, -60_000);
ok(mint($node), 'and mints go on when it is over');

# To its end, while the keeper cannot commit
my $locker = lock_reservation($node);
my $stored = $locker->query_safe(
	'SELECT extract(epoch FROM reserved_until) FROM snowflake_keeper.reservation WHERE node = 1');
my $time = time_of_mint();
while ($time + 60 < $stored)
{
	pass_seconds(50);
	$time = time_of_mint();
}
pass('the keeper cannot commit: mints go on near the end of what is stored');
pass_seconds(200);
like(refused($node)->{message}, qr/reservation was not extended/, 'and not past it');
$locker->quit;
ok(mint($node), 'the keeper can commit again');

# What was stored before an exact end does not count any more, where far less is reserved.
change_node_id($node, 2);
mint($node);
my $offset = -s $node->logfile;
set_conf($node, 'snowflake.reservation' => '5s');
$node->wait_for_log(qr/More is reserved than is needed/, $offset);
wait_for_mint($node);
$locker = lock_reservation($node);
$stored = $locker->query_safe(
	'SELECT extract(epoch FROM reserved_until) FROM snowflake_keeper.reservation WHERE node = 2');
pass_seconds(20);
refused($node) foreach 1 .. 3;
cmp_ok(status($node, 'extract(epoch FROM last_time)'),
	'<=', $stored, 'a shorter reservation: no ID is past what is stored');
$locker->quit;
wait_for_mint($node);
my $last = status($node, 'last_id');
$node->kill9;
start_after_kill($node, $clock);
wait_for_mint($node);
cmp_ok(mint($node), '>', $last, 'and after a crash they are above');

$node->stop;
done_testing();
