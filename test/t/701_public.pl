# Public IDs: they decrypt to themselves, each mistake has its own error, keys rotate, and look-ups
# use the primary key.  703_key_file.pl is about the file of the keys.

use SnowflakeTest;

plan skip_all => 'there is no snowflake_public, for want of OpenSSL' if !has_public();

my $node = new_node('main', conf => 'jit = off');
my $file;

# In a session of its own, which reads the file
sub sql
{
	$node->end_readers;
	return query($node, @_);
}

# A line of the file of keys: its number, and a byte that is the key 32 times
sub line { return "$_[0] " . sprintf('%02x', $_[1] // $_[0] & 255) x 32; }

# Have the file have keys with these numbers, and a byte that follows from each.
sub keys_are
{
	return $file = write_keys($node, map { split / /, line($_) } @_);
}

keys_are(7);
$node->append_conf('postgresql.conf', "snowflake_public.key_file = '$file'");
$node->start;
sql('CREATE EXTENSION snowflake_public CASCADE');

# For psql: write something to the file, and wait until it has stood for long enough to be read.
sub settle
{
	my ($shell) = @_;

	return "\\! $shell\n"
	  . qq(\\! perl -MTime::HiRes=sleep,stat,time -e 'sleep 0.02 while time - (stat \$ARGV[0])[10] < 0.6' '$file'\n);
}

# Texts and UUIDs

my $id = '2124072316831797248';
my $public = "snowflake_public($id, 'ord')";
my $text = sql("SELECT $public");
my $uuid = sql("SELECT snowflake_public_uuid($id, 'ord')");

like(
	$text,
	qr/^ord_7[0-9a-hjkmnp-tv-z]{13}$/,
	'a text is its context, the number of the key and 13 digits');
is($text, 'ord_70gahsc44195hw', 'which another implementation of FF1 makes as well');
like(
	$uuid,
	qr/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{11}7$/,
	'a UUID is of version 8, and ends with the number of the key');

# What comes back.  A UUID may be a text as well: that is what a literal is whose type nobody says.
my $private_uuid = "snowflake_private('$uuid'::uuid, 'ord')";
foreach my $private (
	"snowflake_private('$text')", "snowflake_private('$text', 'ord')",
	$private_uuid, map { "snowflake_private('$_', 'ord')" } $uuid,
	uc $uuid, "{$uuid}", $uuid =~ s/-//gr)
{
	is(sql("SELECT $private, pg_typeof($private)"), "$id|snowflake", "$private comes back");
}
is( sql(q{
		SELECT count(DISTINCT snowflake_public(id, context)) / 20000, count(DISTINCT snowflake_public_uuid(id, context)) / 20000,
			bool_and(snowflake_private(snowflake_public(id, context)) = id
				AND snowflake_private(snowflake_public_uuid(id, context), context) = id)
		FROM (SELECT unnest(ARRAY[n, 9223372036854775807 - n]), left('abcdefgh90123456', 1 + n::int % 16)
			FROM generate_series(0, 9999::bigint) n) s (id, context)}),
	'1|1|t',
	'the smallest and the largest IDs come back, and stay distinct, in contexts of each length');
is( sql(qq{
		SELECT count(DISTINCT right(snowflake_public($id, left('abcdefgh90123456', n)), 13))
		FROM generate_series(1, 16) n}),
	'16',
	'an ID looks different in each context');

# Mistakes.  What is wrong whatever the keys are is in test/sql/public.sql.

my $no_key = qr/there is no key/;
foreach my $case (
	[ "snowflake_private(upper('$text'))", '22P02', qr/invalid public snowflake/ ],
	[ "snowflake_private('ord_170000000000000')", '42704', $no_key ],
	[ "snowflake_private('-$uuid', 'ord')", '22P02', qr/invalid input syntax for type uuid/ ],
	[ "snowflake_private('$uuid', 'usr')", '22023', qr/in the context "usr"/ ],
	(   map { [ "snowflake_public(1, '$_')", '22023', qr/invalid context/ ] } '',
		'1rd', 'o_d', 'abcdefghijklmnopq'),
	(   map { [ "snowflake_private('$_')", '22P02', qr/invalid public snowflake/ ] } '',
		$id, '_70000000000000', "$text ", 'ord_070000000000000'))
{
	my ($call, $sqlstate, $message) = @$case;

	refuses($node, "SELECT $call", $sqlstate, "$call: its own error", message => $message);
}
refuses(
	$node, "SELECT snowflake_private('ord_60000000000000')",
	'42704',
	'the number that is missing is told',
	detail => qr/^Its key has the number 6\.$/);

# Each bit of a UUID counts.
sql(q{
	CREATE FUNCTION accepts(uuid uuid) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM snowflake_private(uuid, 'ord');
		RETURN true;
	EXCEPTION WHEN OTHERS THEN
		RETURN false;
	END $$;
	CREATE FUNCTION accepts_text(public text) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM snowflake_private(public);
		RETURN true;
	EXCEPTION WHEN undefined_object THEN
		RETURN false;
	END $$});
is( sql(qq{
		SELECT accepts('$uuid'), count(*),
			count(*) FILTER (WHERE accepts(encode(set_bit(bits, i, 1 - get_bit(bits, i)), 'hex')::uuid))
		FROM (SELECT decode(replace('$uuid', '-', ''), 'hex')) u (bits), generate_series(0, 127) i}),
	't|128|0',
	'a UUID with one bit changed is refused');

# Look-ups

sql(q{
	CREATE TABLE orders (id snowflake PRIMARY KEY);
	INSERT INTO orders SELECT id FROM snowflake_next_batch(20000) id;
	CREATE TABLE asked AS SELECT snowflake_public(id, 'ord') AS public FROM orders;
	VACUUM ANALYZE orders, asked});
foreach my $condition (
	"snowflake_private('$text')",
	"snowflake_private('$text', 'ord')",
	$private_uuid,
	"snowflake_private('$uuid', 'ord')",
	"ANY (ARRAY[snowflake_private('$text'), snowflake_private('$text')])",
	'snowflake_private($1)')
{
	my $select = "SELECT * FROM orders WHERE id = $condition";

	like(
		sql($condition =~ /\$1/
			? "SET plan_cache_mode = force_generic_plan; PREPARE p (text) AS $select; EXPLAIN (COSTS OFF) EXECUTE p ('x')"
			: "EXPLAIN (COSTS OFF) $select"),
		qr/^Index Only Scan using orders_pkey on orders\n  Index Cond: /,
		"id = $condition: by the index");
}
is(sql('SELECT count(*) FROM asked JOIN orders ON id = snowflake_private(public)'),
	'20000', 'twenty thousand look-ups find their rows');

# A parallel worker would look at the file for itself, and might find other keys than
# the leader.  So the leader alone encrypts, with the keys of its transaction.
my $parallel =
  q{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	SET parallel_leader_participation = off;};
like(sql("$parallel EXPLAIN (COSTS OFF) SELECT count(*) FROM orders WHERE id % 7 = 3"),
	qr/Gather/, 'a query that does not encrypt is run in parallel');
is( sql("$parallel
		BEGIN;
		SELECT left($public, 5);\n"
		  . settle("echo '${\ line(8)}' >>'$file'")
		  . "SELECT left(snowflake_public(id, 'ord'), 5), count(*) FROM orders GROUP BY 1;
		SELECT count(*) FROM orders WHERE snowflake_public(id, 'ord') LIKE 'ord\\_8%';
		COMMIT;
		SELECT left($public, 5)"),
	"ord_7\nord_7|20000\n0\nord_8",
	'all rows of a statement, and of a transaction, are encrypted with one key');

# Rotation: the highest number encrypts, in whatever order they stand, and all decrypt.  A text has
# one digit of the number as long as that suffices, and a UUID four bits of it.
my $come_back = q{
	SELECT count(*) FILTER (WHERE accepts_text(public)), count(*) FILTER (WHERE accepts(uuid)),
		count(*) FILTER (WHERE CASE WHEN accepts(uuid) THEN snowflake_private(uuid, 'ord') = id END)
	FROM (SELECT id, snowflake_public(id, 'ord'), snowflake_public_uuid(id, 'ord') FROM generate_series(1, 1000) id)
		s (id, public, uuid)};
my ($newer, $newer_uuid);
foreach
  my $case ([ 'c', 7, 12 ], [ 'zz', 1023, 12, 7, 23 ], [ 'z', 31, 7, 12 ], [ '10', 32, 7, 12 ])
{
	my ($digits, @numbers) = @$case;

	keys_are(@numbers);
	my ($encrypted, $encrypted_uuid) =
	  split /\|/, sql("SELECT $public, snowflake_public_uuid($id, 'ord')");
	($newer, $newer_uuid) = ($encrypted, $encrypted_uuid) if $digits eq 'c';
	like($encrypted, qr/^ord_$digits[0-9a-hjkmnp-tv-z]{13}$/, "keys @numbers: a text has $digits");
	is( substr($encrypted_uuid, -1),
		sprintf('%x', (sort { $b <=> $a } @numbers)[0] & 15),
		'a UUID four bits');
	is( sql("SELECT snowflake_private('$text'), snowflake_private('$newer'), snowflake_private('$encrypted'),
			$private_uuid, snowflake_private('$newer_uuid'::uuid, 'ord')"),
		join('|', ($id) x 5),
		'all numbers decrypt');
	is(sql($come_back), '1000|1000|1000', 'and all IDs come back');
}

# Keys that a UUID cannot tell apart
keys_are(23);
my $other_uuid = sql("SELECT snowflake_public_uuid($id, 'ord')");
keys_are(7, 23, 39);
is( sql("SELECT $private_uuid, snowflake_private('$other_uuid'::uuid, 'ord'), snowflake_private(snowflake_public_uuid($id, 'ord'), 'ord')"
	),
	"$id|$id|$id",
	'a key decrypts its UUIDs beside others that these cannot tell from it');

# Numbers of which the key is gone, or is another one
keys_are(12);
refuses($node, "SELECT snowflake_private('$text')", '42704', 'a key that is gone decrypts no text');
refuses($node, "SELECT $private_uuid", '42704', 'and no UUID');
is(sql("SELECT snowflake_private('$newer_uuid', 'ord'), snowflake_private('$newer')"),
	"$id|$id", 'what is of the newer key needs no other one');
write_keys($node, 12, '0d' x 32);
isnt(sql("SELECT snowflake_private('$newer')"),
	$id, 'with another key of that number the text is another ID');

# A session that has keys takes others from its next transaction on, whether or not the
# configuration can be loaded.
$node->append_conf('postgresql.conf', "work_mem = 'none'");
$node->reload;
keys_are(7);
is( sql(    "SELECT $public;\n"
		  . settle("echo '${\ line(8)}' >>'$file'")
		  . "SELECT $public LIKE 'ord\\_8%', snowflake_private('$text') = $id;\n"
		  . settle("echo '${\ line(8)}' >'$file'")
		  . "SELECT accepts_text('$text'), accepts_text($public)"),
	"$text\nt|t\nf|t",
	'a session takes a new file, whatever became of the configuration');
$node->adjust_conf('postgresql.conf', 'work_mem', "'4MB'");
$node->reload;

# A file in the place of another is told from it, with the same size and time as well.
keys_are(7);
is( sql("SELECT $public = '$text';\n"
		  . settle(
			"umask 077; echo '${\ line(7, 9)}' >'$file.new'; touch -r '$file' '$file.new'; mv '$file.new' '$file'"
		  )
		  . "SELECT $public = '$text';\n"
		  . settle(
			"touch -r '$file' '$file.time'; echo '${\ line(7)}' >'$file'; touch -r '$file.time' '$file'"
		  )
		  . "SELECT $public = '$text'"),
	"t\nf\nt",
	'a file that was replaced, and one that was written, with the time of the old one');

# An open cursor belongs to a transaction, and keeps its keys.
keys_are(7);
is( sql("BEGIN;
		DECLARE c CURSOR FOR SELECT $public FROM generate_series(1, 2);
		FETCH c;\n"
		  . settle("echo '${\ line(7, 9)}' >'$file'") . "FETCH c;
		COMMIT;
		SELECT $public = '$text'"),
	"$text\n$text\nf",
	'a cursor goes on with the keys of its transaction');

# The type is that of the extension snowflake, whatever else is called so in the schema
# that the functions are to be in, or a temporary type; and who may create extensions may
# create this one.
sql($_)
  foreach 'CREATE DATABASE shared', 'CREATE ROLE owner', 'CREATE ROLE attacker',
  'GRANT CREATE ON DATABASE shared TO owner';
is( query(
		$node, q{
		CREATE SCHEMA ids;
		CREATE SCHEMA public_ids;
		GRANT ALL ON SCHEMA ids, public_ids TO owner;
		GRANT ALL ON SCHEMA public_ids TO attacker;
		SET SESSION AUTHORIZATION attacker;
		CREATE TYPE public_ids.snowflake AS (t text);
		SET SESSION AUTHORIZATION owner;
		CREATE EXTENSION snowflake SCHEMA ids;
		CREATE TYPE pg_temp.snowflake AS (t text);
		CREATE EXTENSION snowflake_public SCHEMA public_ids;
		SELECT DISTINCT pronamespace::regnamespace, prorettype::regtype FROM pg_proc
		WHERE proname = 'snowflake_private'},
		dbname => 'shared'),
	'public_ids|ids.snowflake',
	"the type is the extension's, in another schema as well");

# Nobody else says where the file is, before the library is there either.
keys_are(7);
my $other = "$file.other";
system("umask 077; echo '${\ line(7, 15)}' >'$other'") == 0 or die;
my (undef, $shown, $said) =
  $node->psql('postgres',
	"SET ROLE attacker; SET snowflake_public.key_file = '$other'; SELECT $public");
is($shown, $text, 'a session does not choose the file');
like($said, qr/parameter "snowflake_public.key_file" cannot be changed now/, 'and is told so');
refuses($node, "SELECT $public; SET snowflake_public.no_such = 1",
	'42602', 'the prefix is reserved');

done_testing();
