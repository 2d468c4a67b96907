# sqlsmith against a server with the extension: random queries over tables with
# snowflakes in every role, as an ordinary user who owns these tables, and then
# as one who may also do what is restricted.  A crash, an internal error that
# comes from the extension, a keeper that is gone or a server that no longer
# mints is a failure.
#
#   bash test/run.sh sqlsmith                          5000 queries
#   bash test/run.sh sqlsmith --queries 20000 --seed 7

use strict;
use warnings;

use Getopt::Long;
use PostgreSQL::Test::Utils;
use SnowflakeTest;
use Test::More;

my ($queries, $seed) = (5000, 1);
GetOptions('queries=i' => \$queries, 'seed=i' => \$seed) or die "usage";

# Locations of errors tell ours from those of the server.
my $node = new_node(
	'main',
	conf => q{
log_error_verbosity = verbose
log_line_prefix = '%e '
max_connections = 20
deadlock_timeout = 200ms
});
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE ROLE smith LOGIN;
	CREATE DATABASE smith OWNER smith;
});
$node->safe_psql('smith', 'CREATE EXTENSION snowflake');
$node->safe_psql('smith', slurp_file("test/fuzz/sqlsmith.sql"));

sub keeper
{
	return $node->safe_psql('smith', 'SELECT keeper_pid FROM snowflake_status');
}

# Random queries, from a role without a right to break the server in the ways that a
# superuser may.  One query's limit is a second, which some of them lift.
sub smith
{
	my ($who, $count, $options) = @_;
	my ($out, $target) = ('', $node->connstr('smith') . " user=smith options='$options'");
	my $ok = IPC::Run::run(
		[
			'timeout', 600 + $count,
			'sqlsmith', "--target=$target",
			'--exclude-catalog', "--seed=$seed",
			"--max-queries=$count", '--verbose'
		],
		'>',
		\$out,
		'2>&1');

	ok($ok, "sqlsmith has run to its end ($who)") or diag substr $out, -1000;
	return;
}

my $narrow = '-c search_path=narrow,pg_catalog,public';
my $first = $node->safe_psql('smith', 'SELECT snowflake_next()');
my $keeper = keeper();
smith('ordinary user', int($queries / 2), '');
smith('ordinary user, mostly our functions', int(($queries + 1) / 2), $narrow);
is(keeper(), $keeper, 'the keeper has not been restarted');
is($node->safe_psql('smith', "SELECT gate FROM snowflake_status"), 'open', 'the gate is open');
is($node->safe_psql('smith', "SELECT snowflake_next() > $first"),
	't', 'minting goes on, above the first');

# What is restricted can, for one, take the generator far ahead of the clock, so
# nothing is expected of minting after this.
$node->safe_psql('smith', 'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO smith');
smith('with every function', int($queries / 4), $narrow);
is(keeper(), $keeper, 'the keeper has not been restarted by that');

my @log = split /\n/, slurp_file($node->logfile);
is( join(
		"\n",
		grep {
			/PANIC:|TRAP:|terminated by signal|terminating any other active|exited with exit code [^1]/
		} @log),
	'',
	'no crash');

# Internal errors, each with the place in the source that raised it.
my $ours = join '|', map { quotemeta s,.*/,,r } glob("src/*.c src/*/*.c");
my ($error, @internal) = ('');
foreach (@log)
{
	$error = $_ if /^XX\d+ (ERROR|FATAL)/;
	push @internal, "$error ($1)" if /^XX\d+ LOCATION: *(.*)/;
}
note $_ foreach @internal;
is(join("\n", grep { /, ($ours):/ } @internal), '', 'no internal error raised by the extension');

done_testing();
