#!/bin/bash
# Line coverage of src by the regression and TAP tests: build the extension for
# gcov, run the tests, and print each file's coverage and the lines that no test
# reaches.  Below 95 % is a failure.  The last line of the output is "N passed,
# N failed": one result for each kind of test, and one for the coverage.
#
#   bash test/coverage.sh
#   bash test/coverage.sh 003_clock 017_keeper      only these TAP tests
#
# test/check/README.md says why some lines are not reached.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

goal=95
# One result.  $1: what, $2: its exit status
result()
{
	if [ "$2" = 0 ]; then
		passed=$((passed + 1))
		say "ok: $1"
	else
		failed=$((failed + 1))
		say "FAILED: $1"
	fi
}

install_missing tests
make_workspace
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Each process of a server adds its counts to the files beside the objects when
# it exits, so the directory belongs to the user who runs the server.  Those who
# are killed add nothing.
coverage=("COPT=--coverage -O0" with_llvm=no)
make_args=(-s "${coverage[@]}")
tree_make as_user
make_args=(-s "${coverage[@]}" install)
if [ -w "$("$pg_config" --pkglibdir)" ]; then
	tree_make env
else
	tree_make as_root
fi
start_server >/dev/null

status=0
make_args=(installcheck "${coverage[@]}" ISOLATION= TAP_TESTS=)
if [ $# = 0 ]; then
	tree_make as_user env TMPDIR="$work/tmp" >"$work/regress.log" 2>&1 || status=$?
	[ "$status" = 0 ] || tail -n 20 "$work/regress.log"
	result "regression and isolation tests" "$status"
fi
stop_server

status=0
# this library exports symbols of gcov's, so the test of the symbols is left out
tests=$(cd "$work/tree" && find test/t -name '*.pl' ! -name '*_symbols.pl' | sort | tr '\n' ' ')
[ $# = 0 ] || tests=$(printf 'test/t/%s.pl ' "$@")
make_args=(installcheck "${coverage[@]}" REGRESS= ISOLATION= TAP_TESTS=1 "PROVE_TESTS=$tests")
tree_make as_user env TMPDIR="$work/tmp" PG_TEST_TIMEOUT_DEFAULT=60 >"$work/tap.log" 2>&1 || status=$?
[ "$status" = 0 ] || tail -n 20 "$work/tap.log"
result "TAP tests" "$status"

cd "$work/tree"
for directory in src src/*/; do
	as_user gcov -r -o "$directory" "$directory"/*.c
done >"$work/gcov.log" 2>&1 || tail "$work/gcov.log"
say "--- lines that no test reaches"
grep -H '#####:' ./*.gcov | sed 's,^\./\(.*\)\.gcov: *#####: *\([0-9]*\):,\1:\2:,'
say "--- line coverage"
covered=0
for file in *.gcov; do
	read -r run all < <(awk -F: '$1 ~ /[0-9]|#####/ { all++ } $1 ~ /[0-9]/ { run++ }
		END { print run + 0, all + 0 }' "$file")
	printf '%-16s %4d of %4d lines\n' "${file%.gcov}" "$run" "$all"
	covered=$((covered + run))
	lines=$((${lines:-0} + all))
done
percent=$(awk -v c="$covered" -v l="$lines" 'BEGIN { printf "%.1f", 100 * c / l }')
say "$covered of $lines lines, $percent %"
result "at least $goal % of the lines are covered" \
	"$(awk -v p="$percent" -v g="$goal" 'BEGIN { print (p < g) }')"
