/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The only readers of the clocks, and the judge of the wall clock.
 *
 * Three clocks matter: the wall clock, which dates the IDs and can be stepped at any time; the
 * boot clock, which cannot be stepped and goes on while the machine is suspended; and the
 * monotonic clock, which measures how long something took.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_CLOCK_H
#define SNOWFLAKE_CLOCK_H

#include <time.h>

#include "utils/timestamp.h"

/* Linux only; elsewhere a suspension looks like a jump of the wall clock. */
#ifndef CLOCK_BOOTTIME
#define CLOCK_BOOTTIME	CLOCK_MONOTONIC
#endif

/* The wall clock and the boot clock at (nearly) the same instant, and what else judging needs. */
typedef struct SnowflakeClockReading
{
	TimestampTz wall;
	int64		boot_usec;
	int64		precision_usec; /* how far they may be apart */

	/* Set by the keeper */
	TimestampTz newest;			/* time of the newest ID that there may be */
	bool		possible;		/* the layout has the clock's tick */
	bool		accept;			/* an administrator believes the clock */
	int64		slack_usec;		/* how far IDs may be ahead of any clock */
} SnowflakeClockReading;

/* The result of judging a reading. */
typedef enum SnowflakeClockNews
{
	CLOCK_NO_NEWS,
	CLOCK_STEPPED,				/* and was believed at once */
	CLOCK_JUMPED,				/* by more: not believed yet */
	CLOCK_RETURNED,				/* it is where it was before the jump */
	CLOCK_BELIEVED				/* the jump has lasted, or was accepted */
} SnowflakeClockNews;

/* The newest ID's time where there is none. */
#define SNOWFLAKE_CLOCK_NEVER	(-(INT64CONST(1) << 60))

/*
 * Before the first ID ever, no clock from before this time is believed: when this
 * version was released, 2026-11-01.
 */
#define SNOWFLAKE_RELEASE_TIME	(INT64CONST(9801) * USECS_PER_DAY)


typedef struct SnowflakeVerdict
{
	int64		correction_usec;	/* to be added to the wall clock */
	int64		allowed_usec;	/* how far IDs may run ahead of that */
	SnowflakeClockNews news;
	int64		moved_usec;		/* by how much the clock stepped or jumped */
	int64		lasted_usec;	/* how long a jump has been coasted through */
	bool		unproven;		/* it is believed, though far past the newest
								 * ID, because there is nothing else to
								 * compare it with */
	long		look_again_ms;	/* 0: only when there is a reason to */
} SnowflakeVerdict;

/* The judge's belief */
typedef enum SnowflakeClockBelief
{
	CLOCK_UNKNOWN,				/* it has not looked yet */
	CLOCK_REFUSED,				/* none was believed since the start */
	CLOCK_FOLLOWED,
	CLOCK_UNPROVEN,				/* followed, but far past the newest ID when a
								 * start believed it, and no ID has shown
								 * since that this was right */
	CLOCK_COASTING				/* it has jumped, and is not believed */
} SnowflakeClockBelief;

/* A step back of the followed clock, since which IDs have been ahead of it. */
typedef struct SnowflakeClockBack
{
	int64		by_usec;		/* 0: there was none */
	int64		ago_usec;
	int64		since_usec;		/* on the boot clock */
} SnowflakeClockBack;

/* The judge's state, for messages. */
typedef struct SnowflakeClockState
{
	SnowflakeClockBelief belief;
	bool		no_id;			/* there was never an ID */
	int64		off_usec;		/* refused: how far past the newest ID it is;
								 * coasting: how far it jumped; unproven: how
								 * far past the newest ID it was */
	int64		lasted_usec;	/* refused, coasting: how long it has been
								 * there */
	int64		patience_usec;	/* and how long it has to be */
	int64		since_usec;		/* on the boot clock */
	SnowflakeClockBack back[2]; /* the newest, and the largest before it */
} SnowflakeClockState;

extern Size snowflake_clock_size(void);
extern void snowflake_clock_attach(void);
extern void snowflake_clock_read(SnowflakeClockReading *look);
extern bool snowflake_clock_is_started(void);
extern void snowflake_clock_start(TimestampTz newest);
extern bool snowflake_clock_is_believed(void);
extern int64 snowflake_clock_raised(TimestampTz newest);
extern SnowflakeVerdict snowflake_clock_judge(const SnowflakeClockReading *look);
extern SnowflakeClockState snowflake_clock_state(void);

/* The wall clock. */
static inline TimestampTz
snowflake_clock_wall(void)
{
	return GetCurrentTimestamp();
}

static inline int64
snowflake_clock_usec(clockid_t clock)
{
	struct timespec now;

	(void) clock_gettime(clock, &now);
	return (int64) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

/*
 * The monotonic clock, in microseconds since an arbitrary start.  Unlike instr_time, which may read
 * the processor's counter, it is slewed as the wall clock is.
 */
static inline int64
snowflake_clock_monotonic_usec(void)
{
	return snowflake_clock_usec(CLOCK_MONOTONIC);
}

#endif							/* SNOWFLAKE_CLOCK_H */
