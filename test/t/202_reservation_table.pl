# The keeper writes only to its own table, and only if that is as the extension
# created it: code that a superuser attaches to the table is not run, and a change
# that a superuser makes to it stops minting at the end of the reservation, with
# the reason in the log and without a write, until the table is repaired.
# long

use SnowflakeTest qw(!extend !stored);

# Four IDs in a tick, so that what is reserved is used up in no time.
my $node = minting_node(
	'main',
	init => { allows_streaming => 1 },
	conf => q{
	snowflake.layout = 'time:43 node:18 sequence:2 epoch:2020-01-01T00:00:00Z'
	snowflake.max_lead = '1min'
	snowflake.reservation = '1s'
});
my $keeper = 'snowflake_keeper';
my $table = query($node, "SELECT '$keeper.reservation'::regclass::oid");

sub sql { return query($node, @_); }

# What the table has, whatever it is called by now.
sub stored
{
	my $name = sql("SELECT $table\::regclass");

	return sql("SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM $name t");
}

# Mint until the keeper has reserved anew.
sub extend
{
	my $reservations = status($node, 'reservations');

	wait_for_query($node,
		"SELECT count(snowflake_next()) > 0 AND max(reservations) > $reservations FROM snowflake_stats, generate_series(1, 1000)"
	);
	return;
}

# What is attached to the table has no part in the keeper's writes.
sql(q{
	CREATE ROLE app;
	CREATE TABLE noticed (what text);
	CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql
		AS 'BEGIN INSERT INTO noticed VALUES (TG_OP); RETURN NULL; END';
	CREATE TRIGGER swallow BEFORE INSERT OR UPDATE ON snowflake_keeper.reservation
		FOR EACH ROW EXECUTE FUNCTION swallow();
	CREATE TRIGGER statement AFTER INSERT OR UPDATE ON snowflake_keeper.reservation
		EXECUTE FUNCTION swallow();
	ALTER TABLE snowflake_keeper.reservation ENABLE ALWAYS TRIGGER swallow, ENABLE ALWAYS TRIGGER statement;
	CREATE RULE nothing AS ON UPDATE TO snowflake_keeper.reservation
		DO INSTEAD INSERT INTO noticed VALUES ('rule');
	CREATE POLICY hidden ON snowflake_keeper.reservation USING (false);
	ALTER TABLE snowflake_keeper.reservation ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY});
extend();
is( sql(q{SELECT r.reserved_until >= last_time FROM snowflake_keeper.reservation r, snowflake_status}
	),
	't',
	'triggers, rules and policies: the row is written all the same');
is(sql('SELECT count(*) FROM noticed'), '0', 'and none of them is run');
sql(q{
	DROP TRIGGER swallow ON snowflake_keeper.reservation;
	DROP TRIGGER statement ON snowflake_keeper.reservation;
	DROP RULE nothing ON snowflake_keeper.reservation;
	DROP POLICY hidden ON snowflake_keeper.reservation;
	ALTER TABLE snowflake_keeper.reservation DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY});

# What the keeper has written it holds against all who would change the table, until it has
# committed: here its commit waits for a standby.
sql(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()});
my $minter = start_minter($node, 1_000_000);
wait_for_query($node,
	q{SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'});
refuses(
	$node, "BEGIN; LOCK TABLE $keeper.reservation IN SHARE ROW EXCLUSIVE MODE NOWAIT",
	'55P03', 'no trigger can be created while the keeper writes');
sql(q{ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()});
sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT snowflake_next();'}
);
finish_minter($minter);
wait_for_mint($node);

# A copy of its index whose making was canceled stays behind, is not valid, and has no rows: it does
# not find the row, and is not written to.
my $offset = -s $node->logfile;
my $pid = status($node, 'keeper_pid');

# it waits for whoever may write to the table, before it begins with the index
my $writer = session($node, "BEGIN; LOCK TABLE $keeper.reservation IN ROW EXCLUSIVE MODE");
my $reindex = start_statement($node, "REINDEX TABLE CONCURRENTLY $keeper.reservation");
my $running = q{FROM pg_stat_activity WHERE query LIKE 'REINDEX%'};
wait_for_query($node, "SELECT wait_event_type = 'Lock' $running");
sql("SELECT pg_cancel_backend(pid) $running");
finish_statement($reindex);
$writer->query_safe('COMMIT');
$_->quit foreach $reindex, $writer;
my $left =
  sql("SELECT indexrelid::regclass FROM pg_index WHERE indrelid = $table AND NOT indisvalid");
isnt($left, '', 'REINDEX CONCURRENTLY, canceled: an index is left that is not valid');
extend();
is(log_count($node, qr/\[$pid\] ERROR/, $offset), 0, 'and the reservation is extended');
sql("DROP INDEX $left");

# Changes that matter: each with what undoes it, and the reason.
my $alter = "ALTER TABLE $keeper.reservation";
my $member = 'It is not a member of the extension "snowflake_keeper".';
my $index = 'It has an index that is not the primary key on "node".';
my $primary_key = "$alter DROP CONSTRAINT reservation_pkey, ADD PRIMARY KEY (node)";
sql(q{
	CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler});
foreach my $change (table(<<"END"))
$alter SET UNLOGGED | $alter SET LOGGED | It does not survive a crash.
$alter SET ACCESS METHOD other | $alter SET ACCESS METHOD heap | It is not a table of the access method "heap".
$alter OWNER TO app | $alter OWNER TO CURRENT_USER | Its owner is not a superuser.
ALTER SCHEMA $keeper OWNER TO app | ALTER SCHEMA $keeper OWNER TO CURRENT_USER | The owner of its schema is not a superuser.
ALTER SCHEMA $keeper RENAME TO elsewhere | ALTER SCHEMA elsewhere RENAME TO $keeper | It does not exist.
ALTER EXTENSION $keeper DROP TABLE $keeper.reservation | ALTER EXTENSION $keeper ADD TABLE $keeper.reservation | $member
$alter RENAME TO kept; CREATE TABLE $keeper.reservation (LIKE $keeper.kept INCLUDING ALL); ALTER EXTENSION snowflake ADD TABLE $keeper.reservation | ALTER EXTENSION snowflake DROP TABLE $keeper.reservation; DROP TABLE $keeper.reservation; ALTER TABLE $keeper.kept RENAME TO reservation | $member
$alter DROP CONSTRAINT reservation_pkey | $alter ADD PRIMARY KEY (node) | Its primary key on "node" is missing.
$primary_key DEFERRABLE | $primary_key | $index
CREATE UNIQUE INDEX extra ON $keeper.reservation (node) WHERE node >= 0 | DROP INDEX $keeper.extra | $index
CREATE UNIQUE INDEX extra ON $keeper.reservation (reserved_until) | DROP INDEX $keeper.extra | $index
$alter RENAME reserved_until TO until | $alter RENAME until TO reserved_until | A column was changed.
$alter ALTER in_order DROP NOT NULL | $alter ALTER in_order SET NOT NULL | A column was changed.
$alter ADD COLUMN extra text | DROP EXTENSION $keeper CASCADE | Columns were added or dropped.
END
{
	my ($sql, $undo, $reason) = @$change;
	my $offset = -s $node->logfile;

	sql($sql);
	my $before = stored();
	refuses(
		$node,
		q{SET snowflake.max_wait = '100ms'; SET statement_timeout = '1min';
			DO $$ BEGIN LOOP PERFORM snowflake_next(); END LOOP; END $$},
		'55000',
		"$sql: minting stops");
	my $newest = status($node, 'last_id');
	$node->wait_for_log(
		qr/ERROR:  table "$keeper\.reservation" is not fit for the snowflake reservation\n.*DETAIL:  \Q$reason\E/,
		$offset);
	is(stored(), $before, 'nothing is written');
	sql($undo);
	wait_for_mint($node);
	cmp_ok(sql('SELECT snowflake_next()'),
		'>', $newest, 'it goes on when that is repaired, above all before');
}

done_testing();
