/*-------------------------------------------------------------------------
 *
 * frontier.h
 *	  How far a table can be read in the order of its IDs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_FRONTIER_H
#define SNOWFLAKE_FRONTIER_H

#include "datatype/timestamp.h"

/*
 * Does the running transaction hold the frontier back, so that it may mint?
 * Only frontier.c writes it.
 */
extern bool snowflake_holds_frontier;

typedef struct SnowflakeFrontier
{
	int64		id;				/* every ID up to it is visible, or never will */
	int64		lag_usec;		/* from its tick to that of the newest ID */
	int			holder_pid;		/* who holds it back; 0: nobody, or a prepared
								 * transaction */
} SnowflakeFrontier;

extern Size snowflake_frontier_size(void);
extern void snowflake_frontier_attach(int tranche);
extern void snowflake_frontier_init(void);

extern void snowflake_hold_frontier(void);
extern bool snowflake_frontier_look(SnowflakeFrontier *frontier);
extern int64 snowflake_frontier_require(const char *function);

#endif							/* SNOWFLAKE_FRONTIER_H */
