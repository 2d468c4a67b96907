/*-------------------------------------------------------------------------
 *
 * status.c
 *	  The views snowflake_status, of the state of the generator, and
 *	  snowflake_stats, of the counters.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/duration.h"
#include "base/settings.h"
#include "frontier/frontier.h"
#include "generator/counters.h"
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "layout/server_layout.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"
#include "mint/mint.h"

PG_FUNCTION_INFO_V1(snowflake_get_status);
PG_FUNCTION_INFO_V1(snowflake_get_stats);
PG_FUNCTION_INFO_V1(snowflake_stats_reset);

/* The columns of the view snowflake_status. */
enum
{
	COLUMN_GATE,
	COLUMN_ADVICE,
	COLUMN_NODE,
	COLUMN_NODE_SOURCE,
	COLUMN_NODE_ORIGIN,
	COLUMN_COORDINATOR,
	COLUMN_LEASE_UNTIL,
	COLUMN_LEASE_RENEWED,
	COLUMN_LAYOUT,
	COLUMN_LAYOUT_ENDS,
	COLUMN_LAST_ID,
	COLUMN_LAST_TIME,
	COLUMN_LEAD,
	COLUMN_FRONTIER,
	COLUMN_FRONTIER_LAG,
	COLUMN_FRONTIER_HOLDER,
	COLUMN_KEEPER_PID,
	COLUMN_RESERVED_UNTIL,
	COLUMN_STANDBY_WAIT,
	COLUMN_CLOCK_STATE,
	COLUMN_CLOCK_JUMP
};

/* The columns of snowflake_stats: these two, and the counters between them. */
enum
{
	COLUMN_MINTED,
	COLUMN_COUNTERS,
	COLUMN_STATS_RESET = COLUMN_COUNTERS + SNOWFLAKE_COUNTERS,
	MAX_COLUMNS
};

/* A row of a view: a column is null until it is set. */
typedef struct Row
{
	Datum		values[MAX_COLUMNS];
	bool		nulls[MAX_COLUMNS];
} Row;

static void
clear(Row *row)
{
	memset(row->nulls, true, sizeof(row->nulls));
}

static void
put(Row *row, int column, Datum value)
{
	row->values[column] = value;
	row->nulls[column] = false;
}

/* NULL stays null. */
static void
put_text(Row *row, int column, const char *text)
{
	if (text != NULL)
		put(row, column, CStringGetTextDatum(text));
}

static void
put_time(Row *row, int column, TimestampTz time)
{
	put(row, column, TimestampTzGetDatum(time));
}

static void
put_interval(Row *row, int column, int64 usec)
{
	put(row, column, snowflake_duration_interval(usec));
}

static Datum
form_row(FunctionCallInfo fcinfo, Row *row)
{
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), row->values, row->nulls));
}

/* The keeper's verdict on the clock. */
static void
put_clock(Row *row)
{
	static const char *const words[] = {
		[CLOCK_UNKNOWN] = NULL,
		[CLOCK_REFUSED] = "refused",
		[CLOCK_FOLLOWED] = "followed",
		[CLOCK_UNPROVEN] = "unproven",
		[CLOCK_COASTING] = "coasting"
	};
	SnowflakeClockState clock = snowflake_clock_state();

	put_text(row, COLUMN_CLOCK_STATE, words[clock.belief]);
	if (clock.belief == CLOCK_COASTING)
		put_interval(row, COLUMN_CLOCK_JUMP, clock.off_usec);
}

/* How far the frontier of this database is, and who holds it back. */
static void
put_frontier(Row *row)
{
	SnowflakeFrontier frontier;

	if (!snowflake_frontier_compute(MyDatabaseId, &frontier) || frontier.id < 0)
		return;
	put(row, COLUMN_FRONTIER, Int64GetDatum(frontier.id));
	put_interval(row, COLUMN_FRONTIER_LAG, frontier.lag_usec);
	if (frontier.holder_pid != 0)
		put(row, COLUMN_FRONTIER_HOLDER, Int32GetDatum(frontier.holder_pid));
}

/* Where the node ID comes from, and what is known about its lease. */
static void
put_node_source(Row *row)
{
	SnowflakeLeaseView lease;

	put_text(row, COLUMN_NODE_SOURCE, snowflake_node_source_name());
	if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		put_text(row, COLUMN_NODE_ORIGIN, snowflake_node_source_origin());
	if (snowflake_node_source != NODE_FROM_LEASE)
		return;
	snowflake_lease_state_view(&lease);
	if (lease.grant != 0)
	{
		put_time(row, COLUMN_LEASE_UNTIL,
				 snowflake_layout_tick_start(&snowflake_server_layout, lease.until));
		put_time(row, COLUMN_LEASE_RENEWED, lease.renewed_at);
	}
	put_text(row, COLUMN_COORDINATOR,
			 lease.pid == 0 || (lease.trouble == STATE_NO_TROUBLE && lease.grant == 0) ? "not asked" :
			 lease.trouble == STATE_NO_TROUBLE ? "reachable" :
			 lease.trouble == STATE_COORDINATOR_UNUSABLE ? "unreachable" : "grants nothing");
}

/* The state of a generator that all roles may see: whether and how it mints. */
static void
put_public(Row *row, const SnowflakeView *view)
{
	SnowflakeKeeperView keeper;
	SnowflakeNode wanted;

	/* on a standby, the one that it would mint with */
	wanted.node = -1;
	if (view->gate == GATE_OPEN)
		wanted.node = view->node;
	else if (RecoveryInProgress())
		snowflake_node_source_wanted(&wanted);
	if (wanted.node >= 0)
		put(row, COLUMN_NODE, Int32GetDatum(wanted.node));
	put_node_source(row);
	snowflake_keeper_state_view(&keeper);
	if (keeper.pid != 0)
		put(row, COLUMN_KEEPER_PID, Int32GetDatum(keeper.pid));
	if (keeper.standby_wait_usec != 0)
		put_interval(row, COLUMN_STANDBY_WAIT, keeper.standby_wait_usec);
	put_clock(row);
}

/* How far the generator is, while the gate is open. */
static void
put_position(Row *row, const SnowflakeView *view)
{
	put_interval(row, COLUMN_LEAD, snowflake_generator_lead_usec(view));
	put_time(row, COLUMN_RESERVED_UNTIL, snowflake_generator_time(view->limit));

	/* a position to which "last" was merely raised has no ID */
	if (view->last == view->raised_to)
		return;
	put(row, COLUMN_LAST_ID, Int64GetDatum(snowflake_generator_position_id(view->last)));
	put_time(row, COLUMN_LAST_TIME, snowflake_generator_time(view->last));
}

/*
 * Returns the state of the generator.  Its parts are read one after the other, while minting goes
 * on; each is right for its own moment.  Only roles that may read statistics see how much and when
 * others mint.
 */
Datum
snowflake_get_status(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	Row			row;

	clear(&row);
	put_text(&row, COLUMN_GATE, snowflake_refusal_gate());
	put_text(&row, COLUMN_ADVICE, snowflake_refusal_advice());
	snowflake_layout_print(layout, text, sizeof(text));
	put_text(&row, COLUMN_LAYOUT, text);
	put_time(&row, COLUMN_LAYOUT_ENDS, snowflake_layout_tick_start(layout, layout->max_tick));

	if (snowflake_generator_exists())
	{
		SnowflakeView view;

		snowflake_generator_view(&view);
		put_public(&row, &view);
		if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		{
			if (view.gate == GATE_OPEN)
				put_position(&row, &view);
			if (!RecoveryInProgress())
				put_frontier(&row);
		}
	}

	PG_RETURN_DATUM(form_row(fcinfo, &row));
}

/* Is the counter a time, in microseconds? */
static bool
counts_time(SnowflakeCounter counter)
{
	return counter == COUNTER_CLOCK_WAIT_TOTAL || counter == COUNTER_CLOCK_WAIT_LONGEST ||
		counter == COUNTER_KEEPER_WAIT_TOTAL || counter == COUNTER_KEEPER_WAIT_LONGEST ||
		counter == COUNTER_CLOCK_STEP_BACK_LARGEST || counter == COUNTER_CLOCK_STEP_AHEAD_LARGEST;
}

/* Returns the counts since the last reset.  Without a generator, there is nothing to count. */
Datum
snowflake_get_stats(PG_FUNCTION_ARGS)
{
	Row			row;

	clear(&row);
	if (snowflake_generator_exists())
	{
		put_time(&row, COLUMN_STATS_RESET, snowflake_counters_reset_at());
		if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		{
			put(&row, COLUMN_MINTED, Int64GetDatum((int64) snowflake_counters_minted()));
			for (int i = 0; i < SNOWFLAKE_COUNTERS; i++)
			{
				int64		count = (int64) snowflake_counters_get(i);

				put(&row, COLUMN_COUNTERS + i, counts_time(i) ?
					snowflake_duration_interval(count) : Int64GetDatum(count));
			}
		}
	}
	PG_RETURN_DATUM(form_row(fcinfo, &row));
}

/* Count from zero again.  The SQL script revokes this from PUBLIC. */
Datum
snowflake_stats_reset(PG_FUNCTION_ARGS)
{
	snowflake_generator_require("snowflake_stats_reset()");
	snowflake_counters_reset();
	PG_RETURN_VOID();
}
