/*-------------------------------------------------------------------------
 *
 * reservation_table.h
 *	  The table in which the keeper keeps the reservation.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_RESERVATION_TABLE_H
#define SNOWFLAKE_RESERVATION_TABLE_H

#include "base/clock.h"

/* What the rows of all node IDs say. */
typedef struct SnowflakeReservation
{
	bool		found;
	TimestampTz until;			/* the latest of all that count */
	int32		last_node;		/* whose that is, -1 if that is not known */
	bool		own_found;
	TimestampTz own_until;		/* that of the node ID itself */
	SnowflakeClockLine line;	/* that was kept with the latest */
	char	   *other_layout;	/* a layout of any row that is not the
								 * configured one, or NULL */
} SnowflakeReservation;

extern bool snowflake_reservation_table_exists(void);
extern void snowflake_reservation_table_create(TimestampTz highest);
extern void snowflake_reservation_table_make_up(TimestampTz highest);
extern SnowflakeReservation snowflake_reservation_table_read(int32 node);
extern bool snowflake_reservation_table_is_of_other_layout(void);
extern void snowflake_reservation_table_write(int32 node, TimestampTz until,
											  TimestampTz highest);
extern void snowflake_reservation_table_raise(TimestampTz until);
extern void snowflake_reservation_table_accept_layout(void);
extern void snowflake_reservation_table_give_up_order(TimestampTz now);

#endif							/* SNOWFLAKE_RESERVATION_TABLE_H */
