-- What a snowflake has from bigint: everything that compares, sorts, hashes,
-- joins, counts or computes, with the plans of a bigint.

-- The type owns no comparison, no operator class, no aggregate.
SELECT o.oid::regoperator FROM pg_operator o
	WHERE 'snowflake'::regtype IN (oprleft, oprright) ORDER BY o.oid::regoperator::text COLLATE "C";
SELECT count(*) FROM pg_opclass WHERE opcintype = 'snowflake'::regtype;
SELECT count(*) FROM pg_aggregate JOIN pg_proc p ON p.oid = aggfnoid WHERE 'snowflake'::regtype = ANY (proargtypes);
SELECT castsource::regtype, casttarget::regtype, castcontext, castmethod FROM pg_cast
	WHERE castsource = 'snowflake'::regtype
		OR casttarget = 'snowflake'::regtype ORDER BY castsource::regtype::text COLLATE "C", casttarget::regtype::text COLLATE "C";

CREATE TABLE orders (id snowflake PRIMARY KEY, v int, customer bigint);
CREATE TABLE lines (order_id bigint, n int);
INSERT INTO orders SELECT g * 5000000000, g % 10, g FROM generate_series(1::bigint, 10000) g;
INSERT INTO lines SELECT g % 10000 * 5000000000, g FROM generate_series(1::bigint, 20000) g;
CREATE INDEX ON lines (order_id);
VACUUM ANALYZE orders, lines;

-- Literals and parameters of open type beside an ID are bigint, never a time.
PREPARE below AS SELECT id FROM orders WHERE id < $1;
PREPARE between_both AS SELECT id FROM orders WHERE id BETWEEN $1 AND $2;
PREPARE equal AS SELECT id FROM orders WHERE id = $1;
PREPARE any_of AS SELECT id FROM orders WHERE id = ANY ($1);
PREPARE keyset AS SELECT id FROM orders WHERE (id, v) < ($1, $2);
PREPARE reversed AS SELECT id FROM orders WHERE $1 >= id;
SELECT name, parameter_types FROM pg_prepared_statements ORDER BY name COLLATE "C";
DEALLOCATE ALL;
SELECT query, code, message FROM unnest(ARRAY[$$SELECT id FROM orders WHERE id < '2026-01-01'$$, $$SELECT id FROM orders WHERE '2026-01-01' < id$$,
	'SELECT 5 < now()', 'SELECT 5::bigint < now()', 'SELECT now() >= 5::bigint', 'SELECT id FROM orders WHERE id = now()']) AS query, LATERAL outcome(query);

-- By index: any integer, text, lists of any length, row comparisons.  Constants are derived across equalities, also to bigint.
SET enable_bitmapscan = off;
SELECT plan(query) FROM unnest(ARRAY[
	'SELECT v FROM orders WHERE id = 5000000000',
	$$SELECT v FROM orders WHERE id = '5000000000'$$,
	'SELECT v FROM orders WHERE id = 5::smallint',
	'SELECT v FROM orders WHERE id IN (5000000000, 10000000000)',
	$$SELECT v FROM orders WHERE id = ANY ('{5000000000,10000000000}'::bigint[])$$,
	$$SELECT v FROM orders WHERE id > '5000000000' ORDER BY id LIMIT 10$$,
	'SELECT * FROM orders JOIN lines ON order_id = id WHERE id = 5000000000',
	'SELECT * FROM orders a JOIN orders b ON a.id = b.id WHERE a.id = 5']) AS query;
SELECT plan_has('SELECT max(id) FROM orders', 'Index Only Scan Backward') AS max_by_index,
	plan_has('SELECT min(id) FROM orders', 'Index Only Scan using') AS min_by_index;

-- A list of any length is one condition, not a chain of ORs.
SELECT plan_has(format('SELECT v FROM orders WHERE v + 0 = 1 AND id IN (%s)', string_agg(g::text, ',')), 'ANY') AS listed,
	plan_has(format('SELECT v FROM orders WHERE v + 0 = 1 AND id NOT IN (%s)', string_agg(g::text, ',')), 'ALL') AS not_listed
	FROM generate_series(5000000000, 5000001000) g;
RESET enable_bitmapscan;

-- A merge join with bigint, without a sort where an index has the order.
SET enable_hashjoin = off;
SET enable_nestloop = off;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM orders JOIN lines ON order_id = id;
SELECT count(*) FROM orders JOIN lines ON order_id = id;
RESET enable_hashjoin;
RESET enable_nestloop;
RESET enable_seqscan;

-- What a proof needs: partial indexes, CHECK constraints.
CREATE TABLE partial (id snowflake, v int);
INSERT INTO partial SELECT g, g FROM generate_series(1, 1000) g;
CREATE INDEX partial_above ON partial (v) WHERE id > 100;
ANALYZE partial;
SET enable_seqscan = off;
SELECT plan_has('SELECT v FROM partial WHERE id = 150', 'partial_above') AS implied,
	plan_has('SELECT v FROM partial WHERE id = 50', 'partial_above') AS not_implied;
RESET enable_seqscan;
CREATE TABLE checked (id snowflake CHECK (id < 1000));
SET constraint_exclusion = on;
SELECT plan_has('SELECT * FROM checked WHERE id = 5000', 'One-Time Filter: false') AS equal_excluded,
	plan_has('SELECT * FROM checked WHERE id >= 1000', 'One-Time Filter: false') AS range_excluded;
RESET constraint_exclusion;

-- Partitions: attached by proof, pruned by either type, joined partition by
-- partition; a bigint child of the same key.
CREATE TABLE parent (id snowflake, v int) PARTITION BY RANGE (id);
CREATE TABLE parent_1 PARTITION OF parent FOR VALUES FROM (0) TO (5000000000);
CREATE TABLE parent_2 (id snowflake NOT NULL, v int, CHECK (id >= 5000000000 AND id < 10000000000));
SET client_min_messages = debug1;
ALTER TABLE parent ATTACH PARTITION parent_2 FOR VALUES FROM (5000000000) TO (10000000000);
RESET client_min_messages;
CREATE TABLE child (id bigint, n int) PARTITION BY RANGE (id);
CREATE TABLE child_1 PARTITION OF child FOR VALUES FROM (0) TO (5000000000);
CREATE TABLE child_2 PARTITION OF child FOR VALUES FROM (5000000000) TO (10000000000);
INSERT INTO parent SELECT g * 1000000000, g FROM generate_series(1::bigint, 9) g;
INSERT INTO child SELECT g * 1000000000, g FROM generate_series(1::bigint, 9) g;
ANALYZE parent, child;
SET enable_partitionwise_join = on;
SELECT plan_has('SELECT * FROM parent JOIN child USING (id)', 'Append') AND
	NOT plan_has('SELECT * FROM parent JOIN child USING (id)', '^ *Hash Join') AS partitionwise;
SELECT count(*) FROM parent JOIN child USING (id);
RESET enable_partitionwise_join;
SELECT plan('SELECT * FROM parent JOIN child USING (id) WHERE parent.id = 7000000000');

-- A range is estimated.
CREATE TABLE measured AS SELECT g::snowflake AS id FROM generate_series(1, 50000) g;
ANALYZE measured;
SELECT estimate('SELECT FROM measured WHERE id >= 25000 AND id < 25100') BETWEEN 67 AND 150 AS about_100,
	estimate($$SELECT FROM measured WHERE id >= '25000' AND id < '25100'$$) BETWEEN 67 AND 150 AS about_100,
	estimate('SELECT FROM measured WHERE id = 25000') AS one;

-- Aggregates are of the number.
SELECT pg_typeof(max(id)), min(id), max(id), sum(id), avg(id)::bigint, count(DISTINCT id % 16) FROM measured;

-- Arithmetic and what else takes a bigint.
SELECT id % 16 AS modulo, to_hex(id) AS hex, id >> 1 AS shifted, abs(id), id + 1 AS next, pg_typeof(id + 1)
	FROM measured WHERE id = 42;
SELECT coalesce(max(id), 0) AS none FROM measured WHERE id < 0;
SELECT id FROM measured WHERE id < 3 UNION SELECT 3::bigint ORDER BY 1;
SELECT nullif(id, 42) IS NULL AS nullif, id IS DISTINCT FROM 42 AS distinct_from, CASE id WHEN 42 THEN 'yes' ELSE 'no' END AS in_case,
	greatest(id, 43::bigint), id IN (SELECT 42) AS in_query
	FROM measured WHERE id = 42;
CREATE TABLE other_numbers (a numeric, b double precision, c real, d integer, e smallint);
INSERT INTO other_numbers SELECT id, id, id, id, id FROM measured WHERE id = 42;
SELECT * FROM other_numbers;
SELECT code, message FROM outcome($$SELECT '5000000000'::snowflake::integer$$);
SELECT code, message FROM outcome($$SELECT '5000000000'::snowflake + 0.5$$);

-- What PostgreSQL does not look through a cast for, as of a varchar beside text, and what
-- is written in its place: doc/reference.md, "Limits".
CREATE TABLE sparse (id snowflake);
INSERT INTO sparse SELECT g FROM generate_series(1, 1000) g;
CREATE INDEX sparse_id ON sparse (id) WHERE id IS NOT NULL;
CREATE TABLE dense (id snowflake PRIMARY KEY);
INSERT INTO dense SELECT id FROM sparse;
ANALYZE sparse, dense;
SELECT plan_has('SELECT max(id) FROM sparse', 'sparse_id') AS max,
	plan_has('SELECT id FROM sparse WHERE id IS NOT NULL ORDER BY id DESC LIMIT 1', 'sparse_id') AS ordered,
	plan_has('SELECT * FROM dense a FULL JOIN dense b USING (id) WHERE id = 42', 'Index Cond') AS by_using,
	plan_has('SELECT * FROM dense a FULL JOIN dense b ON a.id = b.id WHERE coalesce(a.id::bigint, b.id::bigint) = 42',
		'Index Cond') AS by_coalesce;
DROP TABLE sparse, dense;

-- A table of bigint becomes one of snowflakes, and back, the latter without a
-- rewrite of table or index.
CREATE TABLE changes (id snowflake PRIMARY KEY);
INSERT INTO changes SELECT g FROM generate_series(1, 100) g;
CREATE FUNCTION files() RETURNS text LANGUAGE sql
	AS $$SELECT string_agg(pg_relation_filenode(oid)::text, ' ' ORDER BY relname) FROM pg_class WHERE relname IN ('changes', 'changes_pkey')$$;
SELECT files() AS before \gset
ALTER TABLE changes ALTER id TYPE bigint;
SELECT :'before' = files() AS not_rewritten;
SELECT count(*) FROM changes WHERE id = 7;
ALTER TABLE changes ALTER id TYPE snowflake;
CREATE TABLE numbers AS SELECT -7::bigint AS id;
SELECT code, message FROM outcome('ALTER TABLE numbers ALTER id TYPE snowflake');
DROP FUNCTION files;

-- Row filters of publications are for built-in types only.
SELECT code, message, detail FROM outcome('CREATE PUBLICATION filtered FOR TABLE changes WHERE (id > 5)');

DROP TABLE orders, lines, partial, checked, parent, child, numbers, measured, other_numbers, changes;
