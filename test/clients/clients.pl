# Real clients against a server with the extension: one small program for each,
# in this directory, that inserts, reads back and filters, and that asserts
# what doc/clients.md says about that client, including its pitfalls.  A client
# that cannot be installed, or ends early, is a failure.
#
#   bash test/run.sh clients                  all
#   bash test/run.sh clients jdbc             one of them
#
# The table of doc/clients.md has to name the versions that ran, which the programs print; a day in
# it is when somebody looked at a run with that version.
#
# They run in a chroot, which test/clients.sh makes.  With --packages, this only says what they
# take of Debian's.

use strict;
use warnings;

use FindBin;
use POSIX qw(strftime);
use lib "$FindBin::RealBin/../perl";
use SnowflakeProgram;
use Test::More;

# which need a PostgreSQL
use if !@ARGV || $ARGV[0] ne '--packages', 'SnowflakeTest', 'new_node';

# javac speaks of annotations that its jars refer to and that are not here
my $jars = 'class:/usr/share/java/postgresql.jar';
my $java =
  "mkdir -p class; javac -Xlint:all,-classfile,-processing -Werror -cp $jars -d class JdbcClient.java
		java -XX:TieredStopAtLevel=1 -cp $jars JdbcClient";

# The version of a Debian package without what Debian adds, for clients that do
# not know their own.
sub version_of
{
	my ($variable, $package) = @_;

	return
	  "export $variable=\$(dpkg-query -W -f '\${Version}' $package | sed 's/^[0-9]*://; s/-.*//')\n";
}

# Debian's packages, and what runs the client.  Those belong to Debian's interpreters, whatever
# PATH finds first.
my %clients = (
	psql => [ '', 'psql -X -A -t -q -f psql_client.sql' ],
	jdbc => [ 'default-jdk-headless libpostgresql-jdbc-java', $java ],
	go => [
		'golang-go golang-github-jackc-pgx-v5-dev',
		version_of('PGX_VERSION', 'golang-github-jackc-pgx-v5-dev')
		  . 'GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE="$PWD/go" go build -o go_client go_client.go; ./go_client'
	]);
my %python = (
	psycopg3 => 'python3-psycopg python3-psycopg-c',
	sqlalchemy => 'python3-sqlalchemy python3-alembic python3-psycopg',
	django => 'python3-django python3-psycopg');
$clients{$_} = [ $python{$_}, "/usr/bin/python3 -B ${_}_client.py" ] foreach keys %python;
$clients{node} = [ 'nodejs', 'node node_client.js' ];

# These two are of TypeScript, in part.  Prisma downloads its schema engine as a program, which
# cannot be done everywhere: prisma_engine.mjs has the same engine from npm.
$clients{drizzle} = [ 'nodejs', 'node --import tsx drizzle_client.js' ];
$clients{prisma} = [
	'nodejs',
	'export CHECKPOINT_DISABLE=1 PRISMA_SCHEMA_ENGINE_BINARY="$PWD/prisma_engine.mjs"
		node node_modules/prisma/build/index.js generate
		node --import tsx prisma_client.ts'
];

if (@ARGV && $ARGV[0] eq '--packages')
{
	my %package = map { $_ => 1 } map { split ' ', $clients{$_}[0] } keys %clients;

	print join(' ', sort keys %package), "\n";
	exit;
}

my @wanted = @ARGV ? @ARGV : sort keys %clients;
die "there are these clients: @{[ sort keys %clients ]}\n" if grep { !$clients{$_} } @wanted;

# JDBC knows no Unix sockets
my $node = new_node('main', conf => "listen_addresses = '127.0.0.1'");
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN');

# With the files that doc/clients.md offers, and with
# what test/clients.sh has from npm.
my $dir = PostgreSQL::Test::Utils::tempdir();
system('cp', '-R', $FindBin::RealBin, "$dir/clients") == 0 or die;
system("cp $FindBin::RealBin/../../doc/clients/* $dir/clients/") == 0 or die;
chdir "$dir/clients" or die;
symlink '/srv/npm/node_modules', 'node_modules' or die;
@ENV{qw(PGHOST PGPORT)} = ($node->host, $node->port);

# Each has a database of its own, as a user who owns that and is nothing more.  Its results
# are ours, and its plan has to have announced them.
my $page = PostgreSQL::Test::Utils::slurp_file("$FindBin::RealBin/../../doc/clients.md");
my %row = map { /^\| \[([^]]+)\]\S+ \| (.*?) \| (.*?) \|/ ? ($1 => [ $2, $3 ]) : () } split /\n/,
  $page;
my $today = strftime('%Y-%m-%d', localtime);
foreach my $client (@wanted)
{
	$node->safe_psql('postgres',
		"CREATE DATABASE $client OWNER app TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'");
	local @ENV{qw(PGUSER PGDATABASE)} = ('app', $client);
	$node->safe_psql($client, 'CREATE EXTENSION snowflake');
	my $output = output_of($clients{$client}[1]);
	my $status = $?;
	my $count = 0;

	foreach (split /\n/, $output)
	{
		/^(not )?ok \d+(?: - (.*))?$/ ? ok(!$1, "$client: $2") : note($_);
		$count += /^(not )?ok \d/;
	}
	foreach ($output =~ /^# client: (.*)/mg)
	{
		my ($name, $version) = /^(.*?) ([\d.]*\.\S*?)(?:,.*| .*)?$/;
		my ($said, $day) = @{ delete $row{$name} // [ 'no such row', '' ] };

		is($said =~ /^([^ ,]+)/ && $1,
			$version, "$client: doc/clients.md has this version of $name");
		my $line = "$_.";
		is(join(', ', grep { $line !~ /\Q$_\E[ .,]/ } $said =~ /(\S+ \d[\d.]*)/g),
			'', "$client: and of the others in its row");
		ok( $day =~ /^\d{4}-\d\d-\d\d$/ && $day le $today,
			"$client: with a day when it was tried, up to $today");
	}
	ok($status == 0 && $output =~ /^1\.\.$count$/m,
		"$client comes to its end, and to as many results as planned");
}
$node->stop;
done_testing();
