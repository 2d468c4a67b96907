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

#include <time.h>

#include "utils/timestamp.h"

/* The wall clock. */
static inline TimestampTz
snowflake_wall_clock(void)
{
	return GetCurrentTimestamp();
}

/*
 * The monotonic clock, in microseconds since an arbitrary start.
 *
 * Not by instr_time, which may read the processor's counter instead: slewing
 * changes the speed of this clock as it does that of the wall clock, so what
 * is left between the two are steps.
 */
static inline int64
snowflake_monotonic_usec(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

#endif							/* SNOWFLAKE_CLOCK_H */
