/*-------------------------------------------------------------------------
 *
 * consul.c
 *	  Consul's key-value store as the coordinator of a fleet, through its HTTP
 *	  API.
 *
 *	  consul[s]://host[:port][,...][/prefix][?passfile=...&cacert=...&cert=...&key=...]
 *
 * The passfile has an access token.  The index of a record is one of the whole
 * store, which after a restore continues from an earlier number: so the value is
 * read and compared first, and the index only guards the time between that and the
 * write.  Reads are in consistent mode.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "base/compat.h"
#include "coordinator/http.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowflake_consul",
					.version = SNOWFLAKE_VERSION
);

#define DEFAULT_PORT	8500

#define PATH_CHARACTERS	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/"

typedef struct Indexed
{
	SnowflakeRecord record;
	int64		index;
} Indexed;

pg_noreturn static void
fail(long status)
{
	ereport(ERROR,
			errcode(status == 401 || status == 403 ?
					ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION : ERRCODE_CONNECTION_FAILURE),
			errmsg("could not use the coordinator: HTTP status %ld", status));
}

/*
 * The path goes into URLs and JSON as it is, and comes back in answers, in which only
 * ASCII is read.  libcurl and Consul would change a path with odd parts.
 */
static void
check_path(const char *path)
{
	const char *slashed = psprintf("/%s/", path);

	if (strspn(path, PATH_CHARACTERS) != strlen(path) || strstr(slashed, "//") != NULL ||
		strstr(slashed, "/./") != NULL || strstr(slashed, "/../") != NULL)
		snowflake_url_malformed("The path of a fleet in Consul consists of ASCII letters, digits, \".\", \"_\", \"-\" and \"/\", and has no part that is empty, \".\" or \"..\".");
}

/* Parse a record of the store.  Returns NULL if it is not one of ours. */
static Indexed *
parse_record(SnowflakeHttp *consul, JsonbContainer *json)
{
	char	   *prefix = psprintf("%s/", consul->url->path);
	char	   *key = snowflake_http_text(json, "Key");
	char	   *index = snowflake_http_text(json, "ModifyIndex");
	Indexed    *indexed = palloc(sizeof(Indexed));

	if (key == NULL || index == NULL || strncmp(key, prefix, strlen(prefix)) != 0)
		return NULL;
	indexed->record.key = key + strlen(prefix);
	indexed->record.value = snowflake_http_decode(snowflake_http_text(json, "Value"));
	indexed->index = strtoi64(index, NULL, 10);
	return indexed;
}

static List *
consul_list(SnowflakeCoordinator *coordinator, const char *key)
{
	SnowflakeHttp *consul = (SnowflakeHttp *) coordinator;
	const char *path = key != NULL ?
	psprintf("v1/kv/%s/%s?consistent", consul->url->path, key) :
	psprintf("v1/kv/%s/?recurse&consistent", consul->url->path);
	long		status;
	JsonbContainer *answer = snowflake_http_request(consul, "GET", path, NULL, &status);
	List	   *records = NIL;
	bool		valid;

	/* with a text, it is another server's answer to an unknown path */
	if (status == 404 && consul->answer_bytes == 0)
		return NIL;
	if (status != 200)
		fail(status);

	/* none at all would have been 404 */
	valid = answer != NULL && JsonContainerIsArray(answer) && JsonContainerSize(answer) > 0;
	for (uint32 i = 0; valid && i < JsonContainerSize(answer); i++)
	{
		Indexed    *indexed = parse_record(consul, snowflake_http_element(answer, i));

		CHECK_FOR_INTERRUPTS();
		valid = indexed != NULL;
		if (valid)
			records = lappend(records, &indexed->record);
	}
	if (!valid)
		snowflake_coordinator_fail("its answer is not that of a Consul server");
	return records;
}

/* Returns a transaction's first error: a refusal has the same status as a false condition. */
static char *
reason_of(JsonbContainer *answer)
{
	JsonbContainer *errors = snowflake_http_child(answer, "Errors");
	char	   *reason = errors == NULL || !JsonContainerIsArray(errors) ? NULL :
	snowflake_http_text(snowflake_http_element(errors, 0), "What");

	return reason != NULL ? reason : pstrdup("no reason given");
}

/* Run a transaction.  Returns NULL if one of its conditions is not true. */
static JsonbContainer *
transaction(SnowflakeHttp *consul, const char *path, const char *operations)
{
	long		status;
	JsonbContainer *answer = snowflake_http_request(consul, "PUT", path,
													psprintf("[%s]", operations), &status);

	if (status == 409)
	{
		char	   *reason = reason_of(answer);

		if (strstr(reason, "index is stale") != NULL ||
			strstr(reason, "failed index check") != NULL ||
			strstr(reason, "doesn't exist") != NULL)
			return NULL;
		ereport(ERROR,
				errcode(strstr(reason, "Permission denied") != NULL ?
						ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION : ERRCODE_CONNECTION_FAILURE),
				errmsg("could not use the coordinator: %s", reason));
	}
	if (status != 200 || answer == NULL)
		fail(status);
	return answer;
}

/* An operation of a transaction, with more members at its end. */
static char *
operation(SnowflakeHttp *consul, const char *verb, const char *key, const char *more)
{
	return psprintf("{\"KV\": {\"Verb\": \"%s\", \"Key\": \"%s/%s\"%s}}",
					verb, consul->url->path, key, more);
}

/* Returns the index of a record that was read, or -1 if it has another value. */
static int64
index_of(SnowflakeHttp *consul, JsonbContainer *results, const char *key, const char *value)
{
	for (uint32 i = 0; results != NULL && i < JsonContainerSize(results); i++)
	{
		JsonbContainer *kv = snowflake_http_child(snowflake_http_element(results, i), "KV");
		Indexed    *indexed = parse_record(consul, kv);

		if (indexed != NULL && strcmp(indexed->record.key, key) == 0 &&
			strcmp(indexed->record.value, value) == 0)
			return indexed->index;
	}
	return -1;
}

/* Both records are read in one request.  An index of 0 says that the key must not exist. */
static bool
consul_compare_and_set(SnowflakeCoordinator *coordinator, const char *key, const char *expected,
					   const char *value, const SnowflakeRecord *unchanged)
{
	SnowflakeHttp *consul = (SnowflakeHttp *) coordinator;
	int64		index = 0;
	int64		unchanged_index = 0;
	const char *check;
	const char *set;

	if (expected != NULL || unchanged != NULL)
	{
		JsonbContainer *results;
		JsonbContainer *answer =
		transaction(consul, "v1/txn?consistent",
					psprintf("%s%s%s",
							 expected == NULL ? "" : operation(consul, "get", key, ""),
							 expected == NULL || unchanged == NULL ? "" : ", ",
							 unchanged == NULL ? "" : operation(consul, "get", unchanged->key, "")));

		if (answer == NULL)
			return false;
		results = snowflake_http_child(answer, "Results");
		if (expected != NULL)
			index = index_of(consul, results, key, expected);
		if (unchanged != NULL)
			unchanged_index = index_of(consul, results, unchanged->key, unchanged->value);
		if (index < 0 || unchanged_index < 0)
			return false;
	}
	check = unchanged == NULL ? "" :
		psprintf("%s, ", operation(consul, "check-index", unchanged->key,
								   psprintf(", \"Index\": " INT64_FORMAT, unchanged_index)));
	set = operation(consul, "cas", key,
					psprintf(", \"Index\": " INT64_FORMAT ", \"Value\": \"%s\"",
							 index, snowflake_http_encode(value, strlen(value))));
	return transaction(consul, "v1/txn", psprintf("%s%s", check, set)) != NULL;
}

SnowflakeCoordinator *
snowflake_coordinator_connect(const char *url, int64 deadline_usec)
{
	SnowflakeUrl *parsed = snowflake_url_parse(url, DEFAULT_PORT, snowflake_http_parameters);
	SnowflakeHttp *consul;
	char	   *token;

	check_path(parsed->path);
	consul = snowflake_http_open(parsed, deadline_usec);
	consul->coordinator.list = consul_list;
	consul->coordinator.compare_and_set = consul_compare_and_set;
	token = snowflake_url_secret(parsed);
	if (token != NULL)
		snowflake_http_header(consul, psprintf("X-Consul-Token: %s", token));
	return &consul->coordinator;
}
