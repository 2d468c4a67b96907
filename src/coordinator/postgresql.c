/*-------------------------------------------------------------------------
 *
 * postgresql.c
 *	  Any PostgreSQL database as the coordinator of a fleet.
 *
 * The records are the rows of an ordinary table, on which the role needs SELECT,
 * INSERT and UPDATE.  This coordinator is only as safe as its own failover: if it
 * loses a commit, it is what lease.c calls a coordinator that went back in time.
 *
 * Names are qualified, so it does not matter what search_path the role has.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "base/clock.h"
#include "base/compat.h"
#include "coordinator/pg_session.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowflake_postgresql",
					.version = SNOWFLAKE_VERSION
);

#define TABLE		"snowflake_fleet.records"

/* The statements of sql/snowflake_fleet.sql, for an administrator who has not run it */
#define PREPARE_SQL \
	"CREATE SCHEMA IF NOT EXISTS snowflake_fleet; " \
	"CREATE TABLE IF NOT EXISTS " TABLE " (key text PRIMARY KEY, value text NOT NULL)"

static void
pg_prepare(SnowflakeCoordinator *coordinator)
{
	SnowflakePgSession *session = (SnowflakePgSession *) coordinator;
	PGresult   *result = snowflake_pg_session_run(session, "SELECT pg_catalog.to_regclass('" TABLE "') IS NULL", 0, 1);
	bool		is_missing = strcmp(PQgetvalue(result, 0, 0), "t") == 0;

	/* IF NOT EXISTS alone would require the privileges even if it exists */
	PQclear(result);
	if (is_missing)
		PQclear(snowflake_pg_session_run(session, PREPARE_SQL, 0, 0));
}

/* Returns a text as a literal, whatever a backslash means to the server. */
static char *
literal(SnowflakePgSession *session, const char *text)
{
	char	   *escaped = PQescapeLiteral(session->conn, text, strlen(text));
	char	   *copy;

	if (escaped == NULL)
		snowflake_pg_session_fail(session, NULL);
	copy = pstrdup(escaped);
	PQfreemem(escaped);
	return copy;
}

/* How many ms an answer may still take, for timeouts, where 0 would mean none. */
static long
left_ms(SnowflakePgSession *session)
{
	int64		left_usec = session->coordinator.deadline_usec - snowflake_clock_monotonic_usec();

	return (long) Max(left_usec / 1000, 1);
}

/*
 * Like a write, this leaves no session there that waits for a lock after the deadline.
 * The statements are one transaction, and leave no settings to the next user of a
 * pooler's session.
 */
static List *
pg_list(SnowflakeCoordinator *coordinator, const char *key)
{
	SnowflakePgSession *session = (SnowflakePgSession *) coordinator;
	const char *all = psprintf("SET LOCAL lock_timeout = %ld; SET LOCAL statement_timeout = %ld;"
							   " SELECT key, value FROM " TABLE,
							   left_ms(session), left_ms(session));
	const PGresult *row;
	List	   *records = NIL;
	size_t		bytes = 0;

	snowflake_pg_session_query(session, key == NULL ? all :
							   psprintf("%s WHERE key OPERATOR(pg_catalog.=) %s", all,
										literal(session, key)));
	while ((row = snowflake_pg_session_row(session, 2)) != NULL)
	{
		SnowflakeRecord *record = palloc(sizeof(SnowflakeRecord));

		bytes += sizeof(SnowflakeRecord) + PQgetlength(row, 0, 0) + PQgetlength(row, 0, 1);
		if (bytes > SNOWFLAKE_MOST_BYTES)
			snowflake_coordinator_fail(SNOWFLAKE_TOO_LARGE);
		record->key = pstrdup(PQgetvalue(row, 0, 0));
		record->value = pstrdup(PQgetvalue(row, 0, 1));
		records = lappend(records, record);
	}
	return records;
}

static char *
condition(SnowflakePgSession *session, const char *key, const char *value)
{
	return psprintf("key OPERATOR(pg_catalog.=) %s AND value OPERATOR(pg_catalog.=) %s",
					literal(session, key), literal(session, value));
}

/*
 * The new row is durable when this returns, whatever the role's defaults are: a commit warns
 * if it may not be on the standbys.  A session that waits for a row then reads its new value.
 * No session there waits for a lock after the deadline; but a commit that waits for a
 * synchronous standby goes on waiting, since statement timeouts do not end that.
 *
 * The row that must not change is locked until the commit.  Many sessions may share
 * that lock, and a writer of that row would have to wait for a moment when none
 * holds it.  So a write without such a condition locks the table, for which
 * sessions queue.
 */
static bool
pg_compare_and_set(SnowflakeCoordinator *coordinator, const char *key, const char *expected,
				   const char *value, const SnowflakeRecord *unchanged)
{
	SnowflakePgSession *session = (SnowflakePgSession *) coordinator;
	const char *lock = unchanged == NULL ? " LOCK TABLE " TABLE " IN SHARE ROW EXCLUSIVE MODE;" : "";
	const char *guard = unchanged == NULL ? "SELECT" :
	psprintf("SELECT FROM " TABLE " WHERE %s FOR SHARE",
			 condition(session, unchanged->key, unchanged->value));
	char	   *statement = expected == NULL ?
	psprintf("WITH guard AS (%s) INSERT INTO " TABLE " (key, value)"
			 " SELECT %s, %s FROM guard ON CONFLICT (key) DO NOTHING",
			 guard, literal(session, key), literal(session, value)) :
	psprintf("WITH guard AS (%s) UPDATE " TABLE " SET value = %s"
			 " WHERE %s AND EXISTS (SELECT FROM guard)",
			 guard, literal(session, value), condition(session, key, expected));
	PGresult   *result;
	bool		done;

	result = snowflake_pg_session_run(session,
									  psprintf("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
											   " SET LOCAL lock_timeout = %ld; SET LOCAL statement_timeout = %ld;"
											   " SET LOCAL synchronous_commit = on; SET LOCAL client_min_messages = warning;"
											   "%s %s; COMMIT",
											   left_ms(session), left_ms(session), lock, statement),
									  unchanged == NULL ? 6 : 5, 0);
	done = strcmp(PQcmdTuples(result), "1") == 0;
	PQclear(result);
	if (session->warned)
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("the coordinator warned that a commit may not be durable on its standbys"));
	return done;
}

SnowflakeCoordinator *
snowflake_coordinator_connect(const char *url, int64 deadline_usec)
{
	SnowflakePgSession *session = snowflake_pg_session_open(url, deadline_usec);

	session->coordinator.prepare = pg_prepare;
	session->coordinator.list = pg_list;
	session->coordinator.compare_and_set = pg_compare_and_set;

	/*
	 * else two servers could insert a record of one node ID, and each find
	 * its own
	 */
	if (!session->has_key)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("table %s of the coordinator has no unique index on key", TABLE),
				errdetail("One node ID could be leased to several servers."),
				errhint("Delete the rows whose key is there more than once, add the primary key, and then call snowflake_fleet_recover()."));
	return &session->coordinator;
}
