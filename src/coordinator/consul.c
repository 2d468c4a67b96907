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
#include "coordinator/coordinator.h"
#include "coordinator/http.h"
#include "coordinator/json.h"
#include "coordinator/url.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowflake_consul",
					.version = SNOWFLAKE_VERSION
);

#define DEFAULT_PORT	8500

#define PATH_CHARACTERS	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/"

typedef struct Connection
{
	SnowflakeUrl *url;
	SnowflakeHttp *http;
} Connection;

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

static void *
consul_connect(const char *text, int64 *deadline_usec)
{
	static const char *const parameters[] = {"passfile", "cacert", "cert", "key", NULL};
	Connection *connection = palloc0(sizeof(Connection));
	char	   *token;

	connection->url = snowflake_url_parse(text, DEFAULT_PORT, "snowflake", parameters);
	check_path(connection->url->path);
	connection->http = snowflake_http_open(connection->url,
										   strcmp(connection->url->scheme, "consuls") == 0,
										   deadline_usec);
	token = snowflake_url_secret(connection->url);
	if (token != NULL)
		snowflake_http_header(connection->http, psprintf("X-Consul-Token: %s", token));
	return connection;
}

/* A store of Consul has no name of its own. */
static void
consul_identify(void *arg, SnowflakeIdentity *identity)
{
	Connection *connection = arg;

	memset(identity, 0, sizeof(*identity));
	identity->clock = snowflake_http_clock(connection->http);
}

static void
consul_set_deadline(void *arg, int64 deadline_usec)
{
	Connection *connection = arg;

	snowflake_http_set_deadline(connection->http, deadline_usec);
}

static void
consul_close(void *arg)
{
	Connection *connection = arg;

	snowflake_http_close(connection->http);
}

/* Nothing has to be made before there can be keys. */
static void
consul_prepare(void *arg)
{
}

/* Parse a record of the store.  Returns NULL if it is not one of ours. */
static Indexed *
parse_record(Connection *connection, JsonbContainer *json)
{
	char	   *prefix = psprintf("%s/", connection->url->path);
	Indexed    *indexed = palloc0(sizeof(Indexed));
	char	   *key,
			   *value,
			   *index;

	key = snowflake_json_text(json, "Key");
	value = snowflake_json_text(json, "Value");
	index = snowflake_json_text(json, "ModifyIndex");
	if (key == NULL || index == NULL || strncmp(key, prefix, strlen(prefix)) != 0)
		return NULL;
	indexed->record.key = key + strlen(prefix);
	indexed->record.value = value == NULL ? NULL : snowflake_json_base64_decode(value);
	if (indexed->record.value == NULL)
		indexed->record.value = pstrdup("");
	indexed->index = strtoi64(index, NULL, 10);
	return indexed;
}

static List *
consul_list(void *arg, const char *key)
{
	Connection *connection = arg;
	const char *path = key != NULL ?
	psprintf("v1/kv/%s/%s?consistent", connection->url->path, key) :
	psprintf("v1/kv/%s/?recurse&consistent", connection->url->path);
	long		status;
	JsonbContainer *answer = snowflake_http_request(connection->http, "GET", path, NULL, &status);
	List	   *records = NIL;
	bool		valid;

	/* with a text, it is another server's answer to an unknown path */
	if (status == 404 && snowflake_http_answer_bytes(connection->http) == 0)
		return NIL;
	if (status != 200)
		fail(status);

	/* none at all would have been 404 */
	valid = answer != NULL && JsonContainerIsArray(answer) && JsonContainerSize(answer) > 0;
	for (uint32 i = 0; valid && i < JsonContainerSize(answer); i++)
	{
		JsonbValue *kv = getIthJsonbValueFromContainer(answer, i);
		Indexed    *indexed = kv->type != jbvBinary ? NULL :
		parse_record(connection, kv->val.binary.data);

		CHECK_FOR_INTERRUPTS();
		valid = indexed != NULL;
		if (valid)
			records = lappend(records, &indexed->record);
	}
	if (!valid)
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("could not use the coordinator: its answer is not that of a Consul server"));
	return records;
}

/*
 * Returns why a transaction was not done: its first error.  A refused transaction
 * has the same status as one whose condition is not true.
 */
static char *
reason_of(JsonbContainer *answer)
{
	JsonbContainer *errors = snowflake_json_child(answer, "Errors");
	JsonbValue *first = errors == NULL || !JsonContainerIsArray(errors) ? NULL :
	getIthJsonbValueFromContainer(errors, 0);
	char	   *reason = first == NULL || first->type != jbvBinary ? NULL :
	snowflake_json_text(first->val.binary.data, "What");

	return reason != NULL ? reason : pstrdup("no reason given");
}

/* Run a transaction.  Returns NULL if one of its conditions is not true. */
static JsonbContainer *
transaction(Connection *connection, const char *path, const char *operations)
{
	long		status;
	JsonbContainer *answer = snowflake_http_request(connection->http, "PUT", path,
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
operation(Connection *connection, const char *verb, const char *key, const char *more)
{
	return psprintf("{\"KV\": {\"Verb\": \"%s\", \"Key\": \"%s/%s\"%s}}",
					verb, connection->url->path, key, more);
}

/* Returns the index of a record that was read, or -1 if it has another value. */
static int64
index_of(Connection *connection, JsonbContainer *results, const char *key, const char *value)
{
	for (uint32 i = 0; results != NULL && i < JsonContainerSize(results); i++)
	{
		JsonbValue *result = getIthJsonbValueFromContainer(results, i);
		JsonbContainer *kv = result->type != jbvBinary ? NULL :
		snowflake_json_child(result->val.binary.data, "KV");
		Indexed    *indexed = kv == NULL ? NULL : parse_record(connection, kv);

		if (indexed != NULL && strcmp(indexed->record.key, key) == 0 &&
			strcmp(indexed->record.value, value) == 0)
			return indexed->index;
	}
	return -1;
}

/* Both records are read in one request.  An index of 0 says that the key must not exist. */
static bool
consul_compare_and_set(void *arg, const char *key, const char *expected,
					   const char *value, const SnowflakeRecord *unchanged)
{
	Connection *connection = arg;
	int64		index = 0;
	int64		unchanged_index = 0;
	const char *check;

	if (expected != NULL || unchanged != NULL)
	{
		JsonbContainer *results;
		JsonbContainer *answer =
		transaction(connection, "v1/txn?consistent",
					psprintf("%s%s%s",
							 expected == NULL ? "" : operation(connection, "get", key, ""),
							 expected == NULL || unchanged == NULL ? "" : ", ",
							 unchanged == NULL ? "" :
							 operation(connection, "get", unchanged->key, "")));

		if (answer == NULL)
			return false;
		results = snowflake_json_child(answer, "Results");
		if (expected != NULL)
			index = index_of(connection, results, key, expected);
		if (unchanged != NULL)
			unchanged_index = index_of(connection, results, unchanged->key, unchanged->value);
		if (index < 0 || unchanged_index < 0)
			return false;
	}
	check = unchanged == NULL ? "" :
		psprintf("%s, ", operation(connection, "check-index", unchanged->key,
								   psprintf(", \"Index\": " INT64_FORMAT, unchanged_index)));
	return transaction(connection, "v1/txn",
					   psprintf("%s%s", check,
								operation(connection, "cas", key,
										  psprintf(", \"Index\": " INT64_FORMAT ", \"Value\": \"%s\"",
												   index, snowflake_json_base64_encode(value))))) != NULL;
}

const SnowflakeCoordinator *
_SnowflakeCoordinatorInit(void)
{
	static const SnowflakeCoordinator coordinator = {
		.connect = consul_connect,
		.set_deadline = consul_set_deadline,
		.identify = consul_identify,
		.prepare = consul_prepare,
		.list = consul_list,
		.compare_and_set = consul_compare_and_set,
		.close = consul_close
	};

	return &coordinator;
}
