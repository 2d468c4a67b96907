/*-------------------------------------------------------------------------
 *
 * mint_error.c
 *	  Errors of mints that an open gate cannot serve: the layout's end, the
 *	  clock, the reservation, a server in recovery.  Each is counted.
 *
 * gate_text.c has the errors of a closed gate.
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
#include "keeper/keeper_text.h"
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
 * should be then: the keeper reserves no further ahead of it.
 */
bool
snowflake_mint_error_in_old_reservation(const SnowflakeView *view, int64 excess_usec)
{
	return snowflake_generator_is_untouched(view) &&
		excess_usec <= snowflake_reservation_ms * INT64CONST(1000) +
		snowflake_server_layout.tick_usec;
}

/*
 * Is the generator ahead of the clock because of snowflake_advance(), and not, for the
 * most part, because the clock went back?
 */
bool
snowflake_mint_error_advanced(const SnowflakeView *view)
{
	int64		lead_usec = snowflake_layout_position_time(&snowflake_server_layout, view->raised_to) -
	snowflake_generator_clock();
	int64		back_usec,
				ago_usec;

	return view->raised_by == RAISED_BY_ADVANCE && lead_usec > 0 &&
		!(snowflake_clock_went_back(&back_usec, &ago_usec) && back_usec > lead_usec / 2);
}

/* Why the generator is ahead of the clock: a sentence. */
const char *
snowflake_mint_error_why_ahead(const SnowflakeView *view)
{
	int64		back_usec,
				ago_usec;

	if (snowflake_mint_error_advanced(view))
		return "It was advanced by snowflake_advance().";
	if (snowflake_clock_went_back(&back_usec, &ago_usec))
		return psprintf("The clock went back by %s, %s ago.",
						snowflake_duration(back_usec), snowflake_duration(ago_usec));
	if (snowflake_generator_is_untouched(view))
		return "It starts above what may have been issued before.";
	return "The clock went back, or snowflake.max_ahead or snowflake.max_lead was lowered.";
}

/*
 * What to do about a clock that has jumped and is not believed: a sentence; or NULL if
 * there is none.  To believe it helps, unless IDs are ahead of it.
 */
const char *
snowflake_mint_error_jumped(bool is_ahead)
{
	int64		jump_usec,
				lasted_usec;
	const char *by,
			   *todo;

	if (!snowflake_clock_jump(&jump_usec, &lasted_usec))
		return NULL;
	by = psprintf("%s by %s, %s ago", jump_usec > 0 ? "ahead" : "back",
				  snowflake_duration(i64abs(jump_usec)), snowflake_duration(lasted_usec));
	todo = !snowflake_layout_has_time(&snowflake_server_layout, snowflake_clock_wall()) ?
		"to a time that the layout does not have: correct it." :
		is_ahead && jump_usec < 0 ? "and is not believed: correct it." :
		"and is not believed: correct it, or believe it with snowflake_accept_clock().";
	return psprintf("The clock went %s, %s", by, todo);
}

/*
 * What to do about a generator that is ahead of the clock by "excess_usec" more than it
 * may: sentences.
 */
const char *
snowflake_mint_error_what_to_do(const SnowflakeView *view, int64 excess_usec)
{
	const char *wait = snowflake_duration(snowflake_clock_wait_usec(excess_usec));
	const char *jumped = snowflake_mint_error_jumped(true);

	if (jumped != NULL)
		return psprintf("%s Minting goes on in %s.", jumped, wait);
	if (excess_usec >= USECS_PER_HOUR)
		return psprintf("Check the server's clock. If it is correct, minting goes on in %s. To give up the order instead, set %s to a number that was never used and call snowflake_restart_at_clock() with it.",
						wait, snowflake_node_source_settings());
	if (snowflake_mint_error_advanced(view))
		return psprintf("Minting goes on in %s.", wait);
	return psprintf("Check the server's clock. Minting goes on when it has advanced by another %s.", wait);
}

/*
 * The generator would be ahead of the clock by "excess_usec" more than it may,
 * after this call has waited for "waited_usec".
 */
void
snowflake_mint_error_ahead(int64 excess_usec, int64 waited_usec)
{
	int64		may_lead_usec = snowflake_generator_may_lead_usec();
	SnowflakeView view;

	snowflake_generator_view(&view);
	snowflake_counters_add(COUNTER_REFUSED_CLOCK);
	if (snowflake_mint_error_in_old_reservation(&view, excess_usec))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("minting snowflakes starts in %s, after the end of what was reserved before",
					   snowflake_duration(snowflake_clock_wait_usec(excess_usec))),
				errdetail("Snowflakes up to \"%s\" may have been issued before. This call has waited %s, and may wait %d ms (snowflake.max_wait).",
						  timestamptz_to_str(snowflake_layout_position_time(&snowflake_server_layout,
																			view.last)),
						  snowflake_duration(waited_usec), snowflake_max_wait_ms),
				errhint("Set snowflake.max_wait to more than snowflake.reservation, so that mints wait instead of failing."));
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("the snowflake generator is %s ahead of the clock",
				   snowflake_duration(excess_usec + may_lead_usec)),
			errdetail("%s It may be ahead by %s (snowflake.%s). This call has waited %s, may wait %d ms (snowflake.max_wait), and would have to wait another %s.",
					  snowflake_mint_error_why_ahead(&view),
					  snowflake_duration(may_lead_usec),
					  may_lead_usec <= snowflake_max_lead_ms * INT64CONST(1000) ? "max_lead" : "max_ahead",
					  snowflake_duration(waited_usec), snowflake_max_wait_ms,
					  snowflake_duration(snowflake_clock_wait_usec(excess_usec))),
			errhint("%s", snowflake_mint_error_what_to_do(&view, excess_usec)));
}

/* The keeper has not reserved more in time. */
void
snowflake_mint_error_unreserved(void)
{
	SnowflakeNode wanted;
	SnowflakeView view;
	const char *trouble,
			   *todo;

	snowflake_generator_view(&view);

	/* beyond a lease nothing can be reserved */
	snowflake_node_source_wanted(&wanted);
	if (view.limit >= wanted.end)
		snowflake_gate_text_refuse(GATE_LEASE_ENDED);

	trouble = snowflake_keeper_text_trouble(&todo);
	snowflake_counters_add(COUNTER_REFUSED_KEEPER);
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("the snowflake reservation was not extended within %d ms",
				   snowflake_settings_keeper_wait_ms()),
			errdetail("It ends at \"%s\". %s",
					  timestamptz_to_str(snowflake_layout_position_time(&snowflake_server_layout,
																		view.limit)),
					  trouble),
			errhint("%s", todo));
}
