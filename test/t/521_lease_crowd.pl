# Many servers choose a node ID at the same time, and all but one are late.  Those that are late
# spread, so that each has one after a few attempts.  Here somebody is always faster at the best
# choice.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(new_coordinator new_member status wait_for_mint);
use Test::More;

my $coordinator = new_coordinator();
my ($one, $two, $three) =
  map { new_member($_, $coordinator, lease => '1s', conf => "snowflake.lease_nodes = '0-9'\n") }
  qw(one two three);

sub records
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

# From now on somebody is faster at these node IDs, a regular expression.
sub take
{
	my ($nodes) = @_;

	records("TRUNCATE late; CREATE OR REPLACE FUNCTION taken() RETURNS text RETURN '$nodes'");
	return;
}

# The node IDs for which a server was late.
sub late
{
	return split /\n/, records('SELECT node FROM late');
}

$one->start;
$one->safe_psql('postgres', 'CREATE EXTENSION snowflake; SELECT snowflake_fleet_create()');
wait_for_mint($one);
is(status($one, 'node'), 0, 'the first server has the smallest node ID');

# Without a record: of those that are left, all but the largest are taken.
records(
	q{
	CREATE TABLE late (node text);
	CREATE FUNCTION be_late() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF NEW.key !~ ('^node/' || public.taken() || '$') THEN
			RETURN NEW;
		END IF;
		INSERT INTO public.late VALUES (substr(NEW.key, 6));
		RETURN NULL;
	END $$});
take('[1-8]');
records(
	q{CREATE TRIGGER be_late BEFORE INSERT OR UPDATE ON snowflake_fleet.records
		FOR EACH ROW EXECUTE FUNCTION be_late()});
$two->start;
$two->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($two);
is(status($two, 'node'), 9, 'one that is late again and again has the only one that is left');
my @late = late();
is($late[0], 1, 'it has tried the smallest first');
note("late for @late");

# Leases that have ended: the one that ended first is the best choice, and the last one is left.
$_->stop('immediate') foreach $one, $two;
take('none');
records(
	q{INSERT INTO snowflake_fleet.records
		SELECT 'node/' || n, jsonb_set(value::jsonb, '{until}', to_jsonb((value::jsonb ->> 'from')::bigint + n))
		FROM snowflake_fleet.records, generate_series(1, 8) n WHERE key = 'node/0'});
take('[0-79]');
$three->start;
$three->safe_psql('postgres', 'CREATE EXTENSION snowflake');
wait_for_mint($three);
is(status($three, 'node'), 8, 'the same with node IDs whose leases have ended');
@late = late();
is($late[0], 1, 'it has tried the one that ended first');
note("late for @late");

$_->stop foreach $three, $coordinator;
done_testing();
