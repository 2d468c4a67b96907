#!/bin/bash
# Does the extension change what PostgreSQL does with anything else, and does its
# type do what bigint does?  Core's own regression files, which nobody here wrote,
# are run and what they give is compared, statement by statement: results, plans
# and errors.
#
#   presence   as they are, in a server without the extension and in one with the
#              library loaded and the extension in the database
#   type       with all integer columns of tables as bigint, and as snowflake
#
# As they are, these files have few columns of bigint, and none in most of those
# about partitions, joins and foreign keys; so "type" makes them all bigint first.
# For it the type is without its refusal of negative numbers, of which core's
# files have many.
#
#   bash test/differ/run.sh                    "type", the files that matter most
#   bash test/differ/run.sh --comparison presence --comparison type
#                                              both, all files, about 4 minutes
#   bash test/differ/run.sh --comparison type join window
#                                              one of them, some files, with what these need
#   bash test/differ/run.sh --quick --damage "UPDATE pg_cast SET castcontext = 'a'
#       WHERE castsource = 'snowflake'::regtype AND casttarget = 'bigint'::regtype"
#                                              can it fail?  It should, in most files
#
# A difference is shown unless explained.txt has a reason for it, or it follows
# from one that has.  One result for each file.  The source is Debian's, of the server's major version,
# and kept: see test/debian.sh.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/../debian.sh"

begin differ "$@"
[ $# -gt 0 ] || set -- --quick
install_packages python3
mkdir -p "$source_cache/$major"
why=$({ flock 9 && get_source "$major"; } 2>&1 9>"$source_cache/$major/lock") ||
	skip_all "the source of PostgreSQL $major could not be had: $(tail -n 1 <<<"$why")"

# core's files, where the user can read them; their functions in C, and what they
# load from contrib
as_user mkdir "$work/libraries" "$work/runs"
tar -C "$source_cache/$major/source/src/test" -cf - regress | as_user tar -C "$work" -xf -
as_user cc -O1 -fPIC -shared -I"$("$pg_config" --includedir-server)" \
	-o "$work/libraries/regress.so" "$work/regress/regress.c"
as_user ln -s "$("$pg_config" --pkglibdir)"/{autoinc,refint}.so "$work/libraries/"

as_user env PYTHONDONTWRITEBYTECODE=1 python3 "$work/tree/test/differ/differ.py" \
	--work "$work/runs" --bindir "$bindir" --source "$work/regress" \
	--pg-regress "$(dirname "$("$pg_config" --pgxs)")/../test/regress/pg_regress" \
	--libraries "$work/libraries" "$@"
