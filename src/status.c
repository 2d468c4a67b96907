/*-------------------------------------------------------------------------
 *
 * status.c
 *	  The state of the generator, as one row for administrators and monitoring.
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

#include "clock.h"
#include "compat.h"
#include "counters.h"
#include "duration.h"
#include "frontier.h"
#include "gate.h"
#include "generator.h"
#include "request.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowflake_status);
PG_FUNCTION_INFO_V1(snowflake_status_reset);

/* The columns of snowflake_status(). */
enum
{
	COLUMN_GATE,
	COLUMN_ADVICE,
	COLUMN_NODE,
	COLUMN_LAYOUT,
	COLUMN_LAYOUT_ENDS,
	COLUMN_LAST_ID,
	COLUMN_LAST_TIME,
	COLUMN_FRONTIER,
	COLUMN_FRONTIER_LAG,
	COLUMN_FRONTIER_HOLDER,
	COLUMN_LEAD,
	COLUMN_RESERVED_UNTIL,
	COLUMN_KEEPER_PID,
	COLUMN_MINTED,
	COLUMN_CLOCK_WAITS,
	COLUMN_CLOCK_WAIT_TOTAL,
	COLUMN_CLOCK_WAIT_LONGEST,
	COLUMN_KEEPER_WAITS,
	COLUMN_KEEPER_WAIT_TOTAL,
	COLUMN_KEEPER_WAIT_LONGEST,
	COLUMN_RESERVATIONS,
	COLUMN_CLOCK_STEPS_BACK,
	COLUMN_CLOCK_STEP_BACK_LARGEST,
	COLUMN_REFUSED,				/* one for each SnowflakeRefusal */
	COLUMN_STATS_RESET = COLUMN_REFUSED + SNOWFLAKE_REFUSALS,
	STATUS_COLUMNS
};

/* A row under construction: all columns are null until they are put. */
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

static void
put_text(StatusRow *row, int column, const char *text)
{
	if (text != NULL)
		put(row, column, CStringGetTextDatum(text));
}

static void
put_counter(StatusRow *row, int column, pg_atomic_uint64 *counter)
{
	put(row, column, Int64GetDatum((int64) pg_atomic_read_u64(counter)));
}

static void
put_interval(StatusRow *row, int column, int64 usec)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = usec;
	put(row, column, IntervalPGetDatum(interval));
}

/* A number of waits and the two columns that follow it. */
static void
put_waits(StatusRow *row, int column, SnowflakeWaits *waits)
{
	put_counter(row, column, &waits->mints);
	put_interval(row, column + 1, pg_atomic_read_u64(&waits->total_usec));
	put_interval(row, column + 2, pg_atomic_read_u64(&waits->longest_usec));
}

/* How far the frontier of this database is, and who holds it back. */
static void
put_frontier(StatusRow *row)
{
	SnowflakeFrontier frontier;

	if (!snowflake_frontier_look(&frontier) || frontier.id < 0)
		return;
	put(row, COLUMN_FRONTIER, Int64GetDatum(frontier.id));
	put_interval(row, COLUMN_FRONTIER_LAG, frontier.lag_usec);
	if (frontier.holder_pid != 0)
		put(row, COLUMN_FRONTIER_HOLDER, Int32GetDatum(frontier.holder_pid));
}

/* What to do, in a sentence; NULL if all is well, or will be in a moment. */
static const char *
advice(SnowflakeGate gate, int64 lead_usec)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		allowed_usec = layout->tick_usec + snowflake_max_lead_ms * INT64CONST(1000);
	TimestampTz layout_ends = snowflake_tick_start(layout, layout->max_tick);
	const char *on_gate = snowflake_gate_advice(gate);

	if (on_gate != NULL || gate != GATE_OPEN)
		return on_gate;
	if (lead_usec > allowed_usec)
		return psprintf("Check the server's clock: minting goes on when it is %s further.",
						snowflake_duration(lead_usec - allowed_usec));
	if (snowflake_wall_clock() > layout_ends - SNOWFLAKE_LAYOUT_ENDS_SOON_USEC)
		return "Plan for another snowflake.layout, whose snowflakes are larger than those of this one.";
	return NULL;
}

/*
 * The state of the generator.  Its parts are read one after the other, while
 * minting goes on; each is right for its moment, and so is the node without the
 * lock.
 *
 * How much and when others mint is for those who may read statistics.
 */
Datum
snowflake_status(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	SnowflakeCounters *counters = snowflake_counters;
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	TupleDesc	tupdesc;
	StatusRow	row;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	memset(row.values, 0, sizeof(row.values));
	memset(row.nulls, true, sizeof(row.nulls));

	snowflake_layout_print(layout, text, sizeof(text));
	put_text(&row, COLUMN_LAYOUT, text);
	put(&row, COLUMN_LAYOUT_ENDS,
		TimestampTzGetDatum(snowflake_tick_start(layout, layout->max_tick)));

	if (!snowflake_generator_exists())
	{
		put_text(&row, COLUMN_GATE, snowflake_gate_reason_now());
		put_text(&row, COLUMN_ADVICE,
				 "Add snowflake to shared_preload_libraries, and restart the server.");
	}
	else
	{
		bool		in_recovery = RecoveryInProgress();
		bool		sees_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
		int			keeper_pid = snowflake_keeper_pid();
		SnowflakeView view;
		int64		lead_usec;

		snowflake_generator_view(&view);
		lead_usec = snowflake_position_time(layout, view.last) -
			snowflake_wall_clock();

		put_text(&row, COLUMN_GATE, in_recovery ? "closed: the server is in recovery" :
				 snowflake_gate_reason(view.gate));
		put_text(&row, COLUMN_ADVICE, in_recovery ? NULL : advice(view.gate, lead_usec));
		if (view.gate == GATE_OPEN)
			put(&row, COLUMN_NODE, Int32GetDatum(view.node));
		if (keeper_pid != 0)
			put(&row, COLUMN_KEEPER_PID, Int32GetDatum(keeper_pid));
		put(&row, COLUMN_STATS_RESET,
			TimestampTzGetDatum(pg_atomic_read_u64(&counters->reset_at)));

		if (sees_all && view.gate == GATE_OPEN)
		{
			put_interval(&row, COLUMN_LEAD, lead_usec);
			put(&row, COLUMN_RESERVED_UNTIL,
				TimestampTzGetDatum(snowflake_position_time(layout, view.limit)));

			/* a position to which "last" was merely raised is no ID */
			if (view.last != view.raised_to)
			{
				put(&row, COLUMN_LAST_ID, Int64GetDatum(snowflake_position_id(view.last)));
				put(&row, COLUMN_LAST_TIME,
					TimestampTzGetDatum(snowflake_position_time(layout, view.last)));
			}
		}
		if (sees_all && !in_recovery)
			put_frontier(&row);
		if (sees_all)
		{
			put(&row, COLUMN_MINTED, Int64GetDatum((int64) snowflake_minted()));
			put_waits(&row, COLUMN_CLOCK_WAITS, &counters->clock_waits);
			put_waits(&row, COLUMN_KEEPER_WAITS, &counters->keeper_waits);
			put_counter(&row, COLUMN_RESERVATIONS, &counters->reservations);
			put_counter(&row, COLUMN_CLOCK_STEPS_BACK, &counters->clock_steps_back);
			put_interval(&row, COLUMN_CLOCK_STEP_BACK_LARGEST,
						 pg_atomic_read_u64(&counters->clock_step_back_largest_usec));
			for (int i = 0; i < SNOWFLAKE_REFUSALS; i++)
				put_counter(&row, COLUMN_REFUSED + i, &counters->refused[i]);
		}
	}

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  row.values, row.nulls)));
}

/* Count from zero again.  The script revokes it from PUBLIC. */
Datum
snowflake_status_reset(PG_FUNCTION_ARGS)
{
	snowflake_require_generator("snowflake_status_reset()");
	snowflake_counters_reset();
	PG_RETURN_VOID();
}
