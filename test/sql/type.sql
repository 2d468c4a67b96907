-- The type: text, casts, and what it refuses; JSON is in encode.
SELECT '0'::snowflake, '9223372036854775807'::snowflake, '0042'::snowflake;
SELECT 42::snowflake, 4294967296::snowflake, '42'::snowflake::bigint, '42'::snowflake::text;
SELECT snowflake '1541815603606036480' = 1541815603606036480 AS equal;

-- Where these are looked up for each value, as for JSON, an internal function under
-- another name would be searched for among all of core's.
SELECT string_agg(lanname, ' ' ORDER BY p.oid) AS languages
FROM pg_type t JOIN pg_proc p ON p.oid IN (typinput, typoutput, typreceive, typsend) JOIN pg_language l ON l.oid = prolang
WHERE t.oid = 'snowflake'::regtype;

-- NULL stays NULL.
SELECT NULL::snowflake IS NULL AND NULL::bigint::snowflake IS NULL
	AND snowflake_timestamp(NULL) IS NULL AND make_snowflake(now(), NULL, 1) IS NULL
	AND snowflake_node('1', NULL) IS NULL AS null_stays_null;

-- Bad text: each with its own SQLSTATE and reason.
SELECT code, message, detail FROM unnest(ARRAY[
	'', ' ', ' 42', '42 ', '4 2', '-', '-1', '-0', '+1', '1e5', '1.0', 'NaN', 'Infinity', '0x10', '1_000', 'abc', '١',
	'9223372036854775808', '-9223372036854775808', '18446744073709551615',
	'10000000000000000000', '99999999999999999999', repeat('9', 60)]) WITH ORDINALITY AS bad(input, n),
	LATERAL outcome(format('SELECT %L::snowflake', input)) ORDER BY n;

-- Text that looks like a time has a hint; a sign alone does not make it look so.
SELECT input, hint <> '' AS has_hint FROM unnest(ARRAY['2024-01-01', '12:00', 'abc', '-abc']) WITH ORDINALITY AS bad(input, n),
	LATERAL outcome(format('SELECT %L::snowflake', input)) ORDER BY n;

-- Numbers that are no snowflake.
SELECT code, message, detail FROM outcome('SELECT (-1)::snowflake');
SELECT code, message, detail FROM outcome('SELECT (-9223372036854775808)::snowflake');
SELECT code, message FROM outcome('SELECT 9223372036854775808::snowflake');

-- Assignment, from columns of both integer types and from a literal.
CREATE TABLE assigned (id snowflake);
INSERT INTO assigned VALUES (1), ('2');
INSERT INTO assigned VALUES (3::bigint);
INSERT INTO assigned VALUES (4::smallint);
INSERT INTO assigned SELECT g FROM generate_series(5::bigint, 6) g;
SELECT code, message FROM outcome('INSERT INTO assigned VALUES (-7)');
SELECT code, message FROM outcome('INSERT INTO assigned VALUES (-7::smallint)');
SELECT array_agg(id ORDER BY id) FROM assigned;
CREATE TABLE assigned_bigint (id bigint);
INSERT INTO assigned_bigint SELECT id FROM assigned;
SELECT sum(id) FROM assigned_bigint;

-- Arrays, composite types, domains.
SELECT '{1,2,NULL}'::snowflake[], ARRAY[1::snowflake, 2::snowflake] @> ARRAY[2::snowflake];
CREATE DOMAIN order_id AS snowflake CHECK (VALUE > 0);
SELECT '5'::order_id = 5 AS equal, '5'::order_id < '6'::snowflake AS less;
SELECT code, message FROM outcome($$SELECT '0'::order_id$$);
CREATE TYPE pair AS (a snowflake, b snowflake);
SELECT '(1,2)'::pair < '(1,3)'::pair AS less;

-- Where a text is taken for a snowflake and is a time, the error says what is meant.
SELECT code, message, hint FROM outcome($$SELECT '2026-01-01'::snowflake$$);

-- What people write, and what they see: the table of doc/reference.md.
SELECT written, code, message FROM unnest(ARRAY[
	$$SELECT FROM assigned WHERE id > '2026-01-01'$$,
	$$SELECT FROM assigned WHERE id BETWEEN '2026-01-01' AND '2026-02-01'$$,
	$$SELECT FROM assigned WHERE id > now()$$,
	$$SELECT max(id)::timestamptz FROM assigned$$,
	$$SELECT id::date FROM assigned$$,
	$$SELECT @@ id + interval '1 day' FROM assigned$$,
	$$SELECT @@ id::date FROM assigned$$,
	$$SELECT date_trunc('day', id) FROM assigned$$,
	$$SELECT age(id) FROM assigned$$,
	$$SELECT id + interval '1 day' FROM assigned$$,
	$$SELECT coalesce(id, 0) FROM assigned$$,
	$$CREATE TABLE seen (id snowflake GENERATED ALWAYS AS IDENTITY)$$,
	$$CREATE TABLE seen (id snowflake, at timestamptz GENERATED ALWAYS AS (id::timestamptz) STORED)$$,
	$$CREATE INDEX ON assigned ((id::timestamptz))$$,
	$$SET snowflake.node_id = 3$$]) WITH ORDINALITY AS w(written, n), LATERAL outcome(written) ORDER BY n;
SELECT to_char('7'::snowflake, 'YYYY'), @ max(id) = max(id) AS absolute FROM assigned WHERE id < 1000;

-- And what to write.
BEGIN;
SET LOCAL timezone = 'Asia/Tokyo';
SELECT id::timestamptz, (@@ id)::timestamp, (@@ id)::date, date_trunc('day', @@ id), extract(year FROM @@ id), to_char(@@ id, 'YYYY'),
	(@@ id) + interval '1 day' AS next_day, @@ id > timestamptz '2022-06-28 Z' AS later, @@ id BETWEEN date '2022-06-28' AND date '2022-06-30' AS between_them,
	coalesce(id, 0::bigint) = id AS same
FROM (SELECT '1541815603606036480'::snowflake) AS t(id);
SELECT @@ max(id), @@ 1541815603606036480 AS of_number, max(id) -> 'node' AS node FROM (SELECT '1541815603606036480'::snowflake) AS t(id);
ROLLBACK;

DROP TABLE assigned, assigned_bigint;
DROP TYPE pair;
DROP DOMAIN order_id;
