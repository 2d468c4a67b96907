/*-------------------------------------------------------------------------
 *
 * explain.c
 *	  An ID decoded bit by bit, for people to read.
 *
 * The other decoding functions refuse an ID that is not of the layout.  This one shows it, and
 * says so: people often look at the bits of an ID because it was refused.
 *
 * With a layout argument the function is IMMUTABLE, so the text does not depend on a setting:
 * instants are in UTC, written as in a layout.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "layout/decode.h"
#include "layout/io.h"

PG_FUNCTION_INFO_V1(snowflake_explain);

/* Bits of an int64, and the label of those that belong to no field */
#define ALL_BITS		64
#define UNUSED_NAME		"(unused)"
#define UNUSED_LABEL	'-'

/* Append the bits first .. last of an ID, from the most significant one on. */
static void
append_bits(StringInfo buf, int64 id, int first, int last)
{
	for (int bit = first; bit >= last; bit--)
		appendStringInfoChar(buf, (((uint64) id >> bit) & 1) ? '1' : '0');
}

/* Append an instant in UTC, such as 2025-01-01T00:00:00.123Z. */
static void
append_instant(StringInfo buf, TimestampTz ts)
{
	struct pg_tm tm;
	fsec_t		fsec;
	char		text[MAXDATELEN + 1];

	if (timestamp2tm(ts, NULL, &tm, &fsec, NULL, NULL) != 0)
		ereport(ERROR,
				errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				errmsg("timestamp out of range"));
	EncodeDateTime(&tm, fsec, false, 0, NULL, USE_XSD_DATES, text);
	appendStringInfo(buf, "%sZ", text);
}

/*
 * Append a line of the table: label, name, bits "first .. last" (none if first
 * is negative), width and value.
 */
static void
append_row(StringInfo buf, char label, const char *name, int name_width,
		   int first, int last, int width, int64 value)
{
	char		bits[16] = "";

	if (first > last)
		snprintf(bits, sizeof(bits), "%d-%d", first, last);
	else if (first >= 0)
		snprintf(bits, sizeof(bits), "%d", first);
	appendStringInfo(buf, "\n%c  %-*s  %-5s  %5d  " INT64_FORMAT,
					 label, name_width, name, bits, width, value);
}

/*
 * An ID as a text of several lines: the layout, all 64 bits grouped by field,
 * with a letter for each field below them, and the fields' values.
 */
Datum
snowflake_explain(PG_FUNCTION_ARGS)
{
	int64		id = snowflake_io_check_sign(PG_GETARG_INT64(0));
	const SnowflakeLayout *layout = snowflake_decode_get_layout(fcinfo, 1);
	const char *preset = snowflake_layout_name(layout);
	int			bits = layout->fields[0].shift + layout->fields[0].width;
	int			name_width = strlen(UNUSED_NAME);

	/* parts of the node ID */
	int			nparts = layout->nfields - (layout->value_field != 0 ? 3 : 2);
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "snowflake  " INT64_FORMAT, id);

	/* the end of the canonical text, after the fields, which have their table */
	snowflake_layout_print(layout, text, sizeof(text));
	appendStringInfo(&buf, "\nlayout     %s%s%s\n\n",
					 preset != NULL ? preset : "",
					 preset != NULL ? ", " : "",
					 strstr(text, " tick:") + 1);

	append_bits(&buf, id, ALL_BITS - 1, bits);
	for (int i = 0; i < layout->nfields; i++)
	{
		const SnowflakeField *field = &layout->fields[i];

		appendStringInfoChar(&buf, ' ');
		append_bits(&buf, id, field->shift + field->width - 1, field->shift);
		name_width = Max(name_width, (int) strlen(field->name));
	}
	appendStringInfoChar(&buf, '\n');
	for (int bit = ALL_BITS - 1; bit >= bits; bit--)
		appendStringInfoChar(&buf, UNUSED_LABEL);
	for (int i = 0; i < layout->nfields; i++)
	{
		appendStringInfoChar(&buf, ' ');
		for (int bit = 0; bit < layout->fields[i].width; bit++)
			appendStringInfoChar(&buf, 'a' + i);
	}

	appendStringInfo(&buf, "\n\n   %-*s  bits   width  value", name_width, "field");
	append_row(&buf, UNUSED_LABEL, UNUSED_NAME, name_width,
			   ALL_BITS - 1, bits, ALL_BITS - bits, id >> bits);
	for (int i = 0; i < layout->nfields; i++)
	{
		const SnowflakeField *field = &layout->fields[i];

		append_row(&buf, 'a' + i, field->name, name_width,
				   field->shift + field->width - 1, field->shift,
				   field->width, snowflake_layout_get_field(field, id));
		if (i == 0 && id <= layout->max_id)
		{
			appendStringInfoString(&buf, "  ");
			append_instant(&buf, snowflake_layout_get_time(layout, id));
		}
	}
	if (nparts > 1)
		append_row(&buf, ' ', "node", name_width, -1, -1,
				   layout->node_bits, snowflake_layout_get_node(layout, id));

	if (id > layout->max_id)
		appendStringInfo(&buf,
						 "\n\nThis is not a snowflake of the layout, whose largest is " INT64_FORMAT
						 ": decoding it fails.",
						 layout->max_id);

	PG_RETURN_TEXT_P(cstring_to_text_with_len(buf.data, buf.len));
}
