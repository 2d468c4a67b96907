-- Comparisons with times: the rows they find, and how they are planned.
SET timezone = 'UTC';
CREATE TABLE events (id snowflake PRIMARY KEY, at timestamptz);
INSERT INTO events
	SELECT make_snowflake(ts, n::int % 1024, n::int % 4096), ts
	FROM generate_series(timestamptz '2026-01-01', '2026-01-31', '1 min') WITH ORDINALITY AS g(ts, n);
ANALYZE events;

-- Every operator, both ways round, is a range of the primary key.
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE @@ id < timestamptz '2026-01-01 00:01';
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE @@ id <= timestamptz '2026-01-01 00:01';
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE @@ id > timestamptz '2026-01-30 23:59';
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE @@ id >= timestamptz '2026-01-30 23:59';
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE timestamptz '2026-01-01 00:01' > @@ id;
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE timestamptz '2026-01-01 00:01' >= @@ id;
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE timestamptz '2026-01-30 23:59' < @@ id;
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE timestamptz '2026-01-30 23:59' <= @@ id;
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE @@ id <@ tstzrange('2026-01-02', '2026-01-02 00:01');
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE '[2026-01-02,2026-01-02 00:01)'::tstzrange @> @@ id;
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE @@ id BETWEEN timestamptz '2026-01-02' AND timestamptz '2026-01-02 00:01';

-- date and timestamp reach them through core's casts.
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE @@ id > date '2026-01-31';
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE @@ id > timestamp '2026-01-31 00:00';

-- A stable expression, a parameter of a generic plan, a column of another table.
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE @@ id >= now() - interval '1 day';
PREPARE since(timestamptz) AS SELECT count(*) FROM events WHERE @@ id >= $1 AND @@ id < $1 + interval '1 hour';
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE since('2026-01-05');
EXECUTE since('2026-01-05');
RESET plan_cache_mode;
CREATE TABLE shifts (starts timestamptz, ends timestamptz, during tstzrange);
INSERT INTO shifts VALUES ('2026-01-03 06:00', '2026-01-03 14:00', '[2026-01-03 06:00,2026-01-03 14:00)'),
	('2026-01-04 06:00', '2026-01-04 07:00', '[2026-01-04 06:00,2026-01-04 07:00)');
ANALYZE shifts;
EXPLAIN (COSTS OFF) SELECT * FROM shifts JOIN events ON @@ id >= starts AND @@ id < ends;
SELECT starts, count(*) FROM shifts JOIN events ON @@ id >= starts AND @@ id < ends GROUP BY 1 ORDER BY 1;
EXPLAIN (COSTS OFF) SELECT * FROM shifts JOIN events ON @@ id <@ during;
SELECT starts, count(*) FROM shifts JOIN events ON @@ id <@ during GROUP BY 1 ORDER BY 1;
SELECT starts, count(*) FROM shifts JOIN events ON during @> @@ id GROUP BY 1 ORDER BY 1;

-- Index only, backward, and BRIN.
EXPLAIN (COSTS OFF) SELECT id FROM events WHERE @@ id < timestamptz '2026-01-15' ORDER BY id DESC LIMIT 3;
SELECT @@ id AS at FROM events WHERE @@ id < timestamptz '2026-01-15' ORDER BY id DESC LIMIT 3;
RESET enable_bitmapscan;
SET enable_indexscan = off;
SET enable_seqscan = off;
CREATE INDEX events_brin ON events USING brin (id) WITH (pages_per_range = 2);
ALTER TABLE events DROP CONSTRAINT events_pkey;
EXPLAIN (COSTS OFF) SELECT count(*) FROM events WHERE @@ id >= now() - interval '1 day';
EXPLAIN (COSTS OFF) SELECT count(*) FROM events WHERE @@ id <@ tstzrange('2026-01-02', '2026-01-03');
SELECT count(*) FROM events WHERE @@ id <@ tstzrange('2026-01-02', '2026-01-03');
RESET enable_seqscan;
RESET enable_indexscan;
DROP INDEX events_brin;
ALTER TABLE events ADD PRIMARY KEY (id);

-- The same rows as by the time that is stored, for bounds of every kind.
SELECT b.bound, (SELECT count(*) FROM events WHERE @@ id < b.bound) = (SELECT count(*) FROM events WHERE at < b.bound) AS lt,
	(SELECT count(*) FROM events WHERE @@ id <= b.bound) = (SELECT count(*) FROM events WHERE at <= b.bound) AS le,
	(SELECT count(*) FROM events WHERE @@ id >= b.bound) = (SELECT count(*) FROM events WHERE at >= b.bound) AS ge,
	(SELECT count(*) FROM events WHERE @@ id > b.bound) = (SELECT count(*) FROM events WHERE at > b.bound) AS gt,
	(SELECT count(*) FROM events WHERE b.bound > @@ id) = (SELECT count(*) FROM events WHERE at < b.bound) AS lt,
	(SELECT count(*) FROM events WHERE b.bound <= @@ id) = (SELECT count(*) FROM events WHERE at >= b.bound) AS ge
	FROM (VALUES (timestamptz '-infinity'), ('4713-01-01 BC'), ('2010-11-04 01:42:54.656'), ('2010-11-04 01:42:54.657'),
		('2026-01-01'), ('2026-01-02 03:04:05'), ('2026-01-02 03:04:00'), ('2026-01-02 03:04:00.000001'),
		('2026-01-02 03:03:59.999999'), ('2026-01-31'), ('2026-01-31 00:00:00.000999'), ('2026-01-31 00:00:00.001'),
		('2080-07-10 17:30:30.208'), ('2080-07-10 17:30:30.209'), ('294276-12-31 23:59:59'), ('infinity')) AS b(bound)
	ORDER BY 1;
SELECT r.period, (SELECT count(*) FROM events WHERE @@ id <@ r.period) = (SELECT count(*) FROM events WHERE at <@ r.period) AS contained,
	(SELECT count(*) FROM events WHERE r.period @> @@ id) = (SELECT count(*) FROM events WHERE at <@ r.period) AS contains,
	(SELECT count(*) FROM events WHERE NOT @@ id <@ r.period) = (SELECT count(*) FROM events WHERE NOT at <@ r.period) AS not_contained
	FROM unnest(ARRAY['empty', '(,)', '[,]', '[2026-01-05,2026-01-06)', '(2026-01-05,2026-01-06]', '[2026-01-05,2026-01-05]',
		'(2026-01-05,)', '[2026-01-05,)', '(,2026-01-05)', '(,2026-01-05]', '[-infinity,infinity]', '(-infinity,infinity)',
		'[infinity,]', '[1900-01-01,1900-01-02]', '[2200-01-01,2200-01-02]',
		'[2026-01-05 00:00:00.000001,2026-01-05 00:00:59.999999]']::tstzrange[]) AS r(period)
	ORDER BY 1;
SELECT (SELECT count(*) FROM events WHERE @@ id > timestamptz 'infinity') AS gt, (SELECT count(*) FROM events WHERE @@ id >= timestamptz 'infinity') AS ge;
SELECT code, message FROM outcome($$SELECT count(*) FROM events WHERE @@ id < '294276-12-31 23:59:59'::timestamptz$$);

-- NULL is neither inside nor outside.
SELECT @@ id < NULL::timestamptz IS NULL AND @@ NULL::snowflake < now() IS NULL
	AND (@@ id <@ NULL::tstzrange) IS NULL AND (@@ NULL::snowflake <@ 'empty'::tstzrange) IS NULL
	AND (NOT @@ NULL::snowflake <@ '(,)'::tstzrange) IS NULL AS null_stays_null
	FROM events LIMIT 1;

-- Partitions: pruned when planning for a constant, when starting for the rest.
CREATE TABLE log (id snowflake PRIMARY KEY, note text) PARTITION BY RANGE (id);
DO $$
DECLARE
	months timestamptz[] := ARRAY['2026-01-01', '2026-02-01', '2026-03-01', '2026-04-01'];
BEGIN
	FOR i IN 1 .. 3 LOOP
		EXECUTE format('CREATE TABLE log_%s PARTITION OF log FOR VALUES FROM (%L) TO (%L)',
			i, snowflake_lower_bound(months[i]), snowflake_lower_bound(months[i + 1]));
	END LOOP;
END $$;
CREATE TABLE log_4 PARTITION OF log
	FOR VALUES FROM (snowflake_lower_bound('2026-04-01')) TO (MAXVALUE);
INSERT INTO log SELECT make_snowflake(ts, 1, 1) FROM generate_series(timestamptz '2026-01-01', '2026-03-31', '1 day') ts;
SELECT tableoid::regclass, min(@@ id), max(@@ id) FROM log GROUP BY 1 ORDER BY 1;
SET enable_bitmapscan = off;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM log WHERE @@ id < timestamptz '2026-01-15';
EXPLAIN (COSTS OFF) SELECT * FROM log WHERE @@ id <@ tstzrange('2026-02-01', '2026-03-01');
SET plan_cache_mode = force_generic_plan;
PREPARE month(timestamptz) AS SELECT * FROM log WHERE @@ id >= $1 AND @@ id < $1 + interval '1 month';
EXPLAIN (COSTS OFF) EXECUTE month('2026-02-01');
EXPLAIN (COSTS OFF) SELECT * FROM log WHERE @@ id > greatest(now(), '2026-12-01') - interval '1 day';
DEALLOCATE month;
RESET plan_cache_mode;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- Row-level security: the comparison leaks nothing, so it may use the index.
CREATE ROLE regress_snowflake_reader;
GRANT SELECT ON events TO regress_snowflake_reader;
ALTER TABLE events ENABLE ROW LEVEL SECURITY;
CREATE POLICY recent ON events USING (@@ id >= timestamptz '2026-01-20');
SET ROLE regress_snowflake_reader;
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE @@ id < timestamptz '2026-01-20 00:01';
SELECT count(*) FROM events WHERE @@ id < timestamptz '2026-01-20 00:01';
RESET ROLE;
ALTER TABLE events DISABLE ROW LEVEL SECURITY;
DROP POLICY recent ON events;
REVOKE SELECT ON events FROM regress_snowflake_reader;
DROP ROLE regress_snowflake_reader;

-- What the documentation shows.
SELECT date_trunc('day', id::timestamptz) AS day, count(*)
	FROM events WHERE @@ id < timestamptz '2026-01-04' GROUP BY 1 ORDER BY 1;
SELECT date_bin('12 hours', id::timestamptz, '2026-01-01') AS half_day, count(*)
	FROM events WHERE @@ id < timestamptz '2026-01-02' GROUP BY 1 ORDER BY 1;
SELECT @@ id AS at FROM events ORDER BY id DESC LIMIT 2;
SELECT @@ id AS at FROM events WHERE id < (SELECT max(id) FROM events) ORDER BY id DESC LIMIT 2;
SELECT count(*) FROM events
	WHERE @@ id >= date_trunc('day', timestamptz '2026-01-10 15:00') - interval '1 day'
		AND @@ id < date_trunc('day', timestamptz '2026-01-10 15:00');

CREATE FUNCTION log_encode(ts timestamptz) RETURNS text IMMUTABLE LANGUAGE sql
	RETURN snowflake_lower_bound(ts, 'twitter');
CREATE FUNCTION log_decode(id text) RETURNS timestamptz IMMUTABLE LANGUAGE sql
	RETURN snowflake_timestamp(id::snowflake, 'twitter');
SELECT log_encode('2026-12-01'), log_decode(log_encode('2026-12-01'));
DROP FUNCTION log_encode, log_decode;

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

-- A volatile range is evaluated once for each row, as it was written.
SELECT count(*) FROM events
	WHERE @@ id <@ tstzrange('2026-01-01', timestamptz '2026-01-02' + random() * interval '0');
-- So is an ID that is volatile, or a subquery.
SELECT plan_has($$SELECT FROM events WHERE @@ snowflake_next() <@ tstzrange '[2026-01-01,)'$$,
				'snowflake_next.*snowflake_next') AS minted_twice,
	plan_has($$SELECT FROM events WHERE @@ (SELECT id FROM events ORDER BY id LIMIT 1) <@ tstzrange '[2026-01-01,)'$$,
			 'InitPlan 2') AS run_twice;

-- Estimates of a million rows: within a factor of 1.5 for an hour, a day and a
-- month, for times and for a range between snowflakes.
CREATE TABLE million (id snowflake);
INSERT INTO million
	SELECT make_snowflake(timestamptz '2026-01-01' + g * interval '31.536 s', 1, 1) FROM generate_series(0, 999999) g;
ANALYZE million;
CREATE FUNCTION rows(query text) RETURNS float LANGUAGE plpgsql AS $$
DECLARE
	n float;
BEGIN
	EXECUTE replace(query, 'SELECT FROM', 'SELECT count(*) FROM') INTO n;
	RETURN n;
END $$;
SELECT count(*), count(*) FILTER (WHERE estimated NOT BETWEEN actual / 1.5 AND actual * 1.5) AS wrong
	FROM unnest(ARRAY['2026-01-02', '2026-03-17 05:00', '2026-08-01', '2026-11-30']::timestamptz[]) starts,
		unnest(ARRAY['1 hour', '1 day', '1 month']::interval[]) width,
		LATERAL (VALUES
			('times', format('SELECT FROM million WHERE @@ id >= %L::timestamptz AND @@ id < %L::timestamptz', starts, starts + width)),
			('stable', format('SELECT FROM million WHERE @@ id >= %L::timestamptz AND @@ id < %L::timestamptz + %L::interval', starts, starts, width)),
			('range', format('SELECT FROM million WHERE @@ id <@ tstzrange(%L, %L)', starts, starts + width)),
			('keyset', format('SELECT FROM million WHERE id >= %L::snowflake AND id < %L::snowflake',
				snowflake_lower_bound(starts), snowflake_lower_bound(starts + width)))) AS q(kind, query),
		LATERAL (SELECT estimate(query) AS estimated, rows(query) AS actual) e;

-- An hour of them takes no more buffers than by a created_at index, and saves
-- that index.  The second run counts; the first one reads the system catalogs.
ALTER TABLE million ADD PRIMARY KEY (id);
CREATE TABLE million_created_at AS SELECT id::bigint AS id, @@ id AS created_at FROM million ORDER BY id;
CREATE INDEX ON million_created_at (created_at);
VACUUM ANALYZE million, million_created_at;
CREATE FUNCTION buffers(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || query INTO plan;
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || query INTO plan;
	RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::bigint + (plan->0->'Plan'->>'Shared Read Blocks')::bigint;
END $$;
SELECT buffers($$SELECT id FROM million
			WHERE @@ id >= timestamptz '2026-06-01 12:00' AND @@ id < timestamptz '2026-06-01 13:00'$$)
	<= buffers($$SELECT id FROM million_created_at
			WHERE created_at >= timestamptz '2026-06-01 12:00' AND created_at < timestamptz '2026-06-01 13:00'$$)
	AS not_more;

DROP TABLE events, shifts, log, million, million_created_at;
DROP FUNCTION rows, buffers;
