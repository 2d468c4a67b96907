# A node of PostgreSQL::Test that polls in one session while it waits: on a busy machine, a
# new psql for each query would be most of a test's cost.

package SnowflakeNode;

use strict;
use warnings;

use parent 'PostgreSQL::Test::Cluster';

# What these export would be methods, in place of those of the same names.
use IPC::Run ();
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
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	my @psql = ($self->installed_command('psql'), '-XAtq', '-d', $self->connstr($dbname));

	# pg_sleep() would go by a clock that the test may have stopped
	my $script = <<"END";
\\set is_true false
SELECT coalesce(bool_and(answer), false) AS is_true FROM ($query) question(answer) \\gset
\\if :is_true
\\echo true
\\quit
\\endif
\\! sleep 0.05
END
	my $input = $script x $looks;
	my ($output, $errors);

	do
	{
		IPC::Run::run(\@psql, '<', \$input, '>', \$output, '2>', \$errors);
		return 1 if $output eq "true\n";
		Time::HiRes::sleep(0.05);
	} while (time < $deadline);
	Test::More::diag("waited in vain for: $query\n$errors");
	return 0;
}

1;
