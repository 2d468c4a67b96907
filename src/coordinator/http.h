/*-------------------------------------------------------------------------
 *
 * http.h
 *	  Requests to a coordinator that speaks HTTP and JSON.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_HTTP_H
#define SNOWFLAKE_HTTP_H

#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "coordinator/url.h"

typedef struct SnowflakeHttp SnowflakeHttp;

extern SnowflakeHttp *snowflake_http_open(SnowflakeUrl *url, bool tls,
										  int64 *deadline_usec);
extern void snowflake_http_header(SnowflakeHttp *http, const char *header);
extern JsonbContainer *snowflake_http_request(SnowflakeHttp *http, const char *method,
											  const char *path, const char *body,
											  long *status);
extern void snowflake_http_set_deadline(SnowflakeHttp *http, int64 deadline_usec);
extern TimestampTz snowflake_http_clock(const SnowflakeHttp *http);
extern size_t snowflake_http_answer_bytes(const SnowflakeHttp *http);
extern void snowflake_http_close(SnowflakeHttp *http);

#endif							/* SNOWFLAKE_HTTP_H */
