-- Times as bounds on IDs: what stands in plans, which rows that finds, and how it is estimated.
SET timezone = 'UTC';
CREATE TABLE events (id snowflake PRIMARY KEY, at timestamptz);
INSERT INTO events
	SELECT make_snowflake(ts, n::int % 1024, n::int % 4096), ts
	FROM generate_series(timestamptz '2026-01-01', '2026-01-31', '10 min') WITH ORDINALITY AS g(ts, n);
CREATE TABLE shifts (starts timestamptz, ends timestamptz, during tstzrange);
INSERT INTO shifts VALUES ('2026-01-03 06:00', '2026-01-03 14:00', '[2026-01-03 06:00,2026-01-03 14:00)'),
	('2026-01-04 06:00', '2026-01-04 07:00', '[2026-01-04 06:00,2026-01-04 07:00)');
ANALYZE events, shifts;

-- A column of another table, index only and backward, BRIN.
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM shifts JOIN events ON @@ id >= starts AND @@ id < ends;
EXPLAIN (COSTS OFF) SELECT * FROM shifts JOIN events ON @@ id <@ during;
SELECT starts, count(*) FILTER (WHERE @@ id >= starts AND @@ id < ends) AS between, count(*) FILTER (WHERE during @> @@ id) AS during FROM shifts, events GROUP BY 1 ORDER BY 1;
SELECT starts, count(*) FROM shifts JOIN events ON @@ id >= starts AND @@ id < ends GROUP BY 1 ORDER BY 1;
SELECT starts, count(*) FROM shifts JOIN events ON during @> @@ id GROUP BY 1 ORDER BY 1;
EXPLAIN (COSTS OFF) SELECT id FROM events WHERE @@ id < timestamptz '2026-01-15' ORDER BY id DESC LIMIT 3;
SELECT @@ id AS at FROM events WHERE @@ id < timestamptz '2026-01-15' ORDER BY id DESC LIMIT 3;
RESET enable_bitmapscan;
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

-- An ID is compared with a time by its time: there is no other operator.
SELECT code, message, hint FROM outcome($$SELECT * FROM events WHERE id > '2026-01-01'$$);
SELECT code, message, hint FROM outcome($$SELECT * FROM events WHERE id > '12:00'$$);
SELECT code, message FROM outcome($$SELECT * FROM events WHERE id > now()$$);
SELECT code, message FROM outcome($$SELECT * FROM events WHERE id <@ tstzrange('2026-01-01', '2026-01-02')$$);

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

-- Estimates: within a factor of 1.5 for twelve hours, a week and a month, for times and for a range between snowflakes.
CREATE TABLE many (id snowflake PRIMARY KEY);
INSERT INTO many SELECT make_snowflake(timestamptz '2026-01-01' + g * interval '630 s', 1, 1) FROM generate_series(0, 49999) g;
CREATE TABLE many_created_at AS SELECT id::bigint AS id, @@ id AS created_at FROM many ORDER BY id;
CREATE INDEX ON many_created_at (created_at);
VACUUM ANALYZE many, many_created_at;
SELECT count(*), count(*) FILTER (WHERE estimate(query) NOT BETWEEN actual / 1.5 AND actual * 1.5) AS wrong
	FROM unnest(ARRAY['2026-01-02', '2026-03-17 05:00', '2026-08-01', '2026-11-30']::timestamptz[]) starts,
		unnest(ARRAY['12 hours', '1 week', '1 month']::interval[]) width,
		LATERAL (SELECT count(*) AS actual FROM many_created_at WHERE created_at >= starts AND created_at < starts + width) a,
		LATERAL (VALUES
			(format('SELECT FROM many WHERE @@ id >= %L::timestamptz AND @@ id < %L::timestamptz', starts, starts + width)),
			(format('SELECT FROM many WHERE @@ id >= %L::timestamptz AND @@ id < %L::timestamptz + %L::interval', starts, starts, width)),
			(format('SELECT FROM many WHERE @@ id <@ tstzrange(%L, %L)', starts, starts + width)),
			(format('SELECT FROM many WHERE id >= %L::snowflake AND id < %L::snowflake',
				snowflake_lower_bound(starts), snowflake_lower_bound(starts + width)))) AS q(query);

-- A day of them takes no more buffers than by a created_at index, and saves that index.  The second run counts; the first one
-- reads the system catalogs.
CREATE FUNCTION buffers(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || query INTO plan;
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || query INTO plan;
	RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::bigint + (plan->0->'Plan'->>'Shared Read Blocks')::bigint;
END $$;
SELECT buffers($$SELECT id FROM many
			WHERE @@ id >= timestamptz '2026-06-01' AND @@ id < timestamptz '2026-06-02'$$)
	<= buffers($$SELECT id FROM many_created_at
			WHERE created_at >= timestamptz '2026-06-01' AND created_at < timestamptz '2026-06-02'$$)
	AS not_more;

DROP TABLE events, shifts, few, many, many_created_at;
DROP FUNCTION buffers;
