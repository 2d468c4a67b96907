-- An hour and a day of the rows of a table, and its newest rows, by each form in which people
-- ask for them: of a view whose created_at is the time of the ID, and of a plain column
-- created_at with an index of its own.  Beside both, the range of the ID that is meant, written
-- with constants.  The times are medians of rounds, in turns, of planning and execution together, in ms;
-- of a form for which the plain column has no index condition, of three.

SET timezone = 'UTC';

CREATE UNLOGGED TABLE bench_hour AS
	SELECT make_snowflake(timestamptz '2026-01-01' + g * (interval '1 year' / :rows), 1, 1) AS id,
		timestamptz '2026-01-01' + g * (interval '1 year' / :rows) AS created_at, g % 1000 AS n
	FROM generate_series(0, :rows - 1) g;
CREATE UNIQUE INDEX bench_hour_id ON bench_hour (id);
CREATE INDEX bench_hour_n_id ON bench_hour (n, id);
CREATE INDEX bench_hour_created_at ON bench_hour (created_at);
CREATE INDEX bench_hour_n_created_at ON bench_hour (n, created_at);
VACUUM ANALYZE bench_hour;
CREATE VIEW bench_hour_of_id AS SELECT id, @@ id AS created_at, n FROM bench_hour;
CREATE VIEW bench_hour_plain AS SELECT id, created_at, n FROM bench_hour;

CREATE TABLE bench_hour_rounds (number int, source text, ms float, rows bigint);
CREATE FUNCTION bench_hour_round(number int, source text, query text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT json) ' || query INTO plan;
	INSERT INTO bench_hour_rounds VALUES (number, source,
		(plan->0->>'Planning Time')::float + (plan->0->>'Execution Time')::float,
		(plan->0->'Plan'->>'Actual Rows')::float::bigint);
END $$;
CREATE FUNCTION bench_hour_has_index_condition(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
		IF line ~ 'Index Cond|Limit' THEN
			RETURN true;
		END IF;
	END LOOP;
	RETURN false;
END $$;
PREPARE bench_hour_by_key(bigint, bigint) AS SELECT id, n FROM bench_hour WHERE id BETWEEN $1 AND $2;
PREPARE bench_hour_of_id(timestamptz, timestamptz) AS SELECT id, n FROM bench_hour_of_id WHERE created_at >= $1 AND created_at < $2;
PREPARE bench_hour_plain(timestamptz, timestamptz) AS SELECT id, n FROM bench_hour_plain WHERE created_at >= $1 AND created_at < $2;

-- What the forms mean, as a range of the ID
CREATE TABLE bench_hour_forms AS
	SELECT row_number() OVER () AS number, f.*,
		format('SELECT id, n FROM %%s WHERE %s', form) AS query,
		CASE period WHEN 'hour' THEN
			format('SELECT id, n FROM bench_hour WHERE id BETWEEN %s AND %s', snowflake_lower_bound('2026-06-01 12:00'), snowflake_lower_bound('2026-06-01 13:00')::bigint - 1)
		WHEN 'day' THEN
			format('SELECT id, n FROM bench_hour WHERE id BETWEEN %s AND %s', snowflake_lower_bound('2026-06-01'), snowflake_lower_bound('2026-06-02')::bigint - 1)
		END AS meant
	FROM (VALUES
		('hour', $$created_at >= '2026-06-01 12:00' AND created_at < '2026-06-01 13:00'$$),
		('hour', $$created_at BETWEEN '2026-06-01 12:00' AND '2026-06-01 12:59:59.999999'$$),
		('hour', $$created_at <@ tstzrange('2026-06-01 12:00', '2026-06-01 13:00')$$),
		('hour', $$created_at >= timestamp '2026-06-01 12:00' AND created_at < timestamp '2026-06-01 13:00'$$),
		('hour', $$created_at >= (SELECT timestamptz '2026-06-01 12:00') AND created_at < (SELECT timestamptz '2026-06-01 13:00')$$),
		('hour', $$(created_at, id) >= ('2026-06-01 12:00', 0) AND (created_at, id) < ('2026-06-01 13:00', 0)$$),
		('hour', $$created_at AT TIME ZONE 'UTC' >= '2026-06-01 12:00' AND created_at AT TIME ZONE 'UTC' < '2026-06-01 13:00'$$),
		('hour', $$created_at AT TIME ZONE 'Europe/Berlin' >= '2026-06-01 14:00' AND created_at AT TIME ZONE 'Europe/Berlin' < '2026-06-01 15:00'$$),
		('hour', $$date_trunc('hour', created_at) = '2026-06-01 12:00'$$),
		('day', $$created_at >= '2026-06-01' AND created_at < '2026-06-02'$$),
		('day', $$created_at::date = '2026-06-01'$$),
		('day', $$date_trunc('day', created_at) = '2026-06-01'$$),
		('day', $$(created_at AT TIME ZONE 'UTC')::date = '2026-06-01'$$)) AS f(period, form);
INSERT INTO bench_hour_forms VALUES
	(100, 'hour', 'created_at >= $1 AND created_at < $2, a generic plan', $$EXECUTE %s ('2026-06-01 12:00', '2026-06-01 13:00')$$,
		format('EXECUTE bench_hour_by_key (%s, %s)', snowflake_lower_bound('2026-06-01 12:00'), snowflake_lower_bound('2026-06-01 13:00')::bigint - 1)),
	(101, 'newest', 'ORDER BY created_at DESC LIMIT 20', 'SELECT id, n FROM %s ORDER BY created_at DESC LIMIT 20',
		'SELECT id, n FROM bench_hour ORDER BY id DESC LIMIT 20'),
	(102, 'newest', 'n = 7 ORDER BY created_at DESC LIMIT 20', 'SELECT id, n FROM %s WHERE n = 7 ORDER BY created_at DESC LIMIT 20',
		'SELECT id, n FROM bench_hour WHERE n = 7 ORDER BY id DESC LIMIT 20'),
	(103, 'newest', 'max(created_at)', 'SELECT max(created_at) FROM %s', 'SELECT max(id) FROM bench_hour');

SET plan_cache_mode = force_generic_plan;
SELECT count(bench_hour_round(number::int, source, query))
	FROM generate_series(1, 101) AS round,
		(SELECT number, 'meant' AS source, meant AS query, true AS fast FROM bench_hour_forms
		 UNION ALL SELECT number, 'of_id', format(query, 'bench_hour_of_id'), true FROM bench_hour_forms
		 UNION ALL SELECT number, 'plain', q, bench_hour_has_index_condition(q)
			FROM (SELECT number, format(query, 'bench_hour_plain') AS q FROM bench_hour_forms OFFSET 0) p) AS q
	WHERE fast OR round <= 3 \g /dev/null

SELECT period, form, max(rows) FILTER (WHERE source = 'of_id') AS rows,
	round(min(ms) FILTER (WHERE source = 'meant')::numeric, 3) AS meant,
	round(min(ms) FILTER (WHERE source = 'of_id')::numeric, 3) AS of_id,
	round((min(ms) FILTER (WHERE source = 'of_id') / min(ms) FILTER (WHERE source = 'meant'))::numeric, 2) AS ratio,
	round(min(ms) FILTER (WHERE source = 'plain')::numeric, 3) AS plain
	FROM bench_hour_forms JOIN
		(SELECT number, source, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS ms, max(rows) AS rows
		 FROM bench_hour_rounds GROUP BY 1, 2) r USING (number)
	GROUP BY number, period, form ORDER BY period = 'newest', period DESC, number;
