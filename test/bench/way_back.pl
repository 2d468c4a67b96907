# How soon a fleet mints again after a wrong clock, a restore or a change of its settings, and how
# many IDs came twice: what doc/fleet.md has in a table, before and after.
#
# It runs with what PG_CONFIG has installed, which may be an older version; test/README.md has the
# command.  Leases last 10 s.  It is no test: it prints one line for each case.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  coordinator_url duplicates member_conf mint_together new_clock new_coordinator
  new_member new_node set_clock start_with_clock status wait_until
);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $GIVE_UP_S = 60;
my $YEAR_MS = 365 * 86400 * 1000;
my $case;
my @running;

sub report
{
	my ($text) = @_;

	diag("| $case | $text |");
	return;
}

# A member that is to be started, and stopped at the end of the case.  Names are for one case.
sub member
{
	my ($name, $coordinator, $conf) = @_;
	my $node = new_member("${name}_$case", $coordinator,
		conf => "snowflake.max_wait = '20s'\n" . ($conf // ''));

	push @running, $node;
	return $node;
}

sub begin
{
	my ($node, $clock) = @_;

	defined $clock ? start_with_clock($node, $clock) : $node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS snowflake');
	return $node;
}

sub mints
{
	my ($node) = @_;
	my ($status) =
	  $node->psql('postgres', q{SET snowflake.max_wait = '200ms'; SELECT snowflake_next()});

	return $status == 0;
}

# Seconds from then until each of them has minted, as text.
sub until_mint
{
	my ($since, @nodes) = @_;

	foreach my $node (@nodes)
	{
		while (!mints($node))
		{
			return "more than $GIVE_UP_S s" if time - $since > $GIVE_UP_S;
			usleep(20_000);
		}
	}
	return sprintf '%.1f s', time - $since;
}

sub advice
{
	my ($node) = @_;

	return status($node, q{coalesce(advice, 'none')});
}

sub query
{
	my ($node, $sql) = @_;

	return $node->safe_psql('postgres', $sql);
}

# Is it a version whose function takes that?
sub takes
{
	my ($node, $function, $names) = @_;

	return query($node,
		"SELECT count(*) > 0 FROM pg_proc WHERE proname = '$function' AND '$names' = ANY (proargnames)"
	) eq 't';
}

sub create
{
	my ($node, $floor) = @_;

	return query($node,
		defined $floor && takes($node, 'snowflake_fleet_create', 'floor')
		? "SELECT snowflake_fleet_create('$floor')"
		: 'SELECT snowflake_fleet_create()');
}

# The lessee of a server, by its process
sub lessee
{
	my ($node) = @_;

	return (
		map { /^\s*(\d+).*snowflake lessee/ } split /\n/,
		`ps -o pid=,args= --ppid $node->{_pid}`)[0];
}

my %cases = (
	1 => sub {
		my $coordinator = shift;
		my $clock = new_clock('by_hand');
		my $second_clock = new_clock('leased');
		my $by_hand = new_node("by_hand_$case", node_id => 0);
		push @running, $by_hand;
		set_clock($clock, 160_000);
		begin($by_hand, $clock);
		my $since = time;
		my @lists = mint_together(6, $by_hand);
		my $newest = status($by_hand, 'last_time');
		$by_hand->stop('fast');

		# the next one's clock comes to where that was
		my $leased = member('leased', $coordinator);
		set_clock($second_clock, int((160 - (time - $since) - 3) * 1000));
		begin($leased, $second_clock);
		create($leased, $newest);
		push @lists, mint_together(10, $leased);
		report(duplicates(@lists) . ' duplicates');
	},
	2 => sub {
		my $coordinator = shift;
		$coordinator->backup('base');
		my $second = PostgreSQL::Test::Cluster->new("second_$case");
		push @running, $second;
		$second->init_from_backup($coordinator, 'base', has_streaming => 1);
		$second->start;
		my ($host, $port) = (coordinator_url($coordinator) =~ m{//(.*):(\d+)});
		my @hosts = ([ $host, $port ], [ coordinator_url($second) =~ m{//(.*):(\d+)} ]);
		my @nodes = map {
			my ($a, $b) = $_ ? reverse @hosts : @hosts;
			my $node = new_node(
				"split${_}_$case",
				node_id => undef,
				conf => "snowflake.node_source = 'postgresql:///postgres?host=$a->[0],$b->[0]"
				  . "&port=$a->[1],$b->[1]&target_session_attrs=read-write'\n"
				  . "snowflake.lease = '10s'\n");
			push @running, $node;
			begin($node);
		} 0, 1;

		# one node ID is known, which ends before the split
		$nodes[1]->stop('fast');
		create($nodes[0]);
		until_mint(time, $nodes[0]);
		$nodes[0]->stop('fast');
		$coordinator->wait_for_catchup($second, 'replay', $coordinator->lsn('flush'));
		$second->promote;
		$_->start foreach @nodes;
		usleep(3_000_000);
		my @able = grep { mints($_) } @nodes;
		report(
			@able < 2
			? '0 duplicates: ' . @able . ' of 2 servers are granted a node ID'
			: duplicates(mint_together(10, @nodes)) . ' duplicates in 10 s');
	},
	3 => sub {
		my $coordinator = shift;
		my $one = begin(member('one', $coordinator));
		create($one);
		until_mint(time, $one);
		$one->append_conf('postgresql.conf', "snowflake.lease_nodes = '100-200'");
		$one->reload;
		usleep(25_000_000);
		my $by_hand = new_node("by_hand_$case", node_id => 0);
		push @running, $by_hand;
		begin($by_hand);
		report(duplicates(mint_together(5, $one, $by_hand)) . ' duplicates in 5 s');
	},
	4 => sub {
		my $coordinator = shift;
		my $clock = new_clock('ahead');
		my ($one, $two, $ahead) = map { member($_, $coordinator) } qw(one two ahead);
		set_clock($clock, $YEAR_MS);
		begin($_) foreach $one, $two;
		create($one);
		until_mint(time, $one, $two);
		begin($ahead, $clock);
		until_mint(time, $ahead);
		query($coordinator,
				"DELETE FROM snowflake_fleet.records WHERE key = 'node/"
			  . status($ahead, 'node')
			  . q{'});
		wait_until('it notices', sub { status($ahead, 'gate') =~ /back in time/ });
		wait_until(
			'it says so',
			sub {
				query($coordinator,
					q{SELECT value FROM snowflake_fleet.records WHERE key = 'fleet'}) =~
				  /"suspect": ?true/;
			});
		$ahead->stop('immediate');
		my %leases = map { $_->name => status($_, 'leases') } $one, $two;
		my $since = time;
		query($one,
			takes($one, 'snowflake_fleet_recover', 'holder_is_gone')
			? 'SELECT snowflake_fleet_recover(holder_is_gone => true)'
			: 'SELECT snowflake_fleet_recover()');

		# what they hold is used up first, so it is the next lease that counts
		foreach my $node ($one, $two)
		{
			usleep(20_000)
			  while time - $since <= $GIVE_UP_S
			  && status($node, 'leases') <= $leases{ $node->name };
		}
		report(until_mint($since, $one, $two));
	},
	5 => sub {
		my $coordinator = shift;
		my $clock = new_clock('ahead');
		my ($one, $two, $ahead) = map { member($_, $coordinator) } qw(one two ahead);
		set_clock($clock, 600_000);
		begin($ahead, $clock);
		begin($_) foreach $one, $two;
		create($ahead);
		report(until_mint(time, $one, $two));
	},
	6 => sub {
		my $coordinator = shift;
		my ($one, $two) = map { begin(member($_, $coordinator)) } qw(one two);
		create($one);
		until_mint(time, $one, $two);
		my $nodes = join ', ', map { q{'node/} . status($_, 'node') . q{'} } $one, $two;
		my $lessee = lessee($two);
		my $recovered = 0;
		my $since = time;
		kill 'STOP', $lessee;
		query(
			$coordinator,
			qq{UPDATE snowflake_fleet.records SET value = jsonb_set(value::jsonb, '{token}', '"another"')::text
			WHERE key IN ($nodes)});
		wait_until('the first notices', sub { status($one, 'gate') =~ /back in time/ });
		usleep(500_000);
		query($one, 'SELECT snowflake_fleet_recover()');
		usleep(1_000_000);
		my $advice = advice($one);
		kill 'CONT', $lessee;
		wait_until('the second notices', sub { status($two, 'gate') =~ /back in time/ });

		# an administrator who looks at once
		while (!(mints($one) && mints($two)))
		{
			if (query($coordinator,
					q{SELECT value FROM snowflake_fleet.records WHERE key = 'fleet'}) =~
				/"suspect": ?true/)
			{
				query($one, 'SELECT snowflake_fleet_recover()');
				$recovered++;
			}
			last if time - $since > 2 * $GIVE_UP_S;
			usleep(50_000);
		}
		report(sprintf '%.1f s, with %d more recover()', time - $since, $recovered);
		$case = '7';
		report("advice: $advice");
	},
	8 => sub {
		my $coordinator = shift;
		my $clock = new_clock('ahead');
		my $one = member('one', $coordinator);
		my $ahead = member('ahead', $coordinator,
			"snowflake.lease_nodes = '50-59'\nsnowflake.jump_patience = 0\n");
		begin($one);
		create($one);
		set_clock($clock, 600_000);
		begin($ahead, $clock);
		until_mint(time, $ahead);
		$ahead->stop('fast');
		set_clock($clock, 0);

		foreach (1 .. 5)
		{
			start_with_clock($ahead, $clock);
			wait_until('it has a node ID', sub { status($ahead, 'node') ne '' });
			usleep(500_000);
			$ahead->stop('fast');
		}
		report(
			query(
				$coordinator,
				q{SELECT count(*) FROM snowflake_fleet.records WHERE key ~ '^node/5[0-9]$'
				AND (value::jsonb ->> 'until')::int8 > (value::jsonb ->> 'granted')::int8 + 60000})
			  . ' node IDs leased for 600 s after five restarts');
	},
	9 => sub {
		my $coordinator = shift;
		my @nodes = map { begin(member($_, $coordinator)) } qw(one two);
		create($nodes[0]);
		until_mint(time, @nodes);
		foreach my $node (@nodes)
		{
			$node->append_conf('postgresql.conf',
					"snowflake.node_source = '"
				  . coordinator_url($coordinator)
				  . "?connect_timeout=3'");
			$node->reload;
		}
		usleep(12_000_000);
		report(
			query($coordinator,
				q{SELECT count(*) FROM snowflake_fleet.records WHERE key ~ '^node/'})
			  . ' node IDs for two servers; '
			  . until_mint(time, @nodes));
	},
	10 => sub {
		my $coordinator = shift;
		my $clock = new_clock('moved');
		my $node = begin(member('moved', $coordinator), $clock);
		create($node);
		until_mint(time, $node);
		query($node, q{SELECT snowflake_fleet_recover(now() - interval '3 hours')});
		until_mint(time, $node);
		my @took;

		foreach my $seconds (-20, -10, -5, 0, 5, 12)
		{
			$node->stop('fast');
			set_clock($clock, $seconds * 1000);
			start_with_clock($node, $clock);
			my $since = time;
			query($node, q{SET snowflake.max_wait = '1min'; SELECT snowflake_next()});
			push @took, time - $since;
		}
		@took = sort { $a <=> $b } @took;
		report(sprintf 'median %.2f s, worst %.2f s', $took[3], $took[-1]);
	});

my @wanted = @ARGV ? @ARGV : sort { $a <=> $b } keys %cases;
foreach my $number (@wanted)
{
	$case = $number;
	my $coordinator = new_node(
		"coordinator_$case",
		node_id => undef,
		preload => 0,
		init => { allows_streaming => 1 });
	$coordinator->start;
	push @running, $coordinator;
	eval { $cases{$number}->($coordinator); 1 } or report("failed: $@");
	$_->stop('immediate', fail_ok => 1) foreach @running;
	@running = ();
}
pass('measured');
done_testing();
