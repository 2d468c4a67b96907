#!/bin/bash
# Run the tests on a PostgreSQL that is built from source for them: with
# assertions and injection points, or under the sanitizers.
# run.sh runs them, and adds up; each report of a sanitizer is one failure.  Where the
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

# Build and install the server: beside its place, and renamed, so that it is there as a whole or not
# at all; configured for its final place all the same.
build_server()
{
	local prefix=$cache/assert build=$cache/assert.build module

	[ ! -d "$prefix" ] || return 0
	say "building PostgreSQL $version in $prefix"
	rm -rf "$build" "$prefix.part"
	mkdir "$build"
	cd "$build"
	"$cache/source/configure" -q --prefix="$prefix" --enable-cassert --enable-debug \
		--enable-tap-tests --enable-injection-points --without-icu --without-readline \
		CFLAGS='-O1 -fno-omit-frame-pointer'
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

# What the sanitizers have to say, as TAP
if [ "${1:-}" = reports ]; then
	results=1
	for file in "$2"/*; do
		[ -s "$file" ] || continue
		count=$(grep -c 'ERROR: \|runtime error:' "$file" || true)
		for ((; count > 0; count--)); do
			say "not ok - ${file##*/}"
			((results++))
		done
		head -n 300 "$file" | sed "s/^/# /"
	done
	say "ok - the sanitizers have come to their end"
	say "1..$results"
	exit
fi
case ${1:-} in
	asan | build)
		mode=$1
		shift
		;;
esac

# One at a time.
found=
for version in ${SNOWFLAKE_DEBUG_VERSION:-17 18}; do
	cache=$source_cache/$version
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
	! why=$({ install_packages make gcc libc6-dev zlib1g-dev bison flex perl libipc-run-perl && get_source "$version"; } 2>&1) || { found=yes; break; }
	say "$why" >&2
done
if [ -z "$found" ]; then
	[ "$mode" != build ] || exit 1
	cannot_have "debugging server: could not be set up: ${why##*$'\n'}"
fi
build_server >&2
exec 9>&-
if [ "$mode" = build ]; then
	say "$cache/assert/bin/pg_config"
	exit 0
fi

make_work "${TMPDIR:-/tmp}"
as_user mkdir reports
cp -a "$cache/assert" "$work/server"
server=$work/server/bin/postgres
[ $# -gt 0 ] || set -- regress isolation tap
if [ "$mode" = asan ]; then
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
	mv "$server" "$server.real"
	cat >"$server" <<END
#!/bin/bash
export LD_PRELOAD=$(gcc -print-file-name=libasan.so):$work/reports.so\${LD_PRELOAD:+:\$LD_PRELOAD}
exec -a "\${BASH_SOURCE[0]}" "$server.real" "\$@"
END
	chmod 755 "$server"
	# The server's makefiles add this to what compiles and what links.
	# They have -fwrapv, but an overflow here would hardly be meant.
	export PROFILE='-fsanitize=address,undefined -fno-omit-frame-pointer -fno-wrapv'
	export ASAN_OPTIONS="detect_leaks=0:log_path=$work/reports/asan"
	export UBSAN_OPTIONS=print_stacktrace=1
	export SNOWFLAKE_LAST="reports"$'\t'"bash '$root/test/debug.sh' reports '$work'/reports"
fi
PG_CONFIG=$work/server/bin/pg_config bash "$root/test/run.sh" "$@" &
# whoever ends this ends the tests as well, which need the server to stop theirs
leave()
{
	kill $! 2>/dev/null || true
	wait
}
wait $!
