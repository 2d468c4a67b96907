# Filters on the times of snowflakes find the same rows as plain comparisons of
# timestamptz, for every kind of layout: as the planner rewrites them for constants and for
# times of other rows, with and without an index.  SNOWFLAKE_TEST_ROWS is the number of IDs
# of each layout.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use Test::More;

my $rows = $ENV{SNOWFLAKE_TEST_ROWS} || 1_000;
my $constants = 25;

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

-- A tick or so away, but not past the last timestamptz.
CREATE FUNCTION random_near(ts timestamptz, tick interval) RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
	SELECT ts + (random() * CASE WHEN ts < '294276-01-01' THEN 3 ELSE 1.5 END - 1.5) * tick
$$;

-- A time at, before or after that of an ID, or anywhere at all.
CREATE FUNCTION random_time(id snowflake) RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
	SELECT CASE floor(random() * 10)
		WHEN 0 THEN 'infinity'
		WHEN 1 THEN '-infinity'
		WHEN 2 THEN random_near(epoch, tick)
		WHEN 3 THEN random_near(last_instant, tick)
		WHEN 4 THEN timestamptz '1900-01-01' + random() * interval '300 years'
		WHEN 5 THEN @@ id
		WHEN 6 THEN (@@ id) + interval '1 us'
		WHEN 7 THEN (@@ id) - interval '1 us'
		ELSE random_near(@@ id, tick) END
	FROM snowflake_layout()
$$;
CREATE FUNCTION random_range(a timestamptz, b timestamptz) RETURNS tstzrange LANGUAGE sql VOLATILE AS $$
	SELECT CASE WHEN random() < 0.05 THEN 'empty'
		ELSE tstzrange(CASE WHEN random() < 0.1 THEN NULL ELSE least(a, b) END,
					   CASE WHEN random() < 0.1 THEN NULL ELSE greatest(a, b) END,
					   (ARRAY['[]', '[)', '(]', '()'])[1 + floor(random() * 4)]) END
$$;

-- What no timestamptz can say is among them.
CREATE FUNCTION random_local(ts timestamptz) RETURNS timestamp LANGUAGE sql VOLATILE AS $$
	SELECT CASE floor(random() * 20)
		WHEN 0 THEN '4713-01-01 BC'
		WHEN 1 THEN '294276-12-31 23:59:59.999999'
		ELSE ts END
$$;
CREATE FUNCTION random_day(ts timestamptz) RETURNS date LANGUAGE sql VOLATILE AS $$
	SELECT CASE floor(random() * 20)
		WHEN 0 THEN '4713-01-01 BC'
		WHEN 1 THEN '294277-01-01'
		WHEN 2 THEN '5874897-12-31'
		ELSE ts::date END
$$;

CREATE TABLE cases (id snowflake, number bigint, at timestamptz, ts timestamptz, local timestamp, day date, period tstzrange);
CREATE INDEX ON cases (id);
CREATE INDEX ON cases (number);
CREATE VIEW decoded AS SELECT *, @@ id AS t, snowflake_timestamp(number) AS u FROM cases;

-- How often a constant's comparison differs from the plain one, by an index
-- and without.
CREATE FUNCTION wrong_constants(n int, OUT tried bigint, OUT wrong bigint) LANGUAGE plpgsql AS $$
DECLARE
	c record;
	q record;
	plain bigint;
	found bigint;
	line text;
	indexed bool;
	unit text;
BEGIN
	tried := 0;
	wrong := 0;
	FOR c IN SELECT * FROM cases ORDER BY random() LIMIT n LOOP
		unit := (ARRAY['microseconds', 'milliseconds', 'second', 'minute', 'hour', 'day', 'week', 'month'])[1 + floor(random() * 8)];
		PERFORM set_config('timezone', (ARRAY['UTC', 'Asia/Kathmandu', 'Europe/Berlin', 'Pacific/Apia'])[1 + floor(random() * 4)], true);
		FOR q IN SELECT * FROM (VALUES
				(format('t < %L', c.ts), format('at < %L', c.ts)),
				(format('u <= %L', c.ts), format('at <= %L', c.ts)),
				(format('t = %L', c.ts), format('at = %L', c.ts)),
				(format('t = %L', c.at), format('at = %L', c.at)),
				(format('%L::timestamptz < t', c.ts), format('at > %L', c.ts)),
				(format('t <= %L::timestamp', c.local), format('at <= %L::timestamp', c.local)),
				(format('u = %L::timestamp', c.local), format('at = %L::timestamp', c.local)),
				(format('%L::date <= t', c.day), format('at >= %L::date', c.day)),
				(format('%L::date > u', c.day), format('at < %L::date', c.day)),
				(format('t >= %L', c.ts), format('at >= %L', c.ts)),
				(format('NOT %L::timestamptz <= u', c.ts), format('at < %L', c.ts)),
				(format('t IN (%L, %L)', c.ts, c.at), format('at IN (%L, %L)', c.ts, c.at)),
				(format('t <@ %L::tstzrange', c.period), format('at <@ %L::tstzrange', c.period)),
				(format('%L::tstzrange @> u', c.period), format('at <@ %L::tstzrange', c.period)),
				(format('t <@ (%L::tstzmultirange + %L::tstzmultirange)', tstzmultirange(c.period), tstzmultirange(tstzrange(c.at, c.at, '[]'))),
					format('at <@ %L::tstzrange OR at = %L', c.period, c.at)),
				(format('(t, id) < (%L, %L)', c.ts, c.id), format('(at, id) < (%L, %L)', c.ts, c.id)),
				(format('(u, number) >= (%L, %L)', c.at, c.number), format('(at, number) >= (%L, %L)', c.at, c.number)),
				-- the time that is truncated is the start of a tick, however long that is: there is no margin
				(format('date_trunc(%L, t) = date_trunc(%L, %L::timestamptz)', unit, unit, c.at),
					format('date_trunc(%L, at) = date_trunc(%L, %L::timestamptz)', unit, unit, c.at)),
				(format('date_trunc(%L, u) >= %L::timestamptz', unit, c.ts), format('date_trunc(%L, at) >= %L::timestamptz', unit, c.ts)),
				(format('date_trunc(%L, t, ''UTC'') < %L::timestamptz', unit, c.at), format('date_trunc(%L, at, ''UTC'') < %L::timestamptz', unit, c.at)),
				(format('date_trunc(%L, u AT TIME ZONE ''Asia/Kathmandu'') <= %L::timestamp', unit, c.local),
					format('date_trunc(%L, at AT TIME ZONE ''Asia/Kathmandu'') <= %L::timestamp', unit, c.local)),
				(format('t::date = %L::date', c.at), format('at::date = %L::date', c.at)),
				(format('u::timestamp > %L::timestamp', c.at), format('at::timestamp > %L::timestamp', c.at)))
				AS v(by_id, by_time) LOOP
			EXECUTE 'SELECT count(*) FROM cases WHERE ' || q.by_time INTO plain;
			FOREACH indexed IN ARRAY ARRAY[true, false] LOOP
				PERFORM set_config('enable_indexscan', indexed::text, true),
					set_config('enable_indexonlyscan', indexed::text, true),
					set_config('enable_bitmapscan', indexed::text, true),
					set_config('enable_seqscan', (NOT indexed)::text, true);
				EXECUTE 'SELECT count(*) FROM decoded WHERE ' || q.by_id INTO found;
				IF found <> plain THEN
					RAISE WARNING '%: % rows, not %', q.by_id, found, plain;
					wrong := wrong + 1;
				END IF;
				tried := tried + 1;
				-- otherwise it would be compared with itself
				FOR line IN EXECUTE 'EXPLAIN SELECT FROM decoded WHERE ' || q.by_id LOOP
					IF line ~ '(@@ |snowflake_timestamp)' AND q.by_id !~ '(date_trunc|::timestamp >|::date = .*::date)' THEN
						RAISE WARNING '%: decoded in %', q.by_id, line;
						wrong := wrong + 1;
					END IF;
				END LOOP;
			END LOOP;
		END LOOP;
	END LOOP;
END $$;
});

my $compared = 0;

foreach my $layout (
	'twitter',
	'sonyflake',
	'javascript',
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
			SELECT id, id, \@\@ id, ts, random_local(ts), random_day(ts), random_range(random_time(id), random_time(id))
			FROM (SELECT id, random_time(id) AS ts
				FROM (SELECT random_id() AS id FROM generate_series(1, $rows) OFFSET 0) r OFFSET 0) r;
		ANALYZE cases});

	# constants, of which the planner knows the time: the last ID that there is, and the next one
	my $last = sql(q{SELECT snowflake_upper_bound('infinity')});
	foreach my $decoded ('@@ ID', 'snowflake_timestamp(ID)', 'ID::timestamptz')
	{
		my $of_last = $decoded =~ s/ID/'$last'::snowflake/r;
		my $of_next = $decoded =~ s/ID/'@{[ $last + 1 ]}'::snowflake/r;

		is(sql("SELECT $of_last = last_instant FROM snowflake_layout()"),
			't', "$layout: $decoded of the last ID");
		refuses($node, "SELECT $of_next", '22003', "$layout: $decoded of a larger ID")
		  if $last < 9223372036854775807;
	}

	# the time that an ID says, decoded by the server's layout or by that in the call,
	# beside each type of time of another row, either way round, in a time zone with gaps
	foreach my $time (
		'@@ c.id',
		'snowflake_timestamp(c.number)',
		"snowflake_timestamp(c.id, '$layout')",
		"snowflake_timestamp(c.number, '$layout')")
	{
		my @conditions;

		foreach my $op ('<', '<=', '>', '>=')
		{
			push @conditions,
			  map { [ "$time $op x.$_", "c.at $op x.$_" ], [ "x.$_ $op $time", "x.$_ $op c.at" ] }
			  qw(ts local day);
		}
		push @conditions, [ "$time <@ x.period", 'c.at <@ x.period' ],
		  [ "x.period @> $time", 'x.period @> c.at' ], [ "$time = x.at", 'c.at = x.at' ],
		  [ "$time = ANY (ARRAY[x.at, x.ts])", 'c.at = ANY (ARRAY[x.at, x.ts])' ];
		my $query = "SELECT count(*), count(*) FILTER (WHERE " . join(
			' OR ',
			map {
				"(SELECT count(*) FROM cases c WHERE $_->[0]) <> (SELECT count(*) FROM cases c WHERE $_->[1])"
			} @conditions) . ") FROM (SELECT * FROM cases ORDER BY random() LIMIT 20) x";

		unlike(
			sql("EXPLAIN VERBOSE $query"),
			qr/\(@@ |snowflake_timestamp/,
			"$layout: $time is decoded in no comparison");
		my ($n, $wrong) =
		  split /\|/, sql("SET timezone = 'America/New_York'; $query");
		is($wrong, 0,
			"$layout: $time compares with times as a plain one: $n times in @{[ scalar @conditions ]} conditions"
		);
		$compared += $n * $rows * @conditions;
	}

	my ($tried, $different) = split /\|/, sql("SELECT * FROM wrong_constants($constants)");
	is($different, 0,
		"$layout: $tried queries with constants find the rows of the plain ones, with and without an index"
	);
}
cmp_ok($compared, '>=', 1_000_000, "$compared comparisons");

$node->stop;
done_testing();
