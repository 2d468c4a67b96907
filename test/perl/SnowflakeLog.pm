# What a test's log says.

package SnowflakeLog;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT_OK = qw(last_said);

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

1;
