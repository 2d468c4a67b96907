-- Snowflakes for people to read.
SET timezone = 'UTC';
\pset format unaligned
\pset tuples_only on

-- The server's layout.
SELECT snowflake_explain('1888944671579078978');

-- One part of the node ID, none, and parts with the sequence between them.
SELECT snowflake_explain('1888944671579078978', 'twitter') = snowflake_explain('1888944671579078978');
SELECT snowflake_explain('362637573840961538', 'sonyflake');
SELECT snowflake_explain('103186126728896492', 'mastodon');
SELECT snowflake_explain(make_snowflake('2026-01-01 00:00Z', 5 * 128 + 99, 4095, l), l)
	FROM (VALUES ('time:41 rack:3 sequence:12 host:7 epoch:0')) v(l);

-- Less than 63 bits.
SELECT snowflake_explain('8888944671579078', 'javascript');
SELECT snowflake_explain('5', 'time:1 a:1 sequence:1 epoch:0 tick:7s');

-- As many fields as there can be, of one bit, and the longest names.
SELECT snowflake_explain('8888944671579078991',
	'time:48 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1 j:1 k:1 l:1 m:1 n:1 o:1 sequence:1 epoch:2026-01-01T00:00:00Z');
SELECT snowflake_explain(snowflake_upper_bound('infinity', l), l)
	FROM (VALUES ('time:31 a234567890123456789012345678901:16 sequence:16 epoch:253402300799999 tick:1s')) v(l);

-- The ends of a layout.
SELECT snowflake_explain('0');
SELECT snowflake_explain('9223372036854775807');
SELECT snowflake_explain(snowflake_upper_bound('infinity', l), l) FROM (VALUES ('time:62 sequence:1 epoch:0')) v(l);

-- Not of the layout: bits above its fields, or a tick that has no instant.
SELECT snowflake_explain('9223372036854775807', 'javascript');
SELECT snowflake_explain(9007199254740992::snowflake, 'javascript');
SELECT snowflake_explain('9223372036854775807', 'time:62 sequence:1 epoch:0');

-- Every preset: as wide as a page, and the fields' names and values are there.
SELECT name, length(line) > 100, count(*)
	FROM snowflake_layouts(), snowflake_explain('888894467157907', layout),
		regexp_split_to_table(snowflake_explain, '\n') line
	GROUP BY 1, 2 ORDER BY 1;
SELECT bool_and(text ~ format('^[a-p]  %s +[0-9-]+ +%s  %s(  |$)', f[1], f[2],
		snowflake_field('888894467157907', f[1], layout))) AS all_there, count(*)
	FROM snowflake_layouts(),
		regexp_matches(layout, '([a-z]+):(\d+)(?= )', 'g') f,
		regexp_split_to_table(snowflake_explain('888894467157907', layout), '\n') text
	WHERE text ~ ('^[a-p]  ' || f[1]);

-- The caller's field is none of the node's.
SELECT snowflake_explain(5::bigint << 22, 'time:41 node:5 shard:5? sequence:12 epoch:0');

-- No setting matters, so it is fit for an index.
SELECT proargtypes::regtype[], provolatile FROM pg_proc WHERE proname = 'snowflake_explain' ORDER BY pronargs;
CREATE TEMP TABLE explained AS SELECT snowflake_explain('1888944671579078978') AS text;
SET timezone = 'Asia/Kathmandu';
SET datestyle = 'German';
SELECT text = snowflake_explain('1888944671579078978') FROM explained;
DROP TABLE explained;

-- What cannot be.
SELECT snowflake_explain(NULL) IS NULL, snowflake_explain('1', NULL) IS NULL;
SELECT code, message FROM outcome($$SELECT snowflake_explain('1', 'nonsense')$$);
