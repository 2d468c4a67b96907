# A reservation that is lost for good, and what exists is said by an administrator:
# nothing comes at or below the largest ID, whatever the clock says, whichever node ID
# it had, and whenever the server dies.  What cannot be right is refused.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(
  error_at_once error_of new_clock new_node start_with_clock status step_clock wait_for_mint wait_for_status
);
use Test::More;

my $hour = 3_600_000;
my $node = new_node(
	'main', conf => q{
	snowflake.reservation = '1s'
	snowflake.max_wait = '10s'
});
my $clock = new_clock('main');
my $newest;

sub query
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', $sql);
}

sub accept_error
{
	my ($arguments, $settings) = @_;

	return error_of($node, ($settings // '') . "SELECT snowflake_accept_database($arguments)");
}

sub restart_until
{
	my ($gate, $mode) = @_;

	$node->stop($mode // 'immediate');
	start_with_clock($node, $clock);
	$node->poll_query_until('postgres', "SELECT gate ~ '$gate' FROM snowflake_status")
	  or die "gate is not $gate";
	return;
}

# The table is dropped, and the server crashes before the keeper writes it again.
sub lose
{
	query('DROP EXTENSION snowflake_keeper');
	restart_until('not in snowflake.database');
	return;
}

sub set_node
{
	my ($node_id) = @_;

	query("ALTER SYSTEM SET snowflake.node_id = $node_id");
	$node->reload;
	$node->poll_query_until('postgres', "SELECT node = $node_id FROM snowflake_status")
	  or die "no node $node_id";
	return;
}

start_with_clock($node, $clock);
query('CREATE EXTENSION snowflake');
query('SELECT snowflake_next()');

# The newest ID is an hour ahead of the clock.
query(q{SELECT snowflake_advance(snowflake_lower_bound(now() + interval '1 hour'), force => true)});
$newest = query('SELECT snowflake_next()');
lose();

# What only an administrator can end is not waited for.
is(error_at_once($node)->{sqlstate}, '55000', 'a reservation is lost: a mint is refused at once');

# What has to be said
foreach my $arguments ('', 'NULL', 'NULL, false', '(SELECT max(1) WHERE false)')
{
	my $error = accept_error($arguments);

	is( "$error->{sqlstate} $error->{message}",
		'22004 the largest snowflake that exists must be given',
		"snowflake_accept_database($arguments) is refused");
	like(
		$error->{hint},
		qr/with the largest of all tables and databases, or with none_exists => true/,
		'and says what to do');
}
my $error = accept_error("$newest, true");
is($error->{sqlstate}, '22023', 'a largest ID, and none exists: refused');
is(accept_error(-1)->{sqlstate}, '22003', 'a negative number: refused');
is(accept_error('9223372036854775807')->{sqlstate}, '22003', 'the end of the layout: refused');

# A number of another layout mostly is far away.
$error = accept_error(query(q{SELECT snowflake_lower_bound(now() + interval '3 days')}));
is($error->{sqlstate}, '22023', 'three days ahead: refused');
like($error->{message}, qr/^snowflake \d+ is 3\.0 days ahead of the clock$/, 'with the number');
like(
	$error->{detail},
	qr/may be ahead by 86400\.000 s \(snowflake\.max_ahead\), so nothing could be minted for another (?:2\.0 days|172[67]\d\d\.\d+ s)\.$/,
	'and for how long it would be');
like(status($node, 'gate'), qr/not in snowflake\.database/, 'nothing came of any of them');

# A keeper that cannot write: the call fails, and the server crashes.
query('CREATE EXTENSION snowflake_keeper');
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
$error = accept_error($newest, q{SET snowflake.max_wait = '500ms'; });
like(
	$error->{message},
	qr/^snowflake_accept_database\(\) did not finish within 500 ms$/,
	'the keeper cannot write: an error');
restart_until('not in snowflake.database');
pass('and a crash: the reservation is as lost as it was');
eval { $session->quit };

# One that can write when the call has failed
$session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE snowflake_keeper.reservation');
$error = accept_error($newest, q{SET snowflake.max_wait = '1500ms'; });
is($error->{sqlstate}, '55000', 'the keeper cannot write for longer: an error');
$session->quit;
query('SELECT snowflake_accept_clock()');
like(
	status($node, 'gate'),
	qr/not in snowflake\.database/,
	'what failed is not done after the error');

# Above the largest, an hour ahead of the clock, and durably so
my ($rc, $output, $notes) = $node->psql('postgres', "SELECT snowflake_accept_database($newest)");
is($rc, 0, 'the largest ID is given');
like(
	$notes,
	qr/WARNING:  the snowflake generator is now 3[45]\d\d\.\d+ s ahead of the clock/,
	'with a warning that it is ahead');
cmp_ok(query('SELECT snowflake_next()'), '>', $newest, 'the next one is above it');
restart_until('open');
cmp_ok(query('SELECT snowflake_next()'), '>', $newest, 'also after a crash');

# A node ID of which nothing is known may have minted what was lost.
set_node(2);
$error = error_of($node, 'SELECT snowflake_restart_at_clock(2)');
like(
	$error->{message},
	qr/^snowflakes ahead of the clock may have been minted with node ID 2$/,
	'no other node ID is taken back below it');
cmp_ok(query('SELECT snowflake_next()'), '>', $newest, 'and goes on above');
is( query(
		q{SELECT count(*) FROM snowflake_keeper.reservation WHERE reserved_until < now() + interval '30 minutes'}
	),
	0,
	'all rows say so');

# The same for a node ID that has an older row, as in a database that was the keeper's before.
query('CREATE DATABASE other');
$node->append_conf('postgresql.conf', 'snowflake.database = other');
restart_until('not in snowflake.database', 'fast');
query("SELECT snowflake_accept_database($newest)");
query(
	q{SELECT snowflake_advance(snowflake_lower_bound(now() + interval '2 hours'), force => true)});
$newest = query('SELECT snowflake_next()');
$node->append_conf('postgresql.conf', 'snowflake.database = postgres');
restart_until('not in snowflake.database', 'fast');

# not while a clock that the administrator sees is not believed
query('SELECT gate FROM snowflake_status');
step_clock($clock, 50 * $hour);
$error = accept_error($newest);
like(
	$error->{message},
	qr/^the clock went ahead by .*, which is not believed$/,
	'not by a clock that is not believed');
step_clock($clock, -50 * $hour);
query("SELECT snowflake_accept_database($newest)");
is( query(
		"SELECT count(*) FROM snowflake_keeper.reservation WHERE reserved_until < snowflake_timestamp($newest)"
	),
	0,
	'moved back: old rows are raised');
cmp_ok(query('SELECT snowflake_next()'), '>', $newest, 'and minting goes on above');

# To and fro once more, and the second time less is said than is known
$node->append_conf('postgresql.conf', 'snowflake.database = other');
restart_until('not in snowflake.database', 'fast');
query("SELECT snowflake_accept_database($newest)");
$node->append_conf('postgresql.conf', 'snowflake.database = postgres');
restart_until('not in snowflake.database', 'fast');
query('SELECT snowflake_accept_database(snowflake_lower_bound(now()))');
is( query(
		"SELECT count(*) FROM snowflake_keeper.reservation WHERE reserved_until < snowflake_timestamp($newest)"
	),
	0,
	'a smaller largest ID lowers no row, and not what counts for those that have none');

# An open gate: nothing is lost, but the promise is kept.
my $larger = query(q{SELECT snowflake_lower_bound(now() + interval '3 hours')});
($rc, $output, $notes) = $node->psql('postgres', "SELECT snowflake_accept_database($larger)");
like(
	$notes,
	qr/NOTICE:  the snowflake reservation is in the configured database already/,
	'nothing is lost: a notice');
cmp_ok(query('SELECT snowflake_next()'), '>', $larger, 'minting goes on above all the same');

# A clock that is behind, and an ID of another node and of long ago
lose();
$node->stop('fast');
step_clock($clock, -$hour);
start_with_clock($node, $clock);
$node->poll_query_until('postgres',
	q{SELECT gate ~ 'not in snowflake.database' FROM snowflake_status})
  or die 'gate is not closed';
my $right = query(q{SELECT snowflake_upper_bound(now() + interval '4 hours')});
query("SELECT snowflake_accept_database($right)");
cmp_ok(query('SELECT snowflake_next()'),
	'>', $right, 'the clock is five hours behind: above all the same');
lose();
($rc, $output, $notes) = $node->psql('postgres',
	q{SELECT snowflake_accept_database(snowflake_lower_bound(now() - interval '30 days'))});
like(
	$notes,
	qr/WARNING:  minting starts at the clock, 30\.0 days after snowflake \d+/,
	'an ID of long ago: a warning');
query('SELECT snowflake_next()');
cmp_ok(abs(status($node, 'extract(epoch FROM lead)')), '<', 600, 'and minting starts at the clock');

# None exists.
lose();
query('SELECT snowflake_accept_database(none_exists => true)');
query('SELECT snowflake_next()');
cmp_ok(abs(status($node, 'extract(epoch FROM lead)')), '<', 600, 'none exists: at the clock');

# IDs may be ahead by snowflake.max_lead in any case, so the largest may be.
$node->append_conf('postgresql.conf', "snowflake.max_ahead = 0\nsnowflake.max_lead = '1h'");
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('snowflake.max_lead') = '1h'})
  or die 'reload has no effect';
$larger = query(q{SELECT snowflake_lower_bound(now() + interval '30 min')});
is(accept_error($larger)->{message}, '', 'ahead by less than max_lead: accepted');
cmp_ok(query('SELECT snowflake_next()'), '>', $larger, 'and minting goes on above');

# Back in the first database, whose table nobody has lost: a node ID without a row may have been
# used in the other one.
my $moved = new_node('moved');
$moved->start;
$moved->safe_psql('postgres', $_) foreach 'CREATE EXTENSION snowflake', 'CREATE DATABASE other';
wait_for_mint($moved);
foreach my $database ('other', 'postgres')
{
	$newest = $moved->safe_psql('postgres', 'SELECT snowflake_next()');
	$moved->append_conf('postgresql.conf', "snowflake.database = $database");
	$moved->restart;
	wait_for_status($moved, q{gate ~ 'not in snowflake.database'});

	# the one that has it may be gone
	if ($database eq 'postgres')
	{
		$moved->safe_psql('postgres', 'DROP DATABASE other');
		like(
			error_of($moved, 'SELECT snowflake_next()')->{detail},
			qr/^It was last seen in the database with OID \d+, which was dropped\.$/,
			'the database that had the reservation was dropped: the error says so');
	}
	$moved->safe_psql('postgres', "SELECT snowflake_accept_database($newest)");
}
is( $moved->safe_psql(
		'postgres',
		"SELECT reserved_until >= snowflake_timestamp($newest) FROM snowflake_keeper.reservation WHERE node = -1"
	),
	't',
	'all node IDs without a row have what was said');
$moved->stop;

$node->stop;
done_testing();
