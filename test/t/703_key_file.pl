# The file of the keys of snowflake_public(): which files are refused, whose it may be, and that
# one which is being written, or is gone, leaves no key in use that is not the file's.  And the keys
# are nowhere else: not in a log, an error, a setting, a plan, a dump, or the data directory.

use SnowflakeTest;
use Time::HiRes qw(stat);

plan skip_all => 'there is no snowflake_public, for want of OpenSSL' if !has_public();

my $node = new_node(
	'main', conf => q{
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
my $file;

# In a session of its own, which reads the file
sub sql
{
	$node->end_readers;
	return query($node, @_);
}

# A line of the file: a number, and a key, which is told from everything else by all but a byte of
# each eight
my $secret = 'c0ffee12345678';
sub key_of { return join '', (sprintf('%02x', $_[0]) . $secret) x 4; }
sub line { return "$_[0] " . key_of($_[1] // $_[0]); }

# Have the file have keys with these numbers.
sub keys_are
{
	return $file = write_keys($node, map { split / /, line($_) } @_);
}

# Run statements in a new session of all messages; returns what it says, all of which is kept.
my $seen = '';

sub said_to
{
	my ($sql) = @_;
	my (undef, $stdout, $stderr) = $node->psql(
		'postgres', "SET client_min_messages = debug5;\n$sql",
		on_error_stop => 0,
		extra_params => [ '-v', 'VERBOSITY=verbose', '-v', 'SHOW_CONTEXT=always', '-e' ]);

	$seen .= "$stdout\n$stderr\n";
	return ($stdout, $stderr);
}

# All that uses a key
my $public = q{snowflake_public(2124072316831797248, 'ord')};
my $use = qq{
	SELECT $public;
	CREATE TABLE IF NOT EXISTS t AS SELECT $public AS text, snowflake_public_uuid(1, 'ord') AS uuid;
	CREATE OR REPLACE VIEW v AS SELECT $public AS text, snowflake_private(text) AS id FROM t;
	SELECT * FROM v;
	EXPLAIN (ANALYZE, VERBOSE) SELECT $public, snowflake_private(text), snowflake_private(uuid, 'ord') FROM t;
	PREPARE p (text) AS SELECT snowflake_private(\$1);
	EXECUTE p ('ord_70000000000000');
	EXECUTE p ('ord_90000000000000');
	SELECT * FROM pg_prepared_statements;
	SELECT snowflake_private(uuid, 'usr') FROM t;
	SELECT query FROM pg_stat_activity};

# It is refused, in a new session.
sub refuses_file
{
	my ($what, $message, $detail) = @_;
	my ($stdout, $stderr) = said_to($use);

	# plans come before it, as details
	my $error = error_in($stdout, $stderr =~ s/.*?(?=ERROR:)//sr);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(
		$error->{sqlstate} eq 'F0000'
		  && $error->{message} =~ $message
		  && $error->{detail} =~ ($detail // qr//),
		"refused: $what")
	  || diag("@$error{qw(sqlstate message detail)}");
}

sub write_file
{
	my ($content) = @_;

	open my $fh, '>', $file or die "could not open \"$file\": $!";
	print $fh $content;
	close $fh or die "could not write \"$file\": $!";
	return;
}

keys_are(7);
$node->append_conf('postgresql.conf', "snowflake_public.key_file = '$file'");
$node->start;
sql('CREATE EXTENSION snowflake_public CASCADE');
my $text = sql("SELECT $public");
like((said_to($use))[0], qr/^\Q$text\E\|2124072316831797248$/m, 'the keys are used');

# Files that are refused

my $is_wrong = qr/^line 4 of the file of/;
foreach my $case (
	(   map { [ "# keys\n\n${\ line(1)}\n$_\n", $is_wrong, qr/^A line is a number/ ] } 'x',
		'1', '1 ',
		key_of(2), key_of(2) . ' 2',
		(map { "$_ " . key_of(2) } '-1', '1024', '99999999999999999999'),
		'1' . key_of(2),
		map { '2 ' . substr(key_of(2), 0, 62) . $_ } '',
		'g0', 'ab00', 'ab x', "ab\0"),
	[ join("\n", line(1), line(3), line(1, 5), ''), qr/^line 3 of/, qr/has a key already/ ],
	[ join("\n", map { line($_) } 1 .. 17), qr/^line 17 of/, qr/more than 16 keys/ ],
	[ "# none yet\n\n", qr/has no key$/ ],
	[ '', qr/has no key$/ ],
	[ "#\n" x 10000, qr/is longer than/ ])
{
	my ($content, $message, $detail) = @$case;

	write_file($content);
	refuses_file((substr($content, -80) =~ s/[^ -~]/?/gr), $message, $detail);
}
keys_are(1 .. 16);
is(sql("SELECT $public LIKE 'ord\\_g%'"), 't', '16 keys are not too many');
write_file("  # comment\r\n\t7\t" . uc(key_of(7)) . " \r\n\n");
is(sql("SELECT $public"),
	$text, 'spaces, tabs, comments, capitals and the lines of other systems do no harm');

# Whose file it is, and who may read it: a file of root may be one that its group reads, and no more.
my $shim = build_shim('owner_shim', '-ldl');
keys_are(7);
foreach my $case (
	[ 'a file of the server', [ 0400, 0600 ], [ 0640, 0604, 0620, 0601 ] ],
	[ 'a file of root', [ 0600, 0640 ], [ 0660, 0650, 0644 ] ])
{
	my ($whose, $good, $bad) = @$case;

	if ($whose eq 'a file of root')
	{
		local @ENV{qw(LD_PRELOAD SNOWFLAKE_OWNED_FILE SNOWFLAKE_OWNER)} = ($shim, $file, 0);
		$node->restart;
	}
	foreach my $mode (@$good)
	{
		chmod $mode, $file;
		is(sql("SELECT $public"), $text, sprintf('%s, mode %o: will do', $whose, $mode));
	}
	foreach my $mode (@$bad)
	{
		chmod $mode, $file;
		refuses_file(sprintf('%s, mode %o', $whose, $mode), qr/has group or world access/);
	}
}
chmod 0600, $file;

# The clock goes back behind the file's time: nobody waits until it is there again.
my $clock = new_clock('behind');
$node->stop;
start_with_clock($node, $clock);
set_clock($clock, -3_600_000);
is(sql("SET statement_timeout = '${\ patience(20)}s'; SELECT $public"),
	$text, 'a file from the future is read');

# A file that was written just now is not read, for half of it may look like a file of fewer keys:
# a session that knows keys goes on with them, and one that knows none waits.  Time stands, and is
# what the file is that old by.
sub is_old
{
	my ($ms) = @_;
	my $now = sql('SELECT extract(epoch FROM clock_timestamp())');

	let_pass($clock, 1000 * ((stat $file)[10] - $now) + $ms);
	return;
}

sub wait_for_file
{
	my ($pid) = @_;

	wait_for_query($node,
		"SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid");
	return;
}
stop_time($clock);
my $session = $node->background_psql('postgres', on_error_stop => 0);
is($session->query_safe("SELECT $public"), $text, 'a session knows the key');
keys_are(3);
is_old(100);
is($session->query_safe("SELECT $public"), $text, 'and goes on with it while a file is written');
my $other_session = $node->background_psql('postgres');
my $pid = $other_session->query_safe('SELECT pg_backend_pid()');
start_statement($other_session, "SELECT $public");
wait_for_file($pid);
keys_are(3, 7);
is_old(1000);
like($other_session->query_safe('SELECT'), qr/\Q$text\E/, 'another one does not read half a file');
$other_session->quit;

# Nor is a key in a file that was refused in use while the next file is being written.
write_keys($node, 3, key_of(3), 'x', '');
is_old(1000);
$session->{stderr} = '';
$session->query("SELECT $public");
like($session->{stderr}, qr/line 2 of the file/, 'a file is refused');
$session->{stderr} = '';
keys_are(7);
is_old(100);
$pid = $session->query_safe('SELECT pg_backend_pid()');

foreach my $is_canceled (1, 0)
{
	start_statement($session, "SELECT $public");
	wait_for_file($pid);
	next if !$is_canceled;
	sql("SELECT pg_cancel_backend($pid)");
	finish_statement($session);
	like($session->{stderr}, qr/canceling statement/, 'who waits for the file can be canceled');
	$session->{stderr} = '';
}
is_old(1000);
like($session->query_safe('SELECT'), qr/\Q$text\E/, 'no key of a file that was refused is used');
start_time($clock);
$session->quit;
$node->restart;

# No file
$session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe("SELECT $public");
unlink $file;
$session->query("SELECT $public");
like(
	$session->{stderr},
	qr/could not open the file/,
	'a session forgets the keys of a file that is gone');
$session->quit;
foreach my $case ([ 'a directory', "mkdir '$file'" ],
	[ 'a pipe, which is not waited for', "rmdir '$file'; mkfifo -m 600 '$file'" ])
{
	system($case->[1]) == 0 or die;
	refuses_file($case->[0], qr/is not a regular file/);
}
unlink $file;
said_to($use);

# Who is no superuser does not even learn where the file is.
query($node, 'CREATE ROLE ordinary LOGIN');
unlike(query($node, 'SET ROLE ordinary; SELECT * FROM pg_settings'),
	qr/public\.keys/, 'an ordinary user does not see where the keys are');
refuses($node, 'SET ROLE ordinary; SHOW snowflake_public.key_file',
	'42501', 'nor when asking for it');
keys_are(7);
chmod 0644, $file;
my $refused = error_of($node, "SET ROLE ordinary; SELECT $public");
is($refused->{sqlstate}, 'F0000', 'a file that others may read');
unlike(join(' ', values %$refused), qr/public\.keys/, 'nor by an error');

# Where no key may be: in what clients saw, in a dump, and in all that the server has written, as digits
# and as bytes
said_to("SHOW ALL; SELECT * FROM $_") foreach qw(pg_settings pg_file_settings pg_config);
my ($dump) = run_command([ 'pg_dumpall', '-d', $node->connstr('postgres') ]);
like($dump, qr/CREATE EXTENSION IF NOT EXISTS snowflake/, 'the dump is one');
$node->stop;
cmp_ok(log_count($node, qr/FUNCEXPR/), '>', 0, 'the log has plans');
my $bytes = pack 'H*', $secret;
my %where = (
	'what clients saw' => $seen,
	'the log' => slurp_file($node->logfile),
	'a dump' => $dump,
	map { $_ => slurp_file($_) } split /\n/,
	(run_command([ 'find', $node->data_dir, '-type', 'f' ]))[0]);
is(join(' ', grep { $where{$_} =~ /$secret|\Q$bytes\E/i } sort keys %where),
	'', 'no key is anywhere else');

done_testing();
