# monitoring/ with a real postgres_exporter and a real Prometheus: the alerts fire when they
# should, with the right text; each query of the Grafana dashboard has a result there.

use CPAN::Meta::YAML;
use Cwd;
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use SnowflakeTest;

my $monitoring = getcwd() . '/monitoring';
my $rules_test = "test/tools/alerts.yaml";

foreach my $program (qw(promtool prometheus prometheus-postgres-exporter))
{
	plan skip_all => "no $program" if system("command -v $program >/dev/null") != 0;
}

# The alerts, by themselves
my ($out, $status) = run_promtool('test', 'rules', $rules_test);
is($status, 0, 'promtool: alerts come when they should, and not otherwise') or diag($out);
my $tested = slurp_file($rules_test);
my @alerts = map { $_->{alert} }
  map { @{ $_->{rules} } } @{ CPAN::Meta::YAML->read("$monitoring/alerts.yaml")->[0]{groups} };
is(join(' ', grep { $tested !~ /\b$_\b/ } @alerts), '', 'each of them');

# All of it
my $node = new_node('main', node_id => 7);
$node->start;
$node->safe_psql('postgres',
	'CREATE EXTENSION snowflake; CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
wait_for_mint($node);

my $dir = PostgreSQL::Test::Utils::tempdir();
my $exporter_at = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
my $prometheus_at = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
my %running;

append_to_file("$dir/prometheus.yml", <<"EOT");
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: ['$monitoring/alerts.yaml']
scrape_configs:
  - job_name: snowflake
    static_configs: [{targets: ['$exporter_at']}]
EOT
{
	local $ENV{DATA_SOURCE_NAME} =
	  sprintf 'host=%s port=%d user=watcher dbname=postgres sslmode=disable', $node->host,
	  $node->port;
	start_program(
		'prometheus-postgres-exporter',
		"--extend.query-path=$monitoring/postgres_exporter.yaml",
		'--disable-default-metrics',
		'--disable-settings-metrics',
		"--web.listen-address=$exporter_at");
}
start_program(
	'prometheus', "--config.file=$dir/prometheus.yml",
	"--storage.tsdb.path=$dir/data", "--web.listen-address=$prometheus_at");

wait_until(
	'Prometheus has seen it mint',
	sub {
		$node->safe_psql('postgres', 'SELECT snowflake_next()');
		value_of('rate(snowflake_minted_total[10s])') > 0;
	});
is(value_of('snowflake_node'), 7, 'the node ID');
is(value_of('sum(snowflake_refused_total)'), 0, 'no mint was refused');

my %health =
  map { $_->{name} => $_->{health} } map { @{ $_->{rules} } } @{ ask('rules')->{groups} };
is( join(' ', map { "$_=" . ($health{$_} // 'missing') } @alerts),
	join(' ', map { "$_=ok" } @alerts),
	'Prometheus asks for each alert');
is(join(' ', map { $_->{labels}{alertname} } @{ ask('alerts')->{alerts} }), '', 'and none comes');

# What Grafana would ask for, with what it puts in place of its variables
my $dashboard = decode_json(slurp_file("$monitoring/grafana.json"));
my ($asked, @silent) = (0);

is_deeply(ask('label/instance/values', 'match[]' => 'snowflake_gate_open'),
	[$exporter_at], 'the dashboard has a server to choose');
foreach my $panel (@{ $dashboard->{panels} })
{
	foreach my $target (@{ $panel->{targets} // [] })
	{
		my $query = $target->{expr} =~ s/\$instance/.*/gr =~ s/\$__rate_interval/10s/gr;

		push @silent, "$panel->{title}: $target->{expr}"
		  unless @{ ask('query', query => $query)->{result} };
		$asked++;
	}
}
is(join("\n", @silent), '', "each of its $asked questions has an answer");
cmp_ok($asked, '>', 30, 'there are some');

# Nobody answers for the server any more
stop_program('prometheus-postgres-exporter');
my @silent_exporters;
wait_until(
	'an exporter that is silent is missed',
	sub {
		@silent_exporters = grep { $_->{labels}{alertname} eq 'SnowflakeExporterSilent' }
		  @{ ask('alerts')->{alerts} };
		return @silent_exporters > 0;
	});
is( join(' ', map { "$_->{state} " . ($_->{labels}{instance} // 'of no name') } @silent_exporters),
	"pending $exporter_at",
	'once, and by its name');

stop_program('prometheus');
$node->stop;
done_testing();

# What promtool says, and its exit status
sub run_promtool
{
	my @arguments = @_;
	my $said;

	IPC::Run::run([ 'promtool', @arguments ], '<', \undef, '>&', \$said);
	return ($said, $? >> 8);
}

sub start_program
{
	my ($name, @arguments) = @_;
	my $log = "$PostgreSQL::Test::Utils::log_path/$name.log";

	$running{$name} = IPC::Run::start([ $name, @arguments ], '<', \undef, '>', $log, '2>&1');
	return;
}

sub stop_program
{
	my ($name) = @_;
	my $handle = delete $running{$name};

	$handle->signal('TERM');
	IPC::Run::finish($handle);
	return;
}

# The data of an answer of Prometheus, or what an empty one has
sub ask
{
	my ($what, %parameters) = @_;
	my $http = HTTP::Tiny->new(timeout => 30);
	my $answer =
	  $http->get("http://$prometheus_at/api/v1/$what?" . $http->www_form_urlencode(\%parameters));

	# it has just been started
	return { result => [], groups => [], alerts => [] }
	  if $answer->{status} == 599 || $answer->{status} == 503;
	die "$what: $answer->{status} $answer->{content}" unless $answer->{success};
	return decode_json($answer->{content})->{data};
}

# The one value of an expression; 0 if there is none yet
sub value_of
{
	my ($expression) = @_;
	my @found = @{ ask('query', query => $expression)->{result} };

	return @found == 1 ? $found[0]{value}[1] : 0;
}

END
{
	my $failed = $?;

	$_->kill_kill foreach values %running;
	$? = $failed;
}
