/*-------------------------------------------------------------------------
 *
 * obstacles.c
 *	  The obstacles to a conversion.
 *
 * Anything that PostgreSQL would refuse in the middle is refused before anything
 * is altered, so that a conversion succeeds if its dry run does.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "convert/convert.h"
#include "convert/query.h"

/*
 * Objects that PostgreSQL does not re-create when the columns' types change: all
 * but indexes, statistics, constraints and the columns' own defaults.
 */
static const char *obstacles_query =
"SELECT string_agg(DISTINCT format('%s depends on column %I of table %s.',"
"		pg_describe_object(d.classid, d.objid, d.objsubid), a.attname, a.attrelid::regclass), E'\\n') AS obstacles "
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
 * TimescaleDB cuts tables into chunks by a column that PostgreSQL knows nothing
 * of, and fails in the middle if that becomes a snowflake.  Anybody may own
 * relations of these names, so they have to be that extension's.
 */
static const char *has_timescaledb_query =
"SELECT count(*) = 2 AS has_it "
"FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
"	JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'"
"	JOIN pg_extension x ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = x.oid "
"WHERE n.nspname = '_timescaledb_catalog' AND c.relname IN ('dimension', 'hypertable') AND x.extname = 'timescaledb'";

static const char *dimensions_query =
"SELECT min(format('TimescaleDB divides table %s by column %I.', a.attrelid::regclass, a.attname)) AS obstacle "
"FROM ROWS FROM (unnest($1), unnest($2)) AS k (relid, attnum)"
"	JOIN pg_attribute a ON a.attrelid = k.relid AND a.attnum = k.attnum"
"	JOIN pg_class c ON c.oid = k.relid JOIN pg_namespace n ON n.oid = c.relnamespace"
"	JOIN _timescaledb_catalog.hypertable h ON h.schema_name = n.nspname AND h.table_name = c.relname"
"	JOIN _timescaledb_catalog.dimension d ON d.hypertable_id = h.id AND d.column_name = a.attname";

/*
 * What Citus would refuse: to alter the column by which it distributes a table, which
 * it has written down as the text of a Var, and to change the type of a column that
 * owns a sequence.
 */
static const char *citus_distribution_query =
"SELECT string_agg(DISTINCT format('Citus distributes table %s by column %I.',"
"		a.attrelid::regclass, a.attname), E'\n') AS obstacles "
"FROM ROWS FROM (unnest($1), unnest($2)) AS c (relid, attnum)"
"	JOIN pg_attribute a ON a.attrelid = c.relid AND a.attnum = c.attnum"
"	JOIN pg_dist_partition p ON p.logicalrelid = c.relid "
"WHERE substring(p.partkey FROM ':varattno (\\d+)')::int2 = c.attnum";

static const char *citus_sequence_query =
"SELECT string_agg(DISTINCT format('Citus has distributed table %s, whose column %I owns a sequence.',"
"		a.attrelid::regclass, a.attname), E'\n') AS obstacles "
"FROM ROWS FROM (unnest($1), unnest($2)) AS c (relid, attnum)"
"	JOIN pg_attribute a ON a.attrelid = c.relid AND a.attnum = c.attnum"
"	JOIN pg_dist_partition p ON p.logicalrelid = c.relid"
"	JOIN pg_depend d"
"		ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.relid AND d.refobjsubid = c.attnum"
"		AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')"
"	JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'";

/*
 * Raise the error that a column cannot be converted, with the reason as its
 * detail; the hint may be NULL.
 */
void
snowflake_convert_refuse(Conversion *conv, int sqlstate, const char *reason, const char *hint)
{
	ereport(ERROR,
			errcode(sqlstate),
			errmsg("cannot convert column \"%s\" of table \"%s\" to snowflakes",
				   conv->column, get_rel_name(conv->relid)),
			errdetail_internal("%s", reason),
			hint ? errhint("%s", hint) : 0);
}

/* What can be said of the table and the column before anything is collected. */
void
snowflake_convert_check_table(Conversion *conv)
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
		snowflake_convert_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED,
								 "It is a temporary table of another session.", NULL);
	if (get_attnum(conv->relid, conv->column) == InvalidAttrNumber)
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_COLUMN),
				errmsg("column \"%s\" of relation \"%s\" does not exist",
					   conv->column, relname));
	if (get_attnum(conv->relid, conv->column) < 0)
		snowflake_convert_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED, "It is a system column.", NULL);
}

/* InvalidOid: the table is gone; that is found out when it is to be locked. */
Oid
snowflake_convert_table_owner(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}

static char *
table_name(Oid relid)
{
	char	   *schema = get_namespace_name(get_rel_namespace(relid));
	char	   *name = get_rel_name(relid);

	/* a child is looked at without a lock */
	if (schema == NULL || name == NULL)
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_TABLE),
				errmsg("relation with OID %u was dropped", relid));
	return quote_qualified_identifier(schema, name);
}

/*
 * A tree of tables is altered and read with the rights of one owner, so it must
 * have one: what another one says should run there would run with these.
 */
static void
check_owners(Conversion *conv, Oid top)
{
	Oid			owner = snowflake_convert_table_owner(top);
	ListCell   *lc;

	foreach(lc, find_all_inheritors(top, NoLock, NULL))
	{
		Oid			relid = lfirst_oid(lc);
		Oid			other = snowflake_convert_table_owner(relid);

		if (OidIsValid(other) && other != owner)
			snowflake_convert_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED,
									 psprintf("Table %s belongs to %s, but table %s, which inherits from it, to %s.",
											  table_name(top), GetUserNameFromId(owner, false),
											  table_name(relid),
											  GetUserNameFromId(other, false)),
									 "Give both tables the same owner, at least until the conversion is done.");
	}
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

		if (!snowflake_convert_alters(conv, top))
			continue;
		check_owners(conv, top->relid);
		relids = find_all_inheritors(top->relid, NoLock, NULL);
		foreach(lc2, conv->columns)
		{
			KeyColumn  *column = lfirst(lc2);

			if (strcmp(column->name, top->name) != 0 ||
				!list_member_oid(relids, column->relid))
				continue;
			if (OidIsValid(column->top))
				snowflake_convert_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED,
										 psprintf("Column \"%s\" of table %s is inherited from several tables.",
												  column->name, column->table), NULL);
			column->top = top->relid;
		}
	}
}

/* The owners need to find what their statements name. */
static void
check_privileges(Conversion *conv)
{
	Oid			extension = get_func_namespace(conv->next_function);
	ListCell   *lc;

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);
		Oid			needed[] = {get_rel_namespace(column->relid), extension};

		if (!snowflake_convert_alters(conv, column))
			continue;
		for (int i = 0; i < (int) lengthof(needed); i++)
			if (object_aclcheck(NamespaceRelationId, needed[i], column->owner, ACL_USAGE) != ACLCHECK_OK)
				snowflake_convert_refuse(conv, ERRCODE_INSUFFICIENT_PRIVILEGE,
										 psprintf("Role %s, which owns table %s, has no USAGE privilege on schema %s.",
												  GetUserNameFromId(column->owner, false), column->table,
												  get_namespace_name(needed[i])), NULL);
	}
}

static void
check_references(Conversion *conv)
{
	ListCell   *lc;

	foreach(lc, conv->references)
	{
		KeyReference *reference = lfirst(lc);

		check_owners(conv, reference->relid);
		check_owners(conv, reference->referenced);
		if (reference->obstacle != NULL)
			snowflake_convert_refuse(conv, ERRCODE_INSUFFICIENT_PRIVILEGE, reference->obstacle,
									 "Fix that, or drop the foreign key, convert, and create it again, in one transaction.");
	}
}

static void
check_sequences(Conversion *conv)
{
	ListCell   *lc;

	foreach(lc, conv->sequences)
	{
		KeySequence *sequence = lfirst(lc);

		if (OidIsValid(sequence->identity_of) && sequence->extension != NULL)
			snowflake_convert_refuse(conv, ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST,
									 psprintf("It is an identity column, and its sequence %s belongs to extension \"%s\".",
											  sequence->name, sequence->extension), NULL);
		if (OidIsValid(sequence->identity_of) && sequence->dependents != NULL)
			snowflake_convert_refuse(conv, ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST,
									 psprintf("It is an identity column, and its sequence %s is also used by: %s.",
											  sequence->name, sequence->dependents), NULL);
	}
}

static void
check_timescaledb(Conversion *conv)
{
	if (conv->key->new_type != conv->snowflake_type)
		return;
	snowflake_convert_query(has_timescaledb_query, 0, NULL, NULL);
	if (!snowflake_convert_bool(0, "has_it"))
		return;
	snowflake_convert_query_columns(conv, dimensions_query, true);
	if (snowflake_convert_text(0, "obstacle") != NULL)
		snowflake_convert_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED,
								 snowflake_convert_text(0, "obstacle"),
								 "As a bigint the column can be filled with snowflakes.");
}

static void
check_citus(Conversion *conv)
{
	const struct
	{
		const char *query;
		bool		of_key;
	}			checks[] = {
		{citus_distribution_query, true},
		{citus_distribution_query, false},
		{citus_sequence_query, false},
	};

	if (!OidIsValid(get_extension_oid("citus", true)))
		return;
	for (int i = 0; i < (int) lengthof(checks); i++)
	{
		snowflake_convert_query_columns(conv, checks[i].query, checks[i].of_key);
		if (snowflake_convert_text(0, "obstacles") != NULL)
			snowflake_convert_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED, snowflake_convert_text(0, "obstacles"),
									 "Call undistribute_table(), convert, and distribute the table again.");
	}
}

/* What can be said of all that was collected. */
void
snowflake_convert_check_columns(Conversion *conv)
{
	KeyColumn  *key = conv->key;
	ListCell   *lc;

	/* rights first: a role without them learns nothing, and locks nothing */
	if (!key->is_owner)
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, key->relname);

	if (!key->is_top)
	{
		foreach(lc, conv->columns)
		{
			KeyColumn  *column = lfirst(lc);

			if (column->is_key && column->is_top)
				snowflake_convert_refuse(conv, ERRCODE_WRONG_OBJECT_TYPE,
										 psprintf("The column is inherited from table %s.", column->table),
										 psprintf("Convert the column of table %s: that includes this one.",
												  column->table));
		}
	}
	if (key->generated != '\0')
		snowflake_convert_refuse(conv, ERRCODE_WRONG_OBJECT_TYPE, "It is a generated column.", NULL);
	if (!snowflake_convert_is_small_integer(key->type) && key->type != INT8OID &&
		key->type != conv->snowflake_type)
		snowflake_convert_refuse(conv, ERRCODE_DATATYPE_MISMATCH,
								 psprintf("Its type is %s, not smallint, integer, bigint or snowflake.",
										  key->type_name), NULL);

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		if (column->is_key && column->references != NULL)
			snowflake_convert_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED,
									 psprintf("The column references table %s, so its values come from there.",
											  column->references),
									 "Convert the column that it references: that includes this one, as far as needed.");

		/*
		 * another server goes on filling the one, and the other cannot be
		 * altered
		 */
		if (column->is_key && (column->relkind == RELKIND_FOREIGN_TABLE ||
							   isOtherTempNamespace(get_rel_namespace(column->relid))))
			snowflake_convert_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED, column->obstacle, NULL);
		if (!column->is_owner &&
			(OidIsValid(column->new_type) || (column->is_key && conv->sets_default)))
			aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, column->relname);
		if (!OidIsValid(column->new_type))
			continue;
		if (!column->is_key && getBaseType(column->type) != column->type)
			snowflake_convert_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED,
									 psprintf("Column \"%s\" of table %s, which references it, is of the domain %s over %s.",
											  column->name, column->table, column->type_name,
											  format_type_be(getBaseType(column->type))),
									 "Change the type of that column to bigint first, or to a domain over bigint.");
		if (column->obstacle != NULL)
			snowflake_convert_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED, column->obstacle, NULL);
	}

	check_owners(conv, conv->relid);
	check_inheritance(conv);
	check_privileges(conv);

	snowflake_convert_query_columns(conv, obstacles_query, false);
	if (snowflake_convert_text(0, "obstacles") != NULL)
		snowflake_convert_refuse(conv, ERRCODE_FEATURE_NOT_SUPPORTED, snowflake_convert_text(0, "obstacles"),
								 "Types of columns would have to change. Drop what depends on them, convert, and create it again, in one transaction.");

	check_timescaledb(conv);
	check_citus(conv);
	check_references(conv);
	check_sequences(conv);
}
