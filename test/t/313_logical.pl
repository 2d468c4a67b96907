# Logical replication in both directions between servers with different node IDs that insert at the
# same time: both end with the same rows, without a conflict, and each ID says on which of them its
# row was inserted.  A publication of all tables leaves the subscriber's reservation alone.
# versions: all

use SnowflakeTest;

my %node_id = (ada => 1, bob => 2);
my %other = (ada => 'bob', bob => 'ada');
my %node;

# What SQL returns on one of them: in the database of the application, and in that of the keeper
sub shop { return query($node{ $_[0] }, $_[1], dbname => 'shop'); }
sub kept { return query($node{ $_[0] }, $_[1]); }

# Have one of them subscribe to what the other one publishes in a database.
sub subscribe
{
	my ($name, $dbname, $publication, $options) = @_;
	my $connstr = $node{ $other{$name} }->connstr . " dbname=$dbname";

	query(
		$node{$name},
		"CREATE SUBSCRIPTION ${name}_$publication CONNECTION '$connstr' PUBLICATION $publication $options",
		dbname => $dbname);
	return;
}

# Wait until everything that was committed on both is on both.
sub catch_up
{
	my ($dbname) = @_;
	my $copied = q{SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate NOT IN ('s', 'r')};

	wait_for_query($node{$_}, $copied, dbname => $dbname) foreach 'ada', 'bob';
	foreach my $name ('ada', 'bob')
	{
		my $subscriptions =
		  query($node{ $other{$name} }, q{SELECT subname FROM pg_subscription}, dbname => $dbname);
		$node{$name}->wait_for_catchup($_) foreach split /\n/, $subscriptions;
	}
	return;
}

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
	shop($name, "CREATE PUBLICATION own FOR TABLE rows_of_$name");
}

# ada receives as text, bob in binary
subscribe('ada', 'shop', 'own', '');
subscribe('bob', 'shop', 'own', 'WITH (binary)');
catch_up('shop');

# Rows on both, and changes, which find their row by its key
my @sessions = map {
	start_statement(
		$node{$_}->background_psql('shop', on_error_stop => 0), qq{
		INSERT INTO rows_of_$_ (note) SELECT 'of $_' FROM generate_series(1, 500);
		UPDATE rows_of_$_ SET note = 'changed', ids = ids || id WHERE note = 'before 7';
		UPDATE rows_of_$_ SET id = snowflake_next() WHERE note = 'before 8';
		DELETE FROM rows_of_$_ WHERE note = 'before 9'})
} 'ada', 'bob';
foreach my $session (@sessions)
{
	finish_statement($session);
	is($session->{stderr}, '', 'every statement succeeds');
	$session->quit;
}
catch_up('shop');

my $contents = q{
	SELECT count(*), count(DISTINCT id), count(DISTINCT number), count(DISTINCT checked),
		   md5(string_agg(r::text, ',' ORDER BY id)) FROM all_rows r};
my $of_ada = shop('ada', $contents);
like($of_ada, qr/^1998\|1998\|1998\|1998\|/, '1,998 rows, each with IDs of its own');
is($of_ada, shop('bob', $contents), 'the same on both servers');

# where a row was born, on the server where it was not
is( shop(
		$other{$_}, qq{
		SELECT count(*), bool_and(snowflake_node(id) = $node_id{$_} AND snowflake_node(ids[1]) = $node_id{$_})
		  FROM rows_of_$_}),
	'999|t',
	"$other{$_} sees which rows were born on $_") foreach 'ada', 'bob';

# A publication of all tables includes the reservation, if it is in that
# database.  The subscriber drops that, and mints with its own node ID as before.
kept($_,
	'CREATE EXTENSION snowflake; CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next())'
) foreach 'ada', 'bob';
kept('ada', 'CREATE PUBLICATION everything FOR ALL TABLES');
subscribe('bob', 'postgres', 'everything', '');
kept('ada', 'INSERT INTO orders DEFAULT VALUES');
catch_up('postgres');
my $newest = kept(
	'bob', q{
	INSERT INTO orders DEFAULT VALUES;
	SELECT max(id) FROM orders WHERE snowflake_node(id) = 2});
is(kept('bob', 'SELECT array_agg(snowflake_node(id) ORDER BY snowflake_node(id)) FROM orders'),
	'{1,2}', 'a publication of all tables');

# The trigger of doc/running.md tells on the subscriber that a row of another server has its own node
# ID; it says nothing about other rows, nor about those that are inserted there.
my ($recipe) =
  slurp_file('doc/running.md') =~ /```sql\n(CREATE FUNCTION own_node_arrived\(\).*?)```/s;
kept('bob', $recipe // die 'doc/running.md has no trigger');
my $twin = kept('ada',
	q{INSERT INTO orders DEFAULT VALUES; INSERT INTO orders VALUES (make_snowflake(now(), 2, 0)) RETURNING id}
);
kept('bob', 'INSERT INTO orders DEFAULT VALUES');
catch_up('postgres');
my @told = slurp_file($node{bob}->logfile) =~
  /WARNING:  row (\d+) of table public\.orders came from another server, but has the node ID of this one/g;
is("@told", $twin, 'the log of the subscriber has the row with its own node ID');

# The subscriber drops the publisher's rows of the reservation: also if they have its own node ID, and
# would lower its own, and under a subscription whose owner is no superuser.
foreach my $node_id (2, 3)
{
	if ($node_id == 3)
	{
		kept('bob', $_)
		  foreach 'CREATE ROLE subscriber LOGIN SUPERUSER',
		  'ALTER SUBSCRIPTION bob_everything OWNER TO subscriber',
		  $node{bob}->pg_version >= 16
		  ? 'ALTER SUBSCRIPTION bob_everything SET (password_required = false, run_as_owner = true)'
		  : (),
		  'GRANT pg_read_all_data, pg_write_all_data TO subscriber',
		  'ALTER ROLE subscriber NOSUPERUSER';
	}
	kept(
		'ada', qq{
		INSERT INTO snowflake_keeper.reservation SELECT $node_id, layout, now() - interval '1 year'
			FROM snowflake_keeper.reservation WHERE node = 1;
		UPDATE snowflake_keeper.reservation SET reserved_until = now() - interval '2 years' WHERE node = $node_id;
		DELETE FROM snowflake_keeper.reservation WHERE node = $node_id;
		INSERT INTO orders DEFAULT VALUES});
	catch_up('postgres');
	is( kept(
			'bob',
			"SELECT node, reserved_until >= snowflake_timestamp('$newest') FROM snowflake_keeper.reservation"
		),
		'2|t',
		"the subscriber drops rows of node ID $node_id");
}

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

done_testing();
