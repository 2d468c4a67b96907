# Test what is published: the archives of "make dist", META.json, the Debian
# packages, which are built, checked, installed, tested and removed in a Debian
# system of their own, in a directory, and the RPM, which is built there.  Takes
# a few minutes, needs root.
#
#   bash test/run.sh package                  for this system's release of Debian
#   bash test/run.sh package trixie           for another one
#   bash test/run.sh package --chroot /DIR ...
#                                             keep that system in /DIR, and use it if it is there already

use strict;
use warnings;

use FindBin;
use Getopt::Long;
use lib "$FindBin::RealBin/perl";
use SnowflakeProgram;
use Test::More;

my $work = "$ENV{SNOWFLAKE_WORK}/package";
my $system = "$work/system";
GetOptions('chroot=s' => \$system) or die "usage: [--chroot DIR] [SUITE]\n";
my $suite = shift // output_of('. /etc/os-release && printf %s "${VERSION_CODENAME:?}"');
my ($dist) = map { /^\t"version": "(.*)",/ ? "snowflake-$1" : () }
  read_lines("$FindBin::RealBin/../META.json");

plan skip_all => 'this makes a system in a directory, and needs root for that' if $> != 0;

# A check after which there is nothing more to check if it fails
sub needed
{
	program_ok(@_) or exit 1;
	return;
}

# A script in that system
sub inside
{
	my ($script) = @_;

	return with_lib(
		'in_system "$@"',
		$system, 'DEBIAN_FRONTEND=noninteractive',
		'LC_ALL=C.UTF-8', 'bash', '-euc', "cd '/build/$dist'; $script");
}

# The archives, of the last commit.  Both hold the same files, in one directory, without
# what only developers need.
mkdir $work or die "could not create \"$work\": $!";
chdir $work or die;
program_ok('make dist refuses without a public address' =>
	  q{! make -f "$SNOWFLAKE_CHECKOUT/Makefile" VPATH="$SNOWFLAKE_CHECKOUT" "PG_CONFIG=$PG_CONFIG" dist}
) if grep { /no-public-address-yet/ } read_lines("$FindBin::RealBin/../META.json");
needed('make dist' =>
	  q{make -f "$SNOWFLAKE_CHECKOUT/Makefile" VPATH="$SNOWFLAKE_CHECKOUT" "PG_CONFIG=$PG_CONFIG" UNRELEASED=yes dist}
);
needed(
	"$dist.zip and $dist.tar.gz are alike" => qq{
	mkdir zip tar
	python3 -m zipfile -e $dist.zip zip
	tar -C tar -xzf $dist.tar.gz
	diff -r zip tar
	[ "\$(ls -A tar)" = $dist ]
	[ -z "\$(find tar/$dist -name '.*' -not -name $dist -not -name .proverc)" ]
	[ -f tar/$dist/META.json ]});
program_ok(
	'what is in them builds and installs' => with_lib(
		q{
	work=$PWD
	find_pg_config
	cp -r "tar/$1" tree
	mkdir root
	chown -R "$(test_user)": tree root
	build_extension
	tree_make "DESTDIR=$work/root" install
	[ -f "$work/root/$("$pg_config" --pkglibdir)/snowflake.so" ]}, $dist));
program_ok(
	'META.json is valid, and the version the same everywhere' => 'perl',
	"$FindBin::RealBin/t/902_release.pl");

needed(
	"a system to build in, Debian $suite" => with_lib(
		'make_system "$@"',
		$system, $suite, 'autopkgtest build-essential debhelper lintian postgresql-server-dev-all')
) unless -e "$system/usr/bin/pg_buildext";
needed('its copy of them' =>
	  qq{rm -rf $system/build; mkdir $system/build; cp -r tar/$dist $system/build/});
needed(
	'what is needed to build' => inside(
		q{
	getent passwd builder || useradd builder
	chown -R builder /build
	apt-get update -qq
	apt-get build-dep -qq -y .}));
needed(
	'packages are built, and pass their tests' => inside(
		q{
	runuser -u builder -- dpkg-buildpackage -us -uc -b
	for version in $(pg_buildext supported-versions); do
		ls ../postgresql-$version-snowflake_*.deb
	done}));

# it is not meant for upload to Debian, so there is no bug to be closed
program_ok(
	'lintian has no errors or warnings' => inside(
		q{
	runuser -u builder -- lintian --fail-on error,warning \
		--suppress-tags initial-upload-closes-no-bugs ../*.changes}));
program_ok(
	'packages install' => inside(q{apt-get install -qq -y $(ls ../postgresql-*-snowflake_*.deb)}));
program_ok(
	'that of the extension has the module for fleets on PostgreSQL alone' => inside(
		q{
	ls /usr/lib/postgresql/*/lib/snowflake_postgresql.so
	[ -z "$(ls /usr/lib/postgresql/*/lib/snowflake_{consul,etcd,zookeeper}.so 2>/dev/null)" ]
	! dpkg-query -W -f "\${Depends}\n" "postgresql-*-snowflake" | grep -E "curl|zookeeper"}));
program_ok('the others install' =>
	  inside(q{apt-get install -qq -y $(ls ../postgresql-*-snowflake-*.deb | grep -v dbgsym)}));
program_ok(
	'each module finds the library that it takes' => inside(
		q{
	cd /usr/lib/postgresql/*/lib
	ldd snowflake_postgresql.so | grep "libpq.*=> /"
	ldd snowflake_consul.so | grep "libcurl.*=> /"
	ldd snowflake_etcd.so | grep "libcurl.*=> /"
	ldd snowflake_zookeeper.so | grep "libzookeeper_st.*=> /"
	! ldd snowflake.so | grep -E "libpq|libcurl|libzookeeper"}));
program_ok(
	'documents are installed as their links say' => inside(
		q{
	for package in $(dpkg-query -W -f "\${Package}\n" "postgresql-*-snowflake"); do
		cd /usr/share/doc/$package
		grep -oh "](\(doc\|monitoring\|[.][.]/monitoring\|clients\|fleet\|tailing\)/[^)#]*" README.md doc/*.md |
			sed "s,^](\([.][.]/\)\?,,; s,^\(clients\|fleet\|tailing\)/,doc/&," | sort -u | xargs ls
	done}));
program_ok(
	'installed packages pass their tests' => inside(q{autopkgtest --no-built-binaries . -- null}));
program_ok(
	'packages are removed, and leave nothing behind' => inside(
		q{
	apt-get purge -qq -y "postgresql-*-snowflake" "postgresql-*-snowflake-*"
	[ -z "$(find /usr -name "snowflake*" -o -name "*-snowflake")" ]}));
system('cp', "$work/$dist.zip", "$system/build/") == 0 or die;
program_ok(
	"PGXN's client installs $dist.zip" => inside(
		q{
	apt-get install -qq -y pgxnclient
	pgxn install --pg_config="$(ls /usr/lib/postgresql/*/bin/pg_config | tail -n 1)" ../*.zip
	pgxn uninstall --yes ../*.zip}));
program_ok(
	'packaging/snowflake.spec names what is installed' => inside(
		q{
	apt-get install -qq -y rpm
	version=$(pg_buildext supported-versions | tail -n 1)
	runuser -u builder -- rpmbuild -bb --nodeps --define "_topdir /build/rpm" --define "_sourcedir /build" \
		--define "debug_package %{nil}" --define "pgmajorversion $version" \
		--define "pginstdir /usr/lib/postgresql/$version" \
		--define "extensiondir /usr/share/postgresql/$version/extension" packaging/snowflake.spec
	ls /build/rpm/RPMS/*/snowflake_"$version"-{coordinators-,}[0-9]*.rpm}));
done_testing();
