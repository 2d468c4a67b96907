/*-------------------------------------------------------------------------
 *
 * gate_text.c
 *	  What the states of the gate mean to people: a table with a row for each,
 *	  which has its reason, what to do about it, the error of a mint that it
 *	  refuses and how that is counted, and whether waiting can help.
 *
 * generator.c opens and closes the gate.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/duration.h"
#include "base/settings.h"
#include "generator/counters.h"
#include "generator/keeper_state.h"
#include "keeper/gate_text.h"
#include "keeper/keeper_text.h"
#include "keeper/reservation_home.h"
#include "keeper/reservation_table.h"
#include "layout/server_layout.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"
#include "lease/node_source.h"

/* The texts of a state.  All but the message may be NULL. */
typedef struct GateTexts
{
	int			sqlstate;		/* 0: the usual one */
	const char *message;
	const char *detail;
	const char *hint;
	const char *advice;			/* for the status */
} GateTexts;

typedef struct GateRow
{
	const char *reason;
	SnowflakeCounter refusal;	/* how a refused mint is counted */
	void		(*describe) (SnowflakeGate gate, GateTexts *texts);

	/*
	 * Does the reason stand as this backend sees the settings?  Then there is
	 * nothing to wait for.  NULL: it never does, the keeper is at work.
	 */
	bool		(*applies) (void);
} GateRow;

static void describe_node_unset(SnowflakeGate gate, GateTexts *texts);
static void describe_node_too_large(SnowflakeGate gate, GateTexts *texts);
static void describe_layout(SnowflakeGate gate, GateTexts *texts);
static void describe_reservation(SnowflakeGate gate, GateTexts *texts);
static void describe_keeper(SnowflakeGate gate, GateTexts *texts);
static void describe_clock(SnowflakeGate gate, GateTexts *texts);
static void describe_lease(SnowflakeGate gate, GateTexts *texts);

static bool node_is_unset(void);
static bool node_is_too_large(void);
static bool lease_is_refused(void);
static bool always(void);
static bool keeper_cannot_start(void);
static bool database_is_missing(void);

static const GateRow rows[] = {
	[GATE_NO_KEEPER] = {
		"closed: the keeper is not running",
		COUNTER_REFUSED_KEEPER, describe_keeper, keeper_cannot_start
	},
	[GATE_CONNECTING] = {
		"closed: the keeper is connecting to its database",
		COUNTER_REFUSED_KEEPER, describe_keeper, database_is_missing
	},
	[GATE_WAITING] = {
		"closed: the extension snowflake_keeper is missing in the keeper's database; the first mint creates it",
		COUNTER_REFUSED_KEEPER, describe_keeper, NULL
	},
	[GATE_CREATING] = {
		"closed: the keeper is creating its extension in its database",
		COUNTER_REFUSED_KEEPER, describe_keeper, NULL
	},
	[GATE_OPENING] = {
		"closed: the keeper is writing the reservation",
		COUNTER_REFUSED_KEEPER, describe_keeper, NULL
	},
	[GATE_NODE_UNSET] = {
		"closed: the node ID is not set",
		COUNTER_REFUSED_NODE, describe_node_unset, node_is_unset
	},
	[GATE_NODE_TOO_LARGE] = {
		"closed: the node ID is too large for the layout",
		COUNTER_REFUSED_NODE, describe_node_too_large, node_is_too_large
	},
	[GATE_LEASE_NONE] = {
		"closed: no node ID is leased yet",
		COUNTER_REFUSED_NODE, describe_lease, lease_is_refused
	},
	[GATE_LEASE_ENDED] = {
		"closed: the lease of the node ID has ended",
		COUNTER_REFUSED_NODE, describe_lease, lease_is_refused
	},
	[GATE_LEASE_REVOKED] = {
		"closed: the coordinator went back in time",
		COUNTER_REFUSED_NODE, describe_lease, always
	},
	[GATE_LAYOUT_CHANGED] = {
		"closed: snowflake.layout differs from the stored layout",
		COUNTER_REFUSED_LAYOUT, describe_layout, always
	},
	[GATE_RESERVATION_LOST] = {
		"closed: the reservation of this server is not in snowflake.database",
		COUNTER_REFUSED_KEEPER, describe_reservation, always
	},
	[GATE_CLOCK] = {
		"closed: the clock is not believed",
		COUNTER_REFUSED_CLOCK, describe_clock, NULL
	},
	[GATE_STOPPING] = {
		"closed: the keeper is stopping",
		COUNTER_REFUSED_KEEPER, describe_keeper, NULL
	},
	[GATE_OPEN] = {
		"open",
		COUNTER_REFUSED_KEEPER, describe_keeper, NULL
	},
};

/*
 * The keeper may not have taken up yet what this backend sees, or the other way
 * round.
 */
static bool
node_is(SnowflakeGate obstacle)
{
	SnowflakeNode wanted;

	snowflake_node_source_wanted(&wanted);
	return wanted.obstacle == obstacle;
}

static bool
node_is_unset(void)
{
	return node_is(GATE_NODE_UNSET);
}

static bool
node_is_too_large(void)
{
	return node_is(GATE_NODE_TOO_LARGE);
}

/* What the coordinator has said, or not. */
static bool
lease_is_refused(void)
{
	SnowflakeLeaseView lease;

	snowflake_lease_state_view(&lease);
	if (lease.trouble == LEASE_BELOW_FLOOR)
		return snowflake_lease_state_floor_passed(lease.floor) - snowflake_generator_clock() >
			snowflake_max_wait_ms * INT64CONST(1000);
	return snowflake_lease_trouble_stays(lease.trouble);
}

/*
 * The layout and the name of the keeper's database are fixed when the server
 * starts.  If what is stored is changed, a reload makes the keeper look.
 * What the coordinator has forgotten waits for an administrator as well.
 */
static bool
always(void)
{
	return true;
}

static bool
database_is_missing(void)
{
	return !OidIsValid(get_database_oid(snowflake_database, true));
}

/* Single-user mode and pg_upgrade have no keeper at all. */
static bool
server_has_no_keeper(void)
{
	return !IsUnderPostmaster || IsBinaryUpgrade;
}

static bool
keeper_cannot_start(void)
{
	return server_has_no_keeper() || database_is_missing();
}

static void
describe_node_unset(SnowflakeGate gate, GateTexts *texts)
{
	texts->detail = psprintf("The layout has node IDs from 0 to %d; no two servers that mint may have the same.",
							 snowflake_server_layout.max_node);
	if (snowflake_node_source != NODE_FROM_SETTING)
	{
		texts->message = snowflake_node_source == NODE_FROM_HOSTNAME ?
			psprintf("the host's name does not end with a number: %s", snowflake_node_source_origin()) :
			"the host has no address that is not loopback";
		texts->advice = texts->hint = snowflake_node_source == NODE_FROM_HOSTNAME ?
			"Give the host a name such as db-3, or set snowflake.node_source to another source, and reload the configuration." :
			"Set snowflake.node_source to another source, such as setting, and reload the configuration.";
		return;
	}
	texts->message = "snowflake.node_id is not set";
	texts->hint = "Set snowflake.node_id in this server's own configuration, outside of the data directory if that is ever copied, to a number that no other server mints with, and reload the configuration.";
	texts->advice = "Set snowflake.node_id to a number that no other server mints with, and reload the configuration.";
}

static void
describe_node_too_large(SnowflakeGate gate, GateTexts *texts)
{
	texts->detail = psprintf("The layout has node IDs from 0 to %d.",
							 snowflake_server_layout.max_node);
	if (snowflake_node_source != NODE_FROM_SETTING)
	{
		SnowflakeNode wanted;

		snowflake_node_source_wanted(&wanted);
		texts->message = psprintf("node ID %d is too large for the layout", wanted.node);
		texts->detail = psprintf("%s The node ID comes from the host's %s.", texts->detail,
								 snowflake_node_source == NODE_FROM_HOSTNAME ? "name" : "address");
		texts->advice = texts->hint =
			"Set snowflake.node_source to another source, or choose a layout with more node IDs.";
		return;
	}
	texts->message = psprintf("snowflake.node_id %d is too large for the layout",
							  snowflake_node_id);
	texts->advice = texts->hint =
		psprintf("Set snowflake.node_id to at most %d, and reload the configuration.",
				 snowflake_server_layout.max_node);
}

/* Nothing is leased: what the coordinator said, or that it says nothing. */
static void
describe_lease(SnowflakeGate gate, GateTexts *texts)
{
	SnowflakeLeaseView lease;

	snowflake_lease_state_view(&lease);
	texts->message = gate == GATE_LEASE_NONE ? "this server has not leased a node ID" :
		gate == GATE_LEASE_ENDED ? "the lease of this server's node ID has ended" :
		"this server's node ID may be leased again by another server";
	if (lease.grant != 0)
		texts->detail = psprintf("Node ID %d was leased until \"%s\".", lease.node,
								 timestamptz_to_str(snowflake_layout_tick_start(&snowflake_server_layout,
																				lease.until)));
	texts->advice = texts->hint = snowflake_lease_state_advice(&lease, true);
}

static void
describe_layout(SnowflakeGate gate, GateTexts *texts)
{
	char		stored[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	char		configured[SNOWFLAKE_LAYOUT_TEXT_SIZE];

	texts->message = "snowflake.layout differs from the layout that this server has minted with";
	snowflake_layout_print(&snowflake_server_layout, configured, sizeof(configured));
	if (snowflake_generator_stored_layout(stored, sizeof(stored)))
		texts->detail = psprintf("The configured layout is \"%s\", the stored one \"%s\".",
								 configured, stored);
	texts->advice = texts->hint =
		"Restore snowflake.layout, or accept the change with snowflake_accept_layout(). Existing snowflakes are then decoded by the new layout, to other times unless it merely has more bits of time.";
}

static void
describe_reservation(SnowflakeGate gate, GateTexts *texts)
{
	SnowflakeView view;
	Oid			kept_in;
	char	   *database;

	/* a standby has no keeper that would have published it */
	snowflake_generator_view(&view);
	kept_in = OidIsValid(view.kept_in) ? view.kept_in : snowflake_reservation_home_database();
	database = get_database_name(kept_in);
	texts->message = psprintf("the snowflake reservation of this server is not in the database \"%s\"",
							  snowflake_database);
	if (database == NULL)
		texts->detail = psprintf("It was in the database with OID %u, which was dropped.",
								 kept_in);
	else if (strcmp(database, snowflake_database) == 0)
		texts->detail = "It was there before, and was dropped or deleted.";
	else
		texts->detail = psprintf("It is, or was, in the database \"%s\".", database);
	texts->hint = "Restore the setting snowflake.database. If the reservation is lost, an administrator can start a new one with snowflake_accept_database(), above the largest snowflake that exists.";
	texts->advice = "Restore the setting snowflake.database, or start a new reservation with snowflake_accept_database(), above the largest snowflake that exists.";
}

/* No clock was believed since the start. */
static void
describe_clock(SnowflakeGate gate, GateTexts *texts)
{
	int64		past_newest_usec,
				wait_usec;

	texts->message = "the clock is not believed";
	texts->hint = texts->advice =
		"Correct the server's clock, or, if it is correct, believe it with snowflake_accept_clock().";
	if (!snowflake_layout_has_time(&snowflake_server_layout, snowflake_clock_wall()))
	{
		const SnowflakeLayout *layout = &snowflake_server_layout;

		if (snowflake_clock_wall() < layout->epoch)
		{
			texts->message = "the clock is before the epoch of the snowflake layout";
			texts->detail = psprintf("The epoch is \"%s\".", timestamptz_to_str(layout->epoch));
		}
		else
		{
			texts->sqlstate = ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED;
			texts->message = "the snowflake layout has ended";
			texts->detail = psprintf("Its last tick started at \"%s\".",
									 timestamptz_to_str(snowflake_layout_tick_start(layout,
																					layout->max_tick)));
		}
		texts->hint = texts->advice = "Correct the server's clock, or, if it is correct, configure another snowflake.layout.";
		return;
	}
	if (!snowflake_clock_is_doubted(&past_newest_usec, &wait_usec))
		return;
	if (past_newest_usec < 0)
	{
		texts->message = psprintf("the snowflake generator is %s ahead of the clock",
								  snowflake_duration(-past_newest_usec));
		texts->detail = psprintf("It may be ahead by %s (snowflake.max_ahead). Minting starts when the clock has advanced by another %s.",
								 snowflake_duration(snowflake_max_ahead_s * USECS_PER_SEC),
								 snowflake_duration(wait_usec));
		texts->hint = texts->advice =
			"Correct the server's clock. If it is correct now, and was ahead earlier, believe it with snowflake_accept_clock().";
	}
	else
		texts->detail = psprintf("It is %s past the newest snowflake. If it stays there, it is believed in %s.",
								 snowflake_duration(past_newest_usec),
								 snowflake_duration(wait_usec));
}

/* The keeper is not ready, or with an open gate may not be doing its work. */
static void
describe_keeper(SnowflakeGate gate, GateTexts *texts)
{
	SnowflakeView view;

	if (database_is_missing())
	{
		texts->message = "the database of the snowflake reservation does not exist";
		texts->detail = psprintf("The setting snowflake.database is \"%s\".",
								 snowflake_database);
		texts->hint = "Create the database, or change the setting and restart the server.";
		texts->advice = psprintf("Create the database \"%s\", or change snowflake.database and restart the server.",
								 snowflake_database);
	}
	else if (server_has_no_keeper())
	{
		texts->message = "the snowflake generator has no keeper";
		texts->detail = "It does not run in single-user mode or during pg_upgrade.";
		texts->advice = texts->hint = "Start the server as usual.";
	}
	else
	{
		/* in these states a keeper at rest only waits for a mint to ask */
		bool		may_rest = gate == GATE_OPEN || gate == GATE_WAITING;
		bool		mints_wait;

		snowflake_generator_view(&view);
		mints_wait = (gate != GATE_OPEN || snowflake_generator_is_unreserved(&view)) &&
			!(may_rest && snowflake_keeper_state_is_at_rest());
		texts->message = psprintf("the snowflake generator was not ready within %d ms",
								  snowflake_settings_keeper_wait_ms());
		texts->detail = psprintf("The gate is %s. %s", snowflake_gate_text_reason(gate),
								 snowflake_keeper_text_trouble(&texts->hint));
		texts->advice = snowflake_keeper_text_advice(mints_wait);
	}
}

static GateTexts
describe(SnowflakeGate gate)
{
	GateTexts	texts = {0};

	rows[gate].describe(gate, &texts);
	return texts;
}

/* What a gate says of itself: "open", or "closed:" and why. */
const char *
snowflake_gate_text_reason(SnowflakeGate gate)
{
	return rows[gate].reason;
}

/* What the present gate says of itself, also where the library is not preloaded. */
const char *
snowflake_gate_text_reason_now(void)
{
	if (!snowflake_generator_exists())
		return "closed: the library is not preloaded";
	return snowflake_gate_text_reason(snowflake_generator_gate());
}

/* What to do about a state, in a sentence, or NULL.  Needs a transaction. */
const char *
snowflake_gate_text_advice(SnowflakeGate gate)
{
	return describe(gate).advice;
}

/*
 * On a standby: what the gate would be after a promotion, as far as that can be
 * told from here, or GATE_OPEN if nothing is known to stand in the way.  Needs a
 * transaction.
 *
 * The stored layout is known where the reservation is, in the keeper's database.
 */
static SnowflakeGate
foresee(void)
{
	Oid			database = get_database_oid(snowflake_database, true);
	Oid			kept_in = snowflake_reservation_home_database();
	SnowflakeNode wanted;

	snowflake_node_source_wanted(&wanted);
	if (wanted.obstacle != GATE_OPEN)
		return wanted.obstacle;
	if (snowflake_lease_state_has_ended(&wanted, snowflake_generator_clock()))
		return GATE_LEASE_ENDED;
	if (!OidIsValid(database))
		return GATE_CONNECTING;
	if (OidIsValid(kept_in) && kept_in != database)
		return GATE_RESERVATION_LOST;
	if (database == MyDatabaseId && snowflake_reservation_table_is_of_other_layout())
		return GATE_LAYOUT_CHANGED;
	return GATE_OPEN;
}

/*
 * On a standby: what to do so that it can mint after a promotion, or NULL.  Needs
 * a transaction.
 */
const char *
snowflake_gate_text_advice_in_recovery(void)
{
	SnowflakeGate gate = foresee();
	GateTexts	texts;

	if (gate == GATE_OPEN)
		return NULL;
	texts = describe(gate);
	return psprintf("A promotion would leave this server unable to mint: %s.%s%s",
					texts.message, texts.advice == NULL ? "" : " ",
					texts.advice == NULL ? "" : texts.advice);
}

/*
 * Is it in vain to wait until the keeper opens the gate?  Needs a transaction.
 */
bool
snowflake_gate_text_stays_closed(SnowflakeGate gate)
{
	return rows[gate].applies != NULL && rows[gate].applies();
}

/*
 * Raise the error of a mint that a closed gate refuses.  Returns only if the gate
 * is open.  Needs a transaction.
 */
void
snowflake_gate_text_refuse(SnowflakeGate gate)
{
	GateTexts	texts;

	if (gate == GATE_OPEN)
		return;

	texts = describe(gate);
	snowflake_counters_add(rows[gate].refusal);
	ereport(ERROR,
			errcode(texts.sqlstate != 0 ? texts.sqlstate : ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg_internal("%s", texts.message),
			texts.detail ? errdetail_internal("%s", texts.detail) : 0,
			texts.hint ? errhint("%s", texts.hint) : 0);
}
