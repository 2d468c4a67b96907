-- IDs that others have published decode to what they published.
-- Sources are in test/data/vectors.tsv.
\set layouts `cat "$PG_ABS_SRCDIR/data/layouts.tsv"`
\set vectors `cat "$PG_ABS_SRCDIR/data/vectors.tsv"`

CREATE TABLE layouts AS
	SELECT c[1] AS name, c[2] AS fields, c[3]::int AS time_bits, c[4]::int AS node_bits,
		c[5]::int AS sequence_bits, c[6]::int AS tick_ms, c[7]::bigint AS epoch
	FROM string_to_table(:'layouts', E'\n') WITH ORDINALITY AS l(line, n),
		LATERAL string_to_array(line, E'\t') c
	WHERE n > 1;
CREATE TABLE vectors AS
	SELECT DISTINCT c[1] AS layout, c[2]::numeric AS id, c[3]::numeric AS unix_ms,
		coalesce(nullif(c[4], ''), '0')::int AS node, c[5]::int AS sequence
	FROM string_to_table(:'vectors', E'\n') WITH ORDINALITY AS l(line, n),
		LATERAL string_to_array(line, E'\t') c
	WHERE n > 1 AND c[3] <> '';

-- The layouts in our grammar. One that takes 64 bits leaves its top bit of time.
ALTER TABLE layouts ADD text text;
UPDATE layouts SET text = format('%s tick:%sms epoch:%s',
	(SELECT string_agg(CASE f
			WHEN 'time' THEN 'time:' || time_bits - (time_bits + node_bits + sequence_bits = 64)::int
			WHEN 'node' THEN 'node:' || node_bits
			ELSE 'sequence:' || sequence_bits END, ' ' ORDER BY o)
	 FROM string_to_table(fields, '|') WITH ORDINALITY AS s(f, o)),
	tick_ms, epoch);

SELECT count(*), count(*) FILTER (WHERE id > 9223372036854775807) AS too_wide,
	count(DISTINCT layout) AS layouts FROM vectors;

-- Wrong ones would be listed here.
SELECT v.*, d.*
	FROM vectors v JOIN layouts l ON l.name = v.layout,
		LATERAL snowflake_decode(v.id::bigint::snowflake, l.text) d
	WHERE v.id <= 9223372036854775807
		AND (extract(epoch FROM d.timestamp) * 1000 <> v.unix_ms
			 OR d.node <> v.node OR d.sequence <> v.sequence);
SELECT count(*)
	FROM vectors v JOIN layouts l ON l.name = v.layout
	WHERE v.id <= 9223372036854775807
		AND v.id::bigint = make_snowflake(to_timestamp(0) + v.unix_ms::bigint * interval '1 ms',
										  v.node, v.sequence, l.text);

-- Our presets of the same layouts say the same.
SELECT p.name, count(*), bool_and(
		extract(epoch FROM d.timestamp) * 1000 = v.unix_ms
		AND d.node = v.node AND d.sequence = v.sequence) AS same
	FROM vectors v JOIN (VALUES ('sonyflake', 'sonyflake1'), ('idgen', 'idgen'), ('twitter', 'twitter'),
			('twitter', 'bwmarrin'), ('discord', 'discord'), ('instagram', 'instagram'), ('sonyflake2', 'sonyflake2'),
			('mastodon', 'mastodon'), ('baidu', 'baidu'), ('clickhouse', 'clickhouse'), ('pgedge', 'pgedge'),
			('tsid', 'tsid'), ('yitter', 'yitter'), ('pgdog', 'pgdog')) AS p(name, theirs) ON p.theirs = v.layout,
		LATERAL snowflake_decode(v.id::bigint::snowflake, p.name) d
	WHERE v.id <= 9223372036854775807
	GROUP BY 1 ORDER BY 1;

-- Parts of the node ID, as published.
SELECT '175928847299117063'::snowflake -> 'worker' AS twitter_worker,
	snowflake_field('175928847299117063', 'worker', 'discord') AS worker,
	snowflake_field('175928847299117063', 'process', 'discord') AS process,
	snowflake_field('175928847299117063', 'sequence', 'discord') AS increment;
SELECT snowflake_field('937847820382261308', 'worker', 'discord') AS worker,
	snowflake_field('937847820382261308', 'process', 'discord') AS process;

-- The type refuses what needs the 64th bit, and says so.
SELECT v.layout, v.id, o.code, o.message
	FROM vectors v, LATERAL outcome(format('SELECT %L::snowflake', v.id)) o
	WHERE v.id > 9223372036854775807 ORDER BY v.layout;

DROP TABLE layouts, vectors;
