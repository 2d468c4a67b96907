# Eight connections to two databases mint two million IDs at once, some of them
# in the workers of parallel queries.  No ID occurs twice, IDs follow the order
# of the calls, and the time in them is that of the call.
#
# Every row records the clock before and after its own call, so the time and
# the order are checked call by call, not statement by statement.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(new_node wait_for_mint);
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $per_session = 250_000;
my $max_lead = '5 milliseconds';
my $node = new_node(
	'main', conf => q{
	snowflake.max_lead = '5ms'
	max_worker_processes = 20
	max_parallel_workers = 12
	shared_buffers = '256MB'
	work_mem = '256MB'
	autovacuum = off
	max_wal_size = '4GB'
});
my $dir = PostgreSQL::Test::Utils::tempdir();

$node->start;
foreach my $database ('one', 'two')
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql(
		$database, qq{
		CREATE EXTENSION snowflake;
		CREATE TABLE source AS SELECT generate_series(1, $per_session) AS n;
		ANALYZE source});
}
wait_for_mint($node, dbname => 'one');

# Three of the eight sessions mint in parallel workers.  The leader takes no
# part, so each of their IDs comes from a worker if any could be had.
my %parallel = (2 => 1, 5 => 1, 8 => 1);

sub session_sql
{
	my ($session) = @_;

	# The columns are evaluated from left to right.  The two readings of the
	# clock must differ as expressions, because a Gather node takes what it
	# finds twice in its workers' output from the first of them.
	my $columns =
	  "$session AS session, n, clock_timestamp() AS before, snowflake_next() AS id, clock_timestamp() + interval '0' AS after";

	return qq{
		SELECT pg_advisory_lock_shared(1);
		SELECT 'first', snowflake_next();
		SET max_parallel_workers_per_gather = 4;
		SET parallel_setup_cost = 0;
		SET parallel_tuple_cost = 0;
		SET min_parallel_table_scan_size = 0;
		SET parallel_leader_participation = off;
		\\o $dir/plan.$session
		EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON)
		CREATE UNLOGGED TABLE minted_$session AS SELECT $columns FROM source;
		\\o
		SELECT 'last', snowflake_next();}
	  if $parallel{$session};

	# one statement after the other, so that there is an order between these
	my $statements = 5;
	my $rows = $per_session / $statements;
	return qq{
		SELECT pg_advisory_lock_shared(1);
		CREATE UNLOGGED TABLE minted_$session
			(session int, n int, before timestamptz, id snowflake, after timestamptz);
	  }
	  . join(
		"\n",
		map {
			my $first = $_ * $rows + 1;
			my $last = $first + $rows - 1;
			"INSERT INTO minted_$session SELECT $columns FROM generate_series($first, $last) n;"
		} 0 .. $statements - 1);
}

# All of them wait for a lock (one in each database), so that they start
# together.
my %gate =
  map { $_ => $node->background_psql($_) } ('one', 'two');
$gate{$_}->query_safe('SELECT pg_advisory_lock(1)') foreach keys %gate;

my @sessions;
foreach my $session (1 .. 8)
{
	my $database = $session % 2 ? 'one' : 'two';
	my %s = (
		database => $database,
		session => $session,
		in => "$dir/in.$session",
		out => "$dir/out.$session",
		err => "$dir/err.$session");

	append_to_file($s{in}, session_sql($session));
	$s{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', $s{in}, '-d', $node->connstr($database) ],
		'>', $s{out}, '2>', $s{err});
	push @sessions, \%s;
}
$node->poll_query_until('postgres',
	q{SELECT count(*) = 8 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted})
  or die "sessions did not start";
$gate{$_}->quit foreach keys %gate;
foreach my $s (@sessions)
{
	$s->{run}->finish;
	is(slurp_file($s->{err}), '', "session $s->{session} mints without an error");
}

# Bring everything together in database one.
$node->safe_psql('one',
	'CREATE UNLOGGED TABLE minted (session int, n int, before timestamptz, id snowflake, after timestamptz)'
);
foreach my $s (@sessions)
{
	$node->safe_psql($s->{database},
		"COPY minted_$s->{session} TO '$dir/minted.$s->{session}' (FORMAT binary)");
	$node->safe_psql('one', "COPY minted FROM '$dir/minted.$s->{session}' (FORMAT binary)");
	unlink "$dir/minted.$s->{session}";
}

# The sessions really ran at the same time, or all this shows nothing.  A busy machine
# can let one of them begin when another has ended, but not when all have.
is( $node->safe_psql(
		'one', q{
		WITH spans AS (SELECT session, min(before) AS first, max(after) AS last
						 FROM minted GROUP BY session)
		SELECT count(*)
		  FROM spans AS a
		 WHERE EXISTS (SELECT FROM spans AS b
						WHERE a.session <> b.session AND a.first < b.last AND b.first < a.last)}),
	'8',
	'each session minted while another one did');

# If one call returned before another started, its ID is the smaller one.
# Seen in the order of IDs: no call returned before a call with a smaller ID
# had started.
my ($count, $equal, $disorder, $early, $late, $lead) = split /\|/, $node->safe_psql(
	'one', qq{
	SELECT count(*),
		   count(*) FILTER (WHERE id = previous),
		   count(*) FILTER (WHERE after < latest_start),
		   count(*) FILTER (WHERE at < before - interval '1 ms'),
		   count(*) FILTER (WHERE at > after + interval '$max_lead' + interval '1 ms'),
		   max(at - after)
	  FROM (SELECT id, before, after, snowflake_timestamp(id) AS at,
				   lag(id) OVER in_order AS previous,
				   max(before) OVER in_order AS latest_start
			  FROM minted
			WINDOW in_order AS (ORDER BY id::bigint ROWS UNBOUNDED PRECEDING)) AS ordered});

is($count, 8 * $per_session, 'two million IDs were minted');
is($equal, 0, 'all of them are distinct');
is($disorder, 0, 'a call that starts after another has returned has a larger ID');
is($early, 0, 'no ID is older than its call');
is($late, 0, 'no ID is ahead of its call by more than max_lead');
note("largest lead: $lead");

my $serial = join(',', grep { !$parallel{$_} } 1 .. 8);
is( $node->safe_psql(
		'one', qq{
		SELECT count(*)
		  FROM (SELECT id <= lag(id) OVER (PARTITION BY session ORDER BY n) AS wrong
				  FROM minted WHERE session IN ($serial)) AS steps
		 WHERE wrong}),
	'0',
	'IDs are strictly increasing within a session');

# The node of the plan that calls snowflake_next() must have done so in its
# workers.
sub find_minting
{
	my ($plan) = @_;

	foreach my $child (@{ $plan->{Plans} || [] })
	{
		my $found = find_minting($child);
		return $found if $found;
	}
	return $plan
	  if grep { /snowflake_next\(\)/ } @{ $plan->{Output} || [] };
	return;
}

foreach my $s (grep { $parallel{ $_->{session} } } @sessions)
{
	my $plan =
	  decode_json(slurp_file("$dir/plan.$s->{session}"))->[0]{Plan};
	my $minting = find_minting($plan);
	my $rows = 0;

	$rows += $_->{'Actual Rows'} * $_->{'Actual Loops'} foreach @{ $minting->{Workers} || [] };
	is($rows, $per_session,
			"session $s->{session}: every ID was minted in a parallel worker ("
		  . scalar(@{ $minting->{Workers} || [] })
		  . ')');

	my ($first, $last) =
	  slurp_file($s->{out}) =~ /^first\|(\d+)\n.*^last\|(\d+)$/ms;
	is( $node->safe_psql(
			'one',
			"SELECT min(id) > '$first', max(id) < '$last' FROM minted WHERE session = $s->{session}"
		),
		't|t',
		"session $s->{session}: they lie between the IDs minted before and after");
}

# One transaction that needs many.
my $insert_select = q{
	CREATE TABLE bulk (n int, id snowflake DEFAULT snowflake_next());
	INSERT INTO bulk (n) SELECT generate_series(1, 10000);
	SELECT count(DISTINCT id), count(*) FILTER (WHERE wrong)
	  FROM (SELECT id, id <= lag(id) OVER (ORDER BY n) AS wrong FROM bulk) AS steps};
is($node->safe_psql('one', $insert_select, extra_params => ['--single-transaction']),
	'10000|0', '10,000 rows in one transaction: distinct, increasing IDs');

# Mint as fast as the server can with eight connections, measuring the lead of
# each ID right after it was minted.  An operator evaluates its left side
# first.
my $lead_script = q{
	INSERT INTO leads
	SELECT count(*), max(snowflake_timestamp(snowflake_next()) - clock_timestamp())
	  FROM generate_series(1, 10000);
};

sub full_speed
{
	my ($server, $seconds) = @_;

	$server->safe_psql(
		'postgres', q{
		CREATE EXTENSION IF NOT EXISTS snowflake;
		CREATE UNLOGGED TABLE leads (ids bigint, lead interval)});
	$server->pgbench(
		"-n -c 8 -T $seconds",
		0,
		[qr{processed: [1-9]}],
		[qr{^$}],
		$server->name . ": $seconds s at full speed without an error",
		{ '002_lead_' . $server->name => $lead_script },
		'postgres');

	my ($ids, $largest, $ok) = split /\|/,
	  $server->safe_psql('postgres',
		"SELECT sum(ids), max(lead), max(lead) <= '$max_lead' FROM leads");
	note($server->name . ": $ids IDs in $seconds s, largest lead $largest");
	is($ok, 't', $server->name . ': never more than max_lead ahead of the clock');
	return;
}

full_speed($node, 5);
$node->stop;

# The same with a sixteenth of the sequence numbers, which any machine runs out
# of: here it is the lead that holds minters back.
my $narrow = new_node(
	'narrow', conf => q{
	snowflake.max_lead = '5ms'
	snowflake.layout = 'time:41 worker:14 sequence:8 epoch:2020-01-01T00:00:00Z'
	max_wal_size = '4GB'
});
$narrow->start;
$narrow->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($narrow);
full_speed($narrow, 1);
is( $narrow->safe_psql(
		'postgres', "SELECT max(lead) > interval '$max_lead' - interval '2 ms' FROM leads"),
	't',
	'which it reaches when there are too few sequence numbers');
is($narrow->safe_psql('postgres', $insert_select, extra_params => ['--single-transaction']),
	'10000|0', 'more IDs in one transaction than fit: distinct, increasing IDs');
is( $narrow->safe_psql(
		'postgres', q{
		SELECT max(id -> 'time') - min(id -> 'time') >= 10000 / 256,
			   max(snowflake_sequence(id))
		  FROM bulk}),
	't|255',
	'which took as many ticks as they need');

$narrow->stop;
done_testing();
