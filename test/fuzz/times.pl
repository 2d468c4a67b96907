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

use Getopt::Long;
use PostgreSQL::Test::Utils;
use SnowflakeTest;
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
$node->safe_psql('postgres', "SELECT setseed($setseed);" . slurp_file("test/fuzz/times.sql"));

sub one { return $_[ rand @_ ] }
sub chance { return rand() < $_[0] }
sub rows_of { return split /\n/, $node->safe_psql('postgres', "SET timezone = 'UTC'; $_[0]") }

my @zones = rows_of('SELECT zone FROM zones');
my @regions = ('CET', grep { !/,/ } @zones);
my @odd_zones = grep { /,|Pacific|Havana/ } @zones;
my @times = rows_of(
	q{SELECT t FROM (SELECT @@ id AS t FROM ids UNION ALL SELECT day FROM changes
		UNION ALL SELECT date_trunc('day', @@ id) FROM ids
		UNION ALL SELECT date_trunc('month', @@ id, z.zone) FROM ids, zones z) t
	ORDER BY random() LIMIT 1500});
my @ids = rows_of('SELECT id FROM ids ORDER BY random() LIMIT 300');
my %edges;
push @{ $edges{ $_->[0] } }, $_->[1]
  foreach map { [ split /\|/ ] }
  rows_of(
	"SELECT zone, local FROM edges, generate_series(1, CASE unit WHEN 'day' THEN 4 ELSE 1 END)");

# Templates.  "{a|b}" is one of these, " ~ " a comparison, either way round, "[[a||b]]" is a by
# key and b of the copy, and "$name" is what this makes:
my @units = (
	qw(microseconds milliseconds second minute hour decade century millennium),
	(qw(day week month quarter year)) x 3);
my @tables =
  qw(items numbers parts others guarded barrier everything family hashed rest joined looked_up mixed);
our ($zone, $unit);
our $column = 't.created_at';
our $mind;    # the time zone of which constants are
my %make = (
	zone => sub { $zone },
	mind => sub { $mind },
	unit => sub { $unit },
	c => sub { $column },
	id => sub { one(@ids) },
	n => sub { int rand 100 },
	m => sub { 1 + int rand 6 },
	table => sub { one(@tables) },
	instant => \&instant,
	day => \&day,
	local => \&local_time,
	range => \&range,
	instants => sub {
		join ', ', map { instant() } 1 .. 1 + rand 4;
	},
	times => sub {
		'{' . join(',', map { one(@times) } 1 .. one(3, 150)) . '}';
	},
	at => sub {
		one("$column AT TIME ZONE '$zone'", "$column AT TIME ZONE '$zone'", "$column\::timestamp");
	},
	where => sub { filters('created_at') },
	where_of_a => sub { filters_of('a') },
	where_of_b => sub { filters_of('b') },
	where_of_t => sub { filters_of('t') },
	having => sub {
		filters('created_at') =~ s/\bn (<|>=)/max(n) $1/gr =~ s/\bid\b/max(id)/gr =~
		  s/, n\)/, max(n))/gr;
	},
	down => sub { one('', '', ' NULLS FIRST', ' DESC', ' DESC', ' DESC NULLS LAST') },
	limit => sub { one('', ' LIMIT ' . int(1 + rand 30)) });

# A template filled in, with one zone and one unit; constants are mostly of that zone if it
# is named, otherwise of the session's.
sub fill
{
	my ($text) = @_;
	local $zone = chance(0.3) && $mind !~ /,/ ? $mind : one(@regions);
	local $unit = one(@units);
	local $mind = $text =~ /\$(zone|at)/ && chance(0.8) ? $zone : $mind;

	1 while $text =~ s/\{([^{}]*)\}/one(split m,\|,, $1, -1)/e;
	$text =~ s/\$([a-z_]+)/$make{$1}->()/ge;
	return $text unless $text =~ /^(.*) ~ (.*)$/s;
	return chance(0.7)
	  ? "$1 " . one(qw(< <= = >= >)) . " $2"
	  : "$2 " . one(qw(< <= = >= >)) . " $1";
}

sub edge { return one(@{ $edges{$mind} // $edges{'Europe/Berlin'} }) }

sub instant
{
	my $time = one(@times);

	return "NULL::timestamptz" if chance(0.01);
	return "timestamptz '"
	  . one(
		qw(infinity -infinity),
		'294276-12-31 23:59:59.999999Z',
		'4714-11-24 BC Z',
		'1970-01-01Z',
		'2039-09-07 15:47:35.551Z')
	  . "'"
	  if chance(0.04);
	return "(timestamp '" . edge() . "' AT TIME ZONE '$mind')" if chance(0.4);
	return "timestamptz '$time'" if chance(0.5);
	return fill("(timestamptz '$time' {+|-} interval '{1 us|1 us|999 us|1 ms|1 hour|1 day}')");
}

sub day
{
	return "NULL::date" if chance(0.01);
	return fill(
		"date '{infinity|-infinity|4714-11-24 BC|294277-01-01|5874897-12-31|1970-01-01|1969-12-31}'"
	) if chance(0.04);
	my ($day) = (chance(0.6) ? edge() : one(@times)) =~ /^(\d+-\d\d-\d\d)/ or return day();
	return fill(one("date '$day'", "date '$day'", "(date '$day' + {-1|1|2|30})"));
}

sub local_time
{
	return "NULL::timestamp" if chance(0.01);
	return fill("timestamp '{infinity|-infinity|4714-11-24 BC|294276-12-31 23:59:59.999999}'")
	  if chance(0.04);
	return "timestamp '" . edge() . "'" if chance(0.3);
	return "(timestamp '" . edge() . "' + interval '" . int(10 * rand 200) . " min')"
	  if chance(0.4);
	return one(
		"timestamp '" . (one(@times) =~ s/[+-]\d\d$//r) . "'",
		day() . "::timestamp",
		"(" . instant() . " AT TIME ZONE '" . one(@zones) . "')");
}

sub range
{
	my ($lo, $hi) = (one(@times), one(@times));

	return one(
		"'empty'::tstzrange",
		(   "tstzrange(least(timestamptz '$lo', timestamptz '$hi'), greatest(timestamptz '$lo', timestamptz '$hi'), '{[]|[)|(]|()}')"
		) x 20,
		(   "tstzrange({timestamptz '$lo', NULL|NULL, timestamptz '$lo'|NULL, NULL}, '{[]|[)|(]|()}')"
		) x 9) =~ s/\{(.*?)\}/one(split m,\|,, $1)/ger;
}

# Filters on a column of times; those to be planned on the key begin with "*"
my @filters = split /\n/, <<'END';
*$c ~ {$instant|$instant|$day|$local}
*$c ~ {$instant|$instant|$day|$local}
*$c BETWEEN $instant AND $instant
$c {IN|NOT IN} ($instants)
($c IN ($instants, NULL)) {IS NOT TRUE|IS UNKNOWN|IS FALSE|IS NOT FALSE}
$c = ANY (ARRAY(SELECT lo FROM spans WHERE n < $m))
$c = {ANY|ALL} (ARRAY[$instants])
$c = ANY ('$times')
$c = ANY (NULLIF(ARRAY[$instants], ARRAY[now()]))
*{$c <@ $range|$range @> $c}
NOT {$c <@ $range|($c, id) < ($instant, 5)|($c, n) >= ($instant, NULLIF(n, 50))|$c = ANY (ARRAY[$instants, NULL])}
$c <@ (tstzmultirange($range) + tstzmultirange($range))
$c <@ (SELECT range_agg(tstzrange(lo, hi)) FROM spans WHERE lo < hi AND n < $m)
$c IS {NULL|NOT NULL}
($c, id) {<|<=|>=|>} ($instant, {0|5|-1|'-9223372036854775808'::int8|$id|$id::int8|(SELECT max(id) FROM items WHERE n < 50)})
($instant, n) {<|<=|>=|>} ($c, 50)
*$c::date ~ {$day|$day|$local}
*$c::date ~ {$day|$day|$local}
*$c::date BETWEEN $day AND $day
$c::date IN ($day, $day)
*($at) ~ {$local|$local|$day}
*($at) ~ {$local|$local|$day}
*($at)::date ~ {$day|$day|$local}
*date_trunc('$unit', $c) ~ {date_trunc('$unit', $instant)|$instant}
*date_trunc('$unit', $c, '$zone') ~ {date_trunc('$unit', $instant, '$zone')|$instant}
date_trunc('$unit', $c, '$zone') ~ {$day|$local}
*date_trunc('{day|day|$unit}', $c) ~ {date_trunc('day', $instant)|$day|$local}
*date_trunc('day', $c, '$zone') ~ date_trunc('day', $instant, '$zone')
*date_trunc('$unit', $c) ~ {date_trunc('$unit', $local)|$day|$local}
*date_trunc('$unit', $at) ~ {date_trunc('$unit', $local)|$local}
extract(year FROM {$c|$at|date_trunc('$unit', $c)|($at)::date|$c::date}) ~ {1969|1970|1971|1972|2011|2026|2026.5|2039}
date_part('year', {$c|$at}) ~ {1970|1971|2011|2026}
$c {<>|IS DISTINCT FROM|IS NOT DISTINCT FROM} $instant
$c BETWEEN SYMMETRIC $instant AND $instant
$c::timestamptz(0) ~ $instant
($c - interval '{1 hour|1 month}') ~ $instant
{nullif($c, $instant) IS NULL|greatest($c, $instant) > $instant|coalesce($c, $instant) <= $instant}
($c, $c + interval '{1 hour|40 days}') OVERLAPS ($instant, $instant)
($c IS NULL OR $c {<|<=|=|>|>=} $instant)
$c::date <@ daterange(least($day, $day), NULL)
$c ~ clock_timestamp() - interval '{1 day|40 years}'
END

# A filter, and whether it is to be planned on the key
sub filter
{
	local $column = shift;
	my ($on_key, $text) = one(@filters) =~ /^(\*?)(.*)/;

	return (fill($text), $on_key ne '');
}

sub filters
{
	my ($c) = @_;
	my ($one) = filter($c);
	my $plain = 'n ' . one('<', '>=') . ' ' . int rand 100;

	# which NULL passes
	return $plain if chance(0.1);
	return $one if chance(0.6);
	my ($other) = chance(0.4) ? $plain : filter($c);
	return one(
		"$one AND $other",
		"$one AND $other",
		"($one OR $other)",
		"$other AND NOT ($one)",
		"coalesce($one, false)",
		"CASE WHEN $other THEN $one END",
		"($one) IS NOT TRUE");
}

# ... of a table of that name
sub filters_of { return filters("$_[0].created_at") =~ s/\b(?<![.(])(id|n)\b(?! FROM)/$_[0].$1/gr }

# Queries; those whose rows come in an order that is one begin with "+"
my @queries = split /\n/, <<'END' =~ s/\n\t+/ /gr;
SELECT * FROM $table WHERE $where
SELECT id, created_at, n FROM $table WHERE $where
SELECT count(*), min(id), max(n) FROM $table WHERE $where
SELECT min(created_at), max(created_at) FROM $table{| WHERE $where| WHERE customer = 3}
SELECT customer, max(created_at) FROM $table WHERE $where GROUP BY customer
+SELECT id, created_at FROM $table WHERE $where ORDER BY created_at{, id, n, customer| DESC, id DESC, n, customer}$limit
+SELECT created_at FROM $table{| WHERE $where} ORDER BY created_at$down$limit
+SELECT created_at FROM {items|$table} WHERE customer {=|=|<|>} $m{| AND $where} ORDER BY created_at$down$limit
+SELECT created_at, customer FROM {items|numbers|parts|$table}{| WHERE customer > $m| WHERE $where} ORDER BY created_at$down, customer$down$limit
+SELECT customer, created_at FROM $table ORDER BY customer$down, created_at$down$limit
+SELECT created_at FROM items WHERE label = 'label 3' COLLATE {"C"|ci} AND n > {20|10} AND $where ORDER BY created_at$down$limit
+SELECT label COLLATE "C", created_at FROM items WHERE n > 20{| AND label {=|>} 'label 3' COLLATE {"C"|ci}} ORDER BY 1$down, 2$down$limit
+SELECT {created_at::timestamp|created_at AT TIME ZONE '$zone'|date_trunc('$unit', created_at)} FROM {items|$table} ORDER BY 1$down$limit
SELECT c, created_at FROM generate_series(0, 8) c {JOIN|LEFT JOIN} LATERAL
	(SELECT created_at FROM $table t WHERE t.customer = c AND $where ORDER BY created_at$down LIMIT 2) l ON true
+SELECT created_at FROM $table WHERE {false|n = NULL|created_at < NULL::timestamptz|n > 500} ORDER BY created_at$down
SELECT {date_trunc('$unit', created_at)|date_trunc('$unit', created_at, 'UTC')|date_trunc('$unit', created_at AT TIME ZONE 'UTC')|date_trunc('$unit', created_at AT TIME ZONE '$zone')|created_at|created_at::date},
	count(*) FROM $table WHERE $where GROUP BY 1{| ORDER BY 1| HAVING count(*) > 1}
SELECT created_at, customer, count(*) FROM $table
	GROUP BY {GROUPING SETS ((created_at), (customer))|ROLLUP (customer, created_at)|customer, created_at} HAVING $having
SELECT DISTINCT created_at FROM $table WHERE $where{| ORDER BY 1}
SELECT DISTINCT ON (customer) customer, created_at FROM $table ORDER BY customer, created_at$down
SELECT a.id, a.created_at, b.id FROM $table a {JOIN|LEFT JOIN|RIGHT JOIN|FULL JOIN} $table b
	ON a.created_at = b.created_at{| AND a.customer = b.customer} WHERE a.n < 30 AND (b.n IS NULL OR b.n < 30) AND {true|$where_of_a}
SELECT t.id, s.n FROM spans s {JOIN|LEFT JOIN} $table t
	ON t.created_at {>= lo AND t.created_at < hi|> lo AND hi >= t.created_at|= lo|>= lo::date AND t.created_at < lo::date + 1|::date = lo::date}
SELECT t.id, s.n FROM spans s {JOIN|LEFT JOIN} $table t
	ON t.created_at <@ tstzrange({lo, CASE WHEN lo < hi THEN hi END|least(lo, hi), greatest(lo, hi), '[]'|least(lo, hi), hi, '(]'|NULL, hi|NULL, hi, '()'})
SELECT s.n, t.id FROM spans s {JOIN|LEFT JOIN} $table t ON t.n > 200 AND t.created_at <@ tstzrange({hi, lo|greatest(lo, hi) + interval '1 s', lo})
SELECT n, (SELECT count(*) FROM $table t WHERE t.created_at::date {=|<=|<|>} s.lo::date) FROM spans s
SELECT local, (SELECT count(*) FROM {items|numbers|parts|hashed} t WHERE date_trunc('{day|week|month|quarter|year}', t.created_at) {=|<=|<=|<|>|>=} local{|::date| + interval '{90 min|2 days}'})
	FROM (SELECT DISTINCT local FROM edges WHERE zone = '$mind') e
SELECT local, (SELECT count(*) FROM {items|numbers|parts|hashed} t
	WHERE {{($at)|($at)::date|date_trunc('$unit', $at)|t.created_at::date} {=|<=|<|>|>=} local{|::date| + interval '{90 min|2 days}'}|t.created_at::date IN (local::date, '2020-01-01')})
	FROM (SELECT DISTINCT local FROM edges WHERE zone = '$mind') e
SELECT local, (SELECT count(*) FROM {items|numbers|parts|hashed} t WHERE date_trunc('{day|week|month|$unit}', t.created_at, '$zone') {=|<=|<|>|>=} (local AT TIME ZONE '$zone'){| - interval '1 ms'})
	FROM (SELECT DISTINCT local FROM edges WHERE zone = '$mind') e
SELECT n, (SELECT count(*) FROM $table t WHERE t.created_at <@ tstzrange(least(lo, hi), greatest(lo, hi), '{[]|[)|(]|()}')) FROM spans s
SELECT id FROM $table t WHERE {|NOT }EXISTS (SELECT FROM spans s WHERE {t.created_at = s.lo|t.created_at BETWEEN s.lo AND s.hi})
SELECT n, lo FROM spans s WHERE EXISTS (SELECT FROM $table t WHERE t.created_at {=|<|>} s.lo)
SELECT id FROM $table WHERE created_at {|NOT }IN (SELECT lo FROM spans WHERE lo IS NOT NULL)
SELECT id FROM $table WHERE created_at {IN|= ANY} (SELECT created_at FROM $table WHERE n = $n)
SELECT id FROM $table WHERE created_at {> ALL|<= ANY} (SELECT lo FROM spans WHERE n < $m)
SELECT * FROM (SELECT id, created_at, n, row_number() OVER (PARTITION BY created_at ORDER BY id, n, customer) FROM $table) w WHERE $where
SELECT * FROM (SELECT id, created_at, n, count(*) OVER (PARTITION BY customer) FROM $table) w WHERE $where
SELECT * FROM (SELECT id, created_at, n FROM $table ORDER BY created_at, id, n LIMIT 50) w WHERE $where
SELECT * FROM (SELECT created_at, 0 AS id, max(n) AS n FROM $table GROUP BY 1) w WHERE $where
WITH w AS {|MATERIALIZED }(SELECT * FROM $table) SELECT id, created_at FROM w WHERE $where
SELECT * FROM (SELECT id::bigint, created_at, n FROM $table {UNION ALL|UNION|EXCEPT|INTERSECT} SELECT id::bigint, created_at, n FROM $table) w WHERE $where
+SELECT created_at FROM (SELECT created_at, n FROM items UNION ALL SELECT lo, n FROM spans UNION ALL SELECT created_at, n FROM $table) w ORDER BY 1$down$limit
SELECT id, created_at FROM since($instant) WHERE $where
SELECT id, created_at FROM of_day($day)
DELETE FROM items WHERE $where RETURNING id
DELETE FROM items WHERE id IN (SELECT id FROM items WHERE $where ORDER BY created_at, id LIMIT 3) RETURNING id
UPDATE items SET n = n + 1 WHERE $where RETURNING id, n
+SELECT id, created_at FROM items WHERE $where ORDER BY created_at{, id| DESC, id DESC} LIMIT 5 FOR UPDATE
+PREPARE p (timestamptz, timestamptz) AS SELECT id, created_at FROM $table
	WHERE {created_at >= $1 AND created_at < $2|created_at BETWEEN $1 AND $2|created_at = ANY (ARRAY[$1, $2])|created_at::date = $1::date|created_at <@ tstzrange($1, NULL) AND created_at <> $2|created_at <@ tstzrange(least($1, $2), greatest($1, $2))|(created_at, id) > ($1, 5) AND created_at <= $2|(created_at, id) < ($1, $id)|date_trunc('day', created_at) = $1 OR created_at < $2|created_at < $1 + interval '1 day' AND created_at > $2 - interval '1 day'}
	ORDER BY created_at, id, n, customer$limit; EXECUTE p ($instant, $instant)
+PREPARE p (date) AS SELECT id, created_at FROM $table
	WHERE {created_at::date = $1|created_at >= $1|created_at < $1|(created_at AT TIME ZONE 'Europe/Berlin')::date = $1|date_trunc('week', created_at) = date_trunc('week', $1)|created_at >= $day|created_at <= $local|$where}
	ORDER BY created_at, id, n, customer; EXECUTE p ($day); SET timezone = '$zone'; EXECUTE p ($day)
PREPARE p (text, timestamp, timestamptz) AS SELECT id, created_at FROM $table
	WHERE {created_at AT TIME ZONE $1 >= $2|(created_at AT TIME ZONE $1)::date = $2::date|date_trunc('day', created_at AT TIME ZONE $1) = $2|date_trunc('month', created_at, $1) = $3|date_trunc('day', created_at, $1) < date_trunc('day', $3, $1)};
	EXECUTE p ('$zone', $local, $instant); EXECUTE p ('$zone', $local, $instant); EXECUTE p (NULL, $local, $instant)
PREPARE p (tstzrange, timestamptz[]) AS SELECT id, created_at FROM $table WHERE {created_at <@ $1 OR created_at = ANY ($2)|created_at <@ $1|created_at = ANY ($2)};
	EXECUTE p ($range, ARRAY[$instants]); EXECUTE p ($range, '$times'); EXECUTE p (NULL, NULL); EXECUTE p ($range, ARRAY[]::timestamptz[])
+PREPARE p (timestamptz, bigint) AS SELECT created_at, id FROM $table WHERE (created_at, id) {<|>|<=|>=} ($1, $2) ORDER BY created_at{, id| DESC, id DESC} LIMIT 5;
	EXECUTE p ($instant, $id); EXECUTE p ($instant, NULL); EXECUTE p ($instant, $id); EXECUTE p (NULL, $id); EXECUTE p ($instant, 0); EXECUTE p ($instant, 5); EXECUTE p ($instant, $id)
+DECLARE c SCROLL CURSOR FOR SELECT id, created_at FROM $table WHERE $where ORDER BY created_at$down, id, n, customer;
	FETCH 5 FROM c; FETCH BACKWARD 3 FROM c; FETCH LAST FROM c; FETCH PRIOR FROM c; FETCH ABSOLUTE 2 FROM c; FETCH BACKWARD ALL FROM c
+DECLARE c SCROLL CURSOR FOR SELECT created_at FROM $table ORDER BY created_at$down; FETCH 4 FROM c; MOVE ABSOLUTE 100 FROM c; FETCH BACKWARD ALL FROM c
+SELECT created_at, count(*) OVER (ORDER BY created_at RANGE BETWEEN '{1 day|400 days}' PRECEDING AND '{0 s|1 hour}' FOLLOWING) FROM $table WHERE created_at < '9999-01-01' AND $where ORDER BY 1, 2$limit
SELECT id, n, rank() OVER (PARTITION BY customer ORDER BY created_at$down), first_value(created_at) OVER (ORDER BY created_at$down) FROM $table WHERE $where
SELECT * FROM (SELECT created_at, id, n, rank() OVER (ORDER BY created_at$down) AS r FROM $table) w WHERE r <= 5 AND $where
SELECT count(*) FILTER (WHERE $where), min(created_at) FILTER (WHERE n > $n), max(created_at), count(DISTINCT created_at) FROM $table{| WHERE $where}
SELECT array_agg(created_at ORDER BY created_at$down), percentile_disc(0.5) WITHIN GROUP (ORDER BY created_at) FROM $table WHERE $where{| GROUP BY customer}
SELECT customer, created_at, grouping(customer, created_at), count(*) FROM $table WHERE $where GROUP BY CUBE (customer, created_at) HAVING $having
SELECT date_trunc('$unit', created_at{|, 'UTC'}) AS d, count(*), max(created_at) FROM $table WHERE $where GROUP BY GROUPING SETS ((d), ()) HAVING count(*) > 1
SELECT min(a.created_at), max(b.created_at) FROM $table a JOIN $table b ON a.customer = b.customer AND a.n = b.n WHERE $where_of_a
SELECT max(created_at), min(created_at) FROM $table{| WHERE $where} HAVING max(created_at) > $instant
SELECT c, (SELECT {max|min}(created_at) FROM $table t WHERE t.customer = c AND t.created_at {<|>=} $instant) FROM generate_series(0, 7) c
SELECT max(date_trunc('day', created_at)), min(created_at::date), max(created_at AT TIME ZONE 'UTC') FROM $table WHERE $where
+SELECT created_at FROM $table WHERE $where ORDER BY created_at$down FETCH FIRST {3|10} ROWS WITH TIES
+SELECT created_at FROM $table ORDER BY created_at$down OFFSET {0|5|500} LIMIT (SELECT {1|7})
SELECT DISTINCT ON (created_at) created_at, n FROM $table ORDER BY created_at$down, n
SELECT DISTINCT ON (date_trunc('day', created_at, 'UTC')) date_trunc('day', created_at, 'UTC'), created_at FROM $table ORDER BY 1, 2
+SELECT created_at, generate_series(1, 2) FROM {parts|$table} ORDER BY 1$down, 2$limit
+SELECT created_at, random() < 2 FROM $table WHERE random() >= 0 ORDER BY 1$down$limit
SELECT id, created_at FROM $table WHERE {random() >= 0 AND $where|created_at < $instant + random() * interval '0'|created_at = ANY (ARRAY[$instant, clock_timestamp() + interval '9 years'])}
WITH RECURSIVE r AS ((SELECT created_at, id::bigint AS id, 1 AS k FROM $table WHERE id IS NOT NULL ORDER BY created_at, id LIMIT 1)
	UNION ALL SELECT l.*, k + 1 FROM r, LATERAL (SELECT created_at, id::bigint FROM $table t WHERE {(t.created_at, t.id) > (r.created_at, r.id)|t.created_at > r.created_at} ORDER BY t.created_at, t.id LIMIT 1) l WHERE k < 8)
	SELECT * FROM r
SELECT s.n, l.* FROM spans s LEFT JOIN LATERAL (SELECT t.id, t.created_at, s.n + t.n AS m FROM $table t
	WHERE t.created_at {>= s.lo AND t.created_at < s.hi|= s.lo|::date = s.lo::date|> s.lo AND t.n < 30}) l ON {true|m > 20|l.created_at > $instant}
+SELECT l.created_at, m FROM spans s LEFT JOIN LATERAL (SELECT t.created_at, s.n + t.n AS m FROM $table t WHERE t.n < 20) l ON true ORDER BY 1$down, 2$limit
SELECT s.n, l.created_at FROM spans s, LATERAL (SELECT created_at FROM $table WHERE created_at {<=|<|>|>=} s.lo ORDER BY created_at$down LIMIT 1) l
SELECT s.n, (SELECT created_at FROM $table t WHERE t.created_at {<=|<|>|>=|=} s.lo ORDER BY created_at$down LIMIT 1) FROM spans s
SELECT a.id, b.id, b.created_at FROM $table a LEFT JOIN $table b ON a.id = b.id AND {true|$where_of_b}
	WHERE a.n < 30 AND {$where_of_b|b.created_at IS NULL|(b.created_at IS NULL OR $where_of_b)|coalesce(b.created_at, a.created_at) > $instant|(b.created_at > $instant) IS NOT TRUE|b.created_at IS NOT NULL}
SELECT created_at, a.n, b.n FROM $table a {FULL|LEFT|RIGHT|INNER} JOIN $table b USING (created_at) WHERE {a.n < 20|b.n < 10|created_at > $instant AND a.n < 10}
SELECT a.id, c.id FROM $table a LEFT JOIN ($table b {JOIN|LEFT JOIN} $table c ON b.created_at = c.created_at AND b.n < 20 AND c.n < 50) ON a.id = b.id WHERE a.n < 20 AND {true|c.created_at IS NULL|c.created_at > $instant|$where_of_a}
SELECT count(*), max(b.n) FROM $table a {JOIN|LEFT JOIN} $table b ON a.id = b.id {JOIN|LEFT JOIN|RIGHT JOIN} spans s ON b.created_at {=|>=} s.lo WHERE {$where_of_a|$where_of_b|true}
SELECT a.id FROM $table a WHERE {|NOT }EXISTS (SELECT FROM $table b WHERE b.created_at = a.created_at AND b.n <> a.n AND $where_of_b)
SELECT id FROM $table a WHERE $where OR EXISTS (SELECT FROM spans s WHERE s.lo = a.created_at)
SELECT id FROM $table WHERE (created_at, n) {IN|NOT IN} (SELECT created_at, n FROM $table WHERE n < 20)
SELECT id FROM $table WHERE created_at {=|<|>=} (SELECT max(created_at) FROM $table WHERE $where)
SELECT t.id, u FROM $table t {JOIN|RIGHT JOIN} unnest(ARRAY[$instants]) u ON t.created_at {=|<=} u AND t.n < 30
SELECT t.id, v.x FROM (VALUES ($instant, 1), ($instant, 2)) v(at, x) JOIN $table t ON t.created_at {=|<=} v.at AND $where_of_t
SELECT t.id, d.zone FROM $table t JOIN dense d ON {(t.created_at AT TIME ZONE '$zone')::date = (d.day AT TIME ZONE '$zone')::date|date_trunc('day', t.created_at, d.zone) = d.day|t.created_at AT TIME ZONE d.zone < $local AND t.n < 10}
SELECT a.id, b.n FROM $table a JOIN $table b ON a.id = b.id AND $where_of_b WHERE $where_of_a
SELECT a.id, b.n FROM {parts|hashed|rest} a {JOIN|LEFT JOIN|FULL JOIN} {parts|hashed|rest} b ON a.id = b.id AND a.created_at = b.created_at WHERE {$where_of_a|$where_of_b|true}
+SELECT created_at FROM $table WHERE $where {UNION|UNION ALL|EXCEPT|EXCEPT ALL|INTERSECT|INTERSECT ALL} SELECT created_at FROM $table ORDER BY 1$down$limit
SELECT w.id, s.n FROM (SELECT id::bigint, created_at, n FROM $table UNION ALL SELECT id::bigint, created_at, n FROM $table) w {JOIN|LEFT JOIN} spans s ON w.created_at {=|>=} s.lo WHERE w.n < 10
WITH w AS (SELECT * FROM $table WHERE $where ORDER BY created_at, id, n, customer LIMIT 20), x AS (SELECT max(created_at) AS m FROM w) SELECT t.id FROM $table t, x WHERE t.created_at >= x.m AND t.n < 50
WITH w AS (DELETE FROM items WHERE $where RETURNING id, created_at, n) SELECT id, created_at FROM w WHERE $where
SELECT * FROM (SELECT {id|DISTINCT id}, created_at, n FROM $table OFFSET {0|0|0}) w WHERE $where
SELECT a.id, b.n FROM items a JOIN numbers b ON a.created_at = b.created_at WHERE $where_of_a FOR {UPDATE|SHARE|NO KEY UPDATE} OF a
+SELECT id, created_at FROM {parts|family|hashed|rest} WHERE id IS NOT NULL AND $where ORDER BY created_at, id LIMIT 5 FOR UPDATE SKIP LOCKED
UPDATE {items|parts|family|hashed} t SET n = 0 FROM spans s WHERE t.created_at {= s.lo|::date = s.lo::date AND s.n = 3|>= s.lo AND t.created_at < s.hi AND s.n = 2} RETURNING t.id, t.n
DELETE FROM {items|parts|family|hashed} t USING spans s WHERE t.created_at {= s.lo|BETWEEN s.lo AND s.hi|::date = s.lo::date|<@ tstzrange(least(s.lo, s.hi), s.hi)} AND $where_of_t RETURNING t.id
MERGE INTO [[t_items||items]] t USING spans s ON [[@@ t.id||t.created_at]] = s.lo{| AND t.n < 80} WHEN MATCHED AND t.n < 50 THEN DELETE WHEN MATCHED THEN UPDATE SET n = -1;
	SELECT id, n FROM items WHERE n = -1; SELECT count(*), sum(n) FROM items
MERGE INTO [[t_family||family]] t USING (SELECT min(lo) AS lo FROM spans WHERE n < $m) s ON [[@@ t.id||t.created_at]] {=|<|>} s.lo WHEN MATCHED AND [[@@ t.id||t.created_at]] {<|>=} $instant THEN DELETE WHEN MATCHED THEN UPDATE SET n = -1;
	SELECT id, n FROM family WHERE n = -1; SELECT count(*), sum(n) FROM family
+SELECT created_at FROM [[(SELECT *, @@ id AS created_at FROM t_items TABLESAMPLE {BERNOULLI|SYSTEM} (100))||items]] t WHERE $where ORDER BY 1$down$limit
+SELECT created_at FROM [[(SELECT *, @@ id AS created_at FROM t_{items|parts|family} TABLESAMPLE {BERNOULLI|SYSTEM} (0))||(SELECT * FROM items WHERE false)]] t WHERE $where ORDER BY 1$down$limit
+SELECT created_at FROM [[(SELECT *, @@ id AS created_at FROM ONLY t_family)||(SELECT * FROM family WHERE customer < 2)]] t WHERE $where ORDER BY 1$down$limit
END

my @switches =
  qw(seqscan indexscan indexonlyscan bitmapscan sort incremental_sort hashagg hashjoin mergejoin nestloop
  material memoize partition_pruning partitionwise_join partitionwise_aggregate gathermerge);

sub settings
{
	my @set = map { "SET enable_$_ = " . one('on', 'off') } grep { chance(0.4) } @switches;

	push @set, 'SET min_parallel_table_scan_size = 0', 'SET min_parallel_index_scan_size = 0',
	  'SET parallel_setup_cost = 10', 'SET parallel_tuple_cost = 0'
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
		my $by_key = $schema eq 'by_key';

		# From 17 on, a constant range without bounds contains even NULL, if a plan is made for it.
		my $settings = join ';', grep { $by_key || /plan_cache_mode/ } split /;/, $_->{settings};
		my $query = $_->{query} =~ s/\[\[(.*?)\|\|(.*?)\]\]/$by_key ? $1 : $2/gesr;

		$script .=
		  "RESET ALL; SET search_path = $schema, public; SET ROLE reader; SET timezone = '$_->{zone}';\n$settings;\n"
		  . "\\echo === "
		  . $n++
		  . "\nBEGIN;\n$query;\nROLLBACK;\nDEALLOCATE ALL;\n";
	}
	IPC::Run::run([ 'psql', '-XAtq', '-f', '-', '-d', $node->connstr('postgres') ],
		'<', \$script, '>', \$out, '2>&1');
	my (undef, @answers) = split /^=== \d+\n/m, $out, -1;
	die "not all queries are answered: $?\n" . substr $out, -2000 if @answers != @asked;
	return @answers;
}

my ($wrong, $empty, $errors) = (0, 0, 0);
my @shown;
for (my $begin = 0; $begin < $queries; $begin += 500)
{
	my @asked;

	for (my $n = $begin; $n < $begin + 500 && $n < $queries; $n++)
	{
		$mind = chance(0.4) ? one(@odd_zones) : one(@zones);
		my ($ordered, $query) = one(@queries) =~ /^(\+?)(.*)/;

		push @asked,
		  { query => fill($query), ordered => $ordered, zone => $mind, settings => settings() };
	}
	my @by_key = ask('by_key', @asked);
	my @by_copy = ask('by_copy', @asked);
	foreach my $n (0 .. $#asked)
	{
		my ($key, $copy) = map { $_ =~ s/^psql:.*?ERROR: */ERROR /gmr } $by_key[$n], $by_copy[$n];

		($key, $copy) = map { join "\n", sort split /\n/ } $key, $copy unless $asked[$n]{ordered};

		# neither has to compute what is not asked for
		$errors++, next if $copy =~ /^ERROR/m;
		$empty++ if $copy eq '';
		next if $key eq $copy;
		push @shown,
		  "-- query @{[ $begin + $n ]}, zone $asked[$n]{zone}\n$asked[$n]{settings}\n$asked[$n]{query}\nby key:  "
		  . substr($key, 0, 300)
		  . "\nby copy: "
		  . substr($copy, 0, 300)
		  if @shown < 10;
		$wrong++;
	}
}
is($wrong, 0, "$queries queries, of which $empty have no rows, and $errors raise an error")
  or diag join "\n\n", @shown;
cmp_ok($empty, '<', $queries / 2, 'most have rows');
cmp_ok($errors, '<', $queries / 10, 'few raise an error');

# Planned on the key
$mind = 'UTC';
my ($plans, $unplanned) = (0, 0);
foreach (1 .. $queries / 10)
{
	my ($condition, $on_key) = filter('created_at');

	# an abbreviation is no name of a zone
	next if !$on_key || $condition =~ /NULL::|NULL, NULL|empty|'CET'/;
	my ($failed, $plan) = $node->psql('postgres',
		"SET search_path = by_key, public; SET enable_seqscan = off; EXPLAIN (COSTS OFF) SELECT * FROM "
		  . (qw(items numbers others))[ $plans++ % 3 ]
		  . " WHERE $condition");

	# a constant that is out of range
	next if $failed;
	next if $plan =~ /Index Cond|One-Time Filter: false/;
	diag "$condition\n$plan" if !$unplanned++;
}
is($unplanned, 0, "$plans filters are planned on the key");

$node->stop;
done_testing();
