# Shared by all scripts here: what has to be installed, a copy of the tree to build
# in, a throw-away server, and results.  To be sourced by bash, not run.
#
# Everything happens in one new temporary directory, $work, which belongs to
# an unprivileged user, because initdb refuses root and because the checkout
# itself need not be readable by that user.  However a script ends, the servers in it
# are stopped, and it is removed.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export work=
pg_config=
bindir=
pgxs=
major=

# The caller's connection settings are meant for another server, and Debian's
# make and perl are to speak a language that can be parsed.
unset PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD PGSERVICE PGOPTIONS PGDATA
export LC_ALL=C

say()
{
	printf '%s\n' "$*"
}

die()
{
	printf '%s\n' "$*" >&2
	exit 1
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
# whoever we are.
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
	elif getent passwd postgres >/dev/null; then
		say postgres
	else
		say nobody
	fi
}

# Set pg_config to the newest installation that can both build an extension
# and run a server, unless $PG_CONFIG names one, and bindir and major to its programs
# and its version; fail if there is none.  From 18 on, Debian's package of the client
# has the makefiles, but not the headers.
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
	pgxs=$("$pg_config" --pgxs)
	# shellcheck disable=SC2034 # used by those who source this
	major=$("$pg_config" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
}

# apt-get waits for the lock of dpkg, but not for that of the lists, which another run
# of ours, or the machine's own timer, may hold.
apt_update_once()
{
	local mark=${SNOWFLAKE_WORK:+$SNOWFLAKE_WORK/apt-updated} said end=$((SECONDS + 300))

	[ -z "$mark" ] || [ ! -e "$mark" ] || return 0
	until said=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq 2>&1); do
		if [[ $said != *"Could not get lock"* || $SECONDS -gt $end ]]; then
			say "$said" >&2
			return 1
		fi
		sleep 1
	done
	[ -z "$mark" ] || : >"$mark"
}

is_installed()
{
	dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

# Install those of these Debian packages that are missing, all in one go; if that
# fails, one by one, so that one that is not to be had costs no other.  What apt-get
# says is shown if it fails.  Debian starts servers when it installs them, and at each
# start of the machine; nobody asked for one here.
install_packages()
{
	local package missing=() policy=/usr/sbin/policy-rc.d conf_dir=/etc/postgresql-common/createcluster.d
	local conf=$conf_dir/snowflake-no-main.conf log status=0
	local apt=(as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends
		-o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)

	for package in "$@"; do
		is_installed "$package" || missing+=("$package")
	done
	[ "${#missing[@]}" -gt 0 ] || return 0
	command -v apt-get >/dev/null || { say "# no apt-get here, and missing: ${missing[*]}"; return 1; }
	(
		# one at a time
		[ -z "${SNOWFLAKE_WORK:-}" ] || { exec 8>"$SNOWFLAKE_WORK/apt.lock"; flock 8; }
		apt_update_once || exit
		say "# apt-get install ${missing[*]}"
		[ ! -e "$policy" ] || policy=
		[ -z "$policy" ] || printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin "$policy"
		[ ! -e "$conf" ] && [ -z "$(compgen -G '/etc/postgresql/*/*')" ] || conf=
		[ -z "$conf" ] || echo 'create_main_cluster = false' | as_root install -D -m 644 /dev/stdin "$conf"
		log=$(mktemp)
		"${apt[@]}" "${missing[@]}" >"$log" 2>&1 || {
			[ "${#missing[@]}" -gt 1 ] || status=1
			for package in "${missing[@]}"; do
				"${apt[@]}" "$package" >>"$log" 2>&1 || status=1
			done
			tail -n 40 "$log" | sed 's/^/# /'
		}
		rm -f "$log"
		[ -z "$policy" ] || as_root rm -f "$policy"
		[ -z "$conf" ] || { as_root rm -f "$conf"; as_root rmdir --ignore-fail-on-non-empty "$conf_dir"; }
		for package in "${missing[@]}"; do
			! command -v systemctl >/dev/null || as_root systemctl -q disable "${package%-server}" 2>/dev/null || true
		done
		exit "$status"
	)
}

# Install what is missing of what it takes to build, to run a server and, with the argument "tests",
# to run the TAP tests.
install_missing()
{
	local missing=() version

	command -v make >/dev/null || missing+=(make)
	command -v gcc >/dev/null || missing+=(gcc)
	[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
	# for snowflake_public alone
	[ -e /usr/include/openssl/evp.h ] || missing+=(libssl-dev)
	if [ "${1:-}" = tests ]; then
		command -v prove >/dev/null || missing+=(perl)
		command -v ps >/dev/null || missing+=(procps)
		perl -MIPC::Run -e 1 2>/dev/null || missing+=(libipc-run-perl)
	fi
	if [ -z "${PG_CONFIG:-}" ] && ! find_pg_config; then
		command -v apt-get >/dev/null ||
			die "no PostgreSQL with development files found; set PG_CONFIG"
		apt_update_once || return
		# that of the newest server that is here already, or else the distribution's own
		version=$({ apt-cache depends postgresql | grep -o 'postgresql-[0-9]*$'
			compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -V; } | tail -n 1 | tr -dc 0-9) || true
		[ -n "$version" ] || die "apt-get offers no postgresql package"
		missing+=("postgresql-$version" "postgresql-server-dev-$version")
	fi
	[ "${#missing[@]}" = 0 ] || install_packages "${missing[@]}" || return
	find_pg_config
}

# A Python with psycopg2: that of PATH, or Debian's
find_python()
{
	install_packages python3 python3-psycopg2 >&2 || true
	for python in ${PYTHON:-python3 /usr/bin/python3}; do
		! "$python" -c 'import psycopg2' 2>/dev/null || return 0
	done
	die "no Python with psycopg2 (Debian: python3-psycopg2)"
}

# Create $work, in the directory $1.
make_work()
{
	work=$(mktemp -d "$1/snowflake.XXXXXX")
	[ "$(id -u)" != 0 ] || chown "$(test_user)": "$work"
	# the unprivileged user may not enter the directory we were started in
	cd "$work"
	as_user mkdir tmp
}

# ... with a copy of the tree, $work/tree.
make_workspace()
{
	make_work "${TMPDIR:-/tmp}"
	copy_tree tree
}

# The tree as an archive, less what builds and tests leave behind, and what the
# arguments exclude
built=(--exclude='*.o' --exclude='*.so' --exclude='*.bc')
# shellcheck disable=SC2120
pack_tree()
{
	tar -C "$root" -cf - --exclude=./.git "${built[@]}" --exclude=./results --exclude='./tmp_check*' \
		--exclude='./regression.*' --exclude=./log --exclude=./output_iso "$@" .
}

copy_tree()
{
	as_user mkdir "$1"
	pack_tree | as_user tar -C "$1" -xf - --no-same-owner
}

# The clang that the server was built with, if it was
server_clang()
{
	sed -n 's/^CLANG *= *//p' "$(dirname "$("$pg_config" --pgxs)")/../Makefile.global"
}

# make in the copy.  clang is only needed to make inlinable bitcode, so a
# machine without the clang that the server was built with does without, and so does a chroot.
tree_make()
{
	local clang

	clang=$(server_clang)
	[ -z "$clang" ] || { command -v "$clang" >/dev/null && [ ! -e /etc/snowflake-matrix ]; } || set -- with_llvm=no "$@"
	"${make_as:-as_user}" make -s --no-print-directory -C "$work/tree" "PG_CONFIG=$pg_config" "$@"
}

build_extension()
{
	tree_make -j "$(nproc)" COPT=-Werror "$@"
}

# The build must be complete before this, with the same arguments: root would leave its
# own files in the copy.
install_extension()
{
	local make_as=env

	[ -w "$("$pg_config" --pkglibdir)" ] || make_as=as_root
	tree_make COPT=-Werror "$@" install
}

# Build the tree and install it at $work/inst, with the programs of PostgreSQL, and links
# to all that they load: they find it relative to themselves, so this library is theirs alone.
# The arguments are variables for make.
private_installation()
{
	local inst=$work/inst option dir

	if [ ! -e "$inst" ]; then
		for option in --pkglibdir --sharedir --includedir-server; do
			dir=$("$pg_config" "$option")
			as_user mkdir -p "$inst$dir"
			as_user cp -rs "$dir/." "$inst$dir/"
		done
		dir=$("$pg_config" --bindir)
		as_user mkdir -p "$inst$dir"
		as_user cp -L "$dir"/* "$inst$dir/"
	fi
	rm -rf "$inst$("$pg_config" --pkglibdir)"/snowflake* "$inst$("$pg_config" --sharedir)"/extension/snowflake*
	tree_make -j 2 with_llvm=no "$@" && tree_make with_llvm=no "$@" "DESTDIR=$inst" install
}

# A data directory that tests copy, at $work/template: from 16 on by themselves, where
# INITDB_TEMPLATE says so; before, this puts a program of its own in place of initdb, beside
# what else pg_regress takes of $bindir.
make_template()
{
	as_user mkdir "$work/bin"
	as_user "$bindir/initdb" -D "$work/template" -A trust --no-sync
	[ "$major" -lt 16 ] || return 0
	as_user ln -s "$bindir"/{pg_ctl,postgres,psql} "$work/bin/"
	as_user tee "$work/bin/initdb" <<END
#!/bin/sh
case "\$*" in
	"-D \$2 -A trust -N" | "-D \$2 --no-clean --no-sync") cp -a "$work/template" "\$2" ;;
	*) exec "$bindir/initdb" "\$@" ;;
esac
END
	chmod 755 "$work/bin/initdb"
}

# Print the command that is make installcheck, of which the arguments leave one kind.
# $1: the directory to run it in, $2: regress or isolation, further: names, or all of the kind
installcheck()
{
	local command=(make -s --no-print-directory -C "$1" -f "$work/tree/Makefile" "VPATH=$work/tree"
		"PG_CONFIG=$pg_config" "bindir=$bindir" installcheck TAP_TESTS=)
	local kind=$2

	[ ! -e "$work/bin/initdb" ] || command+=("bindir=$work/bin")

	as_user mkdir -p "$1"
	# pg_regress writes beside its files, while others copy the tree
	as_user ln -s "$work"/tree/{test,expected} "$1/"
	shift 2
	case $kind in
		regress) command+=(ISOLATION= ${1:+"REGRESS=setup ${*#setup}"}) ;;
		isolation) command+=(REGRESS= ${1:+"ISOLATION=$*"}) ;;
	esac
	say "as_user ${command[*]@Q} 2>&1 | as_tap"
}

# Print the command that runs a TAP test in the copy of the tree, as make installcheck does, which takes
# forty processes for itself.  One that waits for ever is ended where it waits, and says so, before the
# whole run has to be.  $1: its directory, which is there, $2: the file, further: its arguments
tap_test()
{
	local src=${pgxs%/makefiles/pgxs.mk} check=$1/tmp_check
	local command=(TESTDIR="$1" TESTDATADIR="$check" TESTLOGDIR="$check/log" PG_CONFIG="$bindir/pg_config"
		PG_REGRESS="$src/test/regress/pg_regress" PATH="$work/bin:$bindir:$PATH"
		timeout --foreground --kill-after=60 "${SNOWFLAKE_TEST_LIMIT:-1800}" perl -I "$src/test/perl" -I . -I test/perl "${@:2}")

	say "as_user ${command[*]@Q} 2>&1 | sed -u 's/^Bail out!/# &/'"
}

# Start a server in $work that is reachable through a socket there only, and
# point libpq at it.  Further arguments are lines for postgresql.conf.
start_server()
{
	as_user "$bindir/initdb" -D "$work/data" -U postgres -A trust -E UTF8 --no-locale \
		>"$work/initdb.log" 2>&1 || { cat "$work/initdb.log"; return 1; }
	printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work'" "$@" |
		cat - "$work/tree/test/server.conf" | as_user tee -a "$work/data/postgresql.conf" >/dev/null
	as_user "$bindir/pg_ctl" -D "$work/data" -l "$work/server.log" -w start >/dev/null ||
		{ tail -n 40 "$work/server.log"; return 1; }
	export PGHOST=$work PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
}

# Stop the servers in $work, each by the PID in its own data directory.
stop_servers()
{
	local pid_file data pid

	while read -r pid_file; do
		data=${pid_file%/*}
		! as_user "$bindir/pg_ctl" -D "$data" -m immediate -t 20 -w stop >/dev/null 2>&1 || continue

		# it hangs, or it is gone and the PID may be somebody else's
		pid=$(head -n 1 "$pid_file" 2>/dev/null) || continue
		[ "$(readlink "/proc/$pid/cwd")" = "$data" ] || continue
		# shellcheck disable=SC2046 # one word each
		kill -KILL "$pid" $(ps -o pid= --ppid "$pid") 2>/dev/null || true
	done < <(find "$work" -name postmaster.pid 2>/dev/null)
}

# What a script does at its end, with its exit status, before its servers are stopped
leave()
{
	:
}

finish()
{
	local status=$?

	trap - EXIT INT TERM
	leave "$status"
	cd /
	if [ -n "$work" ]; then
		stop_servers
		rm -rf "$work"
	fi
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# What was asked for cannot be had here: a skip, but for continuous integration, which has
# tested nothing then, a failure.
cannot_have()
{
	if [ "${CI:-}" = true ]; then
		say "1..1"
		say "not ok 1 - $*"
		exit 1
	fi
	say "1..0 # SKIP $*"
	exit 0
}

# Run a command, without which some tests are skipped; continuous integration skips none.
if_possible()
{
	"$@" || [ "${CI:-}" != true ]
}

# The results of others as TAP: those of ours, and pg_regress up to PostgreSQL 15, whose
# "ok" may have a psql that crashed behind it.  Who bails out fails by his exit status:
# the harness would end all others as well.
as_tap()
{
	sed -u -E 's/^(test|  ) *([^ ]+) +\.\.\. (FAILED\b|ok +\()/not ok - \2 /
		s/^(test|  ) *([^ ]+) +\.\.\. ok\b/ok - \2/
		s/^ok: /ok - /; s/^FAILED: /not ok - /; s/^Bail out!/# &/
		s/^ All ([0-9]+) tests passed.*/1..\1/; s/^ [0-9]+ of ([0-9]+) tests failed.*/1..\1/' |
		awk '/^[0-9]+ passed, [0-9]+ failed$/ { $0 = "1.." $1 + $3 } { print; fflush() }'
}

export -f apt_update_once as_root as_tap as_user install_packages is_installed say test_user

# What a script that is a kind of test begins with: its kind and its arguments.  If
# run.sh has not started it, run.sh is what it is to be run by.
begin()
{
	[ -n "${SNOWFLAKE_WORK:-}" ] || exec bash "$root/test/run.sh" "$@"
	make_work "${TMPDIR:-/tmp}"
}
