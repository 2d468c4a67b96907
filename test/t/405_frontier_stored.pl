# A frontier that is stored in a table is right for every reader of the row: on a standby,
# and on a subscriber as soon as both tables are synchronized.  If logical replication's
# apply worker mints, for a column that the publisher does not have, it holds the frontier
# back like any session, and so does a transaction that it prepares.
# versions: all

use SnowflakeTest;

my $primary = minting_node(
	'primary',
	init => { allows_streaming => 'logical' },
	conf => q{
	snowflake.max_wait = '1min'
	autovacuum = off
	max_prepared_transactions = 1
});

sub sql { return query($primary, @_); }

sql(q{
	CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), customer text);
	CREATE VIEW settled AS SELECT * FROM orders WHERE id <= snowflake_frontier();
	CREATE TABLE frontiers (node int PRIMARY KEY, up_to bigint NOT NULL) WITH (fillfactor = 50);
	CREATE PUBLICATION p FOR TABLE orders, frontiers;
	INSERT INTO frontiers SELECT snowflake_node(id), id FROM snowflake_next() id});

my $store =
  q{UPDATE frontiers SET up_to = snowflake_frontier() WHERE node = 1 AND up_to < snowflake_frontier()};
my $read = q{SELECT coalesce(string_agg(customer, ' ' ORDER BY id), '') FROM orders
	WHERE id > 0 AND id <= (SELECT up_to FROM frontiers WHERE node = 1)};

my $standby = standby_of($primary, 'standby');

sub insert { return sql("INSERT INTO orders (customer) VALUES ('$_[0]')"); }

# What is read by the stored frontier, on the standby
sub standby_reads
{
	$primary->wait_for_catchup($standby);
	return query($standby, $read);
}

# Rows that are still open, below and above
insert('a');
my $open = session($primary, q{BEGIN; INSERT INTO orders (customer) VALUES ('b')});
insert('c');
sql($store);
is(standby_reads(), 'a', 'a standby reads up to what is stored');
$open->query_safe('COMMIT');
is(standby_reads(), 'a', 'a row of before stays right');
sql($store);
is(standby_reads(), 'a b c', 'and the next one has the rest');

# A transaction of the standby that outlives the promotion has a snapshot of recovery,
# of which nothing is known.
my $old = session($standby, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM orders');

# A subscriber that has no extension: the frontier comes first, and the table later.
insert('d');
sql($store);
my $subscriber = new_node('subscriber', node_id => 3, conf => "max_prepared_transactions = 1\n");
$subscriber->start;
query(
	$subscriber, q{
	CREATE TABLE orders (id bigint PRIMARY KEY, customer text);
	CREATE TABLE frontiers (node int PRIMARY KEY, up_to bigint NOT NULL)});

sub subscribe
{
	my $connstr = $primary->connstr . ' dbname=postgres';

	return query($subscriber, "CREATE SUBSCRIPTION s CONNECTION '$connstr' PUBLICATION $_[0]");
}

my $lock = $subscriber->background_psql('postgres');
$lock->query_safe('BEGIN; LOCK TABLE orders IN SHARE MODE');
subscribe('p');
my $ready = q{SELECT count(*) = 2 AS ready FROM pg_subscription_rel
	WHERE srrelid IN ('orders'::regclass, 'frontiers'::regclass) AND srsubstate = 'r'};
wait_for_query($subscriber, 'SELECT count(*) = 1 FROM frontiers');
is(query($subscriber, "SELECT ($read), ready FROM ($ready) r"),
	'|f', 'while the table is copied, rows below the frontier are not there, and it says so');
$lock->query_safe('COMMIT');
wait_for_query($subscriber, $ready);
is(query($subscriber, $read), 'a b c d', 'when both are ready, all are');
$open->query_safe(q{BEGIN; INSERT INTO orders (customer) VALUES ('e')});
insert('f');
sql($store);
insert('g');
$primary->wait_for_catchup('s');
is(query($subscriber, $read), 'a b c d', 'then it goes on in order');
$open->query_safe('COMMIT');
$open->quit;
sql($store);

# The subscriber mints.
query($subscriber, 'DROP SUBSCRIPTION s');
sql('CREATE TABLE incoming (n int PRIMARY KEY); CREATE PUBLICATION incoming FOR TABLE incoming');
query(
	$subscriber, q{
	CREATE EXTENSION snowflake;
	CREATE TABLE incoming (n int PRIMARY KEY, id snowflake UNIQUE DEFAULT snowflake_next());
	CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;
	CREATE TRIGGER linger AFTER INSERT ON incoming FOR EACH ROW
		WHEN (NEW.n < 100) EXECUTE FUNCTION linger();
	ALTER TABLE incoming ENABLE ALWAYS TRIGGER linger});
wait_for_mint($subscriber);
subscribe('incoming WITH (two_phase)');
$subscriber->wait_for_subscription_sync($primary, 's');

sub tail
{
	return query($subscriber,
		q{SELECT coalesce(string_agg(n::text, ' ' ORDER BY id), '') FROM incoming WHERE id <= snowflake_frontier()}
	);
}

$lock->query_safe('SELECT pg_advisory_lock(1)');
sql('INSERT INTO incoming SELECT generate_series(1, 3)');
wait_for_query($subscriber,
	q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
query($subscriber, 'INSERT INTO incoming VALUES (100)');
is(tail(), '', 'what the apply worker has minted and not committed holds the frontier back');
$lock->query_safe('SELECT pg_advisory_unlock(1)');
$lock->quit;
$primary->wait_for_catchup('s');
is(join(' ', sort { $a <=> $b } split / /, tail()), '1 2 3 100', 'then all rows come');

# It prepares transactions as well, and not by a command.
wait_for_query($subscriber, q{SELECT subtwophasestate = 'e' FROM pg_subscription});
sql(q{BEGIN; INSERT INTO incoming VALUES (200); PREPARE TRANSACTION 'p'});
$primary->wait_for_catchup('s');
query($subscriber, 'INSERT INTO incoming VALUES (201)');
unlike(tail(), qr/20/, 'what the worker has prepared holds the frontier back');
sql(q{COMMIT PREPARED 'p'});
$primary->wait_for_catchup('s');
like(tail(), qr/200 201$/, 'until it is committed');
query($subscriber, 'DROP SUBSCRIPTION s');
$subscriber->stop;

# The promotion
$primary->wait_for_catchup($standby);
$primary->stop;
reload_with($standby, 'snowflake.node_id = 2');
$standby->promote;
wait_for_mint($standby);
is(query($standby, $read), 'a b c d e f g', 'after a promotion the stored row is right');
is($old->query_safe('SELECT snowflake_frontier() IS NULL'),
	't', 'a snapshot that was taken in recovery has none');
is($old->query_safe('SELECT count(*) FROM settled'), '0', 'and so no rows');
$old->quit;

done_testing();
