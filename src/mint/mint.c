/*-------------------------------------------------------------------------
 *
 * mint.c
 *	  Minting: a step of the generator, and the waiting around it.
 *
 * The step is in generator.c, which argues why no ID is issued twice.  mint_slowly() finds out
 * why a step fails and how long to wait, without holding any lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"
#include "frontier/frontier.h"
#include "generator/counters.h"
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "generator/slot.h"
#include "layout/decode.h"
#include "layout/server_layout.h"
#include "mint/mint.h"

PG_FUNCTION_INFO_V1(snowflake_next);
PG_FUNCTION_INFO_V1(snowflake_next_value);
PG_FUNCTION_INFO_V1(snowflake_next_batch);
PG_FUNCTION_INFO_V1(snowflake_next_batch_support);

/* Sleeps double: a clock that was moved may be set right, or corrected, at any moment */
#define FIRST_SLEEP_MS		10
#define LAST_SLEEP_MS		100

/* How long to wait for the keeper to judge the clock before a sleep */
#define LOOK_WAIT_USEC		(50 * 1000)

/* IDs of a batch that are issued in one step */
#define BATCH_CHUNK			4096

/* The IDs that a call of snowflake_next_batch() has yet to return. */
typedef struct Batch
{
	SnowflakeIssued issued;
	int64		value_bits;		/* the caller's, in its place */
} Batch;

/* The waits of one call so far. */
typedef struct MintWait
{
	int64		started_usec;	/* on the monotonic clock; 0: it has not
								 * waited yet */
	bool		for_clock;
	bool		for_keeper;
	int64		for_clock_usec;
	int64		for_keeper_usec;
	uint64		looks;			/* number of the keeper's judgment that
								 * counts; 0: none was asked for */
	int64		excess_usec;	/* the least that the clock was behind since
								 * that was asked for */
	int			sleep_ms;		/* the next sleep for a clock that is far
								 * behind */
} MintWait;

/* When a wait, and one for the keeper, becomes too long, on the monotonic clock */
static int64
deadline(const MintWait *wait)
{
	return wait->started_usec + snowflake_max_wait_ms * INT64CONST(1000);
}

static int64
keeper_deadline(const MintWait *wait)
{
	return wait->started_usec + snowflake_settings_keeper_wait_ms() * INT64CONST(1000);
}

/* Begin a wait, unless it has begun.  Returns the time on the monotonic clock. */
static int64
begin_waiting(MintWait *wait)
{
	int64		now_usec = snowflake_clock_monotonic_usec();

	CHECK_FOR_INTERRUPTS();
	if (wait->started_usec == 0)
		wait->started_usec = now_usec;
	return now_usec;
}

/* Sleep because of the clock, interruptibly, for up to "ms". */
static void
sleep_for_clock(long ms, MintWait *wait)
{
	static uint32 wait_event = 0;
	int64		started_usec = snowflake_clock_monotonic_usec();

	if (!wait->for_clock)
		snowflake_counters_add(COUNTER_CLOCK_WAITS);
	wait->for_clock = true;

	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("SnowflakeClock");
	ConditionVariableCancelSleep();
	(void) WaitLatch(MyLatch,
					 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 ms, wait_event);
	ResetLatch(MyLatch);
	snowflake_counters_add_sleep(COUNTER_CLOCK_WAITS,
								 snowflake_clock_monotonic_usec() - started_usec,
								 &wait->for_clock_usec);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Have the keeper judge the clock, which may need a correction.  Returns true if it had done so before
 * this call, or will not do so in time.
 *
 * The keeper may be held for longer than this waits for it, so the caller then steps again.  A
 * judgment that was under way when this wait began may be about an earlier clock, so the next one
 * counts; and if the clock has gone back further since, a later one.
 */
static bool
have_clock_judged(int64 excess_usec, MintWait *wait)
{
	int64		started_usec = snowflake_clock_monotonic_usec();

	if (wait->looks == 0 || excess_usec > wait->excess_usec + snowflake_generator_early_usec())
	{
		wait->looks = snowflake_keeper_state_judgments() + 2;
		wait->excess_usec = excess_usec;
	}
	wait->excess_usec = Min(wait->excess_usec, excess_usec);
	if (snowflake_keeper_state_judgments() >= wait->looks || started_usec >= keeper_deadline(wait))
		return true;
	if (!wait->for_clock)
		snowflake_counters_add(COUNTER_CLOCK_WAITS);
	wait->for_clock = true;

	snowflake_keeper_state_await_judgment(wait->looks,
										  Min(started_usec + LOOK_WAIT_USEC, keeper_deadline(wait)));
	snowflake_counters_add_sleep(COUNTER_CLOCK_WAITS,
								 snowflake_clock_monotonic_usec() - started_usec,
								 &wait->for_clock_usec);
	return false;
}

/*
 * Two steps found the generator too far ahead of the clock, so that was not a stale reading.
 * Either the clock went back, and the keeper corrects it; or this waits for the clock, and
 * raises an error if that would take too long.
 */
static void
wait_for_clock(int64 excess_usec, MintWait *wait)
{
	int64		now_usec = begin_waiting(wait);

	if (!have_clock_judged(excess_usec, wait))
		return;
	if (wait->sleep_ms == 0)
		wait->sleep_ms = FIRST_SLEEP_MS;
	if (now_usec + snowflake_refusal_wait_usec(excess_usec) > deadline(wait))
	{
		if (snowflake_keeper_state_judgments() < wait->looks)
			snowflake_refusal_unjudged(excess_usec);
		snowflake_refusal_ahead(excess_usec, now_usec - wait->started_usec);
	}
	snowflake_keeper_state_request(SNOWFLAKE_WANT_LOOK);
	sleep_for_clock(Min(excess_usec / 1000 + 1, wait->sleep_ms), wait);
	wait->sleep_ms = Min(wait->sleep_ms * 2, LAST_SLEEP_MS);
}

/*
 * Wait until a position that was issued early is due, that is, no further ahead of the clock than it
 * may be.  If the clock goes back meanwhile, that may take too long: then the position is lost.
 *
 * The floor of a snowflake_advance() that returns meanwhile does not matter: this call began before
 * it returned, so its ID may be smaller.
 */
static void
wait_until_due(const SnowflakeIssued *issued, int64 excess_usec, MintWait *wait)
{
	TimestampTz time = snowflake_generator_time(issued->next);

	for (; excess_usec > 0;
		 excess_usec = time - snowflake_generator_may_lead_usec() - snowflake_generator_clock())
	{
		if (excess_usec > snowflake_generator_early_usec())
			wait_for_clock(excess_usec, wait);
		else
		{
			int64		now_usec = begin_waiting(wait);

			/* the clock has stopped */
			if (now_usec > deadline(wait) + snowflake_generator_early_usec())
				snowflake_refusal_ahead(excess_usec, now_usec - wait->started_usec);
			sleep_for_clock(excess_usec / 1000 + 1, wait);
		}
	}
}

/* Ask the keeper for what a step lacks, and sleep.  Raises an error if that takes too long. */
static void
wait_for_keeper(const char *function, SnowflakeStep lacks, MintWait *wait)
{
	int64		now_usec = begin_waiting(wait);
	int64		until_usec;

	SNOWFLAKE_INJECTION_POINT("snowflake-wait-for-keeper");
	snowflake_refusal_in_recovery(function);
	if (lacks == STEP_GATE_CLOSED)
	{
		SnowflakeGate gate = snowflake_generator_gate();

		if (snowflake_refusal_stays_closed(gate))
			snowflake_refusal_closed(gate);
	}
	if (!wait->for_keeper)
		snowflake_counters_add(COUNTER_KEEPER_WAITS);
	wait->for_keeper = true;
	snowflake_keeper_state_log_standby_wait();
	snowflake_keeper_state_request(lacks == STEP_UNRESERVED ?
								   SNOWFLAKE_WANT_TIME : SNOWFLAKE_WANT_GATE);

	/* for time, check again now and then: the clock may make this unnecessary */
	until_usec = keeper_deadline(wait);
	if (lacks == STEP_UNRESERVED)
		until_usec = Min(until_usec, now_usec + LAST_SLEEP_MS * 1000);
	if (snowflake_keeper_state_wait(until_usec) || until_usec < keeper_deadline(wait))
	{
		snowflake_counters_add_sleep(COUNTER_KEEPER_WAITS,
									 snowflake_clock_monotonic_usec() - now_usec,
									 &wait->for_keeper_usec);
		return;
	}
	if (lacks == STEP_UNRESERVED)
		snowflake_refusal_unreserved();

	/* this returns if the gate was opened at the last moment */
	snowflake_refusal_closed(snowflake_generator_gate());
}

/* The checks of a backend's first mint, and what the first mint of a transaction does. */
static pg_noinline void
begin_minting(const char *function)
{
	if (snowflake_my_slot == NULL)
	{
		snowflake_generator_require(function);
		snowflake_refusal_in_recovery(function);
		snowflake_slot_take();
	}
	snowflake_frontier_hold();
}

/* Issue positions after the first step has failed: wait, or raise an error. */
static pg_noinline void
mint_slowly(const char *function, uint64 want, SnowflakeIssued *issued)
{
	MintWait	wait = {0};
	bool		looked_twice = false;

	for (;;)
	{
		int64		excess_usec;
		SnowflakeStep step = snowflake_generator_step(snowflake_clock_wall(), want, issued,
													  &excess_usec);

		switch (step)
		{
			case STEP_MINTED:
				ConditionVariableCancelSleep();
				return;
			case STEP_EARLY:
				ConditionVariableCancelSleep();
				wait_until_due(issued, excess_usec, &wait);
				return;
			case STEP_AHEAD:
				/* the reading may have been stale: this process had to wait */
				if (looked_twice)
					wait_for_clock(excess_usec, &wait);
				looked_twice = !looked_twice;
				break;
			case STEP_UNRESERVED:
			case STEP_GATE_CLOSED:
				wait_for_keeper(function, step, &wait);
				break;
			case STEP_ENDED:
				/* unless the clock has jumped there, and will not be believed */
				(void) begin_waiting(&wait);
				if (have_clock_judged(PG_INT64_MAX / 2, &wait))
					snowflake_refusal_ended();
				break;
		}
	}
}

/* Wait, as a mint does and with its errors, until the gate has been opened once since the start. */
void
snowflake_mint_await_opening(const char *function)
{
	MintWait	wait = {0};
	SnowflakeNewest newest;

	while (!snowflake_generator_newest(&newest))
		wait_for_keeper(function, STEP_GATE_CLOSED, &wait);
	ConditionVariableCancelSleep();
}

static pg_attribute_always_inline void
mint(const char *function, uint64 want, SnowflakeIssued *issued)
{
	int64		excess_usec;
	SnowflakeStep step;

	if (unlikely(!snowflake_frontier_is_held()))
		begin_minting(function);

	step = snowflake_generator_step(snowflake_clock_wall(), want, issued, &excess_usec);
	if (unlikely(step == STEP_EARLY))
	{
		MintWait	wait = {0};

		wait_until_due(issued, excess_usec, &wait);
	}
	else if (unlikely(step != STEP_MINTED))
		mint_slowly(function, want, issued);
	SNOWFLAKE_INJECTION_POINT("snowflake-minted");
}

/* Returns the next ID of those issued, with a value in the caller's field. */
static inline int64
take_id(SnowflakeIssued *issued, int64 value_bits)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	uint64		position = issued->next++;

	snowflake_slot_count();
	return snowflake_layout_pack(layout,
								 snowflake_layout_position_tick(layout, position),
								 issued->node_bits | value_bits,
								 (int32) (position & layout->max_sequence));
}

Datum
snowflake_next(PG_FUNCTION_ARGS)
{
	SnowflakeIssued issued;

	mint("snowflake_next()", 1, &issued);
	PG_RETURN_INT64(take_id(&issued, 0));
}

/* Returns a value for the caller's field, in its place.  Raises an error if it does not fit. */
static int64
place_value(int32 value)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	if (layout->value_field == 0)
	{
		char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];

		snowflake_layout_print(layout, text, sizeof(text));
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("snowflake.layout has no field for the caller"),
				errdetail("The layout is \"%s\". A field for the caller has a ? after its width.",
						  text));
	}
	snowflake_decode_check_part(layout->fields[layout->value_field].name, value, layout->max_value);
	return (int64) value << layout->value_shift;
}

/* Mint an ID with a value in the caller's field. */
Datum
snowflake_next_value(PG_FUNCTION_ARGS)
{
	int64		value_bits = place_value(PG_GETARG_INT32(0));
	SnowflakeIssued issued;

	mint("snowflake_next()", 1, &issued);
	PG_RETURN_INT64(take_id(&issued, value_bits));
}

/*
 * Mint several IDs, one for each row: the same rules, fewer steps.  Positions are issued as they are
 * needed, up to BATCH_CHUNK at a time.  If the query stops early, the rest of the chunk is never
 * used; neither is it if that would break the order.  The second argument, if there is one, is for
 * the caller's field.
 */
Datum
snowflake_next_batch(PG_FUNCTION_ARGS)
{
	FuncCallContext *context;
	Batch	   *batch;
	SnowflakeIssued *issued;

	if (SRF_IS_FIRSTCALL())
	{
		int32		count = PG_GETARG_INT32(0);

		if (count < 0)
			ereport(ERROR,
					errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("number of snowflakes must not be negative, but is %d",
						   count));
		context = SRF_FIRSTCALL_INIT();
		context->max_calls = count;
		batch = MemoryContextAllocZero(context->multi_call_memory_ctx,
									   sizeof(Batch));
		batch->issued.next = 1; /* past the end: none yet */
		if (PG_NARGS() > 1)
			batch->value_bits = place_value(PG_GETARG_INT32(1));
		context->user_fctx = batch;
	}

	context = SRF_PERCALL_SETUP();
	if (context->call_cntr >= context->max_calls)
		SRF_RETURN_DONE(context);

	batch = context->user_fctx;
	issued = &batch->issued;
	if (issued->next > issued->end || snowflake_generator_is_outdated(issued))
		mint("snowflake_next_batch()",
			 Min(context->max_calls - context->call_cntr, BATCH_CHUNK), issued);
	SRF_RETURN_NEXT(context, Int64GetDatum(take_id(issued, batch->value_bits)));
}

/* Planner support: the number of rows, if it is a constant. */
Datum
snowflake_next_batch_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);
	SupportRequestRows *rows = (SupportRequestRows *) request;
	Node	   *count;

	if (!IsA(request, SupportRequestRows) || !is_funcclause(rows->node))
		PG_RETURN_POINTER(NULL);

	count = estimate_expression_value(rows->root,
									  linitial(((FuncExpr *) rows->node)->args));
	if (!IsA(count, Const) || ((Const *) count)->constisnull)
		PG_RETURN_POINTER(NULL);

	rows->rows = Max(DatumGetInt32(((Const *) count)->constvalue), 0);
	PG_RETURN_POINTER(request);
}
