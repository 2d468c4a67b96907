# The consumers of doc/tailing, and programs by others that read its views, handle each row once and
# in order, while a transaction that minted first commits last.  The statements of those are what
# Kafka Connect's JDBC source and the like of Airbyte send.

use SnowflakeTest;

my $consumers = 'doc/tailing';
my $page = slurp_file("$consumers.md");
my $node = minting_node('main');

sub sql { return query($node, @_); }

sql(q{CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), customer text NOT NULL)}
);
sql(slurp_file("$consumers/consumer.sql"));

my ($python) = grep { system(qq{$_ -c 'import psycopg2' 2>/dev/null}) == 0 } 'python3',
  '/usr/bin/python3';
my $position_file = PostgreSQL::Test::Utils::tempdir() . '/position';
my $printed = '';

# Let the consumers in SQL and in Python work off what there is, and look what they have handled
# up to now.
sub consume
{
	my ($expected, $what) = @_;

	sql(q{CALL consume_orders('test', 2)});
	is(sql(q{SELECT string_agg(customer, ' ' ORDER BY ctid) FROM handled_orders}),
		$expected, "in SQL: $what");
	if (defined $python)
	{
		my ($stdout, $stderr) = run_command(
			[
				$python, "$consumers/consumer.py",
				$node->connstr('postgres'), 'orders',
				$position_file, '--once'
			]);

		is($stderr, '', 'the consumer in Python runs');
		$printed .= "$stdout\n" if $stdout ne '';
		is(join(' ', $printed =~ /\t(\w+)$/mg), $expected, "in Python: $what");
	}
	return;
}

my $insert = q{INSERT INTO orders (customer) VALUES ('%s')};

sub insert { return sql(sprintf $insert, $_[0]); }
sub open_row { return session($node, 'BEGIN', sprintf $insert, $_[0]); }

note 'no Python with psycopg2' unless defined $python;
insert("c$_") foreach 1 .. 5;
my $early = open_row('early');
insert('late');
consume('c1 c2 c3 c4 c5', "what is complete is delivered: $_ time") foreach 1, 2;
$early->query_safe('COMMIT');
$early->quit;
consume('c1 c2 c3 c4 c5 early late', 'the rest in order');

# A transaction of the consumer that fails leaves the position where it was.
insert('last');
sql(q{ALTER TABLE handled_orders ADD CONSTRAINT failing CHECK (customer <> 'last') NOT VALID});
refuses($node, q{CALL consume_orders('test')}, '23514', 'a row cannot be handled');
sql(q{ALTER TABLE handled_orders DROP CONSTRAINT failing});
consume('c1 c2 c3 c4 c5 early late last', 'it is handled when it can be');

# The views of the page.  Kafka Connect needs a bigint.
my @views = ('orders_settled', 'orders_numbered');
foreach my $view (@views)
{
	my ($create) = $page =~ /^(CREATE VIEW $view AS .*;)$/m or die "no $view";

	sql($create);
}
is( sql(q{SELECT atttypid::regtype FROM pg_attribute WHERE attrelid = 'orders_numbered'::regclass AND attname = 'id'}
	),
	'bigint',
	'the view for Kafka Connect has a bigint');

# One index scan with both bounds, of both, for what Kafka Connect sends
sql(q{TRUNCATE orders; INSERT INTO orders SELECT snowflake_next(), n::text FROM generate_series(1, 1000) n; ANALYZE orders}
);
my %plan = map {
	$_ => sql(
		qq{SET plan_cache_mode = force_generic_plan;
		PREPARE poll(bigint) AS SELECT * FROM "$_" WHERE "$_"."id" > \$1 ORDER BY "$_"."id" ASC;
		EXPLAIN (COSTS OFF) EXECUTE poll(5)})
} @views;
like(
	$plan{orders_settled},
	qr/\AIndex Scan using orders_pkey on orders\n +Index Cond: (?=.*\(id\)::bigint > \$1\))(?=.*\(id\)::bigint <= \(?snowflake_frontier\(\)).*\z/,
	'a poll is one index scan with both bounds');
is($plan{orders_numbered}, $plan{orders_settled}, 'so it is of the view with a bigint');

# A position, or a range up to the largest ID.  The table loses the row that commits late.
my @relations = ('orders', @views);
my %position = map { $_ => 0 } @relations;
my %seen = map { $_ => '' } @relations;

sub poll
{
	my ($relation) = @_;
	my $largest = sql("SELECT coalesce(max(id), 0) FROM $relation");

	return sub {
		$seen{$relation} .= sql(
			"SELECT coalesce(string_agg(customer, ' ' ORDER BY id) || ' ', '') FROM $relation WHERE id > $position{$relation} AND id <= $largest"
		);
		$position{$relation} = $largest;
	};
}

sql('TRUNCATE orders');
$early = open_row('early');
insert('late');
poll($_)->() foreach @relations;
my @readers = map { poll($_) } @relations;

# between the two statements of a poll
$early->query_safe('COMMIT');
$early->quit;
$_->() foreach @readers;
insert('last');
poll($_)->() foreach @relations;
is($seen{orders}, 'late last ', 'of the table, the row that commits late is missed');
is($seen{$_}, 'early late last ', "of $_, none") foreach @views;

done_testing();
