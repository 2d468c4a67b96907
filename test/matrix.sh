#!/bin/bash
# Build and test with several versions of PostgreSQL: without warnings with gcc
# and with clang, then the regression, isolation and TAP tests, each version
# where Debian has it.  A version that is installed here is tested here, any
# other in a chroot of the suite that carries it.  The chroots take a minute and
# 1.5 GB each to make, and are kept: in /var/cache/snowflake-matrix, or in
# $SNOWFLAKE_MATRIX_CACHE.  Removing one of them is always safe, and how to get
# newer packages.
#
#   bash test/matrix.sh                   every supported version
#   bash test/matrix.sh 17 18             some of them
#   bash test/matrix.sh --except 15       all but this one
#   bash test/matrix.sh --prepare 17 18   only make the chroots
#   bash test/matrix.sh --jobs 1          so many at a time; one more than there are
#                                         processors if not given, for most tests wait
#
# Needs root, or sudo without a password.  The last line of the output is "N
# passed, N failed".  A version that could not be set up is neither, and named
# in the line above; it is a failure only if no other could be.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/chroots.sh"

kinds=(build regress isolation tap)
jobs=$(($(nproc) + 1))
prepare=
versions=
except=
arguments=("$@")
while [ $# -gt 0 ]; do
	case $1 in
		--prepare)
			prepare=yes
			jobs=1
			;;
		--except)
			except=${2:?--except needs a version}
			shift
			;;
		--jobs)
			jobs=${2:?--jobs needs a number}
			shift
			;;
		*[!0-9]*)
			die "no version of PostgreSQL: \"$1\""
			;;
		*)
			versions+=" $1"
			;;
	esac
	shift
done
if [ -z "$versions" ]; then
	for version in $default_versions; do
		[ "$version" = "$except" ] || versions+=" $version"
	done
fi
become_root "${arguments[@]}"

results=$(mktemp -d)
finished=

# Print the verdict, whatever has happened before.
finish()
{
	local version passed=0 failed=0 skipped=0 ok bad skip tested='' absent=''

	trap - EXIT
	kill_jobs
	for version in $versions; do
		if [ -e "$results/$version.missing" ]; then
			absent+=" $version"
		elif [ -e "$results/$version.count" ]; then
			tested+=" $version"
			read -r ok bad skip <"$results/$version.count"
			passed=$((passed + ok))
			failed=$((failed + bad))
			skipped=$((skipped + skip))
		elif [ -n "$finished" ] && [ -z "$prepare" ]; then
			say "PostgreSQL $version: no results"
			failed=$((failed + 1))
		fi
	done
	rm -rf "$results"
	if [ -z "$finished" ]; then
		say "the run ended early"
		failed=$((failed + 1))
	elif [ -z "$prepare" ] && [ -z "$tested" ]; then
		failed=$((failed + 1))
	fi
	say "tested:${tested:- none}${absent:+; could not be set up:$absent}"
	[ "$skipped" = 0 ] || say "$skipped skipped"
	say "$passed passed, $failed failed"
	[ "$failed" = 0 ] || exit 1
	exit 0
}

# Each job is the leader of a process group, which is gone when its last server
# has stopped: a run of run.sh stops them when it is told to end.
kill_jobs()
{
	local groups left group attempt signal=TERM

	groups=$(jobs -p)
	disown -a
	for attempt in {1..20}; do
		left=
		for group in $groups; do
			! kill -"$signal" -- "-$group" 2>/dev/null || left+=" $group"
		done
		groups=$left
		[ -n "$groups" ] || break
		signal=0
		[ "$attempt" -lt 19 ] || signal=KILL
		sleep 1
	done
}

# Pass on what a run of run.sh prints, folded to a line per kind, with the
# details of what failed.
fold()
{
	local version=$1 line kind='' last='' ok=0 bad=0 skip=0
	local result='^\[ *[0-9]+ s\] ([a-z]+)( [^:]*)?: ([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$'

	while IFS= read -r line; do
		if [[ $line =~ $result ]]; then
			kind=${BASH_REMATCH[1]}
			if [ -n "$last" ] && [ "$kind" != "$last" ]; then
				progress "PostgreSQL $version: $last: $ok passed, $bad failed"
				ok=0 bad=0
			fi
			last=$kind
			ok=$((ok + BASH_REMATCH[3]))
			bad=$((bad + BASH_REMATCH[4]))
			if [ "${BASH_REMATCH[4]}" != 0 ]; then
				progress "PostgreSQL $version: ${line#*] }"
			fi
		elif [[ $line =~ ^([0-9]+)\ skipped$ ]]; then
			skip=${BASH_REMATCH[1]}
		elif [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
			[ -z "$last" ] || progress "PostgreSQL $version: $last: $ok passed, $bad failed"
			say "${BASH_REMATCH[1]} ${BASH_REMATCH[2]} $skip" >"$results/$version.count"
		elif [[ $line != \[*" s] "* ]]; then
			say "PostgreSQL $version: $line"
		fi
	done
}

# Set up a version and test it.
run_version()
{
	local version=$1 pg_config='' why='' command=()

	set +m
	if pg_config=$(installed_pg_config "$version"); then
		[ -z "$prepare" ] || return 0
		progress "PostgreSQL $version: here, ${kinds[*]}"
		command=(env PG_CONFIG="$pg_config" SECONDS="$SECONDS" bash "$root/test/run.sh" "${kinds[@]}")
	else
		progress "PostgreSQL $version: set up"
		if [ -z "${suites_of[$version]:-}" ]; then
			why="no suite of Debian that has it is known here"
		else
			open_chroot "$version" "${suites_of[$version]}" "$version" >"$results/$version.why" ||
				why=$(<"$results/$version.why")
		fi
		if [ -n "$why" ]; then
			: >"$results/$version.missing"
			progress "PostgreSQL $version: could not be set up: $why"
			return 0
		fi
		[ -z "$prepare" ] || return 0
		progress "PostgreSQL $version: ${kinds[*]}"
		command=(in_chroot "$version" bash /src/test/run.sh "${kinds[@]}")
	fi
	"${command[@]}" 2>&1 | fold "$version"
}

trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ "$(id -u)" = 0 ]; then
	install_missing chroots >"$results/install.log" 2>&1 || tail -n 5 "$results/install.log"
fi
set -m
for version in $versions; do
	while [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do
		wait -n || true
	done
	run_version "$version" &
done
wait
finished=yes
