/*-------------------------------------------------------------------------
 *
 * counters.h
 *	  What the generator has done since the counters were last reset.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_COUNTERS_H
#define SNOWFLAKE_COUNTERS_H

#include "port/atomics.h"

/* Why a mint was refused. */
typedef enum SnowflakeRefusal
{
	REFUSED_NODE,				/* there is no node ID, or it is too large */
	REFUSED_LAYOUT,				/* another layout is stored */
	REFUSED_KEEPER,				/* it was not ready, or reserved too late */
	REFUSED_CLOCK,				/* the generator is too far ahead of it */
	REFUSED_END,				/* the layout has no later tick */
	REFUSED_STANDBY				/* the server is in recovery */
} SnowflakeRefusal;

#define SNOWFLAKE_REFUSALS	(REFUSED_STANDBY + 1)

/* Mints that waited for something, and how long. */
typedef struct SnowflakeWaits
{
	pg_atomic_uint64 mints;
	pg_atomic_uint64 total_usec;
	pg_atomic_uint64 longest_usec;	/* of one mint */
} SnowflakeWaits;

/* Steps of the clock in one direction. */
typedef struct SnowflakeSteps
{
	pg_atomic_uint64 steps;
	pg_atomic_uint64 largest_usec;
} SnowflakeSteps;

/* All atomic, and none of them read together: each is right for its moment. */
typedef struct SnowflakeCounters
{
	SnowflakeWaits clock_waits;
	SnowflakeWaits keeper_waits;
	pg_atomic_uint64 refused[SNOWFLAKE_REFUSALS];

	/* Only the keeper writes these, but for a reset. */
	pg_atomic_uint64 reservations;	/* committed */
	SnowflakeSteps steps_back;
	SnowflakeSteps steps_ahead;

	/* Only the lessee writes these, but for a reset. */
	pg_atomic_uint64 leases;	/* taken */
	pg_atomic_uint64 lease_renewals;
	pg_atomic_uint64 lease_errors;	/* attempts that failed */

	pg_atomic_uint64 reset_at;	/* a TimestampTz */
	pg_atomic_uint64 minted_before; /* what the slots said at the reset */
} SnowflakeCounters;

/* NULL if the library was not preloaded. */
extern SnowflakeCounters *snowflake_counters;

extern Size snowflake_counters_size(void);
extern void snowflake_counters_attach(void);
extern void snowflake_counters_reset(void);

extern uint64 snowflake_counters_minted(void);
extern void snowflake_counters_add_sleep(SnowflakeWaits *waits, int64 usec,
										 int64 *mint_usec);
extern void snowflake_counters_add_step(int64 usec);

static inline void
snowflake_counters_add(pg_atomic_uint64 *counter)
{
	pg_atomic_fetch_add_u64(counter, 1);
}

static inline void
snowflake_counters_add_refusal(SnowflakeRefusal reason)
{
	snowflake_counters_add(&snowflake_counters->refused[reason]);
}

#endif							/* SNOWFLAKE_COUNTERS_H */
