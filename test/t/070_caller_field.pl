# The caller's field: whatever callers put into it, IDs are distinct, ascend as far
# as the field's place allows, and are found, decoded and tailed like others.

use SnowflakeTest;

my $rounds = 300;    # of each connection
my $epoch = 'epoch:2026-01-01T00:00:00Z';
my $node = minting_node(
	'main',
	node_id => 31,
	conf =>
	  "snowflake.layout = 'time:41 node:5 shard:5? sequence:12 tick:10ms $epoch'\nsnowflake.max_wait = '1min'\nautovacuum = off"
);

sub sql { return query($node, $_[0]); }

sql(q{
	CREATE TABLE minted (session int, n int, value int, id snowflake);
	CREATE TABLE events (id snowflake PRIMARY KEY, what text)});

# The server has that layout, and node ID, from now on.
sub change_layout
{
	my ($layout, $node_id) = @_;

	$node->append_conf('postgresql.conf',
		"snowflake.layout = '$layout'\nsnowflake.node_id = $node_id");
	restart_node($node, 'fast', undef, 'differs');
	sql('SELECT snowflake_accept_layout()');
	wait_for_mint($node);
	sql('TRUNCATE minted, events');
	return;
}

# Four connections mint at once: with all values, without one, and in batches.
sub mint_all
{
	my @sessions = map {
		start_statement(
			$node, qq{
			DO \$\$
			BEGIN
				FOR i IN 1 .. $rounds LOOP
					INSERT INTO minted VALUES ($_, 4 * i, (i + $_) % 32, snowflake_next((i + $_) % 32)),
						($_, 4 * i + 1, 0, snowflake_next());
					IF i % 10 = 0 THEN
						INSERT INTO minted SELECT $_, 4 * i + 2, i % 32, snowflake_next_batch(50, i % 32);
						INSERT INTO minted SELECT $_, 4 * i + 3, 0, snowflake_next_batch(50);
					END IF;
					COMMIT;
				END LOOP;
			END \$\$})
	} 1 .. 4;
	foreach my $session (@sessions)
	{
		finish_statement($session);
		is($session->{stderr}, '', 'a connection has minted');
		$session->quit;
	}
	is( sql(q{SELECT count(*), count(DISTINCT id), count(DISTINCT (id -> 'time', id -> 'sequence')) FROM minted}
		),
		join('|', (4 * $rounds * 12) x 3),
		'all are distinct, even without what callers have filled');
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

# Nothing minted from now on may lie at or below a frontier that was told; also where an ID is of the
# tick of the one before, the frontier read between them.  What is left of a tick that is not over is
# not given up for that: IDs would get ahead of the clock.  Only the first frontier may not be known, if
# the keeper's transaction ends while it is read: nobody on this server has read one before.
sub tails
{
	sql(q{
		CREATE OR REPLACE PROCEDURE mint_below(INOUT bad int, INOUT in_same_tick int, INOUT ahead int) LANGUAGE plpgsql AS $$
		DECLARE
			before snowflake; after snowflake;
			frontier bigint;
		BEGIN
			FOR i IN 1 .. 2000 LOOP
				before := snowflake_next(31);
				COMMIT;
				frontier := snowflake_frontier();
				after := snowflake_next(0);
				bad := bad + coalesce((after <= frontier)::int, (i > 1)::int);
				in_same_tick := in_same_tick + (before -> 'time' = after -> 'time')::int;
				ahead := ahead + (snowflake_timestamp(after) > clock_timestamp())::int;
				COMMIT;
			END LOOP;
		END $$});
	my ($bad, $in_same_tick, $ahead) = split /\|/, sql('CALL mint_below(0, 0, 0)');
	is($bad, '0', 'no ID comes below a frontier that was told');
	cmp_ok($in_same_tick, '>', 0, 'also in the tick of the one before');
	is($ahead, '0', 'what is left of a tick that is not over is not given up');
	return;
}

# Above the sequence: within a tick, the value comes first.  Several transactions fit into one.
refuses(
	$node, 'SELECT snowflake_next(32)', '22003', 'too large a value',
	message => qr/^shard 32 is out of range for the snowflake layout$/,
	detail => qr/^In this layout, a shard is from 0 to 31\.$/);
refuses($node, "SELECT $_", '22003', $_)
  foreach 'snowflake_next(-1)', 'snowflake_next_batch(1, 32)';
mint_all();
tails();
is( sql(q{SELECT count(*) FROM (SELECT id -> 'time' AS tick, id, lag(id) OVER (PARTITION BY session ORDER BY n, id) AS before FROM minted) s
		WHERE id < before AND snowflake_timestamp(before) < snowflake_timestamp(id)}),
	'0',
	'IDs ascend from tick to tick');

# While the gate is closed, what is left of a tick is not used: its IDs are passed.
sql(q{INSERT INTO events VALUES (snowflake_next(31), 'before it closes')});
change_node_id($node, -1);
is(sql('SELECT max(id) <= snowflake_frontier() FROM events'),
	't', 'a closed gate leaves no row above the frontier');

# Below it, IDs ascend as without the field.
change_layout("time:41 node:5 sequence:12 shard:5? $epoch", 31);
mint_all();
is( sql(q{SELECT count(*) FROM (SELECT min(id) AS first, lag(max(id)) OVER (PARTITION BY session ORDER BY n) AS before
		FROM minted GROUP BY session, n) s WHERE first <= before}),
	'0',
	'IDs ascend in each connection');
tails();
is( sql(q{INSERT INTO events VALUES (snowflake_next(31), 'last');
		DO 'BEGIN PERFORM snowflake_frontier(); END'; -- the keeper's transaction may end while this is read
		SELECT snowflake_frontier() >= max(id) FROM events}),
	't',
	'the frontier is at the last ID at once');

# Of a preset's node ID; and so high up that its upper bits are beyond those of an integer
change_layout('instagram shard:13?', 0);
is( sql(q{SELECT id -> 'shard', snowflake_node(id), snowflake_field(id, 'shard', 'instagram') FROM (SELECT snowflake_next(8191)) s (id)}
	),
	'8191|0|8191',
	'a field of a preset can be the caller\'s');
change_layout("time:28 shard:22? node:4 sequence:9 tick:1s $epoch", 15);
is( sql(q{SELECT max(abs((id -> 'shard') - value)), min(id -> 'node'), bool_and(snowflake_timestamp(id) BETWEEN now() - interval '1 min' AND now() + interval '1 min')
		FROM (SELECT value, snowflake_next(value) AS id FROM unnest(array[1, 262143, 524288, 1048577]) value) s}
	),
	'0|15|t',
	'a value is where it belongs, however high');
is( sql(q{SELECT count(*) FROM snowflake_next_batch(3, 4194303) id WHERE id -> 'shard' = 4194303}),
	'3', 'in a batch, too, and up to the largest');

done_testing();
