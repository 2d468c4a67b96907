-- IDs for the outside.  This server has no keys: test/t/701_public.pl has a server
-- that has some.
CREATE EXTENSION snowflake_public;
SELECT p.oid::regprocedure AS function, provolatile, proparallel, proisstrict, proleakproof, prorettype::regtype
	FROM pg_proc p
	WHERE proname ~ '^snowflake_(public|private|public_uuid)$' ORDER BY 1::text COLLATE "C";
SELECT snowflake_public(NULL, 'ord') IS NULL AS public, snowflake_private(NULL) IS NULL AS private,
	snowflake_public_uuid(1, NULL) IS NULL AS public_uuid, snowflake_private(NULL::uuid, 'ord') IS NULL AS private_uuid;

-- What is wrong whatever the keys are, and what needs one
SELECT call, code, message, detail, hint
	FROM unnest(ARRAY[
		'snowflake_public(-1, ''ord'')',
		'snowflake_public(1, ''Order'')',
		'snowflake_public(1, ''ord'')',
		'snowflake_private(''1234'')',
		'snowflake_private(''ord_1234'')',
		'snowflake_private(''ord_1000000000000u'')',
		'snowflake_private(''ord_10000000000000'', ''usr'')',
		'snowflake_private(''ord_1g000000000000'')',
		'snowflake_private(''ord_10000000000000'')',
		'snowflake_public_uuid(1, ''ord'')',
		'snowflake_private(''00000000-0000-7000-8000-000000000000''::uuid, ''ord'')',
		'snowflake_private(''00000000-0000-8000-8000-000000000000''::uuid, ''ord'')',
		'snowflake_private(''00000000-0000-7000-8000-000000000000'', ''ord'')',
		'snowflake_private(''00000000-0000-8000-8000-000000000000'')']) WITH ORDINALITY AS c(call, n),
		LATERAL outcome('SELECT ' || call)
	ORDER BY n;
