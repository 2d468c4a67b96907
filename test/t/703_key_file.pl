# The file of the keys of snowflake_public(): which files are refused, whose it may be, and that
# one which is being written, or is gone, leaves no key in use that is not the file's.

use lib 'test/perl';
use SnowflakeTest;
use Time::HiRes qw(stat);

plan skip_all => 'there is no snowflake_public, for want of OpenSSL' if !has_public();

my $node = new_node('main');
my $file;

# In a session of its own, which reads the file
sub sql
{
	$node->end_readers;
	return query($node, @_);
}

# A line of the file: a number, and a byte that is the key 32 times
sub line { return "$_[0] " . sprintf('%02x', $_[1] // $_[0] & 255) x 32; }

# Have the file have keys with these numbers.
sub keys_are
{
	return $file = write_keys($node, map { split / /, line($_) } @_);
}

# A new session is refused.
sub refuses_file
{
	$node->end_readers;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return refuses($node, @_);
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
my $public = q{snowflake_public(2124072316831797248, 'ord')};
my $text = sql("SELECT $public");

# Files that are refused

my $is_wrong = qr/^line 4 of the file of/;
foreach my $case (
	(   map { [ "# keys\n\n${\ line(1)}\n$_\n", $is_wrong, qr/^A line is a number/ ] } 'x',
		'1', '1 ',
		'ab' x 32,
		(map { "$_ " . 'ab' x 32 } '-1', '1024', '99999999999999999999'),
		'1' . 'ab' x 32,
		map { '2 ' . 'ab' x 31 . $_ } '',
		'g0', 'ab00', 'ab x', "ab\0"),
	[ join("\n", line(1), line(3), line(1, 5), ''), qr/^line 3 of/, qr/has a key already/ ],
	[ join("\n", map { line($_) } 1 .. 17), qr/^line 17 of/, qr/more than 16 keys/ ],
	[ "# none yet\n\n", qr/has no key$/ ],
	[ '', qr/has no key$/ ],
	[ "#\n" x 10000, qr/is longer than/ ])
{
	my ($content, $message, $detail) = @$case;

	write_file($content);
	refuses_file(
		"SELECT $public",
		'F0000',
		'refused: ' . (substr($content, -80) =~ s/[^ -~]/?/gr),
		message => $message,
		detail => $detail);
}
keys_are(1 .. 16);
is(sql("SELECT $public LIKE 'ord\\_g%'"), 't', '16 keys are not too many');
write_file("  # comment\r\n\t7\t" . '07' x 32 . " \r\n\n");
is(sql("SELECT $public"),
	$text, 'spaces, tabs, comments and the lines of other systems do no harm');

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
		refuses_file(
			"SELECT $public",
			'F0000',
			sprintf('%s, mode %o: refused', $whose, $mode),
			message => qr/has group or world access/);
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
write_keys($node, 3, '03' x 32, 'x', '');
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
	refuses_file(
		"SELECT $public",
		'F0000',
		"$case->[0] is refused",
		message => qr/is not a regular file/);
}
unlink $file;
$node->adjust_conf('postgresql.conf', 'snowflake_public.key_file', "''");
$node->reload;
refuses_file("SELECT $public", '55000', 'no setting', hint => qr/^Set "snowflake_public.key_file"/);

done_testing();
