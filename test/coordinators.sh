# Shared by those who test coordinators of fleets: what their modules are built
# with, and what runs them.  To be sourced after lib.sh, not run.
#
# What cannot be had is left out: the Makefile says which modules it does not build,
# and the tests of a coordinator that is not installed are skipped.

: "${root:?lib.sh comes first}"
. "$root/test/chroots.sh"

# Install what is missing.  A chroot of matrix.sh has what it has.
install_coordinators()
{
	[ ! -e /etc/snowflake-matrix ] || return 0
	install_packages libcurl4-openssl-dev libzookeeper-st-dev etcd-server etcd-client zookeeper \
		default-jre-headless || true
	if [ -z "${CONSUL:-}" ]; then
		CONSUL=$(find_consul) || { say "without consul: $CONSUL"; CONSUL=; }
		export CONSUL
	fi
}

# Prints the path of Consul.  Debian had it up to version 11, whose package is
# unpacked and kept beside the chroots; it needs nothing but libc.  If that fails,
# prints why on one line.
find_consul()
{
	local dir=$cache/consul source options

	command -v consul && return
	(
		[ -x "$dir/usr/bin/consul" ] && exit 0
		mkdir -p "$cache" 2>/dev/null && exec 9>"$dir.lock" ||
			{ say "cannot write to $cache"; exit 1; }
		flock 9
		[ ! -x "$dir/usr/bin/consul" ] || exit 0
		source=$(debian_source) || { say "apt has no source of Debian"; exit 1; }
		rm -rf --one-file-system "$dir.part"
		mkdir -p "$dir.part"/{lists,archives}/partial
		say "deb $source bullseye main" >"$dir.part/sources.list"
		options=(-qq -o "Dir::Etc::sourcelist=$dir.part/sources.list" -o Dir::Etc::sourceparts=/dev/null
			-o "Dir::State::lists=$dir.part/lists" -o "Dir::Cache=$dir.part"
			-o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false)
		cd "$dir.part"
		{
			apt-get "${options[@]}" update &&
				apt-get "${options[@]}" download consul &&
				dpkg -x consul_*.deb "$dir.part/root" &&
				"$dir.part/root/usr/bin/consul" version
		} >"$dir.log" 2>&1 || { tail -n 1 "$dir.log"; exit 1; }
		rm -rf --one-file-system "$dir"
		mv "$dir.part/root" "$dir"
		rm -rf --one-file-system "$dir.part"
	) || return 1
	say "$dir/usr/bin/consul"
}
