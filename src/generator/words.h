/*-------------------------------------------------------------------------
 *
 * words.h
 *	  The states that are reported, and the words for each.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_WORDS_H
#define SNOWFLAKE_WORDS_H

/*
 * Why nothing can be minted, or GATE_OPEN.  Only the keeper changes it; a
 * server starts with the first value.
 */
typedef enum SnowflakeGate
{
	GATE_NO_KEEPER = 0,			/* the keeper has not started, or has ended */
	GATE_CONNECTING,			/* it connects to its database, or failed to */
	GATE_WAITING,				/* it waits for the first mint to create its
								 * extension in its database */
	GATE_CREATING,				/* it creates the extension */
	GATE_OPENING,				/* it writes the reservation */
	GATE_NODE_UNSET,
	GATE_NODE_TOO_LARGE,
	GATE_LEASE_NONE,			/* no node ID is leased yet */
	GATE_LEASE_ENDED,			/* it could not be renewed */
	GATE_LEASE_REVOKED,			/* the coordinator may grant it again */
	GATE_LAYOUT_CHANGED,		/* the stored layout is another one */
	GATE_RESERVATION_LOST,		/* this cluster has one, but not here */
	GATE_CLOCK,					/* no clock was believed since the start */
	GATE_STOPPING,				/* the keeper was told to stop */
	GATE_OPEN
} SnowflakeGate;

/* States that are reported, in the order of doc/messages.md, which shows their words. */
typedef enum SnowflakeState
{
	STATE_NO_TROUBLE = 0,

	/* The keeper */
	STATE_UNPRELOADED,
	STATE_KEEPERLESS,			/* single-user mode, pg_upgrade */
	STATE_WORKERLESS,			/* no background worker for the keeper */
	STATE_DATABASE_MISSING,
	STATE_DATABASE_TEMPLATE,
	STATE_NOT_READY,
	STATE_UNRESERVED,
	STATE_UNJUDGED,				/* the clock went back, and the keeper has not
								 * looked at it */
	STATE_STANDBY_AWAITED,
	STATE_LANGUAGE_MISSING,		/* in the keeper's database */
	STATE_KEEPER_FAILED,
	STATE_KEEPER_MISSING,
	STATE_KEEPER_STARTS,
	STATE_KEEPER_HELD,
	STATE_KEEPER_BUSY,

	/* The reservation and the layout */
	STATE_RESERVATION_LOST,
	STATE_LAYOUT_CHANGED,
	STATE_LAYOUT_ENDED,
	STATE_LAYOUT_ENDS_SOON,
	STATE_STANDBY_UNFIT,

	/* The node ID */
	STATE_NODE_UNSET,
	STATE_HOST_WITHOUT_NUMBER,
	STATE_HOST_WITHOUT_ADDRESS,
	STATE_NODE_TOO_LARGE,
	STATE_HOST_TOO_LARGE,
	STATE_LEASE_NONE,
	STATE_LEASE_ENDED,
	STATE_LEASE_REVOKED,
	STATE_LEASE_LATE,

	/* Reports of the coordinator, or that there are none */
	STATE_COORDINATOR_UNUSABLE,
	STATE_FLEET_MISSING,
	STATE_FLEET_GONE,
	STATE_FLEET_OF_OTHER_LAYOUT,
	STATE_FLEET_WENT_BACK,
	STATE_FLEET_COPIED,
	STATE_FLEET_REPLACED,
	STATE_FLEET_NEW_TERM,
	STATE_FLEET_BELOW_FLOOR,
	STATE_FLEET_FULL,
	STATE_FLEET_DAMAGED,
	STATE_LESSEE_MISSING,
	STATE_LESSEE_SOUND,
	STATE_LESSEE_ASKS,
	STATE_LESSEE_LATE,

	/* The clock */
	STATE_CLOCK_BEFORE_EPOCH,
	STATE_CLOCK_PAST_END,
	STATE_CLOCK_UNRELEASED,
	STATE_CLOCK_BEHIND,
	STATE_CLOCK_DOUBTED,
	STATE_CLOCK_UNBELIEVED,
	STATE_CLOCK_UNPROVEN,
	STATE_JUMPED_OUT,
	STATE_JUMPED_BACK,
	STATE_JUMPED,

	/* IDs ahead of the clock */
	STATE_RESUMES,
	STATE_AHEAD,
	STATE_ADVANCED,
	STATE_WENT_BACK,
	STATE_WENT_BACK_AGAIN,
	STATE_WENT_BACK_AHEAD,
	STATE_STARTED,
	STATE_LOWERED,
	STATE_WAITS_FOR_JUMP,
	STATE_WAITS_LONG,
	STATE_WAYS,
	STATE_WAY_AT_CLOCK,
	STATE_WAY_AT_CLOCK_LEASED,
	STATE_WAITS_ADVANCED,
	STATE_WAITS,
	STATE_STANDS_ADVANCED,
	STATE_STANDS
} SnowflakeState;

#define SNOWFLAKE_STATES	(STATE_STANDS + 1)

/*
 * The words of an error or a log message; any of them may be NULL.  A word in braces
 * stands for a value, or for the hint of another state.
 */
typedef struct SnowflakeWords
{
	int			sqlstate;		/* 0: the usual one, 55000 */
	const char *message;
	const char *detail;
	const char *hint;			/* the advice of the status as well */
} SnowflakeWords;

extern const SnowflakeWords snowflake_words[SNOWFLAKE_STATES];

/* Returns the value of a word in braces, taken from what "about" points to. */
typedef const char *(*SnowflakeWordsValue) (const char *word, const void *about);

extern char *snowflake_words_fill(const char *text, SnowflakeWordsValue value,
								  const void *about);
extern int	snowflake_words_sqlstate(SnowflakeState state);

#endif							/* SNOWFLAKE_WORDS_H */
