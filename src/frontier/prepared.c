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
#include "frontier/frontier.h"

/* Our advisory locks have this in the field where those of the SQL functions have 1 or 2. */
#define LOCK_MARK	0x5F1A

/* A transaction that was, or may become, prepared. */
typedef struct Prepared
{
	FullTransactionId xid;
	Oid			database;
	int64		oldest_id;
	TimestampTz since;
} Prepared;

typedef struct PreparedArray
{
	LWLock		lock;			/* protects everything; some readers read
								 * "count" without it */
	pg_atomic_uint32 is_filled; /* with what the start has restored */
	pg_atomic_uint32 count;		/* some of them may have ended */
	Prepared	holds[FLEXIBLE_ARRAY_MEMBER];
} PreparedArray;

/* NULL if the library was not preloaded. */
static PreparedArray *prepared = NULL;

/* As many as can be prepared, and in each backend one that is about to be. */
static uint32
max_prepared(void)
{
	return max_prepared_xacts > 0 ? max_prepared_xacts + MaxBackends : 0;
}

/* Call this only once MaxBackends is known. */
Size
snowflake_prepared_size(void)
{
	return add_size(offsetof(PreparedArray, holds),
					mul_size(max_prepared(), sizeof(Prepared)));
}

/* The caller holds AddinShmemInitLock. */
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

/* Is this transaction in progress?  One that ended long ago must not be taken for a future one. */
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
	Prepared	added = {xid, database, oldest_id, since};

	if (count >= max_prepared())
		elog(ERROR, "more prepared transactions than there can be");
	prepared->holds[count] = added;
	pg_atomic_write_u32(&prepared->count, count + 1);
}

/*
 * Enter the prepared transactions that the server's start has found, which ends recovery, as
 * shown by the locks that they hold.  There are no other locks of this kind yet, because a
 * process that takes one calls this first.
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
 * Append the prepared transactions that hold back the frontier of a database, or of any
 * database (InvalidOid), to an array of so many, which may move.  Returns the new number.
 * Takes the lock.  Must not be called in recovery.
 */
int
snowflake_prepared_append(Oid database, SnowflakeHold **holds, int nholds)
{
	fill();
	pg_read_barrier();
	if (pg_atomic_read_u32(&prepared->count) == 0)
		return nholds;

	*holds = repalloc(*holds, mul_size(add_size(nholds, max_prepared()), sizeof(SnowflakeHold)));
	LWLockAcquire(&prepared->lock, LW_EXCLUSIVE);
	forget_ended();
	for (uint32 i = 0; i < pg_atomic_read_u32(&prepared->count); i++)
	{
		const Prepared *each = &prepared->holds[i];
		SnowflakeHold *hold = &(*holds)[nholds];

		if (OidIsValid(database) && each->database != database)
			continue;
		hold->oldest_id = each->oldest_id;
		hold->since = each->since;
		hold->pid = 0;
		hold->prepared = XidFromFullTransactionId(each->xid);
		nholds++;
	}
	LWLockRelease(&prepared->lock);
	return nholds;
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
