/*
 * The line that IDs follow, which is kept in the reservation's row: across crash
 * restarts, restarts, and a restore to an earlier point on the same machine.
 *
 * The argument that this checks is at the head of src/base/clock.c.  Claimed: each ID
 * is larger than all before it, also than those that a restored server does not know
 * of, if the clock is past them when it starts.
 *
 * Assumed:
 *
 * - What is reserved is durable before it is used: that is what gate.pml is about, so
 *   one step reserves and mints here.
 * - After a restore the clock is past the newest ID, and is not set back before there is
 *   another one.  (-DCLOCK_BEHIND: if it is not?)
 *
 * Whether the judge believes a clock that was set, or coasts, is arbitrary, but for
 * what a start has to believe.  IDs that stand are those of a line that was set back.
 *
 * A rule is taken out by -DFOLLOW_KEPT_LINE (a start may coast below a clock that is
 * ahead), -DCRASH_IS_NO_START (and the one after a crash always), -DIGNORE_ROW.
 */

#ifndef TICKS
#define TICKS	2				/* of the boot clock */
#endif
#ifndef OFFSETS
#define OFFSETS	3				/* of the wall clock from that */
#endif
#define MOST	(TICKS + OFFSETS + 3)
#define MAX(a, b) ((a) > (b) -> (a) : (b))

byte boot;						/* the boot clock */
byte wall;						/* the wall clock's offset from it */

/* src/base/clock.c: the judge's memory, lost by a crash */
bool looked;
bool restarted;					/* the line is of another postmaster */
byte line;						/* an offset as well */

byte last;						/* likewise */
bool has_read;					/* a mint has read the clock ... */
byte position;					/* ... and this */

/* The row: durable, and so is its copy in a backup. */
byte row_until;
byte row_line;
bool row_is_mine;				/* kept by the postmaster that runs */
bool has_backup;
byte backup_until;
byte backup_line;

bool restored;					/* and nothing minted since */
byte newest;					/* of all IDs ever */

inline start(is_new)
{
	looked = false;
	has_read = false;
	position = 0;
	row_is_mine = row_is_mine && !is_new;
#ifdef CRASH_IS_NO_START
	restarted = is_new;
#else
	restarted = !row_is_mine;
#endif
#ifdef IGNORE_ROW
	last = 0;
#else
	last = row_until;
#endif
	line = row_line
}

#ifdef FOLLOW_KEPT_LINE
#define HAS_TO_BELIEVE false
#else
#define HAS_TO_BELIEVE (restarted && wall > line)
#endif

#ifdef CLOCK_BEHIND
#define IS_PAST true
#else
#define IS_PAST (boot + wall > newest)
#endif

/* snowflake_clock_judge() */
proctype keeper()
{
	do
	:: atomic { wall != line || !looked ->
		line = wall;
		looked = true;
		restarted = false }
	:: atomic { !looked && !HAS_TO_BELIEVE ->
		looked = true;
		restarted = restarted && wall != line }
	od
}

/* snowflake_generator_step(), and what it takes of the reservation */
proctype minter()
{
	do
	:: atomic { looked && !has_read ->
		position = boot + line;
		has_read = true }
	:: d_step { has_read && MAX(last + 1, position) <= MOST ->
		last = MAX(last + 1, position);
		assert(last > newest);
		newest = last;
		restored = false;
		/* as much as is used, or more */
		row_until = MAX(row_until, last);
		row_line = line;
		row_is_mine = true;
		has_read = false;
		position = 0 }
	:: d_step { looked && row_until < MOST ->
		row_until++;
		row_line = line;
		row_is_mine = true }
	od
}

proctype world()
{
	do
	:: boot < TICKS -> boot++
	:: wall < OFFSETS -> wall++
	:: atomic { wall > 0 && !restored -> wall-- }

		/* the server resets its memory, or starts again */
	:: d_step { start(false) }
	:: d_step { start(true) }

		/* once, and restored as often as the clock allows */
	:: d_step { !has_backup ->
		has_backup = true;
		backup_until = row_until;
		backup_line = row_line }
	:: d_step { has_backup && IS_PAST ->
		row_until = backup_until;
		row_line = backup_line;
		start(true);
		restored = true }
	od
}

init
{
	atomic {
		restarted = true;
		run keeper();
		run minter();
		run world()
	}
}
