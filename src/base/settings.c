/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The settings that need no other part of the library.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "base/compat.h"
#include "base/settings.h"

char	   *snowflake_database = NULL;
int			snowflake_max_lead_ms = 5;
int			snowflake_max_wait_ms = 5000;
int			snowflake_reservation_ms = 3000;
int			snowflake_max_jump_ms = 10 * 1000;
int			snowflake_jump_patience_ms = 60 * 1000;
int			snowflake_max_ahead_s = 24 * 60 * 60;
static char *kept_in = NULL;

/* Returns where a setting comes from, such as 'in "postgresql.conf", line 3', palloc'd. */
char *
snowflake_settings_origin(const char *name)
{
	struct config_generic *setting = find_option(name, false, true, ERROR);

	if (setting == NULL)
		elog(ERROR, "there is no setting \"%s\"", name);

	/* the file that was read last is recorded even if its value was overruled */
	if (setting->source == PGC_S_FILE && setting->sourcefile != NULL)
		return psprintf("in \"%s\", line %d",
						setting->sourcefile, setting->sourceline);
	return psprintf("by the %s", GucSource_Names[setting->source]);
}

/* How long a mint may wait for the keeper, in ms.  An idle server has to reserve time first. */
int
snowflake_settings_keeper_wait_ms(void)
{
	return snowflake_max_wait_ms == 0 ? 1000 : snowflake_max_wait_ms;
}

static void
define_times(void)
{
	DefineCustomIntVariable("snowflake.max_lead",
							"Sets how far snowflakes may run ahead of the clock.",
							NULL,
							&snowflake_max_lead_ms,
							5, 0, 60 * 60 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("snowflake.max_wait",
							"Sets how long minting one snowflake waits before it gives up with an error.",
							"If it is longer than snowflake.reservation, mints wait after a crash and do not fail.",
							&snowflake_max_wait_ms,
							5000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("snowflake.reservation",
							"Sets how much time is reserved ahead of the newest snowflake.",
							"After a crash, snowflakes may be that far ahead of the clock.",
							&snowflake_reservation_ms,
							3000, 1000, 60 * 60 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("snowflake.max_jump",
							"Sets the largest step of the clock that is believed immediately.",
							"Minting goes on as if a larger jump had not happened, until it has lasted for snowflake.jump_patience.",
							&snowflake_max_jump_ms,
							10 * 1000, 1000, 24 * 60 * 60 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("snowflake.jump_patience",
							"Sets how long a jump of the clock must last to be believed.",
							NULL,
							&snowflake_jump_patience_ms,
							60 * 1000, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("snowflake.max_ahead",
							"Sets how far snowflakes may stay ahead of the clock after it was set back, or after a crash.",
							"Minting continues meanwhile. With 0 it waits for the clock.",
							&snowflake_max_ahead_s,
							24 * 60 * 60, 0, SNOWFLAKE_MOST_AHEAD_S,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);
}

/*
 * The context of settings that are fixed for the life of a server.  A library that is loaded on
 * demand can no longer define a setting as PGC_POSTMASTER; there it only serves to decode with
 * the server's layout, and can still come only from the configuration file.
 */
GucContext
snowflake_settings_fixed(void)
{
	return process_shared_preload_libraries_in_progress ? PGC_POSTMASTER : PGC_SIGHUP;
}

/* Define them.  This comes last, since no more can be defined afterwards. */
void
snowflake_settings_init(void)
{
	DefineCustomStringVariable("snowflake.database",
							   "Sets the database in which the reservation is kept.",
							   NULL,
							   &snowflake_database,
							   "postgres",
							   snowflake_settings_fixed(), 0,
							   NULL, NULL, NULL);

	/* the keeper's own note, which only it sets: see reservation_home.c */
	DefineCustomStringVariable("snowflake.kept_in",
							   "OID of the database in which this cluster keeps its reservation.",
							   "The keeper sets it for all roles and databases.",
							   &kept_in,
							   "",
							   PGC_SUSET,
							   GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, NULL);
	define_times();
	MarkGUCPrefixReserved("snowflake");
}
