/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  The counters, for the view snowflake_stats.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/row.h"
#include "generator/counters.h"
#include "generator/generator.h"

PG_FUNCTION_INFO_V1(snowflake_get_stats);
PG_FUNCTION_INFO_V1(snowflake_stats_reset);

/* The columns of the view: these two, and the counters between them. */
#define COLUMN_MINTED		0
#define COLUMN_COUNTERS		1
#define COLUMN_STATS_RESET	(COLUMN_COUNTERS + SNOWFLAKE_COUNTERS)
#define STATS_COLUMNS		(COLUMN_STATS_RESET + 1)

/*
 * The counts since the counters were last reset.  Only roles that may read statistics
 * see how much others mint; without a generator there is nothing to count.
 */
Datum
snowflake_get_stats(PG_FUNCTION_ARGS)
{
	SnowflakeColumn columns[STATS_COLUMNS];
	SnowflakeRow row;

	columns[COLUMN_MINTED] = (SnowflakeColumn)
	{
		"minted", INT8OID
	};
	for (int i = 0; i < SNOWFLAKE_COUNTERS; i++)
		columns[COLUMN_COUNTERS + i] = (SnowflakeColumn)
	{
		snowflake_counters_columns[i].name,
			snowflake_counters_columns[i].is_time ? INTERVALOID : INT8OID
	};
	columns[COLUMN_STATS_RESET] = (SnowflakeColumn)
	{
		"stats_reset", TIMESTAMPTZOID
	};

	snowflake_row_begin(&row, fcinfo, columns, STATS_COLUMNS);
	if (snowflake_generator_exists())
		snowflake_row_put(&row, COLUMN_STATS_RESET,
						  TimestampTzGetDatum(snowflake_counters_reset_at()));
	if (snowflake_generator_exists() &&
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
	{
		snowflake_row_put(&row, COLUMN_MINTED,
						  Int64GetDatum((int64) snowflake_counters_minted()));
		for (int i = 0; i < SNOWFLAKE_COUNTERS; i++)
		{
			int64		count = (int64) snowflake_counters_get(i);

			if (snowflake_counters_columns[i].is_time)
				snowflake_row_put_interval(&row, COLUMN_COUNTERS + i, count);
			else
				snowflake_row_put(&row, COLUMN_COUNTERS + i, Int64GetDatum(count));
		}
	}
	PG_RETURN_DATUM(snowflake_row_end(&row));
}

/* Count from zero again.  The script revokes it from PUBLIC. */
Datum
snowflake_stats_reset(PG_FUNCTION_ARGS)
{
	snowflake_generator_require("snowflake_stats_reset()");
	snowflake_counters_reset();
	PG_RETURN_VOID();
}
