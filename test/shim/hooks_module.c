/*-------------------------------------------------------------------------
 *
 * hooks_module.c
 *	  A library with a hook of its own: no query of a table of the name "guarded" has a plan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "optimizer/paths.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static set_rel_pathlist_hook_type next_set_rel_pathlist = NULL;

static void
find_paths(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	if (next_set_rel_pathlist)
		next_set_rel_pathlist(root, rel, rti, rte);
	if (rte->rtekind == RTE_RELATION && strcmp(rte->eref->aliasname, "guarded") == 0)
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("table \"guarded\" is guarded"));
}

void
_PG_init(void)
{
	next_set_rel_pathlist = set_rel_pathlist_hook;
	set_rel_pathlist_hook = find_paths;
}
