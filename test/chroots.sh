# Shared by matrix.sh and upgrade.sh: chroots with the PostgreSQL versions of
# Debian's suites, kept between runs.  To be sourced after lib.sh, not run.
#
# A chroot is made under another name and renamed when it is complete, so what
# lies under its own name is whole; a file in it says what it was made of.  All
# of this needs root: see become_root().

: "${root:?lib.sh comes first}"
cache=${SNOWFLAKE_MATRIX_CACHE:-${XDG_CACHE_HOME:-/var/cache}/snowflake-matrix}

# Which suite carries which version, its first one being the base.
# shellcheck disable=SC2034 # used by those who source this
declare -A suites_of=([15]=bookworm [17]=trixie [18]=forky [19]="sid experimental")

# shellcheck disable=SC2034 # likewise
default_versions="15 17 18 19"

# What the tests need, besides the server, and what the modules of coordinators are
# built with.  The coordinators themselves are not there: their tests are skipped.
chroot_packages="make gcc libc6-dev libcurl4-openssl-dev libipc-run-perl libzookeeper-st-dev perl procps"

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
# URI"; fails if there is none.  apt itself says which of its sources that is;
# only the options that say whom to trust have to be looked up there.
debian_source()
{
	local uri entry options=

	read -r uri entry < <(apt-get indextargets --format '$(REPO_URI) $(SOURCESENTRY)' \
		'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 'Component: main' |
		grep -v '^cdrom:') || true
	[ -n "${uri:-}" ] || return 1
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

# Make a chroot, unless it is there and whole.  $1: its name, $2: suites, $3:
# versions.  On failure, prints why on one line.  The caller holds the lock.
make_chroot()
{
	local suites=$2 versions=$3 dir=$cache/$1 log=$cache/$1.log
	local packages=$chroot_packages what suite version source option status=0 options=() sources=()

	for version in $versions; do
		packages+=" postgresql-$version postgresql-server-dev-$version"
	done
	what="$suites: $packages"
	! chroot_is_whole "$dir" "$what" || return 0

	# its answer depends on what apt-get update has brought
	[ -n "$(apt-get indextargets 'Created-By: Packages')" ] || apt_update_once >&2 || true
	install_packages mmdebstrap >&2 || { say "mmdebstrap is missing"; return 1; }
	source=$(debian_source) || { say "apt has no source of Debian"; return 1; }
	for suite in $suites; do
		sources+=("deb $source $suite main")
	done

	# what this machine has for proxies and certificates
	while read -r option; do
		options+=("--aptopt=$option")
	done < <(apt-config dump | grep -E '^Acquire::https?::[^ ]+ ".+"')

	# Experimental has only what it is asked for; libpq has to be the server's.
	if [[ $suites == *experimental* ]]; then
		options+=("--setup-hook=printf 'Package: libpq5 libpq-dev postgresql-$versions postgresql-*-$versions\nPin: release a=experimental\nPin-Priority: 990\n' >\"\$1/etc/apt/preferences.d/snowflake\"")
	fi

	rm -rf --one-file-system "$dir" "$dir.part"
	timeout --foreground 900 mmdebstrap --mode=root --variant=apt --format=directory \
		--aptopt='Acquire::Check-Valid-Until "false"' \
		--setup-hook='mkdir -p "$1/etc/apt/preferences.d"' "${options[@]}" \
		--include="${packages// /,}" "${suites%% *}" "$dir.part" "${sources[@]}" \
		</dev/null >"$log" 2>&1 || status=$?
	if [ "$status" != 0 ]; then
		rm -rf --one-file-system "$dir.part"
		say "$({ grep -m 1 '^E: ' "$log" || tail -n 1 "$log"; } | cut -c 1-300)"
		return 1
	fi
	say "$what" >"$dir.part/etc/snowflake-matrix"
	mv "$dir.part" "$dir"
	if ! chroot_is_whole "$dir" "$what"; then
		say "its chroot does not work: see $log"
		return 1
	fi
}

# Take a chroot's lock, and make it if need be.  The lock is held until the
# (sub)shell ends.  $1, $2, $3: as for make_chroot().
# On failure, prints why on one line.
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

# Run a command in a chroot that is open, beside a copy of the tree in /src.  Its
# mounts and processes are in namespaces of their own, so that none of them
# outlives the command, whatever ends it.  (SIGTERM does not end unshare, SIGKILL
# does.)  $1: the chroot's name
in_chroot()
{
	local dir=$cache/$1

	shift
	rm -rf --one-file-system "$dir/src" "$dir"/tmp/*
	mkdir -p "$dir/src"
	pack_tree --exclude=node_modules |
		tar -C "$dir/src" -xf - --no-same-owner
	unshare --mount --pid --ipc --fork --kill-child -- bash -e -c '
		dir=$1
		shift
		mount -t proc proc "$dir/proc"
		mount --rbind /dev "$dir/dev"
		mount --rbind /sys "$dir/sys"
		exec chroot "$dir" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
			HARNESS_TAP=1 SNOWFLAKE_JOBS=1 "$@"' bash "$dir" "$@" </dev/null
}
