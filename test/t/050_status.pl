# snowflake_status and snowflake_stats agree with what has happened: mints of several sessions,
# waits, refusals, steps of the clock, a terminated keeper; and they show each role no more than it
# may know.  The log has a warning when the layout's limit or end is reached.

use SnowflakeTest;

# Few IDs in a tick, so that one session can mint at the limit.
my $clock = new_clock('main');
my $node = new_node(
	'main', conf => q{
	snowflake.layout = 'time:41 node:10 sequence:4 epoch:2024-01-01T00:00:00Z'
	snowflake.reservation = '1s'
	snowflake.max_jump = '2min'
	snowflake.max_ahead = 0
});
start_with_clock($node, $clock);
query($node, 'CREATE EXTENSION snowflake; CREATE EXTENSION snowflake_keeper');
$node->reload;
$node->wait_for_log(qr/LOG:  snowflake gate opened/);
is( query(
		$node, q{
	SELECT concat_ws(' ', gate, minted, last_id, last_time, frontier, frontier_lag, frontier_holder, advice)
	  FROM snowflake_status, snowflake_stats}),
	'open 0',
	'nothing was minted yet: no ID, no frontier, no advice');
wait_for_mint($node);

# These counters, since the last reset
sub counted
{
	my ($columns, $expected, $what) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(status($node, "concat_ws(' ', $columns)"), $expected, $what);
}

sub reset_counters { return query($node, 'SELECT snowflake_stats_reset()'); }

my $refusals =
  'refused_node, refused_layout, refused_keeper, refused_clock, refused_end, refused_standby';

# Healthy
counted('gate, advice', 'open', 'a healthy server is open and has no advice');
is( status(
		$node,
		q{last_time = snowflake_timestamp(last_id) AND last_time <= clock_timestamp() + interval '10 ms'
		  AND layout_ends = (snowflake_layout()).last_instant AND last_time < reserved_until}),
	't',
	'the times are those of the ID, the layout and the reservation');

# Minted
my $before = status($node, 'stats_reset');
query($node, 'SELECT snowflake_next()');
reset_counters();
counted(
	"minted, clock_waits, clock_wait_total, clock_wait_longest, keeper_waits, keeper_wait_total, keeper_wait_longest, reservations, clock_steps_back, clock_step_back_largest, clock_steps_ahead, clock_step_ahead_largest, $refusals",
	'0 0 00:00:00 00:00:00 0 00:00:00 00:00:00 0 0 00:00:00 0 00:00:00 0 0 0 0 0 0',
	'after a reset all is zero');
is(status($node, "stats_reset > '$before'"), 't', 'and the time of it is known');
finish_minter($_) foreach map { start_minter($node, 500) } 1 .. 4;
counted('minted', 2000, 'four sessions minted 500 each');
query($node, 'SELECT count(*) FROM (SELECT snowflake_next_batch(1000) LIMIT 10) b');
counted('minted', 2010, 'a batch counts the IDs that somebody fetched');

# Waits for the clock.  Time stands, or a busy machine would let the clock go past what is reserved.
# An hour has more microseconds than fit into an integer.
stop_time($clock);
look($node);
query($node, 'SELECT snowflake_next()');
reset_counters();
step_clock($clock, -30_000);
my $mint = start_minter($node, 1, max_wait => '1h');
wait_until('a session waits for the clock',
	sub { waits($node, 'client backend', 'SnowflakeClock') });
step_clock($clock, 28_500);
let_pass($clock, 1500);
finish_minter($mint);
is( status(
		$node, q{clock_waits = 1 AND clock_wait_total = clock_wait_longest
		  AND clock_wait_total BETWEEN '50 ms' AND '1 min' AND minted = 1 AND keeper_waits = 0}),
	't',
	'one mint waited for the clock') or diag(status($node, '*'));
counted('clock_steps_back, clock_step_back_largest', '1 00:00:30', 'because of one step');

# Refused because of the clock
wait_for_status($node, 'clock_steps_ahead = 1');
step_clock($clock, -60_000);
is(refused($node, 0)->{sqlstate}, '55000', 'the clock is a minute behind');
counted('clock_steps_back, clock_step_back_largest', '2 00:01:00', 'another step, a larger one');
counted($refusals, '0 0 0 1 0 0', 'a mint was refused because of the clock');
step_clock($clock, 60_000);
start_time($clock);
wait_for_mint($node);
is(status($node, 'advice'), '', 'no advice when the clock is right again');

# The keeper is terminated, and then kept from its table
reset_counters();
my $keeper = status($node, 'keeper_pid');
query($node, "SELECT pg_terminate_backend($keeper)");
wait_for_status($node, "keeper_pid <> $keeper AND gate = 'open'");
counted('minted', 0, 'a new keeper: the counters are kept');
my $locker = lock_reservation($node);
wait_until('the reservation has run out', sub { refused($node, '1s')->{sqlstate} eq '55000' });
counted(
	"$refusals, keeper_waits > 0",
	'0 0 1 0 0 0 t',
	'a mint waited for the keeper and was refused');
$mint = start_minter($node, 1, max_wait => '10min');
wait_until('a session waits for the keeper',
	sub { waits($node, 'client backend', 'SnowflakeKeeper') });

# as long as somebody asks; a keeper that is asked for nothing succeeds
wait_for_status($node,
	q{advice = 'The keeper''s last attempt failed with SQLSTATE 55P03. See the server log.'});
$locker->quit;
finish_minter($mint);
is( status(
		$node,
		q{keeper_wait_longest > '0.5 s' AND keeper_wait_total >= keeper_wait_longest AND advice IS NULL}
	),
	't',
	'it was served, and all is well; the longest wait is that of a mint, not of one of its sleeps');

# No node ID
reset_counters();
change_node_id($node, -1);
is(refused($node, 0)->{sqlstate}, '55000', 'no node ID');
counted($refusals, '1 0 0 0 0 0', 'which is counted');
change_node_id($node, 1);
wait_for_mint($node);

# What concerns whom
query(
	$node, q{
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	CREATE ROLE stranger LOGIN;
});
my $not_null = q{
	SELECT string_agg(key, ' ' ORDER BY position) FROM (SELECT * FROM snowflake_status, snowflake_stats) s,
		json_each_text(row_to_json(s)) WITH ORDINALITY AS j(key, value, position)
	 WHERE value IS NOT NULL};
my $public = 'gate node node_source layout layout_ends keeper_pid clock_state stats_reset';
my $all = query(
	$node, q{
	SELECT string_agg(attname, ' ' ORDER BY attrelid::regclass::text DESC, attnum) FROM pg_attribute
	 WHERE attnum > 0 AND attrelid IN ('snowflake_status'::regclass, 'snowflake_stats'::regclass)
		AND attname NOT IN ('advice', 'clock_jump', 'standby_wait', 'frontier_holder', 'lease_until',
			'lease_renewed', 'coordinator')});
is(query($node, $not_null, user => 'stranger'),
	$public, 'everybody sees what tells nothing of others');
is(query($node, $not_null, user => 'watcher'), $all, 'pg_monitor sees all that there is');

# At the limit of the layout for ten reservations' time
my $offset = -s $node->logfile;
my $at_limit = qr/WARNING:  snowflakes have been minted at the limit of the layout for 1\d\.\d+ s/;
stop_time($clock);
my $waits = status($node, 'clock_waits');
my $flood = start_statement($node,
	"SET application_name = 'flood'; SELECT count(snowflake_next()) FROM generate_series(1, 10000000)"
);
for (my $passed = 0; $passed < 30_000 && !log_count($node, $at_limit, $offset); $passed += 250)
{
	wait_for_status($node, "clock_waits > $waits");
	$waits = status($node, 'clock_waits');
	let_pass($clock, 250);
}
is(log_count($node, $at_limit, $offset), 1, 'minting at the limit for long gives a warning');
query($node,
	q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flood'});
eval { $flood->quit };
start_time($clock);

# A layout that ends this year, and the day after
$offset = -s $node->logfile;
my $epoch = (time() - 86_400) * 1000;
$node->append_conf('postgresql.conf',
	"snowflake.layout = 'time:32 node:10 sequence:12 epoch:$epoch'");
restart_node($node, 'fast', $clock, 'closed: snowflake.layout differs from the stored layout');
is(refused($node, 0)->{sqlstate}, '55000', 'another layout');
counted($refusals, '0 1 0 0 0 0', 'is counted');
query($node, 'SELECT snowflake_accept_layout()');
wait_for_mint($node);
my $ends = qr/WARNING:  the snowflake layout ends at "[^"]*", in 4[789] days/;
wait_until('the log has the end', sub { log_count($node, $ends, $offset) > 0 });
extend($node) foreach 1 .. 2;
is(log_count($node, $ends, $offset),
	1, 'the end of the layout is announced at the start, and not at each look');
like(status($node, 'advice'), qr/^Plan for another snowflake\.layout/, 'and in the advice');

pass_days($clock, 50);
is(refused($node)->{sqlstate}, '2200H', 'it has ended');
counted($refusals, '0 1 0 0 1 0', 'which is counted');

done_testing();
