#!/bin/bash
# Minting in a Patroni cluster: three nodes with one configuration, that of
# doc/fleet.md, which lease their node IDs from Patroni's own etcd; PgBouncer in
# front of them, all on the loopback interface; six clients, and faults that make
# the primary change.  No ID may come twice or out of order, clients may see the
# end of their server but no error of the extension's, and the first ID has to come
# soon after a promotion.
#
#   bash test/patroni/run.sh                       10 faults, which takes some five minutes
#   bash test/patroni/run.sh --faults 4 --seed 7
#   bash test/patroni/run.sh --faults 3 --only switchover,freeze
#   bash test/patroni/run.sh --synchronous         replication is asynchronous otherwise
#   bash test/patroni/run.sh --own-node-ids        each node has one in its own configuration
#   bash test/patroni/run.sh --one-node-id         the same for all: it has to find duplicates

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

begin patroni "$@"
install_packages libcurl4-openssl-dev patroni etcd-server pgbouncer python3-yaml python3-psycopg2
# the socket's path may have 107 bytes
TMPDIR=/tmp make_workspace
build_extension
install_extension >/dev/null
as_user /usr/bin/python3 "$work/tree/test/patroni/trial.py" --work "$work" --bindir "$bindir" "$@" 2>&1 | as_tap
