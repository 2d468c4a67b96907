#!/bin/bash
# pg_upgrade from 15 to 17 to 18, with the extension in each: see
# test/upgrade/pg_upgrade.pl.  If these versions are not installed here, in a
# chroot that has them all, of which matrix.sh tells more.
#
#   bash test/upgrade.sh
#   bash test/upgrade.sh --prepare   only make the chroot
#
# The last line of the output is "N passed, N failed".

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/chroots.sh"

versions="15 17 18"
chroot=upgrade
suites="${suites_of[18]} ${suites_of[17]} ${suites_of[15]}"

# Install the extension in every version, and run the test with the newest.
run_here()
{
	local version paths=''

	make_workspace
	for version in $versions; do
		pg_config=$(installed_pg_config "$version")
		paths+=" $(dirname "$("$pg_config" --bindir)")"
		progress "upgrade: build and install for PostgreSQL $version"
		make_args=(-s clean)
		tree_make as_user >"$work/step.log" 2>&1 || { cat "$work/step.log"; return 1; }
		build_extension >"$work/step.log" 2>&1 || { cat "$work/step.log"; return 1; }
		install_extension >"$work/step.log" 2>&1 || { cat "$work/step.log"; return 1; }
	done
	progress "upgrade: $versions"
	tap_results upgrade test/upgrade/pg_upgrade.pl SNOWFLAKE_UPGRADE_PATHS="$paths"
}

all_here()
{
	local version

	for version in $versions; do
		installed_pg_config "$version" >/dev/null || return 1
	done
}

if all_here; then
	[ -z "${1:-}" ] || exit 0
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	run_here
	exit
fi

become_root "$@"
if [ "$(id -u)" = 0 ]; then
	install_missing chroots >/dev/null 2>&1 || true
fi
progress "upgrade: set up"
why=$(mktemp)
if ! open_chroot "$chroot" "$suites" "$versions" >"$why"; then
	say "pg_upgrade: could not be set up: $(<"$why")"
	rm -f "$why"
	[ -n "${1:-}" ] || say "0 passed, 0 failed"
	exit 0
fi
rm -f "$why"
[ -z "${1:-}" ] || exit 0
in_chroot "$chroot" bash /src/test/upgrade.sh
