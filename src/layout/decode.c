/*-------------------------------------------------------------------------
 *
 * decode.c
 *	  Decoding IDs, and making IDs with given parts.
 *
 * Each function exists twice in SQL: with a layout argument, IMMUTABLE, and
 * without, STABLE, for the server's own layout.  Both are the same C function.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/compat.h"
#include "layout/decode.h"
#include "layout/io.h"
#include "layout/server_layout.h"

PG_FUNCTION_INFO_V1(snowflake_timestamp);
PG_FUNCTION_INFO_V1(snowflake_node);
PG_FUNCTION_INFO_V1(snowflake_sequence);
PG_FUNCTION_INFO_V1(snowflake_field);
PG_FUNCTION_INFO_V1(snowflake_decode);
PG_FUNCTION_INFO_V1(make_snowflake);
PG_FUNCTION_INFO_V1(snowflake_lower_bound);
PG_FUNCTION_INFO_V1(snowflake_upper_bound);
PG_FUNCTION_INFO_V1(snowflake_layout);
PG_FUNCTION_INFO_V1(snowflake_layouts);

/* The layout argument of an earlier call */
typedef struct LayoutCache
{
	text	   *text;
	SnowflakeLayout layout;
} LayoutCache;

/*
 * Returns the layout of a function call: the one in argument argno, or the
 * server's if the function has no such argument.  A text that is not a layout is an error.
 * The parsed layout is kept in fn_extra, which the caller must not use for anything else.
 */
const SnowflakeLayout *
snowflake_decode_get_layout(FunctionCallInfo fcinfo, int argno)
{
	LayoutCache *cache = fcinfo->flinfo->fn_extra;
	text	   *arg;
	SnowflakeLayout layout;
	const char *complaint;

	if (PG_NARGS() <= argno)
		return &snowflake_server_layout;

	arg = PG_GETARG_TEXT_PP(argno);
	if (cache != NULL && VARSIZE_ANY(cache->text) == VARSIZE_ANY(arg) &&
		memcmp(cache->text, arg, VARSIZE_ANY(arg)) == 0)
		return &cache->layout;

	complaint = snowflake_layout_parse(text_to_cstring(arg), &layout);
	if (complaint != NULL)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid snowflake layout: \"%s\"",
					   text_to_cstring(arg)),
				errdetail_internal("%s", complaint),
				errhint("%s", snowflake_layout_hint()));

	if (cache != NULL)
		pfree(cache);
	fcinfo->flinfo->fn_extra = NULL;
	cache = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(LayoutCache) + VARSIZE_ANY(arg));
	memcpy(&cache->layout, &layout, sizeof(layout));
	cache->text = memcpy(cache + 1, arg, VARSIZE_ANY(arg));
	fcinfo->flinfo->fn_extra = cache;
	return &cache->layout;
}

/* Returns the ID of a function call.  It is an error if it is not of the layout. */
static int64
get_id(FunctionCallInfo fcinfo, const SnowflakeLayout *layout)
{
	int64		id = snowflake_io_check_sign(PG_GETARG_INT64(0));

	if (id > layout->max_id)
	{
		char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];

		snowflake_layout_print(layout, text, sizeof(text));
		ereport(ERROR,
				errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				errmsg("snowflake " INT64_FORMAT " is not of the layout \"%s\"",
					   id, text),
				errdetail("The largest snowflake of this layout is " INT64_FORMAT ".",
						  layout->max_id));
	}
	return id;
}

Datum
snowflake_timestamp(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = snowflake_decode_get_layout(fcinfo, 1);

	PG_RETURN_TIMESTAMPTZ(snowflake_layout_get_time(layout, get_id(fcinfo, layout)));
}

Datum
snowflake_node(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = snowflake_decode_get_layout(fcinfo, 1);

	PG_RETURN_INT32(snowflake_layout_get_node(layout, get_id(fcinfo, layout)));
}

Datum
snowflake_sequence(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = snowflake_decode_get_layout(fcinfo, 1);

	PG_RETURN_INT32(snowflake_layout_get_sequence(layout, get_id(fcinfo, layout)));
}

/* Any field by its name; "node" is the whole node ID in every layout. */
Datum
snowflake_field(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = snowflake_decode_get_layout(fcinfo, 2);
	int64		id = get_id(fcinfo, layout);
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(1));
	const SnowflakeField *field = snowflake_layout_find(layout, name);

	if (field != NULL)
		PG_RETURN_INT64(snowflake_layout_get_field(field, id));
	if (strcmp(name, "node") == 0)
		PG_RETURN_INT64(snowflake_layout_get_node(layout, id));

	{
		char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];

		snowflake_layout_print(layout, text, sizeof(text));
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("the layout has no field \"%s\"", name),
				errdetail("The layout is \"%s\".", text));
	}
}

/* The row that a function call returns. */
static Datum
make_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls));
}

Datum
snowflake_decode(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = snowflake_decode_get_layout(fcinfo, 1);
	int64		id = get_id(fcinfo, layout);
	Datum		values[] = {
		TimestampTzGetDatum(snowflake_layout_get_time(layout, id)),
		Int32GetDatum(snowflake_layout_get_node(layout, id)),
		Int32GetDatum(snowflake_layout_get_sequence(layout, id)),
	};
	bool		nulls[lengthof(values)] = {0};

	return make_row(fcinfo, values, nulls);
}

/* Raise the error for an instant without a tick in the layout, or on the side asked for. */
pg_noreturn static void
instant_error(const SnowflakeLayout *layout, TimestampTz ts)
{
	/* timestamptz_to_str() has one static buffer */
	char	   *first = pstrdup(timestamptz_to_str(layout->epoch));
	TimestampTz end = snowflake_layout_tick_start(layout, layout->max_tick);
	char	   *last = pstrdup(timestamptz_to_str(end));

	ereport(ERROR,
			errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
			errmsg("timestamp \"%s\" is out of range for the snowflake layout",
				   timestamptz_to_str(ts)),
			errdetail("The layout's ticks start between \"%s\" and \"%s\".",
					  first, last));
}

/* Raise an error if a part of an ID does not fit its field. */
void
snowflake_decode_check_part(const char *name, int32 value, int32 max)
{
	if (value < 0 || value > max)
		ereport(ERROR,
				errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				errmsg("%s %d is out of range for the snowflake layout",
					   name, value),
				errdetail("In this layout, a %s is from 0 to %d.", name, max));
}

/* Returns the ID of the tick that contains an instant, with the given node and sequence. */
Datum
make_snowflake(PG_FUNCTION_ARGS)
{
	TimestampTz ts = PG_GETARG_TIMESTAMPTZ(0);
	int32		node = PG_GETARG_INT32(1);
	int32		sequence = PG_GETARG_INT32(2);
	const SnowflakeLayout *layout = snowflake_decode_get_layout(fcinfo, 3);
	int64		tick;

	if (TIMESTAMP_NOT_FINITE(ts))
		instant_error(layout, ts);
	tick = snowflake_layout_tick_at(layout, ts);
	if (tick < 0 || tick > layout->max_tick)
		instant_error(layout, ts);
	snowflake_decode_check_part("node", node, layout->max_node);
	snowflake_decode_check_part("sequence", sequence, layout->max_sequence);

	PG_RETURN_INT64(snowflake_layout_pack(layout, tick,
										  snowflake_layout_place_node(layout, node),
										  sequence));
}

/* The smallest ID at or after an instant. */
Datum
snowflake_lower_bound(PG_FUNCTION_ARGS)
{
	TimestampTz ts = PG_GETARG_TIMESTAMPTZ(0);
	const SnowflakeLayout *layout = snowflake_decode_get_layout(fcinfo, 1);
	int64		before = snowflake_layout_id_before(layout, ts);

	if (before >= layout->max_id)
		instant_error(layout, ts);
	PG_RETURN_INT64(before + 1);
}

/* The largest ID at or before an instant. */
Datum
snowflake_upper_bound(PG_FUNCTION_ARGS)
{
	TimestampTz ts = PG_GETARG_TIMESTAMPTZ(0);
	const SnowflakeLayout *layout = snowflake_decode_get_layout(fcinfo, 1);
	int64		id = snowflake_layout_id_until(layout, ts);

	if (id < 0)
		instant_error(layout, ts);
	PG_RETURN_INT64(Min(id, layout->max_id));
}

/* A layout as a row of snowflake_layout(). */
static void
layout_row(const SnowflakeLayout *layout, Datum *values, bool *nulls)
{
	const char *name = snowflake_layout_name(layout);
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	Interval   *tick = palloc0(sizeof(Interval));

	snowflake_layout_print(layout, text, sizeof(text));
	tick->time = layout->tick_usec;

	if (name == NULL)
		nulls[0] = true;
	else
		values[0] = CStringGetTextDatum(name);
	values[1] = CStringGetTextDatum(text);
	values[2] = Int32GetDatum(layout->fields[0].width);
	values[3] = Int32GetDatum(layout->node_bits);
	values[4] = Int32GetDatum(layout->sequence_bits);
	values[5] = IntervalPGetDatum(tick);
	values[6] = TimestampTzGetDatum(layout->epoch);
	values[7] = TimestampTzGetDatum(snowflake_layout_tick_start(layout, layout->max_tick));
	values[8] = Int64GetDatum((int64) layout->max_node + 1);
	values[9] = Float8GetDatum(((double) layout->max_sequence + 1) *
							   USECS_PER_SEC / layout->tick_usec);
}

#define LAYOUT_COLUMNS	10

Datum
snowflake_layout(PG_FUNCTION_ARGS)
{
	Datum		values[LAYOUT_COLUMNS];
	bool		nulls[LAYOUT_COLUMNS] = {0};

	layout_row(snowflake_decode_get_layout(fcinfo, 0), values, nulls);
	return make_row(fcinfo, values, nulls);
}

Datum
snowflake_layouts(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < snowflake_layout_npresets; i++)
	{
		SnowflakeLayout layout;
		Datum		values[LAYOUT_COLUMNS];
		bool		nulls[LAYOUT_COLUMNS] = {0};
		const char *complaint = snowflake_layout_parse(snowflake_layout_presets[i].text,
													   &layout);

		if (complaint != NULL)
			elog(ERROR, "preset \"%s\": %s", snowflake_layout_presets[i].name, complaint);
		layout_row(&layout, values, nulls);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
