/*-------------------------------------------------------------------------
 *
 * fleet.c
 *	  What an administrator does with a fleet: found it, found it again after a
 *	  loss, look at it.
 *
 * The script revokes the functions from everybody.  Each loads the module of the
 * coordinator into the session that calls it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/clock.h"
#include "base/compat.h"
#include "generator/generator.h"
#include "layout/server_layout.h"
#include "lease/lease_record.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"
#include "lease/node_source.h"

PG_FUNCTION_INFO_V1(snowflake_fleet_create);
PG_FUNCTION_INFO_V1(snowflake_fleet_recover);
PG_FUNCTION_INFO_V1(snowflake_fleet);

/* How long an administrator's function waits for the coordinator. */
#define ANSWER_USEC		(30 * USECS_PER_SEC)

typedef struct FleetSession
{
	const SnowflakeCoordinator *coordinator;
	void	   *connection;
} FleetSession;

static FleetSession
begin_session(const char *function)
{
	FleetSession session;

	snowflake_generator_require(function);
	if (snowflake_node_source != NODE_FROM_LEASE)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("%s needs a coordinator", function),
				errdetail("The setting snowflake.node_source is \"%s\".",
						  snowflake_node_source_name()),
				errhint("Set snowflake.node_source to the URL of a coordinator, such as postgresql://host/database, and reload the configuration."));
	session.coordinator = snowflake_lease_record_load_coordinator();
	session.connection = session.coordinator->connect(snowflake_node_source_text,
													  snowflake_clock_monotonic_usec() + ANSWER_USEC);
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
	int64		tick = snowflake_layout_tick_at(layout, snowflake_generator_clock());

	snowflake_generator_view(&view);
	snowflake_lease_state_view(&lease);
	tick = Max(tick, snowflake_layout_position_tick(layout, view.highest));
	return lease.grant == 0 ? tick : Max(tick, lease.until);
}

/* An error if nothing could be granted above a floor. */
static void
check_floor(int64 floor)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz layout_ends = snowflake_layout_tick_start(layout, layout->max_tick);

	if (floor < 0 || floor >= layout->max_tick)
		ereport(ERROR,
				errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				errmsg("the floor of a fleet must be within its layout"),
				errdetail("The layout has times from \"%s\" to \"%s\".",
						  pstrdup(timestamptz_to_str(layout->epoch)),
						  pstrdup(timestamptz_to_str(layout_ends))));
}

static const SnowflakeRecord *
read_fleet(FleetSession *session)
{
	return snowflake_lease_record_find(session->coordinator->list(session->connection,
																  SNOWFLAKE_FLEET_KEY),
									   SNOWFLAKE_FLEET_KEY);
}

/*
 * Write the fleet's record, in place of another value or NULL.  False if it has another
 * one: not what this wrote, which may be so if the request was repeated.
 */
static bool
write_fleet(FleetSession *session, SnowflakeFleet *fleet, const char *expected)
{
	const char *value = snowflake_lease_record_print_fleet(fleet);
	const SnowflakeRecord *record;

	if (session->coordinator->compare_and_set(session->connection, SNOWFLAKE_FLEET_KEY,
											  expected, value, NULL))
		return true;
	record = read_fleet(session);
	return record != NULL && strcmp(record->value, value) == 0;
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

	snowflake_lease_record_nonce(fleet.incarnation);
	snowflake_layout_print(&snowflake_server_layout, fleet.layout, sizeof(fleet.layout));
	fleet.floor = Max(highest_known_tick(), 0);
	check_floor(fleet.floor);

	session.coordinator->prepare(session.connection);
	if (!write_fleet(&session, &fleet, NULL))
		ereport(ERROR,
				errcode(ERRCODE_DUPLICATE_OBJECT),
				errmsg("the coordinator has a snowflake fleet already"),
				errhint("If it has lost data, use snowflake_fleet_recover()."));
	end_session(&session);
	PG_RETURN_VOID();
}

/*
 * Replace the records of node IDs that are damaged, which nobody is granted, by such as
 * the floor makes harmless.
 */
static void
replace_damaged(FleetSession *session, const SnowflakeFleet *fleet)
{
	List	   *records = session->coordinator->list(session->connection, NULL);
	ListCell   *cell;

	foreach(cell, records)
	{
		const SnowflakeRecord *record = lfirst(cell);
		SnowflakeLeaseRecord parsed;

		CHECK_FOR_INTERRUPTS();
		if (snowflake_lease_record_node(record->key) < 0 ||
			snowflake_lease_record_parse(record->value, &parsed))
			continue;
		memset(&parsed, 0, sizeof(parsed));
		parsed.until = fleet->floor;
		parsed.from = fleet->floor + 1;
		snowflake_lease_record_nonce(parsed.nonce);
		(void) session->coordinator->compare_and_set(session->connection,
													 record->key, record->value,
													 snowflake_lease_record_print(&parsed), NULL);
	}
}

/*
 * Found the fleet again, after its coordinator has lost data, with a floor above
 * all that can have been granted: by default a lease after our clock, and above
 * all that this server knows of, and not below what it was.  A server that gave up its
 * lease may have raised it: then no lower one is taken.
 *
 * From then on no grant from before is renewed: see begin_write() of lease.c.
 */
Datum
snowflake_fleet_recover(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	FleetSession session = begin_session("snowflake_fleet_recover()");
	SnowflakeFleet fleet = {0};
	SnowflakeFleet before = {0};
	const SnowflakeRecord *record;

	session.coordinator->prepare(session.connection);
	record = read_fleet(&session);
	if (record == NULL || !snowflake_lease_record_parse_fleet(record->value, &before))
		memset(&before, 0, sizeof(before));
	if (PG_ARGISNULL(0))
		fleet.floor = Max(before.floor, Max(snowflake_layout_tick_at(layout, snowflake_generator_clock() +
																	 snowflake_lease_ms * INT64CONST(1000)),
											highest_known_tick()));
	else
		fleet.floor = snowflake_layout_tick_at(layout, PG_GETARG_TIMESTAMPTZ(0));
	check_floor(fleet.floor);
	if (before.suspect && fleet.floor < before.floor)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("the floor of the fleet is too low"),
				errdetail("A server that gave up its lease has raised it to \"%s\".",
						  timestamptz_to_str(snowflake_layout_tick_start(layout, before.floor))));

	snowflake_lease_record_nonce(fleet.incarnation);
	snowflake_layout_print(layout, fleet.layout, sizeof(fleet.layout));
	if (!write_fleet(&session, &fleet, record == NULL ? NULL : record->value))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("the record of the snowflake fleet was changed by somebody else meanwhile"),
				errhint("Try again."));
	replace_damaged(&session, &fleet);
	end_session(&session);
	PG_RETURN_VOID();
}

/* A time as a column, or null for what the layout does not have. */
static Datum
time_of(int64 tick, bool *null)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	*null = tick < 0 || tick > layout->max_tick;
	return TimestampTzGetDatum(*null ? 0 : snowflake_layout_tick_start(layout, tick));
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
		int32		node = snowflake_lease_record_node(record->key);
		Datum		values[COLUMNS] = {0};
		bool		nulls[COLUMNS];
		SnowflakeFleet fleet;
		SnowflakeLeaseRecord parsed;
		const char *state = "damaged";

		memset(nulls, true, sizeof(nulls));
		if (node >= 0)
		{
			values[NODE] = Int32GetDatum(node);
			nulls[NODE] = false;
			if (snowflake_lease_record_parse(record->value, &parsed))
			{
				values[HOLDER] = CStringGetTextDatum(parsed.holder);
				nulls[HOLDER] = false;
				values[SINCE] = time_of(parsed.granted, &nulls[SINCE]);
				values[LEASED_FROM] = time_of(parsed.from, &nulls[LEASED_FROM]);
				values[LEASED_UNTIL] = time_of(parsed.until, &nulls[LEASED_UNTIL]);
				state = parsed.until < snowflake_layout_tick_at(&snowflake_server_layout,
																 snowflake_generator_clock()) ?
					"free" : "leased";
			}
		}
		else if (strcmp(record->key, SNOWFLAKE_FLEET_KEY) != 0)
			continue;
		else if (snowflake_lease_record_parse_fleet(record->value, &fleet))
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
