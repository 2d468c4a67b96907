/*-------------------------------------------------------------------------
 *
 * pg_session.c
 *	  A session at a server of a PostgreSQL coordinator.
 *
 * The other side may not be a PostgreSQL server, so every answer is checked.  No wait
 * goes beyond its deadline, and all can be interrupted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "libpq-fe.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "coordinator/pg_session.h"

/* Close a session, which is the argument.  This may be the callback of a memory context. */
void
snowflake_pg_session_finish(void *arg)
{
	SnowflakePgSession *connection = arg;

	PQclear(connection->wanted);
	PQclear(connection->failed);
	connection->wanted = connection->failed = NULL;
	if (connection->conn != NULL)
	{
		PQfinish(connection->conn);
		ReleaseExternalFD();
	}
	connection->conn = NULL;
}

/*
 * Receive a notice.  A commit that warns may not have reached the synchronous
 * standbys.  Other notices are ignored.
 */
void
snowflake_pg_session_receive_notice(void *arg, const PGresult *result)
{
	SnowflakePgSession *connection = arg;
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	if (severity != NULL && strcmp(severity, "WARNING") == 0)
		connection->warned = true;
}

/* Raise the error of a result, or of the connection if that is NULL. */
void
snowflake_pg_session_fail(SnowflakePgSession *connection, const PGresult *result)
{
	const char *sqlstate = result == NULL ? NULL :
	PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = result == NULL ? NULL :
	PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	char	   *text;

	/* it may not be from a PostgreSQL server */
	if (sqlstate != NULL && strlen(sqlstate) != 5)
		sqlstate = NULL;

	connection->is_unusable = true;
	text = pchomp(message != NULL ? message : PQerrorMessage(connection->conn));
	for (char *c = text; *c != '\0'; c++)
		if (IS_HIGHBIT_SET(*c))
			*c = '?';			/* it is in the coordinator's encoding */
	ereport(ERROR,
			errcode(sqlstate == NULL ? ERRCODE_CONNECTION_FAILURE :
					MAKE_SQLSTATE(sqlstate[0], sqlstate[1], sqlstate[2],
								  sqlstate[3], sqlstate[4])),
			errmsg("could not use the coordinator: %s", text),
			sqlstate == NULL ? 0 :
			strcmp(sqlstate, "42P01") == 0 || strcmp(sqlstate, "3F000") == 0 ?
			errhint("If the coordinator has lost its data, re-create the fleet with snowflake_fleet_recover(). If there never was a fleet, create it with snowflake_fleet_create().") :
			strcmp(sqlstate, "42501") == 0 ?
			errhint("The script snowflake_fleet.sql creates the schema and the table, and says which privileges the role needs.") : 0);
}

/* Raise the error of a server that has not answered in time. */
void
snowflake_pg_session_fail_silent(SnowflakePgSession *connection)
{
	connection->is_unusable = true;
	ereport(ERROR,
			errcode(ERRCODE_CONNECTION_FAILURE),
			errmsg("the coordinator does not answer"));
}

/*
 * Sleep until the socket is ready for one of the events, something else has
 * happened, or the given time has come, on the monotonic clock.  Returns the
 * events that ended the sleep, or 0 if the time had already come.
 */
int
snowflake_pg_session_wait(SnowflakePgSession *connection, int events, int64 until_usec)
{
	static uint32 wait_event = 0;
	int64		left_usec = until_usec - snowflake_clock_monotonic_usec();
	int			rc;

	if (left_usec <= 0)
		return 0;
	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("SnowflakeCoordinator");
	rc = WaitLatchOrSocket(MyLatch,
						   events | WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						   PQsocket(connection->conn),
						   (long) (left_usec / 1000 + 1), wait_event);
	if (rc & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return rc;
}

/*
 * Raise an error about an answer of the wrong form: the other side is not a PostgreSQL
 * server, or it has something else under the names that we use.
 */
pg_noreturn static void
fail_strange(SnowflakePgSession *connection)
{
	connection->is_unusable = true;
	ereport(ERROR,
			errcode(ERRCODE_CONNECTION_FAILURE),
			errmsg("could not use the coordinator: its answer is not that of a PostgreSQL server"));
}

static void
send_query(SnowflakePgSession *connection, const char *sql)
{
	connection->warned = false;
	if (!PQsendQuery(connection->conn, sql))
		snowflake_pg_session_fail(connection, NULL);
}

/* Wait for the next result of what was sent.  Returns NULL if there are no more. */
static PGresult *
next_result(SnowflakePgSession *connection)
{
	PGconn	   *conn = connection->conn;
	PGresult   *result;

	CHECK_FOR_INTERRUPTS();
	while (PQisBusy(conn))
	{
		if (snowflake_pg_session_wait(connection, WL_SOCKET_READABLE, connection->deadline_usec) == 0)
			snowflake_pg_session_fail_silent(connection);
		if (!PQconsumeInput(conn))
			snowflake_pg_session_fail(connection, NULL);
	}
	result = PQgetResult(conn);
	switch (PQresultStatus(result))
	{
			/* such results would come one after the other, endlessly */
		case PGRES_COPY_OUT:
		case PGRES_COPY_IN:
		case PGRES_COPY_BOTH:
			PQclear(result);
			fail_strange(connection);
		default:
			return result;
	}
}

/* Is this the result of a statement that succeeded?  If not, it is kept as the error. */
static bool
is_success(SnowflakePgSession *connection, PGresult *result)
{
	switch (PQresultStatus(result))
	{
		case PGRES_COMMAND_OK:
		case PGRES_TUPLES_OK:
		case PGRES_SINGLE_TUPLE:
			return true;
		default:
			PQclear(connection->failed);
			connection->failed = result;
			return false;
	}
}

/*
 * Run statements, and return the result of the one with that number, counted from
 * 0; the results of the others are dropped.  The result must have that many
 * columns, each of which may be null, and one row if there are columns.  Raises an
 * error if anything fails.
 */
PGresult *
snowflake_pg_session_run(SnowflakePgSession *connection, const char *sql, int number,
						 int columns)
{
	PGresult   *result;

	send_query(connection, sql);
	while ((result = next_result(connection)) != NULL)
	{
		if (!is_success(connection, result))
			continue;
		if (number-- == 0)
			connection->wanted = result;
		else
			PQclear(result);
	}

	if (connection->failed != NULL)
		snowflake_pg_session_fail(connection, connection->failed);
	if (connection->wanted == NULL)
	{
		connection->is_unusable = true;
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("the coordinator closed the connection"));
	}

	/* libpq returns a null pointer for a missing field */
	if (PQnfields(connection->wanted) != columns ||
		PQntuples(connection->wanted) != (columns > 0 ? 1 : 0))
		fail_strange(connection);
	result = connection->wanted;
	connection->wanted = NULL;
	return result;
}

/* Send a query whose rows snowflake_pg_session_row() reads.  SET commands may come before it. */
void
snowflake_pg_session_query(SnowflakePgSession *connection, const char *sql)
{
	send_query(connection, sql);
	if (!PQsetSingleRowMode(connection->conn))
		snowflake_pg_session_fail(connection, NULL);
}

/*
 * Returns the next row of that query, which must have that many columns, or NULL if
 * there are no more.  It is valid until the next call: the rows are never all in
 * memory.
 */
const PGresult *
snowflake_pg_session_row(SnowflakePgSession *connection, int columns)
{
	PGresult   *result;
	bool		is_complete = false;

	PQclear(connection->wanted);
	connection->wanted = NULL;
	while ((result = next_result(connection)) != NULL)
	{
		if (!is_success(connection, result))
			continue;
		if (strcmp(PQcmdStatus(result), "SET") == 0)
		{
			PQclear(result);
			continue;
		}
		PQclear(connection->wanted);
		connection->wanted = result;
		if (PQnfields(result) != columns)
			fail_strange(connection);
		if (PQresultStatus(result) == PGRES_SINGLE_TUPLE)
			return result;
		is_complete = true;
	}
	if (connection->failed != NULL)
		snowflake_pg_session_fail(connection, connection->failed);
	if (!is_complete)
		fail_strange(connection);
	return NULL;
}
