-- Filters on the time that an ID says: they are planned on the key, and find what the
-- plain comparison finds.
SET timezone = 'UTC';
SET max_parallel_workers_per_gather = 0;
CREATE TABLE visits (id snowflake PRIMARY KEY, page text, at timestamptz);
INSERT INTO visits SELECT make_snowflake(ts, n::int % 1024, n::int % 4096), 'page ' || n % 10, ts
	FROM generate_series(timestamptz '2026-01-01', '2026-01-31', '10 min') WITH ORDINALITY AS g(ts, n);
CREATE TABLE old_visits (id bigint PRIMARY KEY);
INSERT INTO old_visits SELECT id FROM visits;
CREATE TABLE messages (id bigint PRIMARY KEY);
INSERT INTO messages SELECT make_snowflake(at, 1, 1, 'discord') FROM visits;
ANALYZE visits, old_visits, messages;
CREATE VIEW recent AS SELECT id, @@ id AS created_at, page, at FROM visits;

-- The conditions of a plan, which say whether they are looked up or tested.
CREATE FUNCTION conditions(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	found text[];
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ '(Cond|Filter):' THEN
			-- a subquery's result, as later versions write it
			found := found || regexp_replace(trim(line), '\(InitPlan [^)]*\).col1', '$0', 'g');
		END IF;
	END LOOP;
	RETURN array_to_string(found, ' / ');
END $$;
SET enable_bitmapscan = off;

-- An equivalent takes the place of these.
SELECT condition, conditions('SELECT FROM recent WHERE ' || condition) FROM unnest(ARRAY[
	$$created_at < '2026-01-02'$$,
	$$created_at <= '2026-01-02'$$,
	$$created_at = '2026-01-02'$$,
	$$created_at >= '2026-01-30'$$,
	$$created_at > '2026-01-30'$$,
	$$'2026-01-02' = created_at$$,
	$$'2026-01-30' <= created_at$$,
	$$created_at > timestamp '2026-01-30'$$,
	$$timestamp '2026-01-30' <= created_at$$,
	$$created_at > date '2026-01-30'$$,
	$$date '2026-01-30' <= created_at$$,
	$$created_at = date '2026-01-30'$$,
	$$created_at BETWEEN '2026-01-02' AND '2026-01-03'$$,
	$$NOT created_at < '2026-01-30'$$,
	$$created_at >= now() - interval '1 day'$$,
	$$created_at >= CURRENT_DATE AND created_at < CURRENT_DATE + 1$$,
	$$created_at = (SELECT max(at) FROM visits)$$,
	$$created_at <@ tstzrange('2026-01-02', '2026-01-03')$$,
	$$tstzrange('2026-01-02', '2026-01-03') @> created_at$$,
	$$created_at <@ tstzrange(now(), NULL)$$,
	$$created_at >= @@ '2017000000000000000'::snowflake$$,
	$$created_at >= @@ 2017000000000000000$$,
	$$@@ id >= '2026-01-30'$$,
	$$snowflake_timestamp(id) >= '2026-01-30'$$,
	$$snowflake_timestamp(id, 'twitter') >= '2026-01-30'$$,
	$$id::timestamptz >= '2026-01-30'$$,
	$$created_at IN ('2026-01-30', NULL)$$]) AS condition;
CREATE TABLE drafts (id snowflake UNIQUE);
INSERT INTO drafts SELECT id FROM visits UNION ALL SELECT NULL FROM generate_series(1, 3);
ANALYZE drafts;
SELECT conditions($$SELECT FROM drafts WHERE @@ id IS NULL$$), (SELECT count(*) FROM drafts WHERE @@ id IS NULL) AS nulls,
	conditions($$SELECT FROM drafts WHERE snowflake_timestamp(id, 'discord') IS NOT NULL$$), (SELECT count(*) FROM drafts WHERE @@ id IS NOT NULL) AS others;
RESET enable_bitmapscan;
SELECT condition, conditions('SELECT FROM recent WHERE ' || condition) FROM unnest(ARRAY[
	$$created_at IN ('2026-01-30', '2026-01-31')$$,
	$$created_at = ANY (ARRAY[now(), timestamptz '2026-01-31'])$$,
	$$created_at <@ '{[2026-01-02,2026-01-02 01:00),[2026-01-05,2026-01-05 01:00)}'::tstzmultirange$$,
	$$created_at::date IN ('2026-01-02', '2026-01-04')$$,
	$$created_at < '2026-01-01 01:00' OR created_at >= '2026-01-30 23:30'$$]) AS condition;
SET enable_bitmapscan = off;
-- These imply a range, and stay.
SELECT condition, conditions('SELECT FROM recent WHERE ' || condition) FROM unnest(ARRAY[
	$$created_at::date = '2026-01-02'$$,
	$$created_at::date BETWEEN '2026-01-02' AND '2026-01-04'$$,
	$$created_at::date >= '2026-01-02' AND created_at::date < '2026-01-03'$$,
	$$date '2026-01-02' = created_at::date$$,
	$$created_at::date > CURRENT_DATE$$,
	$$created_at::date = timestamp '2026-01-02'$$,
	$$created_at::timestamp >= '2026-01-30'$$,
	$$created_at AT TIME ZONE 'Europe/Berlin' >= '2026-01-30'$$,
	$$(created_at AT TIME ZONE 'UTC')::date = '2026-01-02'$$,
	$$date_trunc('day', created_at) = '2026-01-02'$$,
	$$date_trunc('month', created_at) = date_trunc('month', now())$$,
	$$date_trunc('HOUR', created_at) < '2026-01-02'$$,
	$$date_trunc('day', created_at, 'Europe/Berlin') >= '2026-01-30'$$,
	$$date_trunc('day', created_at) = CURRENT_DATE$$,
	$$date_trunc('day', created_at AT TIME ZONE 'Europe/Berlin') = '2026-01-02'$$,
	$$extract(year FROM created_at) = 2027$$,
	$$extract(year FROM created_at AT TIME ZONE 'Europe/Berlin') > 2025.0$$,
	$$extract(year FROM created_at::date) BETWEEN 2024 AND 2025$$,
	$$date_part('year', created_at) < 2026$$,
	$$(created_at, id) < ('2026-01-02', 5)$$,
	$$(created_at, id) >= ('2026-01-30', 5)$$,
	$$(timestamptz '2026-01-02', 'a') > (created_at, page)$$,
	$$created_at = ANY (ARRAY(SELECT at FROM visits WHERE page = 'page 3'))$$,
	$$created_at <@ (SELECT range_agg(tstzrange(at, at, '[]')) FROM visits WHERE page = 'page 3')$$]) AS condition;
-- These say nothing of the key.
SELECT condition, conditions('SELECT FROM recent WHERE ' || condition) FROM unnest(ARRAY[
	$$created_at <> '2026-01-30'$$,
	$$created_at NOT IN ('2026-01-30', '2026-01-31')$$,
	$$created_at IS DISTINCT FROM '2026-01-30'$$,
	$$NOT created_at <@ tstzrange(now(), NULL)$$,
	$$created_at + interval '1 hour' > now()$$,
	$$created_at > at$$,
	$$created_at::date = at::date$$,
	$$coalesce(created_at, now()) < '2026-01-02'$$,
	$$to_char(created_at, 'YYYY-MM-DD') = '2026-01-02'$$,
	$$extract(month FROM created_at) = 1$$,
	$$extract(year FROM created_at) = 2026.5$$,
	$$date_trunc('decades', created_at) = now()$$,
	$$date_trunc('day', created_at, 'UTC') = CURRENT_DATE$$,
	$$created_at AT TIME ZONE interval '1 hour' < '2026-01-02'$$,
	$$created_at AT TIME ZONE 'UTC' < timestamptz '2026-01-02'$$,
	$$created_at::timestamptz(0) < '2026-01-02'$$]) AS condition;
-- An abbreviation of a time zone, and a zone that there is not, leave the range open.
SELECT conditions($$SELECT FROM recent WHERE created_at AT TIME ZONE 'EST' >= '2026-01-30'$$),
	snowflake_period_start(timestamp '2026-01-30', 'day', 'EST'), snowflake_period_end(timestamp '2026-01-30', 'day', 'No/where');
-- Clocks were set from the end of 1994-12-30 to 1995-01-01 there, so that the start of 1995 is not after this date.
SELECT snowflake_period_end(date '1994-12-31', 'year', 'Pacific/Kiritimati');
-- Nothing is truncated that raises an error: the filter does not do that for the rows.
SELECT count(*) FROM recent WHERE date_trunc('century', created_at AT TIME ZONE 'UTC') < timestamp '4714-11-24 BC';

-- Columns of bigint, and a layout in the call.
SELECT conditions($$SELECT FROM old_visits WHERE snowflake_timestamp(id) >= '2026-01-30'$$);
SELECT conditions($$SELECT FROM old_visits WHERE snowflake_timestamp(id) < LOCALTIMESTAMP$$);
SELECT condition, conditions('SELECT FROM messages WHERE snowflake_timestamp(id, ''discord'') ' || condition) FROM unnest(ARRAY[
	$$< '2026-01-02'$$, $$>= now()$$, $$>= date '2026-01-30'$$, $$= '2026-01-30'$$, $$<= timestamp '2026-01-02'$$,
	$$<@ tstzrange('2026-01-02', '2026-01-03')$$]) AS condition;
SELECT (SELECT count(*) FROM messages WHERE snowflake_timestamp(id, 'discord') BETWEEN '2026-01-02' AND '2026-01-03') AS by_range,
	(SELECT count(*) FROM visits WHERE at BETWEEN '2026-01-02' AND '2026-01-03') AS plain;

SELECT plan_has($$SELECT FROM recent WHERE created_at > (SELECT now())$$, 'Index Cond: \(id > snowflake_until\(') AS subquery;

-- Parameters: their type, and both kinds of plan.
PREPARE during AS SELECT count(*) FROM recent WHERE created_at >= $1 AND created_at < $2;
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'during';
SELECT conditions($$EXECUTE during('2026-01-02', '2026-01-03')$$);
SET plan_cache_mode = force_generic_plan;
SELECT conditions($$EXECUTE during('2026-01-02', '2026-01-03')$$);
EXECUTE during('2026-01-02', '2026-01-03');
RESET plan_cache_mode;
DEALLOCATE during;

-- Joins: the key inside a nested loop; times of two tables are hashed or merged.
CREATE TABLE days (starts timestamptz, ends timestamptz, during tstzrange);
INSERT INTO days VALUES ('2026-01-03', '2026-01-04', '[2026-01-03,2026-01-04)'), ('2026-01-05', '2026-01-07', '[2026-01-05,2026-01-07)');
ANALYZE days;
EXPLAIN (COSTS OFF) SELECT FROM days JOIN recent ON created_at >= starts AND created_at < ends;
SELECT starts, count(*) FROM days JOIN recent ON created_at >= starts AND created_at < ends GROUP BY 1 ORDER BY 1;
SELECT starts, count(*) FROM days LEFT JOIN recent ON created_at <@ during AND created_at > '2026-01-04' GROUP BY 1 ORDER BY 1;
SELECT conditions($$SELECT FROM days LEFT JOIN recent ON created_at <@ during WHERE created_at > '2026-01-04'$$);
SET enable_mergejoin = off;
SET enable_nestloop = off;
SELECT conditions($$SELECT FROM recent a JOIN recent b USING (created_at)$$);
SELECT plan_has($$SELECT FROM recent a FULL JOIN old_visits b ON a.created_at = snowflake_timestamp(b.id)$$, 'Hash Full Join');
RESET enable_mergejoin;
RESET enable_nestloop;
SELECT count(*) FROM recent a FULL JOIN old_visits b ON a.created_at = snowflake_timestamp(b.id);
SELECT count(*) FROM recent a JOIN old_visits b ON a.created_at <= snowflake_timestamp(b.id) AND b.id < 2006521000000000000;

-- An equality with a few rows of another table is looked up for each of them; it is tested as well.
SELECT query, plan_has(query, 'Index Cond: .* snowflake_before\(.* snowflake_until\(') AS looked_up, plan_has(query, 'Filter: .* = ') AS tested FROM unnest(ARRAY[
	'SELECT FROM days JOIN recent ON created_at = starts',
	'SELECT FROM recent WHERE created_at IN (SELECT starts FROM days)',
	'SELECT FROM days LEFT JOIN recent ON starts = created_at AND page = ''page 3''',
	'SELECT FROM days WHERE EXISTS (SELECT FROM recent WHERE created_at = ends)',
	'SELECT FROM days JOIN old_visits ON snowflake_timestamp(id) = starts',
	'SELECT FROM days JOIN messages ON snowflake_timestamp(id, ''discord'') = starts::date',
	'SELECT FROM days CROSS JOIN LATERAL (SELECT FROM recent WHERE created_at = starts) r']) AS query;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT (SELECT count(*) FROM visits a JOIN recent b ON a.at = b.created_at AND a.page = 'page 3') = (SELECT count(*) FROM visits WHERE page = 'page 3') AS same;
RESET enable_hashjoin;
RESET enable_mergejoin;

-- Subqueries into which the condition is pushed, one by one.
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM recent WHERE page <> 'page 3';
SELECT query, conditions(query || $$ WHERE created_at < '2026-01-02'$$) FROM unnest(ARRAY[
	'SELECT FROM barrier',
	'WITH c AS (SELECT * FROM recent) SELECT FROM c',
	'SELECT FROM (SELECT created_at FROM recent UNION ALL SELECT snowflake_timestamp(id) FROM old_visits) s',
	'SELECT FROM days LEFT JOIN recent ON true']) AS query;
-- The other way round, and a range, too.
SELECT condition, plan_has('SELECT FROM (SELECT created_at FROM recent UNION ALL SELECT snowflake_timestamp(id) FROM old_visits) s WHERE ' || condition,
		'Index Cond') AS by_key
	FROM unnest(ARRAY[$$'2026-01-02' > created_at$$, $$created_at <@ tstzrange('2026-01-02', '2026-01-03')$$]) AS condition;

-- Partitions: pruned in planning for constants, at the start for the rest.
CREATE TABLE visits_by_day (id snowflake PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE visits_by_day_1 PARTITION OF visits_by_day
	FOR VALUES FROM (snowflake_lower_bound('2026-01-01')) TO (snowflake_lower_bound('2026-01-02'));
CREATE TABLE visits_by_day_2 PARTITION OF visits_by_day
	FOR VALUES FROM (snowflake_lower_bound('2026-01-02')) TO (snowflake_lower_bound('2026-01-03'));
CREATE TABLE visits_by_day_3 PARTITION OF visits_by_day
	FOR VALUES FROM (snowflake_lower_bound('2026-01-03')) TO (MAXVALUE);
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT FROM (SELECT @@ id AS created_at FROM visits_by_day) v WHERE created_at >= '2026-01-02' AND created_at < '2026-01-03';
EXPLAIN (COSTS OFF) SELECT FROM (SELECT @@ id AS created_at FROM visits_by_day) v WHERE created_at > greatest(now(), '2026-12-01');
RESET enable_seqscan;

-- The same rows as by a stored time, for times of every kind: with a constant, and with a value that is known when the query runs.
-- Dates and timestamps that no timestamptz can say are before or after all of them.
SELECT type, count(*) AS conditions, string_agg(condition || ' ' || bound, ', ') FILTER (WHERE results > 1) AS wrong
	FROM (SELECT type, bound, condition, count(DISTINCT message) AS results
		FROM (VALUES ('timestamptz', '{-infinity,4713-01-01 BC,2010-11-04 01:42:54.657,2026-01-02 03:10:00,2026-01-02 03:10:00.000001,2026-01-02 03:09:59.999999,2026-01-31,2080-07-10 17:30:30.208,294276-12-31 23:59:59,infinity,NULL}'::text[]),
				('date', '{-infinity,4713-01-01 BC,2026-01-02,294276-12-31,294277-01-01,5874897-12-31,infinity}'),
				('timestamp', '{-infinity,4713-01-01 BC,2026-01-02 03:10:00,2026-01-02 03:10:00.000001,2026-01-02 03:09:59.999999,294276-12-31 23:59:59,infinity}')) AS v(type, bounds),
			unnest(bounds) AS bound, unnest('{c < b,c <= b,c = b,c >= b,c > b,b < c,b >= c}'::text[]) AS condition,
			(VALUES ('@@ id', ''), ('@@ id', 'OFFSET 0'), ('at', '')) AS q(c, known),
			LATERAL outcome(format('SELECT count(*) FROM (SELECT %s AS c, b FROM visits, (SELECT %L::%s AS b %s) b) v WHERE %s', c, bound, type, known, condition))
		GROUP BY 1, 2, 3) r GROUP BY 1 ORDER BY 1;
-- East of Greenwich the first timestamp is before all of timestamptz.
SET timezone = 'Asia/Tokyo';
SELECT (SELECT count(*) FROM recent WHERE created_at <= timestamp '4714-11-24 00:00 BC') AS le, (SELECT count(*) FROM recent WHERE created_at > timestamp '4714-11-24 00:00 BC') AS gt;
SET timezone = 'America/New_York';
SELECT (SELECT count(*) FROM recent WHERE created_at <= timestamp '294276-12-31 23:59:59') AS le, (SELECT count(*) FROM recent WHERE created_at > timestamp '294276-12-31 23:59:59') AS gt;
SELECT snowflake_before(date '5874897-12-31'), snowflake_until(timestamp '-infinity'), snowflake_before(date '5874897-12-31', 'discord') = snowflake_before('infinity'::timestamptz, 'discord') AS same;
SELECT conditions($$SELECT FROM recent WHERE created_at >= date '2026-01-30'$$),
	(SELECT count(*) FROM recent WHERE created_at >= date '2026-01-30') = (SELECT count(*) FROM visits WHERE at >= date '2026-01-30') AS same;
SET timezone = 'UTC';
-- An ID that is none of the layout is compared as a number: the key does not read what it skips.
CREATE TABLE numbers (n bigint PRIMARY KEY);
INSERT INTO numbers VALUES (-5), (7);
SELECT n FROM numbers WHERE snowflake_timestamp(n) < now() ORDER BY 1;
SELECT code, message FROM outcome($$SELECT n FROM numbers WHERE snowflake_timestamp(n) <> now()$$);
SELECT code, message FROM outcome($$SELECT snowflake_timestamp(-5) < now()$$);

-- What is volatile or a subquery is evaluated as often as it was written.
SELECT query, plan_has(query, 'random.*random|InitPlan 2') AS twice
	FROM unnest(ARRAY[
	$$SELECT FROM recent WHERE created_at = now() + random() * interval '1 s'$$,
	$$SELECT FROM visits WHERE snowflake_timestamp(id + random()::int) = '2026-01-02'$$,
	$$SELECT FROM visits WHERE snowflake_timestamp(id, 'twitter' || repeat(' ', random()::int)) = timestamptz '2026-01-02'$$,
	$$SELECT FROM recent WHERE created_at = (SELECT max(at) FROM visits)$$,
	$$SELECT FROM recent WHERE created_at <@ (SELECT tstzrange(min(at), max(at)) FROM visits)$$]) AS query;

-- It is a plain timestamptz, also in rows, lists and ranges.
SELECT pg_typeof(created_at) FROM recent LIMIT 1;
SELECT count(*) FROM recent WHERE (created_at, id) >= ('2026-01-02', 5) AND (created_at, id) < ('2026-01-02 00:50', 0);
SELECT count(*) FROM recent WHERE (date '2026-01-30', 5) < (created_at, id) AND (timestamp '2026-01-30 12:00', 5) >= (created_at, id);
SELECT count(*) FROM recent WHERE (created_at, page) = ('2026-01-02', 'page 1') OR (created_at, page) = ('2026-01-02 00:10', 'page 6');
SELECT count(*) FROM recent WHERE created_at NOT IN (SELECT at FROM visits WHERE at < '2026-01-30');
SELECT count(*) FROM recent WHERE created_at > ALL (SELECT created_at FROM recent WHERE created_at < '2026-01-30');
SELECT count(*) FROM recent WHERE created_at BETWEEN SYMMETRIC '2026-01-03' AND '2026-01-02';
SELECT count(*) FROM recent WHERE created_at <@ '{[2026-01-02,2026-01-03),[2026-01-04,2026-01-05)}'::tstzmultirange;
SELECT count(*) FROM recent WHERE '{[2026-01-02,2026-01-03),[2026-01-04,2026-01-05)}'::tstzmultirange @> created_at;
SELECT count(*) FROM recent WHERE created_at = ANY (ARRAY(SELECT timestamptz '2026-01-02' + n * interval '10 min' FROM generate_series(1, 20) n));

-- Estimates of an hour, a day and a week are those of the comparison of the ID.
SELECT count(*), count(*) FILTER (WHERE by_time <> by_id) AS different
	FROM unnest(ARRAY['2026-01-02', '2026-01-17 05:00', '2026-01-30']::timestamptz[]) starts,
		unnest(ARRAY['1 hour', '1 day', '1 week']::interval[]) width,
		LATERAL (VALUES ('created_at >= %L AND created_at < %L'), ('created_at <@ tstzrange(%L, %L)')) AS c(condition),
		LATERAL (SELECT estimate(format('SELECT FROM recent WHERE ' || condition, starts, starts + width)) AS by_time,
			estimate(format('SELECT FROM visits WHERE id >= %s AND id <= %s', snowflake_lower_bound(starts), snowflake_lower_bound(starts + width)::bigint - 1)) AS by_id) e;

-- Nobody learns by the key what they may not compute.
CREATE ROLE regress_snowflake_reader;
GRANT SELECT ON recent, visits TO regress_snowflake_reader;
REVOKE EXECUTE ON FUNCTION snowflake_timestamp(bigint) FROM PUBLIC;
PREPARE planned_by_another AS SELECT count(*) FROM recent WHERE created_at < '2026-01-02';
EXECUTE planned_by_another;
SET ROLE regress_snowflake_reader;
SELECT code, message FROM outcome($$SELECT count(*) FROM recent WHERE created_at < '2026-01-02'$$);
EXECUTE planned_by_another;
RESET ROLE;
DEALLOCATE planned_by_another;
GRANT EXECUTE ON FUNCTION snowflake_timestamp(bigint) TO PUBLIC;
REVOKE EXECUTE ON FUNCTION snowflake_before(anyelement) FROM PUBLIC;
SET ROLE regress_snowflake_reader;
SELECT count(*) FROM recent WHERE created_at < now() AND created_at < '2026-01-02';
RESET ROLE;
GRANT EXECUTE ON FUNCTION snowflake_before(anyelement) TO PUBLIC;
REVOKE EXECUTE ON FUNCTION snowflake_until(anyelement) FROM PUBLIC;
SET ROLE regress_snowflake_reader;
SELECT count(*) FROM recent WHERE created_at = least(now(), '2026-01-02');
RESET ROLE;
GRANT EXECUTE ON FUNCTION snowflake_until(anyelement) TO PUBLIC;
-- Row-level security: the comparison of the ID leaks nothing, so it may come first.
ALTER TABLE visits ENABLE ROW LEVEL SECURITY;
CREATE POLICY most ON visits USING (page <> 'page 3');
SET ROLE regress_snowflake_reader;
SELECT conditions($$SELECT FROM visits WHERE @@ id < '2026-01-02'$$);
RESET ROLE;
DROP POLICY most ON visits;
ALTER TABLE visits DISABLE ROW LEVEL SECURITY;
REVOKE SELECT ON recent, visits FROM regress_snowflake_reader;
DROP ROLE regress_snowflake_reader;

-- What has the support function of something else says no time of an ID.
CREATE FUNCTION midnight(id snowflake) RETURNS timestamptz LANGUAGE plpgsql STABLE SUPPORT generate_series_int8_support
	AS $$BEGIN RETURN '2000-01-01'; END$$;
SELECT count(*) FROM visits WHERE midnight(id) > timestamptz '2001-01-01';
DROP FUNCTION midnight;

-- What depends on the server's layout is not immutable: neither an index nor a column may hold it.
CREATE TABLE stored (id snowflake);
CREATE INDEX ON stored (id) WHERE @@ id >= timestamptz '2026-01-01Z';
CREATE INDEX ON stored (id) WHERE @@ snowflake '1' < timestamptz '2026-01-01Z';
ALTER TABLE stored ADD is_new bool GENERATED ALWAYS AS (@@ id >= timestamptz '2026-01-01Z') STORED;
DROP TABLE stored;

-- Where a query is not grouped by the time of an ID, that is NULL.
CREATE TABLE grouped (id snowflake, x text);
INSERT INTO grouped SELECT make_snowflake(t, 1, 1), 'a' FROM unnest('{2026-06-01Z,2025-06-01Z}'::timestamptz[]) t;
SELECT @@ id AS c, x, count(*) FROM grouped GROUP BY GROUPING SETS ((@@ id), (x)) HAVING @@ id >= timestamptz '2026-01-01Z';
SELECT @@ id AS c, x, count(*) FROM grouped GROUP BY GROUPING SETS ((@@ id), (x)) HAVING @@ id <@ tstzrange('2026-01-01Z', NULL);
SELECT @@ id AS c, @@ id >= timestamptz '2026-01-01Z' AS is_new, count(*) FROM grouped GROUP BY ROLLUP (@@ id) ORDER BY 1;
SELECT @@ id <@ tstzrange('2026-01-01Z', NULL) AS is_new, x, count(*) FROM grouped
	GROUP BY GROUPING SETS ((@@ id <@ tstzrange('2026-01-01Z', NULL)), (x)) HAVING @@ id <@ tstzrange('2026-01-01Z', NULL);
SELECT @@ id = timestamptz '2026-06-01Z' AS is_it, x, count(*) FROM grouped
	GROUP BY GROUPING SETS ((@@ id = timestamptz '2026-06-01Z'), (x)) HAVING @@ id = timestamptz '2026-06-01Z';
SELECT plan_has($$SELECT page, count(*) FROM visits WHERE @@ id >= timestamptz '2026-02-27Z' GROUP BY ROLLUP (page)$$, 'Index Cond|Recheck Cond');

-- An equality with the results of a subquery is hashed.
SELECT plan_has($$SELECT FROM grouped WHERE @@ id NOT IN (SELECT @@ id FROM grouped)$$, 'hashed SubPlan');
DROP TABLE grouped;

DROP VIEW recent, barrier CASCADE;
DROP TABLE visits, old_visits, messages, days, visits_by_day, numbers, drafts;
DROP FUNCTION conditions;
