/*
 * The frontier of a snapshot.
 *
 * The argument that this checks is at the heads of src/frontier/frontier.c and
 * src/mint/snapshot_frontier.c.  Claimed: what is minted at or below the frontier that
 * a reader was told for its snapshot, and is ever visible, is visible to that snapshot;
 * and a snapshot has one frontier.
 *
 * A transaction is watched, which mints once, with or without a transaction ID, and
 * commits or not.  -DOTHERS=n others, one after the other, mint or have a transaction ID or both.
 * A sampler computes a frontier and publishes it, as any backend does that asks; the
 * reader counts it by its number, as that of another backend, and by its snapshot, as
 * its own from before.  The reader takes a snapshot, and asks twice for it.  Between
 * that and its question anything may happen.
 *
 * A transaction that ends leaves the process array in one step, and a snapshot is
 * taken in one: both hold ProcArrayLock.  Slots are read one after the other, after the
 * newest position.
 *
 * With -DIMPORTED the snapshot is of the kind that a logical slot exports: all that
 * are not committed are in its list, also those that were rolled back, and its xmax is
 * the next transaction ID.  With -DRESET the newest position goes back once, and what
 * was told before that is void.
 *
 * Not modeled: prepared transactions, parallel workers, several databases, openings of
 * the gate that do not go back, positions that are not IDs.
 */

/* The generator: see src/generator/generator.c.  lowered: did it go back? */
byte last = 1;
bool lowered;
#define LOWERED_TO 0

/*
 * The process array: transaction 0 is the watched one, 1 is the newest of the others.
 * xid 0: it has none.  "opening" is here what the slot read of "lowered".
 */
byte next_xid = 1;
byte newest_ended;				/* latestCompletedXid */
byte xid[2];
bool filled[2];
byte oldest[2];
bool opening[2];

/* Transactions by their xid, as sets of bits. */
byte running;
byte uncommitted;
#define BIT(x) (1 << (x))

typedef Snapshot { byte xmax; byte list; bool sees }	/* the watched one? */
typedef Sample { bool exists; byte id; byte next; byte xmax; byte list; bool lowered }
Sample published;

byte position;					/* that the watched one has minted; 0: none yet */
bool committed;
byte told;						/* the largest frontier of a snapshot that does not see it */

#define SEES(s) (committed && xid[0] < s.xmax && !(s.list & BIT(xid[0])))

inline take_snapshot(s)
{
	s.xmax = newest_ended + 1;
	s.list = running & (BIT(s.xmax) - 1)
}

inline assign_xid(t)
{
	d_step {
		xid[t] = next_xid;
		next_xid++;
		running = running | BIT(xid[t]);
		uncommitted = uncommitted | BIT(xid[t])
	}
}

inline fill_slot(t)
{
	d_step {
		opening[t] = lowered;
		oldest[t] = last + 1;
		filled[t] = true
	}
}

inline end(t, commits)
{
	d_step {
		filled[t] = false;		/* which nobody does, but it no longer counts */
		oldest[t] = 0;
		opening[t] = false;
		if
		:: xid[t] > 0 ->
			running = running & ~BIT(xid[t]);
			if
			:: xid[t] > newest_ended -> newest_ended = xid[t]
			:: else
			fi;
			if
			:: commits ->
				uncommitted = uncommitted & ~BIT(xid[t])
			:: else
			fi
		:: else
		fi
	}
}

active proctype Watched()
{
	if
	:: assign_xid(0)
	:: true
	fi;
	fill_slot(0);
	d_step {
		last++;
		position = last
	}
	if
	:: xid[0] == 0 -> assign_xid(0)
	:: else
	fi;
	if
	:: atomic {
			end(0, true);
			committed = true;
			assert(told < position)
		}
	:: end(0, false)
	fi
}

active proctype Others()
{
	byte n = 0;

	do
	:: n < OTHERS ->
		n++;
		if
		:: assign_xid(1)
		:: true
		fi;
		if
		:: fill_slot(1);
			last++
		:: xid[1] > 0
		fi;
		atomic {
			end(1, true);
			xid[1] = 0
		}
	:: else -> break
	od
}

#ifdef RESET
active proctype Keeper()
{
	d_step {
		lowered = true;
		last = LOWERED_TO;
		told = 0
	}
}
#endif

#define LOWEST(t) (opening[t] < s.lowered && oldest[t] > LOWERED_TO + 1 -> LOWERED_TO + 1 : oldest[t])

/* A slot that counts holds the frontier back. */
inline look_at_slot(s, t)
{
	d_step {
		if
		:: filled[t] && LOWEST(t) <= s.id -> s.id = LOWEST(t) - 1
		:: else
		fi
	}
}

/* snowflake_frontier_compute(), and what is taken after it */
inline compute(s)
{
#ifdef NUMBERS_FIRST
	s.next = next_xid;
#endif
#ifdef SNAPSHOT_FIRST
	d_step { take_snapshot(s) }
#endif
#ifdef SLOTS_FIRST
	s.id = 99;
	look_at_slot(s, 0);
	look_at_slot(s, 1);
	d_step {
		s.lowered = lowered;
		s.id = (s.id < last -> s.id : last)
	}
#else
	d_step {
		s.lowered = lowered;
		s.id = last
	}
	look_at_slot(s, 0);
	look_at_slot(s, 1);
#endif
#ifndef SNAPSHOT_FIRST
	d_step { take_snapshot(s) }
#endif
#ifndef NUMBERS_FIRST
	s.next = next_xid;
#endif
	s.exists = true
}

#ifdef IGNORE_RESET
#define COUNTS(s) (s.exists)
#else
#define COUNTS(s) (s.exists && s.lowered == lowered)
#endif

/* Does the snapshot "mine" see all that the one of a sample sees? */
#if defined(TELL_AT_ONCE)
#define COVERS(s) true
#elif defined(XMAX_COVERS)
#define COVERS(s) (mine.xmax >= s.xmax)
#else
#define COVERS(s) (mine.xmax >= s.xmax && !(mine.list & (BIT(s.xmax) - 1) & ~s.list))
#endif

/* Was it certainly taken after the sample? */
#ifdef NOT_BELOW
#define ABOVE(a, b) (a >= b)
#else
#define ABOVE(a, b) (a > b)
#endif
#if defined(IMPORTED) && !defined(NEWEST_FOR_IMPORTED)
#define IS_AFTER(s) ABOVE(mine.xmax, s.next)
#else
#define IS_AFTER(s) ABOVE(mine.xmax, s.xmax)
#endif

/* What a process does not use any more is no difference. */
inline forget(s)
{
	s.exists = false;
	s.id = 0;
	s.next = 0;
	s.xmax = 0;
	s.list = 0;
	s.lowered = false
}

active proctype Sampler()
{
	Sample s;

	compute(s);
	d_step {
		published.exists = true;
		published.id = s.id;
		published.next = s.next;
		published.xmax = s.xmax;
		published.list = s.list;
		published.lowered = s.lowered;
		forget(s)
	}
}

active proctype Reader()
{
	Snapshot mine;
	Sample fresh;
	byte asked = 0;
	byte answer = 0;
	byte before = 0;

	d_step {
#ifdef IMPORTED
		mine.xmax = next_xid;
		mine.list = uncommitted;
#else
		take_snapshot(mine);
#endif
		mine.sees = SEES(mine)
	}
	do
	:: asked < 2 ->
		if
#ifdef ASK_AGAIN
		:: true ->
#else
		:: asked == 1			/* the answer is kept */
		:: asked == 0 ->
#endif
			compute(fresh);
			atomic {
				answer = 0;
				if
				:: COUNTS(fresh) && COVERS(fresh) -> answer = fresh.id
				:: else
				fi;
				if
				:: COUNTS(published) && (IS_AFTER(published) || COVERS(published)) &&
				   published.id > answer ->
					answer = published.id
				:: else
				fi;

				/* what is told, holds; and is told again */
				assert(asked == 0 || answer == before);
				before = answer;
				forget(fresh);
				if
				:: mine.sees
				:: else ->
					assert(!committed || answer < position);
					if
					:: answer > told && !committed -> told = answer
					:: else
					fi
				fi
			}
		fi;
		asked++
	:: else -> break
	od
}
