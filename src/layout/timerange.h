/*-------------------------------------------------------------------------
 *
 * timerange.h
 *	  Times as bounds on IDs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_TIMERANGE_H
#define SNOWFLAKE_TIMERANGE_H

#include "nodes/pathnodes.h"

extern bool snowflake_timerange_may_fold(const PlannerInfo *root);
extern bool snowflake_timerange_constant(const PlannerInfo *root, Node *time, Node *layout,
										 bool inclusive, int64 *bound);
extern Node *snowflake_timerange_upper(Node *id, Node *bound);
extern Node *snowflake_timerange_lower(Node *id, Node *bound);

#endif							/* SNOWFLAKE_TIMERANGE_H */
