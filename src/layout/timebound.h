/*-------------------------------------------------------------------------
 *
 * timebound.h
 *	  What a comparison with a time says of the ID, as conditions in a plan.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_TIMEBOUND_H
#define SNOWFLAKE_TIMEBOUND_H

#include "access/stratnum.h"
#include "nodes/pathnodes.h"

#include "layout/timeexpr.h"

/* The time of an ID that is compared in a query */
typedef struct SnowflakeTimeContext
{
	PlannerInfo *root;
	Index		relid;			/* the table of which the ID has to be, 0: of
								 * any */
	SnowflakeTimeOfId time;
} SnowflakeTimeContext;

extern bool snowflake_timebound_is_known_first(Node *value);
extern Node *snowflake_timebound_lower(const SnowflakeTimeContext *context, Node *time,
									   bool inclusive);
extern Node *snowflake_timebound_upper(const SnowflakeTimeContext *context, Node *time,
									   bool inclusive);
extern Node *snowflake_timebound_both(Node *one, Node *other);
extern Node *snowflake_timebound_between(const SnowflakeTimeContext *context, Node *time);
extern Node *snowflake_timebound_range(const SnowflakeTimeContext *context,
									   StrategyNumber strategy, Node *value, bool *is_exact);

#endif							/* SNOWFLAKE_TIMEBOUND_H */
