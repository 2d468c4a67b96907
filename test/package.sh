#!/bin/bash
# Test what is given to others: the archives of "make dist", META.json, and the
# Debian packages, which are built, checked, installed, tested and removed in a
# Debian system of their own, in a directory.  Takes a few minutes, needs root.
# The last line of the output is "N passed, N failed".
#
#   bash test/package.sh                  for this system's release of Debian
#   bash test/package.sh trixie           for another one
#   bash test/package.sh --chroot DIR ... keep that system in DIR, and use it
#                                         if it is there already

set -euo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

suite=
chroot=
while [ $# -gt 0 ]; do
	case $1 in
		--chroot)
			chroot=$2
			shift 2
			;;
		-*)
			die "usage: test/package.sh [--chroot DIR] [RELEASE]"
			;;
		*)
			suite=$1
			shift
			;;
	esac
done
[ "$(id -u)" = 0 ] || die "this makes a system in a directory, and needs root for that"

passed=0
failed=0
keep=$chroot

finish()
{
	trap - EXIT
	[ -n "$keep" ] || [ -z "$chroot" ] || rm -rf "$chroot"
	cleanup || true
	[ $((passed + failed)) -gt 0 ] || failed=1
	say "$passed passed, $failed failed"
	[ "$failed" = 0 ] || exit 1
	exit 0
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Run a check, which is one result.  $1: what is true if it succeeds.  While
# "needed" is set, there is nothing more to check after one that failed.
needed=
check()
{
	local what=$1 status=0

	shift
	# in a process of its own, where the first error ends it
	"$@" >"$work/check.log" 2>&1 &
	wait $! || status=$?
	if [ "$status" = 0 ]; then
		passed=$((passed + 1))
		printf '[%4d s] ok: %s\n' "$SECONDS" "$what"
	else
		failed=$((failed + 1))
		printf '[%4d s] not ok: %s\n' "$SECONDS" "$what"
		tail -n 60 "$work/check.log"
		[ -z "$needed" ] || exit 1
	fi
}

install_missing
make_workspace

# The archives, of the last commit

make_dist()
{
	make -f "$root/Makefile" VPATH="$root" "PG_CONFIG=$pg_config" dist
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
	local make_args=("DESTDIR=$work/tmp/root" install)

	rm -rf tree
	cp -r "tar/$dist" tree
	chown -R "$(test_user)": tree
	build_extension
	tree_make as_user
	[ -f "$work/tmp/root/$("$pg_config" --pkglibdir)/snowflake.so" ]
}

dist=snowflake-$(sed -n 's/^\t"version": "\(.*\)",/\1/p' "$root/META.json")
needed=yes
check "make dist" make_dist
check "$dist.zip and $dist.tar.gz are alike" archives_agree
needed=
check "what is in them builds and installs" archive_builds
check "META.json is valid, and the version the same everywhere" \
	perl "$root/test/t/055_release.pl"

# A system

make_system()
{
	local mirror

	[ ! -e "$chroot/usr/bin/pg_buildext" ] || return 0
	if ! command -v mmdebstrap >/dev/null; then
		apt_update_once
		apt-get install -qq -y --no-install-recommends mmdebstrap
	fi
	# from where this system has its packages
	mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
		sed -n 's/^URIs: *//p; s/^deb \(\[.*\] \)\?\(http[^ ]*\).*/\2/p' | grep '/debian/\?$' | head -n 1) || true
	mmdebstrap --variant=apt \
		--include=autopkgtest,build-essential,debhelper,lintian,postgresql-server-dev-all \
		"$suite" "$chroot" ${mirror:+"deb $mirror $suite main"} </dev/null
}

# Run a script in it.  When that ends, so does whatever it has started.
inside()
{
	unshare --mount --pid --fork --kill-child --mount-proc="$chroot/proc" \
		env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
		chroot "$chroot" bash -euc "cd '/build/$dist'; $1"
}

: "${suite:=$(. /etc/os-release && say "${VERSION_CODENAME:?}")}"
: "${chroot:=$(mktemp -d /var/tmp/snowflake-system.XXXXXX)}"
say "Debian $suite"
needed=yes
check "a system to build in" make_system
rm -rf "$chroot/build"
mkdir "$chroot/build"
cp -r "tar/$dist" "$chroot/build/"
check "what is needed to build" inside '
	getent passwd builder || useradd builder
	chown -R builder /build
	apt-get update -qq
	apt-get build-dep -qq -y .'
check "packages are built, and pass their tests" inside '
	runuser -u builder -- dpkg-buildpackage -us -uc -b
	for version in $(pg_buildext supported-versions); do
		ls ../postgresql-$version-snowflake_*.deb
	done'
needed=
# it is not meant for upload to Debian, so there is no bug to be closed
check "lintian has no errors or warnings" inside '
	runuser -u builder -- lintian --fail-on error,warning \
		--suppress-tags initial-upload-closes-no-bugs ../*.changes'
check "packages install" inside 'apt-get install -qq -y $(ls ../postgresql-*-snowflake_*.deb)'
check "that of the extension has the module for fleets on PostgreSQL alone" inside '
	ls /usr/lib/postgresql/*/lib/snowflake_postgresql.so
	! ls /usr/lib/postgresql/*/lib/snowflake_{consul,etcd,zookeeper}.so
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
cp "$dist.zip" "$chroot/build/"
check "PGXN's client installs $dist.zip" inside '
	apt-get install -qq -y pgxnclient
	pgxn install --pg_config="$(ls /usr/lib/postgresql/*/bin/pg_config | tail -n 1)" ../*.zip
	pgxn uninstall --yes ../*.zip'
