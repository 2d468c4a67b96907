# A server whose time stands still, but for what a test lets pass: however long a busy machine takes, times
# can be compared.  All of them are in milliseconds, and $second to $year are so many.  A mint does not wait
# for the clock (snowflake.max_wait is 0 in its session), and for the keeper as long as it takes.
#
#   my $server = SnowflakeClock->new('main', conf => "snowflake.max_ahead = '1h'");
#
#   $server->step(-5_000);
#   $server->mints('a step back: IDs stand', 5_000);
#   $server->wait_ms(5_000);
#   $server->mints('the clock has caught up', 0);

package SnowflakeClock;

use strict;
use warnings;

use Exporter 'import';
use SnowflakeTest qw(
  disorder finish_statement let_pass look minting_node new_clock query set_conf start_minter start_statement
  start_with_clock status step_clock stop_time wait_for_gate wait_for_status
);
use Test::More ();

our @EXPORT = qw($second $minute $hour $day $year);
our $second = 1_000;
our $minute = 60 * $second;
our $hour = 60 * $minute;
our $day = 24 * $hour;
our $year = 365 * $day;

# Parameters are those of SnowflakeTest::minting_node().
sub new
{
	my ($class, $name, %params) = @_;
	my $clock = new_clock($name);
	my $self = bless { clock => $clock, ids => [] }, $class;

	$self->{node} = minting_node($name, %params, clock => $clock);
	$self->open_session;
	stop_time($clock);
	look($self->{node});
	return $self;
}

sub node { return $_[0]{node}; }
sub clock { return $_[0]{clock}; }

# A session that mints without waiting for the clock.
sub open_session
{
	my ($self) = @_;

	$self->{session} = $self->{node}->background_psql('postgres', on_error_stop => 0);
	$self->{session}->query_safe('\set VERBOSITY verbose');
	$self->{session}->query_safe('SET snowflake.max_wait = 0');
	return;
}

# The clock moves, and the keeper does not look before there is a reason.
sub step
{
	my ($self, $ms) = @_;

	step_clock($self->{clock}, $ms);
	return;
}

# Time passes, for all clocks.
sub wait_ms
{
	my ($self, $ms) = @_;

	let_pass($self->{clock}, $ms);
	return;
}

# So much time, bit by bit, with a look of the keeper after each.
sub wait_watched
{
	my ($self, $ms, $bits) = @_;

	foreach (1 .. $bits)
	{
		$self->wait_ms($ms / $bits);
		look($self->{node});
	}
	return;
}

# The keeper looks at the clock; returns what snowflake_status calls its state.
sub clock_state
{
	my ($self) = @_;

	look($self->{node});
	return status($self->{node}, 'clock_state');
}

sub set
{
	my ($self, %settings) = @_;

	set_conf($self->{node}, map { ("snowflake.$_" => $settings{$_}) } keys %settings);
	look($self->{node}) if status($self->{node}, 'gate') eq 'open';
	return;
}

# An administrator believes the clock.
sub believe
{
	my ($self) = @_;

	query($self->{node}, 'SELECT snowflake_accept_clock()');
	return;
}

# Stop in that mode, step the clock, start, and wait for the gate.
sub restart
{
	my ($self, $mode, $ms, $gate) = @_;

	$self->{session}->quit;
	$self->{node}->stop($mode);
	$self->step($ms // 0);
	start_with_clock($self->{node}, $self->{clock});
	wait_for_gate($self->{node}, $gate // 'open');
	$self->open_session;
	return;
}

# Mint once.  Returns by how much the ID is ahead of the clock, or undef and the error.
sub mint
{
	my ($self) = @_;
	my $session = $self->{session};

	$session->{stderr} = '';
	my $output = $session->query(
		q{SELECT round(1000 * extract(epoch FROM (@@ m.id) - clock_timestamp())) || ' ' || m.id
			FROM (SELECT snowflake_next() AS id OFFSET 0) m});
	return (undef, $session->{stderr}) if $output !~ /^(-?\d+) (\d+)$/;
	push @{ $self->{ids} }, $2;
	return ($1, '');
}

# Start a mint that may wait for so long, and wait until it waits for the clock.
sub start_mint
{
	my ($self, $max_wait) = @_;
	my $waits = status($self->{node}, 'clock_waits');
	my $minter = start_minter($self->{node}, 1, max_wait => $max_wait);

	wait_for_status($self->{node}, "clock_waits > $waits");
	return $minter;
}

# A mint gets an ID at once, which is ahead of the clock by so much, or nearly.
sub mints
{
	my ($self, $what, $ms, $nearly) = @_;
	my ($ahead, $error) = $self->mint;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return Test::More::ok(defined $ahead && abs($ahead - $ms) < ($nearly // 5_000), $what)
	  || Test::More::diag(defined $ahead ? "ahead by $ahead ms, not $ms" : $error);
}

# A mint is refused, with an error that is like that.
sub refuses
{
	my ($self, $what, @regexps) = @_;
	my ($ahead, $error) = $self->mint;
	my $ok = !defined $ahead && !grep { $error !~ $_ } qr/ERROR:  (?:55000|2200H)/, @regexps;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return Test::More::ok($ok, $what)
	  || Test::More::diag(defined $ahead ? "ahead by $ahead ms" : "$error, not @regexps");
}

# The same, where the gate is closed: then a mint waits for a second.
sub refuses_closed
{
	my ($self, $what, @regexps) = @_;
	my $waits = status($self->{node}, 'keeper_waits');

	$self->{session}{stderr} = '';
	start_statement($self->{session}, 'SELECT snowflake_next()');
	wait_for_status($self->{node}, "keeper_waits > $waits");
	$self->wait_ms(1_100);
	my $id = finish_statement($self->{session});
	my $error = $self->{session}{stderr};

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return Test::More::ok($error ne '' && !grep({ $error !~ $_ } @regexps), $what)
	  || Test::More::diag("$id$error, not @regexps");
}

# The end: all IDs that were minted so ascend.
sub stop
{
	my ($self) = @_;
	my $ids = $self->{ids};

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	Test::More::is(disorder($ids), 0, scalar(@$ids) . ' IDs, each larger than the one before');
	$self->{session}->quit;
	$self->{node}->stop('immediate');
	return;
}

1;
