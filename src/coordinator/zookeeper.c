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
#define VALUE_SIZE		65536	/* of the longest record; ZooKeeper allows a
								 * megabyte */

typedef struct ZooKeeper
{
	SnowflakeCoordinator coordinator;	/* whose clock is the leader's, once
										 * prepare() was called */
	SnowflakeUrl *url;
	zhandle_t  *handle;
	struct ACL_vector *acl;		/* of the nodes that are created */
} ZooKeeper;

/* The client's answer to a request, filled in while the client is driven. */
typedef struct Answer
{
	bool		done;
	int			status;
	int32		version;
	char	   *value;			/* NULL: none */
	char	  **names;			/* of children */
	int			names_count;
	TimestampTz changed_at;		/* by the leader's clock */
} Answer;

/* This may take some seconds: see coordinator.h. */
static void
finish(void *arg)
{
	ZooKeeper  *zk = arg;

	if (zk->handle != NULL)
	{
		(void) zookeeper_close(zk->handle);
		ReleaseExternalFD();
	}
	zk->handle = NULL;
}

pg_noreturn static void
fail(int status)
{
	ereport(ERROR,
			errcode(status == ZNOAUTH || status == ZAUTHFAILED ?
					ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION : ERRCODE_CONNECTION_FAILURE),
			errmsg("could not use the coordinator: %s", zerror(status)));
}

/* Wait until there is something to do, and let the client do it. */
static void
drive(ZooKeeper *zk)
{
	static uint32 wait_event = 0;
	int64		left_usec = zk->coordinator.deadline_usec - snowflake_clock_monotonic_usec();
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
	status = zookeeper_interest(zk->handle, &socket, &interest, &wait);
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
	(void) zookeeper_process(zk->handle,
							 ((rc & WL_SOCKET_READABLE) ? ZOOKEEPER_READ : 0) |
							 ((rc & WL_SOCKET_WRITEABLE) ? ZOOKEEPER_WRITE : 0));
}

/* Wait for the answer to a request, if it could be sent.  Returns the answer's status. */
static int
await(ZooKeeper *zk, int sent, Answer *answer)
{
	if (sent != ZOK)
		fail(sent);
	while (!answer->done)
		drive(zk);
	return answer->status;
}

/*
 * Completions: called while the client is driven or closed.  The answer lives as long as
 * the connection.  None of them raises an error, which would leave the client in the
 * middle of its work: if there is no memory, the answer is a failure.
 */
static char *
try_copy(const char *text, int length)
{
	char	   *copy = palloc_extended((Size) length + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);

	if (copy != NULL)
	{
		memcpy(copy, text, length);
		copy[length] = '\0';
	}
	return copy;
}

static void
got_status(int status, const void *data)
{
	Answer	   *answer = unconstify(void *, data);

	answer->status = status;
	answer->done = true;
}

static void
got_text(int status, const char *value, const void *data)
{
	got_status(status, data);
}

static void
got_stat(int status, const struct Stat *stat, const void *data)
{
	Answer	   *answer = unconstify(void *, data);

	if (status == ZOK && stat != NULL)
		answer->changed_at = time_t_to_timestamptz(stat->mtime / 1000);
	got_status(status, data);
}

static void
got_data(int status, const char *value, int length, const struct Stat *stat,
		 const void *data)
{
	Answer	   *answer = unconstify(void *, data);

	if (status == ZOK && value != NULL && length >= 0 && length < VALUE_SIZE)
	{
		answer->value = try_copy(value, length);
		if (answer->value == NULL)
			status = ZSYSTEMERROR;
	}
	answer->version = stat == NULL ? -1 : stat->version;
	got_status(status, data);
}

static void
got_names(int status, const struct String_vector *names, const void *data)
{
	Answer	   *answer = unconstify(void *, data);
	int			count = status == ZOK && names != NULL ? names->count : 0;

	if (count > 0)
		answer->names = palloc_extended(count * sizeof(char *), MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
	for (int i = 0; answer->names != NULL && i < count; i++)
	{
		answer->names[i] = try_copy(names->data[i], strlen(names->data[i]));
		if (answer->names[i] == NULL)
			break;
		answer->names_count++;
	}
	got_status(answer->names_count < count ? ZSYSTEMERROR : status, data);
}

/* Events are ignored: they also make calls return errors. */
static void
ignore_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
}

static char *
path_of(ZooKeeper *zk, const char *key)
{
	return psprintf("/%s/%s", zk->url->path, key);
}

/* Create a node, unless it exists. */
static void
create(ZooKeeper *zk, const char *path)
{
	Answer	   *answer = palloc0(sizeof(Answer));
	int			status = await(zk, zoo_acreate(zk->handle, path, "", 0, zk->acl, 0, got_text, answer), answer);

	if (status != ZOK && status != ZNODEEXISTS)
		fail(status);
}

/* Create the path to the records.  Writing to the node above them gives the leader's time. */
static void
zk_prepare(SnowflakeCoordinator *coordinator)
{
	ZooKeeper  *zk = (ZooKeeper *) coordinator;
	Answer	   *answer = palloc0(sizeof(Answer));
	char	   *path = path_of(zk, "node");

	for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/'))
	{
		*slash = '\0';
		create(zk, path);
		*slash = '/';
	}
	create(zk, path);
	(void) await(zk, zoo_aset(zk->handle, path, "", 0, -1, got_stat, answer), answer);
	coordinator->identity.clock = answer->changed_at;
}

/* Send a request for the value of a node. */
static Answer *
ask(ZooKeeper *zk, const char *path)
{
	Answer	   *answer = palloc0(sizeof(Answer));
	int			sent = zoo_aget(zk->handle, path, 0, got_data, answer);

	if (sent != ZOK)
		fail(sent);
	return answer;
}

/* Wait for the answer to that.  Returns the value, or NULL if there is no such node. */
static const char *
value_of(ZooKeeper *zk, Answer *answer)
{
	int			status = await(zk, ZOK, answer);

	if (status == ZNONODE)
		return NULL;
	if (status != ZOK)
		fail(status);
	return answer->value == NULL ? "" : answer->value;
}

static bool
has_value(ZooKeeper *zk, Answer *answer, const char *value)
{
	const char *found = value_of(zk, answer);

	return found != NULL && strcmp(found, value) == 0;
}

static List *
zk_list(SnowflakeCoordinator *coordinator, const char *key)
{
	ZooKeeper  *zk = (ZooKeeper *) coordinator;
	Answer	   *answer = palloc0(sizeof(Answer));
	List	   *keys = NIL;
	List	   *answers = NIL;
	List	   *records = NIL;
	ListCell   *cell,
			   *each;
	int			status;

	/* let the server that this is connected to catch up with the others */
	status = await(zk, zoo_async(zk->handle, psprintf("/%s", zk->url->path), got_text, answer), answer);
	if (status != ZOK)
		fail(status);
	if (key != NULL)
		keys = list_make1(pstrdup(key));
	else
	{
		answer = palloc0(sizeof(Answer));
		status = await(zk, zoo_aget_children(zk->handle, path_of(zk, "node"), 0, got_names, answer), answer);
		if (status != ZOK && status != ZNONODE)
			fail(status);
		for (int i = 0; i < answer->names_count; i++)
			keys = lappend(keys, psprintf("node/%s", answer->names[i]));

		/* last, so that it is not older than the others */
		keys = lappend(keys, pstrdup("fleet"));
	}

	foreach(cell, keys)
		answers = lappend(answers, ask(zk, path_of(zk, lfirst(cell))));
	forboth(cell, keys, each, answers)
	{
		const char *value = value_of(zk, lfirst(each));
		SnowflakeRecord *record;

		if (value == NULL)
			continue;
		record = palloc(sizeof(SnowflakeRecord));
		record->key = lfirst(cell);
		record->value = value;
		records = lappend(records, record);
	}
	return records;
}

/* Both records are read at once.  Then a transaction checks one version and writes the other. */
static bool
zk_compare_and_set(SnowflakeCoordinator *coordinator, const char *key, const char *expected,
				   const char *value, const SnowflakeRecord *unchanged)
{
	ZooKeeper  *zk = (ZooKeeper *) coordinator;
	char	   *path = path_of(zk, key);
	char	   *unchanged_path = unchanged == NULL ? NULL : path_of(zk, unchanged->key);
	Answer	   *before = expected == NULL ? NULL : ask(zk, path);
	Answer	   *other = unchanged == NULL ? NULL : ask(zk, unchanged_path);
	Answer	   *answer = palloc0(sizeof(Answer));
	zoo_op_t   *operations = palloc0(2 * sizeof(zoo_op_t));
	zoo_op_result_t *results = palloc0(2 * sizeof(zoo_op_result_t));
	int			count = 0;
	int			status;

	if ((before != NULL && !has_value(zk, before, expected)) ||
		(other != NULL && !has_value(zk, other, unchanged->value)))
		return false;
	if (other != NULL)
		zoo_check_op_init(&operations[count++], unchanged_path, other->version);
	if (before != NULL)
		zoo_set_op_init(&operations[count++], path, value, strlen(value), before->version, NULL);
	else
		zoo_create_op_init(&operations[count++], path, value, strlen(value), zk->acl, 0, NULL, 0);
	status = await(zk, zoo_amulti(zk->handle, count, operations, results, got_status, answer), answer);
	if (status != ZOK && status != ZBADVERSION && status != ZNONODE && status != ZNODEEXISTS)
		fail(status);
	return status == ZOK;
}

/* With a user, the nodes that are created are for that user only. */
SnowflakeCoordinator *
snowflake_coordinator_connect(const char *url, int64 deadline_usec)
{
	static const char *const parameters[] = {"passfile", NULL};
	ZooKeeper  *zk = snowflake_coordinator_make(sizeof(ZooKeeper), deadline_usec, finish);
	StringInfoData hosts;
	ListCell   *host,
			   *addresses;

	zk->coordinator.prepare = zk_prepare;
	zk->coordinator.list = zk_list;
	zk->coordinator.compare_and_set = zk_compare_and_set;
	zk->url = snowflake_url_parse(url, DEFAULT_PORT, parameters);
	zk->acl = &ZOO_OPEN_ACL_UNSAFE;

	snowflake_url_resolve(zk->url, &zk->coordinator.deadline_usec);
	initStringInfo(&hosts);
	forboth(host, zk->url->hosts, addresses, zk->url->addresses)
		for (char *address = strtok(lfirst(addresses), ","); address != NULL; address = strtok(NULL, ","))
		appendStringInfo(&hosts, strchr(address, ':') == NULL ? "%s%s%s" : "%s[%s]%s",
						 hosts.len == 0 ? "" : ",", address, strrchr(lfirst(host), ':'));
	zoo_set_debug_level(0);
	snowflake_coordinator_reserve_file();
	zk->handle = zookeeper_init(hosts.data, ignore_event, SESSION_MS, NULL, NULL, 0);
	if (zk->handle == NULL)
	{
		ReleaseExternalFD();
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("could not use the coordinator: %m"));
	}
	if (zk->url->user != NULL)
	{
		char	   *password = snowflake_url_secret(zk->url);
		char	   *login = psprintf("%s:%s", zk->url->user, password == NULL ? "" : password);

		(void) zoo_add_auth(zk->handle, "digest", login, strlen(login), NULL, NULL);
		zk->acl = &ZOO_CREATOR_ALL_ACL;
	}
	while (zoo_state(zk->handle) != ZOO_CONNECTED_STATE)
		drive(zk);
	return &zk->coordinator;
}
