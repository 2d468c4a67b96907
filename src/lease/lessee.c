/*-------------------------------------------------------------------------
 *
 * lessee.c
 *	  The background worker that leases a node ID.
 *
 * It runs where node IDs are leased, from the server's start on, also on standbys, so that
 * a promotion need not wait.  All waiting for the network is done here, so that a slow
 * coordinator does not affect the keeper and minting before the lease ends.
 *
 * An attempt connects, does what lease.c says, and disconnects.  Its results are in shared
 * memory, so another lessee can take over from one that ends while the server runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/worker.h"
#include "generator/counters.h"
#include "generator/keeper_state.h"
#include "layout/server_layout.h"
#include "lease/lease.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"

#define LESSEE_NAME			"snowflake lessee"

#define ANSWER_MS			5000	/* how long an attempt may take */
#define LAST_ANSWER_MS		3000	/* likewise, at a stop */
#define KEEPER_ENDS_MS		3000	/* how long a stop waits for the keeper */
#define RETRY_MS			2000	/* between attempts that got no lease */
#define FLOOR_RETRY_USEC	50000	/* the shortest, to wait for a floor */
#define LISTING_SHARE		20	/* of its time a server without a node ID
								 * lists the others for one part in ... */
#define MISSING_USEC		USECS_PER_SEC	/* without a lessee, before
											 * another one is started */
#define JUDGE_USEC			USECS_PER_SEC	/* for the keeper to judge the
											 * clock */

/* The lease is being given back, which another signal to stop must not interrupt. */
static volatile sig_atomic_t giving_back = false;

/* The server stops, or the lessee is terminated: end the wait for the network. */
static void
lessee_sigterm(SIGNAL_ARGS)
{
	int			save_errno = errno;

	ShutdownRequestPending = true;
	if (!giving_back)
	{
		QueryCancelPending = true;
		InterruptPending = true;
	}
	SetLatch(MyLatch);
	errno = save_errno;
}

static void
describe_worker(BackgroundWorker *worker)
{
	snowflake_worker_describe(worker, LESSEE_NAME, "snowflake_lessee_main");
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker->bgw_start_time = BgWorkerStart_PostmasterStart;
}

/* Register the lessee, if node IDs are leased.  Call this only while the server preloads libraries. */
void
snowflake_lessee_init(void)
{
	BackgroundWorker worker;

	if (IsBinaryUpgrade || snowflake_node_source != NODE_FROM_LEASE)
		return;
	describe_worker(&worker);
	RegisterBackgroundWorker(&worker);
}

/*
 * Start a lessee, if node IDs are leased and there has been none for a moment, because the
 * setting was changed.  A second one ends by itself.  Only the keeper calls this.  Returns
 * true if it should check again soon.
 */
bool
snowflake_lessee_start(void)
{
	static int64 missing_since_usec = 0;
	int64		now_usec = snowflake_clock_monotonic_usec();
	SnowflakeLeaseView view;
	BackgroundWorker worker;

	snowflake_lease_state_view(&view);
	if (snowflake_node_source != NODE_FROM_LEASE || view.pid != 0)
	{
		missing_since_usec = 0;
		return false;
	}
	if (missing_since_usec == 0)
		missing_since_usec = now_usec;
	if (now_usec - missing_since_usec < MISSING_USEC)
		return true;

	missing_since_usec = now_usec;
	describe_worker(&worker);
	if (!RegisterDynamicBackgroundWorker(&worker, NULL))
	{
		missing_since_usec += 10 * USECS_PER_SEC;	/* not to fill the log */
		ereport(WARNING,
				errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				errmsg("could not start the snowflake lessee"),
				errhint("You may need to increase max_worker_processes."));
	}
	return true;
}

/* How long an attempt may take, in microseconds: not so long that the lease ends meanwhile. */
static int64
answer_usec(int most_ms)
{
	return Min(most_ms, Max(snowflake_lease_ms / 4, 250)) * INT64CONST(1000);
}

/*
 * The time after an attempt that did not get a lease, in microseconds: shorter if the fleet's
 * floor is passed soon; longer if there is no free node ID and it takes long to list them.
 */
static int64
retry_after_usec(int64 took_usec)
{
	int64		retry_usec = Min(RETRY_MS, Max(snowflake_lease_ms / 8, 100)) * INT64CONST(1000);
	int64		floor_usec;
	SnowflakeLeaseView view;

	snowflake_lease_state_view(&view);
	if (view.trouble == STATE_FLEET_FULL)
		return Max(retry_usec, took_usec * LISTING_SHARE);
	if (view.trouble != STATE_FLEET_BELOW_FLOOR)
		return retry_usec;
	floor_usec = snowflake_lease_state_floor_passed(view.floor) -
		snowflake_generator_clock() - SNOWFLAKE_LEASE_EARLY_USEC / 2;
	return Min(retry_usec, Max(floor_usec, FLOOR_RETRY_USEC));
}

/* Do two messages differ only in the ms that an attempt took, if at all? */
static bool
is_same_message(const char *one, const char *other)
{
	while (*one != '\0' && *other != '\0')
	{
		size_t		digits = strspn(one, "0123456789");
		size_t		other_digits = strspn(other, "0123456789");

		if (digits > 0 && other_digits > 0 && strncmp(one + digits, " ms", 3) == 0)
		{
			one += digits;
			other += other_digits;
		}
		else if (*one++ != *other++)
			return false;
	}
	return *one == *other;
}

/*
 * Do what is due: renew the lease or take one, or give it back, if "end" is not NULL.  An
 * error becomes a warning in the log, unless it is the same as the last time.  Returns when
 * the exchange with the coordinator began, on the monotonic clock.
 */
static int64
attempt(MemoryContext context, const int64 *end)
{
	static char last_error[512] = "";
	MemoryContext outer = MemoryContextSwitchTo(context);
	volatile int64 began_usec = snowflake_clock_monotonic_usec();

	PG_TRY();
	{
		SnowflakeCoordinator *coordinator;

		/*
		 * A clock that is not believed must not end a lease, or begin one.
		 * Only the keeper judges it, which a standby does not have.
		 */
		if (end == NULL && GetRecoveryState() != RECOVERY_STATE_ARCHIVE)
			snowflake_keeper_state_await_judgment(snowflake_keeper_state_judgments() + 1,
												  began_usec + JUDGE_USEC);
		coordinator = snowflake_lease_record_connect(answer_usec(end == NULL ? ANSWER_MS : LAST_ANSWER_MS));
		began_usec = snowflake_clock_monotonic_usec();
		if (end == NULL)
			snowflake_lease_attempt(coordinator, snowflake_generator_clock());
		else
			snowflake_lease_release(coordinator, *end);
		snowflake_coordinator_close(coordinator);
		last_error[0] = '\0';
	}
	PG_CATCH();
	{
		ErrorData  *error;
		char		message[sizeof(last_error)];

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		strlcpy(message, error->message, sizeof(message));

		snowflake_worker_clean_up();
		if (!ShutdownRequestPending || end != NULL)
		{
			snowflake_counters_add(COUNTER_LEASE_ERRORS);
			if (!is_same_message(message, last_error))
				ereport(WARNING,
						errcode(error->sqlerrcode),
						errmsg_internal("%s", error->message),
						error->detail ? errdetail_internal("%s", error->detail) : 0,
						error->hint ? errhint("%s", error->hint) : 0);
			strlcpy(last_error, message, sizeof(last_error));
			snowflake_lease_state_set_trouble(STATE_COORDINATOR_UNUSABLE, 0, error->message);
		}
	}
	PG_END_TRY();
	snowflake_lease_state_end_attempt();
	MemoryContextSwitchTo(outer);
	MemoryContextReset(context);
	return began_usec;
}

/* Can nothing be minted until a keeper starts, and is the exact end stored?  Fills the view. */
static bool
is_at_rest(SnowflakeView *view)
{
	pid_t		keeper_pid = snowflake_keeper_state_pid();

	pg_read_barrier();			/* read what a keeper that has ended has done */
	snowflake_generator_view(view);
	return keeper_pid == 0 && view->gate != GATE_OPEN && !view->end_unstored;
}

/*
 * The server stops: wait until the keeper has ended, because then nothing is minted
 * any more, and give back what was not used.  If the gate was left open, or its end
 * was not stored, it is not known what was minted, and the lease ends by itself.
 *
 * If both were only terminated by hand, another keeper may have started since the generator
 * was read, and found the whole lease; one that starts after the lease was shortened finds
 * the shorter one.
 */
static void
give_back(MemoryContext context)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		deadline_usec = snowflake_clock_monotonic_usec() + KEEPER_ENDS_MS * INT64CONST(1000);
	SnowflakeLeaseView lease;
	SnowflakeView view,
				later;
	int64		end;

	while (snowflake_keeper_state_pid() != 0 && snowflake_keeper_state_wait(deadline_usec))
		;
	ConditionVariableCancelSleep();

	if (!is_at_rest(&view))
		return;

	/*
	 * Keep the lease up to the last tick with an ID of this grant: nothing of
	 * it if the gate was never opened for it, or nothing was minted since;
	 * all of it if the gate was opened for another node ID since.
	 */
	snowflake_lease_state_view(&lease);
	if (lease.grant > view.newest_grant)
		end = -1;
	else if (lease.grant == view.grant)
		end = snowflake_layout_position_tick(layout,
											 snowflake_generator_is_unused(&view) ?
											 view.own_last : view.last);
	else
		return;

	SNOWFLAKE_INJECTION_POINT("snowflake-give-back");
	snowflake_lease_state_shorten(end);
	if (is_at_rest(&later) && later.last == view.last &&
		later.grant == view.grant && later.newest_grant == view.newest_grant)
		(void) attempt(context, &end);
}

void
snowflake_lessee_main(Datum main_arg)
{
	MemoryContext context;
	int64		retry_usec = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, lessee_sigterm);
	BackgroundWorkerUnblockSignals();

	if (!snowflake_lease_state_attach_lessee())
		proc_exit(0);
	snowflake_worker_pin_settings();
	context = AllocSetContextCreate(TopMemoryContext, LESSEE_NAME,
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);

	for (;;)
	{
		int64		now_usec = snowflake_clock_monotonic_usec();
		long		due_ms;

		MemoryContextReset(context);
		ResetLatch(MyLatch);
		if (ShutdownRequestPending)
			break;
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			retry_usec = 0;
		}
		if (snowflake_node_source != NODE_FROM_LEASE)
			proc_exit(0);

		due_ms = snowflake_lease_due_ms(snowflake_generator_clock());
		if (snowflake_lease_state_is_asked() || (due_ms <= 0 && now_usec >= retry_usec))
		{
			int64		began_usec = attempt(context, NULL);

			/* the keeper has to notice when a lease that is not renewed ends */
			snowflake_keeper_state_request(SNOWFLAKE_WANT_NODE);
			retry_usec = snowflake_clock_monotonic_usec();
			retry_usec += retry_after_usec(retry_usec - began_usec);

			/* the attempt's own waits may have taken the latch */
			continue;
		}
		(void) snowflake_worker_sleep(due_ms <= 0 ? retry_usec :
									  snowflake_clock_monotonic_usec() +
									  due_ms * INT64CONST(1000));
	}

	giving_back = true;
	QueryCancelPending = false;
	if (snowflake_node_source == NODE_FROM_LEASE && snowflake_lease_is_held())
		give_back(context);

	proc_exit(1);				/* to be restarted, if terminated by hand */
}
