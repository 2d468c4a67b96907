-- Rows in the order of the time that their IDs say come from an index on the ID.
SET timezone = 'UTC';
SET max_parallel_workers_per_gather = 0;
CREATE TABLE visits (id snowflake PRIMARY KEY, page int, other snowflake);
INSERT INTO visits SELECT make_snowflake(ts, n::int % 1024, 0), n % 10, make_snowflake(ts, 1, 1)
	FROM generate_series(timestamptz '2026-01-01', '2026-02-28', '10 min') WITH ORDINALITY AS g(ts, n);
CREATE TABLE old_visits (id bigint, page int);
INSERT INTO old_visits SELECT id, page FROM visits UNION ALL SELECT NULL, 1 FROM generate_series(1, 3);
CREATE INDEX old_visits_down ON old_visits (id DESC, page);
CREATE TABLE visits_by_month (id snowflake PRIMARY KEY, page int) PARTITION BY RANGE (id);
CREATE TABLE visits_1 PARTITION OF visits_by_month
	FOR VALUES FROM (snowflake_lower_bound('2026-01-01')) TO (snowflake_lower_bound('2026-02-01'));
CREATE TABLE visits_2 (page int, id snowflake PRIMARY KEY);
ALTER TABLE visits_by_month ATTACH PARTITION visits_2
	FOR VALUES FROM (snowflake_lower_bound('2026-02-01')) TO (snowflake_lower_bound('2026-03-01'));
INSERT INTO visits_by_month SELECT id, page FROM visits WHERE @@ id < timestamptz '2026-02-28';
ANALYZE visits, old_visits, visits_by_month;
CREATE VIEW recent AS SELECT id, @@ id AS created_at, page, other FROM visits;

SELECT plan(query) FROM unnest(ARRAY[
	$$SELECT * FROM recent ORDER BY created_at DESC LIMIT 20$$,
	$$SELECT * FROM recent ORDER BY created_at LIMIT 20$$,
	$$SELECT * FROM recent ORDER BY created_at DESC, id DESC LIMIT 20$$,
	$$SELECT * FROM recent ORDER BY created_at DESC, page LIMIT 20$$,
	$$SELECT * FROM recent WHERE created_at >= '2026-01-10' ORDER BY created_at LIMIT 20$$,
	$$SELECT * FROM recent WHERE page = 3 ORDER BY created_at DESC LIMIT 20$$,
	$$SELECT DISTINCT created_at FROM recent ORDER BY 1 LIMIT 5$$,
	$$SELECT id, page FROM old_visits ORDER BY snowflake_timestamp(id) LIMIT 20$$,
	$$SELECT id, page FROM old_visits ORDER BY snowflake_timestamp(id, 'twitter') DESC LIMIT 20$$,
	$$SELECT @@ id AS created_at FROM visits_by_month ORDER BY created_at DESC LIMIT 5$$]) AS query;
SELECT plan_has($$SELECT a.created_at FROM recent a JOIN old_visits b USING (page) ORDER BY a.created_at DESC LIMIT 3$$,
	'Index (Only )?Scan Backward using visits_pkey') AS in_a_join;

-- Not by the index: an order that it has not, or of another column, or of the layouts of rows.
SELECT query, plan_has(query, ' Sort') AS sorted FROM unnest(ARRAY[
	$$SELECT FROM recent ORDER BY created_at DESC NULLS LAST LIMIT 20$$,
	$$SELECT FROM recent ORDER BY created_at DESC, id LIMIT 20$$,
	$$SELECT FROM recent ORDER BY created_at DESC, id NULLS FIRST LIMIT 20$$,
	$$SELECT FROM recent ORDER BY @@ other LIMIT 20$$,
	$$SELECT FROM recent ORDER BY created_at + interval '1 hour' LIMIT 20$$,
	$$SELECT FROM recent ORDER BY page, created_at LIMIT 20$$,
	$$SELECT FROM visits v JOIN (VALUES ('twitter'), ('discord')) l(layout) ON true ORDER BY snowflake_timestamp(id, layout) LIMIT 20$$,
	$$SELECT FROM visits ORDER BY snowflake_timestamp(id, CASE page WHEN 3 THEN 'discord' ELSE 'twitter' END) LIMIT 20$$,
	$$SELECT FROM visits v RIGHT JOIN generate_series(1, 3) g ON v.page = g ORDER BY @@ v.id LIMIT 20$$]) AS query;

-- The rows are those of the plain order, NULLs included.
CREATE FUNCTION same_rows(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	by_index text;
	by_sort text;
BEGIN
	SET LOCAL enable_sort = off;
	EXECUTE format('SELECT string_agg(r::text, '' '') FROM (%s) r', query) INTO by_index;
	SET LOCAL enable_sort = on;
	SET LOCAL enable_indexscan = off;
	SET LOCAL enable_indexonlyscan = off;
	EXECUTE format('SELECT string_agg(r::text, '' '') FROM (%s) r', query) INTO by_sort;
	RESET enable_indexscan;
	RESET enable_indexonlyscan;
	RETURN by_index = by_sort;
END $$;
SELECT query, same_rows(query) FROM unnest(ARRAY[
	$$SELECT * FROM recent ORDER BY created_at DESC LIMIT 200$$,
	$$SELECT * FROM recent WHERE created_at > '2026-01-10' AND page < 5 ORDER BY created_at LIMIT 200$$,
	$$SELECT * FROM recent WHERE id <= other ORDER BY created_at LIMIT 200$$,
	$$SELECT created_at, page FROM recent ORDER BY created_at DESC, page DESC LIMIT 200$$,
	$$SELECT snowflake_timestamp(id) FROM old_visits ORDER BY 1 DESC LIMIT 20$$,
	$$SELECT snowflake_timestamp(id) FROM old_visits ORDER BY 1 NULLS FIRST LIMIT 20$$,
	$$SELECT snowflake_timestamp(id) FROM old_visits ORDER BY 1 OFFSET 8340$$,
	$$SELECT @@ id, page FROM visits_by_month WHERE @@ id BETWEEN '2026-01-31 23:00' AND '2026-02-01 01:00' ORDER BY 1$$,
	$$SELECT @@ id, page FROM visits_by_month ORDER BY 1 DESC OFFSET 4000$$,
	$$SELECT generate_series(1, 2), @@ id, page FROM visits_by_month ORDER BY 2 DESC, 1 OFFSET 8000$$]) AS query;
SELECT plan($$SELECT page FROM visits_by_month WHERE page = 3 ORDER BY @@ id DESC, id DESC LIMIT 5 FOR UPDATE$$);
SELECT plan($$SELECT @@ id, page FROM visits_by_month ORDER BY @@ id, page LIMIT 5$$);
SELECT plan($$SELECT @@ id FROM visits_by_month WHERE @@ id < timestamptz '2026-02-01' ORDER BY 1 LIMIT 5$$);

-- One of several values in a later column of the index: until PostgreSQL 16 there is a scan for
-- each of them, and together they are not in the order of the index.
CREATE TABLE visits_by_page (id snowflake, page int, other int);
INSERT INTO visits_by_page SELECT id, row_number() OVER (ORDER BY id) % 2000, 0 FROM visits ORDER BY hashint8(id);
CREATE INDEX ON visits_by_page (id, page);
ANALYZE visits_by_page;
SELECT query, same_rows(query) FROM unnest(ARRAY[
	$$SELECT * FROM visits_by_page WHERE @@ id >= '2026-02-20' AND page IN (1, 2) ORDER BY @@ id$$,
	$$SELECT * FROM visits_by_page WHERE @@ id >= '2026-02-20' AND page IN (1, 2) ORDER BY @@ id DESC LIMIT 4$$,
	$$SELECT * FROM visits_by_page WHERE id IN (SELECT id FROM visits_by_page WHERE page < 7) AND page IN (3, 4) ORDER BY @@ id$$]) AS query;
DROP TABLE visits_by_page;

-- An index whose earlier columns are fixed, or sorted by first, has the order as well.
CREATE TABLE orders (id snowflake PRIMARY KEY, customer int, kind text COLLATE "C", n int);
INSERT INTO orders SELECT id, page, 'kind ' || page % 3, row_number() OVER (ORDER BY id) FROM visits;
CREATE INDEX orders_customer ON orders (customer, id DESC);
CREATE INDEX orders_kind ON orders (kind DESC, customer, id) WHERE n > 0;
CREATE TABLE customers AS SELECT generate_series(0, 9) AS customer;
VACUUM ANALYZE orders, customers;
CREATE VIEW recent_orders AS SELECT *, @@ id AS created_at FROM orders;
SELECT plan(query) FROM unnest(ARRAY[
	$$SELECT * FROM recent_orders WHERE customer = 7 ORDER BY created_at DESC LIMIT 20$$,
	$$SELECT * FROM recent_orders WHERE 7 = customer ORDER BY created_at DESC, id DESC LIMIT 20$$,
	$$SELECT * FROM recent_orders ORDER BY customer, created_at DESC LIMIT 20$$,
	$$SELECT * FROM recent_orders WHERE kind = 'kind 1' AND customer = 7 AND n > 0 ORDER BY created_at LIMIT 20$$,
	$$SELECT * FROM recent_orders WHERE n > 0 ORDER BY kind DESC, customer, created_at LIMIT 20$$,
	$$SELECT * FROM customers c, LATERAL (SELECT created_at, id FROM recent_orders o WHERE o.customer = c.customer ORDER BY created_at DESC LIMIT 1) o$$,
	$$SELECT DISTINCT created_at FROM recent_orders WHERE customer = 7 LIMIT 5$$]) AS query;
SELECT query, plan_has(query, ' Sort') AS sorted FROM unnest(ARRAY[
	$$SELECT * FROM recent_orders WHERE customer IN (7, 8) AND id > 5 ORDER BY created_at DESC, n LIMIT 20$$,
	$$SELECT * FROM recent_orders ORDER BY customer DESC, created_at DESC LIMIT 20$$,
	$$SELECT * FROM recent_orders WHERE kind = 'kind 1' COLLATE "POSIX" AND customer > 3 ORDER BY kind, created_at, n LIMIT 20$$]) AS query;
SELECT query, same_rows(query) FROM unnest(ARRAY[
	$$SELECT * FROM recent_orders WHERE customer = 7 ORDER BY created_at DESC LIMIT 200$$,
	$$SELECT * FROM recent_orders WHERE customer = 7 AND created_at BETWEEN '2026-01-10' AND '2026-01-12' ORDER BY created_at$$,
	$$SELECT * FROM recent_orders ORDER BY customer, created_at DESC LIMIT 200$$,
	$$SELECT * FROM recent_orders WHERE n > 0 ORDER BY kind DESC, customer, created_at LIMIT 200$$,
	$$SELECT * FROM customers c, LATERAL (SELECT created_at, id FROM recent_orders o WHERE o.customer = c.customer ORDER BY created_at DESC LIMIT 3) o
		ORDER BY c.customer, o.id$$]) AS query;

-- The first and the last time, of all and of the partitions.
SELECT query, plan_has(query, 'Limit') AS by_index FROM unnest(ARRAY[
	$$SELECT min(created_at), max(created_at) FROM recent$$,
	$$SELECT min(created_at), max(created_at) FROM recent WHERE created_at > '2026-02-01'$$,
	$$SELECT min(created_at), max(created_at) FROM recent_orders WHERE customer = 7$$,
	$$SELECT max(snowflake_timestamp(id)) FROM old_visits$$,
	$$SELECT max(@@ id) FROM visits_by_month$$]) AS query;
SELECT min(created_at) = (SELECT @@ min(id) FROM visits) AS min, max(created_at) = (SELECT @@ max(id) FROM visits) AS max FROM recent;
SELECT max(snowflake_timestamp(id)) = (SELECT max(created_at) FROM recent) AS not_null FROM old_visits;
SELECT min(created_at), max(created_at) FROM recent WHERE page > 10;

-- Merge joins, groups in UTC, and UNION ALL.
SET enable_hashjoin = off;
SET enable_nestloop = off;
SELECT plan($$SELECT FROM recent a JOIN recent_orders b USING (created_at)$$);
SELECT plan($$SELECT FROM recent a LEFT JOIN recent_orders b ON a.created_at = b.created_at AND b.n > 5$$);
SELECT count(*) FROM recent a JOIN recent_orders b USING (created_at);
RESET enable_hashjoin;
RESET enable_nestloop;
SET enable_hashagg = off;
SELECT plan($$SELECT date_trunc('day', created_at, 'UTC') AS day, count(*) FROM recent GROUP BY 1$$);
SELECT plan($$SELECT date_trunc('day', created_at AT TIME ZONE 'UTC') AS day, count(*) FROM recent GROUP BY 1$$);
SELECT plan_has($$SELECT date_trunc('day', created_at) AS day, count(*) FROM recent GROUP BY 1$$, ' Sort') AS sorted;
RESET enable_hashagg;
CREATE VIEW all_visits AS SELECT @@ id AS created_at, page FROM visits UNION ALL SELECT @@ id, customer FROM orders;
SELECT plan($$SELECT * FROM all_visits WHERE created_at < '2026-02-01' ORDER BY created_at DESC LIMIT 20$$);
SELECT same_rows($$SELECT * FROM all_visits WHERE created_at < '2026-02-01' ORDER BY created_at DESC, page LIMIT 200$$);

-- Locks of rows, and security: only a condition that leaks nothing is looked up before a policy.
SELECT plan($$SELECT * FROM recent_orders WHERE customer = 7 ORDER BY created_at DESC LIMIT 20 FOR UPDATE$$);
CREATE FUNCTION leaks(int, int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RETURN $1 = $2; END$$;
CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = leaks, COMMUTATOR = ===);
CREATE OPERATOR CLASS leaking_ops FOR TYPE int USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 ===, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
ALTER TABLE orders DROP CONSTRAINT orders_pkey;
CREATE INDEX orders_leaking ON orders (id, customer leaking_ops);
CREATE ROLE regress_snowflake_reader;
GRANT SELECT ON orders TO regress_snowflake_reader;
ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
CREATE POLICY even ON orders USING (n % 2 = 0);
SET enable_sort = off;
SELECT plan($$SELECT id FROM orders WHERE customer === 7 AND @@ id >= '2026-02-01' ORDER BY @@ id LIMIT 20$$);
SET ROLE regress_snowflake_reader;
SELECT plan($$SELECT id FROM orders WHERE customer === 7 AND @@ id >= '2026-02-01' ORDER BY @@ id LIMIT 20$$);
RESET ROLE;
RESET enable_sort;
DROP VIEW recent_orders, all_visits;
DROP TABLE orders, customers;
DROP OPERATOR FAMILY leaking_ops USING btree;
DROP OPERATOR === (int, int);
DROP FUNCTION leaks;
DROP ROLE regress_snowflake_reader;

-- Partitions of partitions, the columns of which have another order at each level.
CREATE TABLE visits_by_year (id snowflake PRIMARY KEY, page int) PARTITION BY RANGE (id);
CREATE TABLE visits_2026 (page int, id snowflake PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE visits_2026_1 (id snowflake PRIMARY KEY, page int);
CREATE TABLE visits_2026_2 (dropped int, page int, id snowflake PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE visits_2026_2_all (page int, dropped int, id snowflake PRIMARY KEY);
ALTER TABLE visits_2026_2 DROP dropped;
ALTER TABLE visits_2026_2_all DROP dropped;
CREATE INDEX ON visits_2026_1 (page);
CREATE INDEX ON visits_2026_2_all (page);
ALTER TABLE visits_by_year ATTACH PARTITION visits_2026
	FOR VALUES FROM (snowflake_lower_bound('2026-01-01')) TO (snowflake_lower_bound('2027-01-01'));
ALTER TABLE visits_2026 ATTACH PARTITION visits_2026_1
	FOR VALUES FROM (snowflake_lower_bound('2026-01-01')) TO (snowflake_lower_bound('2026-01-10'));
ALTER TABLE visits_2026 ATTACH PARTITION visits_2026_2
	FOR VALUES FROM (snowflake_lower_bound('2026-01-10')) TO (snowflake_lower_bound('2027-01-01'));
ALTER TABLE visits_2026_2 ATTACH PARTITION visits_2026_2_all
	FOR VALUES FROM (snowflake_lower_bound('2026-01-10')) TO (snowflake_lower_bound('2027-01-01'));
INSERT INTO visits_by_year SELECT id, page FROM visits WHERE @@ id < timestamptz '2026-01-20';
ANALYZE visits_by_year;
SELECT query, plan_has(query || ' LIMIT 20', '->  Sort$') AS sorted, same_rows(query) FROM unnest(ARRAY[
	$$SELECT @@ id, page FROM visits_by_year ORDER BY 1$$,
	$$SELECT @@ id, page FROM visits_by_year ORDER BY 1 DESC$$,
	$$SELECT @@ id, id, page FROM visits_by_year WHERE @@ id > '2026-01-09 23:00' ORDER BY 1, 2$$]) AS query;
DROP TABLE visits_by_year;

-- Not by an index that has some of the rows only, nor without the sample that is asked for.
CREATE TABLE some_visits AS SELECT id, page FROM visits ORDER BY id LIMIT 5000;
CREATE INDEX some_visits_of_page ON some_visits (id) WHERE page = 3;
ANALYZE some_visits;
SET enable_sort = off;
SELECT plan_has($$SELECT FROM some_visits ORDER BY @@ id LIMIT 20$$, ' Sort') AS sorted;
SELECT plan($$SELECT FROM some_visits WHERE page = 3 ORDER BY @@ id LIMIT 20$$);
SELECT count(*) FROM (SELECT FROM some_visits ORDER BY @@ id) v;
SELECT count(*) FROM (SELECT FROM visits TABLESAMPLE BERNOULLI (0) ORDER BY @@ id) v;
-- Nor by one whose operators sort in another way.
CREATE FUNCTION compare_down(bigint, bigint) RETURNS int IMMUTABLE STRICT LANGUAGE sql RETURN btint8cmp($2, $1);
CREATE OPERATOR CLASS down_ops FOR TYPE bigint USING btree AS
	OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 compare_down(bigint, bigint);
CREATE TABLE visits_down AS SELECT id::bigint AS id FROM some_visits;
CREATE INDEX ON visits_down (id down_ops);
SELECT plan_has($$SELECT FROM visits_down ORDER BY snowflake_timestamp(id) LIMIT 20$$, ' Sort') AS sorted;
DROP TABLE visits_down;
DROP OPERATOR FAMILY down_ops USING btree;
DROP FUNCTION compare_down;
-- Nor of a table that is proven empty.
SELECT count(*) FROM (SELECT @@ id AS c FROM visits WHERE page = NULL ORDER BY c) v;
SELECT count(*) FROM (SELECT @@ id AS c FROM visits WHERE false ORDER BY c) v;
PREPARE of_page(int) AS SELECT count(*) FROM (SELECT @@ id AS c FROM visits WHERE page = $1 AND page <> $1 ORDER BY c) v;
EXECUTE of_page(NULL);
DEALLOCATE of_page;
BEGIN;
DELETE FROM visits WHERE id IN (SELECT id FROM visits WHERE page = NULL ORDER BY @@ id LIMIT 2) RETURNING id;
ROLLBACK;
RESET enable_sort;
DROP TABLE some_visits;

DROP VIEW recent;
DROP TABLE visits, old_visits, visits_by_month;
DROP FUNCTION same_rows;
