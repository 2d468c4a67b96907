/*-------------------------------------------------------------------------
 *
 * node_settings.c
 *	  The settings of the node ID: the number, where it comes from, which node
 *	  IDs may be leased, and for how long.
 *
 * node_source.c uses them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <limits.h>
#include <net/if.h>
#include <stdlib.h>

#include "access/parallel.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "base/compat.h"
#include "layout/server_layout.h"
#include "lease/node_settings.h"

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

static char *lease_nodes_text = NULL;
static NodeRanges *lease_nodes = NULL;

/* Schemes of URLs, and the kind of coordinator that each means. */
static const struct
{
	const char *scheme;
	const char *kind;
}			schemes[] = {
	{"postgresql", "postgresql"},
	{"postgres", "postgresql"},
	{"etcd", "etcd"},
	{"etcds", "etcd"},
	{"zookeeper", "zookeeper"},
	{"consul", "consul"},
	{"consuls", "consul"},
};

/* Returns the kind of coordinator that a URL names, after which its module is named, or NULL. */
const char *
snowflake_node_settings_coordinator(const char *url)
{
	for (size_t i = 0; i < lengthof(schemes); i++)
	{
		size_t		length = strlen(schemes[i].scheme);

		if (strncmp(url, schemes[i].scheme, length) == 0 &&
			strncmp(url + length, "://", 3) == 0)
			return schemes[i].kind;
	}
	return NULL;
}

/* Does a URL begin with this word, written as it is or in percent codes? */
static bool
spells(const char *url, const char *word)
{
	for (; *word != '\0'; word++)
	{
		int			c = (unsigned char) *url;

		if (c == '%' && isxdigit((unsigned char) url[1]) && isxdigit((unsigned char) url[2]))
		{
			char		code[3] = {url[1], url[2], '\0'};

			c = (int) strtol(code, NULL, 16);
			url += 2;
		}
		if (c != *word)
			return false;
		url++;
	}
	return true;
}

/*
 * Does a URL have a password, which would be shown and logged in many places?  Like libpq,
 * this takes everything before an "@" that comes before the first slash for the user and
 * the password.  A colon in it that is written as a percent code is part of the user's name
 * to libpq, but not to ZooKeeper.
 */
static bool
has_password(const char *url)
{
	static const char *const parameters[] = {
		"password=", "token=", "secret=", "scram_client_key=", "scram_server_key="
	};
	const char *authority = strstr(url, "://") + 3;
	const char *at = memchr(authority, '@', strcspn(authority, "/"));

	for (const char *c = authority; at != NULL && c < at; c++)
		if (spells(c, ":"))
			return true;
	for (; *url != '\0'; url++)
		for (size_t i = 0; i < lengthof(parameters); i++)
			if (spells(url, parameters[i]))
				return true;
	return false;
}

/* Is this "address:" followed by a possible name of an interface? */
static bool
names_interface(const char *text)
{
	size_t		before = strlen("address:");
	size_t		length = strlen(text);

	return pg_strncasecmp(text, "address:", before) == 0 &&
		length > before && length < before + IFNAMSIZ &&
		strcspn(text, " \t\"'/") == length;
}

/*
 * Parse a value of snowflake.node_source.  Returns NULL, or a sentence that says what is
 * wrong, which does not repeat the value, because it may have a password.
 */
static const char *
parse_node_source(const char *text, SnowflakeNodeSource *source)
{
	if (pg_strcasecmp(text, "setting") == 0)
		*source = NODE_FROM_SETTING;
	else if (pg_strcasecmp(text, "hostname") == 0)
		*source = NODE_FROM_HOSTNAME;
	else if (pg_strcasecmp(text, "address") == 0 || names_interface(text))
		*source = NODE_FROM_ADDRESS;
	else if (snowflake_node_settings_coordinator(text) == NULL)
		return "It must be setting, hostname, address, address:interface, or the URL of a coordinator, such as postgresql://host/database.";
	else if (has_password(text))
		return "The URL has a password, which others could read here. It belongs in a file that only the server can read, named by the parameter passfile.";
	else
		*source = NODE_FROM_LEASE;
	return NULL;
}

/* Keep the result of a check for the assignment. */
static bool
keep(void **extra, const void *result, size_t size)
{
	*extra = guc_malloc(LOG, size);
	if (*extra == NULL)
		return false;
	memcpy(*extra, result, size);
	return true;
}

/*
 * Refuse a node ID that the layout cannot hold.  While the server starts, and in parallel
 * workers, the layout may not have its value yet, and a server that does not start is worse
 * than one that does not mint: then the keeper leaves the gate closed.
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

static bool
check_node_source(char **newval, void **extra, GucSource source)
{
	SnowflakeNodeSource parsed;
	const char *complaint = parse_node_source(*newval, &parsed);

	if (complaint != NULL)
	{
		GUC_check_errmsg("invalid value for parameter \"%s\"", "snowflake.node_source");
		GUC_check_errdetail("%s", complaint);
		return false;
	}
	return keep(extra, &parsed, sizeof(parsed));
}

static void
assign_node_source(const char *newval, void *extra)
{
	memcpy(&snowflake_node_source, extra, sizeof(snowflake_node_source));
}

/* Check a list of ranges of node IDs, such as "0-63, 100". */
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
			GUC_check_errdetail("It must be a list of up to %d node IDs or ranges of node IDs.",
								(int) lengthof(ranges.ranges));
			GUC_check_errhint("An example is 0-63, 100. If it is empty, all node IDs of the layout may be leased.");
			return false;
		}
		ranges.ranges[ranges.count].first = (int32) first;
		ranges.ranges[ranges.count].last = (int32) last;
		ranges.count++;
		c = end;
	}

	return keep(extra, &ranges, sizeof(ranges));
}

static void
assign_lease_nodes(const char *newval, void *extra)
{
	lease_nodes = extra;
}

/* Returns the smallest node ID from this one on that may be leased, or -1. */
int32
snowflake_node_settings_next_lease(int32 node)
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

/* Returns the length of a lease in ticks: at least two, so that it is renewed before its end. */
int64
snowflake_node_settings_lease_ticks(void)
{
	return Max(2, snowflake_lease_ms * INT64CONST(1000) / snowflake_server_layout.tick_usec);
}

/*
 * Refuse to start with an invalid source of node IDs in the configuration file:
 * with the default in its place, a server could mint with a number that is meant to
 * be added to another.
 */
static void
check_configured_node_source(void)
{
	const char *configured = GetConfigOption("snowflake.node_source", true, false);
	SnowflakeNodeSource source;
	const char *complaint;

	if (configured == NULL)
		return;
	complaint = parse_node_source(configured, &source);
	if (complaint != NULL)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid value for parameter \"%s\"", "snowflake.node_source"),
				errdetail_internal("%s", complaint));
}

/* Define the settings.  The layout's must be defined before, since the checks use it. */
void
snowflake_node_settings_init(void)
{
	if (process_shared_preload_libraries_in_progress)
		check_configured_node_source();

	DefineCustomIntVariable("snowflake.node_id",
							"Sets this server's node ID.",
							"No two servers that mint may have the same node ID. -1 means that it is unset, and nothing is minted.",
							&snowflake_node_id,
							-1, -1, INT_MAX,
							PGC_SIGHUP, 0,
							check_node_id, NULL, NULL);
	DefineCustomStringVariable("snowflake.node_source",
							   "Sets where the node ID comes from.",
							   "It is setting (snowflake.node_id), hostname, address, address:interface, or the URL of a coordinator that leases node IDs.",
							   &snowflake_node_source_text,
							   "setting",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_node_source, assign_node_source, NULL);
	DefineCustomStringVariable("snowflake.lease_nodes",
							   "Sets which node IDs may be leased.",
							   "It is a list of node IDs and ranges, such as 0-63. If it is empty, all node IDs of the layout may be leased.",
							   &lease_nodes_text,
							   "",
							   PGC_SIGHUP, 0,
							   check_lease_nodes, assign_lease_nodes, NULL);
	DefineCustomIntVariable("snowflake.lease",
							"Sets for how long a node ID is leased.",
							"The lease is renewed when half of it is left. Without the coordinator, minting continues until the lease ends.",
							&snowflake_lease_ms,
							600 * 1000, 1000, 24 * 60 * 60 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
}
