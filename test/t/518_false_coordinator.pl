# What answers is no coordinator, or one whose records were tampered with: each has its own
# error, and takes neither the server nor its memory.

use strict;
use warnings;

use File::Basename qw(dirname);
use FindBin;
use IO::Socket::INET;
use lib "$FindBin::RealBin/../perl";
use MIME::Base64 ();
use SnowflakeCoordinator;
use SnowflakeTest qw(error_of log_count new_node status wait_for_status wait_until);
use PostgreSQL::Test::Utils;
use Test::More;

my $file = PostgreSQL::Test::Utils::tempdir() . '/answer';
my $server = new_node(
	'server',
	node_id => undef,
	conf =>
	  "statement_timeout = '60s'\nsnowflake.lease = '60s'\nsnowflake.node_source = 'postgresql://127.0.0.1:1/nobody'\n"
);

$server->start;
$server->safe_psql('postgres', 'CREATE EXTENSION snowflake');

# Answer with something else from now on.
sub answer
{
	my ($content, $name) = @_;

	$name //= $file;
	unlink $name;
	append_to_file("$name.new", $content);
	rename "$name.new", $name or die "could not rename: $!";
	return;
}

sub set_source
{
	my ($source) = @_;

	$server->append_conf('postgresql.conf', "snowflake.node_source = '$source'");
	$server->reload;
	wait_until('the setting is in force',
		sub { $server->safe_psql('postgres', 'SHOW snowflake.node_source') eq $source });
	return;
}

# What speaks PostgreSQL's protocol, and has another answer than was asked for
my $hosts = SnowflakeCoordinator::new_false_postgresql($file);
my @identity =
  ('off', '7', '000000010000000000000001', '2026-01-01 00:00:00+00', '1766620800', 't');
my $nothing = SnowflakeCoordinator::message('C', "SELECT 0\0");
my $strange = qr/^could not use the coordinator: its answer is not that of a PostgreSQL server$/;
my @strange = (
	[ 'no result' => $nothing ],
	[ 'no row' => SnowflakeCoordinator::result(6) ],
	[ 'too few columns' => SnowflakeCoordinator::result(1, ['off']) ],
	[ 'two rows' => SnowflakeCoordinator::result(6, \@identity, \@identity) ],
	[ 'data of a COPY' => SnowflakeCoordinator::message('H', pack 'Cn', 0, 0) ],
	[ 'a wish for data' => SnowflakeCoordinator::message('G', pack 'Cn', 0, 0) ],
	[ 'both' => SnowflakeCoordinator::message('W', pack 'Cn', 0, 0) ]);

answer($nothing);
set_source("postgresql://somebody\@$hosts/fleet");
foreach my $case (@strange)
{
	my ($what, $content) = @$case;

	answer($content);
	like(error_of($server, 'SELECT * FROM snowflake_fleet()')->{message},
		$strange, "asked who it is: $what");
}

# Errors that differ in numbers are one line of the log.
my $log_size = -s $server->logfile;
foreach my $try (1 .. 3)
{
	answer(
		SnowflakeCoordinator::message(
			'E', "SERROR\0VERROR\0C53300\0Mtoo many sessions after " . 7**$try . " ms\0\0"));
	my $failures = status($server, 'lease_errors');
	$server->reload;
	wait_for_status($server, "lease_errors > $failures + 1");
}
is(log_count($server, qr/WARNING:  could not use the coordinator: too many sessions/, $log_size),
	1, 'an error with other numbers in it is not news for the log');

# An SQLSTATE that is none is that of a failure.
answer(SnowflakeCoordinator::message('E', "SERROR\0VERROR\0C1\0Mno\0\0"));
my $failure = error_of($server, 'SELECT * FROM snowflake_fleet()');
is( "$failure->{sqlstate} $failure->{message}",
	'08006 could not use the coordinator: no',
	'an error whose SQLSTATE is too short');

# A host of this kind keeps nobody from another one of the list.
my $other = "$file.other";
my $other_hosts = SnowflakeCoordinator::new_false_postgresql($other);
my $listed = q{SELECT count(*) FROM snowflake_fleet()};

sub identity_of
{
	my ($name, %changed) = @_;
	my @row = @identity;

	@row[ keys %changed ] = values %changed;
	answer(SnowflakeCoordinator::result(6, \@row), "$name.identity");
	return;
}
answer(SnowflakeCoordinator::result(2, [ 'fleet', 'x' ]), $other);
identity_of($other);
set_source("postgresql://somebody\@$hosts,$other_hosts/fleet");
foreach my $case (@strange, [ 'nothing at all' => '' ])
{
	my ($what, $content) = @$case;

	answer($content);
	is(error_of($server, $listed)->{stdout}, 1, "the next host is used: $what");
}

# Who gives up while the first host is silent is not made to wait for the next one.
my $silent = IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1')
  or die "could not listen: $@";
set_source("postgresql://somebody\@127.0.0.1:${\ $silent->sockport},$other_hosts/fleet");
is(error_of($server, "SET statement_timeout = '1s'; $listed")->{sqlstate},
	'57014', 'a timeout of the statement ends it, and not the first host alone');

# The host that answers may also be the first one.
set_source("postgresql://somebody\@$other_hosts,$hosts/fleet");
is(error_of($server, $listed)->{stdout}, 1, 'or the one before');

# Two hosts may both accept writes if they are one server.  Of a copy that was started beside
# its original only the start is another.
answer(slurp_file($other));
foreach my $case (
	[ 'the same server', {}, '' ],
	[ 'another start', { 3 => '2026-01-01 00:00:01+00' }, '55000 1 1' ],
	[ 'another cluster', { 1 => 8 }, '55000 1 1' ],
	[ 'another timeline', { 2 => '000000020000000000000001' }, '55000 1 2' ],
	[ 'a timeline in hexadecimal', { 2 => '0000000A0000000000000001' }, '55000 1 10' ],
	[ 'one of two digits', { 2 => '000000100000000000000001' }, '55000 1 16' ])
{
	my ($what, $changed, $expected) = @$case;

	identity_of($file, %$changed);
	my $error = error_of($server, $listed);
	is(join(' ', grep { $_ ne '' } $error->{sqlstate}, $error->{detail} =~ /timeline (\d+)/g),
		$expected, "two hosts accept writes: $what");
}

# It says who it is, but not more.
identity_of($file);
answer($nothing);
set_source("postgresql://somebody\@$hosts/fleet");
foreach my $sql ('SELECT snowflake_fleet_create()', 'SELECT * FROM snowflake_fleet()')
{
	like(error_of($server, $sql)->{message}, $strange, "$sql: no result");
}
foreach my $case (
	[ 'one column' => SnowflakeCoordinator::result(1, ['fleet']) ],
	[ 'no end' => '' ],
	[ 'data of a COPY' => SnowflakeCoordinator::message('H', pack 'Cn', 0, 0) ])
{
	my ($what, $content) = @$case;

	answer($content);
	like(error_of($server, 'SELECT * FROM snowflake_fleet()')->{message},
		$strange, "asked for its records: $what");
}

# The record of another node ID, in place of the one that is looked for
answer(SnowflakeCoordinator::result(2, [ 'node/7', 'x' ]));
is( error_of($server, 'SELECT snowflake_fleet_reclaim(5, now())')->{message},
	'node ID 5 is not leased',
	'a record that was not asked for is not taken for one that was');

# It hangs up, since there is no answer.
unlink $file;
my (undef, undef, $stderr) = $server->psql('postgres', $listed);
like(
	$stderr,
	qr/ERROR:  could not use the coordinator: (?!.*\bsocket\b)/s,
	'a connection that breaks is reported once');

# How much memory a statement takes at most, in MB, where it has a session of its own, and
# what it returns
sub memory_of
{
	my ($sql) = @_;
	my $used = q{SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\s+(\d+)')};
	my ($before, $value, $after) = split /\n/, $server->safe_psql('postgres', "$used; $sql; $used");

	return (($after - $before) / 1024, $value);
}

# Numbers of 131,072 digits, and texts that take a hundred times their length when they are
# parsed, in 1,000 records
foreach my $case (
	[ 'very large numbers', ', "granted": 1e131071' ],
	[ 'very small numbers', ', "granted": 1e-16383' ],
	[ 'very many numbers', ', "granted": 1, "more": [' . ('1,' x 400) . '1]' ])
{
	my ($what, $more) = @$case;
	my $value = qq({"holder": "h", "token": "t", "nonce": "n"$more});

	answer(SnowflakeCoordinator::result(2, map { [ "node/$_", $value ] } 0 .. 999));
	my ($mb, $damaged) =
	  memory_of(q{SELECT count(*) FROM snowflake_fleet() WHERE state = 'damaged'});
	is($damaged, 1000, "records with $what are damaged");
	cmp_ok($mb, '<', 15, sprintf 'and took %.0f MB', $mb);
}

# More than 64 MB.  A busy machine may be too slow for that, so it is tried several times.
my $too_large = qr/^could not use the coordinator: its records are larger than those of a fleet$/;

sub is_too_large
{
	my ($name) = @_;
	my $message;

	foreach my $try (1 .. 5)
	{
		$message = error_of($server, 'SELECT * FROM snowflake_fleet()')->{message};
		last if $message =~ $too_large;
	}
	like($message, $too_large, $name);
	return;
}
answer(SnowflakeCoordinator::result(2, map { [ "node/$_", 'x' x 1_000_000 ] } 0 .. 69));
is_too_large('records of more than 64 MB are refused');

# The same over HTTP
$hosts = SnowflakeCoordinator::new_false_http($file);
my $pkglibdir = `$ENV{PG_CONFIG} --pkglibdir`;
chomp $pkglibdir;
SKIP:
{
	skip 'there is no module for etcd', 11 if !-e "$pkglibdir/snowflake_etcd.so";
	answer('{"header": {}, "kvs": [' . join(',', ('{"key": 1e131071}') x 3000) . ']}');
	set_source("etcd://$hosts/fleet");
	my ($mb, $records) = memory_of('SELECT count(*) FROM snowflake_fleet()');
	is($records, 0, 'etcd: very large numbers are no keys');
	cmp_ok($mb, '<', 100, sprintf 'and took %.0f MB', $mb);
	answer('{"header": {}, "kvs": [{"key": -1e131071}]}');
	is(error_of($server, $listed)->{stdout}, 0, 'etcd: nor is one below all integers');

	# a page that is not the last one, for ever
	my $key = MIME::Base64::encode_base64('fleet/node/0', '');
	answer( qq({"header": {}, "more": true, "kvs": [{"key": "$key", "value": ")
		  . ('A' x 10_000_000)
		  . '"}]}');
	is_too_large('etcd: pages of more than 64 MB together are refused');
	answer(qq({"header": {}, "kvs": [{"key": "$key", "value": ") . ('A' x 70_000_000) . '"}]}');
	is_too_large('etcd: and so is one of more than that');

	# The lessee has no database, and so no encoding that has all characters.
	$log_size = -s $server->logfile;
	answer('{"header": {}, "kvs": "\\u4e2d"}');
	$server->reload;
	wait_until(
		'the lessee has read it',
		sub {
			log_count($server, qr/WARNING:  could not use the coordinator: its answer/, $log_size);
		});
	is( log_count($server, qr/encoding/, $log_size),
		0,
		'etcd: an answer with a character that the lessee does not have is no matter of encodings');
	answer(qq({"header": {}, "kvs": [{"key": "$key", "value": "?"}, {"key": "$key"}]}));
	is(error_of($server, $listed)->{stdout},
		2, 'etcd: a value that is not base64 keeps nobody from other records');
	answer(qq({"header": {}, "kvs": [{"key": "$key"}]}));
	set_source("etcd://$hosts//fleet");
	is(error_of($server, $listed)->{stdout}, 1, 'etcd: a path begins behind all of its slashes');

	# nothing, and a promise of more
	answer('{"header": {}, "more": true}');
	is(error_of($server, $listed)->{stdout}, 0, 'etcd: a page without records is the last one');

	# where a URL has no path
	$key = MIME::Base64::encode_base64('snowflake/node/0', '');
	answer(qq({"header": {}, "kvs": [{"key": "$key"}]}));
	set_source("etcd://$hosts");
	is(error_of($server, $listed)->{stdout}, 1, 'etcd: the path is "snowflake" by default');

	# who logs in, and is not
	answer('{"header": {}}');
	set_source("etcd://somebody\@$hosts/fleet");
	is( error_of($server, $listed)->{message},
		'could not use the coordinator: it sent no token',
		'etcd: a login without a token is none');
}
SKIP:
{
	skip 'there is no module for Consul', 2 if !-e "$pkglibdir/snowflake_consul.so";
	answer( '['
		  . join(',', ('{"Key": "fleet/node/0", "Value": "", "ModifyIndex": 1e131071}') x 3000)
		  . ']');
	set_source("consul://$hosts/fleet");
	like(
		error_of($server, 'SELECT * FROM snowflake_fleet()')->{message},
		qr/its answer is not that of a Consul server/,
		'Consul: a record whose index is very large is none');
	answer('[{"Key": "fleet/node/0", "Value": "", "ModifyIndex": 2147483648}]');
	is($server->safe_psql('postgres', 'SELECT count(*) FROM snowflake_fleet()'),
		1, 'Consul: one whose index needs more than 32 bits is one');
}

# The status of a refusal says whether it is one of rights.
foreach my $case (
	[ etcd => { 400 => '28000', 401 => '28000', 403 => '28000', 404 => '08006' } ],
	[
		consul => { 400 => '08006', 401 => '28000', 403 => '28000', 404 => '08006', 503 => '08006' }
	])
{
	my ($scheme, $expected) = @$case;

  SKIP:
	{
		skip "there is no module for $scheme", scalar(keys %$expected)
		  if !-e "$pkglibdir/snowflake_$scheme.so";
		set_source("$scheme://$hosts/fleet");
		foreach my $status (sort keys %$expected)
		{
			answer($status, "$file.status");
			my $error = error_of($server, 'SELECT * FROM snowflake_fleet()');
			is( "$error->{sqlstate} $error->{message}",
				"$expected->{$status} could not use the coordinator: HTTP status $status",
				"$scheme: a refusal with status $status");
		}
	}
}

# What a refusal says may be in any encoding.
SKIP:
{
	skip 'there is no module for etcd', 1 if !-e "$pkglibdir/snowflake_etcd.so";
	answer(400, "$file.status");
	answer("{\"message\": \"n\xe4in\"}");
	set_source("etcd://$hosts/fleet");
	is( error_of($server, 'SELECT * FROM snowflake_fleet()')->{message},
		'could not use the coordinator: n?in',
		'etcd: a refusal has no bytes of another encoding');
}

# A Consul that has no records, and tells that only if nothing stale is asked for.  In a file are
# the status of its answer to a write, a line of the head of all its answers, and that answer.
my $empty = SnowflakeCoordinator::new_false(
	sub {
		my ($client) = @_;
		my $request = '';

		$request .= <$client> // return while $request !~ /\r\n\r\n\z/;
		my ($length) = $request =~ /^content-length: (\d+)/im;
		read $client, my $body, $length // 0;
		my ($status, $head, $content) = split /\|/, slurp_file("$file.write");
		($status, $content) = ($request =~ /\A\S+ \S+[?&]consistent / ? 404 : 400, '')
		  if $request =~ /\AGET /;
		print $client "HTTP/1.1 $status Said\r\n$head\r\nContent-Length: "
		  . length($content)
		  . "\r\nConnection: close\r\n\r\n$content";
	});
SKIP:
{
	skip 'there is no module for Consul', 3 if !-e "$pkglibdir/snowflake_consul.so";
	my $stale = '{"Errors": [{"OpIndex": 0, "What": "failed to set key, index is stale"}]}';
	foreach my $case (
		[
			'writes nothing' => '409|X-Date: none',
			$stale, 'it has no record of the fleet, and accepts none'
		],
		[ 'has a date that is none' => '200|Date: none', '{"Results": []}' ],
		[ 'has one that is very long' => '200|Date: ' . 'x' x 5000, '{"Results": []}' ])
	{
		my ($what, $head, $content, $message) = @$case;

		answer("$head|$content", "$file.write");
		set_source("consul://$empty/fleet");
		is( error_of($server, 'SELECT snowflake_fleet_recover()')->{message},
			$message ? "could not use the coordinator: $message" : '',
			"Consul: a coordinator that $what");
	}
}

# A host that cannot answer, as one of Consul's without a leader, has the next one asked.
my $next_host = SnowflakeCoordinator::new_false_http("$file.next");
SKIP:
{
	skip 'there is no module for Consul', 6 if !-e "$pkglibdir/snowflake_consul.so";
	answer('[{"Key": "fleet/node/0", "Value": "", "ModifyIndex": 1}]', "$file.next");
	foreach my $status (429, 500, 503)
	{
		answer($status, "$file.status");
		foreach my $list ("$hosts,$next_host", "$next_host,$hosts")
		{
			set_source("consul://$list/fleet");
			is(error_of($server, $listed)->{stdout},
				1, "a host answers with status $status: the other one is used");
		}
	}
}
unlink "$file.status";

# URLs that are refused before anybody is asked
foreach my $case (
	[ 'etcd', 'passfile' ],
	[ 'etcd', 'pass=x' ],
	[ 'etcd', 'passfiles=x' ],
	[ 'etcds', 'cacert' ],
	[ 'etcds', 'cacert&passfile=x' ],
	[ 'consul', 'passfile' ],
	[ 'zookeeper', 'passfile' ],
	[ 'zookeeper', 'cacert=x' ])
{
	my ($scheme, $parameters) = @$case;
	my $module = $scheme =~ s/s\z//r;

  SKIP:
	{
		skip "there is no module for $module", 1 if !-e "$pkglibdir/snowflake_$module.so";
		set_source("$scheme://$hosts/fleet?$parameters");
		my $error = error_of($server, 'SELECT * FROM snowflake_fleet()');
		is( "$error->{sqlstate} $error->{detail}",
			'22023 The URL has a parameter that this kind of coordinator does not support.',
			"$scheme: the parameter $parameters is refused");
	}
}
foreach my $scheme ('etcd', 'consul')
{
  SKIP:
	{
		skip "there is no module for $scheme", 3 if !-e "$pkglibdir/snowflake_$scheme.so";
		foreach my $parameter ('cacert', 'cert', 'key')
		{
			set_source("$scheme://$hosts/fleet?$parameter=/etc/ssl/some.pem");
			my $error = error_of($server, 'SELECT * FROM snowflake_fleet()');
			is( "$error->{sqlstate} $error->{detail}",
				qq(22023 The parameter "$parameter" is for TLS, which the scheme "${scheme}s" has, but not "$scheme".),
				"$scheme: $parameter without TLS");
		}
	}
}
SKIP:
{
	skip 'there is no module for Consul', 6 if !-e "$pkglibdir/snowflake_consul.so";
	foreach my $bad ('fl%C3%B6te', 'fleet"', 'fleet a', 'fleet%3Fa', 'a//b', 'a/../b')
	{
		set_source("consul://$hosts/$bad");
		my $error = error_of($server, 'SELECT * FROM snowflake_fleet()');
		like(
			"$error->{sqlstate} $error->{detail}",
			qr/^22023 The path of a fleet in Consul consists of ASCII letters,/,
			"Consul: the path $bad is refused");
	}
}

# An error is one of many: there is no end of tries.  None leaves a connection open.
$server->safe_psql(
	'postgres', q{
	CREATE FUNCTION try_often(tries int, sqlstates text[] DEFAULT '{}') RETURNS text[] LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. tries LOOP
			BEGIN
				PERFORM snowflake_fleet();
				RAISE EXCEPTION 'no error';
			EXCEPTION WHEN OTHERS THEN
				IF NOT sqlstate = ANY (sqlstates) THEN
					sqlstates := sqlstates || sqlstate;
				END IF;
			END;
		END LOOP;
		RETURN sqlstates;
	END $$});
my $descriptors = q{SELECT count(*) FROM pg_ls_dir('/proc/self/fd')};
foreach my $case (
	[ etcd => 'etcd://127.0.0.1:1/fleet' ],
	[ consul => 'consul://127.0.0.1:1/fleet' ],
	[ postgresql => "postgresql://somebody\@$other_hosts/fleet" ])
{
	my ($module, $source) = @$case;

  SKIP:
	{
		skip "there is no module for $module", 2 if !-e "$pkglibdir/snowflake_$module.so";
		answer($nothing, $other);
		set_source($source);
		my (undef, $before, $sqlstates, $after) = split /\n/,
		  $server->safe_psql('postgres',
			"SELECT try_often(1); $descriptors; SELECT try_often(40); $descriptors");
		is($sqlstates, '{08006}', "$module: connections that fail");
		cmp_ok($after - $before, '<', 20, 'and are closed');
	}
}

# A file of passwords that others can read
my $passfile = PostgreSQL::Test::Utils::tempdir() . '/passfile';
append_to_file($passfile, "*:*:*:*:secret\n");
chmod 0644, $passfile;
foreach my $scheme ('postgresql', 'zookeeper')
{
  SKIP:
	{
		skip "there is no module for $scheme", 2 if !-e "$pkglibdir/snowflake_$scheme.so";
		set_source("$scheme://somebody\@127.0.0.1/fleet?passfile=$passfile");
		my ($mb, $sqlstates) = memory_of('SELECT try_often(5000)');
		is($sqlstates, '{F0000}', "$scheme: a file of passwords that others can read is refused");
		cmp_ok($mb, '<', 10, sprintf 'and took %.0f MB', $mb);
	}
}
SKIP:
{
	skip 'there is no module for etcd', 5 if !-e "$pkglibdir/snowflake_etcd.so";
	my $pipe = "$passfile.pipe";
	my $long = "$passfile.long";
	system('mkfifo', '-m', '600', $pipe) == 0 or die 'could not make a pipe';
	append_to_file($long, 'x' x 5000);
	chmod 0600, $long;
	foreach my $case (
		[ $passfile, qr/^file "\Q$passfile\E" has group or world access$/ ],
		[ dirname($passfile), qr/ is not a regular file$/ ],
		[ $pipe, qr/^file "\Q$pipe\E" is not a regular file$/ ],
		[ $long, qr/^the first line of file "\Q$long\E" has more than 4094 bytes$/ ])
	{
		my ($path, $message) = @$case;

		# a code stands for its character
		set_source("etcd://somebody\@$hosts/fleet?passfile=" . $path =~ s/passfile/p%61ssfile/r);
		like(error_of($server, 'SELECT * FROM snowflake_fleet()', timeout => 60)->{message},
			$message, "etcd: a passfile that cannot be one: $path");
	}
	set_source("etcd://$hosts/fleet%00a");
	is( error_of($server, 'SELECT * FROM snowflake_fleet()')->{detail},
		'A percent sign must be followed by two hexadecimal digits.',
		'etcd: no path ends at a byte of 0');
}
unlike(slurp_file($server->logfile), qr/terminated by signal/, 'no process has crashed');

$server->stop;
done_testing();
