# Logical replication in both directions between servers with different node
# IDs that insert at the same time: both end with the same rows, without a
# conflict, and each ID says on which of them its row was inserted.  A
# publication of all tables leaves the subscriber's reservation alone.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my %node_id = (ada => 1, bob => 2);
my %other = (ada => 'bob', bob => 'ada');
my %node;

# What SQL returns on one of them: in the database of the application, and in that of the keeper
sub shop { return query($node{ $_[0] }, $_[1], dbname => 'shop'); }
sub kept { return query($node{ $_[0] }, $_[1]); }

foreach my $name ('ada', 'bob')
{
	$node{$name} = new_node(
		$name,
		node_id => $node_id{$name},
		init => { allows_streaming => 'logical' },
		conf => q{
timezone = 'UTC'
max_logical_replication_workers = 16
wal_retrieve_retry_interval = 100ms
});
	$node{$name}->start;
	kept($name, 'CREATE DATABASE shop');
}

# The type has another OID on one server.
shop('bob', 'CREATE TABLE first (n integer); DROP TABLE first');
foreach my $name ('ada', 'bob')
{
	shop(
		$name, q{
		CREATE EXTENSION snowflake;
		CREATE DOMAIN order_id AS snowflake;
		CREATE TABLE rows_of_ada (
			id snowflake PRIMARY KEY DEFAULT snowflake_next(),
			number bigint NOT NULL DEFAULT snowflake_next(),
			ids snowflake[] DEFAULT ARRAY[snowflake_next(), NULL],
			checked order_id DEFAULT snowflake_next(),
			made timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'twitter')) STORED,
			note text);
		CREATE TABLE rows_of_bob (LIKE rows_of_ada INCLUDING ALL);
		CREATE VIEW all_rows AS TABLE rows_of_ada UNION ALL TABLE rows_of_bob});
	wait_for_mint($node{$name}, dbname => 'shop');

	# what is there before the subscription is copied
	shop($name,
		"INSERT INTO rows_of_$name (note) SELECT 'before ' || n FROM generate_series(1, 500) n");
}

# ada receives as text, bob in binary
shop($_, "CREATE PUBLICATION own FOR TABLE rows_of_$_") foreach 'ada', 'bob';
foreach my $name ('ada', 'bob')
{
	my $connstr = $node{ $other{$name} }->connstr . ' dbname=shop';
	my $binary = $name eq 'bob' ? 'true' : 'false';

	shop($name,
		"CREATE SUBSCRIPTION ${name}_own CONNECTION '$connstr' PUBLICATION own WITH (binary = $binary)"
	);
}

# Wait until everything that was committed on both is on both.
sub catch_up
{
	my ($dbname) = @_;

	foreach my $name ('ada', 'bob')
	{
		wait_for_query(
			$node{$name}, q{
			SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate NOT IN ('s', 'r')},
			dbname => $dbname);
	}
	foreach my $name ('ada', 'bob')
	{
		my $subscriptions =
		  query($node{ $other{$name} }, q{SELECT subname FROM pg_subscription}, dbname => $dbname);
		$node{$name}->wait_for_catchup($_) foreach split /\n/, $subscriptions;
	}
	return;
}

catch_up('shop');

# Rows on both, each in a transaction of its own
my @sessions = map {
	start_statement(
		$node{$_}->background_psql('shop', on_error_stop => 0), qq{
		DO \$\$
		BEGIN
			FOR n IN 1 .. 500 LOOP
				INSERT INTO rows_of_$_ (note) VALUES ('of $_');
				COMMIT;
			END LOOP;
		END \$\$})
} 'ada', 'bob';
foreach my $session (@sessions)
{
	finish_statement($session);
	is($session->{stderr}, '', 'every insert succeeded');
	$session->quit;
}

# Changes find their row by its key.
foreach my $name ('ada', 'bob')
{
	shop(
		$name, qq{
		UPDATE rows_of_$name SET note = 'changed', ids = ids || id WHERE note = 'before 7';
		UPDATE rows_of_$name SET id = snowflake_next() WHERE note = 'before 8';
		DELETE FROM rows_of_$name WHERE note = 'before 9'});
}
catch_up('shop');

my $contents = q{
	SELECT count(*), count(DISTINCT id), count(DISTINCT number), count(DISTINCT checked),
		   md5(string_agg(r::text, ',' ORDER BY id)) FROM all_rows r};
my $of_ada = shop('ada', $contents);
my ($rows, @distinct) = split /\|/, $of_ada;
is($of_ada, shop('bob', $contents), 'the same rows on both servers');
is("@distinct[0 .. 2]", "$rows $rows $rows", "$rows rows, each with IDs of its own");

# where and when a row was born, on the server where it was not
foreach my $name ('ada', 'bob')
{
	my $id = $node_id{$name};

	is( shop(
			$other{$name}, qq{
			SELECT count(*), bool_and(note = 'of $name'),
				(SELECT count(*) FROM all_rows WHERE note = 'of $name' AND snowflake_node(id) <> $id)
			  FROM all_rows
			 WHERE snowflake_node(id) = $id AND snowflake_node(ids[1]) = $id AND note LIKE 'of %'}),
		'500|t|0',
		"$other{$name} sees which rows were born on $name");
}

# A publication of all tables includes the reservation, if it is in that
# database.  The subscriber drops that, and mints with its own node ID as before.
foreach my $name ('ada', 'bob')
{
	kept(
		$name, q{
		CREATE EXTENSION snowflake;
		CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next())}
	);
}
kept('ada', 'CREATE PUBLICATION everything FOR ALL TABLES');
my $connstr = $node{ada}->connstr . ' dbname=postgres';
kept('bob', "CREATE SUBSCRIPTION everything CONNECTION '$connstr' PUBLICATION everything");
kept('ada', 'INSERT INTO orders DEFAULT VALUES');
catch_up('postgres');
my $newest = kept(
	'bob', q{
	INSERT INTO orders DEFAULT VALUES;
	SELECT max(id) FROM orders WHERE snowflake_node(id) = 2});
is( kept(
		'bob', q{
		SELECT string_agg(snowflake_node(id)::text, ' ' ORDER BY snowflake_node(id)) FROM orders}
	),
	'1 2',
	'a publication of all tables');
is(kept('bob', 'SELECT string_agg(node::text, $$ $$) FROM snowflake_keeper.reservation'),
	'2', 'the subscriber has dropped the publisher\'s reservation');

# The trigger of doc/running.md tells on the subscriber that a row of another server has its own node
# ID; it says nothing about other rows, nor about those that are inserted there.
my ($recipe) = slurp_file("$FindBin::RealBin/../../doc/running.md") =~
  /```sql\n(CREATE FUNCTION own_node_arrived\(\).*?)```/s;
kept('bob', $recipe // die 'doc/running.md has no trigger');
my $twin = kept('ada',
	q{INSERT INTO orders DEFAULT VALUES; INSERT INTO orders VALUES (make_snowflake(now(), 2, 0)) RETURNING id}
);
kept('bob', 'INSERT INTO orders DEFAULT VALUES');
catch_up('postgres');
my @told = slurp_file($node{bob}->logfile) =~
  /WARNING:  row (\d+) of table public\.orders came from another server, but has the node ID of this one/g;
is("@told", $twin, 'the log of the subscriber has the row with its own node ID');

# Rows of the reservation that have the subscriber's own node ID do not change its own.
kept(
	'ada', q{
	INSERT INTO snowflake_keeper.reservation SELECT 2, layout, now() - interval '1 year'
		FROM snowflake_keeper.reservation WHERE node = 1;
	UPDATE snowflake_keeper.reservation SET reserved_until = now() - interval '2 years' WHERE node = 2;
	DELETE FROM snowflake_keeper.reservation WHERE node = 2});
catch_up('postgres');
is( kept(
		'bob',
		"SELECT reserved_until >= snowflake_timestamp('$newest') FROM snowflake_keeper.reservation WHERE node = 2"
	),
	't',
	'also those of the same node ID, which would lower its own');

# A subscription whose owner is no superuser goes on as well, with rows of the reservation.
kept('bob',
	'CREATE ROLE subscriber LOGIN SUPERUSER; ALTER SUBSCRIPTION everything OWNER TO subscriber');
kept('bob', 'ALTER SUBSCRIPTION everything SET (password_required = false, run_as_owner = true)')
  if $node{bob}->pg_version >= 16;
kept(
	'bob', q{
	GRANT pg_read_all_data, pg_write_all_data TO subscriber;
	ALTER ROLE subscriber NOSUPERUSER});
kept(
	'ada', q{
	INSERT INTO snowflake_keeper.reservation SELECT 3, layout, now()
		FROM snowflake_keeper.reservation WHERE node = 1;
	DELETE FROM snowflake_keeper.reservation WHERE node = 3;
	INSERT INTO orders DEFAULT VALUES});
catch_up('postgres');
is(kept('bob', 'SELECT string_agg(node::text, $$ $$) FROM snowflake_keeper.reservation'),
	'2', 'a subscription whose owner is no superuser goes on, and drops such rows too');

# No conflict: neither an error nor a row that was skipped.  From 18 on, the rows
# of the reservation that the subscriber drops count as conflicts.
foreach my $name ('ada', 'bob')
{
	is( log_count(
			$node{$name},
			'conflict detected on relation "(?!snowflake_keeper\.reservation")|duplicate key|did not find row|binary data has'
		),
		0,
		"$name: no conflict in the log");
}

$node{bob}->stop;
$node{ada}->stop;
done_testing();
