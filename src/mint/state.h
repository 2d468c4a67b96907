/*-------------------------------------------------------------------------
 *
 * state.h
 *	  Which state minting is in.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_STATE_H
#define SNOWFLAKE_STATE_H

#include "base/clock.h"
#include "generator/generator.h"
#include "generator/words.h"
#include "lease/lease_state.h"

/* Everything that is known when a state is reported. */
typedef struct SnowflakeSituation
{
	SnowflakeGate gate;			/* on a standby, what it would be after a
								 * promotion */
	SnowflakeState state;		/* the one whose hint is asked for */
	SnowflakeView view;
	SnowflakeLeaseView lease;

	/* The keeper */
	int			keeper_pid;		/* 0: there is none */
	int			failure;		/* SQLSTATE of its last attempt, or 0 */
	int64		standby_wait_usec;
	int64		unanswered_usec;

	/* The clock */
	SnowflakeClockState clock;
	int64		lead_usec;		/* of the newest position, and by how much
								 * that is more than it may be */
	int64		excess_usec;

	/* A mint that fails */
	bool		has_waited;
	int64		waited_usec;
	bool		lease_is_needed;	/* now, by mints */
} SnowflakeSituation;

extern void snowflake_state_look(SnowflakeSituation *now);
extern const char *snowflake_state_gate(void);
extern bool snowflake_state_stays_closed(SnowflakeGate gate);
extern SnowflakeGate snowflake_state_foresee(void);
extern SnowflakeState snowflake_state_of_gate(const SnowflakeSituation *now);
extern SnowflakeState snowflake_state_of_open_gate(const SnowflakeSituation *now);
extern SnowflakeState snowflake_state_of_keeper(const SnowflakeSituation *now);
extern SnowflakeState snowflake_state_of_lease(const SnowflakeSituation *now);
extern SnowflakeState snowflake_state_of_jump(const SnowflakeSituation *now);
extern bool snowflake_state_resumes(const SnowflakeSituation *now);
extern SnowflakeState snowflake_state_why_ahead(const SnowflakeSituation *now);
extern SnowflakeState snowflake_state_ways(const SnowflakeSituation *now);
extern SnowflakeState snowflake_state_way_at_clock(void);
extern SnowflakeState snowflake_state_if_ahead(const SnowflakeSituation *now);
extern int64 snowflake_state_wait_usec(int64 excess_usec);

#endif							/* SNOWFLAKE_STATE_H */
