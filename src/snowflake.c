/*-------------------------------------------------------------------------
 *
 * snowflake.c
 *	  Snowflake IDs for PostgreSQL: module entry.
 *
 * The type, its operators and decoding work in any backend that loads this
 * library.  Minting needs shared memory and the keeper, and so needs the
 * library to be preloaded by the server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "base/compat.h"
#include "base/settings.h"
#include "frontier/frontier.h"
#include "keeper/keeper.h"
#include "layout/planner.h"
#include "layout/server_layout.h"
#include "lease/lease.h"
#include "lease/node_settings.h"
#include "lease/node_source.h"
#include "shmem.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowflake",
					.version = SNOWFLAKE_VERSION
);

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	snowflake_server_layout_init();
	snowflake_node_settings_init();
	snowflake_settings_init();

	if (!process_shared_preload_libraries_in_progress)
		return;
	snowflake_node_source_init();
	snowflake_shmem_init();
	snowflake_keeper_init();
	snowflake_lessee_init();
	snowflake_timehook_init();
	snowflake_frontier_init();
}
