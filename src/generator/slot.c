/*-------------------------------------------------------------------------
 *
 * slot.c
 *	  A slot per backend: what one backend writes and others read.
 *
 * The slots lie in shared memory, in the order of the process array, each in a cache line of
 * its own: one counter for all would be one more line that all mints contend for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "base/compat.h"
#include "generator/slot.h"

typedef union PaddedSlot
{
	SnowflakeSlot slot;
	char		pad[PG_CACHE_LINE_SIZE];
} PaddedSlot;

SnowflakeSlot *snowflake_my_slot = NULL;

/*
 * One for each of MaxBackends, since only regular backends mint.  NULL if the
 * library was not preloaded.
 */
static PaddedSlot *slots = NULL;

Size
snowflake_slot_size(void)
{
	return mul_size(MaxBackends, sizeof(PaddedSlot));
}

void
snowflake_slot_attach(void)
{
	bool		found;

	slots = ShmemInitStruct("snowflake slots", snowflake_slot_size(), &found);
	if (found)
		return;
	for (int i = 0; i < MaxBackends; i++)
	{
		SnowflakeSlot *slot = &slots[i].slot;

		pg_atomic_init_u64(&slot->minted, 0);
		pg_atomic_init_u64(&slot->holder, SNOWFLAKE_NO_HOLDER);
		pg_atomic_init_u64(&slot->oldest, 0);
		pg_atomic_init_u64(&slot->since, 0);
		pg_atomic_init_u32(&slot->database, InvalidOid);
		pg_atomic_init_u32(&slot->opening, 0);
		SpinLockInit(&slot->mutex);
	}
}

/* Look up the slot of this process.  The library must be preloaded. */
void
snowflake_slot_take(void)
{
	snowflake_my_slot = snowflake_slot_of(MyProcNumber);
	Assert(snowflake_my_slot != NULL);
}

/* Returns the slot of a number of the process array; NULL unless it is a regular backend's. */
SnowflakeSlot *
snowflake_slot_of(int procno)
{
	if (slots == NULL || procno < 0 || procno >= MaxBackends)
		return NULL;
	return &slots[procno].slot;
}

uint64
snowflake_slot_minted(void)
{
	uint64		sum = 0;

	for (int i = 0; i < MaxBackends; i++)
		sum += pg_atomic_read_u64(&slots[i].slot.minted);
	return sum;
}
