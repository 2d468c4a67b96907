/*-------------------------------------------------------------------------
 *
 * keeper.c
 *	  The background worker that keeps the reservation and the gate.
 *
 * The keeper is the only writer of the reservation, which is in a table in the
 * database snowflake.database: see reservation_table.c, also for why it runs no SQL.
 *
 * Its life: connect, then rounds.  A round looks at what changed (settings, requests of the
 * backends, the clock), and does what follows: open the gate, close it for another node ID,
 * extend the reservation, raise the floor.  Between rounds it sleeps on its latch, for up to a
 * day unless it watches the clock.
 *
 * The state of the generator is in shared memory and complete at every moment: whatever
 * interrupts a round, the next one goes on from there, and minting goes on to the end of the
 * reservation.  In particular:
 *
 * - An error: what was begun is aborted, and after a pause there is another round.  The limit
 *	 is only raised after a durable commit, so what an error prevents is never published.  A gate
 *	 that was closed for another node ID stays closed, and the next round stores its end first.
 *	 A canceled wait for a synchronous standby is an error: see keeper_transaction.c.
 *
 * - SIGTERM: it ends the round; the gate is closed, its end is stored without waiting for any
 *	 standby, and the process ends.  Unless the server stops, the postmaster starts another one.
 *	 An error here ends the process as well: what was reserved before stays reserved.
 *
 * - A FATAL error, above all because the database was dropped or renamed: the postmaster starts
 *	 another process, which pauses before it tries to connect.
 *
 * - SIGKILL, or a promotion: shared memory is new, or dates from the standby's start, and the
 *	 first round finds the row.
 *
 * - The postmaster's death ends a sleep, and also the wait for a standby, which then is an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <setjmp.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"
#include "base/worker.h"
#include "frontier/frontier.h"
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "keeper/keeper.h"
#include "layout/server_layout.h"
#include "lease/lease.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"

#define KEEPER_NAME				"snowflake keeper"

/* How long to wait after a failure. */
#define RETRY_LOCKED_MS			200 /* if it failed to get a lock */
#define RETRY_ASKED_MS			1000	/* if a backend asked for something */
#define RETRY_UNASKED_MS		10000

/* Until there is a lessee, look for it this often. */
#define LESSEE_LOOK_MS			500

/* Until the host gives a node ID, check it this often. */
#define HOST_LOOK_MS			1000

/* Memory that a round allocates outside of transactions. */
static MemoryContext round_context;

/* The process is ending, and stores the exact end. */
static bool is_ending = false;

/*
 * An open gate stays open: what is reserved may be used up.  A reason that the next keeper would
 * find again is kept, for the messages.
 */
static void
keeper_exit(int code, Datum arg)
{
	SnowflakeGate gate = snowflake_generator_gate();

	if (gate == GATE_WAITING || gate == GATE_CREATING ||
		gate == GATE_OPENING || gate == GATE_STOPPING)
		snowflake_generator_set_gate(GATE_NO_KEEPER);
	snowflake_keeper_state_detach_keeper();
}

/* There is no background worker for the keeper: set by the postmaster, inherited by all. */
static bool is_workerless = false;

/* Register the keeper.  Call this only while the server preloads libraries. */
void
snowflake_keeper_init(void)
{
	BackgroundWorker worker;

	/* pg_upgrade must find the old server as it was left */
	if (IsBinaryUpgrade)
		return;

	snowflake_worker_describe(&worker, KEEPER_NAME, "snowflake_keeper_main");
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	RegisterBackgroundWorker(&worker);
	is_workerless = !snowflake_worker_is_registered(worker.bgw_name);
}

/* Was there no background worker left for the keeper when the server started? */
bool
snowflake_keeper_is_workerless(void)
{
	return is_workerless;
}

/* Read and judge the clocks, and publish the result.  Sets *now to the corrected time. */
static SnowflakeVerdict
judge_clock(uint32 requests, TimestampTz *now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	SnowflakeView view;
	SnowflakeClockReading look;

	SnowflakeVerdict verdict = {0};

	/* the row must be read first: it may have a time to compare with */
	if (!snowflake_clock_is_started())
	{
		*now = snowflake_clock_wall();
		return verdict;
	}

	snowflake_generator_view(&view);
	snowflake_clock_read(&look);
	look.newest = view.last == 0 ? SNOWFLAKE_CLOCK_NEVER :
		snowflake_generator_time(view.last);
	look.possible = snowflake_layout_has_time(layout, look.wall);
	look.accept = (requests & SNOWFLAKE_WANT_CLOCK) != 0;
	look.slack_usec = snowflake_max_lead_ms * INT64CONST(1000) + snowflake_generator_early_usec();
	verdict = snowflake_clock_judge(&look);
	snowflake_generator_set_correction(verdict.correction_usec, verdict.allowed_usec);

	/*
	 * Backends that asked for this are waiting, and so may be those that
	 * found the clock beyond the reservation.
	 */
	if (verdict.news != CLOCK_NO_NEWS ||
		(requests & (SNOWFLAKE_WANT_LOOK | SNOWFLAKE_WANT_CLOCK)))
		snowflake_keeper_state_announce_judgment();
	*now = look.wall + verdict.correction_usec;
	return verdict;
}

/*
 * Check everything that may have changed, and do what follows from it.  Returns the ms after
 * which to do so again, if no backend asks for it earlier.
 */
static long
keeper_round(void)
{
	uint32		requests = snowflake_keeper_state_take();
	TimestampTz now;
	SnowflakeVerdict verdict = judge_clock(requests, &now);
	SnowflakeNode wanted;
	SnowflakeView view;
	bool		is_other_node,
				lacks_lessee;
	long		sleep_ms;

	lacks_lessee = snowflake_lessee_start();
	snowflake_node_source_determine(&wanted);
	if (wanted.obstacle == GATE_OPEN && snowflake_lease_state_has_ended(&wanted, now))
	{
		wanted.obstacle = GATE_LEASE_ENDED;
		snowflake_lease_state_wake();
	}
	snowflake_generator_view(&view);
	is_other_node = wanted.obstacle != GATE_OPEN || view.node != wanted.node ||
		view.grant != wanted.grant;

	/*
	 * Another node ID, or lease: end the present one's work as a clean stop
	 * would.  That is also how too large a reservation becomes a small one.
	 */
	if (view.gate == GATE_OPEN &&
		(is_other_node || snowflake_reserve_is_too_far(&view, now)))
	{
		ereport(LOG,
				errmsg("snowflake gate closed for node ID %d", view.node),
				is_other_node ? 0 :
				errdetail("More is reserved than is needed, up to \"%s\".",
						  timestamptz_to_str(snowflake_generator_time(view.stored))));
		snowflake_generator_close(GATE_OPENING);
		snowflake_generator_view(&view);
	}

	if (view.gate == GATE_OPEN && (requests & SNOWFLAKE_WANT_RESTART))
	{
		snowflake_reserve_reopen_at_clock(&wanted, now);
		snowflake_frontier_publish();
		snowflake_generator_view(&view);
	}

	if (view.gate != GATE_OPEN)
	{
		if (view.end_unstored)
			snowflake_reserve_store_end();
		snowflake_reserve_open_gate(&wanted, requests, now);
		if (snowflake_generator_gate() == GATE_OPEN)
			snowflake_frontier_publish();
	}
	else
	{
		/*
		 * mints ask until they have it: nothing is reserved for a clock alone
		 */
		if (view.floor > view.last || (requests & SNOWFLAKE_WANT_TIME))
			snowflake_reserve_more(&view, &wanted, now);

		/* unless the lease has to be renewed first */
		snowflake_generator_view(&view);
		if (view.floor > view.last && view.floor <= view.limit)
		{
			snowflake_generator_set_allowance(snowflake_clock_raised(snowflake_generator_time(view.floor)));
			snowflake_generator_advance(view.floor);
		}
	}

	sleep_ms = snowflake_keeper_log_watch(&verdict);
	if (wanted.obstacle == GATE_NODE_UNSET && snowflake_node_source_is_host())
		sleep_ms = Min(sleep_ms, HOST_LOOK_MS);
	return lacks_lessee ? Min(sleep_ms, LESSEE_LOOK_MS) : sleep_ms;
}

/* Do a round with the current settings.  Returns what keeper_round() returns. */
static long
attempt_round(void)
{
	long		sleep_ms;

	MemoryContextSwitchTo(round_context);
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	sleep_ms = keeper_round();
	snowflake_keeper_state_succeeded();
	MemoryContextReset(round_context);
	return sleep_ms;
}

/* An error has ended a round: report it, and leave nothing of the round behind. */
static void
abandon_round(void)
{
	error_context_stack = NULL; /* PG_TRY() would have done this */
	HOLD_INTERRUPTS();
	disable_all_timeouts(false);
	QueryCancelPending = false;

	snowflake_keeper_state_failed(geterrcode());

	/* do not report the cancel that a request to stop has caused */
	if (!ShutdownRequestPending || is_ending || geterrcode() != ERRCODE_QUERY_CANCELED)
		EmitErrorReport();
	snowflake_worker_clean_up();
	MemoryContextSwitchTo(round_context);
	FlushErrorState();
	MemoryContextReset(round_context);
	pgstat_report_activity(STATE_IDLE, NULL);
	RESUME_INTERRUPTS();
}

/* After a failure, pause before the next attempt, so as not to fill the log. */
static void
pause_after_failure(void)
{
	int64		started_usec = snowflake_clock_monotonic_usec();

	while (!ShutdownRequestPending)
	{
		SnowflakeKeeperView view;
		int64		pause_ms;

		snowflake_keeper_state_view(&view);
		pause_ms = snowflake_keeper_state_pending() == 0 ? RETRY_UNASKED_MS :
			view.failure == ERRCODE_LOCK_NOT_AVAILABLE ? RETRY_LOCKED_MS : RETRY_ASKED_MS;
		if (!snowflake_worker_sleep(started_usec + pause_ms * 1000))
			break;

		/*
		 * others may wait for us to process a barrier; a cancel has nothing
		 * to end in a pause
		 */
		QueryCancelPending = false;
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Is there an end to be stored before the process ends?  The gate is already closed if a change
 * of the node ID was interrupted.
 */
static bool
has_end_to_store(void)
{
	SnowflakeView view;

	snowflake_generator_view(&view);
	return view.gate == GATE_OPEN || view.end_unstored;
}

/* Close the gate, and store the exact end. */
static void
store_end(void)
{
	SnowflakeView view;

	snowflake_keeper_transaction_wait_for_no_standby();
	snowflake_generator_close(GATE_STOPPING);
	snowflake_reserve_store_end();
	snowflake_generator_view(&view);
	ereport(LOG,
			errmsg("snowflake gate closed"),
			errdetail("The last tick with an ID started at \"%s\".",
					  timestamptz_to_str(snowflake_generator_time(view.last))));
}

void
snowflake_keeper_main(Datum main_arg)
{
	sigjmp_buf	error_jump;

	/* did the previous keeper fail to connect? */
	bool		failed = snowflake_generator_gate() == GATE_CONNECTING;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	snowflake_keeper_transaction_init();
	BackgroundWorkerUnblockSignals();

	snowflake_keeper_state_attach_keeper();
	before_shmem_exit(keeper_exit, (Datum) 0);
	if (snowflake_generator_gate() != GATE_OPEN)
		snowflake_generator_set_gate(GATE_CONNECTING);

	if (failed)
		pause_after_failure();
	if (ShutdownRequestPending)
	{
		if (!has_end_to_store())
			proc_exit(1);

		/* storing the end needs a connection */
		snowflake_keeper_transaction_wait_for_no_standby();
	}

	snowflake_worker_pin_settings();
	BackgroundWorkerInitializeConnection(snowflake_database, NULL, BGWORKER_BYPASS_ALLOWCONN);
	round_context = AllocSetContextCreate(TopMemoryContext, KEEPER_NAME,
										  ALLOCSET_DEFAULT_SIZES);

	/* An error comes back to here. */
	if (sigsetjmp(error_jump, 1) != 0)
	{
		abandon_round();
		if (is_ending)
			proc_exit(1);
		pause_after_failure();
		snowflake_keeper_state_forget_requests();
	}
	PG_exception_stack = &error_jump;

	for (;;)
	{
		long		sleep_ms;

		ResetLatch(MyLatch);
		if (ShutdownRequestPending)
			break;
		sleep_ms = attempt_round();

		/*
		 * A wait inside the round, such as that for a synchronous standby,
		 * may have taken the latch that was set for us.
		 */
		if (ShutdownRequestPending || ConfigReloadPending || InterruptPending ||
			snowflake_keeper_state_pending() != 0)
			continue;

		(void) snowflake_worker_sleep(snowflake_clock_monotonic_usec() +
									  sleep_ms * INT64CONST(1000));
	}

	is_ending = true;
	if (has_end_to_store())
		store_end();

	/*
	 * not 0: the postmaster is to restart a keeper that was terminated by
	 * hand
	 */
	proc_exit(1);
}
