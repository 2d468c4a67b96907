#!/bin/bash
# Fault campaign: clients mint IDs while servers are killed, their clocks stepped, standbys promoted and backups
# restored.  Builds the tree it lies in into a temporary directory and leaves the installed PostgreSQL as it is.
#
#   bash test/torture/run.sh [--minutes 2] [--seed 42] [--generator snowflake|naive]
#                            [--mutant published|canceled|ignored] [--rate IDS_PER_SECOND] [--clients 6] [--only KIND[,KIND...]] [--fsync] [--keep]
#   bash test/torture/run.sh tail [--minutes 1] [--seed 42] [--reader max|statement] [--mutant early|xid|late] [--compare] [--keep]
#
# The second is about the frontier: writers and servers that die, and readers that must miss nothing.
#
# Exit status: 0 nothing found, 1 a violation or a campaign too small to mean anything, 2 it could not run.
# Environment: PG_CONFIG (pg_config), PYTHON (one that has psycopg2), CLOCK_SHIM (test/shim/clock_shim.c), TMPDIR.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
pg_config=${PG_CONFIG:-pg_config}
clock_shim=${CLOCK_SHIM:-$root/test/shim/clock_shim.c}
generator=snowflake
campaign=campaign.py
mutant=
keep=no
pass=()

die() { echo "torture: $*" >&2; exit 2; }

if [ "${1:-}" = tail ]; then
	campaign=tail.py
	shift
fi
while [ $# -gt 0 ]; do
	case $1 in
		--mutant) mutant=${2:?--mutant needs a name}; shift 2 ;;
		--reader) pass+=("$1" "${2:?$1 needs a value}"); shift 2 ;;
		--compare) pass+=("$1"); shift ;;
		--generator) generator=${2:?--generator needs a name}; shift 2 ;;
		--minutes|--seed|--rate|--clients|--only) pass+=("$1" "${2:?$1 needs a value}"); shift 2 ;;
		--fsync) pass+=("$1"); shift ;;
		--keep) keep=yes; shift ;;
		-h|--help) sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
		*) die "unknown option $1" ;;
	esac
done
case $generator in snowflake|naive) ;; *) die "unknown generator $generator" ;; esac

command -v "$pg_config" >/dev/null || die "pg_config is missing (Debian: postgresql-server-dev-15)"
command -v cc >/dev/null || die "a C compiler is missing (Debian: gcc libc6-dev)"
[ -f "$clock_shim" ] || die "no clock shim at $clock_shim"
python=
for candidate in ${PYTHON:-python3 /usr/bin/python3}; do
	if "$candidate" -c 'import psycopg2' 2>/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || die "no Python with psycopg2 (Debian: python3-psycopg2)"

# The socket's path may have 107 bytes, so the directory's name is short.
work=$(mktemp -d "${TMPDIR:-/tmp}/sftort.XXXXXX")
chmod 755 "$work"
mounts=()
evidence=no

# initdb refuses root
if [ "$(id -u)" = 0 ]; then
	owner=postgres
	id "$owner" >/dev/null 2>&1 || die "started by root, but there is no user $owner to run the servers"
	as_owner() { runuser -u "$owner" -- "$@"; }
else
	owner=$(id -un)
	as_owner() { "$@"; }
fi

cleanup() {
	local dir
	trap - EXIT
	for dir in "${mounts[@]:+${mounts[@]}}"; do
		[ $evidence = no ] || cp -a "$dir" "$dir.kept"
		umount "$dir" 2>/dev/null || umount -l "$dir" || true
	done
	if [ $evidence = yes ] || [ $keep = yes ]; then
		echo "evidence kept in $work"
	else
		rm -rf "$work"
	fi
}
trap cleanup EXIT

# A private copy of the PostgreSQL installation: its programs find their libraries and scripts relative to themselves,
# so the extension can be installed there by anybody, in any variant, next to whatever the machine has installed.
private_installation() {
	local dir
	for dir in "$("$pg_config" --pkglibdir)" "$("$pg_config" --sharedir)"; do
		mkdir -p "$work/inst$dir"
		cp -rs "$dir/." "$work/inst$dir/"
	done
	rm -f "$work/inst$("$pg_config" --pkglibdir)"/snowflake*
	rm -f "$work/inst$("$pg_config" --sharedir)"/extension/snowflake*
	dir=$("$pg_config" --bindir)
	mkdir -p "$work/inst$dir"
	cp -L "$dir"/{postgres,initdb,pg_ctl,pg_basebackup} "$work/inst$dir/"
}

# Replace a text, a Perl expression, that a file has once.
replace_once() {
	perl -0777 -i -pe "\$n = $2; END { exit(\$n != 1) }" "$work/src/$1" || die "$1 has changed"
}

# Variants without the promise: the limit is published before the reservation is committed, a commit counts although the
# wait for the standby was canceled, and a server that starts does not look at what is stored.
break_promise() {
	case $mutant in
		published)
			replace_once src/reserve.c \
				's/^(\tsnowflake_begin\("extending the reservation"\);\n.*?)(\tsnowflake_extend\(limit, .*?\n)/$2$1/sm'
			;;
		canceled)
			replace_once src/durable.c 's/if \(cancel_arrived \|\| ProcDiePending\)/if (false)/'
			;;
		ignored)
			replace_once src/reserve.c 's/return stored->found \? Max\(last, .*?\) : last;/return last;/'
			;;
		*) die "unknown mutant $mutant" ;;
	esac
}

# Variants that let the frontier pass rows: the slot of a commit that waits for its standby does not count, or that of
# a transaction without an xid, or the slot is filled after the mint.
break_frontier() {
	local ended='holder != snowflake_running(proc)' also

	case $mutant in
		early|xid)
			also='!TransactionIdIsValid(proc->xid)'
			[ $mutant = xid ] || also='proc->syncRepState != 0'
			sed -i "s/$ended/& || $also/" "$1/src/frontier.c"
			[ "$(grep -cF "$ended || $also" "$1/src/frontier.c")" = 1 ] || die "src/frontier.c has changed"
			;;
		late)
			sed -i '/^\tsnowflake_hold_frontier();$/d
				/^\tSNOWFLAKE_INJECTION_POINT("snowflake-minted");$/a\\tif (!snowflake_holds_frontier())\n\t\tsnowflake_hold_frontier();' \
				"$1/src/mint.c"
			[ "$(grep -c 'snowflake_hold_frontier();' "$1/src/mint.c")" = 1 ] || die "src/mint.c has changed"
			;;
		*) die "unknown mutant $mutant" ;;
	esac
}

echo "campaign in $work, ${mutant:+mutant $mutant, }generator $generator"
private_installation
cc -O2 -Wall -shared -fPIC -o "$work/clock_shim.so" "$clock_shim" -ldl -pthread
cp "$here"/*.py "$work/"
if [ "$generator" != naive ]; then
	mkdir "$work/src"
	tar -C "$root" --exclude=./.git --exclude='*.o' --exclude='*.so' --exclude='*.bc' -cf - . | tar -C "$work/src" -xf -
	if [ -n "$mutant" ] && [ $campaign = tail.py ]; then
		break_frontier "$work/src"
	elif [ -n "$mutant" ]; then
		break_promise
	fi
	chown -R "$owner" "$work/src" "$work/inst" 2>/dev/null || true
	as_owner make -s -C "$work/src" PG_CONFIG="$pg_config" with_llvm=no >"$work/build.log" 2>&1 &&
		as_owner make -s -C "$work/src" PG_CONFIG="$pg_config" with_llvm=no DESTDIR="$work/inst" install \
			>>"$work/build.log" 2>&1 ||
		{ cat "$work/build.log"; die "the extension does not build"; }
fi
chown "$owner" "$work"

# Two small file systems for each of the two servers, one for WAL and one for the reservation's table: they can be
# filled.  Each server has its own, so that a full disk of the primary leaves its standby alone.
if [ "$(id -u)" = 0 ] && [ $campaign = campaign.py ]; then
	for slot in 0 1; do
		for spec in wal$slot:160m spc$slot:1m; do
			mkdir "$work/${spec%%:*}"
			if mount -t tmpfs -o "size=${spec##*:},mode=755,uid=$owner" snowflake-torture "$work/${spec%%:*}" \
				2>"$work/mount.log"; then
				mounts+=("$work/${spec%%:*}")
			fi
		done
	done
fi
if [ ${#mounts[@]} = 4 ]; then
	pass+=(--small-disks)
elif [ $campaign = campaign.py ]; then
	echo "full disk: left out, a tmpfs cannot be mounted here$([ "$(id -u)" = 0 ] || echo ' (needs root)')"
fi

status=0
as_owner "$python" "$work/$campaign" --work "$work" --bindir "$work/inst$("$pg_config" --bindir)" \
	--generator "$generator" "${pass[@]:+${pass[@]}}" &
child=$!
trap 'kill -TERM "$(cat "$work/campaign.pid")" 2>/dev/null || true' INT TERM
# A trapped signal ends the first wait early; the campaign then stops its servers by itself.
wait $child || status=$?
while kill -0 $child 2>/dev/null; do status=0; wait $child || status=$?; done
[ $status != 1 ] || evidence=yes
exit $status
