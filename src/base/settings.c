/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  Every setting of the extension, and its check.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/parallel.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "base/compat.h"
#include "base/settings.h"

/* Node IDs that may be leased; none means all. */
typedef struct NodeRanges
{
	int			count;
	struct
	{
		int32		first,
					last;
	}			ranges[32];
} NodeRanges;

int			snowflake_node_id = -1;
SnowflakeNodeSource snowflake_node_source = NODE_FROM_SETTING;
char	   *snowflake_node_source_text = NULL;
int			snowflake_lease_ms = 600 * 1000;
char	   *snowflake_database = NULL;
int			snowflake_max_lead_ms = 5;
int			snowflake_max_wait_ms = 5000;
int			snowflake_reservation_ms = 3000;
int			snowflake_max_jump_ms = 10 * 1000;
int			snowflake_jump_patience_ms = 60 * 1000;
char	   *snowflake_kept_in = NULL;
char	   *snowflake_public_key_file = NULL;
uint32		snowflake_spread_mask = 0;

SnowflakeLayout snowflake_server_layout;
bool		snowflake_layout_is_fixed = false;

static char *layout_text = NULL;
static char *lease_nodes_text = NULL;
static NodeRanges *lease_nodes = NULL;
static int	spread = 0;

/*
 * Parse the layout here, once per server, so that nothing else ever sees a
 * text that is not a layout.
 */
static bool
check_layout(char **newval, void **extra, GucSource source)
{
	SnowflakeLayout layout;
	const char *complaint = snowflake_layout_parse(*newval, &layout);

	if (complaint != NULL)
	{
		GUC_check_errdetail("%s", complaint);
		GUC_check_errhint(SNOWFLAKE_LAYOUT_HINT);
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
 * Refuse a node ID that the layout cannot hold, where that can be known.
 *
 * While the server starts, the layout may not have its value yet, and a server
 * that does not start is worse than one that does not mint.  So a bad value in
 * the configuration file is taken then, by parallel workers as well, and the
 * keeper leaves the gate closed for it.
 */
static bool
check_node_id(int *newval, void **extra, GucSource source)
{
	if (process_shared_preload_libraries_in_progress ||
		InitializingParallelWorker ||
		*newval <= snowflake_server_layout.max_node)
		return true;

	GUC_check_errdetail("The layout has node IDs from 0 to %d.",
						snowflake_server_layout.max_node);
	return false;
}

/*
 * Where the node ID comes from.  A value that is refused is not repeated, for it
 * may have a password.
 */
static bool
check_node_source(char **newval, void **extra, GucSource source)
{
	SnowflakeNodeSource parsed;
	const char *complaint = snowflake_node_source_parse(*newval, &parsed);

	if (complaint != NULL)
	{
		GUC_check_errmsg("invalid value for parameter \"%s\"", "snowflake.node_source");
		GUC_check_errdetail("%s", complaint);
		return false;
	}
	*extra = guc_malloc(LOG, sizeof(parsed));
	if (*extra == NULL)
		return false;
	memcpy(*extra, &parsed, sizeof(parsed));
	return true;
}

static void
assign_node_source(const char *newval, void *extra)
{
	memcpy(&snowflake_node_source, extra, sizeof(snowflake_node_source));
}

/* Ranges of node IDs, such as "0-63, 100". */
static bool
check_lease_nodes(char **newval, void **extra, GucSource source)
{
	const char *c = *newval;
	NodeRanges	ranges = {0};

	while (*(c += strspn(c, " ,")) != '\0')
	{
		char	   *end;
		long		first,
					last;

		errno = 0;
		first = last = strtol(c, &end, 10);
		if (end > c && *end == '-')
		{
			c = end + 1;
			last = strtol(c, &end, 10);
		}
		if (end == c || errno != 0 || first < 0 || last < first || last > INT_MAX ||
			(*end != '\0' && *end != ' ' && *end != ',') ||
			ranges.count == lengthof(ranges.ranges))
		{
			GUC_check_errdetail("It is a list of up to %d node IDs or ranges of them.",
								(int) lengthof(ranges.ranges));
			GUC_check_errhint("An example is 0-63, 100. If it is empty, all node IDs of the layout may be leased.");
			return false;
		}
		ranges.ranges[ranges.count].first = (int32) first;
		ranges.ranges[ranges.count].last = (int32) last;
		ranges.count++;
		c = end;
	}

	*extra = guc_malloc(LOG, sizeof(ranges));
	if (*extra == NULL)
		return false;
	memcpy(*extra, &ranges, sizeof(ranges));
	return true;
}

static void
assign_lease_nodes(const char *newval, void *extra)
{
	lease_nodes = extra;
}

/* The smallest node ID from this one on that may be leased, or -1. */
int32
snowflake_next_lease_node(int32 node)
{
	int32		next = lease_nodes->count == 0 ? node : -1;

	for (int i = 0; i < lease_nodes->count; i++)
	{
		int32		first = Max(node, lease_nodes->ranges[i].first);

		if (first <= lease_nodes->ranges[i].last && (next < 0 || first < next))
			next = first;
	}
	return next > snowflake_server_layout.max_node ? -1 : next;
}

/*
 * Refuse a spread that is no power of two, or larger than the sequence.  While the
 * server starts, the latter may not be known, and then it is cut.
 */
static bool
check_spread(int *newval, void **extra, GucSource source)
{
	if ((*newval & (*newval - 1)) != 0)
	{
		GUC_check_errdetail("It is 0 or a power of two.");
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
 * Refuse to start with a layout in the configuration file that is none.
 *
 * A custom setting's bad value only gets a warning when the setting is defined,
 * and the default in its place.  Here that would be IDs of a layout that nobody
 * wanted, which cannot be taken back.
 */
static void
check_configured_layout(void)
{
	const char *configured = GetConfigOption("snowflake.layout", true, false);
	SnowflakeLayout layout;
	const char *complaint;

	if (configured == NULL)
		return;
	complaint = snowflake_layout_parse(configured, &layout);
	if (complaint != NULL)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid value for parameter \"%s\": \"%s\"",
					   "snowflake.layout", configured),
				errdetail_internal("%s", complaint),
				errhint(SNOWFLAKE_LAYOUT_HINT));
}

/*
 * Likewise with a source of node IDs that is none: with the default in its place a
 * server could mint with the number that is to be added to another.
 */
static void
check_configured_node_source(void)
{
	const char *configured = GetConfigOption("snowflake.node_source", true, false);
	SnowflakeNodeSource source;
	const char *complaint;

	if (configured == NULL)
		return;
	complaint = snowflake_node_source_parse(configured, &source);
	if (complaint != NULL)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid value for parameter \"%s\"", "snowflake.node_source"),
				errdetail_internal("%s", complaint));
}

/*
 * Where the value of a setting comes from, such as 'in "postgresql.conf", line 3'.
 */
char *
snowflake_settings_origin(const char *name)
{
	struct config_generic *setting = find_option(name, false, true, ERROR);

	if (setting == NULL)
		elog(ERROR, "there is no setting \"%s\"", name);

	/* the file that was read last is noted down even if it was overruled */
	if (setting->source == PGC_S_FILE && setting->sourcefile != NULL)
		return psprintf("in \"%s\", line %d",
						setting->sourcefile, setting->sourceline);
	return psprintf("by the %s", GucSource_Names[setting->source]);
}

/* Where the node ID comes from. */
static void
define_lease(void)
{
	DefineCustomStringVariable("snowflake.node_source",
							   "Sets where the node ID comes from.",
							   "It is setting (snowflake.node_id), hostname, address, or the URL of a coordinator that leases node IDs.",
							   &snowflake_node_source_text,
							   "setting",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_node_source, assign_node_source, NULL);
	DefineCustomStringVariable("snowflake.lease_nodes",
							   "Sets which node IDs may be leased.",
							   "A list of node IDs and ranges, such as 0-63. If it is empty, all of the layout.",
							   &lease_nodes_text,
							   "",
							   PGC_SIGHUP, 0,
							   check_lease_nodes, assign_lease_nodes, NULL);
	DefineCustomIntVariable("snowflake.lease",
							"Sets for how long a node ID is leased.",
							"It is renewed when half of it is left. Without the coordinator minting goes on to the end of the lease.",
							&snowflake_lease_ms,
							600 * 1000, 1000, 24 * 60 * 60 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
}

/* How much time for what. */
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
							"If it is longer than snowflake.reservation, nobody sees an error after a crash.",
							&snowflake_max_wait_ms,
							5000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("snowflake.reservation",
							"Sets how much time is reserved ahead of the newest snowflake.",
							"After a crash, minting may have to wait for the clock for as long.",
							&snowflake_reservation_ms,
							3000, 1000, 60 * 60 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("snowflake.max_jump",
							"Sets by how much the clock may step and be believed at once.",
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
}

void
snowflake_settings_init(void)
{
	/*
	 * What is fixed for the life of a server cannot be defined as such any
	 * more by a library that is loaded on demand.  There, decoding with the
	 * server's layout is all these settings are for, and the configuration
	 * file is still the only place they can come from.
	 */
	GucContext	fixed;

	snowflake_layout_is_fixed = process_shared_preload_libraries_in_progress;
	fixed = snowflake_layout_is_fixed ? PGC_POSTMASTER : PGC_SIGHUP;
	if (snowflake_layout_is_fixed)
	{
		check_configured_layout();
		check_configured_node_source();
	}

	/* first, because the check of the node ID uses it */
	DefineCustomStringVariable("snowflake.layout",
							   "Sets the bit layout of the snowflakes this server mints.",
							   "A preset, overrides such as epoch:2025-01-01T00:00:00Z, or both.",
							   &layout_text,
							   "twitter",
							   fixed, 0,
							   check_layout, assign_layout, NULL);
	DefineCustomIntVariable("snowflake.node_id",
							"Sets this server's node ID.",
							"No two servers that mint may have the same. -1 is unset, and nothing is minted then.",
							&snowflake_node_id,
							-1, -1, INT_MAX,
							PGC_SIGHUP, 0,
							check_node_id, NULL, NULL);
	DefineCustomIntVariable("snowflake.spread",
							"Sets how many sequence numbers the first snowflakes of ticks are spread over.",
							"A power of two. 0 starts each tick at 0.",
							&spread,
							0, 0, 1 << 30,
							PGC_SIGHUP, 0,
							check_spread, assign_spread, NULL);
	DefineCustomStringVariable("snowflake.database",
							   "Sets the database in which the reservation is kept.",
							   NULL,
							   &snowflake_database,
							   "postgres",
							   fixed, 0,
							   NULL, NULL, NULL);

	/* the keeper's own note, which only it sets: see reservation_home.c */
	DefineCustomStringVariable("snowflake.kept_in",
							   "OID of the database in which this cluster keeps its reservation.",
							   "The keeper sets it for all roles and databases.",
							   &snowflake_kept_in,
							   "",
							   PGC_SUSET,
							   GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, NULL);

	/*
	 * where it is, is not for everybody; what is in it, for nobody: see
	 * keys.c
	 */
	DefineCustomStringVariable("snowflake.public_key_file",
							   "Sets the file of the keys that encrypt snowflakes for the outside.",
							   "Each line is a number from 0 to 1023 and a key of 64 hexadecimal digits. The key of the highest number encrypts.",
							   &snowflake_public_key_file,
							   "",
							   PGC_SIGHUP,
							   GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);
	define_lease();
	define_times();
	MarkGUCPrefixReserved("snowflake");
}
