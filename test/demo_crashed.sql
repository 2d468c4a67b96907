-- What demo.sh shows when the server that was killed runs again.  The file "received" has
-- the IDs that a client had got and not stored.

\echo
\echo '== All IDs that anybody had got before: stored, or only received'
CREATE TEMPORARY TABLE before_crash (id snowflake);
\copy before_crash FROM PROGRAM 'cat "$work/received"'
INSERT INTO before_crash
    SELECT id FROM orders UNION ALL SELECT id::snowflake FROM events;
SELECT count(*) AS ids, count(DISTINCT id) AS distinct_ids, max(id)::snowflake AS largest FROM before_crash;

\echo
\echo '== 4000 more orders, 1000 a second: no ID comes twice, and none is smaller than any of before'
\! pgbench -n -c 8 -j 2 -R 1000 -t 500 -f tree/test/demo.pgbench 2>&1 | grep -E '^number of transactions actually|error:'
CREATE TEMPORARY TABLE every_id AS
    SELECT id, true AS is_new FROM orders WHERE id > (SELECT max(id) FROM before_crash)
    UNION ALL SELECT id::snowflake, true FROM events WHERE id > (SELECT max(id) FROM before_crash)
    UNION ALL SELECT id, false FROM before_crash;
SELECT count(*) AS ids, count(DISTINCT id) AS distinct_ids,
       min(id) FILTER (WHERE is_new) - max(id) FILTER (WHERE NOT is_new) > 0 AS all_new_ones_are_larger,
       count(*) FILTER (WHERE is_new) AS new_ids
  FROM every_id;
DO $$
BEGIN
    ASSERT (SELECT count(*) = count(DISTINCT id) AND count(*) FILTER (WHERE is_new) = 8000 FROM every_id);
END $$;

\echo
\echo '== An ID contains its creation time, node ID and sequence number'
SELECT id, @@ id AS created_at, snowflake_node(id) AS node, snowflake_sequence(id) AS seq
  FROM orders ORDER BY id DESC LIMIT 3;

\echo
\echo '== The primary key finds the orders of a tenth of a second among all'
ANALYZE orders;
SELECT (@@ max(id)) - interval '100 ms' AS since FROM orders \gset
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE @@ id >= :'since';
SELECT count(*) AS orders, count(*) FILTER (WHERE @@ id >= :'since') AS of_the_last_100_ms FROM orders;
