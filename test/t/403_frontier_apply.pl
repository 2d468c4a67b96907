# Logical replication's apply worker mints on the subscriber, for a column that
# the publisher does not have: it holds the frontier back like any session, and so
# does what it prepares.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(new_node status wait_for_mint);
use PostgreSQL::Test::Cluster;
use Test::More;

my $publisher = PostgreSQL::Test::Cluster->new('publisher');
$publisher->init(allows_streaming => 'logical');
$publisher->append_conf('postgresql.conf', 'max_prepared_transactions = 1');
$publisher->start;
$publisher->safe_psql('postgres',
	'CREATE TABLE incoming (n int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE incoming');

my $node = new_node('subscriber', conf => 'max_prepared_transactions = 1');
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION snowflake;
	CREATE TABLE incoming (n int PRIMARY KEY, id snowflake UNIQUE DEFAULT snowflake_next());
	CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;
	CREATE TRIGGER linger AFTER INSERT ON incoming FOR EACH ROW
		WHEN (NEW.n < 100) EXECUTE FUNCTION linger();
	ALTER TABLE incoming ENABLE ALWAYS TRIGGER linger;
});
wait_for_mint($node);
$node->safe_psql(
	'postgres',
	sprintf(q{CREATE SUBSCRIPTION s CONNECTION '%s dbname=postgres' PUBLICATION p WITH (two_phase)},
		$publisher->connstr));
$node->wait_for_subscription_sync($publisher, 's');

sub tail
{
	return $node->safe_psql('postgres',
		q{SELECT coalesce(string_agg(n::text, ' ' ORDER BY id), '') FROM incoming WHERE id <= snowflake_frontier()}
	);
}

my $minted = status($node, 'minted');
my $lock = $node->background_psql('postgres');
$lock->query_safe('SELECT pg_advisory_lock(1)');
$publisher->safe_psql('postgres', 'INSERT INTO incoming SELECT generate_series(1, 3)');
$node->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted})
  or die "nothing is applied";
$node->safe_psql('postgres', 'INSERT INTO incoming VALUES (100)');
cmp_ok(status($node, 'minted'), '>=', $minted + 2, 'what the apply worker mints is counted');
is(tail(), '', 'what the apply worker has minted and not committed holds the frontier back');
is( $node->safe_psql(
		'postgres',
		q{SELECT a.backend_type ~ 'logical replication' FROM snowflake_frontier_holders() h JOIN pg_stat_activity a USING (pid)}
	),
	't',
	'by the worker');
$lock->query_safe('SELECT pg_advisory_unlock(1)');
$lock->quit;
$publisher->wait_for_catchup('s');
is(join(' ', sort { $a <=> $b } split / /, tail()), '1 2 3 100', 'then all rows come');
is($node->safe_psql('postgres', 'SELECT count(*) FROM snowflake_frontier_holders()'),
	0, 'and nobody holds it any more');

# It prepares transactions as well, and not by a command.
$node->poll_query_until('postgres', q{SELECT subtwophasestate = 'e' FROM pg_subscription})
  or die "two-phase commit is not enabled";
$publisher->safe_psql('postgres',
	q{BEGIN; INSERT INTO incoming VALUES (200); PREPARE TRANSACTION 'p'});
$publisher->wait_for_catchup('s');
$node->safe_psql('postgres', 'INSERT INTO incoming VALUES (201)');
is( $node->safe_psql(
		'postgres',
		'SELECT count(*) FROM snowflake_frontier_holders() h JOIN pg_prepared_xacts p ON p.transaction = h.prepared'
	),
	1,
	'what the worker has prepared holds the frontier back');
unlike(tail(), qr/20/, 'and nothing from there on is delivered');
$publisher->safe_psql('postgres', q{COMMIT PREPARED 'p'});
$publisher->wait_for_catchup('s');
like(tail(), qr/200 201$/, 'until it is committed');

$node->safe_psql('postgres', 'DROP SUBSCRIPTION s');
$_->stop foreach $node, $publisher;
done_testing();
