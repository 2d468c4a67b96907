/*-------------------------------------------------------------------------
 *
 * counters.c
 *	  What the generator has done since the counters were last reset.
 *
 * The counters are in shared memory and take no lock.  Minted IDs are counted
 * by each backend in its slot; what is rarer is counted here, in common.
 *
 * They are lost when the server stops.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/shmem.h"

#include "base/clock.h"
#include "base/compat.h"
#include "generator/counters.h"
#include "generator/slot.h"

SnowflakeCounters *snowflake_counters = NULL;

/* Shared memory to request. */
Size
snowflake_counters_size(void)
{
	return MAXALIGN(sizeof(SnowflakeCounters));
}

/* Find the counters, or make them.  The caller holds AddinShmemInitLock. */
void
snowflake_counters_attach(void)
{
	SnowflakeCounters *counters;
	bool		found;

	counters = ShmemInitStruct("snowflake counters", snowflake_counters_size(),
							   &found);
	if (!found)
	{
		pg_atomic_init_u64(&counters->clock_waits.mints, 0);
		pg_atomic_init_u64(&counters->clock_waits.total_usec, 0);
		pg_atomic_init_u64(&counters->clock_waits.longest_usec, 0);
		pg_atomic_init_u64(&counters->keeper_waits.mints, 0);
		pg_atomic_init_u64(&counters->keeper_waits.total_usec, 0);
		pg_atomic_init_u64(&counters->keeper_waits.longest_usec, 0);
		for (int i = 0; i < SNOWFLAKE_REFUSALS; i++)
			pg_atomic_init_u64(&counters->refused[i], 0);
		pg_atomic_init_u64(&counters->reservations, 0);
		pg_atomic_init_u64(&counters->steps_back.steps, 0);
		pg_atomic_init_u64(&counters->steps_back.largest_usec, 0);
		pg_atomic_init_u64(&counters->steps_ahead.steps, 0);
		pg_atomic_init_u64(&counters->steps_ahead.largest_usec, 0);
		pg_atomic_init_u64(&counters->leases, 0);
		pg_atomic_init_u64(&counters->lease_renewals, 0);
		pg_atomic_init_u64(&counters->lease_errors, 0);
		pg_atomic_init_u64(&counters->reset_at, snowflake_clock_wall());
		pg_atomic_init_u64(&counters->minted_before, 0);
	}
	snowflake_counters = counters;
}

static void
reset_waits(SnowflakeWaits *waits)
{
	pg_atomic_write_u64(&waits->mints, 0);
	pg_atomic_write_u64(&waits->total_usec, 0);
	pg_atomic_write_u64(&waits->longest_usec, 0);
}

/*
 * Count from zero again.  What backends have minted is theirs to write, so it
 * is remembered and subtracted from then on.
 */
void
snowflake_counters_reset(void)
{
	SnowflakeCounters *counters = snowflake_counters;

	pg_atomic_write_u64(&counters->minted_before, snowflake_slot_minted());
	reset_waits(&counters->clock_waits);
	reset_waits(&counters->keeper_waits);
	for (int i = 0; i < SNOWFLAKE_REFUSALS; i++)
		pg_atomic_write_u64(&counters->refused[i], 0);
	pg_atomic_write_u64(&counters->reservations, 0);
	pg_atomic_write_u64(&counters->steps_back.steps, 0);
	pg_atomic_write_u64(&counters->steps_back.largest_usec, 0);
	pg_atomic_write_u64(&counters->steps_ahead.steps, 0);
	pg_atomic_write_u64(&counters->steps_ahead.largest_usec, 0);
	pg_atomic_write_u64(&counters->leases, 0);
	pg_atomic_write_u64(&counters->lease_renewals, 0);
	pg_atomic_write_u64(&counters->lease_errors, 0);
	pg_atomic_write_u64(&counters->reset_at, snowflake_clock_wall());
}

/* IDs minted since the reset. */
uint64
snowflake_counters_minted(void)
{
	/* in this order: what is minted meanwhile adds to it */
	uint64		before = pg_atomic_read_u64(&snowflake_counters->minted_before);

	return snowflake_slot_minted() - before;
}

static void
raise_to(pg_atomic_uint64 *counter, uint64 value)
{
	uint64		old = pg_atomic_read_u64(counter);

	while (old < value && !pg_atomic_compare_exchange_u64(counter, &old, value))
		;
}

/*
 * Count one sleep of a mint that waits.  "mint_usec" adds up the sleeps of this
 * mint, and is 0 before the first.  The mint itself was counted when it began to
 * wait, so that it shows while it does.
 */
void
snowflake_counters_add_sleep(SnowflakeWaits *waits, int64 usec, int64 *mint_usec)
{
	*mint_usec += usec;
	pg_atomic_fetch_add_u64(&waits->total_usec, usec);
	raise_to(&waits->longest_usec, *mint_usec);
}

/* Count a step of the clock, ahead or (if it is negative) back. */
void
snowflake_counters_add_step(int64 usec)
{
	SnowflakeSteps *steps = usec > 0 ? &snowflake_counters->steps_ahead :
	&snowflake_counters->steps_back;

	snowflake_counters_add(&steps->steps);
	raise_to(&steps->largest_usec, i64abs(usec));
}
