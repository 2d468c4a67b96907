# IDs for the outside: they come back, each mistake has its own error, keys rotate,
# a UUID cannot be guessed, and look-ups use the primary key.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use POSIX ();
use SnowflakeTest qw(
  error_of has_public let_pass new_clock new_node patience set_clock start_time start_with_clock
  stop_time write_keys
);
use Test::More;
use Time::HiRes qw(sleep stat time);

plan skip_all => 'there is no snowflake_public, for want of OpenSSL' if !has_public();

my $node = new_node('main', conf => 'jit = off');
my $file = write_keys($node, 7, '07' x 32);
$node->append_conf('postgresql.conf', "snowflake_public.key_file = '$file'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake_public CASCADE');

sub result { return $node->safe_psql('postgres', $_[0]); }
sub error { return error_of($node, $_[0]); }

# For psql: wait until the file of keys has stood for long enough to be read.
my $settle =
  qq(\\! perl -MTime::HiRes=sleep,stat,time -e 'sleep 0.02 while time - (stat \$ARGV[0])[10] < 0.6' '$file'\n);

# Texts and UUIDs

my $id = '2124072316831797248';
my $text = result("SELECT snowflake_public($id, 'ord')");
my $uuid = result("SELECT snowflake_public_uuid($id, 'ord')");

like(
	$text,
	qr/^ord_7[0-9a-hjkmnp-tv-z]{13}$/,
	'a text is its context, the number of the key and 13 digits');
is($text, 'ord_70gahsc44195hw', 'which another implementation of FF1 makes as well');
like(
	$uuid,
	qr/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{11}7$/,
	'a UUID is of version 8, and ends with the number of the key');
is( result(
		"SELECT snowflake_private('$text'), snowflake_private('$text', 'ord'), snowflake_private('$uuid'::uuid, 'ord')"
	),
	"$id|$id|$id",
	'both come back');
is( result(
		"SELECT pg_typeof(snowflake_private('$text')), pg_typeof(snowflake_private('$uuid'::uuid, 'ord'))"
	),
	'snowflake|snowflake',
	'as snowflakes');
is( result(
		q{
		SELECT count(DISTINCT snowflake_public(id, 'ord')), count(DISTINCT snowflake_public_uuid(id, 'ord')),
			bool_and(snowflake_private(snowflake_public(id, 'ord')) = id
				AND snowflake_private(snowflake_public_uuid(id, 'ord'), 'ord') = id)
		FROM (SELECT generate_series(0, 65535)
			UNION ALL SELECT 9223372036854775807 - generate_series(0, 65535)) s (id)}),
	'131072|131072|t',
	'the smallest and the largest IDs come back, and stay distinct');
is( result(
		q{
		SELECT bool_and(snowflake_private(snowflake_public(id, context)) = id
				AND snowflake_private(snowflake_public_uuid(id, context), context) = id)
		FROM (SELECT (random() * 9e18)::bigint, left('abcdefgh90123456', 1 + n % 16)
			FROM generate_series(1, 100000) n) s (id, context)}),
	't',
	'random IDs come back, in contexts of each length');
is( result(
		qq{
		SELECT count(DISTINCT right(snowflake_public($id, left('abcdefgh90123456', n)), 13))
		FROM generate_series(1, 16) n}),
	'16',
	'an ID looks different in each context');
is( result(
		q{SELECT snowflake_public(NULL, 'a') IS NULL AND snowflake_private(NULL) IS NULL
		AND snowflake_public_uuid(1, NULL) IS NULL AND snowflake_private(NULL, 'a') IS NULL}),
	't',
	'NULL gives NULL');

# A UUID may be a text as well: that is what a literal is whose type nobody says.
foreach my $form ($uuid, uc $uuid, "{$uuid}", $uuid =~ s/-//gr)
{
	is(result("SELECT snowflake_private('$form', 'ord')"), $id, "a literal: $form");
}
is( result(
		qq{
		SELECT string_agg(snowflake_private(public, 'ord')::text, ' ')
		FROM (VALUES ('$text'), ('$uuid'), ('$text'), ('$uuid')) v (public)}),
	"$id $id $id $id",
	'texts and UUIDs in one column');
my $alone = error("SELECT snowflake_private('$uuid')");
is($alone->{sqlstate}, '22P02', 'a UUID without its context: SQLSTATE');
like($alone->{hint}, qr/with the context/, 'a UUID without its context: the hint');

# What an ID and its neighbour have in common is what chance makes them have: half
# of 63 bits, give or take.
cmp_ok(
	result(
		q{
		WITH bits AS (
			SELECT id, (('x' || right(replace(snowflake_public_uuid(id, 'ord')::text, '-', ''), 16))::bit(64)) AS b
			FROM generate_series(1, 2000) id)
		SELECT abs(avg(length(replace((p.b # n.b)::text, '0', ''))) - 29) < 0.5
		FROM bits p JOIN bits n ON n.id = p.id + 1}),
	'eq',
	't',
	'neighbours have nothing in common');

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
	[ "snowflake_private('$uuid', 'usr')", '22023', qr/in the context "usr"/ ],
	[ "snowflake_private('$uuid', 'U')", '22023', qr/invalid context/ ],
	[ "snowflake_private('${uuid}0', 'ord')", '22P02', qr/invalid public snowflake/ ],
	[ "snowflake_private('-$uuid', 'ord')", '22P02', qr/invalid input syntax for type uuid/ ],
	[ "snowflake_private('$uuid'::uuid, 'usr')", '22023', qr/in the context "usr"/ ],
	[ "snowflake_private('$uuid'::uuid, 'U')", '22023', qr/invalid context/ ],
	[
		"snowflake_private(overlay('$uuid' PLACING '4' FROM 15)::uuid, 'ord')",
		'22023', qr/not that of a snowflake$/
	],
	[
		"snowflake_private(overlay('$uuid' PLACING 'c' FROM 20)::uuid, 'ord')",
		'22023', qr/not that of a snowflake$/
	],
	[
		"snowflake_private(overlay('$uuid' PLACING '6' FROM 36)::uuid, 'ord')",
		'42704', qr/there is no key/
	])
{
	my ($call, $sqlstate, $message) = @$case;
	my $error = error("SELECT $call");

	is($error->{sqlstate}, $sqlstate, "$call: SQLSTATE");
	like($error->{message}, $message, "$call: message");
}
is( error("SELECT snowflake_private('ord_60000000000000')")->{detail},
	'Its key has the number 6.',
	'the number that is missing is told');
is(result("SELECT snowflake_private('ord_77zzzzzzzzzzzz') IS NOT NULL"),
	't', 'the largest digits are of an ID');

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
is( result(
		qq{
		SELECT accepts('$uuid'), count(*),
			count(*) FILTER (WHERE accepts(encode(set_bit(bits, i, 1 - get_bit(bits, i)), 'hex')::uuid))
		FROM (SELECT decode(replace('$uuid', '-', ''), 'hex')) u (bits), generate_series(0, 127) i}),
	't|128|0',
	'a UUID with one bit changed is refused');

$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION accepts_text(public text) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM snowflake_private(public);
		RETURN true;
	EXCEPTION WHEN undefined_object THEN
		RETURN false;
	END $$});

# A guess that is right about all that can be seen still has to meet 55 zero bits:
# 2^-55 for a key, of which at most 16 are tried.
is( result(
		q{
		SELECT count(*) FROM generate_series(1, 1000000)
		WHERE accepts(overlay(overlay(gen_random_uuid()::text PLACING '8' FROM 15) PLACING '7' FROM 36)::uuid)}
	),
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
	"id = snowflake_private('$uuid', 'ord')",
	"id = ANY (ARRAY[snowflake_private('$text'), snowflake_private('$text')])")
{
	like(
		result("EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE $condition"),
		qr/^Index Only Scan using orders_pkey on orders\n  Index Cond: /,
		"$condition: by the index");
}
like(
	result(
		q{SET plan_cache_mode = force_generic_plan;
		PREPARE p (text) AS SELECT * FROM orders WHERE id = snowflake_private($1);
		EXPLAIN (COSTS OFF) EXECUTE p ('x')}),
	qr/^Index Only Scan using orders_pkey on orders\n  Index Cond: \(id = \(snowflake_private\(\$1\)\)::bigint\)/,
	'a parameter: by the index');
is( result(
		q{SET enable_hashjoin = off; SET enable_mergejoin = off; SET max_parallel_workers_per_gather = 0;
		SELECT count(*) FROM asked JOIN orders ON id = snowflake_private(public)}),
	'1000000',
	'a million look-ups find their rows');
$node->poll_query_until('postgres',
	q{SELECT idx_scan >= 1000000 FROM pg_stat_user_indexes WHERE indexrelname = 'orders_pkey'})
  or die 'the primary key was not used';
pass('by the primary key');

# A parallel worker would look at the file for itself, and might find other keys than
# the leader.  So the leader alone encrypts, with the keys of its transaction.
my $parallel =
  q{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	SET parallel_leader_participation = off;};
like(result("$parallel EXPLAIN (COSTS OFF) SELECT count(*) FROM orders WHERE id % 7 = 3"),
	qr/Gather/, 'a query that does not encrypt is run in parallel');
is( result(
		qq{$parallel
		BEGIN;
		SELECT left(snowflake_public($id, 'ord'), 5);
		\\! echo '8 ${\ ('08' x 32)}' >>'$file'
		$settle
		SELECT left(snowflake_public(id, 'ord'), 5), count(*) FROM orders GROUP BY 1;
		SELECT count(*) FROM orders WHERE snowflake_public(id, 'ord') LIKE 'ord\\_8%';
		COMMIT;
		SELECT left(snowflake_public($id, 'ord'), 5)}),
	"ord_7\nord_7|1000000\n0\nord_8",
	'all rows of a statement, and of a transaction, are encrypted with one key');

# Rotation

write_keys($node, 7, '07' x 32, 12, '0C' x 32);
my $newer = result("SELECT snowflake_public($id, 'ord')");
my $newer_uuid = result("SELECT snowflake_public_uuid($id, 'ord')");
like($newer, qr/^ord_c/, 'the highest number encrypts');
like($newer_uuid, qr/c$/, 'UUIDs as well');
is( result(
		"SELECT snowflake_private('$text'), snowflake_private('$newer'), snowflake_private('$uuid'::uuid, 'ord'), snowflake_private('$newer_uuid'::uuid, 'ord')"
	),
	"$id|$id|$id|$id",
	'all numbers decrypt');
write_keys($node, 1023, 'ff' x 32, 12, '0C' x 32, 7, '07' x 32, 23, '17' x 32);
my $newest = result("SELECT snowflake_public($id, 'ord')");
like(
	$newest,
	qr/^ord_zz[0-9a-hjkmnp-tv-z]{13}$/,
	'in whatever order they stand, and with two digits');
is( result(
		"SELECT snowflake_private('$text'), snowflake_private('$newer'), snowflake_private('$newest')"
	),
	"$id|$id|$id",
	'all numbers decrypt');

# A UUID has four bits of the number, and a text one digit as long as that suffices.
my $come_back = q{
	SELECT count(*) FILTER (WHERE accepts_text(public)), count(*) FILTER (WHERE accepts(uuid)),
		count(*) FILTER (WHERE CASE WHEN accepts(uuid) THEN snowflake_private(uuid, 'ord') = id END)
	FROM (SELECT id, snowflake_public(id, 'ord'), snowflake_public_uuid(id, 'ord') FROM generate_series(1, 1000) id)
		s (id, public, uuid)};
is(result($come_back), '1000|1000|1000', 'with the largest number all come back');
write_keys($node, 31, '1f' x 32);
like(
	result("SELECT snowflake_public($id, 'ord')"),
	qr/^ord_z[0-9a-hjkmnp-tv-z]{13}$/,
	'31 is one digit');
is(result($come_back), '1000|1000|1000', 'with which all come back');
write_keys($node, 32, '20' x 32);
like(
	result("SELECT snowflake_public($id, 'ord')"),
	qr/^ord_10[0-9a-hjkmnp-tv-z]{13}$/,
	'32 are two');
is(result($come_back), '1000|1000|1000', 'with which all come back, too');

# Keys that a UUID cannot tell apart
write_keys($node, 23, '17' x 32);
my $other_uuid = result("SELECT snowflake_public_uuid($id, 'ord')");
write_keys($node, 7, '07' x 32, 23, '17' x 32, 39, '27' x 32);
my (undef, $shown) = $node->psql(
	'postgres', qq{
	SELECT snowflake_private('$uuid'::uuid, 'ord');
	SELECT snowflake_private('$other_uuid'::uuid, 'ord');
	SELECT snowflake_private(snowflake_public_uuid($id, 'ord'), 'ord')}, on_error_stop => 0);
is($shown, "$id\n$id\n$id",
	'a key decrypts its UUIDs beside others that these cannot tell from it');

# Numbers of which the key is gone, or is another one
write_keys($node, 12, '0c' x 32);
is(error("SELECT snowflake_private('$text')")->{sqlstate},
	'42704', 'a key that is gone decrypts no text');
is(error("SELECT snowflake_private('$uuid'::uuid, 'ord')")->{sqlstate}, '42704', 'and no UUID');
is(result("SELECT snowflake_private('$newer_uuid', 'ord')"),
	$id, 'a UUID of the newer key needs no other one');
is(result("SELECT snowflake_private('$newer')"), $id, 'upper and lower case are one key');
write_keys($node, 12, '0d' x 32);
isnt(result("SELECT snowflake_private('$newer')"),
	$id, 'with another key of that number the text is another ID');

# A session that has keys takes others from its next transaction on, whether or not the
# configuration can be loaded.
$node->append_conf('postgresql.conf', "work_mem = 'none'");
$node->reload;
write_keys($node, 7, '07' x 32);
is( result(
		qq{
		SELECT snowflake_public($id, 'ord');
		\\! echo '8 ${\ ('08' x 32)}' >>'$file'
		$settle
		SELECT snowflake_public($id, 'ord') LIKE 'ord\\_8%', snowflake_private('$text') = $id;
		\\! echo '8 ${\ ('08' x 32)}' >'$file'
		$settle
		SELECT accepts_text('$text'), accepts_text(snowflake_public($id, 'ord'))}),
	"$text\nt|t\nf|t",
	'a session takes a new file, whatever became of the configuration');
$node->adjust_conf('postgresql.conf', 'work_mem', "'4MB'");
$node->reload;

# A file in the place of another is told from it, with the same size and time as well.
write_keys($node, 7, '07' x 32);
is( result(
		qq{
		SELECT snowflake_public($id, 'ord') = '$text';
		\\! umask 077; echo '7 ${\ ('09' x 32)}' >'$file.new'; touch -r '$file' '$file.new'; mv '$file.new' '$file'
		$settle
		SELECT snowflake_public($id, 'ord') = '$text';
		\\! touch -r '$file' '$file.time'; echo '7 ${\ ('07' x 32)}' >'$file'; touch -r '$file.time' '$file'
		$settle
		SELECT snowflake_public($id, 'ord') = '$text'}),
	"t\nf\nt",
	'a file that was replaced, and one that was written, with the time of the old one');

# An open cursor belongs to a transaction, and keeps its keys.
write_keys($node, 7, '07' x 32);
is( result(
		qq{
		BEGIN;
		DECLARE c CURSOR FOR SELECT snowflake_public($id, 'ord') FROM generate_series(1, 2);
		FETCH c;
		\\! echo '7 ${\ ('09' x 32)}' >'$file'
		$settle
		FETCH c;
		COMMIT;
		SELECT snowflake_public($id, 'ord') = '$text'}),
	"$text\n$text\nf",
	'a cursor goes on with the keys of its transaction');

# One place in a query that is older than the keys, under the number of the old one.  The
# check of a variable's type lasts as long as the variable.
write_keys($node, 7, '07' x 32);
$node->safe_psql(
	'postgres', q{
	CREATE TYPE pair AS (id bigint, public text);
	CREATE DOMAIN equal_pair AS pair
		CHECK ((VALUE).public IS NULL OR (VALUE).public = snowflake_public((VALUE).id, 'ord'));
	CREATE PROCEDURE twice(id bigint, expected text, program text) LANGUAGE plpgsql AS $$
	DECLARE
		checked equal_pair;
	BEGIN
		checked.id := id;
		FOR i IN 1 .. 2 LOOP
			checked.public := snowflake_public(id, 'ord');
			RAISE WARNING 'same: %', checked.public = expected;
			IF i = 1 THEN
				EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', program);
				COMMIT;
			END IF;
		END LOOP;
	END $$});
(undef, $shown, my $complaints) = $node->psql(
	'postgres', qq{
	CALL twice($id, '$text', \$\$cat >/dev/null; echo '7 ${\ ('09' x 32)}' >'$file'; ${\ ($settle =~ s/^\\! |\n//gr)}\$\$)}
);
is(join(' ', $complaints =~ /same: (\w)/g), 't f', 'a procedure takes them after it has committed');

# A file that is refused leaves no keys of before in use, however often they are wanted.
write_keys($node, 7, '07' x 32);
(undef, $shown, $complaints) = $node->psql(
	'postgres', qq{
	SELECT snowflake_public($id, 'ord') AS before \\gset
	\\! echo 'x' >>'$file'
	$settle
	SELECT snowflake_public($id, 'ord');
	BEGIN;
	SAVEPOINT s;
	SELECT snowflake_public($id, 'ord');
	ROLLBACK TO s;
	SELECT snowflake_public($id, 'ord')}, on_error_stop => 0);
is(scalar(() = $complaints =~ /ERROR:  line 2 of the file/g), 3, 'a file that is refused: no keys');
is($shown, '', 'nor any text');

# A file that is being written is not read: half of it may look like a file of fewer keys.
# While somebody goes on changing it, a session that knows keys goes on with them, and one
# that knows none waits.  Where the writer was held up for long, the attempt does not count.
my $session = $node->background_psql('postgres');
my $found = 'none of 20 attempts was in time';
foreach my $attempt (1 .. 20)
{
	write_keys($node, 7, '07' x 32);
	$session->query_safe("SELECT snowflake_public($id, 'ord')");
	write_keys($node, 3, '03' x 32);
	my $last = time;
	my $parent = $$;
	pipe(my $gaps, my $to_parent) or die "could not create a pipe: $!";
	my $writer = fork // die "could not fork: $!";
	if ($writer == 0)
	{
		my ($longest, $ends) = (0, 0);

		local $SIG{TERM} = sub { $ends = 1 };
		until ($ends || getppid != $parent)
		{
			chmod 0600, $file;
			$longest = time - $last if time - $last > $longest;
			$last = time;
			sleep 0.01;
		}
		syswrite $to_parent, $longest;
		POSIX::_exit(0);
	}
	close $to_parent;
	my $known = $session->query_safe("SELECT snowflake_public($id, 'ord')");
	my $new = $node->background_psql('postgres');
	my $pid = $new->query_safe('SELECT pg_backend_pid()');
	$new->query_until(qr/asked/, "\\echo asked\nSELECT snowflake_public($id, 'ord');\n");
	$node->poll_query_until(
		'postgres',
		qq{SELECT wait_event_type = 'Extension' OR state = 'idle' FROM pg_stat_activity
			WHERE pid = $pid AND query LIKE 'SELECT snowflake_public%'}
	) or die 'the session neither waits for the file nor has read it';
	kill 'TERM', $writer;
	waitpid $writer, 0;
	my $changed = (stat $file)[10];
	write_keys($node, 3, '03' x 32, 7, '07' x 32);
	my $gap = time - $changed;
	my $longest = <$gaps>;
	my $waited = $new->query_safe('SELECT');
	$new->quit;
	next if $gap > 0.4 || $longest > 0.4;
	$found = "$known $waited";
	last;
}
$session->quit;
is($found, "$text $text", 'half a file is not read');

# The type is that of the extension snowflake, whatever else is called so in the schema
# that the functions are to be in, or a temporary type; and who may create extensions may
# create this one.
$node->safe_psql(
	'postgres', q{
	CREATE DATABASE shared;
	CREATE ROLE owner;
	CREATE ROLE attacker;
	GRANT CREATE ON DATABASE shared TO owner});
$node->safe_psql(
	'shared', q{
	CREATE SCHEMA ids;
	CREATE SCHEMA public_ids;
	GRANT ALL ON SCHEMA ids, public_ids TO owner;
	GRANT ALL ON SCHEMA public_ids TO attacker;
	SET SESSION AUTHORIZATION attacker;
	CREATE TYPE public_ids.snowflake AS (t text);
	SET SESSION AUTHORIZATION owner;
	CREATE EXTENSION snowflake SCHEMA ids;
	CREATE TYPE pg_temp.snowflake AS (t text);
	CREATE EXTENSION snowflake_public SCHEMA public_ids});
is( $node->safe_psql(
		'shared', q{
		SELECT DISTINCT pronamespace::regnamespace, prorettype::regtype FROM pg_proc
		WHERE proname = 'snowflake_private'}),
	'public_ids|ids.snowflake',
	"the type is the extension's, in another schema as well");

# Nobody else says where the file is, before the library is there either.
open my $other, '>', "$file.other" or die;
print $other '7 ', '0f' x 32, "\n";
close $other;
chmod 0600, "$file.other";
(my $ignored, $shown, $complaints) = $node->psql(
	'postgres', qq{
	SET ROLE attacker;
	SET snowflake_public.key_file = '$file.other';
	SELECT snowflake_public($id, 'ord')});
is($shown, $text, 'a session does not choose the file');
like($complaints, qr/parameter "snowflake_public.key_file" cannot be changed now/,
	'and is told so');
is(error("SELECT snowflake_public($id, 'ord'); SET snowflake_public.no_such = 1")->{sqlstate},
	'42602', 'the prefix is reserved');

# Files that are refused

sub refused
{
	my ($what, $content, $message, $detail) = @_;

	open my $fh, '>', $file or die "could not open \"$file\": $!";
	print $fh $content;
	close $fh;

	my $error = error("SELECT snowflake_public($id, 'ord')");
	is($error->{sqlstate}, 'F0000', "$what: SQLSTATE");
	like($error->{message}, $message, "$what: message");
	like($error->{detail}, $detail, "$what: detail") if defined $detail;
	unlike(join(' ', values %$error), qr/[0-9a-fA-F]{32}/, "$what: the content is not told");
	return;
}

my $good = '1 ' . 'ab' x 32;
my $form = qr/^A line is a number/;
foreach my $line (
	'x',
	'1',
	"1 ",
	'ab' x 32,
	"1" . 'ab' x 32,
	"-1 " . 'ab' x 32,
	"1024 " . 'ab' x 32,
	"99999999999999999999 " . 'ab' x 32,
	"2 " . 'ab' x 31,
	"2 " . 'ab' x 31 . 'g0',
	"2 " . 'ab' x 32 . '00',
	"2 " . 'ab' x 32 . ' x',
	"2 " . 'ab' x 32 . "\0")
{
	refused(
		'the line "' . ($line =~ s/[^ -~]/?/gr) . '"',
		"# keys\n\n$good\n$line\n",
		qr/^line 4 of the file of/, $form);
}
refused(
	'a number twice',
	"$good\n3 ${\ ('cd' x 32)}\n1 ${\ ('ef' x 32)}\n",
	qr/^line 3 of/, qr/has a key already/);
refused(
	'too many keys',
	join('', map { "$_ ${\ ('ab' x 32)}\n" } 1 .. 17),
	qr/^line 17 of/,
	qr/more than 16 keys/);
refused('no key', "# none yet\n\n", qr/has no key$/);
refused('an empty file', '', qr/has no key$/);
refused('a large file', "#\n" x 10000, qr/is longer than/);

write_keys($node, map { $_ => sprintf('%02x', $_) x 32 } 1 .. 16);
is(result("SELECT snowflake_public($id, 'ord') LIKE 'ord\\_g%'"), 't', '16 keys are not too many');
open my $fh, '>', $file or die;
print $fh "  # comment\r\n\t7\t" . '07' x 32 . " \r\n\n";
close $fh;
is(result("SELECT snowflake_public($id, 'ord')"),
	$text, 'spaces, tabs, comments and the lines of other systems do no harm');

write_keys($node, 7 => 'ab' x 32);
my $lower = result("SELECT snowflake_public($id, 'ord')");
write_keys($node, 7 => 'AB' x 32);
is(result("SELECT snowflake_public($id, 'ord')"), $lower, 'digits may be in capitals');
write_keys($node, 7 => '07' x 32);

foreach my $mode (0640, 0604, 0620, 0601)
{
	chmod $mode, $file;
	my $error = error("SELECT snowflake_public($id, 'ord')");
	is($error->{sqlstate}, 'F0000', sprintf('mode %o: SQLSTATE', $mode));
	like($error->{message}, qr/has group or world access/, sprintf('mode %o: message', $mode));
}
chmod 0400, $file;
is(result("SELECT snowflake_public($id, 'ord')"), $text, 'mode 400 will do');

# A file of root may be one that its group reads, and no more.
my $shim = PostgreSQL::Test::Utils::tempdir() . '/owner_shim.so';
system_or_bail($ENV{CC} || 'cc',
	'-shared', '-fPIC', '-O2', '-Wall', '-o', $shim, "$FindBin::RealBin/../shim/owner_shim.c",
	'-ldl');
$node->stop;
{
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{SNOWFLAKE_OWNED_FILE} = $file;
	local $ENV{SNOWFLAKE_OWNER} = 0;
	$node->start;
}
foreach my $mode (0600, 0640)
{
	chmod $mode, $file;
	is(result("SELECT snowflake_public($id, 'ord')"),
		$text, sprintf('a file of root, mode %o: will do', $mode));
}
foreach my $mode (0660, 0650, 0644)
{
	chmod $mode, $file;
	like(
		error("SELECT snowflake_public($id, 'ord')")->{message},
		qr/has group or world access/,
		sprintf('a file of root, mode %o: refused', $mode));
}
chmod 0600, $file;

# The clock goes back behind the file's time: nobody waits until it is there again.
my $clock = new_clock('behind');
$node->stop;
start_with_clock($node, $clock);
set_clock($clock, -3_600_000);
is(result("SET statement_timeout = '${\ patience(20)}s'; SELECT snowflake_public($id, 'ord')"),
	$text, 'a file from the future is read');

# A key in a file that was refused is in no use while the next file is being written: the
# session waits for that one.  Time stands, and is what the file is that old by.
sub is_old
{
	my ($ms) = @_;
	my $now = result('SELECT extract(epoch FROM clock_timestamp())');

	let_pass($clock, 1000 * ((stat $file)[10] - $now) + $ms);
	return;
}
stop_time($clock);
$session = $node->background_psql('postgres');
my ($pid, $known) =
  split /\|/, $session->query_safe("SELECT pg_backend_pid(), snowflake_public($id, 'ord')");
is($known, $text, 'a session knows the key');
write_keys($node, 3, '03' x 32, 'x', '');
is_old(1000);
is($session->query_safe("SELECT accepts('$uuid')"), 'f', 'the file is refused');
write_keys($node, 7, '07' x 32);
is_old(100);
$session->query_until(qr/asked/, "\\echo asked\nSELECT snowflake_public($id, 'ord') AS last;\n");
$node->poll_query_until(
	'postgres', qq{
	SELECT wait_event_type = 'Extension' FROM pg_stat_activity
	 WHERE pid = $pid AND query LIKE '%AS last%'}) or die 'the session does not wait';

# Another one that waits is cancelled meanwhile.
my $cancelled = $node->background_psql('postgres', on_error_stop => 0);
$pid = $cancelled->query_safe('SELECT pg_backend_pid()');
$cancelled->query_until(qr/asked/,
	"\\echo asked\nSELECT snowflake_public($id, 'ord') AS cancelled;\n");
$node->poll_query_until(
	'postgres', qq{
	SELECT wait_event_type = 'Extension' FROM pg_stat_activity
	 WHERE pid = $pid AND query LIKE '%AS cancelled%'}) or die 'the other session does not wait';
result("SELECT pg_cancel_backend($pid)");
ok( $node->poll_query_until(
		'postgres', "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $pid"),
	'who waits for the file can be cancelled');
is_old(1000);
is($session->query_safe('SELECT'), $text, 'no key of a file that was refused is used');
$_->quit foreach $session, $cancelled;
start_time($clock);
$node->stop;
$node->start;

$session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe("SELECT snowflake_public($id, 'ord')");
unlink $file;
$session->query("SELECT snowflake_public($id, 'ord')");
like(
	$session->{stderr},
	qr/could not open the file/,
	'a session forgets the keys of a file that is gone');
$session->quit;
my $error = error("SELECT snowflake_public($id, 'ord')");
is($error->{sqlstate}, '58P01', 'no file: SQLSTATE');
like(
	$error->{message},
	qr/^could not open the file of "snowflake_public.key_file": No such file/,
	'no file: message');
mkdir $file;
like(
	error("SELECT snowflake_public($id, 'ord')")->{message},
	qr/is not a regular file/,
	'a directory is refused');
rmdir $file;
system('mkfifo', '-m', '600', $file) == 0 or die;
like(
	error("SELECT snowflake_public($id, 'ord')")->{message},
	qr/is not a regular file/,
	'a pipe is refused, and not waited for');
unlink $file;

$node->adjust_conf('postgresql.conf', 'snowflake_public.key_file', "''");
$node->reload;
$error = error("SELECT snowflake_public($id, 'ord')");
is($error->{sqlstate}, '55000', 'no setting: SQLSTATE');
like($error->{hint}, qr/^Set "snowflake_public.key_file"/, 'no setting: the hint');

$node->stop;
done_testing();
