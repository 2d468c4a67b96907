#!/bin/bash
# Minting in a Patroni cluster: three nodes with one configuration, that of
# doc/fleet.md, which lease their node IDs from Patroni's own etcd; PgBouncer in
# front of them, all on the loopback interface; six clients, and faults that make
# the primary change.  No ID may come twice or out of order, clients may see the
# end of their server but no error of the extension's, and the first ID has to come
# soon after a promotion.  The last line of the output is "N passed, N failed".
#
#   bash test/patroni/run.sh                       10 faults, which takes some five minutes
#   bash test/patroni/run.sh --faults 4 --seed 7
#   bash test/patroni/run.sh --faults 3 --only switchover,freeze
#   bash test/patroni/run.sh --synchronous         replication is asynchronous otherwise
#   bash test/patroni/run.sh --own-node-ids        each node has one in its own configuration
#   bash test/patroni/run.sh --one-node-id         the same for all: it has to find duplicates
#
# Debian's packages patroni, etcd-server and pgbouncer are installed if they are
# missing.  At the run level that is named here Debian starts none of them.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

install_missing torture
missing=()
command -v curl-config >/dev/null || missing+=(libcurl4-openssl-dev)
for package in patroni etcd-server pgbouncer python3-yaml; do
	dpkg-query -W -f '${Status}' $package 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
	apt_update_once
	RUNLEVEL=1 apt_install "${missing[@]}"
fi
# the socket's path may have 107 bytes
TMPDIR=/tmp make_workspace
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
build_extension
install_extension >/dev/null

as_user /usr/bin/python3 "$work/tree/test/patroni/trial.py" --work "$work" --bindir "$bindir" "$@"
