/*
 * Leases of node IDs: what rests on time.  Where a coordinator has lost records, nothing in
 * them says so: holders notice, and until then others are granted nothing.
 *
 * The argument that this checks is at the head of src/lease/lease.c, rules 7 and 9.
 * Claimed: no tick of the node ID is minted twice.
 *
 * Time goes on by a tick, for all servers and the coordinator, but not beyond a moment at
 * which a server has to ask.  A server that has a lease asks when half of one has passed
 * since it last did, or at each tick while it finds a trouble.  Asking takes no
 * time.  Lateness of an answer, and clocks, are in lease.pml.
 *
 * The setting is shortened once, while leases of the length of before are held.
 * A generator may be ahead of the clock, and mints anywhere within its lease then.
 *
 * Once, the coordinator loses all records, or, with -DFAILOVER, fails over to a standby that
 * lacks the latest commits.  A fleet that is gone, or is marked, is re-created by
 * snowflake_fleet_recover() with its default floor, on a server whose setting is the present
 * one: a lease after the clock, or above what was reported.
 *
 * Assumed:
 *
 * - All servers have the same setting, and reach the coordinator in time.
 *   (-DONE_IS_CUT_OFF: if one does not?)
 * - The setting is not shortened just after a failover.  (-DSHORTENED_AFTERWARDS: if it is?
 *   The time in which nothing new is granted may be over before a holder has reloaded.)
 * - A server that crashes has minted nothing ahead of the clock.
 *   (-DCRASH_AHEAD: if it has?  Nobody knows of that.)
 */

#define BEFORE	5				/* ticks of a lease, by the setting of before */
#define LEASE	2				/* and by the present one */
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

#define SERVERS	2
#define NOBODY	SERVERS

byte now = 1;
bool is_short;					/* the setting was changed */
#if defined(FAILOVER) && !defined(SHORTENED_AFTERWARDS)
#define MAY_SHORTEN (!failed)
#else
#define MAY_SHORTEN true
#endif
#define LENGTH (is_short -> LEASE : BEFORE)
#define HALF (LENGTH / 2)

/* The records at the coordinator, and at its standby. */
typedef Records {
	bool has_fleet;
	bool suspect;
	byte incarnation;
	byte floor;
	byte reported;
	byte holder;				/* of the node ID */
	byte until
};
Records at, behind;
bool failed;					/* the one fault was */
#ifdef FAILOVER
bool is_noted;					/* the new term, in the fleet's record */
byte since;						/* and when */
#endif

typedef Grant {
	bool held;
	byte until;
	byte incarnation;
	byte last;					/* newest tick issued, or before the grant */
	byte asked;					/* when it was last renewed */
	bool trouble;
	byte looked					/* when it last found a trouble */
};
Grant grant[SERVERS];

bool minted[TICKS + 1];

#define REACHED(s) MAX(now, grant[s].last)
#define IS_USED(s) (grant[s].held && now <= grant[s].until)
#ifdef ONE_IS_CUT_OFF
#define REACHES(s) (s == 0 || !failed)
#else
#define REACHES(s) true
#endif
#ifdef DUE_BY_END
#define IS_DUE(s) (grant[s].trouble -> grant[s].looked < now : grant[s].until - REACHED(s) <= HALF && \
	grant[s].until < TICKS)
#else
#define IS_DUE(s) (grant[s].trouble -> grant[s].looked < now : now - grant[s].asked >= HALF)
#endif
#define MUST_ASK(s) (IS_USED(s) && REACHES(s) && IS_DUE(s))

#ifdef FAILOVER
#define NOTE_TERM() \
	if \
	:: failed && !is_noted && at.has_fleet -> is_noted = true; since = now \
	:: else \
	fi
#ifdef TAKE_IN_NEW_TERM
#define IS_NEW_TERM false
#else
#define IS_NEW_TERM (is_noted && now - since <= HALF)
#endif
#else
#define NOTE_TERM()
#define IS_NEW_TERM false
#endif

inline give_up(s)
{
	grant[s].held = false;
	grant[s].until = 0;
	grant[s].incarnation = 0;
	grant[s].asked = 0;
	grant[s].trouble = false;
	grant[s].looked = 0
}

inline find_trouble(s)
{
	grant[s].trouble = true;
	grant[s].looked = now
}

/* What the coordinator has is not what was granted: another may be granted it. */
#define IS_FORGOTTEN(s) (at.incarnation != grant[s].incarnation -> at.floor < grant[s].until : \
	(at.holder != s || at.until < grant[s].until))

proctype server(byte s)
{
	byte t;

end:
	do
		/* mint, at the clock or ahead of it */
	:: atomic { IS_USED(s) && REACHED(s) <= grant[s].until && grant[s].last < grant[s].until ->
		t = MAX(now, grant[s].last + 1);
		do
		:: t < grant[s].until -> t++
		:: break
		od;
		grant[s].last = t;
		assert(!minted[t]);
		minted[t] = true;
		t = 0 }

		/* a lease that has ended */
	:: d_step { grant[s].held && now > grant[s].until -> give_up(s) }

		/* ask, when it is due or before */
	:: d_step { IS_USED(s) && REACHES(s) && (IS_DUE(s) || grant[s].asked < now) ->
		NOTE_TERM();
		if
		:: !at.has_fleet -> find_trouble(s)
		:: at.has_fleet && IS_FORGOTTEN(s) ->
#ifndef UNMARKED
			at.suspect = true;
			at.reported = MAX(at.reported, grant[s].until);
#endif
			give_up(s)
		:: else ->
			if
			:: at.suspect || at.incarnation != grant[s].incarnation -> find_trouble(s)
			:: else ->
				at.until = MIN(MAX(grant[s].until, REACHED(s) + LENGTH), TICKS);
				grant[s].until = at.until;
				grant[s].asked = now;
				grant[s].trouble = false;
				grant[s].looked = 0
			fi
		fi }

		/* take one, if the record is not another's, and the floor has passed */
	:: d_step { !grant[s].held && REACHES(s) && at.has_fleet && !at.suspect && at.floor < now &&
			at.until < now && MAX(now, grant[s].last + 1) <= TICKS ->
		NOTE_TERM();
		if
		:: IS_NEW_TERM -> skip
		:: else ->
			at.holder = s;
			at.until = MIN(REACHED(s) + LENGTH, TICKS);
			grant[s].held = true;
			grant[s].until = at.until;
			grant[s].incarnation = at.incarnation;
			grant[s].last = MAX(grant[s].last, now - 1);
			grant[s].asked = now
		fi }

		/* a crash */
#ifdef CRASH_AHEAD
	:: d_step { grant[s].held -> grant[s].last = 0; give_up(s) }
#else
	:: d_step { grant[s].held && grant[s].last < now -> grant[s].last = 0; give_up(s) }
#endif
	od
}

inline copy(TO, FROM)
{
	TO.has_fleet = FROM.has_fleet;
	TO.suspect = FROM.suspect;
	TO.incarnation = FROM.incarnation;
	TO.floor = FROM.floor;
	TO.reported = FROM.reported;
	TO.holder = FROM.holder;
	TO.until = FROM.until
}

proctype world()
{
end:
	do
	:: d_step { now < TICKS && !MUST_ASK(0) && !MUST_ASK(1) -> now++ }

		/* who has asked within half of the new lease need not ask at once */
	:: d_step { !is_short && MAY_SHORTEN -> is_short = true }

#ifdef FAILOVER
		/* the standby has what the primary has, for now */
	:: d_step { !failed -> copy(behind, at) }

	:: d_step { !failed -> failed = true; copy(at, behind) }
#else
	:: d_step { !failed ->
		failed = true;
		at.has_fleet = false;
		at.suspect = false;
		at.reported = 0;
		at.holder = NOBODY;
		at.until = 0 }
#endif

		/* snowflake_fleet_recover(), by a server of which nothing else is known */
	:: d_step { is_short && (!at.has_fleet || at.suspect) && at.incarnation < 2 ->
		at.has_fleet = true;
		at.suspect = false;
		at.incarnation++;
		at.floor = MAX(MAX(now + LEASE, at.reported), at.floor) }
	od
}

init
{
	atomic {
		at.has_fleet = true;
		at.holder = NOBODY;
		copy(behind, at);
		run server(0);
		run server(1);
		run world()
	}
}
