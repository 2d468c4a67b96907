/*-------------------------------------------------------------------------
 *
 * keeper_state.h
 *	  Requests of backends to the keeper, and its answers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_KEEPER_STATE_H
#define SNOWFLAKE_KEEPER_STATE_H

/* The requests to the keeper, as bits. */
#define SNOWFLAKE_WANT_GATE			0x01	/* a mint met a closed gate */
#define SNOWFLAKE_WANT_TIME			0x02	/* the reservation runs out */
#define SNOWFLAKE_WANT_LOOK			0x04	/* the clock seems to be behind */
#define SNOWFLAKE_WANT_FLOOR		0x08	/* the floor was raised */
#define SNOWFLAKE_WANT_LAYOUT		0x10	/* take the configured layout */
#define SNOWFLAKE_WANT_DATABASE		0x20	/* take the configured database */
#define SNOWFLAKE_WANT_CLOCK		0x40	/* believe the clock */
#define SNOWFLAKE_WANT_RESTART		0x80	/* give up the order */
#define SNOWFLAKE_WANT_NODE			0x100	/* the lease has changed */

/* What the keeper is doing, for messages. */
typedef struct SnowflakeKeeperView
{
	int			pid;			/* 0: there is none */
	int			failure;		/* SQLSTATE of the error that ended its last
								 * attempt, or 0 */
	bool		is_missing;		/* there has been none for longer than it
								 * takes to start one */
	bool		is_at_rest;		/* it will do at once what is asked of it */
	bool		is_held;		/* it takes long enough to be mentioned */
	int64		unanswered_usec;	/* for how long it, or its predecessors,
									 * have not done what was asked */
	int64		standby_wait_usec;	/* for how long its commit has been
									 * waiting for a synchronous standby; 0:
									 * it is not, or has only just begun to */
} SnowflakeKeeperView;

extern Size snowflake_keeper_state_size(void);
extern void snowflake_keeper_state_attach(void);

/* Everybody's part */
extern void snowflake_keeper_state_request(uint32 what);
extern void snowflake_keeper_state_request_restart(int32 node);
extern int32 snowflake_keeper_state_restart_node(void); /* of the last request */
extern bool snowflake_keeper_state_wait(int64 deadline_usec);
extern uint32 snowflake_keeper_state_pending(void); /* requests not taken */
extern int	snowflake_keeper_state_pid(void);	/* 0: there is none */
extern uint64 snowflake_keeper_state_judgments(void);
extern void snowflake_keeper_state_await_judgment(uint64 looks, int64 deadline_usec);

extern void snowflake_keeper_state_view(SnowflakeKeeperView *view);
extern void snowflake_keeper_state_log_standby_wait(void);

/* The keeper's part */
extern void snowflake_keeper_state_attach_keeper(void);
extern void snowflake_keeper_state_detach_keeper(void);
extern void snowflake_keeper_state_forget_requests(void);
extern uint32 snowflake_keeper_state_take(void);
extern void snowflake_keeper_state_announce(void);
extern void snowflake_keeper_state_announce_judgment(void);
extern void snowflake_keeper_state_commit_begins(void);
extern void snowflake_keeper_state_commit_ended(void);
extern void snowflake_keeper_state_failed(int sqlstate);
extern void snowflake_keeper_state_succeeded(void);

#endif							/* SNOWFLAKE_KEEPER_STATE_H */
