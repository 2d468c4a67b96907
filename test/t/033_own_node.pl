# On a subscriber, the trigger of doc/running.md reports rows of another server
# that have the subscriber's node ID, but not other rows, nor rows that are
# inserted there.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(minting_node query);
use Test::More;

my ($publisher, $subscriber) =
  map { minting_node($_, node_id => 7, init => { allows_streaming => 'logical' }) } 'publisher',
  'subscriber';
query($_, 'CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next())')
  foreach $publisher, $subscriber;
my ($recipe) = slurp_file("$FindBin::RealBin/../../doc/running.md") =~
  /```sql\n(CREATE FUNCTION own_node_arrived\(\).*?)```/s;
query($subscriber, $recipe // die 'doc/running.md has no trigger');
query($publisher, 'CREATE PUBLICATION p FOR TABLE orders');
query($subscriber,
	"CREATE SUBSCRIPTION s CONNECTION '@{[ $publisher->connstr ]} dbname=postgres' PUBLICATION p");
$subscriber->wait_for_subscription_sync($publisher, 's')
  if $subscriber->can('wait_for_subscription_sync');

# An ID of the node ID that both have, one of another, and one of the subscriber
my $own = query($publisher, 'INSERT INTO orders DEFAULT VALUES RETURNING id');
query($publisher, q{INSERT INTO orders VALUES (make_snowflake(now(), 8, 0))});
query($subscriber, 'INSERT INTO orders DEFAULT VALUES');
$publisher->wait_for_catchup('s');
is(query($subscriber, 'SELECT count(*) FROM orders'), 3, 'the rows have arrived');
my @told = slurp_file($subscriber->logfile) =~
  /WARNING:  row (\d+) of table public\.orders came from another server, but has the node ID of this one/g;
is("@told", $own, 'the log of the subscriber has the row with its own node ID');

$_->stop foreach $subscriber, $publisher;
done_testing();
