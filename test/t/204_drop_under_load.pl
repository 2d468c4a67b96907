# A superuser drops the keeper's extension, or its database, while others mint, and
# the server dies some IDs later.  Minting goes on, or ends with an error that says
# why.  After the crash, with a clock that is behind, every ID is above all earlier
# ones, whoever accepts the loss, before or after the clock is set right.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest;
use Test::More;

my $behind_ms = 30_000;
my $node = new_node('main', conf => "snowflake.reservation = '1s'\nsnowflake.database = kept\n");
my $clock = new_clock('main');
my @ids;
my $accepted = 0;

start_with_clock($node, $clock);
query($node, "CREATE DATABASE $_") foreach 'kept', 'app';
query($node, 'CREATE EXTENSION snowflake', dbname => 'app');
wait_for_mint($node, dbname => 'app');

sub try_to_mint
{
	my $error =
	  error_of($node, q{SET snowflake.max_wait = '1s'; SELECT snowflake_next()}, dbname => 'app');

	push @ids, $error->{stdout} =~ /^(\d+)$/m;
	return $error;
}

# How many IDs the sessions have written down.
sub minted
{
	my (@minters) = @_;

	return scalar(() = map { slurp_file($_->{ids}) =~ /\n/g } @minters);
}

# Errors that say why
my $clear = qr/(?:
	the\ database\ of\ the\ snowflake\ reservation\ does\ not\ exist
	|the\ snowflake\ reservation\ of\ this\ server\ is\ not\ in\ the\ database\ "kept"
	|the\ snowflake\ generator\ was\ not\ ready\ within\ \d+\ ms
	|the\ snowflake\ reservation\ was\ not\ extended\ within\ \d+\ ms
	|the\ snowflake\ generator\ is\ [0-9.]+\ s\ ahead\ of\ the\ clock
	|minting\ snowflakes\ starts\ in\ [0-9.]+\ s,\ after\ the\ end\ of\ what\ was\ reserved\ before
	)/x;

# How many more IDs there are between the drop and the crash: none, and as many as take longer than
# the keeper needs to find out.
foreach
  my $case ([ 'DROP EXTENSION snowflake_keeper', 0 ], [ 'DROP DATABASE kept WITH (FORCE)', 5_000 ])
{
	my ($sql, $more) = @$case;
	my @minters = map { start_minter($node, 100_000, dbname => 'app') } 1 .. 2;

	wait_until('IDs are minted', sub { minted(@minters) > 200 });
	query($node, $sql, dbname => $sql =~ /DATABASE/ ? 'postgres' : 'kept');

	my $then = minted(@minters);
	wait_until(
		'they go on, or not',
		sub {
			return minted(@minters) >= $then + $more
			  || grep { $_->{run}->pump_nb; $_->{errors} =~ /ERROR/ } @minters;
		});
	kill_postmaster($node);
	push @ids, @{ finish_minter($_) } foreach @minters;
	my @errors = grep { !/^$clear/ } map { $_->{errors} =~ /ERROR:  (.*)/g } @minters;
	is("@errors", '', "$sql, $more more IDs: minting goes on, or says why not");

	# both sessions ran side by side
	@ids = sort { $a <=> $b } @ids;
	my $newest = $ids[-1];

	step_clock($clock, -$behind_ms);
	start_after_kill($node, $clock);
	my $error = try_to_mint();
	ok(   $error->{sqlstate} eq ''
		? $ids[-1] > $newest
		: "$error->{sqlstate} $error->{message}" =~ /^55000 $clear/,
		'after a crash, the clock being behind: an ID above, or the reason why not'
	) or diag("$ids[-1], before $newest; $error->{sqlstate} $error->{message}");

	# what an administrator does
	my $clock_first = $more == 0;
	step_clock($clock, $behind_ms) if $clock_first;
	query($node, 'CREATE DATABASE kept') if $sql =~ /DATABASE/;
	wait_until(
		'minting goes on',
		sub {
			$error = try_to_mint();
			return 1 if $error->{sqlstate} eq '';
			if ($error->{message} =~ /is not in the database/)
			{
				query($node, "SELECT snowflake_accept_database($newest)", dbname => 'app');
				$accepted++;
			}
			return 0;
		});
	my $by = $clock_first ? 'by a right clock' : 'the clock being behind';
	cmp_ok($ids[-1], '>', $newest, "when the loss is accepted, $by, all go on above");
	step_clock($clock, $behind_ms) unless $clock_first;
}

cmp_ok($accepted, '>', 0, 'a loss was accepted');
is(duplicates(\@ids), 0, scalar(@ids) . ' IDs, none came twice');
$node->stop;
done_testing();
