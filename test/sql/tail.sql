-- snowflake_tail(): the rows of a table in the order of its IDs

CREATE TABLE tailed (id snowflake PRIMARY KEY, what text);
INSERT INTO tailed SELECT snowflake_next(), 'row ' || n FROM generate_series(1, 5) n;
CREATE FUNCTION id_of(text) RETURNS bigint LANGUAGE sql RETURN (SELECT id FROM tailed WHERE what = $1);

SELECT what FROM snowflake_tail(NULL::tailed, 0, 3);
SELECT what FROM snowflake_tail(NULL::tailed, id_of('row 3'), 3);
SELECT what FROM snowflake_tail(NULL::tailed, max_rows => 1, after => id_of('row 4'));
SELECT what FROM snowflake_tail(NULL::tailed, id_of('row 5'), 3);
SELECT count(*) FROM snowflake_tail(NULL::tailed, NULL, NULL);
SELECT count(*) FROM snowflake_tail(NULL::tailed, 0, 0);
SELECT (snowflake_tail(NULL::tailed, 0, 1)).what;
SELECT t.what FROM (SELECT 3 AS n) AS a, LATERAL snowflake_tail(NULL::tailed, id_of('row ' || n), 1) AS t;

-- what lies above the frontier is left out, whoever made it
INSERT INTO tailed VALUES (snowflake_lower_bound(now() + interval '1 year'), 'not minted yet');
SELECT what FROM snowflake_tail(NULL::tailed, id_of('row 4'), 3);
-- and so is what this transaction has minted
BEGIN;
INSERT INTO tailed VALUES (snowflake_next(), 'own');
SELECT what FROM snowflake_tail(NULL::tailed, id_of('row 4'), 3);
ROLLBACK;
DELETE FROM tailed WHERE what = 'not minted yet';

-- columns
CREATE TABLE by_name (gone int, t bigint, "Order ""by" snowflake, what text, PRIMARY KEY (t, "Order ""by"));
ALTER TABLE by_name DROP COLUMN gone;
INSERT INTO by_name SELECT n, snowflake_next(), 'row ' || n FROM generate_series(1, 3) n;
SELECT t, what FROM snowflake_tail(NULL::by_name, 0, 2, 'Order "by');
SELECT t, what FROM snowflake_tail(NULL::by_name, 1, 2, column_name => 't');
SELECT t, what FROM snowflake_tail(NULL::by_name, 0, 2);
SELECT t, what FROM snowflake_tail(NULL::by_name, 0, 2, 'what');
SELECT t, what FROM snowflake_tail(NULL::by_name, 0, 2, 'gone');
SELECT t, what FROM snowflake_tail(NULL::by_name, 0, 2, 'ctid');
DROP TABLE by_name;

-- rows that share an ID come together
CREATE TABLE lines (entry snowflake, line int);
INSERT INTO lines SELECT e.id, l FROM (SELECT snowflake_next() AS id FROM generate_series(1, 2) OFFSET 0) e,
	generate_series(1, 3) l;
INSERT INTO lines VALUES (NULL, 0);
SELECT line FROM snowflake_tail(NULL::lines, 0, 1, 'entry') ORDER BY line;
SELECT count(*) FROM snowflake_tail(NULL::lines, 0, 4, 'entry');
DROP TABLE lines;

-- partitions and views; not where no snapshot of this server says what is visible
CREATE TABLE parts (id snowflake PRIMARY KEY DEFAULT snowflake_next(), what text) PARTITION BY RANGE (id);
CREATE TABLE parts_past PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (snowflake_lower_bound('2020-01-01'));
CREATE TABLE parts_rest PARTITION OF parts FOR VALUES FROM (snowflake_lower_bound('2020-01-01')) TO (MAXVALUE);
INSERT INTO parts VALUES (4711, 'old'), (DEFAULT, 'new');
SELECT what FROM snowflake_tail(NULL::parts, 0, 10);
CREATE VIEW shouted AS SELECT id, upper(what) AS what FROM parts;
SELECT what FROM snowflake_tail(NULL::shouted, 0, 10, 'id');
SELECT what FROM snowflake_tail(NULL::shouted, 0, 10);
CREATE MATERIALIZED VIEW copy AS SELECT * FROM parts;
SELECT what FROM snowflake_tail(NULL::copy, 0, 10, 'id');
SELECT snowflake_tail(NULL::parts_past, 0, 10);
SET client_min_messages = warning;
DROP TABLE parts CASCADE;
RESET client_min_messages;

-- rights, and rows that only some may see
CREATE ROLE snowflake_tail_reader;
SET ROLE snowflake_tail_reader;
SELECT count(*) FROM snowflake_tail(NULL::tailed, 0, 10);
RESET ROLE;
GRANT SELECT ON tailed TO snowflake_tail_reader;
ALTER TABLE tailed ENABLE ROW LEVEL SECURITY;
CREATE POLICY odd ON tailed FOR SELECT USING (what ~ '[135]$');
SET ROLE snowflake_tail_reader;
SELECT what FROM snowflake_tail(NULL::tailed, 0, 2);
RESET ROLE;
REVOKE ALL ON tailed FROM snowflake_tail_reader;
DROP ROLE snowflake_tail_reader;

-- operators of others do not matter
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.wrong(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT 1/0 = 1';
CREATE OPERATOR hostile.> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = hostile.wrong);
CREATE OPERATOR hostile.<= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = hostile.wrong);
CREATE TABLE hostile.tailed (id bigint, what text);
SET search_path = hostile, pg_catalog, public;
SELECT what FROM public.snowflake_tail(NULL::public.tailed, 0, 2);
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA hostile CASCADE;
RESET client_min_messages;

-- what it refuses
SELECT snowflake_tail(NULL::int, 0, 1);
SELECT snowflake_tail(NULL, 0, 1);
SELECT * FROM snowflake_tail(NULL::tailed, 0, -1);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM snowflake_tail(NULL::tailed, 0, 1);
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT snowflake_frontier() IS NOT NULL;
SELECT * FROM snowflake_tail(NULL::tailed, 0, 1);
ROLLBACK;
BEGIN READ ONLY;
SELECT what FROM snowflake_tail(NULL::tailed, 0, 1);
ROLLBACK;

DROP FUNCTION id_of;
DROP TABLE tailed;
