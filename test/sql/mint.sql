-- Minting in one session. What needs several, or another clock, is in test/t.
SHOW snowflake.node_id;
SELECT snowflake_next() < snowflake_next() AS ascending;

-- As a default, of a snowflake and of a bigint column.
CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), n int);
CREATE TABLE counted (id bigint PRIMARY KEY DEFAULT snowflake_next(), n int);
INSERT INTO orders (n) SELECT g FROM generate_series(1, 10000) g;
INSERT INTO counted (n) SELECT g FROM generate_series(1, 10000) g;
SELECT count(DISTINCT id), bool_and(id > before) AS ascending
	FROM (SELECT id, lag(id) OVER (ORDER BY n) AS before FROM orders) o;
SELECT count(DISTINCT id), bool_and(id > before) AS ascending
	FROM (SELECT id, lag(id) OVER (ORDER BY n) AS before FROM counted) o;
SELECT max(o.id) < min(c.id::snowflake) AS one_generator FROM orders o, counted c WHERE o.n = 10000;
SELECT bool_and(snowflake_node(id) = 1) AS of_node_1,
	bool_and(@@ id BETWEEN now() - interval '1 minute' AND clock_timestamp() + interval '6 ms') AS of_now
	FROM orders;

-- Several at once: as many as asked for, distinct and ascending, above the one
-- before and below the one after; also if the query stops early.
SELECT snowflake_next() AS before \gset
SELECT count(*), count(DISTINCT id), bool_and(id > previous) AS ascending, min(id) > :before AS above
	FROM (SELECT id, lag(id) OVER (ORDER BY n) AS previous
		  FROM snowflake_next_batch(20000) WITH ORDINALITY AS b(id, n)) b;
SELECT snowflake_next_batch(3) > :before::bigint AS above;
SELECT count(*) FROM (SELECT snowflake_next_batch(1000000) LIMIT 5) b;
SELECT max(id) < snowflake_next() AS below FROM snowflake_next_batch(3) AS id;
-- Nobody else mints, so a tick's IDs are without a gap.
SELECT count(*) AS gaps
	FROM (SELECT id, lag(id) OVER (ORDER BY id) AS before
		  FROM (SELECT snowflake_next_batch(3) AS id FROM generate_series(1, 2000)) b) b
	WHERE @@ id = @@ before AND snowflake_sequence(id) <> snowflake_sequence(before) + 1;

SELECT snowflake_next_batch(0);
SELECT * FROM snowflake_next_batch(NULL);
SELECT code, message FROM outcome('SELECT snowflake_next_batch(-1)');
SELECT count(*), count(DISTINCT id) FROM (SELECT snowflake_next_batch(g) AS id FROM generate_series(0, 100) g) b;

-- A rollback gives nothing back, and ends nothing.
CREATE TEMP TABLE seen (id snowflake);
INSERT INTO seen SELECT snowflake_next();
BEGIN;
INSERT INTO orders (n) VALUES (-1);
ROLLBACK;
INSERT INTO orders (n) VALUES (-2);
SELECT o.id > seen.id AS above FROM orders o, seen WHERE n = -2;

-- It is volatile, and safe in parallel workers.
SELECT provolatile, proparallel FROM pg_proc WHERE proname = 'snowflake_next';
SELECT count(DISTINCT snowflake_next()) FROM generate_series(1, 1000);

-- Nobody sets the server's identity from a session.
SELECT code, message FROM outcome('SET snowflake.node_id = 2');
SELECT code, message FROM outcome('SET snowflake.layout = discord');
ALTER SYSTEM SET snowflake.node_id = 1024;
ALTER SYSTEM SET snowflake.node_id = -2;
SELECT code, message FROM outcome('SET snowflake.no_such_setting = 1');
SET snowflake.max_wait = '50ms';
SHOW snowflake.max_wait;

-- The state, as an administrator sees it.
SELECT gate, node, layout = (snowflake_layout()).layout AS layout,
	last_id >= (SELECT max(id) FROM orders) AS last_id,
	lead < interval '6 ms' AS lead, reserved_until > @@ last_id AS reserved,
	keeper_pid = (SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake keeper') AS keeper,
	reservations > 0 AS reservations
	FROM snowflake_status, snowflake_stats;

-- What may not be done by everybody.
CREATE ROLE regress_snowflake_user;
SET ROLE regress_snowflake_user;
SELECT code, message FROM outcome($$SELECT snowflake_advance('1')$$);
SELECT code, message FROM outcome('SELECT snowflake_accept_layout()');
SELECT code, message FROM outcome('SELECT snowflake_accept_database()');
SELECT snowflake_next() > 0 AS mints;
RESET ROLE;
DROP ROLE regress_snowflake_user;
SELECT snowflake_accept_layout();
SELECT snowflake_accept_database(max(id)) FROM orders;

DROP TABLE orders, counted, seen;

-- A value for the caller's field needs a layout that has one: 070_caller_field.pl.
SELECT code, message, detail FROM outcome('SELECT snowflake_next(0)');
SELECT code, message FROM outcome('SELECT snowflake_next_batch(3, 1)');
SELECT snowflake_next(NULL) IS NULL AS next, count(*) FROM snowflake_next_batch(3, NULL);
SELECT estimate('SELECT snowflake_next_batch(7, 1)');
-- A number that is known only when the query runs, as from a setting, is estimated.
SELECT estimate($$SELECT snowflake_next_batch(6 + current_setting('snowflake.node_id')::int)$$);
