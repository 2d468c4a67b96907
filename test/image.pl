# Builds the images of packaging/ with buildah, on a Debian with PostgreSQL 18 in place of
# their base images, which come from registries.  The server's image is started, and mints; the
# extension's is mounted beside a server as CloudNativePG does it.  Needs root and a mirror.
#
#   bash test/run.sh image

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/perl";
use SnowflakeProgram;
use Test::More;

plan skip_all => 'this makes systems in directories, and needs root for that' if $> != 0;
my $work = "$ENV{SNOWFLAKE_WORK}/image";
mkdir $work or die "could not create \"$work\": $!";

# What the official image has in its place, as far as Containerfile relies on it: a new server runs
# the scripts of a directory in the database POSTGRES_DB, and arguments are those of postgres.
open my $entrypoint, '>', "$work/docker-entrypoint.sh" or die $!;
print $entrypoint <<'END';
#!/bin/bash
set -e
runuser -u postgres -- initdb -A trust -D /var/lib/postgresql/image >/dev/null
runuser -u postgres -- pg_ctl -D /var/lib/postgresql/image -o "-k /tmp -c listen_addresses='' $*" -l /var/lib/postgresql/log -w start >/dev/null
createdb -U postgres "$POSTGRES_DB"
for script in /docker-entrypoint-initdb.d/*.sql; do
	runuser -u postgres -- psql -q -v ON_ERROR_STOP=1 -d "$POSTGRES_DB" -f "$script"
done
END
close $entrypoint;

# A script with buildah, whose images lie in the directory of this test and are gone with it
sub with_buildah
{
	my ($script) = @_;

	return with_lib(
		qq{work='$work'} . q{
	export BUILDAH_ISOLATION=chroot
	buildah()
	{
		command buildah --root "$work/root" --runroot "$work/run" "$@"
	}
	build()
	{
		buildah build --quiet --pull-never --build-arg BASE=localhost/base -t "$2" -f "$1" "$work/tree"
	}
	} . $script);
}

program_ok(
	'an image with a server in place of the official one' => with_buildah(
		q{
	install_packages buildah
	open_chroot 18 "${suites_of[18]}" 18
	mkdir "$work/tree"
	container=$(buildah from scratch)
	tar -C "$cache/18" -cf "$work/base.tar" --exclude=./src --exclude='./tmp/*' --exclude='*/snowflake*' .
	buildah add --quiet "$container" "$work/base.tar" /
	rm "$work/base.tar"
	buildah copy --quiet --chmod 755 "$container" "$work/docker-entrypoint.sh" /usr/local/bin/
	buildah config --env PGHOST=/tmp --env PATH=/usr/lib/postgresql/18/bin:/usr/local/bin:/usr/bin:/usr/sbin:/bin "$container"
	buildah commit --quiet "$container" localhost/base
	buildah rm "$container"
	pack_tree --exclude=node_modules | tar -C "$work/tree" -xf -
	echo "of another server" >"$work/tree/src/snowflake.o"}
	)) or exit done_testing();
program_ok(
	'the image of a server is built' => with_buildah('build packaging/image/Containerfile server'));
my $first = output_of(
	with_buildah(
		q{
	container=$(buildah from --pull-never localhost/server)
	buildah run --env POSTGRES_DB=orders "$container" -- bash -c '
		docker-entrypoint.sh -c snowflake.node_id=1
		createdb -U postgres later
		for database in orders later postgres; do
			psql -U postgres -d "$database" -Atc "SELECT snowflake_next() > 0"
		done
		runuser -u postgres -- pg_ctl -D /var/lib/postgresql/image -m fast stop >/dev/null'
	buildah rm "$container" >/dev/null}));
is($first, "t\nt\nt\n", 'its first IDs, in each database');
program_ok('the image of the extension is built' =>
	  with_buildah('build packaging/cloudnative-pg/Containerfile extension'));
my $mounted = output_of(
	with_buildah(
		q{
	extension=$(buildah from --pull-never localhost/extension)
	container=$(buildah from --pull-never localhost/base)
	buildah run --volume "$(buildah mount "$extension"):/extensions/snowflake:ro" "$container" -- bash -c '
		set -e
		cd /extensions/snowflake/lib
		echo *
		runuser -u postgres -- initdb -A trust -D /var/lib/postgresql/image >/dev/null
		cat >>/var/lib/postgresql/image/postgresql.conf <<-"CONF"
			listen_addresses = '\'\''
			unix_socket_directories = '\''/tmp'\''
			extension_control_path = '\''$system:/extensions/snowflake/share'\''
			dynamic_library_path = '\''$libdir:/extensions/snowflake/lib'\''
			shared_preload_libraries = snowflake
			snowflake.node_id = 1
		CONF
		runuser -u postgres -- pg_ctl -D /var/lib/postgresql/image -l /var/lib/postgresql/log -w start >/dev/null || cat /var/lib/postgresql/log
		psql -U postgres -d postgres -qAtc "CREATE EXTENSION snowflake" -c "SELECT snowflake_next() > 0"
		runuser -u postgres -- pg_ctl -D /var/lib/postgresql/image -m fast stop >/dev/null'
	buildah umount "$extension" >/dev/null
	buildah rm "$container" "$extension" >/dev/null}));
is( $mounted,
	"snowflake.so snowflake_postgresql.so snowflake_public.so\nt\n",
	'it has these libraries, and a server to which it is mounted mints');
program_ok('nothing stays mounted' => with_buildah('buildah umount --all'));
done_testing();
