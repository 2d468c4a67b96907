-- An hour of the rows of a table, found by the ID, by the time that the ID says, by a
-- view's created_at that is that time, and by an index on a created_at column of its
-- own: buffers and time, of one run of the statements in turns.
--
--   psql -X -v rows=20000000 -f test/bench/timefilter.sql
--
-- Needs the extension in the database; mints nothing.  The times are medians of
-- rounds, of planning and execution together, in ms.

\set QUIET on
\if :{?rows} \else \set rows 20000000 \endif
SET client_min_messages = warning;
SET max_parallel_workers_per_gather = 0;
SET jit = off;

CREATE UNLOGGED TABLE bench_hour AS
	SELECT make_snowflake(timestamptz '2026-01-01' + g * (interval '1 year' / :rows), 1, 1) AS id,
		timestamptz '2026-01-01' + g * (interval '1 year' / :rows) AS created_at, g % 1000 AS n
	FROM generate_series(0, :rows - 1) g;
CREATE UNIQUE INDEX bench_hour_id ON bench_hour (id);
CREATE INDEX bench_hour_created_at ON bench_hour (created_at);
VACUUM ANALYZE bench_hour;
CREATE VIEW bench_hour_view AS SELECT id, @@ id AS created_at, n FROM bench_hour;

CREATE TABLE bench_hour_rounds (kind text, ms float, buffers bigint);
CREATE FUNCTION bench_hour_round(kind text, query text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT json) ' || query INTO plan;
	INSERT INTO bench_hour_rounds VALUES (kind,
		(plan->0->>'Planning Time')::float + (plan->0->>'Execution Time')::float,
		(plan->0->'Plan'->>'Shared Hit Blocks')::bigint + (plan->0->'Plan'->>'Shared Read Blocks')::bigint);
END $$;

SELECT count(bench_hour_round(kind, query))
	FROM generate_series(1, 201) AS round, (VALUES
		('an index on created_at', $$SELECT id, n FROM bench_hour WHERE created_at >= '2026-06-01 12:00' AND created_at < '2026-06-01 13:00'$$),
		('an index on created_at, the time in the result', $$SELECT id, created_at, n FROM bench_hour WHERE created_at >= '2026-06-01 12:00' AND created_at < '2026-06-01 13:00'$$),
		('id >= …', $$SELECT id, n FROM bench_hour WHERE @@ id >= timestamptz '2026-06-01 12:00' AND @@ id < timestamptz '2026-06-01 13:00'$$),
		('@@ id >= …', $$SELECT id, n FROM bench_hour WHERE @@ id >= '2026-06-01 12:00' AND @@ id < '2026-06-01 13:00'$$),
		('id >= …, the time in the result', $$SELECT id, @@ id, n FROM bench_hour WHERE @@ id >= timestamptz '2026-06-01 12:00' AND @@ id < timestamptz '2026-06-01 13:00'$$),
		('created_at of a view', $$SELECT id, n FROM bench_hour_view WHERE created_at >= '2026-06-01 12:00' AND created_at < '2026-06-01 13:00'$$),
		('created_at of a view, the time in the result', $$SELECT id, created_at, n FROM bench_hour_view WHERE created_at >= '2026-06-01 12:00' AND created_at < '2026-06-01 13:00'$$))
		AS q(kind, query) \g /dev/null

SELECT kind, round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 3) AS ms,
	round((percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) / min(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)) OVER ())::numeric, 2) AS ratio,
	min(buffers) AS buffers
	FROM bench_hour_rounds GROUP BY kind ORDER BY kind;

DROP VIEW bench_hour_view;
DROP TABLE bench_hour, bench_hour_rounds;
DROP FUNCTION bench_hour_round;
