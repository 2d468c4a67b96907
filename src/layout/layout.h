/*-------------------------------------------------------------------------
 *
 * layout.h
 *	  Bit layouts of Snowflake IDs: parse, print, pack, unpack, bounds.
 *
 * A layout is pure data.  Every function here depends on its arguments alone, which
 * makes the SQL functions with an explicit layout argument IMMUTABLE.
 *
 * Terms: a "tick" counts the layout's unit of time since its epoch; a
 * TimestampTz is an instant (usec since 2000-01-01 UTC, as in core); a
 * "position" is a tick and a sequence number in one word, tick << sequence_bits
 * | sequence.  Whatever the order of the fields, positions are consecutive, so a
 * full sequence carries into the next tick.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_LAYOUT_H
#define SNOWFLAKE_LAYOUT_H

#include "datatype/timestamp.h"

/* An ID is a non-negative int64, so the sign bit carries nothing. */
#define SNOWFLAKE_ID_BITS			63

/* Node and sequence are SQL integers, so they fit 31 bits each. */
#define SNOWFLAKE_PART_BITS			31

/* time, sequence, the caller's field, and the parts of the node ID */
#define SNOWFLAKE_MAX_FIELDS		16

/* Longest field name, with its terminator */
#define SNOWFLAKE_FIELD_NAME_SIZE	32

/* Longest canonical text: all fields ("name:NN? "), tick (19 digits and a unit) and epoch */
#define SNOWFLAKE_LAYOUT_TEXT_SIZE	\
	(SNOWFLAKE_MAX_FIELDS * (SNOWFLAKE_FIELD_NAME_SIZE + 4) + 64)

/* How long before a layout's end the warnings begin */
#define SNOWFLAKE_LAYOUT_ENDS_SOON_USEC	(365 * USECS_PER_DAY)

typedef struct SnowflakeField
{
	char		name[SNOWFLAKE_FIELD_NAME_SIZE];
	int			width;			/* bits */
	int			shift;			/* distance of its lowest bit from bit 0 */
	bool		by_caller;		/* not part of the node ID */
} SnowflakeField;

typedef struct SnowflakeLayout
{
	int64		tick_usec;		/* length of a tick */
	TimestampTz epoch;			/* instant of tick 0 */

	/* Derived from the fields, for speed */
	int64		max_id;
	int64		max_tick;
	int32		max_node;
	int32		max_sequence;
	int			time_shift;
	int			sequence_bits;
	int			sequence_shift;
	int			node_bits;
	int			value_field;	/* the caller's field; 0: none, it is "time" */
	int			value_shift;
	int32		max_value;

	int			nfields;
	/* most significant first; the first is "time" */
	SnowflakeField fields[SNOWFLAKE_MAX_FIELDS];
} SnowflakeLayout;

typedef struct SnowflakePreset
{
	const char *name;
	const char *text;			/* in the grammar of a layout */
} SnowflakePreset;

extern const SnowflakePreset snowflake_layout_presets[];
extern const int snowflake_layout_npresets;

extern const char *snowflake_layout_parse(const char *text, SnowflakeLayout *layout);
extern void snowflake_layout_print(const SnowflakeLayout *layout, char *buf, size_t size);
extern const char *snowflake_layout_name(const SnowflakeLayout *layout);
extern const char *snowflake_layout_hint(void);
extern const SnowflakeField *snowflake_layout_find(const SnowflakeLayout *layout,
												   const char *name);

extern int64 snowflake_layout_place_node(const SnowflakeLayout *layout, int32 node);
extern int32 snowflake_layout_get_node(const SnowflakeLayout *layout, int64 id);

extern int64 snowflake_layout_tick_at(const SnowflakeLayout *layout, TimestampTz ts);
extern int64 snowflake_layout_id_before(const SnowflakeLayout *layout, TimestampTz ts);
extern int64 snowflake_layout_id_until(const SnowflakeLayout *layout, TimestampTz ts);

/* The value of one field of an ID. */
static inline int64
snowflake_layout_get_field(const SnowflakeField *field, int64 id)
{
	return (id >> field->shift) & ((INT64CONST(1) << field->width) - 1);
}

/* The tick of an ID.  For one above max_id, it is above max_tick. */
static inline int64
snowflake_layout_get_tick(const SnowflakeLayout *layout, int64 id)
{
	return id >> layout->time_shift;
}

static inline int32
snowflake_layout_get_sequence(const SnowflakeLayout *layout, int64 id)
{
	return (int32) (id >> layout->sequence_shift) & layout->max_sequence;
}

/* The ID of parts in range; node_bits are in their place. */
static inline int64
snowflake_layout_pack(const SnowflakeLayout *layout, int64 tick, int64 node_bits,
					  int32 sequence)
{
	return (tick << layout->time_shift) | node_bits |
		((int64) sequence << layout->sequence_shift);
}

/*
 * Can an ID be larger than the ID of a later position, because the caller's
 * field is above the sequence?  If so, IDs are ordered by their ticks only.
 */
static inline bool
snowflake_layout_value_reorders(const SnowflakeLayout *layout)
{
	return layout->value_field != 0 && layout->value_shift > layout->sequence_shift;
}

/* The instant at which a tick of 0 .. max_tick starts. */
static inline TimestampTz
snowflake_layout_tick_start(const SnowflakeLayout *layout, int64 tick)
{
	return layout->epoch + tick * layout->tick_usec;
}

/* The instant of an ID that is not above max_id. */
static inline TimestampTz
snowflake_layout_get_time(const SnowflakeLayout *layout, int64 id)
{
	return snowflake_layout_tick_start(layout, snowflake_layout_get_tick(layout, id));
}

/* Is an instant at or after the epoch, and before the layout's last tick? */
static inline bool
snowflake_layout_has_time(const SnowflakeLayout *layout, TimestampTz time)
{
	return time >= layout->epoch && time < snowflake_layout_tick_start(layout, layout->max_tick);
}

/* The first and the last position of a tick. */
static inline uint64
snowflake_layout_first_position(const SnowflakeLayout *layout, int64 tick)
{
	return (uint64) tick << layout->sequence_bits;
}

static inline uint64
snowflake_layout_last_position(const SnowflakeLayout *layout, int64 tick)
{
	return snowflake_layout_first_position(layout, tick) | layout->max_sequence;
}

/* The tick of a position, and the instant at which it starts. */
static inline int64
snowflake_layout_position_tick(const SnowflakeLayout *layout, uint64 position)
{
	return (int64) (position >> layout->sequence_bits);
}

static inline TimestampTz
snowflake_layout_position_time(const SnowflakeLayout *layout, uint64 position)
{
	return snowflake_layout_tick_start(layout, snowflake_layout_position_tick(layout, position));
}

#endif							/* SNOWFLAKE_LAYOUT_H */
