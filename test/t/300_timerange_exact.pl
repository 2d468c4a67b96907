# Comparisons of snowflakes with times find the rows that the times in the IDs
# say, for every kind of layout: as the planner rewrites them for constants, for
# expressions, with and without an index, against plain comparisons of
# timestamptz.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(new_node);
use Test::More;

my $rows = 15_000;
my $constants = 60;

my $node = new_node('main', node_id => undef);
$node->start;
$node->safe_psql('postgres', q{
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

-- A time at, before or after that of an ID, or anywhere at all.
CREATE FUNCTION random_time(id snowflake) RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
	SELECT CASE floor(random() * 10)
		WHEN 0 THEN 'infinity'
		WHEN 1 THEN '-infinity'
		WHEN 2 THEN epoch + (random() * 3 - 1.5) * tick
		WHEN 3 THEN last_instant + (random() * 3 - 1.5) * tick
		WHEN 4 THEN timestamptz '1900-01-01' + random() * interval '300 years'
		WHEN 5 THEN @ id
		WHEN 6 THEN (@ id) + interval '1 us'
		WHEN 7 THEN (@ id) - interval '1 us'
		ELSE (@ id) + (random() * 3 - 1.5) * tick END
	FROM snowflake_layout()
$$;
CREATE FUNCTION random_range(a timestamptz, b timestamptz) RETURNS tstzrange LANGUAGE sql VOLATILE AS $$
	SELECT CASE WHEN random() < 0.05 THEN 'empty'
		ELSE tstzrange(CASE WHEN random() < 0.1 THEN NULL ELSE least(a, b) END,
					   CASE WHEN random() < 0.1 THEN NULL ELSE greatest(a, b) END,
					   (ARRAY['[]', '[)', '(]', '()'])[1 + floor(random() * 4)]) END
$$;

CREATE TABLE cases (id snowflake, at timestamptz, ts timestamptz, period tstzrange);
CREATE INDEX ON cases (id);

-- How often a constant's comparison differs from the plain one, by an index
-- and without.
CREATE FUNCTION wrong_constants(n int, OUT tried bigint, OUT wrong bigint) LANGUAGE plpgsql AS $$
DECLARE
	c record;
	q record;
	plain bigint;
	found bigint;
	indexed bool;
BEGIN
	tried := 0;
	wrong := 0;
	FOR c IN SELECT ts, period FROM cases ORDER BY random() LIMIT n LOOP
		FOR q IN SELECT * FROM (VALUES
				(format('id < %L::timestamptz', c.ts), format('at < %L', c.ts)),
				(format('id <= %L::timestamptz', c.ts), format('at <= %L', c.ts)),
				(format('id > %L::timestamptz', c.ts), format('at > %L', c.ts)),
				(format('id >= %L::timestamptz', c.ts), format('at >= %L', c.ts)),
				(format('%L::timestamptz < id', c.ts), format('at > %L', c.ts)),
				(format('NOT %L::timestamptz <= id', c.ts), format('at < %L', c.ts)),
				(format('id <@ %L::tstzrange', c.period), format('at <@ %L::tstzrange', c.period)),
				(format('NOT %L::tstzrange @> id', c.period), format('NOT at <@ %L::tstzrange', c.period)))
				AS v(by_id, by_time) LOOP
			EXECUTE 'SELECT count(*) FROM cases WHERE ' || q.by_time INTO plain;
			FOREACH indexed IN ARRAY ARRAY[true, false] LOOP
				PERFORM set_config('enable_indexscan', indexed::text, true),
					set_config('enable_indexonlyscan', indexed::text, true),
					set_config('enable_bitmapscan', indexed::text, true),
					set_config('enable_seqscan', (NOT indexed)::text, true);
				EXECUTE 'SELECT count(*) FROM cases WHERE ' || q.by_id INTO found;
				IF found <> plain THEN
					RAISE WARNING '%: % rows, not %', q.by_id, found, plain;
					wrong := wrong + 1;
				END IF;
				tried := tried + 1;
			END LOOP;
		END LOOP;
	END LOOP;
END $$;
});

my $compared = 0;

foreach my $layout (
	'twitter', 'sonyflake', 'baidu', 'mastodon', 'javascript',
	'time:42 node:8 sequence:13 tick:7s epoch:1533041282000',
	'time:51 sequence:12 tick:3us epoch:0',
	'time:10 node:3 sequence:2 tick:1s epoch:2026-01-01T00:00:00Z')
{
	$node->adjust_conf('postgresql.conf', 'snowflake.layout', "'$layout'");
	$node->restart;
	$node->safe_psql('postgres', qq{
		TRUNCATE cases;
		INSERT INTO cases
			SELECT id, \@ id, random_time(id), random_range(random_time(id), random_time(id))
			FROM (SELECT random_id() AS id FROM generate_series(1, $rows) OFFSET 0) r;
		ANALYZE cases});

	my ($n, $wrong) = split /\|/, $node->safe_psql('postgres', q{
		SELECT count(*), count(*) FILTER (WHERE
			(id < ts) <> (at < ts) OR (id <= ts) <> (at <= ts)
			OR (id > ts) <> (at > ts) OR (id >= ts) <> (at >= ts)
			OR (ts < id) <> (ts < at) OR (ts <= id) <> (ts <= at)
			OR (ts > id) <> (ts > at) OR (ts >= id) <> (ts >= at)
			OR (id <@ period) <> (at <@ period) OR (period @> id) <> (period @> at))
		FROM cases});
	is($wrong, 0, "$layout: $n rows compare with times as their times do");
	$compared += $n;

	my ($tried, $different) = split /\|/,
	  $node->safe_psql('postgres', "SELECT * FROM wrong_constants($constants)");
	is($different, 0,
		"$layout: $tried queries with constants find the rows of the plain ones, with and without an index");
}
cmp_ok($compared, '>=', 100_000, 'that many IDs, times and ranges were tried');

$node->stop;
done_testing();
