# A node of PostgreSQL::Test that keeps a psql for its questions, and starts no process for the pauses
# between them, or for a signal: on a busy machine, processes are most of a test's cost.

package SnowflakeNode;

use strict;
use warnings;

use parent 'PostgreSQL::Test::Cluster';

# What these export would be methods, in place of those of the same names.
use IO::Select ();
use IPC::Open3 ();
use PostgreSQL::Test::Utils ();
use Symbol ();
use Test::More ();
use Time::HiRes ();

# How often a session looks before there is a new one, which a setting may need.
my $looks = 40;

# What a query returns, in a session that is kept; undef if it fails, or nobody can be asked.
sub look
{
	my ($self, $query, $dbname) = @_;
	my $said = $self->_tell($query, $dbname // 'postgres', '');

	return ($said->{failed} // '') eq 'false' ? $said->{out} =~ s/\n\z//r : undef;
}

# Run SQL in a session that is kept, and forgets what it was told.  Returns what psql says: the
# results, and what is not a result.  Nothing, and nothing is run, if nobody can be asked.
sub ask
{
	my ($self, $sql, $dbname, $user) = @_;
	my @of = ($dbname // 'postgres', $user // '');

	# the session from before may have ended
	my $is_there = $self->_tell('SELECT 1', @of)->{failed}
	  // $self->_tell('SELECT 1', @of)->{failed};
	return if !defined $is_there;

	my $said = $self->_tell($sql =~ s/[;\s]+\z//r, @of);
	my $end = $sql =~ /\bBEGIN\b/i ? 'ROLLBACK;' : '';
	$self->_tell("$end\nDISCARD ALL;\n\\set VERBOSITY default\nSELECT 1", @of)
	  if defined $said->{failed};
	return ($said->{out} =~ s/\n\z//r, $said->{err});
}

# Have the psql of that database and role run SQL.  Returns what it prints, out and err, and whether
# the last statement failed: undef if it has ended instead.
sub _tell
{
	my ($self, $sql, @of) = @_;
	my $reader = $self->_reader(@of);
	my $select = IO::Select->new(@$reader{qw(out err)});
	my %said = (out => '', err => '');
	my $read = sub {
		foreach my $handle (@_)
		{
			my $name = $handle == $reader->{out} ? 'out' : 'err';

			sysread $handle, $said{$name}, 65_536, length $said{$name}
			  or $select->remove($handle);
		}
		return scalar @_;
	};

	local $SIG{PIPE} = 'IGNORE';
	print { $reader->{in} } "$sql\n;\n\\echo done :ERROR\n";
	while ($select->count)
	{
		# a signal ends this with nothing to read, such as that a child has ended
		$read->($select->can_read);
		next if $said{out} !~ s/^done (true|false)\n\z//m;
		$said{failed} = $1;

		# what was said before that is there already
		1 while $read->($select->can_read(0));
		return \%said;
	}
	$self->end_readers;
	return \%said;
}

# The psql that asks in a database, as a role if it is named.
sub _reader
{
	my ($self, $dbname, $user) = @_;

	return $self->{readers}{"$dbname $user"} //= do
	{
		my %reader = (err => Symbol::gensym());

		local %ENV = $self->_get_env;
		$reader{pid} = IPC::Open3::open3(
			@reader{qw(in out err)}, $self->installed_command('psql'),
			'-XAtq', '-d',
			$self->connstr($dbname),
			$user eq '' ? () : ('-U', $user));
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
		close $reader->{$_} foreach 'in', 'out', 'err';
		waitpid $reader->{pid}, 0;
	}
	return;
}

# Look until a query returns true, and nothing else.
sub poll_query_until
{
	my ($self, $dbname, $query) = @_;

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

# New sessions have the configuration from now on, others when they come to it.
sub reload
{
	my ($self) = @_;

	$self->end_readers;
	kill 'HUP', $self->{_pid} or die 'there is no server ' . $self->name;
	return;
}

# A server is not kept from its stop by our sessions.
sub stop
{
	my ($self, @params) = @_;

	$self->end_readers;
	return $self->SUPER::stop(@params);
}

sub restart
{
	my ($self) = @_;

	$self->stop;
	return $self->start;
}

1;
