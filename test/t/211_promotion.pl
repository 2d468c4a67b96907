# A standby refuses to mint, and says what would prevent minting after a promotion.  If it is synchronous and has the primary's node ID, its first ID is
# larger than every ID that the primary issued, although its clock is behind, because the reservation
# came with the WAL; and the log says where its node ID comes from: it may have come with the data.
# versions: all

use SnowflakeTest;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $behind = 2_000;    # ms
my $clock = new_clock('primary');
my $primary = new_node(
	'primary',
	node_id => undef,
	init => { allows_streaming => 1 },
	conf => q{
	snowflake.reservation = '1s'
	snowflake.max_wait = '30s'
});
start_with_clock($primary, $clock);

sub sql { return query($primary, @_); }

sub standby_of_backup
{
	my ($name, $backup, $conf, %params) = @_;
	my $node = SnowflakeNode->new($name);

	$node->init_from_backup($primary, $backup, %params);
	$node->append_conf('postgresql.conf', $conf);
	return $node;
}

# Nothing was minted yet, and somebody has put a table in the place of the keeper's
# which a standby cannot read.  It is not looked into.  The standby's own node ID is overruled by that
# which came with the data.
query(
	$primary, q{
	ALTER SYSTEM SET snowflake.node_id = 1;
	CREATE EXTENSION snowflake;
	CREATE ROLE creator;
	GRANT CREATE ON DATABASE postgres TO creator;
	SET SESSION AUTHORIZATION creator;
	CREATE SCHEMA snowflake_keeper;
	CREATE UNLOGGED TABLE snowflake_keeper.reservation
		(node integer NOT NULL, layout text NOT NULL, reserved_until timestamptz NOT NULL, in_order boolean NOT NULL)}
);
$primary->backup('bare');
my $standby = standby_of_backup('standby', 'bare', 'snowflake.node_id = 2', has_streaming => 1);
$standby->start;
is(status($standby, q{concat_ws(' ', node, advice)}),
	'1', 'a standby whose keeper has no table, but somebody else');
query($primary, 'DROP SCHEMA snowflake_keeper CASCADE');
$primary->reload;
wait_for_mint($primary);
$primary->backup('base');

query($primary, 'CREATE DATABASE elsewhere');
$primary->wait_for_catchup($standby);
refuses(
	$standby, "SELECT $_()", '25006',
	"a standby refuses $_(), as nextval(), and says why",
	message => qr/^cannot execute $_\(\) during recovery$/)
  foreach 'snowflake_next', 'snowflake_accept_layout',
  'snowflake_accept_database', 'snowflake_accept_clock';
is(status($standby, 'refused_standby'), 1, 'a mint that is refused is counted');
is(status($standby, 'gate'), 'closed: the server is in recovery', 'the status says why');

# nor one that pauses after a failure, which pg_stat_activity would not show
is(status($standby, 'keeper_pid'), '', 'and it has no keeper');

my $nothing = 'A promotion would leave this server unable to mint: ';

# What would stand in the way, by settings that come after those that came with the data: the node ID,
# and the advice
foreach my $case (table(<<'END'))
 | snowflake.node_id is not set. Set snowflake.node_id to a number that no other server mints with | snowflake.node_id = -1
2000 | snowflake.node_id 2000 is too large for the layout. Set snowflake.node_id to at most 1023, and reload | snowflake.node_id = 2000
1 | snowflake.layout differs from the layout that this server has minted with. Restore snowflake.layout | snowflake.node_id = 1; snowflake.layout = 'discord'
1 | the database of the snowflake reservation does not exist. Create the database "nowhere" | snowflake.layout = 'twitter'; snowflake.database = 'nowhere'
1 | the snowflake reservation of this server is not in the database "elsewhere". | snowflake.database = 'elsewhere'
1 | | snowflake.database = 'postgres'
END
{
	my ($node_id, $advice, $settings) = @$case;

	$standby->append_conf('postgresql.auto.conf', $_) foreach split /; /, $settings;
	$standby->restart;
	is(status($standby, 'node'), $node_id, "$settings: the node ID that it would mint with");
	my $says = status($standby, 'advice');
	ok($advice eq '' ? $says eq '' : index($says, "$nothing$advice") == 0, "$settings: the advice")
	  or diag($says);
}

# From now on the standby is a synchronous one.  (Not before the backups, or it would want one as well.)
sql(q{ALTER SYSTEM SET synchronous_standby_names = 'standby'});
$primary->reload;
wait_for_query($primary, q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'});

# The end of another node ID is stored without the standby.  What is reserved after that is not.
foreach my $node_id (2, 1)
{
	sql("ALTER SYSTEM SET snowflake.node_id = $node_id");
	$primary->reload;
	wait_for_status($primary, "gate = 'open' AND node = $node_id");
	wait_for_mint($primary);
}

my $waiting =
  qr/^The commit of the reservation has been waiting for a synchronous standby for [0-9.]+ s\. Start a synchronous standby, or change synchronous_standby_names\.$/;
my $keeper_waits =
  q{FROM pg_stat_activity WHERE backend_type = 'snowflake keeper' AND wait_event = 'SyncRep'};

# The primary's reservation cannot be extended while the standby does not
# confirm it: minting ends with the reservation, and the error says why.
my $offset = -s $primary->logfile;
$standby->stop;
wait_for_query($primary, q{SELECT count(*) = 0 FROM pg_stat_replication});

refuses(
	$primary, q{
	SET snowflake.max_wait = '3s';
	SET statement_timeout = '1min';
	DO $$ BEGIN LOOP PERFORM snowflake_next(); END LOOP; END $$},
	'55000',
	'no standby confirms: minting ends with the reservation, with the reason',
	message => qr/reservation was not extended/,
	hint => $waiting);
is( log_count(
		$primary,
		qr/LOG:  the commit of the snowflake reservation waits for a synchronous standby$/, $offset
	),
	1,
	'the log says once that it waits');
is(status($primary, q{concat_ws(' ', gate, standby_wait > '1 s')}),
	'open t', 'the gate is open, and the status says for how long the keeper waits');
like(status($primary, 'advice'), $waiting, 'and so does the advice');

# Who cancels the wait has the commit stand, but not confirmed.  So the row that others see is that of a
# later time from now on; until now it is the last that the standby has confirmed, which no ID is past.
my $confirmed = sql('SELECT reserved_until FROM snowflake_keeper.reservation WHERE node = 1');
my $pid = sql("SELECT pid $keeper_waits");
my $refused = q{SET snowflake.max_wait = '3s'; SELECT snowflake_next()};
sql("SELECT pg_cancel_backend($pid)");
refuses(
	$primary, $refused, '55000',
	'the wait is canceled: there is no more to mint',
	message => qr/reservation was not extended/);
is( status(
		$primary,
		"concat_ws(' ', snowflake_timestamp(last_id) <= '$confirmed', reserved_until = '$confirmed')"
	),
	't t',
	'because a canceled wait confirms nothing');
wait_for_query($primary, "SELECT count(*) = 1 $keeper_waits AND pid = $pid");
wait_for_status($primary, 'standby_wait IS NOT NULL');
like(status($primary, 'advice'),
	$waiting, 'the advice is about the wait, and not about the failure before');
refuses($primary, $refused, '55000', 'and so is the error', hint => $waiting);

# Neither the server's stop nor that of the keeper waits for a standby.
{
	local $ENV{PGCTLTIMEOUT} = 20;
	ok($primary->stop('fast', fail_ok => 1), 'a fast stop does not wait for the standby');
}
start_with_clock($primary, $clock);
my $unconfirmed = error_of($primary, $refused);
is($unconfirmed->{sqlstate}, '55000', 'after a start without the standby nothing is minted');
like(
	"$unconfirmed->{detail} $unconfirmed->{hint}",
	qr/^(?:The gate is closed: the keeper is writing the reservation|It ends at ".*")\. The commit of the reservation has been waiting for a synchronous standby for [0-9.]+ s\. Start /,
	'and the error says why');

# Who has used up the reservation asks the keeper for more while it waits for the standby.  That is not
# forgotten when the standby is there again, and nobody wakes the keeper by anything else, such as a
# reload.
my $waiter = start_minter($primary, 1_000_000);
my $minting = q{FROM pg_stat_activity WHERE query = 'SELECT snowflake_next();'};
wait_for_query($primary,
	"SELECT count(*) = 1 $minting AND wait_event IN ('SnowflakeKeeper', 'Extension')");
my $extended = status($primary, 'reservations');
my $standby_clock = new_clock('standby');
set_clock($standby_clock, -$behind);
start_with_clock($standby, $standby_clock);
wait_for_status($primary, "reservations >= $extended + 4");
sql("SELECT pg_terminate_backend(pid) $minting");
finish_minter($waiter);
unlike($waiter->{errors}, qr/ERROR/,
	'who waited for the standby mints on, reservation after reservation, without an error');
is(status($primary, 'concat(advice, standby_wait)'), '', 'there is no advice any more');

# What the log says after the first opening of the gate, and only then
my $inherited = qr/LOG:  this server was started as a standby or from a backup/;

sub inherited
{
	my ($node, $offset) = @_;

	$node->wait_for_log($inherited, $offset);
	return slurp_file($node->logfile, $offset) =~
	  /$inherited, and now mints with node ID (\d+)\n.*?DETAIL:  (.*)\n(?:.*?HINT:  (.*)\n)?/;
}

# The failover.  The IDs of its sessions outlive the primary.
my @minters = map { start_minter($primary, 1_000_000) } 1 .. 2;
wait_until(
	'both mint',
	sub {
		2 == grep { -s $_->{ids} } @minters;
	});
my $reservations = status($primary, 'reservations');
wait_for_status($primary, "reservations > $reservations");
my $promised = status($primary, 'reserved_until');
is(log_count($primary, $inherited), 0, 'nothing in the log of the primary');
$primary->stop('immediate');
my $stopped = clock_gettime(CLOCK_MONOTONIC);

my @seen = sort { $a <=> $b } map { @{ finish_minter($_) } } @minters;

$offset = -s $standby->logfile;
$standby->promote;
set_clock($standby_clock, -$behind - (clock_gettime(CLOCK_MONOTONIC) - $stopped) * 1000);
my ($id, $waits) = split /\n/,
  query($standby, 'SELECT snowflake_next(); SELECT clock_waits FROM snowflake_stats');
cmp_ok($id, '>', $seen[-1],
	'the first ID of the promoted standby is larger than all of the primary');
is(query($standby, "SELECT snowflake_timestamp('$id') > '$promised'"),
	't', 'and above what the primary had promised');
cmp_ok($waits, '<=', 1,
	'it waits for no more than a look at the clock, though that is behind: IDs stand');
is(query($standby, "SELECT snowflake_node('$id')"), 1, 'it has the same node ID');

my ($node_id, $detail, $hint) = inherited($standby, $offset);
is($node_id, 1, 'the log has the node ID of a promoted standby');
like(
	$detail,
	qr/^The node ID comes from snowflake\.node_id, which is set in ".*\/postgresql\.auto\.conf", line \d+\. According to the reservation, node ID 1 was in use before, until "[^"]+" at the latest\.$/,
	'and where it comes from, and that it was in use');
my ($line) = $detail =~ /line (\d+)/;
my @lines = split /\n/, slurp_file($standby->data_dir . '/postgresql.auto.conf');
like($lines[ $line - 1 ], qr/^snowflake\.node_id = 1$/, 'which is right');
like($hint, qr/^If another server used it/, 'and what to do if another server still has it');

$offset = -s $standby->logfile;
restart_node($standby, 'fast', $standby_clock);
wait_for_mint($standby);
is(log_count($standby, $inherited, $offset), 0, 'the log does not say it again');
$standby->stop;

# A copy, with a node ID of its own on the command line
my $copy = standby_of_backup('copy', 'base', '');
{
	local %ENV = $copy->_get_env();
	system_or_bail(
		'pg_ctl', '-w', '-D', $copy->data_dir,
		'-l', $copy->logfile, '-o', '-c snowflake.node_id=3',
		'start');
	$copy->_update_pid(1);
}
wait_for_mint($copy);
($node_id, $detail, $hint) = inherited($copy, 0);
is($node_id, 3, 'the log has the node ID of a copy');
is( $detail,
	'The node ID comes from snowflake.node_id, which is set by the command line. According to the reservation, node ID 3 was not in use before.',
	'which is its own, whatever came with the data');
is($hint, undef, 'so there is nothing to do');

done_testing();
