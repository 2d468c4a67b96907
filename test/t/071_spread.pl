# snowflake.spread: the low bits of IDs are evenly distributed, even if ticks have
# few IDs; distinctness and order are as without it.

use IPC::Open2;
use SnowflakeTest;

my $steps = 1024;
my @moduli = (2, 4, 8, 16, 64);
my $clock = new_clock('main');
my $node = minting_node(
	'main',
	clock => $clock,
	conf => "snowflake.max_wait = '1min'\nsnowflake.reservation = '1h'\nautovacuum = off");

sub sql { return query($node, $_[0]); }

# how far the remainders are from even, in standard deviations of chi-square
sql(q{
	CREATE TABLE minted (n serial, id snowflake);
	CREATE FUNCTION unevenness(modulus int) RETURNS numeric LANGUAGE sql AS $$
		WITH seen AS (SELECT count(id) AS c, (SELECT count(*) FROM minted)::numeric / modulus AS expected
			FROM generate_series(0, modulus - 1) r LEFT JOIN minted ON id % modulus = r GROUP BY r)
		SELECT round((sum((c - expected) ^ 2 / expected) - (modulus - 1)) / sqrt(2.0 * (modulus - 1)), 1) FROM seen $$}
);

# Mint at a rate of so many a second, by the server's clock: one at a time, or if
# there are more in a tick, now a few more and now a few less.
sub mint_at
{
	my ($rate) = @_;
	my ($msec, $per_step) = $rate < 1000 ? (1000 / $rate, 1) : (1, $rate / 1000);
	my @ids;

	{
		local %ENV = $node->_get_env();
		my $pid = open2(my $from, my $to, $node->installed_command('psql'),
			'-XAtq', '-d', $node->connstr('postgres'));

		foreach my $i (1 .. $steps)
		{
			my $count = $per_step == 1 ? 1 : $per_step + 7 * $i % 11 - 5;

			pass_days($clock, $msec / 86_400_000);
			print $to "SELECT snowflake_next() FROM generate_series(1, $count);\n";
			$to->flush;
			push @ids, map { scalar <$from> =~ s/\n//r } 1 .. $count;
		}
		close $to;
		waitpid $pid, 0;
	}
	sql('TRUNCATE minted');
	$node->psql('postgres', "COPY minted (id) FROM stdin;\n" . join("\n", @ids) . "\n\\.\n");
	is(disorder(\@ids), 0, "$rate a second: all are distinct, and ascend");
	return;
}

# Of the moduli, those for which it is not even.  Less than even is no fault: a counter
# leaves nothing to chance.
sub uneven
{
	return grep { sql("SELECT unevenness($_)") > 10 } @moduli;
}

# Without it, each tick starts at 0.
mint_at(10);
is(join(' ', uneven()), "@moduli", '10 a second, spread 0: id % n is not even');
set_conf($node, 'snowflake.spread' => 4096);
mint_at(10);
is(join(' ', uneven()), '', '10 a second, spread 4096: id % n is even');
is(sql(q{SELECT count(DISTINCT id -> 'sequence') FROM minted}),
	$steps, 'each sequence number comes once');
mint_at(10_000);
is(join(' ', uneven()), '', '10,000 a second: id % n is even');

# A part of the sequence: a tick begins in that part, and goes on behind it.
set_conf($node, 'snowflake.spread' => 16);
mint_at(10);
is( sql(q{SELECT min(id -> 'sequence'), max(id -> 'sequence'), count(DISTINCT id -> 'sequence') FROM minted}
	),
	'0|15|16',
	'spread 16 starts ticks in the first 16 numbers');
cmp_ok(sql('SELECT unevenness(16)'), '<', 4, 'evenly');
is( sql(q{SELECT min(id -> 'sequence') < 16, max(id -> 'sequence') FROM snowflake_next_batch(100000) id}
	),
	't|4095',
	'which takes nothing from a full tick');

# What is no power of two, or larger than the sequence
refuses($node, "ALTER SYSTEM SET snowflake.spread = $_", '22023', "$_ is refused") foreach 3, 8192;

# A smaller layout and a value that was right for another one: the server starts, and parallel workers
# do.  No tick has IDs before it starts.
$node->append_conf('postgresql.conf', "snowflake.spread = 4096\nsnowflake.layout = 'javascript'");
restart_node($node, 'fast', $clock, 'differs');
sql('SELECT snowflake_accept_layout()');
is(sql('SELECT count(*), count(DISTINCT snowflake_next()) FROM generate_series(1, 10000)'),
	'10000|10000', 'a spread that is larger than the sequence does no harm');
pass_days($clock, 1 / 86_400);
is(sql('SELECT snowflake_timestamp(snowflake_next()) <= clock_timestamp()'),
	't', 'nor has a tick IDs before it starts');

done_testing();
