# The keys of snowflake_public() are in their file and nowhere else: not in a log, an
# error, a setting, a plan, a dump, or the data directory.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(!look);
use Test::More;

# Keys whose hexadecimal digits and bytes are told from everything else
my @secrets = ('0123456789abcdef' x 4, 'c0ffee1234567890' x 4, 'deadbeef90abcdef' x 4);
plan skip_all => 'there is no snowflake_public, for want of OpenSSL' if !has_public();
my $node = new_node(
	'main',
	conf => q{
shared_preload_libraries = 'snowflake, snowflake_public'
log_statement = all
log_duration = on
log_min_messages = debug5
log_error_verbosity = verbose
log_parameter_max_length_on_error = -1
debug_print_parse = on
debug_print_plan = on
log_min_duration_statement = 0
log_executor_stats = on
});
my $file = write_keys($node, 1, $secrets[0], 2, uc $secrets[1]);
$node->append_conf('postgresql.conf', "snowflake_public.key_file = '$file'");
$node->start;
query($node, 'CREATE EXTENSION snowflake_public CASCADE');

my $seen = '';

# Run statements in a session of all messages, and keep what it says.
sub look
{
	my ($sql) = @_;
	my (undef, $stdout, $stderr) = $node->psql(
		'postgres', "SET client_min_messages = debug5;\n$sql",
		on_error_stop => 0,
		extra_params => [ '-v', 'VERBOSITY=verbose', '-v', 'SHOW_CONTEXT=always', '-e' ]);

	$seen .= "$stdout\n$stderr\n";
	return $stdout;
}

my $use = q{
	CREATE TABLE IF NOT EXISTS t AS SELECT snowflake_public(1, 'ord') AS text, snowflake_public_uuid(1, 'ord') AS uuid;
	CREATE OR REPLACE VIEW v AS SELECT snowflake_public(1, 'ord') AS text, snowflake_private(text) AS id FROM t;
	SELECT * FROM v;
	EXPLAIN (ANALYZE, VERBOSE) SELECT snowflake_public(1, 'ord'), snowflake_private(text), snowflake_private(uuid, 'ord') FROM t;
	EXPLAIN (VERBOSE) SELECT * FROM v WHERE text = snowflake_public(1, 'ord') AND id = snowflake_private('ord_1000000000000');
	PREPARE p (text) AS SELECT snowflake_private($1);
	EXECUTE p ('ord_10000000000000');
	EXECUTE p ('ord_90000000000000');
	SELECT * FROM pg_prepared_statements;
	SELECT snowflake_private(uuid, 'usr') FROM t;
	SELECT snowflake_private('00000000-0000-8000-8000-000000000001'::uuid, 'usr');
	SELECT query FROM pg_stat_activity;
};
my $settings = q{
	SHOW snowflake_public.key_file;
	SHOW ALL;
	SELECT * FROM pg_settings;
	SELECT * FROM pg_file_settings;
	SELECT * FROM pg_config;
};

like(look($use), qr/ord_2\w{13}\|1$/m, 'the keys are used');
look($settings);

# Another file for each session, and files with a key in a line that is wrong
foreach my $content (
	"3 $secrets[2]\n",
	"3 $secrets[2]0\n",
	"$secrets[2]\n",
	"3$secrets[2]\n",
	"3 $secrets[2]\n3 $secrets[0]\n",
	"$secrets[2] 3\n",
	"3 " . 'z' . $secrets[2])
{
	open my $fh, '>', $file or die "could not open \"$file\": $!";
	print $fh $content;
	close $fh;
	look($use);
}

# Nor does the process keep them that has read such a file: it does so deep in its stack,
# where nothing comes later.
SKIP:
{
	skip 'there is no /proc/self/mem', 3 if !-e '/proc/self/mem';
	open my $fh, '>', $file or die "could not open \"$file\": $!";
	print $fh map({ "$_ $secrets[2]\n" } 1 .. 16), "wrong\n";
	close $fh;
	my ($ret, $stack, $stderr) = $node->psql(
		'postgres', q{
		CREATE FUNCTION deep(n integer) RETURNS text LANGUAGE plpgsql AS
			$$BEGIN RETURN CASE n WHEN 0 THEN snowflake_public(1, 'ord') ELSE deep(n - 1) END; END$$;
		SELECT deep(50);
		SELECT pg_read_binary_file('/proc/self/mem', start, stop - start)
		FROM regexp_match(pg_read_file('/proc/self/maps'), '(\w+)-(\w+) [^\n]*\[stack\]') m (match),
			LATERAL (SELECT ('x' || lpad(match[1], 16, '0'))::bit(64)::bigint,
				('x' || lpad(match[2], 16, '0'))::bit(64)::bigint) s (start, stop)},
		on_error_stop => 0);

	like($stderr, qr/line 17 of the file .* is invalid/, 'a file is wrong in its last line');
	cmp_ok(length($stack), '>', 100000, 'the stack of the process that has read it');
	is(index($stack, substr($secrets[2], 0, 16)), -1, 'has no key of the lines before');
}
chmod 0644, $file;
look($use);
unlink $file;
look($use);
look($settings);

# What is in a file by mistake is not in the setting of its name.
write_keys($node, 1, $secrets[0]);
look($use);

my ($dump) = run_command([ 'pg_dumpall', '-d', $node->connstr('postgres') ]);
like($dump, qr/CREATE EXTENSION IF NOT EXISTS snowflake/, 'the dump is one');

# Who is no superuser does not even learn where the file is.
query($node, 'CREATE ROLE ordinary LOGIN; GRANT SELECT ON t TO ordinary');
my $ordinary = query(
	$node, q{
	SET ROLE ordinary;
	SELECT * FROM pg_settings;
	SELECT snowflake_public(1, 'ord')});
like($ordinary, qr/ord_1/, 'an ordinary user encrypts');
unlike($ordinary, qr/public\.keys/, 'and does not see where the keys are');
refuses($node, 'SET ROLE ordinary; SHOW snowflake_public.key_file',
	'42501', 'nor when asking for it');
chmod 0644, $file;
my $refused = error_of($node, q{SET ROLE ordinary; SELECT snowflake_public(1, 'ord')});
is($refused->{sqlstate}, 'F0000', 'nor by an error: SQLSTATE');
unlike(join(' ', values %$refused), qr/public\.keys/, 'nor by an error');
$node->stop;
cmp_ok(log_count($node, qr/FUNCEXPR/), '>', 0, 'the log has plans');

my %where = (
	'what clients saw' => $seen,
	'the log' => slurp_file($node->logfile),
	'a dump' => $dump);
foreach my $place (sort keys %where)
{
	foreach my $i (0 .. $#secrets)
	{
		# also a part of it
		my $part = substr($secrets[$i], 0, 16);

		unlike($where{$place}, qr/\Q$part\E/i, "$place: no key " . ($i + 1));
	}
}

# All that the server has written, as digits and as bytes
my @found;
foreach my $path (split /\n/, (run_command([ 'find', $node->data_dir, '-type', 'f' ]))[0])
{
	my $content = slurp_file($path);

	foreach my $secret (@secrets)
	{
		my $bytes = pack('H*', substr($secret, 0, 16));

		push @found, $path
		  if index(lc $content, substr($secret, 0, 16)) >= 0 || index($content, $bytes) >= 0;
	}
}
is("@found", '', 'no key is in the data directory');

done_testing();
