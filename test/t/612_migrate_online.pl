# The recipes of doc/migrating.md for tables that stay in use, run as they are
# written there, by the owner of the tables, who is no superuser, while five
# sessions of others write: no statement of theirs fails or waits long, and no
# row is lost or gets another reference.
#
# SNOWFLAKE_TEST_ROWS is the number of rows of the large table.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run;
use List::Util qw(max);
use SnowflakeTest qw(new_node wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my $rows = $ENV{SNOWFLAKE_TEST_ROWS} || 50_000;

# How long one statement may wait on a machine that runs other tests beside this
# one.  Alone it is below half a second, also with 2,000,000 rows.
my $patience_ms = 4_000;

my $document = slurp_file("$FindBin::RealBin/../../doc/migrating.md");
my ($large) = $document =~ /^(## Large integer keys.*?)^## /ms;
my ($uuids) = $document =~ /^(## From UUIDs.*?)^## /ms;
my ($hangs_on, $hanging) = ($document =~ /^(## What hangs on.*)/ms)[0] =~ /^```sql\n(.*?)^```$/msg;

# The steps of a recipe: their numbers and statements
sub steps
{
	my ($recipe) = @_;

	return $recipe =~ /^\*\*(\d)\. .*?^```sql\n(.*?)^```$/msg;
}

my $node = new_node(
	'main',
	node_id => 7,
	conf => "timezone = 'UTC'\nlog_lock_waits = on");
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION snowflake;
	CREATE ROLE owner LOGIN; CREATE ROLE writer LOGIN; CREATE ROLE poster LOGIN;
	GRANT CREATE ON SCHEMA public TO owner;
	ALTER ROLE writer SET search_path = '';
	ALTER ROLE poster SET search_path = ''});
wait_for_mint($node);

# Run a step.  A swap that does not get its locks is tried again, as it says.
sub as_owner
{
	my ($sql) = @_;
	my ($status, $output, $error);

	do
	{
		($status, $output, $error) = $node->psql(
			'postgres', $sql,
			extra_params => [ '-U', 'owner' ],
			on_error_stop => 1,
			timeout => 3600);
	} while ($status == 3 && $sql =~ /^BEGIN;/ && $error =~ /lock timeout/);
	die $error if $status != 0;
	return $output;
}

# Five sessions of a role that run scripts, each of one statement and a pause of
# 10 ms; every statement's time is logged.
my $directory = PostgreSQL::Test::Utils::tempdir();

sub start_writers
{
	my ($name, @statements) = @_;
	my $writers = { log => "$directory/$name", errors => '' };
	my @scripts;

	foreach my $statement (@statements)
	{
		my $file = "$directory/$name" . @scripts . '.sql';

		append_to_file($file, "\\set n random(1, 1000)\n\\sleep 10 ms\n$statement;\n");
		push @scripts, '-f', $file;
	}
	local %ENV = $node->_get_env();
	$writers->{run} = IPC::Run::start(
		[
			$node->installed_command('pgbench'),
			'-n', '-c', '5', '-T', '3600', '-l', '--log-prefix', $writers->{log},
			@scripts, '-U', 'writer', 'postgres'
		],
		'>',
		\$writers->{output},
		'2>',
		\$writers->{errors});
	return $writers;
}

# End them; returns the longest statement in ms.
sub stop_writers
{
	my ($name, $writers) = @_;

	$writers->{run}->signal('TERM');
	eval { $writers->{run}->finish };
	unlike($writers->{errors}, qr/ERROR|aborted|error/, "$name: no statement of the writers fails");

	my @times =
	  map { (split / /)[2] / 1000 } map { split /\n/, slurp_file($_) } glob "$writers->{log}.*";
	my $longest = max(@times) - 10;

	cmp_ok(scalar(@times), '>', 20, "$name: they wrote");
	note(sprintf('%s: %d statements, the longest took %.0f ms', $name, scalar(@times), $longest));
	return $longest;
}

# Large integer keys
my @steps = steps($large);
is(join(' ', map { $steps[ 2 * $_ ] } 0 .. $#steps / 2),
	'1 2 3 4 5', 'large keys: the recipe has its steps');
as_owner(
	qq{
	CREATE TABLE orders (id serial PRIMARY KEY, note text);
	CREATE TABLE items (id serial PRIMARY KEY, order_id int NOT NULL REFERENCES orders, note text);
	CREATE INDEX ON items (order_id);
	CREATE INDEX items_two ON items (order_id, note);
	INSERT INTO orders (note) SELECT 'order ' || g FROM generate_series(1, $rows) g;
	INSERT INTO items (order_id, note) SELECT g, 'order ' || g FROM generate_series(1, $rows) g;
	GRANT SELECT, INSERT, UPDATE, DELETE ON orders, items TO writer;
	GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO writer;
	ANALYZE orders, items});
like(
	$node->safe_psql('postgres', $hangs_on),
	qr/items\.order_id\|index items_two\|CREATE INDEX/,
	'what hangs on the old columns is listed');

# What would go with the old columns in silence
as_owner(
	q{
	CREATE VIEW open_orders WITH (security_barrier = true) AS SELECT id, note FROM orders WHERE note <> 'closed';
	COMMENT ON VIEW open_orders IS 'not closed';
	CREATE VIEW "Newest" AS SELECT max(id) AS id FROM open_orders;
	GRANT SELECT ON open_orders, "Newest" TO writer WITH GRANT OPTION;
	GRANT UPDATE (note), INSERT (note) ON open_orders TO writer;
	CREATE FUNCTION items_of(bigint) RETURNS bigint LANGUAGE sql STABLE RETURN (SELECT count(*) FROM items WHERE order_id = $1);
	CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE TRIGGER moved BEFORE UPDATE OF order_id ON items FOR EACH ROW WHEN (OLD.order_id <> NEW.order_id) EXECUTE FUNCTION nothing();
	CREATE TRIGGER instead INSTEAD OF INSERT ON open_orders FOR EACH ROW EXECUTE FUNCTION nothing();
	CREATE RULE never AS ON DELETE TO orders WHERE OLD.id < 0 DO INSTEAD NOTHING;
	ALTER TABLE items DISABLE TRIGGER moved;
	ALTER TABLE orders ENABLE ALWAYS RULE never;
	CREATE POLICY positive ON items FOR SELECT TO writer USING (order_id > 0);
	ALTER TABLE items ENABLE ROW LEVEL SECURITY;
	CREATE POLICY everything ON items USING (order_id IS NOT NULL) WITH CHECK (true)});
$node->safe_psql('postgres',
	'CREATE PUBLICATION p FOR TABLE items (id, order_id); ALTER PUBLICATION p OWNER TO owner; GRANT CREATE ON DATABASE postgres TO owner'
);
as_owner($hanging);
my $definitions = q{
	SELECT pg_get_viewdef('open_orders'), reloptions, relacl, obj_description(oid), relowner::regrole FROM pg_class WHERE relname = 'open_orders';
	SELECT pg_get_viewdef('"Newest"'), relacl FROM pg_class WHERE relname = 'Newest';
	SELECT pg_get_functiondef('items_of'::regproc);
	SELECT attname, attacl FROM pg_attribute WHERE attrelid = 'open_orders'::regclass AND attnum > 0 ORDER BY 1;
	SELECT pg_get_triggerdef(oid), tgenabled FROM pg_trigger WHERE tgname IN ('moved', 'instead') ORDER BY tgname;
	SELECT pg_get_ruledef(oid), ev_enabled FROM pg_rewrite WHERE rulename = 'never';
	SELECT policyname, roles, cmd, permissive, qual, with_check FROM pg_policies WHERE tablename = 'items' ORDER BY 1;
	SELECT attnames, rowfilter FROM pg_publication_tables};
my $before = $node->safe_psql('postgres', $definitions);
is( $node->safe_psql(
		'postgres', q{SELECT count(*), max(depth) FROM hanging('{orders,items}', '{id,order_id}')}),
	'9|2',
	'what would go with them in silence is found');

# an item knows its order by the note, which is never wrong
my $writers = start_writers(
	'large',
	q{INSERT INTO public.orders (note) VALUES ('new')},
	q{INSERT INTO public.items (order_id, note) SELECT id, note FROM public.orders WHERE id = :n},
	q{UPDATE public.items SET (order_id, note) = (SELECT id, note FROM public.orders WHERE id = 1000 + :n) WHERE id = :n},
	q{UPDATE public.orders SET note = note WHERE id = 2000 + :n},
	q{DELETE FROM public.items WHERE id = 3000 + :n});
my $wrong =
  q{SELECT count(*) FROM items LEFT JOIN orders ON orders.id = order_id WHERE orders.note IS DISTINCT FROM items.note};
foreach my $step (0 .. 3)
{
	# what the swap cannot put back stops it
	if ($step == 3)
	{
		as_owner('ALTER TABLE items ADD double bigint GENERATED ALWAYS AS (order_id * 2) STORED');
		eval { as_owner($steps[ 2 * $step + 1 ]) };
		like(
			$@,
			qr/default value for column double of table items has to be dropped before the swap/,
			'large keys: a generated column stops the swap');
		as_owner('ALTER TABLE items DROP double');
	}
	as_owner($steps[ 2 * $step + 1 ]);
	is($node->safe_psql('postgres', $wrong),
		'0', "large keys: all items have their orders after step $steps[2 * $step]");
}
is( $node->poll_query_until(
		'postgres', 'SELECT count(*) > 10 FROM orders WHERE id > 1000000000000'),
	1,
	'large keys: writers get snowflakes');
is($node->safe_psql('postgres', $definitions),
	$before, 'large keys: what hung on the old columns hangs on the new ones');
is( $node->safe_psql(
		'postgres', q{
		SELECT count(*) FILTER (WHERE id IS NULL), max(id) > 1000000000000, (SELECT id > 1000000000000 FROM "Newest"),
			(SELECT items_of(max(order_id)) > 0 FROM items) FROM open_orders}),
	'0|t|t|t',
	'large keys: and sees new rows');
my $longest = stop_writers('large keys', $writers);
cmp_ok($longest, '<', $patience_ms, 'large keys: no statement waited for long') or diag($longest);
as_owner($steps[9]);
is($node->safe_psql('postgres', $wrong), '0', 'large keys: and in the end');
is( $node->safe_psql(
		'postgres', qq{
		SELECT count(*) FROM orders WHERE id <= $rows AND note = 'order ' || id;
		SELECT string_agg(format('%s.%s %s', attrelid::regclass, attname, format_type(atttypid, NULL)), ', ' ORDER BY attrelid, attnum)
		  FROM pg_attribute WHERE attrelid IN ('orders'::regclass, 'items'::regclass) AND attnum > 0 AND NOT attisdropped;
		SELECT string_agg(pg_get_constraintdef(oid), ', ' ORDER BY conrelid, contype) FROM pg_constraint
		 WHERE conrelid IN ('orders'::regclass, 'items'::regclass) AND contype IN ('p', 'f', 'c');
		SELECT to_regclass('orders_id_seq') IS NULL}),
	"$rows\norders.note text, orders.id bigint, items.id integer, items.note text, items.order_id bigint\n"
	  . "PRIMARY KEY (id), FOREIGN KEY (order_id) REFERENCES orders(id), PRIMARY KEY (id)\nt",
	'large keys: all rows, columns and constraints are there');

# UUIDs, with users that their writers are not allowed to see, and some without a time
@steps = steps($uuids);
is(join(' ', map { $steps[ 2 * $_ ] } 0 .. $#steps / 2),
	'1 2 3 4 5 6', 'UUIDs: the recipe has its steps');
as_owner(
	q{
	CREATE TABLE users (
		id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
		created_at timestamptz DEFAULT now(),
		name text);
	CREATE TABLE posts (
		id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
		user_id uuid NOT NULL REFERENCES users,
		author text,
		n serial);
	CREATE INDEX ON users (created_at);
	CREATE INDEX ON users (name);
	CREATE INDEX ON posts (n);
	INSERT INTO users (created_at, name)
		SELECT timestamptz '2026-01-01 UTC' + (g / 3 * 17) * interval '1 min', 'user ' || g FROM generate_series(1, 5000) g;
	UPDATE users SET created_at = NULL WHERE name LIKE 'user 4_0';
	INSERT INTO posts (user_id, author) SELECT u.id, u.name FROM users u, generate_series(1, 5);
	GRANT SELECT, INSERT ON users TO writer;
	GRANT SELECT, INSERT, UPDATE, DELETE ON posts TO writer;
	GRANT INSERT ON posts TO poster;
	GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO writer, poster;
	ALTER TABLE users ENABLE ROW LEVEL SECURITY;
	CREATE POLICY visible ON users TO writer USING (name <> 'user 7') WITH CHECK (true);
	ANALYZE users, posts});
my $hidden = $node->safe_psql('postgres', q{SELECT id FROM users WHERE name = 'user 7'});
my @uses = (
	q{INSERT INTO public.posts (user_id, author) SELECT id, name FROM public.users WHERE name = 'user ' || :n},
	q{INSERT INTO public.users (name) VALUES ('new')},
	q{UPDATE public.posts SET (user_id, author) = (SELECT id, name FROM public.users WHERE name = 'user ' || 1000 + :n) WHERE n = :n},
	q{UPDATE public.posts SET author = author WHERE n = 5000 + :n},
	q{DELETE FROM public.posts WHERE n = 10000 + :n});
as_owner(
	'CREATE VIEW authors AS SELECT users.id, count(posts.user_id) AS posts FROM users LEFT JOIN posts ON users.id = user_id GROUP BY 1'
);
as_owner($hanging);
$wrong =
  q{SELECT count(*) FROM posts LEFT JOIN users ON users.id = user_id WHERE name IS DISTINCT FROM author};
$writers = start_writers('uuids', @uses);
my ($late, $since);
foreach my $step (0 .. 4)
{
	# a transaction that does not see the new keys of old users
	if ($step == 1)
	{
		$late = $node->background_psql('postgres');
		$late->query_safe(
			q{BEGIN ISOLATION LEVEL REPEATABLE READ;
			INSERT INTO posts (user_id, author) SELECT id, name FROM users WHERE name = 'user 77'});
	}
	if ($step == 3)
	{
		$late->query_safe(
			q{INSERT INTO posts (user_id, author) SELECT id, name FROM users WHERE name = 'user 78'}
		);
		$late->query_safe('COMMIT');
		$late->quit;
		is($node->safe_psql('postgres', 'SELECT count(*) FROM posts WHERE new_user_id IS NULL'),
			'2', 'UUIDs: posts of an old transaction have no new reference yet');
	}
	as_owner($steps[ 2 * $step + 1 ]);
	$since //= $node->safe_psql('postgres', 'SELECT now()');
	is($node->safe_psql('postgres', $wrong),
		'0', "UUIDs: all posts have their users after step $steps[2 * $step]");

	# who may not see users writes posts
	$node->safe_psql(
		'postgres',
		"INSERT INTO public.posts (user_id, author) VALUES ('$hidden', 'user 7')",
		extra_params => [ '-U', $_ ]) foreach $step < 4 ? ('poster', 'writer') : ();
}
is( $node->poll_query_until(
		'postgres',
		q{SELECT count(*) > 5 FROM posts WHERE n > (SELECT max(n) FROM posts WHERE author = 'user 7')}
	),
	1,
	'UUIDs: writers go on');
is( $node->safe_psql(
		'postgres',
		q{SELECT count(*) > 5000, count(*) FILTER (WHERE id IS NULL) FROM authors WHERE pg_typeof(id) = 'snowflake'::regtype}
	),
	't|0',
	'UUIDs: a view has the new keys');
$longest = stop_writers('UUIDs', $writers);
cmp_ok($longest, '<', $patience_ms, 'UUIDs: no statement waited for long') or diag($longest);
as_owner($steps[11]);
is($node->safe_psql('postgres', $wrong), '0', 'UUIDs: and in the end');
is( $node->safe_psql(
		'postgres', q{SELECT count(*) FROM posts WHERE author = 'user 7' AND n > 25000}),
	'8',
	'UUIDs: also posts of users that their writers do not see');
is( $node->safe_psql(
		'postgres', qq{
		SELECT count(*) = count(DISTINCT id) AND count(*) = count(DISTINCT uuid),
			   bool_and(@@ id <= created_at AND created_at - @@ id < '1 ms') FILTER (WHERE name ~ '^user' AND created_at IS NOT NULL),
			   bool_and(snowflake_node(id) = 7) FILTER (WHERE created_at IS NULL OR name = 'new' AND created_at > '$since'),
			   count(*) FILTER (WHERE created_at IS NULL)
		  FROM users}),
	't|t|t|10',
	'UUIDs: users have keys of their time, those without one of the day');
is( $node->safe_psql(
		'postgres', q{
		SELECT string_agg(pg_get_constraintdef(oid), ', ' ORDER BY contype DESC, conrelid) FROM pg_constraint
		 WHERE conrelid IN ('users'::regclass, 'posts'::regclass) AND contype IN ('p', 'f')}),
	'PRIMARY KEY (id), PRIMARY KEY (id), FOREIGN KEY (user_id) REFERENCES users(id)',
	'UUIDs: keys and references are declared');

$node->stop;
done_testing();
