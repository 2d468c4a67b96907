#!/bin/bash
# Line coverage of src by the regression and TAP tests: build the extension for
# gcov, run the tests, and print each file's coverage and the lines that no test
# reaches.  Below 95 % is a failure.
#
#   bash test/coverage.sh
#   bash test/coverage.sh 003_clock 017_keeper      only these TAP tests
#
# test/check/README.md says why some lines are not reached.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
begin coverage "$@"
goal=95
own_tree

# Each process of a server adds its counts to the files beside the objects when
# it exits, so the directory belongs to the user who runs the server.  Those who
# are killed add nothing.
coverage=("COPT=--coverage -O0" with_llvm=no)
build_extension "${coverage[@]}"
install_extension "${coverage[@]}" >"$work/install.log"
# this library exports symbols of gcov's, so the test of the symbols is left out
tests=$(cd tree && find test/t -name '*.pl' ! -name '*_symbols.pl' | sort | tr '\n' ' ')
[ $# = 0 ] || tests=$(printf 'test/t/%s.pl ' "$@")
[ $# = 0 ] || coverage+=(REGRESS= ISOLATION=)
check "all tests pass" tree_make installcheck "${coverage[@]}" "PROVE_TESTS=$tests"

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
result "$(awk -v p="$percent" -v g="$goal" 'BEGIN { print (p < g) }')" "at least $goal % of the lines are covered"
