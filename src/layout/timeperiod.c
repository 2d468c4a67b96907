/*-------------------------------------------------------------------------
 *
 * timeperiod.c
 *	  The range of the instants that have a given local or truncated time.
 *
 * Local time, and what date_trunc() returns, is a function of the instant that nearly ascends:
 * where clocks are set back, local time repeats, and where that happens at midnight, the
 * old day comes back for an hour, or for most of one.  So a filter on "(@@ id)::date" or the like
 * is not a range of instants, but there is a range outside of which it finds nothing:
 *
 *		snowflake_period_start(time, unit)	an instant before which nothing, truncated
 *											to that unit, gives that time or a later one
 *		snowflake_period_end(time, unit)	an instant from which on nothing, truncated
 *											to that unit, gives that time or an earlier one
 *
 * The time is a timestamp or a date of a time zone, or the timestamptz that date_trunc()
 * returns for one.  Let "low" and "high" be the smallest and the largest offset from UTC
 * of the zone in the weeks around it.  No offset is larger than a week, so for every
 * instant t and its local time w = t + offset(t):
 *
 *		w >= x	implies	t >= x - high		w < x	implies	t < x - low
 *
 * A truncated instant is v, the truncated local time, minus an offset: for units of a day
 * or longer, the one of v or, if v occurs twice or not at all, the one before or after it.
 * The ends follow from v <= w < v + unit.  For smaller units the offset is that of w, so w - v
 * is t minus the truncated instant.
 *
 * If no clock is set there, low and high are the same; and if the time is one that truncation
 * gives, the ends are exact.  Every instant within two weeks of an end then has that offset;
 * one further away is on the same side of the end by its local time as well,
 * since no two offsets differ by more than two weeks.  So the filter is true of every instant
 * between the ends.  Usually this is known only when the plan is executed, in the time zone of
 * a session:
 *
 *		snowflake_period_is_exact(time, unit)	are both ends exact?
 *
 * The instants are those that decoding returns, which are the starts of ticks, as are those that
 * the bounds of timerange.c compare with.  So the length of a tick needs no margin, whether
 * a tick is longer than the unit or shorter than a millisecond.
 *
 * With a zone in the call, these functions are IMMUTABLE, as core's AT TIME ZONE is.  None raises
 * an error for any time: the filter itself would not, if no row is left for it.  The ends in a
 * zone that is not known here are infinite.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "catalog/pg_type_d.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "layout/planner.h"

PG_FUNCTION_INFO_V1(snowflake_period_start);
PG_FUNCTION_INFO_V1(snowflake_period_end);
PG_FUNCTION_INFO_V1(snowflake_period_is_exact);

/* No time zone has a larger offset from UTC, POSIX specifications included. */
#define MAX_OFFSET		(7 * SECS_PER_DAY)

/* Three times as much, and a day to spare */
#define AROUND_USEC		(22 * USECS_PER_DAY)

/* A unit of date_trunc() */
typedef struct Unit
{
	const char *name;
	int			months;
	int64		usec;
} Unit;

static const Unit units[] = {
	{"microseconds", 0, 1},
	{"milliseconds", 0, 1000},
	{"second", 0, USECS_PER_SEC},
	{"minute", 0, USECS_PER_MINUTE},
	{"hour", 0, USECS_PER_HOUR},
	{"day", 0, USECS_PER_DAY},
	{"week", 0, 7 * USECS_PER_DAY},
	{"month", 1, 0},
	{"quarter", 3, 0},
	{"year", 12, 0},
	{"decade", 120, 0},
	{"century", 1200, 0},
	{"millennium", 12000, 0},

	/* not of date_trunc(): for the end of what is before a plain time */
	{SNOWFLAKE_TIMEPERIOD_NONE, 0, 0},
};

/* The longest of them, with some days to spare */
#define LONGEST_UNIT_USEC	(1001 * INT64CONST(366) * USECS_PER_DAY)

static const Unit *
find_unit(const char *name)
{
	for (size_t i = 0; i < lengthof(units); i++)
		if (pg_strcasecmp(units[i].name, name) == 0)
			return &units[i];
	return NULL;
}

/* The unit of that name, as it is written here, or NULL. */
const char *
snowflake_timeperiod_unit(const char *name)
{
	const Unit *unit = find_unit(name);

	return unit != NULL && unit->months + unit->usec > 0 ? unit->name : NULL;
}

/* A number of microseconds as a time, or an infinity if it is out of range. */
static Timestamp
saturate(int64 usec)
{
	if (usec < MIN_TIMESTAMP)
		return DT_NOBEGIN;
	if (usec >= END_TIMESTAMP)
		return DT_NOEND;
	return usec;
}

/* A finite or infinite time, minus a number of seconds. */
static Timestamp
less_seconds(Timestamp time, long seconds)
{
	return TIMESTAMP_NOT_FINITE(time) ? time : saturate(time - seconds * USECS_PER_SEC);
}

/* A time plus one unit. */
static Timestamp
plus_unit(Timestamp time, const Unit *unit)
{
	Interval	months = {.month = unit->months};

	if (TIMESTAMP_NOT_FINITE(time))
		return time;
	if (time >= END_TIMESTAMP - LONGEST_UNIT_USEC)
		return DT_NOEND;
	if (unit->months == 0)
		return time + unit->usec;
	return DatumGetTimestamp(DirectFunctionCall2(timestamp_pl_interval,
												 TimestampGetDatum(time), IntervalPGetDatum(&months)));
}

/* The smallest and the largest offset of a zone in the weeks around a time, in seconds. */
static void
offsets_around(const pg_tz *tz, Timestamp time, long *low, long *high)
{
	pg_time_t	at = timestamptz_to_time_t(time - AROUND_USEC);
	pg_time_t	end = timestamptz_to_time_t(time + AROUND_USEC);
	pg_time_t	boundary;
	long int	before,
				after;
	int			before_isdst,
				after_isdst;
	int			found;

	*low = LONG_MAX;
	*high = LONG_MIN;
	do
	{
		found = pg_next_dst_boundary(&at, &before, &before_isdst, &boundary, &after,
									 &after_isdst, tz);
		if (found < 0)
		{
			/* so far away that nothing is known of the zone */
			before = -MAX_OFFSET;
			*high = MAX_OFFSET;
		}
		*low = Min(*low, before);
		*high = Max(*high, before);
		at = boundary;
	} while (found > 0 && boundary <= end);
}

/* The time zone of that name, or NULL if AT TIME ZONE may take it for an abbreviation. */
static const pg_tz *
find_zone(const char *name)
{
	pg_tz	   *tz;

	if (strchr(name, '/') == NULL && pg_strcasecmp(name, "UTC") != 0)
		return NULL;
	tz = pg_tzset(name);
	return tz != NULL && pg_tz_acceptable(tz) ? tz : NULL;
}

/* Are the ends known in the time zone of that name? */
bool
snowflake_timeperiod_is_zone(const char *name)
{
	return find_zone(name) != NULL;
}

/* The time zone of a call: the session's, or the one that it names, or NULL if that is unknown. */
static const pg_tz *
get_zone(FunctionCallInfo fcinfo)
{
	return PG_NARGS() < 3 ? session_timezone : find_zone(text_to_cstring(PG_GETARG_TEXT_PP(2)));
}

/* Sets *time to a time of the given type.  Returns true for an instant, false for a local time. */
static bool
read_time(Oid type, Datum value, Timestamp *time)
{
	DateADT		day;

	switch (type)
	{
		case TIMESTAMPTZOID:
			*time = DatumGetTimestampTz(value);
			return true;
		case TIMESTAMPOID:
			*time = DatumGetTimestamp(value);
			return false;
		case DATEOID:
			day = DatumGetDateADT(value);
			if (DATE_IS_NOBEGIN(day))
				*time = DT_NOBEGIN;
			else if (day >= TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE)
				*time = DT_NOEND;
			else
				*time = saturate(day * USECS_PER_DAY);
			return false;
		default:
			ereport(ERROR,
					errcode(ERRCODE_DATATYPE_MISMATCH),
					errmsg("type %s is not a time that can be truncated", format_type_be(type)));
	}
}

/* The type of a call's time, without domains */
static Oid
get_type(FunctionCallInfo fcinfo)
{
	return getBaseType(get_fn_expr_argtype(fcinfo->flinfo, 0));
}

static const Unit *
get_unit(FunctionCallInfo fcinfo)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(1));
	const Unit *unit = find_unit(name);

	if (unit == NULL)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("unit \"%s\" not recognized", name));
	return unit;
}

/* One of the two ends for a time, a unit and a time zone, as defined at the head of this file */
static TimestampTz
get_end(FunctionCallInfo fcinfo, bool is_end)
{
	Timestamp	time;
	bool		instant = read_time(get_type(fcinfo), PG_GETARG_DATUM(0), &time);
	const Unit *unit = get_unit(fcinfo);
	const pg_tz *tz = get_zone(fcinfo);
	long		low,
				high;

	/* date_trunc() looks up the offset again for days and longer units only */
	if (instant && unit->months == 0 && unit->usec < USECS_PER_DAY)
		return is_end ? plus_unit(time, unit) : time;
	if (TIMESTAMP_NOT_FINITE(time))
		return time;
	if (tz == NULL)
		return is_end ? DT_NOEND : DT_NOBEGIN;
	offsets_around(tz, time, &low, &high);

	/* the local time of a truncated instant may be off by as much again */
	if (!is_end)
		return less_seconds(time, (instant ? 0 : high) + (high - low));
	time = plus_unit(less_seconds(time, instant ? -high : low - high), unit);
	if (TIMESTAMP_NOT_FINITE(time))
		return time;
	offsets_around(tz, time, &low, &high);
	return less_seconds(time, low);
}

Datum
snowflake_period_start(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(get_end(fcinfo, false));
}

Datum
snowflake_period_end(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(get_end(fcinfo, true));
}

/*
 * Are both ends exact?  They are not where clocks are set in the weeks around, or that is not
 * known, nor if truncation does not give the time.
 */
static bool
is_exact(FunctionCallInfo fcinfo)
{
	Timestamp	start,
				end;
	bool		instant = read_time(get_type(fcinfo), PG_GETARG_DATUM(0), &start);
	const Unit *unit = get_unit(fcinfo);
	const pg_tz *tz = get_zone(fcinfo);
	long		low,
				high,
				low_at_end,
				high_at_end;

	if (tz == NULL || TIMESTAMP_NOT_FINITE(start))
		return false;
	offsets_around(tz, start, &low, &high);
	if (instant)
		start = less_seconds(start, -low);
	end = plus_unit(start, unit);
	/* truncation raises an error for the first times that there are */
	if (TIMESTAMP_NOT_FINITE(start) || TIMESTAMP_NOT_FINITE(end) ||
		start < MIN_TIMESTAMP + LONGEST_UNIT_USEC)
		return false;
	offsets_around(tz, end, &low_at_end, &high_at_end);
	/* clocks may be set amid a long unit: that concerns instants amid it only */
	if (low != high || low_at_end != high_at_end)
		return false;
	if (end != start &&
		DatumGetTimestamp(DirectFunctionCall2(timestamp_trunc, CStringGetTextDatum(unit->name),
											  TimestampGetDatum(start))) != start)
		return false;
	return !TIMESTAMP_NOT_FINITE(less_seconds(start, low)) &&
		!TIMESTAMP_NOT_FINITE(less_seconds(end, low_at_end));
}

/* The last answer of snowflake_period_is_exact(), and what it depends on */
typedef struct Answer
{
	Oid			type;
	Timestamp	time;
	const pg_tz *session_zone;
	bool		is_exact;
} Answer;

/*
 * Are both ends exact?  This is called for each row, usually with the same arguments.  So the last
 * answer is kept, unless the name of the unit or of the zone may differ from row to row.
 */
Datum
snowflake_period_is_exact(PG_FUNCTION_ARGS)
{
	Answer	   *answer = fcinfo->flinfo->fn_extra;
	Oid			type = answer != NULL ? answer->type : get_type(fcinfo);
	Timestamp	time;
	bool		result;

	(void) read_time(type, PG_GETARG_DATUM(0), &time);
	if (answer != NULL && answer->time == time && answer->session_zone == session_timezone)
		PG_RETURN_BOOL(answer->is_exact);
	result = is_exact(fcinfo);
	if (answer == NULL && get_fn_expr_arg_stable(fcinfo->flinfo, 1) &&
		(PG_NARGS() == 2 || get_fn_expr_arg_stable(fcinfo->flinfo, 2)))
		fcinfo->flinfo->fn_extra = answer = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt,
															   sizeof(Answer));
	if (answer != NULL)
	{
		answer->type = type;
		answer->time = time;
		answer->session_zone = session_timezone;
		answer->is_exact = result;
	}
	PG_RETURN_BOOL(result);
}
