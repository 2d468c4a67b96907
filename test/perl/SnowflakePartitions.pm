# For the tests of snowflake_partitions: a server with a role "owner", the schema "app" of which is the first
# in its search_path, and a schema "evil", in which what unqualified names could find raises an error.  Times
# are in UTC if nothing else is said.

package SnowflakePartitions;

use strict;
use warnings;

use Carp;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use SnowflakeTest qw(error_in minting_node query start_statement wait_for_query);

our @EXPORT_OK = qw(
  bounds complaints due fails kill_session look_after maintain maintain_at names owner_session
  partitions_node run_script sql start_run
);

my $node;
my $path = 'SET search_path = app, public;';

sub partitions_node
{
	$node = minting_node('main',
		conf =>
		  "max_worker_processes = 10\ndeadlock_timeout = '50ms'\ntimezone = 'UTC'\nsnowflake.max_wait = '1min'\n"
	);
	query(
		$node, q{
		CREATE ROLE owner LOGIN;
		CREATE FUNCTION public.trap(integer, interval) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
		CREATE OPERATOR public.* (LEFTARG = integer, RIGHTARG = interval, FUNCTION = public.trap);
		CREATE SCHEMA app AUTHORIZATION owner;
		GRANT CREATE ON DATABASE postgres TO owner;
		CREATE SCHEMA evil;
		CREATE FUNCTION evil.trap() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
		CREATE FUNCTION evil.format(text, VARIADIC "any") RETURNS text AS 'text_format' LANGUAGE internal;
		CREATE FUNCTION evil.quote_ident(text) RETURNS text LANGUAGE sql AS $$ SELECT evil.trap()::text $$;
		CREATE FUNCTION evil.format(text, text, text) RETURNS text LANGUAGE sql AS $$ SELECT evil.trap()::text $$;
		CREATE FUNCTION evil.format(text, text, text, text) RETURNS text LANGUAGE sql AS $$ SELECT evil.trap()::text $$;
		CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT evil.trap()::text $$;
		CREATE FUNCTION evil.array_position(text[], text) RETURNS integer LANGUAGE sql AS $$ SELECT evil.trap()::text::integer $$;
		CREATE FUNCTION evil.snowflake_lower_bound(timestamptz) RETURNS public.snowflake LANGUAGE sql AS $$ SELECT evil.trap()::text::public.snowflake $$;
		CREATE FUNCTION evil.differ(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.trap()::text = '' $$;
		CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.differ);
		CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.differ);
		CREATE OPERATOR evil.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.differ);
		CREATE FUNCTION evil.append(text[], text) RETURNS text[] LANGUAGE sql AS $$ SELECT evil.trap()::text::text[] $$;
		CREATE OPERATOR evil.|| (LEFTARG = text[], RIGHTARG = text, FUNCTION = evil.append);
		CREATE TABLE evil.pg_class (oid oid);
		CREATE TABLE evil.tables (parent regclass);
		CREATE TYPE evil.regclass AS (a integer);
		GRANT USAGE ON SCHEMA evil TO PUBLIC});
	return $node;
}

# What SQL of the owner returns
sub sql
{
	my ($answer, $error) = $node->ask("$path $_[0]", 'postgres', 'owner');

	croak $error if $error =~ /(?:ERROR|FATAL):  /;
	return $answer;
}

# The error of SQL of the owner
sub fails
{
	return error_in($node->ask("\\set VERBOSITY verbose\n$path $_[0]", 'postgres', 'owner'));
}

# What psql prints, and what it complains of, for statements of the owner that cannot be in a
# transaction, or are to go on after errors
sub run_script
{
	my ($sql) = @_;
	my (undef, $stdout, $stderr) = $node->psql(
		'postgres', "$path\n$sql\n",
		connstr => $node->connstr('postgres') . ' user=owner',
		on_error_stop => 0);

	return ($stdout, $stderr);
}

# A new row of snowflake_partitions.tables: of that table, with that period, and other columns
sub look_after
{
	my ($table, $period, %columns) = @_;
	%columns = (parent => $table, period => $period, time_zone => 'UTC', %columns);
	my @names = sort keys %columns;

	sql(sprintf 'INSERT INTO snowflake_partitions.tables (%s) VALUES (%s)',
		join(', ', @names),
		join(', ', map { "'" . $columns{$_} =~ s/'/''/gr . "'" } @names));
	return;
}

# Run maintain() with those arguments, and those settings, for as long as it takes.
sub maintain
{
	my ($arguments, $settings) = @_;
	my $more = ($arguments // '') eq '' ? '' : ", $arguments";

	sql(($settings // '')
		. "CALL snowflake_partitions.maintain(tries => 600, pause => interval '100 ms'$more)");
	return;
}

sub maintain_at
{
	my ($time) = @_;

	maintain("at => '$time'");
	return;
}

# What maintain() complains of at that time
sub complaints
{
	my ($time, $arguments) = @_;

	return (
		run_script("CALL snowflake_partitions.maintain(at => '$time'" . ($arguments // '') . ')'))
	  [1];
}

# What is due at that time, where a condition is true of it
sub due
{
	my ($time, $condition) = @_;

	return sql(
		"SELECT what FROM snowflake_partitions.due('$time') WHERE " . ($condition // 'true'));
}

# Where the partitions of a table begin and end, in a time zone
sub bounds
{
	my ($table, $zone, $condition) = @_;

	return sql(
		"SET timezone = '$zone';
		SELECT partition, snowflake_timestamp(lower(ids)), snowflake_timestamp(upper(ids))
		  FROM snowflake_partitions.existing('$table') WHERE "
		  . ($condition // 'true') . ' ORDER BY ids');
}

# Their names, but for the default one
sub names
{
	my ($table) = @_;

	return sql(
		"SELECT string_agg(partition::text, ' ' ORDER BY ids) FROM snowflake_partitions.existing('$table') WHERE NOT is_default"
	);
}

# A session of the owner, and its process ID
sub owner_session
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	return ($session, $session->query_safe('SET ROLE owner; SELECT pg_backend_pid()'));
}

# Start a run in a session of its own, and wait until this is true of it, or it has ended
sub start_run
{
	my ($arguments, $condition) = @_;
	my ($run, $pid) = owner_session();

	start_statement($run, "CALL snowflake_partitions.maintain($arguments)");
	wait_for_query($node,
		"SELECT $condition OR (state = 'idle' AND query LIKE 'CALL%') FROM pg_stat_activity WHERE pid = $pid"
	);
	return $run;
}

# Kill a session that waits for a lock.
sub kill_session
{
	my ($session, $pid) = @_;
	my $activity = "FROM pg_stat_activity WHERE pid = $pid";

	wait_for_query($node, "SELECT wait_event_type = 'Lock' $activity");
	query($node, "SELECT pg_terminate_backend($pid)");
	wait_for_query($node, "SELECT NOT EXISTS (SELECT $activity)");
	eval { $session->quit };
	return;
}

1;
