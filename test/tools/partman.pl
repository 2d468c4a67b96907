# pg_partman accepts a bigint key that snowflakes fill, by intervals of
# numbers, and refuses a column of the type.  The statements of doc/tools.md
# are run as they are written there.

use SnowflakeTest;

my ($partman) = slurp_file('doc/tools.md') =~ /^(## pg_partman.*?)^## /ms;
my ($create) = $partman =~ /^```sql\n(.*?)^```$/ms;
my %parent = $partman =~ /^<!-- pg_partman (\d+) -->\n```sql\n(.*?)^```$/msg;

# in the default layout a millisecond is 2^22 numbers
my $day = 24 * 60 * 60 * 1000 << 22;

# partitions begin at multiples of the interval, so at midnight if the epoch does
my $node = new_node(
	'main', conf => q{
snowflake.layout = 'twitter epoch:2026-01-01T00:00:00Z'
timezone = 'UTC'
});

# The partitions that have a time: the day each begins, from today, and its rows.
my $partitions = q{
	SELECT snowflake_timestamp(split_part(p.partition_tablename, '_p', 2)::bigint) - current_date,
		   (SELECT count(*) FROM log WHERE tableoid = p.partition_tablename::regclass)
	FROM partman.show_partitions('public.log') p};

$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION snowflake;
	CREATE SCHEMA partman;
	CREATE EXTENSION pg_partman SCHEMA partman;
	CREATE TABLE typed (id snowflake PRIMARY KEY DEFAULT snowflake_next()) PARTITION BY RANGE (id);
});
wait_for_mint($node);
my $version =
  $node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'pg_partman'});
diag "pg_partman $version";
my ($major) = $version =~ /^(\d+)/;
my $native = $major < 5 ? q{'native', } : '';
$create .= $parent{$major} // die "the page has no version $major";

like(
	error_of($node, qq{SELECT partman.create_parent('public.typed', 'id', $native'$day')})
	  ->{message},
	qr/only supports partitioning of data types that are integer/,
	'a column of the type is refused');

like($create, qr/'$day'/, 'the interval of the page is a day');
$node->safe_psql('postgres',
	"$create INSERT INTO log (line) SELECT 'today' FROM generate_series(1, 10)");
is( $node->safe_psql('postgres', "$partitions ORDER BY 1"),
	"00:00:00|10\n1 day|0\n2 days|0\n3 days|0\n4 days|0",
	'a bigint key: each partition is a day in UTC, and what is minted is in that of today');

# maintenance goes by the largest key, whatever the clock says
$node->safe_psql(
	'postgres', q{
	INSERT INTO log VALUES (snowflake_lower_bound(date_trunc('day', now(), 'UTC') + interval '2 days'), 'ahead');
	SELECT partman.run_maintenance('public.log');
});
is($node->safe_psql('postgres', "$partitions ORDER BY 1 DESC LIMIT 1"),
	'6 days|0', 'run_maintenance() makes the next ones');

$node->safe_psql(
	'postgres', qq{
	UPDATE partman.part_config SET retention = '$day', retention_keep_table = false;
	SELECT partman.run_maintenance('public.log');
});
is($node->safe_psql('postgres', "$partitions ORDER BY 1 LIMIT 1"),
	'1 day|0', 'retention, as a number, drops those that are older');
is( $node->safe_psql(
		'postgres',
		q{SELECT string_agg(line, ',') FROM log WHERE id >= snowflake_lower_bound(now())}),
	'ahead',
	'what is left can be found by time');
like(
	$node->safe_psql(
		'postgres',
		q{EXPLAIN SELECT * FROM log WHERE id >= snowflake_lower_bound(date_trunc('day', now(), 'UTC') + interval '2 days')}
	),
	qr/Subplans Removed: [1-9]/,
	'the rest is pruned');

# One row far ahead, and all days until then are wanted in one transaction.  Those that are near have
# none then.
if ($major < 5)
{
	my $before = $node->safe_psql('postgres', $partitions);

	$node->safe_psql('postgres',
		q{INSERT INTO log VALUES (snowflake_lower_bound('2050-06-01Z'), 'far ahead')});
	is(error_of($node, q{SELECT partman.run_maintenance('public.log')})->{sqlstate},
		'P0001', 'a row far ahead makes maintenance fail');
	is($node->safe_psql('postgres', $partitions), $before, 'and nothing is made');
	$node->safe_psql('postgres', q{DELETE FROM log WHERE line = 'far ahead'});
}

# by milliseconds
$node->safe_psql(
	'postgres', qq{
	CREATE TABLE wrong (id bigint PRIMARY KEY DEFAULT snowflake_next()) PARTITION BY RANGE (id);
	SELECT partman.create_parent('public.wrong', 'id', $native}
	  . ($major < 5 ? q{'daily'} : q{'1 day'}) . q{, p_epoch := 'milliseconds');
	INSERT INTO wrong DEFAULT VALUES});
is($node->safe_psql('postgres', 'SELECT tableoid::regclass FROM wrong'),
	'wrong_default', 'p_epoch: the default partition has the rows');

done_testing();
