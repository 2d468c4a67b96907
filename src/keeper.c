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
#include "reservation.h"
#include "settings.h"
#include "watch.h"

#define KEEPER_NAME				"snowflake keeper"

/*
 * The postmaster restarts the keeper at once, and it is the keeper that waits
 * after a failure.  The postmaster would count the seconds by the wall clock,
 * which may go back by an hour just then.
 */
#define KEEPER_RESTART_SECONDS	0
#define RETRY_LOCKED_MS			200		/* if it failed for a lock */
#define RETRY_ASKED_MS			1000	/* if somebody asked for something */
#define RETRY_UNASKED_MS		10000

/*
 * How long to wait for a lock: somebody else may be creating the extension, or
 * changing the table, in a transaction that waits for us because it mints.
 *
 * With the pause that follows, and the time to start and connect, this is less
 * than snowflake.max_wait by default, so that a mint outlasts one such failure.
 */
#define KEEPER_LOCK_TIMEOUT		"300ms"

/*
 * What the server or the database may have for a default, and must not be for the
 * keeper.  Whoever owns the database can set these for it, the last of the first
 * group to one with which a process cannot start.
 */
static const char *const pinned_settings[][2] = {
	{"synchronous_commit", "on"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_deferrable", "off"},
	{"lock_timeout", KEEPER_LOCK_TIMEOUT},
	{"transaction_timeout", "0"},	/* 17 */
	{"exit_on_error", "off"},
	{"client_encoding", "SQL_ASCII"},

	/* for what is done by SQL, the creation of the extension */
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
	SnowflakeGenerator *gen = snowflake_generator;
	SnowflakeGate gate = pg_atomic_read_u32(&gen->gate);

	gen->keeper_latch = NULL;
	pg_atomic_write_u32(&gen->keeper_pid, 0);

	/*
	 * An open gate stays open: what is reserved may be used up.  A state that
	 * another keeper would only find again is kept for the messages.
	 */
	if (gate == GATE_WAITING || gate == GATE_CREATING ||
		gate == GATE_OPENING || gate == GATE_STOPPING)
		snowflake_gate_set(GATE_NO_KEEPER);
	else
		ConditionVariableBroadcast(&gen->changed);
}

/* Pin a setting; quietly, because not every version has each. */
static void
pin_setting(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_SUSET, PGC_S_OVERRIDE,
							 GUC_ACTION_SET, true, DEBUG2, false);
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
	CommitTransactionCommand();
	MemoryContextSwitchTo(round_context);
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
	SnowflakeGenerator *gen = snowflake_generator;
	uint64		last = pg_atomic_read_u64(&gen->last);

	begin_transaction("settling the reservation");
	(void) set_config_option("synchronous_commit", "local",
							 PGC_SUSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
							 true, 0, false);
	snowflake_reservation_write(gen->node,
								snowflake_position_time(&snowflake_server_layout,
														last));
	commit_transaction();
	gen->unsettled = false;
}

/*
 * Open the gate for the configured node ID, if that is possible; otherwise
 * leave it closed with the reason.
 */
static void
open_gate(uint32 requests)
{
	SnowflakeGenerator *gen = snowflake_generator;
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz now = snowflake_wall_clock();
	uint64		last = pg_atomic_read_u64(&gen->last);
	int32		node = snowflake_node_id;
	uint64		limit;
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	SnowflakeReservation stored = {false, 0, NULL};
	Oid			kept_in = snowflake_reservation_database();
	bool		exists;

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
		stored = snowflake_reservation_read();

	/*
	 * Where nothing was minted yet there is no reservation, and minting starts
	 * at the clock.  But if this cluster has minted, that would be below the
	 * IDs that were ahead of it.  Shared memory knows how far they got, unless
	 * it is new: then an administrator has to say that they are no more.
	 */
	if (last == 0 && OidIsValid(kept_in) &&
		(kept_in != MyDatabaseId || !stored.found) &&
		!(requests & SNOWFLAKE_WANT_DATABASE))
	{
		if (pg_atomic_read_u32(&gen->gate) != GATE_RESERVATION_LOST)
			ereport(LOG,
					errmsg("snowflake gate stays closed: the reservation of this server is not in database \"%s\"",
						   snowflake_database),
					errdetail("It was last seen in the database with OID %u.", kept_in));
		snowflake_gate_reservation_lost(kept_in);
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
		if (pg_atomic_read_u32(&gen->gate) != GATE_LAYOUT_CHANGED)
			ereport(LOG,
					errmsg("snowflake gate stays closed: snowflake.layout differs from the stored layout"),
					errdetail("Configured is \"%s\", stored is \"%s\".",
							  text, stored.other_layout));
		snowflake_gate_layout_changed(stored.other_layout);
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
	last = Max(last, pg_atomic_read_u64(&gen->floor));
	if (stored.found)
	{
		int64		tick = snowflake_tick_at(layout, stored.until);

		if (tick >= 0)
			last = Max(last, snowflake_last_position(layout,
													 Min(tick, layout->max_tick)));
	}
	limit = reserve_up_to(last, now);
	snowflake_reservation_write(node, snowflake_position_time(layout, limit));
	if (kept_in != MyDatabaseId)
		snowflake_reservation_mark_database();
	commit_transaction();

	snowflake_count(&snowflake_counters->reservations);
	pg_atomic_write_u32(&gen->raised_by, RAISED_BY_RESERVATION);
	pg_atomic_write_u64(&gen->raised_to, last);
	snowflake_gate_open(node, last, limit, refill_from(limit));

	ereport(LOG,
			errmsg("snowflake gate opened for node %d", node),
			stored.found || last > 0 ?
			errdetail("The layout is \"%s\". Minting resumes after \"%s\".", text,
					  timestamptz_to_str(snowflake_position_time(layout, last))) :
			errdetail("The layout is \"%s\". Nothing was minted before.",
					  text));
}

/*
 * Reserve more, from the newest position, the clock or the floor on, and then
 * raise the limit.  The gate is open.
 */
static void
extend(uint64 floor)
{
	SnowflakeGenerator *gen = snowflake_generator;
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz now = snowflake_wall_clock();
	uint64		old_limit = pg_atomic_read_u64(&gen->limit);
	uint64		limit = reserve_up_to(Max(pg_atomic_read_u64(&gen->last), floor), now);

	/*
	 * More than half of it is left: who asks is waiting for the clock, or had
	 * asked before the last extension, or the setting was lowered.
	 */
	if (limit <= old_limit ||
		(floor <= old_limit &&
		 snowflake_position_time(layout, old_limit) >=
		 reach(now, snowflake_reservation_ms / 2)))
	{
		pg_atomic_write_u64(&gen->refill, refill_from(old_limit));
		return;
	}

	begin_transaction("extending the reservation");
	snowflake_reservation_write(gen->node,
								snowflake_position_time(layout, limit));
	commit_transaction();

	snowflake_count(&snowflake_counters->reservations);

	/* durable from here on, so minters may use it */
	pg_atomic_write_u64(&gen->limit, limit);
	pg_atomic_write_u64(&gen->refill, refill_from(limit));
	ConditionVariableBroadcast(&gen->changed);
}


/*
 * Rounds
 */

/*
 * Look at everything that may have changed, and do what follows from it.
 * Returns the ms after which to do so again, if nobody asks before.
 */
static long
keeper_round(void)
{
	SnowflakeGenerator *gen = snowflake_generator;
	uint32		requests = pg_atomic_exchange_u32(&gen->requests, 0);
	uint64		floor = pg_atomic_read_u64(&gen->floor);

	/* another node ID: end the present one's work as a clean stop would */
	if (pg_atomic_read_u32(&gen->gate) == GATE_OPEN &&
		gen->node != snowflake_node_id)
	{
		ereport(LOG,
				errmsg("snowflake gate closed for node %d", gen->node));
		snowflake_gate_close(GATE_OPENING);
		gen->unsettled = true;
	}

	if (pg_atomic_read_u32(&gen->gate) != GATE_OPEN)
	{
		if (gen->unsettled)
			settle();
		open_gate(requests);
	}
	else
	{
		if (pg_atomic_read_u64(&gen->last) >= pg_atomic_read_u64(&gen->refill) ||
			floor > pg_atomic_read_u64(&gen->last) ||
			(requests & SNOWFLAKE_WANT_TIME))
			extend(floor);
		if (floor > pg_atomic_read_u64(&gen->last))
			snowflake_raise(floor, RAISED_BY_ADVANCE);
	}

	return snowflake_watch();
}

void
snowflake_keeper_main(Datum main_arg)
{
	SnowflakeGenerator *gen = snowflake_generator;
	int64		started_usec = snowflake_monotonic_usec();
	uint32		idle_event = WaitEventExtensionNew("SnowflakeMain");
	volatile long sleep_ms = 0;
	bool		failed;

	before_shmem_exit(keeper_exit, (Datum) 0);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, keeper_sigterm);
	pqsignal(SIGINT, keeper_sigint);
	BackgroundWorkerUnblockSignals();

	failed = pg_atomic_read_u32(&gen->failure) != 0 ||
		pg_atomic_read_u32(&gen->gate) == GATE_CONNECTING;
	pg_atomic_write_u32(&gen->keeper_pid, MyProcPid);
	gen->keeper_latch = MyLatch;

	/*
	 * What was asked of an earlier keeper may have been given up since: those
	 * who are still waiting ask again when they are woken.
	 */
	pg_atomic_write_u32(&gen->requests, 0);
	if (pg_atomic_read_u32(&gen->gate) != GATE_OPEN)
		snowflake_gate_set(GATE_CONNECTING);
	ConditionVariableBroadcast(&gen->changed);

	/* if the last keeper failed, do not fill the log */
	while (failed && !ShutdownRequestPending)
	{
		bool		asked = pg_atomic_read_u32(&gen->requests) != 0;
		int64		waited_ms = (snowflake_monotonic_usec() - started_usec) / 1000;
		int64		left_ms = (!asked ? RETRY_UNASKED_MS :
							   pg_atomic_read_u32(&gen->failure) == ERRCODE_LOCK_NOT_AVAILABLE ?
							   RETRY_LOCKED_MS : RETRY_ASKED_MS) - waited_ms;

		if (left_ms <= 0)
			break;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 left_ms, idle_event);
		ResetLatch(MyLatch);
	}
	if (ShutdownRequestPending)
	{
		if (pg_atomic_read_u32(&gen->gate) != GATE_OPEN && !gen->unsettled)
			proc_exit(1);

		/* there is an end to be stored, and a connection needed for that */
		storing_end = true;
		QueryCancelPending = false;
	}

	/* before it connects, so that those of the database are never in force */
	for (size_t i = 0; i < lengthof(pinned_settings); i++)
		pin_setting(pinned_settings[i][0], pinned_settings[i][1]);
	BackgroundWorkerInitializeConnection(snowflake_database, NULL,
										 BGWORKER_BYPASS_ALLOWCONN);

	round_context = AllocSetContextCreate(TopMemoryContext, KEEPER_NAME,
										  ALLOCSET_DEFAULT_SIZES);

	for (;;)
	{
		ResetLatch(MyLatch);
		if (ShutdownRequestPending)
			break;

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
			pg_atomic_write_u32(&gen->failure, 0);
		}
		PG_CATCH();
		{
			pg_atomic_write_u32(&gen->failure, geterrcode());
			ConditionVariableBroadcast(&gen->changed);
			if (!ShutdownRequestPending)
				PG_RE_THROW();

			/* told to stop, and probably canceled by that: settle below */
			if (geterrcode() != ERRCODE_QUERY_CANCELED)
				EmitErrorReport();
			FlushErrorState();
			AbortCurrentTransaction();
		}
		PG_END_TRY();
		MemoryContextReset(round_context);

		/*
		 * A wait inside the round, such as that for a synchronous standby,
		 * may have taken the latch that was set for us.
		 */
		if (ShutdownRequestPending || ConfigReloadPending || InterruptPending ||
			pg_atomic_read_u32(&gen->requests) != 0)
			continue;

		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 sleep_ms, idle_event);
	}

	/* the gate is closed already if a change of the node ID was cut short */
	if (pg_atomic_read_u32(&gen->gate) == GATE_OPEN || gen->unsettled)
	{
		storing_end = true;
		snowflake_gate_close(GATE_STOPPING);
		gen->unsettled = true;
		settle();
		ereport(LOG,
				errmsg("snowflake gate closed"),
				errdetail("The last tick with an ID started at \"%s\".",
						  timestamptz_to_str(snowflake_position_time(&snowflake_server_layout,
																	 pg_atomic_read_u64(&gen->last)))));
	}

	/* not 0, so that a keeper that was terminated by hand is started again */
	proc_exit(1);
}
