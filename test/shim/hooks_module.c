/*-------------------------------------------------------------------------
 *
 * hooks_module.c
 *	  A library with hooks of its own: nobody reads or drops a table of the name
 *	  "guarded".
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "utils/lsyscache.h"

#include "base/compat.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static ExecutorCheckPerms_hook_type next_check_perms = NULL;
static object_access_hook_type next_object_access = NULL;

static void
refuse(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name != NULL && strcmp(name, "guarded") == 0)
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("table \"%s\" is guarded", name));
}

static bool
check_perms(CHECK_PERMS_PARAMETERS)
{
	ListCell   *lc;

	foreach(lc, tables)
		refuse(lfirst_node(RangeTblEntry, lc)->relid);
	return next_check_perms == NULL || next_check_perms(CHECK_PERMS_ARGUMENTS);
}

static void
watch_drop(ObjectAccessType access, Oid class, Oid object, int sub, void *argument)
{
	if (next_object_access)
		next_object_access(access, class, object, sub, argument);
	if (access == OAT_DROP && class == RelationRelationId)
		refuse(object);
}

void
_PG_init(void)
{
	next_check_perms = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = check_perms;
	next_object_access = object_access_hook;
	object_access_hook = watch_drop;
}
