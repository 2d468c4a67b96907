-- Indexes, joins, partitions and estimates.
CREATE TABLE orders (id snowflake PRIMARY KEY, note text);
CREATE TABLE items (order_id bigint, n int);
INSERT INTO orders SELECT g::bigint, 'order ' || g FROM generate_series(1, 10000) g;
INSERT INTO items SELECT g % 10000 + 1, g FROM generate_series(1, 20000) g;
CREATE INDEX ON items (order_id);
ANALYZE orders, items;
SET enable_bitmapscan = off;

-- btree: by snowflake, by integers of any size, by text, from both sides.
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id = '500';
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id = 500;
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id = 500::smallint;
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE 500::bigint = id;
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id > 500 AND id <= '600';
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id IN ('1', '2', '3');
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id = ANY ('{1,2,3}'::bigint[]);
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id = ANY ('{1,2,3}'::int[]);
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id::bigint = 500;
CREATE FUNCTION plan_has(query text, pattern text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ pattern THEN
			RETURN true;
		END IF;
	END LOOP;
	RETURN false;
END $$;
SELECT plan_has('SELECT max(id) FROM orders', 'Index Only Scan Backward') AS max_by_index,
	plan_has('SELECT min(id) FROM orders', 'Index Only Scan using') AS min_by_index;
EXPLAIN (COSTS OFF) SELECT id FROM orders WHERE id < 500 ORDER BY id DESC LIMIT 10;
SELECT id FROM orders WHERE id < 500 ORDER BY id DESC LIMIT 3;
SELECT count(*) FROM orders WHERE id > 500 AND id <= '600';
SELECT count(*) FROM orders WHERE id = ANY ('{1,2,3,10001}'::bigint[]);
SELECT count(*) FROM orders WHERE id = ANY ('{1,2,3,10001}'::int[]);

-- Joins of snowflake and bigint: the index of either side, merge, hash.
EXPLAIN (COSTS OFF) SELECT * FROM orders JOIN items ON order_id = id WHERE n = 7;
EXPLAIN (COSTS OFF) SELECT * FROM orders JOIN items ON id = order_id WHERE note = 'order 7';
SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM orders JOIN items ON order_id = id;
SELECT count(*) FROM orders JOIN items ON order_id = id;
SET enable_hashjoin = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM orders JOIN items ON order_id = id;
SELECT count(*) FROM orders JOIN items ON order_id = id;
CREATE TABLE parcels (id snowflake PRIMARY KEY);
INSERT INTO parcels SELECT id FROM orders;
ANALYZE parcels;
EXPLAIN (COSTS OFF) SELECT count(*) FROM orders o JOIN parcels p ON o.id = p.id;
SELECT count(*) FROM orders o JOIN parcels p ON o.id = p.id;
RESET enable_hashjoin;
RESET enable_nestloop;

-- The planner's conclusions about plain integers are what they were: both
-- tables are searched for 5, not one of them scanned.
CREATE TABLE whole (a bigint PRIMARY KEY, i int);
INSERT INTO whole SELECT g, g FROM generate_series(1, 1000) g;
CREATE TABLE other (a bigint PRIMARY KEY);
INSERT INTO other SELECT a FROM whole;
ANALYZE whole, other;
EXPLAIN (COSTS OFF) SELECT * FROM whole x JOIN other y ON x.a = y.a WHERE x.a = 5;
EXPLAIN (COSTS OFF) SELECT a FROM whole ORDER BY a LIMIT 1;

-- And so they are about snowflakes, however the constant is written; one that no
-- snowflake can be stays an integer.
EXPLAIN (COSTS OFF) SELECT * FROM orders x JOIN parcels y ON x.id = y.id WHERE x.id = 5;
EXPLAIN (COSTS OFF) SELECT * FROM orders x JOIN parcels y ON x.id = y.id WHERE 5::bigint = x.id;
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id = -5;
SELECT count(*) FROM orders WHERE id = -5 OR id > -1;

-- A foreign key from bigint, with a cascade.
CREATE TABLE lines (order_id bigint REFERENCES orders ON DELETE CASCADE, id snowflake);
CREATE INDEX ON lines (order_id);
INSERT INTO lines SELECT g, g FROM generate_series(1, 100) g;
SELECT code FROM outcome('INSERT INTO lines VALUES (10001, 1)');
DELETE FROM orders WHERE id = 100;
SELECT count(*) FROM lines;
-- The other direction would need an implicit cast to bigint.
SELECT code, message FROM outcome('CREATE TABLE refers (id snowflake REFERENCES whole)');

-- A range over snowflakes is estimated like one over bigint.
CREATE TABLE measured (id snowflake, plain bigint);
INSERT INTO measured SELECT g::bigint * 4194304, g::bigint * 4194304 FROM generate_series(1, 100000) g;
ANALYZE measured;
SELECT estimate('SELECT FROM measured WHERE id >= 41943040000 AND id < 42362470400') BETWEEN 67 AND 150 AS about_100,
	estimate($$SELECT FROM measured WHERE id >= '41943040000' AND id < '42362470400'$$) BETWEEN 67 AND 150 AS about_100,
	estimate('SELECT FROM measured WHERE id = 41943040000') AS one;

-- hash, and BRIN in its three forms.
CREATE INDEX measured_hash ON measured USING hash (id);
EXPLAIN (COSTS OFF) SELECT * FROM measured WHERE id = 41943040000;
EXPLAIN (COSTS OFF) SELECT * FROM measured WHERE id = '41943040000';
SELECT count(*) FROM measured WHERE id = 41943040000;
DROP INDEX measured_hash;
SET enable_bitmapscan = on;
SET enable_seqscan = off;
CREATE INDEX measured_brin ON measured USING brin (id) WITH (pages_per_range = 4);
EXPLAIN (COSTS OFF) SELECT count(*) FROM measured WHERE id >= 41943040000 AND id < '42362470400';
SELECT count(*) FROM measured WHERE id >= 41943040000 AND id < '42362470400';
SELECT count(*) FROM measured WHERE id < 41943040;
DROP INDEX measured_brin;
CREATE INDEX measured_multi ON measured USING brin (id snowflake_minmax_multi_ops) WITH (pages_per_range = 4);
EXPLAIN (COSTS OFF) SELECT count(*) FROM measured WHERE id >= 41943040000 AND id < '42362470400';
SELECT count(*) FROM measured WHERE id >= 41943040000 AND id < '42362470400';
DROP INDEX measured_multi;
CREATE INDEX measured_bloom ON measured USING brin (id snowflake_bloom_ops) WITH (pages_per_range = 4);
EXPLAIN (COSTS OFF) SELECT count(*) FROM measured WHERE id = '41943040000';
EXPLAIN (COSTS OFF) SELECT count(*) FROM measured WHERE id = 41943040000;
SELECT count(*) FROM measured WHERE id = 41943040000;
SELECT count(*) FROM measured WHERE id = '41943040000';
RESET enable_seqscan;

-- Partitions by range, by hash and by list, with comparisons of either type.
CREATE TABLE ranged (id snowflake) PARTITION BY RANGE (id);
CREATE TABLE ranged_1 PARTITION OF ranged FOR VALUES FROM (0) TO (1000);
CREATE TABLE ranged_2 PARTITION OF ranged FOR VALUES FROM ('1000') TO (2000);
CREATE TABLE ranged_3 PARTITION OF ranged FOR VALUES FROM (2000) TO (MAXVALUE);
INSERT INTO ranged SELECT g FROM generate_series(1, 3000) g;
SELECT tableoid::regclass, count(*) FROM ranged GROUP BY 1 ORDER BY 1;
EXPLAIN (COSTS OFF) SELECT * FROM ranged WHERE id < 500;
EXPLAIN (COSTS OFF) SELECT * FROM ranged WHERE id = '1500';
EXPLAIN (COSTS OFF) SELECT * FROM ranged WHERE id BETWEEN 1000 AND 1999;
CREATE TABLE hashed (id snowflake) PARTITION BY HASH (id);
CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE hashed_1 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO hashed SELECT g FROM generate_series(1, 1000) g;
SELECT count(*) BETWEEN 400 AND 600 AS balanced FROM hashed_0;
SELECT count(*) FROM hashed WHERE id = 77;
CREATE TABLE listed (id snowflake) PARTITION BY LIST (id);
CREATE TABLE listed_1 PARTITION OF listed FOR VALUES IN (1, '2');
INSERT INTO listed VALUES (1), (2);
SELECT code FROM outcome('INSERT INTO listed VALUES (3)');

DROP TABLE lines, parcels, orders, items, whole, other, measured, ranged, hashed, listed;
DROP FUNCTION plan_has;
