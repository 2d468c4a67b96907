/*-------------------------------------------------------------------------
 *
 * lease_trouble.h
 *	  Obstacles to a lease, and the texts for them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_LEASE_TROUBLE_H
#define SNOWFLAKE_LEASE_TROUBLE_H

#include "utils/timestamp.h"

/* Why nothing is granted, or renewed. */
typedef enum SnowflakeLeaseTrouble
{
	LEASE_NO_TROUBLE = 0,
	LEASE_UNREACHABLE,			/* the coordinator cannot be used */
	LEASE_NO_FLEET,				/* it has no fleet, or has lost it */
	LEASE_OTHER_LAYOUT,			/* the fleet has another layout */
	LEASE_SUSPECT,				/* it went back in time */
	LEASE_COPIED,				/* the records are another coordinator's */
	LEASE_REPLACED,				/* another one has taken over */
	LEASE_BELOW_FLOOR,			/* nothing is granted before a time */
	LEASE_NO_FREE_NODE,
	LEASE_BAD_RECORD			/* that of the fleet is none */
} SnowflakeLeaseTrouble;

extern const char *snowflake_lease_trouble_coordinator(SnowflakeLeaseTrouble trouble);
extern char *snowflake_lease_trouble_advice(SnowflakeLeaseTrouble trouble,
											TimestampTz since, TimestampTz floor,
											const char *error);
extern bool snowflake_lease_trouble_stays(SnowflakeLeaseTrouble trouble);
extern void snowflake_lease_trouble_log(SnowflakeLeaseTrouble trouble);

#endif							/* SNOWFLAKE_LEASE_TROUBLE_H */
