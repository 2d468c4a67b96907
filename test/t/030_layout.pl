# A server that is configured with another layout than it has minted with does
# not mint until a superuser accepts that, because the IDs of two layouts can
# collide.  The warning says how existing IDs will decode.  And a layout ends: its last
# ID is minted, and then none, whatever the clock says.  Nothing wraps around.

use SnowflakeTest;
use Time::HiRes;

# The new one has an earlier epoch, so its IDs are larger.
my $old = 'time:41 node:10 sequence:12 epoch:2015-01-01T00:00:00Z';
my $new = 'time:41 node:9 sequence:13 epoch:2010-01-01T00:00:00Z';
my $node = minting_node('main', conf => "snowflake.layout = '$old'\nsnowflake.reservation = '1s'");
my @ids = mint($node);
my $canonical_old = status($node, 'layout');

my $clock;    # of its own only in the end

sub configure
{
	my ($layout, $gate) = @_;

	$node->append_conf('postgresql.conf', "snowflake.layout = '$layout'");
	restart_node($node, 'fast', $clock, $gate);
	return;
}

sub accept_layout { return said($node, 'SELECT snowflake_accept_layout()'); }

sub stored_layout
{
	return query($node, 'SELECT DISTINCT layout FROM snowflake_keeper.reservation');
}

# Another one.  The reason does not go away by waiting.
my $offset = -s $node->logfile;
configure($new, 'differs');
my $canonical_new = status($node, 'layout');
my $error = error_at_once($node);
is($error->{sqlstate}, '55000', 'another layout: minting is refused');
is( $error->{detail},
	qq{The configured layout is "$canonical_new", the stored one "$canonical_old".},
	'the error states both layouts');
like(
	$error->{hint},
	qr/snowflake_accept_layout\(\)\. Existing snowflakes will decode to other times unless only bits of time were added/,
	'and how to accept, and what that does to IDs that exist');
query($node, 'SELECT snowflake_accept_clock()');    # the keeper looks once more
is(log_count($node, qr/LOG:  snowflake gate stays closed: snowflake\.layout differs/, $offset),
	1, 'the log says so, once');

# Back to the old one, in other words, without having accepted
configure('time:41 node:10 sequence:12 tick:1ms epoch:1420070400000', 'open');
push @ids, mint($node);

# Accepted
configure($new, 'differs');
my $warning = accept_layout();
my ($example, $is_of, $would_be_of) = $warning =~
  /WARNING:  existing snowflakes now decode to other times\nDETAIL:  Snowflake (\d+) decodes to "(.*?)" in the stored layout, but to "(.*?)" in the configured one\.\nHINT:  Decode them with their own layout, for example snowflake_timestamp\(id, '\Q$canonical_old\E'\)\./;
is( query(
		$node, qq{
		SELECT abs(extract(epoch FROM '$is_of' - now())) < 60,
			abs(extract(epoch FROM snowflake_timestamp($example, '$old') - '$is_of')) < 1,
			abs(extract(epoch FROM snowflake_timestamp($example) - '$would_be_of')) < 1}),
	't|t|t',
	'accepted with a warning that old IDs get other times, and an example of now, which is so');
push @ids, mint($node);
is(stored_layout(), $canonical_new, 'the new layout is stored');
is( query(
		$node,
		"SELECT abs(extract(epoch FROM snowflake_timestamp('$ids[-1]', '$new') - now())) < 60"),
	't',
	'the ID has it');
like(accept_layout(), qr/NOTICE:  .*already in force/, 'accepting again does nothing');

# Going back is a change like any other.  IDs of the old layout are smaller
# than those of the new one, which is worth a warning.
configure($old, 'differs');
like(
	accept_layout(),
	qr/WARNING:  snowflakes of the configured layout are smaller/,
	'going back is accepted with a warning that the IDs become smaller');
cmp_ok(mint($node), '<', $ids[-1], 'which is so');
is(disorder(\@ids), 0, 'all IDs before ascend');

# Rows of other node IDs count: they are of the same server.  They are
# rewritten together.
change_node_id($node, 2);
mint($node);
$node->append_conf('postgresql.conf', 'snowflake.node_id = 3');
configure($new, 'differs');
is(error_at_once($node)->{sqlstate},
	'55000', 'another layout and another node ID: minting is refused all the same');
accept_layout();
is(stored_layout(), $canonical_new, 'accepted: all rows have the new layout');

# Layouts, each after the one before, and what the warning says.  With each, IDs decode to what
# went in.
my $other_parts = qr/WARNING:  existing snowflakes now decode to other nodes and sequence numbers/;
my $other_times =
  qr/WARNING:  existing snowflakes now decode to other times.*HINT:  Decode them with their own layout, for example snowflake_timestamp\(id, 'BEFORE'\)\./s;
my $day_ago = 'epoch:' . (time() - 86_400) . '000';
foreach my $case (
	[ 'sonyflake', $other_times, 'ticks of 10 ms, the sequence above the node' ],
	[
		'time:41 node:5 sequence:7 epoch:2025-01-01T00:00:00Z',
		$other_times, 'parts of other widths'
	],
	[ 'time:45 node:5 sequence:7 epoch:2025-01-01T00:00:00Z', qr/^$/, 'more bits of time' ],
	[
		'time:45 node:6 sequence:6 epoch:2025-01-01T00:00:00Z',
		qr/\A\S* ?${other_parts}.*
DETAIL:  Their times do not change\.
HINT:  Decode them with their own layout, for example snowflake_node\(id, 'BEFORE'\)\.\n*\z/,
		'bits moved below the time'
	],
	[
		"time:35 node:6 sequence:6 $day_ago",
		qr/but to a time after the end of the configured one\..*WARNING:  snowflakes of the configured layout are smaller/s,
		'fewer bits of time'
	])
{
	my ($layout, $expected, $what) = @$case;
	my $before = status($node, 'layout');
	my $id = mint($node);

	configure($layout, 'differs');
	$expected =~ s/BEFORE/\Q$before\E/;
	like(accept_layout(), qr/$expected/s, "$what: the warning");
	is( query(
			$node, q{
			SELECT count(DISTINCT id), bool_and(snowflake_node(id) = node),
				bool_and(abs(extract(epoch FROM (@@ id) - now())) < 60),
				bool_and(make_snowflake(@@ id, snowflake_node(id), snowflake_sequence(id)) = id)
			  FROM (SELECT snowflake_next() AS id FROM generate_series(1, 100)) AS minted, snowflake_status}
		),
		'100|t|t|t',
		"$what: IDs decode to what went in");
	next if $what ne 'more bits of time';
	cmp_ok(mint($node), '>', $id, "$what: the IDs ascend");
	is(query($node, "SELECT snowflake_timestamp('$id') = snowflake_timestamp('$id', '$before')"),
		't', 'and the old ones say what they said');
}

# A layout that begins after everything that was issued: minting starts at the clock.
wait_for_query($node,
	q{SELECT max(reserved_until) < clock_timestamp() FROM snowflake_keeper.reservation});
configure('time:41 node:10 sequence:12 epoch:' . int(1000 * Time::HiRes::time()), 'differs');
accept_layout();
foreach my $node_id (4, 3)
{
	change_node_id($node, $node_id);
	is(query($node, 'SELECT abs(extract(epoch FROM (@@ snowflake_next()) - now())) < 60'),
		't', "an epoch after all IDs: node ID $node_id mints IDs of now");
}

# One ends in ten minutes, after 2^33 ms; minting may run ahead of the clock that far.  16 IDs in a tick.
sub ended
{
	my ($what) = @_;

	foreach my $sql ('SELECT snowflake_next()', 'SELECT snowflake_next_batch(10)')
	{
		refuses(
			$node, $sql, '2200H', "$what: $sql",
			detail => qr/^Its last tick started at "\d{4}-\d\d-\d\d /,
			hint => qr/snowflake\.layout/);
	}
	return;
}

$node->append_conf('postgresql.conf', "snowflake.node_id = 5\nsnowflake.max_lead = 1h");
configure('time:33 node:3 sequence:4 epoch:' . ((time() + 600) * 1000 - 2**33), 'differs');
accept_layout();
wait_for_mint($node);
is(status($node, 'reserved_until <= layout_ends'), 't', 'no more is reserved than the layout has');

# The tick of the given ID counts as used, so there are two more.
query($node,
	'SELECT snowflake_advance(snowflake_lower_bound(last_instant - 2 * tick), true) FROM snowflake_layout()'
);
my $said = said(
	$node, q{
	DO $$
	DECLARE
		id snowflake;
		n integer := 0;
	BEGIN
		LOOP
			id := snowflake_next();
			n := n + 1;
		END LOOP;
	EXCEPTION WHEN OTHERS THEN
		RAISE NOTICE '% % %', n, id, SQLSTATE;
	END $$});
my $last = query($node, 'SELECT make_snowflake(last_instant, 5, 15) FROM snowflake_layout()');
like($said, qr/NOTICE:  32 $last 2200H/, 'every ID of the last two ticks is minted, then none');
is(status($node, 'last_id'), $last, 'snowflake_status shows the last ID');
like(
	status($node, 'advice'),
	qr/^The layout has ended: configure another snowflake\.layout/,
	'the advice says so, though the clock is before the end');
ended('after the last ID');
foreach my $mode ('fast', 'immediate')
{
	restart_node($node, $mode);
	ended("after stop -m $mode");
}

# One whose ticks are so short that those of the clock soon do not fit into a position: it
# lasts for 72 minutes, of which half an hour has passed.  After an idle time of 2 h 50 min
# what overflows would be in the middle of it, above what was minted.
$clock = new_clock('main');
$node->append_conf('postgresql.conf', 'snowflake.node_id = 0');
configure('time:32 sequence:31 tick:1us epoch:' . int((time() - 1800) * 1000), 'differs');
accept_layout();
wait_for_mint($node);
pass_days($clock, 10_200 / 86_400);
ended('the clock is far past the end');

done_testing();
