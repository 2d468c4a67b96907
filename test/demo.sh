#!/bin/bash
# Build the extension, start a throw-away server with it, kill that under load, and
# show what it is for.  Runs as root or as a user with sudo; leaves nothing behind but
# the installed packages and the installed extension.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

load=()
leave()
{
	[ "${#load[@]}" = 0 ] || kill "${load[@]}" 2>/dev/null || true
	[ "$1" != 0 ] || return 0
	tail -n 40 "$work"/{step,load,server}.log 2>/dev/null || true
	say "the demonstration failed"
}

show()
{
	psql -X -q -e -v ON_ERROR_STOP=1 -P footer=off "$@"
}

# Kill the server as the lack of power would: all its processes in one go.
kill_server()
{
	local postmaster processes

	postmaster=$(head -n 1 "$work/data/postmaster.pid")
	mapfile -t processes < <(grep -ls "^PPid:[[:space:]]*$postmaster\$" /proc/[0-9]*/status | cut -d / -f 3)
	say "kill -9 $postmaster ${processes[*]}"
	kill -KILL "$postmaster" "${processes[@]}" 2>/dev/null || true
	# where nobody takes note of the end of a process, it is a zombie
	while grep -qs '^State:[[:space:]]*[^Z[:space:]]' "/proc/$postmaster/status"; do
		sleep 0.1
	done
	[ ! -e "/proc/$postmaster" ] || rm "$work"/{data/postmaster.pid,.s.PGSQL.*.lock}
}

install_missing
make_workspace
say "== Building snowflake for $("$pg_config" --version)"
build_extension >"$work/step.log" 2>&1
install_extension >>"$work/step.log" 2>&1
say "== Starting a server in a temporary directory: shared_preload_libraries = 'snowflake', snowflake.node_id = 1"
start_server
rm -f "$work/step.log"
PATH=$bindir:$PATH
show -f tree/test/demo.sql

say "
== Eight connections place orders, each with an event.  Another one takes IDs and stores none.
pgbench -c 8 -f test/demo.pgbench
$(<tree/test/demo.pgbench)"
pgbench -n -c 8 -j 2 -T 60 -f tree/test/demo.pgbench >"$work/load.log" 2>&1 &
load+=($!)
yes 'SELECT snowflake_next();' | psql -X -q -A -t >"$work/received" 2>>"$work/load.log" &
load+=($!)
until [ "$(psql -X -A -t -c 'SELECT count(*) >= 4000 FROM orders')" = t ]; do
	kill -0 "${load[0]}"
done

say "
== In the middle of it, the server is killed, and started again"
kill_server
wait "${load[@]}" || true
load=()
as_user "$bindir/pg_ctl" -D "$work/data" -l "$work/server.log" -w start >/dev/null 2>&1
grep -o 'database system was not properly shut down.*' "$work/server.log"
show -f tree/test/demo_crashed.sql

say "
== What next
Install it, and mint an ID of your own:  README.md, from \"Install\" on
Why no ID comes twice:                   doc/design.md
Run the tests:                           bash test/run.sh short"
