/*-------------------------------------------------------------------------
 *
 * keeper.c
 *	  The background worker that keeps the reservation and the gate.
 *
 * The keeper is the only writer of the reservation, which is in a table in the
 * database snowflake.database: see reservation.c, also for why it runs no SQL.
 *
 * Its life: connect, then rounds.  A round looks at what changed (settings,
 * requests of the backends, the clock), and does what follows: open the gate,
 * close it for another node ID, extend the reservation, raise the floor.
 * Between rounds it sleeps on its latch, for up to a day unless it watches the
 * clock, so an idle server has an idle keeper.
 *
 * In shared memory it follows one order, which generator.c depends on: commit
 * first, publish afterwards.  A commit here is always durable: synchronous
 * replication included, but for that of an exact end, which only ever lowers
 * what is reserved.
 *
 * An error ends the process, and the postmaster starts another one.  The state
 * of the generator is in shared memory and complete at every moment, so a new
 * keeper goes on where the old one stood, and minting meanwhile goes on to the
 * end of the reservation.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#include "clock.h"
#include "compat.h"
#include "counters.h"
#include "generator.h"
#include "keeper.h"
#include "request.h"
#include "reservation.h"
#include "settings.h"
#include "watch.h"
#include "worker.h"

#define KEEPER_NAME				"snowflake keeper"

/*
 * The postmaster restarts the keeper at once, and it is the keeper that waits
 * after a failure.  The postmaster would count the seconds by the wall clock,
 * which may go back by an hour just then.
 */
#define KEEPER_RESTART_SECONDS	0
#define RETRY_LOCKED_MS			200 /* if it failed for a lock */
#define RETRY_ASKED_MS			1000	/* if somebody asked for something */
#define RETRY_UNASKED_MS		10000

/* What a round allocates outside of transactions. */
static MemoryContext round_context;

/* A signal arrived that ends a wait for a synchronous standby. */
static volatile sig_atomic_t cancel_arrived = false;

/* The end is being stored, which waits for nobody. */
static volatile sig_atomic_t storing_end = false;


/*
 * Start and end
 */

/*
 * End whatever the keeper is waiting for.  That ends a wait for a synchronous
 * standby as if the commit had got there: see commit_transaction().
 */
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
 * The server stops, or somebody terminates the keeper.
 *
 * A stop sends this twice, to the process and to its group.  The second one
 * may come when the first has already led to the end, and must not cancel it.
 */
static void
keeper_sigterm(SIGNAL_ARGS)
{
	ShutdownRequestPending = true;
	if (!storing_end)
		cancel_waits();
}

static void
keeper_exit(int code, Datum arg)
{
	snowflake_gate_leave();
	snowflake_keeper_detach();
}

/* Register the keeper.  Only while the server preloads libraries. */
void
snowflake_keeper_init(void)
{
	BackgroundWorker worker = {0};

	/* pg_upgrade must find the old server as it was left */
	if (IsBinaryUpgrade)
		return;

	strlcpy(worker.bgw_name, KEEPER_NAME, BGW_MAXLEN);
	strlcpy(worker.bgw_type, KEEPER_NAME, BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = KEEPER_RESTART_SECONDS;
	strlcpy(worker.bgw_library_name, "snowflake", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "snowflake_keeper_main", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}


/*
 * Transactions
 */

static void
begin_transaction(const char *activity)
{
	/* a cancel that came while there was nothing to cancel */
	cancel_arrived = false;
	QueryCancelPending = false;

	/* but told to stop, begin nothing that may have to wait */
	if (ShutdownRequestPending && !storing_end)
		cancel_waits();

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_report_activity(STATE_RUNNING, activity);
}

/*
 * Commit.  On return the transaction is durable, on the synchronous standbys
 * too.  If a signal ended the wait for them, the commit stands, but that is not
 * known, and it is an error: nothing that depends on it may be published.
 */
static void
commit_transaction(void)
{
	SNOWFLAKE_INJECTION_POINT("snowflake-before-commit");
	PopActiveSnapshot();
	snowflake_commit_begins();
	CommitTransactionCommand();
	MemoryContextSwitchTo(round_context);
	snowflake_commit_ended();
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);

	/* the postmaster's death ends the wait as well, and sets the latter */
	if (cancel_arrived || ProcDiePending)
		ereport(ERROR,
				errcode(ERRCODE_QUERY_CANCELED),
				errmsg("canceled a commit of the snowflake reservation"));
	SNOWFLAKE_INJECTION_POINT("snowflake-after-commit");
}


/*
 * The reservation
 */

/*
 * How far minters can get within a time: their IDs may be ahead of the clock.
 */
static TimestampTz
reach(TimestampTz now, int64 ms)
{
	return now + (snowflake_max_lead_ms + ms) * INT64CONST(1000);
}

/*
 * The position up to which to reserve: as far from the clock as the setting
 * says, and not below what was issued.  A generator that is ahead of the clock
 * reserves nothing more, or a series of crashes would take it further and
 * further ahead.
 */
static uint64
reserve_up_to(uint64 last, TimestampTz now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		tick = snowflake_tick_at(layout,
										 reach(now, snowflake_reservation_ms));

	tick = Max(tick, snowflake_position_tick(layout, last));
	return snowflake_last_position(layout, Min(tick, layout->max_tick));
}

/* The position from which on a minter asks for more: half of it is left. */
static uint64
refill_from(uint64 limit)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		half = snowflake_reservation_ms * INT64CONST(500) / layout->tick_usec;
	int64		tick = snowflake_position_tick(layout, limit) - half;

	return snowflake_first_position(layout, Max(tick, 0));
}

/* The last position of the tick in which a stored reservation ends. */
static uint64
end_of_reservation(TimestampTz until)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		tick = snowflake_tick_at(layout, until);

	return tick < 0 ? 0 :
		snowflake_last_position(layout, Min(tick, layout->max_tick));
}

/*
 * Store the exact end of what was issued, so that the next start waits for
 * nothing.  The gate is closed, and "last" stands still.
 *
 * This lowers what is reserved, so a standby that does not hear of it is on
 * the safe side, and there is no need to wait for one.
 */
static void
settle(void)
{
	SnowflakeView view;

	snowflake_generator_view(&view);
	begin_transaction("settling the reservation");
	(void) set_config_option("synchronous_commit", "local",
							 PGC_SUSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
							 true, 0, false);
	snowflake_reservation_write(view.node,
								snowflake_position_time(&snowflake_server_layout,
														view.last));
	commit_transaction();
	snowflake_settled();
}

/*
 * A standby that was promoted, or a copy, may have got its node ID from the server
 * that it is a copy of.  If that one still mints, IDs come twice, so tell where
 * the node ID comes from and who had it, at the first opening.
 */
static void
log_inherited_node(int32 node, const SnowflakeReservation *stored)
{
	char	   *origin = snowflake_setting_origin("snowflake.node_id");

	ereport(LOG,
			errmsg("this server was a standby or a backup before, and now mints with node ID %d",
				   node),
			stored->own_found ?
			errdetail("snowflake.node_id is set %s. The reservation shows node ID %d in use before, up to \"%s\".",
					  origin, node, timestamptz_to_str(stored->own_until)) :
			errdetail("snowflake.node_id is set %s. The reservation shows no earlier use of node ID %d.",
					  origin, node),
			stored->own_found ?
			errhint("If another server used it and may still mint, set snowflake.node_id to a number of this server's own.") : 0);
}

/*
 * Open the gate for the configured node ID, if that is possible; otherwise
 * leave it closed with the reason.
 */
static void
open_gate(uint32 requests, TimestampTz now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	SnowflakeView view;
	uint64		last;
	int32		node = snowflake_node_id;
	uint64		limit;
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	SnowflakeReservation stored = {0};
	Oid			kept_in = snowflake_reservation_database();
	bool		exists;

	snowflake_generator_view(&view);
	last = view.last;
	if (node < 0)
	{
		snowflake_gate_set(GATE_NODE_UNSET);
		return;
	}
	if (node > layout->max_node)
	{
		snowflake_gate_set(GATE_NODE_TOO_LARGE);
		return;
	}

	snowflake_layout_print(layout, text, sizeof(text));
	begin_transaction("opening the gate");

	exists = snowflake_reservation_exists();
	if (exists)
		stored = snowflake_reservation_read(node);

	/*
	 * Where nothing was minted yet there is no reservation, and minting
	 * starts at the clock.  But if this cluster has minted, that would be
	 * below the IDs that were ahead of it.  Shared memory knows how far they
	 * got, unless it is new: then an administrator has to say that they are
	 * no more.
	 */
	if (last == 0 && OidIsValid(kept_in) &&
		(kept_in != MyDatabaseId || !stored.found) &&
		!(requests & SNOWFLAKE_WANT_DATABASE))
	{
		if (view.gate != GATE_RESERVATION_LOST)
			ereport(LOG,
					errmsg("snowflake gate stays closed: the reservation of this server is not in database \"%s\"",
						   snowflake_database),
					errdetail("It was last seen in the database with OID %u.", kept_in));
		snowflake_gate_set_reservation_lost(kept_in);
		commit_transaction();
		return;
	}

	/*
	 * Create the extension only when somebody mints: until then its absence
	 * may mean that an administrator is about to create it.
	 */
	if (!exists)
	{
		if (!(requests & (SNOWFLAKE_WANT_GATE | SNOWFLAKE_WANT_FLOOR |
						  SNOWFLAKE_WANT_DATABASE)))
		{
			commit_transaction();
			snowflake_gate_set(GATE_WAITING);
			return;
		}
		snowflake_gate_set(GATE_CREATING);
		snowflake_reservation_create();
	}

	if (stored.other_layout != NULL && !(requests & SNOWFLAKE_WANT_LAYOUT))
	{
		/* to the log once, not for each mint that meets the gate */
		if (view.gate != GATE_LAYOUT_CHANGED)
			ereport(LOG,
					errmsg("snowflake gate stays closed: snowflake.layout differs from the stored layout"),
					errdetail("Configured is \"%s\", stored is \"%s\".",
							  text, stored.other_layout));
		snowflake_gate_set_layout_changed(stored.other_layout);
		commit_transaction();
		return;
	}
	if (stored.other_layout != NULL)
	{
		snowflake_reservation_accept_layout();
		ereport(LOG,
				errmsg("accepting the snowflake layout \"%s\" in place of \"%s\"",
					   text, stored.other_layout));
	}

	/*
	 * Resume above the tick of everything that may have been issued, by any
	 * node ID of this server: in most layouts the node stands above the
	 * sequence, so the IDs of one tick do not ascend across a change of node.
	 */
	if (last > 0)
		last = snowflake_last_position(layout, snowflake_position_tick(layout, last));
	last = Max(last, view.floor);
	if (stored.found)
		last = Max(last, end_of_reservation(stored.until));
	limit = reserve_up_to(last, now);
	snowflake_gate_set(GATE_OPENING);
	snowflake_reservation_write(node, snowflake_position_time(layout, limit));
	if (kept_in != MyDatabaseId)
		snowflake_reservation_mark_database();
	commit_transaction();

	snowflake_count(&snowflake_counters->reservations);
	snowflake_gate_open(node, last,
						stored.own_found ? end_of_reservation(stored.own_until) : 0,
						limit, refill_from(limit));

	ereport(LOG,
			errmsg("snowflake gate opened for node %d", node),
			stored.found || last > 0 ?
			errdetail("The layout is \"%s\". Minting resumes after \"%s\".", text,
					  timestamptz_to_str(snowflake_position_time(layout, last))) :
			errdetail("The layout is \"%s\". Nothing was minted before.",
					  text));
	if (view.inherited && view.last == 0)
		log_inherited_node(node, &stored);
}

/*
 * Give up the order of a generator that is ahead of the clock for good: open the
 * gate again at what the node itself has had, if it has issued nothing since it
 * was opened.  snowflake_reset() has looked at the same before it asked.
 *
 * The gate is open, and closed before anything is decided.  If this fails, the
 * next keeper settles and opens as ever.
 */
static void
reset_order(TimestampTz now)
{
	SnowflakeView view;
	uint64		limit;

	snowflake_gate_close(GATE_OPENING);
	snowflake_generator_view(&view);
	if (!snowflake_is_untouched(&view) ||
		snowflake_position_time(&snowflake_server_layout, view.own_last) > now)
		return;

	begin_transaction("giving up the order");
	snowflake_reservation_give_up_order(now);
	limit = reserve_up_to(view.own_last, now);
	snowflake_reservation_write(view.node,
								snowflake_position_time(&snowflake_server_layout, limit));
	commit_transaction();

	snowflake_count(&snowflake_counters->reservations);
	snowflake_gate_open_afresh(view.node, view.own_last, limit, refill_from(limit));
	ereport(LOG,
			errmsg("snowflake gate opened afresh for node %d", view.node),
			errdetail("Snowflakes are smaller than those of before, up to \"%s\".",
					  timestamptz_to_str(snowflake_position_time(&snowflake_server_layout,
																 view.last))));
}

/*
 * Reserve more, from the newest position, the clock or the floor on, and then
 * raise the limit.  The gate is open.
 */
static void
extend(const SnowflakeView *view, TimestampTz now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	uint64		limit = reserve_up_to(Max(view->last, view->floor), now);

	/*
	 * More than half of it is left: who asks is waiting for the clock, or had
	 * asked before the last extension, or the setting was lowered.
	 */
	if (limit <= view->limit ||
		(view->floor <= view->limit &&
		 snowflake_position_time(layout, view->limit) >=
		 reach(now, snowflake_reservation_ms / 2)))
	{
		snowflake_set_refill(refill_from(view->limit));
		return;
	}

	begin_transaction("extending the reservation");
	snowflake_reservation_write(view->node,
								snowflake_position_time(layout, limit));
	commit_transaction();

	/* durable from here on */
	snowflake_count(&snowflake_counters->reservations);
	snowflake_extend(limit, refill_from(limit));
}


/*
 * Rounds
 */

/*
 * Is far more reserved than is needed?  That comes from a clock that was ahead
 * for a while, and would have to be waited for after a crash.
 */
static bool
is_reserved_too_far(const SnowflakeView *view, TimestampTz now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	uint64		needed = reserve_up_to(Max(view->last, view->floor), now);

	return snowflake_position_time(layout, view->limit) -
		snowflake_position_time(layout, needed) >
		(snowflake_reservation_ms + snowflake_max_jump_ms) * INT64CONST(1000);
}

/* Look at the clocks, and publish what follows from that. */
static SnowflakeVerdict
judge_clock(uint32 requests, TimestampTz *now)
{
	SnowflakeView view;
	SnowflakeLook look;
	SnowflakeVerdict verdict;

	snowflake_generator_view(&view);
	snowflake_look(&look);
	verdict = snowflake_judge(&look,
							  snowflake_position_time(&snowflake_server_layout,
													  view.last),
							  (requests & SNOWFLAKE_WANT_CLOCK) != 0);
	snowflake_set_correction(verdict.correction_usec);

	/*
	 * Those who asked for it wait, and so may those who found the clock
	 * beyond what is reserved.
	 */
	if (verdict.news != CLOCK_NO_NEWS ||
		(requests & (SNOWFLAKE_WANT_LOOK | SNOWFLAKE_WANT_CLOCK)))
		snowflake_announce_look();
	*now = look.wall + verdict.correction_usec;
	return verdict;
}

/*
 * Look at everything that may have changed, and do what follows from it.
 * Returns the ms after which to do so again, if nobody asks before.
 */
static long
keeper_round(void)
{
	uint32		requests = snowflake_take_requests();
	TimestampTz now;
	SnowflakeVerdict verdict = judge_clock(requests, &now);
	SnowflakeView view;

	snowflake_generator_view(&view);

	/*
	 * Another node ID: end the present one's work as a clean stop would. That
	 * is also how too large a reservation becomes a small one.
	 */
	if (view.gate == GATE_OPEN &&
		(view.node != snowflake_node_id || is_reserved_too_far(&view, now)))
	{
		ereport(LOG,
				errmsg("snowflake gate closed for node %d", view.node),
				view.node != snowflake_node_id ? 0 :
				errdetail("More is reserved than is needed, up to \"%s\".",
						  timestamptz_to_str(snowflake_position_time(&snowflake_server_layout,
																	 view.limit))));
		snowflake_gate_close(GATE_OPENING);
		snowflake_generator_view(&view);
	}

	if (view.gate == GATE_OPEN && (requests & SNOWFLAKE_WANT_RESET))
	{
		reset_order(now);
		snowflake_generator_view(&view);
	}

	if (view.gate != GATE_OPEN)
	{
		if (view.unsettled)
			settle();
		open_gate(requests, now);
	}
	else
	{
		if (view.last >= view.refill || view.floor > view.last ||
			(requests & SNOWFLAKE_WANT_TIME))
			extend(&view, now);
		if (view.floor > view.last)
			snowflake_raise(view.floor, RAISED_BY_ADVANCE);
	}

	return snowflake_watch(&verdict, now);
}

/*
 * Do a round.  Returns what it returns.  An error ends the process, unless that
 * is about to end anyway: then what is left to do is done.
 */
static long
attempt_round(void)
{
	volatile long sleep_ms = 0;

	MemoryContextSwitchTo(round_context);
	PG_TRY();
	{
		QueryCancelPending = false;
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		sleep_ms = keeper_round();
		snowflake_keeper_succeeded();
	}
	PG_CATCH();
	{
		snowflake_keeper_failed(geterrcode());
		if (!ShutdownRequestPending)
			PG_RE_THROW();

		/* told to stop, and probably canceled by that: settle afterwards */
		if (geterrcode() != ERRCODE_QUERY_CANCELED)
			EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	MemoryContextReset(round_context);
	return sleep_ms;
}

/* After a failure, pause before the next attempt, so as not to fill the log. */
static void
pause_after_failure(void)
{
	int64		started_usec = snowflake_monotonic_usec();

	while (!ShutdownRequestPending)
	{
		int64		pause_ms = snowflake_pending_requests() == 0 ? RETRY_UNASKED_MS :
		snowflake_keeper_failure() == ERRCODE_LOCK_NOT_AVAILABLE ?
		RETRY_LOCKED_MS : RETRY_ASKED_MS;

		if (!snowflake_worker_sleep(started_usec + pause_ms * 1000))
			break;
	}
}

/* Is there an end to be stored before the process ends? */
static bool
has_end_to_store(void)
{
	SnowflakeView view;

	/* the gate is closed already if a change of the node ID was cut short */
	snowflake_generator_view(&view);
	return view.gate == GATE_OPEN || view.unsettled;
}

/* Close the gate, and store the exact end. */
static void
store_end(void)
{
	SnowflakeView view;

	storing_end = true;
	snowflake_gate_close(GATE_STOPPING);
	settle();
	snowflake_generator_view(&view);
	ereport(LOG,
			errmsg("snowflake gate closed"),
			errdetail("The last tick with an ID started at \"%s\".",
					  timestamptz_to_str(snowflake_position_time(&snowflake_server_layout,
																 view.last))));
}

void
snowflake_keeper_main(Datum main_arg)
{
	bool		failed = snowflake_keeper_failure() != 0 ||
	snowflake_gate() == GATE_CONNECTING;

	before_shmem_exit(keeper_exit, (Datum) 0);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, keeper_sigterm);
	pqsignal(SIGINT, keeper_sigint);
	BackgroundWorkerUnblockSignals();

	snowflake_keeper_attach();
	if (snowflake_gate() != GATE_OPEN)
		snowflake_gate_set(GATE_CONNECTING);

	if (failed)
		pause_after_failure();
	if (ShutdownRequestPending)
	{
		if (!has_end_to_store())
			proc_exit(1);

		/* a connection is needed for that */
		storing_end = true;
		QueryCancelPending = false;
	}

	snowflake_worker_connect(snowflake_database);
	round_context = AllocSetContextCreate(TopMemoryContext, KEEPER_NAME,
										  ALLOCSET_DEFAULT_SIZES);

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
			snowflake_pending_requests() != 0)
			continue;

		(void) snowflake_worker_sleep(snowflake_monotonic_usec() +
									  sleep_ms * INT64CONST(1000));
	}

	if (has_end_to_store())
		store_end();

	/* not 0, so that a keeper that was terminated by hand is started again */
	proc_exit(1);
}
