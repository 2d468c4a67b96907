-- What sqlsmith queries, for sqlsmith.pl: tables with snowflakes in every role.  It calls
-- no functions that return sets, hence views.
SET ROLE smith;
CREATE TABLE customers (
	id snowflake PRIMARY KEY DEFAULT snowflake_next(),
	name text,
	code text GENERATED ALWAYS AS (snowflake_to_text(id, 'base58')) STORED
);
CREATE TABLE orders (
	id snowflake PRIMARY KEY DEFAULT snowflake_next(),
	customer snowflake REFERENCES customers,
	previous bigint REFERENCES orders,
	placed timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'twitter')) STORED,
	node integer GENERATED ALWAYS AS (snowflake_node(id, 'twitter')) STORED,
	valid tstzrange,
	related snowflake[],
	amount numeric
);
CREATE INDEX ON orders (customer);
CREATE INDEX ON orders USING hash (previous);
CREATE INDEX ON orders USING brin (id);
CREATE TABLE events (
	id snowflake DEFAULT snowflake_next(),
	at timestamptz DEFAULT now(),
	kind integer,
	PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE TABLE events_old PARTITION OF events
	FOR VALUES FROM ('0') TO ('1000000000000000000');
CREATE TABLE events_new PARTITION OF events DEFAULT;
CREATE TABLE spread (id snowflake DEFAULT snowflake_next(), n integer)
	PARTITION BY HASH (id);
CREATE TABLE spread_0 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE spread_1 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE legacy (id bigserial PRIMARY KEY, customer bigint REFERENCES customers, n smallint);
CREATE TABLE texts (format text, layout text, code text);
CREATE DOMAIN order_id AS snowflake CHECK (VALUE >= 0);
CREATE TABLE parcels (id order_id, contents snowflake, at timestamptz);

CREATE VIEW layouts AS SELECT * FROM snowflake_layouts();
CREATE VIEW layout AS SELECT * FROM snowflake_layout();
CREATE VIEW status AS SELECT * FROM snowflake_status;
CREATE VIEW batch AS SELECT id FROM snowflake_next_batch(100) AS id;
CREATE VIEW decoded AS
	SELECT id, @@ id AS at, id -> 'worker' AS worker, d.*,
		snowflake_node(id) AS its_node, snowflake_sequence(id, 'twitter') AS its_sequence,
		snowflake_field(id, 'time') AS its_time,
		make_snowflake(placed, d.node, d.sequence) AS made,
		snowflake_lower_bound(placed) AS first, snowflake_upper_bound(placed, 'twitter') AS last,
		snowflake_to_text(id, 'base62') AS code,
		snowflake_from_text(snowflake_to_text(id, 'hex'), 'hex') AS parsed,
		@@ id < placed AS before, @@ id <@ valid AS during, id = previous AS same, id::bigint AS number
	FROM orders, snowflake_decode(id) AS d;
CREATE VIEW extremes AS
	SELECT customer, min(id), max(id), count(DISTINCT previous::snowflake) FROM orders GROUP BY customer;
CREATE VIEW recent AS
	SELECT * FROM events WHERE @@ id >= now() - interval '1 hour';
CREATE VIEW valid_now AS
	SELECT o.*, e.kind FROM orders o JOIN events e ON @@ e.id <@ o.valid;

INSERT INTO customers (name) SELECT 'customer ' || g FROM generate_series(1, 200) g;
INSERT INTO orders (customer, valid, amount)
	SELECT id, tstzrange(now() - interval '1 day' * n, now() + interval '1 hour'), n
	FROM (SELECT id, row_number() OVER () AS n FROM customers) c;
UPDATE orders SET previous = (SELECT min(id) FROM orders),
	related = ARRAY(SELECT id FROM orders LIMIT 3);
INSERT INTO events (kind) SELECT g % 7 FROM generate_series(1, 2000) g;
INSERT INTO events (id, kind) SELECT make_snowflake('2011-01-01'::timestamptz + g * interval '1 day', 1, g), g
	FROM generate_series(1, 500) g;
INSERT INTO spread (n) SELECT g FROM generate_series(1, 500) g;
INSERT INTO legacy (customer, n) SELECT id, 1 FROM customers;
INSERT INTO texts
	SELECT f, l.name, snowflake_to_text(c.id, f)
	FROM unnest('{base32,base32z,base36,base58,base58flickr,base62,hex}'::text[]) f,
		snowflake_layouts() l, (SELECT id FROM customers LIMIT 5) c;
INSERT INTO parcels SELECT id, previous::snowflake, placed FROM orders;
ANALYZE customers, orders, events, spread, legacy, texts, parcels;

-- The server has thousands of functions, so ours would be called rarely.  What
-- sqlsmith takes for pg_proc with this search_path has few others.
RESET ROLE;
CREATE SCHEMA narrow;
CREATE VIEW narrow.pg_proc AS
	SELECT * FROM pg_catalog.pg_proc p
	WHERE p.oid::bigint % 20 = 0
		AND NOT EXISTS (SELECT FROM pg_type t
			WHERE t.typtype = 'p' AND t.oid = ANY (p.proargtypes || p.prorettype))
		OR EXISTS (SELECT FROM pg_depend d
			WHERE d.objid = p.oid AND d.classid = 'pg_catalog.pg_proc'::regclass
				AND d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass);
GRANT USAGE ON SCHEMA narrow TO smith;
GRANT SELECT ON narrow.pg_proc TO smith;
