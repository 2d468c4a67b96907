# Real clients against a server with the extension: one small program for each,
# in this directory, that inserts, reads back and filters, and that asserts
# what doc/clients.md says about that client, the traps included.  A client that
# cannot be installed, or ends early, is a failure.
#
#   bash test/run.sh clients                  every client, but go and rust
#   bash test/run.sh clients go rust          which take a minute or more each to install and build
#   bash test/run.sh clients jdbc node        some of them
#
# With --packages, it only says what these take of Debian's.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeProgram;
use Test::More;

# which need a PostgreSQL
use if !@ARGV || $ARGV[0] ne '--packages', 'SnowflakeTest', 'new_node';

# which some have from elsewhere
my $jdk = system('{ command -v java && command -v javac; } >/dev/null') ? 'default-jdk-headless' : '';
my $nodejs = system('{ command -v node && command -v npm; } >/dev/null') ? 'nodejs npm' : '';

sub class_path
{
	return join ':', 'class', map { "/usr/share/java/$_.jar" } @_;
}

# javac speaks of annotations that its jars refer to and that are not here
sub java
{
	my ($class, $options, @jars) = @_;
	my $path = class_path(@jars);

	return "mkdir -p class; javac -Xlint:all,-classfile,-processing -Werror -cp $path -d class -sourcepath . $class.java
		java -XX:TieredStopAtLevel=1 $options -cp $path $class";
}

# The version of a Debian package without what Debian adds, for clients that do
# not know their own.
sub version_of
{
	my ($variable, $package) = @_;

	return "export $variable=\$(dpkg-query -W -f '\${Version}' $package | sed 's/^[0-9]*://; s/-.*//')\n";
}

# Debian's packages, and what runs the client.  Those belong to Debian's interpreters, whatever
# PATH finds first.
my %clients = (
	psql => [ '', 'psql -X -A -t -q -f psql_client.sql' ],
	jdbc => [ "$jdk libpostgresql-jdbc-java", java('JdbcClient', '', 'postgresql') ],

	# its proxies are older than the rules of Java 9
	hibernate => [
		"$jdk libpostgresql-jdbc-java libhibernate3-java libjavassist-java libslf4j-java",
		version_of('HIBERNATE_VERSION', 'libhibernate3-java')
		  . java('HibernateClient', '--add-opens java.base/java.lang=ALL-UNNAMED',
			qw(postgresql hibernate-core hibernate-commons-annotations geronimo-jpa_2.0_spec geronimo-jta-1.2-spec
			  dom4j antlr commons-collections3 javassist slf4j-api slf4j-nop))
	],
	pdo => [ 'php-cli php-pgsql', 'php pdo_client.php' ],
	dbd => [ 'libdbd-pg-perl', '/usr/bin/perl dbd_client.pl' ],
	activerecord => [ 'ruby-activerecord ruby-pg', '/usr/bin/ruby activerecord_client.rb' ],
	go => [
		'golang-go golang-github-lib-pq-dev golang-github-jackc-pgx-v4-dev',
		version_of('PQ_VERSION', 'golang-github-lib-pq-dev') . version_of('PGX_VERSION', 'golang-github-jackc-pgx-v4-dev')
		  . 'GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE="$PWD/go" go build -o go_client go_client.go; ./go_client'
	],

	# the lock file is written here, from what Debian has
	rust => [
		'cargo librust-tokio-postgres-dev',
		version_of('TOKIO_POSTGRES_VERSION', 'librust-tokio-postgres-dev')
		  . q{CARGO_HOME="$PWD/cargo" /usr/bin/cargo build -q --offline --manifest-path rust/Cargo.toml \
			--config 'source.crates-io.replace-with = "debian"' \
			--config 'source.debian.directory = "/usr/share/cargo/registry"'
			rust/target/debug/rust_client}
	]);
my %python = (
	psycopg2 => 'python3-psycopg2',
	psycopg3 => 'python3-psycopg',
	asyncpg => 'python3-asyncpg',
	sqlalchemy => 'python3-sqlalchemy python3-psycopg2',
	django => 'python3-django python3-psycopg2');
$clients{$_} = [ $python{$_}, "/usr/bin/python3 -B ${_}_client.py" ] foreach keys %python;
$clients{$_} = [ $nodejs, "node ${_}_client.js" ] foreach qw(node sequelize knex typeorm);

my $only_packages = @ARGV && $ARGV[0] eq '--packages' && shift;
my @wanted = @ARGV ? @ARGV : grep { !/^(go|rust)$/ } sort keys %clients;
die "there are these clients: @{[ sort keys %clients ]}\n" if grep { !$clients{$_} } @wanted;
if ($only_packages)
{
	print map { "$clients{$_}[0]\n" } @wanted;
	exit;
}

# JDBC knows no Unix sockets
my $node = new_node('main', conf => "listen_addresses = '127.0.0.1'");
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN');
note('this is not Debian 12: the clients have other versions than in doc/clients.md')
  if system('grep -qs "^VERSION_CODENAME=bookworm" /etc/os-release') != 0;

# Beside the tree, as one of them expects it, and with what run.sh has from npm, unless the
# checkout has that.
my $dir = PostgreSQL::Test::Utils::tempdir();
my $npm = ($ENV{SNOWFLAKE_WORK} // '') . '/npm/clients/node_modules';
system('cp', '-R', $FindBin::RealBin, "$dir/clients") == 0 or die;
symlink "$FindBin::RealBin/../..", "$dir/tree" or die;
chdir "$dir/clients" or die;
symlink $npm, 'node_modules' if -e $npm && !-e 'node_modules';
@ENV{qw(PGHOST PGPORT)} = ($node->host, $node->port);

# Each has a database of its own, as a user who owns that and is nothing more.  Its results
# are ours, and its plan has to have announced them.
foreach my $client (@wanted)
{
	$node->safe_psql('postgres', "CREATE DATABASE $client OWNER app TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'");
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
	ok($status == 0 && $output =~ /^1\.\.$count$/m, "$client comes to its end, and to as many results as planned");
}
$node->stop;
done_testing();
