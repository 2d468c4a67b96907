# The recipes of doc/migrating.md, run as they are written there.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $document = slurp_file("$FindBin::RealBin/../../doc/migrating.md");
my ($dry_run, $convert, $find, $drop_theirs, $create_ours, $new_columns,
	$old_users, $old_posts, $constraints, $swap, @rest) =
  $document =~ /^```sql\n(.*?)^```$/msg;
my ($conf) = $document =~ /^```\n(#.*?)^```$/ms;

is(scalar(@rest), 0, 'the document has the statements that are tried here');
like($swap, qr/^BEGIN.*COMMIT;$/s, 'and in this order');

my $node = SnowflakeTest::new_node(
	'main',
	node_id => undef,
	preload => 0,
	conf => "timezone = 'UTC'");
$node->start;

# From pgEdge: their nextval(), and their layout, by the numbers of their
# source: milliseconds since 2023 << 22, node << 12, count.  Their clock is a
# little ahead.
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA snowflake;
	CREATE FUNCTION snowflake.nextval(regclass) RETURNS bigint LANGUAGE sql VOLATILE AS $$
		SELECT (((extract(epoch FROM clock_timestamp() + interval '200 ms') * 1000)::bigint - 1672531200000) << 22)
			| (7 << 12) | (pg_catalog.nextval($1) & 4095) $$;
	CREATE TABLE orders (id bigserial PRIMARY KEY, note text DEFAULT 'old');
	ALTER TABLE orders ALTER COLUMN id SET DEFAULT snowflake.nextval('orders_id_seq');
	CREATE TABLE items (order_id bigint REFERENCES orders);
	CREATE TABLE parts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)});

# What snowflake.convert_sequence_to_snowflake() of 2.6.0 does to an identity: the
# column is none any more, but the sequence's dependency is internal as before
$node->safe_psql(
	'postgres', q{
	UPDATE pg_attribute SET attidentity = '' WHERE attrelid = 'parts'::regclass AND attname = 'id';
	ALTER TABLE parts ALTER COLUMN id SET DEFAULT snowflake.nextval('parts_id_seq');
	ALTER SEQUENCE parts_id_seq NO CYCLE MAXVALUE 2});
$node->safe_psql('postgres', 'INSERT INTO parts DEFAULT VALUES');
$node->safe_psql('postgres', 'INSERT INTO orders DEFAULT VALUES') foreach 1 .. 20;
$node->safe_psql('postgres', 'INSERT INTO items SELECT id FROM orders');

is($node->safe_psql('postgres', $find),
	qq{orders|id|snowflake.nextval('orders_id_seq'::regclass)\nparts|id|snowflake.nextval('parts_id_seq'::regclass)},
	'the columns of pgEdge\'s extension are found');
$drop_theirs = "ALTER TABLE parts ALTER COLUMN id DROP DEFAULT; $drop_theirs";
is($drop_theirs =~ s/DROP EXTENSION snowflake;/DROP FUNCTION snowflake.nextval;/, 1,
	'what stands for their extension is dropped like it');
is(SnowflakeTest::error_of($node, 'postgres', 'DROP FUNCTION snowflake.nextval')->{sqlstate},
	'2BP01', 'not while a default is left');
$node->safe_psql('postgres', $drop_theirs);
is(SnowflakeTest::error_of($node, 'postgres', 'INSERT INTO orders DEFAULT VALUES')->{sqlstate},
	'23502', 'meanwhile nothing is inserted');
$node->append_conf('postgresql.conf', $conf);
$node->restart;
my ($create, $go_on) = $create_ours =~ /^(CREATE EXTENSION snowflake;\n)(.*)$/s;
$node->safe_psql('postgres', $create);
SnowflakeTest::wait_for_mint($node, 'postgres');
$node->safe_psql('postgres', $go_on);
$go_on =~ s/orders/parts/g;
$node->safe_psql('postgres', $go_on);
is( $node->safe_psql(
		'postgres', q{
		INSERT INTO parts DEFAULT VALUES;
		SELECT count(*), count(DISTINCT snowflake_node(id)), to_regclass('parts_id_seq') IS NULL FROM parts}),
	'2|1|t',
	'so do those of an identity, whose sequence is gone');
$node->safe_psql(
	'postgres', q{
	CREATE TABLE left_over (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
	UPDATE pg_attribute SET attidentity = '' WHERE attrelid = 'left_over'::regclass AND attname = 'id'});
my ($result, $output, $notices) = $node->psql('postgres', q{
	SELECT count(*) FROM snowflake_convert_column('left_over', 'id');
	INSERT INTO left_over DEFAULT VALUES; SELECT id > 1000000 FROM left_over});
is($output, "2\nt", 'one whose catalog was left as it is can be converted');
like($notices, qr/sequence public\.left_over_id_seq is kept: the column needs it/, 'but keeps its sequence');
$node->safe_psql('postgres', q{INSERT INTO orders (note) SELECT 'new' FROM generate_series(1, 100)});
is( $node->safe_psql(
		'postgres', q{
		SELECT count(*), count(DISTINCT snowflake_node(id::snowflake)), min(snowflake_node(id::snowflake)),
			   (SELECT max(id) FROM orders WHERE note = 'old') < (SELECT min(id) FROM orders WHERE note = 'new'),
			   max(@ id::snowflake) - min(@ id::snowflake) < '10 min'
		  FROM orders}),
	'120|1|7|t|t',
	'from pgEdge: new IDs go on after the old ones, of the same layout and node');
is($node->safe_psql('postgres', 'SELECT count(*) FROM items JOIN orders ON order_id = id'),
	'20', 'references still fit');
$node->safe_psql('postgres', 'INSERT INTO items SELECT max(id) FROM orders; DROP TABLE items, orders');

# From serial, identity and integers
foreach my $key (
	'serial', 'bigserial', 'smallserial', 'int',
	'int GENERATED ALWAYS AS IDENTITY',
	'bigint GENERATED BY DEFAULT AS IDENTITY')
{
	$node->safe_psql(
		'postgres', qq{
		CREATE TABLE orders (id $key PRIMARY KEY, note text DEFAULT 'old');
		CREATE TABLE items (order_id int REFERENCES orders);
		INSERT INTO orders (id) OVERRIDING SYSTEM VALUE SELECT generate_series(1, 100);
		INSERT INTO items SELECT id FROM orders});
	like($node->safe_psql('postgres', $dry_run), qr/SET DEFAULT public\.snowflake_next/,
		"$key: a dry run");
	$node->safe_psql('postgres', $convert);
	is( $node->safe_psql(
			'postgres', q{
			INSERT INTO orders (note) VALUES ('new');
			INSERT INTO items SELECT max(id) FROM orders;
			SELECT note, count(*), count(order_id) FROM orders LEFT JOIN items ON order_id = id GROUP BY 1 ORDER BY 1;
			DROP TABLE items, orders}),
		"new|1|1\nold|100|100",
		"$key: converted");
}

# From UUIDs.  Between the steps the tables are in use.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE users (
		id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
		created_at timestamptz NOT NULL DEFAULT now(),
		name text);
	CREATE TABLE posts (
		id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
		user_id uuid NOT NULL REFERENCES users,
		author text);
	INSERT INTO users (created_at, name)
		SELECT timestamptz '2026-01-01 UTC' + (g / 3 * 17) * interval '1 min', 'user ' || g FROM generate_series(1, 5000) g;
	INSERT INTO posts (user_id, author) SELECT u.id, u.name FROM users u, generate_series(1, 5)});

# Somebody writes: a new user with a post, a post of an old user, a post that
# changes its user, a user who goes
my $uses = 0;
sub use_tables
{
	my ($key) = @_;

	$uses++;
	$node->safe_psql(
		'postgres', qq{
		INSERT INTO users (name) VALUES ('new $uses');
		INSERT INTO posts (user_id, author) SELECT $key, name FROM users WHERE name = 'new $uses';
		INSERT INTO posts (user_id, author) SELECT $key, name FROM users WHERE name = 'user $uses';
		UPDATE posts SET (user_id, author) = (SELECT $key, name FROM users WHERE name = 'user 100')
		 WHERE author = 'user 20$uses';
		DELETE FROM posts WHERE author = 'user 30$uses';
		DELETE FROM users WHERE name = 'user 30$uses'});
	return;
}

use_tables('id');
$node->safe_psql('postgres', $new_columns);
use_tables('id');

# a transaction that does not see the users' new keys, and commits after all
# posts have been done
my $late = $node->background_psql('postgres');
$late->query_safe(q{BEGIN ISOLATION LEVEL REPEATABLE READ;
	INSERT INTO posts (user_id, author) SELECT id, name FROM users WHERE name = 'user 77'});
$node->safe_psql('postgres', $old_users);
use_tables('id');
$node->safe_psql('postgres', $old_posts);
use_tables('id');
$late->query_safe(q{INSERT INTO posts (user_id, author) SELECT id, name FROM users WHERE name = 'user 78'});
$late->query_safe('COMMIT');
$late->quit;
$node->safe_psql('postgres', $constraints);
use_tables('id');
is($node->safe_psql('postgres', 'SELECT count(*) FROM posts WHERE new_user_id IS NULL'),
	'2', 'from UUIDs: posts of an old transaction have no new reference yet');
my $posts = $node->safe_psql('postgres',
	q{SELECT count(*), md5(string_agg(p.id::text || name, ',' ORDER BY p.id)) FROM posts p JOIN users u ON u.id = user_id});
$node->safe_psql('postgres', $swap);
is( $node->safe_psql('postgres',
		q{SELECT count(*), md5(string_agg(p.id::text || name, ',' ORDER BY p.id)) FROM posts p JOIN users u ON u.id = user_id}),
	$posts,
	'from UUIDs: every post has its user, by the new key');
use_tables('id');
is( $node->safe_psql('postgres', q{SELECT count(*) FROM posts JOIN users u ON u.id = user_id WHERE author <> name}),
	'0', 'and goes on to have');
is( $node->safe_psql(
		'postgres', q{
		SELECT count(*) = count(DISTINCT id) AND count(*) = count(DISTINCT uuid),
			   count(*) FILTER (WHERE snowflake_node(id) = 7),
			   bool_and(@ id <= created_at AND created_at - @ id < '1 ms') FILTER (WHERE name ~ '^user|^new 1$'),
			   count(*) FILTER (WHERE id < before)
		  FROM (SELECT *, lag(id) OVER (ORDER BY created_at, uuid) AS before FROM users) u}),
	"t|" . ($uses - 1) . '|t|0',
	'users have keys of their time, in its order, none twice');
is( $node->safe_psql(
		'postgres', q{
		SELECT string_agg(pg_get_constraintdef(oid), ', ' ORDER BY contype DESC, conrelid) FROM pg_constraint
		 WHERE conrelid IN ('users'::regclass, 'posts'::regclass) AND contype IN ('p', 'f')}),
	'PRIMARY KEY (id), PRIMARY KEY (id), FOREIGN KEY (user_id) REFERENCES users(id)',
	'keys and references are declared');
is(SnowflakeTest::error_of($node, 'postgres', q{INSERT INTO posts (user_id) VALUES ('5')})->{sqlstate},
	'23503', 'and enforced');

$node->stop;
done_testing();
