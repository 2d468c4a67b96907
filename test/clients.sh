#!/bin/bash
# The clients that test/clients/clients.pl tries, in the versions of a newer suite of Debian
# and of npm: in a chroot of their own, of which matrix.sh tells more.
#
#   bash test/clients.sh [client …]

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$root/test/debian.sh"
[ -n "${SNOWFLAKE_WORK:-}" ] || exec bash "$root/test/run.sh" clients "$@"
become_root "$@"
begin clients "$@"

# The packages of package.json, kept until that changes.  npm runs here, as whoever started us,
# since its configuration is theirs, but none of the packages may run a program of its own.  One
# attempt, since npm takes minutes to find out that it cannot be done.
# $1: the directory
install_node_modules()
{
	! cmp -s "$root/test/clients/package.json" "$1/package.json" || return 0
	command -v npm >/dev/null || install_packages nodejs npm >&2 || return
	rm -rf --one-file-system "$1" "$1.part"
	mkdir "$1.part"
	(
		umask 022
		cd "$1.part"
		cp "$root/test/clients/package.json" .
		npm install --ignore-scripts --no-audit --no-fund --no-package-lock --fetch-retries=1 --loglevel=error
	) >&2 || return
	mv "$1.part" "$1"
}

packages=$(perl "$root/test/clients/clients.pl" --packages)
{ open_chroot clients "${suites_of[18]}" 18 "$packages" && install_node_modules "$cache/clients/srv/npm"; } >"$work/why" ||
	skip_all "the clients could not be had: $(tail -n 1 "$work/why")"
in_chroot clients bash /src/test/run.sh clients "$@"
