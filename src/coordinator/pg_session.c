/*-------------------------------------------------------------------------
 *
 * pg_session.c
 *	  A session at the one server of a PostgreSQL coordinator that accepts
 *	  writes.
 *
 * All hosts are asked for their identity, each time.  If two accept writes, one was
 * replaced but still runs, and neither is used.  The other side may not be a PostgreSQL
 * server, so every answer is checked.
 *
 * A name is looked up by libpq, which calls the system's resolver, as it does in core's own
 * walreceiver; "hostaddr" avoids that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "coordinator/pg_session.h"

/*
 * The identity of a server, whether it accepts writes, and whether the table of records, if
 * there is one, has a unique index on the key: one that was restored without it may have two
 * records of a node ID.  The name of a WAL file begins with the timeline that is being
 * written, which the control file may not have yet.
 */
#define IDENTIFY_SQL \
	"SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'on'" \
	" ELSE pg_catalog.current_setting('transaction_read_only') END," \
	" (SELECT system_identifier FROM pg_catalog.pg_control_system())," \
	" CASE WHEN NOT pg_catalog.pg_is_in_recovery()" \
	" THEN pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()) END," \
	" pg_catalog.pg_postmaster_start_time()," \
	" pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())::pg_catalog.int8," \
	" NOT EXISTS (SELECT FROM pg_catalog.pg_class t, pg_catalog.pg_namespace s" \
	" WHERE t.relnamespace OPERATOR(pg_catalog.=) s.oid" \
	" AND s.nspname OPERATOR(pg_catalog.=) 'snowflake_fleet' AND t.relname OPERATOR(pg_catalog.=) 'records'" \
	" AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i, pg_catalog.pg_attribute a" \
	" WHERE i.indrelid OPERATOR(pg_catalog.=) t.oid AND a.attrelid OPERATOR(pg_catalog.=) t.oid" \
	" AND a.attname OPERATOR(pg_catalog.=) 'key' AND i.indkey[0] OPERATOR(pg_catalog.=) a.attnum" \
	" AND i.indnatts OPERATOR(pg_catalog.=) 1 AND i.indpred IS NULL" \
	" AND i.indisunique AND i.indisvalid AND i.indimmediate))"

static void
finish(void *arg)
{
	SnowflakePgSession *session = arg;

	PQclear(session->wanted);
	PQclear(session->failed);
	session->wanted = session->failed = NULL;
	if (session->conn != NULL)
	{
		PQfinish(session->conn);
		ReleaseExternalFD();
	}
	session->conn = NULL;
}

/* A commit that warns may not have reached the synchronous standbys. */
static void
receive_notice(void *arg, const PGresult *result)
{
	SnowflakePgSession *session = arg;
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	if (severity != NULL && strcmp(severity, "WARNING") == 0)
		session->warned = true;
}

/* Raise the error of a result, or of the connection if that is NULL. */
void
snowflake_pg_session_fail(SnowflakePgSession *session, const PGresult *result)
{
	const char *sqlstate = result == NULL ? NULL :
	PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = result == NULL ? NULL :
	PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	char	   *text;

	/* it may not be from a PostgreSQL server */
	if (sqlstate != NULL && strlen(sqlstate) != 5)
		sqlstate = NULL;

	session->is_unusable = true;
	text = pchomp(message != NULL ? message : PQerrorMessage(session->conn));
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

/* Raise the error of a server that does not do what a PostgreSQL server would. */
pg_noreturn static void
fail_with(SnowflakePgSession *session, const char *message)
{
	session->is_unusable = true;
	ereport(ERROR,
			errcode(ERRCODE_CONNECTION_FAILURE),
			errmsg_internal("%s", message));
}

#define NO_ANSWER		"the coordinator does not answer"
#define STRANGE_ANSWER	"could not use the coordinator: its answer is not that of a PostgreSQL server"

/*
 * Sleep until one of the events of the socket, something else, or the deadline.  Returns the
 * events that ended the sleep, or 0 if the deadline had already come.
 */
static int
wait_for_socket(SnowflakePgSession *session, int events)
{
	static uint32 wait_event = 0;
	int64		left_usec = session->coordinator.deadline_usec - snowflake_clock_monotonic_usec();
	int			rc;

	if (left_usec <= 0)
		return 0;
	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("SnowflakeCoordinator");
	rc = WaitLatchOrSocket(MyLatch,
						   events | WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						   PQsocket(session->conn),
						   (long) (left_usec / 1000 + 1), wait_event);
	if (rc & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return rc;
}

static void
send_query(SnowflakePgSession *session, const char *sql)
{
	session->warned = false;
	if (!PQsendQuery(session->conn, sql))
		snowflake_pg_session_fail(session, NULL);
}

/*
 * Wait for the next result of what was sent that is not an error; the last error is kept.
 * Returns NULL if there are no more.
 */
static PGresult *
next_result(SnowflakePgSession *session)
{
	PGresult   *result;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		while (PQisBusy(session->conn))
		{
			if (wait_for_socket(session, WL_SOCKET_READABLE) == 0)
				fail_with(session, NO_ANSWER);
			if (!PQconsumeInput(session->conn))
				snowflake_pg_session_fail(session, NULL);
		}
		result = PQgetResult(session->conn);
		if (result == NULL)
			return NULL;
		switch (PQresultStatus(result))
		{
			case PGRES_COMMAND_OK:
			case PGRES_TUPLES_OK:
			case PGRES_SINGLE_TUPLE:
				return result;

				/* such results would come one after the other, endlessly */
			case PGRES_COPY_OUT:
			case PGRES_COPY_IN:
			case PGRES_COPY_BOTH:
				PQclear(result);
				fail_with(session, STRANGE_ANSWER);
			default:
				PQclear(session->failed);
				session->failed = result;
		}
	}
}

/*
 * Run statements, and return the result of the one with that number, counted from 0.  It must
 * have that many columns, each of which may be null, and one row if there are columns.
 */
PGresult *
snowflake_pg_session_run(SnowflakePgSession *session, const char *sql, int number, int columns)
{
	PGresult   *result;

	send_query(session, sql);
	while ((result = next_result(session)) != NULL)
	{
		if (number-- == 0)
			session->wanted = result;
		else
			PQclear(result);
	}

	if (session->failed != NULL)
		snowflake_pg_session_fail(session, session->failed);
	if (session->wanted == NULL)
		fail_with(session, "the coordinator closed the connection");

	/* libpq returns a null pointer for a missing field */
	if (PQnfields(session->wanted) != columns ||
		PQntuples(session->wanted) != (columns > 0 ? 1 : 0))
		fail_with(session, STRANGE_ANSWER);
	result = session->wanted;
	session->wanted = NULL;
	return result;
}

/* Send a query whose rows snowflake_pg_session_row() reads.  SET commands may come before it. */
void
snowflake_pg_session_query(SnowflakePgSession *session, const char *sql)
{
	send_query(session, sql);
	if (!PQsetSingleRowMode(session->conn))
		snowflake_pg_session_fail(session, NULL);
}

/*
 * Returns the next row of that query, which must have that many columns, or NULL if there are
 * no more.  It is valid until the next call: the rows are never all in memory.
 */
const PGresult *
snowflake_pg_session_row(SnowflakePgSession *session, int columns)
{
	PGresult   *result;
	bool		is_complete = false;

	PQclear(session->wanted);
	session->wanted = NULL;
	while ((result = next_result(session)) != NULL)
	{
		if (strcmp(PQcmdStatus(result), "SET") == 0)
		{
			PQclear(result);
			continue;
		}
		PQclear(session->wanted);
		session->wanted = result;
		if (PQnfields(result) != columns)
			fail_with(session, STRANGE_ANSWER);
		if (PQresultStatus(result) == PGRES_SINGLE_TUPLE)
			return result;
		is_complete = true;
	}
	if (session->failed != NULL)
		snowflake_pg_session_fail(session, session->failed);
	if (!is_complete)
		fail_with(session, STRANGE_ANSWER);
	return NULL;
}

/*
 * Returns an element of a list with commas; if there is only one, it is for all hosts.  An
 * empty one stands for libpq's default, since libpq would ignore an empty value.
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

/* Connect to one of the URL's hosts, with its parameters. */
static void
connect_to_host(SnowflakePgSession *session, const char *url, const char *const *lists, int number)
{
	const char *const keywords[] = {
		"application_name", "dbname", "host", "hostaddr", "port", NULL
	};
	const char *values[] = {
		"snowflake", url,
		element(lists[0], number, DEFAULT_PGSOCKET_DIR),
		element(lists[1], number, NULL),
		element(lists[2], number, DEF_PGPORT_STR),
		NULL
	};
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;
	int64		began_usec = snowflake_clock_monotonic_usec();

	snowflake_coordinator_reserve_file();
	session->conn = PQconnectStartParams(keywords, values, true);
	session->blocked_usec = snowflake_clock_monotonic_usec() - began_usec;
	session->coordinator.deadline_usec += session->blocked_usec;
	if (session->conn == NULL)
	{
		ReleaseExternalFD();
		ereport(ERROR,
				errcode(ERRCODE_OUT_OF_MEMORY),
				errmsg("out of memory"));
	}
	CHECK_FOR_INTERRUPTS();
	if (PQstatus(session->conn) == CONNECTION_BAD)
		snowflake_pg_session_fail(session, NULL);
	PQsetNoticeReceiver(session->conn, receive_notice, session);

	while (status != PGRES_POLLING_OK)
	{
		int			wanted = status == PGRES_POLLING_READING ?
		WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE;
		int			events = wait_for_socket(session, wanted);

		if (events == 0)
			fail_with(session, NO_ANSWER);

		/*
		 * Not before that: libpq assumes that the socket is ready when this
		 * is called, and would wait for it itself, regardless of the deadline
		 * and interrupts.
		 */
		if (events & wanted)
			status = PQconnectPoll(session->conn);
		if (status == PGRES_POLLING_FAILED)
			snowflake_pg_session_fail(session, NULL);
	}
}

/* Ask a server for its identity.  One that does not accept writes, such as a standby, is an error. */
static void
ask_identity(SnowflakePgSession *session)
{
	PGresult   *result = snowflake_pg_session_run(session, IDENTIFY_SQL, 0, 6);
	bool		can_be_written = strcmp(PQgetvalue(result, 0, 0), "off") == 0;
	SnowflakeIdentity *identity = &session->coordinator.identity;
	char		timeline[9];

	strlcpy(identity->cluster, PQgetvalue(result, 0, 1), sizeof(identity->cluster));
	strlcpy(timeline, PQgetvalue(result, 0, 2), sizeof(timeline));
	identity->term = strtol(timeline, NULL, 16);
	strlcpy(session->started, PQgetvalue(result, 0, 3), sizeof(session->started));
	identity->clock = (TimestampTz)
		((strtod(PQgetvalue(result, 0, 4), NULL) -
		  (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (double) SECS_PER_DAY) * USECS_PER_SEC);
	session->has_key = strcmp(PQgetvalue(result, 0, 5), "t") == 0;
	session->host = psprintf("%s:%s", PQhost(session->conn), PQport(session->conn));
	PQclear(result);
	if (can_be_written)
		return;
	session->is_unusable = true;
	ereport(ERROR,
			errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
			errmsg("could not use the coordinator: it is read-only"));
}

/* Raise an error if two servers accept writes: each would grant what the other one has granted. */
static void
check_alone(const SnowflakePgSession *one, const SnowflakePgSession *other)
{
	const SnowflakeIdentity *identity = &one->coordinator.identity;
	const SnowflakeIdentity *of_other = &other->coordinator.identity;

	if (strcmp(identity->cluster, of_other->cluster) == 0 && identity->term == of_other->term &&
		strcmp(one->started, other->started) == 0)
		return;
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("two servers of the coordinator accept writes"),
			errdetail("One is \"%s\", on timeline " INT64_FORMAT ", the other is \"%s\", on timeline " INT64_FORMAT ".",
					  one->host, identity->term, other->host, of_other->term),
			errhint("Stop the one that was replaced."));
}

/*
 * Connect to a host that is to accept writes, and be the same as "used", unless that is NULL.
 * An error of the host concerns it only: it is returned.
 */
static ErrorData *
try_host(SnowflakePgSession *session, const SnowflakePgSession *used, const char *url,
		 const char *const *lists, int number)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		connect_to_host(session, url, lists, number);
		ask_identity(session);
		if (used != NULL)
			check_alone(used, session);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		if (!session->is_unusable)
			PG_RE_THROW();
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	return error;
}

/* Raise an error if others can read a file of passwords: libpq would ignore it silently. */
static void
check_passfile(const char *path)
{
	struct stat attributes;

	if (stat(path, &attributes) == 0 && (attributes.st_mode & (S_IRWXG | S_IRWXO)) != 0)
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("file \"%s\" has group or world access", path),
				errdetail("It must have permissions u=rw (0600) or less."));
}

/*
 * Open a session at the one server that accepts writes, as snowflake_coordinator_connect()
 * is to.  libpq would try the hosts by itself, but regardless of how long one of them does not
 * answer, and it would stop at the first one that accepts writes.  Raises the error of the
 * first host that failed if there is none.
 */
SnowflakePgSession *
snowflake_pg_session_open(const char *url, int64 deadline_usec)
{
	SnowflakePgSession *used = NULL;
	PQconninfoOption *options = PQconninfoParse(url, NULL);
	const char *lists[3] = {NULL, NULL, NULL};
	const char *passfile = NULL;
	ErrorData  *error = NULL;
	int			hosts = 1;

	for (PQconninfoOption *option = options; option && option->keyword; option++)
	{
		int			which = strcmp(option->keyword, "host") == 0 ? 0 :
		strcmp(option->keyword, "hostaddr") == 0 ? 1 :
		strcmp(option->keyword, "port") == 0 ? 2 : -1;
		int			elements = 1;

		if (strcmp(option->keyword, "passfile") == 0 && option->val != NULL)
			passfile = pstrdup(option->val);
		if (which < 0 || option->val == NULL)
			continue;
		lists[which] = pstrdup(option->val);
		for (const char *c = option->val; *c != '\0'; c++)
			elements += *c == ',';
		hosts = Max(hosts, elements);
	}
	PQconninfoFree(options);
	if (passfile != NULL)
		check_passfile(passfile);

	for (int i = 0; i < hosts; i++)
	{
		int64		now_usec = snowflake_clock_monotonic_usec();
		SnowflakePgSession *session;
		ErrorData  *found;

		/* leave some time for using the connection */
		session = snowflake_coordinator_make(sizeof(SnowflakePgSession),
											 now_usec + (deadline_usec - now_usec) / (hosts - i + 1),
											 finish);
		found = try_host(session, used, url, lists, i);
		error = error == NULL ? found : error;
		deadline_usec += session->blocked_usec;
		if (used == NULL && found == NULL)
			used = session;
		else
			finish(session);
	}
	if (used == NULL)
		ReThrowError(error);
	used->coordinator.deadline_usec = deadline_usec;
	return used;
}
