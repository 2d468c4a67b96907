# The libraries export only the symbols that the server looks up in them, so that these cannot clash
# with each other's or another library's.  The Makefile installs the extension in a directory of its
# own, and from PostgreSQL 18 on, as an image volume mounts it, extension_control_path and
# dynamic_library_path find it there, with its modules.
# versions: all

use File::Basename;
use SnowflakeTest;

plan skip_all => 'nm is not installed' if system('nm --version >/dev/null 2>&1') != 0;

my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
chomp(my ($sharedir, $pkglibdir) = map { scalar `$pg_config $_` } '--sharedir', '--pkglibdir');
my $node = minting_node('main');

# What SQL calls, by its name in the catalog; and what the server itself does: the
# keeper's entry is the name in the only worker that is registered.
my %entries = (snowflake => [qw(snowflake_keeper_main snowflake_lessee_main)]);
$entries{snowflake_public} = [] if has_public();
foreach my $library (sort keys %entries)
{
	query($node, "CREATE EXTENSION IF NOT EXISTS $library");
	my @functions = split /\n/,
	  query($node, "SELECT DISTINCT prosrc FROM pg_proc WHERE probin = '\$libdir/$library'");
	cmp_ok(scalar @functions, '>', 0, "$library: the scripts have functions in C");

	my ($listing, $errors) =
	  run_command([ 'nm', '-D', '--defined-only', "$pkglibdir/$library.so" ]);
	is($errors, '', "$library: nm reads the library");

	# the linker's own, which old ones export
	my @exported =
	  grep { !/^(?:_init|_fini|_edata|_end|__bss_start)$/ }
	  map { (split)[-1] } split /\n/, $listing;
	is_deeply(
		[ sort @exported ],
		[
			sort @functions,
			(map { "pg_finfo_$_" } @functions),
			qw(Pg_magic_func _PG_init),
			@{ $entries{$library} }
		],
		"$library: exported are the functions of the scripts and the entries of the server");

	# nor does it take anything from the other library, which may be loaded later or not at all
	my ($needed) = run_command([ 'nm', '-D', '--undefined-only', "$pkglibdir/$library.so" ]);
	unlike($needed, qr/snowflake/, "$library: it needs no other library of ours");
}
my ($loads) = run_command([ 'ldd', "$pkglibdir/snowflake.so" ]);
unlike($loads, qr/libcrypto|libssl|libpq|libcurl/, 'what only modules need is not loaded');

# The JIT compiler may take a function's body out of the library; what that
# refers to is not to be found by its name any more.
SKIP:
{
	skip 'no JIT compilation here', 1
	  if query($node, 'SELECT pg_jit_available()') ne 't';

	is( query(
			$node, q{
			SET jit_above_cost = 0;
			SET jit_inline_above_cost = 0;
			SET jit_optimize_above_cost = 0;
			CREATE TABLE t AS SELECT snowflake_next() AS id FROM generate_series(1, 10);
			SELECT count(*) FROM t
			WHERE snowflake_node(id) = 1 AND id -> 'worker' = 1
			AND @@ id < now() + interval '1 hour'
			AND snowflake_lower_bound(@@ id, 'twitter') <= id
			AND snowflake_from_text(snowflake_to_text(id, 'hex'), 'hex') = id}),
		'10',
		'functions work when they are compiled into a query');
}

# The files of the extension in a directory
sub files
{
	return join ' ', sort map { basename($_) } glob "$_[0]/snowflake*";
}

# All libraries of the extension that a session has loaded after a statement, whatever comes of that
sub loaded_by
{
	my ($sql) = @_;

	$node->psql(
		'postgres',
		"\\o /dev/null\n$sql;\n\\o\n"
		  . q{SELECT DISTINCT path FROM regexp_matches(pg_read_file('/proc/self/maps'), '/[^\n]*/snowflake\w*[.]so', 'g') m, unnest(m) path ORDER BY 1;},
		on_error_stop => 0,
		stdout => \my $paths);
	return join ' ', split /\n/, $paths;
}

# What was built is installed in a directory of its own, as completely as what the server itself has.
my $dir = PostgreSQL::Test::Utils::tempdir();
command_ok(
	[
		'make', '-s',
		'--no-print-directory', '-C',
		'.', "PG_CONFIG=$pg_config",
		'COPT=-Werror', "datadir=$dir/share",
		"pkglibdir=$dir/lib", 'with_llvm=no',
		'install'
	],
	'make install in another directory');
is(files("$dir/share/extension"), files("$sharedir/extension"), 'the scripts are there');
is(files("$dir/lib"), files($pkglibdir), 'and so are the libraries');

SKIP:
{
	skip 'extension_control_path came with PostgreSQL 18', 1 if $node->pg_version < 18;

	query($node, 'DROP EXTENSION IF EXISTS snowflake_public; DROP EXTENSION snowflake CASCADE');
	$node->append_conf('postgresql.conf',
		"extension_control_path = '$dir/share:\$system'\ndynamic_library_path = '$dir/lib:\$libdir'"
	);
	$node->restart;
	is( query(
			$node,
			q{CREATE EXTENSION snowflake;
			CREATE TABLE found (id snowflake PRIMARY KEY DEFAULT snowflake_next());
			INSERT INTO found DEFAULT VALUES;
			SELECT count(*) FROM found WHERE snowflake_timestamp(id) > now() - interval '1 hour'}),
		'1',
		'the extension works');
	is(loaded_by('SELECT snowflake_next()'),
		"$dir/lib/snowflake.so", 'the library is that of the directory');

	foreach my $module (files($pkglibdir) =~ /snowflake_(\w+)\.so/g)
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
		is( loaded_by($sql),
			"$dir/lib/snowflake.so $dir/lib/snowflake_$module.so",
			"and so is the module $module");
	}
}

done_testing();
