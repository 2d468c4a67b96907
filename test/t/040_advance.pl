# snowflake_advance(id): no ID at or below that one will be minted, which is
# durable when the function returns.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  disorder error_of finish_minter new_clock new_node start_minter
  start_with_clock status step_clock
);
use Test::More;

my $node = new_node(
	'main',
	conf => q{
	snowflake.reservation = '1s'
	snowflake.jump_patience = 0
	snowflake.max_ahead = 0
});
my $clock = new_clock('main');

sub start
{
	start_with_clock($node, $clock);
	return;
}

sub mint
{
	return $node->safe_psql('postgres', 'SELECT snowflake_next()');
}

# The last ID of the tick that is so far from now
sub future
{
	my ($interval) = @_;

	return $node->safe_psql('postgres',
		"SELECT snowflake_upper_bound(clock_timestamp() + interval '$interval')");
}

sub refused
{
	return error_of($node, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()});
}

start();
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE ROLE ordinary LOGIN');

# Before anything has been minted, and within what is reserved: the first ID
# waits for the clock and is above.
my $id = future('300 ms');
$node->safe_psql('postgres', "SELECT snowflake_advance('$id')");
cmp_ok(mint(), '>', $id, 'before the first mint: the first ID is above');

# A little, further than what is reserved, with the clock passing it meanwhile
$id = future('2 s');
my ($ret, $stdout, $stderr) = $node->psql('postgres', "SELECT snowflake_advance('$id')");
is($ret, 0, 'further than what is reserved');
like(
	$stderr,
	qr/WARNING:  the snowflake generator is now .* ahead of the clock/,
	'a warning says how far ahead of the clock that is');
step_clock($clock, 3_000);
cmp_ok(mint(), '>', $id, 'the next ID is above');

# Below: nothing happens.
my $newest = mint();
($ret, $stdout, $stderr) = $node->psql('postgres', "SELECT snowflake_advance('$id')");
is("$ret$stderr", '0', 'to the past: no error, no warning');
($ret, $stdout, $stderr) = $node->psql('postgres', q{SELECT snowflake_advance('0')});
is("$ret$stderr", '0', 'to 0: no error, no warning');
$id = mint();
cmp_ok($id, '>', $newest, 'IDs ascend');
is( $node->safe_psql(
		'postgres', "SELECT snowflake_timestamp('$id') < clock_timestamp() + interval '1 s'"),
	't',
	'by no more than the clock does');

# The tick of a given ID counts as used, so that IDs of any sequence number
# in it are below, and with any node ID.  The mint after that waits until the tick
# is near: the clock has not passed it when it goes on.
$id =
  $node->safe_psql('postgres', q{SELECT make_snowflake(clock_timestamp() + interval '1 s', 0, 0)});
$node->safe_psql('postgres', "SELECT snowflake_advance('$id')");
is( $node->safe_psql(
		'postgres', "SELECT snowflake_timestamp(snowflake_next()) > snowflake_timestamp('$id')"),
	't',
	'the next ID is of a later tick than the given one');

# Far
$id = future('10 min');
($ret, $stdout, $stderr) =
  $node->psql('postgres', "SELECT snowflake_advance('$id', force => true)");
like(
	$stderr,
	qr/WARNING:  the snowflake generator is now (?:600|599)\.\d+ s ahead of the clock/,
	'ten minutes ahead: a warning');
$node->append_conf('postgresql.conf', q{snowflake.max_ahead = '1s'});
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.max_ahead') = '1s'})
  or die 'reload has no effect';
($ret, $stdout, $stderr) =
  $node->psql('postgres', 'SELECT snowflake_advance(' . future('11 min') . ', force => true)');
like(
	$stderr,
	qr/until it is ahead by 1\.000 s \(snowflake\.max_ahead\)\.$/m,
	'which says what it waits for');
$node->append_conf('postgresql.conf', 'snowflake.max_ahead = 0');
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.max_ahead') = '0'})
  or die 'reload has no effect';
my $error = refused();
is($error->{sqlstate}, '55000', 'then minting is refused');
like(
	$error->{hint},
	qr/^The generator was advanced by snowflake_advance\(\)\. Minting goes on in \d+\.\d+ s\.$/,
	'for that reason, and it is enough to wait');
is(status($node, 'last_id IS NULL'), 't', 'snowflake_status does not show what was never minted');

# Durable: nothing but the function's return comes before the crash.
$id = future('20 min');
$node->psql('postgres', "SELECT snowflake_advance('$id', force => true)");
my $reserved = 'SELECT max(reserved_until) FROM snowflake_keeper.reservation';
my $until = $node->safe_psql('postgres', $reserved);
$node->stop('immediate');
start();
$node->poll_query_until('postgres',
	q{SELECT gate = 'closed: the clock is not believed' FROM snowflake_status})
  or die 'gate is not closed';
$error = refused();
like(
	$error->{message},
	qr/^the snowflake generator is .* ahead of the clock$/,
	'a crash right after: minting is refused still');
is($node->safe_psql('postgres', $reserved),
	$until, 'and what is refused is not taken further ahead by it');
step_clock($clock, 21 * 60_000);
cmp_ok(mint(), '>', $id, 'when the clock has passed it, the next ID is above');

# It does not return, and raises nothing, before that can be stored.
$id = future('10 min');
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
$error = error_of($node,
	"SET snowflake.max_wait = '300ms'; SELECT snowflake_advance('$id', force => true)");
is($error->{sqlstate}, '55000', 'the table is locked: an error');
like($error->{message}, qr/snowflake_advance\(\) did not finish within 300 ms/, 'that says so');
is($node->safe_psql('postgres', q{SELECT lead < interval '1 min' FROM snowflake_status}),
	't', 'the generator is not raised before that is stored');
$session->query_safe('COMMIT');
$session->quit;
$node->poll_query_until('postgres', q{SELECT lead > interval '9 min' FROM snowflake_status})
  or die "generator is not raised";
pass('but afterwards, although its caller has given up');
step_clock($clock, 11 * 60_000);
cmp_ok(mint(), '>', $id, 'when the clock has passed it, the next ID is above');
is( error_of($node,
		'SET snowflake.max_wait = 0; SELECT snowflake_advance(snowflake_upper_bound(clock_timestamp()))'
	)->{message},
	'',
	'where mints do not wait, an administrator does');
$id = future('1 min');
is( error_of(
		$node, "SET snowflake.max_wait = '1h'; SELECT snowflake_advance('$id', force => true)"
	)->{message},
	'',
	'where they wait for an hour, he does not give up at once');
step_clock($clock, 2 * 60_000);
cmp_ok(mint(), '>', $id, 'and it is done');

# Where nothing can be minted it fails, and nothing is left of it.
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = -1');
$node->reload;
$node->poll_query_until('postgres', q{SELECT gate ~ 'not set' FROM snowflake_status})
  or die "gate does not close";
$id = future('10 min');
$error = error_of($node, "SELECT snowflake_advance('$id', force => true)");
is($error->{sqlstate}, '55000', 'without a node ID: an error');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET snowflake.node_id');
$node->reload;
$node->poll_query_until('postgres', q{SELECT gate = 'open' FROM snowflake_status})
  or die "gate does not open";
is($node->safe_psql('postgres', q{SELECT lead < interval '1 min' FROM snowflake_status}),
	't', 'and with one again, the generator is where it was');
cmp_ok(mint(), '<', $id, 'so minting goes on below');

# Durable across a clean stop, too
$id = future('10 min');
$node->psql('postgres', "SELECT snowflake_advance('$id', force => true)");
$node->stop('fast');
start();
is(refused()->{sqlstate}, '55000', 'a clean stop right after: minting is refused still');
step_clock($clock, 11 * 60_000);
cmp_ok(mint(), '>', $id, 'when the clock has passed it, the next ID is above');

# While others mint.  (Not all of them fail at the same instant.)
my $minter = start_minter($node, 20_000);
$id = future('100 ms');
my $after =
  $node->safe_psql('postgres', "SELECT snowflake_advance('$id'); SELECT snowflake_next()");
$after =~ s/^\n//;
cmp_ok($after, '>', $id, 'while others mint: the next ID is above');
my $minted = finish_minter($minter);
is(scalar(@$minted), 20_000, 'nobody is disturbed');
is(disorder($minted), 0, 'and the IDs ascend');

# The end of the layout
foreach my $where (
	[ 'the last ID', q{SELECT snowflake_advance('9223372036854775807')} ],
	[
		'the last tick',
		q{SELECT snowflake_advance(snowflake_lower_bound(last_instant)) FROM snowflake_layout()}
	])
{
	my ($name, $sql) = @$where;

	$error = error_of($node, $sql);
	is($error->{sqlstate}, '22003', "to $name of the layout: an error");
	like($error->{detail}, qr/\b9223372036854775807\b/, 'that states the largest ID');
}
$newest = mint();
pass('and nothing has happened');

# Who may
$error = error_of($node, q{SET ROLE ordinary; SELECT snowflake_advance('1')});
is($error->{sqlstate}, '42501', 'an ordinary user may not advance');
$node->safe_psql('postgres',
	'GRANT EXECUTE ON FUNCTION snowflake_advance(bigint, boolean) TO ordinary');
($ret) = $node->psql('postgres', q{SET ROLE ordinary; SELECT snowflake_advance('1')});
is($ret, 0, 'unless granted');

# One row that is dated tomorrow
$node->safe_psql(
	'postgres', q{
	CREATE TABLE dated (id snowflake);
	INSERT INTO dated VALUES (snowflake_next()), (snowflake_lower_bound(clock_timestamp() + interval '1 day'))}
);
$error = error_of($node, 'SELECT snowflake_advance(max(id)) FROM dated');
is($error->{sqlstate}, '22023', 'more than a minute ahead: an error');
like($error->{hint}, qr/rows that are dated wrong/, 'which says what to look for');

# One tick before the end: that is possible, and the end of this server
$error = error_of($node,
	q{SELECT snowflake_advance(snowflake_lower_bound(last_instant - tick)) FROM snowflake_layout()}
);
is($error->{sqlstate}, '22023', 'far ahead: an error');
like($error->{hint}, qr/force => true/, 'which says how to do it all the same');

# Just after an extension, so that nothing else makes the keeper reserve more
$error = error_of(
	$node,
	q{DO $$
	BEGIN
		LOOP
			PERFORM snowflake_next();
			EXIT WHEN (SELECT reserved_until > clock_timestamp() + interval '800 ms' FROM snowflake_status);
		END LOOP;
	END $$;
	SELECT snowflake_advance(snowflake_lower_bound(last_instant - tick), force => true) FROM snowflake_layout()}
);
is($error->{sqlstate}, '', 'with force: to the last tick but one');
is( $node->safe_psql(
		'postgres',
		q{SELECT max(reserved_until) >= (SELECT last_instant - tick FROM snowflake_layout()) FROM snowflake_keeper.reservation}
	),
	't',
	'which is stored when the function returns');
is(refused()->{sqlstate}, '55000', 'then minting is refused');
$node->stop('fast');
start();
is(refused()->{sqlstate}, '55000', 'for good');

$node->stop;
done_testing();
