#!/bin/bash
# Plant faults in a copy of the tree, one at a time, and see which test notices.
# README.md says how the list of them is written.
#
#   bash test/mutate/run.sh               all of them, which takes hours
#   bash test/mutate/run.sh NAME src/gate.c
#                                         some, by their names or their files
#   --jobs N                              so many at once; 1 if it is not said
#   --first                               only the tests that ought to see a mutant
#   --new                                 only mutants that results.txt has no result for
#   --list                                show them, and check that they apply
#
# A mutant is built, and tested with the tests that ought to see it, until one of
# them fails; if none does, with all others.  It is killed if a test fails, a TAP
# test twice, that passes without it, or takes far longer than without it.  One that does not
# apply exactly once, or does not build, is an error of the list.  What comes of it
# is put into results.txt at once.  The last line is "N passed, N failed": killed is
# passed; survived, or an error, is failed.  The order is random, but always the same:
# where a run ends early, what it has tried is a sample.
#
# The tests are those of run.sh; "debug" before one of them means the server that
# debug.sh builds, with assertions and injection points.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
. "$root/test/coordinators.sh"

here=$root/test/mutate
top=
children=()

jobs=1
first_only=
new_only=
list_only=
selection=()
while [ $# -gt 0 ]; do
	case $1 in
		--jobs) jobs=$2; shift ;;
		--first) first_only=yes ;;
		--new) new_only=yes ;;
		--list) list_only=yes ;;
		-*) die "unknown option: $1" ;;
		*) selection+=("$1") ;;
	esac
	shift
done

# How long a test may take that took so many seconds without a mutant.
time_limit()
{
	say $((2 * $1 + 60))
}

# Servers that a test left behind, each by the PID in its own data directory.
stop_left_servers()
{
	local pid_file data pid children_of

	while read -r pid_file; do
		data=${pid_file%/*}
		as_user "$bindir/pg_ctl" -D "$data" -m immediate -t 15 -w stop >/dev/null 2>&1 && continue

		# it hangs, or it is gone and the PID may be somebody else's
		pid=$(head -n 1 "$pid_file" 2>/dev/null) || continue
		[ "$(readlink "/proc/$pid/cwd")" = "$data" ] || continue
		mapfile -t children_of < <(ps -o pid= --ppid "$pid" | tr -d ' ')
		kill -KILL "$pid" "${children_of[@]}" 2>/dev/null || true
	done < <(find "$work/tree" "$work/tmp" "$work/data" -name postmaster.pid 2>/dev/null)
}

finish()
{
	local status=$? child bench

	trap - EXIT
	# it hears of the end and cleans up by itself
	for child in "${children[@]}"; do
		kill "$child" 2>/dev/null || true
		wait "$child" || true
	done
	if [ -n "$top" ]; then
		for bench in "$top"/*/plain "$top"/*/debug; do
			[ -d "$bench" ] || continue
			work=$bench
			bindir=$(cat "$work/bindir" 2>/dev/null) || continue
			stop_left_servers || true
		done
		verdict || true
		cd /
		rm -rf "$top"
	fi
	[ "$status" = 0 ] || failed=$((failed + 1))
	say "$passed passed, $failed failed"
	[ "$failed" = 0 ] && [ "$passed" -gt 0 ] || exit 1
	exit 0
}


# Benches
#
# What a mutant is tested on: a copy of a PostgreSQL installation, and a tree that
# is built for it.  Each job has two: "plain" and, if it is needed, "debug".

# Copy an installation, with the paths that its programs expect of each other.
# $1: its pg_config, $2: to where.  Sets pg_config and bindir.
copy_server()
{
	local option directory

	for option in --bindir --pkglibdir --sharedir --includedir-server --includedir; do
		directory=$("$1" "$option")
		mkdir -p "$2$directory"
		cp -a "$directory/." "$2$directory"
	done
	pg_config=$2$("$1" --bindir)/pg_config
	bindir=$("$pg_config" --bindir)
}

# Most of what a TAP test takes is initdb, whose result is the same each time: put
# a script in its place that copies.  (From 16 on the tests do that by themselves.)
wrap_initdb()
{
	mv "$bindir/initdb" "$bindir/initdb.real"
	as_user mkdir "$work/initdb"
	cat >"$bindir/initdb" <<END
#!/bin/bash
directory=
options=()
for option in "\$@"; do
	case \$option in
		-D | --pgdata) directory=next ;;
		*) if [ "\$directory" = next ]; then directory=\$option; else options+=("\$option"); fi ;;
	esac
done
[ -n "\$directory" ] || exec "$bindir/initdb.real" "\$@"
kept=$work/initdb/\$(printf '%s\n' "\${options[@]}" | md5sum | cut -c 1-32)
if [ ! -d "\$kept" ]; then
	"$bindir/initdb.real" -D "\$kept.part" "\${options[@]}" || exit
	mv "\$kept.part" "\$kept"
fi
cp -aT "\$kept" "\$directory"
END
	chmod 755 "$bindir/initdb"
}

# Go to a bench, and make it if it is not there yet.
enter_bench()
{
	local bench=$1 from

	work=$top/$job/$bench
	if [ ! -e "$work/bindir" ]; then
		case $bench in
			plain) from=$original_pg_config ;;
			debug) from=$(bash "$root/test/debug.sh" build 2>&1 | tail -n 1) ;;
		esac
		mkdir -p "$work"
		chmod 755 "$work"
		[ "$(id -u)" != 0 ] || chown "$(test_user)": "$work"
		copy_server "$from" "$work/server"
		wrap_initdb
		as_user mkdir "$work/pristine" "$work/tmp"
		tar -C "$top/source" -cf - . | as_user tar -C "$work/pristine" -xf - --no-same-owner
		as_user cp -a "$work/pristine" "$work/tree"
		bench_make -j 2 >"$work/build.log" 2>&1 || { cat "$work/build.log"; return 1; }
		rm -rf "$work/pristine"
		as_user cp -a "$work/tree" "$work/pristine"
		as_user "$bindir/initdb" -D "$work/template" -U postgres -A trust -E UTF8 --no-locale \
			>"$work/initdb.log" 2>&1
		printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work'" \
			"shared_preload_libraries = 'snowflake'" "snowflake.node_id = 1" |
			as_user tee -a "$work/template/postgresql.conf" >/dev/null
		say "$bindir" >"$work/bindir"
		say / >"$work/planted"
	fi
	bindir=$(cat "$work/bindir")
	pg_config=$bindir/pg_config
}

bench_make()
{
	as_user env TMPDIR="$work/tmp" PG_TEST_PORT_DIR="$top/ports" PG_TEST_TIMEOUT_DEFAULT=60 \
		make -s --no-print-directory -C "$work/tree" PG_CONFIG="$pg_config" with_llvm=no "$@"
}

# Build and install the tree with a mutant, or without one.  What was installed
# before goes, so that nothing of it is taken for the mutant's.
plant()
{
	local mutant=$1 make_args=(with_llvm=no -s install)

	[ "$(cat "$work/planted")" != "$mutant" ] || return 0
	say / >"$work/planted"
	rm -rf "$work/tree"
	as_user cp -a "$work/pristine" "$work/tree"
	[ -z "$mutant" ] || perl "$top/source/test/mutate/mutants.pl" apply "$work/tree" "$mutant"
	bench_make -j 2 >"$work/build.log" 2>&1 || return 1
	rm -f "$("$pg_config" --sharedir)"/extension/snowflake* "$("$pg_config" --pkglibdir)"/snowflake*.so
	if [ -w "$("$pg_config" --pkglibdir)" ]; then
		tree_make env >>"$work/build.log" 2>&1 || return 1
	else
		tree_make as_root >>"$work/build.log" 2>&1 || return 1
	fi
	say "$mutant" >"$work/planted"
}


# Tests

# A server with the library, for the regression and isolation tests.
with_server()
{
	local status=0

	rm -rf "$work/data"
	as_user cp -a "$work/template" "$work/data"
	as_user "$bindir/pg_ctl" -D "$work/data" -l "$work/server.log" -w start >/dev/null 2>&1 || return 1
	PGHOST=$work PGPORT=5432 PGUSER=postgres PGDATABASE=postgres "$@" || status=$?
	return "$status"
}

# Run one test.  $1: the kind, $2: its name, or none for all of the kind
start_test()
{
	local tests

	case $1 in
		regress)
			# all others need the first one
			tests="REGRESS=setup"
			[ "$2" = setup ] || tests+=" $2"
			with_server bench_make installcheck ${2:+"$tests"} ISOLATION= TAP_TESTS=
			;;
		isolation) with_server bench_make installcheck REGRESS= ${2:+"ISOLATION=$2"} TAP_TESTS= ;;
		tap)
			bench_make installcheck REGRESS= ISOLATION= TAP_TESTS=1 PROVE_FLAGS=-v \
				"PROVE_TESTS=test/t/$2.pl"
			;;
		*) say "there is no kind \"$1\" of tests" ;;
	esac
}

# A line that says what failed, from the log of a test.
reason_of()
{
	sed -nE '/^not ok [0-9]+/{/# *TODO/!{s/ *[0-9]+ ms$//;p;q}};
		/^(test|  ) *[^ ]+ +\.\.\. FAILED/{s/ *[0-9]+ ms$//;p;q}' "$work/test.log" |
		tr -s ' ' | head -n 1
}

# Run a test until it ends, or something of it fails, or it has taken too long.
# Sets outcome to "passed", "skipped" or why it failed, and took.
# $1: the limit in seconds, further: the test
run_test()
{
	local limit=$1 started=$SECONDS pid status=0 late=

	shift
	rm -rf "$work/tree/tmp_check" "$work/tree/results"
	set -m
	start_test "$1" "${2:-}" >"$work/test.log" 2>&1 &
	pid=$!
	running=$pid
	set +m
	while kill -0 "$pid" 2>/dev/null; do
		if [ $((SECONDS - started)) -gt "$limit" ]; then
			late=yes
		fi
		if [ -n "$late" ] || [ -n "$(reason_of)" ]; then
			kill -TERM -- "-$pid" 2>/dev/null || true
			for _ in {1..50}; do
				kill -0 -- "-$pid" 2>/dev/null || break
				sleep 0.1
			done
			kill -KILL -- "-$pid" 2>/dev/null || true
			break
		fi
		sleep 0.2
	done
	wait "$pid" 2>/dev/null || status=$?
	running=
	stop_left_servers
	took=$((SECONDS - started))

	outcome=$(reason_of)
	[ -z "$late" ] || outcome="no end after $limit s"
	if [ -z "$outcome" ] && [ "$status" != 0 ]; then
		outcome="exit status $status"
	elif [ -z "$outcome" ] && ! grep -qE '^ok [0-9]|^(test|  ) *[^ ]+ +\.\.\. ok' "$work/test.log"; then
		outcome=skipped
	fi
	outcome=${outcome:-passed}
}

# How long a test takes here without a mutant, and whether it passes; once for all
# jobs.  Sets baseline to the seconds, and why_not to why it is of no use.
# Further: the test
measure()
{
	local file lock

	file=$top/baseline/${work##*/}_${*// /_}
	exec {lock}>"$file.lock"
	flock "$lock"
	if [ ! -e "$file" ]; then
		plant "" || die "the tree does not build"
		run_test 900 "$@"
		if [ "$outcome" != passed ] && [ "$outcome" != skipped ]; then
			# once more: it may have been the machine
			say "without a mutant, $*: $outcome" >>"$top/notes"
			run_test 900 "$@"
		fi
		say "$outcome" >"$file.outcome"
		say "$took" >"$file"
	fi
	exec {lock}>&-
	baseline=$(cat "$file")
	why_not=$(cat "$file.outcome")
	[ "$why_not" != passed ] || why_not=
}

# Does a test fail with a mutant?  Sets killer to what failed, or problem if that
# cannot be told.  $1: the mutant, further: the test
sees()
{
	local mutant=$1 where=

	shift
	if [ "$1" = debug ]; then
		where="debug "
		shift
	fi
	enter_bench "$( [ -z "$where" ] && say plain || say debug)"
	measure "$@"
	if [ -n "$why_not" ]; then
		problem="without it, $where$*: $why_not"
	elif ! plant "$mutant"; then
		problem="it does not build: $(grep -m 1 -iE 'error' "$work/build.log" || true)"
	else
		run_test "$(time_limit "$baseline")" "$@"
		# it may have been the machine, if time matters: once more
		[ "$outcome" = passed ] || [ "$1" != tap ] ||
			run_test "$(time_limit "$baseline")" "$@"
		[ "$outcome" = passed ] || killer="$where$*: $outcome"
	fi
}

# All tests, one a line.  Those with injection points are run where these are.
all_tests()
{
	local file

	say regress
	say isolation
	for file in "$top"/source/test/t/*.pl; do
		file=${file##*/}
		say "tap ${file%.pl}"
	done
	grep -l injection_points "$top"/source/test/t/*.pl | sed 's,.*/\(.*\)\.pl,debug tap \1,'
}

# Try one mutant, and write down what came of it.
# $1: its name, $2: the tests that ought to see it, separated by commas, $3: its digest
try_mutant()
{
	local name=$1 tests=() others=() test started=$SECONDS killer='' problem='' result lock

	mapfile -t tests < <(tr ',' '\n' <<<"$2" | sed 's/^ *//; s/ *$//')
	for test in "${tests[@]}"; do
		sees "$name" $test
		[ -z "$killer$problem" ] || break
	done
	if [ -z "$killer$problem" ] && [ -z "$first_only" ]; then
		mapfile -t others < <(all_tests | grep -vxF "$(printf '%s\n' "${tests[@]}")")
		for test in "${others[@]}"; do
			problem=
			sees "$name" $test
			[ -z "$killer" ] || break
		done
		# a test that does not pass anyway says nothing
		problem=
	fi

	if [ -n "$killer" ]; then
		result="$name: killed by $killer"
	elif [ -n "$problem" ]; then
		result="$name: ERROR: $problem"
	else
		result="$name: survived"
	fi
	say "$result" >>"$top/results"
	if [[ $result != *": ERROR: "* ]]; then
		exec {lock}>"$top/results.lock"
		flock "$lock"
		perl "$here/mutants.pl" record "$root" "$name" "$3" "${result#*: }" || say "$name: not recorded" >>"$top/notes"
		exec {lock}>&-
	fi
	progress "$result ($((SECONDS - started)) s)"
}

# Take one mutant after the other.
work_off()
{
	local job=$1 running='' name tests digest lock

	trap - EXIT
	trap '[ -z "$running" ] || kill -KILL -- "-$running" 2>/dev/null; exit 143' TERM
	while true; do
		exec {lock}>"$top/queue.lock"
		flock "$lock"
		IFS=$'\x1f' read -r name _ tests _ _ digest <"$top/queue" || break
		sed -i 1d "$top/queue"
		exec {lock}>&-
		try_mutant "$name" "$tests" "$digest"
	done
}

# Add up.
verdict()
{
	local killed survived errors equivalent

	touch "$top/results" "$top/notes"
	killed=$(grep -c ': killed by ' "$top/results") || true
	survived=$(grep -c ': survived$' "$top/results") || true
	errors=$(grep -c ': ERROR: ' "$top/results") || true
	equivalent=$(wc -l <"$top/equivalent")
	cat "$top/notes"
	grep -v ': killed by ' "$top/results" | sort || true
	passed=$((passed + killed))
	failed=$((failed + survived + errors))
	[ $((killed + survived)) = 0 ] ||
		say "$(awk -v k="$killed" -v s="$survived" 'BEGIN { printf "score %.3f", k / (k + s) }'): $killed killed, $survived survived, $errors in error, $equivalent equivalent"
}

if [ -n "$list_only" ]; then
	perl "$here/mutants.pl" list "$root" "${selection[@]}" |
		awk -F '\x1f' '{ printf "%s (%s): %s\n    %s\n", $1, $2, $5, $3 != "" ? $3 : "equivalent: " $4 }'
	exit
fi

# as one command, since bash reads a script while it runs it, and this runs long
main()
{
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	install_missing tests
	install_coordinators
	original_pg_config=$pg_config
	top=$(mktemp -d "${TMPDIR:-/tmp}/snowflake.XXXXXX")
	chmod 755 "$top"
	mkdir "$top/baseline"
	mkdir -m 1777 "$top/ports"
	# what is tested is the tree as it is now
	work=$top
	mkdir "$top/source"
	tar -C "$root" -cf - --exclude=./.git --exclude='*.o' --exclude='*.so' --exclude='*.bc' \
		--exclude=./results --exclude=./tmp_check --exclude=./output_iso . | tar -C "$top/source" -xf -
	work=
	chmod -R a+rX "$top/source"
	cd "$top"

	perl "$top/source/test/mutate/mutants.pl" list "$top/source" "${selection[@]}" >"$top/list" 2>"$top/complaints" || true
	cat "$top/complaints"
	failed=$(wc -l <"$top/complaints")
	awk -F '\x1f' '$4 != ""' "$top/list" >"$top/equivalent"
	# by the digests, so mixed: not all jobs wait for the same test without a mutant
	awk -F '\x1f' '$4 == ""' "$top/list" | sort -t $'\x1f' -k 6 >"$top/queue"
	if [ -n "$new_only" ]; then
		perl "$here/mutants.pl" record "$root"
		grep -oP '^\S+(?= \S+ unmeasured$)' "$here/results.txt" >"$top/unmeasured" || true
		awk -F '\x1f' 'NR == FNR { wanted[$1]; next } $1 in wanted' "$top/unmeasured" "$top/queue" >"$top/queue.new"
		mv "$top/queue.new" "$top/queue"
	fi
	awk -F '\x1f' '{ printf "equivalent %s: %s\n", $1, $4 }' "$top/equivalent"
	progress "$(wc -l <"$top/queue") mutants, $jobs at once, $("$pg_config" --version), as user $(test_user)"
	for ((i = 1; i <= jobs; i++)); do
		work_off "$i" &
		children+=($!)
	done
	for child in "${children[@]}"; do
		wait "$child" || failed=$((failed + 1))
	done
	children=()
	exit 0
}

main
