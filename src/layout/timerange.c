/*-------------------------------------------------------------------------
 *
 * timerange.c
 *	  Times as bounds on IDs, so that a comparison with a time is a range of
 *	  the primary key.
 *
 * An ID's time is the start of its tick, and IDs sort by it.  So each of the four comparisons is
 * one of integers:
 *
 *		@@ id <  t	id::bigint <= snowflake_before(t)
 *		@@ id <= t	id::bigint <= snowflake_until(t)
 *		@@ id >  t	id::bigint >  snowflake_until(t)
 *		@@ id >= t	id::bigint >  snowflake_before(t)
 *
 * Bounds range from -1, below all IDs, to the largest bigint, so that every time
 * has them: one before the epoch, after the layout's end, or infinite.  Of several
 * times, that is, of a range, a multirange or an array, snowflake_before() takes
 * the first and snowflake_until() the last; if there is none, nothing lies between
 * the two bounds.
 *
 * To the planner, a bound is a stable expression, which it uses and estimates like any other.
 * One that is known is written as a constant, so that partitions are pruned during planning.  A
 * lower one is then "id::bigint >= bound + 1": with ">", the planner would keep the partition
 * before as well, since to it there might be something after the last ID of that.  That form
 * cannot say "after the largest bigint", so it is not used for bounds that are not known yet.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/multirangetypes.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "layout/decode.h"
#include "layout/planner.h"

PG_FUNCTION_INFO_V1(snowflake_before);
PG_FUNCTION_INFO_V1(snowflake_until);

/* The largest ID before an instant or, with "inclusive", not after it. */
static int64
instant_bound(const SnowflakeLayout *layout, TimestampTz ts, bool inclusive)
{
	return inclusive ? snowflake_layout_id_until(layout, ts) :
		snowflake_layout_id_before(layout, ts);
}

/*
 * Returns a timestamp or a date in the session's time zone as an instant, by core's comparison of
 * its type with timestamptz, and the cast.  For a time that no timestamptz can express, the cast
 * would raise an error; by the comparison, it lies before or after all of them.
 */
static TimestampTz
local_time(Datum time, PGFunction compare, PGFunction cast)
{
	if (DatumGetInt32(DirectFunctionCall2(compare, time,
										  TimestampTzGetDatum(MIN_TIMESTAMP))) < 0)
		return DT_NOBEGIN;
	if (DatumGetInt32(DirectFunctionCall2(compare, time,
										  TimestampTzGetDatum(END_TIMESTAMP - 1))) > 0)
		return DT_NOEND;
	return DatumGetTimestampTz(DirectFunctionCall1(cast, time));
}

/* A bound of a range.  The two bounds of an empty one leave nothing between them. */
static int64
range_bound(const SnowflakeLayout *layout, const RangeType *range, bool inclusive)
{
	RangeBound	lower,
				upper;
	bool		empty;

	range_deserialize(lookup_type_cache(TSTZRANGEOID, TYPECACHE_RANGE_INFO), range,
					  &lower, &upper, &empty);
	if (empty)
		return inclusive ? -1 : PG_INT64_MAX;
	if (inclusive)
		return upper.infinite ? PG_INT64_MAX :
			instant_bound(layout, DatumGetTimestampTz(upper.val), upper.inclusive);
	return lower.infinite ? -1 :
		instant_bound(layout, DatumGetTimestampTz(lower.val), !lower.inclusive);
}

/* The same for an array of timestamptz, where NULL does not count. */
static int64
array_bound(const SnowflakeLayout *layout, ArrayType *array, bool inclusive)
{
	int64		bound = inclusive ? -1 : PG_INT64_MAX;
	Datum	   *times;
	bool	   *nulls;
	int			ntimes;

	deconstruct_array(array, TIMESTAMPTZOID, sizeof(TimestampTz), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &times, &nulls, &ntimes);
	for (int i = 0; i < ntimes; i++)
	{
		int64		one;

		if (nulls[i])
			continue;
		one = instant_bound(layout, DatumGetTimestampTz(times[i]), inclusive);
		bound = inclusive ? Max(bound, one) : Min(bound, one);
	}
	return bound;
}

/*
 * The largest ID before a time of the given type, or before all of several; with "inclusive",
 * not after it, or not after all of them.  Raises no error for any time: a filter would not
 * either, if no row is left to compare with it.
 */
int64
snowflake_timerange_bound(const SnowflakeLayout *layout, Oid type, Datum time, bool inclusive)
{
	switch (getBaseType(type))
	{
		case TIMESTAMPTZOID:
			return instant_bound(layout, DatumGetTimestampTz(time), inclusive);
		case TIMESTAMPOID:
			return instant_bound(layout, local_time(time, timestamp_cmp_timestamptz,
													timestamp_timestamptz), inclusive);
		case DATEOID:
			return instant_bound(layout, local_time(time, date_cmp_timestamptz,
													date_timestamptz), inclusive);
		case TSTZRANGEOID:
			return range_bound(layout, DatumGetRangeTypeP(time), inclusive);
		case TSTZMULTIRANGEOID:
			return range_bound(layout,
							   multirange_get_union_range(lookup_type_cache(TSTZRANGEOID,
																			TYPECACHE_RANGE_INFO),
														  DatumGetMultirangeTypeP(time)),
							   inclusive);
		case TIMESTAMPTZARRAYOID:
			return array_bound(layout, DatumGetArrayTypeP(time), inclusive);
		default:
			ereport(ERROR,
					errcode(ERRCODE_DATATYPE_MISMATCH),
					errmsg("type %s is not a time", format_type_be(type)),
					errdetail("A bound on snowflakes is that of a timestamptz, timestamp, date, tstzrange, tstzmultirange or timestamptz[]."));
	}
}

/* The largest ID before a time, or before all of several; -1 if there is none. */
Datum
snowflake_before(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_timerange_bound(snowflake_decode_get_layout(fcinfo, 1),
											  get_fn_expr_argtype(fcinfo->flinfo, 0),
											  PG_GETARG_DATUM(0), false));
}

/* The largest ID that is not after a time, or not after all of several. */
Datum
snowflake_until(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_timerange_bound(snowflake_decode_get_layout(fcinfo, 1),
											  get_fn_expr_argtype(fcinfo->flinfo, 0),
											  PG_GETARG_DATUM(0), true));
}
