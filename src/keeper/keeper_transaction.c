/*-------------------------------------------------------------------------
 *
 * keeper_transaction.c
 *	  The keeper's transactions, whose commits are durable or errors.
 *
 * A signal ends the wait for a synchronous standby, and SyncRepWaitForLSN() then returns as if
 * the commit were replicated.  So the keeper records that a signal came, and treats that commit
 * as failed, although it is durable here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "generator/keeper_state.h"
#include "keeper/keeper.h"

/* A signal arrived that ends a wait for a synchronous standby. */
static volatile sig_atomic_t cancel_arrived = false;

/* The end is being stored, which does not wait for a standby. */
static volatile sig_atomic_t storing_end = false;

/* Where the caller allocates; a transaction has a context of its own. */
static MemoryContext outer_context;

/* End whatever the keeper is waiting for. */
static void
cancel_waits(void)
{
	int			save_errno = errno;

	cancel_arrived = true;
	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

/* A lock timeout, or pg_cancel_backend(). */
static void
keeper_sigint(SIGNAL_ARGS)
{
	cancel_waits();
}

/*
 * The server stops, or the keeper is terminated.  A stop of the server sends this twice, to the
 * process and to its group.  The second signal may come when the end is being stored because of the
 * first, and must not cancel that.
 */
static void
keeper_sigterm(SIGNAL_ARGS)
{
	ShutdownRequestPending = true;
	if (!storing_end)
		cancel_waits();
}

/* Install the handlers of the signals that end a wait. */
void
snowflake_keeper_transaction_init(void)
{
	pqsignal(SIGTERM, keeper_sigterm);
	pqsignal(SIGINT, keeper_sigint);
}

/*
 * From now on only the end will be stored, which does not wait for a standby, and which a
 * further signal to stop must not cancel.
 */
void
snowflake_keeper_transaction_wait_for_no_standby(void)
{
	storing_end = true;
	QueryCancelPending = false;
}

/* Begin a transaction, with a snapshot. */
void
snowflake_keeper_transaction_begin(const char *activity)
{
	/* forget a cancel that came while there was nothing to cancel */
	cancel_arrived = false;
	QueryCancelPending = false;

	/* but after a request to stop, begin nothing that may have to wait */
	if (ShutdownRequestPending && !storing_end)
		cancel_waits();

	outer_context = CurrentMemoryContext;
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_report_activity(STATE_RUNNING, activity);
}

/*
 * Commit.  On return the transaction is durable, also on the synchronous standbys.  If a signal
 * ended the wait for them, this raises an error: nothing that depends on the commit may be
 * published.
 */
void
snowflake_keeper_transaction_commit(void)
{
	SNOWFLAKE_INJECTION_POINT("snowflake-before-commit");
	PopActiveSnapshot();
	snowflake_keeper_state_commit_begins();
	CommitTransactionCommand();
	MemoryContextSwitchTo(outer_context);
	snowflake_keeper_state_commit_ended();
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);

	/* the postmaster's death ends the wait as well, and sets the latter */
	if (cancel_arrived || ProcDiePending)
		ereport(ERROR,
				errcode(ERRCODE_QUERY_CANCELED),
				errmsg("canceled a commit of the snowflake reservation"));
	SNOWFLAKE_INJECTION_POINT("snowflake-after-commit");
}
