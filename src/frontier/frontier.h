/*-------------------------------------------------------------------------
 *
 * frontier.h
 *	  How far a table can be read in the order of its IDs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_FRONTIER_H
#define SNOWFLAKE_FRONTIER_H

#include "access/transam.h"
#include "datatype/timestamp.h"
#include "storage/lock.h"
#include "storage/proc.h"

#include "generator/slot.h"

/*
 * The process whose slot this process has to fill, and that slot; NULL until
 * its first mint.  Only frontier.c writes them.
 */
extern PGPROC *snowflake_frontier_proc;
extern SnowflakeSlot *snowflake_frontier_slot;

typedef struct SnowflakeFrontier
{
	int64		id;				/* every ID up to it is visible, or never will
								 * be, to snapshots taken from now on */
	uint32		lowered_at;		/* the generator's, when this was computed */
	int64		lag_usec;		/* from its tick to that of the newest ID */
	int			holder_pid;		/* PID of the process that holds it back; 0:
								 * none, or a prepared transaction */
} SnowflakeFrontier;

/*
 * A frontier, and the numbers that tell whether a snapshot was taken after it
 * was computed.
 */
typedef struct SnowflakeFrontierSample
{
	int64		id;				/* -1: it lies before the first ID */
	uint32		lowered_at;		/* the generator's, read with "last" */
	FullTransactionId xmax;		/* of a snapshot taken after it was computed:
								 * one above the newest that had ended */
	FullTransactionId next;		/* the next transaction ID, read after it was
								 * computed */
} SnowflakeFrontierSample;

/* A transaction that holds the frontier back. */
typedef struct SnowflakeHold
{
	int64		oldest_id;		/* it has minted no ID below */
	TimestampTz since;			/* its start; 0: not known */
	int			pid;			/* 0: a prepared transaction */
	TransactionId prepared;
} SnowflakeHold;

/* The virtual ID of the transaction that a process runs, in one word. */
static inline uint64
snowflake_frontier_running(const volatile PGPROC *proc)
{
	VirtualTransactionId vxid;
	uint64		result;

	StaticAssertDecl(sizeof(vxid) == sizeof(result), "a virtual ID fits into a word");
	GET_VXID_FROM_PGPROC(vxid, *proc);
	memcpy(&result, &vxid, sizeof(result));
	return result;
}

/* Does the running transaction hold the frontier back, so that it may mint? */
static inline bool
snowflake_frontier_is_held(void)
{
	return snowflake_frontier_slot != NULL &&
		pg_atomic_read_u64(&snowflake_frontier_slot->holder) ==
		snowflake_frontier_running(snowflake_frontier_proc);
}

extern void snowflake_frontier_init(void);
extern void snowflake_frontier_hold(void);
extern bool snowflake_frontier_compute(Oid database, SnowflakeFrontier *frontier);
extern void snowflake_frontier_publish(void);

/* frontier_sample.c: frontiers that were computed, for snapshots that were taken later */

extern Size snowflake_frontier_sample_size(void);
extern void snowflake_frontier_sample_attach(int tranche);
extern void snowflake_frontier_sample_publish(Oid database,
											  const SnowflakeFrontierSample *sample);
extern int64 snowflake_frontier_sample_find(Oid database, uint32 lowered_at,
											FullTransactionId xmax, bool imported);

/* prepared.c: prepared transactions hold the frontier back */

extern Size snowflake_prepared_size(void);
extern void snowflake_prepared_attach(int tranche);
extern void snowflake_prepared_hold(int64 oldest_id);
extern int	snowflake_prepared_append(Oid database, SnowflakeHold **holds, int nholds);

#endif							/* SNOWFLAKE_FRONTIER_H */
