/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  The counters, for the view snowflake_stats.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/duration.h"
#include "generator/counters.h"
#include "generator/generator.h"

PG_FUNCTION_INFO_V1(snowflake_get_stats);
PG_FUNCTION_INFO_V1(snowflake_stats_reset);

/* The columns of the view: these two, and the counters between them. */
#define COLUMN_MINTED		0
#define COLUMN_COUNTERS		1
#define COLUMN_STATS_RESET	(COLUMN_COUNTERS + SNOWFLAKE_COUNTERS)
#define STATS_COLUMNS		(COLUMN_STATS_RESET + 1)

/* Is the counter a time, in microseconds? */
static bool
counts_time(SnowflakeCounter counter)
{
	switch (counter)
	{
		case COUNTER_CLOCK_WAIT_TOTAL:
		case COUNTER_CLOCK_WAIT_LONGEST:
		case COUNTER_KEEPER_WAIT_TOTAL:
		case COUNTER_KEEPER_WAIT_LONGEST:
		case COUNTER_CLOCK_STEP_BACK_LARGEST:
		case COUNTER_CLOCK_STEP_AHEAD_LARGEST:
			return true;
		default:
			return false;
	}
}

/*
 * Returns the counts since the counters were last reset.  Only roles that may read
 * statistics see how much others mint; without a generator, there is nothing to
 * count.
 */
Datum
snowflake_get_stats(PG_FUNCTION_ARGS)
{
	Datum		values[STATS_COLUMNS];
	bool		nulls[STATS_COLUMNS];
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	memset(nulls, true, sizeof(nulls));
	if (snowflake_generator_exists())
	{
		values[COLUMN_STATS_RESET] = TimestampTzGetDatum(snowflake_counters_reset_at());
		nulls[COLUMN_STATS_RESET] = false;
	}
	if (snowflake_generator_exists() &&
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
	{
		values[COLUMN_MINTED] = Int64GetDatum((int64) snowflake_counters_minted());
		nulls[COLUMN_MINTED] = false;
		for (int i = 0; i < SNOWFLAKE_COUNTERS; i++)
		{
			int64		count = (int64) snowflake_counters_get(i);

			values[COLUMN_COUNTERS + i] = counts_time(i) ?
				snowflake_duration_interval(count) : Int64GetDatum(count);
			nulls[COLUMN_COUNTERS + i] = false;
		}
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}

/* Count from zero again.  The SQL script revokes this from PUBLIC. */
Datum
snowflake_stats_reset(PG_FUNCTION_ARGS)
{
	snowflake_generator_require("snowflake_stats_reset()");
	snowflake_counters_reset();
	PG_RETURN_VOID();
}
