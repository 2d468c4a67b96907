/*-------------------------------------------------------------------------
 *
 * etcd.c
 *	  The coordinator etcd, version 3, through its JSON gateway.
 *
 *	  etcd[s]://[user@]host[:port][,...][/prefix][?passfile=...&cacert=...&cert=...&key=...]
 *
 * Keys and values are base64, 64-bit numbers are strings, and members that are
 * false or empty are left out (etcd's documentation, "gRPC gateway").  Reads
 * and transactions are linearizable, which is etcd's default.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/json.h"
#include "utils/memutils.h"

#include "base/compat.h"
#include "coordinator/http.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowflake_etcd",
					.version = SNOWFLAKE_VERSION
);

#define DEFAULT_PORT	2379
#define PAGE_RECORDS	1000
#define MOST_RECORDS	(1024 * 1024)

/* Call a method of the gateway.  Raises an error if it does not succeed. */
static JsonbContainer *
call(SnowflakeHttp *etcd, const char *path, const char *body)
{
	long		status;
	JsonbContainer *answer = snowflake_http_request(etcd, "POST", path, body, &status);
	JsonbContainer *header = snowflake_http_child(answer, "header");
	char	   *message;

	if (status == 200 && header != NULL)
	{
		/*
		 * A cluster has a random number; one that is restored from a snapshot
		 * with another token has another number.  It never has two leaders,
		 * so there are no terms.
		 */
		char	   *cluster = snowflake_http_text(header, "cluster_id");

		if (cluster != NULL && strspn(cluster, "0123456789") == strlen(cluster))
			strlcpy(etcd->coordinator.identity.cluster, cluster,
					sizeof(etcd->coordinator.identity.cluster));
		return answer;
	}
	message = snowflake_http_text(answer, "message");
	ereport(ERROR,
			errcode(status == 401 || status == 403 || status == 400 ?
					ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION : ERRCODE_CONNECTION_FAILURE),
			errmsg("could not use the coordinator: %s",
				   message != NULL ? message :
				   status == 200 ? "its answer is not that of an etcd server" : psprintf("HTTP status %ld", status)));
}

/* Log in as the URL's user.  The token is sent with each request. */
static void
authenticate(SnowflakeHttp *etcd, const char *password)
{
	StringInfoData body;
	char	   *token;

	initStringInfo(&body);
	appendStringInfoString(&body, "{\"name\": ");
	escape_json(&body, etcd->url->user);
	appendStringInfoString(&body, ", \"password\": ");
	escape_json(&body, password == NULL ? "" : password);
	appendStringInfoChar(&body, '}');
	token = snowflake_http_text(call(etcd, "v3/auth/authenticate", body.data), "token");
	if (token == NULL)
		snowflake_coordinator_fail("it sent no token");
	snowflake_http_header(etcd, psprintf("Authorization: %s", token));
}

static char *
encode(const char *text)
{
	return snowflake_http_encode(text, strlen(text));
}

static char *
encoded_key(SnowflakeHttp *etcd, const char *key)
{
	return encode(psprintf("%s/%s", etcd->url->path, key));
}

/* Append the records of an answer to a list.  Returns the last key, or NULL. */
static char *
append_records(SnowflakeHttp *etcd, JsonbContainer *answer, List **records)
{
	char	   *prefix = psprintf("%s/", etcd->url->path);
	JsonbContainer *kvs = snowflake_http_child(answer, "kvs");
	char	   *last = NULL;

	for (uint32 i = 0; kvs != NULL && i < JsonContainerSize(kvs); i++)
	{
		JsonbContainer *kv = snowflake_http_element(kvs, i);
		char	   *key = snowflake_http_decode(snowflake_http_text(kv, "key"));
		SnowflakeRecord *record;

		CHECK_FOR_INTERRUPTS();
		if (strncmp(key, prefix, strlen(prefix)) != 0)
			continue;
		last = key;
		record = palloc(sizeof(SnowflakeRecord));
		record->key = key + strlen(prefix);
		record->value = snowflake_http_decode(snowflake_http_text(kv, "value"));
		*records = lappend(*records, record);
	}
	return last;
}

/*
 * The keys of a fleet begin with the path and a slash, and "0" is the character after
 * the slash.  All are listed in pages, each of which begins after the last key of the
 * page before.  The pages are not of one moment, which lease.c does not need.
 */
static List *
etcd_list(SnowflakeCoordinator *coordinator, const char *only)
{
	SnowflakeHttp *etcd = (SnowflakeHttp *) coordinator;
	char	   *from = psprintf("%s/%s", etcd->url->path, only == NULL ? "" : only);
	char	   *end = psprintf("%s0", etcd->url->path);
	int			from_length = strlen(from);
	List	   *records = NIL;
	size_t		bytes = 0;
	MemoryContext context = CurrentMemoryContext;
	MemoryContext page = AllocSetContextCreate(context, "snowflake page", ALLOCSET_DEFAULT_SIZES);

	for (;;)
	{
		StringInfoData body;
		JsonbContainer *answer;
		char	   *more;
		char	   *last;

		/* a parsed answer takes many times its length */
		MemoryContextReset(page);
		MemoryContextSwitchTo(page);
		initStringInfo(&body);
		appendStringInfo(&body, "{\"key\": \"%s\"", snowflake_http_encode(from, from_length));
		if (only == NULL)
			appendStringInfo(&body, ", \"range_end\": \"%s\", \"limit\": \"%d\"",
							 encode(end), PAGE_RECORDS);
		appendStringInfoChar(&body, '}');
		answer = call(etcd, "v3/kv/range", body.data);
		MemoryContextSwitchTo(context);
		bytes += etcd->answer_bytes;
		if (bytes > SNOWFLAKE_MOST_BYTES)
			snowflake_coordinator_fail(SNOWFLAKE_TOO_LARGE);
		last = append_records(etcd, answer, &records);
		more = snowflake_http_text(answer, "more");
		if (only != NULL || last == NULL || more == NULL || strcmp(more, "true") != 0)
		{
			MemoryContextDelete(page);
			return records;
		}
		if (list_length(records) > MOST_RECORDS)
			snowflake_coordinator_fail("it has more records than a fleet can have");

		/* the next key is the last one and a byte of 0 */
		from = last;
		from_length = strlen(last) + 1;
	}
}

/* The condition that a record has a value or, if that is NULL, does not exist. */
static char *
condition(SnowflakeHttp *etcd, const char *key, const char *value)
{
	return value == NULL ?
		psprintf("{\"key\": \"%s\", \"target\": \"CREATE\", \"create_revision\": \"0\"}",
				 encoded_key(etcd, key)) :
		psprintf("{\"key\": \"%s\", \"target\": \"VALUE\", \"value\": \"%s\"}",
				 encoded_key(etcd, key), encode(value));
}

/* A transaction: if the conditions are true, put. */
static bool
etcd_compare_and_set(SnowflakeCoordinator *coordinator, const char *key, const char *expected,
					 const char *value, const SnowflakeRecord *unchanged)
{
	SnowflakeHttp *etcd = (SnowflakeHttp *) coordinator;
	char	   *body = psprintf("{\"compare\": [%s%s%s],"
								" \"success\": [{\"request_put\": {\"key\": \"%s\", \"value\": \"%s\"}}]}",
								condition(etcd, key, expected),
								unchanged == NULL ? "" : ", ",
								unchanged == NULL ? "" :
								condition(etcd, unchanged->key, unchanged->value),
								encoded_key(etcd, key), encode(value));
	char	   *succeeded = snowflake_http_text(call(etcd, "v3/kv/txn", body), "succeeded");

	return succeeded != NULL && strcmp(succeeded, "true") == 0;
}

SnowflakeCoordinator *
snowflake_coordinator_connect(const char *url, int64 deadline_usec)
{
	SnowflakeHttp *etcd = snowflake_http_open(snowflake_url_parse(url, DEFAULT_PORT,
																  snowflake_http_parameters),
											  deadline_usec);
	char	   *password = snowflake_url_secret(etcd->url);

	etcd->coordinator.list = etcd_list;
	etcd->coordinator.compare_and_set = etcd_compare_and_set;
	if (etcd->url->user != NULL)
		authenticate(etcd, password);
	return &etcd->coordinator;
}
