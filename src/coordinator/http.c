/*-------------------------------------------------------------------------
 *
 * http.c
 *	  Requests to a coordinator that speaks HTTP and JSON, with libcurl.
 *
 * A request goes to one host after the other until one answers.  So it may be done more
 * than once, which does no harm: lease.c recognizes its own record by its content.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/base64.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "base/clock.h"
#include "base/compat.h"
#include "coordinator/http.h"
#include "coordinator/json.h"

#define LOOK_MS			50		/* between checks for interrupts */

/* Of an answer: 65,536 records have fewer, and a parsed element takes some hundred bytes. */
#define MOST_ELEMENTS	(10 * 65536)

/* The parameters of a URL: the last three are files for TLS. */
const char *const snowflake_http_parameters[] = {"passfile", "cacert", "cert", "key", NULL};

static void
finish(void *arg)
{
	SnowflakeHttp *http = arg;

	if (http->multi != NULL && http->curl != NULL)
		curl_multi_remove_handle(http->multi, http->curl);
	if (http->curl != NULL)
		curl_easy_cleanup(http->curl);
	if (http->multi != NULL)
	{
		curl_multi_cleanup(http->multi);
		ReleaseExternalFD();
	}
	curl_slist_free_all(http->headers);
	curl_slist_free_all(http->addresses);
	free(http->answer);
	http->curl = NULL;
	http->multi = NULL;
	http->headers = http->addresses = NULL;
	http->answer = NULL;
}

/* Called by libcurl, so it must not raise an error: to report one, it returns less than "bytes". */
static size_t
receive(char *data, size_t size, size_t count, void *arg)
{
	SnowflakeHttp *http = arg;
	size_t		bytes = size * count;
	char	   *answer = NULL;

	if (http->answer_bytes + bytes <= SNOWFLAKE_MOST_BYTES)
		answer = realloc(http->answer, http->answer_bytes + bytes + 1);
	if (answer == NULL)
		return 0;
	memcpy(answer + http->answer_bytes, data, bytes);
	http->answer_bytes += bytes;
	answer[http->answer_bytes] = '\0';
	http->answer = answer;
	return bytes;
}

/* Called by libcurl for each line of an answer's head. */
static size_t
receive_head(char *data, size_t size, size_t count, void *arg)
{
	SnowflakeHttp *http = arg;
	size_t		bytes = size * count;
	char		date[64];

	if (bytes > 5 && bytes < sizeof(date) && pg_strncasecmp(data, "Date:", 5) == 0)
	{
		time_t		seconds;

		memcpy(date, data + 5, bytes - 5);
		date[bytes - 5] = '\0';
		seconds = curl_getdate(date, NULL);
		http->coordinator.identity.clock = seconds == -1 ? 0 : time_t_to_timestamptz(seconds);
	}
	return bytes;
}

/*
 * Set a file for TLS.  Without TLS the parameter is an error: if an "s" was forgotten,
 * the password would be sent in plain text.
 */
static void
set_file(SnowflakeHttp *http, CURLoption option, const char *parameter)
{
	const char *path = snowflake_url_parameter(http->url, parameter);

	if (path == NULL)
		return;
	if (!http->tls)
		snowflake_url_malformed(psprintf("The parameter \"%s\" is for TLS, which the scheme \"%ss\" has, but not \"%s\".",
										 parameter, http->url->scheme, http->url->scheme));
	(void) curl_easy_setopt(http->curl, option, path);
}

pg_noreturn static void
out_of_memory(void)
{
	ereport(ERROR,
			errcode(ERRCODE_OUT_OF_MEMORY),
			errmsg("out of memory"));
}

static void
append(struct curl_slist **list, const char *text)
{
	struct curl_slist *longer = curl_slist_append(*list, text);

	if (longer == NULL)
		out_of_memory();
	*list = longer;
}

/* Add a header to all requests. */
void
snowflake_http_header(SnowflakeHttp *http, const char *header)
{
	append(&http->headers, header);
	(void) curl_easy_setopt(http->curl, CURLOPT_HTTPHEADER, http->headers);
}

/* Prepare for requests before a deadline, which is moved as connect() does.  Sends nothing. */
SnowflakeHttp *
snowflake_http_open(SnowflakeUrl *url, int64 deadline_usec)
{
	SnowflakeHttp *http;
	ListCell   *host,
			   *addresses;

	snowflake_url_resolve(url, &deadline_usec);
	http = snowflake_coordinator_make(sizeof(SnowflakeHttp), deadline_usec, finish);
	http->url = url;
	http->tls = url->scheme[strlen(url->scheme) - 1] == 's';

	snowflake_coordinator_reserve_file();
	http->multi = curl_multi_init();
	if (http->multi == NULL)
		ReleaseExternalFD();
	http->curl = curl_easy_init();
	if (http->curl == NULL || http->multi == NULL)
		out_of_memory();
	(void) curl_easy_setopt(http->curl, CURLOPT_NOSIGNAL, 1L);
	(void) curl_easy_setopt(http->curl, CURLOPT_ERRORBUFFER, http->error);
	(void) curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, receive);
	(void) curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, http);
	(void) curl_easy_setopt(http->curl, CURLOPT_HEADERFUNCTION, receive_head);
	(void) curl_easy_setopt(http->curl, CURLOPT_HEADERDATA, http);
	(void) curl_easy_setopt(http->curl, CURLOPT_PROXY, "");

	/* it would look them up itself; an address of IPv6 it takes as it is */
	forboth(host, url->hosts, addresses, url->addresses)
		if (((char *) lfirst(host))[0] != '[')
		append(&http->addresses,
			   psprintf("%s:%s", (char *) lfirst(host), (char *) lfirst(addresses)));
	(void) curl_easy_setopt(http->curl, CURLOPT_RESOLVE, http->addresses);
	set_file(http, CURLOPT_CAINFO, "cacert");
	set_file(http, CURLOPT_SSLCERT, "cert");
	set_file(http, CURLOPT_SSLKEY, "key");
	snowflake_http_header(http, "Content-Type: application/json");
	return http;
}

/* Send a request to one host, and wait for the answer until then, on the monotonic clock. */
static CURLcode
perform(SnowflakeHttp *http, int64 until_usec)
{
	int			running = 1;
	int			left;
	CURLMsg    *message;
	CURLcode	result = CURLE_OPERATION_TIMEDOUT;

	free(http->answer);
	http->answer = NULL;
	http->answer_bytes = 0;
	http->coordinator.identity.clock = 0;
	http->error[0] = '\0';
	(void) curl_multi_add_handle(http->multi, http->curl);
	while (curl_multi_perform(http->multi, &running) == CURLM_OK && running > 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (snowflake_clock_monotonic_usec() > until_usec)
			break;
		(void) curl_multi_poll(http->multi, NULL, 0, LOOK_MS, NULL);
	}
	while ((message = curl_multi_info_read(http->multi, &left)) != NULL)
		if (message->msg == CURLMSG_DONE)
			result = message->data.result;
	(void) curl_multi_remove_handle(http->multi, http->curl);
	return result;
}

/*
 * Parse an answer.  Returns NULL if it is not JSON, or if there is none.  Our own
 * data is ASCII; anything else may be in any encoding.
 */
static JsonbContainer *
parse(char *answer)
{
	JsonbContainer *json;
	int			elements = 0;
	int			sqlstate;

	if (answer == NULL)
		return NULL;
	for (char *c = answer; *c != '\0'; c++)
	{
		elements += *c == ',' || *c == '{' || *c == '[';
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	}
	if (elements > MOST_ELEMENTS)
		snowflake_coordinator_fail("its answer has more elements than a fleet can have");
	json = snowflake_json_parse(answer, &sqlstate);
	if (json == NULL && sqlstate != ERRCODE_INVALID_TEXT_REPRESENTATION)
		snowflake_coordinator_fail("its answer cannot be parsed");
	return json;
}

/*
 * Send a request.  Returns the answer, or NULL if it is not JSON, and sets *status.  If
 * a host does not answer, or answers that it cannot (5xx, or 429, too many requests),
 * the next one is asked; the hosts share the time that is left.  Raises an error if
 * none answers.
 */
JsonbContainer *
snowflake_http_request(SnowflakeHttp *http, const char *method, const char *path,
					   const char *body, long *status)
{
	int			hosts = list_length(http->url->hosts);
	CURLcode	result = CURLE_OPERATION_TIMEDOUT;

	*status = 0;
	for (int tried = 0; tried < hosts; tried++)
	{
		const char *host = list_nth(http->url->hosts, http->host);
		char	   *url = psprintf("%s://%s/%s", http->tls ? "https" : "http", host, path);
		int64		now_usec = snowflake_clock_monotonic_usec();

		(void) curl_easy_setopt(http->curl, CURLOPT_URL, url);
		(void) curl_easy_setopt(http->curl, CURLOPT_CUSTOMREQUEST, method);
		(void) curl_easy_setopt(http->curl, CURLOPT_POSTFIELDS, body);
		if (body == NULL)
			(void) curl_easy_setopt(http->curl, CURLOPT_HTTPGET, 1L);
		result = perform(http, now_usec +
						 (http->coordinator.deadline_usec - now_usec) / (hosts - tried));
		if (result == CURLE_OK)
		{
			(void) curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, status);
			if (*status < 500 && (*status != 429 || tried == hosts - 1))
				return parse(http->answer);
		}
		http->host = (http->host + 1) % hosts;
	}
	snowflake_coordinator_fail(result == CURLE_OK ? psprintf("HTTP status %ld", *status) :
							   result == CURLE_WRITE_ERROR ? SNOWFLAKE_TOO_LARGE :
							   http->error[0] != '\0' ? http->error : curl_easy_strerror(result));
}

/*
 * Returns a member of an object that is a text, or a boolean or a 64-bit integer, as a
 * text; NULL if there is none.
 */
char *
snowflake_http_text(JsonbContainer *object, const char *name)
{
	JsonbValue	found;
	int64		integer;

	if (!snowflake_json_get(object, name, &found))
		return NULL;
	if (found.type == jbvString)
		return pnstrdup(found.val.string.val, found.val.string.len);
	if (found.type == jbvNumeric &&
		snowflake_json_integer(found.val.numeric, PG_INT64_MIN, PG_INT64_MAX, &integer))
		return psprintf(INT64_FORMAT, integer);
	if (found.type == jbvBool)
		return pstrdup(found.val.boolean ? "true" : "false");
	return NULL;
}

/* Returns a member of an object that is an object or an array; NULL if there is none. */
JsonbContainer *
snowflake_http_child(JsonbContainer *object, const char *name)
{
	JsonbValue	found;

	return snowflake_json_get(object, name, &found) && found.type == jbvBinary ?
		found.val.binary.data : NULL;
}

/* Returns an element of an array that is an object or an array; NULL if there is none. */
JsonbContainer *
snowflake_http_element(JsonbContainer *array, uint32 index)
{
	JsonbValue *found = getIthJsonbValueFromContainer(array, index);

	return found != NULL && found->type == jbvBinary ? found->val.binary.data : NULL;
}

/* Returns bytes as base64. */
char *
snowflake_http_encode(const char *bytes, int length)
{
	int			size = pg_b64_enc_len(length) + 1;
	char	   *encoded = palloc(size);
	int			written = pg_b64_encode((const void *) bytes, length, encoded, size);

	if (written < 0)
		elog(ERROR, "could not encode base64");
	encoded[written] = '\0';
	return encoded;
}

/* Returns the text that base64 stands for, empty if it is NULL or not base64. */
char *
snowflake_http_decode(const char *base64)
{
	int			length = base64 == NULL ? 0 : strlen(base64);
	int			size = pg_b64_dec_len(length) + 1;
	char	   *decoded = palloc(size);
	int			written = pg_b64_decode(base64 == NULL ? "" : base64, length, (void *) decoded, size);

	decoded[Max(written, 0)] = '\0';
	return decoded;
}
