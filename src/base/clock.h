/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The only reader of the clocks, and the judge of the wall clock.
 *
 * Everything else takes the time as an argument.  Three clocks matter: the wall
 * clock, which dates the IDs and can be stepped at any time; the boot
 * clock, which cannot, and goes on while the machine is suspended; and the
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

/* The wall clock and the boot clock at (nearly) the same instant. */
typedef struct SnowflakeClockReading
{
	TimestampTz wall;
	int64		boot_usec;
	int64		precision_usec; /* how far they may be apart */
} SnowflakeClockReading;

/* What the judge found new at a look. */
typedef enum SnowflakeClockNews
{
	CLOCK_NO_NEWS,
	CLOCK_STEPPED,				/* and is believed at once */
	CLOCK_JUMPED,				/* by more: not believed yet */
	CLOCK_RETURNED,				/* it is where it was before the jump */
	CLOCK_BELIEVED				/* the jump has lasted, or was accepted */
} SnowflakeClockNews;

/* The newest ID's time where there is none. */
#define SNOWFLAKE_CLOCK_NEVER	(-(INT64CONST(1) << 60))

#define SNOWFLAKE_MACHINE_SIZE	80
#define SNOWFLAKE_POSTMASTER_SIZE	40

/* The line that IDs follow, as it is kept with a reservation. */
typedef struct SnowflakeClockLine
{
	char		machine[SNOWFLAKE_MACHINE_SIZE];	/* and its boot; "":
													 * unknown */
	char		postmaster[SNOWFLAKE_POSTMASTER_SIZE];	/* which kept it */
	int64		looked_usec;	/* on its boot clock */
	int64		offset_usec;	/* from that to the clock that was believed */
} SnowflakeClockLine;

/* What the judge is told, beside a look. */
typedef struct SnowflakeClockFacts
{
	TimestampTz newest;			/* time of the newest ID that there may be */
	bool		possible;		/* the layout has the clock's tick */
	bool		accept;			/* an administrator believes the clock */
	int64		slack_usec;		/* what IDs may be ahead of any clock */
} SnowflakeClockFacts;

typedef struct SnowflakeVerdict
{
	int64		correction_usec;	/* to be added to the wall clock */
	int64		allowed_usec;	/* how far IDs may stand ahead of that */
	SnowflakeClockNews news;
	int64		moved_usec;		/* by how much the clock stepped or jumped */
	int64		lasted_usec;	/* how long a jump has been coasted through */
	int64		unproven_usec;	/* a clock so far past the newest ID is
								 * believed for want of anything to compare
								 * with */
	long		look_again_ms;	/* 0: when there is a reason to */
} SnowflakeVerdict;

extern Size snowflake_clock_size(void);
extern void snowflake_clock_attach(void);
extern void snowflake_clock_read(SnowflakeClockReading *look);
extern SnowflakeVerdict snowflake_clock_judge(const SnowflakeClockReading *look,
											  const SnowflakeClockFacts *facts);
extern bool snowflake_clock_is_started(void);
extern void snowflake_clock_start(TimestampTz newest, const SnowflakeClockLine *kept);
extern bool snowflake_clock_is_believed(void);
extern void snowflake_clock_line(SnowflakeClockLine *line);
extern int64 snowflake_clock_raised(TimestampTz newest);
extern bool snowflake_clock_is_doubted(int64 *past_newest_usec, int64 *wait_usec);
extern bool snowflake_clock_jump(int64 *jump_usec, int64 *lasted_usec);
extern int64 snowflake_clock_wait_usec(int64 excess_usec);
extern bool snowflake_clock_went_back(int64 *back_usec, int64 *ago_usec);
extern bool snowflake_clock_error(bool *synchronized, int64 *error_usec);

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
 * The monotonic clock, in microseconds since an arbitrary start.
 *
 * Not by instr_time, which may read the processor's counter instead: slewing
 * changes the speed of this clock as it does that of the wall clock.
 */
static inline int64
snowflake_clock_monotonic_usec(void)
{
	return snowflake_clock_usec(CLOCK_MONOTONIC);
}

#endif							/* SNOWFLAKE_CLOCK_H */
