/*-------------------------------------------------------------------------
 *
 * postgresql.c
 *	  Any PostgreSQL database as the coordinator of a fleet.
 *
 * The records are the rows of an ordinary table, for which the role needs SELECT,
 * INSERT and UPDATE.  It is as good a coordinator as its own failover: one that
 * forgets a commit is what lease.c calls a coordinator that went back in time.
 *
 * Names are qualified, so it does not matter what search_path the role has.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "libpq-fe.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "coordinator/coordinator.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowflake_postgresql",
					.version = SNOWFLAKE_VERSION
);

#define TABLE		"snowflake_fleet.records"

/* What sql/snowflake_fleet.sql does, for a role that may not. */
#define PREPARE_SQL \
	"CREATE SCHEMA IF NOT EXISTS snowflake_fleet; " \
	"CREATE TABLE IF NOT EXISTS " TABLE " (key text PRIMARY KEY, value text NOT NULL)"

typedef struct Connection
{
	PGconn	   *conn;
	int64		deadline_usec;
	bool		warned;			/* the server warned since this was cleared */
	PGresult   *wanted;			/* of the statements that are being run */
	PGresult   *failed;
	MemoryContextCallback callback;
} Connection;

static void
finish(void *arg)
{
	Connection *connection = arg;

	PQclear(connection->wanted);
	PQclear(connection->failed);
	connection->wanted = connection->failed = NULL;
	if (connection->conn != NULL)
		PQfinish(connection->conn);
	connection->conn = NULL;
}

/*
 * A commit that warns may not have got to the synchronous standbys.  Everything
 * else is not worth a line in the log.
 */
static void
receive_notice(void *arg, const PGresult *result)
{
	Connection *connection = arg;
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	if (severity != NULL && strcmp(severity, "WARNING") == 0)
		connection->warned = true;
}

/* Raise the error of a result, or of the connection if that is NULL. */
pg_noreturn static void
fail(Connection *connection, const PGresult *result)
{
	const char *sqlstate = result == NULL ? NULL :
	PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = result == NULL ? NULL :
	PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	ereport(ERROR,
			errcode(sqlstate == NULL ? ERRCODE_CONNECTION_FAILURE :
					MAKE_SQLSTATE(sqlstate[0], sqlstate[1], sqlstate[2],
								  sqlstate[3], sqlstate[4])),
			errmsg("could not use the coordinator: %s",
				   message != NULL ? message :
				   pchomp(PQerrorMessage(connection->conn))),
			sqlstate != NULL && strcmp(sqlstate, "42P01") == 0 ?
			errhint("Found the fleet with snowflake_fleet_create(), or make its table with the script snowflake_fleet.sql.") : 0);
}

pg_noreturn static void
fail_silent(void)
{
	ereport(ERROR,
			errcode(ERRCODE_CONNECTION_FAILURE),
			errmsg("the coordinator does not answer"));
}

/*
 * Sleep until the socket is ready for one of the events, or something else has
 * happened.  Returns what ended the sleep, or 0 if that time has come.
 */
static int
wait_for_socket(Connection *connection, int events, int64 until_usec)
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
 * Run statements, of which the one by number returns what is returned here: the
 * others return nothing of interest.
 */
static PGresult *
run(Connection *connection, const char *sql, int number)
{
	PGconn	   *conn = connection->conn;
	PGresult   *wanted;

	connection->warned = false;
	if (!PQsendQuery(conn, sql))
		fail(connection, NULL);
	for (;;)
	{
		PGresult   *result;
		ExecStatusType status;

		while (PQisBusy(conn))
		{
			if (wait_for_socket(connection, WL_SOCKET_READABLE, connection->deadline_usec) == 0)
				fail_silent();
			if (!PQconsumeInput(conn))
				fail(connection, NULL);
		}
		result = PQgetResult(conn);
		if (result == NULL)
			break;
		status = PQresultStatus(result);
		if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		{
			PQclear(connection->failed);
			connection->failed = result;
		}
		else if (number-- == 0)
			connection->wanted = result;
		else
			PQclear(result);
	}

	if (connection->failed != NULL)
		fail(connection, connection->failed);
	wanted = connection->wanted;
	connection->wanted = NULL;
	if (wanted == NULL)
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("the coordinator closed the connection"));
	return wanted;
}

/*
 * An element of a list with commas; the only one is for all.  What libpq would take
 * in place of an empty one has to be said, as it ignores that.
 */
static const char *
element(const char *list, int number, const char *if_empty)
{
	const char *end;

	if (list == NULL)
		return NULL;
	for (; number > 0 && strchr(list, ',') != NULL; number--)
		list = strchr(list, ',') + 1;
	end = list + strcspn(list, ",");
	return end == list ? if_empty : pnstrdup(list, end - list);
}

/*
 * Connect to one of the URL's hosts: with its parameters, and to a server that can
 * be written, as one of several may be a standby.  Returns how libpq ended, or
 * PGRES_POLLING_READING if that time came first.
 */
static PostgresPollingStatusType
connect_to_host(Connection *connection, const char *url, const char *const *lists,
				int number, int64 until_usec)
{
	const char *const keywords[] = {
		"application_name", "target_session_attrs", "dbname",
		"host", "hostaddr", "port", NULL
	};
	const char *const values[] = {
		"snowflake", "read-write", url,
		element(lists[0], number, DEFAULT_PGSOCKET_DIR),
		element(lists[1], number, NULL),
		element(lists[2], number, DEF_PGPORT_STR),
		NULL
	};
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;

	connection->conn = PQconnectStartParams(keywords, values, true);
	if (connection->conn == NULL)
		ereport(ERROR,
				errcode(ERRCODE_OUT_OF_MEMORY),
				errmsg("out of memory"));
	if (PQstatus(connection->conn) == CONNECTION_BAD)
		return PGRES_POLLING_FAILED;
	PQsetNoticeReceiver(connection->conn, receive_notice, connection);

	while (status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED)
	{
		int			wanted = status == PGRES_POLLING_READING ?
		WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE;
		int			events = wait_for_socket(connection, wanted, until_usec);

		if (events == 0)
			return PGRES_POLLING_READING;

		/*
		 * Not before: it takes the socket for connected when it is called,
		 * and would wait for it itself, without regard to time and
		 * interrupts.
		 */
		if (events & wanted)
			status = PQconnectPoll(connection->conn);
	}
	return status;
}

/*
 * Try the hosts one after the other.  libpq would do that by itself, but without
 * a thought for how long one of them does not answer.
 */
static void *
pg_connect(const char *url, int64 deadline_usec)
{
	Connection *connection = palloc0(sizeof(Connection));
	PQconninfoOption *options = PQconninfoParse(url, NULL);
	const char *lists[3] = {NULL, NULL, NULL};
	PostgresPollingStatusType status;
	int			hosts = 1;

	for (PQconninfoOption *option = options; option && option->keyword; option++)
	{
		int			which = strcmp(option->keyword, "host") == 0 ? 0 :
		strcmp(option->keyword, "hostaddr") == 0 ? 1 :
		strcmp(option->keyword, "port") == 0 ? 2 : -1;
		int			elements = 1;

		if (which < 0 || option->val == NULL)
			continue;
		lists[which] = pstrdup(option->val);
		for (const char *c = option->val; *c != '\0'; c++)
			elements += *c == ',';
		hosts = Max(hosts, elements);
	}
	PQconninfoFree(options);
	if (hosts == 1)
		memset(lists, 0, sizeof(lists));

	connection->deadline_usec = deadline_usec;
	connection->callback.func = finish;
	connection->callback.arg = connection;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &connection->callback);

	for (int i = 0;; i++)
	{
		int64		now_usec = snowflake_clock_monotonic_usec();

		status = connect_to_host(connection, url, lists, i,
								 now_usec + (deadline_usec - now_usec) / (hosts - i));
		if (status == PGRES_POLLING_OK)
			return connection;
		if (i == hosts - 1)
			break;
		finish(connection);
	}
	if (status == PGRES_POLLING_FAILED)
		fail(connection, NULL);
	fail_silent();
}

static void
pg_close(void *arg)
{
	finish(arg);
}

static void
pg_prepare(void *arg)
{
	PGresult   *result = run(arg, "SELECT pg_catalog.to_regclass('" TABLE "') IS NULL", 0);
	bool		is_missing = strcmp(PQgetvalue(result, 0, 0), "t") == 0;

	/* IF NOT EXISTS alone would need the privileges all the same */
	PQclear(result);
	if (is_missing)
		PQclear(run(arg, PREPARE_SQL, 0));
}

/* A text as a literal, whatever the server takes a backslash for. */
static char *
literal(Connection *connection, const char *text)
{
	char	   *escaped = PQescapeLiteral(connection->conn, text, strlen(text));
	char	   *copy;

	if (escaped == NULL)
		fail(connection, NULL);
	copy = pstrdup(escaped);
	PQfreemem(escaped);
	return copy;
}

static List *
pg_list(void *arg, const char *key)
{
	const char *all = "SELECT key, value FROM " TABLE;
	PGresult   *result = run(arg, key == NULL ? all :
							 psprintf("%s WHERE key OPERATOR(pg_catalog.=) %s", all,
									  literal(arg, key)), 0);
	List	   *records = NIL;

	for (int i = 0; i < PQntuples(result); i++)
	{
		SnowflakeRecord *record = palloc0(sizeof(SnowflakeRecord));

		record->key = pstrdup(PQgetvalue(result, i, 0));
		record->value = pstrdup(PQgetvalue(result, i, 1));
		records = lappend(records, record);
	}
	PQclear(result);
	return records;
}

/* The condition that a row is that of a key, and has a value. */
static char *
condition(Connection *connection, const char *key, const char *value)
{
	return psprintf("key OPERATOR(pg_catalog.=) %s AND value OPERATOR(pg_catalog.=) %s",
					literal(connection, key), literal(connection, value));
}

/*
 * The new row is durable when this returns, whatever the role has for a default;
 * and who waits for a row looks at its new value afterwards.  Nobody is left
 * waiting there when the deadline is over here.
 *
 * The row that is to be unchanged is locked until the commit.  Many may share that
 * lock, and whoever writes that row would wait for a moment without any of them: so
 * who writes without such a condition locks the table, for which they queue.
 */
static bool
pg_compare_and_set(void *arg, const char *key, const char *expected,
				   const char *value, const SnowflakeRecord *unchanged)
{
	Connection *connection = arg;
	const char *lock = unchanged == NULL ? " LOCK TABLE " TABLE " IN SHARE ROW EXCLUSIVE MODE;" : "";
	const char *guard = unchanged == NULL ? "SELECT" :
	psprintf("SELECT FROM " TABLE " WHERE %s FOR SHARE",
			 condition(connection, unchanged->key, unchanged->value));
	char	   *statement = expected == NULL ?
	psprintf("WITH guard AS (%s) INSERT INTO " TABLE " (key, value)"
			 " SELECT %s, %s FROM guard ON CONFLICT DO NOTHING",
			 guard, literal(connection, key), literal(connection, value)) :
	psprintf("WITH guard AS (%s) UPDATE " TABLE " SET value = %s"
			 " WHERE %s AND EXISTS (SELECT FROM guard)",
			 guard, literal(connection, value), condition(connection, key, expected));
	int64		left_usec = connection->deadline_usec - snowflake_clock_monotonic_usec();
	long		left_ms = (long) Max(left_usec / 1000, 1);
	PGresult   *result;
	bool		done;

	result = run(connection,
				 psprintf("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
						  " SET LOCAL lock_timeout = %ld; SET LOCAL statement_timeout = %ld;"
						  " SET LOCAL synchronous_commit = on;%s %s; COMMIT",
						  left_ms, left_ms, lock, statement),
				 unchanged == NULL ? 5 : 4);
	done = strcmp(PQcmdTuples(result), "1") == 0;
	PQclear(result);
	if (connection->warned)
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("the coordinator warned at a commit, which may not be durable on its standbys"));
	return done;
}

const SnowflakeCoordinator *
_SnowflakeCoordinatorInit(void)
{
	static const SnowflakeCoordinator coordinator = {
		.connect = pg_connect,
		.prepare = pg_prepare,
		.list = pg_list,
		.compare_and_set = pg_compare_and_set,
		.close = pg_close
	};

	return &coordinator;
}
