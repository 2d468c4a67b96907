# snowflake_convert_column() among other sessions: readers and writers go on
# after it, a failure leaves everything as it was, two conversions do not block
# each other, and a dump carries the result.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'main',
	node_id => 3,
	conf => 'client_min_messages = warning');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE ROLE owner');

# A healthy server that has not minted yet is no reason for an alarm
my ($ret, $stdout, $stderr) = $node->psql('postgres',
	q{CREATE TABLE t (id serial); SELECT count(*) FROM snowflake_convert_column('t', 'id', dry_run => true); DROP TABLE t}
);
is("$stdout$stderr", '3', 'a dry run before the first mint warns of nothing');
wait_for_mint($node);

# A key with rows, references from two tables, and a partitioned table
sub create_tables
{
	$node->safe_psql(
		'postgres', q{
		DROP TABLE IF EXISTS orders, items, payments, log CASCADE;
		CREATE TABLE orders (id serial PRIMARY KEY, note text);
		CREATE TABLE items (id serial PRIMARY KEY, order_id int NOT NULL REFERENCES orders);
		CREATE TABLE payments (order_id int REFERENCES orders, item_id int REFERENCES items);
		CREATE TABLE log (id int GENERATED ALWAYS AS IDENTITY, at date, order_id int REFERENCES orders)
			PARTITION BY RANGE (at);
		CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM ('2026-01-01') TO ('2026-07-01');
		CREATE TABLE log_2 PARTITION OF log FOR VALUES FROM ('2026-07-01') TO ('2027-01-01');
		INSERT INTO orders (note) SELECT md5(g::text) FROM generate_series(1, 100000) g;
		INSERT INTO items (order_id) SELECT id FROM orders;
		INSERT INTO payments SELECT order_id, id FROM items;
		INSERT INTO log (at, order_id) SELECT date '2026-01-01' + (id % 365)::int, id FROM orders});
	return;
}

# All the rows, and all that the catalogs say about the tables
my $rows = q{
	SELECT md5(string_agg(r, ',' ORDER BY r)) FROM (
		SELECT o::text FROM orders o UNION ALL SELECT i::text FROM items i
		UNION ALL SELECT p::text FROM payments p UNION ALL SELECT l::text FROM log l) t (r)};

sub schema
{
	return run_dump('--schema-only');
}

sub run_dump
{
	my ($stdout, $stderr) =
	  run_command([ 'pg_dump', '--no-sync', @_, '-d', $node->connstr('postgres') ]);

	# random, in the newest minor versions
	$stdout =~ s/^\\(?:un)?restrict .*$//mg;
	return $stdout;
}

# Wait until a session waits for a lock on that table, or for one of a mode.
sub wait_for_waiter
{
	my ($table, $mode) = @_;

	$node->poll_query_until(
		'postgres', qq{
		SELECT count(*) > 0 FROM pg_locks
		 WHERE NOT granted AND relation = '$table'::regclass AND mode = '$mode'}
	) or die "nobody waits for $mode on $table";
	return;
}

create_tables();
my $old_rows = $node->safe_psql('postgres', $rows);
my $old_schema = schema();

# A dry run changes and locks nothing, and what it says can be run
my $dry = $node->safe_psql(
	'postgres',
	q{BEGIN; SELECT snowflake_convert_column('orders', 'id', dry_run => true);
	SELECT count(*) FROM pg_locks WHERE relation = 'orders'::regclass AND mode <> 'AccessShareLock'; COMMIT}
);
like(
	$dry,
	qr/^LOCK TABLE .*\nDROP SEQUENCE public\.orders_id_seq\n0$/s,
	'a dry run says what it would do, and has no lock that disturbs');
is(schema(), $old_schema, 'and changes nothing');

# Failures: of a statement in the middle, a time limit at the last moment,
# a lock that another session has, the server
my $error = error_of(
	$node, q{
	CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF tg_tag = 'DROP SEQUENCE' THEN RAISE EXCEPTION 'not this one'; END IF;
	END $$;
	CREATE EVENT TRIGGER refuse ON ddl_command_start EXECUTE FUNCTION refuse();
	SELECT snowflake_convert_column('orders', 'id')});
is($error->{message}, 'not this one', 'an event trigger sees the statements');
$node->safe_psql('postgres', 'DROP EVENT TRIGGER refuse; DROP FUNCTION refuse');
is(schema(), $old_schema, 'after a failure of the last statement all is as it was');
is($node->safe_psql('postgres', $rows), $old_rows, 'and so are the rows');

my $writer = $node->background_psql('postgres', on_error_stop => 0);
$writer->query_safe(q{BEGIN; UPDATE payments SET item_id = item_id WHERE order_id = 7});
$error =
  error_of($node, q{SET lock_timeout = '10ms'; SELECT snowflake_convert_column('orders', 'id')});
is($error->{sqlstate}, '55P03', 'a lock_timeout holds for tables that reference it');
is(schema(), $old_schema, 'and changes nothing');

# A conversion that waits for the last of its tables is canceled
my $converter = $node->background_psql('postgres', on_error_stop => 0);
$converter->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('orders', 'id');\n");
wait_for_waiter('payments', 'AccessExclusiveLock');
is( $node->safe_psql(
		'postgres', q{
		SELECT count(DISTINCT relation) FROM pg_locks WHERE granted AND mode = 'AccessExclusiveLock'
		   AND relation IN ('orders'::regclass, 'items'::regclass)}),
	'2',
	'it has the locks of the tables before');
$node->safe_psql('postgres',
	q{SELECT pg_cancel_backend(pid) FROM pg_locks WHERE NOT granted AND relation = 'payments'::regclass}
);
$writer->query_safe('COMMIT');
$converter->quit;
is(schema(), $old_schema, 'a canceled one has changed nothing');
is($node->safe_psql('postgres', $rows), $old_rows, 'nor any row');

# Readers and writers: they hold it up, then wait for it, and go on
my $reader = $node->background_psql('postgres', on_error_stop => 0);
my $all = 'SELECT count(*), sum(id) FROM orders WHERE id <= 100000';
$reader->query_safe(
	q{PREPARE j AS SELECT count(*) FROM orders o JOIN items i ON i.order_id = o.id WHERE o.id = 77}
);
is($reader->query_safe("BEGIN; $all"), '100000|5000050000', 'a reader reads');
$converter = $node->background_psql('postgres', on_error_stop => 0);
$converter->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('orders', 'id');\n\\echo converted\n"
);
wait_for_waiter('orders', 'AccessExclusiveLock');
is($reader->query_safe('EXECUTE j'), '1', 'it reads on while the conversion waits for it');
my $waiting = $node->background_psql('postgres', on_error_stop => 0);
$waiting->query_until(qr/started/,
	"\\echo started\nINSERT INTO orders (note) VALUES ('waited') RETURNING id > 1000000000000000;\n"
);
wait_for_waiter('orders', 'RowExclusiveLock');
$reader->query_safe('COMMIT');
is($reader->query_safe($all), '100000|5000050000', 'then it sees all rows');
is($reader->query_safe('EXECUTE j'), '1', 'in a join as well');
like($waiting->query_safe('SELECT true'), qr/t/, 'a writer that waited goes on');
is( $node->safe_psql(
		'postgres',
		q{SELECT count(*), min(snowflake_node(id::snowflake)) FROM orders WHERE id > 100000}),
	'1|3',
	'and its row has a snowflake');
$_->quit for $reader, $writer, $waiting, $converter;

is($node->safe_psql('postgres', q{DELETE FROM orders WHERE note = 'waited'; } . $rows),
	$old_rows, 'all old rows are as they were');
is( $node->safe_psql(
		'postgres', q{
		SELECT string_agg(format('%s.%s %s', attrelid::regclass, attname, format_type(atttypid, NULL)), ', '
						  ORDER BY attrelid, attnum)
		  FROM pg_attribute WHERE attname IN ('id', 'order_id', 'item_id')
		   AND attrelid IN ('orders'::regclass, 'items'::regclass, 'payments'::regclass, 'log_2'::regclass)}
	),
	'orders.id bigint, items.id integer, items.order_id bigint, payments.order_id bigint, '
	  . 'payments.item_id integer, log_2.id integer, log_2.order_id bigint',
	'references are wide enough, other keys are left alone');
$node->safe_psql(
	'postgres', q{
	INSERT INTO orders DEFAULT VALUES;
	INSERT INTO items (order_id) SELECT max(id) FROM orders;
	INSERT INTO payments SELECT order_id, id FROM items ORDER BY id DESC LIMIT 1;
	INSERT INTO log (at, order_id) SELECT '2026-12-31', max(id) FROM orders});
is(error_of($node, 'INSERT INTO items (order_id) VALUES (200000)')->{sqlstate},
	'23503', 'and still are references');

# Keys that were committed after the snapshot of the transaction was taken
$node->safe_psql('postgres', 'CREATE TABLE late (id bigint)');
my $old = $node->background_psql('postgres', on_error_stop => 0);
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM items');
$node->safe_psql('postgres',
	'INSERT INTO late VALUES (-1); CREATE TABLE later (late_id int); CREATE UNIQUE INDEX u ON late (id); '
	  . 'ALTER TABLE late ADD PRIMARY KEY USING INDEX u; ALTER TABLE later ADD FOREIGN KEY (late_id) REFERENCES late'
);
is( $old->query_safe(
		q{SELECT string_agg(s, E'\n') FROM snowflake_convert_column('late', 'id', dry_run => true) s}
	),
	"LOCK TABLE public.late, public.later IN ACCESS EXCLUSIVE MODE\n"
	  . "ALTER TABLE public.late ALTER COLUMN id SET DEFAULT public.snowflake_next()\n"
	  . 'ALTER TABLE public.later ALTER COLUMN late_id TYPE bigint',
	'an older snapshot does not hide a reference');
$old->query(q{SELECT snowflake_convert_column('late', 'id', 'snowflake')});
like($old->{stderr}, qr/ERROR:  cannot convert column "id" of table "late"/, 'nor a key');
$old->quit;

# It has all locks before it writes anything: relations that nobody else sees
# yet would be tables being written anew
sub written_while_waiting
{
	my ($table) = @_;

	return $node->safe_psql(
		'postgres', qq{
		SELECT count(*) FROM pg_locks l WHERE locktype = 'relation'
		   AND pid = (SELECT pid FROM pg_locks WHERE NOT granted AND relation = '$table'::regclass)
		   AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = l.relation)});
}

$node->safe_psql(
	'postgres', q{
	CREATE TABLE wide (id bigserial PRIMARY KEY);
	CREATE TABLE first (wide_id int REFERENCES wide);
	CREATE TABLE second (wide_id int REFERENCES wide);
	INSERT INTO wide DEFAULT VALUES;
	INSERT INTO first VALUES (1)});
$writer = $node->background_psql('postgres', on_error_stop => 0);
$writer->query_safe('BEGIN; INSERT INTO second VALUES (NULL)');
$converter = $node->background_psql('postgres', on_error_stop => 0);
$converter->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('wide', 'id');\n");
wait_for_waiter('second', 'AccessExclusiveLock');
is(written_while_waiting('second'), '0', 'nothing is written before all locks are there');
$writer->query_safe('COMMIT');
like($converter->query_safe('SELECT 1'), qr/^5\n/, 'then it goes on');
$_->quit for $writer, $converter;

# Also the lock of a sequence that is dropped, which another session has used
$node->safe_psql('postgres',
	'CREATE TABLE counted (id serial PRIMARY KEY); INSERT INTO counted DEFAULT VALUES');
$writer = $node->background_psql('postgres', on_error_stop => 0);
$writer->query_safe(q{BEGIN; SELECT nextval('counted_id_seq')});
$converter = $node->background_psql('postgres', on_error_stop => 0);
$converter->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('counted', 'id');\n");
wait_for_waiter('counted_id_seq', 'AccessExclusiveLock');
is(written_while_waiting('counted_id_seq'),
	'0', 'nothing is written before the lock of a sequence is there');
$writer->query_safe('COMMIT');
$converter->query_safe('SELECT 1');
$_->quit for $writer, $converter;

# What it does not see before it has a lock
$node->safe_psql('postgres', 'CREATE TABLE keys (id serial PRIMARY KEY)');
$writer = $node->background_psql('postgres', on_error_stop => 0);
$writer->query_safe('BEGIN; CREATE TABLE unseen (key_id int REFERENCES keys)');
$converter = $node->background_psql('postgres', on_error_stop => 0);
$converter->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('keys', 'id');\n");
wait_for_waiter('keys', 'AccessExclusiveLock');
$writer->query_safe('COMMIT');
$converter->query('SELECT 1');
is( $node->safe_psql(
		'postgres',
		q{SELECT string_agg(atttypid::regtype::text, ' ') FROM pg_attribute WHERE attname IN ('id', 'key_id') AND attrelid IN ('keys'::regclass, 'unseen'::regclass)}
	),
	'bigint bigint',
	'a reference that is committed while it waits is converted as well');
$_->quit for $writer, $converter;

# All locks come first also with a table that is merely referenced: by a column that references the key as
# well, and whose foreign keys are made anew; and with one of which nothing but a foreign key is
$node->safe_psql(
	'postgres', q{
	CREATE TABLE elder (id bigint);
	CREATE TABLE crossed (id serial PRIMARY KEY);
	ALTER TABLE elder ADD FOREIGN KEY (id) REFERENCES crossed;
	CREATE TABLE other (id int PRIMARY KEY);
	CREATE TABLE third (id int REFERENCES crossed REFERENCES other);
	INSERT INTO crossed DEFAULT VALUES;
	INSERT INTO other VALUES (1);
	INSERT INTO third VALUES (1)});
$writer = $node->background_psql('postgres', on_error_stop => 0);
$writer->query_safe('BEGIN; INSERT INTO other VALUES (2)');
$reader = $node->background_psql('postgres', on_error_stop => 0);
$reader->query_safe('BEGIN; LOCK TABLE elder IN ROW EXCLUSIVE MODE');
$converter = $node->background_psql('postgres', on_error_stop => 0);
$converter->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('crossed', 'id');\n");
$node->poll_query_until('postgres', 'SELECT count(*) > 0 FROM pg_locks WHERE NOT granted')
  or die "a conversion does not wait";
is($node->safe_psql('postgres', 'SELECT relation::regclass FROM pg_locks WHERE NOT granted'),
	'elder', 'one whose column stays, but whose foreign key does not, is locked as well');
$reader->query_safe('COMMIT');
wait_for_waiter('other', 'AccessExclusiveLock');
is(written_while_waiting('other'),
	'0', 'a table that is merely referenced is locked before anything is written');
is( $node->safe_psql(
		'postgres', q{
		SELECT string_agg(relation::regclass::text, ',') FROM pg_locks
		 WHERE mode = 'AccessExclusiveLock' AND granted AND relation IN ('crossed'::regclass, 'third'::regclass)}
	),
	'crossed',
	'after older tables and before younger ones');
$writer->query_safe('COMMIT');
$converter->query_safe('SELECT 1');
unlike($converter->{stderr}, qr/ERROR/, 'then it goes on');
is(error_of($node, 'INSERT INTO third SELECT 2')->{sqlstate},
	'23503', 'and both are references still');
$_->quit for $reader, $writer, $converter;
$node->safe_psql('postgres', 'DROP TABLE elder, crossed, other, third');

# A schema is renamed meanwhile, and another one has tables of these names: here
# by event triggers, when a statement begins or ends, since any session may do it
# at any time.
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA shop; CREATE SCHEMA copy;
	CREATE TABLE shop.orders (id serial PRIMARY KEY);
	CREATE TABLE shop.items (id int REFERENCES shop.orders);
	CREATE TABLE copy.orders (id serial PRIMARY KEY);
	ALTER TABLE copy.orders ALTER id DROP DEFAULT;
	CREATE TABLE copy.items (id int REFERENCES copy.orders);
	CREATE FUNCTION swap() RETURNS event_trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF to_regnamespace('old') IS NULL AND tg_tag = current_setting('my.tag')
			AND (tg_tag <> 'ALTER TABLE' OR EXISTS (
				SELECT FROM pg_attribute WHERE attrelid = to_regclass('shop.orders') AND attname = 'id' AND atttypid = 'bigint'::regtype)) THEN
			ALTER SCHEMA shop RENAME TO old;
			ALTER SCHEMA copy RENAME TO shop;
		END IF;
	END $$});
foreach my $when (
	'ddl_command_end ALTER TABLE',
	'ddl_command_start ALTER TABLE',
	'ddl_command_start DROP SEQUENCE')
{
	my ($event, $tag) = split / /, $when, 2;

	$node->safe_psql('postgres', "CREATE EVENT TRIGGER swap ON $event EXECUTE FUNCTION swap()");
	$error =
	  error_of($node, "SET my.tag = '$tag'; SELECT snowflake_convert_column('shop.orders', 'id')");
	$node->safe_psql('postgres', 'DROP EVENT TRIGGER swap');
	is($error->{sqlstate}, '40001', "a schema renamed at $when: an error");
	like($error->{message},
		qr/^could not convert column "id" of table shop\.orders .* concurrent renaming/,
		'that says so');
	is( $node->safe_psql(
			'postgres', q{
			SELECT string_agg(attrelid::regclass::text, ',' ORDER BY attrelid) FROM pg_attribute
			 WHERE attname = 'id' AND atttypid = 'int'::regtype
			   AND attrelid IN ('shop.orders'::regclass, 'shop.items'::regclass, 'copy.orders'::regclass, 'copy.items'::regclass)}
		),
		'shop.orders,shop.items,copy.orders,copy.items',
		'and no table was changed');
}

# So if there is none of that name afterwards
$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION rename() RETURNS event_trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF tg_tag = 'ALTER TABLE' AND to_regnamespace('old') IS NULL THEN
			ALTER SCHEMA shop RENAME TO old;
		END IF;
	END $$;
	CREATE EVENT TRIGGER rename ON ddl_command_end EXECUTE FUNCTION rename()});
$error = error_of($node, q{SELECT snowflake_convert_column('shop.orders', 'id')});
is($error->{sqlstate}, '40001', 'a schema renamed, and none in its place: the same error');
$node->safe_psql(
	'postgres', q{
	DROP EVENT TRIGGER rename;
	DROP SCHEMA shop, copy CASCADE;
	DROP FUNCTION rename, swap});

# When the second of two conversions waits, let them go on
my @converters;

sub end_converters
{
	$node->poll_query_until('postgres',
		'SELECT count(DISTINCT pid) = 2 FROM pg_locks WHERE NOT granted')
	  or die "two conversions do not wait";
	$writer->query_safe('COMMIT');
	foreach my $c (@converters)
	{
		$c->query_safe('SELECT 1');
		unlike($c->{stderr}, qr/ERROR/, 'a conversion beside another succeeds');
		$c->quit;
	}
	$writer->quit;
	return;
}

# Two conversions, one of which has a table that is a child of one of the other's,
# and older than both that they have in common
$node->safe_psql(
	'postgres', q{
	CREATE TABLE child (id int, target_id int);
	CREATE TABLE common (parent_id int, target_id int);
	CREATE TABLE parent (id int UNIQUE);
	ALTER TABLE child INHERIT parent;
	CREATE TABLE target (id int PRIMARY KEY);
	ALTER TABLE common ADD FOREIGN KEY (parent_id) REFERENCES parent (id), ADD FOREIGN KEY (target_id) REFERENCES target;
	ALTER TABLE child ADD FOREIGN KEY (target_id) REFERENCES target});
$writer = $node->background_psql('postgres', on_error_stop => 0);
$writer->query_safe('BEGIN; LOCK TABLE ONLY parent');
@converters = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
$converters[0]->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('parent', 'id');\n");
wait_for_waiter('parent', 'AccessExclusiveLock');
$converters[1]->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('target', 'id');\n");
end_converters();
$node->safe_psql('postgres', 'DROP TABLE child, common, parent, target');

# Two conversions at once, of tables that reference each other's
create_tables();
$writer = $node->background_psql('postgres', on_error_stop => 0);
$writer->query_safe('BEGIN; LOCK TABLE payments');
@converters = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
$converters[0]->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('items', 'id');\n");
wait_for_waiter('payments', 'AccessExclusiveLock');
$converters[1]->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('orders', 'id');\n");
end_converters();
is($node->safe_psql('postgres', $rows), $old_rows, 'with all the rows');
is( $node->safe_psql(
		'postgres', q{
		SELECT string_agg(format_type(atttypid, NULL), ',') FROM pg_attribute
		 WHERE attrelid = 'payments'::regclass AND attnum > 0}),
	'bigint,bigint',
	'both references are wide enough');

# What one owner converts does not hold up another, though his key is referenced
$node->safe_psql(
	'postgres', q{
	CREATE ROLE seller; CREATE ROLE buyer;
	CREATE SCHEMA sellers AUTHORIZATION seller; CREATE SCHEMA buyers AUTHORIZATION buyer;
	SET ROLE seller;
	GRANT USAGE ON SCHEMA sellers TO buyer;
	CREATE TABLE sellers.keys (id serial PRIMARY KEY);
	GRANT REFERENCES ON sellers.keys TO buyer;
	SET ROLE buyer;
	CREATE TABLE buyers.items (key_id int REFERENCES sellers.keys);
	ALTER TABLE buyers.items ALTER key_id TYPE bigint;
	CREATE TABLE buyers.keys (id serial PRIMARY KEY)});
$converter = $node->background_psql('postgres', on_error_stop => 0);
$converter->query_safe(
	q{SET ROLE seller; BEGIN; SELECT snowflake_convert_column('sellers.keys', 'id')});
is( $node->safe_psql(
		'postgres',
		q{SET lock_timeout = '10s'; SET ROLE buyer; SELECT count(*) FROM snowflake_convert_column('buyers.keys', 'id')}
	),
	'3',
	'a conversion does not wait for one of tables of another owner');
$converter->query_safe('COMMIT');
$converter->quit;

# Two conversions of tables of both, which come to the two owners in opposite orders
$node->safe_psql(
	'postgres', q{
	CREATE TABLE buyers.one (id int PRIMARY KEY);
	CREATE TABLE sellers.one (id int PRIMARY KEY);
	CREATE TABLE sellers.two (one_id int REFERENCES buyers.one);
	CREATE TABLE buyers.two (one_id int REFERENCES sellers.one);
	CREATE TABLE buyers.three (id int);
	GRANT USAGE ON SCHEMA buyers TO seller;
	GRANT REFERENCES ON buyers.one TO seller;
	GRANT REFERENCES ON sellers.one TO buyer;
	ALTER TABLE buyers.one OWNER TO buyer; ALTER TABLE buyers.two OWNER TO buyer; ALTER TABLE buyers.three OWNER TO buyer;
	ALTER TABLE sellers.one OWNER TO seller; ALTER TABLE sellers.two OWNER TO seller});
$writer = $node->background_psql('postgres', on_error_stop => 0);
$writer->query_safe(q{BEGIN; SELECT count(*) FROM snowflake_convert_column('buyers.three', 'id')});
@converters = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
$converters[0]->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('buyers.one', 'id');\n");
$node->poll_query_until('postgres', 'SELECT count(*) > 0 FROM pg_locks WHERE NOT granted')
  or die "a conversion does not wait";
$converters[1]->query_until(qr/started/,
	"\\echo started\nSELECT count(*) FROM snowflake_convert_column('sellers.one', 'id');\n");
end_converters();

# A child's key that references another table has its values from there
$node->safe_psql(
	'postgres', q{
	CREATE TABLE place (id bigint PRIMARY KEY);
	CREATE TABLE region (id bigint);
	CREATE TABLE country (FOREIGN KEY (id) REFERENCES place) INHERITS (region)});
like(
	error_of($node, q{SELECT snowflake_convert_column('region', 'id', dry_run => true)})->{detail},
	qr/^The column references table (?:public\.)?place, so its values come from there\.$/,
	'a child whose key references another table');
$node->safe_psql('postgres', 'DROP TABLE country, region, place');

# Temporary tables of another session, which this one cannot alter: a child, and the key's own
my $session = $node->background_psql('postgres');
$session->query_safe(
	q{CREATE TABLE lasting (id int); CREATE TEMP TABLE passing () INHERITS (lasting);
	CREATE TABLE lasting_key (id bigint); CREATE TEMP TABLE passing_too () INHERITS (lasting_key);
	CREATE TEMP TABLE passing_key (id bigint)});
foreach my $table ('lasting', 'lasting_key')
{
	like(
		error_of($node, "SELECT snowflake_convert_column('$table', 'id', dry_run => true)")
		  ->{detail},
		qr/\.passing\w* is a temporary table of another session\.$/,
		"$table: a child that is a temporary table of another session");
}
my $passing_key =
  $node->safe_psql('postgres', q{SELECT oid FROM pg_class WHERE relname = 'passing_key'});
is( error_of($node,
		"SELECT snowflake_convert_column($passing_key\::regclass, 'id', dry_run => true)")
	  ->{detail},
	'It is a temporary table of another session.',
	'a temporary table of another session');
$session->query_safe('DROP TABLE passing, passing_key, passing_too, lasting, lasting_key');
$session->quit;

# Nobody is told to advance the generator by more than a minute
$node->safe_psql(
	'postgres', q{
	CREATE TABLE ahead (id bigint PRIMARY KEY);
	INSERT INTO ahead SELECT snowflake_lower_bound(now() + interval '10 minutes')::bigint});
like(
	error_of($node, q{SELECT snowflake_convert_column('ahead', 'id', dry_run => true)})->{hint},
	qr/^As a snowflake of this layout it would date from /,
	'a key of ten minutes ahead: the hint has its time');

# Types that are none, and a partition key that PostgreSQL knows nothing of
my $error_0 = error_of($node, q{SELECT snowflake_convert_column('orders', 'id', 0::oid::regtype)});
is( "$error_0->{sqlstate} $error_0->{message}",
	'42704 type with OID 0 does not exist',
	'a type that does not exist');
$node->safe_psql('postgres', 'CREATE DATABASE hypertables');
$node->safe_psql(
	'hypertables', q{
	CREATE EXTENSION snowflake;
	CREATE TABLE points (at bigint, n int);
	CREATE SCHEMA _timescaledb_catalog;
	CREATE TABLE _timescaledb_catalog.hypertable (id int, schema_name name, table_name name);
	CREATE TABLE _timescaledb_catalog.dimension (hypertable_id int, column_name name);
	INSERT INTO _timescaledb_catalog.hypertable VALUES (1, 'public', 'points');
	INSERT INTO _timescaledb_catalog.dimension VALUES (1, 'at')});
my $to_snowflake =
  q{SELECT count(*) FROM snowflake_convert_column('points', 'at', 'snowflake', dry_run => true)};
is($node->safe_psql('hypertables', $to_snowflake),
	'2', 'tables of those names count only if they are TimescaleDB\'s');
$node->safe_psql(
	'hypertables', q{
	INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
		SELECT 99999, 'timescaledb', 10, 'public'::regnamespace, false, '2';
	ALTER EXTENSION timescaledb ADD TABLE _timescaledb_catalog.hypertable;
	ALTER EXTENSION timescaledb ADD TABLE _timescaledb_catalog.dimension});
is( error_of($node, $to_snowflake, dbname => 'hypertables')->{detail},
	'TimescaleDB divides table public.points by column at.',
	'a dimension of TimescaleDB\'s stays a bigint');
is( $node->safe_psql(
		'hypertables', q{SELECT count(*) FROM snowflake_convert_column('points', 'at')}),
	'2',
	'and is filled all the same');

# A partitioned table with rows, as its owner, who may not do more than that
$node->safe_psql('postgres',
	'ALTER TABLE log OWNER TO owner; ALTER TABLE log_1 OWNER TO owner; ALTER TABLE log_2 OWNER TO owner'
);
$node->safe_psql('postgres',
	q{SET ROLE owner; SELECT snowflake_convert_column('log', 'id', 'snowflake')});
is( $node->safe_psql(
		'postgres', q{
		INSERT INTO log (at, order_id) VALUES ('2026-01-01', 1), ('2026-12-31', 2);
		SELECT tableoid::regclass, count(*), count(*) FILTER (WHERE @@ id > '2026-01-01') FROM log GROUP BY 1 ORDER BY 1}
	),
	"log_1|"
	  . $node->safe_psql('postgres', 'SELECT count(*) FROM log_1')
	  . "|1\nlog_2|"
	  . $node->safe_psql('postgres', 'SELECT count(*) FROM log_2') . '|1',
	'partitions are converted by their owner');

# The referenced table is another one when the reference of another owner is re-created, since
# schemas are renamed meanwhile.
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA first;
	CREATE SCHEMA second;
	CREATE TABLE first.key (id int PRIMARY KEY);
	CREATE TABLE second.key (id bigint PRIMARY KEY);
	CREATE TABLE refers (k int REFERENCES first.key);
	CREATE ROLE referrer;
	GRANT USAGE ON SCHEMA first, second TO referrer;
	GRANT REFERENCES ON first.key, second.key TO referrer;
	ALTER TABLE refers OWNER TO referrer;
	CREATE FUNCTION exchange() RETURNS event_trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF to_regnamespace('second') IS NOT NULL AND 'bigint'::regtype =
			(SELECT atttypid FROM pg_attribute WHERE attrelid = 'first.key'::regclass AND attname = 'id') THEN
			ALTER SCHEMA first RENAME TO third;
			ALTER SCHEMA second RENAME TO first;
		END IF;
	END $$;
	CREATE EVENT TRIGGER exchange ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION exchange()}
);
is(error_of($node, q{SELECT snowflake_convert_column('first.key', 'id')})->{sqlstate},
	'40001', 'a reference to another table is noticed');
$node->safe_psql('postgres',
	'DROP EVENT TRIGGER exchange; DROP TABLE refers; DROP SCHEMA first, second CASCADE');

# A dump has it all, and an extension in a schema of its own is found
$node->safe_psql('postgres',
		'CREATE SCHEMA "My ext"; ALTER EXTENSION snowflake SET SCHEMA "My ext"; '
	  . 'CREATE TABLE after (id serial); '
	  . q{SELECT "My ext".snowflake_convert_column('after', 'id', '"My ext".snowflake')});
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
append_to_file($dump, run_dump());
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok(
	[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $dump ],
	'a dump is restored');
is($node->safe_psql('restored', $rows), $node->safe_psql('postgres', $rows), 'with all the rows');
is( $node->safe_psql(
		'restored',
		'INSERT INTO orders DEFAULT VALUES; INSERT INTO after DEFAULT VALUES; '
		  . 'SELECT (SELECT max(id) FROM orders) < (SELECT id::bigint FROM after)'),
	't',
	'and the defaults');

# Without a generator: a dry run only
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
$node->safe_psql('restored', 'CREATE TABLE more (id serial)');
is( error_of(
		$node, q{SELECT "My ext".snowflake_convert_column('more', 'id')}, dbname => 'restored'
	)->{sqlstate},
	'55000',
	'refused where nothing is minted');
($ret, $stdout, $stderr) = $node->psql('restored',
	q{SELECT count(*) FROM "My ext".snowflake_convert_column('more', 'id', dry_run => true)});
is($stdout, '3', 'a dry run says what it would do all the same');
like($stderr, qr/WARNING:  nothing can be minted/, 'and warns');

$node->stop;
done_testing();
