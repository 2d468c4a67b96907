-- What demo.sh shows, which runs this beside a copy of the tree.

\echo
\echo '== A shop: the keys are IDs; a plain bigint column can hold them, too'
CREATE EXTENSION snowflake;
CREATE TABLE customers (id snowflake PRIMARY KEY DEFAULT snowflake_next(), name text NOT NULL);
CREATE TABLE orders (
    id         snowflake PRIMARY KEY DEFAULT snowflake_next(),
    customer   bigint NOT NULL REFERENCES customers,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE events (
    id         bigint PRIMARY KEY DEFAULT snowflake_next(),
    order_id   bigint NOT NULL REFERENCES orders,
    what       text NOT NULL
);
INSERT INTO customers (name) SELECT 'customer ' || n FROM generate_series(1, 100) n;

\echo
\echo '== Eight connections place 4000 orders, each with an event, in 4000 transactions'
\echo pgbench -c 8 -t 500 -f test/demo.pgbench
\! cat tree/test/demo.pgbench
\! pgbench -n -c 8 -j 2 -t 500 -f tree/test/demo.pgbench 2>&1 | grep -E '^(number of transactions actually|tps)|error:'
DO $$ BEGIN ASSERT (SELECT count(*) FROM orders) = 4000; END $$;

\echo
\echo '== No ID occurs twice, in whatever table and from whatever connection'
SELECT count(*) AS ids, count(DISTINCT id) AS distinct_ids
  FROM (SELECT id FROM customers UNION ALL SELECT id FROM orders
        UNION ALL SELECT id::snowflake FROM events) AS every_id;

\echo
\echo '== An ID tells when and where it was made'
SELECT id, @ id AS made_at, snowflake_node(id) AS node, snowflake_sequence(id) AS seq
  FROM orders ORDER BY id DESC LIMIT 3;
SELECT * FROM snowflake_decode((SELECT max(id) FROM orders));

\echo
\echo '== ORDER BY id is ORDER BY created_at, as far as eight racing connections can tell'
SELECT count(*) AS orders,
       count(*) FILTER (WHERE created_at < previous) AS in_another_order,
       coalesce(max(previous - created_at) FILTER (WHERE created_at < previous), '0') AS by_at_most,
       max(abs(extract(epoch FROM (@ id) - created_at)))::numeric(9,6) AS largest_difference_s
  FROM (SELECT id, created_at, lag(created_at) OVER (ORDER BY id) AS previous
          FROM orders) AS in_order_of_id;

\echo
\echo '== So the primary key also finds rows by time'
ANALYZE orders;
EXPLAIN (COSTS OFF)
SELECT * FROM orders
  WHERE id >= now() - interval '10 ms';

\echo
\echo '== The layout of these IDs'
\x on
SELECT * FROM snowflake_layout();
