# TimescaleDB, from the source tree TIMESCALE_SOURCE; without one the test is skipped.
# The statements of doc/tools.md are run as they are written there, and what its table
# says is checked.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest;
use SnowflakeTrial qw(trial_of);
use Test::More;

my $installation = trial_of('TIMESCALE_SOURCE',
	'cmake -S . -B scratch -DPG_CONFIG=$PG_CONFIG -DREGRESS_CHECKS=OFF -DWARNINGS_AS_ERRORS=OFF -DCMAKE_BUILD_TYPE=Release'
	  . ' && make -s -C scratch && make -s -C scratch install');
my ($section) =
  slurp_file("$FindBin::RealBin/../../doc/tools.md") =~ /^## TimescaleDB\n(.*?)^## /ms;
my @blocks = $section =~ /^```sql\n(.*?)^```$/msg;
my $node = new_node(
	'main',
	new => { install_path => $installation },
	conf =>
	  "shared_preload_libraries = 'timescaledb, snowflake'\ntimescaledb.telemetry_level = off\ntimezone = 'UTC'\n"
);

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowflake; CREATE EXTENSION timescaledb');
wait_for_mint($node);
diag 'TimescaleDB ' . sql(q{SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'});

sub sql
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', $sql);
}

# How many chunks of a table a query does not read
sub skipped
{
	my ($table, $condition) = @_;
	my $plan = sql("EXPLAIN (COSTS OFF) SELECT * FROM $table WHERE $condition");
	my %read = map { $_ => 1 } $plan =~ /on (_hyper_\d+_\d+_chunk)/g;

	return sql("SELECT count(*) FROM show_chunks('$table')") - keys %read;
}

is(scalar @blocks, 2, 'what the page has');
sql($_) foreach @blocks;
foreach my $table ('events', 'typed_events')
{
	sql(qq{
		INSERT INTO $table SELECT snowflake_lower_bound(date_trunc('day', now()) - n * interval '1 day'), 'day ' || n FROM generate_series(1, 9) n;
		INSERT INTO $table (what) VALUES ('now')});
	cmp_ok(sql("SELECT count(*) FROM show_chunks('$table')"),
		'>=', 10, "$table: a chunk for each day");
	cmp_ok(skipped($table, q{id = snowflake_lower_bound(current_date - 3)}),
		'>', 0, "$table: one ID")
	  if $table eq 'events';
}
my $constant = sql(q{SELECT format('id >= %L', snowflake_lower_bound(current_date - 2))});
cmp_ok(skipped('events', $constant), '>=', 5, 'bigint: a constant');
cmp_ok(skipped('events', q{id >= snowflake_lower_bound(now() - interval '2 days')}),
	'>=', 5, 'bigint: a time that is known when the query starts');
$constant = sql(q{SELECT format('@@ id >= timestamptz %L', current_date - 2)});
cmp_ok(skipped('typed_events', $constant), '>=', 5, 'snowflake: a constant time');
is(skipped('typed_events', q{@@ id >= now() - interval '2 days'}), 0, 'snowflake: not now()');
cmp_ok(
	skipped(
		'typed_events',
		q{event_time(id) >= now() - interval '2 days' AND @@ id >= now() - interval '2 days'}),
	'>=', 5,
	'but with the function');

# what is old
cmp_ok(sql(q{SELECT count(*) FROM drop_chunks('typed_events', older_than => interval '5 days')}),
	'>=', 3, 'snowflake: dropped by an interval');
cmp_ok(
	sql(q{SELECT count(*) FROM drop_chunks('events', older_than => snowflake_lower_bound(now() - interval '5 days')::bigint)}
	),
	'>=', 3,
	'bigint: by a number');

# aggregates, continuous and otherwise
sql('CREATE MATERIALIZED VIEW per_day WITH (timescaledb.continuous) AS SELECT time_bucket(362387865600000, id) AS day, count(*) FROM events GROUP BY 1'
);
is(sql('SELECT sum(count) = (SELECT count(*) FROM events) FROM per_day'),
	't', 'bigint: a continuous aggregate');
like(
	error_of($node,
		q{CREATE MATERIALIZED VIEW typed_per_day WITH (timescaledb.continuous) AS SELECT time_bucket('1 day', event_time(id)) AS day, count(*) FROM typed_events GROUP BY 1}
	)->{message},
	qr/custom partitioning functions not supported/,
	'snowflake: none');
like(
	sql('SELECT first(what, id), last(what, id) FROM events'),
	qr/^day \d\|now$/,
	'bigint: first() and last()');
like(
	error_of($node, 'SELECT first(what, id) FROM typed_events')->{message},
	qr/sort operator/,
	'snowflake: not as it is');
is(sql('SELECT last(what, id::bigint) FROM typed_events'), 'now', 'but as bigint');

foreach my $table ('events', 'typed_events')
{
	sql("ALTER TABLE $table SET (timescaledb.compress); SELECT compress_chunk(c) FROM show_chunks('$table') c"
	);
	is(sql("SELECT count(*) FROM $table WHERE id >= snowflake_lower_bound(current_date)"),
		'1', "$table: columnstore");
}

# the traps
sql(q{
	CREATE TABLE numbers (id snowflake PRIMARY KEY);
	SELECT create_hypertable('numbers', by_range('id', 362387865600000));
	CREATE TABLE years (id snowflake PRIMARY KEY);
	SELECT create_hypertable('years', by_range('id', 362387865600000, partition_func => 'event_time'));
	INSERT INTO numbers SELECT id FROM typed_events;
	INSERT INTO years SELECT id FROM typed_events});
like(
	error_of($node, q{SELECT set_integer_now_func('numbers', 'newest_id')})->{message},
	qr/custom time function not supported/,
	'an interval of numbers on a snowflake: no function for now');
like(
	error_of($node, q{SELECT drop_chunks('numbers', older_than => 5::bigint)})->{message},
	qr/invalid time argument type/,
	'nothing is dropped');
is(sql(q{SELECT count(*) FROM show_chunks('years')}), '1', 'with a function the chunk is of years');

$node->stop;
done_testing();
