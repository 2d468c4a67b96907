/*-------------------------------------------------------------------------
 *
 * keeper_log.c
 *	  The keeper's warnings: a clock that was moved, a generator that waits
 *	  for it, minting at the limit of the layout, and a layout that ends.
 *
 * The keeper checks whenever it is awake, that is, when the reservation is extended, when a
 * backend has found the generator ahead of the clock, and once a day.  A lasting condition is
 * reported once, not at every check.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/duration.h"
#include "base/settings.h"
#include "generator/counters.h"
#include "generator/generator.h"
#include "generator/words.h"
#include "keeper/keeper.h"
#include "layout/server_layout.h"

/* While the clock is behind, check it this often; otherwise once a day. */
#define BEHIND_MS				1000
#define DAY_MS					(24 * 60 * 60 * 1000)

/* Minting at the limit is reported when it has lasted for this many times snowflake.reservation. */
#define LONG_RESERVATIONS		10

/* Report and count what the judge of the clock has found. */
static void
watch_clock(const SnowflakeVerdict *verdict)
{
	int64		moved_usec = verdict->moved_usec;
	SnowflakeClockState clock = snowflake_clock_state();
	bool		ahead = moved_usec > 0;
	bool		jumped = verdict->news == CLOCK_JUMPED;
	char	   *by = snowflake_duration(i64abs(moved_usec));

	switch (verdict->news)
	{
		case CLOCK_NO_NEWS:
			break;
		case CLOCK_STEPPED:
		case CLOCK_JUMPED:
			snowflake_counters_add_step(moved_usec);
			ereport(WARNING,
					ahead ? errmsg("the clock went ahead by %s", by) :
					errmsg("the clock went back by %s", by),
					jumped ? errdetail("Minting snowflakes goes on as if it had not, for up to %s.",
									   snowflake_duration(clock.patience_usec)) : 0,
					jumped ? errhint("If the clock is correct, believe it with snowflake_accept_clock(); otherwise, correct it.") : 0);
			break;
		case CLOCK_RETURNED:
			ereport(LOG,
					ahead ? errmsg("the clock is no longer %s ahead, after %s", by,
								   snowflake_duration(verdict->lasted_usec)) :
					errmsg("the clock is no longer %s behind, after %s", by,
						   snowflake_duration(verdict->lasted_usec)));
			break;
		case CLOCK_BELIEVED:
			ereport(WARNING,
					ahead ? errmsg("the clock that went ahead by %s is believed, after %s",
								   by, snowflake_duration(verdict->lasted_usec)) :
					errmsg("the clock that went back by %s is believed, after %s",
						   by, snowflake_duration(verdict->lasted_usec)),
					ahead ? errdetail("Snowflakes follow it.") :
					errdetail(snowflake_max_ahead_s > 0 ?
							  "Snowflakes stay ahead of it, by at most %s (snowflake.max_ahead)." :
							  "Minting snowflakes waits for it.",
							  snowflake_duration(snowflake_max_ahead_s * USECS_PER_SEC)));
			break;
	}
	if (verdict->unproven)
		ereport(WARNING,
				errmsg("the clock is %s past the newest snowflake, and is believed",
					   snowflake_duration(clock.off_usec)),
				errdetail("After a start there is nothing else to compare it with."),
				errhint("If the clock is correct, accept it with snowflake_accept_clock(); otherwise, correct it."));
}

/* Is the generator further ahead of the clock than it may be?  Report changes. */
static bool
watch_lead(int64 now_usec, int64 lead_usec)
{
	static bool behind = false;
	static int64 since_usec;
	int64		max_lead_usec = snowflake_generator_may_lead_usec();
	int64		early_usec = snowflake_generator_early_usec();

	if (!behind && lead_usec > max_lead_usec + early_usec)
	{
		behind = true;
		since_usec = now_usec;
		ereport(WARNING,
				errmsg("minting snowflakes waits for the clock"),
				errdetail("The generator is %s ahead of it, and may be ahead by %s.",
						  snowflake_duration(lead_usec), snowflake_duration(max_lead_usec)));
	}
	else if (behind && lead_usec <= max_lead_usec + early_usec)
	{
		behind = false;
		ereport(LOG,
				errmsg("minting snowflakes no longer waits for the clock, after %s",
					   snowflake_duration(now_usec - since_usec)));
	}
	return behind;
}

/*
 * Are more IDs asked for than the layout has?  Then mints wait, and the generator is about as
 * far ahead as it may be (waiting mints oversleep a little), at one check after the other.
 * These checks come with the extensions of the reservation, so a longer pause between two of
 * them was a pause of minting.
 */
static void
watch_limit(int64 now_usec, int64 lead_usec)
{
	static int64 since_usec = 0;	/* 0: not at the limit */
	static int64 last_usec = 0;
	static uint64 last_waits = 0;
	static bool reported = false;
	int64		reservation_usec = snowflake_reservation_ms * INT64CONST(1000);
	uint64		waits = snowflake_counters_get(COUNTER_CLOCK_WAITS);
	int64		since_last_usec = now_usec - last_usec;
	int64		max_lead_usec = snowflake_max_lead_ms * INT64CONST(1000);
	int64		tick_usec = snowflake_server_layout.tick_usec;
	bool		at_limit;

	/* a request that came during the last round is not a new observation */
	if (since_last_usec < reservation_usec / 8)
		return;

	/* a clock that went back is another matter, as is a reset of the counters */
	at_limit = waits != last_waits &&
		lead_usec + tick_usec >= max_lead_usec / 2 &&
		lead_usec <= max_lead_usec + tick_usec + snowflake_generator_early_usec() &&
		since_last_usec <= reservation_usec;
	last_usec = now_usec;
	last_waits = waits;

	if (!at_limit)
	{
		since_usec = 0;
		reported = false;
		return;
	}
	if (since_usec == 0)
		since_usec = now_usec;
	if (!reported &&
		now_usec - since_usec >= LONG_RESERVATIONS * reservation_usec)
	{
		reported = true;
		ereport(WARNING,
				errmsg("snowflakes have been minted at the limit of the layout for %s",
					   snowflake_duration(now_usec - since_usec)),
				errdetail("It has " INT64_FORMAT " in a tick of %s; mints wait for the next tick.",
						  snowflake_server_layout.max_sequence + INT64CONST(1),
						  snowflake_duration(snowflake_server_layout.tick_usec)),
				errhint("Mint on more servers, or choose a layout with more bits of sequence."));
	}
}

/* Does the layout end soon?  Returns the ms after which to check again. */
static long
watch_layout(int64 now_usec, TimestampTz clock)
{
	static int64 checked_usec = 0;	/* 0: not yet */
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		left_ms = DAY_MS - (now_usec - checked_usec) / 1000;
	TimestampTz end;

	if (checked_usec != 0 && left_ms > 0)
		return left_ms;
	checked_usec = now_usec;

	end = snowflake_layout_tick_start(layout, layout->max_tick);
	if (end <= clock)
		ereport(WARNING,
				errmsg("the snowflake layout ended at \"%s\"",
					   timestamptz_to_str(end)));
	else if (clock > end - SNOWFLAKE_LAYOUT_ENDS_SOON_USEC)
		ereport(WARNING,
				errmsg("the snowflake layout ends at \"%s\", in %d days",
					   timestamptz_to_str(end),
					   (int) ((end - clock) / USECS_PER_DAY)),
				errdetail("No snowflake can be minted after that."),
				errhint("%s", snowflake_words[STATE_LAYOUT_ENDS_SOON].hint));
	return DAY_MS;
}

/* Write to the log what an administrator should know.  Returns the ms after which to check again. */
long
snowflake_keeper_log_watch(const SnowflakeVerdict *verdict)
{
	int64		now_usec = snowflake_clock_monotonic_usec();
	SnowflakeView view;
	long		look_again_ms = DAY_MS;

	watch_clock(verdict);

	snowflake_generator_view(&view);
	if (view.gate == GATE_OPEN)
	{
		/*
		 * read after the view: a round can take long, and others mint
		 * meanwhile
		 */
		TimestampTz clock = snowflake_generator_clock();
		int64		lead_usec = snowflake_generator_time(view.last) - clock;

		watch_limit(now_usec, lead_usec);
		look_again_ms = watch_lead(now_usec, lead_usec) ? BEHIND_MS :
			watch_layout(now_usec, clock);
	}
	return verdict->look_again_ms == 0 ? look_again_ms :
		Min(verdict->look_again_ms, look_again_ms);
}
