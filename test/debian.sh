# Gets from Debian, and keeps: chroots with the PostgreSQL versions of its suites,
# PostgreSQL's source, coordinators of fleets.  To be sourced after lib.sh, not run.
#
# What is kept is made under another name and renamed when it is complete, so what
# lies under its own name is whole; a file in a chroot says what it was made of.  A
# function that fails says why on its last line.

# Where all of it lies: the system's directory for that, or the user's own where only root
# may write there.
caches=${XDG_CACHE_HOME:-/var/cache}
[ -n "${XDG_CACHE_HOME:-}" ] || [ -w "$caches" ] || caches=${HOME:-}/.cache
cache=${SNOWFLAKE_MATRIX_CACHE:-$caches/snowflake-matrix}

# Which suite carries which version, its first one being the base.
# shellcheck disable=SC2034 # used by those who source this
declare -A suites_of=([15]=bookworm [17]=trixie [18]=forky [19]="sid experimental")

# Which tools test/tools looks at with another version than the installed one
declare -A tools_of=([18]=postgresql-18-partman)

# shellcheck disable=SC2034 # likewise
default_versions="15 17 18 19"

# Where "long" has 32 bits, and where bytes have the other order: each with the oldest version and
# with a newer one
# shellcheck disable=SC2034 # likewise
other_architectures="15-i386 18-i386 15-s390x 18-s390x"

source_cache=$caches/snowflake-debug

# What the tests need, besides the server, and what the modules of coordinators are
# built with.  The coordinators themselves are not there: their tests are skipped.
chroot_packages="make gcc libc6-dev libcurl4-openssl-dev libipc-run-perl libzookeeper-st-dev perl procps"

coordinator_packages="libcurl4-openssl-dev libzookeeper-st-dev etcd-server etcd-client zookeeper default-jre-headless"

# Start the calling script again as root, with its arguments, if there is a way.
# If there is none, go on: every chroot then says that this is what is missing.
become_root()
{
	if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then
		exec sudo -n --preserve-env -- bash "$0" "$@"
	fi
}

# Is this version installed here, with what it takes to build and to test?
# Prints its pg_config.
installed_pg_config()
{
	local candidate

	for candidate in "${PG_CONFIG:-}" "/usr/lib/postgresql/$1/bin/pg_config"; do
		if [ -x "$candidate" ] && [ -x "${candidate%/*}/initdb" ] &&
			[ -f "$("$candidate" --pgxs)" ] &&
			[[ $("$candidate" --version) =~ ^PostgreSQL\ $1[^0-9] ]]; then
			say "$candidate"
			return 0
		fi
	done
	return 1
}

# Where this machine gets Debian from, as a one-line source has it: "[options]
# URI".  apt itself says which of its sources that is; only the options that say whom
# to trust have to be looked up there.
debian_source()
{
	local uri entry options=

	# its answer depends on what apt-get update has brought
	[ -n "$(apt-get indextargets 'Created-By: Packages')" ] || apt_update_once >&2 || true
	read -r uri entry < <(apt-get indextargets --format '$(REPO_URI) $(SOURCESENTRY)' \
		'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 'Component: main' |
		grep -v '^cdrom:') || true
	[ -n "${uri:-}" ] || { say "apt has no source of Debian"; return 1; }
	uri=${uri%/}
	case ${entry:-} in
		*.sources:*)
			options=$(awk -v uri="$uri" '
				BEGIN { RS = ""; FS = "\n" }
				!done {
					options = ""
					for (i = 1; i <= NF; i++)
					{
						count = split($i, word, /[ \t]+/)
						name = tolower(word[1])
						for (j = 2; name == "uris:" && j <= count; j++)
							done = done || word[j] == uri || word[j] == uri "/"
						if (name == "trusted:" && word[2] == "yes")
							options = options "trusted=yes "
						if (name == "signed-by:" && word[2] ~ /^\//)
							options = options "signed-by=" word[2] " "
					}
				}
				END { if (done) print options }' "${entry%:*}")
			;;
		*:*)
			[[ ! $(sed -n "${entry##*:}p" "${entry%:*}") =~ \[([^]]*)\] ]] ||
				options=${BASH_REMATCH[1]}
			;;
	esac
	say "${options:+[$options] }$uri"
}

# Make a system in a directory.  $1: the directory, $2: suites, the first of which is its
# base, $3: packages, further: options of mmdebstrap
make_system()
{
	local dir=$1 suites=$2 packages=$3 suite source option options=() sources=()

	shift 3
	install_packages mmdebstrap || return
	source=$(debian_source) || { say "$source"; return 1; }
	for suite in $suites; do
		sources+=("deb $source $suite main")
	done
	# what this machine has for proxies and certificates
	while read -r option; do
		options+=("--aptopt=$option")
	done < <(apt-config dump | grep -E '^Acquire::https?::[^ ]+ ".+"')
	timeout --foreground 3600 mmdebstrap --mode=root --variant=apt --format=directory \
		--aptopt='Acquire::Check-Valid-Until "false"' "${options[@]}" "$@" \
		--include="${packages// /,}" "${suites%% *}" "$dir" "${sources[@]}" </dev/null
}

# Is the chroot whole?  $1: its directory, $2: what it should be made of
chroot_is_whole()
{
	[ "$(cat "$1/etc/snowflake-matrix" 2>/dev/null)" = "$2" ] &&
		chroot "$1" /bin/sh -e -c '
			for postgres in /usr/lib/postgresql/*/bin/postgres; do
				$postgres --version
				test -f ${postgres%/bin/postgres}/lib/pgxs/src/makefiles/pgxs.mk
			done
			gcc --version && perl -MIPC::Run -e 1 && test -z "$(dpkg --audit)"' \
			>/dev/null 2>&1
}

# Set preferences to options of make_system() that have apt take a version of PostgreSQL from
# experimental, if that is among the suites.  Experimental has only what it is asked for; libpq
# has to be the server's.  $1: suites, $2: the version
prefer_experimental()
{
	preferences=()
	[[ $1 == *experimental* ]] || return 0
	preferences=('--setup-hook=mkdir -p "$1/etc/apt/preferences.d"'
		"--setup-hook=printf 'Package: libpq5 libpq-dev postgresql-$2 postgresql-*-$2\nPin: release a=experimental\nPin-Priority: 990\n' >\"\$1/etc/apt/preferences.d/snowflake\"")
}

# Make a chroot, unless it is there and whole.  $1: its name, $2: suites, $3:
# versions, $4: packages that it has besides, $5: its architecture, if that is not this machine's.
# The caller holds the lock.
make_chroot()
{
	local suites=$2 versions=$3 dir=$cache/$1 log=$cache/$1.log packages="$chroot_packages${4:+ $4}" what version preferences

	for version in $versions; do
		packages+=" postgresql-$version postgresql-server-dev-$version"
		[ -n "${5:-}" ] || packages+=${tools_of[$version]:+ ${tools_of[$version]}}
	done
	what="$suites: $packages"
	! chroot_is_whole "$dir" "$what" || return 0

	prefer_experimental "$suites" "$versions"
	[ -z "${5:-}" ] || preferences+=("--architectures=$5")
	rm -rf --one-file-system "$dir" "$dir.part"
	if ! make_system "$dir.part" "$suites" "$packages" "${preferences[@]}" >"$log" 2>&1; then
		rm -rf --one-file-system "$dir.part"
		say "$({ grep -m 1 '^E: ' "$log" || tail -n 1 "$log"; } | cut -c 1-300)"
		return 1
	fi
	say "$what" >"$dir.part/etc/snowflake-matrix"
	mv "$dir.part" "$dir"
	chroot_is_whole "$dir" "$what" || { say "its chroot does not work: see $log"; return 1; }
}

# Take a chroot's lock, and make it if need be.  The lock is held until the
# (sub)shell ends.  $1 to $5: as for make_chroot().
open_chroot()
{
	if [ "$(id -u)" != 0 ]; then
		say "a chroot needs root, or sudo without a password"
		return 1
	fi
	if [ -z "$2" ]; then
		say "no suite of Debian that has it is known here"
		return 1
	fi
	if ! mkdir -p "$cache" 2>/dev/null || ! exec 9>"$cache/$1.lock"; then
		say "cannot write to $cache"
		return 1
	fi
	flock 9
	make_chroot "$@" || return 1
	if ! unshare --mount --pid --ipc --fork --kill-child true 2>/dev/null; then
		say "this machine does not allow private namespaces (unshare)"
		return 1
	fi
}

# The packages of package.json, kept until that changes.  npm runs here, as whoever started us,
# since its configuration is theirs, but none of the packages may run a program of its own.  One
# attempt, since npm takes minutes to find out that it cannot be done.
# $1: the directory
# shellcheck disable=SC2154 # root is of lib.sh
install_client_modules()
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

# Run a command in a system.  Its mounts and processes are in namespaces of their own,
# so that none of them outlives the command, whatever ends it.  (SIGTERM does not end
# unshare, SIGKILL does.)  $1: the directory
in_system()
{
	unshare --mount --pid --ipc --fork --kill-child -- bash -e -c '
		dir=$1
		shift
		mount -t proc proc "$dir/proc"
		mount --rbind /dev "$dir/dev"
		mount --rbind /sys "$dir/sys"
		exec chroot "$dir" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
			HARNESS_TAP=1 SNOWFLAKE_JOBS=2 "$@"' bash "$@" </dev/null
}

# ... in a chroot that is open, beside a copy of the tree in /src.  $1: its name
in_chroot()
{
	local dir=$cache/$1

	shift
	rm -rf --one-file-system "$dir/src" "$dir"/tmp/*
	mkdir -p "$dir/src"
	pack_tree --exclude=node_modules | tar -C "$dir/src" -xf - --no-same-owner
	in_system "$dir" "$@"
}

# Run apt-get with a source and a state of its own, in a directory, so that the machine's
# are left alone.  $1: the directory, where it puts what it gets, $2: the type of the
# source, $3: the suite, further: the command
private_apt()
{
	local dir=$1 source options

	source=$(debian_source) || { say "$source"; return 1; }
	mkdir -p "$dir"/{lists,archives}/partial
	say "$2 $source $3 main" >"$dir/sources.list"
	options=(-qq -o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null
		-o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir" -o APT::Update::Error-Mode=any
		-o Acquire::Check-Valid-Until=false -o APT::Sandbox::User="$(id -un)")
	apt-get "${options[@]}" update && (cd "$dir" && apt-get "${options[@]}" "${@:4}")
}

# Get PostgreSQL's source into $source_cache/VERSION/source.  The caller holds a lock.
# $1: the major version
get_source()
{
	local dir=$source_cache/$1 suite=${suites_of[$1]:-}

	[ ! -d "$dir/source" ] || return 0
	[ -n "$suite" ] || { say "no source is known for PostgreSQL $1"; return 1; }
	rm -rf "$dir"/{apt,source.part}
	mkdir -p "$dir/source.part"
	install_packages bzip2 &&
		private_apt "$dir/apt" deb-src "${suite##* }" source --download-only "postgresql-$1" &&
		tar -C "$dir/source.part" -xf "$dir"/apt/*.orig.tar.* --strip-components=1 --no-same-owner || return
	mv "$dir/source.part" "$dir/source"
	rm -rf "$dir/apt"
}

# Install what the modules of coordinators are built with, and what runs them, and fail if one
# cannot be had: the Makefile says which modules it does not build, and the tests of a
# coordinator that is not installed are skipped.  A chroot has what it has.
install_coordinators()
{
	local status=0

	[ ! -e /etc/snowflake-matrix ] || return 0
	# shellcheck disable=SC2086 # one word each
	install_packages $coordinator_packages || status=1
	if [ -z "${CONSUL:-}" ]; then
		CONSUL=$(find_consul) || { say "without consul: $CONSUL"; CONSUL=; status=1; }
		export CONSUL
	fi
	return "$status"
}

# Prints the path of Consul.  Debian had it up to version 11, whose package is
# unpacked; it needs nothing but libc.
find_consul()
{
	local dir=$cache/consul

	command -v consul && return
	mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] || { say "cannot write to $cache"; return 1; }
	(
		flock 9
		[ ! -x "$dir/usr/bin/consul" ] || exit 0
		rm -rf --one-file-system "$dir" "$dir.part"
		private_apt "$dir.part" deb bullseye download consul &&
			dpkg -x "$dir.part"/consul_*.deb "$dir.part/root" &&
			"$dir.part/root/usr/bin/consul" version &&
			mv "$dir.part/root" "$dir" &&
			rm -rf --one-file-system "$dir.part"
	) 9>"$dir.lock" >"$dir.log" 2>&1 || { tail -n 1 "$dir.log"; return 1; }
	say "$dir/usr/bin/consul"
}
