
=pod

=head1 NAME

SnowflakeTest - what the TAP tests of snowflake have in common

=head1 SYNOPSIS

  use FindBin;
  use lib "$FindBin::RealBin/../perl";
  use SnowflakeTest;

  my $node = SnowflakeTest::new_node('main', node_id => 7);
  my $clock = SnowflakeTest::new_clock('main');
  SnowflakeTest::start_with_clock($node, $clock);
  SnowflakeTest::step_clock($clock, -250);

  my $error = SnowflakeTest::error_of($node, 'postgres', 'SELECT 1/0');
  is($error->{sqlstate}, '22012');

=cut

package SnowflakeTest;

use strict;
use warnings;

use File::Basename;
use File::Spec;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $shim;

# A node that preloads the library and has a node ID, not yet started.
# node_id => undef leaves the setting out, preload => 0 the library, conf is
# further lines for postgresql.conf, init further parameters for init().
sub new_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	my $node_id = exists $params{node_id} ? $params{node_id} : 1;

	$node->init(%{ $params{init} || {} });
	$node->append_conf('postgresql.conf',
		"shared_preload_libraries = 'snowflake'")
	  unless exists $params{preload} && !$params{preload};
	$node->append_conf('postgresql.conf', "snowflake.node_id = $node_id")
	  if defined $node_id;

	# PostgreSQL::Test has every statement logged, and some of ours are many
	$node->append_conf('postgresql.conf', "log_statement = none");
	$node->append_conf('postgresql.conf', $params{conf})
	  if defined $params{conf};
	return $node;
}

# Wait until the server mints.  The keeper needs a moment to reserve time
# after a start, longer than a single mint is prepared to wait after a crash.
sub wait_for_mint
{
	my ($node, $dbname) = @_;

	$node->poll_query_until($dbname, 'SELECT snowflake_next() IS NOT NULL')
	  or die "server does not mint";
	return;
}

# Compile the clock shim, once per test; returns its path.
sub build_shim
{
	return $shim if defined $shim;

	my $source =
	  File::Spec->rel2abs(dirname(__FILE__) . '/../shim/clock_shim.c');
	my $library = PostgreSQL::Test::Utils::tempdir() . '/clock_shim.so';

	PostgreSQL::Test::Utils::system_or_bail(
		$ENV{CC} || 'cc', '-shared', '-fPIC', '-O2',
		'-Wall', '-o', $library, $source, '-ldl');
	return $shim = $library;
}

# A new clock file, which says the true time; returns its path.
sub new_clock
{
	my ($name) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$name.clock";

	open my $fh, '>:raw', $file or die "could not create \"$file\": $!";
	print $fh pack('q', 0);
	close $fh or die "could not write \"$file\": $!";
	return $file;
}

# Start the node so that it, but none of its clients, reads that clock.
# (pg_ctl restart would lose the shim: stop, and start with this again.)
sub start_with_clock
{
	my ($node, $file, %params) = @_;

	local $ENV{LD_PRELOAD} = build_shim();
	local $ENV{SNOWFLAKE_CLOCK_FILE} = $file;
	return $node->start(%params);
}

# How far the clock is from the true time, in milliseconds.
sub get_clock
{
	my ($file) = @_;

	open my $fh, '<:raw', $file or die "could not open \"$file\": $!";
	read($fh, my $bytes, 8) == 8 or die "could not read \"$file\"";
	close $fh;
	return unpack('q', $bytes) / 1_000_000;
}

# Set the clock to that many milliseconds from the true time.  The file must
# be overwritten in place, and in one write, because servers have it mapped.
sub set_clock
{
	my ($file, $ms) = @_;

	open my $fh, '+<:raw', $file or die "could not open \"$file\": $!";
	syswrite($fh, pack('q', int($ms * 1_000_000))) == 8
	  or die "could not write \"$file\": $!";
	close $fh;
	return;
}

# Step the clock by that many milliseconds, forward or back.
sub step_clock
{
	my ($file, $ms) = @_;

	set_clock($file, get_clock($file) + $ms);
	return;
}

# Run SQL that ought to fail.  Returns what psql said about the error: a hash
# of sqlstate, message, detail and hint, all empty if there was no error.
sub error_of
{
	my ($node, $dbname, $sql, %params) = @_;
	my ($ret, $stdout, $stderr) = $node->psql(
		$dbname, $sql, %params,
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	my %error = map { $_ => '' } qw(sqlstate message detail hint);

	@error{qw(sqlstate message)} = ($1, $2)
	  if $stderr =~ /(?:ERROR|FATAL):  ([0-9A-Z]{5}): (.*)/;
	$error{detail} = $1 if $stderr =~ /^DETAIL:  (.*)/m;
	$error{hint} = $1 if $stderr =~ /^HINT:  (.*)/m;
	$error{stdout} = $stdout;
	return \%error;
}

1;
