/*-------------------------------------------------------------------------
 *
 * json.h
 *	  JSON from others, which may be anything.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_JSON_H
#define SNOWFLAKE_JSON_H

#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

/* Parse a text.  If it is not JSON, or more than core can parse, returns NULL and sets *sqlstate. */
static inline JsonbContainer *
snowflake_json_parse(const char *text, int *sqlstate)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *volatile jsonb = NULL;

	*sqlstate = 0;
	PG_TRY();
	{
		jsonb = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
	}
	PG_CATCH();
	{
		*sqlstate = geterrcode();
		MemoryContextSwitchTo(context);
		if (ERRCODE_TO_CATEGORY(*sqlstate) != ERRCODE_DATA_EXCEPTION &&
			ERRCODE_TO_CATEGORY(*sqlstate) != ERRCODE_PROGRAM_LIMIT_EXCEEDED &&
			*sqlstate != ERRCODE_FEATURE_NOT_SUPPORTED) /* \u in our encoding */
			PG_RE_THROW();
		FlushErrorState();
	}
	PG_END_TRY();
	return jsonb == NULL ? NULL : &jsonb->root;
}

/* Get a member of an object.  Returns false if there is none. */
static inline bool
snowflake_json_get(JsonbContainer *object, const char *name, JsonbValue *found)
{
	return object != NULL && JsonContainerIsObject(object) &&
		getKeyJsonValueFromContainer(object, name, strlen(name), found) != NULL;
}

static inline int
snowflake_json_compare(Numeric number, int64 other)
{
	return DatumGetInt32(DirectFunctionCall2(numeric_cmp, NumericGetDatum(number),
											 NumericGetDatum(int64_to_numeric(other))));
}

/*
 * Get a number between two others, without a fraction.  It is not converted to a text,
 * which could have 131,072 digits.
 */
static inline bool
snowflake_json_integer(Numeric number, int64 least, int64 most, int64 *integer)
{
	if (snowflake_json_compare(number, least) < 0 || snowflake_json_compare(number, most) > 0)
		return false;
	*integer = DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(number)));
	return snowflake_json_compare(number, *integer) == 0;
}

#endif							/* SNOWFLAKE_JSON_H */
