# What doc/fleet.md says works: its statements run, at the coordinator and then on
# a server, with the role and the rights that it gives.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeFleet;
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $page = slurp_file("$FindBin::RealBin/../../doc/fleet.md");
my $script = slurp_file("$FindBin::RealBin/../../sql/snowflake_fleet.sql");
my $coordinator = new_coordinator();
my $server = start_member(
	'server',
	coordinator_url($coordinator) =~ s{//}{//fleet@}r,
	conf => "snowflake.max_wait = '1min'\n");
my %run = (coordinator => 0, server => 0);

while ($page =~ /^(<!-- at the coordinator -->\n)?```sql\n(.*?)^```$/msg)
{
	my ($where, $sql) = (defined $1 ? 'coordinator' : 'server', $2);
	my $node = $where eq 'server' ? $server : $coordinator;
	my ($status, undef, $error) = $node->psql('postgres', $sql);

	is("$status $error", '0 ', "runs at the $where: " . ($sql =~ /^(.*)$/m)[0]);
	$run{$where}++;
}
cmp_ok($run{$_}, '>', 0, "statements at the $_") foreach sort keys %run;
wait_for_status($server, q{coordinator = 'reachable'});
wait_for_mint($server);
like(status($server, 'node, coordinator'), qr/^\d+\|reachable$/, 'the server mints with a lease');

# The page and the script that is installed say the same.
like($page, qr/^\Q$_\E$/m, "the page has: $_") foreach grep { /^CREATE/ } split /\n/, $script;
like($script, qr/\Q$_\E/, "the script has: $_") foreach $page =~ /^(GRANT .*)$/mg;

done_testing();
