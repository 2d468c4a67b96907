/*-------------------------------------------------------------------------
 *
 * http.c
 *	  Requests to a coordinator that speaks HTTP and JSON, with libcurl.
 *
 * A request goes to one host after the other until one answers.  So it may
 * be done more than once, which does no harm: lease.c recognizes its own record by
 * its content.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <curl/curl.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/compat.h"
#include "coordinator/coordinator.h"
#include "coordinator/http.h"

/* How often a request checks for interrupts and the deadline */
#define LOOK_MS			50

/*
 * The most members and elements of an answer: 65,536 records have fewer.  This bounds
 * the memory, as a parsed element takes some hundred bytes.
 */
#define MOST_ELEMENTS	(10 * 65536)

struct SnowflakeHttp
{
	const SnowflakeUrl *url;
	bool		tls;
	int64		deadline_usec;
	int			host;			/* that answered last, as an index */
	CURL	   *curl;
	CURLM	   *multi;
	struct curl_slist *headers;
	struct curl_slist *addresses;	/* of the hosts */
	char	   *answer;			/* in malloc's memory; NULL: nothing yet */
	size_t		answer_bytes;
	TimestampTz clock;			/* the date of the last answer, or 0 */
	char		error[CURL_ERROR_SIZE];
	MemoryContextCallback callback;
};

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
	http->headers = NULL;
	http->addresses = NULL;
	http->answer = NULL;
}

/*
 * Called by libcurl, so it must not raise an error, as palloc() would: to
 * report one, it returns less than "bytes".
 */
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
		http->clock = seconds == -1 ? 0 : time_t_to_timestamptz(seconds);
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

/* Tell libcurl the addresses of the hosts, so that it does not look them up itself. */
static void
set_addresses(SnowflakeHttp *http)
{
	ListCell   *host,
			   *addresses;

	forboth(host, http->url->hosts, addresses, http->url->addresses)
	{
		const char *name = lfirst(host);
		struct curl_slist *list;

		if (name[0] == '[')
			continue;			/* an address of IPv6, which it takes as it is */
		list = curl_slist_append(http->addresses,
								 psprintf("%s:%s", name, (char *) lfirst(addresses)));
		if (list == NULL)
			ereport(ERROR,
					errcode(ERRCODE_OUT_OF_MEMORY),
					errmsg("out of memory"));
		http->addresses = list;
	}
	(void) curl_easy_setopt(http->curl, CURLOPT_RESOLVE, http->addresses);
}

/*
 * Prepare for requests before a deadline, which is moved by the time that it takes to look
 * up the hosts.  The parameters cacert, cert and key of the URL are files for TLS.  Raises
 * an error if no host has an address.  The result is closed with the current memory context,
 * if not before.
 */
SnowflakeHttp *
snowflake_http_open(SnowflakeUrl *url, bool tls, int64 *deadline_usec)
{
	SnowflakeHttp *http = palloc0(sizeof(SnowflakeHttp));

	snowflake_url_resolve(url, deadline_usec);
	http->url = url;
	http->tls = tls;
	http->deadline_usec = *deadline_usec;
	http->callback.func = finish;
	http->callback.arg = http;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &http->callback);

	snowflake_coordinator_reserve_file();
	http->multi = curl_multi_init();
	if (http->multi == NULL)
		ReleaseExternalFD();
	http->curl = curl_easy_init();
	if (http->curl == NULL || http->multi == NULL)
		ereport(ERROR,
				errcode(ERRCODE_OUT_OF_MEMORY),
				errmsg("out of memory"));
	(void) curl_easy_setopt(http->curl, CURLOPT_NOSIGNAL, 1L);
	(void) curl_easy_setopt(http->curl, CURLOPT_ERRORBUFFER, http->error);
	(void) curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, receive);
	(void) curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, http);
	(void) curl_easy_setopt(http->curl, CURLOPT_HEADERFUNCTION, receive_head);
	(void) curl_easy_setopt(http->curl, CURLOPT_HEADERDATA, http);
	(void) curl_easy_setopt(http->curl, CURLOPT_PROXY, "");
	set_addresses(http);
	set_file(http, CURLOPT_CAINFO, "cacert");
	set_file(http, CURLOPT_SSLCERT, "cert");
	set_file(http, CURLOPT_SSLKEY, "key");
	snowflake_http_header(http, "Content-Type: application/json");
	return http;
}

/* Add a header to all further requests. */
void
snowflake_http_header(SnowflakeHttp *http, const char *header)
{
	struct curl_slist *headers = curl_slist_append(http->headers, header);

	if (headers == NULL)
		ereport(ERROR,
				errcode(ERRCODE_OUT_OF_MEMORY),
				errmsg("out of memory"));
	http->headers = headers;
	(void) curl_easy_setopt(http->curl, CURLOPT_HTTPHEADER, headers);
}

void
snowflake_http_set_deadline(SnowflakeHttp *http, int64 deadline_usec)
{
	http->deadline_usec = deadline_usec;
}

/* Returns the time of the host that answered last, or 0. */
TimestampTz
snowflake_http_clock(const SnowflakeHttp *http)
{
	return http->clock;
}

/* Returns the length of the last answer, in bytes. */
size_t
snowflake_http_answer_bytes(const SnowflakeHttp *http)
{
	return http->answer_bytes;
}

void
snowflake_http_close(SnowflakeHttp *http)
{
	finish(http);
}

/*
 * Send a request to one host, and wait for the answer until the given time, on the monotonic
 * clock.
 */
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
	http->clock = 0;
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

/* Raise an error about an answer that no coordinator gives. */
pg_noreturn static void
refuse_answer(const char *why)
{
	ereport(ERROR,
			errcode(ERRCODE_CONNECTION_FAILURE),
			errmsg("could not use the coordinator: its answer %s", why));
}

/*
 * Parse an answer.  Returns NULL if it is not JSON, or if there is none.  Our own
 * data is ASCII; anything else may be in any encoding.
 */
static JsonbContainer *
parse(char *answer)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *volatile jsonb = NULL;
	int			elements = 0;

	if (answer == NULL)
		return NULL;
	for (char *c = answer; *c != '\0'; c++)
	{
		elements += *c == ',' || *c == '{' || *c == '[';
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	}
	if (elements > MOST_ELEMENTS)
		refuse_answer("has more elements than a fleet can have");
	PG_TRY();
	{
		jsonb = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(answer)));
	}
	PG_CATCH();
	{
		int			code = geterrcode();

		MemoryContextSwitchTo(context);
		if (ERRCODE_TO_CATEGORY(code) != ERRCODE_DATA_EXCEPTION &&
			ERRCODE_TO_CATEGORY(code) != ERRCODE_PROGRAM_LIMIT_EXCEEDED &&
			code != ERRCODE_FEATURE_NOT_SUPPORTED)	/* \u in our encoding */
			PG_RE_THROW();
		FlushErrorState();
		if (code != ERRCODE_INVALID_TEXT_REPRESENTATION)
			refuse_answer("cannot be parsed");
	}
	PG_END_TRY();
	return jsonb == NULL ? NULL : &jsonb->root;
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
		int64		until_usec = now_usec + (http->deadline_usec - now_usec) / (hosts - tried);

		(void) curl_easy_setopt(http->curl, CURLOPT_URL, url);
		(void) curl_easy_setopt(http->curl, CURLOPT_CUSTOMREQUEST, method);
		(void) curl_easy_setopt(http->curl, CURLOPT_POSTFIELDS, body);
		if (body == NULL)
			(void) curl_easy_setopt(http->curl, CURLOPT_HTTPGET, 1L);
		result = perform(http, until_usec);
		if (result == CURLE_OK)
		{
			(void) curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, status);
			if (*status < 500 && (*status != 429 || tried == hosts - 1))
				return parse(http->answer);
		}
		http->host = (http->host + 1) % hosts;
	}
	if (result != CURLE_OK)
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("could not use the coordinator: %s",
					   result == CURLE_WRITE_ERROR ? "its records are larger than those of a fleet" :
					   http->error[0] != '\0' ? http->error : curl_easy_strerror(result)));
	ereport(ERROR,
			errcode(ERRCODE_CONNECTION_FAILURE),
			errmsg("could not use the coordinator: HTTP status %ld", *status));
}
