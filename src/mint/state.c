/*-------------------------------------------------------------------------
 *
 * state.c
 *	  Which of the states in words.c minting is in.
 *
 * Everything that this depends on is read once, by snowflake_state_look(), without a lock
 * for which the keeper or a mint would have to wait: the state may be that of a moment ago.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"
#include "generator/keeper_state.h"
#include "keeper/keeper.h"
#include "layout/server_layout.h"
#include "lease/node_settings.h"
#include "lease/node_source.h"
#include "mint/state.h"

/* Read everything that a state depends on. */
void
snowflake_state_look(SnowflakeSituation *now)
{
	memset(now, 0, sizeof(*now));
	snowflake_generator_view(&now->view);
	now->gate = now->view.gate;
	snowflake_lease_state_view(&now->lease);
	now->lease_is_needed = now->gate != GATE_OPEN || snowflake_lease_state_is_late(&now->lease, &now->view);
	now->keeper_pid = snowflake_keeper_state_pid();
	now->failure = snowflake_keeper_state_failure();
	now->standby_wait_usec = snowflake_keeper_state_standby_wait_usec();
	now->unanswered_usec = snowflake_keeper_state_unanswered_usec();
	now->clock = snowflake_clock_state();
	now->lead_usec = now->clock.belief == CLOCK_REFUSED ? -now->clock.off_usec :
		snowflake_layout_position_time(&snowflake_server_layout, now->view.last) -
		snowflake_generator_clock();
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

/* Single-user mode and pg_upgrade have no keeper at all. */
static bool
server_has_no_keeper(void)
{
	return !IsUnderPostmaster || IsBinaryUpgrade;
}

/*
 * Returns what prevents the keeper from its work.  A state that may be over in a moment
 * counts only if mints have to wait for it, and is reported as a short one unless a mint
 * has waited long enough.
 */
SnowflakeState
snowflake_state_of_keeper(const SnowflakeSituation *now)
{
	/* in these states a keeper at rest only waits for a mint to ask */
	bool		may_rest = now->gate == GATE_OPEN || now->gate == GATE_WAITING;
	bool		mints_wait = (now->gate != GATE_OPEN || snowflake_generator_is_unreserved(&now->view)) &&
	!(may_rest && snowflake_keeper_state_is_at_rest());

	if (now->standby_wait_usec != 0)
		return STATE_STANDBY_AWAITED;
	if (now->failure == ERRCODE_UNDEFINED_OBJECT && now->gate != GATE_OPEN)
		return STATE_LANGUAGE_MISSING;	/* CREATE EXTENSION said so */
	if (now->failure != 0)
		return STATE_KEEPER_FAILED;
	if (now->keeper_pid == 0)
		return now->has_waited || snowflake_keeper_state_is_missing() ? STATE_KEEPER_MISSING :
			mints_wait ? STATE_KEEPER_STARTS : STATE_NO_TROUBLE;
	return now->has_waited || snowflake_keeper_state_held_usec() != 0 ? STATE_KEEPER_HELD :
		mints_wait ? STATE_KEEPER_BUSY : STATE_NO_TROUBLE;
}

/*
 * Returns why nothing is granted or renewed.  A floor that is passed no longer matters, even
 * if the lessee has not noticed; neither does one that is passed before the lease ends.
 */
SnowflakeState
snowflake_state_of_lease(const SnowflakeSituation *now)
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

/* Returns the state when no clock has been believed since the start. */
static SnowflakeState
state_of_clock(const SnowflakeSituation *now)
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
SnowflakeState
snowflake_state_of_gate(const SnowflakeSituation *now)
{
	switch (now->gate)
	{
		case GATE_NODE_UNSET:
			return snowflake_node_source == NODE_FROM_SETTING ? STATE_NODE_UNSET :
				snowflake_node_source == NODE_FROM_HOSTNAME ? STATE_HOST_WITHOUT_NUMBER :
				STATE_HOST_WITHOUT_ADDRESS;
		case GATE_NODE_TOO_LARGE:
			return snowflake_node_source == NODE_FROM_SETTING ? STATE_NODE_TOO_LARGE :
				STATE_HOST_TOO_LARGE;
		case GATE_LEASE_NONE:
			return STATE_LEASE_NONE;
		case GATE_LEASE_ENDED:
			return STATE_LEASE_ENDED;
		case GATE_LEASE_REVOKED:
			return STATE_LEASE_REVOKED;
		case GATE_LAYOUT_CHANGED:
			return STATE_LAYOUT_CHANGED;
		case GATE_RESERVATION_LOST:
			return STATE_RESERVATION_LOST;
		case GATE_CLOCK:
			return state_of_clock(now);
		case GATE_NO_KEEPER:
		case GATE_CONNECTING:
		case GATE_WAITING:
		case GATE_CREATING:
		case GATE_OPENING:
		case GATE_STOPPING:
		case GATE_OPEN:
			break;
	}
	if (server_has_no_keeper())
		return STATE_KEEPERLESS;
	if (snowflake_keeper_is_workerless())
		return STATE_WORKERLESS;
	return state_of_database() != STATE_NO_TROUBLE ? state_of_database() : STATE_NOT_READY;
}

/* Returns the state when the clock has jumped.  Believing it helps, unless IDs are ahead of it. */
SnowflakeState
snowflake_state_of_jump(const SnowflakeSituation *now)
{
	if (!snowflake_layout_has_time(&snowflake_server_layout, snowflake_clock_wall()))
		return STATE_JUMPED_OUT;
	return now->excess_usec > 0 && now->clock.off_usec < 0 ? STATE_JUMPED_BACK : STATE_JUMPED;
}

/*
 * Is the generator ahead of the clock because of snowflake_advance(), and not, for the
 * most part, because the clock went back?
 */
static bool
is_advanced(const SnowflakeSituation *now)
{
	int64		raised_usec = snowflake_layout_position_time(&snowflake_server_layout, now->view.raised_to) -
	snowflake_generator_clock();

	return now->view.raised_by == RAISED_BY_ADVANCE && raised_usec > 0 &&
		now->clock.back[0].by_usec <= raised_usec / 2;
}

/*
 * Does a generator that is too far ahead merely wait for the end of what was reserved
 * before a crash or a promotion?  Then the clock is probably right: the keeper reserves no
 * further ahead of it.
 */
bool
snowflake_state_resumes(const SnowflakeSituation *now)
{
	return snowflake_generator_is_unused(&now->view) &&
		now->excess_usec <= snowflake_reservation_ms * INT64CONST(1000) +
		snowflake_server_layout.tick_usec;
}

/*
 * Returns why IDs are ahead of the clock.  Time first makes up for an older lead, so what is left
 * of that lead counts.
 */
SnowflakeState
snowflake_state_why_ahead(const SnowflakeSituation *now)
{
	const SnowflakeClockBack *back = now->clock.back;

	if (is_advanced(now))
		return STATE_ADVANCED;
	if (back[0].by_usec > 0)
		return now->lead_usec - back[0].by_usec < USECS_PER_SEC ? STATE_WENT_BACK :
			back[1].by_usec > 0 ? STATE_WENT_BACK_AGAIN : STATE_WENT_BACK_AHEAD;
	return snowflake_generator_is_unused(&now->view) ? STATE_STARTED : STATE_LOWERED;
}

/*
 * Returns the ways out if IDs are far ahead: snowflake.max_ahead cannot be set to more than its
 * maximum.
 */
SnowflakeState
snowflake_state_ways(const SnowflakeSituation *now)
{
	return now->lead_usec / USECS_PER_SEC < SNOWFLAKE_MOST_AHEAD_S ? STATE_WAYS :
		snowflake_state_way_at_clock();
}

SnowflakeState
snowflake_state_way_at_clock(void)
{
	return snowflake_node_source == NODE_FROM_LEASE ? STATE_WAY_AT_CLOCK_LEASED : STATE_WAY_AT_CLOCK;
}

SnowflakeState
snowflake_state_if_ahead(const SnowflakeSituation *now)
{
	return now->clock.belief == CLOCK_COASTING ? STATE_WAITS_FOR_JUMP :
		now->excess_usec >= USECS_PER_HOUR ? STATE_WAITS_LONG :
		is_advanced(now) ? STATE_WAITS_ADVANCED : STATE_WAITS;
}


/* Returns what the status says about the gate: "open", or "closed:" and why. */
const char *
snowflake_state_gate(void)
{
	if (!snowflake_generator_exists())
		return "closed: the library is not preloaded";
	if (RecoveryInProgress())
		return "closed: the server is in recovery";
	return snowflake_words_gate(snowflake_generator_gate());
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
 * Does the reason of a closed gate still hold with this backend's settings?  Then it is useless to
 * wait for the keeper to open it.  Needs a transaction.
 */
bool
snowflake_state_stays_closed(SnowflakeGate gate)
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
		case GATE_WAITING:
		case GATE_CREATING:
		case GATE_OPENING:
		case GATE_CLOCK:
		case GATE_STOPPING:
		case GATE_OPEN:
			break;
	}
	return false;
}

/*
 * On a standby, returns what the gate would be after a promotion, as far as
 * that can be told from here, or GATE_OPEN if nothing is known to prevent
 * minting.
 *
 * The stored layout is only known in the keeper's database, where the
 * reservation is.
 */
SnowflakeGate
snowflake_state_foresee(void)
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
SnowflakeState
snowflake_state_of_open_gate(const SnowflakeSituation *now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz layout_ends = snowflake_layout_tick_start(layout, layout->max_tick);

	if (snowflake_node_source == NODE_FROM_LEASE && snowflake_state_of_lease(now) != STATE_NO_TROUBLE)
		return STATE_LEASE_LATE;
	if (snowflake_generator_clock() >= layout_ends ||
		snowflake_layout_position_tick(layout, now->view.last) >= layout->max_tick)
		return STATE_LAYOUT_ENDED;
	if (now->excess_usec > 0)
		return snowflake_state_resumes(now) ? STATE_RESUMES : STATE_AHEAD;
	if (now->clock.belief == CLOCK_COASTING)
		return snowflake_state_of_jump(now);
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
 * "excess_usec" further, if the clock goes on as it does.  A jump ahead that is coasted
 * through shortens that, once it has lasted long enough.
 */
int64
snowflake_state_wait_usec(int64 excess_usec)
{
	SnowflakeClockState state = snowflake_clock_state();

	if (state.belief != CLOCK_COASTING || state.off_usec <= 0)
		return excess_usec;
	return Min(excess_usec, Max(state.patience_usec - state.lasted_usec,
								Max(excess_usec - state.off_usec, 0)));
}
