#!/bin/bash
# Check the sources without running them in a server: cppcheck, clang-tidy,
# which has clang's static analyzer, that of gcc, indentation, shellcheck, and rules of this
# project that a machine can check.  One result for each.
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
	clang-tidy --quiet "${sources[@]}" -- -D_GNU_SOURCE -Isrc -I"$include" \
		-I"$("$pg_config" --includedir)" \
		-D'SNOWFLAKE_VERSION=""' -DSNOWFLAKE_OPENSSL -Wno-ignored-attributes 2>"$work/clang-tidy.log" || {
		cat "$work/clang-tidy.log"
		return 1
	}
}

run_gcc_analyzer()
{
	build CC=gcc "COPT=-fanalyzer -Werror"
}

# Warnings that PostgreSQL's own flags leave out.
run_more_warnings()
{
	build CC=gcc "COPT=-Wshadow=local \
		-Wmissing-declarations -Wvla -Wduplicated-cond -Wduplicated-branches \
		-Wlogical-op -Wnull-dereference -Wwrite-strings -Werror"
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

check_indentation()
{
	local file

	for file in "${sources[@]}" "${headers[@]}"; do
		indent_file "$file" "$work/indented"
		diff -u --label "$file" --label "$file, indented" "$file" "$work/indented" || true
	done
}

# -S warning: below that, shellcheck notes functions that only a trap calls,
# lists of options that are meant to be split, and the like.  SC2192: an empty
# value in an associative array is what is meant.
run_shellcheck()
{
	find . -name '*.sh' -exec shellcheck -x -P SCRIPTDIR -s bash -S warning -e SC2192 {} +
}

#
# Rules of this project
#

versions_in_compat_only()
{
	! grep -n PG_VERSION_NUM "${sources[@]}" "${headers[@]}" | grep -v '^src/compat\.h:'
}

# /*----, the file's name, what it is for
files_have_headers()
{
	local file

	for file in "${sources[@]}" "${headers[@]}"; do
		sed -n 1p "$file" | grep -q '^/\*-----' &&
			[ "$(sed -n 3p "$file")" = " * ${file##*/}" ] &&
			sed -n 4p "$file" | grep -q '^ \*	  [A-Z]' || say "$file"
	done
}

# snowflake.control has the version; a name or a line that repeats it agrees.
one_version()
{
	local version

	version=$(sed -n "s/^default_version *= *'\(.*\)'/\1/p" snowflake.control)
	[ -e "sql/snowflake--$version.sql" ] || say "there is no sql/snowflake--$version.sql"
	grep -n '"version":' META.json | grep -vF "\"$version." | grep -v meta-spec || true
	grep -nF "\"$version\"" "${sources[@]}" "${headers[@]}" Makefile || true
}

no_trailing_space()
{
	! grep -rnIE '[[:blank:]]+$' --exclude-dir=expected --exclude-dir=mutants --exclude-dir=.git \
		--exclude='*.tsv' --exclude='*.svg' . | cut -c 1-120 | grep .
}

tabs_in_c()
{
	! grep -nE '^ {2,}|	 {4,}|^	* 	' "${sources[@]}" "${headers[@]}" | grep .
}

# A message is one line, however long, so that it can be searched for.
no_long_lines()
{
	awk '{ line = $0; gsub(/\t/, "    ", line) }
		length(line) > 110 && !/"/ { print FILENAME ":" FNR ": " length(line) " columns" }' "${sources[@]}" "${headers[@]}"
}

# What the files of src share has a name of its own.
symbols_have_prefix()
{
	nm -g --defined-only src/*.o src/*/*.o | awk 'NF == 3 { print $3 }' |
		grep -vE '^(snowflake_|make_snowflake$|pg_finfo_|_PG_init$|_SnowflakeCoordinatorInit$|Pg_magic_func$)' || true
}

# C functions of the script and of the sources are the same.
functions_are_declared()
{
	diff <(sed -n "s/.*PG_FUNCTION_INFO_V1(\(.*\));/\1/p" "${sources[@]}" | sort -u) \
		<(grep -ohE "'(MODULE_PATHNAME|[$]libdir/snowflake)'(, *'[a-z0-9_]+')?|FUNCTION [a-z0-9_]+" sql/*.sql |
			awk '/^FUNCTION/ { name = $2 }
				/^.(MODULE|[$]libdir)/ { n = split($0, part, "\047"); print (n > 3 ? part[4] : name) }' | sort -u)
}

# What a file, or its header, includes may not lead back to it.  compat.h and the
# server's headers include none of ours.
includes_have_no_cycle()
{
	awk -F'"' '/^#include "/ && ($2 !~ /\// || $2 ~ /^(convert|coordinator)\//) {
		to = $2; from = FILENAME
		gsub(/.*\/|\.h$/, "", to); gsub(/.*\/|\.[ch]$/, "", from)
		if (from != to) print from, to
	}' "${sources[@]}" "${headers[@]}" | tsort >/dev/null
}

# No file above 500 lines and no function above 80, unless the head of the file says
# why: "the file is long", "and so is name()".
nothing_is_too_long()
{
	awk 'FNR == 1 { head = "" }
		FNR <= 80 { head = head $0 }
		FNR == 501 && head !~ /file is +long/ { print FILENAME ": " "longer than 500 lines" }
		/^[a-z_]+\(/ { name = $0; sub(/\(.*/, "", name) }
		/^{/ { start = FNR }
		/^}/ && start && FNR - start > 81 && head !~ "so is " name { print FILENAME ": " name ": " FNR - start - 1 " lines" }
		/^}/ { start = 0 }' "${sources[@]}" "${headers[@]}"
}

# elog() is for what cannot happen; an error with a message has a SQLSTATE.
errors_have_codes()
{
	awk '/(ereport\(ERROR|ereturn\(|errsave\()/ && !/#define/ { open = FILENAME ":" FNR ": " $0; next }
		open != "" { if (!/errcode/) print open; open = "" }' "${sources[@]}"
}

sources=(src/*.c src/*/*.c)
headers=(src/*.h src/*/*.h)
include=$("$pg_config" --includedir-server)

if [ "${1:-}" = --indent ]; then
	find_typedefs
	for file in "${sources[@]}" "${headers[@]}"; do
		indent_file "$file" "$work/indented"
		cmp -s "$file" "$work/indented" || cat "$work/indented" >"$checkout/$file"
	done
	result 0 "indented"
	exit
fi

report "cppcheck" run_cppcheck
report "clang-tidy" run_clang_tidy
report "gcc -fanalyzer" run_gcc_analyzer
report "more warnings of gcc" run_more_warnings
# a build without optimization is enough for these
find_typedefs
report "shared symbols have our prefix" symbols_have_prefix
if command -v pg_bsd_indent >/dev/null; then
	report "indentation" check_indentation
else
	result 0 "indentation # SKIP there is no pg_bsd_indent"
fi
report "shellcheck" run_shellcheck
report "only src/compat.h names a version of PostgreSQL" versions_in_compat_only
report "each file in src says what it is for" files_have_headers
report "one version" one_version
report "no space at the end of a line" no_trailing_space
report "tabs indent C" tabs_in_c
report "no long lines" no_long_lines
report "C functions are in the script and the other way round" functions_are_declared
report "errors have SQLSTATEs" errors_have_codes
report "what is included never leads back" includes_have_no_cycle
report "nothing is too long" nothing_is_too_long
