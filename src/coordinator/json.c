/*-------------------------------------------------------------------------
 *
 * json.c
 *	  Members of JSON objects, and the base64 in which some coordinators wrap
 *	  values.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/base64.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

#include "base/compat.h"
#include "coordinator/json.h"

/*
 * Returns a 64-bit integer as a text, or NULL if the number is not one.  This keeps it
 * short: an answer of a few bytes can have a number of 131,072 digits.
 */
static char *
integer_text(Numeric number)
{
	Datum		datum = NumericGetDatum(number);
	int64		integer;

	if (DatumGetInt32(DirectFunctionCall2(numeric_cmp, datum,
										  NumericGetDatum(int64_to_numeric(PG_INT64_MIN)))) < 0 ||
		DatumGetInt32(DirectFunctionCall2(numeric_cmp, datum,
										  NumericGetDatum(int64_to_numeric(PG_INT64_MAX)))) > 0)
		return NULL;
	integer = DatumGetInt64(DirectFunctionCall1(numeric_int8, datum));
	if (DatumGetInt32(DirectFunctionCall2(numeric_cmp, datum,
										  NumericGetDatum(int64_to_numeric(integer)))) != 0)
		return NULL;
	return psprintf(INT64_FORMAT, integer);
}

/*
 * Returns a member of an object that is a text, or a boolean or an integer, as a text; NULL if
 * there is none.
 */
char *
snowflake_json_text(JsonbContainer *object, const char *name)
{
	JsonbValue	found;

	if (object == NULL || !JsonContainerIsObject(object) ||
		getKeyJsonValueFromContainer(object, name, strlen(name), &found) == NULL)
		return NULL;
	if (found.type == jbvString)
		return pnstrdup(found.val.string.val, found.val.string.len);
	if (found.type == jbvNumeric)
		return integer_text(found.val.numeric);
	if (found.type == jbvBool)
		return pstrdup(found.val.boolean ? "true" : "false");
	return NULL;
}

/* Returns a member of an object that is an object or an array; NULL if there is none. */
JsonbContainer *
snowflake_json_child(JsonbContainer *object, const char *name)
{
	JsonbValue	found;

	if (object == NULL || !JsonContainerIsObject(object) ||
		getKeyJsonValueFromContainer(object, name, strlen(name), &found) == NULL ||
		found.type != jbvBinary)
		return NULL;
	return found.val.binary.data;
}

/* Returns a text as base64. */
char *
snowflake_json_base64_encode(const char *text)
{
	return snowflake_json_base64_encode_bytes(text, strlen(text));
}

/* Returns bytes as base64. */
char *
snowflake_json_base64_encode_bytes(const char *bytes, int length)
{
	int			size = pg_b64_enc_len(length) + 1;
	char	   *encoded = palloc(size);
	int			written = pg_b64_encode((const void *) bytes, length, encoded, size);

	if (written < 0)
		elog(ERROR, "could not encode base64");
	encoded[written] = '\0';
	return encoded;
}

/* Returns the text that base64 stands for, or NULL if it is not base64. */
char *
snowflake_json_base64_decode(const char *text)
{
	int			length = strlen(text);
	int			size = pg_b64_dec_len(length) + 1;
	char	   *decoded = palloc(size);
	int			written = pg_b64_decode(text, length, (void *) decoded, size);

	if (written < 0)
		return NULL;
	decoded[written] = '\0';
	return decoded;
}
