/*-------------------------------------------------------------------------
 *
 * coordinator.h
 *	  The interface of a coordinator: it keeps records, and changes one if it
 *	  has the expected value.
 *
 * Each kind of coordinator is a module, snowflake_<kind>, linked with the libraries that
 * it needs.  Only the lessee and the sessions of administrators of a fleet load it, so no
 * other process has these libraries.  It knows nothing of leases.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_COORDINATOR_H
#define SNOWFLAKE_COORDINATOR_H

#include "nodes/pg_list.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/compat.h"

/* The most bytes of a list of records: 65,536 records need less. */
#define SNOWFLAKE_MOST_BYTES	(64 * 1024 * 1024)

/* Keys are short, and consist of ASCII letters, digits and "/". */
typedef struct SnowflakeRecord
{
	const char *key;
	const char *value;			/* no two values that were ever written to a
								 * key are equal */
} SnowflakeRecord;

/*
 * The identity of the coordinator, as far as it is known from its answers.  A copy of
 * a coordinator that takes over has the same cluster and a larger term; one that was
 * restored elsewhere is another cluster.
 */
typedef struct SnowflakeIdentity
{
	char		cluster[33];	/* of letters and digits; empty: not known */
	int64		term;			/* 0: not known */
	TimestampTz clock;			/* the time of its clock, to about a second;
								 * 0: not known */
} SnowflakeIdentity;

/*
 * A connection to a coordinator, with which a module's own struct begins.
 *
 * Functions allocate in the current memory context.  They raise an error if they fail;
 * after one of compare_and_set(), it is not known whether the record was changed, or will
 * be.  No error has a password or a token in it.  No wait goes beyond the deadline, and
 * all can be interrupted, with two exceptions: connecting looks up hosts, for as long as
 * the system's resolver takes; and closing a connection to ZooKeeper may take some seconds
 * more, since its client then sends what it has not sent yet.
 */
typedef struct SnowflakeCoordinator
{
	int64		deadline_usec;	/* on the monotonic clock; the caller may set
								 * another one */
	SnowflakeIdentity identity; /* of the server that has answered so far */

	/* closes the connection, also when the memory context is reset */
	MemoryContextCallback closing;

	/* Create what records are kept in, if it does not exist; NULL: nothing */
	void		(*prepare) (struct SnowflakeCoordinator *coordinator);

	/* Returns a list of all records, or of the one with the given key. */
	List	   *(*list) (struct SnowflakeCoordinator *coordinator, const char *key);

	/*
	 * Give a record a new value, durably, if it has the expected one (NULL:
	 * if it does not exist), and if at that moment another record, unless
	 * NULL, still has the value in "unchanged".  Returns false if one of
	 * these does not hold; also if the change was made, but its answer was
	 * lost and another member was asked for the same.
	 */
	bool		(*compare_and_set) (struct SnowflakeCoordinator *coordinator,
									const char *key, const char *expected,
									const char *value,
									const SnowflakeRecord *unchanged);
} SnowflakeCoordinator;

/*
 * What each module exports: connect to the coordinator of a URL, before a deadline, which is
 * moved by the time that it took to look up the hosts.
 */
typedef SnowflakeCoordinator *(*SnowflakeCoordinatorConnect) (const char *url,
															  int64 deadline_usec);
extern PGDLLEXPORT SnowflakeCoordinator *snowflake_coordinator_connect(const char *url,
																	   int64 deadline_usec);

/* For modules: a zeroed connection of "size" bytes, which "close" closes once or more often. */
static inline void *
snowflake_coordinator_make(Size size, int64 deadline_usec, MemoryContextCallbackFunction close)
{
	SnowflakeCoordinator *coordinator = palloc0(size);

	coordinator->deadline_usec = deadline_usec;
	coordinator->closing.func = close;
	coordinator->closing.arg = coordinator;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &coordinator->closing);
	return coordinator;
}

static inline void
snowflake_coordinator_close(SnowflakeCoordinator *coordinator)
{
	coordinator->closing.func(coordinator);
}

/* Have fd.c reserve a file descriptor, which a library opens.  Closing calls ReleaseExternalFD(). */
static inline void
snowflake_coordinator_reserve_file(void)
{
	if (!AcquireExternalFD())
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				errmsg("could not use the coordinator: %m"),
				errhint("Too many files are open in this process. You may need to increase max_files_per_process."));
}

/* Raise an error about the coordinator. */
pg_noreturn static inline void
snowflake_coordinator_fail(const char *why)
{
	ereport(ERROR,
			errcode(ERRCODE_CONNECTION_FAILURE),
			errmsg("could not use the coordinator: %s", why));
}

#define SNOWFLAKE_TOO_LARGE	"its records are larger than those of a fleet"

#endif							/* SNOWFLAKE_COORDINATOR_H */
