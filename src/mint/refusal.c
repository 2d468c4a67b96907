/*-------------------------------------------------------------------------
 *
 * refusal.c
 *	  The errors of mints that fail, which are counted, and the advice of the
 *	  status.
 *
 * words.c has the words for each state, and state.c decides which state applies.  This
 * file has the values that the words name.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_authid.h"
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
#include "keeper/keeper.h"
#include "layout/server_layout.h"
#include "lease/node_settings.h"
#include "lease/node_source.h"
#include "mint/refusal.h"
#include "mint/state.h"


/*
 * The words
 */

static const char *fill(const char *text, const SnowflakeSituation *now);

static const char *
hint_of(SnowflakeState state, const SnowflakeSituation *now)
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
position_text(uint64 position)
{
	return time_text(snowflake_layout_position_time(&snowflake_server_layout, position));
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

/* The database of a lost reservation.  A standby has no keeper that publishes it. */
static const char *
home_text(const SnowflakeSituation *now)
{
	Oid			home = OidIsValid(now->view.kept_in) ? now->view.kept_in :
	snowflake_reservation_home_database();
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

#define IS(name)	(strcmp(word, name) == 0)

static const char *
value_of_server(const char *word, const SnowflakeSituation *now)
{
	if (IS("database"))
		return snowflake_database;
	if (IS("home"))
		return home_text(now);
	if (IS("gate"))
		return snowflake_words_gate(now->gate);
	if (IS("reserved_until"))
		return position_text(now->view.limit);
	if (IS("last"))
		return position_text(now->view.last);
	if (IS("layout") || IS("stored_layout"))
		return layout_text(IS("stored_layout"));
	if (IS("layout_end"))
		return tick_text(snowflake_server_layout.max_tick);
	if (IS("epoch"))
		return time_text(snowflake_server_layout.epoch);
	if (IS("max_node"))
		return psprintf("%d", snowflake_server_layout.max_node);
	if (IS("node"))
		return psprintf("%d", wanted_node());
	if (IS("host"))

		/* its names and addresses are not public */
		return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ?
			snowflake_node_source_origin() : "The server log has what was read.";
	if (IS("host_part"))
		return snowflake_node_source == NODE_FROM_HOSTNAME ? "name" : "address";
	if (IS("node_settings"))
		return snowflake_node_source_settings();
	return NULL;
}

static const char *
value_of_keeper(const char *word, const SnowflakeSituation *now)
{
	if (IS("keeper"))
		return hint_of(snowflake_state_of_keeper(now), now);
	if (IS("keeper_pid"))
		return psprintf("%d", now->keeper_pid);
	if (IS("keeper_wait"))
		return psprintf("%d", snowflake_settings_keeper_wait_ms());
	if (IS("max_workers"))
		return psprintf("%d", max_worker_processes);
	if (IS("failure"))
		return unpack_sql_state(now->failure);
	if (IS("standby_wait"))
		return snowflake_duration(now->standby_wait_usec);
	if (IS("unanswered"))
		return snowflake_duration(now->unanswered_usec);
	return NULL;
}

static const char *
value_of_lease(const char *word, const SnowflakeSituation *now)
{
	const SnowflakeLeaseView *lease = &now->lease;

	if (IS("coordinator"))
		return hint_of(snowflake_state_of_lease(now), now);
	if (IS("coordinator_error"))
		return lease->error[0] != '\0' && has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ?
			lease->error : "see the server log";
	if (IS("unusable_since"))
		return time_text(lease->trouble_since);
	if (IS("floor"))
		return time_text(snowflake_lease_state_floor_passed(lease->floor));
	if (IS("leased_node"))
		return psprintf("%d", lease->node);
	if (IS("leased_until"))
		return tick_text(lease->until);
	if (IS("renewed_at"))
		return time_text(lease->renewed_at);
	if (IS("lessee_pid"))
		return psprintf("%d", lease->pid);
	return NULL;
}

static const char *
value_of_clock(const char *word, const SnowflakeSituation *now)
{
	const SnowflakeClockState *clock = &now->clock;
	const SnowflakeClockBack *back = clock->back;
	int64		may_lead_usec = snowflake_generator_may_lead_usec();

	if (IS("why"))
		return hint_of(snowflake_state_why_ahead(now), now);
	if (IS("todo"))
		return hint_of(snowflake_state_if_ahead(now), now);
	if (IS("jumped"))
		return hint_of(snowflake_state_of_jump(now), now);
	if (IS("jump"))
		return psprintf("%s by %s, %s ago", clock->off_usec > 0 ? "ahead" : "back",
						snowflake_duration(i64abs(clock->off_usec)),
						snowflake_duration(clock->lasted_usec));
	if (IS("back"))
		return snowflake_duration(back->by_usec);
	if (IS("back_ago"))
		return snowflake_duration(back->ago_usec);
	if (IS("left"))
		return snowflake_duration(back[1].by_usec == 0 ? now->lead_usec - back->by_usec :
								  Min(now->lead_usec - back->by_usec, back[1].by_usec));
	if (IS("earlier_back"))
		return snowflake_duration(back[1].by_usec);
	if (IS("earlier_back_ago"))
		return snowflake_duration(back[1].ago_usec);
	if (IS("clock"))
		return time_text(snowflake_clock_wall());
	if (IS("clock_past") || IS("clock_behind"))
		return snowflake_duration(i64abs(clock->off_usec));
	if (IS("clock_wait"))
		return snowflake_duration(clock->belief == CLOCK_REFUSED && clock->off_usec < 0 ?
								  Max(-clock->off_usec - snowflake_max_ahead_s * USECS_PER_SEC, 0) :
								  Max(clock->patience_usec - clock->lasted_usec, 0));
	if (IS("ways"))
		return hint_of(snowflake_state_ways(now), now);
	if (IS("at_clock"))
		return hint_of(snowflake_state_way_at_clock(), now);
	if (IS("needed_ahead"))
		return psprintf(INT64_FORMAT, now->lead_usec / USECS_PER_SEC + 1);
	if (IS("max_ahead"))
		return snowflake_duration(snowflake_max_ahead_s * USECS_PER_SEC);
	if (IS("lead"))
		return snowflake_duration(now->lead_usec);
	if (IS("may_lead"))
		return snowflake_duration(may_lead_usec);
	if (IS("may_lead_setting"))
		return may_lead_usec <= snowflake_max_lead_ms * INT64CONST(1000) ?
			"snowflake.max_lead" : "snowflake.max_ahead";
	if (IS("wait"))
		return snowflake_duration(snowflake_state_wait_usec(now->excess_usec));
	if (IS("waited"))
		return snowflake_duration(now->waited_usec);
	if (IS("max_wait"))
		return psprintf("%d", snowflake_max_wait_ms);
	return NULL;
}

#undef IS

static const char *
value_of(const char *word, const void *about)
{
	const SnowflakeSituation *now = about;
	const char *value;

	if (strcmp(word, "message") == 0)
		return fill(snowflake_words[now->state].message, now);
	if (strcmp(word, "hint") == 0)
		return hint_of(now->state, now);
	if ((value = value_of_server(word, now)) == NULL &&
		(value = value_of_keeper(word, now)) == NULL &&
		(value = value_of_lease(word, now)) == NULL &&
		(value = value_of_clock(word, now)) == NULL)
		elog(ERROR, "unknown word \"%s\"", word);
	return value;
}

static const char *
fill(const char *text, const SnowflakeSituation *now)
{
	return snowflake_words_fill(text, value_of, now);
}



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

/* The counter of mints that a gate refuses. */
static SnowflakeCounter
refusal_by(SnowflakeGate gate)
{
	switch (gate)
	{
		case GATE_NODE_UNSET:
		case GATE_NODE_TOO_LARGE:
		case GATE_LEASE_NONE:
		case GATE_LEASE_ENDED:
		case GATE_LEASE_REVOKED:
			return COUNTER_REFUSED_NODE;
		case GATE_LAYOUT_CHANGED:
			return COUNTER_REFUSED_LAYOUT;
		case GATE_CLOCK:
			return COUNTER_REFUSED_CLOCK;
		default:
			return COUNTER_REFUSED_KEEPER;
	}
}

/* Raise the error of a mint in this state, and count it.  Needs a transaction. */
pg_noreturn static void
refuse(SnowflakeState state, SnowflakeCounter refusal, const SnowflakeSituation *now)
{
	const SnowflakeWords *words = &snowflake_words[state];

	snowflake_counters_add(refusal);
	ereport(ERROR,
			errcode(snowflake_words_sqlstate(state)),
			errmsg_internal("%s", fill(words->message, now)),
			words->detail ? errdetail_internal("%s", fill(words->detail, now)) : 0,
			words->hint ? errhint("%s", fill(words->hint, now)) : 0);
}

/*
 * Raise the error of a mint that a closed gate refuses.  Returns only if the gate
 * is open.  Needs a transaction.
 */
void
snowflake_refusal_closed(SnowflakeGate gate)
{
	SnowflakeSituation now;

	if (gate == GATE_OPEN)
		return;
	snowflake_state_look(&now);
	now.gate = gate;
	now.lease_is_needed = true;
	now.has_waited = true;
	refuse(snowflake_state_of_gate(&now), refusal_by(gate), &now);
}

/* Raise the error of a mint when the layout has no later tick. */
void
snowflake_refusal_ended(void)
{
	SnowflakeSituation now;

	snowflake_state_look(&now);
	refuse(STATE_LAYOUT_ENDED, COUNTER_REFUSED_END, &now);
}

/*
 * Raise the error of a mint when the generator would be ahead of the clock by
 * "excess_usec" more than it may be, after this call has waited for
 * "waited_usec".
 */
void
snowflake_refusal_ahead(int64 excess_usec, int64 waited_usec)
{
	SnowflakeSituation now;

	snowflake_state_look(&now);
	now.waited_usec = waited_usec;
	now.excess_usec = excess_usec;
	now.lead_usec = excess_usec + snowflake_generator_may_lead_usec();
	refuse(snowflake_state_resumes(&now) ? STATE_RESUMES : STATE_AHEAD, COUNTER_REFUSED_CLOCK, &now);
}

/*
 * Raise the error of a mint when the generator is ahead of the clock by "excess_usec" more than
 * it may be, and the keeper has not judged that clock in time.
 */
void
snowflake_refusal_unjudged(int64 excess_usec)
{
	SnowflakeSituation now;

	snowflake_state_look(&now);
	now.has_waited = true;
	now.lead_usec = excess_usec + snowflake_generator_may_lead_usec();
	refuse(STATE_UNJUDGED, COUNTER_REFUSED_KEEPER, &now);
}

/* Raise the error of a mint when the keeper has not reserved more in time. */
void
snowflake_refusal_unreserved(void)
{
	SnowflakeNode wanted;
	SnowflakeSituation now;

	snowflake_state_look(&now);

	/* beyond a lease nothing can be reserved */
	snowflake_node_source_wanted(&wanted);
	if (now.view.limit >= wanted.end)
		snowflake_refusal_closed(GATE_LEASE_ENDED);
	now.has_waited = true;
	refuse(STATE_UNRESERVED, COUNTER_REFUSED_KEEPER, &now);
}


/*
 * Advice
 */

/*
 * Returns what to do, in sentences, or NULL if all is well or will be in a moment; on a
 * standby, what to do so that it can mint after a promotion.  Needs a transaction.
 */
const char *
snowflake_refusal_advice(void)
{
	SnowflakeSituation now;
	SnowflakeState state;

	if (!snowflake_generator_exists())
		return snowflake_words[STATE_UNPRELOADED].hint;
	snowflake_state_look(&now);
	if (RecoveryInProgress())
	{
		now.gate = snowflake_state_foresee();
		if (now.gate == GATE_OPEN)
			return NULL;
		now.lease_is_needed = true;
		now.state = snowflake_state_of_gate(&now);
		return hint_of(STATE_STANDBY_UNFIT, &now);
	}

	state = snowflake_state_of_gate(&now);
	if (state == STATE_NOT_READY)
		state = snowflake_state_of_keeper(&now);
	if (state == STATE_NO_TROUBLE && now.gate == GATE_OPEN)
		state = snowflake_state_of_open_gate(&now);
	return state == STATE_NO_TROUBLE ? NULL : hint_of(state, &now);
}
