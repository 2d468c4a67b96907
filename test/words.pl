#!/usr/bin/perl
# Prints the errors and hints of src/generator/words.c as the tables of doc/messages.md, or
# writes them there with --write; rules.pl checks that the page has them.  What the
# coordinator says is on the page about fleets.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/perl";
use SnowflakeProgram;

my $root = "$FindBin::RealBin/..";
my $page = "$root/doc/messages.md";

# What stands for the hint of another state
my %hint_of = (
	keeper => 'what the keeper is doing',
	coordinator => 'what the coordinator says',
	jumped => 'how it jumped',
	ways => 'the ways out',
	at_clock => 'how to give up the order',
	why => 'why',
	todo => 'why, and what to do',
	message => 'the error',
	hint => 'its hint');

sub slurp { return join '', read_lines($_[0]); }

# A text of the table for people: … is a value
sub text
{
	my ($text) = @_;

	return '' unless defined $text;
	$text =~ s/\\"/"/g;
	$text =~ s/\{(\w+)\}/$hint_of{$1} ? "*$hint_of{$1}*" : '…'/ge;
	return $text;
}

my @states = slurp("$root/src/generator/words.h") =~ /^\t(STATE_\w+)/mg;
my ($rows) =
  slurp("$root/src/generator/words.c") =~ /snowflake_words\[SNOWFLAKE_STATES\] = \{\n(.*?)^\};/ms;
my $values = join '', map { slurp("$root/$_") } 'src/mint/refusal.c', 'src/generator/generator.c';
my ($tables, $is_shown, @found) = ('');

# A comment in the table begins a new one.
while ($rows =~ m{\G(?:\n\t/\* (.*) \*/\n|\t\[(STATE_\w+)\] = \{(\..*|\n(?:\t\t\..*\n)+\t)\},\n)}gc)
{
	my ($title, $state, $fields) = ($1, $2, $3);

	if (defined $title)
	{
		$is_shown = $title !~ /^Reports of the coordinator/;
		$tables .= "\n$title:\n\n| message | hint, which is the advice |\n| --- | --- |\n"
		  if $is_shown;
		next;
	}
	my %field = $fields =~ /^\t*\.(\w+) = (?:"(.*)"|\w+),?$/mg;
	my ($sqlstate) = $fields =~ /\.sqlstate = ERRCODE_(\w+)/;
	my $number =
	  !defined $sqlstate ? '' : { SEQUENCE_GENERATOR_LIMIT_EXCEEDED => '2200H: ' }->{$sqlstate}
	  // die "$state: unknown SQLSTATE\n";

	push @found, $state;
	foreach my $word (map { /\{(\w+)\}/g } grep { defined } @field{qw(message detail hint)})
	{
		die "$state: nothing gives \"$word\" a value\n"
		  unless $word eq 'function' || $values =~ /VALUE\("$word",/;
	}
	next if !$is_shown || !defined $field{message};
	my $row = "| $number" . text($field{message}) . ' | ' . text($field{hint}) . " |\n";
	$tables .= $row if $tables !~ /\Q$row\E\z/;
}
die "words.c: cannot read what follows $found[-1]\n" if (pos($rows) // 0) < length $rows;
die "words.c: the rows are not those of words.h, in the same order\n"
  unless "STATE_NO_TROUBLE @found" eq "@states";

if (@ARGV && $ARGV[0] eq '--write')
{
	my $text = slurp($page);

	$text =~ s/(<!-- words -->\n).*?(?=\n<!-- end of words -->)/$1$tables/s
	  or die "doc/messages.md has no place for the words\n";
	open my $fh, '>', $page or die "could not write \"$page\": $!\n";
	print $fh $text;
	close $fh or die "could not write \"$page\": $!\n";
}
else
{
	print $tables;
}
