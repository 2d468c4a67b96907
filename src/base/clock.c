/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The judge of the wall clock.
 *
 * A wall clock may be wrong in both directions.  The boot clock, which cannot be set, shows
 * when it is set.  (Slewing changes the speed of both, at least on Linux.)  The rules:
 *
 * 1. A start believes the clock, unless it is behind the newest ID that there may be by more
 *	  than snowflake.max_ahead and what a crash explains.  Then nothing is minted until the clock
 *	  has caught up or an administrator accepts it; a clock that is then more than a day past
 *	  that ID must have lasted for snowflake.jump_patience.  A clock outside of the layout is
 *	  never believed, and before the first ID ever, neither is a clock from before this release.
 *
 * 2. A clock that moved by at most snowflake.max_jump is followed.  A larger jump is coasted
 *	  through, on the boot clock, until the clock returns, an administrator accepts it, or it has
 *	  lasted for jump_patience; a jump ahead must last for a thousandth of its length if that is
 *	  longer.  But while the believed clock has no ID yet, or none can be minted by it, another
 *	  clock is believed at once if it is nearer to the newest ID or within a day of it.
 *
 * 3. If the believed clock is behind the IDs, IDs run ahead: they go on at last + 1, ahead by
 *	  at most the lead that they had at that moment, which only falls, and by at most max_ahead.
 *	  Beyond that, mints wait or are refused.
 *
 * Uniqueness and order do not depend on any of this: the correction only says how far the
 * generator may jump ahead, and the allowance how far behind "last" the clock may be; neither
 * lowers "last".  That alone makes it survive these cases:
 *
 * - A mint reads the correction and the allowance one after the other, while the keeper writes
 *	 them, or reads the wall clock before a step and the correction after the keeper's look at
 *	 it.  The sum may be wrong by the step: then the mint takes a position that is up to that
 *	 far ahead, if it is reserved, or waits and looks again.
 *
 * - The keeper dies after a look.  The judge's memory is in shared memory.
 *
 * - The server dies, or a copy of its files starts elsewhere.  Nothing of this is kept, so the IDs
 *	 of a copy that was restored to an earlier point are above those that it does not know, if
 *	 the clock is past them.
 *
 * Only the keeper judges, before it reserves time and whenever a mint asks, and it publishes the
 * result before anything that follows from it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/shmem.h"
#include "storage/spin.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"

/* The smallest step that is reported: more than slewing and an imprecise reading explain */
#define STEP_USEC(elapsed_usec, precision_usec) \
	(1000 + Min((elapsed_usec) / 1000, 100000) + (precision_usec))

/* How often to read a clock that is coasted through or behind the IDs, or that is refused */
#define COAST_LOOK_MS			1000
#define REFUSED_LOOK_MS			100

/* How far past the newest ID a clock may be without being doubted */
#define PLAUSIBLE_USEC			USECS_PER_DAY

#define MAX_AHEAD_USEC			(snowflake_max_ahead_s * USECS_PER_SEC)

typedef struct ClockMemory
{
	/* For the keeper only. */
	bool		known;			/* a clock is believed */
	bool		jumping;		/* there is one that is not */
	int64		offset_usec;	/* of the believed clock from the boot clock */
	int64		jumped_to_usec; /* of the other one ... */
	int64		since_usec;		/* ... since then; boot clock */
	int64		looked_usec;	/* when it was last looked at, boot clock; 0:
								 * there was no start yet */
	int64		allowed_usec;	/* how far IDs may run ahead of the former */
	TimestampTz newest;			/* the newest ID's time at that look */
	TimestampTz newest_then;	/* and when this clock was first believed */
	TimestampTz proven_from;	/* an ID of this time shows that it is right */

	/* The state for other processes' messages.  Protected by the mutex. */
	slock_t		mutex;
	SnowflakeClockState state;
} ClockMemory;

/* NULL if the library was not preloaded. */
static ClockMemory *memory = NULL;

Size
snowflake_clock_size(void)
{
	return MAXALIGN(sizeof(ClockMemory));
}

void
snowflake_clock_attach(void)
{
	bool		found;

	memory = ShmemInitStruct("snowflake clock", snowflake_clock_size(), &found);
	if (found)
		return;
	memset(memory, 0, sizeof(*memory));
	SpinLockInit(&memory->mutex);
}

/* Read both clocks.  The precision is measured: this process may lose the processor in between. */
void
snowflake_clock_read(SnowflakeClockReading *look)
{
	look->boot_usec = snowflake_clock_usec(CLOCK_BOOTTIME);
	look->wall = snowflake_clock_wall();
	look->precision_usec = snowflake_clock_usec(CLOCK_BOOTTIME) - look->boot_usec;
}

/* Has judging begun?  Only the keeper calls this and all that follows, up to the judge. */
bool
snowflake_clock_is_started(void)
{
	return memory->looked_usec != 0;
}

/*
 * Begin to judge, with the time of the newest ID that there may be, or SNOWFLAKE_CLOCK_NEVER.
 * While no clock is believed, that time may change with the node ID.
 */
void
snowflake_clock_start(TimestampTz newest)
{
	memory->newest = newest;
	memory->looked_usec = snowflake_clock_usec(CLOCK_BOOTTIME);
}

bool
snowflake_clock_is_believed(void)
{
	return memory->known;
}

/* IDs are ahead by lead_usec: allow that, but no more than before unless the lead is new. */
static void
run_ahead(int64 lead_usec, bool is_new)
{
	if (!is_new)
		lead_usec = Min(lead_usec, memory->allowed_usec);
	memory->allowed_usec = Max(Min(lead_usec, MAX_AHEAD_USEC), 0);
}

/*
 * The newest ID's time was set by an opening of the gate or by snowflake_advance().  If IDs are
 * now ahead of the clock, they may run on from there.  Returns how far, in microseconds.
 */
int64
snowflake_clock_raised(TimestampTz newest)
{
	if (!memory->known)
		return 0;
	if (memory->newest == memory->newest_then)
		memory->newest_then = newest;	/* no ID of this clock */
	memory->newest = newest;
	run_ahead(newest - (memory->offset_usec + memory->looked_usec), true);
	return memory->allowed_usec;
}

/* How long a clock that has moved that far must last: ahead, at least a thousandth of the jump. */
static int64
patience(int64 moved_usec)
{
	return Max(snowflake_jump_patience_ms * INT64CONST(1000), moved_usec / 1000);
}

/* Is a clock that far past the newest ID believed if nothing else speaks against it? */
static bool
is_plausible(int64 past_usec, int64 moved_usec, int64 slack_usec)
{
	int64		behind_usec = MAX_AHEAD_USEC + snowflake_reservation_ms * INT64CONST(1000);

	if (past_usec > PLAUSIBLE_USEC)
		return memory->known ? moved_usec < 0 : !memory->jumping;
	return past_usec >= -(behind_usec + slack_usec);
}

/* Publish what the judge knows and, after a step back, that step. */
static void
publish(const SnowflakeClockReading *look, const SnowflakeVerdict *verdict)
{
	SnowflakeClockState state = memory->state;
	int64		moved_usec = memory->known ? look->wall - look->boot_usec - memory->offset_usec : 0;

	state.no_id = memory->newest == SNOWFLAKE_CLOCK_NEVER;
	state.since_usec = memory->since_usec;
	state.patience_usec = patience(moved_usec);
	state.belief = !memory->known ? CLOCK_REFUSED : memory->jumping ? CLOCK_COASTING :
		memory->proven_from != 0 && memory->newest < memory->proven_from ? CLOCK_UNPROVEN :
		CLOCK_FOLLOWED;
	state.off_usec = !memory->known ? look->wall - memory->newest :
		memory->jumping ? moved_usec : memory->proven_from - PLAUSIBLE_USEC - memory->newest_then;

	if (memory->newest <= memory->offset_usec + look->boot_usec)
		memset(state.back, 0, sizeof(state.back));
	else if (verdict->moved_usec < 0 &&
			 (verdict->news == CLOCK_STEPPED || verdict->news == CLOCK_BELIEVED))
	{
		if (state.back[0].by_usec > state.back[1].by_usec)
			state.back[1] = state.back[0];
		state.back[0].by_usec = -verdict->moved_usec;
		state.back[0].since_usec = look->boot_usec - verdict->lasted_usec;
	}

	SpinLockAcquire(&memory->mutex);
	memory->state = state;
	SpinLockRelease(&memory->mutex);
}

/* Judge the wall clock by a reading.  An impossible one is not even believed with look->accept. */
SnowflakeVerdict
snowflake_clock_judge(const SnowflakeClockReading *look)
{
	SnowflakeVerdict verdict = {0};
	int64		offset_usec = look->wall - look->boot_usec;
	int64		moved_usec = memory->known ? offset_usec - memory->offset_usec : 0;
	int64		max_jump_usec = snowflake_max_jump_ms * INT64CONST(1000);
	bool		near = memory->known && i64abs(moved_usec) <= max_jump_usec;
	int64		elapsed_usec = look->boot_usec - memory->looked_usec;
	bool		stepped = i64abs(moved_usec) > STEP_USEC(elapsed_usec, look->precision_usec);
	bool		was_jumping = memory->jumping;
	bool		is_open = true; /* nothing but the newest ID speaks against it */
	bool		has_ids,
				possible,
				believed;
	int64		past_usec;

	if (look->newest != SNOWFLAKE_CLOCK_NEVER)
		memory->newest = look->newest;
	memory->looked_usec = look->boot_usec;
	past_usec = look->wall - memory->newest;
	has_ids = memory->newest != SNOWFLAKE_CLOCK_NEVER;

	/* IDs may be further ahead than was allowed: max_ahead may allow it now */
	if (memory->known)
	{
		int64		lead_usec = memory->newest - (memory->offset_usec + look->boot_usec);

		run_ahead(lead_usec, lead_usec > memory->allowed_usec + look->slack_usec);
		is_open = memory->newest == memory->newest_then ||
			lead_usec > memory->allowed_usec + look->slack_usec;
	}

	possible = look->possible && (has_ids || look->wall >= SNOWFLAKE_RELEASE_TIME);
	believed = possible &&
		(near || look->accept ||
		 (is_open && (!has_ids || is_plausible(past_usec, moved_usec, look->slack_usec))));

	/* a clock that jumps again has to last from then on */
	if (!believed)
	{
		if (!memory->jumping ||
			i64abs(offset_usec - memory->jumped_to_usec) > max_jump_usec)
		{
			verdict.news = memory->known ? CLOCK_JUMPED : CLOCK_NO_NEWS;
			memory->jumping = true;
			memory->jumped_to_usec = offset_usec;
			memory->since_usec = look->boot_usec;
		}
		believed = possible && (memory->known || past_usec > 0) &&
			look->boot_usec - memory->since_usec >= patience(moved_usec);
	}

	verdict.moved_usec = moved_usec;
	if (believed)
	{
		if (was_jumping)
			verdict.lasted_usec = look->boot_usec - memory->since_usec;
		if (was_jumping && near)
			verdict.moved_usec = memory->jumped_to_usec - memory->offset_usec;
		verdict.news = !memory->known ? CLOCK_NO_NEWS : was_jumping && near ? CLOCK_RETURNED :
			was_jumping ? CLOCK_BELIEVED : stepped ? CLOCK_STEPPED : CLOCK_NO_NEWS;
		if (!near)
			memory->newest_then = memory->newest;
		verdict.unproven = !near && is_open && !look->accept && has_ids &&
			past_usec > PLAUSIBLE_USEC;
		if (verdict.unproven)
			memory->proven_from = look->wall + PLAUSIBLE_USEC;
		else if (!near || look->accept)
			memory->proven_from = 0;
		if (!memory->known || (moved_usec < 0 && stepped))
			run_ahead(memory->newest - look->wall, true);
		memory->known = true;
		memory->jumping = false;
		memory->offset_usec = offset_usec;
	}
	publish(look, &verdict);

	verdict.look_again_ms = !memory->known ? REFUSED_LOOK_MS :
		memory->jumping || memory->allowed_usec > 0 ? COAST_LOOK_MS : 0;
	verdict.correction_usec = memory->known ? memory->offset_usec - offset_usec : 0;
	verdict.allowed_usec = memory->allowed_usec;
	return verdict;
}

/* Returns what the judge knows, for messages, with elapsed times as of now.  Takes the mutex. */
SnowflakeClockState
snowflake_clock_state(void)
{
	SnowflakeClockState state = {0};
	int64		now_usec = snowflake_clock_usec(CLOCK_BOOTTIME);

	if (memory == NULL)
		return state;
	SpinLockAcquire(&memory->mutex);
	state = memory->state;
	SpinLockRelease(&memory->mutex);
	state.lasted_usec = now_usec - state.since_usec;
	for (size_t i = 0; i < lengthof(state.back); i++)
		state.back[i].ago_usec = now_usec - state.back[i].since_usec;
	return state;
}
