/*-------------------------------------------------------------------------
 *
 * pg_primary.h
 *	  The one server of a PostgreSQL coordinator that accepts writes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_PG_PRIMARY_H
#define SNOWFLAKE_PG_PRIMARY_H

#include "coordinator/pg_session.h"

extern SnowflakePgSession *snowflake_pg_primary_open(const char *url, int64 *deadline_usec);

#endif							/* SNOWFLAKE_PG_PRIMARY_H */
