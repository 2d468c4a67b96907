# A keeper that cannot connect, because its database does not exist, tries again after a
# pause, and does not fill the log; so does one that fails.  The server's time is stopped,
# so that its pauses are as long as this test says.

use SnowflakeTest;

my $pause = 10_000;    # of a keeper of which nothing is asked, in ms
my $node = new_node('main', conf => q{snowflake.database = 'later'});
my $clock = new_clock('main');

sub attempts { return log_count($node, qr/FATAL:  database "later" does not exist/); }

sub failures
{
	return log_count($node, qr/ERROR:  table "snowflake_keeper\.reservation" is not fit/);
}

# Look at the server for a while: with each look a keeper without a pause would have
# tried several times.
sub look_on
{
	query($node, 'SELECT 1') foreach 1 .. 20;
	return;
}

# The keeper looks at the clock when it is woken.
sub let_pass_and_wake
{
	let_pass($clock, $_[0]);
	$node->reload;
	return;
}

sub wait_for_sleep
{
	wait_until(
		'the keeper sleeps',
		sub {
			status($node,
				q{(SELECT state = 'idle' AND wait_event_type = 'Extension' FROM pg_stat_activity WHERE backend_type = 'snowflake keeper')}
			) eq 't';
		});
	return;
}

sub rename_column
{
	query(
		$node,
		"ALTER TABLE snowflake_keeper.reservation RENAME $_[0] TO $_[1]",
		dbname => 'later');
	return;
}

stop_time($clock);
start_with_clock($node, $clock);
query($node, 'CREATE EXTENSION snowflake');
wait_until('the keeper has tried', sub { attempts() > 0 });
wait_until('there is another one', sub { status($node, 'keeper_pid IS NOT NULL') eq 't' });
look_on();
is(attempts(), 1, 'a keeper that cannot connect does not try again at once');
my $keeper = status($node, 'keeper_pid');
let_pass_and_wake($pause - 1);
look_on();
is(attempts(), 1, 'nor before the pause is over');
is(status($node, 'keeper_pid'), $keeper, 'it is one process that waits');
wait_until('the keeper has tried again', sub { let_pass_and_wake($pause); attempts() > 1 });
pass('after it, it tries again');

# When the database is there, it needs no restart.
start_time($clock);
query($node, 'CREATE DATABASE later');
wait_for_mint($node);
pass('the database is created: minting begins');

# One that fails while the gate is open, and of which a mint asks something, pauses as well: for
# a second, and not only for as long as after a lock.
$keeper = status($node, 'keeper_pid');
stop_time($clock);
wait_for_sleep();
rename_column('reserved_until', 'until');
let_pass($clock, 60_000);
my $minted = status($node, 'minted');
my $minter = start_minter($node, 1, max_wait => '10min');
wait_until('the keeper has failed', sub { failures() > 0 });
wait_for_sleep();
let_pass_and_wake(500);
look_on();
is(failures(), 1, 'a keeper that has failed does not try again before its pause is over');
rename_column('until', 'reserved_until');
let_pass_and_wake(600);
wait_until('the mint has its ID', sub { status($node, 'minted') > $minted });
is(scalar(@{ finish_minter($minter) }), 1, 'after it, the mint gets its ID')
  or diag($minter->{errors});
is(status($node, 'keeper_pid'), $keeper, 'of the same keeper');
start_time($clock);

done_testing();
