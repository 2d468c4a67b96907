# README.md as a newcomer follows it: the commands and statements of "Install" and "Quick
# start", and the session at its head, are pasted into a fresh Debian in a directory, once
# from source and once as packages.  None may fail, and a newcomer's own table must have its
# first IDs within five minutes, most of which apt-get takes.  Needs root and a mirror.
#
#   bash test/run.sh newcomer                  bookworm, which has PostgreSQL 15
#   bash test/run.sh newcomer bookworm forky   which has 18
#   bash test/run.sh newcomer 19               from source alone, where that version is installed before
#
# SNOWFLAKE_TEST_SECONDS is another limit than 300, for a machine that has other work.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/perl";
use SnowflakeProgram;
use Test::More;

exec qw(sudo -n --preserve-env -- perl), $0, @ARGV
  if $> != 0 && system('sudo -n true 2>/dev/null') == 0;
plan skip_all => 'this makes a system in a directory, and needs root for that' if $> != 0;
my $limit = $ENV{SNOWFLAKE_TEST_SECONDS} // 300;
my $work = "$ENV{SNOWFLAKE_WORK}/newcomer";
mkdir $work or die "could not create \"$work\": $!";

# What the page tells to do, as a script.  $way: the bold words over the way to install
sub pasted
{
	my ($way) = @_;
	my $page = join '', read_lines("$FindBin::RealBin/../README.md");
	my ($install) = $page =~ /^\*\*\Q$way\E\*\*(.*?)^\*\*/ms or die "no $way";
	my ($session) = $page =~ /\A(.*?)^## /ms or die "no session";
	my ($quick) = $page =~ /^## Quick start\n(.*?)^## /ms or die "no quick start";
	my ($start) = $quick =~ /If the server is not running: `(.*?)`/ or die "no start";
	my ($pasted, $open) = ('', '');    # what ends the input of psql

	foreach my $text ("$install\n    $start\n", $quick, $session)
	{
		while ($text =~ /^ {4}(\S[^\n]*)$|^```sql\n(.*?)^```$/msg)
		{
			my ($command, $sql) = ($1, $2);

			$pasted .= $sql // $open;
			next if defined $sql;
			$open = $command =~ /\bpsql\b/ ? "SQL\n" : '';
			$pasted .= $open ? "$command -v ON_ERROR_STOP=1 <<\"SQL\"\n" : "$command\n";
		}
	}
	return $pasted . $open;
}

foreach my $suite (@ARGV ? @ARGV : 'bookworm')
{
	# Only what any Debian has, and a user with sudo; Debian has no package "postgresql" of a version
	# that it does not release yet
	my $version = $suite =~ /^\d+$/ ? $suite : '';
	my $output = output_of(
		with_lib(
			q{suites=${suites_of[${3:-0}]:-$2}
		prefer_experimental "$suites" "$3"
		make_system "$1" "$suites" "ca-certificates passwd sudo${3:+ postgresql-$3 postgresql-server-dev-$3}" \
		"${preferences[@]}" \
		--aptopt='APT::Get::Assume-Yes "true"' \
		--customize-hook='chroot "$1" /usr/sbin/useradd --create-home --shell /bin/bash newcomer' \
		--customize-hook='echo "newcomer ALL=(ALL) NOPASSWD:SETENV: ALL" >"$1/etc/sudoers.d/newcomer"' \
		--customize-hook='echo "127.0.0.1 localhost $(hostname)" >>"$1/etc/hosts"'}, "$work/$suite",
			$suite, $version));
	die $output if $?;

	foreach my $way ($version ? () : 'As Debian packages', 'From source')
	{
		my $began = time;

		$output = output_of(
			with_lib(
				q{cache=$1
			rm -rf --one-file-system "$1/fresh"
			cp -a "$1/$2" "$1/fresh"
			in_chroot fresh env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 bash -c '
				apt-get update -qq
				cp -r /src /home/newcomer/snowflake
				chown -R newcomer: /home/newcomer/snowflake
				cd /home/newcomer/snowflake
				exec runuser -u newcomer -- bash -ex -c "$0"' "$3"}, $work, $suite, pasted($way)));
		ok($? == 0 && $output =~ /^ \d{19} \| .* \| Grace$/m, "$suite, $way") or diag($output);
		my $took = time - $began;
		cmp_ok($took, '<', $limit, "$suite, $way: within $limit s");
		note("after $took s");
	}
	system('rm', '-rf', '--one-file-system', "$work/$suite");
}
done_testing();
