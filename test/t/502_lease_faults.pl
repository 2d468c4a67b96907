# A server that stands still while its node ID is taken over, and a lessee that is
# terminated: nobody mints what somebody else may mint.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  children duplicates error_at_once error_of finish_minter log_count mint_together new_clock
  new_coordinator new_member patience start_minter start_with_clock status step_clock
  wait_for_mint wait_for_status wait_until
);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $coordinator = new_coordinator();
my @lists;
my @stopped;

sub records
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

# Signal all processes of a server, the parent first, which would start others.
sub signal_server
{
	my ($node, $signal) = @_;

	kill $signal, $_ foreach @stopped = ($node->{_pid}, children($node, qr/./));
	@stopped = () if $signal eq 'CONT';
	return;
}

END
{
	kill 'CONT', @stopped;
}

sub terminate
{
	my ($node, $regexp) = @_;
	my @pids = children($node, $regexp) or die 'no such process';

	kill 'TERM', @pids;
	wait_until('processes end', sub { !kill(0, @pids) });
	return;
}

# Two servers and two node IDs
my ($one, $two, $three) = map {
	new_member(
		$_, $coordinator,
		lease => patience(4) . 's',
		conf => "snowflake.lease_nodes = '5, 6'",
		init => { allows_streaming => 1 })
} qw(one two three);
$one->start;
$one->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
$two->start;
$two->safe_psql('postgres', 'CREATE EXTENSION snowflake');
push @lists, mint_together(1, $one, $two);
is(join(' ', sort map { status($_, 'node') } $one, $two),
	'5 6', 'two servers have the two node IDs');

# A third one finds none, says so, and gets that of a server that stands still.
$three->start;
$three->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_status($three, q{advice ~ '^No node ID is free'});
is(error_at_once($three)->{message}, 'this server has not leased a node ID', 'no node ID is free');

# That is so as well when its lessee has ended, and no other one can be started.
my $waiting = $three->background_psql('postgres');
@stopped = ($three->{_pid});
kill 'STOP', @stopped;
kill 'TERM', children($three, qr/snowflake lessee/);
wait_until('the lessee ends', sub { !children($three, qr/snowflake lessee/) });
like(
	$waiting->query_safe('SELECT advice FROM snowflake_status'),
	qr/^No node ID is free/,
	'which is not forgotten with the lessee');
kill 'CONT', @stopped;
@stopped = ();
$waiting->quit;

my $stopped_with = status($one, 'node');
my $minter = start_minter($one, 200_000);
sleep 1;
signal_server($one, 'STOP');
push @lists, mint_together(1, $two, $three);
is(status($three, 'node'),
	$stopped_with, 'a server that stood still for longer than its lease lost it');
my $other = start_minter($three, 30_000);
signal_server($one, 'CONT');
push @lists, finish_minter($other);
wait_for_status($one, q{gate <> 'open' AND advice ~ '^No node ID is free'});
pass('it goes on, finds its node ID taken, and closes');
$three->stop;
wait_for_mint($one);
$minter->{run}->kill_kill;
push @lists, finish_minter($minter);
push @lists, mint_together(1, $one, $two);
is(duplicates(@lists), 0, 'no ID twice');

# A lessee that is terminated by hand, on a standby or with the keeper, gives back
# what nobody may use from then on.
$_->append_conf('postgresql.conf', "snowflake.lease_nodes = ''") foreach $one, $two;
$_->reload foreach $one, $two;
$one->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($one, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "snowflake.lease = '1min'");
$standby->start;
wait_for_status($standby, 'node IS NOT NULL');
my $node = status($standby, 'node');
my $key = "key = 'node/$node'";
my $until =
  records("SELECT (value::jsonb->>'until')::bigint FROM snowflake_fleet.records WHERE $key");
@stopped = ($standby->{_pid});    # which would start another one at once
kill 'STOP', @stopped;
kill 'TERM', children($standby, qr/snowflake lessee/);
ok( $coordinator->poll_query_until(
		'postgres',
		"SELECT (value::jsonb->>'until')::bigint < $until FROM snowflake_fleet.records WHERE $key"),
	'a lessee that is terminated gives the node ID back');
$coordinator->stop('immediate');
kill 'CONT', @stopped;
@stopped = ();
like(
	status($standby, 'advice'),
	qr/^A promotion would leave this server unable to mint: the lease of this server's node ID has ended\./,
	'the standby says that it could not mint');
$standby->promote;
wait_for_status($standby, q{gate = 'open' OR gate ~ 'lease'});
my $error = error_of($standby, q{SET snowflake.max_wait = '1s'; SELECT snowflake_next()});
like(
	$error->{message},
	qr/^the lease of this server's node ID has ended|^this server has not leased/,
	'and the standby does not mint with it when it is promoted');
$coordinator->start;
wait_for_mint($standby);
push @lists, mint_together(1, $one, $two, $standby);
terminate($standby, qr/snowflake (?:lessee|keeper)/);
push @lists, mint_together(1, $one, $two, $standby);
is(duplicates(@lists), 0, 'no ID twice');
$standby->stop;

# A lease is not given back while sessions may mint with it: the keeper has failed, and
# left the gate open.
my $session = $one->background_psql('postgres', on_error_stop => 0);
$session->query_safe(
	q{ALTER TABLE snowflake_keeper.reservation ADD COLUMN extra text; SET snowflake.max_wait = '100ms'}
);
$key = q{key = 'node/} . status($one, 'node') . q{'};
@stopped = ($one->{_pid});
kill 'STOP', @stopped;
$session->query('DO $$ BEGIN LOOP PERFORM snowflake_next(); END LOOP; END $$');
wait_until('the keeper has failed',
	sub { $session->query('SELECT advice FROM snowflake_status') =~ /failed with SQLSTATE/ });
$until = records("SELECT (value::jsonb->>'until')::bigint FROM snowflake_fleet.records WHERE $key");
kill 'TERM', children($one, qr/snowflake lessee/);
wait_until('the lessee ends', sub { !children($one, qr/snowflake lessee/) });
cmp_ok(records("SELECT (value::jsonb->>'until')::bigint FROM snowflake_fleet.records WHERE $key"),
	'>=', $until, 'a lease is not given back while the gate is open');
is($session->query('SELECT coordinator FROM snowflake_status'),
	'not asked', 'what a lessee knew that has ended is not told');
kill 'CONT', @stopped;
@stopped = ();
wait_until('the lessee is back', sub { children($one, qr/snowflake lessee/) });
$session->quit;
$one->safe_psql('postgres', 'DROP EXTENSION snowflake_keeper');
wait_for_mint($one);

# A clock that is set ahead, beyond a lease that would be renewed in a minute by it
my $clock = new_clock('ahead');
$two->stop;
$two->append_conf('postgresql.conf', "snowflake.lease = '2min'");
start_with_clock($two, $clock);
wait_for_mint($two);
step_clock($clock, 300_000);
$two->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
my $began = time;
wait_for_status($two, q{gate = 'open' AND leases = 2});
cmp_ok(time - $began,
	'<', patience(30), 'a server whose clock went beyond its lease leases at once');

# And one that is put right: the lease that was taken by it begins far ahead, where its IDs
# stand.
step_clock($clock, -300_000);
$two->safe_psql('postgres', 'SELECT snowflake_accept_clock()');
$two->reload;
wait_for_mint($two);
is(status($two, q{leases, gate, lead > interval '4min'}),
	'2|open|t', 'a server whose IDs stand ahead keeps its lease when that is put right');

# A lease that cannot be given back is told of.
my $offset = -s $two->logfile;
$one->stop;
$coordinator->stop;
$two->stop;
cmp_ok(log_count($two, qr/WARNING:  could not use the coordinator/, $offset),
	'>', 0, 'a stop tells that the coordinator cannot be used');
done_testing();
