/*-------------------------------------------------------------------------
 *
 * reservation_guard.c
 *	  Only a superuser finds the reservation's table by its name.
 *
 * A lock on the table, or on its row, that is held to the end of a transaction
 * keeps the keeper from reserving, and so stops minting after some seconds.  The
 * table grants no privilege, but some roles need none: pg_write_all_data
 * may lock any table and, with pg_read_all_data, any row, and pg_maintain may lock
 * and reindex any table.  They have USAGE on any schema as well, and there
 * they are stopped: a statement finds a table by its name, in a schema that is named
 * or in search_path, and core calls a hook for each schema that it looks in.
 * For roles that are not superusers, this hook's answer for the schema of the keeper
 * is that of a missing USAGE.
 *
 * No lock is taken, and no other error raised.  The keeper itself does not look the
 * table up this way, and is a superuser.  A command that needs no name, such as
 * REINDEX DATABASE, locks the table for no longer than its one row takes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_namespace.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "utils/fmgroids.h"
#include "utils/syscache.h"

#include "base/compat.h"
#include "guard/reservation_guard.h"

static object_access_hook_type next_object_access = NULL;

/*
 * Is this the keeper's schema?  A schema of that name that belongs to another role is
 * not ours, and the keeper does not use it.
 */
static bool
is_keeper_schema(Oid schema)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = strcmp(NameStr(((Form_pg_namespace) GETSTRUCT(tuple))->nspname),
					"snowflake_keeper") == 0 &&
		superuser_arg(((Form_pg_namespace) GETSTRUCT(tuple))->nspowner);
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Is this the lookup of an apply worker, for a row that has arrived?  A subscription's
 * owner need not be a superuser, and the worker must find the table: a trigger drops
 * what arrives for it, and an error would stop the subscription.
 *
 * A trigger of another table that the worker fires is code of somebody else.  Core
 * counts triggers only, so the default of a column, say, passes for the worker.
 */
static bool
is_of_apply_worker(void)
{
	return IsLogicalWorker() && DatumGetInt32(OidFunctionCall0(F_PG_TRIGGER_DEPTH)) == 0;
}

/* Core looks in a schema: it is hidden if it is the keeper's, and the role no superuser. */
static void
refuse_schema(ObjectAccessType access, Oid class, Oid object, int sub, void *argument)
{
	ObjectAccessNamespaceSearch *search = argument;

	if (next_object_access)
		next_object_access(access, class, object, sub, argument);
	if (access != OAT_NAMESPACE_SEARCH || !search->result || superuser() ||
		!is_keeper_schema(object) || is_of_apply_worker())
		return;
	search->result = false;
	if (search->ereport_on_violation)
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for schema %s", "snowflake_keeper"),
				errdetail("Only a superuser can access the snowflake reservation, since a lock on it would stop minting."));
}

/* Only while the server preloads libraries: nothing else mints. */
void
snowflake_reservation_guard_init(void)
{
	next_object_access = object_access_hook;
	object_access_hook = refuse_schema;
}
