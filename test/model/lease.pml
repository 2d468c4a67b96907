/*
 * Leases of node IDs: servers that take, renew and lose grants, over list and
 * compare-and-set, through a network that loses and delays.
 *
 * The argument that this checks is at the head of src/lease/lease.c, and in doc/design.md.
 * Claimed: no (node, tick) is minted twice by anybody.
 *
 * A grant is a range of ticks with a node ID.  Each clock is arbitrary, so where a take
 * begins and how far a renewal goes is any tick that the record and the floor allow, and
 * a server may stop at any point and go on later.  At most one request at a time is late,
 * for as long as it pleases; the others arrive at once or never.
 *
 * A write is done only if the fleet's record is what it was when the grant was taken, or
 * the records were read.  So its answer counts.  If that was lost, a list tells: by the
 * nonce of the request.
 *
 * With -DCOORDINATOR_FAILS the coordinator may lose everything, or go back to a backup,
 * and snowflake_fleet_recover() is called.  A holder that meets a fleet which was founded
 * again uses its grant up, or gives it up; it marks the fleet only if the floor is below.
 * With -DTWINS the memory of a server is copied while it runs.
 *
 * With -DBY_HAND a server has minted node ID 0 as a setting, before the fleet was founded
 * with a floor.  With -DSPLIT a standby of the coordinator is promoted, while the old
 * primary goes on.  Each server looks at both before it asks one, and asks none if both
 * can be written.
 *
 * Assumed:
 *
 * - Nonces are distinct, also those of twins.
 * - The floor of recover() is not below the end of any grant, also of one of which its
 *   server has not heard yet, and no incarnation is used twice.
 *   (-DFLOOR_OF_WHAT_WAS_HEARD: if it is?  An answer that is heard after recover()
 *   counts.  In src/lease/lease.c it does for the seconds that an attempt may take.)
 * - After the coordinator went back in time, no write of a grant arrives, neither a take
 *   nor a renewal, until a holder has noticed or recover() was called.
 *   (-DGRANTED_BEFORE_NOTICED: if one does?  Who had lost a grant may find the record of
 *   it again, and renew it, beside the one who has taken it over.)
 * - What twins had been granted when they became two, or had asked for, may come twice.
 *   (-DEXCUSE_KNOWN_ALONE: what they had asked for matters.)
 * - With -DSPLIT: no server reaches the old primary alone (-DUSE_ANY_PRIMARY: if one does?),
 *   no write to it is late, and the standby has all commits.  One that lacks some is a
 *   coordinator that went back in time.
 *
 * What rests on time, as that a holder notices soon enough, is in notice.pml.
 *
 * Not modeled: layouts, names of servers (a take may prefer any record), the reservation,
 * and how a server changes its node ID, which is in gate.pml.
 *
 * A rule is taken out by -DFORGET_UNTIL, -DRENEW_WITHOUT_VERSION, -DRESUME_GRANT,
 * -DNODE_NOT_GRANT, -DNO_NONCE, -DNO_FLOOR, -DFLEET_READ_BEFORE, -DNO_INCARNATION,
 * -DGO_ON_AFTER_BACK_IN_TIME, -DNO_FLOOR_AT_CREATION, -DNO_KEY (a table without one, in
 * which a record can be inserted twice).
 */

#ifndef SERVERS
#define SERVERS	3
#endif
#ifndef NODES
#define NODES	2
#endif
#ifndef TICKS
#define TICKS	6				/* the largest; the first is 1 */
#endif
#ifdef COORDINATOR_FAILS
#define TOKENS
#ifndef FAILURES
#define FAILURES	1
#endif
#ifndef VERSIONS
#define VERSIONS	4
#endif
#endif
#if defined(NO_NONCE) && !defined(TOKENS)
#define TOKENS
#endif
#ifndef LEASE
#define LEASE	1				/* ticks beyond the first one */
#endif
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

mtype = { NOTHING, TAKE, RENEW };

/*
 * A nonce is random, so all that can be asked of one is whether something has it.
 * So who remembers a nonce has a set of those who have it: the record, the request
 * that is late, the record in the backup of the coordinator.
 */
#define IN_RECORD	1
#define IN_LATE		2
#define IN_BACKUP	4
#define NO_RECORD	8			/* not a nonce: there must be no record */

/* The coordinator: a record for each node ID. */
typedef Record {
	bool exists;
	byte until;
#ifdef TOKENS
	byte token;
#endif
#ifdef COORDINATOR_FAILS
	byte from;
	byte version;
#endif
};
#ifdef SPLIT
#define RECORDS	(2 * NODES)		/* those of the old primary follow */
#else
#define RECORDS	NODES
#endif
Record record[RECORDS];

/* A compare-and-set, which a server remembers until it knows what became of it. */
typedef Request {
	mtype kind;
	byte node;
	byte expected;				/* nonce of the record as it was read */
	byte from;
	byte until;
#ifdef TOKENS
	byte token;
#endif
#ifdef COORDINATOR_FAILS
	byte version;
	byte incarnation;
#endif
	byte nonce;
	bool answered				/* it was done, and that will be heard */
};
Request late;					/* one that the network still has */

/* What a server has in its shared memory. */
typedef Grant {
	bool held;
	byte node;
	byte until;
	byte last;					/* newest tick issued, or before the grant */
#ifdef COORDINATOR_FAILS
	byte from;
	byte version;
	byte incarnation;
#endif
	byte nonce
};
Grant grant[SERVERS];
Request asked[SERVERS];
#ifdef TOKENS
byte token[SERVERS];
#endif

#ifdef COORDINATOR_FAILS
typedef Fleet {
	bool exists;
	bool suspect;
	byte incarnation;
	byte floor
};
Fleet fleet;
Record backup[NODES];
bool has_backup;
byte failures = FAILURES;		/* that are still to come */
byte recoveries;
bool was_noticed = true;			/* that it went back, by a holder or by recover() */
byte granted_until;				/* the largest until of any grant */
#define FLOOR fleet.floor
#define GRANTS (fleet.exists && !fleet.suspect)
#else
#if defined(BY_HAND) && !defined(NO_FLOOR_AT_CREATION)
#define FLOOR by_hand
#else
#define FLOOR 0
#endif
#define GRANTS true
#endif

#ifdef BY_HAND
byte by_hand;					/* newest tick minted with node ID 0 before */
#endif

/* Two primaries: server 1 reaches the old one, if it may ask at all. */
#ifdef SPLIT
bool was_split;
bool is_split;
#define FIRST(s) (is_split && s == 1 -> NODES : 0)
#ifdef USE_ANY_PRIMARY
#define MAY_ASK true
#else
#define MAY_ASK (!is_split)
#endif
#else
#define FIRST(s) 0
#define MAY_ASK true
#endif

/* The claim is about each tick of each node ID; one is chosen to be watched. */
byte watched;
bool minted;
#ifdef TWINS
bool cloned;
bool excused;
#else
#define excused false
#endif

#define IS_AS_READ(q) (q.expected & IN_RECORD)
#ifdef COORDINATOR_FAILS
#ifdef GRANTED_BEFORE_NOTICED
#define NOTICED true
#else
#define NOTICED was_noticed
#endif
#define POSSIBLE(q) (NOTICED && record[q.node].version < VERSIONS)
#else
#define POSSIBLE(q) true
#endif
#if defined(COORDINATOR_FAILS) && !defined(NO_INCARNATION) && !defined(FLEET_READ_BEFORE)
#define UNCHANGED(q) (GRANTS && fleet.incarnation == q.incarnation)
#else
#define UNCHANGED(q) true
#endif
#ifdef NO_KEY
#define FITS(q) (q.expected == NO_RECORD -> true : IS_AS_READ(q))
#else
#define FITS(q) (q.expected == NO_RECORD -> !record[q.node].exists : IS_AS_READ(q))
#endif
#ifdef RENEW_WITHOUT_VERSION
#define APPLIES(q) (POSSIBLE(q) && UNCHANGED(q) && (FITS(q) || q.kind == RENEW))
#else
#define APPLIES(q) (POSSIBLE(q) && UNCHANGED(q) && FITS(q))
#endif

inline forget_request(q)
{
	q.kind = NOTHING;
	q.node = 0;
	q.expected = 0;
	q.from = 0;
	q.until = 0;
#ifdef TOKENS
	q.token = 0;
#endif
#ifdef COORDINATOR_FAILS
	q.version = 0;
	q.incarnation = 0;
#endif
	q.nonce = 0;
	q.answered = false
}

inline forget_grant(s)
{
	grant[s].held = false;
	grant[s].node = 0;
	grant[s].until = 0;
	grant[s].last = 0;
#ifdef COORDINATOR_FAILS
	grant[s].from = 0;
	grant[s].version = 0;
	grant[s].incarnation = 0;
#endif
	grant[s].nonce = 0
}

/* A request is known to have got there. */
inline count_as_granted(s)
{
	if
	:: asked[s].kind == TAKE ->
#ifdef NODE_NOT_GRANT
		grant[s].last = (grant[s].held && grant[s].node == asked[s].node ->
			grant[s].last : asked[s].from - 1);
#else
		grant[s].last = asked[s].from - 1;
#endif
		grant[s].held = true;
		grant[s].node = asked[s].node
#ifdef COORDINATOR_FAILS
		; grant[s].incarnation = asked[s].incarnation;
		grant[s].from = asked[s].from
#endif
	:: else
	fi;
	grant[s].until = asked[s].until;
#ifdef COORDINATOR_FAILS
	grant[s].version = asked[s].version + 1;
#ifdef FLOOR_OF_WHAT_WAS_HEARD
	granted_until = MAX(granted_until, asked[s].until);
#endif
#endif
	grant[s].nonce = asked[s].nonce;
	forget_request(asked[s])
}

/* From now on nobody remembers these holders of a nonce on that node. */
inline forget_holder(AT, WHICH)
{
	for (i : 0 .. SERVERS - 1) {
		if
		:: grant[i].node == AT -> grant[i].nonce = grant[i].nonce & ~(WHICH)
		:: else
		fi;
		if
		:: asked[i].node == AT ->
			asked[i].nonce = asked[i].nonce & ~(WHICH);
			asked[i].expected = asked[i].expected & ~(WHICH)
		:: else
		fi
	}
	if
	:: late.node == AT -> late.expected = late.expected & ~(WHICH)
	:: else
	fi;
	i = 0
}

/* What was late is no more. */
inline end_late()
{
	for (i : 0 .. SERVERS - 1) {
		grant[i].nonce = grant[i].nonce & ~IN_LATE;
		asked[i].nonce = asked[i].nonce & ~IN_LATE;
		asked[i].expected = asked[i].expected & ~IN_LATE
	}
	i = 0;
	forget_request(late)
}

inline write_record(q)
{
	forget_holder(q.node, IN_RECORD);
	record[q.node].exists = true;
	record[q.node].until = q.until;
#ifdef TOKENS
	record[q.node].token = q.token;
#endif
#ifdef COORDINATOR_FAILS
	record[q.node].from = q.from;
	record[q.node].version++
#ifndef FLOOR_OF_WHAT_WAS_HEARD
	; granted_until = MAX(granted_until, q.until)
#endif
#endif
}

/* A compare-and-set arrives. */
inline arrive(q)
{
	if
	:: APPLIES(q) ->
		write_record(q);
		q.nonce = IN_RECORD
	:: else
	fi
}

/* One arrives that was late; somebody may remember it still, and hear the answer. */
inline arrive_late(IS_HEARD)
{
	if
	:: APPLIES(late) ->
		write_record(late);
		for (i : 0 .. SERVERS - 1) {
			if
			:: asked[i].nonce & IN_LATE ->
				asked[i].nonce = asked[i].nonce | IN_RECORD;
				asked[i].answered = IS_HEARD
			:: else
			fi
		}
		i = 0
	:: else
	fi;
	end_late()
}

inline delay(q)
{
	late.kind = q.kind;
	late.node = q.node;
	late.expected = q.expected;
	late.from = q.from;
	late.until = q.until;
#ifdef TOKENS
	late.token = q.token;
#endif
#ifdef COORDINATOR_FAILS
	late.version = q.version;
	late.incarnation = q.incarnation;
#endif
	q.nonce = IN_LATE
}

/* A token that is lost is nobody's for ever. */
inline forget_token(s)
{
#ifdef TOKENS
	for (i : 0 .. NODES - 1) {
		record[i].token = (record[i].token == s + 1 -> 0 : record[i].token);
#ifdef COORDINATOR_FAILS
		backup[i].token = (backup[i].token == s + 1 -> 0 : backup[i].token)
#endif
	}
	late.token = (late.token == s + 1 -> 0 : late.token);
	i = 0
#else
	skip
#endif
}

inline request(S, KIND)
{
	asked[S].kind = KIND;
#ifdef TOKENS
	asked[S].token = token[S];
#endif
	asked[S].node = grant[S].node;
	asked[S].expected = grant[S].nonce;
#ifdef COORDINATOR_FAILS
	asked[S].from = grant[S].from;
	asked[S].version = grant[S].version;
	asked[S].incarnation = grant[S].incarnation
#endif
}

#ifdef NO_NONCE
#define IS_MINE(s) (record[asked[s].node].token == token[s])
#else
#define IS_MINE(s) (asked[s].nonce & IN_RECORD)
#endif

#ifdef COORDINATOR_FAILS
#ifdef NO_INCARNATION
#define GRANTS_TO(s) GRANTS
#else
#define GRANTS_TO(s) (GRANTS && fleet.incarnation == asked[s].incarnation)
#endif
#define MINE(s) record[grant[s].node]
#define OF_OTHER(s) (MINE(s).exists && MINE(s).token != token[s] && MINE(s).from <= grant[s].until)
#define WAS_RECOVERED(s) (fleet.incarnation != grant[s].incarnation)
#define WENT_BACK(s) (GRANTS && grant[s].held && \
	(WAS_RECOVERED(s) -> FLOOR < grant[s].until : \
	 (!MINE(s).exists || MINE(s).version < grant[s].version || OF_OTHER(s))))
/* founded again above its grant, of which somebody else may have had a part before */
#define DOUBLED(s) (GRANTS && grant[s].held && WAS_RECOVERED(s) && \
	FLOOR >= grant[s].until && OF_OTHER(s) && MINE(s).until >= grant[s].from)
#else
#define GRANTS_TO(s) true
#define WENT_BACK(s) false
#endif

#ifdef FLEET_READ_BEFORE
#define MAY_RENEW(s) (GRANTS && fleet.incarnation == grant[s].incarnation)
#else
#define MAY_RENEW(s) true
#endif

#ifdef FORGET_UNTIL
#define START(n) (FLOOR + 1)
#else
#ifdef NO_FLOOR
#define START(n) (record[n].until + 1)
#else
#define START(n) (MAX(record[n].until, FLOOR) + 1)
#endif
#endif

inline or_later(T, END)
{
	do
	:: T < END -> T++
	:: break
	od
}

/*
 * A request is on its way: it arrives, with or without an answer, is lost, or is late.
 * The answer may be heard at any time.  That it was refused is not modeled: a list says so
 * as well.
 */
inline send(s)
{
	if
	:: d_step { APPLIES(asked[s]) ->
		arrive(asked[s]);
		asked[s].answered = true }
	:: d_step { APPLIES(asked[s]) -> arrive(asked[s]) }
	:: skip
	:: d_step { late.kind == NOTHING -> delay(asked[s]) }
	fi
}

proctype server(byte s)
{
	byte n, t, i;

end:
	do
		/* mint, at any tick that the clock may say */
	:: atomic { grant[s].held && grant[s].last < grant[s].until ->
		t = grant[s].last + 1;
		or_later(t, grant[s].until);
		grant[s].last = t;
		if
		:: grant[s].node % NODES == 0 && t == watched ->
			assert(!minted || excused);
			minted = true
		:: else
		fi;
		t = 0 }

		/* a crash, and a new start */
	:: d_step { grant[s].held || asked[s].kind != NOTHING ->
		forget_token(s);
		forget_grant(s);
		forget_request(asked[s]) }

		/* list, and choose what to take: from the clock on, whatever that says */
	:: atomic { asked[s].kind == NOTHING && GRANTS && MAY_ASK &&
			(START(FIRST(s)) <= TICKS || START(FIRST(s) + NODES - 1) <= TICKS) ->
		if
		:: START(FIRST(s)) <= TICKS -> n = FIRST(s)
		:: NODES > 1 && START(FIRST(s) + NODES - 1) <= TICKS -> n = FIRST(s) + NODES - 1
		fi;
		t = START(n);
		or_later(t, TICKS);
		request(s, TAKE);
		asked[s].node = n;
		asked[s].expected = (record[n].exists -> IN_RECORD : NO_RECORD);
		asked[s].from = t;
		asked[s].until = MIN(t + LEASE, TICKS);
#ifdef COORDINATOR_FAILS
		asked[s].version = record[n].version;
		asked[s].incarnation = fleet.incarnation;
#endif
		n = 0;
		t = 0;
		send(s) }

		/* renew */
	:: atomic { asked[s].kind == NOTHING && grant[s].held && grant[s].until < TICKS && MAY_RENEW(s) && MAY_ASK ->
		t = grant[s].until + 1;
		or_later(t, TICKS);
		request(s, RENEW);
		asked[s].until = t;
		t = 0;
		send(s) }

		/* the answer */
	:: d_step { asked[s].answered -> count_as_granted(s) }

		/* no answer, or a refusal: list again, and see */
	:: d_step { asked[s].kind != NOTHING && !WENT_BACK(s) ->
		if
		:: GRANTS_TO(s) && IS_MINE(s) -> count_as_granted(s)
		:: else -> forget_request(asked[s])
		fi }

#ifdef COORDINATOR_FAILS
		/* list, and find that the coordinator went back in time */
	:: d_step { WENT_BACK(s) ->
		was_noticed = true;
#ifdef GO_ON_AFTER_BACK_IN_TIME
		grant[s].nonce = grant[s].nonce | IN_RECORD;
		grant[s].version = MINE(s).version;
#else
		fleet.suspect = true;
		forget_grant(s);
#endif
		forget_request(asked[s]) }

		/* list, and find that the fleet was founded again: give the grant up */
	:: d_step { DOUBLED(s) ->
		forget_grant(s);
		forget_request(asked[s]) }
#endif

		/* a clean stop stores the exact end, if it can */
	:: atomic { grant[s].held && asked[s].kind == NOTHING && MAY_ASK ->
		request(s, RENEW);
		asked[s].until = grant[s].last;
		if
		:: d_step { APPLIES(asked[s]) -> arrive(asked[s]) }
		:: d_step { late.kind == NOTHING -> delay(asked[s]) }
		:: skip
		fi;
		d_step {
			forget_token(s);
			forget_grant(s);
			forget_request(asked[s]) } }
	od
}

#ifdef COORDINATOR_FAILS
inline copy_record(TO, FROM)
{
	TO.exists = FROM.exists;
	TO.until = FROM.until;
	TO.token = FROM.token;
	TO.from = FROM.from;
	TO.version = FROM.version
}

inline forget_record(TO)
{
	TO.exists = false;
	TO.until = 0;
	TO.token = 0;
	TO.from = 0;
	TO.version = 0
}

inline move_nonces(A, B, KEEP)
{
	for (i : 0 .. SERVERS - 1) {
		grant[i].nonce = (grant[i].nonce & (KEEP)) | (grant[i].nonce & (A) -> B : 0);
		asked[i].nonce = (asked[i].nonce & (KEEP)) | (asked[i].nonce & (A) -> B : 0);
		asked[i].expected = (asked[i].expected & (KEEP | NO_RECORD)) | (asked[i].expected & (A) -> B : 0)
	}
	late.expected = (late.expected & (KEEP | NO_RECORD)) | (late.expected & (A) -> B : 0);
	i = 0
}
#endif

inline copy_grant()
{
	grant[1].held = grant[0].held;
	grant[1].node = grant[0].node;
	grant[1].until = grant[0].until;
	grant[1].last = grant[0].last;
	grant[1].nonce = grant[0].nonce
}

/* The network, administrators, and what they do to servers and coordinators. */
proctype world()
{
	byte i;

end:
	do
		/* what is late arrives, or is lost */
	:: d_step { late.kind != NOTHING -> arrive_late(true) }
	:: d_step { late.kind != NOTHING -> arrive_late(false) }
	:: d_step { late.kind != NOTHING -> end_late() }

#ifdef SPLIT
		/*
		 * A standby is promoted that has all commits, while the old primary goes on.
		 * What was asked for is lost.
		 */
	:: d_step { !was_split ->
		was_split = true;
		is_split = true;
		for (i : 0 .. NODES - 1) {
			record[i + NODES].exists = record[i].exists;
			record[i + NODES].until = record[i].until
		}
		end_late();
		forget_request(asked[0]);
		forget_request(asked[1]);
		grant[1].node = (grant[1].held -> grant[1].node + NODES : 0) }

		/* the old one is stopped */
	:: d_step { is_split && asked[1].kind == NOTHING && late.kind == NOTHING ->
		is_split = false;
#ifdef USE_ANY_PRIMARY
		grant[1].nonce = 0;
#endif
		grant[1].node = (grant[1].held -> grant[1].node - NODES : 0) }
#endif

#ifdef RESUME_GRANT
		/* a copy of server 0's data directory is started, and goes on with its grant */
	:: d_step { grant[0].held && !grant[1].held && asked[1].kind == NOTHING ->
		copy_grant() }
#endif

#ifdef TWINS
		/*
		 * Server 1 becomes a copy of server 0, memory and all.  What may then come
		 * twice is what 0 had been granted, or had asked for.
		 */
	:: d_step { !cloned && !grant[1].held && asked[1].kind == NOTHING ->
		cloned = true;
		excused = (grant[0].held && grant[0].node == 0 && grant[0].last < watched &&
			grant[0].until >= watched);
#ifndef EXCUSE_KNOWN_ALONE
		excused = excused || (asked[0].kind != NOTHING && asked[0].node == 0 &&
			asked[0].from <= watched && asked[0].until >= watched);
#endif
		copy_grant();
		asked[1].kind = asked[0].kind;
		asked[1].node = asked[0].node;
		asked[1].expected = asked[0].expected;
		asked[1].from = asked[0].from;
		asked[1].until = asked[0].until;
		asked[1].nonce = asked[0].nonce }
#endif

#ifdef COORDINATOR_FAILS
		/* a backup of the coordinator is made */
	:: d_step { !has_backup && failures > 0 && recoveries == 0 && fleet.exists ->
		has_backup = true;
		for (i : 0 .. NODES - 1) {
			copy_record(backup[i], record[i])
		}
		move_nonces(IN_RECORD, IN_BACKUP, IN_RECORD) }

		/* it loses everything */
	:: d_step { failures > 0 && fleet.exists ->
		failures--;
		fleet.exists = false;
		for (i : 0 .. NODES - 1) {
			forget_record(record[i])
		}
		move_nonces(0, 0, IN_LATE | IN_BACKUP) }

		/* it goes back in time */
	:: d_step { has_backup && failures > 0 ->
		failures--;
		has_backup = false;
		fleet.exists = true;
		fleet.suspect = false;
		fleet.incarnation = 0;
		fleet.floor = 0;
		was_noticed = false;
		for (i : 0 .. NODES - 1) {
			copy_record(record[i], backup[i]);
			forget_record(backup[i])
		}
		move_nonces(IN_BACKUP, IN_RECORD, IN_LATE) }

		/* snowflake_fleet_recover() */
	:: d_step { recoveries < FAILURES && (!fleet.exists || fleet.suspect || !was_noticed) ->
		recoveries++;
		fleet.exists = true;
		fleet.suspect = false;
		fleet.incarnation = recoveries;
		fleet.floor = granted_until;
		was_noticed = true }
#endif
	od
}

init
{
	byte s;

	atomic {
		watched = 1;
		or_later(watched, TICKS);
#ifdef BY_HAND
		or_later(by_hand, TICKS - 1);
		minted = watched <= by_hand;
#endif
		for (s : 0 .. SERVERS - 1) {
#ifdef TOKENS
			token[s] = s + 1;
#endif
			asked[s].kind = NOTHING;
			run server(s)
		}
		late.kind = NOTHING;
#ifdef COORDINATOR_FAILS
		fleet.exists = true;
#endif
		run world();
		s = 0
	}
}
