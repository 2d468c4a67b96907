# PostgreSQL's source, as Debian has it, for what is built from it or tests with
# it: debug.sh, differ/run.sh.  To be sourced by bash after lib.sh, not run.
#
# It is fetched once for each major version and kept, in
# ${XDG_CACHE_HOME:-/var/cache}/snowflake-debug.

source_cache=${XDG_CACHE_HOME:-/var/cache}/snowflake-debug
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# Which of Debian's suites has the source of a major version.
declare -A source_suites=([15]=bookworm [17]=trixie [18]=forky)

# Run a tool of apt with sources and state of its own, below $cache, so that the
# machine's are left alone.  apt verifies the suite's signature, and by that the source.
private_apt()
{
	local tool=$1

	shift
	"$tool" -o Dir::Etc::SourceList="$cache/apt/debian.sources" \
		-o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$cache/apt/lists" -o Dir::Cache="$cache/apt/cache" \
		-o Acquire::Check-Valid-Until=false -o APT::Sandbox::User="$(id -un)" "$@"
}

# Get the source of a major version into $source_cache/VERSION/source, from the
# mirrors that apt uses.  The caller holds a lock.  $1: the version
get_source()
{
	local version=$1 cache=$source_cache/$1 suite=${source_suites[$1]:-} mirror tarball

	[ ! -d "$cache/source" ] || return 0
	[ -n "$suite" ] || die "no source is known for PostgreSQL $version"
	install_packages bzip2 debian-archive-keyring
	rm -rf "$cache/apt" "$cache/source.part"
	mkdir -p "$cache"/apt/{lists,cache/archives}/partial "$cache/source.part"
	while read -r mirror; do
		# deb822 wants no blank before the field
		printf '%s\n' 'Types: deb-src' "URIs: $mirror" "Suites: $suite" \
			'Components: main' "Signed-By: $keyring" >"$cache/apt/debian.sources"
		say "source of postgresql-$version of $suite"
		if private_apt apt-get update -qq -o APT::Update::Error-Mode=any &&
			(cd "$cache/source.part" &&
				private_apt apt-get source -qq --download-only "postgresql-$version"); then
			break
		fi
	done < <(
		apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
			sed -n '/security/d; s/^Debian //p' | sort -u
	)
	tarball=$(compgen -G "$cache/source.part/*.orig.tar.*") ||
		die "none of apt's sources has the source of PostgreSQL $version"
	tar -C "$cache/source.part" -xf "$tarball" --strip-components=1 --no-same-owner
	rm -f "$cache"/source.part/*.tar.* "$cache"/source.part/*.dsc
	rm -rf "$cache/apt"
	mv "$cache/source.part" "$cache/source"
}
