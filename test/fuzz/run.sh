#!/bin/bash
# Fuzz the layout parser and every text decoder: libFuzzer with AddressSanitizer
# and UndefinedBehaviorSanitizer, on the sources of the extension as they are,
# with stand-ins for the server.  Needs PostgreSQL's server headers, but no
# server.  A rejected text is fine; a crash, a report of a sanitizer or a broken
# invariant is a finding.  One result for each target.
#
#   bash test/fuzz/run.sh                    200000 executions of each target
#   bash test/fuzz/run.sh --runs 5000000     so many of each
#   bash test/fuzz/run.sh --keep DIR base58  of one target; keep corpus and
#                                            findings of this run in a directory
#
# To repeat a finding: FORMAT=base58 DIR/text DIR/finding.base58.crash-...

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
begin fuzz "$@"

runs=200000
dir=$work
targets=()
while [ $# -gt 0 ]; do
	case $1 in
		--runs) runs=$2; shift ;;
		--keep) dir=$2; shift ;;
		-*) die "unknown option: $1" ;;
		*) targets+=("$1") ;;
	esac
	shift
done
[ "${#targets[@]}" -gt 0 ] || targets=(layout decimal base32 base32z base36 base58 base58flickr base62 hex)
mkdir -p "$dir"

install_packages clang || true
# the runtime of the sanitizers has a package of its own
compgen -G "$(clang -print-runtime-dir)/libclang_rt.fuzzer*" >/dev/null ||
	install_packages "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"

# Without the server's -fwrapv, so that an overflow is reported even where the
# server would wrap around.
compile()
{
	clang -O1 -g -Wall -Wno-ignored-attributes -D_GNU_SOURCE -DUSE_ASSERT_CHECKING=1 \
		-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
		-I"$root/src" -I"$("$pg_config" --includedir-server)" "$@"
}
compile -o "$dir/layout" "$root"/test/fuzz/{layout,server}.c "$root/src/layout.c"
compile -o "$dir/text" "$root"/test/fuzz/{text,server}.c "$root"/src/{encode,io}.c

# Seeds: the layouts and encodings that others have published.
mkdir -p "$dir"/seeds/{layout,text}
awk -F '\t' -v dir="$dir/seeds/layout/" 'NR > 1 {
		fields = $2
		sub(/time/, "time:" $3, fields)
		if ($4 > 0)
			sub(/node/, "node:" $4, fields)
		else
			sub(/\|node/, "", fields)
		sub(/seq/, "sequence:" $5, fields)
		gsub(/\|/, " ", fields)
		printf "%s tick:%dms epoch:%s", fields, $6, $7 >dir NR
		close(dir NR)
	}' "$root/test/data/layouts.tsv"
sed -n 's/^	{"\([a-z0-9]*\)", "\(.*\)"},$/\1\n\2/p' "$root/src/layout.c" |
	split -l 1 - "$dir/seeds/layout/preset"

# ... and those at the limits of what is possible, which mutations reach rarely.
printf '%s ' time:30 sequence:19 {a..n}:1 epoch:0 >"$dir/seeds/layout/most_fields"
printf 'time:41 %s:10 sequence:12 epoch:0' abcdefghijklmnopqrstuvwxyz12345 \
	>"$dir/seeds/layout/longest_name"

for target in "${targets[@]}"; do
	program=text
	options=(-max_len=64)
	if [ "$target" = layout ]; then
		program=layout
		options=(-max_len=400 -dict="$root/test/fuzz/layout.dict")
	fi
	status=0
	mkdir -p "$dir/corpus/$target"
	FORMAT=$target ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		"$dir/$program" -runs="$runs" -timeout=10 \
		-print_final_stats=1 -artifact_prefix="$dir/finding.$target." \
		"${options[@]}" "$dir/corpus/$target" "$dir/seeds/$program" \
		>"$dir/$target.log" 2>&1 || status=$?
	ran=$(sed -n 's/^stat::number_of_executed_units: *//p' "$dir/$target.log")
	[ "$status" = 0 ] && [ "${ran:-0}" -ge "$runs" ] || status=1
	result "$status" "$target: ${ran:-0} executions" <(grep -vE '^#[0-9]+	(NEW|REDUCE|pulse)' "$dir/$target.log")
done
