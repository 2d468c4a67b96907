/*-------------------------------------------------------------------------
 *
 * timejoin.h
 *	  Rows whose ID has the time of a row of another table, by an index on the ID.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_TIMEJOIN_H
#define SNOWFLAKE_TIMEJOIN_H

extern void snowflake_timejoin_init(void);

#endif							/* SNOWFLAKE_TIMEJOIN_H */
