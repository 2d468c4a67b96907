/*-------------------------------------------------------------------------
 *
 * timeperiod.h
 *	  The instants that a time of a day, or one that was truncated, may stand for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_TIMEPERIOD_H
#define SNOWFLAKE_TIMEPERIOD_H

extern bool snowflake_timeperiod_is_zone(const char *name);
extern const char *snowflake_timeperiod_unit(const char *name);

#endif							/* SNOWFLAKE_TIMEPERIOD_H */
