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

/*
 * The longest tick of a server that mints.  Mints, restarts, leases and frontiers all wait for
 * the next tick now and then, and nobody has published a layout with a longer one.
 */
#define LONGEST_TICK_USEC		USECS_PER_SEC

/* Parse a layout that a server is to mint with.  Returns what is wrong with it, or NULL. */
static const char *
parse_server_layout(const char *text, SnowflakeLayout *layout)
{
	const char *complaint = snowflake_layout_parse(text, layout);

	if (complaint == NULL && snowflake_layout_is_fixed && layout->tick_usec > LONGEST_TICK_USEC)
		complaint = psprintf("The tick is %s. A server mints with ticks of up to %s; functions that are given a layout decode longer ones.",
							 snowflake_duration(layout->tick_usec),
							 snowflake_duration(LONGEST_TICK_USEC));
	return complaint;
}

/*
 * Parse the layout here, once per server, so that nothing else ever sees a
 * text that is not a layout.
 */
static bool
check_layout(char **newval, void **extra, GucSource source)
{
	SnowflakeLayout layout;
	const char *complaint = parse_server_layout(*newval, &layout);

	if (complaint != NULL)
	{
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
 * Refuse a spread that is not a power of two, or that is larger than the sequence.
 * While the server starts, the layout may not be known yet; assign_spread() then
 * cuts the spread to the sequence.
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

/*
 * Refuse to start with an invalid layout in the configuration file.
 *
 * When a custom setting is defined, a bad value only causes a warning, and the
 * default takes its place.  Here that would mean IDs of an unwanted layout,
 * which cannot be taken back.
 */
static void
check_configured_layout(void)
{
	const char *configured = GetConfigOption("snowflake.layout", true, false);
	SnowflakeLayout layout;
	const char *complaint;

	if (configured == NULL)
		return;
	complaint = parse_server_layout(configured, &layout);
	if (complaint != NULL)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid value for parameter \"%s\": \"%s\"",
					   "snowflake.layout", configured),
				errdetail_internal("%s", complaint),
				errhint("%s", snowflake_layout_hint()));
}

/*
 * Define the settings.  This comes before all other settings, because the
 * check of the node ID uses the layout.
 */
void
snowflake_server_layout_init(void)
{
	snowflake_layout_is_fixed = process_shared_preload_libraries_in_progress;
	if (snowflake_layout_is_fixed)
		check_configured_layout();

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
