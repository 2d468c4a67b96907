/*-------------------------------------------------------------------------
 *
 * pg_session.h
 *	  A session at the one server of a PostgreSQL coordinator that accepts
 *	  writes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_PG_SESSION_H
#define SNOWFLAKE_PG_SESSION_H

#include "libpq-fe.h"

#include "coordinator/coordinator.h"

typedef struct SnowflakePgSession
{
	SnowflakeCoordinator coordinator;
	PGconn	   *conn;
	char		started[64];	/* when the server was: two of one identity
								 * differ in this */
	char	   *host;			/* for messages */
	bool		has_key;		/* the records, if there are any, have a
								 * unique index on their key */
	bool		warned;			/* the server has warned since this was
								 * cleared */
	bool		is_unusable;	/* an error was the server's, not ours */
	int64		blocked_usec;	/* while libpq looked up the host */
	PGresult   *wanted;			/* of the statements that are being run */
	PGresult   *failed;
} SnowflakePgSession;

extern SnowflakePgSession *snowflake_pg_session_open(const char *url, int64 deadline_usec);
extern PGresult *snowflake_pg_session_run(SnowflakePgSession *session,
										  const char *sql, int number, int columns);
extern void snowflake_pg_session_query(SnowflakePgSession *session, const char *sql);
extern const PGresult *snowflake_pg_session_row(SnowflakePgSession *session, int columns);
pg_noreturn extern void snowflake_pg_session_fail(SnowflakePgSession *session,
												  const PGresult *result);

#endif							/* SNOWFLAKE_PG_SESSION_H */
