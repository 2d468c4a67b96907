/* sql/snowflake--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION snowflake" to load this file. \quit

-- In reading order: the type, its casts and comparisons, index support,
-- decoding, comparison with times, minting, and what an operator needs.  Where int8 is right for an
-- ID, the function is core's own, named here with LANGUAGE internal.


-- The type

CREATE TYPE snowflake;

CREATE FUNCTION snowflake_in(cstring) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_out(snowflake) RETURNS cstring
	AS 'int8out' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_recv(internal) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_send(snowflake) RETURNS bytea
	AS 'int8send' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

CREATE TYPE snowflake (
	INPUT = snowflake_in,
	OUTPUT = snowflake_out,
	RECEIVE = snowflake_recv,
	SEND = snowflake_send,
	LIKE = pg_catalog.int8
);

COMMENT ON TYPE snowflake IS '64-bit ID made of a time, a node and a sequence number';
COMMENT ON FUNCTION snowflake_in(cstring) IS 'I/O';
COMMENT ON FUNCTION snowflake_out(snowflake) IS 'I/O';
COMMENT ON FUNCTION snowflake_recv(internal) IS 'I/O';
COMMENT ON FUNCTION snowflake_send(snowflake) IS 'I/O';


-- Casts
--
-- None is implicit: they would make "id = 5" ambiguous.  The one to bigint
-- needs no function, so the planner can look through it to an index on the
-- snowflake column.

CREATE FUNCTION snowflake(bigint) RETURNS snowflake
	AS 'MODULE_PATHNAME', 'snowflake_from_int8' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake(integer) RETURNS snowflake
	AS 'MODULE_PATHNAME', 'snowflake_from_int4' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake(smallint) RETURNS snowflake
	AS 'MODULE_PATHNAME', 'snowflake_from_int2' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE CAST (snowflake AS bigint) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (bigint AS snowflake) WITH FUNCTION snowflake(bigint) AS ASSIGNMENT;
CREATE CAST (integer AS snowflake) WITH FUNCTION snowflake(integer) AS ASSIGNMENT;
CREATE CAST (smallint AS snowflake) WITH FUNCTION snowflake(smallint) AS ASSIGNMENT;

COMMENT ON FUNCTION snowflake(bigint) IS 'convert int8 to snowflake';
COMMENT ON FUNCTION snowflake(integer) IS 'convert int4 to snowflake';
COMMENT ON FUNCTION snowflake(smallint) IS 'convert int2 to snowflake';
COMMENT ON CAST (snowflake AS bigint) IS 'the same number';
COMMENT ON CAST (bigint AS snowflake) IS 'the same number, if it is not negative';
COMMENT ON CAST (integer AS snowflake) IS 'the same number, if it is not negative';
COMMENT ON CAST (smallint AS snowflake) IS 'the same number, if it is not negative';


-- Comparison
--
-- The support functions turn a comparison of snowflakes with integers, and
-- every inequality of snowflakes, into core's own comparison of integers:
-- src/compare.c says why.

CREATE FUNCTION snowflake_lt_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_le_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_eq_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_ge_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_gt_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_lt_support(internal) IS 'planner support for <';
COMMENT ON FUNCTION snowflake_le_support(internal) IS 'planner support for <=';
COMMENT ON FUNCTION snowflake_eq_support(internal) IS 'planner support for =';
COMMENT ON FUNCTION snowflake_ge_support(internal) IS 'planner support for >=';
COMMENT ON FUNCTION snowflake_gt_support(internal) IS 'planner support for >';

-- snowflake with snowflake
CREATE FUNCTION snowflake_lt(snowflake, snowflake) RETURNS boolean
	AS 'int8lt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_lt_support;
CREATE FUNCTION snowflake_le(snowflake, snowflake) RETURNS boolean
	AS 'int8le' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_le_support;
CREATE FUNCTION snowflake_eq(snowflake, snowflake) RETURNS boolean
	AS 'int8eq' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_ne(snowflake, snowflake) RETURNS boolean
	AS 'int8ne' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_ge(snowflake, snowflake) RETURNS boolean
	AS 'int8ge' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_ge_support;
CREATE FUNCTION snowflake_gt(snowflake, snowflake) RETURNS boolean
	AS 'int8gt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_gt_support;

CREATE OPERATOR < (LEFTARG = snowflake, RIGHTARG = snowflake, FUNCTION = snowflake_lt,
	COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = snowflake, RIGHTARG = snowflake, FUNCTION = snowflake_le,
	COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR = (LEFTARG = snowflake, RIGHTARG = snowflake, FUNCTION = snowflake_eq,
	COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE OPERATOR <> (LEFTARG = snowflake, RIGHTARG = snowflake, FUNCTION = snowflake_ne,
	COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE OPERATOR >= (LEFTARG = snowflake, RIGHTARG = snowflake, FUNCTION = snowflake_ge,
	COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
CREATE OPERATOR > (LEFTARG = snowflake, RIGHTARG = snowflake, FUNCTION = snowflake_gt,
	COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);

COMMENT ON FUNCTION snowflake_lt(snowflake, snowflake) IS 'implementation of < operator';
COMMENT ON FUNCTION snowflake_le(snowflake, snowflake) IS 'implementation of <= operator';
COMMENT ON FUNCTION snowflake_eq(snowflake, snowflake) IS 'implementation of = operator';
COMMENT ON FUNCTION snowflake_ne(snowflake, snowflake) IS 'implementation of <> operator';
COMMENT ON FUNCTION snowflake_ge(snowflake, snowflake) IS 'implementation of >= operator';
COMMENT ON FUNCTION snowflake_gt(snowflake, snowflake) IS 'implementation of > operator';
COMMENT ON OPERATOR < (snowflake, snowflake) IS 'less than';
COMMENT ON OPERATOR <= (snowflake, snowflake) IS 'less than or equal';
COMMENT ON OPERATOR = (snowflake, snowflake) IS 'equal';
COMMENT ON OPERATOR <> (snowflake, snowflake) IS 'not equal';
COMMENT ON OPERATOR >= (snowflake, snowflake) IS 'greater than or equal';
COMMENT ON OPERATOR > (snowflake, snowflake) IS 'greater than';

-- snowflake with bigint
CREATE FUNCTION snowflake_lt(snowflake, bigint) RETURNS boolean
	AS 'int8lt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_lt_support;
CREATE FUNCTION snowflake_le(snowflake, bigint) RETURNS boolean
	AS 'int8le' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_le_support;
CREATE FUNCTION snowflake_eq(snowflake, bigint) RETURNS boolean
	AS 'int8eq' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_eq_support;
CREATE FUNCTION snowflake_ne(snowflake, bigint) RETURNS boolean
	AS 'int8ne' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_ge(snowflake, bigint) RETURNS boolean
	AS 'int8ge' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_ge_support;
CREATE FUNCTION snowflake_gt(snowflake, bigint) RETURNS boolean
	AS 'int8gt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_gt_support;

CREATE OPERATOR < (LEFTARG = snowflake, RIGHTARG = bigint, FUNCTION = snowflake_lt,
	COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = snowflake, RIGHTARG = bigint, FUNCTION = snowflake_le,
	COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR = (LEFTARG = snowflake, RIGHTARG = bigint, FUNCTION = snowflake_eq,
	COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE OPERATOR <> (LEFTARG = snowflake, RIGHTARG = bigint, FUNCTION = snowflake_ne,
	COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE OPERATOR >= (LEFTARG = snowflake, RIGHTARG = bigint, FUNCTION = snowflake_ge,
	COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
CREATE OPERATOR > (LEFTARG = snowflake, RIGHTARG = bigint, FUNCTION = snowflake_gt,
	COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);

COMMENT ON FUNCTION snowflake_lt(snowflake, bigint) IS 'implementation of < operator';
COMMENT ON FUNCTION snowflake_le(snowflake, bigint) IS 'implementation of <= operator';
COMMENT ON FUNCTION snowflake_eq(snowflake, bigint) IS 'implementation of = operator';
COMMENT ON FUNCTION snowflake_ne(snowflake, bigint) IS 'implementation of <> operator';
COMMENT ON FUNCTION snowflake_ge(snowflake, bigint) IS 'implementation of >= operator';
COMMENT ON FUNCTION snowflake_gt(snowflake, bigint) IS 'implementation of > operator';
COMMENT ON OPERATOR < (snowflake, bigint) IS 'less than';
COMMENT ON OPERATOR <= (snowflake, bigint) IS 'less than or equal';
COMMENT ON OPERATOR = (snowflake, bigint) IS 'equal';
COMMENT ON OPERATOR <> (snowflake, bigint) IS 'not equal';
COMMENT ON OPERATOR >= (snowflake, bigint) IS 'greater than or equal';
COMMENT ON OPERATOR > (snowflake, bigint) IS 'greater than';

-- bigint with snowflake
CREATE FUNCTION snowflake_lt(bigint, snowflake) RETURNS boolean
	AS 'int8lt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_lt_support;
CREATE FUNCTION snowflake_le(bigint, snowflake) RETURNS boolean
	AS 'int8le' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_le_support;
CREATE FUNCTION snowflake_eq(bigint, snowflake) RETURNS boolean
	AS 'int8eq' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_eq_support;
CREATE FUNCTION snowflake_ne(bigint, snowflake) RETURNS boolean
	AS 'int8ne' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_ge(bigint, snowflake) RETURNS boolean
	AS 'int8ge' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_ge_support;
CREATE FUNCTION snowflake_gt(bigint, snowflake) RETURNS boolean
	AS 'int8gt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_gt_support;

CREATE OPERATOR < (LEFTARG = bigint, RIGHTARG = snowflake, FUNCTION = snowflake_lt,
	COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = bigint, RIGHTARG = snowflake, FUNCTION = snowflake_le,
	COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR = (LEFTARG = bigint, RIGHTARG = snowflake, FUNCTION = snowflake_eq,
	COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE OPERATOR <> (LEFTARG = bigint, RIGHTARG = snowflake, FUNCTION = snowflake_ne,
	COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE OPERATOR >= (LEFTARG = bigint, RIGHTARG = snowflake, FUNCTION = snowflake_ge,
	COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
CREATE OPERATOR > (LEFTARG = bigint, RIGHTARG = snowflake, FUNCTION = snowflake_gt,
	COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);

COMMENT ON FUNCTION snowflake_lt(bigint, snowflake) IS 'implementation of < operator';
COMMENT ON FUNCTION snowflake_le(bigint, snowflake) IS 'implementation of <= operator';
COMMENT ON FUNCTION snowflake_eq(bigint, snowflake) IS 'implementation of = operator';
COMMENT ON FUNCTION snowflake_ne(bigint, snowflake) IS 'implementation of <> operator';
COMMENT ON FUNCTION snowflake_ge(bigint, snowflake) IS 'implementation of >= operator';
COMMENT ON FUNCTION snowflake_gt(bigint, snowflake) IS 'implementation of > operator';
COMMENT ON OPERATOR < (bigint, snowflake) IS 'less than';
COMMENT ON OPERATOR <= (bigint, snowflake) IS 'less than or equal';
COMMENT ON OPERATOR = (bigint, snowflake) IS 'equal';
COMMENT ON OPERATOR <> (bigint, snowflake) IS 'not equal';
COMMENT ON OPERATOR >= (bigint, snowflake) IS 'greater than or equal';
COMMENT ON OPERATOR > (bigint, snowflake) IS 'greater than';

-- snowflake with integer
CREATE FUNCTION snowflake_lt(snowflake, integer) RETURNS boolean
	AS 'int84lt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_lt_support;
CREATE FUNCTION snowflake_le(snowflake, integer) RETURNS boolean
	AS 'int84le' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_le_support;
CREATE FUNCTION snowflake_eq(snowflake, integer) RETURNS boolean
	AS 'int84eq' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_eq_support;
CREATE FUNCTION snowflake_ne(snowflake, integer) RETURNS boolean
	AS 'int84ne' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_ge(snowflake, integer) RETURNS boolean
	AS 'int84ge' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_ge_support;
CREATE FUNCTION snowflake_gt(snowflake, integer) RETURNS boolean
	AS 'int84gt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_gt_support;

CREATE OPERATOR < (LEFTARG = snowflake, RIGHTARG = integer, FUNCTION = snowflake_lt,
	COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = snowflake, RIGHTARG = integer, FUNCTION = snowflake_le,
	COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR = (LEFTARG = snowflake, RIGHTARG = integer, FUNCTION = snowflake_eq,
	COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE OPERATOR <> (LEFTARG = snowflake, RIGHTARG = integer, FUNCTION = snowflake_ne,
	COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE OPERATOR >= (LEFTARG = snowflake, RIGHTARG = integer, FUNCTION = snowflake_ge,
	COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
CREATE OPERATOR > (LEFTARG = snowflake, RIGHTARG = integer, FUNCTION = snowflake_gt,
	COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);

COMMENT ON FUNCTION snowflake_lt(snowflake, integer) IS 'implementation of < operator';
COMMENT ON FUNCTION snowflake_le(snowflake, integer) IS 'implementation of <= operator';
COMMENT ON FUNCTION snowflake_eq(snowflake, integer) IS 'implementation of = operator';
COMMENT ON FUNCTION snowflake_ne(snowflake, integer) IS 'implementation of <> operator';
COMMENT ON FUNCTION snowflake_ge(snowflake, integer) IS 'implementation of >= operator';
COMMENT ON FUNCTION snowflake_gt(snowflake, integer) IS 'implementation of > operator';
COMMENT ON OPERATOR < (snowflake, integer) IS 'less than';
COMMENT ON OPERATOR <= (snowflake, integer) IS 'less than or equal';
COMMENT ON OPERATOR = (snowflake, integer) IS 'equal';
COMMENT ON OPERATOR <> (snowflake, integer) IS 'not equal';
COMMENT ON OPERATOR >= (snowflake, integer) IS 'greater than or equal';
COMMENT ON OPERATOR > (snowflake, integer) IS 'greater than';

-- integer with snowflake
CREATE FUNCTION snowflake_lt(integer, snowflake) RETURNS boolean
	AS 'int48lt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_lt_support;
CREATE FUNCTION snowflake_le(integer, snowflake) RETURNS boolean
	AS 'int48le' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_le_support;
CREATE FUNCTION snowflake_eq(integer, snowflake) RETURNS boolean
	AS 'int48eq' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_eq_support;
CREATE FUNCTION snowflake_ne(integer, snowflake) RETURNS boolean
	AS 'int48ne' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_ge(integer, snowflake) RETURNS boolean
	AS 'int48ge' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_ge_support;
CREATE FUNCTION snowflake_gt(integer, snowflake) RETURNS boolean
	AS 'int48gt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_gt_support;

CREATE OPERATOR < (LEFTARG = integer, RIGHTARG = snowflake, FUNCTION = snowflake_lt,
	COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = integer, RIGHTARG = snowflake, FUNCTION = snowflake_le,
	COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR = (LEFTARG = integer, RIGHTARG = snowflake, FUNCTION = snowflake_eq,
	COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE OPERATOR <> (LEFTARG = integer, RIGHTARG = snowflake, FUNCTION = snowflake_ne,
	COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE OPERATOR >= (LEFTARG = integer, RIGHTARG = snowflake, FUNCTION = snowflake_ge,
	COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
CREATE OPERATOR > (LEFTARG = integer, RIGHTARG = snowflake, FUNCTION = snowflake_gt,
	COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);

COMMENT ON FUNCTION snowflake_lt(integer, snowflake) IS 'implementation of < operator';
COMMENT ON FUNCTION snowflake_le(integer, snowflake) IS 'implementation of <= operator';
COMMENT ON FUNCTION snowflake_eq(integer, snowflake) IS 'implementation of = operator';
COMMENT ON FUNCTION snowflake_ne(integer, snowflake) IS 'implementation of <> operator';
COMMENT ON FUNCTION snowflake_ge(integer, snowflake) IS 'implementation of >= operator';
COMMENT ON FUNCTION snowflake_gt(integer, snowflake) IS 'implementation of > operator';
COMMENT ON OPERATOR < (integer, snowflake) IS 'less than';
COMMENT ON OPERATOR <= (integer, snowflake) IS 'less than or equal';
COMMENT ON OPERATOR = (integer, snowflake) IS 'equal';
COMMENT ON OPERATOR <> (integer, snowflake) IS 'not equal';
COMMENT ON OPERATOR >= (integer, snowflake) IS 'greater than or equal';
COMMENT ON OPERATOR > (integer, snowflake) IS 'greater than';

-- snowflake with smallint
CREATE FUNCTION snowflake_lt(snowflake, smallint) RETURNS boolean
	AS 'int82lt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_lt_support;
CREATE FUNCTION snowflake_le(snowflake, smallint) RETURNS boolean
	AS 'int82le' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_le_support;
CREATE FUNCTION snowflake_eq(snowflake, smallint) RETURNS boolean
	AS 'int82eq' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_eq_support;
CREATE FUNCTION snowflake_ne(snowflake, smallint) RETURNS boolean
	AS 'int82ne' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_ge(snowflake, smallint) RETURNS boolean
	AS 'int82ge' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_ge_support;
CREATE FUNCTION snowflake_gt(snowflake, smallint) RETURNS boolean
	AS 'int82gt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_gt_support;

CREATE OPERATOR < (LEFTARG = snowflake, RIGHTARG = smallint, FUNCTION = snowflake_lt,
	COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = snowflake, RIGHTARG = smallint, FUNCTION = snowflake_le,
	COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR = (LEFTARG = snowflake, RIGHTARG = smallint, FUNCTION = snowflake_eq,
	COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE OPERATOR <> (LEFTARG = snowflake, RIGHTARG = smallint, FUNCTION = snowflake_ne,
	COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE OPERATOR >= (LEFTARG = snowflake, RIGHTARG = smallint, FUNCTION = snowflake_ge,
	COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
CREATE OPERATOR > (LEFTARG = snowflake, RIGHTARG = smallint, FUNCTION = snowflake_gt,
	COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);

COMMENT ON FUNCTION snowflake_lt(snowflake, smallint) IS 'implementation of < operator';
COMMENT ON FUNCTION snowflake_le(snowflake, smallint) IS 'implementation of <= operator';
COMMENT ON FUNCTION snowflake_eq(snowflake, smallint) IS 'implementation of = operator';
COMMENT ON FUNCTION snowflake_ne(snowflake, smallint) IS 'implementation of <> operator';
COMMENT ON FUNCTION snowflake_ge(snowflake, smallint) IS 'implementation of >= operator';
COMMENT ON FUNCTION snowflake_gt(snowflake, smallint) IS 'implementation of > operator';
COMMENT ON OPERATOR < (snowflake, smallint) IS 'less than';
COMMENT ON OPERATOR <= (snowflake, smallint) IS 'less than or equal';
COMMENT ON OPERATOR = (snowflake, smallint) IS 'equal';
COMMENT ON OPERATOR <> (snowflake, smallint) IS 'not equal';
COMMENT ON OPERATOR >= (snowflake, smallint) IS 'greater than or equal';
COMMENT ON OPERATOR > (snowflake, smallint) IS 'greater than';

-- smallint with snowflake
CREATE FUNCTION snowflake_lt(smallint, snowflake) RETURNS boolean
	AS 'int28lt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_lt_support;
CREATE FUNCTION snowflake_le(smallint, snowflake) RETURNS boolean
	AS 'int28le' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_le_support;
CREATE FUNCTION snowflake_eq(smallint, snowflake) RETURNS boolean
	AS 'int28eq' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_eq_support;
CREATE FUNCTION snowflake_ne(smallint, snowflake) RETURNS boolean
	AS 'int28ne' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_ge(smallint, snowflake) RETURNS boolean
	AS 'int28ge' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_ge_support;
CREATE FUNCTION snowflake_gt(smallint, snowflake) RETURNS boolean
	AS 'int28gt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_gt_support;

CREATE OPERATOR < (LEFTARG = smallint, RIGHTARG = snowflake, FUNCTION = snowflake_lt,
	COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = smallint, RIGHTARG = snowflake, FUNCTION = snowflake_le,
	COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR = (LEFTARG = smallint, RIGHTARG = snowflake, FUNCTION = snowflake_eq,
	COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE OPERATOR <> (LEFTARG = smallint, RIGHTARG = snowflake, FUNCTION = snowflake_ne,
	COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE OPERATOR >= (LEFTARG = smallint, RIGHTARG = snowflake, FUNCTION = snowflake_ge,
	COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
CREATE OPERATOR > (LEFTARG = smallint, RIGHTARG = snowflake, FUNCTION = snowflake_gt,
	COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);

COMMENT ON FUNCTION snowflake_lt(smallint, snowflake) IS 'implementation of < operator';
COMMENT ON FUNCTION snowflake_le(smallint, snowflake) IS 'implementation of <= operator';
COMMENT ON FUNCTION snowflake_eq(smallint, snowflake) IS 'implementation of = operator';
COMMENT ON FUNCTION snowflake_ne(smallint, snowflake) IS 'implementation of <> operator';
COMMENT ON FUNCTION snowflake_ge(smallint, snowflake) IS 'implementation of >= operator';
COMMENT ON FUNCTION snowflake_gt(smallint, snowflake) IS 'implementation of > operator';
COMMENT ON OPERATOR < (smallint, snowflake) IS 'less than';
COMMENT ON OPERATOR <= (smallint, snowflake) IS 'less than or equal';
COMMENT ON OPERATOR = (smallint, snowflake) IS 'equal';
COMMENT ON OPERATOR <> (smallint, snowflake) IS 'not equal';
COMMENT ON OPERATOR >= (smallint, snowflake) IS 'greater than or equal';
COMMENT ON OPERATOR > (smallint, snowflake) IS 'greater than';

-- Order and hashing
--
-- Both families hold every pair of snowflake, bigint, integer and smallint.
-- With core's own operators for bigint in them, an index, a BRIN summary and a
-- partition key of snowflakes are matched by comparisons with integers.
--
-- Why integer and smallint too: the planner draws conclusions across
-- "a = b AND b = 5" only between operators that belong to the same btree
-- families.  If "bigint = bigint" were in one more family than "bigint =
-- integer", it would cease to do so for plain integer columns, in every
-- database with this extension.

CREATE FUNCTION snowflake_cmp(snowflake, snowflake) RETURNS integer
	AS 'btint8cmp' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_cmp(snowflake, bigint) RETURNS integer
	AS 'btint8cmp' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_cmp(bigint, snowflake) RETURNS integer
	AS 'btint8cmp' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_cmp(snowflake, integer) RETURNS integer
	AS 'btint84cmp' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_cmp(integer, snowflake) RETURNS integer
	AS 'btint48cmp' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_cmp(snowflake, smallint) RETURNS integer
	AS 'btint82cmp' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
CREATE FUNCTION snowflake_cmp(smallint, snowflake) RETURNS integer
	AS 'btint28cmp' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
COMMENT ON FUNCTION snowflake_cmp(snowflake, snowflake) IS 'less-equal-greater';
COMMENT ON FUNCTION snowflake_cmp(snowflake, bigint) IS 'less-equal-greater';
COMMENT ON FUNCTION snowflake_cmp(bigint, snowflake) IS 'less-equal-greater';
COMMENT ON FUNCTION snowflake_cmp(snowflake, integer) IS 'less-equal-greater';
COMMENT ON FUNCTION snowflake_cmp(integer, snowflake) IS 'less-equal-greater';
COMMENT ON FUNCTION snowflake_cmp(snowflake, smallint) IS 'less-equal-greater';
COMMENT ON FUNCTION snowflake_cmp(smallint, snowflake) IS 'less-equal-greater';

CREATE OPERATOR FAMILY snowflake_ops USING btree;
COMMENT ON OPERATOR FAMILY snowflake_ops USING btree IS
	'order of snowflakes among themselves and among integers';

CREATE OPERATOR CLASS snowflake_ops DEFAULT FOR TYPE snowflake USING btree FAMILY snowflake_ops AS
	OPERATOR 1 <,
	OPERATOR 2 <=,
	OPERATOR 3 =,
	OPERATOR 4 >=,
	OPERATOR 5 >,
	FUNCTION 1 snowflake_cmp(snowflake, snowflake),
	FUNCTION 2 (snowflake, snowflake) btint8sortsupport(internal),
	FUNCTION 4 (snowflake, snowflake) btequalimage(oid);
COMMENT ON OPERATOR CLASS snowflake_ops USING btree IS 'order of snowflakes';

ALTER OPERATOR FAMILY snowflake_ops USING btree ADD
	OPERATOR 1 < (snowflake, bigint), OPERATOR 2 <= (snowflake, bigint), OPERATOR 3 = (snowflake, bigint),
	OPERATOR 4 >= (snowflake, bigint), OPERATOR 5 > (snowflake, bigint),
	FUNCTION 1 snowflake_cmp(snowflake, bigint),
	OPERATOR 1 < (bigint, snowflake), OPERATOR 2 <= (bigint, snowflake), OPERATOR 3 = (bigint, snowflake),
	OPERATOR 4 >= (bigint, snowflake), OPERATOR 5 > (bigint, snowflake),
	FUNCTION 1 snowflake_cmp(bigint, snowflake),
	OPERATOR 1 < (snowflake, integer), OPERATOR 2 <= (snowflake, integer), OPERATOR 3 = (snowflake, integer),
	OPERATOR 4 >= (snowflake, integer), OPERATOR 5 > (snowflake, integer),
	FUNCTION 1 snowflake_cmp(snowflake, integer),
	OPERATOR 1 < (integer, snowflake), OPERATOR 2 <= (integer, snowflake), OPERATOR 3 = (integer, snowflake),
	OPERATOR 4 >= (integer, snowflake), OPERATOR 5 > (integer, snowflake),
	FUNCTION 1 snowflake_cmp(integer, snowflake),
	OPERATOR 1 < (snowflake, smallint), OPERATOR 2 <= (snowflake, smallint), OPERATOR 3 = (snowflake, smallint),
	OPERATOR 4 >= (snowflake, smallint), OPERATOR 5 > (snowflake, smallint),
	FUNCTION 1 snowflake_cmp(snowflake, smallint),
	OPERATOR 1 < (smallint, snowflake), OPERATOR 2 <= (smallint, snowflake), OPERATOR 3 = (smallint, snowflake),
	OPERATOR 4 >= (smallint, snowflake), OPERATOR 5 > (smallint, snowflake),
	FUNCTION 1 snowflake_cmp(smallint, snowflake),
	OPERATOR 1 < (bigint, bigint), OPERATOR 2 <= (bigint, bigint), OPERATOR 3 = (bigint, bigint),
	OPERATOR 4 >= (bigint, bigint), OPERATOR 5 > (bigint, bigint),
	FUNCTION 1 btint8cmp(bigint, bigint),
	OPERATOR 1 < (bigint, integer), OPERATOR 2 <= (bigint, integer), OPERATOR 3 = (bigint, integer),
	OPERATOR 4 >= (bigint, integer), OPERATOR 5 > (bigint, integer),
	FUNCTION 1 btint84cmp(bigint, integer),
	OPERATOR 1 < (bigint, smallint), OPERATOR 2 <= (bigint, smallint), OPERATOR 3 = (bigint, smallint),
	OPERATOR 4 >= (bigint, smallint), OPERATOR 5 > (bigint, smallint),
	FUNCTION 1 btint82cmp(bigint, smallint),
	OPERATOR 1 < (integer, bigint), OPERATOR 2 <= (integer, bigint), OPERATOR 3 = (integer, bigint),
	OPERATOR 4 >= (integer, bigint), OPERATOR 5 > (integer, bigint),
	FUNCTION 1 btint48cmp(integer, bigint),
	OPERATOR 1 < (integer, integer), OPERATOR 2 <= (integer, integer), OPERATOR 3 = (integer, integer),
	OPERATOR 4 >= (integer, integer), OPERATOR 5 > (integer, integer),
	FUNCTION 1 btint4cmp(integer, integer),
	OPERATOR 1 < (integer, smallint), OPERATOR 2 <= (integer, smallint), OPERATOR 3 = (integer, smallint),
	OPERATOR 4 >= (integer, smallint), OPERATOR 5 > (integer, smallint),
	FUNCTION 1 btint42cmp(integer, smallint),
	OPERATOR 1 < (smallint, bigint), OPERATOR 2 <= (smallint, bigint), OPERATOR 3 = (smallint, bigint),
	OPERATOR 4 >= (smallint, bigint), OPERATOR 5 > (smallint, bigint),
	FUNCTION 1 btint28cmp(smallint, bigint),
	OPERATOR 1 < (smallint, integer), OPERATOR 2 <= (smallint, integer), OPERATOR 3 = (smallint, integer),
	OPERATOR 4 >= (smallint, integer), OPERATOR 5 > (smallint, integer),
	FUNCTION 1 btint24cmp(smallint, integer),
	OPERATOR 1 < (smallint, smallint), OPERATOR 2 <= (smallint, smallint), OPERATOR 3 = (smallint, smallint),
	OPERATOR 4 >= (smallint, smallint), OPERATOR 5 > (smallint, smallint),
	FUNCTION 1 btint2cmp(smallint, smallint);

CREATE FUNCTION snowflake_hash(snowflake) RETURNS integer
	AS 'hashint8' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_hash_extended(snowflake, bigint) RETURNS bigint
	AS 'hashint8extended' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_hash(snowflake) IS 'hash';
COMMENT ON FUNCTION snowflake_hash_extended(snowflake, bigint) IS 'hash with a seed';

CREATE OPERATOR FAMILY snowflake_ops USING hash;
COMMENT ON OPERATOR FAMILY snowflake_ops USING hash IS
	'hashing of snowflakes, alike for equal integers';

CREATE OPERATOR CLASS snowflake_ops DEFAULT FOR TYPE snowflake USING hash FAMILY snowflake_ops AS
	OPERATOR 1 =,
	FUNCTION 1 snowflake_hash(snowflake),
	FUNCTION 2 snowflake_hash_extended(snowflake, bigint);
COMMENT ON OPERATOR CLASS snowflake_ops USING hash IS 'hashing of snowflakes';

ALTER OPERATOR FAMILY snowflake_ops USING hash ADD
	OPERATOR 1 = (snowflake, bigint),
	OPERATOR 1 = (bigint, snowflake),
	OPERATOR 1 = (snowflake, integer),
	OPERATOR 1 = (integer, snowflake),
	OPERATOR 1 = (snowflake, smallint),
	OPERATOR 1 = (smallint, snowflake),
	OPERATOR 1 = (bigint, bigint),
	OPERATOR 1 = (bigint, integer),
	OPERATOR 1 = (bigint, smallint),
	OPERATOR 1 = (integer, bigint),
	OPERATOR 1 = (integer, integer),
	OPERATOR 1 = (integer, smallint),
	OPERATOR 1 = (smallint, bigint),
	OPERATOR 1 = (smallint, integer),
	OPERATOR 1 = (smallint, smallint),
	FUNCTION 1 (bigint, bigint) hashint8(bigint),
	FUNCTION 2 (bigint, bigint) hashint8extended(bigint, bigint),
	FUNCTION 1 (integer, integer) hashint4(integer),
	FUNCTION 2 (integer, integer) hashint4extended(integer, bigint),
	FUNCTION 1 (smallint, smallint) hashint2(smallint),
	FUNCTION 2 (smallint, smallint) hashint2extended(smallint, bigint);

CREATE OPERATOR FAMILY snowflake_minmax_ops USING brin;
COMMENT ON OPERATOR FAMILY snowflake_minmax_ops USING brin IS 'smallest and largest snowflake of each block range';
CREATE OPERATOR CLASS snowflake_minmax_ops DEFAULT FOR TYPE snowflake USING brin
	FAMILY snowflake_minmax_ops AS
	OPERATOR 1 <,
	OPERATOR 2 <=,
	OPERATOR 3 =,
	OPERATOR 4 >=,
	OPERATOR 5 >,
	FUNCTION 1 brin_minmax_opcinfo(internal),
	FUNCTION 2 brin_minmax_add_value(internal, internal, internal, internal),
	FUNCTION 3 brin_minmax_consistent(internal, internal, internal),
	FUNCTION 4 brin_minmax_union(internal, internal, internal);
COMMENT ON OPERATOR CLASS snowflake_minmax_ops USING brin IS 'smallest and largest snowflake of each block range';
ALTER OPERATOR FAMILY snowflake_minmax_ops USING brin ADD
	OPERATOR 1 < (snowflake, bigint), OPERATOR 2 <= (snowflake, bigint), OPERATOR 3 = (snowflake, bigint),
	OPERATOR 4 >= (snowflake, bigint), OPERATOR 5 > (snowflake, bigint),
	OPERATOR 1 < (snowflake, integer), OPERATOR 2 <= (snowflake, integer), OPERATOR 3 = (snowflake, integer),
	OPERATOR 4 >= (snowflake, integer), OPERATOR 5 > (snowflake, integer),
	OPERATOR 1 < (snowflake, smallint), OPERATOR 2 <= (snowflake, smallint), OPERATOR 3 = (snowflake, smallint),
	OPERATOR 4 >= (snowflake, smallint), OPERATOR 5 > (snowflake, smallint),
	OPERATOR 1 < (bigint, bigint), OPERATOR 2 <= (bigint, bigint), OPERATOR 3 = (bigint, bigint),
	OPERATOR 4 >= (bigint, bigint), OPERATOR 5 > (bigint, bigint),
	OPERATOR 1 < (bigint, integer), OPERATOR 2 <= (bigint, integer), OPERATOR 3 = (bigint, integer),
	OPERATOR 4 >= (bigint, integer), OPERATOR 5 > (bigint, integer),
	OPERATOR 1 < (bigint, smallint), OPERATOR 2 <= (bigint, smallint), OPERATOR 3 = (bigint, smallint),
	OPERATOR 4 >= (bigint, smallint), OPERATOR 5 > (bigint, smallint),
	FUNCTION 1 (bigint, bigint) brin_minmax_opcinfo(internal),
	FUNCTION 2 (bigint, bigint) brin_minmax_add_value(internal, internal, internal, internal),
	FUNCTION 3 (bigint, bigint) brin_minmax_consistent(internal, internal, internal),
	FUNCTION 4 (bigint, bigint) brin_minmax_union(internal, internal, internal);

CREATE OPERATOR FAMILY snowflake_minmax_multi_ops USING brin;
COMMENT ON OPERATOR FAMILY snowflake_minmax_multi_ops USING brin IS 'several ranges of snowflakes of each block range';
CREATE OPERATOR CLASS snowflake_minmax_multi_ops FOR TYPE snowflake USING brin
	FAMILY snowflake_minmax_multi_ops AS
	OPERATOR 1 <,
	OPERATOR 2 <=,
	OPERATOR 3 =,
	OPERATOR 4 >=,
	OPERATOR 5 >,
	FUNCTION 1 brin_minmax_multi_opcinfo(internal),
	FUNCTION 2 brin_minmax_multi_add_value(internal, internal, internal, internal),
	FUNCTION 3 brin_minmax_multi_consistent(internal, internal, internal, integer),
	FUNCTION 4 brin_minmax_multi_union(internal, internal, internal),
	FUNCTION 5 brin_minmax_multi_options(internal),
	FUNCTION 11 (snowflake, snowflake) brin_minmax_multi_distance_int8(internal, internal);
COMMENT ON OPERATOR CLASS snowflake_minmax_multi_ops USING brin IS 'several ranges of snowflakes of each block range';
ALTER OPERATOR FAMILY snowflake_minmax_multi_ops USING brin ADD
	OPERATOR 1 < (snowflake, bigint), OPERATOR 2 <= (snowflake, bigint), OPERATOR 3 = (snowflake, bigint),
	OPERATOR 4 >= (snowflake, bigint), OPERATOR 5 > (snowflake, bigint),
	OPERATOR 1 < (snowflake, integer), OPERATOR 2 <= (snowflake, integer), OPERATOR 3 = (snowflake, integer),
	OPERATOR 4 >= (snowflake, integer), OPERATOR 5 > (snowflake, integer),
	OPERATOR 1 < (snowflake, smallint), OPERATOR 2 <= (snowflake, smallint), OPERATOR 3 = (snowflake, smallint),
	OPERATOR 4 >= (snowflake, smallint), OPERATOR 5 > (snowflake, smallint),
	OPERATOR 1 < (bigint, bigint), OPERATOR 2 <= (bigint, bigint), OPERATOR 3 = (bigint, bigint),
	OPERATOR 4 >= (bigint, bigint), OPERATOR 5 > (bigint, bigint),
	OPERATOR 1 < (bigint, integer), OPERATOR 2 <= (bigint, integer), OPERATOR 3 = (bigint, integer),
	OPERATOR 4 >= (bigint, integer), OPERATOR 5 > (bigint, integer),
	OPERATOR 1 < (bigint, smallint), OPERATOR 2 <= (bigint, smallint), OPERATOR 3 = (bigint, smallint),
	OPERATOR 4 >= (bigint, smallint), OPERATOR 5 > (bigint, smallint),
	FUNCTION 1 (bigint, bigint) brin_minmax_multi_opcinfo(internal),
	FUNCTION 2 (bigint, bigint) brin_minmax_multi_add_value(internal, internal, internal, internal),
	FUNCTION 3 (bigint, bigint) brin_minmax_multi_consistent(internal, internal, internal, integer),
	FUNCTION 4 (bigint, bigint) brin_minmax_multi_union(internal, internal, internal),
	FUNCTION 5 (bigint, bigint) brin_minmax_multi_options(internal),
	FUNCTION 11 (bigint, bigint) brin_minmax_multi_distance_int8(internal, internal);

CREATE OPERATOR FAMILY snowflake_bloom_ops USING brin;
COMMENT ON OPERATOR FAMILY snowflake_bloom_ops USING brin IS 'Bloom filter of the snowflakes of each block range';
CREATE OPERATOR CLASS snowflake_bloom_ops FOR TYPE snowflake USING brin
	FAMILY snowflake_bloom_ops AS
	OPERATOR 1 =,
	FUNCTION 1 brin_bloom_opcinfo(internal),
	FUNCTION 2 brin_bloom_add_value(internal, internal, internal, internal),
	FUNCTION 3 brin_bloom_consistent(internal, internal, internal, integer),
	FUNCTION 4 brin_bloom_union(internal, internal, internal),
	FUNCTION 5 brin_bloom_options(internal),
	FUNCTION 11 (snowflake, snowflake) snowflake_hash(snowflake);
COMMENT ON OPERATOR CLASS snowflake_bloom_ops USING brin IS 'Bloom filter of the snowflakes of each block range';
ALTER OPERATOR FAMILY snowflake_bloom_ops USING brin ADD
	OPERATOR 1 = (snowflake, bigint),
	OPERATOR 1 = (bigint, bigint),
	FUNCTION 1 (bigint, bigint) brin_bloom_opcinfo(internal),
	FUNCTION 2 (bigint, bigint) brin_bloom_add_value(internal, internal, internal, internal),
	FUNCTION 3 (bigint, bigint) brin_bloom_consistent(internal, internal, internal, integer),
	FUNCTION 4 (bigint, bigint) brin_bloom_union(internal, internal, internal),
	FUNCTION 5 (bigint, bigint) brin_bloom_options(internal),
	FUNCTION 11 (bigint, bigint) hashint8(bigint);

-- Aggregates

CREATE FUNCTION snowflake_smaller(snowflake, snowflake) RETURNS snowflake
	AS 'int8smaller' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_larger(snowflake, snowflake) RETURNS snowflake
	AS 'int8larger' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

CREATE AGGREGATE min(snowflake) (
	SFUNC = snowflake_smaller,
	STYPE = snowflake,
	COMBINEFUNC = snowflake_smaller,
	SORTOP = <,
	PARALLEL = SAFE
);
CREATE AGGREGATE max(snowflake) (
	SFUNC = snowflake_larger,
	STYPE = snowflake,
	COMBINEFUNC = snowflake_larger,
	SORTOP = >,
	PARALLEL = SAFE
);

COMMENT ON FUNCTION snowflake_smaller(snowflake, snowflake) IS 'smaller of two';
COMMENT ON FUNCTION snowflake_larger(snowflake, snowflake) IS 'larger of two';
COMMENT ON AGGREGATE min(snowflake) IS 'smallest, and so the oldest, snowflake of all input values';
COMMENT ON AGGREGATE max(snowflake) IS 'largest, and so the newest, snowflake of all input values';


-- Decoding
--
-- With a layout the result depends on the arguments alone; without, it is of
-- the server's layout, which a restart can change.

CREATE FUNCTION snowflake_timestamp(id snowflake) RETURNS timestamptz
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_timestamp(id snowflake, layout text) RETURNS timestamptz
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_node(id snowflake) RETURNS integer
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_node(id snowflake, layout text) RETURNS integer
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_sequence(id snowflake) RETURNS integer
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_sequence(id snowflake, layout text) RETURNS integer
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_field(id snowflake, field text) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_field(id snowflake, field text, layout text) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_decode(id snowflake,
	OUT "timestamp" timestamptz, OUT node integer, OUT sequence integer)
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_decode(id snowflake, layout text,
	OUT "timestamp" timestamptz, OUT node integer, OUT sequence integer)
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_explain(id snowflake) RETURNS text
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_explain(id snowflake, layout text) RETURNS text
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION snowflake_timestamp(snowflake) IS 'when the snowflake was minted, by the server''s layout';
COMMENT ON FUNCTION snowflake_timestamp(snowflake, text) IS 'when the snowflake was minted, by the given layout';
COMMENT ON FUNCTION snowflake_node(snowflake) IS 'node ID of the snowflake, by the server''s layout';
COMMENT ON FUNCTION snowflake_node(snowflake, text) IS 'node ID of the snowflake, by the given layout';
COMMENT ON FUNCTION snowflake_sequence(snowflake) IS 'sequence number of the snowflake, by the server''s layout';
COMMENT ON FUNCTION snowflake_sequence(snowflake, text) IS 'sequence number of the snowflake, by the given layout';
COMMENT ON FUNCTION snowflake_field(snowflake, text) IS 'any field of the snowflake by its name, by the server''s layout';
COMMENT ON FUNCTION snowflake_field(snowflake, text, text) IS 'any field of the snowflake by its name, by the given layout';
COMMENT ON FUNCTION snowflake_decode(snowflake) IS 'time, node and sequence of the snowflake, by the server''s layout';
COMMENT ON FUNCTION snowflake_decode(snowflake, text) IS 'time, node and sequence of the snowflake, by the given layout';
COMMENT ON FUNCTION snowflake_explain(snowflake) IS 'the snowflake''s bits and fields for people to read, by the server''s layout';
COMMENT ON FUNCTION snowflake_explain(snowflake, text) IS 'the snowflake''s bits and fields for people to read, by the given layout';

CREATE OPERATOR @ (RIGHTARG = snowflake, FUNCTION = snowflake_timestamp);
CREATE OPERATOR -> (LEFTARG = snowflake, RIGHTARG = text, FUNCTION = snowflake_field);
CREATE CAST (snowflake AS timestamptz) WITH FUNCTION snowflake_timestamp(snowflake);

COMMENT ON OPERATOR @ (NONE, snowflake) IS 'when the snowflake was minted';
COMMENT ON OPERATOR -> (snowflake, text) IS 'field of the snowflake';
COMMENT ON CAST (snowflake AS timestamptz) IS 'when the snowflake was minted';


-- Snowflakes with given parts

CREATE FUNCTION make_snowflake(ts timestamptz, node integer, sequence integer) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION make_snowflake(ts timestamptz, node integer, sequence integer, layout text) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_lower_bound(ts timestamptz) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_lower_bound(ts timestamptz, layout text) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_upper_bound(ts timestamptz) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_upper_bound(ts timestamptz, layout text) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION make_snowflake(timestamptz, integer, integer) IS 'snowflake with this time, node and sequence, by the server''s layout';
COMMENT ON FUNCTION make_snowflake(timestamptz, integer, integer, text) IS 'snowflake with this time, node and sequence, by the given layout';
COMMENT ON FUNCTION snowflake_lower_bound(timestamptz) IS 'smallest snowflake at or after an instant, by the server''s layout';
COMMENT ON FUNCTION snowflake_lower_bound(timestamptz, text) IS 'smallest snowflake at or after an instant, by the given layout';
COMMENT ON FUNCTION snowflake_upper_bound(timestamptz) IS 'largest snowflake at or before an instant, by the server''s layout';
COMMENT ON FUNCTION snowflake_upper_bound(timestamptz, text) IS 'largest snowflake at or before an instant, by the given layout';


-- Texts

CREATE FUNCTION snowflake_encode(id snowflake, format text) RETURNS text
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_parse(id text, format text) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION snowflake_encode(snowflake, text) IS 'snowflake as a text in base32, base32z, base36, base58, base58flickr, base62 or hex';
COMMENT ON FUNCTION snowflake_parse(text, text) IS 'snowflake from such a text';


-- Comparison with times
--
-- An operator's body is put into its place by the planner, which then sees a
-- comparison of integers with a bound: src/timerange.c says more.

CREATE FUNCTION snowflake_bound_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_since_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_after_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_range_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_before(ts timestamptz) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_bound_support;
CREATE FUNCTION snowflake_until(ts timestamptz) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_bound_support;
CREATE FUNCTION snowflake_before(period tstzrange) RETURNS bigint
	AS 'MODULE_PATHNAME', 'snowflake_before_range' LANGUAGE C STABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_bound_support;
CREATE FUNCTION snowflake_until(period tstzrange) RETURNS bigint
	AS 'MODULE_PATHNAME', 'snowflake_until_range' LANGUAGE C STABLE STRICT PARALLEL SAFE LEAKPROOF
	SUPPORT snowflake_bound_support;

COMMENT ON FUNCTION snowflake_bound_support(internal) IS 'planner support for bounds';
COMMENT ON FUNCTION snowflake_since_support(internal) IS 'planner support for >= of a snowflake and a time';
COMMENT ON FUNCTION snowflake_after_support(internal) IS 'planner support for > of a snowflake and a time';
COMMENT ON FUNCTION snowflake_range_support(internal) IS 'planner support for <@ of a snowflake and a range of time';
COMMENT ON FUNCTION snowflake_before(timestamptz) IS 'largest snowflake before an instant, as bigint, -1 if there is none';
COMMENT ON FUNCTION snowflake_until(timestamptz) IS 'largest snowflake at or before an instant, as bigint, -1 if there is none';
COMMENT ON FUNCTION snowflake_before(tstzrange) IS 'largest snowflake before a range of time, as bigint, -1 if there is none';
COMMENT ON FUNCTION snowflake_until(tstzrange) IS 'largest snowflake not after a range of time, as bigint, -1 if there is none';

CREATE FUNCTION snowflake_lt(id snowflake, ts timestamptz) RETURNS boolean
	LANGUAGE sql STABLE STRICT PARALLEL SAFE LEAKPROOF
	RETURN id::bigint <= snowflake_before(ts);
CREATE FUNCTION snowflake_le(id snowflake, ts timestamptz) RETURNS boolean
	LANGUAGE sql STABLE STRICT PARALLEL SAFE LEAKPROOF
	RETURN id::bigint <= snowflake_until(ts);
CREATE FUNCTION snowflake_ge(id snowflake, ts timestamptz) RETURNS boolean
	LANGUAGE sql STABLE STRICT PARALLEL SAFE LEAKPROOF SUPPORT snowflake_since_support
	RETURN id::bigint > snowflake_before(ts);
CREATE FUNCTION snowflake_gt(id snowflake, ts timestamptz) RETURNS boolean
	LANGUAGE sql STABLE STRICT PARALLEL SAFE LEAKPROOF SUPPORT snowflake_after_support
	RETURN id::bigint > snowflake_until(ts);
CREATE FUNCTION snowflake_lt(ts timestamptz, id snowflake) RETURNS boolean
	LANGUAGE sql STABLE STRICT PARALLEL SAFE LEAKPROOF SUPPORT snowflake_after_support
	RETURN id::bigint > snowflake_until(ts);
CREATE FUNCTION snowflake_le(ts timestamptz, id snowflake) RETURNS boolean
	LANGUAGE sql STABLE STRICT PARALLEL SAFE LEAKPROOF SUPPORT snowflake_since_support
	RETURN id::bigint > snowflake_before(ts);
CREATE FUNCTION snowflake_ge(ts timestamptz, id snowflake) RETURNS boolean
	LANGUAGE sql STABLE STRICT PARALLEL SAFE LEAKPROOF
	RETURN id::bigint <= snowflake_until(ts);
CREATE FUNCTION snowflake_gt(ts timestamptz, id snowflake) RETURNS boolean
	LANGUAGE sql STABLE STRICT PARALLEL SAFE LEAKPROOF
	RETURN id::bigint <= snowflake_before(ts);

-- not strict, because AND is not: it could not be put into the operator's place
CREATE FUNCTION snowflake_contained(id snowflake, period tstzrange) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE LEAKPROOF SUPPORT snowflake_range_support
	RETURN id::bigint > snowflake_before(period) AND id::bigint <= snowflake_until(period);
CREATE FUNCTION snowflake_contains(period tstzrange, id snowflake) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE LEAKPROOF SUPPORT snowflake_range_support
	RETURN id::bigint > snowflake_before(period) AND id::bigint <= snowflake_until(period);

CREATE OPERATOR < (LEFTARG = snowflake, RIGHTARG = timestamptz, FUNCTION = snowflake_lt,
	COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = snowflake, RIGHTARG = timestamptz, FUNCTION = snowflake_le,
	COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR >= (LEFTARG = snowflake, RIGHTARG = timestamptz, FUNCTION = snowflake_ge,
	COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
CREATE OPERATOR > (LEFTARG = snowflake, RIGHTARG = timestamptz, FUNCTION = snowflake_gt,
	COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);
CREATE OPERATOR < (LEFTARG = timestamptz, RIGHTARG = snowflake, FUNCTION = snowflake_lt,
	COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = timestamptz, RIGHTARG = snowflake, FUNCTION = snowflake_le,
	COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR >= (LEFTARG = timestamptz, RIGHTARG = snowflake, FUNCTION = snowflake_ge,
	COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
CREATE OPERATOR > (LEFTARG = timestamptz, RIGHTARG = snowflake, FUNCTION = snowflake_gt,
	COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);
CREATE OPERATOR <@ (LEFTARG = snowflake, RIGHTARG = tstzrange, FUNCTION = snowflake_contained,
	COMMUTATOR = @>);
CREATE OPERATOR @> (LEFTARG = tstzrange, RIGHTARG = snowflake, FUNCTION = snowflake_contains,
	COMMUTATOR = <@);

COMMENT ON FUNCTION snowflake_lt(snowflake, timestamptz) IS 'implementation of < operator';
COMMENT ON FUNCTION snowflake_le(snowflake, timestamptz) IS 'implementation of <= operator';
COMMENT ON FUNCTION snowflake_ge(snowflake, timestamptz) IS 'implementation of >= operator';
COMMENT ON FUNCTION snowflake_gt(snowflake, timestamptz) IS 'implementation of > operator';
COMMENT ON OPERATOR < (snowflake, timestamptz) IS 'less than, by the snowflake''s time';
COMMENT ON OPERATOR <= (snowflake, timestamptz) IS 'less than or equal, by the snowflake''s time';
COMMENT ON OPERATOR >= (snowflake, timestamptz) IS 'greater than or equal, by the snowflake''s time';
COMMENT ON OPERATOR > (snowflake, timestamptz) IS 'greater than, by the snowflake''s time';
COMMENT ON FUNCTION snowflake_lt(timestamptz, snowflake) IS 'implementation of < operator';
COMMENT ON FUNCTION snowflake_le(timestamptz, snowflake) IS 'implementation of <= operator';
COMMENT ON FUNCTION snowflake_ge(timestamptz, snowflake) IS 'implementation of >= operator';
COMMENT ON FUNCTION snowflake_gt(timestamptz, snowflake) IS 'implementation of > operator';
COMMENT ON OPERATOR < (timestamptz, snowflake) IS 'less than, by the snowflake''s time';
COMMENT ON OPERATOR <= (timestamptz, snowflake) IS 'less than or equal, by the snowflake''s time';
COMMENT ON OPERATOR >= (timestamptz, snowflake) IS 'greater than or equal, by the snowflake''s time';
COMMENT ON OPERATOR > (timestamptz, snowflake) IS 'greater than, by the snowflake''s time';
COMMENT ON FUNCTION snowflake_contained(snowflake, tstzrange) IS 'implementation of <@ operator';
COMMENT ON FUNCTION snowflake_contains(tstzrange, snowflake) IS 'implementation of @> operator';
COMMENT ON OPERATOR <@ (snowflake, tstzrange) IS 'the snowflake''s time is contained by';
COMMENT ON OPERATOR @> (tstzrange, snowflake) IS 'contains the snowflake''s time';


-- Layouts

CREATE FUNCTION snowflake_layout(
	OUT name text, OUT layout text,
	OUT time_bits integer, OUT node_bits integer, OUT sequence_bits integer,
	OUT tick interval, OUT epoch timestamptz, OUT last_instant timestamptz,
	OUT nodes bigint, OUT ids_per_second double precision)
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_layout(text,
	OUT name text, OUT layout text,
	OUT time_bits integer, OUT node_bits integer, OUT sequence_bits integer,
	OUT tick interval, OUT epoch timestamptz, OUT last_instant timestamptz,
	OUT nodes bigint, OUT ids_per_second double precision)
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_layouts(
	OUT name text, OUT layout text,
	OUT time_bits integer, OUT node_bits integer, OUT sequence_bits integer,
	OUT tick interval, OUT epoch timestamptz, OUT last_instant timestamptz,
	OUT nodes bigint, OUT ids_per_second double precision)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION snowflake_layout() IS 'the server''s layout';
COMMENT ON FUNCTION snowflake_layout(text) IS 'a layout, read and printed canonically';
COMMENT ON FUNCTION snowflake_layouts() IS 'every preset layout';


-- Minting

CREATE FUNCTION snowflake_next() RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_next_batch_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_next_batch(count integer) RETURNS SETOF snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE
	SUPPORT snowflake_next_batch_support;
CREATE FUNCTION snowflake_current() RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION snowflake_next() IS 'mint a snowflake';
COMMENT ON FUNCTION snowflake_next_batch_support(internal) IS 'planner support for snowflake_next_batch';
COMMENT ON FUNCTION snowflake_next_batch(integer) IS 'mint that many snowflakes, in ascending order';
COMMENT ON FUNCTION snowflake_current() IS 'the snowflake that this session minted last';


-- The reservation
--
-- One row per node ID that this server ever had; only the keeper writes it, in
-- the database of the setting snowflake.database.  It belongs to one server, so
-- pg_dump must not carry it to another: its contents are not configuration.

CREATE TABLE snowflake_reservation (
	node integer PRIMARY KEY,
	layout text NOT NULL,
	reserved_until timestamptz NOT NULL
);
CREATE FUNCTION snowflake_reservation_not_replicated() RETURNS trigger
	AS 'MODULE_PATHNAME' LANGUAGE C;
CREATE TRIGGER not_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake_reservation
	FOR EACH ROW EXECUTE FUNCTION snowflake_reservation_not_replicated();
ALTER TABLE snowflake_reservation ENABLE REPLICA TRIGGER not_replicated;
REVOKE ALL ON snowflake_reservation FROM PUBLIC;
GRANT SELECT ON snowflake_reservation TO pg_monitor;

COMMENT ON FUNCTION snowflake_reservation_not_replicated() IS 'keeps logical replication out of snowflake_reservation';
COMMENT ON TRIGGER not_replicated ON snowflake_reservation IS 'drops what logical replication brings from another server';
COMMENT ON TABLE snowflake_reservation IS 'how far ahead snowflakes may have been minted, by node ID';
COMMENT ON COLUMN snowflake_reservation.node IS 'node ID';
COMMENT ON COLUMN snowflake_reservation.layout IS 'layout of the snowflakes, canonical';
COMMENT ON COLUMN snowflake_reservation.reserved_until IS 'no snowflake of a later tick was ever minted';


-- Operation

CREATE FUNCTION snowflake_status(
	OUT gate text, OUT advice text,
	OUT node integer, OUT layout text, OUT layout_ends timestamptz,
	OUT last_id snowflake, OUT last_time timestamptz,
	OUT lead interval, OUT reserved_until timestamptz, OUT keeper_pid integer,
	OUT minted bigint,
	OUT clock_waits bigint, OUT clock_wait_total interval, OUT clock_wait_longest interval,
	OUT keeper_waits bigint, OUT keeper_wait_total interval, OUT keeper_wait_longest interval,
	OUT reservations bigint,
	OUT clock_steps_back bigint, OUT clock_step_back_largest interval,
	OUT refused_node bigint, OUT refused_layout bigint, OUT refused_keeper bigint,
	OUT refused_clock bigint, OUT refused_end bigint, OUT refused_standby bigint,
	OUT stats_reset timestamptz)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_status_reset() RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
CREATE FUNCTION snowflake_advance(id snowflake) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION snowflake_accept_layout() RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowflake_status_reset() FROM PUBLIC;
REVOKE ALL ON FUNCTION snowflake_advance(snowflake) FROM PUBLIC;
REVOKE ALL ON FUNCTION snowflake_accept_layout() FROM PUBLIC;

COMMENT ON FUNCTION snowflake_status() IS 'state of the server''s generator, advice, and counters';
COMMENT ON FUNCTION snowflake_status_reset() IS 'count from zero again in snowflake_status()';
COMMENT ON FUNCTION snowflake_advance(snowflake) IS 'never mint at or below this snowflake';
COMMENT ON FUNCTION snowflake_accept_layout() IS 'take the configured layout in place of the stored one';


-- Migration
--
-- It checks the caller's rights before it locks, and its statements do again.

CREATE FUNCTION snowflake_convert_column(relation regclass, column_name name,
	type regtype DEFAULT 'pg_catalog.int8', dry_run boolean DEFAULT false)
	RETURNS SETOF text
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 10;

COMMENT ON FUNCTION snowflake_convert_column(regclass, name, regtype, boolean) IS
	'fill a serial, identity or integer column with snowflakes from now on';
