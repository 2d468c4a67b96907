/*-------------------------------------------------------------------------
 *
 * frontier.c
 *	  How far a table can be read in the order of its IDs.
 *
 * A reader that goes on after the largest ID it has seen misses rows of transactions that
 * minted earlier and commit later.  The promise: every ID at or below the frontier that this
 * server has minted and that will ever be visible in this database is visible to a snapshot
 * taken after snowflake_frontier() was called.  It is about IDs that are stored by the
 * transaction that minted them.
 *
 * Each backend has a slot.  Before the first mint of a transaction, it reads the
 * newest position, "last", stores last + 1 in the slot, and then the virtual ID of
 * the transaction.  The transaction mints nothing below: each mint takes a position
 * above the "last" that its compare-and-swap replaces.  A slot is never cleared.  It
 * counts as long as its virtual ID is that of the transaction which the backend
 * runs, according to the process array.  The frontier is the smaller of "last" and
 * the position below the smallest slot that counts; "last" is read first.
 *
 * Why no row is missed: let a transaction T mint position p, now or later, and
 * let a reader load in this order: "last", the holder in T's slot, the virtual
 * ID that runs there, the rest of the slot.
 *
 * 1. The reader's "last" is below p: so is the frontier.
 *
 * 2. It is at or above p, so the value that the reader loaded came from T's
 *	  compare-and-swap or a later one, which are full barriers.  T filled its slot
 *	  before that, so the reader finds it filled by T or by a later transaction of
 *	  that backend's place.  If T is still in the process array, the slot is T's,
 *	  its virtual ID is the one that runs there, and it says p or less: the
 *	  frontier is below p.  Otherwise T has left the process array, and to a
 *	  snapshot taken after the call T has ended: its rows are visible, or never
 *	  will be.
 *
 * A commit becomes visible to others when it leaves the process array, after it
 * has waited for the synchronous standbys.  Its virtual ID and its xid are then
 * removed together, under the lock that taking a snapshot needs.  (Without an xid
 * there is no lock, and nothing to become visible.)  An earlier sign that a
 * transaction ends would let a reader pass rows of a commit that still waits; and
 * the xid alone would not be enough, because a transaction may mint before it has
 * one.
 *
 * Later transactions at the same place have other virtual IDs.  Only after 2^32 transactions
 * without a mint does one have that of the last that minted: while it runs, it needlessly
 * holds the frontier back.
 *
 * A parallel worker fills the slot of its leader, since the commit is the leader's.  So
 * several processes of a lock group may fill a slot, one after the other, under a spinlock.
 * One that finds it filled need not do anything: "last" had reached that value before, so
 * all later mints are above it.  Workers end before their leader's transaction ends, so none
 * fills a slot that belongs to the next one.
 *
 * Subtransactions need nothing special: their rows become visible, if at all, when the
 * transaction ends.  Neither do backends that die: they abort, or the postmaster resets the
 * shared memory.
 *
 * A prepared transaction is no longer in a slot, but in an array: see prepared.c.
 * It is entered there while it still runs, and readers read the slots first, so
 * they find it in one of the two.
 *
 * The IDs of one node are in the order of their positions, but with another node ID that
 * need not be so within a tick.  A node ID starts in a tick of its own ("opened_at" is the
 * end of the tick before), so a position from before that stands for the whole of its tick.
 *
 * With a caller's field, a position may have one of several IDs.  If the field is
 * below the sequence, they lie between those of the neighboring positions, and the
 * largest counts.  If it is above, an ID with a small value may come after one with
 * a large value in the same tick: the frontier passes the latter only when the tick
 * has no position left.  Readers make sure of that when the clock is past the tick;
 * otherwise the frontier would stay below the last IDs until the next mint.
 *
 * snowflake_restart_at_clock() may take "last" back.  A transaction that filled its slot
 * before that may mint below the slot's position, so the slot says at which opening of the
 * gate it was filled.
 *
 * The frontier may also go down a little: a transaction that had read "last",
 * but had not yet filled its slot when a reader passed it, may hold the next
 * reader back at that position.  Both answers are right.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/spin.h"
#include "utils/acl.h"
#include "utils/tuplestore.h"

#include "base/compat.h"
#include "frontier/frontier.h"
#include "generator/generator.h"
#include "generator/slot.h"
#include "layout/server_layout.h"

PG_FUNCTION_INFO_V1(snowflake_frontier_holders);

PGPROC	   *snowflake_frontier_proc = NULL;
SnowflakeSlot *snowflake_frontier_slot = NULL;

/* The smallest ID that may have a position, or one above it. */
static int64
lowest_id(const SnowflakeNewest *newest, uint64 position)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		tick = snowflake_layout_position_tick(layout, position);

	if (position > newest->opened_at)
		return snowflake_layout_pack(layout, tick, newest->node_bits,
									 (int32) (position & layout->max_sequence));
	return tick << layout->time_shift;
}

/* The largest ID that may have a position, or one below it; -1 for none. */
static int64
highest_id(const SnowflakeNewest *newest, uint64 position)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	uint64		next_tick;

	if (position > newest->opened_at && layout->value_field == 0)
		return lowest_id(newest, position);

	/* one below what the next position could have, with the least value */
	if (position > newest->opened_at &&
		(position & layout->max_sequence) != (uint32) layout->max_sequence)
		return lowest_id(newest, position + 1) - 1;

	/* unsigned, because it may be the largest tick that there is */
	next_tick = snowflake_layout_position_tick(layout, position + 1);
	return (int64) ((next_tick << layout->time_shift) - 1);
}

/*
 * Returns a position below which the transaction that has filled the slot has minted none.
 * One that filled it before the gate was first opened has minted nothing before that.  If
 * the generator has been taken back since, it may have minted from there on.
 */
static uint64
oldest_position(const SnowflakeNewest *newest, SnowflakeSlot *slot)
{
	uint64		oldest = pg_atomic_read_u64(&slot->oldest);

	if (newest->lowered_at == 0)
		return Max(oldest, newest->started_at + 1);
	if (pg_atomic_read_u32(&slot->opening) < newest->lowered_at)
		return Min(oldest, newest->lowered_to + 1);
	return oldest;
}

static inline void
fill_slot(SnowflakeSlot *slot)
{
	uint32		opening;
	uint64		last = snowflake_generator_last(&opening);

	pg_atomic_write_u64(&slot->oldest, last + 1);
	pg_atomic_write_u64(&slot->since, GetCurrentTransactionStartTimestamp());
	pg_atomic_write_u32(&slot->database, MyDatabaseId);
	pg_atomic_write_u32(&slot->opening, opening);
	pg_write_barrier();
	pg_atomic_write_u64(&slot->holder, snowflake_frontier_running(snowflake_frontier_proc));
}

/*
 * Make the running transaction hold the frontier back, so that it may mint.  No barrier is
 * needed here: the lock that the mint takes next, and its compare-and-swap, are full ones.
 */
void
snowflake_frontier_hold(void)
{
	if (unlikely(snowflake_frontier_slot == NULL))
	{
		snowflake_frontier_proc = MyProc->lockGroupLeader != NULL ?
			MyProc->lockGroupLeader : MyProc;
		snowflake_frontier_slot = snowflake_slot_of(GetNumberFromPGProc(snowflake_frontier_proc));
	}
	if (likely(MyProc->lockGroupLeader == NULL))
	{
		fill_slot(snowflake_frontier_slot);
		return;
	}

	/* others of the lock group may be about to do the same */
	SNOWFLAKE_INJECTION_POINT("snowflake-hold");
	SpinLockAcquire(&snowflake_frontier_slot->mutex);
	if (!snowflake_frontier_is_held())
		fill_slot(snowflake_frontier_slot);
	SpinLockRelease(&snowflake_frontier_slot->mutex);
}

/* At PREPARE, if the transaction has minted, itself or through parallel workers */
static void
at_transaction_event(XactEvent event, void *arg)
{
	SnowflakeSlot *slot;
	SnowflakeNewest newest;

	if (event != XACT_EVENT_PRE_PREPARE || max_prepared_xacts == 0)
		return;
	slot = snowflake_slot_of(MyProcNumber);
	if (slot != NULL &&
		pg_atomic_read_u64(&slot->holder) == snowflake_frontier_running(MyProc) &&
		snowflake_generator_newest(&newest))
		snowflake_prepared_hold(lowest_id(&newest, oldest_position(&newest, slot)));
}

/*
 * Have PREPARE watched in all backends: one that has not minted may have had
 * parallel workers that did.  Call this only while the server preloads
 * libraries.
 */
void
snowflake_frontier_init(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
}

/*
 * Find all transactions that hold back the frontier of a database, or of any (InvalidOid).
 * Returns their number.  Must not be called in recovery.
 */
static int
get_holds(const SnowflakeNewest *newest, Oid database, SnowflakeHold **holds)
{
	int			nholds = 0;

	*holds = palloc(mul_size(MaxBackends, sizeof(SnowflakeHold)));
	SNOWFLAKE_INJECTION_POINT("snowflake-frontier");
	for (int i = 0; i < MaxBackends; i++)
	{
		SnowflakeSlot *slot = snowflake_slot_of(i);
		uint64		holder = pg_atomic_read_u64(&slot->holder);
		PGPROC	   *proc = GetPGProcByNumber(i);
		SnowflakeHold *hold;

		if (holder == SNOWFLAKE_NO_HOLDER)
			continue;

		/*
		 * The rest is read after the holder.  If the slot is filled again in
		 * between, perhaps for another database, then the holder has ended.
		 */
		pg_read_barrier();
		if (holder != snowflake_frontier_running(proc) ||
			(OidIsValid(database) && pg_atomic_read_u32(&slot->database) != database))
			continue;

		hold = &(*holds)[nholds++];
		hold->oldest_id = lowest_id(newest, oldest_position(newest, slot));
		hold->since = pg_atomic_read_u64(&slot->since);
		hold->pid = proc->pid;
		hold->prepared = InvalidTransactionId;
	}

	/* after the slots: see above */
	pg_read_barrier();
	return snowflake_prepared_append(database, holds, nholds);
}

/*
 * Compute the frontier of a database, or one that is right for every database
 * (InvalidOid).  Returns false while it is not known, because the gate has not been
 * opened since the server's start.  Must not be called in recovery.
 */
bool
snowflake_frontier_compute(Oid database, SnowflakeFrontier *frontier)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	SnowflakeNewest newest;
	SnowflakeHold *holds;
	int			nholds;

	/* read this first; it is a barrier as well */
	if (!snowflake_generator_newest(&newest))
		return false;
	frontier->id = highest_id(&newest, newest.last);
	frontier->lowered_at = newest.lowered_at;
	frontier->lag_usec = 0;
	frontier->holder_pid = 0;

	nholds = get_holds(&newest, database, &holds);
	for (int i = 0; i < nholds; i++)
	{
		if (holds[i].oldest_id - 1 >= frontier->id)
			continue;
		frontier->id = holds[i].oldest_id - 1;
		frontier->holder_pid = holds[i].pid;
	}
	pfree(holds);
	if (frontier->id >= 0)
		frontier->lag_usec =
			snowflake_layout_position_time(layout, newest.last) -
			snowflake_layout_tick_start(layout, snowflake_layout_get_tick(layout, frontier->id));
	return true;
}

/* Publish a sample for all databases.  The keeper calls this when it has opened the gate. */
void
snowflake_frontier_publish(void)
{
	SnowflakeFrontierSample sample;
	SnowflakeFrontier frontier;

	if (!snowflake_frontier_compute(InvalidOid, &frontier))
		return;
	sample.id = frontier.id;
	sample.lowered_at = frontier.lowered_at;
	sample.next = ReadNextFullTransactionId();
	sample.xmax = sample.next;
	snowflake_frontier_sample_publish(InvalidOid, &sample);
}

/*
 * Returns the transactions that hold the frontier back.  Only roles that may read
 * statistics see when the transactions of other sessions began, and what they may have
 * minted.  Parallel workers do not call this, so the caller's own transaction is that of
 * this process.
 */
Datum
snowflake_frontier_holders(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		sees_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	SnowflakeNewest newest;
	SnowflakeHold *holds;
	int			nholds;

	snowflake_generator_require("snowflake_frontier_holders()");
	PreventCommandDuringRecovery("snowflake_frontier_holders()");
	InitMaterializedSRF(fcinfo, 0);
	if (!snowflake_generator_newest(&newest))
		return (Datum) 0;

	nholds = get_holds(&newest, MyDatabaseId, &holds);
	for (int i = 0; i < nholds; i++)
	{
		Datum		values[4];
		bool		nulls[4];

		values[0] = Int32GetDatum(holds[i].pid);
		nulls[0] = holds[i].pid == 0;
		values[1] = TransactionIdGetDatum(holds[i].prepared);
		nulls[1] = !TransactionIdIsValid(holds[i].prepared);
		values[2] = TimestampTzGetDatum(holds[i].since);
		nulls[2] = holds[i].since == 0 || !(sees_all || holds[i].pid == MyProcPid);
		values[3] = Int64GetDatum(holds[i].oldest_id);
		nulls[3] = !(sees_all || holds[i].pid == MyProcPid);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
