/*-------------------------------------------------------------------------
 *
 * floor.c
 *	  The least that a function like snowflake_next() can cost: one that does
 *	  nothing, and two that count in shared memory, which all sessions share.
 *
 * A module of its own, so that nothing of it is in the extension.  It is preloaded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bench_floor);
PG_FUNCTION_INFO_V1(bench_cas);
PG_FUNCTION_INFO_V1(bench_locked_cas);

/* In one cache line, as in the generator. */
typedef struct Shared
{
	LWLock		lock;
	pg_atomic_uint64 last;
} Shared;

static Shared *shared = NULL;
static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
request_shmem(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(Shared)));
	RequestNamedLWLockTranche("bench", 1);
}

static void
attach_shmem(void)
{
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("bench", sizeof(Shared), &found);
	if (!found)
	{
		LWLockInitialize(&shared->lock, GetNamedLWLockTranche("bench")->lock.tranche);
		pg_atomic_init_u64(&shared->last, 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = attach_shmem;
}

/* The executor's price of calling any C function. */
Datum
bench_floor(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(1);
}

/* The least for numbers that ascend over all sessions. */
Datum
bench_cas(PG_FUNCTION_ARGS)
{
	uint64		last = pg_atomic_read_u64(&shared->last);

	while (!pg_atomic_compare_exchange_u64(&shared->last, &last, last + 1))
		;
	PG_RETURN_INT64((int64) (last + 1));
}

/* ... under a lock by which somebody can wait for all who are at it. */
Datum
bench_locked_cas(PG_FUNCTION_ARGS)
{
	Datum		number;

	LWLockAcquire(&shared->lock, LW_SHARED);
	number = bench_cas(fcinfo);
	LWLockRelease(&shared->lock);
	return number;
}
