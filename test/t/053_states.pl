# Every state in which minting fails, or waits, or is to be told of though it goes on:
# what the error, advice and the log say.  doc/messages.md has the words.  Nothing is
# without advice while minting fails or waits, from the first moment on, and the wait that
# an error names is the true one.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  error_of finish_minter let_pass log_count new_clock new_node start_minter start_time
  start_with_clock step_clock stop_time takes_less wait_until
);
use IO::Select;
use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use Test::More;

my $second = 1_000;
my $hour = 3_600 * $second;
my $day = 24 * $hour;
my $year = 365 * $day;
my $node = new_node(
	'main',
	init => { allows_streaming => 1 },
	conf => q{
	snowflake.reservation = '1s'
	snowflake.max_wait = '500ms'
	snowflake.jump_patience = '10min'

	# While no WAL can be written, no query may need the buffer of a page whose change is not written.
	shared_buffers = '32MB'
});
my $clock = new_clock('main');
my $offset = 0;

sub query
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', $sql);
}

sub advice
{
	return query('SELECT advice FROM snowflake_status');
}

# Settings, of a server that runs
sub set
{
	my (%settings) = @_;

	query("ALTER SYSTEM SET snowflake.$_ = '$settings{$_}'") foreach keys %settings;
	$node->reload;
	return;
}

sub restart
{
	my ($mode) = @_;

	$node->stop($mode);
	start_with_clock($node, $clock);
	return;
}

sub until_gate
{
	my ($gate) = @_;

	$node->poll_query_until('postgres', "SELECT gate ~ '^$gate' FROM snowflake_status")
	  or die "gate is not $gate";
	return;
}

sub until_minted
{
	$node->poll_query_until('postgres', q{SELECT snowflake_next() IS NOT NULL})
	  or die 'nothing is minted';
	return;
}

# A state in which mints fail: SQLSTATE, then a regular expression for each of message,
# detail, hint and the log.  The advice is the hint.
sub fails
{
	my ($state, $sqlstate, %expected) = @_;
	my $error;

	wait_until(
		"$state: mints fail",
		sub { $error = error_of($node, 'SELECT snowflake_next()'); return $error->{sqlstate} ne '' }
	);
	is($error->{sqlstate}, $sqlstate, "$state: SQLSTATE");
	foreach my $part (qw(message detail hint))
	{
		next unless $expected{$part};
		like($error->{$part} // '', qr/^$expected{$part}$/, "$state: $part");
	}
	isnt(advice(), '', "$state: there is advice at once");
	wait_until("$state: advice", sub { advice() =~ /^$expected{hint}$/ });
	pass("$state: advice");
	logged($state, $expected{log}) if $expected{log};
	return $error;
}

# A mint that waits for as long as it takes
sub start_mint
{
	local $ENV{PGOPTIONS} = q{-c snowflake.max_wait=10min};

	return start_minter($node, 1);
}

sub finish_mint
{
	my ($state, $mint) = @_;

	is(scalar(@{ finish_minter($mint) }), 1, "$state: the mint gets its ID when it is over")
	  or diag($mint->{errors});
	return;
}

sub goes_on
{
	my ($state, %expected) = @_;

	is(error_of($node, 'SELECT snowflake_next()')->{sqlstate}, '', "$state: minting goes on");
	like(advice(), qr/^$expected{advice}$/, "$state: advice");
	logged($state, $expected{log}) if $expected{log};
	return;
}

sub logged
{
	my ($state, $regexp) = @_;

	# some of it is for mints to find out
	wait_until(
		"$state: the log",
		sub {
			error_of($node, 'SELECT snowflake_next()');
			return log_count($node, $regexp, $offset) > 0;
		});
	pass("$state: the log");
	$offset = -s $node->logfile;
	return;
}

my $time = qr/\d+\.\d+ m?s/;
my $moment = qr/\d+\.\d+ ms/;
my $date = qr/"[^"]+"/;

start_with_clock($node, $clock);
query('CREATE EXTENSION snowflake');
until_gate('closed: the extension snowflake_keeper is missing');
wait_until('the keeper is at rest', sub { advice() eq '' });
pass('before the first mint all is well');

# The first moment of what keeps the keeper from its work.  Time stands still, so that it lasts, and
# no timeout comes.  The observer is connected when nobody else can connect.
my $observer = $node->background_psql('postgres');
$observer->set_query_timer_restart(1);

sub observed
{
	my ($what) = @_;

	return $observer->query_safe("SELECT $what FROM snowflake_status");
}

# What the observer sees as soon as the state is there, and when a second has passed
sub begins
{
	my ($state, $is_there, $at_first, $then) = @_;

	wait_until("$state: it begins", $is_there);
	like(observed('advice'), qr/^$at_first$/, "$state: advice in the first moment");
	return unless defined $then;
	let_pass($clock, 1001);
	like(observed('advice'), qr/^$then$/, "$state: advice when it lasts");
	return;
}

# Is there a process that waits for that?  The observer would see no change in its transaction.
sub waits
{
	my ($type, @events) = @_;
	my $events = join ', ', map { "'$_'" } @events;

	return query(
		"SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = '$type' AND wait_event IN ($events)"
	) eq 't';
}

sub mint_waits
{
	return waits('client backend', 'Extension', 'SnowflakeKeeper');
}

stop_time($clock);
$observer->query_safe('BEGIN; LOCK TABLE pg_extension');
my $mint = start_mint();
my $wait = qr/Wait: the keeper, process \d+, has not answered for $moment\./;
begins('the extension is being created', \&mint_waits, $wait);
$observer->query_safe('COMMIT');
finish_mint('the extension is being created', $mint);

let_pass($clock, 10_000);
wait_until('the keeper is at rest', sub { advice() eq '' });
pass('and when nothing is reserved, because no mint asked for it');

my $keeper = query('SELECT keeper_pid FROM snowflake_status');
my $held = qr/The keeper, process $keeper, has not answered for $time/;
kill 'STOP', $keeper;
$mint = start_mint();
begins(
	'keeper stopped',
	\&mint_waits,
	qr/Wait: the keeper, process $keeper, has not answered for $moment\./,
	qr/$held\. See what it waits for in pg_stat_activity, and whether the process was stopped\./);
kill 'CONT', $keeper;
finish_mint('keeper stopped', $mint);

# A session that commits, to see whether that has to wait
my $prober = $node->background_psql('postgres');
my $probing = $prober->query_safe('SELECT pg_backend_pid()');
my ($commits, $said) = (0, '');

sub commit_waits
{
	my ($event) = @_;
	my $now;

	# each has a text of its own, lest the one before be taken for it
	$commits++;
	$said = $prober->query_until(qr/asked/,
		"\\echo asked\nSELECT pg_logical_emit_message(true, 'a', 'commit $commits.');\n\\echo answered\n"
	);
	wait_until(
		'the next commit is done, or waits',
		sub {
			$now = query(
				"SELECT wait_event FROM pg_stat_activity WHERE pid = $probing AND query ~ 'commit $commits\\.'"
			);
			return $now =~ /^(ClientRead|$event)$/;
		});
	commit_is_done() if $now eq 'ClientRead';
	return $now eq $event;
}

# One that was quick has been read together with the question.
sub commit_is_done
{
	$prober->query_until(qr/answered/, '') if $said !~ /answered/;
	return;
}

# The setting is in force for commits when the checkpointer has read it.
query(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
$node->reload;
wait_until('commits wait for a standby', sub { commit_waits('SyncRep') });
let_pass($clock, 10_000);
$mint = start_mint();
begins(
	'no standby',
	sub { waits('snowflake keeper', 'SyncRep') },
	$wait,
	qr/The commit of the reservation has been waiting for a synchronous standby for $time\. Start a synchronous standby, or change synchronous_standby_names\./
);
query(q{ALTER SYSTEM RESET synchronous_standby_names});
$node->reload;
commit_is_done();
finish_mint('no standby', $mint);

# The disk seems to stand still: a process that delays its commits is stopped where it has
# the lock for writing WAL, as the next commit shows.
query('ALTER SYSTEM SET fsync = on');
$node->reload;
my $flusher = $node->background_psql('postgres');
my $flushing = $flusher->query_safe('SELECT pg_backend_pid()');
$flusher->query_until(qr/begins/,
	"SET commit_delay = 100000; SET commit_siblings = 0;\n\\echo begins\nDO \$\$ BEGIN LOOP PERFORM pg_logical_emit_message(true, 'a', 'commit'); COMMIT; END LOOP; END \$\$;\n"
);
do
{
	# it runs for as long as a query takes
	kill 'CONT', $flushing;
	query('SELECT 1');
	kill 'STOP', $flushing;
} until commit_waits('WALWrite');
let_pass($clock, 10_000);
$mint = start_mint();
begins('slow disk', sub { waits('snowflake keeper', 'WALWrite') }, $wait, qr/$held\. See .*/);
kill 'TERM', $flushing;
kill 'CONT', $flushing;
commit_is_done();
$prober->quit;
$flusher->{run}->finish;
query('ALTER SYSTEM RESET fsync');
$node->reload;
finish_mint('slow disk', $mint);

# The postmaster starts no other one.
wait_until('the keeper is at rest', sub { observed('advice') eq '' });
my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
kill 'STOP', $postmaster;
kill 'TERM', $keeper;

# It counts from its end on, though nobody looks at the status for a while.
wait_until(
	'the keeper has ended',
	sub {
		$observer->query_safe(
			q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'})
		  eq 't';
	});
let_pass($clock, 999);
is( observed('advice'),
	'Wait: the server is starting the keeper.',
	'no keeper: advice in the first moment');
let_pass($clock, 2);
is( observed('advice'),
	'The keeper is not running. See the server log.',
	'no keeper: advice when it lasts');

# What it connects by is locked.
$observer->query_safe('BEGIN; LOCK TABLE pg_database');
kill 'CONT', $postmaster;
begins(
	'the keeper connects',
	sub { observed('keeper_pid') ne '' },
	$wait, qr/The keeper, process \d+, has not answered for $time\. See .*/);
wait_until('the gate says so',
	sub { observed('gate') eq 'closed: the keeper is connecting to its database' });
$observer->query_safe('COMMIT');
$observer->quit;
start_time($clock);
until_minted();
is(advice(), '', 'all is well');

# The keeper
$keeper = query('SELECT keeper_pid FROM snowflake_status');
kill 'STOP', $keeper;
$held = qr/The keeper, process $keeper, has not answered for $time/;
my $error = fails(
	'keeper stopped', '55000',
	message => qr/the snowflake reservation was not extended within 500 ms/,
	detail => qr/It ends at $date\./,
	hint =>
	  qr/$held\. See what it waits for in pg_stat_activity, and whether the process was stopped\./);
takes_less(
	900,
	'keeper stopped: a mint that may wait for 100 ms does not wait for a second',
	sub {
		my $tried = error_of(
			$node, q{
			SET snowflake.max_wait = '100ms';
			SELECT clock_timestamp() AS start \gset
			SELECT snowflake_next();
			SELECT 1000 * extract(epoch FROM clock_timestamp() - :'start')},
			on_error_stop => 0);

		is($tried->{sqlstate}, '55000', 'keeper stopped: it is refused');
		return $tried->{stdout};
	});
kill 'CONT', $keeper;
until_minted();
$node->poll_query_until('postgres', 'SELECT advice IS NULL FROM snowflake_status')
  or die 'advice stays';
pass('and none when it goes on');

my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
my $failed = qr/The keeper's last attempt failed with SQLSTATE 55P03/;
fails(
	'reservation locked', '55000',
	message => qr/the snowflake reservation was not extended within 500 ms/,
	detail => qr/It ends at $date\./,
	hint =>
	  qr/(?:$failed\. See the server log|The keeper, process \d+, has not answered for $time\. .*)\./,
	log => qr/ERROR:  canceling statement due to lock timeout/);
$locker->quit;
until_minted();

query(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
$node->reload;
fails(
	'no standby', '55000',
	message => qr/the snowflake reservation was not extended within 500 ms/,
	detail => qr/It ends at $date\./,
	hint =>
	  qr/The (?:commit of the reservation has been waiting for a synchronous standby|keeper, process \d+, has not answered) for $time.*\./,
	log => qr/LOG:  the commit of the snowflake reservation waits for a synchronous standby/);
query(q{ALTER SYSTEM RESET synchronous_standby_names});
$node->reload;
until_minted();

# The node ID
set(node_id => -1);
until_gate('closed: the node ID is not set');
fails(
	'no node ID', '55000',
	message => qr/snowflake\.node_id is not set/,
	detail => qr/The layout has node IDs from 0 to 1023.*/,
	hint => qr/Set snowflake\.node_id .*/);
set(node_id => 1);
until_minted();

# A lease, of a coordinator that does not answer
my $source = query('SHOW snowflake.node_source');
my $silent = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1')
  or die "could not listen: $!";
my $asked = IO::Select->new($silent);
stop_time($clock);
set(node_source => 'postgresql://127.0.0.1:' . $silent->sockport . '/postgres');
until_gate('closed: no node ID is leased');
isnt(advice(), '', 'no answer of the coordinator: there is advice before it is asked');
wait_until('the coordinator is asked',
	sub { let_pass($clock, 200); return $asked->can_read(0.05) });
my $lessee =
  qr/The lessee, process \d+, has no answer from the coordinator yet: wait, or check whether the process was stopped\./;
like(advice(), qr/^$lessee$/, 'no answer of the coordinator: advice');
start_time($clock);
$error = error_of($node, q{SET snowflake.max_wait = 0; SELECT snowflake_next()});
like(
	$error->{hint},
	qr/^(?:$lessee|The coordinator has been unusable since .*)$/s,
	'no answer of the coordinator: hint');
$silent->close;

# Of one that is not there
set(node_source => 'postgresql://127.0.0.1:1/postgres');
until_gate('closed: no node ID is leased');
logged('no coordinator', qr/could not use the coordinator/);
fails(
	'no coordinator', '55000',
	message => qr/this server has not leased a node ID/,
	hint => qr/The coordinator has been unusable since .*/s);
set(node_source => $source);
until_minted();

# Ahead by snowflake_advance(): IDs stand, or wait for as long as the error says.
query(q{SELECT snowflake_advance(snowflake_lower_bound(now() + interval '1 hour'), force => true)});
goes_on('advanced',
	advice =>
	  qr/Snowflakes are 3[56]\d\d\.\d+ s ahead of the clock after snowflake_advance\(\)\. The clock will catch up in about that time\. Minting goes on\./
);
set(max_ahead => 0);
$error = fails(
	'advanced, and max_ahead = 0', '55000',
	message => qr/the snowflake generator is 3[56]\d\d\.\d+ s ahead of the clock/,
	detail =>
	  qr/It may be ahead by .* \(snowflake\.max_(?:lead|ahead)\)\. This call has waited .*, and would have to wait another 3[56]\d\d\.\d+ s\./,
	hint =>
	  qr/The generator was advanced by snowflake_advance\(\)\. (?:Minting goes on in 3[56]\d\d\.\d+ s\.|Check the server's clock\. If it is correct, minting goes on in .*)/,
	log => qr/WARNING:  minting snowflakes waits for the clock/);

# A clock that jumps back: to believe it does not help
step_clock($clock, -$hour);
wait_until('the jump is seen',
	sub { $error = error_of($node, 'SELECT snowflake_next()'); $error->{hint} =~ /not believed/ });
like(
	$error->{hint},
	qr/^The clock went back by 3[56]\d\d\.\d+ s, $time ago, and is not believed: correct it\. If it stays there, it is believed in \d+\.\d+ s\. Minting goes on in 3[56]\d\d\.\d+ s\.$/,
	'advanced, and the clock jumps back: hint');

# One that jumps beyond that, by more than a day: patience, and no longer
step_clock($clock, 2 * $day + 3 * $hour);
wait_until('the jump is seen', sub { advice() =~ /not believed/ });
$error = fails(
	'advanced, and the clock jumps ahead of it', '55000',
	detail => qr/It may be ahead by .* would have to wait another (?:5[89]\d|600)\.\d+ s\./,
	hint =>
	  qr/The clock went ahead by 2\.1 days, $time ago, and is not believed: correct it, or believe it with snowflake_accept_clock\(\)\. If it stays there, it is believed in \d+\.\d+ s\. Minting goes on in (?:5[89]\d|600)\.\d+ s\./,
	log => qr/WARNING:  the clock went ahead by 2\.1 days/);
stop_time($clock);
let_pass($clock, 300_000);
like(
	error_of($node, 'SELECT snowflake_next()')->{hint},
	qr/ Minting goes on in (?:2\d\d|300)\.\d+ s\.$/,
	'five minutes later so much less is to be waited for');
start_time($clock);
query('SELECT snowflake_accept_clock()');
until_minted();

# One that jumps to where no ID can be
step_clock($clock, 150 * $year);
wait_until('the jump is seen',
	sub { error_of($node, 'SELECT snowflake_next()'); advice() =~ /went ahead/ });
like(
	advice(),
	qr/^The clock went ahead by \d+\.\d days, $time ago, to a time that the layout does not have: correct it\.$/,
	'a jump beyond the end of the layout: advice');
step_clock($clock, -150 * $year);
until_minted();

# A clock that has jumped ahead, and IDs that are ahead of that: patience is not enough.  Time
# stands, so that the keeper does not look again.
stop_time($clock);
step_clock($clock, $hour);
wait_until('the jump is seen',
	sub { query('SELECT snowflake_next()'); advice() =~ /not believed/ });
query(
	q{INSERT INTO snowflake_keeper.reservation SELECT 2, layout, clock_timestamp() + interval '1 hour', in_order
		FROM snowflake_keeper.reservation WHERE node = 1});
set(node_id => 2);
wait_until('node ID 2', sub { query('SELECT node = 2 FROM snowflake_status') eq 't' });
like(
	advice(),
	qr/^The clock went ahead by 3600\.\d+ s, .* and is not believed: .* Minting goes on in 3[56]\d\d\.\d+ s\.$/,
	'IDs are ahead of a jump: the advice has the time until the clock reaches them');
set(node_id => 1);
wait_until('node ID 1', sub { query('SELECT node = 1 FROM snowflake_status') eq 't' });
step_clock($clock, $hour);
start_time($clock);
query('SELECT snowflake_accept_clock()');
until_minted();
set(max_ahead => '1d');

# The clock goes back: coasting, and then standing.
step_clock($clock, -$hour);
goes_on('coasting',
	advice =>
	  qr/The clock went back by 3[56]\d\d\.\d+ s, $time ago, and is not believed: correct it, or believe it with snowflake_accept_clock\(\)\. If it stays there, it is believed in \d+\.\d+ s\.|/
);
wait_until('the jump is seen', sub { advice() =~ /not believed/ });
like(
	advice(),
	qr/^The clock went back by 3[56]\d\d\.\d+ s, $time ago, and is not believed: correct it, or believe it with snowflake_accept_clock\(\)\. If it stays there, it is believed in \d+\.\d+ s\.$/,
	'coasting: the advice is to correct or to believe it');
query('SELECT snowflake_accept_clock()');
goes_on('accepted',
	advice =>
	  qr/Snowflakes are 3[56]\d\d\.\d+ s ahead of the clock, which will catch up in about that time\. Minting goes on\./
);

# a step that stands is no reason to fail after it is accepted
step_clock($clock, -9 * $second);
goes_on('back by 9 s', advice => qr/Snowflakes are .*/);
query('SELECT snowflake_accept_clock()');
goes_on('back by 9 s, accepted', advice => qr/Snowflakes are .*/);

# further back than max_ahead: accepted, with a warning that says how long it is
step_clock($clock, -3 * $day);
wait_until('the jump is seen',
	sub { query('SELECT snowflake_next()'); advice() =~ /not believed/ });
my ($rc, $out, $warning) = $node->psql('postgres', 'SELECT snowflake_accept_clock()');
like(
	$warning,
	qr/WARNING:  the snowflake generator is now 3\.0 days ahead of the clock\n.*Nothing can be minted for another (?:2\.0 days|17\d{4}\.\d+ s), until it is ahead by 86400\.000 s \(snowflake\.max_ahead\)/,
	'a clock beyond max_ahead is accepted, with a warning');
fails(
	'back beyond max_ahead', '55000',
	message => qr/the snowflake generator is 3\.0 days ahead of the clock/,
	detail =>
	  qr/It may be ahead by 864\d\d\.\d+ s \(snowflake\.max_ahead\)\..* another (?:2\.0 days|17\d{4}\.\d+ s)\./,
	hint =>
	  qr/The clock went back by 3\.0 days, $time ago; another 3[56]\d\d\.\d+ s are left of the 3600\.\d+ s by which it went back $time ago\. Check the server's clock\. If it is correct, minting goes on in (?:2\.0 days|17\d{4}\.\d+ s)\. To go on at once, in order and with the same node ID, set snowflake\.max_ahead to at least 26\d{4} s .* To give up the order instead, set snowflake\.node_id .*/
);
step_clock($clock, 3 * $day);
until_minted();

# A crash, where no ID may be ahead
set(max_ahead => 0);
step_clock($clock, $hour);
query('SELECT snowflake_accept_clock()');
until_minted();
set(reservation => '1h', max_jump => '1h');
wait_until(
	'an hour is reserved',
	sub {
		query(
			q{SELECT snowflake_next() IS NOT NULL AND reserved_until > now() + interval '30 minutes' FROM snowflake_status}
		) eq 't';
	});
restart('immediate');
until_gate('open');
fails(
	'crash, and max_ahead = 0', '55000',
	message =>
	  qr/minting snowflakes starts in 3[56]\d\d\.\d+ s, after the end of what was reserved before/,
	detail => qr/Snowflakes up to $date may have been issued before\. .*/,
	hint =>
	  qr/Wait: minting starts in 3[56]\d\d\.\d+ s, after the end of what was reserved before\. If .*/,
	log => qr/LOG:  snowflake gate opened for node ID 1/);
set(reservation => '1s', max_jump => '10s', max_ahead => '1d');
restart('fast');
until_minted();

# A start by a clock that cannot be
foreach my $case (
	[
		'boot in the past',
		-6 * $year,
		'55000',
		qr/the snowflake generator is .* ahead of the clock/,
		qr/It may be ahead by .* Minting starts when the clock has advanced by another .*\./,
		qr/Correct the server's clock\. If it is correct now, .* believe it with snowflake_accept_clock\(\)\. To go on at once, .* snowflake\.max_ahead .*/
	],
	[
		'boot before the layout',
		-40 * $year,
		'55000',
		qr/the clock is before the epoch of the snowflake layout/,
		qr/The epoch is $date\./,
		qr/Correct the server's clock, or, if it is correct, configure another snowflake\.layout\./
	],
	[
		'boot after the layout',
		150 * $year,
		'2200H',
		qr/the snowflake layout has ended/,
		qr/Its last tick started at $date\./,
		qr/Correct the server's clock, or, if it is correct, configure another snowflake\.layout\./
	])
{
	my ($state, $step, $sqlstate, $message, $detail, $hint) = @$case;

	$node->stop('immediate');
	step_clock($clock, $step);
	start_with_clock($node, $clock);
	until_gate('closed: the clock is not believed');
	fails(
		$state, $sqlstate,
		message => $message,
		detail => $detail,
		hint => $hint);
	isnt(query('SELECT refused_clock FROM snowflake_stats'),
		'0', "$state: it is counted as the clock's");

	if ($step > 0)
	{
		$error = error_of($node, 'SELECT snowflake_accept_clock()');
		like(
			$error->{message},
			qr/^the snowflake layout does not have the time of the clock$/,
			"$state: it cannot be accepted");
	}

	# what waits goes on when it has been corrected
	my $waiting = $node->background_psql('postgres', on_error_stop => 0);
	$waiting->query_until(qr/^start/m,
		"\\echo start\nSET snowflake.max_wait = '3min'; SELECT 'minted' WHERE snowflake_next() > 0;\n\\echo end\n"
	);
	wait_until(
		'a mint waits',
		sub {
			query(
				q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND wait_event_type = 'Extension'}
			) || $waiting->{stdout} =~ /^end/m;
		});
	step_clock($clock, -$step);
	like($waiting->query_until(qr/^end/m, ''), qr/^minted/m, "$state: a mint has waited for it");
	$waiting->quit;
	until_minted();
}

# The layout, the database, the reservation
$node->append_conf('postgresql.conf', q{snowflake.layout = 'discord'});
restart('fast');
until_gate('closed: snowflake.layout differs');
fails(
	'another layout', '55000',
	message => qr/snowflake\.layout differs from the layout that this server has minted with/,
	detail => qr/The configured layout is $date, the stored one $date\./,
	hint => qr/Restore snowflake\.layout, or .*/,
	log => qr/LOG:  snowflake gate stays closed: snowflake\.layout differs/);
$node->append_conf('postgresql.conf', q{snowflake.layout = 'twitter'});

$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
$node->append_conf('postgresql.conf', q{snowflake.database = 'elsewhere'});
restart('fast');
until_gate('closed: the reservation of this server is not');
fails(
	'another database', '55000',
	message => qr/the snowflake reservation of this server is not in the database "elsewhere"/,
	detail => qr/It was last seen in the database "postgres"\./,
	hint =>
	  qr/Restore the setting snowflake\.database\. .*snowflake_accept_database\(\), above the largest snowflake that exists\./,
	log => qr/LOG:  snowflake gate stays closed: the reservation/);

$node->append_conf('postgresql.conf', q{snowflake.database = 'nowhere'});
restart('fast');
fails(
	'no database', '55000',
	message => qr/the database of the snowflake reservation does not exist/,
	detail => qr/The setting snowflake\.database is "nowhere"\./,
	hint => qr/Create the database "nowhere", or .*/,
	log => qr/FATAL:  database "nowhere" does not exist/);
$node->append_conf('postgresql.conf', q{snowflake.database = 'postgres'});
restart('fast');
until_minted();

# The end of the layout
my $last_but_one =
  query(q{SELECT snowflake_lower_bound((snowflake_layout()).last_instant) - 4194304});
query("SELECT snowflake_advance($last_but_one, force => true)");
like(
	advice(),
	qr/^The generator was advanced by snowflake_advance\(\)\. .*/,
	'advanced to the end of the layout: advice');
$node->stop('fast');

# Not preloaded, and on a standby
$node->append_conf('postgresql.conf', q{shared_preload_libraries = ''});
$node->start;
fails(
	'not preloaded', '55000',
	message => qr/snowflake_next\(\) needs the library "snowflake" to be preloaded/,
	hint => qr/Add "snowflake" .*/);
$node->stop;
$node->append_conf('postgresql.conf', q{shared_preload_libraries = 'snowflake'});
$node->set_standby_mode;
start_with_clock($node, $clock);
$error = error_of($node, 'SELECT snowflake_next()');
is( "$error->{sqlstate} $error->{message}",
	'25006 cannot execute snowflake_next() during recovery',
	'standby: the error of nextval()');
is( query('SELECT gate FROM snowflake_status'),
	'closed: the server is in recovery',
	'standby: the gate says so');

# It is promoted, and its postmaster, which would start the keeper, does not know yet.
$observer = $node->background_psql('postgres');
$observer->set_query_timer_restart(1);
my $startup = query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'});
stop_time($clock);
let_pass($clock, 10_000);
$postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
kill 'STOP', $postmaster;
append_to_file($node->data_dir . '/promote', '');
kill 'USR2', $startup;
wait_until('recovery has ended',
	sub { $observer->query_safe('SELECT pg_is_in_recovery()') eq 'f' });
is( observed('advice'),
	'Wait: the server is starting the keeper.',
	'promoted: the keeper is not missing from the start on');
kill 'CONT', $postmaster;
$observer->quit;
start_time($clock);

$node->stop;
done_testing();
