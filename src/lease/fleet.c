/*-------------------------------------------------------------------------
 *
 * fleet.c
 *	  An administrator's functions for a fleet: create it, re-create it after a
 *	  loss, reclaim a node ID, list the fleet.
 *
 * The SQL script revokes the functions from PUBLIC.  Each loads the module of
 * the coordinator into the session that calls it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/duration.h"
#include "base/settings.h"
#include "generator/generator.h"
#include "layout/server_layout.h"
#include "lease/lease.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"

PG_FUNCTION_INFO_V1(snowflake_fleet_create);
PG_FUNCTION_INFO_V1(snowflake_fleet_recover);
PG_FUNCTION_INFO_V1(snowflake_fleet_reclaim);
PG_FUNCTION_INFO_V1(snowflake_fleet);

#define ANSWER_USEC			(30 * USECS_PER_SEC)	/* for the coordinator */
#define OWN_LEASE_USEC		(10 * USECS_PER_SEC)	/* for our own lease */
#define OWN_LEASE_LOOK_MS	50

/* How often to try to write a record of the fleet that a coordinator refuses and does not have */
#define NEW_RECORD_TRIES	5

/* Connect to the coordinator.  With "prepare", records can be written afterwards. */
static SnowflakeCoordinator *
begin_session(const char *function, bool prepare)
{
	SnowflakeCoordinator *coordinator;

	snowflake_generator_require(function);
	if (snowflake_node_source != NODE_FROM_LEASE)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("%s needs a coordinator", function),
				errdetail("The setting snowflake.node_source is \"%s\".",
						  snowflake_node_source_name()),
				errhint("Set snowflake.node_source to the URL of a coordinator, such as postgresql://host/database, and reload the configuration."));
	coordinator = snowflake_lease_record_connect(ANSWER_USEC);
	if (prepare && coordinator->prepare != NULL)
		coordinator->prepare(coordinator);
	return coordinator;
}

/* The highest tick that this server knows to be used, reserved or granted. */
static int64
highest_known_tick(void)
{
	SnowflakeView view;
	SnowflakeLeaseView lease;
	int64		tick;

	snowflake_generator_view(&view);
	snowflake_lease_state_view(&lease);
	tick = Max(snowflake_layout_position_tick(&snowflake_server_layout, view.highest),
			   snowflake_lease_state_reached(snowflake_server_layout.epoch));
	return lease.grant == 0 ? tick : Max(tick, lease.until);
}

/*
 * The time by the earlier of our clock and the coordinator's: a single clock that is
 * ahead must not stop a fleet.  Call this when the coordinator has answered.
 */
static TimestampTz
earlier_clock(const SnowflakeCoordinator *coordinator)
{
	TimestampTz now = snowflake_generator_clock();
	TimestampTz clock = coordinator->identity.clock;

	return clock == 0 ? now : Min(now, clock);
}

/* Refuse a default floor that is further ahead than the clocks and leases of a fleet can differ. */
static void
check_is_near(int64 floor, TimestampTz now, const char *why, const char *what_to_do)
{
	TimestampTz start = snowflake_layout_tick_start(&snowflake_server_layout, floor);

	if (start - now <= (2 * (int64) snowflake_lease_ms + snowflake_max_jump_ms) * 1000)
		return;
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("the floor of the fleet would be %s ahead of the clock", snowflake_duration(start - now)),
			errdetail("%s No node ID would be leased before \"%s\".", why, timestamptz_to_str(start)),
			errhint("%s", what_to_do));
}

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

/* Raise an error if there is a record of the fleet and it is of another layout. */
static void
check_layout(const SnowflakeRecord *record, const char *detail, const char *hint)
{
	if (record != NULL && snowflake_lease_record_has_other_layout(record->value))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("the layout of the snowflake fleet differs from that of this server"),
				errdetail("%s", detail),
				errhint("%s", hint));
}

/*
 * Write the record of a new fleet, with this floor, in place of the expected value (NULL:
 * there is none).  Returns false if the record has another value; it may already have the
 * new one, if the request was repeated.  If a new record is refused although there is none,
 * that tells nothing, so this tries again.
 */
static bool
write_fleet(SnowflakeCoordinator *coordinator, SnowflakeFleet *fleet, const char *expected)
{
	const char *value;

	snowflake_lease_record_nonce(fleet->incarnation);
	snowflake_layout_print(&snowflake_server_layout, fleet->layout, sizeof(fleet->layout));
	strlcpy(fleet->cluster, coordinator->identity.cluster, sizeof(fleet->cluster));
	fleet->term = coordinator->identity.term;
	value = snowflake_lease_record_print_fleet(fleet);
	for (int i = 0; i < NEW_RECORD_TRIES; i++)
	{
		const SnowflakeRecord *record;

		if (coordinator->compare_and_set(coordinator, SNOWFLAKE_FLEET_KEY, expected, value, NULL))
			return true;
		record = snowflake_lease_record_read(coordinator, SNOWFLAKE_FLEET_KEY);
		if (record != NULL || expected != NULL)
			return record != NULL && strcmp(record->value, value) == 0;
	}
	snowflake_coordinator_fail("it has no record of the fleet, and accepts none");
}

/* Write the record of a node ID that is free above a floor, in place of another one. */
static bool
write_free(SnowflakeCoordinator *coordinator, const SnowflakeRecord *record, int64 floor)
{
	SnowflakeLeaseRecord freed = {.from = floor + 1,.until = floor};

	snowflake_lease_record_nonce(freed.nonce);
	return coordinator->compare_and_set(coordinator, record->key, record->value,
										snowflake_lease_record_print(&freed), NULL);
}

/* Will the trouble be over when the lessee asks the new fleet, or when the present tick is over? */
static bool
is_over_soon(const SnowflakeLeaseView *lease)
{
	switch (lease->trouble)
	{
		case STATE_COORDINATOR_UNUSABLE:
		case STATE_FLEET_MISSING:
		case STATE_FLEET_GONE:
		case STATE_FLEET_WENT_BACK:
		case STATE_FLEET_COPIED:
		case STATE_FLEET_REPLACED:
		case STATE_FLEET_NEW_TERM:
		case STATE_FLEET_DAMAGED:
			return true;
		case STATE_FLEET_BELOW_FLOOR:
			return lease->floor <= snowflake_layout_tick_at(&snowflake_server_layout,
															snowflake_generator_clock());
		default:
			return false;
	}
}

/* Have this server ask at once, and wait until it has a lease or knows why it has none. */
static void
wait_for_own_lease(void)
{
	int64		deadline_usec = snowflake_clock_monotonic_usec() + OWN_LEASE_USEC;

	snowflake_lease_state_ask();
	do
	{
		SnowflakeLeaseView lease;

		snowflake_lease_state_view(&lease);
		if (lease.trouble == STATE_NO_TROUBLE ? lease.grant != 0 && !lease.revoked && !lease.retired :
			!is_over_soon(&lease))
			return;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 OWN_LEASE_LOOK_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	} while (snowflake_clock_monotonic_usec() < deadline_usec);
	ereport(NOTICE,
			errmsg("the fleet exists, but this server has not leased a node ID yet"),
			errhint("See the column advice of the view snowflake_status."));
}

/*
 * Create a fleet, whose coordinator grants node IDs for ticks above a floor: by default, the
 * later of the newest ID of this server and the present moment.  No server may have minted
 * an ID above it with a node ID that may be leased from now on.
 */
Datum
snowflake_fleet_create(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	SnowflakeCoordinator *coordinator = begin_session("snowflake_fleet_create()", true);
	const SnowflakeRecord *record = snowflake_lease_record_read(coordinator, SNOWFLAKE_FLEET_KEY);
	SnowflakeFleet fleet = {0};
	SnowflakeLeaseView lease;
	TimestampTz now;

	snowflake_lease_state_view(&lease);
	if (record == NULL && lease.grant != 0)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("this server has had a lease, so there has been a snowflake fleet"),
				errdetail("Its servers may have leases that reach beyond the floor of a new fleet."),
				errhint("Use snowflake_fleet_recover(), also to move the fleet to another coordinator."));
	now = earlier_clock(coordinator);
	if (PG_ARGISNULL(0))
	{
		fleet.floor = Max(Max(highest_known_tick(), snowflake_layout_tick_at(layout, now)), 0);
		check_is_near(fleet.floor, now, "This server has snowflakes or a lease up to that floor.",
					  "Call snowflake_fleet_create() with a floor: the time of the newest snowflake of all servers whose node IDs may be leased. Exclude all other node IDs in use from snowflake.lease_nodes.");
	}
	else
		fleet.floor = snowflake_layout_tick_at(layout, PG_GETARG_TIMESTAMPTZ(0));
	check_floor(fleet.floor);

	if (!write_fleet(coordinator, &fleet, NULL))
		ereport(ERROR,
				errcode(ERRCODE_DUPLICATE_OBJECT),
				errmsg("the coordinator already has a snowflake fleet"),
				errhint("If it has lost data, use snowflake_fleet_recover()."));
	snowflake_coordinator_close(coordinator);
	wait_for_own_lease();
	PG_RETURN_VOID();
}

/* Replace the damaged records of node IDs, which are not granted to any server. */
static void
replace_damaged(SnowflakeCoordinator *coordinator, int64 floor)
{
	List	   *records = coordinator->list(coordinator, NULL);
	ListCell   *cell;

	foreach(cell, records)
	{
		const SnowflakeRecord *record = lfirst(cell);
		SnowflakeLeaseRecord parsed;

		CHECK_FOR_INTERRUPTS();
		if (snowflake_lease_record_node(record->key) >= 0 &&
			!snowflake_lease_record_parse(record->value, &parsed))
			(void) write_free(coordinator, record, floor);
	}
}

/*
 * The default floor of a fleet that is re-created: not below anything that can have been
 * granted, which is up to one lease after the clock, nor anything that this server knows, the
 * previous floor, or the end that a server reported when it gave up its lease.
 */
static int64
default_floor(const SnowflakeFleet *before, TimestampTz now)
{
	int64		known = highest_known_tick();
	int64		granted = snowflake_node_settings_lease_ticks() +
	snowflake_layout_tick_at(&snowflake_server_layout, snowflake_generator_clock());
	int64		floor = Max(Max(granted, known), Max(before->floor, before->reported));

	if (floor == before->reported)
		check_is_near(floor, now,
					  psprintf("Server \"%s\" gave up a lease that was valid up to that floor.", before->reporter),
					  "If that server is permanently stopped, and none of its snowflakes matter, use snowflake_fleet_recover(holder_is_gone => true).");
	else if (floor == before->floor)
		check_is_near(floor, now, "That was the previous floor of the fleet.",
					  "If no server has a lease beyond an earlier time, use snowflake_fleet_recover() with that time.");
	else
		check_is_near(floor, now,
					  psprintf("The clock of this server is at \"%s\", or this server has a lease up to the new floor.",
							   timestamptz_to_str(snowflake_generator_clock())),
					  "Use snowflake_fleet_recover() on another server, or with a time.");
	return floor;
}

/*
 * Re-create the fleet after its coordinator has lost data, with a floor above everything
 * that can have been granted.  The end that a server reported when it gave up its lease
 * bounds the floor from below, until an administrator says that the server is gone.
 *
 * From then on, no earlier grant is renewed: see begin_write() in lease.c.  When this
 * returns, the server itself has normally asked the new fleet for a lease.
 */
Datum
snowflake_fleet_recover(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	SnowflakeCoordinator *coordinator;
	SnowflakeFleet fleet = {0};
	SnowflakeFleet before = {0};
	const SnowflakeRecord *record;
	bool		holder_is_gone;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("holder_is_gone must not be null"));
	holder_is_gone = PG_GETARG_BOOL(1);
	coordinator = begin_session("snowflake_fleet_recover()", true);
	record = snowflake_lease_record_read(coordinator, SNOWFLAKE_FLEET_KEY);
	if (!holder_is_gone)
		check_layout(record, "The leases of its other servers would end.",
					 "Use snowflake_fleet_recover() on a server that has the fleet's layout. If none has it any more, set holder_is_gone.");
	if (record == NULL || !snowflake_lease_record_parse_fleet(record->value, &before))
		memset(&before, 0, sizeof(before));
	if (holder_is_gone)
		before.floor = before.reported = 0;
	fleet.floor = PG_ARGISNULL(0) ? default_floor(&before, earlier_clock(coordinator)) :
		snowflake_layout_tick_at(layout, PG_GETARG_TIMESTAMPTZ(0));
	check_floor(fleet.floor);
	if (fleet.floor < before.reported)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("the floor of the fleet is too low"),
				errdetail("Server \"%s\" gave up a lease that was valid until \"%s\".", before.reporter,
						  timestamptz_to_str(snowflake_layout_tick_start(layout, before.reported))),
				errhint("If that server is permanently stopped, and none of its snowflakes matter, set holder_is_gone."));

	fleet.reported = before.reported;
	if (fleet.reported > 0)
		strlcpy(fleet.reporter, before.reporter, sizeof(fleet.reporter));
	if (!write_fleet(coordinator, &fleet, record == NULL ? NULL : record->value))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("the record of the snowflake fleet was changed concurrently"),
				errhint("Try again."));
	replace_damaged(coordinator, fleet.floor);
	snowflake_coordinator_close(coordinator);
	wait_for_own_lease();
	PG_RETURN_VOID();
}

/*
 * Let a node ID be leased again from a given time on.  The administrator asserts that no
 * server holds it, and that no ID with it is newer than that.  If there is a holder
 * nevertheless, it notices, and marks the fleet: see judge_lease() in lease.c.
 */
Datum
snowflake_fleet_reclaim(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int32		node = PG_GETARG_INT32(0);
	int64		floor = snowflake_layout_tick_at(layout, PG_GETARG_TIMESTAMPTZ(1));
	SnowflakeCoordinator *coordinator = begin_session("snowflake_fleet_reclaim()", false);
	SnowflakeLeaseRecord parsed;
	SnowflakeLeaseView lease;
	const SnowflakeRecord *record;

	check_floor(floor);
	check_layout(snowflake_lease_record_read(coordinator, SNOWFLAKE_FLEET_KEY),
				 "The ticks of its leases are not those of this server.",
				 "Use snowflake_fleet_reclaim() on a server that has the fleet's layout.");
	snowflake_lease_state_view(&lease);
	if (lease.grant != 0 && lease.node == node && !lease.revoked && !lease.retired)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("node ID %d is leased to this server", node));
	record = node < 0 ? NULL :
		snowflake_lease_record_read(coordinator, snowflake_lease_record_key(node));
	if (record == NULL)
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("node ID %d is not leased", node));
	if (snowflake_lease_record_parse(record->value, &parsed) && parsed.until <= floor)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("node ID %d is leased only until \"%s\"", node,
					   timestamptz_to_str(snowflake_layout_tick_start(layout, parsed.until))));
	if (!write_free(coordinator, record, floor))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("the record of node ID %d was changed concurrently", node),
				errhint("Check that no server holds the node ID."));
	snowflake_coordinator_close(coordinator);
	PG_RETURN_VOID();
}

/* The time of a tick as a column, or null if the layout does not have the tick. */
static Datum
time_of(int64 tick, bool *null)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	*null = tick < 0 || tick > layout->max_tick;
	return TimestampTzGetDatum(*null ? 0 : snowflake_layout_tick_start(layout, tick));
}

/* Returns the fleet's record, as a row without a node, and those of all node IDs. */
Datum
snowflake_fleet(PG_FUNCTION_ARGS)
{
	enum
	{
		NODE, HOLDER, SINCE, LEASED_FROM, LEASED_UNTIL, STATE, LAYOUT, COLUMNS
	};
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	SnowflakeCoordinator *coordinator = begin_session("snowflake_fleet()", false);
	List	   *records = coordinator->list(coordinator, NULL);
	ListCell   *cell;

	snowflake_coordinator_close(coordinator);
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
				/* unless it was replaced by an administrator */
				if (parsed.holder[0] != '\0')
				{
					values[HOLDER] = CStringGetTextDatum(parsed.holder);
					nulls[HOLDER] = false;
					values[SINCE] = time_of(parsed.granted, &nulls[SINCE]);
				}
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
			values[LAYOUT] = CStringGetTextDatum(fleet.layout);
			nulls[LAYOUT] = false;
			values[LEASED_FROM] = time_of(fleet.floor, &nulls[LEASED_FROM]);

			/* a lower bound of the next floor, if there is one */
			if (fleet.reported > fleet.floor)
			{
				values[HOLDER] = CStringGetTextDatum(fleet.reporter);
				nulls[HOLDER] = false;
				values[LEASED_UNTIL] = time_of(fleet.reported, &nulls[LEASED_UNTIL]);
			}
			state = fleet.suspect ? "fleet, grants nothing until snowflake_fleet_recover()" : "fleet";
		}
		values[STATE] = CStringGetTextDatum(state);
		nulls[STATE] = false;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
