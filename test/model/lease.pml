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
 * -DSERVERS, -DNODES, the largest tick -DTICKS, where 1 is the first, and -DLEASE, how many
 * ticks beyond its first one a lease has, say how large the search is, and with
 * -DCOORDINATOR_FAILS also -DVERSIONS, how often each record is written.
 */

#define FAILURES	1
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

mtype = { TAKE, RENEW };
#define NOTHING 0

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
	byte token;
	byte from;
	byte version
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
	byte token;
	byte version;
	byte incarnation;
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
	byte from;
	byte version;
	byte incarnation;
	byte nonce
};
Grant grant[SERVERS];
Request asked[SERVERS];
#define TOKEN(s) (s + 1)

/* What is compared only where the coordinator fails, or there are no nonces, is 0 elsewhere. */
#if defined(COORDINATOR_FAILS) || defined(NO_NONCE)
#define KEPT(value) (value)
#else
#define KEPT(value) 0
#endif

/* Of what is forgotten. */
Record no_record;
Request no_request;
Grant no_grant;

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
#define INCARNATION fleet.incarnation
#define NEXT(version) (version + 1)
#define GRANTS (fleet.exists && !fleet.suspect)
#else
#if defined(BY_HAND) && !defined(NO_FLOOR_AT_CREATION)
#define FLOOR by_hand
#else
#define FLOOR 0
#endif
#define INCARNATION 0
#define NEXT(version) 0
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
#ifdef NO_KEY				/* a record can be inserted twice */
#define FITS(q) (q.expected == NO_RECORD -> true : IS_AS_READ(q))
#else
#define FITS(q) (q.expected == NO_RECORD -> !record[q.node].exists : IS_AS_READ(q))
#endif
#ifdef RENEW_WITHOUT_VERSION
#define APPLIES(q) (POSSIBLE(q) && UNCHANGED(q) && (FITS(q) || q.kind == RENEW))
#else
#define APPLIES(q) (POSSIBLE(q) && UNCHANGED(q) && FITS(q))
#endif

inline copy_record(TO, FROM)
{
	TO.exists = FROM.exists;
	TO.until = FROM.until;
	TO.token = FROM.token;
	TO.from = FROM.from;
	TO.version = FROM.version
}

inline copy_request(TO, FROM)
{
	TO.kind = FROM.kind;
	TO.node = FROM.node;
	TO.expected = FROM.expected;
	TO.from = FROM.from;
	TO.until = FROM.until;
	TO.token = FROM.token;
	TO.version = FROM.version;
	TO.incarnation = FROM.incarnation;
	TO.nonce = FROM.nonce;
	TO.answered = FROM.answered
}

inline copy_grant(TO, FROM)
{
	TO.held = FROM.held;
	TO.node = FROM.node;
	TO.until = FROM.until;
	TO.last = FROM.last;
	TO.from = FROM.from;
	TO.version = FROM.version;
	TO.incarnation = FROM.incarnation;
	TO.nonce = FROM.nonce
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
		grant[s].node = asked[s].node;
		grant[s].incarnation = asked[s].incarnation;
		grant[s].from = KEPT(asked[s].from)
	:: else
	fi;
	grant[s].until = asked[s].until;
	grant[s].version = NEXT(asked[s].version);
#ifdef FLOOR_OF_WHAT_WAS_HEARD
	granted_until = MAX(granted_until, asked[s].until);
#endif
	grant[s].nonce = asked[s].nonce;
	copy_request(asked[s], no_request)
}

/* Nonces of KEEP stay what they are, and what A has is had by B as well. */
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

/* What was late is no more. */
inline end_late()
{
	move_nonces(0, 0, IN_RECORD | IN_BACKUP);
	copy_request(late, no_request)
}

/* Nobody remembers the nonce that the record had any more. */
inline write_record(q)
{
	for (i : 0 .. SERVERS - 1) {
		if
		:: grant[i].node == q.node -> grant[i].nonce = grant[i].nonce & ~IN_RECORD
		:: else
		fi;
		if
		:: asked[i].node == q.node ->
			asked[i].nonce = asked[i].nonce & ~IN_RECORD;
			asked[i].expected = asked[i].expected & ~IN_RECORD
		:: else
		fi
	}
	if
	:: late.node == q.node -> late.expected = late.expected & ~IN_RECORD
	:: else
	fi;
	i = 0;
	record[q.node].exists = true;
	record[q.node].until = q.until;
	record[q.node].token = q.token;
	record[q.node].from = KEPT(q.from);
	record[q.node].version = NEXT(record[q.node].version)
#if defined(COORDINATOR_FAILS) && !defined(FLOOR_OF_WHAT_WAS_HEARD)
	; granted_until = MAX(granted_until, q.until)
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
	copy_request(late, q);
	q.nonce = IN_LATE
}

/* A token that is lost is nobody's for ever. */
inline forget_token(s)
{
	for (i : 0 .. RECORDS - 1) {
		record[i].token = (record[i].token == TOKEN(s) -> 0 : record[i].token);
#ifdef COORDINATOR_FAILS
		backup[i].token = (backup[i].token == TOKEN(s) -> 0 : backup[i].token)
#endif
	}
	late.token = (late.token == TOKEN(s) -> 0 : late.token);
	i = 0
}

/* Its memory is lost. */
inline forget_all(s)
{
	forget_token(s);
	copy_grant(grant[s], no_grant);
	copy_request(asked[s], no_request)
}

inline request(S, KIND)
{
	asked[S].kind = KIND;
	asked[S].token = KEPT(TOKEN(S));
	asked[S].node = grant[S].node;
	asked[S].expected = grant[S].nonce;
	asked[S].from = grant[S].from;
	asked[S].version = grant[S].version;
	asked[S].incarnation = grant[S].incarnation
}

#ifdef NO_NONCE
#define IS_MINE(s) (record[asked[s].node].token == TOKEN(s))
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
#define OF_OTHER(s) (MINE(s).exists && MINE(s).token != TOKEN(s) && MINE(s).from <= grant[s].until)
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

#if defined(FORGET_UNTIL)
#define START(n) (FLOOR + 1)
#elif defined(NO_FLOOR)
#define START(n) (record[n].until + 1)
#else
#define START(n) (MAX(record[n].until, FLOOR) + 1)
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
	:: d_step { grant[s].held || asked[s].kind != NOTHING -> forget_all(s) }

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
		asked[s].version = record[n].version;
		asked[s].incarnation = INCARNATION;
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
		:: else -> copy_request(asked[s], no_request)
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
		copy_grant(grant[s], no_grant);
#endif
		copy_request(asked[s], no_request) }

		/* list, and find that the fleet was founded again: give the grant up */
	:: d_step { DOUBLED(s) ->
		copy_grant(grant[s], no_grant);
		copy_request(asked[s], no_request) }
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
		d_step { forget_all(s) } }
	od
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
			copy_record(record[i + NODES], record[i])
		}
		end_late();
		copy_request(asked[0], no_request);
		copy_request(asked[1], no_request);
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
		copy_grant(grant[1], grant[0]) }
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
		copy_grant(grant[1], grant[0]);
		copy_request(asked[1], asked[0]) }
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
			copy_record(record[i], no_record)
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
			copy_record(backup[i], no_record)
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
			run server(s)
		}
#ifdef COORDINATOR_FAILS
		fleet.exists = true;
#endif
		run world();
		s = 0
	}
}
