# What the TAP tests of snowflake have in common.  A test that uses this has strict and warnings, and
# what Test::More, PostgreSQL::Test::Utils, SnowflakeQuery and SnowflakeTime export.

package SnowflakeTest;

use strict;
use warnings;

use Carp;
use Exporter ();
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowflakeNode;
use SnowflakeQuery;
use SnowflakeTime;
use Test::More ();

our @EXPORT = (
	@SnowflakeQuery::EXPORT, @SnowflakeTime::EXPORT, qw(
	  change_node_id children coordinator_url disorder duplicates finish_minter freeze
	  has_injection_points has_public hold_keeper kill_postmaster lock_reservation member_conf
	  mint_together minting_node new_coordinator new_member new_node reload_with restart_node
	  set_conf sleeps_of standby_of start_after_kill start_client start_minter stored thaw write_keys
	));

my $minters = 0;
my $reloads = 0;
my @frozen;

sub import
{
	my ($class, @names) = @_;
	my $caller = caller;

	strict->import;
	warnings->import;
	Exporter::export($_, $caller)
	  foreach $caller eq 'main' ? ('Test::More', 'PostgreSQL::Test::Utils') : ();
	return Exporter::export($class, $caller, @names);
}

# A test that is told to end, since it has run for too long, says where it was, and stops its
# servers.  A process that it has forked just ends.
my $test = $$;
$SIG{TERM} = sub {
	confess 'told to end' if $$ == $test;
	$SIG{TERM} = 'DEFAULT';
	kill 'TERM', $$;
};

# A node that preloads the library and has a node ID, not yet started.
# node_id => undef leaves the setting out, preload => 0 the library, conf is
# further lines for postgresql.conf, new and init are further parameters for
# new() and init().
sub new_node
{
	my ($name, %params) = @_;
	my $node = SnowflakeNode->new($name, %{ $params{new} || {} });
	my $node_id = exists $params{node_id} ? $params{node_id} : 1;

	$node->init(%{ $params{init} || {} });
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'snowflake'")
	  unless exists $params{preload} && !$params{preload};
	$node->append_conf('postgresql.conf', "snowflake.node_id = $node_id")
	  if defined $node_id;

	# PostgreSQL::Test has every statement logged, and some of ours are many
	$node->append_conf('postgresql.conf', "log_statement = none");
	$node->append_conf('postgresql.conf', $params{conf})
	  if defined $params{conf};
	return $node;
}

# A started node that is the coordinator of a fleet: an ordinary server, without
# the library.  Parameters are those of new_node().
sub new_coordinator
{
	my (%params) = @_;
	my $node = new_node('coordinator', node_id => undef, preload => 0, %params);

	$node->start;
	return $node;
}

# What snowflake.node_source is for that.
sub coordinator_url
{
	my ($node) = @_;
	my $host = $node->host;

	$host =~ s{([^A-Za-z0-9.])}{sprintf '%%%02X', ord $1}ge;
	return 'postgresql://' . $host . ':' . $node->port . '/postgres';
}

# A node that leases its node ID there, not yet started: from a node, or from what
# snowflake.node_source is.  lease is the setting; all other parameters are those of
# new_node().
sub new_member
{
	my ($name, $coordinator, %params) = @_;

	return new_node(
		$name, %params,
		node_id => undef,
		conf => member_conf($coordinator, $params{lease}) . ($params{conf} // ''));
}

# What makes a member of a server.
sub member_conf
{
	my ($coordinator, $lease) = @_;

	return sprintf "snowflake.node_source = '%s'\nsnowflake.lease = '%s'\n",
	  ref $coordinator ? coordinator_url($coordinator) : $coordinator, $lease // '10s';
}

# A node of new_node() that is started and mints, with the extension in the database
# postgres.  clock is one of new_clock(), with which it is started.
sub minting_node
{
	my ($name, %params) = @_;
	my $clock = delete $params{clock};
	my $node = new_node($name, %params);

	start_with_clock($node, $clock);
	query($node, 'CREATE EXTENSION snowflake');
	wait_for_mint($node);
	return $node;
}

# Further lines for postgresql.conf, which are loaded.
sub reload_with
{
	my ($node, $lines) = @_;

	$node->append_conf('postgresql.conf', $lines);
	$node->reload;
	return;
}

# Change settings of a server that runs, and wait until new sessions have them.
sub set_conf
{
	my ($node, %settings) = @_;
	my $reload = ++$reloads;

	reload_with(
		$node, join '',
		"test.reload = $reload\n",
		map { "$_ = '" . $settings{$_} =~ s/'/''/gr . "'\n" } sort keys %settings);
	wait_for_query($node, "SELECT current_setting('test.reload', true) = '$reload'");
	return;
}

# Give a server that mints another node ID, or none: -1.
sub change_node_id
{
	my ($node, $node_id, @params) = @_;

	reload_with($node, "snowflake.node_id = $node_id");
	wait_for_status($node,
		$node_id < 0 ? q{gate ~ 'not set'} : "gate = 'open' AND node = $node_id", @params);
	return;
}

# A standby of a node that allows streaming, started
sub standby_of
{
	my ($primary, $name) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->start;
	return $standby;
}

# Stop a node in that mode, start it, by a clock if it has one, and wait for its gate.
sub restart_node
{
	my ($node, $mode, $clock, $gate) = @_;

	$node->stop($mode);
	start_with_clock($node, $clock);
	wait_for_gate($node, $gate // 'open');
	return;
}

# SIGKILL the postmaster, and wait until it is gone.  Its children follow as
# soon as they notice.
sub kill_postmaster
{
	my ($node) = @_;
	my $pid = $node->{_pid};

	$node->kill9;

	# until its new parent has taken note of its end it counts as running
	wait_until("postmaster $pid is gone", sub { !kill(0, $pid) });
	return;
}

# Start a node after kill_postmaster(), as soon as no child of the old
# postmaster is left that would stand in the way.
sub start_after_kill
{
	my ($node, $clock) = @_;

	wait_until(
		'server starts',
		sub {
			return 1 if start_with_clock($node, $clock, fail_ok => 1);
			$node->stop('fast', fail_ok => 1);
			return 0;
		});
	return;
}

# Stop the process of the keeper, until it gets SIGCONT; returns its process ID.
sub hold_keeper
{
	my ($node) = @_;
	my $pid = status($node, 'keeper_pid');

	kill 'STOP', $pid;
	return $pid;
}

# A session that has locked the table of the keeper, so that it cannot reserve anything.
sub lock_reservation
{
	return session($_[0], 'BEGIN; LOCK TABLE snowflake_keeper.reservation');
}

# Does a server have injection points, and the extension that controls them?  Creates that.
sub has_injection_points
{
	my ($node) = @_;

	return $node->psql('postgres',
		q{CREATE EXTENSION injection_points; SELECT injection_points_attach('test', 'notice'), injection_points_detach('test')}
	) == 0;
}

# Is there an extension snowflake_public, for which the build needs OpenSSL?
sub has_public
{
	my ($sharedir) = run_command([ 'pg_config', '--sharedir' ]);

	return -e "$sharedir/extension/snowflake_public.control";
}

# Write a file of keys for a node, which has it as its setting: a list of a number
# and 64 digits each.  Returns the file's name.  New sessions wait until it has stood
# for a moment.
sub write_keys
{
	my ($node, @keys) = @_;
	my $file = $node->basedir . '/public.keys';

	open my $fh, '>', "$file.new" or die "could not create \"$file.new\": $!";
	chmod 0600, "$file.new" or die "could not change \"$file.new\": $!";
	while (my ($number, $key) = splice @keys, 0, 2)
	{
		print $fh "$number $key\n";
	}
	close $fh or die "could not write \"$file.new\": $!";
	rename "$file.new", $file or die "could not rename \"$file.new\": $!";
	$node->end_readers;
	return $file;
}

# The processes of a server whose titles match
sub children
{
	my ($node, $regexp) = @_;

	return map { /^\s*(\d+)/ } grep { /$regexp/ }
	  split /\n/, `ps -o pid=,args= --ppid $node->{_pid}`;
}

# Stop processes with SIGSTOP.  A postmaster, which would start others, comes first.
sub freeze
{
	my (@pids) = @_;

	push @frozen, @pids;
	kill 'STOP', $_ foreach @pids;
	return;
}

# Let these processes go on, or all that are frozen.
sub thaw
{
	my (@pids) = @_;

	@pids = @frozen unless @pids;
	kill 'CONT', @pids;
	@frozen = grep {
		my $pid = $_;
		!grep { $_ == $pid } @pids
	} @frozen;
	return;
}

# Servers are stopped after this, and none that is frozen could be.
END
{
	kill 'CONT', @frozen;
}

# How often a process has gone to sleep, where the system tells.
sub sleeps_of
{
	my ($pid) = @_;

	open(my $file, '<', "/proc/$pid/status") or return;
	return (join('', <$file>) =~ /^voluntary_ctxt_switches:\s*(\d+)/m)[0];
}

# What a node that is stopped has stored for a node ID, from single-user mode,
# where no keeper runs: a column of snowflake_keeper.reservation, or an expression.
# This ends crash recovery, if the node has crashed.
sub stored
{
	my ($node, $node_id, $column) = @_;
	my ($stdout, $stderr);

	local %ENV = $node->_get_env();
	IPC::Run::run(
		[
			$node->installed_command('postgres'),
			'--single', '-D', $node->data_dir, '-c', 'shared_preload_libraries=', 'postgres'
		],
		'<',
		\"SELECT ($column)::text AS stored FROM snowflake_keeper.reservation WHERE node = $node_id\n",
		'>',
		\$stdout,
		'2>',
		\$stderr) or die "single-user mode failed: $stderr";
	return ($stdout =~ /stored = "(.*?)"\t/)[0];
}

# Start the server's psql or pgbench, with arguments; output is how IPC::Run is told where its output goes.
sub start_client
{
	my ($node, $command, @output) = @_;
	my ($program, @arguments) = @$command;

	local %ENV = $node->_get_env();
	return IPC::Run::start([ $node->installed_command($program), @arguments ],
		'<', \undef, @output);
}

# Start psql with a script, which is in a file so that it needs nobody to feed it.
sub start_script
{
	my ($node, $dbname, $script) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/minter' . ++$minters;
	my $minter = { ids => "$file.ids", errors => '' };

	append_to_file($file, $script);
	$minter->{run} =
	  start_client($node, [ qw(psql -XAtq -d), $node->connstr($dbname // 'postgres'), '-f', $file ],
		'>', $minter->{ids}, '2>', \$minter->{errors});
	return $minter;
}

# Start a session that mints one ID after the other, each in a transaction of
# its own, until it has minted so many or has lost its server.  max_wait is a setting for it.
sub start_minter
{
	my ($node, $count, %params) = @_;
	my $settings =
	  defined $params{max_wait} ? "SET snowflake.max_wait = '$params{max_wait}';\n" : '';

	return start_script($node, $params{dbname}, $settings . "SELECT snowflake_next();\n" x $count);
}

# Wait until a session of start_minter() has ended; returns its IDs, in the
# order in which it got them.
sub finish_minter
{
	my ($minter) = @_;

	$minter->{run}->finish;
	return [ split /\n/, slurp_file($minter->{ids}) ];
}

# How many of these IDs are not larger than the one before.  It shows them.
sub disorder
{
	my ($ids) = @_;
	my @wrong = grep { $ids->[$_] <= $ids->[ $_ - 1 ] } 1 .. $#$ids;

	Test::More::diag("the IDs $_ and before: <$ids->[$_]> <$ids->[ $_ - 1 ]>") foreach @wrong;
	return scalar @wrong;
}

# Let nodes mint side by side, in bursts with pauses, for some seconds.  Returns the
# IDs of each.  They start together: as soon as all of them can.
sub mint_together
{
	my ($seconds, @nodes) = @_;
	my $script =
	  "DO 'BEGIN PERFORM pg_sleep(0.5 - extract(epoch FROM clock_timestamp())::numeric % 0.5); END';\n"
	  . (   "SELECT snowflake_next() FROM generate_series(1, 500);\n"
		  . "DO 'BEGIN PERFORM pg_sleep(0.02); END';\n") x ($seconds * 50);

	wait_for_mint($_) foreach @nodes;
	my @minters = map { start_script($_, 'postgres', $script) } @nodes;
	my @ids = map { finish_minter($_) } @minters;
	die "minting failed: $_->{errors}" foreach grep { $_->{errors} ne '' } @minters;
	return @ids;
}

# How many IDs of these lists are in one of them already.
sub duplicates
{
	my %seen;

	return scalar(grep { $seen{$_}++ } map { @$_ } @_);
}

1;
