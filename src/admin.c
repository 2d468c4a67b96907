/*-------------------------------------------------------------------------
 *
 * admin.c
 *	  Functions for administrators, which ask the keeper for something and wait
 *	  for it.
 *
 * The SQL script revokes them from PUBLIC.  They wait for the keeper as long as a mint does, and
 * if one is canceled, it may be done nevertheless.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/duration.h"
#include "base/settings.h"
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "layout/io.h"
#include "layout/server_layout.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"
#include "mint/mint.h"

PG_FUNCTION_INFO_V1(snowflake_advance);
PG_FUNCTION_INFO_V1(snowflake_accept_layout);
PG_FUNCTION_INFO_V1(snowflake_accept_database);
PG_FUNCTION_INFO_V1(snowflake_accept_clock);
PG_FUNCTION_INFO_V1(snowflake_restart_at_clock);

/* Check that this server has a keeper.  Returns the deadline of a wait, on the monotonic clock. */
static int64
begin(const char *function)
{
	snowflake_generator_require(function);
	PreventCommandDuringRecovery(function);
	return snowflake_clock_monotonic_usec() + snowflake_settings_keeper_wait_ms() * INT64CONST(1000);
}

pg_noreturn static void
no_answer_error(const char *what)
{
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("%s did not finish within %d ms", what, snowflake_settings_keeper_wait_ms()),
			errdetail("The gate is %s.", snowflake_refusal_gate()),
			errhint("The server log has the reason."));
}

/*
 * Ask the keeper for something, and wait until it has announced something.  After the deadline, this
 * raises an error without asking, so that nothing is done after the error.  Call this in a loop, like
 * snowflake_keeper_state_wait().
 */
static void
ask(const char *function, uint32 what, int64 deadline_usec)
{
	CHECK_FOR_INTERRUPTS();
	if (snowflake_clock_monotonic_usec() >= deadline_usec)
		no_answer_error(function);
	snowflake_keeper_state_request(what);
	(void) snowflake_keeper_state_wait(deadline_usec);
}

/* Ask the keeper for something that opens the gate, until it is open. */
static void
ask_until_open(const char *function, uint32 what, int64 deadline_usec)
{
	while (snowflake_generator_gate() != GATE_OPEN)
		ask(function, what, deadline_usec);
	ConditionVariableCancelSleep();
}

static void
check_not_last(int64 id, int64 tick)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	if (tick >= layout->max_tick)
		ereport(ERROR,
				errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				errmsg("cannot advance to snowflake " INT64_FORMAT, id),
				errdetail("The largest snowflake of the layout is " INT64_FORMAT ", so none could be minted after it.",
						  layout->max_id));
}

static void
warn_if_ahead(void)
{
	int64		max_ahead_usec = snowflake_max_ahead_s * USECS_PER_SEC;
	SnowflakeView view;
	int64		lead_usec;

	snowflake_generator_view(&view);
	lead_usec = snowflake_generator_lead_usec(&view);
	if (lead_usec > snowflake_max_lead_ms * INT64CONST(1000) + snowflake_generator_early_usec())
		ereport(WARNING,
				errmsg("the snowflake generator is now %s ahead of the clock",
					   snowflake_duration(lead_usec)),
				lead_usec <= max_ahead_usec ?
				errdetail("Minting goes on, but snowflakes are ahead of the clock until it has caught up.") :
				errdetail("Nothing can be minted for another %s, until it is ahead by %s (snowflake.max_ahead).",
						  snowflake_duration(lead_usec - max_ahead_usec),
						  snowflake_duration(max_ahead_usec)));
}

/*
 * Raise an error if the generator has passed the floor only because it is where the order of
 * its node ID was given up: other node IDs go on below the floor, and no row says otherwise.
 */
static void
refuse_given_up(const SnowflakeView *view, uint64 floor)
{
	if (view->gate == GATE_OPEN && view->in_order < floor && view->last >= floor)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("the order of snowflakes with node ID %d was given up", view->node),
				errdetail("Snowflakes up to \"%s\" may have been minted with it. Those of other node IDs go on below.",
						  timestamptz_to_str(snowflake_generator_time(view->last))),
				errhint("Set %s to the node ID that is to mint, reload the configuration, and call the function again.",
						snowflake_node_source_settings()));
}

/* Wait until the newest position has reached the floor, and warn if that is ahead of the clock. */
static void
pass_floor(const char *function, uint64 floor, int64 deadline_usec)
{
	SnowflakeView view;

	while (snowflake_generator_view(&view), view.in_order < floor)
	{
		refuse_given_up(&view, floor);
		ask(function, SNOWFLAKE_WANT_FLOOR, deadline_usec);
	}
	ConditionVariableCancelSleep();
	warn_if_ahead();
}

/*
 * Never mint at or below an ID: on return, this is durable.  The whole tick of the ID counts as used,
 * because in most layouts a later sequence number of the same tick can give a smaller ID.
 */
Datum
snowflake_advance(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		id = snowflake_io_check_sign(PG_GETARG_INT64(0));
	int64		tick = snowflake_layout_get_tick(layout, id);
	uint64		floor = snowflake_layout_last_position(layout, tick);
	int64		deadline_usec = begin("snowflake_advance()");
	int64		lead_usec;
	SnowflakeView view;

	check_not_last(id, tick);

	/*
	 * A single row with a wrong date would put the generator ahead for hours
	 * or years.  Servers with correct clocks differ by less than a minute.
	 */
	lead_usec = snowflake_layout_tick_start(layout, tick) - snowflake_generator_clock();
	if (lead_usec > USECS_PER_MINUTE && !PG_GETARG_BOOL(1))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("snowflake " INT64_FORMAT " is %s ahead of the clock", id,
					   snowflake_duration(lead_usec)),
				errdetail("New snowflakes would be that far ahead of the clock, and nothing could be minted while that exceeds snowflake.max_ahead."),
				errhint("Look for rows with wrong dates. To advance that far nevertheless, call snowflake_advance() with force => true."));

	/* ask for nothing unless it can be done */
	ask_until_open("snowflake_advance()", SNOWFLAKE_WANT_GATE, deadline_usec);
	snowflake_generator_view(&view);
	refuse_given_up(&view, floor);

	/* what is minted from here on, also the rest of a batch, is above it */
	snowflake_generator_raise_floor(floor);
	pass_floor("snowflake_advance()", floor, deadline_usec);
	PG_RETURN_VOID();
}

static bool
has_same_parts(const SnowflakeLayout *one, const SnowflakeLayout *other)
{
	if (one->nfields != other->nfields)
		return false;
	for (int i = 1; i < one->nfields; i++)
	{
		if (strcmp(one->fields[i].name, other->fields[i].name) != 0 ||
			one->fields[i].width != other->fields[i].width ||
			one->fields[i].by_caller != other->fields[i].by_caller)
			return false;
	}
	return true;
}

/* Warn if existing IDs now decode to other times or other parts. */
static void
warn_of_old_ids(const char *text, const SnowflakeLayout *stored, int64 id)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		tick = snowflake_layout_get_tick(layout, id);
	TimestampTz time = snowflake_layout_tick_start(stored, snowflake_layout_get_tick(stored, id));

	if (layout->epoch != stored->epoch || layout->tick_usec != stored->tick_usec ||
		layout->time_shift != stored->time_shift)
		ereport(WARNING,
				errmsg("existing snowflakes now decode to other times"),
				tick > layout->max_tick ?
				errdetail("Snowflake " INT64_FORMAT " decodes to \"%s\" in the stored layout, but to a time after the end of the configured one.",
						  id, pstrdup(timestamptz_to_str(time))) :
				errdetail("Snowflake " INT64_FORMAT " decodes to \"%s\" in the stored layout, but to \"%s\" in the configured one.",
						  id, pstrdup(timestamptz_to_str(time)),
						  pstrdup(timestamptz_to_str(snowflake_layout_tick_start(layout, tick)))),
				errhint("Decode them with their own layout, for example snowflake_timestamp(id, '%s').", text));
	else if (!has_same_parts(layout, stored))
		ereport(WARNING,
				errmsg("existing snowflakes now decode to other nodes and sequence numbers"),
				errdetail("Their times do not change."),
				errhint("Decode them with their own layout, for example snowflake_node(id, '%s').", text));
}

/*
 * Warn about the effects of a change of the layout: on existing IDs, and if new IDs are smaller, so
 * that they sort before the existing ones, and will reach them one day.  If the two are equal at this
 * moment, the time is in the same place, and new IDs ascend from the old ones: minting resumes in a
 * later tick.
 */
static void
compare_layouts(const char *stored_text)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz now = snowflake_clock_wall();
	SnowflakeLayout stored;
	int64		new_id,
				old_id;

	if (snowflake_layout_parse(stored_text, &stored) != NULL)
		return;
	new_id = snowflake_layout_id_until(layout, now);
	old_id = snowflake_layout_id_until(&stored, now);
	if (old_id >= 0)
		warn_of_old_ids(stored_text, &stored, old_id);
	if (new_id < old_id)
		ereport(WARNING,
				errmsg("snowflakes of the configured layout are smaller than existing ones"),
				errdetail("At this moment, the stored layout gives " INT64_FORMAT ", and the configured one " INT64_FORMAT ".",
						  old_id, new_id),
				errhint("New snowflakes will not sort after existing ones, and may repeat them once they catch up."));
}

/* Replace the stored layout with the configured one: on return, the gate is open. */
Datum
snowflake_accept_layout(PG_FUNCTION_ARGS)
{
	int64		deadline_usec = begin("snowflake_accept_layout()");
	char		stored[SNOWFLAKE_LAYOUT_TEXT_SIZE];

	if (snowflake_generator_gate() == GATE_OPEN)
	{
		ereport(NOTICE,
				errmsg("the configured snowflake layout is already in force"));
		PG_RETURN_VOID();
	}
	if (snowflake_generator_stored_layout(stored, sizeof(stored)))
		compare_layouts(stored);

	ask_until_open("snowflake_accept_layout()", SNOWFLAKE_WANT_LAYOUT, deadline_usec);
	PG_RETURN_VOID();
}

/* Raise an error while the clock is not believed.  "why" is the detail, a sentence. */
static void
refuse_jump(const char *why)
{
	SnowflakeClockState clock = snowflake_clock_state();

	if (clock.belief == CLOCK_COASTING)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				clock.off_usec > 0 ?
				errmsg("the clock went ahead by %s, which is not believed",
					   snowflake_duration(clock.off_usec)) :
				errmsg("the clock went back by %s, which is not believed",
					   snowflake_duration(-clock.off_usec)),
				errdetail_internal("%s", why),
				errhint("If the clock is correct, believe it with snowflake_accept_clock() first; otherwise, correct it."));
}

/*
 * Check the ID that is said to be the largest that exists, and return the last position of its
 * tick.  A wrong number is usually from the far future, which is an error, or from long ago,
 * which is a warning.  Nothing is compared with a clock that is not believed.
 */
static uint64
check_largest(int64 id)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		tick = snowflake_layout_get_tick(layout, snowflake_io_check_sign(id));
	int64		lead_usec = snowflake_layout_tick_start(layout, tick) - snowflake_generator_clock();
	int64		may_lead_usec = snowflake_max_ahead_s * USECS_PER_SEC +
	snowflake_max_lead_ms * INT64CONST(1000);

	check_not_last(id, tick);
	if (lead_usec > may_lead_usec)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("snowflake " INT64_FORMAT " is %s ahead of the clock", id,
					   snowflake_duration(lead_usec)),
				errdetail("Snowflakes may be ahead by %s (snowflake.max_ahead), so nothing could be minted for another %s.",
						  snowflake_duration(snowflake_max_ahead_s * USECS_PER_SEC),
						  snowflake_duration(lead_usec - may_lead_usec)),
				errhint("Check the number and the server's clock. If both are right, wait until then, or set snowflake.max_ahead to more than that."));
	if (lead_usec < -USECS_PER_DAY)
		ereport(WARNING,
				errmsg("minting starts at the clock, %s after snowflake " INT64_FORMAT,
					   snowflake_duration(-lead_usec), id),
				errhint("If snowflakes exist that are ahead of the clock, pass the largest to snowflake_advance()."));
	return snowflake_layout_last_position(layout, tick);
}

/*
 * Keep a new reservation in the configured database, although this cluster has or had one elsewhere:
 * on return, the gate is open, and nothing is minted at or below the largest ID that exists.
 *
 * That ID becomes the floor, in shared memory, before the keeper is asked; the keeper stores it for
 * all node IDs in the transaction in which it writes the new reservation.  So a crash leaves either
 * both or neither, and then the old reservation is as lost as before.  If the reservation is in its
 * place already, as after another call, the floor is raised nevertheless.
 */
Datum
snowflake_accept_database(PG_FUNCTION_ARGS)
{
	bool		has_largest = !PG_ARGISNULL(0);
	bool		none_exists = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
	const char *function = "snowflake_accept_database()";
	int64		deadline_usec = begin(function);
	uint64		floor = 0;
	uint64		looks;

	if (has_largest == none_exists)
		ereport(ERROR,
				errcode(has_largest ? ERRCODE_INVALID_PARAMETER_VALUE : ERRCODE_NULL_VALUE_NOT_ALLOWED),
				has_largest ?
				errmsg("a largest snowflake is given, although none_exists is true") :
				errmsg("the largest snowflake that exists must be given"),
				errdetail("Minting starts above it, so that it does not come again."),
				errhint("Call snowflake_accept_database() with the largest of all tables and databases, or with none_exists => true if nothing was ever minted."));

	/* a judgment that is under way may be about an earlier clock */
	looks = snowflake_keeper_state_judgments() + 2;
	snowflake_keeper_state_await_judgment(looks, deadline_usec);
	if (snowflake_keeper_state_judgments() < looks)
		no_answer_error(function);
	if (snowflake_generator_gate() == GATE_OPEN)
		ereport(NOTICE,
				errmsg("the snowflake reservation is in the configured database already"));
	else
		refuse_jump("A new reservation starts at the clock that is believed.");
	if (has_largest)
	{
		floor = check_largest(PG_GETARG_INT64(0));
		snowflake_generator_raise_floor(floor);
	}
	ask_until_open(function, SNOWFLAKE_WANT_DATABASE, deadline_usec);
	pass_floor(function, floor, deadline_usec);
	PG_RETURN_VOID();
}

/*
 * Believe the clock, which has jumped: on return, minting follows it, or IDs run ahead if it is
 * behind.  If it is so far behind that nothing can be minted, a warning says for how long.
 */
Datum
snowflake_accept_clock(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz now = snowflake_clock_wall();
	int64		deadline_usec = begin("snowflake_accept_clock()");
	uint64		looks;

	if (!snowflake_layout_has_time(layout, now))
	{
		char	   *epoch = pstrdup(timestamptz_to_str(layout->epoch));
		char	   *end = pstrdup(timestamptz_to_str(snowflake_layout_tick_start(layout, layout->max_tick)));

		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("the snowflake layout does not have the time of the clock"),
				errdetail("The clock is at \"%s\". The layout has times from \"%s\" to \"%s\".",
						  timestamptz_to_str(now), epoch, end),
				errhint("Correct the server's clock, or, if it is correct, configure another snowflake.layout."));
	}

	if (snowflake_clock_state().no_id && now < SNOWFLAKE_RELEASE_TIME)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("the clock is before the release of this version of snowflake"),
				errhint("Correct the server's clock."));

	/*
	 * The keeper may not have noticed the jump yet, and a judgment that is
	 * under way does not know of the request, but the next one does.
	 */
	looks = snowflake_keeper_state_judgments();
	while (snowflake_keeper_state_judgments() < looks + 2 ||
		   snowflake_clock_state().belief == CLOCK_COASTING)
		ask("snowflake_accept_clock()", SNOWFLAKE_WANT_CLOCK, deadline_usec);
	ConditionVariableCancelSleep();
	if (snowflake_generator_gate() == GATE_OPEN)
		warn_if_ahead();
	PG_RETURN_VOID();
}

/*
 * Check that the generator is far ahead of the clock, and can be taken back under the node ID
 * that it has or, if that is leased, under another one.  Returns true if it needs another one.
 */
static bool
check_reset(int32 node, const SnowflakeView *view)
{
	TimestampTz now = snowflake_generator_clock();
	TimestampTz last_time = snowflake_generator_time(view->last);
	SnowflakeNode wanted;

	snowflake_node_source_wanted(&wanted);
	if (view->node != node || wanted.node != node)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("snowflakes are not minted with node ID %d", node),
				errdetail("The node ID is %d.", view->node),
				snowflake_node_source == NODE_FROM_LEASE ?
				errhint("Call snowflake_restart_at_clock() with the node ID that is leased.") :
				errhint("Set %s to %d, reload the configuration, and call snowflake_restart_at_clock() again.",
						snowflake_node_source_settings(), node));
	refuse_jump("Snowflakes would follow a clock that may be wrong.");
	if (last_time - now <= SNOWFLAKE_RESTART_LEAD_USEC)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("the snowflake generator is not ahead of the clock by more than a minute"),
				errdetail("It is ahead by %s.",
						  snowflake_duration(Max(last_time - now, 0))));
	if (snowflake_generator_is_unused(view) &&
		snowflake_generator_time(Max(view->own_last, view->floor)) <= now)
		return false;
	if (view->grant == 0 || view->floor > view->last)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("snowflakes ahead of the clock may have been minted with node ID %d",
					   node),
				errdetail("They could be minted again."),
				errhint("Set %s to a number that this server has not used, reload the configuration, and call snowflake_restart_at_clock() with that number.",
						snowflake_node_source_settings()));
	return true;
}

/* Have another node ID leased, and the gate opened for it, from the clock on; update the view. */
static void
replace_lease(SnowflakeView *view, int64 deadline_usec)
{
	uint32		grant = view->grant;

	snowflake_lease_state_replace(grant, deadline_usec);
	while (snowflake_generator_view(view),
		   view->gate != GATE_OPEN || view->grant == grant)
	{
		CHECK_FOR_INTERRUPTS();
		if (!snowflake_keeper_state_wait(deadline_usec))
			ereport(ERROR,
					errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("no other node ID was leased within %d ms",
						   snowflake_settings_keeper_wait_ms()),
					errdetail("The node ID is still %d.", view->node),
					errhint("See the server log and the column advice of the view snowflake_status."));
	}
	ConditionVariableCancelSleep();
}

/*
 * Take a generator that is far ahead of the clock back to it by giving up the order: new snowflakes
 * are smaller than some earlier ones.  None is issued twice, since the node ID was not used there.
 * The caller names the node ID, so that this is not done by accident.
 *
 * A leased node ID is replaced by another.  The old lease goes on to its end, above everything that
 * was minted with it.
 */
Datum
snowflake_restart_at_clock(PG_FUNCTION_ARGS)
{
	int32		node = PG_GETARG_INT32(0);
	int64		deadline_usec = begin("snowflake_restart_at_clock()");
	SnowflakeView view;
	uint64		before;

	ask_until_open("snowflake_restart_at_clock()", SNOWFLAKE_WANT_GATE, deadline_usec);

	snowflake_generator_view(&view);
	before = view.last;
	do
	{
		/* the node ID may have changed by now, or have minted */
		if (view.gate == GATE_OPEN && check_reset(node, &view))
		{
			replace_lease(&view, deadline_usec);
			break;
		}
		CHECK_FOR_INTERRUPTS();
		snowflake_keeper_state_request_restart(node);
		if (!snowflake_keeper_state_wait(deadline_usec))
			no_answer_error("snowflake_restart_at_clock()");
		snowflake_generator_view(&view);
	} while (view.gate != GATE_OPEN || view.last >= before);
	ConditionVariableCancelSleep();

	ereport(NOTICE,
			errmsg("snowflakes follow the clock again, with node ID %d", view.node),
			errdetail("They are smaller than earlier ones, whose times go up to \"%s\".",
					  timestamptz_to_str(snowflake_generator_time(before))));
	PG_RETURN_VOID();
}
