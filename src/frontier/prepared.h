/*-------------------------------------------------------------------------
 *
 * prepared.h
 *	  Prepared transactions hold the frontier back.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_PREPARED_H
#define SNOWFLAKE_PREPARED_H

#include "access/transam.h"
#include "datatype/timestamp.h"

/* A transaction that was, or may become, prepared. */
typedef struct SnowflakePrepared
{
	FullTransactionId xid;
	Oid			database;
	int64		oldest_id;		/* it has minted no ID below */
	TimestampTz since;			/* its start; 0: not known */
} SnowflakePrepared;

extern Size snowflake_prepared_size(void);
extern void snowflake_prepared_attach(int tranche);
extern void snowflake_prepared_hold(int64 oldest_id);
extern uint32 snowflake_prepared_get(Oid database, SnowflakePrepared **holds);

#endif							/* SNOWFLAKE_PREPARED_H */
