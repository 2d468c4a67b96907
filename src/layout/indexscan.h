/*-------------------------------------------------------------------------
 *
 * indexscan.h
 *	  What a scan of an index that a hook adds looks up, and where it reads it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_INDEXSCAN_H
#define SNOWFLAKE_INDEXSCAN_H

#include "nodes/pathnodes.h"

extern bool snowflake_indexscan_is_column(RelOptInfo *rel, Node *node, AttrNumber column);
extern List *snowflake_indexscan_conditions(PlannerInfo *root, RelOptInfo *rel,
											IndexOptInfo *index);
extern bool snowflake_indexscan_is_only(RelOptInfo *rel, IndexOptInfo *index);

#endif							/* SNOWFLAKE_INDEXSCAN_H */
