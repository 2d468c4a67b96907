-- Every comparison, for every pair of types, agrees with that of bigint.
SELECT bool_and(
	(a < b) = (x < y) AND (a <= b) = (x <= y) AND (a = b) = (x = y) AND
	(a <> b) = (x <> y) AND (a >= b) = (x >= y) AND (a > b) = (x > y) AND
	(a < y) = (x < y) AND (a <= y) = (x <= y) AND (a = y) = (x = y) AND
	(a <> y) = (x <> y) AND (a >= y) = (x >= y) AND (a > y) = (x > y) AND
	(x < b) = (x < y) AND (x <= b) = (x <= y) AND (x = b) = (x = y) AND
	(x <> b) = (x <> y) AND (x >= b) = (x >= y) AND (x > b) = (x > y)) AS all_agree,
	count(*)
	FROM unnest(ARRAY[0, 1, 2147483647, 2147483648, 4294967296, 9223372036854775806, 9223372036854775807]) x,
		unnest(ARRAY[0, 1, 2147483647, 2147483648, 4294967296, 9223372036854775806, 9223372036854775807]) y,
		LATERAL (SELECT x::snowflake AS a, y::snowflake AS b) s;
SELECT bool_and(
	(a < i) = (x < i) AND (a <= i) = (x <= i) AND (a = i) = (x = i) AND
	(a <> i) = (x <> i) AND (a >= i) = (x >= i) AND (a > i) = (x > i) AND
	(i < a) = (i < x) AND (i <= a) = (i <= x) AND (i = a) = (i = x) AND
	(i <> a) = (i <> x) AND (i >= a) = (i >= x) AND (i > a) = (i > x) AND
	(a < s) = (x < s) AND (a <= s) = (x <= s) AND (a = s) = (x = s) AND
	(a <> s) = (x <> s) AND (a >= s) = (x >= s) AND (a > s) = (x > s) AND
	(s < a) = (s < x) AND (s <= a) = (s <= x) AND (s = a) = (s = x) AND
	(s <> a) = (s <> x) AND (s >= a) = (s >= x) AND (s > a) = (s > x)) AS all_agree,
	count(*)
	FROM unnest(ARRAY[0, 1, 32767, 4294967296, 9223372036854775807]) x,
		unnest(ARRAY[-1, 0, 1, 32767, -32768]) y,
		LATERAL (SELECT x::snowflake AS a, y::int AS i, y::smallint AS s) t;

-- The same without the planner's support: prepared and opaque, from a column.
CREATE TABLE plain (a snowflake, b snowflake, x bigint, i int, s smallint);
INSERT INTO plain SELECT g::int, (g % 7), g % 5, g % 3, g % 2 FROM generate_series(1, 100) g;
SELECT count(*) FILTER (WHERE a < b), count(*) FILTER (WHERE a <= b),
	count(*) FILTER (WHERE b = x), count(*) FILTER (WHERE b <> x),
	count(*) FILTER (WHERE b >= i), count(*) FILTER (WHERE b > s),
	count(*) FILTER (WHERE i < b), count(*) FILTER (WHERE s = b) FROM plain;
SELECT count(*) FILTER (WHERE a::bigint < b::bigint), count(*) FILTER (WHERE a::bigint <= b::bigint),
	count(*) FILTER (WHERE b::bigint = x), count(*) FILTER (WHERE b::bigint <> x),
	count(*) FILTER (WHERE b::bigint >= i), count(*) FILTER (WHERE b::bigint > s),
	count(*) FILTER (WHERE i < b::bigint), count(*) FILTER (WHERE s = b::bigint) FROM plain;

-- Commutators, negators and estimators are those of bigint's operators.
SELECT o.oid::regoperator
	FROM pg_operator o JOIN pg_operator c
		ON c.oprname = o.oprname AND c.oprnamespace = 'pg_catalog'::regnamespace
		AND c.oprleft = replace(o.oprleft::regtype::text, 'snowflake', 'bigint')::regtype
		AND c.oprright = replace(o.oprright::regtype::text, 'snowflake', 'bigint')::regtype
	LEFT JOIN pg_operator com ON com.oid = o.oprcom
	LEFT JOIN pg_operator neg ON neg.oid = o.oprnegate
	WHERE 'snowflake'::regtype IN (o.oprleft, o.oprright) AND o.oprname ~ '^[<>=]+$'
		AND 'timestamptz'::regtype NOT IN (o.oprleft, o.oprright)
		AND (o.oprrest <> c.oprrest OR o.oprjoin <> c.oprjoin
			 OR o.oprcanmerge <> c.oprcanmerge OR o.oprcanhash <> c.oprcanhash
			 OR com.oprleft IS DISTINCT FROM o.oprright OR neg.oprleft IS DISTINCT FROM o.oprleft
			 OR neg.oprname <> (SELECT oprname FROM pg_operator WHERE oid = c.oprnegate)
			 OR com.oprname <> (SELECT oprname FROM pg_operator WHERE oid = c.oprcom));
SELECT count(*) FROM pg_operator
	WHERE 'snowflake'::regtype IN (oprleft, oprright) AND oprname ~ '^[<>=]+$'
		AND 'timestamptz'::regtype NOT IN (oprleft, oprright);

-- Every operator class is valid.
SELECT opcname, amname, amvalidate(c.oid)
	FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod
	WHERE opcintype = 'snowflake'::regtype ORDER BY 1, 2;

-- Aggregates, DISTINCT, grouping and sorting, also hashed.
SELECT min(b), max(a), count(DISTINCT b), min(b) FILTER (WHERE false) FROM plain;
SET enable_hashagg = off;
SELECT b, count(*) FROM plain GROUP BY b ORDER BY b DESC;
RESET enable_hashagg;
SET enable_sort = off;
SELECT b, count(*) FROM plain GROUP BY b ORDER BY b;
RESET enable_sort;
SELECT array_agg(b ORDER BY b) FROM (SELECT DISTINCT b FROM plain) q;

-- A literal needs no cast, whatever it looks like.
SELECT a FROM plain WHERE a = 5;
SELECT a FROM plain WHERE a = '6';
SELECT a FROM plain WHERE a IN ('7', '8') ORDER BY a;
SELECT a FROM plain WHERE a = ANY ('{9,10}'::bigint[]) ORDER BY a;
SELECT a FROM plain WHERE a BETWEEN 11 AND 12 ORDER BY a;
SELECT a FROM plain WHERE a > 99 OR a < 2 ORDER BY a;

-- Hash values are those of the equal integers.
SELECT snowflake_hash(42::snowflake) = hashint8(42) AS equal,
	snowflake_hash_extended(42::snowflake, 7) = hashint8extended(42, 7) AS equal_extended;

DROP TABLE plain;
