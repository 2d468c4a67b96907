# The version is the same in everything that is released, that of snowflake.control; and META.json
# has what PGXN requires: https://pgxn.org/meta/spec.txt

use strict;
use warnings;

use FindBin;
use JSON::PP;
use Test::More;
use Time::Piece;

my $root = "$FindBin::RealBin/../..";

sub slurp
{
	my ($name) = @_;

	open my $fh, '<:raw', "$root/$name" or die "could not open \"$name\": $!";
	local $/;
	return <$fh>;
}

my $meta = JSON::PP->new->utf8->decode(slurp('META.json'));
my @extensions =
  qw(snowflake snowflake_keeper snowflake_migrate snowflake_partitions snowflake_public);

# Versions.  A control file leaves out a patch level of 0.  The other extensions have versions of
# their own, which change when their scripts do.
my ($default_version) = slurp('snowflake.control') =~ /^default_version = '(.*)'$/m;
is($meta->{version} =~ s/^(\d+\.\d+)\.0$/$1/r,
	$default_version, 'META.json has the version of snowflake.control');
is((slurp('CHANGELOG.md') =~ /^## ([^ \n]+)/m)[0], $default_version, 'and so has CHANGELOG.md');
foreach my $name (@extensions)
{
	my ($version) = slurp("$name.control") =~ /^default_version = '(.*)'$/m;

	is($meta->{provides}{$name}{version} =~ s/^(\d+\.\d+)\.0$/$1/r,
		$version, "META.json has the version of $name.control");
	ok(-e "$root/sql/$name--$version.sql" || glob("$root/sql/$name--*--$version.sql"),
		'there is a script for it');
}
is($meta->{provides}{snowflake}{version},
	$meta->{version}, 'the extension has the version of its distribution');
SKIP:
{
	skip 'there is no debian/', 5 if !-e "$root/debian";

	my ($debian, $day) =
	  slurp('debian/changelog') =~ /^\S+ \(([^)]*)-[^-)]*\).*? -- .*?, (\d+ \w+ \d+) \d\d:/s;
	my ($rpm) = slurp('packaging/snowflake.spec') =~ /^Version: +(\S+)$/m;
	is($debian, $meta->{version}, "Debian's package has it too");
	is($rpm, $meta->{version}, 'and so has the RPM');

	# Before the first ID ever, no clock is believed that is before the release.
	my ($said, $days) =
	  slurp('src/base/clock.h') =~
	  /released, (\S+)\.\n \*\/\n#define SNOWFLAKE_RELEASE_TIME\t\(INT64CONST\((\d+)\) \* USECS_PER_DAY\)/;
	my $epoch = Time::Piece->strptime('2000-01-01', '%Y-%m-%d');
	my $release_time = $epoch + ($days // 0) * 86_400;
	my $packaged = Time::Piece->strptime($day, '%d %b %Y');
	is($release_time->ymd, $said, 'the library has the day of the release that its comment has');
	cmp_ok($release_time, '<=', $packaged, 'which is not later than the packages');
	cmp_ok($release_time, '>', $packaged - 100 * 86_400, 'and not of an earlier version');
}

# META.json
ok($meta->{$_}, "META.json has $_") foreach qw(name abstract license maintainer provides meta-spec);
is(join(' ', sort keys %{ $meta->{provides} }), "@extensions", 'it provides the extensions');
foreach my $name (@extensions)
{
	my $extension = $meta->{provides}{$name};

	ok(-f "$root/" . ($extension->{$_} // 'none'), "$_ of $name is a file")
	  foreach qw(file docfile);
}

# The address that people write to is the same everywhere.  Before the first release it is one that
# says that there is none, with which "make dist" refuses.
my ($address) =
  join(' ', ref $meta->{maintainer} ? @{ $meta->{maintainer} } : $meta->{maintainer}) =~
  /<(\S+@\S+)>/;
is( join(' ',
		grep { -e "$root/$_" && join(' ', slurp($_) =~ /<(\S+@\S+)>/g) ne ($address // '') }
		  qw(debian/changelog debian/control debian/control.in debian/copyright packaging/snowflake.spec)
	),
	'',
	'the packages have the address of the maintainer');

done_testing();
