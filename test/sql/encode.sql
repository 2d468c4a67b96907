-- Texts of snowflakes: what others have published, what is refused, and that
-- every ID comes back.
\set vectors `cat "$PG_ABS_SRCDIR/data/vectors.tsv"`
\set negatives `cat "$PG_ABS_SRCDIR/data/vectors_negative.tsv"`

-- The formats' names there and here.
CREATE TABLE formats (theirs text, ours text);
INSERT INTO formats VALUES ('crockford32_13', 'base32'), ('zbase32_numeric', 'base32z'), ('base36_lower', 'base36'),
	('base58_bitcoin', 'base58'), ('base58_flickr', 'base58flickr'), ('base62_11_09AZaz', 'base62'), ('hex16_upper', 'hex');

CREATE TABLE encoded AS
	SELECT c[2]::numeric AS id, c[6] AS theirs, c[7] AS encoded
	FROM string_to_table(:'vectors', E'\n') WITH ORDINALITY AS l(line, n),
		LATERAL string_to_array(line, E'\t') c
	WHERE n > 1 AND c[6] <> '';
SELECT ours, count(*),
		bool_and(snowflake_to_text(id::bigint::snowflake, ours) = encoded) AS encoded,
		bool_and(snowflake_from_text(encoded, ours) = id::bigint) AS parsed
	FROM encoded JOIN formats USING (theirs) WHERE id <= 9223372036854775807 GROUP BY 1 ORDER BY 1;
SELECT ours, encoded, code, message
	FROM encoded JOIN formats USING (theirs),
		LATERAL outcome(format('SELECT snowflake_from_text(%L, %L)', encoded, ours))
	WHERE id > 9223372036854775807 ORDER BY 1, 2;

-- Published refusals.
SELECT ours, c[2] AS input, o.code, o.message, o.detail
	FROM string_to_table(:'negatives', E'\n') WITH ORDINALITY AS l(line, n),
		LATERAL string_to_array(line, E'\t') c JOIN formats ON theirs = c[1],
		LATERAL outcome(format('SELECT snowflake_from_text(%L, %L)', c[2], ours)) o ORDER BY n;
SELECT snowflake_from_text('0123456789ABi', 'base32') = snowflake_from_text('0123456789AB1', 'base32') AS i,
	snowflake_from_text('0123456789ABL', 'base32') = snowflake_from_text('0123456789ab1', 'base32') AS l,
	snowflake_from_text('o123456789ABO', 'base32') = snowflake_from_text('0123456789AB0', 'base32') AS o;

-- The limits of each format, and one more.
SELECT ours, snowflake_to_text(0::snowflake, ours), snowflake_to_text('9223372036854775807', ours),
		snowflake_from_text(snowflake_to_text(0::snowflake, ours), ours) AS zero,
		snowflake_from_text(snowflake_to_text('9223372036854775807', ours), ours) AS largest
	FROM formats ORDER BY ours COLLATE "C";
SELECT input, code, message FROM (VALUES (1, 'base32', '8000000000000'), (2, 'base32z', 'eyyyyyyyyyyyy'), (3, 'base36', '1y2p0ij32e8e8'),
		(4, 'base36', 'zzzzzzzzzzzzz'), (5, 'base58', 'NQm6nKp8qFC8'), (6, 'base58', 'NQm6nKp8qFD'), (7, 'base58', 'zzzzzzzzzzz'),
		(8, 'base62', 'AzL8n0Y58m8'), (9, 'base62', 'zzzzzzzzzzz'), (10, 'hex', '8000000000000000'), (11, 'hex', 'FFFFFFFFFFFFFFFF')) v(n, format, input),
	LATERAL outcome(format('SELECT snowflake_from_text(%L, %L)', input, format)) ORDER BY n;

-- Nothing, white space, other alphabets, an unknown format.
SELECT ours, count(*), array_agg(DISTINCT code) AS codes
	FROM formats, unnest(ARRAY['', ' ', '-1', 'ä', '１２３', '1.2', E'1\n', repeat('1', 64), '€uro', '=']) AS bad(input),
		LATERAL outcome(format('SELECT snowflake_from_text(%L, %L)', input, ours))
	GROUP BY 1 ORDER BY ours COLLATE "C";
SELECT code, message, hint FROM outcome($$SELECT snowflake_to_text('1', 'base64')$$);
SELECT code, message FROM outcome($$SELECT snowflake_from_text('1', 'Base32')$$);
SELECT snowflake_to_text(NULL, 'hex') IS NULL AND snowflake_from_text(NULL, 'hex') IS NULL
	AND snowflake_from_text('1', NULL) IS NULL AS null_stays_null;

-- Random IDs come back from every format.
CREATE TABLE ids AS
	SELECT (('x' || left(md5(g::text), 16))::bit(64) >> 1)::bigint::snowflake AS id FROM generate_series(1, 20000) g;
SELECT ours, count(*) FILTER (WHERE snowflake_from_text(snowflake_to_text(id, ours), ours) <> id) AS wrong FROM ids, formats GROUP BY 1 ORDER BY ours COLLATE "C";

-- A format whose letters are of one case is read in the other as well.
SELECT ours, count(*) FILTER (WHERE snowflake_from_text(upper(encoded), ours) <> id) AS upper,
		count(*) FILTER (WHERE snowflake_from_text(lower(encoded), ours) <> id) AS lower
	FROM formats, (SELECT id FROM ids LIMIT 1000) i, LATERAL snowflake_to_text(id, ours) AS encoded
	WHERE ours IN ('base32', 'base36', 'hex') GROUP BY 1 ORDER BY 1;

-- Texts of fixed width sort like the IDs.
SELECT ours, count(*) FILTER (WHERE encoded COLLATE "C" <= before COLLATE "C") AS out_of_order,
		min(length(encoded)) = max(length(encoded)) AS fixed_width
	FROM (SELECT ours, encoded, lag(encoded) OVER (PARTITION BY ours ORDER BY id) AS before
		  FROM (SELECT DISTINCT id FROM ids LIMIT 20000) i,
			LATERAL (SELECT ours, snowflake_to_text(id, ours) AS encoded FROM formats WHERE ours IN ('base32', 'base62', 'hex')) e) q
	GROUP BY 1 ORDER BY 1;

-- A domain of short links, as the documentation shows.
CREATE DOMAIN slug AS text CHECK (snowflake_from_text(VALUE, 'base62') IS NOT NULL);
SELECT snowflake_from_text('2XcBrnzAS0u'::slug, 'base62');
SELECT code, message FROM outcome($$SELECT 'not a slug'::slug$$);

-- JSON: strings out, strings and whole numbers in; what is no snowflake is refused.
SELECT json_agg(id) FROM (VALUES ('9223372036854775807'::snowflake), (0::snowflake)) v(id);
SELECT jsonb_build_object('id', '9223372036854775807'::snowflake, 'ids', ARRAY['1', '2']::snowflake[]);
CREATE TYPE thing AS (id snowflake, ids snowflake[]);
SELECT * FROM jsonb_populate_record(NULL::thing, '{"id": 9223372036854775807, "ids": ["1", 2]}');
SELECT * FROM json_to_record('{"id": "9223372036854775806"}') AS r(id snowflake);
SELECT code, message FROM unnest(ARRAY['1.5', '-1', '1e3', 'true', '9223372036854775808', '"x"']) WITH ORDINALITY AS v(number, n),
	LATERAL outcome(format($$SELECT * FROM jsonb_to_record('{"id": %s}') AS r(id snowflake)$$, number)) ORDER BY n;
SELECT snowflake_upper_bound('infinity', 'javascript')::bigint = 2::numeric ^ 53 - 1 AS safe_integer;

DROP TYPE thing;
DROP DOMAIN slug;
DROP TABLE formats, encoded, ids;
