/*-------------------------------------------------------------------------
 *
 * lease_record.h
 *	  The records of a fleet, as its coordinator keeps them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_LEASE_RECORD_H
#define SNOWFLAKE_LEASE_RECORD_H

#include "coordinator/coordinator.h"
#include "layout/layout.h"

#define SNOWFLAKE_FLEET_KEY		"fleet"

/* A random number as text, with its terminator, and the longest name of a holder */
#define SNOWFLAKE_NONCE_SIZE	33
#define SNOWFLAKE_HOLDER_SIZE	300

/* The longest cluster of an identity, with its terminator */
#define SNOWFLAKE_CLUSTER_SIZE	sizeof(((SnowflakeIdentity *) NULL)->cluster)

/* Longest value of a record, with its terminator: the longest texts, their names and numbers */
#define SNOWFLAKE_VALUE_SIZE	2048

/* The record of the fleet.  "incarnation" changes whenever it is re-created. */
typedef struct SnowflakeFleet
{
	char		incarnation[SNOWFLAKE_NONCE_SIZE];
	char		nonce[SNOWFLAKE_NONCE_SIZE];	/* of this write */
	char		layout[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	int64		floor;			/* tick up to which nothing is granted,
								 * inclusive */
	bool		suspect;		/* nothing is granted: the coordinator went
								 * back in time */
	int64		reported;		/* end of the lease of a server that marked
								 * the fleet, and its name; kept from then on */
	char		reporter[SNOWFLAKE_HOLDER_SIZE];
	char		cluster[SNOWFLAKE_CLUSTER_SIZE];	/* the coordinator's */
	int64		term;			/* identity, as it was last seen */
	TimestampTz since;			/* when that term was first seen, by the
								 * coordinator's clock; 0: when the fleet was
								 * created */
} SnowflakeFleet;

/* The record of a node ID. */
typedef struct SnowflakeLeaseRecord
{
	char		holder[SNOWFLAKE_HOLDER_SIZE];	/* name of the server */
	char		token[SNOWFLAKE_NONCE_SIZE];	/* of its present start */
	char		nonce[SNOWFLAKE_NONCE_SIZE];	/* of this write */
	int64		granted;		/* tick of its clock when it was granted */
	int64		from;			/* its range of ticks, inclusive */
	int64		until;
} SnowflakeLeaseRecord;

extern void snowflake_lease_record_nonce(char *nonce);
extern void snowflake_lease_record_own_name(char *name);
extern bool snowflake_lease_record_parse_fleet(const char *value, SnowflakeFleet *fleet);
extern bool snowflake_lease_record_has_other_layout(const char *value);
extern char *snowflake_lease_record_print_fleet(SnowflakeFleet *fleet);
extern bool snowflake_lease_record_parse(const char *value, SnowflakeLeaseRecord *parsed);
extern char *snowflake_lease_record_print(const SnowflakeLeaseRecord *parsed);
extern char *snowflake_lease_record_key(int32 node);
extern int32 snowflake_lease_record_node(const char *key);
extern const SnowflakeRecord *snowflake_lease_record_find(List *records, const char *key);
extern const SnowflakeCoordinator *snowflake_lease_record_load_coordinator(void);

#endif							/* SNOWFLAKE_LEASE_RECORD_H */
