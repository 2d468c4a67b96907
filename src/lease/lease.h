/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  The rules of leases, and the worker that follows them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_LEASE_H
#define SNOWFLAKE_LEASE_H

#include "coordinator/coordinator.h"
#include "lease/lease_record.h"
#include "lease/lease_state.h"

/* lease.c: the rules */

extern Size snowflake_lease_size(void);
extern void snowflake_lease_attach(void);

extern long snowflake_lease_due_ms(TimestampTz now);
extern void snowflake_lease_attempt(const SnowflakeCoordinator *coordinator,
									void *connection, int64 deadline_usec,
									TimestampTz now);
extern void snowflake_lease_release(const SnowflakeCoordinator *coordinator,
									void *connection, int64 deadline_usec, int64 end);
extern bool snowflake_lease_is_held(void);

/* lease_choice.c: which node ID is taken */

extern int32 snowflake_lease_choice_make(List *records, int64 now_tick, int64 own_tick,
										 int races,
										 const SnowflakeRecord **record,
										 SnowflakeLeaseRecord *parsed);

/* lessee.c: the worker */

extern void snowflake_lessee_init(void);
extern bool snowflake_lessee_start(void);
extern PGDLLEXPORT void snowflake_lessee_main(Datum main_arg);

#endif							/* SNOWFLAKE_LEASE_H */
