# IDs for the outside: they come back, each mistake has its own error, keys rotate,
# a UUID cannot be guessed, and look-ups use the primary key.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(error_of has_openssl new_node write_keys);
use Test::More;

my $node = new_node('main', conf => 'jit = off');
my $file = write_keys($node, 7, '07' x 32);
$node->append_conf('postgresql.conf', "snowflake.public_key_file = '$file'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
plan skip_all => 'the extension is built without OpenSSL'
  unless has_openssl($node, 'postgres');

sub result { return $node->safe_psql('postgres', $_[0]); }
sub error { return error_of($node, 'postgres', $_[0]); }

sub set_keys
{
	write_keys($node, @_);
	$node->reload;
	return;
}

# Texts and UUIDs

my $id = '2124072316831797248';
my $text = result("SELECT snowflake_public($id, 'ord')");
my $uuid = result("SELECT snowflake_public_uuid($id, 'ord')");

like($text, qr/^ord_7[0-9a-hjkmnp-tv-z]{13}$/, 'a text is its context, the number of the key and 13 digits');
like(
	$uuid,
	qr/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{11}7$/,
	'a UUID is of version 8, and ends with the number of the key');
is(result("SELECT snowflake_private('$text'), snowflake_private('$text', 'ord'), snowflake_private('$uuid'::uuid, 'ord')"),
	"$id|$id|$id", 'both come back');
is(result("SELECT pg_typeof(snowflake_private('$text')), pg_typeof(snowflake_private('$uuid'::uuid, 'ord'))"),
	'snowflake|snowflake', 'as snowflakes');
is( result(q{
		SELECT count(DISTINCT snowflake_public(id, 'ord')), count(DISTINCT snowflake_public_uuid(id, 'ord')),
			bool_and(snowflake_private(snowflake_public(id, 'ord')) = id
				AND snowflake_private(snowflake_public_uuid(id, 'ord'), 'ord') = id)
		FROM (SELECT generate_series(0, 65535)
			UNION ALL SELECT 9223372036854775807 - generate_series(0, 65535)) s (id)}),
	'131072|131072|t',
	'the smallest and the largest IDs come back, and stay distinct');
is( result(q{
		SELECT bool_and(snowflake_private(snowflake_public(id, context)) = id
				AND snowflake_private(snowflake_public_uuid(id, context), context) = id)
		FROM (SELECT (random() * 9e18)::bigint, left('abcdefgh90123456', 1 + n % 16)
			FROM generate_series(1, 100000) n) s (id, context)}),
	't',
	'random IDs come back, in contexts of each length');
is( result(qq{
		SELECT count(DISTINCT right(snowflake_public($id, left('abcdefgh90123456', n)), 13))
		FROM generate_series(1, 16) n}),
	'16',
	'an ID looks different in each context');
is(result(q{SELECT snowflake_public(NULL, 'a') IS NULL AND snowflake_private(NULL) IS NULL
		AND snowflake_public_uuid(1, NULL) IS NULL AND snowflake_private(NULL, 'a') IS NULL}),
	't', 'NULL gives NULL');

# What an ID and its neighbour have in common is what chance makes them have: half
# of 63 bits, give or take.
cmp_ok(
	result(q{
		WITH bits AS (
			SELECT id, (('x' || right(replace(snowflake_public_uuid(id, 'ord')::text, '-', ''), 16))::bit(64)) AS b
			FROM generate_series(1, 2000) id)
		SELECT abs(avg(length(replace((p.b # n.b)::text, '0', ''))) - 29) < 0.5
		FROM bits p JOIN bits n ON n.id = p.id + 1}),
	'eq', 't', 'neighbours have nothing in common');

# Mistakes

foreach my $case (
	[ "snowflake_public(-1, 'ord')", '22003', qr/out of range for type snowflake/ ],
	[ "snowflake_public(1, '')", '22023', qr/invalid context/ ],
	[ "snowflake_public(1, 'Ord')", '22023', qr/invalid context/ ],
	[ "snowflake_public(1, '1rd')", '22023', qr/invalid context/ ],
	[ "snowflake_public(1, 'o_d')", '22023', qr/invalid context/ ],
	[ "snowflake_public(1, 'abcdefghijklmnopq')", '22023', qr/invalid context/ ],
	[ "snowflake_public_uuid(-1, 'ord')", '22003', qr/out of range for type snowflake/ ],
	[ "snowflake_public_uuid(1, 'O')", '22023', qr/invalid context/ ],
	[ "snowflake_private('$text', 'usr')", '22023', qr/is not of the context "usr"/ ],
	[ "snowflake_private('')", '22P02', qr/invalid public snowflake/ ],
	[ "snowflake_private('$id')", '22P02', qr/invalid public snowflake/ ],
	[ "snowflake_private('_70000000000000')", '22P02', qr/invalid public snowflake/ ],
	[ "snowflake_private('ord_')", '22P02', qr/invalid public snowflake/ ],
	[ "snowflake_private(upper('$text'))", '22P02', qr/invalid public snowflake/ ],
	[ "snowflake_private('ord_7000000000000u')", '22P02', qr/invalid public snowflake/ ],
	[ "snowflake_private('$text ')", '22P02', qr/invalid public snowflake/ ],
	[ "snowflake_private('ord_7000000000000')", '22P02', qr/invalid public snowflake/ ],
	[ "snowflake_private('ord_070000000000000')", '22P02', qr/invalid public snowflake/ ],
	[ "snowflake_private('ord_78000000000000')", '22003', qr/out of range/ ],
	[ "snowflake_private('ord_60000000000000')", '42704', qr/there is no key/ ],
	[ "snowflake_private('ord_170000000000000')", '42704', qr/there is no key/ ],
	[ "snowflake_private('$uuid'::uuid, 'usr')", '22023', qr/in the context "usr"/ ],
	[ "snowflake_private('$uuid'::uuid, 'U')", '22023', qr/invalid context/ ],
	[ "snowflake_private(overlay('$uuid' PLACING '4' FROM 15)::uuid, 'ord')", '22023', qr/not that of a snowflake$/ ],
	[ "snowflake_private(overlay('$uuid' PLACING 'c' FROM 20)::uuid, 'ord')", '22023', qr/not that of a snowflake$/ ],
	[ "snowflake_private(overlay('$uuid' PLACING '6' FROM 36)::uuid, 'ord')", '42704', qr/there is no key/ ])
{
	my ($call, $sqlstate, $message) = @$case;
	my $error = error("SELECT $call");

	is($error->{sqlstate}, $sqlstate, "$call: SQLSTATE");
	like($error->{message}, $message, "$call: message");
}
is(error("SELECT snowflake_private('ord_60000000000000')")->{detail}, 'Its key has the number 6.', 'the number that is missing is told');
is(result("SELECT snowflake_private('ord_77zzzzzzzzzzzz') IS NOT NULL"), 't', 'the largest digits are of an ID');

# Each bit of a UUID counts.
$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION accepts(uuid uuid) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM snowflake_private(uuid, 'ord');
		RETURN true;
	EXCEPTION WHEN OTHERS THEN
		RETURN false;
	END $$});
is( result(qq{
		SELECT accepts('$uuid'), count(*),
			count(*) FILTER (WHERE accepts(encode(set_bit(bits, i, 1 - get_bit(bits, i)), 'hex')::uuid))
		FROM (SELECT decode(replace('$uuid', '-', ''), 'hex')) u (bits), generate_series(0, 127) i}),
	't|128|0',
	'a UUID with one bit changed is refused');

# A guess that is right about all that can be seen still has to meet 55 zero bits:
# 2^-55 for a key, of which at most 16 are tried.
is( result(q{
		SELECT count(*) FROM generate_series(1, 1000000)
		WHERE accepts(overlay(overlay(gen_random_uuid()::text PLACING '8' FROM 15) PLACING '7' FROM 36)::uuid)}),
	'0',
	'none of a million guesses is a snowflake');

# Look-ups

$node->safe_psql(
	'postgres', q{
	CREATE TABLE orders (id snowflake PRIMARY KEY);
	INSERT INTO orders SELECT id FROM snowflake_next_batch(1000000) id;
	CREATE TABLE asked AS SELECT snowflake_public(id, 'ord') AS public FROM orders;
	VACUUM ANALYZE orders, asked;
});
foreach my $condition (
	"id = snowflake_private('$text')",
	"id = snowflake_private('$text', 'ord')",
	"id = snowflake_private('$uuid'::uuid, 'ord')",
	"id = ANY (ARRAY[snowflake_private('$text'), snowflake_private('$text')])")
{
	like(result("EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE $condition"),
		qr/^Index Only Scan using orders_pkey on orders\n  Index Cond: /, "$condition: by the index");
}
like(
	result(q{SET plan_cache_mode = force_generic_plan;
		PREPARE p (text) AS SELECT * FROM orders WHERE id = snowflake_private($1);
		EXPLAIN (COSTS OFF) EXECUTE p ('x')}),
	qr/^Index Only Scan using orders_pkey on orders\n  Index Cond: \(id = \(snowflake_private\(\$1\)\)::bigint\)/,
	'a parameter: by the index');
is( result(q{SET enable_hashjoin = off; SET enable_mergejoin = off; SET max_parallel_workers_per_gather = 0;
		SELECT count(*) FROM asked JOIN orders ON id = snowflake_private(public)}),
	'1000000',
	'a million look-ups find their rows');
$node->poll_query_until('postgres',
	q{SELECT idx_scan >= 1000000 FROM pg_stat_user_indexes WHERE indexrelname = 'orders_pkey'})
  or die 'the primary key was not used';
pass('by the primary key');

# A parallel worker reads the keys for itself.
my $parallel = q{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	SET parallel_leader_participation = off;};
my $all = q{SELECT count(*) FROM asked WHERE snowflake_public(snowflake_private(public), 'ord') = public};
like(result("$parallel EXPLAIN (COSTS OFF) $all"), qr/Gather/, 'a query in parallel');
is(result("$parallel $all"), '1000000', 'parallel workers have the keys');

# Rotation

set_keys(7, '07' x 32, 12, '0C' x 32);
my $newer = result("SELECT snowflake_public($id, 'ord')");
my $newer_uuid = result("SELECT snowflake_public_uuid($id, 'ord')");
like($newer, qr/^ord_c/, 'the highest number encrypts');
is(result("SELECT snowflake_private('$text'), snowflake_private('$newer'), snowflake_private('$uuid'::uuid, 'ord'), snowflake_private('$newer_uuid'::uuid, 'ord')"),
	"$id|$id|$id|$id", 'all numbers decrypt');
set_keys(1023, 'ff' x 32, 12, '0C' x 32, 7, '07' x 32, 23, '17' x 32);
my $newest = result("SELECT snowflake_public($id, 'ord')");
like($newest, qr/^ord_zz[0-9a-hjkmnp-tv-z]{13}$/, 'in whatever order they stand, and with two digits');
is(result("SELECT snowflake_private('$text'), snowflake_private('$newer'), snowflake_private('$newest'), snowflake_private('$uuid'::uuid, 'ord')"),
	"$id|$id|$id|$id", 'all numbers decrypt, also where a UUID cannot tell two apart');
set_keys(12, '0c' x 32);
is(error("SELECT snowflake_private('$text')")->{sqlstate}, '42704', 'a key that is gone decrypts no text');
is(error("SELECT snowflake_private('$uuid'::uuid, 'ord')")->{sqlstate}, '42704', 'and no UUID');
is(result("SELECT snowflake_private('$newer')"), $id, 'upper and lower case are one key');
set_keys(12, '0d' x 32);
isnt(result("SELECT snowflake_private('$newer')"), $id, 'with another key of that number the text is another ID');

# A session that has read the keys reads them again after a reload.
set_keys(7, '07' x 32);
my $wait_for_reload = q{
	SELECT pg_conf_load_time() > :'before' AS loaded \gset
	\if :loaded
	\else
	DO $$BEGIN PERFORM pg_sleep(0.1); END$$;
	\endif
};
is( result(qq{
		SELECT snowflake_public($id, 'ord'), pg_conf_load_time() AS before \\gset
		\\! echo '8 ${\ ('08' x 32)}' >>'$file'
		SELECT snowflake_public($id, 'ord');
		DO 'BEGIN PERFORM pg_reload_conf(); END';
		${\ ($wait_for_reload x 100)}
		SELECT snowflake_public($id, 'ord') LIKE 'ord\\_8%', snowflake_private('$text') = $id}),
	"$text\nt|t",
	'a session takes a new key at a reload, and not before');

# So does a cursor that is open, also if the number is the same.
set_keys(7, '07' x 32);
is( result(qq{
		BEGIN;
		DECLARE c CURSOR FOR SELECT snowflake_public($id, 'ord') FROM generate_series(1, 2);
		FETCH c;
		SELECT pg_conf_load_time() AS before \\gset
		\\! echo '7 ${\ ('09' x 32)}' >'$file'
		DO 'BEGIN PERFORM pg_reload_conf(); END';
		${\ ($wait_for_reload x 100)}
		FETCH c \\gset
		SELECT :'snowflake_public' = snowflake_public($id, 'ord'), :'snowflake_public' <> '$text'}),
	"$text\nt|t",
	'a cursor takes it as well, also under the number of the old one');

# A file that is refused leaves no keys of before in use, however often they are wanted.
set_keys(7, '07' x 32);
(undef, my $shown, my $complaints) = $node->psql('postgres', qq{
	SELECT snowflake_public($id, 'ord'), pg_conf_load_time() AS before \\gset
	\\! echo 'x' >>'$file'
	DO 'BEGIN PERFORM pg_reload_conf(); END';
	${\ ($wait_for_reload x 100)}
	SELECT snowflake_public($id, 'ord');
	SELECT snowflake_public($id, 'ord')}, on_error_stop => 0);
is(scalar(() = $complaints =~ /ERROR:  line 2 of the file/g), 2, 'a file that is refused: no keys');
is($shown, '', 'nor any text');

# Files that are refused

sub refused
{
	my ($what, $content, $message, $detail) = @_;

	open my $fh, '>', $file or die "could not open \"$file\": $!";
	print $fh $content;
	close $fh;
	$node->reload;

	my $error = error("SELECT snowflake_public($id, 'ord')");
	is($error->{sqlstate}, 'F0000', "$what: SQLSTATE");
	like($error->{message}, $message, "$what: message");
	like($error->{detail}, $detail, "$what: detail") if defined $detail;
	unlike(join(' ', values %$error), qr/[0-9a-fA-F]{32}/, "$what: the content is not told");
	return;
}

my $good = '1 ' . 'ab' x 32;
my $form = qr/^A line is a number/;
foreach my $line ('x', '1', "1 ", 'ab' x 32, "1" . 'ab' x 32, "-1 " . 'ab' x 32, "1024 " . 'ab' x 32,
	"99999999999999999999 " . 'ab' x 32, "2 " . 'ab' x 31, "2 " . 'ab' x 31 . 'g0', "2 " . 'ab' x 32 . '00',
	"2 " . 'ab' x 32 . ' x', "2 " . 'ab' x 32 . "\0")
{
	refused('the line "' . ($line =~ s/[^ -~]/?/gr) . '"', "# keys\n\n$good\n$line\n", qr/^line 4 of the file of/, $form);
}
refused('a number twice', "$good\n3 ${\ ('cd' x 32)}\n1 ${\ ('ef' x 32)}\n", qr/^line 3 of/, qr/has a key already/);
refused('too many keys', join('', map { "$_ ${\ ('ab' x 32)}\n" } 1 .. 17), qr/^line 17 of/, qr/more than 16 keys/);
refused('no key', "# none yet\n\n", qr/has no key$/);
refused('an empty file', '', qr/has no key$/);
refused('a large file', "#\n" x 10000, qr/is longer than/);

write_keys($node, map { $_ => sprintf('%02x', $_) x 32 } 1 .. 16);
is(result("SELECT snowflake_public($id, 'ord') LIKE 'ord\\_g%'"), 't', '16 keys are not too many');
open my $fh, '>', $file or die;
print $fh "  # comment\r\n\t7\t" . '07' x 32 . " \r\n\n";
close $fh;
is(result("SELECT snowflake_public($id, 'ord')"), $text, 'spaces, tabs, comments and the lines of other systems do no harm');

foreach my $mode (0640, 0604, 0620, 0601)
{
	chmod $mode, $file;
	my $error = error("SELECT snowflake_public($id, 'ord')");
	is($error->{sqlstate}, 'F0000', sprintf('mode %o: SQLSTATE', $mode));
	like($error->{message}, qr/has group or world access/, sprintf('mode %o: message', $mode));
}
chmod 0400, $file;
is(result("SELECT snowflake_public($id, 'ord')"), $text, 'mode 400 will do');

unlink $file;
my $error = error("SELECT snowflake_public($id, 'ord')");
is($error->{sqlstate}, '58P01', 'no file: SQLSTATE');
like($error->{message}, qr/^could not open the file of "snowflake.public_key_file": No such file/, 'no file: message');
mkdir $file;
like(error("SELECT snowflake_public($id, 'ord')")->{message}, qr/is not a regular file/, 'a directory is refused');
rmdir $file;
system('mkfifo', '-m', '600', $file) == 0 or die;
like(error("SELECT snowflake_public($id, 'ord')")->{message}, qr/is not a regular file/, 'a pipe is refused, and not waited for');
unlink $file;

$node->adjust_conf('postgresql.conf', 'snowflake.public_key_file', "''");
$node->reload;
$error = error("SELECT snowflake_public($id, 'ord')");
is($error->{sqlstate}, '55000', 'no setting: SQLSTATE');
like($error->{hint}, qr/^Set "snowflake.public_key_file"/, 'no setting: the hint');

$node->stop;
done_testing();
