# Tables that are published are migrated while a subscriber follows: for one that is published
# with a list of columns, the subscriber only needs wider columns; for one that is published as
# a whole, it needs the columns of the migration as well.  It gets every row, including the new
# keys.
#
# versions: all

use SnowflakeDepot;
use SnowflakeTest;

my $publisher = minting_node('publisher', init => { allows_streaming => 'logical' });
my $subscriber = new_node('subscriber', node_id => 2);
$subscriber->start;
query($publisher, 'CREATE EXTENSION snowflake_migrate');
my $tables = q{
	CREATE TABLE listed (id serial PRIMARY KEY, note text);
	CREATE TABLE whole (id serial PRIMARY KEY, note text);
	CREATE TABLE refs (id bigserial PRIMARY KEY, listed integer REFERENCES listed)};
query($_, $tables) foreach $publisher, $subscriber;

# Rows that come, change and go
my $writes = q{
	WITH n AS (INSERT INTO listed (note) SELECT 'new' FROM generate_series(1, 10) RETURNING id) INSERT INTO refs (listed) SELECT id FROM n;
	INSERT INTO whole (note) SELECT 'new' FROM generate_series(1, 10);
	UPDATE listed SET note = 'changed' WHERE id IN (SELECT id FROM listed ORDER BY id DESC LIMIT 3);
	UPDATE whole SET note = 'changed' WHERE id IN (SELECT id FROM whole ORDER BY id DESC LIMIT 3);
	DELETE FROM whole WHERE id IN (SELECT id FROM whole ORDER BY id DESC OFFSET 3 LIMIT 1)};
query($publisher, $writes);
query($publisher, 'CREATE PUBLICATION feed FOR TABLE listed (id, note), refs (id, listed), whole');
my $connstr = $publisher->connstr . ' dbname=postgres';
query($subscriber, "CREATE SUBSCRIPTION feed CONNECTION '$connstr' PUBLICATION feed");

sub is_followed
{
	my ($what) = @_;
	my $contents =
	  q{SELECT (SELECT md5(string_agg(l::text, ' ' ORDER BY id)) FROM (SELECT id, note FROM listed) AS l),
		(SELECT md5(string_agg(w::text, ' ' ORDER BY id)) FROM (SELECT id, note FROM whole) AS w),
		(SELECT md5(string_agg(r::text, ' ' ORDER BY id)) FROM (SELECT id, listed FROM refs) AS r)};

	query($publisher, $writes);
	$publisher->wait_for_catchup('feed');
	return is(query($subscriber, $contents), query($publisher, $contents), $what);
}

wait_for_query($subscriber,
	q{SELECT count(*) = 3 FROM pg_subscription_rel WHERE srsubstate IN ('r', 's')});
is_followed('a subscriber follows');

# First it gets wider columns, and those that the publication sends meanwhile
query(
	$subscriber, q{
	ALTER TABLE refs DROP CONSTRAINT refs_listed_fkey, ALTER COLUMN listed TYPE bigint;
	ALTER TABLE listed ALTER COLUMN id TYPE bigint;
	ALTER TABLE whole ALTER COLUMN id TYPE bigint, ADD COLUMN snowflake_new_id bigint, ADD COLUMN snowflake_old_id integer}
);
query($publisher, q{CALL snowflake_migrate.fill('{public}')});
is_followed('while the columns are filled');
is(build($publisher, 'postgres'), '', 'the publisher makes its indexes');
query($publisher, 'CALL snowflake_migrate.swap()');
is_followed('after the swap');
query($publisher, 'CALL snowflake_migrate.finish()');
query($subscriber, 'ALTER TABLE whole DROP COLUMN snowflake_new_id, DROP COLUMN snowflake_old_id');
is_followed('and to the end');
is( query(
		$subscriber,
		q{SELECT (SELECT max(id) FROM listed) > 1::bigint << 50, (SELECT max(id) FROM whole) > 1::bigint << 50, (SELECT max(listed) FROM refs) > 1::bigint << 50}
	),
	't|t|t',
	'it has new keys');
is( query(
		$publisher,
		q{SELECT string_agg(format('%s (%s)', tablename, attnames), ' ' ORDER BY tablename) FROM pg_publication_tables}
	),
	'listed ({note,id}) refs ({id,listed}) whole ({note,id})',
	'the publication is as it was');

done_testing();
