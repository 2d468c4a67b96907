/*-------------------------------------------------------------------------
 *
 * mint.c
 *	  Minting: one step in shared memory, and the waiting around it.
 *
 * try_mint() is the whole of it when nothing stands in the way.  What can, and
 * how long to wait for it, is for wait_for() to say, without the lock.  Why no
 * ID comes twice is argued at the head of generator.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/wait_event.h"

#include "clock.h"
#include "compat.h"
#include "counters.h"
#include "current.h"
#include "duration.h"
#include "generator.h"
#include "settings.h"
#include "slot.h"

PG_FUNCTION_INFO_V1(snowflake_next);
PG_FUNCTION_INFO_V1(snowflake_next_batch);
PG_FUNCTION_INFO_V1(snowflake_next_batch_support);

/*
 * Longest sleep before the clock is looked at again: a clock that was stepped
 * back may be set right at any moment.
 */
#define MAX_CLOCK_SLEEP_MS	100

/*
 * A generator in normal operation is ahead of the clock by at most max_lead
 * and one tick.  One that is further ahead by this much needs explaining.
 */
#define CLOCK_SLACK_USEC	1000

/* IDs of a batch that are issued in one step */
#define BATCH_CHUNK			4096

typedef enum MintResult
{
	MINTED,
	MINT_GATE_CLOSED,
	MINT_UNRESERVED,			/* the reservation has run out */
	MINT_AHEAD,					/* the generator is too far ahead of the clock */
	MINT_ENDED					/* the layout has no later tick */
} MintResult;

/* Positions that were issued, and the node's bits in their IDs. */
typedef struct Minted
{
	uint64		next;
	uint64		end;			/* the last of them */
	int64		placed_node;
} Minted;

/* What one call has waited for so far. */
typedef struct MintWait
{
	int64		started_usec;	/* on the monotonic clock; 0: did not wait yet */
	bool		for_clock;
	bool		for_keeper;
	int64		for_clock_usec;
	int64		for_keeper_usec;
} MintWait;


/*
 * The tick of an instant.  Most mints of a busy backend fall into the tick of
 * the one before, and need no division.
 */
static inline int64
clock_tick(const SnowflakeLayout *layout, TimestampTz now)
{
	static TimestampTz start = 0;
	static int64 tick = 0;

	if (now < start || now - start >= layout->tick_usec || tick == 0)
	{
		tick = snowflake_tick_at(layout, now);
		start = snowflake_tick_start(layout, tick);
	}
	return tick;
}

/*
 * Issue up to "want" consecutive positions, as many as are possible at once.
 * Only for MINTED the result is set.  For MINT_AHEAD *excess_usec is: how much
 * further ahead of the clock than max_lead the generator would be.
 *
 * Takes and releases the lock, shared.  Raises no error.
 */
static pg_attribute_always_inline MintResult
try_mint(TimestampTz now, uint64 want, Minted *minted, int64 *excess_usec)
{
	SnowflakeGenerator *gen = snowflake_generator;
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz latest = now + snowflake_max_lead_ms * INT64CONST(1000);
	int64		now_tick = clock_tick(layout, now);
	uint64		fresh,
				last,
				next,
				end;
	MintResult	result = MINTED;

	/* a closing gate must not be kept waiting by newcomers */
	if (unlikely(pg_atomic_read_u32(&gen->gate) != GATE_OPEN))
		return MINT_GATE_CLOSED;

	/*
	 * A clock before the epoch leaves the generator ahead of it.  One far
	 * past the layout's end must not overflow.
	 */
	fresh = likely(now_tick > 0) ?
		snowflake_first_position(layout, Min(now_tick, layout->max_tick + 1)) : 0;

	SNOWFLAKE_INJECTION_POINT("snowflake-mint");
	SNOWFLAKE_INJECTION_POINT_LOAD("snowflake-mint-locked");
	LWLockAcquire(&snowflake_generator->lock, LW_SHARED);

	if (unlikely(pg_atomic_read_u32(&gen->gate) != GATE_OPEN))
	{
		LWLockRelease(&snowflake_generator->lock);
		return MINT_GATE_CLOSED;
	}

	last = pg_atomic_read_u64(&gen->last);
	SNOWFLAKE_INJECTION_POINT_CACHED("snowflake-mint-locked");
	do
	{
		uint64		limit = pg_atomic_read_u64(&gen->limit);
		int64		tick;

		next = end = Max(last + 1, fresh);
		tick = snowflake_position_tick(layout, next);

		if (unlikely(tick > layout->max_tick))
			result = MINT_ENDED;
		else if (tick > now_tick && snowflake_tick_start(layout, tick) > latest)
		{
			*excess_usec = snowflake_tick_start(layout, tick) - latest;
			result = MINT_AHEAD;
		}
		else if (unlikely(next > limit))
			result = MINT_UNRESERVED;
		if (result != MINTED)
			break;

		/* the limit does not exceed the layout's end */
		if (want > 1)
		{
			tick = Min(snowflake_tick_at(layout, latest), layout->max_tick);
			end = Min(next + want - 1,
					  Min(limit, snowflake_last_position(layout, tick)));
		}
	} while (!pg_atomic_compare_exchange_u64(&gen->last, &last, end));

	if (likely(result == MINTED))
	{
		minted->next = next;
		minted->end = end;
		minted->placed_node = gen->placed_node;
	}

	LWLockRelease(&snowflake_generator->lock);

	if (unlikely(end >= pg_atomic_read_u64(&gen->refill)) &&
		result != MINT_ENDED)
		snowflake_request(SNOWFLAKE_WANT_TIME);
	return result;
}

/* As nextval() does. */
static void
refuse_in_recovery(const char *function)
{
	if (!RecoveryInProgress())
		return;
	snowflake_count_refusal(REFUSED_STANDBY);
	PreventCommandDuringRecovery(function);
}

pg_noreturn static void
ended_error(void)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	snowflake_count_refusal(REFUSED_END);
	ereport(ERROR,
			errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
			errmsg("the snowflake layout has come to its end"),
			errdetail("Its last tick started at \"%s\".",
					  timestamptz_to_str(snowflake_tick_start(layout, layout->max_tick))),
			errhint("Configure another snowflake.layout, whose snowflakes are larger than those of this one."));
}

pg_noreturn static void
ahead_error(int64 excess_usec, int64 waited_usec)
{
	SnowflakeGenerator *gen = snowflake_generator;
	uint64		last = pg_atomic_read_u64(&gen->last);
	int64		lead_usec = excess_usec + snowflake_max_lead_ms * INT64CONST(1000);
	const char *why = "The clock went back, or snowflake.max_lead was lowered.";

	if (last == pg_atomic_read_u64(&gen->raised_to))
		why = pg_atomic_read_u32(&gen->raised_by) == RAISED_BY_ADVANCE ?
			"It was advanced by snowflake_advance()." :
			"It starts above what had been reserved when the server crashed or the clock went back.";

	snowflake_count_refusal(REFUSED_CLOCK);
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("the snowflake generator is %s ahead of the clock",
				   snowflake_duration(lead_usec)),
			errdetail("%s It may be ahead by %d ms (snowflake.max_lead). This call has waited %s, may wait %d ms (snowflake.max_wait), and would have to wait another %s.",
					  why, snowflake_max_lead_ms,
					  snowflake_duration(waited_usec), snowflake_max_wait_ms,
					  snowflake_duration(excess_usec)),
			errhint("Check the server's clock. Minting goes on as soon as it is %s further.",
					snowflake_duration(excess_usec)));
}

pg_noreturn static void
unreserved_error(void)
{
	SnowflakeGenerator *gen = snowflake_generator;
	uint64		limit = pg_atomic_read_u64(&gen->limit);
	uint32		failure = pg_atomic_read_u32(&gen->failure);
	TimestampTz until = snowflake_position_time(&snowflake_server_layout, limit);

	snowflake_count_refusal(REFUSED_KEEPER);
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("the snowflake reservation was not extended within %d ms",
				   snowflake_max_wait_ms),
			failure != 0 ?
			errdetail("It ends at \"%s\". The keeper's last attempt failed with SQLSTATE %s.",
					  timestamptz_to_str(until), unpack_sql_state(failure)) :
			pg_atomic_read_u32(&gen->keeper_pid) == 0 ?
			errdetail("It ends at \"%s\". The keeper is not running.",
					  timestamptz_to_str(until)) :
			errdetail("It ends at \"%s\". The keeper, process %u, is still waiting for its commit.",
					  timestamptz_to_str(until),
					  pg_atomic_read_u32(&gen->keeper_pid)),
			errhint("The server log has the reason."));
}

/* Say why the gate is closed; return if it has opened meanwhile. */
static void
gate_error(void)
{
	SnowflakeGenerator *gen = snowflake_generator;
	SnowflakeGate gate = pg_atomic_read_u32(&gen->gate);
	uint32		failure = pg_atomic_read_u32(&gen->failure);
	char		stored[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	char		configured[SNOWFLAKE_LAYOUT_TEXT_SIZE];

	switch (gate)
	{
		case GATE_OPEN:
			return;
		case GATE_NODE_UNSET:
			snowflake_count_refusal(REFUSED_NODE);
			ereport(ERROR,
					errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("snowflake.node_id is not set"),
					errdetail("The layout has node IDs from 0 to %d; no two servers that mint may have the same.",
							  snowflake_server_layout.max_node),
					errhint("Set snowflake.node_id to a number that no other server has, and reload the configuration."));
			break;
		case GATE_NODE_TOO_LARGE:
			snowflake_count_refusal(REFUSED_NODE);
			ereport(ERROR,
					errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("snowflake.node_id %d is too large for the layout",
						   snowflake_node_id),
					errdetail("The layout has node IDs from 0 to %d.",
							  snowflake_server_layout.max_node),
					errhint("Set snowflake.node_id to a number in this range that no other server has, and reload the configuration."));
			break;
		case GATE_LAYOUT_CHANGED:
			if (!snowflake_get_stored_layout(stored, sizeof(stored)))
				return;
			snowflake_layout_print(&snowflake_server_layout, configured,
								   sizeof(configured));
			snowflake_count_refusal(REFUSED_LAYOUT);
			ereport(ERROR,
					errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("snowflake.layout differs from the layout that this server has minted with"),
					errdetail("Configured is \"%s\", stored is \"%s\".",
							  configured, stored),
					errhint("Restore the setting, or accept the change with: SELECT snowflake_accept_layout();"));
			break;
		case GATE_RESERVATION_LOST:
			{
				Oid			kept_in = pg_atomic_read_u32(&gen->kept_in);
				char	   *database = get_database_name(kept_in);

				snowflake_count_refusal(REFUSED_KEEPER);
				ereport(ERROR,
						errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the snowflake reservation of this server is not in the database \"%s\"",
							   snowflake_database),
						database == NULL ?
						errdetail("It was in a database that was dropped, with OID %u.",
								  kept_in) :
						strcmp(database, snowflake_database) == 0 ?
						errdetail("It was there before, and was dropped or deleted.") :
						errdetail("It is, or was, in the database \"%s\".", database),
						errhint("Restore the setting snowflake.database. If the reservation is gone for good, an administrator can start a new one with snowflake_accept_database()."));
			}
			break;
		default:
			snowflake_count_refusal(REFUSED_KEEPER);
			if (!OidIsValid(get_database_oid(snowflake_database, true)))
				ereport(ERROR,
						errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the database of the snowflake reservation does not exist"),
						errdetail("The setting snowflake.database is \"%s\".",
								  snowflake_database),
						errhint("CREATE DATABASE %s; or change the setting and restart the server.",
								quote_identifier(snowflake_database)));
			ereport(ERROR,
					errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("the snowflake generator was not ready within %d ms",
						   snowflake_max_wait_ms),
					failure != 0 ?
					errdetail("The gate is %s. The keeper's last attempt failed with SQLSTATE %s.",
							  snowflake_gate_reason(gate), unpack_sql_state(failure)) :
					errdetail("The gate is %s.", snowflake_gate_reason(gate)),
					errhint("The server log has the reason."));
	}
}

/*
 * Wait for what stands in the way of a mint, or raise an error if that would
 * take longer than snowflake.max_wait.  Holds no lock.
 */
static void
wait_for(const char *function, MintResult obstacle, int64 excess_usec, MintWait *wait)
{
	static uint32 wait_event = 0;
	int64		now_usec = snowflake_monotonic_usec();
	int64		deadline_usec;

	CHECK_FOR_INTERRUPTS();

	if (wait->started_usec == 0)
		wait->started_usec = now_usec;
	deadline_usec = wait->started_usec + snowflake_max_wait_ms * INT64CONST(1000);

	switch (obstacle)
	{
		case MINT_AHEAD:
			if (excess_usec > snowflake_server_layout.tick_usec + CLOCK_SLACK_USEC)
				snowflake_request(SNOWFLAKE_WANT_WATCH);
			if (now_usec + excess_usec > deadline_usec)
				ahead_error(excess_usec, now_usec - wait->started_usec);
			if (!wait->for_clock)
				snowflake_count(&snowflake_counters->clock_waits.mints);
			wait->for_clock = true;

			if (wait_event == 0)
				wait_event = WaitEventExtensionNew("SnowflakeClock");
			ConditionVariableCancelSleep();
			(void) WaitLatch(MyLatch,
							 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 Min(excess_usec / 1000 + 1, MAX_CLOCK_SLEEP_MS),
							 wait_event);
			ResetLatch(MyLatch);
			snowflake_count_sleep(&snowflake_counters->clock_waits,
								  snowflake_monotonic_usec() - now_usec,
								  &wait->for_clock_usec);
			CHECK_FOR_INTERRUPTS();
			return;

		case MINT_UNRESERVED:
		case MINT_GATE_CLOSED:
			SNOWFLAKE_INJECTION_POINT("snowflake-wait-for-keeper");
			refuse_in_recovery(function);
			if (!wait->for_keeper)
				snowflake_count(&snowflake_counters->keeper_waits.mints);
			wait->for_keeper = true;
			snowflake_request(obstacle == MINT_UNRESERVED ?
							  SNOWFLAKE_WANT_TIME : SNOWFLAKE_WANT_GATE);
			if (snowflake_wait_for_keeper(deadline_usec))
			{
				snowflake_count_sleep(&snowflake_counters->keeper_waits,
									  snowflake_monotonic_usec() - now_usec,
									  &wait->for_keeper_usec);
				return;
			}
			if (obstacle == MINT_UNRESERVED)
				unreserved_error();
			gate_error();
			return;

		case MINT_ENDED:
		case MINTED:
			ended_error();
	}
}

/* What the first mint of a backend looks at. */
static pg_noinline void
begin_minting(const char *function)
{
	snowflake_require_generator(function);
	refuse_in_recovery(function);
	snowflake_slot_take();
}

/* Issue up to "want" positions; wait for what stands in the way. */
static pg_attribute_always_inline void
mint(const char *function, uint64 want, Minted *minted)
{
	MintWait	wait = {0};
	MintResult	result;
	int64		excess_usec = 0;

	if (unlikely(snowflake_my_slot == NULL))
		begin_minting(function);

	while (unlikely((result = try_mint(snowflake_wall_clock(), want, minted,
									   &excess_usec)) != MINTED))
		wait_for(function, result, excess_usec, &wait);
	if (unlikely(wait.for_keeper))
		ConditionVariableCancelSleep();
}

/* The next ID of those issued. */
static inline int64
take_id(Minted *minted)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	uint64		position = minted->next++;

	snowflake_slot_count();
	snowflake_current_id = snowflake_pack(layout,
										  snowflake_position_tick(layout, position),
										  minted->placed_node,
										  (int32) (position & layout->max_sequence));
	return snowflake_current_id;
}

Datum
snowflake_next(PG_FUNCTION_ARGS)
{
	Minted		minted = {0};

	mint("snowflake_next()", 1, &minted);
	PG_RETURN_INT64(take_id(&minted));
}

/*
 * Mint several IDs, one for each row: the same rules, fewer steps.
 *
 * Positions are issued as they are needed, up to BATCH_CHUNK at a time.  If the
 * query stops early, the rest of the chunk is never used.
 */
Datum
snowflake_next_batch(PG_FUNCTION_ARGS)
{
	FuncCallContext *context;
	Minted	   *minted;

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
		minted = MemoryContextAlloc(context->multi_call_memory_ctx, sizeof(Minted));
		minted->next = 1;
		minted->end = 0;		/* none yet */
		context->user_fctx = minted;
	}

	context = SRF_PERCALL_SETUP();
	if (context->call_cntr >= context->max_calls)
		SRF_RETURN_DONE(context);

	minted = context->user_fctx;
	if (minted->next > minted->end)
		mint("snowflake_next_batch()",
			 Min(context->max_calls - context->call_cntr, BATCH_CHUNK), minted);
	SRF_RETURN_NEXT(context, Int64GetDatum(take_id(minted)));
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
