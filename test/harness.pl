# Runs tests that speak TAP, several at once, and adds up their results.
#
#   perl test/harness.pl DIRECTORY <LIST
#
# LIST has a line for each program: its lane, its name and its command, a line of
# shell, with tabs between.  Those of one lane run one after the other, those of the
# lane "any" whenever there is room, and those of the lane "last" after all others.
# Below DIRECTORY, NAME/tmp_check/log has what the servers of a program have logged.
#
# The output of a program is shown if it fails, with the ends of what it and its servers
# have logged; that of one alone as it comes.  Before the end, what was skipped and what
# failed is listed, with the reason: the last words of a program that died.  The last
# line is "N passed, N failed": each result is one, and so is a program that dies
# without one that failed.  With HARNESS_TAP, all of it is TAP, for another harness.

use strict;
use warnings;

use Config;
use File::Basename;
use TAP::Harness;
use TAP::Parser::Aggregator;

my $directory = shift;
my $jobs = $ENV{SNOWFLAKE_JOBS};
my $as_tap = $ENV{HARNESS_TAP};
my (%command, %lane, @names, %running, %log, %bad, @skipped, @failures);
my ($passed, $failed, $skipped, $number) = (0, 0, 0, 0);

$| = 1;
while (<STDIN>)
{
	chomp;
	my ($lane, $name, $command) = split /\t/, $_, 3;
	$name .= ' again' while exists $command{$name};
	push @names, $name;
	push @{ $lane{$lane} }, $name;
	$command{$name} = $command;
}
my $alone = @names == 1;
my @any = @{ delete $lane{any} || [] };
my @last = @{ delete $lane{last} || [] };

# A name is a pattern to the rules, and none of ours has one's characters.  Lanes come
# first, of which each test takes longer; a sequence of one is no less deep than they,
# for what is less deep comes first.
my $harness = TAP::Harness->new(
	{
		jobs => $jobs,
		merge => 1,
		timer => 1,
		verbosity => $as_tap || $alone ? -3 : 0,
		exec => sub { return [ 'bash', '-o', 'pipefail', '-c', $command{ $_[1] } ]; },
		rules => {
			seq => [
				{
					par => [
						map { { seq => $_ } } (map { $lane{$_} } sort keys %lane),
						map { [$_] } @any
					]
				},
				@last
			]
		}
	});

sub lines_of
{
	my ($file) = @_;

	open my $fh, '<', $file // return or return;
	return <$fh>;
}

sub show
{
	my ($text) = @_;

	$text =~ s/^(?!\z)/# /mg if $as_tap;
	print $text;
}

# What matters of an output: what is said after each result that is bad, and the end;
# not the results that are as they should be.
sub extract
{
	my ($count, @lines) = @_;
	my ($from, @bad) = (0);

	@lines = grep { !/^(\[[^\]]*\]\([^)]*\) *)?ok \d/ } @lines;
	$from = @lines - $count if @lines > $count;
	foreach my $i (0 .. $from - 1)
	{
		push @bad, $lines[$i] if grep { /\bnot ok \d/ } @lines[ ($i > 10 ? $i - 10 : 0) .. $i ];
	}
	return join '', @bad, @lines[ $from .. $#lines ];
}

# The last result in these lines, and what was said after it: the last words of a program that
# died.  The first is "it began" if there is none, the second empty.
sub last_said
{
	my (@lines) = @_;
	my ($after, $end, @said) = ('it began', '');

	foreach (@lines)
	{
		my $line = s/^\[[^\]]*\]\([^)]*\) *|\s+\z//gr;

		($after, $end, @said) = (qq("$line"), '') if $line =~ /^(not )?ok \d/;
		@said = () if $line =~ /^(#|\+\+\+|make|(not )?ok \d|\d+\.\.)/;
		push @said, $line if @said || $line !~ /^(#|\+\+\+|make|(not )?ok \d|\d+\.\.|$)/;

		next if !@said;
		$end = join(' ', @said[ (@said > 9 ? @said - 9 : 0) .. $#said ]);

		# Perl's own, which the end of the servers follows, or else what was said last
		last if $line =~ / at \S+ line \d+\.?$/;
	}
	return ($after, $end);
}

# How a program ended of which no result is bad, and its last words.  What runs it has to be
# asked: make for the exit status, and bash for the signal.
sub last_words
{
	my ($parser, $output, $log) = @_;
	my ($status, $signal) = ($parser->wait >> 8, $parser->wait & 127);
	my ($after, $end) = last_said(@$log ? @$log : @$output);

	$status = $1 if join('', @$output) =~ /^make(?:\[\d+\])?: \*\*\* .* Error (\d+)$/m;
	$signal = $status & 127 if $status > 128 && $status < 128 + 65;
	return join('; ',
		$signal ? 'killed by SIG' . (split ' ', $Config{sig_name})[$signal] : "exit status $status",
		$parser->parse_errors)
	  . ", after $after"
	  . ($end ne '' ? ': ' . substr($end, 0, 600) : '');
}

sub verdict
{
	my %seen;

	print "$skipped skipped:\n", map { "  $_\n" } grep { !$seen{$_}++ } @skipped
	  if $skipped && !$as_tap;
	print "$failed failed:\n", map { "  $_\n" } @failures if @failures && !$as_tap;
	print $as_tap ? "1..$number\n" : "$passed passed, $failed failed\n";
	exit($failed > 0);
}

$harness->callback(
	made_parser => sub {
		my ($parser, $job) = @_;
		my $name = $job->[1];

		$running{$name} = 1;
		$parser->callback(
			ALL => sub {
				my $line = $_[0]->raw . "\n";
				push @{ $log{$name} }, $line;
				show($line) if $alone && !$as_tap;
			});
		$parser->callback(
			test => sub {
				my ($result) = @_;
				printf "%s %d - %s %s%s\n", $result->is_ok ? 'ok' : 'not ok', ++$number, $name,
				  $result->description, $result->has_skip ? ' # SKIP ' . $result->explanation : ''
				  if $as_tap;
				push @skipped,
				  join(' ', $name, $result->description || ()) . ': ' . $result->explanation
				  if $result->has_skip;
				push @{ $bad{$name} }, $result->number . ' ' . $result->description
				  if !$result->is_ok;
			});
	});

$harness->callback(
	after_test => sub {
		my ($job, $parser) = @_;
		my $name = $job->[1];
		my $bad = $parser->failed;

		# who plans nothing has to say why
		$bad = 1
		  if !$bad && ($parser->has_problems || ($parser->skip_all // '') eq '(no reason given)');
		$failed += $bad;
		$skipped += $parser->skipped;
		$passed += $parser->passed - $parser->skipped;
		if (defined $parser->skip_all)
		{
			$skipped++;
			push @skipped, "$name: " . $parser->skip_all;
			print 'ok ', ++$number, " - $name # SKIP " . $parser->skip_all . "\n" if $as_tap;
		}
		if ($bad)
		{
			my ($log) = glob "$directory/$name/tmp_check/log/regress_log_*";
			my @reasons =
			  $parser->failed
			  ? @{ $bad{$name} }
			  : last_words($parser, $log{$name} || [], [ lines_of($log) ]);

			print 'not ok ', ++$number, " - $name has come to its end\n"
			  if $as_tap && !$parser->failed;
			push @failures, map { "$name: $_" } @reasons;
			show("--- $name: $reasons[-1]\n");
			show(extract(60, @{ $log{$name} || [] })) unless $alone && !$as_tap;
			foreach my $file (grep { -s }
				glob "$directory/$name/{regression.diffs,tmp_check*/log/{regress_log_*,*.log}}")
			{
				show(join '', '--- ', "$name: end of ",
					basename($file), "\n", extract(30, lines_of($file)));
			}
		}
		delete $log{$name};
		delete $running{$name};
	});

# What runs is ended by whoever has told us to end.
foreach my $signal (qw(INT TERM))
{
	$SIG{$signal} = sub {
		my @still = map { $_ . ', after ' . ($log{$_} ? $log{$_}[-1] =~ s/\s+\z//r : 'it began') }
		  sort keys %running;

		show(join '', "the run was ended early\n", map { "  still running: $_\n" } @still);
		print 'not ok ', ++$number, " - ended early\n" if $as_tap;
		$failed++;
		verdict();
	};
}

if (!@names)
{
	show("nothing was tested\n");
	$failed = 1;
}
else
{
	eval {
		$harness->aggregate_tests(TAP::Parser::Aggregator->new, map { [ $_, $_ ] } @names);
		1;
	}
	  or do
	{
		show("the harness died: $@");
		print 'not ok ', ++$number, " - the harness died\n" if $as_tap;
		$failed++;
	};
}
verdict();
