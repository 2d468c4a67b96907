# Random schemas for snowflake_migrate: keys of all kinds with partitions, children,
# references, indexes, constraints, objects that depend on columns and objects that
# prevent a conversion, of one or several owners.  For each of them:
#
# - a plan changes nothing, and a conversion fails if and only if the plan says what
#   blocks it;
# - a conversion that fails changes nothing;
# - after one that succeeds, every row, constraint, index, view, policy, trigger and
#   comment is as it was, new keys are snowflakes and can be referenced, what is no key
#   cannot, and there is nothing left to do.
#
#   bash test/run.sh convert                            200 schemas, in some minutes
#   bash test/run.sh convert --schemas 1000 --seed 7

use strict;
use warnings;

use Getopt::Long;
use SnowflakeTest;
use Test::More;

my ($schemas, $seed) = (200, 1);
GetOptions('schemas=i' => \$schemas, 'seed=i' => \$seed) or die "usage";

my $node = new_node('main', conf => 'max_locks_per_transaction = 256');
$node->start;

sub pick { return $_[ int rand @_ ]; }
sub chance { return rand() < $_[0]; }

# Run a script in one session; returns its error and the lines of its output.
sub run
{
	my ($script) = @_;
	my (undef, $out, $err) = $node->psql('postgres', $script);
	my ($error) = $err =~ /ERROR: +(.*)/;
	return ($error, split /\n/, $out);
}

my $helpers = q{
CREATE EXTENSION IF NOT EXISTS snowflake;
CREATE EXTENSION IF NOT EXISTS snowflake_migrate;
SET client_min_messages = error;

-- What a statement gives, or its error, less numbers that are never the same
CREATE OR REPLACE FUNCTION fuzz_outcome(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	result text := 'ok';
	detail text;
BEGIN
	SET CONSTRAINTS ALL IMMEDIATE;
	FOR line IN EXECUTE command LOOP
		result := result || ' ## ' || coalesce(line, 'NULL');
	END LOOP;
	RETURN regexp_replace(result, '\s*\n\s*', ' ', 'g');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN regexp_replace(regexp_replace(sqlstate || ' ' || sqlerrm || ' ' || detail, '\d{12,}', 'N', 'g'), '\s*\n\s*', ' ', 'g');
END $$;

-- All that the catalogs say about a schema, less types and defaults, and all rows
CREATE OR REPLACE FUNCTION fuzz_state(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	rel regclass;
	rows text;
	state text;
BEGIN
	SELECT string_agg(t, ' ## ' ORDER BY t) INTO state FROM (
		SELECT format('%s %s %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated,
			obj_description(oid, 'pg_constraint')) FROM pg_constraint WHERE connamespace = name::regnamespace
		UNION ALL
		SELECT pg_get_indexdef(oid) FROM pg_class WHERE relnamespace = name::regnamespace AND relkind IN ('i', 'I')
		UNION ALL
		SELECT pg_get_statisticsobjdef(oid) || stxowner::regrole FROM pg_statistic_ext WHERE stxnamespace = name::regnamespace
		UNION ALL
		SELECT regexp_replace(pg_get_viewdef(oid), '\s+', ' ', 'g') FROM pg_class WHERE relnamespace = name::regnamespace AND relkind IN ('v', 'm')
		UNION ALL
		SELECT format('%s %s %s', polrelid::regclass, polname, pg_get_expr(polqual, polrelid)) FROM pg_policy p JOIN pg_class c ON c.oid = polrelid WHERE relnamespace = name::regnamespace
		UNION ALL
		SELECT format('%s %s', pg_get_triggerdef(t.oid), tgenabled) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = name::regnamespace AND NOT tgisinternal
		UNION ALL
		SELECT format('%s %s %s', c.conname, p.proname, tgenabled) FROM pg_trigger t JOIN pg_constraint c ON c.oid = tgconstraint JOIN pg_proc p ON p.oid = tgfoid
		 WHERE c.connamespace = name::regnamespace AND conparentid = 0
		UNION ALL
		SELECT format('%s %s %s', oid::regclass, relowner::regrole, relacl) FROM pg_class
		 WHERE relnamespace = name::regnamespace AND relkind IN ('r', 'p', 'v', 'm')) s (t);
	FOR rel IN SELECT oid FROM pg_class WHERE relnamespace = name::regnamespace AND relkind = 'r' ORDER BY oid LOOP
		EXECUTE format('SELECT count(*) || md5(string_agg(j, %L ORDER BY j)) FROM (SELECT (SELECT string_agg(e.key || trim(both ''"'' FROM e.value::text), '' '' ORDER BY e.key) FROM jsonb_each(to_jsonb(t)) e) FROM ONLY %s t) AS u (j)', ' ', rel) INTO rows;
		state := concat(state, ' ## ', rel, ' ', rows);
	END LOOP;
	-- how a snowflake is written where bigints are compared
	RETURN regexp_replace(regexp_replace(state, '\((\w+)\)::bigint', '\1', 'g'), '\m(\w+)::bigint', '\1', 'g');
END $$;

-- Give the tables of a schema whose names match to an owner.
CREATE OR REPLACE PROCEDURE fuzz_give(name text, pattern text, owner text) LANGUAGE plpgsql AS $$
DECLARE
	rel regclass;
BEGIN
	FOR rel IN SELECT oid FROM pg_class WHERE relnamespace = name::regnamespace AND relkind IN ('r', 'p') AND relname ~ pattern LOOP
		EXECUTE format('ALTER TABLE %s OWNER TO %I', rel, owner);
	END LOOP;
END $$;

-- Types and defaults as well
CREATE OR REPLACE FUNCTION fuzz_columns(name text) RETURNS text LANGUAGE sql AS $$
	SELECT md5(string_agg(format('%s %s %s %s %s', attrelid::regclass, attname, atttypid::regtype, attidentity,
		pg_get_expr(adbin, adrelid)), ' ' ORDER BY attrelid, attnum))
	  FROM pg_class c JOIN pg_attribute ON attrelid = c.oid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
	 WHERE relnamespace = name::regnamespace AND attnum > 0 AND NOT attisdropped $$;
};

# One schema.  Returns its statements, the caller, the target type, and the
# tables that reference the key with their columns.
sub schema
{
	my ($s) = @_;
	my @owners =
		chance(0.5) ? ('fuzz_1')
	  : chance(0.5) ? ('fuzz_1', 'fuzz_2')
	  : ('fuzz_1', 'fuzz_2', 'postgres');
	my @sql = (
		"CREATE SCHEMA $s",
		"GRANT ALL ON SCHEMA $s TO PUBLIC",
		"CREATE FUNCTION $s.of_int(int) RETURNS int LANGUAGE sql IMMUTABLE RETURN \$1");
	my $shape = pick('plain', 'plain', 'plain', 'partitions', 'children');
	my $kind = pick(
		'smallserial', 'serial',
		'serial', 'bigserial',
		'int', 'bigint',
		'smallint', 'snowflake',
		'int GENERATED ALWAYS AS IDENTITY', 'bigint GENERATED BY DEFAULT AS IDENTITY',
		'int DEFAULT 3 + 4', 'bigint DEFAULT snowflake_next()');
	my $composite = $shape eq 'partitions';
	my $key_owner = pick(@owners);
	my $count = pick(0, 1, 30);
	my @references;

	my $partition_by = $composite ? pick('LIST (k)', 'RANGE (k)', 'LIST (k)') : '';
	push @sql, "CREATE TABLE $s.keys (id $kind, k int NOT NULL DEFAULT 1, v text, PRIMARY KEY (id"
	  . ($composite ? ", k)) PARTITION BY $partition_by" : '))');
	if ($composite)
	{
		push @sql, "CREATE TABLE $s.keys_1 PARTITION OF $s.keys FOR VALUES "
		  . ($partition_by =~ /LIST/ ? 'IN (1)' : 'FROM (1) TO (2)');
		push @sql, "CREATE TABLE $s.keys_2 PARTITION OF $s.keys DEFAULT"
		  . (chance(0.5) ? ' PARTITION BY HASH (k)' : '');
		push @sql,
		  "CREATE TABLE $s.keys_3 PARTITION OF $s.keys_2 FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
		  if $sql[-1] =~ /HASH/;
	}
	if ($shape eq 'children')
	{
		push @sql, "CREATE TABLE $s.child_1 () INHERITS ($s.keys)";
		push @sql,
		  "CREATE TABLE $s.child_2 (w int) INHERITS (" . pick("$s.keys", "$s.child_1") . ')';
		push @sql, "INSERT INTO $s.child_2 (id, v) OVERRIDING SYSTEM VALUE VALUES (1000, 'child')";
	}
	push @sql,
	  "INSERT INTO $s.keys (id, k, v) OVERRIDING SYSTEM VALUE SELECT g, 1, 'key ' || g FROM generate_series(1, $count) g";
	push @sql,
		"INSERT INTO $s.keys (id, k, v) OVERRIDING SYSTEM VALUE VALUES ("
	  . pick(-5, 31000, 31000)
	  . ", 1, 'odd')"
	  if chance(0.2);

	foreach my $i (1 .. int rand 5)
	{
		my $t = "$s.ref_$i";
		my $type =
		  pick('int', 'int', 'smallint', 'bigint', $kind =~ /^(big|snow)/ ? 'snowflake' : 'int');
		my $wide = $type eq 'smallint' || chance(0.3) ? '' : ' PRIMARY KEY';
		my $to =
			!$composite
		  && $wide ne ''
		  && @references
		  && chance(0.2) ? $references[-1]{table} : "$s.keys";
		my $partitioned = chance(0.15);

		$wide = '' if $partitioned || $composite;
		$to = "$s.keys" if $to ne "$s.keys" && !$references[-1]{unique};
		push @sql, "CREATE TABLE $t (r $type$wide, k int DEFAULT 1, n int, x text"
		  . ($partitioned ? ') PARTITION BY ' . pick('HASH (n)', 'LIST (n)', 'RANGE (r)') : ')');
		push @sql,
		  "CREATE TABLE ${t}_1 PARTITION OF $t "
		  . ($sql[-1] =~ /HASH/ ? 'FOR VALUES WITH (MODULUS 1, REMAINDER 0)' : 'DEFAULT')
		  if $partitioned;
		my $columns = $composite ? 'r, k' : 'r';
		my $options = pick(
			'', '',
			' ON DELETE CASCADE',
			' DEFERRABLE INITIALLY DEFERRED',
			$partitioned ? '' : ' NOT VALID',
			' ON UPDATE SET NULL');
		my $key = $to eq "$s.keys" ? 'id' : 'r';
		my $only = $key eq 'id' && !$composite ? 'ONLY ' : '';
		push @sql, "INSERT INTO $t (r, k, n) SELECT $key\::bigint, k, 1 FROM $only$to LIMIT 20",
			"ALTER TABLE $t ADD CONSTRAINT fk_$i FOREIGN KEY ($columns) REFERENCES $to"
		  . ($key eq 'id' ? '' : '(r)')
		  . $options;
		push @sql, "COMMENT ON CONSTRAINT fk_$i ON $t IS 'it''s number $i'" if chance(0.3);
		push @references, { table => $t, to => $to, unique => $wide ne '' };
	}
	push @sql, "ALTER TABLE $s.keys ADD parent int",
	  "ALTER TABLE $s.keys ADD CONSTRAINT fk_self FOREIGN KEY (parent) REFERENCES $s.keys NOT VALID"
	  if !$composite && chance(0.2);

	foreach my $t ([ "$s.keys", 'id' ], map { [ $_->{table}, 'r' ] } @references)
	{
		my ($table, $column) = @$t;

		foreach (1 .. int rand 3)
		{
			push @sql,
			  pick(
				"CREATE INDEX ON $table ($column)",
				"CREATE INDEX ON $table (($column % 7), k)",
				"CREATE INDEX ON $table (k) WHERE $column > 5",
				"CREATE INDEX ON $table USING hash ($column)",
				"CREATE INDEX ON $table USING brin ($column)",
				"ALTER TABLE $table ADD CHECK ($column <> -77)",
				"ALTER TABLE $table ADD CHECK ($column > -77 OR k > 5)",
				"CREATE STATISTICS IF NOT EXISTS ${table}_s1 ON $column, k FROM $table",
				"CREATE STATISTICS IF NOT EXISTS ${table}_s2 ON ($column * 2), k FROM $table",
				"GRANT SELECT ON $table TO PUBLIC");
		}
		push @sql,
		  pick(
			"CREATE VIEW ${table}_view AS SELECT $column FROM $table",
			"ALTER TABLE $table ADD g bigint GENERATED ALWAYS AS ($column * 2) STORED",
			"CREATE POLICY p ON $table USING ($column > 0)",
			"CREATE INDEX ON $table ($s.of_int(k))",
			"CREATE TABLE ${table}_row (r $table)",
			"ALTER TABLE $table ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
			"CREATE TRIGGER t BEFORE UPDATE ON $table FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
			$table =~ /keys$/ && $shape eq 'plain' && $kind =~ /^(smallint|serial|int$)/
			? "CREATE INDEX ON $table ($s.of_int($column))"
			: "SELECT") if chance(0.15);
	}

	# one owner for a tree, mostly
	push @sql, "CALL fuzz_give('$s', '^(keys|child)', '$key_owner')";
	push @sql, "ALTER TABLE $s.child_1 OWNER TO " . pick(@owners)
	  if $shape eq 'children' && chance(0.2);
	foreach my $reference (@references)
	{
		my ($name) = $reference->{table} =~ /\.(.*)/;

		push @sql, "CALL fuzz_give('$s', '^$name(_1)?\$', '" . pick(@owners) . "')";
	}
	push @sql, map { "GRANT REFERENCES ON $_->{to} TO PUBLIC" } grep { chance(0.9) } @references;

	return (
		\@sql,
		pick('postgres', 'postgres', 'fuzz_1', 'fuzz_member'),
		pick('bigint', 'snowflake'),
		\@references);
}

$| = 1;
srand $seed;
my ($error) = run(
	$helpers . q{
	SELECT snowflake_next() \gset
	DO $$ BEGIN CREATE ROLE fuzz_1; CREATE ROLE fuzz_2; CREATE ROLE fuzz_member IN ROLE fuzz_1, fuzz_2; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
});
die "could not set up: $error" if defined $error;

my %count = (converted => 0, refused => 0, 'not made' => 0);
my $bad = 0;
my $i = 0;
while ($count{converted} + $count{refused} < $schemas)
{
	$i++;
	my $s = "fuzz_$i";
	my ($sql, $caller, $type, $references) = schema($s);
	my $convert = "'{$s.keys.id}', '$type'";
	my $look = "SELECT fuzz_state('$s');\nSELECT fuzz_columns('$s');\n";
	my $script =
		"SET client_min_messages = error;\n"
	  . join(";\n", @$sql)
	  . ";\n\\echo made\n"
	  . $look
	  . "SET ROLE $caller; SELECT fuzz_outcome(\$f\$SELECT finding || ' ' || object FROM snowflake_migrate.plan($convert) WHERE finding = 'blocks' OR finding = 'breaks' AND detail LIKE 'Its expression%'\$f\$); RESET ROLE;\n"
	  . $look
	  . "SET ROLE $caller; SELECT fuzz_outcome(\$f\$SELECT count(*) FROM snowflake_migrate.convert($convert)\$f\$); RESET ROLE;\n"
	  . $look
	  . "SELECT fuzz_outcome(\$f\$SELECT * FROM snowflake_migrate.convert($convert)\$f\$);\n"
	  . "SELECT fuzz_outcome(\$f\$INSERT INTO $s.keys (v) VALUES ('new') RETURNING id > 1000000000000\$f\$);\n";
	foreach my $reference (grep { $_->{to} eq "$s.keys" } @$references)
	{
		$script .=
		  "SELECT fuzz_outcome(\$f\$INSERT INTO $reference->{table} (r, k, n) SELECT id, k, 1 FROM $s.keys WHERE v = 'new' RETURNING true\$f\$);\n"
		  . "SELECT fuzz_outcome(\$f\$INSERT INTO $reference->{table} (r, n) VALUES (777777777777777, 1) RETURNING r\$f\$);\n";
	}
	$script .= "DROP SCHEMA $s CASCADE;\n";

	($error, my @lines) = run($script);
	if (!@lines || $lines[0] ne 'made')
	{
		$count{'not made'}++;
		run("DROP SCHEMA IF EXISTS $s CASCADE");
		next;
	}
	my (undef, $state, $columns, $dry, $state_dry, $columns_dry,
		$result, $state_after, $columns_after, $again, $insert, @rest) = @lines;
	my @problems;

	if (!defined $insert)
	{
		$count{refused}++;
		push @problems, 'no result, but ' . scalar(@lines) . " lines: $error";
	}
	else
	{
		push @problems, 'a plan changes something'
		  if $state ne $state_dry || $columns ne $columns_dry;
		push @problems, "a plan says\n$dry\nand the run\n$result"
		  if ($dry !~ / ## blocks /) != ($result =~ /^ok/);
		push @problems, "rows or constraints are\n$state_after\nand were\n$state"
		  if $state ne $state_after;
		if ($result =~ /^ok/)
		{
			$count{converted}++;
			push @problems, "the next run: $again" if $again ne 'ok';
			push @problems, "a new key: $insert"
			  if $insert !~ /^ok ## t/ && !($insert =~ /^22003/ && $dry =~ / ## breaks /);
			@rest = () unless $insert =~ /^ok/;    # without a new key there is nothing to reference
			while (my ($good, $bogus) = splice @rest, 0, 2)
			{
				push @problems, "a new reference: $good"
				  if $good !~ /^ok ## t/ && !($good =~ /^22003/ && $dry =~ / ## breaks /);
				push @problems, "no reference: $bogus" if $bogus !~ /^(23503|22003|42601)/;
			}
		}
		else
		{
			$count{refused}++;
			push @problems, 'a run that fails changes something' if $columns ne $columns_after;
			push @problems, "an unforeseen error: $result" if $result =~ /^XX/;
		}
	}
	next unless @problems;
	$bad++;
	diag "schema $i of seed $seed, by $caller to $type:\n", join(";\n", @$sql), "\n",
	  map({ "--> $_\n" } @problems), "\n";
	run("DROP SCHEMA IF EXISTS $s CASCADE");
}
is($bad, 0,
	"$schemas schemas of seed $seed: " . join(', ', map { "$count{$_} $_" } sort keys %count));
done_testing();
