# The frontier of a snapshot when transaction IDs wrap around.

use SnowflakeEvents qw(create_events);
use SnowflakeTest;

my $node = new_node('main',
	conf => "snowflake.max_wait = '1min'\nautovacuum = off\nmax_prepared_transactions = 2\n");

# the next transaction ID is to be a bit below 2^32, of the epoch 1
my $next = 4294967296 - 100;
my $segment = sprintf '%s/pg_xact/%04X', $node->data_dir, int($next / 32768 / 32);

$node->start;
$node->command_ok([ 'vacuumdb', '--all', '--freeze', '--quiet' ], 'no row has a transaction ID');
$node->stop;
command_ok(
	[
		$node->installed_command('pg_resetwal'),
		'-e', 1, '-x', $next, '-u', $next - 1000,
		'-D', $node->data_dir
	],
	'the next transaction ID is set');
open my $fh, '>:raw', $segment or die "could not create \"$segment\": $!";
print $fh "\0" x (8192 * 32);
close $fh or die "could not write \"$segment\": $!";

# In one session, for a new one costs more than all that it does here.
my $session;
sub sql { return $session->query_safe(@_); }
sub other { return query($node, $_[0], dbname => 'other'); }

$node->start;
$session = session($node);
sql(q{
	CREATE EXTENSION snowflake;
	CREATE TABLE unrelated ();
});
create_events($node);
wait_for_mint($node);

my $all = q{SELECT coalesce(string_agg(what, ' ' ORDER BY id), '') FROM settled};
my $count = 0;
my @expected;
my $first_xid = sql('SELECT pg_current_xact_id()');

# a transaction of another database that is prepared before the turn
sql('CREATE DATABASE other');
my ($prepared, $held) = split /\n/,
  other(
	q{CREATE EXTENSION snowflake; BEGIN; SELECT pg_current_xact_id(); SELECT snowflake_next(); PREPARE TRANSACTION 'p'}
  );

# one that is open from before the turn, and mints after it
my $long = session($node, 'BEGIN; SELECT pg_current_xact_id()');

my ($writer, $reader) = map { session($node) } 1, 2;

while (sql('SELECT pg_current_xact_id()') < 2 * 4294967296 + 20)
{
	$count++;
	$writer->query_safe("BEGIN; INSERT INTO events (what) VALUES ('early$count')");
	sql("INSERT INTO events (what) VALUES ('late$count')");
	$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM unrelated');
	$writer->query_safe('COMMIT');
	sql('INSERT INTO unrelated DEFAULT VALUES; ' x 5);
	my $got = $reader->query_safe($all);
	fail("round $count: something was passed: $got") if "@expected " !~ /^\Q$got\E ?/ && $got ne '';
	push @expected, "early$count", "late$count";
	$reader->query_safe('COMMIT');
	sql($all) eq "@expected" or fail("round $count: not all rows come");
}
cmp_ok($count, '>', 5, 'rounds before, across and after the turn');
cmp_ok($first_xid, '<', 2 * 4294967296, 'which began before it');
is(sql($all), "@expected", 'all rows come, in their order');

# What is open from before the turn ends between the snapshot of a reader and its question.  Its row is not in the snapshot,
# so the row after it is not to be passed.
$long->query_safe(q{INSERT INTO events (what) VALUES ('long')});
sql(q{INSERT INTO events (what) VALUES ('after')});
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM unrelated');
$long->query_safe('COMMIT');
unlike($reader->query_safe($all),
	qr/after/, 'what was open from before the turn is not passed by a snapshot that lacks it');
$reader->query_safe('COMMIT');
like($reader->query_safe($all), qr/long after$/, 'and is seen by the next one');
$_->quit foreach $long, $reader, $writer;

# The one that was prepared is found by its lock, which has no epoch.
cmp_ok($prepared, '<', 2 * 4294967296, 'a transaction was prepared before the turn');
foreach my $when ('it is', 'after a restart it is')
{
	$node->restart if $when =~ /restart/;
	wait_for_mint($node);
	is( other('SELECT pid, prepared FROM snowflake_frontier_holders()'),
		'|' . $prepared % 4294967296,
		"$when known after the turn");
	is(other("SELECT snowflake_frontier() < $held"), 't', 'and holds the frontier back');
}
other(q{COMMIT PREPARED 'p'});
is(other("SELECT snowflake_frontier() < $held"), 'f', 'until it has ended');

done_testing();
