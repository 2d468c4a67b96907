# Fuzz the layout parser: libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer, on
# the source of the extension as it is, with stand-ins for the server.  Needs PostgreSQL's
# server headers, but no server.  A rejected text is fine; a crash, a report of a sanitizer
# or a broken invariant is a finding.
#
#   bash test/run.sh fuzz                    200000 executions
#   bash test/run.sh fuzz --runs 5000000     5000000
#   bash test/run.sh fuzz --keep DIR         keep corpus and findings in a directory
#
# To repeat a finding: DIR/layout DIR/finding.crash-...

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
make_path("$dir/seeds", "$dir/corpus");

# Without the server's -fwrapv, so that an overflow is reported even where the
# server would wrap around.
my $built =
  output_of('clang -O1 -g -Wall -Wno-ignored-attributes -D_GNU_SOURCE -DUSE_ASSERT_CHECKING=1'
	  . " -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I'$root/src'"
	  . " -I\$(\${PG_CONFIG:-pg_config} --includedir-server) -o '$dir/layout' '$root/test/fuzz/layout.c' '$root/src/layout/layout.c'"
  );
die $built if $?;

# Seeds: the layouts that others have published, and those at the limits of what is possible, which
# mutations reach rarely.
my @seeds = (
	'time:30 sequence:19 ' . join(' ', map { "$_:1" } 'a' .. 'n') . ' epoch:0',
	'time:41 abcdefghijklmnopqrstuvwxyz12345:10 sequence:12 epoch:0',
	'time:62 sequence:1 epoch:0 tick:1us',
	'time:1 n1:31 sequence:31 epoch:253402300799999 tick:9223372036854775807us',
	'time:39 worker:8 sequence:16 tick:9223372036854ms epoch:9999-12-31T23:59:59.999Z',
	'time:41 node:10 sequence:12 tick:9223372036s epoch:2024-02-29T23:59:59.999Z',
	map { @$_ } map { [/^\t\{"([a-z0-9]+)", "(.*)"\},$/] } read_lines("$root/src/layout/layout.c"));
foreach (grep { /\d\t/ } read_lines("$root/test/data/layouts.tsv"))
{
	my (undef, $fields, $time, $node, $sequence, $tick, $epoch) = split /\t/;

	$fields =~ s/time/time:$time/;
	$fields =~ s/seq/sequence:$sequence/;
	$node > 0 ? $fields =~ s/node/node:$node/ : $fields =~ s/\|node//;
	push @seeds, $fields =~ tr/|/ /r . " tick:${tick}ms epoch:$epoch";
}
foreach my $i (0 .. $#seeds)
{
	open my $file, '>', "$dir/seeds/$i" or die "could not create \"$dir/seeds/$i\": $!";
	print $file $seeds[$i];
	close $file or die "could not write \"$dir/seeds/$i\": $!";
}

@ENV{qw(ASAN_OPTIONS UBSAN_OPTIONS)} = qw(detect_leaks=0 print_stacktrace=1);
my $output = output_of(
	"$dir/layout", "-runs=$runs",
	'-timeout=10', '-print_final_stats=1',
	"-artifact_prefix=$dir/finding.", '-max_len=400',
	"$dir/corpus", "$dir/seeds");
my $status = $?;
my ($ran) = ($output =~ /^stat::number_of_executed_units: *(\d+)/m, 0);
ok($status == 0 && $ran >= $runs, "layout: $ran executions")
  or diag(grep { !/^#\d+\t(NEW|REDUCE|pulse)/ } split /^/, $output);
done_testing();
