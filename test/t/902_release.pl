# The version is the same in everything that is released, that of
# snowflake.control; and META.json meets PGXN's specification 1.0.0:
# https://pgxn.org/meta/spec.txt

use strict;
use warnings;

use File::Find;
use File::Temp 'tempdir';
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

# META.json: its keys, and what their values are like.  Versions are those of http://semver.org 1.0.0;
# a term has two or more characters, none of which is a slash or invisible.
my $semver = qr{^(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z-]+)?$};
my $term = qr{^[^\s/\\\p{Cntrl}]{2,}$};
my %required = (
	name => $term,
	version => $semver,
	abstract => qr/\S/,
	license => qr/^postgresql$/,
	maintainer => qr/\S/,
	provides => qr/^HASH/,
	'meta-spec' => qr/^HASH/);
my %optional =
  map { $_ => qr/\S/ } qw(description tags no_index prereqs resources generated_by release_status);
foreach my $key (sort keys %required)
{
	my @values = ref $meta->{$key} eq 'ARRAY' ? @{ $meta->{$key} } : $meta->{$key} // '';

	is(join(', ', grep { !/$required{$key}/ } @values), '', "$key is as it should be");
}

# The address that people write to is the same everywhere.  Before the first release it is one that
# says that there is none, with which "make dist" refuses.
my ($address) =
  join(' ', ref $meta->{maintainer} ? @{ $meta->{maintainer} } : $meta->{maintainer}) =~
  /<(\S+@\S+)>/;
my $is_public = defined $address && $address ne 'no-public-address-yet@snowflake.invalid';
ok(defined $address && !($is_public && $address =~ /[.@](?:example|invalid|test|localhost)\b/),
	'the maintainer has an address that is true');
is( join(' ',
		grep { -e "$root/$_" && join(' ', slurp($_) =~ /<(\S+@\S+)>/g) ne ($address // '') }
		  qw(debian/changelog debian/control debian/control.in debian/copyright packaging/snowflake.spec)
	),
	'',
	'the packages have the same one');
SKIP:
{
	skip 'there is no public address yet', 1 if !$is_public;

	ok($meta->{resources}{repository}{url} && $meta->{resources}{bugtracker},
		'and META.json has that of the repository');
}
is(join(', ', grep { !$required{$_} && !$optional{$_} && !/^x_/i } sort keys %$meta),
	'', 'META.json has no unknown keys');
is($meta->{'meta-spec'}{version}, '1.0.0', 'meta-spec is 1.0.0');
is(join(', ', grep { ref || length > 255 || m{[/\\\p{Cntrl}]} || !/\S/ } @{ $meta->{tags} }),
	'', 'tags are texts without slashes');
is(join(' ', sort keys %{ $meta->{provides} }), "@extensions", 'it provides the extensions');
foreach my $name (@extensions)
{
	my $extension = $meta->{provides}{$name};

	like($extension->{version}, $semver, "version of $name is a semantic version");
	like($extension->{abstract}, qr/\S/, "abstract of $name is a text");
	ok(defined $extension->{$_} && -f "$root/$extension->{$_}", "$_ of $name is a file")
	  foreach qw(file docfile);
}
foreach my $phase (sort keys %{ $meta->{prereqs} })
{
	like($phase, qr/^(?:configure|build|test|runtime|develop)$/, "$phase is a phase");
	foreach my $relation (sort keys %{ $meta->{prereqs}{$phase} })
	{
		my $of = $meta->{prereqs}{$phase}{$relation};

		like($relation, qr/^(?:requires|recommends|suggests|conflicts)$/,
			"$relation is a relation");
		is(join(', ', grep { $of->{$_} !~ $semver && $of->{$_} ne '0' } sort keys %$of),
			'', "which $phase $relation are of semantic versions");
	}
}

# What was built for one version of PostgreSQL is gone before it is built for another.
SKIP:
{
	skip 'nothing was built here', 2 if !-e "$root/src/snowflake.o";
	my $copy = tempdir(CLEANUP => 1);
	my @built;
	my $find_built = sub { push @built, $File::Find::name if /\.(?:o|bc|so|dylib)$/ };

	system(
		'cp', '-R',
		glob("$root/*.so $root/*.dylib"),
		map("$root/$_", qw(Makefile src sql)),
		glob("$root/*.control"), $copy) == 0
	  or die 'could not copy what was built';
	find($find_built, $copy);
	cmp_ok(scalar(@built), '>', 60, 'there are objects and libraries');
	delete local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	system("make -s -C '$copy' PG_CONFIG='$ENV{PG_CONFIG}' clean >&2") == 0
	  or die 'make clean failed';
	@built = ();
	find($find_built, $copy);
	is("@built", '', 'make clean removes all of them');
}

done_testing();
