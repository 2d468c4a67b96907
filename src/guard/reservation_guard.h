/*-------------------------------------------------------------------------
 *
 * reservation_guard.h
 *	  Only a superuser finds the reservation's table by its name.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_RESERVATION_GUARD_H
#define SNOWFLAKE_RESERVATION_GUARD_H

extern void snowflake_reservation_guard_init(void);

#endif							/* SNOWFLAKE_RESERVATION_GUARD_H */
