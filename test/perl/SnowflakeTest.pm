
=pod

=head1 NAME

SnowflakeTest - what the TAP tests of snowflake have in common

=head1 SYNOPSIS

  use lib 'test/perl';    # the tests run at the top of the tree
  use SnowflakeTest;

  my $node = new_node('main', node_id => 7);
  my $clock = new_clock('main');
  start_with_clock($node, $clock);
  step_clock($clock, -250);

  my $error = error_of($node, 'SELECT 1/0');
  is($error->{sqlstate}, '22012');
  is(status($node, 'gate', dbname => 'app'), 'open');

=head1 DESCRIPTION

A test that uses this has strict and warnings, and what Test::More and PostgreSQL::Test::Utils export.

What asks a server asks in the database C<postgres>; the option C<dbname> names another one.

=cut

package SnowflakeTest;

use strict;
use warnings;

use Carp;
use Exporter ();
use File::Basename;
use File::Spec;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowflakeNode;
use Test::More ();
use Time::HiRes qw(CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_REALTIME);

our @EXPORT = qw(
  advance build_shim change_node_id children coordinator_url disorder duplicates error_at_once
  error_in error_of extend finish_minter finish_statement freeze get_clock has_injection_points has_public
  hold_keeper id_at keeper_sleeps kill_postmaster lead_ms let_pass lock_reservation log_count
  look member_conf members mint mint_many mint_together minting_node new_clock new_coordinator
  new_member new_node pass_days patience query refused refuses reload_with restart_node said session
  set_clock set_conf sleeps_of start_after_kill start_minter start_statement start_time
  start_with_clock status step_clock stop_time stored table takes_less thaw wait_for_gate
  wait_for_mint wait_for_query wait_for_status wait_until waits write_keys
);

my %shims;
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

# The database that options name; what else they are is for the caller.
sub take_dbname
{
	my ($params) = @_;

	return delete $params->{dbname} // 'postgres';
}

# The same where nothing else may be named.  An argument too many is not an option.
sub only_dbname
{
	croak 'the options are not pairs: is the database an argument?' if @_ % 2;
	my %params = @_;
	my $dbname = take_dbname(\%params);

	croak 'no such option: ' . join ' ', sort keys %params if %params;
	return $dbname;
}

# A node that preloads the library and has a node ID, not yet started.
# node_id => undef leaves the setting out, preload => 0 the library, conf is
# further lines for postgresql.conf, new and init are further parameters for
# new() and init().
sub new_node
{
	my ($name, %params) = @_;
	my $node =
	  SnowflakeNode->new($name, %{ $params{new} || {} });
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

	defined $clock ? start_with_clock($node, $clock) : $node->start;
	query($node, 'CREATE EXTENSION snowflake');
	wait_for_mint($node);
	return $node;
}

# Is this asked in a session that is kept?  A SELECT is, also after settings.
sub is_for_kept
{
	my ($node, $sql) = @_;

	return
		 $node->isa('SnowflakeNode')
	  && !defined $ENV{PGOPTIONS}
	  && $sql =~ /\A(?:\s*SET [\w.]+ = [^;\\]*;)*\s*SELECT\b[^;\\]*;?\s*\z/;
}

# What SQL returns.  Further options are those of safe_psql(); user is the role that connects.
sub query
{
	my ($node, $sql, @params) = @_;
	croak 'the options are not pairs: is the database an argument?' if @params % 2;
	my %params = @params;
	my $dbname = take_dbname(\%params);
	my $user = delete $params{user};

	if (!@params && is_for_kept($node, $sql))
	{
		my ($answer, $error) = $sql =~ /;/ ? $node->ask($sql) : $node->look($sql);

		croak $error
		  if ($error // '') =~ /(?:ERROR|FATAL):  |connection to server was lost/;
		return $answer if defined $answer;
	}
	$params{connstr} = $node->connstr($dbname) . " user=$user" if defined $user;
	my $answer = $node->safe_psql($dbname, $sql, %params);
	$node->end_readers if $sql =~ /pg_reload_conf/ && $node->isa('SnowflakeNode');
	return $answer;
}

# Is SQL refused with this SQLSTATE?  A test; further options are those of error_of(), and
# message, detail and hint are regular expressions for these.
sub refuses
{
	my ($node, $sql, $sqlstate, $what, %params) = @_;
	my %like = map { $_ => delete $params{$_} } grep { $params{$_} } qw(message detail hint);
	my $error = error_of($node, $sql, %params);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $ok = $error->{sqlstate} eq $sqlstate
	  && !grep { $error->{$_} !~ $like{$_} } keys %like;
	return Test::More::ok($ok, $what)
	  || Test::More::diag(
		join "\n",
		"not $sqlstate @like{sort keys %like}:",
		@$error{qw(sqlstate message detail hint)});
}

# The cells of a table whose columns are divided by "|", a row on each line.
sub table
{
	my ($text) = @_;

	return map { [ split / *\| */, $_ ] } split /\n/, $text;
}

# Wait until a query returns true.
sub wait_for_query
{
	my ($node, $sql, @params) = @_;

	$node->poll_query_until(only_dbname(@params), $sql) or croak "timed out waiting for $sql";
	return;
}

# Further lines for postgresql.conf, which are loaded.
sub reload_with
{
	my ($node, $lines) = @_;

	$node->append_conf('postgresql.conf', $lines);
	$node->reload;
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

# A session in which these statements have been run.
sub session
{
	my ($node, @statements) = @_;
	my $session = $node->background_psql('postgres');

	$session->query_safe($_) foreach @statements;
	return $session;
}

# Start a statement that has to wait for something, in a session of background_psql(), or in a
# new one of a node.  Returns the session.
sub start_statement
{
	my ($session, $sql) = @_;

	$session = $session->background_psql('postgres', on_error_stop => 0)
	  if $session->isa('PostgreSQL::Test::Cluster');
	my $output = $session->query_until(qr/^started\n/m, "\\echo started\n$sql;\n\\echo ended\n");

	# it may be quicker than we are
	$session->{stdout} = $output =~ s/^started\n//mr;
	return $session;
}

# Wait until it has ended; returns what it printed.
sub finish_statement
{
	my ($session) = @_;

	return $session->query_until(qr/^ended\n/m, '') =~ s/^ended\n//mr;
}

# The next ID.
sub mint
{
	my ($node) = @_;

	return query($node, 'SELECT snowflake_next()');
}

# The next IDs, so many, of one statement.
sub mint_many
{
	my ($node, $count) = @_;

	return split /\n/, query($node, "SELECT snowflake_next() FROM generate_series(1, $count)");
}

# The error of a mint, all empty if there was none, that is not to wait for longer than that.
sub refused
{
	my ($node, $max_wait) = @_;

	$max_wait //= '100ms';
	return error_of($node, "SET snowflake.max_wait = '$max_wait'; SELECT snowflake_next()");
}

# The last ID of the tick that is so far from the server's time.
sub id_at
{
	my ($node, $interval) = @_;

	return query($node, "SELECT snowflake_upper_bound(clock_timestamp() + interval '$interval')");
}

# Have IDs go on so far from the server's time; returns the ID above which they do.
sub advance
{
	my ($node, $interval) = @_;
	my $id = id_at($node, $interval);

	$node->psql('postgres', "SELECT snowflake_advance($id, force => true)") == 0
	  or croak "IDs are not advanced by $interval";
	return $id;
}

# How far the newest ID is ahead of the clock, in milliseconds.
sub lead_ms
{
	my ($node) = @_;

	return status($node, '1000 * extract(epoch FROM lead)');
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

# Stop a node in that mode, start it, by a clock if it has one, and wait for its gate.
sub restart_node
{
	my ($node, $mode, $clock, $gate) = @_;

	$node->stop($mode);
	defined $clock ? start_with_clock($node, $clock) : $node->start;
	wait_for_gate($node, $gate // 'open');
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
	my ($node) = @_;
	my $session = $node->background_psql('postgres');

	$session->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
	return $session;
}

# Have the keeper look at the clock.  Where the gate is open, this does nothing else.
sub look
{
	my ($node) = @_;

	query($node, 'SELECT snowflake_accept_database(none_exists => true)');
	return;
}

# Is there a process of that type that waits for one of these events?  Before PostgreSQL 17, those of
# extensions have one name.
sub waits
{
	my ($node, $backend_type, @events) = @_;
	push @events, 'Extension' if $node->pg_version < 17 && grep { /^Snowflake/ } @events;
	my $events = join ', ', map { "'$_'" } @events;

	return query($node,
		"SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = '$backend_type' AND wait_event IN ($events)"
	) eq 't';
}

# Wait until the server mints.  The keeper needs a moment to reserve time
# after a start, longer than a single mint is prepared to wait after a crash.
sub wait_for_mint
{
	my ($node, @params) = @_;

	$node->poll_query_until(only_dbname(@params), 'SELECT snowflake_next() IS NOT NULL')
	  or die "server does not mint";
	return;
}

# Wait until a condition is true of the columns of snowflake_status and snowflake_stats.
sub wait_for_status
{
	my ($node, $condition, @params) = @_;

	$node->poll_query_until(only_dbname(@params),
		"SELECT $condition FROM snowflake_status, snowflake_stats")
	  or croak "timed out waiting for $condition: "
	  . status($node, 'gate, coordinator, advice', @params);
	return;
}

# Wait until the gate is as a regular expression says, such as "open" or "not set".
sub wait_for_gate
{
	my ($node, $gate, @params) = @_;

	wait_for_status($node, "gate ~ '$gate'", @params);
	return;
}

# Mint until the keeper has reserved anew.
sub extend
{
	my ($node, @params) = @_;
	my $reservations = status($node, 'reservations', @params);

	$node->poll_query_until(only_dbname(@params),
		"SELECT snowflake_next() IS NOT NULL AND reservations > $reservations FROM snowflake_stats")
	  or die "reservation is not extended";
	return;
}

# Compile a library of test/shim, once for all tests of a run; returns its path.
sub build_shim
{
	my ($name, @options) = @_;

	return $shims{$name} //= do
	{
		my $directory =
		  $ENV{SNOWFLAKE_WORK} ? "$ENV{SNOWFLAKE_WORK}/tmp" : PostgreSQL::Test::Utils::tempdir();
		my $library = "$directory/$name.so";
		my $source = File::Spec->rel2abs(dirname(__FILE__) . "/../shim/$name.c");

		if (!-e $library)
		{
			PostgreSQL::Test::Utils::system_or_bail(
				$ENV{CC} || 'cc', '-shared', '-fPIC', '-O2',
				'-Wall', '-o', "$library.$$", $source,
				@options);
			rename "$library.$$", $library or die "could not rename \"$library.$$\": $!";
		}
		$library;
	};
}

# A new clock file, which says the true time; returns its path.  It has five numbers, in ns: how far the
# clock is from the true time; that of the clocks nobody sets, for pass_days(); and where stop_time()
# has stopped all three.
sub new_clock
{
	my ($name) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$name.clock";

	append_to_file($file, pack('q5', (0) x 5));
	return $file;
}

sub clock_numbers
{
	my ($file) = @_;

	return unpack 'q5', slurp_file($file);
}

# Change them, from a place on.  The file must be overwritten in place, and in one write, because
# servers have it mapped.
sub set_clock_numbers
{
	my ($file, $place, @numbers) = @_;

	open my $fh, '+<:raw', $file or die "could not open \"$file\": $!";
	seek $fh, 8 * $place, 0;
	syswrite($fh, pack 'q*', map { int } @numbers) == 8 * @numbers
	  or die "could not write \"$file\": $!";
	close $fh;
	return;
}

# Start the node so that it, but none of its clients, reads that clock.
# (pg_ctl restart would lose the shim: stop, and start with this again.)
sub start_with_clock
{
	my ($node, $file, %params) = @_;

	local $ENV{LD_PRELOAD} = build_shim('clock_shim', '-ldl');
	local $ENV{SNOWFLAKE_CLOCK_FILE} = $file;
	return $node->start(%params);
}

# How far the clock is from the true time, in milliseconds.
sub get_clock
{
	my ($file) = @_;

	return (clock_numbers($file))[0] / 1_000_000;
}

# Set the clock to that many milliseconds from the true time.
sub set_clock
{
	my ($file, $ms) = @_;

	set_clock_numbers($file, 0, $ms * 1_000_000);
	return;
}

# Step the clock by that many milliseconds, forward or back, also while time is stopped.
sub step_clock
{
	my ($file, $ms) = @_;

	set_clock($file, get_clock($file) + $ms);
	change_stopped($file, $ms, 0, 0);
	return;
}

# Read the clocks that a server has, in ns, as if in one moment.
sub read_clocks
{
	for (;;)
	{
		my @clocks = map { int(1e9 * Time::HiRes::clock_gettime($_)) } CLOCK_REALTIME,
		  CLOCK_MONOTONIC, CLOCK_BOOTTIME,
		  CLOCK_REALTIME;

		return @clocks[ 0 .. 2 ] if $clocks[3] - $clocks[0] < 100_000;
	}
}

# Stop time for a server: all its clocks stand.  However long a busy machine takes for what
# is done until start_time(), for the server it takes none.  It works all the same, but no
# timeout comes, and who sleeps until a time looks at the clock again and again.
sub stop_time
{
	my ($file) = @_;
	my ($offset, $steady_offset) = clock_numbers($file);
	my ($real, $monotonic, $boot) = read_clocks();

	set_clock_numbers(
		$file, 2,
		$real + $offset,
		$monotonic + $steady_offset,
		$boot + $steady_offset);
	return;
}

# Move the clocks that are stopped by so many milliseconds each, if they are.
sub change_stopped
{
	my ($file, @ms) = @_;
	my @stopped = (clock_numbers($file))[ 2 .. 4 ];

	set_clock_numbers($file, 2, map { $stopped[$_] + int($ms[$_] * 1_000_000) } 0 .. 2)
	  if $stopped[0] != 0;
	return;
}

# While time is stopped: let that many milliseconds pass.
sub let_pass
{
	my ($file, $ms) = @_;

	change_stopped($file, ($ms) x 3);
	return;
}

# Time goes on, from where it was stopped.
sub start_time
{
	my ($file) = @_;
	my ($real, $monotonic) = (clock_numbers($file))[ 2, 3 ];
	my @now = read_clocks();

	set_clock_numbers($file, 0, $real - $now[0], $monotonic - $now[1], (0) x 3);
	return;
}

# Let all clocks of the server go on by so many days.
sub pass_days
{
	my ($file, $days) = @_;

	set_clock_numbers($file, 0,
		map { $_ + $days * 86_400 * 1_000_000_000 } (clock_numbers($file))[ 0, 1 ]);
	return;
}

# Run SQL that ought to fail.  Returns what psql said about the error: a hash
# of sqlstate, message, detail and hint, all empty if there was no error.  Further
# options are those of psql().
sub error_of
{
	my ($node, $sql, @params) = @_;
	croak 'the options are not pairs: is the database an argument?' if @params % 2;
	my %params = @params;
	my $dbname = take_dbname(\%params);
	my @said =
	  !@params && is_for_kept($node, $sql) ? $node->ask("\\set VERBOSITY verbose\n$sql") : ();

	(undef, @said) =
	  $node->psql($dbname, $sql, %params, extra_params => [ '-v', 'VERBOSITY=verbose' ])
	  if !@said;
	return error_in(@said);
}

# The error in what psql has printed, verbosely.
sub error_in
{
	my ($stdout, $stderr) = @_;
	my %error = map { $_ => '' } qw(sqlstate message detail hint);

	@error{qw(sqlstate message)} = ($1, $2)
	  if $stderr =~ /(?:ERROR|FATAL):  ([0-9A-Z]{5}): (.*)/;
	$error{detail} = $1 if $stderr =~ /^DETAIL:  (.*)/m;
	$error{hint} = $1 if $stderr =~ /^HINT:  (.*)/m;
	$error{stdout} = $stdout;
	return \%error;
}

# What a server has to say about SQL: notices, warnings and errors, as psql prints them.
sub said
{
	my ($node, $sql, @params) = @_;
	my ($stdout, $stderr) = $node->ask($sql, only_dbname(@params));

	return $stderr;
}

# The error of a mint that ought not to wait, though it might wait for long.  If it does,
# that is another error.
sub error_at_once
{
	my ($node) = @_;

	return error_of($node,
		q{SET snowflake.max_wait = '10min'; SET statement_timeout = '20s'; SELECT snowflake_next()}
	);
}

# For a FROM: the rows of a catalog, as "m", that are members of the extension,
# or of another one.
sub members
{
	my ($catalog, $extension) = @_;

	$extension = 'snowflake' unless defined $extension;

	return qq{$catalog m JOIN pg_catalog.pg_depend d
		ON d.classid = 'pg_catalog.$catalog'::pg_catalog.regclass AND d.objid = m.oid
		AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.deptype = 'e'
		JOIN pg_catalog.pg_extension x ON x.oid = d.refobjid AND x.extname = '$extension'};
}

# What takes so many seconds where nothing else runs: longer on a busy machine, by how many
# processes it has for each processor.
sub patience
{
	my ($seconds) = @_;

	open my $load, '<', '/proc/loadavg' or return $seconds;
	open my $cpus, '<', '/proc/cpuinfo' or return $seconds;
	my ($average, $running) = <$load> =~ m{^(\S+) \S+ \S+ (\d+)/};
	my $processors = grep { /^processor\b/ } <$cpus> or return $seconds;
	my $busy = ($average > $running ? $average : $running) / $processors;

	return $busy > 4 ? int($seconds * $busy / 4 + 1) : $seconds;
}

# A promise about time, which a busy machine may seem to break: what takes so long is done
# again then, up to twenty times, and the shortest time counts.  The function does it, and
# returns what it took.
sub takes_less
{
	my ($limit, $what, $function) = @_;
	my @took;

	push @took, $function->() until @took == 20 || grep { $_ < $limit } @took;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return Test::More::cmp_ok((sort { $a <=> $b } @took)[0], '<', $limit, $what);
}

# Wait until a condition, a function, is true.
sub wait_until
{
	my ($what, $condition) = @_;
	my $end =
	  Time::HiRes::clock_gettime(CLOCK_MONOTONIC) + $PostgreSQL::Test::Utils::timeout_default;

	until ($condition->())
	{
		die "timed out waiting until $what"
		  if Time::HiRes::clock_gettime(CLOCK_MONOTONIC) > $end;
		Time::HiRes::usleep(50_000);
	}
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
	my ($node, $file) = @_;

	wait_until(
		'server starts',
		sub {
			return 1
			  if defined $file
			  ? start_with_clock($node, $file, fail_ok => 1)
			  : $node->start(fail_ok => 1);
			$node->stop('fast', fail_ok => 1);
			return 0;
		});
	return;
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

# A column of snowflake_status or of snowflake_stats, or several, or an expression of them.
sub status
{
	my ($node, $column, @params) = @_;

	only_dbname(@params);
	return query($node, "SELECT $column FROM snowflake_status, snowflake_stats", @params);
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

# How often the keeper has.
sub keeper_sleeps
{
	my ($node) = @_;

	return sleeps_of(status($node, 'keeper_pid'));
}

# What a node that is stopped has stored for a node ID, from single-user mode,
# where no keeper runs: a column of snowflake_keeper.reservation, or an expression.
# This ends crash recovery, if the node has crashed.
sub stored
{
	my ($node, $node_id, $column, @params) = @_;
	my $dbname = only_dbname(@params);
	my ($stdout, $stderr);

	local %ENV = $node->_get_env();
	IPC::Run::run(
		[
			$node->installed_command('postgres'),
			'--single', '-D', $node->data_dir, '-c', 'shared_preload_libraries=', $dbname
		],
		'<',
		\"SELECT ($column)::text AS stored FROM snowflake_keeper.reservation WHERE node = $node_id\n",
		'>',
		\$stdout,
		'2>',
		\$stderr) or die "single-user mode failed: $stderr";
	my ($value) = $stdout =~ /stored = "(.*?)"\t/;
	return $value;
}

# Start a session that mints one ID after the other, each in a transaction of
# its own, until it has minted so many or has lost its server.  max_wait is a setting for it.
sub start_minter
{
	my ($node, $count, %params) = @_;
	my $max_wait = delete $params{max_wait};
	my $dbname = only_dbname(%params);
	my $script = PostgreSQL::Test::Utils::tempdir() . '/minter' . ++$minters;
	my $minter = { ids => "$script.ids", errors => '' };

	# a file, so that psql needs nobody to feed it
	PostgreSQL::Test::Utils::append_to_file($script, "SELECT snowflake_next();\n" x $count);

	local %ENV = $node->_get_env();
	$ENV{PGOPTIONS} = "-c snowflake.max_wait=$max_wait" if defined $max_wait;
	$minter->{run} = IPC::Run::start(
		[ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr($dbname), '-f', $script ],
		'>', $minter->{ids}, '2>', \$minter->{errors});
	return $minter;
}

# Wait until a session of start_minter() has ended; returns its IDs, in the
# order in which it got them.
sub finish_minter
{
	my ($minter) = @_;

	$minter->{run}->finish;
	my $ids = PostgreSQL::Test::Utils::slurp_file($minter->{ids});
	return [ split /\n/, $ids ];
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
	my $script = PostgreSQL::Test::Utils::tempdir() . '/together' . ++$minters;
	my @runs;

	append_to_file(
		$script,
		"DO 'BEGIN PERFORM pg_sleep(0.5 - extract(epoch FROM clock_timestamp())::numeric % 0.5); END';\n"
		  . (
				"SELECT snowflake_next() FROM generate_series(1, 500);\n"
			  . "DO 'BEGIN PERFORM pg_sleep(0.02); END';\n") x ($seconds * 50));
	wait_for_mint($_) foreach @nodes;
	foreach my $i (0 .. $#nodes)
	{
		local %ENV = $nodes[$i]->_get_env();
		push @runs,
		  IPC::Run::start(
			[
				$nodes[$i]->installed_command('psql'),
				'-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $nodes[$i]->connstr('postgres'),
				'-f', $script
			],
			'>',
			"$script.$i",
			'2>',
			"$script.$i.error");
	}
	foreach my $i (0 .. $#nodes)
	{
		$runs[$i]->finish
		  or die 'minting failed: ' . slurp_file("$script.$i.error");
	}
	return map { [ split /\n/, slurp_file("$script.$_") ] } 0 .. $#nodes;
}

# How many IDs of these lists are in one of them already.
sub duplicates
{
	my %seen;

	return scalar(grep { $seen{$_}++ } map { @$_ } @_);
}

# How many lines of the log, from an offset on, match a regular expression.
sub log_count
{
	my ($node, $regexp, $offset) = @_;
	my $log = substr(PostgreSQL::Test::Utils::slurp_file($node->logfile), $offset || 0);

	return scalar(grep { /$regexp/ } split /\n/, $log);
}

1;
