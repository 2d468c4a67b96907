# Settings: what is missing or wrong is said in a way that helps, at the
# earliest moment, and a session cannot change what must be the same for all.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node status wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', node_id => undef);
my $offset;

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE ROLE ordinary LOGIN');

# How long the keeper has been running, in clock ticks of the kernel; undef
# where that cannot be known.
sub keeper_ticks
{
	my $pid = $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'");

	return unless $pid ne '' && -r "/proc/$pid/stat";
	my @fields = split / /, slurp_file("/proc/$pid/stat") =~ s/^.*\) //sr;
	return $fields[11] + $fields[12];
}

is( $node->safe_psql(
		'postgres', q{
		SELECT bool_and(w.setting::int > r.setting::int) FROM pg_settings w, pg_settings r
		 WHERE w.name = 'snowflake.max_wait' AND r.name = 'snowflake.reservation'}),
	't',
	'by default a mint waits longer than a crash can make it');

# Who may change each setting, who may see it, and its unit
my $settings = q{SELECT name || ' ' || context || coalesce(' ' || unit, '') FROM pg_settings
	WHERE name LIKE 'snowflake.%' ORDER BY name COLLATE "C"};
my %seen = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', "SET ROLE ordinary; $settings");
is( join("\n",
		map { $_ . ($seen{$_} ? '' : ' superuser') } split /\n/,
		$node->safe_psql('postgres', $settings)),
	q{snowflake.database postmaster
snowflake.jump_patience sighup ms
snowflake.layout postmaster
snowflake.lease sighup ms
snowflake.lease_nodes sighup
snowflake.max_ahead sighup s
snowflake.max_jump sighup ms
snowflake.max_lead sighup ms
snowflake.max_wait user ms
snowflake.node_id sighup
snowflake.node_source sighup superuser
snowflake.reservation sighup ms
snowflake.spread sighup},
	'who may change each setting, who may see it, and its unit');
is(error_of($node, q{SET ROLE ordinary; SET snowflake.kept_in = '1'})->{sqlstate},
	'42501', "the keeper's note of its database is not for everybody");
is(error_of($node, q{ALTER SYSTEM SET snowflake.kept_in = '1'})->{sqlstate},
	'55P02', 'nor is it for a configuration file');
is(error_of($node, 'ALTER SYSTEM SET snowflake.reservation = 0')->{sqlstate},
	'22023', 'nothing can be minted without a reservation, so 0 is refused');
is(error_of($node, 'ALTER SYSTEM SET snowflake.max_jump = 0')->{sqlstate},
	'22023', 'nor can each look find a jump');

# Dates that are none, and a name that is none
foreach my $layout ('twitter epoch:2025-01-00T00:00:00Z', 'time:41 _node:10 sequence:12 epoch:0')
{
	is(error_of($node, "ALTER SYSTEM SET snowflake.layout = '$layout'")->{sqlstate},
		'22023', "the layout \"$layout\" is refused");
}

# A mint for which waiting is in vain, and which is not to wait
sub refused_at_once
{
	return error_of($node,
		q{SET snowflake.max_wait = '1h'; SET statement_timeout = '30s'; SELECT snowflake_next()});
}

# No node ID: nothing is minted, and the hint says what to do.
my $ticks = keeper_ticks();
error_of($node, q{SET snowflake.max_wait = '1s'; SELECT snowflake_advance('1')});
SKIP:
{
	skip 'no keeper, or no /proc', 1 unless defined $ticks;

	# That has waited a second.  A tenth of that is plenty.
	cmp_ok(keeper_ticks() - $ticks,
		'<', 10, 'who waits at a closed gate does not keep the keeper busy');
}
my $unset = refused_at_once();
is($unset->{sqlstate}, '55000', 'node ID unset: minting is refused at once');
is($unset->{message}, 'snowflake.node_id is not set', 'with the reason');
like($unset->{detail}, qr/from 0 to 1023/, 'and what is possible');
like(
	$unset->{hint},
	qr/^Set snowflake\.node_id in .* reload the configuration\.$/,
	'and what to do');

# But where the keeper has not taken up yet what the session sees, a mint waits.
my $keeper_pid = status($node, 'keeper_pid');
kill 'STOP', $keeper_pid;
$node->append_conf('postgresql.conf', 'snowflake.node_id = 1');
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.node_id') = '1'})
  or die "reload has no effect";
my $waiting = $node->background_psql('postgres');
$waiting->query_until(qr/go/,
	"\\echo go\nSET snowflake.max_wait = '1h'; SELECT snowflake_node(snowflake_next());\n");
$node->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ 'snowflake_next' AND wait_event_type = 'Extension' AND backend_type = 'client backend'}
) or die "session does not wait";
kill 'CONT', $keeper_pid;
like($waiting->query('SELECT 1'),
	qr/^1\n/, 'a mint waits for the keeper to take up a node ID that was set');
$waiting->quit;

# Nobody who waits for the gate waits longer than allowed.
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = -1');
$node->reload;
$node->poll_query_until('postgres', q{SELECT gate ~ 'node ID is not set' FROM snowflake_status})
  or die "gate does not close";
foreach my $function (q{snowflake_advance('1')}, 'snowflake_accept_layout()')
{
	my $error = error_of($node, "SET snowflake.max_wait = '100ms'; SELECT $function");

	is($error->{sqlstate}, '55000', "node ID unset: $function is refused");
	like($error->{message}, qr/did not finish within 100 ms/, 'for that reason');
	like($error->{detail}, qr/the node ID is not set/, 'and says why the gate is closed');
}

# Another one by reload, the largest that the layout can take
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = 1023');
$node->reload;
$node->poll_query_until('postgres', 'SELECT snowflake_node(snowflake_next()) = 1023')
  or die "node ID is not taken over";
pass('the largest node ID of the layout is used');

# A layout that is none is not taken into the configuration.
my $bad_layout = error_of($node, q{ALTER SYSTEM SET snowflake.layout = 'twiter'});
is($bad_layout->{sqlstate}, '22023', 'ALTER SYSTEM refuses a layout that is none');
like($bad_layout->{detail}, qr/"twiter" is not a preset/, 'and states the reason');
like($bad_layout->{hint}, qr/^A layout is /, 'and what would be one');

# One more is too large.  ALTER SYSTEM does not take it, a reload keeps the
# old one, and both say what is possible.
my $large = error_of($node, 'ALTER SYSTEM SET snowflake.node_id = 1024');
is($large->{sqlstate}, '22023', 'ALTER SYSTEM refuses a node ID that is too large');
like($large->{detail}, qr/\b1023\b/, 'and states the largest');

$offset = -s $node->logfile;
$node->append_conf('postgresql.auto.conf', 'snowflake.node_id = 1024');
$node->reload;
$node->wait_for_log(qr/invalid value for parameter "snowflake\.node_id": 1024/, $offset);
is($node->safe_psql('postgres', 'SELECT snowflake_node(snowflake_next())'),
	'1023', 'a reload does not take it either');

# At start, there is nothing to keep: the server comes up, but does not mint.
$node->restart;
$node->poll_query_until('postgres', q{SELECT gate ~ 'too large' FROM snowflake_status})
  or die "keeper does not look at the node ID";
$large = refused_at_once();
is($large->{sqlstate}, '55000', 'started with it: minting is refused at once');
like(
	"$large->{message} $large->{detail} $large->{hint}",
	qr/\b1024\b.*\b1023\b|\b1023\b.*\b1024\b/,
	'the error states the node ID and the largest possible one');
my $parallel = $node->safe_psql('postgres',
	q{SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
my $plan = error_of($node,
	"SET $parallel = on; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT count(*) FROM pg_class");
like(
	$plan->{message} . $plan->{stdout},
	qr/^.*Workers Launched: 1$/m,
	'parallel workers start with it');
$node->safe_psql('postgres', 'ALTER SYSTEM SET snowflake.node_id = 7');
$node->reload;
$node->poll_query_until('postgres', 'SELECT snowflake_node(snowflake_next()) = 7')
  or die "node ID is not taken over";
pass('and goes on with one that fits');

# What a session must not change
foreach my $role ('superuser', 'ordinary')
{
	my $set_role = $role eq 'ordinary' ? 'SET ROLE ordinary;' : '';

	foreach my $setting (
		'node_id = 8',
		q{layout = 'discord'},
		q{database = 'template1'},
		q{max_lead = '1s'},
		q{reservation = '9s'})
	{
		my $error = error_of($node, "$set_role SET snowflake.$setting");

		is($error->{sqlstate}, '55P02', "$role cannot SET snowflake.$setting for a session");
	}
	is( $node->safe_psql(
			'postgres', "$set_role SET snowflake.max_wait = '7s'; SHOW snowflake.max_wait"),
		'7s',
		"$role can SET snowflake.max_wait");
}
is($node->safe_psql('postgres', 'SELECT snowflake_node(snowflake_next())'),
	'7', 'none of that had an effect');
is(error_of($node, "SET snowflake.max_wait = '-1ms'")->{sqlstate},
	'22023', 'max_wait cannot be negative');
is(error_of($node, "SET snowflake.no_such = 1")->{sqlstate}, '42602', 'the prefix is reserved');

$node->stop;

# A layout that cannot be: the server does not start, and the log says why.
foreach my $bad (
	[ 'twiter', qr/"?twiter"?/ ],
	[ 'time:41 node:10 sequence:13 epoch:0', qr/6[34]/ ],
	[ 'time:41 time:10 sequence:10 epoch:0', qr/two fields "time"/ ],
	[ 'time:41 node:10 sequence:12 tick:0 epoch:0', qr/tick/ ],
	[
		'time:31 node:10 sequence:12 tick:1001ms epoch:0',
		qr/The tick is 1\.001 s\. A server mints with ticks of up to 1\.000 s/
	])
{
	my ($layout, $reason) = @$bad;

	$node->append_conf('postgresql.conf', "snowflake.layout = '$layout'");
	$offset = -s $node->logfile;
	is($node->start(fail_ok => 1), 0, "the server does not start with the layout \"$layout\"");
	my $log = substr(slurp_file($node->logfile), $offset);
	like($log, qr/(?:FATAL|ERROR|LOG): [^\n]*snowflake\.layout/, 'the log names the setting');
	like($log, $reason, 'and the reason');
	$node->stop;
}
$node->append_conf('postgresql.conf',
	"snowflake.layout = 'twitter'\nsnowflake.node_source = 'zoo://keeper'");
is($node->start(fail_ok => 1), 0, 'nor with a source of node IDs that is none');
$node->stop;

# Layouts that can be, each of which mints IDs that decode to what is known.
# (A stored reservation may be tied to the layout it was made with, so each
# gets a server of its own.)
foreach my $good ([ 'sonyflake', 0x1234, 10, 'sonyflake' ],
	[ 'time:40 shard:13 sequence:10 epoch:1314220021721', 8191, 1, 'instagram' ])
{
	my ($layout, $id, $tick, $name) = @$good;
	my $other = new_node(
		$name,
		node_id => $id,
		conf => "snowflake.layout = '$layout'");

	$other->start;
	$other->safe_psql('postgres', 'CREATE EXTENSION snowflake');
	wait_for_mint($other);
	is( $other->safe_psql(
			'postgres', qq{
			SELECT snowflake_node(id),
				   snowflake_node(id, '$layout'),
				   @@ id = snowflake_timestamp(id, '$name'),
				   @@ id BETWEEN before - interval '$tick ms' AND clock_timestamp() + interval '5 ms' + interval '$tick ms',
				   make_snowflake(@@ id, snowflake_node(id), snowflake_sequence(id)) = id
			  FROM (SELECT clock_timestamp() AS before, snowflake_next() AS id) AS minted}),
		"$id|$id|t|t|t",
		"layout $layout: IDs decode to what went in");
	is( $other->safe_psql(
			'postgres', qq{
			SELECT count(DISTINCT id), count(DISTINCT snowflake_sequence(id)) > 1,
				   bool_and(snowflake_node(id) = $id)
			  FROM (SELECT snowflake_next() AS id FROM generate_series(1, 1000)) AS minted}),
		'1000|t|t',
		"layout $layout: a thousand of them are distinct");
	$other->stop;
}

# Each session has a line of the processor's cache, of shared memory that is asked for.
my $large = new_node('large');
my ($without, $with) = map {
	(   run_command(
			[
				'postgres', '-D', $large->data_dir, '-C',
				'shared_memory_size', '-c', 'max_connections=100000', '-c',
				"shared_preload_libraries=$_"
			]))[0]
} '', 'snowflake';
cmp_ok(
	$with - $without,
	'>=',
	int(100_000 * 128 / 1024 / 1024),
	'memory is asked for as many sessions as there may be');

done_testing();
