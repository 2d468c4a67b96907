/*-------------------------------------------------------------------------
 *
 * prepared.c
 *	  Prepared transactions hold the frontier back.
 *
 * They do so until they are committed or rolled back.  PREPARE enters the
 * transaction into an array, with its xid, while it still runs and so holds the
 * frontier back itself.  It counts as long as its xid is in progress, which the
 * process array decides, as it does for a snapshot.
 *
 * The array does not survive a crash, but the prepared transaction does, with
 * its locks.  So it takes a lock that no process waits for, whose tag is the
 * oldest ID that it may have minted.  After a start, and so also after the
 * promotion of a standby, the array is filled from the lock table before it is
 * used.  The tag is an ID, not a position, because the layout may have changed
 * by then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "storage/shmem.h"

#include "base/compat.h"
#include "frontier/prepared.h"

/* Our advisory locks have this in the field where those of the SQL functions have 1 or 2. */
#define LOCK_MARK	0x5F1A

typedef struct PreparedArray
{
	LWLock		lock;			/* protects everything; some readers read
								 * "count" without it */

	/*
	 * Has the array been filled with the transactions that the start has
	 * restored?
	 */
	pg_atomic_uint32 is_filled;

	/* How many there are; some of them may have ended. */
	pg_atomic_uint32 count;
	SnowflakePrepared holds[FLEXIBLE_ARRAY_MEMBER];
} PreparedArray;

/* NULL if the library was not preloaded. */
static PreparedArray *prepared = NULL;

/*
 * As many prepared transactions as there can be, and in each backend one that
 * is about to be prepared.
 */
static uint32
max_prepared(void)
{
	return max_prepared_xacts > 0 ? max_prepared_xacts + MaxBackends : 0;
}

/* Shared memory to request.  Only once MaxBackends is known. */
Size
snowflake_prepared_size(void)
{
	return add_size(offsetof(PreparedArray, holds),
					mul_size(max_prepared(), sizeof(SnowflakePrepared)));
}

/*
 * Find the array, or make it.  The caller holds AddinShmemInitLock.  "tranche" is
 * for the lock.
 */
void
snowflake_prepared_attach(int tranche)
{
	bool		found;

	prepared = ShmemInitStruct("snowflake prepared transactions",
							   snowflake_prepared_size(), &found);
	if (found)
		return;
	LWLockInitialize(&prepared->lock, tranche);
	pg_atomic_init_u32(&prepared->is_filled, max_prepared_xacts == 0);
	pg_atomic_init_u32(&prepared->count, 0);
}

/*
 * Is this transaction in progress?  An xid that ended long ago must not be
 * mistaken for a future one.
 */
static bool
is_running(FullTransactionId xid)
{
	uint64		age = U64FromFullTransactionId(ReadNextFullTransactionId()) -
	U64FromFullTransactionId(xid);

	return age < PG_INT32_MAX && TransactionIdIsInProgress(XidFromFullTransactionId(xid));
}

/* Forget those that have ended.  The caller holds the lock exclusively. */
static void
forget_ended(void)
{
	uint32		kept = 0;

	for (uint32 i = 0; i < pg_atomic_read_u32(&prepared->count); i++)
	{
		if (is_running(prepared->holds[i].xid))
			prepared->holds[kept++] = prepared->holds[i];
	}
	pg_atomic_write_u32(&prepared->count, kept);
}

/* The caller holds the lock exclusively. */
static void
add(FullTransactionId xid, Oid database, int64 oldest_id, TimestampTz since)
{
	uint32		count = pg_atomic_read_u32(&prepared->count);

	if (count >= max_prepared())
		elog(ERROR, "more prepared transactions than there can be");
	prepared->holds[count].xid = xid;
	prepared->holds[count].database = database;
	prepared->holds[count].oldest_id = oldest_id;
	prepared->holds[count].since = since;
	pg_atomic_write_u32(&prepared->count, count + 1);
}

/*
 * Enter the prepared transactions that the server's start has found, as shown by the
 * locks that they hold.  There are no other locks of this kind yet, because a process
 * that takes one calls this first.  Must not be called in recovery: they are restored
 * at its end.
 */
static void
fill(void)
{
	if (pg_atomic_read_u32(&prepared->is_filled))
		return;

	LWLockAcquire(&prepared->lock, LW_EXCLUSIVE);
	if (!pg_atomic_read_u32(&prepared->is_filled))
	{
		LockData   *locks = GetLockStatusData();
		FullTransactionId next = ReadNextFullTransactionId();

		/* no process has seen the entries that an error may have left here */
		pg_atomic_write_u32(&prepared->count, 0);
		for (int i = 0; i < locks->nelements; i++)
		{
			LockInstanceData *lock = &locks->locks[i];
			uint32		xid = LockInstanceLocalXid(lock);
			uint32		age = XidFromFullTransactionId(next) - xid;

			if (lock->locktag.locktag_type != LOCKTAG_ADVISORY ||
				lock->locktag.locktag_field4 != LOCK_MARK)
				continue;

			/* one that was restored has its xid in the place of a local one */
			add(FullTransactionIdFromU64(U64FromFullTransactionId(next) - age),
				lock->locktag.locktag_field1,
				(int64) lock->locktag.locktag_field2 << 32 |
				lock->locktag.locktag_field3,
				0);
		}
		pg_write_barrier();
		pg_atomic_write_u32(&prepared->is_filled, true);
	}
	LWLockRelease(&prepared->lock);
}

/*
 * Find the prepared transactions that hold back the frontier of a database, or of
 * any database (InvalidOid).  Sets *holds, palloc'd, and returns their number; 0
 * may leave *holds unset.  Takes the lock.  Must not be called in recovery.
 */
uint32
snowflake_prepared_get(Oid database, SnowflakePrepared **holds)
{
	uint32		found = 0;

	fill();
	pg_read_barrier();
	if (pg_atomic_read_u32(&prepared->count) == 0)
		return 0;

	*holds = palloc(mul_size(max_prepared(), sizeof(SnowflakePrepared)));
	LWLockAcquire(&prepared->lock, LW_EXCLUSIVE);
	forget_ended();
	for (uint32 i = 0; i < pg_atomic_read_u32(&prepared->count); i++)
	{
		if (!OidIsValid(database) || prepared->holds[i].database == database)
			(*holds)[found++] = prepared->holds[i];
	}
	LWLockRelease(&prepared->lock);
	return found;
}

/*
 * The running transaction, which has an xid and has minted no ID below
 * "oldest_id", is about to be prepared.  If that fails, the transaction ends, so
 * there is nothing else to undo.  max_prepared_transactions must not be 0.
 */
void
snowflake_prepared_hold(int64 oldest_id)
{
	LOCKTAG		tag;

	fill();
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (oldest_id >> 32),
						 (uint32) oldest_id, LOCK_MARK);
	(void) LockAcquire(&tag, ShareLock, false, false);

	LWLockAcquire(&prepared->lock, LW_EXCLUSIVE);
	forget_ended();
	add(GetTopFullTransactionId(), MyDatabaseId, oldest_id,
		GetCurrentTransactionStartTimestamp());
	LWLockRelease(&prepared->lock);
}
