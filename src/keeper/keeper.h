/*-------------------------------------------------------------------------
 *
 * keeper.h
 *	  The background worker that reserves time, and its parts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_KEEPER_H
#define SNOWFLAKE_KEEPER_H

#include "datatype/timestamp.h"

#include "base/clock.h"
#include "generator/generator.h"

/* keeper.c: the worker */

extern void snowflake_keeper_init(void);
extern bool snowflake_keeper_is_workerless(void);
extern PGDLLEXPORT void snowflake_keeper_main(Datum main_arg);

/* keeper_log.c: what it writes to the server log */

extern long snowflake_keeper_log_watch(const SnowflakeVerdict *verdict);

/* keeper_transaction.c: its transactions */

extern void snowflake_keeper_transaction_init(void);
extern void snowflake_keeper_transaction_begin(const char *activity);
extern void snowflake_keeper_transaction_commit(void);
extern void snowflake_keeper_transaction_wait_for_no_standby(void);

/* reserve.c: the reservation and the gate */

extern void snowflake_reserve_open_gate(const SnowflakeNode *wanted, uint32 requests,
										TimestampTz now);
extern void snowflake_reserve_reopen_at_clock(const SnowflakeNode *wanted, TimestampTz now);
extern void snowflake_reserve_more(const SnowflakeView *view,
								   const SnowflakeNode *wanted, TimestampTz now);
extern bool snowflake_reserve_is_too_far(const SnowflakeView *view,
										 TimestampTz now);
extern void snowflake_reserve_store_end(void);

/* reservation_table.c: the rows */

/* The contents of the rows; a time is -infinity if there is none. */
typedef struct SnowflakeReservation
{
	TimestampTz until;			/* the latest of all node IDs whose order is
								 * kept */
	int32		last_node;		/* the node ID that has it, -1 if not known */
	TimestampTz own_until;		/* that of the given node ID itself */
	TimestampTz row_until;		/* the same, without the row for lost ones */
	TimestampTz highest;		/* and of all node IDs */
	char	   *other_layout;	/* a layout in any row that differs from the
								 * configured one, or NULL */
} SnowflakeReservation;

#define SNOWFLAKE_NO_RESERVATION	{DT_NOBEGIN, -1, DT_NOBEGIN, DT_NOBEGIN, DT_NOBEGIN, NULL}

extern bool snowflake_reservation_table_exists(void);
extern void snowflake_reservation_table_create(void);
extern SnowflakeReservation snowflake_reservation_table_read(int32 node, TimestampTz highest);
extern bool snowflake_reservation_table_is_of_other_layout(void);
extern void snowflake_reservation_table_write(int32 node, TimestampTz until,
											  TimestampTz highest);
extern void snowflake_reservation_table_raise(TimestampTz until);
extern void snowflake_reservation_table_accept_layout(void);
extern void snowflake_reservation_table_give_up_order(TimestampTz now);

/* reservation_home.c: the database that has them */

extern Oid	snowflake_reservation_home_database(void);
extern void snowflake_reservation_home_note(void);
extern bool snowflake_reservation_home_is_template(Oid database);

#endif							/* SNOWFLAKE_KEEPER_H */
