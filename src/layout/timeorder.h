/*-------------------------------------------------------------------------
 *
 * timeorder.h
 *	  Rows in the order of the time that their IDs say.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_TIMEORDER_H
#define SNOWFLAKE_TIMEORDER_H

extern void snowflake_timeorder_init(void);

#endif							/* SNOWFLAKE_TIMEORDER_H */
