/*-------------------------------------------------------------------------
 *
 * zookeeper.c
 *	  ZooKeeper as the coordinator of a fleet, through its own C client.
 *
 *	  zookeeper://[user@]host[:port][,...][/path][?passfile=...]
 *
 * The records are ordinary, persistent nodes, so it does not matter if a
 * session expires.  This uses the client without threads, driven by our own
 * waits.
 *
 * A node's version is a mere count, which after a restore continues from an
 * earlier number: so the value is read and compared first, and the version
 * only guards the time between that and the write.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <zookeeper/zookeeper.h>

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "coordinator/coordinator.h"
#include "coordinator/url.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowflake_zookeeper",
					.version = SNOWFLAKE_VERSION
);

#define DEFAULT_PORT	2181
#define SESSION_MS		10000

/* The most bytes of a record, with its terminator; ZooKeeper allows a megabyte. */
#define VALUE_SIZE		65536

typedef struct Connection
{
	SnowflakeUrl *url;
	zhandle_t  *handle;
	struct ACL_vector *acl;		/* of the nodes that are created */
	int64		deadline_usec;
	TimestampTz clock;			/* of the leader; 0: not known */
	MemoryContextCallback callback;
} Connection;

/* The client's answer to a request, filled in while the client is driven. */
typedef struct Answer
{
	bool		done;
	int			status;
	int32		version;
	char	   *value;			/* NULL: none */
	int			length;
	char	  **names;			/* of children */
	int			names_count;
	TimestampTz changed_at;		/* by the leader's clock */
} Answer;

/* This may take some seconds: see coordinator.h. */
static void
finish(void *arg)
{
	Connection *connection = arg;

	if (connection->handle != NULL)
	{
		(void) zookeeper_close(connection->handle);
		ReleaseExternalFD();
	}
	connection->handle = NULL;
}

pg_noreturn static void
fail(int status)
{
	ereport(ERROR,
			errcode(status == ZNOAUTH || status == ZAUTHFAILED ?
					ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION : ERRCODE_CONNECTION_FAILURE),
			errmsg("could not use the coordinator: %s", zerror(status)));
}

/* Let the client do what it can, and wait until there is more. */
static void
drive(Connection *connection)
{
	static uint32 wait_event = 0;
	int64		left_usec = connection->deadline_usec - snowflake_clock_monotonic_usec();
	int			socket,
				interest,
				status,
				rc,
				events;
	struct timeval wait;
	long		wait_ms;

	if (left_usec <= 0)
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("the coordinator does not answer"));
	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("SnowflakeCoordinator");

	/* if a server cannot be reached, the client tries the next one */
	status = zookeeper_interest(connection->handle, &socket, &interest, &wait);
	if (status == ZAUTHFAILED || status == ZINVALIDSTATE)
		fail(status);
	wait_ms = Min(wait.tv_sec * 1000 + wait.tv_usec / 1000, left_usec / 1000) + 1;
	events = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH;
	if (status != ZOK || socket < 0 || interest == 0)
		rc = WaitLatch(MyLatch, events, Min(wait_ms, 100), wait_event);
	else
		rc = WaitLatchOrSocket(MyLatch,
							   events |
							   ((interest & ZOOKEEPER_READ) ? WL_SOCKET_READABLE : 0) |
							   ((interest & ZOOKEEPER_WRITE) ? WL_SOCKET_WRITEABLE : 0),
							   socket, wait_ms, wait_event);
	if (rc & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	(void) zookeeper_process(connection->handle,
							 ((rc & WL_SOCKET_READABLE) ? ZOOKEEPER_READ : 0) |
							 ((rc & WL_SOCKET_WRITEABLE) ? ZOOKEEPER_WRITE : 0));
}

/* Wait for the answer to a request, unless "status" says that sending it has failed. */
static void
await(Connection *connection, int status, Answer *answer)
{
	if (status != ZOK)
		fail(status);
	while (!answer->done)
		drive(connection);
}

/*
 * Completions: called while the client is driven or closed.  The answer lives as long as
 * the connection.  None of them raises an error, which would leave the client in the
 * middle of its work: if there is no memory, the answer is a failure.
 */
static void *
try_alloc(Size size)
{
	return palloc_extended(size, MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
}

static char *
try_copy(const char *text, int length)
{
	char	   *copy = try_alloc((Size) length + 1);

	if (copy != NULL)
	{
		memcpy(copy, text, length);
		copy[length] = '\0';
	}
	return copy;
}

static void
got_text(int status, const char *value, const void *data)
{
	Answer	   *answer = unconstify(void *, data);

	answer->status = status;
	answer->done = true;
}

static void
got_status(int status, const void *data)
{
	Answer	   *answer = unconstify(void *, data);

	answer->status = status;
	answer->done = true;
}

static void
got_stat(int status, const struct Stat *stat, const void *data)
{
	Answer	   *answer = unconstify(void *, data);

	answer->status = status;
	if (status == ZOK && stat != NULL)
		answer->changed_at = time_t_to_timestamptz(stat->mtime / 1000);
	answer->done = true;
}

static void
got_data(int status, const char *value, int length, const struct Stat *stat,
		 const void *data)
{
	Answer	   *answer = unconstify(void *, data);

	answer->status = status;
	if (status == ZOK && value != NULL && length >= 0 && length < VALUE_SIZE)
	{
		answer->value = try_copy(value, length);
		if (answer->value == NULL)
			answer->status = ZSYSTEMERROR;
	}
	answer->version = stat == NULL ? -1 : stat->version;
	answer->done = true;
}

static void
got_names(int status, const struct String_vector *names, const void *data)
{
	Answer	   *answer = unconstify(void *, data);

	answer->status = status;
	if (status == ZOK && names != NULL && names->count > 0)
		answer->names = try_alloc(names->count * sizeof(char *));
	for (int i = 0; answer->names != NULL && names != NULL && i < names->count; i++)
	{
		answer->names[i] = try_copy(names->data[i], strlen(names->data[i]));
		if (answer->names[i] == NULL)
			break;
		answer->names_count++;
	}
	if (status == ZOK && names != NULL && answer->names_count < names->count)
		answer->status = ZSYSTEMERROR;
	answer->done = true;
}

/* Events are ignored: they also make calls return errors. */
static void
ignore_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
}

/*
 * The list of hosts is in the form that the client takes.  With a user, the nodes
 * that are created are for that user only.
 */
static void *
zk_connect(const char *text, int64 *deadline_usec)
{
	static const char *const parameters[] = {"passfile", NULL};
	Connection *connection = palloc0(sizeof(Connection));
	StringInfoData hosts;
	ListCell   *host,
			   *addresses;

	connection->url = snowflake_url_parse(text, DEFAULT_PORT, "snowflake", parameters);
	connection->acl = &ZOO_OPEN_ACL_UNSAFE;
	connection->callback.func = finish;
	connection->callback.arg = connection;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &connection->callback);

	snowflake_url_resolve(connection->url, deadline_usec);
	connection->deadline_usec = *deadline_usec;
	initStringInfo(&hosts);
	forboth(host, connection->url->hosts, addresses, connection->url->addresses)
		for (char *address = strtok(lfirst(addresses), ","); address != NULL; address = strtok(NULL, ","))
		appendStringInfo(&hosts, strchr(address, ':') == NULL ? "%s%s%s" : "%s[%s]%s",
						 hosts.len == 0 ? "" : ",", address, strrchr(lfirst(host), ':'));
	zoo_set_debug_level(0);
	snowflake_coordinator_reserve_file();
	connection->handle = zookeeper_init(hosts.data, ignore_event, SESSION_MS, NULL, NULL, 0);
	if (connection->handle == NULL)
	{
		ReleaseExternalFD();
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("could not use the coordinator: %m"));
	}
	if (connection->url->user != NULL)
	{
		char	   *password = snowflake_url_secret(connection->url);
		char	   *login = psprintf("%s:%s", connection->url->user,
									 password == NULL ? "" : password);

		(void) zoo_add_auth(connection->handle, "digest", login, strlen(login), NULL, NULL);
		connection->acl = &ZOO_CREATOR_ALL_ACL;
	}
	while (zoo_state(connection->handle) != ZOO_CONNECTED_STATE)
		drive(connection);
	return connection;
}

/* An ensemble has no name of its own. */
static void
zk_identify(void *arg, SnowflakeIdentity *identity)
{
	Connection *connection = arg;

	memset(identity, 0, sizeof(*identity));
	identity->clock = connection->clock;
}

static void
zk_set_deadline(void *arg, int64 deadline_usec)
{
	Connection *connection = arg;

	connection->deadline_usec = deadline_usec;
}

static void
zk_close(void *arg)
{
	finish(arg);
}

static char *
path_of(Connection *connection, const char *key)
{
	return psprintf("/%s/%s", connection->url->path, key);
}

/* Create a node, unless it exists. */
static void
create(Connection *connection, const char *path, const char *value)
{
	Answer	   *answer = palloc0(sizeof(Answer));

	await(connection, zoo_acreate(connection->handle, path, value, strlen(value),
								  connection->acl, 0, got_text, answer), answer);
	if (answer->status != ZOK && answer->status != ZNODEEXISTS)
		fail(answer->status);
}

/*
 * Create the path to the records.  The node above them is written to, which gives
 * the leader's time.
 */
static void
zk_prepare(void *arg)
{
	Connection *connection = arg;
	Answer	   *answer = palloc0(sizeof(Answer));
	char	   *path = path_of(connection, "node");

	for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/'))
	{
		*slash = '\0';
		create(connection, path, "");
		*slash = '/';
	}
	create(connection, path, "");
	await(connection, zoo_aset(connection->handle, path, "", 0, -1, got_stat, answer), answer);
	connection->clock = answer->changed_at;
}

/* Send a request for the value of a node. */
static Answer *
ask(Connection *connection, const char *path)
{
	Answer	   *answer = palloc0(sizeof(Answer));
	int			status = zoo_aget(connection->handle, path, 0, got_data, answer);

	if (status != ZOK)
		fail(status);
	return answer;
}

/* Wait for the answer to that.  Returns false if there is no such node. */
static bool
exists(Connection *connection, Answer *answer)
{
	await(connection, ZOK, answer);
	if (answer->status == ZNONODE)
		return false;
	if (answer->status != ZOK)
		fail(answer->status);
	if (answer->value == NULL)
		answer->value = pstrdup("");
	return true;
}

static bool
has_value(Connection *connection, Answer *answer, const char *value)
{
	return exists(connection, answer) && strcmp(answer->value, value) == 0;
}

/* Let the server that this is connected to catch up with the others. */
static void
catch_up(Connection *connection)
{
	Answer	   *answer = palloc0(sizeof(Answer));

	await(connection, zoo_async(connection->handle, psprintf("/%s", connection->url->path),
								got_text, answer), answer);
	if (answer->status != ZOK)
		fail(answer->status);
}

static List *
zk_list(void *arg, const char *key)
{
	Connection *connection = arg;
	List	   *keys = NIL;
	List	   *answers = NIL;
	List	   *records = NIL;
	ListCell   *cell;

	catch_up(connection);
	if (key != NULL)
		keys = list_make1(pstrdup(key));
	else
	{
		Answer	   *answer = palloc0(sizeof(Answer));

		await(connection, zoo_aget_children(connection->handle, path_of(connection, "node"), 0,
											got_names, answer), answer);
		if (answer->status != ZOK && answer->status != ZNONODE)
			fail(answer->status);
		for (int i = 0; i < answer->names_count; i++)
			keys = lappend(keys, psprintf("node/%s", answer->names[i]));

		/* last, so that it is not older than the others */
		keys = lappend(keys, pstrdup("fleet"));
	}

	foreach(cell, keys)
		answers = lappend(answers, ask(connection, path_of(connection, lfirst(cell))));
	for (int i = 0; i < list_length(keys); i++)
	{
		Answer	   *answer = list_nth(answers, i);
		SnowflakeRecord *record;

		if (!exists(connection, answer))
			continue;
		record = palloc0(sizeof(SnowflakeRecord));
		record->key = list_nth(keys, i);
		record->value = answer->value;
		records = lappend(records, record);
	}
	return records;
}

/*
 * Both records are read without waiting in between.  Then one transaction checks the
 * version of one record and writes the other.
 */
static bool
zk_compare_and_set(void *arg, const char *key, const char *expected,
				   const char *value, const SnowflakeRecord *unchanged)
{
	Connection *connection = arg;
	char	   *path = path_of(connection, key);
	char	   *unchanged_path = unchanged == NULL ? NULL : path_of(connection, unchanged->key);
	Answer	   *before = expected == NULL ? NULL : ask(connection, path);
	Answer	   *other = unchanged == NULL ? NULL : ask(connection, unchanged_path);
	Answer	   *answer = palloc0(sizeof(Answer));
	zoo_op_t   *operations = palloc0(2 * sizeof(zoo_op_t));
	zoo_op_result_t *results = palloc0(2 * sizeof(zoo_op_result_t));
	int			count = 0;

	if ((before != NULL && !has_value(connection, before, expected)) ||
		(other != NULL && !has_value(connection, other, unchanged->value)))
		return false;
	if (other != NULL)
		zoo_check_op_init(&operations[count++], unchanged_path, other->version);
	if (before != NULL)
		zoo_set_op_init(&operations[count++], path, value, strlen(value), before->version, NULL);
	else
		zoo_create_op_init(&operations[count++], path, value, strlen(value),
						   connection->acl, 0, NULL, 0);
	await(connection, zoo_amulti(connection->handle, count, operations, results,
								 got_status, answer), answer);
	if (answer->status == ZBADVERSION || answer->status == ZNONODE ||
		answer->status == ZNODEEXISTS)
		return false;
	if (answer->status != ZOK)
		fail(answer->status);
	return true;
}

const SnowflakeCoordinator *
_SnowflakeCoordinatorInit(void)
{
	static const SnowflakeCoordinator coordinator = {
		.connect = zk_connect,
		.set_deadline = zk_set_deadline,
		.identify = zk_identify,
		.prepare = zk_prepare,
		.list = zk_list,
		.compare_and_set = zk_compare_and_set,
		.close = zk_close
	};

	return &coordinator;
}
