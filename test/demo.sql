-- What demo.sh shows before the server is killed.

\echo
\echo '== A shop: the keys are IDs; a plain bigint column can hold them, too'
CREATE EXTENSION snowflake;
CREATE TABLE customers (id snowflake PRIMARY KEY DEFAULT snowflake_next(), name text NOT NULL);
CREATE TABLE orders (
    id         snowflake PRIMARY KEY DEFAULT snowflake_next(),
    customer   bigint NOT NULL REFERENCES customers
);
CREATE TABLE events (
    id         bigint PRIMARY KEY DEFAULT snowflake_next(),
    order_id   bigint NOT NULL REFERENCES orders,
    what       text NOT NULL
);
INSERT INTO customers (name) SELECT 'customer ' || n FROM generate_series(1, 100) n;
