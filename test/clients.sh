#!/bin/bash
# The clients that test/clients/clients.pl tries, in the versions of a newer suite of Debian
# and of npm: in a chroot of their own, which matrix.sh describes.
#
#   bash test/clients.sh [client …]

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$root/test/debian.sh"
[ -n "${SNOWFLAKE_WORK:-}" ] || exec bash "$root/test/run.sh" clients "$@"
become_root "$@"
begin clients "$@"

{ open_chroot clients "${suites_of[18]}" 18 "$(perl "$root/test/clients/clients.pl" --packages)" &&
	install_client_modules "$cache/clients/srv/npm"; } >"$work/why" ||
	cannot_have "the clients could not be had: $(tail -n 1 "$work/why")"
in_chroot clients bash /src/test/run.sh clients "$@"
