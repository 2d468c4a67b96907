#!/bin/bash
# Tools that work on tables, and poolers, against servers with the extension: a
# TAP test for each, in this directory, asserts what doc/tools.md says.  Runs as
# root or as a user with sudo.  The last line of the output is "N passed, N
# failed".  A tool that cannot be installed, or ends early, is a failure.
#
#   bash test/tools/run.sh                    all of them
#   bash test/tools/run.sh poolers repack     some
#   bash test/tools/run.sh --installed ...    with the extension that is installed

set -euo pipefail
everything="partman repack poolers pglogical indexes"
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# where Debian has the poolers
PATH=$PATH:/usr/sbin

installed=
tools=
for argument in "$@"; do
	case " $everything --installed " in
		*" $argument "*) ;;
		*) die "no such tool: $argument; there are: $everything" ;;
	esac
	case $argument in
		--installed) installed=yes ;;
		*) tools+=" $argument" ;;
	esac
done
tools=${tools:-$everything}

has_extension()
{
	[ -e "$("$pg_config" --sharedir)/extension/$1.control" ]
}

# Print the Debian packages that a tool still needs.  amcheck, btree_gist and
# btree_gin come with the server.
missing_packages()
{
	local version

	version=$("$pg_config" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
	case $1 in
		partman) has_extension pg_partman || say "postgresql-$version-partman" ;;
		repack) has_extension pg_repack || say "postgresql-$version-repack" ;;
		pglogical) has_extension pglogical || say "postgresql-$version-pglogical" ;;
		indexes) has_extension hypopg || say "postgresql-$version-hypopg" ;;
		poolers)
			command -v pgbouncer >/dev/null || say pgbouncer
			command -v pgpool >/dev/null || say pgpool2
			;;
	esac
}

# Install what is missing.  Debian starts the poolers' services then, and at each
# start of the machine; nobody asked for that here.
install_tools()
{
	local tool package packages=() policy=/usr/sbin/policy-rc.d status=0

	for tool in $tools; do
		for package in $(missing_packages "$tool"); do
			packages+=("$package")
		done
	done
	[ "${#packages[@]}" -gt 0 ] || return 0
	apt_update_once || return
	[ ! -e "$policy" ] || policy=
	if [ -n "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
		as_root chmod +x "$policy"
	fi
	apt_install "${packages[@]}" || status=$?
	[ -z "$policy" ] || as_root rm -f "$policy"
	for package in "${packages[@]}"; do
		case $package in
			pgbouncer | pgpool2)
				! command -v systemctl >/dev/null || as_root systemctl -q disable "$package" || true
				;;
		esac
	done
	return "$status"
}

progress "install what is missing"
install_missing tests
install_tools || true
make_workspace
progress "$("$pg_config" --version), as user $(test_user)"
if [ -z "$installed" ]; then
	build_extension
	install_extension >"$work/install.log" 2>&1 || { cat "$work/install.log"; exit 1; }
fi
for tool in $tools; do
	if [ -n "$(missing_packages "$tool")" ]; then
		say "$tool: could not be installed: $(missing_packages "$tool")"
		failed=$((failed + 1))
	else
		tap_results "$tool" "test/tools/$tool.pl"
	fi
done
