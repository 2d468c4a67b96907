/*-------------------------------------------------------------------------
 *
 * timejoin.c
 *	  Joins with rows whose ID has the time of another table's row, by an index on
 *	  the ID.
 *
 * timefilter.c makes a comparison with a column of another table one of the ID, for which
 * core finds the index.  But it leaves an equality alone, since only that can be
 * hashed or merged.  For equalities, this file adds the third way to join: an index scan that is
 * repeated for each row of the other table, in the range of that row's time.  Core tests the
 * equality as well: to core, the range is a lossy index condition.
 *
 * What timeorder.c says of added paths holds here as well.  Besides, core has decided
 *
 *	- which equalities follow from others: this file asks core for those of an ID's time;
 *	- to which table a condition of an outer join may be moved.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_opfamily_d.h"
#include "nodes/makefuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "base/compat.h"
#include "layout/planner.h"

/* Is the node the time of the IDs in the given column of the table? */
static bool
is_time_of(RelOptInfo *rel, Node *node, AttrNumber column, SnowflakeTimeOfId *time)
{
	return snowflake_timeexpr_read_plain(node, false, time) &&
		snowflake_indexscan_is_column(rel, time->id, column);
}

/* The same, of a member of an equivalence class.  For generate_implied_equalities_for_column(). */
static bool
is_wanted(PlannerInfo *root, RelOptInfo *rel, EquivalenceClass *ec, EquivalenceMember *member,
		  void *column)
{
	SnowflakeTimeOfId time;

	return snowflake_timeexpr_is_among(ec->ec_opfamilies) &&
		is_time_of(rel, (Node *) member->em_expr, *(AttrNumber *) column, &time);
}

/* May there be an equality of a time of the table with a time of another table? */
static bool
may_have_equality(PlannerInfo *root, RelOptInfo *rel)
{
	ListCell   *lc;

	if (rel->has_eclass_joins)
		foreach(lc, root->eq_classes)
			if (snowflake_timeexpr_is_among(((EquivalenceClass *) lfirst(lc))->ec_opfamilies))
			return true;
	foreach(lc, rel->joininfo)
		if (snowflake_timeexpr_is_among(((RestrictInfo *) lfirst(lc))->mergeopfamilies))
		return true;
	return false;
}

/* The equalities with rows of other tables that a scan may be repeated for. */
static List *
find_equalities(PlannerInfo *root, RelOptInfo *rel, AttrNumber column)
{
	List	   *equalities = NIL;
	ListCell   *lc;

	if (rel->has_eclass_joins)
		equalities = generate_implied_equalities_for_column(root, rel, is_wanted, &column,
															rel->lateral_referencers);
	foreach(lc, rel->joininfo)
		if (snowflake_timeexpr_is_among(((RestrictInfo *) lfirst(lc))->mergeopfamilies) &&
			join_clause_is_movable_to(lfirst(lc), rel))
		equalities = lappend(equalities, lfirst(lc));
	return equalities;
}

/* How often will a scan be repeated?  As in core, as often as the smallest outer table has rows. */
static double
count_rows(PlannerInfo *root, Relids outer)
{
	double		rows = 0;
	int			relid = -1;

	while ((relid = bms_next_member(outer, relid)) >= 0)
	{
		RelOptInfo *rel = relid < root->simple_rel_array_size ? root->simple_rel_array[relid] : NULL;

		if (rel != NULL && !IS_DUMMY_REL(rel) && rel->rows > 0)
			rows = rows == 0 ? rel->rows : Min(rows, rel->rows);
	}
	return Max(rows, 1);
}

/*
 * Returns the two conditions of the range of one time, or NIL.  Core would expect a long scan.  So
 * the second condition gets the selectivity of an equality of the ID, in the field where core
 * keeps one that it has computed; for core to look there, both are marked as depending on this
 * table alone.  They are for the index only: the path says which tables it depends on.
 */
static List *
make_one_time_range(PlannerInfo *root, RelOptInfo *rel, const SnowflakeTimeOfId *decoded,
					Node *time)
{
	SnowflakeTimeContext context = {.root = root,.time = *decoded};
	List	   *range = make_ands_implicit((Expr *) snowflake_timebound_between(&context, time));
	RestrictInfo *lower,
			   *upper;
	VariableStatData statistics;
	bool		is_default;

	if (list_length(range) != 2)
		return NIL;
	lower = make_simple_restrictinfo(root, linitial(range));
	upper = make_simple_restrictinfo(root, lsecond(range));
	examine_variable(root, decoded->id, 0, &statistics);
	lower->norm_selec = lower->outer_selec = 1;
	upper->norm_selec = upper->outer_selec =
		1 / Max(get_variable_numdistinct(&statistics, &is_default), 1);
	ReleaseVariableStats(statistics);
	lower->clause_relids = upper->clause_relids = rel->relids;
	return lappend(list_make1(lower), upper);
}

/* Add a scan of the index in the range of the time on the equality's other side. */
static void
add_scan(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index, RestrictInfo *equality)
{
	OpExpr	   *condition = (OpExpr *) equality->clause;
	AttrNumber	column = index->indexkeys[0];
	SnowflakeTimeOfId decoded;
	Node	   *time;
	Relids		outer;
	List	   *range;
	IndexClause *clause;

	if (!IsA(condition, OpExpr) || list_length(condition->args) != 2 ||
		get_op_opfamily_strategy(condition->opno, snowflake_timeexpr_opfamily()) != BTEqualStrategyNumber ||
		!restriction_is_securely_promotable(equality, rel))
		return;
	if (is_time_of(rel, linitial(condition->args), column, &decoded))
		time = lsecond(condition->args);
	else if (is_time_of(rel, lsecond(condition->args), column, &decoded))
		time = linitial(condition->args);
	else
		return;
	outer = pull_varnos(root, time);
	if (bms_is_empty(outer) || bms_overlap(outer, rel->relids) ||
		snowflake_timeexpr_must_be_evaluated_once(time))
		return;
	range = make_one_time_range(root, rel, &decoded, time);
	if (range == NIL)
		return;
	root->glob->dependsOnRole = true;	/* as timehook.c says */

	clause = makeNode(IndexClause);
	clause->rinfo = equality;
	clause->indexquals = range;
	clause->lossy = true;

	outer = bms_difference(equality->clause_relids, rel->relids);
	snowflake_indexscan_add(root, rel, index, list_make1(clause), NIL, true, outer,
							count_rows(root, outer));
}

/* Add to the paths of a table the scans that look up the rows of a time of another table. */
void
snowflake_timejoin_add_paths(PlannerInfo *root, RelOptInfo *rel)
{
	ListCell   *lc,
			   *lc2;

	if (!may_have_equality(root, rel))
		return;
	foreach(lc, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(lc);

		if (!snowflake_indexscan_is_usable(index) || index->indexkeys[0] <= 0 ||
			index->opfamily[0] != INTEGER_BTREE_FAM_OID)
			continue;
		foreach(lc2, find_equalities(root, rel, index->indexkeys[0]))
			add_scan(root, rel, index, lfirst(lc2));
	}
}
