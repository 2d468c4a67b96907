/*-------------------------------------------------------------------------
 *
 * slot.h
 *	  A slot per backend: what one backend writes and others read.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_SLOT_H
#define SNOWFLAKE_SLOT_H

#include "port/atomics.h"

/*
 * Only the backend that has the slot writes it, so that costs a mint a store to
 * a cache line of its own.  Whoever has the same place in the process array
 * later goes on counting.
 */
typedef union SnowflakeSlot
{
	pg_atomic_uint64 minted;	/* IDs minted since the server's start */
	char		pad[PG_CACHE_LINE_SIZE];
} SnowflakeSlot;

/* The slot of this process; NULL until it is looked up. */
extern SnowflakeSlot *snowflake_my_slot;

extern Size snowflake_slots_size(void);
extern void snowflake_slots_attach(void);
extern void snowflake_slot_take(void);
extern uint64 snowflake_slots_minted(void);

/* Count one ID.  Nobody else writes the counter, so this need not be one step. */
static inline void
snowflake_slot_count(void)
{
	pg_atomic_write_u64(&snowflake_my_slot->minted,
						pg_atomic_read_u64(&snowflake_my_slot->minted) + 1);
}

#endif							/* SNOWFLAKE_SLOT_H */
