-- Decoding, constructors and bounds.
SET timezone = 'UTC';

-- All ways to the same parts; the server's layout is twitter.
SELECT snowflake_timestamp(id), snowflake_node(id), snowflake_sequence(id), @@ id AS at, id::timestamptz
	FROM (VALUES ('1888944671579078978'::snowflake)) v(id);
SELECT d.* FROM snowflake_decode('1888944671579078978') d;
SELECT d.* FROM snowflake_decode('1888944671579078978', 'discord') d;
SELECT id -> 'time' AS time, id -> 'datacenter' AS datacenter, id -> 'worker' AS worker,
	id -> 'node' AS node, id -> 'sequence' AS sequence
	FROM (VALUES ('1888944671579078978'::snowflake)) v(id);
SELECT snowflake_field('362637573840961538', 'machine', 'sonyflake'),
	snowflake_field('362637573840961538', 'node', 'sonyflake'),
	snowflake_field('103186126728896492', 'node', 'mastodon');
SELECT code, message, detail FROM outcome($$SELECT '1'::snowflake -> 'shard'$$);

-- A node ID of several parts, also if the sequence is between them.
SELECT snowflake_node(id, l), snowflake_field(id, 'rack', l), snowflake_field(id, 'host', l), snowflake_sequence(id, l)
	FROM (VALUES ('time:41 rack:3 sequence:12 host:7 epoch:0')) v(l),
		LATERAL make_snowflake('2026-01-01 00:00Z', 5 * 128 + 99, 4095, l) id;

-- Parts come back as they were put in, for every preset and at every limit.
SELECT count(*), bool_and(d.timestamp = ts AND d.node = n AND d.sequence = s) AS same
	FROM snowflake_layouts() l,
		LATERAL (VALUES (epoch), (epoch + tick), (last_instant - tick), (last_instant)) t(ts),
		LATERAL (VALUES (0), (nodes::int - 1), (nodes::int / 2)) v(n),
		LATERAL (VALUES (0), ((1::bigint << sequence_bits)::int - 1), (7)) w(s),
		LATERAL snowflake_decode(make_snowflake(ts, n, s, l.layout), l.layout) d;

-- An instant within a tick belongs to the tick.
SELECT snowflake_timestamp(make_snowflake('2026-01-01 00:00:00.123456Z', 1, 2));
SELECT snowflake_timestamp(make_snowflake('2026-01-01 00:00:06.999999Z', 1, 2, 'twitter tick:7s epoch:2026-01-01T00:00:00Z'),
	'twitter tick:7s epoch:2026-01-01T00:00:00Z');

-- Bounds: exact within a tick, and at the ends of the layout.
SELECT snowflake_lower_bound('2026-01-01Z') = make_snowflake('2026-01-01Z', 0, 0) AS lower,
	snowflake_lower_bound('2026-01-01 00:00:00.0001Z') = make_snowflake('2026-01-01 00:00:00.001Z', 0, 0) AS lower_within,
	snowflake_upper_bound('2026-01-01Z') = make_snowflake('2026-01-01Z', 1023, 4095) AS upper,
	snowflake_upper_bound('2026-01-01 00:00:00.0009Z') = make_snowflake('2026-01-01Z', 1023, 4095) AS upper_within;
SELECT snowflake_lower_bound('-infinity'), snowflake_lower_bound('1970-01-01Z'),
	snowflake_upper_bound('infinity'), snowflake_upper_bound('2999-01-01Z');
SELECT snowflake_lower_bound('2080-07-10 17:30:30.208Z'), snowflake_upper_bound('2010-11-04 01:42:54.657Z');
-- Further from an epoch than a bigint of microseconds reaches.
SELECT snowflake_upper_bound('294276-12-31 23:59:59.999999Z', 'clickhouse') = snowflake_upper_bound('infinity', 'clickhouse') AS last;
SELECT snowflake_upper_bound('infinity', 'javascript') < 1::bigint << 53 AS fits_javascript;

-- What cannot be.
SELECT statement, code, message, detail FROM unnest(ARRAY[
	$$SELECT make_snowflake('2010-11-04 01:42:54.656Z', 1, 1)$$,
	$$SELECT make_snowflake('2080-07-10 17:30:30.209Z', 1, 1)$$,
	$$SELECT make_snowflake('294276-12-31Z', 1, 1, 'clickhouse')$$,
	$$SELECT make_snowflake('infinity', 1, 1)$$,
	$$SELECT make_snowflake('-infinity', 1, 1)$$,
	$$SELECT make_snowflake('4714-11-24 00:00:00 BC Z', 1, 1)$$,
	$$SELECT make_snowflake('2026-01-01Z', 1024, 1)$$,
	$$SELECT make_snowflake('2026-01-01Z', -1, 1)$$,
	$$SELECT make_snowflake('2026-01-01Z', 1, 4096)$$,
	$$SELECT make_snowflake('2026-01-01Z', 1, -1)$$,
	$$SELECT make_snowflake('2026-01-01Z', 1, 1, 'mastodon')$$,
	$$SELECT snowflake_lower_bound('infinity')$$,
	$$SELECT snowflake_lower_bound('2080-07-10 17:30:30.2081Z')$$,
	$$SELECT snowflake_upper_bound('-infinity')$$,
	$$SELECT snowflake_upper_bound('2010-11-04 01:42:54.656999Z')$$,
	$$SELECT snowflake_timestamp('9223372036854775807', 'javascript')$$,
	$$SELECT snowflake_node('1', 'nonsense')$$,
	$$SELECT snowflake_timestamp(-5)$$,
	$$SELECT snowflake_decode(-5, 'discord')$$,
	$$SELECT snowflake_explain(-5)$$,
	$$SELECT snowflake_to_text(-5, 'hex')$$]) WITH ORDINALITY AS b(bad, n),
	LATERAL outcome(bad) ORDER BY n;

-- With a layout, decoding is immutable: it fits indexes and generated columns.
CREATE TABLE events (id snowflake,
	at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'twitter')) STORED);
CREATE INDEX ON events (snowflake_node(id, 'twitter'));
INSERT INTO events VALUES ('1888944671579078978');
SELECT at FROM events;
SELECT code, message FROM outcome('CREATE INDEX ON events (snowflake_node(id))');

-- A layout that varies from row to row.
SELECT name, snowflake_timestamp('8888944671579078', layout) FROM snowflake_layouts() ORDER BY name;
SELECT layout, snowflake_timestamp('8888944671579078', layout)
	FROM unnest(ARRAY['twitter', 'twitter tick:10ms', 'twitter', 'twitter tick:10ms']) layout;
DROP TABLE events;
