/*-------------------------------------------------------------------------
 *
 * lease_trouble.c
 *	  Obstacles to a lease, and the texts for them: a table with a
 *	  row for each trouble, which the log, the status and the errors of mints use.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "lease/lease_trouble.h"

typedef struct TroubleRow
{
	const char *coordinator;	/* how the coordinator is, for the status */
	const char *message;		/* what is wrong, as a message of the log */
	const char *advice;			/* the same, and what to do, as a sentence */
	bool		stays;			/* until it is changed, or a lease ends */
} TroubleRow;

static const TroubleRow rows[] = {
	[LEASE_NO_TROUBLE] = {"reachable", NULL, NULL, false},

	/* the error itself is reported where it happens */
	[LEASE_UNREACHABLE] = {"unreachable", NULL, NULL, false},
	[LEASE_NO_FLEET] = {
		"grants nothing",
		"the coordinator has no snowflake fleet",
		"The coordinator has no fleet: create it with snowflake_fleet_create(), or, if the coordinator has lost its data, re-create it with snowflake_fleet_recover().",
		true
	},
	[LEASE_OTHER_LAYOUT] = {
		"grants nothing",
		"the layout of the snowflake fleet differs from that of this server",
		"The fleet has another layout, which snowflake_fleet() shows: set snowflake.layout to it, and restart the server.",
		true
	},
	[LEASE_SUSPECT] = {
		"grants nothing",
		"the coordinator of the snowflake fleet went back in time, and grants nothing",
		"The coordinator went back in time: when it is sound again, use snowflake_fleet_recover().",
		true
	},
	[LEASE_COPIED] = {
		"grants nothing",
		"the records of the snowflake fleet were copied from another coordinator",
		"The fleet's records were copied from another coordinator: if that one is permanently stopped, use snowflake_fleet_recover().",
		true
	},
	[LEASE_REPLACED] = {
		"grants nothing",
		"the coordinator of the snowflake fleet was replaced, and the old one answers",
		"The coordinator that answers was replaced by another: stop it, or, if it is the right one, use snowflake_fleet_recover().",
		true
	},
	[LEASE_BELOW_FLOOR] = {
		"grants nothing",
		"the floor of the snowflake fleet is ahead of the clock of this server",
		"This server waits for the floor of the fleet.",
		true
	},
	[LEASE_NO_FREE_NODE] = {
		"grants nothing",
		"the snowflake fleet has no free node ID",
		"No node ID is free: wait for the end of a lease, widen snowflake.lease_nodes, or choose a layout with more node IDs.",
		true
	},
	[LEASE_BAD_RECORD] = {
		"grants nothing",
		"the record of the snowflake fleet at its coordinator is damaged",
		"The record of the fleet is damaged: re-create it with snowflake_fleet_recover().",
		true
	},
};

/* How the coordinator is that has been asked. */
const char *
snowflake_lease_trouble_coordinator(SnowflakeLeaseTrouble trouble)
{
	return rows[trouble].coordinator;
}

/*
 * What to do about a trouble that there has been since then, or NULL.  "floor" is
 * what is waited for; the error, if not empty, is why the coordinator cannot be used.
 */
char *
snowflake_lease_trouble_advice(SnowflakeLeaseTrouble trouble, TimestampTz since,
							   TimestampTz floor, const char *error)
{
	if (trouble == LEASE_UNREACHABLE)
		return psprintf("The coordinator has been unusable since \"%s\": %s.",
						timestamptz_to_str(since),
						error[0] != '\0' ? error : "see the server log");
	if (trouble == LEASE_BELOW_FLOOR)
		return psprintf("This server waits for the floor of the fleet, until \"%s\". If that is a mistake, use snowflake_fleet_recover() with a lower one.",
						timestamptz_to_str(floor));
	return rows[trouble].advice == NULL ? NULL : pstrdup(rows[trouble].advice);
}

/*
 * Is it useless to wait for a moment?  A coordinator that cannot be reached may be
 * back, and one that was not asked yet answers soon.  Its answer stands until
 * an administrator changes the fleet.
 */
bool
snowflake_lease_trouble_stays(SnowflakeLeaseTrouble trouble)
{
	return rows[trouble].stays;
}

/* Tell the log of a trouble that is new, or that there is none any more. */
void
snowflake_lease_trouble_log(SnowflakeLeaseTrouble trouble)
{
	if (trouble == LEASE_NO_TROUBLE)
		ereport(LOG, errmsg("the coordinator of the snowflake fleet grants node IDs again"));
	else if (rows[trouble].message != NULL)
		ereport(WARNING,
				errmsg_internal("%s", rows[trouble].message),
				errhint("%s", rows[trouble].advice));
}
