/*-------------------------------------------------------------------------
 *
 * timehook.c
 *	  The planner hooks of a preloaded library, through which filters and orders of times
 *	  use the key.
 *
 * The hooks for the paths of a table, and of a query's sorted rows, add the paths of timeorder.c
 * and timejoin.c.  The hook for filters is called for each table that the planner has just
 * looked up.  Each condition on the time of an ID is then in its final place: core has
 *
 *	- expanded views and policies, inlined functions, pulled up subqueries, and simplified
 *	  each condition: so it does not matter how a filter was written, or where;
 *	- pushed conditions down into a subquery where its security barriers, LIMIT, window
 *	  functions and grouping permit it: a condition that is left outside stays there;
 *	- moved conditions that do not depend on the groups from HAVING to WHERE, and replaced
 *	  outer joins with inner ones where a strict condition permits it.
 *
 * Core has not yet assigned a condition to a table or to a join, nor built equivalence
 * classes, pruned partitions, estimated rows or looked at indexes: all of these work
 * on the conditions that this hook leaves.  The hook has to respect
 *
 *	- the place of a condition: it only looks at WHERE, the conditions of joins, and the
 *	  policies of the table, where NULL has the same effect as false; and it replaces a
 *	  condition at the same security level.  The comparison of the key leaks nothing, so core
 *	  may execute it before a policy.  Nor does snowflake_filter(), so core judges a condition
 *	  that stays by itself;
 *	- that a condition is looked at once for each table: it changes it only for the table that
 *	  has the ID;
 *	- that core also looks up tables without a query, to build or cluster an index;
 *	- that another role may use a plan again.  The role's right to call a function
 *	  was checked for a call that the plan no longer has, so such a plan is for one role only.
 *
 * The filter on a UNION ALL view is on a column of the union, for which each of its tables has
 * an expression of its own.  Core translates and simplifies the filter for each table, right
 * after it has called this hook for the table.  So the filter is wrapped twice in
 * snowflake_filter(), whose support function then simplifies the translated filter.  The union
 * itself never evaluates its filters.
 *
 * snowflake_filter() and snowflake_period_is_exact() exist in plans only.  They are never
 * stored: an expression to be stored is simplified without a query, and this hook is not called.
 * Nor are they shipped to another server, since they are not immutable, but for
 * snowflake_period_is_exact() of a given zone, where postgres_fdw is told that it may.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "optimizer/appendinfo.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "utils/lsyscache.h"

#include "base/compat.h"
#include "layout/planner.h"

PG_FUNCTION_INFO_V1(snowflake_filter);
PG_FUNCTION_INFO_V1(snowflake_filter_support);

static table_lookup_hook_type previous_lookup_hook;
static set_rel_pathlist_hook_type previous_pathlist_hook;
static create_upper_paths_hook_type previous_upper_paths_hook;

/* Simplify a list of conditions that all have to hold; the same list, if nothing changes. */
static List *
simplify_conditions(PlannerInfo *root, Index relid, List *conditions)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, conditions)
	{
		Oid			decoded_by;
		Node	   *simplified = snowflake_timefilter_simplify(root, relid, lfirst(lc), &decoded_by);

		if (result == NIL && simplified != lfirst(lc))
			result = list_copy_head(conditions, foreach_current_index(lc));
		if (simplified != lfirst(lc))
		{
			result = list_concat(result, make_ands_implicit((Expr *) simplified));
			root->glob->dependsOnRole = true;
		}
		else if (result != NIL)
			result = lappend(result, simplified);
	}
	return result == NIL ? conditions : result;
}

/* The same for a part of FROM, whose conditions core has split at each AND. */
static void
simplify_from(PlannerInfo *root, Index relid, Node *node)
{
	if (IsA(node, FromExpr))
	{
		FromExpr   *from = (FromExpr *) node;
		ListCell   *lc;

		foreach(lc, from->fromlist)
			simplify_from(root, relid, lfirst(lc));
		from->quals = (Node *) simplify_conditions(root, relid, (List *) from->quals);
	}
	else if (IsA(node, JoinExpr))
	{
		JoinExpr   *join = (JoinExpr *) node;

		simplify_from(root, relid, join->larg);
		simplify_from(root, relid, join->rarg);
		join->quals = (Node *) simplify_conditions(root, relid, (List *) join->quals);
	}
}

static bool
is_filter(Node *node)
{
	return IsA(node, FuncExpr) &&
		snowflake_timeexpr_is_supported_by(((FuncExpr *) node)->funcid, snowflake_filter_support);
}

/* Wrap the filters on a union that say something of the child's key. */
static void
mark_filters(PlannerInfo *root, RelOptInfo *unioned, AppendRelInfo *child)
{
	ListCell   *lc;

	foreach(lc, unioned->baserestrictinfo)
	{
		RestrictInfo *rinfo = lfirst(lc);
		Node	   *translated;
		Oid			decoded_by;

		if (is_filter((Node *) rinfo->clause))
			continue;
		translated = adjust_appendrel_attrs(root, (Node *) rinfo->clause, 1, &child);
		if (snowflake_timefilter_simplify(root, 0, translated, &decoded_by) == translated)
			continue;
		root->glob->dependsOnRole = true;
		for (int n = 0; n < 2; n++)
			rinfo->clause = (Expr *) snowflake_timefilter_wrap(decoded_by, (Node *) rinfo->clause);
	}
}

static void
look_at_table(PlannerInfo *root, RelOptInfo *rel)
{
	Index		relid = rel->relid;
	ListCell   *lc;

	foreach(lc, root->simple_rte_array[relid]->securityQuals)
		lfirst(lc) = simplify_conditions(root, relid, lfirst(lc));
	if (rel->reloptkind == RELOPT_BASEREL)
		simplify_from(root, relid, (Node *) root->parse->jointree);
	else if (rel->reloptkind == RELOPT_OTHER_MEMBER_REL)
	{
		AppendRelInfo *child = root->append_rel_array[relid];
		RelOptInfo *parent = root->simple_rel_array[child->parent_relid];

		if (parent->rtekind == RTE_SUBQUERY)
			mark_filters(root, parent, child);
	}
}

static void
table_lookup(TABLE_LOOKUP_PARAMETERS)
{
	if (previous_lookup_hook != NULL)
		previous_lookup_hook(TABLE_LOOKUP_ARGUMENTS);
	if (TABLE_LOOKUP_IS_TABLE && root->parse->jointree != NULL)
		look_at_table(root, rel);
}

/* Add paths to a table, or to the parent of several, unless it is empty or a sample is read. */
static void
set_rel_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	if (previous_pathlist_hook != NULL)
		previous_pathlist_hook(root, rel, rti, rte);
	if (rte->rtekind != RTE_RELATION || rte->tablesample != NULL || !IS_SIMPLE_REL(rel) ||
		IS_DUMMY_REL(rel))
		return;
	if (!rte->inh)
		snowflake_timejoin_add_paths(root, rel);
	snowflake_timeorder_add_paths(root, rel, rte->inh);
}

static void
create_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
				   RelOptInfo *output_rel, void *extra)
{
	if (previous_upper_paths_hook != NULL)
		previous_upper_paths_hook(root, stage, input_rel, output_rel, extra);
	snowflake_timeorder_add_sorted_path(root, stage, input_rel, output_rel);
}

/* The identity; declared STRICT. */
Datum
snowflake_filter(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(PG_GETARG_BOOL(0));
}

/*
 * Simplify a filter on a union for one of its tables; and say that a condition, or the test
 * before one, is true of every row in the range that was added beside it.
 */
Datum
snowflake_filter_support(PG_FUNCTION_ARGS)
{
	Node	   *node = (Node *) PG_GETARG_POINTER(0);

	if (IsA(node, SupportRequestSelectivity))
	{
		((SupportRequestSelectivity *) node)->selectivity = 1.0;
		PG_RETURN_POINTER(node);
	}
	if (IsA(node, SupportRequestSimplify))
	{
		SupportRequestSimplify *request = (SupportRequestSimplify *) node;
		Node	   *condition = linitial(request->fcall->args);
		Oid			decoded_by;

		/* snowflake_period_is_exact() has more arguments */
		if (list_length(request->fcall->args) > 1)
			PG_RETURN_POINTER(NULL);
		if (IsA(condition, Const))
			PG_RETURN_POINTER(condition);
		if (is_filter(condition))
			PG_RETURN_POINTER(snowflake_timefilter_simplify(request->root, 0,
															linitial(((FuncExpr *) condition)->args),
															&decoded_by));
	}
	PG_RETURN_POINTER(NULL);
}

void
snowflake_timehook_init(void)
{
	previous_lookup_hook = table_lookup_hook;
	table_lookup_hook = table_lookup;
	previous_pathlist_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = set_rel_pathlist;
	previous_upper_paths_hook = create_upper_paths_hook;
	create_upper_paths_hook = create_upper_paths;
}
