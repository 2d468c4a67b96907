# The recipes of doc/backfill.md, run as they are written there: rows that have
# a created_at get IDs of that time, in that order, none twice, also where a tick
# has more rows than the sequence can count.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my $document = slurp_file("$FindBin::RealBin/../../doc/backfill.md");
my ($prepare, $few, $many, $check, $make_key, @rest) = $document =~ /^```sql\n(.*?)^```$/msg;

is(scalar(@rest), 0, 'the document has the statements that are tried here');
like($make_key, qr/PRIMARY KEY/, 'and in this order');

# What the second recipe ought to do, one row after the other
my $model = q{
	CREATE FUNCTION model() RETURNS TABLE (id bigint, snowflake_id snowflake) LANGUAGE plpgsql AS $$
	DECLARE
		layout record := snowflake_layout();
		size bigint := 1::bigint << layout.sequence_bits;
		place bigint := -1;
		event record;
	BEGIN
		FOR event IN SELECT * FROM events ORDER BY events.created_at, events.id LOOP
			place := greatest(place + 1,
				size * floor(extract(epoch FROM event.created_at - layout.epoch)
							 / extract(epoch FROM layout.tick))::bigint);
			id := event.id;
			snowflake_id := make_snowflake(layout.epoch + layout.tick * (place / size),
										   1000, (place % size)::integer);
			RETURN NEXT;
		END LOOP;
	END $$};

# A table whose rows' times come from a query, in an order that is not theirs
sub create_events
{
	my ($node, $times) = @_;

	$node->safe_psql(
		'postgres', qq{
		DROP TABLE IF EXISTS events;
		CREATE TABLE events (
			id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			created_at timestamptz NOT NULL DEFAULT now(),
			note text);
		INSERT INTO events (created_at) SELECT at FROM ($times) t (at) ORDER BY md5(at::text), at;
		$prepare});
	return;
}

# How many rows have not the ID of the model
my $unlike_model = q{
	SELECT count(*) FROM events e FULL JOIN model() m USING (id)
	 WHERE e.snowflake_id::bigint IS DISTINCT FROM m.snowflake_id::bigint};
my $filled = q{SELECT count(*), count(snowflake_id) FROM events};

# A year with a few rows now and then, among them some of one tick, of one
# instant, and at both ends of a tick
my $sparse = q{
	SELECT timestamptz '2025-01-01 UTC' + n * interval '2 hours 3 minutes'
	  FROM generate_series(1, 4000) n
	UNION ALL
	SELECT timestamptz '2025-06-01 UTC' + n * interval '90 microseconds'
	  FROM generate_series(0, 2000) n
	UNION ALL
	SELECT timestamptz '2025-07-01 UTC' FROM generate_series(1, 200)
	UNION ALL
	SELECT timestamptz '2025-07-01 UTC' + u * interval '1 microsecond'
	  FROM unnest('{-1,1,999,1000,9999,10000}'::int[]) u};

# A tick of more rows than the sequence of the layout can count (one less, as
# many, one more, and many times as many), with and without rows in those that
# follow
sub dense
{
	my ($size, $tick) = @_;

	return qq{
		SELECT timestamptz '2025-01-01 UTC' FROM generate_series(1, $size)
		UNION ALL
		SELECT timestamptz '2025-01-01 UTC' + interval '$tick' FROM generate_series(1, $size - 1)
		UNION ALL
		SELECT timestamptz '2025-01-02 UTC' FROM generate_series(1, $size + 1)
		UNION ALL
		SELECT timestamptz '2025-01-02 UTC' + 2 * interval '$tick'
		UNION ALL
		SELECT timestamptz '2025-01-03 UTC' + n % 7 * interval '1 microsecond'
		  FROM generate_series(1, 5 * $size / 2) n
		UNION ALL
		SELECT timestamptz '2025-01-03 UTC' + n * interval '$tick' / 3
		  FROM generate_series(1, $size) n};
}

my $node = new_node(
	'twitter',
	node_id => 5,
	conf => "timezone = 'UTC'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$node->safe_psql('postgres', $model);
wait_for_mint($node);

# Few rows in each tick
foreach my $recipe ([ 'first', $few ], [ 'second', $many ])
{
	my ($name, $sql) = @$recipe;

	create_events($node, $sparse);
	$node->safe_psql('postgres', $sql);
	is($node->safe_psql('postgres', $filled),
		'6207|6207', "sparse, $name recipe: each row has an ID");
	like(
		$node->safe_psql('postgres', $check),
		qr/^0\|0\|(?:-00:[^|]*|00:00:00)\|0$/,
		"sparse, $name recipe: passes the document's check, none is late");
	is($node->safe_psql('postgres', $unlike_model),
		'0', "sparse, $name recipe: the IDs of the model");
	is( $node->safe_psql(
			'postgres', q{
			SELECT bool_and(@@ snowflake_id <= created_at AND created_at - @@ snowflake_id < '1 ms'
							AND snowflake_node(snowflake_id) = 1000),
				   max(snowflake_sequence(snowflake_id)) FROM events}),
		't|201',
		"sparse, $name recipe: of the row's tick, of the node, with row numbers as sequence");
}

# A second run finds nothing to do, and rows that were added later are not given
# IDs that there are.
foreach my $recipe ([ 'first', $few ], [ 'second', $many ])
{
	my ($name, $sql) = @$recipe;
	my $ids = 'SELECT md5(string_agg(snowflake_id::text, NULL ORDER BY id)) FROM events';
	my $before = $node->safe_psql('postgres', $ids);

	$node->safe_psql('postgres', $sql);
	is($node->safe_psql('postgres', $ids), $before, "$name recipe: a second run changes nothing");
	$node->safe_psql(
		'postgres',
		q{
		INSERT INTO events (created_at, snowflake_id)
			VALUES ('2025-07-01 UTC', NULL), ('2025-08-01 UTC', NULL)});
	is(error_of($node, $sql)->{sqlstate}, '23505', "$name recipe: refuses to give an ID twice");
	is( $node->safe_psql(
			'postgres', "DELETE FROM events WHERE snowflake_id IS NULL RETURNING 'none'; $ids"),
		"none\nnone\n$before",
		"$name recipe: and then changes nothing");
}

# Make it the key
$node->safe_psql('postgres', "$make_key; ANALYZE events");
is( $node->safe_psql(
		'postgres', q{
		INSERT INTO events (note) VALUES ('new');
		SELECT snowflake_node(snowflake_id), snowflake_id > all_before
		  FROM events, (SELECT max(snowflake_id) AS all_before FROM events WHERE note IS NULL) o
		 WHERE note = 'new'}),
	'5|t',
	'new rows get new IDs, of the node ID of the server');
my $period = q{
	@@ snowflake_id >= timestamptz '2025-06-01 UTC' AND @@ snowflake_id < timestamptz '2025-06-02 UTC'};
is( $node->safe_psql('postgres', "SELECT count(*) FROM events WHERE $period"),
	$node->safe_psql(
		'postgres',
		q{
		SELECT count(*) FROM events
		 WHERE created_at >= '2025-06-01 UTC' AND created_at < '2025-06-02 UTC'}),
	'the key finds the rows of a period');
like(
	$node->safe_psql(
		'postgres', qq{
		SET enable_seqscan = off;
		EXPLAIN (COSTS OFF) SELECT FROM events WHERE $period}),
	qr/events_snowflake_id.*Index Cond/s,
	'by its index');

# More rows in a tick than the sequence can count
create_events($node, dense(4096, '1 ms'));
my $rows = 4096 + 4095 + 4097 + 1 + 10240 + 4096;
my $error = error_of($node, $few);
is($error->{sqlstate}, '22003', 'dense: the first recipe does not wrap around');
like(
	$error->{message},
	qr/sequence 4096 is out of range/,
	'dense: but says which sequence it would need');
is($node->safe_psql('postgres', $filled), "$rows|0", 'dense: and changes nothing');
$node->safe_psql('postgres', $many);
is($node->safe_psql('postgres', $filled),
	"$rows|$rows", 'dense: the second recipe gives each row an ID');
like(
	$node->safe_psql('postgres', $check),
	qr/^0\|0\|00:00:00\.00\d+\|0$/,
	"dense: passes the document's check, the latest by milliseconds");
is($node->safe_psql('postgres', $unlike_model), '0', 'dense: the IDs of the model');
is( $node->safe_psql(
		'postgres', q{
		SELECT count(*) FILTER (WHERE @@ snowflake_id = created_at + '1 ms'), count(*),
			   max(snowflake_sequence(snowflake_id)) FROM events
		 WHERE created_at IN ('2025-01-01 UTC', '2025-01-01 00:00:00.001 UTC',
							  '2025-01-02 UTC', '2025-01-02 00:00:00.002 UTC')}),
	'1|12289|4095',
	'dense: a row more than a tick has places moves on by one tick, all others stay');
is( $node->safe_psql(
		'postgres', q{
		SELECT string_agg(rows::text, ' ' ORDER BY at)
		  FROM (SELECT @@ snowflake_id AS at, count(*) AS rows FROM events
				 WHERE @@ snowflake_id >= timestamptz '2025-01-03 UTC'
				   AND @@ snowflake_id < timestamptz '2025-01-03 00:00:00.003 UTC' GROUP BY 1) t}
	),
	'4096 4096 2056',
	'dense: the rows that follow take the places that are left');

# A row without a time is left without an ID, and counted
foreach my $recipe ([ 'first', $few ], [ 'second', $many ])
{
	my ($name, $sql) = @$recipe;

	create_events($node,
		q{SELECT timestamptz '2025-01-01 UTC' + n * interval '1 minute' FROM generate_series(1, 10) n}
	);
	$node->safe_psql(
		'postgres', q{
		ALTER TABLE events ALTER created_at DROP NOT NULL;
		INSERT INTO events (created_at, snowflake_id) VALUES (NULL, NULL), (NULL, NULL)});
	$node->safe_psql('postgres', $sql);
	is($node->safe_psql('postgres', $filled),
		'12|10', "no time, $name recipe: rows without one get no ID");
	like($node->safe_psql('postgres', $check),
		qr/^2\|0\|[^|]*\|2$/, "no time, $name recipe: the check counts them");
	$node->safe_psql('postgres',
		'UPDATE events SET snowflake_id = snowflake_next() WHERE snowflake_id IS NULL');
	like($node->safe_psql('postgres', $check),
		qr/^0\|0\|[^|]*\|2$/, "no time, $name recipe: with an ID of today all have one");
}

# A time that the layout does not have is an error, with either
create_events($node, q{SELECT timestamptz '2001-01-01 UTC' UNION ALL SELECT '2025-01-01 UTC'});
is(error_of($node, $_)->{sqlstate}, '22008', 'a time before the epoch') foreach $few, $many;
create_events($node, q{SELECT timestamptz '2101-01-01 UTC' UNION ALL SELECT '2025-01-01 UTC'});
is(error_of($node, $_)->{sqlstate}, '22008', "a time after the layout's end") foreach $few, $many;
$node->stop;

# A layout of another order of fields, tick and epoch
my $sony = new_node(
	'sonyflake',
	node_id => 5,
	conf => "timezone = 'UTC'\nsnowflake.layout = 'sonyflake'");
$sony->start;
$sony->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$sony->safe_psql('postgres', $model);
wait_for_mint($sony);

create_events($sony, dense(256, '10 ms'));
$rows = 256 + 255 + 257 + 1 + 640 + 256;
is(error_of($sony, $few)->{sqlstate}, '22003', 'sonyflake: the first recipe does not wrap around');
$sony->safe_psql('postgres', $many);
is($sony->safe_psql('postgres', $filled),
	"$rows|$rows", 'sonyflake: the second recipe gives each row an ID');
like(
	$sony->safe_psql('postgres', $check),
	qr/^0\|0\|00:00:00\.0\d+\|0$/,
	"sonyflake: passes the document's check");
is($sony->safe_psql('postgres', $unlike_model), '0', 'sonyflake: the IDs of the model');
is( $sony->safe_psql(
		'postgres', 'SELECT bool_and(snowflake_node(snowflake_id) = 1000) FROM events'),
	't',
	'sonyflake: of the node');

$sony->stop;
done_testing();
