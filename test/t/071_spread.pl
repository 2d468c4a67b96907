# snowflake.spread: the low bits of IDs are evenly distributed, even if ticks have
# few IDs; distinctness and order are as without it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Open2;
use SnowflakeTest qw(
  disorder error_of minting_node new_clock pass_days query reload_with restart_node set_conf
);
use Test::More;

my $steps = 4096;
my @moduli = (2, 4, 8, 16, 64, 1000);
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

# Mint at a rate until it is even for all.  A pace can be in step with a modulus that is
# no power of two, as with any that is a divisor of what passes between two mints; but
# not each time.
sub mint_evenly_at
{
	my ($rate) = @_;
	my @uneven;

	foreach my $attempt (1 .. 4)
	{
		mint_at($rate);
		@uneven = uneven();
		last unless @uneven;
		note("$rate a second: uneven modulo @uneven");
		last if grep { $_ != 1000 } @uneven;
	}
	is("@uneven", '', "$rate a second, spread 4096: id % n is even");
	return;
}

# Without it, each tick starts at 0.
foreach my $rate (10, 10_000)
{
	mint_at($rate);
	is(join(' ', uneven()), "@moduli", "$rate a second, spread 0: id % n is not even");
}
set_conf($node, 'snowflake.spread' => 4096);
mint_evenly_at(10);
is(sql(q{SELECT count(DISTINCT id -> 'sequence') FROM minted}),
	$steps, 'each sequence number comes once');
mint_evenly_at(10_000);

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

# At the cap a tick goes on where the one before is full: none is left out.
set_conf($node, 'snowflake.spread' => 4096);
is( sql(q{
		WITH ids AS MATERIALIZED (SELECT n, snowflake_next() AS id FROM generate_series(1, 400000) n),
			steps AS (SELECT id, lag(id) OVER (ORDER BY n) AS before FROM ids)
		SELECT count(*) FILTER (WHERE id <= before), count(DISTINCT id) FROM steps}),
	'0|400000',
	'IDs ascend at the cap');

# What is no power of two, or larger than the sequence
my $offset = -s $node->logfile;
foreach my $bad (3, 8192, -1, 4095)
{
	reload_with($node, "snowflake.spread = $bad");
	$node->wait_for_log(
		qr/invalid value for parameter "snowflake.spread": $bad|$bad is outside the valid range for parameter "snowflake.spread"/,
		$offset);
	is(sql('SHOW snowflake.spread'), '4096', "$bad is refused");
}

# A smaller layout and a value that was right for another one: the server starts, and parallel workers
# do.  No tick has IDs before it starts.
$node->append_conf('postgresql.conf', "snowflake.spread = 4096\nsnowflake.layout = 'javascript'");
restart_node($node, 'fast', $clock, 'differs');
sql('SELECT snowflake_accept_layout()');
is(sql('SELECT count(*), count(DISTINCT snowflake_next()) FROM generate_series(1, 10000)'),
	'10000|10000', 'a spread that is larger than the sequence does no harm');
foreach (1 .. 16)
{
	pass_days($clock, 1 / 86_400);
	is(sql('SELECT snowflake_timestamp(snowflake_next()) <= clock_timestamp()'),
		't', 'nor has a tick IDs before it starts');
}
my $parallel = sql(
	q{SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
is(error_of($node, "SET $parallel = on; SELECT count(*) FROM pg_class")->{message},
	'', 'parallel workers start with it');
$node->stop;

done_testing();
