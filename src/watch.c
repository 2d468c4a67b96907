/*-------------------------------------------------------------------------
 *
 * watch.c
 *	  What the keeper warns of: a clock that went back, a generator that waits
 *	  for it, minting at the limit of the layout, and a layout that ends.
 *
 * Nothing here has a part in minting; it compares, counts and writes to the
 * log.  The keeper looks whenever it is awake, that is when the reservation is
 * extended, when a backend found the generator ahead of the clock, and once a
 * day.  What lasts is reported once, not at every look.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "counters.h"
#include "duration.h"
#include "generator.h"
#include "settings.h"
#include "watch.h"

/* While the clock is behind, look at it this often; otherwise once a day. */
#define BEHIND_MS				1000
#define DAY_MS					(24 * 60 * 60 * 1000)

/*
 * A look at both clocks that took longer than this says nothing about how they
 * stand to each other.
 */
#define LOOK_PRECISION_USEC		200
#define LOOK_ATTEMPTS			10

/*
 * What counts as a step.  Slewing changes the speed of both clocks, at least on
 * Linux; elsewhere it may be that of one, by up to 0.1 %.
 */
#define STEP_USEC(elapsed_usec)	(1000 + (elapsed_usec) / 1000)

/* Minting at the limit is worth a warning after so many reservations of time. */
#define LONG_RESERVATIONS		10

/* Both clocks, at (nearly) the same instant. */
typedef struct Look
{
	TimestampTz wall;
	int64		monotonic_usec;
} Look;

static bool
look_at_clocks(Look *look)
{
	for (int i = 0; i < LOOK_ATTEMPTS; i++)
	{
		look->monotonic_usec = snowflake_monotonic_usec();
		look->wall = snowflake_wall_clock();
		if (snowflake_monotonic_usec() - look->monotonic_usec <= LOOK_PRECISION_USEC)
			return true;
	}
	return false;
}

/* Did the wall clock go back since the last look? */
static void
watch_steps(const Look *look)
{
	static Look last = {0};
	int64		elapsed_usec = look->monotonic_usec - last.monotonic_usec;
	int64		back_usec = elapsed_usec - (look->wall - last.wall);

	if (last.wall != 0 && back_usec > STEP_USEC(elapsed_usec))
	{
		snowflake_count_step_back(back_usec);
		ereport(WARNING,
				errmsg("the clock went back by %s", snowflake_duration(back_usec)));
	}
	last = *look;
}

/* Is the generator further ahead of the clock than it may be?  Report changes. */
static bool
watch_lead(const Look *look, int64 lead_usec)
{
	static bool behind = false;
	static int64 since_usec;
	int64		max_lead_usec = snowflake_max_lead_ms * INT64CONST(1000);

	if (!behind && lead_usec > max_lead_usec + snowflake_server_layout.tick_usec)
	{
		behind = true;
		since_usec = look->monotonic_usec;
		ereport(WARNING,
				errmsg("minting snowflakes waits for the clock"),
				errdetail("The generator is %s ahead of it, and may be by %d ms (snowflake.max_lead).",
						  snowflake_duration(lead_usec), snowflake_max_lead_ms));
	}
	else if (behind && lead_usec <= max_lead_usec)
	{
		behind = false;
		ereport(LOG,
				errmsg("minting snowflakes no longer waits for the clock, after %s",
					   snowflake_duration(look->monotonic_usec - since_usec)));
	}
	return behind;
}

/*
 * Are more IDs wanted than the layout has?  Then mints wait, and the generator
 * is about as far ahead as it may be (those who wait oversleep a little), at one
 * look after the other.  Those looks come with the extensions of the
 * reservation, so a longer pause between two of them was a pause of minting.
 */
static void
watch_limit(const Look *look, int64 lead_usec)
{
	static int64 since_usec = 0;	/* 0: not at the limit */
	static int64 last_usec = 0;
	static uint64 last_waits = 0;
	static bool reported = false;
	int64		reservation_usec = snowflake_reservation_ms * INT64CONST(1000);
	uint64		waits = pg_atomic_read_u64(&snowflake_counters->clock_waits.mints);
	int64		since_last_usec = look->monotonic_usec - last_usec;
	int64		max_lead_usec = snowflake_max_lead_ms * INT64CONST(1000);
	int64		tick_usec = snowflake_server_layout.tick_usec;
	bool		at_limit;

	/* a request that came during the last round says nothing new */
	if (since_last_usec < reservation_usec / 8)
		return;

	/* a clock that went back is another matter, as is a reset of the counters */
	at_limit = waits != last_waits &&
		lead_usec + tick_usec >= max_lead_usec / 2 &&
		lead_usec <= max_lead_usec + tick_usec &&
		since_last_usec <= reservation_usec;
	last_usec = look->monotonic_usec;
	last_waits = waits;

	if (!at_limit)
	{
		since_usec = 0;
		reported = false;
		return;
	}
	if (since_usec == 0)
		since_usec = look->monotonic_usec;
	if (!reported &&
		look->monotonic_usec - since_usec >= LONG_RESERVATIONS * reservation_usec)
	{
		reported = true;
		ereport(WARNING,
				errmsg("snowflakes have been minted at the limit of the layout for %s",
					   snowflake_duration(look->monotonic_usec - since_usec)),
				errdetail("It has " INT64_FORMAT " in a tick of %s; mints wait for the next.",
						  snowflake_server_layout.max_sequence + INT64CONST(1),
						  snowflake_duration(snowflake_server_layout.tick_usec)),
				errhint("Mint on more servers, or choose a layout with more bits of sequence."));
	}
}

/* Does the layout end soon?  Returns in how many ms to look again. */
static long
watch_layout(const Look *look)
{
	static int64 checked_usec = 0;	/* 0: not yet */
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		left_ms = DAY_MS - (look->monotonic_usec - checked_usec) / 1000;
	TimestampTz end;

	if (checked_usec != 0 && left_ms > 0)
		return left_ms;
	checked_usec = look->monotonic_usec;

	end = snowflake_tick_start(layout, layout->max_tick);
	if (end <= look->wall)
		ereport(WARNING,
				errmsg("the snowflake layout ended at \"%s\"",
					   timestamptz_to_str(end)));
	else if (look->wall > end - SNOWFLAKE_LAYOUT_ENDS_SOON_USEC)
		ereport(WARNING,
				errmsg("the snowflake layout ends at \"%s\", in %d days",
					   timestamptz_to_str(end),
					   (int) ((end - look->wall) / USECS_PER_DAY)),
				errdetail("No snowflake can be minted after that."),
				errhint("Plan for another snowflake.layout, whose snowflakes are larger than those of this one."));
	return DAY_MS;
}

/*
 * Look, and write to the log what an administrator wants to know.  Returns the ms
 * after which the keeper should look again.  Only the keeper.
 */
long
snowflake_watch(void)
{
	SnowflakeView view;
	Look		look;
	int64		lead_usec;

	if (!look_at_clocks(&look))
		return BEHIND_MS;
	watch_steps(&look);

	snowflake_generator_view(&view);
	if (view.gate != GATE_OPEN)
		return DAY_MS;
	lead_usec = snowflake_position_time(&snowflake_server_layout, view.last) -
		look.wall;
	watch_limit(&look, lead_usec);
	if (watch_lead(&look, lead_usec))
		return BEHIND_MS;
	return watch_layout(&look);
}
