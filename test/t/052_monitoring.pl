# The files of monitoring/ fit snowflake_status: the queries for postgres_exporter run
# as a member of pg_monitor and return exactly the columns that they declare, no column
# of the status is missing, alerts and the dashboard use metrics that exist, and any
# role can run the report for people.  The reference explains each column.

use CPAN::Meta::YAML;
use JSON::PP;
use SnowflakeTest;

my $monitoring = 'monitoring';

# Columns of snowflake_status that no query needs, and why.
my %left_out = (
	last_id => 'a double cannot hold it; last_time has its time',
	frontier => 'so with it; frontier_lag has what matters',
	frontier_holder => 'a process is no number to draw',
	node_origin => 'a text for people, which may change');

my %numeric = map { $_ => 1 } ('integer', 'bigint', 'double precision');

my $node = new_node('main', node_id => 7);

$node->start;
query(
	$node, q{
	CREATE EXTENSION snowflake;
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	CREATE ROLE ordinary LOGIN;
});

my $exporter = CPAN::Meta::YAML->read("$monitoring/postgres_exporter.yaml")->[0];
wait_for_mint($node);

# The columns of a query, with their types.
sub columns_of
{
	my ($query) = @_;

	return map { split /\|/ } split /\n/,
	  query($node, "$query \\gdesc", extra_params => [ '-U', 'watcher' ]);
}

# The status of the report for people, run as a role; returns its lines.
sub report
{
	my ($role) = @_;
	my ($ret, $stdout, $stderr) = $node->psql(
		'postgres', undef,
		on_error_die => 0,
		extra_params => [ '-v', 'ON_ERROR_STOP=1', '-U', $role, '-f', "$monitoring/status.sql" ]);

	is("$ret|$stderr", '0|', "the report runs as $role");
	return $stdout;
}

# The metrics
my @queries;
my %exported;

foreach my $name (sort keys %$exporter)
{
	my $namespace = $exporter->{$name};
	my %columns = columns_of($namespace->{query});
	my %declared = map { %$_ } @{ $namespace->{metrics} };
	my @wrong;

	push @queries, $namespace->{query};
	is( join(' ', sort keys %columns),
		join(' ', sort keys %declared),
		"$name: the query has the columns that are declared");

	foreach my $column (sort keys %declared)
	{
		my $usage = $declared{$column}{usage};
		my $type = $columns{$column} || '';

		if ($usage eq 'LABEL')
		{
			push @wrong, "$column is a label, but of type $type"
			  unless $type eq 'text';
			next;
		}
		push @wrong, "$column is of type $type" unless $numeric{$type};
		push @wrong, "$column has the name of another usage"
		  if ($usage eq 'COUNTER') != ($column =~ /(?:^|_)total$/);
		$exported{"${name}_$column"} = $usage;
	}
	is("@wrong", '', "$name: each has a fitting type");

	next if $name ne 'snowflake';
	my $unknown = query(
		$node,
		"SELECT string_agg(key, ' ') FROM ($namespace->{query}) q, json_each_text(row_to_json(q))
			WHERE value IS NULL AND key !~ '^(lease|coordinator)_'",
		user => 'watcher');
	is($unknown, '', "$name: each is known to a member of pg_monitor");
}

my @columns = split /\n/,
  query($node,
	q{SELECT attname FROM pg_attribute WHERE attnum > 0 AND attrelid IN ('snowflake_status'::regclass, 'snowflake_stats'::regclass)}
  );
my @forgotten = grep {
	my $column = $_;
	!exists $left_out{$column} && !grep { /\b$column\b/ } @queries
} @columns;
is("@forgotten", '', 'no column of snowflake_status is forgotten');

# The reference explains each of them, and each that snowflake_fleet() returns
my $reference = slurp_file('doc/reference.md');
my %explained = (
	snowflake_status => 'SELECT * FROM snowflake_status',
	snowflake_stats => 'SELECT * FROM snowflake_stats',
	snowflake_fleet => 'SELECT * FROM snowflake_fleet()');

foreach my $name (sort keys %explained)
{
	my ($section) = $reference =~ /^### The columns of $name\n(.*?)^##/ms;
	my %columns = map { split /\|/ } split /\n/, query($node, "$explained{$name} \\gdesc");
	my %in_section = map { $_ => 1 } map { /`(\w+)`/g } $section =~ /^\| (`.*?) \|/mg;

	is( join(' ', sort keys %in_section),
		join(' ', sort keys %columns),
		"doc/reference.md explains the columns of $name");
}

# The alerts
my $alerts = CPAN::Meta::YAML->read("$monitoring/alerts.yaml")->[0];
my @unknown;
my %about;

foreach my $rule (map { @{ $_->{rules} } } @{ $alerts->{groups} })
{
	my @metrics = $rule->{expr} =~ /\b(snowflake_\w+)/g;

	push @unknown, "$rule->{alert}: no metric" unless @metrics;
	push @unknown, map { "$rule->{alert}: $_" } grep { !$exported{$_} } @metrics;
	$about{ $rule->{alert} } = 1;
	push @unknown, "$rule->{alert}: no runbook" unless $rule->{annotations}{runbook};
}
is("@unknown", '', 'alerts are about metrics that are exported, and have a section to read');
my $doc = slurp_file('doc/running.md');
is( join(' ', sort keys %about),
	join(' ', sort($doc =~ /^\| (Snowflake\w+) /mg)),
	'doc/running.md has all of them');

# The dashboard
my $dashboard = decode_json(slurp_file("$monitoring/grafana.json"));
my %is_shown;

@unknown = ();
foreach my $panel (grep { $_->{type} ne 'row' } @{ $dashboard->{panels} })
{
	foreach my $expr (map { $_->{expr} } @{ $panel->{targets} })
	{
		my @metrics = $expr =~ /\b(snowflake_\w+)/g;

		@is_shown{@metrics} = ();
		push @unknown, map { "$panel->{title}: $_" } grep { !$exported{$_} } @metrics;
	}
}
is(join("\n", @unknown), '', 'the dashboard is about metrics that are exported');
is(join(' ', grep { !exists $is_shown{$_} } sort keys %exported), '', 'and shows all of them');

# The report
my $id = query($node, 'SELECT snowflake_next()');
like(
	report('watcher'),
	qr/\Asnowflake: healthy\n.*^  node ID +7\n.*^  minted +[1-9].*^  snowflake  $id\n.*^  d  sequence /ms,
	'watcher: a headline, the node ID, numbers and the newest ID');
my $report = report('ordinary');
like(
	$report,
	qr/\Asnowflake: healthy\n.*pg_monitor/,
	'ordinary: with the same headline, and why there is less');
unlike($report, qr/$id|^  minted +[0-9]/m, 'ordinary: no numbers');
change_node_id($node, -1);
my $advice = status($node, 'advice');
like(report('ordinary'), qr/\Asnowflake: \Q$advice\E\n/, 'advice is the headline');

done_testing();
