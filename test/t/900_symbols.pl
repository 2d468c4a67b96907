# The libraries export only the symbols that the server looks up in them, so that
# these cannot clash with each other's or another library's.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'nm is not installed' if system('nm --version >/dev/null 2>&1') != 0;

my $node = minting_node('main');

# What SQL calls, by its name in the catalog; and what the server itself does: the
# keeper's entry is the name in the only worker that is registered.
my %entries = (snowflake => [qw(snowflake_keeper_main snowflake_lessee_main)]);
$entries{snowflake_public} = [] if has_public();
my ($pkglibdir) = run_command([ 'pg_config', '--pkglibdir' ]);
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

done_testing();
