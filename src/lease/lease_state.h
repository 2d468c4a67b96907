/*-------------------------------------------------------------------------
 *
 * lease_state.h
 *	  The lease of this server's node ID, as other processes see it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_LEASE_STATE_H
#define SNOWFLAKE_LEASE_STATE_H

#include "generator/generator.h"
#include "generator/words.h"

/* Longest message that is kept, with its terminator */
#define SNOWFLAKE_LEASE_ERROR_SIZE	256

/* How long before the fleet's floor is passed a grant may be taken */
#define SNOWFLAKE_LEASE_EARLY_USEC	(USECS_PER_SEC / 2)

/* The lease, as other processes see it. */
typedef struct SnowflakeLeaseView
{
	uint32		grant;			/* its number; 0: there was none yet */
	int32		node;
	int64		from;			/* the first and the last tick it is for */
	int64		until;
	bool		revoked;		/* it must no longer be used, from now on */
	bool		retired;		/* likewise: the generator went back to the
								 * clock, with another node ID */
	bool		at_clock;		/* it replaces another one, and begins at the
								 * clock, to which the generator is to go back */
	TimestampTz renewed_at;
	int64		tried_usec;		/* when the lessee's last attempt ended, on
								 * the monotonic clock; 0: there was none, or
								 * it led to a lease */
	SnowflakeState trouble;		/* why nothing is granted, or renewed */
	TimestampTz trouble_since;
	int64		floor;			/* the tick whose end is waited for, if that
								 * is the trouble */
	char		error[SNOWFLAKE_LEASE_ERROR_SIZE];	/* why the coordinator
													 * cannot be used, if so */
	int			pid;			/* the lessee's, 0 if there is none */
} SnowflakeLeaseView;

extern Size snowflake_lease_state_size(void);
extern void snowflake_lease_state_attach(int tranche);

/* Everybody's part */
extern void snowflake_lease_state_view(SnowflakeLeaseView *view);
extern void snowflake_lease_state_wanted(SnowflakeNode *wanted);
extern void snowflake_lease_state_ask(void);
extern bool snowflake_lease_state_is_late(const SnowflakeLeaseView *lease,
										  const SnowflakeView *view);
extern bool snowflake_lease_state_is_asking(const SnowflakeLeaseView *lease);
extern void snowflake_lease_state_replace(uint32 grant, int64 deadline_usec);

/* The keeper's part */
extern void snowflake_lease_state_need(uint64 position);
extern void snowflake_lease_state_wake(void);
extern void snowflake_lease_state_retire(void);
extern bool snowflake_lease_state_has_ended(const SnowflakeNode *wanted,
											TimestampTz now);

/* The lessee's part */
extern bool snowflake_lease_state_attach_lessee(void);
extern bool snowflake_lease_state_is_asked(void);
extern bool snowflake_lease_state_is_replaced(void);
extern int64 snowflake_lease_state_reached(TimestampTz now);
extern TimestampTz snowflake_lease_state_floor_passed(int64 floor);
extern void snowflake_lease_state_publish(int32 node, int64 from, int64 until, bool is_new,
										  bool at_clock, TimestampTz now);
extern void snowflake_lease_state_end_attempt(void);
extern void snowflake_lease_state_shorten(int64 end);
extern void snowflake_lease_state_revoke(void);
extern void snowflake_lease_state_set_trouble(SnowflakeState trouble, int64 floor,
											  const char *error);

#endif							/* SNOWFLAKE_LEASE_STATE_H */
