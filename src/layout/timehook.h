/*-------------------------------------------------------------------------
 *
 * timehook.h
 *	  Where the planner is told what a filter on a time says of the key.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_TIMEHOOK_H
#define SNOWFLAKE_TIMEHOOK_H

extern void snowflake_timehook_init(void);

#endif							/* SNOWFLAKE_TIMEHOOK_H */
