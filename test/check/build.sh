#!/bin/bash
# No warning, with either compiler.  One of them is that of the server, with which
# run.sh has just built without any.  The other one is not told of warnings that are
# about what only the former knows: options, and attributes in the server's headers.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
begin build "$@"

own_tree
for name in gcc clang; do
	if [[ $("$pg_config" --cc) == *"$name"* ]]; then
		result 0 "no warnings of $name"
	elif [ $name = gcc ]; then
		check "no warnings of gcc" tree_make with_llvm=no CC=gcc COPT=-Werror
	else
		command -v "$(server_clang)" clang >/dev/null || install_packages clang
		check "no warnings of clang" tree_make with_llvm=no CC="$(command -v "$(server_clang)" clang | head -n 1)" \
			COPT="-Werror -Wno-unknown-warning-option -Wno-ignored-optimization-argument -Wno-ignored-attributes"
	fi
done
