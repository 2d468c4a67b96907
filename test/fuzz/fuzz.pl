# Fuzz the layout parser and every text decoder: libFuzzer with AddressSanitizer
# and UndefinedBehaviorSanitizer, on the sources of the extension as they are,
# with stand-ins for the server.  Needs PostgreSQL's server headers, but no
# server.  A rejected text is fine; a crash, a report of a sanitizer or a broken
# invariant is a finding.  One result for each target.
#
#   bash test/run.sh fuzz                    200000 executions of each target
#   bash test/run.sh fuzz --runs 5000000     5000000 of each
#   bash test/run.sh fuzz --keep DIR base58  of one target; keep corpus and
#                                            findings of this run in a directory
#
# To repeat a finding: FORMAT=base58 DIR/text DIR/finding.base58.crash-...

use strict;
use warnings;

use File::Path 'make_path';
use File::Temp;
use FindBin;
use Getopt::Long;
use lib "$FindBin::RealBin/../perl";
use SnowflakeProgram;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my ($runs, $dir) = (200000, File::Temp->newdir);
GetOptions('runs=i' => \$runs, 'keep=s' => \$dir) or die "usage";
my @targets =
  @ARGV ? @ARGV : qw(layout decimal base32 base32z base36 base58 base58flickr base62 hex);

# Without the server's -fwrapv, so that an overflow is reported even where the
# server would wrap around.
sub compile
{
	my ($program, @sources) = @_;
	my $output =
	  output_of('clang -O1 -g -Wall -Wno-ignored-attributes -D_GNU_SOURCE -DUSE_ASSERT_CHECKING=1'
		  . " -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I'$root/src'"
		  . " -I\$(\${PG_CONFIG:-pg_config} --includedir-server) -o '$dir/$program' @{[ map { qq('$root/$_') } @sources ]}"
	  );

	die $output if $?;
	return;
}

my $seeds = 0;

sub seed
{
	my ($program, $text) = @_;

	open my $file, '>', "$dir/seeds/$program/" . ++$seeds or die;
	print $file $text;
	close $file or die;
	return;
}

make_path("$dir/seeds/layout", "$dir/seeds/text", map { "$dir/corpus/$_" } @targets);
compile('layout', qw(test/fuzz/layout.c test/fuzz/server.c src/layout/layout.c));
compile('text', qw(test/fuzz/text.c test/fuzz/server.c src/layout/encode.c src/layout/io.c));

# Seeds: the layouts and encodings that others have published.
foreach (grep { /\d\t/ } read_lines("$root/test/data/layouts.tsv"))
{
	my (undef, $fields, $time, $node, $sequence, $tick, $epoch) = split /\t/;

	$fields =~ s/time/time:$time/;
	$fields =~ s/seq/sequence:$sequence/;
	$node > 0 ? $fields =~ s/node/node:$node/ : $fields =~ s/\|node//;
	seed('layout', $fields =~ tr/|/ /r . " tick:${tick}ms epoch:$epoch");
}
seed('layout', $_)
  foreach map { /^\t\{"([a-z0-9]+)", "(.*)"\},$/ } read_lines("$root/src/layout/layout.c");

# ... and those at the limits of what is possible, which mutations reach rarely.
seed('layout', join ' ', 'time:30', 'sequence:19', (map { "$_:1" } 'a' .. 'n'), 'epoch:0');
seed('layout', 'time:41 abcdefghijklmnopqrstuvwxyz12345:10 sequence:12 epoch:0');

@ENV{qw(ASAN_OPTIONS UBSAN_OPTIONS)} = qw(detect_leaks=0 print_stacktrace=1);
foreach my $target (@targets)
{
	my $program = $target eq 'layout' ? 'layout' : 'text';

	$ENV{FORMAT} = $target;
	my $output = output_of(
		"$dir/$program",
		"-runs=$runs",
		'-timeout=10',
		'-print_final_stats=1',
		"-artifact_prefix=$dir/finding.$target.",
		$program eq 'layout'
		? ('-max_len=400', "-dict=$root/test/fuzz/layout.dict")
		: '-max_len=64',
		"$dir/corpus/$target",
		"$dir/seeds/$program");
	my $status = $?;
	my ($ran) = ($output =~ /^stat::number_of_executed_units: *(\d+)/m, 0);

	ok($status == 0 && $ran >= $runs, "$target: $ran executions")
	  or diag(grep { !/^#\d+\t(NEW|REDUCE|pulse)/ } split /^/, $output);
}
done_testing();
