# pglogical: a table with a key of the type, from one server to another, where
# the type has another OID.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node wait_for_mint);
use Test::More;

my %node;
my $conf = q{
shared_preload_libraries = 'snowflake, pglogical'
track_commit_timestamp = on
};
my $table = q{
	CREATE TABLE orders (
		id snowflake PRIMARY KEY DEFAULT snowflake_next(),
		ids snowflake[],
		item text)};

foreach my $name ('provider', 'subscriber')
{
	$node{$name} = new_node(
		$name,
		node_id => $name eq 'provider' ? 1 : 2,
		init => { allows_streaming => 'logical' },
		conf => $conf);
	$node{$name}->start;

	# later minor versions of PostgreSQL have to be told of the output plugin
	$node{$name}->safe_psql(
		'postgres', q{
		SELECT 'ALTER SYSTEM SET output_plugin_libraries = ' || setting || ', pglogical_output'
		FROM pg_settings WHERE name = 'output_plugin_libraries' \gexec
		SELECT pg_reload_conf()});
}
my ($provider, $subscriber) = @node{ 'provider', 'subscriber' };
$subscriber->safe_psql('postgres', 'CREATE TYPE other AS ENUM ()');
foreach my $name ('provider', 'subscriber')
{
	$node{$name}->safe_psql(
		'postgres', qq{
		CREATE EXTENSION snowflake;
		CREATE EXTENSION pglogical;
		$table;
		SELECT pglogical.create_node('$name', \$dsn\$@{[ $node{$name}->connstr('postgres') ]}\$dsn\$)});
	wait_for_mint($node{$name});
}
my $oid = q{SELECT 'snowflake'::regtype::oid};
isnt(
	$provider->safe_psql('postgres', $oid),
	$subscriber->safe_psql('postgres', $oid),
	'the OIDs of the type differ');

$provider->safe_psql(
	'postgres', q{
	INSERT INTO orders (ids, item) SELECT ARRAY[snowflake_next(), NULL], 'copied' FROM generate_series(1, 10);
	SELECT pglogical.replication_set_add_table('default', 'orders')});
$subscriber->safe_psql(
	'postgres', qq{
	SELECT pglogical.create_subscription('from_provider', \$dsn\$@{[ $provider->connstr('postgres') ]}\$dsn\$)}
);
$subscriber->poll_query_until('postgres',
	q{SELECT bool_and(sync_status = 'r') FROM pglogical.local_sync_status})
  or die 'subscriber did not copy';
my $content = q{SELECT count(*), md5(string_agg(o::text, ',' ORDER BY id)) FROM orders o};
is( $subscriber->safe_psql('postgres', $content),
	$provider->safe_psql('postgres', $content),
	'rows are copied');

# Wait until the subscriber has all that the provider has.
sub catch_up
{
	my $lsn = $provider->safe_psql('postgres', 'SELECT pg_current_wal_lsn()');

	$provider->poll_query_until('postgres',
		"SELECT bool_and(confirmed_flush_lsn >= '$lsn') FROM pg_replication_slots")
	  or die 'subscriber did not catch up';
	return;
}

$provider->safe_psql(
	'postgres', q{
	INSERT INTO orders (item) VALUES ('replicated');
	UPDATE orders SET item = 'changed' WHERE id = (SELECT min(id) FROM orders);
	DELETE FROM orders WHERE id = (SELECT max(id) FROM orders WHERE item = 'copied')});
catch_up();
is( $subscriber->safe_psql('postgres', $content),
	$provider->safe_psql('postgres', $content),
	'changes are replicated');
is( $subscriber->safe_psql(
		'postgres', q{INSERT INTO orders (item) VALUES ('own') RETURNING snowflake_node(id)}),
	'2',
	'the subscriber mints with its own node ID');

# its row filters take the type, which those of core's publications do not
foreach my $name ('subscriber', 'provider')
{
	$node{$name}->safe_psql('postgres', 'CREATE TABLE filtered (id snowflake PRIMARY KEY)');
}
$provider->safe_psql(
	'postgres', q{
	SELECT pglogical.replication_set_add_table('default', 'filtered',
		row_filter := '@@ id >= timestamptz ''2026-01-01''');
	INSERT INTO filtered VALUES (5), (snowflake_lower_bound('2026-01-02'))});
catch_up();
is( $subscriber->safe_psql(
		'postgres', q{SELECT id = snowflake_lower_bound('2026-01-02') FROM filtered}),
	't',
	'a row filter by time');
is(error_of($provider, q{CREATE PUBLICATION p FOR TABLE filtered WHERE (id > 5)})->{sqlstate},
	'0A000', q{one of core's is refused});

done_testing();
