#!/usr/bin/perl
# The list of mutants: read it, check it, and apply one of them.
#
#   mutants.pl list TREE [--new] [NAME | FILE]...
#                                           one line for each, its parts separated by \x1f:
#                                           name, file, tests, reason, what, digest
#   mutants.pl apply TREE NAME              change the tree
#   mutants.pl record TREE [NAME DIGEST RESULT]
#                                           put a result into results.txt, and add it up
#
# The list is in mutants/*.txt, results.txt is beside it.  README.md says how to
# write the former; the latter is not for hands.

use strict;
use warnings;
use Digest::MD5 qw(md5_hex);
use FindBin;

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

sub read_lines
{
	my ($path) = @_;

	open(my $file, '<', $path) or die "$path: $!\n";
	return [<$file>];
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

# Returns the changed files of a mutant, by path: their lines.  Sets its digest, of
# the change and of the functions that it is in: with another one, what was measured
# is of no account.
sub changed_files
{
	my ($tree, $mutant) = @_;
	my %files;
	my $text = '';

	for my $hunk (@{ $mutant->{hunks} })
	{
		my $lines = $files{ $hunk->{file} } //= read_lines("$tree/$hunk->{file}");
		my @old = map { substr($_, 1) } grep { !/^\+/ } @{ $hunk->{lines} };
		my @new = map { substr($_, 1) } grep { !/^-/ } @{ $hunk->{lines} };

		die "$mutant->{name}: a change without a line\n" unless @old;
		die "$mutant->{name}: nothing is changed\n" if text_of(@old) eq text_of(@new);
		my $place = place_of($lines, \@old, $mutant->{name});
		$text .= function_around($lines, $place) . text_of(@new);
		splice(@$lines, $place, @old, @new);
	}
	die "$mutant->{name}: nothing is changed\n" unless %files;
	$mutant->{digest} = substr(md5_hex($text), 0, 8);
	return \%files;
}

sub read_mutants
{
	my @mutants;

	for my $path (glob("$FindBin::Bin/mutants/*.txt"))
	{
		my $mutant;
		my $hunk;

		for my $line (@{ read_lines($path) })
		{
			if ($line =~ /^(name|file|what|first|equivalent): (.*\S)/)
			{
				push @mutants, $mutant = { list => $path, hunks => [] } if $1 eq 'name';
				die "$path: \"$1\" is there before a name\n" unless $mutant;
				die "$mutant->{name}: two lines \"$1\"\n" if defined $mutant->{$1};
				$mutant->{$1} = $2;
				undef $hunk;
			}
			elsif ($line =~ /^@@(?: (\S+))?$/)
			{
				push @{ $mutant->{hunks} },
				  $hunk = { file => $1 // $mutant->{file}, lines => [] };
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
		push @complaints, "$mutant->{name}: two mutants have this name" if $seen{ $mutant->{name} }++;
		$has_mutant{ $mutant->{file} // '' } = 1;
	}
	for my $path (glob("$tree/src/*.c $tree/src/*/*.c $tree/sql/*--1.0.sql $tree/Makefile"))
	{
		my $file = substr($path, length("$tree/"));

		push @complaints, "$file has no mutant" unless $has_mutant{$file};
	}
	return @complaints;
}

my $results = "$FindBin::Bin/results.txt";

# What results.txt has, by name and digest
sub measured
{
	return map { /^(\S+ \S+) (?!unmeasured)(.*)/ ? ($1 => $2) : () } -e $results ? @{ read_lines($results) } : ();
}

# Write results.txt: of each mutant what was measured, with the last result that is
# given here, less what is no longer true of the tree; and the score.
sub record
{
	my ($tree, $mutants, @result) = @_;
	my %measured = measured();
	my %count = map { $_ => 0 } qw(killed survived equivalent unmeasured);
	my @lines;

	$measured{"$result[0] $result[1]"} = $result[2] if @result;
	for my $mutant (@$mutants)
	{
		next if complaint($tree, $mutant);
		my $digest = $mutant->{digest};
		my $result =
			defined $mutant->{equivalent} ? 'equivalent'
		  : $measured{"$mutant->{name} $digest"} // 'unmeasured';

		$count{ $result =~ s/ .*//r }++;
		push @lines, "$mutant->{name} $digest $result\n";
	}
	open(my $out, '>', "$results.new") or die "$results.new: $!\n";
	print $out sort @lines;
	printf $out "\nscore %.3f: %d killed, %d survived, %d not measured, %d equivalent\n",
	  $count{killed} / (($count{killed} + $count{survived}) || 1),
	  @count{qw(killed survived unmeasured equivalent)};
	close($out) or die "$results.new: $!\n";
	rename("$results.new", $results) or die "$results: $!\n";
}

my ($command, $tree, @wanted) = @ARGV;
my @mutants = read_mutants();

if ($command eq 'list')
{
	my $new = grep { $_ eq '--new' } @wanted;
	my %measured = $new ? measured() : ();
	@wanted = grep { $_ ne '--new' } @wanted;
	my @complaints = @wanted ? () : complaints($tree, @mutants);
	my %unused = map { $_ => 1 } @wanted;

	for my $mutant (@mutants)
	{
		my @by = grep { $_ eq $mutant->{name} || $_ eq ($mutant->{file} // '') } @wanted;

		delete @unused{@by};
		next if @wanted && !@by;
		if (my $complaint = complaint($tree, $mutant))
		{
			push @complaints, $complaint;
			next;
		}
		next if $measured{"$mutant->{name} $mutant->{digest}"};
		print join("\x1f", $mutant->{name}, $mutant->{file}, $mutant->{first} // '',
			$mutant->{equivalent} // '', $mutant->{what}, $mutant->{digest}), "\n";
	}
	push @complaints, map { "$_: there is no such mutant or file" } sort keys %unused;
	print STDERR "$_\n" for @complaints;
	exit(@complaints ? 1 : 0);
}
elsif ($command eq 'apply')
{
	my ($mutant) = grep { $_->{name} eq $wanted[0] } @mutants;
	my $files = changed_files($tree, $mutant);

	for my $file (keys %$files)
	{
		open(my $out, '>', "$tree/$file") or die "$tree/$file: $!\n";
		print $out @{ $files->{$file} };
		close($out) or die "$tree/$file: $!\n";
	}
}
elsif ($command eq 'record')
{
	record($tree, \@mutants, @wanted);
}
else
{
	die "list, apply or record\n";
}
