/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  The rules of leases, the records of a fleet, and the worker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_LEASE_H
#define SNOWFLAKE_LEASE_H

#include "coordinator/coordinator.h"
#include "layout/layout.h"

#define SNOWFLAKE_FLEET_KEY		"fleet"

/* The longest texts, with their terminators: random numbers, names, values of records */
#define SNOWFLAKE_NONCE_SIZE	33
#define SNOWFLAKE_HOLDER_SIZE	300
#define SNOWFLAKE_CLUSTER_SIZE	sizeof(((SnowflakeIdentity *) NULL)->cluster)
#define SNOWFLAKE_VALUE_SIZE	2048

/* The record of the fleet.  "incarnation" changes whenever it is re-created. */
typedef struct SnowflakeFleet
{
	const char *value;			/* that was parsed */
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

/* lease.c: the rules */

extern Size snowflake_lease_size(void);
extern void snowflake_lease_attach(void);

extern long snowflake_lease_due_ms(TimestampTz now);
extern void snowflake_lease_attempt(SnowflakeCoordinator *coordinator, TimestampTz now);
extern void snowflake_lease_release(SnowflakeCoordinator *coordinator, int64 end);
extern bool snowflake_lease_is_held(void);

/* lease_choice.c: which node ID is taken */

extern int32 snowflake_lease_choice_make(List *records, int64 now_tick, int64 own_tick,
										 int races,
										 const SnowflakeRecord **record,
										 SnowflakeLeaseRecord *parsed);

/* lease_record.c: the records, as the coordinator keeps them */

extern void snowflake_lease_record_nonce(char *nonce);
extern void snowflake_lease_record_own_name(char *name);
extern bool snowflake_lease_record_parse_fleet(const char *value, SnowflakeFleet *fleet);
extern bool snowflake_lease_record_has_other_layout(const char *value);
extern bool snowflake_lease_record_is_own_layout(const char *layout);
extern char *snowflake_lease_record_print_fleet(SnowflakeFleet *fleet);
extern bool snowflake_lease_record_parse(const char *value, SnowflakeLeaseRecord *parsed);
extern char *snowflake_lease_record_print(const SnowflakeLeaseRecord *parsed);
extern char *snowflake_lease_record_key(int32 node);
extern int32 snowflake_lease_record_node(const char *key);
extern const SnowflakeRecord *snowflake_lease_record_read(SnowflakeCoordinator *coordinator,
														  const char *key);
extern SnowflakeCoordinator *snowflake_lease_record_connect(int64 usec);

/* lessee.c: the worker */

extern void snowflake_lessee_init(void);
extern bool snowflake_lessee_start(void);
extern PGDLLEXPORT void snowflake_lessee_main(Datum main_arg);

#endif							/* SNOWFLAKE_LEASE_H */
