/*-------------------------------------------------------------------------
 *
 * timeorder.c
 *	  Rows in the order of their IDs' time, by an index on the ID.
 *
 * Times ascend with IDs.  So rows in the order of a table's IDs are in
 * the order of "@ id" as well, NULLs included, and in that of "@ id, id".  The
 * planner cannot know: to it an index has the order of its columns alone.  Hence
 * the hook below, which a preloaded library sets.  After core has made the paths
 * of a table, it adds scans of each btree index that begins with an ID, if the query
 * wants the order of its time, and says of them that they have this order.
 *
 * It only adds paths, core's own index scans with core's costs, and only to queries
 * that order or group by the time of an ID of that table; so nothing else is planned
 * in another way.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "layout/timefilter.h"
#include "layout/timeorder.h"

static set_rel_pathlist_hook_type previous_hook;

/*
 * The column of a table that is the given one of the table that the query names, of
 * which it may be a partition; 0 if there is none.
 */
static AttrNumber
column_of_child(PlannerInfo *root, RelOptInfo *rel, AttrNumber column)
{
	AppendRelInfo *child;
	Var		   *var;

	if (rel->reloptkind == RELOPT_BASEREL)
		return column;

	child = root->append_rel_array[rel->relid];
	column = column_of_child(root, root->simple_rel_array[child->parent_relid], column);
	if (column <= 0 || column > list_length(child->translated_vars))
		return 0;
	var = list_nth(child->translated_vars, column - 1);
	return var != NULL && IsA(var, Var) ? var->varattno : 0;
}

/* Is that expression the given column of a table? */
static bool
is_column(PlannerInfo *root, RelOptInfo *rel, Node *node, AttrNumber column)
{
	Var		   *var = (Var *) snowflake_timefilter_strip(node);

	return IsA(var, Var) && var->varlevelsup == 0 && var->varattno > 0 &&
		column_of_child(root, rel, var->varattno) == column;
}

/*
 * Is that pathkey the order of a column, or with "decoded", of the time of the IDs
 * in it?  The layout of all of them must be one.
 */
static bool
is_order_of(PlannerInfo *root, RelOptInfo *rel, PathKey *pathkey, AttrNumber column,
			bool decoded)
{
	Relids		relids = rel->top_parent_relids != NULL ? rel->top_parent_relids : rel->relids;
	Oid			opfamily = decoded ?
	lookup_type_cache(TIMESTAMPTZOID, TYPECACHE_BTREE_OPFAMILY)->btree_opf :
	INTEGER_BTREE_FAM_OID;
	ListCell   *lc;

	if (pathkey->pk_opfamily != opfamily || pathkey->pk_eclass->ec_has_volatile)
		return false;

	foreach(lc, pathkey->pk_eclass->ec_members)
	{
		EquivalenceMember *member = lfirst(lc);
		Node	   *node = (Node *) member->em_expr;
		SnowflakeDecodedId id;

		if (!bms_equal(member->em_relids, relids))
			continue;
		if (decoded)
		{
			if (!snowflake_timefilter_decoded(node, &id) ||
				(id.layout != NULL && contain_var_clause(id.layout)))
				continue;
			node = id.id;
		}
		if (is_column(root, rel, node, column))
			return true;
	}
	return false;
}

/*
 * As many of the query's pathkeys as a scan in the order of that column meets, if the
 * first of them is the order of its times; otherwise NIL.
 */
static List *
pathkeys_by_time(PlannerInfo *root, RelOptInfo *rel, AttrNumber column)
{
	PathKey    *first = linitial(root->query_pathkeys);
	List	   *met = NIL;
	ListCell   *lc;

	if (!is_order_of(root, rel, first, column, true))
		return NIL;

	foreach(lc, root->query_pathkeys)
	{
		PathKey    *pathkey = lfirst(lc);

		if (PathKeyIsDescending(pathkey) != PathKeyIsDescending(first) ||
			pathkey->pk_nulls_first != first->pk_nulls_first ||
			(!is_order_of(root, rel, pathkey, column, true) &&
			 !is_order_of(root, rel, pathkey, column, false)))
			break;
		met = lappend(met, pathkey);
	}
	return met;
}

/* A scan of that index that core has made, plain or for a bitmap, or NULL. */
static IndexPath *
find_scan(RelOptInfo *rel, const IndexOptInfo *index)
{
	ListCell   *lc;

	foreach(lc, rel->pathlist)
	{
		Path	   *path = lfirst(lc);

		if (path->param_info != NULL)
			continue;
		if (IsA(path, BitmapHeapPath))
			path = ((BitmapHeapPath *) path)->bitmapqual;
		if (IsA(path, IndexPath) && ((IndexPath *) path)->indexinfo == index)
			return (IndexPath *) path;
	}
	return NULL;
}

/* The conditions of that scan, but for those with which it would not have the index's order. */
static List *
ordered_conditions(const IndexPath *scan)
{
	List	   *clauses = NIL;
	ListCell   *lc;

	foreach(lc, scan->indexclauses)
	{
		IndexClause *clause = lfirst(lc);

		if (!IsA(clause->rinfo->clause, ScalarArrayOpExpr) ||
			!ArrayScanLosesOrder(clause->indexcol))
			clauses = lappend(clauses, clause);
	}
	return clauses;
}

/*
 * The conditions "id OP bound" on an index that begins with the ID.  Core may have
 * found its scan with them too expensive to be kept, but a scan in this order that
 * began at the end of the index would read all that lies before the bound.
 */
static List *
match_bounds(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index)
{
	List	   *clauses = NIL;
	ListCell   *lc;

	foreach(lc, index->indrestrictinfo)
	{
		RestrictInfo *rinfo = lfirst(lc);
		OpExpr	   *condition = (OpExpr *) rinfo->clause;
		Var		   *id;
		IndexClause *clause;

		if (rinfo->pseudoconstant || !IsA(condition, OpExpr) ||
			list_length(condition->args) != 2 ||
			!op_in_opfamily(condition->opno, index->opfamily[0]) ||
			!restriction_is_securely_promotable(rinfo, rel))
			continue;
		id = (Var *) snowflake_timefilter_strip(linitial(condition->args));
		if (!IsA(id, Var) || (Index) id->varno != rel->relid ||
			id->varattno != index->indexkeys[0] ||
			!is_pseudo_constant_for_index(root, lsecond(condition->args), index))
			continue;

		clause = makeNode(IndexClause);
		clause->rinfo = rinfo;
		clause->indexquals = list_make1(rinfo);
		clauses = lappend(clauses, clause);
	}
	return clauses;
}

static void
add_paths_by_time(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	ListCell   *lc;

	if (previous_hook != NULL)
		previous_hook(root, rel, rti, rte);

	/* the path of a relation that is proven empty must stay its only one */
	if (IS_DUMMY_REL(rel))
		return;
	if (root->query_pathkeys == NIL || !IS_SIMPLE_REL(rel) ||
		rte->rtekind != RTE_RELATION || rte->inh || rte->tablesample != NULL)
		return;

	foreach(lc, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(lc);
		PathKey    *first = linitial(root->query_pathkeys);
		bool		forward;
		List	   *pathkeys;
		IndexPath  *scan;

		if (index->relam != BTREE_AM_OID || index->indexkeys[0] <= 0 ||
			index->opfamily[0] != INTEGER_BTREE_FAM_OID ||
			(index->indpred != NIL && !index->predOK))
			continue;

		pathkeys = pathkeys_by_time(root, rel, index->indexkeys[0]);
		if (pathkeys == NIL)
			continue;
		forward = PathKeyIsDescending(first) == index->reverse_sort[0];
		if (first->pk_nulls_first != (forward ? index->nulls_first[0] : !index->nulls_first[0]))
			continue;

		scan = find_scan(rel, index);
		add_path(rel, (Path *)
				 create_index_path(root, index, scan != NULL ? ordered_conditions(scan) :
								   match_bounds(root, rel, index),
								   NIL, NIL, pathkeys,
								   forward ? ForwardScanDirection : BackwardScanDirection,
								   scan != NULL && scan->path.pathtype == T_IndexOnlyScan,
								   rel->lateral_relids, 1.0, false));
	}
}

/* Set the hook, in a process that is to plan with it. */
void
snowflake_timeorder_init(void)
{
	previous_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = add_paths_by_time;
}
