/*-------------------------------------------------------------------------
 *
 * pg_session.h
 *	  A session at a server of a PostgreSQL coordinator.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_PG_SESSION_H
#define SNOWFLAKE_PG_SESSION_H

#include "libpq-fe.h"
#include "utils/palloc.h"

#include "base/compat.h"
#include "coordinator/coordinator.h"

/* A server that accepts writes, as it says itself. */
typedef struct SnowflakePgPrimary
{
	SnowflakeIdentity identity;
	char		started[64];	/* two of one identity differ in this */
	char	   *host;			/* for messages */
	bool		has_key;		/* the records, if there are any, have a
								 * unique index on their key */
} SnowflakePgPrimary;

typedef struct SnowflakePgSession
{
	PGconn	   *conn;
	SnowflakePgPrimary primary;
	int64		deadline_usec;
	int64		blocked_usec;	/* while libpq looked up the host */
	bool		warned;			/* the server has warned since this was
								 * cleared */
	bool		is_unusable;	/* an error was the server's, not ours */
	PGresult   *wanted;			/* of the statements that are being run */
	PGresult   *failed;
	MemoryContextCallback callback;
} SnowflakePgSession;

extern void snowflake_pg_session_receive_notice(void *arg, const PGresult *result);
extern int	snowflake_pg_session_wait(SnowflakePgSession *connection, int events,
									  int64 until_usec);
extern PGresult *snowflake_pg_session_run(SnowflakePgSession *connection,
										  const char *sql, int number, int columns);
extern void snowflake_pg_session_query(SnowflakePgSession *connection, const char *sql);
extern const PGresult *snowflake_pg_session_row(SnowflakePgSession *connection, int columns);
pg_noreturn extern void snowflake_pg_session_fail(SnowflakePgSession *connection,
												  const PGresult *result);
pg_noreturn extern void snowflake_pg_session_fail_silent(SnowflakePgSession *connection);
extern void snowflake_pg_session_finish(void *arg);

#endif							/* SNOWFLAKE_PG_SESSION_H */
