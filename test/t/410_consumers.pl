# The consumers of doc/tailing handle each row once and in order, while a
# transaction that minted first commits last.
# versions: all

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node wait_for_mint);
use PostgreSQL::Test::Utils;
use Test::More;

my $consumers = "$FindBin::RealBin/../../doc/tailing";
my $node = new_node('main');

$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION snowflake;
	CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), customer text NOT NULL);
});
wait_for_mint($node);

sub sql
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', $sql);
}

sql(PostgreSQL::Test::Utils::slurp_file("$consumers/consumer.sql"));

my ($python) = grep { system(qq{$_ -c 'import psycopg2' 2>/dev/null}) == 0 } 'python3',
  '/usr/bin/python3';
my $position = PostgreSQL::Test::Utils::tempdir() . '/position';
my $printed = '';

# Let both work off what there is.
sub consume
{
	sql(q{CALL consume_orders('test', 2)});
	if (defined $python)
	{
		my ($stdout, $stderr) = run_command(
			[
				$python, "$consumers/consumer.py", $node->connstr('postgres'),
				'orders', $position, '--once'
			]);

		is($stderr, '', 'the consumer in Python runs');
		$printed .= "$stdout\n" if $stdout ne '';
	}
	return;
}

sub check
{
	my ($expected, $what) = @_;

	is(sql(q{SELECT string_agg(customer, ' ' ORDER BY ctid) FROM handled_orders}),
		$expected, "in SQL: $what");
	is(join(' ', $printed =~ /\t(\w+)$/mg), $expected, "in Python: $what")
	  if defined $python;
	return;
}

note 'no Python with psycopg2' unless defined $python;
sql(q{INSERT INTO orders (customer) SELECT 'c' || n FROM generate_series(1, 5) n});
my $early = $node->background_psql('postgres');
$early->query_safe(q{BEGIN; INSERT INTO orders (customer) VALUES ('early')});
sql(q{INSERT INTO orders (customer) VALUES ('late')});
consume();
check('c1 c2 c3 c4 c5', 'what is complete is delivered');
consume();
check('c1 c2 c3 c4 c5', 'and only once');
$early->query_safe('COMMIT');
$early->quit;
consume();
check('c1 c2 c3 c4 c5 early late', 'the rest in order');

# A transaction of the consumer that fails leaves the position where it was.
sql(q{INSERT INTO orders (customer) VALUES ('last');
	ALTER TABLE handled_orders ADD CONSTRAINT failing CHECK (customer <> 'last') NOT VALID});
is(error_of($node, q{CALL consume_orders('test')})->{sqlstate}, '23514', 'a row cannot be handled');
sql(q{ALTER TABLE handled_orders DROP CONSTRAINT failing});
consume();
check('c1 c2 c3 c4 c5 early late last', 'it is handled when it can be');

# Without arguments the one in Python says how it is called.
if (defined $python)
{
	foreach my $arguments ([], ['one'], [ '--never', 'a', 'b', 'c' ])
	{
		my ($stdout, $stderr) = run_command([ $python, "$consumers/consumer.py", @$arguments ]);

		is( $stderr,
			'usage: consumer.py [--once] [--listen] CONNECTION TABLE POSITION_FILE',
			"usage: consumer.py @$arguments");
	}
}

$node->stop;
done_testing();
