/*-------------------------------------------------------------------------
 *
 * counters.c
 *	  What the generator has done since the counters were last reset.
 *
 * The counters are in shared memory and take no lock.  Minted IDs are counted
 * by each backend for itself, because one counter for all would be one more
 * cache line that every mint fights for; what is rarer is counted in common.
 *
 * They are lost when the server stops.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "clock.h"
#include "compat.h"
#include "counters.h"

SnowflakeCounters *snowflake_counters = NULL;

/* Shared memory to request.  Only once MaxBackends is known. */
Size
snowflake_counters_size(void)
{
	return add_size(offsetof(SnowflakeCounters, minted),
					mul_size(MaxBackends, sizeof(SnowflakeMintCounter)));
}

/* Find the counters, or make them.  Holds AddinShmemInitLock. */
void
snowflake_counters_attach(void)
{
	SnowflakeCounters *counters;
	bool		found;

	counters = ShmemInitStruct("snowflake counters", snowflake_counters_size(),
							   &found);
	if (!found)
	{
		counters->nminted = MaxBackends;
		for (int i = 0; i < counters->nminted; i++)
			pg_atomic_init_u64(&counters->minted[i].ids, 0);
		pg_atomic_init_u64(&counters->clock_waits.mints, 0);
		pg_atomic_init_u64(&counters->clock_waits.total_usec, 0);
		pg_atomic_init_u64(&counters->clock_waits.longest_usec, 0);
		pg_atomic_init_u64(&counters->keeper_waits.mints, 0);
		pg_atomic_init_u64(&counters->keeper_waits.total_usec, 0);
		pg_atomic_init_u64(&counters->keeper_waits.longest_usec, 0);
		for (int i = 0; i < SNOWFLAKE_REFUSALS; i++)
			pg_atomic_init_u64(&counters->refused[i], 0);
		pg_atomic_init_u64(&counters->reservations, 0);
		pg_atomic_init_u64(&counters->clock_steps_back, 0);
		pg_atomic_init_u64(&counters->clock_step_back_largest_usec, 0);
		pg_atomic_init_u64(&counters->reset_at, snowflake_wall_clock());
		pg_atomic_init_u64(&counters->minted_before, 0);
	}
	snowflake_counters = counters;
}

static uint64
minted_since_start(void)
{
	uint64		sum = 0;

	for (int i = 0; i < snowflake_counters->nminted; i++)
		sum += pg_atomic_read_u64(&snowflake_counters->minted[i].ids);
	return sum;
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

	pg_atomic_write_u64(&counters->minted_before, minted_since_start());
	reset_waits(&counters->clock_waits);
	reset_waits(&counters->keeper_waits);
	for (int i = 0; i < SNOWFLAKE_REFUSALS; i++)
		pg_atomic_write_u64(&counters->refused[i], 0);
	pg_atomic_write_u64(&counters->reservations, 0);
	pg_atomic_write_u64(&counters->clock_steps_back, 0);
	pg_atomic_write_u64(&counters->clock_step_back_largest_usec, 0);
	pg_atomic_write_u64(&counters->reset_at, snowflake_wall_clock());
}

/* The counter of this process, which nobody else writes. */
pg_atomic_uint64 *
snowflake_my_mint_counter(void)
{
	Assert(MyProcNumber >= 0 && MyProcNumber < snowflake_counters->nminted);
	return &snowflake_counters->minted[MyProcNumber].ids;
}

/* IDs minted since the reset. */
uint64
snowflake_minted(void)
{
	/* in this order: what is minted meanwhile adds to it */
	uint64		before = pg_atomic_read_u64(&snowflake_counters->minted_before);

	return minted_since_start() - before;
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
snowflake_count_sleep(SnowflakeWaits *waits, int64 usec, int64 *mint_usec)
{
	*mint_usec += usec;
	pg_atomic_fetch_add_u64(&waits->total_usec, usec);
	raise_to(&waits->longest_usec, *mint_usec);
}

/* Count a step of the clock. */
void
snowflake_count_step_back(int64 usec)
{
	snowflake_count(&snowflake_counters->clock_steps_back);
	raise_to(&snowflake_counters->clock_step_back_largest_usec, usec);
}
