/*-------------------------------------------------------------------------
 *
 * refusal.c
 *	  Which of the states in words.c minting is in: the errors of mints that
 *	  fail, which are counted, and the advice of the status.
 *
 * Everything that a state depends on is read once, without a lock for which the keeper or a mint
 * would have to wait: the state may be that of a moment ago.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/duration.h"
#include "base/settings.h"
#include "generator/counters.h"
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "keeper/keeper.h"
#include "layout/server_layout.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"
#include "mint/mint.h"

/* For each gate, its text in the status, its state, and the counter of mints that it refuses */
static const struct
{
	const char *text;
	SnowflakeState state;
	SnowflakeCounter refusal;
}			gates[] =

{
	[GATE_NO_KEEPER] = {"closed: the keeper is not running", STATE_NOT_READY, COUNTER_REFUSED_KEEPER},
	[GATE_CONNECTING] = {"closed: the keeper is connecting to its database", STATE_NOT_READY, COUNTER_REFUSED_KEEPER},
	[GATE_WAITING] = {"closed: the extension snowflake_keeper is missing in the keeper's database; the first mint creates it", STATE_NOT_READY, COUNTER_REFUSED_KEEPER},
	[GATE_CREATING] = {"closed: the keeper is creating its extension in its database", STATE_NOT_READY, COUNTER_REFUSED_KEEPER},
	[GATE_OPENING] = {"closed: the keeper is writing the reservation", STATE_NOT_READY, COUNTER_REFUSED_KEEPER},
	[GATE_NODE_UNSET] = {"closed: the node ID is not set", STATE_NODE_UNSET, COUNTER_REFUSED_NODE},
	[GATE_NODE_TOO_LARGE] = {"closed: the node ID is too large for the layout", STATE_NODE_TOO_LARGE, COUNTER_REFUSED_NODE},
	[GATE_LEASE_NONE] = {"closed: no node ID is leased yet", STATE_LEASE_NONE, COUNTER_REFUSED_NODE},
	[GATE_LEASE_ENDED] = {"closed: the lease of the node ID has ended", STATE_LEASE_ENDED, COUNTER_REFUSED_NODE},
	[GATE_LEASE_REVOKED] = {"closed: the coordinator went back in time", STATE_LEASE_REVOKED, COUNTER_REFUSED_NODE},
	[GATE_LAYOUT_CHANGED] = {"closed: snowflake.layout differs from the stored layout", STATE_LAYOUT_CHANGED, COUNTER_REFUSED_LAYOUT},
	[GATE_RESERVATION_LOST] = {"closed: the reservation of this server is not in snowflake.database", STATE_RESERVATION_LOST, COUNTER_REFUSED_KEEPER},
	[GATE_CLOCK] = {"closed: the clock is not believed", STATE_CLOCK_UNBELIEVED, COUNTER_REFUSED_CLOCK},
	[GATE_STOPPING] = {"closed: the keeper is stopping", STATE_NOT_READY, COUNTER_REFUSED_KEEPER},
	[GATE_OPEN] = {"open", STATE_NOT_READY, COUNTER_REFUSED_KEEPER},
};

/* Everything that is known when a state is reported. */
typedef struct Situation
{
	SnowflakeGate gate;			/* on a standby, what it would be after a
								 * promotion */
	SnowflakeState state;		/* the one whose hint is asked for */
	SnowflakeView view;
	SnowflakeLeaseView lease;
	SnowflakeKeeperView keeper;
	SnowflakeClockState clock;
	int64		lead_usec;		/* of the newest position, and by how much
								 * that is more than it may be */
	int64		excess_usec;

	/* A mint that fails */
	bool		has_waited;
	int64		waited_usec;
	bool		lease_is_needed;	/* now, by mints */
} Situation;

/* Read everything that a state depends on. */
static void
look(Situation *now)
{
	memset(now, 0, sizeof(*now));
	snowflake_generator_view(&now->view);
	now->gate = now->view.gate;
	snowflake_lease_state_view(&now->lease);
	now->lease_is_needed = now->gate != GATE_OPEN || snowflake_lease_state_is_late(&now->lease, &now->view);
	snowflake_keeper_state_view(&now->keeper);
	now->clock = snowflake_clock_state();
	now->lead_usec = now->clock.belief == CLOCK_REFUSED ? -now->clock.off_usec :
		snowflake_generator_lead_usec(&now->view);
	now->excess_usec = now->lead_usec - snowflake_generator_early_usec() -
		snowflake_generator_may_lead_usec();
}

/* Returns the problem with the database that snowflake.database names. */
static SnowflakeState
state_of_database(void)
{
	Oid			database = get_database_oid(snowflake_database, true);

	if (!OidIsValid(database))
		return STATE_DATABASE_MISSING;
	return snowflake_reservation_home_is_template(database) ? STATE_DATABASE_TEMPLATE : STATE_NO_TROUBLE;
}

static bool
server_has_no_keeper(void)
{
	/* single-user mode, pg_upgrade */
	return !IsUnderPostmaster || IsBinaryUpgrade;
}

/*
 * Returns what prevents the keeper from its work.  A state that may be over in a moment counts
 * only if mints have to wait for it, and is reported as a short one unless a mint has waited
 * long enough.
 */
static SnowflakeState
state_of_keeper(const Situation *now)
{
	/* in these states a keeper at rest only waits for a mint to ask */
	bool		may_rest = now->gate == GATE_OPEN || now->gate == GATE_WAITING;
	bool		mints_wait = (now->gate != GATE_OPEN || snowflake_generator_is_unreserved(&now->view)) &&
	!(may_rest && now->keeper.is_at_rest);

	if (now->keeper.standby_wait_usec != 0)
		return STATE_STANDBY_AWAITED;
	if (now->keeper.failure == ERRCODE_UNDEFINED_OBJECT && now->gate != GATE_OPEN)
		return STATE_LANGUAGE_MISSING;	/* CREATE EXTENSION said so */
	if (now->keeper.failure != 0)
		return STATE_KEEPER_FAILED;
	if (now->keeper.pid == 0)
		return now->has_waited || now->keeper.is_missing ? STATE_KEEPER_MISSING :
			mints_wait ? STATE_KEEPER_STARTS : STATE_NO_TROUBLE;
	return now->has_waited || now->keeper.is_held ? STATE_KEEPER_HELD :
		mints_wait ? STATE_KEEPER_BUSY : STATE_NO_TROUBLE;
}

/*
 * Returns why nothing is granted or renewed.  A floor that is passed no longer matters, even if
 * the lessee has not noticed; neither does one that is passed before the lease ends.
 */
static SnowflakeState
state_of_lease(const Situation *now)
{
	const SnowflakeLeaseView *lease = &now->lease;

	if (lease->trouble == STATE_FLEET_BELOW_FLOOR && now->gate == GATE_OPEN &&
		lease->grant != 0 && !lease->revoked && !lease->retired && lease->floor < lease->until)
		return STATE_NO_TROUBLE;
	if (lease->trouble != STATE_NO_TROUBLE &&
		!(lease->trouble == STATE_FLEET_BELOW_FLOOR &&
		  snowflake_lease_state_floor_passed(lease->floor) < snowflake_generator_clock()))
		return lease->trouble;
	if (lease->pid == 0)
		return STATE_LESSEE_MISSING;
	if (!now->lease_is_needed)
		return STATE_NO_TROUBLE;
	if (snowflake_lease_state_is_asking(lease))
		return STATE_LESSEE_SOUND;
	return lease->grant == 0 ? STATE_LESSEE_ASKS : STATE_LESSEE_LATE;
}

static SnowflakeState
state_of_clock(const Situation *now)
{
	TimestampTz clock = snowflake_clock_wall();

	if (!snowflake_layout_has_time(&snowflake_server_layout, clock))
		return clock < snowflake_server_layout.epoch ? STATE_CLOCK_BEFORE_EPOCH : STATE_CLOCK_PAST_END;
	if (now->clock.no_id && clock < SNOWFLAKE_RELEASE_TIME)
		return STATE_CLOCK_UNRELEASED;
	return now->clock.belief != CLOCK_REFUSED ? STATE_CLOCK_UNBELIEVED :
		now->clock.off_usec < 0 ? STATE_CLOCK_BEHIND : STATE_CLOCK_DOUBTED;
}

/* Returns what is wrong, judging by the gate; of an open gate, judging by the keeper. */
static SnowflakeState
state_of_gate(const Situation *now)
{
	SnowflakeState state = gates[now->gate].state;

	if (state == STATE_CLOCK_UNBELIEVED)
		return state_of_clock(now);
	if (state == STATE_NODE_UNSET && snowflake_node_source != NODE_FROM_SETTING)
		return snowflake_node_source == NODE_FROM_HOSTNAME ? STATE_HOST_WITHOUT_NUMBER :
			STATE_HOST_WITHOUT_ADDRESS;
	if (state == STATE_NODE_TOO_LARGE && snowflake_node_source != NODE_FROM_SETTING)
		return STATE_HOST_TOO_LARGE;
	if (state != STATE_NOT_READY)
		return state;
	if (server_has_no_keeper())
		return STATE_KEEPERLESS;
	if (snowflake_keeper_is_workerless())
		return STATE_WORKERLESS;
	return state_of_database() != STATE_NO_TROUBLE ? state_of_database() : STATE_NOT_READY;
}

/* Returns the state when the clock has jumped.  Believing it helps, unless IDs are ahead of it. */
static SnowflakeState
state_of_jump(const Situation *now)
{
	if (!snowflake_layout_has_time(&snowflake_server_layout, snowflake_clock_wall()))
		return STATE_JUMPED_OUT;
	return now->excess_usec > 0 && now->clock.off_usec < 0 ? STATE_JUMPED_BACK : STATE_JUMPED;
}

/* Is the generator ahead of the clock because of snowflake_advance(), for the most part? */
static bool
is_advanced(const Situation *now)
{
	int64		raised_usec = snowflake_generator_time(now->view.raised_to) - snowflake_generator_clock();

	return now->view.is_advanced && raised_usec > 0 &&
		now->clock.back[0].by_usec <= raised_usec / 2;
}

/*
 * Does a generator that is too far ahead merely wait for the end of what was reserved before a
 * crash or a promotion?  Then the clock is probably right: the keeper reserves no further ahead
 * of it.
 */
static bool
resumes(const Situation *now)
{
	return snowflake_generator_is_unused(&now->view) &&
		now->excess_usec <= snowflake_reservation_ms * INT64CONST(1000) +
		snowflake_server_layout.tick_usec;
}

/* Returns why IDs are ahead of the clock.  Time makes up for an older lead first. */
static SnowflakeState
why_ahead(const Situation *now)
{
	const SnowflakeClockBack *back = now->clock.back;

	if (is_advanced(now))
		return STATE_ADVANCED;
	if (back[0].by_usec > 0)
		return now->lead_usec - back[0].by_usec < USECS_PER_SEC ? STATE_WENT_BACK :
			back[1].by_usec > 0 ? STATE_WENT_BACK_AGAIN : STATE_WENT_BACK_AHEAD;
	return snowflake_generator_is_unused(&now->view) ? STATE_STARTED : STATE_LOWERED;
}

static SnowflakeState
way_at_clock(void)
{
	return snowflake_node_source == NODE_FROM_LEASE ? STATE_WAY_AT_CLOCK_LEASED : STATE_WAY_AT_CLOCK;
}

/* Returns the ways out if IDs are far ahead: snowflake.max_ahead has a maximum. */
static SnowflakeState
ways_out(const Situation *now)
{
	return now->lead_usec / USECS_PER_SEC < SNOWFLAKE_MOST_AHEAD_S ? STATE_WAYS : way_at_clock();
}

static SnowflakeState
state_if_ahead(const Situation *now)
{
	return now->clock.belief == CLOCK_COASTING ? STATE_WAITS_FOR_JUMP :
		now->excess_usec >= USECS_PER_HOUR ? STATE_WAITS_LONG :
		is_advanced(now) ? STATE_WAITS_ADVANCED : STATE_WAITS;
}

/* Returns what the status says about the gate: "open", or "closed:" and why. */
const char *
snowflake_refusal_gate(void)
{
	if (!snowflake_generator_exists())
		return "closed: the library is not preloaded";
	if (RecoveryInProgress())
		return "closed: the server is in recovery";
	return gates[snowflake_generator_gate()].text;
}

/* Has the coordinator refused a lease, so that only an administrator can change that? */
static bool
lease_is_refused(void)
{
	SnowflakeLeaseView lease;

	snowflake_lease_state_view(&lease);
	if (lease.trouble == STATE_FLEET_BELOW_FLOOR)
		return snowflake_lease_state_floor_passed(lease.floor) - snowflake_generator_clock() >
			snowflake_max_wait_ms * INT64CONST(1000);
	return lease.trouble != STATE_NO_TROUBLE && lease.trouble != STATE_COORDINATOR_UNUSABLE;
}

/*
 * Does the reason of a closed gate still hold with this backend's settings?  Then it is useless
 * to wait for the keeper to open it.  Needs a transaction.
 */
bool
snowflake_refusal_stays_closed(SnowflakeGate gate)
{
	SnowflakeNode wanted;

	switch (gate)
	{
		case GATE_NO_KEEPER:
			return server_has_no_keeper() || snowflake_keeper_is_workerless() ||
				state_of_database() != STATE_NO_TROUBLE;
		case GATE_CONNECTING:
			return state_of_database() != STATE_NO_TROUBLE;
		case GATE_NODE_UNSET:
		case GATE_NODE_TOO_LARGE:
			/* the keeper may not have read the settings that this backend has */
			snowflake_node_source_wanted(&wanted);
			return wanted.obstacle == gate;
		case GATE_LEASE_NONE:
		case GATE_LEASE_ENDED:
			return lease_is_refused();

			/*
			 * The layout and the name of the keeper's database are fixed when
			 * the server starts.  If the stored ones are changed, a reload
			 * makes the keeper check them.
			 */
		case GATE_LEASE_REVOKED:
		case GATE_LAYOUT_CHANGED:
		case GATE_RESERVATION_LOST:
			return true;
		default:
			return false;
	}
}

/* Returns what the gate would be after a promotion, as far as a standby can tell. */
static SnowflakeGate
foresee(void)
{
	Oid			database = get_database_oid(snowflake_database, true);
	Oid			kept_in = snowflake_reservation_home_database();
	SnowflakeNode wanted;

	snowflake_node_source_wanted(&wanted);
	if (wanted.obstacle != GATE_OPEN)
		return wanted.obstacle;
	if (snowflake_lease_state_has_ended(&wanted, snowflake_generator_clock()))
		return GATE_LEASE_ENDED;
	if (state_of_database() != STATE_NO_TROUBLE)
		return GATE_CONNECTING;
	if (OidIsValid(kept_in) && kept_in != database)
		return GATE_RESERVATION_LOST;
	if (database == MyDatabaseId && snowflake_reservation_table_is_of_other_layout())
		return GATE_LAYOUT_CHANGED;
	return GATE_OPEN;
}

/* Returns the state while the gate is open and the keeper works. */
static SnowflakeState
state_of_open_gate(const Situation *now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz layout_ends = snowflake_layout_tick_start(layout, layout->max_tick);

	if (snowflake_node_source == NODE_FROM_LEASE && state_of_lease(now) != STATE_NO_TROUBLE)
		return STATE_LEASE_LATE;
	if (snowflake_generator_clock() >= layout_ends ||
		snowflake_layout_position_tick(layout, now->view.last) >= layout->max_tick)
		return STATE_LAYOUT_ENDED;
	if (now->excess_usec > 0)
		return resumes(now) ? STATE_RESUMES : STATE_AHEAD;
	if (now->clock.belief == CLOCK_COASTING)
		return state_of_jump(now);
	if (now->clock.belief == CLOCK_UNPROVEN)
		return STATE_CLOCK_UNPROVEN;
	if (now->lead_usec > USECS_PER_SEC)
		return is_advanced(now) ? STATE_STANDS_ADVANCED : STATE_STANDS;
	if (snowflake_generator_clock() > layout_ends - SNOWFLAKE_LAYOUT_ENDS_SOON_USEC)
		return STATE_LAYOUT_ENDS_SOON;
	return STATE_NO_TROUBLE;
}

/*
 * Returns how long it will take, in microseconds, until the clock that IDs follow is
 * "excess_usec" further, if the clock goes on as it does.  A jump ahead that is coasted through
 * shortens that, once it has lasted long enough.
 */
int64
snowflake_refusal_wait_usec(int64 excess_usec)
{
	SnowflakeClockState state = snowflake_clock_state();

	if (state.belief != CLOCK_COASTING || state.off_usec <= 0)
		return excess_usec;
	return Min(excess_usec, Max(state.patience_usec - state.lasted_usec,
								Max(excess_usec - state.off_usec, 0)));
}

static const char *value_of(const char *word, const void *about);

static const char *
fill(const char *text, const Situation *now)
{
	return snowflake_words_fill(text, value_of, now);
}

static const char *
hint_of(SnowflakeState state, const Situation *now)
{
	return fill(snowflake_words[state].hint, now);
}

static const char *
time_text(TimestampTz time)
{
	return pstrdup(timestamptz_to_str(time));
}

static const char *
tick_text(int64 tick)
{
	return time_text(snowflake_layout_tick_start(&snowflake_server_layout, tick));
}

static const char *
layout_text(bool is_stored)
{
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE] = "";

	if (is_stored)
		(void) snowflake_generator_stored_layout(text, sizeof(text));
	else
		snowflake_layout_print(&snowflake_server_layout, text, sizeof(text));
	return pstrdup(text);
}

/* The database of a lost reservation. */
static const char *
home_text(void)
{
	Oid			home = snowflake_reservation_home_database();
	char	   *name = get_database_name(home);

	return name != NULL ? psprintf("\"%s\"", name) : psprintf("with OID %u, which was dropped", home);
}

static int32
wanted_node(void)
{
	SnowflakeNode wanted;

	snowflake_node_source_wanted(&wanted);
	return wanted.node;
}

/* How much of a lead that the newest step back of the clock does not explain is left. */
static int64
left_usec(const Situation *now)
{
	const SnowflakeClockBack *back = now->clock.back;
	int64		left = now->lead_usec - back[0].by_usec;

	return back[1].by_usec == 0 ? left : Min(left, back[1].by_usec);
}

/* How long until the clock is believed. */
static int64
clock_wait_usec(const SnowflakeClockState *clock)
{
	return clock->belief == CLOCK_REFUSED && clock->off_usec < 0 ?
		Max(-clock->off_usec - snowflake_max_ahead_s * USECS_PER_SEC, 0) :
		Max(clock->patience_usec - clock->lasted_usec, 0);
}

#define VALUE(name, value) \
	do { \
		if (strcmp(word, name) == 0) \
			return (value); \
	} while (0)

/* Returns the value of a word of the table. */
static const char *
value_of(const char *word, const void *about)
{
	const Situation *now = about;
	const SnowflakeLeaseView *lease = &now->lease;
	const SnowflakeClockState *clock = &now->clock;
	bool		may_read_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	int64		may_lead_usec = snowflake_generator_may_lead_usec();

	VALUE("message", fill(snowflake_words[now->state].message, now));
	VALUE("hint", hint_of(now->state, now));

	VALUE("database", snowflake_database);
	VALUE("home", home_text());
	VALUE("gate", gates[now->gate].text);
	VALUE("reserved_until", time_text(snowflake_generator_time(now->view.limit)));
	VALUE("last", time_text(snowflake_generator_time(now->view.last)));
	VALUE("layout", layout_text(false));
	VALUE("stored_layout", layout_text(true));
	VALUE("layout_end", tick_text(snowflake_server_layout.max_tick));
	VALUE("epoch", time_text(snowflake_server_layout.epoch));
	VALUE("max_node", psprintf("%d", snowflake_server_layout.max_node));
	VALUE("node", psprintf("%d", wanted_node()));
	VALUE("host", may_read_all ? snowflake_node_source_origin() : "The server log has what was read.");
	VALUE("host_part", snowflake_node_source == NODE_FROM_HOSTNAME ? "name" : "address");
	VALUE("node_settings", snowflake_node_source_settings());

	VALUE("keeper", hint_of(state_of_keeper(now), now));
	VALUE("keeper_pid", psprintf("%d", now->keeper.pid));
	VALUE("keeper_wait", psprintf("%d", snowflake_settings_keeper_wait_ms()));
	VALUE("max_workers", psprintf("%d", max_worker_processes));
	VALUE("failure", unpack_sql_state(now->keeper.failure));
	VALUE("standby_wait", snowflake_duration(now->keeper.standby_wait_usec));
	VALUE("unanswered", snowflake_duration(now->keeper.unanswered_usec));

	VALUE("coordinator", hint_of(state_of_lease(now), now));
	VALUE("coordinator_error", lease->error[0] != '\0' && may_read_all ? lease->error : "see the server log");
	VALUE("unusable_since", time_text(lease->trouble_since));
	VALUE("floor", time_text(snowflake_lease_state_floor_passed(lease->floor)));
	VALUE("leased_node", psprintf("%d", lease->node));
	VALUE("leased_until", tick_text(lease->until));
	VALUE("renewed_at", time_text(lease->renewed_at));
	VALUE("lessee_pid", psprintf("%d", lease->pid));

	VALUE("why", hint_of(why_ahead(now), now));
	VALUE("todo", hint_of(state_if_ahead(now), now));
	VALUE("jumped", hint_of(state_of_jump(now), now));
	VALUE("ways", hint_of(ways_out(now), now));
	VALUE("at_clock", hint_of(way_at_clock(), now));
	VALUE("jump", psprintf("%s by %s, %s ago", clock->off_usec > 0 ? "ahead" : "back",
						   snowflake_duration(i64abs(clock->off_usec)),
						   snowflake_duration(clock->lasted_usec)));
	VALUE("back", snowflake_duration(clock->back[0].by_usec));
	VALUE("back_ago", snowflake_duration(clock->back[0].ago_usec));
	VALUE("left", snowflake_duration(left_usec(now)));
	VALUE("earlier_back", snowflake_duration(clock->back[1].by_usec));
	VALUE("earlier_back_ago", snowflake_duration(clock->back[1].ago_usec));
	VALUE("clock", time_text(snowflake_clock_wall()));
	VALUE("clock_past", snowflake_duration(i64abs(clock->off_usec)));
	VALUE("clock_behind", snowflake_duration(i64abs(clock->off_usec)));
	VALUE("clock_wait", snowflake_duration(clock_wait_usec(clock)));
	VALUE("needed_ahead", psprintf(INT64_FORMAT, now->lead_usec / USECS_PER_SEC + 1));
	VALUE("max_ahead", snowflake_duration(snowflake_max_ahead_s * USECS_PER_SEC));
	VALUE("lead", snowflake_duration(now->lead_usec));
	VALUE("may_lead", snowflake_duration(may_lead_usec));
	VALUE("may_lead_setting", may_lead_usec <= snowflake_max_lead_ms * INT64CONST(1000) ?
		  "snowflake.max_lead" : "snowflake.max_ahead");
	VALUE("wait", snowflake_duration(snowflake_refusal_wait_usec(now->excess_usec)));
	VALUE("waited", snowflake_duration(now->waited_usec));
	VALUE("max_wait", psprintf("%d", snowflake_max_wait_ms));
	elog(ERROR, "unknown word \"%s\"", word);
}

#undef VALUE


/*
 * Errors
 */

/* In recovery, raise an error as nextval() does. */
void
snowflake_refusal_in_recovery(const char *function)
{
	if (!RecoveryInProgress())
		return;
	snowflake_counters_add(COUNTER_REFUSED_STANDBY);
	PreventCommandDuringRecovery(function);
}

/* Raise the error of a mint in this state, and count it.  Needs a transaction. */
pg_noreturn static void
refuse(SnowflakeState state, SnowflakeCounter refusal, const Situation *now)
{
	const SnowflakeWords *words = &snowflake_words[state];

	snowflake_counters_add(refusal);
	ereport(ERROR,
			errcode(snowflake_words_sqlstate(state)),
			errmsg_internal("%s", fill(words->message, now)),
			words->detail ? errdetail_internal("%s", fill(words->detail, now)) : 0,
			words->hint ? errhint("%s", fill(words->hint, now)) : 0);
}

/* Raise the error of a mint that a closed gate refuses.  Returns only if the gate is open. */
void
snowflake_refusal_closed(SnowflakeGate gate)
{
	Situation	now;

	if (gate == GATE_OPEN)
		return;
	look(&now);
	now.gate = gate;
	now.lease_is_needed = true;
	now.has_waited = true;
	refuse(state_of_gate(&now), gates[gate].refusal, &now);
}

void
snowflake_refusal_ended(void)
{
	Situation	now;

	look(&now);
	refuse(STATE_LAYOUT_ENDED, COUNTER_REFUSED_END, &now);
}

/* The generator would be ahead of the clock by "excess_usec" more than it may be. */
void
snowflake_refusal_ahead(int64 excess_usec, int64 waited_usec)
{
	Situation	now;

	look(&now);
	now.waited_usec = waited_usec;
	now.excess_usec = excess_usec;
	now.lead_usec = excess_usec + snowflake_generator_may_lead_usec();
	refuse(resumes(&now) ? STATE_RESUMES : STATE_AHEAD, COUNTER_REFUSED_CLOCK, &now);
}

/* The same, and the keeper has not judged that clock in time. */
void
snowflake_refusal_unjudged(int64 excess_usec)
{
	Situation	now;

	look(&now);
	now.has_waited = true;
	now.lead_usec = excess_usec + snowflake_generator_may_lead_usec();
	refuse(STATE_UNJUDGED, COUNTER_REFUSED_KEEPER, &now);
}

void
snowflake_refusal_unreserved(void)
{
	SnowflakeNode wanted;
	Situation	now;

	look(&now);

	/* beyond a lease nothing can be reserved */
	snowflake_node_source_wanted(&wanted);
	if (now.view.limit >= wanted.end)
		snowflake_refusal_closed(GATE_LEASE_ENDED);
	now.has_waited = true;
	refuse(STATE_UNRESERVED, COUNTER_REFUSED_KEEPER, &now);
}

/*
 * Returns what to do, in sentences, or NULL if all is well or will be in a moment; on a
 * standby, what to do so that it can mint after a promotion.  Needs a transaction.
 */
const char *
snowflake_refusal_advice(void)
{
	Situation	now;
	SnowflakeState state;

	if (!snowflake_generator_exists())
		return snowflake_words[STATE_UNPRELOADED].hint;
	look(&now);
	if (RecoveryInProgress())
	{
		now.gate = foresee();
		if (now.gate == GATE_OPEN)
			return NULL;
		now.lease_is_needed = true;
		now.state = state_of_gate(&now);
		return hint_of(STATE_STANDBY_UNFIT, &now);
	}

	state = state_of_gate(&now);
	if (state == STATE_NOT_READY)
		state = state_of_keeper(&now);
	if (state == STATE_NO_TROUBLE && now.gate == GATE_OPEN)
		state = state_of_open_gate(&now);
	return state == STATE_NO_TROUBLE ? NULL : hint_of(state, &now);
}
