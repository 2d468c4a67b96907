#!/bin/bash
# Plant faults in a copy of the tree, one at a time, and see which test notices.
# README.md says how the list of them is written.
#
#   bash test/mutate/run.sh               all of them, which takes hours
#   bash test/mutate/run.sh NAME src/gate.c
#                                         some, by their names or their files
#   --jobs N                              so many at once; 1 if it is not said
#   --first                               only the tests that ought to see a mutant; who is not
#                                         seen by them is not recorded
#   --new                                 only mutants that results.txt has no result for
#   --list                                show them, and check that they apply
#
# A mutant is built, and tested with the tests that ought to see it, until one of
# them fails; if none does, with all others.  It is killed if a test fails, a TAP
# test twice, that passes without it, or takes far longer than without it.  One that does not
# apply exactly once, or does not build, is an error of the list.  What comes of it
# is put into results.txt at once.  One result for each: killed is ok; survived, or
# an error, is not.  The order is random, but always the same: where a run ends early,
# what it has tried is a sample.
#
# The tests are those of run.sh; "debug" before one of them means the server that
# debug.sh builds, with assertions and injection points.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

arguments=("$@")
jobs=1
first_only=
list_only=
selection=()
while [ $# -gt 0 ]; do
	case $1 in
		--jobs) jobs=$2; shift ;;
		--first) first_only=yes ;;
		--list) list_only=yes ;;
		--new | [^-]*) selection+=("$1") ;;
		*) die "unknown option: $1" ;;
	esac
	shift
done

if [ -n "$list_only" ]; then
	perl "$root/test/mutate/mutants.pl" list "$root" "${selection[@]}" |
		awk -F '\x1f' '{ printf "%s (%s): %s\n    %s\n", $1, $2, $5, $3 != "" ? $3 : "equivalent: " $4 }'
	exit
fi
begin mutate "${arguments[@]}"
top=$work
declare -A server=([plain]=$pg_config)

# Go to a bench of this job, and make it if it is not there yet: what mutants are tested
# on, which is a private installation and a tree that is built for it.
# $1: plain or debug
enter_bench()
{
	work=$top/$job/$1
	PG_CONFIG=${server[$1]}
	find_pg_config
	if [ ! -e "$work" ]; then
		as_user mkdir -p "$work/tmp"
		copy_tree "$work/tree"
		private_installation >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
		as_user cp -a "$work/tree" "$work/pristine"
		bindir=$work/inst$bindir make_template >"$work/initdb.log" 2>&1
	fi
	bindir=$work/inst$bindir
	export INITDB_TEMPLATE=$work/template TMPDIR=$work/tmp
}

# Build and install the tree with a mutant, or without one
plant()
{
	[ "$(cat "$work/planted" 2>/dev/null)" != "with $1" ] || return 0
	rm -rf "$work/tree" "$work/planted"
	as_user cp -a "$work/pristine" "$work/tree"
	[ -z "$1" ] || perl "$root/test/mutate/mutants.pl" apply "$work/tree" "$1" || return
	# objects do not depend on it
	cmp -s "$work"/{pristine,tree}/Makefile || tree_make clean
	private_installation >"$work/build.log" 2>&1 || return
	say "with $1" >"$work/planted"
}

# A line that says what failed
reason_of_failure()
{
	sed -nE '/^not ok/{/# *TODO/!{s/ *[0-9]+ ms$//;p;q}}' "$work/test.log" | tr -s ' '
}

# Run a test until it ends, or something of it fails, or it has taken too long.
# Sets outcome to "passed", "skipped" or why it failed, and took.
# $1: the limit in seconds, further: the test
run_test()
{
	local limit=$1 kind=$2 started=$SECONDS status=0 command

	shift 2
	[ "$kind" != tap ] || kind=test/t/$1.pl
	rm -rf "$work/run"
	command=$(installcheck "$work/run" "$kind" "$@")
	timeout -k 5 "$limit" bash -o pipefail -c "$command" >"$work/test.log" 2>&1 9>&- &
	running=$!
	while kill -0 "$running" 2>/dev/null; do
		if [ -n "$(reason_of_failure)" ]; then
			kill "$running" 2>/dev/null || true
			break
		fi
		sleep 0.2
	done
	wait "$running" || status=$?
	running=
	stop_servers
	took=$((SECONDS - started))

	outcome=$(reason_of_failure)
	if [ "$status" = 124 ]; then
		outcome="no end after $limit s"
	elif [ -z "$outcome" ] && [ "$status" != 0 ]; then
		outcome="exit status $status"
	elif [ -z "$outcome" ]; then
		outcome=$(grep -q '^ok' "$work/test.log" && say passed || say skipped)
	fi
}

# How long a test takes here without a mutant, and whether it passes; once for all
# jobs.  Sets baseline to the seconds, and why_not to why it is of no use.
# $1: the bench, further: the test
measure()
{
	local file=$top/baseline/${*// /_}

	shift
	exec 9>"$file.lock"
	flock 9
	if [ ! -e "$file" ]; then
		plant "" || die "the tree does not build"
		run_test 900 "$@"
		if [ "$outcome" != passed ] && [ "$outcome" != skipped ]; then
			# once more: it may have been the machine
			say "# without a mutant, $*: $outcome"
			run_test 900 "$@"
		fi
		say "$took ${outcome#passed}" >"$file"
	fi
	exec 9>&-
	read -r baseline why_not <"$file"
}

# Does a test fail with a mutant?  Sets killer to what failed, or problem if that
# cannot be told.  $1: the mutant, $2: the test
sees()
{
	local mutant=$1 test=$2 bench=plain limit

	# shellcheck disable=SC2086 # its words
	set -- ${test#debug }
	[ "$*" = "$test" ] || bench=debug
	enter_bench $bench
	measure $bench "$@"
	if [ -n "$why_not" ]; then
		problem="without it, $test: $why_not"
	elif ! plant "$mutant"; then
		problem="it does not build: $(grep -m 1 -iE 'error' "$work/build.log" || true)"
	else
		limit=$((2 * baseline + 60))
		run_test $limit "$@"
		# it may have been the machine, if time matters: once more
		[ "$outcome" = passed ] || [ "$1" != tap ] || run_test $limit "$@"
		[ "$outcome" = passed ] || killer="$test: $outcome"
	fi
}

# All tests, one a line.  Those with injection points are run where these are.
all_tests()
{
	say regress
	say isolation
	(cd "$root/test/t" && compgen -G '*.pl') | sed 's/^\(.*\)\.pl$/tap \1/'
	(cd "$root/test/t" && grep -l injection_points -- *.pl) | sed 's/^\(.*\)\.pl$/debug tap \1/'
}

# Try one mutant, and write down what came of it.
# $1: its name, $2: the tests that ought to see it, separated by commas, $3: its digest
try_mutant()
{
	local name=$1 digest=$3 tests=() others=() test started=$SECONDS killer='' problem='' result

	mapfile -t tests < <(tr ',' '\n' <<<"$2" | sed 's/^ *//; s/ *$//')
	for test in "${tests[@]}"; do
		sees "$name" "$test"
		[ -z "$killer$problem" ] || break
	done
	if [ -z "$killer$problem" ] && [ -z "$first_only" ]; then
		mapfile -t others < <(all_tests | grep -vxF "$(printf '%s\n' "${tests[@]}")")
		for test in "${others[@]}"; do
			sees "$name" "$test"
			# a test that does not pass anyway says nothing
			problem=
			[ -z "$killer" ] || break
		done
	fi

	if [ -n "$problem" ]; then
		result="ERROR: $problem"
	else
		result=${killer:+killed by }${killer:-survived}
	fi
	say "$name: $result" >>"$top/results"
	say "$([ -n "$killer" ] || say 'not ')ok - $name: $result ($((SECONDS - started)) s)"
	# who only asks the first tests does not know who survives
	if [ -z "$problem" ] && [ -n "$killer" ] || [ -z "$problem$first_only" ]; then
		record "$name" "$digest" "$result"
	fi
}

record()
{
	flock 9
	perl "$SNOWFLAKE_CHECKOUT/test/mutate/mutants.pl" record "$SNOWFLAKE_CHECKOUT" "$@" || say "# $1: not recorded"
} 9>"$top/results.lock"

# All jobs read the same open file.
next_mutant()
{
	flock 9
	IFS=$'\x1f' read -r name _ tests _ _ digest <&3
} 9>"$top/queue.lock"

# Take one mutant after the other.
work_off()
{
	local job=$1 running='' name tests digest

	trap - EXIT
	# timeout hands it on, and takes five seconds at most
	trap '[ -z "$running" ] || { kill "$running"; wait "$running"; }; exit 143' TERM
	while next_mutant; do
		try_mutant "$name" "$tests" "$digest"
	done
}

as_user mkdir "$top/baseline"
perl "$root/test/mutate/mutants.pl" list "$root" "${selection[@]}" >"$top/list" 2>"$top/complaints" || true
sed 's/^/not ok - /' "$top/complaints"
awk -F '\x1f' '$4 != "" { print "# equivalent " $1 ": " $4 }' "$top/list"
# by the digests, so mixed: not all jobs wait for the same test without a mutant
awk -F '\x1f' '$4 == ""' "$top/list" | sort -t $'\x1f' -k 6 >"$top/queue"
say "# $(wc -l <"$top/queue") mutants, $jobs at once, $("$pg_config" --version), as user $(test_user)"
if [ -z "$first_only" ] || cut -d $'\x1f' -f 3 "$top/queue" | grep -q debug; then
	debug=$(bash "$root/test/debug.sh" build | tail -n 1)
	cp -a "${debug%/bin/pg_config}" "$top/debug"
	server[debug]=$top/debug/bin/pg_config
fi

exec 3<"$top/queue"
children=()
trap 'wait; exit 143' TERM
for ((i = 1; i <= jobs; i++)); do
	work_off "$i" &
	children+=($!)
done
status=0
for child in "${children[@]}"; do
	wait "$child" || status=1
done
touch "$top/results"
sort "$top/results" | awk -F ': ' '{ result = $2; sub(/ .*/, "", result); n[result]++ }
	result != "killed" { print "# " $0 }
	END {
		if (n["killed"] + n["survived"])
			printf "# score %.3f: ", n["killed"] / (n["killed"] + n["survived"])
		printf "%d killed, %d survived, %d in error\n", n["killed"], n["survived"], n["ERROR"]
	}'
results=$(cat "$top/complaints" "$top/results" | wc -l)
exit $status
