/*-------------------------------------------------------------------------
 *
 * planner.h
 *	  What the planner is told of the times of IDs: by hooks of a preloaded library.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_PLANNER_H
#define SNOWFLAKE_PLANNER_H

/* timehook.c: filters */

extern void snowflake_timehook_init(void);

/* timejoin.c: joins */

extern void snowflake_timejoin_init(void);

/* timeorder.c: order */

extern void snowflake_timeorder_init(void);

#endif							/* SNOWFLAKE_PLANNER_H */
