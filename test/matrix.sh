#!/bin/bash
# Build and test with another version of PostgreSQL: without warnings, then the
# regression, isolation and TAP tests.  A version that is
# installed here is tested here, any other in a chroot of the suite of Debian that
# carries it.  The chroots take a minute and 1.5 GB each to make, and are kept: in
# /var/cache/snowflake-matrix, or in $SNOWFLAKE_MATRIX_CACHE.  Removing one of them is
# always safe, and how to get newer packages.
#
#   bash test/run.sh matrix 18-s390x      on another architecture, which QEMU runs if need be
#
# Needs root, or sudo without a password.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$root/test/debian.sh"
: "${SNOWFLAKE_WORK:?run.sh runs this}"
kind=$1
version=${2%%-*}
architecture=${2#"$version"}
architecture=${architecture#-}
tests=(regress isolation)
if [ -z "$architecture" ] && [ "$kind" = versions ]; then
	mapfile -t -O 2 tests < <(echo tap; cd "$root/test/t" && grep -lx '# versions: all' -- *.pl)
elif [ -z "$architecture" ]; then
	tests+=(build tap)
fi
if [[ $kind = matrix && -z $architecture && ${tools_of[$version]:-} = *partman* ]]; then
	# a tool of another generation than the installed version has, and a newer planner
	tests+=(tools partman times --queries 20000)
fi

# as one program among others
export HARNESS_TAP=1 SNOWFLAKE_JOBS=2
if [ -z "$architecture" ] && there=$(installed_pg_config "$version"); then
	exec env PG_CONFIG="$there" bash "$root/test/run.sh" "${tests[@]}"
fi
become_root "$@"
begin "$@"
if [ -n "$architecture" ]; then
	install_packages arch-test qemu-user-static binfmt-support >&2
	# a service does that, where services are started
	arch-test "$architecture" >/dev/null || update-binfmts --enable "qemu-$architecture" >&2 || true
fi
open_chroot "$2" "${suites_of[$version]:-}" "$version" "" "$architecture" >"$work/why" ||
	cannot_have "PostgreSQL $2 could not be set up: $(<"$work/why")"
in_chroot "$2" bash /src/test/run.sh "${tests[@]}"
