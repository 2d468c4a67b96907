# Filters on the times of snowflakes find the same rows as plain comparisons of timestamptz, for every
# kind of layout, with and without an index.  (test/fuzz/times.pl has the other types of times, and
# ranges, with one layout.)
# long

use SnowflakeTest;

my $node = new_node('main', node_id => undef);
sub sql { return query($node, @_); }

$node->start;
sql(q{
CREATE EXTENSION snowflake;

-- Any ID of the layout, but most of them near a few instants, so that ticks
-- and their neighbours meet.
CREATE FUNCTION random_id() RETURNS snowflake LANGUAGE sql VOLATILE AS $$
	SELECT least(greatest(CASE WHEN random() < 0.3
			THEN (random() * max)::numeric
			ELSE snowflake_lower_bound(epoch + (random() * 3)::int * (last_instant - epoch) / 4)::bigint
				+ ((random() - 0.5) * 4 * power(2::numeric, node_bits + sequence_bits))::numeric
			END, 0), max)::bigint::snowflake
	FROM (SELECT l.*, snowflake_upper_bound('infinity')::bigint::numeric AS max FROM snowflake_layout() l) l
$$;

-- A time at or around that of an ID, or an end of the layout, or anywhere at all.
CREATE FUNCTION random_time(id snowflake) RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
	SELECT CASE floor(random() * 10)
		WHEN 0 THEN 'infinity'
		WHEN 1 THEN '-infinity'
		WHEN 2 THEN timestamptz '1900-01-01' + random() * interval '300 years'
		ELSE (ARRAY[epoch, last_instant, @@ id, @@ id, @@ id])[1 + floor(random() * 5)]
			+ (ARRAY['0', '1 us', '-1 us', (random() * 3 - 1.5) * tick, (random() * 3 - 1.5) * tick])[1 + floor(random() * 5)] END
	FROM snowflake_layout()
$$;

CREATE TABLE cases (id snowflake, number bigint, at timestamptz, ts timestamptz);
CREATE INDEX ON cases (id);
CREATE INDEX ON cases (number);
});

# How many rows x have another number of rows c by one of two conditions than by the other
sub count_of_wrong
{
	return 'count(*) FILTER (WHERE ' . join(
		' OR ',
		map {
			"(SELECT count(*) FROM cases c WHERE $_->[0]) <> (SELECT count(*) FROM cases c WHERE $_->[1])"
		} @_) . ')';
}

foreach my $layout (
	'twitter', 'sonyflake',
	'time:42 node:8 sequence:13 tick:700ms epoch:1533041282000',
	'time:51 sequence:12 tick:3us epoch:0',
	'time:10 node:3 sequence:2 tick:1s epoch:2026-01-01T00:00:00Z')
{
	$node->append_conf('postgresql.conf', "snowflake.layout = '$layout'");
	$node->restart;
	is(sql('SHOW snowflake.layout'), $layout, "$layout: it is the server's");
	sql(qq{
		TRUNCATE cases;
		INSERT INTO cases
			SELECT id, id, \@\@ id, random_time(id)
			FROM (SELECT random_id() AS id FROM generate_series(1, 1000) OFFSET 0) r;
		ANALYZE cases});

	# the time that an ID says, decoded by the server's layout, or by that in the call, beside a time of
	# another row, either way round, with an index and without
	foreach my $time ('@@ c.id', "snowflake_timestamp(c.number, '$layout')")
	{
		my $settings =
		  $time =~ /number/ ? 'SET enable_seqscan = off;' : 'SET enable_indexscan = off;';
		my @conditions =
		  map { [ "$time $_ x.ts", "c.at $_ x.ts" ], [ "x.ts $_ $time", "x.ts $_ c.at" ] } '<',
		  '<=', '>', '>=';
		push @conditions, [ "$time = x.at", 'c.at = x.at' ],
		  [ "$time = ANY (ARRAY[x.at, x.ts])", 'c.at = ANY (ARRAY[x.at, x.ts])' ];
		unlike(
			sql("EXPLAIN VERBOSE SELECT @{[ count_of_wrong(@conditions) ]} FROM cases x"),
			qr/\(@@ |snowflake_timestamp/,
			"$layout: $time is decoded in no comparison");

		# a time that is truncated may begin within a tick
		push @conditions, map {
			[
				"date_trunc('$_', $time) = date_trunc('$_', x.at)",
				"date_trunc('$_', c.at) = date_trunc('$_', x.at)"
			]
		} 'milliseconds', 'second', 'day';
		is( sql(    "$settings SET timezone = 'America/New_York'; SELECT count(*), "
				  . count_of_wrong(@conditions)
				  . ' FROM (SELECT * FROM cases ORDER BY random() LIMIT 10) x'),
			'10|0',
			"$layout: $time compares with ten times as a plain one, in @{[ scalar @conditions ]} conditions"
		);
	}
}

done_testing();
