/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The judge of the wall clock.
 *
 * A wall clock may lie in both directions.  What betrays it is the boot clock,
 * which nobody can set: at each look the distance between the two should be what
 * it was at the last one.  (Slewing changes the speed of both, at least on
 * Linux.)  If it is not, the wall clock was moved:
 *
 * - By up to snowflake.max_jump: believed.  IDs follow a step ahead at once.  A
 *	 step back would make mints wait, so the step is added to the clock they read,
 *	 and worn off at a twentieth of the speed of time: for them, the clock goes a
 *	 little slower for a while.
 *
 * - By more: not believed.  A jump is added with the opposite sign, and time goes
 *	 on as if nothing had happened: minting coasts.  If the clock returns, that was
 *	 all.  If the jump lasts for snowflake.jump_patience, or is accepted by an
 *	 administrator, it is believed: IDs follow it ahead, or mints wait for it.  A
 *	 jump ahead to where IDs have been before is believed at once: it ends a wait.
 *
 * The sum of both is the correction.  Only the keeper judges; it looks before it
 * reserves time and whenever a mint asks, and publishes the correction before it
 * publishes anything that was reckoned from it.  Uniqueness does not depend on
 * any of this: the clock only says how far the generator may jump ahead.
 *
 * The judge's memory is in shared memory, so it outlives the keeper.  It does not
 * outlive the server: the clock at its start is believed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef __linux__
#include <sys/timex.h>
#endif

#include "port/atomics.h"
#include "storage/shmem.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"

/* A look that is as precise as this need not be repeated. */
#define LOOK_PRECISION_USEC		200
#define LOOK_ATTEMPTS			10

/*
 * What counts as a step: more than the speeds of the clocks may differ, where
 * slewing does not change both, and than a look is precise.
 */
#define STEP_USEC(elapsed_usec, precision_usec) \
	(1000 + (elapsed_usec) / 1000 + (precision_usec))

/*
 * A step back is worn off by this part of the time that passes, and looked at so
 * often meanwhile that what is worn off from one look to the next is less than
 * the default of snowflake.max_lead: no mint waits for it.
 */
#define WEAR_DIVISOR			20
#define WEAR_LOOK_MS			40

/* How often to look at a jump that is not believed, without being asked. */
#define COAST_LOOK_MS			1000

typedef struct ClockMemory
{
	/* These are for the keeper only. */
	bool		known;			/* there was a look */
	int64		offset_usec;	/* wall clock less boot clock, as believed */
	int64		looked_usec;	/* when it was last looked at; boot clock */
	int64		ahead_usec;		/* of steps back, what is not worn off */
	int64		jumped_to_usec; /* "offset" after the jump that is coasted
								 * through */
	TimestampTz newest;			/* the newest ID's time at that look */

	/*
	 * The jump that is not believed, 0 if there is none, and when it was
	 * found, on the boot clock.  Only the keeper writes them, atomically;
	 * anybody may read them, for messages.
	 */
	pg_atomic_uint64 jump_usec;
	pg_atomic_uint64 jump_since_usec;

	/*
	 * The jump back that mints wait for, since it was believed: by how much,
	 * 0 if the clock is past the newest ID, and when it was found.  Likewise.
	 */
	pg_atomic_uint64 back_usec;
	pg_atomic_uint64 back_since_usec;
} ClockMemory;

/* NULL if the library was not preloaded. */
static ClockMemory *memory = NULL;

/* Shared memory to request. */
Size
snowflake_clock_size(void)
{
	return MAXALIGN(sizeof(ClockMemory));
}

/* Find the memory, or make it.  The caller holds AddinShmemInitLock. */
void
snowflake_clock_attach(void)
{
	bool		found;

	memory = ShmemInitStruct("snowflake clock", snowflake_clock_size(), &found);
	if (found)
		return;
	memset(memory, 0, sizeof(*memory));
	pg_atomic_init_u64(&memory->jump_usec, 0);
	pg_atomic_init_u64(&memory->jump_since_usec, 0);
	pg_atomic_init_u64(&memory->back_usec, 0);
	pg_atomic_init_u64(&memory->back_since_usec, 0);
}

/* Look at both clocks, as precisely as a few attempts allow. */
void
snowflake_clock_read(SnowflakeClockReading *look)
{
	look->precision_usec = PG_INT64_MAX;
	for (int i = 0; i < LOOK_ATTEMPTS; i++)
	{
		int64		before = snowflake_clock_usec(CLOCK_BOOTTIME);
		TimestampTz wall = snowflake_clock_wall();
		int64		took = snowflake_clock_usec(CLOCK_BOOTTIME) - before;

		if (took < look->precision_usec)
		{
			look->wall = wall;
			look->boot_usec = before;
			look->precision_usec = took;
		}
		if (took <= LOOK_PRECISION_USEC)
			break;
	}
}

static int64
get_jump(void)
{
	return (int64) pg_atomic_read_u64(&memory->jump_usec);
}

static void
set_jump(int64 jump_usec)
{
	pg_atomic_write_u64(&memory->jump_usec, (uint64) jump_usec);
}

static int64
jump_lasted(int64 boot_usec)
{
	return boot_usec - (int64) pg_atomic_read_u64(&memory->jump_since_usec);
}

/* The clock has moved by this much since the last look, and is believed. */
static void
believe_step(const SnowflakeClockReading *look, TimestampTz newest, int64 moved_usec,
			 SnowflakeVerdict *verdict)
{
	int64		elapsed_usec = look->boot_usec - memory->looked_usec;

	if (get_jump() != 0)
	{
		verdict->news = CLOCK_RETURNED;
		verdict->moved_usec = get_jump();
		verdict->lasted_usec = jump_lasted(look->boot_usec);
		set_jump(0);
	}
	else if (i64abs(moved_usec) > STEP_USEC(elapsed_usec, look->precision_usec))
	{
		verdict->news = CLOCK_STEPPED;
		verdict->moved_usec = moved_usec;
	}

	/*
	 * A step ahead takes back one that was added before, but for what mints
	 * have used of both until this look: they would have to wait for that.
	 * What is slow is not added: a mint waits less for it than it would take
	 * to wear off.
	 */
	memory->ahead_usec = Max(memory->ahead_usec - elapsed_usec / WEAR_DIVISOR, 0);
	if (moved_usec > 0)
		memory->ahead_usec = Max(memory->ahead_usec - moved_usec,
								 Min(memory->ahead_usec, newest - look->wall));
	else if (verdict->news != CLOCK_NO_NEWS)
		memory->ahead_usec -= moved_usec;
	memory->ahead_usec = Max(memory->ahead_usec, 0);
	memory->ahead_usec = Min(memory->ahead_usec,
							 snowflake_max_jump_ms * INT64CONST(1000));
	memory->offset_usec += moved_usec;
}

/*
 * Judge the wall clock by a look at both clocks.  With "accept" it is believed,
 * whatever it says.  So is a jump that leads no further ahead than IDs had been at
 * the last look, before it could have misled them: "newest" is the time of the
 * newest.  Only the keeper.
 */
SnowflakeVerdict
snowflake_clock_judge(const SnowflakeClockReading *look, TimestampTz newest, bool accept)
{
	SnowflakeVerdict verdict = {0};
	int64		max_jump_usec = snowflake_max_jump_ms * INT64CONST(1000);
	int64		offset_usec = look->wall - look->boot_usec;
	int64		moved_usec;

	if (!memory->known)
	{
		memory->known = true;
		memory->offset_usec = offset_usec;
		memory->looked_usec = look->boot_usec;
	}

	moved_usec = offset_usec - memory->offset_usec;
	if (i64abs(moved_usec) <= max_jump_usec)
		believe_step(look, newest, moved_usec, &verdict);
	else if (get_jump() == 0 ||
			 i64abs(offset_usec - memory->jumped_to_usec) > max_jump_usec)
	{
		/* a jump, or another one: it has yet to last */
		verdict.news = CLOCK_JUMPED;
		verdict.moved_usec = moved_usec;
		memory->jumped_to_usec = offset_usec;
		set_jump(moved_usec);
		pg_atomic_write_u64(&memory->jump_since_usec, (uint64) look->boot_usec);
	}

	if (get_jump() != 0 &&
		(accept ||
		 (moved_usec > 0 && look->wall <= memory->newest + max_jump_usec) ||
		 jump_lasted(look->boot_usec) >= snowflake_jump_patience_ms * INT64CONST(1000)))
	{
		verdict.news = verdict.news == CLOCK_JUMPED ? CLOCK_STEPPED : CLOCK_BELIEVED;
		verdict.moved_usec = moved_usec;
		verdict.lasted_usec = jump_lasted(look->boot_usec);
		pg_atomic_write_u64(&memory->back_since_usec,
							pg_atomic_read_u64(&memory->jump_since_usec));
		pg_atomic_write_u64(&memory->back_usec, Max(-moved_usec, 0));
		memory->offset_usec = offset_usec;
		set_jump(0);
		memory->ahead_usec = 0;
	}
	if (newest <= look->wall)
		pg_atomic_write_u64(&memory->back_usec, 0);
	if (accept)
		memory->ahead_usec = 0;
	memory->looked_usec = look->boot_usec;
	memory->newest = newest;

	verdict.correction_usec = memory->ahead_usec;
	if (get_jump() != 0)
	{
		set_jump(moved_usec);
		verdict.correction_usec -= moved_usec;
		verdict.look_again_ms = COAST_LOOK_MS;
	}
	else if (memory->ahead_usec > 0)
		verdict.look_again_ms = WEAR_LOOK_MS;
	return verdict;
}

/*
 * Is there a jump that is not believed?  By how much, and for how long.  For
 * messages.
 */
bool
snowflake_clock_jump(int64 *jump_usec, int64 *lasted_usec)
{
	if (memory == NULL || get_jump() == 0)
		return false;
	*jump_usec = get_jump();
	*lasted_usec = jump_lasted(snowflake_clock_usec(CLOCK_BOOTTIME));
	return true;
}

/*
 * Has the clock gone back to where IDs have been, and was believed?  By how much,
 * and how long ago.  For messages.
 */
bool
snowflake_clock_went_back(int64 *back_usec, int64 *ago_usec)
{
	*back_usec = memory == NULL ? 0 : (int64) pg_atomic_read_u64(&memory->back_usec);
	if (*back_usec == 0)
		return false;
	*ago_usec = snowflake_clock_usec(CLOCK_BOOTTIME) -
		(int64) pg_atomic_read_u64(&memory->back_since_usec);
	return true;
}

/*
 * What the kernel thinks of its clock: is it synchronized, and by how much may it
 * be wrong (maxerror of adjtimex(2), which grows by 500 ppm unless a time daemon
 * tells better).  False where the kernel cannot be asked.
 */
bool
snowflake_clock_error(bool *synchronized, int64 *error_usec)
{
#ifdef __linux__
	struct timex timex = {0};
	int			state = adjtimex(&timex);

	if (state < 0)
		return false;
	*synchronized = state != TIME_ERROR && (timex.status & STA_UNSYNC) == 0;
	*error_usec = timex.maxerror;
	return true;
#else
	return false;
#endif
}
