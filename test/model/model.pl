# Check the models exhaustively with spin, as they are and with each rule taken out.
#
#   bash test/run.sh model            everything
#   bash test/run.sh model lease      one model
#
# One result for each: a model as it is must be searched to the end without an error,
# and one without a rule must break its claim.  README.md says what the sizes are.

use strict;
use warnings;

use File::Temp;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeProgram;
use Test::More;

my $lease = 'SERVERS=2 NODES=1 TICKS=3 LEASE=1';
my $coordinator_fails = 'COORDINATOR_FAILS SERVERS=2 NODES=1 TICKS=2 LEASE=0 VERSIONS=2';

my %holds = (
	frontier => [ 'OTHERS=2', 'OTHERS=1 IMPORTED', 'OTHERS=1 RESET' ],
	gate => [ 'ALONE TICKS=3', 'TICKS=2', 'ASYNC TICKS=1' ],
	lease => [
		'SERVERS=2 NODES=2 TICKS=2 LEASE=1',
		'SERVERS=3 NODES=1 TICKS=3 LEASE=1',
		'SERVERS=2 NODES=1 TICKS=4 LEASE=2',
		"TWINS $lease",
		"BY_HAND $lease",
		"SPLIT $lease",
		$coordinator_fails
	],
	notice => [ 'TICKS=8', 'TICKS=8 FAILOVER' ]);
my %breaks = (
	frontier => [
		(   map { "OTHERS=1 $_" }
			  qw(TELL_AT_ONCE SNAPSHOT_FIRST SLOTS_FIRST NOT_BELOW XMAX_COVERS ASK_AGAIN)),
		'OTHERS=1 IMPORTED NUMBERS_FIRST',
		'OTHERS=1 IMPORTED NEWEST_FOR_IMPORTED',
		'OTHERS=1 RESET IGNORE_RESET'
	],
	gate => [
		(   map { "ALONE TICKS=2 $_" }
			  qw(PUBLISH_BEFORE_COMMIT USE_UNSTORED STORED_OUTLIVES_GATE CLOSE_IN_ONE_STEP LOOK_ONCE
			  IGNORE_ROW IGNORE_OWN_ROW EVERY_END_IS_OF_BEFORE)),
		'TICKS=1 COMMIT_NOT_DURABLE',
		'TICKS=1 ASYNC SAME_NODE'
	],
	lease => [
		(map { "$lease $_" } qw(FORGET_UNTIL RENEW_WITHOUT_VERSION RESUME_GRANT NO_NONCE NO_KEY)),
		'SERVERS=2 NODES=1 TICKS=3 LEASE=0 NODE_NOT_GRANT',
		"TWINS $lease EXCUSE_KNOWN_ALONE",
		"BY_HAND $lease NO_FLOOR_AT_CREATION",
		"SPLIT $lease USE_ANY_PRIMARY",
		map { "$coordinator_fails $_" }
		  qw(FLEET_READ_BEFORE NO_FLOOR NO_INCARNATION GO_ON_AFTER_BACK_IN_TIME
		  GRANTED_BEFORE_NOTICED FLOOR_OF_WHAT_WAS_HEARD)
	],
	notice => [
		(map { "TICKS=7 $_" } qw(DUE_BY_END UNMARKED ONE_IS_CUT_OFF CRASH_AHEAD)),
		map { "TICKS=7 FAILOVER $_" }
		  qw(TAKE_IN_NEW_TERM DUE_BY_END UNMARKED ONE_IS_CUT_OFF CRASH_AHEAD SHORTENED_AFTERWARDS)
	]);

# Breadth first finds the shortest way to an error; what has none is searched depth first,
# which takes less memory.
sub search
{
	my ($model, $macros, $breaks) = @_;
	my $dir = File::Temp->newdir;
	my $options = '-DSAFETY -DNOREDUCE' . ($breaks ? ' -DBFS' : '');
	my $output = output_of(
		"cd $dir; spin @{[ map { qq(-D$_) } split / /, $macros ]} -a '$FindBin::RealBin/$model.pml'
		gcc -O2 -w $options -o pan pan.c; ./pan -w22 -m4000000");
	my ($states) = $output =~ /^ *(\d+) states, stored/m;

	ok(   $breaks
		? $output =~ /^pan.*: assertion violated/m
		: $? == 0
		  && $output =~ /errors: 0/
		  && $output !~ /Search not completed|depth too small|out of memory/,
		"$model $macros " . ($breaks ? 'breaks' : 'holds') . ': ' . ($states // 'no') . ' states'
	) or diag($output);
	return;
}

foreach my $model (@ARGV ? @ARGV : sort keys %holds)
{
	die "there is no model \"$model\"\n" unless $holds{$model};
	search($model, $_, 0) foreach @{ $holds{$model} };
	search($model, $_, 1) foreach @{ $breaks{$model} };
}
done_testing();
