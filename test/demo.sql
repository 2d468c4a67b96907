-- What demo.sh shows before the server is killed: first the session of README.md.

\echo
\echo '== A table whose key is an ID'
CREATE EXTENSION snowflake;
CREATE TABLE orders (
    id       snowflake PRIMARY KEY DEFAULT snowflake_next(),
    customer text NOT NULL
);

INSERT INTO orders (customer) VALUES ('Ada'), ('Grace') RETURNING id, @@ id AS created_at, customer;

\echo
\echo '== The primary key answers time ranges'
EXPLAIN (COSTS OFF)
SELECT * FROM orders WHERE @@ id >= now() - interval '1 day' ORDER BY id DESC LIMIT 20;

\echo
\echo '== A plain bigint column can hold IDs as well, and reference them'
CREATE TABLE events (
    id         bigint PRIMARY KEY DEFAULT snowflake_next(),
    order_id   bigint NOT NULL REFERENCES orders,
    what       text NOT NULL
);
