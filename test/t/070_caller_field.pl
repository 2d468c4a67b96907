# The caller's field: IDs are distinct whatever callers put into it, ascend as far as
# its place allows, and are found, decoded and tailed like others.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run;
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(error_of new_node status wait_for_mint);
use Test::More;

my $rounds = 3000;    # of each connection
my $epoch = 'epoch:2026-01-01T00:00:00Z';
my $node;

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub error { return error_of($node, $_[0]); }

sub start_with
{
	my ($name, $layout, $node_id) = @_;

	$node = new_node(
		$name,
		node_id => $node_id,
		conf => "snowflake.layout = '$layout'\nsnowflake.max_wait = '1min'\nautovacuum = off");
	$node->start;
	sql(q{
		CREATE EXTENSION snowflake;
		CREATE TABLE minted (session int, n int, value int, id snowflake);
		CREATE TABLE events (id snowflake PRIMARY KEY, what text);
	});
	wait_for_mint($node);
	return;
}

# Eight connections mint at once: with all values, without one, and in batches.  They
# wait for a lock, so that they start together.
sub mint_all
{
	my $gate = $node->background_psql('postgres');
	my @runs;

	$gate->query_safe('SELECT pg_advisory_lock(1)');

	foreach my $session (1 .. 8)
	{
		# in a file, so that psql needs nobody to feed it
		my $script = PostgreSQL::Test::Utils::tempdir() . '/' . $node->name . "$session.sql";

		PostgreSQL::Test::Utils::append_to_file(
			$script, qq{
			SELECT FROM pg_advisory_lock_shared(1);
			DO \$\$
			BEGIN
				FOR i IN 1 .. $rounds LOOP
					INSERT INTO minted VALUES ($session, 4 * i, (i + $session) % 32, snowflake_next((i + $session) % 32)),
						($session, 4 * i + 1, 0, snowflake_next());
					IF i % 10 = 0 THEN
						INSERT INTO minted SELECT $session, 4 * i + 2, i % 32, snowflake_next_batch(50, i % 32);
						INSERT INTO minted SELECT $session, 4 * i + 3, 0, snowflake_next_batch(50);
					END IF;
					COMMIT;
				END LOOP;
			END \$\$;
		});
		local %ENV = $node->_get_env();
		push @runs,
		  IPC::Run::start(
			[
				$node->installed_command('psql'),
				'-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'),
				'-f', $script
			]);
	}
	$node->poll_query_until('postgres',
		q{SELECT count(*) = 8 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted})
	  or die "sessions did not start";
	$gate->quit;
	ok($_->finish, 'a connection has minted') foreach @runs;

	is( sql('SELECT count(*), count(DISTINCT id) FROM minted'),
		join('|', (8 * $rounds * 12) x 2),
		'all are distinct');
	cmp_ok(
		sql(q{SELECT count(*) FROM (SELECT session <> lag(session) OVER (ORDER BY id -> 'time', id -> 'sequence')
			FROM minted) s (changes) WHERE changes}),
		'>',
		7,
		'they have minted at the same time, not one after the other');
	is(sql(q{SELECT count(DISTINCT (id -> 'time', id -> 'sequence')) = count(*) FROM minted}),
		't', 'even without what callers have filled');
	is( sql(q{SELECT count(DISTINCT value), count(*) FILTER (WHERE id -> 'shard' <> value),
			count(*) FILTER (WHERE snowflake_node(id) <> current_setting('snowflake.node_id')::int) FROM minted}
		),
		'32|0|0',
		'the field has the value, and the node ID is the server\'s');
	is( sql(q{SELECT count(*) FROM (SELECT session, n, min(((id -> 'time') << 12) + (id -> 'sequence')) AS first,
				lag(max(((id -> 'time') << 12) + (id -> 'sequence'))) OVER (PARTITION BY session ORDER BY n) AS before
			FROM minted GROUP BY session, n) s WHERE first <= before}),
		'0',
		'time and sequence ascend in each connection');
	return;
}

# Ranges of time take the same IDs as their decoded times do.
sub ranges_agree
{
	is( sql(q{
		WITH bounds AS (SELECT to_timestamp(extract(epoch FROM @@ id)) AS ts, random() FROM minted ORDER BY 2 LIMIT 5)
		SELECT count(DISTINCT (a, b, c, d)), bool_and(a AND b AND c AND d) FROM bounds, LATERAL (
			SELECT (SELECT count(*) FROM minted WHERE @@ id >= ts) = count(*) FILTER (WHERE snowflake_timestamp(id) >= ts),
				(SELECT count(*) FROM minted WHERE @@ id < ts) = count(*) FILTER (WHERE snowflake_timestamp(id) < ts),
				(SELECT count(*) FROM minted WHERE @@ id <@ tstzrange(ts, ts, '[]')) = count(*) FILTER (WHERE snowflake_timestamp(id) = ts),
				count(*) FILTER (WHERE id BETWEEN snowflake_lower_bound(ts) AND snowflake_upper_bound(ts))
					= count(*) FILTER (WHERE snowflake_timestamp(id) = ts)
			FROM minted) c (a, b, c, d)}),
		'1|t',
		'ranges of time and bounds are as before');
	return;
}

sub refusals
{
	my $error = error('SELECT snowflake_next(32)');

	is($error->{sqlstate}, '22003', 'too large a value');
	is($error->{message}, 'shard 32 is out of range for the snowflake layout', 'with the field');
	is($error->{detail}, 'In this layout, a shard is from 0 to 31.', 'and its range');
	is(error('SELECT snowflake_next(-1)')->{sqlstate}, '22003', 'a negative value');
	is(error('SELECT snowflake_next_batch(1, 32)')->{sqlstate}, '22003', 'in a batch');
	is(sql('SELECT snowflake_next(NULL) IS NULL'), 't', 'NULL is no value');
	return;
}

# A reader gets every ID, in their order, and does not have to wait for others to mint.
# Returns how often two IDs, the frontier read between them, had a tick in common.
sub tails
{
	my $before = sql('SELECT snowflake_next()');
	my $held = $node->background_psql('postgres');

	$held->query_safe(q{BEGIN; INSERT INTO events VALUES (snowflake_next(1), 'held')});
	sql(q{INSERT INTO events SELECT snowflake_next(value), 'free' FROM generate_series(0, 31) value, generate_series(1, 20)}
	);
	is(sql("SELECT count(*) FROM events WHERE id > $before AND id <= snowflake_frontier()"),
		'0', 'a transaction that is open holds the frontier back');
	$held->query_safe('COMMIT');
	$held->quit;

	$node->poll_query_until('postgres',
		"SELECT snowflake_frontier() >= (SELECT max(id) FROM events)")
	  or die 'the frontier does not come to the last ID';
	is(sql("SELECT count(*) FROM events WHERE id > $before AND id <= snowflake_frontier()"),
		'641', 'all are read when it has ended');

	# nothing minted from now on may lie at or below a frontier that was told
	sql(q{
		CREATE PROCEDURE mint_below(rounds int, INOUT bad int, INOUT in_same_tick int) LANGUAGE plpgsql AS $$
		DECLARE
			before snowflake;
			after snowflake;
			frontier bigint;
		BEGIN
			FOR i IN 1 .. rounds LOOP
				-- now and then in the tick of the clock, which is not over
				PERFORM pg_sleep(0.02) WHERE i % 100 = 0;
				before := snowflake_next(31);
				COMMIT;
				frontier := snowflake_frontier();
				after := snowflake_next(0);
				bad := bad + (after <= frontier)::int;
				in_same_tick := in_same_tick + (i % 100 = 0 AND before -> 'time' = after -> 'time')::int;
				COMMIT;
			END LOOP;
		END $$});
	my ($bad, $in_same_tick) = split /\|/, sql('CALL mint_below(2000, 0, 0)');
	is($bad, '0', 'no ID comes below a frontier that was told');
	return $in_same_tick;
}

# Above the sequence: within a tick, the value comes first.  Ticks are so long that
# several transactions fit into one.
start_with('above', "time:41 node:5 shard:5? sequence:12 tick:10ms $epoch", 31);
is(sql('SELECT nodes FROM snowflake_layout()'), '32', 'the node ID has the bits that are left');
mint_all();
ranges_agree();
refusals();
cmp_ok(tails(), '>', 0, 'what is left of a tick that is not over is not given up');
is( sql(q{SELECT count(*) FROM (SELECT id -> 'time' AS tick, id, lag(id) OVER (PARTITION BY session ORDER BY n, id) AS before FROM minted) s
		WHERE id < before AND snowflake_timestamp(before) < snowflake_timestamp(id)}),
	'0',
	'IDs ascend from tick to tick');

# An idle server is asked for nothing: the frontier stays where it is.
my $idle = sql('SELECT snowflake_frontier()');
my $reservations = status($node, 'reservations');
sql('SELECT snowflake_frontier() FROM generate_series(1, 1000)');
is(sql('SELECT snowflake_frontier()'), $idle, 'reading the frontier again does not move it');
is(status($node, 'reservations'), $reservations, 'nor reserve anything');

# While the gate is closed, what is left of a tick is not used: its IDs are passed.
sql(q{INSERT INTO events VALUES (snowflake_next(31), 'before it closes')});
sql('ALTER SYSTEM SET snowflake.node_id = -1');
$node->reload;
$node->poll_query_until('postgres', q{SELECT gate <> 'open' FROM snowflake_status})
  or die 'the gate does not close';
is(sql('SELECT max(id) <= snowflake_frontier() FROM events'),
	't', 'a closed gate leaves no row above the frontier');
sql('ALTER SYSTEM RESET snowflake.node_id');
$node->reload;
$node->stop;

# Below it, IDs ascend as without the field.
start_with('below', "time:41 node:5 sequence:12 shard:5? $epoch", 31);
mint_all();
is( sql(q{SELECT count(*) FROM (SELECT min(id) AS first, lag(max(id)) OVER (PARTITION BY session ORDER BY n) AS before
		FROM minted GROUP BY session, n) s WHERE first <= before}),
	'0',
	'IDs ascend in each connection');
ranges_agree();
refusals();
tails();
is( sql(    q{INSERT INTO events VALUES (snowflake_next(31), 'last')}
		  . ';SELECT snowflake_frontier() >= max(id) FROM events'),
	't',
	'the frontier is at the last ID at once');
$node->stop;

# Of a preset's node ID
start_with('preset', 'instagram shard:13?', 0);
is( sql(q{SELECT id -> 'shard', snowflake_node(id), snowflake_field(id, 'shard', 'instagram') FROM (SELECT snowflake_next(8191)) s (id)}
	),
	'8191|0|8191',
	'a field of a preset can be the caller\'s');
$node->stop;

# So high up that its upper bits are beyond those of an integer.
start_with('high', "time:28 shard:22? node:4 sequence:9 tick:1s $epoch", 15);
is( sql(q{SELECT max(abs((id -> 'shard') - value)), min(id -> 'node'), bool_and(snowflake_timestamp(id) BETWEEN now() - interval '1 min' AND now() + interval '1 min')
		FROM (SELECT value, snowflake_next(value) AS id FROM unnest(array[1, 262143, 524288, 1048577]) value) s}
	),
	'0|15|t',
	'a value is where it belongs, however high');
is( sql(q{SELECT count(*) FROM snowflake_next_batch(3, 4194303) id WHERE id -> 'shard' = 4194303}),
	'3', 'in a batch, too, and up to the largest');
$node->stop;

done_testing();
