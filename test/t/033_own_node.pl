# The trigger of doc/running.md tells on a subscriber that a row of another
# server has its own node ID; it says nothing about other rows, nor about those
# that are inserted there.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(new_node wait_for_mint);
use Test::More;

my %node;
foreach my $name ('publisher', 'subscriber')
{
	$node{$name} = new_node(
		$name,
		node_id => 7,
		init => { allows_streaming => 'logical' });
	$node{$name}->start;
	$node{$name}->safe_psql(
		'postgres', q{
		CREATE EXTENSION snowflake;
		CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next());
	});
	wait_for_mint($node{$name});
}

my $doc = slurp_file("$FindBin::RealBin/../../doc/running.md");
my ($recipe) = $doc =~ /```sql\n(CREATE FUNCTION own_node_arrived\(\).*?)```/s;
ok($recipe, 'doc/running.md has the trigger');
$node{subscriber}->safe_psql('postgres', $recipe);

my $connstr = $node{publisher}->connstr . ' dbname=postgres';
$node{publisher}->safe_psql('postgres', 'CREATE PUBLICATION p FOR TABLE orders');
$node{subscriber}
  ->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$connstr' PUBLICATION p");
$node{subscriber}->wait_for_subscription_sync($node{publisher}, 's')
  if $node{subscriber}->can('wait_for_subscription_sync');

# An ID of the node ID that both have, and one of another
my $own = $node{publisher}->safe_psql('postgres', 'INSERT INTO orders DEFAULT VALUES RETURNING id');
my $foreign = $node{publisher}
  ->safe_psql('postgres', q{INSERT INTO orders VALUES (make_snowflake(now(), 8, 0)) RETURNING id});
my $local =
  $node{subscriber}->safe_psql('postgres', 'INSERT INTO orders DEFAULT VALUES RETURNING id');
$node{publisher}->wait_for_catchup('s');
is($node{subscriber}->safe_psql('postgres', 'SELECT count(*) FROM orders'),
	3, 'the rows have arrived');

my $warning =
  qr/WARNING:  row (\d+) of table public\.orders came from another server, but has the node ID of this one/;
is(join(' ', map { /$warning/ ? $1 : () } split /\n/, slurp_file($node{subscriber}->logfile)),
	$own, 'the log of the subscriber has the row with its own node ID');

$_->stop foreach $node{subscriber}, $node{publisher};
done_testing();
