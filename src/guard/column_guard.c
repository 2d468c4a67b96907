/*-------------------------------------------------------------------------
 *
 * column_guard.c
 *	  No column of the extension's types is dropped along with the extension.
 *
 * DROP EXTENSION snowflake fails while there are columns of its types, and core's
 * hint is to add CASCADE.  That drops the columns: the primary keys of all tables,
 * with a line of notice each.  So do a DROP SCHEMA and a DROP OWNED with CASCADE
 * that drop the extension.  This file gives the first a better hint, and makes the
 * others an error.
 *
 * Core finds out what is dropped: it calls a hook for each object, just
 * before that is dropped, dependents first.  It reports a column only if its table
 * stays.  A table that is dropped as a whole, though neither it nor a parent of it was
 * named, has something of the extension in its partition key.  The extension comes last, so the
 * objects reported before it would be lost with it.  A command that drops a schema, or
 * all that a role owns, is meant to drop the tables there.
 *
 * No lock is taken.  The error rolls back all drops until then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "base/compat.h"
#include "guard/column_guard.h"

#define EXTENSION		"snowflake"

/* How many columns and tables an error shows. */
#define SHOWN_LOSSES	10

/* A partitioned table that was dropped. */
typedef struct DroppedTable
{
	Oid			relid;
	Oid			parent;			/* or InvalidOid if it was no partition */
	const char *loss;			/* what is said of it, or NULL if that was
								 * meant */
} DroppedTable;

/* A statement that drops, while it runs. */
typedef struct Drop
{
	Node	   *statement;
	List	   *tables;			/* of DroppedTable, so far */
	int			losses;			/* columns and tables, so far */
	StringInfoData shown;		/* a line for each of the first */
	char	   *remedy;			/* a statement for the first column, or NULL */
} Drop;

static Drop *running_drop = NULL;

static ProcessUtility_hook_type next_process_utility = NULL;
static object_access_hook_type next_object_access = NULL;

/* Is it a type of this extension, or made of one: a domain, array or range? */
static bool
is_of_extension(Oid type, Oid extension)
{
	while (OidIsValid(type))
	{
		Oid			base = getBaseType(type);

		/* snowflake_time is a domain itself */
		if (getExtensionOfObject(TypeRelationId, type) == extension ||
			getExtensionOfObject(TypeRelationId, base) == extension)
			return true;
		if (OidIsValid(get_element_type(base)))
			type = get_element_type(base);
		else if (OidIsValid(get_multirange_range(base)))
			type = get_multirange_range(base);
		else
			type = get_range_subtype(base);
	}
	return false;
}

/* Is a table dropped because it was asked for, and not for its column's sake? */
static bool
is_meant(Node *statement, Oid relid)
{
	ListCell   *lc;

	if (IsA(statement, DropOwnedStmt))
	{
		HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
		Oid			owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;

		ReleaseSysCache(tuple);
		foreach(lc, castNode(DropOwnedStmt, statement)->roles)
			if (get_rolespec_oid(lfirst(lc), true) == owner)
			return true;
	}
	else if (castNode(DropStmt, statement)->removeType == OBJECT_SCHEMA)
	{
		foreach(lc, castNode(DropStmt, statement)->objects)
			if (get_namespace_oid(strVal(lfirst(lc)), true) == get_rel_namespace(relid))
			return true;
	}
	return false;
}

/* Note something that would be lost; what is said of it is a sentence. */
static void
note_loss(Drop *drop, const char *sentence)
{
	if (drop->losses++ == 0)
		initStringInfo(&drop->shown);
	if (drop->losses <= SHOWN_LOSSES)
		appendStringInfo(&drop->shown, "%s%s", drop->losses == 1 ? "" : "\n", sentence);
}

static char *
table_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									  get_rel_name(relid));
}

/* What a column of such a type can become, without being rewritten unless it is an array; or NULL. */
static const char *
plain_type(Oid type, Oid extension)
{
	Oid			element = get_base_element_type(type);
	Oid			scalar = OidIsValid(element) ? element : type;
	Oid			base = getBaseType(scalar);

	if (getExtensionOfObject(TypeRelationId, base) == extension)
		base = INT8OID;
	else if (getExtensionOfObject(TypeRelationId, scalar) != extension)
		return NULL;
	return psprintf("%s%s", format_type_be(base), OidIsValid(element) ? "[]" : "");
}

/*
 * A column is about to be dropped, and its table is not.  What is lost of a
 * partition is lost of the table that it is a partition of.
 */
static void
note_column(Drop *drop, Oid relid, AttrNumber attnum, Oid extension)
{
	Oid			type = get_atttype(relid, attnum);
	const char *column,
			   *plain;

	if (!OidIsValid(type) || !is_of_extension(type, extension) ||
		get_rel_relispartition(relid) || is_meant(drop->statement, relid))
		return;
	column = quote_identifier(get_attname(relid, attnum, false));
	if (get_rel_relkind(relid) == RELKIND_COMPOSITE_TYPE)
	{
		note_loss(drop, psprintf("Attribute %s of type %s would be dropped.", column, table_name(relid)));
		return;
	}
	note_loss(drop, psprintf("Column %s of table %s would be dropped.", column, table_name(relid)));
	plain = plain_type(type, extension);
	if (drop->remedy == NULL && plain != NULL)
		drop->remedy = psprintf("ALTER TABLE %s ALTER COLUMN %s DROP DEFAULT, ALTER COLUMN %s TYPE %s;",
								table_name(relid), column, column, plain);
}

/* A partitioned table is about to be dropped.  Its parent may follow. */
static void
note_table(Drop *drop, Oid relid)
{
	DroppedTable *table = palloc(sizeof(DroppedTable));

	table->relid = relid;
	table->parent = get_rel_relispartition(relid) ? get_partition_parent(relid, true) : InvalidOid;
	table->loss = is_meant(drop->statement, relid) ? NULL :
		psprintf("Table %s would be dropped with all partitions, because its partition key depends on the extension.",
				 table_name(relid));
	drop->tables = lappend(drop->tables, table);
}

static bool
was_dropped(const Drop *drop, Oid relid)
{
	ListCell   *lc;

	foreach(lc, drop->tables)
		if (((DroppedTable *) lfirst(lc))->relid == relid)
		return true;
	return false;
}

/*
 * All of the tables are known.  One that was dropped with its parent is lost with that, and
 * one whose parent stays has something of the extension in its own partition key.
 */
static void
note_tables_lost(Drop *drop)
{
	ListCell   *lc;

	foreach(lc, drop->tables)
	{
		DroppedTable *table = lfirst(lc);

		if (table->loss != NULL && !was_dropped(drop, table->parent))
			note_loss(drop, table->loss);
	}
}

static void
look_at_dropped(Drop *drop, Oid class, Oid object, int sub)
{
	Oid			extension = get_extension_oid(EXTENSION, true);

	if (!OidIsValid(extension))
		return;
	if (class == RelationRelationId)
	{
		char		kind = get_rel_relkind(object);

		if (sub > 0 && (kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE ||
						kind == RELKIND_COMPOSITE_TYPE))
			note_column(drop, object, sub, extension);
		else if (sub == 0 && kind == RELKIND_PARTITIONED_TABLE)
			note_table(drop, object);
		return;
	}
	if (class != ExtensionRelationId || object != extension)
		return;

	note_tables_lost(drop);
	if (drop->losses > 0)
		ereport(ERROR,
				errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				errmsg("cannot drop extension \"%s\" because data would be dropped with it", EXTENSION),
				errdetail_internal("%s%s", drop->shown.data,
								   drop->losses <= SHOWN_LOSSES ? "" :
								   psprintf("\n(and %d more)", drop->losses - SHOWN_LOSSES)),
				drop->remedy == NULL ?
				errhint("Re-create what depends on the extension first, with bigint in place of snowflake.") :
				errhint("Convert the columns to core's types first, which rewrites nothing but arrays: %s", drop->remedy));
}

static void
watch_drop(ObjectAccessType access, Oid class, Oid object, int sub, void *argument)
{
	if (next_object_access)
		next_object_access(access, class, object, sub, argument);
	if (access == OAT_DROP && running_drop != NULL)
		look_at_dropped(running_drop, class, object, sub);
}

/* Can the extension be dropped by this statement? */
static bool
may_drop_extension(Node *statement)
{
	if (IsA(statement, DropOwnedStmt))
		return true;
	return IsA(statement, DropStmt) &&
		(castNode(DropStmt, statement)->removeType == OBJECT_SCHEMA ||
		 castNode(DropStmt, statement)->removeType == OBJECT_EXTENSION);
}

/*
 * For a DROP EXTENSION of this one that fails since something depends on it:
 * another hint than to add CASCADE.  Nothing is looked up while an error is raised.
 */
static void
replace_hint(void *argument)
{
	DropStmt   *drop = argument;

	if (IsA(drop, DropStmt) && drop->removeType == OBJECT_EXTENSION &&
		drop->behavior == DROP_RESTRICT && list_length(drop->objects) == 1 &&
		strcmp(strVal(linitial(drop->objects)), EXTENSION) == 0 &&
		geterrcode() == ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST)
		errhint("Convert columns of type snowflake to bigint first, which rewrites nothing: ALTER TABLE ... ALTER COLUMN ... DROP DEFAULT, ALTER COLUMN ... TYPE bigint; CASCADE would drop them.");
}

static void
run_utility(PlannedStmt *pstmt, const char *queryString,
			bool readOnlyTree, ProcessUtilityContext context,
			ParamListInfo params, QueryEnvironment *queryEnv,
			DestReceiver *dest, QueryCompletion *qc)
{
	Drop	   *outer = running_drop;
	Drop		drop = {0};
	ErrorContextCallback hint;

	if (!may_drop_extension(pstmt->utilityStmt))
	{
		next_process_utility(pstmt, queryString, readOnlyTree, context, params,
							 queryEnv, dest, qc);
		return;
	}

	drop.statement = pstmt->utilityStmt;
	hint.callback = replace_hint;
	hint.arg = pstmt->utilityStmt;
	hint.previous = error_context_stack;
	PG_TRY();
	{
		error_context_stack = &hint;
		running_drop = &drop;
		next_process_utility(pstmt, queryString, readOnlyTree, context, params,
							 queryEnv, dest, qc);
	}
	PG_FINALLY();
	{
		running_drop = outer;
	}
	PG_END_TRY();
}

/* Only while the server preloads libraries, lest a session have it and another not. */
void
snowflake_column_guard_init(void)
{
	next_process_utility = ProcessUtility_hook ? ProcessUtility_hook :
		standard_ProcessUtility;
	ProcessUtility_hook = run_utility;
	next_object_access = object_access_hook;
	object_access_hook = watch_drop;
}
