/*-------------------------------------------------------------------------
 *
 * indexscan.c
 *	  Index scans that the planner hooks add: their conditions, and whether
 *	  they are index-only.
 *
 * This file does what core does for its own btree scans, but with the simplest conditions
 * only.  Core tests all others as filters.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_am_d.h"
#include "nodes/makefuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"

#include "base/compat.h"
#include "layout/planner.h"

/* Is the expression the given column of the table? */
bool
snowflake_indexscan_is_column(RelOptInfo *rel, Node *node, AttrNumber column)
{
	Var		   *var = (Var *) snowflake_timeexpr_strip(node);

	return IsA(var, Var) && (Index) var->varno == rel->relid && var->varlevelsup == 0 &&
		var->varattno == column;
}

/* Is the index a btree that has all rows that are asked for? */
bool
snowflake_indexscan_is_usable(const IndexOptInfo *index)
{
	return index->relam == BTREE_AM_OID && (index->indpred == NIL || index->predOK);
}

/* Returns the condition with column n of the index on its left side, or NULL if it has none. */
static RestrictInfo *
match_condition(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index, int n,
				RestrictInfo *rinfo)
{
	AttrNumber	column = index->indexkeys[n];

	if (rinfo->pseudoconstant || !restriction_is_securely_promotable(rinfo, rel))
		return NULL;

	if (IsA(rinfo->clause, OpExpr))
	{
		OpExpr	   *condition = (OpExpr *) rinfo->clause;
		Oid			opno = condition->opno;
		bool		commute;

		if (list_length(condition->args) != 2)
			return NULL;
		commute = !snowflake_indexscan_is_column(rel, linitial(condition->args), column);
		if (commute)
			opno = get_commutator(opno);
		if (!OidIsValid(opno) || !op_in_opfamily(opno, index->opfamily[n]) ||
			!snowflake_indexscan_is_column(rel, list_nth(condition->args, commute ? 1 : 0), column) ||
			!is_pseudo_constant_for_index(root, list_nth(condition->args, commute ? 0 : 1), index) ||
			(OidIsValid(index->indexcollations[n]) &&
			 index->indexcollations[n] != condition->inputcollid))
			return NULL;
		return commute ? commute_restrictinfo(rinfo, opno) : rinfo;
	}
	if (IsA(rinfo->clause, NullTest))
	{
		NullTest   *condition = (NullTest *) rinfo->clause;

		return !condition->argisrow &&
			snowflake_indexscan_is_column(rel, (Node *) condition->arg, column) ? rinfo : NULL;
	}
	return NULL;
}

/*
 * Returns the conditions of a table that can be looked up in the index, in the order of its
 * columns.  Without them, a scan in this order would start at the end of the index and read
 * everything before the bound.
 */
static List *
find_conditions(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index)
{
	List	   *clauses = NIL;
	ListCell   *lc;

	for (int n = 0; n < index->nkeycolumns; n++)
	{
		if (index->indexkeys[n] <= 0)
			continue;
		foreach(lc, index->indrestrictinfo)
		{
			RestrictInfo *matched = match_condition(root, rel, index, n, lfirst(lc));
			IndexClause *clause;

			if (matched == NULL)
				continue;
			clause = makeNode(IndexClause);
			clause->rinfo = lfirst(lc);
			clause->indexquals = list_make1(matched);
			clause->indexcol = n;
			clauses = lappend(clauses, clause);
		}
	}
	return clauses;
}

/* Does the index have all columns of the table that the query needs? */
static bool
is_index_only(RelOptInfo *rel, IndexOptInfo *index)
{
	Bitmapset  *needed = NULL;
	Bitmapset  *returned = NULL;
	ListCell   *lc;

	if (!enable_indexonlyscan)
		return false;
	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &needed);
	foreach(lc, index->indrestrictinfo)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, lc)->clause, rel->relid, &needed);
	for (int n = 0; n < index->ncolumns; n++)
		if (index->canreturn[n] && index->indexkeys[n] != 0)
			returned = bms_add_member(returned,
									  index->indexkeys[n] - FirstLowInvalidHeapAttributeNumber);
	return bms_is_subset(needed, returned);
}

/*
 * Add a scan of an index to the paths of a table, with the given conditions and all others
 * that it can look up.  It is parameterized by rows of the outer tables, and estimated to
 * be repeated loop_count times.
 */
void
snowflake_indexscan_add(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index, List *clauses,
						List *pathkeys, bool forward, Relids outer, double loop_count)
{
	add_path(rel, (Path *)
			 create_index_path(root, index,
							   list_concat(clauses, find_conditions(root, rel, index)),
							   NIL, NIL, pathkeys,
							   forward ? ForwardScanDirection : BackwardScanDirection,
							   is_index_only(rel, index), bms_union(outer, rel->lateral_relids),
							   loop_count, false));
}
