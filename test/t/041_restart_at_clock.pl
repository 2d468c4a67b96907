# A generator that is far ahead of the clock for good is taken back by giving up
# the order, under a node ID that was never there.  No ID comes twice.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of log_count new_node status wait_for_mint wait_until);
use Test::More;

my $node = new_node(
	'main',
	node_id => 1,
	conf => q{
	snowflake.reservation = '1s'
	snowflake.max_wait = '1min'
	snowflake.max_ahead = 0
});
my %seen;

sub mint
{
	my ($count) = @_;
	my @ids = split /\n/,
	  $node->safe_psql('postgres',
		'SELECT snowflake_next() FROM generate_series(1, ' . ($count || 100) . ')');

	is(scalar(grep { $seen{$_}++ } @ids), 0, 'no ID comes twice');
	return $ids[-1];
}

sub refused
{
	return error_of($node, q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()});
}

sub reset_error
{
	my ($to) = @_;

	return error_of($node, "SET snowflake.max_wait = '2s'; SELECT snowflake_restart_at_clock($to)");
}

# What is minted is of now, and of that node ID.
sub is_of_now
{
	my ($id, $node_id, $name) = @_;

	is( $node->safe_psql(
			'postgres',
			"SELECT snowflake_node($id) = $node_id AND snowflake_timestamp($id) BETWEEN now() - interval '1 min' AND now() + interval '5 s'"
		),
		't', $name);
	return;
}

sub set_node_id
{
	my ($to, $is_closed) = @_;
	my $taken_up = $is_closed ? q{gate = 'closed: the clock is not believed'} : "node = $to";

	$node->append_conf('postgresql.conf', "snowflake.node_id = $to");
	$node->reload;
	$node->poll_query_until('postgres',
		"SELECT $taken_up AND current_setting('snowflake.node_id') = '$to' FROM snowflake_status")
	  or die "node ID does not change";
	return;
}

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
mint();
like(
	reset_error(1)->{message},
	qr/^the snowflake generator is not ahead of the clock/,
	'a generator that is not ahead is not reset');

# Another node ID is configured, and the keeper has not taken it up yet: neither of them counts.
{
	my $keeper_pid = status($node, 'keeper_pid');

	kill 'STOP', $keeper_pid;
	foreach my $to (2, 1)
	{
		$node->append_conf('postgresql.conf', "snowflake.node_id = $to");
		$node->reload;
		$node->poll_query_until('postgres', "SELECT current_setting('snowflake.node_id') = '$to'")
		  or die "reload has no effect";
		like(
			reset_error(1)->{message},
			qr/^snowflakes are not minted with node ID 1$/,
			'nor one whose node ID is about to change') if $to == 2;
	}
	kill 'CONT', $keeper_pid;
}
$node->safe_psql('postgres',
	q{SELECT snowflake_advance(snowflake_upper_bound(now() + interval '55 s'), force => true)});
like(
	reset_error(1)->{detail},
	qr/^It is ahead by [1-5]\d\.\d+ s\.$/,
	'nor one that is ahead by less than a minute, and the error says by how much');

# Poisoned by a year: IDs of it were handed out, and nothing goes any more.
$node->safe_psql('postgres',
	q{SELECT snowflake_advance(snowflake_upper_bound(now() + interval '365 days'), force => true)});
my $error = refused();
is($error->{sqlstate}, '55000', 'ahead by a year: minting is refused');
like($error->{hint}, qr/snowflake_restart_at_clock\(\)/, 'and the error says what the way out is');

# Not with the node ID that may have been there
$error = reset_error(1);
is($error->{sqlstate}, '55000', 'not with the same node ID');
like(
	$error->{message},
	qr/^snowflakes ahead of the clock may have been minted with node ID 1/,
	'for that reason');
like(
	reset_error(2)->{message},
	qr/^snowflakes are not minted with node ID 2/,
	'nor with one that is not configured');

# With another one
set_node_id(2);
is(refused()->{sqlstate}, '55000', 'another node ID alone is not enough');

# A session that has read the frontier where it was ahead, and does so after
my $reader = $node->background_psql('postgres');
my $ahead = $reader->query_safe('SELECT snowflake_frontier()');

# A transaction that has tried to mint before, and does so after.
my $open = $node->background_psql('postgres', on_error_stop => 0);
$open->query(q{SET snowflake.max_wait = '100ms'; BEGIN; SAVEPOINT a; SELECT snowflake_next()});
$open->query('ROLLBACK TO a');
my $reservations = status($node, 'reservations');
my ($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowflake_restart_at_clock(2)');
is($ret, 0, 'snowflake_restart_at_clock()') or diag($stderr);
cmp_ok(status($node, 'reservations'), '>', $reservations, 'which is counted as a reservation');
my $held = $open->query('SELECT snowflake_next()');
$node->safe_psql('postgres', 'SELECT snowflake_next()');
cmp_ok($node->safe_psql('postgres', 'SELECT snowflake_frontier()'),
	'<', $held, 'the frontier does not pass what is open from before');
cmp_ok($ahead, '>', $held, 'a frontier from before was ahead of that');
cmp_ok($reader->query_safe('SELECT snowflake_frontier()'),
	'<', $held, 'and is not kept by the session that has read it');
$reader->quit;
$open->query('COMMIT');
$open->quit;
cmp_ok($node->safe_psql('postgres', 'SELECT snowflake_frontier()'),
	'>', $held, 'until it is committed');

# A transaction that begins to mint after it holds back nothing that came before itself.
my $earlier = $node->safe_psql('postgres', 'SELECT snowflake_next()');
$open = $node->background_psql('postgres');
$open->query_safe('BEGIN; SELECT snowflake_next()');
cmp_ok(status($node, 'frontier'),
	'>=', $earlier, 'what begins to mint afterwards holds back only what it may mint');
$open->query_safe('COMMIT');
$open->quit;
like(
	$stderr,
	qr/NOTICE:  snowflakes follow the clock again, with node ID 2\nDETAIL:  They are smaller/,
	'says what it costs');
is_of_now(mint(), 2, 'IDs are of the right time, with the new node ID');

# It lasts: across a crash, and a clean stop.
foreach my $mode ('immediate', 'fast')
{
	$node->stop($mode);
	$node->start;
	is_of_now(mint(), 2, "after a restart (stop -m $mode), too");
}

# The old node ID is still ahead.  Without an ID of it that changes nothing for the new one: the
# order stays given up, and no reader is told that IDs are that far.
foreach my $restarted (0, 1)
{
	my $name = 'the old node ID, ' . ($restarted ? 'a crash, ' : '');

	set_node_id(1);
	is(refused()->{sqlstate}, '55000', "${name}is still a year ahead");
	like(
		error_of($node,
			q{SELECT snowflake_advance(snowflake_upper_bound(now() + interval '1 hour'), force => true)}
		)->{message},
		qr/^the order of snowflakes with node ID 1 was given up$/,
		"${name}has passed no position for the new one, so snowflake_advance() does not say so");
	my $told = $node->safe_psql('postgres', 'SELECT snowflake_frontier()');
	if ($restarted)
	{
		$node->stop('immediate');
		$node->append_conf('postgresql.conf', 'snowflake.node_id = 2');
		$node->start;
	}
	else
	{
		set_node_id(2);
	}
	is_of_now(my $id = mint(), 2, "${name}and the new one again: IDs are of the right time");
	cmp_ok($told, '<', $id, 'and above what the frontier was meanwhile');
	is( $node->safe_psql(
			'postgres', 'SELECT in_order FROM snowflake_keeper.reservation WHERE node = 1'),
		'f',
		'a row that was given up stays so');
}

# Nobody has asked for the frontier since.  The first who does has a snapshot that is not
# the newest.
$node->safe_psql('postgres', 'SELECT pg_current_xact_id()');
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT snowflake_frontier() IS NOT NULL');
$node->safe_psql('postgres', 'SELECT pg_current_xact_id()');
is($old->query_safe('FETCH c'),
	't', 'who asks first after it, by an older snapshot, finds a frontier');
$old->quit;
is_of_now(mint(), 2, 'until the next snowflake_restart_at_clock()');

# The table is dropped under a server whose order was given up, and re-created by hand:
# nobody knows any more what node 1 had, so it has to wait for all that any node ID had.
$node->safe_psql('postgres',
	'BEGIN; DROP EXTENSION snowflake_keeper; CREATE EXTENSION snowflake_keeper; COMMIT');
$node->poll_query_until('postgres',
	q{SELECT snowflake_next() IS NOT NULL AND EXISTS (SELECT FROM snowflake_keeper.reservation)})
  or die "no row is written";

# Not so the one that goes on, which has a row, even when the gate is opened for it again.
$node->append_conf('postgresql.conf', 'snowflake.node_id = -1');
$node->reload;
$node->poll_query_until('postgres', q{SELECT gate ~ 'not set' FROM snowflake_status})
  or die "gate does not close";
set_node_id(2);
is_of_now(mint(), 2, 'reservation dropped: the node ID that goes on is not ahead');
foreach my $restarted (0, 1)
{
	# a start whose clock is a year behind the node ID's newest ID does not open the gate
	if ($restarted)
	{
		$node->append_conf('postgresql.conf', 'snowflake.node_id = 1');
		$node->restart;
	}
	foreach my $node_id (1, 3)
	{
		set_node_id($node_id, $restarted);
		is(refused()->{sqlstate}, '55000',
			"reservation dropped: node ID $node_id, without a row, is ahead"
			  . ($restarted ? ' after a restart, too' : ''));
		is(reset_error($node_id)->{sqlstate}, '55000', 'and cannot be reset');
	}
	set_node_id(2);
	is_of_now(mint(), 2, 'while the one that goes on does');
}

# What was reserved ahead of the clock counts no more when the order is given up, so the gate is
# not closed for it.
is(log_count($node, qr/More is reserved than is needed/),
	0, 'what is reserved after a reset is what is needed');

# Who may
$node->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
is(error_of($node, 'SET ROLE ordinary; SELECT snowflake_restart_at_clock(2)')->{sqlstate},
	'42501', 'an ordinary user may not');

# Go on with another server, which is so far ahead, and has a second node ID.
sub take_server_ahead
{
	my ($name, $interval, $conf, $before) = @_;

	$node->stop;
	$node = new_node($name, node_id => 1, conf => "snowflake.max_ahead = 0\n$conf");
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	wait_for_mint($node);
	$before->() if defined $before;
	$node->safe_psql('postgres',
		"SELECT snowflake_advance(snowflake_upper_bound(now() + interval '$interval'), force => true)"
	);
	set_node_id(2);
	return;
}

# The same on a second server, where the table is dropped while the gate is closed.  A
# transaction is open that has minted before the server was ahead.
my ($early, $minted);
take_server_ahead(
	'second', '1 h',
	q{snowflake.max_wait = '1min'},
	sub {
		$early = $node->background_psql('postgres');
		$minted = $early->query_safe('BEGIN; SELECT snowflake_next()');
	});
$open = $node->background_psql('postgres', on_error_stop => 0);
$open->query(q{SET snowflake.max_wait = '100ms'; BEGIN; SAVEPOINT a; SELECT snowflake_next()});
$open->query('ROLLBACK TO a');
$node->safe_psql('postgres', 'SELECT snowflake_restart_at_clock(2)');
is_of_now($node->safe_psql('postgres', 'SELECT snowflake_next()'),
	2, 'a second server, an hour ahead, is reset');
cmp_ok($node->safe_psql('postgres', 'SELECT snowflake_frontier()'),
	'<', $minted, 'the frontier does not pass what was minted before it was ahead');
$early->query_safe('COMMIT');
$early->quit;

# Once more, from half an hour ahead, and to a node ID that was there meanwhile
$held = $open->query('SELECT snowflake_next()');
set_node_id(3);
wait_for_mint($node);
set_node_id(4);
$node->safe_psql('postgres',
	q{SELECT snowflake_advance(snowflake_upper_bound(now() + interval '30 min'), force => true)});
set_node_id(3);
$node->safe_psql('postgres', 'SELECT snowflake_restart_at_clock(3)');
is_of_now($node->safe_psql('postgres', 'SELECT snowflake_next()'), 3, 'and a second time');
cmp_ok($node->safe_psql('postgres', 'SELECT snowflake_frontier()'),
	'<', $held, 'the frontier does not pass what is open from before the first time');
$open->query('COMMIT');
$open->quit;

foreach my $again ('', '; CREATE EXTENSION snowflake_keeper')
{
	my $name = 'reservation dropped ' . ($again ? 'and re-created ' : '');

	$node->append_conf('postgresql.conf', 'snowflake.node_id = -1');
	$node->reload;
	$node->poll_query_until('postgres', q{SELECT gate ~ 'not set' FROM snowflake_status})
	  or die "gate does not close";
	$node->safe_psql('postgres', "DROP EXTENSION snowflake_keeper$again");
	$node->append_conf('postgresql.conf', 'snowflake.node_id = 1');
	$node->reload;
	$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.node_id') = '1'})
	  or die "reload has no effect";
	is(error_of($node, q{SET snowflake.max_wait = '3s'; SELECT snowflake_next()})->{sqlstate},
		'55000', "$name while the gate is closed: the old node ID is ahead");
	is(reset_error(1)->{sqlstate}, '55000', 'and cannot be reset');
	is( $node->safe_psql(
			'postgres',
			q{SELECT reserved_until > now() + interval '45 min' FROM snowflake_keeper.reservation WHERE node = -1}
		),
		't',
		'and so is any other, as far as IDs were before the first time');
}

# A node ID that was never there begins above what others have issued since, too.
my $further =
  $node->safe_psql('postgres', q{SELECT snowflake_upper_bound(now() + interval '3 hours')});
$node->safe_psql('postgres', "SELECT snowflake_advance($further, force => true)");
$node->stop;
$node->append_conf('postgresql.conf', "snowflake.node_id = 9\nsnowflake.max_ahead = '1d'");
$node->start;
wait_for_mint($node);
cmp_ok(mint(), '>', $further, 'a node ID that was never there: its IDs are larger than all');

# The table is dropped, and re-created by a clean stop, for the end that it stores: what other
# node IDs had is not known any more, so it may have been all that is ahead.
$node->safe_psql('postgres', 'DROP EXTENSION snowflake_keeper');
$node->stop;
$node->append_conf('postgresql.conf', 'snowflake.node_id = 10');
$node->start;
$node->poll_query_until('postgres', q{SELECT gate = 'open' AND node = 10 FROM snowflake_status})
  or die "gate does not open";
like(
	reset_error(10)->{message},
	qr/^snowflakes ahead of the clock may have been minted with node ID 10/,
	'reservation dropped before a clean stop: a node ID without a row cannot be reset');

# A crash before the next reservation: the present node ID is in order again, so another
# one goes on above what is reserved for it.
take_server_ahead('third', '12 h',
	"snowflake.reservation = '1h'\nsnowflake.max_jump = '1h'\nsnowflake.max_wait = '1min'");
{
	# its keeper is too slow for it
	my $keeper_pid = status($node, 'keeper_pid');

	kill 'STOP', $keeper_pid;
	like(
		error_of($node, q{SET snowflake.max_wait = '1500ms'; SELECT snowflake_restart_at_clock(2)})
		  ->{message},
		qr/^snowflake_restart_at_clock\(\) did not finish within 1500 ms$/,
		'it does not return before the keeper has done it');
	kill 'CONT', $keeper_pid;
}

# The keeper may have done it afterwards, or not.
wait_until(
	'the order is given up',
	sub {
		return status($node, q{lead < interval '1 min'}) eq 't'
		  || $node->psql('postgres', 'SELECT snowflake_restart_at_clock(2)') == 0;
	});
is( $node->safe_psql(
		'postgres', 'SELECT node, in_order FROM snowflake_keeper.reservation ORDER BY node'),
	"1|f\n2|t",
	'only the order of the others is given up');
is_of_now(my $newest = mint(), 2, 'the node ID mints');
$node->stop('immediate');
$node->append_conf('postgresql.conf', "snowflake.node_id = 3\nsnowflake.max_ahead = '1d'");
$node->start;
cmp_ok(mint(), '>', $newest, 'a crash, and another node ID: its IDs are larger');
is( $node->safe_psql(
		'postgres',
		q{SELECT lead BETWEEN interval '30 min' AND interval '90 min' FROM snowflake_status}),
	't',
	'by what was reserved, and not by what was given up');

# What snowflake_advance() was told counts before the keeper has come to it.
set_node_id(4);
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
is( error_of($node,
		q{SET snowflake.max_wait = '300ms'; SELECT snowflake_advance(snowflake_upper_bound(now() + interval '4 hours'), force => true)}
	)->{sqlstate},
	'55000',
	'an advance that cannot be stored');
like(
	reset_error(4)->{message},
	qr/^snowflakes ahead of the clock may have been minted with node ID 4/,
	'the order is not given up below it');

# Mints go on with what is reserved.  The keeper's failure is told all the same.
wait_until('the advice has the failure of the keeper', sub { status($node, 'advice') =~ /keeper/ });
$locker->quit;

$node->stop;
done_testing();
