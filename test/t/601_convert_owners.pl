# A superuser who converts a key reaches tables of others: what they say should
# run there, runs with their rights, and has no way out of them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use SnowflakeTest qw(error_of new_node wait_for_mint);
use Test::More;

my $node = new_node(
	'main',
	node_id => 3,
	conf => 'client_min_messages = warning');
$node->start;

# In a session of that role: no RESET ROLE leads out of it
sub run_as
{
	my ($role, $sql) = @_;

	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role ]);
}

# What mal wants: to be a superuser.  His function tries it in several ways,
# and notes whose rights it had.
$node->psql('postgres', 'CREATE ROLE postgres SUPERUSER')
  ;    # if nobody of that name has made the cluster
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION snowflake;
	CREATE ROLE app LOGIN; CREATE ROLE other LOGIN; CREATE ROLE mal LOGIN;
	CREATE SCHEMA app AUTHORIZATION app;
	CREATE SCHEMA other AUTHORIZATION other;
	CREATE SCHEMA mal AUTHORIZATION mal;
	GRANT USAGE ON SCHEMA app TO mal, other});
wait_for_mint($node);
run_as(
	'mal', q{
	CREATE TABLE mal.notes (who name, who_else name, way text, path text DEFAULT current_setting('search_path'));
	GRANT USAGE ON SCHEMA mal TO PUBLIC;
	GRANT INSERT ON mal.notes TO PUBLIC;
	CREATE FUNCTION mal.note() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		BEGIN ALTER ROLE mal SUPERUSER; EXCEPTION WHEN OTHERS THEN NULL; END;
		INSERT INTO mal.notes VALUES (current_user, session_user, 'trigger');
		RETURN NULL;
	END $$;
	CREATE TABLE mal.late (i int);
	CREATE CONSTRAINT TRIGGER note AFTER INSERT ON mal.late
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION mal.note();
	CREATE FUNCTION mal.evil(way text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN mal.try(way); END $$;
	CREATE FUNCTION mal.try(way text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
	DECLARE
		command text;
	BEGIN
		FOREACH command IN ARRAY ARRAY[
			'ALTER ROLE mal SUPERUSER', 'SET ROLE postgres', 'RESET ROLE', 'SET SESSION AUTHORIZATION postgres',
			'RESET SESSION AUTHORIZATION',
			'SET search_path = mal; ALTER ROLE mal SUPERUSER'] LOOP
			BEGIN
				EXECUTE command;
				EXECUTE 'ALTER ROLE mal SUPERUSER';
			EXCEPTION WHEN OTHERS THEN NULL;
			END;
		END LOOP;

		-- not undone by an error that follows: its trigger would come at the commit
		BEGIN INSERT INTO mal.late VALUES (1); EXCEPTION WHEN OTHERS THEN NULL; END;
		INSERT INTO mal.notes VALUES (current_user, session_user, way);
		RETURN true;
	END $$});

my $convert = q{SELECT count(*) FROM snowflake_convert_column('app.orders', 'id')};

# A key of one owner, with a reference of mal's, who may do with his own table
# what he wants.  $1: owner of the key, $2: statements of mal's.
sub create_tables
{
	my ($owner, $sql) = @_;

	$node->safe_psql(
		'postgres', qq{
		DROP SCHEMA app CASCADE;
		CREATE SCHEMA app AUTHORIZATION app;
		GRANT ALL ON SCHEMA app TO mal, other;
		CREATE TABLE app.orders (id serial PRIMARY KEY, note text);
		INSERT INTO app.orders (note) VALUES ('one'), ('two');
		ALTER TABLE app.orders OWNER TO $owner;
		SET ROLE $owner;
		GRANT REFERENCES ON app.orders TO mal, other});
	run_as(
		'mal', qq{
		DROP TABLE IF EXISTS mal.items;
		CREATE TABLE mal.items (order_id int REFERENCES app.orders, n int);
		INSERT INTO mal.items VALUES (1, 1), (2, 2);
		$sql;
		DELETE FROM mal.notes});
	return;
}

sub check
{
	my ($name) = @_;

	is($node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mal'}),
		'f', "$name: mal is no superuser");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM mal.notes WHERE who <> 'mal'}),
		'0', "$name: nothing of his ran with the rights of somebody else");
	is( $node->safe_psql(
			'postgres', q{SELECT DISTINCT path FROM mal.notes WHERE path <> 'pg_catalog, pg_temp'}),
		'',
		"$name: nor with the caller's search_path");
	$node->safe_psql('postgres', 'ALTER ROLE mal NOSUPERUSER');
	return;
}

my %ways = (
	'a check' => q{ALTER TABLE mal.items ADD CHECK (mal.evil('check' || order_id))},
	'a check of constants' => q{ALTER TABLE mal.items ADD CHECK (mal.evil('constant'))},
	'a generated column' =>
	  q{ALTER TABLE mal.items ADD g boolean GENERATED ALWAYS AS (mal.evil('generated' || n)) STORED},
	'an expression index' => q{CREATE INDEX ON mal.items ((mal.evil('index' || n)))},
	'an expression index of constants, and a right to read it' =>
	  q{CREATE INDEX ON mal.items ((n > 0 AND mal.evil('constant'))); CREATE INDEX ON mal.items (n) WHERE mal.evil('where');
		GRANT SELECT ON mal.items TO PUBLIC},
	'statistics' => q{CREATE STATISTICS mal.s ON (mal.evil('statistics' || n)), n FROM mal.items},
	'a domain' =>
	  q{DROP DOMAIN IF EXISTS mal.d CASCADE; CREATE DOMAIN mal.d AS int CHECK (mal.evil('domain' || VALUE));
		ALTER TABLE mal.items ADD d mal.d DEFAULT 5},
	'triggers' =>
	  q{CREATE TRIGGER note AFTER INSERT OR UPDATE ON mal.items FOR EACH STATEMENT EXECUTE FUNCTION mal.note()},
	'a policy' => q{GRANT SELECT ON mal.items TO PUBLIC;
		ALTER TABLE mal.items ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
		CREATE POLICY p ON mal.items USING (mal.evil('policy'))},
	'a default' => q{ALTER TABLE mal.items ALTER n SET DEFAULT mal.try('default')::int});

foreach my $way (sort keys %ways)
{
	foreach my $owner ('app', 'postgres')
	{
		create_tables($owner, $ways{$way});
		is($node->safe_psql('postgres', $convert), '6', "$way, key of $owner: converted");
		check("$way, key of $owner");
		is( $node->safe_psql(
				'postgres', q{
				SELECT format_type(atttypid, NULL), pg_get_constraintdef(f.oid), convalidated
				  FROM pg_attribute JOIN pg_constraint f ON conrelid = attrelid AND contype = 'f'
				 WHERE attrelid = 'mal.items'::regclass AND attname = 'order_id'}),
			'bigint|FOREIGN KEY (order_id) REFERENCES app.orders(id)|t',
			"$way, key of $owner: the reference is wide enough, and declared");
	}
}

# What such a function sets ends with the statement that has run it.
create_tables(
	'app',
	q{CREATE OR REPLACE FUNCTION mal.sets(bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
		BEGIN
			PERFORM set_config('search_path', 'mal', false), set_config('work_mem', '1234kB', false);
			RETURN true;
		END $$;
	ALTER TABLE mal.items ADD CHECK (mal.sets(order_id))});
is( $node->safe_psql(
		'postgres', "SET search_path = public; SET work_mem = '5MB'; $convert;
			SHOW search_path; SHOW work_mem"),
	"6\npublic\n5MB",
	'what an owner sets is not set for the caller');
run_as('mal', 'DROP TABLE mal.items; DROP FUNCTION mal.sets(bigint)');

# The other way round: the key is mal's, and others reference it and may read it.
# Their foreign keys are declared again with their rights, but nothing that mal says
# of his table is planned with them.
sub create_key_of_mals
{
	my ($reader, $partitioned, $sql) = @_;

	$node->safe_psql(
		'postgres', q{
		DROP SCHEMA app CASCADE;
		CREATE SCHEMA app AUTHORIZATION app;
		GRANT ALL ON SCHEMA app TO mal, other});
	run_as(
		'mal', q{
		DROP TABLE IF EXISTS mal.orders CASCADE;
		CREATE TABLE mal.orders (id serial, part int DEFAULT 1, note text DEFAULT 'some', PRIMARY KEY (id, part), UNIQUE (part, id)) }
		  . (
			$partitioned
			? q{PARTITION BY LIST (part); CREATE TABLE mal.orders_1 PARTITION OF mal.orders FOR VALUES IN (1);}
			: q{;})
		  . qq{
		INSERT INTO mal.orders SELECT FROM generate_series(1, 20);
		GRANT SELECT, REFERENCES ON mal.orders TO PUBLIC;
		$sql;
		ANALYZE mal.orders;});
	$node->safe_psql(
		'postgres', qq{
		SET ROLE $reader;
		CREATE TABLE app.items (order_id int, part int, n int, FOREIGN KEY (order_id, part) REFERENCES mal.orders);
		INSERT INTO app.items VALUES (1, 1, 1), (2, 1, 2);
		RESET ROLE;
		DELETE FROM mal.notes});
	return;
}

my %on_the_key = (
	'statistics' =>
	  [ 0, q{CREATE STATISTICS mal.s ON (note <> '' AND mal.evil('told')), note FROM mal.orders} ],
	'an expression index' =>
	  [ 0, q{CREATE INDEX ON mal.orders ((note <> '' AND mal.evil('told')))} ],
	'a partial index' =>
	  [ 0, q{CREATE INDEX ON mal.orders (id) WHERE note <> '' AND mal.evil('told')} ],
	'a check' => [ 0, q{ALTER TABLE mal.orders ADD CHECK (note <> '' AND mal.evil('told'))} ],
	'a policy' => [
		0, q{ALTER TABLE mal.orders ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
		CREATE POLICY p ON mal.orders USING (note <> '' AND mal.evil('told'))}
	],
	'a column\'s domain' => [
		0, q{CREATE DOMAIN mal.told AS int CHECK (VALUE > 0 AND mal.evil('told'));
		ALTER TABLE mal.orders ALTER part TYPE mal.told}
	],
	'a generated column' => [
		0,
		q{ALTER TABLE mal.orders ADD g boolean GENERATED ALWAYS AS (note <> '' AND mal.evil('told')) STORED}
	],
	'statistics of a partition' => [
		1, q{CREATE STATISTICS mal.s ON (note <> '' AND mal.evil('told')), note FROM mal.orders_1}
	],
	'an index of a partition' =>
	  [ 1, q{CREATE INDEX ON mal.orders_1 ((note <> '' AND mal.evil('told')))} ],
	'a check of a partition' =>
	  [ 1, q{ALTER TABLE mal.orders_1 ADD CHECK (note <> '' AND mal.evil('told'))} ]);

foreach my $way (sort keys %on_the_key)
{
	my ($partitioned, $sql) = @{ $on_the_key{$way} };

	create_key_of_mals('app', $partitioned, $sql);
	is( $node->safe_psql(
			'postgres', q{
			SET constraint_exclusion = on;
			SELECT count(*) FROM snowflake_convert_column('mal.orders', 'id')}),
		'6',
		"$way of a key of mal's: converted");
	check("$way of a key of mal's");
	is( $node->safe_psql(
			'postgres', q{
			SELECT format_type(atttypid, NULL), convalidated
			  FROM pg_attribute JOIN pg_constraint f ON conrelid = attrelid AND contype = 'f' AND conparentid = 0
			 WHERE attrelid = 'app.items'::regclass AND attname = 'order_id'}),
		'bigint|t',
		"$way of a key of mal's: the reference is declared, and valid");
	is(error_of($node, 'INSERT INTO app.items VALUES (1000, 1)')->{sqlstate},
		'23503', "$way of a key of mal's: and checked");
	$node->safe_psql('postgres',
		'DROP TABLE app.items; DROP DOMAIN IF EXISTS mal.told CASCADE; DELETE FROM mal.notes');
}

# The check finds what does not fit, though each row is looked at for itself.
create_key_of_mals('app', 0, '');
$node->safe_psql(
	'postgres', q{
	SET session_replication_role = replica;
	INSERT INTO app.items VALUES (1000, 1, 3)});
is(error_of($node, q{SELECT snowflake_convert_column('mal.orders', 'id')})->{sqlstate},
	'23503', 'a reference that leads nowhere is found');
$node->safe_psql('postgres', 'DELETE FROM app.items WHERE order_id = 1000');

# Who owns the reference has to be allowed to reference each of its columns, and to find the table.
foreach my $right (
	'GRANT REFERENCES (id) ON mal.orders TO PUBLIC',
	'GRANT REFERENCES (part) ON mal.orders TO PUBLIC',
	'GRANT REFERENCES ON mal.orders TO PUBLIC; REVOKE USAGE ON SCHEMA mal FROM PUBLIC')
{
	run_as('mal', "REVOKE REFERENCES ON mal.orders FROM PUBLIC; $right");
	like(
		error_of($node, q{SELECT snowflake_convert_column('mal.orders', 'id', dry_run => true)})
		  ->{detail},
		qr/^Foreign key items_order_id_part_fkey .*owner app is not allowed to reference table mal\.orders/,
		"$right: not enough for a reference of two columns");
}
run_as(
	'mal', q{
	GRANT USAGE ON SCHEMA mal TO PUBLIC;
	REVOKE REFERENCES ON mal.orders FROM PUBLIC;
	GRANT REFERENCES (id), REFERENCES (part) ON mal.orders TO PUBLIC});
is( $node->safe_psql(
		'postgres',
		q{SELECT count(*) FROM snowflake_convert_column('mal.orders', 'id', dry_run => true)}),
	'6',
	'rights to both columns are');

# An owner who converts his key himself, and may read what references it: what the
# owner of that says does not run with his rights either.
create_tables(
	'app', q{
	CREATE STATISTICS mal.s ON (n > 0 AND mal.evil('told')), n FROM mal.items;
	CREATE INDEX ON mal.items ((n > 0 AND mal.evil('told'))) WHERE mal.evil('told');
	ALTER TABLE mal.items ALTER order_id TYPE bigint;
	GRANT SELECT ON mal.items TO app});
run_as('app', q{SELECT public.snowflake_convert_column('app.orders', 'id')});
check('an owner on his own');
is( $node->safe_psql(
		'postgres',
		q{SELECT convalidated FROM pg_constraint WHERE conrelid = 'mal.items'::regclass}),
	't',
	'an owner on his own: the reference is valid');

# The key's own table has an owner as well
create_tables('mal', 'DROP TABLE mal.items');
run_as(
	'mal', q{
	CREATE INDEX ON app.orders ((id > 0 AND mal.evil('constant')));
	CREATE TABLE mal.child (CHECK (mal.evil('child'))) INHERITS (app.orders); DELETE FROM mal.notes});
is($node->safe_psql('postgres', $convert), '3', 'a key of mal\'s: converted');
check('a key of mal\'s');
$node->safe_psql('postgres', 'DROP TABLE mal.child');

# A cast of a type of his own runs with the rights of the key's owner
create_tables(
	'postgres', q{
	DROP TYPE IF EXISTS mal.number CASCADE;
	CREATE TYPE mal.number AS (v int);
	CREATE FUNCTION mal.int(mal.number) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN PERFORM mal.try('cast'); RETURN $1.v; END $$;
	CREATE CAST (mal.number AS int) WITH FUNCTION mal.int(mal.number) AS IMPLICIT;
	ALTER TABLE mal.items ADD num mal.number REFERENCES app.orders; UPDATE mal.items SET num = ROW(order_id)}
);

# that was the cast, too, without any conversion
$node->safe_psql('postgres', 'ALTER ROLE mal NOSUPERUSER; DELETE FROM mal.notes');
my $error = error_of($node, $convert);
is($error->{sqlstate}, '42501', 'a cast: refused');
like(
	$error->{detail},
	qr/^Foreign key items_num_fkey of table mal\.items .* a type of its columns/,
	'with the reason');
check('a cast');
$node->safe_psql(
	'postgres', q{
	CREATE DOMAIN public.numbers AS mal.number;
	ALTER TABLE mal.items DROP CONSTRAINT items_num_fkey;
	ALTER TABLE mal.items ALTER num TYPE numbers;
	GRANT USAGE ON TYPE numbers TO PUBLIC;
	SET ROLE mal;
	ALTER TABLE mal.items ADD FOREIGN KEY (num) REFERENCES app.orders});

# as was that
$node->safe_psql('postgres', 'ALTER ROLE mal NOSUPERUSER; DELETE FROM mal.notes');
like(
	error_of($node, $convert)->{detail},
	qr/^Foreign key items_num_fkey of table mal\.items .* a type of its columns/,
	'so is one of a domain over his type');
check('a cast of a domain');
$node->safe_psql('postgres', 'ALTER TABLE mal.items DROP num; DROP DOMAIN numbers');

# Nor does it run with the rights of an owner on his own, whose conversion would have it checked
create_tables(
	'app', q{
	ALTER TABLE mal.items ALTER order_id TYPE bigint;
	ALTER TABLE mal.items ADD num mal.number REFERENCES app.orders});
like(
	error_of($node,
		q{SET SESSION AUTHORIZATION app; SELECT public.snowflake_convert_column('app.orders', 'id', dry_run => true)}
	)->{detail},
	qr/^Foreign key items_num_fkey of table mal\.items .* a type of its columns/,
	'a cast, and an owner on his own: refused');

# A tree with two owners
create_tables('app', '');
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.between () INHERITS (app.orders);
	CREATE TABLE mal.child () INHERITS (app.between);
	ALTER TABLE app.between OWNER TO app; ALTER TABLE mal.child OWNER TO mal});
run_as(
	'mal', q{
	ALTER TABLE mal.child ADD CHECK (mal.evil('child'));
	INSERT INTO mal.child VALUES (7);
	DELETE FROM mal.notes});
$error = error_of($node, $convert);
is( $error->{detail},
	'Table app.orders belongs to app, but table mal.child, which inherits from it, to mal.',
	'a tree of two owners is refused');
check('a tree of two owners');
$node->safe_psql('postgres', 'DROP TABLE mal.child, app.between');

# A tree that references, of which nothing is altered but the foreign key
create_tables('app', 'DROP TABLE mal.items');
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.wide (order_id bigint REFERENCES app.orders) PARTITION BY HASH (order_id);
	CREATE TABLE mal.part PARTITION OF app.wide FOR VALUES WITH (MODULUS 1, REMAINDER 0);
	ALTER TABLE app.wide OWNER TO app; ALTER TABLE mal.part OWNER TO mal});
run_as('mal',
	q{CREATE INDEX ON mal.part ((order_id > 0 AND mal.evil('constant'))); DELETE FROM mal.notes});
$error = error_of($node, $convert);
like(
	$error->{detail},
	qr/^Table app\.wide belongs to app, but table mal\.part/,
	'a tree of two owners that references is refused');
check('a tree of two owners that references');
$node->safe_psql('postgres', 'DROP TABLE app.wide');

# One that is merely referenced, by a column that references the key as well
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.tree (id int PRIMARY KEY) PARTITION BY HASH (id);
	CREATE TABLE mal.part PARTITION OF app.tree FOR VALUES WITH (MODULUS 1, REMAINDER 0);
	CREATE TABLE app.link (order_id int REFERENCES app.orders REFERENCES app.tree);
	ALTER TABLE app.tree OWNER TO app; ALTER TABLE app.link OWNER TO app; ALTER TABLE mal.part OWNER TO mal}
);
like(
	error_of($node, $convert)->{detail},
	qr/^Table app\.tree belongs to app, but table mal\.part/,
	'a tree of two owners that is merely referenced is refused');
$node->safe_psql('postgres', 'DROP TABLE app.link, app.tree');

# A superuser's reference to a key of mal's, and one that could not be declared again
create_tables('mal', q{CREATE INDEX ON app.orders ((id > 0 AND mal.evil('constant')))});
$node->safe_psql('postgres',
	'CREATE TABLE ours (order_id int REFERENCES app.orders); DELETE FROM mal.notes');
$error = error_of($node, $convert);
like(
	$error->{detail},
	qr/^Foreign key ours_order_id_fkey of table public\.ours .* superuser/,
	'a superuser\'s reference to a key of another is refused');
check('a superuser\'s reference');
$node->safe_psql('postgres', 'DROP TABLE ours');

create_tables(
	'app', q{
	ALTER TABLE mal.items RENAME CONSTRAINT items_order_id_fkey TO "Order's";
	COMMENT ON CONSTRAINT "Order's" ON mal.items IS 'it''s a comment'});
$node->safe_psql('postgres', 'REVOKE REFERENCES ON app.orders FROM mal');
$error = error_of($node, "$convert;");
like(
	$error->{detail},
	qr/^Foreign key "?Order's"? .*owner mal is not allowed to reference table app\.orders/,
	'a reference that could not be declared again is refused');
$node->safe_psql('postgres',
	'GRANT REFERENCES ON app.orders TO mal; REVOKE USAGE ON SCHEMA public FROM PUBLIC');
is( error_of($node, $convert)->{detail},
	'Role app, which owns table app.orders, has no USAGE privilege on schema public.',
	'so is an owner who cannot name what is needed');
$node->safe_psql('postgres', "GRANT USAGE ON SCHEMA public TO PUBLIC; $convert");
is( $node->safe_psql(
		'postgres',
		q{SELECT obj_description(oid, 'pg_constraint') FROM pg_constraint WHERE conname = 'Order''s'}
	),
	q{it's a comment},
	'a name that has to be quoted is kept, and a comment');

# References of a role whose rights the caller does not have, which need not change
create_tables('app', 'DROP TABLE mal.items');
run_as(
	'other', q{
	CREATE TABLE other.wide (order_id bigint REFERENCES app.orders);
	INSERT INTO other.wide VALUES (1)});
$node->safe_psql('postgres', q{COMMENT ON CONSTRAINT wide_order_id_fkey ON other.wide IS 'theirs'});
foreach my $grant ('', 'GRANT app TO other')
{
	$node->safe_psql('postgres', $grant);
	$error = error_of($node,
		q{SET SESSION AUTHORIZATION app; SELECT public.snowflake_convert_column('app.orders', 'id', dry_run => true)}
	);
	like(
		$error->{detail},
		qr/comment, which only other may give it/,
		"a comment that an owner could not give again is said before: $grant");
}
$node->safe_psql('postgres', 'REVOKE app FROM other');
$node->safe_psql('postgres', q{COMMENT ON CONSTRAINT wide_order_id_fkey ON other.wide IS NULL});
is( run_as(
		'app',
		q{SELECT count(*) FROM public.snowflake_convert_column('app.orders', 'id', dry_run => true) s WHERE s ~ 'wide'}
	),
	'0',
	'no statement is run with the rights of a role whose rights the caller does not have');
run_as('app', q{SELECT public.snowflake_convert_column('app.orders', 'id')});
is(error_of($node, 'INSERT INTO other.wide VALUES (3)')->{sqlstate},
	'23503', 'an owner converts his key, whoever references it');

# A member of the owner that does not have its rights, before it takes its role
$node->safe_psql(
	'postgres', q{
	CREATE ROLE member LOGIN NOINHERIT IN ROLE other;
	CREATE TABLE theirs (id int PRIMARY KEY);
	ALTER TABLE theirs OWNER TO other});
my $try = q{SELECT count(*) FROM snowflake_convert_column('theirs', 'id', dry_run => true)};
$error = error_of($node, "SET SESSION AUTHORIZATION member; $try");
is($error->{sqlstate}, '42501', 'a member that does not inherit: refused');
like($error->{message}, qr/must be owner of table theirs/, 'as not the owner');
is(error_of($node, "SET SESSION AUTHORIZATION member; SET ROLE other; $try")->{sqlstate},
	'', 'and not refused as the owner');

# An owner of a referencing table who cannot name that
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA shut;
	CREATE TABLE shut.t (k int REFERENCES theirs);
	ALTER TABLE shut.t OWNER TO other});
is( error_of($node, $try)->{detail},
	'Role other, which owns table shut.t, has no USAGE privilege on schema shut.',
	'an owner who has no rights to the schema of a table is refused');
$node->safe_psql('postgres', 'DROP SCHEMA shut CASCADE');

# A name that has to be quoted, of an identity
$node->safe_psql(
	'postgres', q{
	CREATE TABLE quoted ("Id" int GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
	SELECT snowflake_convert_column('quoted', 'Id');
	INSERT INTO quoted DEFAULT VALUES});
is($node->safe_psql('postgres', 'SELECT count(*) FROM quoted WHERE "Id" > 1000'),
	1, 'an identity whose name has to be quoted');

# The extension is in a schema of mal's, who puts another in its place while the
# conversion waits for his lock: what is minted then is not what he says.
$node->safe_psql('postgres', 'CREATE DATABASE swap');
$node->safe_psql('swap',
	'CREATE SCHEMA mal AUTHORIZATION mal; GRANT CREATE ON DATABASE swap TO mal');
my $mal = $node->background_psql('swap', extra_params => [ '-U', 'mal' ]);
$mal->query_safe(
	q{
	CREATE EXTENSION snowflake SCHEMA mal;
	CREATE TABLE mal.t (id int PRIMARY KEY);
	BEGIN;
	LOCK TABLE mal.t});
my $converting = $node->background_psql('swap', on_error_stop => 0);
$converting->query_until(qr/go/,
	"\\echo go\nSELECT mal.snowflake_convert_column('mal.t'::regclass, 'id'::name, 'bigint'::regtype, true);\n"
);
$node->poll_query_until('swap',
	q{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND relation = 'mal.t'::regclass})
  or die "conversion does not wait";
$mal->query_safe(
	q{
	ALTER SCHEMA mal RENAME TO mal2;
	CREATE SCHEMA mal;
	CREATE FUNCTION mal.snowflake_next() RETURNS bigint LANGUAGE plpgsql AS
		'BEGIN ALTER ROLE mal SUPERUSER; RETURN 9000000000000000000; END';
	COMMIT});
$converting->query('SELECT 1');
is($node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mal'}),
	'f', 'a schema that is swapped while a conversion waits: nobody becomes superuser');
$converting->quit;
$mal->quit;

$node->stop;
done_testing();
