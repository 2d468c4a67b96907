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
 * Nearly always the backend that has the slot is the only one that writes it, so
 * that costs a mint a store to a cache line of its own.  Whoever has the same
 * place in the process array later goes on counting.
 */
typedef struct SnowflakeSlot
{
	pg_atomic_uint64 minted;	/* IDs minted since the server's start */

	/*
	 * The transaction that runs here has minted no position below this one;
	 * 0: it has minted none.  Its parallel workers may fill it as well.
	 * frontier.c says when.
	 */
	pg_atomic_uint64 oldest;

	/* Set before "oldest", by whoever fills it: the same for all of them. */
	pg_atomic_uint64 since;		/* the transaction's start, a TimestampTz */
	pg_atomic_uint32 database;

	/* Likewise: of the gate, when "oldest" was chosen or before; 0: unknown. */
	pg_atomic_uint32 opening;
} SnowflakeSlot;

/* The slot of this process; NULL until it is looked up. */
extern SnowflakeSlot *snowflake_my_slot;

extern Size snowflake_slots_size(void);
extern void snowflake_slots_attach(void);
extern void snowflake_slot_take(void);
extern SnowflakeSlot *snowflake_slot_of(int procno);
extern uint64 snowflake_slots_minted(void);

/* Count one ID.  Nobody else writes the counter, so this need not be one step. */
static inline void
snowflake_slot_count(void)
{
	pg_atomic_write_u64(&snowflake_my_slot->minted,
						pg_atomic_read_u64(&snowflake_my_slot->minted) + 1);
}

#endif							/* SNOWFLAKE_SLOT_H */
