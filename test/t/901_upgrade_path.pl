# ALTER EXTENSION UPDATE: from every version that was ever released to every
# later one, and to a made-up next one, under load.  And the library supports
# the scripts of all those versions, since it is replaced before they are
# updated, and in some databases they never are.

use File::Basename;
use File::Path;
use SnowflakeTest;

# The script to the next version goes into a copy of the installation, which finds its files
# relative to its programs.  Those have to be copied, the rest can be links.
sub copy_installation
{
	my $prefix = PostgreSQL::Test::Utils::tempdir();
	my %dir =
	  map { $_ => (run_command([ 'pg_config', "--$_" ]))[0] } qw(bindir sharedir pkglibdir libdir);
	my $extension = "$prefix$dir{sharedir}/extension";

	mkpath(
		[
			"$prefix$dir{bindir}", $extension,
			map { dirname("$prefix$dir{$_}") } qw(pkglibdir libdir)
		]);
	system_or_bail('sh', '-c', qq{cp -pL "$dir{bindir}"/* "$prefix$dir{bindir}/"});
	foreach
	  my $path (glob("$dir{sharedir}/* $dir{sharedir}/extension/*"), @dir{qw(pkglibdir libdir)})
	{
		-e "$prefix$path" or symlink($path, "$prefix$path") or die "could not link $path: $!";
	}
	return (dirname("$prefix$dir{bindir}"), $extension);
}

my ($installation, $scripts) = copy_installation();
my ($version) = slurp_file("$scripts/snowflake.control") =~ /^default_version = '(.*)'$/m;
append_to_file("$scripts/snowflake--$version--next.sql", <<'END');
\echo Use "ALTER EXTENSION snowflake UPDATE" to load this file. \quit

CREATE FUNCTION snowflake_yet_another() RETURNS snowflake
	AS 'MODULE_PATHNAME', 'snowflake_next' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_yet_another() IS 'mint a snowflake in the next version';
END

my $node = new_node('main', new => { install_path => $installation });
$node->start;

# Everything in the extension, with all that a script says about it.
sub contents
{
	my ($dbname) = @_;

	return query(
		$node, q{
		SELECT pg_describe_object(d.classid, d.objid, 0),
			coalesce(obj_description(d.objid, d.classid::regclass::text::name),
				shobj_description(d.objid, d.classid::regclass::text::name)),
			extversion, prosrc, probin, provolatile, proisstrict, proparallel, proleakproof, prosupport, proacl,
			pg_get_function_sqlbody(p.oid), relacl, relkind, x.extconfig,
			(SELECT array_agg((attname, atttypid::regtype, attnotnull)::text ORDER BY attnum)
				FROM pg_attribute WHERE d.classid = 'pg_class'::regclass AND attrelid = d.objid)
		FROM pg_depend d JOIN pg_extension x ON x.oid = d.refobjid
		LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
		LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
		WHERE d.refclassid = 'pg_extension'::regclass AND x.extname = 'snowflake' AND d.deptype = 'e'
		ORDER BY pg_describe_object(d.classid, d.objid, 0) COLLATE "C"}, dbname => $dbname);
}

# That IDs can be minted, stored and decoded.
sub works
{
	my ($dbname) = @_;

	return query(
		$node, q{
		CREATE TABLE IF NOT EXISTS kept (id snowflake PRIMARY KEY DEFAULT snowflake_next());
		INSERT INTO kept SELECT FROM generate_series(1, 100);
		SELECT count(*) % 100 FROM kept
		WHERE @@ id > now() - interval '1 day' AND snowflake_node(id) = 1}, dbname => $dbname) eq '0';
}

# The keeper lives with the oldest version, and through its updates.
my @released = split /\n/, query(
	$node,
	q{SELECT version FROM pg_available_extension_versions WHERE name = 'snowflake' AND version <> 'next'
	ORDER BY string_to_array(version, '.')::integer[]});
is($released[-1], $version, 'the newest script is that of the control file');
query($node, "CREATE EXTENSION snowflake VERSION '$released[0]'");
wait_for_mint($node);

my %contents;
foreach my $installed (@released, 'next')
{
	my $dbname = "fresh_$installed" =~ tr/./_/r;

	# this looks up every function in the library
	query($node, "CREATE DATABASE $dbname");
	query($node, "CREATE EXTENSION snowflake VERSION '$installed'", dbname => $dbname);
	ok(works($dbname), "the library serves version $installed");
	$contents{$installed} = contents($dbname);
}

# every update there is, also in several steps
my @updates = map { [ split /\|/ ] } split /\n/,
  query($node,
	q{SELECT source, target FROM pg_extension_update_paths('snowflake') WHERE path IS NOT NULL});
is( join(' ', sort map { $_->[0] } grep { $_->[1] eq 'next' } @updates),
	join(' ', sort @released),
	'every version can be updated to the next');
foreach my $update (@updates)
{
	my ($source, $target) = @$update;
	my $dbname = "update_${source}_$target" =~ tr/./_/r;

	query($node, "CREATE DATABASE $dbname");
	query($node, "CREATE EXTENSION snowflake VERSION '$source'", dbname => $dbname);
	works($dbname);
	query($node, "ALTER EXTENSION snowflake UPDATE TO '$target'", dbname => $dbname);
	is(contents($dbname), $contents{$target}, "$source is updated, and has what a new $target has");
	ok(works($dbname), 'and works, with the rows from before');
}

# In the keeper's own database, while somebody mints
my $reserved = q{SELECT string_agg((node, layout)::text, ' ') FROM snowflake_keeper.reservation};
my $rows = query($node, $reserved);
my $pid = status($node, 'keeper_pid');
my $minter = start_minter($node, 20000, dbname => 'fresh_next');

wait_until('IDs are minted', sub { -s $minter->{ids} });
query($node, q{ALTER EXTENSION snowflake UPDATE TO 'next'});
my $ids = finish_minter($minter);
is(contents('postgres'), $contents{next}, 'the extension of the keeper is updated');
is($minter->{errors}, '', 'no mint failed meanwhile');
is(scalar @$ids . disorder($ids), '200000', 'and none is missing');
is(query($node, $reserved), $rows, 'the reservation is kept');
is(status($node, 'keeper_pid'), $pid, 'by the same keeper');
ok(works('postgres'), 'and the server mints');

# a user who created the extension updates it, with rights that they lack
query($node, 'CREATE ROLE owner; CREATE DATABASE theirs OWNER owner');
query(
	$node, qq{
	SET SESSION AUTHORIZATION owner;
	CREATE EXTENSION snowflake VERSION '$released[0]';
	ALTER EXTENSION snowflake UPDATE TO 'next'}, dbname => 'theirs');
ok(works('theirs'), 'who created it updates it');

done_testing();
