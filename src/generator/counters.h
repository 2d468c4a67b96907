/*-------------------------------------------------------------------------
 *
 * counters.h
 *	  What the generator has done since the counters were last reset.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_COUNTERS_H
#define SNOWFLAKE_COUNTERS_H

#include "datatype/timestamp.h"

/*
 * The counters, in the order of the columns of snowflake_stats.  A counter of waiting mints is
 * followed by their total and their longest wait; a counter of steps of the clock, by the
 * largest step.
 */
typedef enum SnowflakeCounter
{
	COUNTER_CLOCK_WAITS,
	COUNTER_CLOCK_WAIT_TOTAL,
	COUNTER_CLOCK_WAIT_LONGEST,
	COUNTER_KEEPER_WAITS,
	COUNTER_KEEPER_WAIT_TOTAL,
	COUNTER_KEEPER_WAIT_LONGEST,

	/* Only the keeper adds to these. */
	COUNTER_RESERVATIONS,		/* committed */
	COUNTER_CLOCK_STEPS_BACK,
	COUNTER_CLOCK_STEP_BACK_LARGEST,
	COUNTER_CLOCK_STEPS_AHEAD,
	COUNTER_CLOCK_STEP_AHEAD_LARGEST,

	/* Only the lessee adds to these. */
	COUNTER_LEASES,				/* taken */
	COUNTER_LEASE_RENEWALS,
	COUNTER_LEASE_ERRORS,		/* attempts that failed */

	/* Mints that were refused, by the reason. */
	COUNTER_REFUSED_NODE,		/* there is no node ID, or it is too large */
	COUNTER_REFUSED_LAYOUT,		/* another layout is stored */
	COUNTER_REFUSED_KEEPER,		/* it was not ready in time, or did not
								 * reserve in time */
	COUNTER_REFUSED_CLOCK,		/* the generator is too far ahead of it */
	COUNTER_REFUSED_END,		/* the layout has no later tick */
	COUNTER_REFUSED_STANDBY		/* the server is in recovery */
} SnowflakeCounter;

#define SNOWFLAKE_COUNTERS	(COUNTER_REFUSED_STANDBY + 1)

extern Size snowflake_counters_size(void);
extern void snowflake_counters_attach(void);
extern void snowflake_counters_reset(void);

extern uint64 snowflake_counters_get(SnowflakeCounter counter);
extern TimestampTz snowflake_counters_reset_at(void);
extern uint64 snowflake_counters_minted(void);
extern void snowflake_counters_add(SnowflakeCounter counter);
extern void snowflake_counters_add_sleep(SnowflakeCounter waits, int64 usec,
										 int64 *mint_usec);
extern void snowflake_counters_add_step(int64 usec);

#endif							/* SNOWFLAKE_COUNTERS_H */
