# A node of PostgreSQL::Test that keeps a psql for its questions, and starts no process for the pauses
# between them, nor for a signal: on a busy machine, processes are most of a test's cost.

package SnowflakeNode;

use strict;
use warnings;

use parent 'PostgreSQL::Test::Cluster';

# What these export would be methods, in place of those of the same names.
use IPC::Open3 ();
use PostgreSQL::Test::Utils ();
use Test::More ();
use Time::HiRes ();

# How often a session looks before there is a new one, which a setting may need.
my $looks = 40;

# What a query returns, in a session that is kept; undef if it fails, or nobody can be asked.
sub look
{
	my ($self, $query, $dbname) = @_;
	my $reader = $self->_reader($dbname // 'postgres');
	my $answer = '';

	local $SIG{PIPE} = 'IGNORE';
	print { $reader->{in} } "$query\n;\n\\echo done :ERROR\n";
	while (defined(my $line = readline $reader->{out}))
	{
		return $answer =~ s/\n\z//r if $line eq "done false\n";
		return if $line eq "done true\n";
		$answer .= $line;
	}
	$self->end_readers;
	return;
}

# The psql that asks in a database.
sub _reader
{
	my ($self, $dbname) = @_;

	return $self->{readers}{$dbname} //= do
	{
		my %reader;

		local %ENV = $self->_get_env;
		open my $nowhere, '>', '/dev/null' or die "could not open \"/dev/null\": $!";
		$reader{pid} = IPC::Open3::open3(
			$reader{in}, $reader{out},
			'>&' . fileno $nowhere,
			$self->installed_command('psql'),
			'-XAtq', '-d', $self->connstr($dbname));
		$reader{in}->autoflush(1);
		\%reader;
	};
}

sub end_readers
{
	my ($self) = @_;
	my $readers = delete $self->{readers} // {};

	local $?;
	local $SIG{PIPE} = 'IGNORE';
	foreach my $reader (values %$readers)
	{
		# it is told, since a process that the test has forked keeps its input open
		print { $reader->{in} } "\\quit\n";
		close $reader->{$_} foreach 'in', 'out';
		waitpid $reader->{pid}, 0;
	}
	return;
}

# Look until a query returns true, and nothing else.
sub poll_query_until
{
	my ($self, $dbname, $query, $expected) = @_;

	return $self->SUPER::poll_query_until($dbname, $query, $expected)
	  if defined $expected && $expected ne 't';

	$query =~ s/;\s*$//;
	my $is_true = "SELECT coalesce(bool_and(answer), false) FROM ($query) question(answer)";
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	my $answer;

	for (my $n = 1; time < $deadline; $n++)
	{
		$answer = $self->look($is_true, $dbname);

		# a session in another database would keep that from being dropped
		$self->end_readers if $n % $looks == 0 || $dbname ne 'postgres' && ($answer // '') eq 't';
		return 1 if ($answer // '') eq 't';
		Time::HiRes::sleep(0.05);
	}
	Test::More::diag("waited in vain for: $query, which says " . ($answer // 'nothing'));
	return 0;
}

sub reload
{
	my ($self) = @_;

	kill 'HUP', $self->{_pid} or die 'there is no server ' . $self->name;
	return;
}

# A server is not kept from its stop by those sessions.
sub stop
{
	my ($self, @params) = @_;

	$self->end_readers;
	return $self->SUPER::stop(@params);
}

1;
