# A generator that is far ahead of the clock is taken back by giving up the
# order, under a node ID that has issued nothing there.  No ID is issued twice.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  advance change_node_id error_of hold_keeper lock_reservation log_count mint mint_many
  minting_node query refused refuses restart_node set_conf status wait_for_mint wait_for_query
  wait_for_status wait_until
);
use Test::More;

my $node = minting_node(
	'main', conf => q{
	snowflake.reservation = '1s'
	snowflake.max_wait = '1min'
	snowflake.max_ahead = 0
});
my %seen;

# Mint some, none of which was there before, with that node ID, and of now.
sub minted_now
{
	my ($node_id, $name) = @_;
	my @ids = mint_many($node, 100);

	is(scalar(grep { $seen{$_}++ } @ids), 0, 'no ID comes twice');
	is( query(
			$node,
			"SELECT snowflake_node($ids[-1]) = $node_id AND snowflake_timestamp($ids[-1]) BETWEEN now() - interval '1 min' AND now() + interval '5 s'"
		),
		't',
		"$name: IDs of node ID $node_id are of now");
	return $ids[-1];
}

sub is_refused
{
	my ($what) = @_;

	return is(refused($node)->{sqlstate}, '55000', "$what: minting is refused");
}

# snowflake_restart_at_clock() is refused, with that message.
sub not_reset
{
	my ($node_id, $what, $message, %words) = @_;

	return refuses(
		$node, "SET snowflake.max_wait = '2s'; SELECT snowflake_restart_at_clock($node_id)",
		'55000', "$what is not reset",
		message => $message,
		%words);
}
my $may_have_been = qr/^snowflakes ahead of the clock may have been minted with node ID/;
my $other_node = qr/^snowflakes are not minted with node ID/;

# Give up the order; returns what psql shows of that.
sub reset_order
{
	my ($node_id) = @_;
	my ($rc, undef, $stderr) =
	  $node->psql('postgres', "SELECT snowflake_restart_at_clock($node_id)");

	is($rc, 0, "snowflake_restart_at_clock($node_id)") or diag($stderr);
	return $stderr;
}

sub frontier { return query($node, 'SELECT snowflake_frontier()'); }

# A transaction that has tried to mint, which was refused
sub open_transaction
{
	my $open = $node->background_psql('postgres', on_error_stop => 0);

	$open->query(q{SET snowflake.max_wait = '100ms'; BEGIN; SAVEPOINT a; SELECT snowflake_next()});
	$open->query('ROLLBACK TO a');
	return $open;
}

minted_now(1, 'at first');
not_reset(
	1,
	'a generator that is not ahead',
	qr/^the snowflake generator is not ahead of the clock/);

# Another node ID is configured, and the keeper has not taken it up yet: neither of them counts.
my $keeper = hold_keeper($node);
set_conf($node, 'snowflake.node_id' => 2);
not_reset(1, 'one whose node ID is about to change', $other_node);
set_conf($node, 'snowflake.node_id' => 1);
kill 'CONT', $keeper;
advance($node, '55 s');
not_reset(
	1, 'one that is ahead by less than a minute',
	qr/./, detail => qr/^It is ahead by [1-5]\d\.\d+ s\.$/);

# Poisoned by a year: nothing goes any more, with the node ID that may have been there.
advance($node, '365 days');
like(
	refused($node)->{hint},
	qr/snowflake_restart_at_clock\(\)/,
	'ahead by a year: the error says what the way out is');
not_reset(1, 'the same node ID', $may_have_been);
not_reset(2, 'one that is not configured', $other_node);

# With another one
change_node_id($node, 2);
is_refused('another node ID alone is not enough');

# A session that has read the frontier where it was ahead, and does so after
my $reader = $node->background_psql('postgres');
my $ahead = $reader->query_safe('SELECT snowflake_frontier()');

# A transaction that has tried to mint before, and does so after.
my $open = open_transaction();
my $reservations = status($node, 'reservations');
like(
	reset_order(2),
	qr/NOTICE:  snowflakes follow the clock again, with node ID 2\nDETAIL:  They are smaller/,
	'it says what it costs');
cmp_ok(status($node, 'reservations'), '>', $reservations, 'it is counted as a reservation');
my $held = $open->query('SELECT snowflake_next()');
mint($node);
cmp_ok(frontier(), '<', $held, 'the frontier does not pass what is open from before');
cmp_ok($ahead, '>', $held, 'a frontier from before was ahead of that');
cmp_ok($reader->query_safe('SELECT snowflake_frontier()'),
	'<', $held, 'and is not kept by the session that has read it');
$reader->quit;
$open->query('COMMIT');
$open->quit;
cmp_ok(frontier(), '>', $held, 'until it is committed');

# A transaction that begins to mint after it holds back nothing that came before itself.
my $earlier = mint($node);
$open = $node->background_psql('postgres');
$open->query_safe('BEGIN; SELECT snowflake_next()');
cmp_ok(status($node, 'frontier'),
	'>=', $earlier, 'what begins to mint afterwards holds back only what it may mint');
$open->quit;
minted_now(2, 'the order is given up');

# It lasts: across a crash, and a clean stop.
foreach my $mode ('immediate', 'fast')
{
	restart_node($node, $mode);
	minted_now(2, "after stop -m $mode");
}

# The old node ID is still ahead.  Without an ID of it that changes nothing for the new one: the
# order stays given up, and no reader is told that IDs are that far.
foreach my $crash (0, 1)
{
	change_node_id($node, 1);
	is_refused('the old node ID is still a year ahead');
	like(
		error_of($node,
			q{SELECT snowflake_advance(snowflake_upper_bound(now() + interval '1 hour'), force => true)}
		)->{message},
		qr/^the order of snowflakes with node ID 1 was given up$/,
		'it has passed no position for the new one, so snowflake_advance() does not say so');
	my $told = frontier();
	if ($crash)
	{
		$node->append_conf('postgresql.conf', 'snowflake.node_id = 2');
		restart_node($node, 'immediate');
	}
	else
	{
		change_node_id($node, 2);
	}
	cmp_ok(minted_now(2, 'the new one again'), '>', $told, 'and above what the frontier was');
	is(query($node, 'SELECT in_order FROM snowflake_keeper.reservation WHERE node = 1'),
		'f', 'a row that was given up stays so');
}

# Nobody has asked for the frontier since.  The first who does has a snapshot that is not
# the newest.
query($node, 'SELECT pg_current_xact_id()');
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT snowflake_frontier() IS NOT NULL');
query($node, 'SELECT pg_current_xact_id()');
is($old->query_safe('FETCH c'),
	't', 'who asks first after it, by an older snapshot, finds a frontier');
$old->quit;

# The table is dropped under a server whose order was given up, and re-created by hand:
# nobody knows any more what node 1 had, so it has to wait for all that any node ID had.  Not so the
# one that goes on, which has a row, even when the gate is opened for it again.
query($node, 'BEGIN; DROP EXTENSION snowflake_keeper; CREATE EXTENSION snowflake_keeper; COMMIT');
wait_for_query($node,
	q{SELECT snowflake_next() IS NOT NULL AND EXISTS (SELECT FROM snowflake_keeper.reservation)});
change_node_id($node, -1);
change_node_id($node, 2);
minted_now(2, 'reservation dropped: the node ID that goes on');
foreach my $restarted (0, 1)
{
	# a start whose clock is a year behind the node ID's newest ID does not open the gate
	if ($restarted)
	{
		$node->append_conf('postgresql.conf', 'snowflake.node_id = 1');
		restart_node($node, 'fast', undef, 'the clock is not believed');
	}
	foreach my $node_id (1, 3)
	{
		$restarted
		  ? set_conf($node, 'snowflake.node_id' => $node_id)
		  : change_node_id($node, $node_id);
		is_refused("reservation dropped: node ID $node_id, without a row");
		not_reset($node_id, 'it', qr/./);
	}
	change_node_id($node, 2);
	minted_now(2, 'the one that goes on');
}
is(log_count($node, qr/More is reserved than is needed/),
	0, 'what was reserved ahead of the clock does not count any more');
refuses($node, 'CREATE ROLE ordinary; SET ROLE ordinary; SELECT snowflake_restart_at_clock(2)',
	'42501', 'an ordinary user may not');

# Go on with another server, which is so far ahead, and has a second node ID.
sub take_server_ahead
{
	my ($name, $interval, $conf, $before) = @_;

	$node->stop('immediate');
	%seen = ();
	$node =
	  minting_node($name, conf => "snowflake.max_ahead = 0\nsnowflake.max_wait = '1min'\n$conf");
	$before->() if defined $before;
	advance($node, $interval);
	change_node_id($node, 2);
	return;
}

# A transaction is open that has minted before the server was ahead, and one that has tried since.
my ($early, $minted);
take_server_ahead(
	'second', '1 h', '',
	sub {
		$early = $node->background_psql('postgres');
		$minted = $early->query_safe('BEGIN; SELECT snowflake_next()');
	});
$open = open_transaction();

# A mint asks for the gate, which reserves time, and gives up.  That does not count as an ID of the node
# ID: when it is left and taken again, it is still one that was never there.
set_conf($node, 'snowflake.max_ahead' => '1d');
change_node_id($node, -1);
$reservations = status($node, 'reservations');
$keeper = hold_keeper($node);
set_conf($node, 'snowflake.node_id' => 2);
is_refused('a mint asks for the gate');
kill 'CONT', $keeper;
wait_for_status($node, "gate = 'open' AND node = 2 AND reservations > $reservations");
change_node_id($node, -1);
set_conf($node, 'snowflake.max_ahead' => 0);
change_node_id($node, 2);
reset_order(2);
minted_now(2, 'a second server, an hour ahead');
cmp_ok(frontier(), '<', $minted, 'the frontier does not pass what is open from before');
$early->quit;

# Once more, from half an hour ahead, and to a node ID that was there meanwhile
$held = $open->query('SELECT snowflake_next()');
change_node_id($node, 3);
wait_for_mint($node);
change_node_id($node, 4);
advance($node, '30 min');
change_node_id($node, 3);
reset_order(3);
minted_now(3, 'a second time');
cmp_ok(frontier(), '<', $held, 'the frontier does not pass what is open from the first time');
$open->quit;

# The table is dropped while the gate is closed, and re-created or not.
foreach my $again ('', '; CREATE EXTENSION snowflake_keeper')
{
	change_node_id($node, -1);
	query($node, "DROP EXTENSION snowflake_keeper$again");
	set_conf($node, 'snowflake.node_id' => 1);
	is(refused($node, '3s')->{sqlstate},
		'55000', "reservation dropped$again: the old node ID is ahead");
	not_reset(1, 'it', qr/./);
	is( query(
			$node,
			q{SELECT reserved_until > now() + interval '45 min' FROM snowflake_keeper.reservation WHERE node = -1}
		),
		't',
		'and so is any other, as far as IDs were before the first time');
}

# A node ID that was never there begins above what others have issued since, too.
my $further = advance($node, '3 hours');
$node->append_conf('postgresql.conf', "snowflake.node_id = 9\nsnowflake.max_ahead = '1d'");
restart_node($node, 'fast');
cmp_ok(mint($node), '>', $further, 'a node ID that was never there: its IDs are larger than all');

# The table is dropped, and re-created by a clean stop, for the end that it stores: what other
# node IDs had is not known any more, so it may have been all that is ahead.
query($node, 'DROP EXTENSION snowflake_keeper');
$node->append_conf('postgresql.conf', 'snowflake.node_id = 10');
restart_node($node, 'fast');
not_reset(10, 'reservation dropped before a clean stop: a node ID without a row', $may_have_been);

# A keeper that is too slow for it: it may have done it afterwards, or not.
take_server_ahead('third', '12 h', "snowflake.reservation = '1h'\nsnowflake.max_jump = '1h'");
$keeper = hold_keeper($node);
refuses(
	$node,
	q{SET snowflake.max_wait = '500ms'; SELECT snowflake_restart_at_clock(2)},
	'55000',
	'it does not return before the keeper has done it',
	message => qr/^snowflake_restart_at_clock\(\) did not finish within 500 ms$/);
kill 'CONT', $keeper;
wait_until(
	'the order is given up',
	sub {
		return status($node, q{lead < interval '1 min'}) eq 't'
		  || $node->psql('postgres', 'SELECT snowflake_restart_at_clock(2)') == 0;
	});
is(query($node, 'SELECT node, in_order FROM snowflake_keeper.reservation ORDER BY node'),
	"1|f\n2|t", 'only the order of the others is given up');

# A crash before the next reservation: the present node ID is in order again, so another
# one goes on above what is reserved for it.
my $newest = minted_now(2, 'the order is given up');
$node->append_conf('postgresql.conf', "snowflake.node_id = 3\nsnowflake.max_ahead = '1d'");
restart_node($node, 'immediate');
cmp_ok(mint($node), '>', $newest, 'a crash, and another node ID: its IDs are larger');
is(status($node, q{lead BETWEEN interval '30 min' AND interval '90 min'}),
	't', 'by what was reserved, and not by what was given up');

# What snowflake_advance() was told counts before the keeper has come to it.
change_node_id($node, 4);
my $locker = lock_reservation($node);
refuses(
	$node,
	q{SET snowflake.max_wait = '300ms'; SELECT snowflake_advance(snowflake_upper_bound(now() + interval '4 hours'), force => true)},
	'55000',
	'an advance that cannot be stored');
not_reset(4, 'below it, the order', $may_have_been);

# Mints go on with what is reserved.  The keeper's failure is told all the same.
wait_for_status($node, q{advice ~ 'keeper'});
$locker->quit;

$node->stop('immediate');
done_testing();
