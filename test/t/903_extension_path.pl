# versions: all

# The extension in a directory of its own, as an image volume mounts it: from
# PostgreSQL 18 on extension_control_path and dynamic_library_path find it there,
# its modules included.

use strict;
use warnings;

use File::Copy;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
my ($version) = `$pg_config --version` =~ /(\d+)/;

plan skip_all => 'extension_control_path came with PostgreSQL 18' if $version < 18;

chomp(my ($sharedir, $libdir) = map { scalar `$pg_config $_` } '--sharedir', '--pkglibdir');
my $dir = PostgreSQL::Test::Utils::tempdir();

mkdir "$dir/$_" or die "could not create \"$dir/$_\": $!" foreach 'extension', 'lib';
copy($_, "$dir/extension")
  or die "could not copy $_: $!"
  foreach glob("$sharedir/extension/snowflake*");
copy($_, "$dir/lib") or die "could not copy $_: $!" foreach glob("$libdir/snowflake*.so");

my $node = new_node('path', conf => <<"EOF");
extension_control_path = '$dir:\$system'
dynamic_library_path = '$dir/lib:\$libdir'
snowflake.node_source = 'postgresql:///nowhere'
EOF

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
like(
	error_of($node, 'SELECT snowflake_fleet_create()')->{message},
	qr/could not use the coordinator/,
	'the module of a coordinator is found');
my $libraries = $node->safe_psql(
	'postgres', q{
	SELECT DISTINCT path FROM regexp_matches(pg_read_file('/proc/self/maps'), '/[^\n]*/snowflake\w*[.]so', 'g') m, unnest(m) path
	ORDER BY 1});
like($libraries, qr{^\Q$dir\E/lib/snowflake\.so$}m, 'the library is that of the directory');
unlike($libraries, qr{^\Q$libdir\E}m, 'and of no other');

$node->append_conf('postgresql.conf', "snowflake.node_source = 'setting'");
$node->reload;
wait_for_mint($node);
$node->safe_psql('postgres',
	'CREATE TABLE t (id snowflake PRIMARY KEY DEFAULT snowflake_next()); INSERT INTO t DEFAULT VALUES'
);
is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE id > now() - interval \'1 hour\''),
	'1', 'and everything works');
$node->stop;

done_testing();
