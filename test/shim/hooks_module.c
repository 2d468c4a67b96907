/*-------------------------------------------------------------------------
 *
 * hooks_module.c
 *	  A library with hooks of its own: nobody reads a table of the name "guarded", and no
 *	  query of a table of the name "unplanned" has a plan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "optimizer/paths.h"
#include "utils/lsyscache.h"

#include "base/compat.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static ExecutorCheckPerms_hook_type next_check_perms = NULL;
static set_rel_pathlist_hook_type next_set_rel_pathlist = NULL;

static void
refuse(Oid relid, const char *guarded)
{
	char	   *name = get_rel_name(relid);

	if (name != NULL && strcmp(name, guarded) == 0)
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("table \"%s\" is guarded", name));
}

static bool
check_perms(CHECK_PERMS_PARAMETERS)
{
	ListCell   *lc;

	foreach(lc, tables)
		refuse(lfirst_node(RangeTblEntry, lc)->relid, "guarded");
	return next_check_perms == NULL || next_check_perms(CHECK_PERMS_ARGUMENTS);
}

static void
find_paths(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	if (next_set_rel_pathlist)
		next_set_rel_pathlist(root, rel, rti, rte);
	if (rte->rtekind == RTE_RELATION)
		refuse(rte->relid, "unplanned");
}

void
_PG_init(void)
{
	next_check_perms = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = check_perms;
	next_set_rel_pathlist = set_rel_pathlist_hook;
	set_rel_pathlist_hook = find_paths;
}
