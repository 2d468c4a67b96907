/*-------------------------------------------------------------------------
 *
 * snapshot_frontier.c
 *	  The frontier of the snapshot that a statement reads with.
 *
 * The promise of snowflake_frontier(): every ID at or below it that this server has minted, and
 * that will ever be visible in this database, is visible to the active snapshot.  So a statement
 * that asks for rows up to it misses none, wherever the call is in the statement, in a view or
 * in a function; and one snapshot has one frontier.
 *
 * The frontier F that frontier.c computes is right for snapshots that are taken
 * afterwards, but a statement has its snapshot S before it calls a function.  So:
 *
 * 1. F is computed, and then a snapshot N is taken, which is not used to read.  F is
 *	  right for N.
 *
 * 2. F is right for S as well if S covers N, that is, sees all that N sees.  That is so if S.xmax
 *	  is not below N.xmax, and every transaction in the list of S that is below N.xmax is in the
 *	  list of N as well: a transaction that N sees is below N.xmax, and so below S.xmax, and not
 *	  in the list of N, hence not in that of S.  Top-level transactions are enough: a transaction
 *	  leaves the process array with all its subtransactions.  (In the list of an imported
 *	  snapshot there may be more than is in progress.  Then it covers less.)
 *
 * 3. If it does not, a transaction has ended between S and N.  Then an earlier F
 *	  counts that is known to be right for S: this backend's previous one, by its N;
 *	  and those that others have published, by a number (see frontier_sample.c).  The
 *	  largest of those that are right is right.
 *
 * No argument about time is needed, and none about who computed F: a reader may be stopped
 * between any two steps.
 *
 * Within a snapshot the answer must not change, or a statement that calls the function for each
 * row would skip those between a smaller answer and a larger one.  So answers, and that there is
 * none, are kept until the transaction ends, by xmin, xmax and the length of the list, which tell
 * what a snapshot sees: as time goes on, either xmax goes up or the list gets shorter.  That is
 * true of a backend's own snapshots, and a transaction that imports one has no other.  A parallel
 * worker must not call the function, since it would keep answers of its own.
 *
 * When the generator goes back, earlier frontiers are void: see frontier_sample.c.  Earlier
 * answers within a snapshot are not, because they are about IDs in the order that has been given
 * up.
 *
 * test/model/frontier.pml is a model of this, which is checked exhaustively.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/transam.h"
#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "frontier/frontier.h"
#include "generator/generator.h"
#include "layout/server_layout.h"
#include "mint/mint.h"

PG_FUNCTION_INFO_V1(snowflake_frontier);

/* A sample, and the snapshot that was taken after it. */
typedef struct Sampled
{
	SnowflakeFrontierSample sample;
	uint32		xcnt;
	TransactionId *xip;			/* ascending as numbers */
} Sampled;

/* The transactions that a snapshot sees */
typedef struct Seen
{
	TransactionId xmin;
	TransactionId xmax;
	uint32		xcnt;
} Seen;

typedef struct Answer
{
	Seen		seen;			/* hash key */
	int64		id;
} Answer;

/* The newest sample of this backend; its xip is NULL before the first. */
static Sampled newest_sampled;

/* The answers of a transaction, and its virtual ID. */
static HTAB *answers = NULL;
static uint64 answers_of = 0;

/* A transaction ID that is not above the next one, in full. */
static FullTransactionId
in_full(TransactionId xid, FullTransactionId next)
{
	return FullTransactionIdFromU64(U64FromFullTransactionId(next) -
									(TransactionId) (XidFromFullTransactionId(next) - xid));
}

/* Compute a frontier, and take a snapshot in "later", for which it is right. */
static Sampled
take_sample(Snapshot later)
{
	SnowflakeFrontier frontier;
	Sampled		sampled;

	if (!snowflake_frontier_compute(MyDatabaseId, &frontier))
		elog(ERROR, "the gate was never opened");
	SNOWFLAKE_INJECTION_POINT("snowflake-frontier-computed");

	/*
	 * After the frontier, and in this order.  The leader of a parallel query
	 * may not call GetLatestSnapshot().
	 */
	(void) GetSnapshotData(later);
	sampled.sample.next = ReadNextFullTransactionId();

	sampled.sample.id = frontier.id;
	sampled.sample.lowered_at = frontier.lowered_at;
	sampled.sample.xmax = in_full(later->xmax, sampled.sample.next);
	sampled.xcnt = later->xcnt;
	sampled.xip = later->xip;
	qsort(sampled.xip, sampled.xcnt, sizeof(TransactionId), xidComparator);
	return sampled;
}

/* Keep a sample in place of the one before. */
static void
keep_sample(const Sampled *sampled)
{
	TransactionId *xip = newest_sampled.xip;

	if (xip == NULL)
		xip = MemoryContextAlloc(TopMemoryContext,
								 mul_size(GetMaxSnapshotXidCount(), sizeof(TransactionId)));
	memcpy(xip, sampled->xip, sampled->xcnt * sizeof(TransactionId));
	newest_sampled = *sampled;
	newest_sampled.xip = xip;
}

/* Does a snapshot see all that the snapshot of a sample sees?  "xmax" is its own, in full. */
static bool
covers(Snapshot snapshot, FullTransactionId xmax, const Sampled *sampled)
{
	TransactionId end = XidFromFullTransactionId(sampled->sample.xmax);

	if (FullTransactionIdPrecedes(xmax, sampled->sample.xmax))
		return false;
	for (uint32 i = 0; i < snapshot->xcnt; i++)
	{
		if (TransactionIdPrecedes(snapshot->xip[i], end) &&
			bsearch(&snapshot->xip[i], sampled->xip, sampled->xcnt,
					sizeof(TransactionId), xidComparator) == NULL)
			return false;
	}
	return true;
}

/* Returns a frontier that is right for this snapshot, or -1 if none is known. */
static int64
find_frontier(Snapshot snapshot)
{
	static SnapshotData later = {.snapshot_type = SNAPSHOT_MVCC};
	Sampled		sampled;
	SnowflakeNewest newest;
	FullTransactionId xmax;
	int64		id;

	SNOWFLAKE_INJECTION_POINT("snowflake-snapshot");
	sampled = take_sample(&later);
	snowflake_frontier_sample_publish(MyDatabaseId, &sampled.sample);

	/* frontiers that were computed before the generator went back are void */
	(void) snowflake_generator_newest(&newest);
	xmax = in_full(snapshot->xmax, sampled.sample.next);
	id = snowflake_frontier_sample_find(MyDatabaseId, newest.lowered_at, xmax,
										IsolationUsesXactSnapshot());
	if (sampled.sample.lowered_at == newest.lowered_at &&
		covers(snapshot, xmax, &sampled))
		id = Max(id, sampled.sample.id);
	if (newest_sampled.xip != NULL &&
		newest_sampled.sample.lowered_at == newest.lowered_at &&
		covers(snapshot, xmax, &newest_sampled))
		id = Max(id, newest_sampled.sample.id);
	keep_sample(&sampled);
	return id;
}

/* Returns the answers of the running transaction; its end frees them. */
static HTAB *
get_answers(void)
{
	uint64		running = snowflake_frontier_running(MyProc);

	if (answers == NULL || answers_of != running)
	{
		HASHCTL		control = {
			.keysize = sizeof(Seen),
			.entrysize = sizeof(Answer),
			.hcxt = TopTransactionContext
		};

		answers = NULL;
		answers = hash_create("snowflake frontiers", 16, &control,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		answers_of = running;
	}
	return answers;
}

/* Returns the frontier of the active snapshot: NULL if it is below the first ID, or not known. */
Datum
snowflake_frontier(PG_FUNCTION_ARGS)
{
	Snapshot	snapshot;
	Seen		seen;
	Answer	   *answer;
	int64		id;

	snowflake_generator_require("snowflake_frontier()");
	PreventCommandDuringRecovery("snowflake_frontier()");
	if (IsParallelWorker())
		ereport(ERROR,
				errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				errmsg("cannot execute %s in a parallel worker", "snowflake_frontier()"),
				errhint("Declare a function that calls it PARALLEL RESTRICTED."));

	/* the planner may call this without a snapshot */
	if (!ActiveSnapshotSet())
		PG_RETURN_NULL();
	snapshot = GetActiveSnapshot();
	if (snapshot->snapshot_type != SNAPSHOT_MVCC || snapshot->takenDuringRecovery)
		PG_RETURN_NULL();

	seen.xmin = snapshot->xmin;
	seen.xmax = snapshot->xmax;
	seen.xcnt = snapshot->xcnt;
	answer = hash_search(get_answers(), &seen, HASH_FIND, NULL);
	if (answer != NULL)
		id = answer->id;
	else
	{
		snowflake_mint_await_opening("snowflake_frontier()");
		if (snowflake_layout_value_reorders(&snowflake_server_layout))
			snowflake_generator_finish_tick();
		id = find_frontier(snapshot);
		answer = hash_search(get_answers(), &seen, HASH_ENTER, NULL);
		answer->id = id;
	}
	if (id < 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(id);
}
