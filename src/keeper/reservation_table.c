/*-------------------------------------------------------------------------
 *
 * reservation_table.c
 *	  The table in which the keeper keeps the reservation.
 *
 * snowflake_keeper.reservation is an ordinary table, with a row per node ID, and the extension
 * snowflake_keeper has nothing else.  reserved_until is the start of the last tick that may have
 * been used.  doc/design.md says why this is a table; reservation_home.c records which database
 * has it.
 *
 * The keeper is a superuser in a database in which other roles may create, drop and
 * configure objects, and none of that may make it run their code or write where they want.  So
 * it uses the table as PostgreSQL uses its catalogs: it locks the table of that name, checks it,
 * and then reads and writes rows through the table and its index.  No statement is planned, and
 * no trigger, rule, policy, constraint or default has a part in it.
 *
 * check_table() verifies, under the lock, at each use, that the table and its schema
 * belong to a superuser and to the extension, so that no other role can have created or
 * changed it; and that it has the form that the code below relies on.  The lock keeps it
 * so until the end of the transaction: any command that changes the form of a table, its
 * owner, or drops it conflicts with RowExclusiveLock.  (CREATE INDEX CONCURRENTLY does
 * not, but only the owner may run it, and the owner is a superuser.)
 *
 * SQL is run once, to create the extension.  Then the current user is the bootstrap superuser,
 * whatever role the database sets, and the settings that matter are those of worker.c.
 *
 * All of it runs in the keeper, inside a transaction with a snapshot, except for the triggers and
 * snowflake_reservation_table_is_of_other_layout().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_authid_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/settings.h"
#include "keeper/keeper.h"
#include "layout/layout.h"
#include "layout/server_layout.h"

/* The extension, and the schema that its control file names. */
#define KEEPER_EXTENSION	"snowflake_keeper"
#define KEEPER_SCHEMA		"snowflake_keeper"
#define KEEPER_TABLE		"reservation"

/* The row with this node ID is for all node IDs that have none: see put_row(). */
#define OTHER_NODES			(-1)

/* Its columns. */
enum
{
	COLUMN_NODE = 1,
	COLUMN_LAYOUT,
	COLUMN_RESERVED_UNTIL,
	COLUMN_IN_ORDER,
	COLUMNS = COLUMN_IN_ORDER
};

static const struct
{
	const char *name;
	Oid			type;
}			columns[COLUMNS] =

{
	{"node", INT4OID},
	{"layout", TEXTOID},
	{"reserved_until", TIMESTAMPTZOID},
	{"in_order", BOOLOID},
};

/* The table, open and locked to the end of the transaction, and its index. */
typedef struct ReservationTable
{
	Relation	relation;
	Oid			index;
} ReservationTable;

PG_FUNCTION_INFO_V1(snowflake_reservation_not_replicated);
PG_FUNCTION_INFO_V1(snowflake_reservation_keeper_only);

/* Is this an index whose maintenance runs core's code only, and which finds a row by its node ID? */
static bool
index_is_plain(Relation index)
{
	Form_pg_index form = index->rd_index;

	return index->rd_rel->relam == BTREE_AM_OID &&
		form->indnatts == 1 &&
		form->indkey.values[0] == COLUMN_NODE &&
		form->indisunique && form->indimmediate &&
		index->rd_opfamily[0] == INTEGER_BTREE_FAM_OID &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

/*
 * Find the index of a table, and make sure that it has no others to maintain.  REINDEX
 * CONCURRENTLY makes a copy, so there may be two, one of which is not valid.  Returns what is
 * wrong, a sentence, or NULL.
 */
static const char *
check_indexes(Relation relation, Oid *found)
{
	List	   *indexes = RelationGetIndexList(relation);
	ListCell   *cell;

	*found = InvalidOid;
	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);
		bool		plain = index_is_plain(index);

		if (plain && index->rd_index->indisvalid)
			*found = lfirst_oid(cell);
		index_close(index, NoLock);
		if (!plain)
			return "It has an index that is not the primary key on \"node\".";
	}
	list_free(indexes);
	return OidIsValid(*found) ? NULL : "Its primary key on \"node\" is missing.";
}

static const char *
check_columns(TupleDesc desc)
{
	if (desc->natts != COLUMNS)
		return "Columns were added or dropped.";
	for (int i = 0; i < COLUMNS; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped || column->atttypid != columns[i].type ||
			strcmp(NameStr(column->attname), columns[i].name) != 0 ||
			!column->attnotnull || column->attgenerated != '\0')
			return "A column was changed.";
	}
	return NULL;
}

static bool
schema_is_superusers(Oid schema)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = superuser_arg(((Form_pg_namespace) GETSTRUCT(tuple))->nspowner);
	ReleaseSysCache(tuple);
	return result;
}

/* Check a locked table, but not its indexes.  Returns what is wrong, a sentence, or NULL. */
static const char *
check_table(Relation relation, Oid schema)
{
	Form_pg_class form = relation->rd_rel;
	Oid			extension = get_extension_oid(KEEPER_EXTENSION, true);

	/* only superusers can have changed it */
	if (!OidIsValid(extension) ||
		getExtensionOfObject(RelationRelationId, RelationGetRelid(relation)) != extension)
		return "It is not a member of the extension \"" KEEPER_EXTENSION "\".";
	if (!superuser_arg(form->relowner))
		return "Its owner is not a superuser.";
	if (form->relnamespace != schema)
		return "It was moved to another schema.";
	if (!schema_is_superusers(schema))
		return "The owner of its schema is not a superuser.";

	/* and the keeper can work with it, durably */
	if (form->relkind != RELKIND_RELATION || form->relam != HEAP_TABLE_AM_OID)
		return "It is not a table of the access method \"heap\".";
	if (form->relpersistence != RELPERSISTENCE_PERMANENT)
		return "It does not survive a crash.";
	return check_columns(RelationGetDescr(relation));
}

/*
 * Lock, open and check the table, or raise an error.  If the name has come to belong to another
 * table during the wait for the lock, the locked one is not the right one, which check_table()
 * finds, or is gone.
 */
static ReservationTable
open_table(void)
{
	ReservationTable table = {NULL, InvalidOid};
	Oid			schema = get_namespace_oid(KEEPER_SCHEMA, true);
	Oid			relid = OidIsValid(schema) ?
	get_relname_relid(KEEPER_TABLE, schema) : InvalidOid;
	const char *complaint;

	if (OidIsValid(relid))
		table.relation = try_relation_open(relid, RowExclusiveLock);
	complaint = table.relation == NULL ? "It does not exist." :
		check_table(table.relation, schema);
	if (complaint == NULL)
		complaint = check_indexes(table.relation, &table.index);
	if (complaint != NULL)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("table \"%s.%s\" is not fit for the snowflake reservation",
					   KEEPER_SCHEMA, KEEPER_TABLE),
				errdetail_internal("%s", complaint),
				errhint("Undo the change. If that is impossible, drop the extension \"%s\", and the keeper will re-create it.",
						KEEPER_EXTENSION));
	return table;
}

static Datum
configured_layout(void)
{
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];

	snowflake_layout_print(&snowflake_server_layout, text, sizeof(text));
	return CStringGetTextDatum(text);
}

static bool
is_empty(Relation relation)
{
	SysScanDesc scan = systable_beginscan(relation, InvalidOid, false, NULL, 0, NULL);
	bool		result = !HeapTupleIsValid(systable_getnext(scan));

	systable_endscan(scan);
	return result;
}

/*
 * Insert or update the row of a node ID, of the configured layout.
 *
 * If there are no rows at all although this server has minted, the table is new, or was re-created
 * by hand: rows were lost, and it is not known for which node IDs.  So this also makes a row for all
 * of them, with the time of the newest snowflake that any node ID had: that is "highest", or
 * -infinity if this server has not minted.
 */
static void
put_row(int32 node, TimestampTz until, bool in_order, TimestampTz highest)
{
	ReservationTable table = open_table();
	Datum		values[COLUMNS];
	bool		nulls[COLUMNS] = {0};
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	old,
				new;

	values[COLUMN_NODE - 1] = Int32GetDatum(node);
	values[COLUMN_LAYOUT - 1] = configured_layout();
	values[COLUMN_RESERVED_UNTIL - 1] = TimestampTzGetDatum(until);
	values[COLUMN_IN_ORDER - 1] = BoolGetDatum(in_order);
	new = heap_form_tuple(RelationGetDescr(table.relation), values, nulls);

	ScanKeyInit(&key, COLUMN_NODE, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(node));
	scan = systable_beginscan(table.relation, table.index, true, NULL, 1, &key);
	old = systable_getnext(scan);
	if (HeapTupleIsValid(old))
		CatalogTupleUpdate(table.relation, &old->t_self, new);
	else
	{
		if (!TIMESTAMP_IS_NOBEGIN(highest) && is_empty(table.relation))
			put_row(OTHER_NODES, highest, false, DT_NOBEGIN);
		CatalogTupleInsert(table.relation, new);
	}
	systable_endscan(scan);
	table_close(table.relation, NoLock);
	CommandCounterIncrement();
}

bool
snowflake_reservation_table_exists(void)
{
	return OidIsValid(get_extension_oid(KEEPER_EXTENSION, true));
}

static void
run(const char *command)
{
	int			result = SPI_execute(command, false, 0);

	if (result != SPI_OK_UTILITY)
		elog(ERROR, "\"%s\" returned %s", command, SPI_result_code_string(result));
}

/*
 * Create the extension.  Another session may be doing the same at this moment: then this fails, and
 * a later round of the keeper finds that session's table.
 *
 * The schema is created first, and not by CREATE EXTENSION, which would use a schema that another
 * session creates after it has looked for one.  If it exists already, the script checks its owner.
 */
void
snowflake_reservation_table_create(void)
{
	Oid			save_user;
	int			save_context;

	ereport(LOG,
			errmsg("creating extension \"%s\" in database \"%s\" for the reservation",
				   KEEPER_EXTENSION, snowflake_database));

	/* an error ends the transaction, which resets the user as well */
	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID,
						   save_context | SECURITY_LOCAL_USERID_CHANGE);
	SPI_connect();
	if (!OidIsValid(get_namespace_oid(KEEPER_SCHEMA, true)))
		run("CREATE SCHEMA " KEEPER_SCHEMA);
	run("CREATE EXTENSION " KEEPER_EXTENSION);
	SPI_finish();
	SetUserIdAndSecContext(save_user, save_context);
}

/*
 * Read the rows, before minting with a node ID.  Those of others count as well, unless the
 * order was given up: IDs ascend even if the node ID changed while the server was down.
 */
static SnowflakeReservation
read_rows(Relation relation, int32 node)
{
	SnowflakeReservation stored = SNOWFLAKE_NO_RESERVATION;
	char	   *configured = TextDatumGetCString(configured_layout());
	SysScanDesc scan = systable_beginscan(relation, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	TimestampTz others_until = DT_NOBEGIN;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum		values[COLUMNS];
		bool		nulls[COLUMNS];
		TimestampTz until;
		char	   *layout;

		heap_deform_tuple(tuple, RelationGetDescr(relation), values, nulls);
		until = DatumGetTimestampTz(values[COLUMN_RESERVED_UNTIL - 1]);
		layout = TextDatumGetCString(values[COLUMN_LAYOUT - 1]);

		stored.highest = Max(stored.highest, until);
		if (DatumGetInt32(values[COLUMN_NODE - 1]) == OTHER_NODES)
			others_until = until;
		else if (DatumGetInt32(values[COLUMN_NODE - 1]) == node)
			stored.own_until = until;
		if (DatumGetBool(values[COLUMN_IN_ORDER - 1]))
		{
			if (until >= stored.until)
				stored.last_node = DatumGetInt32(values[COLUMN_NODE - 1]);
			stored.until = Max(stored.until, until);
		}
		if (stored.other_layout == NULL && strcmp(layout, configured) != 0)
			stored.other_layout = layout;
	}
	stored.row_until = stored.own_until;
	if (TIMESTAMP_IS_NOBEGIN(stored.own_until))
		stored.own_until = others_until;
	systable_endscan(scan);
	return stored;
}

/* Read the rows, before minting with a node ID (-1: with none).  "highest" is as for put_row(). */
SnowflakeReservation
snowflake_reservation_table_read(int32 node, TimestampTz highest)
{
	ReservationTable table = open_table();
	SnowflakeReservation stored;

	if (!TIMESTAMP_IS_NOBEGIN(highest) && is_empty(table.relation))
		put_row(OTHER_NODES, highest, false, DT_NOBEGIN);
	stored = read_rows(table.relation, node);
	table_close(table.relation, NoLock);
	return stored;
}

/*
 * Is there a row of another layout than the configured one?  Any process may call this, in a
 * transaction, and it raises no error; if it cannot find out now, it returns false.  It does not
 * wait: on a standby the table may be locked for as long as a transaction of the primary takes.  A
 * parallel query cannot take a snapshot.
 */
bool
snowflake_reservation_table_is_of_other_layout(void)
{
	Oid			schema = get_namespace_oid(KEEPER_SCHEMA, true);
	Oid			relid = OidIsValid(schema) ?
	get_relname_relid(KEEPER_TABLE, schema) : InvalidOid;
	Relation	relation;
	bool		result = false;

	if (IsInParallelMode() ||
		!OidIsValid(relid) || !ConditionalLockRelationOid(relid, AccessShareLock))
		return false;
	relation = try_relation_open(relid, NoLock);
	if (relation == NULL)
		return false;

	if (check_table(relation, schema) == NULL)
		result = read_rows(relation, -1).other_layout != NULL;
	relation_close(relation, AccessShareLock);
	return result;
}

/* Write a node ID's row.  If the extension was dropped while the server mints, re-create it. */
void
snowflake_reservation_table_write(int32 node, TimestampTz until, TimestampTz highest)
{
	if (!snowflake_reservation_table_exists())
		snowflake_reservation_table_create();
	put_row(node, until, true, highest);
	snowflake_reservation_home_note();
}

/* Change one column of the rows whose reserved_until is in a range. */
static void
change_rows(int column, Datum value, TimestampTz from, TimestampTz to)
{
	ReservationTable table = open_table();
	Datum		changes[COLUMNS] = {0};
	bool		nulls[COLUMNS] = {0};
	bool		replace[COLUMNS] = {0};
	SysScanDesc scan = systable_beginscan(table.relation, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	changes[column - 1] = value;
	replace[column - 1] = true;
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum		values[COLUMNS];
		bool		old_nulls[COLUMNS];
		TimestampTz until;

		heap_deform_tuple(tuple, RelationGetDescr(table.relation), values, old_nulls);
		until = DatumGetTimestampTz(values[COLUMN_RESERVED_UNTIL - 1]);
		if (until >= from && until <= to)
			CatalogTupleUpdate(table.relation, &tuple->t_self,
							   heap_modify_tuple(tuple,
												 RelationGetDescr(table.relation),
												 changes, nulls, replace));
	}
	systable_endscan(scan);
	table_close(table.relation, NoLock);
	CommandCounterIncrement();
}

/* Rows were lost: raise all to "until", and make one for the node IDs that have none. */
void
snowflake_reservation_table_raise(TimestampTz until)
{
	change_rows(COLUMN_RESERVED_UNTIL, TimestampTzGetDatum(until), DT_NOBEGIN, until - 1);
	if (TIMESTAMP_IS_NOBEGIN(snowflake_reservation_table_read(OTHER_NODES, DT_NOBEGIN).own_until))
		put_row(OTHER_NODES, until, false, DT_NOBEGIN);
}

void
snowflake_reservation_table_accept_layout(void)
{
	change_rows(COLUMN_LAYOUT, configured_layout(), DT_NOBEGIN, DT_NOEND);
}

/* Give up the order: rows that are ahead of the clock count for their own node IDs only. */
void
snowflake_reservation_table_give_up_order(TimestampTz now)
{
	change_rows(COLUMN_IN_ORDER, BoolGetDatum(false), now + 1, DT_NOEND);
}

/* Drops rows that logical replication brings, as from a publication of all tables. */
Datum
snowflake_reservation_not_replicated(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("%s was not called by a trigger",
					   "snowflake_keeper.not_replicated()"));
	return PointerGetDatum(NULL);
}

/*
 * Refuses statements.  A superuser, who could do worse, may write nevertheless, but not
 * truncate, because a subscriber to a publication of all tables would do that as well.
 */
Datum
snowflake_reservation_keeper_only(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("%s was not called by a trigger",
					   "snowflake_keeper.keeper_only()"));
	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event) || !superuser())
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for table %s",
					   RelationGetRelationName(trigger->tg_relation)),
				errdetail("Only the snowflake keeper may write it, since a lowered or missing row would let snowflakes be issued twice."));
	PG_RETURN_POINTER(NULL);
}
