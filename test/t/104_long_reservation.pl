# A reservation that is longer than snowflake.max_jump: mints use it bit by bit, without a
# commit and to its end, and no more than is stored, whatever was stored before.  They do
# not follow a clock that jumps within it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  error_of keeper_sleeps new_clock new_node pass_days start_after_kill start_with_clock status
  step_clock wait_for_mint
);
use Test::More;

my $node = new_node(
	'main', conf => q{
	snowflake.reservation = '10min'
	snowflake.max_jump = '2s'
	snowflake.max_wait = '30s'
	wal_level = replica
	max_wal_senders = 1
});
my $clock = new_clock('main');

start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);

# Lock the keeper's table; returns the session, and up to when is stored.
sub lock_table
{
	my ($node_id) = @_;
	my $session = $node->background_psql('postgres');

	$session->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
	return (
		$session,
		$session->query_safe(
			"SELECT extract(epoch FROM reserved_until) FROM snowflake_keeper.reservation WHERE node = $node_id"
		));
}

# Mint; returns the ID's time in seconds, or nothing if it failed.
sub mint
{
	my ($rc, $output, $error) =
	  $node->psql('postgres', 'SELECT extract(epoch FROM @@ snowflake_next())');

	diag($error) if $rc;
	return $rc ? () : $output;
}

# All clocks go on by so many seconds.
sub pass_seconds
{
	my ($seconds) = @_;

	pass_days($clock, $seconds / 86_400);
	return;
}

my $reservations = status($node, 'reservations');
my @times;
foreach (1 .. 4)
{
	pass_seconds(50);
	push @times, mint();
}
is(scalar(@times), 4, 'less than half of it: mints go on');
is(status($node, 'reservations'), $reservations, 'without a commit');

# The clock jumps, within what is stored: the keeper looks at it before any mint follows.
my $before = mint();
step_clock($clock, 60_000);
cmp_ok(mint(), '<', $before + 40, 'a mint does not follow a jump, though as much is stored');
step_clock($clock, -60_000);
ok(mint(), 'and mints go on when it is over');

my ($session, $stored) = lock_table(1);
@times = ();
for (my $now = mint(); $now + 60 < $stored; $now += 50)
{
	pass_seconds(50);
	push @times, mint() // last;
}
cmp_ok(
	$times[-1], '>',
	$stored - 120,
	'the keeper cannot commit: mints go on near the end of what is stored'
) or diag("at @times of $stored");
pass_seconds(200);
like(
	error_of($node, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()})->{message},
	qr/reservation was not extended/,
	'and not past it');
$session->query_safe('COMMIT');
$session->quit;
ok(mint(), 'the keeper can commit again');

# What was stored before an exact end does not count any more, ...
$node->append_conf('postgresql.conf', "snowflake.reservation = '9min'\nsnowflake.node_id = 2");
$node->reload;
$node->poll_query_until('postgres', q{SELECT snowflake_node(snowflake_next()) = 2})
  or die 'node ID does not change';
($session, $stored) = lock_table(2);
pass_seconds(9 * 60 + 20);
$node->psql('postgres', q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()})
  foreach 1 .. 3;
cmp_ok(status($node, 'extract(epoch FROM last_time)'),
	'<=', $stored, 'another node ID: no ID is past what is stored');
$session->query_safe('COMMIT');
$session->quit;
wait_for_mint($node);

# ... also where far less is reserved.
my $offset = -s $node->logfile;
$node->append_conf('postgresql.conf', q{snowflake.reservation = '5s'});
$node->reload;
$node->wait_for_log(qr/More is reserved than is needed/, $offset);
wait_for_mint($node);
($session, $stored) = lock_table(2);
pass_seconds(20);
$node->psql('postgres', q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()})
  foreach 1 .. 3;
cmp_ok(status($node, 'extract(epoch FROM last_time)'),
	'<=', $stored, 'a shorter reservation: no ID is past what is stored');
my $last = status($node, 'extract(epoch FROM last_time)');
$node->kill9;
start_after_kill($node, $clock);
wait_for_mint($node);
cmp_ok(mint(), '>', $last, 'and after a crash they are above');

# A floor beyond what is reserved does not wait until half of that is used.
$node->append_conf('postgresql.conf',
	"snowflake.reservation = '10min'\nsnowflake.max_jump = '10min'");
$node->reload;
$node->poll_query_until('postgres',
	q{SELECT reserved_until > (@@ snowflake_next()) + interval '9 min' FROM snowflake_status})
  or die 'no more is reserved';
is( error_of($node,
		q{SELECT snowflake_advance(snowflake_upper_bound(reserved_until + interval '1 s'), true) FROM snowflake_status}
	)->{message},
	'',
	'a floor beyond what is reserved is reserved at once');

# The reservation is shorter from now on, and what is left of the longer one is used up: mints do
# not wake the keeper one by one, though less is left than half of what it was.
pass_seconds(11 * 60);
$node->poll_query_until('postgres',
	q{SELECT reserved_until > (@@ snowflake_next()) + interval '9 min' FROM snowflake_status})
  or die 'no more is reserved';
$node->append_conf('postgresql.conf', q{snowflake.reservation = '5s'});
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.reservation') = '5s'})
  or die 'setting is not read';
pass_seconds(6 * 60);
my $slept = keeper_sleeps($node);
$node->safe_psql('postgres',
	q{DO 'BEGIN FOR i IN 1 .. 200 LOOP PERFORM snowflake_next(), pg_sleep(0.01); END LOOP; END'});
SKIP:
{
	skip 'no /proc here', 1 if !defined $slept;
	cmp_ok(keeper_sleeps($node) - $slept,
		'<', 50, 'a shorter reservation: the keeper is not woken by each mint');
}

$node->stop;
done_testing();
