#!/bin/bash
# Minting in a Patroni cluster: three nodes with node IDs of their own and one
# etcd, on the loopback interface, four clients, and faults that make the primary
# change.  No ID may come twice or out of order, clients may see the end of their
# server but no error of the extension's, and after a promotion IDs must be there
# as soon as plain inserts are.  The last line of the output is "N passed, N
# failed".
#
#   bash test/patroni/run.sh                       10 faults, which takes some five minutes
#   bash test/patroni/run.sh --faults 4 --seed 7
#   bash test/patroni/run.sh --faults 3 --only switchover,freeze
#
# Debian's packages patroni and etcd-server are installed if they are missing.
# Debian would start an etcd as well; here policy-rc.d or an administrator keeps
# it from that, or it does no harm.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

install_missing torture
for package in patroni etcd-server; do
	if ! dpkg-query -W -f '${Status}' $package 2>/dev/null | grep -q 'ok installed'; then
		apt_update_once
		say "apt-get install $package"
		as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qq -y \
			--no-install-recommends $package >/dev/null
	fi
done
make_workspace
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
build_extension
install_extension >/dev/null

as_user /usr/bin/python3 "$work/tree/test/patroni/trial.py" --work "$work" --bindir "$bindir" "$@"
