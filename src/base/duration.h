/*-------------------------------------------------------------------------
 *
 * duration.h
 *	  Lengths of time in messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_DURATION_H
#define SNOWFLAKE_DURATION_H

extern char *snowflake_duration(int64 usec);
extern Datum snowflake_duration_interval(int64 usec);

#endif							/* SNOWFLAKE_DURATION_H */
