/*-------------------------------------------------------------------------
 *
 * timefilter.h
 *	  Filters on the time of an ID, answered by the key.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_TIMEFILTER_H
#define SNOWFLAKE_TIMEFILTER_H

#include "nodes/pathnodes.h"

extern Node *snowflake_timefilter_simplify(PlannerInfo *root, Index relid, Node *condition,
										   Oid *decoded_by);

#endif							/* SNOWFLAKE_TIMEFILTER_H */
