/*-------------------------------------------------------------------------
 *
 * counters.c
 *	  What the generator has done since the counters were last reset.
 *
 * The counters are in shared memory, take no lock, and are lost when the server stops.  Minted IDs
 * are counted by each backend in its slot.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "storage/shmem.h"

#include "base/clock.h"
#include "base/compat.h"
#include "generator/counters.h"
#include "generator/slot.h"

/* All atomic, and not read together: each is right for its own moment. */
typedef struct Counters
{
	pg_atomic_uint64 counters[SNOWFLAKE_COUNTERS];
	pg_atomic_uint64 reset_at;	/* a TimestampTz */
	pg_atomic_uint64 minted_before; /* sum of the slots at the reset */
} Counters;

/* NULL if the library was not preloaded. */
static Counters *shared = NULL;

Size
snowflake_counters_size(void)
{
	return MAXALIGN(sizeof(Counters));
}

void
snowflake_counters_attach(void)
{
	bool		found;

	shared = ShmemInitStruct("snowflake counters", snowflake_counters_size(), &found);
	if (found)
		return;
	for (int i = 0; i < SNOWFLAKE_COUNTERS; i++)
		pg_atomic_init_u64(&shared->counters[i], 0);
	pg_atomic_init_u64(&shared->reset_at, snowflake_clock_wall());
	pg_atomic_init_u64(&shared->minted_before, 0);
}

/* Count from zero again.  Only backends write their slots, so the sum is subtracted from now on. */
void
snowflake_counters_reset(void)
{
	pg_atomic_write_u64(&shared->minted_before, snowflake_slot_minted());
	for (int i = 0; i < SNOWFLAKE_COUNTERS; i++)
		pg_atomic_write_u64(&shared->counters[i], 0);
	pg_atomic_write_u64(&shared->reset_at, snowflake_clock_wall());
}

uint64
snowflake_counters_get(SnowflakeCounter counter)
{
	return pg_atomic_read_u64(&shared->counters[counter]);
}

TimestampTz
snowflake_counters_reset_at(void)
{
	return (TimestampTz) pg_atomic_read_u64(&shared->reset_at);
}

uint64
snowflake_counters_minted(void)
{
	/* in this order: IDs minted in between add to the result */
	uint64		before = pg_atomic_read_u64(&shared->minted_before);

	return snowflake_slot_minted() - before;
}

static void
raise_to(pg_atomic_uint64 *counter, uint64 value)
{
	uint64		old = pg_atomic_read_u64(counter);

	while (old < value && !pg_atomic_compare_exchange_u64(counter, &old, value))
		;
}

void
snowflake_counters_add(SnowflakeCounter counter)
{
	pg_atomic_fetch_add_u64(&shared->counters[counter], 1);
}

/*
 * Count one sleep of a mint that waits.  *mint_usec adds up the sleeps of this mint, which was
 * itself counted when it began to wait, so that a mint that is still waiting shows.
 */
void
snowflake_counters_add_sleep(SnowflakeCounter waits, int64 usec, int64 *mint_usec)
{
	*mint_usec += usec;
	pg_atomic_fetch_add_u64(&shared->counters[waits + 1], usec);
	raise_to(&shared->counters[waits + 2], *mint_usec);
}

/* Count a step of the clock: ahead, or back if it is negative. */
void
snowflake_counters_add_step(int64 usec)
{
	SnowflakeCounter steps = usec > 0 ? COUNTER_CLOCK_STEPS_AHEAD : COUNTER_CLOCK_STEPS_BACK;

	snowflake_counters_add(steps);
	raise_to(&shared->counters[steps + 1], i64abs(usec));
}
