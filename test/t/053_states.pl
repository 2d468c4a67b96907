# Every state in which minting fails or waits, except for those of the clock (054_clock_states), of
# another layout (030_layout) and of another database (203_databases): how it is reached,
# and what the error, the advice and the log say.  There is advice from the first moment on.

use IO::Select;
use IO::Socket::INET;
use SnowflakeTest;

my $node = new_node(
	'main',
	init => { allows_streaming => 1 },
	conf => qq{snowflake.reservation = '1s'\nsnowflake.max_wait = '500ms'\n});
my $clock = new_clock('main');

sub advice { return status($node, 'advice'); }

# The first moment of what keeps the keeper from its work.  Time stands still, so that it lasts, and
# no timeout comes.
start_with_clock($node, $clock);
query($node, 'CREATE EXTENSION snowflake');
wait_for_gate($node, 'closed: the extension snowflake_keeper is missing');
wait_for_status($node, 'advice IS NULL');
pass('before the first mint all is well');
wait_for_mint($node);
stop_time($clock);
let_pass($clock, 10_000);
wait_until('the keeper is at rest', sub { advice() eq '' });
my $held =
  qr/The keeper, process \d+, has not answered for \d+\.\d+ m?s\. See what it waits for in pg_stat_activity, and whether the process was stopped\./;
my $keeper = hold_keeper($node);
my $mint = start_minter($node, 1, max_wait => '10min');
wait_until('a mint waits', sub { waits($node, 'client backend', 'SnowflakeKeeper') });
like(
	advice(),
	qr/^Wait: the keeper, process \d+, has not answered for \d+\.\d+ m?s\.$/,
	'keeper stopped: in the first moment');
let_pass($clock, 1001);
like(advice(), qr/^$held$/, 'keeper stopped: when it lasts');
kill 'CONT', $keeper;
is(scalar(@{ finish_minter($mint) }), 1, 'a mint gets its ID when it is over')
  or diag($mint->{errors});

# The postmaster starts no other keeper.  That counts from the end on, though nobody looks at the
# status for a while.
let_pass($clock, 10_000);
wait_until('the keeper is at rest', sub { advice() eq '' });
$keeper = status($node, 'keeper_pid');
my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
kill 'STOP', $postmaster;
kill 'TERM', $keeper;
wait_until(
	'the keeper has ended',
	sub {
		query($node,
			q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'}) eq
		  '0';
	});
let_pass($clock, 999);
is(advice(), 'Wait: the server is starting the keeper.', 'no keeper: in the first moment');
let_pass($clock, 2);
is(advice(), 'The keeper is not running. See the server log.', 'no keeper: when it lasts');
kill 'CONT', $postmaster;
start_time($clock);
wait_for_mint($node);
is(advice(), '', 'all is well');

# A state in which mints fail: its name, how it begins, what is expected of the error and of the log,
# and how it ends.  The advice is the hint.  What is there for good is not waited for.
sub fails
{
	my ($state, $begin, $expected, $end) = @_;
	my $offset = -s $node->logfile;
	my $error;

	$begin->();
	wait_until(
		"$state: mints fail",
		sub {
			$error = $expected->{for_good} ? error_at_once($node) : refused($node, '500ms');
			return $error->{sqlstate} ne '';
		});
	is($error->{sqlstate}, $expected->{sqlstate} // '55000', "$state: SQLSTATE");
	foreach my $part (grep { $expected->{$_} } qw(message detail hint))
	{
		like($error->{$part}, qr/^$expected->{$part}$/, "$state: $part");
	}
	isnt(advice(), '', "$state: there is advice at once");
	wait_until("$state: advice", sub { advice() =~ /^$expected->{hint}$/ });
	wait_until("$state: the log", sub { log_count($node, $expected->{log}, $offset) > 0 })
	  if $expected->{log};
	return if !defined $end;
	$end->();
	wait_for_mint($node);
	return;
}

my $not_extended = qr/the snowflake reservation was not extended within 500 ms/;
my $ends_at = qr/It ends at "[^"]+"\./;
my $locker;

fails(
	'keeper stopped',
	sub { $keeper = hold_keeper($node) },
	{ message => $not_extended, detail => $ends_at, hint => $held },
	sub { kill 'CONT', $keeper });
fails(
	'reservation locked',
	sub { $locker = lock_reservation($node) },
	{
		message => $not_extended,
		detail => $ends_at,
		hint =>
		  qr/(?:The keeper's last attempt failed with SQLSTATE 55P03. See the server log\.|$held)/,
		log => qr/ERROR:  canceling statement due to lock timeout/
	},
	sub { $locker->quit });
fails(
	'no node ID',
	sub { set_conf($node, 'snowflake.node_id' => -1); wait_for_gate($node, 'not set') },
	{
		for_good => 1,
		message => qr/snowflake\.node_id is not set/,
		detail => qr/The layout has node IDs from 0 to 1023.*/,
		hint => qr/Set snowflake\.node_id .*/
	},
	sub { set_conf($node, 'snowflake.node_id' => 1) });

# A lease, of a coordinator that does not answer, and of one that is not there
my $silent = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1')
  or die "could not listen: $!";
my $asked = IO::Select->new($silent);
stop_time($clock);
set_conf($node,
	'snowflake.node_source' => 'postgresql://127.0.0.1:' . $silent->sockport . '/postgres');
wait_for_gate($node, 'closed: no node ID is leased');
isnt(advice(), '', 'no answer of the coordinator: there is advice before it is asked');
wait_until('the coordinator is asked',
	sub { let_pass($clock, 200); return $asked->can_read(0.05) });
like(
	advice(),
	qr/^The lessee, process \d+, has no answer from the coordinator yet: wait, or check whether the process was stopped\.$/,
	'no answer of the coordinator: advice');
start_time($clock);
$silent->close;
wait_until('the coordinator is gone: advice',
	sub { advice() =~ /^The coordinator has been unusable since / });
set_conf($node, 'snowflake.node_source' => 'setting');
wait_for_mint($node);

# What is wrong from the start of the server on: the setting, its value, and one that is right
foreach my $case (
	[
		'snowflake.database', 'nowhere', 'postgres',
		message => qr/the database of the snowflake reservation does not exist/,
		detail => qr/The setting snowflake\.database is "nowhere"\./,
		hint => qr/Create the database "nowhere", or .*/,
		log => qr/FATAL:  database "nowhere" does not exist/
	],
	[
		'snowflake.database', 'template1', 'postgres',
		message => qr/the database of the snowflake reservation is a template/,
		hint => qr/.+/
	],
	[
		'max_worker_processes', 0, 8,
		message => qr/the snowflake keeper has no background worker/,
		detail =>
		  qr/The setting max_worker_processes is 0, and other libraries may also use background workers\./,
		hint => qr/Increase max_worker_processes, and restart the server\./
	])
{
	my ($setting, $wrong, $right, %expected) = @$case;
	my $start_with = sub {
		$node->stop('fast');
		$node->append_conf('postgresql.conf', "$setting = '$_[0]'");
		start_with_clock($node, $clock);
	};

	fails(
		"$setting = $wrong",
		sub { $start_with->($wrong) },
		{ %expected, for_good => 1 },
		sub { $start_with->($right) });
}

done_testing();
