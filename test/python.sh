#!/bin/bash
# Runs a kind of test that is a program in Python, with servers of its own: prepares
# what it needs, and starts it as an unprivileged user.  run.sh runs this.
#
#   torture         campaign/torture.py
#   torture tail    campaign/frontier.py
#   fleet           campaign/fleet.py
#   patroni         campaign/patroni.py
#   differ          differ/differ.py
#
# All but the last have the extension in a private copy of the PostgreSQL installation.
# Besides the options of the program, each takes
#
#   --plant NAME    a fault in the extension, planted/NAME.patch: it has to find that
#   --keep          the directory with all logs, events and IDs stays, as it does if something is found
#   --history FILE  all IDs that were received, and the faults, for campaign/check.py: see doc/promises.md
#   --record FILE   a table to which a row is added with what the run came to, for campaign/results.py
#
# Environment: PG_CONFIG, PYTHON (one that has psycopg2).

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$root/test/debian.sh"

: "${SNOWFLAKE_WORK:?run.sh runs this}"
kind=$1
shift
program=campaign/$kind.py
arguments=()
mounts=()
planted=
keep=
history=
record=
case "$kind ${1:-}" in
	"torture tail") program=campaign/frontier.py; shift ;;
	differ*) program=differ/differ.py ;;
esac
while [ $# -gt 0 ]; do
	case $1 in
		--plant) planted=${2:?--plant needs a name}; shift ;;
		--keep) keep=yes ;;
		--history | --record)
			[[ ${2:-} = /* ]] || die "$1 needs the absolute path of a file"
			[ "$1" = --history ] && history=$2 || record=$2
			shift
			;;
		*) arguments+=("$1") ;;
	esac
	shift
done

leave()
{
	local dir

	cd /
	for dir in "${mounts[@]}"; do
		[ -z "$keep" ] || cp -a "$dir" "$dir.kept"
		umount "$dir" 2>/dev/null || umount -l "$dir" || true
	done
	[ -z "$keep" ] || { say "# evidence kept in $work"; work=; }
}

# A digest of what campaigns use, as campaign/README.md says
code_of_tree()
(
	cd tree
	find src sql Makefile ./*.control -type f ! -name '*.o' ! -name '*.so' ! -name '*.bc' ! -name '*~' ! -name 'snowflake_migrate*' ! -name 'snowflake_partitions*' -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c 1-12
)

# core's files, where the user can read them; their functions in C, and what they load from contrib
get_core_tests()
{
	local why

	mkdir -p "$source_cache/$major"
	why=$({ flock 9 && get_source "$major"; } 2>&1 9>"$source_cache/$major/lock") ||
		cannot_have "the source of PostgreSQL $major could not be had: $(tail -n 1 <<<"$why")"
	as_user mkdir libraries runs
	tar -C "$source_cache/$major/source/src/test" -cf - regress | as_user tar -xf -
	as_user cc -O1 -fPIC -shared -I"$("$pg_config" --includedir-server)" -o libraries/regress.so regress/regress.c
	as_user ln -s "$("$pg_config" --pkglibdir)"/{autoinc,refint}.so libraries/
}

# Two small file systems for each of the two servers, one for WAL and one for the reservation's table: they can be
# filled.  Each server has its own, so that a full disk of the primary leaves its standby alone.
mount_small_disks()
{
	local spec

	for spec in wal0:160m spc0:1m wal1:160m spc1:1m; do
		mkdir "${spec%:*}"
		! mount -t tmpfs -o "size=${spec#*:},mode=755,uid=$(id -u "$(test_user)")" snowflake-torture "${spec%:*}" ||
			mounts+=("$work/${spec%:*}")
	done
	[ ${#mounts[@]} = 4 ]
}

find_pg_config
find_python
# with what run.sh has built there; the socket's path may have 107 bytes
built=()
TMPDIR=/tmp make_workspace
if [ "$kind" = differ ]; then
	get_core_tests
	arguments+=(--pg-regress "$(dirname "$("$pg_config" --pgxs)")/../test/regress/pg_regress")
else
	if [ -n "$planted" ]; then
		install_packages patch
		as_user patch -s -d tree -p0 <"tree/test/planted/$planted.patch"
	fi
	as_user cc -O2 -Wall -shared -fPIC -o clock_shim.so tree/test/shim/clock_shim.c -ldl -pthread
	arguments+=(--code "$(code_of_tree)${planted:+ with $planted}")
	private_installation >build.log 2>&1 || { cat build.log; exit 2; }
	bindir=$work/inst$bindir
fi
if [ $program = campaign/torture.py ]; then
	{ [ "$(id -u)" = 0 ] && mount_small_disks && arguments+=(--small-disks); } ||
		say "# full disk: left out, a tmpfs cannot be mounted here$([ "$(id -u)" = 0 ] || echo ' (needs root)')"
fi
[ -z "$history" ] || arguments+=(--history "$work/history.gz")
# It stops its servers by itself, also if we are told to end: not in a pipe, of which a signal would end
# this side before it has.  Whom we report to may have ended by then.
trap '' PIPE
status=0
as_user env PYTHONDONTWRITEBYTECODE=1 "$python" "tree/test/$program" --work "$work" --bindir "$bindir" "${arguments[@]}" \
	> >(trap '' TERM; as_tap) || status=$?
wait $!
[ -z "$history" ] || cp history.gz "$history"
[ -z "$record" ] || [ ! -e result ] || cat result >>"$record"
[ "$status" != 1 ] || [ "$kind" = differ ] || keep=yes
exit "$status"
