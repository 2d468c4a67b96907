#!/bin/bash
# Check the models exhaustively with spin, as they are and with each rule taken out.
#
#   bash test/model/run.sh            everything
#   bash test/model/run.sh lease      one model
#
# One result for each: a model as it is must be searched to the end without an error,
# and one without a rule must break its claim.  README.md says what the sizes are.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

begin model "$@"
wanted=${*:-gate lease}
install_packages spin

# A search, and whether it comes to what it should.  Breadth first finds the shortest way to
# an error; what has none is searched depth first, which takes less memory.
# $1: holds or breaks, $2: the model, further: macros
judge()
{
	local verdict=$1 model=$2 status=0 options=(-DSAFETY -DNOREDUCE)

	shift 2
	[ "$verdict" = holds ] || options+=(-DBFS)
	cd "$work"
	rm -f pan* ./*.trail
	spin "${@/#/-D}" -a "$root/test/model/$model.pml" >pan.log 2>&1 &&
		gcc -O2 -w "${options[@]}" -o pan pan.c >>pan.log 2>&1 &&
		./pan -w22 -m4000000 >pan.log 2>&1 || status=$?
	if [ "$verdict" = breaks ]; then
		grep -q '^pan.*: assertion violated' pan.log && status=0 || status=1
	elif ! grep -q 'errors: 0' pan.log || grep -qE 'Search not completed|depth too small|out of memory' pan.log; then
		status=1
	fi
	result "$status" "$model $* $verdict: $(sed -n 's/^ *\([0-9]*\) states, stored.*/\1 states/p' pan.log)" pan.log
}

holds()
{
	judge holds "$@"
}

breaks()
{
	judge breaks "$@"
}

run_gate()
{
	local rule

	holds gate ALONE TICKS=3
	holds gate TICKS=2
	holds gate ASYNC TICKS=1
	for rule in PUBLISH_BEFORE_COMMIT CLOSE_IN_ONE_STEP LOOK_ONCE IGNORE_ROW; do
		breaks gate ALONE TICKS=2 "$rule"
	done
	breaks gate TICKS=1 COMMIT_NOT_DURABLE
	breaks gate TICKS=1 ASYNC SAME_NODE
}

run_lease()
{
	local rule size
	local failing=(COORDINATOR_FAILS SERVERS=2 NODES=1 TICKS=2 LEASE=0 VERSIONS=2)

	holds lease SERVERS=2 NODES=2 TICKS=2 LEASE=1
	holds lease SERVERS=3 NODES=1 TICKS=3 LEASE=1
	holds lease SERVERS=2 NODES=1 TICKS=4 LEASE=2
	holds lease TWINS SERVERS=2 NODES=1 TICKS=3 LEASE=1
	holds lease "${failing[@]}"

	size=(SERVERS=2 NODES=1 TICKS=3 LEASE=1)
	for rule in FORGET_UNTIL RENEW_WITHOUT_VERSION RESUME_GRANT NO_NONCE; do
		breaks lease "${size[@]}" "$rule"
	done
	breaks lease SERVERS=2 NODES=1 TICKS=3 LEASE=0 NODE_NOT_GRANT
	breaks lease TWINS "${size[@]}" EXCUSE_KNOWN_ALONE
	for rule in FLEET_READ_BEFORE NO_FLOOR NO_INCARNATION GO_ON_AFTER_BACK_IN_TIME \
		GRANTED_BEFORE_NOTICED FLOOR_OF_WHAT_WAS_HEARD; do
		breaks lease "${failing[@]}" "$rule"
	done
}

for model in $wanted; do
	"run_$model"
done
