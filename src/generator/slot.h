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
#include "storage/spin.h"

/*
 * Normally only the backend that owns the slot writes it, so counting is a plain store to a
 * private cache line.  The next backend at the same place in the process array goes on counting.
 */
typedef struct SnowflakeSlot
{
	pg_atomic_uint64 minted;	/* IDs minted since the server's start */

	/*
	 * The virtual ID of the transaction that the rest is about: the newest
	 * transaction of this backend that has minted, which may have ended.  It,
	 * or one of its parallel workers, fills the slot once and sets this last;
	 * frontier.c says when.  Members of a lock group hold the spinlock to do
	 * so; readers never do.
	 */
	pg_atomic_uint64 holder;

	pg_atomic_uint64 oldest;	/* it has minted no position below */
	pg_atomic_uint64 since;		/* its start, a TimestampTz */
	pg_atomic_uint32 database;
	pg_atomic_uint32 opening;	/* of the gate, when "oldest" was chosen or
								 * before */
	slock_t		mutex;
} SnowflakeSlot;

/* Not the virtual ID of any transaction. */
#define SNOWFLAKE_NO_HOLDER		PG_UINT64_MAX

/* The slot of this process; NULL until it is looked up. */
extern SnowflakeSlot *snowflake_my_slot;

extern Size snowflake_slot_size(void);
extern void snowflake_slot_attach(void);
extern void snowflake_slot_take(void);
extern SnowflakeSlot *snowflake_slot_of(int procno);
extern uint64 snowflake_slot_minted(void);

/* Count one ID.  No other process writes the counter, so this need not be atomic. */
static inline void
snowflake_slot_count(void)
{
	pg_atomic_write_u64(&snowflake_my_slot->minted,
						pg_atomic_read_u64(&snowflake_my_slot->minted) + 1);
}

#endif							/* SNOWFLAKE_SLOT_H */
