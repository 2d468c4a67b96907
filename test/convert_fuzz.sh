#!/bin/bash
# snowflake_convert_column() over random schemas: test/fuzz/convert.pl, on a
# server of its own.  The last line of the output is "N passed, N failed".
#
#   bash test/convert_fuzz.sh                            1000 schemas, in some minutes
#   bash test/convert_fuzz.sh --schemas 100 --seed 7

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

install_missing
make_workspace
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
build_extension >/dev/null
install_extension >/dev/null
start_server "fsync = off" "max_locks_per_transaction = 256"

if as_user perl "$work/tree/test/fuzz/convert.pl" "$@" -- "$bindir/psql" -d postgres; then
	passed=1
else
	failed=1
fi
