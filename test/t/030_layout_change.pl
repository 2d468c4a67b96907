# A server that is configured with another layout than it has minted with does
# not mint until a superuser accepts that, because the IDs of two layouts can
# collide.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder error_of log_count new_node status wait_for_mint
);
use Test::More;
use Time::HiRes;

# The new one has an earlier epoch, so its IDs are larger.
my $old = 'time:41 node:10 sequence:12 epoch:2015-01-01T00:00:00Z';
my $new = 'time:41 node:9 sequence:13 epoch:2010-01-01T00:00:00Z';

my $node = new_node('main', conf => "snowflake.layout = '$old'\nsnowflake.reservation = '1s'");

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE ROLE ordinary LOGIN');
wait_for_mint($node);

my @ids = $node->safe_psql('postgres', 'SELECT snowflake_next()');
my $canonical_old = status($node, 'layout');

# A mint that ought to be refused; the reason does not go away by waiting.
sub refused
{
	return error_of($node,
		q{SET snowflake.max_wait = '1h'; SET statement_timeout = '30s'; SELECT snowflake_next()});
}

sub configure
{
	my ($layout, $gate) = @_;

	$node->stop('fast');
	$node->append_conf('postgresql.conf', "snowflake.layout = '$layout'");
	$node->start;
	$node->poll_query_until('postgres', "SELECT gate ~ '$gate' FROM snowflake_status")
	  or die "gate is not $gate";
	return;
}

sub stored
{
	return $node->safe_psql('postgres', 'SELECT layout FROM snowflake_keeper.reservation');
}

# The same layout in other words
configure('time:41 node:10 sequence:12 tick:1ms epoch:1420070400000', 'open');
push @ids, $node->safe_psql('postgres', 'SELECT snowflake_next()');
pass('the same layout in other words is no change');

# Another one
my $offset = -s $node->logfile;
configure($new, 'differs');
my $canonical_new = status($node, 'layout');
isnt($canonical_new, $canonical_old, 'the server has the new layout');
foreach my $try ('first', 'second', 'third')
{
	my $error = refused();

	is($error->{sqlstate}, '55000', "another layout: minting is refused, $try try");
	like(
		$error->{detail},
		qr/^The configured layout is "\Q$canonical_new\E", the stored one "\Q$canonical_old\E"\.$/,
		'the error states both layouts');
	like($error->{hint}, qr/snowflake_accept_layout\(\)/, 'and how to accept');
}

# The keeper looks at it once more.
$node->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
is(log_count($node, qr/LOG:  snowflake gate stays closed: snowflake\.layout differs/, $offset),
	1, 'the log says so, once');
is(stored(), $canonical_old, 'the old layout stays stored');

# Who may accept
my $error = error_of($node, 'SET ROLE ordinary; SELECT snowflake_accept_layout()');
is($error->{sqlstate}, '42501', 'an ordinary user may not accept the change');
is(refused()->{sqlstate}, '55000', 'and has not');

# Nor has a superuser who gave up before the keeper heard of it.
my $pid = status($node, 'keeper_pid');
kill 'STOP', $pid;
$error = error_of($node, 'SET snowflake.max_wait = 0; SELECT snowflake_accept_layout()');
is($error->{sqlstate}, '55000', 'the keeper does not answer: an error');
$offset = -s $node->logfile;
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
kill 'CONT', $pid;
$node->wait_for_log(qr/LOG:  snowflake gate (?:stays closed|opened)/, $offset);
is(refused()->{sqlstate}, '55000', 'and the next keeper does not do it');

# Back to the old one, without having accepted
configure($old, 'open');
push @ids, $node->safe_psql('postgres', 'SELECT snowflake_next()');
pass('back to the stored layout: minting goes on without being asked');

# Accepted
configure($new, 'differs');
like(
	refused()->{hint},
	qr/Existing snowflakes are then decoded by the new layout, to other times/,
	'the refusal says what accepting does to IDs that exist');
my ($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowflake_accept_layout()');
like(
	$stderr,
	qr/WARNING:  existing snowflakes now decode to other times/,
	'with a warning that old IDs get other times');
my ($example, $is_of, $would_be_of) = $stderr =~
  /DETAIL:  Snowflake (\d+) decodes to "(.*?)" in the stored layout, but to "(.*?)" in the configured one\./;
is( $node->safe_psql(
		'postgres', qq{
		SELECT abs(extract(epoch FROM '$is_of' - now())) < 60,
			abs(extract(epoch FROM snowflake_timestamp($example, '$old') - '$is_of')) < 1,
			abs(extract(epoch FROM snowflake_timestamp($example) - '$would_be_of')) < 1}),
	't|t|t',
	'and with an example of now, which is so');
like(
	$stderr,
	qr/HINT:  Decode them with their own layout, for example snowflake_timestamp\(id, '\Q$canonical_old\E'\)\./,
	'and with what to do');
my $accepted = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
push @ids, $node->safe_psql('postgres', 'SELECT snowflake_next()');
pass('the change is accepted: minting goes on');
is(stored(), $canonical_new, 'the new layout is stored');
is( $node->safe_psql(
		'postgres',
		qq{SELECT snowflake_timestamp('$ids[-1]', '$new')
			BETWEEN timestamptz '$accepted' - interval '5 s' AND clock_timestamp() + interval '5 s'}),
	't',
	'the ID has it');
($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowflake_accept_layout()');
is($ret, 0, 'accepting again');
like($stderr, qr/^psql:.*NOTICE:  .*already in force/, 'does nothing');

# It stays accepted, also across a crash.
$node->stop('immediate');
$node->start;
$node->poll_query_until('postgres', 'SELECT snowflake_next() IS NOT NULL')
  or die "server does not mint";
push @ids, $node->safe_psql('postgres', 'SELECT snowflake_next()');
pass('a crash does not take it back');

# Going back is a change like any other.  IDs of the old layout are smaller
# than those of the new one, which is worth a warning.
configure($old, 'differs');
$error = refused();
like(
	$error->{detail},
	qr/^The configured layout is "\Q$canonical_old\E", the stored one "\Q$canonical_new\E"\.$/,
	'going back: minting is refused');
($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowflake_accept_layout()');
is($ret, 0, 'until it is accepted');
like(
	$stderr,
	qr/WARNING:  snowflakes of the configured layout are smaller/,
	'with a warning that the IDs become smaller');
my $id = $node->safe_psql('postgres', 'SELECT snowflake_next()');
is(stored(), $canonical_old, 'the old layout is stored');
cmp_ok($id, '<', $ids[-1], 'which is so');

is(disorder(\@ids), 0, 'all IDs before ascend');

# Rows of other node IDs count: they are of the same server.  They are
# rewritten together.
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = 2');
$node->reload;
$node->poll_query_until('postgres', 'SELECT snowflake_node(snowflake_next()) = 2')
  or die "node ID is not taken over";
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = 3');
configure($new, 'differs');
$error = refused();
is($error->{sqlstate}, '55000',
	'another layout and another node ID: minting is refused all the same');
$node->safe_psql('postgres', 'SELECT snowflake_accept_layout()');
is( $node->safe_psql(
		'postgres', 'SELECT node, layout FROM snowflake_keeper.reservation ORDER BY node'),
	join("\n", map { "$_|$canonical_new" } 1 .. 2),
	'accepted: all rows have the new layout');

# More bits of time above what there is: the IDs stay what they are.
my $narrow = 'time:41 node:5 sequence:7 epoch:2025-01-01T00:00:00Z';
my $wide = 'time:45 node:5 sequence:7 epoch:2025-01-01T00:00:00Z';
configure($narrow, 'differs');
$node->safe_psql('postgres', 'SELECT snowflake_accept_layout()');
$id = $node->safe_psql('postgres', 'SELECT snowflake_next()');
configure($wide, 'differs');
($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowflake_accept_layout()');
is("$ret|$stderr", '0|', 'more bits of time: accepted without a warning');
cmp_ok($node->safe_psql('postgres', 'SELECT snowflake_next()'), '>', $id, 'the IDs ascend');
is( $node->safe_psql(
		'postgres', "SELECT snowflake_timestamp('$id') = snowflake_timestamp('$id', '$narrow')"),
	't',
	'and the old ones say what they said');

# Bits moved between node and sequence: the times stay
my $canonical_wide = status($node, 'layout');
configure('time:45 node:6 sequence:6 epoch:2025-01-01T00:00:00Z', 'differs');
($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowflake_accept_layout()');
like(
	$stderr,
	qr/\A\S* ?WARNING:  existing snowflakes now decode to other nodes and sequence numbers.*
DETAIL:  Their times do not change\.
HINT:  Decode them with their own layout, for example snowflake_node\(id, '\Q$canonical_wide\E'\)\.\n*\z/,
	'bits moved below the time: a warning that says so');

# Node and sequence change places, which have as many bits each
configure('time:45 sequence:6 node:6 epoch:2025-01-01T00:00:00Z', 'differs');
($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowflake_accept_layout()');
like(
	$stderr,
	qr/WARNING:  existing snowflakes now decode to other nodes and sequence numbers/,
	'parts that change places: likewise');

# A part becomes the caller's field, so the node ID has the other one alone
configure('time:45 zone:4 shard:2 sequence:6 epoch:2025-01-01T00:00:00Z', 'differs');
$node->safe_psql('postgres', 'SELECT snowflake_accept_layout()');
configure('time:45 zone:4 shard:2? sequence:6 epoch:2025-01-01T00:00:00Z', 'differs');
($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowflake_accept_layout()');
like(
	$stderr,
	qr/WARNING:  existing snowflakes now decode to other nodes and sequence numbers/,
	q{a part that becomes the caller's field: likewise});

# A layout in which the old IDs would be after the end
my $short = 'time:35 node:6 sequence:6 epoch:' . (time() - 86_400) . '000';
configure($short, 'differs');
($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowflake_accept_layout()');
like(
	$stderr,
	qr/but to a time after the end of the configured one\..*WARNING:  snowflakes of the configured layout are smaller/s,
	'fewer bits of time: old IDs are after the end, and larger');

# Time in another place, or ticks of another length: each alone changes the times
my $moved = $short =~ s/sequence:6/sequence:5/r;
foreach my $layout ($moved, "$moved tick:2ms")
{
	my $before = status($node, 'layout');

	configure($layout, 'differs');
	($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowflake_accept_layout()');
	like(
		$stderr,
		qr/WARNING:  existing snowflakes now decode to other times.*
HINT:  Decode them with their own layout, for example snowflake_timestamp\(id, '\Q$before\E'\)\./s,
		"$layout: a warning of other times");
}

# A layout that begins after everything that was issued: minting starts at the clock.
$node->poll_query_until('postgres',
	q{SELECT max(reserved_until) < clock_timestamp() FROM snowflake_keeper.reservation})
  or die "clock does not pass the reservation";
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = 4');
configure('time:41 node:10 sequence:12 epoch:' . int(1000 * Time::HiRes::time()), 'differs');
is( $node->safe_psql(
		'postgres',
		'SELECT max(reserved_until) < (snowflake_layout()).epoch FROM snowflake_keeper.reservation'
	),
	't',
	'a layout whose epoch is after the reservation');
$node->safe_psql('postgres', 'SELECT snowflake_accept_layout()');
foreach my $node_id (4, 3)
{
	$node->safe_psql('postgres', "ALTER SYSTEM SET snowflake.node_id = $node_id");
	$node->reload;
	$node->poll_query_until('postgres', "SELECT node = $node_id FROM snowflake_status")
	  or die "node ID is not taken over";
	(undef, $stdout, $stderr) = $node->psql(
		'postgres', q{
		SELECT @@ snowflake_next() BETWEEN clock_timestamp() - interval '5 s'
			AND clock_timestamp() + interval '5 s'});
	is("$stdout$stderr", 't', "accepted: node ID $node_id mints IDs of now");
}

$node->stop;
done_testing();
