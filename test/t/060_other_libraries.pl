# The library gets along with others that ask for shared memory, in any order.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(log_count new_node wait_for_mint);
use Test::More;

foreach my $libraries ('snowflake, pg_stat_statements', 'pg_stat_statements, snowflake')
{
	my $node = new_node('main' . ($libraries =~ /^s/ ? 1 : 2),
		conf => "shared_preload_libraries = '$libraries'");

	if (!$node->start(fail_ok => 1))
	{
		plan skip_all => 'pg_stat_statements is not installed'
		  if log_count($node, qr/could not access file "pg_stat_statements"/);
		die "server does not start";
	}
	$node->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE EXTENSION pg_stat_statements');
	wait_for_mint($node);
	is( $node->safe_psql(
			'postgres', 'SELECT count(DISTINCT id) FROM snowflake_next_batch(10000) id'),
		'10000',
		"$libraries: IDs are minted");
	is( $node->safe_psql(
			'postgres',
			q{SELECT calls > 0 FROM pg_stat_statements WHERE query ~ 'snowflake_next_batch'}),
		't',
		'and the other one works');
	is( $node->safe_psql(
			'postgres',
			q{SELECT calls FROM pg_stat_statements WHERE query = 'CREATE EXTENSION snowflake'}),
		'1',
		'for utility commands as well');
	$node->stop;
}

done_testing();
