/*-------------------------------------------------------------------------
 *
 * convert_facts.c
 *	  What hangs together with a key that is to be converted, what stands in the
 *	  way, and the locks.
 *
 * The facts are read by queries with a snapshot of their own, which sees what
 * has been committed when the locks were granted, at any isolation level, and
 * with a search_path of pg_catalog.
 *
 * Locks: ACCESS EXCLUSIVE on every table that a statement will alter or whose
 * foreign key it will make anew, before anything is altered.  The facts are
 * read without locks first, to know what to lock, and again with them; what
 * turns up only then is locked as well, until nothing new does.  Trees of
 * tables are locked in the order of their topmost tables' OIDs, parents before
 * children, so two conversions cannot block each other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "convert.h"

/*
 * Run a query with a snapshot of its own; the result is in SPI_tuptable.  It
 * sees what is committed now, even if the transaction's own snapshot is older.
 */
void
snowflake_query(const char *sql, int nargs, Oid *types, Datum *values)
{
	SPIPlanPtr	plan = SPI_prepare(sql, nargs, types);

	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	if (SPI_execute_snapshot(plan, values, NULL, GetLatestSnapshot(),
							 InvalidSnapshot, true, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "query failed: %s", sql);
	SPI_freeplan(plan);
}

/* A value of the result; columns count from 0. */
static Datum
value(uint64 row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc,
						 column + 1, isnull);
}

static Oid
oid_value(uint64 row, int column)
{
	bool		isnull;
	Datum		datum = value(row, column, &isnull);

	return isnull ? InvalidOid : DatumGetObjectId(datum);
}

static bool
bool_value(uint64 row, int column)
{
	bool		isnull;
	Datum		datum = value(row, column, &isnull);

	return !isnull && DatumGetBool(datum);
}

/* NULL if it is null */
static char *
text_value(uint64 row, int column)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column + 1);
}

/*
 * Raise the error that a column cannot be converted, with the reason as its
 * detail; the hint may be NULL.
 */
void
snowflake_refuse(Conversion *conv, int sqlstate, const char *reason, const char *hint)
{
	ereport(ERROR,
			errcode(sqlstate),
			errmsg("cannot convert column \"%s\" of table \"%s\" to snowflakes",
				   conv->column, get_rel_name(conv->relid)),
			errdetail_internal("%s", reason),
			hint ? errhint("%s", hint) : 0);
}


/*
 * What there is
 */

/*
 * The column $2 of table $1 and what hangs together with it.  Going up from a
 * child to its parents matters for the columns that reference the key: their
 * type is changed where it is inherited from.
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
") "
"SELECT a.attrelid, a.attnum::int4, a.attname, c.relname,"
"	format('%I.%I', n.nspname, c.relname), c.relkind, t.is_key,"
"	NOT EXISTS (SELECT FROM pg_inherits i JOIN pg_attribute p ON p.attrelid = i.inhparent"
"				WHERE i.inhrelid = a.attrelid AND p.attname = a.attname AND NOT p.attisdropped),"
"	pg_has_role(c.relowner, 'USAGE'), a.atttypid, format_type(a.atttypid, a.atttypmod),"
"	a.attidentity, a.attgenerated, pg_get_expr(d.adbin, d.adrelid),"
"	pg_get_expr(d.adbin, d.adrelid) IS NOT DISTINCT FROM $3::regprocedure::text,"
"	(SELECT min(f.confrelid::regclass::text) FROM pg_constraint f"
"	 WHERE f.contype = 'f' AND f.conrelid = a.attrelid AND a.attnum = ANY (f.conkey)),"
"	CASE WHEN c.relkind = 'f' THEN format('%I.%I is a foreign table.', n.nspname, c.relname)"
"		WHEN c.reloftype <> 0 THEN format('%I.%I is a typed table.', n.nspname, c.relname)"
"		WHEN EXISTS (SELECT FROM pg_depend p"
"					 WHERE p.classid = 'pg_class'::regclass AND p.objid = c.oid AND p.objsubid = a.attnum"
"						AND p.refclassid = p.classid AND p.refobjid = c.oid AND p.refobjsubid = 0"
"						AND p.deptype = 'i')"
"			THEN format('Its type would change, and column %I is part of the partition key of %I.%I.',"
"						a.attname, n.nspname, c.relname)"
"	END,"
"	EXISTS (SELECT FROM pg_partitioned_table p"
"			WHERE p.partrelid = c.oid AND p.partstrat <> 'h' AND a.attnum = ANY (p.partattrs)) "
"FROM (SELECT relid, name, bool_or(is_key) AS is_key FROM touched GROUP BY relid, name) t"
"	JOIN pg_attribute a ON a.attrelid = t.relid AND a.attname = t.name"
"	JOIN pg_class c ON c.oid = a.attrelid"
"	JOIN pg_namespace n ON n.oid = c.relnamespace"
"	LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
"WHERE a.attnum > 0 AND NOT a.attisdropped "
"ORDER BY a.attrelid, a.attnum";

/*
 * Sequences that the columns own or take their defaults from.  What else
 * depends on one does so normally; its owner depends the other way round.
 */
static const char *sequences_query =
"WITH keys AS ("
"	SELECT k.relid, k.attnum, d.oid AS adoid"
"	FROM ROWS FROM (unnest($1), unnest($2)) AS k (relid, attnum)"
"		LEFT JOIN pg_attrdef d ON d.adrelid = k.relid AND d.adnum = k.attnum"
"), linked AS ("
"	SELECT d.objid AS seq, true AS owned, false AS used,"
"		CASE WHEN d.deptype = 'i' THEN k.relid END AS identity_of"
"	FROM keys k JOIN pg_depend d"
"		ON d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum"
"	WHERE d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')"
"  UNION ALL"
"	SELECT d.refobjid, false, true, NULL"
"	FROM keys k JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = k.adoid"
"	WHERE d.refclassid = 'pg_class'::regclass"
") "
"SELECT s.oid, format('%I.%I', n.nspname, s.relname),"
"	bool_or(l.owned), bool_or(l.used), max(l.identity_of),"
"	(SELECT string_agg(pg_describe_object(d.classid, d.objid, d.objsubid), ', '"
"					   ORDER BY d.classid, d.objid)"
"	 FROM pg_depend d"
"	 WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = s.oid AND d.deptype = 'n'"
"		AND NOT EXISTS (SELECT FROM keys k"
"						WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = k.adoid)) "
"FROM linked l JOIN pg_class s ON s.oid = l.seq AND s.relkind = 'S'"
"	JOIN pg_namespace n ON n.oid = s.relnamespace "
"GROUP BY s.oid, n.nspname, s.relname "
"ORDER BY s.oid";

/*
 * What PostgreSQL does not make anew when the columns' types change: anything
 * but indexes, statistics, constraints and the columns' own defaults.
 */
static const char *obstacles_query =
"SELECT string_agg(DISTINCT format('%s depends on column %I of table %s.',"
"		pg_describe_object(d.classid, d.objid, d.objsubid), a.attname, a.attrelid::regclass), E'\\n') "
"FROM ROWS FROM (unnest($1), unnest($2)) AS c (relid, attnum)"
"	JOIN pg_attribute a ON a.attrelid = c.relid AND a.attnum = c.attnum"
"	JOIN pg_depend d"
"		ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.relid AND d.refobjsubid = c.attnum "
"WHERE d.classid IN ('pg_rewrite'::regclass, 'pg_policy'::regclass, 'pg_trigger'::regclass,"
"					'pg_proc'::regclass, 'pg_publication_rel'::regclass)"
"	OR (d.classid = 'pg_attrdef'::regclass"
"		AND NOT EXISTS (SELECT FROM pg_attrdef own"
"						WHERE own.oid = d.objid AND own.adrelid = c.relid AND own.adnum = c.attnum))";

/*
 * The tables at both ends of the foreign keys that the columns are part of.
 * Those of partitions come with their parents'.
 */
static const char *foreign_keys_query =
"WITH changing AS (SELECT relid, attnum FROM ROWS FROM (unnest($1), unnest($2)) AS c (relid, attnum)) "
"SELECT e.relid FROM changing c JOIN pg_constraint f"
"	ON f.conrelid = c.relid AND c.attnum = ANY (f.conkey),"
"	LATERAL (VALUES (f.conrelid), (f.confrelid)) AS e (relid) "
"WHERE f.contype = 'f' AND f.conparentid = 0 "
"UNION "
"SELECT e.relid FROM changing c JOIN pg_constraint f"
"	ON f.confrelid = c.relid AND c.attnum = ANY (f.confkey),"
"	LATERAL (VALUES (f.conrelid), (f.confrelid)) AS e (relid) "
"WHERE f.contype = 'f' AND f.conparentid = 0 "
"ORDER BY 1";

/* Run a query over the key's columns, or those whose type changes. */
static void
query_columns(Conversion *conv, const char *sql, bool of_key)
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
	snowflake_query(sql, 2, types, values);
}

static bool
is_small_integer(Oid type)
{
	return type == INT2OID || type == INT4OID;
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
	 * bigint is enough for that.  It must not become a snowflake: it might
	 * reference another key, too, that stays a bigint.
	 */
	return is_small_integer(getBaseType(column->type)) ? INT8OID : InvalidOid;
}

static void
collect_columns(Conversion *conv)
{
	Oid			types[] = {OIDOID, NAMEOID, OIDOID};
	NameData	name;
	Datum		values[3];

	namestrcpy(&name, conv->column);
	values[0] = ObjectIdGetDatum(conv->relid);
	values[1] = NameGetDatum(&name);
	values[2] = ObjectIdGetDatum(conv->next_function);
	snowflake_query(columns_query, 3, types, values);

	conv->columns = NIL;
	conv->key = NULL;
	conv->sets_default = false;
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		KeyColumn  *column = palloc0(sizeof(KeyColumn));
		bool		isnull;

		column->relid = oid_value(row, 0);
		column->attnum = (AttrNumber) DatumGetInt32(value(row, 1, &isnull));
		column->name = text_value(row, 2);
		column->relname = text_value(row, 3);
		column->table = text_value(row, 4);
		column->relkind = DatumGetChar(value(row, 5, &isnull));
		column->is_key = bool_value(row, 6);
		column->is_top = bool_value(row, 7);
		column->is_owner = bool_value(row, 8);
		column->type = oid_value(row, 9);
		column->type_name = text_value(row, 10);
		column->identity = DatumGetChar(value(row, 11, &isnull));
		column->generated = DatumGetChar(value(row, 12, &isnull));
		column->default_expr = text_value(row, 13);
		column->fills_itself = bool_value(row, 14) && column->identity == '\0';
		column->references = text_value(row, 15);
		column->obstacle = text_value(row, 16);
		column->bounds_partitions = bool_value(row, 17);
		column->new_type = needed_type(conv, column);

		conv->columns = lappend(conv->columns, column);
		if (column->is_key && column->relid == conv->relid)
			conv->key = column;
		if (column->is_key && !column->fills_itself)
			conv->sets_default = true;
	}
}

static void
collect_sequences(Conversion *conv)
{
	query_columns(conv, sequences_query, true);
	conv->sequences = NIL;
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		KeySequence *sequence = palloc0(sizeof(KeySequence));

		sequence->relid = oid_value(row, 0);
		sequence->name = text_value(row, 1);
		sequence->is_owned = bool_value(row, 2);
		sequence->is_used = bool_value(row, 3);
		sequence->identity_of = oid_value(row, 4);
		sequence->dependents = text_value(row, 5);
		conv->sequences = lappend(conv->sequences, sequence);
	}
}


/*
 * What cannot be done
 */

static void
check_table(Conversion *conv)
{
	char		relkind = get_rel_relkind(conv->relid);
	char	   *relname = get_rel_name(conv->relid);

	if (relname == NULL)
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_TABLE),
				errmsg("relation with OID %u does not exist", conv->relid));
	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				errcode(ERRCODE_WRONG_OBJECT_TYPE),
				errmsg("cannot convert a column of relation \"%s\" to snowflakes",
					   relname),
				errdetail("Only tables and partitioned tables have keys that can be converted."));
	if (conv->relid < FirstNormalObjectId)
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied: \"%s\" is a system catalog", relname));
	if (isOtherTempNamespace(get_rel_namespace(conv->relid)))
		snowflake_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED,
						 "It is a temporary table of another session.", NULL);
	if (get_attnum(conv->relid, conv->column) == InvalidAttrNumber)
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_COLUMN),
				errmsg("column \"%s\" of relation \"%s\" does not exist",
					   conv->column, relname));
	if (get_attnum(conv->relid, conv->column) < 0)
		snowflake_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED, "It is a system column.", NULL);
}

/*
 * A column that is inherited from two tables at once cannot be altered at one
 * of them.  One that comes from the same table on two ways can.
 */
static void
check_inheritance(Conversion *conv)
{
	ListCell   *lc,
			   *lc2;

	foreach(lc, conv->columns)
	{
		KeyColumn  *top = lfirst(lc);
		List	   *relids;

		if (!snowflake_alters(conv, top))
			continue;
		relids = find_all_inheritors(top->relid, NoLock, NULL);
		foreach(lc2, conv->columns)
		{
			KeyColumn  *column = lfirst(lc2);

			if (strcmp(column->name, top->name) != 0 ||
				!list_member_oid(relids, column->relid))
				continue;
			if (OidIsValid(column->top))
				snowflake_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED,
								 psprintf("Column \"%s\" of table %s is inherited from several tables.",
										  column->name, column->table), NULL);
			column->top = top->relid;
		}
	}
}

static void
check_columns(Conversion *conv)
{
	KeyColumn  *key = conv->key;
	ListCell   *lc;

	/* rights first: who has none learns nothing, and locks nothing */
	if (!key->is_owner)
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, key->relname);

	if (!key->is_top)
	{
		foreach(lc, conv->columns)
		{
			KeyColumn  *column = lfirst(lc);

			if (column->is_key && column->is_top)
				snowflake_refuse(conv, ERRCODE_WRONG_OBJECT_TYPE,
								 psprintf("The column is inherited from table %s.", column->table),
								 psprintf("Convert the column of table %s: that includes this one.",
										  column->table));
		}
	}
	if (key->generated != '\0')
		snowflake_refuse(conv, ERRCODE_WRONG_OBJECT_TYPE, "It is a generated column.", NULL);
	if (!is_small_integer(key->type) && key->type != INT8OID &&
		key->type != conv->snowflake_type)
		snowflake_refuse(conv, ERRCODE_DATATYPE_MISMATCH,
						 psprintf("Its type is %s, not smallint, integer, bigint or snowflake.",
								  key->type_name), NULL);

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		if (column->is_key && column->references != NULL)
			snowflake_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED,
							 psprintf("The column references table %s, so its values come from there.",
									  column->references),
							 "Convert the column that it references: that includes this one, as far as needed.");
		if (column->is_key && column->relkind == RELKIND_FOREIGN_TABLE)
			snowflake_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED, column->obstacle, NULL);
		if (!column->is_owner &&
			(OidIsValid(column->new_type) || (column->is_key && conv->sets_default)))
			aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, column->relname);
		if (!OidIsValid(column->new_type))
			continue;
		if (!column->is_key && getBaseType(column->type) != column->type)
			snowflake_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED,
							 psprintf("Column \"%s\" of table %s, which references it, is of the domain %s over %s.",
									  column->name, column->table, column->type_name,
									  format_type_be(getBaseType(column->type))),
							 "Change the type of that column to bigint first, or to a domain over bigint.");
		if (column->obstacle != NULL)
			snowflake_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED, column->obstacle, NULL);
	}

	check_inheritance(conv);

	query_columns(conv, obstacles_query, false);
	if (text_value(0, 0) != NULL)
		snowflake_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED, text_value(0, 0),
						 "Types of columns would have to change. Drop what depends on them, convert, and create it again, in one transaction.");

	foreach(lc, conv->sequences)
	{
		KeySequence *sequence = lfirst(lc);

		if (OidIsValid(sequence->identity_of) && sequence->dependents != NULL)
			snowflake_refuse(conv, ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST,
							 psprintf("It is an identity column, and its sequence %s is also used by: %s.",
									  sequence->name, sequence->dependents), NULL);
	}
}

/* Find out all that there is to know, with a safe search_path. */
void
snowflake_collect(Conversion *conv)
{
	int			nest_level = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	check_table(conv);
	collect_columns(conv);
	if (conv->key == NULL)
		elog(ERROR, "could not find column \"%s\" of relation %u",
			 conv->column, conv->relid);
	collect_sequences(conv);
	check_columns(conv);
	AtEOXact_GUC(false, nest_level);
}


/*
 * Locks
 */

static bool
lock(Conversion *conv, Oid relid)
{
	if (list_member_oid(conv->locked, relid))
		return false;
	LockRelationOid(relid, conv->dry_run ? AccessShareLock : AccessExclusiveLock);
	conv->locked = lappend_oid(conv->locked, relid);
	return true;
}

/*
 * Lock what will be altered, and tables whose foreign keys will be made anew
 * by that.  Returns whether anything was not locked before.
 */
bool
snowflake_lock_collected(Conversion *conv)
{
	LOCKMODE	mode = conv->dry_run ? AccessShareLock : AccessExclusiveLock;
	List	   *tops = NIL;
	bool		locked_any = false;
	ListCell   *lc;

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		if (snowflake_alters(conv, column))
			tops = list_append_unique_oid(tops, column->relid);
	}
	query_columns(conv, foreign_keys_query, false);
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		Oid			relid = oid_value(row, 0);
		bool		below = false;

		/* what is altered is locked with the table where it is */
		foreach(lc, conv->columns)
		{
			KeyColumn  *column = lfirst(lc);

			if (column->relid == relid && OidIsValid(column->top))
				below = true;
		}
		if (!below)
			tops = list_append_unique_oid(tops, relid);
	}
	list_sort(tops, list_oid_cmp);

	foreach(lc, tops)
	{
		Oid			top = lfirst_oid(lc);
		ListCell   *child;

		locked_any |= lock(conv, top);
		foreach(child, find_all_inheritors(top, mode, NULL))
			locked_any |= lock(conv, lfirst_oid(child));
	}
	foreach(lc, conv->sequences)
	{
		KeySequence *sequence = lfirst(lc);

		if (OidIsValid(sequence->identity_of) || snowflake_drops(sequence))
			locked_any |= lock(conv, sequence->relid);
	}
	return locked_any;
}
