#!/bin/bash
# The benchmarks: build the extension, measure it beside what else makes keys,
# on throw-away servers, and write test/bench/report/benchmarks.md with plots.
# Leaves the installed PostgreSQL as it is.  Runs as root or as a user with sudo.
#
#   bash test/bench/run.sh                       everything, about 20 minutes
#   bash test/bench/run.sh --quick               everything, small: does it work?
#   bash test/bench/run.sh mint bare             some parts of: mint bare tail insert
#                                                bulk shapes range decode public
#   bash test/bench/run.sh --full insert         10,000,000 rows as well: 4 more
#   bash test/bench/run.sh --version 18          with that PostgreSQL, in a chroot as
#                                                for test/matrix.sh if it is not here
#   bash test/bench/run.sh --pgedge DIR mint     beside pgEdge's snowflake too, of
#                                                which DIR is the source
#   bash test/bench/run.sh --note TEXT           and say so at the top of the report
#   bash test/bench/run.sh --publish             everything, and copy the report to doc/

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/../chroots.sh"

report=$root/test/bench/report
options=()
arguments=("$@")
note=()
pgedge=
publish=
version=
# which state of the tree is measured
tree=$(git -C "$root" describe --always --dirty 2>/dev/null) || tree=unknown

# The verdict goes to the terminal, wherever the output of the step that died
# was going.
exec 3>&1 4>&2
child=
finish()
{
	local status=$? pid_file

	trap - EXIT INT TERM
	exec >&3 2>&4
	if [ -n "$child" ] && [ -z "$work" ]; then
		kill -KILL -- "-$child" 2>/dev/null || true
	elif [ -n "$child" ] && [ -e "$work/bench.pid" ]; then
		# it stops its servers
		as_user kill -TERM "$(cat "$work/bench.pid")" 2>/dev/null || true
		wait "$child" || true
	fi
	if [ -n "$work" ]; then
		[ "$status" = 0 ] || [ ! -e "$work/step.log" ] || tail -n 40 "$work/step.log"
		while read -r pid_file; do
			as_user "$bindir/pg_ctl" -D "${pid_file%/*}" -m immediate -w stop >/dev/null || true
		done < <(compgen -G "$work/*/postmaster.pid")
	fi
	cleanup
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Install what the benchmarks need and lib.sh does not: pgstattuple comes with
# the server, Python with Debian's base in most cases.
install_python()
{
	command -v python3 >/dev/null && return
	apt_update_once
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3
}

# A copy of the PostgreSQL installation, in links: its programs find libraries
# and scripts relative to themselves, so any extension can be added.
# $1: where, $2: the directory to build and install from, as the user
private_installation()
{
	local inst=$1 tree=$2 dir make=(make -s "PG_CONFIG=$pg_config" with_llvm=no USE_PGXS=1)

	for dir in "$("$pg_config" --pkglibdir)" "$("$pg_config" --sharedir)"; do
		as_user mkdir -p "$inst$dir"
		as_user cp -rs "$dir/." "$inst$dir/"
		as_user find "$inst$dir" -name 'snowflake*' -prune -exec rm -rf {} +
	done
	as_user mkdir -p "$inst$bindir"
	as_user cp -L "$bindir"/{postgres,initdb,pg_ctl,psql,pgbench} "$inst$bindir/"
	as_user "${make[@]}" -C "$tree"
	as_user "${make[@]}" -C "$tree" DESTDIR="$inst" install
}

read_options()
{
	local option

	while [ $# -gt 0 ]; do
		case $1 in
			--pgedge)
				pgedge=$(realpath -e "${2:?--pgedge needs a directory}")
				shift
				;;
			--publish)
				publish=yes
				;;
			--version)
				version=${2:?--version needs a number}
				shift
				;;
			--note)
				note=("$1" "${2:?--note needs a text}")
				shift
				;;
			--tree)
				tree=${2:?--tree needs a name}
				shift
				;;
			--quick | --full | mint | bare | tail | insert | bulk | shapes | range | decode | public)
				options+=("$1")
				;;
			*)
				sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
				[ "$1" = --help ] && exit 0 || exit 2
				;;
		esac
		shift
	done
	if [ -n "$publish" ]; then
		for option in "${options[@]:+${options[@]}}"; do
			[ -z "$option" ] || [ "$option" = --full ] || die "only the whole report is worth publishing, without $option"
		done
	fi
}

# In the chroot that has the version: the same script, beside a copy of the tree,
# which takes pgEdge's source along.
measure_in_chroot()
{
	local also=()

	rm -rf "$report"
	mkdir -p "$report"
	if [ -n "$pgedge" ]; then
		cp -r "$pgedge" "$report/pgedge"
		also=(--pgedge /src/test/bench/report/pgedge)
	fi
	open_chroot "$version" "${suites_of[$version]:-}" "$version" || return
	in_chroot "$version" bash /src/test/bench/run.sh --tree "$tree" "${also[@]:+${also[@]}}" \
		"${note[@]:+${note[@]}}" "${options[@]:+${options[@]}}" || return
	rm -rf "$report"
	cp -r "$cache/$version/src/test/bench/report" "$report"
}

main()
{
	if [ -n "$version" ] && ! PG_CONFIG=$(installed_pg_config "$version"); then
		become_root "${arguments[@]}"
		install_missing chroots
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
	say "report: test/bench/report/benchmarks.md"
	if [ -n "$publish" ]; then
		mkdir -p "$root/doc/benchmarks"
		rm -f "$root/doc/benchmarks"/*.svg
		cp "$report/benchmarks.md" "$root/doc/"
		cp "$report/benchmarks"/*.svg "$root/doc/benchmarks/"
		say "published: doc/benchmarks.md"
	fi
}

measure()
{
	say "install what is missing"
	install_missing
	install_python
	make_workspace
	bindir=$("$pg_config" --bindir)

	say "build"
	{
		private_installation "$work/inst" "$work/tree"
		as_user cc -O2 -Wall -Werror -shared -fPIC -I"$("$pg_config" --includedir-server)" \
			-o "$work/floor.so" "$work/tree/test/bench/floor.c"
		if [ -n "$pgedge" ]; then
			as_user mkdir "$work/pgedge"
			tar -C "$pgedge" -cf - --exclude=./.git . | as_user tar -C "$work/pgedge" -xf - --no-same-owner
			private_installation "$work/inst-pgedge" "$work/pgedge"
			options+=(--pgedge-bindir "$work/inst-pgedge$bindir")
		fi
	} >"$work/step.log" 2>&1

	as_user env PYTHONDONTWRITEBYTECODE=1 python3 "$work/tree/test/bench/bench.py" \
		--work "$work" --bindir "$work/inst$bindir" --tree "$tree" \
		"${note[@]:+${note[@]}}" "${options[@]:+${options[@]}}" &
	child=$!
	: >"$work/step.log"
	wait "$child"
	child=

	rm -rf "$report"
	mkdir -p "$report"
	cp -r "$work/report/." "$report/"
}

# In one line, so that nothing is read from this file any more while it runs:
# it may be edited meanwhile.
read_options "$@"; main; exit
