/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  The rules of leases.
 *
 * The promise: no two servers of a fleet issue the same (tick, node), whatever
 * their clocks, pauses and networks do, and however their data is copied.
 *
 * A lease is a range of ticks of a node ID, not of wall time.  The node's record at
 * the coordinator says up to which tick, "until", it is granted, and every grant
 * starts above the "until" that it replaces, by one compare-and-set.  So the ranges of a
 * node ID's grants never overlap, and a server mints only within that of its grant:
 * "until" bounds the limit of generator.c, "from" its start.  If a grant is taken over too
 * early, by a server whose clock is ahead, its holder needs another node ID, and that is all.
 *
 * 1. A grant belongs to one start of one server: its token is made at the start and kept
 *	  in shared memory only, so a copy of the data does not have it.
 * 2. Taking, and renewing, which moves "until" ahead, is a compare-and-set on the
 *	  record that was last read or written, done only if the fleet's record has not
 *	  changed since: take(), renew(), begin_write().  So a late write does nothing
 *	  to a fleet that was re-created meanwhile.  (With Consul and ZooKeeper, that
 *	  is as certain as an index or a version, which start again with an empty
 *	  store.)
 * 3. Each write has a nonce, and no two are equal.  An answer may be lost: then the
 *	  same value is written again, or found; any other value means that another
 *	  server has the node ID, perhaps a twin of this process in a virtual machine
 *	  that was resumed twice: settle_write(), judge_lease().
 * 4. A stop stores the exact end: snowflake_lease_release().  It must be known what
 *	  was minted with the grant, and certain that nothing more will be: give_back().
 *	  If the answer is lost, the grant ends there as well: judge_lease().
 * 5. Without an answer, the present grant can be used up.
 * 6. A coordinator that has lost its data grants nothing, since the fleet's record
 *	  is missing.  One that went back in time, for example by a restored backup,
 *	  may grant again what is used already.  Its holders notice: judge_lease().
 * 7. The fleet's record says who its coordinator is.  Another cluster, which has a copy
 *	  of the records, grants nothing, and neither does one whose term is older than one
 *	  seen before: it was replaced.  A newer term is recorded, in the same fleet:
 *	  knows_coordinator().  The identity of the one that answered a write is checked
 *	  after the write: send_write().  The new coordinator may lack commits of the old
 *	  one, so for half a lease it is only asked for renewals: take().
 * 8. A grant starts at our clock.  If the fleet's floor is ahead of that,
 *	  nothing is taken before the clock gets there, so that a mistaken floor
 *	  can be corrected: take().
 * 9. A server that has a grant asks the coordinator at least once in half a lease, by the
 *	  setting and the monotonic clock, however far the grant reaches:
 *	  snowflake_lease_due_ms().  So servers notice whatever the coordinator has forgotten
 *	  before a fleet that was re-created with the default floor, a lease after the clock,
 *	  grants anything; and before the end of the time in which a new term grants nothing.
 * 10. A generator that is far ahead of the clock and is to go back needs another
 *	   grant, from the clock on, which replaces the one that it has.  The replaced
 *	   grant is no longer used, and its record keeps its "until":
 *	   snowflake_lease_state_replace(), snowflake_lease_state_retire().
 *
 * Rules 1 to 8 do not depend on any clock.  Where records were lost, only time is left to
 * rely on: rule 9, and the second half of rule 7, hold if all servers have the same setting,
 * reach the coordinator meanwhile, and have correct monotonic clocks.
 *
 * The protocol must survive a server that is stopped at any point and goes on; a copy of it,
 * including its memory; any clock, and one that is set; answers and writes that are lost or
 * late; a coordinator that loses everything, or goes back, at any time; a failover that loses
 * the latest commits; a setting that is changed while leases of another length are held; a
 * generator that is ahead of the clock and goes back; a table without its key, which the
 * module for PostgreSQL refuses.  test/model/lease.pml models it, and test/model/notice.pml
 * the part that depends on time.
 *
 * A grant is identified by its number.  The same node ID granted again is another
 * grant: another server may have had it in between.
 *
 * Only the lessee calls these functions.  lease_state.c has what other processes see; the
 * rest is the lessee's memory, for its successor in case it ends while the server runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/shmem.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"
#include "layout/server_layout.h"
#include "lease/lease.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"

#define LOOKS			4		/* how often an attempt reads the records */
#define LISTING_USEC	(30 * USECS_PER_SEC)	/* for a server without a
												 * lease */

/* A lessee remembers its lease, that is, the grant that it has ... */
typedef struct Lease
{
	bool		exists;
	bool		lost;			/* another server has it: it cannot be renewed */
	uint32		source;			/* hash of the coordinator's URL */
	int32		node;
	char		value[SNOWFLAKE_VALUE_SIZE];	/* that was last written to it */
	char		fleet[SNOWFLAKE_VALUE_SIZE];	/* the fleet's record that it
												 * depends on */
	int64		renew_early_ticks;	/* ticks by which it is renewed before
									 * half of the lease */
	int64		asked_usec;		/* when the last write was sent, on the
								 * monotonic clock */
} Lease;

/* ... and a write that may or may not have been done, or may still be done. */
typedef struct Write
{
	bool		exists;
	int32		node;
	char		value[SNOWFLAKE_VALUE_SIZE];
	char		fleet[SNOWFLAKE_VALUE_SIZE];	/* what the fleet's record has
												 * to be */
	bool		at_clock;		/* a grant for a generator that goes back */

	/* an earlier write of ours that was found in the record; empty: none */
	char		found[SNOWFLAKE_VALUE_SIZE];
} Write;

typedef struct Lessee
{
	char		token[SNOWFLAKE_NONCE_SIZE];	/* empty: none yet */
	Lease		lease;
	Write		doubtful;

	/* the newest term in which a coordinator of a fleet has answered */
	char		incarnation[SNOWFLAKE_NONCE_SIZE];
	int64		term;
	int64		term_since_usec;	/* when this server first saw it, on the
									 * monotonic clock */
} Lessee;

/* NULL if the library was not preloaded. */
static Lessee *shared = NULL;

static int	races = 0;			/* how many node IDs other servers have taken
								 * first since the last grant */
static int64 answer_usec;		/* how long an attempt may take */
static int64 sent_usec;			/* when the last write was sent, on the
								 * monotonic clock */
static int	refusals;			/* of a renewal in an attempt, though its
								 * records are as expected */

Size
snowflake_lease_size(void)
{
	return MAXALIGN(sizeof(Lessee));
}

/* The caller holds AddinShmemInitLock. */
void
snowflake_lease_attach(void)
{
	bool		found;

	shared = ShmemInitStruct("snowflake lease", snowflake_lease_size(), &found);
	if (!found)
		memset(shared, 0, sizeof(*shared));
}

static uint32
own_source(void)
{
	const char *url = snowflake_node_source_text;

	return hash_bytes((const unsigned char *) url, strlen(url));
}

static SnowflakeLeaseView
lease_view(void)
{
	SnowflakeLeaseView view;

	snowflake_lease_state_view(&view);
	return view;
}

static TimestampTz
tick_start(int64 tick)
{
	return snowflake_layout_tick_start(&snowflake_server_layout, tick);
}

static int64
tick_at(TimestampTz time)
{
	return snowflake_layout_tick_at(&snowflake_server_layout, time);
}

static char *
time_text(TimestampTz time)
{
	return pstrdup(timestamptz_to_str(time));
}

/* Does this server have a grant from this coordinator that it can renew? */
bool
snowflake_lease_is_held(void)
{
	return shared->lease.exists && !shared->lease.lost &&
		shared->lease.source == own_source() && !lease_view().revoked &&
		!lease_view().retired;
}

/* Was the grant taken by a clock far ahead of the present one, while the generator is not there? */
static bool
is_from_the_future(TimestampTz now)
{
	return tick_start(lease_view().from) - tick_start(snowflake_lease_state_reached(now)) >
		snowflake_max_jump_ms * INT64CONST(1000);
}

/* Is there time left in the grant?  A lost lease can still be used up. */
static bool
has_time_left(void)
{
	SnowflakeLeaseView view = lease_view();

	return !view.revoked && tick_at(snowflake_generator_clock()) <= view.until;
}

/* Does snowflake.lease_nodes no longer include the node ID? */
static bool
is_unwanted(void)
{
	return snowflake_node_settings_next_lease(shared->lease.node) != shared->lease.node;
}

/* Can the grant be renewed, and is it useful? */
static bool
is_current(TimestampTz now)
{
	return snowflake_lease_is_held() && tick_at(now) <= lease_view().until &&
		!is_from_the_future(now) && !is_unwanted() && !snowflake_lease_state_is_replaced();
}

static int64
half_lease_usec(void)
{
	return snowflake_lease_ms * INT64CONST(500);
}

/*
 * Rule 9: returns the ms until the next attempt, which is due when half of the lease
 * is left, or half of one has passed since the last write was sent.  0 or less: now.
 */
long
snowflake_lease_due_ms(TimestampTz now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		left;
	int64		unasked_usec;

	if (!snowflake_lease_is_held() || lease_view().trouble != STATE_NO_TROUBLE ||
		is_from_the_future(now) || is_unwanted() || snowflake_lease_state_is_replaced())
		return 0;
	left = lease_view().until - snowflake_lease_state_reached(now) -
		snowflake_node_settings_lease_ticks() / 2 - shared->lease.renew_early_ticks;
	unasked_usec = snowflake_clock_monotonic_usec() - shared->lease.asked_usec;
	return Min((long) Min(left, PG_INT32_MAX) * layout->tick_usec / 1000,
			   (long) ((half_lease_usec() - unasked_usec) / 1000));
}

/* Record what prevents a lease, if anything.  Returns false: there is no need to look again. */
static bool
conclude(SnowflakeState trouble)
{
	snowflake_lease_state_set_trouble(trouble, 0, NULL);
	return false;
}

/* Has at most the coordinator's term changed since this value of the fleet's record? */
static bool
is_same_fleet(const char *value, const SnowflakeFleet *fleet)
{
	SnowflakeFleet before;

	return snowflake_lease_record_parse_fleet(value, &before) &&
		strcmp(before.incarnation, fleet->incarnation) == 0 &&
		before.floor == fleet->floor && !before.suspect && !fleet->suspect;
}

/* Forget the write in doubt: it was done, or it will never be used. */
static void
forget_write(void)
{
	shared->doubtful.exists = false;
	shared->doubtful.found[0] = '\0';
}

/* Does the fleet's record name the cluster that answers?  One without a name is trusted. */
static bool
is_of_cluster(const SnowflakeCoordinator *coordinator, const SnowflakeFleet *fleet)
{
	const char *cluster = coordinator->identity.cluster;

	return cluster[0] == '\0' || fleet->cluster[0] == '\0' ||
		strcmp(cluster, fleet->cluster) == 0;
}

/* The same, and also its term? */
static bool
is_of_coordinator(const SnowflakeCoordinator *coordinator, const SnowflakeFleet *fleet)
{
	int64		term = coordinator->identity.term;

	return is_of_cluster(coordinator, fleet) && (term == 0 || term == fleet->term);
}

/*
 * Send the recorded write, which is done if the node's record has the expected value
 * (NULL: if there is none) and the fleet's record is unchanged.  Returns false if it
 * was not done, or was done but the request was repeated, or another cluster did it.
 *
 * Some coordinators identify themselves only in their answers, and another host may have
 * answered before.  A copy of the records does what it is asked for, and the write stays in
 * doubt: the fleet's own cluster may grant the node ID to another server.
 *
 * An answer that arrives too late, because this process was stopped, does not count:
 * the fleet may have been re-created since, by a server that could not know of this
 * write.
 */
static bool
send_write(SnowflakeCoordinator *coordinator, const char *expected)
{
	Write	   *doubtful = &shared->doubtful;
	SnowflakeRecord unchanged = {.key = SNOWFLAKE_FLEET_KEY,.value = doubtful->fleet};
	SnowflakeFleet fleet;

	Assert(doubtful->exists);
	sent_usec = snowflake_clock_monotonic_usec();
	if (!coordinator->compare_and_set(coordinator, snowflake_lease_record_key(doubtful->node),
									  expected, doubtful->value, &unchanged))
		return false;
	if (snowflake_clock_monotonic_usec() > coordinator->deadline_usec)
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("the answer of the coordinator arrived too late"));
	return snowflake_lease_record_parse_fleet(doubtful->fleet, &fleet) &&
		is_of_cluster(coordinator, &fleet);
}

/*
 * Write to the record of a node.  Whether that is done is not known until send_write() has
 * returned, so the write is recorded first, in place of any earlier one.
 */
static bool
begin_write(SnowflakeCoordinator *coordinator, int32 node, const char *expected,
			const SnowflakeLeaseRecord *parsed, const char *fleet, bool at_clock)
{
	Write	   *doubtful = &shared->doubtful;

	forget_write();
	strlcpy(doubtful->value, snowflake_lease_record_print(parsed), SNOWFLAKE_VALUE_SIZE);
	strlcpy(doubtful->fleet, fleet, SNOWFLAKE_VALUE_SIZE);
	doubtful->node = node;
	doubtful->at_clock = at_clock;
	doubtful->exists = true;
	return send_write(coordinator, expected);
}

/*
 * The write is in the record: the grant is ours.  Servers that were all waiting for a
 * coordinator write to it at the same time.  To spread them, each renews a little earlier
 * the next time.
 */
static void
adopt_write(TimestampTz now)
{
	SnowflakeLeaseRecord parsed;
	Lease	   *lease = &shared->lease;
	bool		renewed;
	uint32		source = own_source();

	if (!snowflake_lease_record_parse(shared->doubtful.value, &parsed))
		elog(ERROR, "could not parse a lease that was just written");
	renewed = lease->exists && !lease->lost && lease->source == source &&
		lease->node == shared->doubtful.node && lease_view().from == parsed.from;

	/*
	 * in this order: if this process ends, its successor still has the write
	 * in doubt
	 */
	strlcpy(lease->value, shared->doubtful.value, SNOWFLAKE_VALUE_SIZE);
	strlcpy(lease->fleet, shared->doubtful.fleet, SNOWFLAKE_VALUE_SIZE);
	lease->node = shared->doubtful.node;
	lease->source = source;
	lease->renew_early_ticks = renewed && lease_view().trouble == STATE_NO_TROUBLE ? 0 :
		hash_bytes((unsigned char *) lease->value, strlen(lease->value)) %
		(snowflake_node_settings_lease_ticks() / 8 + 1);
	lease->asked_usec = sent_usec;
	lease->lost = false;
	lease->exists = true;
	snowflake_lease_state_publish(lease->node, parsed.from, parsed.until, !renewed,
								  shared->doubtful.at_clock, now);
	forget_write();

	if (!renewed)
		ereport(LOG,
				errmsg("leased snowflake node ID %d from the coordinator", lease->node),
				errdetail("The lease covers times from \"%s\" up to \"%s\", and will be renewed.",
						  time_text(tick_start(parsed.from)), time_text(tick_start(parsed.until))));
}

/*
 * Rule 2: move "until" ahead.  Returns false if the record is neither what was
 * last written to it nor the write in doubt, or if the fleet's record has changed.
 */
static bool
renew(SnowflakeCoordinator *coordinator, TimestampTz now)
{
	Lease	   *lease = &shared->lease;
	SnowflakeLeaseRecord parsed;

	if (shared->doubtful.exists && shared->doubtful.node == lease->node)
	{
		if (!send_write(coordinator, lease->value))
			return false;
	}
	else
	{
		if (!snowflake_lease_record_parse(lease->value, &parsed))
			elog(ERROR, "could not parse a lease that this server wrote");
		snowflake_lease_record_nonce(parsed.nonce);
		parsed.until = Min(Max(parsed.until,
							   snowflake_lease_state_reached(now) + snowflake_node_settings_lease_ticks()),
						   snowflake_server_layout.max_tick);
		if (!begin_write(coordinator, lease->node, lease->value,
						 &parsed, lease->fleet, false))
			return false;
	}
	adopt_write(now);
	return true;
}

/*
 * The answer of a write was lost, or the write was done and repeated: whose is its
 * record?  If the record is unchanged, the write may yet be done, and renew() repeats
 * it.  If the fleet is another one, it can no longer be done.
 *
 * If it was done, the record is ours, but a record that can be read need not be
 * durable: the coordinator may still be waiting for its standbys, or have given that
 * up.  So the grant is used only when it has been written once more, with an answer.  Then
 * this returns true; or if it has not, and *again is set: the next look will show.
 */
static bool
settle_write(SnowflakeCoordinator *coordinator, const SnowflakeFleet *fleet, TimestampTz now,
			 bool *again)
{
	Write	   *doubtful = &shared->doubtful;
	const SnowflakeRecord *record;
	SnowflakeLeaseRecord parsed;

	if (!doubtful->exists)
		return false;
	if (!is_same_fleet(doubtful->fleet, fleet) ||
		!snowflake_lease_record_parse(doubtful->value, &parsed))
	{
		forget_write();
		return false;
	}
	strlcpy(doubtful->fleet, fleet->value, SNOWFLAKE_VALUE_SIZE);
	record = snowflake_lease_record_read(coordinator, snowflake_lease_record_key(doubtful->node));
	if (record != NULL && strcmp(record->value, doubtful->value) == 0)
	{
		strlcpy(doubtful->found, record->value, SNOWFLAKE_VALUE_SIZE);
		snowflake_lease_record_nonce(parsed.nonce);
		strlcpy(doubtful->value, snowflake_lease_record_print(&parsed), SNOWFLAKE_VALUE_SIZE);
	}
	if (record != NULL && doubtful->found[0] != '\0' &&
		strcmp(record->value, doubtful->found) == 0)
	{
		*again = !send_write(coordinator, record->value);
		if (!*again)
			adopt_write(now);
		return true;
	}
	if (!(snowflake_lease_is_held() && doubtful->node == shared->lease.node &&
		  record != NULL && strcmp(record->value, shared->lease.value) == 0))
		forget_write();
	return false;
}

/* How the coordinator's records compare with this server's lease. */
typedef enum Standing
{
	LEASE_STANDS,				/* it has what was last written, or there is
								 * no lease */
	LEASE_LOST,					/* it can be used up, but not renewed */
	LEASE_DOUBLED,				/* another server had it as well: give it up */
	LEASE_FORGOTTEN				/* it may be granted to another server */
} Standing;

/*
 * Does the coordinator still know our grant?  If not, it is lost, which does no harm:
 * it can be used up, and the server that has the node ID now starts above it.  The
 * exception is an older record: then another server may be granted, or have been granted,
 * the range that this server had.
 *
 * A grant that is lost already is judged again for as long as it is used: the fleet
 * may be re-created once more, with a lower floor.  If it was re-created above our lease, no
 * server is granted any of it from then on; but before that, when the coordinator had
 * forgotten the lease, the node ID may have been.
 */
static Standing
judge_lease(SnowflakeCoordinator *coordinator, const SnowflakeFleet *fleet)
{
	Lease	   *lease = &shared->lease;
	const SnowflakeRecord *record;
	SnowflakeFleet own_fleet;
	SnowflakeLeaseRecord own,
				found;
	bool		is_found;

	if (!lease->exists || lease->source != own_source() ||
		(lease->lost && !has_time_left()) ||
		!snowflake_lease_record_parse(lease->value, &own) ||
		!snowflake_lease_record_parse_fleet(lease->fleet, &own_fleet))
		return LEASE_STANDS;

	record = snowflake_lease_record_read(coordinator, snowflake_lease_record_key(lease->node));
	if (record != NULL && strcmp(record->value, lease->value) == 0 &&
		strcmp(fleet->incarnation, own_fleet.incarnation) == 0)
	{
		if (is_same_fleet(lease->fleet, fleet))
			strlcpy(lease->fleet, fleet->value, SNOWFLAKE_VALUE_SIZE);
		return LEASE_STANDS;
	}
	is_found = record != NULL && snowflake_lease_record_parse(record->value, &found);

	/* it was shortened to be given back, and the answer was lost */
	own.until = Min(own.until, lease_view().until);

	/* our own grant, at an earlier time, or renewed by a twin */
	if (is_found && strcmp(found.token, own.token) == 0)
		return Max(found.until, fleet->floor) < own.until ? LEASE_FORGOTTEN : LEASE_LOST;
	if (strcmp(fleet->incarnation, own_fleet.incarnation) != 0)
		return fleet->floor < own.until ? LEASE_FORGOTTEN :
			is_found && found.from <= own.until && found.until >= own.from ? LEASE_DOUBLED :
			LEASE_LOST;
	if (is_found)
		return found.from <= own.until ? LEASE_FORGOTTEN : LEASE_LOST;

	/* no server takes over a damaged record */
	return record == NULL ? LEASE_FORGOTTEN : LEASE_LOST;
}

/* The lease can no longer be renewed, but can be used up, unless it was revoked. */
static void
lose_lease(void)
{
	SnowflakeLeaseView view = lease_view();

	shared->lease.lost = true;
	if (!view.revoked)
		ereport(LOG,
				errmsg("lost the lease of snowflake node ID %d", shared->lease.node),
				errdetail("The time that was granted can still be used, until \"%s\".",
						  time_text(tick_start(view.until))));
}

/* Rule 6: mark the fleet, so that an administrator has to re-create it above what this server had. */
static void
mark_suspect(SnowflakeCoordinator *coordinator, SnowflakeFleet *fleet)
{
	int64		until = lease_view().until;

	if (fleet->suspect && fleet->reported >= until)
		return;
	if (fleet->reported < until)
	{
		fleet->reported = until;
		snowflake_lease_record_own_name(fleet->reporter);
	}
	fleet->suspect = true;
	(void) coordinator->compare_and_set(coordinator, SNOWFLAKE_FLEET_KEY, fleet->value,
										snowflake_lease_record_print_fleet(fleet), NULL);
}

/*
 * Rule 7: is this the fleet's coordinator?  If it has taken over from another one, that is
 * recorded, and *again is set: the caller looks again.
 */
static bool
knows_coordinator(SnowflakeCoordinator *coordinator, SnowflakeFleet *fleet, bool *again)
{
	*again = false;
	if (strcmp(shared->incarnation, fleet->incarnation) != 0)
	{
		strlcpy(shared->incarnation, fleet->incarnation, SNOWFLAKE_NONCE_SIZE);
		shared->term = 0;
	}
	if (shared->term < fleet->term)
	{
		shared->term = fleet->term;
		shared->term_since_usec = snowflake_clock_monotonic_usec();
	}
	if (!is_of_cluster(coordinator, fleet))
		return conclude(STATE_FLEET_COPIED);
	if (coordinator->identity.term != 0 && coordinator->identity.term < shared->term)
		return conclude(STATE_FLEET_REPLACED);
	if (is_of_coordinator(coordinator, fleet))
		return true;
	fleet->term = coordinator->identity.term;
	fleet->since = Max(coordinator->identity.clock, 1);
	(void) coordinator->compare_and_set(coordinator, SNOWFLAKE_FLEET_KEY, fleet->value,
										snowflake_lease_record_print_fleet(fleet), NULL);
	*again = true;
	return false;
}

/*
 * Rule 7: has the coordinator changed so recently that a holder of a lost grant may not
 * have asked it yet?  This is measured by the coordinator's own clock and, in case that
 * was set, from when this server first saw the new term.  The time of an attempt is
 * added, which a holder may have begun at the last moment.
 */
static bool
is_new_term(const SnowflakeCoordinator *coordinator, const SnowflakeFleet *fleet)
{
	int64		notice_usec = half_lease_usec() + answer_usec;

	return fleet->since != 0 && coordinator->identity.clock - fleet->since < notice_usec &&
		snowflake_clock_monotonic_usec() - shared->term_since_usec < notice_usec;
}

/*
 * Rule 2: take a grant.  It starts above all earlier grants of the node ID, above
 * the fleet's floor, and not before our clock.  Returns true if another server
 * was faster: then others choose at the same time, and the caller looks again.
 */
static bool
take(SnowflakeCoordinator *coordinator, const SnowflakeFleet *fleet, TimestampTz now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	const SnowflakeRecord *record = NULL;
	SnowflakeLeaseRecord parsed;
	SnowflakeLeaseView view = lease_view();
	int64		now_tick = tick_at(now);
	int64		began_usec = snowflake_clock_monotonic_usec();
	int64		reached;
	int32		node;
	bool		at_clock = snowflake_lease_state_is_replaced();
	bool		is_done;

	if (snowflake_lease_state_floor_passed(fleet->floor) - now > SNOWFLAKE_LEASE_EARLY_USEC)
	{
		snowflake_lease_state_set_trouble(STATE_FLEET_BELOW_FLOOR, fleet->floor, NULL);
		return false;
	}
	if (is_new_term(coordinator, fleet))
		return conclude(STATE_FLEET_NEW_TERM);

	/*
	 * A long list takes time, which does no harm while there is no lease that
	 * could end meanwhile; but the write must be answered soon.
	 */
	if (now_tick > view.until || view.grant == 0 || view.revoked)
		coordinator->deadline_usec = snowflake_clock_monotonic_usec() + LISTING_USEC;
	memset(&parsed, 0, sizeof(parsed));
	parsed.until = -1;
	reached = at_clock ? now_tick : snowflake_lease_state_reached(now);
	node = snowflake_lease_choice_make(coordinator->list(coordinator, NULL), now_tick, reached,
									   races, &record, &parsed);
	coordinator->deadline_usec = snowflake_clock_monotonic_usec() + answer_usec;
	now += snowflake_clock_monotonic_usec() - began_usec;
	now_tick = tick_at(now);
	if (node < 0)
		return conclude(STATE_FLEET_FULL);

	parsed.from = Max(Max(record == NULL ? 0 : parsed.until + 1, fleet->floor + 1),
					  Max(now_tick, 1));
	if (parsed.from > layout->max_tick)
		return conclude(STATE_FLEET_FULL);

	parsed.until = Min(Max(parsed.from, reached) + snowflake_node_settings_lease_ticks(),
					   layout->max_tick);
	parsed.granted = Max(now_tick, 1);
	snowflake_lease_record_own_name(parsed.holder);
	if (shared->token[0] == '\0')
		snowflake_lease_record_nonce(shared->token);
	strlcpy(parsed.token, shared->token, SNOWFLAKE_NONCE_SIZE);
	snowflake_lease_record_nonce(parsed.nonce);

	is_done = begin_write(coordinator, node,
						  record == NULL ? NULL : record->value, &parsed, fleet->value,
						  at_clock);

	/* only now that there is an answer */
	(void) conclude(STATE_NO_TROUBLE);
	races = is_done ? 0 : races + 1;
	if (is_done)
		adopt_write(now);
	return !is_done;
}

/*
 * The setting names another fleet than that of the lease, which can be used up.  If the
 * servers of the old fleet go on in this one, its floor must be above their leases.
 */
static void
compare_with_other_fleet(const SnowflakeFleet *fleet)
{
	static char warned_of[SNOWFLAKE_NONCE_SIZE] = "";
	SnowflakeLeaseView view = lease_view();

	if (!has_time_left() || fleet->floor >= view.until ||
		!snowflake_lease_record_is_own_layout(fleet->layout) || strcmp(warned_of, fleet->incarnation) == 0)
		return;
	strlcpy(warned_of, fleet->incarnation, sizeof(warned_of));
	ereport(WARNING,
			errmsg("the floor of the snowflake fleet is below a lease of this server"),
			errdetail("Another coordinator leased node ID %d up to \"%s\". The fleet at the present coordinator grants all times from \"%s\" on.",
					  shared->lease.node,
					  time_text(tick_start(view.until)),
					  time_text(snowflake_lease_state_floor_passed(fleet->floor))),
			errhint("If this is to be the same fleet at a new coordinator, re-create it with snowflake_fleet_recover() and a floor above all leases. IDs that were minted meanwhile may have duplicates."));
}

/*
 * Read the records, as far as they are needed, and renew the grant, or take one.
 * Returns true if the caller should look again.
 */
static bool
look(SnowflakeCoordinator *coordinator, TimestampTz now)
{
	const SnowflakeRecord *record = snowflake_lease_record_read(coordinator, SNOWFLAKE_FLEET_KEY);
	Lease	   *lease = &shared->lease;
	SnowflakeFleet fleet,
				own_fleet;
	bool		again;

	if (record == NULL)
		return conclude(lease_view().grant == 0 ? STATE_FLEET_MISSING : STATE_FLEET_GONE);
	if (!snowflake_lease_record_parse_fleet(record->value, &fleet))
		return conclude(snowflake_lease_record_has_other_layout(record->value) ?
						STATE_FLEET_OF_OTHER_LAYOUT : STATE_FLEET_DAMAGED);
	if (!knows_coordinator(coordinator, &fleet, &again))
		return again;

	if (lease->exists && lease->source != own_source() &&
		snowflake_lease_record_parse_fleet(lease->fleet, &own_fleet))
	{
		/* is it the same fleet at another URL? */
		if (strcmp(own_fleet.incarnation, fleet.incarnation) == 0)
			lease->source = own_source();
		else
			compare_with_other_fleet(&fleet);
	}

	if (settle_write(coordinator, &fleet, now, &again))
	{
		(void) conclude(STATE_NO_TROUBLE);
		return again;
	}
	switch (judge_lease(coordinator, &fleet))
	{
		case LEASE_STANDS:
			break;
		case LEASE_LOST:
			if (!lease->lost)
				lose_lease();
			break;
		case LEASE_DOUBLED:
			snowflake_lease_state_revoke();
			lose_lease();
			break;
		case LEASE_FORGOTTEN:
			snowflake_lease_state_revoke();
			mark_suspect(coordinator, &fleet);
			break;
	}
	if (fleet.suspect)
		return conclude(STATE_FLEET_WENT_BACK);
	if (!snowflake_lease_record_is_own_layout(fleet.layout))
		return conclude(STATE_FLEET_OF_OTHER_LAYOUT);
	if (!is_current(now))
		return take(coordinator, &fleet, now);
	if (strcmp(lease->fleet, fleet.value) != 0)
		return false;
	if (renew(coordinator, now))
		return conclude(STATE_NO_TROUBLE);
	if (++refusals < LOOKS)
		return true;
	snowflake_coordinator_fail("it refuses to change a record that has the expected value");
}

/*
 * Do what is due: renew the grant, or take one.  "now" is the time of the
 * corrected clock; no answer counts after the coordinator's deadline.  Raises an error if
 * the coordinator cannot be used.
 */
void
snowflake_lease_attempt(SnowflakeCoordinator *coordinator, TimestampTz now)
{
	SnowflakeFleet fleet;

	answer_usec = coordinator->deadline_usec - snowflake_clock_monotonic_usec();
	refusals = 0;

	/* not one that has ended: the node ID may be another server's */
	if (is_current(now) &&
		snowflake_lease_record_parse_fleet(shared->lease.fleet, &fleet) &&
		is_of_coordinator(coordinator, &fleet) && renew(coordinator, now))
		(void) conclude(STATE_NO_TROUBLE);
	else
		for (int looks = 0; looks < LOOKS && look(coordinator, now); looks++)
			;
}

/*
 * Rule 4: give the lease back.  Nothing is minted any more, and "end" is the last
 * tick that was used; the node ID is free above it.  A lease that is lost or in
 * doubt ends by itself.
 */
void
snowflake_lease_release(SnowflakeCoordinator *coordinator, int64 end)
{
	Lease	   *lease = &shared->lease;
	SnowflakeLeaseRecord parsed;

	if (!snowflake_lease_is_held() || shared->doubtful.exists ||
		!snowflake_lease_record_parse(lease->value, &parsed))
		return;
	snowflake_lease_record_nonce(parsed.nonce);
	parsed.until = Min(Max(end, parsed.from - 1), parsed.until);
	if (begin_write(coordinator, lease->node, lease->value, &parsed, lease->fleet, false))
	{
		forget_write();
		lease->lost = true;
		ereport(LOG,
				errmsg("gave back snowflake node ID %d", lease->node));
	}
}
