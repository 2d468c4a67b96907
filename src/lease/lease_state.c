/*-------------------------------------------------------------------------
 *
 * lease_state.c
 *	  The lease of this server's node ID, as other processes see it.
 *
 * The lessee writes it, under the lock, so that others read a node ID and its range
 * together.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "base/clock.h"
#include "base/compat.h"
#include "generator/counters.h"
#include "generator/keeper_state.h"
#include "layout/server_layout.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"

typedef struct LeaseState
{
	LWLock		lock;			/* for what is in the view */
	SnowflakeLeaseView view;

	/* The position from which on the generator needs more; the keeper's */
	pg_atomic_uint64 needed;

	/*
	 * The lessee's, or NULL.  It is that of a PGPROC, and stays valid
	 * forever.
	 */
	Latch	   *volatile latch;

	/* A session has asked for an immediate attempt. */
	pg_atomic_uint32 is_asked;

	/*
	 * The grant that a session wants to replace with another one, and until
	 * when it waits for that, on the monotonic clock.  Protected by the lock.
	 */
	uint32		replaced_grant;
	int64		replaced_until_usec;
} LeaseState;

/* NULL if the library was not preloaded. */
static LeaseState *shared = NULL;

/* In the lessee: has its attempt led to a lease? */
static bool is_published = false;

Size
snowflake_lease_state_size(void)
{
	return MAXALIGN(sizeof(LeaseState));
}

/* The caller holds AddinShmemInitLock. */
void
snowflake_lease_state_attach(int tranche)
{
	bool		found;

	shared = ShmemInitStruct("snowflake lease state", snowflake_lease_state_size(), &found);
	if (found)
		return;
	memset(shared, 0, sizeof(*shared));
	shared->view.node = -1;
	LWLockInitialize(&shared->lock, tranche);
	pg_atomic_init_u64(&shared->needed, 0);
	pg_atomic_init_u32(&shared->is_asked, 0);
}

/* Read what is known about the lease.  Takes the lock, shared. */
void
snowflake_lease_state_view(SnowflakeLeaseView *view)
{
	LWLockAcquire(&shared->lock, LW_SHARED);
	*view = shared->view;
	LWLockRelease(&shared->lock);
}

/* Sets *wanted to the leased node ID and its range of positions, or to the obstacle. */
void
snowflake_lease_state_wanted(SnowflakeNode *wanted)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	SnowflakeLeaseView view;

	snowflake_lease_state_view(&view);
	wanted->node = view.node;
	wanted->grant = view.grant;
	wanted->at_clock = view.at_clock;
	wanted->first = 0;
	wanted->end = PG_UINT64_MAX;
	if (view.grant == 0 || view.retired)
		wanted->obstacle = GATE_LEASE_NONE;
	else if (view.revoked)
		wanted->obstacle = GATE_LEASE_REVOKED;
	else
	{
		wanted->obstacle = GATE_OPEN;
		wanted->first = snowflake_layout_first_position(layout, view.from);
		wanted->end = snowflake_layout_last_position(layout, view.until);
	}
}

/*
 * Record that positions beyond this one are needed.  Wakes the lessee if at most
 * half of the lease would be left there, which it cannot tell from the clock.
 */
void
snowflake_lease_state_need(uint64 position)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	SnowflakeLeaseView view;

	if (pg_atomic_exchange_u64(&shared->needed, position) == position || shared->latch == NULL)
		return;
	snowflake_lease_state_view(&view);
	if (view.until - snowflake_layout_position_tick(layout, position) <=
		snowflake_node_settings_lease_ticks() / 2)
		snowflake_lease_state_wake();
}

/* Wake the lessee, for example when the clock has gone beyond the lease before it expects that. */
void
snowflake_lease_state_wake(void)
{
	Latch	   *latch = shared->latch;

	if (latch != NULL)
		SetLatch(latch);
}

/* Have the lessee ask the coordinator at once: an administrator has changed the fleet. */
void
snowflake_lease_state_ask(void)
{
	pg_atomic_write_u32(&shared->is_asked, 1);
	snowflake_lease_state_wake();
}

/*
 * The generator is to go back to the clock: have the lessee replace this grant with one that
 * begins there, if it can before the deadline, which is on the monotonic clock.
 */
void
snowflake_lease_state_replace(uint32 grant, int64 deadline_usec)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->replaced_grant = grant;
	shared->replaced_until_usec = deadline_usec;
	LWLockRelease(&shared->lock);
	snowflake_lease_state_ask();
}

/* The generator went back to the clock, with a node ID that is not leased: the lease is void. */
void
snowflake_lease_state_retire(void)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->view.retired = shared->view.grant != 0;
	LWLockRelease(&shared->lock);
}

/* Is the clock beyond the end of the lease? */
bool
snowflake_lease_state_has_ended(const SnowflakeNode *wanted, TimestampTz now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	return wanted->grant != 0 &&
		snowflake_layout_tick_at(layout, now) > snowflake_layout_position_tick(layout, wanted->end);
}

/* Returns the tick that the generator has reached: the clock's, or a later one if it is ahead. */
int64
snowflake_lease_state_reached(TimestampTz now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	return Max(snowflake_layout_tick_at(layout, now),
			   snowflake_layout_position_tick(layout, pg_atomic_read_u64(&shared->needed)));
}

/* Returns the time at which a fleet's floor is passed, so that the next tick can be granted. */
TimestampTz
snowflake_lease_state_floor_passed(int64 floor)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	return snowflake_layout_tick_start(layout, Min(floor + 1, layout->max_tick));
}

/*
 * Has the lessee ended a failed attempt so recently that it cannot have been stopped?
 * While a lease is late, it makes one attempt after the other, each of which takes at most
 * a quarter of a lease.
 */
bool
snowflake_lease_state_is_asking(const SnowflakeLeaseView *lease)
{
	return lease->tried_usec != 0 &&
		snowflake_clock_monotonic_usec() - lease->tried_usec <
		Min(snowflake_lease_ms * INT64CONST(500), 10 * USECS_PER_SEC);
}

/*
 * Is the renewal of the lease late: less than a quarter of it is left, or all of it is used up
 * by IDs that are ahead of the clock?  The gate is open.
 */
bool
snowflake_lease_state_is_late(const SnowflakeLeaseView *lease, const SnowflakeView *view)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;

	return snowflake_layout_tick_start(layout, lease->until + 1) - snowflake_generator_clock() <
		snowflake_lease_ms * INT64CONST(250) ||
		(view->limit >= snowflake_layout_last_position(layout, lease->until) &&
		 snowflake_generator_is_unreserved(view));
}

static void
detach_lessee(int code, Datum arg)
{
	shared->latch = NULL;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->view.pid = 0;
	LWLockRelease(&shared->lock);
}

/* This process is the lessee until it ends.  Returns false if there is one already. */
bool
snowflake_lease_state_attach_lessee(void)
{
	bool		alone;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	alone = shared->view.pid == 0;
	if (alone)
		shared->view.pid = MyProcPid;
	LWLockRelease(&shared->lock);
	if (!alone)
		return false;
	shared->latch = MyLatch;
	before_shmem_exit(detach_lessee, (Datum) 0);
	return true;
}

/* Has a session asked for an attempt since this was last called? */
bool
snowflake_lease_state_is_asked(void)
{
	return pg_atomic_exchange_u32(&shared->is_asked, 0) != 0;
}

/* Is another grant wanted in place of the present one? */
bool
snowflake_lease_state_is_replaced(void)
{
	int64		now_usec = snowflake_clock_monotonic_usec();
	bool		is_replaced;

	LWLockAcquire(&shared->lock, LW_SHARED);
	is_replaced = shared->view.grant != 0 && shared->view.grant == shared->replaced_grant &&
		now_usec < shared->replaced_until_usec;
	LWLockRelease(&shared->lock);
	return is_replaced;
}

/*
 * Publish a lease of these ticks of a node ID: a new grant, with the next number, or a
 * renewed one, for which "at_clock" does not matter.
 */
void
snowflake_lease_state_publish(int32 node, int64 from, int64 until, bool is_new, bool at_clock,
							  TimestampTz now)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (is_new)
	{
		shared->view.grant++;
		shared->view.at_clock = at_clock;
		shared->view.retired = false;
	}
	shared->view.node = node;
	shared->view.from = from;
	shared->view.until = until;
	shared->view.revoked = false;
	shared->view.renewed_at = now;
	LWLockRelease(&shared->lock);
	is_published = true;
	snowflake_keeper_state_request(SNOWFLAKE_WANT_NODE);
	snowflake_counters_add(is_new ? COUNTER_LEASES :
						   COUNTER_LEASE_RENEWALS);
}

/* An attempt ends. */
void
snowflake_lease_state_end_attempt(void)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->view.tried_usec = is_published ? 0 : snowflake_clock_monotonic_usec();
	LWLockRelease(&shared->lock);
	is_published = false;
}

/*
 * Nothing beyond the tick "end" will be minted with this grant, which is about to
 * be given back: a keeper that starts from now on finds a lease that has ended.
 */
void
snowflake_lease_state_shorten(int64 end)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->view.until = Min(Max(end, shared->view.from - 1), shared->view.until);
	LWLockRelease(&shared->lock);
	pg_memory_barrier();		/* before the caller checks for a keeper */
}

/* The grant must no longer be used. */
void
snowflake_lease_state_revoke(void)
{
	if (shared->view.revoked)
		return;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->view.revoked = true;
	LWLockRelease(&shared->lock);
	snowflake_keeper_state_request(SNOWFLAKE_WANT_NODE);
	ereport(WARNING,
			errmsg("the coordinator of the snowflake fleet went back in time: it does not know what it granted to this server"),
			errdetail("Node ID %d was leased until \"%s\". This server gives it up immediately.",
					  shared->view.node,
					  timestamptz_to_str(snowflake_layout_tick_start(&snowflake_server_layout,
																	 shared->view.until))));
}

static const char *
floor_time(const char *word, const void *floor)
{
	return timestamptz_to_str(snowflake_lease_state_floor_passed(*(const int64 *) floor));
}

/*
 * Record what prevents a lease, or that nothing does any more, and log it if it is new.
 * "floor" is that of a fleet that is to be passed first, or 0; "error" the message of a
 * failure, or NULL, which is reported where it happens.
 */
void
snowflake_lease_state_set_trouble(SnowflakeState trouble, int64 floor, const char *error)
{
	SnowflakeLeaseView *view = &shared->view;
	const SnowflakeWords *words = &snowflake_words[trouble];
	bool		is_new = trouble != view->trouble;
	TimestampTz now = snowflake_clock_wall();
	char		kept[SNOWFLAKE_LEASE_ERROR_SIZE];

	strlcpy(kept, error == NULL ? "" : error, sizeof(kept));

	/* one line, which is shown in databases of any encoding */
	kept[strcspn(kept, "\n")] = '\0';
	for (char *c = kept; *c != '\0'; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	if (!is_new && floor == view->floor && strcmp(kept, view->error) == 0)
		return;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	view->trouble = trouble;
	view->floor = floor;
	strlcpy(view->error, kept, sizeof(view->error));
	if (is_new)
		view->trouble_since = now;
	LWLockRelease(&shared->lock);
	if (!is_new)
		return;
	snowflake_keeper_state_request(SNOWFLAKE_WANT_NODE);
	if (trouble == STATE_NO_TROUBLE)
		ereport(LOG, errmsg("the coordinator of the snowflake fleet grants node IDs again"));
	else if (words->message != NULL)
		ereport(WARNING,
				errmsg_internal("%s", words->message),
				errhint("%s", snowflake_words_fill(words->hint, floor_time, &floor)));
}
