#!/bin/bash
# The benchmarks: build the extension, measure it beside what else makes keys, on throw-away
# servers, and write tables, of minting, inserts, filters on time and a migration, to
# test/bench/report.md.  Leaves the installed PostgreSQL as it is.  Runs as root or as a user
# with sudo.
#
#   bash test/bench/run.sh                       everything, about 30 minutes
#   bash test/bench/run.sh --quick               everything, small: does it work?
#   bash test/bench/run.sh minting inserts       some of minting, inserts, times, migrate
#   bash test/bench/run.sh --version 18          with that PostgreSQL, in a chroot as
#                                                for test/matrix.sh if it is not here
#   bash test/bench/run.sh --pgedge DIR          beside pgEdge's snowflake too, of
#                                                which DIR is the source

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
. "$root/test/debian.sh"

report=$root/test/bench/report.md
options=()
arguments=("$@")
pgedge=
version=
# which state of the tree is measured
tree=$(git -C "$root" describe --always --dirty 2>/dev/null) || tree=unknown

child=
leave()
{
	if [ -n "$child" ] && [ -z "$work" ]; then
		kill -KILL -- "-$child" 2>/dev/null || true
	elif [ -n "$child" ] && [ -e "$work/bench.pid" ]; then
		# it stops its servers
		as_user kill -TERM "$(cat "$work/bench.pid")" 2>/dev/null || true
		wait "$child" || true
	fi
}

# The others are options of bench.py.
while [ $# -gt 0 ]; do
	case $1 in
		--pgedge) pgedge=$(realpath -e "${2:?--pgedge needs a directory}"); shift ;;
		--version) version=${2:?--version needs a number}; shift ;;
		*) options+=("$1") ;;
	esac
	shift
done

# In the chroot that has the version: the same script, beside a copy of the tree, which takes
# pgEdge's source along.
measure_in_chroot()
{
	local also=()

	open_chroot "$version" "${suites_of[$version]:-}" "$version" || return
	if [ -n "$pgedge" ]; then
		rm -rf --one-file-system "$cache/$version/srv/pgedge"
		cp -r "$pgedge" "$cache/$version/srv/pgedge"
		also=(--pgedge /srv/pgedge)
	fi
	in_chroot "$version" bash /src/test/bench/run.sh --tree "$tree" "${also[@]}" "${options[@]}" || return
	cp "$cache/$version/src/test/bench/report.md" "$report"
}

build()
{
	private_installation
	as_user cc -O2 -Wall -Werror -shared -fPIC -I"$("$pg_config" --includedir-server)" \
		-o "$work/floor.so" "$work/tree/test/bench/floor.c"
	[ -n "$pgedge" ] || return 0
	as_user mkdir -p "$work/pgedge/tree"
	tar -C "$pgedge" -cf - --exclude=./.git . | as_user tar -C "$work/pgedge/tree" -xf - --no-same-owner
	work=$work/pgedge
	private_installation USE_PGXS=1
}

measure()
{
	say "install what is missing"
	install_missing
	install_packages python3
	make_workspace
	say "build"
	build >"$work/step.log" 2>&1 &
	wait $! || { tail -n 40 "$work/step.log"; exit 1; }
	[ -z "$pgedge" ] || options+=(--pgedge-bindir "$work/pgedge/inst$bindir")

	as_user env PYTHONDONTWRITEBYTECODE=1 python3 "$work/tree/test/bench/bench.py" \
		--work "$work" --bindir "$work/inst$bindir" --tree "$tree" "${options[@]}" &
	child=$!
	wait "$child"
	child=
	cp "$work/report.md" "$report"
}

main()
{
	if [ -n "$version" ] && ! PG_CONFIG=$(installed_pg_config "$version"); then
		become_root "${arguments[@]}"
		install_missing
		# a group of its own, which can be ended as a whole
		set -m
		measure_in_chroot &
		child=$!
		set +m
		wait "$child"
		child=
	else
		[ -z "$version" ] || export PG_CONFIG
		measure
	fi
	say "report: test/bench/report.md"
}

# In one line, so that nothing is read from this file any more while it runs:
# it may be edited meanwhile.
main; exit
