-- What times.pl asks.  The same names in two schemas: in by_key created_at is decoded from an
-- ID, in by_copy it is a column that holds what was decoded.

CREATE EXTENSION snowflake;
DO $$ BEGIN
	IF getdatabaseencoding() = 'UTF8' THEN CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
	ELSE CREATE COLLATION ci FROM "C"; END IF;
END $$;
CREATE ROLE reader;
CREATE SCHEMA by_key;
CREATE SCHEMA by_copy;
GRANT USAGE, CREATE ON SCHEMA by_key, by_copy TO reader;

-- Days on which clocks were set, somewhere
CREATE TABLE zones AS SELECT * FROM unnest('{UTC,Europe/Berlin,America/New_York,America/St_Johns,America/Sao_Paulo,America/Havana,
	Atlantic/Azores,Australia/Lord_Howe,Pacific/Apia,Pacific/Kiritimati,Africa/Monrovia,Africa/Casablanca,Asia/Kathmandu,Asia/Beirut,Antarctica/Troll,"FAR-100FARTHER-150,M3.2.0,M11.1.0"}'::text[]) zone;
CREATE TABLE changes AS
	SELECT zone, day FROM zones, generate_series(timestamptz '1970-01-02Z', '2036-01-01Z', '1 day') day
	WHERE (day AT TIME ZONE zone) - (day AT TIME ZONE 'UTC')
		<> ((day + interval '24 hours') AT TIME ZONE zone) - ((day + interval '24 hours') AT TIME ZONE 'UTC');

-- ... and some of them at which there are IDs every half hour; and every quarter of an hour where the
-- days, weeks and so on begin that are next to them
CREATE TABLE dense AS
	SELECT zone, day FROM (SELECT *, row_number() OVER (PARTITION BY zone ORDER BY random()) AS n FROM changes) c WHERE n <= 2;
CREATE TABLE edges AS
	SELECT DISTINCT zone, unit, date_trunc(unit, day AT TIME ZONE zone) + n * width AS local
	FROM dense, (VALUES ('day', interval '1 day'), ('week', '7 days'), ('month', '1 month'), ('quarter', '3 months'), ('year', '1 year')) u(unit, width),
		generate_series(-1, 2) n
	WHERE (unit = 'day' OR n >= 0) AND day > '1971-01-01Z';

-- IDs: the first and the last, those around such changes, around a few ticks, and anywhere
CREATE TABLE ids AS
	SELECT DISTINCT id FROM (
		SELECT 0::bigint AS id UNION ALL SELECT snowflake_upper_bound('infinity')::bigint
		UNION ALL SELECT snowflake_lower_bound(day + (random() * 30 - 3) * interval '1 hour')::bigint
			+ (random() * 3)::int FROM changes TABLESAMPLE BERNOULLI (15), generate_series(1, 4)
		UNION ALL SELECT snowflake_lower_bound(day + n * interval '30 min')::bigint FROM dense, generate_series(-8, 66) n
		UNION ALL SELECT snowflake_lower_bound((local AT TIME ZONE zone) + n * interval '15 min')::bigint FROM edges, generate_series(-2, 1) n
		UNION ALL SELECT snowflake_lower_bound(timestamptz '2026-11-20Z' + n % 20 * interval '1 ms')::bigint + (random() * 4194303)::int
			FROM generate_series(1, 100) n
		UNION ALL SELECT snowflake_lower_bound(date_trunc('hour', timestamptz '2020-01-01Z' + random() * interval '9 years'))::bigint
			FROM generate_series(1, 300)
		UNION ALL SELECT (random() * 9e18)::bigint FROM generate_series(1, 300)) i;

CREATE TABLE by_key.t_items (id snowflake PRIMARY KEY, customer int, n int, label text, at timestamptz);
INSERT INTO by_key.t_items
	SELECT id, (random() * 6)::int, (random() * 100)::int, (CASE WHEN random() < 0.5 THEN 'label ' ELSE 'LABEL ' END) || (random() * 5)::int, nullif(@@ id, '1970-01-01Z') + (random() * 4)::int * interval '1 ms'
	FROM ids ORDER BY hashint8(id);
CREATE INDEX ON by_key.t_items (customer, id);
CREATE INDEX ON by_key.t_items (label COLLATE "C", id DESC) WHERE n > 20;
CREATE TABLE by_key.t_numbers (id bigint, customer int, n int);
CREATE INDEX ON by_key.t_numbers (id, customer);
INSERT INTO by_key.t_numbers SELECT id, (random() * 6)::int, (random() * 100)::int FROM ids TABLESAMPLE BERNOULLI (60)
	UNION ALL SELECT NULL, n % 3, n FROM generate_series(1, 40) n;
CREATE TABLE by_key.t_parts (customer int, id snowflake PRIMARY KEY, n int) PARTITION BY RANGE (id);
CREATE TABLE by_key.t_parts_1 PARTITION OF by_key.t_parts FOR VALUES FROM ('0') TO (snowflake_lower_bound('1990-01-01Z'));
CREATE TABLE by_key.t_parts_2 (n int, customer int, id snowflake PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE by_key.t_parts_2_1 PARTITION OF by_key.t_parts_2 FOR VALUES FROM (snowflake_lower_bound('1990-01-01Z')) TO (snowflake_lower_bound('2011-10-30Z'));
CREATE TABLE by_key.t_parts_2_2 PARTITION OF by_key.t_parts_2 FOR VALUES FROM (snowflake_lower_bound('2011-10-30Z')) TO (snowflake_lower_bound('2026-11-20 00:00:00.010Z'));
ALTER TABLE by_key.t_parts ATTACH PARTITION by_key.t_parts_2 FOR VALUES FROM (snowflake_lower_bound('1990-01-01Z')) TO (snowflake_lower_bound('2026-11-20 00:00:00.010Z'));
CREATE TABLE by_key.t_parts_3 PARTITION OF by_key.t_parts FOR VALUES FROM (snowflake_lower_bound('2026-11-20 00:00:00.010Z')) TO (MAXVALUE);
INSERT INTO by_key.t_parts SELECT (random() * 6)::int, id, (random() * 100)::int FROM ids TABLESAMPLE BERNOULLI (70);
CREATE TABLE by_key.t_others (id bigint PRIMARY KEY, customer int, n int);
INSERT INTO by_key.t_others SELECT snowflake_lower_bound(@@ id, 'discord')::bigint + (random() * 3)::int, (random() * 6)::int, (random() * 100)::int
	FROM ids WHERE @@ id BETWEEN '2016-01-01Z' AND '2039-01-01Z' ON CONFLICT DO NOTHING;
CREATE TABLE by_key.t_guarded AS SELECT id::snowflake AS id, (random() * 6)::int AS customer, (random() * 100)::int AS n FROM ids TABLESAMPLE BERNOULLI (50);
CREATE UNIQUE INDEX ON by_key.t_guarded (id);
ALTER TABLE by_key.t_guarded ENABLE ROW LEVEL SECURITY;
CREATE POLICY some_rows ON by_key.t_guarded USING (n % 3 <> 0 AND @@ id >= '1975-01-01Z');

-- inheritance, of which the parent has the customers 0 and 1; partitions by something else, and with a default one, in which are NULLs
CREATE TABLE by_key.t_family (id snowflake PRIMARY KEY, customer int, n int);
CREATE TABLE by_key.t_family_a (more int, PRIMARY KEY (id)) INHERITS (by_key.t_family);
CREATE TABLE by_key.t_family_b (PRIMARY KEY (id)) INHERITS (by_key.t_family);
INSERT INTO by_key.t_family SELECT id, id % 2, (random() * 100)::int FROM ids WHERE id % 3 = 0;
INSERT INTO by_key.t_family_a SELECT id, 2 + id % 3, (random() * 100)::int FROM ids WHERE id % 3 = 1;
INSERT INTO by_key.t_family_b SELECT id, 5 + id % 2, (random() * 100)::int FROM ids WHERE id % 3 = 2;
CREATE TABLE by_key.t_hashed (id bigint, customer int, n int) PARTITION BY HASH (id);
CREATE INDEX ON by_key.t_hashed (id NULLS FIRST);
CREATE TABLE by_key.t_hashed_0 PARTITION OF by_key.t_hashed FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE by_key.t_hashed_1 PARTITION OF by_key.t_hashed FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO by_key.t_hashed SELECT id, (random() * 6)::int, (random() * 100)::int FROM ids UNION ALL SELECT NULL, n % 7, n FROM generate_series(1, 40) n;
CREATE TABLE by_key.t_rest (customer int, n int, id snowflake) PARTITION BY RANGE (id, customer);
CREATE TABLE by_key.t_rest_1 PARTITION OF by_key.t_rest FOR VALUES FROM ('0', 0) TO (snowflake_lower_bound('2011-10-30Z'), 3);
CREATE TABLE by_key.t_rest_2 PARTITION OF by_key.t_rest FOR VALUES FROM (snowflake_lower_bound('2016-01-01Z'), 3) TO (snowflake_lower_bound('2026-11-20Z'), 0);
CREATE TABLE by_key.t_rest_0 PARTITION OF by_key.t_rest DEFAULT;
CREATE INDEX ON by_key.t_rest (id, customer);
INSERT INTO by_key.t_rest SELECT (random() * 6)::int, (random() * 100)::int, id FROM ids UNION ALL SELECT NULL, n, NULL FROM generate_series(1, 5) n
	UNION ALL SELECT n, n, snowflake_lower_bound('2011-10-30Z') FROM generate_series(0, 6) n;

CREATE VIEW by_key.items AS SELECT id, @@ id AS created_at, customer, n, label, at FROM by_key.t_items;
CREATE VIEW by_key.numbers AS SELECT id, @@ id AS created_at, customer, n FROM by_key.t_numbers;
CREATE VIEW by_key.parts AS SELECT id, id::timestamptz AS created_at, customer, n FROM by_key.t_parts;
CREATE VIEW by_key.others AS SELECT id, snowflake_timestamp(id, 'discord') AS created_at, customer, n FROM by_key.t_others;
CREATE VIEW by_key.guarded WITH (security_barrier) AS SELECT id, @@ id AS created_at, customer, n FROM by_key.t_guarded;
CREATE VIEW by_key.barrier WITH (security_barrier) AS SELECT id, created_at, customer, n FROM by_key.items WHERE n % 4 <> 0;
CREATE VIEW by_key.family AS SELECT id, @@ id AS created_at, customer, n FROM by_key.t_family;
CREATE VIEW by_key.hashed AS SELECT id, @@ id AS created_at, customer, n FROM by_key.t_hashed;
CREATE VIEW by_key.rest AS SELECT id, @@ id AS created_at, customer, n FROM by_key.t_rest;
-- IDs that an outer join may leave out, and a subquery that knows a row of another one
CREATE VIEW by_key.joined AS SELECT b.id, @@ b.id AS created_at, a.customer, coalesce(b.n, a.n) AS n
	FROM by_key.t_numbers a FULL JOIN by_key.t_items b ON a.id = b.id AND b.n < 60;
CREATE VIEW by_key.looked_up AS SELECT l.id, l.created_at, c AS customer, l.n
	FROM generate_series(0, 8) c LEFT JOIN LATERAL (SELECT id, @@ id AS created_at, n + c AS n FROM by_key.t_items WHERE customer = c AND n < 60) l ON true;
-- a union with parts that have no key, are no table, or have another layout
CREATE VIEW by_key.mixed AS SELECT id::bigint, created_at, customer, n FROM by_key.family
	UNION ALL (SELECT id, created_at, customer, n FROM by_key.numbers ORDER BY created_at, id, n, customer LIMIT 200)
	UNION ALL SELECT NULL, timestamptz '2020-01-01Z' + d * interval '24 hours', d, d FROM generate_series(1, 9) d
	UNION ALL SELECT max(id), @@ max(id), customer, 3 FROM by_key.t_items GROUP BY customer
	UNION ALL SELECT id, created_at, customer, n FROM by_key.others;
ANALYZE;

DO $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY '{items,numbers,parts,others,barrier,family,hashed,rest,joined,looked_up,mixed}'::text[] LOOP
		EXECUTE format('CREATE TABLE by_copy.%1$I AS TABLE by_key.%1$I', name);
	END LOOP;
END $$;
-- an answer must not depend on a policy: the copy is of the rows that it lets through
CREATE TABLE by_copy.guarded AS SELECT * FROM by_key.guarded WHERE n % 3 <> 0 AND created_at >= '1975-01-01Z';
ALTER VIEW by_key.guarded OWNER TO reader;
GRANT SELECT ON by_key.t_guarded TO reader;
DO $$
DECLARE
	s text;
BEGIN
	FOREACH s IN ARRAY '{by_key,by_copy}'::text[] LOOP
		PERFORM set_config('search_path', s || ',public', true);
		EXECUTE 'CREATE VIEW everything AS SELECT id::bigint, created_at, customer, n FROM items UNION ALL
			SELECT id, created_at, customer, n FROM numbers UNION ALL SELECT id::bigint, created_at, customer, n FROM parts';
		EXECUTE $f$CREATE FUNCTION since(t timestamptz) RETURNS SETOF items LANGUAGE sql STABLE AS 'SELECT * FROM items WHERE created_at >= t'$f$;
		EXECUTE $f$CREATE FUNCTION of_day(d date) RETURNS SETOF everything LANGUAGE sql STABLE BEGIN ATOMIC SELECT * FROM everything WHERE created_at::date = d; END$f$;
		EXECUTE format('GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO reader', s);
	END LOOP;
END $$;
REVOKE UPDATE, DELETE ON by_key.t_guarded FROM reader;

-- Times to join with, and to choose from
CREATE TABLE spans AS SELECT t AS lo, t + random() * interval '40 days' AS hi, row_number() OVER () AS n
	FROM (SELECT @@ id AS t FROM ids ORDER BY random() LIMIT 8) i UNION ALL SELECT NULL, '2020-01-01Z', 9 UNION ALL SELECT '-infinity', '1970-01-02Z', 10;
GRANT SELECT ON spans, dense, edges TO reader;
VACUUM ANALYZE;
