# What tests have in common that run programs, and no server of their own.

package SnowflakeProgram;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use Test::More;

our @EXPORT = qw(output_of program_ok silent_ok);

# What a command says, all of it; $? is how it ends.  One in one word is for bash.
sub output_of
{
	my @command = @_ > 1 ? @_ : ('bash', '-e', '-o', 'pipefail', '-c', @_);
	my $output = '';

	eval { IPC::Run::run(\@command, '<', \undef, '>&', \$output); 1 } or ($?, $output) = (127 << 8, $@);
	return $output;
}

# A command that succeeds, and one that has nothing to say as well.  If it is not so, the end
# of what it says is shown.
sub program_ok
{
	my ($what, @command) = @_;
	my $output = output_of(@command);

	return ok($? == 0, $what) || diag(ending($output));
}

sub silent_ok
{
	my ($what, @command) = @_;
	my $output = output_of(@command);

	return ok($? == 0 && $output eq '', $what) || diag(ending($output));
}

sub ending
{
	my @lines = split /^/, $_[0];

	splice @lines, 0, -60 if @lines > 60;
	return @lines;
}

1;
