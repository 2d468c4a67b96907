# A database that uses the type wherever SQL allows one comes back the same from pg_dumpall, on a
# server of another node ID: the same definitions, the same rows, and all of it at work.
# versions: all

use SnowflakeTest;

# The reservation is kept in the database that is dumped, so that there is one
# to be left out of the dumps.
my %conf = (conf => "snowflake.database = 'everything'\ntimezone = 'UTC'\n");
my $source = new_node('source', node_id => 3, %conf);
my $target = new_node('target', node_id => 9, %conf);
my $dir = PostgreSQL::Test::Utils::tempdir();

sub source { return query($source, $_[0], dbname => 'everything'); }
sub restored { return query($target, $_[0], dbname => 'everything'); }

$source->start;
query($source, "CREATE $_") foreach 'DATABASE everything', 'ROLE reader', 'ROLE writer';
source('CREATE EXTENSION snowflake');
wait_for_mint($source, dbname => 'everything');
source(
	q{
	-- the type inside other types
	CREATE DOMAIN order_id AS snowflake DEFAULT snowflake_next() CHECK (VALUE > '0');
	CREATE TYPE order_line AS (item snowflake, others snowflake[], amount integer);
	CREATE TYPE id_range AS RANGE (subtype = snowflake);

	-- generated columns, indexes of each kind, checks, statistics
	CREATE TABLE base (
		id snowflake PRIMARY KEY DEFAULT snowflake_next(),
		made timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'twitter')) STORED,
		node integer GENERATED ALWAYS AS (snowflake_node(id, 'twitter')) STORED,
		previous snowflake DEFAULT snowflake_next(),
		number bigint DEFAULT snowflake_next(),
		note text,
		CHECK (id <> 5 AND previous IS DISTINCT FROM id),
		EXCLUDE (previous WITH =));
	COMMENT ON COLUMN base.id IS 'a snowflake';
	CREATE INDEX base_sequence ON base
		(snowflake_sequence(id, 'twitter'), (snowflake_field(id, 'worker', 'twitter')));
	CREATE INDEX base_brin ON base USING brin (id, previous int8_minmax_multi_ops);
	CREATE INDEX base_young ON base (note)
		WHERE id >= snowflake_lower_bound(timestamptz '2026-01-01 UTC', 'twitter')
		  AND previous < 9223372036854775807;
	CREATE STATISTICS base_dependent ON node, note FROM base;

	CREATE TABLE heir (twin order_id) INHERITS (base);

	-- foreign keys: from bigint, from a domain, to a domain
	CREATE TABLE orders (
		id order_id PRIMARY KEY,
		customer bigint NOT NULL REFERENCES base,
		seller snowflake REFERENCES base,
		parent snowflake REFERENCES orders,
		tags snowflake[],
		history order_id[],
		ids id_range,
		first order_line,
		lines order_line[],
		recorded snowflake);
	CREATE INDEX orders_item ON orders (((first).item));

	-- partitions: by time, and by hash
	CREATE TABLE log (id snowflake PRIMARY KEY DEFAULT snowflake_next(), line text)
		PARTITION BY RANGE (id);
	CREATE TABLE log_past PARTITION OF log
		FOR VALUES FROM (MINVALUE) TO (snowflake_lower_bound('2025-12-01 UTC'));
	CREATE TABLE log_2025_12 PARTITION OF log
		FOR VALUES FROM (snowflake_lower_bound('2025-12-01 UTC'))
		TO (snowflake_lower_bound('2026-01-01 UTC'));
	CREATE TABLE log_2026_01 PARTITION OF log
		FOR VALUES FROM (snowflake_lower_bound('2026-01-01 UTC'))
		TO (snowflake_lower_bound('2026-02-01 UTC'));
	CREATE TABLE log_rest PARTITION OF log DEFAULT;
	CREATE TABLE shards (id order_id, n integer) PARTITION BY HASH (id);
	CREATE TABLE shards_0 PARTITION OF shards FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE shards_1 PARTITION OF shards FOR VALUES WITH (MODULUS 2, REMAINDER 1);

	-- views
	CREATE VIEW december AS
		SELECT id, @@ id AS at, id -> 'sequence' AS number, id::bigint AS plain, line
		  FROM log
		 WHERE @@ id >= timestamptz '2025-12-01 UTC' AND date '2026-01-01' > @@ id
		   AND @@ id <@ tstzrange('-infinity', '2027-01-01 UTC')
		   AND id > 5 AND id NOT IN (5000000007, 5000000008);
	CREATE MATERIALIZED VIEW hours AS
		SELECT date_trunc('hour', id::timestamptz) AS hour, count(*),
			   min(id) AS first, max(id) AS last
		  FROM log WHERE tstzrange('2025-01-01 UTC', '2027-01-01 UTC') @> @@ id GROUP BY 1;
	CREATE UNIQUE INDEX ON hours (first);
	CREATE VIEW unnamed_operators AS
		SELECT id, nullif(previous, seller) AS other, previous IS DISTINCT FROM id AS distinct_from,
			   CASE id WHEN 7 THEN 'seven' WHEN seller THEN 'seller' END AS in_case
		  FROM base JOIN (SELECT customer AS id, seller FROM orders) o USING (id);

	-- functions, triggers
	CREATE FUNCTION record_id() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE
			minted snowflake := snowflake_next();
			same orders.recorded%TYPE;
			listed snowflake[] := ARRAY[minted];
			checked order_id := minted;
		BEGIN
			same := listed[1]::bigint;
			IF same IS DISTINCT FROM checked::snowflake
			   OR @@ minted < timestamptz '2026-01-01 UTC' THEN
				RAISE 'no order in %', listed;
			END IF;
			NEW.recorded := same;
			RETURN NEW;
		END $$;
	CREATE TRIGGER record_id BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION record_id();
	CREATE FUNCTION lines_since(since timestamptz) RETURNS bigint STABLE
		BEGIN ATOMIC SELECT count(*) FROM log WHERE @@ id >= since; END;

	-- policies
	ALTER TABLE log ENABLE ROW LEVEL SECURITY;
	GRANT SELECT ON log, december TO reader;
	GRANT SELECT, INSERT ON log TO writer;
	CREATE POLICY recent ON log FOR SELECT TO reader USING (@@ id >= timestamptz '2026-01-01 UTC');
	CREATE POLICY own ON log FOR INSERT TO writer
		WITH CHECK (@@ id >= now() - interval '1 day' AND snowflake_node(id) = 9);

	-- rows: of the past, of all sizes, and by default
	INSERT INTO base (id, previous)
		VALUES ('0', '9223372036854775807'), ('9223372036854775807', NULL);
	INSERT INTO base (previous, note)
		SELECT snowflake_next(), 'note ' || n % 7 FROM generate_series(1, 300) n;
	INSERT INTO heir (previous, note)
		SELECT snowflake_next(), 'heir ' || n FROM generate_series(1, 100) n;
	INSERT INTO orders (customer, seller, tags, history, ids, first, lines)
		SELECT b.id, b.id, ARRAY[b.id, NULL, '42'], ARRAY[b.previous::order_id],
			   id_range(b.previous, b.id), ROW(b.id, ARRAY[b.previous], 1)::order_line,
			   ARRAY[ROW(b.previous, NULL, 2)::order_line]
		  FROM ONLY base b WHERE note IS NOT NULL;
	UPDATE orders SET parent = (SELECT min(id) FROM orders);
	INSERT INTO log
		SELECT make_snowflake(timestamptz '2025-11-15 UTC' + n * interval '1 hour', 3, n),
			   'past ' || n
		  FROM generate_series(1, 1500) n;
	INSERT INTO log (line) SELECT 'now ' || n FROM generate_series(1, 100) n;
	INSERT INTO shards (n) SELECT n FROM generate_series(1, 200) n;
	REFRESH MATERIALIZED VIEW hours;
});

# Every relation that has rows, but for the extension's views: its name, how many, and their checksum.
sub contents
{
	my ($node) = @_;
	my $selects = query(
		$node, q{
		SELECT string_agg(format(
				   'SELECT %L, count(*), md5(string_agg(t::text, E''\n'' ORDER BY t::text)) FROM ONLY %s t',
				   oid::regclass, oid::regclass), ' UNION ALL ' ORDER BY oid::regclass::text)
		  FROM pg_class
		 WHERE relkind IN ('r', 'v', 'm') AND relnamespace = 'public'::regnamespace
		   AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = pg_class.oid AND d.deptype = 'e')},
		dbname => 'everything');

	return query($node, $selects, dbname => 'everything');
}

# What pg_dump makes of a database, less what is random in it.
sub dump_of
{
	my ($node) = @_;
	my ($dump) = run_command([ 'pg_dump', '--no-sync', '-d', $node->connstr('everything') ]);

	return $dump =~ s/^\\(un)?restrict .*\n//mgr;
}

# The binary form of an ID is that of a bigint, but no negative number.
refuses(
	$source, qq{
	CREATE TEMP TABLE ids (id snowflake);
	COPY (SELECT (-1)::bigint) TO '$dir/negative' (FORMAT binary);
	COPY ids FROM '$dir/negative' (FORMAT binary)},
	'22003', 'binary COPY does not let a negative ID in',
	dbname => 'everything');

my $contents = contents($source);
my $dump = dump_of($source);

is(scalar(() = $contents =~ /^/mg), 12, 'all tables and views are compared');
like($dump, qr/^CREATE TABLE public\.orders /m, 'and all definitions');
like($contents, qr/^december\|744\|/m, 'the view finds the rows of its period');
like(
	$contents,
	qr/^unnamed_operators\|300\|/m,
	'the view without an operator in its text finds its rows');
is(source('SELECT count(*) FROM snowflake_keeper.reservation WHERE node = 3'),
	'1', 'the database that is dumped has a reservation');
my $script = "$dir/all.sql";
command_ok([ 'pg_dumpall', '--no-sync', '-d', $source->connstr('postgres'), '-f', $script ],
	'everything is dumped');
unlike(
	slurp_file($script),
	qr/snowflake_keeper\.reservation|reserved_until|kept_in/,
	'the script does not mention the reservation');
$source->stop;

# roles included, with one error to be expected
$target->start;
my (undef, $stderr) =
  run_command([ 'psql', '-X', '-q', '-d', $target->connstr('postgres'), '-f', $script ]);
is(join("\n", grep { /ERROR|FATAL/ && !/role ".*" already exists$/ } split /\n/, $stderr),
	'', 'it is restored');
is(restored('SELECT count(*) FROM snowflake_keeper.reservation WHERE node <> 9'),
	'0', 'no reservation has come along');
is(contents($target), $contents, 'same rows');
is(dump_of($target), $dump, 'same definitions');
wait_for_mint($target, dbname => 'everything');
is(restored('SELECT node FROM snowflake_keeper.reservation'),
	'9', 'the new server has a reservation for its own node ID');

# All of it is at work.
is( restored(
		q{
		INSERT INTO base (note) VALUES ('new');
		INSERT INTO heir (note) VALUES ('new');
		INSERT INTO orders (customer, parent)
			SELECT id, (SELECT max(id) FROM orders) FROM base WHERE note = 'new' LIMIT 1;
		INSERT INTO log (line) VALUES ('new');
		INSERT INTO shards (n) VALUES (0);
		SELECT bool_and(id > all_before AND snowflake_node(id) = 9), count(*), count(DISTINCT id)
		  FROM (SELECT id FROM base WHERE note = 'new'
				UNION ALL SELECT twin FROM heir WHERE note = 'new'
				UNION ALL SELECT unnest(ARRAY[id, recorded]) FROM orders WHERE parent <> (SELECT min(id) FROM orders)
				UNION ALL SELECT id FROM log WHERE line = 'new'
				UNION ALL SELECT id FROM shards WHERE n = 0) new,
			   (SELECT greatest(max(b.id), max(o.id), max(o.recorded)) AS all_before
				  FROM base b, orders o
				 WHERE b.note LIKE 'note%' AND o.parent = (SELECT min(id) FROM orders)) old}),
	't|7|7',
	'every default goes on, with new and larger IDs of the new node ID');

refuses(
	$target, 'SET ROLE writer; INSERT INTO log (id) VALUES (make_snowflake(now(), 3, 0))',
	'42501',
	'a policy refuses an ID of another node',
	dbname => 'everything');
foreach my $case (table(<<'END'))
bool_and(made = @@ id AND node = 9 AND snowflake_node(number) = 9) FROM base WHERE note = 'new' | t
lines_since('2026-01-01 UTC') = count(*) FROM log WHERE @@ id >= '2026-01-01 UTC' | t
END
{
	my ($select, $expected) = @$case;

	is(restored("SET enable_seqscan = off; SELECT $select"), $expected, $select);
}
is( restored(
		q{SET ROLE writer; INSERT INTO log (line) VALUES ('written');
		SET ROLE reader; SELECT min(@@ id) >= timestamptz '2026-01-01 UTC', count(*) FROM log}),
	't|475',
	'a policy that compares with a time lets through what it should');

done_testing();
