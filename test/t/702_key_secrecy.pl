# The keys of snowflake_public() are in their file and nowhere else: not in a log, an
# error, a setting, a plan, a dump, or the data directory.

use lib 'test/perl';
use SnowflakeTest qw(!look);

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
	PREPARE p (text) AS SELECT snowflake_private($1);
	EXECUTE p ('ord_10000000000000');
	EXECUTE p ('ord_90000000000000');
	SELECT * FROM pg_prepared_statements;
	SELECT snowflake_private(uuid, 'usr') FROM t;
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
	"3 $secrets[2]\n3 $secrets[0]\n",
	"$secrets[2] 3\n",
	"3 " . 'z' . $secrets[2])
{
	open my $fh, '>', $file or die "could not open \"$file\": $!";
	print $fh $content;
	close $fh;
	look($use);
}

chmod 0644, $file;
look($use);
unlink $file;
look($use);
look($settings);

write_keys($node, 1, $secrets[0]);
look($use);
my ($dump) = run_command([ 'pg_dumpall', '-d', $node->connstr('postgres') ]);
like($dump, qr/CREATE EXTENSION IF NOT EXISTS snowflake/, 'the dump is one');

# Who is no superuser does not even learn where the file is.
query($node, 'CREATE ROLE ordinary LOGIN; GRANT SELECT ON t TO ordinary');
unlike(query($node, 'SET ROLE ordinary; SELECT * FROM pg_settings'),
	qr/public\.keys/, 'an ordinary user does not see where the keys are');
refuses($node, 'SET ROLE ordinary; SHOW snowflake_public.key_file',
	'42501', 'nor when asking for it');
chmod 0644, $file;
my $refused = error_of($node, q{SET ROLE ordinary; SELECT snowflake_public(1, 'ord')});
is($refused->{sqlstate}, 'F0000', 'a file that others may read');
unlike(join(' ', values %$refused), qr/public\.keys/, 'nor by an error');
$node->stop;
cmp_ok(log_count($node, qr/FUNCEXPR/), '>', 0, 'the log has plans');

my %where = (
	'what clients saw' => $seen,
	'the log' => slurp_file($node->logfile),
	'a dump' => $dump);
my $part = join '|', map { substr $_, 0, 16 } @secrets;
unlike($where{$_}, qr/$part/i, "$_: no key, nor a part of one") foreach sort keys %where;

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
