/*
 * The gate and the reservation, within one server and across its crashes, the
 * deaths of its keeper, changes of its node ID, and the promotion of its standby.
 *
 * The argument that this checks is at the head of src/generator/generator.c, and in
 * doc/design.md.  Claimed: no node ID issues a position twice, and each mint gets
 * a larger one than every mint that returned before it began.
 *
 * Server 0 is the primary, server 1 its standby, which may be promoted at any
 * moment, while the old primary lives on, crashes and starts again.  The standby is
 * synchronous, or with -DASYNC it is not, and may lack what the primary has
 * committed.  With -DALONE there is none.
 *
 * Assumed:
 *
 * - What is committed survives a crash.
 * - A keeper ends by an error, at any step but within the closing of the gate, where
 *   there is none to be raised.  A keeper that is killed is a crash of the server.
 * - A standby that is not synchronous gets another node ID when it is promoted, and
 *   the order of IDs is not promised across that.  (-DSAME_NODE: if it does not?)
 * - An old primary that lives on knows nothing of its successor, and may mint below
 *   it.  The successor mints above all that the old primary ever does.
 *
 * The node ID changes with -DALONE only, to keep the search small.
 *
 * A position is a tick here, up to TICKS.  The clock is arbitrary: what it decides, how far
 * a mint or a reservation goes, and how much of that mints may use, is any number.  So what
 * the judge of the clock believes can change nothing here.  Not modeled:
 * snowflake_advance(), snowflake_restart_at_clock(), batches, and a reservation that
 * is lost.
 *
 * A step of a backend or a keeper is what stands behind one "::".  Where each of them
 * is, and what it remembers, is in arrays, so that a crash can forget it.
 */

#define NODES	2
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* The backends: two, or one on each server. */
#define MINTERS	2
#ifdef ALONE
#define RUNS_ON(m, s) true
#else
#define RUNS_ON(m, s) (m == s)
#endif

mtype = { IDLE, LOCK, LOOK, READ, SWAP, UNLOCK };	/* a backend's next step */
mtype = { ROUND, WROTE, PUBLISH, DRAIN, SETTLED };	/* a keeper's */

/*
 * HotState and KeptState in src/generator/generator.c: lost by a crash.  Nobody waits while
 * holding the lock exclusively, so that takes one step here, and how many hold it
 * shared is all there is to know.
 */
bool gate_open[2];
byte lock_shared[2];
byte last[2];
byte limit[2];					/* what mints may use of ... */
byte stored[2];					/* what is durably reserved */
byte node[2];
bool unsettled[2];
byte opened_at[2];				/* "last" at the last opening */
byte own[2];					/* what the node had before that */
byte issued[2];					/* what any node had before that, unless it crashed */

/* What a backend and a keeper remember: lost by a crash as well. */
mtype backend[MINTERS] = IDLE;
byte seen[MINTERS];
byte next[MINTERS];
mtype keeper[2] = ROUND;
bool opens[2];					/* or else it extends */
byte to_node[2];
byte to_last[2];
byte to_own[2];
byte to_limit[2];
byte to_stored[2];

/* The rows of snowflake_keeper.reservation, see src/keeper/reservation_table.c: durable. */
#define ROW(s, n) row[(s) * NODES + (n)]
#define LATEST_ROW(s) MAX(ROW(s, 0), ROW(s, 1))
byte row[2 * NODES];
#define REPLICATED (ROW(0, 0) == ROW(1, 0) && ROW(0, 1) == ROW(1, 1))

bool setting[2];				/* snowflake.node_id */
bool promoted;
#define IS_UP(s) (s == 0 || promoted)

/*
 * What is claimed is claimed of each node ID and position, so one of each is chosen at
 * the beginning, to be watched.  Was it issued?  Has it returned, or one above it?
 * And had it done so before a mint began?
 */
byte watched;
bool watched_node;
bool was_issued;
bool returned[2];
bool began_after[MINTERS];
#ifdef ASYNC
#define RETURNED(s) returned[s]
#else
#define RETURNED(s) (returned[s] || (s == 1 && returned[0]))
#endif

/* Is a commit done, which src/keeper/keeper_transaction.c waits for?  If canceled, it never is. */
#if defined(ALONE) || defined(ASYNC) || defined(COMMIT_NOT_DURABLE)
#define IS_DURABLE(s) true
#else
#define IS_DURABLE(s) (s == 1 || (REPLICATED && !promoted))
#endif

/* How much of what is reserved mints may come to use without another commit. */
#ifdef USE_UNSTORED
#define USABLE(s) TICKS
#else
#define USABLE(s) stored[s]
#endif

#ifdef LOOK_ONCE
#define MAY_GO_ON(s) true
#else
#define MAY_GO_ON(s) gate_open[s]
#endif

#ifdef CLOSE_IN_ONE_STEP
#define DRAINED(s) true
#else
#define DRAINED(s) (lock_shared[s] == 0)
#endif

/* Nothing was issued since the gate was opened: snowflake_generator_is_unused() */
#ifdef EVERY_END_IS_OF_BEFORE
#define UNUSED(s) true
#else
#define UNUSED(s) (last[s] == opened_at[s])
#endif

/* "result" is any number from "least" to "most": what a clock may lead to */
inline up_to_any(result, least, most)
{
	result = least;
	do
	:: result < most -> result++
	:: break
	od
}

inline forget_mint(m)
{
	backend[m] = IDLE;
	seen[m] = 0;
	next[m] = 0;
	began_after[m] = false
}

inline forget_round(s)
{
	keeper[s] = ROUND;
	opens[s] = false;
	to_node[s] = 0;
	to_last[s] = 0;
	to_own[s] = 0;
	to_limit[s] = 0;
	to_stored[s] = 0
}

inline open_gate(s)
{
	if
	:: UNUSED(s)
	:: else -> issued[s] = last[s]
	fi;
	own[s] = to_own[s];
	node[s] = to_node[s];
	last[s] = to_last[s];
	opened_at[s] = to_last[s];
	limit[s] = to_limit[s];
	gate_open[s] = true
}

/* Mints: snowflake_generator_step() in src/generator/generator.c. */
proctype minter(byte s; byte m)
{
	do
	:: atomic { backend[m] == IDLE && gate_open[s] ->	/* the first look */
		began_after[m] = RETURNED(s);
		backend[m] = LOCK }

	:: atomic { backend[m] == LOCK ->	/* LWLockAcquire(LW_SHARED) */
		lock_shared[s]++;
		backend[m] = LOOK }

	:: atomic { backend[m] == LOOK ->	/* STEP_GATE_CLOSED, or not */
		backend[m] = (MAY_GO_ON(s) -> READ : UNLOCK) }

	:: atomic { backend[m] == READ ->
		seen[m] = last[s];
		backend[m] = SWAP }

		/*
		 * The limit, the clock, and pg_atomic_compare_exchange_u64().  The limit is
		 * read before that, but does not go down while the lock is held: so this
		 * allows what the code does, and more.
		 */
	:: atomic { backend[m] == SWAP && last[s] == seen[m] && seen[m] < limit[s] ->
		up_to_any(next[m], seen[m] + 1, limit[s]);
		last[s] = next[m];
		backend[m] = UNLOCK }
	:: atomic { backend[m] == SWAP && last[s] != seen[m] ->
		backend[m] = READ }
	:: atomic { backend[m] == SWAP && seen[m] >= limit[s] ->	/* STEP_UNRESERVED */
		backend[m] = UNLOCK }

		/* The node is read, LWLockRelease(); and it returns as soon as it can. */
	:: d_step { backend[m] == UNLOCK ->
		if
		:: next[m] > 0 ->
			assert(!(was_issued && next[m] == watched && node[s] == watched_node));
			was_issued = was_issued || (next[m] == watched && node[s] == watched_node);
			assert(!(began_after[m] && next[m] <= watched));
			returned[s] = returned[s] || next[m] >= watched
		:: else
		fi;
		lock_shared[s]--;
		forget_mint(m) }
	od
}

/* keeper_round() in src/keeper/keeper.c, and what it calls of src/keeper/reserve.c. */
proctype keeps(byte s)
{
	do
		/*
		 * snowflake_reserve_more(), for the present node ID: reserve not less than is
		 * reserved, and let mints use more, ...
		 */
	:: atomic { keeper[s] == ROUND && IS_UP(s) && gate_open[s] && limit[s] < TICKS ->
		up_to_any(to_limit[s], limit[s] + 1, TICKS);
		to_stored[s] = MAX(to_limit[s], stored[s]);
		up_to_any(to_stored[s], to_stored[s], TICKS);
		to_node[s] = node[s];
#ifdef PUBLISH_BEFORE_COMMIT
		limit[s] = to_limit[s];
#else
		ROW(s, to_node[s]) = to_stored[s];
#endif
		keeper[s] = WROTE }

		/* ... or only the latter */
	:: atomic { keeper[s] == ROUND && IS_UP(s) && gate_open[s] && limit[s] < USABLE(s) ->
		up_to_any(limit[s], limit[s] + 1, USABLE(s)) }

		/*
		 * snowflake_generator_close(): for another node ID, for a clean stop, or because
		 * far too much is reserved.  First the gate, then the mints in flight.
		 */
	:: atomic { keeper[s] == ROUND && gate_open[s] ->
		gate_open[s] = false;
		unsettled[s] = true;
		keeper[s] = DRAIN }
	:: atomic { keeper[s] == DRAIN && DRAINED(s) ->	/* LWLockAcquire(LW_EXCLUSIVE) */
		keeper[s] = ROUND }

		/*
		 * snowflake_reserve_store_end(): the exact end, for which no standby is waited.
		 * If nothing was issued since the opening, that is what the node had before.
		 */
	:: atomic { keeper[s] == ROUND && !gate_open[s] && unsettled[s] ->
		ROW(s, node[s]) = (UNUSED(s) -> own[s] : last[s]);
		keeper[s] = SETTLED }
	:: atomic { keeper[s] == SETTLED ->	/* snowflake_generator_end_stored() */
		unsettled[s] = false;
		keeper[s] = ROUND }

		/*
		 * snowflake_reserve_open_gate(): resume_after(), reserve_up_to().  An opening that no
		 * mint asked for reserves nothing, and writes nothing.
		 */
	:: atomic { keeper[s] == ROUND && IS_UP(s) && !gate_open[s] && !unsettled[s] ->
		opens[s] = true;
		to_node[s] = setting[s];
#ifdef IGNORE_OWN_ROW
		to_own[s] = 0;
#else
		to_own[s] = ROW(s, to_node[s]);
#endif
#ifdef IGNORE_ROW
		to_last[s] = last[s];
#else
		to_last[s] = (UNUSED(s) -> issued[s] : last[s]);
		to_last[s] = MAX(to_last[s], LATEST_ROW(s));
#endif
		if
		:: to_stored[s] = to_last[s];
			to_limit[s] = to_last[s];
#ifndef STORED_OUTLIVES_GATE
			stored[s] = to_last[s];
#endif
			keeper[s] = PUBLISH
		:: up_to_any(to_stored[s], to_last[s], TICKS);
			up_to_any(to_limit[s], to_last[s], to_stored[s]);
#ifdef PUBLISH_BEFORE_COMMIT
			lock_shared[s] == 0;
			open_gate(s);
#else
			ROW(s, to_node[s]) = to_stored[s];
#endif
			keeper[s] = WROTE
		fi }

		/*
		 * snowflake_keeper_transaction_commit(): the row is flushed, and the standby waited
		 * for.  Then snowflake_generator_set_stored().
		 */
	:: atomic { keeper[s] == WROTE && IS_DURABLE(s) ->
#ifdef STORED_OUTLIVES_GATE
		stored[s] = MAX(stored[s], to_stored[s]);
#else
		stored[s] = to_stored[s];
#endif
		keeper[s] = PUBLISH }

		/* snowflake_generator_open() with the lock held exclusively; snowflake_generator_extend() */
	:: atomic { keeper[s] == PUBLISH && (!opens[s] || lock_shared[s] == 0) ->
#ifdef PUBLISH_BEFORE_COMMIT
		ROW(s, to_node[s]) = to_stored[s];
#else
		if
		:: opens[s] -> open_gate(s)
		:: else -> limit[s] = to_limit[s]
		fi;
#endif
		forget_round(s) }
	od
}

/* Everything that happens to a server. */
proctype world(byte s)
{
	byte m;

	do
		/* a crash, or the end of a stop: the shared memory is new */
	:: d_step { IS_UP(s) ->
		gate_open[s] = false;
		lock_shared[s] = 0;
		last[s] = 0;
		limit[s] = 0;
		stored[s] = 0;
		node[s] = 0;
		unsettled[s] = false;
		opened_at[s] = 0;
		own[s] = 0;
		issued[s] = 0;
		forget_round(s);
		for (m : 0 .. MINTERS - 1) {
			if
			:: RUNS_ON(m, s) -> forget_mint(m)
			:: else
			fi
		}
		m = 0 }

		/* an error ends the keeper, and the next one starts */
	:: d_step { keeper[s] != ROUND && keeper[s] != DRAIN ->
		forget_round(s) }

		/* snowflake.node_id is changed */
#ifdef ALONE
	:: atomic { IS_UP(s) ->
		setting[s] = !setting[s] }
#endif

		/* the standby receives what the primary has written, and is promoted */
	:: atomic { s == 1 && !promoted && !REPLICATED ->
		ROW(1, 0) = ROW(0, 0);
		ROW(1, 1) = ROW(0, 1) }
	:: atomic { s == 1 && !promoted ->
#if defined(ASYNC) && !defined(SAME_NODE)
		setting[1] = 1;
#endif
		promoted = true }
	od
}

init
{
	atomic {
		up_to_any(watched, 1, TICKS);
		if
		:: watched_node = 0
		:: watched_node = 1
		fi;
		run minter(0, 0);
		run keeps(0);
		run world(0);
#ifdef ALONE
		run minter(0, 1)
#else
		run minter(1, 1);
		run keeps(1);
		run world(1)
#endif
	}
}
