# The other side is not a coordinator, or its records were tampered with: each fault has its
# own error, and neither stops the server nor uses up its memory.  Unusable URLs and password
# files are refused before any host is asked.
# long

use MIME::Base64 qw(encode_base64);
use SnowflakeCoordinator;
use SnowflakeFleet;
use SnowflakeTest;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $file = "$dir/answer";
my $listed = q{SELECT count(*) FROM snowflake_fleet()};
my $server = new_member(
	'server', 'postgresql://127.0.0.1:1/nobody',
	lease => '60s',
	conf => "statement_timeout = '60s'\n");
my %has = map { $_ => has_module($_) } qw(postgresql etcd zookeeper consul);

$server->start;
query($server, 'CREATE EXTENSION snowflake');

# Answer with something else from now on.
sub answer
{
	my ($content, $name) = @_;

	$name //= $file;
	unlink "$name.new";
	append_to_file("$name.new", $content);
	rename "$name.new", $name or die "could not rename: $!";
	return;
}

# The SQLSTATE, the message and the detail of listing the records of this source, if there is one
sub refusal_of
{
	my ($source) = @_;

	use_coordinator($server, $source) if $source;
	return join ' ', grep { $_ ne '' } @{ listing_error($server) }{qw(sqlstate message detail)};
}

# How many records it has
sub count_of
{
	my ($source) = @_;

	use_coordinator($server, $source);
	return listing_error($server)->{stdout};
}

# More than 64 MB.  A busy machine may be too slow for that, so it is tried several times.
sub is_too_large
{
	my ($name) = @_;
	my $refusal;

	foreach my $try (1 .. 5)
	{
		$refusal = refusal_of();
		last if $refusal =~ /its records are larger than those of a fleet/;
	}
	return like($refusal, qr/its records are larger than those of a fleet/, $name);
}

# What speaks PostgreSQL's protocol, and has another answer than was asked for.  It keeps nobody from
# another host of the list, before it or behind.
my $hosts = new_false_postgresql($file);
my $other = "$file.other";
my $other_hosts = new_false_postgresql($other);
my @identity =
  ('off', '7', '000000010000000000000001', '2026-01-01 00:00:00+00', '1766620800', 't');
my $nothing = message('C', "SELECT 0\0");
my $copy = message('H', pack 'Cn', 0, 0);
my $not_postgresql =
  qr/^08006 could not use the coordinator: its answer is not that of a PostgreSQL server$/;

sub identity_of
{
	my ($name, %changed) = @_;
	my @row = @identity;

	@row[ keys %changed ] = values %changed;
	return answer(result(6, \@row), "$name.identity");
}
answer(result(2, [ 'fleet', 'x' ]), $other);
identity_of($other);
my %strange = (
	'no result' => $nothing,
	'no row' => result(6),
	'too few columns' => result(1, ['off']),
	'two rows' => result(6, \@identity, \@identity),
	'data of a COPY' => $copy,
	'a wish for data' => message('G', pack 'Cn', 0, 0),
	'both' => message('W', pack 'Cn', 0, 0),
	'nothing at all' => '');
foreach my $what (sort keys %strange)
{
	answer($strange{$what});
	like(refusal_of("postgresql://somebody\@$hosts/fleet"),
		$not_postgresql, "asked who it is: $what")
	  if $strange{$what};
	is(count_of("postgresql://somebody\@$hosts,$other_hosts/fleet"), 1, "the next host: $what");
}
is(count_of("postgresql://somebody\@$other_hosts,$hosts/fleet"), 1, 'or the one before');

# A statement that gives up while the first host is silent is not made to wait for the next one.
use_coordinator($server, "postgresql://somebody\@${\ new_silent()},$other_hosts/fleet");
refuses($server, "SET statement_timeout = '1s'; $listed",
	'57014', 'a timeout of the statement ends it, and not the first host alone');

# Two hosts may both accept writes if they are one server.  Of a copy that was started beside
# its original only the start is another.
answer(slurp_file($other));
use_coordinator($server, "postgresql://somebody\@$other_hosts,$hosts/fleet");
foreach my $case (
	[ 'the same server', {}, '' ],
	[ 'another start', { 3 => '2026-01-01 00:00:01+00' }, '55000 1 1' ],
	[ 'another cluster', { 1 => 8 }, '55000 1 1' ],
	[ 'another timeline', { 2 => '0000001A0000000000000001' }, '55000 1 26' ])
{
	my ($what, $changed, $expected) = @$case;

	identity_of($file, %$changed);
	my $error = listing_error($server);
	is(join(' ', grep { $_ ne '' } $error->{sqlstate}, $error->{detail} =~ /timeline (\d+)/g),
		$expected, "two hosts accept writes: $what");
}

# It says who it is, but not more.
identity_of($file);
use_coordinator($server, "postgresql://somebody\@$hosts/fleet");
foreach my $content ($nothing, result(1, ['fleet']), '', $copy)
{
	answer($content);
	like(refusal_of(), $not_postgresql, 'asked for its records');
}

# Numbers of 131,072 digits, and texts that take a hundred times their length when they are
# parsed, in 1,000 records; and more than 64 MB
my $used = q{SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\s+(\d+)')};
foreach my $more (', "granted": 1e131071', ', "granted": 1, "more": [' . ('1,' x 400) . '1]')
{
	my $value = qq({"holder": "h", "token": "t", "nonce": "n"$more});

	answer(result(2, map { [ "node/$_", $value ] } 0 .. 999));
	my ($before, $damaged, $after) =
	  split /\n/, query($server, "$used; $listed WHERE state = 'damaged'; $used");
	is($damaged, 1000, 'records with such numbers are damaged');
	cmp_ok($after - $before, '<', 15 * 1024, 'and take no memory');
}
answer(result(2, map { [ "node/$_", 'x' x 1_000_000 ] } 0 .. 69));
is_too_large('records of more than 64 MB are refused');

# The same over HTTP
$hosts = new_false_http($file);
my $key = encode_base64('fleet/node/0', '');
SKIP:
{
	skip 'there is no module for etcd', 11 if !$has{etcd};
	my $etcd = "etcd://$hosts/fleet";

	foreach my $content ('[]', '{}', 'hello', '{"header": "\u0000"}')
	{
		answer($content);
		like(
			refusal_of($etcd),
			qr/its answer (?:is not that of an etcd server|cannot be parsed)/,
			"etcd: an answer that is none: $content");
	}
	answer(
		qq({"header": {}, "kvs": [{"key": 1e131071}, {"key": "$key", "value": "?"}, {"key": "$key"}]})
	);
	is(count_of($etcd), 2, 'etcd: what is no key or no value keeps nobody from other records');

	# a page that is not the last one, for ever
	answer( qq({"header": {}, "more": true, "kvs": [{"key": "$key", "value": ")
		  . ('A' x 10_000_000)
		  . '"}]}');
	is_too_large('etcd: pages of more than 64 MB together are refused');
	answer('[' . ('{},' x 5_000_000) . '{}]');
	like(
		refusal_of(),
		qr/its answer has more elements than a fleet can have/,
		'etcd: an answer of very many elements is refused');
	answer(qq({"header": {}, "kvs": [{"key": "${\ encode_base64('snowflake/node/0', '')}"}]}));
	is(count_of("etcd://$hosts"), 1, 'etcd: the path is "snowflake" by default');
	answer('{"header": {}, "more": true}');
	is(count_of($etcd), 0, 'etcd: a page without records is the last one');
	answer('{"header": {}}');
	like(
		refusal_of("etcd://somebody\@$hosts/fleet"),
		qr/ it sent no token$/,
		'etcd: a login without a token is none');
	like(refusal_of('etcd://[::1]/fleet'),
		qr/\b2379\b/, 'etcd: an address of IPv6 has the port that others have');
}

# A Consul that has no records, and tells that only if nothing stale is asked for.
my $empty = new_false(
	sub {
		my ($client) = @_;
		my ($head) = read_request($client) or return;

		return answer_request($client, $head =~ /\A\S+ \S+[?&]consistent / ? 404 : 400, '')
		  if $head =~ /\AGET /;
		answer_request($client, 409,
			'{"Errors": [{"OpIndex": 0, "What": "failed to set key, index is stale"}]}');
	});
SKIP:
{
	skip 'there is no module for Consul', 10 if !$has{consul};

	use_coordinator($server, "consul://$hosts/fleet");
	foreach my $text ('[]', 'null', '[{}]', 'hello')
	{
		answer($text);
		like(
			error_of($server, 'SELECT snowflake_fleet_create()')->{message},
			qr/its answer is not that of a Consul server/,
			"nor is this a store without a fleet: $text");
	}
	answer('[{"Key": "fleet/node/0", "Value": "", "ModifyIndex": 2147483648}]');
	is(count_of("consul://$hosts/fleet"), 1, 'Consul: an index may need more than 32 bits');
	use_coordinator($server, "consul://$empty/fleet");
	is( error_of($server, 'SELECT snowflake_fleet_recover()')->{message},
		'could not use the coordinator: it has no record of the fleet, and accepts none',
		'Consul: a coordinator that writes nothing');

	# A host that cannot answer, as one of Consul's without a leader, has the next one asked.
	my $next = new_false_http("$file.next");
	answer(slurp_file($file), "$file.next");
	foreach my $status (429, 500, 503)
	{
		answer($status, "$file.status");
		is(count_of("consul://$hosts,$next/fleet"), 1, "status $status: the next host is used");
	}
	my $without_tls = new_false(sub { print { $_[0] } "HTTP/1.1 400 Bad Request\r\n\r\n" });
	like(refusal_of("consuls://$without_tls/fleet"), qr/^08006 .*(?:SSL|TLS)/i, 'Consul with TLS');
}

# The status of a refusal says whether it is one of rights, and what it says may be in any encoding.
answer('[]');
foreach my $case (
	table(
		q{etcd|400|28000
etcd|401|28000
etcd|403|28000
etcd|404|08006
consul|400|08006
consul|401|28000
consul|403|28000
consul|404|08006
consul|503|08006}))
{
	my ($scheme, $status, $sqlstate) = @$case;

	next if !$has{$scheme};
	answer($status, "$file.status");
	is( refusal_of("$scheme://$hosts/fleet"),
		"$sqlstate could not use the coordinator: HTTP status $status",
		"$scheme: a refusal with status $status");
}
answer(400, "$file.status");
answer("{\"message\": \"n\xe4in\"}");
is( refusal_of("etcd://$hosts/fleet"),
	'28000 could not use the coordinator: n?in',
	'etcd: a refusal has no bytes of another encoding') if $has{etcd};
unlink "$file.status";

# URLs that are refused before anybody is asked; H are the hosts.
my %detail_of = (
	'a parameter that this kind of coordinator does not support\.' =>
	  'etcd://H/f?passfile etcd://H/f?pass=x etcds://H/f?cacert zookeeper://H/f?cacert=x',
	'A host is missing\.' => 'etcd://H,/f',
	'A percent sign must be followed by two hexadecimal digits\.' => 'etcd://H/%ext etcd://H/f%00a',
	'The path of a fleet in Consul consists of ASCII letters,' =>
	  'consul://H/fl%C3%B6te consul://H/fleet" consul://H/fleet%3Fa consul://H/a//b consul://H/a/../b',
	'The parameter "\w+" is for TLS, which the scheme "\w+s" has' =>
	  'etcd://H/f?cert=/some.pem consul://H/f?cacert=/some.pem');
foreach my $detail (sort keys %detail_of)
{
	foreach my $url (grep { $has{ (/^([a-z]+?)s?:/)[0] } } split / /, $detail_of{$detail})
	{
		like(refusal_of($url =~ s/H/$hosts/r), qr/^22023 .*$detail/, "$url is refused");
	}
}

# An error is one of many: there is no end of tries.  None leaves a connection open.
query(
	$server, q{
	CREATE FUNCTION try_often(tries int) RETURNS text[] LANGUAGE plpgsql AS $$
	DECLARE
		sqlstates text[] := '{}';
	BEGIN
		FOR i IN 1 .. tries LOOP
			BEGIN
				PERFORM snowflake_fleet();
			EXCEPTION WHEN OTHERS THEN
				IF NOT sqlstate = ANY (sqlstates) THEN
					sqlstates := sqlstates || sqlstate;
				END IF;
			END;
		END LOOP;
		RETURN sqlstates;
	END $$});
my $descriptors = q{SELECT count(*) FROM pg_ls_dir('/proc/self/fd')};
answer($nothing, $other);
foreach my $source ('etcd://127.0.0.1:1/fleet', "postgresql://somebody\@$other_hosts/fleet")
{
	next if !$has{ ($source =~ /^(\w+)/)[0] };
	use_coordinator($server, $source);
	my (undef, $before, $sqlstates, $after) = split /\n/,
	  query($server, "SELECT try_often(1); $descriptors; SELECT try_often(40); $descriptors");
	is($sqlstates, '{08006}', "$source: connections that fail");
	cmp_ok($after - $before, '<', 20, 'and are closed');
}

# A file of passwords that others can read is said to be that, not to be missing, but not to
# everybody.  Its name may have any bytes, which the status shows in databases of any encoding.
my $passfile = "$dir/passfile\xc3\xb4";
append_to_file($_, "*:*:*:*:secret\n") foreach $passfile, "$dir/passfile";
chmod 0640, $passfile, "$dir/passfile";
use_coordinator($server, "postgresql://somebody\@127.0.0.1/fleet?passfile=$dir/passfile%C3%B4");
wait_for_status($server, q{advice ~ '/passfile\?\?" has group or world access'});
unlike(
	query($server, q{CREATE ROLE visitor; SET ROLE visitor; SELECT advice FROM snowflake_status}),
	qr/passfile/, 'a role without rights is not told the name of the file');
system_or_bail('mkfifo', '-m', '600', "$dir/pipe");
append_to_file("$dir/long", 'x' x 5000);
chmod 0600, "$dir/long";

foreach my $case (
	[ 'passfile' => qr/F0000 .*file "\Q$dir\E\/passfile" has group or world access/ ],
	[ '.' => qr/ is not a regular file$/ ],
	[ 'pipe' => qr/file "\Q$dir\E\/pipe" is not a regular file$/ ],
	[ 'long' => qr/ the first line of file "\Q$dir\E\/long" has more than 4094 bytes/ ])
{
	my ($name, $message) = @$case;

	foreach my $scheme (grep { $has{$_} } $name eq 'passfile' ? qw(etcd zookeeper) : 'etcd')
	{
		like(refusal_of("$scheme://somebody\@$hosts/fleet?passfile=$dir/$name"),
			$message, "$scheme: a passfile that cannot be one: $name");
	}
}
unlike(slurp_file($server->logfile), qr/terminated by signal/, 'no process has crashed');

done_testing();
