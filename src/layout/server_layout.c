/*-------------------------------------------------------------------------
 *
 * server_layout.c
 *	  The layout of the snowflakes that this server mints: the settings
 *	  snowflake.layout and snowflake.spread.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "base/compat.h"
#include "base/duration.h"
#include "base/settings.h"
#include "layout/server_layout.h"

SnowflakeLayout snowflake_server_layout;
bool		snowflake_layout_is_fixed = false;
uint32		snowflake_spread_mask = 0;

static char *layout_text = NULL;
static int	spread = 0;

/* The longest tick of a server that mints: mints, restarts, leases and frontiers wait for one. */
#define LONGEST_TICK_USEC		USECS_PER_SEC

/*
 * Refuse a text that is not a layout, or not one that the server can mint with.  While the server
 * starts, that is an error: to core, a bad value of a custom setting would be worth a warning,
 * and the default would take its place; but IDs of an unwanted layout cannot be taken back.
 */
static bool
check_layout(char **newval, void **extra, GucSource source)
{
	SnowflakeLayout layout;
	const char *complaint = snowflake_layout_parse(*newval, &layout);

	if (complaint == NULL && snowflake_layout_is_fixed && layout.tick_usec > LONGEST_TICK_USEC)
		complaint = psprintf("The tick is %s. A server mints with ticks of up to %s; functions that are given a layout decode longer ones.",
							 snowflake_duration(layout.tick_usec),
							 snowflake_duration(LONGEST_TICK_USEC));
	if (complaint != NULL)
	{
		if (process_shared_preload_libraries_in_progress)
			ereport(ERROR,
					errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid value for parameter \"%s\": \"%s\"",
						   "snowflake.layout", *newval),
					errdetail_internal("%s", complaint),
					errhint("%s", snowflake_layout_hint()));
		GUC_check_errdetail("%s", complaint);
		GUC_check_errhint("%s", snowflake_layout_hint());
		return false;
	}

	*extra = guc_malloc(LOG, sizeof(layout));
	if (*extra == NULL)
		return false;
	memcpy(*extra, &layout, sizeof(layout));
	return true;
}

static void
assign_layout(const char *newval, void *extra)
{
	memcpy(&snowflake_server_layout, extra, sizeof(snowflake_server_layout));
}

/*
 * Refuse a spread that is not a power of two, or is larger than the sequence.  While the server
 * starts, the layout may not be known yet; assign_spread() then cuts it.
 */
static bool
check_spread(int *newval, void **extra, GucSource source)
{
	if ((*newval & (*newval - 1)) != 0)
	{
		GUC_check_errdetail("It must be 0 or a power of two.");
		return false;
	}
	if (process_shared_preload_libraries_in_progress ||
		InitializingParallelWorker ||
		*newval - 1 <= snowflake_server_layout.max_sequence)
		return true;

	GUC_check_errdetail("The layout has " INT64_FORMAT " sequence numbers in a tick.",
						snowflake_server_layout.max_sequence + INT64CONST(1));
	return false;
}

static void
assign_spread(int newval, void *extra)
{
	snowflake_spread_mask = newval == 0 ? 0 :
		(newval - 1) & snowflake_server_layout.max_sequence;
}

/* Define the settings, before all others: the check of the node ID uses the layout. */
void
snowflake_server_layout_init(void)
{
	snowflake_layout_is_fixed = process_shared_preload_libraries_in_progress;
	DefineCustomStringVariable("snowflake.layout",
							   "Sets the bit layout of the snowflakes this server mints.",
							   "It is a preset, or fields and an epoch, or a preset with some of these changed.",
							   &layout_text,
							   "twitter",
							   snowflake_settings_fixed(), 0,
							   check_layout, assign_layout, NULL);
	DefineCustomIntVariable("snowflake.spread",
							"Sets how many sequence numbers the first snowflakes of ticks are spread over.",
							"It is a power of two, or 0 to start each tick at 0.",
							&spread,
							0, 0, 1 << 30,
							PGC_SIGHUP, 0,
							check_spread, assign_spread, NULL);
}
