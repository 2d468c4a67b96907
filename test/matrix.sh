#!/bin/bash
# Build and test with several versions of PostgreSQL: without warnings with gcc
# and with clang, then the regression, isolation and TAP tests, each version
# where Debian has it.  A version that is installed here is tested here, any
# other in a chroot of the suite that carries it.  The chroots take a minute and
# 1.5 GB each to make, and are kept: in /var/cache/snowflake-matrix, or in
# $SNOWFLAKE_MATRIX_CACHE.  Removing one of them is always safe, and how to get
# newer packages.
#
#   bash test/matrix.sh                   every supported version but the one that is
#                                         installed here
#   bash test/matrix.sh 17 18             some of them
#
# Needs root, or sudo without a password.  A version that cannot be set up is skipped.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$root/test/debian.sh"
[ $# = 1 ] && [ -n "${SNOWFLAKE_WORK:-}" ] || exec bash "$root/test/run.sh" matrix "$@"

# What is about time, clocks, numbers, files or records of a fleet alone does not depend on
# the version: it is tested with the one that is installed.  Positions (03, 04, 07), clocks
# (1) and leases (5) are left out of those for which an older and a newer one are tested, and
# the keeper (2) of that for which two newer ones are.
timeless="102_clock_back_across_restart 201_idle 031_layout_end 101_coasting 300_timerange_exact
	042_limit 902_release 904_documentation 700_cipher 501_lease_copies 502_lease_faults 071_spread
	503_lease_loss 505_late_write 504_lease_restarts 506_lease_input 520_fleet_page
	103_stand 507_lease_duplicates 508_lease_way_back 509_lease_names 517_lease_floor
	518_false_coordinator 521_lease_crowd"
version=$1
read -ra versions <<<"$default_versions"
left_out=
[ "$version" = "${versions[0]}" ] || [ "$version" = "${versions[-1]}" ] || left_out='(03|04|07|1|5).*'
[ "$version" != "${versions[-3]}" ] || left_out='(03|04|07|1|2|5).*'
mapfile -t tests < <(cd "$root/test/t" && compgen -G '*.pl' | sed 's/\.pl$//' |
	grep -vxF "$(tr -s ' \t' '\n' <<<"$timeless")" | grep -vxE "$left_out")
tests=(build regress isolation tap "${tests[@]}")
# a tool of another generation than the installed version has
[[ ${tools_of[$version]:-} != *partman* ]] || tests+=(tools partman)

# as one program among others
export HARNESS_TAP=1 SNOWFLAKE_JOBS=1
if there=$(installed_pg_config "$version"); then
	exec env PG_CONFIG="$there" bash "$root/test/run.sh" "${tests[@]}"
fi
become_root "$@"
begin matrix "$@"
open_chroot "$version" "${suites_of[$version]:-}" "$version" >"$work/why" ||
	skip_all "PostgreSQL $version could not be set up: $(<"$work/why")"
in_chroot "$version" bash /src/test/run.sh "${tests[@]}"
