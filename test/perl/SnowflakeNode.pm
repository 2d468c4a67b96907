# A node of PostgreSQL::Test that polls in one session while it waits, and starts no process for the
# pauses: on a busy machine, they would be most of a test's cost.

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

# Run a query until it returns true, and nothing else.
sub poll_query_until
{
	my ($self, $dbname, $query, $expected) = @_;

	return $self->SUPER::poll_query_until($dbname, $query, $expected)
	  if defined $expected && $expected ne 't';

	$query =~ s/;\s*$//;
	local %ENV = $self->_get_env;
	local $SIG{PIPE} = 'IGNORE';
	local $?;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	my @psql = ($self->installed_command('psql'), '-XAtq', '-d', $self->connstr($dbname));
	my $said = '';

	do
	{
		my $pid = IPC::Open3::open3(my $to_psql, my $from_psql, undef, @psql);

		foreach (1 .. $looks)
		{
			my $is_over = 0;

			$said = '';
			syswrite $to_psql, "$query;\n\\echo end\n";
			until ($is_over)
			{
				my $line = <$from_psql> // last;

				$is_over = $line eq "end\n";
				$said .= $line if !$is_over;
			}
			last if $said =~ /^t\n\z/m || !$is_over;

			# pg_sleep() would go by a clock that the test may have stopped
			Time::HiRes::sleep(0.05);
		}
		close $to_psql;
		close $from_psql;
		waitpid $pid, 0;
		return 1 if $said =~ /^t\n\z/m;
		Time::HiRes::sleep(0.05);
	} while (time < $deadline);
	Test::More::diag("waited in vain for: $query\n$said");
	return 0;
}

1;
