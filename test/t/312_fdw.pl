# A foreign table of postgres_fdw with a snowflake key: whether a condition is sent to the other server
# or evaluated here, the rows are the same; what can be sent is sent, once the server's options say that
# the other one has the extension as well; and a default mints where it is.
# versions: all

use SnowflakeTest;

my $local = minting_node('local', node_id => 1, conf => "timezone = 'UTC'");
my $remote = minting_node('remote', node_id => 2, conf => "timezone = 'UTC'");

sub local_sql { return query($local, @_); }
sub remote_sql { return query($remote, @_); }

remote_sql(
	q{
	CREATE TABLE items (id snowflake PRIMARY KEY DEFAULT snowflake_next(), n integer);
	INSERT INTO items
		SELECT make_snowflake(timestamptz '2026-01-01 UTC' + n * interval '1 hour', 2, n), n
	  FROM generate_series(1, 1000) n;
	INSERT INTO items (id, n) VALUES ('0', 0), ('5', 5), ('9223372036854775807', -1);
	INSERT INTO items (n) SELECT 2000 + n FROM generate_series(1, 100) n;
	ANALYZE items;
});

local_sql(
	'CREATE EXTENSION postgres_fdw' . join '',
	map {
		my ($server, $option) = @$_;
		my ($host, $port) = ($remote->host, $remote->port);

		qq{
		; CREATE SERVER $server FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '$host', port '$port', dbname 'postgres' $option);
		CREATE USER MAPPING FOR PUBLIC SERVER $server;
		CREATE FOREIGN TABLE items_$server (id snowflake DEFAULT snowflake_next(), n integer)
			SERVER $server OPTIONS (table_name 'items');
		ANALYZE items_$server}
	} ([ 'knowing', q{, extensions 'snowflake'} ], [ 'unknowing', '' ]));

# Conditions, and whether they are sent to a server that is known to have the
# extension.  Sent is what is immutable: of a constant time the bound is known
# when the query is planned, that of now() is not.  A sub-select makes a
# parameter of it, which can be sent.
my $id = remote_sql('SELECT id FROM items WHERE n = 500');
my $after = remote_sql('SELECT id FROM items WHERE n = 510');
my @conditions = table(<<"END");
1 | id = '$id'
1 | $id >= id
1 | id BETWEEN '$id' AND '$after'
1 | id::bigint % 2 = 1
1 | \@\@ id >= timestamptz '2026-01-15 12:00 UTC'
1 | \@\@ id <@ tstzrange('2026-01-10 UTC', '2026-01-15 UTC')
1 | \@\@ id IN ('2026-01-15 12:00 UTC', '2026-01-16 12:00 UTC')
1 | (\@\@ id, id) < ('2026-01-15 12:00 UTC', 5)
0 | date '2026-01-15' <= \@\@ id
0 | (\@\@ id)::date = '2026-01-15'
0 | \@\@ id >= now() - interval '1 day'
1 | id >= (SELECT snowflake_lower_bound(now() - interval '1 day'))
1 | id IN ('$id', '$after', '6')
1 | id = ANY ('{$id,$after,6}'::snowflake[])
0 | snowflake_sequence(id) = 17
END

sub plan_of { return local_sql("EXPLAIN (VERBOSE, COSTS OFF) $_[0]"); }

# Is a condition compared by the other server alone?
sub is_sent
{
	my ($plan) = @_;

	return $plan !~ /Filter:/ && $plan =~ /Remote SQL: .* WHERE /;
}

foreach my $condition (@conditions)
{
	my ($can_be_sent, $where) = @$condition;
	my $rows = q{count(*), count(*) < 1103, md5(string_agg(id || ':' || n, ',' ORDER BY n, id))};
	my $expected = remote_sql("SELECT $rows FROM items WHERE $where");

	foreach my $server ('knowing', 'unknowing')
	{
		my $sent = $can_be_sent && $server eq 'knowing';
		my ($plan, $found) = local_sql(
			"EXPLAIN (VERBOSE, COSTS OFF) SELECT id, n FROM items_$server WHERE $where;
			SELECT $rows FROM items_$server WHERE $where") =~ /^(.*)\n(.*)$/s;

		is($found, $expected, "$server: rows with $where");
		is(is_sent($plan) ? 'sent' : 'not sent', $sent ? 'sent' : 'not sent', "$server: $where")
		  or diag($plan);
	}
}

# The default of the foreign table mints here; for that of the other server, and its node ID, the foreign
# table that is inserted into must not have the column.
is( local_sql(
		q{
		CREATE FOREIGN TABLE new_items (n integer) SERVER knowing OPTIONS (table_name 'items');
		INSERT INTO items_knowing (n) VALUES (-2);
		INSERT INTO new_items (n) VALUES (-7);
		SELECT n, snowflake_node(id) FROM items_knowing WHERE n IN (-2, -7) ORDER BY n}),
	"-7|2\n-2|1",
	'defaults: IDs of the remote server, and of the local one');

# What doc/tools.md shows, but for the place of the other server
my ($section) = slurp_file('doc/tools.md') =~ /^## postgres_fdw\n(.*?)^## /ms;
my ($page) = $section =~ /^```sql\n(.*?)^```$/ms;
my ($host, $port) = ($remote->host, $remote->port);
$page =~ s/host '[^']*'/host '$host', port '$port'/;
$page =~ s/dbname '\w+'/dbname 'postgres'/;
remote_sql(
	q{CREATE TABLE orders (id snowflake PRIMARY KEY, customer text); INSERT INTO orders VALUES ('5', 'Ada')}
);
local_sql("DROP EXTENSION postgres_fdw CASCADE; $page");
is(local_sql(q{SELECT customer FROM archived_orders WHERE id = 5}), 'Ada', 'as the page has it');
ok(is_sent(plan_of('SELECT customer FROM archived_orders WHERE id = 5')), 'its condition is sent');
local_sql(q{ALTER SERVER archive OPTIONS (DROP extensions)});
local_sql($section =~ /^For a server that exists: `(.*)`\.$/m);
ok(is_sent(plan_of('SELECT customer FROM archived_orders WHERE id = 5')), 'which can be added');

done_testing();
