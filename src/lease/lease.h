/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  The rules of leases.  Only the lessee calls them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_LEASE_H
#define SNOWFLAKE_LEASE_H

#include "coordinator/coordinator.h"
#include "lease/lease_state.h"

extern Size snowflake_lease_size(void);
extern void snowflake_lease_attach(void);

extern long snowflake_lease_due_ms(TimestampTz now);
extern void snowflake_lease_attempt(const SnowflakeCoordinator *coordinator,
									void *connection, int64 deadline_usec,
									TimestampTz now);
extern void snowflake_lease_release(const SnowflakeCoordinator *coordinator,
									void *connection, int64 deadline_usec, int64 end);
extern bool snowflake_lease_is_held(void);

#endif							/* SNOWFLAKE_LEASE_H */
