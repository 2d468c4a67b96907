/*-------------------------------------------------------------------------
 *
 * consul.c
 *	  Consul's key-value store as the coordinator of a fleet, by its HTTP API.
 *
 *	  consul[s]://host[:port][,...][/prefix][?passfile=...&cacert=...&cert=...&key=...]
 *
 * The file has an access token.  The index of a record is that of the whole store,
 * which starts again where a restored one stood: so the value is read and compared
 * first, and the index only guards what is between that and the write.  Reads are
 * in consistent mode.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "compat.h"
#include "coordinator/coordinator.h"
#include "coordinator/http.h"
#include "coordinator/url.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowflake_consul",
					.version = SNOWFLAKE_VERSION
);

#define DEFAULT_PORT	8500

typedef struct Connection
{
	SnowflakeUrl *url;
	SnowflakeHttp *http;
} Connection;

pg_noreturn static void
fail(long status)
{
	ereport(ERROR,
			errcode(status == 401 || status == 403 ?
					ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION : ERRCODE_CONNECTION_FAILURE),
			errmsg("could not use the coordinator: HTTP status %ld", status));
}

static void *
consul_connect(const char *text, int64 deadline_usec)
{
	static const char *const parameters[] = {"passfile", "cacert", "cert", "key", NULL};
	Connection *connection = palloc0(sizeof(Connection));
	char	   *token;

	connection->url = snowflake_url_parse(text, DEFAULT_PORT, "snowflake", parameters);
	connection->http = snowflake_http_open(connection->url,
										   strcmp(connection->url->scheme, "consuls") == 0,
										   deadline_usec);
	token = snowflake_url_secret(connection->url);
	if (token != NULL)
		snowflake_http_header(connection->http, psprintf("X-Consul-Token: %s", token));
	return connection;
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

/*
 * The records at or below a path of the store.  *last_index, if not NULL, is set to that of
 * the last one.
 */
static List *
read_records(Connection *connection, const char *path, int64 *last_index)
{
	char	   *prefix = psprintf("%s/", connection->url->path);
	long		status;
	JsonbContainer *answer = snowflake_http_request(connection->http, "GET",
													psprintf("v1/kv/%s", path), NULL, &status);
	List	   *records = NIL;

	if (status == 404)
		return NIL;
	if (status != 200 || answer == NULL || !JsonContainerIsArray(answer))
		fail(status);
	for (uint32 i = 0; i < JsonContainerSize(answer); i++)
	{
		JsonbValue *kv = getIthJsonbValueFromContainer(answer, i);
		SnowflakeRecord *record = palloc0(sizeof(SnowflakeRecord));
		char	   *key,
				   *value,
				   *index;

		if (kv->type != jbvBinary)
			continue;
		key = snowflake_json_text(kv->val.binary.data, "Key");
		value = snowflake_json_text(kv->val.binary.data, "Value");
		index = snowflake_json_text(kv->val.binary.data, "ModifyIndex");
		if (key == NULL || index == NULL || strncmp(key, prefix, strlen(prefix)) != 0)
			continue;
		record->key = key + strlen(prefix);
		record->value = value == NULL ? NULL : snowflake_base64_decode(value);
		if (record->value == NULL)
			record->value = pstrdup("");
		if (last_index != NULL)
			*last_index = strtoi64(index, NULL, 10);
		records = lappend(records, record);
	}
	return records;
}

static List *
consul_list(void *arg, const char *key)
{
	Connection *connection = arg;

	return read_records(connection, key != NULL ?
						psprintf("%s/%s?consistent", connection->url->path, key) :
						psprintf("%s/?recurse&consistent", connection->url->path), NULL);
}

/*
 * Why a transaction was not done, of its errors the first.  A refused one has the
 * status of one whose condition is not true.
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

/* An index of 0 means that there must be no key. */
static bool
consul_compare_and_set(void *arg, const char *key, const char *expected,
					   const char *value)
{
	Connection *connection = arg;
	char	   *path = psprintf("%s/%s", connection->url->path, key);
	int64		index = 0;
	long		status;
	JsonbContainer *answer;

	if (expected != NULL)
	{
		List	   *found = read_records(connection, psprintf("%s?consistent", path), &index);
		SnowflakeRecord *before = found == NIL ? NULL : linitial(found);

		if (before == NULL || strcmp(before->value, expected) != 0)
			return false;
	}
	answer = snowflake_http_request(connection->http, "PUT",
									"v1/txn",
									psprintf("[{\"KV\": {\"Verb\": \"cas\", \"Key\": \"%s\","
											 " \"Value\": \"%s\", \"Index\": " INT64_FORMAT "}}]",
											 path, snowflake_base64_encode(value), index),
									&status);
	if (status == 409)
	{
		char	   *reason = reason_of(answer);

		if (strstr(reason, "index is stale") != NULL)
			return false;
		ereport(ERROR,
				errcode(strstr(reason, "Permission denied") != NULL ?
						ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION : ERRCODE_CONNECTION_FAILURE),
				errmsg("could not use the coordinator: %s", reason));
	}
	if (status != 200)
		fail(status);
	return true;
}

const SnowflakeCoordinator *
_SnowflakeCoordinatorInit(void)
{
	static const SnowflakeCoordinator coordinator = {
		.connect = consul_connect,
		.prepare = consul_prepare,
		.list = consul_list,
		.compare_and_set = consul_compare_and_set,
		.close = consul_close
	};

	return &coordinator;
}
