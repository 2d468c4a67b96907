/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The only reader of the clocks.
 *
 * Everything else takes the time as an argument.  Two clocks matter: the wall
 * clock, which dates the IDs and can be stepped by anybody at any time, and
 * the monotonic clock, which measures how long something took and cannot.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_CLOCK_H
#define SNOWFLAKE_CLOCK_H

#include "portability/instr_time.h"
#include "utils/timestamp.h"

/* The wall clock. */
static inline TimestampTz
snowflake_wall_clock(void)
{
	return GetCurrentTimestamp();
}

/* The monotonic clock, in microseconds since an arbitrary start. */
static inline int64
snowflake_monotonic_usec(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

#endif							/* SNOWFLAKE_CLOCK_H */
