# A server starts with another clock than before.  The clock is believed, and the first ID comes
# at once, above all others, unless the clock is further behind them than snowflake.max_ahead, or
# cannot be right.  A clock with which nothing was minted leaves nothing behind.

use SnowflakeClock;
use SnowflakeTest;

my $not_believed = 'the clock is not believed';
my $server = SnowflakeClock->new('main');
my $node = $server->node;

# How the server stops, what its clock is then moved by, and by how much IDs are ahead of it
# afterwards.  IDs are there at once: no time passes.
foreach my $case (
	[ 'fast', 0, 'a clean stop', 0, 100 ],
	[ 'fast', -10 * $minute, 'back by ten minutes', 10 * $minute, $second ],
	[ 'fast', 10 * $minute, 'and ahead again', 0, $second ],
	[ 'immediate', 0, 'a crash: above what had been reserved', 2_000, 1_100 ],
	[ 'immediate', 0, 'and another, which adds little more', 2_300, 1_300 ],
	[ 'immediate', -10 * $minute, 'back by ten minutes', 10 * $minute, 5 * $second ],
	[ 'immediate', 70 * $minute, 'ahead by an hour: IDs follow', 0, 5 * $second ])
{
	my ($mode, $ms, $what, $ahead, $nearly) = @$case;

	$server->restart($mode, $ms);
	is(status($node, q{concat_ws(' ', clock_state, clock_jump)}),
		'followed', "stop -m $mode, $what: the clock is believed");
	$server->mints("stop -m $mode, $what", $ahead, $nearly);
}

# A stop while a jump is coasted through.  Nothing of that is kept.
$server->wait_ms($minute);
$server->mints('the clock is right', 0);
$server->step($hour);
$server->mints('an hour ahead: coasted through', -$hour);
$server->restart('fast');
$server->mints('and still so after a clean stop: it is believed', 0);
$server->step(-$hour);
$server->mints('one that goes back to the truth is not believed at once, either', $hour);
is($server->clock_state, 'coasting', 'but coasted through');
$server->believe;
$server->wait_ms(2 * $hour);
$server->mints('the clock has caught up', 0);

# The server starts with a clock that is years ahead, and nobody mints.  Nothing is reserved by it.
$server->restart('fast', 9 * $year);
is(status($node, 'clock_state'), 'unproven', 'a start nine years ahead');
is( query(
		$node,
		q{SELECT max(reserved_until) < clock_timestamp() - interval '8 years' FROM snowflake_keeper.reservation}
	),
	't',
	'nothing is reserved by that');
$server->restart('fast', -9 * $year);
$server->mints('the clock is right: so is the first ID', 0);
$server->wait_ms($minute);

# The clock is set before the first ID: that counts, but for one that is more than a day past all there is.
$server->restart('immediate');
$server->step($hour);
is($server->clock_state, 'followed', 'set by an hour before the first ID: followed');
$server->step(2 * $day);
is($server->clock_state, 'coasting', 'one that is more than a day past all there is is not');
$server->step(-2 * $day);
look($node);
$server->mints('the first ID has the time of the setting', 0);

# A start more than a day after the newest ID: that may be right, and people are told, until an ID
# of another day shows it, or somebody accepts it.
my $told =
  qr/^The clock was \d+\.\d days past the newest snowflake when the server started, and is believed: correct it, or accept it with snowflake_accept_clock\(\)\.$/;
my $offset = -s $node->logfile;
$server->restart('fast', 7 * $day);
is( log_count(
		$node, qr/WARNING:  the clock is 7\.0 days past the newest snowflake, and is believed/,
		$offset),
	1,
	'a start a week after the newest ID: the log tells');
$server->mints('IDs follow', 0);
is(status($node, 'clock_state'), 'unproven', 'so does the status');
like(status($node, 'advice'), $told, 'and the advice');
$server->wait_ms(25 * $hour);
$server->mints('an ID of another day', 0);
is($server->clock_state . status($node, 'advice'), 'followed', 'ends it');

# Clocks that are not believed: by how much they are off, what the error says, of which the advice is
# the hint, and whether an administrator can believe them
my %hint = (
	another =>
	  qr/Correct the server's clock, or, if it is correct, configure another snowflake\.layout\./,
	ways =>
	  qr/Correct the server's clock\. If it is correct now, and was ahead earlier, believe it with snowflake_accept_clock\(\)\. To go on at once, .* snowflake\.max_ahead to at least \d+ s .*snowflake_restart_at_clock\(\).*/
);
foreach my $case (table(<<'END'))
-6 | six years behind | 55000: the snowflake generator is 2190\.0 days ahead of the clock | It may be ahead by 86400\.000 s \(snowflake\.max_ahead\)\. Minting starts when the clock has advanced by another 2189\.0 days\. | ways | 1
-40 | before the layout | 55000: the clock is before the epoch of the snowflake layout | The epoch is "[^"]+"\. | another | 0
150 | after the layout | 2200H: the snowflake layout has ended | Its last tick started at "[^"]+"\. | another | 0
END
{
	my ($years, $what, $message, $detail, $of, $may_be_right) = @$case;
	my $hint = $hint{$of};
	my $ms = $years * $year;
	my @words = (qr/ERROR:  $message\n/, qr/DETAIL:  $detail\n/, qr/HINT:  $hint\n/);

	$server->restart('immediate', $ms, $not_believed);
	$server->refuses_closed("a start $what", @words);
	like(status($node, 'advice'), qr/^$hint$/, 'the advice is the hint');
	is(status($node, 'refused_clock'), 1, 'it is counted');
	$server->wait_ms(5 * $minute);
	my $mint;
	if ($may_be_right)
	{
		$server->believe;
		wait_for_gate($node, 'open');
		$server->refuses(
			'an administrator believes it: then there are ways out',
			qr/ERROR:  $message\n/,
			qr/snowflake_restart_at_clock\(\)/);
	}
	else
	{
		refuses($node, 'SELECT snowflake_accept_clock()', '55000', 'nobody can believe it');
		$server->restart('immediate', 0, $not_believed);
		$mint = start_minter($node, 1, max_wait => '1h');
		wait_for_status($node, 'keeper_waits > 0');
	}
	$server->step(-$ms);
	$server->wait_ms(200);
	wait_for_gate($node, 'open');
	is(scalar(@{ finish_minter($mint) }), 1, 'it is set right: a mint has waited for that')
	  if defined $mint;
	$server->mints('and IDs are of now', 0, $minute);
	$server->wait_ms($minute);
}

$server->stop;

# A virgin server boots in 1986, with a layout that has that year: no ID is of it.
my $clock = new_clock('virgin');
my $virgin =
  new_node('virgin', conf => q{snowflake.layout = 'time:31 node:10 sequence:22 tick:1s epoch:0'});
step_clock($clock, -40 * $year);
start_with_clock($virgin, $clock);
query($virgin, 'CREATE EXTENSION snowflake');
refused($virgin, 0);
wait_for_gate($virgin, $not_believed);
is( refused($virgin, 0)->{message},
	'the clock is before the release of this version of snowflake',
	'a virgin server in 1986: the first mint is refused');
refuses(
	$virgin, 'SELECT snowflake_accept_clock()',
	'55000',
	'and that clock cannot be accepted',
	message => qr/before the release/);
$offset = -s $virgin->logfile;
step_clock($clock, 40 * $year);
wait_until('an ID is minted', sub { refused($virgin, 0)->{message} eq '' });
is(status($virgin, q{last_time > '2026-11-01'}), 't', 'it is set right: the first ID is of now');
is(log_count($virgin, qr/the clock/, $offset), 0, 'and the log has nothing of a clock');

# Its ticks are of a second: what is reserved for IDs that stand reaches into the next one.
my @ids = query($virgin, 'SELECT snowflake_next()');
foreach my $accident (-$hour, 0)
{
	$virgin->stop('immediate');
	step_clock($clock, $accident);
	start_with_clock($virgin, $clock);
	my ($rc, $output, $error) =
	  $virgin->psql('postgres', 'SELECT snowflake_next() FROM generate_series(1, 100)');
	is($error, '', "ticks of a second, a crash, and a clock that moves by $accident ms: IDs stand");
	push @ids, split /\n/, $output;
}
is(disorder(\@ids), 0, 'and ascend');

done_testing();
