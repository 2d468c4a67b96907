# What the output plugins send for a snowflake: pgoutput, test_decoding and wal2json
# name the type and write the ID as text; and the reservation, which a consumer in the
# keeper's database sees, can be left out.

use SnowflakeTest;

my $node = new_node('main', init => { allows_streaming => 'logical' });

$node->start;

# some versions of PostgreSQL want to be told which libraries are good for that
if ($node->safe_psql(
		'postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'}))
{
	$node->append_conf('postgresql.conf',
		"output_plugin_libraries = 'pgoutput, test_decoding, wal2json'");
	$node->reload;
}
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION snowflake;
	CREATE TABLE items (id snowflake PRIMARY KEY, list snowflake[], number bigint);
	CREATE PUBLICATION everything FOR ALL TABLES;
});
wait_for_mint($node);

# the keeper's extension is made by then, and is in this database
is( $node->safe_psql(
		'postgres', q{SELECT extname FROM pg_extension WHERE extname = 'snowflake_keeper'}),
	'snowflake_keeper',
	'this is the database of the keeper');

sub sql
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', $sql);
}

# What is sent of a change of the table and of the reservation
sub sent
{
	my ($plugin, $get) = @_;

	sql("SELECT pg_create_logical_replication_slot('slot', '$plugin')");
	sql(q{
		INSERT INTO items VALUES ('2124072316831797248', '{5,6}', 7);
		UPDATE items SET id = '2124072316831797249';
		DELETE FROM items});
	extend($node);
	my $changes = sql("SELECT $get");
	sql(q{SELECT pg_drop_replication_slot('slot')});
	return $changes;
}

my $sent = sent('test_decoding', q{data FROM pg_logical_slot_get_changes('slot', NULL, NULL)});
like(
	$sent,
	qr/INSERT: id\[snowflake\]:'2124072316831797248' list\[snowflake\[\]\]:'\{5,6\}' number\[bigint\]:7$/m,
	'test_decoding: quoted text');
like(
	$sent,
	qr/old-key: id\[snowflake\]:'2124072316831797248' new-tuple: id\[snowflake\]:'2124072316831797249'/,
	'and as the key');
like($sent, qr/table snowflake_keeper\.reservation: UPDATE/, 'the reservation is seen');

# Messages of type Y name the type, and in those of type I a column is t, its length, and text,
# or b, 8, and the number
my $pgoutput =
  q{string_agg(encode(data, 'hex'), ' ') FROM pg_logical_slot_get_binary_changes('slot', NULL, NULL,
	'proto_version', '1', 'publication_names', 'everything'};
$sent = sent('pgoutput', "$pgoutput)");
my $type = '59[0-9a-f]{8}' . unpack('H*', "public\0snowflake\0");
my $text = unpack('H*', '2124072316831797248');
like($sent, qr/\b$type\b/, 'pgoutput: the name of the type');
like($sent, qr/\b49[0-9a-f]{8}4e000374000000 13 $text/x, 'the ID as text');
like($sent, qr/@{[unpack 'H*', "snowflake_keeper\0reservation\0"]}/, 'the reservation is seen');
my $binary = sprintf '%016x', 2124072316831797248;
like(
	sent('pgoutput', "$pgoutput, 'binary', 'true')"),
	qr/\b49[0-9a-f]{8}4e00036200000008$binary/,
	'or as eight bytes');

SKIP:
{
	my ($status, undef, $error) =
	  $node->psql('postgres', q{SELECT pg_create_logical_replication_slot('slot', 'wal2json')});

	skip "no wal2json: $error", 4 if $status != 0;
	sql(q{SELECT pg_drop_replication_slot('slot')});
	$sent = sent('wal2json',
		q{data FROM pg_logical_slot_get_changes('slot', NULL, NULL, 'format-version', '2')});
	like(
		$sent,
		qr/\{"name":"id","type":"snowflake","value":"2124072316831797248"\}/,
		'wal2json: a string');
	like($sent, qr/\{"name":"number","type":"bigint","value":7\}/, 'where a bigint is a number');
	like($sent, qr/"table":"reservation"/, 'the reservation is seen');
	$sent = sent('wal2json',
		q{data FROM pg_logical_slot_get_changes('slot', NULL, NULL, 'format-version', '2', 'filter-tables', 'snowflake_keeper.*')}
	);
	ok($sent !~ /reservation/ && $sent =~ /"table":"items"/, 'or not');
}

# A publication that lists its tables has no reservation
sql('DROP PUBLICATION everything; CREATE PUBLICATION everything FOR TABLE items');
unlike(
	sent('pgoutput', "$pgoutput)"),
	qr/@{[unpack 'H*', "snowflake_keeper\0"]}/,
	'pgoutput: a publication of some tables');

$node->stop;
done_testing();
