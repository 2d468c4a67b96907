#!/bin/bash
# Run the tests on a PostgreSQL that is built from source for them: with
# assertions and injection points, under the sanitizers, or under valgrind.
# Runs as root or as a user with sudo.  The last line of the output is
# "N passed, N failed"; each report of a checker is one failure.  Where the source
# cannot be had, nothing is tested, and the output says so.
#
#   bash test/debug.sh                    assertions and injection points
#   bash test/debug.sh asan               the same server, and the library built with
#                                         AddressSanitizer and UBSan
#   bash test/debug.sh valgrind           a server built for valgrind, and under it
#   bash test/debug.sh [MODE] tap 070_races
#                                         what to run, as for run.sh
#   bash test/debug.sh build              no tests: build and say where it is
#
# The servers are built once and kept in ${XDG_CACHE_HOME:-/var/cache}/snowflake-debug.
# The tests use a copy, so that several runs, or several checkouts, do not meet.
# SNOWFLAKE_DEBUG_VERSION says which major version; it is 17 if unset.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/source.sh"

version=${SNOWFLAKE_DEBUG_VERSION:-17}
cache=$source_cache/$version
mode=assert
copy=

# What is missing for a build from source, from the distribution.
install_tools()
{
	local missing=()

	command -v make >/dev/null || missing+=(make)
	command -v gcc >/dev/null || missing+=(gcc)
	[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
	[ -e /usr/include/zlib.h ] || missing+=(zlib1g-dev)
	command -v bison >/dev/null || missing+=(bison)
	command -v flex >/dev/null || missing+=(flex)
	command -v prove >/dev/null || missing+=(perl)
	perl -MIPC::Run -e 1 2>/dev/null || missing+=(libipc-run-perl)
	if [ "$mode" = valgrind ]; then
		# without the C library's symbols, valgrind knows too little of it
		{ command -v valgrind && [ -d /usr/lib/debug/.build-id ]; } >/dev/null ||
			missing+=(valgrind libc6-dbg)
	fi
	install_packages "${missing[@]:+${missing[@]}}"
}

# Build and install one variant of the server: assert or valgrind.  It is
# installed beside its place and renamed, so that it is there as a whole or not
# at all; configured for its final place all the same.
build_server()
{
	local variant=$1 prefix=$cache/$1 build=$cache/$1.build cppflags=() module

	if [ -d "$prefix" ]; then
		return 0
	fi
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

# Put a script in the place of the copy's server that starts it with a checker.
wrap_server()
{
	local server=$copy/server/bin/postgres

	mv "$server" "$server.real"
	case $mode in
		asan)
			# GCC's UBSan heeds no log_path where ASan is loaded as well: each
			# calls the other's function for it.
			gcc -x c -shared -fPIC -o "$copy/reports.so" - <<END
#include <dlfcn.h>
static void __attribute__((constructor)) set_report_path(void)
{
	void	   *ubsan = dlopen("libubsan.so.1", RTLD_NOW);
	void		(*set) (const char *) =
		(void (*) (const char *)) dlsym(ubsan, "__sanitizer_set_report_path");

	set("$copy/reports/ubsan");
}
END
			# Ahead of the library that steps the clock, because it must come
			# first.  Under the script's name, which pg_ctl keeps for a restart.
			cat >"$server" <<END
#!/bin/bash
export LD_PRELOAD=$(gcc -print-file-name=libasan.so):$copy/reports.so\${LD_PRELOAD:+:\$LD_PRELOAD}
exec -a "\${BASH_SOURCE[0]}" "$server.real" "\$@"
END
			;;
		valgrind)
			# What initdb runs takes long and is none of ours.  pg_ctl restart
			# leaves valgrind behind, which no test here does.  A second is not
			# long enough for the keeper.
			cat >"$server" <<END
#!/bin/bash
case \${1:-} in
	--boot | --check | --single | -C | -V | --version) exec "$server.real" "\$@" ;;
esac
exec valgrind --quiet --leak-check=no --trace-children=yes --num-callers=40 --fullpath-after= \\
	--error-markers=SNOWFLAKE-BEGIN,SNOWFLAKE-END \\
	--suppressions=$cache/source/src/tools/valgrind.supp \\
	--log-file=$copy/reports/valgrind.%p \\
	"$server.real" "\$@" -c snowflake.max_wait=5min
END
			;;
	esac
	chmod 755 "$server"
}

# What the checkers have to say about us, and how many reports these are.
# valgrind sees the whole server: what has none of our functions is shown, but
# is not counted.
reports=0
collect_reports()
{
	local file

	for file in "$copy"/reports/*; do
		[ -s "$file" ] || continue
		case $mode in
			asan)
				reports=$((reports + $(grep -cE 'ERROR: |runtime error:' "$file" || true)))
				say "--- ${file##*/}"
				head -n 100 "$file"
				;;
			valgrind)
				awk -v file="${file##*/}" '
					/SNOWFLAKE-BEGIN/ { report = ""; ours = 0; next }
					/SNOWFLAKE-END/ {
						if (ours) count++
						if (report != "") printf "--- %s\n%s", file, report
						report = ""
						next
					}
					{ report = report $0 "\n" }
					/snowflake\.so|\/tree\/src\// { ours = 1 }
					END { exit count > 250 ? 250 : count }' "$file" ||
					reports=$((reports + $?))
				;;
		esac
	done
}

finish()
{
	trap - EXIT
	cd /
	[ -z "$copy" ] || rm -rf "$copy"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

case ${1:-} in
	asan | valgrind | build)
		mode=$1
		shift
		;;
esac
what=("$@")

case $mode in
	valgrind) variant=valgrind ;;
	*) variant=assert ;;
esac

# One at a time.  Where the source cannot be had there is nothing to test with,
# which is no failure of what is tested.
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
set +e
why=$(
	set -e
	exec 2>&1
	install_tools
	[ -d "$cache/$variant" ] || get_source "$version"
)
status=$?
set -e
[ -z "$why" ] || say "$why"
if [ "$status" != 0 ]; then
	[ "$mode" != build ] || exit 1
	say "debugging server: could not be set up: ${why##*$'\n'}"
	say "1 skipped"
	say "0 passed, 0 failed"
	exit 0
fi
build_server "$variant"
exec 9>&-
if [ "$mode" = build ]; then
	say "$cache/$variant/bin/pg_config"
	exit 0
fi

copy=$(mktemp -d "${TMPDIR:-/tmp}/snowflake-debug.XXXXXX")
chmod 755 "$copy"
mkdir -m 1777 "$copy/reports"
cp -a "$cache/$variant" "$copy/server"
case $mode in
	assert)
		[ "${#what[@]}" -gt 0 ] || what=(regress isolation tap)
		;;
	asan)
		[ "${#what[@]}" -gt 0 ] || what=(regress isolation tap)
		wrap_server
		# The server's makefiles add this to what compiles and what links.
		# They have -fwrapv, but an overflow here would hardly be meant.
		export PROFILE='-fsanitize=address,undefined -fno-omit-frame-pointer -fno-wrapv'
		export ASAN_OPTIONS="detect_leaks=0:log_path=$copy/reports/asan"
		export UBSAN_OPTIONS=print_stacktrace=1
		;;
	valgrind)
		# those whose outcome does not depend on how fast the server is
		[ "${#what[@]}" -gt 0 ] ||
			what=(regress isolation tap 015_layout_change 070_races)
		wrap_server
		export PG_TEST_TIMEOUT_DEFAULT=900 PGCTLTIMEOUT=900
		;;
esac

PG_CONFIG=$copy/server/bin/pg_config bash "$root/test/run.sh" "${what[@]}" |
	tee "$copy/output" | sed -u '$d' || true
collect_reports
[ "$mode" = assert ] || say "$mode: $reports reports"
if ! read -r passed failed < <(sed -n '$s/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$copy/output"); then
	passed=0
	failed=1
fi
failed=$((failed + reports))
say "$passed passed, $failed failed"
[ "$failed" = 0 ]
