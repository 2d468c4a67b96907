# A table whose keys are IDs, and what its readers are delivered

package SnowflakeEvents;

use strict;
use warnings;

use Exporter qw(import);
use SnowflakeTest qw(query session);

our @EXPORT = qw(create_events insert open_row tail);

# The table "events", and the view "settled" of what the frontier has passed
sub create_events
{
	my ($node) = @_;

	query(
		$node, q{
		CREATE TABLE events (id snowflake PRIMARY KEY DEFAULT snowflake_next(), what text);
		CREATE VIEW settled AS SELECT * FROM events WHERE id <= snowflake_frontier()});
	return;
}

sub insert
{
	my ($node, $what) = @_;

	query($node, "INSERT INTO events (what) VALUES ('$what')");
	return;
}

# A session with a row that is not committed yet
sub open_row
{
	my ($node, $what) = @_;

	return session($node, "BEGIN; INSERT INTO events (what) VALUES ('$what')");
}

# What is delivered to whoever starts from nothing
sub tail
{
	my ($node) = @_;

	return query($node, q{SELECT coalesce(string_agg(what, ' ' ORDER BY id), '') FROM settled});
}

1;
