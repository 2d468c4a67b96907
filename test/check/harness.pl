# The harness, and programs that write TAP for others: a test that fails, dies or
# writes nothing must not pass, and must not end other tests.  run.sh runs this.

use strict;
use warnings;

use File::Path qw(make_path remove_tree);
use File::Temp;
use lib 'test/perl';
use SnowflakeProgram;
use Test::More;

my $dir = File::Temp->newdir;

delete $ENV{HARNESS_TAP};
$ENV{SNOWFLAKE_JOBS} = 1;

my @said;    # by the harness, all of it

# What the harness says last of these commands, and how it ends
sub harness
{
	open my $list, '>', "$dir/list" or die;
	print $list map { "any\tprogram\t$_\n" } @_;
	close $list or die;

	@said = split /^/, output_of(with_lib("perl test/harness.pl $dir <$dir/list"));
	return (@said ? $said[-1] =~ s/\n//r : '') . ($? ? ', fails' : '');
}

sub like_tap
{
	my ($output) = @_;

	open my $file, '>', "$dir/output" or die;
	print $file $output;
	close $file or die;
	return "as_tap <$dir/output";
}

my $two = 'echo 1..2; echo ok 1; echo ok 2';

foreach my $case (
	[ 'good', '2 passed, 0 failed', $two ],
	[ 'a reason to skip', '0 passed, 0 failed', 'echo "1..0 # SKIP why"' ],
	[ 'one that fails', '1 passed, 1 failed, fails', 'echo 1..2; echo ok 1; echo not ok 2' ],
	[ 'dies after its plan', '2 passed, 1 failed, fails', "$two; exit 1" ],
	[ 'is killed after its plan', '2 passed, 1 failed, fails', "$two; kill -KILL \$\$" ],
	[ 'fails in a pipe', '2 passed, 1 failed, fails', "{ $two; exit 1; } | as_tap" ],
	[ 'ends before its plan', '2 passed, 1 failed, fails', 'echo ok 1; echo ok 2' ],
	[ 'fewer than planned', '1 passed, 1 failed, fails', 'echo 1..2; echo ok 1' ],
	[ 'skips, and dies', '0 passed, 1 failed, fails', 'echo "1..0 # SKIP why"; exit 1' ],
	[ 'plans nothing', '0 passed, 1 failed, fails', 'echo 1..0' ],
	[ 'counts nothing', '0 passed, 1 failed, fails', 'echo "0 passed, 0 failed" | as_tap' ],
	[ 'says something else', '0 passed, 1 failed, fails', 'echo hello' ],
	[ 'says nothing', '0 passed, 1 failed, fails', 'true' ],
	[ 'an empty list', '0 passed, 1 failed, fails' ],
	[ 'what cannot be had', '0 passed, 0 failed', 'CI= bash -c ". test/lib.sh; cannot_have why"' ],
	[
		'what cannot be had by continuous integration',
		'0 passed, 1 failed, fails',
		'CI=true bash -c ". test/lib.sh; cannot_have why"'
	],
	[
		'bails out beside another',
		'3 passed, 1 failed, fails',
		'{ echo ok 1; echo "Bail out!  no"; exit 255; } | as_tap', $two
	])
{
	my ($name, $expected, @commands) = @$case;

	is(harness(@commands), $expected, $name);
}

# pg_regress up to 15, and from 16 on
is( harness(like_tap(<<'END')),
test setup                        ... ok          123 ms
parallel group (2 tests):  one two
     one                          ... ok           12 ms
     two                          ... FAILED (test process exited with exit code 2)       12 ms
test three                        ... ok     (test process was terminated by signal 11: Segmentation fault)       12 ms
 1 of 4 tests failed.
END
	'2 passed, 2 failed, fails',
	'pg_regress before 16');
is( harness(like_tap(<<'END')),
test setup                        ... ok          123 ms
test one                          ... psql: a warning
FAILED       12 ms
 1 of 2 tests failed.
END
	'1 passed, 1 failed, fails',
	'a line of pg_regress that is torn');
is( harness(like_tap(<<'END')),
ok 1         - setup                                      70 ms
# parallel group (2 tests):  one two
ok 2         + one                                        70 ms
not ok 3     + two                                        70 ms
# (test process exited with exit code 2)
1..3
# 1 of 3 tests failed.
END
	'2 passed, 1 failed, fails',
	'pg_regress from 16 on');

# What is said of a program that dies: how it ended, after what, and why
sub last_words
{
	my ($command, $log) = @_;
	my $place = "$dir/program/tmp_check/log";

	make_path($place);
	open my $file, '>', "$place/regress_log_program" or die;
	print $file $log;
	close $file or die;
	harness($command);
	remove_tree("$dir/program");
	return $said[-2];
}

is( last_words(
		'echo ok 1 - first; echo "make: *** [Makefile:7: installcheck] Error 255"; exit 2',
		<<'END'),
[12:00:00.000](0.001s) ok 1 - first
### Starting node "main"
# Running: pg_ctl start
waiting for server to start.... done
# Postmaster PID for node "main" is 1
error running SQL: 'psql:<stdin>:1: ERROR:  no'
while running 'psql' with sql 'SELECT' at Cluster.pm line 1.
### Stopping node "main" using mode immediate
server stopped
END
	qq{  program: exit status 255; No plan found in TAP output, after "ok 1 - first": error running SQL: 'psql:<stdin>:1: ERROR:  no' while running 'psql' with sql 'SELECT' at Cluster.pm line 1.\n},
	'how a program died, and its last words');
like(
	join('', @said),
	qr/^--- program: end of regress_log_program\n.*^server stopped$/ms,
	'the end of its log');
is( last_words('echo 1..1; kill -KILL $$', ''),
	"  program: killed by SIGKILL; Bad plan.  You planned 1 tests but ran 0., after it began\n",
	'the signal');
is( last_words('echo 1..2; echo ok 1; echo not ok 2 - second', ''),
	"  program: 2 - second\n",
	'which results are bad');

# A run that is told to end says what it was waiting for.  It reads before it is told, since this is more
# than a pipe takes.
harness(
	'echo 1..401; seq -f "ok %.0f - $(printf %0200d 0)" 400; kill $(ps -o ppid= $$); exec sleep 60'
);
like(
	join('', @said),
	qr/^the run was ended early\n  still running: program, after ok \d+ - 0+\n.*^0 passed, 1 failed\n\z/ms,
	'what still runs when the run is ended');

done_testing();
