-- psql: variables, and COPY in its binary format.
-- To be run by clients.pl, with psql -X -A -t -q.

\echo '#' client: psql :VERSION_NAME
CREATE TEMP SEQUENCE results;
CREATE FUNCTION pg_temp.is(got text, expected text, what text) RETURNS text
BEGIN ATOMIC
    SELECT CASE WHEN got IS NOT DISTINCT FROM expected THEN 'ok ' ELSE 'not ok ' END ||
        nextval('results') || ' - ' || what ||
        CASE WHEN got IS NOT DISTINCT FROM expected THEN '' ELSE format(E'\n# got: %s\n# expected: %s', got, expected) END;
END;

CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), item text);
CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders;
INSERT INTO orders VALUES (9007199254740993, 'old'), (4611686018427387905, 'far');

-- variables
SELECT id FROM orders WHERE item = 'old' \gset
SELECT item AS bare FROM orders WHERE id = :id \gset
SELECT item AS quoted FROM orders WHERE id = :'id' \gset
SELECT item AS listed FROM orders WHERE id = ANY (ARRAY[5, :id]) \gset
SELECT pg_temp.is(concat_ws(' ', :'bare', :'quoted', :'listed'), 'old old old', 'an ID in a variable filters, quoted or not');
SELECT item FROM orders WHERE id = ANY (:'id');
SELECT pg_temp.is(:'SQLSTATE', '22P02', 'but is no list');
SELECT now() - interval '1 hour' AS since \gset
SELECT pg_temp.is(concat_ws(' ',
    (SELECT item FROM orders WHERE @@ id < :'since'),
    (SELECT item FROM orders WHERE id < snowflake_lower_bound(:'since')),
    (SELECT item FROM orders_view WHERE created_at < :'since')), 'old old old', 'a time filters');
SELECT count(*) FROM orders WHERE id >= :'since';
SELECT pg_temp.is(:'SQLSTATE', '22P02', 'beside the key it is taken for a number');

-- COPY
\copy (SELECT id FROM orders) TO 'snowflake' (FORMAT binary)
\copy (SELECT id::bigint FROM orders) TO 'bigint' (FORMAT binary)
\copy orders TO 'orders.bin' (FORMAT binary)
CREATE TABLE from_binary (LIKE orders INCLUDING ALL);
\copy from_binary FROM 'orders.bin' (FORMAT binary)
\copy from_binary (item) FROM PROGRAM 'echo copied'
\set same `cmp snowflake bigint && head -c 6 orders.bin`
SELECT pg_temp.is(:'same', 'PGCOPY', 'COPY BINARY has the same bytes for snowflake and bigint');
SELECT pg_temp.is(concat_ws(' ',
    (SELECT count(*) FROM orders NATURAL JOIN from_binary),
    (SELECT count(*) FROM from_binary WHERE item = 'copied' AND @@ id >= now() - interval '1 hour')), '2 1',
    'COPY loads IDs, and mints those that are missing');

-- the form of all sections
INSERT INTO orders (item) VALUES ('tea') RETURNING id \gset
CREATE TEMP TABLE pages (kind text, id snowflake);
\o |sed 's/^/batch|/' >batch
INSERT INTO orders (item) SELECT 'item ' || n FROM generate_series(1, 1000) n RETURNING id;
\o
\copy pages FROM 'batch' (DELIMITER '|')
SELECT id AS other FROM pages LIMIT 1 \gset
\o |sed 's/^/some|/; s/|[^|]*$//' >some
SELECT * FROM orders WHERE id IN (:id, :other);
\o |sed 's/^/newest|/; s/|[^|]*$//' >newest
SELECT * FROM orders ORDER BY id DESC LIMIT 20;
\o
\copy pages FROM 'some' (DELIMITER '|')
\copy pages FROM 'newest' (DELIMITER '|')
SELECT min(id) AS last FROM pages WHERE kind = 'newest' \gset
\o |sed 's/^/next|/; s/|[^|]*$//' >next
SELECT * FROM orders WHERE id < :last ORDER BY id DESC LIMIT 20;
\o |sed 's/^/period|/; s/|[^|]*|[^|]*$//' >period
SELECT * FROM orders_view WHERE created_at >= now() - interval '1 hour' AND created_at < now() + interval '1 hour';
\o
\copy pages FROM 'next' (DELIMITER '|')
\copy pages FROM 'period' (DELIMITER '|')
SELECT pg_temp.is(
    (SELECT string_agg(DISTINCT concat_ws(' ', kind, (SELECT count(*) FROM pages p WHERE p.kind = q.kind)), ', ') FROM pages q),
    'batch 1000, newest 20, next 20, period 1001, some 2', 'as many rows as each of them should have');
SELECT pg_temp.is(string_agg(concat_ws(' ', kind, id), ', ' ORDER BY kind, id),
    (SELECT string_agg(kind || ' ' || id, ', ' ORDER BY kind, id) FROM (
        SELECT 'batch', id FROM orders WHERE item LIKE 'item %'
        UNION ALL SELECT 'period', id FROM orders WHERE item LIKE 'item %' OR item = 'tea'
        UNION ALL SELECT 'some', id FROM orders WHERE item IN ('tea', 'item 1')
        UNION ALL (SELECT 'newest', id FROM orders ORDER BY id DESC LIMIT 20)
        UNION ALL (SELECT 'next', id FROM orders ORDER BY id DESC OFFSET 20 LIMIT 20)) AS expected(kind, id)),
    'a list, newest first, the next page, a period, a batch of 1,000')
FROM pages;

\echo 1..8
