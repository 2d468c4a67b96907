-- Times as bounds on IDs: what stands in plans, and which rows that finds.
SET timezone = 'UTC';
CREATE TABLE events (id snowflake PRIMARY KEY, at timestamptz);
INSERT INTO events
	SELECT make_snowflake(ts, n::int % 1024, n::int % 4096), ts
	FROM generate_series(timestamptz '2026-01-01', '2026-01-31', '10 min') WITH ORDINALITY AS g(ts, n);
CREATE TABLE shifts (starts timestamptz, ends timestamptz, during tstzrange);
INSERT INTO shifts VALUES ('2026-01-03 06:00', '2026-01-03 14:00', '[2026-01-03 06:00,2026-01-03 14:00)'),
	('2026-01-04 06:00', '2026-01-04 07:00', '[2026-01-04 06:00,2026-01-04 07:00)');
ANALYZE events, shifts;

-- BRIN.
SET enable_indexscan = off;
SET enable_seqscan = off;
CREATE INDEX events_brin ON events USING brin (id) WITH (pages_per_range = 2);
ALTER TABLE events DROP CONSTRAINT events_pkey;
EXPLAIN (COSTS OFF) SELECT count(*) FROM events WHERE @@ id >= now() - interval '1 day';
SELECT count(*) FROM events WHERE @@ id <@ tstzrange('2026-01-02', '2026-01-03');
RESET enable_seqscan;
RESET enable_indexscan;
DROP INDEX events_brin;
ALTER TABLE events ADD PRIMARY KEY (id);

-- A range whose times are in the wrong order is an error where it is made, and so is a layout of another table that is none:
-- not for rows that core would make them for neither.
INSERT INTO shifts SELECT ends, starts FROM shifts;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT query, code, message FROM unnest(ARRAY[
	'FROM shifts JOIN events ON @@ id <@ tstzrange(least(starts, ends), greatest(starts, ends))',
	$$FROM shifts JOIN events ON at < '2026-01-01' AND @@ id <@ tstzrange(starts, ends)$$,
	$$FROM shifts JOIN events ON at < '2026-01-01' AND @@ id <@ tstzrange(starts, ends, '(]')$$,
	$$FROM shifts JOIN events ON at < '2026-01-01' AND @@ id <@ (tstzrange(starts, ends) * '(,)')$$,
	$$FROM shifts WHERE 0 = (SELECT count(*) FROM events WHERE at < '2026-01-01' AND @@ id <@ tstzrange(starts, ends))$$,
	$$FROM shifts WHERE 0 = (SELECT count(*) FROM events WHERE at < '2026-01-01' AND @@ id <@ tstzmultirange(tstzrange(starts, ends)))$$,
	$$FROM (VALUES ('twitter'), ('no layout')) AS l(layout) JOIN events ON at < '2026-01-01' AND snowflake_timestamp(id, layout) < timestamptz '2026-01-02'$$]) AS query,
	LATERAL outcome('SELECT count(*) ' || query);
SELECT plan_has($$SELECT FROM shifts JOIN events ON @@ id <@ tstzrange(starts, ends, '[]')$$, 'Index Cond: .*snowflake_before.*snowflake_until') AS by_index,
	plan_has($$SELECT FROM shifts JOIN events ON @@ id <@ (tstzrange(starts, ends) * '(,)')$$, 'Index Cond') AS left_to_core;
RESET enable_hashjoin;
RESET enable_mergejoin;
DELETE FROM shifts WHERE during IS NULL;

-- The same rows as by the time that is stored, for ranges of every kind; single times are in timefilter.
SELECT r.period, (SELECT count(*) FROM events WHERE @@ id <@ r.period) = (SELECT count(*) FROM events WHERE at <@ r.period) AS contained,
	(SELECT count(*) FROM events WHERE r.period @> @@ id) = (SELECT count(*) FROM events WHERE at <@ r.period) AS contains,
	(SELECT count(*) FROM events WHERE NOT @@ id <@ r.period) = (SELECT count(*) FROM events WHERE NOT at <@ r.period) AS not_contained
	FROM unnest(ARRAY['empty', '(,)', '[,]', '[2026-01-05,2026-01-06)', '(2026-01-05,2026-01-06]', '[2026-01-05,2026-01-05]',
		'(2026-01-05,)', '[2026-01-05,)', '(,2026-01-05)', '(,2026-01-05]', '[-infinity,infinity]', '(-infinity,infinity)',
		'[infinity,]', '[1900-01-01,1900-01-02]', '[2200-01-01,2200-01-02]',
		'[2026-01-05 00:00:00.000001,2026-01-05 00:00:59.999999]', NULL]::tstzrange[]) AS r(period)
	ORDER BY 1;
-- NULL is neither inside nor outside.
SELECT @@ id < NULL::timestamptz IS NULL AND @@ NULL::snowflake < now() IS NULL
	AND (@@ id <@ NULL::tstzrange) IS NULL AND (@@ NULL::snowflake <@ 'empty'::tstzrange) IS NULL
	AND (NOT @@ NULL::snowflake <@ '(,)'::tstzrange) IS NULL AS null_stays_null
	FROM events LIMIT 1;

-- The row comparison of a pager, by one bound where both are known.
CREATE TABLE few (id snowflake PRIMARY KEY, at timestamptz);
INSERT INTO few SELECT make_snowflake(at, 1, n), at FROM unnest('{2026-01-01,2026-01-05,2026-01-05 00:00:00.001,2026-01-31}'::timestamptz[]) at, generate_series(0, 2) n;
SELECT op, plan_has(format($$SELECT FROM few WHERE (@@ id, id) %s ('2026-01-05', 5)$$, op), 'Filter') AS filtered,
		count(*) AS pairs, count(*) FILTER (WHERE by_key <> by_rows) AS wrong
	FROM unnest('{<,<=,>=,>}'::text[]) op,
		(SELECT t + d * interval '1 us' AS t FROM unnest('{-infinity,2010-01-01,2026-01-01,2026-01-05,2026-01-05 00:00:00.001,2100-01-01,infinity}'::timestamptz[]) t, generate_series(-1, 1) d) t,
		(SELECT n + d AS n FROM (SELECT unnest('{-9223372036854775807,0,9223372036854775806}'::bigint[]) UNION ALL SELECT id FROM few WHERE at::date = '2026-01-05') n(n), generate_series(-1, 1) d) i,
		LATERAL (SELECT message AS by_key FROM outcome(format('SELECT count(*) FROM few WHERE (@@ id, id) %s (%L::timestamptz, %L::bigint)', op, t, n))) k,
		LATERAL (SELECT message AS by_rows FROM outcome(format('SELECT count(*) FROM few WHERE (at, id) %s (%L::timestamptz, %L::bigint)', op, t, n))) r
	GROUP BY op ORDER BY op COLLATE "C";

-- Bounds of several times: of the first before, of the last until; of none, nothing is between.
SELECT t, snowflake_before(t) >= snowflake_until(t) AS nothing, snowflake_before(t) = snowflake_before(f) AS first, snowflake_until(t) = snowflake_until(l) AS last
	FROM (VALUES ('{2026-01-03,NULL,2026-01-02,2026-01-05}'::timestamptz[], timestamptz '2026-01-02', timestamptz '2026-01-05'),
		('{}', NULL, NULL), ('{NULL}', NULL, NULL), ('{-infinity,infinity}', '-infinity', 'infinity')) AS v(t, f, l);
SELECT t, snowflake_before(t) >= snowflake_until(t) AS nothing, snowflake_before(t) = snowflake_before(f) AS first, snowflake_until(t) = snowflake_until(l) AS last
	FROM (VALUES ('{[2026-01-02,2026-01-03),[2026-01-04,2026-01-05]}'::tstzmultirange, timestamptz '2026-01-02', timestamptz '2026-01-05'),
		('{}', NULL, NULL), ('{(,2026-01-05]}', '-infinity', '2026-01-05')) AS v(t, f, l);
SELECT snowflake_before(timestamptz '2026-01-02', 'discord') - snowflake_until(timestamptz '2026-01-02', 'discord') AS tick,
	snowflake_until(date '2026-01-02', 'discord') - snowflake_until('{2026-01-02}'::timestamptz[], 'discord') AS same;
SELECT code, message, detail FROM outcome('SELECT snowflake_before(5)');
SELECT code, message FROM outcome($$SELECT snowflake_until('2026-01-02')$$);
-- With a layout they are immutable, and so is a SQL function of them.
CREATE FUNCTION log_encode(ts timestamptz) RETURNS text IMMUTABLE LANGUAGE sql RETURN snowflake_lower_bound(ts, 'twitter');
CREATE FUNCTION log_decode(id text) RETURNS timestamptz IMMUTABLE LANGUAGE sql RETURN snowflake_timestamp(id::snowflake, 'twitter');
SELECT log_encode('2026-12-01'), log_decode(log_encode('2026-12-01'));
DROP FUNCTION log_encode, log_decode;

-- A volatile range is evaluated once for each row, as it was written; so is an ID that is volatile, or a subquery.
SELECT count(*) FROM events
	WHERE @@ id <@ tstzrange('2026-01-01', timestamptz '2026-01-02' + random() * interval '0');
SELECT plan_has($$SELECT FROM events WHERE @@ snowflake_next() <@ tstzrange '[2026-01-01,)'$$,
				'snowflake_next.*snowflake_next') AS minted_twice,
	plan_has($$SELECT FROM events WHERE @@ (SELECT id FROM events ORDER BY id LIMIT 1) <@ tstzrange '[2026-01-01,)'$$,
			 'InitPlan 2') AS run_twice;

DROP TABLE events, shifts, few;
