/*-------------------------------------------------------------------------
 *
 * status.c
 *	  What an operator looks at.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
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
#include "generator.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowflake_status);
PG_FUNCTION_INFO_V1(snowflake_status_reset);

/* The columns of snowflake_status(). */
enum
{
	GATE,
	ADVICE,
	NODE,
	LAYOUT,
	LAYOUT_ENDS,
	LAST_ID,
	LAST_TIME,
	LEAD,
	RESERVED_UNTIL,
	KEEPER_PID,
	MINTED,
	CLOCK_WAITS,
	CLOCK_WAIT_TOTAL,
	CLOCK_WAIT_LONGEST,
	KEEPER_WAITS,
	KEEPER_WAIT_TOTAL,
	KEEPER_WAIT_LONGEST,
	RESERVATIONS,
	CLOCK_STEPS_BACK,
	CLOCK_STEP_BACK_LARGEST,
	REFUSED,					/* one for each SnowflakeRefusal */
	STATS_RESET = REFUSED + SNOWFLAKE_REFUSALS,
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

/* What to do about a keeper that does not do its work, or NULL. */
static const char *
advice_on_keeper(void)
{
	SnowflakeGenerator *gen = snowflake_generator;
	uint32		failure = pg_atomic_read_u32(&gen->failure);

	if (failure != 0)
		return psprintf("The keeper's last attempt failed with SQLSTATE %s: see the server log.",
						unpack_sql_state(failure));
	if (!OidIsValid(get_database_oid(snowflake_database, true)))
		return psprintf("Create the database \"%s\", or change snowflake.database and restart the server.",
						snowflake_database);
	if (pg_atomic_read_u32(&gen->keeper_pid) == 0)
		return "The keeper is not running: see the server log.";
	return NULL;
}

/* What to do, in a sentence; NULL if all is well, or will be in a moment. */
static const char *
advice(SnowflakeGate gate, int64 lead_usec)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		allowed_usec = layout->tick_usec + snowflake_max_lead_ms * INT64CONST(1000);
	TimestampTz layout_ends = snowflake_tick_start(layout, layout->max_tick);
	const char *on_keeper;

	switch (gate)
	{
		case GATE_NODE_UNSET:
			return "Set snowflake.node_id to a number that no other server mints with, and reload the configuration.";
		case GATE_NODE_TOO_LARGE:
			return psprintf("Set snowflake.node_id to at most %d, and reload the configuration.",
							layout->max_node);
		case GATE_LAYOUT_CHANGED:
			return "Restore snowflake.layout, or accept the change with snowflake_accept_layout().";
		case GATE_RESERVATION_LOST:
			return "Restore the setting snowflake.database, or start a new reservation with snowflake_accept_database().";
		default:
			break;
	}

	on_keeper = advice_on_keeper();
	if (on_keeper != NULL || gate != GATE_OPEN)
		return on_keeper;

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
	SnowflakeGenerator *gen = snowflake_generator;
	SnowflakeCounters *counters = snowflake_counters;
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	TupleDesc	tupdesc;
	StatusRow	row;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	memset(row.values, 0, sizeof(row.values));
	memset(row.nulls, true, sizeof(row.nulls));

	snowflake_layout_print(layout, text, sizeof(text));
	put_text(&row, LAYOUT, text);
	put(&row, LAYOUT_ENDS,
		TimestampTzGetDatum(snowflake_tick_start(layout, layout->max_tick)));

	if (gen == NULL)
	{
		put_text(&row, GATE, "closed: the library is not preloaded");
		put_text(&row, ADVICE,
				 "Add snowflake to shared_preload_libraries, and restart the server.");
	}
	else
	{
		bool		in_recovery = RecoveryInProgress();
		bool		sees_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
		SnowflakeGate gate = pg_atomic_read_u32(&gen->gate);
		uint64		last = pg_atomic_read_u64(&gen->last);
		uint32		keeper_pid = pg_atomic_read_u32(&gen->keeper_pid);
		TimestampTz now = snowflake_wall_clock();
		int64		lead_usec = snowflake_position_time(layout, last) - now;

		put_text(&row, GATE, in_recovery ? "closed: the server is in recovery" :
				 snowflake_gate_reason(gate));
		put_text(&row, ADVICE, in_recovery ? NULL : advice(gate, lead_usec));
		if (gate == GATE_OPEN)
			put(&row, NODE, Int32GetDatum(gen->node));
		if (keeper_pid != 0)
			put(&row, KEEPER_PID, Int32GetDatum((int32) keeper_pid));
		put(&row, STATS_RESET,
			TimestampTzGetDatum(pg_atomic_read_u64(&counters->reset_at)));

		if (sees_all && gate == GATE_OPEN)
		{
			put_interval(&row, LEAD, lead_usec);
			put(&row, RESERVED_UNTIL,
				TimestampTzGetDatum(snowflake_position_time(layout,
															pg_atomic_read_u64(&gen->limit))));

			/* a position to which "last" was merely raised is no ID */
			if (last != pg_atomic_read_u64(&gen->raised_to))
			{
				put(&row, LAST_ID, Int64GetDatum(snowflake_position_id(last)));
				put(&row, LAST_TIME,
					TimestampTzGetDatum(snowflake_position_time(layout, last)));
			}
		}
		if (sees_all)
		{
			put(&row, MINTED, Int64GetDatum((int64) snowflake_minted()));
			put_waits(&row, CLOCK_WAITS, &counters->clock_waits);
			put_waits(&row, KEEPER_WAITS, &counters->keeper_waits);
			put_counter(&row, RESERVATIONS, &counters->reservations);
			put_counter(&row, CLOCK_STEPS_BACK, &counters->clock_steps_back);
			put_interval(&row, CLOCK_STEP_BACK_LARGEST,
						 pg_atomic_read_u64(&counters->clock_step_back_largest_usec));
			for (int i = 0; i < SNOWFLAKE_REFUSALS; i++)
				put_counter(&row, REFUSED + i, &counters->refused[i]);
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
