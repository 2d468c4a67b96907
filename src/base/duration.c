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

/* Returns a palloc'd text: in ms below a second, in days from two days on, otherwise in s. */
char *
snowflake_duration(int64 usec)
{
	if (usec < USECS_PER_SEC)
		return psprintf("%.3f ms", usec / 1000.0);
	if (usec < 2 * USECS_PER_DAY)
		return psprintf("%.3f s", (double) usec / USECS_PER_SEC);
	return psprintf("%.1f days", (double) usec / USECS_PER_DAY);
}

/* Returns a palloc'd interval, without days or months. */
Datum
snowflake_duration_interval(int64 usec)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = usec;
	return IntervalPGetDatum(interval);
}
