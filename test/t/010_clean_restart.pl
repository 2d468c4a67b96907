# A clean stop stores the exact tick of the last ID.  The next start therefore
# mints at once, above everything before, and needs neither the clock nor the
# time that was reserved but not used.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  advance disorder mint mint_many minting_node query restart_node stored wait_until
);
use PostgreSQL::Test::Utils;
use Test::More;

# An hour: who waited for it would be noticed.
my $node = minting_node('main', conf => q{snowflake.reservation = '1h'});
my (@ids, @first_ms, @gate_ms);

# When the server wrote the first line that matches, in ms of its day.
sub logged_at
{
	my ($regexp, $offset) = @_;
	my ($hour, $minute, $second) =
	  slurp_file($node->logfile, $offset) =~ /^\S+ (\d\d):(\d\d):(\d\d\.\d+) [^\n]*$regexp/m
	  or die "the log has no $regexp";

	return 1000 * ($hour * 3600 + $minute * 60 + $second);
}

foreach my $mode ('fast', 'smart', 'fast')
{
	push @ids, mint_many($node, 10);
	is( query(
			$node,
			q{SELECT reserved_until - clock_timestamp() > interval '59 min' FROM snowflake_keeper.reservation}
		),
		't',
		"an hour is reserved before the $mode stop");
	$node->stop($mode);
	is(stored($node, 1, "reserved_until = snowflake_timestamp('$ids[-1]')"),
		'true', 'what is stored after it is the tick of the last ID');

	my $offset = -s $node->logfile;
	$node->start;

	# psql's own timing leaves out what starting psql takes
	my ($id, $ms, $waits) = query($node,
		"\\timing on\nSELECT snowflake_next();\n\\timing off\nSELECT clock_waits FROM snowflake_stats"
	) =~ /^(\d+)\nTime: ([0-9.]+) ms.*?\n(\d+)$/s;

	cmp_ok($id, '>', $ids[-1], 'the first ID is larger than all before');
	is($waits, 0, 'it did not wait for the clock');
	push @ids, $id;
	push @first_ms, $ms;
	push @gate_ms,
	  logged_at('snowflake gate opened', $offset) -
	  logged_at('ready to accept connections', $offset);
}

# The shortest counts: others are disturbed by whatever else the machine does.
cmp_ok((sort { $a <=> $b } @first_ms)[0], '<', 100, 'the first ID takes less than 100 ms');
cmp_ok((sort { $a <=> $b } @gate_ms)[0], '<', 500, 'the gate is open within 500 ms');

# A smart stop waits for sessions, and they mint until their end: further than what was reserved
# when the server was told to stop.
$node->append_conf('postgresql.conf', q{snowflake.reservation = '1s'});
restart_node($node, 'fast');
my $session = $node->background_psql('postgres');
kill 'TERM', $node->{_pid};
$node->wait_for_log(qr/received smart shutdown request/);
push @ids, $session->query_safe(
	q{
	DO $$
	DECLARE
		enough bigint := (SELECT reservations + 2 FROM snowflake_stats);
	BEGIN
		WHILE (SELECT reservations FROM snowflake_stats) < enough LOOP
			PERFORM snowflake_next();
		END LOOP;
	END $$;
	SELECT snowflake_next()});
pass('during a smart stop the reservation is extended for the sessions left');
$session->quit;

# it may have ended by itself already
$node->stop('smart', fail_ok => 1);
is(stored($node, 1, "reserved_until = snowflake_timestamp('$ids[-1]')"),
	'true', 'and the tick of the last of their IDs is stored');
is(disorder(\@ids), 0, 'all IDs ascend');

# Fast stops under a session that mints 100,000 IDs without looking for interrupts, and then
# hands out the last: at that time the keeper has been told to stop as well.  The clock does
# not help, since the generator is ahead of it, and the keeper has to wait for the table.
my $storm = minting_node('storm', conf => "snowflake.max_lead = '1h'");
my ($rounds, $minted) = map { $storm->basedir . "/$_" } qw(rounds minted);
append_to_file($rounds,
	"BEGIN; LOCK TABLE snowflake_keeper.reservation IN EXCLUSIVE MODE; COPY (SELECT mint()) TO STDOUT; COMMIT;\n"
	  x 10_000);
advance($storm, '30 min');
query($storm,
		"CREATE FUNCTION mint() RETURNS snowflake LANGUAGE plpgsql AS 'BEGIN RETURN (ARRAY["
	  . join(',', ('snowflake_next()') x 100_000)
	  . "])[100000]; END'");
foreach my $stop (1 .. 4)
{
	my $storming =
	  IPC::Run::start([ 'psql', '-XAtq', '-d', $storm->connstr('postgres'), '-f', $rounds ],
		'>', $minted, '2>', '/dev/null');

	wait_until('it mints', sub { -s $minted });
	$storm->stop('fast');
	$storming->finish;
	my ($newest) = reverse slurp_file($minted) =~ /(\d+)\n/g;
	$storm->start;
	cmp_ok(mint($storm), '>', $newest,
		"what was minted while the keeper stopped is stored ($stop)");
}
$storm->stop;

done_testing();
