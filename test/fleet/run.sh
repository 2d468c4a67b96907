#!/bin/bash
# A campaign over a fleet: five servers, each with a clock of its own, whose node
# IDs are leased from a coordinator; clients that record every ID; and faults of
# servers, clocks, networks and the coordinator.  No ID may come twice.
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
begin fleet "$@"
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

leave()
{
	[ -z "$keep" ] || work=
}

# the socket's path may have 107 bytes
TMPDIR=/tmp make_workspace
if [ -n "$mutant" ]; then
	patch -s -d "$work/tree" -p1 <"$work/tree/test/fleet/mutants/$mutant.patch"
	say "mutant $mutant"
fi
private_installation >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
if [ ! -e "$work/inst$("$pg_config" --pkglibdir)/snowflake_$coordinator.so" ]; then
	die "the module of $coordinator was not built here"
fi
as_user cc -O2 -Wall -shared -fPIC -o "$work/clock_shim.so" "$work/tree/test/shim/clock_shim.c" -ldl -pthread

find_python
status=0
as_user "$python" "$work/tree/test/fleet/campaign.py" --work "$work" --bindir "$work/inst$bindir" "${arguments[@]}" | as_tap || status=$?
[ "$status" = 0 ] || keep=yes		# it has said so
exit "$status"
