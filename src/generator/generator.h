/*-------------------------------------------------------------------------
 *
 * generator.h
 *	  The generator that all backends of a server share.
 *
 * The state itself is private to generator.c, which explains why no ID is
 * issued twice.  Other files read and change it only through these functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_GENERATOR_H
#define SNOWFLAKE_GENERATOR_H

#include "generator/words.h"
#include "layout/server_layout.h"

/* The node ID to mint with, and its range of positions. */
typedef struct SnowflakeNode
{
	SnowflakeGate obstacle;		/* GATE_OPEN if there is a node ID to mint
								 * with */
	int32		node;			/* -1: there is none */
	uint32		grant;			/* its number, if it is leased; otherwise 0 */
	bool		at_clock;		/* when the gate is first opened for that
								 * grant, the generator goes back to "first" */
	uint64		first;			/* smallest and largest position that may be
								 * issued */
	uint64		end;
} SnowflakeNode;

/* The result of a step. */
typedef enum SnowflakeStep
{
	STEP_MINTED,
	STEP_EARLY,					/* minted, to be used when the clock gets
								 * there */
	STEP_GATE_CLOSED,
	STEP_UNRESERVED,			/* the next position is not reserved yet */
	STEP_AHEAD,					/* it is too far ahead of the clock */
	STEP_ENDED					/* the layout has no later tick */
} SnowflakeStep;

/* Positions that were issued in one step and are not used yet. */
typedef struct SnowflakeIssued
{
	uint64		next;
	uint64		end;			/* the last of them; below "next": none left */
	int64		node_bits;		/* the node's bits in their IDs */
	uint32		opening;		/* of the gate, by number */
} SnowflakeIssued;

/*
 * The state as others may see it.  Its parts are read one after the other
 * while minting goes on: each is right for its own moment.
 */
typedef struct SnowflakeView
{
	SnowflakeGate gate;
	int32		node;			/* that the gate was opened for */
	uint32		grant;			/* number of the node's lease, 0 if not leased */
	uint32		newest_grant;	/* number of the newest lease that the gate
								 * was ever opened for */
	uint64		last;			/* newest position issued, or raised to */
	uint64		highest;		/* newest position that any node ID ever had */
	uint64		limit;			/* newest position that may be issued */
	uint64		stored;			/* newest position that is reserved */

	uint64		floor;			/* largest position that IDs have to pass */
	uint64		raised_to;		/* "last" after the last raise without minting */
	uint64		own_last;		/* newest position that the node may have had
								 * before the gate was opened for it */
	uint64		in_order;		/* newest position that later IDs of any node
								 * have to be above */
	bool		is_advanced;	/* that was by snowflake_advance(), and not
								 * what had been reserved before */
	bool		end_unstored;	/* the gate was closed, its end is not stored */
	bool		inherited;		/* the server started as a standby or a copy */
} SnowflakeView;

/* A generator that is further ahead of the clock than this can be reset. */
#define SNOWFLAKE_RESTART_LEAD_USEC	USECS_PER_MINUTE

/* Has the present node ID issued nothing since the gate was opened for it? */
static inline bool
snowflake_generator_is_unused(const SnowflakeView *view)
{
	return view->last == view->raised_to && !view->is_advanced;
}

/*
 * The newest position and what its ID is made of, read together.  Nothing is known before the
 * gate has been opened for the first time since the server's start.
 */
typedef struct SnowflakeNewest
{
	uint64		last;
	int64		node_bits;		/* of all positions above "opened_at" */
	uint64		opened_at;		/* "last" when the gate was last opened */
	uint64		started_at;		/* and when it was first opened */
	uint64		lowered_to;		/* smallest "last" to which an opening went
								 * back */
	uint32		lowered_at;		/* the last such opening, by number; 0: none */
} SnowflakeNewest;

/* The time of a position: when its tick starts. */
static inline TimestampTz
snowflake_generator_time(uint64 position)
{
	return snowflake_layout_position_time(&snowflake_server_layout, position);
}

extern Size snowflake_generator_size(void);
extern void snowflake_generator_attach(int tranche);
extern bool snowflake_generator_exists(void);
extern void snowflake_generator_require(const char *function);

/* Everybody's part */
extern SnowflakeStep snowflake_generator_step(TimestampTz now, uint64 want,
											  SnowflakeIssued *issued, int64 *excess_usec);
extern void snowflake_generator_finish_tick(void);
extern int64 snowflake_generator_early_usec(void);
extern int64 snowflake_generator_may_lead_usec(void);
extern bool snowflake_generator_is_outdated(const SnowflakeIssued *issued);
extern bool snowflake_generator_is_unreserved(const SnowflakeView *view);
extern void snowflake_generator_view(SnowflakeView *view);
extern uint64 snowflake_generator_last(uint32 *opening);
extern bool snowflake_generator_newest(SnowflakeNewest *newest);
extern SnowflakeGate snowflake_generator_gate(void);
extern TimestampTz snowflake_generator_clock(void);
extern int64 snowflake_generator_lead_usec(const SnowflakeView *view);
extern bool snowflake_generator_stored_layout(char *text, size_t size);
extern int64 snowflake_generator_position_id(uint64 position);
extern void snowflake_generator_raise_floor(uint64 position);

/* The keeper's part */
extern void snowflake_generator_set_correction(int64 correction_usec, int64 allowed_usec);
extern void snowflake_generator_set_allowance(int64 allowed_usec);
extern void snowflake_generator_set_gate(SnowflakeGate reason);
extern void snowflake_generator_set_layout_changed(const char *stored_layout);
extern void snowflake_generator_note_highest(uint64 position);
extern void snowflake_generator_open(int32 node, uint32 grant, uint64 last,
									 uint64 own_last, uint64 in_order, uint64 limit,
									 uint64 refill);
extern void snowflake_generator_open_at_clock(int32 node, uint32 grant, uint64 last,
											  uint64 limit, uint64 refill);
extern void snowflake_generator_close(SnowflakeGate reason);

extern void snowflake_generator_end_stored(void);
extern void snowflake_generator_extend(uint64 limit, uint64 refill);
extern void snowflake_generator_set_stored(uint64 position);
extern void snowflake_generator_set_refill(uint64 refill);
extern void snowflake_generator_advance(uint64 position);

#endif							/* SNOWFLAKE_GENERATOR_H */
