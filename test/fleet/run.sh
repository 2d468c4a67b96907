#!/bin/bash
# A campaign over a fleet: five servers, each with a clock of its own, whose node
# IDs are leased from a coordinator; clients that record every ID; and faults of
# servers, clocks, networks and the coordinator.  No ID may come twice.  The last
# line of the output is "N passed, N failed".
#
#   bash test/fleet/run.sh --coordinator etcd            two minutes; postgresql, zookeeper, consul
#   bash test/fleet/run.sh --coordinator etcd --minutes 15 --seed 7
#   bash test/fleet/run.sh --coordinator etcd --only 'pause,copy of a running server'
#   bash test/fleet/run.sh --coordinator etcd --renewals 10000
#                                        no faults: the memory of a lessee
#   bash test/fleet/run.sh --coordinator etcd --mutant resume
#                                        a rule is broken (mutants/*.patch): it has to find duplicates
#   bash test/fleet/run.sh ... --keep    keeps the directory with all logs, events and IDs,
#                                        as a run that fails does
#
# The extension is installed into a private copy of the PostgreSQL installation.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
. "$root/test/coordinators.sh"

coordinator=etcd
mutant=
keep=
arguments=()
while [ $# -gt 0 ]; do
	case $1 in
		--mutant) mutant=${2:?--mutant needs a name}; shift ;;
		--keep) keep=yes; arguments+=("$1") ;;
		--coordinator) coordinator=${2:?--coordinator needs a kind}; arguments+=("$1" "$2"); shift ;;
		*) arguments+=("$1") ;;
	esac
	shift
done

# A private copy of the PostgreSQL installation: its programs find their libraries
# and scripts relative to themselves.
private_installation()
{
	local dir

	for dir in "$("$pg_config" --pkglibdir)" "$("$pg_config" --sharedir)"; do
		mkdir -p "$work/inst$dir"
		cp -rs "$dir/." "$work/inst$dir/"
	done
	rm -f "$work/inst$("$pg_config" --pkglibdir)"/snowflake*
	rm -f "$work/inst$("$pg_config" --sharedir)"/extension/snowflake*
	mkdir -p "$work/inst$bindir"
	cp -L "$bindir"/{postgres,initdb,pg_ctl,pg_basebackup} "$work/inst$bindir/"
}

# The campaign stops its servers by itself.
leave()
{
	[ -z "${child:-}" ] || ! kill -TERM "$child" 2>/dev/null || wait "$child" || true
	[ -z "$keep" ] || work=
	cleanup
}

step=$(mktemp)
{ install_missing torture && install_coordinators; } >"$step" 2>&1 || { cat "$step"; rm -f "$step"; exit 1; }
rm -f "$step"
# the socket's path may have 107 bytes
TMPDIR=/tmp make_workspace
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -n "$mutant" ]; then
	patch -s -d "$work/tree" -p1 <"$work/tree/test/fleet/mutants/$mutant.patch"
	say "mutant $mutant"
fi
private_installation
make_args=(-s COPT=)
tree_make as_user >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
make_args=(-s "DESTDIR=$work/inst" install)
tree_make env >>"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
if [ ! -e "$work/inst$("$pg_config" --pkglibdir)/snowflake_$coordinator.so" ]; then
	say "the module of $coordinator was not built here"
	say "0 passed, 1 failed"
	exit 1
fi
as_user cc -O2 -Wall -shared -fPIC -o "$work/clock_shim.so" "$work/tree/test/shim/clock_shim.c" -ldl -pthread

python=
for candidate in ${PYTHON:-python3 /usr/bin/python3}; do
	if "$candidate" -c 'import psycopg2' 2>/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || die "no Python with psycopg2 (Debian: python3-psycopg2)"
as_user "$python" "$work/tree/test/fleet/campaign.py" --work "$work" --bindir "$work/inst$bindir" "${arguments[@]}" &
child=$!
status=0
wait "$child" || status=$?
child=
[ "$status" = 0 ] || keep=yes		# it has said so
exit "$status"
