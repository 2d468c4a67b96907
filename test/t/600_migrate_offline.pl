# An application is planned and converted under one lock: the plan is what is done, nothing
# in the catalogs is lost, and the application works once the objects that the plan names
# have been changed.
#
# versions: all
# long

use SnowflakeDepot;
use SnowflakeTest qw(!refused);

my $node = new_node('main', conf => conf());
$node->start;
load_depot($node);
my $before = catalog($node, 'depot');
my $widened = widened();

# The plan

$node->safe_psql(
	'depot', q{
	CREATE TABLE public.plans AS SELECT * FROM snowflake_migrate.plan('{app,billing}') WITH ORDINALITY}
);
my $planned = sub {
	return $node->safe_psql('depot',
		"SELECT string_agg($_[0], ' ' ORDER BY $_[0] COLLATE \"C\") FROM public.plans WHERE finding = '$_[1]'"
	);
};
is($planned->('object', 'blocks'), '', 'nothing is in the way');
is($node->safe_psql('depot', q{SELECT count(*) FROM public.plans WHERE finding = 'key'}),
	26, 'all keys that are filled');
is( $planned->(q{replace(object, 'sequence ', '')}, 'kept'),
	'app.ticket_seq app.work_seq',
	'sequences of others are kept');
my @breaks = split /\n/,
  $node->safe_psql('depot',
	q{SELECT object FROM public.plans WHERE finding = 'breaks' ORDER BY object COLLATE "C"});
is_deeply(
	\@breaks,
	[
		'clients in JavaScript',
		(   map { "column $_" }
			  qw(app.audit_log.actor app.audit_log.row_id app.categories.path app.closings.order_id app.comments.mentions
			  app.comments.subject_id app.counters.id app.customer_merges.old_id app.orders.number app.orders_history.changed_by
			  app.orders_history.customer_id app.orders_history.id app.products.related_ids app.subscriptions.product_id
			  app.taggings.subject_id app.users.badge)),
		(   map { "function app.$_" }
			  qw{audit() category_tree(integer) clone_order(integer) customer_orders(integer) get_order(integer) keep_history()
			  last_order() order_card(integer) order_total(integer)},
			'place_order(integer,integer[],integer)'),
		'policy orders_seller on table app.orders',
		'policy orders_tenant on table app.orders',
		'publication everything',
		'publication feed',
		'type app.customer_ref',
		'type app.line_ref'
	],
	'what will break that no foreign key tells of');
$node->safe_psql('depot', 'DROP TABLE public.plans');
is(difference($before, catalog($node, 'depot')), '', 'a plan changes nothing');

# To bigint

my $bigint = new_depot($node, 'to_bigint');
my $statements = $node->safe_psql($bigint,
	"SELECT string_agg(s, E';\\n') || ';' FROM snowflake_migrate.statements('{app,billing}', 'bigint', '$widened') AS s"
);
is( () =
	  $statements =~
	  /^ALTER TABLE app\.orders ALTER COLUMN \w+ TYPE|^ALTER TABLE app\.orders DROP COLUMN/mg,
	1,
	'one rewrite of a table');
my $rows = contents($node, 'depot');

$node->safe_psql($bigint,
	"SELECT * FROM snowflake_migrate.convert('{app,billing}', 'bigint', '$widened')");
my $converted = catalog($node, $bigint);
is(unexplained($before, $converted), '', 'bigint: nothing of the catalogs is lost');
is(contents($node, $bigint), $rows, 'every row is as it was, and no trigger or rule has fired');
is( $node->safe_psql(
		$bigint,
		"SELECT count(*) FROM snowflake_migrate.statements('{app,billing}', 'bigint', '$widened')"),
	0,
	'nothing is left to do');
is( $node->safe_psql(
		$bigint,
		q{SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid JOIN pg_constraint f ON f.contype = 'f' AND conrelid = attrelid AND attnum = ANY (conkey)
	WHERE atttypid <> 'bigint'::regtype AND attname ~ '(^|_)id$' AND relkind IN ('r', 'p')}),
	0,
	'all references are of 64 bits');

# The application
my (undef, $error) = run_file($node, $bigint, 'mend.sql');
is($error, '', 'it is mended');
(my $output, $error) = run_file($node, $bigint, 'use.sql');
is( join("\n", $error =~ /ERROR: +(.*)/g),
	'keys do not change',
	'and works: only its own trigger complains');
like($output, qr/^\d{18,19}$/m, 'with snowflakes');

# The same from a file
my $file = new_depot($node, 'from_file');
$node->safe_psql($file, $statements, extra_params => ['-1']);
is(difference($converted, catalog($node, $file)), '', 'the same from a file, in one transaction');
(undef, $error) = run_file($node, $file, 'use.sql');
cmp_ok(
	scalar(() = $error =~ /ERROR: +(?:integer out of range|.* does not exist|structure of query)/g),
	'>', 5, 'what the plan says will break does');

# To snowflake
my $snowflake = new_depot($node, 'to_snowflake');
refuses(
	$node, "SELECT * FROM snowflake_migrate.convert('{app,billing}', 'snowflake')",
	'55000',
	'a filter of a publication takes no snowflake',
	dbname => $snowflake,
	message => qr/^publication feed prevents the conversion$/,
	detail => qr/filter on app\.customers\.id/);
$node->safe_psql($snowflake, 'ALTER PUBLICATION feed DROP TABLE app.customers');
my $without = catalog($node, $snowflake);
$node->safe_psql($snowflake,
	"SELECT * FROM snowflake_migrate.convert('{app,billing}', 'snowflake', '$widened', 'snowflake')"
);
is(unexplained($without, catalog($node, $snowflake)),
	'', 'snowflake: nothing of the catalogs is lost');
is(contents($node, $snowflake), $rows, 'nor of the rows');
is( $node->safe_psql(
		$snowflake,
		'INSERT INTO app.tags (name) VALUES (\'new\') RETURNING pg_typeof(id), snowflake_timestamp(id) > now() - interval \'1 min\''
	),
	'snowflake|t',
	'new keys are snowflakes');

# All or nothing, and who may

my $failing = new_depot($node, 'failing');
my $untouched = catalog($node, $failing);
$node->safe_psql(
	$failing, q{
	CREATE FUNCTION public.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no indexes today'; END $$;
	CREATE EVENT TRIGGER refuse ON ddl_command_end WHEN TAG IN ('CREATE MATERIALIZED VIEW') EXECUTE FUNCTION public.refuse()}
);

sub refused
{
	my ($sql, $sqlstate, $what, %like) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return refuses($node, $sql, $sqlstate, $what, dbname => $failing, %like);
}

sub convert { return "SELECT * FROM snowflake_migrate.convert('{$_[0]}')"; }

refused(convert('app,billing'), 'P0001', 'a conversion fails', message => qr/^no indexes today$/);
is(difference($untouched, catalog($node, $failing)), '', 'and has changed nothing');
$node->safe_psql($failing, 'DROP EVENT TRIGGER refuse');
refused(
	'SET ROLE depot_app; ' . convert('app'),
	'55000',
	'tables of another owner',
	detail => qr/^It belongs to role "/,
	hint => qr/^Call it as a role that may act as all owners\.$/);
is( $node->safe_psql(
		$failing,
		q{SET ROLE depot_app; SELECT count(*) > 3 FROM snowflake_migrate.convert('{app.counters.id}')}
	),
	't',
	'an owner converts what is his');
refused('SET ROLE depot_web; ' . convert('app.tags'), '55000', 'nobody else');
$node->safe_psql($failing,
	'ALTER TABLE app.counters ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY');
refused(
	'SET ROLE depot_app; ' . convert('app.counters.last_no'),
	'55000',
	'nor does an owner from whom rows are hidden',
	hint => qr/^ALTER TABLE app\.counters NO FORCE ROW LEVEL SECURITY/);

foreach my $case (
	[ q{'{nowhere}'}, '3F000' ],
	[ q{'{app.nothing}'}, '42P01' ],
	[ q{'{app.orders.nothing}'}, '42703' ],
	[ q{'{app.order_summary}'}, '42809' ],
	[ q{'{app.orders.status}'}, '42804' ],
	[ q{'{}'}, '22023' ],
	[ q{'{app}', 'text'}, '22023' ],
	[ q{'{app}', 'bigint', '{app.orders}'}, '22023' ],
	[ q{'{a.b.c.d}'}, '42602' ])
{
	refused("SELECT * FROM snowflake_migrate.plan($case->[0])", $case->[1], "refused: $case->[0]");
}
refused('BEGIN ISOLATION LEVEL REPEATABLE READ; ' . convert('app'), '55000',
	'not under a snapshot');

# Keys that are ahead of the clock
$node->safe_psql($failing,
	'CREATE TABLE public.ahead (id bigserial PRIMARY KEY); INSERT INTO public.ahead VALUES (9e18::bigint)'
);
refused(convert('public.ahead'), '55000', 'a key that is not below the next snowflake');
is( $node->safe_psql(
		$failing,
		q{SELECT count(*) FROM snowflake_migrate.plan('{public.ahead}') WHERE finding = 'blocks'}),
	1,
	'the plan says so');

# Names that are made to break out of a statement
$node->safe_psql(
	$failing, q{
	CREATE SCHEMA "x'; DROP";
	CREATE TABLE "x'; DROP"."t"".b" ("i d;" serial PRIMARY KEY, g text GENERATED ALWAYS AS ('$$' || "i d;" || '''') STORED);
	CREATE VIEW "x'; DROP"."v %I %s" AS SELECT "i d;" AS "%L", g FROM "x'; DROP"."t"".b";
	COMMENT ON VIEW "x'; DROP"."v %I %s" IS '$do$ %s '' $$';
	CREATE TABLE "x'; DROP".r (r integer CONSTRAINT "f k'" REFERENCES "x'; DROP"."t"".b");
	ALTER TABLE "x'; DROP".r DISABLE TRIGGER ALL;
	INSERT INTO "x'; DROP"."t"".b" DEFAULT VALUES;
	CREATE ROLE "Some 'one";
	GRANT ALL ON SCHEMA "x'; DROP" TO "Some 'one";
	SET ROLE "Some 'one";
	CREATE TABLE "x'; DROP"."a(b[" ("c*(" serial PRIMARY KEY);
	CREATE VIEW "x'; DROP".w AS SELECT * FROM "x'; DROP"."a(b[";
	GRANT SELECT ON "x'; DROP".w TO PUBLIC});
is( $node->safe_psql(
		$failing,
		q{SET ROLE "Some 'one"; SELECT count(*) > 3 FROM snowflake_migrate.plan(ARRAY['"x''; DROP"."a(b["'])}
	),
	't',
	'names are no patterns');
is( $node->safe_psql(
		$failing,
		q{SET ROLE "Some 'one"; SELECT count(*) > 3 FROM snowflake_migrate.convert(ARRAY['"x''; DROP"."a(b["'])}
	),
	't',
	'a role whose name needs quotes');
$node->safe_psql($failing, q{SELECT * FROM snowflake_migrate.convert(ARRAY['"x''; DROP"'])});
is( $node->safe_psql(
		$failing,
		q{INSERT INTO "x'; DROP"."t"".b" DEFAULT VALUES; SELECT count(*), max("%L") > 1e15 FROM "x'; DROP"."v %I %s"}
	),
	'2|t',
	'names are quoted');

# A search_path that leads elsewhere
$node->safe_psql(
	$failing, q{
	CREATE SCHEMA evil;
	CREATE FUNCTION evil.format(text, VARIADIC "any") RETURNS text LANGUAGE internal AS 'text_format';
	CREATE FUNCTION evil.quote_ident(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
	CREATE FUNCTION evil.equals(oid, oid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
	CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.equals);
	CREATE TABLE evil.pg_class (oid oid);
	CREATE TABLE public.keys (id serial PRIMARY KEY)});
is( $node->safe_psql(
		$failing,
		q{SET search_path = evil, pg_catalog, public; SELECT count(*) > 3 FROM snowflake_migrate.convert('{public.keys}')}
	),
	't',
	'no name of others is called');

done_testing();
