/* sql/snowflake_migrate--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION snowflake_migrate" to load this file. \quit

-- In reading order: which columns a migration is about, how objects are written down as statements,
-- what hangs on a column, the conversion under one lock, the plan, the conversion of tables in use,
-- and IDs by the time of a row.
--
-- Everything runs with the caller's rights.  Each function has a search_path of its own, so that no
-- name in it or in a statement that it writes can mean an object of somebody else, and so that the
-- server prints definitions with schemas.  A procedure cannot both have one and commit, so
-- procedures only call.  JIT is off where it would take longer than the queries on the catalogs.

-- The schema belongs to a superuser, whoever creates the extension: any other owner could put
-- functions beside these, for a superuser to call.
CREATE SCHEMA snowflake_migrate;
COMMENT ON SCHEMA snowflake_migrate IS 'moves the keys of an application to 64 bits';
GRANT USAGE ON SCHEMA snowflake_migrate TO PUBLIC;

-- Which columns a migration is about

-- A column that a migration converts
CREATE TYPE snowflake_migrate.key_column AS (
	relid oid,			-- the table; of a tree of tables, its topmost one
	attnum smallint,
	name name,
	role text,			-- key: snowflakes from now on; reference; widened: on request
	old_type oid,
	new_type oid,			-- the same if the type stays
	new_default text		-- NULL: the default stays
);

-- Schema of extension snowflake, quoted
CREATE FUNCTION snowflake_migrate.home() RETURNS text
	LANGUAGE sql STABLE
RETURN (SELECT quote_ident(n.nspname) FROM pg_extension AS x JOIN pg_namespace AS n ON n.oid = x.extnamespace WHERE x.extname = 'snowflake');

-- The type snowflake
CREATE FUNCTION snowflake_migrate.snowflake_type() RETURNS oid
	LANGUAGE sql STABLE
RETURN (SELECT t.oid FROM pg_extension AS x JOIN pg_type AS t ON t.typnamespace = x.extnamespace WHERE x.extname = 'snowflake' AND t.typname = 'snowflake');

-- A table with its partitions and children, which ALTER TABLE changes with it
CREATE FUNCTION snowflake_migrate.tree(relid oid) RETURNS SETOF oid
	LANGUAGE sql STABLE ROWS 3
BEGIN ATOMIC
	WITH RECURSIVE tree (relid) AS (
		SELECT $1
	UNION
		SELECT i.inhrelid FROM tree JOIN pg_inherits AS i ON i.inhparent = tree.relid
	)
	SELECT t.relid FROM tree AS t;
END;

-- The table that a column is inherited from
CREATE FUNCTION snowflake_migrate.topmost(relid oid, attname name) RETURNS oid
	LANGUAGE sql STABLE
BEGIN ATOMIC
	WITH RECURSIVE up (relid, depth) AS (
		SELECT $1, 0
	UNION
		SELECT i.inhparent, up.depth + 1
			FROM up JOIN pg_inherits AS i ON i.inhrelid = up.relid
				JOIN pg_attribute AS a ON a.attrelid = i.inhparent AND a.attname = $2 AND a.attnum > 0
	)
	SELECT u.relid FROM up AS u ORDER BY u.depth DESC, u.relid LIMIT 1;
END;

-- 'schema', 'schema.table' or 'schema.table.column' as tables and column
CREATE FUNCTION snowflake_migrate.resolve(target text, of_column boolean DEFAULT false, OUT relid oid, OUT attname name) RETURNS SETOF record
	LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names text[] := parse_ident(target);
	namespace oid := (SELECT n.oid FROM pg_namespace AS n WHERE n.nspname = names[1]);
	kind "char";
BEGIN
	IF cardinality(names) > 3 THEN
		RAISE EXCEPTION 'no such target: %', target
			USING ERRCODE = 'invalid_name', HINT = 'Write schema, schema.table or schema.table.column.';
	END IF;
	IF namespace IS NULL THEN
		RAISE EXCEPTION 'schema "%" does not exist', names[1]
			USING ERRCODE = 'invalid_schema_name', HINT = 'Write schema, schema.table or schema.table.column.';
	END IF;
	IF of_column AND cardinality(names) < 3 THEN
		RAISE EXCEPTION '"%" is not a column', target
			USING ERRCODE = 'invalid_parameter_value', HINT = 'Name columns as schema.table.column.';
	END IF;
	IF cardinality(names) = 1 THEN
		-- an extension's tables count only if they are named
		RETURN QUERY SELECT c.oid, NULL::name FROM pg_class AS c
			WHERE c.relnamespace = namespace AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
				AND NOT EXISTS (SELECT FROM pg_depend AS d
					WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e');
		RETURN;
	END IF;
	SELECT c.oid, c.relkind INTO relid, kind FROM pg_class AS c
		WHERE c.relnamespace = namespace AND c.relname = names[2];
	IF relid IS NULL THEN
		RAISE EXCEPTION 'table "%.%" does not exist', names[1], names[2] USING ERRCODE = 'undefined_table';
	END IF;
	IF kind NOT IN ('r', 'p') OR relid < 16384 THEN
		RAISE EXCEPTION '"%.%" is not a table whose keys can be converted', names[1], names[2]
			USING ERRCODE = 'wrong_object_type';
	END IF;
	attname := names[3];
	IF attname IS NOT NULL AND NOT EXISTS (SELECT FROM pg_attribute AS a
			WHERE a.attrelid = relid AND a.attname = names[3] AND a.attnum > 0) THEN
		RAISE EXCEPTION 'column "%" of table "%.%" does not exist', names[3], names[1], names[2]
			USING ERRCODE = 'undefined_column';
	END IF;
	RETURN NEXT;
END
$$;

-- The sequences that a column's default or identity takes its values from
CREATE FUNCTION snowflake_migrate.sequences(relid oid, attnum smallint) RETURNS SETOF oid
	LANGUAGE sql STABLE ROWS 1
BEGIN ATOMIC
	SELECT d.refobjid
		FROM pg_attrdef AS f
			JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid
				AND d.refclassid = 'pg_class'::regclass
			JOIN pg_class AS s ON s.oid = d.refobjid AND s.relkind = 'S'
		WHERE f.adrelid = $1 AND f.adnum = $2
	UNION
	SELECT d.objid
		FROM pg_depend AS d JOIN pg_class AS s ON s.oid = d.objid AND s.relkind = 'S'
		WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
			AND d.refobjid = $1 AND d.refobjsubid = $2 AND d.deptype = 'i';
END;

-- The default of a column
CREATE FUNCTION snowflake_migrate.column_default(relid oid, attnum smallint) RETURNS text
	LANGUAGE sql STABLE
RETURN (SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef AS d WHERE d.adrelid = $1 AND d.adnum = $2);

-- The columns of a migration: keys among the targets, columns to be widened, and whatever
-- references them, through any number of tables.  An integer reference becomes a bigint, or what
-- references_type says; a bigint stays one unless that is snowflake.
CREATE FUNCTION snowflake_migrate.columns(targets text[], type regtype, widen text[], references_type regtype)
	RETURNS SETOF snowflake_migrate.key_column
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	snowflake constant oid := snowflake_migrate.snowflake_type();
	mints constant text := snowflake_migrate.home() || '.snowflake_next()';
	whole constant oid[] := ARRAY['int2'::regtype, 'int4'::regtype, 'int8'::regtype, snowflake];
	arrays constant oid[] := ARRAY['int2[]'::regtype, 'int4[]'::regtype, 'int8[]'::regtype];
	t record;
	result snowflake_migrate.key_column[] := '{}';
	more snowflake_migrate.key_column[];
BEGIN
	IF type IS NULL OR references_type IS NULL
		OR type NOT IN ('int8'::regtype, snowflake) OR references_type NOT IN ('int8'::regtype, snowflake) THEN
		RAISE EXCEPTION 'keys can be converted to bigint or snowflake, not to %', coalesce(nullif(type, 'int8'::regtype), references_type)::regtype
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF coalesce(cardinality(targets), 0) = 0 AND coalesce(cardinality(widen), 0) = 0 THEN
		RAISE EXCEPTION 'there is nothing to convert: no target is given'
			USING ERRCODE = 'invalid_parameter_value', HINT = 'Name schemas, tables or columns, such as ''{app,billing.invoices}''.';
	END IF;

	-- a key is filled by a sequence and has a unique index, or it is named
	FOR t IN SELECT u.target, u.role, r.* FROM (SELECT unnest(targets) AS target, 'key' AS role UNION ALL SELECT unnest(widen), 'widened') AS u,
			snowflake_migrate.resolve(u.target, u.role = 'widened') AS r LOOP
		SELECT coalesce(array_agg((a.attrelid, a.attnum, a.attname, t.role, a.atttypid, NULL, NULL)::snowflake_migrate.key_column), '{}')
			INTO more
			FROM pg_attribute AS b JOIN pg_attribute AS a ON a.attrelid = snowflake_migrate.topmost(b.attrelid, b.attname) AND a.attname = b.attname
			WHERE b.attrelid = t.relid AND b.attnum > 0 AND (b.atttypid = ANY (whole) OR t.role = 'widened' AND b.atttypid = ANY (arrays))
				AND CASE WHEN t.attname IS NOT NULL THEN b.attname = t.attname
					ELSE a.attrelid = t.relid
						AND EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = t.relid AND i.indisunique AND a.attnum = ANY (i.indkey))
						AND EXISTS (SELECT FROM snowflake_migrate.sequences(t.relid, a.attnum)) END;
		IF t.attname IS NOT NULL AND more = '{}' THEN
			RAISE EXCEPTION 'column "%" of table % is not an integer', t.attname, t.relid::regclass
				USING ERRCODE = 'datatype_mismatch',
					HINT = CASE WHEN (SELECT atttypid FROM pg_attribute WHERE attrelid = t.relid AND attname = t.attname) = 'uuid'::regtype
						THEN 'For a UUID key, see snowflake_migrate.backfill().'
						ELSE 'If its type is a domain, first change it to the base type with ALTER TABLE.' END;
		END IF;
		result := result || ARRAY(SELECT m FROM unnest(more) AS m
			WHERE NOT EXISTS (SELECT FROM unnest(result) AS r WHERE r.relid = m.relid AND r.attnum = m.attnum));
	END LOOP;

	-- a key that references another one takes its numbers from there, unless that one references it
	result := ARRAY(SELECT r FROM unnest(result) AS r
		WHERE NOT EXISTS (SELECT FROM pg_constraint AS f, unnest(f.conkey, f.confkey) AS k (num, refnum), unnest(result) AS o
			WHERE f.contype = 'f' AND f.conrelid = r.relid AND k.num = r.attnum
				AND f.confrelid = o.relid AND k.refnum = o.attnum AND (o.relid, o.attnum) <> (r.relid, r.attnum)
				AND NOT EXISTS (SELECT FROM pg_constraint AS b WHERE b.contype = 'f' AND b.conrelid = o.relid AND b.confrelid = r.relid
					AND o.attnum = ANY (b.conkey) AND r.attnum = ANY (b.confkey))));

	LOOP
		SELECT coalesce(array_agg(DISTINCT (a.attrelid, a.attnum, a.attname, 'reference', a.atttypid, NULL, NULL)::snowflake_migrate.key_column), '{}')
			INTO more
			FROM unnest(result) AS r, snowflake_migrate.tree(r.relid) AS m
				JOIN pg_constraint AS f ON f.contype = 'f' AND f.confrelid = m
				JOIN pg_attribute AS referenced ON referenced.attrelid = f.confrelid,
				unnest(f.conkey, f.confkey) AS k (num, refnum),
				LATERAL (SELECT a.* FROM pg_attribute AS b, pg_attribute AS a
					WHERE b.attrelid = f.conrelid AND b.attnum = k.num
						AND a.attrelid = snowflake_migrate.topmost(f.conrelid, b.attname) AND a.attname = b.attname) AS a
			WHERE referenced.attname = r.name AND k.refnum = referenced.attnum AND a.atttypid = ANY (whole)
				AND NOT EXISTS (SELECT FROM unnest(result) AS o WHERE o.relid = a.attrelid AND o.attnum = a.attnum);
		EXIT WHEN more = '{}';
		result := result || more;
	END LOOP;

	RETURN QUERY SELECT r.relid, r.attnum, r.name, r.role, r.old_type,
			CASE WHEN r.role = 'key' AND type = snowflake THEN snowflake
				WHEN r.role = 'reference' AND references_type = snowflake THEN snowflake
				WHEN r.old_type IN ('int2'::regtype, 'int4'::regtype) THEN 'int8'::regtype
				WHEN r.old_type IN ('int2[]'::regtype, 'int4[]'::regtype) THEN 'int8[]'::regtype
				ELSE r.old_type END,
			CASE WHEN r.role = 'key' AND snowflake_migrate.column_default(r.relid, r.attnum) IS DISTINCT FROM mints THEN mints END
		FROM unnest(result) AS r
		ORDER BY r.relid::regclass::text COLLATE "C", r.attnum;
END
$$;

-- Columns in each table of their trees
CREATE FUNCTION snowflake_migrate.in_trees(columns snowflake_migrate.key_column[])
	RETURNS TABLE (top oid, relid oid, attnum smallint, name name)
	LANGUAGE sql STABLE ROWS 10
BEGIN ATOMIC
	SELECT DISTINCT c.relid, a.attrelid, a.attnum, a.attname
		FROM unnest($1) AS c, snowflake_migrate.tree(c.relid) AS m JOIN pg_attribute AS a ON a.attrelid = m
		WHERE a.attname = c.name;
END;

-- Foreign keys with one of these columns on either side
CREATE FUNCTION snowflake_migrate.foreign_keys(columns snowflake_migrate.key_column[]) RETURNS SETOF pg_constraint
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	WITH k AS MATERIALIZED (
		SELECT * FROM snowflake_migrate.in_trees(columns)
	)
	SELECT f.* FROM pg_constraint AS f
		WHERE f.contype = 'f' AND EXISTS (SELECT FROM k
			WHERE k.relid = f.conrelid AND k.attnum = ANY (f.conkey) OR k.relid = f.confrelid AND k.attnum = ANY (f.confkey))
		ORDER BY f.oid
$$;

-- Objects as statements
--
-- They re-create an object as it is: its definition as the server prints it, then its owner,
-- comment, privileges, states and settings, where a new object has others.

-- The privileges of a new object whose owner is set already; kind is that of acldefault().
CREATE FUNCTION snowflake_migrate.grants(object text, kind "char", acl aclitem[], owner oid, attname name DEFAULT NULL)
	RETURNS SETOF text
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	standard constant aclitem[] := acldefault(kind, owner);
	given record;
BEGIN
	-- default privileges may have granted something
	IF attname IS NULL THEN
		RETURN QUERY SELECT DISTINCT format('REVOKE ALL ON %s FROM %s', object, snowflake_migrate.role_name(e.grantee))
			FROM pg_default_acl AS d, aclexplode(d.defaclacl) AS e
			WHERE pg_get_userbyid(d.defaclrole) = current_user AND d.defaclobjtype = kind AND e.grantee <> owner;
	END IF;
	IF acl IS NULL THEN
		RETURN;
	END IF;

	-- a new object grants this, and this one does not
	RETURN QUERY SELECT DISTINCT format('REVOKE ALL ON %s FROM %s', object, snowflake_migrate.role_name(s.grantee)) FROM aclexplode(standard) AS s
		WHERE NOT EXISTS (SELECT FROM aclexplode(acl) AS e WHERE e.grantee = s.grantee AND e.privilege_type = s.privilege_type);
	FOR given IN
		SELECT e.grantee, e.is_grantable,
				string_agg(e.privilege_type || CASE WHEN attname IS NULL THEN '' ELSE format(' (%I)', attname) END, ', ' ORDER BY e.place) AS list
			FROM aclexplode(acl) WITH ORDINALITY AS e (grantor, grantee, privilege_type, is_grantable, place)
			GROUP BY e.grantee, e.is_grantable ORDER BY min(e.place) LOOP
		-- a new object grants this as well, and nothing of it was revoked
		CONTINUE WHEN NOT given.is_grantable AND EXISTS (SELECT FROM aclexplode(standard) AS s WHERE s.grantee = given.grantee)
			AND NOT EXISTS (SELECT FROM aclexplode(standard) AS s WHERE s.grantee = given.grantee
				AND NOT EXISTS (SELECT FROM aclexplode(acl) AS e WHERE e.grantee = s.grantee AND e.privilege_type = s.privilege_type));
		RETURN NEXT format('GRANT %s ON %s TO %s%s', given.list, object, snowflake_migrate.role_name(given.grantee),
			CASE WHEN given.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
	END LOOP;
END
$$;

-- A role in a statement
CREATE FUNCTION snowflake_migrate.role_name(role oid) RETURNS text
	LANGUAGE sql STABLE
RETURN CASE WHEN $1 = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid($1)) END;

-- An object's comment, security labels, and extensions without which it is dropped.  object is as
-- in COMMENT ON; class, id and sub are as in pg_description.
CREATE FUNCTION snowflake_migrate.said(object text, class regclass, id oid, sub integer DEFAULT 0) RETURNS SETOF text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('COMMENT ON %s IS %L', object, d.description) FROM pg_description AS d WHERE d.classoid = class AND d.objoid = id AND d.objsubid = sub
	UNION ALL
	SELECT format('SECURITY LABEL FOR %I ON %s IS %L', l.provider, object, l.label) FROM pg_seclabel AS l WHERE l.classoid = class AND l.objoid = id AND l.objsubid = sub
	UNION ALL
	SELECT format('ALTER %s DEPENDS ON EXTENSION %I', object, x.extname)
		FROM pg_depend AS d JOIN pg_extension AS x ON d.refclassid = 'pg_extension'::regclass AND x.oid = d.refobjid
		WHERE d.deptype = 'x' AND d.classid = class AND d.objid = id AND sub = 0
$$;

-- Settings, comment and privileges of a column, for one of this name.  Other options than n_distinct
-- are notes of minor releases.
CREATE FUNCTION snowflake_migrate.column_extras(relid oid, attnum smallint, name name DEFAULT NULL) RETURNS SETOF text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	WITH c AS (
		SELECT a.*, t.typstorage, r.relkind, r.relowner, r.oid::regclass AS relation, coalesce($3, a.attname) AS to_name,
				ARRAY(SELECT o FROM unnest(a.attoptions) AS o WHERE o LIKE 'n\_distinct%') AS options
			FROM pg_attribute AS a JOIN pg_class AS r ON r.oid = a.attrelid JOIN pg_type AS t ON t.oid = a.atttypid
			WHERE a.attrelid = $1 AND a.attnum = $2
	)
	SELECT format('ALTER %s %s ALTER COLUMN %I SET %s', CASE c.relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END, c.relation, c.to_name, s) FROM c, unnest(ARRAY[
			CASE WHEN c.attstattarget >= 0 THEN 'STATISTICS ' || c.attstattarget END,
			CASE WHEN c.options <> '{}' THEN format('(%s)', snowflake_migrate.options(c.options)) END,
			CASE WHEN c.attstorage <> c.typstorage THEN 'STORAGE '
				|| CASE c.attstorage WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END END,
			CASE c.attcompression WHEN 'p' THEN 'COMPRESSION pglz' WHEN 'l' THEN 'COMPRESSION lz4' END]) AS s
		WHERE c.relkind <> 'v' AND s IS NOT NULL
	UNION ALL
	SELECT s FROM c, snowflake_migrate.said(format('COLUMN %s.%I', c.relation, c.to_name), 'pg_class', c.attrelid, c.attnum) AS s
	UNION ALL
	SELECT g FROM c, snowflake_migrate.grants('TABLE ' || c.relation, 'c', c.attacl, c.relowner, c.to_name) AS g
$$;

-- Settings such as {fillfactor=70} in the form of a list
CREATE FUNCTION snowflake_migrate.options(options text[]) RETURNS text
	LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
	SELECT string_agg(format('%s = %L', left(o, strpos(o, '=') - 1), substr(o, strpos(o, '=') + 1)), ', ' ORDER BY place)
		FROM unnest($1) WITH ORDINALITY AS u (o, place);
END;

-- What follows USING in an index
CREATE FUNCTION snowflake_migrate.index_tail(index_id oid) RETURNS text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT left(d.tail, length(d.tail) - length(w.predicate)) || coalesce(' TABLESPACE ' || quote_ident(s.spcname), '') || w.predicate
		FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_class AS r ON r.oid = i.indrelid LEFT JOIN pg_tablespace AS s ON s.oid = c.reltablespace,
			LATERAL (SELECT substr(pg_get_indexdef(i.indexrelid), length(format('CREATE %sINDEX %I ON %s%s USING ', CASE WHEN i.indisunique THEN 'UNIQUE ' END, c.relname,
				CASE c.relkind WHEN 'I' THEN 'ONLY ' END, CASE r.relnamespace WHEN pg_my_temp_schema() THEN 'pg_temp.' || quote_ident(r.relname) ELSE r.oid::regclass::text END)) + 1) AS tail) AS d,
			LATERAL (SELECT coalesce(' WHERE ' || pg_get_expr(i.indpred, i.indrelid), '') AS predicate) AS w
		WHERE i.indexrelid = index_id
$$;

-- Settings and comment of an index
CREATE FUNCTION snowflake_migrate.index_extras(index_id oid) RETURNS SETOF text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', a.attrelid::regclass, a.attnum, a.attstattarget)
		FROM pg_attribute AS a WHERE a.attrelid = $1 AND a.attstattarget >= 0
	UNION ALL
	SELECT * FROM snowflake_migrate.said('INDEX ' || $1::regclass, 'pg_class', $1)
	UNION ALL
	SELECT s FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_class AS r ON r.oid = i.indrelid, unnest(ARRAY[
			CASE WHEN i.indisclustered THEN format('ALTER %s %s CLUSTER ON %I', CASE r.relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END, r.oid::regclass, c.relname) END,
			CASE WHEN i.indisreplident THEN format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', r.oid::regclass, c.relname) END]) AS s
		WHERE i.indexrelid = $1 AND s IS NOT NULL
$$;

-- Owner, target and comment of extended statistics
CREATE FUNCTION snowflake_migrate.statistics_extras(statistics_id oid) RETURNS SETOF text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT s FROM pg_statistic_ext AS e JOIN pg_namespace AS n ON n.oid = e.stxnamespace, format('STATISTICS %I.%I', n.nspname, e.stxname) AS object, LATERAL (
			SELECT format('ALTER %s OWNER TO %s', object, snowflake_migrate.role_name(e.stxowner))
			UNION ALL SELECT format('ALTER %s SET STATISTICS %s', object, e.stxstattarget) WHERE e.stxstattarget >= 0
			UNION ALL SELECT * FROM snowflake_migrate.said(object, 'pg_statistic_ext', e.oid)) AS s (s)
		WHERE e.oid = $1
$$;

-- The state of a trigger or rule in a statement
CREATE FUNCTION snowflake_migrate.enabled(state "char") RETURNS text
	LANGUAGE sql IMMUTABLE
RETURN CASE $1 WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE' END;

-- An object, by its class in the catalogs; the first statement creates it.  A view comes without its
-- rules, and a materialized view without its rows: REFRESH, unlike CREATE, reads them with the rights of
-- its owner.  An index of a constraint has only what the constraint does not say.  The names of a foreign
-- key's triggers contain OIDs, so they are looked up when the statement runs.
CREATE FUNCTION snowflake_migrate.creating(class regclass, id oid) RETURNS SETOF text
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	o record;
	object text;
BEGIN
	CASE
		WHEN class = 'pg_class'::regclass AND EXISTS (SELECT FROM pg_index AS i WHERE i.indexrelid = id) THEN
			RETURN QUERY SELECT format('CREATE %sINDEX %I ON %s USING %s', CASE WHEN i.indisunique THEN 'UNIQUE ' END, c.relname, i.indrelid::regclass, snowflake_migrate.index_tail(id))
				FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indexrelid = id
					AND NOT EXISTS (SELECT FROM pg_constraint AS c WHERE c.conindid = id AND c.contype IN ('p', 'u', 'x'));
			RETURN QUERY SELECT * FROM snowflake_migrate.index_extras(id);
		WHEN class = 'pg_statistic_ext'::regclass THEN
			RETURN NEXT pg_get_statisticsobjdef(id);
			RETURN QUERY SELECT * FROM snowflake_migrate.statistics_extras(id);
		WHEN class = 'pg_constraint'::regclass THEN
			SELECT * INTO STRICT o FROM pg_constraint AS c WHERE c.oid = id;
			RETURN NEXT format('ALTER TABLE %s ADD CONSTRAINT %I %s', o.conrelid::regclass, o.conname, pg_get_constraintdef(id));
			RETURN QUERY SELECT * FROM snowflake_migrate.said(format('CONSTRAINT %I ON %s', o.conname, o.conrelid::regclass), class, id);
			IF o.contype IN ('p', 'u', 'x') THEN
				RETURN QUERY SELECT format('ALTER INDEX %s SET %s', i.oid::regclass, s) FROM pg_class AS i LEFT JOIN pg_tablespace AS t ON t.oid = i.reltablespace,
						unnest(ARRAY['(' || snowflake_migrate.options(i.reloptions) || ')', 'TABLESPACE ' || quote_ident(t.spcname)]) AS s
					WHERE i.oid = o.conindid AND s IS NOT NULL;
				RETURN QUERY SELECT * FROM snowflake_migrate.index_extras(o.conindid);
			END IF;
			RETURN QUERY SELECT format($do$DO %L$do$, format($do$
DECLARE
	name name;
BEGIN
	SELECT t.tgname INTO STRICT name
		FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_constraint AS c ON c.oid OPERATOR(pg_catalog.=) t.tgconstraint
		WHERE c.conrelid OPERATOR(pg_catalog.=) %L::pg_catalog.regclass AND c.conname OPERATOR(pg_catalog.=) %L
			AND t.tgrelid OPERATOR(pg_catalog.=) %L::pg_catalog.regclass AND t.tgfoid OPERATOR(pg_catalog.=) %L::pg_catalog.regproc;
	EXECUTE pg_catalog.format('ALTER TABLE ONLY %%s %s TRIGGER %%I', %L::pg_catalog.regclass, name);
END $do$, o.conrelid::regclass, o.conname, t.tgrelid::regclass, 'pg_catalog.' || quote_ident(p.proname), snowflake_migrate.enabled(t.tgenabled), t.tgrelid::regclass))
				FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid WHERE t.tgconstraint = id AND o.contype = 'f' AND t.tgenabled <> 'O';
		WHEN class = 'pg_class'::regclass THEN
			SELECT c.oid::regclass AS name, c.relkind, c.relowner, c.relacl,
					coalesce(' WITH (' || snowflake_migrate.options(c.reloptions || ARRAY(SELECT 'toast.' || u FROM pg_class AS t, unnest(t.reloptions) AS u WHERE t.oid = c.reltoastrelid)) || ')', '') AS options,
					rtrim(pg_get_viewdef(c.oid), ';') AS definition, ' USING ' || quote_ident(m.amname) AS method,
					' TABLESPACE ' || quote_ident(t.spcname) AS tablespace
				INTO STRICT o
				FROM pg_class AS c LEFT JOIN pg_am AS m ON m.oid = c.relam LEFT JOIN pg_tablespace AS t ON t.oid = c.reltablespace
				WHERE c.oid = id;
			object := CASE o.relkind WHEN 'm' THEN 'MATERIALIZED VIEW ' ELSE 'VIEW ' END || o.name;
			RETURN NEXT concat('CREATE ', object, o.method, o.options, o.tablespace, ' AS ', o.definition, CASE o.relkind WHEN 'm' THEN ' WITH NO DATA' END);
			RETURN NEXT format('ALTER %s OWNER TO %s', object, snowflake_migrate.role_name(o.relowner));
			RETURN QUERY SELECT format('ALTER VIEW %s ALTER COLUMN %I SET DEFAULT %s', o.name, a.attname, pg_get_expr(d.adbin, d.adrelid))
				FROM pg_attrdef AS d JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE d.adrelid = id;
			RETURN QUERY SELECT * FROM snowflake_migrate.said(object, class, id);
			RETURN QUERY SELECT * FROM snowflake_migrate.grants('TABLE ' || o.name, 'r', o.relacl, o.relowner);
			RETURN QUERY SELECT e FROM pg_attribute AS a, snowflake_migrate.column_extras(id, a.attnum) AS e
				WHERE a.attrelid = id AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum;
			RETURN QUERY SELECT s.s FROM pg_index AS i, snowflake_migrate.creating('pg_class', i.indexrelid) WITH ORDINALITY AS s (s, place) WHERE i.indrelid = id ORDER BY i.indexrelid, s.place;
			RETURN QUERY SELECT s.s FROM pg_statistic_ext AS e, snowflake_migrate.creating('pg_statistic_ext', e.oid) WITH ORDINALITY AS s (s, place) WHERE e.stxrelid = id ORDER BY e.oid, s.place;
			RETURN QUERY SELECT s.s FROM pg_trigger AS t, snowflake_migrate.creating('pg_trigger', t.oid) WITH ORDINALITY AS s (s, place)
				WHERE t.tgrelid = id AND NOT t.tgisinternal ORDER BY t.oid, s.place;
		WHEN class = 'pg_rewrite'::regclass THEN
			SELECT * INTO STRICT o FROM pg_rewrite AS r WHERE r.oid = id;
			RETURN NEXT rtrim(pg_get_ruledef(id), ';');
			RETURN QUERY SELECT format('ALTER TABLE %s %s RULE %I', o.ev_class::regclass, snowflake_migrate.enabled(o.ev_enabled), o.rulename) WHERE o.ev_enabled <> 'O';
			RETURN QUERY SELECT * FROM snowflake_migrate.said(format('RULE %I ON %s', o.rulename, o.ev_class::regclass), class, id);
		WHEN class = 'pg_trigger'::regclass THEN
			SELECT * INTO STRICT o FROM pg_trigger AS t WHERE t.oid = id;
			RETURN NEXT pg_get_triggerdef(id);
			RETURN QUERY SELECT format('ALTER TABLE %s %s TRIGGER %I', o.tgrelid::regclass, snowflake_migrate.enabled(o.tgenabled), o.tgname) WHERE o.tgenabled <> 'O';
			RETURN QUERY SELECT * FROM snowflake_migrate.said(format('TRIGGER %I ON %s', o.tgname, o.tgrelid::regclass), class, id);
			RETURN QUERY
				WITH RECURSIVE clones (oid) AS (
					SELECT g.oid FROM pg_trigger AS g WHERE g.tgparentid = id
				UNION ALL
					SELECT g.oid FROM clones JOIN pg_trigger AS g ON g.tgparentid = clones.oid
				)
				SELECT format('ALTER TABLE ONLY %s %s TRIGGER %I', g.tgrelid::regclass, snowflake_migrate.enabled(g.tgenabled), g.tgname)
					FROM clones JOIN pg_trigger AS g ON g.oid = clones.oid AND g.tgenabled <> o.tgenabled;
		WHEN class = 'pg_policy'::regclass THEN
			SELECT * INTO STRICT o FROM pg_policy AS p WHERE p.oid = id;
			RETURN NEXT format('CREATE POLICY %I ON %s AS %s FOR %s TO %s', o.polname, o.polrelid::regclass,
					CASE WHEN o.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
					CASE o.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
					(SELECT string_agg(snowflake_migrate.role_name(r.role), ', ' ORDER BY r.place) FROM unnest(o.polroles) WITH ORDINALITY AS r (role, place)))
				|| coalesce(' USING (' || pg_get_expr(o.polqual, o.polrelid) || ')', '')
				|| coalesce(' WITH CHECK (' || pg_get_expr(o.polwithcheck, o.polrelid) || ')', '');
			RETURN QUERY SELECT * FROM snowflake_migrate.said(format('POLICY %I ON %s', o.polname, o.polrelid::regclass), class, id);
		WHEN class = 'pg_proc'::regclass THEN
			SELECT * INTO STRICT o FROM pg_proc AS p WHERE p.oid = id;
			object := CASE o.prokind WHEN 'p' THEN 'PROCEDURE ' ELSE 'FUNCTION ' END || id::regprocedure;
			RETURN NEXT rtrim(pg_get_functiondef(id), E'\n');
			RETURN NEXT format('ALTER %s OWNER TO %s', object, snowflake_migrate.role_name(o.proowner));
			RETURN QUERY SELECT * FROM snowflake_migrate.said(object, class, id);
			RETURN QUERY SELECT * FROM snowflake_migrate.grants(object, 'f', o.proacl, o.proowner);
		WHEN class = 'pg_publication_rel'::regclass THEN
			RETURN QUERY SELECT format('ALTER PUBLICATION %I ADD TABLE ONLY %s', p.pubname, r.prrelid::regclass)
					|| coalesce((SELECT ' (' || string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) || ')'
						FROM pg_attribute AS a WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs::int2[])), '')
					|| coalesce(' WHERE (' || pg_get_expr(r.prqual, r.prrelid) || ')', '')
				FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid WHERE r.oid = id;
	END CASE;
END
$$;

-- What hangs on a column
--
-- Under these objects PostgreSQL does not change the type of a column, and if another column replaces it,
-- they would go on with the old one.  What hangs on them hangs on the column as well, at any depth.

-- The objects that depend on a column, a view or a function directly.  kind says how one is treated:
-- of a function with a body of SQL the body is replaced, so that it keeps its OID; one whose arguments
-- or result have the row type of a view is dropped.
CREATE FUNCTION snowflake_migrate.dependents_of(kind text, class oid, object oid, sub integer)
	RETURNS TABLE (dependent_kind text, classid oid, objid oid, objsubid integer)
	LANGUAGE sql STABLE ROWS 3 SET search_path = pg_catalog, pg_temp
AS $$
	WITH direct AS (
		SELECT d.classid, d.objid, d.objsubid, false AS by_type
			FROM pg_depend AS d
			WHERE d.refclassid = class AND d.refobjid = object AND (kind NOT IN ('column', 'generated') OR d.refobjsubid = sub)
				AND d.deptype IN ('n', 'a', 'i')
	UNION
		SELECT d.classid, d.objid, d.objsubid, true
			FROM pg_class AS v JOIN pg_type AS y ON y.oid = v.reltype OR y.typelem = v.reltype AND y.typcategory = 'A'
				JOIN pg_depend AS d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = y.oid AND d.deptype IN ('n', 'a')
			WHERE kind = 'view' AND v.oid = object
	UNION
		-- ON CONFLICT ON CONSTRAINT
		SELECT d.classid, d.objid, d.objsubid, false
			FROM pg_constraint AS c JOIN pg_depend AS d ON d.refclassid = 'pg_constraint'::regclass AND d.refobjid = c.oid AND d.deptype = 'n'
			WHERE kind IN ('column', 'generated') AND c.conrelid = object AND c.contype IN ('p', 'u', 'x') AND sub = ANY (c.conkey)
	)
	SELECT CASE r.rulename WHEN '_RETURN' THEN 'view' ELSE 'rule' END,
			CASE r.rulename WHEN '_RETURN' THEN 'pg_class'::regclass::oid ELSE d.classid END,
			CASE r.rulename WHEN '_RETURN' THEN r.ev_class ELSE r.oid END, 0
		FROM direct AS d JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
		WHERE NOT (kind = 'view' AND r.ev_class = object AND r.rulename = '_RETURN')
	UNION
	SELECT 'trigger', d.classid, d.objid, 0
		FROM direct AS d JOIN pg_trigger AS t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
		WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND NOT (kind = 'view' AND t.tgrelid = object)
			AND t.tgname NOT LIKE '~snowflake\_new\_%'		-- of a migration
	UNION
	SELECT CASE d.classid WHEN 'pg_policy'::regclass THEN 'policy' ELSE 'publication' END, d.classid, d.objid, 0
		FROM direct AS d WHERE d.classid IN ('pg_policy'::regclass, 'pg_publication_rel'::regclass)
	UNION
	SELECT CASE WHEN d.by_type THEN 'function' ELSE 'body' END, d.classid, d.objid, CASE WHEN d.by_type THEN 1 ELSE 0 END
		FROM direct AS d WHERE d.classid = 'pg_proc'::regclass
	UNION
	SELECT 'generated', 'pg_class'::regclass, top.attrelid, top.attnum
		FROM direct AS d JOIN pg_attrdef AS e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
			JOIN pg_attribute AS a ON a.attrelid = e.adrelid AND a.attnum = e.adnum AND a.attgenerated <> ''
			JOIN pg_attribute AS top ON top.attrelid = snowflake_migrate.topmost(a.attrelid, a.attname) AND top.attname = a.attname
		WHERE NOT (kind = 'generated' AND a.attrelid = object AND a.attnum = sub)
	UNION
	-- anything else that depends on a row type or a function
	SELECT 'obstacle', d.classid, d.objid, d.objsubid
		FROM direct AS d
		WHERE (d.by_type AND d.classid <> 'pg_proc'::regclass OR kind = 'function')
			AND d.classid NOT IN ('pg_rewrite'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass,
				'pg_proc'::regclass, 'pg_publication_rel'::regclass)
			AND NOT EXISTS (SELECT FROM pg_attrdef AS e JOIN pg_attribute AS a ON a.attrelid = e.adrelid AND a.attnum = e.adnum
				WHERE d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid AND a.attgenerated <> '')
$$;

-- All of them, with the longest way to each: they are removed in descending order of depth, and
-- re-created in ascending order.
CREATE FUNCTION snowflake_migrate.dependents(columns snowflake_migrate.key_column[])
	RETURNS TABLE (depth integer, kind text, classid oid, objid oid, objsubid integer)
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
	WITH RECURSIVE found (depth, kind, classid, objid, objsubid) AS (
		SELECT 0, 'column', 'pg_class'::regclass::oid, k.relid, k.attnum::integer FROM snowflake_migrate.in_trees(columns) AS k
	UNION
		SELECT f.depth + 1, d.dependent_kind, d.classid, d.objid, d.objsubid
			FROM found AS f, snowflake_migrate.dependents_of(f.kind, f.classid, f.objid, f.objsubid) AS d
			WHERE f.kind IN ('column', 'generated', 'view', 'function') AND f.depth < 1000
	), farthest AS (
		SELECT max(f.depth) AS depth, f.kind, f.classid, f.objid, f.objsubid FROM found AS f WHERE f.depth > 0
			GROUP BY f.kind, f.classid, f.objid, f.objsubid
	)
	SELECT * FROM farthest AS f
		WHERE NOT (f.kind = 'body' AND EXISTS (SELECT FROM farthest AS o WHERE o.kind = 'function' AND o.objid = f.objid))
$$;

-- An object that hangs on a column, and the statements that remove and re-create it
CREATE TYPE snowflake_migrate.hanging AS (
	depth integer,
	kind text,
	classid oid,
	objid oid,
	objsubid integer,
	object text,
	drops text[],
	creates text[],
	late text[]			-- when everything is back
);

-- What hangs on columns, and how it is removed and re-created
CREATE FUNCTION snowflake_migrate.hanging(columns snowflake_migrate.key_column[]) RETURNS SETOF snowflake_migrate.hanging
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	d record;
	h snowflake_migrate.hanging;
BEGIN
	FOR d IN SELECT e.*, i.type, i.identity, pg_describe_object(e.classid, e.objid, CASE e.kind WHEN 'function' THEN 0 ELSE e.objsubid END) AS object
			FROM snowflake_migrate.dependents(columns) AS e, pg_identify_object(e.classid, e.objid, 0) AS i ORDER BY e.depth, e.classid, e.objid LOOP
		h := (d.depth, d.kind, d.classid, d.objid, d.objsubid, d.object, '{}', '{}', '{}');
		-- the caller could not create these again as they are
		IF d.kind IN ('view', 'rule', 'trigger', 'policy', 'function') AND EXISTS (SELECT FROM pg_depend AS x WHERE x.classid = d.classid AND x.objid = d.objid AND x.deptype = 'e')
			OR d.kind = 'view' AND (SELECT c.relpersistence = 't' FROM pg_class AS c WHERE c.oid = d.objid)
			OR d.kind IN ('function', 'body') AND (SELECT p.prokind NOT IN ('f', 'p')
					OR (p.proleakproof OR NOT l.lanpltrusted) AND NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user)
				FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang WHERE p.oid = d.objid) THEN
			h.kind := 'obstacle';
		END IF;
		IF h.kind IN ('view', 'rule', 'trigger', 'policy', 'function') THEN
			h.drops := ARRAY[format('DROP %s %s', upper(d.type), d.identity)];
			h.creates := ARRAY(SELECT * FROM snowflake_migrate.creating(d.classid, d.objid));
		ELSIF h.kind = 'publication' THEN
			h.drops := ARRAY(SELECT format('ALTER PUBLICATION %I DROP TABLE ONLY %s', p.pubname, r.prrelid::regclass)
				FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid WHERE r.oid = d.objid);
			h.creates := ARRAY(SELECT * FROM snowflake_migrate.creating(d.classid, d.objid));
		ELSIF h.kind = 'body' THEN
			-- CREATE OR REPLACE loses only the extensions that it depends on
			h.creates := rtrim(pg_get_functiondef(d.objid), E'\n')
				|| ARRAY(SELECT s FROM snowflake_migrate.said(upper(d.type) || ' ' || d.identity, 'pg_proc', d.objid) AS s WHERE s LIKE 'ALTER %');
			h.drops := ARRAY[left(h.creates[1], -length(rtrim(pg_get_function_sqlbody(d.objid), E'\n')))
				|| 'AS ''-- replaced while what it reads is changed'''];
		END IF;
		IF h.kind = 'view' AND (SELECT c.relkind = 'm' AND c.relispopulated FROM pg_class AS c WHERE c.oid = d.objid) THEN
			h.late := ARRAY['REFRESH MATERIALIZED VIEW ' || d.identity, 'ANALYZE ' || d.identity];
		END IF;
		RETURN NEXT h;
	END LOOP;
END
$$;

-- Their drops, creates or late statements, in the order in which they run
CREATE FUNCTION snowflake_migrate.of_hanging(hanging snowflake_migrate.hanging[], kind text) RETURNS SETOF text
	LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT s FROM unnest(hanging) WITH ORDINALITY AS h, unnest(CASE $2 WHEN 'drops' THEN h.drops WHEN 'creates' THEN h.creates ELSE h.late END) WITH ORDINALITY AS s (s, place)
		ORDER BY CASE $2 WHEN 'drops' THEN -h.depth ELSE h.depth END, h.ordinality, s.place
$$;

-- A session keeps the types of columns with which it has compiled a function in PL/pgSQL, and fails
-- when they change, unless the function changes as well.  So functions are altered to what they are.
CREATE FUNCTION snowflake_migrate.recompiling(columns snowflake_migrate.key_column[]) RETURNS SETOF text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	WITH t AS MATERIALIZED (
		SELECT DISTINCT c.oid, c.relnamespace FROM snowflake_migrate.in_trees($1) AS k JOIN pg_class AS c ON c.oid = k.relid
	)
	SELECT format('ALTER ROUTINE %s SECURITY %s', p.oid::regprocedure, CASE WHEN p.prosecdef THEN 'DEFINER' ELSE 'INVOKER' END)
		FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
		WHERE (p.pronamespace IN (SELECT t.relnamespace FROM t) OR p.oid IN (SELECT g.tgfoid FROM t JOIN pg_trigger AS g ON g.tgrelid = t.oid))
			AND pg_has_role(p.proowner, 'USAGE') AND p.proname NOT LIKE '~snowflake\_new\_%'
			AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
		ORDER BY p.oid
$$;

-- A generated column that uses a key is dropped in the statement that changes the key's type, and
-- added again behind all others.  This is how ADD COLUMN takes it.
CREATE FUNCTION snowflake_migrate.generated_definition(relid oid, attnum smallint) RETURNS text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('%I %s%s GENERATED ALWAYS AS (%s) %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
			CASE WHEN a.attcollation <> t.typcollation THEN ' COLLATE ' || a.attcollation::regcollation ELSE '' END,
			pg_get_expr(e.adbin, e.adrelid), CASE a.attgenerated WHEN 's' THEN 'STORED' ELSE 'VIRTUAL' END,
			CASE WHEN a.attnotnull THEN coalesce((SELECT format(' CONSTRAINT %I', n.conname) FROM pg_constraint AS n
				WHERE n.conrelid = a.attrelid AND n.contype = 'n' AND n.conkey = ARRAY[a.attnum]), '') || ' NOT NULL' ELSE '' END)
		FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
			JOIN pg_attrdef AS e ON e.adrelid = a.attrelid AND e.adnum = a.attnum
		WHERE a.attrelid = $1 AND a.attnum = $2
$$;

-- What is lost with generated columns
CREATE FUNCTION snowflake_migrate.generated_extras(generated snowflake_migrate.key_column[]) RETURNS SETOF text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT s FROM unnest(generated) AS g, snowflake_migrate.column_extras(g.relid, g.attnum) AS s
	UNION ALL
	(SELECT s.s
		FROM (SELECT DISTINCT d.classid, d.objid
				FROM snowflake_migrate.in_trees(generated) AS g JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = g.relid AND d.refobjsubid = g.attnum
					LEFT JOIN pg_class AS i ON d.classid = 'pg_class'::regclass AND i.oid = d.objid
					LEFT JOIN pg_constraint AS o ON d.classid = 'pg_constraint'::regclass AND o.oid = d.objid
				WHERE i.relkind IN ('i', 'I') AND NOT i.relispartition OR o.contype IN ('p', 'u', 'x', 'c') AND o.coninhcount = 0
					OR d.classid = 'pg_statistic_ext'::regclass) AS d,
			snowflake_migrate.creating(d.classid, d.objid) WITH ORDINALITY AS s (s, place)
		ORDER BY array_position(ARRAY['pg_class'::regclass, 'pg_constraint', 'pg_statistic_ext'], d.classid::regclass), d.objid, s.place)
$$;

-- ALTER TABLE makes the indexes of partitions anew, and chooses their names.  They are looked up when
-- the statement runs, and get back their names, settings and comments.
CREATE FUNCTION snowflake_migrate.partition_indexes(columns snowflake_migrate.key_column[]) RETURNS SETOF text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	WITH p AS (
		SELECT DISTINCT c.oid, c.relname::text, h.inhparent::regclass::text AS parent, i.indrelid::regclass::text AS relation,
				(SELECT count(*) FROM pg_partition_ancestors(c.oid)) AS depth
			FROM snowflake_migrate.in_trees(columns) AS k JOIN pg_index AS i ON i.indrelid = k.relid
				JOIN pg_class AS c ON c.oid = i.indexrelid AND c.relispartition JOIN pg_inherits AS h ON h.inhrelid = c.oid
			WHERE k.attnum = ANY (i.indkey) OR EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
				AND d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum)
	)
	SELECT format('DO %L', format($do$
DECLARE
	place record;
	name pg_catalog.name;
BEGIN
	FOR place IN SELECT * FROM ROWS FROM (pg_catalog.unnest(%L::pg_catalog.text[]), pg_catalog.unnest(%L::pg_catalog.text[]), pg_catalog.unnest(%L::pg_catalog.text[])) AS u (parent, relation, name) LOOP
		SELECT c.relname INTO STRICT name
			FROM pg_catalog.pg_inherits AS h JOIN pg_catalog.pg_index AS i ON i.indexrelid OPERATOR(pg_catalog.=) h.inhrelid
				JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) h.inhrelid
			WHERE h.inhparent OPERATOR(pg_catalog.=) place.parent::pg_catalog.regclass AND i.indrelid OPERATOR(pg_catalog.=) place.relation::pg_catalog.regclass;
		IF name OPERATOR(pg_catalog.<>) place.name THEN
			EXECUTE pg_catalog.format('ALTER INDEX %%I.%%I RENAME TO %%I', (SELECT n.nspname FROM pg_catalog.pg_class AS c
				JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace WHERE c.oid OPERATOR(pg_catalog.=) place.relation::pg_catalog.regclass), name, place.name);
		END IF;
	END LOOP;
END $do$, array_agg(p.parent ORDER BY p.depth, p.oid), array_agg(p.relation ORDER BY p.depth, p.oid), array_agg(p.relname ORDER BY p.depth, p.oid)))
		FROM p HAVING count(*) > 0
	UNION ALL
	SELECT s FROM p, snowflake_migrate.index_extras(p.oid) AS s
$$;

-- Conversion under one lock

-- The statements that change the types and defaults of columns, for one transaction.  They name
-- everything with its schema, so they can be run by hand or from a file.
CREATE FUNCTION snowflake_migrate.statements_for(columns snowflake_migrate.key_column[]) RETURNS SETOF text
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	changed constant snowflake_migrate.key_column[] := ARRAY(SELECT c FROM unnest(columns) AS c WHERE c.new_type <> c.old_type);
	filled constant snowflake_migrate.key_column[] := ARRAY(SELECT c FROM unnest(columns) AS c WHERE c.new_default IS NOT NULL);
	minting constant snowflake_migrate.key_column[] :=
		ARRAY(SELECT c FROM unnest(filled) AS c WHERE c.new_default = snowflake_migrate.home() || '.snowflake_next()');
	hanging constant snowflake_migrate.hanging[] := ARRAY(SELECT h FROM snowflake_migrate.hanging(changed) AS h);
	generated snowflake_migrate.key_column[];
	foreign_keys oid[];
	own_keys oid[];
	own_not_nulls oid[];
	kept oid[];
	t record;
BEGIN
	IF changed = '{}' AND filled = '{}' THEN
		RETURN;
	END IF;
	generated := ARRAY(SELECT (a.attrelid, a.attnum, a.attname, h.kind, a.atttypid, a.atttypid, NULL)::snowflake_migrate.key_column
		FROM unnest(hanging) AS h JOIN pg_attribute AS a ON h.kind = 'generated' AND a.attrelid = h.objid AND a.attnum = h.objsubid);

	-- foreign keys of columns whose types change are checked once, at the end
	foreign_keys := ARRAY(SELECT f.oid FROM snowflake_migrate.foreign_keys(changed || generated) AS f WHERE f.conparentid = 0);
	-- A child may have a key of its own, and from version 18 on a NOT NULL constraint with a name of
	-- its own, under which ALTER TABLE of the parent fails: that of the parent and the keys that need
	-- it are dropped, and added again.
	own_not_nulls := ARRAY(SELECT DISTINCT p.oid
		FROM snowflake_migrate.in_trees(changed) AS k
			JOIN pg_constraint AS o ON o.conrelid = k.relid AND o.contype = 'n' AND o.conkey = ARRAY[k.attnum]
			JOIN pg_attribute AS a ON a.attrelid = k.top AND a.attname = k.name
			JOIN pg_constraint AS p ON p.conrelid = k.top AND p.contype = 'n' AND p.conkey = ARRAY[a.attnum] AND p.conname <> o.conname);
	own_keys := ARRAY(SELECT DISTINCT o.oid
		FROM snowflake_migrate.in_trees(changed) AS k
			JOIN pg_constraint AS o ON o.conrelid = k.relid AND o.contype IN ('p', 'u') AND k.attnum = ANY (o.conkey)
			JOIN pg_class AS r ON r.oid = k.relid AND NOT r.relispartition
			JOIN pg_attribute AS a ON a.attrelid = k.top AND a.attname = k.name
		WHERE k.relid <> k.top OR EXISTS (SELECT FROM pg_constraint AS n WHERE n.oid = ANY (own_not_nulls) AND n.conrelid = k.top AND n.conkey = ARRAY[a.attnum])
		ORDER BY 1);
	-- ALTER TABLE re-creates extended statistics as the caller's
	kept := ARRAY(SELECT DISTINCT d.objid FROM pg_depend AS d JOIN snowflake_migrate.in_trees(changed) AS k
			ON d.refobjid = k.relid AND d.refobjsubid = k.attnum
		WHERE d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_statistic_ext'::regclass
			AND NOT EXISTS (SELECT FROM pg_depend AS e JOIN unnest(generated) AS g
				ON e.refclassid = 'pg_class'::regclass AND e.refobjid = g.relid AND e.refobjsubid = g.attnum
				WHERE e.classid = 'pg_statistic_ext'::regclass AND e.objid = d.objid));

	RETURN NEXT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', (
		SELECT string_agg(r.relid::regclass::text, ', ' ORDER BY r.relid::regclass::text COLLATE "C")
			FROM (SELECT c.relid FROM unnest(changed || filled) AS c UNION
				SELECT u FROM pg_constraint AS f, unnest(ARRAY[f.conrelid, f.confrelid]) AS u WHERE f.oid = ANY (foreign_keys)) AS r (relid)));
	IF minting <> '{}' THEN
		RETURN NEXT snowflake_migrate.check_statement(minting);
	END IF;
	IF EXISTS (SELECT FROM unnest(hanging) AS h WHERE h.kind IN ('body', 'function')) THEN
		RETURN NEXT 'SET LOCAL check_function_bodies = off';
	END IF;
	RETURN QUERY SELECT * FROM snowflake_migrate.of_hanging(hanging, 'drops');
	RETURN QUERY SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', f.conrelid::regclass, f.conname)
		FROM unnest(foreign_keys || own_keys) WITH ORDINALITY AS o (oid, place) JOIN pg_constraint AS f ON f.oid = o.oid ORDER BY o.place;
	RETURN QUERY SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP NOT NULL', n.conrelid::regclass, a.attname)
		FROM pg_constraint AS n JOIN pg_attribute AS a ON a.attrelid = n.conrelid AND a.attnum = n.conkey[1] WHERE n.oid = ANY (own_not_nulls);
	-- an identity allows neither a type that is not an integer nor a default
	RETURN QUERY SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', a.attrelid::regclass, a.attname)
		FROM snowflake_migrate.in_trees(filled) AS k JOIN pg_attribute AS a ON a.attrelid = k.relid AND a.attnum = k.attnum
		WHERE a.attidentity <> '' AND NOT EXISTS (SELECT FROM pg_inherits AS i JOIN pg_attribute AS p ON p.attrelid = i.inhparent
			WHERE i.inhrelid = a.attrelid AND p.attname = a.attname AND p.attidentity <> '');

	FOR t IN SELECT DISTINCT c.relid, c.relid::regclass::text COLLATE "C" AS name FROM unnest(changed || filled || generated) AS c ORDER BY 2 LOOP
		RETURN NEXT format('ALTER TABLE %s %s', t.name, (
			SELECT string_agg(a.action, ', ' ORDER BY a.place, a.attnum) FROM (
				SELECT 1 AS place, g.attnum, format('DROP COLUMN %I', g.name) AS action FROM unnest(generated) AS g WHERE g.relid = t.relid
				UNION ALL
				-- the old default may have no cast to the new type
				SELECT 2, c.attnum, format('ALTER COLUMN %I DROP DEFAULT', c.name)
					FROM unnest(filled) AS c WHERE c.relid = t.relid AND c.new_type <> c.old_type
						AND snowflake_migrate.column_default(c.relid, c.attnum) IS NOT NULL
				UNION ALL
				SELECT 3, c.attnum, format('ALTER COLUMN %I TYPE %s', c.name, snowflake_migrate.type_name(c.new_type))
					FROM unnest(changed) AS c WHERE c.relid = t.relid
				UNION ALL
				SELECT 4, c.attnum, format('ALTER COLUMN %I SET DEFAULT %s', c.name, c.new_default) FROM unnest(filled) AS c WHERE c.relid = t.relid
				UNION ALL
				SELECT 5, g.attnum, 'ADD COLUMN ' || snowflake_migrate.generated_definition(g.relid, g.attnum)
					FROM unnest(generated) AS g WHERE g.relid = t.relid) AS a));
	END LOOP;

	RETURN QUERY SELECT s.s FROM unnest(own_not_nulls || own_keys) WITH ORDINALITY AS o (oid, place),
		snowflake_migrate.creating('pg_constraint', o.oid) WITH ORDINALITY AS s (s, place) ORDER BY o.place, s.place;
	RETURN QUERY SELECT * FROM snowflake_migrate.generated_extras(generated);
	RETURN QUERY SELECT * FROM snowflake_migrate.partition_indexes(changed || generated);
	-- first those of partitions that have names of their own
	RETURN QUERY SELECT s.s FROM snowflake_migrate.foreign_keys(changed || generated) AS f LEFT JOIN pg_constraint AS p ON p.oid = f.conparentid,
			snowflake_migrate.creating('pg_constraint', f.oid) WITH ORDINALITY AS s (s, place)
		WHERE f.conparentid = 0 OR p.confrelid = f.confrelid AND p.conname <> f.conname
		ORDER BY (SELECT count(*) FROM pg_partition_ancestors(f.conrelid) WHERE f.conparentid <> 0) DESC, f.oid, s.place;
	RETURN QUERY SELECT * FROM snowflake_migrate.of_hanging(hanging, 'creates');
	RETURN QUERY SELECT * FROM snowflake_migrate.recompiling(changed);

	-- ALTER TABLE does not keep these settings of statistics, indexes and arrays
	RETURN QUERY SELECT s FROM unnest(kept) AS k, snowflake_migrate.statistics_extras(k) AS s;
	RETURN QUERY SELECT s FROM snowflake_migrate.in_trees(changed) AS k
			JOIN pg_index AS i ON i.indrelid = k.relid JOIN pg_class AS c ON c.oid = i.indexrelid AND NOT c.relispartition
			JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
				AND d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum,
			snowflake_migrate.index_extras(i.indexrelid) AS s
		WHERE s ~ ' (SET STATISTICS|DEPENDS ON EXTENSION) ' GROUP BY s;
	RETURN QUERY SELECT s FROM snowflake_migrate.in_trees(changed) AS k, snowflake_migrate.column_extras(k.relid, k.attnum) AS s
		WHERE s ~ ' SET (STORAGE|COMPRESSION) ';

	RETURN QUERY SELECT DISTINCT format('DROP SEQUENCE %s', s::regclass)
		FROM unnest(filled) AS c, snowflake_migrate.sequences(c.relid, c.attnum) AS s
		WHERE s IN (SELECT snowflake_migrate.droppable(filled)) ORDER BY 1;
	RETURN QUERY SELECT * FROM snowflake_migrate.of_hanging(hanging, 'late');
	-- the columns have lost their statistics
	RETURN QUERY SELECT DISTINCT 'ANALYZE ' || k.relid::regclass FROM snowflake_migrate.in_trees(changed) AS k
		JOIN pg_class AS c ON c.oid = k.relid AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1;
END
$$;

-- What convert() would run.  Takes no locks, and does not look for what is in the way.
CREATE FUNCTION snowflake_migrate.statements(targets text[], type regtype DEFAULT 'pg_catalog.int8',
	widen text[] DEFAULT '{}', references_type regtype DEFAULT 'pg_catalog.int8')
	RETURNS SETOF text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT * FROM snowflake_migrate.statements_for(ARRAY(SELECT c FROM snowflake_migrate.columns(targets, type, widen, references_type) AS c))
$$;
COMMENT ON FUNCTION snowflake_migrate.statements(text[], regtype, text[], regtype) IS
	'the statements that convert keys and what references them, for one transaction';

-- A type in a statement
CREATE FUNCTION snowflake_migrate.type_name(type oid) RETURNS text
	LANGUAGE sql STABLE
RETURN CASE WHEN $1 = snowflake_migrate.snowflake_type() THEN snowflake_migrate.home() || '.snowflake' ELSE format_type($1, NULL) END;

-- Sequences that these columns own and nothing else uses
CREATE FUNCTION snowflake_migrate.droppable(filled snowflake_migrate.key_column[]) RETURNS SETOF oid
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	WITH k AS MATERIALIZED (
		SELECT * FROM snowflake_migrate.in_trees(filled)
	)
	SELECT d.objid FROM k JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum
			JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind = 'S'
		WHERE d.deptype = 'a'
			AND NOT EXISTS (SELECT FROM pg_depend AS u LEFT JOIN pg_attrdef AS e ON u.classid = 'pg_attrdef'::regclass AND e.oid = u.objid
				WHERE u.refclassid = 'pg_class'::regclass AND u.refobjid = c.oid AND u.deptype <> 'i'
					AND NOT EXISTS (SELECT FROM k AS o WHERE o.relid = e.adrelid AND o.attnum = e.adnum))
			AND NOT EXISTS (SELECT FROM pg_depend AS x WHERE x.classid = 'pg_class'::regclass AND x.objid = c.oid AND x.deptype = 'e')
$$;

-- New keys must be larger than all others, which is checked under the lock.
CREATE FUNCTION snowflake_migrate.check_statement(filled snowflake_migrate.key_column[]) RETURNS text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('DO %L', format($do$
DECLARE
	next pg_catalog.int8 := %s.snowflake_next();
	largest pg_catalog.int8;
	place pg_catalog.text;
BEGIN
	SELECT k.largest, k.place INTO largest, place FROM (%s) AS k ORDER BY k.largest DESC NULLS LAST LIMIT 1;
	IF largest OPERATOR(pg_catalog.>=) next THEN
		RAISE EXCEPTION 'the largest key, %%, is not below the next snowflake, %%', largest, next
			USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = pg_catalog.format('It is in %%s.', place),
				HINT = 'If these keys are snowflakes, use their layout and run snowflake_advance(), or correct the keys that are ahead of the clock.';
	END IF;
END $do$, snowflake_migrate.home(),
		(SELECT string_agg(format('SELECT pg_catalog.max(%I::pg_catalog.int8) AS largest, %L AS place FROM %s',
				c.name, format('%s.%I', c.relid::regclass, c.name), c.relid::regclass), ' UNION ALL ') FROM unnest(filled) AS c)))
$$;

-- The statements are planned, the tables are locked, and the statements are planned again, and run:
-- unless other tables have to be locked by then.
CREATE FUNCTION snowflake_migrate.convert(targets text[], type regtype DEFAULT 'pg_catalog.int8',
	widen text[] DEFAULT '{}', references_type regtype DEFAULT 'pg_catalog.int8')
	RETURNS SETOF text
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	planned text[];
	final text[];
	obstacle record;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'a conversion must run at isolation level READ COMMITTED'
			USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At another level it would not see changes that are committed while it waits for its locks.';
	END IF;
	FOR obstacle IN SELECT o.* FROM snowflake_migrate.obstacles(ARRAY(SELECT c FROM snowflake_migrate.columns(targets, type, widen, references_type) AS c)) AS o LOOP
		RAISE EXCEPTION '% prevents the conversion', obstacle.object
			USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = obstacle.detail, HINT = obstacle.advice;
	END LOOP;
	planned := ARRAY(SELECT * FROM snowflake_migrate.statements(targets, type, widen, references_type));
	IF planned = '{}' THEN
		RETURN;
	END IF;
	EXECUTE planned[1];
	final := ARRAY(SELECT * FROM snowflake_migrate.statements(targets, type, widen, references_type));
	IF final[1] IS DISTINCT FROM planned[1] THEN
		RAISE EXCEPTION 'the tables changed while the conversion waited for their locks'
			USING ERRCODE = 'object_in_use', HINT = 'Repeat the call.';
	END IF;
	PERFORM snowflake_migrate.run(final);
	RETURN QUERY SELECT * FROM unnest(final);
END
$$;
COMMENT ON FUNCTION snowflake_migrate.convert(text[], regtype, text[], regtype) IS
	'convert keys and the columns that reference them, under one lock; returns the statements';

-- The way back: keys that mint become bigints that a sequence fills, from the largest on.
CREATE FUNCTION snowflake_migrate.leave(targets text[]) RETURNS SETOF text
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	mints constant text := snowflake_migrate.home() || '.snowflake_next()';
	named text[];
	columns snowflake_migrate.key_column[];
	statements text[] := '{}';
	after text[] := '{}';
	c record;
BEGIN
	named := ARRAY(SELECT DISTINCT format('%I.%I.%I', n.nspname, r.relname, a.attname)
		FROM unnest(targets) AS t, snowflake_migrate.resolve(t) AS u JOIN pg_class AS r ON r.oid = u.relid JOIN pg_namespace AS n ON n.oid = r.relnamespace
			JOIN pg_attribute AS a ON a.attrelid = r.oid
		WHERE a.attname = coalesce(u.attname, a.attname) AND a.attinhcount = 0 AND snowflake_migrate.column_default(r.oid, a.attnum) = mints);
	IF named = '{}' THEN
		RAISE EXCEPTION 'none of these columns is filled with snowflakes' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	FOR c IN SELECT k.*, n.nspname, r.relname, r.relowner, k.relid::regclass AS relation FROM snowflake_migrate.columns(named, 'int8', '{}', 'int8') AS k
			JOIN pg_class AS r ON r.oid = k.relid JOIN pg_namespace AS n ON n.oid = r.relnamespace LOOP
		IF c.role = 'key' THEN
			-- a name that is free
			SELECT f.name INTO STRICT c.new_default FROM generate_series(0, 1000) AS i,
				LATERAL (SELECT format('%I.%I', c.nspname, left(c.relname, 28) || '_' || left(c.name, 28) || '_seq' || coalesce(nullif(i, 0)::text, '')) AS name) AS f
				WHERE to_regclass(f.name) IS NULL AND 'CREATE SEQUENCE ' || f.name <> ALL (statements) ORDER BY i LIMIT 1;
			statements := statements || ('CREATE SEQUENCE ' || c.new_default);
			-- under the lock
			after := after || ARRAY[format('SELECT setval(%L, max(%I)) FROM %s', c.new_default, c.name, c.relation),
				format('ALTER SEQUENCE %s OWNER TO %s', c.new_default, snowflake_migrate.role_name(c.relowner)),
				format('ALTER SEQUENCE %s OWNED BY %s.%I', c.new_default, c.relation, c.name)];
			c.new_default := format('nextval(%L::regclass)', c.new_default);
		END IF;
		columns := columns || (c.relid, c.attnum, c.name, c.role, c.old_type,
			CASE c.old_type WHEN snowflake_migrate.snowflake_type() THEN 'int8'::regtype ELSE c.old_type END, c.new_default)::snowflake_migrate.key_column;
	END LOOP;
	statements := statements || ARRAY(SELECT * FROM snowflake_migrate.statements_for(columns)) || after;
	PERFORM snowflake_migrate.run(statements);
	RETURN QUERY SELECT * FROM unnest(statements);
END
$$;
COMMENT ON FUNCTION snowflake_migrate.leave(text[]) IS 'convert keys with snowflakes to bigints filled by a sequence; returns the statements';

-- The plan

-- Some obstacles only show when they are tried, such as an index on a function that takes an integer.
-- They are tried on an empty copy of the table, in a subtransaction that never commits.
CREATE FUNCTION snowflake_migrate.trial(columns snowflake_migrate.key_column[]) RETURNS TABLE (relid oid, error text)
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
AS $$
DECLARE
	actions text;
BEGIN
	IF NOT has_database_privilege(current_database(), 'TEMPORARY') THEN
		RETURN;
	END IF;
	FOR relid, actions IN SELECT a.relid, string_agg(a.action, ', ')
			FROM (SELECT m AS relid, concat(CASE c.role WHEN 'key' THEN format('ALTER COLUMN %I DROP DEFAULT, ', c.name) END,
						format('ALTER COLUMN %I TYPE %s', c.name, snowflake_migrate.type_name(c.new_type))) AS action
					FROM unnest(columns) AS c, snowflake_migrate.tree(c.relid) AS m
				UNION ALL
				SELECT m, unnest(ARRAY[format('DROP COLUMN %I', top.attname), 'ADD COLUMN ' || snowflake_migrate.generated_definition(m, a.attnum)])
					FROM snowflake_migrate.dependents(columns) AS d
						JOIN pg_attribute AS top ON top.attrelid = d.objid AND top.attnum = d.objsubid,
						snowflake_migrate.tree(d.objid) AS m JOIN pg_attribute AS a ON a.attrelid = m
					WHERE d.kind = 'generated' AND a.attname = top.attname) AS a
				JOIN pg_class AS c ON c.oid = a.relid
			WHERE c.relkind IN ('r', 'p') AND pg_has_role(c.relowner, 'USAGE') GROUP BY a.relid ORDER BY a.relid LOOP
		BEGIN
			EXECUTE format('CREATE TEMPORARY TABLE snowflake_migrate_trial (LIKE %s INCLUDING ALL EXCLUDING IDENTITY) ON COMMIT DROP', relid::regclass);
			EXECUTE format('ALTER TABLE pg_temp.snowflake_migrate_trial %s', actions);
			RAISE EXCEPTION USING ERRCODE = 'SFTRY';
		EXCEPTION
			WHEN SQLSTATE 'SFTRY' THEN
				NULL;
			WHEN query_canceled THEN
				RAISE;
			WHEN OTHERS THEN
				error := SQLERRM;
				RETURN NEXT;
		END;
	END LOOP;
END
$$;

-- Types in which a value of the given types is: arrays, domains, composite types, ranges
CREATE FUNCTION snowflake_migrate.types_of(base oid[]) RETURNS SETOF oid
	LANGUAGE sql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
	WITH RECURSIVE found (oid) AS (
		SELECT unnest(base)
	UNION
		SELECT o.oid FROM found AS f, LATERAL (
			SELECT t.typarray AS oid FROM pg_type AS t WHERE t.oid = f.oid AND t.typarray <> 0
			UNION ALL SELECT t.oid FROM pg_type AS t WHERE t.typbasetype = f.oid
			UNION ALL SELECT r.rngtypid FROM pg_range AS r WHERE r.rngsubtype = f.oid
			UNION ALL SELECT c.reltype FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
				WHERE c.relkind = 'c' AND a.atttypid = f.oid AND NOT a.attisdropped) AS o
	)
	SELECT f.oid FROM found AS f
$$;

-- What a conversion would fail on
CREATE FUNCTION snowflake_migrate.obstacles(columns snowflake_migrate.key_column[]) RETURNS TABLE (object text, detail text, advice text)
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	changed constant snowflake_migrate.key_column[] := ARRAY(SELECT c FROM unnest(columns) AS c WHERE c.new_type <> c.old_type);
	hanging constant snowflake_migrate.hanging[] := ARRAY(SELECT h FROM snowflake_migrate.hanging(changed) AS h);
	tables constant oid[] := ARRAY(SELECT k.relid FROM snowflake_migrate.in_trees(columns) AS k
		UNION SELECT u FROM snowflake_migrate.foreign_keys(changed) AS f, unnest(ARRAY[f.conrelid, f.confrelid]) AS u);
	is_super constant boolean := (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user);
BEGIN
	-- whose they are
	RETURN QUERY
		WITH owned (object, owner) AS (
			SELECT 'table ' || c.oid::regclass, c.relowner FROM pg_class AS c
				WHERE c.oid IN (SELECT k.relid FROM snowflake_migrate.in_trees(columns) AS k UNION SELECT f.conrelid FROM snowflake_migrate.foreign_keys(changed) AS f)
		UNION ALL
			SELECT pg_describe_object(d.classid, d.objid, 0), CASE d.kind
					WHEN 'view' THEN (SELECT c.relowner FROM pg_class AS c WHERE c.oid = d.objid)
					WHEN 'rule' THEN (SELECT c.relowner FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class WHERE r.oid = d.objid)
					WHEN 'trigger' THEN (SELECT c.relowner FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid WHERE t.oid = d.objid)
					WHEN 'policy' THEN (SELECT c.relowner FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid WHERE p.oid = d.objid)
					WHEN 'publication' THEN (SELECT p.pubowner FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid WHERE r.oid = d.objid)
					ELSE (SELECT p.proowner FROM pg_proc AS p WHERE p.oid = d.objid) END
				FROM unnest(hanging) AS d WHERE d.kind NOT IN ('generated', 'obstacle')
		)
		SELECT DISTINCT o.object, format('It belongs to role "%s".', pg_get_userbyid(o.owner)),
				'Call it as a role that may act as all owners.'
			FROM owned AS o WHERE NOT pg_has_role(o.owner, 'USAGE');
	-- neither the largest key nor a foreign key is checked against hidden rows
	RETURN QUERY SELECT format('table %s', c.oid::regclass), 'Row-level security hides rows of it, although you may act as its owner.',
			format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY during the conversion, or call it as a role with BYPASSRLS.', c.oid::regclass)
		FROM pg_class AS c
		WHERE c.oid = ANY (tables)
			AND pg_has_role(c.relowner, 'USAGE') AND row_security_active(c.oid);
	-- the caller creates again what is dropped, and gives it to its owner
	RETURN QUERY SELECT DISTINCT h.object, format('Role "%s" may not create anything in schema %I.', r.rolname, n.nspname), format('GRANT CREATE ON SCHEMA %I TO %I;', n.nspname, r.rolname)
		FROM unnest(hanging) AS h LEFT JOIN pg_class AS c ON h.kind = 'view' AND c.oid = h.objid LEFT JOIN pg_proc AS p ON h.kind = 'function' AND p.oid = h.objid
			JOIN pg_namespace AS n ON n.oid = coalesce(c.relnamespace, p.pronamespace)
			JOIN pg_roles AS r ON r.rolname = current_user OR r.oid = coalesce(c.relowner, p.proowner)
		WHERE NOT is_super AND NOT has_schema_privilege(r.oid, n.oid, 'CREATE');
	RETURN QUERY SELECT h.object, 'It must be dropped temporarily, and cannot be re-created unchanged.',
			'Drop it first, and re-create it afterwards.'
		FROM unnest(hanging) AS h WHERE h.kind = 'obstacle';
	-- ALTER TABLE changes the columns of one tree of tables
	RETURN QUERY SELECT DISTINCT format('table %s', i.inhrelid::regclass), format('It inherits column %I from several tables.', k.name),
			format('ALTER TABLE %s NO INHERIT all but one of them.', i.inhrelid::regclass)
		FROM snowflake_migrate.in_trees(changed) AS k JOIN pg_inherits AS i ON i.inhrelid = k.relid
			JOIN pg_attribute AS a ON a.attrelid = i.inhparent AND a.attname = k.name AND NOT a.attisdropped
		GROUP BY i.inhrelid, k.name HAVING count(DISTINCT i.inhparent) > 1;
	RETURN QUERY SELECT DISTINCT format('table %s', c.oid::regclass), format('It is partitioned by column %I, whose type changes.', a.attname),
			'Exclude this key, or copy the table to a new one.'
		FROM snowflake_migrate.in_trees(changed) AS k JOIN pg_class AS c ON c.oid = k.relid
			JOIN pg_partitioned_table AS p ON p.partrelid = c.oid JOIN pg_attribute AS a ON a.attrelid = k.relid AND a.attnum = k.attnum
		WHERE k.attnum = ANY (p.partattrs)
			OR EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
				AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.refobjsubid = k.attnum);
	RETURN QUERY SELECT DISTINCT format('column %s.%I', u.oid::regclass, a.attname), format('It has the row type of table %s.', k.relid::regclass),
			'Drop it first, and re-create it afterwards.'
		FROM pg_attribute AS a JOIN pg_class AS u ON u.oid = a.attrelid AND u.relkind IN ('r', 'p', 'm', 'f'),
			snowflake_migrate.in_trees(changed) AS k JOIN pg_class AS c ON c.oid = k.relid
		WHERE a.atttypid = ANY (ARRAY(SELECT snowflake_migrate.types_of(ARRAY(SELECT r.reltype FROM snowflake_migrate.in_trees(changed) AS i JOIN pg_class AS r ON r.oid = i.relid))))
			AND a.atttypid IN (SELECT snowflake_migrate.types_of(ARRAY[c.reltype]));
	RETURN QUERY SELECT DISTINCT format('table %s', c.oid::regclass), format('It is a table of type %s.', c.reloftype::regtype),
			format('Detach it from the type with ALTER TABLE %s NOT OF.', c.oid::regclass)
		FROM snowflake_migrate.in_trees(changed) AS k JOIN pg_class AS c ON c.oid = k.relid WHERE c.reloftype <> 0;
	RETURN QUERY SELECT DISTINCT format('foreign key %I of table %s', f.conname, f.conrelid::regclass),
			'Its triggers are not in their initial state, and only a superuser can restore such a state.',
			'Call it as a superuser, or have a superuser enable the triggers.'
		FROM snowflake_migrate.foreign_keys(changed) AS f JOIN pg_trigger AS t ON t.tgconstraint = f.oid AND t.tgenabled <> 'O'
		WHERE NOT is_super;
	RETURN QUERY SELECT DISTINCT format('publication %I', p.pubname),
			format('It has a filter on %s.%I, where PostgreSQL does not accept types of extensions.', a.attrelid::regclass, a.attname),
			'Make this key a bigint, or publish the table without the filter.'
		FROM unnest(changed) AS c, snowflake_migrate.in_trees(ARRAY[c]) AS k
			JOIN pg_attribute AS a ON a.attrelid = k.relid AND a.attnum = k.attnum
			JOIN pg_publication_rel AS r ON r.prrelid = k.relid JOIN pg_publication AS p ON p.oid = r.prpubid
		WHERE c.new_type = snowflake_migrate.snowflake_type() AND pg_get_expr(r.prqual, r.prrelid) ~ ('\m' || regexp_replace(a.attname, '(\W)', '\\\1', 'g') || '\M');
	RETURN QUERY SELECT format('column %s.%I', a.attrelid::regclass, a.attname), 'A partition or child table has a different expression for it.',
			'Drop it first, and re-create it afterwards.'
		FROM unnest(hanging) AS d
			JOIN pg_attribute AS top ON d.kind = 'generated' AND top.attrelid = d.objid AND top.attnum = d.objsubid,
			snowflake_migrate.tree(d.objid) AS member JOIN pg_attribute AS a ON a.attrelid = member
		WHERE a.attname = top.attname
			AND snowflake_migrate.column_default(a.attrelid, a.attnum) IS DISTINCT FROM snowflake_migrate.column_default(top.attrelid, top.attnum);
	-- Citus and TimescaleDB divide tables by rules of their own
	IF EXISTS (SELECT FROM pg_extension AS x WHERE x.extname = 'citus') THEN
		RETURN QUERY EXECUTE $q$
			SELECT DISTINCT format('column %s.%I', a.attrelid::regclass, a.attname), CASE WHEN is_distribution
					THEN 'Citus distributes the table by it.' ELSE 'It owns a sequence, and Citus has distributed the table.' END,
					'Run undistribute_table() before, and create_distributed_table() afterwards.'
				FROM snowflake_migrate.in_trees($1) AS k JOIN pg_attribute AS a ON a.attrelid = k.relid AND a.attnum = k.attnum
					JOIN pg_catalog.pg_dist_partition AS p ON p.logicalrelid = k.relid,
					LATERAL (SELECT substring(p.partkey FROM ':varattno (\d+)')::int2 = a.attnum AS is_distribution) AS d
				WHERE is_distribution OR EXISTS (SELECT FROM snowflake_migrate.sequences(a.attrelid, a.attnum))$q$ USING changed;
	END IF;
	IF EXISTS (SELECT FROM pg_extension AS x JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = x.oid AND d.deptype = 'e'
			WHERE x.extname = 'timescaledb' AND d.classid = 'pg_class'::regclass AND d.objid = to_regclass('_timescaledb_catalog.dimension')) THEN
		RETURN QUERY EXECUTE $q$
			SELECT DISTINCT format('column %s.%I', a.attrelid::regclass, a.attname), 'TimescaleDB divides the table by it.',
					'Exclude this key: it stays a bigint.'
				FROM snowflake_migrate.in_trees($1) AS k JOIN pg_attribute AS a ON a.attrelid = k.relid AND a.attnum = k.attnum
					JOIN pg_class AS c ON c.oid = k.relid JOIN pg_namespace AS n ON n.oid = c.relnamespace
					JOIN _timescaledb_catalog.hypertable AS h ON h.schema_name = n.nspname AND h.table_name = c.relname
					JOIN _timescaledb_catalog.dimension AS d ON d.hypertable_id = h.id AND d.column_name = a.attname$q$ USING changed;
	END IF;
	RETURN QUERY SELECT format('table %s', t.relid::regclass), format('PostgreSQL says: %s', t.error),
			'Remove the cause first.'
		FROM snowflake_migrate.trial(changed) AS t;
END
$$;

-- What will break that no foreign key tells of
CREATE FUNCTION snowflake_migrate.breaks(columns snowflake_migrate.key_column[], type regtype)
	RETURNS TABLE (object text, detail text, advice text)
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	narrow oid[] := ARRAY(SELECT snowflake_migrate.types_of(ARRAY['int2'::regtype::oid, 'int4'::regtype]));
	namespaces oid[] := ARRAY(SELECT DISTINCT r.relnamespace FROM unnest(columns) AS c JOIN pg_class AS r ON r.oid = c.relid);
	as_text constant boolean := type <> 'int8'::regtype;
	changed snowflake_migrate.key_column[] := ARRAY(SELECT c FROM unnest(columns) AS c WHERE c.role <> 'reference' OR c.new_type <> c.old_type);
	to_json constant text := '\m(to_json|to_jsonb|row_to_json|jsonb?_agg|jsonb?_build_\w+|jsonb?_object\w*|jsonb?_array\w*)\M';
	truncating constant text := '(lpad|rpad|left|right|substr|substring|to_char|overlay|smallint|integer|int[24]|character varying\(|character\(|varchar\()';
	functions oid[] := ARRAY(SELECT p.oid FROM pg_proc AS p WHERE p.pronamespace = ANY (namespaces) AND p.prokind IN ('f', 'p')
		AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'));
BEGIN
	-- columns that hold keys by their names, and arrays
	RETURN QUERY SELECT format('column %s.%I', c.oid::regclass, a.attname),
			CASE WHEN t.typcategory = 'A' THEN format('Its type is %s, and it may hold keys.', format_type(a.atttypid, a.atttypmod))
				ELSE format('Its type is %s, and its name suggests that it holds keys.', format_type(a.atttypid, a.atttypmod)) END,
			CASE WHEN a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int2[]'::regtype, 'int4[]'::regtype)
				THEN format('If so: widen => ''{%s.%s}''', replace(c.oid::regclass::text, '"', '\"'), replace(quote_ident(a.attname), '"', '\"'))
				ELSE 'If so: change its type.' END
		FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid JOIN pg_type AS t ON t.oid = a.atttypid
		WHERE c.relnamespace = ANY (namespaces) AND c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition
			AND a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0 AND a.atttypid = ANY (narrow)
			AND NOT EXISTS (SELECT FROM unnest(columns) AS k WHERE k.relid = c.oid AND k.attnum = a.attnum)
			AND (t.typcategory IN ('A', 'C') OR EXISTS (SELECT FROM snowflake_migrate.in_trees(changed) AS i JOIN pg_constraint AS f ON f.contype = 'f' AND f.confrelid = i.relid
					WHERE f.conrelid = c.oid AND f.conkey[array_position(f.confkey, i.attnum)] = a.attnum)
				OR a.attname ~ '(^|_)(ids?|refs?|by|actor|path|parent|owner|mentions|keys?)$'
				OR a.attname IN (SELECT k.name FROM unnest(columns) AS k))
		ORDER BY 1;

	RETURN QUERY SELECT format('type %s', t.oid::regtype), CASE t.typtype WHEN 'd' THEN 'It is a domain of an integer.' ELSE 'It contains integers.' END,
			'If it is for keys: base it on bigint or on the new type.'
		FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid
		WHERE t.oid = ANY (narrow) AND t.typnamespace = ANY (namespaces) AND (t.typtype = 'd' OR t.typtype = 'c' AND c.relkind = 'c' OR t.typtype = 'r')
		ORDER BY 1;

	RETURN QUERY SELECT f.kind || ' ' || f.name, format('It has integers or sequences in its %s.', f.places),
			CASE WHEN f.places LIKE '%sequence%' THEN 'Replace the sequence by snowflake_next() or INSERT ... RETURNING. ' ELSE '' END
			|| CASE WHEN f.places <> 'sequence' THEN 'Change integers that hold keys to bigint.' ELSE '' END
		FROM (SELECT CASE p.prokind WHEN 'p' THEN 'procedure' ELSE 'function' END AS kind, p.oid::regprocedure::text AS name, concat_ws(', ',
				CASE WHEN EXISTS (SELECT FROM unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargmodes) AS u (t, mode)
					WHERE t = ANY (narrow) AND coalesce(mode, 'i') NOT IN ('o', 't')) THEN 'arguments' END,
				CASE WHEN p.prorettype = ANY (narrow) OR EXISTS (SELECT FROM unnest(p.proallargtypes, p.proargmodes) AS u (t, mode)
					WHERE t = ANY (narrow) AND mode IN ('o', 'b', 't')) THEN 'result' END,
				CASE WHEN body ~* '\m(integer|int|int2|int4|smallint)\M' THEN 'body' END,
				CASE WHEN body ~* '\m(nextval|currval|lastval|setval)\M' THEN 'sequence' END) AS places
			FROM pg_proc AS p, coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) AS body
			WHERE p.oid = ANY (functions)) AS f
		WHERE f.places <> '' ORDER BY 1;

	-- expressions of the columns that truncate or convert
	RETURN QUERY
		WITH k AS (
			SELECT i.relid, i.attnum FROM snowflake_migrate.in_trees(changed) AS i
		), used AS (
			SELECT DISTINCT d.classid, d.objid FROM k JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum
		), texts (object, expression) AS (
			SELECT format('column %s.%I', a.attrelid::regclass, a.attname), pg_get_expr(e.adbin, e.adrelid)
				FROM used AS u JOIN pg_attrdef AS e ON u.classid = 'pg_attrdef'::regclass AND e.oid = u.objid
					JOIN pg_attribute AS a ON a.attrelid = e.adrelid AND a.attnum = e.adnum
				WHERE a.attgenerated <> '' AND NOT EXISTS (SELECT FROM pg_class AS r WHERE r.oid = a.attrelid AND r.relispartition)
		UNION ALL
			SELECT 'index ' || i.indexrelid::regclass, concat_ws(' ', pg_get_expr(i.indexprs, i.indrelid), pg_get_expr(i.indpred, i.indrelid))
				FROM used AS u JOIN pg_index AS i ON u.classid = 'pg_class'::regclass AND i.indexrelid = u.objid
		UNION ALL
			SELECT format('constraint %I of table %s', c.conname, c.conrelid::regclass), pg_get_constraintdef(c.oid)
				FROM used AS u JOIN pg_constraint AS c ON u.classid = 'pg_constraint'::regclass AND c.oid = u.objid WHERE c.contype = 'c'
		UNION ALL
			SELECT h.object, h.creates[1] FROM snowflake_migrate.hanging(changed) AS h WHERE h.kind IN ('view', 'rule', 'trigger', 'policy')
		)
		SELECT t.object, format('Its expression truncates or converts numbers: %s', substring(t.expression FROM '(?i).{0,30}\m' || truncating || '.{0,40}')),
				'Make sure that it accepts numbers of 19 digits.'
			FROM texts AS t WHERE t.expression ~* ('\m' || truncating) ORDER BY 1;

	IF as_text THEN
		RETURN QUERY SELECT f.object, 'In JSON, a snowflake is a string where there was a number.', 'Make sure that its readers accept a string.'
			FROM (SELECT CASE p.prokind WHEN 'p' THEN 'procedure' ELSE 'function' END || ' ' || p.oid::regprocedure
					FROM pg_proc AS p
					WHERE p.oid = ANY (functions) AND coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) ~* to_json
				UNION SELECT 'view ' || c.oid::regclass FROM pg_class AS c
					WHERE c.relnamespace = ANY (namespaces) AND c.relkind IN ('v', 'm') AND pg_get_viewdef(c.oid) ~* to_json) AS f (object)
			ORDER BY 1;
		RETURN QUERY SELECT 'clients that convert rows to JSON in the database',
				'In JSON, a snowflake is a string: row_to_json(), to_jsonb() and the like give "id": "42" where they gave "id": 42.', 'Look for them in the application.';
	ELSE
		RETURN QUERY SELECT 'clients in JavaScript', 'In JSON, a bigint is a number, which JavaScript rounds above 2^53.', 'Cast it to text there, or convert the keys to snowflakes.';
	END IF;

	RETURN QUERY SELECT format('publication %I', p.pubname), format('It publishes %s of these tables.', count(DISTINCT t.relid)),
			'Widen the columns of subscribers first. A change of type is not replicated, and a number that does not fit stops a subscription.'
		FROM pg_publication AS p, pg_get_publication_tables(p.pubname) AS t
		WHERE t.relid IN (SELECT i.relid FROM snowflake_migrate.in_trees(changed) AS i) GROUP BY p.pubname;
	RETURN QUERY SELECT format('table %s', s.srrelid::regclass), 'A subscription fills it.', 'Disable the subscription meanwhile, and make sure that the publisher sends keys of its own.'
		FROM pg_subscription_rel AS s WHERE s.srrelid IN (SELECT i.relid FROM snowflake_migrate.in_trees(changed) AS i);
END
$$;

-- Presets and widely copied recipes in which an ID dates from when it was minted
CREATE FUNCTION snowflake_migrate.layouts_for(id bigint, minted timestamptz DEFAULT pg_catalog.now())
	RETURNS TABLE (layout text, "time" timestamptz, origin text, is_current boolean)
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	l record;
BEGIN
	FOR l IN EXECUTE format($q$
			SELECT p.name AS spelled, 'a preset' AS origin, 1 AS place FROM %1$s.snowflake_layouts() AS p
			UNION ALL SELECT * FROM (VALUES
				('instagram epoch:1288834974657', 'a recipe in PL/pgSQL with << 23, << 10 and 1024', 2),
				('twitter epoch:0', 'LinkedIn', 2),
				('twitter epoch:1420070400000', 'Twitter''s with the epoch of Discord', 2),
				('twitter epoch:1577836800000', 'Twitter''s with the epoch 2020', 2),
				('time:45 sequence:18 epoch:0', 'the timestamps of TiDB', 2)) AS r$q$, snowflake_migrate.home()) LOOP
		BEGIN
			EXECUTE format('SELECT %s.snowflake_timestamp($1, $2)', snowflake_migrate.home()) INTO "time" USING id, l.spelled;
		EXCEPTION WHEN data_exception OR invalid_parameter_value THEN
			CONTINUE;
		END;
		CONTINUE WHEN "time" IS NULL OR "time" NOT BETWEEN minted - interval '1 year' AND minted + interval '1 minute';
		layout := l.spelled;
		origin := l.origin;
		EXECUTE format('SELECT a.layout = b.layout FROM %1$s.snowflake_layout() AS a, %1$s.snowflake_layout($1) AS b', snowflake_migrate.home())
			INTO is_current USING l.spelled;
		RETURN NEXT;
	END LOOP;
END
$$;
COMMENT ON FUNCTION snowflake_migrate.layouts_for(bigint, timestamptz) IS 'layouts in which an ID dates from when it was minted, or from the year before';

-- Changes nothing: temporary tables, on which the types are tried, are rolled back.
CREATE FUNCTION snowflake_migrate.plan(targets text[], type regtype DEFAULT 'pg_catalog.int8',
	widen text[] DEFAULT '{}', references_type regtype DEFAULT 'pg_catalog.int8')
	RETURNS TABLE (finding text, object text, detail text, advice text)
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	columns snowflake_migrate.key_column[] := ARRAY(SELECT k FROM snowflake_migrate.columns(targets, type, widen, references_type) AS k);
	home constant text := snowflake_migrate.home();
	changed snowflake_migrate.key_column[] := ARRAY(SELECT k FROM unnest(columns) AS k WHERE k.new_type <> k.old_type);
	filled snowflake_migrate.key_column[] := ARRAY(SELECT k FROM unnest(columns) AS k WHERE k.new_default IS NOT NULL);
	hanging snowflake_migrate.hanging[] := ARRAY(SELECT h FROM snowflake_migrate.hanging(changed) AS h);
	k snowflake_migrate.key_column;
	bytes bigint;
	smallest bigint;
	largest bigint;
	now_id bigint;
BEGIN
	FOR k IN SELECT c.* FROM unnest(columns) AS c
			ORDER BY array_position(ARRAY['key', 'reference', 'widened'], c.role), c.relid::regclass::text COLLATE "C", c.attnum LOOP
		finding := k.role;
		object := format('column %s.%I', k.relid::regclass, k.name);
		detail := CASE WHEN k.new_type <> k.old_type THEN format('%s becomes %s', snowflake_migrate.type_name(k.old_type), snowflake_migrate.type_name(k.new_type))
			ELSE format('stays %s', snowflake_migrate.type_name(k.old_type)) END
			|| CASE WHEN k.role <> 'key' THEN '.'
				WHEN k.new_default IS NOT NULL THEN '; new rows get snowflakes.'
				ELSE '; new rows get snowflakes already.' END;
		RETURN NEXT;
	END LOOP;

	-- what it takes
	RETURN QUERY SELECT 'rewrite', 'table ' || t.relid::regclass, format('%s, with its indexes.', pg_size_pretty(t.size)), NULL::text
		FROM (SELECT c.relid, (SELECT sum(pg_total_relation_size(m)) FROM snowflake_migrate.tree(c.relid) AS m)::bigint AS size
			FROM (SELECT DISTINCT u.relid FROM unnest(changed) AS u) AS c) AS t
		ORDER BY t.size DESC, t.relid::regclass::text;
	bytes := (SELECT sum(pg_total_relation_size(m.relid)) FROM (SELECT DISTINCT i.relid FROM snowflake_migrate.in_trees(changed) AS i) AS m);
	IF filled <> '{}' OR changed <> '{}' THEN
		finding := 'lock';
		object := format('%s tables', (SELECT count(DISTINCT c.relid) FROM unnest(changed || filled) AS c));
		detail := CASE WHEN bytes > 0 THEN format('Offline, all are locked at once, even for readers: %s are rewritten, which at 20 MB a second takes %s.',
				pg_size_pretty(bytes), date_trunc('second', bytes / 2e7 * interval '1 s') + interval '1 s')
			ELSE 'They are locked for a moment; nothing is rewritten.' END;
		advice := CASE WHEN bytes > 2e8 THEN 'Try it on a copy, or migrate online: snowflake_migrate.fill().' END;
		RETURN NEXT;
	END IF;
	RETURN QUERY SELECT CASE h.kind WHEN 'generated' THEN 'moved' ELSE 're-created' END, h.object,
			CASE h.kind WHEN 'generated' THEN 'It is dropped, and added again behind all other columns.'
				WHEN 'body' THEN 'Its body is replaced temporarily.'
				ELSE CASE WHEN h.late = '{}' THEN 'Without changes.' ELSE 'Without changes, and refreshed.' END END,
			CASE h.kind WHEN 'generated' THEN 'INSERT without a list of columns, COPY and SELECT * use another order of columns.' END
		FROM unnest(hanging) AS h WHERE h.kind <> 'obstacle' ORDER BY h.depth, h.object;
	RETURN QUERY SELECT DISTINCT d.finding, 'sequence ' || s::regclass, CASE WHEN d.finding = 'kept' THEN 'The column does not own it, or something else uses it.'
			WHEN a.attidentity = '' THEN 'Nothing else uses it.' WHEN a.attidentity = 'd' THEN 'It belongs to an identity column.'
			ELSE 'It is that of an identity; GENERATED ALWAYS goes with it, and rows can be inserted with any number.' END, NULL::text
		FROM unnest(filled) AS c JOIN pg_attribute AS a ON a.attrelid = c.relid AND a.attnum = c.attnum, snowflake_migrate.sequences(c.relid, c.attnum) AS s,
			LATERAL (SELECT CASE WHEN a.attidentity <> '' OR s IN (SELECT snowflake_migrate.droppable(filled)) THEN 'dropped' ELSE 'kept' END) AS d (finding)
		ORDER BY 1, 2;

	-- what is in the way
	RETURN QUERY SELECT 'blocks', o.* FROM snowflake_migrate.obstacles(columns) AS o;
	RETURN QUERY SELECT 'online', o.* FROM snowflake_migrate.online_obstacles(columns) AS o;
	RETURN QUERY SELECT 'online', 'function ' || p.oid::regprocedure, format('It inserts into %s without a list of columns, and converted columns move behind the others.', t.name),
			'Name the columns.'
		FROM (SELECT DISTINCT c.relid::regclass AS name, regexp_replace(r.relname, '(\W)', '\\\1', 'g') AS pattern FROM unnest(changed) AS c JOIN pg_class AS r ON r.oid = c.relid) AS t
			JOIN pg_proc AS p ON p.prosrc ~* ('\minsert\s+into\s+(\w+\.)?"?' || t.pattern || '"?\s+(select|values)\M')
		-- each pattern is compiled for each function, so these are found first
		WHERE p.oid = ANY (ARRAY(SELECT f.oid FROM pg_proc AS f
			WHERE f.pronamespace IN (SELECT u.relnamespace FROM unnest(columns) AS c JOIN pg_class AS u ON u.oid = c.relid))) ORDER BY 2;
	IF changed <> '{}' THEN
		RETURN QUERY VALUES ('online', 'statements that insert without a list of columns',
			'Converted columns move behind the others at the swap; COPY finds further columns from fill() to finish().', 'Name the columns, in clients as well.');
	END IF;
	EXECUTE format('SELECT %s.snowflake_lower_bound(now())::int8', home) INTO now_id;
	FOR k IN SELECT c.* FROM unnest(columns) AS c
			WHERE c.new_default IS NOT NULL OR c.new_type <> c.old_type AND c.new_type = snowflake_migrate.snowflake_type() LOOP
		CONTINUE WHEN NOT has_column_privilege(k.relid, k.attnum, 'SELECT');
		finding := 'blocks';
		object := format('column %s.%I', k.relid::regclass, k.name);
		EXECUTE format('SELECT min(%1$I)::int8, max(%1$I)::int8 FROM %2$s', k.name, k.relid::regclass) INTO smallest, largest;
		IF smallest < 0 AND k.new_type = snowflake_migrate.snowflake_type() THEN
			detail := format('Its smallest number, %s, is negative, and snowflakes are not.', smallest);
			advice := 'Make it a bigint, or correct the row.';
			RETURN NEXT;
		END IF;
		CONTINUE WHEN k.new_default IS NULL;
		IF largest >= now_id THEN
			detail := format('Its largest key, %s, is not below the next snowflake, which is about %s.', largest, now_id);
			advice := 'If these keys are snowflakes, use their layout and run snowflake_advance(), or correct the keys that are ahead of the clock.';
			RETURN NEXT;
		END IF;
		-- a serial does not count to 40 bits: these are IDs of another generator
		IF largest >= 1::bigint << 40 THEN
			RETURN QUERY SELECT 'layout', object,
					format('In layout ''%s'' (%s) its largest key dates from %s.', l.layout, l.origin, l."time"),
					CASE WHEN l.is_current THEN 'It is the layout of this server.' ELSE format('If that is right: snowflake.layout = ''%s''', l.layout) END
				FROM snowflake_migrate.layouts_for(largest) AS l ORDER BY abs(extract(epoch FROM l."time" - now()));
		END IF;
	END LOOP;

	RETURN QUERY SELECT 'breaks', b.* FROM snowflake_migrate.breaks(columns, type) AS b;
END
$$;
COMMENT ON FUNCTION snowflake_migrate.plan(text[], regtype, text[], regtype) IS
	'what a conversion would do, how long it takes, what prevents it, and what will break';

-- Conversion of tables in use
--
-- Each column gets a second one of the new type, which a trigger keeps and batches fill.  Indexes and
-- constraints are made for it while the tables are in use.  Then one short transaction swaps all of
-- them, and the trigger keeps the old columns, as far as numbers fit, until undo() or finish().
--
-- Each call looks in the catalogs for what has been done, so it goes on where the last one was
-- interrupted; the tables here hold what the catalogs do not tell.  There is one migration at a time:
-- concurrent calls wait for its row.
--
-- What these tables say becomes statements that run with the rights of whoever calls next.  So guard()
-- makes each row name the role that writes it, and take() refuses rows of another role.

CREATE TABLE snowflake_migrate.migration (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	state text NOT NULL DEFAULT 'filling' CHECK (state IN ('filling', 'filled', 'swapped', 'finishing')),
	targets text[] NOT NULL,
	type text NOT NULL,
	widen text[] NOT NULL,
	references_type text NOT NULL,
	started timestamptz NOT NULL DEFAULT pg_catalog.now(),
	swapped timestamptz,
	locked interval,		-- how long the swap has locked the tables
	written_by name NOT NULL DEFAULT current_user
);
COMMENT ON TABLE snowflake_migrate.migration IS 'the migration of tables in use that has begun and is not finished';
CREATE TABLE snowflake_migrate.shadow (
	table_name text NOT NULL,	-- with its schema, quoted
	column_name name NOT NULL,
	role text NOT NULL,
	new_type text,			-- NULL: only the default changes
	written_by name NOT NULL DEFAULT current_user,
	PRIMARY KEY (table_name, column_name)
);
COMMENT ON TABLE snowflake_migrate.shadow IS 'the columns of the migration';
CREATE TABLE snowflake_migrate.filling (
	table_name text PRIMARY KEY,	-- of a tree of tables, one that has rows
	next_block bigint NOT NULL DEFAULT 0,
	blocks bigint NOT NULL,
	rows bigint NOT NULL DEFAULT 0,
	started timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	updated timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	written_by name NOT NULL DEFAULT current_user
);
COMMENT ON TABLE snowflake_migrate.filling IS 'how far the new columns of each table are filled';
CREATE TABLE snowflake_migrate.step (
	kind text NOT NULL CHECK (kind IN ('undo', 'after')),	-- what undo() runs; what is left when the swap has committed
	place bigint PRIMARY KEY,
	statement text NOT NULL,
	written_by name NOT NULL DEFAULT current_user
);
COMMENT ON TABLE snowflake_migrate.step IS 'statements that the swap has left to be run later';

-- A superuser may write rows in another's name, as a restore does.
CREATE FUNCTION snowflake_migrate.guard() RETURNS trigger
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF (TG_OP <> 'INSERT' AND OLD.written_by <> current_user OR TG_OP <> 'DELETE' AND NEW.written_by <> current_user)
		AND NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user) THEN
		RAISE EXCEPTION 'rows of table % must name the role that writes them', TG_RELID::regclass USING ERRCODE = 'insufficient_privilege';
	END IF;
	RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END
$$;
DO $$
DECLARE
	name pg_catalog.text;
BEGIN
	FOREACH name IN ARRAY '{migration,shadow,filling,step}'::pg_catalog.text[] LOOP
		name := pg_catalog.format('snowflake_migrate.%I', name);
		PERFORM pg_catalog.pg_extension_config_dump(name::pg_catalog.regclass, '');
		EXECUTE pg_catalog.format('GRANT SELECT ON %s TO PUBLIC', name);
		EXECUTE pg_catalog.format('GRANT INSERT, UPDATE, DELETE ON %s TO %s WITH GRANT OPTION', name, '@extowner@');
		EXECUTE pg_catalog.format('CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION snowflake_migrate.guard()', name);
		-- roles may be granted session_replication_role
		EXECUTE pg_catalog.format('ALTER TABLE %s ENABLE ALWAYS TRIGGER guard', name);
	END LOOP;
END $$;

CREATE VIEW snowflake_migrate.progress AS
	SELECT m.state, f.table_name, f.rows,
			pg_catalog.round(100.0 * f.next_block / greatest(f.blocks, 1), 1) AS percent,
			CASE WHEN f.next_block BETWEEN 1 AND f.blocks - 1
				THEN pg_catalog.date_trunc('second', (f.updated - f.started) * ((f.blocks - f.next_block)::float8 / f.next_block)) END AS time_left
		FROM snowflake_migrate.filling AS f, snowflake_migrate.migration AS m;
COMMENT ON VIEW snowflake_migrate.progress IS 'how far the migration of tables in use has got';
GRANT SELECT ON snowflake_migrate.progress TO PUBLIC;

-- The name of what replaces a column, index or constraint until the swap.  PostgreSQL cuts names at 63 bytes.
CREATE FUNCTION snowflake_migrate.new_name(old name, prefix text DEFAULT 'snowflake_new_') RETURNS name
	LANGUAGE sql IMMUTABLE
RETURN (prefix || CASE WHEN octet_length($1::text) <= 48 THEN $1::text ELSE left($1::text, 10) || '_' || md5($1::text) END)::name;

-- The name of what was replaced, after the swap
CREATE FUNCTION snowflake_migrate.old_name(name name) RETURNS name
	LANGUAGE sql IMMUTABLE
RETURN snowflake_migrate.new_name($1, 'snowflake_old_');

-- The trigger that keeps the other columns of a table, and its function.  It sorts behind all ASCII
-- letters, so it fires last.
CREATE FUNCTION snowflake_migrate.sync_name(relation name) RETURNS name
	LANGUAGE sql IMMUTABLE
RETURN snowflake_migrate.new_name($1, '~snowflake_new_');

-- A column of the migration, in each table of its tree, and what the swap changes
CREATE TYPE snowflake_migrate.shadow_column AS (
	top oid,			-- of a tree of tables, the topmost one
	relid oid,
	attnum smallint,
	name name,
	new_name name,			-- of the second column until the swap
	old_name name,			-- of the first one after it
	role text,
	old_type text,
	new_type text,			-- NULL: there is no second column, only the default changes
	identity "char",
	old_default text,
	is_not_null boolean,
	not_null name			-- that constraint, which has a name from version 18 on
);

-- The columns that get a second one; with_defaults: also those whose default changes
CREATE FUNCTION snowflake_migrate.shadows(with_defaults boolean DEFAULT false) RETURNS SETOF snowflake_migrate.shadow_column
	LANGUAGE sql STABLE ROWS 100
BEGIN ATOMIC
	SELECT s.table_name::regclass::oid, a.attrelid, a.attnum, a.attname, snowflake_migrate.new_name(a.attname), snowflake_migrate.old_name(a.attname),
			s.role, format_type(a.atttypid, NULL), s.new_type, a.attidentity, pg_get_expr(d.adbin, d.adrelid), a.attnotnull, n.conname
		FROM snowflake_migrate.shadow AS s, snowflake_migrate.tree(s.table_name::regclass) AS m
			JOIN pg_attribute AS a ON a.attrelid = m
			LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
			LEFT JOIN pg_constraint AS n ON n.conrelid = a.attrelid AND n.contype = 'n' AND n.conkey = ARRAY[a.attnum]
		WHERE a.attname = s.column_name AND (s.new_type IS NOT NULL OR $1)
		ORDER BY 1, 2, 3;
END;

-- The same columns, as for a conversion under one lock
CREATE FUNCTION snowflake_migrate.shadow_keys() RETURNS snowflake_migrate.key_column[]
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT coalesce(array_agg((s.relid, s.attnum, s.name, s.role, NULL, NULL, NULL)::snowflake_migrate.key_column), '{}')
		FROM snowflake_migrate.shadows() AS s WHERE s.relid = s.top
$$;

-- What speaks against doing it in use
CREATE FUNCTION snowflake_migrate.online_obstacles(columns snowflake_migrate.key_column[]) RETURNS TABLE (object text, detail text, advice text)
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	changed snowflake_migrate.key_column[] := ARRAY(SELECT c FROM unnest(columns) AS c WHERE c.new_type <> c.old_type);
BEGIN
	RETURN QUERY SELECT format('column %s.%I', d.objid::regclass, a.attname), 'It is generated from a column that is converted.',
			format('ALTER TABLE %s ALTER COLUMN %I DROP EXPRESSION, and have a trigger set it; or convert offline.', d.objid::regclass, a.attname)
		FROM snowflake_migrate.dependents(changed) AS d JOIN pg_attribute AS a ON a.attrelid = d.objid AND a.attnum = d.objsubid
		WHERE d.kind = 'generated';
	RETURN QUERY SELECT DISTINCT format('index %s', i.indexrelid::regclass), 'It is an index of a partitioned table on a column that is converted.', 'Convert offline.'
		FROM snowflake_migrate.in_trees(changed) AS k JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum
			JOIN pg_index AS i ON d.classid IN ('pg_class'::regclass, 'pg_constraint'::regclass) AND i.indrelid = k.relid
				AND (k.attnum = ANY (i.indkey) OR i.indexrelid = d.objid)
			JOIN pg_class AS c ON c.oid = k.relid WHERE c.relkind = 'p';
	RETURN QUERY SELECT DISTINCT format('foreign table %s', c.oid::regclass), 'The table that it stands for has no second column.', 'Convert offline, when that table is.'
		FROM snowflake_migrate.in_trees(changed) AS k JOIN pg_class AS c ON c.oid = k.relid AND c.relkind = 'f';
	-- the caller creates indexes and functions of triggers, and build() temporary tables
	RETURN QUERY SELECT DISTINCT format('schema %I', n.nspname), format('Role "%s" may not create anything in it.', r.rolname), format('GRANT CREATE ON SCHEMA %I TO %I;', n.nspname, r.rolname)
		FROM snowflake_migrate.in_trees(changed) AS k JOIN pg_class AS c ON c.oid = k.relid JOIN pg_namespace AS n ON n.oid = c.relnamespace
			JOIN pg_roles AS r ON r.rolname = current_user OR r.oid = c.relowner
		WHERE NOT has_schema_privilege(r.oid, n.oid, 'CREATE') AND NOT (SELECT u.rolsuper FROM pg_roles AS u WHERE u.rolname = current_user);
	IF NOT has_database_privilege(current_database(), 'TEMPORARY') THEN
		RETURN QUERY SELECT format('database %I', current_database()), 'You may not create temporary tables in it.',
			format('GRANT TEMPORARY ON DATABASE %I TO %I;', current_database(), current_user);
	END IF;
	-- these triggers and rules apply in whatever role the session has
	RETURN QUERY SELECT DISTINCT format('%s %I on table %s', f.kind, f.name, f.relid::regclass),
			'It is enabled for replicated rows, so it would also apply to each row that is filled.',
			format('Disable it, or enable it as %ss are by default, until the tables are filled.', f.kind)
		FROM (SELECT 'trigger' AS kind, t.tgname AS name, t.tgrelid AS relid FROM pg_trigger AS t
				WHERE NOT t.tgisinternal AND t.tgenabled IN ('A', 'R') AND t.tgtype & 16 <> 0 AND t.tgattr::text = ''
					AND t.tgname NOT LIKE '~snowflake\_new\_%'
			UNION ALL SELECT 'rule', r.rulename, r.ev_class FROM pg_rewrite AS r
				WHERE r.ev_type = '2' AND r.ev_enabled IN ('A', 'R')) AS f
		WHERE f.relid IN (SELECT k.relid FROM snowflake_migrate.in_trees(changed) AS k);
	RETURN QUERY SELECT DISTINCT f.* FROM snowflake_migrate.in_trees(changed) AS k, snowflake_migrate.firing(k.relid) AS f;
	RETURN QUERY SELECT DISTINCT format('column %s.%I', a.attrelid::regclass, a.attname), 'The migration needs this name for a column of its own.', 'Rename it.'
		FROM unnest(changed) AS c JOIN pg_attribute AS a ON a.attrelid = c.relid
		WHERE a.attname IN (snowflake_migrate.new_name(c.name), snowflake_migrate.old_name(c.name)) AND NOT EXISTS (SELECT FROM snowflake_migrate.migration);
END
$$;

-- Rows are filled as replicated ones are: no trigger of the application fires, and no foreign key is checked.
CREATE FUNCTION snowflake_migrate.firing(relation oid) RETURNS TABLE (object text, detail text, advice text)
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('trigger %I on table %s', t.tgname, t.tgrelid::regclass), 'It would fire for each row that is filled.',
			format('GRANT SET ON PARAMETER session_replication_role TO %I;', current_user)
		FROM pg_trigger AS t
		WHERE t.tgrelid = relation AND NOT t.tgisinternal AND t.tgenabled = 'O' AND t.tgtype & 16 <> 0
			AND NOT has_parameter_privilege('session_replication_role', 'SET')
$$;

-- Let no trigger of a table fire in this transaction
CREATE FUNCTION snowflake_migrate.fill_quietly(relation oid) RETURNS void
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	f record;
BEGIN
	FOR f IN SELECT * FROM snowflake_migrate.firing(relation) LOOP
		RAISE EXCEPTION '% prevents filling the table', f.object USING ERRCODE = 'insufficient_privilege', DETAIL = f.detail, HINT = f.advice;
	END LOOP;
	IF has_parameter_privilege('session_replication_role', 'SET') THEN
		PERFORM set_config('session_replication_role', 'replica', true);
	END IF;
	PERFORM set_config('row_security', 'off', true);
END
$$;

-- How many blocks of a table have so many rows
CREATE FUNCTION snowflake_migrate.blocks_of(relation oid, rows integer) RETURNS bigint
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT greatest(1, rows / greatest(1, c.reltuples / greatest(1, c.relpages)))::bigint FROM pg_class AS c WHERE c.oid = relation
$$;

-- The migration, if it has one of these states, locked against other calls
CREATE FUNCTION snowflake_migrate.take(VARIADIC states text[]) RETURNS snowflake_migrate.migration
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	m snowflake_migrate.migration;
	writer name;
BEGIN
	LOCK TABLE snowflake_migrate.migration, snowflake_migrate.shadow, snowflake_migrate.filling, snowflake_migrate.step IN SHARE ROW EXCLUSIVE MODE;
	SELECT w.written_by INTO writer
		FROM (SELECT t.written_by FROM snowflake_migrate.migration AS t UNION SELECT t.written_by FROM snowflake_migrate.shadow AS t
			UNION SELECT t.written_by FROM snowflake_migrate.filling AS t UNION SELECT t.written_by FROM snowflake_migrate.step AS t) AS w
		WHERE w.written_by <> current_user ORDER BY 1 LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'the migration belongs to role "%"', writer
			USING ERRCODE = 'insufficient_privilege', DETAIL = 'The next call would run statements that this role recorded.',
				HINT = format('SET ROLE %I first, or delete its rows from the tables of schema snowflake_migrate.', writer);
	END IF;
	SELECT * INTO m FROM snowflake_migrate.migration;
	IF m.state IS NULL AND states <> '{}' THEN
		RAISE EXCEPTION 'no migration has begun'
			USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'CALL snowflake_migrate.fill(...) starts one.';
	END IF;
	IF m.state <> ALL (states) AND states <> '{}' THEN
		RAISE EXCEPTION 'the migration is %', m.state
			USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = format('The call needs one that is %s.', array_to_string(states, ' or ')),
				HINT = CASE m.state WHEN 'filling' THEN 'CALL snowflake_migrate.fill(...) continues it.'
					WHEN 'filled' THEN 'CALL snowflake_migrate.swap() continues it; undo() reverts it.'
					ELSE 'CALL snowflake_migrate.finish() completes it; undo() reverts it.' END;
	END IF;
	RETURN m;
END
$$;

-- Begin, or go on with what has begun
CREATE FUNCTION snowflake_migrate.begin_filling(targets text[], type regtype, widen text[], references_type regtype) RETURNS void
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	columns snowflake_migrate.key_column[];
	m snowflake_migrate.migration;
	o record;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'a migration must run at isolation level READ COMMITTED' USING ERRCODE = 'object_not_in_prerequisite_state';
	END IF;
	m := snowflake_migrate.take(VARIADIC '{}');
	IF m.state IS NOT NULL THEN
		IF (m.targets, m.type, m.widen, m.references_type) IS DISTINCT FROM (targets, type::text, widen, references_type::text) THEN
			RAISE EXCEPTION 'another migration has begun'
				USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = format('It converts %s to %s.', m.targets, m.type),
					HINT = 'Continue it, or end it with undo() or finish().';
		END IF;
		PERFORM snowflake_migrate.take('filling', 'filled');
		RETURN;
	END IF;
	columns := ARRAY(SELECT c FROM snowflake_migrate.columns(targets, type, widen, references_type) AS c);
	FOR o IN SELECT * FROM snowflake_migrate.obstacles(columns)
			UNION ALL SELECT * FROM snowflake_migrate.online_obstacles(columns) LOOP
		RAISE EXCEPTION '% prevents the conversion', o.object
			USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = o.detail, HINT = o.advice;
	END LOOP;
	INSERT INTO snowflake_migrate.migration (targets, type, widen, references_type) VALUES (targets, type, widen, references_type);
	INSERT INTO snowflake_migrate.shadow
		SELECT c.relid::regclass::text, c.name, c.role, CASE WHEN c.new_type <> c.old_type THEN snowflake_migrate.type_name(c.new_type) END
			FROM unnest(columns) AS c
			WHERE c.new_type <> c.old_type
				OR c.new_default IS NOT NULL;
END
$$;

-- Give one more table its new columns and the trigger that keeps them.  Returns NULL when all have them,
-- otherwise how long to wait.
CREATE FUNCTION snowflake_migrate.add_columns() RETURNS float8
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	t record;
	sync text;
BEGIN
	PERFORM snowflake_migrate.take('filling', 'filled');
	SELECT s.top, n.nspname, c.relname, c.relowner,
			string_agg(format('ADD COLUMN %I %s', s.new_name, s.new_type), ', ' ORDER BY s.attnum) AS added,
			string_agg(format(E'\tNEW.%I := NEW.%I;\n', s.new_name, s.name), '' ORDER BY s.attnum) AS kept,
			string_agg(format('NEW.%I IS DISTINCT FROM NEW.%I::%s', s.new_name, s.name, s.new_type), ' OR ' ORDER BY s.attnum) AS differs
		INTO t
		FROM snowflake_migrate.shadows() AS s JOIN pg_class AS c ON c.oid = s.top JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE s.relid = s.top AND NOT EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = s.top AND a.attname = s.new_name)
		GROUP BY s.top, n.nspname, c.relname, c.relowner ORDER BY s.top LIMIT 1;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	BEGIN
		PERFORM set_config('lock_timeout', '200ms', true);
		EXECUTE format('ALTER TABLE %s %s', t.top::regclass, t.added);
		-- partitions have the trigger from their parent, children do not; replicated rows need it, too
		sync := format('%I.%I()', t.nspname, snowflake_migrate.sync_name(t.relname));
		PERFORM snowflake_migrate.run(ARRAY[snowflake_migrate.sync_function(t.top, t.kept),
				format('ALTER FUNCTION %s OWNER TO %s', sync, snowflake_migrate.role_name(t.relowner)),
				format('COMMENT ON FUNCTION %s IS %L', sync, 'keeps the other columns of a migration of snowflake_migrate')]
			|| ARRAY(SELECT s FROM snowflake_migrate.tree(t.top) AS m JOIN pg_class AS c ON c.oid = m, unnest(ARRAY[
					format('CREATE TRIGGER %I BEFORE INSERT OR UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION %s',
						snowflake_migrate.sync_name(t.relname), m::regclass, t.differs, sync),
					format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', m::regclass, snowflake_migrate.sync_name(t.relname))]) AS s
				WHERE NOT c.relispartition OR m = t.top));
		INSERT INTO snowflake_migrate.filling (table_name, blocks)
			SELECT r::regclass::text, pg_relation_size(r) / current_setting('block_size')::bigint + 1
				FROM snowflake_migrate.tree(t.top) AS r JOIN pg_class AS c ON c.oid = r WHERE c.relkind = 'r'
			ON CONFLICT (table_name) DO UPDATE SET blocks = excluded.blocks, next_block = 0;
	EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
		RETURN 0.5 + random();
	END;
	RETURN 0;
END
$$;

-- Run statements, one after the other
CREATE FUNCTION snowflake_migrate.run(statements text[]) RETURNS void
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	statement text;
BEGIN
	FOREACH statement IN ARRAY statements LOOP
		EXECUTE statement;
	END LOOP;
END
$$;

-- The function that keeps other columns.  The swap replaces it, and leaves its trigger, in which columns have numbers.
CREATE FUNCTION snowflake_migrate.sync_function(relation oid, kept text) RETURNS text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('CREATE OR REPLACE FUNCTION %I.%I() RETURNS trigger LANGUAGE plpgsql AS %L', n.nspname, snowflake_migrate.sync_name(c.relname),
			format(E'BEGIN\n%s\tRETURN NEW;\nEND', kept))
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = relation
$$;

-- Fill one batch: rows of some of the blocks that were there when the trigger came.  A row that somebody
-- else has locked is not waited for, so that no deadlock is possible, but tried again.  No foreign key has
-- to be checked: the new column has none yet, and the old one does not change.
CREATE FUNCTION snowflake_migrate.fill_batch(batch integer, load float8, max_lag interval) RETURNS float8
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	f snowflake_migrate.filling;
	start constant timestamptz := clock_timestamp();
	last_block bigint;
	place text;
	needs text;
	sets text;
	filled bigint;
	left_out bigint;
BEGIN
	IF EXISTS (SELECT FROM pg_stat_replication AS r WHERE r.replay_lag > max_lag) THEN
		RETURN 1;
	END IF;
	PERFORM snowflake_migrate.take('filling', 'filled');
	SELECT * INTO f FROM snowflake_migrate.filling AS g WHERE g.next_block < g.blocks ORDER BY g.next_block = 0, g.table_name LIMIT 1;
	IF NOT FOUND THEN
		UPDATE snowflake_migrate.migration SET state = 'filled' WHERE state = 'filling';
		RETURN NULL;
	END IF;
	PERFORM snowflake_migrate.fill_quietly(f.table_name::regclass);
	last_block := least(f.blocks, f.next_block + snowflake_migrate.blocks_of(f.table_name::regclass, batch));
	SELECT string_agg(format('t.%I IS DISTINCT FROM t.%I::%s', s.new_name, s.name, s.new_type), ' OR '), string_agg(format('%I = t.%I', s.new_name, s.name), ', ')
		INTO needs, sets FROM snowflake_migrate.shadows() AS s WHERE s.relid = f.table_name::regclass;
	place := format('t.ctid >= %L AND t.ctid < %L AND (%s)', format('(%s,0)', f.next_block), format('(%s,0)', last_block), needs);
	EXECUTE format('WITH rows AS MATERIALIZED (SELECT t.ctid FROM ONLY %1$s AS t WHERE %2$s FOR NO KEY UPDATE SKIP LOCKED)
			UPDATE ONLY %1$s AS t SET %3$s FROM rows WHERE t.ctid = rows.ctid', f.table_name, place, sets);
	GET DIAGNOSTICS filled = ROW_COUNT;
	EXECUTE format('SELECT count(*) FROM ONLY %s AS t WHERE %s', f.table_name, place) INTO left_out;
	UPDATE snowflake_migrate.filling AS g SET rows = g.rows + filled, updated = clock_timestamp(),
			started = CASE WHEN g.next_block = 0 THEN start ELSE g.started END,
			next_block = CASE WHEN left_out = 0 THEN last_block ELSE g.next_block END
		WHERE g.table_name = f.table_name;
	IF left_out > 0 THEN
		RETURN 0.2;
	END IF;
	RETURN extract(epoch FROM clock_timestamp() - start) * (1 - load) / load;
END
$$;

-- Call a function, each time in a transaction of its own, until it returns NULL, with pauses of as many
-- seconds as it returns.
CREATE PROCEDURE snowflake_migrate.repeat(statement text)
	LANGUAGE plpgsql
AS $$
DECLARE
	pause pg_catalog.float8;
BEGIN
	LOOP
		EXECUTE statement INTO pause;
		COMMIT;
		EXIT WHEN pause IS NULL;
		PERFORM pg_catalog.pg_sleep(pause);
	END LOOP;
END
$$;

-- Run a statement that waits at most 200 ms for a lock, since others wait behind it.  A foreign key locks two
-- tables, and a transaction may lock them the other way round: a wait that ends before deadlock_timeout, 1 s
-- by default, makes no deadlock, which could end that transaction.  Returns NULL when the statement has run,
-- otherwise how many seconds to pause.
CREATE FUNCTION snowflake_migrate.run_briefly(statement text) RETURNS float8
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM set_config('lock_timeout', '200ms', true);
	EXECUTE statement;
	RETURN NULL;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
	RETURN 0.5 + random();
END
$$;

-- ... until it has its locks
CREATE PROCEDURE snowflake_migrate.retry(statement text)
	LANGUAGE plpgsql
AS $$
BEGIN
	CALL snowflake_migrate.repeat(pg_catalog.format('SELECT snowflake_migrate.run_briefly(%L)', statement));
END
$$;
COMMENT ON PROCEDURE snowflake_migrate.retry(text) IS 'run a statement that waits at most 200 ms for its locks, again until it gets them; build() returns calls of it';

-- Commits for each table and each batch.  It waits for the lock under which a table gets its columns for at
-- most 200 ms, and otherwise only locks the rows of a batch.
CREATE PROCEDURE snowflake_migrate.fill(targets text[], type regtype DEFAULT 'pg_catalog.int8', widen text[] DEFAULT '{}',
	references_type regtype DEFAULT 'pg_catalog.int8', batch integer DEFAULT 5000, load float8 DEFAULT 0.5, max_lag interval DEFAULT '10 s')
	LANGUAGE plpgsql
AS $$
BEGIN
	PERFORM snowflake_migrate.begin_filling(targets, type, widen, references_type);
	COMMIT;
	CALL snowflake_migrate.repeat('SELECT snowflake_migrate.add_columns()');
	CALL snowflake_migrate.repeat(pg_catalog.format('SELECT snowflake_migrate.fill_batch(%L, %L, %L)', batch, load, max_lag));
END
$$;
COMMENT ON PROCEDURE snowflake_migrate.fill(text[], regtype, text[], regtype, integer, float8, interval) IS
	'give tables in use new columns, and fill them in batches; the same call goes on after an interruption';

-- The indexes, also of constraints unless they exclude, checks and extended statistics with a column that
-- changes.  tail is what follows USING, or the name.
CREATE FUNCTION snowflake_migrate.built_objects(relation oid)
	RETURNS TABLE (kind text, oid oid, name name, tail text, is_unique boolean, constraint_id oid, is_valid boolean, new_name name, is_built boolean)
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	WITH k AS (
		SELECT s.attnum FROM snowflake_migrate.shadows() AS s WHERE s.relid = relation
	), used AS (
		SELECT DISTINCT d.classid, d.objid FROM k JOIN pg_depend AS d
			ON d.refclassid = 'pg_class'::regclass AND d.refobjid = relation AND d.refobjsubid = k.attnum
	)
	SELECT 'index', c.oid, c.relname, snowflake_migrate.index_tail(c.oid), i.indisunique, coalesce(o.oid, 0), i.indisvalid, m.name,
			EXISTS (SELECT FROM pg_class AS n JOIN pg_index AS x ON x.indexrelid = n.oid
				WHERE n.relnamespace = c.relnamespace AND n.relname = m.name AND x.indisvalid)
		FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
			LEFT JOIN pg_constraint AS o ON o.conindid = i.indexrelid AND o.contype IN ('p', 'u', 'x'), snowflake_migrate.new_name(c.relname) AS m (name)
		WHERE i.indrelid = relation AND c.relkind = 'i' AND NOT i.indisexclusion
			AND (EXISTS (SELECT FROM k WHERE k.attnum = ANY (i.indkey)) OR EXISTS (SELECT FROM used AS u WHERE u.classid = 'pg_class'::regclass AND u.objid = i.indexrelid))
	UNION ALL
	SELECT 'check', c.oid, c.conname, pg_get_constraintdef(c.oid), false, c.oid, c.convalidated, m.name,
			EXISTS (SELECT FROM pg_constraint AS n WHERE n.conrelid = relation AND n.conname = m.name AND (n.convalidated OR NOT c.convalidated))
		FROM pg_constraint AS c, snowflake_migrate.new_name(c.conname) AS m (name)
		WHERE c.conrelid = relation AND c.contype = 'c' AND c.conislocal AND EXISTS (SELECT FROM k WHERE k.attnum = ANY (c.conkey))
	UNION ALL
	SELECT 'statistics', e.oid, e.stxname, snowflake_migrate.statistics_tail(e.oid, relation), false, 0, true, m.name,
			EXISTS (SELECT FROM pg_statistic_ext AS n WHERE n.stxnamespace = e.stxnamespace AND n.stxname = m.name)
		FROM pg_statistic_ext AS e, snowflake_migrate.new_name(e.stxname) AS m (name)
		WHERE e.stxrelid = relation AND EXISTS (SELECT FROM used AS u WHERE u.classid = 'pg_statistic_ext'::regclass AND u.objid = e.oid)
$$;

-- What follows the name in extended statistics, without their table
CREATE FUNCTION snowflake_migrate.statistics_tail(statistics_id oid, relation oid) RETURNS text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT left(substr(d.definition, length(d.head) + 1), -length(' FROM ' || relation::regclass::text))
		FROM (SELECT pg_get_statisticsobjdef(e.oid) AS definition, format('CREATE STATISTICS %I.%I', CASE n.oid WHEN pg_my_temp_schema() THEN 'pg_temp' ELSE n.nspname END, e.stxname) AS head
			FROM pg_statistic_ext AS e JOIN pg_namespace AS n ON n.oid = e.stxnamespace WHERE e.oid = statistics_id) AS d
$$;

-- Definitions for the new columns, of what is not built: PostgreSQL prints them from an empty copy of the
-- table, whose columns get the new types and names.
CREATE FUNCTION snowflake_migrate.for_new_columns(relation oid) RETURNS TABLE (kind text, name name, definition text, is_valid boolean)
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET client_min_messages = warning
AS $$
DECLARE
	copy oid;
	s record;
BEGIN
	IF NOT EXISTS (SELECT FROM snowflake_migrate.built_objects(relation) AS o WHERE NOT o.is_built) THEN
		RETURN;
	END IF;
	EXECUTE format('CREATE TEMPORARY TABLE snowflake_migrate_copy (LIKE %s) ON COMMIT DROP', relation::regclass);
	copy := to_regclass('pg_temp.snowflake_migrate_copy');
	SELECT string_agg(format('DROP COLUMN IF EXISTS %I, DROP COLUMN IF EXISTS %I', h.new_name, h.old_name), ', ') AS drops,
			string_agg(format('ALTER COLUMN %I TYPE %s', h.name, h.new_type), ', ') AS types,
			array_agg(format('ALTER TABLE pg_temp.snowflake_migrate_copy RENAME COLUMN %I TO %I', h.name, h.new_name)) AS renames
		INTO s FROM snowflake_migrate.shadows() AS h WHERE h.relid = relation;
	EXECUTE 'ALTER TABLE pg_temp.snowflake_migrate_copy ' || s.drops;
	PERFORM snowflake_migrate.run(ARRAY(SELECT format(CASE o.kind
				WHEN 'index' THEN 'CREATE %2$s INDEX %1$I ON pg_temp.snowflake_migrate_copy USING %3$s'
				WHEN 'check' THEN 'ALTER TABLE pg_temp.snowflake_migrate_copy ADD CONSTRAINT %1$I %3$s'
				ELSE 'CREATE STATISTICS pg_temp.%1$I%3$s FROM pg_temp.snowflake_migrate_copy' END,
			'o' || o.oid, CASE WHEN o.is_unique THEN 'UNIQUE' END, o.tail)
		FROM snowflake_migrate.built_objects(relation) AS o WHERE NOT o.is_built));
	EXECUTE 'ALTER TABLE pg_temp.snowflake_migrate_copy ' || s.types;
	PERFORM snowflake_migrate.run(s.renames);
	RETURN QUERY
		WITH printed (kind, oid, tail) AS (
			SELECT 'index', substr(c.relname, 2)::oid, snowflake_migrate.index_tail(c.oid) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indrelid = copy
			UNION ALL SELECT 'check', substr(c.conname, 2)::oid, pg_get_constraintdef(c.oid) FROM pg_constraint AS c WHERE c.conrelid = copy AND c.contype = 'c'
			UNION ALL SELECT 'statistics', substr(e.stxname, 2)::oid, snowflake_migrate.statistics_tail(e.oid, copy) FROM pg_statistic_ext AS e WHERE e.stxrelid = copy
		)
		SELECT o.kind, o.new_name, CASE o.kind
				WHEN 'index' THEN format('CREATE %sINDEX CONCURRENTLY %I ON %s USING %s', CASE WHEN o.is_unique THEN 'UNIQUE ' END, o.new_name, relation::regclass, p.tail)
				WHEN 'check' THEN p.tail
				ELSE format('CREATE STATISTICS %I.%I%s FROM %s', n.nspname, o.new_name, p.tail, relation::regclass) END, o.is_valid
			FROM snowflake_migrate.built_objects(relation) AS o JOIN printed AS p ON p.kind = o.kind AND p.oid = o.oid
				JOIN pg_class AS c ON c.oid = relation JOIN pg_namespace AS n ON n.oid = c.relnamespace;
	DROP TABLE pg_temp.snowflake_migrate_copy;
END
$$;

-- Columns of a foreign key, as a list; new: where a column has a second one, that
CREATE FUNCTION snowflake_migrate.column_list(relation oid, attnums smallint[], new boolean) RETURNS text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT string_agg(quote_ident(coalesce(CASE WHEN new THEN s.new_name END, a.attname)), ', ' ORDER BY k.place)
		FROM unnest(attnums) WITH ORDINALITY AS k (num, place) JOIN pg_attribute AS a ON a.attrelid = relation AND a.attnum = k.num
			LEFT JOIN snowflake_migrate.shadows() AS s ON s.relid = relation AND s.attnum = k.num
$$;

-- Foreign keys that change.  before: made before the swap.  The swap adds the others without a check of the
-- rows, which follows: if a SET DEFAULT would find the new column too early, or the swap makes the key that
-- is referenced.  It also adds that of a partitioned table, whose partitions have it by then (is_inherited),
-- so that it reads no rows.
CREATE FUNCTION snowflake_migrate.changed_foreign_keys()
	RETURNS TABLE (oid oid, relid oid, referenced oid, name name, definition text, is_valid boolean, before boolean, is_inherited boolean)
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT f.oid, f.conrelid, f.confrelid, f.conname, pg_get_constraintdef(f.oid), f.convalidated, b.before, f.conparentid <> 0
		FROM snowflake_migrate.foreign_keys(snowflake_migrate.shadow_keys()) AS f JOIN pg_class AS r ON r.oid = f.conrelid LEFT JOIN pg_constraint AS p ON p.oid = f.conparentid,
			LATERAL (SELECT r.relkind <> 'p' AND f.confdeltype <> 'd' AND f.confupdtype <> 'd' AND (SELECT count(*) FROM unnest(f.confdelsetcols)) = 0
				AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indexrelid = f.conindid AND i.indisexclusion)) AS b (before)
		WHERE f.conparentid = 0 OR p.confrelid = f.confrelid AND b.before ORDER BY f.conparentid = 0, f.oid
$$;

-- One of them for the new columns: what follows its name
CREATE FUNCTION snowflake_migrate.new_foreign_key(constraint_id oid) RETURNS text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT format('FOREIGN KEY (%s) REFERENCES %s (%s)%s', snowflake_migrate.column_list(f.conrelid, f.conkey, true),
			f.confrelid::regclass, snowflake_migrate.column_list(f.confrelid, f.confkey, true),
			replace(substr(pg_get_constraintdef(f.oid), length(format('FOREIGN KEY (%s) REFERENCES %s(%s)', snowflake_migrate.column_list(f.conrelid, f.conkey, false),
				f.confrelid::regclass, snowflake_migrate.column_list(f.confrelid, f.confkey, false))) + 1), ' NOT VALID', ''))
		FROM pg_constraint AS f WHERE f.oid = constraint_id
$$;

-- Statements that make what the new columns lack.  Each runs by itself, with \gexec: CREATE INDEX
-- CONCURRENTLY runs in no function.
CREATE FUNCTION snowflake_migrate.build() RETURNS SETOF text
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	b record;
BEGIN
	PERFORM snowflake_migrate.take('filled');
	FOR b IN
		WITH wanted AS MATERIALIZED (
			SELECT s.relid, d.* FROM (SELECT DISTINCT h.relid FROM snowflake_migrate.shadows() AS h) AS s JOIN pg_class AS c ON c.oid = s.relid AND c.relkind = 'r',
				snowflake_migrate.for_new_columns(s.relid) AS d
			-- NOT NULL is proven in advance
			UNION ALL SELECT s.relid, 'check', s.old_name, format('CHECK (%I IS NOT NULL)', s.new_name), true
				FROM snowflake_migrate.shadows() AS s WHERE s.relid = s.top AND s.is_not_null
			UNION ALL SELECT k.relid, 'foreign key', snowflake_migrate.new_name(k.name), snowflake_migrate.new_foreign_key(k.oid), k.is_valid
				FROM snowflake_migrate.changed_foreign_keys() AS k WHERE k.before
		)
		SELECT w.*, w.relid::regclass AS relation, format('%I.%I', s.nspname, w.name) AS index_name, n.oid AS constraint_id
			FROM wanted AS w JOIN pg_class AS c ON c.oid = w.relid JOIN pg_namespace AS s ON s.oid = c.relnamespace
				LEFT JOIN pg_constraint AS n ON n.conrelid = w.relid AND n.conname = w.name
			WHERE w.kind IN ('index', 'statistics') OR n.oid IS NULL OR w.is_valid AND NOT n.convalidated
			ORDER BY array_position(ARRAY['index', 'check', 'statistics', 'foreign key'], w.kind), w.relid, w.name LOOP
		IF b.kind IN ('index', 'statistics') THEN
			-- an interrupted index is there, but not valid
			IF b.kind = 'index' AND to_regclass(b.index_name) IS NOT NULL THEN
				RETURN NEXT 'DROP INDEX CONCURRENTLY ' || b.index_name;
			END IF;
			RETURN NEXT b.definition;
		ELSE
			IF b.constraint_id IS NULL THEN
				RETURN NEXT format('CALL snowflake_migrate.retry(%L)', format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', b.relation, b.name,
					replace(b.definition, ' NOT VALID', ''), CASE WHEN b.definition LIKE '% NOT ENFORCED' THEN '' ELSE ' NOT VALID' END));
			END IF;
			IF b.is_valid THEN
				RETURN NEXT format('ALTER TABLE %s VALIDATE CONSTRAINT %I', b.relation, b.name);
			END IF;
		END IF;
	END LOOP;
	IF FOUND THEN
		RETURN QUERY SELECT DISTINCT 'ANALYZE ' || s.relid::regclass FROM snowflake_migrate.shadows() AS s JOIN pg_class AS c ON c.oid = s.relid
			WHERE NOT c.relispartition ORDER BY 1;
	END IF;
END
$$;
COMMENT ON FUNCTION snowflake_migrate.build() IS 'statements that make indexes and constraints for the new columns, for \gexec';

-- The swap, as statements.  before: they run under locks that keep out neither readers nor writers; swap:
-- under locks that do; undo: undo() runs them; after: they run when the swap has committed.  Names are those
-- that objects have when a statement runs.
CREATE FUNCTION snowflake_migrate.swap_steps() RETURNS TABLE (kind text, statement text)
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	mints constant text := snowflake_migrate.home() || '.snowflake_next()';
	shadows constant snowflake_migrate.shadow_column[] := ARRAY(SELECT s FROM snowflake_migrate.shadows(true) AS s);
	tops constant snowflake_migrate.shadow_column[] := ARRAY(SELECT s FROM unnest(shadows) AS s WHERE s.relid = s.top);
	hanging constant snowflake_migrate.hanging[] := ARRAY(SELECT h FROM snowflake_migrate.hanging(snowflake_migrate.shadow_keys()) AS h);
	keys snowflake_migrate.key_column[];
	old_constraints oid[];
	children oid[];
	t record;
	b record;
BEGIN
	-- from now on the trigger keeps the old columns, as far as they can hold the numbers
	RETURN QUERY SELECT 'before', snowflake_migrate.sync_function(s.top, string_agg(format(CASE
				WHEN s.old_type IN ('bigint', 'bigint[]') THEN E'\tNEW.%1$I := NEW.%2$I;\n'
				WHEN s.old_type LIKE '%[]' THEN E'\tNEW.%1$I := CASE WHEN %3$s OPERATOR(pg_catalog.>=) ALL (NEW.%2$I) THEN NEW.%2$I END;\n'
				ELSE E'\tNEW.%1$I := CASE WHEN NEW.%2$I OPERATOR(pg_catalog.<=) %3$s THEN NEW.%2$I END;\n' END,
			s.old_name, s.name, CASE WHEN s.old_type LIKE 'smallint%' THEN 32767 ELSE 2147483647 END), '' ORDER BY s.attnum))
		FROM unnest(tops) AS s WHERE s.new_type IS NOT NULL GROUP BY s.top;
	RETURN QUERY SELECT 'before', s FROM snowflake_migrate.recompiling(snowflake_migrate.shadow_keys()) AS s;
	RETURN QUERY SELECT CASE WHEN e ~ ' SET (STORAGE|COMPRESSION) ' THEN 'swap' ELSE 'before' END, e
		FROM unnest(shadows) AS s, snowflake_migrate.column_extras(s.relid, s.attnum, s.new_name) AS e WHERE s.new_type IS NOT NULL;

	-- an integer is smaller than any snowflake
	keys := ARRAY(SELECT (s.relid, s.attnum, s.name, 'key', NULL, NULL, NULL)::snowflake_migrate.key_column FROM unnest(tops) AS s
		WHERE s.role = 'key' AND s.old_type NOT IN ('integer', 'smallint'));
	IF keys <> '{}' THEN
		RETURN QUERY VALUES ('swap', snowflake_migrate.check_statement(keys));
	END IF;
	RETURN QUERY VALUES ('swap', 'SET LOCAL check_function_bodies = off');
	RETURN QUERY SELECT 'swap', s FROM snowflake_migrate.of_hanging(hanging, 'drops') AS s;

	-- foreign keys and checks go first, keys with the columns' names; undo() brings them back
	old_constraints := ARRAY(SELECT c.oid FROM pg_constraint AS c
		WHERE c.contype IN ('p', 'u', 'x', 'c') AND c.conparentid = 0 AND c.conislocal
			AND EXISTS (SELECT FROM unnest(shadows) AS s WHERE s.new_type IS NOT NULL AND s.relid = c.conrelid AND s.attnum = ANY (c.conkey)) ORDER BY c.oid);
	RETURN QUERY SELECT 'swap', format('ALTER TABLE %s %s', a.relid::regclass, string_agg(a.action, ', ' ORDER BY a.place, a.action))
		FROM (SELECT k.relid, 1 AS place, format('DROP CONSTRAINT %I', k.name) AS action FROM snowflake_migrate.changed_foreign_keys() AS k WHERE NOT k.is_inherited
			UNION ALL SELECT c.conrelid, 1, format('DROP CONSTRAINT %I', c.conname) FROM pg_constraint AS c WHERE c.oid = ANY (old_constraints) AND c.contype = 'c'
			UNION ALL SELECT s.relid, u.place, u.action FROM unnest(tops) AS s, LATERAL (VALUES
				(2, CASE WHEN s.identity <> '' THEN format('ALTER COLUMN %I DROP IDENTITY', s.name) END),
				(3, CASE WHEN s.old_default IS NOT NULL THEN format('ALTER COLUMN %I DROP DEFAULT', s.name) END),
				(4, CASE WHEN s.new_type IS NULL OR NOT s.is_not_null THEN NULL
					WHEN s.not_null IS NULL THEN format('ALTER COLUMN %I SET NOT NULL', s.new_name)
					ELSE format('ADD CONSTRAINT %I NOT NULL %I', snowflake_migrate.new_name(s.not_null), s.new_name) END)) AS u (place, action)
				WHERE u.action IS NOT NULL) AS a
		GROUP BY a.relid ORDER BY a.relid;
	-- DROP NOT NULL of a parent's column needs the keys of children to be gone
	children := ARRAY(SELECT s.relid FROM unnest(shadows) AS s WHERE s.relid <> s.top);
	RETURN QUERY SELECT 'swap', format('ALTER TABLE %s %s', c.conrelid::regclass, string_agg(format('DROP CONSTRAINT %I', c.conname), ', ')) FROM pg_constraint AS c
		WHERE c.oid = ANY (old_constraints) AND c.contype <> 'c' AND c.conrelid = ANY (children) GROUP BY c.conrelid;
	-- a column of the replica identity has to be NOT NULL until the new index takes over
	RETURN QUERY SELECT DISTINCT 'swap', format('ALTER TABLE %s REPLICA IDENTITY NOTHING', i.indrelid::regclass)
		FROM unnest(shadows) AS s JOIN pg_index AS i ON i.indrelid = s.relid AND i.indisreplident AND s.attnum = ANY (i.indkey) WHERE s.new_type IS NOT NULL;

	-- a table at a time, children after their parents
	FOR t IN SELECT s.relid, s.relid::regclass AS name, n.nspname, bool_or(s.relid = s.top) AS is_top FROM unnest(shadows) AS s
			JOIN pg_class AS c ON c.oid = s.relid JOIN pg_namespace AS n ON n.oid = c.relnamespace GROUP BY s.relid, n.nspname ORDER BY 4 DESC, 2 LOOP
		RETURN QUERY SELECT 'swap', format('ALTER TABLE %s RENAME COLUMN %I TO %I', t.name, u.old, u.new)
			FROM unnest(tops) AS s, LATERAL (VALUES (1, s.name, s.old_name), (2, s.new_name, s.name)) AS u (place, old, new)
			WHERE s.relid = t.relid AND s.new_type IS NOT NULL ORDER BY s.name, u.place;
		RETURN QUERY SELECT 'swap', format('ALTER TABLE %s %s', t.name, string_agg(u.action, ', ' ORDER BY u.place))
			FROM (SELECT 1 AS place, format('DROP CONSTRAINT %I', c.conname) AS action FROM pg_constraint AS c
				WHERE c.oid = ANY (old_constraints) AND c.contype <> 'c' AND c.conrelid = t.relid AND t.relid <> ALL (children)
			UNION ALL SELECT 2, u.action FROM unnest(tops) AS s, LATERAL (VALUES
					(CASE WHEN s.is_not_null AND s.new_type IS NOT NULL THEN format('ALTER COLUMN %I DROP NOT NULL, DROP CONSTRAINT %I', s.old_name, s.old_name) END),
					(CASE WHEN s.role = 'key' THEN format('ALTER COLUMN %I SET DEFAULT %s', s.name, mints)
						WHEN s.old_default IS NOT NULL THEN format('ALTER COLUMN %I SET DEFAULT (%s)::%s', s.name, s.old_default, s.new_type) END)) AS u (action)
				WHERE s.relid = t.relid AND u.action IS NOT NULL
			UNION ALL SELECT 3, format('ADD CONSTRAINT %I %s USING INDEX %I%s%s', o.name, CASE c.contype WHEN 'p' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END, o.new_name,
					CASE WHEN c.condeferrable THEN ' DEFERRABLE' END, CASE WHEN c.condeferred THEN ' INITIALLY DEFERRED' END)
				FROM snowflake_migrate.built_objects(t.relid) AS o JOIN pg_constraint AS c ON c.oid = o.constraint_id WHERE o.kind = 'index') AS u
			HAVING count(*) > 0;
		RETURN QUERY SELECT 'swap', format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', t.name, snowflake_migrate.new_name(s.not_null), s.not_null)
			FROM unnest(tops) AS s WHERE s.relid = t.relid AND s.new_type IS NOT NULL AND s.not_null IS NOT NULL;

		-- undo() gives the old columns what they had
		RETURN QUERY SELECT 'undo', u.action FROM unnest(tops) AS s, LATERAL (VALUES
				(CASE WHEN s.new_type IS NULL THEN NULL WHEN s.not_null IS NOT NULL THEN format('ALTER TABLE %s ADD CONSTRAINT %I NOT NULL %I', t.name, s.not_null, s.name)
					WHEN s.is_not_null THEN format('ALTER TABLE %s ALTER COLUMN %I SET NOT NULL', t.name, s.name) END),
				('ALTER TABLE ' || t.name || format(' ALTER COLUMN %I SET DEFAULT ', s.name) || s.old_default)) AS u (action)
			WHERE s.relid = t.relid AND u.action IS NOT NULL;
		FOR b IN SELECT s.name, s.identity, q.*, c.oid::regclass AS sequence, c.relacl, c.relowner
				FROM unnest(tops) AS s, snowflake_migrate.sequences(s.relid, s.attnum) AS i JOIN pg_sequence AS q ON q.seqrelid = i JOIN pg_class AS c ON c.oid = i
				WHERE s.relid = t.relid AND s.identity <> '' LOOP
			kind := 'undo';
			statement := format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT, ALTER COLUMN %I ADD GENERATED %s AS IDENTITY (SEQUENCE NAME %s START WITH %s INCREMENT BY %s MINVALUE %s MAXVALUE %s CACHE %s%s)',
				t.name, b.name, b.name, CASE b.identity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, b.sequence, b.seqstart, b.seqincrement,
				b.seqmin, b.seqmax, b.seqcache, CASE WHEN b.seqcycle THEN ' CYCLE' END);
			RETURN NEXT;
			EXECUTE format('SELECT format(''SELECT pg_catalog.setval(%%L, %%s, %%L)'', $1, last_value, is_called) FROM %s', b.sequence) INTO statement USING b.sequence;
			RETURN NEXT;
			RETURN QUERY SELECT 'undo', s FROM snowflake_migrate.said('SEQUENCE ' || b.sequence, 'pg_class', b.seqrelid) AS s;
			RETURN QUERY SELECT 'undo', s FROM snowflake_migrate.grants('SEQUENCE ' || b.sequence, 's', b.relacl, b.relowner) AS s;
		END LOOP;

		-- what is built takes the names of the old objects, of which undo() needs indexes and statistics
		FOR b IN SELECT o.*, format('%I.%I', t.nspname, o.name) AS first, format('%I.%I', t.nspname, o.new_name) AS second, snowflake_migrate.old_name(o.name) AS old_name
				FROM snowflake_migrate.built_objects(t.relid) AS o ORDER BY o.oid LOOP
			IF b.kind = 'check' THEN
				RETURN QUERY VALUES ('swap', format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', t.name, b.new_name, b.name));
			ELSIF b.constraint_id = 0 THEN
				RETURN QUERY VALUES ('before', format('ALTER %s %s RENAME TO %I', b.kind, b.first, b.old_name)), ('before', format('ALTER %s %s RENAME TO %I', b.kind, b.second, b.name)),
					('undo', format('ALTER %s %I.%I RENAME TO %I', b.kind, t.nspname, b.old_name, b.name));
			END IF;
			RETURN QUERY SELECT u.kind, e FROM snowflake_migrate.index_extras(b.oid) AS e,
					unnest(ARRAY[CASE WHEN b.constraint_id = 0 AND e NOT LIKE '% REPLICA IDENTITY %' THEN 'before' ELSE 'swap' END, 'undo']) AS u (kind)
				WHERE b.kind = 'index' AND (u.kind <> 'undo' OR b.constraint_id = 0);
			RETURN QUERY SELECT 'before', e FROM snowflake_migrate.statistics_extras(b.oid) AS e WHERE b.kind = 'statistics';
		END LOOP;
	END LOOP;

	-- an exclusion constraint cannot be made in advance
	RETURN QUERY SELECT u.kind, s FROM unnest(old_constraints) AS o JOIN pg_constraint AS c ON c.oid = o LEFT JOIN pg_index AS i ON i.indexrelid = c.conindid, (VALUES ('swap'), ('undo')) AS u (kind),
			snowflake_migrate.creating('pg_constraint', c.oid) WITH ORDINALITY AS s (s, place)
		WHERE i.indisexclusion OR u.kind = 'undo' OR s.s LIKE 'COMMENT ON %'
		ORDER BY u.kind, c.oid, s.place;
	FOR b IN SELECT k.*, k.relid::regclass AS relation, r.relkind FROM snowflake_migrate.changed_foreign_keys() AS k JOIN pg_class AS r ON r.oid = k.relid ORDER BY k.is_inherited DESC, k.oid LOOP
		IF b.before THEN
			RETURN QUERY VALUES ('swap', format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', b.relation, snowflake_migrate.new_name(b.name), b.name));
		ELSE
			RETURN QUERY VALUES ('swap', format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', b.relation, b.name, replace(b.definition, ' NOT VALID', ''),
				CASE WHEN b.relkind = 'p' THEN '' ELSE ' NOT VALID' END));
			IF b.relkind <> 'p' AND b.is_valid THEN
				RETURN QUERY VALUES ('after', format('ALTER TABLE %s VALIDATE CONSTRAINT %I', b.relation, b.name));
			END IF;
		END IF;
		RETURN QUERY SELECT u.kind, s FROM snowflake_migrate.creating('pg_constraint', b.oid) WITH ORDINALITY AS s (s, place), (VALUES ('swap'), ('undo')) AS u (kind)
			WHERE u.kind = 'undo' OR s.place > 1 ORDER BY u.kind, s.place;
	END LOOP;

	RETURN QUERY SELECT 'swap', s FROM snowflake_migrate.of_hanging(hanging, 'creates') AS s;
	RETURN QUERY SELECT 'after', s FROM snowflake_migrate.of_hanging(hanging, 'late') AS s;
END
$$;

-- The tables that the swap changes: those of the migration, and both sides of foreign keys
CREATE FUNCTION snowflake_migrate.swapped_tables() RETURNS oid[]
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
	SELECT ARRAY(SELECT s.table_name::regclass::oid FROM snowflake_migrate.shadow AS s
		UNION SELECT u FROM snowflake_migrate.changed_foreign_keys() AS k, unnest(ARRAY[k.relid, k.referenced]) AS u WHERE NOT k.is_inherited ORDER BY 1)
$$;

-- Lock tables within some time in all: others wait behind a lock that is waited for.
CREATE FUNCTION snowflake_migrate.lock_tables(tables oid[], mode text, patience interval) RETURNS void
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	finish constant timestamptz := clock_timestamp() + patience;
	relid oid;
BEGIN
	FOREACH relid IN ARRAY tables LOOP
		PERFORM set_config('lock_timeout', greatest(1, extract(epoch FROM finish - clock_timestamp()) * 1000)::integer::text, true);
		EXECUTE format('LOCK TABLE %s IN %s MODE', relid::regclass, mode);
	END LOOP;
END
$$;

-- One attempt at the swap; false if it did not get its locks
CREATE FUNCTION snowflake_migrate.swap_once(patience interval) RETURNS boolean
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET client_min_messages = warning
AS $$
DECLARE
	m snowflake_migrate.migration := snowflake_migrate.take('filled', 'swapped');
	tables oid[];
	kinds text[];
	statements text[];
	start timestamptz;
BEGIN
	IF m.state = 'swapped' THEN
		RETURN true;
	END IF;
	IF EXISTS (SELECT FROM snowflake_migrate.build()) THEN
		RAISE EXCEPTION 'indexes and constraints for the new columns are missing'
			USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run SELECT snowflake_migrate.build() \gexec';
	END IF;
	BEGIN
		-- readers and writers do not wait while this waits for autovacuum and other DDL
		tables := snowflake_migrate.swapped_tables();
		PERFORM snowflake_migrate.lock_tables(tables, 'SHARE UPDATE EXCLUSIVE', '10 s');
		SELECT array_agg(s.kind), array_agg(s.statement) INTO kinds, statements FROM snowflake_migrate.swap_steps() AS s;
		INSERT INTO snowflake_migrate.step (kind, place, statement)
			SELECT s.kind, s.place, s.statement FROM unnest(kinds, statements) WITH ORDINALITY AS s (kind, statement, place) WHERE s.kind IN ('undo', 'after');
		PERFORM snowflake_migrate.run(ARRAY(SELECT s.s FROM unnest(kinds, statements) WITH ORDINALITY AS s (kind, s, place) WHERE s.kind = 'before' ORDER BY s.place));
		statements := ARRAY(SELECT s.s FROM unnest(kinds, statements) WITH ORDINALITY AS s (kind, s, place) WHERE s.kind = 'swap' ORDER BY s.place);
		start := clock_timestamp();
		PERFORM snowflake_migrate.lock_tables(tables, 'ACCESS EXCLUSIVE', patience);
		PERFORM snowflake_migrate.run(statements);
		UPDATE snowflake_migrate.migration SET state = 'swapped', swapped = now(), locked = clock_timestamp() - start;
	EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
		RETURN false;
	END;
	RETURN true;
END
$$;

-- One statement of those that the swap has left; NULL if none is left
CREATE FUNCTION snowflake_migrate.run_after() RETURNS float8
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s record;
BEGIN
	PERFORM snowflake_migrate.take('swapped');
	SELECT * INTO s FROM snowflake_migrate.step AS t WHERE t.kind = 'after' ORDER BY t.place LIMIT 1;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	EXECUTE s.statement;
	DELETE FROM snowflake_migrate.step AS t WHERE t.place = s.place;
	RETURN 0;
END
$$;

-- Each attempt is a transaction, which gives up if it does not have its locks in time; so is each statement
-- that is left when it has committed.
CREATE PROCEDURE snowflake_migrate.swap(patience interval DEFAULT '100 ms', attempts integer DEFAULT 100)
	LANGUAGE plpgsql
AS $$
DECLARE
	is_done pg_catalog.bool;
BEGIN
	FOR attempt IN 1 .. attempts LOOP
		is_done := snowflake_migrate.swap_once(patience);
		COMMIT;
		EXIT WHEN is_done;
		PERFORM pg_catalog.pg_sleep(1);
	END LOOP;
	IF is_done IS NOT TRUE THEN
		RAISE EXCEPTION 'the tables could not be locked' USING ERRCODE = 'lock_not_available', HINT = 'Look for long transactions, and repeat the call.';
	END IF;
	CALL snowflake_migrate.repeat('SELECT snowflake_migrate.run_after()');
END
$$;
COMMENT ON PROCEDURE snowflake_migrate.swap(interval, integer) IS 'swap the old columns for the new ones, in one short transaction';

-- Back

-- Swap back, in one transaction, under the locks of the swap; false if nothing was swapped.  Fails if a row
-- has a number that the old column cannot hold.
CREATE FUNCTION snowflake_migrate.undo_swap() RETURNS boolean
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET check_function_bodies = off
AS $$
DECLARE
	m snowflake_migrate.migration := snowflake_migrate.take('filling', 'filled', 'swapped');
	hanging snowflake_migrate.hanging[];
	c snowflake_migrate.shadow_column;
	large bigint;
BEGIN
	IF m.state <> 'swapped' THEN
		RETURN false;
	END IF;
	PERFORM snowflake_migrate.lock_tables(snowflake_migrate.swapped_tables(), 'ACCESS EXCLUSIVE', '1 h');
	FOR c IN SELECT * FROM snowflake_migrate.shadows() AS h WHERE h.relid = h.top LOOP
		EXECUTE format('SELECT count(*) FROM %s WHERE %I IS NULL AND %I IS NOT NULL', c.top::regclass, c.old_name, c.name) INTO large;
		IF large > 0 THEN
			RAISE EXCEPTION '% rows of % have numbers that the old column cannot hold', large, format('%s.%I', c.top::regclass, c.name)
				USING ERRCODE = 'numeric_value_out_of_range', DETAIL = 'They were written after the swap.',
					HINT = 'Delete them, or complete the migration: snowflake_migrate.finish().';
		END IF;
	END LOOP;
	hanging := ARRAY(SELECT h FROM snowflake_migrate.hanging(snowflake_migrate.shadow_keys()) AS h);
	PERFORM snowflake_migrate.run(ARRAY(SELECT * FROM snowflake_migrate.of_hanging(hanging, 'drops')));
	PERFORM snowflake_migrate.run(ARRAY(SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', k.relid::regclass, k.name)
		FROM snowflake_migrate.changed_foreign_keys() AS k WHERE NOT k.is_inherited));
	PERFORM snowflake_migrate.drop_sync(t) FROM unnest(ARRAY(SELECT DISTINCT s.top FROM snowflake_migrate.shadows() AS s)) AS t;
	PERFORM snowflake_migrate.run(ARRAY(SELECT format('ALTER TABLE %s %s', s.top::regclass, string_agg(format('DROP COLUMN %I', s.name), ', '))
			FROM snowflake_migrate.shadows() AS s WHERE s.relid = s.top GROUP BY s.top)
		|| ARRAY(SELECT format('ALTER TABLE %s RENAME COLUMN %I TO %I', s.top::regclass, s.old_name, s.name)
			FROM snowflake_migrate.shadows() AS s WHERE s.relid = s.top)
		|| ARRAY(SELECT s.statement FROM snowflake_migrate.step AS s WHERE s.kind = 'undo' ORDER BY s.place)
		|| ARRAY(SELECT * FROM snowflake_migrate.of_hanging(hanging, 'creates'))
		|| ARRAY(SELECT * FROM snowflake_migrate.recompiling(snowflake_migrate.shadow_keys()))
		|| ARRAY(SELECT * FROM snowflake_migrate.of_hanging(hanging, 'late')));
	PERFORM snowflake_migrate.forget();
	RETURN true;
END
$$;

-- The migration is over
CREATE FUNCTION snowflake_migrate.forget() RETURNS void
	LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
	DELETE FROM snowflake_migrate.step;
	DELETE FROM snowflake_migrate.filling;
	DELETE FROM snowflake_migrate.shadow;
	DELETE FROM snowflake_migrate.migration;
$$;

-- Drop the trigger that keeps other columns, and its function
CREATE FUNCTION snowflake_migrate.drop_sync(relation oid) RETURNS void
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM snowflake_migrate.run(ARRAY(SELECT format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass)
			FROM pg_class AS c, snowflake_migrate.tree(c.oid) AS m JOIN pg_trigger AS t ON t.tgrelid = m
			WHERE c.oid = relation AND t.tgname = snowflake_migrate.sync_name(c.relname) AND t.tgparentid = 0)
		|| ARRAY(SELECT format('DROP FUNCTION IF EXISTS %I.%I()', n.nspname, snowflake_migrate.sync_name(c.relname))
			FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = relation));
END
$$;

-- Drop the other columns of one more table: the new ones before the swap, the old ones after it.  Returns
-- NULL when none is left, otherwise how long to wait.
CREATE FUNCTION snowflake_migrate.drop_columns(VARIADIC states text[]) RETURNS float8
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	m snowflake_migrate.migration := snowflake_migrate.take(VARIADIC states);
	swapped constant boolean := m.swapped IS NOT NULL;
	t record;
BEGIN
	SELECT s.top AS relid, string_agg(format('DROP COLUMN %I', a.attname), ', ') AS actions, array_agg(a.attnum) AS attnums INTO t
		FROM snowflake_migrate.shadows() AS s JOIN pg_attribute AS a ON a.attrelid = s.top AND a.attname = CASE WHEN swapped THEN s.old_name ELSE s.new_name END
		WHERE s.relid = s.top GROUP BY s.top ORDER BY s.top LIMIT 1;
	BEGIN
		PERFORM set_config('lock_timeout', '200ms', true);
		IF t.relid IS NULL THEN
			-- the sequences of keys that only have another default
			PERFORM snowflake_migrate.run(ARRAY(SELECT format('DROP SEQUENCE %s', c.oid::regclass)
				FROM snowflake_migrate.shadows(true) AS s JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = s.relid AND d.refobjsubid = s.attnum
						AND d.classid = 'pg_class'::regclass AND d.deptype = 'a'
					JOIN pg_class AS c ON c.oid = d.objid AND c.relkind = 'S'
				WHERE swapped AND s.relid = s.top AND s.role = 'key' AND s.new_type IS NULL AND NOT EXISTS (SELECT FROM pg_depend AS e
					WHERE e.refclassid = 'pg_class'::regclass AND e.refobjid = c.oid AND e.deptype <> 'i')));
			PERFORM snowflake_migrate.forget();
			RETURN NULL;
		END IF;
		PERFORM snowflake_migrate.run(ARRAY(SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', f.conrelid::regclass, f.conname) FROM pg_constraint AS f
				WHERE NOT swapped AND f.contype = 'f' AND f.confrelid = t.relid AND f.confkey && t.attnums)
			-- a sequence stays if something else uses it
			|| ARRAY(SELECT format('ALTER SEQUENCE %s OWNED BY NONE', d.objid::regclass) FROM pg_depend AS d JOIN pg_class AS c ON c.oid = d.objid AND c.relkind = 'S'
				WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.relid AND d.refobjsubid = ANY (t.attnums) AND d.deptype = 'a'
					AND EXISTS (SELECT FROM pg_depend AS e WHERE e.refclassid = 'pg_class'::regclass AND e.refobjid = d.objid AND e.deptype <> 'i')));
		PERFORM snowflake_migrate.drop_sync(t.relid);
		EXECUTE format('ALTER TABLE %s %s', t.relid::regclass, t.actions);
	EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
		RETURN 0.5 + random();
	END;
	RETURN 0;
END
$$;

-- Before the swap, a transaction for each table; after it, a single one.
CREATE PROCEDURE snowflake_migrate.undo()
	LANGUAGE plpgsql
AS $$
BEGIN
	IF NOT snowflake_migrate.undo_swap() THEN
		CALL snowflake_migrate.repeat('SELECT snowflake_migrate.drop_columns(''filling'', ''filled'')');
	END IF;
END
$$;
COMMENT ON PROCEDURE snowflake_migrate.undo() IS 'revert a migration, before or after the swap';

-- From here on there is no way back
CREATE FUNCTION snowflake_migrate.begin_finishing() RETURNS void
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM snowflake_migrate.take('swapped', 'finishing');
	IF EXISTS (SELECT FROM snowflake_migrate.step AS s WHERE s.kind = 'after') THEN
		RAISE EXCEPTION 'statements of the swap remain to be run' USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'CALL snowflake_migrate.swap() again.';
	END IF;
	UPDATE snowflake_migrate.migration SET state = 'finishing';
END
$$;

-- A transaction for each table, which is locked for 200 ms at most.
CREATE PROCEDURE snowflake_migrate.finish()
	LANGUAGE plpgsql
AS $$
BEGIN
	PERFORM snowflake_migrate.begin_finishing();
	COMMIT;
	CALL snowflake_migrate.repeat('SELECT snowflake_migrate.drop_columns(''finishing'')');
END
$$;
COMMENT ON PROCEDURE snowflake_migrate.finish() IS 'drop the old columns: there is no way back from here';

-- IDs by the time of a row
--
-- For rows that have a time already, and for keys that are no integers, such as UUIDs.

CREATE TABLE snowflake_migrate.backfilled (
	node integer PRIMARY KEY,	-- one that no server mints with
	column_name text NOT NULL,	-- with its table and schema, quoted
	place bigint NOT NULL		-- the last one given: ticks, then the sequence
);
COMMENT ON TABLE snowflake_migrate.backfilled IS 'up to where IDs by times were given, with each node ID';
SELECT pg_catalog.pg_extension_config_dump('snowflake_migrate.backfilled', '');
GRANT SELECT ON snowflake_migrate.backfilled TO PUBLIC;
GRANT INSERT, UPDATE, DELETE ON snowflake_migrate.backfilled TO @extowner@ WITH GRANT OPTION;

-- Rows whose times no ID can have are named before any row is changed.
CREATE FUNCTION snowflake_migrate.begin_backfill(target text, time_column name, node integer) RETURNS void
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	home constant text := snowflake_migrate.home();
	t record;
	r record;
	l record;
	known text;
BEGIN
	SELECT * INTO STRICT t FROM snowflake_migrate.resolve(target, true);
	EXECUTE format('SELECT s.node, y.epoch, y.nodes FROM %1$s.snowflake_status AS s, %1$s.snowflake_layout() AS y', home) INTO l;
	IF node IS NULL OR node NOT BETWEEN 0 AND l.nodes - 1 THEN
		RAISE EXCEPTION 'node ID % is not between 0 and %', node, l.nodes - 1 USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF node = l.node THEN
		RAISE EXCEPTION 'this server mints with node ID %', node
			USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose one that no server mints with, and a different one for each table.';
	END IF;
	SELECT b.column_name INTO known FROM snowflake_migrate.backfilled AS b WHERE b.node = begin_backfill.node;
	IF known <> format('%s.%I', t.relid::regclass, t.attname) THEN
		RAISE EXCEPTION 'node ID % has been used for %', node, known USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose another one.';
	END IF;
	EXECUTE format('SELECT count(*) FILTER (WHERE %1$I < $1) AS early, min(%1$I) AS first, count(*) FILTER (WHERE %1$I > clock_timestamp()) AS late, max(%1$I) AS last
		FROM %2$s WHERE %3$I IS NULL', time_column, t.relid::regclass, t.attname) USING l.epoch INTO r;
	IF r.early > 0 OR r.late > 0 THEN
		RAISE EXCEPTION '% rows of table % are dated before the layout''s epoch, and % in the future', r.early, t.relid::regclass, r.late
			USING ERRCODE = 'datetime_field_overflow', DETAIL = format('The epoch is %s; the times in %I are from %s to %s.', l.epoch, time_column, r.first, r.last),
				HINT = 'Correct them, or give these rows IDs of their own first, such as snowflake_next().';
	END IF;
	IF known IS NULL THEN
		INSERT INTO snowflake_migrate.backfilled VALUES (node, format('%s.%I', t.relid::regclass, t.attname), -1);
	END IF;
END
$$;

-- Give IDs to the rows with the earliest times that have none.  Each takes the first place of its tick, or
-- the place after the row before it if that is later, so a tick may have any number of rows.
CREATE FUNCTION snowflake_migrate.backfill_batch(target text, time_column name, node integer, batch integer, load float8, max_lag interval) RETURNS float8
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	home constant text := snowflake_migrate.home();
	start constant timestamptz := clock_timestamp();
	t record;
	last bigint;
	filled bigint;
BEGIN
	IF EXISTS (SELECT FROM pg_stat_replication AS r WHERE r.replay_lag > max_lag) THEN
		RETURN 1;
	END IF;
	SELECT * INTO STRICT t FROM snowflake_migrate.resolve(target);
	PERFORM snowflake_migrate.fill_quietly(t.relid);
	SELECT b.place INTO STRICT last FROM snowflake_migrate.backfilled AS b WHERE b.node = backfill_batch.node FOR UPDATE;
	EXECUTE format($q$
		WITH rows AS MATERIALIZED (
			SELECT r.tableoid, r.ctid, r.%1$I::timestamptz AS at FROM %2$s AS r WHERE r.%3$I IS NULL AND r.%1$I IS NOT NULL
				ORDER BY r.%1$I LIMIT $3 FOR NO KEY UPDATE
		), numbered AS (
			SELECT r.tableoid, r.ctid, row_number() OVER (ORDER BY r.at, r.tableoid, r.ctid) AS number,
					%4$s.snowflake_field(%4$s.make_snowflake(r.at, $1, 0), 'time') << y.sequence_bits AS first
				FROM rows AS r, %4$s.snowflake_layout() AS y
		), placed AS (
			SELECT n.tableoid, n.ctid, n.number + greatest($2, max(n.first - n.number) OVER (ORDER BY n.number)) AS place FROM numbered AS n
		), filled AS (
			UPDATE %2$s AS r SET %3$I = %4$s.make_snowflake(y.epoch + (p.place >> y.sequence_bits) * y.tick, $1, (p.place & ((1::bigint << y.sequence_bits) - 1))::integer)
				FROM placed AS p, %4$s.snowflake_layout() AS y WHERE r.ctid = p.ctid AND r.tableoid = p.tableoid RETURNING p.place
		)
		SELECT count(*), max(f.place) FROM filled AS f$q$, time_column, t.relid::regclass, t.attname, home)
		INTO filled, last USING node, last, batch;
	IF filled = 0 THEN
		RETURN NULL;
	END IF;
	UPDATE snowflake_migrate.backfilled AS b SET place = last WHERE b.node = backfill_batch.node;
	RETURN extract(epoch FROM clock_timestamp() - start) * (1 - load) / load;
END
$$;

-- Commits for each batch.  A row that somebody else has locked is waited for.
CREATE PROCEDURE snowflake_migrate.backfill(target text, time_column name, node integer,
	batch integer DEFAULT 5000, load float8 DEFAULT 0.5, max_lag interval DEFAULT '10 s')
	LANGUAGE plpgsql
AS $$
BEGIN
	PERFORM snowflake_migrate.begin_backfill(target, time_column, node);
	COMMIT;
	CALL snowflake_migrate.repeat(pg_catalog.format('SELECT snowflake_migrate.backfill_batch(%L, %L, %L, %L, %L, %L)', target, time_column, node, batch, load, max_lag));
END
$$;
COMMENT ON PROCEDURE snowflake_migrate.backfill(text, name, integer, integer, float8, interval) IS
	'give rows without an ID one by their time, in batches; the same call goes on after an interruption';

-- References follow to a new key, some blocks at a time
CREATE FUNCTION snowflake_migrate.reference_batch(reference text, old_reference name, key text, old_key name, first_block bigint, batch integer) RETURNS bigint
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
	r record;
	k record;
	last_block bigint;
BEGIN
	SELECT * INTO STRICT r FROM snowflake_migrate.resolve(reference, true);
	SELECT * INTO STRICT k FROM snowflake_migrate.resolve(key, true);
	IF (SELECT c.relkind FROM pg_class AS c WHERE c.oid = r.relid) <> 'r' THEN
		RAISE EXCEPTION 'table % is partitioned', r.relid::regclass USING ERRCODE = 'wrong_object_type', HINT = 'Call it for each partition.';
	END IF;
	PERFORM snowflake_migrate.fill_quietly(r.relid);
	IF first_block >= pg_relation_size(r.relid) / current_setting('block_size')::bigint THEN
		RETURN NULL;
	END IF;
	last_block := first_block + snowflake_migrate.blocks_of(r.relid, batch);
	EXECUTE format('UPDATE ONLY %1$s AS r SET %2$I = k.%3$I FROM %4$s AS k
			WHERE r.ctid >= %5$L AND r.ctid < %6$L AND k.%7$I = r.%8$I AND r.%2$I IS DISTINCT FROM k.%3$I',
		r.relid::regclass, r.attname, k.attname, k.relid::regclass, format('(%s,0)', first_block), format('(%s,0)', last_block), old_key, old_reference);
	RETURN last_block;
END
$$;

-- Commits for each batch.
CREATE PROCEDURE snowflake_migrate.move_references(reference text, old_reference name, key text, old_key name, batch integer DEFAULT 5000)
	LANGUAGE plpgsql
AS $$
DECLARE
	block pg_catalog.int8 := 0;
BEGIN
	LOOP
		block := snowflake_migrate.reference_batch(reference, old_reference, key, old_key, block, batch);
		COMMIT;
		EXIT WHEN block IS NULL;
	END LOOP;
END
$$;
COMMENT ON PROCEDURE snowflake_migrate.move_references(text, name, text, name, integer) IS
	'fill references to a new key from those to the old one, in batches';
