/*-------------------------------------------------------------------------
 *
 * kept_in.h
 *	  In which database the reservation is kept.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_KEPT_IN_H
#define SNOWFLAKE_KEPT_IN_H

extern Oid	snowflake_reservation_database(void);
extern void snowflake_note_database(void);

#endif							/* SNOWFLAKE_KEPT_IN_H */
