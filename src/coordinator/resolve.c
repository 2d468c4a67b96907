/*-------------------------------------------------------------------------
 *
 * resolve.c
 *	  Addresses of hosts, looked up within a time limit.
 *
 * getaddrinfo() waits for as long as the system's resolver is configured to, and
 * nothing interrupts it; libpq and the client of ZooKeeper call it directly, and
 * libcurl waits for the thread in which it did.  So it is called in a thread of our
 * own, which touches nothing of the server's.  When the time is over the thread is left
 * behind, for the next attempt that asks for the same name.  That one also takes what was
 * found since, or a resolver that always takes longer than an attempt would never be of use.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "coordinator/resolve.h"

#define MOST_ADDRESSES	8

/* Names that may be looked up at a time. */
#define MOST_LOOKUPS	8

/*
 * For how long addresses count: for all requests of an attempt, and for the next attempt if
 * one has given up.
 */
#define KEPT_USEC		(10 * USECS_PER_SEC)

/*
 * A thread writes it.  Its last act is to close its end of the pipe, and only then may the
 * look-up be used for another name.
 */
typedef struct Lookup
{
	int64		done_usec;		/* when it was done, on the monotonic clock */
	int			done[2];		/* a pipe: its end is read when it is done;
								 * the first is -1 if that was seen */
	int			failure;		/* of getaddrinfo() */
	int			count;
	bool		is_used;
	char		host[NI_MAXHOST];
	char		addresses[MOST_ADDRESSES][INET6_ADDRSTRLEN];
} Lookup;

/* Those that were not waited for to their end stay here, for the next attempt. */
static Lookup lookups[MOST_LOOKUPS];

/* The thread. */
static void *
look_up(void *arg)
{
	Lookup	   *lookup = arg;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;

	lookup->failure = getaddrinfo(lookup->host, NULL, &hints, &found);
	if (lookup->failure == 0)
	{
		for (struct addrinfo *each = found;
			 each != NULL && lookup->count < MOST_ADDRESSES; each = each->ai_next)
			if (getnameinfo(each->ai_addr, each->ai_addrlen, lookup->addresses[lookup->count],
							INET6_ADDRSTRLEN, NULL, 0, NI_NUMERICHOST) == 0)
				lookup->count++;
		freeaddrinfo(found);
	}
	lookup->done_usec = snowflake_clock_monotonic_usec();
	close(lookup->done[1]);
	return NULL;
}

static bool
is_done(const Lookup *lookup)
{
	struct pollfd end = {.fd = lookup->done[0],.events = POLLIN};

	return lookup->done[0] < 0 || poll(&end, 1, 0) > 0;
}

/* Nothing is read from its pipe any more. */
static void
close_pipe(Lookup *lookup)
{
	if (lookup->done[0] >= 0)
		close(lookup->done[0]);
	lookup->done[0] = -1;
}

static void
forget(Lookup *lookup)
{
	close_pipe(lookup);
	lookup->is_used = false;
}

/* Start the thread, which gets none of the server's signals. */
static bool
start(Lookup *lookup)
{
	pthread_attr_t attributes;
	pthread_t	thread;
	sigset_t	all,
				before;
	bool		started;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	(void) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	(void) pthread_sigmask(SIG_SETMASK, &all, &before);
	started = pthread_create(&thread, &attributes, look_up, lookup) == 0;
	(void) pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void) pthread_attr_destroy(&attributes);
	return started;
}

/* Wait until it is done.  False: not in time. */
static bool
wait_until_done(Lookup *lookup, int64 until_usec)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("SnowflakeResolver");
	while (!is_done(lookup))
	{
		int64		left_usec = until_usec - snowflake_clock_monotonic_usec();
		int			rc;

		if (left_usec <= 0)
			return false;
		rc = WaitLatchOrSocket(MyLatch,
							   WL_LATCH_SET | WL_SOCKET_READABLE | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							   lookup->done[0], (long) (left_usec / 1000 + 1), wait_event);
		if (rc & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
	}
	return true;
}

/* Is what has been found still of use? */
static bool
is_fresh(const Lookup *lookup)
{
	return lookup->count > 0 &&
		snowflake_clock_monotonic_usec() - lookup->done_usec < KEPT_USEC;
}

/*
 * The look-up of a host: the one that runs already, so that a name that hangs has one
 * thread, however often it is asked for; or one that has ended a moment ago; or else a new
 * one.  NULL: *error says why.
 */
static Lookup *
find_or_start(const char *host, const char **error)
{
	Lookup	   *vacant = NULL;
	Lookup	   *kept = NULL;

	for (Lookup *each = lookups; each < lookups + MOST_LOOKUPS; each++)
	{
		bool		done = each->is_used && is_done(each);

		if (done && !is_fresh(each))
			forget(each);
		if (!each->is_used)
			vacant = each;
		else if (strcmp(each->host, host) == 0)
			return each;
		else if (done)
			kept = each;
	}
	if (vacant == NULL && kept != NULL)
	{
		forget(kept);
		vacant = kept;
	}

	if (vacant == NULL)
	{
		*error = psprintf("%d other names are being looked up already", MOST_LOOKUPS);
		return NULL;
	}
	*error = "could not create a pipe";
	if (pipe(vacant->done) != 0)
		return NULL;
	strlcpy(vacant->host, host, sizeof(vacant->host));
	vacant->count = 0;
	vacant->is_used = true;
	*error = "could not start a thread";
	if (!start(vacant))
	{
		close(vacant->done[1]);
		forget(vacant);
		return NULL;
	}
	return vacant;
}

/*
 * The addresses of a host, with commas, or NULL: then *error says why, until the next
 * call.  What is an address already, or the directory of a socket, is returned as it is.
 * Interrupts are served, and raise what they raise.
 */
char *
snowflake_resolve_host(const char *host, int64 until_usec, const char **error)
{
	unsigned char address[sizeof(struct in6_addr)];
	Lookup	   *lookup;
	StringInfoData list;

	if (host[0] == '/' || host[0] == '@' || strchr(host, '%') != NULL ||
		inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
		return pstrdup(host);
	if (strlen(host) >= NI_MAXHOST)
	{
		*error = psprintf("its name has more than %d bytes", NI_MAXHOST - 1);
		return NULL;
	}

	lookup = find_or_start(host, error);
	if (lookup == NULL)
		return NULL;
	*error = "its name was not resolved in time";
	if (!wait_until_done(lookup, until_usec))
		return NULL;

	*error = lookup->failure != 0 ? gai_strerror(lookup->failure) : "it has no address";
	initStringInfo(&list);
	for (int i = 0; i < lookup->count; i++)
		appendStringInfo(&list, "%s%s", i == 0 ? "" : ",", lookup->addresses[i]);
	close_pipe(lookup);
	return list.len == 0 ? NULL : list.data;
}
