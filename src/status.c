/*-------------------------------------------------------------------------
 *
 * status.c
 *	  The state of the generator, for the view snowflake_status.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/duration.h"
#include "base/row.h"
#include "base/settings.h"
#include "frontier/frontier.h"
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "keeper/gate_text.h"
#include "layout/server_layout.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"
#include "lease/node_source.h"
#include "mint/mint_error.h"

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
	COLUMN_CLOCK_ERROR,
	COLUMN_CLOCK_JUMP,
	STATUS_COLUMNS
};

static const SnowflakeColumn columns[STATUS_COLUMNS] = {
	[COLUMN_GATE] = {"gate", TEXTOID},
	[COLUMN_ADVICE] = {"advice", TEXTOID},
	[COLUMN_NODE] = {"node", INT4OID},
	[COLUMN_NODE_SOURCE] = {"node_source", TEXTOID},
	[COLUMN_NODE_ORIGIN] = {"node_origin", TEXTOID},
	[COLUMN_COORDINATOR] = {"coordinator", TEXTOID},
	[COLUMN_LEASE_UNTIL] = {"lease_until", TIMESTAMPTZOID},
	[COLUMN_LEASE_RENEWED] = {"lease_renewed", TIMESTAMPTZOID},
	[COLUMN_LAYOUT] = {"layout", TEXTOID},
	[COLUMN_LAYOUT_ENDS] = {"layout_ends", TIMESTAMPTZOID},
	[COLUMN_LAST_ID] = {"last_id", INT8OID},
	[COLUMN_LAST_TIME] = {"last_time", TIMESTAMPTZOID},
	[COLUMN_LEAD] = {"lead", INTERVALOID},
	[COLUMN_FRONTIER] = {"frontier", INT8OID},
	[COLUMN_FRONTIER_LAG] = {"frontier_lag", INTERVALOID},
	[COLUMN_FRONTIER_HOLDER] = {"frontier_holder", INT4OID},
	[COLUMN_KEEPER_PID] = {"keeper_pid", INT4OID},
	[COLUMN_RESERVED_UNTIL] = {"reserved_until", TIMESTAMPTZOID},
	[COLUMN_STANDBY_WAIT] = {"standby_wait", INTERVALOID},
	[COLUMN_CLOCK_STATE] = {"clock_state", TEXTOID},
	[COLUMN_CLOCK_ERROR] = {"clock_error", INTERVALOID},
	[COLUMN_CLOCK_JUMP] = {"clock_jump", INTERVALOID}
};

/* What is known of the clock, by the kernel and by the keeper. */
static void
put_clock(SnowflakeRow *row)
{
	bool		synchronized = true;
	int64		error_usec,
				jump_usec,
				lasted_usec;

	if (snowflake_clock_error(&synchronized, &error_usec))
		snowflake_row_put_interval(row, COLUMN_CLOCK_ERROR, error_usec);
	snowflake_row_put_text(row, COLUMN_CLOCK_STATE,
						   synchronized ? "synchronized" : "unsynchronized");
	if (snowflake_clock_jump(&jump_usec, &lasted_usec))
	{
		snowflake_row_put_text(row, COLUMN_CLOCK_STATE, "coasting");
		snowflake_row_put_interval(row, COLUMN_CLOCK_JUMP, jump_usec);
	}
}

/* How far the frontier of this database is, and who holds it back. */
static void
put_frontier(SnowflakeRow *row)
{
	SnowflakeFrontier frontier;

	if (!snowflake_frontier_compute(MyDatabaseId, &frontier) || frontier.id < 0)
		return;
	snowflake_row_put(row, COLUMN_FRONTIER, Int64GetDatum(frontier.id));
	snowflake_row_put_interval(row, COLUMN_FRONTIER_LAG, frontier.lag_usec);
	if (frontier.holder_pid != 0)
		snowflake_row_put(row, COLUMN_FRONTIER_HOLDER, Int32GetDatum(frontier.holder_pid));
}

/* The node ID that a standby would mint with. */
static void
put_node_after_promotion(SnowflakeRow *row)
{
	SnowflakeNode wanted;

	snowflake_node_source_wanted(&wanted);
	if (wanted.node >= 0)
		snowflake_row_put(row, COLUMN_NODE, Int32GetDatum(wanted.node));
}

/* Where the node ID comes from, and what is known of its lease. */
static void
put_node_source(SnowflakeRow *row)
{
	SnowflakeLeaseView lease;

	snowflake_row_put_text(row, COLUMN_NODE_SOURCE, snowflake_node_source_name());
	if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		snowflake_row_put_text(row, COLUMN_NODE_ORIGIN, snowflake_node_source_origin());
	if (snowflake_node_source != NODE_FROM_LEASE)
		return;
	snowflake_lease_state_view(&lease);
	if (lease.grant != 0)
	{
		TimestampTz until = snowflake_layout_tick_start(&snowflake_server_layout, lease.until);

		snowflake_row_put(row, COLUMN_LEASE_UNTIL, TimestampTzGetDatum(until));
		snowflake_row_put(row, COLUMN_LEASE_RENEWED, TimestampTzGetDatum(lease.renewed_at));
	}
	snowflake_row_put_text(row, COLUMN_COORDINATOR,
						   lease.pid == 0 || (lease.trouble == LEASE_NO_TROUBLE && lease.grant == 0) ?
						   "not asked" : snowflake_lease_trouble_coordinator(lease.trouble));
}

/* What to do, in a sentence; NULL if all is well, or will be in a moment. */
static const char *
advice(const SnowflakeView *view, int64 lead_usec)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		allowed_usec = snowflake_generator_early_usec() +
	snowflake_generator_may_lead_usec();
	int64		excess_usec = lead_usec - allowed_usec;
	TimestampTz layout_ends = snowflake_layout_tick_start(layout, layout->max_tick);
	const char *on_gate = snowflake_gate_text_advice(view->gate);
	const char *jumped = snowflake_mint_error_jumped(false);

	if (on_gate != NULL || view->gate != GATE_OPEN)
		return on_gate;
	if (snowflake_node_source == NODE_FROM_LEASE && snowflake_lease_state_advice_if_late(view) != NULL)
		return psprintf("Minting ends with the lease. %s", snowflake_lease_state_advice_if_late(view));
	if (snowflake_generator_clock() >= layout_ends ||
		snowflake_layout_position_tick(layout, view->last) >= layout->max_tick)
		return "The layout has ended: configure another snowflake.layout, whose snowflakes are larger.";
	if (excess_usec > 0 && snowflake_mint_error_in_old_reservation(view, excess_usec))
		return psprintf("Wait: minting starts in %s, after the end of what was reserved before.",
						snowflake_duration(snowflake_clock_wait_usec(excess_usec)));
	if (excess_usec > 0)
		return psprintf("Minting waits for the clock. %s %s", snowflake_mint_error_why_ahead(view),
						snowflake_mint_error_what_to_do(view, excess_usec));
	if (jumped != NULL)
		return jumped;
	if (lead_usec > USECS_PER_SEC)
		return psprintf(snowflake_mint_error_advanced(view) ?
						"Snowflakes are %s ahead of the clock after snowflake_advance(). The clock will catch up in about that time. Minting goes on." :
						"Snowflakes are %s ahead of the clock, which will catch up in about that time. Minting goes on.",
						snowflake_duration(lead_usec));
	if (snowflake_generator_clock() > layout_ends - SNOWFLAKE_LAYOUT_ENDS_SOON_USEC)
		return "Plan for another snowflake.layout, whose snowflakes are larger than those of this one.";
	return NULL;
}

/* The state of a generator that all roles may see: whether and how it mints. */
static void
put_public(SnowflakeRow *row, const SnowflakeView *view, int64 lead_usec)
{
	bool		in_recovery = RecoveryInProgress();
	int			keeper_pid = snowflake_keeper_state_pid();
	int64		standby_wait_usec = snowflake_keeper_state_standby_wait_usec();

	snowflake_row_put_text(row, COLUMN_GATE, in_recovery ? "closed: the server is in recovery" :
						   snowflake_gate_text_reason(view->gate));
	snowflake_row_put_text(row, COLUMN_ADVICE, in_recovery ? snowflake_gate_text_advice_in_recovery() :
						   advice(view, lead_usec));

	/* a standby has the one that it would mint with */
	if (view->gate == GATE_OPEN)
		snowflake_row_put(row, COLUMN_NODE, Int32GetDatum(view->node));
	else if (in_recovery)
		put_node_after_promotion(row);
	put_node_source(row);
	if (keeper_pid != 0)
		snowflake_row_put(row, COLUMN_KEEPER_PID, Int32GetDatum(keeper_pid));
	if (standby_wait_usec != 0)
		snowflake_row_put_interval(row, COLUMN_STANDBY_WAIT, standby_wait_usec);
	put_clock(row);
}

/* How far an open gate has come. */
static void
put_position(SnowflakeRow *row, const SnowflakeView *view, int64 lead_usec)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	snowflake_row_put_interval(row, COLUMN_LEAD, lead_usec);
	snowflake_row_put(row, COLUMN_RESERVED_UNTIL,
					  TimestampTzGetDatum(snowflake_layout_position_time(layout, view->limit)));

	/* a position to which "last" was merely raised is no ID */
	if (view->last == view->raised_to)
		return;
	snowflake_row_put(row, COLUMN_LAST_ID, Int64GetDatum(snowflake_generator_position_id(view->last)));
	snowflake_row_put(row, COLUMN_LAST_TIME,
					  TimestampTzGetDatum(snowflake_layout_position_time(layout, view->last)));
}

/*
 * The state of the generator.  Its parts are read one after the other, while
 * minting goes on; each is right for its moment, and so is the node without the
 * lock.
 *
 * Only roles that may read statistics see how much and when others mint.
 */
Datum
snowflake_get_status(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	SnowflakeRow row;

	snowflake_row_begin(&row, fcinfo, columns, STATUS_COLUMNS);
	snowflake_layout_print(layout, text, sizeof(text));
	snowflake_row_put_text(&row, COLUMN_LAYOUT, text);
	snowflake_row_put(&row, COLUMN_LAYOUT_ENDS,
					  TimestampTzGetDatum(snowflake_layout_tick_start(layout, layout->max_tick)));

	if (!snowflake_generator_exists())
	{
		snowflake_row_put_text(&row, COLUMN_GATE, snowflake_gate_text_reason_now());
		snowflake_row_put_text(&row, COLUMN_ADVICE,
							   "Add snowflake to shared_preload_libraries, and restart the server.");
	}
	else
	{
		SnowflakeView view;
		int64		lead_usec;

		snowflake_generator_view(&view);
		lead_usec = snowflake_layout_position_time(layout, view.last) -
			snowflake_generator_clock();
		put_public(&row, &view, lead_usec);
		if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		{
			if (view.gate == GATE_OPEN)
				put_position(&row, &view, lead_usec);
			if (!RecoveryInProgress())
				put_frontier(&row);
		}
	}

	PG_RETURN_DATUM(snowflake_row_end(&row));
}
