/*-------------------------------------------------------------------------
 *
 * fleet.c
 *	  The records of a fleet, as its coordinator keeps them, and what an
 *	  administrator does with them.
 *
 * A record is a JSON object, so that people can read it wherever it is kept.
 * Ticks are those of the fleet's layout.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "clock.h"
#include "compat.h"
#include "fleet.h"
#include "generator.h"
#include "grant.h"
#include "node_source.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowflake_fleet_create);
PG_FUNCTION_INFO_V1(snowflake_fleet_recover);
PG_FUNCTION_INFO_V1(snowflake_fleet);

/* How long an administrator's function waits for the coordinator. */
#define ANSWER_USEC		(30 * USECS_PER_SEC)

/* Node records that were changed by somebody else meanwhile are read again. */
#define ROUNDS			10

/*
 * Records
 */

/* A random number that was never used before, as text. */
void
snowflake_nonce(char *nonce)
{
	uint8		bytes[(SNOWFLAKE_NONCE_SIZE - 1) / 2];
	int64		now;

	if (!pg_strong_random(bytes, sizeof(bytes)))
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not generate a random number"));

	/* two copies of a virtual machine may have the same numbers to come */
	now = snowflake_wall_clock() ^ (int64) MyProcPid << 48;
	for (size_t i = 0; i < sizeof(now); i++)
		bytes[i] ^= (uint8) (now >> (8 * i));
	hex_encode((const char *) bytes, sizeof(bytes), nonce);
	nonce[SNOWFLAKE_NONCE_SIZE - 1] = '\0';
}

/*
 * Parse a value as an object, or return NULL.  Records are of printable ASCII
 * characters without escapes, and not long: what somebody else has written to them
 * is not even parsed, so that no encoding matters.
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

/* A tick: no fraction, and what the layout can have, or -1 for none. */
static bool
get_tick(JsonbContainer *object, const char *name, int64 *tick)
{
	JsonbValue	found;
	char	   *text,
			   *end;

	if (!get(object, name, jbvNumeric, &found))
		return false;
	text = numeric_normalize(found.val.numeric);
	errno = 0;
	*tick = strtoi64(text, &end, 10);
	return errno == 0 && *end == '\0' && *tick >= -1 &&
		*tick <= snowflake_server_layout.max_tick;
}

/* Parse the record of the fleet.  False if it is none. */
bool
snowflake_fleet_parse(const char *value, SnowflakeFleet *fleet)
{
	JsonbContainer *object = parse_object(value);
	JsonbValue	suspect;

	if (object == NULL ||
		!get_text(object, "incarnation", fleet->incarnation, SNOWFLAKE_NONCE_SIZE) ||
		!get_text(object, "nonce", fleet->nonce, SNOWFLAKE_NONCE_SIZE) ||
		!get_text(object, "layout", fleet->layout, SNOWFLAKE_LAYOUT_TEXT_SIZE) ||
		!get_tick(object, "floor", &fleet->floor) || fleet->floor < 0 ||
		!get(object, "suspect", jbvBool, &suspect))
		return false;
	fleet->suspect = suspect.val.boolean;
	return true;
}

/* The value of the fleet's record, with a new nonce. */
char *
snowflake_fleet_print(SnowflakeFleet *fleet)
{
	snowflake_nonce(fleet->nonce);
	return psprintf("{\"layout\": \"%s\", \"floor\": " INT64_FORMAT ", \"suspect\": %s,"
					" \"incarnation\": \"%s\", \"nonce\": \"%s\"}",
					fleet->layout, fleet->floor, fleet->suspect ? "true" : "false",
					fleet->incarnation, fleet->nonce);
}

/* Parse the record of a node ID.  False if it is none. */
bool
snowflake_holding_parse(const char *value, SnowflakeHolding *holding)
{
	JsonbContainer *object = parse_object(value);

	return object != NULL &&
		get_text(object, "holder", holding->holder, SNOWFLAKE_HOLDER_SIZE) &&
		get_text(object, "token", holding->token, SNOWFLAKE_NONCE_SIZE) &&
		get_text(object, "nonce", holding->nonce, SNOWFLAKE_NONCE_SIZE) &&
		get_text(object, "incarnation", holding->incarnation, SNOWFLAKE_NONCE_SIZE) &&
		get_tick(object, "granted", &holding->granted) &&
		get_tick(object, "from", &holding->from) &&
		get_tick(object, "until", &holding->until) &&
		holding->from >= 1 && holding->until >= holding->from - 1;
}

/* The value of a node's record.  The caller has given it a nonce. */
char *
snowflake_holding_print(const SnowflakeHolding *holding)
{
	StringInfoData value;

	initStringInfo(&value);
	appendStringInfoString(&value, "{\"holder\": ");
	escape_json(&value, holding->holder);
	appendStringInfo(&value,
					 ", \"granted\": " INT64_FORMAT ", \"from\": " INT64_FORMAT
					 ", \"until\": " INT64_FORMAT ", \"incarnation\": \"%s\""
					 ", \"token\": \"%s\", \"nonce\": \"%s\"}",
					 holding->granted, holding->from, holding->until,
					 holding->incarnation, holding->token, holding->nonce);
	return value.data;
}

/* The key of a node's record. */
char *
snowflake_node_key(int32 node)
{
	return psprintf("node/%d", node);
}

/* The node of a key, or -1. */
int32
snowflake_node_of_key(const char *key)
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

/* The record with a key, or NULL. */
const SnowflakeRecord *
snowflake_find_record(List *records, const char *key)
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
snowflake_load_coordinator(void)
{
	char	   *library = psprintf("$libdir/snowflake_%s",
								   snowflake_coordinator_kind(snowflake_node_source_text));
	SnowflakeCoordinatorInit init;

	init = (SnowflakeCoordinatorInit)
		load_external_function(library, SNOWFLAKE_COORDINATOR_INIT, true, NULL);
	return init();
}


/*
 * Administrators
 */

typedef struct FleetSession
{
	const SnowflakeCoordinator *coordinator;
	void	   *connection;
} FleetSession;

static FleetSession
begin_session(const char *function)
{
	FleetSession session;

	snowflake_require_generator(function);
	if (snowflake_node_source != NODE_FROM_LEASE)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("%s needs a coordinator", function),
				errdetail("The setting snowflake.node_source is \"%s\".",
						  snowflake_node_source_name()),
				errhint("Set snowflake.node_source to the URL of a coordinator, such as postgresql://host/database, and reload the configuration."));
	session.coordinator = snowflake_load_coordinator();
	session.connection = session.coordinator->connect(snowflake_node_source_text,
													  snowflake_monotonic_usec() + ANSWER_USEC);
	return session;
}

static void
end_session(FleetSession *session)
{
	session->coordinator->close(session->connection);
}

/* The highest tick that this server knows of: of its clock, its IDs, its lease. */
static int64
highest_known_tick(void)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	SnowflakeView view;
	SnowflakeLeaseView lease;
	int64		tick = snowflake_tick_at(layout, snowflake_corrected_clock());

	snowflake_generator_view(&view);
	snowflake_lease_view(&lease);
	tick = Max(tick, snowflake_position_tick(layout, view.highest));
	return lease.grant == 0 ? tick : Max(tick, lease.until);
}

/* An error if nothing could be granted above a floor. */
static void
check_floor(int64 floor)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	if (floor < 0 || floor >= layout->max_tick)
		ereport(ERROR,
				errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				errmsg("the floor of a fleet must be within its layout"),
				errdetail("The layout has times from \"%s\" to \"%s\".",
						  pstrdup(timestamptz_to_str(layout->epoch)),
						  pstrdup(timestamptz_to_str(snowflake_tick_start(layout, layout->max_tick)))));
}

/*
 * Found a fleet: from then on its coordinator grants node IDs.  Nothing is granted
 * before this moment, or the newest ID of this server.
 */
Datum
snowflake_fleet_create(PG_FUNCTION_ARGS)
{
	FleetSession session = begin_session("snowflake_fleet_create()");
	SnowflakeFleet fleet = {0};

	snowflake_nonce(fleet.incarnation);
	snowflake_layout_print(&snowflake_server_layout, fleet.layout, sizeof(fleet.layout));
	fleet.floor = Max(highest_known_tick(), 0);
	check_floor(fleet.floor);

	session.coordinator->prepare(session.connection);
	if (!session.coordinator->compare_and_set(session.connection, SNOWFLAKE_FLEET_KEY,
											  NULL, snowflake_fleet_print(&fleet)))
		ereport(ERROR,
				errcode(ERRCODE_DUPLICATE_OBJECT),
				errmsg("the coordinator has a snowflake fleet already"),
				errhint("If it has lost data, use snowflake_fleet_recover()."));
	end_session(&session);
	PG_RETURN_VOID();
}

/* Write the fleet's record in place of another value.  Returns the new one. */
static char *
write_fleet(FleetSession *session, SnowflakeFleet *fleet, const char *expected)
{
	char	   *value = snowflake_fleet_print(fleet);

	if (!session->coordinator->compare_and_set(session->connection, SNOWFLAKE_FLEET_KEY,
											   expected, value))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("the record of the snowflake fleet was changed by somebody else meanwhile"),
				errhint("Try again."));
	return value;
}

/*
 * Give every node's record the new incarnation, so that nobody renews a grant
 * from before: its next renewal fails.  What is damaged is replaced by a record
 * that the floor makes harmless.
 */
static void
renounce_grants(FleetSession *session, const SnowflakeFleet *fleet)
{
	for (int round = 0; round < ROUNDS; round++)
	{
		List	   *records = session->coordinator->list(session->connection, NULL);
		bool		done = true;
		ListCell   *cell;

		foreach(cell, records)
		{
			const SnowflakeRecord *record = lfirst(cell);
			SnowflakeHolding holding;

			CHECK_FOR_INTERRUPTS();
			if (snowflake_node_of_key(record->key) < 0)
				continue;
			if (!snowflake_holding_parse(record->value, &holding))
			{
				memset(&holding, 0, sizeof(holding));
				holding.until = fleet->floor;
				holding.from = fleet->floor + 1;
			}
			else if (strcmp(holding.incarnation, fleet->incarnation) == 0)
				continue;
			strlcpy(holding.incarnation, fleet->incarnation, SNOWFLAKE_NONCE_SIZE);
			snowflake_nonce(holding.nonce);
			if (!session->coordinator->compare_and_set(session->connection,
													   record->key, record->value,
													   snowflake_holding_print(&holding)))
				done = false;
		}
		if (done)
			return;
	}
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_IN_USE),
			errmsg("could not write the records of the snowflake fleet in %d attempts: others change them as well",
				   ROUNDS),
			errhint("Try again."));
}

/*
 * Found the fleet again, after its coordinator has lost data, with a floor above
 * all that can have been granted: by default a lease after our clock, and above
 * all that this server knows of, and not below what it was.  A server that gave up its
 * lease may have raised it: then no lower one is taken.
 *
 * While this is being done, and if it is not done to the end, nothing is granted.
 */
Datum
snowflake_fleet_recover(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	FleetSession session = begin_session("snowflake_fleet_recover()");
	SnowflakeFleet fleet = {0};
	SnowflakeFleet before = {0};
	const SnowflakeRecord *record;
	char	   *value;

	session.coordinator->prepare(session.connection);
	record = snowflake_find_record(session.coordinator->list(session.connection,
															 SNOWFLAKE_FLEET_KEY),
								   SNOWFLAKE_FLEET_KEY);
	if (record == NULL || !snowflake_fleet_parse(record->value, &before))
		memset(&before, 0, sizeof(before));
	if (PG_ARGISNULL(0))
		fleet.floor = Max(before.floor, Max(snowflake_tick_at(layout, snowflake_corrected_clock() +
															  snowflake_lease_ms * INT64CONST(1000)),
											highest_known_tick()));
	else
		fleet.floor = snowflake_tick_at(layout, PG_GETARG_TIMESTAMPTZ(0));
	check_floor(fleet.floor);
	if (before.suspect && fleet.floor < before.floor)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("the floor of the fleet is too low"),
				errdetail("A server that gave up its lease has raised it to \"%s\".",
						  timestamptz_to_str(snowflake_tick_start(layout, before.floor))));

	snowflake_nonce(fleet.incarnation);
	snowflake_layout_print(layout, fleet.layout, sizeof(fleet.layout));
	fleet.suspect = true;
	value = write_fleet(&session, &fleet, record == NULL ? NULL : record->value);
	renounce_grants(&session, &fleet);
	fleet.suspect = false;
	(void) write_fleet(&session, &fleet, value);
	end_session(&session);
	PG_RETURN_VOID();
}

/* A time as a column, or null for what the layout does not have. */
static Datum
time_of(int64 tick, bool *null)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	*null = tick < 0 || tick > layout->max_tick;
	return TimestampTzGetDatum(*null ? 0 : snowflake_tick_start(layout, tick));
}

/* The fleet's record, as a row without a node, and those of all node IDs. */
Datum
snowflake_fleet(PG_FUNCTION_ARGS)
{
	enum
	{
		NODE, HOLDER, SINCE, LEASED_FROM, LEASED_UNTIL, STATE, COLUMNS
	};
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	FleetSession session = begin_session("snowflake_fleet()");
	List	   *records = session.coordinator->list(session.connection, NULL);
	ListCell   *cell;

	end_session(&session);
	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, records)
	{
		const SnowflakeRecord *record = lfirst(cell);
		int32		node = snowflake_node_of_key(record->key);
		Datum		values[COLUMNS] = {0};
		bool		nulls[COLUMNS];
		SnowflakeFleet fleet;
		SnowflakeHolding holding;
		const char *state = "damaged";

		memset(nulls, true, sizeof(nulls));
		if (node >= 0)
		{
			values[NODE] = Int32GetDatum(node);
			nulls[NODE] = false;
			if (snowflake_holding_parse(record->value, &holding))
			{
				values[HOLDER] = CStringGetTextDatum(holding.holder);
				nulls[HOLDER] = false;
				values[SINCE] = time_of(holding.granted, &nulls[SINCE]);
				values[LEASED_FROM] = time_of(holding.from, &nulls[LEASED_FROM]);
				values[LEASED_UNTIL] = time_of(holding.until, &nulls[LEASED_UNTIL]);
				state = holding.until < snowflake_tick_at(&snowflake_server_layout,
														  snowflake_corrected_clock()) ?
					"free" : "leased";
			}
		}
		else if (strcmp(record->key, SNOWFLAKE_FLEET_KEY) != 0)
			continue;
		else if (snowflake_fleet_parse(record->value, &fleet))
		{
			values[HOLDER] = CStringGetTextDatum(fleet.layout);
			nulls[HOLDER] = false;
			values[LEASED_FROM] = time_of(fleet.floor, &nulls[LEASED_FROM]);
			state = fleet.suspect ? "fleet, grants nothing until snowflake_fleet_recover()" : "fleet";
		}
		values[STATE] = CStringGetTextDatum(state);
		nulls[STATE] = false;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
