/*-------------------------------------------------------------------------
 *
 * layout.c
 *	  Fuzzer of the layout parser.
 *
 * A text that is refused must be refused with a sentence.  One that is
 * accepted must survive printing, its limits must follow from its fields, IDs
 * must come apart and together again, and its bounds must bound.
 *
 * The few functions of the server that the parser calls have stand-ins here, so
 * that it runs unmodified in a process of its own.  Memory comes from malloc, and
 * strings are printed by libc's functions, so that the sanitizers watch both.
 * Dates are libc's: a second opinion on the server's arithmetic, and the same
 * calendar.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "common/int.h"
#include "utils/datetime.h"
#include "utils/palloc.h"
#include "utils/timestamp.h"

#include "../../src/layout/layout.h"

#undef snprintf
#undef vsnprintf
#undef fprintf

#define MAX_CHUNKS	10000

#define REQUIRE(condition) \
	do { \
		if (!(condition)) \
			finding(__FILE__, __LINE__, #condition); \
	} while (0)

extern int	LLVMFuzzerTestOneInput(const uint8 *data, size_t size);

static void *chunks[MAX_CHUNKS];
static int	nchunks;
static uint64 random_state;

/* A finding: say what and where, and die. */
static void finding(const char *file, int line, const char *what) pg_attribute_noreturn();

static void
finding(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	abort();
}

/* Numbers that depend on the data alone, so that a finding can be repeated: splitmix64. */
static uint64
fuzz_random(void)
{
	uint64		z = (random_state += UINT64CONST(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/*
 * Stand-ins
 */

void *
palloc(Size size)
{
	REQUIRE(nchunks < MAX_CHUNKS);
	return chunks[nchunks++] = malloc(size);
}

char *
pstrdup(const char *in)
{
	return strcpy(palloc(strlen(in) + 1), in);
}

char *
psprintf(const char *fmt,...)
{
	va_list		args;
	int			len;
	char	   *result;

	va_start(args, fmt);
	len = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	result = palloc(len + 1);
	va_start(args, fmt);
	vsnprintf(result, len + 1, fmt, args);
	va_end(args);
	return result;
}

int
pg_snprintf(char *str, size_t count, const char *fmt,...)
{
	va_list		args;
	int			len;

	va_start(args, fmt);
	len = vsnprintf(str, count, fmt, args);
	va_end(args);
	return len;
}

/* libc may or may not have this one, and sees to its own declaration */
#ifndef HAVE_STRLCPY
size_t
strlcpy(char *dst, const char *src, size_t siz)
{
	snprintf(dst, siz, "%s", src);
	return strlen(src);
}
#endif

void
ExceptionalCondition(const char *conditionName,
#if PG_VERSION_NUM < 160000
					 const char *errorType,
#endif
					 const char *fileName, int lineNumber)
{
	finding(fileName, lineNumber, conditionName);
}

const int	day_tab[2][13] =
{
	{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0},
	{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0}
};

int
date2j(int year, int month, int day)
{
	struct tm	tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};

	return (int) (timegm(&tm) / SECS_PER_DAY) + UNIX_EPOCH_JDATE;
}

void
j2date(int jd, int *year, int *month, int *day)
{
	time_t		seconds = (time_t) (jd - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
	struct tm	tm;

	REQUIRE(gmtime_r(&seconds, &tm) != NULL);
	*year = tm.tm_year + 1900;
	*month = tm.tm_mon + 1;
	*day = tm.tm_mday;
}

/*
 * What has to hold
 */

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
	char	   *text = palloc(size + 1);
	const char *complaint;

	memcpy(text, data, size);
	text[size] = '\0';
	random_state = UINT64CONST(0xcbf29ce484222325);
	for (size_t i = 0; i < size; i++)
		random_state = (random_state ^ data[i]) * UINT64CONST(0x100000001b3);

	complaint = snowflake_layout_parse(text, &layout);
	if (complaint == NULL)
	{
		check_names(&layout, text);
		check_layout(&layout);
	}
	else
		REQUIRE(strlen(complaint) > 1 && complaint[strlen(complaint) - 1] == '.');
	while (nchunks > 0)
		free(chunks[--nchunks]);
	return 0;
}
