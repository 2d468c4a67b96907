/*-------------------------------------------------------------------------
 *
 * keeper_state.c
 *	  What backends ask of the keeper, and how they hear of it.
 *
 * A backend sets a bit and wakes the keeper; the keeper takes the bits, does what
 * follows, and announces it.  Nothing here has a part in the promise that no ID
 * comes twice: a request that is lost costs a wait.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "datatype/timestamp.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "replication/syncrep.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/duration.h"
#include "generator/keeper_state.h"

/* How often those who wait for the keeper look at what it does. */
#define LOOK_AGAIN_MS	1000

/* What the keeper may take before it is worth a word. */
#define MOMENT_USEC		USECS_PER_SEC

typedef struct Requests
{
	/* Anybody sets bits, the keeper takes them.  Atomic. */
	pg_atomic_uint32 wanted;

	/*
	 * The keeper's latch and PID, NULL and 0 while there is none.  Only the
	 * keeper writes them, at its start and end.  The latch is that of a
	 * PGPROC and thus valid memory for ever: a late reader wakes somebody in
	 * vain.
	 */
	Latch	   *volatile latch;
	pg_atomic_uint32 pid;

	/*
	 * SQLSTATE of the error that ended the keeper's last attempt, 0 if none
	 * did.  Only the keeper writes it, atomically.
	 */
	pg_atomic_uint32 failure;

	/* The node ID that SNOWFLAKE_WANT_RESTART is about.  Atomic. */
	pg_atomic_uint32 reset_node;

	/*
	 * How often the keeper has judged the clock.  Only the keeper,
	 * atomically.
	 */
	pg_atomic_uint64 looks;

	/*
	 * Since when the keeper is in a commit, on the monotonic clock; 0 if it
	 * is not.  Only the keeper writes it, atomically.  And whether the log
	 * has it that this commit waits for a standby: whoever sees that first
	 * sets it.
	 */
	pg_atomic_uint64 commit_since_usec;
	pg_atomic_uint32 wait_is_logged;

	/*
	 * Since when there is no keeper, on the monotonic clock; 0 if there is
	 * one, or nobody has looked since the server can have one.  The keeper
	 * writes it, and whoever looks first; atomic.
	 */
	pg_atomic_uint64 absent_since_usec;

	/* Broadcast when the keeper has changed what others may wait for. */
	ConditionVariable changed;
} Requests;

/* NULL if the library was not preloaded. */
static Requests *shared = NULL;

/* Shared memory to request. */
Size
snowflake_keeper_state_size(void)
{
	return MAXALIGN(sizeof(Requests));
}

/* Find the requests, or make them.  The caller holds AddinShmemInitLock. */
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
	pg_atomic_init_u32(&shared->reset_node, 0);
	pg_atomic_init_u64(&shared->looks, 0);
	pg_atomic_init_u64(&shared->commit_since_usec, 0);
	pg_atomic_init_u32(&shared->wait_is_logged, 0);
	pg_atomic_init_u64(&shared->absent_since_usec, 0);
	ConditionVariableInit(&shared->changed);
}

/*
 * Ask the keeper for something.  Cheap if that was already asked, and without
 * a keeper the request waits for the next one.
 */
void
snowflake_keeper_state_request(uint32 what)
{
	Latch	   *latch;

	/* the barrier orders what the request is about before this read */
	pg_memory_barrier();
	if ((pg_atomic_read_u32(&shared->wanted) & what) == what)
		return;
	pg_atomic_fetch_or_u32(&shared->wanted, what);

	latch = shared->latch;
	if (latch != NULL)
		SetLatch(latch);
}

/* Ask the keeper to give up the order, if it mints with this node ID. */
void
snowflake_keeper_state_request_restart(int32 node)
{
	pg_atomic_write_u32(&shared->reset_node, node);
	snowflake_keeper_state_request(SNOWFLAKE_WANT_RESTART);
}

/* The node ID for which that was asked. */
int32
snowflake_keeper_state_restart_node(void)
{
	return (int32) pg_atomic_read_u32(&shared->reset_node);
}

/*
 * Sleep until the keeper announces something, the deadline (on the monotonic
 * clock) is over, this backend is interrupted, or some time has passed, so that
 * the keeper is looked at again.  False: the deadline is over.
 *
 * Call it in a loop that tests a condition first.  The first call may return
 * at once, so that the condition is tested again when its change can no longer
 * be missed.  The loop ends with ConditionVariableCancelSleep().
 */
bool
snowflake_keeper_state_wait(int64 deadline_usec)
{
	static uint32 wait_event = 0;
	int64		left_usec = deadline_usec - snowflake_clock_monotonic_usec();

	if (left_usec <= 0)
		return false;
	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("SnowflakeKeeper");
	ConditionVariableTimedSleep(&shared->changed,
								(long) Min(left_usec / 1000 + 1, LOOK_AGAIN_MS),
								wait_event);
	return true;
}

/* The keeper's process, 0 if there is none. */
int
snowflake_keeper_state_pid(void)
{
	return (int) pg_atomic_read_u32(&shared->pid);
}

/* SQLSTATE of the error that ended the keeper's last attempt, 0 if none did. */
int
snowflake_keeper_state_failure(void)
{
	return (int) pg_atomic_read_u32(&shared->failure);
}

/* How often the keeper has judged the clock. */
uint64
snowflake_keeper_state_judgments(void)
{
	return pg_atomic_read_u64(&shared->looks);
}

/*
 * Have the keeper judge the clock, and wait for that until a deadline, on the
 * monotonic clock.
 */
void
snowflake_keeper_state_have_clock_judged(int64 deadline_usec)
{
	uint64		looks = snowflake_keeper_state_judgments();

	while (snowflake_keeper_state_judgments() == looks)
	{
		snowflake_keeper_state_request(SNOWFLAKE_WANT_LOOK);
		if (!snowflake_keeper_state_wait(deadline_usec))
			break;
		CHECK_FOR_INTERRUPTS();
	}
	ConditionVariableCancelSleep();
}

/*
 * Has there been no keeper for longer than it takes to start one?  Not in
 * recovery, where there is none.
 */
bool
snowflake_keeper_state_is_missing(void)
{
	int64		now_usec = snowflake_clock_monotonic_usec();
	uint64		since_usec = 0;

	if (snowflake_keeper_state_pid() != 0)
		return false;

	/* nobody tells when a standby is promoted, so the first look counts */
	if (pg_atomic_compare_exchange_u64(&shared->absent_since_usec, &since_usec,
									   now_usec))
		return false;
	return now_usec - (int64) since_usec > MOMENT_USEC;
}

/*
 * For how many microseconds the keeper's commit has been waiting for a synchronous
 * standby; 0 if it does not, or has only begun to.
 *
 * The state of the wait is the keeper's own, and read without its lock: it may be
 * the next commit's, for which the time is then right.
 */
int64
snowflake_keeper_state_standby_wait_usec(void)
{
	int64		since_usec = pg_atomic_read_u64(&shared->commit_since_usec);
	int			pid = snowflake_keeper_state_pid();
	int64		waited_usec = snowflake_clock_monotonic_usec() - since_usec;
	PGPROC	   *keeper;

	if (since_usec == 0 || pid == 0 || waited_usec < MOMENT_USEC)
		return 0;
	keeper = BackendPidGetProc(pid);
	return keeper != NULL && keeper->syncRepState == SYNC_REP_WAITING ?
		waited_usec : 0;
}

/*
 * If the keeper's commit waits for a synchronous standby, say so in the log, once.
 * The keeper cannot: it hears of nothing but the standby until that answers.
 */
void
snowflake_keeper_state_log_standby_wait(void)
{
	int64		waited_usec = snowflake_keeper_state_standby_wait_usec();

	if (waited_usec == 0 ||
		pg_atomic_exchange_u32(&shared->wait_is_logged, 1) != 0)
		return;
	ereport(LOG_SERVER_ONLY,
			errmsg("the commit of the snowflake reservation waits for a synchronous standby"),
			errdetail("It has been waiting for %s. The setting synchronous_standby_names is \"%s\".",
					  snowflake_duration(waited_usec), SyncRepStandbyNames));
}


/*
 * Only the keeper calls what follows.
 */

/*
 * A keeper has started: from now on requests wake it.  What was asked of an
 * earlier one may have been given up since; those who are still waiting ask
 * again when they are woken.
 */
void
snowflake_keeper_state_attach_keeper(void)
{
	pg_atomic_write_u64(&shared->commit_since_usec, 0);
	pg_atomic_write_u32(&shared->pid, MyProcPid);
	pg_atomic_write_u64(&shared->absent_since_usec, 0);
	shared->latch = MyLatch;
	pg_atomic_write_u32(&shared->wanted, 0);
	snowflake_keeper_state_announce();
}

/* It ends. */
void
snowflake_keeper_state_detach_keeper(void)
{
	shared->latch = NULL;
	pg_atomic_write_u64(&shared->absent_since_usec, snowflake_clock_monotonic_usec());
	pg_atomic_write_u32(&shared->pid, 0);
	snowflake_keeper_state_announce();
}

/* It begins a commit, which may have to wait for a synchronous standby. */
void
snowflake_keeper_state_commit_begins(void)
{
	pg_atomic_write_u32(&shared->wait_is_logged, 0);
	pg_atomic_write_u64(&shared->commit_since_usec, snowflake_clock_monotonic_usec());
}

/* The commit has ended.  If it was logged that it waits, log that it does not. */
void
snowflake_keeper_state_commit_ended(void)
{
	int64		since_usec = pg_atomic_exchange_u64(&shared->commit_since_usec, 0);

	if (pg_atomic_read_u32(&shared->wait_is_logged) != 0)
		ereport(LOG,
				errmsg("the commit of the snowflake reservation no longer waits for a synchronous standby, after %s",
					   snowflake_duration(snowflake_clock_monotonic_usec() - since_usec)));
}

/* What was asked for and is not taken yet. */
uint32
snowflake_keeper_state_pending(void)
{
	return pg_atomic_read_u32(&shared->wanted);
}

/* Take what was asked for.  What is asked from now on sets the latch again. */
uint32
snowflake_keeper_state_take(void)
{
	return pg_atomic_exchange_u32(&shared->wanted, 0);
}

/* Something changed: whoever waits looks again. */
void
snowflake_keeper_state_announce(void)
{
	ConditionVariableBroadcast(&shared->changed);
}

/* The clock was judged, for those who asked for it. */
void
snowflake_keeper_state_announce_judgment(void)
{
	pg_atomic_write_u64(&shared->looks, pg_atomic_read_u64(&shared->looks) + 1);
	snowflake_keeper_state_announce();
}

/* An error has ended the keeper's attempt: those who wait may want to know. */
void
snowflake_keeper_state_failed(int sqlstate)
{
	pg_atomic_write_u32(&shared->failure, sqlstate);
	snowflake_keeper_state_announce();
}

/* An attempt has succeeded, so an earlier error is no news any more. */
void
snowflake_keeper_state_succeeded(void)
{
	pg_atomic_write_u32(&shared->failure, 0);
}
