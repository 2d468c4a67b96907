/* sql/snowflake_public--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION snowflake_public" to load this file. \quit

-- The type is that of the extension snowflake, not one in a schema that is searched
-- earlier: with another role's type of that name, the functions would return a wrong type.
SELECT pg_catalog.set_config('search_path', pg_catalog.quote_ident(n.nspname) OPERATOR(pg_catalog.||) ', pg_temp', true)
	FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
	WHERE e.extname OPERATOR(pg_catalog.=) 'snowflake';

-- The functions are stable, because the keys are a setting.  They are restricted,
-- because each process reads the file itself: a parallel worker might find other keys
-- than the leader.

CREATE FUNCTION @extschema@.snowflake_public(id bigint, context text) RETURNS text
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.snowflake_public(bigint, text) IS 'a snowflake encrypted as a short text';
CREATE FUNCTION @extschema@.snowflake_private(public text) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.snowflake_private(text) IS 'the snowflake encrypted in a text of snowflake_public()';
CREATE FUNCTION @extschema@.snowflake_private(public text, context text) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.snowflake_private(text, text) IS
	'the snowflake encrypted in a text of snowflake_public(), or in a UUID given as text; an error if it is of another context';
CREATE FUNCTION @extschema@.snowflake_public_uuid(id bigint, context text) RETURNS uuid
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.snowflake_public_uuid(bigint, text) IS 'a snowflake encrypted as a UUID, which cannot be made up';
CREATE FUNCTION @extschema@.snowflake_private(uuid uuid, context text) RETURNS snowflake
	AS 'MODULE_PATHNAME', 'snowflake_private_uuid' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.snowflake_private(uuid, text) IS 'the snowflake encrypted in a UUID of snowflake_public_uuid()';
