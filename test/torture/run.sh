#!/bin/bash
# Fault campaign: clients mint IDs while servers are killed, their clocks stepped, standbys promoted and backups
# restored.  Builds the tree into a private copy of the PostgreSQL installation.
#
#   bash test/torture/run.sh [--minutes 2] [--seed 42] [--generator snowflake|naive]
#                            [--mutant published|canceled|ignored] [--rate IDS_PER_SECOND] [--clients 6] [--only KIND[,KIND...]] [--fsync] [--keep]
#   bash test/torture/run.sh tail [--minutes 1] [--seed 42] [--reader max|statement] [--mutant early|xid|late] [--compare] [--keep]
#
# The second is about the frontier: writers and servers that die, and readers that must miss nothing.  A mutant is a
# fault in the extension, mutants/*.patch, that breaks the promise: the campaign has to find it.
#
# One result: it fails with a violation, or if the campaign is too small to mean anything.
# Environment: PG_CONFIG, PYTHON (one that has psycopg2).

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
begin torture "${@:---minutes=2}"

title="torture $*"
campaign=campaign.py
mutant=
keep=
pass=()
if [ "${1:-}" = tail ]; then
	campaign=tail.py
	shift
fi
while [ $# -gt 0 ]; do
	case $1 in
		--mutant) mutant=${2:?--mutant needs a name}; shift ;;
		--keep) keep=yes ;;
		*) pass+=("$1") ;;
	esac
	shift
done

mounts=()
leave()
{
	local dir

	cd /
	for dir in "${mounts[@]}"; do
		[ -z "$keep" ] || cp -a "$dir" "$dir.kept"
		umount "$dir" 2>/dev/null || umount -l "$dir" || true
	done
	[ -z "$keep" ] || say "# evidence kept in $work"
	[ -z "$keep" ] || work=
}

find_python
# the socket's path may have 107 bytes
TMPDIR=/tmp make_workspace
chmod 755 "$work"
as_user cc -O2 -Wall -shared -fPIC -o "$work/clock_shim.so" "$work/tree/test/shim/clock_shim.c" -ldl -pthread
[ -z "$mutant" ] || as_user patch -s -d "$work/tree" -p1 <"$root/test/torture/mutants/$mutant.patch"
private_installation >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }

# Two small file systems for each of the two servers, one for WAL and one for the reservation's table: they can be
# filled.  Each server has its own, so that a full disk of the primary leaves its standby alone.
if [ "$(id -u)" = 0 ] && [ $campaign = campaign.py ]; then
	for spec in wal0:160m spc0:1m wal1:160m spc1:1m; do
		dir=$work/${spec%:*}
		mkdir "$dir"
		! mount -t tmpfs -o "size=${spec#*:},mode=755,uid=$(id -u "$(test_user)")" snowflake-torture "$dir" || mounts+=("$dir")
	done
fi
if [ ${#mounts[@]} = 4 ]; then
	pass+=(--small-disks)
elif [ $campaign = campaign.py ]; then
	say "# full disk: left out, a tmpfs cannot be mounted here$([ "$(id -u)" = 0 ] || echo ' (needs root)')"
fi

# it stops its servers by itself
status=0
as_user env PYTHONDONTWRITEBYTECODE=1 "$python" "$work/tree/test/torture/$campaign" --work "$work" --bindir "$work/inst$bindir" \
	"${pass[@]}" || status=$?
[ "$status" != 1 ] || keep=yes
result "$status" "$title"
