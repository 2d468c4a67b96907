# An application is converted while it is used: pgbench inserts, updates, deletes and reads
# through views all the while, no statement of it fails, nothing of the catalogs is lost, no
# trigger of the application fires for rows that are filled, and each call that is killed
# goes on.  undo() gives back the schema and the data.
#
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeDepot qw(catalog difference load_depot new_depot run_file unexplained widened);
use SnowflakeTest qw(error_of new_node patience wait_until);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

srand($ENV{SNOWFLAKE_TEST_SEED} // 58);
my $node = new_node('main',
	conf =>
	  "wal_level = logical\nmax_locks_per_transaction = 512\ntimezone = 'UTC'\nautovacuum_naptime = 5s\nfsync = off"
);
$node->start;
load_depot($node);
my $widened = widened();
my $call = "CALL snowflake_migrate.fill('{app,billing}', 'bigint', '$widened', load => 0.9)";

# What the plan says about it

my $refused = error_of($node, $call, dbname => 'depot');
is($refused->{sqlstate}, '55000', 'refused as long as something is in the way');
my @online = split /\n/,
  $node->safe_psql('depot',
	"SELECT object FROM snowflake_migrate.plan('{app,billing}', 'bigint', '$widened') WHERE finding = 'online' ORDER BY object COLLATE \"C\""
  );
is( "@online",
	'column app.orders.number column app.users.badge function app.keep_history() rule orders_closing on table app.orders statements that insert without a list of columns',
	'and the plan names it');
$node->safe_psql(
	'depot', q{
	ALTER TABLE app.orders ALTER COLUMN number DROP EXPRESSION;
	ALTER TABLE app.users ALTER COLUMN badge DROP EXPRESSION;
	ALTER TABLE app.orders ENABLE RULE orders_closing});
my (undef, $error) = run_file($node, 'depot', 'mend.sql');
is($error, '', 'the application is mended first');
$node->safe_psql('depot', 'ANALYZE');
my $before = catalog($node, 'depot');
my $counts =
  q{SELECT (SELECT count(*) FROM app.audit_log), (SELECT count(*) FROM app.orders_history), (SELECT count(*) FROM app.jobs)};
my $rows =
  q{SELECT (SELECT md5(string_agg((o.id, o.customer_id, o.status)::text, ' ' ORDER BY o.id)) FROM app.orders o),
	(SELECT md5(string_agg((i.id, i.order_id)::text, ' ' ORDER BY i.id)) FROM billing.invoices i),
	(SELECT md5(string_agg((e.id, e.order_id, e.user_id)::text, ' ' ORDER BY e.id)) FROM app.events e)};
my ($counted, $had) = map { $node->safe_psql('depot', $_) } $counts, $rows;

# Run build()'s statements one by one
sub build
{
	my ($dbname) = @_;

	return $node->psql($dbname, q{SELECT snowflake_migrate.build() \gexec}, on_error_stop => 0);
}

# Killed at random points, and called again

my $targets = "'{app.orders,app.customers,app.tags}'";
my $killed = new_depot($node, 'killed');

sub kill_often
{
	my ($what, $sql, $longest_ms) = @_;
	my $kills = 0;

	foreach (1 .. 20)
	{
		my ($out, $err) = ('', '');
		my $run;
		{
			local %ENV = $node->_get_env();
			$run = IPC::Run::start(
				[
					$node->installed_command('psql'),
					'-XAtq', '-d', $node->connstr($killed) . ' application_name=victim'
				],
				'<',
				\$sql,
				'>',
				\$out,
				'2>',
				\$err);
		}
		wait_until(
			"$what runs",
			sub {
				eval { $run->pump_nb };
				return !$run->pumpable
				  || $node->safe_psql('postgres',
					q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'victim'});
			});
		usleep(1000 * rand $longest_ms);
		$kills += $node->safe_psql('postgres',
			q{SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE application_name = 'victim'}
		);
		eval { $run->finish };
		die "$what: $err"
		  if $err =~ /ERROR/
		  && $err !~ /the migration is|no migration has begun|indexes and constraints/;
	}
	cmp_ok($kills, '>', 0, "$what: killed $kills times");
	return;
}

my $fill = "CALL snowflake_migrate.fill($targets, batch => 500)";
kill_often('fill', $fill, 1500);
$node->safe_psql($killed, $fill);
is($node->safe_psql($killed, $counts), $counted, 'no trigger of the application has fired');
kill_often('build', q{SELECT snowflake_migrate.build() \gexec}, 1500);
build($killed);
is($node->safe_psql($killed, 'SELECT count(*) FROM snowflake_migrate.build()'), 0, 'all is built');
kill_often('swap', 'CALL snowflake_migrate.swap()', 1000);
$node->safe_psql($killed, 'CALL snowflake_migrate.swap()');
kill_often('undo', 'CALL snowflake_migrate.undo()', 800);
$node->psql($killed, 'CALL snowflake_migrate.undo()');
is(difference($before, catalog($node, $killed)), '', 'swapped and undone: the schema is as it was');
is($node->safe_psql($killed, $rows), $had, 'and so are the rows');
$node->safe_psql($killed, $fill);
build($killed);
kill_often('undo before the swap', 'CALL snowflake_migrate.undo()', 300);
$node->psql($killed, 'CALL snowflake_migrate.undo()');
is(difference($before, catalog($node, $killed)), '', 'undone before the swap');
$node->safe_psql($killed, $fill);
build($killed);
$node->safe_psql($killed, 'CALL snowflake_migrate.swap()');
kill_often('finish', 'CALL snowflake_migrate.finish()', 300);
$node->psql($killed, 'CALL snowflake_migrate.finish()');
is(unexplained($before, catalog($node, $killed)), '', 'finished: nothing of the catalogs is lost');
is($node->safe_psql($killed, $rows), $had, 'nor of the rows');
is($node->safe_psql($killed, $counts), $counted, 'and no trigger has fired');
is( $node->safe_psql(
		$killed, q{SELECT count(*) FROM pg_class WHERE relname LIKE 'snowflake\_%\_%'}),
	0,
	'nothing is left over');

# All keys, under load

my $used = new_depot($node, 'used');
my $script = PostgreSQL::Test::Utils::tempdir() . '/load.sql';
append_to_file(
	$script, q{
\set c random(1, 10000)
\set o random(1, 50000)
\set p random(1, 3000)
\set n random(1, 2000000000)
INSERT INTO app.orders (tenant_id, customer_id, sold_by) VALUES (1, :c, 5) RETURNING id AS new_order \gset
INSERT INTO app.order_items (order_id, line_no, product_id, quantity, price) VALUES (:new_order, 1, :p, 1, 9.9);
UPDATE app.orders SET status = 'paid' WHERE id = :new_order;
UPDATE app.orders SET total = total + 1 WHERE id = :o;
UPDATE app.customers SET name = name || '' WHERE id = :c;
INSERT INTO app.tags (name) VALUES ('t' || :n) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id AS tag \gset
INSERT INTO app.taggings (tag_id, subject_type, subject_id) VALUES (:tag, 'Order', 1) ON CONFLICT DO NOTHING;
DELETE FROM app.tags WHERE id = :tag;
INSERT INTO app.events (user_id, order_id, kind) VALUES (1 + :c % 2000, :new_order, 'placed');
INSERT INTO billing.invoices (order_id, customer_id, amount) VALUES (:new_order, :c, 1);
SELECT * FROM app.order_summary WHERE id = :new_order;
SELECT count(*) FROM app.open_orders WHERE id = :o;
SELECT * FROM app.my_orders WHERE id = :new_order;
SELECT app.order_total(:o);
UPDATE app.order_status SET status = 'view' WHERE id = :new_order;
});
my ($out, $err) = ('', '');
my $log = PostgreSQL::Test::Utils::tempdir() . '/load';
my $load;
{
	local %ENV = $node->_get_env();
	$load = IPC::Run::start(
		[
			$node->installed_command('pgbench'),
			'-n', '-c', '3', '-T', '1800', '--max-tries=0', '-l', "--log-prefix=$log", '-f',
			$script, $node->connstr($used)
		],
		'>',
		\$out,
		'2>',
		\$err);
}
wait_until('there is load',
	sub { $node->safe_psql($used, 'SELECT count(*) FROM app.orders') > 50010 });
$node->safe_psql($used, $call, timeout => 1800);
is((build($used))[2], '', 'indexes and constraints are made under load');
$node->safe_psql($used, 'CALL snowflake_migrate.swap(attempts => 1000)', timeout => 1800);
my $locked = $node->safe_psql($used,
	q{SELECT round(1000 * extract(epoch FROM locked)) FROM snowflake_migrate.migration});
note("the swap has locked the tables for $locked ms");
cmp_ok($locked, '<', patience(1) * 2000, 'the swap is short');
my $orders = $node->safe_psql($used, 'SELECT count(*) FROM app.orders');
wait_until(
	'there is load after the swap',
	sub {
		eval { $load->pump_nb };
		die $err if $err =~ /abort/;
		$node->safe_psql($used, 'SELECT count(*) FROM app.orders') > $orders + 10;
	});
$load->signal('TERM');
eval { $load->finish };
unlike($err, qr/ERROR|aborted/, 'no statement of the application has failed');
is( $node->safe_psql(
		$used,
		q{SELECT count(*) FILTER (WHERE id > 1::bigint << 50) > 10, count(*) FILTER (WHERE id < 1000000) > 50000 FROM app.orders}
	),
	't|t',
	'new keys are snowflakes, old ones are as they were');
is( $node->safe_psql(
		$used,
		q{SELECT count(*) FROM app.order_items i LEFT JOIN app.orders o ON o.id = i.order_id WHERE o.id IS NULL}
	),
	0,
	'no reference is lost');
is(error_of($node, 'CALL snowflake_migrate.undo()', dbname => $used)->{sqlstate},
	'22003', 'undo() refuses to lose keys that are too large for the old columns');
$node->safe_psql($used, 'CALL snowflake_migrate.finish()');

# (autovacuum has been at it)
is( unexplained(
		map {
			[ grep { !/^pg_stats/ } @$_ ]
		} $before,
		catalog($node, $used)),
	'',
	'nothing of the catalogs is lost');

# Who may

$node->safe_psql($killed, 'CREATE ROLE outsider');
is( error_of(
		$node,
		"SET ROLE outsider; CALL snowflake_migrate.fill('{app.tags}')",
		dbname => $killed)->{sqlstate},
	'42501',
	'who was not granted it cannot begin');
$node->safe_psql(
	$killed,
	q{GRANT INSERT, UPDATE, DELETE ON snowflake_migrate.migration, snowflake_migrate.shadow, snowflake_migrate.filling, snowflake_migrate.step TO depot_app;
	CREATE TRIGGER stamp BEFORE UPDATE ON app.roles FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()}
);
$refused = error_of(
	$node,
	q{SET ROLE depot_app; CALL snowflake_migrate.fill('{app.roles}')},
	dbname => $killed);
is( $refused->{hint},
	'GRANT SET ON PARAMETER session_replication_role TO depot_app;',
	'what would fire triggers is refused, with the words');
$node->safe_psql($killed, 'GRANT SET ON PARAMETER session_replication_role TO depot_app');
$node->safe_psql($killed, q{SET ROLE depot_app; CALL snowflake_migrate.fill('{app.roles}')});
is( error_of($node, q{CALL snowflake_migrate.fill('{app.users}')}, dbname => $killed)->{message},
	'another migration has begun',
	'one at a time');

$node->stop;
done_testing();
