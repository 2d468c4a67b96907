#!/bin/bash
# No warning, with either compiler.  One of them is that of the server, with which
# run.sh has just built without any.  The other one is not told of warnings that are
# about what only the former knows: options, and attributes in the server's headers.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
begin build "$@"

build()
{
	as_user make -s --no-print-directory -C copy PG_CONFIG="$pg_config" with_llvm=no "$@"
}

copy_tree copy
for name in gcc clang; do
	if [[ $("$pg_config" --cc) == *"$name"* ]]; then
		result 0 "no warnings of $name"
	elif [ $name = gcc ]; then
		check "no warnings of gcc" build CC=gcc COPT=-Werror
	else
		[ -n "$(find_clang)" ] || install_packages clang
		check "no warnings of clang" build CC="$(find_clang)" \
			COPT="-Werror -Wno-unknown-warning-option -Wno-ignored-optimization-argument -Wno-ignored-attributes"
	fi
done
