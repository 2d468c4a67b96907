/*-------------------------------------------------------------------------
 *
 * slot.c
 *	  A slot per backend: what one backend writes and others read.
 *
 * The slots lie in shared memory, in the order of the process array, each in a
 * cache line of its own: one counter for all would be one more line that every
 * mint fights for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "compat.h"
#include "slot.h"

SnowflakeSlot *snowflake_my_slot = NULL;

/* As many as MaxBackends, since nobody mints but regular backends. */
static SnowflakeSlot *slots = NULL;

/* Shared memory to request.  Only once MaxBackends is known. */
Size
snowflake_slots_size(void)
{
	return mul_size(MaxBackends, sizeof(SnowflakeSlot));
}

/* Find the slots, or make them.  The caller holds AddinShmemInitLock. */
void
snowflake_slots_attach(void)
{
	bool		found;

	slots = ShmemInitStruct("snowflake slots", snowflake_slots_size(), &found);
	if (found)
		return;
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u64(&slots[i].minted, 0);
}

/* Look up the slot of this process.  The library must be preloaded. */
void
snowflake_slot_take(void)
{
	Assert(MyProcNumber >= 0 && MyProcNumber < MaxBackends);
	snowflake_my_slot = &slots[MyProcNumber];
}

/* IDs minted since the server's start, by all backends. */
uint64
snowflake_slots_minted(void)
{
	uint64		sum = 0;

	for (int i = 0; i < MaxBackends; i++)
		sum += pg_atomic_read_u64(&slots[i].minted);
	return sum;
}
