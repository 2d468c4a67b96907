# Keys from other generators of doc/migrating.md: what the plan proposes for widely copied
# ones, pgEdge's extension, and the way back: by leave(), and by a dump for a server
# without the library.
#
# versions: all

use IPC::Run;
use SnowflakeTest;

my $document = slurp_file('doc/migrating.md');
my ($pgedge) = $document =~ /^```sql\n(DO \$\$.*?)^```$/ms;
my ($dump) = $document =~ /^(    pg_dump .*?)\n\n/ms;
my $node = new_node('main', node_id => undef, preload => 0, conf => "timezone = 'UTC'");

# pgEdge's nextval() and layout, by the numbers of their source: milliseconds since 2023
# << 22, node << 12, count; its clock is a little ahead.  One key was an identity, of which
# their conversion only removes the mark.
$node->start;
query(
	$node, q{
	CREATE SCHEMA snowflake;
	CREATE FUNCTION snowflake.nextval(regclass) RETURNS bigint LANGUAGE sql VOLATILE AS $$
		SELECT (((extract(epoch FROM clock_timestamp() + interval '200 ms') * 1000)::bigint - 1672531200000) << 22)
			| (7 << 12) | (pg_catalog.nextval($1) & 4095) $$;
	CREATE TABLE orders (id bigserial PRIMARY KEY, note text DEFAULT 'old');
	ALTER TABLE orders ALTER COLUMN id SET DEFAULT snowflake.nextval('orders_id_seq');
	CREATE TABLE items (order_id bigint REFERENCES orders);
	CREATE TABLE parts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
	UPDATE pg_attribute SET attidentity = '' WHERE attrelid = 'parts'::regclass AND attname = 'id';
	ALTER TABLE parts ALTER COLUMN id SET DEFAULT snowflake.nextval('parts_id_seq')});
query($node,
	'INSERT INTO parts DEFAULT VALUES; INSERT INTO orders DEFAULT VALUES; INSERT INTO items SELECT id FROM orders ON CONFLICT DO NOTHING'
) foreach 1 .. 5;
is($pgedge =~ s/DROP EXTENSION snowflake;/DROP FUNCTION snowflake.nextval;/,
	1, 'what stands for their extension is dropped like it');
my (undef, undef, $notices) = $node->psql('postgres', $pgedge, on_error_die => 1);
is(join(' ', $notices =~ /NOTICE: +(\S+)/g), 'orders.id parts.id', 'the columns are shown');
$node->append_conf('postgresql.conf',
	"shared_preload_libraries = 'snowflake'\nsnowflake.node_id = 7\nsnowflake.layout = 'pgedge'");
$node->restart;
query($node, 'CREATE EXTENSION snowflake; CREATE EXTENSION snowflake_migrate');
wait_for_mint($node);
query(
	$node, q{
	SELECT snowflake_advance(max(id)) FROM orders; SELECT snowflake_advance(max(id)) FROM parts;
	SELECT snowflake_migrate.convert('{public.orders.id,public.parts.id}');
	INSERT INTO orders (note) SELECT 'new' FROM generate_series(1, 100); INSERT INTO parts DEFAULT VALUES}
);
is( query(
		$node, q{
	SELECT count(*), count(DISTINCT snowflake_node(id)), (SELECT max(id) FROM orders WHERE note = 'old') < (SELECT min(id) FROM orders WHERE note = 'new') FROM orders}
	),
	'105|1|t',
	'from pgEdge: new IDs go on after the old ones, of the same layout and node');
is(query($node, q{SELECT count(*), to_regclass('parts_id_seq') IS NULL FROM parts}),
	'6|t', 'so do those of an identity, whose sequence is gone');

# What people copy, a moment ago
foreach my $case (
	[ 'instagram epoch:1288834974657', '(ms - 1288834974657) << 23 | (5 << 10) | 17' ],
	[ 'instagram', '(ms - 1314220021721) << 23 | (5 << 10) | 17' ],
	[ 'twitter', '(ms - 1288834974657) << 22 | (5 << 12) | 17' ],
	[ 'twitter epoch:0', 'ms << 22 | (5 << 12) | 17' ],
	[ 'discord', '(ms - 1420070400000) << 22 | (5 << 12) | 17' ],
	[ 'time:45 sequence:18 epoch:0', 'ms << 18 | 17' ])
{
	my ($layout, $expression) = @$case;

	query(
		$node, "CREATE TABLE copied (id bigserial PRIMARY KEY);
		INSERT INTO copied SELECT $expression FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms) AS n"
	);
	like(
		query(
			$node,
			q{SELECT detail || advice FROM snowflake_migrate.plan('{public.copied}') WHERE finding = 'layout'}
		),
		qr/In layout '\Q$layout\E' .* its largest key dates from \d{4}-.*snowflake\.layout = '\Q$layout\E'/,
		"$layout is proposed");
	query($node, 'DROP TABLE copied');
}
is(query($node, 'SELECT count(*) FROM snowflake_migrate.layouts_for(12345)'),
	0, 'a serial number is of no layout');

# The way back
query(
	$node, q{
	DROP SCHEMA snowflake CASCADE;
	CREATE TABLE keys (id snowflake PRIMARY KEY DEFAULT snowflake_next(), note text);
	CREATE TABLE refs (key snowflake REFERENCES keys);
	CREATE VIEW shown AS SELECT id, note FROM keys;
	COMMENT ON VIEW shown IS 'of keys';
	INSERT INTO keys (note) VALUES ('a public.snowflake of my own'), ('b') ;
	INSERT INTO refs SELECT id FROM keys});
my $elsewhere = new_node('elsewhere', node_id => undef, preload => 0);
$elsewhere->start;
$dump =~ s/^    //mg;
$dump =~ s/ app( |$)/" -d '" . $node->connstr('postgres') . "'$1"/me;
$dump =~
  s/-h elsewhere app/"-X -q -v ON_ERROR_STOP=1 -d '" . $elsewhere->connstr('postgres') . "'"/e;
{
	my ($out, $err) = ('', '');
	my $dir = PostgreSQL::Test::Utils::tempdir();

	local %ENV = $node->_get_env();
	IPC::Run::run([ 'bash', '-c', "set -eo pipefail; cd '$dir'; $dump" ], '>', \$out, '2>', \$err);
	is($err, '', 'a dump for a server without the library');
}
is( query($elsewhere, q{SELECT pg_typeof(id), note FROM keys ORDER BY id LIMIT 1}),
	'bigint|a public.snowflake of my own',
	'has bigints, and rows as they were');
is(query($elsewhere, q{SELECT count(*) FROM refs JOIN shown ON id = key}),
	2, 'references and views');
is(query($elsewhere, q{SELECT count(*) FROM pg_extension WHERE extname LIKE 'snowflake%'}),
	0, 'and nothing of the extension');

my $largest = query($node, 'SELECT max(id) FROM keys');
query($node, q{SELECT snowflake_migrate.leave('{public.keys}')});
is( query($node, q{INSERT INTO keys (note) VALUES ('c') RETURNING id, pg_typeof(id)}),
	($largest + 1) . '|bigint',
	'a key leaves for a sequence');
is( query(
		$node,
		q{INSERT INTO refs SELECT max(id) FROM shown; SELECT pg_typeof(key), obj_description('shown'::regclass, 'pg_class') FROM refs LIMIT 1}
	),
	'bigint|of keys',
	'and what references it, and what hangs on it, go with it');
refuses($node, q{SELECT snowflake_migrate.leave('{public.keys}')}, '22023', 'once');
query($node,
	q{SELECT snowflake_migrate.leave('{public}'); DROP EXTENSION snowflake_migrate; DROP EXTENSION snowflake}
);
is(query($node, 'SELECT count(*) FROM keys'), 3, 'then the extension can be dropped');

done_testing();
