/*-------------------------------------------------------------------------
 *
 * facts.c
 *	  The tables, columns and objects that depend on a key to be converted.
 *
 * The facts are read by queries with a snapshot of their own, which sees what
 * has been committed when the locks were granted, at any isolation level, and
 * with a search_path of pg_catalog, which the caller sets.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "base/compat.h"
#include "convert/convert.h"
#include "convert/query.h"

/*
 * The column $2 of table $1 and what hangs together with it.  Going up from a
 * child to its parents matters for the columns that reference the key: their
 * type is changed where it is inherited from.  A column of a partition key, also
 * within an expression, depends on its own table.
 */
static const char *columns_query =
"WITH RECURSIVE touched (relid, name, is_key) AS ("
"	SELECT $1, $2, true"
"  UNION"
"	SELECT e.relid, e.name, e.is_key"
"	FROM touched t, LATERAL ("
"		SELECT inhparent, t.name, t.is_key FROM pg_inherits WHERE inhrelid = t.relid"
"	  UNION ALL"
"		SELECT inhrelid, t.name, t.is_key FROM pg_inherits WHERE inhparent = t.relid"
"	  UNION ALL"
"		SELECT f.conrelid, fk.attname, false"
"		FROM pg_constraint f"
"			CROSS JOIN LATERAL ROWS FROM (unnest(f.conkey), unnest(f.confkey)) AS k (fk, pk)"
"			JOIN pg_attribute pk ON pk.attrelid = f.confrelid AND pk.attnum = k.pk"
"			JOIN pg_attribute fk ON fk.attrelid = f.conrelid AND fk.attnum = k.fk"
"		WHERE f.contype = 'f' AND f.confrelid = t.relid AND pk.attname = t.name"
"	) e (relid, name, is_key)"
"	WHERE EXISTS (SELECT FROM pg_attribute a"
"				  WHERE a.attrelid = e.relid AND a.attname = e.name"
"					AND a.attnum > 0 AND NOT a.attisdropped)"
"), partition_keys (relid, attnum, partstrat) AS ("
"	SELECT DISTINCT partrelid, objsubid, partstrat"
"	FROM pg_partitioned_table JOIN pg_depend"
"		ON classid = 'pg_class'::regclass AND objid = partrelid AND objsubid <> 0"
"		AND refclassid = classid AND refobjid = objid AND refobjsubid = 0 AND deptype = 'i'"
") "
"SELECT a.attrelid AS relid, a.attnum, a.attname, c.relname,"
"	format('%I.%I', n.nspname, c.relname) AS qualified, c.relowner, c.relkind, t.is_key,"
"	NOT EXISTS (SELECT FROM pg_inherits i JOIN pg_attribute p ON p.attrelid = i.inhparent"
"				WHERE i.inhrelid = a.attrelid AND p.attname = a.attname AND NOT p.attisdropped) AS is_top,"
"	pg_has_role(c.relowner, 'USAGE') AS is_owner, a.atttypid, format_type(a.atttypid, a.atttypmod) AS type_name,"
"	a.attidentity, a.attgenerated, pg_get_expr(d.adbin, d.adrelid) AS default_expr,"
"	pg_get_expr(d.adbin, d.adrelid) IS NOT DISTINCT FROM $3::regprocedure::text AS fills_itself,"
"	(SELECT min(f.confrelid::regclass::text) FROM pg_constraint f"
"	 WHERE f.contype = 'f' AND f.conrelid = a.attrelid AND a.attnum = ANY (f.conkey)) AS referenced,"
"	CASE WHEN c.relkind = 'f' THEN format('%I.%I is a foreign table.', n.nspname, c.relname)"
"		WHEN pg_is_other_temp_schema(n.oid)"
"			THEN format('%I.%I is a temporary table of another session.', n.nspname, c.relname)"
"		WHEN c.reloftype <> 0 THEN format('%I.%I is a typed table.', n.nspname, c.relname)"
"		WHEN k.attnum IS NOT NULL"
"			THEN format('Its type would change, and column %I is part of the partition key of %I.%I.',"
"						a.attname, n.nspname, c.relname)"
"	END AS obstacle,"
"	k.partstrat <> 'h' AS bounds_partitions "
"FROM (SELECT relid, name, bool_or(is_key) AS is_key FROM touched GROUP BY relid, name) t"
"	JOIN pg_attribute a ON a.attrelid = t.relid AND a.attname = t.name"
"	JOIN pg_class c ON c.oid = a.attrelid"
"	JOIN pg_namespace n ON n.oid = c.relnamespace"
"	LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
"	LEFT JOIN partition_keys k ON k.relid = a.attrelid AND k.attnum = a.attnum "
"WHERE a.attnum > 0 AND NOT a.attisdropped "
"ORDER BY a.attrelid, a.attnum";

/*
 * Sequences that the columns own or take their defaults from.  What else
 * depends on one does so normally; its owner depends the other way round.
 */
static const char *sequences_query =
"WITH keys AS ("
"	SELECT k.relid, k.attnum, d.oid AS adoid, a.attidentity <> '' AS is_identity"
"	FROM ROWS FROM (unnest($1), unnest($2)) AS k (relid, attnum)"
"		JOIN pg_attribute a ON a.attrelid = k.relid AND a.attnum = k.attnum"
"		LEFT JOIN pg_attrdef d ON d.adrelid = k.relid AND d.adnum = k.attnum"
"), linked AS ("
"	SELECT d.objid AS seq, true AS owned, false AS used,"
"		CASE WHEN d.deptype = 'i' AND is_identity THEN k.relid END AS identity_of,"
"		d.deptype = 'i' AND NOT is_identity AS is_remnant"
"	FROM keys k JOIN pg_depend d"
"		ON d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum"
"	WHERE d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')"
"  UNION ALL"
"	SELECT d.refobjid, false, true, NULL, false"
"	FROM keys k JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = k.adoid"
"	WHERE d.refclassid = 'pg_class'::regclass"
") "
"SELECT s.oid AS relid, format('%I.%I', n.nspname, s.relname) AS qualified, s.relowner,"
"	bool_or(l.owned) AS owned, bool_or(l.used) AS used, max(l.identity_of) AS identity_of,"
"	bool_or(l.is_remnant) AS is_remnant,"
"	(SELECT x.extname FROM pg_depend d JOIN pg_extension x ON x.oid = d.refobjid"
"	 WHERE d.classid = 'pg_class'::regclass AND d.objid = s.oid"
"		AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e') AS extension,"
"	(SELECT string_agg(pg_describe_object(d.classid, d.objid, d.objsubid), ', '"
"					   ORDER BY d.classid, d.objid)"
"	 FROM pg_depend d"
"	 WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = s.oid AND d.deptype = 'n'"
"		AND NOT EXISTS (SELECT FROM keys k"
"						WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = k.adoid)) AS dependents "
"FROM linked l JOIN pg_class s ON s.oid = l.seq AND s.relkind = 'S'"
"	JOIN pg_namespace n ON n.oid = s.relnamespace "
"GROUP BY s.oid, n.nspname, s.relname, s.relowner "
"ORDER BY s.oid";

/*
 * The foreign keys that the columns are part of, at either end.  Those of
 * partitions come with their parents'.
 *
 * One between tables of different owners is set aside if the caller has the
 * rights of its owner: plan.c says why, and roles.c how it is checked.  For that
 * its owner must be able to re-create it.  A type that an ordinary role owns, or a
 * domain over one, would bring a cast into the check, which runs with the rights of
 * the other owner.  And a superuser's is refused: roles.c keeps the other
 * owner from a superuser's rights as well, but that should not be relied on.
 */
static const char *references_query =
"SELECT f.oid, f.conrelid, f.confrelid, c.relowner, f.conname,"
"	format('%I.%I', n.nspname, c.relname) AS qualified, pg_get_constraintdef(f.oid) AS definition,"
"	quote_literal(obj_description(f.oid, 'pg_constraint')) AS comment,"
"	c.relowner <> p.relowner AND pg_has_role(c.relowner, 'USAGE') AS is_set_aside,"
"	CASE WHEN c.relowner = p.relowner THEN NULL"
"		WHEN EXISTS (WITH RECURSIVE types (oid) AS ("
"						SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (f.conkey)"
"					  UNION"
"						SELECT t.typbasetype FROM types JOIN pg_type t USING (oid) WHERE t.typbasetype <> 0)"
"					 SELECT FROM types JOIN pg_type t USING (oid) JOIN pg_roles r ON r.oid = t.typowner"
"					 WHERE NOT r.rolsuper)"
"		THEN format('Foreign key %I of table %I.%I must be re-created, and a type of its columns belongs to a role"
" that is not a superuser, but table %I.%I belongs to %I.',"
"					f.conname, n.nspname, c.relname, pn.nspname, p.relname, pg_get_userbyid(p.relowner))"
"		WHEN NOT pg_has_role(c.relowner, 'USAGE') THEN"
"			CASE WHEN obj_description(f.oid, 'pg_constraint') IS NOT NULL AND NOT pg_has_role(p.relowner, c.relowner, 'USAGE')"
"				THEN format('Foreign key %I of table %I.%I must be re-created, and has a comment, which only %I may give it.',"
"							f.conname, n.nspname, c.relname, o.rolname)"
"			END"
"		WHEN o.rolsuper"
"		THEN format('Foreign key %I of table %I.%I must be re-created, and is checked with the rights of its"
" owner %I, a superuser, but table %I.%I belongs to %I.',"
"					f.conname, n.nspname, c.relname, o.rolname, pn.nspname, p.relname, pg_get_userbyid(p.relowner))"
"		WHEN NOT has_schema_privilege(c.relowner, pn.oid, 'USAGE')"
"			OR EXISTS (SELECT FROM unnest(f.confkey) AS k (attnum)"
"					   WHERE NOT has_column_privilege(c.relowner, p.oid, k.attnum, 'REFERENCES'))"
"		THEN format('Foreign key %I of table %I.%I must be re-created, and its owner %I is not allowed to reference"
" table %I.%I any more.',"
"					f.conname, n.nspname, c.relname, o.rolname, pn.nspname, p.relname)"
"	END AS obstacle "
"FROM pg_constraint f"
"	JOIN pg_class c ON c.oid = f.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
"	JOIN pg_class p ON p.oid = f.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace"
"	JOIN pg_roles o ON o.oid = c.relowner "
"WHERE f.contype = 'f' AND f.conparentid = 0"
"	AND EXISTS (SELECT FROM ROWS FROM (unnest($1), unnest($2)) AS changing (relid, attnum)"
"				WHERE f.conrelid = relid AND attnum = ANY (f.conkey)"
"					OR f.confrelid = relid AND attnum = ANY (f.confkey)) "
"ORDER BY f.conrelid, f.oid";

/* Run a query over the key's columns, or those whose type changes. */
void
snowflake_convert_query_columns(Conversion *conv, const char *sql, bool of_key)
{
	Oid			types[] = {OIDARRAYOID, INT2ARRAYOID};
	Datum		values[2];
	Datum	   *relids = palloc(sizeof(Datum) * list_length(conv->columns));
	Datum	   *attnums = palloc(sizeof(Datum) * list_length(conv->columns));
	int			n = 0;
	ListCell   *lc;

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		if (of_key ? column->is_key : OidIsValid(column->new_type))
		{
			relids[n] = ObjectIdGetDatum(column->relid);
			attnums[n++] = Int16GetDatum(column->attnum);
		}
	}
	values[0] = PointerGetDatum(construct_array(relids, n, OIDOID, sizeof(Oid),
												true, TYPALIGN_INT));
	values[1] = PointerGetDatum(construct_array(attnums, n, INT2OID, sizeof(int16),
												true, TYPALIGN_SHORT));
	snowflake_convert_query(sql, 2, types, values);
}

/* The type that a column must change to, InvalidOid if it may stay. */
static Oid
needed_type(Conversion *conv, KeyColumn *column)
{
	if (column->is_key)
		return column->type == conv->type || column->type == conv->snowflake_type ?
			InvalidOid : conv->type;

	/*
	 * A column that references the key must be able to hold its values, and
	 * bigint is enough for that.  As a snowflake it might refuse a negative
	 * number that another key, which it references as well, has.
	 */
	return snowflake_convert_is_small_integer(getBaseType(column->type)) ? INT8OID : InvalidOid;
}

void
snowflake_convert_collect_columns(Conversion *conv)
{
	Oid			types[] = {OIDOID, NAMEOID, OIDOID};
	NameData	name;
	Datum		values[3];

	namestrcpy(&name, conv->column);
	values[0] = ObjectIdGetDatum(conv->relid);
	values[1] = NameGetDatum(&name);
	values[2] = ObjectIdGetDatum(conv->next_function);
	snowflake_convert_query(columns_query, 3, types, values);

	conv->columns = NIL;
	conv->key = NULL;
	conv->sets_default = false;
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		KeyColumn  *column = palloc0(sizeof(KeyColumn));
		bool		isnull;

		column->relid = snowflake_convert_oid(row, "relid");
		column->attnum = DatumGetInt16(snowflake_convert_value(row, "attnum", &isnull));
		column->name = snowflake_convert_text(row, "attname");
		column->relname = snowflake_convert_text(row, "relname");
		column->table = snowflake_convert_text(row, "qualified");
		column->owner = snowflake_convert_oid(row, "relowner");
		column->relkind = snowflake_convert_char(row, "relkind");
		column->is_key = snowflake_convert_bool(row, "is_key");
		column->is_top = snowflake_convert_bool(row, "is_top");
		column->is_owner = snowflake_convert_bool(row, "is_owner");
		column->type = snowflake_convert_oid(row, "atttypid");
		column->type_name = snowflake_convert_text(row, "type_name");
		column->identity = snowflake_convert_char(row, "attidentity");
		column->generated = snowflake_convert_char(row, "attgenerated");
		column->default_expr = snowflake_convert_text(row, "default_expr");
		column->fills_itself = snowflake_convert_bool(row, "fills_itself") && column->identity == '\0';
		column->references = snowflake_convert_text(row, "referenced");
		column->obstacle = snowflake_convert_text(row, "obstacle");
		column->bounds_partitions = snowflake_convert_bool(row, "bounds_partitions");
		column->new_type = needed_type(conv, column);

		conv->columns = lappend(conv->columns, column);
		if (column->is_key && column->relid == conv->relid)
			conv->key = column;
		if (column->is_key && !column->fills_itself)
			conv->sets_default = true;
	}
	if (conv->key == NULL)
		elog(ERROR, "could not find column \"%s\" of relation %u",
			 conv->column, conv->relid);
}

void
snowflake_convert_collect_sequences(Conversion *conv)
{
	snowflake_convert_query_columns(conv, sequences_query, true);
	conv->sequences = NIL;
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		KeySequence *sequence = palloc0(sizeof(KeySequence));

		sequence->relid = snowflake_convert_oid(row, "relid");
		sequence->name = snowflake_convert_text(row, "qualified");
		sequence->owner = snowflake_convert_oid(row, "relowner");
		sequence->is_owned = snowflake_convert_bool(row, "owned");
		sequence->is_used = snowflake_convert_bool(row, "used");
		sequence->identity_of = snowflake_convert_oid(row, "identity_of");
		sequence->is_remnant = snowflake_convert_bool(row, "is_remnant");
		sequence->extension = snowflake_convert_text(row, "extension");
		sequence->dependents = snowflake_convert_text(row, "dependents");
		conv->sequences = lappend(conv->sequences, sequence);
	}
}

/* Needs the columns. */
void
snowflake_convert_collect_references(Conversion *conv)
{
	snowflake_convert_query_columns(conv, references_query, false);
	conv->references = NIL;
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		KeyReference *reference = palloc0(sizeof(KeyReference));

		reference->oid = snowflake_convert_oid(row, "oid");
		reference->relid = snowflake_convert_oid(row, "conrelid");
		reference->referenced = snowflake_convert_oid(row, "confrelid");
		reference->owner = snowflake_convert_oid(row, "relowner");
		reference->name = snowflake_convert_text(row, "conname");
		reference->table = snowflake_convert_text(row, "qualified");
		reference->definition = snowflake_convert_text(row, "definition");
		reference->comment = snowflake_convert_text(row, "comment");
		reference->is_set_aside = snowflake_convert_bool(row, "is_set_aside");
		reference->obstacle = snowflake_convert_text(row, "obstacle");
		conv->references = lappend(conv->references, reference);
	}
}
