/*-------------------------------------------------------------------------
 *
 * generator.c
 *	  The generator that all backends of a server share: its state, and every
 *	  writer of it, so that the promise can be checked here.
 *
 * The promise: no position (tick, sequence) is issued twice, and every mint gets a larger one
 * than any mint that returned before it began, whatever the clock does and whenever the server
 * dies.
 *
 * A mint takes last + 1, or a position of the clock's tick if all positions of that tick are
 * larger.  If that is not above "limit", it makes it the new "last" by compare-and-swap.  Hence:
 *
 * 1. While the server runs, no two mints get the same position: "last" only goes up, and each
 *	  compare-and-swap that succeeds moves it from a smaller value to the position it issues.  A
 *	  mint that begins after another one has returned reads a "last" at or above the other's
 *	  position.  The clock decides only how far "last" jumps.
 *
 * 2. After a crash, no mint gets a position from before: each was at or below "limit" when it was
 *	  issued.  The keeper commits a reservation, and waits until the commit is durable (and on the
 *	  synchronous standbys, if there are any), before it calls snowflake_generator_open() or
 *	  snowflake_generator_extend() with the limit that follows from it.  So the stored reservation
 *	  is never below any "limit" that a minter could have read, and the next keeper raises "last"
 *	  to the end of the stored reservation when it opens the gate.  A crash between the commit and
 *	  the call only wastes the reserved time.  The limit may be lower than what is stored; then it
 *	  can be raised without a commit, up to "stored", which the keeper sets after a commit and
 *	  again at each opening.  And if the stored reservation is gone, or elsewhere, a keeper whose
 *	  shared memory is new leaves the gate closed: see check_place() in reserve.c.
 *
 * 3. No mint slips past a closing gate.  Minters hold the lock shared from before they read the
 *	  gate until after their compare-and-swap.  The keeper first stores the closed gate and then
 *	  acquires the lock exclusively.  A mint that has read an open gate holds the lock, so the
 *	  keeper waits for it to finish; one that acquires the lock after the keeper has released it
 *	  finds the gate closed, since the lock's release and acquisition order the memory accesses.
 *	  Thus when snowflake_generator_close() returns, "last" and the node no longer change, and
 *	  the keeper may store "last" as the exact end.
 *
 * 4. A generator that is far ahead of the clock may be taken back, under a node ID that
 *	  has issued nothing in that range: then "last" goes down, once, while the gate is
 *	  closed.  See snowflake_generator_open_at_clock().  From then on, the positions that
 *	  other node IDs had in that range count for themselves only: if the gate is opened
 *	  for one of them again, "last" goes up there, and unless it issues an ID, down again
 *	  at the next opening; readers do not learn of it.  The row of a node ID says how far
 *	  it got.  Only a lease that was granted since then is above all of that; a lease that
 *	  the gate was opened for before is not, whatever the gate was opened for in between.
 *
 * 5. A mint that took several positions in one step stops using them when others may expect
 *	  larger ones: after an opening of the gate, which may be for another node, and if they are
 *	  at or below the floor of snowflake_advance().
 *
 * snowflake.spread decides at which sequence number a tick begins: one more way to skip
 * positions.  The caller's field, if the layout has one, is filled after the step, beside the
 * position, so two IDs are distinct whatever callers pass.  A value can change only the order of
 * the IDs within a tick, if the field is above the sequence: the promise is about positions.
 *
 * LWLocks let shared lockers overtake a waiting exclusive one, which could starve the keeper, so
 * a minter reads the gate once before it asks for the lock.  Extending the reservation needs no
 * lock: a minter that still reads the old limit is merely careful, and waits or tries again.  No
 * process waits, does I/O or raises an error while holding the lock.
 *
 * test/model/gate.pml is a model of rules 1 to 3, which is checked exhaustively.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "generator/words.h"
#include "layout/server_layout.h"

/* State that every mint reads or writes. */
typedef struct HotState
{
	/*
	 * The lock, and the newest position issued.  Minters advance "last" by
	 * compare-and-swap while they hold the lock shared; the keeper raises it
	 * the same way, or with the lock held exclusively.  It goes down only as
	 * rule 4 says.  Every mint writes both, so they have a cache line to
	 * themselves: what follows is only read.
	 */
	LWLock		lock;
	pg_atomic_uint64 last;
	char		pad_last[PG_CACHE_LINE_SIZE - sizeof(LWLock) - sizeof(pg_atomic_uint64)];

	/*
	 * Newest position that may be issued, and the one from which on the
	 * keeper has to be asked for more.  Only the keeper writes them.  While
	 * the gate is open they only go up, and are set without the lock: a
	 * minter that reads an old value may do less, never more.
	 */
	pg_atomic_uint64 limit;
	pg_atomic_uint64 refill;

	/*
	 * A SnowflakeGate.  Only the keeper writes it: to GATE_OPEN with the lock
	 * held exclusively; to anything else without, and if it was open, the
	 * keeper takes the lock exclusively afterwards, to wait out the mints in
	 * flight.  A minter reads it while it holds the lock.
	 */
	pg_atomic_uint32 gate;

	/*
	 * The correction that mints add to the wall clock, an int64, and how far
	 * ahead of the sum IDs may be, in addition to max_lead; in microseconds:
	 * see clock.c.  Only the keeper writes them, atomically and at any time:
	 * like the clock, they only say how far "last" may jump.
	 */
	pg_atomic_uint64 correction;
	pg_atomic_uint64 allowance;

	/*
	 * How often the gate was opened, and for which node.  Only the keeper
	 * writes them, while the gate is closed and with the lock held
	 * exclusively.  The first two are also read without the lock.
	 */
	pg_atomic_uint32 opening;
	int32		node;
	int64		node_bits;

	/* Every mint reads what is above; what is below changes now and then */
	char		pad_limit[PG_CACHE_LINE_SIZE];
} HotState;

/*
 * State that only the keeper writes, except for the floor.  What is not atomic is for the keeper
 * only, unless it says otherwise.
 */
typedef struct KeptState
{
	/*
	 * Largest position that snowflake_advance() asked for.  Any process
	 * raises it.
	 */
	pg_atomic_uint64 floor;

	/* Position of the last raise, and whether snowflake_advance() did it */
	pg_atomic_uint64 raised_to;
	pg_atomic_uint32 is_advanced;

	/* What the node ID may have had before the gate was opened for it */
	pg_atomic_uint64 own_last;

	/*
	 * Newest position that every later ID has to be above, when the gate was
	 * opened: that is "last", except for the node's own positions in a range
	 * where the order was given up.
	 */
	pg_atomic_uint64 in_order;

	/* Newest position that any node ID may have had, unless "last" is above. */
	pg_atomic_uint64 highest;

	/*
	 * Number of the node's lease, 0 if it is not leased; and of the newest
	 * lease that the gate was ever opened for, which outlives an opening for
	 * a node ID that is not leased.
	 */
	pg_atomic_uint32 grant;
	pg_atomic_uint32 newest_grant;

	/*
	 * The gate was closed, and the exact end, which has not changed since, is
	 * not stored yet.  The keeper, or its successor, stores it before it
	 * opens the gate again.
	 */
	bool		end_unstored;

	/* Durably reserved while the gate is open; not below the limit */
	uint64		stored;

	/*
	 * The data directory was that of a standby, or came from a backup, when
	 * the server started.  Set once, for messages only.
	 */
	bool		inherited;

	/*
	 * What "last" was raised to when the gate was last opened, and when it
	 * was first opened; and of the openings that went back, the smallest
	 * "last" and the number of the newest.  Written with the lock held
	 * exclusively, and read with the lock.
	 */
	uint64		opened_at;
	uint64		started_at;
	uint64		lowered_to;
	uint32		lowered_at;

	/* The stored layout, while it differs from ours; protected by the lock */
	char		stored_layout[SNOWFLAKE_LAYOUT_TEXT_SIZE];
} KeptState;

typedef struct SnowflakeGenerator
{
	HotState	hot;
	KeptState	kept;
} SnowflakeGenerator;

/* Both NULL if the library was not preloaded. */
static HotState *hot = NULL;
static KeptState *kept = NULL;

Size
snowflake_generator_size(void)
{
	return MAXALIGN(sizeof(SnowflakeGenerator));
}

/* A new generator is closed, and without a keeper. */
void
snowflake_generator_attach(int tranche)
{
	SnowflakeGenerator *gen;
	bool		found;

	gen = ShmemInitStruct("snowflake generator", snowflake_generator_size(), &found);
	hot = &gen->hot;
	kept = &gen->kept;
	if (found)
		return;

	/* zero is right for the fields that are neither atomic nor set here */
	memset(gen, 0, sizeof(*gen));
	kept->inherited = access(STANDBY_SIGNAL_FILE, F_OK) == 0 ||
		access(RECOVERY_SIGNAL_FILE, F_OK) == 0 ||
		access(BACKUP_LABEL_FILE, F_OK) == 0;
	LWLockInitialize(&hot->lock, tranche);
	pg_atomic_init_u64(&hot->last, 0);
	pg_atomic_init_u64(&hot->limit, 0);
	pg_atomic_init_u64(&hot->refill, 0);
	pg_atomic_init_u32(&hot->gate, GATE_NO_KEEPER);
	pg_atomic_init_u64(&hot->correction, 0);
	pg_atomic_init_u64(&hot->allowance, 0);
	pg_atomic_init_u32(&hot->opening, 0);
	pg_atomic_init_u64(&kept->floor, 0);
	pg_atomic_init_u64(&kept->raised_to, 0);
	pg_atomic_init_u32(&kept->is_advanced, false);
	pg_atomic_init_u64(&kept->own_last, 0);
	pg_atomic_init_u64(&kept->in_order, 0);
	pg_atomic_init_u64(&kept->highest, 0);
	pg_atomic_init_u32(&kept->grant, 0);
	pg_atomic_init_u32(&kept->newest_grant, 0);
}

/* Was the library preloaded? */
bool
snowflake_generator_exists(void)
{
	return hot != NULL;
}

static const char *
name_function(const char *word, const void *function)
{
	return function;
}

/* Raise the error of the SQL function of that name if it was not. */
void
snowflake_generator_require(const char *function)
{
	const SnowflakeWords *words = &snowflake_words[STATE_UNPRELOADED];

	if (!snowflake_generator_exists())
		ereport(ERROR,
				errcode(snowflake_words_sqlstate(STATE_UNPRELOADED)),
				errmsg_internal("%s", snowflake_words_fill(words->message, name_function, function)),
				errhint("%s", words->hint));
}

/* The tick of an instant: that of the mint before, most of the time, without a division. */
static inline int64
clock_tick(const SnowflakeLayout *layout, TimestampTz now)
{
	static TimestampTz start = 0;
	static int64 tick = 0;

	if (now < start || now - start >= layout->tick_usec || tick == 0)
	{
		tick = snowflake_layout_tick_at(layout, now);
		start = snowflake_layout_tick_start(layout, tick);
	}
	return tick;
}

/*
 * How far beyond max_lead, in microseconds, a position may be issued to a mint that waits until
 * it is due.  So mints that wait for the clock are served in the order in which they came, and
 * none can push the generator further ahead, even if its wait is canceled.  The keeper always
 * reserves enough for it.
 */
int64
snowflake_generator_early_usec(void)
{
	return Max(snowflake_server_layout.tick_usec, 10 * 1000);
}

/* How far IDs may be ahead of the clock that they follow at this moment, in microseconds. */
int64
snowflake_generator_may_lead_usec(void)
{
	return snowflake_max_lead_ms * INT64CONST(1000) +
		(int64) pg_atomic_read_u64(&hot->allowance);
}

/*
 * Issue up to "want" consecutive positions, as many as are possible at once.  "now" is the wall
 * clock.  Sets *issued for STEP_MINTED and STEP_EARLY.  For STEP_EARLY and STEP_AHEAD, sets
 * *excess_usec to how much further ahead of the clock the first of them is, or would be, than it may
 * be.  Takes and releases the lock, shared.  Raises no error.
 */
SnowflakeStep
snowflake_generator_step(TimestampTz now, uint64 want, SnowflakeIssued *issued,
						 int64 *excess_usec)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz latest;
	int64		now_tick;
	uint64		fresh,
				last,
				next,
				end;
	SnowflakeStep result;

	/* newcomers must not keep a closing gate waiting */
	if (unlikely(pg_atomic_read_u32(&hot->gate) != GATE_OPEN))
		return STEP_GATE_CLOSED;

	now += (int64) pg_atomic_read_u64(&hot->correction);
	now_tick = clock_tick(layout, now);
	latest = now + snowflake_generator_may_lead_usec();

	/*
	 * A clock before the epoch leaves the generator ahead of it.  One far
	 * past the layout's end must not overflow.
	 */
	fresh = likely(now_tick > 0) ?
		snowflake_layout_first_position(layout, Min(now_tick, layout->max_tick + 1)) : 0;

	SNOWFLAKE_INJECTION_POINT("snowflake-mint");
	SNOWFLAKE_INJECTION_POINT_LOAD("snowflake-mint-locked");
	LWLockAcquire(&hot->lock, LW_SHARED);

	if (unlikely(pg_atomic_read_u32(&hot->gate) != GATE_OPEN))
	{
		LWLockRelease(&hot->lock);
		return STEP_GATE_CLOSED;
	}

	last = pg_atomic_read_u64(&hot->last);
	SNOWFLAKE_INJECTION_POINT_CACHED("snowflake-mint-locked");
	do
	{
		uint64		limit = pg_atomic_read_u64(&hot->limit);
		int64		tick;

		next = last + 1;
		if (next < fresh)
			next = fresh + (next & snowflake_spread_mask);
		end = next;
		tick = snowflake_layout_position_tick(layout, next);
		result = STEP_MINTED;

		if (unlikely(tick > layout->max_tick))
		{
			result = STEP_ENDED;
			break;
		}
		if (tick > now_tick && snowflake_layout_tick_start(layout, tick) > latest)
		{
			*excess_usec = snowflake_layout_tick_start(layout, tick) - latest;
			result = *excess_usec <= Min(snowflake_generator_early_usec(),
										 snowflake_max_wait_ms * INT64CONST(1000)) ?
				STEP_EARLY : STEP_AHEAD;
			if (result == STEP_AHEAD)
				break;
		}
		if (unlikely(next > limit))
		{
			result = STEP_UNRESERVED;
			break;
		}

		/* the limit does not exceed the layout's end */
		if (want > 1 && result == STEP_MINTED)
		{
			tick = Min(snowflake_layout_tick_at(layout, latest), layout->max_tick);
			end = Min(next + want - 1,
					  Min(limit, snowflake_layout_last_position(layout, tick)));
		}
	} while (!pg_atomic_compare_exchange_u64(&hot->last, &last, end));

	if (likely(result == STEP_MINTED || result == STEP_EARLY))
	{
		issued->next = next;
		issued->end = end;
		issued->node_bits = hot->node_bits;
		issued->opening = pg_atomic_read_u32(&hot->opening);
	}

	LWLockRelease(&hot->lock);
	SNOWFLAKE_INJECTION_POINT("snowflake-mint-unlocked");

	if (unlikely(end >= pg_atomic_read_u64(&hot->refill)) && result != STEP_ENDED)
		snowflake_keeper_state_request(SNOWFLAKE_WANT_TIME);
	return result;
}

/*
 * Give up the rest of the newest position's tick, if the clock is past that tick: like a mint whose
 * position is not used.  That is for readers in the order of the IDs: if the caller's field is above
 * the sequence, they cannot pass an ID while a position of its tick may still be issued.  Takes and
 * releases the lock, shared.
 */
void
snowflake_generator_finish_tick(void)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		now_tick = snowflake_layout_tick_at(layout, snowflake_generator_clock());

	/* as a mint does, for the sake of a closing gate */
	if (pg_atomic_read_u32(&hot->gate) != GATE_OPEN)
		return;
	LWLockAcquire(&hot->lock, LW_SHARED);
	if (pg_atomic_read_u32(&hot->gate) == GATE_OPEN)
	{
		uint64		last = pg_atomic_read_u64(&hot->last);
		uint64		end;

		do
		{
			int64		tick = snowflake_layout_position_tick(layout, last);

			end = snowflake_layout_last_position(layout, tick);
			if (last == end || tick >= now_tick ||
				end > pg_atomic_read_u64(&hot->limit))
				break;
		} while (!pg_atomic_compare_exchange_u64(&hot->last, &last, end));
	}
	LWLockRelease(&hot->lock);
}

/*
 * Must the positions that are left of a step no longer be used, because others may have got
 * larger IDs in earlier calls?  snowflake_advance() raises the floor before it waits for "last"
 * to pass it, so a caller that asks after it has returned reads that floor.
 */
bool
snowflake_generator_is_outdated(const SnowflakeIssued *issued)
{
	return issued->opening != pg_atomic_read_u32(&hot->opening) ||
		issued->next <= pg_atomic_read_u64(&kept->floor);
}


/*
 * For other processes
 */

void
snowflake_generator_view(SnowflakeView *view)
{
	view->gate = pg_atomic_read_u32(&hot->gate);
	view->node = hot->node;
	view->grant = pg_atomic_read_u32(&kept->grant);
	view->newest_grant = pg_atomic_read_u32(&kept->newest_grant);
	view->last = pg_atomic_read_u64(&hot->last);
	view->highest = Max(view->last, pg_atomic_read_u64(&kept->highest));
	view->limit = pg_atomic_read_u64(&hot->limit);

	view->floor = pg_atomic_read_u64(&kept->floor);
	view->raised_to = pg_atomic_read_u64(&kept->raised_to);
	view->is_advanced = pg_atomic_read_u32(&kept->is_advanced) != 0;
	view->own_last = pg_atomic_read_u64(&kept->own_last);
	view->in_order = snowflake_generator_is_unused(view) ?
		pg_atomic_read_u64(&kept->in_order) : view->last;
	view->stored = kept->stored;
	view->end_unstored = kept->end_unstored;
	view->inherited = kept->inherited;
}

/* Returns the newest position, and in *opening its opening of the gate or an earlier one. */
uint64
snowflake_generator_last(uint32 *opening)
{
	*opening = pg_atomic_read_u32(&hot->opening);
	pg_read_barrier();			/* see snowflake_generator_open() */
	return pg_atomic_read_u64(&hot->last);
}

/* Returns the time of the clock that IDs follow. */
TimestampTz
snowflake_generator_clock(void)
{
	return snowflake_clock_wall() + (int64) pg_atomic_read_u64(&hot->correction);
}

/* Returns how far the newest position is ahead of that clock, in microseconds. */
int64
snowflake_generator_lead_usec(const SnowflakeView *view)
{
	return snowflake_generator_time(view->last) - snowflake_generator_clock();
}

/* Would a step now return STEP_UNRESERVED, and not have to wait for the clock first? */
bool
snowflake_generator_is_unreserved(const SnowflakeView *view)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz now = snowflake_generator_clock();
	int64		tick = Max(snowflake_layout_tick_at(layout, now),
						   snowflake_layout_position_tick(layout, view->last + 1));

	return tick <= layout->max_tick &&
		snowflake_layout_tick_start(layout, tick) <=
		now + snowflake_generator_may_lead_usec() + snowflake_generator_early_usec() &&
		Max(view->last + 1, snowflake_layout_first_position(layout, Max(tick, 0))) > view->limit;
}

/*
 * Sets *newest to the newest position, with what its ID is made of.  Returns false if the gate
 * has not been opened yet since the server's start.  Takes the lock, shared, so it is a full
 * barrier as well.
 */
bool
snowflake_generator_newest(SnowflakeNewest *newest)
{
	bool		opened;

	LWLockAcquire(&hot->lock, LW_SHARED);
	opened = pg_atomic_read_u32(&hot->opening) != 0;
	newest->last = pg_atomic_read_u64(&hot->last);

	/* readers must not pass what only this node had: see rule 4 */
	if (newest->last == kept->opened_at && !pg_atomic_read_u32(&kept->is_advanced))
		newest->last = pg_atomic_read_u64(&kept->in_order);
	newest->node_bits = hot->node_bits;
	newest->opened_at = kept->opened_at;
	newest->started_at = kept->started_at;
	newest->lowered_to = kept->lowered_to;
	newest->lowered_at = kept->lowered_at;
	LWLockRelease(&hot->lock);
	return opened;
}

SnowflakeGate
snowflake_generator_gate(void)
{
	return pg_atomic_read_u32(&hot->gate);
}

/* Copy the stored layout, if it keeps the gate closed: else return false.  Takes the lock, shared. */
bool
snowflake_generator_stored_layout(char *text, size_t size)
{
	if (pg_atomic_read_u32(&hot->gate) != GATE_LAYOUT_CHANGED)
		return false;
	LWLockAcquire(&hot->lock, LW_SHARED);
	strlcpy(text, kept->stored_layout, size);
	LWLockRelease(&hot->lock);
	return true;
}

/* Returns the ID of a position with the present node ID.  Takes the lock, shared. */
int64
snowflake_generator_position_id(uint64 position)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		node_bits;

	LWLockAcquire(&hot->lock, LW_SHARED);
	node_bits = hot->node_bits;
	LWLockRelease(&hot->lock);
	return snowflake_layout_pack(layout, snowflake_layout_position_tick(layout, position),
								 node_bits,
								 (int32) (position & layout->max_sequence));
}

/* Mint nothing at or below a position, once the keeper, whom the caller asks, has raised "last". */
void
snowflake_generator_raise_floor(uint64 position)
{
	uint64		old = pg_atomic_read_u64(&kept->floor);

	SNOWFLAKE_INJECTION_POINT("snowflake-raise-floor");
	while (old < position &&
		   !pg_atomic_compare_exchange_u64(&kept->floor, &old, position))
		;
}


/*
 * Only the keeper calls what follows.
 */

/* Set what mints add to the wall clock, and how far beyond max_lead IDs may be ahead of the sum. */
void
snowflake_generator_set_correction(int64 correction_usec, int64 allowed_usec)
{
	snowflake_generator_set_allowance(allowed_usec);
	pg_atomic_write_u64(&hot->correction, (uint64) correction_usec);
}

void
snowflake_generator_set_allowance(int64 allowed_usec)
{
	pg_atomic_write_u64(&hot->allowance, (uint64) allowed_usec);
}

/*
 * Change the reason of a closed gate.  If it is the same as before, no process is woken: the waiting
 * ones would ask the keeper again, which would find the same reason, and so forth.
 */
void
snowflake_generator_set_gate(SnowflakeGate reason)
{
	Assert(reason != GATE_OPEN);
	Assert(pg_atomic_read_u32(&hot->gate) != GATE_OPEN);
	if (pg_atomic_exchange_u32(&hot->gate, reason) == reason)
		return;
	snowflake_keeper_state_announce();
}

/* Keep a closed gate closed because another layout is stored. */
void
snowflake_generator_set_layout_changed(const char *stored_layout)
{
	LWLockAcquire(&hot->lock, LW_EXCLUSIVE);
	strlcpy(kept->stored_layout, stored_layout, SNOWFLAKE_LAYOUT_TEXT_SIZE);
	LWLockRelease(&hot->lock);
	snowflake_generator_set_gate(GATE_LAYOUT_CHANGED);
}

/* Note that some node ID may have had a position, in case the rows that say so are lost. */
void
snowflake_generator_note_highest(uint64 position)
{
	pg_atomic_write_u64(&kept->highest, Max(position, pg_atomic_read_u64(&kept->highest)));
}

/*
 * Open a closed gate for a node ID, from the lease with the number "grant" (0: not leased), with
 * "last" raised to the end of what any node ID may have issued before, and a limit that is durably
 * reserved.  The node itself may have had positions up to "own_last"; others, whose order is kept, up
 * to "in_order".  "last" may be lower than it was only if the range above it was the previous node's
 * alone, and nothing was issued there, or as snowflake_generator_open_at_clock() says.
 */
void
snowflake_generator_open(int32 node, uint32 grant, uint64 last, uint64 own_last,
						 uint64 in_order, uint64 limit, uint64 refill)
{
	uint64		floor = pg_atomic_read_u64(&kept->floor);
	uint64		before = pg_atomic_read_u64(&hot->last);

	Assert(!kept->end_unstored);
	Assert(last >= own_last && last >= in_order);

	/*
	 * forget a floor that is passed; one that is raised just now stays, and
	 * so does one that only this node ID has passed
	 */
	if (floor <= in_order)
		(void) pg_atomic_compare_exchange_u64(&kept->floor, &floor, 0);

	/* first, so that no reader takes the position for that of an ID */
	pg_atomic_write_u32(&kept->is_advanced, false);
	pg_atomic_write_u64(&kept->raised_to, last);
	pg_atomic_write_u64(&kept->own_last, own_last);
	pg_atomic_write_u64(&kept->in_order, in_order);
	snowflake_generator_note_highest(before);
	pg_atomic_write_u32(&kept->grant, grant);
	pg_atomic_write_u32(&kept->newest_grant,
						Max(grant, pg_atomic_read_u32(&kept->newest_grant)));

	LWLockAcquire(&hot->lock, LW_EXCLUSIVE);
	Assert(pg_atomic_read_u32(&hot->gate) != GATE_OPEN);
	hot->node = node;
	hot->node_bits = snowflake_layout_place_node(&snowflake_server_layout, node);
	kept->opened_at = last;
	if (pg_atomic_read_u32(&hot->opening) == 0)
		kept->started_at = last;
	if (last < before)
	{
		kept->lowered_to = kept->lowered_at == 0 ? last : Min(last, kept->lowered_to);
		kept->lowered_at = pg_atomic_read_u32(&hot->opening) + 1;
	}
	pg_atomic_write_u64(&hot->last, last);
	pg_write_barrier();			/* "last" is seen before the opening */
	pg_atomic_write_u32(&hot->opening, pg_atomic_read_u32(&hot->opening) + 1);
	SNOWFLAKE_INJECTION_POINT("snowflake-gate-opening");
	pg_atomic_write_u64(&hot->limit, limit);
	pg_atomic_write_u64(&hot->refill, refill);
	pg_atomic_write_u32(&hot->gate, GATE_OPEN);
	LWLockRelease(&hot->lock);
	snowflake_keeper_state_announce();
}


/*
 * Open a closed gate with a "last" that may be lower than it was: the order is given up.  Rule 1
 * still holds.  Either this is for the same node, which has issued nothing since the gate was opened
 * for it, and before that nothing above the view's own_last, and "last" is not below that; or it is
 * for a new lease, which begins after "last".
 */
void
snowflake_generator_open_at_clock(int32 node, uint32 grant, uint64 last, uint64 limit,
								  uint64 refill)
{
	uint64		before = pg_atomic_read_u64(&hot->last);
	uint64		floor = pg_atomic_read_u64(&kept->floor);

	Assert(grant > pg_atomic_read_u32(&kept->newest_grant) ||
		   (node == hot->node && grant == pg_atomic_read_u32(&kept->grant) &&
			last >= pg_atomic_read_u64(&kept->own_last) &&
			before == pg_atomic_read_u64(&kept->raised_to) &&
			!pg_atomic_read_u32(&kept->is_advanced)));

	/* a floor that was passed need not be passed again */
	if (floor <= before)
		(void) pg_atomic_compare_exchange_u64(&kept->floor, &floor, 0);
	kept->end_unstored = false;
	snowflake_generator_open(node, grant, last, last, last, limit, refill);
}

/*
 * Give up what is left of the newest position's tick, which is not used when the gate opens again:
 * that is for readers, as in snowflake_generator_finish_tick().  A "last" that was only raised stays
 * as it is.  The caller holds the lock exclusively; the gate is closed.
 */
static void
finish_last_tick(void)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	uint64		last = pg_atomic_read_u64(&hot->last);
	uint64		end = snowflake_layout_last_position(layout,
													 snowflake_layout_position_tick(layout, last));

	if (end <= pg_atomic_read_u64(&hot->limit) &&
		(last != pg_atomic_read_u64(&kept->raised_to) || pg_atomic_read_u32(&kept->is_advanced)))
		pg_atomic_write_u64(&hot->last, end);
}

/* Close the gate and wait out the mints in flight; if it was open, its end has yet to be stored. */
void
snowflake_generator_close(SnowflakeGate reason)
{
	Assert(reason != GATE_OPEN);
	if (pg_atomic_exchange_u32(&hot->gate, reason) == GATE_OPEN)
		kept->end_unstored = true;
	SNOWFLAKE_INJECTION_POINT("snowflake-gate-closing");
	LWLockAcquire(&hot->lock, LW_EXCLUSIVE);
	if (snowflake_layout_value_reorders(&snowflake_server_layout))
		finish_last_tick();
	LWLockRelease(&hot->lock);
	snowflake_keeper_state_announce();
}

void
snowflake_generator_end_stored(void)
{
	kept->end_unstored = false;
}

/* More is durably reserved, and minters may use it.  The gate is open. */
void
snowflake_generator_extend(uint64 limit, uint64 refill)
{
	Assert(limit >= pg_atomic_read_u64(&hot->limit));
	pg_atomic_write_u64(&hot->limit, limit);
	pg_atomic_write_u64(&hot->refill, refill);
	snowflake_keeper_state_announce();
}

/* Note what is durably reserved; what minters may use of it is set separately. */
void
snowflake_generator_set_stored(uint64 position)
{
	kept->stored = position;
}

void
snowflake_generator_set_refill(uint64 refill)
{
	pg_atomic_write_u64(&hot->refill, refill);
}

/* Raise "last" to the floor of snowflake_advance(), which is durably reserved. */
void
snowflake_generator_advance(uint64 position)
{
	uint64		last = pg_atomic_read_u64(&hot->last);

	Assert(position <= pg_atomic_read_u64(&hot->limit));

	/* first, so that no reader takes the position for an ID */
	pg_atomic_write_u32(&kept->is_advanced, true);
	pg_atomic_write_u64(&kept->raised_to, position);
	SNOWFLAKE_INJECTION_POINT("snowflake-raise");
	while (last < position &&
		   !pg_atomic_compare_exchange_u64(&hot->last, &last, position))
		;
	snowflake_keeper_state_announce();
}
