/*-------------------------------------------------------------------------
 *
 * reservation_home.h
 *	  The database in which the reservation is kept.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_RESERVATION_HOME_H
#define SNOWFLAKE_RESERVATION_HOME_H

extern Oid	snowflake_reservation_home_database(void);
extern void snowflake_reservation_home_note(void);
extern bool snowflake_reservation_home_is_template(Oid database);

#endif							/* SNOWFLAKE_RESERVATION_HOME_H */
