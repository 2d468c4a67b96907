# Random filters on the time of an ID, against a copy in which the time is a column of its
# own: each query is asked twice, with the planner's ways of reading a table switched on and off
# at random, and has to give the same rows.  The IDs are the first and the last of the layout,
# at borders of ticks, and where clocks are set in a dozen time zones.
#
#   bash test/run.sh times                             2000 queries
#   bash test/run.sh times --queries 20000 --seed 7
#
# Where a filter is to be planned on the key, that is looked at as well.

use strict;
use warnings;

use FindBin;
use Getopt::Long;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Utils;
use SnowflakeTest qw(new_node);
use Test::More;

my ($queries, $seed) = (2000, time);
GetOptions('queries=i' => \$queries, 'seed=i' => \$seed) or die "usage";
note "seed: $seed";
srand $seed;

my $node = new_node(
	'main',
	conf => q{
snowflake.layout = 'twitter epoch:1970-01-01T00:00:00Z'
fsync = off
autovacuum = off
jit = off
max_parallel_workers = 8
});
$node->start;
my $setseed = sprintf '%.6f', ($seed % 1_000_000) / 1_000_000;
$node->safe_psql('postgres',
	"SELECT setseed($setseed);" . slurp_file("$FindBin::RealBin/times.sql"));

sub one { return $_[ rand @_ ] }
sub chance { return rand() < $_[0] }

my @zones = split /\n/, $node->safe_psql('postgres', 'SELECT zone FROM zones');
my @times = split /\n/, $node->safe_psql(
	'postgres', q{
	SET timezone = 'UTC';
	SELECT t FROM (
		SELECT @@ id AS t FROM ids UNION ALL SELECT day FROM changes
		UNION ALL SELECT date_trunc('day', @@ id) FROM ids UNION ALL SELECT date_trunc('month', @@ id, z.zone) FROM ids, zones z) t
	ORDER BY random() LIMIT 1500});

my %dense;
push @{ $dense{ $_->[0] } }, $_->[1]
  foreach map { [ split /\|/ ] } split /\n/, $node->safe_psql(
	'postgres', q{
	SET timezone = 'UTC';
	SELECT zone, (day::date + n)::text FROM dense, generate_series(-1, 2) n});

# Constants; the time zone of which one has in mind is that of the session, or of a filter
our $mind;

sub instant
{
	return "NULL::timestamptz" if chance(0.01);
	return "timestamptz '"
	  . one(
		qw(infinity -infinity),
		'294276-12-31 23:59:59.999999Z',
		'4714-11-24 BC Z',
		'1970-01-01Z',
		'2039-09-07 15:47:35.551Z')
	  . "'"
	  if chance(0.05);
	my $time = one(@times);
	return "timestamptz '$time'" if chance(0.5);
	return
		"(timestamptz '$time' "
	  . one('+', '-')
	  . " interval '"
	  . one('1 us', '1 us', '999 us', '1 ms', '1 hour', '1 day') . "')";
}

sub day
{
	return "NULL::date" if chance(0.01);
	return "date '"
	  . one(
		'infinity', '-infinity', '4714-11-24 BC', '294277-01-01',
		'5874897-12-31', '1970-01-01', '1969-12-31')
	  . "'"
	  if chance(0.05);
	my ($day) =
	  (chance(0.6) && $dense{$mind} ? one(@{ $dense{$mind} }) : one(@times)) =~ /^(\d+-\d\d-\d\d)/
	  or return day();
	return "date '$day'" if chance(0.7);
	return "(date '$day' + " . one(-1, 1, 2, 30) . ")";
}

sub local_time
{
	return "NULL::timestamp" if chance(0.01);
	return
	  "timestamp '"
	  . one('infinity', '-infinity', '4714-11-24 BC', '294276-12-31 23:59:59.999999') . "'"
	  if chance(0.05);
	return
		"timestamp '"
	  . one(@{ $dense{$mind} })
	  . sprintf(" %02d:%02d'", rand 24, 10 * int rand 6)
	  if chance(0.4) && $dense{$mind};
	return one("timestamp '" . (one(@times) =~ s/[+-]\d\d$//r) . "'", day() . "::timestamp")
	  if chance(0.7);
	return "(" . instant() . " AT TIME ZONE '" . one(@zones) . "')";
}

sub range
{
	return "'empty'::tstzrange" if chance(0.03);
	my ($lo, $hi) = (one(@times), one(@times));
	return
	  "tstzrange(least(timestamptz '$lo', timestamptz '$hi'), greatest(timestamptz '$lo', timestamptz '$hi'), '"
	  . one('[]', '[)', '(]', '()') . "')"
	  if chance(0.7);
	return
		"tstzrange("
	  . one("timestamptz '$lo', NULL", "NULL, timestamptz '$lo'", "NULL, NULL") . ", '"
	  . one('[]', '[)', '(]', '()') . "')";
}

my @operators = qw(< <= = >= >);
my @units =
  qw(microseconds milliseconds second minute hour day week month quarter year decade century millennium);

sub compare
{
	my ($left, $right) = @_;
	return "$left " . one(@operators) . " $right" if chance(0.7);
	return "$right " . one(@operators) . " $left";
}

# A filter on a column of times, and whether it is to be planned on the key
sub filter
{
	my ($c) = @_;
	my $zone = one(@zones, keys %dense);
	local $mind = chance(0.5) ? $zone : $mind;
	my $at = one("$c AT TIME ZONE '$zone'", "$c AT TIME ZONE '$zone'", "$c\::timestamp");

	return one(
		sub { (compare($c, one(instant(), instant(), day(), local_time())), 1) },
		sub { (compare($c, one(instant(), instant(), day(), local_time())), 1) },
		sub { ("$c BETWEEN " . instant() . " AND " . instant(), 1) },
		sub {
			("$c IN (" . join(', ', map { instant() } 1 .. 1 + rand 4) . ")", 0)
		},
		sub { ("$c = ANY (ARRAY(SELECT lo FROM spans WHERE n < " . int(rand 9) . "))", 0) },
		sub {
			("$c = ANY ('{" . join(',', map { one(@times) } 1 .. one(3, 150)) . "}')", 0)
		},
		sub {
			("$c NOT IN (" . join(', ', map { instant() } 1 .. 1 + rand 3) . ")", 0)
		},
		sub { (one("$c <@ " . range(), range() . " @> $c"), 1) },
		sub { ("NOT $c <@ " . range(), 0) },
		sub { ("$c <@ (tstzmultirange(" . range() . ") + tstzmultirange(" . range() . "))", 0) },
		sub {
			(   "$c <@ (SELECT range_agg(tstzrange(lo, hi)) FROM spans WHERE lo < hi AND n < "
				  . int(rand 9) . ")",
				0)
		},
		sub { ("$c IS " . one('', 'NOT ') . "NULL", 0) },
		sub {
			(   "($c, id) "
				  . one(qw(< <= >= >)) . " ("
				  . instant() . ", "
				  . one(0, 5, '(SELECT max(id) FROM items WHERE n < 50)') . ")",
				0)
		},
		sub { ("(" . instant() . ", n) " . one(qw(< <= >= >)) . " ($c, 50)", 0) },
		sub { (compare("$c\::date", one(day(), day(), local_time())), 1) },
		sub { ("$c\::date BETWEEN " . day() . " AND " . day(), 1) },
		sub { ("$c\::date IN (" . day() . ", " . day() . ")", 0) },
		sub { (compare("($at)", one(local_time(), local_time(), day())), 1) },
		sub { (compare("($at)\::date", one(day(), local_time())), 1) },
		sub {
			my $u = one(@units);
			my $z = chance(0.3) ? ", '$zone'" : '';
			(   compare(
					"date_trunc('$u', $c$z)",
					chance(0.6) ? "date_trunc('$u', " . instant() . "$z)" : instant()),
				1);
		},
		sub {
			my $u = one(@units);
			(   compare(
					"date_trunc('$u', $c)",
					one("date_trunc('$u', " . local_time() . ")", day())),
				1);
		},
		sub {
			my $u = one(@units);
			(   compare(
					"date_trunc('$u', $at)",
					one("date_trunc('$u', " . local_time() . ")", local_time())),
				1);
		},
		sub {
			(   compare(
					"extract(year FROM " . one($c, $at, "($at)\::date", "$c\::date") . ")",
					one(1969 .. 1972, 2011, 2026, '2026.5', 2039)),
				0)
		},
		sub { (compare("date_part('year', " . one($c, $at) . ")", one(1970, 1971, 2011, 2026)), 0) }
		,
		sub { ("$c " . one('<>', 'IS DISTINCT FROM') . " " . instant(), 0) })->();
}

sub filters
{
	my ($c) = @_;
	my ($one) = filter($c);

	return $one if chance(0.5);
	my ($other) = chance(0.3) ? "n " . one('<', '>=') . " " . int(rand 100) : filter($c);
	return one(
		"$one AND $other",
		"$one AND $other",
		"($one OR $other)",
		"$other AND NOT ($one)",
		"coalesce($one, false)",
		"CASE WHEN $other THEN $one END",
		"($one) IS NOT TRUE");
}

my @tables = qw(items numbers parts others guarded barrier everything);

# A query, and whether its rows come in an order that is one
sub query
{
	my $table = one(@tables);
	my $other = one(@tables);
	my $where = filters('created_at');
	my $down = one('', ' DESC');
	my $limit = one('', ' LIMIT ' . int(1 + rand 30));

	return one(
		sub { ("SELECT * FROM $table WHERE $where", 0) },
		sub { ("SELECT * FROM $table WHERE $where", 0) },
		sub { ("SELECT count(*), min(id), max(n) FROM $table WHERE $where", 0) },
		sub {
			(   "SELECT min(created_at), max(created_at) FROM $table"
				  . one('', " WHERE $where", " WHERE customer = 3"),
				0)
		},
		sub { ("SELECT customer, max(created_at) FROM $table WHERE $where GROUP BY customer", 0) },
		sub {
			(   "SELECT id, created_at FROM $table WHERE $where ORDER BY created_at$down, id$down, n, customer$limit",
				1)
		},
		sub {
			(   "SELECT created_at FROM $table WHERE $where ORDER BY created_at$down"
				  . one('', ' NULLS FIRST', ' NULLS LAST')
				  . $limit,
				1)
		},
		sub {
			(   "SELECT created_at FROM $table WHERE customer = "
				  . int(rand 7)
				  . " AND $where ORDER BY created_at$down$limit",
				1)
		},
		sub {
			(   "SELECT customer, created_at FROM $table ORDER BY customer"
				  . one('', ' DESC')
				  . ", created_at$down$limit",
				1)
		},
		sub {
			(   "SELECT created_at FROM items WHERE label = 'label 3' AND n > 20 AND $where ORDER BY created_at$down$limit",
				1)
		},
		sub {
			(   "SELECT label COLLATE \"C\", created_at FROM items WHERE n > 20 ORDER BY 1"
				  . one('', ' DESC')
				  . ", 2$down$limit",
				1)
		},
		sub {
			(   "SELECT c, created_at FROM generate_series(0, 8) c"
				  . one(', LATERAL', ' LEFT JOIN LATERAL')
				  . " (SELECT created_at FROM $table t WHERE t.customer = c AND $where ORDER BY created_at$down LIMIT 2) l"
				  =~ s/^/ /r,
				0)
		},
		sub {
			(   "SELECT created_at FROM $table WHERE "
				  . one('false', 'n = NULL', "created_at < NULL::timestamptz", 'n > 500')
				  . " ORDER BY created_at$down",
				1)
		},
		sub {
			my $u = one(@units);
			my $g = one(
				"date_trunc('$u', created_at)",
				"date_trunc('$u', created_at, 'UTC')",
				"date_trunc('$u', created_at AT TIME ZONE 'UTC')",
				"date_trunc('$u', created_at AT TIME ZONE '" . one(@zones) . "')",
				'created_at',
				'created_at::date');
			(   "SELECT $g, count(*) FROM $table WHERE $where GROUP BY 1"
				  . one('', ' ORDER BY 1', ' HAVING count(*) > 1'),
				0);
		},
		sub {
			(   "SELECT created_at, customer, count(*) FROM $table GROUP BY "
				  . one(
					'GROUPING SETS ((created_at), (customer))',
					'ROLLUP (customer, created_at)',
					'customer, created_at')
				  . " HAVING $where" =~ s/\bn (<|>=)/max(n) $1/gr =~ s/\bid\b/max(id)/gr =~
				  s/, n\)/, max(n))/gr,
				0)
		},
		sub { ("SELECT DISTINCT created_at FROM $table WHERE $where" . one('', ' ORDER BY 1'), 0) },
		sub {
			(   "SELECT DISTINCT ON (customer) customer, created_at FROM $table ORDER BY customer, created_at$down",
				0)
		},
		sub {
			my $f = filters('a.created_at') =~ s/\b(?<![.(])(id|n)\b(?! FROM)/a.$1/gr;
			(   "SELECT a.id, a.created_at, b.id FROM $table a "
				  . one('JOIN', 'LEFT JOIN', 'RIGHT JOIN', 'FULL JOIN')
				  . " $other b ON a.created_at = b.created_at"
				  . one('', ' AND a.customer = b.customer')
				  . " WHERE a.n < 30 AND (b.n IS NULL OR b.n < 30)",
				0);
		},
		sub {
			(   "SELECT t.id, s.n FROM spans s "
				  . one('JOIN', 'LEFT JOIN')
				  . " $table t ON t.created_at "
				  . one(
					'>= lo AND t.created_at < hi',
					'> lo AND hi >= t.created_at',
					'<@ tstzrange(lo, CASE WHEN lo < hi THEN hi END)',
					'= lo',
					'>= lo::date AND t.created_at < lo::date + 1',
					'::date = lo::date'),
				0)
		},
		sub {
			(   "SELECT id FROM $table t WHERE "
				  . one('', 'NOT ')
				  . "EXISTS (SELECT FROM spans s WHERE "
				  . one('t.created_at = s.lo', 't.created_at BETWEEN s.lo AND s.hi') . ")",
				0)
		},
		sub {
			(   "SELECT n, lo FROM spans s WHERE EXISTS (SELECT FROM $table t WHERE t.created_at "
				  . one('=', '<', '>')
				  . " s.lo)",
				0)
		},
		sub {
			(   "SELECT id FROM $table WHERE created_at "
				  . one('', 'NOT ')
				  . "IN (SELECT lo FROM spans WHERE lo IS NOT NULL)",
				0)
		},
		sub {
			(   "SELECT id FROM $table WHERE created_at "
				  . one('IN', '= ANY', '> ALL', '<= ANY')
				  . " (SELECT created_at FROM $other WHERE n = "
				  . int(rand 100) . ")",
				0)
		},
		sub {
			(   "SELECT * FROM (SELECT id, created_at, n, row_number() OVER (PARTITION BY created_at ORDER BY id, n, customer) FROM $table) w WHERE $where",
				0)
		},
		sub {
			(   "SELECT * FROM (SELECT id, created_at, n, count(*) OVER (PARTITION BY customer) FROM $table) w WHERE $where",
				0)
		},
		sub {
			(   "SELECT * FROM (SELECT id, created_at, n FROM $table ORDER BY created_at, id, n LIMIT 50) w WHERE $where",
				0)
		},
		sub {
			(   "SELECT * FROM (SELECT created_at, 0 AS id, max(n) AS n FROM $table GROUP BY 1) w WHERE $where",
				0)
		},
		sub {
			(   "WITH w AS "
				  . one('', 'MATERIALIZED ')
				  . "(SELECT * FROM $table) SELECT id, created_at FROM w WHERE $where",
				0)
		},
		sub {
			(   "SELECT * FROM (SELECT id::bigint, created_at, n FROM $table "
				  . one('UNION ALL', 'UNION', 'EXCEPT', 'INTERSECT')
				  . " SELECT id::bigint, created_at, n FROM $other) w WHERE $where",
				0)
		},
		sub {
			(   "SELECT created_at FROM (SELECT created_at, n FROM items UNION ALL SELECT lo, n FROM spans UNION ALL SELECT created_at, n FROM $other) w ORDER BY 1$down$limit",
				1)
		},
		sub {
			my $f = filters('created_at');
			("SELECT id, created_at FROM since(" . instant() . ") WHERE $f", 0);
		},
		sub { ("SELECT id, created_at FROM of_day(" . day() . ")", 0) },
		sub { ("DELETE FROM items WHERE $where RETURNING id", 0) },
		sub {
			(   "DELETE FROM items WHERE id IN (SELECT id FROM items WHERE $where ORDER BY created_at, id LIMIT 3) RETURNING id",
				0)
		},
		sub { ("UPDATE items SET n = n + 1 WHERE $where RETURNING id, n", 0) },
		sub {
			(   "SELECT id, created_at FROM items WHERE $where ORDER BY created_at$down, id$down LIMIT 5 FOR UPDATE",
				1)
		},
		sub {
			my $p = one(
				'created_at >= $1 AND created_at < $2',
				'created_at BETWEEN $1 AND $2',
				'created_at = ANY (ARRAY[$1, $2])',
				'created_at::date = $1::date',
				'created_at <@ tstzrange($1, NULL) AND created_at <> $2',
				'(created_at, id) > ($1, 5) AND created_at <= $2',
				"date_trunc('day', created_at) = \$1 OR created_at < \$2",
				"created_at < \$1 + interval '1 day' AND created_at > \$2 - interval '1 day'");
			(   "PREPARE p (timestamptz, timestamptz) AS SELECT id, created_at FROM $table WHERE $p ORDER BY created_at, id, n, customer$limit; EXECUTE p ("
				  . instant() . ", "
				  . instant()
				  . "); DEALLOCATE p",
				1);
		},
		sub {
			my $p = one(
				'created_at::date = $1',
				'created_at >= $1',
				'created_at < $1',
				"(created_at AT TIME ZONE 'Europe/Berlin')::date = \$1",
				"date_trunc('week', created_at) = date_trunc('week', \$1)");
			(   "PREPARE p (date) AS SELECT id, created_at FROM $table WHERE $p ORDER BY created_at, id, n, customer; EXECUTE p ("
				  . day()
				  . "); SET timezone = '"
				  . one(@zones)
				  . "'; EXECUTE p ("
				  . day()
				  . "); DEALLOCATE p",
				1);
		},)->();
}

my @switches =
  qw(seqscan indexscan indexonlyscan bitmapscan sort incremental_sort hashagg hashjoin mergejoin nestloop
  material memoize partition_pruning partitionwise_join partitionwise_aggregate gathermerge);

sub settings
{
	my @set = map { "SET enable_$_ = " . one('on', 'off') } grep { chance(0.4) } @switches;

	push @set, 'SET min_parallel_table_scan_size = 0', 'SET min_parallel_index_scan_size = 0',
	  'SET parallel_setup_cost = 0', 'SET parallel_tuple_cost = 0'
	  if chance(0.2);
	push @set, 'SET plan_cache_mode = ' . one('force_generic_plan', 'force_custom_plan')
	  if chance(0.6);
	push @set, 'SET constraint_exclusion = ' . one('on', 'off') if chance(0.2);
	return join '; ', @set;
}

# Ask all of it, of one schema; returns the answers.
sub ask
{
	my ($schema, @asked) = @_;
	my $script = "SET extra_float_digits = 1;\n\\set VERBOSITY sqlstate\n\\pset null NULL\n";
	my ($n, $out) = (0, '');

	foreach (@asked)
	{
		my $settings = $schema eq 'by_key' ? $_->{settings} : '';

		$script .=
		  "RESET ALL; SET search_path = $schema, public; SET ROLE reader; SET timezone = '$_->{zone}';\n$settings;\n"
		  . "\\echo === "
		  . $n++
		  . "\nBEGIN;\n$_->{query};\nROLLBACK;\n";
	}
	IPC::Run::run([ 'psql', '-XAtq', '-f', '-', '-d', $node->connstr('postgres') ],
		'<', \$script, '>', \$out, '2>&1')
	  or diag "psql: $?";
	my (undef, @answers) = split /^=== \d+\n/m, $out, -1;
	diag substr $out, -2000 if @answers != @asked;
	return @answers;
}

my ($wrong, $empty, $errors) = (0, 0, 0);
my (%seen, @shown);
for (my $begin = 0; $begin < $queries; $begin += 500)
{
	my @asked;

	for (my $n = $begin; $n < $begin + 500 && $n < $queries; $n++)
	{
		$mind = one(@zones, keys %dense);
		my ($query, $ordered) = query();

		push @asked,
		  { query => $query, ordered => $ordered, zone => $mind, settings => settings() };
	}
	my @by_key = ask('by_key', @asked);
	my @by_copy = ask('by_copy', @asked);
	is(scalar @by_key, scalar @asked, "queries from $begin on: all are answered by key") or last;
	is(scalar @by_copy, scalar @asked, "queries from $begin on: all are answered by the copy")
	  or last;
	foreach my $n (0 .. $#asked)
	{
		my ($key, $copy) = map { $_ =~ s/^psql:.*?ERROR: */ERROR /gmr } $by_key[$n], $by_copy[$n];

		($key, $copy) = map { join "\n", sort split /\n/ } $key, $copy unless $asked[$n]{ordered};

		# neither has to compute what is not asked for
		$errors++, next if $copy =~ /^ERROR/m;
		$empty++ if $copy eq '';
		next if $key eq $copy;
		push @shown,
			"-- zone $asked[$n]{zone}\n$asked[$n]{settings}\n$asked[$n]{query}\nby key:  "
		  . substr($key, 0, 300)
		  . "\nby copy: "
		  . substr($copy, 0, 300)
		  if @shown < 10;
		$wrong++;
	}
}
is($wrong, 0,
	"$queries queries give the rows that the copy gives, $empty of them none; $errors raise an error"
) or diag join "\n\n", @shown;
cmp_ok($empty, '<', $queries / 2, 'most have rows');
cmp_ok($errors, '<', $queries / 10, 'few raise an error');

# Planned on the key
$mind = 'UTC';
my (@plans, $unplanned);
foreach (1 .. $queries / 10)
{
	my ($condition, $on_key) = filter('created_at');

	push @plans, $condition if $on_key && $condition !~ /NULL::|NULL, NULL|empty/;
}
my $table = 0;
foreach my $condition (@plans)
{
	my ($failed, $plan) = $node->psql('postgres',
		"SET search_path = by_key, public; SET enable_seqscan = off; EXPLAIN (COSTS OFF) SELECT * FROM "
		  . (qw(items numbers others))[ $table++ % 3 ]
		  . " WHERE $condition");

	# a constant that is out of range
	next if $failed;
	next if $plan =~ /Index Cond|One-Time Filter: false/;
	diag "$condition\n$plan" if !$unplanned++;
}
is($unplanned // 0, 0, scalar @plans . ' filters are planned on the key');

$node->stop;
done_testing();
