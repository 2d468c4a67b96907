#!/bin/bash
# Real clients against a server with the extension: one small program for each,
# in this directory, that inserts, reads back and filters, and that asserts
# what doc/clients.md says about that client, the traps included.  A client that
# cannot be installed, or ends early, is a failure.
#
#   bash test/clients/run.sh                  every client, but go and rust
#   bash test/clients/run.sh go rust          which take a minute or more each to install and build
#   bash test/clients/run.sh jdbc node        some of them

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
begin clients "$@"

# Debian's packages belong to Debian's interpreters, whatever PATH finds first.
python=/usr/bin/python3
hibernate_jars=({postgresql,hibernate-core,hibernate-commons-annotations,geronimo-jpa_2.0_spec,geronimo-jta-1.2-spec}.jar
	{dom4j,antlr,commons-collections3,javassist,slf4j-api,slf4j-nop}.jar)

# which some have from elsewhere
jdk=$({ command -v java && command -v javac; } >/dev/null || say default-jdk-headless)
nodejs=$({ command -v node && command -v npm; } >/dev/null || say nodejs npm)

declare -A packages=(
	[psql]= [psycopg2]=python3-psycopg2 [psycopg3]=python3-psycopg [asyncpg]=python3-asyncpg
	[sqlalchemy]="python3-sqlalchemy python3-psycopg2" [django]="python3-django python3-psycopg2"
	[jdbc]="$jdk libpostgresql-jdbc-java"
	[hibernate]="$jdk libpostgresql-jdbc-java libhibernate3-java libjavassist-java libslf4j-java"
	[node]=$nodejs [sequelize]=$nodejs [knex]=$nodejs [typeorm]=$nodejs
	[pdo]="php-cli php-pgsql" [dbd]=libdbd-pg-perl [activerecord]="ruby-activerecord ruby-pg"
	[go]="golang-go golang-github-lib-pq-dev golang-github-jackc-pgx-v4-dev"
	[rust]="cargo librust-tokio-postgres-dev"
)
clients=${*:-psql psycopg2 psycopg3 asyncpg sqlalchemy django jdbc hibernate node sequelize knex typeorm pdo dbd activerecord}
wanted=()
for client in $clients; do
	[ -n "${packages[$client]+x}" ] || die "no such client: $client; there are: ${!packages[*]}"
	# shellcheck disable=SC2206 # its words
	wanted+=(${packages[$client]})
done

# The packages of package.json, for all JavaScript programs together, unless the
# checkout has them, for want of a network.  npm runs as whoever started us, since
# its configuration is theirs, but none of the packages may run a program of its
# own.  One attempt, since npm takes minutes to find out that it cannot be done.
install_node_modules()
{
	[ ! -e "$work/npm.log" ] || return 1
	[ ! -e "$work/clients/node_modules" ] || return 0
	(cd "$work/clients" && umask 022 && npm install --ignore-scripts --no-audit \
		--no-fund --no-package-lock --fetch-retries=1 --loglevel=error) \
		>"$work/npm.log" 2>&1 || { tail -n 20 "$work/npm.log"; return 1; }
	rm "$work/npm.log"
}

# The Java programs' class path with these jars of Debian's.
class_path()
{
	printf '%s' "$work/clients/class" "${@/#/:/usr/share/java/}"
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
	local package

	for package in ${packages[$1]}; do
		is_installed "$package" || { say "there is no $package"; return 1; }
	done
	case $1 in
		jdbc) compile_java JdbcClient.java "$(class_path postgresql.jar)" ;;
		hibernate) compile_java HibernateClient.java "$(class_path "${hibernate_jars[@]}")" ;;
		node | sequelize | knex | typeorm) install_node_modules ;;
		go)
			as_user env GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE="$work/go" \
				go build -o "$work/clients/go_client" "$work/clients/go_client.go"
			;;
		rust)
			# the lock file is written here, from what Debian has
			as_user env CARGO_HOME="$work/cargo" /usr/bin/cargo build -q --offline \
				--manifest-path "$work/clients/rust/Cargo.toml" \
				--config 'source.crates-io.replace-with = "debian"' \
				--config 'source.debian.directory = "/usr/share/cargo/registry"'
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
		psql) as_user psql -X -A -t -q -f psql_client.sql ;;
		psycopg2 | psycopg3 | asyncpg | sqlalchemy | django) as_user "$python" -B "$1_client.py" ;;
		jdbc) run_java -cp "$(class_path postgresql.jar)" JdbcClient ;;
		hibernate)
			# its proxies are older than the rules of Java 9
			HIBERNATE_VERSION="$(version_of libhibernate3-java)" run_java \
				--add-opens java.base/java.lang=ALL-UNNAMED \
				-cp "$(class_path "${hibernate_jars[@]}")" HibernateClient
			;;
		node | sequelize | knex | typeorm) as_user node "$1_client.js" ;;
		pdo) as_user php pdo_client.php ;;
		dbd) as_user /usr/bin/perl dbd_client.pl ;;
		activerecord) as_user /usr/bin/ruby activerecord_client.rb ;;
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

# Run one client in a database of its own, as a user who owns that and is nothing more.
# Its results are ours, and its plan has to have announced them.
run_client()
{
	local client=$1 log=$work/$1.log status=0 count

	prepare "$client" >"$log" 2>&1 || { result 1 "$client can be installed" "$log"; return; }
	as_user createdb -O app "$client"
	export PGUSER=app PGDATABASE=$client
	as_user psql -X -q -v ON_ERROR_STOP=1 -c 'CREATE EXTENSION snowflake'
	(cd "$work/clients" && program "$client") >"$log" 2>&1 </dev/null || status=$?
	export PGUSER=postgres PGDATABASE=postgres
	sed -E "s/^((not )?ok) [0-9]+( - )?/\1 - $client: /; t; s/^[^#]/# &/" "$log"
	count=$(grep -cE '^(not )?ok ' "$log") || true
	results=$((results + count))
	[ "$status" = 0 ] && grep -qx "1\.\.$count" "$log" || result 1 "$client: exit status $status, and $count results as planned"
}

install_packages "${wanted[@]}" || true
grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release ||
	say "# this is not Debian 12: the clients have other versions than in doc/clients.md"
as_user cp -R "$work/tree/test/clients" "$work/clients"
# JDBC knows no Unix sockets
port=$(perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")->sockport')
start_server "listen_addresses = '127.0.0.1'" "port = $port"
export PGPORT=$port PATH=$bindir:$PATH
as_user psql -X -q -c 'CREATE ROLE app LOGIN'
for client in $clients; do
	run_client "$client"
done
