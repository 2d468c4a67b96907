# Node IDs are leased from etcd: three servers, one of which dies; one that does not say what
# it has done; copies of its records; users; TLS.
# long

use SnowflakeCoordinator;
use SnowflakeFleet;
use SnowflakeTest;
use HTTP::Tiny;
use MIME::Base64 qw(encode_base64);

plan skip_all => 'etcd is not installed' if !grep { -x "$_/etcd" } split /:/, $ENV{PATH};

my $etcd = new_etcd('e', 3);
my $hosts = hosts($etcd);

check_fleet($etcd, "etcd://$hosts/fleet/a");
kill_members($etcd);

# A member refuses to create the fleet, which is not there.  Then it does what it is asked
# for, and says that it did not: the next one, which is asked for the same, refuses it, and
# yet nobody else was faster.
$etcd = new_etcd('d', 1);
$hosts = new_doubtful_proxy($etcd) . ',' . hosts($etcd);
my $one = start_member(
	'doubtful', "etcd://$hosts/fleet",
	lease => '1min',
	conf => "snowflake.lease_nodes = '3'\n");
is(query($one, 'SELECT snowflake_fleet_create()'),
	'', 'a fleet is founded that it says it did not found');
wait_for_mint($one);
is(status($one, 'node, leases'), '3|1', 'and leases the node ID that it says it did not lease');
$one->restart;
wait_for_mint($one);
is(status($one, 'node, leases'), '3|1', 'and once more');

# A list of all records may take longer than any other answer while there is no lease, and
# leaves the write that follows as much time as ever.
my $hold = PostgreSQL::Test::Utils::tempdir() . '/hold';
my $relay = new_relay($etcd, qr/range_end/, $hold);
my $clock = new_clock('slow_list');
append_to_file($hold, '');
my $two = start_member('slow_list', "etcd://$relay/fleet", clock => $clock);
wait_until('the list is held', sub { -e "$hold.held" });
stop_time($clock);
let_pass($clock, 4_000);
release($hold);
wait_for_status($two, 'leases > 0 OR lease_errors > 0');
is(status($two, 'leases, lease_errors'), '1|0', 'a node ID is leased after a list that took 4 s');
start_time($clock);
$two->stop;

# The records are copied to another cluster, to which the same URL leads from then on, as when
# an address moves.  Nothing asks who that is before it is asked to renew.
my $other = new_etcd('o', 1, undef, undef, '--initial-cluster-token=other');
my $copied = qr/copied from another coordinator/;
my $moved = PostgreSQL::Test::Utils::tempdir() . '/moved';
$relay = new_relay($etcd, qr/(?!)/, $moved, $other);
my $three = start_member('moved', "etcd://$relay/fleet");
wait_for_mint($three);
wait_for_status($three, 'lease_renewals > 0');
my @records = split /\n/, etcdctl($etcd, 'get', '--prefix', 'fleet/');

while (my ($key, $value) = splice @records, 0, 2)
{
	etcdctl($other, 'put', '--', $key, $value);
}
append_to_file("$moved.other", '');
my $before = status($three, 'lease_renewals');
wait_for_status($three, "coordinator = 'grants nothing' OR lease_renewals > $before + 2");
like(status($three, 'advice'),
	$copied, 'a copy of the records that the same URL leads to renews nothing');
unlink "$moved.other";
wait_for_status($three, q{coordinator = 'reachable'});
pass('and the first cluster does, when the URL leads to it again');
$three->stop;

# The copy as the next of several hosts.  The first one does not say whether it has done a
# write, so the copy is asked for it.
my $both = new_doubtful_proxy($etcd) . ',' . hosts($other);
my $four = start_member('next_host', "etcd://$both/fleet", conf => "snowflake.lease_nodes = '9'\n");
wait_for_status($four, q{coordinator = 'grants nothing' OR leases > 0});
is(status($four, 'leases'), '0', 'a copy that is asked for a write of the first grants nothing');
like(etcdctl($other, 'get', 'fleet/node/9'), qr/"holder"/, 'though it has done it');
$four->stop;

# More records than an answer may have, which is 1,000
my $record = encode_base64(
	sprintf(
		'{"holder": "h:1", "granted": 1, "from": 1, "until": 2, "token": "%s", "nonce": "%s"}',
		'a' x 32, 'b' x 32),
	'');

for (my $node = 100; $node < 2_600; $node += 100)
{
	my $puts = join ',',
	  map { sprintf '{"request_put": {"key": "%s", "value": "%s"}}', $_, $record }
	  map { encode_base64("fleet/node/$_", '') } $node .. $node + 99;
	my $answer = HTTP::Tiny->new->post("http://${\ hosts($etcd)}/v3/kv/txn",
		{ content => "{\"success\": [$puts]}" });

	die $answer->{content} if !$answer->{success};
}
is( query(
		$one,
		'SELECT count(node) - count(DISTINCT node), count(node) >= 2500 FROM snowflake_fleet()'),
	'0|t',
	'each record is listed, and once, though it takes several answers');
$one->stop;
kill_members($other);

# Users, who may use what they were granted; a password that was written on another system
my $passfile = write_passfile('sec"r\\et7' . "\r\n");
$hosts = hosts($etcd);
etcdctl($etcd, @$_)
  foreach [ 'user', 'add', 'root:rootpw' ], [ 'user', 'grant-role', 'root', 'root' ],
  [ 'user', 'add', 'fleet:sec"r\\et7' ], [ 'role', 'add', 'fleet' ],
  [ 'role', 'grant-permission', 'fleet', 'readwrite', 'users/', '--prefix=true' ],
  [ 'user', 'grant-role', 'fleet', 'fleet' ], [ 'auth', 'enable' ];
$one = start_member('with_user', "etcd://fleet\@$hosts/users?passfile=$passfile", founds => '');
is(status($one, 'node'), '0', 'a user with a password gets a node ID');

# Slashes around the path do not make it another one, nor a code in the name another user.
foreach my $path ('users/', '/users//')
{
	use_coordinator($one, "etcd://fl%65et\@$hosts/$path?passfile=$passfile");
	is(listing_error($one)->{stdout}, 2, "the path \"/$path\" is that of the same fleet");
}
write_passfile("wrong8\n");
my $error = listing_error($one);
like(
	"$error->{sqlstate} $error->{message}",
	qr/^28000 .*authentication failed/,
	'a wrong password is an error');
unlike(slurp_file($one->logfile), qr/et7|wrong8/, 'no password is in the log');
$one->stop;
kill_members($etcd);

# TLS, with a certificate of each side
my ($certificate, $key) = new_certificate();
$etcd = new_etcd('t', 1, $certificate, $key);
my $tls = "cacert=$certificate&cert=$certificate&key=$key";
$hosts = hosts($etcd);
$one = start_member('tls', "etcds://$hosts/fleet?$tls", founds => '');
is(status($one, 'node'), '0', 'with TLS a node ID is leased');

# One of two members is connected to, and does not answer.
my $renewals = status($one, 'lease_renewals');
use_coordinator($one, "etcds://${\ new_silent()},$hosts/fleet?$tls");
wait_for_status($one,
	"lease_renewals > $renewals + 1 OR gate = 'closed: the lease of the node ID has ended'");
is(status($one, 'gate, leases'),
	'open|1', 'a member that does not answer keeps nobody from the next one');

# Each side has to know the other one's certificate.
foreach my $case ([ "cert=$certificate&key=$key", 'certificate' ], [ "cacert=$certificate", '.' ])
{
	my ($parameters, $message) = @$case;

	use_coordinator($one, "etcds://$hosts/fleet?$parameters");
	$error = listing_error($one);
	like(
		"$error->{sqlstate} $error->{message}",
		qr/^08006 could not use the coordinator: .*$message/,
		"refused: TLS with $parameters");
}

done_testing();
