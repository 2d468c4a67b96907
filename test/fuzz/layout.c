/*-------------------------------------------------------------------------
 *
 * layout.c
 *	  Fuzzer of the layout parser.
 *
 * A text that is refused must be refused with a sentence.  One that is
 * accepted must survive printing, its limits must follow from its fields, IDs
 * must come apart and together again, and its bounds must bound.
 *
 *-------------------------------------------------------------------------
 */
#include "server.h"

#include "common/int.h"
#include "utils/timestamp.h"

#include "../../src/layout/layout.h"

/* The instant of an ID that the layout has. */
static TimestampTz
instant(const SnowflakeLayout *layout, int64 id)
{
	return snowflake_layout_tick_start(layout, snowflake_layout_get_tick(layout, id));
}

static void
check_fields(const SnowflakeLayout *layout)
{
	int			bits = 0,
				node_bits = 0,
				sequence_bits = 0,
				value_bits = 0;

	REQUIRE(layout->nfields >= 2 && layout->nfields <= SNOWFLAKE_MAX_FIELDS);
	REQUIRE(strcmp(layout->fields[0].name, "time") == 0);
	for (int i = layout->nfields - 1; i >= 0; i--)
	{
		const SnowflakeField *field = &layout->fields[i];

		REQUIRE(memchr(field->name, '\0', SNOWFLAKE_FIELD_NAME_SIZE) != NULL);
		REQUIRE(snowflake_layout_find(layout, field->name) == field);
		REQUIRE(field->width >= 1);
		REQUIRE(field->shift == bits);
		bits += field->width;
		if (strcmp(field->name, "sequence") == 0)
			sequence_bits += field->width;
		else if (field->by_caller)
		{
			REQUIRE(i > 0 && layout->value_field == i && value_bits == 0);
			REQUIRE(layout->value_shift == field->shift);
			value_bits = field->width;
		}
		else if (i > 0)
			node_bits += field->width;
	}
	REQUIRE(bits <= 63);
	REQUIRE(sequence_bits >= 1 && sequence_bits <= 31 && node_bits <= 31 && value_bits <= 31);
	REQUIRE((layout->value_field == 0) == (value_bits == 0));
	REQUIRE(layout->max_value == (int32) ((UINT64CONST(1) << value_bits) - 1));
	REQUIRE(layout->sequence_bits == sequence_bits);
	REQUIRE(layout->node_bits == node_bits);
	REQUIRE(layout->time_shift == node_bits + sequence_bits + value_bits);
	REQUIRE(layout->max_sequence == (int32) ((UINT64CONST(1) << sequence_bits) - 1));
	REQUIRE(layout->max_node == (int32) ((UINT64CONST(1) << node_bits) - 1));

	/* the last tick is one of timestamptz, and no other one would be */
	REQUIRE(layout->tick_usec > 0);
	REQUIRE(layout->max_tick >= 1);
	REQUIRE(layout->max_tick < INT64CONST(1) << layout->fields[0].width);
	REQUIRE((layout->max_id >> layout->time_shift) == layout->max_tick);
	REQUIRE(layout->max_id == PG_INT64_MAX ||
			((layout->max_id + 1) >> layout->time_shift) > layout->max_tick);
	REQUIRE(IS_VALID_TIMESTAMP(layout->epoch));
	REQUIRE(IS_VALID_TIMESTAMP(snowflake_layout_tick_start(layout, layout->max_tick)));
}

/* Without a preset, the fields are those that the text names. */
static void
check_names(const SnowflakeLayout *layout, const char *text)
{
	const char *item = text + strspn(text, " \t\n\r");

	if (memchr(item, ':', strcspn(item, " \t\n\r")) == NULL)
		return;
	for (int i = 0; i < layout->nfields; i++)
		REQUIRE(strstr(text, psprintf("%s:%d", layout->fields[i].name,
									  layout->fields[i].width)) != NULL ||
				strstr(text, psprintf("%s:0", layout->fields[i].name)) != NULL);
}

static void
check_text(const SnowflakeLayout *layout)
{
	SnowflakeLayout again;
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	char		second[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	const char *name;

	snowflake_layout_print(layout, text, sizeof(text));
	REQUIRE(snowflake_layout_parse(text, &again) == NULL);
	REQUIRE(memcmp(layout, &again, sizeof(again)) == 0);
	snowflake_layout_print(&again, second, sizeof(second));
	REQUIRE(strcmp(text, second) == 0);

	name = snowflake_layout_name(layout);
	if (name != NULL)
	{
		REQUIRE(snowflake_layout_parse(name, &again) == NULL);
		REQUIRE(memcmp(layout, &again, sizeof(again)) == 0);
	}
}

static void
check_id(const SnowflakeLayout *layout, int64 id)
{
	int64		tick = snowflake_layout_get_tick(layout, id);
	int32		node = snowflake_layout_get_node(layout, id);
	int32		sequence = snowflake_layout_get_sequence(layout, id);
	int64		value = layout->value_field == 0 ? 0 :
	id & ((int64) layout->max_value << layout->value_shift);
	int64		sum = 0;
	TimestampTz end;
	int64		distance;

	REQUIRE(tick >= 0 && tick <= layout->max_tick);
	REQUIRE(node >= 0 && node <= layout->max_node);
	REQUIRE(sequence >= 0 && sequence <= layout->max_sequence);
	REQUIRE((snowflake_layout_place_node(layout, node) & value) == 0);
	REQUIRE(snowflake_layout_pack(layout, tick, snowflake_layout_place_node(layout, node) | value,
						   sequence) == id);
	for (int i = 0; i < layout->nfields; i++)
		sum += snowflake_layout_get_field(&layout->fields[i], id) << layout->fields[i].shift;
	REQUIRE(sum == id);

	/* its tick starts where it starts, and not a microsecond earlier */
	REQUIRE(snowflake_layout_tick_at(layout, instant(layout, id)) == tick);
	REQUIRE(snowflake_layout_tick_at(layout, instant(layout, id) - 1) == tick - 1);
	if (!pg_add_s64_overflow(instant(layout, id), layout->tick_usec - 1, &end) &&
		!pg_sub_s64_overflow(end, layout->epoch, &distance))
		REQUIRE(snowflake_layout_tick_at(layout, end) == tick);
}

/* What the comments of snowflake_layout_id_until() say, for any finite instant. */
static void
check_bounds(const SnowflakeLayout *layout, TimestampTz ts)
{
	int64		before = snowflake_layout_id_before(layout, ts);
	int64		until = snowflake_layout_id_until(layout, ts);

	REQUIRE(before >= -1 && before <= until && until <= layout->max_id);
	REQUIRE(before < 0 || instant(layout, before) < ts);
	REQUIRE(until < 0 || instant(layout, until) <= ts);
	REQUIRE(before == layout->max_id || instant(layout, before + 1) >= ts);
	REQUIRE(until == layout->max_id || instant(layout, until + 1) > ts);
}

static void
check_layout(const SnowflakeLayout *layout)
{
	check_fields(layout);
	check_text(layout);

	check_id(layout, 0);
	check_id(layout, layout->max_id);
	REQUIRE(snowflake_layout_id_until(layout, DT_NOBEGIN) == -1);
	REQUIRE(snowflake_layout_id_before(layout, DT_NOEND) == PG_INT64_MAX);
	check_bounds(layout, MIN_TIMESTAMP);
	check_bounds(layout, END_TIMESTAMP - 1);

	for (int i = 0; i < 4; i++)
	{
		/* all magnitudes, not only the largest */
		int64		id = (int64) (fuzz_random() >> (1 + fuzz_random() % 63));
		TimestampTz ts;

		if (layout->max_id < PG_INT64_MAX)
			id %= layout->max_id + 1;
		check_id(layout, id);
		ts = instant(layout, id);
		check_bounds(layout, ts);
		if (ts > MIN_TIMESTAMP)
			check_bounds(layout, ts - 1);
		check_bounds(layout, ts + 1);

		ts = (int64) (MIN_TIMESTAMP + fuzz_random() %
					  ((uint64) END_TIMESTAMP - (uint64) MIN_TIMESTAMP));
		check_bounds(layout, ts);
	}
}

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	SnowflakeLayout layout;
	char	   *text = fuzz_string(data, size);
	const char *complaint = snowflake_layout_parse(text, &layout);

	fuzz_seed(data, size);
	if (complaint == NULL)
	{
		check_names(&layout, text);
		check_layout(&layout);
	}
	else
		REQUIRE(strlen(complaint) > 1 && complaint[strlen(complaint) - 1] == '.');
	fuzz_reset_memory();
	return 0;
}
