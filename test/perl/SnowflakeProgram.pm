# Shared by tests that run programs and no server of their own.

package SnowflakeProgram;

use strict;
use warnings;

use Cwd 'abs_path';
use Exporter 'import';
use File::Basename;
use IPC::Run;
use Test::More;

our @EXPORT = qw(output_of program_ok read_lines silent_ok with_lib);

my $test = abs_path(dirname(__FILE__) . '/..');

# What a command says, all of it; $? is how it ends.  One in one word is for bash.
sub output_of
{
	my @command = @_ > 1 ? @_ : ('bash', '-e', '-o', 'pipefail', '-c', @_);
	my $output = '';

	eval { IPC::Run::run(\@command, '<', \undef, '>&', \$output); 1 }
	  or ($?, $output) = (127 << 8, $@);
	return $output;
}

# A command that runs a script with what lib.sh and debian.sh have, and with these arguments
sub with_lib
{
	my ($script, @arguments) = @_;

	return ('bash', '-c', '. "$0/lib.sh"; . "$0/debian.sh"; trap - EXIT INT TERM; ' . $script,
		$test, @arguments);
}

# A command succeeds, and has nothing to say either.  If that is not so, the end of what it
# says is shown.
sub program_ok
{
	my ($what, @command) = @_;
	my @lines = split /^/, output_of(@command);

	return ok($? == 0, $what) || diag(@lines[ (@lines > 60 ? @lines - 60 : 0) .. $#lines ]);
}

sub silent_ok
{
	my ($what, @command) = @_;
	my $output = output_of(@command);

	return ok($? == 0 && $output eq '', $what) || diag($output);
}

sub read_lines
{
	my ($path) = @_;

	open my $file, '<', $path or die "could not open \"$path\": $!\n";
	return <$file>;
}

1;
