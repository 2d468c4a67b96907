/* sql/snowflake--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION snowflake" to load this file. \quit

-- In reading order: the type and its casts, decoding, filters on decoded times,
-- layouts, minting, and an administrator's functions.  Where a function of int8
-- is right for an ID, it is core's own, named here with LANGUAGE internal.

-- The type
--
-- A snowflake is to bigint what varchar is to text: it has an input function
-- of its own, and the implicit cast, which costs nothing, leads to everything
-- else.  Operators, operator classes, aggregates, statistics and foreign keys
-- are those of bigint.

CREATE TYPE snowflake;

CREATE FUNCTION snowflake_in(cstring) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_in(cstring) IS 'I/O';
CREATE FUNCTION snowflake_out(snowflake) RETURNS cstring
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_out(snowflake) IS 'I/O';
CREATE FUNCTION snowflake_recv(internal) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_recv(internal) IS 'I/O';
CREATE FUNCTION snowflake_send(snowflake) RETURNS bytea
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_send(snowflake) IS 'I/O';

CREATE TYPE snowflake (
	INPUT = snowflake_in,
	OUTPUT = snowflake_out,
	RECEIVE = snowflake_recv,
	SEND = snowflake_send,
	LIKE = pg_catalog.int8,
	CATEGORY = 'N'
);
COMMENT ON TYPE snowflake IS '64-bit ID made of a time, a node and a sequence number';

CREATE CAST (snowflake AS bigint) WITHOUT FUNCTION AS IMPLICIT;
COMMENT ON CAST (snowflake AS bigint) IS 'the same number';
-- not core's functions of bigint: pg_upgrade makes casts in an order of its own
CREATE FUNCTION snowflake_numeric(snowflake) RETURNS numeric AS 'int8_numeric' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
COMMENT ON FUNCTION snowflake_numeric(snowflake) IS 'convert snowflake to numeric';
CREATE CAST (snowflake AS numeric) WITH FUNCTION snowflake_numeric(snowflake) AS ASSIGNMENT;
COMMENT ON CAST (snowflake AS numeric) IS 'the same number';
CREATE FUNCTION snowflake_float8(snowflake) RETURNS double precision AS 'i8tod' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
COMMENT ON FUNCTION snowflake_float8(snowflake) IS 'convert snowflake to float8';
CREATE CAST (snowflake AS double precision) WITH FUNCTION snowflake_float8(snowflake) AS ASSIGNMENT;
COMMENT ON CAST (snowflake AS double precision) IS 'the nearest number';
CREATE FUNCTION snowflake_float4(snowflake) RETURNS real AS 'i8tof' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE LEAKPROOF;
COMMENT ON FUNCTION snowflake_float4(snowflake) IS 'convert snowflake to float4';
CREATE CAST (snowflake AS real) WITH FUNCTION snowflake_float4(snowflake) AS ASSIGNMENT;
COMMENT ON CAST (snowflake AS real) IS 'the nearest number';
CREATE FUNCTION snowflake_int4(snowflake) RETURNS integer AS 'int84' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_int4(snowflake) IS 'convert snowflake to int4';
CREATE CAST (snowflake AS integer) WITH FUNCTION snowflake_int4(snowflake) AS ASSIGNMENT;
COMMENT ON CAST (snowflake AS integer) IS 'the same number, if it is small enough';
CREATE FUNCTION snowflake_int2(snowflake) RETURNS smallint AS 'int82' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_int2(snowflake) IS 'convert snowflake to int2';
CREATE CAST (snowflake AS smallint) WITH FUNCTION snowflake_int2(snowflake) AS ASSIGNMENT;
COMMENT ON CAST (snowflake AS smallint) IS 'the same number, if it is small enough';

CREATE FUNCTION snowflake(bigint) RETURNS snowflake
	AS 'MODULE_PATHNAME', 'snowflake_from_int8' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake(bigint) IS 'convert int8 to snowflake';
CREATE CAST (bigint AS snowflake) WITH FUNCTION snowflake(bigint) AS ASSIGNMENT;
COMMENT ON CAST (bigint AS snowflake) IS 'the same number, if it is not negative';
CREATE FUNCTION snowflake(integer) RETURNS snowflake
	AS 'MODULE_PATHNAME', 'snowflake_from_int4' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake(integer) IS 'convert int4 to snowflake';
CREATE CAST (integer AS snowflake) WITH FUNCTION snowflake(integer) AS ASSIGNMENT;
COMMENT ON CAST (integer AS snowflake) IS 'the same number, if it is not negative';
CREATE FUNCTION snowflake(smallint) RETURNS snowflake
	AS 'MODULE_PATHNAME', 'snowflake_from_int2' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake(smallint) IS 'convert int2 to snowflake';
CREATE CAST (smallint AS snowflake) WITH FUNCTION snowflake(smallint) AS ASSIGNMENT;
COMMENT ON CAST (smallint AS snowflake) IS 'the same number, if it is not negative';

-- Decoding
--
-- These functions take bigint, and so either type: max(id) is a bigint, for
-- example.  With a layout argument, the result depends on the arguments only;
-- without, it depends on the server's layout, which a restart can change.

CREATE FUNCTION snowflake_timestamp_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_timestamp_support(internal) IS 'planner support for the time of a snowflake';
CREATE FUNCTION snowflake_timestamp(id bigint) RETURNS timestamptz
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE SUPPORT snowflake_timestamp_support;
COMMENT ON FUNCTION snowflake_timestamp(bigint) IS 'when the snowflake was minted, by the server''s layout';
CREATE FUNCTION snowflake_timestamp(id bigint, layout text) RETURNS timestamptz
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE SUPPORT snowflake_timestamp_support;
COMMENT ON FUNCTION snowflake_timestamp(bigint, text) IS 'when the snowflake was minted, by the given layout';
CREATE FUNCTION snowflake_node(id bigint) RETURNS integer
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_node(bigint) IS 'node ID of the snowflake, by the server''s layout';
CREATE FUNCTION snowflake_node(id bigint, layout text) RETURNS integer
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_node(bigint, text) IS 'node ID of the snowflake, by the given layout';
CREATE FUNCTION snowflake_sequence(id bigint) RETURNS integer
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_sequence(bigint) IS 'sequence number of the snowflake, by the server''s layout';
CREATE FUNCTION snowflake_sequence(id bigint, layout text) RETURNS integer
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_sequence(bigint, text) IS 'sequence number of the snowflake, by the given layout';
CREATE FUNCTION snowflake_field(id bigint, field text) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_field(bigint, text) IS 'any field of the snowflake by its name, by the server''s layout';
CREATE FUNCTION snowflake_field(id bigint, field text, layout text) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_field(bigint, text, text) IS 'any field of the snowflake by its name, by the given layout';
CREATE FUNCTION snowflake_decode(id bigint,
	OUT "timestamp" timestamptz, OUT node integer, OUT sequence integer)
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_decode(bigint) IS 'time, node and sequence of the snowflake, by the server''s layout';
CREATE FUNCTION snowflake_decode(id bigint, layout text,
	OUT "timestamp" timestamptz, OUT node integer, OUT sequence integer)
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_decode(bigint, text) IS 'time, node and sequence of the snowflake, by the given layout';
CREATE FUNCTION snowflake_explain(id bigint) RETURNS text
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_explain(bigint) IS
	'the snowflake''s bits and fields for people to read, by the server''s layout';
CREATE FUNCTION snowflake_explain(id bigint, layout text) RETURNS text
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_explain(bigint, text) IS
	'the snowflake''s bits and fields for people to read, by the given layout';

CREATE OPERATOR @@ (RIGHTARG = bigint, FUNCTION = snowflake_timestamp);
COMMENT ON OPERATOR @@ (NONE, bigint) IS 'when the snowflake was minted';
CREATE OPERATOR -> (LEFTARG = bigint, RIGHTARG = text, FUNCTION = snowflake_field);
COMMENT ON OPERATOR -> (bigint, text) IS 'field of the snowflake';
-- takes a snowflake, for the reason above
CREATE FUNCTION snowflake_timestamptz(snowflake) RETURNS timestamptz
	AS 'MODULE_PATHNAME', 'snowflake_timestamp' LANGUAGE C STABLE STRICT PARALLEL SAFE SUPPORT snowflake_timestamp_support;
COMMENT ON FUNCTION snowflake_timestamptz(snowflake) IS 'convert snowflake to timestamptz';
CREATE CAST (snowflake AS timestamptz) WITH FUNCTION snowflake_timestamptz(snowflake);
COMMENT ON CAST (snowflake AS timestamptz) IS 'when the snowflake was minted';

-- Snowflakes with given parts, and as texts

CREATE FUNCTION make_snowflake(ts timestamptz, node integer, sequence integer) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION make_snowflake(timestamptz, integer, integer) IS
	'snowflake with this time, node and sequence, by the server''s layout';
CREATE FUNCTION make_snowflake(ts timestamptz, node integer, sequence integer, layout text) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION make_snowflake(timestamptz, integer, integer, text) IS
	'snowflake with this time, node and sequence, by the given layout';
CREATE FUNCTION snowflake_lower_bound(ts timestamptz) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_lower_bound(timestamptz) IS 'smallest snowflake at or after an instant, by the server''s layout';
CREATE FUNCTION snowflake_lower_bound(ts timestamptz, layout text) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_lower_bound(timestamptz, text) IS
	'smallest snowflake at or after an instant, by the given layout';
CREATE FUNCTION snowflake_upper_bound(ts timestamptz) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_upper_bound(timestamptz) IS 'largest snowflake at or before an instant, by the server''s layout';
CREATE FUNCTION snowflake_upper_bound(ts timestamptz, layout text) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_upper_bound(timestamptz, text) IS
	'largest snowflake at or before an instant, by the given layout';
CREATE FUNCTION snowflake_to_text(id bigint, format text) RETURNS text
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_to_text(bigint, text) IS
	'snowflake as a text in base32, base32z, base36, base58, base58flickr, base62 or hex';
CREATE FUNCTION snowflake_from_text(id text, format text) RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_from_text(text, text) IS 'snowflake from a text of snowflake_to_text()';

-- Filters on decoded times
--
-- They are core's comparisons of timestamptz.  The planner adds to them, or replaces them
-- with, a comparison of the snowflake with one of these functions: see
-- src/layout/timefilter.c.

CREATE FUNCTION snowflake_before("time" anyelement) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE LEAKPROOF;
COMMENT ON FUNCTION snowflake_before(anyelement) IS
	'largest snowflake before a time, or the first of several times, as bigint, -1 if none';
CREATE FUNCTION snowflake_before("time" anyelement, layout text) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_before(anyelement, text) IS
	'largest snowflake before a time, or the first of several times, as bigint, -1 if none, by the given layout';
CREATE FUNCTION snowflake_until("time" anyelement) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE LEAKPROOF;
COMMENT ON FUNCTION snowflake_until(anyelement) IS
	'largest snowflake not after a time, or the last of several times, as bigint, -1 if none';
CREATE FUNCTION snowflake_until("time" anyelement, layout text) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_until(anyelement, text) IS
	'largest snowflake not after a time, or the last of several times, as bigint, -1 if none, by the given layout';
CREATE FUNCTION snowflake_period_start("time" anyelement, unit text) RETURNS timestamptz
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_period_start(anyelement, text) IS
	'instant before which none is truncated to this time or a later one, in the session''s time zone';
CREATE FUNCTION snowflake_period_start("time" anyelement, unit text, zone text) RETURNS timestamptz
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_period_start(anyelement, text, text) IS
	'instant before which none is truncated to this time or a later one, in the given time zone';
CREATE FUNCTION snowflake_period_end("time" anyelement, unit text) RETURNS timestamptz
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_period_end(anyelement, text) IS
	'instant from which on none is truncated to this time or an earlier one, in the session''s time zone';
CREATE FUNCTION snowflake_period_end("time" anyelement, unit text, zone text) RETURNS timestamptz
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_period_end(anyelement, text, text) IS
	'instant from which on none is truncated to this time or an earlier one, in the given time zone';
CREATE FUNCTION snowflake_filter_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_filter_support(internal) IS 'planner support for a filter on the time of a snowflake';
CREATE FUNCTION snowflake_period_is_exact("time" anyelement, unit text) RETURNS boolean
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE SUPPORT snowflake_filter_support;
COMMENT ON FUNCTION snowflake_period_is_exact(anyelement, text) IS
	'true if all instants between the period''s start and end are truncated to this time, in the session''s time zone';
CREATE FUNCTION snowflake_period_is_exact("time" anyelement, unit text, zone text) RETURNS boolean
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE SUPPORT snowflake_filter_support;
COMMENT ON FUNCTION snowflake_period_is_exact(anyelement, text, text) IS
	'true if all instants between the period''s start and end are truncated to this time, in the given time zone';
CREATE FUNCTION snowflake_filter(boolean) RETURNS boolean
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE LEAKPROOF SUPPORT snowflake_filter_support;
COMMENT ON FUNCTION snowflake_filter(boolean) IS 'the condition itself; in plans, it accompanies the range of snowflakes that it implies';

-- Layouts

CREATE FUNCTION snowflake_layout(
	OUT name text, OUT layout text,
	OUT time_bits integer, OUT node_bits integer, OUT sequence_bits integer,
	OUT tick interval, OUT epoch timestamptz, OUT last_instant timestamptz,
	OUT nodes bigint, OUT ids_per_second double precision)
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_layout() IS 'the server''s layout';
CREATE FUNCTION snowflake_layout(text,
	OUT name text, OUT layout text,
	OUT time_bits integer, OUT node_bits integer, OUT sequence_bits integer,
	OUT tick interval, OUT epoch timestamptz, OUT last_instant timestamptz,
	OUT nodes bigint, OUT ids_per_second double precision)
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_layout(text) IS 'a layout in its canonical form';
CREATE FUNCTION snowflake_layouts(
	OUT name text, OUT layout text,
	OUT time_bits integer, OUT node_bits integer, OUT sequence_bits integer,
	OUT tick interval, OUT epoch timestamptz, OUT last_instant timestamptz,
	OUT nodes bigint, OUT ids_per_second double precision)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_layouts() IS 'every preset layout';

-- Minting

CREATE FUNCTION snowflake_next() RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_next() IS 'mint a snowflake';
CREATE FUNCTION snowflake_next(value integer) RETURNS snowflake
	AS 'MODULE_PATHNAME', 'snowflake_next_value' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_next(integer) IS 'mint a snowflake with a value in the caller''s field of the layout';
CREATE FUNCTION snowflake_next_batch_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_next_batch_support(internal) IS 'planner support for snowflake_next_batch';
CREATE FUNCTION snowflake_next_batch(count integer) RETURNS SETOF snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE
	SUPPORT snowflake_next_batch_support;
COMMENT ON FUNCTION snowflake_next_batch(integer) IS 'mint a number of snowflakes, in ascending order';
CREATE FUNCTION snowflake_next_batch(count integer, value integer) RETURNS SETOF snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE
	SUPPORT snowflake_next_batch_support;
COMMENT ON FUNCTION snowflake_next_batch(integer, integer) IS
	'mint a number of snowflakes, in ascending order, with a value in the caller''s field of the layout';

-- Reading in the order of the IDs

CREATE FUNCTION snowflake_frontier() RETURNS snowflake
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_frontier() IS
	'the snowflake up to which the statement misses no row of this database, now or later';
CREATE FUNCTION snowflake_frontier_holders(
	OUT pid integer, OUT prepared xid, OUT since timestamptz, OUT oldest snowflake)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION snowflake_frontier_holders() IS 'transactions of this database that hold the frontier back';

-- Operation

CREATE FUNCTION snowflake_get_status(
	OUT gate text, OUT advice text, OUT node integer, OUT node_source text, OUT node_origin text, OUT coordinator text,
	OUT lease_until timestamptz, OUT lease_renewed timestamptz, OUT layout text, OUT layout_ends timestamptz,
	OUT last_id snowflake, OUT last_time timestamptz, OUT lead interval,
	OUT frontier snowflake, OUT frontier_lag interval, OUT frontier_holder integer,
	OUT keeper_pid integer, OUT reserved_until timestamptz, OUT standby_wait interval,
	OUT clock_state text, OUT clock_jump interval)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_get_status() IS 'implements snowflake_status';
CREATE VIEW snowflake_status AS SELECT * FROM snowflake_get_status();
COMMENT ON VIEW snowflake_status IS 'state of the server''s generator, and advice';
GRANT SELECT ON snowflake_status TO PUBLIC;
CREATE FUNCTION snowflake_get_stats(
	OUT minted bigint,
	OUT clock_waits bigint, OUT clock_wait_total interval, OUT clock_wait_longest interval,
	OUT keeper_waits bigint, OUT keeper_wait_total interval, OUT keeper_wait_longest interval,
	OUT reservations bigint,
	OUT clock_steps_back bigint, OUT clock_step_back_largest interval,
	OUT clock_steps_ahead bigint, OUT clock_step_ahead_largest interval,
	OUT leases bigint, OUT lease_renewals bigint, OUT lease_errors bigint,
	OUT refused_node bigint, OUT refused_layout bigint, OUT refused_keeper bigint,
	OUT refused_clock bigint, OUT refused_end bigint, OUT refused_standby bigint,
	OUT stats_reset timestamptz)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_get_stats() IS 'implements snowflake_stats';
CREATE VIEW snowflake_stats AS SELECT * FROM snowflake_get_stats();
COMMENT ON VIEW snowflake_stats IS 'counters of the server''s generator since stats_reset';
GRANT SELECT ON snowflake_stats TO PUBLIC;
CREATE FUNCTION snowflake_stats_reset() RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_stats_reset() IS 'reset the counters of snowflake_stats';
CREATE FUNCTION snowflake_advance(id bigint, force boolean DEFAULT false) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION snowflake_advance(bigint, boolean) IS 'never mint at or below this snowflake';
CREATE FUNCTION snowflake_accept_layout() RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION snowflake_accept_layout() IS 'replace the stored layout with the configured one';
CREATE FUNCTION snowflake_accept_database(largest_id bigint DEFAULT NULL, none_exists boolean DEFAULT false) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION snowflake_accept_database(bigint, boolean) IS 'replace the lost reservation with one above the largest snowflake that exists';
CREATE FUNCTION snowflake_accept_clock() RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION snowflake_accept_clock() IS 'accept the clock after a jump';
CREATE FUNCTION snowflake_restart_at_clock(node integer) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION snowflake_restart_at_clock(integer) IS 'take a generator that is far ahead of the clock back to it, with a new node ID';
CREATE FUNCTION snowflake_fleet_create(floor timestamptz DEFAULT NULL) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION snowflake_fleet_create(timestamptz) IS 'create a fleet at the coordinator, which then leases node IDs';
CREATE FUNCTION snowflake_fleet_recover(
	floor timestamptz DEFAULT NULL, holder_is_gone boolean DEFAULT false) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION snowflake_fleet_recover(timestamptz, boolean) IS 're-create the fleet after its coordinator has lost data';
CREATE FUNCTION snowflake_fleet_reclaim(node integer, floor timestamptz DEFAULT pg_catalog.now()) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION snowflake_fleet_reclaim(integer, timestamptz) IS 'let a node ID that no server holds be leased again, above its newest ID';
CREATE FUNCTION snowflake_fleet(
	OUT node integer, OUT holder text, OUT since timestamptz,
	OUT leased_from timestamptz, OUT leased_until timestamptz, OUT state text,
	OUT layout text) RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION snowflake_fleet() IS 'the records of the fleet: its own, and one for each node ID that was leased';

-- These functions are restricted, but default privileges may have granted them to
-- any role.
DO $$
DECLARE
	command pg_catalog.text;
BEGIN
	FOR command IN
		SELECT pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE',
				p.oid::pg_catalog.regprocedure,
				CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC'
				ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END)
		FROM pg_catalog.pg_proc AS p,
			LATERAL (SELECT DISTINCT grantee FROM pg_catalog.aclexplode(
				coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)))) AS a
		WHERE p.oid OPERATOR(pg_catalog.=) ANY (ARRAY[
				'snowflake_stats_reset()', 'snowflake_advance(bigint, boolean)', 'snowflake_restart_at_clock(integer)',
				'snowflake_accept_layout()', 'snowflake_accept_clock()', 'snowflake_accept_database(bigint, boolean)',
				'snowflake_fleet_create(timestamptz)', 'snowflake_fleet_recover(timestamptz, boolean)',
				'snowflake_fleet_reclaim(integer, timestamptz)', 'snowflake_fleet()']::pg_catalog.regprocedure[]::pg_catalog.oid[])
			AND a.grantee OPERATOR(pg_catalog.<>) p.proowner
	LOOP
		EXECUTE command;
	END LOOP;
END
$$;

-- Without the library in shared memory, everything except minting works, so
-- nothing would say that it is missing until the first mint.  CREATE EXTENSION
-- suppresses messages below WARNING.

DO $$
BEGIN
	IF (SELECT s.gate OPERATOR(pg_catalog.=) 'closed: the library is not preloaded' FROM snowflake_status AS s)
	THEN
		RAISE WARNING 'nothing can be minted yet: this server has not preloaded the library of extension "snowflake"'
			USING HINT = 'Add snowflake to the libraries in shared_preload_libraries, and restart the server.';
	END IF;
END
$$;
