/*-------------------------------------------------------------------------
 *
 * keeper_state.c
 *	  Requests of backends to the keeper, and its answers.
 *
 * A backend sets a bit and wakes the keeper; the keeper takes the bits, does what they ask for,
 * and announces it.  Nothing here is part of the promise that no ID is issued twice: a lost
 * request only costs a wait.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "datatype/timestamp.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "replication/syncrep.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/duration.h"
#include "generator/keeper_state.h"

/*
 * How often processes that wait for the keeper check what it does; and while there is none,
 * when the postmaster may have to be woken
 */
#define LOOK_AGAIN_MS	1000
#define CALL_MS			100

/* How long the keeper may take before messages mention it */
#define MOMENT_USEC		USECS_PER_SEC

/* Times are on the monotonic clock.  What is atomic may be read at any time. */
typedef struct Requests
{
	/* Any process sets bits, the keeper takes them. */
	pg_atomic_uint32 wanted;

	/*
	 * The keeper's latch and PID, NULL and 0 while there is none.  Only the
	 * keeper writes them, at its start and end.  The latch is that of a
	 * PGPROC, so it stays valid memory forever: a late reader merely wakes
	 * another process in vain.
	 */
	Latch	   *volatile latch;
	pg_atomic_uint32 pid;

	/* SQLSTATE of the error that ended its last attempt, or 0. */
	pg_atomic_uint32 failure;

	/*
	 * When the first of the requests that are not taken yet was made, written
	 * by a process that finds no other one; and since when the keeper, or its
	 * predecessors, have not finished a round, 0 if it sleeps.
	 */
	pg_atomic_uint64 asked_at_usec;
	pg_atomic_uint64 busy_since_usec;

	/* The node ID that SNOWFLAKE_WANT_RESTART is about. */
	pg_atomic_uint32 reset_node;

	/* How often the keeper has judged the clock.  Only the keeper writes it. */
	pg_atomic_uint64 looks;

	/*
	 * When the keeper's commit began, 0 if it is not in one, and whether the
	 * log says that this commit waits for a standby: the first process that
	 * notices the wait sets that.
	 */
	pg_atomic_uint64 commit_since_usec;
	pg_atomic_uint32 wait_is_logged;

	/*
	 * Since when there has been no keeper, 0 if there is one, or if no
	 * process has checked since the server could have one; and when the
	 * postmaster was last woken because of that, by the one backend whose
	 * compare-and-swap has succeeded.
	 */
	pg_atomic_uint64 absent_since_usec;
	pg_atomic_uint64 called_at_usec;

	/* Broadcast when the keeper has changed what others may wait for. */
	ConditionVariable changed;
} Requests;

/* NULL if the library was not preloaded. */
static Requests *shared = NULL;

Size
snowflake_keeper_state_size(void)
{
	return MAXALIGN(sizeof(Requests));
}

void
snowflake_keeper_state_attach(void)
{
	bool		found;

	shared = ShmemInitStruct("snowflake requests", snowflake_keeper_state_size(), &found);
	if (found)
		return;
	shared->latch = NULL;
	pg_atomic_init_u32(&shared->wanted, 0);
	pg_atomic_init_u32(&shared->pid, 0);
	pg_atomic_init_u32(&shared->failure, 0);
	pg_atomic_init_u64(&shared->asked_at_usec, 0);
	pg_atomic_init_u64(&shared->busy_since_usec, 0);
	pg_atomic_init_u32(&shared->reset_node, 0);
	pg_atomic_init_u64(&shared->looks, 0);
	pg_atomic_init_u64(&shared->commit_since_usec, 0);
	pg_atomic_init_u32(&shared->wait_is_logged, 0);
	pg_atomic_init_u64(&shared->absent_since_usec, 0);
	pg_atomic_init_u64(&shared->called_at_usec, 0);
	ConditionVariableInit(&shared->changed);
}

static void
wake_keeper(void)
{
	Latch	   *latch = shared->latch;

	if (latch != NULL)
		SetLatch(latch);
}

/* Ask the keeper for something.  If there is no keeper, the request waits for the next one. */
void
snowflake_keeper_state_request(uint32 what)
{
	/* the barrier orders what the request is about before this load */
	pg_memory_barrier();
	if ((pg_atomic_read_u32(&shared->wanted) & what) == what)
		return;
	if (pg_atomic_read_u32(&shared->wanted) == 0)
		pg_atomic_write_u64(&shared->asked_at_usec, snowflake_clock_monotonic_usec());
	pg_atomic_fetch_or_u32(&shared->wanted, what);

	SNOWFLAKE_INJECTION_POINT("snowflake-request");
	wake_keeper();
}

void
snowflake_keeper_state_request_restart(int32 node)
{
	pg_atomic_write_u32(&shared->reset_node, node);
	snowflake_keeper_state_request(SNOWFLAKE_WANT_RESTART);
}

int32
snowflake_keeper_state_restart_node(void)
{
	return (int32) pg_atomic_read_u32(&shared->reset_node);
}

int
snowflake_keeper_state_pid(void)
{
	return (int) pg_atomic_read_u32(&shared->pid);
}

/* Returns for how many microseconds there has been no keeper; 0 if there is one. */
static int64
absent_usec(int64 now_usec)
{
	uint64		since_usec = 0;

	if (snowflake_keeper_state_pid() != 0)
		return 0;

	/* a promotion is not announced, so count from the first check */
	if (pg_atomic_compare_exchange_u64(&shared->absent_since_usec, &since_usec,
									   now_usec))
		return 0;
	return now_usec - (int64) since_usec;
}

/*
 * The postmaster restarts a keeper at once, unless it oversleeps: then any signal wakes it.  In
 * recovery no keeper starts.
 */
static void
call_postmaster(int64 now_usec)
{
	uint64		called_at_usec = pg_atomic_read_u64(&shared->called_at_usec);

	if (SNOWFLAKE_POSTMASTER_OVERSLEEPS && IsUnderPostmaster && !RecoveryInProgress() &&
		absent_usec(now_usec) >= CALL_MS * 1000 &&
		now_usec - (int64) called_at_usec >= CALL_MS * 1000 &&
		pg_atomic_compare_exchange_u64(&shared->called_at_usec, &called_at_usec, now_usec))
		SendPostmasterSignal(PMSIGNAL_BACKGROUND_WORKER_CHANGE);
}

/*
 * Sleep until the keeper announces something, the deadline (on the monotonic clock) passes, this
 * backend is interrupted, or it is time to check on the keeper again.  Returns false if the
 * deadline has passed.
 *
 * Call it in a loop that tests a condition first, and ends with ConditionVariableCancelSleep().
 * The first call may return immediately, so that the condition is tested again when its change can
 * no longer be missed.  Every waiting backend wakes the keeper, because the one that set the
 * request may have been stopped before it could.
 */
bool
snowflake_keeper_state_wait(int64 deadline_usec)
{
	static uint32 wait_event = 0;
	int64		now_usec = snowflake_clock_monotonic_usec();
	int64		left_usec = deadline_usec - now_usec;
	bool		absent = snowflake_keeper_state_pid() == 0;

	if (left_usec <= 0)
		return false;
	if (absent)
		call_postmaster(now_usec);
	else if (snowflake_keeper_state_pending() != 0)
		wake_keeper();
	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("SnowflakeKeeper");
	ConditionVariableTimedSleep(&shared->changed,
								(long) Min(left_usec / 1000 + 1,
										   absent && SNOWFLAKE_POSTMASTER_OVERSLEEPS ?
										   CALL_MS : LOOK_AGAIN_MS),
								wait_event);
	return true;
}

uint32
snowflake_keeper_state_pending(void)
{
	return pg_atomic_read_u32(&shared->wanted);
}

uint64
snowflake_keeper_state_judgments(void)
{
	return pg_atomic_read_u64(&shared->looks);
}

/*
 * Have the keeper judge the clock until it has done so "looks" times in all, or a deadline on the
 * monotonic clock has passed.
 */
void
snowflake_keeper_state_await_judgment(uint64 looks, int64 deadline_usec)
{
	while (snowflake_keeper_state_judgments() < looks)
	{
		snowflake_keeper_state_request(SNOWFLAKE_WANT_LOOK);
		if (!snowflake_keeper_state_wait(deadline_usec))
			break;
		CHECK_FOR_INTERRUPTS();
	}
	ConditionVariableCancelSleep();
}


/*
 * Returns for how long the keeper's commit has been waiting for a synchronous standby.  The state
 * of the wait is the keeper's own, and is read without its lock: it may be that of the next
 * commit, for which the time is then right.
 */
static int64
standby_wait_usec(int pid, int64 now_usec)
{
	uint64		since_usec = pg_atomic_read_u64(&shared->commit_since_usec);
	PGPROC	   *keeper;

	if (since_usec == 0 || pid == 0 || now_usec - (int64) since_usec < MOMENT_USEC)
		return 0;
	keeper = BackendPidGetProc(pid);
	return keeper != NULL && keeper->syncRepState == SYNC_REP_WAITING ?
		now_usec - (int64) since_usec : 0;
}

/* Read what the keeper is doing.  Each part is right for its own moment. */
void
snowflake_keeper_state_view(SnowflakeKeeperView *view)
{
	int64		now_usec = snowflake_clock_monotonic_usec();
	int64		asked_at_usec = (int64) pg_atomic_read_u64(&shared->asked_at_usec);
	int64		busy_since_usec = (int64) pg_atomic_read_u64(&shared->busy_since_usec);
	bool		is_asked = snowflake_keeper_state_pending() != 0;

	view->pid = snowflake_keeper_state_pid();
	view->failure = (int) pg_atomic_read_u32(&shared->failure);
	view->is_missing = !RecoveryInProgress() && absent_usec(now_usec) > MOMENT_USEC;
	view->is_at_rest = view->pid != 0 && !is_asked && busy_since_usec == 0;
	if (busy_since_usec == 0)
		busy_since_usec = now_usec;
	view->unanswered_usec = now_usec -
		(is_asked ? Min(asked_at_usec, busy_since_usec) : busy_since_usec);
	view->is_held = view->unanswered_usec >= MOMENT_USEC;
	view->standby_wait_usec = standby_wait_usec(view->pid, now_usec);
}

/*
 * If the keeper's commit waits for a synchronous standby, log that once.  The keeper cannot do
 * it: until the standby answers, it does nothing else.
 */
void
snowflake_keeper_state_log_standby_wait(void)
{
	SnowflakeKeeperView view;

	snowflake_keeper_state_view(&view);
	if (view.standby_wait_usec == 0 ||
		pg_atomic_exchange_u32(&shared->wait_is_logged, 1) != 0)
		return;
	ereport(LOG_SERVER_ONLY,
			errmsg("the commit of the snowflake reservation waits for a synchronous standby"),
			errdetail("It has been waiting for %s. The setting synchronous_standby_names is \"%s\".",
					  snowflake_duration(view.standby_wait_usec), SyncRepStandbyNames));
}


/*
 * Only the keeper calls what follows.
 */

/* The keeper is at work from now on, unless it already was. */
static void
begin_work(void)
{
	if (pg_atomic_read_u64(&shared->busy_since_usec) == 0)
		pg_atomic_write_u64(&shared->busy_since_usec, snowflake_clock_monotonic_usec());
}

/* A keeper has started: from now on requests wake it. */
void
snowflake_keeper_state_attach_keeper(void)
{
	Assert(snowflake_keeper_state_pid() == 0);
	pg_atomic_write_u32(&shared->pid, MyProcPid);
	pg_atomic_write_u64(&shared->commit_since_usec, 0);
	pg_atomic_write_u64(&shared->absent_since_usec, 0);
	shared->latch = MyLatch;
	begin_work();
	snowflake_keeper_state_forget_requests();
}

/*
 * Forget the requests of administrators after a failure: they may have given up since.  Those
 * who are still waiting ask again when they are woken.
 */
void
snowflake_keeper_state_forget_requests(void)
{
	(void) pg_atomic_fetch_and_u32(&shared->wanted,
								   ~(SNOWFLAKE_WANT_LAYOUT | SNOWFLAKE_WANT_DATABASE |
									 SNOWFLAKE_WANT_CLOCK | SNOWFLAKE_WANT_RESTART));
	snowflake_keeper_state_announce();
}

/* The keeper ends. */
void
snowflake_keeper_state_detach_keeper(void)
{
	shared->latch = NULL;
	pg_atomic_write_u64(&shared->absent_since_usec, snowflake_clock_monotonic_usec());
	pg_atomic_write_u32(&shared->pid, 0);
	snowflake_keeper_state_announce();
}

/* The keeper begins a commit, which may have to wait for a synchronous standby. */
void
snowflake_keeper_state_commit_begins(void)
{
	pg_atomic_write_u32(&shared->wait_is_logged, 0);
	pg_atomic_write_u64(&shared->commit_since_usec, snowflake_clock_monotonic_usec());
}

void
snowflake_keeper_state_commit_ended(void)
{
	int64		since_usec = pg_atomic_exchange_u64(&shared->commit_since_usec, 0);

	if (pg_atomic_read_u32(&shared->wait_is_logged) != 0)
		ereport(LOG,
				errmsg("the commit of the snowflake reservation no longer waits for a synchronous standby, after %s",
					   snowflake_duration(snowflake_clock_monotonic_usec() - since_usec)));
}

/* Take the requests.  A request that is made from now on sets the latch again. */
uint32
snowflake_keeper_state_take(void)
{
	begin_work();
	return pg_atomic_exchange_u32(&shared->wanted, 0);
}

/* Something has changed: wake the waiting backends, to check again. */
void
snowflake_keeper_state_announce(void)
{
	ConditionVariableBroadcast(&shared->changed);
}

/* Announce that the clock was judged, to those who asked for that. */
void
snowflake_keeper_state_announce_judgment(void)
{
	pg_atomic_write_u64(&shared->looks, pg_atomic_read_u64(&shared->looks) + 1);
	snowflake_keeper_state_announce();
}

void
snowflake_keeper_state_failed(int sqlstate)
{
	pg_atomic_write_u64(&shared->commit_since_usec, 0);
	pg_atomic_write_u32(&shared->failure, sqlstate);
	snowflake_keeper_state_announce();
}

/* An attempt has succeeded: forget an earlier error. */
void
snowflake_keeper_state_succeeded(void)
{
	pg_atomic_write_u64(&shared->busy_since_usec, 0);
	pg_atomic_write_u32(&shared->failure, 0);
}
