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
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "base/clock.h"
#include "base/compat.h"
#include "layout/server_layout.h"
#include "lease/lease_record.h"
#include "lease/node_settings.h"

/* Readers would take a longer record for a damaged one. */
StaticAssertDecl(SNOWFLAKE_VALUE_SIZE > SNOWFLAKE_LAYOUT_TEXT_SIZE + SNOWFLAKE_HOLDER_SIZE +
				 SNOWFLAKE_CLUSTER_SIZE + 2 * SNOWFLAKE_NONCE_SIZE + 3 * 20 + 256,
				 "a fleet's record may be too long");

/*
 * Sets "nonce", of SNOWFLAKE_NONCE_SIZE bytes, to a random number that was never used before, as
 * text.
 */
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
 */
static JsonbContainer *
parse_object(const char *value)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *volatile jsonb = NULL;

	if (strlen(value) >= SNOWFLAKE_VALUE_SIZE)
		return NULL;
	for (const char *c = value; *c != '\0'; c++)
		if (*c < ' ' || *c > '~' || *c == '\\')
			return NULL;

	PG_TRY();
	{
		jsonb = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(value)));
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_DATA_EXCEPTION &&
			ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_PROGRAM_LIMIT_EXCEEDED)
			PG_RE_THROW();
		FlushErrorState();
	}
	PG_END_TRY();
	return jsonb != NULL && JB_ROOT_IS_OBJECT(jsonb) ? &jsonb->root : NULL;
}

/*
 * The memory for parsing is freed after each record: a list may have 65,536 of them,
 * and one that was tampered with takes a hundred times its length.
 */
static MemoryContext
begin_parsing(void)
{
	return MemoryContextSwitchTo(AllocSetContextCreate(CurrentMemoryContext, "snowflake record",
													   ALLOCSET_SMALL_SIZES));
}

/* "before" is what begin_parsing() has returned. */
static void
end_parsing(MemoryContext before)
{
	MemoryContextDelete(MemoryContextSwitchTo(before));
}

static bool
get(JsonbContainer *object, const char *name, enum jbvType type, JsonbValue *found)
{
	return getKeyJsonValueFromContainer(object, name, strlen(name), found) != NULL &&
		found->type == type;
}

static bool
get_text(JsonbContainer *object, const char *name, char *text, size_t size)
{
	JsonbValue	found;

	if (!get(object, name, jbvString, &found) ||
		found.val.string.len >= (int) size)
		return false;
	memcpy(text, found.val.string.val, found.val.string.len);
	text[found.val.string.len] = '\0';
	return true;
}

static int
compare_number(Datum number, int64 other)
{
	return DatumGetInt32(DirectFunctionCall2(numeric_cmp, number,
											 NumericGetDatum(int64_to_numeric(other))));
}

/*
 * Get a number from -1 to "most", without a fraction.  It is not converted to a text,
 * which could have 131,072 digits.
 */
static bool
get_number(JsonbContainer *object, const char *name, int64 most, int64 *number)
{
	JsonbValue	found;
	Datum		datum;

	if (!get(object, name, jbvNumeric, &found))
		return false;
	datum = NumericGetDatum(found.val.numeric);
	if (compare_number(datum, -1) < 0 || compare_number(datum, most) > 0)
		return false;
	*number = DatumGetInt64(DirectFunctionCall1(numeric_int8, datum));
	return compare_number(datum, *number) == 0;
}

/* Get a tick: one that the layout can have, or -1 for none. */
static bool
get_tick(JsonbContainer *object, const char *name, int64 *tick)
{
	return get_number(object, name, snowflake_server_layout.max_tick, tick);
}

static bool
parse_fleet(const char *value, SnowflakeFleet *fleet)
{
	JsonbContainer *object = parse_object(value);
	JsonbValue	suspect;

	if (object == NULL ||
		!get_text(object, "incarnation", fleet->incarnation, SNOWFLAKE_NONCE_SIZE) ||
		!get_text(object, "nonce", fleet->nonce, SNOWFLAKE_NONCE_SIZE) ||
		!get_text(object, "layout", fleet->layout, SNOWFLAKE_LAYOUT_TEXT_SIZE) ||
		!get_tick(object, "floor", &fleet->floor) || fleet->floor < 0 ||
		!get_tick(object, "reported", &fleet->reported) || fleet->reported < 0 ||
		!get_text(object, "reporter", fleet->reporter, SNOWFLAKE_HOLDER_SIZE) ||
		!get_text(object, "cluster", fleet->cluster, SNOWFLAKE_CLUSTER_SIZE) ||
		!get_number(object, "term", PG_INT64_MAX, &fleet->term) || fleet->term < 0 ||
		!get_number(object, "since", PG_INT64_MAX, &fleet->since) || fleet->since < 0 ||
		!get(object, "suspect", jbvBool, &suspect))
		return false;
	fleet->suspect = suspect.val.boolean;
	return true;
}

/* Parse the record of the fleet.  Returns false if the value is not one. */
bool
snowflake_lease_record_parse_fleet(const char *value, SnowflakeFleet *fleet)
{
	MemoryContext before = begin_parsing();
	bool		is_fleet = parse_fleet(value, fleet);

	end_parsing(before);
	return is_fleet;
}

/*
 * Is the fleet's record one of another layout?  Its ticks may not exist in ours, which
 * does not mean that it is damaged.
 */
bool
snowflake_lease_record_has_other_layout(const char *value)
{
	MemoryContext before = begin_parsing();
	JsonbContainer *object = parse_object(value);
	char		layout[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	char		own[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	bool		is_other;

	snowflake_layout_print(&snowflake_server_layout, own, sizeof(own));
	is_other = object != NULL && get_text(object, "layout", layout, sizeof(layout)) &&
		strcmp(layout, own) != 0;
	end_parsing(before);
	return is_other;
}

/* Returns the value of the fleet's record, with a new nonce, in the current memory context. */
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

static bool
parse_node(const char *value, SnowflakeLeaseRecord *parsed)
{
	JsonbContainer *object = parse_object(value);

	return object != NULL &&
		get_text(object, "holder", parsed->holder, SNOWFLAKE_HOLDER_SIZE) &&
		get_text(object, "token", parsed->token, SNOWFLAKE_NONCE_SIZE) &&
		get_text(object, "nonce", parsed->nonce, SNOWFLAKE_NONCE_SIZE) &&
		get_tick(object, "granted", &parsed->granted) &&
		get_tick(object, "from", &parsed->from) &&
		get_tick(object, "until", &parsed->until) &&
		parsed->from >= 1 && parsed->until >= parsed->from - 1;
}

/* Parse the record of a node ID.  Returns false if the value is not one. */
bool
snowflake_lease_record_parse(const char *value, SnowflakeLeaseRecord *parsed)
{
	MemoryContext before = begin_parsing();
	bool		is_node = parse_node(value, parsed);

	end_parsing(before);
	return is_node;
}

/*
 * Returns the value of a node's record, in the current memory context.  The caller has given it a
 * nonce.
 */
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

/* Returns the key of a node's record, in the current memory context. */
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
	if (errno != 0 || *end != '\0' || node > PG_INT32_MAX ||
		(key[5] == '0' && key[6] != '\0'))
		return -1;
	return (int32) node;
}

/* Returns the record with the given key, or NULL. */
const SnowflakeRecord *
snowflake_lease_record_find(List *records, const char *key)
{
	ListCell   *cell;

	foreach(cell, records)
	{
		const SnowflakeRecord *record = lfirst(cell);

		if (strcmp(record->key, key) == 0)
			return record;
	}
	return NULL;
}

/* Load the module of the coordinator that snowflake.node_source names. */
const SnowflakeCoordinator *
snowflake_lease_record_load_coordinator(void)
{
	char	   *library = psprintf("$libdir/snowflake_%s",
								   snowflake_node_settings_coordinator(snowflake_node_source_text));
	SnowflakeCoordinatorInit init;

	init = (SnowflakeCoordinatorInit)
		load_external_function(library, SNOWFLAKE_COORDINATOR_INIT, true, NULL);
	return init();
}
