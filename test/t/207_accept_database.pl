# A reservation is lost, and an administrator says which ID is the largest: nothing is minted at or
# below it, whatever the clock says, whichever node ID it had, and whenever the server dies.  An ID
# that cannot be right is refused.  And it is dropped under load: minting goes on, or says why not.

use SnowflakeTest qw(!mint);

my $hour = 3_600_000;
my $clock = new_clock('main');
my $node = minting_node(
	'main',
	clock => $clock,
	conf => q{
	snowflake.reservation = '1s'
	snowflake.max_wait = '10s'
});
my $newest;

sub sql { return query($node, @_); }

sub mint
{
	return $newest = sql('SELECT snowflake_next()');
}

# The next ID is above this one.
sub is_above { return cmp_ok(sql('SELECT snowflake_next()'), '>', $_[0], $_[1]); }

sub accept_database { return said($node, "SELECT snowflake_accept_database($_[0])"); }

# What may not be accepted is refused.  settings is for the session.
sub refuses_to_accept
{
	my ($arguments, $sqlstate, $what, %params) = @_;
	my $settings = delete $params{settings} // '';

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return refuses($node, "$settings SELECT snowflake_accept_database($arguments)",
		$sqlstate, $what, %params);
}

sub move_to
{
	my ($database) = @_;

	$node->append_conf('postgresql.conf', "snowflake.database = $database");
	restart_node($node, 'fast', $clock, 'not in snowflake.database');
	return;
}

# The table is dropped, and the server crashes before the keeper writes it again.
sub lose
{
	sql('DROP EXTENSION snowflake_keeper');
	restart_node($node, 'immediate', $clock, 'not in snowflake.database');
	return;
}

sub starts_at_clock
{
	sql('SELECT snowflake_next()');
	return cmp_ok(abs(status($node, 'extract(epoch FROM lead)')), '<', 600, $_[0]);
}

# To another database, and back to the first one, whose table nobody has lost: a node ID without a
# row may have been used in the other one.
sql('CREATE DATABASE other');
foreach my $database ('other', 'postgres')
{
	mint();
	move_to($database);

	# the one that has it may be gone
	if ($database eq 'postgres')
	{
		sql('DROP DATABASE other');
		refuses(
			$node,
			'SELECT snowflake_next()',
			'55000',
			'the database that had the reservation was dropped: the error says so',
			detail => qr/^It was last seen in the database with OID \d+, which was dropped\.$/);
	}
	accept_database($newest);
}
is( sql("SELECT reserved_until >= snowflake_timestamp($newest) FROM snowflake_keeper.reservation WHERE node = -1"
	),
	't',
	'all node IDs without a row have what was said');

# The newest ID is an hour ahead of the clock.
sql(q{SELECT snowflake_advance(snowflake_lower_bound(now() + interval '1 hour'), force => true)});
mint();
lose();

# What only an administrator can end is not waited for.
my $lost = error_at_once($node);
is( "$lost->{sqlstate} $lost->{message}",
	'55000 the snowflake reservation of this server is not in the database "postgres"',
	'a reservation is lost: a mint is refused at once');
is($lost->{detail}, 'It was last seen in the database "postgres".', 'the error says where it was');
like($lost->{hint}, qr/snowflake_accept_database\(\)/, 'and what to do');
is(sql(q{SELECT count(*) FROM pg_extension WHERE extname = 'snowflake_keeper'}),
	0, 'the keeper does not start a new one');

# What has to be said
refuses_to_accept(
	$_, '22004',
	"snowflake_accept_database($_) is refused, and says what to do",
	message => qr/^the largest snowflake that exists must be given$/,
	hint => qr/with the largest of all tables and databases, or with none_exists => true/
) foreach '', '(SELECT max(1) WHERE false)';
refuses_to_accept("$newest, true", '22023', 'a largest ID, and none exists: refused');
refuses_to_accept('9223372036854775807', '22003', 'the end of the layout: refused');

# A number of another layout mostly is far away.
refuses_to_accept(
	sql(q{SELECT snowflake_lower_bound(now() + interval '3 days')}),
	'22023',
	'three days ahead: refused, with the number, and for how long nothing could be minted',
	message => qr/^snowflake \d+ is 3\.0 days ahead of the clock$/,
	detail =>
	  qr/may be ahead by 86400\.000 s \(snowflake\.max_ahead\), so nothing could be minted for another (?:2\.0 days|172[67]\d\d\.\d+ s)\.$/
);
like(status($node, 'gate'), qr/not in snowflake\.database/, 'nothing came of any of them');

# A keeper that cannot write for a while
sql('CREATE EXTENSION snowflake_keeper');
my $session = lock_reservation($node);
refuses_to_accept(
	$newest, '55000',
	'the keeper cannot write: an error',
	settings => q{SET snowflake.max_wait = '1500ms';},
	message => qr/^snowflake_accept_database\(\) did not finish within 1500 ms$/);
$session->quit;
sql('SELECT snowflake_accept_clock()');
like(
	status($node, 'gate'),
	qr/not in snowflake\.database/,
	'what failed is not done after the error');

# Above the largest, an hour ahead of the clock, and durably so
like(
	accept_database($newest),
	qr/WARNING:  the snowflake generator is now 3[45]\d\d\.\d+ s ahead of the clock/,
	'the largest ID is given: a warning that it is ahead');
is_above($newest, 'the next one is above it');
restart_node($node, 'immediate', $clock);
is_above($newest, 'also after a crash');

# A node ID of which nothing is known may have minted what was lost.
change_node_id($node, 2);
refuses(
	$node, 'SELECT snowflake_restart_at_clock(2)',
	'55000',
	'no other node ID is taken back below it',
	message => qr/^snowflakes ahead of the clock may have been minted with node ID 2$/);
is_above($newest, 'and goes on above');

# The same for a node ID that has an older row, as in a database that was the keeper's before.
sql('CREATE DATABASE other');
move_to('other');
accept_database($newest);
sql(q{SELECT snowflake_advance(snowflake_lower_bound(now() + interval '2 hours'), force => true)});
mint();
move_to('postgres');

# not while a clock that the administrator sees is not believed
sql('SELECT gate FROM snowflake_status');
step_clock($clock, 50 * $hour);
refuses_to_accept(
	$newest, '55000',
	'not by a clock that is not believed',
	message => qr/^the clock went ahead by .*, which is not believed$/);
step_clock($clock, -50 * $hour);
accept_database($newest);
is( sql("SELECT count(*) FROM snowflake_keeper.reservation WHERE reserved_until < snowflake_timestamp($newest)"
	),
	0,
	'moved back: old rows are raised');
is_above($newest, 'and minting goes on above');

# A clock that is behind, and an ID of another node and of long ago
lose();
$node->stop('fast');
step_clock($clock, -$hour);
start_with_clock($node, $clock);
wait_for_status($node, q{gate ~ 'not in snowflake.database'});
my $right = sql(q{SELECT snowflake_upper_bound(now() + interval '4 hours')});
accept_database($right);
is_above($right, 'the clock is five hours behind: above all the same');
lose();
like(
	accept_database(q{snowflake_lower_bound(now() - interval '30 days')}),
	qr/WARNING:  minting starts at the clock, 30\.0 days after snowflake \d+/,
	'an ID of long ago: a warning');
starts_at_clock('and minting starts at the clock');

# None exists.
lose();
accept_database('none_exists => true');
starts_at_clock('none exists: at the clock');

# It is dropped while others mint, and the server dies some IDs later: at once, or when that takes longer
# than the keeper needs to find out.  With a clock that is behind, all goes on above what was minted,
# before or after the clock is set right.
my $clear = qr/(?:
	the\ database\ of\ the\ snowflake\ reservation\ does\ not\ exist
	|the\ snowflake\ reservation\ of\ this\ server\ is\ not\ in\ the\ database\ "kept"
	|the\ snowflake\ (?:generator\ was\ not\ ready|reservation\ was\ not\ extended)\ within\ \d+\ ms
	)/x;
my @ids;

sub try_to_mint
{
	my $error = refused($node, '1s');

	push @ids, $error->{stdout} =~ /^(\d+)$/m;
	return $error;
}

# How many IDs the sessions have written down
sub minted
{
	return scalar(() = map { slurp_file($_->{ids}) =~ /\n/g } @_);
}

my $accepted = 0;

sql('CREATE DATABASE kept');
mint();
move_to('kept');
accept_database($newest);
foreach
  my $case ([ 'DROP EXTENSION snowflake_keeper', 0 ], [ 'DROP DATABASE kept WITH (FORCE)', 5_000 ])
{
	my ($sql, $more) = @$case;
	my @minters = map { start_minter($node, 100_000) } 1 .. 2;

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
	push @ids, map { @{ finish_minter($_) } } @minters;
	is(join(' ', grep { !/^$clear/ } map { $_->{errors} =~ /ERROR:  (.*)/g } @minters),
		'', "$sql, $more more IDs: minting goes on, or says why not");
	($newest) = sort { $b <=> $a } @ids;
	step_clock($clock, -30_000);
	start_after_kill($node, $clock);
	my $error = try_to_mint();
	ok( $error->{sqlstate} eq '' ? $ids[-1] > $newest : $error->{message} =~ /^$clear/,
		'after a crash, the clock being behind: an ID above, or the reason why not'
	) or diag("$ids[-1], before $newest; $error->{sqlstate} $error->{message}");

	# what an administrator does
	step_clock($clock, 30_000) if $more == 0;
	sql('CREATE DATABASE kept') if $sql =~ /DATABASE/;
	wait_until(
		'minting goes on',
		sub {
			if (try_to_mint()->{message} =~ /is not in the database/)
			{
				accept_database($newest);
				$accepted++;
			}
			return $ids[-1] > $newest;
		});
	step_clock($clock, 30_000) if $more > 0;
}
cmp_ok($accepted, '>', 0, 'a loss was accepted');
is(duplicates(\@ids), 0, scalar(@ids) . ' IDs, none came twice');

done_testing();
