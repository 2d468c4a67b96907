#!/bin/bash
# Test what is given to others: the archives of "make dist", META.json, and the
# Debian packages, which are built, checked, installed, tested and removed in a
# Debian system of their own, in a directory.  Takes a few minutes, needs root.
#
#   bash test/package.sh                  for this system's release of Debian
#   bash test/package.sh trixie           for another one
#   bash test/package.sh --chroot DIR ... keep that system in DIR, and use it
#                                         if it is there already

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$root/test/debian.sh"

suite=$(. /etc/os-release && say "${VERSION_CODENAME:?}")
system=
while [ $# -gt 0 ]; do
	case $1 in
		--chroot) system=$(realpath "$2"); shift ;;
		*) suite=$1 ;;
	esac
	shift
done
begin package "$suite" ${system:+--chroot "$system"}
[ "$(id -u)" = 0 ] || skip_all "this makes a system in a directory, and needs root for that"
: "${system:=$work/system}"

# A check after which there is nothing more to check if it fails
needed()
{
	check "$@"
	[ "$status" = 0 ] || exit 1
}

# The archives, of the last commit

make_dist()
{
	make -f "$SNOWFLAKE_CHECKOUT/Makefile" VPATH="$SNOWFLAKE_CHECKOUT" "PG_CONFIG=$pg_config" dist
}

# Both archives hold the same files, in one directory, without what only
# developers need.
archives_agree()
{
	mkdir zip tar
	python3 -m zipfile -e "$dist.zip" zip
	tar -C tar -xzf "$dist.tar.gz"
	diff -r zip tar
	[ "$(ls -A tar)" = "$dist" ]
	[ -z "$(find "tar/$dist" -name '.*' -not -name "$dist")" ]
	[ -f "tar/$dist/META.json" ]
}

# In the place of the tree
archive_builds()
{
	rm tree
	cp -r "tar/$dist" tree
	chown -R "$(test_user)": tree
	build_extension
	tree_make "DESTDIR=$work/tmp/root" install
	[ -f "$work/tmp/root/$("$pg_config" --pkglibdir)/snowflake.so" ]
}

dist=snowflake-$(sed -n 's/^\t"version": "\(.*\)",/\1/p' "$root/META.json")
needed "make dist" make_dist
needed "$dist.zip and $dist.tar.gz are alike" archives_agree
check "what is in them builds and installs" archive_builds
check "META.json is valid, and the version the same everywhere" \
	perl "$root/test/t/055_release.pl"

# A system

# Run a script in it
inside()
{
	in_system "$system" DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 bash -euc "cd '/build/$dist'; $1"
}

[ -e "$system/usr/bin/pg_buildext" ] || needed "a system to build in, Debian $suite" make_system "$system" "$suite" \
	"autopkgtest build-essential debhelper lintian postgresql-server-dev-all"
rm -rf "$system/build"
mkdir "$system/build"
cp -r "tar/$dist" "$system/build/"
needed "what is needed to build" inside '
	getent passwd builder || useradd builder
	chown -R builder /build
	apt-get update -qq
	apt-get build-dep -qq -y .'
needed "packages are built, and pass their tests" inside '
	runuser -u builder -- dpkg-buildpackage -us -uc -b
	for version in $(pg_buildext supported-versions); do
		ls ../postgresql-$version-snowflake_*.deb
	done'
# it is not meant for upload to Debian, so there is no bug to be closed
check "lintian has no errors or warnings" inside '
	runuser -u builder -- lintian --fail-on error,warning \
		--suppress-tags initial-upload-closes-no-bugs ../*.changes'
check "packages install" inside 'apt-get install -qq -y $(ls ../postgresql-*-snowflake_*.deb)'
check "that of the extension has the module for fleets on PostgreSQL alone" inside '
	ls /usr/lib/postgresql/*/lib/snowflake_postgresql.so
	[ -z "$(ls /usr/lib/postgresql/*/lib/snowflake_{consul,etcd,zookeeper}.so 2>/dev/null)" ]
	! dpkg-query -W -f "\${Depends}\n" "postgresql-*-snowflake" | grep -E "curl|zookeeper"'
check "the others install" inside 'apt-get install -qq -y $(ls ../postgresql-*-snowflake-*.deb | grep -v dbgsym)'
check "each module finds the library that it takes" inside '
	cd /usr/lib/postgresql/*/lib
	ldd snowflake_postgresql.so | grep "libpq.*=> /"
	ldd snowflake_consul.so | grep "libcurl.*=> /"
	ldd snowflake_etcd.so | grep "libcurl.*=> /"
	ldd snowflake_zookeeper.so | grep "libzookeeper_st.*=> /"
	! ldd snowflake.so | grep -E "libpq|libcurl|libzookeeper"'
check "documents are installed as their links say" inside '
	for package in $(dpkg-query -W -f "\${Package}\n" "postgresql-*-snowflake"); do
		cd /usr/share/doc/$package
		grep -oh "](\(doc\|monitoring\|[.][.]/monitoring\)/[^)#]*" README.md doc/*.md |
			sed "s,^](\([.][.]/\)\?,," | sort -u | xargs ls
	done'
check "installed packages pass their tests" inside 'autopkgtest --no-built-binaries . -- null'
check "packages are removed, and leave nothing behind" inside '
	apt-get purge -qq -y "postgresql-*-snowflake" "postgresql-*-snowflake-*"
	[ -z "$(find /usr -name "snowflake*" -o -name "*-snowflake")" ]'
cp "$dist.zip" "$system/build/"
check "PGXN's client installs $dist.zip" inside '
	apt-get install -qq -y pgxnclient
	pgxn install --pg_config="$(ls /usr/lib/postgresql/*/bin/pg_config | tail -n 1)" ../*.zip
	pgxn uninstall --yes ../*.zip'
