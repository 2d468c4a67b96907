#!/bin/bash
# Real clients against a server with the extension: one small program for each,
# in this directory, that inserts, reads back and filters, and that asserts
# what doc/clients.md says about that client, the traps included.  Runs as root
# or as a user with sudo.  The last line of the output is "N passed, N failed",
# counted from the results that the programs print, in the TAP format.  A
# client that cannot be installed, or ends early, is a failure.
#
#   bash test/clients/run.sh                  every client, but go and rust
#   bash test/clients/run.sh go rust          which take a minute or more each to install and build
#   bash test/clients/run.sh jdbc node        some of them
#   bash test/clients/run.sh --installed ...  with the extension that is installed

set -euo pipefail
everything="psql psycopg2 psycopg3 asyncpg sqlalchemy django jdbc hibernate node sequelize knex typeorm pdo dbd activerecord"
on_request="go rust"
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# Debian's packages belong to Debian's interpreters, whatever PATH finds first.
python=/usr/bin/python3
perl=/usr/bin/perl
ruby=/usr/bin/ruby
jars=/usr/share/java
hibernate_jars="postgresql hibernate-core hibernate-commons-annotations geronimo-jpa_2.0_spec geronimo-jta-1.2-spec
	dom4j antlr commons-collections3 javassist slf4j-api slf4j-nop"
npm_failed=
gocode=/usr/share/gocode/src/github.com
# Debian's too, since others cannot be run by the unprivileged user
cargo=/usr/bin/cargo
crates=/usr/share/cargo/registry

passed=0
failed=0
skipped=0
finished=

# Print the verdict, whatever has happened before.
finish()
{
	trap - EXIT
	if [ -z "$finished" ]; then
		if [ -n "$work" ] && [ -s "$work/step.log" ]; then
			tail -n 40 "$work/step.log"
		fi
		say "the run ended early"
		failed=$((failed + 1))
	fi
	if [ "$failed" != 0 ] && [ -n "$work" ]; then
		server_log
	fi
	cleanup || true
	if [ "$skipped" != 0 ]; then
		say "$skipped skipped"
	fi
	say "$passed passed, $failed failed"
	[ "$failed" = 0 ] || exit 1
	exit 0
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

installed=
clients=
for argument in "$@"; do
	case " $everything $on_request --installed " in
		*" $argument "*) ;;
		*)
			say "no such client: $argument; there are: $everything $on_request"
			exit 2
			;;
	esac
	case $argument in
		--installed) installed=yes ;;
		*) clients+=" $argument" ;;
	esac
done
clients=${clients:-$everything}

# What a client needs, and whether it is here.
has_jdk()
{
	command -v java >/dev/null && command -v javac >/dev/null
}

has_node()
{
	command -v node >/dev/null && command -v npm >/dev/null
}

has_module()
{
	[ -x "$python" ] && "$python" -c "import $1" 2>/dev/null
}

# Print the Debian packages that a client still needs.
missing_packages()
{
	case $1 in
		psycopg2)
			has_module psycopg2 || say python3 python3-psycopg2
			;;
		psycopg3)
			has_module psycopg || say python3 python3-psycopg
			;;
		asyncpg)
			has_module asyncpg || say python3 python3-asyncpg
			;;
		sqlalchemy | django)
			has_module "$1" || say python3 "python3-$1"
			has_module psycopg2 || say python3-psycopg2
			;;
		jdbc)
			has_jdk || say default-jdk-headless
			[ -e "$jars/postgresql.jar" ] || say libpostgresql-jdbc-java
			;;
		hibernate)
			missing_packages jdbc
			[ -e "$jars/hibernate-core.jar" ] || say libhibernate3-java
			[ -e "$jars/javassist.jar" ] || say libjavassist-java
			[ -e "$jars/slf4j-nop.jar" ] || say libslf4j-java
			;;
		node | sequelize | knex | typeorm)
			has_node || say nodejs npm
			;;
		pdo)
			php -r 'exit(in_array("pgsql", PDO::getAvailableDrivers()) ? 0 : 1);' >/dev/null 2>&1 ||
				say php-cli php-pgsql
			;;
		dbd)
			"$perl" -MDBD::Pg -e 1 2>/dev/null || say perl libdbd-pg-perl
			;;
		activerecord)
			"$ruby" -e 'require "active_record"; require "pg"' 2>/dev/null || say ruby-activerecord ruby-pg
			;;
		go)
			command -v go >/dev/null || say golang-go
			[ -d "$gocode/lib/pq" ] || say golang-github-lib-pq-dev
			[ -d "$gocode/jackc/pgx/v4" ] || say golang-github-jackc-pgx-v4-dev
			;;
		rust)
			[ -x "$cargo" ] || say cargo
			compgen -G "$crates/tokio-postgres-*" >/dev/null || say librust-tokio-postgres-dev
			;;
	esac
}

# Install what is missing, all in one go; if that fails, client by client, so
# that one package that is not to be had costs one client only.
install_clients()
{
	local client more packages=()

	for client in $clients; do
		read -r -d '' -a more < <(missing_packages "$client") || true
		packages+=(${more[@]+"${more[@]}"})
	done
	read -r -d '' -a packages < <(printf '%s\n' ${packages[@]+"${packages[@]}"} | sort -u) || true
	[ "${#packages[@]}" -gt 0 ] || return 0
	if ! command -v apt-get >/dev/null; then
		say "no apt-get here, and missing: ${packages[*]}"
		return 0
	fi
	apt_update_once || return 0
	apt_install "${packages[@]}" && return
	for client in $clients; do
		read -r -d '' -a packages < <(missing_packages "$client") || true
		[ "${#packages[@]}" = 0 ] || apt_install "${packages[@]}" || true
	done
}

# The packages of package.json, for all JavaScript programs together, unless the
# checkout has them, for want of a network.  npm runs as whoever started us, since
# its configuration is theirs, but none of the packages may run a program of its
# own.  One attempt, since npm takes minutes to find out that it cannot be done.
install_node_modules()
{
	local status=0

	[ -z "$npm_failed" ] || return
	[ ! -e "$work/clients/node_modules" ] || return 0
	progress "npm install"
	(cd "$work/clients" && umask 022 && npm install --ignore-scripts --no-audit \
		--no-fund --no-package-lock --fetch-retries=1 --loglevel=error) \
		>"$work/npm.log" 2>&1 || status=$?
	if [ "$status" != 0 ]; then
		tail -n 20 "$work/npm.log"
		npm_failed=yes
	fi
	return "$status"
}

# The Java programs' class path with these jars of Debian's.
class_path()
{
	local jar path=$work/clients/class

	for jar in "$@"; do
		path+=:$jars/$jar.jar
	done
	say "$path"
}

compile_java()
{
	as_user mkdir -p "$work/clients/class"
	# javac speaks of annotations that its jars refer to and that are not here
	as_user javac -Xlint:all,-classfile,-processing -Werror -cp "$2" -d "$work/clients/class" \
		-sourcepath "$work/clients" "$work/clients/$1"
}

run_java()
{
	as_user java -XX:TieredStopAtLevel=1 "$@"
}

# Make everything that a client needs ready.
prepare()
{
	[ -z "$(missing_packages "$1")" ] || return
	case $1 in
		jdbc) compile_java JdbcClient.java "$(class_path postgresql)" ;;
		hibernate) compile_java HibernateClient.java "$(class_path $hibernate_jars)" ;;
		node | sequelize | knex | typeorm)
			install_node_modules
			;;
		go)
			as_user env GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE="$work/go" \
				go build -o "$work/clients/go_client" "$work/clients/go_client.go"
			;;
		rust)
			# the lock file is written here, from what Debian has
			as_user env CARGO_HOME="$work/cargo" "$cargo" build -q --offline \
				--manifest-path "$work/clients/rust/Cargo.toml" \
				--config 'source.crates-io.replace-with = "debian"' \
				--config "source.debian.directory = \"$crates\""
			;;
	esac
}

# The version of a Debian package without what Debian adds, for clients that do
# not know their own.
version_of()
{
	dpkg-query -W -f '${Version}' "$1" | sed 's/^[0-9]*://; s/-.*//'
}

program()
{
	case $1 in
		psql) as_user bash psql_client.sh ;;
		psycopg2 | psycopg3 | asyncpg | sqlalchemy | django) as_user "$python" -B "$1_client.py" ;;
		jdbc) run_java -cp "$(class_path postgresql)" JdbcClient ;;
		hibernate)
			# its proxies are older than the rules of Java 9
			HIBERNATE_VERSION="$(version_of libhibernate3-java)" run_java \
				--add-opens java.base/java.lang=ALL-UNNAMED \
				-cp "$(class_path $hibernate_jars)" HibernateClient
			;;
		node | sequelize | knex | typeorm) as_user node "$1_client.js" ;;
		pdo) as_user php pdo_client.php ;;
		dbd) as_user "$perl" dbd_client.pl ;;
		activerecord) as_user "$ruby" activerecord_client.rb ;;
		go)
			as_user env PQ_VERSION="$(version_of golang-github-lib-pq-dev)" \
				PGX_VERSION="$(version_of golang-github-jackc-pgx-v4-dev)" ./go_client
			;;
		rust)
			as_user env TOKIO_POSTGRES_VERSION="$(version_of librust-tokio-postgres-dev)" \
				rust/target/debug/rust_client
			;;
	esac
}

# Run one client in a database of its own, as a user who owns that and is
# nothing more, and add up its results.
run_client()
{
	local client=$1 log=$work/$1.log status=0 ok bad skip plan

	if ! prepare "$client"; then
		say "not ok - $client could not be installed"
		failed=$((failed + 1))
		return
	fi
	createdb -O app "$client"
	export PGUSER=app PGDATABASE=$client
	psql -X -q -v ON_ERROR_STOP=1 -c 'CREATE EXTENSION snowflake'
	(cd "$work/clients" && program "$client") >"$log" 2>&1 </dev/null || status=$?
	export PGUSER=postgres PGDATABASE=postgres

	read -r ok bad skip plan < <(awk '
		/^ok [0-9]+/ && !/# *[Ss][Kk][Ii][Pp]/ { ok++ }
		/^ok [0-9]+.*# *[Ss][Kk][Ii][Pp]/ { skip++ }
		/^not ok [0-9]+/ { bad++ }
		/^1\.\.[0-9]+$/ { plan = substr($0, 4) }
		END { print ok + 0, bad + 0, skip + 0, plan + 0 }' "$log")
	# what the client is, and of which version; then whatever is not as expected
	sed -n 's/^# client: //p' "$log"
	grep -E '# *[Ss][Kk][Ii][Pp]' "$log" || true
	if [ "$status" != 0 ] || [ "$plan" != $((ok + bad + skip)) ] || [ "$plan" = 0 ]; then
		say "$client: exit status $status, $((ok + bad + skip)) results, $plan planned"
		# a result for the end that is missing, if nothing else has failed
		[ "$bad" != 0 ] || bad=1
	fi
	if [ "$bad" != 0 ]; then
		grep -vE '^ok [0-9]+' "$log" | tail -n 60
	fi
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
	progress "$client: $ok passed, $bad failed$([ "$skip" = 0 ] || echo ", $skip skipped")"
}

# A step that everything needs: if it fails, nothing can run.
step()
{
	progress "$1"
	shift
	"$@" >"$work/step.log" 2>&1
	: >"$work/step.log"
}

# The psql and the createdb of the server, not those that PATH finds first.
psql()
{
	as_user "$bindir/psql" "$@"
}

createdb()
{
	as_user "$bindir/createdb" "$@"
}

# A port that is free now.  JDBC knows no Unix sockets.
free_port()
{
	perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(
		Listen => 1, LocalAddr => "127.0.0.1", LocalPort => 0)->sockport'
}

progress "install what is missing"
install_missing
install_clients
make_workspace
progress "$("$pg_config" --version), as user $(test_user)"
if ! grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then
	say "this is not Debian 12: the clients have other versions than in doc/clients.md"
fi
if [ -z "$installed" ]; then
	step "build with warnings as errors" build_extension
	step "install" install_extension
fi
as_user cp -R "$work/tree/test/clients" "$work/clients"
port=$(free_port)
step "start a server" start_server "listen_addresses = '127.0.0.1'" "port = $port"
export PGPORT=$port PATH=$bindir:$PATH
psql -X -q -c 'CREATE ROLE app LOGIN'
for client in $clients; do
	run_client "$client"
done
finished=yes
