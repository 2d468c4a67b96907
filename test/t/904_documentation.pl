# What README.md and doc/*.md tell works: each SQL statement runs without an
# error, in the order in which a reader meets it, and each link leads somewhere.
#
# A comment above a block, which readers do not see, says what this test needs:
#
#   <!-- given: SQL -->             what the reader is supposed to have
#   <!-- restart -->                the text above told to restart the server
#   <!-- not run here: reason -->
#   <!-- run by FILE [FILE] -->     the whole page, by another test
#   <!-- conf: LINE -->             a setting of the whole page's server
#   <!-- needs snowflake_public --> a whole page that a build without it cannot run

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(has_public new_node);
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my @pages =
  map { s,^\Q$root\E/,,r } ("$root/README.md", sort glob("$root/doc/*.md"));
my %text = map { $_ => slurp_file("$root/$_") } @pages;

cmp_ok(scalar(() = $text{'README.md'} =~ /\n/g), '<=', 200, 'README.md is short');

# Run the blocks of a page on a new server.  The first statement that fails
# fails the page.  The setting is for machines under load.
sub runs
{
	my ($page, %params) = @_;
	my ($conf) = $text{$page} =~ /^<!-- conf: (.*?) -->$/m;
	my $node = new_node(
		$page =~ s/\W/_/gr,
		conf => "snowflake.max_wait = '1min'\n" . ($conf // ''),
		%params);

	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake')
	  unless exists $params{preload};
  SKIP:
	{
		skip 'there is no snowflake_public', 1
		  if $text{$page} =~ /^<!-- needs snowflake_public -->$/m && !has_public();
		run_blocks($page, $node);
	}
	$node->stop;
	return;
}

sub run_blocks
{
	my ($page, $node) = @_;
	my $blocks = 0;

	while ($text{$page} =~ /^((?:<!-- (?:(?!-->).)*-->\n)*)```sql\n(.*?)^```$/msg)
	{
		my ($marks, $sql) = ($1, $2);

		next if $marks =~ /<!-- not run here: /;
		$sql = "$1\n$sql" if $marks =~ /<!-- given: (.*?) -->/s;
		$node->restart if $marks =~ /<!-- restart -->/;
		my ($status, undef, $error) = $node->psql('postgres', $sql);
		if ($status != 0)
		{
			diag("$error\nin\n$sql");
			$blocks = 0;
			last;
		}
		$blocks++;
	}
	cmp_ok($blocks, '>', 0, "$page: statements run");
	return;
}

# The reader of README.md starts with a server that has nothing but the node ID.
runs('README.md', preload => 0);

foreach my $page (grep { $_ ne 'README.md' && $text{$_} =~ /^```sql$/m } @pages)
{
	if ($text{$page} =~ /^<!-- run by (.*) -->$/m)
	{
		my @silent =
		  grep { !-e "$root/$_" || slurp_file("$root/$_") !~ /\Q$page\E/ }
		  split ' ', $1;

		is("@silent", '', "$page: is run by another test");
	}
	else
	{
		runs($page);
	}
}

# The programs of test/clients have the lines that their page shows, so that these
# are compiled and run: their order and surroundings are for the reader.
my %client = (
	'Rules that hold everywhere' => 'psql_client.sql',
	'psql' => 'psql_client.sql',
	'psycopg2' => 'psycopg2_client.py',
	'psycopg 3' => 'psycopg3_client.py',
	'asyncpg' => 'asyncpg_client.py',
	'SQLAlchemy' => 'sqlalchemy_client.py',
	'Django' => 'django_client.py',
	'JDBC' => 'JdbcClient.java',
	'node-postgres' => 'node_client.js',
	'postgres.js' => 'postgresjs_client.js',
	'drizzle' => 'drizzle_schema.ts drizzle_client.js',
	'Prisma' => 'schema.prisma prisma_client.ts',
	'PHP PDO' => 'pdo_client.php',
	'Active Record' => 'activerecord_client.rb',
	'Go' => 'go_client.go',
	'Rust' => 'rust/main.rs');

# No program is kept for these: the page has the day when they were last tried.
my %tried_once = map { $_ => 1 } 'Hibernate', 'Knex', 'Kysely', 'MikroORM', 'Perl DBD::Pg',
  'pg-promise',
  'Sequelize', 'TypeORM';
my @missing;
foreach my $section (split /^## /m, $text{'doc/clients.md'})
{
	my ($name) = $section =~ /^(.*)$/m;
	my @lines = map { split /\n/ } $section =~ /^```\w+\n(.*?)^```$/msg;

	next if !@lines || $tried_once{$name};

	my $program = join '', map { slurp_file("$root/test/clients/$_") } split ' ',
	  $client{$name} // "none of $name";
	$program =~ s/\s//g;
	foreach my $line (grep { !/…/ } @lines)
	{
		my $code = $line =~ s,\s+(?://|\#|--) .*,,r;

		$code =~ s/^(?:#|--) .*|\s//g;
		push @missing, "$name: $line" if index($program, $code) < 0;
	}
}
is(join("\n", @missing), '', 'what doc/clients.md shows is what test/clients runs');

# Each section has the same lines, whose results tap.js and its like compare; the versions of npm's are
# those that package.json asks for.
my ($sections) = $text{'doc/clients.md'} =~ /^(## psql\n.*)^## Entity Framework/ms;
my %section = $sections =~ /^## ([^\n]+)\n(.*?)(?=^## |\z)/msg;
my @table = $text{'doc/clients.md'} =~ /^\| \[([^]]+)\]\((#\S+)\) \| ([^ ,|]+)/mg;
my (%version, @shapeless);
while (my ($name, $anchor, $version) = splice @table, 0, 3)
{
	my ($section) = grep { '#' . anchor($_) eq $anchor } keys %section;

	$version{$name} = $version;
	push @shapeless, "$name: $_" foreach !$section ? 'no section' : grep {
		$section{$section} !~ (
			{
				insert => qr/tea/,
				'a batch' => qr/rows|items|generate_series|range\(1000\)|1,000 times/,
				'a list' => qr/id = ANY|id IN|\bin\b|inArray|\bIn\(|id__in|\.in_\(|id: \[|whereIn/,
				newest => qr/\b(?:DESC|desc)\b|"-id"/,
				'the next page' => qr/id < |\blt\b|LessThan|'<'|id__lt|id: \.{3}/,
				'a period' => qr/created_?at|id__time|\$\{from\}/i
			}->{$_})
	} 'insert', 'a batch', 'a list', 'newest', 'the next page', 'a period';
}
is(join("\n", @shapeless),
	'', 'each section of doc/clients.md inserts, lists, pages and asks for a period');

my ($packages) = slurp_file("$root/test/clients/package.json") =~ /"dependencies": \{(.*?)\}/s;
my %pinned = $packages =~ /"([^"]+)": "([^"]+)"/g;
my %package = (
	'node-postgres' => 'pg',
	'postgres.js' => 'postgres',
	'drizzle' => 'drizzle-orm',
	'Prisma' => 'prisma');
is(join(', ', grep { $version{$_} ne $pinned{ $package{$_} } } sort keys %package),
	'', 'doc/clients.md has the versions that test/clients/package.json pins');

# A heading's anchor, as GitHub and others make it
sub anchor
{
	my ($heading) = @_;

	$heading =~ s/\[([^]]*)\]\([^)]*\)/$1/g;
	$heading = lc $heading;
	$heading =~ s/[^\w\- ]//g;
	$heading =~ s/ /-/g;
	return $heading;
}

my @dead;
foreach my $page (@pages,
	map { s,^\Q$root\E/,,r }
	glob("$root/{CHANGELOG,CONTRIBUTING,SECURITY,test/README}.md $root/test/*/README.md"))
{
	my $text = $text{$page} // slurp_file("$root/$page");
	my ($directory) = $page =~ m,^(.*/|),;

	$text =~ s/^```.*?^```$//msg;
	foreach my $link ($text =~ /\]\(([^)\s]+)\)/g, $text =~ /\bsrc(?:set)?="([^"]+)"/g)
	{
		next if $link =~ /^\w+:/;
		my ($path, $anchor) = $link =~ /^([^#]*)(?:#(.*))?$/;
		my $file = $path eq '' ? "$root/$page" : "$root/$directory$path";

		if (!-e $file)
		{
			push @dead, "$page: $link";
		}
		elsif (defined $anchor)
		{
			my $target = slurp_file($file) =~ s/^```.*?^```$//msgr;

			push @dead, "$page: $link"
			  unless grep { anchor($_) eq $anchor } $target =~ /^#+ +(.*?) *$/mg;
		}
	}
}
is(join("\n", @dead), '', 'links lead somewhere');

done_testing();
