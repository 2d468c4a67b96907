#!/bin/bash
# README.md as a newcomer follows it: the commands and statements of "Install" and
# "The first ID" are pasted, in their order, into a fresh Debian in a directory,
# once from source and once as packages.  None may fail, and the first IDs in a
# table of one's own are there within five minutes, most of which apt-get takes.
# Needs root and a mirror.
#
#   bash test/newcomer.sh                  bookworm, which has PostgreSQL 15
#   bash test/newcomer.sh bookworm forky   which has 18
#
# SNOWFLAKE_TEST_SECONDS is another limit than 300, for a machine that has other work.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$root/test/debian.sh"
[ -z "${SNOWFLAKE_WORK:-}" ] || become_root "$@"
begin newcomer "$@"
[ "$(id -u)" = 0 ] || skip_all "this makes a system in a directory, and needs root for that"

# What the page tells to do, as a script.  $1: the bold words over the way to install
pasted()
{
	WAY=$1 perl -0777 -ne '
		my ($install) = /^\*\*\Q$ENV{WAY}\E\*\*(.*?)^\*\*/ms or die "no $ENV{WAY}";
		my ($first) = /^## The first ID\n(.*?)^## /ms or die "no first ID";
		my ($start) = $first =~ /If yours is not running: `(.*?)`/ or die "no start";
		my $open = "";		# what ends the input of psql
		$install .= "\n    $start\n";
		foreach my $text ($install, $first)
		{
			while ($text =~ /^ {4}(\S[^\n]*)$|^```sql\n(.*?)^```$/msg)
			{
				my ($command, $sql) = ($1, $2);

				print $sql // $open;
				next if defined $sql;
				$open = $command =~ /\bpsql\b/ ? "SQL\n" : "";
				print $open ? "$command -v ON_ERROR_STOP=1 <<\"SQL\"\n" : "$command\n";
			}
		}
		print $open' "$root/README.md"
}

# Only what any Debian has, and a user with sudo.  $1: the suite, $2: the directory
fresh_system()
{
	make_system "$2" "$1" "ca-certificates passwd sudo" --aptopt='APT::Get::Assume-Yes "true"' \
		--customize-hook='chroot "$1" /usr/sbin/useradd --create-home --shell /bin/bash newcomer' \
		--customize-hook='echo "newcomer ALL=(ALL) NOPASSWD:SETENV: ALL" >"$1/etc/sudoers.d/newcomer"' \
		--customize-hook='echo "127.0.0.1 localhost $(hostname)" >>"$1/etc/hosts"'
}

# $1: the suite, $2: the way to install
follow()
{
	local log=$work/log began status=0 took

	rm -rf --one-file-system "$cache/fresh"
	cp -a "$cache/$1" "$cache/fresh"
	pasted "$2" >"$work/commands"
	began=$SECONDS
	in_chroot fresh env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 bash -c '
		apt-get update -qq
		cp -r /src /home/newcomer/snowflake
		chown -R newcomer: /home/newcomer/snowflake
		cd /home/newcomer/snowflake
		exec runuser -u newcomer -- bash -ex -c "$0"' "$(<"$work/commands")" >"$log" 2>&1 || status=$?
	took=$((SECONDS - began))
	grep -qE '^ [0-9]{19} \| .* \| Grace$' "$log" || status=1
	result "$status" "$1, $2, after $took s" "$log"
	result "$((took >= limit))" "$1, $2: within $limit s"
}

limit=${SNOWFLAKE_TEST_SECONDS:-300}
cache=$work
for suite in "${@:-bookworm}"; do
	fresh_system "$suite" "$cache/$suite" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
	follow "$suite" "As Debian packages"
	follow "$suite" "From source"
	rm -rf --one-file-system "${cache:?}/$suite"
done
