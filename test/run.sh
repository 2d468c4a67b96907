#!/bin/bash
# Run the tests: build the extension in a copy of the tree, install it, and run
# them, several at once.  Runs as root or as a user with sudo.  Every test speaks TAP,
# and harness.pl adds up: the last line of the output is "N passed, N failed".  README.md says
# how to call this, and what the kinds are.
#
# SNOWFLAKE_JOBS says how many at once: four for each processor if unset, for most of
# them wait.  SNOWFLAKE_TEST_LIMIT is for how many seconds a TAP test may run: 1800 if unset,
# 7200 for random ones, which is several times what the longest takes on a busy machine.
#
# What cannot be set up here, such as another version of PostgreSQL, is skipped; with CI=true
# it is a failure.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$root/test/debian.sh"
push="versions build regress isolation tap times races torture fleet check"
nightly="matrix upgrade package image newcomer build regress isolation tap times races model fuzz sqlsmith convert differ clients tools campaigns check"
short="regress isolation tap"
known="$nightly versions torture fleet patroni"

# Which kinds of tests, and which of each or what options, from the command line.
kinds=
declare -A only=()
for argument in "$@"; do
	if [ "$*" = nightly ]; then
		kinds=$nightly
		only[times]=" --queries 20000"
	elif [ "$*" = short ]; then
		kinds=$short
		only[tap]=" $(cd "$root/test/t" && grep -Lx '# long' -- *.pl | tr '\n' ' ')"
	elif [[ " $known " == *" $argument "* ]]; then
		kind=$argument
		kinds+=" $kind"
	elif [ -z "$kinds" ]; then
		say "say which kind of test \"$argument\" is: ${known// /, }"
		exit 2
	else
		case $kind in
			regress | isolation | tap | races | clients | tools)
				argument=${argument##*/}
				argument=${argument%.*}
				;;
		esac
		only[$kind]+=" ${argument@Q}"
	fi
done
kinds=" ${kinds:-$push}"

HARNESS_TAP=${HARNESS_TAP:-}

# A line of the harness's list.  $1: lane, $2: name, further: the command, as one word or several
job()
{
	local lane=$1 name=$2

	shift 2
	[ $# = 1 ] || set -- "${*@Q}"
	printf '%s\t%s\t%s\n' "$lane" "$name" "$1"
}

# TAP tests, each in a directory of its own.
# $1: the directory that has them, $2: lane, $3: the kind, further: their names; all if there are none,
# and then those first that say of themselves that they are long
tap_tests()
{
	local names=("${@:4}") name

	[ $# -gt 3 ] || mapfile -t names < <(cd "$1" && { grep -lx '# long' -- *.pl || true; grep -Lx '# long' -- *.pl; })
	names=("${names[@]%.pl}")
	as_user mkdir -p "${names[@]/#/$work/log/$3/}"
	for name in "${names[@]}"; do
		job "$2" "$3/$name" "$(tap_test "$work/log/$3/$name" "$1/$name.pl")"
	done
}

# A TAP test of another folder, as a kind of its own.  $1: its name, $2: its file, further: its arguments
one_test()
{
	as_user mkdir -p "$work/log/$1"
	job any "$1" "$(tap_test "$work/log/$1" "${@:2}")"
}

# A program that needs no server.  Programs take the time that is left by those that wait, in one
# lane for each of two processors.  $1: lane, $2: its name, $3: packages that it takes,
# further: its arguments
program()
{
	local lane=$1 name=$2 packages=$3

	shift 3
	job "$lane" "$name${*:+ $*}" "install_packages $packages; nice perl test/$name/$name.pl ${*@Q}"
}

# What is to run.  $1: a kind, further: its arguments
list()
{
	local kind=$1 name

	shift
	case $kind in
		build) job any build "command -v $(server_clang) clang >/dev/null || install_packages clang; as_user perl test/check/check.pl --build" ;;
		regress | isolation) job regress "$kind" "$(installcheck "$work/log/$kind" "$kind" "$@")" ;;
		tap) tap_tests test/t any tap "$@" ;;
		tools)
			# a chroot has what it has
			[ -e /etc/snowflake-matrix ] ||
				if_possible install_packages pgbouncer pgpool2 prometheus prometheus-postgres-exporter \
					"postgresql-$major-"{partman,cron,wal2json} >&2
			tap_tests test/tools any tools "$@"
			;;
		sqlsmith | convert | times)
			[ "$kind" != sqlsmith ] || install_packages sqlsmith >&2
			SNOWFLAKE_TEST_LIMIT=${SNOWFLAKE_TEST_LIMIT:-7200} one_test "fuzz/$kind" "test/fuzz/$kind.pl" "$@"
			[ "$kind$*" != convert ] || for name in 601_migrate_online 602_migrate_killed; do
				one_test "convert/$name" "test/t/$name.pl"
			done | sed 's/\tas_user /\tas_user SNOWFLAKE_TEST_LONG=1 /'
			;;
		races)
			local names=("$@")

			[ $# -gt 0 ] || mapfile -t names < <(cd test/t && grep -lE 'injection_points|SnowflakeRaces' -- *.pl)
			job any races env HARNESS_TAP=1 bash test/debug.sh tap "${names[@]%.pl}"
			;;
		torture)
			[ $# -gt 0 ] || set -- --minutes 1 --seed 1
			job campaigns "torture $*" bash test/python.sh torture "$@"
			;;
		fleet)
			[ $# -gt 0 ] || set -- --coordinator postgresql --minutes 1 --seed 1
			job campaigns "fleet $*" bash test/python.sh fleet "$@"
			;;
		campaigns)
			list torture --minutes 10 --seed 1
			list torture tail --minutes 5 --seed 1
			for name in postgresql etcd zookeeper consul; do
				list fleet --coordinator "$name" --minutes 5 --seed 1
			done
			list patroni
			;;
		patroni)
			job campaigns patroni "install_packages libcurl4-openssl-dev patroni etcd-server python3-yaml \
				python3-psycopg2; PYTHON=/usr/bin/python3 bash test/python.sh patroni ${*@Q}"
			;;
		matrix | versions)
			if [ $# = 0 ]; then
				set -- ${default_versions/$major/}
				[ "$kind" = versions ] || set -- "$@" $other_architectures
			fi
			for name; do
				job any "$kind $name" bash test/matrix.sh "$kind" "$name"
			done
			;;
		model) program "processor 1" model spin "$@" ;;
		fuzz) program "processor 2" fuzz "clang libclang-rt-dev" "$@" ;;
		check)
			local packages="cppcheck clang-tidy clang shellcheck binutils pg-bsd-indent perltidy"

			if [ $# -gt 0 ]; then
				program "processor 1" check "$packages" "$@"
			else
				program "processor 1" check "$packages" clang-tidy
				program "processor 1" check "$packages" style
				program "processor 2" check "$packages" gcc
				program "processor 2" check "$packages" cppcheck
				job any rules "install_packages patch; perl test/check/rules.pl"
				job any harness perl test/check/harness.pl
			fi
			;;
		differ) job any differ bash test/python.sh differ "${@:---quick}" ;;
		clients)
			# they are in a chroot of their own
			if [ -e /etc/snowflake-matrix ]; then
				one_test clients test/clients/clients.pl "$@"
			else
				job any clients bash test/clients.sh "$@"
			fi
			;;
		newcomer | package | image) job any "$kind" perl "test/$kind.pl" "$@" ;;
		upgrade) job any upgrade bash test/upgrade.sh ;;
	esac
}

progress()
{
	[ -n "$HARNESS_TAP" ] || printf '[%4d s] %s\n' "$SECONDS" "$1"
}

# A step that the tests need: if it fails, they cannot run.  What apt-get does is worth
# showing, the rest is not.
step()
{
	local log

	log=$(mktemp)
	progress "$1"
	"${@:2}" 2>&1 | tee "$log" | { grep --line-buffered '^# ' || true; } || {
		tail -n 60 "$log"
		rm -f "$log"
		say "$1 failed"
		exit 1
	}
	rm -f "$log"
}

# The harness and what it runs is a process group, which ends before its servers do.
harness=
leave()
{
	local status=$1

	if [ -n "$harness" ]; then
		signal_harness TERM
		for _ in {1..25}; do
			harness_is_there || break
			sleep 1
		done
		signal_harness KILL
	fi
	# unless the harness has said so, which ends with 1, or was ended by what has ended us
	[ -n "$HARNESS_TAP" ] || [[ $status = 0 || ${harness:+$status} = @(1|130|143) ]] || say "0 passed, 1 failed"
}

harness_is_there()
{
	[[ $(kill -0 -- "-$harness" 2>&1) != *"No such process"* ]]
}

# Some of it may be root's.
signal_harness()
{
	harness_is_there || return 0
	kill -"$1" -- "-$harness" 2>/dev/null || true
	[ "$(id -u)" = 0 ] || as_root kill -"$1" -- "-$harness" 2>/dev/null || true
}

step "install what is missing" install_missing tests
find_pg_config
if [[ "$*" != short && "$kinds " =~ \ (build|tap|fleet|campaigns)\  ]]; then
	progress "install coordinators"
	if_possible install_coordinators
fi
make_workspace
case "$kinds " in
	*" build "* | *" regress "* | *" isolation "* | *" tap "* | *" clients "* | *" differ "* | *" tools "* | *" sqlsmith "* | *" convert "* | *" times "*)
		step "build for $("$pg_config" --version), warnings are errors" build_extension
		step "install" install_extension
		step "initdb" make_template
		;;
esac
export SNOWFLAKE_CHECKOUT=$root SNOWFLAKE_WORK=$work PG_CONFIG=$pg_config TMPDIR=$work/tmp PG_TEST_PORT_DIR=$work/tmp
export INITDB_TEMPLATE=$work/template SNOWFLAKE_JOBS="${SNOWFLAKE_JOBS:-$((4 * $(nproc)))}"
# on a busy machine a server may take as long to start as PostgreSQL's tests wait for all else
export PGCTLTIMEOUT=${PGCTLTIMEOUT:-180}
# where Debian has the poolers
export PATH=$PATH:/usr/sbin
cd "$work/tree"
for kind in $kinds; do
	eval "list $kind ${only[$kind]:-}"
done >"$work/list"
[ -z "${SNOWFLAKE_LAST:-}" ] || printf 'last\t%s\n' "$SNOWFLAKE_LAST" >>"$work/list"
set -m
perl test/harness.pl "$work/log" <"$work/list" &
harness=$!
set +m
wait "$harness"
