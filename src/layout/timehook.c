/*-------------------------------------------------------------------------
 *
 * timehook.c
 *	  Where the planner is told what times say of the key: the hooks of a preloaded library.
 *
 * Those for the paths of a table, and of the rows of a query, add what timeorder.c and
 * timejoin.c make.  That for filters is called for a table that the planner has just looked up.
 * What a query says of the time of IDs is then in its final place, and nothing has been
 * concluded from it yet.  Core has
 *
 *	- expanded views and policies, inlined functions, pulled up subqueries, and simplified
 *	  each condition: so it does not matter how a filter was written, or where;
 *	- put conditions on a subquery into it where that may be done, with security barriers,
 *	  LIMIT, window functions and grouping in view: what is left outside stays there;
 *	- moved from HAVING to WHERE what does not depend on the groups; and replaced outer joins
 *	  by inner ones where a strict condition permits it.
 *
 * Core has not yet assigned a condition to a table or to a join, nor built equivalence
 * classes, pruned partitions, estimated rows or looked at indexes: for all of these a
 * condition is what this hook leaves.  Nothing else of the query is changed.
 *
 * The hook has to respect
 *
 *	- the place of a condition: only WHERE, the conditions of joins, and the policies of the
 *	  table are looked at, where NULL does what false does; and one is put in the place of
 *	  another at the same security level.  The comparison of the key leaks nothing, so core
 *	  may execute it before a policy.  A condition that stays is held back as before, for
 *	  snowflake_filter() is not one that core would take for harmless because of what is in it;
 *	- that a condition is looked at once for each table.  It is changed only for that one of
 *	  which the ID is, so it is changed once;
 *	- that core also looks up tables without a query, to build or cluster an index;
 *	- that a plan may be used again by another role.  Which functions a role may call has been
 *	  looked at for what is not called any more, so such a plan is of one role.
 *
 * A UNION ALL view has no key: the filter is on a column of the union, in the place of which
 * each of its tables has an expression of its own.  Core translates and simplifies the
 * filter for each table, right after this hook was called for it.  So the filter is
 * wrapped twice in snowflake_filter(), whose support function then looks at the translated
 * one.  The union itself never evaluates its filters.
 *
 * snowflake_filter() exists in plans alone, around a condition that a range was added to, and
 * so does snowflake_period_is_exact(), before one.  They are never shipped to another server,
 * since they are not immutable, nor stored: expressions that are stored are simplified
 * without a query, and never see this hook.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
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

/*
 * A list of conditions, which all have to hold, with those of that table simplified: the same
 * list, if none is.
 */
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

/* ... of a part of FROM, whose conditions core has split at each AND */
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

/* Is that a call of snowflake_filter()? */
static bool
is_filter(Node *node)
{
	return IsA(node, FuncExpr) &&
		snowflake_timeexpr_is_supported_by(((FuncExpr *) node)->funcid, snowflake_filter_support);
}

/* Have those filters on a union that say something of the key of that table simplified. */
static void
mark_filters(PlannerInfo *root, RelOptInfo *unioned, AppendRelInfo *child)
{
	ListCell   *lc;

	foreach(lc, unioned->baserestrictinfo)
	{
		RestrictInfo *rinfo = lfirst(lc);
		Node	   *translated;
		SnowflakeDecodedId decoded;
		Oid			function;

		if (is_filter((Node *) rinfo->clause))
			continue;
		translated = adjust_appendrel_attrs(root, (Node *) rinfo->clause, 1, &child);
		if (snowflake_timefilter_simplify(root, 0, translated, &decoded.function) == translated)
			continue;
		function = snowflake_timeexpr_function(&decoded, "snowflake_filter", BOOLOID, InvalidOid,
											   InvalidOid);
		if (!OidIsValid(function))
			continue;
		root->glob->dependsOnRole = true;
		for (int n = 0; n < 2; n++)
			rinfo->clause = (Expr *) makeFuncExpr(function, BOOLOID, list_make1(rinfo->clause),
												  InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
	}
}

/* Look at a table that core has looked up. */
static void
look_at_table(PlannerInfo *root, RelOptInfo *rel)
{
	Index		relid = rel->relid;
	RangeTblEntry *rte = root->simple_rte_array[relid];
	ListCell   *lc;

	/* without a query */
	if (root->parse->jointree == NULL)
		return;

	foreach(lc, rte->securityQuals)
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
	if (TABLE_LOOKUP_IS_TABLE)
		look_at_table(root, rel);
}

/* The paths of a table or of the parent of several, unless it is empty, or a sample is read. */
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

/* The condition that is given, unless that is NULL. */
Datum
snowflake_filter(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(PG_GETARG_BOOL(0));
}

/*
 * Simplify a filter on a union, which is wrapped twice, for one of its tables; and say
 * that a condition, or what is asked before one, holds of each row in the range that was
 * added beside it.
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

/* Set the hooks, in a process that is to plan with them. */
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
