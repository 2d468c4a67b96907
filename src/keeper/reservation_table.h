/*-------------------------------------------------------------------------
 *
 * reservation_table.h
 *	  The table in which the keeper keeps the reservation.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_RESERVATION_TABLE_H
#define SNOWFLAKE_RESERVATION_TABLE_H

#include "datatype/timestamp.h"

/* What the rows say; of a time -infinity if there is none. */
typedef struct SnowflakeReservation
{
	TimestampTz until;			/* the latest of all node IDs whose order
								 * stands */
	int32		last_node;		/* whose that is, -1 if that is not known */
	TimestampTz own_until;		/* that of the node ID itself */
	TimestampTz row_until;		/* the same, without the row for lost ones */
	TimestampTz highest;		/* and of all node IDs */
	char	   *other_layout;	/* a layout of any row that is not the
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

#endif							/* SNOWFLAKE_RESERVATION_TABLE_H */
