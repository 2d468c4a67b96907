/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  Shared memory: requested and attached for all parts of the library
 *	  together.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "base/clock.h"
#include "base/compat.h"
#include "frontier/frontier_sample.h"
#include "frontier/prepared.h"
#include "generator/counters.h"
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "generator/slot.h"
#include "lease/lease.h"
#include "lease/lease_state.h"
#include "shmem.h"

/* The name of the locks, in wait events. */
#define TRANCHE_NAME	"snowflake"

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
request_shmem(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	RequestAddinShmemSpace(snowflake_generator_size());
	RequestAddinShmemSpace(snowflake_keeper_state_size());
	RequestAddinShmemSpace(snowflake_clock_size());
	RequestAddinShmemSpace(snowflake_counters_size());
	RequestAddinShmemSpace(snowflake_slot_size());
	RequestAddinShmemSpace(snowflake_lease_state_size());
	RequestAddinShmemSpace(snowflake_lease_size());
	RequestAddinShmemSpace(snowflake_prepared_size());
	RequestAddinShmemSpace(snowflake_frontier_sample_size());

	/* for the name; the locks themselves are beside what they guard */
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

static void
attach_shmem(void)
{
	int			tranche;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	tranche = GetNamedLWLockTranche(TRANCHE_NAME)->lock.tranche;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	snowflake_generator_attach(tranche);
	snowflake_keeper_state_attach();
	snowflake_clock_attach();
	snowflake_counters_attach();
	snowflake_slot_attach();
	snowflake_lease_state_attach(tranche);
	snowflake_lease_attach();
	snowflake_prepared_attach(tranche);
	snowflake_frontier_sample_attach(tranche);
	LWLockRelease(AddinShmemInitLock);
}

/* Set the hooks that request shared memory.  Call this only while the server preloads libraries. */
void
snowflake_shmem_init(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = attach_shmem;
}
