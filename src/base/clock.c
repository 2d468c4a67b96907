/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The judge of the wall clock.
 *
 * A wall clock may be wrong in both directions.  The boot clock, which cannot be
 * set, betrays it.  (Slewing changes the speed of both, at least on Linux.)
 * The rule:
 *
 * 1. IDs follow a line: the boot clock plus an offset.  A mint takes last + 1, or
 *	  the line's tick if that is later.
 *
 * 2. A wall clock within snowflake.max_jump of "home" moves the line immediately.  Home
 *	  follows the line by max_jump per snowflake.jump_patience, so that small steps
 *	  add up to a jump.
 *
 * 3. One that is farther off has jumped, and is coasted through: time goes on as if
 *	  nothing had happened, until the clock returns, or the jump has lasted for
 *	  jump_patience, or an administrator accepts it.
 *
 * 4. Where the clock that is believed is behind the IDs (it was set back, the server
 *	  crashed, snowflake_advance() was called), IDs stand: they go on at last + 1.
 *	  They may be ahead by an allowance: at most the lead that there is, which falls
 *	  as time passes, and if they do not let it fall, by a twentieth of the time; and
 *	  at most snowflake.max_ahead, but for steps by up to max_jump.  Beyond it mints
 *	  wait, or are refused.
 *
 * 5. Where IDs stand by more than max_jump, or are refused, a clock is believed at
 *	  once if it is not past where IDs would be by the boot clock: it ends a stand.
 *
 * 6. The line is kept in the reservation's row.  At a start with the line of this
 *	  boot of this machine the first look is an ordinary one; but a clock that is ahead of
 *	  the line is believed, unless this postmaster kept the line.  Otherwise there is
 *	  nothing to compare with but the newest ID, and any clock from max_ahead before it
 *	  on is believed.  Until there is an ID of it, each look is like the first; but
 *	  then a clock that is more than a day past the newest ID needs patience.
 *
 * 7. A clock outside the layout is never believed, and nothing is reserved by it.
 *
 * Uniqueness does not depend on any of this: the line only says how far the generator
 * may jump ahead, and the allowance how far behind "last" the line may be; neither
 * lowers "last".  That alone makes it survive these cases:
 *
 * - A mint reads the correction and the allowance one after the other, while the
 *	 keeper writes them, or reads the wall clock before a step and the correction after
 *	 the keeper's look at it.  The sum may be wrong by the step: then the mint takes a
 *	 position that is up to that far ahead, if it is reserved, or waits and looks again.
 *
 * - The keeper dies between a look and its commit, or the server between a belief and
 *	 the row: the row has the older line.  The next look finds a jump, and coasts.
 *
 * - A standby, a clone or a backup elsewhere has the row of another machine, and a
 *	 reboot that of another boot: it does not count.  A machine that was taken back to a
 *	 snapshot of itself may have a look in its future: it does not count.
 *
 * - A copy of the files on the same machine, or a point-in-time recovery there, has an
 *	 earlier row, and so an earlier line.  What was minted since is unknown to it, and
 *	 lies behind a clock that is right.  If the clock was set ahead in between, and IDs
 *	 followed the old line, they would meet those again.  So a clock that is ahead of
 *	 the line is believed at a start, as it is without a line.  A line that is ahead
 *	 of the clock only makes IDs larger.  After a crash restart the files are those that
 *	 the same postmaster wrote, and everything that was minted is known.
 *
 * The worst that a wrong line can cause is that a jump back is coasted through.
 * test/model/line.pml is a model of the kept line, which is checked exhaustively.
 *
 * Only the keeper judges; it looks before it reserves time and whenever a mint asks,
 * and publishes before it publishes anything that was reckoned from it.  The judge's
 * memory is in shared memory, so it outlives the keeper.  The file is long because the
 * rule is to be checked in one place.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef __linux__
#include <sys/timex.h>
#include <unistd.h>
#endif

#include "miscadmin.h"
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
 * slewing does not change both, and than a look is precise.  On Linux it does change both,
 * or a jump after hours without a look would be none; there the bound is for the look before.
 */
#ifdef __linux__
#define MOST_DRIFT_USEC		INT64CONST(100000)
#else
#define MOST_DRIFT_USEC		PG_INT64_MAX
#endif
#define STEP_USEC(elapsed_usec, precision_usec) \
	(1000 + Min((elapsed_usec) / 1000, MOST_DRIFT_USEC) + (precision_usec))

/*
 * What IDs may be ahead wears off by this part of the time that passes, and is looked
 * at so often, if they use all of it, that what wears off from one look to the next
 * is less than the default of snowflake.max_lead: no mint waits for it.
 */
#define WEAR_DIVISOR			20
#define WEAR_LOOK_MS			40

/* How often to look at a clock that is not believed, or behind, without being asked. */
#define COAST_LOOK_MS			1000

/* How often to do so where nothing is minted before there is one to be believed. */
#define DOUBT_LOOK_MS			100

/* Of a boot of which nothing is known, what is no more than this past the newest ID. */
#define PLAUSIBLE_USEC			USECS_PER_DAY

typedef struct ClockMemory
{
	/* These are for the keeper only. */
	bool		started;		/* there was a start */
	bool		known;			/* there is a line */
	bool		first;			/* no look yet, and no line from before */
	bool		restarted;		/* a line of another postmaster, that no look
								 * has met */
	bool		untried;		/* nothing compares with a clock but the
								 * newest ID */
	bool		jumping;		/* there is a jump that is not believed */
	int64		offset_usec;	/* the line: to be added to the boot clock */
	bool		has_home;
	int64		home_usec;		/* what "offset" is compared with */
	int64		looked_usec;	/* when it was last looked at; boot clock */
	int64		allowed_usec;	/* how far IDs may stand ahead of the line */
	int64		max_ahead_usec; /* snowflake.max_ahead at the last look */
	int64		jumped_to_usec; /* "offset" after the jump */
	int64		own_usec;		/* where IDs would be, had they gone on by the
								 * boot clock: an offset as well */
	TimestampTz newest;			/* the newest ID's time at that look */
	TimestampTz newest_at_start;

	/*
	 * The jump that is not believed, 0 if there is none, and when it was
	 * found, on the boot clock.  Only the keeper writes them, atomically;
	 * anybody may read them, for messages.
	 */
	pg_atomic_uint64 jump_usec;
	pg_atomic_uint64 jump_since_usec;

	/*
	 * The step or jump back for which IDs stand, or mints wait, since it was
	 * believed: by how much, 0 if the clock is past the newest ID, and when
	 * it was found.  Likewise.
	 */
	pg_atomic_uint64 back_usec;
	pg_atomic_uint64 back_since_usec;

	/*
	 * After a start, no clock has been believed yet: what was wrong with the
	 * last, that is, how far it was past the newest ID; 0 otherwise.
	 * Likewise.
	 */
	pg_atomic_uint64 past_newest_usec;
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
	pg_atomic_init_u64(&memory->past_newest_usec, 0);
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

static int64
jump_lasted(int64 boot_usec)
{
	return boot_usec - (int64) pg_atomic_read_u64(&memory->jump_since_usec);
}

static int64
max_jump_usec(void)
{
	return snowflake_max_jump_ms * INT64CONST(1000);
}

static int64
max_ahead_usec(void)
{
	return snowflake_max_ahead_s * USECS_PER_SEC;
}

static int64
clamp(int64 value, int64 least, int64 most)
{
	return value < least ? least : value > most ? most : value;
}

/*
 * This boot of this machine, or rather of whatever has this boot clock: "" if that
 * cannot be told.
 */
static const char *
this_machine(void)
{
	static char machine[SNOWFLAKE_MACHINE_SIZE] = "";
#ifdef __linux__
	FILE	   *file = machine[0] == '\0' ? fopen("/proc/sys/kernel/random/boot_id", "r") : NULL;

	if (file != NULL)
	{
		char		boot[40] = "";
		char		namespace[40] = "";

		/* where there are no namespaces of time, there is one time */
		if (readlink("/proc/self/ns/time", namespace, sizeof(namespace) - 1) < 0)
			namespace[0] = '\0';
		if (fscanf(file, "%39s", boot) == 1)
			snprintf(machine, sizeof(machine), "%s %s", boot, namespace);
		fclose(file);
	}
#endif
	return machine;
}

/* This postmaster: a process ID comes again, but not at the same time. */
static const char *
this_postmaster(void)
{
	static char postmaster[SNOWFLAKE_POSTMASTER_SIZE];

	snprintf(postmaster, sizeof(postmaster), "%d " INT64_FORMAT, PostmasterPid, PgStartTime);
	return postmaster;
}

/* Was there a start?  Only the keeper, as for all that follows. */
bool
snowflake_clock_is_started(void)
{
	return memory->started;
}

/*
 * Begin to judge, with the time of the newest ID that there may be and what was kept
 * with it.  Without IDs it is SNOWFLAKE_CLOCK_NEVER.
 */
void
snowflake_clock_start(TimestampTz newest, const SnowflakeClockLine *kept)
{
	int64		boot_usec = snowflake_clock_usec(CLOCK_BOOTTIME);

	memory->started = true;
	memory->newest = newest;
	memory->newest_at_start = newest;
	memory->looked_usec = boot_usec;
	memory->max_ahead_usec = max_ahead_usec();
	if (kept->machine[0] != '\0' && strcmp(kept->machine, this_machine()) == 0 &&
		kept->looked_usec <= boot_usec)
	{
		memory->known = memory->has_home = true;
		memory->restarted = strcmp(kept->postmaster, this_postmaster()) != 0;
		memory->offset_usec = memory->home_usec = kept->offset_usec;
		memory->allowed_usec = clamp(newest - (kept->offset_usec + boot_usec),
									 0, max_ahead_usec());
		memory->own_usec = newest - kept->looked_usec;
		return;
	}
	memory->first = memory->untried = true;
	memory->own_usec = newest == SNOWFLAKE_CLOCK_NEVER ? PG_INT64_MAX / 2 :
		newest + PLAUSIBLE_USEC - boot_usec;
}

/* Is there a line to follow? */
bool
snowflake_clock_is_believed(void)
{
	return memory->known;
}

/* What is to be kept with a reservation. */
void
snowflake_clock_line(SnowflakeClockLine *line)
{
	memset(line, 0, sizeof(*line));
	if (!memory->known)
		return;
	strlcpy(line->machine, this_machine(), sizeof(line->machine));
	strlcpy(line->postmaster, this_postmaster(), sizeof(line->postmaster));
	line->looked_usec = memory->looked_usec;
	line->offset_usec = memory->offset_usec;
}

/*
 * The newest ID's time was set, by an opening of the gate or snowflake_advance(): from
 * here on IDs stand, if they are ahead.  Returns what they may be ahead.
 */
int64
snowflake_clock_raised(TimestampTz newest)
{
	int64		lead_usec = newest - (memory->offset_usec + memory->looked_usec);

	if (!memory->known)
		return 0;
	if (newest != memory->newest)
		memory->own_usec = newest - memory->looked_usec;
	memory->newest = newest;
	if (lead_usec > memory->allowed_usec)
		memory->allowed_usec = Max(memory->allowed_usec, clamp(lead_usec, 0, max_ahead_usec()));
	return memory->allowed_usec;
}

/* From now on the line is where this look at the clock says. */
static void
believe(const SnowflakeClockReading *look, int64 most_usec, SnowflakeVerdict *verdict)
{
	int64		offset_usec = look->wall - look->boot_usec;
	int64		moved_usec = offset_usec - memory->offset_usec;
	int64		lead_usec = memory->newest - look->wall;

	if (memory->jumping)
	{
		verdict->news = verdict->news == CLOCK_JUMPED ? CLOCK_STEPPED : CLOCK_BELIEVED;
		verdict->lasted_usec = jump_lasted(look->boot_usec);
	}
	else if (memory->known)
		verdict->news = CLOCK_STEPPED;
	if (memory->known)
		verdict->moved_usec = moved_usec;

	if (!memory->known || moved_usec < 0)
	{
		memory->allowed_usec = clamp(lead_usec, 0, most_usec);
		if (memory->known)
		{
			pg_atomic_write_u64(&memory->back_since_usec,
								memory->jumping ? pg_atomic_read_u64(&memory->jump_since_usec) :
								(uint64) look->boot_usec);
			pg_atomic_write_u64(&memory->back_usec, (uint64) -moved_usec);
		}
	}
	else
		memory->allowed_usec = Min(memory->allowed_usec, Max(lead_usec, 0));
	if (!memory->has_home || i64abs(offset_usec - memory->home_usec) > max_jump_usec())
		memory->home_usec = offset_usec;
	memory->has_home = memory->known = true;
	memory->offset_usec = offset_usec;
	memory->jumping = false;
	if (memory->untried && memory->newest != SNOWFLAKE_CLOCK_NEVER &&
		lead_usec <= -PLAUSIBLE_USEC)
		verdict->unproven_usec = -lead_usec;
}

/* The clock is elsewhere, and not believed: unless it was there already, since now. */
static void
jump(const SnowflakeClockReading *look, int64 moved_usec, SnowflakeVerdict *verdict)
{
	int64		offset_usec = look->wall - look->boot_usec;

	if (memory->jumping && i64abs(offset_usec - memory->jumped_to_usec) <= max_jump_usec())
		return;
	if (memory->known)
	{
		verdict->news = CLOCK_JUMPED;
		verdict->moved_usec = moved_usec;
	}
	memory->jumping = true;
	memory->jumped_to_usec = offset_usec;
	pg_atomic_write_u64(&memory->jump_since_usec, (uint64) look->boot_usec);
}

/* What a time that has passed changes: home, and what IDs may be ahead. */
static void
pass_time(int64 boot_usec, int64 elapsed_usec, const SnowflakeClockFacts *facts)
{
	int64		lead_usec = memory->newest - (memory->offset_usec + boot_usec);
	double		patience_usec = Max(snowflake_jump_patience_ms, 1) * 1000.0;
	int64		follow_usec = (int64) Min(elapsed_usec * (max_jump_usec() / patience_usec), 1e17);

	memory->home_usec += clamp(memory->offset_usec - memory->home_usec,
							   -follow_usec, follow_usec);

	/* where mints are refused, it is time that pays */
	if (lead_usec <= memory->allowed_usec + facts->slack_usec)
	{
		memory->allowed_usec = Max(memory->allowed_usec - elapsed_usec / WEAR_DIVISOR, 0);
		memory->allowed_usec = Min(memory->allowed_usec, Max(lead_usec, 0));
	}
	memory->allowed_usec = Min(memory->allowed_usec, Max(max_ahead_usec(), max_jump_usec()));

	/* one that was raised is for IDs that are refused as well */
	if (max_ahead_usec() > memory->max_ahead_usec)
		memory->allowed_usec = Max(clamp(lead_usec, 0, max_ahead_usec()), memory->allowed_usec);
	memory->max_ahead_usec = max_ahead_usec();
}

/* Judge a clock where there is a line. */
static void
judge_by_line(const SnowflakeClockReading *look, int64 elapsed_usec,
			  const SnowflakeClockFacts *facts, SnowflakeVerdict *verdict)
{
	int64		offset_usec = look->wall - look->boot_usec;
	int64		moved_usec = offset_usec - memory->offset_usec;
	int64		lead_usec = memory->newest - (memory->offset_usec + look->boot_usec);
	bool		stands = memory->allowed_usec > max_jump_usec() ||
	lead_usec > memory->allowed_usec + facts->slack_usec;

	if (i64abs(moved_usec) <= STEP_USEC(elapsed_usec, look->precision_usec))
	{
		if (memory->jumping)
		{
			verdict->news = CLOCK_RETURNED;
			verdict->moved_usec = get_jump();
			verdict->lasted_usec = jump_lasted(look->boot_usec);
		}
		memory->offset_usec = offset_usec;
		memory->jumping = false;
	}
	else if (facts->possible &&
			 i64abs(offset_usec - memory->home_usec) <= max_jump_usec())
	{
		bool		returned = memory->jumping;
		int64		jump_usec = get_jump();

		/* a step back is no reason to pass on more of a lead than itself */
		believe(look, Max(max_ahead_usec(),
						  Min(max_jump_usec(), memory->allowed_usec + i64abs(moved_usec))), verdict);
		if (returned)
		{
			verdict->news = CLOCK_RETURNED;
			verdict->moved_usec = jump_usec;
		}
	}
	else if (facts->possible && moved_usec > 0 &&
			 (memory->restarted ||
			  (stands && offset_usec <= memory->own_usec + USECS_PER_SEC)))
		believe(look, max_ahead_usec(), verdict);
	else
		jump(look, moved_usec, verdict);
}

/* Judge a clock where there is nothing to compare it with but the newest ID. */
static void
judge_by_newest(const SnowflakeClockReading *look, const SnowflakeClockFacts *facts,
				SnowflakeVerdict *verdict)
{
	bool		never = memory->newest == SNOWFLAKE_CLOCK_NEVER;

	if (facts->possible &&
		(facts->accept || never ||
		 (look->wall >= memory->newest - Max(max_ahead_usec(), facts->slack_usec) &&
		  (memory->first || look->wall <= memory->newest + PLAUSIBLE_USEC))))
		believe(look, max_ahead_usec(), verdict);
	else
	{
		jump(look, 0, verdict);
		memory->first = false;
	}
}

/*
 * Judge the wall clock by a look at both clocks.  With facts->accept it is believed,
 * unless it is outside of the layout.
 */
SnowflakeVerdict
snowflake_clock_judge(const SnowflakeClockReading *look, const SnowflakeClockFacts *facts)
{
	SnowflakeVerdict verdict = {0};
	int64		offset_usec = look->wall - look->boot_usec;
	int64		elapsed_usec = look->boot_usec - memory->looked_usec;
	TimestampTz newest = facts->newest == SNOWFLAKE_CLOCK_NEVER ? memory->newest : facts->newest;
	bool		is_new = newest > memory->newest;

	/* where IDs would be, had they gone on */
	if (is_new)
		memory->own_usec = memory->allowed_usec > 0 && memory->newest != SNOWFLAKE_CLOCK_NEVER ?
			Max(newest - look->boot_usec, memory->own_usec) : newest - look->boot_usec;
	memory->newest = newest;
	memory->looked_usec = look->boot_usec;

	/* no ID is of it yet: it may as well be forgotten */
	if (memory->known && memory->untried && newest == memory->newest_at_start &&
		i64abs(offset_usec - memory->offset_usec) > max_jump_usec())
		memory->known = memory->first = memory->jumping = memory->has_home = false;
	else if (newest != memory->newest_at_start)
		memory->untried = false;

	if (memory->known)
	{
		pass_time(look->boot_usec, elapsed_usec, facts);
		judge_by_line(look, elapsed_usec, facts, &verdict);
		memory->restarted = memory->restarted && memory->jumping;
	}
	else
		judge_by_newest(look, facts, &verdict);

	if (memory->jumping && facts->possible && (memory->known || look->wall > newest) &&
		(facts->accept ||
		 jump_lasted(look->boot_usec) >= snowflake_jump_patience_ms * INT64CONST(1000)))
		believe(look, max_ahead_usec(), &verdict);

	if (newest <= look->wall)
		pg_atomic_write_u64(&memory->back_usec, 0);
	pg_atomic_write_u64(&memory->jump_usec, memory->jumping && memory->known ?
						(uint64) (offset_usec - memory->offset_usec) : 0);
	pg_atomic_write_u64(&memory->past_newest_usec, memory->known ? 0 :
						(uint64) (look->wall == newest ? 1 : look->wall - newest));

	if (!memory->known)
	{
		verdict.look_again_ms = DOUBT_LOOK_MS;
		return verdict;
	}
	verdict.correction_usec = memory->offset_usec - offset_usec;
	verdict.allowed_usec = memory->allowed_usec;
	if (memory->allowed_usec > 0)
		verdict.look_again_ms =
			newest - (memory->offset_usec + look->boot_usec) >= memory->allowed_usec ?
			WEAR_LOOK_MS : COAST_LOOK_MS;
	if (memory->jumping && verdict.look_again_ms == 0)
		verdict.look_again_ms = COAST_LOOK_MS;
	return verdict;
}

/*
 * Has no clock been believed since the server's start?  How far the last one was past
 * the newest ID, and in how long it may be believed, if it goes on.  For messages.
 */
bool
snowflake_clock_is_doubted(int64 *past_newest_usec, int64 *wait_usec)
{
	int64		lasted_usec;

	*past_newest_usec = memory == NULL ? 0 :
		(int64) pg_atomic_read_u64(&memory->past_newest_usec);
	if (*past_newest_usec == 0)
		return false;
	lasted_usec = jump_lasted(snowflake_clock_usec(CLOCK_BOOTTIME));
	*wait_usec = *past_newest_usec > 0 ?
		Max(snowflake_jump_patience_ms * INT64CONST(1000) - lasted_usec, 0) :
		Max(-*past_newest_usec - max_ahead_usec(), 0);
	return true;
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
 * In how long will what IDs follow be so much further, if the clock goes on as it does?
 * A jump ahead that is coasted through shortens that, once it has lasted long enough.
 */
int64
snowflake_clock_wait_usec(int64 excess_usec)
{
	int64		jump_usec,
				lasted_usec;

	if (!snowflake_clock_jump(&jump_usec, &lasted_usec) || jump_usec <= 0)
		return excess_usec;
	return Min(excess_usec,
			   Max(snowflake_jump_patience_ms * INT64CONST(1000) - lasted_usec,
				   Max(excess_usec - jump_usec, 0)));
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
