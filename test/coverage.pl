# Line coverage of src by the regression and TAP tests: build the extension for
# gcov, run the tests, and print each file's coverage and the lines that no test
# reaches.  Below 95 % is a failure.
#
#   bash test/run.sh coverage
#   bash test/run.sh coverage 100_clock 200_keeper      only these TAP tests
#
# The lines that no test reaches are
#
# - checks for what cannot happen: elog(), a stored layout that does not parse, no memory for a setting;
# - moments between two looks at the shared state, which no test can hit deliberately, but the fault
#   campaigns do: the gate closes between a mint's look at it and its lock, both clocks cannot be read close
#   together, the server stops while a keeper pauses after an error;
# - requests of the planner that it does not make today: a comparison with a time is always inlined;
# - refusals of a conversion that need a setting of their own, such as a temporary table of another session.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/perl";
use SnowflakeProgram;
use Test::More;

my $goal = 95;
my $work = "$ENV{SNOWFLAKE_WORK}/coverage";

# Each process of a server adds its counts to the files beside the objects when
# it exits, so the directory belongs to the user who runs the server.  Those who
# are killed add nothing.
my $in_copy = qq{work='$work'; find_pg_config; coverage=("COPT=--coverage -O0" with_llvm=no); };
program_ok(
	'build',
	with_lib(
		qq{$in_copy as_user mkdir "\$work"; copy_tree "\$work/tree"
	build_extension "\${coverage[@]}"; install_extension "\${coverage[@]}"})) or exit 1;

# this library exports symbols of gcov's, so the test of the symbols is left out
my @tests =
  @ARGV ? @ARGV : map { m{([^/]*)\.pl$} } grep { !/_symbols/ } glob "$FindBin::RealBin/t/*.pl";
program_ok(
	'all tests pass',
	with_lib(
		qq{$in_copy tree_make installcheck "\${coverage[@]}" "\$@"},
		"PROVE_TESTS=@{[ map { qq(test/t/$_.pl) } @tests ]}",
		@ARGV ? ('REGRESS=', 'ISOLATION=') : ()));

chdir "$work/tree" or die "could not change directory: $!";
output_of(
	with_lib(
		'for directory in src/ src/*/; do as_user gcov -r -o "$directory" "$directory"*.c; done'));
my ($covered, $all, @unreached, @files) = (0, 0);
foreach my $path (sort glob '*.gcov')
{
	my ($name) = $path =~ /(.*)\.gcov$/;
	my @lines = map { /^ *([#\d]\S*): *(\d+):(.*)/ ? [ $1, $2, $3 ] : () } read_lines($path);
	my @missed = grep { $_->[0] =~ /#/ } @lines;

	$all += @lines;
	$covered += @lines - @missed;
	push @unreached, map { "$name:$_->[1]:$_->[2]" } @missed;
	push @files, sprintf '%-16s %4d of %4d lines', $name, @lines - @missed, scalar @lines;
}
note(join "\n", '--- lines that no test reaches', @unreached, '--- line coverage', @files);
my $percent = 100 * $covered / ($all || 1);
ok( $percent >= $goal,
	sprintf 'at least %d %% of the lines are covered: %d of %d, %.1f %%',
	$goal, $covered, $all, $percent);
done_testing();
