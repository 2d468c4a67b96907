/*-------------------------------------------------------------------------
 *
 * http.h
 *	  Requests to a coordinator that speaks HTTP and JSON.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_HTTP_H
#define SNOWFLAKE_HTTP_H

#include <curl/curl.h>

#include "utils/jsonb.h"

#include "coordinator/coordinator.h"
#include "coordinator/url.h"

typedef struct SnowflakeHttp
{
	SnowflakeCoordinator coordinator;	/* whose clock is the date of the last
										 * answer */
	SnowflakeUrl *url;
	bool		tls;			/* as the scheme ends with "s" */
	int			host;			/* that answered last, as an index */
	CURL	   *curl;
	CURLM	   *multi;
	struct curl_slist *headers;
	struct curl_slist *addresses;	/* of the hosts */
	char	   *answer;			/* in malloc's memory; NULL: nothing yet */
	size_t		answer_bytes;
	char		error[CURL_ERROR_SIZE];
} SnowflakeHttp;

extern const char *const snowflake_http_parameters[];

extern SnowflakeHttp *snowflake_http_open(SnowflakeUrl *url, int64 deadline_usec);
extern void snowflake_http_header(SnowflakeHttp *http, const char *header);
extern JsonbContainer *snowflake_http_request(SnowflakeHttp *http, const char *method,
											  const char *path, const char *body,
											  long *status);

/* Parts of answers and of requests */
extern char *snowflake_http_text(JsonbContainer *object, const char *name);
extern JsonbContainer *snowflake_http_child(JsonbContainer *object, const char *name);
extern JsonbContainer *snowflake_http_element(JsonbContainer *array, uint32 index);
extern char *snowflake_http_encode(const char *bytes, int length);
extern char *snowflake_http_decode(const char *base64);

#endif							/* SNOWFLAKE_HTTP_H */
