/*-------------------------------------------------------------------------
 *
 * snowflake.c
 *	  Snowflake IDs for PostgreSQL: module entry, and shared memory for all
 *	  parts of the library.
 *
 * The type, its operators and decoding work in any backend that loads this library.  Minting
 * needs shared memory and the keeper, and so needs the library to be preloaded by the server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"
#include "frontier/frontier.h"
#include "generator/counters.h"
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "generator/slot.h"
#include "keeper/keeper.h"
#include "layout/planner.h"
#include "layout/server_layout.h"
#include "lease/lease.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowflake",
					.version = SNOWFLAKE_VERSION
);

extern PGDLLEXPORT void _PG_init(void);

/* The name of the locks, in wait events. */
#define TRANCHE_NAME	"snowflake"

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/*
 * Each part of the library has a function that says how much shared memory it needs, and one that
 * finds it or makes it, while AddinShmemInitLock is held.
 */
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

void
_PG_init(void)
{
	snowflake_server_layout_init();
	snowflake_node_settings_init();
	snowflake_settings_init();

	if (!process_shared_preload_libraries_in_progress)
		return;
	snowflake_node_source_init();
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = attach_shmem;
	snowflake_keeper_init();
	snowflake_lessee_init();
	snowflake_timehook_init();
	snowflake_frontier_init();
}
