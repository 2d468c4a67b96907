/*-------------------------------------------------------------------------
 *
 * coordinator.h
 *	  The interface of a coordinator: it keeps records, and changes one if it
 *	  has the expected value.
 *
 * A module per kind of coordinator, snowflake_<kind>, has the libraries that it
 * needs.  It is loaded by the lessee, and by the sessions of administrators that
 * create, repair or list a fleet; so no other process links them.
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
 * The most that a coordinator may send for a list of records, in bytes: 65,536 of them
 * have no more.
 */
#define SNOWFLAKE_MOST_BYTES	(64 * 1024 * 1024)

/* Keys are short and of a few ASCII characters: letters, digits, and "/". */
typedef struct SnowflakeRecord
{
	const char *key;
	const char *value;			/* no two values that were ever written to a
								 * key are equal */
} SnowflakeRecord;

/*
 * Who answers, as far as it has said so in its answers.  A copy of a coordinator that
 * takes over has the same cluster and a larger term; one that was restored elsewhere
 * is another cluster.
 */
typedef struct SnowflakeIdentity
{
	char		cluster[33];	/* of letters and digits; empty: not known */
	int64		term;			/* 0: not known */
	TimestampTz clock;			/* what its clock says, to a second or so; 0:
								 * not known */
} SnowflakeIdentity;

/*
 * All functions allocate in the current memory context, whose reset also closes a
 * connection that was left open by an error.  None of them waits after the
 * deadline, on the monotonic clock, and all waits can be interrupted, but for two: connect()
 * looks up hosts, for as long as the resolver of the system takes; and to close a
 * connection to ZooKeeper may take some seconds more, since its client sends then what it
 * has not sent yet.  What fails raises an error; after an
 * error of compare_and_set() it is not known whether the record was changed, or will be.
 *
 * No error has a password or a token in it.
 */
typedef struct SnowflakeCoordinator
{
	/*
	 * Connect to what snowflake.node_source names, up to a deadline, which is
	 * moved by the time that looking up its hosts took.
	 */
	void	   *(*connect) (const char *url, int64 *deadline_usec);

	/* Another deadline from now on. */
	void		(*set_deadline) (void *connection, int64 deadline_usec);

	/* The server that answered on this connection so far.  Asks nothing. */
	void		(*identify) (void *connection, SnowflakeIdentity *identity);

	/* Make what records are kept in, if it is not there yet. */
	void		(*prepare) (void *connection);

	/* All records, as a list of SnowflakeRecord, or the one with a key. */
	List	   *(*list) (void *connection, const char *key);

	/*
	 * Give a record a new value, durably, if it has the expected one (NULL:
	 * if it does not exist), and if at that moment another record, unless
	 * NULL, is what it was when it was read.  False: one of them is not; also
	 * when it was done, but the answer did not come and another member was
	 * asked for the same.
	 */
	bool		(*compare_and_set) (void *connection, const char *key,
									const char *expected, const char *value,
									const SnowflakeRecord *unchanged);

	void		(*close) (void *connection);
} SnowflakeCoordinator;

/*
 * Have fd.c leave a file descriptor for a connection, as libraries open them behind its back,
 * or raise an error.  ReleaseExternalFD() is to follow when the connection is closed.
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
