-- What a created_at column and its index cost beside a snowflake key, on
-- 1,000,000 rows of a year: space, and buffers read for the rows of one hour.
--
--   psql -X -f test/bench/created_at.sql
--
-- Needs the extension in the database; mints nothing.

\set QUIET on
SET client_min_messages = warning;
SET max_parallel_workers_per_gather = 0;
BEGIN;

CREATE TABLE by_id (id snowflake PRIMARY KEY, note text);
CREATE TABLE by_created_at (id bigint PRIMARY KEY, note text, created_at timestamptz NOT NULL);
INSERT INTO by_id
	SELECT make_snowflake(timestamptz '2026-01-01' + g * interval '31.536 s', 1, 1), 'note ' || g
	FROM generate_series(0, 999999) g;
INSERT INTO by_created_at SELECT id::bigint, note, @@ id FROM by_id ORDER BY id;
CREATE INDEX by_created_at_index ON by_created_at (created_at);
ANALYZE by_id, by_created_at;

-- Buffers that a query touches, hit or read, in its second run: the first one
-- reads the system catalogs as well.
CREATE FUNCTION pg_temp.buffers(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || query INTO plan;
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || query INTO plan;
	RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::bigint + (plan->0->'Plan'->>'Shared Read Blocks')::bigint;
END $$;

SELECT 'snowflake key' AS table, pg_relation_size('by_id') AS heap_bytes,
	pg_relation_size('by_id_pkey') AS key_bytes, 0 AS created_at_index_bytes,
	pg_temp.buffers($$SELECT * FROM by_id WHERE @@ id >= timestamptz '2026-06-01 12:00' AND @@ id < timestamptz '2026-06-01 13:00'$$) AS buffers_of_an_hour
UNION ALL
SELECT 'bigint key and created_at', pg_relation_size('by_created_at'),
	pg_relation_size('by_created_at_pkey'), pg_relation_size('by_created_at_index'),
	pg_temp.buffers($$SELECT * FROM by_created_at WHERE created_at >= timestamptz '2026-06-01 12:00' AND created_at < timestamptz '2026-06-01 13:00'$$);

ROLLBACK;
