# The way back after a wrong clock or a restore: how soon all servers mint again, and
# what an administrator is told.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  coordinator_url duplicates error_of log_count mint_together new_clock new_coordinator
  new_member patience set_clock start_with_clock status wait_for_mint wait_for_status
  wait_until
);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $coordinator = new_coordinator();
my $clock = new_clock('ahead');
my @lists;

# Wait until they mint at their clocks.
sub mint_at_clock
{
	foreach my $node (@_)
	{
		wait_for_mint($node);
		wait_for_status($node, q{gate = 'open' AND lead < '1s' AND coordinator = 'reachable'});
	}
	return;
}

sub records
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

my ($one, $two, $ahead) =
  map { new_member($_, $coordinator, conf => "snowflake.max_wait = '20s'\n") } qw(one two ahead);
set_clock($clock, 600_000);
start_with_clock($ahead, $clock);
$_->start foreach $one, $two;
$_->safe_psql('postgres', 'CREATE EXTENSION snowflake') foreach $one, $two, $ahead;

# Founded by a server that is ahead: the others need not wait for its clock.  And it
# has a lease when the function returns.
$ahead->safe_psql('postgres',
	q{SELECT snowflake_fleet_create(); SET snowflake.max_wait = '1s'; SELECT snowflake_next()});
is(status($ahead, 'coordinator'), 'reachable', 'the founder of a fleet has a lease at once');
mint_at_clock($one, $two);
pass('a fleet is founded by a server that is ahead: the others mint at their clocks');
push @lists, mint_together(1, $one, $two, $ahead);

# It has had a lease: it creates no fleet that grants what others may have.
records('CREATE DATABASE second');
$ahead->append_conf('postgresql.conf',
	q{snowflake.node_source = '} . coordinator_url($coordinator) =~ s/postgres$/second/r . q{'});
$ahead->reload;
$ahead->poll_query_until('postgres', q{SELECT current_setting('snowflake.node_source') ~ 'second'})
  or die 'no reload';
my $error = error_of($ahead, 'SELECT snowflake_fleet_create()');
like(
	$error->{message},
	qr/^this server has had a lease, so there has been a snowflake fleet$/,
	'a server that has had a lease does not create a fleet');
is($error->{sqlstate}, '55000', 'with its SQLSTATE');
like($error->{hint}, qr/^Use snowflake_fleet_recover\(\)/, 'and a hint');
wait_for_status($ahead,
	q{advice ~ 'had a lease: re-create it with snowflake_fleet_recover\(\)\.$'});
unlike(status($ahead, 'advice'), qr/create\(\)/, 'nor is it told to');

# Nor one that has snowflakes ahead of the clock, without a word about that.
$ahead->stop;
start_with_clock($ahead, $clock);
wait_for_status($ahead, q{advice ~ 'recover\(\); .*create\(\)'});
$error = error_of($ahead, 'SELECT snowflake_fleet_create()');
like(
	$error->{message},
	qr/^the floor of the fleet would be .* ahead of the clock$/,
	'a founder with snowflakes from a clock that is ahead');
is($error->{sqlstate}, '55000', 'is refused, with its SQLSTATE');
like($error->{hint}, qr/snowflake_fleet_create\(\) with a floor/, 'and a hint');
$ahead->append_conf('postgresql.conf',
	q{snowflake.node_source = '} . coordinator_url($coordinator) . q{'});
$ahead->reload;
wait_for_status($ahead, q{gate = 'open' AND coordinator = 'reachable'});

# Records go back in time.  The first server marks the fleet with its own lease, the one that
# is ahead with a later one; and that is stopped for good.
records(sprintf q{DELETE FROM snowflake_fleet.records WHERE key = 'node/%d'}, status($one, 'node'));
wait_for_status($one, q{gate = 'closed: the coordinator went back in time'});
my $node = status($ahead, 'node');
records(qq{DELETE FROM snowflake_fleet.records WHERE key = 'node/$node'});
wait_for_status($ahead, q{gate = 'closed: the coordinator went back in time'});

# the gate is closed before the fleet's record is written
$ahead->poll_query_until(
	'postgres',
	sprintf q{SELECT leased_until >= '%s' FROM snowflake_fleet() WHERE node IS NULL},
	status($ahead, 'lease_until')
) or die 'the second holder does not say up to where its lease was';
$ahead->stop('immediate');
foreach my $attempt (1, 2)
{
	$error = error_of($one, q{SELECT snowflake_fleet_recover(now() + interval '11s')});
	is( $error->{message},
		'the floor of the fleet is too low',
		"attempt $attempt with a floor below its lease");
	$error = error_of($one, 'SELECT snowflake_fleet_recover()');
	like(
		$error->{message},
		qr/^the floor of the fleet would be .* ahead of the clock$/,
		"and with none: it would be far ahead");
	like(
		$error->{detail},
		qr/^Server ".*:@{[ $ahead->port ]} .*" gave up a lease that was valid up to that floor\./,
		'which server said so');
	like(
		$error->{hint},
		qr/permanently stopped.*holder_is_gone => true/,
		'and what to do if that is stopped for good');
}

# A recovery above it forgets neither that, nor its own floor.
$one->safe_psql('postgres', q{SELECT snowflake_fleet_recover(now() + interval '15 min')});
is( $one->safe_psql(
		'postgres', 'SELECT holder, leased_until FROM snowflake_fleet() WHERE node IS NULL'),
	'|',
	'above what a server reported nothing but the floor is listed');
$error = error_of($one, q{SELECT snowflake_fleet_recover(now() + interval '11s')});
like(
	$error->{detail},
	qr/^Server ".*:@{[ $ahead->port ]} .*" gave up a lease that was valid until "/,
	'after a recovery above it that is known as well');
$error = error_of($one, 'SELECT snowflake_fleet_recover()');
like(
	$error->{detail},
	qr/^That was the previous floor of the fleet\./,
	'and the next recovery is not below this one by default');
my $began = time;
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover(holder_is_gone => true)');
mint_at_clock($one, $two);
push @lists, mint_together(1, $one, $two);
note(sprintf 'after %.1f s', time - $began);
is(duplicates(@lists), 0, 'then all others mint at their clocks, no ID twice');

# A floor far ahead that was a mistake is waited for with a closed gate, and can be
# lowered: no generator got ahead.
$one->safe_psql('postgres', q{SELECT snowflake_fleet_recover(now() + interval '1 year')});
wait_for_status($_, q{advice ~ '^This server waits for the floor of the fleet, until "'})
  foreach $one, $two;
is(status($one, 'coordinator'), 'grants nothing', 'a floor far ahead is waited for');
$one->safe_psql('postgres', q{SELECT snowflake_fleet_recover(now() + interval '1s')});
mint_at_clock($one, $two);
pass('and can be lowered');

# Two holders are overtaken: both records are gone and somebody else has the node IDs.
# The first one marks the fleet, which is founded again; the second one only gives up.
my %node = map { $_ => status($_ eq 'one' ? $one : $two, 'node') } qw(one two);
my ($lessee) = map { /^\s*(\d+).*snowflake lessee/ } split /\n/,
  `ps -o pid=,args= --ppid $two->{_pid}`;
kill 'STOP', $lessee;
records(
	sprintf
	  q{UPDATE snowflake_fleet.records SET value = jsonb_set(value::jsonb, '{token}', '"somebody else"')::text
	WHERE key IN ('node/%d', 'node/%d')}, $node{one}, $node{two});
wait_for_status($one, q{gate = 'closed: the coordinator went back in time'});
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
$began = time;
kill 'CONT', $lessee;
wait_for_status($two, q{gate ~ 'went back'});
is( $one->safe_psql('postgres', 'SELECT state FROM snowflake_fleet() WHERE node IS NULL'),
	'fleet',
	'the second holder that was overtaken gives up, and does not mark the fleet that was founded again'
);
mint_at_clock($one, $two);
push @lists, mint_together(1, $one, $two);
note(sprintf 'after %.1f s', time - $began);
is(duplicates(@lists), 0, 'and both mint, no ID twice');

# The coordinator goes back in time, and then forward to what it had.  What was revoked is not
# renewed, though it is the same record: a new lease starts above it, or has another node ID.
records(
	sprintf q{
	BEGIN;
	SELECT FROM snowflake_fleet.records WHERE key = 'fleet' FOR UPDATE;
	CREATE TABLE before AS SELECT * FROM snowflake_fleet.records WHERE key IN ('fleet', 'node/%1$d');
	DELETE FROM snowflake_fleet.records WHERE key = 'node/%1$d';
	COMMIT}, status($one, 'node'));
wait_for_status($one, q{gate = 'closed: the coordinator went back in time'});
records(
	q{DELETE FROM snowflake_fleet.records WHERE key IN (SELECT key FROM before);
	INSERT INTO snowflake_fleet.records SELECT * FROM before});
mint_at_clock($one, $two);
is( records(
		sprintf q{
		SELECT bool_and(r.key <> b.key OR (r.value::jsonb ->> 'from')::int8 > (b.value::jsonb ->> 'until')::int8)
		FROM snowflake_fleet.records r, before b WHERE r.key = 'node/%d' AND b.key <> 'fleet'},
		status($one, 'node')),
	't',
	'what was revoked is not renewed');
push @lists, mint_together(1, $one, $two);
is(duplicates(@lists), 0, 'no ID twice');

# What the coordinator has is changed to the tick, beside a lease of which "first" and "last"
# are the ends; "fleet" is what becomes of the fleet's record, and "record" a statement for the
# one of the node ID.  What does the holder do?
$one->append_conf('postgresql.conf', q{snowflake.lease = '} . patience(3) . q{s'});
$one->reload;

sub found
{
	my ($fleet, $record) = @_;
	my $offset = -s $one->logfile;
	my $holder = ':' . $one->port . ' ';

	records(
		qq{
		BEGIN;
		SELECT FROM snowflake_fleet.records WHERE key = 'fleet' FOR UPDATE;
		DO \$\$
		DECLARE
			own record;
		BEGIN
			SELECT key, (value::jsonb ->> 'from')::bigint AS first, (value::jsonb ->> 'until')::bigint AS last
				FROM snowflake_fleet.records WHERE value::jsonb ->> 'holder' ~ '$holder' AND key <> 'fleet'
				ORDER BY last DESC LIMIT 1 INTO own;
			UPDATE snowflake_fleet.records SET value = (value::jsonb || $fleet)::text WHERE key = 'fleet';
			$record WHERE key = own.key;
		END \$\$;
		COMMIT});
	my $used_up = qr/LOG:  lost the lease of snowflake node ID/;
	my $given_up = qr/WARNING:  the coordinator of the snowflake fleet went back in time/;
	wait_until('it is noticed', sub { log_count($one, qr/$used_up|$given_up/, $offset) > 0 });
	return log_count($one, $given_up, $offset) ? 'given up' : 'used up';
}

my $above = q{jsonb_build_object('incarnation', md5(random()::text), 'floor', own.last)};
my $update =
  q{UPDATE snowflake_fleet.records SET value = (value::jsonb || jsonb_build_object(%s))::text};
foreach my $case (
	[ 'and its record is gone', 'DELETE FROM snowflake_fleet.records', 'used up' ],
	[ 'and its record is an older one', sprintf($update, q{'until', own.last - 1}), 'used up' ],
	[
		'and somebody else had the last tick',
		sprintf($update, q{'token', 'another', 'from', own.last, 'until', own.last}),
		'given up'
	],
	[
		'and somebody else had the first tick',
		sprintf($update, q{'token', 'another', 'from', own.first, 'until', own.first}),
		'given up'
	])
{
	my ($name, $record, $expected) = @$case;
	my $leases = status($one, 'leases');

	is(found($above, $record),
		$expected, "founded again at the end of a lease, $name: it is $expected");
	wait_for_status($one, "leases > $leases AND gate = 'open'");
}
$node = status($one, 'node');
is( found(
		q{'{}'::jsonb},
		sprintf($update, q{'token', 'another', 'from', own.last, 'until', own.last + 3600000})),
	'given up',
	'somebody else has the last tick of a lease: it is given up');
is(error_of($one, "SELECT snowflake_fleet_reclaim($node)")->{message},
	'', 'and this server may reclaim it');
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
mint_at_clock($one, $two);

# A clock that was ahead for a moment.  Clean restarts take no further node IDs.
$ahead->append_conf('postgresql.conf',
	"snowflake.lease_nodes = '50-59'\nsnowflake.jump_patience = 0\n");
set_clock($clock, 600_000);
start_with_clock($ahead, $clock);
wait_for_mint($ahead);
$ahead->stop;
set_clock($clock, 0);
my %used;

foreach my $restart (1 .. 4)
{
	start_with_clock($ahead, $clock);
	wait_for_status($ahead, q{node IS NOT NULL});
	$used{ status($ahead, 'node') } = 1;
	$ahead->stop;
}
is(join(' ', sort keys %used), '50', 'restarts of a generator that is ahead take no node ID more');
is($one->safe_psql('postgres', 'SELECT state FROM snowflake_fleet() WHERE node = 50'),
	'leased', 'and to others the one that was used ahead of the clock is not free');

# Nobody has that any more, and its IDs do not count.
$error = error_of($one, 'SELECT snowflake_fleet_reclaim(' . status($one, 'node') . ')');
is($error->{sqlstate}, '55006', 'what this server holds is not reclaimed');
is(error_of($one, 'SELECT snowflake_fleet_reclaim(77)')->{sqlstate}, '42704',
	'nor what nobody had');
is(error_of($one, 'SELECT snowflake_fleet_reclaim(-1)')->{sqlstate},
	'42704', 'nor what is no node ID');
is(error_of($one, q{SELECT snowflake_fleet_reclaim(50, now() + interval '1 day')})->{sqlstate},
	'22023', 'a floor above its lease is none');
is(error_of($one, "SELECT snowflake_fleet_reclaim(50, '$_')")->{sqlstate},
	'22008', "nor is one that the layout does not have: $_")
  foreach '2009-12-31', '2100-01-01';
$one->safe_psql('postgres', 'SELECT snowflake_fleet_reclaim(50)');
is( $one->safe_psql(
		'postgres', 'SELECT state, holder, since FROM snowflake_fleet() WHERE node = 50'),
	'free||',
	'a node ID is reclaimed, and has no holder any more');
$node = status($two, 'node');
wait_until(
	'no renewal comes in between',
	sub {
		$error = error_of($one, "SELECT snowflake_fleet_reclaim($node)");
		return $error->{message} !~ /changed concurrently$/;
	});
is($error->{message}, '', 'as is one that is held');
wait_for_status($two, q{gate = 'closed: the coordinator went back in time'});
pass('a holder that there is all the same notices');

# A fleet is re-created above the leases, which are used up, and then again with a lower floor:
# that is noticed by a holder whose lease is lost as well.
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover()');
mint_at_clock($one, $two);
$coordinator->safe_psql('postgres', 'DROP SCHEMA snowflake_fleet CASCADE');
my $lost_from = -s $two->logfile;
$one->safe_psql('postgres', q{SELECT snowflake_fleet_recover(now() + interval '1 day')});
$two->wait_for_log(qr/lost the lease of snowflake node ID/, $lost_from);
is(status($two, 'gate'), 'open', 'a lease below the floor of a new fleet is used up');
$one->safe_psql('postgres', 'SELECT snowflake_fleet_recover(now())');
wait_for_status($two, q{gate = 'closed: the coordinator went back in time'});
pass('and given up if the floor is lowered below it');

$_->stop foreach $one, $two, $coordinator;
done_testing();
