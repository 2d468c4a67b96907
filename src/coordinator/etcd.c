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
#include "coordinator/coordinator.h"
#include "coordinator/http.h"
#include "coordinator/json.h"
#include "coordinator/url.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowflake_etcd",
					.version = SNOWFLAKE_VERSION
);

#define DEFAULT_PORT	2379

/* The most records in a page, and in all */
#define PAGE_RECORDS	1000
#define MOST_RECORDS	(1024 * 1024)

typedef struct Connection
{
	SnowflakeUrl *url;
	SnowflakeHttp *http;
	char		cluster[33];	/* that has answered; empty: none */
} Connection;

/* Call a method of the gateway.  Raises an error if it does not succeed. */
static JsonbContainer *
call(Connection *connection, const char *path, const char *body)
{
	long		status;
	JsonbContainer *answer = snowflake_http_request(connection->http, "POST", path,
													body, &status);
	char	   *message;

	if (status == 200 && snowflake_json_child(answer, "header") != NULL)
	{
		char	   *cluster = snowflake_json_text(snowflake_json_child(answer, "header"),
												  "cluster_id");

		if (cluster != NULL && strspn(cluster, "0123456789") == strlen(cluster))
			strlcpy(connection->cluster, cluster, sizeof(connection->cluster));
		return answer;
	}
	message = snowflake_json_text(answer, "message");
	ereport(ERROR,
			errcode(status == 401 || status == 403 || status == 400 ?
					ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION : ERRCODE_CONNECTION_FAILURE),
			errmsg("could not use the coordinator: %s",
				   message != NULL ? message :
				   status == 200 ? "its answer is not that of an etcd server" : psprintf("HTTP status %ld", status)));
}

/* Log in, if the URL has a user.  The token is sent with each request. */
static void
authenticate(Connection *connection)
{
	StringInfoData body;
	char	   *token;
	char	   *password = snowflake_url_secret(connection->url);

	if (connection->url->user == NULL)
		return;
	initStringInfo(&body);
	appendStringInfoString(&body, "{\"name\": ");
	escape_json(&body, connection->url->user);
	appendStringInfoString(&body, ", \"password\": ");
	escape_json(&body, password == NULL ? "" : password);
	appendStringInfoChar(&body, '}');
	token = snowflake_json_text(call(connection, "v3/auth/authenticate", body.data),
								"token");
	if (token == NULL)
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("could not use the coordinator: it sent no token"));
	snowflake_http_header(connection->http, psprintf("Authorization: %s", token));
}

static void *
etcd_connect(const char *text, int64 *deadline_usec)
{
	static const char *const parameters[] = {"passfile", "cacert", "cert", "key", NULL};
	Connection *connection = palloc0(sizeof(Connection));

	connection->url = snowflake_url_parse(text, DEFAULT_PORT, "snowflake", parameters);
	connection->http = snowflake_http_open(connection->url,
										   strcmp(connection->url->scheme, "etcds") == 0,
										   deadline_usec);
	authenticate(connection);
	return connection;
}

/*
 * A cluster has a random number; one that is restored from a snapshot with
 * another token has another number.  It never has two leaders, so there are no
 * terms.
 */
static void
etcd_identify(void *arg, SnowflakeIdentity *identity)
{
	Connection *connection = arg;

	memset(identity, 0, sizeof(*identity));
	strlcpy(identity->cluster, connection->cluster, sizeof(identity->cluster));
	identity->clock = snowflake_http_clock(connection->http);
}

static void
etcd_set_deadline(void *arg, int64 deadline_usec)
{
	Connection *connection = arg;

	snowflake_http_set_deadline(connection->http, deadline_usec);
}

static void
etcd_close(void *arg)
{
	Connection *connection = arg;

	snowflake_http_close(connection->http);
}

/* Nothing has to be made before there can be keys. */
static void
etcd_prepare(void *arg)
{
}

/* Append the records of an answer to a list.  Returns the last key, or NULL. */
static char *
append_records(Connection *connection, JsonbContainer *answer, List **records)
{
	char	   *prefix = psprintf("%s/", connection->url->path);
	JsonbContainer *kvs = snowflake_json_child(answer, "kvs");
	char	   *last = NULL;

	for (uint32 i = 0; kvs != NULL && i < JsonContainerSize(kvs); i++)
	{
		JsonbValue *kv = getIthJsonbValueFromContainer(kvs, i);
		SnowflakeRecord *record = palloc0(sizeof(SnowflakeRecord));
		char	   *key,
				   *value;

		CHECK_FOR_INTERRUPTS();
		if (kv == NULL || kv->type != jbvBinary)
			continue;
		key = snowflake_json_text(kv->val.binary.data, "key");
		value = snowflake_json_text(kv->val.binary.data, "value");
		if (key == NULL || (key = snowflake_json_base64_decode(key)) == NULL ||
			strncmp(key, prefix, strlen(prefix)) != 0)
			continue;
		last = key;
		record->key = key + strlen(prefix);
		record->value = value == NULL ? NULL : snowflake_json_base64_decode(value);
		if (record->value == NULL)
			record->value = pstrdup("");
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
etcd_list(void *arg, const char *only)
{
	Connection *connection = arg;
	char	   *from = psprintf("%s/%s", connection->url->path, only == NULL ? "" : only);
	char	   *end = psprintf("%s0", connection->url->path);
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
		appendStringInfo(&body, "{\"key\": \"%s\"", snowflake_json_base64_encode_bytes(from, from_length));
		if (only == NULL)
			appendStringInfo(&body, ", \"range_end\": \"%s\", \"limit\": \"%d\"",
							 snowflake_json_base64_encode(end), PAGE_RECORDS);
		appendStringInfoChar(&body, '}');
		answer = call(connection, "v3/kv/range", body.data);
		MemoryContextSwitchTo(context);
		bytes += snowflake_http_answer_bytes(connection->http);
		if (bytes > SNOWFLAKE_MOST_BYTES)
			ereport(ERROR,
					errcode(ERRCODE_CONNECTION_FAILURE),
					errmsg("could not use the coordinator: its records are larger than those of a fleet"));
		last = append_records(connection, answer, &records);
		more = snowflake_json_text(answer, "more");
		if (only != NULL || last == NULL || more == NULL || strcmp(more, "true") != 0)
		{
			MemoryContextDelete(page);
			return records;
		}
		if (list_length(records) > MOST_RECORDS)
			ereport(ERROR,
					errcode(ERRCODE_CONNECTION_FAILURE),
					errmsg("could not use the coordinator: it has more records than a fleet can have"));

		/* the next key is the last one and a byte of 0 */
		from = last;
		from_length = strlen(last) + 1;
	}
}

/* The condition that a record has a value or, if that is NULL, does not exist. */
static char *
condition(Connection *connection, const char *key, const char *value)
{
	char	   *encoded = snowflake_json_base64_encode(psprintf("%s/%s", connection->url->path, key));

	return value == NULL ?
		psprintf("{\"key\": \"%s\", \"target\": \"CREATE\", \"create_revision\": \"0\"}", encoded) :
		psprintf("{\"key\": \"%s\", \"target\": \"VALUE\", \"value\": \"%s\"}", encoded,
				 snowflake_json_base64_encode(value));
}

/* A transaction: if the conditions are true, put. */
static bool
etcd_compare_and_set(void *arg, const char *key, const char *expected,
					 const char *value, const SnowflakeRecord *unchanged)
{
	Connection *connection = arg;
	char	   *body = psprintf("{\"compare\": [%s%s%s],"
								" \"success\": [{\"request_put\": {\"key\": \"%s\", \"value\": \"%s\"}}]}",
								condition(connection, key, expected),
								unchanged == NULL ? "" : ", ",
								unchanged == NULL ? "" :
								condition(connection, unchanged->key, unchanged->value),
								snowflake_json_base64_encode(psprintf("%s/%s", connection->url->path, key)),
								snowflake_json_base64_encode(value));
	char	   *succeeded = snowflake_json_text(call(connection, "v3/kv/txn", body), "succeeded");

	return succeeded != NULL && strcmp(succeeded, "true") == 0;
}

const SnowflakeCoordinator *
_SnowflakeCoordinatorInit(void)
{
	static const SnowflakeCoordinator coordinator = {
		.connect = etcd_connect,
		.set_deadline = etcd_set_deadline,
		.identify = etcd_identify,
		.prepare = etcd_prepare,
		.list = etcd_list,
		.compare_and_set = etcd_compare_and_set,
		.close = etcd_close
	};

	return &coordinator;
}
