/*-------------------------------------------------------------------------
 *
 * durable.h
 *	  The keeper's transactions, whose commits are durable or errors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_DURABLE_H
#define SNOWFLAKE_DURABLE_H

extern void snowflake_durable_init(void);
extern void snowflake_begin(const char *activity);
extern void snowflake_commit(void);
extern void snowflake_wait_for_nobody(void);

#endif							/* SNOWFLAKE_DURABLE_H */
