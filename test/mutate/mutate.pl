# Plant faults in a copy of the tree, one at a time, and see which test notices.
# README.md says how the list of them is written.
#
#   bash test/run.sh mutate               all of them, which takes hours
#   bash test/run.sh mutate NAME src/keeper/gate_text.c
#                                         some, by their names or their files
#   --jobs N                              so many at once; 1 if it is not said
#   --first                               only the tests that ought to see a mutant; who is not
#                                         seen by them is not recorded
#   --new                                 only mutants that results.txt has no result for
#
#   perl test/mutate/mutate.pl --list     show them, and check that they apply
#   perl test/mutate/mutate.pl --record   measure nothing, but add up results.txt again
#   perl test/mutate/mutate.pl --plant NAME
#                                         change the tree that this is in: for campaigns, in a copy
#
# A mutant is built, and tested with the tests that ought to see it, until one of
# them fails; if none does, with all others.  It is killed if a test fails with it, and
# passes on the tree without it: at once, or for another mutant in the quarter of an hour
# before, for which those of one test come together.  A test that ends by
# its time limit or by an exit status says nothing about why: that is unclear, and does not
# count, unless the test has died with last words, or the mutant has a line "why".  One that
# does not apply exactly once, or does not build, is an error of the list.  What comes of it
# is put into results.txt at once.  One result for each: killed is ok; survived, or an error,
# is not.
#
# The tests are those of run.sh; "debug" before one of them means the server that
# debug.sh builds, with assertions and injection points.

use strict;
use warnings;

use Cwd 'abs_path';
use Digest::MD5 'md5_hex';
use Fcntl ':flock';
use FindBin;
use Getopt::Long;
use lib "$FindBin::RealBin/../perl";
use POSIX ':sys_wait_h';
use SnowflakeLog 'last_said';
use SnowflakeProgram;
use Test::More;
use Time::HiRes 'sleep';

my $root = abs_path("$FindBin::RealBin/../..");
my $checkout = $ENV{SNOWFLAKE_CHECKOUT} // $root;
my $results = "$checkout/test/mutate/results.txt";
my ($jobs, $first_only, $new, $list_only, $record_only, $to_plant) = (1);
GetOptions(
	'jobs=i' => \$jobs,
	first => \$first_only,
	new => \$new,
	list => \$list_only,
	record => \$record_only,
	'plant=s' => \$to_plant
) or die "usage: --jobs N, --first, --new, --list, --record, --plant NAME, names and files\n";

#
# The list
#

# A block of lines as one text; how far it is indented is of no account.
sub text_of
{
	return join('', map { s/^\s+|\s+$//gr . "\n" } @_);
}

# Where a change's old text starts in a file, by line number; it must be once.
sub place_of
{
	my ($lines, $old, $about) = @_;
	my $wanted = text_of(@$old);
	my ($first) = $old->[0] =~ /^\s*(.*?)\s*$/;
	my @found =
	  grep { index($lines->[$_], $first) >= 0 && text_of(@$lines[ $_ .. $_ + $#$old ]) eq $wanted }
	  0 .. @$lines - @$old;

	die "$about: the old text is there " . @found . " times\n" if @found != 1;
	return $found[0];
}

# The function around a line, as far as a "}" at the start of a line tells: what is
# behind the one before it, to the next one.
sub function_around
{
	my ($lines, $place) = @_;
	my ($from, $to) = ($place, $place);

	$from-- while $from > 0 && $lines->[ $from - 1 ] !~ /^}/;
	$to++ while $to < $#$lines && $lines->[$to] !~ /^}/;
	return text_of(@$lines[ $from .. $to ]);
}

# Without comments in C, and the lines that had nothing else
sub code_of
{
	my ($text) = @_;

	return text_of(grep { /\S/ } split /^/, $text =~ s{/\*.*?\*/}{}gsr);
}

# Returns the changed files of a mutant, by path: their lines.  Sets its digest, of
# the change and of the functions that it is in, without their comments: with another
# one, what was measured is of no account.
sub changed_files
{
	my ($tree, $mutant) = @_;
	my %files;
	my $text = '';

	for my $hunk (@{ $mutant->{hunks} })
	{
		my $lines = $files{ $hunk->{file} } //= [ read_lines("$tree/$hunk->{file}") ];
		my @old = map { substr($_, 1) } grep { !/^\+/ } @{ $hunk->{lines} };
		my @new = map { substr($_, 1) } grep { !/^-/ } @{ $hunk->{lines} };

		die "$mutant->{name}: a change without a line\n" unless @old;
		die "$mutant->{name}: nothing is changed\n" if text_of(@old) eq text_of(@new);
		my $place = place_of($lines, \@old, $mutant->{name});
		$text .= function_around($lines, $place) . text_of(@new);
		splice(@$lines, $place, @old, @new);
	}
	die "$mutant->{name}: nothing is changed\n" unless %files;
	$mutant->{digest} = substr(md5_hex(code_of($text)), 0, 8);
	return \%files;
}

sub read_mutants
{
	my ($tree) = @_;
	my @mutants;

	for my $path (glob("$tree/test/mutate/mutants/*.txt"))
	{
		my $mutant;
		my $hunk;

		for my $line (read_lines($path))
		{
			if ($line =~ /^(name|file|what|first|why|equivalent): (.*\S)/)
			{
				push @mutants, $mutant = { list => $path, hunks => [] } if $1 eq 'name';
				die "$path: \"$1\" is there before a name\n" unless $mutant;
				die "$mutant->{name}: two lines \"$1\"\n" if defined $mutant->{$1};
				$mutant->{$1} = $2;
				undef $hunk;
			}
			elsif ($line =~ /^@@(?: (\S+))?$/)
			{
				push @{ $mutant->{hunks} }, $hunk = { file => $1 // $mutant->{file}, lines => [] };
			}
			elsif ($hunk && $line =~ /^[-+ ]/)
			{
				push @{ $hunk->{lines} }, $line;
			}
			elsif ($line !~ /^(#.*)?$/)
			{
				die "$path: what is this? $line";
			}
		}
	}
	return @mutants;
}

# What is wrong with a mutant; nothing if all is well.
sub complaint
{
	my ($tree, $mutant) = @_;

	for my $part (qw(file what))
	{
		return "$mutant->{name}: there is no line \"$part\"" unless $mutant->{$part};
	}
	return "$mutant->{name}: either \"first\" or \"equivalent\" is needed"
	  unless defined $mutant->{first} xor defined $mutant->{equivalent};
	return eval { changed_files($tree, $mutant) } ? () : $@ =~ s/\n$//r;
}

# What is wrong with the list as a whole.
sub complaints
{
	my ($tree, @mutants) = @_;
	my (@complaints, %seen, %has_mutant);

	for my $mutant (@mutants)
	{
		push @complaints, "$mutant->{name}: two mutants have this name"
		  if $seen{ $mutant->{name} }++;
		$has_mutant{ $mutant->{file} // '' } = 1;
	}
	for my $path (glob("$tree/src/*.c $tree/src/*/*.c $tree/sql/*--1.0.sql $tree/Makefile"))
	{
		my $file = substr($path, length("$tree/"));

		push @complaints, "$file has no mutant" unless $has_mutant{$file};
	}
	return @complaints;
}

# What results.txt has, by name and digest
sub measured
{
	return
	  map { /^(\S+ \S+) (?!unmeasured)(.*)/ ? ($1 => $2) : () }
	  -e $results ? read_lines($results) : ();
}

# A result, "killed" only where it is known why
sub judged
{
	my ($mutant, $result) = @_;

	return $result
	  unless $result =~ /^(?:killed|unclear)( by .*: (?:no end after .*|exit status \d+))$/;
	return (defined $mutant->{why} ? 'killed' : 'unclear') . $1;
}

# Write results.txt: of each mutant what was measured, with a result that is
# given here, less what is no longer true of the tree; and the score.
sub record
{
	my (@result) = @_;
	my %count = map { $_ => 0 } qw(killed unclear survived equivalent unmeasured);
	my @lines;

	# one at a time
	open(my $lock, '<', "$checkout/test/mutate/mutate.pl") or die "$!\n";
	flock($lock, LOCK_EX) or die "$!\n";
	my %measured = measured();
	$measured{"$result[0] $result[1]"} = $result[2] if @result;
	for my $mutant (read_mutants($checkout))
	{
		next if complaint($checkout, $mutant);
		my $digest = $mutant->{digest};
		my $result =
		  defined $mutant->{equivalent}
		  ? 'equivalent'
		  : judged($mutant, $measured{"$mutant->{name} $digest"} // 'unmeasured');

		$count{ $result =~ s/ .*//r }++;
		push @lines, "$mutant->{name} $digest $result\n";
	}
	open(my $out, '>', "$results.new") or die "$results.new: $!\n";
	print $out sort @lines;
	printf $out
	  "\nscore %.3f: %d killed, %d survived, %d unclear, %d not measured, %d equivalent\n",
	  $count{killed} / (($count{killed} + $count{survived} + $count{unclear}) || 1),
	  @count{qw(killed survived unclear unmeasured equivalent)};
	close($out) or die "$results.new: $!\n";
	rename("$results.new", $results) or die "$results: $!\n";
	return;
}

# The mutants that are wanted, and what is wrong with the list
sub list
{
	my (@wanted) = @_;
	my @all = read_mutants($root);
	my @complaints = @wanted ? () : complaints($root, @all);
	my %measured = $new ? measured() : ();
	my %unused = map { $_ => 1 } @wanted;
	my @mutants;

	for my $mutant (@all)
	{
		my @by = grep { $_ eq $mutant->{name} || $_ eq ($mutant->{file} // '') } @wanted;

		delete @unused{@by};
		next if @wanted && !@by;
		my $complaint = complaint($root, $mutant);
		push @complaints, $complaint // ();
		push @mutants, $mutant unless $complaint || $measured{"$mutant->{name} $mutant->{digest}"};
	}

	# a file that has none is no fault of the list
	return (\@mutants, @complaints,
		map { "$_: there is no such mutant or file" } grep { !-e "$root/$_" } sort keys %unused);
}

#
# The bench: what mutants are tested on, which is a private installation and a tree that
# is built for it.  There are two of each kind, plain or debug, for each job: one for the tree
# with mutants, and one for the tree without, which need not be built again then.
#

my $top = ($ENV{SNOWFLAKE_WORK} // '') . '/mutate';
my %server = (plain => $ENV{PG_CONFIG});

# For how many seconds a test waits for what does not come: then it dies, and says for what.
# Some measure a whole session by that, and so more than one test needs it on a busy machine.
my $patience = 120;

# For how many seconds a test may run: several times what the longest takes with five at once
my $limit = 900;

# A command that runs a script on a bench, with what lib.sh has
sub on_bench
{
	my ($bench, $script, @arguments) = @_;

	return with_lib(
		"work=\$1 PG_CONFIG=\$2; shift 2; find_pg_config; bindir=\$work/inst\$bindir
		export INITDB_TEMPLATE=\$work/template TMPDIR=\$work/tmp PG_TEST_TIMEOUT_DEFAULT=$patience; $script",
		$bench->{work}, $server{ $bench->{kind} }, @arguments);
}

# A bench of a job, for the tree with mutants or for the one without: a copy of the first of its
# kind, which is built.
sub enter_bench
{
	my ($job, $kind, $tree) = @_;
	my $built = "$top/built/$kind";
	my $bench = { kind => $kind, work => "$top/$job/$kind-$tree" };

	$bench->{log} = "$bench->{work}/test.log";
	return $bench if -e $bench->{work};
	open(my $lock, '>', "$built.lock") or die "$built.lock: $!\n";
	flock($lock, LOCK_EX) or die "$built.lock: $!\n";
	-e "$built/ready" || system(
		on_bench(
			{ kind => $kind, work => $built }, q{
		as_user mkdir -p "$work/tmp"
		copy_tree "$work/tree"
		private_installation >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
		as_user cp -a "$work/tree" "$work/pristine"
		make_template >"$work/initdb.log" 2>&1
		as_user touch "$work/ready"})) == 0
	  or die "there is no bench to test on\n";
	close($lock);
	system(on_bench($bench, 'as_user mkdir -p "${work%/*}"; as_user cp -a "$1" "$work"', $built))
	  == 0
	  or die;
	return $bench;
}

# Build and install the tree with a mutant.  Objects do not depend on the Makefile.
sub plant
{
	my ($bench, $mutant) = @_;
	my $work = $bench->{work};

	return 1 if -e "$work/planted" && (read_lines("$work/planted"))[0] eq "$mutant->{name}\n";
	unlink "$work/planted";
	system(on_bench($bench, q{rm -rf "$work/tree"; as_user cp -a "$work/pristine" "$work/tree"}))
	  == 0
	  or die;
	my $files = changed_files("$work/tree", $mutant);
	write_file("$work/tree/$_", @{ $files->{$_} }) for keys %$files;
	return 0 if system(
		on_bench(
			$bench, q{
		cmp -s "$work"/{pristine,tree}/Makefile || tree_make clean
		private_installation >"$work/build.log" 2>&1}));
	write_file("$work/planted", "$mutant->{name}\n");
	return 1;
}

sub write_file
{
	my ($path, @lines) = @_;

	open(my $out, '>', $path) or die "$path: $!\n";
	print $out @lines;
	close($out) or die "$path: $!\n";
	return;
}

# The last words of a test that died, which say why: those of Perl
sub last_words
{
	my ($bench) = @_;
	my @logs = glob "$bench->{work}/run/tmp_check/log/regress_log_*";
	my (undef, $words) = last_said(map { read_lines($_) } @logs ? @logs : $bench->{log});

	# the file alone, without the directory that it was in this time
	return '' if $words !~ s{ at (?:\S*/)?(\S+ line \d+\.?)$}{ at $1};
	return ': ' . substr($words, 0, 200) =~ s/\s+$//r;
}

# A line that says what failed
sub reason_of_failure
{
	my ($bench) = @_;
	my ($line) = grep { /^not ok/ } read_lines($bench->{log});

	return $line && $line =~ s/ *\d+ ms$|\n//gr =~ tr/ //sr;
}

# A test and its shell are a process group: does it end within this many seconds?
my $running;

sub ends
{
	my ($seconds, $until) = @_;

	for (my $end = time + $seconds; time <= $end; sleep 0.2)
	{
		return 1 if waitpid($running, WNOHANG) == $running;
		return 0 if $until && $until->();
	}
	return 0;
}

sub end_test
{
	kill 'TERM', -$running;
	return if ends(5);
	kill 'KILL', -$running;
	waitpid $running, 0;
	return;
}

# Run a test until it ends, or something of it fails, or it has taken too long.  Returns
# "passed", "skipped" or why it failed.
sub run_test
{
	my ($bench, $test) = @_;
	my ($kind, @names) = split / /, $test;

	$kind = 'test/t/' . shift(@names) . '.pl' if $kind eq 'tap';
	write_file($bench->{log});
	$running = fork // die "fork: $!\n";
	if (!$running)
	{
		setpgrp;
		open(STDOUT, '>', $bench->{log}) && open(STDERR, '>&', \*STDOUT) or die;
		exec on_bench($bench, 'rm -rf "$work/run"; eval "$(installcheck "$work/run" "$@")"',
			$kind, @names)
		  or die;
	}
	my $ended = ends($limit, sub { reason_of_failure($bench) });
	my $status = $?;
	my $reason = reason_of_failure($bench);
	end_test() unless $ended;
	undef $running;
	system(on_bench($bench, 'stop_servers'));

	return
		$reason ? $reason
	  : !$ended ? "no end after $limit s"
	  : $status != 0 ? 'exit status ' . ($status >> 8) . last_words($bench)
	  : (grep { /^ok/ } read_lines($bench->{log})) ? 'passed'
	  : 'skipped';
}

# The same on the tree without a mutant, once for all who ask within so many seconds.
my $asked_again_after = 900;

sub run_without
{
	my ($job, $kind, $test) = @_;
	my $passed = "$top/passed/" . "$kind $test" =~ tr/ /_/r;

	open(my $lock, '>', "$passed.lock") or die "$passed.lock: $!\n";
	flock($lock, LOCK_EX) or die "$passed.lock: $!\n";
	return 'passed' if -e $passed && time - (stat(_))[9] < $asked_again_after;
	my $outcome = run_test(enter_bench($job, $kind, 'without'), $test);
	write_file($passed) if $outcome eq 'passed';
	return $outcome;
}

# Does a test fail with a mutant?  Returns what failed, or nothing, and why that cannot
# be told.
sub sees
{
	my ($job, $mutant, $test) = @_;
	my $words = $test =~ s/^debug //r;
	my $kind = $words eq $test ? 'plain' : 'debug';
	my $bench = enter_bench($job, $kind, 'with');
	my $outcome;

	if (!plant($bench, $mutant))
	{
		my ($error) = grep { /error/i } read_lines("$bench->{work}/build.log");
		return (undef, 'it does not build: ' . ($error // '') =~ s/\n//r);
	}

	# a machine that is busy fails tests as well: then the tree without it fails, too
	for (1 .. 3)
	{
		$outcome = run_test($bench, $words);
		return () if $outcome eq 'passed';
		return (undef, "$test is skipped here") if $outcome eq 'skipped';
		my $without = run_without($job, $kind, $words);
		return "$test: $outcome" if $without eq 'passed';
		print "# $mutant->{name}: $test: $outcome; without it: $without\n";
	}
	return (undef, "$test fails without it, too: $outcome");
}

# All tests.  Those with injection points are run where these are.
sub all_tests
{
	my @tap = map { m{([^/]*)\.pl$} } glob "$root/test/t/*.pl";

	return (
		'regress',
		'isolation',
		(map { "tap $_" } @tap),
		map { "debug tap $_" } grep {
			grep { /injection_points/ }
			  read_lines("$root/test/t/$_.pl")
		} @tap);
}

# Try one mutant, and write down what came of it.  Returns that.
sub try_mutant
{
	my ($job, $mutant) = @_;
	my @first = map { s/^ +| +$//gr } split /,/, $mutant->{first};
	my ($killer, $problem);

	for my $test (@first)
	{
		($killer, $problem) = sees($job, $mutant, $test);
		last if $killer || $problem;
	}
	if (!$killer && !$problem && !$first_only)
	{
		my %tried = map { $_ => 1 } @first;

		# a test that does not pass anyway says nothing
		for my $test (grep { !$tried{$_} } all_tests())
		{
			($killer) = sees($job, $mutant, $test);
			last if $killer;
		}
	}
	my $result =
	  $problem ? "ERROR: $problem" : $killer ? judged($mutant, "killed by $killer") : 'survived';

	# who only asks the first tests does not know who survives
	if ($killer || (!$problem && !$first_only))
	{
		eval { record($mutant->{name}, $mutant->{digest}, $result); 1 }
		  or print "# $mutant->{name}: not recorded: $@";
	}
	return $result;
}

if ($record_only)
{
	record();
	exit;
}
if (defined $to_plant)
{
	die "$root: this is no copy\n" if -e "$root/.git";
	my ($mutant) = grep { $_->{name} eq $to_plant } read_mutants($root)
	  or die "$to_plant: there is no such mutant\n";
	my $files = changed_files($root, $mutant);

	write_file("$root/$_", @{ $files->{$_} }) for keys %$files;
	exit;
}
my ($mutants, @complaints) = list(@ARGV);
if ($list_only)
{
	printf "%s (%s): %s\n    %s\n", @$_{qw(name file what)},
	  $_->{first} // "equivalent: $_->{equivalent}"
	  for @$mutants;
	print STDERR "$_\n" for @complaints;
	exit(@complaints > 0);
}

$| = 1;
fail($_) for @complaints;
note("equivalent $_->{name}: $_->{equivalent}") for grep { defined $_->{equivalent} } @$mutants;

# Those of one test together; the tests mixed
my %place = map { $_ => md5_hex($_->{first} =~ s/,.*//r) } grep { defined $_->{first} } @$mutants;
my @queue = sort { $place{$a} cmp $place{$b} || $a->{digest} cmp $b->{digest} }
  grep { defined $_->{first} } @$mutants;
mkdir $_ || die "$_: $!\n" for $top, "$top/built", "$top/passed";
system(with_lib('chown -R "$(test_user)": "$1"', $top)) == 0 or die;
note(scalar(@queue) . " mutants, $jobs at once, " . `$server{plain} --version`);
if (!$first_only || grep { $_->{first} =~ /debug/ } @queue)
{
	my ($debug) = `bash $root/test/debug.sh build` =~ m{(.*)/bin/pg_config\n\z}
	  or die "there is no server for debugging\n";

	system('cp', '-a', $debug, "$top/debug") == 0 or die;
	$server{debug} = "$top/debug/bin/pg_config";
}

# One process for each mutant, which tells its result by a file
my (%working, %count, @others);
my @free = 1 .. $jobs;
while (@queue || %working)
{
	if (@queue && @free)
	{
		my ($job, $mutant) = (shift @free, shift @queue);
		my $pid = fork // die "fork: $!\n";

		if (!$pid)
		{
			local $SIG{TERM} = sub { end_test() if $running; POSIX::_exit(143); };
			my $result = eval { try_mutant($job, $mutant) } // "ERROR: $@" =~ s/\n//r;
			write_file("$top/$job.result", $result);
			POSIX::_exit(0);
		}
		$working{$pid} = [ $job, $mutant->{name}, time ];
		next;
	}
	my ($job, $name, $started) = @{ delete $working{ my $pid = wait } };
	my ($result) = read_lines("$top/$job.result");
	ok($result =~ /^killed/, sprintf '%s: %s (%d s)', $name, $result, time - $started);
	$count{ $result =~ s/\W.*//r }++;
	push @others, "$name: $result" unless $result =~ /^killed/;
	push @free, $job;
}
note($_) for sort @others;
my ($killed, $survived, $unclear, $errors) =
  map { $_ // 0 } @count{qw(killed survived unclear ERROR)};
my $tried = $killed + $survived + $unclear;
note(($tried ? sprintf('score %.3f: ', $killed / $tried) : '')
	. "$killed killed, $survived survived, $unclear unclear, $errors in error");
done_testing();
