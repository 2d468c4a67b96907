# No ID is past what is stored, to the last tick, and none is further ahead of the
# clock than max_lead: one by one, and in batches.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node status wait_for_mint);
use Test::More;

# Four IDs in a tick of a millisecond, so that whoever mints meets every tick.
my $node = new_node(
	'main', conf => q{
	snowflake.layout = 'time:43 node:18 sequence:2 epoch:2020-01-01T00:00:00Z'
	snowflake.max_lead = '5s'
	snowflake.reservation = '2s'
});

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($node, 'postgres');

# A batch of seven seconds gets more than max_lead ahead of where it began, and
# has to wait.
my $lead = $node->safe_psql('postgres', q{
	SELECT max(snowflake_timestamp(id) - clock_timestamp())
	FROM (SELECT snowflake_next_batch(28000) AS id) b});
is( $node->safe_psql('postgres',
		"SELECT interval '$lead' BETWEEN interval '4 s' AND interval '5001 ms'"),
	't', 'a batch is ahead of the clock by no more than max_lead')
  or diag($lead);

# The keeper cannot get at its table: what is reserved is minted to its last ID.
foreach my $how (
	[ 'one by one' => 'PERFORM snowflake_next()' ],
	[ 'in batches' => 'PERFORM snowflake_next_batch(4000)' ])
{
	my ($name, $sql) = @$how;
	my $session = $node->background_psql('postgres');

	wait_for_mint($node, 'postgres');
	$session->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
	my $stored = $session->query_safe(
		'SELECT reserved_until FROM snowflake_keeper.reservation WHERE node = 1');

	# a batch is held back by the limit, not by max_lead, if there is less left
	$node->poll_query_until('postgres',
		"SELECT clock_timestamp() + interval '4500 ms' > '$stored'")
	  or die "clock stands still";
	my $error = error_of($node, 'postgres', qq{
		SET snowflake.max_wait = '100ms';
		SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s';
		DO \$\$ BEGIN LOOP $sql; END LOOP; END \$\$});
	is($error->{sqlstate}, '55000', "$name: minting ends");
	like($error->{message}, qr/reservation was not extended/, 'with the reservation');
	is( status($node, 'postgres',
			"concat_ws(' ', snowflake_timestamp(last_id), snowflake_sequence(last_id))"),
		"$stored 3",
		'the last ID is the last of what is stored');
	$session->query_safe('COMMIT');
	$session->quit;
}

$node->stop;
done_testing();
