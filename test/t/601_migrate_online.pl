# An application is converted while it is used: none of its statements fails, nothing in
# the catalogs is lost, none of its triggers fires for rows that are filled, and the swap
# scans no table.  undo() gives back the schema and the data.  602_migrate_killed.pl
# interrupts the same calls.
#
# With SNOWFLAKE_TEST_LONG=1 the application has ten times as many rows.
#
# long

use SnowflakeDepot;
use SnowflakeTest;

my $node = new_node('main', conf => conf());
$node->start;
load_depot($node);
my $arguments = "'{app,billing}', 'bigint', '" . widened() . q{'};
my $fill = "CALL snowflake_migrate.fill($arguments, load => 1)";

# What is in the way, and is said

refuses(
	$node, $fill, '55000', 'refused as long as something is in the way',
	dbname => 'depot',
	message => qr/^column app\.orders\.number prevents the conversion/,
	hint => qr/^ALTER TABLE app\.orders ALTER COLUMN number DROP EXPRESSION/);
query(
	$node, q{
	CREATE TABLE app.parts (id serial, k integer, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
	CREATE TRIGGER always BEFORE UPDATE ON app.tags FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
	ALTER TABLE app.tags ENABLE ALWAYS TRIGGER always;
	CREATE TRIGGER named BEFORE UPDATE OF name ON app.tags FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
	ALTER TABLE app.tags ENABLE REPLICA TRIGGER named}, dbname => 'depot');
is( query(
		$node,
		"SELECT string_agg(object, ' ' ORDER BY object COLLATE \"C\") FROM snowflake_migrate.plan($arguments) WHERE finding = 'online'",
		dbname => 'depot'),
	'column app.orders.number column app.users.badge function app.keep_history() index app.parts_pkey '
	  . 'rule orders_closing on table app.orders statements that insert without a list of columns trigger always on table app.tags',
	'and the plan names it');
query(
	$node, q{
	DROP TABLE app.parts;
	DROP TRIGGER always ON app.tags;
	DROP TRIGGER named ON app.tags;
	ALTER TABLE app.orders ALTER COLUMN number DROP EXPRESSION;
	ALTER TABLE app.users ALTER COLUMN badge DROP EXPRESSION;
	ALTER TABLE app.orders ENABLE RULE orders_closing;
	-- sessions keep the types that they have compiled
	CREATE FUNCTION app.newest() RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		newest app.orders.id%TYPE;
		o app.orders;
	BEGIN
		SELECT max(id) INTO newest FROM app.orders;
		SELECT * INTO o FROM app.orders WHERE id = newest;
		RETURN o.id;
	END $$}, dbname => 'depot');
my (undef, $error) = run_file($node, 'depot', 'mend.sql');
is($error, '', 'the application is mended first');
query($node, 'ANALYZE', dbname => 'depot');
my $before = catalog($node, 'depot');
my $had = contents($node, 'depot');

# All keys, under load

my $used = new_depot($node, 'used');
my $script = PostgreSQL::Test::Utils::tempdir() . '/load.sql';
append_to_file(
	$script, q{
\set c random(1, 1000)
\set o random(1, 5000)
\set p random(1, 300)
\set n random(1, 2000000000)
INSERT INTO app.orders (tenant_id, customer_id, sold_by) VALUES (1, :c, 5) RETURNING id AS new_order \gset
INSERT INTO app.order_items (order_id, line_no, product_id, quantity, price) VALUES (:new_order, 1, :p, 1, 9.9);
UPDATE app.orders SET status = 'paid' WHERE id = :new_order;
UPDATE app.orders SET total = total + 1 WHERE id = :o;
UPDATE app.customers SET name = name || '' WHERE id = :c;
INSERT INTO app.tags (name) VALUES ('t' || :n) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id AS tag \gset
INSERT INTO app.taggings (tag_id, subject_type, subject_id) VALUES (:tag, 'Order', 1) ON CONFLICT DO NOTHING;
DELETE FROM app.tags WHERE id = :tag;
INSERT INTO app.events (user_id, order_id, kind) VALUES (1 + :c % 200, :new_order, 'placed');
INSERT INTO billing.invoices (order_id, customer_id, amount) VALUES (:new_order, :c, 1);
SELECT * FROM app.order_summary WHERE id = :new_order;
SELECT count(*) FROM app.open_orders WHERE id = :o;
SELECT * FROM app.my_orders WHERE id = :new_order;
SELECT app.order_total(:o);
-- a call that waits within the function for the swap goes on with the types from before
BEGIN;
LOCK app.orders IN ACCESS SHARE MODE;
SELECT app.newest();
COMMIT;
UPDATE app.order_status SET status = 'view' WHERE id = :new_order;
});
my ($out, $err) = ('', '');
my $load =
  start_client($node,
	[ qw(pgbench -n -c 3 -R 30 -T 1800 --max-tries=0 -f), $script, $node->connstr($used) ],
	'>', \$out, '2>', \$err);

# Wait until it has inserted some more.
sub more_load
{
	my $count = query($node, 'SELECT count(*) FROM app.orders', dbname => $used) + 10;

	wait_until(
		'there is load',
		sub {
			eval { $load->pump_nb };
			die $err if $err =~ /abort/;
			query($node, 'SELECT count(*) FROM app.orders', dbname => $used) > $count;
		});
	return;
}

more_load();
query($node, $fill, dbname => $used, timeout => 1800);
is(build($node, $used), '', 'indexes and constraints are made under load');
query($node, 'CALL snowflake_migrate.swap(attempts => 1000)', dbname => $used, timeout => 1800);
note 'the swap has locked the tables for '
  . query(
	$node,
	q{SELECT round(1000 * extract(epoch FROM locked)) FROM snowflake_migrate.migration},
	dbname => $used) . ' ms';
more_load();
$load->signal('TERM');
eval { $load->finish };
unlike($err, qr/ERROR|aborted/, 'no statement of the application has failed');
is( query(
		$node,
		q{SELECT count(*) FILTER (WHERE id > 1::bigint << 50) > 10, count(*) FILTER (WHERE id < 1000000) > 5000 FROM app.orders},
		dbname => $used),
	't|t',
	'new keys are snowflakes, old ones are as they were');
is( query(
		$node,
		q{SELECT count(*) FROM app.order_items i LEFT JOIN app.orders o ON o.id = i.order_id WHERE o.id IS NULL},
		dbname => $used),
	0,
	'no reference is lost');
refuses(
	$node, 'CALL snowflake_migrate.undo()',
	'22003',
	'undo() refuses to lose keys that are too large for the old columns',
	dbname => $used);
query($node, 'CALL snowflake_migrate.finish()', dbname => $used);

# (autovacuum has been at it)
is( unexplained(
		map {
			[ grep { !/^pg_stats/ } @$_ ]
		} $before,
		catalog($node, $used)),
	'',
	'nothing of the catalogs is lost');

# A foreign key locks two tables, which a transaction may have locked the other way round.

my $quiet = new_depot($node, 'quiet');
query($node, $fill, dbname => $quiet);
build($node, $quiet);
query(
	$node,
	'ALTER TABLE app.taggings DROP CONSTRAINT snowflake_new_taggings_tag_id_fkey',
	dbname => $quiet);
my $writer = $node->background_psql($quiet, on_error_stop => 0);
$writer->query_safe('BEGIN; LOCK app.tags IN ROW EXCLUSIVE MODE');
my $builder = $node->background_psql($quiet, on_error_stop => 0);
start_statement($builder, "SELECT snowflake_migrate.build() \\gexec\n");
wait_for_query(
	$node,
	q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'app.taggings'::regclass AND mode = 'ShareRowExclusiveLock'},
	dbname => $quiet);
is($writer->query('LOCK app.taggings IN ROW EXCLUSIVE MODE; SELECT 1; COMMIT'),
	1, 'a foreign key makes no deadlock with a transaction that writes both tables');
finish_statement($builder);
is($builder->{stderr}, '', 'and is made when that has ended');

# While it has its locks, the swap only changes catalogs.  It scans rows for an exclusion constraint.

is( query(
		$node, q{
	BEGIN;
	SELECT snowflake_migrate.swap_once('1 h');
	SELECT string_agg(DISTINCT relname, ' ' ORDER BY relname) FROM pg_stat_xact_user_tables WHERE schemaname IN ('app', 'billing') AND seq_tup_read > 0;
	COMMIT}, dbname => $quiet),
	"t\nproduct_prices",
	'the swap reads rows of one table');
query($node, 'CALL snowflake_migrate.swap()', dbname => $quiet);
is(contents($node, $quiet), $had, 'no row is changed, and no trigger of the application has fired');
query($node, q{CALL snowflake_migrate.undo()}, dbname => $quiet);
is(difference($before, catalog($node, $quiet)), '', 'undone: the schema is as it was');
is(contents($node, $quiet), $had, 'and so are the rows');
is( query(
		$node,
		q{INSERT INTO app.customers (tenant_id, name) VALUES (1, 'new') RETURNING id = (SELECT max(id) + 1 FROM app.customers)},
		dbname => $quiet),
	't',
	'an identity goes on where it was');

# Who may

query($node, q{CREATE ROLE "out'sider"}, dbname => $quiet);
refuses(
	$node, q{SET ROLE "out'sider"; CALL snowflake_migrate.fill('{app.tags}')},
	'42501',
	'a role that was not granted it cannot begin',
	dbname => $quiet);
query(
	$node, q{
	GRANT INSERT, UPDATE, DELETE ON snowflake_migrate.migration, snowflake_migrate.shadow, snowflake_migrate.filling, snowflake_migrate.step
		TO depot_app, "out'sider";
	CREATE TRIGGER stamp BEFORE UPDATE ON app.roles FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()},
	dbname => $quiet);
refuses(
	$node, q{SET ROLE depot_app; CALL snowflake_migrate.fill('{app.roles}')},
	'55000', 'a trigger that would fire is in the way',
	dbname => $quiet,
	hint => qr/^GRANT SET ON PARAMETER session_replication_role TO depot_app;$/);
query(
	$node,
	'GRANT SET ON PARAMETER session_replication_role TO depot_app, "out\'sider"',
	dbname => $quiet);
query($node, q{SET ROLE depot_app; CALL snowflake_migrate.fill('{app.roles}')}, dbname => $quiet);
refuses(
	$node,
	q{SET ROLE depot_app; CALL snowflake_migrate.fill('{app.users}')},
	'55000',
	'one at a time',
	dbname => $quiet,
	message => qr/^another migration has begun$/);

# Nobody runs what another role has recorded

foreach my $call ('undo()', 'swap()', 'finish()', q{fill('{app.roles}')})
{
	refuses(
		$node, "CALL snowflake_migrate.$call", '42501', "$call of another role's migration",
		dbname => $quiet,
		hint => qr/^SET ROLE depot_app first/);
}
query($node, 'SET ROLE depot_app; CALL snowflake_migrate.undo()', dbname => $quiet);
my $planted = q{INSERT INTO snowflake_migrate.step (kind, place, statement};
query(
	$node,
	qq{SET ROLE "out'sider"; $planted) VALUES ('undo', 1, 'ALTER ROLE "out''sider" SUPERUSER')},
	dbname => $quiet);
refuses(
	$node, $fill, '42501', 'a step that somebody has planted',
	dbname => $quiet,
	message => qr/^the migration belongs to role "out'sider"$/);
foreach my $sql (
	qq{$planted, written_by) VALUES ('undo', 2, 'SELECT 1', 'postgres')},
	q{UPDATE snowflake_migrate.step SET written_by = 'postgres'},
	qq{SET session_replication_role = replica; $planted, written_by) VALUES ('undo', 2, 'SELECT 1', 'postgres')}
  )
{
	refuses(
		$node, qq{SET ROLE "out'sider"; $sql},
		'42501',
		'not in the name of somebody else',
		dbname => $quiet);
}

done_testing();
