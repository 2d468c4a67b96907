#!/bin/bash
# Run the tests: build the extension in a copy of the tree, install it, and run
# the regression, isolation and TAP tests.  Runs as root or as a user with
# sudo.  The last line of the output is "N passed, N failed", counted from
# results: one for each regression and isolation test, one for each assertion
# of a TAP test.  A step that dies before it has results is one failure.
#
#   bash test/run.sh                      everything, in three quarters of an hour
#   bash test/run.sh build regress isolation tap
#                                         some kinds: what one PostgreSQL version is tested with
#   bash test/run.sh tap 003_clock        some tests of one kind
#   bash test/run.sh torture --minutes 30 --seed 1
#                                         the fault campaign, with its options
#
# The kinds, in the order of everything:
#   build      no warnings with gcc and with clang
#   regress isolation tap
#   races      the TAP tests that need injection points: test/debug.sh
#   model      the argument why no ID comes twice, checked by spin: test/model/run.sh
#   clients    programs in several languages: test/clients/run.sh
#   differ     core's own tests, with bigint and with snowflake: test/differ/run.sh
#   tools      poolers and tools that work on tables: test/tools/run.sh
#   torture    the fault campaigns: test/torture/run.sh
#   fleet      the campaign over a fleet, with PostgreSQL and etcd: test/fleet/run.sh
#   check      static and dynamic checks: test/check/run.sh
#   matrix     the first four kinds on the other versions: test/matrix.sh
#   upgrade    pg_upgrade: test/upgrade.sh

set -euo pipefail
known="build regress isolation tap races model clients differ tools torture fleet check matrix upgrade"
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$root/test/coordinators.sh"

passed=0
failed=0
skipped=0
finished=
step_log=
notes=
declare -A child=()

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
	for kind in "${!child[@]}"; do
		as_root kill -- "-${child[$kind]}" 2>/dev/null || true
		wait "${child[$kind]}" || true
	done
	cleanup || true
	[ -z "$step_log" ] || rm -f "$step_log"
	printf '%s' "$notes"
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

# Which kinds of tests, and which of each, from the command line.
kinds=
declare -A only=()
kind=
for argument in "$@"; do
	if [[ " $known " == *" $argument "* ]]; then
		kind=$argument
		kinds+=" $kind"
	elif [ -z "$kind" ]; then
		say "say which kind of test \"$argument\" is: ${known// /, }"
		exit 2
	else
		case $kind in
			regress | isolation | tap | races | clients | tools)
				argument=${argument##*/}
				argument=${argument%.*}
				;;
		esac
		only[$kind]="${only[$kind]:-} $argument"
	fi
done
[ -n "$kinds" ] || kinds=$known

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
		/^not ok [0-9]+/ && !/# *[Tt][Oo][Dd][Oo]/ { bad++ }
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
	local names=${only[tap]:-} name status

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
			tap_logs
		fi
	done
}

# No warning, with either compiler.  One of them is that of the server, which has
# just built without any.  The other one is not told of warnings that are about
# what only the former knows: options, and attributes in the server's headers.
run_build()
{
	local name compiler options status

	for name in gcc clang; do
		status=0
		: >"$work/build.log"
		if [[ $("$pg_config" --cc) != *"$name"* ]]; then
			compiler=gcc
			options=-Werror
			if [ "$name" = clang ]; then
				compiler=$(find_clang)
				options+=" -Wno-unknown-warning-option -Wno-ignored-optimization-argument"
				options+=" -Wno-ignored-attributes"
			fi
			as_user mkdir "$work/build"
			tar -C "$work/tree" -cf - --exclude='*.o' --exclude='*.so' --exclude='*.bc' . |
				as_user tar -C "$work/build" -xf -
			as_user make -s --no-print-directory -C "$work/build" -j "$(nproc)" \
				PG_CONFIG="$pg_config" with_llvm=no CC="$compiler" COPT="$options" \
				>"$work/build.log" 2>&1 || status=$?
			rm -rf "$work/build"
		fi
		if [ "$status" = 0 ] && [ ! -s "$work/build.log" ]; then
			passed=$((passed + 1))
			progress "build with $name: 1 passed, 0 failed"
		else
			failed=$((failed + 1))
			progress "build with $name: 0 passed, 1 failed"
			cat "$work/build.log"
		fi
	done
}

# Start a script in a process group of its own, so that it can be ended with all
# that it started.  $1: a name, further: the command
start_child()
{
	local name=$1

	shift
	set -m
	"$@" &
	child[$name]=$!
	set +m
}

# A script of ours that runs tests by itself.  Its last line is a verdict like
# ours, whose numbers are results here; if there is none, its exit status is one
# result.  What it prints is worth seeing in any case.  When it is told to end, the
# pipeline around it lives on until it has.
# $1: the kind, further: the script, below test, and its arguments
run_script()
{
	if [ ! -e "$work/tree/test/$2" ]; then
		progress "$1: there is no test/$2"
		return 0
	fi
	start_script "$@"
	finish_script "$1"
}

# The same in two parts, between which other tests run.
start_script()
{
	local name=$1 log=$work/$1.log script=$work/tree/test/$2

	shift 2
	progress "$name"
	start_child "$name" env PG_CONFIG="$pg_config" TMPDIR="$work/tmp" SECONDS="$SECONDS" \
		bash -c '
			set -o pipefail
			trap : TERM
			bash "$@" 2>&1 | {
				trap "" TERM
				tee "$0" | grep --line-buffered -vE "^[0-9]+ (passed, [0-9]+ failed|skipped)$"
				true
			}' \
		"$log" "$script" "$@"
}

finish_script()
{
	local name=$1 log=$work/$1.log status=0 ok bad skip note

	wait "${child[$name]}" || status=$?
	unset "child[$name]"

	read -r ok bad < <(sed -n '$s/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log") ||
		{ ok=$((status == 0)) bad=0; }
	if [ "$status" != 0 ] && [ "$bad" = 0 ]; then
		bad=1
	fi
	note=$(sed -n 's/^\(\[ *[0-9]* s\] \)\{0,1\}\(.*: could not be set up: .*\)/\2/p' "$log")
	[ -z "$note" ] || notes+=$note$'\n'
	skip=$(tail -n 2 "$log" | sed -n 's/^\([0-9]*\) skipped$/\1/p')
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + ${skip:-0}))
	progress "$name: $ok passed, $bad failed${skip:+, $skip skipped}"
}

# Beside the kinds that follow, which mostly wait for others.
run_races()
{
	local names=${only[races]:-}

	if [ -z "$names" ]; then
		names=$(cd "$work/tree/test/t" && grep -l injection_points -- *.pl)
	fi
	start_script races debug.sh tap $names
}

run_model()
{
	start_script model model/run.sh ${only[model]:-}
}

run_clients()
{
	run_script clients clients/run.sh --installed ${only[clients]:-}
}

run_differ()
{
	run_script differ differ/run.sh --installed ${only[differ]:---quick}
}

run_tools()
{
	run_script tools tools/run.sh --installed ${only[tools]:-}
}

# It switches users on its own, because some of its faults need root.
run_torture()
{
	run_script torture torture/run.sh ${only[torture]:---minutes 2 --seed 1}
	[ -n "${only[torture]:-}" ] || run_script "torture tail" torture/run.sh tail --minutes 1 --seed 1
}

run_fleet()
{
	local coordinator

	if [ -n "${only[fleet]:-}" ]; then
		run_script fleet fleet/run.sh ${only[fleet]}
		return
	fi
	for coordinator in postgresql etcd; do
		run_script "fleet $coordinator" fleet/run.sh --coordinator "$coordinator" --minutes 2 --seed 1
	done
}

run_check()
{
	run_script check check/run.sh ${only[check]:-}
}

# All versions but the one that is tested here.
matrix_arguments()
{
	say "${only[matrix]:---except "$("$pg_config" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')"}"
}

run_matrix()
{
	local arguments

	read -ra arguments <<<"$(matrix_arguments)"
	run_script matrix matrix.sh "${arguments[@]}"
}

run_upgrade()
{
	run_script upgrade upgrade.sh
}

step_log=$(mktemp)
needs=tests
case $kinds in *torture* | *fleet*) needs+=" torture" ;; esac
case $kinds in *build*) needs+=" clang" ;; esac
step "install what is missing" install_missing $needs
case $kinds in *tap* | *build*) step "install coordinators" install_coordinators ;; esac
rm -f "$step_log"
make_workspace
step_log=$work/step.log
progress "$("$pg_config" --version), as user $(test_user)"
step "build with warnings as errors" build_extension
step "install" install_extension

# The chroots take minutes to make if they are not there, most of it waiting for
# the network, so they are made while other tests run.  If that fails, the tests
# that need them try again, and say so.
case $kinds in
	" matrix"* | " upgrade"*) ;;
	*matrix* | *upgrade*)
		progress "install what makes chroots"
		install_missing chroots >"$step_log" 2>&1 || tail -n 3 "$step_log"
		start_child chroots bash -c '
			[[ $1 != *matrix* ]] || bash "$0/matrix.sh" --prepare $2
			[[ $1 != *upgrade* ]] || bash "$0/upgrade.sh" --prepare' \
			"$work/tree/test" "$kinds" "$(matrix_arguments)" >"$work/chroots.log" 2>&1
		;;
esac
# So is the server with injection points: five minutes, the first time.
case $kinds in
	" races"*) ;;
	*races*)
		start_child "debugging server" nice -n 10 bash "$work/tree/test/debug.sh" build \
			>"$work/debug.log" 2>&1
		;;
esac
case $kinds in
	*regress* | *isolation*)
		step "start a server" start_server
		;;
esac
for kind in $kinds; do
	"run_$kind"
done
for kind in races model; do
	[ -z "${child[$kind]:-}" ] || finish_script "$kind"
done
finished=yes
