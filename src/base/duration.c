/*-------------------------------------------------------------------------
 *
 * duration.c
 *	  Lengths of time in messages and columns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "base/duration.h"

/* A length of time as a text: in ms below a second, in s from there on. */
char *
snowflake_duration(int64 usec)
{
	if (usec < USECS_PER_SEC)
		return psprintf("%.3f ms", usec / 1000.0);
	return psprintf("%.3f s", (double) usec / USECS_PER_SEC);
}

/* A length of time as an interval. */
Datum
snowflake_duration_interval(int64 usec)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = usec;
	return IntervalPGetDatum(interval);
}
