/*-------------------------------------------------------------------------
 *
 * timeperiod.h
 *	  The instants that a time of a day, or one that was truncated, may stand for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_TIMEPERIOD_H
#define SNOWFLAKE_TIMEPERIOD_H

#include "datatype/timestamp.h"

extern bool snowflake_timeperiod_is_zone(const char *name);
extern bool snowflake_timeperiod_constant(const char *zone, Oid type, Datum time,
										  const char *unit, TimestampTz *start, TimestampTz *end);
extern const char *snowflake_timeperiod_unit(const char *name);

#endif							/* SNOWFLAKE_TIMEPERIOD_H */
