# A frontier that is stored in a table is right for whoever sees the row: on a standby, and
# on a subscriber as soon as both tables are there.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node wait_for_mint);
use PostgreSQL::Test::Cluster;
use Test::More;

my $primary = new_node(
	'primary',
	init => { allows_streaming => 'logical' },
	conf => "snowflake.max_wait = '1min'\nautovacuum = off\n");
$primary->start;
$primary->safe_psql(
	'postgres', q{
	CREATE EXTENSION snowflake;
	CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), customer text);
	CREATE VIEW settled AS SELECT * FROM orders WHERE id <= snowflake_frontier();
	CREATE TABLE frontiers (node int PRIMARY KEY, up_to bigint NOT NULL) WITH (fillfactor = 50);
});
wait_for_mint($primary);
$primary->safe_psql('postgres',
	q{INSERT INTO frontiers SELECT snowflake_node(id), id FROM snowflake_next() id});

my $store =
  q{UPDATE frontiers SET up_to = snowflake_frontier() WHERE node = 1 AND up_to < snowflake_frontier()};
my $read = q{SELECT coalesce(string_agg(customer, ' ' ORDER BY id), '') FROM orders
	WHERE id > 0 AND id <= (SELECT up_to FROM frontiers WHERE node = 1)};

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

sub insert
{
	my ($customer) = @_;

	$primary->safe_psql('postgres', "INSERT INTO orders (customer) VALUES ('$customer')");
	return;
}

# Rows that are still open, below and above
insert('a');
my $open = $primary->background_psql('postgres');
$open->query_safe(q{BEGIN; INSERT INTO orders (customer) VALUES ('b')});
insert('c');
$primary->safe_psql('postgres', $store);
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', $read), 'a', 'a standby reads up to what is stored');
is(error_of($standby, 'SELECT * FROM settled')->{sqlstate},
	'25006', 'a view that asks is refused there, and misses nothing');
$open->query_safe('COMMIT');
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', $read), 'a', 'a row of before stays right');
$primary->safe_psql('postgres', $store);
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', $read), 'a b c', 'and the next one has the rest');

# While it stands still, storing it writes nothing; otherwise one row, in place.
my $wal = q{SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')};
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->safe_psql('postgres', $store);
my $before = $primary->safe_psql('postgres', $wal);
$primary->safe_psql('postgres', "$store; $store; $store");
cmp_ok($primary->safe_psql('postgres', $wal) - $before,
	'<', 200, 'storing what did not move writes nothing');
$before = $primary->safe_psql('postgres', $wal);
$primary->safe_psql('postgres',
	join(';', ("DO 'BEGIN PERFORM snowflake_next(); END'", $store) x 50));
note 'a store writes '
  . int(($primary->safe_psql('postgres', $wal) - $before) / 50)
  . ' bytes of WAL';
$primary->poll_query_until(
	'postgres',
	q{SELECT pg_stat_force_next_flush() IS NOT NULL AND n_tup_hot_upd >= 50 AND n_tup_upd - n_tup_hot_upd <= 2
		FROM pg_stat_user_tables WHERE relname = 'frontiers'}) or die 'updates are not HOT';
pass('updates are HOT');

# A transaction of the standby that outlives the promotion has a snapshot of recovery,
# of which nothing is known.
my $old = $standby->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM orders');

# A subscriber that has no extension: the frontier comes first, and the table later.
insert('d');
$primary->safe_psql('postgres', $store);
$primary->safe_psql('postgres', 'CREATE PUBLICATION p FOR TABLE orders, frontiers');
my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
$subscriber->init;
$subscriber->start;
$subscriber->safe_psql(
	'postgres', q{
	CREATE TABLE orders (id bigint PRIMARY KEY, customer text);
	CREATE TABLE frontiers (node int PRIMARY KEY, up_to bigint NOT NULL)});
my $lock = $subscriber->background_psql('postgres');
$lock->query_safe('BEGIN; LOCK TABLE orders IN SHARE MODE');
$subscriber->safe_psql(
	'postgres',
	sprintf(q{CREATE SUBSCRIPTION s CONNECTION '%s dbname=postgres' PUBLICATION p},
		$primary->connstr));
my $ready = q{SELECT count(*) = 2 AS ready FROM pg_subscription_rel
	WHERE srrelid IN ('orders'::regclass, 'frontiers'::regclass) AND srsubstate = 'r'};
$subscriber->poll_query_until('postgres', 'SELECT count(*) = 1 FROM frontiers')
  or die 'the frontier is not copied';
is($subscriber->safe_psql('postgres', $read),
	'', 'while the table is copied, rows below the frontier are not there');
is($subscriber->safe_psql('postgres', $ready), 'f', 'and the subscription says so');
$lock->query_safe('COMMIT');
$lock->quit;
$subscriber->poll_query_until('postgres', $ready) or die 'the tables do not get ready';
is($subscriber->safe_psql('postgres', $read), 'a b c d', 'when both are ready, all are');
$open->query_safe(q{BEGIN; INSERT INTO orders (customer) VALUES ('e')});
insert('f');
$primary->safe_psql('postgres', $store);
insert('g');
$primary->wait_for_catchup('s');
is($subscriber->safe_psql('postgres', $read), 'a b c d', 'then it goes on in order');
$open->query_safe('COMMIT');
$open->quit;
$primary->safe_psql('postgres', $store);
$primary->wait_for_catchup('s');
is($subscriber->safe_psql('postgres', $read), 'a b c d e f g', 'to the end');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION s');
$subscriber->stop;

# The promotion
$primary->wait_for_catchup($standby);
$primary->stop;
$standby->append_conf('postgresql.conf', 'snowflake.node_id = 2');
$standby->reload;
$standby->promote;
wait_for_mint($standby);
is( $standby->safe_psql('postgres', $read),
	'a b c d e f g',
	'after a promotion the stored row is right');
is( $standby->safe_psql('postgres', q{SELECT string_agg(customer, ' ' ORDER BY id) FROM settled}),
	'a b c d e f g',
	'and so is the frontier of the new primary');
is($old->query_safe('SELECT snowflake_frontier() IS NULL'),
	't', 'a snapshot that was taken in recovery has none');
is($old->query_safe('SELECT count(*) FROM settled'), '0', 'and so no rows');
$old->quit;

$standby->stop;
done_testing();
