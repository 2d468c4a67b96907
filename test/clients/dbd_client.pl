# Perl's DBD::Pg.  To be run by clients.pl.

use strict;
use warnings;
use DBI;
use DBD::Pg;
use POSIX qw(strftime);
use Test::More;
use Time::Piece;

use constant BIG => 9_007_199_254_740_993;    # 2**53 + 1, but not by way of a double

my $hour_ago = strftime('%Y-%m-%d %H:%M:%SZ', gmtime(time - 3600));
my $db = DBI->connect('dbi:Pg:', undef, undef, { RaiseError => 1, PrintError => 0 });

# The only column of the only row.
sub value
{
	my ($sql, @parameters) = @_;
	my $rows = $db->selectcol_arrayref($sql, undef, @parameters);

	die scalar(@$rows), " rows: $sql" if @$rows != 1;
	return $rows->[0];
}

# The statement must fail with this SQLSTATE.
sub fails
{
	my ($sql, $parameter, $state, $name) = @_;

	eval { value($sql, $parameter) };
	is($db->state, $state, $name);
	return;
}

print "# client: Perl DBD::Pg $DBD::Pg::VERSION, Perl $^V\n";
$db->do(
	q{
	CREATE TABLE orders (
		id   snowflake PRIMARY KEY DEFAULT snowflake_next(),
		ref  bigint NOT NULL UNIQUE DEFAULT snowflake_next(),
		item text
	)});
my ($id, $ref) =
  $db->selectrow_array('INSERT INTO orders (item) VALUES (?) RETURNING id, ref', undef, 'default');
ok($id > BIG && $ref > $id, 'both columns get an ID by default');
is(ref \$id, 'SCALAR', 'a snowflake is a scalar, exact as number and as string');
ok(!eval { $db->last_insert_id(undef, undef, 'orders', undef); 1 },
	'last_insert_id() finds no column');

# prepared by the server, and with the parameters written into the statement
for my $prepare (1, 0)
{
	my $how = $prepare ? 'prepared' : 'written';
	my @many = (1 .. 999, $id);
	my $places = join(', ', ('?') x 1000);

	$db->{pg_server_prepare} = $prepare;
	is(value('SELECT item FROM orders WHERE id = ?', "$id"), 'default', "$how: filter by a string");
	is(value('SELECT item FROM orders WHERE id = ?', $id + 0),
		'default', "$how: filter by a number");
	is(value('SELECT item FROM orders WHERE ref = ?', $ref),
		'default', "$how: filter the bigint column");
	is(value("SELECT item FROM orders WHERE id IN ($places)", @many),
		'default', "$how: filter by IN");
	is(value('SELECT item FROM orders WHERE id = ANY (?)', \@many),
		'default', "$how: filter by an array");
	is(value('SELECT count(*) FROM orders WHERE id >= ?::timestamptz', $hour_ago),
		1, "$how: filter by a time, with a cast");
	is(value('SELECT item FROM orders WHERE ref >= snowflake_lower_bound(?)', $hour_ago),
		'default', "$how: filter the bigint column by a time");
	fails('SELECT id FROM orders WHERE id >= ?',
		$hour_ago, '22P02', "$how: a time without a cast is refused");
	is( value('INSERT INTO orders VALUES (?, ?) RETURNING id', BIG + !$prepare, BIG + !$prepare),
		BIG + !$prepare,
		"$how: insert a number beyond 2^53");
}
is_deeply(
	$db->selectcol_arrayref(
		'SELECT id FROM orders WHERE id < ? ORDER BY id DESC LIMIT 2',
		undef, $id),
	[ BIG + 1, BIG ],
	'the next page, by key');
is(value('SELECT max(id) FROM orders'), $id, 'max()');
is( value('SELECT array_agg(id) FROM orders WHERE id = ?', BIG),
	'{' . BIG . '}',
	'an array is a string');
is_deeply(value('SELECT array_agg(id::bigint) FROM orders WHERE id = ?', BIG),
	[BIG], 'that of bigint is a list');
is( value('SELECT row_to_json(o) FROM orders o WHERE id = ?', BIG),
	sprintf('{"id":"%d","ref":%d,"item":null}', BIG, BIG),
	'JSON has a string for snowflake');

# The form of all sections: rows of 2010 and of 2045 are there, then come one of now and 1,000.
{
	use constant FAR => 4_611_686_018_427_387_905;
	my ($from, $to) = map { gmtime(time + $_)->datetime . 'Z' } (-3600, 3600);
	my @items = map { "item $_" } 1 .. 1000;

	$db->do('TRUNCATE orders');
	$db->do('CREATE VIEW orders_view AS SELECT id, item, @ id AS created_at FROM orders');
	$db->do('INSERT INTO orders (id, item) VALUES (?, ?), (?, ?)', undef, BIG, 'old', FAR, 'far');

	my ($id) =
	  $db->selectrow_array('INSERT INTO orders (item) VALUES (?) RETURNING id', undef, 'tea');
	my $batch =
	  $db->selectcol_arrayref('INSERT INTO orders (item) SELECT unnest(?::text[]) RETURNING id',
		undef, \@items);
	my $some = $db->selectcol_arrayref('SELECT * FROM orders WHERE id = ANY (?)',
		undef, [ $id, $batch->[0] ]);
	my $newest = $db->selectcol_arrayref('SELECT * FROM orders ORDER BY id DESC LIMIT 20');
	my $next =
	  $db->selectcol_arrayref('SELECT * FROM orders WHERE id < ? ORDER BY id DESC LIMIT 20',
		undef, $newest->[-1]);
	my $period =
	  $db->selectcol_arrayref('SELECT * FROM orders_view WHERE created_at >= ? AND created_at < ?',
		undef, $from, $to);
	my @minted = ($id, @$batch);
	my @back = reverse @minted;

	is(value('SELECT id FROM orders WHERE id = ?', $id), $id, 'insert, and read back exactly');
	is_deeply($batch, [ sort { $a <=> $b } @$batch ], 'a batch of 1,000, whose keys ascend');
	is(scalar(@minted), 1001, 'and are 1,000');
	is_deeply([ sort { $a <=> $b } @$some ], [ @minted[ 0, 1 ] ], 'a list of keys');
	is_deeply($newest, [ FAR, @back[ 0 .. 18 ] ], 'newest first');
	is_deeply($next, [ @back[ 19 .. 38 ] ], 'the next page');
	is_deeply([ sort { $a <=> $b } @$period ], \@minted, 'rows of a period, by times');
}

$db->disconnect;
done_testing();
