# Logical replication in both directions between servers of different node IDs
# that insert at once: both end with the same rows, without a conflict, and each
# ID says on which of them its row was born.
# versions: all

use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(log_count new_node wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my %node_id = (ada => 1, bob => 2);
my %other = (ada => 'bob', bob => 'ada');
my %node;

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
	$node{$name}->safe_psql('postgres', 'CREATE DATABASE shop');
}

# From 16 on, a subscription can leave out what its publisher has not inserted
# itself, so that one table is replicated in both directions.  Otherwise rows
# would come back; so there is a table for each direction, and a view of both.
my $has_origin =
  $node{ada}
  ->safe_psql('postgres', q{SELECT current_setting('server_version_num')::integer >= 160000}) eq
  't';

# The type has another OID on one server, and so have its array and its domain.
$node{bob}->safe_psql('shop', 'CREATE TABLE first (n integer); DROP TABLE first');
foreach my $name ('ada', 'bob')
{
	$node{$name}->safe_psql(
		'shop', q{
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
		CREATE TABLE rows_of_both (LIKE rows_of_ada INCLUDING ALL);
		CREATE VIEW all_rows AS TABLE rows_of_ada UNION ALL TABLE rows_of_bob;
		CREATE TABLE halt (n integer);
	});
	wait_for_mint($node{$name}, dbname => 'shop');

	# what is there before the subscription is copied
	$node{$name}->safe_psql('shop',
		"INSERT INTO rows_of_$name (note) SELECT 'before ' || n FROM generate_series(1, 500) n");
}
isnt(
	$node{ada}->safe_psql('shop', q{SELECT 'snowflake'::regtype::oid}),
	$node{bob}->safe_psql('shop', q{SELECT 'snowflake'::regtype::oid}),
	'the type has another OID on each server');

# ada receives as text, bob in binary
sub subscribe
{
	my ($subscriber, $what, $options) = @_;
	my $publisher = $other{$subscriber};
	my $connstr = $node{$publisher}->connstr . ' dbname=shop';
	my $binary = $subscriber eq 'bob' ? 'true' : 'false';

	$node{$subscriber}->safe_psql(
		'shop', qq{
		CREATE SUBSCRIPTION ${subscriber}_$what CONNECTION '$connstr'
			PUBLICATION $what WITH (binary = $binary $options)});
	return;
}

foreach my $name ('ada', 'bob')
{
	$node{$name}->safe_psql(
		'shop',
		qq{
		CREATE PUBLICATION own FOR TABLE rows_of_$name;
		CREATE PUBLICATION shared FOR TABLE rows_of_both});
}
foreach my $name ('ada', 'bob')
{
	subscribe($name, 'own', '');
	subscribe($name, 'shared', ', copy_data = false, origin = none')
	  if $has_origin;
}

# Wait until everything that was committed on both is on both.
sub catch_up
{
	my ($dbname) = @_;

	foreach my $name ('ada', 'bob')
	{
		$node{$name}->poll_query_until(
			$dbname, q{
			SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate NOT IN ('s', 'r')}
		) or die 'timed out waiting for the initial copies';
	}
	foreach my $name ('ada', 'bob')
	{
		my $subscriptions = $node{ $other{$name} }
		  ->safe_psql($dbname, q{SELECT subname FROM pg_subscription ORDER BY 1});
		$node{$name}->wait_for_catchup($_) foreach split /\n/, $subscriptions;
	}
	return;
}

catch_up('shop');

# Sessions that insert row after row, each in a transaction of its own, until
# they are told to halt.
my @tables = ('own', $has_origin ? 'both' : ());
my @sessions;
foreach my $name ('ada', 'bob')
{
	foreach my $table (@tables, @tables)
	{
		my $target = 'rows_of_' . ($table eq 'own' ? $name : 'both');
		my $session = { errors => '' };

		local %ENV = $node{$name}->_get_env();
		$session->{run} = IPC::Run::start(
			[
				$node{$name}->installed_command('psql'), '-XAtq', '-d',
				$node{$name}->connstr('shop'), '-c', qq{
				DO \$\$
				BEGIN
					FOR n IN 1 .. 1000000 LOOP
						INSERT INTO $target (note) VALUES ('of $name');
						COMMIT;
						EXIT WHEN EXISTS (SELECT FROM halt);
					END LOOP;
				END \$\$}
			],
			'2>',
			\$session->{errors});
		push @sessions, $session;
	}
}

# They go on until each server has rows that the other has inserted meanwhile,
# and then some of its own after that.
foreach my $round (1, 2)
{
	foreach my $name ('ada', 'bob')
	{
		my $tables =
		  $has_origin
		  ? '(TABLE all_rows UNION ALL TABLE rows_of_both)'
		  : 'all_rows';
		my $count = 100 * $round;

		$node{$name}->poll_query_until(
			'shop', qq{
			SELECT count(*) FILTER (WHERE note = 'of ada') >= $count
			   AND count(*) FILTER (WHERE note = 'of bob') >= $count FROM $tables rows}
		) or die "timed out waiting for rows on $name";
	}
}
$node{$_}->safe_psql('shop', 'INSERT INTO halt VALUES (1)') foreach 'ada', 'bob';
foreach my $session (@sessions)
{
	$session->{run}->finish;
	is($session->{errors}, '', 'every insert succeeded');
}

# Changes find their row by its key.
foreach my $name ('ada', 'bob')
{
	$node{$name}->safe_psql(
		'shop', qq{
		UPDATE rows_of_$name SET note = 'changed', ids = ids || id WHERE note = 'before 7';
		UPDATE rows_of_$name SET id = snowflake_next() WHERE note = 'before 8';
		DELETE FROM rows_of_$name WHERE note = 'before 9'});
}
catch_up('shop');

foreach my $view ('all_rows', $has_origin ? 'rows_of_both' : ())
{
	my $contents = qq{
		SELECT count(*), count(DISTINCT id), count(DISTINCT number), count(DISTINCT checked),
			   md5(string_agg(r::text, ',' ORDER BY id)) FROM $view r};
	my $of_ada = $node{ada}->safe_psql('shop', $contents);
	my ($rows, @distinct) = split /\|/, $of_ada;

	is($of_ada, $node{bob}->safe_psql('shop', $contents), "$view: the same rows on both servers");
	is("@distinct[0 .. 2]", "$rows $rows $rows", "$view: $rows rows, each with IDs of its own");

	# where and when a row was born, on the server where it was not
	foreach my $name ('ada', 'bob')
	{
		is( $node{ $other{$name} }->safe_psql(
				'shop', qq{
				SELECT count(*) >= 100, count(*) = count(*) FILTER (WHERE note = 'of $name')
				  FROM $view
				 WHERE snowflake_node(id) = $node_id{$name}
				   AND snowflake_node(number::snowflake) = $node_id{$name}
				   AND snowflake_node(ids[1]) = $node_id{$name}
				   AND snowflake_node(checked) = $node_id{$name}
				   AND made = \@@ id AND note LIKE 'of %'})
			  . $node{ $other{$name} }->safe_psql(
				'shop',
				qq{
				SELECT count(*) FROM $view
				 WHERE note = 'of $name' AND snowflake_node(id) <> $node_id{$name}}),
			't|t0',
			"$view: $other{$name} sees which rows were born on $name");
	}
	is( $node{ada}->safe_psql(
			'shop', qq{
			SELECT max(first) < min(last)
			  FROM (SELECT min(id) AS first, max(id) AS last FROM $view
					 WHERE note LIKE 'of %' GROUP BY note) born}),
		't',
		"$view: both inserted at once");
}
is( $node{bob}->safe_psql(
		'shop', q{
		SELECT count(*), (SELECT count(*) FROM all_rows WHERE note = 'changed' AND id = ids[3]),
			   (SELECT count(*) FROM all_rows WHERE note = 'before 8' AND id > number)
		  FROM all_rows WHERE note IN ('before 8', 'before 9')}),
	'2|2|2',
	'updates and deletes of both have arrived');

# A publication of all tables includes the reservation, if it is in that
# database.  The subscriber drops that, and mints with its own node ID as before.
foreach my $name ('ada', 'bob')
{
	$node{$name}->safe_psql(
		'postgres', q{
		CREATE EXTENSION snowflake;
		CREATE TABLE things (id snowflake PRIMARY KEY DEFAULT snowflake_next())}
	);
}
$node{ada}->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES');
my $connstr = $node{ada}->connstr . ' dbname=postgres';
$node{bob}->safe_psql('postgres',
	"CREATE SUBSCRIPTION everything CONNECTION '$connstr' PUBLICATION everything");
$node{ada}->safe_psql('postgres', 'INSERT INTO things DEFAULT VALUES');
catch_up('postgres');
my $newest = $node{bob}->safe_psql(
	'postgres', q{
	INSERT INTO things DEFAULT VALUES;
	SELECT max(id) FROM things WHERE snowflake_node(id) = 2});
is( $node{bob}->safe_psql(
		'postgres', q{
		SELECT string_agg(snowflake_node(id)::text, ' ' ORDER BY snowflake_node(id)) FROM things}
	),
	'1 2',
	'a publication of all tables');
is( $node{bob}->safe_psql(
		'postgres', 'SELECT string_agg(node::text, $$ $$) FROM snowflake_keeper.reservation'),
	'2',
	'the subscriber has dropped the publisher\'s reservation');

# Nor do rows of the subscriber's own node ID change its own.
$node{ada}->safe_psql(
	'postgres', q{
	INSERT INTO snowflake_keeper.reservation SELECT 2, layout, now() - interval '1 year'
		FROM snowflake_keeper.reservation WHERE node = 1;
	UPDATE snowflake_keeper.reservation SET reserved_until = now() - interval '2 years' WHERE node = 2;
	DELETE FROM snowflake_keeper.reservation WHERE node = 2});
catch_up('postgres');
is( $node{bob}->safe_psql(
		'postgres',
		"SELECT reserved_until >= snowflake_timestamp('$newest') FROM snowflake_keeper.reservation WHERE node = 2"
	),
	't',
	'also those of the same node ID, which would lower its own');

# A subscription whose owner is no superuser goes on as well, with rows of the reservation.
$node{bob}->safe_psql('postgres', 'CREATE ROLE subscriber LOGIN SUPERUSER');
$node{bob}->safe_psql('postgres', 'ALTER SUBSCRIPTION everything OWNER TO subscriber');
$node{bob}->safe_psql('postgres',
	'ALTER SUBSCRIPTION everything SET (password_required = false, run_as_owner = true)')
  if $node{bob}->pg_version >= 16;
$node{bob}->safe_psql(
	'postgres', q{
	GRANT pg_read_all_data, pg_write_all_data TO subscriber;
	ALTER ROLE subscriber NOSUPERUSER});
$node{ada}->safe_psql(
	'postgres', q{
	INSERT INTO snowflake_keeper.reservation SELECT 3, layout, now()
		FROM snowflake_keeper.reservation WHERE node = 1;
	DELETE FROM snowflake_keeper.reservation WHERE node = 3;
	INSERT INTO things DEFAULT VALUES});
catch_up('postgres');
is( $node{bob}->safe_psql(
		'postgres', 'SELECT string_agg(node::text, $$ $$) FROM snowflake_keeper.reservation'),
	'2',
	'a subscription whose owner is no superuser goes on, and drops such rows too');

# No conflict: neither an error nor a row that was skipped.  From 18 on, the rows
# of the reservation that the subscriber drops count as conflicts.
foreach my $name ('ada', 'bob')
{
	is( $node{$name}->safe_psql(
			'postgres', q{
			SELECT count(DISTINCT subid) > 0, sum(value::bigint)
			  FROM pg_stat_subscription_stats s, jsonb_each_text(to_jsonb(s))
			 WHERE key LIKE '%_error_count' OR key LIKE 'confl_%' AND subname <> 'everything'}),
		't|0',
		"$name: no error and no conflict in any subscription");
	is( log_count(
			$node{$name},
			'conflict detected on relation "(?!snowflake_keeper\.reservation")|duplicate key|did not find row|binary data has'
		),
		0,
		"$name: no conflict in the log");
}

$node{bob}->restart;
wait_for_mint($node{bob});
is( $node{bob}->safe_psql(
		'postgres', "SELECT snowflake_next() > '$newest', snowflake_node(snowflake_next())"),
	't|2',
	'minting goes on with the own node ID');
catch_up('postgres');

$node{bob}->stop;
$node{ada}->stop;
done_testing();
