# The statements of doc/migrating.md, run as they are written there: on the application of
# test/migrate, and, for rows with a created_at, on tables of which a tick has more rows than the
# sequence can count.

use SnowflakeDepot;
use SnowflakeTest;

my $document = slurp_file('doc/migrating.md');
my $node = new_node('main', conf => conf());

cmp_ok(scalar(split ' ', $document), '<=', 1500, 'the page is short');
$node->start;
load_depot($node);
$node->safe_psql('depot', 'DROP EXTENSION snowflake_migrate; DROP EXTENSION snowflake');

# Rows with a created_at are below.
my ($section) = $document =~ /^## Rows with a (.*?)^## /ms;
$document =~ s/^## Rows with a .*?(?=^## )//ms;
while ($document =~ /^```sql\n(.*?)^```$/msg)
{
	my $sql = $1;

	next if $sql =~ /^DROP EXTENSION/m;    # 604_generators.pl does
	$node->safe_psql('depot',
		'CREATE TABLE public.orders (id bigserial PRIMARY KEY); INSERT INTO orders VALUES (snowflake_next())'
	) if $sql =~ /snowflake_advance/;
	my ($status, undef, $error) = $node->psql('depot', $sql, timeout => 600);

	is($status, 0, 'runs: ' . ($sql =~ s/\n.*//sr)) or diag($error);
}
is( $node->safe_psql(
		'depot',
		q{INSERT INTO orders DEFAULT VALUES RETURNING pg_typeof(id), id = (SELECT max(id) + 1 FROM orders)}
	),
	'bigint|t',
	'the way back');
is( $node->safe_psql(
		'depot', q{INSERT INTO app.tags (name) VALUES ('new') RETURNING id > 1::bigint << 50}),
	't',
	'new rows have snowflakes');

# Rows with a created_at get IDs of that time, in that order, none twice, and references follow.
# 602_migrate_killed.pl has a trigger, which must not fire.
my ($prepare, $backfill, $index, $column, $move, $make_key, $validate, @rest) =
  $section =~ /^```sql\n(.*?)^```$/msg;

is(scalar(@rest), 0, 'the section has the statements that are tried here');
like($make_key, qr/PRIMARY KEY/, 'and in this order');
query($node, 'CREATE EXTENSION snowflake CASCADE; CREATE EXTENSION snowflake_migrate');
query(
	$node, q{
	CREATE TABLE events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), created_at timestamptz DEFAULT now());
	CREATE TABLE comments (id serial PRIMARY KEY, event_id uuid REFERENCES events, note text);
	INSERT INTO events (created_at)                     -- 5,000 in one millisecond, then some in each that follows, then few
		SELECT '2024-01-01Z' FROM generate_series(1, 5000) UNION ALL
		SELECT '2024-01-01 00:00:00.001Z'::timestamptz + n % 3 * interval '1 ms' FROM generate_series(1, 5000) n UNION ALL
		SELECT '2025-06-01Z'::timestamptz + n * interval '7 h' FROM generate_series(1, 1000) n UNION ALL
		SELECT NULL;
	INSERT INTO comments (event_id) SELECT id FROM events UNION ALL SELECT id FROM events});
query($node, $prepare);

# What cannot be given an ID is said before anything is changed
query($node,
	q{INSERT INTO events (created_at, snowflake_id) VALUES ('2001-01-01Z', NULL), (now() + interval '1 day', NULL), (now() + interval '2 days', NULL)}
);
refuses($node, $backfill, '22008', 'rows that can have no ID are counted',
	message =>
	  qr/^1 rows of table public\.events are dated before the layout's epoch, and 2 in the future$/
);
is(query($node, 'SELECT count(snowflake_id) FROM events'), 0, 'and nothing is changed');
query($node, q{DELETE FROM events WHERE created_at < '2002-01-01Z' OR created_at > now()});
refuses($node, $backfill =~ s/1000/1/r, '22023', 'a node ID that this server mints with');
refuses($node, $backfill =~ s/1000/1024/r, '22023', 'one that is none');

query($node, $backfill);
is( query(
		$node, q{
	SELECT count(snowflake_id), count(*) FILTER (WHERE snowflake_id::bigint <= before::bigint), count(*) FILTER (WHERE snowflake_timestamp(snowflake_id) < created_at),
		max(snowflake_timestamp(snowflake_id) - created_at) FROM (SELECT *, lag(snowflake_id) OVER (ORDER BY created_at, snowflake_id::bigint) AS before FROM events) e}
	),
	'11000|0|0|00:00:00.001',
	'distinct IDs in the order of the times, and no later than a tick that was full makes it');
refuses(
	$node,
	"ALTER TABLE comments ADD COLUMN x snowflake; CALL snowflake_migrate.backfill('public.comments.x', 'created_at', 1000)",
	'22023',
	'another table needs another one',
	message => qr/has been used for public\.events\.snowflake_id/);

query($node, $_) foreach $index, $column, $move, $make_key, $validate;
is( query(
		$node,
		q{SELECT count(*), count(*) FILTER (WHERE e.id = c.event_id) FROM comments c JOIN events e ON e.snowflake_id = c.event_snowflake_id}
	),
	'22002|22002',
	'references follow');

done_testing();
