#!/bin/bash
# Run way_back.pl with the snowflake that is installed where PG_CONFIG says: this tree's, or an older one
# to compare with.
#
#   PG_CONFIG=… bash test/bench/way_back.sh           all cases, about five minutes
#   PG_CONFIG=… bash test/bench/way_back.sh 5 10      some of them

set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
config=${PG_CONFIG:-pg_config}
makefiles=$(dirname "$(dirname "$("$config" --pgxs)")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/test"
cp -r "$here" "$here/../perl" "$here/../shim" "$work/test/"
cd "$work"
as=()
if [ "$(id -u)" -eq 0 ]; then
	chown -R postgres "$work"
	as=(runuser -u postgres --)
fi
"${as[@]}" env HOME="$work" PATH="$("$config" --bindir):$PATH" PERL5LIB="$makefiles/test/perl" \
	PG_REGRESS="$makefiles/test/regress/pg_regress" TESTDIR="$work" TESTDATADIR="$work/data" TESTLOGDIR="$work/log" \
	PGPORT=65432 top_builddir="$work" perl "$work/test/bench/way_back.pl" "$@"
