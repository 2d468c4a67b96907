#!/bin/bash
# Run the tests on a PostgreSQL that is built from source for them: with
# assertions and injection points, under the sanitizers, or under valgrind.
# run.sh runs them, and adds up; each report of a checker is one failure.  Where the
# source cannot be had, nothing is tested, and the output says so; with CI=true that fails.
# README.md says how to call this.
#
# The servers are built once and kept in snowflake-debug, in $XDG_CACHE_HOME, or /var/cache,
# or ~/.cache for a user who may not write there.
# The tests use a copy, so that several runs, or several checkouts, do not meet.
# SNOWFLAKE_DEBUG_VERSION says which major version.  If it is unset, that is 17, or 18 where
# Debian's mirror has no source of 17.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$root/test/debian.sh"

version=
cache=
mode=assert
variant=assert

# Build and install the variant of the server: assert or valgrind.  It is
# installed beside its place and renamed, so that it is there as a whole or not
# at all; configured for its final place all the same.
build_server()
{
	local prefix=$cache/$variant build=$cache/$variant.build cppflags=() module

	[ ! -d "$prefix" ] || return 0
	say "building PostgreSQL $version in $prefix"
	rm -rf "$build" "$prefix.part"
	mkdir "$build"
	cd "$build"
	[ "$variant" != valgrind ] || cppflags=(CPPFLAGS=-DUSE_VALGRIND)
	"$cache/source/configure" -q --prefix="$prefix" --enable-cassert --enable-debug \
		--enable-tap-tests --enable-injection-points --without-icu --without-readline \
		CFLAGS='-O1 -fno-omit-frame-pointer' "${cppflags[@]}"
	nice -n 10 make -s -j "$(nproc)"
	make -s install DESTDIR="$prefix.part"
	for module in contrib/postgres_fdw src/test/modules/injection_points; do
		make -s -C "$module" install DESTDIR="$prefix.part"
	done
	cd /
	chmod -R a+rX "$prefix.part"
	mv "$prefix.part/$prefix" "$prefix"
	rm -rf "$prefix.part" "$build"
}

# Put a script, from standard input, in the place of the copy's server.
wrap_server()
{
	mv "$server" "$server.real"
	cat >"$server"
	chmod 755 "$server"
}

# What the checkers have to say about us, as TAP.  valgrind sees the whole server:
# what has none of our functions is shown, but does not count.
if [ "${1:-}" = reports ]; then
	results=1
	for file in "$2"/*; do
		[ -s "$file" ] || continue
		count=$(awk '/ERROR: |runtime error:/ { n++ }
			/SNOWFLAKE-BEGIN/ { ours = 0 } /SNOWFLAKE-END/ { n += ours }
			/snowflake\.so|\/tree\/src\// { ours = 1 } END { print n + 0 }' "$file")
		for ((; count > 0; count--)); do
			say "not ok - ${file##*/}"
			((results++))
		done
		head -n 300 "$file" | sed "s/^/# /"
	done
	say "ok - the checker has come to its end"
	say "1..$results"
	exit
fi
case ${1:-} in
	asan | valgrind | build)
		mode=$1
		shift
		;;
esac
[ "$mode" != valgrind ] || variant=valgrind

packages=(make gcc libc6-dev zlib1g-dev bison flex perl libipc-run-perl)
# without the C library's symbols, valgrind knows too little of it
[ "$mode" != valgrind ] || packages+=(valgrind libc6-dbg)

# One at a time.
found=
for version in ${SNOWFLAKE_DEBUG_VERSION:-17 18}; do
	cache=$source_cache/$version
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
	! why=$({ install_packages "${packages[@]}" && get_source "$version"; } 2>&1) || { found=yes; break; }
	say "$why" >&2
done
if [ -z "$found" ]; then
	[ "$mode" != build ] || exit 1
	cannot_have "debugging server: could not be set up: ${why##*$'\n'}"
fi
build_server >&2
exec 9>&-
if [ "$mode" = build ]; then
	say "$cache/$variant/bin/pg_config"
	exit 0
fi

make_work "${TMPDIR:-/tmp}"
as_user mkdir reports
cp -a "$cache/$variant" "$work/server"
server=$work/server/bin/postgres
[ $# -gt 0 ] || set -- regress isolation tap
case $mode in
	asan)
		# GCC's UBSan heeds no log_path where ASan is loaded as well: each
		# calls the other's function for it.
		gcc -x c -shared -fPIC -o "$work/reports.so" - <<END
#include <dlfcn.h>
static void __attribute__((constructor)) set_report_path(void)
{
	void	   *ubsan = dlopen("libubsan.so.1", RTLD_NOW);
	void		(*set) (const char *) =
		(void (*) (const char *)) dlsym(ubsan, "__sanitizer_set_report_path");

	set("$work/reports/ubsan");
}
END
		# Ahead of the library that steps the clock, because it must come
		# first.  Under the script's name, which pg_ctl keeps for a restart.
		wrap_server <<END
#!/bin/bash
export LD_PRELOAD=$(gcc -print-file-name=libasan.so):$work/reports.so\${LD_PRELOAD:+:\$LD_PRELOAD}
exec -a "\${BASH_SOURCE[0]}" "$server.real" "\$@"
END
		# The server's makefiles add this to what compiles and what links.
		# They have -fwrapv, but an overflow here would hardly be meant.
		export PROFILE='-fsanitize=address,undefined -fno-omit-frame-pointer -fno-wrapv'
		export ASAN_OPTIONS="detect_leaks=0:log_path=$work/reports/asan"
		export UBSAN_OPTIONS=print_stacktrace=1
		;;
	valgrind)
		# those whose outcome does not depend on how fast the server is
		[ "$*" != "regress isolation tap" ] || set -- regress isolation tap 030_layout 080_races
		# What initdb runs takes long and is none of ours.  pg_ctl restart
		# leaves valgrind behind, which no test here does.  A second is not
		# long enough for the keeper.
		wrap_server <<END
#!/bin/bash
case \${1:-} in
	--boot | --check | --single | -C | -V | --version) exec "$server.real" "\$@" ;;
esac
exec valgrind --quiet --leak-check=no --trace-children=yes --num-callers=40 --fullpath-after= \\
	--error-markers=SNOWFLAKE-BEGIN,SNOWFLAKE-END \\
	--suppressions=$cache/source/src/tools/valgrind.supp \\
	--log-file=$work/reports/valgrind.%p \\
	"$server.real" "\$@" -c snowflake.max_wait=5min
END
		export PG_TEST_TIMEOUT_DEFAULT=900 PGCTLTIMEOUT=900 SNOWFLAKE_TEST_LIMIT=14400
		;;
esac
[ "$mode" = assert ] ||
	export SNOWFLAKE_LAST="reports"$'\t'"bash '$root/test/debug.sh' reports '$work'/reports"
PG_CONFIG=$work/server/bin/pg_config bash "$root/test/run.sh" "$@" &
# whoever ends this ends the tests as well, which need the server to stop theirs
leave()
{
	kill $! 2>/dev/null || true
	wait
}
wait $!
