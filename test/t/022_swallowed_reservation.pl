# What the keeper reserves is not taken for stored unless it is: a trigger that
# swallows the row stops minting at the end of the last reservation, not after.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest;
use Test::More;

my $node = SnowflakeTest::new_node('main',
	conf => q{snowflake.reservation = '1s'});

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake');
SnowflakeTest::wait_for_mint($node, 'postgres');

my $offset = -s $node->logfile;
$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql
		AS 'BEGIN RETURN NULL; END';
	CREATE TRIGGER swallow BEFORE INSERT OR UPDATE ON snowflake_reservation
		FOR EACH ROW EXECUTE FUNCTION swallow()});
my $stored = $node->safe_psql('postgres',
	'SELECT reserved_until FROM snowflake_reservation');

# Mint until that fails, which is when what was reserved before is used up.
my ($error, $last);
SnowflakeTest::wait_until(
	'minting stops',
	sub {
		$error = SnowflakeTest::error_of($node, 'postgres',
			q{SET snowflake.max_wait = '100ms'; SELECT snowflake_next()});
		$last = $1 if $error->{stdout} =~ /(\d+)/;
		return $error->{sqlstate} ne '';
	});
is($error->{sqlstate}, '55000', 'a reservation is swallowed: minting stops');
like($error->{message}, qr/reservation was not extended/, 'and says why');
SKIP:
{
	skip 'nothing was minted meanwhile', 1 unless defined $last;
	is( $node->safe_psql('postgres',
			"SELECT snowflake_timestamp('$last') <= '$stored'"),
		't',
		'nothing was minted above what is stored');
}
$node->wait_for_log(qr/the reservation was not written to public\.snowflake_reservation/,
	$offset);
pass('the log names the table');
like($error->{detail}, qr/SQLSTATE 55000|still waiting|not running/,
	'the error says how the keeper stands');

$node->safe_psql('postgres', 'DROP TRIGGER swallow ON snowflake_reservation');
$node->poll_query_until('postgres', 'SELECT snowflake_next() IS NOT NULL')
  or die "server does not mint again";
pass('minting goes on when the trigger is gone');
cmp_ok($node->safe_psql('postgres', 'SELECT snowflake_next()'),
	'>', $last, 'above all before')
  if defined $last;

$node->stop;
done_testing();
