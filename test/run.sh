#!/bin/bash
# Run the tests: build the extension in a copy of the tree, install it, and run
# the regression, isolation and TAP tests.  Runs as root or as a user with
# sudo.  The last line of the output is "N passed, N failed", counted from
# results: one for each regression and isolation test, one for each assertion
# of a TAP test.  A step that dies before it has results is one failure.
#
#   bash test/run.sh                      everything
#   bash test/run.sh regress              one kind: regress, isolation, tap, clients, torture
#   bash test/run.sh tap 003_clock        some tests of one kind
#   bash test/run.sh torture --minutes 30 --seed 1
#                                         the fault campaign, with its options

set -euo pipefail
everything="regress isolation tap clients torture"
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

passed=0
failed=0
skipped=0
finished=
step_log=

# Print the verdict, whatever has happened before, and wherever the output of
# the step that died was going.
exec 3>&1
finish()
{
	trap - EXIT
	exec >&3
	if [ -z "$finished" ]; then
		[ ! -s "$step_log" ] || tail -n 60 "$step_log"
		say "the run ended early"
		failed=$((failed + 1))
	fi
	cleanup || true
	[ -z "$step_log" ] || rm -f "$step_log"
	if [ "$skipped" -gt 0 ]; then
		say "$skipped skipped"
	fi
	if [ $((passed + failed)) = 0 ]; then
		say "nothing was tested"
		failed=1
	fi
	say "$passed passed, $failed failed"
	[ "$failed" = 0 ] || exit 1
	exit 0
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

progress()
{
	printf '[%4d s] %s\n' "$SECONDS" "$*"
}

# Which kinds of tests, and which of each, from the command line.
kinds=
declare -A only=([regress]= [isolation]= [tap]= [clients]= [torture]=)
kind=
for argument in "$@"; do
	case $argument in
		regress | isolation | tap | clients | torture)
			kind=$argument
			kinds+=" $kind"
			;;
		*)
			if [ -z "$kind" ]; then
				say "say which kind of test \"$argument\" is: regress, isolation, tap, clients or torture"
				exit 2
			fi
			if [ "$kind" != torture ]; then
				argument=${argument##*/}
				argument=${argument%.*}
			fi
			only[$kind]+=" $argument"
			;;
	esac
done
[ -n "$kinds" ] || kinds=$everything

# A step that the tests need: if it fails, they cannot run.
step()
{
	local name=$1

	shift
	progress "$name"
	if ! "$@" >"$step_log" 2>&1; then
		tail -n 60 "$step_log"
		say "$name failed"
		failed=$((failed + 1))
		finished=yes
		exit 1
	fi
	# apt-get's part is worth showing, the rest is not
	grep '^apt-get' "$step_log" || true
	: >"$step_log"
}

# Add up the results in a log.  $1: the log, $2: the name of what ran, $3: its
# exit status, $4: pg_regress or tap.
count_results()
{
	local log=$1 name=$2 status=$3 format=$4 ok bad skip

	# PostgreSQL 15 writes "test type ... ok 12 ms", or without "test" inside a
	# parallel group; 16 and later write "ok 1 - type 12 ms", with + for - in a
	# group.  TAP results count at top level only: a subtest is one result.
	read -r ok bad skip < <(awk -v format="$format" '
		format == "pg_regress" && /^(test|  ) *[^ ]+ +\.\.\. ok( |$)/ { ok++ }
		format == "pg_regress" && /^(test|  ) *[^ ]+ +\.\.\. FAILED/ { bad++ }
		/^ok [0-9]+/ && !/# *[Ss][Kk][Ii][Pp]/ { ok++ }
		/^ok [0-9]+.*# *[Ss][Kk][Ii][Pp]/ { skip++ }
		/ \.\. skipped: / { skip++ }
		/^not ok [0-9]+/ && !/# *TODO/ { bad++ }
		END { print ok + 0, bad + 0, skip + 0 }' "$log")

	# dead before the first result, or after the last good one
	if [ "$status" != 0 ] && [ "$bad" = 0 ]; then
		say "$name: exit status $status"
		bad=1
	elif [ $((ok + bad + skip)) = 0 ]; then
		say "$name: no results"
		bad=1
	fi
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
	progress "$name: $ok passed, $bad failed$([ "$skip" = 0 ] || echo ", $skip skipped")"
	[ "$bad" = 0 ]
}

# A condition that has not come true after a minute never will.
export PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-60}

# make installcheck, less what the arguments switch off.
installcheck()
{
	local make_args=(installcheck "$@")

	tree_make as_user env TMPDIR="$work/tmp"
}

# The value of a variable of the Makefile.
make_value()
{
	local make_args=(-s --eval "show-value: ; @echo \$(strip \$($1))" show-value)

	tree_make as_user
}

# pg_regress and pg_isolation_regress, which work alike.
# $1: regress or isolation, $2: variable with the tests, further: for make
run_pg_regress()
{
	local name=$1 variable=$2 tests status=0

	shift 2
	tests=${only[$name]:-$(make_value "$variable")}
	if [ -z "${tests// /}" ]; then
		progress "$name: the Makefile names no tests"
		return 0
	fi
	progress "$name"
	installcheck "$variable=$tests" "$@" >"$work/$name.log" 2>&1 || status=$?
	if ! count_results "$work/$name.log" "$name" "$status" pg_regress; then
		grep -E 'FAILED|^not ok|rror' "$work/$name.log" || tail -n 40 "$work/$name.log"
		find "$work/tree" -name regression.diffs -exec head -n 300 {} \;
		server_log
	fi
}

run_regress()
{
	run_pg_regress regress REGRESS ISOLATION= TAP_TESTS=
}

run_isolation()
{
	run_pg_regress isolation ISOLATION REGRESS= TAP_TESTS=
}

# One file after the other, so that there is a line for each, and so that
# timings are not disturbed by a neighbour.
run_tap()
{
	local names=${only[tap]} name status log

	if [ -z "$names" ]; then
		names=$(cd "$work/tree/test/t" && ls -- *.pl)
	fi
	for name in $names; do
		name=${name%.pl}
		status=0
		progress "tap $name"
		installcheck REGRESS= ISOLATION= TAP_TESTS=1 PROVE_FLAGS=-v \
			PROVE_TESTS="test/t/$name.pl" >"$work/tap.log" 2>&1 || status=$?
		if ! count_results "$work/tap.log" "tap $name" "$status" tap; then
			grep -vE '^ok [0-9]+' "$work/tap.log" | tail -n 60
			for log in "$work/tree/tmp_check/log"/*; do
				[ -f "$log" ] || continue
				say "--- end of ${log##*/}"
				tail -n 30 "$log"
			done
		fi
	done
}

# The client programs have a server of their own.  Their script ends with a
# verdict like ours, whose numbers are results here.
run_clients()
{
	local status=0 ok=0 bad=0

	progress "clients"
	env PG_CONFIG="$pg_config" TMPDIR="$work/tmp" \
		bash "$work/tree/test/clients/run.sh" --installed \
		${only[clients]} >"$work/clients.log" 2>&1 || status=$?
	read -r ok bad < <(sed -n '$s/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' \
		"$work/clients.log") || status=1
	if [ "$status" != 0 ] && [ "${bad:-0}" = 0 ]; then
		bad=1
	fi
	passed=$((passed + ${ok:-0}))
	failed=$((failed + ${bad:-0}))
	progress "clients: ${ok:-0} passed, ${bad:-0} failed"
	if [ "${bad:-0}" != 0 ]; then
		cat "$work/clients.log"
	fi
}

# The fault campaign judges itself and says so with its exit status: one
# result.  What it prints is worth seeing in any case.  It switches users on
# its own, because some of its faults need root.
run_torture()
{
	local status=0

	if [ ! -e "$work/tree/test/torture/run.sh" ]; then
		progress "torture: there is no fault campaign"
		return 0
	fi
	progress "torture"
	env PG_CONFIG="$pg_config" TMPDIR="$work/tmp" \
		bash "$work/tree/test/torture/run.sh" \
		${only[torture]:---minutes 2 --seed 1} 2>&1 || status=$?
	if [ "$status" = 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
	progress "torture: exit status $status"
}

step_log=$(mktemp)
case $kinds in
	*torture*)
		step "install what is missing" install_missing tests torture
		;;
	*)
		step "install what is missing" install_missing tests
		;;
esac
rm -f "$step_log"
make_workspace
step_log=$work/step.log
progress "$("$pg_config" --version), as user $(test_user)"
step "build with warnings as errors" build_extension
step "install" install_extension
case $kinds in
	*regress* | *isolation*)
		step "start a server" start_server
		;;
esac
for kind in $kinds; do
	"run_$kind"
done
finished=yes
