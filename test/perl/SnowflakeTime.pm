# Clocks that a test can step, stop and let pass, for the servers that it starts with them; and how to
# wait, and to measure time, on a busy machine.

package SnowflakeTime;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Utils;
use Test::More ();
use Time::HiRes qw(clock_gettime CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_REALTIME);

our @EXPORT = qw(
  build_shim let_pass new_clock pass_days patience set_clock start_time start_with_clock
  step_clock stop_time takes_less wait_until
);

my $directory;

# Compile a library of test/shim, once for all tests of a run; returns its path.
sub build_shim
{
	my ($name, @options) = @_;

	$directory //=
	  $ENV{SNOWFLAKE_WORK} ? "$ENV{SNOWFLAKE_WORK}/tmp" : PostgreSQL::Test::Utils::tempdir();
	my $library = "$directory/$name.so";

	if (!-e $library)
	{
		system_or_bail(
			$ENV{CC} || 'cc',
			qw(-shared -fPIC -O2 -Wall -o),
			"$library.$$", "test/shim/$name.c", @options);
		rename "$library.$$", $library or die "could not rename \"$library.$$\": $!";
	}
	return $library;
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

# Start the node so that it, but none of its clients, reads that clock, or the true time without one.
# (pg_ctl restart would lose the shim: stop, and start with this again.)
sub start_with_clock
{
	my ($node, $file, %params) = @_;

	return $node->start(%params) if !defined $file;
	local $ENV{LD_PRELOAD} = build_shim('clock_shim', '-ldl');
	local $ENV{SNOWFLAKE_CLOCK_FILE} = $file;
	return $node->start(%params);
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

	set_clock($file, (clock_numbers($file))[0] / 1_000_000 + $ms);
	change_stopped($file, $ms, 0, 0);
	return;
}

# Read the clocks that a server has, in ns, as if in one moment.
sub read_clocks
{
	for (;;)
	{
		my @clocks = map { int(1e9 * clock_gettime($_)) } CLOCK_REALTIME,
		  CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME;

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
	my $end = clock_gettime(CLOCK_MONOTONIC) + $PostgreSQL::Test::Utils::timeout_default;

	until ($condition->())
	{
		die "timed out waiting until $what" if clock_gettime(CLOCK_MONOTONIC) > $end;
		Time::HiRes::usleep(50_000);
	}
	return;
}

1;
