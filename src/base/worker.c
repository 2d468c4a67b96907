/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  What the library's background workers have in common: how they are
 *	  registered, connect to a database, sleep, and clean up after an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/condition_variable.h"
#include "storage/fd.h"
#include "postmaster/bgworker_internals.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/worker.h"

/*
 * How long to wait for a lock: a transaction that creates the extension or changes the table
 * may mint, and so wait for us.  With the pause that follows it is less than the default of
 * snowflake.max_wait, so that a mint outlasts one such failure.
 */
#define LOCK_TIMEOUT			"300ms"

/*
 * Settings whose defaults in the server or the database must not apply to a worker of ours.  The
 * owner of the database can set most of these for it, the encoding even to one with which no
 * process can connect.
 */
static const char *const pinned_settings[][2] = {
	{"synchronous_commit", "on"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_deferrable", "off"},
	{"lock_timeout", LOCK_TIMEOUT},
	{"transaction_timeout", "0"},	/* 17 */
	{"exit_on_error", "off"},
	{"client_encoding", "SQL_ASCII"},

	/* for the only thing done in SQL, the creation of the extension */
	{"search_path", "pg_catalog, pg_temp"},
	{"session_replication_role", "replica"},	/* no triggers */
	{"event_triggers", "off"},	/* 17 */
	{"default_table_access_method", "heap"},
	{"default_tablespace", ""},
	{"max_parallel_workers_per_gather", "0"},
	{"max_parallel_maintenance_workers", "0"},
	{"force_parallel_mode", "off"}, /* until 15 */
	{"debug_parallel_query", "off"},	/* 16 */
	{"jit", "off"},
	{"row_security", "on"},
	{"check_function_bodies", "on"},
	{"standard_conforming_strings", "on"},
	{"transform_null_equals", "off"},
	{"restrict_nonsystem_relation_kind", ""},	/* 18 */
};

/*
 * Fill in the description of a worker of ours, except for its flags and its start time.  The
 * postmaster restarts it at once, since it would count seconds by the wall clock, which may go
 * back by an hour just then; a worker that cannot connect pauses by itself.
 */
void
snowflake_worker_describe(BackgroundWorker *worker, const char *name,
						  const char *function)
{
	memset(worker, 0, sizeof(*worker));
	strlcpy(worker->bgw_name, name, BGW_MAXLEN);
	strlcpy(worker->bgw_type, name, BGW_MAXLEN);
	worker->bgw_restart_time = 0;
	strlcpy(worker->bgw_library_name, "snowflake", BGW_MAXLEN);
	strlcpy(worker->bgw_function_name, function, BGW_MAXLEN);
}

/* Does the postmaster, which calls this, have this worker, or were there too many? */
bool
snowflake_worker_is_registered(const char *name)
{
	RegisteredWorkerIter iter;

	foreach_registered_worker(iter)
		if (strcmp(registered_worker(iter)->rw_worker.bgw_name, name) == 0)
		return true;
	return false;
}

/*
 * Pin the settings of a worker, quietly, because not every version has all of them.  A worker
 * calls this before it connects, so that those of its database are never in force.
 */
void
snowflake_worker_pin_settings(void)
{
	for (size_t i = 0; i < lengthof(pinned_settings); i++)
		(void) set_config_option(pinned_settings[i][0], pinned_settings[i][1],
								 PGC_SUSET, PGC_S_OVERRIDE, GUC_ACTION_SET, true, DEBUG2, false);
}

/*
 * Sleep until the latch is set or the monotonic clock reaches until_usec.  Returns false, without
 * sleeping, if it has been reached already.  The caller checks for interrupts.
 */
bool
snowflake_worker_sleep(int64 until_usec)
{
	static uint32 wait_event = 0;
	int64		left_usec = until_usec - snowflake_clock_monotonic_usec();

	if (left_usec <= 0)
		return false;
	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("SnowflakeMain");
	(void) WaitLatch(MyLatch,
					 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 (long) (Min(left_usec, USECS_PER_DAY) / 1000 + 1), wait_event);
	ResetLatch(MyLatch);
	return true;
}

/*
 * Clean up after an error, which the caller reports: abort the transaction, if there is one,
 * and do what its end would do if there is none.  The caller holds interrupts.
 */
void
snowflake_worker_clean_up(void)
{
	AbortCurrentTransaction();
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	pgstat_report_wait_end();
	AtEOXact_Files(false);
}
