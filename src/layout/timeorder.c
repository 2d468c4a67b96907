/*-------------------------------------------------------------------------
 *
 * timeorder.c
 *	  Rows in the order of their IDs' time, by an index on the ID.
 *
 * Times ascend with IDs.  So rows in the order of a table's IDs are in the order of "@@
 * id" as well, NULLs included, and in that of "@@ id, id".  The planner cannot know this.  So
 * after core has made the paths of a table, this file adds scans of the btree indexes whose
 * order is that of the time, because the columns before the ID are fixed or are sorted by first;
 * and it marks these scans as having that order.  It does so where the query sorts or groups
 * by a time, or a merge join could use its order.  For a table whose partitions are ranges of the
 * ID, it adds an Append that reads one partition after the other.
 *
 * The added paths are core's own index scans with core's costs.  A path competes with all
 * others, so it must return the same rows.  Before this, core has
 *
 *	- proven that a table or a partition has no row to return.  Then the only path says
 *	  so, and another one would return rows (IS_DUMMY_REL);
 *	- decided to read a sample of the table, which an index scan is not;
 *	- found out from which other tables each path of this one needs a row (LATERAL): an
 *	  added path has to say so as well, and core then adds the conditions;
 *	- decided which conditions may be executed before those of a policy or of a security
 *	  barrier: only these may be looked up in the index;
 *	- found out which partial indexes have all rows that are asked for;
 *	- built the list of a table's conditions: core tests all those that are not looked up.
 *
 * Row locks, LIMIT, partitionwise joins and the choice of parallel plans come later, and go
 * by what a path says.  Foreign tables have no index here.
 *
 * If a query only sorts the rows of one partitioned table, core has by then replaced that table's
 * paths, and with them the Append, by paths that compute what is selected.  So the Append is
 * added again, to the sorted rows.  Where core has grouped the rows before, or computed windows
 * or DISTINCT, they are no longer those of the table (IS_SIMPLE_REL); and functions that
 * return sets have made more of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_opfamily_d.h"
#include "nodes/pathnodes.h"
#include "optimizer/appendinfo.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "partitioning/partbounds.h"
#include "utils/lsyscache.h"

#include "base/compat.h"
#include "layout/planner.h"

/*
 * Translates an expression of a table, or of a UNION ALL, into one of the given table, which is
 * that one, a partition of it, or a part of it.
 */
static Node *
translate(PlannerInfo *root, RelOptInfo *rel, Node *node)
{
	AppendRelInfo *child;

	if (rel->reloptkind == RELOPT_BASEREL)
		return node;
	child = root->append_rel_array[rel->relid];
	node = translate(root, root->simple_rel_array[child->parent_relid], node);
	return adjust_appendrel_attrs(root, node, 1, &child);
}

/*
 * Does the equivalence class contain the given column of the table or, with "by_time",
 * the time of the IDs in it, or an expression that ascends with that time?  All IDs
 * must be decoded with one layout.
 */
static bool
has_column(PlannerInfo *root, RelOptInfo *rel, EquivalenceClass *ec, AttrNumber column,
		   bool by_time)
{
	Relids		relids = rel->top_parent_relids != NULL ? rel->top_parent_relids : rel->relids;
	ListCell   *lc;

	if (ec->ec_has_volatile)
		return false;
	foreach(lc, ec->ec_members)
	{
		EquivalenceMember *member = lfirst(lc);
		Node	   *node;

		if (member->em_is_child || !bms_equal(member->em_relids, relids))
			continue;
		node = translate(root, rel, (Node *) member->em_expr);
		if (by_time)
			node = snowflake_timeexpr_ascends_with(node);
		if (node != NULL && snowflake_indexscan_is_column(rel, node, column))
			return true;
	}
	return false;
}

/* An order of rows, by a column of a table */
typedef struct Order
{
	AttrNumber	column;
	Oid			opfamily;
	bool		descending;		/* as an index has it, read forward */
	bool		nulls_first;
} Order;

/*
 * Appends to the pathkeys that are met those next ones which an order meets, read forward or
 * backward, by the column itself or by the time of the IDs in it.  Returns true if one is met
 * by the time: the index sorts rows of one time by their IDs next.
 */
static bool
add_met(PlannerInfo *root, RelOptInfo *rel, const Order *order, List *pathkeys, bool forward,
		List **met)
{
	bool		any_by_time = false;

	for (int n = list_length(*met); n < list_length(pathkeys); n++)
	{
		PathKey    *pathkey = list_nth(pathkeys, n);
		bool		by_time = order->opfamily == INTEGER_BTREE_FAM_OID &&
		pathkey->pk_opfamily == snowflake_timeexpr_opfamily();

		if (PathKeyIsDescending(pathkey) != (order->descending == forward) ||
			pathkey->pk_nulls_first != (order->nulls_first == forward) ||
			(!by_time && pathkey->pk_opfamily != order->opfamily) ||
			!has_column(root, rel, pathkey->pk_eclass, order->column, by_time))
			break;
		*met = lappend(*met, pathkey);
		any_by_time |= by_time;
	}
	return any_by_time;
}

/* Is one of the pathkeys the order of a time, whatever time that is? */
static bool
has_time(List *pathkeys)
{
	ListCell   *lc;

	foreach(lc, pathkeys)
		if (((PathKey *) lfirst(lc))->pk_opfamily == snowflake_timeexpr_opfamily())
		return true;
	return false;
}

/* Does column n of the index have the same value in all rows that are asked for? */
static bool
is_fixed(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index, int n)
{
	ListCell   *lc;

	foreach(lc, root->eq_classes)
	{
		EquivalenceClass *ec = lfirst(lc);

		if (EC_MUST_BE_REDUNDANT(ec) && ec->ec_collation == index->indexcollations[n] &&
			list_member_oid(ec->ec_opfamilies, index->opfamily[n]) &&
			has_column(root, rel, ec, index->indexkeys[n], false))
			return true;
	}
	return false;
}

/*
 * Returns as many of the pathkeys as a scan of the index in the given direction meets, if
 * the time of its IDs is among them; otherwise NIL.
 */
static List *
met_by_index(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index, List *pathkeys,
			 bool forward)
{
	List	   *met = NIL;

	for (int n = 0; n < index->nkeycolumns && index->indexkeys[n] > 0; n++)
	{
		Order		order = {.column = index->indexkeys[n],.opfamily = index->sortopfamily[n],
		.descending = index->reverse_sort[n],.nulls_first = index->nulls_first[n]};
		int			nmet = list_length(met);

		if (add_met(root, rel, &order, pathkeys, forward, &met))
			return met;
		if (list_length(met) == nmet && !is_fixed(root, rel, index, n))
			break;
	}
	return NIL;
}

/* Add a scan of each index that meets some of the pathkeys by the time of its IDs. */
static void
add_index_scans(PlannerInfo *root, RelOptInfo *rel, List *pathkeys)
{
	ListCell   *lc;

	foreach(lc, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(lc);

		if (!snowflake_indexscan_is_usable(index))
			continue;
		for (int forward = 0; forward < 2; forward++)
		{
			List	   *met = met_by_index(root, rel, index, pathkeys, forward);

			if (met != NIL)
				snowflake_indexscan_add(root, rel, index, NIL, met, forward, NULL, 1.0);
		}
	}
}

/*
 * Returns a scan of a table's partitions, one after the other, if they are ranges of IDs
 * and some of the pathkeys are the order of their time; otherwise NULL.
 */
static Path *
make_partition_scan(PlannerInfo *root, RelOptInfo *rel, List *pathkeys)
{
	Order		order = {.opfamily = INTEGER_BTREE_FAM_OID};
	Var		   *key;
	PathKey    *first;
	bool		forward;
	List	   *met = NIL;
	List	   *scans = NIL;

	if (!has_time(pathkeys) || !REL_HAS_ALL_PART_PROPS(rel) ||
		rel->part_scheme->strategy != PARTITION_STRATEGY_RANGE ||
		rel->part_scheme->partopfamily[0] != INTEGER_BTREE_FAM_OID ||
		!partitions_are_ordered(rel->boundinfo, rel->live_parts) ||
		rel->lateral_relids != NULL)
		return NULL;
	key = (Var *) snowflake_timeexpr_strip(linitial(rel->partexprs[0]));
	if (!IsA(key, Var))
		return NULL;
	order.column = key->varattno;
	first = linitial(pathkeys);
	forward = !PathKeyIsDescending(first);
	/* NULL is in no range */
	order.nulls_first = first->pk_nulls_first == forward;

	if (!add_met(root, rel, &order, pathkeys, forward, &met))
		return NULL;

	for (int n = 0; n < rel->nparts; n++)
	{
		RelOptInfo *part = rel->part_rels[forward ? n : rel->nparts - 1 - n];
		Path	   *scan;

		if (part == NULL || IS_DUMMY_REL(part))
			continue;
		scan = get_cheapest_path_for_pathkeys(part->pathlist, met, NULL, STARTUP_COST, false);
		if (scan == NULL)
			return NULL;
		scans = lappend(scans, scan);
	}
	return scans == NIL ? NULL : (Path *) create_ordered_append_path(root, rel, scans, met);
}

/* The equivalence classes on which a merge join could join the table in the order of times. */
static List *
merged_classes(PlannerInfo *root, RelOptInfo *rel)
{
	List	   *classes = NIL;
	ListCell   *lc;

	foreach(lc, root->eq_classes)
		if (snowflake_timeexpr_is_among(((EquivalenceClass *) lfirst(lc))->ec_opfamilies) &&
			eclass_useful_for_merging(root, lfirst(lc), rel))
		classes = lappend(classes, lfirst(lc));
	foreach(lc, rel->joininfo)
	{
		RestrictInfo *rinfo = lfirst(lc);

		if (!snowflake_timeexpr_is_among(rinfo->mergeopfamilies))
			continue;
		update_mergeclause_eclasses(root, rinfo);
		classes = list_append_unique_ptr(classes, rinfo->left_ec);
		classes = list_append_unique_ptr(classes, rinfo->right_ec);
	}
	return classes;
}

/* Add to a table, or to the parent of several, the paths in an order of times that is useful. */
void
snowflake_timeorder_add_paths(PlannerInfo *root, RelOptInfo *rel, bool is_parent)
{
	ListCell   *lc;

	if (is_parent)
	{
		Path	   *scan = make_partition_scan(root, rel, root->query_pathkeys);

		if (scan != NULL)
			add_path(rel, scan);
		return;
	}
	if (has_time(root->query_pathkeys))
		add_index_scans(root, rel, root->query_pathkeys);
	foreach(lc, merged_classes(root, rel))
		add_index_scans(root, rel,
						list_make1(make_canonical_pathkey(root, lfirst(lc),
														  snowflake_timeexpr_opfamily(),
														  PATHKEY_ASCENDING, false)));
}

/* Add the scan of partitions to the sorted rows of a query that reads one table alone. */
void
snowflake_timeorder_add_sorted_path(PlannerInfo *root, UpperRelationKind stage,
									RelOptInfo *input_rel, RelOptInfo *output_rel)
{
	Path	   *scan;

	/* functions that return sets are computed in several steps */
	if (stage != UPPERREL_ORDERED || root->parse->hasTargetSRFs || !IS_SIMPLE_REL(input_rel) ||
		IS_DUMMY_REL(input_rel))
		return;
	scan = make_partition_scan(root, input_rel, root->sort_pathkeys);
	if (scan != NULL && pathkeys_contained_in(root->sort_pathkeys, scan->pathkeys))
		add_path(output_rel, apply_projection_to_path(root, output_rel, scan,
													  root->upper_targets[UPPERREL_ORDERED]));
}
