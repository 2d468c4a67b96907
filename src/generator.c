/*-------------------------------------------------------------------------
 *
 * generator.c
 *	  The generator that all backends of a server share: its state, the gate,
 *	  and requests to the keeper.  mint.c is the minting.
 *
 * The promise: no position (tick, sequence) is issued twice, and every mint
 * gets a larger one than any mint that returned before it began, whatever the
 * clock does and whenever the server dies.
 *
 * A mint takes max(last + 1, first position of the clock's tick), if that is
 * not above "limit", and makes it the new "last" by compare-and-swap.  Hence:
 *
 * 1. While the server runs, no two mints get the same position: "last" only
 *	  goes up, and each compare-and-swap that succeeds moves it from a smaller
 *	  value to the position it issues.  A mint that begins after another one
 *	  returned reads a "last" at or above the other's.  The clock decides only
 *	  how far "last" jumps, so a clock that steps back merely leaves the
 *	  generator ahead of it.
 *
 * 2. After a crash, no mint gets a position from before: each was at or below
 *	  "limit" when it was issued.  The keeper commits a reservation, and waits
 *	  until the commit is durable (and on the synchronous standbys, if there are
 *	  any), before it stores the "limit" that follows from it.  So the stored
 *	  reservation is never below any "limit" that a minter could have read, and
 *	  the next keeper raises "last" to the end of the stored reservation before
 *	  it opens the gate.  A crash between the commit and the store only wastes
 *	  the reserved time.
 *
 * 3. No mint slips past a closing gate.  Minters hold the lock shared from
 *	  before they read the gate until after their compare-and-swap.  The keeper
 *	  first stores the closed gate and then acquires the lock exclusively.  A
 *	  mint that had read an open gate holds the lock, so the keeper waits for it
 *	  to finish; one that acquires the lock after the keeper released it sees
 *	  the gate closed, since the lock's release and acquisition order the
 *	  memory.  Thus when snowflake_gate_close() returns, "last" and the node
 *	  stand still, and the keeper may store "last" as the exact end.
 *
 * The lock is held exclusively for what a mint depends on: opening the gate,
 * and the node.  LWLocks let shared lockers overtake a waiting exclusive one,
 * which could starve the keeper, so a minter looks at the gate once before it
 * asks for the lock: a closing gate stops newcomers at once.  Extending the
 * reservation needs no lock: a minter that still reads the old limit is merely
 * careful, and waits or looks again.
 *
 * Nobody waits, does I/O or raises an error while holding the lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/wait_event.h"

#include "clock.h"
#include "compat.h"
#include "counters.h"
#include "generator.h"
#include "settings.h"
#include "slot.h"

SnowflakeGenerator *snowflake_generator = NULL;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;


/*
 * Shared memory
 */

static void
generator_shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	RequestAddinShmemSpace(MAXALIGN(sizeof(SnowflakeGenerator)));
	RequestAddinShmemSpace(snowflake_counters_size());
	RequestAddinShmemSpace(snowflake_slots_size());

	/* for the name; our lock itself lies beside what it guards */
	RequestNamedLWLockTranche("snowflake", 1);
}

static void
generator_shmem_startup(void)
{
	SnowflakeGenerator *gen;
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	gen = ShmemInitStruct("snowflake", sizeof(SnowflakeGenerator), &found);
	if (!found)
	{
		/* zero is right for all that is not atomic: closed, no keeper */
		memset(gen, 0, sizeof(*gen));
		LWLockInitialize(&gen->lock,
						 GetNamedLWLockTranche("snowflake")->lock.tranche);
		pg_atomic_init_u64(&gen->last, 0);
		pg_atomic_init_u64(&gen->limit, 0);
		pg_atomic_init_u64(&gen->refill, 0);
		pg_atomic_init_u32(&gen->gate, GATE_NO_KEEPER);
		pg_atomic_init_u32(&gen->requests, 0);
		pg_atomic_init_u64(&gen->floor, 0);
		pg_atomic_init_u64(&gen->raised_to, 0);
		pg_atomic_init_u32(&gen->raised_by, RAISED_BY_RESERVATION);
		pg_atomic_init_u32(&gen->keeper_pid, 0);
		pg_atomic_init_u32(&gen->failure, 0);
		pg_atomic_init_u32(&gen->kept_in, InvalidOid);
		ConditionVariableInit(&gen->changed);
	}
	snowflake_counters_attach();
	snowflake_slots_attach();
	LWLockRelease(AddinShmemInitLock);

	snowflake_generator = gen;
}

/* Ask for shared memory.  Only while the server preloads libraries. */
void
snowflake_generator_init(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = generator_shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = generator_shmem_startup;
}

/* Raise an error if there is no generator: the library was not preloaded. */
void
snowflake_require_generator(const char *function)
{
	if (snowflake_generator == NULL)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("%s needs the library \"snowflake\" to be preloaded",
					   function),
				errhint("Add \"snowflake\" to the setting shared_preload_libraries, which may have other libraries already, and restart the server."));
}


/*
 * Requests to the keeper
 */

/*
 * Ask the keeper for something.  Cheap if that was already asked, and without
 * a keeper the request waits for the next one.
 */
void
snowflake_request(uint32 what)
{
	SnowflakeGenerator *gen = snowflake_generator;
	Latch	   *latch;

	/* the barrier orders what the request is about before this read */
	pg_memory_barrier();
	if ((pg_atomic_read_u32(&gen->requests) & what) == what)
		return;
	pg_atomic_fetch_or_u32(&gen->requests, what);

	latch = gen->keeper_latch;
	if (latch != NULL)
		SetLatch(latch);
}

/*
 * Sleep until the keeper changes something, the deadline (on the monotonic
 * clock) is over, or this backend is interrupted.  False: it is over.
 *
 * Call it in a loop that tests a condition first.  The first call may return
 * at once, so that the condition is tested again when its change can no longer
 * be missed.  The loop ends with ConditionVariableCancelSleep().
 */
bool
snowflake_wait_for_keeper(int64 deadline_usec)
{
	static uint32 wait_event = 0;
	int64		left_usec = deadline_usec - snowflake_monotonic_usec();

	if (left_usec <= 0)
		return false;
	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("SnowflakeKeeper");
	ConditionVariableTimedSleep(&snowflake_generator->changed,
								(long) Min(left_usec / 1000 + 1, INT_MAX),
								wait_event);
	return true;
}


/*
 * The gate
 */

static const char *const gate_reasons[] = {
	[GATE_NO_KEEPER] = "closed: the keeper is not running",
	[GATE_CONNECTING] = "closed: the keeper is connecting to its database",
	[GATE_WAITING] = "closed: the extension snowflake_keeper is missing in the keeper's database, the first mint creates it",
	[GATE_CREATING] = "closed: the keeper is creating its extension in its database",
	[GATE_OPENING] = "closed: the keeper is reading the reservation",
	[GATE_NODE_UNSET] = "closed: snowflake.node_id is not set",
	[GATE_NODE_TOO_LARGE] = "closed: snowflake.node_id is too large for the layout",
	[GATE_LAYOUT_CHANGED] = "closed: snowflake.layout differs from the stored layout",
	[GATE_RESERVATION_LOST] = "closed: the reservation of this server is not in snowflake.database",
	[GATE_STOPPING] = "closed: the keeper is stopping",
	[GATE_OPEN] = "open",
};

/* What a gate says of itself, for messages. */
const char *
snowflake_gate_reason(SnowflakeGate gate)
{
	return gate_reasons[gate];
}

/*
 * Change the reason of a closed gate.  Only the keeper.
 *
 * Nobody is woken for the reason that was there already: those who wait would
 * ask the keeper again, which would find the same reason, and so forth.
 */
void
snowflake_gate_set(SnowflakeGate reason)
{
	SnowflakeGenerator *gen = snowflake_generator;

	Assert(reason != GATE_OPEN);
	Assert(pg_atomic_read_u32(&gen->gate) != GATE_OPEN);
	if (pg_atomic_exchange_u32(&gen->gate, reason) == reason)
		return;
	ConditionVariableBroadcast(&gen->changed);
}

/*
 * Close the gate and wait out the mints in flight: on return "last" stands
 * still.  Only the keeper.
 */
void
snowflake_gate_close(SnowflakeGate reason)
{
	SnowflakeGenerator *gen = snowflake_generator;

	Assert(reason != GATE_OPEN);
	pg_atomic_write_u32(&gen->gate, reason);
	SNOWFLAKE_INJECTION_POINT("snowflake-gate-closing");
	LWLockAcquire(&snowflake_generator->lock, LW_EXCLUSIVE);
	LWLockRelease(&snowflake_generator->lock);
	ConditionVariableBroadcast(&gen->changed);
}

/* Keep a closed gate closed because another layout is stored.  Only the keeper. */
void
snowflake_gate_layout_changed(const char *stored_layout)
{
	LWLockAcquire(&snowflake_generator->lock, LW_EXCLUSIVE);
	strlcpy(snowflake_generator->stored_layout, stored_layout,
			SNOWFLAKE_LAYOUT_TEXT_SIZE);
	LWLockRelease(&snowflake_generator->lock);
	snowflake_gate_set(GATE_LAYOUT_CHANGED);
}

/*
 * Keep a closed gate closed because the reservation is or was in another place.
 * Only the keeper.
 */
void
snowflake_gate_reservation_lost(Oid kept_in)
{
	pg_atomic_write_u32(&snowflake_generator->kept_in, kept_in);
	snowflake_gate_set(GATE_RESERVATION_LOST);
}

/*
 * Open the gate for a node, with "last" raised to a position and a limit that
 * is durably reserved.  Only the keeper, and only while the gate is closed.
 */
void
snowflake_gate_open(int32 node, uint64 last, uint64 limit, uint64 refill)
{
	SnowflakeGenerator *gen = snowflake_generator;

	LWLockAcquire(&snowflake_generator->lock, LW_EXCLUSIVE);
	Assert(pg_atomic_read_u32(&gen->gate) != GATE_OPEN);
	Assert(last >= pg_atomic_read_u64(&gen->last));
	gen->node = node;
	gen->placed_node = snowflake_place_node(&snowflake_server_layout, node);
	pg_atomic_write_u64(&gen->last, last);
	pg_atomic_write_u64(&gen->limit, limit);
	pg_atomic_write_u64(&gen->refill, refill);
	pg_atomic_write_u32(&gen->gate, GATE_OPEN);
	LWLockRelease(&snowflake_generator->lock);
	ConditionVariableBroadcast(&gen->changed);
}

/*
 * Raise "last" to a position that is durably reserved, unless it is above it
 * already.  Only the keeper.
 */
void
snowflake_raise(uint64 position, SnowflakeRaise by)
{
	SnowflakeGenerator *gen = snowflake_generator;
	uint64		last = pg_atomic_read_u64(&gen->last);

	Assert(position <= pg_atomic_read_u64(&gen->limit));

	/* first, so that nobody takes the position for an ID */
	pg_atomic_write_u32(&gen->raised_by, by);
	pg_atomic_write_u64(&gen->raised_to, position);
	while (last < position &&
		   !pg_atomic_compare_exchange_u64(&gen->last, &last, position))
		;
	ConditionVariableBroadcast(&gen->changed);
}


/*
 * What the state means
 */

/*
 * Copy the stored layout's text, if the gate is closed because it differs;
 * otherwise return false.  Takes the lock, shared.
 */
bool
snowflake_get_stored_layout(char *text, size_t size)
{
	SnowflakeGenerator *gen = snowflake_generator;

	if (pg_atomic_read_u32(&gen->gate) != GATE_LAYOUT_CHANGED)
		return false;
	LWLockAcquire(&snowflake_generator->lock, LW_SHARED);
	strlcpy(text, gen->stored_layout, size);
	LWLockRelease(&snowflake_generator->lock);
	return true;
}

/* The ID of a position on the present node.  Takes the lock, shared. */
int64
snowflake_position_id(uint64 position)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		placed_node;

	LWLockAcquire(&snowflake_generator->lock, LW_SHARED);
	placed_node = snowflake_generator->placed_node;
	LWLockRelease(&snowflake_generator->lock);
	return snowflake_pack(layout, snowflake_position_tick(layout, position),
						  placed_node,
						  (int32) (position & layout->max_sequence));
}
