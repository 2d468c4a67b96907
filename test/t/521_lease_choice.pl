# Which node ID a server leases: the one that it had, or else the smallest that nobody had, or
# else the one whose lease ended first.  Many servers choose at the same time, and all but one
# are late: those that are late spread, so that each has one after a few attempts.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeFleet;
use SnowflakeTest;
use Test::More;

my $coordinator = new_coordinator();
my @conf = (lease => '1s', conf => "snowflake.lease_nodes = '0-9'\n");
my $one = start_member('one', $coordinator, @conf, founds => '');
is(status($one, 'node'), 0, 'the first server has the smallest node ID');

# A held node ID that snowflake.lease_nodes has no more
my $leases = status($one, 'leases');
set_conf($one, 'snowflake.lease' => '10s', 'snowflake.lease_nodes' => '100-200');
wait_for_status($one, "leases > $leases AND node <> 0");
is(status($one, 'node'),
	100, 'a node ID that is not to be leased any more is given back for another');

# Of several node IDs with its name, a server takes the one that it had last, in whatever
# order it finds them.
wait_for_query($one, 'SELECT leased_until < now() FROM snowflake_fleet() WHERE node = 0');
$one->append_conf('postgresql.conf', "snowflake.lease_nodes = '0-200'");
foreach my $order ('DESC', 'ASC')
{
	$one->stop;
	query(
		$coordinator, qq{
		CREATE TEMPORARY TABLE found AS TABLE snowflake_fleet.records;
		TRUNCATE snowflake_fleet.records;
		INSERT INTO snowflake_fleet.records SELECT * FROM found
			ORDER BY (value::jsonb ->> 'granted')::bigint $order});
	$one->start;
	wait_for_mint($one);
	is(status($one, 'node'), 100, "a restart keeps the last of two node IDs, in order $order");
}
$one->stop;

# From now on somebody is faster at these node IDs, a regular expression.
sub take
{
	return query($coordinator,
		"TRUNCATE late; CREATE OR REPLACE FUNCTION taken() RETURNS text RETURN '$_[0]'");
}

# A server is started, and leases this one.  Returns those for which it was late.
sub is_late_until
{
	my ($name, $node, $what) = @_;
	my $server = start_member($name, $coordinator, @conf);

	wait_for_mint($server);
	is(status($server, 'node'), $node, $what);
	$server->stop('immediate');
	return split /\n/, query($coordinator, 'SELECT node FROM late');
}

# Without a record: of those that are left, all but the largest are taken.
query(
	$coordinator, q{
	DELETE FROM snowflake_fleet.records WHERE key ~ 'node/.{2}';
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
query(
	$coordinator,
	q{CREATE TRIGGER be_late BEFORE INSERT OR UPDATE ON snowflake_fleet.records
		FOR EACH ROW EXECUTE FUNCTION be_late()});
$one->append_conf('postgresql.conf', "snowflake.lease_nodes = '0'\nsnowflake.lease = '1h'");
$one->start;
wait_for_mint($one);
is((is_late_until('two', 9, 'who is late again and again has the only one that is left'))[0],
	1, 'it has tried the smallest first');

# Leases that have ended: the one that ended first is the best choice, and the last one is left.
take('none');
query(
	$coordinator,
	q{INSERT INTO snowflake_fleet.records
		SELECT 'node/' || n, jsonb_set(value::jsonb, '{until}', to_jsonb((value::jsonb ->> 'from')::bigint + n))
		FROM snowflake_fleet.records, generate_series(1, 8) n WHERE key = 'node/9'});
take('[0-79]');
is((is_late_until('three', 8, 'the same with node IDs whose leases have ended'))[0],
	1, 'it has tried the one that ended first');

done_testing();
