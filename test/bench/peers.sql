-- What snowflake_next() is measured against, besides what the server has.
-- psql -v floor=<path of floor.so> -v uuidv7=<true from PostgreSQL 18 on>

CREATE FUNCTION bench_floor() RETURNS bigint AS :'floor' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
CREATE FUNCTION bench_cas() RETURNS bigint AS :'floor' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
CREATE FUNCTION bench_locked_cas() RETURNS bigint AS :'floor' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
CREATE SEQUENCE bench_sequence;

-- Before PostgreSQL 18, UUIDv7 in SQL: the milliseconds over the first 48 bits of a random UUID, then
-- its version changed from 4 to 7
\if :uuidv7
\else
CREATE FUNCTION uuidv7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
	SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
		PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
		FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;
\endif
