-- Orders with a key, a reference and five indexes, and rows that reference them, in a database
-- of its own; and a procedure that uses them until it is told to stop.
CREATE EXTENSION snowflake;
CREATE EXTENSION snowflake_migrate;
CREATE TABLE customers (id serial PRIMARY KEY, name text);
CREATE TABLE orders (id serial PRIMARY KEY, customer_id integer NOT NULL REFERENCES customers, status text NOT NULL,
	total numeric NOT NULL, created_at timestamptz NOT NULL);
CREATE TABLE items (id bigserial PRIMARY KEY, order_id integer NOT NULL REFERENCES orders, product integer, quantity integer);
INSERT INTO customers (name) SELECT 'customer ' || n FROM generate_series(1, 1000) n;
INSERT INTO orders (customer_id, status, total, created_at)
	SELECT 1 + n % 1000, CASE WHEN n % 50 = 0 THEN 'open' ELSE 'done' END, n % 500, timestamptz '2021-01-01Z' + n * interval '2 min' FROM generate_series(1, :rows) n;
INSERT INTO items (order_id, product, quantity) SELECT n, n % 300, 1 FROM generate_series(1, :rows) n;
CREATE INDEX ON orders (customer_id, created_at);
CREATE INDEX ON orders (customer_id) WHERE status = 'open';
CREATE INDEX ON orders (status, id);
CREATE INDEX ON orders (created_at) INCLUDE (id);
CREATE INDEX ON items (order_id);
VACUUM ANALYZE;

CREATE TABLE bench_waits (ms float8);
CREATE TABLE bench_stop ();
CREATE PROCEDURE bench_use(rows integer) LANGUAGE plpgsql AS $$
DECLARE
	start timestamptz;
	n integer;
BEGIN
	WHILE NOT EXISTS (SELECT FROM bench_stop) LOOP
		n := 1 + random() * (rows - 1);
		start := clock_timestamp();
		UPDATE orders SET total = total + 1 WHERE id = n;
		PERFORM count(*) FROM items WHERE order_id = n;
		INSERT INTO orders (customer_id, status, total, created_at) VALUES (1 + n % 1000, 'open', 1, now());
		COMMIT;
		INSERT INTO bench_waits VALUES (extract(epoch FROM clock_timestamp() - start) * 1000);
		COMMIT;
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
