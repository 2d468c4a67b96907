/*-------------------------------------------------------------------------
 *
 * admin.c
 *	  What an administrator does: functions that ask the keeper for something and
 *	  wait for it.
 *
 * The script revokes them from everybody.  Like a mint they wait for at
 * most snowflake.max_wait.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "tcop/utility.h"

#include "clock.h"
#include "compat.h"
#include "duration.h"
#include "gate.h"
#include "generator.h"
#include "io.h"
#include "request.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowflake_advance);
PG_FUNCTION_INFO_V1(snowflake_accept_layout);
PG_FUNCTION_INFO_V1(snowflake_accept_database);

static int64
deadline(void)
{
	return snowflake_monotonic_usec() + snowflake_max_wait_ms * INT64CONST(1000);
}

pg_noreturn static void
no_answer_error(const char *what)
{
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("%s was not done within %d ms", what, snowflake_max_wait_ms),
			errdetail("The gate is %s.", snowflake_gate_reason(snowflake_gate())),
			errhint("The server log has the reason."));
}

/* Ask the keeper for something that opens the gate, until it is open. */
static void
ask_until_open(const char *function, uint32 what, int64 ends)
{
	while (snowflake_gate() != GATE_OPEN)
	{
		CHECK_FOR_INTERRUPTS();
		snowflake_request(what);
		if (!snowflake_wait_for_keeper(ends))
			no_answer_error(function);
	}
	ConditionVariableCancelSleep();
}

/*
 * Never mint at or below an ID: on return this is durable.  If it is canceled,
 * it may be done all the same.
 *
 * The whole tick of the ID counts as used, because in most layouts the node
 * stands above the sequence, so a later sequence number of the same tick can
 * make a smaller ID.
 */
Datum
snowflake_advance(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		id = snowflake_check_sign(PG_GETARG_INT64(0));
	int64		tick = snowflake_get_tick(layout, id);
	int64		ends = deadline();
	uint64		floor = snowflake_last_position(layout, tick);
	int64		lead_usec;
	SnowflakeView view;

	snowflake_require_generator("snowflake_advance()");
	PreventCommandDuringRecovery("snowflake_advance()");

	if (tick >= layout->max_tick)
		ereport(ERROR,
				errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				errmsg("cannot advance to snowflake " INT64_FORMAT, id),
				errdetail("The largest snowflake of the layout is " INT64_FORMAT ", so none could be minted after it.",
						  layout->max_id));

	/* nothing is asked for unless it can be done */
	ask_until_open("snowflake_advance()", SNOWFLAKE_WANT_GATE, ends);

	/* what is minted from here on, or left of a batch, is above it */
	snowflake_raise_floor(floor);
	while (snowflake_generator_view(&view), view.last < floor)
	{
		CHECK_FOR_INTERRUPTS();
		snowflake_request(SNOWFLAKE_WANT_FLOOR);
		if (!snowflake_wait_for_keeper(ends))
			no_answer_error("snowflake_advance()");
	}
	ConditionVariableCancelSleep();

	lead_usec = snowflake_position_time(layout, view.last) - snowflake_wall_clock();
	if (lead_usec > snowflake_max_lead_ms * INT64CONST(1000) + layout->tick_usec)
		ereport(WARNING,
				errmsg("the snowflake generator is now %s ahead of the clock",
					   snowflake_duration(lead_usec)),
				errdetail("Until the clock has caught up, nothing can be minted."));
	PG_RETURN_VOID();
}

/*
 * Warn if the IDs of the configured layout are smaller than those of the
 * stored one: they sort before the existing IDs, and will reach them one day.
 *
 * If they are equal at this moment, the time is in the same place, and the new
 * ones ascend from the old: minting resumes in a later tick.
 */
static void
compare_layouts(const char *stored_text)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz now = snowflake_wall_clock();
	SnowflakeLayout stored;
	int64		new_id,
				old_id;

	if (snowflake_layout_parse(stored_text, &stored) != NULL)
		return;
	new_id = snowflake_id_until(layout, now);
	old_id = snowflake_id_until(&stored, now);
	if (new_id < old_id)
		ereport(WARNING,
				errmsg("snowflakes of the configured layout are smaller than those minted so far"),
				errdetail("At this moment the stored layout gives " INT64_FORMAT ", the configured one " INT64_FORMAT ".",
						  old_id, new_id),
				errhint("New snowflakes will not sort after the old ones, and may equal them when they reach them."));
}

/*
 * Take the configured layout in place of the stored one: on return the gate is
 * open.
 */
Datum
snowflake_accept_layout(PG_FUNCTION_ARGS)
{
	int64		ends = deadline();
	char		stored[SNOWFLAKE_LAYOUT_TEXT_SIZE];

	snowflake_require_generator("snowflake_accept_layout()");
	PreventCommandDuringRecovery("snowflake_accept_layout()");

	if (snowflake_gate() == GATE_OPEN)
	{
		ereport(NOTICE,
				errmsg("the configured snowflake layout is in force already"));
		PG_RETURN_VOID();
	}
	if (snowflake_get_stored_layout(stored, sizeof(stored)))
		compare_layouts(stored);

	ask_until_open("snowflake_accept_layout()", SNOWFLAKE_WANT_LAYOUT, ends);
	PG_RETURN_VOID();
}

/*
 * Keep a new reservation in the configured database, although this cluster has,
 * or had, one elsewhere: on return the gate is open.
 */
Datum
snowflake_accept_database(PG_FUNCTION_ARGS)
{
	int64		ends = deadline();

	snowflake_require_generator("snowflake_accept_database()");
	PreventCommandDuringRecovery("snowflake_accept_database()");

	if (snowflake_gate() == GATE_OPEN)
		ereport(NOTICE,
				errmsg("the snowflake reservation is in the configured database already"));
	ask_until_open("snowflake_accept_database()", SNOWFLAKE_WANT_DATABASE, ends);
	PG_RETURN_VOID();
}
