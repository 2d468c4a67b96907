# What keeps the keeper from its work for good is said at once, and said to be that.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  error_at_once error_of new_clock new_node set_clock start_with_clock status wait_for_mint
);
use Test::More;

# No background worker is left for the keeper
my $node = new_node('workerless', conf => 'max_worker_processes = 0');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
my $error = error_at_once($node);
is($error->{message}, 'the snowflake keeper has no background worker', 'no background worker');
is( $error->{detail},
	'The setting max_worker_processes is 0, and other libraries may use background workers, too.',
	'with the number');
is($error->{hint}, 'Increase max_worker_processes, and restart the server.', 'and what to do');
is(status($node, 'advice'), $error->{hint}, 'which is the advice');
$node->stop;

# A template
$node = new_node('template', conf => "snowflake.database = 'template1'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$error = error_at_once($node);
is( $error->{message},
	'the database of the snowflake reservation is a template',
	'a template database');
is($error->{detail}, 'The setting snowflake.database is "template1".', 'which is named');
is(status($node, 'advice'), $error->{hint}, 'with advice');
is( $node->safe_psql(
		'template1', q{SELECT count(*) FROM pg_extension WHERE extname = 'snowflake_keeper'}),
	'0',
	'nothing is created there');
$node->stop;

# The clock goes back while the keeper is held: that is not the clock's fault alone.
$node = new_node('held');
my $clock = new_clock('held');
start_with_clock($node, $clock);
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);
my $keeper = status($node, 'keeper_pid');
kill 'STOP', $keeper;
set_clock($clock, -3_600_000);
$error = error_of($node, q{SET snowflake.max_wait = '1s'; SELECT snowflake_next()});
kill 'CONT', $keeper;
like(
	$error->{message},
	qr/^the snowflake keeper did not look at the clock within \d+ ms$/,
	'the clock goes back while the keeper is held');
like($error->{hint}, qr/^The keeper, process $keeper, has not answered for /, 'and it is named');
set_clock($clock, 0);
wait_for_mint($node);
$node->stop;

# What takes very long is said in days.
$node = new_node('days');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node);
$node->safe_psql('postgres',
	q{SELECT snowflake_advance(snowflake_lower_bound(now() + interval '1000 days'), true)});
like(
	error_of($node, 'SELECT snowflake_next()')->{message},
	qr/^the snowflake generator is (?:999\.9|1000\.0) days ahead of the clock$/,
	'a thousand days');
$node->stop;

done_testing();
