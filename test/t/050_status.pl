# snowflake_status agrees with what has happened: mints of several sessions,
# waits, refusals, steps of the clock, a keeper that was killed; it says what to
# do, and tells each user no more than he may know.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(
  error_of finish_minter let_pass log_count new_clock new_node pass_days set_clock
  start_minter start_time start_with_clock status step_clock stop_time wait_for_mint wait_until
);
use Test::More;

# Few IDs in a tick, so that one session can mint at the limit.
my $node = new_node(
	'main', conf => q{
	snowflake.layout = 'time:41 node:10 sequence:4 epoch:2024-01-01T00:00:00Z'
	snowflake.reservation = '1s'
	snowflake.max_jump = '1s'
	snowflake.jump_patience = 0
	snowflake.max_ahead = 0
});
my $clock = new_clock('main');
start_with_clock($node, $clock);

# Before the first mint
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE EXTENSION snowflake_keeper');
$node->reload;
$node->wait_for_log(qr/LOG:  snowflake gate opened/);
my (undef, $output, $errors) = $node->psql(
	'postgres', q{
	SELECT concat_ws(' ', gate, minted, last_id, last_time, frontier, frontier_lag, frontier_holder, advice)
	  FROM snowflake_status, snowflake_stats});
is("$output$errors", 'open 0', 'nothing was minted yet: no ID, no frontier, no advice');
wait_for_mint($node);

sub reset_counters
{
	$node->safe_psql('postgres', 'SELECT snowflake_stats_reset()');
	return;
}

sub refused
{
	my ($sql) = @_;

	return error_of($node, $sql)->{sqlstate};
}

# How a session of backend_type waits.  Only 17 and later have names for it.
sub waits_for
{
	my ($backend_type, $name) = @_;

	return $node->poll_query_until(
		'postgres', qq{
		SELECT count(*) > 0 FROM pg_stat_activity
		 WHERE backend_type = '$backend_type' AND wait_event_type = 'Extension'
		   AND wait_event = CASE WHEN current_setting('server_version_num')::int >= 170000
				THEN '$name' ELSE 'Extension' END});
}

my $refusals =
  q{concat_ws(' ', refused_node, refused_layout, refused_keeper, refused_clock, refused_end, refused_standby)};

# Healthy
is(status($node, 'concat(gate, advice)'), 'open', 'a healthy server is open and has no advice');
is( status(
		$node,
		q{last_time = snowflake_timestamp(last_id) AND last_time <= clock_timestamp() + interval '10 ms'
		  AND layout_ends = (snowflake_layout()).last_instant AND last_time < reserved_until}
	),
	't',
	'the times are those of the ID, the layout and the reservation');
ok(waits_for('snowflake keeper', 'SnowflakeMain'), 'the keeper is idle');

# Minted
my $before = status($node, 'stats_reset');
$node->safe_psql('postgres', 'SELECT snowflake_next()');
reset_counters();
is( status(
		$node,
		"concat_ws(' ', minted, clock_waits, clock_wait_total, clock_wait_longest, keeper_waits, keeper_wait_total, keeper_wait_longest, reservations, clock_steps_back, clock_step_back_largest, clock_steps_ahead, clock_step_ahead_largest, $refusals)"
	),
	'0 0 00:00:00 00:00:00 0 00:00:00 00:00:00 0 0 00:00:00 0 00:00:00 0 0 0 0 0 0',
	'after a reset all is zero');
is(status($node, "stats_reset > '$before'"), 't', 'and the time of it is known');

my @minters =
  map { start_minter($node, 500) } 1 .. 4;
finish_minter($_) foreach @minters;
is(status($node, 'minted'), 2000, 'four sessions minted 500 each');
$node->safe_psql('postgres', 'SELECT count(*) FROM snowflake_next_batch(5000)');
is(status($node, 'minted'), 7000, 'a batch counts its IDs');
$node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT snowflake_next_batch(1000) LIMIT 10) b');
is(status($node, 'minted'), 7010, 'but not those that nobody fetched');

# Waits for the clock, which is behind by less than max_wait, until that is seen.  Time stands,
# or a busy machine would let the clock go past what is reserved.  An hour has more microseconds
# than fit into an integer.
stop_time($clock);
$node->safe_psql('postgres', 'SELECT snowflake_next()');
reset_counters();
step_clock($clock, -30_000);
my $waiting = $node->background_psql('postgres');
$waiting->query_until(qr/go/,
	"\\echo go\nSET snowflake.max_wait = '1h'; SELECT snowflake_next();\n");
ok(waits_for('client backend', 'SnowflakeClock'), 'a session waits for the clock');
step_clock($clock, 28_500);
let_pass($clock, 1500);
$waiting->quit;
start_time($clock);
is( status(
		$node, q{clock_waits = 1 AND clock_wait_total = clock_wait_longest
		  AND clock_wait_total BETWEEN '50 ms' AND '1 min' AND minted = 1 AND keeper_waits = 0}
	),
	't',
	'one mint waited for the clock') or diag(status($node, '*'));
is(status($node, q{clock_steps_back = 1 AND clock_step_back_largest BETWEEN '29 s' AND '31 s'}),
	't', 'because of one step of the clock')
  or diag(status($node, '*'));

# Refused because of the clock, with advice.  The keeper is to have seen the clock before
# it goes back again, or both steps are one to it.
$node->poll_query_until('postgres', 'SELECT clock_steps_ahead = 1 FROM snowflake_stats')
  or die "keeper does not see the step ahead";
step_clock($clock, -60_000);
is(refused('SELECT snowflake_next()'), '55000', 'the clock is a minute behind');
like(
	status($node, 'advice'),
	qr/^The clock went back by [56]\d\.\d{3} s, \d+\.\d{3} m?s ago\. Check the server's clock\. Minting goes on when it has advanced by another [56]\d\.\d{3} s\.$/,
	'the advice says so');
$node->poll_query_until('postgres',
	q{SELECT clock_steps_back = 2 AND clock_step_back_largest BETWEEN '59 s' AND '61 s' FROM snowflake_stats}
) or die "keeper does not see the step";
step_clock($clock, -1500);
$node->poll_query_until('postgres', 'SELECT clock_steps_back = 3 FROM snowflake_stats')
  or die "keeper does not see the smaller step";
is(status($node, q{clock_step_back_largest BETWEEN '59 s' AND '61 s'}),
	't', 'a smaller step is not the largest');
is(status($node, $refusals), '0 0 0 1 0 0', 'one mint was refused because of the clock');
ok(log_count($node, qr/WARNING:  the clock went back by (?:59\.9|60\.)\d+ s/) == 1,
	'and the log has a warning with the size of the step');
set_clock($clock, 0);
wait_for_mint($node);
is(status($node, 'advice'), '', 'no advice when the clock is right again');

# The keeper is killed, and then kept from its table
reset_counters();
my $keeper_pid = status($node, 'keeper_pid');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($keeper_pid)");
$node->poll_query_until('postgres',
	"SELECT keeper_pid <> $keeper_pid AND gate = 'open' FROM snowflake_status")
  or die "no new keeper";
is(status($node, 'minted'), '0', 'a new keeper: the counters are kept');

my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
$node->poll_query_until(
	'postgres', q{
	SELECT reserved_until < clock_timestamp() FROM snowflake_status,
		LATERAL (SELECT count(snowflake_next()) FROM generate_series(1, 10)
				 WHERE reserved_until > clock_timestamp() + interval '10 ms') m}
) or die "reservation does not run out";
is(refused(q{SET snowflake.max_wait = '1s'; SELECT snowflake_next()}),
	'55000', 'the reservation has run out');
is( status($node, "$refusals || ' ' || (keeper_waits > 0)::text"),
	'0 0 1 0 0 0 true',
	'a mint waited for the keeper and was refused');
$waiting = $node->background_psql('postgres');
$waiting->query_until(qr/go/,
	"\\echo go\nSET snowflake.max_wait = '10min'; SELECT snowflake_next();\n");
ok(waits_for('client backend', 'SnowflakeKeeper'), 'a session waits for the keeper');

# as long as somebody asks; a keeper that is asked for nothing succeeds
ok( $node->poll_query_until(
		'postgres',
		q{SELECT advice = 'The keeper''s last attempt failed with SQLSTATE 55P03. See the server log.' FROM snowflake_status}
	),
	'the advice is to look into the log');
$locker->quit;
$waiting->quit;
is( status(
		$node,
		q{keeper_wait_longest > '0.5 s' AND keeper_wait_total >= keeper_wait_longest AND advice IS NULL}
	),
	't',
	'it was served, and all is well; the longest wait is that of a mint, not of one of its sleeps');

# No node ID
reset_counters();
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = -1');
$node->reload;
$node->poll_query_until('postgres',
	q{SELECT gate = 'closed: the node ID is not set' FROM snowflake_status})
  or die "gate does not close";
is(refused(q{SET snowflake.max_wait = 0; SELECT snowflake_next()}), '55000', 'no node ID');
is(status($node, $refusals), '1 0 0 0 0 0', 'which is counted');
like(status($node, 'advice'), qr/^Set snowflake\.node_id in this server/, 'and explained');

# One that is too large gets past the start only
$node->safe_psql('postgres', 'ALTER SYSTEM RESET snowflake.node_id');
$node->stop;
$node->append_conf('postgresql.conf', 'snowflake.node_id = 1024');
start_with_clock($node, $clock);
$node->poll_query_until('postgres',
	q{SELECT gate = 'closed: the node ID is too large for the layout' FROM snowflake_status})
  or die "gate is not closed";
is( status($node, 'advice'),
	'Set snowflake.node_id to at most 1023, and reload the configuration.',
	'a node ID that is too large');
is(refused('SELECT snowflake_next()'), '55000', 'with which nothing is minted');
is(status($node, $refusals), '1 0 0 0 0 0', 'which is counted as the node ID, too');
$node->append_conf('postgresql.conf', 'snowflake.node_id = 1');
$node->reload;
wait_for_mint($node);

# What whom concerns
$node->safe_psql(
	'postgres', q{
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	CREATE ROLE reader LOGIN IN ROLE pg_read_all_stats;
	CREATE ROLE stranger LOGIN;
	CREATE ROLE apart LOGIN NOINHERIT IN ROLE pg_read_all_stats;
});
my @all = split /\|/, $node->safe_psql(
	'postgres', q{
	SELECT string_agg(attname, '|' ORDER BY attrelid::regclass::text DESC, attnum) FROM pg_attribute
	 WHERE attnum > 0 AND attrelid IN ('snowflake_status'::regclass, 'snowflake_stats'::regclass)});
my $not_null = q{
	SELECT string_agg(key, ' ' ORDER BY position) FROM (SELECT * FROM snowflake_status, snowflake_stats) s,
		json_each_text(row_to_json(s)) WITH ORDINALITY AS j(key, value, position)
	 WHERE value IS NOT NULL};
is( $node->safe_psql('postgres', $not_null, extra_params => [ '-U', 'stranger' ]),
	'gate node node_source layout layout_ends keeper_pid clock_state stats_reset',
	'everybody sees what tells nothing about others');
is( $node->safe_psql('postgres', $not_null, extra_params => [ '-U', 'watcher' ]),
	join(
		' ',
		grep {
			!/^(?:advice|clock_jump|standby_wait|frontier_holder|lease_until|lease_renewed|coordinator)$/
		} @all),
	'pg_monitor sees everything, where nobody holds the frontier and nothing is leased');
is( $node->safe_psql('postgres', $not_null, extra_params => [ '-U', 'reader' ]),
	$node->safe_psql('postgres', $not_null, extra_params => [ '-U', 'watcher' ]),
	'and so does pg_read_all_stats alone');
is( $node->safe_psql('postgres', $not_null, extra_params => [ '-U', 'apart' ]),
	$node->safe_psql('postgres', $not_null, extra_params => [ '-U', 'stranger' ]),
	'but not a member that does not inherit it');
is( $node->safe_psql('postgres', "SET ROLE stranger; $not_null"),
	$node->safe_psql('postgres', $not_null, extra_params => [ '-U', 'stranger' ]),
	'a superuser who has become another role sees what that sees');
my ($ret, $stdout, $stderr) = $node->psql(
	'postgres',
	'SELECT snowflake_stats_reset()',
	extra_params => [ '-U', 'watcher', '-v', 'VERBOSITY=verbose' ]);
like($stderr, qr/ERROR:  42501/, 'but may not reset the counters');

# At the limit of the layout for ten reservations' time
$waiting = $node->background_psql('postgres');
$waiting->query_until(qr/go/,
	"\\echo go\nSET application_name = 'flood'; SELECT count(snowflake_next()) FROM generate_series(1, 10000000);\n"
);
wait_until(
	'the log has the limit',
	sub {
		log_count($node,
			qr/WARNING:  snowflakes have been minted at the limit of the layout for 1\d\.\d+ s/) ==
		  1;
	});
pass('minting at the limit for long gives a warning');
my $reservations = status($node, 'reservations');
wait_until('minting goes on', sub { status($node, 'reservations') > $reservations + 3 });
is(log_count($node, qr/WARNING:  snowflakes have been minted at the limit/), 1, 'one');
$node->safe_psql('postgres',
	q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flood'});
eval { $waiting->quit };

# In bursts that reach the limit, with pauses that are longer than a reservation.  The keeper
# looks at the end of each pause, when the generator is as far ahead as at the limit; time
# stands, so it does not look in between.
my $offset = -s $node->logfile;
$node->append_conf('postgresql.conf', q{snowflake.max_lead = '1s'});
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.max_lead') = '1s'})
  or die "settings are not reloaded";
stop_time($clock);
foreach my $burst (1 .. 8)
{
	let_pass($clock, 2_000);
	$node->safe_psql('postgres',
		q{SELECT snowflake_advance(snowflake_upper_bound(clock_timestamp() + interval '750 ms'))});
	my $waits = status($node, 'clock_waits');
	$waiting = $node->background_psql('postgres');
	$waiting->query_until(qr/go/,
		"\\echo go\nSET application_name = 'burst'; SELECT count(snowflake_next()) FROM generate_series(1, 100000);\n"
	);
	wait_until('a mint waits', sub { status($node, 'clock_waits') > $waits });
	$node->safe_psql('postgres',
		q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'burst'});
	eval { $waiting->quit };
}
is(log_count($node, qr/WARNING:  snowflakes have been minted at the limit/, $offset),
	0, 'minting in bursts gives none');

# At the limit for some reservations' time, long after the flood of before: the time in
# between does not count.
let_pass($clock, 20_000);
$reservations = status($node, 'reservations');
$waiting = $node->background_psql('postgres');
$waiting->query_until(qr/go/,
	"\\echo go\nSET application_name = 'burst'; SELECT count(snowflake_next()) FROM generate_series(1, 10000000);\n"
);

# Let time pass, in which minting stays at the limit, until a condition is true.
sub pass_at_limit
{
	my ($until, $limit_ms) = @_;

	for (my $passed = 0; $passed < $limit_ms && !$until->(); $passed += 250)
	{
		my $waits = status($node, 'clock_waits');

		let_pass($clock, 250);
		wait_until('a mint waits', sub { status($node, 'clock_waits') > $waits });
	}
	return;
}

# How often the log has told of that since
sub limits
{
	return log_count($node, qr/WARNING:  snowflakes have been minted at the limit/, $offset);
}
pass_at_limit(sub { status($node, 'reservations') >= $reservations + 4 }, 8_000);
cmp_ok(status($node, 'reservations'), '>=', $reservations + 4, 'another time at the limit');
is(limits(), 0, 'is not reckoned from the one before');
pass_at_limit(\&limits, 30_000);
is(limits(), 1, 'but it gets a warning of its own, when it has lasted as long');
is( log_count(
		$node, qr/DETAIL:  It has 16 in a tick of 1\.000 ms; mints wait for the next one\.$/,
		$offset),
	1,
	'which has the number of IDs in a tick');
$node->safe_psql('postgres',
	q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'burst'});
eval { $waiting->quit };
start_time($clock);

# A layout that ends this year, and the day after
$offset = -s $node->logfile;
$node->stop;
my $epoch = (time() - 86_400) * 1000;
$node->append_conf('postgresql.conf',
	"snowflake.layout = 'time:32 node:10 sequence:12 epoch:$epoch'");
start_with_clock($node, $clock);
$node->poll_query_until('postgres',
	q{SELECT gate = 'closed: snowflake.layout differs from the stored layout' FROM snowflake_status}
) or die "gate is not closed";
is(refused(q{SET snowflake.max_wait = 0; SELECT snowflake_next()}), '55000', 'another layout');
is(status($node, $refusals), '0 1 0 0 0 0', 'is counted');
like(status($node, 'advice'), qr/snowflake_accept_layout\(\)/, 'and explained');
$node->safe_psql('postgres', 'SELECT snowflake_accept_layout()');
wait_for_mint($node);
my $ends = qr/WARNING:  the snowflake layout ends at "[^"]*", in 4[789] days/;
wait_until('the log has the end', sub { log_count($node, $ends, $offset) == 1 });
SnowflakeTest::extend($node) foreach 1 .. 2;
is(log_count($node, $ends, $offset),
	1, 'the end of the layout is announced at the start, and not at each look');
like(status($node, 'advice'), qr/^Plan for another snowflake\.layout/, 'and in the advice');

# No database for the keeper
$node->stop;
$node->append_conf('postgresql.conf', "snowflake.database = 'nowhere'");
start_with_clock($node, $clock);
is( refused(
		q{SET snowflake.max_wait = '1h'; SET statement_timeout = '30s'; SELECT snowflake_next()}),
	'55000',
	'no database for the keeper: a mint is refused at once');
is( status($node, 'advice'),
	'Create the database "nowhere", or change snowflake.database and restart the server.',
	'the database is missing');
$node->stop;
$node->append_conf('postgresql.conf', "snowflake.database = 'postgres'");
$offset = -s $node->logfile;
start_with_clock($node, $clock);
wait_for_mint($node);
wait_until('the log has the end', sub { log_count($node, $ends, $offset) == 1 });

# The keeper looks again when it next has something to do
pass_days($clock, 1);
wait_for_mint($node);
wait_until('the log has the end again', sub { log_count($node, $ends, $offset) == 2 });
pass('and a day later');

pass_days($clock, 50);
is(refused('SELECT snowflake_next()'), '2200H', 'it has ended');
is(status($node, $refusals), '0 0 0 0 1 0', 'which is counted');

$node->stop;
done_testing();
