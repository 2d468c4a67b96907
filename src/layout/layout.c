/*-------------------------------------------------------------------------
 *
 * layout.c
 *	  Bit layouts of Snowflake IDs: parse, print, pack, unpack, bounds.
 *
 * The grammar, in words: items separated by spaces.  The first item may be the
 * name of a preset; every other item is "name:value".  "tick" is a number with a
 * unit (us, ms or s), "epoch" is Unix milliseconds or an ISO 8601 instant in UTC,
 * and any other name is a field with its width in bits, from the most significant
 * field to the least; one of them may have a "?"  after its width, which makes it
 * the caller's.  After a preset, a field's name changes the width of the preset's
 * field, or marks it.  Presets are written in the same grammar.
 *
 * The parser returns its complaint, because a settings check, an SQL function and the keeper
 * each report it in their own way.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "layout/layout.h"

/* The last millisecond that ISO 8601 writes with a four-digit year. */
#define MAX_EPOCH_MS	INT64CONST(253402300799999)

/* The start of timestamptz, in Unix milliseconds. */
#define PG_EPOCH_MS		\
	((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * INT64CONST(86400000))

/*
 * Field orders and epochs as their projects publish them.  Where the original
 * uses all 64 bits (discord, instagram, mastodon, tsid), the sign bit is taken
 * from the top of its time field: the IDs are the same, the layout ends in
 * half the time.
 */
const SnowflakePreset snowflake_layout_presets[] = {
	/* twitter-archive/snowflake: IdWorker.scala */
	{"twitter", "time:41 datacenter:5 worker:5 sequence:12 epoch:1288834974657"},
	/* discord-api-docs: reference, "Snowflakes" */
	{"discord", "time:41 worker:5 process:5 sequence:12 epoch:1420070400000"},
	/* Instagram Engineering: "Sharding & IDs at Instagram" */
	{"instagram", "time:40 shard:13 sequence:10 epoch:1314220021721"},
	/* sony/sonyflake, v1 and v2 */
	{"sonyflake", "time:39 sequence:8 machine:16 tick:10ms epoch:1409529600000"},
	{"sonyflake2", "time:39 sequence:8 machine:16 tick:10ms epoch:1735689600000"},
	/* mastodon/mastodon: lib/mastodon/snowflake.rb; it has no node ID */
	{"mastodon", "time:47 sequence:16 epoch:0"},
	/* baidu/uid-generator: DefaultUidGenerator.java; ended in November 2024 */
	{"baidu", "time:28 worker:22 sequence:13 tick:1s epoch:1463673600000"},
	/* RobThree/IdGen: IdStructure.Default */
	{"idgen", "time:41 generator:10 sequence:12 epoch:1420070400000"},
	/* ClickHouse: generateSnowflakeID */
	{"clickhouse", "time:41 machine:10 sequence:12 epoch:0"},
	/* pgEdge/snowflake, since its fields were put into this order */
	{"pgedge", "time:41 node:10 sequence:12 epoch:1672531200000"},
	/* pgdogdev/pgdog: unique_id.rs, the standard form */
	{"pgdog", "time:41 node:10 sequence:12 epoch:1764184395000"},
	/* f4b6a3/tsid-creator, with its default of 10 node bits */
	{"tsid", "time:41 node:10 sequence:12 epoch:1577836800000"},
	/* yitter/IdGenerator, with its default of 6 bits each */
	{"yitter", "time:51 worker:6 sequence:6 epoch:1582136402000"},
	/* 53 bits, so that a JavaScript number holds every ID exactly */
	{"javascript", "time:41 node:5 sequence:7 epoch:1735689600000"},
};

const int	snowflake_layout_npresets = lengthof(snowflake_layout_presets);

typedef struct TickUnit
{
	const char *name;
	int64		usec;
} TickUnit;

static const TickUnit tick_units[] = {
	/* longest first: the printer takes the first that divides the tick */
	{"s", INT64CONST(1000000)},
	{"ms", INT64CONST(1000)},
	{"us", INT64CONST(1)},
};

/* Read a number at *pos, and advance *pos.  Returns false if there is none of up to max. */
static bool
read_number(const char **pos, int64 max, int64 *result)
{
	const char *start = *pos;
	int64		value = 0;

	for (; **pos >= '0' && **pos <= '9'; (*pos)++)
	{
		if (pg_mul_s64_overflow(value, 10, &value) ||
			pg_add_s64_overflow(value, **pos - '0', &value) ||
			value > max)
			return false;
	}
	*result = value;
	return *pos > start;
}

/* Read exactly ndigits digits, followed by the literal text "then". */
static bool
read_digits(const char **pos, int ndigits, const char *then, int *result)
{
	*result = 0;
	while (ndigits-- > 0)
	{
		if (**pos < '0' || **pos > '9')
			return false;
		*result = *result * 10 + (*(*pos)++ - '0');
	}
	if (strncmp(*pos, then, strlen(then)) != 0)
		return false;
	*pos += strlen(then);
	return true;
}

/*
 * Read an epoch: Unix milliseconds, or YYYY-MM-DDThh:mm:ss[.fff]Z.  If it depended on a time zone,
 * two servers could disagree about an ID's time.
 */
static const char *
parse_epoch(const char *value, TimestampTz *epoch)
{
	const char *pos = value;
	int64		ms;

	if (strchr(value, '-') == NULL && strchr(value, ':') == NULL)
	{
		if (!read_number(&pos, MAX_EPOCH_MS, &ms) || *pos != '\0')
			return psprintf("The epoch \"%s\" is not a number of Unix milliseconds from 0 to "
							INT64_FORMAT ".", value, MAX_EPOCH_MS);
	}
	else
	{
		int			year,
					month,
					day,
					hour,
					minute,
					second,
					fraction = 0;

		if (!read_digits(&pos, 4, "-", &year) ||
			!read_digits(&pos, 2, "-", &month) ||
			!read_digits(&pos, 2, "T", &day) ||
			!read_digits(&pos, 2, ":", &hour) ||
			!read_digits(&pos, 2, ":", &minute) ||
			!read_digits(&pos, 2, "", &second) ||
			(*pos == '.' && (pos++, !read_digits(&pos, 3, "", &fraction))) ||
			strcmp(pos, "Z") != 0)
			return psprintf("The epoch \"%s\" is not an instant in UTC, such as 2025-01-01T00:00:00Z or 2025-01-01T00:00:00.000Z.",
							value);
		if (year < 1970 || month < 1 || month > MONTHS_PER_YEAR ||
			day < 1 || day > day_tab[isleap(year)][month - 1] ||
			hour >= HOURS_PER_DAY || minute >= MINS_PER_HOUR ||
			second >= SECS_PER_MINUTE)
			return psprintf("The epoch \"%s\" is not a date and time of 1970 or later.",
							value);
		ms = (int64) (date2j(year, month, day) - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
		ms += (hour * MINS_PER_HOUR + minute) * SECS_PER_MINUTE + second;
		ms = ms * 1000 + fraction;
	}

	*epoch = (ms - PG_EPOCH_MS) * 1000;
	return NULL;
}

/* Read a tick: a number with a unit. */
static const char *
parse_tick(const char *value, int64 *tick_usec)
{
	const char *pos = value;
	int64		number;

	if (read_number(&pos, PG_INT64_MAX, &number))
	{
		for (size_t i = 0; i < lengthof(tick_units); i++)
		{
			if (strcmp(pos, tick_units[i].name) != 0)
				continue;
			if (number == 0)
				return psprintf("The tick \"%s\" has no length.", value);
			if (pg_mul_s64_overflow(number, tick_units[i].usec, tick_usec))
				break;
			return NULL;
		}
	}
	return psprintf("The tick \"%s\" is not a whole number with the unit us, ms or s.",
					value);
}

/*
 * Read a field's width, and add the field, or change it if it is a preset's.
 * *seen has a bit for each field that the text has named so far.
 */
static const char *
parse_field(const char *name, const char *value, bool has_preset,
			SnowflakeLayout *layout, uint32 *seen)
{
	SnowflakeField *field;
	const char *pos = value;
	int64		width;
	bool		is_width,
				by_caller;

	if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(name) ||
		!(name[0] >= 'a' && name[0] <= 'z') ||
		strlen(name) >= SNOWFLAKE_FIELD_NAME_SIZE)
		return psprintf("\"%s\" cannot name a field: a name consists of lower-case letters, digits and underscores, starts with a letter, and has at most %d characters.",
						name, SNOWFLAKE_FIELD_NAME_SIZE - 1);
	is_width = read_number(&pos, SNOWFLAKE_ID_BITS, &width);
	by_caller = *pos == '?';
	if (by_caller)
		pos++;
	if (!is_width || *pos != '\0' || width == 0)
		return psprintf("The width \"%s\" of field \"%s\" is not a number of bits from 1 to %d.",
						value, name, SNOWFLAKE_ID_BITS);

	field = unconstify(SnowflakeField *, snowflake_layout_find(layout, name));
	if (has_preset)
	{
		if (field == NULL)
			return psprintf("The preset has no field \"%s\".", name);
	}
	else if (field == NULL)
	{
		if (layout->nfields == SNOWFLAKE_MAX_FIELDS)
			return psprintf("There are more than %d fields.", SNOWFLAKE_MAX_FIELDS);
		field = &layout->fields[layout->nfields++];
		strlcpy(field->name, name, SNOWFLAKE_FIELD_NAME_SIZE);
	}

	if (*seen & (1U << (field - layout->fields)))
		return psprintf("There are two fields \"%s\".", name);
	*seen |= 1U << (field - layout->fields);
	field->width = (int) width;
	field->by_caller = by_caller;
	return NULL;
}

/*
 * Place the fields and derive the limits from them, and check what a single
 * item cannot show.
 */
static const char *
derive(SnowflakeLayout *layout)
{
	const SnowflakeField *sequence = snowflake_layout_find(layout, "sequence");
	int			bits = 0;
	int			value_bits = 0;
	int64		span_usec;

	if (layout->nfields == 0 || strcmp(layout->fields[0].name, "time") != 0)
		return "The first field must be \"time\": only then do the IDs sort by time.";
	if (sequence == NULL)
		return "There is no field \"sequence\".";

	for (int i = layout->nfields - 1; i >= 0; i--)
	{
		layout->fields[i].shift = bits;
		bits += layout->fields[i].width;
		if (!layout->fields[i].by_caller)
			continue;
		if (value_bits > 0)
			return "There are two fields with a ?.";
		if (strcmp(layout->fields[i].name, "time") == 0 ||
			strcmp(layout->fields[i].name, "sequence") == 0 ||
			strcmp(layout->fields[i].name, "node") == 0)
			return psprintf("The field \"%s\" cannot have a ?: the server fills it.",
							layout->fields[i].name);
		layout->value_field = i;
		layout->value_shift = layout->fields[i].shift;
		value_bits = layout->fields[i].width;
	}
	if (bits > SNOWFLAKE_ID_BITS)
		return psprintf("The fields take %d bits, but an ID has %d.",
						bits, SNOWFLAKE_ID_BITS);

	layout->time_shift = layout->fields[0].shift;
	layout->sequence_bits = sequence->width;
	layout->sequence_shift = sequence->shift;
	layout->node_bits = bits - layout->fields[0].width - sequence->width - value_bits;
	if (layout->sequence_bits > SNOWFLAKE_PART_BITS)
		return psprintf("The sequence takes %d bits, but at most %d are possible.",
						layout->sequence_bits, SNOWFLAKE_PART_BITS);
	if (layout->node_bits > SNOWFLAKE_PART_BITS)
		return psprintf("The node ID takes %d bits, but at most %d are possible.",
						layout->node_bits, SNOWFLAKE_PART_BITS);
	if (value_bits > SNOWFLAKE_PART_BITS)
		return psprintf("The field \"%s\" takes %d bits, but at most %d are possible.",
						layout->fields[layout->value_field].name, value_bits,
						SNOWFLAKE_PART_BITS);

	/* snowflake_field() takes "node" for the whole node ID */
	if (snowflake_layout_find(layout, "node") != NULL &&
		layout->nfields > (value_bits > 0 ? 4 : 3))
		return "A field \"node\" is the whole node ID, so the node ID can have no other part.";

	layout->max_sequence = (int32) ((INT64CONST(1) << layout->sequence_bits) - 1);
	layout->max_node = (int32) ((INT64CONST(1) << layout->node_bits) - 1);
	layout->max_value = (int32) ((INT64CONST(1) << value_bits) - 1);

	/*
	 * Every tick starts at a timestamptz, as far from the epoch as an int64
	 * can say, so that nothing computed from a tick can overflow.
	 */
	if (pg_sub_s64_overflow(END_TIMESTAMP - 1, layout->epoch, &span_usec))
		span_usec = PG_INT64_MAX;
	layout->max_tick = Min(span_usec / layout->tick_usec,
						   (INT64CONST(1) << layout->fields[0].width) - 1);
	if (layout->max_tick < 1)
		return "The tick is so long that the second one starts after the year 294276, where timestamptz ends.";
	layout->max_id = (int64)
		((((uint64) layout->max_tick + 1) << layout->time_shift) - 1);
	return NULL;
}

/*
 * Parse a layout's text.  Returns NULL on success, otherwise a full sentence
 * that says what is wrong, for use as an error's detail.  Allocates in the current memory
 * context, even on success; nothing in *layout points there.
 */
const char *
snowflake_layout_parse(const char *text, SnowflakeLayout *layout)
{
	char	   *copy = pstrdup(text);
	char	   *rest = NULL;
	bool		first = true;
	bool		has_preset = false;
	bool		has_tick = false;
	bool		has_epoch = false;
	uint32		seen = 0;
	const char *complaint;

	StaticAssertStmt(SNOWFLAKE_MAX_FIELDS <= 32, "fields must fit a bitmap");

	memset(layout, 0, sizeof(*layout));
	layout->tick_usec = 1000;

	for (char *item = strtok_r(copy, " \t\n\r", &rest); item != NULL;
		 item = strtok_r(NULL, " \t\n\r", &rest))
	{
		char	   *value = strchr(item, ':');

		if (value == NULL)
		{
			const char *preset = NULL;

			for (int i = 0; i < snowflake_layout_npresets; i++)
				if (strcmp(item, snowflake_layout_presets[i].name) == 0)
					preset = snowflake_layout_presets[i].text;
			if (preset == NULL)
				return psprintf("\"%s\" is not a preset.", item);
			if (!first)
				return psprintf("The preset \"%s\" must come first.", item);
			if ((complaint = snowflake_layout_parse(preset, layout)) != NULL)
				return complaint;
			has_preset = true;
		}
		else
		{
			*value++ = '\0';
			if (strcmp(item, "tick") == 0)
			{
				if (has_tick)
					return "There are two ticks.";
				has_tick = true;
				complaint = parse_tick(value, &layout->tick_usec);
			}
			else if (strcmp(item, "epoch") == 0)
			{
				if (has_epoch)
					return "There are two epochs.";
				has_epoch = true;
				complaint = parse_epoch(value, &layout->epoch);
			}
			else
				complaint = parse_field(item, value, has_preset, layout, &seen);
			if (complaint != NULL)
				return complaint;
		}
		first = false;
	}

	if (first)
		return "It is empty.";
	if (!has_preset && !has_epoch)
		return "There is no epoch.";
	return derive(layout);
}

/*
 * Print a layout canonically: two layouts are the same if and only if their
 * canonical texts are equal.  size is at least SNOWFLAKE_LAYOUT_TEXT_SIZE.
 */
void
snowflake_layout_print(const SnowflakeLayout *layout, char *buf, size_t size)
{
	int64		unix_ms = layout->epoch / 1000 + PG_EPOCH_MS;
	int			second_of_day = (int) (unix_ms / 1000 % SECS_PER_DAY);
	int			year,
				month,
				day,
				unit = 0;
	size_t		len = 0;

	Assert(size >= SNOWFLAKE_LAYOUT_TEXT_SIZE);

	for (int i = 0; i < layout->nfields; i++)
		len += snprintf(buf + len, size - len, "%s:%d%s ",
						layout->fields[i].name, layout->fields[i].width,
						layout->fields[i].by_caller ? "?" : "");

	while (layout->tick_usec % tick_units[unit].usec != 0)
		unit++;
	len += snprintf(buf + len, size - len, "tick:" INT64_FORMAT "%s ",
					layout->tick_usec / tick_units[unit].usec,
					tick_units[unit].name);

	j2date((int) (unix_ms / 1000 / SECS_PER_DAY) + UNIX_EPOCH_JDATE,
		   &year, &month, &day);
	len += snprintf(buf + len, size - len, "epoch:%04d-%02d-%02dT%02d:%02d:%02d",
					year, month, day, second_of_day / SECS_PER_HOUR,
					second_of_day / SECS_PER_MINUTE % MINS_PER_HOUR,
					second_of_day % SECS_PER_MINUTE);
	if (unix_ms % 1000 != 0)
		len += snprintf(buf + len, size - len, ".%03d", (int) (unix_ms % 1000));
	snprintf(buf + len, size - len, "Z");
}

/*
 * Returns the name of the preset that equals this layout, however it was written, or NULL.
 * Allocates in the current memory context.
 */
const char *
snowflake_layout_name(const SnowflakeLayout *layout)
{
	char		mine[SNOWFLAKE_LAYOUT_TEXT_SIZE];

	snowflake_layout_print(layout, mine, sizeof(mine));
	for (int i = 0; i < snowflake_layout_npresets; i++)
	{
		SnowflakeLayout preset;
		char		theirs[SNOWFLAKE_LAYOUT_TEXT_SIZE];

		if (snowflake_layout_parse(snowflake_layout_presets[i].text, &preset) != NULL)
			continue;
		snowflake_layout_print(&preset, theirs, sizeof(theirs));
		if (strcmp(mine, theirs) == 0)
			return snowflake_layout_presets[i].name;
	}
	return NULL;
}

/* Returns the hint, a sentence, of every message about a text that is not a layout. */
const char *
snowflake_layout_hint(void)
{
	char	   *presets = pstrdup(snowflake_layout_presets[0].name);

	for (int i = 1; i < snowflake_layout_npresets; i++)
		presets = psprintf("%s, %s", presets, snowflake_layout_presets[i].name);
	return psprintf("A layout is a preset (%s), or fields and an epoch, such as time:41 node:10 sequence:12 epoch:2025-01-01T00:00:00Z.",
					presets);
}

const SnowflakeField *
snowflake_layout_find(const SnowflakeLayout *layout, const char *name)
{
	for (int i = 0; i < layout->nfields; i++)
		if (strcmp(layout->fields[i].name, name) == 0)
			return &layout->fields[i];
	return NULL;
}

static bool
is_node_part(const SnowflakeLayout *layout, int i)
{
	return i > 0 && layout->fields[i].shift != layout->sequence_shift &&
		!layout->fields[i].by_caller;
}

/* Spread a node ID of 0 .. max_node over its fields: the bits that all its IDs have. */
int64
snowflake_layout_place_node(const SnowflakeLayout *layout, int32 node)
{
	int64		placed = 0;

	for (int i = layout->nfields - 1; i > 0; i--)
	{
		const SnowflakeField *field = &layout->fields[i];

		if (!is_node_part(layout, i))
			continue;
		placed |= (node & ((INT64CONST(1) << field->width) - 1)) << field->shift;
		node >>= field->width;
	}
	return placed;
}

/* Returns the node ID of an ID: its parts, concatenated in order. */
int32
snowflake_layout_get_node(const SnowflakeLayout *layout, int64 id)
{
	int64		node = 0;

	for (int i = 1; i < layout->nfields; i++)
		if (is_node_part(layout, i))
			node = (node << layout->fields[i].width) |
				snowflake_layout_get_field(&layout->fields[i], id);
	return (int32) node;
}

/*
 * Returns the tick that contains a finite instant, counted from the epoch:
 * negative before it, and above max_tick after the layout's end.
 */
int64
snowflake_layout_tick_at(const SnowflakeLayout *layout, TimestampTz ts)
{
	int64		usec;
	int64		tick;

	if (pg_sub_s64_overflow(ts, layout->epoch, &usec))
		return PG_INT64_MAX;
	tick = usec / layout->tick_usec;

	/* C rounds toward zero, but a tick starts at or before its instants */
	if (usec < 0 && usec % layout->tick_usec != 0)
		tick--;
	return tick;
}

/*
 * Returns the largest ID whose instant, the start of its tick, is not after ts: -1 if there is
 * none, max_id if that is true of all IDs, and PG_INT64_MAX for infinity.
 */
int64
snowflake_layout_id_until(const SnowflakeLayout *layout, TimestampTz ts)
{
	int64		tick;

	if (TIMESTAMP_IS_NOBEGIN(ts))
		return -1;
	if (TIMESTAMP_IS_NOEND(ts))
		return PG_INT64_MAX;

	tick = snowflake_layout_tick_at(layout, ts);
	if (tick < 0)
		return -1;
	if (tick >= layout->max_tick)
		return layout->max_id;
	return ((tick + 1) << layout->time_shift) - 1;
}

/* Likewise, the largest ID whose instant is before ts. */
int64
snowflake_layout_id_before(const SnowflakeLayout *layout, TimestampTz ts)
{
	return snowflake_layout_id_until(layout, TIMESTAMP_NOT_FINITE(ts) ? ts : ts - 1);
}
