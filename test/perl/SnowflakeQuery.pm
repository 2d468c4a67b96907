# What a test asks a server: in the database "postgres", unless the option dbname names another one.

package SnowflakeQuery;

use strict;
use warnings;

use Carp;
use Exporter 'import';
use PostgreSQL::Test::Utils;
use Test::More ();

our @EXPORT = qw(
  advance error_at_once error_in error_of extend finish_statement id_at log_count look members
  mint mint_many query refused refuses said session start_statement status table wait_for_gate
  wait_for_mint wait_for_query wait_for_status waits
);

# Is this asked in a session that is kept?  A SELECT is, also after settings.
sub is_for_kept
{
	my ($node, $sql) = @_;

	return
		 $node->isa('SnowflakeNode')
	  && !defined $ENV{PGOPTIONS}
	  && $sql =~ /\A(?:\s*SET [\w.]+ = [^;\\]*;)*\s*SELECT\b[^;\\]*;?\s*\z/;
}

# What SQL returns.  Options are a database, the user who connects, and those of safe_psql().
sub query
{
	my ($node, $sql, %params) = @_;

	if (!%params && is_for_kept($node, $sql))
	{
		my ($answer, $error) = $sql =~ /;/ ? $node->ask($sql) : $node->look($sql);

		croak $error
		  if ($error // '') =~ /(?:ERROR|FATAL):  |connection to server was lost/;
		return $answer if defined $answer;
	}
	my $dbname = delete $params{dbname} // 'postgres';
	my $user = delete $params{user};
	$params{connstr} = $node->connstr($dbname) . " user=$user" if defined $user;
	my $answer = $node->safe_psql($dbname, $sql, %params);
	$node->end_readers if $sql =~ /pg_reload_conf/ && $node->isa('SnowflakeNode');
	return $answer;
}

# Run SQL that ought to fail.  Returns what psql said about the error: a hash
# of sqlstate, message, detail and hint, all empty if there was no error.  Options are a
# database, and those of psql().
sub error_of
{
	my ($node, $sql, %params) = @_;
	my @said =
	  !%params && is_for_kept($node, $sql) ? $node->ask("\\set VERBOSITY verbose\n$sql") : ();

	(undef, @said) = $node->psql(delete $params{dbname} // 'postgres',
		$sql, %params, extra_params => [ '-v', 'VERBOSITY=verbose' ])
	  if !@said;
	return error_in(@said);
}

# The error in what psql has printed, verbosely.
sub error_in
{
	my ($stdout, $stderr) = @_;
	my %error = map { $_ => '' } qw(sqlstate message detail hint);

	@error{qw(sqlstate message)} = ($1, $2)
	  if $stderr =~ /(?:ERROR|FATAL):  ([0-9A-Z]{5}): (.*)/;
	$error{detail} = $1 if $stderr =~ /^DETAIL:  (.*)/m;
	$error{hint} = $1 if $stderr =~ /^HINT:  (.*)/m;
	$error{stdout} = $stdout;
	return \%error;
}

# Is SQL refused with this SQLSTATE?  A test; further options are those of error_of(), and
# message, detail and hint are regular expressions for these.
sub refuses
{
	my ($node, $sql, $sqlstate, $what, %params) = @_;
	my %like = map { $_ => delete $params{$_} } grep { $params{$_} } qw(message detail hint);
	my $error = error_of($node, $sql, %params);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $ok = $error->{sqlstate} eq $sqlstate
	  && !grep { $error->{$_} !~ $like{$_} } keys %like;
	return Test::More::ok($ok, $what)
	  || Test::More::diag(
		join "\n",
		"not $sqlstate @like{sort keys %like}:",
		@$error{qw(sqlstate message detail hint)});
}

# What a server has to say about SQL: notices, warnings and errors, as psql prints them.
sub said
{
	my ($node, $sql, %params) = @_;

	return ($node->ask($sql, $params{dbname}))[1];
}

# The error of a mint that ought not to wait, though it might wait for long.  If it does,
# that is another error.
sub error_at_once
{
	my ($node) = @_;

	return error_of($node,
		q{SET snowflake.max_wait = '10min'; SET statement_timeout = '20s'; SELECT snowflake_next()}
	);
}

# The cells of a table whose columns are divided by "|", a row on each line.
sub table
{
	my ($text) = @_;

	return map { [ split / *\| */, $_ ] } split /\n/, $text;
}

# A session in which these statements have been run.
sub session
{
	my ($node, @statements) = @_;
	my $session = $node->background_psql('postgres');

	$session->query_safe($_) foreach @statements;
	return $session;
}

# Start a statement that has to wait for something, in a session of background_psql(), or in a
# new one of a node.  Returns the session.
sub start_statement
{
	my ($session, $sql) = @_;

	$session = $session->background_psql('postgres', on_error_stop => 0)
	  if $session->isa('PostgreSQL::Test::Cluster');
	my $output = $session->query_until(qr/^started\n/m, "\\echo started\n$sql;\n\\echo ended\n");

	# it may be quicker than we are
	$session->{stdout} = $output =~ s/^started\n//mr;
	return $session;
}

# Wait until it has ended; returns what it printed.
sub finish_statement
{
	my ($session) = @_;

	return $session->query_until(qr/^ended\n/m, '') =~ s/^ended\n//mr;
}

# Wait until a query returns true, in the database postgres or another one.
sub wait_for_query
{
	my ($node, $sql, %params) = @_;

	$node->poll_query_until($params{dbname} // 'postgres', $sql)
	  or croak "timed out waiting for $sql";
	return;
}

# A column of snowflake_status or of snowflake_stats, or several, or an expression of them.
sub status
{
	my ($node, $column, @params) = @_;

	return query($node, "SELECT $column FROM snowflake_status, snowflake_stats", @params);
}

# Wait until a condition is true of the columns of snowflake_status and snowflake_stats.
sub wait_for_status
{
	my ($node, $condition, %params) = @_;

	$node->poll_query_until($params{dbname} // 'postgres',
		"SELECT $condition FROM snowflake_status, snowflake_stats")
	  or croak "timed out waiting for $condition: "
	  . status($node, 'gate, coordinator, advice', %params);
	return;
}

# Wait until the gate is as a regular expression says, such as "open" or "not set".
sub wait_for_gate
{
	my ($node, $gate, @params) = @_;

	wait_for_status($node, "gate ~ '$gate'", @params);
	return;
}

# Wait until the server mints.  The keeper needs a moment to reserve time
# after a start, longer than a single mint is prepared to wait after a crash.
sub wait_for_mint
{
	my ($node, @params) = @_;

	wait_for_query($node, 'SELECT snowflake_next() IS NOT NULL', @params);
	return;
}

# Mint until the keeper has reserved anew.
sub extend
{
	my ($node, @params) = @_;
	my $reservations = status($node, 'reservations', @params);

	wait_for_query(
		$node,
		"SELECT snowflake_next() IS NOT NULL AND reservations > $reservations FROM snowflake_stats",
		@params);
	return;
}

# The next ID.
sub mint
{
	my ($node) = @_;

	return query($node, 'SELECT snowflake_next()');
}

# The next IDs, so many, of one statement.
sub mint_many
{
	my ($node, $count) = @_;

	return split /\n/, query($node, "SELECT snowflake_next() FROM generate_series(1, $count)");
}

# The error of a mint, all empty if there was none, that is not to wait for longer than that.
sub refused
{
	my ($node, $max_wait) = @_;
	$max_wait //= '100ms';

	return error_of($node, "SET snowflake.max_wait = '$max_wait'; SELECT snowflake_next()");
}

# The last ID of the tick that is so far from the server's time.
sub id_at
{
	my ($node, $interval) = @_;

	return query($node, "SELECT snowflake_upper_bound(clock_timestamp() + interval '$interval')");
}

# Have IDs go on so far from the server's time; returns the ID above which they do.
sub advance
{
	my ($node, $interval) = @_;
	my $id = id_at($node, $interval);

	$node->psql('postgres', "SELECT snowflake_advance($id, force => true)") == 0
	  or croak "IDs are not advanced by $interval";
	return $id;
}

# Have the keeper look at the clock.  Where the gate is open, this does nothing else.
sub look
{
	my ($node) = @_;

	query($node, 'SELECT snowflake_accept_database(none_exists => true)');
	return;
}

# Is there a process of that type that waits for one of these events?  Before PostgreSQL 17, those of
# extensions have one name.
sub waits
{
	my ($node, $backend_type, @events) = @_;
	push @events, 'Extension' if $node->pg_version < 17 && grep { /^Snowflake/ } @events;
	my $events = join ', ', map { "'$_'" } @events;

	return query($node,
		"SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = '$backend_type' AND wait_event IN ($events)"
	) eq 't';
}

# For a FROM: the rows of a catalog, as "m", that are members of the extension,
# or of another one.
sub members
{
	my ($catalog, $extension) = @_;
	$extension //= 'snowflake';

	return qq{$catalog m JOIN pg_catalog.pg_depend d
		ON d.classid = 'pg_catalog.$catalog'::pg_catalog.regclass AND d.objid = m.oid
		AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.deptype = 'e'
		JOIN pg_catalog.pg_extension x ON x.oid = d.refobjid AND x.extname = '$extension'};
}

# How many lines of the log, from an offset on, match a regular expression.
sub log_count
{
	my ($node, $regexp, $offset) = @_;

	return scalar(grep { /$regexp/ } split /\n/, slurp_file($node->logfile, $offset));
}

1;
