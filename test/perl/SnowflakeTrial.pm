
=pod

=head1 NAME

SnowflakeTrial - extensions that Debian does not have, from a source tree

=head1 SYNOPSIS

  use SnowflakeTrial qw(trial_of);

  my $installation = trial_of('CITUS_SOURCE', q{./configure -q && make -s && make -s install});
  my $node = new_node('main', new => { install_path => $installation });

=head1 DESCRIPTION

Such a test says where the source is by a variable of the environment, and is skipped
without it.  The source is copied, built and installed into a copy of the server's
directories, which goes with the test: neither the tree nor the server is changed.

=cut

package SnowflakeTrial;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT_OK = qw(trial_of);

# The prefix of an installation that has what is built by these commands in a copy of the
# tree that a variable of the environment names.  PG_CONFIG is set for them.
sub trial_of
{
	my ($variable, $commands) = @_;
	my $source = $ENV{$variable};

	plan skip_all => "skipped: $variable does not name a source tree" unless $source;
	-d $source or die "$variable: no such directory: $source\n";

	my $work = PostgreSQL::Test::Utils::tempdir();
	my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
	my @directories = split /\n/,
	  qx{$pg_config --bindir --libdir --pkglibdir --sharedir --includedir-server --pkgincludedir};
	my ($bindir) = @directories;
	my $library = $directories[2] =~ s{/lib$}{}r;

	# libdir may be that of the whole system; what the server needs is beside pkglibdir
	splice @directories, 1, 1;
	foreach my $directory (@directories)
	{
		system_or_bail('mkdir', '-p', "$work/root$directory");
		system_or_bail('cp', '-a', "$directory/.", "$work/root$directory");
	}
	system_or_bail('cp', '-a', $source, "$work/source");

	local $ENV{PG_CONFIG} = "$work/root$bindir/pg_config";
	my $log = "$work/build.log";
	if (system("cd '$work/source' && { $commands; } >'$log' 2>&1") != 0)
	{
		diag(join "\n", (split /\n/, slurp_file($log))[ -40 .. -1 ]);
		die "$variable: could not be built\n";
	}
	return "$work/root" . ($bindir =~ s{/bin$}{}r);
}

1;
