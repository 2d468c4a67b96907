/*-------------------------------------------------------------------------
 *
 * pg_primary.c
 *	  The one server of a PostgreSQL coordinator that accepts writes.
 *
 * All hosts are asked for their identity, each time.  If two accept writes, one was
 * replaced but still runs, and neither is used.  No wait goes beyond its deadline, and
 * all can be interrupted, except for looking up a name: libpq calls the system's
 * resolver, as it does in core's own walreceiver; "hostaddr" avoids that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "libpq-fe.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/compat.h"
#include "coordinator/pg_primary.h"
#include "coordinator/pg_session.h"

/*
 * The identity of a server, and whether it accepts writes.  The name of a WAL file
 * begins with the timeline that is being written, which the control file may not
 * have yet.
 *
 * And whether the table of records, if there is one, has a unique index on the key.  A
 * table that was restored without it may have two records of a node ID, each of them some
 * server's.
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

/*
 * Returns an element of a list with commas; if there is only one, it is for all
 * hosts.  For an empty element, this returns libpq's default, since libpq would
 * ignore an empty value.
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
 * Connect to one of the URL's hosts, with its parameters, before the deadline, which is moved by
 * the time that it takes to look up the name.  Returns the final status of libpq, or
 * PGRES_POLLING_READING if the deadline came first.
 */
static PostgresPollingStatusType
connect_to_host(SnowflakePgSession *connection, const char *url, const char *const *lists,
				int number)
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
	connection->conn = PQconnectStartParams(keywords, values, true);
	connection->blocked_usec = snowflake_clock_monotonic_usec() - began_usec;
	connection->deadline_usec += connection->blocked_usec;
	if (connection->conn == NULL)
	{
		ReleaseExternalFD();
		ereport(ERROR,
				errcode(ERRCODE_OUT_OF_MEMORY),
				errmsg("out of memory"));
	}
	CHECK_FOR_INTERRUPTS();
	if (PQstatus(connection->conn) == CONNECTION_BAD)
		return PGRES_POLLING_FAILED;
	PQsetNoticeReceiver(connection->conn, snowflake_pg_session_receive_notice, connection);

	while (status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED)
	{
		int			wanted = status == PGRES_POLLING_READING ?
		WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE;
		int			events = snowflake_pg_session_wait(connection, wanted, connection->deadline_usec);

		if (events == 0)
			return PGRES_POLLING_READING;

		/*
		 * Not before that: libpq assumes that the socket is ready when this
		 * is called, and would wait for it itself, regardless of the deadline
		 * and interrupts.
		 */
		if (events & wanted)
			status = PQconnectPoll(connection->conn);
	}
	return status;
}

/*
 * Ask a server for its identity.  Returns false if it does not accept writes, for example because
 * it is a standby.
 */
static bool
ask_identity(SnowflakePgSession *connection, SnowflakePgPrimary *primary)
{
	PGresult   *result = snowflake_pg_session_run(connection, IDENTIFY_SQL, 0, 6);
	bool		can_be_written = strcmp(PQgetvalue(result, 0, 0), "off") == 0;
	char		timeline[9];

	memset(primary, 0, sizeof(*primary));
	strlcpy(primary->identity.cluster, PQgetvalue(result, 0, 1), sizeof(primary->identity.cluster));
	strlcpy(timeline, PQgetvalue(result, 0, 2), sizeof(timeline));
	primary->identity.term = strtol(timeline, NULL, 16);
	strlcpy(primary->started, PQgetvalue(result, 0, 3), sizeof(primary->started));
	primary->identity.clock = (TimestampTz)
		((strtod(PQgetvalue(result, 0, 4), NULL) -
		  (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (double) SECS_PER_DAY) * USECS_PER_SEC);
	primary->has_key = strcmp(PQgetvalue(result, 0, 5), "t") == 0;
	primary->host = psprintf("%s:%s", PQhost(connection->conn), PQport(connection->conn));
	PQclear(result);
	return can_be_written;
}

/*
 * Raise an error if two different servers accept writes: one was replaced but
 * still runs.  Each would grant what the other one has granted, so neither is
 * used.
 */
static void
check_alone(const SnowflakePgPrimary *one, const SnowflakePgPrimary *other)
{
	if (strcmp(one->identity.cluster, other->identity.cluster) == 0 &&
		one->identity.term == other->identity.term &&
		strcmp(one->started, other->started) == 0)
		return;
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("two servers of the coordinator accept writes"),
			errdetail("One is \"%s\", on timeline " INT64_FORMAT ", the other is \"%s\", on timeline " INT64_FORMAT ".",
					  one->host, one->identity.term, other->host, other->identity.term),
			errhint("Stop the one that was replaced."));
}

/*
 * Ask a host for its identity, and use it if it accepts writes and none is used yet.  An
 * error concerns this host only.  The connection's deadline is moved along with that of the
 * host.  Returns what is wrong with the host, or NULL.
 */
static ErrorData *
try_host(SnowflakePgSession *connection, const char *url, const char *const *lists, int number,
		 int64 until_usec)
{
	MemoryContext context = CurrentMemoryContext;
	static SnowflakePgSession other;
	ErrorData  *volatile error = NULL;
	volatile bool is_used = false;

	memset(&other, 0, sizeof(other));
	other.deadline_usec = until_usec;
	PG_TRY();
	{
		SnowflakePgPrimary primary;
		PostgresPollingStatusType status = connect_to_host(&other, url, lists, number);

		if (status == PGRES_POLLING_FAILED)
			snowflake_pg_session_fail(&other, NULL);
		if (status != PGRES_POLLING_OK)
			snowflake_pg_session_fail_silent(&other);
		if (!ask_identity(&other, &primary))
		{
			other.is_unusable = true;
			ereport(ERROR,
					errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
					errmsg("could not use the coordinator: it is read-only"));
		}
		if (connection->conn == NULL)
		{
			connection->conn = other.conn;
			connection->primary = primary;
			PQsetNoticeReceiver(connection->conn, snowflake_pg_session_receive_notice, connection);
			is_used = true;
		}
		else
			check_alone(&connection->primary, &primary);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		if (!other.is_unusable)
		{
			snowflake_pg_session_finish(&other);
			PG_RE_THROW();
		}
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	connection->deadline_usec += other.blocked_usec;
	if (is_used)
		other.conn = NULL;
	snowflake_pg_session_finish(&other);
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
 * Open a session at the one server that accepts writes.  This tries the hosts one
 * after the other.  libpq would do that by itself, but regardless of how long one of
 * them does not answer, and it would stop at the first one that accepts writes.
 * There must be only one: see check_alone().  Raises the error of the first host
 * that failed if there is none.
 */
SnowflakePgSession *
snowflake_pg_primary_open(const char *url, int64 *deadline_usec)
{
	SnowflakePgSession *connection = palloc0(sizeof(SnowflakePgSession));
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

	connection->deadline_usec = *deadline_usec;
	connection->callback.func = snowflake_pg_session_finish;
	connection->callback.arg = connection;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &connection->callback);

	for (int i = 0; i < hosts; i++)
	{
		int64		now_usec = snowflake_clock_monotonic_usec();
		ErrorData  *found;

		/* leave some time for using the connection */
		found = try_host(connection, url, lists, i,
						 now_usec + (connection->deadline_usec - now_usec) / (hosts - i + 1));
		error = error == NULL ? found : error;
	}
	if (connection->conn == NULL)
		ReThrowError(error);
	*deadline_usec = connection->deadline_usec;
	return connection;
}
