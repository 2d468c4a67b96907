# Shared by demo.sh and run.sh: what has to be installed, a copy of the tree
# to build in, and a throw-away server.  To be sourced by bash, not run.
#
# Everything happens in one new temporary directory, $work, which belongs to
# an unprivileged user, because initdb refuses root and because the checkout
# itself need not be readable by that user.  cleanup() stops the server and
# removes the directory; the scripts call it from their EXIT trap.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=
pg_config=
bindir=
apt_updated=

# The caller's connection settings are meant for another server, and Debian's
# make and perl are to speak a language that can be parsed.
unset PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD PGSERVICE PGOPTIONS PGDATA
export LC_ALL=C

# What the EXIT trap of a script does that has nothing else to say at its end:
# the verdict, of results that it counts here.  Others have a finish() of their
# own.
passed=0
failed=0
finish()
{
	[ $? = 0 ] || failed=$((failed + 1))
	trap - EXIT
	cleanup || true
	say "$passed passed, $failed failed"
	[ "$failed" = 0 ] && [ "$passed" -gt 0 ] || exit 1
	exit 0
}

say()
{
	printf '%s\n' "$*"
}

die()
{
	printf '%s\n' "$*" >&2
	exit 1
}

# A line for a step, with the seconds since the start.  A script that starts
# another one hands it SECONDS, so that both count from the same moment.
progress()
{
	printf '[%4d s] %s\n' "$SECONDS" "$*"
}

# Run a command as root: directly, or with sudo.
as_root()
{
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo -- "$@"
	else
		say "this needs root, and there is no sudo here: $*" >&2
		return 1
	fi
}

# Run a command as the unprivileged user: postgres if we are root, otherwise
# whoever we are.  SNOWFLAKE_TEST_USER names another one.
as_user()
{
	if [ "$(id -u)" = 0 ]; then
		runuser -u "$(test_user)" -- env HOME="$work" "$@"
	else
		env HOME="$work" "$@"
	fi
}

test_user()
{
	if [ "$(id -u)" != 0 ]; then
		id -un
	elif [ -n "${SNOWFLAKE_TEST_USER:-}" ]; then
		say "$SNOWFLAKE_TEST_USER"
	elif getent passwd postgres >/dev/null; then
		say postgres
	else
		say nobody
	fi
}

# Set pg_config to the newest installation that can both build an extension
# and run a server, unless $PG_CONFIG names one; fail if there is none.  From
# 18 on, Debian's package of the client has the makefiles, but not the headers.
find_pg_config()
{
	local candidate

	pg_config=
	if [ -n "${PG_CONFIG:-}" ]; then
		pg_config=$(command -v "$PG_CONFIG") || die "PG_CONFIG: no such program: $PG_CONFIG"
	else
		# version sort, because 9 would sort behind 15
		while read -r candidate; do
			if [ -x "${candidate%/pg_config}/initdb" ] &&
				[ -f "$("$candidate" --pgxs)" ] &&
				[ -f "$("$candidate" --includedir-server)/postgres.h" ]; then
				pg_config=$candidate
			fi
		done < <(compgen -G '/usr/lib/postgresql/*/bin/pg_config' | sort -V)
	fi
	[ -n "$pg_config" ] || return 1
	bindir=$("$pg_config" --bindir)
}

# The major version to install: that of the newest server that is here already
# (and lacks only what is needed to build), or else the distribution's own.
wanted_version()
{
	local version

	version=$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -V | tail -n 1 |
		sed 's,^/usr/lib/postgresql/\([0-9]*\)/.*,\1,') || true
	if [ -z "$version" ]; then
		version=$(apt-cache depends postgresql |
			sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | tail -n 1)
	fi
	[ -n "$version" ] || die "apt-get offers no postgresql package"
	say "$version"
}

apt_update_once()
{
	[ -z "$apt_updated" ] || return 0
	say "apt-get update"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq || return
	apt_updated=yes
}

# Install Debian packages; what apt-get says is shown only if it fails.
apt_install()
{
	local log status=0

	say "apt-get install $*"
	log=$(mktemp)
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
		--no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 \
		"$@" >"$log" 2>&1 || status=$?
	[ "$status" = 0 ] || tail -n 40 "$log"
	rm -f "$log"
	return "$status"
}

# Install what is missing, and nothing when nothing is.  With the argument
# "tests" that includes what the TAP tests need, with "torture" what the fault
# campaign needs, with "clang" that compiler, with "chroots" what makes them.
install_missing()
{
	local conf_dir=/etc/postgresql-common/createcluster.d
	local conf=$conf_dir/snowflake-no-main.conf
	local missing=() version status=0

	command -v make >/dev/null || missing+=(make)
	command -v gcc >/dev/null || missing+=(gcc)
	[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
	[ -e /usr/include/openssl/evp.h ] || missing+=(libssl-dev)
	case " $* " in
		*" tests "*)
			command -v prove >/dev/null || missing+=(perl)
			perl -MIPC::Run -e 1 2>/dev/null || missing+=(libipc-run-perl)
			;;
	esac
	case " $* " in
		*" torture "*)
			{ python3 -c 'import psycopg2' || /usr/bin/python3 -c 'import psycopg2'; } 2>/dev/null ||
				missing+=(python3 python3-psycopg2)
			;;
	esac
	case " $* " in
		*" clang "*)
			[ -n "$(find_clang)" ] || missing+=(clang)
			;;
	esac
	case " $* " in
		*" chroots "*)
			command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
			# its answer depends on what apt-get update has brought
			[ -n "$(apt-get indextargets 'Created-By: Packages')" ] ||
				apt_update_once || return
			;;
	esac
	if ! find_pg_config; then
		command -v apt-get >/dev/null ||
			die "no PostgreSQL with development files found; set PG_CONFIG"
		apt_update_once || return
		version=$(wanted_version) || return
		missing+=("postgresql-$version" "postgresql-server-dev-$version")
	fi

	if [ "${#missing[@]}" -gt 0 ]; then
		apt_update_once || return

		# Debian creates and starts a server when its package is first
		# installed.  Nobody asked for one here, so say no for the time of
		# this installation.
		if [ ! -e "$conf" ] && [ -z "$(compgen -G '/etc/postgresql/*/*')" ]; then
			as_root mkdir -p "$conf_dir" || return
			echo 'create_main_cluster = false' | as_root tee "$conf" >/dev/null
		else
			conf=
		fi
		apt_install "${missing[@]}" || status=$?
		if [ -n "$conf" ]; then
			as_root rm -f "$conf"
			as_root rmdir --ignore-fail-on-non-empty "$conf_dir"
		fi
		[ "$status" = 0 ] || return "$status"
	fi
	find_pg_config
}

# Create $work and copy the tree, less what a build leaves behind, to
# $work/tree.
make_workspace()
{
	work=$(mktemp -d "${TMPDIR:-/tmp}/snowflake.XXXXXX")
	if [ "$(id -u)" = 0 ]; then
		chown "$(test_user)": "$work"
	fi
	# the unprivileged user may not enter the directory we were started in
	cd "$work"
	as_user mkdir tree tmp
	tar -C "$root" -cf - --exclude=./.git --exclude='*.o' --exclude='*.so' \
		--exclude='*.bc' --exclude=./results --exclude=./tmp_check \
		--exclude=./output_iso . | as_user tar -C tree -xf - --no-same-owner
}

# A clang: the one that the server was built with, or any, or none.
find_clang()
{
	local clang=

	if [ -n "$pg_config" ] || find_pg_config; then
		clang=$(sed -n 's/^CLANG *= *//p' \
			"$(dirname "$("$pg_config" --pgxs)")/../Makefile.global")
	fi
	command -v ${clang:+"$clang"} clang | head -n 1 || true
}

# make in the copy.  clang is only needed to make inlinable bitcode, so a
# machine without the clang that the server was built with does without.
tree_make()
{
	local options=("PG_CONFIG=$pg_config") clang

	clang=$(sed -n 's/^CLANG *= *//p' "$(dirname "$("$pg_config" --pgxs)")/../Makefile.global")
	if [ -n "$clang" ] && ! command -v "$clang" >/dev/null; then
		options+=(with_llvm=no)
	fi
	"$@" make --no-print-directory -C "$work/tree" "${options[@]}" "${make_args[@]}"
}

build_extension()
{
	local make_args=(-s -j "$(nproc)" COPT=-Werror)

	tree_make as_user
}

# The build must be complete before this: root would leave its own files in
# the copy.
install_extension()
{
	local make_args=(COPT=-Werror install)

	if [ -w "$("$pg_config" --pkglibdir)" ]; then
		tree_make env
	else
		tree_make as_root
	fi
}

# Start a server in $work that is reachable through a socket there only, and
# point libpq at it.  Further arguments are lines for postgresql.conf.
start_server()
{
	if ! as_user "$bindir/initdb" -D "$work/data" -U postgres -A trust \
		-E UTF8 --no-locale >"$work/initdb.log" 2>&1; then
		cat "$work/initdb.log"
		return 1
	fi
	printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work'" \
		"shared_preload_libraries = 'snowflake'" "snowflake.node_id = 1" "$@" |
		as_user tee -a "$work/data/postgresql.conf" >/dev/null
	if ! as_user "$bindir/pg_ctl" -D "$work/data" -l "$work/server.log" -w start >"$work/pg_ctl.log" 2>&1; then
		cat "$work/pg_ctl.log"
		server_log
		return 1
	fi
	export PGHOST=$work PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
}

# The end of the server's log, for whoever has to find out what went wrong.
server_log()
{
	if [ -e "$work/server.log" ]; then
		say "--- end of the server's log"
		tail -n 40 "$work/server.log"
	fi
}

stop_server()
{
	if [ -e "$work/data/postmaster.pid" ]; then
		as_user "$bindir/pg_ctl" -D "$work/data" -m fast -w stop >/dev/null ||
			as_user "$bindir/pg_ctl" -D "$work/data" -m immediate -w stop >/dev/null
	fi
}

cleanup()
{
	local pid_file

	[ -n "$work" ] || return 0
	stop_server || true
	# servers of a TAP test that was interrupted
	while read -r pid_file; do
		as_user "$bindir/pg_ctl" -D "${pid_file%/*}" -m immediate -w stop >/dev/null || true
	done < <(compgen -G "$work/tree/tmp_check/*/pgdata/postmaster.pid")
	cd /
	rm -rf "$work"
	work=
}

# The end of what the servers of the last TAP test have logged.
tap_logs()
{
	local log

	for log in "$work/tree/tmp_check/log"/*; do
		[ -f "$log" ] || continue
		say "--- end of ${log##*/}"
		tail -n 30 "$log"
	done
}

# Run a TAP test of the copy, with the extension that is installed, and add up its
# results.  $1: a name, $2: the file, further: variables for its environment
tap_results()
{
	local name=$1 log=$work/tap.log status=0 ok bad
	local make_args=(installcheck REGRESS= ISOLATION= TAP_TESTS=1 PROVE_FLAGS=-v "PROVE_TESTS=$2")

	shift 2
	# a condition that has not come true after a minute never will
	tree_make as_user env TMPDIR="$work/tmp" \
		PG_TEST_TIMEOUT_DEFAULT="${PG_TEST_TIMEOUT_DEFAULT:-60}" "$@" >"$log" 2>&1 || status=$?
	ok=$(grep -c '^ok [0-9]' "$log") || true
	bad=$(grep -c '^not ok [0-9]' "$log") || true
	if [ "$status" != 0 ]; then
		[ "$bad" != 0 ] || bad=1
		grep -v '^ok [0-9]' "$log" | tail -n 200
		tap_logs
	fi
	passed=$((passed + ok))
	failed=$((failed + bad))
	progress "$name: $ok passed, $bad failed"
}
