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

/* A member of an object that is a text, or a number as one; NULL if there is none. */
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
		return DatumGetCString(DirectFunctionCall1(numeric_out,
												   NumericGetDatum(found.val.numeric)));
	if (found.type == jbvBool)
		return pstrdup(found.val.boolean ? "true" : "false");
	return NULL;
}

/* A member of an object that is an object or an array; NULL if there is none. */
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

/* A text as base64. */
char *
snowflake_json_base64_encode(const char *text)
{
	return snowflake_json_base64_encode_bytes(text, strlen(text));
}

/* Any bytes as base64. */
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

/* The text that base64 stands for; NULL if it is not base64. */
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
