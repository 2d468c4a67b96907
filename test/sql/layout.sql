-- Layouts: presets, the grammar, what it refuses.
SET timezone = 'UTC';
SELECT name, layout, nodes, ids_per_second FROM snowflake_layouts();
SELECT name, time_bits, node_bits, sequence_bits, tick, epoch, last_instant FROM snowflake_layouts();
SELECT name, layout, time_bits, node_bits, sequence_bits FROM snowflake_layout();

-- However it is written, the same layout has the same name and text.
SELECT name, layout FROM unnest(ARRAY[
	'twitter',
	'  twitter	epoch:1288834974657 ',
	'time:41 datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z',
	'epoch:1288834974657 tick:1000us time:41 datacenter:5 worker:5 sequence:12 ',
	'twitter worker:5 datacenter:5',
	'twitter epoch:2025-01-01T00:00:00Z',
	'twitter epoch:2025-01-01T00:00:00.500Z',
	'twitter epoch:2025-01-01T00:00:00.050Z',
	'twitter time:31 tick:1024ms epoch:0',
	'discord epoch:2015-01-01T00:00:00.000Z',
	'time:39 sequence:8 machine:16 tick:10ms epoch:2014-09-01T00:00:00Z',
	'time:51 sequence:12 tick:2us epoch:0',
	'time:40 sequence:12 epoch:2000-02-29T23:59:59.999Z']) WITH ORDINALITY AS l(written, n),
	LATERAL snowflake_layout(written) ORDER BY n;

-- A time field that reaches further than timestamptz ends with it.
SELECT time_bits, last_instant FROM snowflake_layout('time:62 sequence:1 tick:2us epoch:2026-01-01T00:00:00Z');

-- Printing and reading again changes nothing.
SELECT count(*), bool_and(l.layout = again.layout) AS same
	FROM snowflake_layouts() l, LATERAL snowflake_layout(l.layout) again;

-- Bad layouts.
SELECT code, detail FROM unnest(ARRAY[
	'', '   ', 'twiter', 'Twitter', 'epoch:0 twitter', 'twitter discord',
	'time:41 node:10 sequence:12',
	'node:10 time:41 sequence:12 epoch:0',
	'time:41 node:10 epoch:0',
	'time:41 time:2 sequence:12 epoch:0',
	'time:41 sequence:2 sequence:12 epoch:0',
	'time:0 sequence:12 epoch:0', 'time:41 node:0 sequence:12 epoch:0', 'time:41 sequence:-1 epoch:0',
	'time:41 sequence: epoch:0', 'time:41 sequence:1x epoch:0', 'time:41 sequence:99999999999999999999 epoch:0',
	'time:41 node:11 sequence:12 epoch:0',
	'time:30 node:32 sequence:1 epoch:0', 'time:30 sequence:32 epoch:0',
	'twitter tick:9223372036854s',
	'time:41 node:5 worker:5 sequence:12 epoch:0',
	'time:41 Node:10 sequence:12 epoch:0', 'time:41 1st:10 sequence:12 epoch:0',
	'time:41 :10 sequence:12 epoch:0',
	'time:41 a234567890123456789012345678901x:10 sequence:12 epoch:0',
	'time:20 a:1 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1 j:1 k:1 l:1 m:1 n:1 o:1 sequence:1 epoch:0',
	'twitter tick:0ms', 'twitter tick:1', 'twitter tick:ms', 'twitter tick:1h', 'twitter tick:-1ms',
	'twitter tick:9223372036854775807s', 'twitter tick:99999999999999999999s', 'twitter tick:1ms tick:1ms',
	'twitter epoch:-1', 'twitter epoch:1.5', 'twitter epoch:253402300800000', 'twitter epoch:0 epoch:0', 'twitter epoch:',
	'twitter epoch:2025-01-01', 'twitter epoch:2025-01-01T00:00:00', 'twitter epoch:2025-01-01T00:00:00+02:00',
	'twitter epoch:2025-01-01T00:00:00z', 'twitter epoch:2025-01-01T00:00:00.5Z', 'twitter epoch:2025-01-01 00:00:00Z',
	'twitter epoch:2025-02-29T00:00:00Z', 'twitter epoch:2025-13-01T00:00:00Z', 'twitter epoch:2025-01-01T24:00:00Z',
	'twitter epoch:2025-01-01T00:60:00Z', 'twitter epoch:2025-01-01T00:00:60Z',
	'twitter epoch:1969-12-31T23:59:59Z',
	'twitter shard:3', 'twitter worker:6 worker:5', 'twitter sequence:13', 'mastodon node:3']) WITH ORDINALITY AS l(written, n),
	LATERAL outcome(format('SELECT snowflake_layout(%L)', written)) ORDER BY n;
SELECT message, hint FROM outcome($$SELECT snowflake_layout('twiter')$$);

-- A time field that reaches further than timestamptz ends with it.
SELECT layout, last_instant, snowflake_upper_bound('infinity', layout)
	FROM snowflake_layout('time:62 sequence:1 epoch:0');

-- The widest fields: one more than what they hold is no integer.
SELECT written, nodes, ids_per_second, d.node, d.sequence, snowflake_field(id, last_field, layout)
	FROM (VALUES (1, 'time:32 sequence:31 epoch:0', 'sequence'), (2, 'time:31 node:31 sequence:1 epoch:0', 'node'),
			(3, 'time:31 tag:31? sequence:1 epoch:0', 'tag')) AS l(n, written, last_field),
		LATERAL snowflake_layout(written), LATERAL (SELECT snowflake_upper_bound('infinity', layout) AS id) i,
		LATERAL snowflake_decode(id, layout) d ORDER BY n;

-- The caller's field is not of the node ID, wherever it stands.
SELECT name, layout, time_bits, node_bits, sequence_bits, nodes FROM unnest(ARRAY[
	'time:41 node:5 shard:5? sequence:12 epoch:0',
	'time:41 node:5 sequence:12 shard:5? epoch:0',
	'time:41 sequence:12 tag:10? epoch:0',
	'time:31 a:1 sequence:1 tag:29? b:1 epoch:0',
	'instagram shard:13?',
	'twitter worker:4? datacenter:6',
	'twitter worker:5']) WITH ORDINALITY AS l(written, n),
	LATERAL snowflake_layout(written) ORDER BY n;
SELECT bool_and(l.layout = again.layout) AS same
	FROM snowflake_layout('time:41 node:5 shard:5? sequence:12 epoch:0') l, LATERAL snowflake_layout(l.layout) again;
SELECT d.*, snowflake_field(id, 'shard', layout), snowflake_field(id, 'node', layout)
	FROM (SELECT 'time:41 a:2 shard:5? b:3 sequence:12 epoch:0') l (layout),
		LATERAL (SELECT (1::bigint << 22) + (2 << 20) + (17 << 15) + (5 << 12) + 7) i (id),
		LATERAL snowflake_decode(id, layout) d;
SELECT snowflake_field(make_snowflake('2026-01-01', 31, 4095, layout), 'shard', layout)
	FROM (SELECT 'time:41 node:5 shard:5? sequence:12 epoch:0') l (layout);
SELECT snowflake_explain(4194304 + 54 * 4096, 'time:41 a:2 shard:5? b:3 sequence:12 epoch:0');
SELECT code, detail FROM unnest(ARRAY[
	'time:41? sequence:12 epoch:0', 'time:41 sequence:12? epoch:0', 'time:41 node:10? sequence:12 epoch:0',
	'time:41 a:5? b:5? sequence:12 epoch:0', 'time:30 tag:32? sequence:1 epoch:0',
	'time:41 node:5 tag:5? sequence:13 epoch:0', 'time:41 node:5 tag:3? more:2 sequence:12 epoch:0',
	'time:41 tag:? sequence:12 epoch:0', 'time:41 tag:5?? sequence:12 epoch:0', 'time:41 tag:?5 sequence:12 epoch:0',
	'time:41 tag:99? sequence:12 epoch:0', 'time:41 tag?:5 sequence:12 epoch:0', 'time:41 tag:0? sequence:12 epoch:0'])
		WITH ORDINALITY AS l(written, n),
	LATERAL outcome(format('SELECT snowflake_layout(%L)', written)) ORDER BY n;
