/*-------------------------------------------------------------------------
 *
 * frontier_sample.h
 *	  Frontiers that were computed, for snapshots that were taken later.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_FRONTIER_SAMPLE_H
#define SNOWFLAKE_FRONTIER_SAMPLE_H

#include "access/transam.h"

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

extern Size snowflake_frontier_sample_size(void);
extern void snowflake_frontier_sample_attach(int tranche);
extern void snowflake_frontier_sample_publish(Oid database,
											  const SnowflakeFrontierSample *sample);
extern bool snowflake_frontier_sample_is_before(const SnowflakeFrontierSample *sample,
												FullTransactionId xmax, bool imported);
extern int64 snowflake_frontier_sample_find(Oid database, uint32 lowered_at,
											FullTransactionId xmax, bool imported);

#endif							/* SNOWFLAKE_FRONTIER_SAMPLE_H */
