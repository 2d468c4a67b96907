/*-------------------------------------------------------------------------
 *
 * json.h
 *	  Members of JSON objects, and the base64 in which some coordinators wrap
 *	  values.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_JSON_H
#define SNOWFLAKE_JSON_H

#include "utils/jsonb.h"

extern char *snowflake_json_text(JsonbContainer *object, const char *name);
extern JsonbContainer *snowflake_json_child(JsonbContainer *object, const char *name);

extern char *snowflake_json_base64_encode(const char *text);
extern char *snowflake_json_base64_encode_bytes(const char *bytes, int length);
extern char *snowflake_json_base64_decode(const char *text);

#endif							/* SNOWFLAKE_JSON_H */
