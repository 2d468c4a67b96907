/*-------------------------------------------------------------------------
 *
 * keeper.c
 *	  The background worker that keeps the reservation and the gate.
 *
 * The keeper is the only writer of snowflake_reservation, an ordinary table of
 * the extension in the database snowflake.database, with a row per node ID.
 * reserved_until there is the start of the last tick that may have been used.
 * A row in a table is carried by crash recovery, replication, point-in-time
 * recovery, base backups and pg_upgrade without a line of code here.
 *
 * Its life: connect, then rounds.  A round looks at what changed (settings,
 * requests of the backends, the clock), and does what follows: open the gate,
 * close it for another node ID, extend the reservation, raise the floor.
 * Between rounds it sleeps on its latch, without a timeout unless it watches
 * the clock, so an idle server has an idle keeper.
 *
 * In shared memory it follows one order, which generator.c depends on: commit
 * first, publish afterwards.  A commit here is always durable: synchronous
 * replication included, but for the one at the end, which only ever lowers what
 * is reserved.
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
#include "catalog/pg_type_d.h"
#include "commands/trigger.h"
#include "executor/spi.h"
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
#include "generator.h"
#include "keeper.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowflake_reservation_not_replicated);

#define KEEPER_NAME				"snowflake keeper"

/*
 * The postmaster restarts the keeper at once, and it is the keeper that waits
 * after a failure.  The postmaster would count the seconds by the wall clock,
 * which may go back by an hour just then.
 */
#define KEEPER_RESTART_SECONDS	0
#define RETRY_ASKED_MS			1000	/* if somebody asked for something */
#define RETRY_UNASKED_MS		10000

/* While the clock is behind, look at it this often. */
#define WATCH_MS				1000

/*
 * A look at both clocks that took longer than this says nothing about how they
 * stand to each other.
 */
#define WATCH_PRECISION_USEC	200
#define WATCH_ATTEMPTS			10

/*
 * How long to wait for a lock: somebody else may be creating the extension, or
 * moving the table, in a transaction that waits for us because it mints.
 */
#define KEEPER_LOCK_TIMEOUT		"500ms"

/* What the rows of all node IDs say. */
typedef struct Reservation
{
	bool		found;
	TimestampTz until;			/* the latest of all */
	char	   *other_layout;	/* a layout of any row that is not the
								 * configured one, or NULL */
} Reservation;

/* Watching the clock: the last look at both clocks, and whether it is behind. */
static TimestampTz watch_wall = 0;
static int64 watch_monotonic_usec = 0;
static bool clock_is_behind = false;
static int64 behind_since_usec = 0;

/* What a round allocates outside of transactions. */
static MemoryContext round_context;

/* A signal arrived that ends a wait for a synchronous standby. */
static volatile sig_atomic_t cancel_arrived = false;


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

/* The server stops, or somebody terminates the keeper. */
static void
keeper_sigterm(SIGNAL_ARGS)
{
	ShutdownRequestPending = true;
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
 * The table.  All of these run inside a transaction with SPI connected.
 */

/* Run a command that must have this result. */
static void
run(const char *command, int nargs, Oid *types, Datum *values, int expected)
{
	int			result = SPI_execute_with_args(command, nargs, types, values,
											   NULL, false, 0);

	if (result != expected)
		elog(ERROR, "\"%s\" returned %s", command, SPI_result_code_string(result));
}

/*
 * The schema-qualified name of the table, or NULL if the extension is missing.
 * It is looked up each time, since an extension can be moved or dropped.
 */
static char *
find_table(void)
{
	run("SELECT pg_catalog.quote_ident(n.nspname) || '.snowflake_reservation'"
		" FROM pg_catalog.pg_extension e"
		" JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace"
		" WHERE e.extname OPERATOR(pg_catalog.=) 'snowflake'",
		0, NULL, NULL, SPI_OK_SELECT);
	if (SPI_processed == 0)
		return NULL;
	return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

/*
 * Create the extension, in public if there is such a schema, and return the
 * table's name.  Somebody may be doing the same at this moment: then this
 * fails, and a later round finds what they made.
 */
static char *
create_table(void)
{
	const char *schema = "public";
	char	   *table;

	run("SELECT FROM pg_catalog.pg_namespace"
		" WHERE nspname OPERATOR(pg_catalog.=) 'public'",
		0, NULL, NULL, SPI_OK_SELECT);
	if (SPI_processed == 0)
	{
		schema = "snowflake";
		run("CREATE SCHEMA IF NOT EXISTS snowflake", 0, NULL, NULL, SPI_OK_UTILITY);
	}
	ereport(LOG,
			errmsg("creating extension \"snowflake\" in database \"%s\" for the reservation",
				   snowflake_database));
	run(psprintf("CREATE EXTENSION IF NOT EXISTS snowflake SCHEMA %s", schema),
		0, NULL, NULL, SPI_OK_UTILITY);

	table = find_table();
	if (table == NULL)
		elog(ERROR, "extension \"snowflake\" does not exist after its creation");
	return table;
}

/*
 * Read the rows.  Those of other node IDs count as well: a server's IDs ascend
 * also if its node ID changed while it was down.  And they all are of one
 * layout, the server's.
 */
static Reservation
read_reservation(const char *table, const char *layout)
{
	Reservation stored;
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(layout)};
	bool		isnull;
	Datum		until;

	run(psprintf("SELECT pg_catalog.max(reserved_until),"
				 " pg_catalog.min(layout) FILTER (WHERE layout OPERATOR(pg_catalog.<>) $1)"
				 " FROM %s", table),
		lengthof(types), types, values, SPI_OK_SELECT);
	until = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	stored.found = !isnull;
	stored.until = isnull ? 0 : DatumGetTimestampTz(until);
	stored.other_layout = SPI_getvalue(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, 2);
	return stored;
}

static void
write_reservation(const char *table, int32 node, const char *layout,
				  TimestampTz until)
{
	Oid			types[] = {INT4OID, TEXTOID, TIMESTAMPTZOID};
	Datum		values[] = {Int32GetDatum(node), CStringGetTextDatum(layout),
	TimestampTzGetDatum(until)};

	run(psprintf("INSERT INTO %s (node, layout, reserved_until) VALUES ($1, $2, $3)"
				 " ON CONFLICT (node) DO UPDATE SET layout = EXCLUDED.layout,"
				 " reserved_until = EXCLUDED.reserved_until", table),
		lengthof(types), types, values, SPI_OK_INSERT);

	/* a rule or a trigger that swallows it must not go unnoticed */
	if (SPI_processed != 1)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("the reservation was not written to %s", table),
				errdetail("Something swallowed the row of node %d.", node),
				errhint("Drop rules and triggers that were added to the table."));
}

/*
 * Trigger of the table for what logical replication brings from another server:
 * drop it.  The row is this server's own, even if somebody publishes all tables.
 */
Datum
snowflake_reservation_not_replicated(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("%s was not called by a trigger",
					   "snowflake_reservation_not_replicated()"));
	return PointerGetDatum(NULL);
}

static void
begin_transaction(const char *activity)
{
	/* a cancel that came while there was nothing to cancel */
	cancel_arrived = false;
	QueryCancelPending = false;

	StartTransactionCommand();
	SPI_connect();
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
	SPI_finish();
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
	char		layout[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	char	   *table;

	snowflake_layout_print(&snowflake_server_layout, layout, sizeof(layout));
	begin_transaction("settling the reservation");
	(void) set_config_option("synchronous_commit", "local",
							 PGC_SUSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
							 true, 0, false);
	table = find_table();
	if (table == NULL)
		table = create_table(); /* it was dropped under a running generator */
	write_reservation(table, gen->node, layout,
					  snowflake_position_time(&snowflake_server_layout, last));
	commit_transaction();
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
	char	   *table;
	Reservation stored;

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

	/*
	 * Create the extension only when somebody mints: until then its absence
	 * may mean that an administrator is about to create it.
	 */
	table = find_table();
	if (table == NULL)
	{
		if (!(requests & (SNOWFLAKE_WANT_GATE | SNOWFLAKE_WANT_FLOOR)))
		{
			commit_transaction();
			snowflake_gate_set(GATE_WAITING);
			return;
		}
		snowflake_gate_set(GATE_CREATING);
		table = create_table();
	}

	stored = read_reservation(table, text);
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
		Oid			types[] = {TEXTOID};
		Datum		values[] = {CStringGetTextDatum(text)};

		run(psprintf("UPDATE %s SET layout = $1", table),
			lengthof(types), types, values, SPI_OK_UPDATE);
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
	write_reservation(table, node, text, snowflake_position_time(layout, limit));
	commit_transaction();

	pg_atomic_fetch_add_u64(&gen->reservations, 1);
	pg_atomic_write_u32(&gen->failure, 0);
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
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	char	   *table;

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

	snowflake_layout_print(layout, text, sizeof(text));
	begin_transaction("extending the reservation");
	table = find_table();
	if (table == NULL)
		table = create_table(); /* it was dropped under a running generator */
	write_reservation(table, gen->node, text,
					  snowflake_position_time(layout, limit));
	commit_transaction();

	pg_atomic_fetch_add_u64(&gen->reservations, 1);
	pg_atomic_write_u32(&gen->failure, 0);

	/* durable from here on, so minters may use it */
	pg_atomic_write_u64(&gen->limit, limit);
	pg_atomic_write_u64(&gen->refill, refill_from(limit));
	ConditionVariableBroadcast(&gen->changed);
}


/*
 * The clock
 */

/*
 * Compare the clocks with the last look at them, and the wall clock with the
 * generator; log what an operator wants to know, once.
 */
static void
watch_clock(void)
{
	SnowflakeGenerator *gen = snowflake_generator;
	TimestampTz wall;
	int64		monotonic_usec;
	int64		elapsed_usec;
	int64		step_usec;
	int64		lead_usec;
	int			attempts = 0;

	do
	{
		if (attempts++ == WATCH_ATTEMPTS)
			return;
		monotonic_usec = snowflake_monotonic_usec();
		wall = snowflake_wall_clock();
	} while (snowflake_monotonic_usec() - monotonic_usec > WATCH_PRECISION_USEC);

	elapsed_usec = monotonic_usec - watch_monotonic_usec;
	step_usec = (wall - watch_wall) - elapsed_usec;

	/* slewing changes the clock's speed by up to 0.1 %, and is no step */
	if (watch_wall != 0 && -step_usec > 1000 + elapsed_usec / 1000)
	{
		pg_atomic_fetch_add_u64(&gen->clock_steps_back, 1);
		ereport(LOG,
				errmsg("the clock went back by %s", snowflake_duration(-step_usec)));
	}
	watch_wall = wall;
	watch_monotonic_usec = monotonic_usec;

	if (pg_atomic_read_u32(&gen->gate) != GATE_OPEN)
		return;

	lead_usec = snowflake_position_time(&snowflake_server_layout,
										pg_atomic_read_u64(&gen->last)) - wall;
	if (!clock_is_behind &&
		lead_usec > snowflake_max_lead_ms * INT64CONST(1000) +
		snowflake_server_layout.tick_usec)
	{
		clock_is_behind = true;
		behind_since_usec = monotonic_usec;
		ereport(LOG,
				errmsg("minting snowflakes waits for the clock"),
				errdetail("The generator is %s ahead of it, and may be by %d ms (snowflake.max_lead).",
						  snowflake_duration(lead_usec), snowflake_max_lead_ms));
	}
	else if (clock_is_behind &&
			 lead_usec <= snowflake_max_lead_ms * INT64CONST(1000))
	{
		clock_is_behind = false;
		ereport(LOG,
				errmsg("minting snowflakes no longer waits for the clock, after %s",
					   snowflake_duration(monotonic_usec - behind_since_usec)));
	}
}


/*
 * Rounds
 */

/* Look at everything that may have changed, and do what follows from it. */
static void
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
		settle();
	}

	if (pg_atomic_read_u32(&gen->gate) != GATE_OPEN)
		open_gate(requests);
	else
	{
		if (pg_atomic_read_u64(&gen->last) >= pg_atomic_read_u64(&gen->refill) ||
			floor > pg_atomic_read_u64(&gen->last) ||
			(requests & SNOWFLAKE_WANT_TIME))
			extend(floor);
		if (floor > pg_atomic_read_u64(&gen->last))
			snowflake_raise(floor, RAISED_BY_ADVANCE);
	}

	watch_clock();
}

void
snowflake_keeper_main(Datum main_arg)
{
	SnowflakeGenerator *gen = snowflake_generator;
	int64		started_usec = snowflake_monotonic_usec();
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
		int64		left_ms = (asked ? RETRY_ASKED_MS : RETRY_UNASKED_MS) -
			(snowflake_monotonic_usec() - started_usec) / 1000;

		if (left_ms <= 0)
			break;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 left_ms, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
	if (ShutdownRequestPending)
		proc_exit(1);

	BackgroundWorkerInitializeConnection(snowflake_database, NULL,
										 BGWORKER_BYPASS_ALLOWCONN);

	/* whatever the server, the database or the role has for defaults */
	SetConfigOption("synchronous_commit", "on", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_read_only", "off", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", KEEPER_LOCK_TIMEOUT, PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("search_path", "pg_catalog", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("session_replication_role", "origin", PGC_SUSET, PGC_S_OVERRIDE);

	/* quietly, because only 17 and later have it */
	(void) set_config_option("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE,
							 GUC_ACTION_SET, true, DEBUG2, false);

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
			keeper_round();
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
		 * A wait inside the round, such as that for a synchronous standby, may
		 * have taken the latch that was set for us.
		 */
		if (ShutdownRequestPending || ConfigReloadPending || InterruptPending ||
			pg_atomic_read_u32(&gen->requests) != 0)
			continue;

		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH |
						 (clock_is_behind ? WL_TIMEOUT : 0),
						 WATCH_MS, PG_WAIT_EXTENSION);
	}

	if (pg_atomic_read_u32(&gen->gate) == GATE_OPEN)
	{
		snowflake_gate_close(GATE_STOPPING);
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
