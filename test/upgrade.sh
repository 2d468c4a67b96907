#!/bin/bash
# pg_upgrade from 15 to 17 to 18, with the extension in each: see
# test/upgrade/pg_upgrade.pl.  If these versions are not installed here, it runs
# in a chroot that has them all, which matrix.sh describes.
#
#   bash test/upgrade.sh

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$root/test/debian.sh"
versions="15 17 18"

here=yes
for version in $versions; do
	installed_pg_config "$version" >/dev/null || here=
done
[ -n "$here" ] || [ -z "${SNOWFLAKE_WORK:-}" ] || become_root
begin upgrade "$@"
if [ -z "$here" ]; then
	open_chroot upgrade "${suites_of[18]} ${suites_of[17]} ${suites_of[15]}" "$versions" >"$work/why" ||
		cannot_have "pg_upgrade: could not be set up: $(<"$work/why")"
	in_chroot upgrade bash /src/test/run.sh upgrade
	exit
fi

# Install the extension in every version, and run the test with the newest.
copy_tree tree
for version in $versions; do
	PG_CONFIG=$(installed_pg_config "$version")
	find_pg_config
	paths+=" ${bindir%/bin}"
	tree_make clean
	build_extension
	install_extension >/dev/null
done
as_user mkdir log
cd tree
SNOWFLAKE_UPGRADE_PATHS=$paths bash -o pipefail -c "$(tap_test "$work/log" test/upgrade/pg_upgrade.pl)"
