/*-------------------------------------------------------------------------
 *
 * generator.h
 *	  The generator that all backends of a server share.
 *
 * generator.c explains who may change what, and why no ID comes twice.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_GENERATOR_H
#define SNOWFLAKE_GENERATOR_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

#include "layout.h"

/*
 * Why nothing can be minted, or GATE_OPEN.  Only the keeper changes it; a
 * server starts with the first.
 */
typedef enum SnowflakeGate
{
	GATE_NO_KEEPER = 0,			/* the keeper has not started, or has ended */
	GATE_CONNECTING,			/* it connects to its database, or failed to */
	GATE_WAITING,				/* it waits for the first mint to create its
								 * extension in its database */
	GATE_CREATING,				/* it creates the extension */
	GATE_OPENING,				/* it reads and writes the reservation */
	GATE_NODE_UNSET,
	GATE_NODE_TOO_LARGE,
	GATE_LAYOUT_CHANGED,		/* the stored layout is another one */
	GATE_RESERVATION_LOST,		/* this cluster has one, but not here */
	GATE_STOPPING,				/* the keeper was told to stop */
	GATE_OPEN
} SnowflakeGate;

/* What backends ask of the keeper: bits of "requests". */
#define SNOWFLAKE_WANT_GATE			0x01	/* a mint met a closed gate */
#define SNOWFLAKE_WANT_TIME			0x02	/* the reservation runs out */
#define SNOWFLAKE_WANT_WATCH		0x04	/* the clock seems to be behind */
#define SNOWFLAKE_WANT_FLOOR		0x08	/* "floor" was raised */
#define SNOWFLAKE_WANT_LAYOUT		0x10	/* take the configured layout */
#define SNOWFLAKE_WANT_DATABASE		0x20	/* take the configured database */

/* Why "last" was raised without minting: see SnowflakeGenerator.raised_by. */
typedef enum SnowflakeRaise
{
	RAISED_BY_RESERVATION = 0,	/* to the end of what had been reserved */
	RAISED_BY_ADVANCE			/* by snowflake_advance() */
} SnowflakeRaise;

typedef struct SnowflakeGenerator
{
	/*
	 * The lock, and the newest position issued.  Minters advance "last" by
	 * compare-and-swap while they hold the lock shared; the keeper raises it
	 * the same way, or with the lock held exclusively.  It never goes down.
	 *
	 * Every mint writes both, so they share a cache line, and have it for
	 * themselves: what follows is read by every mint and must not be
	 * invalidated by the others.
	 */
	LWLock		lock;
	pg_atomic_uint64 last;
	char		pad_last[PG_CACHE_LINE_SIZE - sizeof(LWLock) - sizeof(pg_atomic_uint64)];

	/*
	 * Newest position that may be issued, and the one from which on the
	 * keeper has to be asked for more.  Only the keeper writes them.  While
	 * the gate is open they only go up, and are set without the lock: to a
	 * minter that reads an old value less is allowed, never more.
	 */
	pg_atomic_uint64 limit;
	pg_atomic_uint64 refill;

	/*
	 * A SnowflakeGate.  Only the keeper writes it: to GATE_OPEN with the lock
	 * held exclusively; to anything else without, and if it was open, the
	 * keeper takes the lock exclusively afterwards, to wait out the mints in
	 * flight.  A minter reads it while it holds the lock.
	 */
	pg_atomic_uint32 gate;

	int32		node;			/* these two: the lock; only the keeper */
	int64		placed_node;	/* writes, and only while the gate is closed */

	/* What is above is read by every mint, what is below changes now and then */
	char		pad_limit[PG_CACHE_LINE_SIZE];

	/* Anybody sets bits, the keeper takes them.  Atomic. */
	pg_atomic_uint32 requests;

	/*
	 * Largest position that snowflake_advance() asked for.  Anybody raises
	 * it, atomically.
	 */
	pg_atomic_uint64 floor;

	/*
	 * Position and reason of the last raise without minting.  Only the keeper
	 * writes them, atomically; they serve messages and the status only.
	 */
	pg_atomic_uint64 raised_to;
	pg_atomic_uint32 raised_by;

	/*
	 * The keeper's latch and PID, NULL and 0 while there is none.  Only the
	 * keeper writes them, at its start and end.  The latch is that of a
	 * PGPROC and thus valid memory for ever: a late reader wakes somebody in
	 * vain.
	 */
	Latch	   *volatile keeper_latch;
	pg_atomic_uint32 keeper_pid;

	/*
	 * The gate was closed, and the exact end, which stands still since, is
	 * not stored yet.  Only the keeper, which does that before it opens the
	 * gate again; if it fails, its successor does.
	 */
	bool		unsettled;

	/*
	 * SQLSTATE of the error that ended the keeper's last round, 0 if none
	 * did. Only the keeper writes it, atomically.
	 */
	pg_atomic_uint32 failure;

	/*
	 * OID of the database that has, or had, the reservation, while the gate
	 * is GATE_RESERVATION_LOST.  Only the keeper writes it, atomically.
	 */
	pg_atomic_uint32 kept_in;

	/* Broadcast when the gate, the limit or "last" was changed by the keeper. */
	ConditionVariable changed;

	/*
	 * Canonical text of the stored layout, while the gate is
	 * GATE_LAYOUT_CHANGED.  The lock.
	 */
	char		stored_layout[SNOWFLAKE_LAYOUT_TEXT_SIZE];
} SnowflakeGenerator;

/* NULL if the library was not preloaded. */
extern SnowflakeGenerator *snowflake_generator;

extern void snowflake_generator_init(void);
extern void snowflake_require_generator(const char *function);

/* The keeper's part */
extern void snowflake_gate_set(SnowflakeGate reason);
extern void snowflake_gate_close(SnowflakeGate reason);
extern void snowflake_gate_layout_changed(const char *stored_layout);
extern void snowflake_gate_reservation_lost(Oid kept_in);
extern void snowflake_gate_open(int32 node, uint64 last, uint64 limit,
								uint64 refill);
extern void snowflake_raise(uint64 position, SnowflakeRaise by);

/* Everybody's part */
extern void snowflake_request(uint32 what);
extern bool snowflake_wait_for_keeper(int64 deadline_usec);
extern const char *snowflake_gate_reason(SnowflakeGate gate);
extern bool snowflake_get_stored_layout(char *text, size_t size);
extern int64 snowflake_position_id(uint64 position);

#endif							/* SNOWFLAKE_GENERATOR_H */
