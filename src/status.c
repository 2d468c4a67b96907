/*-------------------------------------------------------------------------
 *
 * status.c
 *	  The state of the generator, for the view snowflake_status.
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
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "layout/server_layout.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"
#include "lease/node_source.h"
#include "mint/refusal.h"
#include "mint/state.h"

PG_FUNCTION_INFO_V1(snowflake_get_status);

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
	COLUMN_CLOCK_JUMP,
	STATUS_COLUMNS
};

/* The row of the view: a column is null until it is set. */
typedef struct StatusRow
{
	Datum		values[STATUS_COLUMNS];
	bool		nulls[STATUS_COLUMNS];
} StatusRow;

static void
put(StatusRow *row, int column, Datum value)
{
	row->values[column] = value;
	row->nulls[column] = false;
}

/* NULL stays null. */
static void
put_text(StatusRow *row, int column, const char *text)
{
	if (text != NULL)
		put(row, column, CStringGetTextDatum(text));
}

static void
put_interval(StatusRow *row, int column, int64 usec)
{
	put(row, column, snowflake_duration_interval(usec));
}

/* The keeper's verdict on the clock. */
static void
put_clock(StatusRow *row)
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
put_frontier(StatusRow *row)
{
	SnowflakeFrontier frontier;

	if (!snowflake_frontier_compute(MyDatabaseId, &frontier) || frontier.id < 0)
		return;
	put(row, COLUMN_FRONTIER, Int64GetDatum(frontier.id));
	put_interval(row, COLUMN_FRONTIER_LAG, frontier.lag_usec);
	if (frontier.holder_pid != 0)
		put(row, COLUMN_FRONTIER_HOLDER, Int32GetDatum(frontier.holder_pid));
}

/* The node ID that a standby would mint with. */
static void
put_node_after_promotion(StatusRow *row)
{
	SnowflakeNode wanted;

	snowflake_node_source_wanted(&wanted);
	if (wanted.node >= 0)
		put(row, COLUMN_NODE, Int32GetDatum(wanted.node));
}

/* Where the node ID comes from, and what is known about its lease. */
static void
put_node_source(StatusRow *row)
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
		TimestampTz until = snowflake_layout_tick_start(&snowflake_server_layout, lease.until);

		put(row, COLUMN_LEASE_UNTIL, TimestampTzGetDatum(until));
		put(row, COLUMN_LEASE_RENEWED, TimestampTzGetDatum(lease.renewed_at));
	}
	put_text(row, COLUMN_COORDINATOR,
			 lease.pid == 0 || (lease.trouble == STATE_NO_TROUBLE && lease.grant == 0) ? "not asked" :
			 lease.trouble == STATE_NO_TROUBLE ? "reachable" :
			 lease.trouble == STATE_COORDINATOR_UNUSABLE ? "unreachable" : "grants nothing");
}

/* The state of a generator that all roles may see: whether and how it mints. */
static void
put_public(StatusRow *row, const SnowflakeView *view)
{
	bool		in_recovery = RecoveryInProgress();
	int			keeper_pid = snowflake_keeper_state_pid();
	int64		standby_wait_usec = snowflake_keeper_state_standby_wait_usec();

	/* on a standby, the one that it would mint with */
	if (view->gate == GATE_OPEN)
		put(row, COLUMN_NODE, Int32GetDatum(view->node));
	else if (in_recovery)
		put_node_after_promotion(row);
	put_node_source(row);
	if (keeper_pid != 0)
		put(row, COLUMN_KEEPER_PID, Int32GetDatum(keeper_pid));
	if (standby_wait_usec != 0)
		put_interval(row, COLUMN_STANDBY_WAIT, standby_wait_usec);
	put_clock(row);
}

/* How far the generator is, while the gate is open. */
static void
put_position(StatusRow *row, const SnowflakeView *view, int64 lead_usec)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	put_interval(row, COLUMN_LEAD, lead_usec);
	put(row, COLUMN_RESERVED_UNTIL,
		TimestampTzGetDatum(snowflake_layout_position_time(layout, view->limit)));

	/* a position to which "last" was merely raised has no ID */
	if (view->last == view->raised_to)
		return;
	put(row, COLUMN_LAST_ID, Int64GetDatum(snowflake_generator_position_id(view->last)));
	put(row, COLUMN_LAST_TIME,
		TimestampTzGetDatum(snowflake_layout_position_time(layout, view->last)));
}

/*
 * Returns the state of the generator.  Its parts are read one after the other,
 * while minting goes on; each is right for its own moment, and so is the node,
 * which is read without the lock.
 *
 * Only roles that may read statistics see how much and when others mint.
 */
Datum
snowflake_get_status(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	TupleDesc	tupdesc;
	StatusRow	row;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	memset(row.nulls, true, sizeof(row.nulls));
	put_text(&row, COLUMN_GATE, snowflake_state_gate());
	put_text(&row, COLUMN_ADVICE, snowflake_refusal_advice());
	snowflake_layout_print(layout, text, sizeof(text));
	put_text(&row, COLUMN_LAYOUT, text);
	put(&row, COLUMN_LAYOUT_ENDS,
		TimestampTzGetDatum(snowflake_layout_tick_start(layout, layout->max_tick)));

	if (snowflake_generator_exists())
	{
		SnowflakeView view;
		int64		lead_usec;

		snowflake_generator_view(&view);
		lead_usec = snowflake_layout_position_time(layout, view.last) -
			snowflake_generator_clock();
		put_public(&row, &view);
		if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		{
			if (view.gate == GATE_OPEN)
				put_position(&row, &view, lead_usec);
			if (!RecoveryInProgress())
				put_frontier(&row);
		}
	}

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  row.values, row.nulls)));
}
