# A generator that is far ahead of the clock is taken back by giving up the
# order, under a node ID that has issued nothing there.  No ID is issued twice.

use SnowflakeTest;

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

# Give up the order; returns what the server says to that.
sub reset_order
{
	my ($node_id) = @_;
	my $said = said($node, "SELECT snowflake_restart_at_clock($node_id)");

	unlike($said, qr/ERROR/, "snowflake_restart_at_clock($node_id)");
	return $said;
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

# A session that has read the frontier where it was ahead, and a transaction that has tried to mint,
# and does so after
my $reader = $node->background_psql('postgres');
my $ahead = $reader->query_safe('SELECT snowflake_frontier()');
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

minted_now(2, 'the order is given up');

# It lasts: across a crash, and a clean stop.
foreach my $mode ('immediate', 'fast')
{
	restart_node($node, $mode);
	minted_now(2, "after stop -m $mode");
}

# The old node ID is still ahead.  Without an ID of it that changes nothing for the new one: the
# order stays given up, and no reader is told that IDs are that far.
change_node_id($node, 1);
is_refused('the old node ID is still a year ahead');
like(
	error_of($node,
		q{SELECT snowflake_advance(snowflake_upper_bound(now() + interval '1 hour'), force => true)}
	)->{message},
	qr/^the order of snowflakes with node ID 1 was given up$/,
	'it has passed no position for the new one, so snowflake_advance() does not say so');
my $told = frontier();
$node->append_conf('postgresql.conf', 'snowflake.node_id = 2');
restart_node($node, 'immediate');
cmp_ok(minted_now(2, 'the new one again'), '>', $told, 'and above what the frontier was');
is(query($node, 'SELECT in_order FROM snowflake_keeper.reservation WHERE node = 1'),
	'f', 'a row that was given up stays so');

# A transaction is open that has minted before the server was ahead, and one that has tried since.
my $early = $node->background_psql('postgres');
my $minted = $early->query_safe('BEGIN; SELECT snowflake_next()');
advance($node, '1 h');
change_node_id($node, 3);
$open = open_transaction();
reset_order(3);
minted_now(3, 'an hour ahead, once more');
cmp_ok(frontier(), '<', $minted, 'the frontier does not pass what is open from before');
$_->quit foreach $early, $open;

# A crash before the next reservation: the present node ID is in order again, so another
# one goes on above what is reserved for it.
set_conf($node, 'snowflake.reservation' => '1h', 'snowflake.max_jump' => '1h');
advance($node, '12 h');
change_node_id($node, 6);
reset_order(6);
is( query(
		$node,
		'SELECT node, in_order FROM snowflake_keeper.reservation WHERE node IN (3, 6) ORDER BY 1'),
	"3|f\n6|t",
	'only the order of the others is given up');

my $newest = minted_now(6, 'the order is given up');
$node->append_conf('postgresql.conf', "snowflake.node_id = 7\nsnowflake.max_ahead = '1d'");
restart_node($node, 'immediate');
cmp_ok(mint($node), '>', $newest, 'a crash, and another node ID: its IDs are larger');
is(status($node, q{lead BETWEEN interval '30 min' AND interval '90 min'}),
	't', 'by what was reserved, and not by what was given up');

# What snowflake_advance() was told counts before the keeper has come to it, though nothing is raised
# before it is stored; and it is heard then, although its caller has given up.
change_node_id($node, 8);
my $locker = lock_reservation($node);
refuses(
	$node,
	q{SET snowflake.max_wait = '300ms'; SELECT snowflake_advance(snowflake_upper_bound(now() + interval '4 hours'), force => true)},
	'55000',
	'an advance that cannot be stored',
	message => qr/^snowflake_advance\(\) did not finish within 300 ms$/);
is(status($node, q{lead < '2 hours'}), 't', 'raises nothing before that');
not_reset(8, 'below it, the order', $may_have_been);
$locker->quit;
wait_for_status($node, q{lead > '3 hours'});

# The table is dropped under a server whose order was given up, and re-created by hand:
# nobody knows any more what other node IDs had, so they have to wait for all that any had.  Not so
# the one that goes on, which has a row, even when the gate is opened for it again.
set_conf($node, 'snowflake.max_ahead' => 0, 'snowflake.reservation' => '1s');
change_node_id($node, 9);
reset_order(9);
minted_now(9, 'a last time');
my $offset = -s $node->logfile;
query($node, 'BEGIN; DROP EXTENSION snowflake_keeper; CREATE EXTENSION snowflake_keeper; COMMIT');
wait_for_query($node,
	q{SELECT snowflake_next() IS NOT NULL AND EXISTS (SELECT FROM snowflake_keeper.reservation)});
change_node_id($node, -1);
change_node_id($node, 9);
minted_now(9, 'reservation dropped: the node ID that goes on');

foreach my $node_id (1, 10)
{
	change_node_id($node, $node_id);
	is_refused("reservation dropped: node ID $node_id, without a row");
	not_reset($node_id, 'it', qr/./);
}
change_node_id($node, 9);
minted_now(9, 'the one that goes on');
is(log_count($node, qr/More is reserved than is needed/, $offset),
	0, 'what was reserved ahead of the clock does not count any more');

done_testing();
