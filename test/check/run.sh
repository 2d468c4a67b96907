#!/bin/bash
# Check the sources without running them in a server: cppcheck, clang-tidy,
# which has clang's static analyzer, that of gcc, indentation, shellcheck.  One result
# for each.  Beside it, rules.pl has rules of this project.
#
#   bash test/check/run.sh
#   bash test/check/run.sh --indent     indent src as pgindent would, in place
#
# What is suppressed is in .clang-tidy, test/check/cppcheck.txt and below, with
# its reason.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
checkout=${SNOWFLAKE_CHECKOUT:-$root}
begin check "$@"
install_packages cppcheck clang-tidy clang shellcheck binutils pg-bsd-indent || true
own_tree
cd "$work/tree"

# A result, of a command that is silent and succeeds if there is nothing to report.
# $1: what is so then, further: the command
report()
{
	check "$1" silent "${@:2}"
}

silent()
{
	"$@" 2>&1 | { ! grep .; }
}

# Build from nothing, with these variables for make.
build()
{
	tree_make clean
	tree_make with_llvm=no "$@"
}

run_cppcheck()
{
	cppcheck --quiet --error-exitcode=1 --std=c99 --max-configs=1 \
		--enable=warning,style,performance,portability \
		--suppressions-list=test/check/cppcheck.txt --suppress="*:$include/*" \
		--suppress=unmatchedSuppression -D__GNUC__=12 -D__x86_64__ -D__linux__ \
		-D'SNOWFLAKE_VERSION=""' -DSNOWFLAKE_OPENSSL -Isrc -I"$include" src
}

run_clang_tidy()
{
	# it counts the warnings of the server's headers, which it does not show
	clang-tidy --quiet src/*.c src/*/*.c -- -D_GNU_SOURCE -Isrc -I"$include" \
		-I"$("$pg_config" --includedir)" \
		-D'SNOWFLAKE_VERSION=""' -DSNOWFLAKE_OPENSSL -Wno-ignored-attributes 2>"$work/clang-tidy.log" || {
		cat "$work/clang-tidy.log"
		return 1
	}
}

# What pgindent does, as far as this code needs it.  $1: input, $2: output
indent_file()
{
	pg_bsd_indent -bad -bap -bbb -bc -bl -cli1 -cp33 -cdb -nce -d0 -di12 -nfc1 \
		-i4 -l79 -lp -lpl -nip -npro -sac -tpg -ts4 -U"$work/typedefs" "$1" "$2"
	sed -i -E 's/^([A-Za-z_][^[:space:]]*)[[:blank:]]+\*$/\1 */
		s/\(text \* /(text */' "$2"
}

# The types are those that the objects know of.  "text" is left out: as the name
# of a variable it would be taken for the type.
find_typedefs()
{
	build "COPT=-g -O0"
	objdump -Wi src/*.o src/*/*.o 2>/dev/null |
		awk '/DW_TAG_typedef/ { found = 1 }
			found && /DW_AT_name/ { print $NF; found = 0 }' |
		sort -u - typedefs.list | grep -vx text >"$work/typedefs"
}

# A copy of src as it should be, beside it
indent()
{
	local file

	mkdir -p indented/src/{convert,coordinator}
	for file in src/*.[ch] src/*/*.[ch]; do
		indent_file "$file" "indented/$file"
	done
}

check_indentation()
{
	indent
	diff -ru --exclude='*.o' --exclude='*.bc' src indented/src
}

# -S warning: below that, shellcheck notes functions that only a trap calls,
# lists of options that are meant to be split, and the like.  SC2192: an empty
# value in an associative array is what is meant.
run_shellcheck()
{
	find . -name '*.sh' -exec shellcheck -x -P SCRIPTDIR -s bash -S warning -e SC2192 {} +
}

# What the files of src share has a name of its own.
symbols_have_prefix()
{
	nm -g --defined-only src/*.o src/*/*.o | awk 'NF == 3 { print $3 }' |
		grep -vE '^(snowflake_|make_snowflake$|pg_finfo_|_PG_init$|_SnowflakeCoordinatorInit$|Pg_magic_func$)' || true
}

include=$("$pg_config" --includedir-server)

if [ "${1:-}" = --indent ]; then
	find_typedefs
	indent
	for file in src/*.[ch] src/*/*.[ch]; do
		cmp -s "$file" "indented/$file" || cat "indented/$file" >"$checkout/$file"
	done
	result 0 "indented"
	exit
fi

report "cppcheck" run_cppcheck
report "clang-tidy" run_clang_tidy
report "gcc -fanalyzer" build CC=gcc "COPT=-fanalyzer -Werror"
report "warnings that PostgreSQL's own flags leave out" build CC=gcc "COPT=-Wshadow=local -Wmissing-declarations -Wvla \
	-Wduplicated-cond -Wduplicated-branches -Wlogical-op -Wnull-dereference -Wwrite-strings -Werror"
# a build without optimization is enough for these
find_typedefs
report "shared symbols have our prefix" symbols_have_prefix
if command -v pg_bsd_indent >/dev/null; then
	report "indentation" check_indentation
else
	result 0 "indentation # SKIP there is no pg_bsd_indent"
fi
report "shellcheck" run_shellcheck
