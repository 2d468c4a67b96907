# PgBouncer in transaction mode, and Pgpool-II in front of a primary and a
# standby.  A client that mints through them gets an ID of its own, by RETURNING.

use IPC::Run;
use PostgreSQL::Test::Cluster;
use SnowflakeTest;

my $user = getpwuid($<);
my %pooler;

my $primary = new_node('primary', init => { allows_streaming => 1 });
$primary->start;
$primary->safe_psql(
	'postgres', q{
	CREATE EXTENSION snowflake;
	CREATE TABLE orders (
		id snowflake PRIMARY KEY DEFAULT snowflake_next(),
		item text);
});
wait_for_mint($primary);
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

# Run SQL in a connection of its own through a pooler; returns what psql prints.  From a
# file, for a psql that cannot connect ends without a look at its input.
sub through
{
	my ($pooler, $sql) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/through.sql';
	my ($stdout, $stderr);

	PostgreSQL::Test::Utils::append_to_file($file, $sql);
	IPC::Run::run(
		[ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-d', $pooler->{connstr}, '-f', $file ],
		'<', \undef, '>', \$stdout, '2>', \$stderr);
	$stderr =~ s/^psql:\Q$file\E:\d+: //mg;
	chomp(my $result = $stdout . $stderr);
	return $result;
}

# Start a pooler and wait until it serves.
sub start_pooler
{
	my ($name, $host, $port, @command) = @_;
	my $log = "$PostgreSQL::Test::Utils::log_path/$name.log";

	$pooler{$name} = {
		connstr => "host=$host port=$port user=$user dbname=postgres",
		handle => IPC::Run::start(\@command, '<', \undef, '>', $log, '2>&1')
	};
	wait_until("$name serves", sub { through($pooler{$name}, 'SELECT 1') eq '1' });
	return $pooler{$name};
}

# Tell it to stop, and wait until it has.
sub stop_pooler
{
	my ($name, $signal) = @_;
	my $handle = delete($pooler{$name})->{handle};

	$handle->signal($signal);
	IPC::Run::finish($handle);
	return;
}

# A PgBouncer with one session to the server, for everybody.
sub start_pgbouncer
{
	my ($name, @settings) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $config = join "\n", '[databases]',
	  sprintf('postgres = host=%s port=%d user=%s', $primary->host, $primary->port, $user),
	  '[pgbouncer]', 'auth_type = any', "unix_socket_dir = $dir", "listen_port = $port",
	  'default_pool_size = 1', @settings, '';

	PostgreSQL::Test::Utils::append_to_file("$dir/pgbouncer.ini", $config);
	return start_pooler($name, $dir, $port, 'pgbouncer', "$dir/pgbouncer.ini");
}

my $insert = q{INSERT INTO orders (item) VALUES ('x') RETURNING id};

# PgBouncer
my $pgbouncer = start_pgbouncer('transaction', 'pool_mode = transaction');
my $first = through($pgbouncer, $insert);
like($first, qr/^\d{19}$/, 'PgBouncer, transaction mode: RETURNING gives the ID');
cmp_ok(through($pgbouncer, $insert), '>', $first, 'and the next client a larger one');
is(through($pgbouncer, 'SELECT count(*), count(DISTINCT id) FROM orders'),
	'2|2', 'IDs are distinct');
is(through($pgbouncer, "SELECT count(*) FROM orders WHERE @@ id >= now() - interval '1 hour'"),
	'2', 'comparisons with times');
stop_pooler('transaction', 'TERM');

$pgbouncer = start_pgbouncer('session', 'pool_mode = session');
like(through($pgbouncer, $insert), qr/^\d{19}$/, 'PgBouncer, session mode: so it does');
stop_pooler('session', 'TERM');

# Pgpool-II, with one process, hence one session to each server, and with all
# reads for the standby that may go there
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $port = PostgreSQL::Test::Cluster::get_free_port();
PostgreSQL::Test::Utils::append_to_file("$dir/pcp.conf", '');
PostgreSQL::Test::Utils::append_to_file("$dir/pool_hba.conf", '');
PostgreSQL::Test::Utils::append_to_file(
	"$dir/pgpool.conf", qq{
backend_clustering_mode = 'streaming_replication'
listen_addresses = ''
port = $port
socket_dir = '$dir'
pcp_listen_addresses = ''
pcp_port = @{[ PostgreSQL::Test::Cluster::get_free_port() ]}
pcp_socket_dir = '$dir'
pid_file_name = '$dir/pgpool.pid'
logdir = '$dir'
work_dir = '$dir'
num_init_children = 1
max_pool = 1
load_balance_mode = on
backend_hostname0 = '@{[ $primary->host ]}'
backend_port0 = @{[ $primary->port ]}
backend_weight0 = 0
backend_flag0 = 'ALWAYS_PRIMARY|DISALLOW_TO_FAILOVER'
backend_hostname1 = '@{[ $standby->host ]}'
backend_port1 = @{[ $standby->port ]}
backend_weight1 = 1
backend_flag1 = 'DISALLOW_TO_FAILOVER'
sr_check_user = '$user'
});
my $pgpool = start_pooler(
	'pgpool', $dir, $port, 'pgpool',
	'-n', '-f', "$dir/pgpool.conf", '-F',
	"$dir/pcp.conf", '-a', "$dir/pool_hba.conf");
is(through($pgpool, q{SELECT current_setting('port')}),
	$standby->port, 'Pgpool-II reads from the standby');
like(through($pgpool, 'SELECT snowflake_next()'),
	qr/^\d{19}$/, 'a SELECT that mints goes to the primary, since the function is volatile');
like(through($pgpool, $insert), qr/^\d{19}$/, 'so does an INSERT, whose RETURNING gives the ID');
$primary->wait_for_catchup($standby);
is( through(
		$pgpool,
		"SELECT count(*), current_setting('port') FROM orders WHERE @@ id >= now() - interval '1 hour'"
	),
	'4|' . $standby->port,
	'comparisons with times are answered by the standby');
stop_pooler('pgpool', 'INT');

done_testing();
