# A keeper that cannot connect, for its database does not exist, tries again after a pause,
# and does not fill the log.  Time stands, so that its pauses are as long as this test says.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  let_pass log_count new_clock new_node start_time start_with_clock status stop_time
  wait_for_mint wait_until
);
use Test::More;

my $pause = 10_000;    # of a keeper of which nothing is asked, in ms
my $node = new_node('main', conf => q{snowflake.database = 'later'});
my $clock = new_clock('main');

sub attempts
{
	return log_count($node, qr/FATAL:  database "later" does not exist/);
}

# Look at the server for a while: with each look a keeper without a pause would have
# tried several times.
sub look_on
{
	status($node, 'gate') foreach 1 .. 20;
	return;
}

stop_time($clock);
start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_until('the keeper has tried', sub { return attempts() > 0 });
wait_until('there is another one', sub { return status($node, 'keeper_pid IS NOT NULL') eq 't' });
look_on();
is(attempts(), 1, 'a keeper that cannot connect does not try again at once');
my $keeper = status($node, 'keeper_pid');
let_pass($clock, $pause - 1);
$node->reload;
look_on();
is(attempts(), 1, 'nor before the pause is over');
is(status($node, 'keeper_pid'), $keeper, 'it is one process that waits');
wait_until(
	'the keeper has tried again',
	sub {
		let_pass($clock, $pause);
		$node->reload;
		return attempts() > 1;
	});
pass('after it, it tries again');
look_on();
my $before = attempts();
look_on();
is(attempts(), $before, 'and pauses again');

# When the database is there, it needs no restart.
start_time($clock);
$node->safe_psql('postgres', 'CREATE DATABASE later');
wait_for_mint($node);
pass('the database is created: minting begins');

$node->stop;
done_testing();
