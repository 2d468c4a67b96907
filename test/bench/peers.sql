-- What snowflake_next() is measured against, besides what the server has.
-- psql -v floor=<path of floor.so>

CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION IF NOT EXISTS pgstattuple;

-- The executor's floor, and stopwatches: see floor.c
CREATE FUNCTION bench_cpu() RETURNS bigint AS :'floor' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION bench_floor() RETURNS bigint
	AS :'floor' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
CREATE FUNCTION bench_latency(function regprocedure, argument oid, calls integer,
							  calls_per_second double precision) RETURNS bigint[]
	AS :'floor' LANGUAGE C VOLATILE STRICT;

-- The milliseconds on a processor that each of some queries takes.  They are run
-- in turns of 2 ms until each has had its time; what a query changes is undone
-- by the end of a subtransaction.
CREATE FUNCTION bench_ms(queries text[], undo boolean, ms_each float8) RETURNS SETOF float8 LANGUAGE plpgsql AS $$
DECLARE
	count constant integer := cardinality(queries);
	runs integer[] := array_fill(0, ARRAY[count]);
	batch integer[] := array_fill(1, ARRAY[count]);
	spent float8[] := array_fill(0, ARRAY[count]);
	began bigint;
	took float8;
BEGIN
	FOR turn IN 0 .. 1000000 LOOP
		FOR i IN 1 .. count LOOP
			began := bench_cpu();
			FOR run IN 1 .. batch[i] LOOP
				IF undo THEN
					BEGIN
						EXECUTE queries[i];
						RAISE SQLSTATE 'BE001';
					EXCEPTION WHEN SQLSTATE 'BE001' THEN
						NULL;
					END;
				ELSE
					EXECUTE queries[i];
				END IF;
			END LOOP;
			took := (bench_cpu() - began) / 1e6;
			-- the first turns fill caches and find out how many runs take 2 ms
			IF turn < 3 THEN
				batch[i] := greatest(1, 2 / took * batch[i]);
			ELSE
				spent[i] := spent[i] + took;
				runs[i] := runs[i] + batch[i];
			END IF;
		END LOOP;
		EXIT WHEN ms_each < ALL (spent);
	END LOOP;
	RETURN QUERY SELECT s / r FROM unnest(spent, runs) u(s, r);
END $$;

CREATE SEQUENCE bench_sequence;
CREATE SEQUENCE bench_sequence_cache CACHE 1000;

-- The recipe found in most answers to "snowflake IDs in PostgreSQL".  Nothing
-- stops it from repeating an ID when more than 4096 are made in a millisecond.
CREATE SEQUENCE bench_recipe_sequence;
CREATE FUNCTION bench_recipe() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	ms bigint;
	seq bigint;
BEGIN
	seq := nextval('bench_recipe_sequence') % 4096;
	ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
	RETURN ((ms - 1288834974657) << 22) | (1 << 12) | seq;
END $$;

-- The one that Instagram published in 2012
CREATE SEQUENCE bench_instagram_sequence;
CREATE FUNCTION bench_instagram(OUT result bigint) LANGUAGE plpgsql AS $$
DECLARE
	our_epoch bigint := 1314220021721;
	seq_id bigint;
	now_millis bigint;
	shard_id int := 5;
BEGIN
	SELECT nextval('bench_instagram_sequence') % 1024 INTO seq_id;
	SELECT floor(extract(epoch FROM clock_timestamp()) * 1000) INTO now_millis;
	result := (now_millis - our_epoch) << 23;
	result := result | (shard_id << 10);
	result := result | seq_id;
END $$;

-- UUIDv7 in SQL: the milliseconds over the first 48 bits of a random UUID, then
-- its version changed from 4 to 7
CREATE FUNCTION bench_uuidv7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
	SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
		PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
		FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- ULID as its 26 characters: 10 of milliseconds, 16 of random bits, of which the
-- lower five of each byte of a random UUID are taken
CREATE FUNCTION bench_ulid() RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
DECLARE
	digits constant text := '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
	ms bigint := extract(epoch FROM clock_timestamp()) * 1000;
	random constant bytea := uuid_send(gen_random_uuid());
	result text := '';
BEGIN
	FOR i IN REVERSE 9..0 LOOP
		result := result || substr(digits, 1 + ((ms >> (5 * i)) & 31)::int, 1);
	END LOOP;
	FOR i IN 0..15 LOOP
		result := result || substr(digits, 1 + (get_byte(random, i) & 31), 1);
	END LOOP;
	RETURN result;
END $$;
