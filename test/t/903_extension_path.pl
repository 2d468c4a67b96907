# The extension in a directory of its own: the Makefile installs it there, and from
# PostgreSQL 18 on, as an image volume mounts it, extension_control_path and
# dynamic_library_path find it there, with its modules.
# versions: all

use strict;
use warnings;

use File::Basename;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
my ($version) = `$pg_config --version` =~ /(\d+)/;
chomp(my ($sharedir, $libdir) = map { scalar `$pg_config $_` } '--sharedir', '--pkglibdir');
my $dir = PostgreSQL::Test::Utils::tempdir();

# Install what was built, with these variables.
sub install
{
	command_ok(
		[
			'make', '-s', '--no-print-directory', '-C', "$FindBin::RealBin/../..",
			"PG_CONFIG=$pg_config", 'COPT=-Werror', @_, 'install'
		],
		"make install @_");
	return;
}

# The files of the extension there
sub files
{
	return join ' ', sort map { basename($_) } glob "$_[0]/snowflake*";
}

# All libraries of the extension that a session has loaded after a statement, whatever comes of that
sub loaded_by
{
	my ($node, $sql) = @_;

	$node->psql(
		'postgres',
		"\\o /dev/null\n$sql;\n\\o\n"
		  . q{SELECT DISTINCT path FROM regexp_matches(pg_read_file('/proc/self/maps'), '/[^\n]*/snowflake\w*[.]so', 'g') m, unnest(m) path ORDER BY 1;},
		on_error_stop => 0,
		stdout => \my $paths);
	return join ' ', split /\n/, $paths;
}

# What the server itself has is complete.
my %installed = (extension => files("$sharedir/extension"), lib => files($libdir));

install("datadir=$dir/share", "pkglibdir=$dir/lib", 'with_llvm=no');
is(files("$dir/share/extension"), $installed{extension}, 'the scripts are where they should be');
is(files("$dir/lib"), $installed{lib}, 'and so are the libraries');

SKIP:
{
	skip 'extension_control_path came with PostgreSQL 18', 1 if $version < 18;

	my $node = minting_node(
		'path',
		conf => join "\n",
		"extension_control_path = '$dir/share:\$system'",
		"dynamic_library_path = '$dir/lib:\$libdir'\n");

	is( query(
			$node,
			q{CREATE TABLE t (id snowflake PRIMARY KEY DEFAULT snowflake_next());
			INSERT INTO t DEFAULT VALUES;
			SELECT count(*) FROM t WHERE snowflake_timestamp(id) > now() - interval '1 hour'}),
		'1',
		'the extension works');
	is(loaded_by($node, 'SELECT snowflake_next()'),
		"$dir/lib/snowflake.so", 'the library is that of the directory');

	foreach my $module ($installed{lib} =~ /snowflake_(\w+)\.so/g)
	{
		my $sql = 'SELECT snowflake_fleet_create()';

		if ($module eq 'public')
		{
			$node->append_conf('postgresql.conf',
				"snowflake_public.key_file = '" . write_keys($node, 0 => '01' x 32) . "'");
			query($node, 'CREATE EXTENSION snowflake_public');
			$sql = q{SELECT snowflake_public(1, 'x')};
		}
		else
		{
			$node->append_conf('postgresql.conf',
				"snowflake.node_source = '$module://127.0.0.1:1/nowhere'");
		}
		$node->restart;
		is( loaded_by($node, $sql),
			"$dir/lib/snowflake.so $dir/lib/snowflake_$module.so",
			"and so is the module $module");
	}
	$node->stop;
}

done_testing();
