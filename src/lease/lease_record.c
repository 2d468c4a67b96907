/*-------------------------------------------------------------------------
 *
 * lease_record.c
 *	  The records of a fleet, as its coordinator keeps them.
 *
 * A record is a JSON object, so that people can read it wherever it is kept.
 * Ticks are those of the fleet's layout.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/builtins.h"
#include "utils/json.h"

#include "base/clock.h"
#include "base/compat.h"
#include "coordinator/json.h"
#include "layout/server_layout.h"
#include "lease/lease.h"
#include "lease/node_settings.h"

/* Readers would take a longer record for a damaged one. */
StaticAssertDecl(SNOWFLAKE_VALUE_SIZE > SNOWFLAKE_LAYOUT_TEXT_SIZE + SNOWFLAKE_HOLDER_SIZE +
				 SNOWFLAKE_CLUSTER_SIZE + 2 * SNOWFLAKE_NONCE_SIZE + 3 * 20 + 256,
				 "a fleet's record may be too long");

/* Sets "nonce", of SNOWFLAKE_NONCE_SIZE bytes, to a random number that was never used before. */
void
snowflake_lease_record_nonce(char *nonce)
{
	uint8		bytes[(SNOWFLAKE_NONCE_SIZE - 1) / 2];
	int64		now;

	if (!pg_strong_random(bytes, sizeof(bytes)))
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not generate a random number"));

	/* two copies of a virtual machine may get the same random numbers */
	now = snowflake_clock_wall() ^ (int64) MyProcPid << 48;
	for (size_t i = 0; i < sizeof(now); i++)
		bytes[i] ^= (uint8) (now >> (8 * i));
	hex_encode((const char *) bytes, sizeof(bytes), nonce);
	nonce[SNOWFLAKE_NONCE_SIZE - 1] = '\0';
}

/*
 * Sets "name", of SNOWFLAKE_HOLDER_SIZE bytes, to this server's name, under which it
 * recognizes the node ID that it had before.  It has the data directory in it because
 * servers of one host that have only sockets may have the same port.
 */
void
snowflake_lease_record_own_name(char *name)
{
	char		host[256];

	if (gethostname(host, sizeof(host)) != 0)
		host[0] = '\0';
	host[sizeof(host) - 1] = '\0';
	snprintf(name, SNOWFLAKE_HOLDER_SIZE, "%s:%d %s", host, PostPortNumber, DataDir);
	for (char *c = name; *c != '\0'; c++)
		if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
			*c = '?';
}

/*
 * Parse a value as an object, or return NULL.  Records consist of printable
 * ASCII characters without escapes, and are short: any other value is not even
 * parsed, so encodings do not matter.
 *
 * This switches to a memory context of its own, which the caller deletes: a list may have
 * 65,536 records, and one that was tampered with takes a hundred times its length.
 */
static JsonbContainer *
parse_object(const char *value)
{
	JsonbContainer *json;
	int			sqlstate;

	MemoryContextSwitchTo(AllocSetContextCreate(CurrentMemoryContext, "snowflake record",
												ALLOCSET_SMALL_SIZES));
	if (strlen(value) >= SNOWFLAKE_VALUE_SIZE)
		return NULL;
	for (const char *c = value; *c != '\0'; c++)
		if (*c < ' ' || *c > '~' || *c == '\\')
			return NULL;
	json = snowflake_json_parse(value, &sqlstate);
	return json != NULL && JsonContainerIsObject(json) ? json : NULL;
}

static void
end_parsing(MemoryContext before)
{
	MemoryContextDelete(MemoryContextSwitchTo(before));
}

static bool
get_text(JsonbContainer *object, const char *name, char *text, size_t size)
{
	JsonbValue	found;

	if (!snowflake_json_get(object, name, &found) || found.type != jbvString ||
		found.val.string.len >= (int) size)
		return false;
	memcpy(text, found.val.string.val, found.val.string.len);
	text[found.val.string.len] = '\0';
	return true;
}

static bool
get_number(JsonbContainer *object, const char *name, int64 least, int64 most, int64 *number)
{
	JsonbValue	found;

	return snowflake_json_get(object, name, &found) && found.type == jbvNumeric &&
		snowflake_json_integer(found.val.numeric, least, most, number);
}

/* Parse the record of the fleet.  Returns false if the value is not one. */
bool
snowflake_lease_record_parse_fleet(const char *value, SnowflakeFleet *fleet)
{
	MemoryContext before = CurrentMemoryContext;
	JsonbContainer *object = parse_object(value);
	int64		max_tick = snowflake_server_layout.max_tick;
	JsonbValue	suspect;
	bool		is_fleet =
	get_text(object, "incarnation", fleet->incarnation, SNOWFLAKE_NONCE_SIZE) &&
	get_text(object, "nonce", fleet->nonce, SNOWFLAKE_NONCE_SIZE) &&
	get_text(object, "layout", fleet->layout, SNOWFLAKE_LAYOUT_TEXT_SIZE) &&
	get_number(object, "floor", 0, max_tick, &fleet->floor) &&
	get_number(object, "reported", 0, max_tick, &fleet->reported) &&
	get_text(object, "reporter", fleet->reporter, SNOWFLAKE_HOLDER_SIZE) &&
	get_text(object, "cluster", fleet->cluster, SNOWFLAKE_CLUSTER_SIZE) &&
	get_number(object, "term", 0, PG_INT64_MAX, &fleet->term) &&
	get_number(object, "since", 0, PG_INT64_MAX, &fleet->since) &&
	snowflake_json_get(object, "suspect", &suspect) && suspect.type == jbvBool;

	fleet->value = value;
	if (is_fleet)
		fleet->suspect = suspect.val.boolean;
	end_parsing(before);
	return is_fleet;
}

/* Is the fleet's record one of another layout?  Its ticks may not exist in ours. */
bool
snowflake_lease_record_has_other_layout(const char *value)
{
	MemoryContext before = CurrentMemoryContext;
	char		layout[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	bool		is_other = get_text(parse_object(value), "layout", layout, sizeof(layout)) &&
	!snowflake_lease_record_is_own_layout(layout);

	end_parsing(before);
	return is_other;
}

/* Is this the layout of this server? */
bool
snowflake_lease_record_is_own_layout(const char *layout)
{
	char		own[SNOWFLAKE_LAYOUT_TEXT_SIZE];

	snowflake_layout_print(&snowflake_server_layout, own, sizeof(own));
	return strcmp(layout, own) == 0;
}

/* Returns the value of the fleet's record, with a new nonce. */
char *
snowflake_lease_record_print_fleet(SnowflakeFleet *fleet)
{
	StringInfoData value;

	snowflake_lease_record_nonce(fleet->nonce);
	initStringInfo(&value);
	appendStringInfo(&value, "{\"layout\": \"%s\", \"floor\": " INT64_FORMAT ", \"suspect\": %s,"
					 " \"reported\": " INT64_FORMAT ", \"reporter\": ",
					 fleet->layout, fleet->floor, fleet->suspect ? "true" : "false",
					 fleet->reported);
	escape_json(&value, fleet->reporter);
	appendStringInfo(&value, ", \"cluster\": \"%s\", \"term\": " INT64_FORMAT ", \"since\": " INT64_FORMAT ","
					 " \"incarnation\": \"%s\", \"nonce\": \"%s\"}",
					 fleet->cluster, fleet->term, fleet->since, fleet->incarnation, fleet->nonce);
	return value.data;
}

/* Parse the record of a node ID.  Returns false if the value is not one. */
bool
snowflake_lease_record_parse(const char *value, SnowflakeLeaseRecord *parsed)
{
	MemoryContext before = CurrentMemoryContext;
	JsonbContainer *object = parse_object(value);
	int64		max_tick = snowflake_server_layout.max_tick;
	bool		is_node =
	get_text(object, "holder", parsed->holder, SNOWFLAKE_HOLDER_SIZE) &&
	get_text(object, "token", parsed->token, SNOWFLAKE_NONCE_SIZE) &&
	get_text(object, "nonce", parsed->nonce, SNOWFLAKE_NONCE_SIZE) &&
	get_number(object, "granted", -1, max_tick, &parsed->granted) &&
	get_number(object, "from", 1, max_tick, &parsed->from) &&
	get_number(object, "until", parsed->from - 1, max_tick, &parsed->until);

	end_parsing(before);
	return is_node;
}

/* Returns the value of a node's record, which has a new nonce. */
char *
snowflake_lease_record_print(const SnowflakeLeaseRecord *parsed)
{
	StringInfoData value;

	initStringInfo(&value);
	appendStringInfoString(&value, "{\"holder\": ");
	escape_json(&value, parsed->holder);
	appendStringInfo(&value,
					 ", \"granted\": " INT64_FORMAT ", \"from\": " INT64_FORMAT
					 ", \"until\": " INT64_FORMAT ", \"token\": \"%s\", \"nonce\": \"%s\"}",
					 parsed->granted, parsed->from, parsed->until,
					 parsed->token, parsed->nonce);
	return value.data;
}

/* Returns the key of a node's record. */
char *
snowflake_lease_record_key(int32 node)
{
	return psprintf("node/%d", node);
}

/* Returns the node ID of a key, or -1. */
int32
snowflake_lease_record_node(const char *key)
{
	char	   *end;
	long		node;

	if (strncmp(key, "node/", 5) != 0 || key[5] < '0' || key[5] > '9')
		return -1;
	errno = 0;
	node = strtol(key + 5, &end, 10);
	return errno != 0 || *end != '\0' || node > PG_INT32_MAX ||
		(key[5] == '0' && key[6] != '\0') ? -1 : (int32) node;
}

/* Returns the record with the given key as the coordinator has it, or NULL. */
const SnowflakeRecord *
snowflake_lease_record_read(SnowflakeCoordinator *coordinator, const char *key)
{
	ListCell   *cell;

	foreach(cell, coordinator->list(coordinator, key))
	{
		const SnowflakeRecord *record = lfirst(cell);

		if (strcmp(record->key, key) == 0)
			return record;
	}
	return NULL;
}

/* Connect to the coordinator of snowflake.node_source, which may take so long to answer. */
SnowflakeCoordinator *
snowflake_lease_record_connect(int64 usec)
{
	char	   *library = psprintf("$libdir/snowflake_%s",
								   snowflake_node_settings_coordinator(snowflake_node_source_text));
	SnowflakeCoordinatorConnect connect = (SnowflakeCoordinatorConnect)
	load_external_function(library, "snowflake_coordinator_connect", true, NULL);

	return connect(snowflake_node_source_text, snowflake_clock_monotonic_usec() + usec);
}
