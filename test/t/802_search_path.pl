# A hostile search_path: no role can have its code run by the script, by the extension's functions or
# by the keeper.  Somebody plants everything that an unqualified name could find, and each planted
# object reports its use by an error, which the log keeps.

use SnowflakeTest;

my $node = new_node('main', conf => "snowflake.database = kept");
$node->start;

sub rows
{
	my ($dbname, $sql) = @_;

	return split /\n/, query($node, "SET search_path = pg_catalog; $sql", dbname => $dbname);
}

query($node, "CREATE $_")
  foreach 'DATABASE plain', 'DATABASE kept', 'DATABASE victim', 'ROLE attacker';
query($node, 'CREATE EXTENSION snowflake', dbname => 'plain');

my $plant = q{
	CREATE FUNCTION pg_temp.try(command text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
	BEGIN
		EXECUTE command;
	EXCEPTION
		-- what is not for users, such as pseudo-types, and duplicates
		WHEN OTHERS THEN NULL;
	END $$;
	CREATE FUNCTION pg_temp.plant_function(schema text, name text, arguments text, result text) RETURNS void
	LANGUAGE sql SET search_path = pg_catalog AS $$
		SELECT pg_temp.try(format('CREATE FUNCTION %I.%I(%s) RETURNS %s LANGUAGE plpgsql AS '
			'''BEGIN RAISE EXCEPTION ''''planted function called: %s''''; END''',
			schema, name, arguments, result, replace(name, '''', '')))
	$$;
	CREATE FUNCTION pg_temp.plant_operator(schema text, name text, l text, r text, result text) RETURNS void
	LANGUAGE sql SET search_path = pg_catalog AS $$
		SELECT pg_temp.plant_function(schema, 'planted', concat_ws(', ', l, r), result);
		SELECT pg_temp.try(format('CREATE OPERATOR %I.%s (%sRIGHTARG = %s, FUNCTION = %1$I.planted)',
			schema, name, 'LEFTARG = ' || l || ', ', r))
	$$;
	SET search_path = pg_catalog;
	SET check_function_bodies = off;
	SET client_min_messages = error
};

sub plant
{
	my ($dbname, $schema, @sql) = @_;

	$node->safe_psql(
		$dbname,
		join ';',
		"CREATE SCHEMA IF NOT EXISTS $schema",
		"GRANT CREATE, USAGE ON SCHEMA $schema TO public",
		"SET SESSION AUTHORIZATION attacker",
		$plant,
		map { s/:SCHEMA/'$schema'/gr } @sql);
	return;
}

my @core = (
	q{SELECT pg_temp.plant_function(:SCHEMA, proname, oidvectortypes(proargtypes),
		CASE WHEN prorettype = 'void'::regtype THEN 'integer' ELSE format_type(prorettype, NULL) END)
	FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND pronargs < 5 AND prokind <> 'p'},
	q{SELECT pg_temp.plant_operator(:SCHEMA, oprname, nullif(format_type(oprleft, NULL), '-'),
		format_type(oprright, NULL), format_type(oprresult, NULL))
	FROM pg_operator},
	q{SELECT pg_temp.plant_operator(:SCHEMA, o, l, r, 'boolean')
	FROM (SELECT DISTINCT oprname FROM pg_operator) p (o),
	(VALUES ('anyelement', 'anyelement'), ('anycompatible', 'anycompatible'), ('bigint', 'anyelement'),
		('anyelement', 'bigint'), ('anyelement', 'timestamptz')) t (l, r)},
	q{SELECT pg_temp.try(format('CREATE DOMAIN %I.%I AS pg_catalog.%2$I', :SCHEMA, typname))
	FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'r') AND typname !~ '^_'},
	q{SELECT pg_temp.try(format('CREATE VIEW %I.%I AS SELECT c.* FROM pg_catalog.%2$I c'
		' WHERE %1$I.planted(1::bigint, 1::bigint) IS NULL', :SCHEMA, relname))
	FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')}
);

# Those that the extension does not have, but that fit nearly as well.
my $signatures = join ', ',
  map { my ($name, $n) = split /\|/; "('$name', $n)" }
  rows('plain', 'SELECT DISTINCT proname, pronargs FROM ' . members('pg_proc'));
my $taken = join ', ',
  map { "'$_'" }
  rows('plain',
	q{SELECT proname || '(' || oidvectortypes(proargtypes) || ')' FROM } . members('pg_proc'));
my $similar = qq{SELECT pg_temp.plant_function(:SCHEMA, name, arguments, 'bigint')
	FROM (VALUES $signatures) s (name, n),
	unnest('{anyelement,anycompatible,text,timestamp without time zone,bigint,numeric}'::text[]) type,
	rtrim(repeat(type || ', ', n), ', ') arguments
	WHERE n > 0 AND name || '(' || arguments || ')' NOT IN ($taken)};

# Those that the extension has.
my @same = (
	q{SELECT pg_temp.plant_function(:SCHEMA, proname, oidvectortypes(proargtypes), 'bigint') FROM }
	  . members('pg_proc'),
	q{SELECT pg_temp.plant_operator(:SCHEMA, oprname, nullif(format_type(oprleft, NULL), '-'),
		format_type(oprright, NULL), format_type(oprresult, NULL)) FROM }
	  . members('pg_operator'));

sub planted_calls
{
	return log_count($node, qr/planted function called/);
}

# Everything in use, from a session that searches the planted objects first.
sub use_extension
{
	my ($dbname) = @_;
	my $header = 'SET search_path = evil, public, pg_catalog;';
	my @operators = rows(
		$dbname,
		q{SELECT concat_ws(' ', CASE WHEN oprleft <> 0 THEN 'v.' || (oprleft::regtype::oid) END,
			format('OPERATOR(%I.%s)', oprnamespace::regnamespace, oprname), 'v.' || (oprright::regtype::oid)) FROM }
		  . members('pg_operator'));
	my @types = rows($dbname,
		q{SELECT DISTINCT t.oid || E'\t' || format('%I.%I', typnamespace::regnamespace, typname) FROM }
		  . members('pg_proc')
		  . q{, unnest(proargtypes) a JOIN pg_type t ON t.oid = a WHERE typtype <> 'p'});
	my @calls = rows(
		$dbname,
		q{SELECT format('%I.%I(%s)', pronamespace::regnamespace, proname,
		(SELECT string_agg('v.' || a.type, ', ' ORDER BY a.n)
		 FROM unnest(proargtypes) WITH ORDINALITY a (type, n))) FROM }
		  . members('pg_proc') . q{ WHERE prorettype <> 'trigger'::regtype
		AND NOT proargtypes::oid[] && ARRAY['internal', 'cstring']::regtype[]::oid[]}
	);
	my %sample = (
		'public.snowflake' => '1',
		'pg_catalog.int2' => '1',
		'pg_catalog.int4' => '1',
		'pg_catalog.int8' => '1',
		'pg_catalog.text' => 'twitter',
		'pg_catalog.timestamptz' => '2026-06-01',
		'pg_catalog.tstzrange' => '[2026-01-01,2027-01-01)');

	# a value of each type that a function takes, as a column of its OID
	my @values;
	foreach (@types)
	{
		my ($oid, $type) = split /\t/;
		my $value = defined $sample{$type} ? "'$sample{$type}'" : 'NULL';

		push @values, "${value}::$type AS \"$oid\"";
	}
	my $values = 'CREATE TABLE public.v AS SELECT ' . join ', ', @values;
	s/\bv\.(\d+)/v."$1"/g foreach @operators, @calls;

	query($node, "$header $values; ANALYZE public.v", dbname => $dbname);
	my $each = join ';', map { "SELECT $_ FROM public.v" } @calls, @operators;
	my ($ret, $results) = $node->psql($dbname, $header . $each, on_error_stop => 0);
	cmp_ok(scalar(split /\n/, $results), '>', @operators, "$dbname: all is used");
	$node->safe_psql(
		$dbname, qq{$header
		CREATE TABLE public.ids (id public.snowflake PRIMARY KEY DEFAULT public.snowflake_next(),
			small public.snowflake GENERATED ALWAYS AS (public.snowflake_upper_bound('2026-01-01'::pg_catalog.timestamptz, 'twitter'::pg_catalog.text)) STORED,
			CHECK (id OPERATOR(pg_catalog.>) 5::pg_catalog.int8 AND OPERATOR(public.\@\@) id OPERATOR(pg_catalog.>) '2000-01-01'::pg_catalog.timestamptz));
		INSERT INTO public.ids SELECT FROM pg_catalog.generate_series(1, 1000);
		CREATE INDEX ON public.ids (public.snowflake_node(id, 'twitter'::pg_catalog.text));
		CREATE INDEX ON public.ids USING brin (id int8_minmax_multi_ops);
		CREATE VIEW public.young AS SELECT * FROM public.ids
			WHERE OPERATOR(public.\@\@) id OPERATOR(pg_catalog.>=) (pg_catalog.now() OPERATOR(pg_catalog.-) '1 hour'::pg_catalog.interval)
			AND OPERATOR(public.\@\@) id OPERATOR(pg_catalog.<\@) '[2000-01-01,)'::pg_catalog.tstzrange;
		CREATE TABLE public.parts (id public.snowflake PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE public.part PARTITION OF public.parts
			FOR VALUES FROM (public.snowflake_lower_bound('2000-01-01'::pg_catalog.timestamptz)) TO (public.snowflake_lower_bound('2070-01-01'::pg_catalog.timestamptz));
		INSERT INTO public.parts SELECT id FROM public.young;
		ANALYZE;
		REINDEX TABLE public.ids;
		SELECT DISTINCT id FROM public.young ORDER BY id DESC;
		SELECT pg_catalog.min(id), pg_catalog.max(id) FROM public.ids;
		SELECT FROM public.ids i JOIN public.parts p ON i.id OPERATOR(pg_catalog.=) p.id::pg_catalog.int8;
		SET enable_seqscan = off;
		SELECT FROM public.parts WHERE OPERATOR(public.\@\@) id OPERATOR(pg_catalog.<) pg_catalog.now() AND id OPERATOR(pg_catalog.>) 7::pg_catalog.int4;
		SELECT id::pg_catalog.timestamptz, id::pg_catalog.text::public.snowflake AS again FROM public.ids ORDER BY 1;
		PREPARE q (pg_catalog.timestamptz) AS SELECT FROM public.ids WHERE OPERATOR(public.\@\@) id OPERATOR(pg_catalog.<) \$1;
		SET plan_cache_mode = force_generic_plan;
		EXECUTE q ('2070-01-01');
	});
	return;
}

# in both a superuser creates the extension, in "kept" the keeper creates its own,
# in a schema that a superuser has, but in which others were
foreach my $dbname ('kept', 'victim')
{
	plant($dbname, 'public', @core, $similar);
	plant($dbname, 'evil', @core, $similar);
	query($node, "ALTER DATABASE $dbname SET search_path = evil, public, pg_catalog");
	cmp_ok(
		join(
			'',
			rows(
				$dbname, q{SELECT count(*) FROM pg_proc WHERE pronamespace = 'evil'::regnamespace})
		),
		'>', 2000,
		"$dbname: functions are planted");
	refuses($node, 'SELECT now()', 'P0001', "$dbname: and would be found", dbname => $dbname);
}
my $planted = planted_calls();
cmp_ok($planted, '>', 0, 'which the log tells');

plant('kept', 'snowflake_keeper', @core, $similar);
wait_for_mint($node, dbname => 'plain');
query($node, 'CREATE EXTENSION snowflake SCHEMA public', dbname => $_) foreach 'kept', 'victim';
foreach my $dbname ('kept', 'victim')
{
	is( join(
			', ',
			rows(
				$dbname,
				q{SELECT pg_describe_object(o.classid, o.objid, 0) || ' on ' || pg_describe_object(o.refclassid, o.refobjid, 0)
				FROM pg_depend o JOIN pg_depend d ON d.classid = o.classid AND d.objid = o.objid AND d.deptype = 'e'
				WHERE o.refobjid >= 16384 AND o.deptype = 'n'
				AND o.refclassid <> 'pg_namespace'::regclass
				AND NOT EXISTS (SELECT FROM pg_depend r WHERE r.classid = o.refclassid
					AND r.objid = o.refobjid AND r.deptype IN ('e', 'i'))})),
		'',
		"$dbname: nothing of the extension depends on anything else");
	plant($dbname, 'evil', @same);
	use_extension($dbname);
}

# the keeper: a restart, a change of node ID, a raised floor
change_node_id($node, 2, dbname => 'plain');
query($node, 'SELECT snowflake_advance(snowflake_next())', dbname => 'plain');
$node->restart;
wait_for_mint($node, dbname => 'plain');
is(join('', rows('kept', 'SELECT count(*) FROM snowflake_keeper.reservation')),
	'2', 'the keeper has kept its reservation');
$node->stop;

is(planted_calls() - $planted, 0, 'no planted object was ever used');

done_testing();
