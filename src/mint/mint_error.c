/*-------------------------------------------------------------------------
 *
 * mint_error.c
 *	  Errors of mints that an open gate cannot serve: the layout's end, the
 *	  clock, the reservation, a server in recovery.  Each is counted.
 *
 * What a closed gate refuses is in gate_text.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/duration.h"
#include "base/settings.h"
#include "generator/counters.h"
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "keeper/gate_text.h"
#include "layout/server_layout.h"
#include "lease/node_source.h"
#include "mint/mint_error.h"

/* In recovery, raise an error as nextval() does. */
void
snowflake_mint_error_in_recovery(const char *function)
{
	if (!RecoveryInProgress())
		return;
	snowflake_counters_add(COUNTER_REFUSED_STANDBY);
	PreventCommandDuringRecovery(function);
}

/* The layout has no later tick. */
void
snowflake_mint_error_ended(void)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	snowflake_counters_add(COUNTER_REFUSED_END);
	ereport(ERROR,
			errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
			errmsg("the snowflake layout has ended"),
			errdetail("Its last tick started at \"%s\".",
					  timestamptz_to_str(snowflake_layout_tick_start(layout, layout->max_tick))),
			errhint("Configure another snowflake.layout, whose snowflakes are larger than those of this one."));
}

/*
 * Does a generator that may not mint for another "excess_usec" merely wait for the
 * end of what was reserved before a crash or a promotion?  The clock is as it
 * should be then: nobody reserves further ahead of it.
 */
bool
snowflake_mint_error_in_old_reservation(const SnowflakeView *view, int64 excess_usec)
{
	return snowflake_generator_is_untouched(view) &&
		excess_usec <= snowflake_reservation_ms * INT64CONST(1000) +
		snowflake_server_layout.tick_usec;
}

/*
 * The generator would be ahead of the clock by "excess_usec" more than it may,
 * after this call has waited for "waited_usec".
 */
void
snowflake_mint_error_ahead(int64 excess_usec, int64 waited_usec)
{
	int64		lead_usec = excess_usec + snowflake_generator_may_lead_usec();
	int64		wait_usec = excess_usec;
	const char *may = psprintf("%d ms (snowflake.max_lead)", snowflake_max_lead_ms);
	const char *why = "The clock went back, or snowflake.max_lead was lowered.";
	SnowflakeView view;
	int64		back_usec,
				ago_usec,
				jump_usec,
				lasted_usec;

	/* a clock that is further than IDs are, or would end the wait, needs patience */
	if (snowflake_clock_jump(&jump_usec, &lasted_usec) && jump_usec > 0)
		wait_usec = Min(wait_usec,
						Max(snowflake_jump_patience_ms * INT64CONST(1000) - lasted_usec, 0));
	if (snowflake_max_ahead_s > 0 && lead_usec > snowflake_max_ahead_s * USECS_PER_SEC)
		may = psprintf("%s (snowflake.max_ahead)",
					   snowflake_duration(snowflake_max_ahead_s * USECS_PER_SEC));
	snowflake_generator_view(&view);
	if (view.last == view.raised_to)
		why = view.raised_by == RAISED_BY_ADVANCE ?
			"It was advanced by snowflake_advance()." :
			"It starts above what had been reserved when the server crashed or the clock went back.";
	if ((view.last != view.raised_to || view.raised_by != RAISED_BY_ADVANCE) &&
		snowflake_clock_went_back(&back_usec, &ago_usec))
		why = psprintf("The clock went back by %s, %s ago.",
					   snowflake_duration(back_usec), snowflake_duration(ago_usec));

	snowflake_counters_add(COUNTER_REFUSED_CLOCK);
	if (snowflake_mint_error_in_old_reservation(&view, excess_usec))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("minting snowflakes starts in %s, after the end of what was reserved before",
					   snowflake_duration(excess_usec)),
				errdetail("Snowflakes up to \"%s\" may have been issued before. This call has waited %s, and may wait %d ms (snowflake.max_wait).",
						  timestamptz_to_str(snowflake_layout_position_time(&snowflake_server_layout,
																			view.last)),
						  snowflake_duration(waited_usec), snowflake_max_wait_ms),
				errhint("With a snowflake.max_wait that is longer than snowflake.reservation, a mint waits for that end."));
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("the snowflake generator is %s ahead of the clock",
				   snowflake_duration(lead_usec)),
			errdetail("%s It may be ahead by %s. This call has waited %s, may wait %d ms (snowflake.max_wait), and would have to wait another %s.",
					  why, may,
					  snowflake_duration(waited_usec), snowflake_max_wait_ms,
					  snowflake_duration(wait_usec)),
			wait_usec < excess_usec ?
			errhint("The clock went ahead by %s. If it is right, believe it with snowflake_accept_clock().",
					snowflake_duration(jump_usec)) :
			excess_usec < USECS_PER_HOUR ?
			errhint("Check the server's clock. Minting goes on as soon as it is %s further.",
					snowflake_duration(excess_usec)) :
			errhint("Check the server's clock. If it is right, and the generator stays far ahead, set %s to a number that was never used and call snowflake_restart_at_clock() with it.",
					snowflake_node_source_settings()));
}

/* The keeper has not reserved more in time. */
void
snowflake_mint_error_unreserved(void)
{
	int			failure = snowflake_keeper_state_failure();
	int			pid = snowflake_keeper_state_pid();
	int64		standby_wait_usec = snowflake_keeper_state_standby_wait_usec();
	SnowflakeNode wanted;
	SnowflakeView view;
	const char *until;

	snowflake_generator_view(&view);

	/* beyond a lease nothing can be reserved */
	snowflake_node_source_wanted(&wanted);
	if (view.limit >= wanted.end)
		snowflake_gate_text_refuse(GATE_LEASE_ENDED);

	until = timestamptz_to_str(snowflake_layout_position_time(&snowflake_server_layout,
															  view.limit));
	snowflake_counters_add(COUNTER_REFUSED_KEEPER);
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("the snowflake reservation was not extended within %d ms",
				   snowflake_max_wait_ms),
			standby_wait_usec != 0 ?
			errdetail("It ends at \"%s\". The commit of the next one has been waiting for a synchronous standby for %s.",
					  until, snowflake_duration(standby_wait_usec)) :
			failure != 0 ?
			errdetail("It ends at \"%s\". The keeper's last attempt failed with SQLSTATE %s.",
					  until, unpack_sql_state(failure)) :
			pid == 0 ?
			errdetail("It ends at \"%s\". The keeper is not running.", until) :
			errdetail("It ends at \"%s\". The keeper, process %d, is still waiting for its commit.",
					  until, pid),
			errhint("The server log has the reason."));
}
