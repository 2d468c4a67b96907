#!/usr/bin/perl
# Rules of this project that a machine can check, as TAP.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeProgram;
use Test::More;

chdir "$FindBin::RealBin/../.." or die "could not change directory: $!";

sub slurp { return join '', read_lines($_[0]); }

# What breaks the rule, one a line, is to be nothing.
sub rule
{
	my ($what, @broken) = @_;

	is(join('', map { "$_\n" } @broken), '', $what);
	return;
}

my %text = map { $_ => slurp($_) } sort glob('src/*.[ch] src/*/*.[ch]');
my @sources = grep { /\.c$/ } sort keys %text;

# The lines of src of which a function of the file and the line is true
sub lines
{
	my ($is_wanted) = @_;
	my @found;

	foreach my $file (sort keys %text)
	{
		my @lines = split /\n/, $text{$file};

		push @found, map { "$file:" . ($_ + 1) . ": $lines[$_]" }
		  grep { $is_wanted->($file, $lines[$_]) } 0 .. $#lines;
	}
	return @found;
}

my ($version) = slurp('snowflake.control') =~ /^default_version *= *'(.*)'/m;
rule(
	'the version is in snowflake.control alone',
	lines(sub { $_[1] =~ /"\Q$version\E"/ }),
	grep { /"\Q$version\E"/ } split /\n/,
	slurp('Makefile'));
rule('only src/base/compat.h names a version of PostgreSQL',
	lines(sub { $_[0] ne 'src/base/compat.h' && $_[1] =~ /PG_VERSION_NUM/ }));
rule('tabs indent C', lines(sub { $_[1] =~ /^ {2}|\t {4}|^\t* \t/ }));

# A message is one line, however long, so that it can be searched for.
rule('no long lines', lines(sub { $_[1] !~ /"/ && length($_[1] =~ s/\t/    /gr) > 110 }));

rule(
	'each file of src says what it is for',
	grep {
		my ($name) = m{([^/]*)$};
		$text{$_} !~ m{\A/\*-----.*\n.*\n \* \Q$name\E\n \*\t  [A-Z]}
	} sort keys %text);

rule(
	'no space at the end of a line',
	grep { !m{^\./(expected|\.git)/|\.(tsv|svg|patch)$} && -T $_ && slurp($_) =~ /[ \t]$/m }
	  split /\n/,
	`find . -type f`);

# elog() is for what cannot happen; an error with a message has a SQLSTATE.
rule(
	'errors have SQLSTATEs',
	map {
		my $file = $_;
		map { "$file: $_" }
		  $text{$_} =~ /^(?!#define)(.*(?:ereport\(ERROR|ereturn\(|errsave\().*)\n(?!.*errcode)/mg
	} @sources);

# The folders of src in layers, the lowest first; src itself is above them all.
my @layers = qw(base layout coordinator generator frontier lease keeper mint public convert src);
my %layer = map { $layers[$_] => $_ } 0 .. $#layers;

sub folder_of
{
	my ($file) = @_;

	return $file =~ m{^(\w+)/} ? $1 : 'src';
}

my @upward;
my %includes;
foreach my $file (sort keys %text)
{
	my ($name) = $file =~ m{^src/(.*)\.[ch]$};

	foreach my $included ($text{$file} =~ /^#include "([^"]+)\.h"/mg)
	{
		next unless $text{"src/$included.h"};
		push @upward, "$file includes $included.h"
		  if ($layer{ folder_of($included) } // die "$included.h: no layer") >
		  $layer{ folder_of($name) };
		$includes{$name}{$included} = 1 if $included ne $name;
	}
}
rule('no folder includes from one above it', @upward);

# What a file, or its header, includes may not lead back to it: it can be taken away when
# what it includes has gone.  The server's headers include none of ours.
while (
	my @leaves = grep {
		my $of = $includes{$_};
		!grep { $includes{$_} } keys %$of
	} keys %includes)
{
	delete @includes{@leaves};
}
rule('what is included never leads back', sort keys %includes);

# The name tells the file: what a header declares begins with the noun of a file of its folder.
my @foreign;
foreach my $file (grep { /\.h$/ && !/compat\.h$/ } sort keys %text)
{
	my ($folder) = $file =~ m{^(.*)/};
	my $nouns = join '|', map { m{([^/]+)\.[ch]$} } grep { m{^\Q$folder\E/[^/]+$} } keys %text;

	push @foreign, map { "$file: $_()" }
	  grep { !/^snowflake_(?:$nouns)(?:_|$)/ }
	  $text{$file} =~ /^(?:extern [^;(]*?|)\b(snowflake_\w+)\(/mg;
}
rule('the name of a function tells its file', @foreign);

# Those that are not to be split, since their order is what is to be checked
my %may_be_long = map { $_ => 1 } qw(snowflake_generator_step snowflake_reserve_open_gate);
my @too_long;
foreach my $file (sort keys %text)
{
	while ($text{$file} =~ /^([a-z_]+)\(.*\n(?:.+\n)*?\{\n((?:(?!\}).*\n)*)\}/mg)
	{
		my ($name, $lines) = ($1, $2 =~ tr/\n//);

		push @too_long, "$file: $name: $lines lines" if $lines > 80 && !$may_be_long{$name};
	}
}
rule('no function above 80 lines', @too_long);

# A campaign shows that it can fail by a fault that is planted, which has to be possible still.
rule(
	'planted faults apply',
	grep { system("patch -p0 --dry-run -s -f <'$_' >/dev/null") != 0 } glob 'test/planted/*.patch');

# What campaigns came to is kept with a digest of what they ran on, as test/campaign/README.md says.
SKIP:
{
	my $built = join ' ', map { "! -name '*$_'" } qw(.o .so .bc ~),
	  qw(snowflake_migrate* snowflake_partitions*);
	my $code = "find src sql Makefile ./*.control -type f $built -print0";
	my ($digest) = `$code | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum` =~ /^(.{12})/;

	skip "the campaigns of test/campaign/results.md ran on another code than $digest", 1
	  if index(slurp('test/campaign/results.md'), $digest) < 0;
	pass('the campaigns of test/campaign/results.md ran on this code');
}

# A page has the words of the library.
my ($words) = slurp('doc/messages.md') =~ /<!-- words -->\n(.*)\n<!-- end of words -->/s;
is( $words,
	`perl test/words.pl`,
	'doc/messages.md has the words of src, as test/words.pl --write writes them');

# Tests are merged and renamed, and the way to them is to be found.
rule('test/README.md names tests that are there',
	grep { !-e "test/t/$_.pl" } slurp('test/README.md') =~ /\b(\d{3}_\w+)/g);

done_testing();
