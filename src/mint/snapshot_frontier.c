/*-------------------------------------------------------------------------
 *
 * snapshot_frontier.c
 *	  The frontier, for SQL.
 *
 * What it is, is said in frontier.c.  Here it is waited for: nothing is known of it
 * until the gate was opened once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "base/compat.h"
#include "frontier/frontier.h"
#include "generator/generator.h"
#include "layout/server_layout.h"
#include "mint/mint.h"
#include "mint/snapshot_frontier.h"

PG_FUNCTION_INFO_V1(snowflake_frontier);

/*
 * The frontier of this database, for a function.  Waits for the keeper like a
 * mint, and raises the same errors, if the gate was never opened.
 */
int64
snowflake_snapshot_frontier_require(const char *function)
{
	SnowflakeFrontier frontier;

	snowflake_generator_require(function);
	PreventCommandDuringRecovery(function);
	snowflake_mint_await_opening(function);
	if (snowflake_layout_value_reorders(&snowflake_server_layout))
		snowflake_generator_finish_tick();
	(void) snowflake_frontier_compute(&frontier);
	return frontier.id;
}

/* NULL if it lies before the first ID. */
Datum
snowflake_frontier(PG_FUNCTION_ARGS)
{
	int64		id = snowflake_snapshot_frontier_require("snowflake_frontier()");

	if (id < 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(id);
}
