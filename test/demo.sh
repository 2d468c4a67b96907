#!/bin/bash
# Build the extension, start a throw-away server with it, and show what it is
# for.  Runs as root or as a user with sudo; leaves nothing behind but the
# installed packages and the installed extension.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

leave()
{
	[ "$1" != 0 ] || return 0
	tail -n 40 "$work"/{step,server}.log 2>/dev/null || true
	say "the demonstration failed"
}

mapfile -t packages < <(missing_packages)
announce_packages "${packages[@]}"
install_missing
make_workspace
say "== Building snowflake for $("$pg_config" --version)"
build_extension >"$work/step.log" 2>&1
install_extension >>"$work/step.log" 2>&1
say "== Starting a server in a temporary directory: shared_preload_libraries = 'snowflake', snowflake.node_id = 1"
start_server
rm -f "$work/step.log"
PATH=$bindir:$PATH psql -X -q -e -v ON_ERROR_STOP=1 -P footer=off -f tree/test/demo.sql
