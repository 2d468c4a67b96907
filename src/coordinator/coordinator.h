/*-------------------------------------------------------------------------
 *
 * coordinator.h
 *	  The interface of a coordinator: it keeps records, and changes one if it
 *	  has the expected value.
 *
 * There is a module for each kind of coordinator, snowflake_<kind>, linked
 * with the libraries that it needs.  Only the lessee and the sessions of
 * administrators that create, repair or list a fleet load it; so no other
 * process has these libraries.
 *
 * The module knows nothing of leases: see lease.c for the rules, and lease_record.c for
 * what is in a record.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_COORDINATOR_H
#define SNOWFLAKE_COORDINATOR_H

#include "nodes/pg_list.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

/*
 * The most bytes that a coordinator may send for a list of records: 65,536 records
 * need less.
 */
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
 * All functions allocate in the current memory context, whose reset also closes a connection
 * that was left open by an error.  None of them waits beyond the deadline, which is on the
 * monotonic clock, and all waits can be interrupted, with two exceptions: connect() looks up
 * hosts, for as long as the system's resolver takes; and closing a connection to ZooKeeper
 * may take some seconds more, since its client then sends what it has not sent yet.
 * Failures raise an error; after an error of compare_and_set(), it is not known whether the
 * record was changed, or will be.
 *
 * No error has a password or a token in it.
 */
typedef struct SnowflakeCoordinator
{
	/*
	 * Connect to the coordinator that snowflake.node_source names, before a
	 * deadline, which is moved by the time that it took to look up the hosts.
	 */
	void	   *(*connect) (const char *url, int64 *deadline_usec);

	/* Set another deadline. */
	void		(*set_deadline) (void *connection, int64 deadline_usec);

	/*
	 * Set *identity to that of the server that has answered on this
	 * connection so far.  Sends nothing.
	 */
	void		(*identify) (void *connection, SnowflakeIdentity *identity);

	/* Create what records are kept in, such as a table, if it does not exist. */
	void		(*prepare) (void *connection);

	/*
	 * Returns all records, as a list of SnowflakeRecord, or the one with the
	 * given key.
	 */
	List	   *(*list) (void *connection, const char *key);

	/*
	 * Give a record a new value, durably, if it has the expected one (NULL:
	 * if it does not exist), and if at that moment another record, unless
	 * NULL, still has the value in "unchanged".  Returns false if one of
	 * these does not hold; also if the change was made, but its answer was
	 * lost and another member was asked for the same.
	 */
	bool		(*compare_and_set) (void *connection, const char *key,
									const char *expected, const char *value,
									const SnowflakeRecord *unchanged);

	void		(*close) (void *connection);
} SnowflakeCoordinator;

/*
 * Have fd.c reserve a file descriptor for a connection, since libraries open them without its
 * knowledge, or raise an error.  The caller calls ReleaseExternalFD() when the connection is
 * closed.
 */
static inline void
snowflake_coordinator_reserve_file(void)
{
	if (!AcquireExternalFD())
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				errmsg("could not use the coordinator: %m"),
				errhint("Too many files are open in this process. You may need to increase max_files_per_process."));
}

/* The symbol that each module exports. */
#define SNOWFLAKE_COORDINATOR_INIT	"_SnowflakeCoordinatorInit"

typedef const SnowflakeCoordinator *(*SnowflakeCoordinatorInit) (void);

extern PGDLLEXPORT const SnowflakeCoordinator *_SnowflakeCoordinatorInit(void);

#endif							/* SNOWFLAKE_COORDINATOR_H */
