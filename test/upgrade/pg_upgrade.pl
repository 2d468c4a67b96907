# pg_upgrade: keys decode the same afterwards, and minting goes on above the
# last ID, for which there is only the reservation to go by: the generator is
# far ahead of the clock each time the old server stops.  A migration of snowflake_migrate that
# has begun goes on, or back.
#
# SNOWFLAKE_UPGRADE_PATHS names the installations, oldest first.  The framework
# is that of the newest.

use PostgreSQL::Test::Cluster;
use SnowflakeTest qw(finish_minter new_node start_minter wait_until);

my @paths = split ' ', $ENV{SNOWFLAKE_UPGRADE_PATHS};
my $layout = 'discord';

# Each server is told the same.
my $conf = qq{
snowflake.layout = '$layout'
snowflake.max_lead = '1h'
};

# pg_upgrade wants both clusters alike in this, and initdb's default differs.
my $init = { extra => [ '--data-checksums', '--locale=C', '--encoding=UTF8' ] };

my $preload = "shared_preload_libraries = 'snowflake'\n";
my $no_preload = "shared_preload_libraries = ''\n";

# A cluster of that installation, preloading the library or not.
sub new_cluster
{
	my ($path, $preloads) = @_;
	my ($version) = $path =~ /(\d+)\/*$/;

	return new_node(
		"v$version",
		new => { install_path => $path },
		node_id => 5,
		init => $init,
		preload => $preloads,
		conf => $conf);
}

# Run pg_upgrade, with further arguments; returns whether it went well.
sub pg_upgrade
{
	my ($old, $new, @arguments) = @_;
	my ($stdout, $stderr);

	# it leaves files behind where it runs
	chdir $PostgreSQL::Test::Utils::tmp_check or die "could not chdir: $!";
	local %ENV = $new->_get_env();
	my $ok = IPC::Run::run(
		[
			$new->installed_command('pg_upgrade'), '--no-sync',
			'-d', $old->data_dir,
			'-D', $new->data_dir,
			'-b', $old->{_install_path} . '/bin',
			'-B', $new->{_install_path} . '/bin',
			'-s', $new->host,
			'-p', $old->port,
			'-P', $new->port,
			@arguments
		],
		'>',
		\$stdout,
		'2>',
		\$stderr);

	unless ($ok)
	{
		diag($stdout, $stderr);
		foreach
		  my $log (map { glob $new->data_dir . "/pg_upgrade_output.d/*/$_" } 'log/*.log', '*.txt')
		{
			my $text = slurp_file($log);
			diag("--- $log\n", substr($text, -3000));
		}
	}
	return $ok;
}

# What must be the same before and after.  (pg_upgrade makes array and row types
# members, of any extension, and 17 has one more privilege.)
my %same = (
	'the extension' => q{
		SELECT extversion, extnamespace::regnamespace, extrelocatable
		FROM pg_extension WHERE extname = 'snowflake'},
	"the extension's members" => q{
		SELECT concat_ws(' ', pg_describe_object(classid, objid, objsubid),
			proacl, provolatile, proparallel, proisstrict, prosupport,
			replace(relacl::text, 'arwdDxtm', 'arwdDxt'),
			obj_description(objid, classid::regclass::text::name))
		FROM pg_depend
			JOIN pg_extension e ON e.oid = refobjid AND deptype = 'e'
			LEFT JOIN pg_proc p ON p.oid = objid AND classid = 'pg_proc'::regclass
			LEFT JOIN pg_class c ON c.oid = objid AND classid = 'pg_class'::regclass
			LEFT JOIN pg_type t ON t.oid = objid AND classid = 'pg_type'::regclass
		WHERE extname = 'snowflake'
			AND coalesce(typrelid, 0) = 0 AND coalesce(typelem, 0) = 0},
	(   map {
			(   "keys of $_, decoded" => qq{
		SELECT count(*), md5(string_agg(
			concat_ws(' ', tableoid::regclass,
				extract(epoch FROM snowflake_timestamp(id::snowflake, '$layout')),
				snowflake_node(id::snowflake, '$layout'),
				snowflake_sequence(id::snowflake, '$layout'),
				t),
			E'\\n' ORDER BY id))
		FROM $_ t},
				"keys of $_, by index" => qq{
		SET enable_seqscan = off; SET enable_bitmapscan = off;
		SELECT count(*), min(id), max(id) FROM $_ WHERE id > '1'})
		} qw(orders items log spread)),
	'by hash index' => q{
		SET enable_seqscan = off;
		SELECT count(*) FROM orders o, unnest(
			(SELECT array_agg(order_id) FROM items)) AS i(id) WHERE o.id = i.id},
	'by BRIN' => q{
		SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off;
		SELECT count(*) FROM brin WHERE @@ id >= timestamptz '2020-01-01'},
	'by an index on a part of the key' => qq{
		SET enable_seqscan = off;
		SELECT count(*) FROM orders WHERE snowflake_node(id, '$layout') = 5},
	'a view' => q{
		SELECT count(*), md5(string_agg(r::text, E'\n' ORDER BY id)) FROM recent r},
	'defaults, generated columns and partition bounds' => q{
		SELECT adrelid::regclass || ' ' || pg_get_expr(adbin, adrelid) FROM pg_attrdef
		UNION ALL
		SELECT oid::regclass || ' ' || pg_get_expr(relpartbound, oid) FROM pg_class
		WHERE relispartition AND relkind = 'r'},);

sub digest
{
	my ($node) = @_;

	my %digest = map { $_ => $node->safe_psql('app', $same{$_}) } keys %same;

	die "nothing to compare" if grep { $_ eq '' } values %digest;
	return \%digest;
}

# The lines that only one of two results has.
sub differences
{
	my ($before, $after) = @_;
	my %count;

	$count{$_}-- foreach split /\n/, $before;
	$count{$_}++ foreach split /\n/, $after;
	return join(
		"\n", map { ($count{$_} < 0 ? '-' : '+') . $_ }
		  grep { $count{$_} } sort keys %count);
}

# The largest key
sub newest
{
	my ($node) = @_;

	return $node->safe_psql(
		'app', q{
		SELECT greatest((SELECT max(id) FROM orders), (SELECT max(id)::snowflake FROM items),
			(SELECT max(id) FROM log), (SELECT max(id) FROM spread),
			(SELECT max(id) FROM brin))});
}

# What a server that is stopped has stored
sub stored
{
	my ($node) = @_;

	return SnowflakeTest::stored($node, 5,
		q{concat_ws(' ', layout, extract(epoch FROM reserved_until))});
}

# The IDs of a minter whose server has stopped.  Its last line may be cut off.
sub complete_ids
{
	my ($minter) = @_;

	# it ends with the connection's error
	eval { finish_minter($minter) };
	return slurp_file($minter->{ids}) =~ /^(\d+)\n/mg;
}

# Rows for each table, from the defaults
sub insert_rows
{
	my ($node) = @_;

	$node->safe_psql(
		'app', q{
		INSERT INTO orders (customer) SELECT 'customer ' || i FROM generate_series(1, 1000) i;
		INSERT INTO items (order_id, related)
			SELECT id, ARRAY[id, snowflake_next()] FROM orders ORDER BY id DESC LIMIT 1000;
		INSERT INTO log (line) SELECT 'line ' || i FROM generate_series(1, 1000) i;
		INSERT INTO spread SELECT FROM generate_series(1, 1000);
		INSERT INTO brin (line) SELECT repeat('x', 100) FROM generate_series(1, 5000);
		INSERT INTO log (id, line)
			SELECT make_snowflake(timestamptz '2026-01-01' + i * interval '1 day', 1, i), 'past'
			FROM generate_series(0, 100) i ON CONFLICT DO NOTHING});
	return;
}

# Take the generator some time ahead of the clock; returns the last ID of the
# tick to which it was taken.
sub advance
{
	my ($node, $interval) = @_;
	my $id = $node->safe_psql('postgres',
		"SELECT snowflake_upper_bound(clock_timestamp() + interval '$interval')");

	# the warning says how far ahead that is
	$node->psql('postgres', "SELECT snowflake_advance('$id', force => true)");
	return $id;
}

# Migrate a table as far as the swap, which leaves statements for undo().
sub migrate
{
	my ($node) = @_;

	$node->safe_psql('app', $_)
	  foreach q{CALL snowflake_migrate.fill('{public.old_keys}')},
	  'SELECT snowflake_migrate.build() \gexec',
	  'CALL snowflake_migrate.swap()';
	return;
}

# What a migration has recorded
sub recorded
{
	my ($node) = @_;

	return $node->safe_psql(
		'app', q{
		SELECT m::text FROM snowflake_migrate.migration m UNION ALL SELECT s::text FROM snowflake_migrate.shadow s
		UNION ALL SELECT f::text FROM snowflake_migrate.filling f UNION ALL SELECT t::text FROM snowflake_migrate.step t ORDER BY 1}
	);
}

# The column's type, default and the number of its rows
sub old_keys
{
	my ($node) = @_;

	return $node->safe_psql('app',
		q{SELECT pg_typeof(id), column_default, count(*) FROM old_keys, information_schema.columns WHERE table_name = 'old_keys' AND column_name = 'id' GROUP BY 1, 2}
	);
}

my $old = new_cluster($paths[0], 1);
$old->start;
$old->safe_psql('postgres', 'CREATE EXTENSION snowflake');
$old->safe_psql('postgres', 'CREATE DATABASE app');
$old->safe_psql(
	'app', qq{
	CREATE EXTENSION snowflake;
	CREATE TABLE orders (
		id snowflake PRIMARY KEY DEFAULT snowflake_next(),
		customer text,
		created timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, '$layout')) STORED);
	CREATE INDEX ON orders USING hash (id);
	CREATE INDEX ON orders (snowflake_node(id, '$layout'));
	CREATE TABLE items (
		id bigint PRIMARY KEY DEFAULT snowflake_next(),
		order_id snowflake NOT NULL REFERENCES orders,
		related snowflake[]);
	CREATE TABLE log (id snowflake PRIMARY KEY DEFAULT snowflake_next(), line text)
		PARTITION BY RANGE (id);
	CREATE TABLE log_old PARTITION OF log FOR VALUES
		FROM (snowflake_lower_bound('2026-01-01', '$layout'))
		TO (snowflake_lower_bound('2026-02-01', '$layout'));
	CREATE TABLE log_rest PARTITION OF log DEFAULT;
	CREATE TABLE spread (id snowflake PRIMARY KEY DEFAULT snowflake_next())
		PARTITION BY HASH (id);
	CREATE TABLE spread_0 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE spread_1 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 1);
	CREATE TABLE brin (id snowflake DEFAULT snowflake_next(), line text);
	CREATE INDEX ON brin USING brin (id);
	CREATE INDEX ON brin USING brin (id int8_minmax_multi_ops);
	CREATE VIEW recent AS SELECT id, @@ id AS created, id -> 'worker' AS worker FROM orders
		WHERE @@ id >= timestamptz '2020-01-01';
	CREATE EXTENSION snowflake_migrate;
	CREATE TABLE old_keys (id serial PRIMARY KEY, line text);
	INSERT INTO old_keys (line) SELECT 'line ' || i FROM generate_series(1, 1000) i});
my $unmigrated = old_keys($old);
migrate($old);

foreach my $step (1 .. $#paths)
{
	my ($from, $to) = map { /(\d+)\/*$/ } @paths[ $step - 1, $step ];
	my $name = "$from to $to";
	my $first = $step == 1;
	my @minted;

	# Take the generator further ahead than the step before, so that neither the
	# clock nor the tables tell how far it is.  The first time the server stops
	# while sessions mint as fast as they can; later it has heard of an ID, and
	# stops before it has minted another one.
	insert_rows($old);

	# some minor releases note changes of a column in an option that others do not know
	$old->safe_psql('app',
		q{UPDATE pg_attribute SET attoptions = NULL WHERE attoptions::text LIKE '{pg\_attver=%}'});
	my $before = digest($old);
	my $recorded = recorded($old);
	push @minted, newest($old);
	push @minted, advance($old, 15 * $step . ' min');
	if ($first)
	{
		my @minters = map { start_minter($old, 500_000, dbname => 'app') } 1 .. 2;
		wait_until(
			'sessions mint',
			sub {
				!grep { !-s $_->{ids} } @minters;
			});
		$old->stop('fast');
		push @minted, map { complete_ids($_) } @minters;
	}
	else
	{
		$old->stop('fast');
	}
	my ($newest) = sort { $b <=> $a } @minted;
	my $stored = stored($old);

	# With the library preloaded in both servers, and in neither
	my $new = new_cluster($paths[$step], $first);
	$old->append_conf('postgresql.conf', $no_preload) unless $first;
	my @arguments = $first ? () : ('--link');
	ok(pg_upgrade($old, $new, @arguments, '--check'), "$name: pg_upgrade --check");
	ok(pg_upgrade($old, $new, @arguments), "$name: pg_upgrade @arguments");
	is(stored($new), $stored, "$name: the reservation is intact");

	$new->append_conf('postgresql.conf', $preload) unless $first;
	$new->start;
	is($new->safe_psql('app', 'SHOW server_version_num') =~ s/\d{4}$//r,
		$to, "$name: the new server runs");
	my $id = $new->safe_psql('app', 'SELECT snowflake_next()');
	cmp_ok($id, '>', $newest, "$name: minting goes on above the last ID");
	is($new->safe_psql('app', "SELECT snowflake_timestamp('$id') > now() + interval '1 min'"),
		't', "$name: and only the reservation could have said so");
	is( $new->safe_psql(
			'postgres',
			q{SELECT gate, node, layout = (SELECT layout FROM snowflake_layout())
			  FROM snowflake_status}),
		'open|5|t',
		"$name: the gate is open for the same node ID");
	is( $new->safe_psql(
			'postgres', q{
			SELECT tgname, tgenabled FROM pg_trigger
			WHERE tgrelid = 'snowflake_keeper.reservation'::regclass ORDER BY tgname}),
		"keeper_only|O\nnot_replicated|R",
		"$name: others are kept out of the reservation");

	my $after = digest($new);
	is(differences($before->{$_}, $after->{$_}), '', "$name: the same: $_") foreach sort keys %same;

	is(recorded($new), $recorded, "$name: what a migration has recorded");
	if ($step < $#paths)
	{
		$new->safe_psql('app', 'CALL snowflake_migrate.undo()');
		is(old_keys($new), $unmigrated, "$name: it goes back");
		migrate($new);
	}
	else
	{
		$new->safe_psql('app', 'CALL snowflake_migrate.finish()');
		is(old_keys($new), 'bigint|snowflake_next()|1000', "$name: or to its end");
	}

	insert_rows($new);
	is($new->safe_psql('app', "SELECT count(*) FROM orders WHERE id > '$newest'"),
		'1000', "$name: defaults mint above, too");
	$old = $new;
}

$old->stop;

done_testing();
